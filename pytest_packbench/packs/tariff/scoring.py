"""The scoring rules of the tariff pack (spec, "Scoring overview"): one function per rule, in a fixed order.

The order is match, process terms, hard fails, clamp. A hard fail makes the score exactly 0, whatever else was added.
Every step adds a named term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.model.result import TOLERANCE, Score, Term, judged
from pytest_packbench.packs.tariff.articles import article_terms, forbidden_articles, match_articles
from pytest_packbench.packs.tariff.edition import describe_unlisted
from pytest_packbench.packs.tariff.model import FORBIDDEN_LEVEL
from pytest_packbench.packs.tariff.notation import LEVELS, depth, digits, is_under, parse_code
from pytest_packbench.packs.tariff.proof import describe_missing, prove_citations, prove_orders, rule_fault
from pytest_packbench.packs.tariff.savings import TARGET, SavingsInput, judge_savings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.articles import MatchedArticles
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import (
        Change,
        Direction,
        ExpectedArticle,
        TariffCase,
        TariffExpected,
        TariffSuiteConfig,
    )
    from pytest_packbench.packs.tariff.outcome import TariffOutcome
    from pytest_packbench.packs.tariff.proof import CitationProof

NO_MATCH = "none"
REFUSAL = "refusal"
WRONG_CATEGORY = "refusal_category_mismatch"
UNEXPECTED_REFUSAL = "unexpected_refusal"
UNEXPECTED_ACCEPTANCE = "unexpected_acceptance"
FORBIDDEN = FORBIDDEN_LEVEL
SAVINGS = "no_savings_violation"
UNEXPECTED_LEVER = "unexpected_lever"
INVALID_CODE = "invalid_code"
CITATIONS = "citations_invalid"
CODE_FORM = "code_form"
CONTRADICTORY = "contradictory_decision"

UNSAFE_TERMS = frozenset({FORBIDDEN, SAVINGS, TARGET, UNEXPECTED_LEVER, UNEXPECTED_ACCEPTANCE})
"""Hard fails that record the agent's decision as unsafe: following such an answer does harm."""

RATE_TOLERANCE = 0.0001
"""How far a total duty rate may be from the expected one, percentage points (as in the original harness)."""

_SHORTEST_PREFIX = 6
_FULL_MATCHES = frozenset({"preferred", "allowed"})
_CHAPTER = 2
_MULTI_STEP = 2
_MAX_SHOWN = 5
_DECIMALS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How the scored code matches the expected codes.

    Attributes:
        level: `preferred`, `allowed`, `ladder_8`, `ladder_6`, `ladder_4`, `chapter`, `articles` or `none`.
        points: its credit, 0 to 1; 0 for `none`.
        detail: the code and what it matches.
        depth: the most leading digits that the code shares with a preferred code, as far as it is in the schedule.
        malformed: why the scored code is no code; empty if it is one, or if there is none.
        invalid: why the scored code is not in the schedule; empty if it is, or if there is no schedule.
    """

    level: str
    points: float = 0.0
    detail: str
    depth: int = 0
    malformed: str = ""
    invalid: str = ""

    @property
    def known_depth(self) -> int:
        """The depth, and 10 for a code that is right to all digits that the case expects: nothing deeper is known."""
        return LEVELS[-1] if self.level == "preferred" else self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleInput:
    """The input of every rule; `match` is None unless an answer is expected and given."""

    expected: TariffExpected
    outcome: TariffOutcome
    rules: TariffSuiteConfig
    citations: CitationProof
    changes: tuple[Change, ...] = ()
    edition: Edition | None = None
    match: Match | None = None
    articles: MatchedArticles | None = None


def score(case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig, edition: Edition | None = None) -> Score:
    """Score an outcome.

    Args:
        case: the case.
        outcome: the answer.
        rules: the rules of the suite.
        edition: the schedule of the suite; without one, no code is looked up.

    Returns:
        A score of 0 to 1 with its terms in the order applied. `match_level` is a `Match.level`, or `refusal`,
        `refusal_category_mismatch`, `unexpected_refusal`, `unexpected_acceptance`, `forbidden_code`, `invalid_code`,
        `contradictory_decision`.
        `match_depth` is the most leading digits that the scored code shares with a preferred code (0, 2, 4, 6, 8 or
        10), as far as it is in the schedule, and 10 where it is right to all digits that the case expects; None unless
        an answer is expected and given. A breakdown has the verdict `error` and no score.
    """
    threshold = threshold_of(case, rules)
    if outcome.breakdown is not None:
        message = f"the target reports a failure: {outcome.breakdown.kind}: {outcome.breakdown.message}"
        return Score(score=None, threshold=threshold, verdict="error", message=message)
    if outcome.contradiction:
        return _contradictory(case.expected, outcome, rules, edition, threshold)
    expected = case.expected
    match, articles = None, None
    if expected.expected_accept and outcome.accepted and expected.articles:
        articles = matched_articles(expected, outcome, rules, edition)
        match = Match(level=articles.level, detail="", depth=articles.depth)
    elif expected.expected_accept and outcome.accepted:
        match = match_of(expected, outcome, rules, edition)
    citations = prove_citations(
        outcome.citations, case.input.evidence, expected, only_request=rules.cited_sources == "request"
    )
    inputs = _RuleInput(
        expected=expected,
        outcome=outcome,
        rules=rules,
        citations=citations,
        changes=case.input.options.changes,
        edition=edition,
        match=match,
        articles=articles,
    )
    rules_in_order = _RULES[expected.expected_accept, outcome.accepted] if articles is None else _ARTICLE_RULES
    terms = [term for rule in rules_in_order for term in rule(inputs)]
    points, clamp = _total(terms)
    level = terms[0].name if match is None else match.level
    if match is not None and match.invalid:
        level = INVALID_CODE
    if match is not None and any(term.name == FORBIDDEN for term in terms):
        level = FORBIDDEN
    return Score(
        score=points,
        threshold=threshold,
        verdict=judged(points, threshold),
        terms=(*terms, *clamp),
        match_level=level,
        match_depth=None if match is None else match.known_depth,
    )


def matched_articles(
    expected: TariffExpected, outcome: TariffOutcome, rules: TariffSuiteConfig, edition: Edition | None = None
) -> MatchedArticles:
    """Match the articles of an answer with those of a case that expects several."""
    return match_articles(
        expected.articles or (),
        outcome.all_articles,
        lambda article, answer: match_code(article, answer.code, rules, edition),
    )


def _contradictory(
    expected: TariffExpected,
    outcome: TariffOutcome,
    rules: TariffSuiteConfig,
    edition: Edition | None,
    threshold: float,
) -> Score:
    """Score an answer that contradicts itself with 0; a forbidden code in it does harm all the same."""
    if expected.articles:
        found = list(forbidden_articles(matched_articles(expected, outcome, rules, edition), expected))
        forbidden = [_zero(FORBIDDEN, "; ".join(found[:_MAX_SHOWN]))] if found else []
    else:
        forbidden = list(_forbidden_terms(outcome.given_codes, expected))
    return Score(
        score=0.0,
        threshold=threshold,
        verdict="failed",
        terms=(_zero(CONTRADICTORY, outcome.contradiction), *forbidden),
        match_level=FORBIDDEN if forbidden and expected.expected_accept else CONTRADICTORY,
    )


def threshold_of(case: TariffCase, rules: TariffSuiteConfig) -> float:
    """Return the lowest passing score of a case, 0 to 1: its own, else its type's, else by the expected decision."""
    if case.expected.threshold is not None:
        return case.expected.threshold
    general = rules.thresholds.accept if case.expected.expected_accept else rules.thresholds.refuse
    return rules.thresholds.by_type.get(case.case_type, general)


def scored_code(outcome: TariffOutcome, rules: TariffSuiteConfig) -> str | None:
    """Return the code that is scored: the baseline's or the final one, depending on the suite's `scored_code`."""
    return outcome.baseline_code if rules.scored_code == "baseline" else outcome.final_code


def depth_of(expected: TariffExpected | ExpectedArticle, code: str | None) -> int:
    """Return the most leading digits that one code shares with a preferred code: 0, 2, 4, 6, 8 or 10."""
    plain = parse_code(code or "") or ""
    return max((depth(plain, preferred) for preferred in expected.preferred_hts), default=0)


def describe_depth(agreed: int) -> str:
    """Describe the number of leading digits that a code shares with a preferred code."""
    return f"the first {agreed} digits match" if agreed else "no digits match"


def match_of(
    expected: TariffExpected, outcome: TariffOutcome, rules: TariffSuiteConfig, edition: Edition | None = None
) -> Match:
    """Match the scored code against the expected ones; see `match_code`."""
    return match_code(expected, scored_code(outcome, rules), rules, edition)


def match_code(
    expected: TariffExpected | ExpectedArticle,
    code: str | None,
    rules: TariffSuiteConfig,
    edition: Edition | None = None,
) -> Match:
    """Match a code against the expected ones (spec; credits as in the original harness).

    Codes are compared by digits; an expected code of 6 or 8 digits matches every line below it. A code that is not in
    the schedule is compared as far as it is, and never is a preferred or an allowed one.
    """
    if code is None:
        return Match(level=NO_MATCH, detail="the answer contains no code")
    plain = parse_code(code)
    if plain is None:
        shown = _shown(code)
        malformed = f"{shown}; expected one code of 4, 6, 8 or 10 digits and nothing else"
        return Match(level=NO_MATCH, detail=f"{shown} is not one code", malformed=malformed)
    existing = plain if edition is None else edition.existing(plain)
    invalid = "" if existing == plain else describe_unlisted(_shown(code), existing)
    agreed = min(depth_of(expected, plain), len(existing))
    code_lists = (
        ("preferred", expected.preferred_hts, rules.scoring.preferred),
        ("allowed", expected.allowed_hts or (), rules.scoring.allowed),
    )
    for level, codes, points in () if invalid else code_lists:
        matched = next((expected_code for expected_code in codes if _matches(plain, expected_code)), None)
        if matched is not None:
            return Match(level=level, points=points, detail=f"{_shown(code)} matches {matched}", depth=agreed)
    detail = f"{_shown(code)}: {describe_depth(agreed)}"
    level, points = max(_partial_credits(agreed, rules), key=lambda credit: credit[1], default=(NO_MATCH, 0.0))
    return Match(level=level, points=points, detail=detail, depth=agreed, invalid=invalid)


def _shown(code: str) -> str:
    """Return a code as it is shown: as it was written where it is plain, else quoted."""
    return code if code.isascii() and code.isprintable() and parse_code(code) else format_value(code)


def _matches(plain: str, expected_code: str) -> bool:
    wanted = digits(expected_code)
    return is_under(plain, wanted) and (len(wanted) >= _SHORTEST_PREFIX or plain == wanted)


def _partial_credits(agreed: int, rules: TariffSuiteConfig) -> Iterator[tuple[str, float]]:
    for level in ("8", "6", "4"):
        if level in rules.scoring.ladder and agreed >= int(level):
            yield f"ladder_{level}", rules.scoring.ladder[level]
    if agreed >= _CHAPTER:
        yield "chapter", rules.scoring.chapter


def _total(terms: Sequence[Term]) -> tuple[float, tuple[Term, ...]]:
    if any(term.effect == "zero" for term in terms):
        return 0.0, ()
    # removes the rounding error of a sum such as 1.0 - 0.1 + 0.05
    unclamped = round(sum(term.value for term in terms if term.effect == "add"), _DECIMALS)
    points = min(1.0, max(0.0, unclamped))
    if points == unclamped:
        return points, ()
    return points, (Term(name="clamp", effect="clamp", value=round(points - unclamped, _DECIMALS), detail="to 0..1"),)


def _code_match(inputs: _RuleInput) -> Iterator[Term]:
    match = inputs.match
    if match is None or match.level == NO_MATCH:
        yield Term(name="no_match", detail=match.detail if match else "")
    else:
        yield Term(name=f"{match.level}_match", value=match.points, detail=match.detail)
    if match and match.malformed:
        yield _note(CODE_FORM, match.malformed)
    if match and match.invalid:
        yield _note(INVALID_CODE, match.invalid)


def _process_bonus(inputs: _RuleInput) -> Iterator[Term]:
    gates = {"citations": _citations_ok(inputs), "missing evidence": inputs.outcome.evidence_ok}
    ran = {gate: ok for gate, ok in gates.items() if ok is not None}
    failed = [gate for gate, ok in ran.items() if not ok]
    if inputs.match is None or inputs.match.level == NO_MATCH:
        yield _note("process_bonus", "no bonus: no match")
    elif inputs.articles is not None and inputs.match.level not in _FULL_MATCHES:
        yield _note("process_bonus", "no bonus: not every article matches")
    elif not ran:
        yield _note("process_bonus", "no bonus: no critical gate ran")
    elif failed:
        yield _note("process_bonus", f"no bonus: failed gates: {', '.join(failed)}")
    else:
        yield Term(name="process_bonus", value=inputs.rules.scoring.bonus, detail=f"passed gates: {', '.join(ran)}")


def _citations_ok(inputs: _RuleInput) -> bool | None:
    """Return whether the citations are right; what the target reports counts against it, never against the proof."""
    proof, stated = inputs.citations, inputs.outcome.citations_ok
    if proof.ok is False or proof.missing or proof.forbidden or stated is False:
        return False
    return proof.ok if stated is None else stated


def _gri_sequence(inputs: _RuleInput) -> Iterator[Term]:
    violations, stated = (
        prove_orders(inputs.outcome, by_article=inputs.articles is not None),
        inputs.outcome.sequence_ok,
    )
    said = "" if stated is None else f"the target reports {'in order' if stated else 'out of order'}"
    if violations:
        more = f", and {len(violations) - 1} more" if len(violations) > 1 else ""
        detail = f"rules out of order: {violations[0]}{more}{f'; {said}' if stated else ''}"
        yield Term(name="gri_sequence", value=inputs.rules.scoring.gri_sequence, detail=detail)
    elif stated is False:
        by = "; the steps are in order" if violations is not None else ""
        detail = f"rules out of order: {said}{by}"
        yield Term(name="gri_sequence", value=inputs.rules.scoring.gri_sequence, detail=detail)
    elif violations is None:
        missing = inputs.outcome.unread_step or "no GRI trace"
        yield _note("gri_sequence", f"not assessed: {missing}{f'; {said}' if said else ''}")
    else:
        yield _note("gri_sequence", "rules in order")


def _deciding_rule(inputs: _RuleInput) -> Iterator[Term]:
    expected = inputs.expected.expected_rule
    if expected is None:
        return
    is_right = inputs.match is not None and inputs.match.level in _FULL_MATCHES
    fault = rule_fault(expected, inputs.outcome, scored_code(inputs.outcome, inputs.rules) if is_right else None)
    if fault:
        yield _zero("deciding_rule", f"{fault}; expected rule {expected}")
    else:
        yield _note("deciding_rule", f"rule {expected} decides, as expected")


def _duty_delta(inputs: _RuleInput) -> Iterator[Term]:
    if inputs.expected.duty_delta_range is None:
        return
    low, high = inputs.expected.duty_delta_range
    delta = inputs.outcome.duty_delta
    if delta is None:
        yield _note("duty_delta", "not computable: a rate is missing or not ad valorem")
    elif low - TOLERANCE <= delta <= high + TOLERANCE:
        yield _note("duty_delta", f"{delta:+g} percentage points, within {low:g} to {high:g}")
    else:
        detail = f"{delta:+g} percentage points, outside {low:g} to {high:g}"
        yield Term(name="duty_delta", value=inputs.rules.scoring.duty_delta, detail=detail)


def _forbidden(inputs: _RuleInput) -> Iterator[Term]:
    """Fail an accepted answer with a code under a forbidden one.

    The scored code counts, and so do those of articles, and the optimised one, unless it is a target of a saving that
    the case expects.
    """
    outcome, savings = inputs.outcome, inputs.expected.savings
    scored, best = scored_code(outcome, inputs.rules) or "", outcome.optimized_code or ""
    is_target = savings is not None and any(is_under(best, target.code) for target in savings.targets)
    changed = "" if is_target and inputs.rules.scored_code == "baseline" else best
    listed = (article.code or "" for article in outcome.articles)
    yield from _forbidden_terms(dict.fromkeys((scored, changed, *listed)), inputs.expected)


def _forbidden_terms(codes: Iterable[str], expected: TariffExpected) -> Iterator[Term]:
    found = (
        _zero(FORBIDDEN, f"{_shown(code)} is under the forbidden code {prefix}")
        for code in codes
        for prefix in [next((prefix for prefix in expected.must_not_hts or () if is_under(code, prefix)), None)]
        if prefix is not None
    )
    yield from islice(found, _MAX_SHOWN)


def _other_codes(inputs: _RuleInput) -> Iterator[Term]:
    """Fail an answer with another code than its own in a place where a reader may take it for the answer."""
    outcome, expected = inputs.outcome, inputs.expected
    stated, own = list(outcome.other_codes), [outcome.baseline_code, outcome.optimized_code]
    if inputs.articles is None:
        stated += [(f"article {number}", article.code or "") for number, article in enumerate(outcome.articles, 1)]
    else:
        own += [article.code for article in outcome.articles]
    known = [code for code in own if code]
    for place, code in stated if known else ():
        if not digits(code) or any(is_under(code, other) or is_under(other, code) for other in known):
            continue
        matched = next((prefix for prefix in expected.must_not_hts or () if is_under(code, prefix)), None)
        if matched is None:
            yield _zero(CONTRADICTORY, f"the answer is {_shown(known[0])}, and {_shown(code)} in {place}")
        else:
            yield _zero(FORBIDDEN, f"{_shown(code)} in {place} is under the forbidden code {matched}")


def _articles(inputs: _RuleInput) -> Iterator[Term]:
    if inputs.articles is None:
        return
    yield from article_terms(inputs.articles)
    for name, pick in ((CODE_FORM, "malformed"), (INVALID_CODE, "invalid")):
        matches = (*(pair.match for pair in inputs.articles.pairs), *(match for _, match in inputs.articles.extra))
        problems = [problem for match in matches if match and (problem := getattr(match, pick))]
        if problems:
            yield _note(name, "; ".join(list(dict.fromkeys(problems))[:_MAX_SHOWN]))


def _forbidden_articles(inputs: _RuleInput) -> Iterator[Term]:
    found = [] if inputs.articles is None else list(forbidden_articles(inputs.articles, inputs.expected))
    if found:
        yield _zero(FORBIDDEN, "; ".join(found[:_MAX_SHOWN]))


def _no_savings(inputs: _RuleInput) -> Iterator[Term]:
    if not inputs.expected.no_savings_expected:
        return
    savings = savings_of(inputs.outcome)
    if savings:
        yield _zero(SAVINGS, "; ".join(savings))


def savings_of(outcome: TariffOutcome) -> list[str]:
    """Describe every savings lever, what-if option and claim of lower duty in an answer, briefly."""
    counts = ((outcome.levers, "savings lever"), (outcome.what_ifs, "what-if option"))
    return [pluralize(count, noun) for count, noun in counts if count] + [*outcome.savings_claims]


def _judged_savings(inputs: _RuleInput) -> Iterator[Term]:
    return judge_savings(
        SavingsInput(
            expected=inputs.expected,
            changes=inputs.changes,
            stated=inputs.outcome.savings,
            edition=inputs.edition,
            of_baseline=inputs.rules.scored_code == "baseline",
            is_right=inputs.match is not None and inputs.match.level in _FULL_MATCHES,
        )
    )


def _citations(inputs: _RuleInput) -> Iterator[Term]:
    proof, stated = inputs.citations, inputs.outcome.citations_ok
    said = "" if stated is None else f"the target reports {'passed' if stated else 'failed'}"
    if proof.faults:
        more = f", and {len(proof.faults) - 1} more" if len(proof.faults) > 1 else ""
        yield _zero(CITATIONS, f"{proof.faults[0]}{more}{f'; {said}' if stated else ''}")
    elif stated is False and inputs.outcome.accepted:
        found = "; the quotes occur in their documents" if proof.checked else ""
        yield _zero(CITATIONS, f"the citation gate failed{found}")
    elif proof.checked:
        yield _note("citations", f"{pluralize(proof.checked, 'quote')} looked up in the documents")
    if proof.missing:
        yield _zero("citation_missing", "; ".join(map(describe_missing, proof.missing)))
    if proof.forbidden:
        yield _zero("citation_forbidden", f"cites {', '.join(map(format_value, proof.forbidden))}")


def _total_rate(inputs: _RuleInput) -> Iterator[Term]:
    expected_rate = inputs.expected.expected_duty_total_rate_pct
    if expected_rate is None:
        return
    outcome = inputs.outcome
    optimized = inputs.rules.scored_code == "final" and outcome.optimized_code is not None
    # a rate of 0 counts as a rate; the original harness takes the baseline's instead
    rate = outcome.optimized_rate_pct if optimized else outcome.baseline_rate_pct
    if rate is None:
        yield _zero("duty_total_rate", f"no rate for the scored code, expected {expected_rate:g} %")
    elif not math.isclose(rate, expected_rate, rel_tol=0.0, abs_tol=RATE_TOLERANCE):
        yield _zero("duty_total_rate", f"{rate:g} %, expected {expected_rate:g} %")


def direction_of(delta: float | None) -> Direction | None:
    """Return the direction of a duty delta; None if there is no delta."""
    if delta is None:
        return None
    if abs(delta) <= TOLERANCE:
        return "flat"
    return "decrease" if delta < 0 else "increase"


def _direction(inputs: _RuleInput) -> Iterator[Term]:
    expected, actual = inputs.expected.expected_duty_delta_direction, direction_of(inputs.outcome.duty_delta)
    if expected is not None and actual != expected:
        yield _zero("duty_delta_direction", f"{actual or 'not computable'}, expected {expected}")


def _levers(inputs: _RuleInput) -> Iterator[Term]:
    expected, outcome = inputs.expected, inputs.outcome
    levers, steps = outcome.levers, outcome.lever_steps or 0
    if expected.lever_found_expected and not levers:
        yield _zero("lever_missing", "no savings lever, expected at least 1")
    elif expected.lever_found_expected is False and levers:
        yield _zero(UNEXPECTED_LEVER, f"{pluralize(levers, 'savings lever')}, expected none")
    if levers < (expected.lever_count_min or 0):
        yield _zero(
            "lever_count", f"{pluralize(levers, 'savings lever')}, expected at least {expected.lever_count_min}"
        )
    if expected.lever_compliance_ok and outcome.levers_compliant is False:
        yield _zero("lever_compliance", "at least one savings lever has no passed plausibility check")
    if expected.expected_best_is_multi_step and steps < _MULTI_STEP:
        yield _zero(
            "lever_multi_step", f"{pluralize(steps, 'step')} in the first lever, expected at least {_MULTI_STEP}"
        )
    if steps < (expected.min_lever_steps or 0):
        yield _zero(
            "lever_steps",
            f"{pluralize(steps, 'step')} in the first lever, expected at least {expected.min_lever_steps}",
        )


def _unexpected_acceptance(inputs: _RuleInput) -> Iterator[Term]:
    yield _zero(UNEXPECTED_ACCEPTANCE, f"answer ({inputs.outcome.final_code or 'no code'}), expected a refusal")


def _unexpected_refusal(inputs: _RuleInput) -> Iterator[Term]:
    yield _zero(UNEXPECTED_REFUSAL, f"refusal ({describe_category(inputs.outcome)}), expected an answer")


def _refusal(inputs: _RuleInput) -> Iterator[Term]:
    expected, actual = inputs.expected.expected_refusal_category, describe_category(inputs.outcome)
    if expected is None or inputs.outcome.refusal_category == expected:
        yield Term(name=REFUSAL, value=1.0, detail=actual)
    else:
        points = inputs.rules.scoring.wrong_refusal_category
        yield Term(name=WRONG_CATEGORY, value=points, detail=f"{actual}, expected {expected}")


def describe_category(outcome: TariffOutcome) -> str:
    """Return the category of a refusal; without one, the unknown category or reasons that it gives instead."""
    if outcome.refusal_category:
        return outcome.refusal_category
    if outcome.unknown_category:
        return f"unknown category {format_value(outcome.unknown_category)}"
    if outcome.reasons:
        return f"no category, unknown reason {format_value(outcome.reasons[0])}"
    return "no category"


def _note(name: str, detail: str) -> Term:
    return Term(name=name, effect="note", detail=detail)


def _zero(name: str, detail: str) -> Term:
    return Term(name=name, effect="zero", detail=detail)


_ANSWER_RULES: tuple[Callable[[_RuleInput], Iterator[Term]], ...] = (
    _code_match,
    _process_bonus,
    _gri_sequence,
    _duty_delta,
    _forbidden,
    _other_codes,
    _no_savings,
    _judged_savings,
    _citations,
    _deciding_rule,
    _total_rate,
    _direction,
    _levers,
)
_ARTICLE_RULES = (
    _articles,
    _process_bonus,
    _gri_sequence,
    _forbidden_articles,
    _other_codes,
    _no_savings,
    _judged_savings,
    _citations,
)
# by whether an answer is expected, and whether one was given
_RULES = {
    (True, True): _ANSWER_RULES,
    (True, False): (_unexpected_refusal,),
    (False, True): (_unexpected_acceptance, _forbidden),
    (False, False): (_refusal, _citations),
}
