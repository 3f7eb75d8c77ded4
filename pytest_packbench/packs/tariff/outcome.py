"""Parse the result of a tariff target, in the format of the original harness or with explicit fields.

A field is looked up at the top of the result, then under `proof`. Every field that is read is validated; fields that no
rule needs are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from pytest_packbench.model.result import Firing, Outcome, ResultError
from pytest_packbench.packs.tariff.articles import describe_answers, same_code
from pytest_packbench.packs.tariff.decision import last_iteration, read_decision
from pytest_packbench.packs.tariff.notation import Level, Rule, digits, line_of, parse_rule
from pytest_packbench.packs.tariff.reading import OBJECT, both, is_unicode
from pytest_packbench.packs.tariff.reading import Node as _Node
from pytest_packbench.packs.tariff.reading import find as _find
from pytest_packbench.packs.tariff.savings import NOTHING_STATED, StatedSavings, claims, read_savings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.decision import Decision

_STEP_OUTCOMES = frozenset({"decided", "tied", "failed"})
_RULE_LIMIT = 2**32
# other programs' names of the code of the whole
_FINAL_CODES = ("hts_code", "final_code")


class Quotation(NamedTuple):
    """A citation of an answer; both are empty where it names none.

    Attributes:
        source_id: the document that it names.
        quote: the words that it quotes.
    """

    source_id: str
    quote: str


class TraceStep(NamedTuple):
    """A step of the interpretation rules, with the fields of `dossier.GriStep`."""

    rule: Rule
    level: Level
    candidates: tuple[str, ...]
    outcome: str
    chosen: str | None
    as_set: bool


class ArticleAnswer(NamedTuple):
    """One of several articles in an answer.

    Attributes:
        name: what the answer calls it; empty if it does not say.
        code: its code, as written; None without one.
        steps: the steps of the interpretation rules; empty if there are none or they can't be read.
        unread_step: why the steps can't be read; empty if they can.
    """

    name: str
    code: str | None
    steps: tuple[TraceStep, ...] = ()
    unread_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TariffOutcome(Outcome):
    """The answer of a tariff pipeline; rates are percent of value.

    Attributes:
        accepted: whether the pipeline classified the goods; false for a refusal, a breakdown and a contradiction.
        contradiction: which fields of the result contradict each other about its decision; then only its codes are
            read.
        refusal_category: the explicit category of a refusal, else the one of its first known reason; None if there
            is neither, and for an accepted answer.
        unknown_category: the explicit category of a refusal that is none of the known ones; empty otherwise.
        questions: the questions of a refusal to the importer.
        reasons: `rejected_because` of the last iteration, else of the whole result.
        baseline_code: the code of the goods as they are, as written.
        optimized_code: the code after the best change of the goods, as written.
        articles: the articles of an answer about several, as it lists them.
        other_codes: the codes that the answer states in other places, each with its place.
        baseline_rate_pct: the total duty rate of the baseline; None if it isn't ad valorem or is missing.
        optimized_rate_pct: the same after the best change.
        sequence_ok: whether the target says that the rules were used in order; None if it does not say.
        citations_ok: whether the target's own gate on citations passed; None if it did not run.
        evidence_ok: whether the target's own gate on missing evidence passed; None if it did not run.
        citations: the citations of the answer.
        steps: the steps of the interpretation rules in their order; empty if there are none or they can't be read.
        unread_step: why the steps can't be read; empty if they can.
        levers: number of savings levers selected.
        lever_steps: number of steps of the first lever; None without one.
        levers_compliant: whether every lever passed its plausibility check; None without levers.
        what_ifs: number of what-if options in the dossier.
        savings: what the answer says of rates and of changes of the goods.
    """

    accepted: bool = False
    contradiction: str = ""
    refusal_category: str | None = None
    unknown_category: str = ""
    questions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    baseline_code: str | None = None
    optimized_code: str | None = None
    articles: tuple[ArticleAnswer, ...] = ()
    other_codes: tuple[tuple[str, str], ...] = ()
    baseline_rate_pct: float | None = None
    optimized_rate_pct: float | None = None
    sequence_ok: bool | None = None
    citations_ok: bool | None = None
    evidence_ok: bool | None = None
    citations: tuple[Quotation, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    unread_step: str = ""
    levers: int = 0
    lever_steps: int | None = None
    levers_compliant: bool | None = None
    what_ifs: int = 0
    savings: StatedSavings = NOTHING_STATED

    @property
    def savings_claims(self) -> tuple[str, ...]:
        """Claims of lower duty other than levers and what-ifs, each described briefly."""
        return tuple(claims(self.savings))

    @property
    def all_articles(self) -> tuple[ArticleAnswer, ...]:
        """The articles of the answer; a code of its baseline or optimised part that none of them has is one more."""
        articles = list(self.articles)
        for code, steps, unread in ((self.baseline_code, self.steps, self.unread_step), (self.optimized_code, (), "")):
            if code is not None and not any(same_code(code, article.code) for article in articles):
                articles.append(ArticleAnswer("", code, steps, unread))
        return tuple(articles)

    @property
    def given_codes(self) -> tuple[str, ...]:
        """Every code that is given as an answer, as written, each once: none in a refusal that no field contradicts."""
        if not (self.accepted or self.contradiction):
            return ()
        codes = (self.baseline_code, self.optimized_code, *(article.code for article in self.articles))
        return tuple(dict.fromkeys(code for code in codes if code and code.strip()))

    @property
    def final_code(self) -> str | None:
        """The optimised code, else the baseline's."""
        return self.optimized_code or self.baseline_code

    @property
    def duty_delta(self) -> float | None:
        """Optimised minus baseline rate, percentage points; None if either is not known."""
        if self.baseline_rate_pct is None or self.optimized_rate_pct is None:
            return None
        return self.optimized_rate_pct - self.baseline_rate_pct


def read(result: object) -> TariffOutcome:
    """Parse the result of a tariff target.

    Accepts the fields of the original harness (`status`, `iterations`, `tariff_dossier`, `citation_gate_result`,
    `missing_evidence_gate_result`, `lever_proof`; each at the top or under `proof`) and explicit ones: `refusal`
    (`{category, questions}`), `error` (`{kind, message}`), `unreadable` (why the pipeline could not read its model's
    answers, one line) and `trace` (a list of `{hook, decision, rule}`).

    Returns:
        The outcome. Its decision is read by `decision.read_decision`.

    Raises:
        ResultError: a value is missing, of the wrong type or not finite, or the result contains no decision or says
            that it is `unreadable`.
    """
    top = _Node(result)
    top.require_object()
    if reason := _find(top, "unreadable").text():
        raise ResultError("/unreadable", " ".join(reason.split()))
    firings = tuple(_firing(step) for step in _find(top, "trace").items(OBJECT))
    decision = read_decision(top)
    if decision.breakdown is not None:
        return TariffOutcome(breakdown=decision.breakdown, firings=firings)
    contradiction = decision.contradiction or _two_dossiers(top)
    if contradiction:
        codes = tuple(ArticleAnswer("", code) for code in _any_codes(top))
        return TariffOutcome(contradiction=contradiction, articles=codes, firings=firings)
    return _outcome(top, decision, firings)


def _two_dossiers(top: _Node) -> str:
    """Return how the dossier or the levers under `proof` contradict those at the top, of which only one would be read.

    What the second one states has to be stated by the first one too; what it leaves out is no contradiction.
    """
    for key, read_parts in (("tariff_dossier", _dossier_parts), ("lever_proof", _lever_parts)):
        first, second = top.at(key).value, top.at("proof").at(key).value
        if first and second and isinstance(first, dict) and isinstance(second, dict) and first != second:
            known, other = read_parts(first), read_parts(second)
            name = next((name for name, value in other.items() if not known.get(name, frozenset()) >= value), None)
            if name is not None:
                return f"the result has two {key} whose {name} differ (/{key} and /proof/{key})"
    return ""


def _dossier_parts(plain: dict[str, object]) -> dict[str, frozenset[object]]:
    """Return what is read of a dossier, by name, as sets of what it states."""
    stated = read_savings(plain, None)
    parts: dict[str, frozenset[object]] = {}
    for name, part in (("baseline", stated.baseline), ("optimised part", stated.optimized)):
        rates = () if part is None else part._replace(code=None, added=part.added or None)._asdict().items()
        parts[f"rates of the {name}"] = frozenset(
            item for item in rates if item[1] is not None and item[1] is not False
        )
        parts[f"code of the {name}"] = frozenset({line_of(part.code)} if part is not None and part.code else ())
    trace = plain.get("gri_trace")
    steps = _plain_items(trace.get("steps") if isinstance(trace, dict) else None)
    return {
        **parts,
        "steps": frozenset(enumerate(map(_step, steps))),
        "articles": frozenset((part.code and line_of(part.code), *part[1:]) for part in stated.articles),
        "citations": frozenset(_quotation(_Node(item)) for item in _plain_items(plain.get("citations"))),
        "what-ifs": frozenset((*stated.what_ifs, stated.best) if stated.best else stated.what_ifs),
        "mutations": frozenset(stated.mutations),
        "amounts": frozenset(stated.amounts),
    }


def _lever_parts(plain: dict[str, object]) -> dict[str, frozenset[object]]:
    return {"levers": frozenset(read_savings(None, plain.get("selected_levers")).levers)}


def _plain_items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _outcome(top: _Node, decision: Decision, firings: tuple[Firing, ...]) -> TariffOutcome:
    last = last_iteration(top)
    dossier = _find(top, "tariff_dossier")
    baseline, optimized = dossier.at("baseline"), dossier.at("optimized")
    baseline_code, optimized_code = (part.at("hts_code").text() or None for part in (baseline, optimized))
    baseline_rate, optimized_rate = _total_rate(baseline), _total_rate(optimized)
    levers = _find(top, "lever_proof").at("selected_levers").items(OBJECT)
    compliant = [_is_compliant(lever) for lever in levers]
    steps, unread_step = _steps(dossier)
    lists = [node for node in _article_lists(top, dossier) if node.items(OBJECT)]
    articles = tuple(_article(item) for node in lists[:1] for item in node.items(OBJECT))
    if len(articles) == 1 and baseline_code is None:
        # a list of one article is an answer about one
        baseline_code, steps, unread_step = articles[0].code, articles[0].steps or steps, articles[0].unread_step
    return TariffOutcome(
        refused=not decision.accepted,
        answer=_answer(baseline_code, optimized_code, articles) if decision.accepted else None,
        firings=firings,
        accepted=decision.accepted,
        refusal_category=decision.category,
        unknown_category=decision.unknown_category,
        questions=decision.questions,
        reasons=decision.reasons,
        baseline_code=baseline_code,
        optimized_code=optimized_code,
        articles=articles,
        other_codes=tuple(_other_codes(top, dossier, lists)),
        baseline_rate_pct=baseline_rate,
        optimized_rate_pct=optimized_rate,
        sequence_ok=_sequence_ok(last, dossier),
        citations_ok=_gate_ok(top, last, "citation_gate_result"),
        evidence_ok=_gate_ok(top, last, "missing_evidence_gate_result"),
        citations=_citations(top, dossier),
        steps=steps,
        unread_step=unread_step,
        levers=len(levers),
        lever_steps=(len(levers[0].at("sequence").items()) or None) if levers else None,
        levers_compliant=all(compliant) if compliant else None,
        what_ifs=len(dossier.at("what_if_candidates").items()),
        savings=_savings(top, dossier),
    )


def _any_codes(top: _Node) -> list[str]:
    """Return the codes of a result in any of its dossiers; what can't be read has none."""
    proof = _plain(top.value).get("proof")
    dossiers = [_plain(_plain(part).get("tariff_dossier")) for part in (top.value, proof)]
    articles = [item for dossier in dossiers for item in _listed(dossier.get("articles"))]
    parts = [dossier.get(name) for dossier in dossiers for name in ("baseline", "optimized")]
    parts += [*articles, *(_plain(item).get("baseline") for item in articles)]
    codes = (_plain(part).get("hts_code") for part in parts)
    return [code for code in codes if isinstance(code, str) and code.strip() and is_unicode(code)]


def _plain(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _article(item: _Node) -> ArticleAnswer:
    """Return an article of the answer: its code stands in `hts_code`, or in that of its `baseline`."""
    names = (item.at(key).value for key in ("article", "name"))
    name = next((text for text in names if isinstance(text, str) and is_unicode(text)), "")
    stated, nested = (part.at("hts_code").text() or None for part in (item, item.at("baseline")))
    if stated and nested and not same_code(stated, nested):
        item.at("hts_code").fail("the code of its baseline, or none")
    return ArticleAnswer(" ".join(name.split()), stated or nested, *_steps(item))


def _article_lists(top: _Node, dossier: _Node) -> tuple[_Node, ...]:
    return (dossier.at("articles"), top.at("articles"), top.at("proof").at("articles"))


def _other_codes(top: _Node, dossier: _Node, lists: list[_Node]) -> Iterator[tuple[str, str]]:
    """Yield the codes in places where other programs have the final one, and those of articles after their changes."""
    items = [item for node in lists for item in node.items(OBJECT)]
    places = [(place, key) for place in (top, top.at("proof"), dossier, last_iteration(top)) for key in _FINAL_CODES]
    places += [(part, "hts_code") for part in (dossier.at("final"), *(item.at("optimized") for item in items))]
    for second in (node for node in both(top, "tariff_dossier") if node.value != dossier.value):
        items = second.at("articles").items(OBJECT)
        parts = (
            second,
            second.at("baseline"),
            second.at("optimized"),
            *items,
            *(item.at("baseline") for item in items),
        )
        places += [(part, "hts_code") for part in parts]
    # the first list is read as the articles of the answer
    places += [(item, "hts_code") for node in lists[1:] for item in node.items(OBJECT)]
    places += [(item.at("baseline"), "hts_code") for node in lists[1:] for item in node.items(OBJECT)]
    for part, key in places:
        code = part.value.get(key) if isinstance(part.value, dict) else None
        if isinstance(code, str) and is_unicode(code) and digits(code):
            yield part.at(key).pointer, code


def _answer(baseline: str | None, optimized: str | None, articles: tuple[ArticleAnswer, ...]) -> str | None:
    if len(articles) > 1:
        return describe_answers(articles)
    # the suite decides which of the two is scored, so tables show both
    if baseline is None or optimized is None or same_code(baseline, optimized):
        return optimized or baseline
    return f"{baseline}, optimised {optimized}"


def _sequence_ok(last: _Node, dossier: _Node) -> bool | None:
    if last.at("sequence_violations").items():
        return False
    return dossier.at("gri_trace").at("sequence_ok").flag()


def _citations(top: _Node, dossier: _Node) -> tuple[Quotation, ...]:
    """Return every citation in the result, wherever it stands, once."""
    articles = [item for node in _article_lists(top, dossier) for item in node.items(OBJECT)]
    parts = (dossier.at("baseline"), dossier.at("optimized"), *(item.at("baseline") for item in articles))
    found: list[Quotation] = []
    for part in (top, top.at("proof"), *both(top, "tariff_dossier"), last_iteration(top), *articles, *parts):
        node = part.at("citations")
        # one citation may stand without its list
        items = node.items() if isinstance(node.value, list) else [] if node.is_empty else [node]
        found.extend(map(_quotation, items))
    return tuple(dict.fromkeys(found))


def _quotation(item: _Node) -> Quotation:
    if not isinstance(item.value, dict):
        return Quotation("", "")
    texts = (item.at("source_id"), item.at("quote"))
    return Quotation(*((node.text() or "") if isinstance(node.value, str) else "" for node in texts))


def _steps(dossier: _Node) -> tuple[tuple[TraceStep, ...], str]:
    """Return the steps of the trace, and why they can't be read; other programs have traces of other forms."""
    node = dossier.at("gri_trace").at("steps")
    values = node.value if isinstance(node.value, list) else []
    steps = []
    for number, value in enumerate(values, 1):
        step = _step(value)
        if step is None:
            return (), f"step {number} has no known rule, level, candidates and outcome"
        steps.append(step)
    return tuple(steps), ""


def _step(value: object) -> TraceStep | None:
    if not isinstance(value, dict):
        return None
    rule, level = parse_rule(value.get("rule")), str(value.get("level")).strip().lower()
    outcome, chosen = str(value.get("outcome")).strip().lower(), value.get("chosen")
    codes = value.get("candidates") or []
    is_known = rule and level in get_args(Level) and outcome in _STEP_OUTCOMES and isinstance(codes, list)
    if not is_known or not all(isinstance(code, str) and is_unicode(code) for code in (*codes, chosen or "")):
        return None
    return TraceStep(
        rule=cast("Rule", rule),
        level=cast("Level", level),
        candidates=tuple(codes),
        outcome=outcome,
        chosen=chosen or None,
        as_set=value.get("as_set") is True,
    )


def _gate_ok(top: _Node, last: _Node, key: str) -> bool | None:
    """Return whether a gate passed; None if it did not run. A result without `ok` is refused, not read as passed."""
    nodes = (top.at(key), top.at("proof").at(key), last.at(key))
    gate = next((node for node in nodes if node.value is not None), None)
    return None if gate is None else gate.at("ok").required_flag()


def _total_rate(part: _Node) -> float | None:
    total = part.at("duty_breakdown").at("total_rate_pct").number()
    stated = part.at("duty_rate_pct").number()
    return stated if total is None else total


def _is_compliant(lever: _Node) -> bool:
    """Return whether a lever's plausibility check ran and passed in every step."""
    check = lever.at("gate_results").at("plausibility")
    steps = [check] if isinstance(check.value, dict) else check.items(OBJECT)
    passed = [step.at("ok").flag() is True for step in steps]
    return bool(passed) and all(passed)


def _savings(top: _Node, dossier: _Node) -> StatedSavings:
    """Return what the answer says of rates and savings; rates and amounts of another type are refused."""
    estimate, baseline, optimized = dossier.at("savings_estimate"), dossier.at("baseline"), dossier.at("optimized")
    for part in (baseline, optimized):
        breakdown = part.at("duty_breakdown")
        breakdown.at("base_rate_pct").number()
        breakdown.at("preferential_rate_pct").number()
        for layer in breakdown.at("applied_additional_duties").items(OBJECT):
            layer.at("pct").number()
    for mutation in dossier.at("mutations").items(OBJECT):
        mutation.at("expected_duty_rate_pct").number()
    for amount in (optimized.at("estimated_savings_per_unit"), estimate.at("per_unit"), estimate.at("annualized")):
        amount.number()
    levers = _find(top, "lever_proof").at("selected_levers").value
    return read_savings(dossier.value, levers, top.value)


def _firing(step: _Node) -> Firing:
    rule = step.at("rule")
    number = rule.value
    if number is not None and (type(number) is not int or not 0 <= number < _RULE_LIMIT):
        rule.fail("an integer from 0 to 4294967295")
    return Firing(
        hook=step.at("hook").required_text(),
        decision=step.at("decision").required_text(),
        rule=number if isinstance(number, int) else None,
    )
