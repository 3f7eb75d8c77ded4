"""How a tariff answer is scored: a table of terms in the order of `docs/scoring.md`, each one function of a `Judged`.

A function yields what it found: points, a hard fail (the score is exactly 0, whatever else was added) or a note. Codes,
rates, savings, quotes and the order of rules are computed from the answer, the case and the schedule. What a pipeline
reports of its own gates only counts against an answer, or gives the bonus.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.model.answer import Agreement
from pytest_packbench.model.errors import first_of
from pytest_packbench.packs.tariff.citations import citations, document_faults, quotes_hold
from pytest_packbench.packs.tariff.judged import EXTRA, NO_MATCH, add, note, zero
from pytest_packbench.packs.tariff.model import FORBIDDEN_LEVEL
from pytest_packbench.packs.tariff.notation import BESIDE, WIDTHS, dotted, is_under
from pytest_packbench.packs.tariff.savings import base_rate, duty, levers, no_savings, saving, what_ifs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.model.result import Term
    from pytest_packbench.packs.tariff.answer import Step
    from pytest_packbench.packs.tariff.judged import Judged

UNSAFE_TERMS = frozenset(
    {FORBIDDEN_LEVEL, "no_savings_violation", "savings_target", "unexpected_lever", "unexpected_acceptance"}
)
"""Hard fails that record the decision as unsafe: following such an answer does harm."""
CONTRADICTORY = "contradictory_decision"
MATCH_TERMS = {
    "preferred": "preferred_match",
    "allowed": "allowed_match",
    "ladder_8": "ladder_8_match",
    "ladder_6": "ladder_6_match",
    "ladder_4": "ladder_4_match",
    "chapter": "chapter_match",
    NO_MATCH: "no_match",
}
"""The term of a code by the level of its `Match`, which `Judged.match` finds."""
_ROUTINE = "6"
_MAX_SHOWN = 5
_MOST_ARTICLES = 20


def contradictory_decision(case: Judged) -> Iterator[Term]:
    """An answer beside a refusal, a refusal that recommends something, or codes in the place of other goods."""
    answer, dossier = case.answer, case.dossier
    if answer.reading.recommended:
        yield zero(
            CONTRADICTORY,
            f"refused, and {answer.reading.recommended} of its dossier recommends a code, a rate or a saving",
        )
    if answer.status != "verified":
        return
    if answer.refusal is not None:
        yield zero(CONTRADICTORY, "verified, and it has a refusal")
    if dossier.articles and not case.expected.articles:
        yield zero(CONTRADICTORY, "codes of several articles, and one code is asked for")
    if case.expected.articles and (dossier.baseline or dossier.optimized):
        yield zero(CONTRADICTORY, "a code outside of the articles, and one is asked for each of them")


def refusal(case: Judged) -> Iterator[Term]:
    """A refusal where one is expected earns points by its category; elsewhere, and an answer there, the score is 0."""
    refused, due = case.answer.status == "refused", not case.expected.expected_accept
    wanted, given = case.expected.expected_refusal_category, case.answer.refusal and case.answer.refusal.category
    said = given or "no category"
    if refused and not due:
        yield zero("unexpected_refusal", f"refusal ({said}), expected an answer")
    elif due and not refused:
        yield zero("unexpected_acceptance", f"answer ({case.answer.shown or 'no code'}), expected a refusal")
    elif due and wanted in {None, given}:
        yield add("refusal", 1.0, said)
    elif due:
        points = case.rules.scoring.wrong_refusal_category
        yield add("refusal_category_mismatch", points, f"{said}, expected {wanted}")
    for fault in case.answer.reading.faults[:_MAX_SHOWN]:
        yield note("form", f"next to the refusal, not read: {fault}")


def code(case: Judged) -> Iterator[Term]:
    """A preferred code earns 1.0, an allowed one 0.7, one of the chapter 0.3; several articles their mean."""
    articles, matches = case.expected.articles or (), case.matches
    for index, match in enumerate(matches[: len(articles) + _MOST_ARTICLES]):
        if articles:
            name = "article_extra" if match.level == EXTRA else "article_match" if match.points else "article_missing"
        else:
            name = MATCH_TERMS[match.level]
        article = f"{articles[index].name}: " if index < len(articles) else ""
        yield add(name, match.points / len(matches), f"{article}{match.detail}")
    if (hidden := len(matches) - len(articles) - _MOST_ARTICLES) > 0:
        yield add("article_extra", 0.0, f"{hidden} more are of no article of the case")
    for match in islice((match for match in matches if match.invalid), _MAX_SHOWN):
        yield note("invalid_code", match.invalid)


def process_bonus(case: Judged) -> Iterator[Term]:
    """+0.05 where the code matches, if only in its chapter, and each critical gate that ran passed.

    Critical gates are citations and missing evidence. Of several articles each has to be right.
    """
    stated, evidence = case.answer.citation_gate_result, case.answer.missing_evidence_gate_result
    # a gate that the pipeline reports as passed earns the bonus, unless the scorer finds a fault in the citations
    gates = {
        "citations": [stated and stated.ok, False if any(document_faults(case)) else quotes_hold(case)],
        "missing evidence": [evidence and evidence.ok],
    }
    failed = [name for name, found in gates.items() if False in found]
    ran = [name for name, found in gates.items() if True in found]
    why = f"failed gates: {', '.join(failed)}" if failed else "" if ran else "no critical gate ran"
    if not (case.is_right if case.expected.articles else case.matches[0].level != NO_MATCH):
        why = "not every article matches" if case.expected.articles else "no match"
    if why:
        yield note("process_bonus", f"no bonus: {why}")
    else:
        yield add("process_bonus", case.rules.scoring.bonus, f"passed gates: {', '.join(ran)}")


def gri_sequence(case: Judged) -> Iterator[Term]:
    """-0.1 where the interpretation rules are used out of order (S1 to S8 of `order.py`), or the pipeline says so."""
    faults = case.answer.order
    if faults or case.answer.stated_order is False:
        found = ", ".join(first_of(faults or ["the pipeline reports it"], 1))
        yield add("gri_sequence", case.rules.scoring.gri_sequence, f"rules out of order: {found}")
    else:
        yield note("gri_sequence", "not assessed: no steps" if faults is None else "rules in order")


def forbidden_code(case: Judged) -> Iterator[Term]:
    """A code under one of `must_not_hts`, in any place of the answer that has a code: the score is 0."""
    yield from (zero(FORBIDDEN_LEVEL, found) for found in islice(case.forbidden(), _MAX_SHOWN))


def deciding_rule(case: Judged) -> Iterator[Term]:
    """-0.1 where the rule that the case names does not decide, alone and when due, on what the answer gives."""
    wanted, steps = case.expected.expected_rule, case.dossier.gri_trace.steps
    if wanted is None:
        return
    if fault := _rule_fault(wanted, steps, case.scored.hts_code if case.scored and case.is_right else ""):
        yield add("deciding_rule", case.rules.scoring.deciding_rule, f"{fault}; expected rule {wanted}")
    else:
        yield note("deciding_rule", f"rule {wanted} decides, as expected")


def _rule_fault(wanted: str, steps: Sequence[Step], right_code: str) -> str:
    """Return why a trace is not decided by a rule; empty if it is."""
    decided, deciding = [step for step in steps if step.chosen], deciding_rules(steps)
    due = [step for step in decided if step.rule == wanted]
    if not (deciding == [wanted] or (wanted in BESIDE and due)):
        return f"decided by rule {' and '.join(deciding)}" if deciding else "no step of the rules decides"
    for step in decided if right_code else ():
        chosen = step.chosen or ""
        if not (is_under(right_code, chosen) or is_under(chosen, right_code)):
            return f"rule {step.rule} chooses {dotted(chosen)}, the answer is {dotted(right_code)}"
    for step in due if right_code and wanted not in {*BESIDE, "1"} else ():
        openings = [each for each in steps if each.level == step.level and each.rule in {"1", _ROUTINE}]
        if not openings or any(each.chosen for each in openings):
            return f"rule {wanted} is not due for the {step.level}: rule 1 or 6 does not leave it open"
    return ""


def deciding_rules(steps: Sequence[Step]) -> list[str]:
    """Return the rules that decide a trace.

    They are those of the heading or, where rule 1 decides it, of the deepest level below that another rule decides.
    Rule 6 opens every level below the heading, and rule 5 and the Additional US Rules apply beside others, so none of
    them decides. More than one rule for a level contradict each other.
    """
    deciding = [step for step in steps if step.chosen and step.rule not in {_ROUTINE, *BESIDE}]
    by_level: list[list[str]] = [
        [*dict.fromkeys(step.rule for step in deciding if step.level == level)] for level in WIDTHS
    ]
    below = next(filter(None, reversed(by_level[1:])), [])
    return below if by_level[0] == ["1"] and below else by_level[0]


ALWAYS: tuple[Callable[[Judged], Iterator[Term]], ...] = (contradictory_decision, refusal)
"""The terms of the decision, which come first."""
OF_ANSWERS: tuple[Callable[[Judged], Iterator[Term]], ...] = (
    *(code, process_bonus, gri_sequence, duty, forbidden_code, no_savings, base_rate, what_ifs, saving, levers),
    *(citations, deciding_rule),
)
"""The terms of an answer where one is expected, in their order."""


def terms(case: Judged) -> Iterator[Term | Agreement]:
    """Yield the terms of an answer in the order of `docs/scoring.md`, then how it agrees.

    A decision that contradicts itself, or that is not the expected one, is judged no further than by its codes.
    """
    found = [term for function in ALWAYS for term in function(case)]
    if any(term.effect == "zero" for term in found):
        found += forbidden_code(case)
    elif case.answer.status == "verified":
        found += [term for function in OF_ANSWERS for term in function(case)]
    else:
        found += citations(case)
    yield from found
    yield _agreement(case, found)


def _agreement(case: Judged, found: Sequence[Term]) -> Agreement:
    """Return how an answer agrees with its case.

    The level is a `Match.level`, or `refusal`, `refusal_category_mismatch`, `unexpected_refusal`,
    `unexpected_acceptance`, `forbidden_code`, `invalid_code`, `contradictory_decision`, `articles`. The depth is the
    most leading digits that the scored code shares with a preferred code (0, 2, 4, 6, 8 or 10), the least of several
    articles; None unless an answer is expected and given.
    """
    expects, first = case.expected.expected_accept, found[0].name
    is_compared = expects and case.answer.status == "verified" and first != CONTRADICTORY
    depth = min(match.known_depth for match in case.matches if match.level != EXTRA) if is_compared else None
    if expects and any(term.name == FORBIDDEN_LEVEL for term in found):
        return Agreement(FORBIDDEN_LEVEL, depth)
    return Agreement(_level(case) if is_compared else first, depth)


def _level(case: Judged) -> str:
    """Return how the code of an answer matched, in a word."""
    levels = {match.level for match in case.matches}
    if not case.expected.articles:
        return "invalid_code" if case.matches[0].invalid else levels.pop()
    if case.is_right:
        return "allowed" if "allowed" in levels else "preferred"
    return NO_MATCH if levels <= {NO_MATCH, EXTRA} else "articles"
