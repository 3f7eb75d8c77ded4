"""The metrics of the field: what a record keeps for them, and the figures of a run, from its records in one pass.

They are accuracy by digits, invalid and forbidden codes, refusals by category, pairs, duty at stake and the target's
own gates against the scorer. Answers of different models, and authored ones, are never added up. The confusion of
chapters is the package's, from `labels`.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from pytest_packbench import FigureRow, FigureSums, SumsByModel
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.pack import Metrics
from pytest_packbench.model.suite import Panel
from pytest_packbench.packs.tariff.citations import MIN_QUOTE, quotes_hold
from pytest_packbench.packs.tariff.judged import DEPTHS, EXTRA
from pytest_packbench.packs.tariff.model import FIELD_METRICS, RefusalCategory
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, depth, digits, is_under

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.model.result import Labels
    from pytest_packbench.model.suite import Figure
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.judged import Judged
    from pytest_packbench.packs.tariff.model import ExpectedArticle, TariffCase, TariffExpected

KEY = "tariff"
"""The key of a record's `packbench` object for what the metrics need."""
GOODS_VALUE = 10_000
"""The value of the goods for which duty at stake is stated, US dollars."""
CATEGORIES: tuple[str, ...] = get_args(RefusalCategory)
_RULING = "ruling:"
_PAIR = "pair_"
OWN_GATES = {
    "citations": f"a wrong quote, or a right one of at least {MIN_QUOTE} characters; "
    "which documents are cited does not count",
    "order": "steps of the rules",
}
"""The gates of a target that the scorer checks, with what an answer needs for it."""
_DEPTH = "how deep the codes of answers agree"
_ACCURACY, _REFUSALS, _DUTY = "codes", "refusals and pairs", f"duty at stake on goods worth {GOODS_VALUE:,} USD"
_GATES = "the target's own gates"


class Answered(BaseModel):
    """One record, with what it keeps under `packbench.tariff`, as the figures and the gates of the pack read it.

    Of a record whose `packbench` object has a value of another type, nothing else is known than how it ended.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    passed: bool
    expects_refusal: bool
    refused: bool
    counted: bool = True
    depth: int | None = Field(default=None, alias="match_depth")
    level: str | None = Field(default=None, alias="match_level")
    valid: bool | None = None
    score: FiniteFloat | None = None
    answer: str | None = None
    trial: int = 0
    ruling: str | None = None
    pair: str | None = None
    expected_category: str | None = None
    category: str | None = None
    code: str | None = None
    duty_gap_usd: FiniteFloat | None = None
    own_gates: dict[str, dict[str, bool]] = {}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Answered:
        """Return a record, plain JSON, as figures read it."""
        ended = {
            "passed": record.get("passed") is True,
            "expects_refusal": record.get("expected") == "refuse",
            "refused": record.get("agent_decision") == "refuse",
        }
        extra = record.get("packbench") or {}
        try:
            return cls.model_validate({**extra, **extra.get(KEY, {}), **ended})
        except (TypeError, ValidationError):
            return cls.model_validate(ended)

    @property
    def answer_due(self) -> bool:
        """Whether the case expects an answer."""
        return not self.expects_refusal

    @property
    def answers(self) -> bool:
        """Whether an answer is due, and the target did not refuse; it may be one that can't be read."""
        return self.answer_due and not self.refused

    @property
    def gap(self) -> float | None:
        """The duty of an answer above or below that of the expected code, US dollars; None where it is not known."""
        return self.duty_gap_usd if self.answers else None


_row = partial(FigureRow, listed="measured")


def _of_gate(metric: str, name: str, group: str, definition: str, *, headline: bool = True) -> FigureRow:
    """Return the share that a gate bounds by another name."""
    gate = FIELD_METRICS[metric]
    among, counts = (lambda each: bool(gate.among(each))), (lambda each: bool(gate.counts(each, 1)))
    return _row(name, definition, counts, among, group, "always" if headline else "never")


def _right_to(level: int) -> FigureRow:
    return _of_gate(
        f"accuracy_{level}",
        f"right to {level} digits",
        _ACCURACY,
        f"Answers whose first {level} digits are those of an expected code, and in the schedule, among the cases "
        "that expect an answer. An answer that is right to all digits that its case expects is right to more. A "
        "refusal or an answer that can't be read counts as wrong.",
        headline=level in {6, 10},
    )


def _agrees_to(level: int, name: str) -> FigureRow:
    return _row(
        f"agrees to {name}" if level else "agrees not even to the chapter",
        f"Answers whose code is right to {f'{level} digits and no further' if level else 'no digit'}, among the "
        "answers to cases that expect one; the least of several articles counts.",
        lambda each: each.depth == level,
        lambda each: each.answers and each.depth is not None,
        _DEPTH,
    )


def _in_category(category: str) -> tuple[FigureRow, FigureRow]:
    return (
        _row(
            f"precision: {category}",
            "Refusals in a category that the case expects, among the refusals in this category.",
            lambda each: each.expects_refusal and each.expected_category in {None, category},
            lambda each: each.refused and each.category == category,
            _REFUSALS,
        ),
        _row(
            f"recall: {category}",
            "Refusals in this category, among the cases that expect it.",
            lambda each: each.refused and each.category == category,
            lambda each: each.expects_refusal and each.expected_category == category,
            _REFUSALS,
        ),
    )


def _against_scorer(gate: str, verdict: str, other: str) -> FigureRow:
    said, computed = ("target", "scorer") if verdict == "passed" else ("scorer", "target")
    return _row(
        f"{gate}: the gate {verdict}, the scorer {other}",
        f"Answers whose {gate} the target's own gate {verdict} and the scorer {other}, among those that the gate "
        f"judged, with {OWN_GATES[gate]}.",
        lambda each: each.own_gates[gate][said] and not each.own_gates[gate][computed],
        lambda each: each.own_gates.get(gate, {}).keys() >= {said, computed},
        _GATES,
        # that a target judges itself wrongly is news, that it does not is none
        "counted",
    )


def _mispaid(name: str, than: str, side: str, sign: int) -> tuple[FigureRow, FigureRow]:
    return (
        _row(
            name,
            f"Answers whose code has a {than} duty than the expected one, among those of known duty.",
            lambda each: each.gap * sign > 0,
            lambda each: each.gap is not None,
            _DUTY,
        ),
        _row(
            f"{name} per case",
            f"The duty of wrong codes {side} that of the expected ones, on goods worth {GOODS_VALUE:,} USD in each "
            "case, by the general rates of the schedule: the sum over all answers of known duty, divided by their "
            "number.",
            lambda each: max(each.gap * sign, 0),
            lambda each: each.gap is not None,
            _DUTY,
            "counted",
            unit="USD",
            per="answer",
        ),
    )


PAIRS = _row(
    "pairs",
    "Pairs of which both halves pass: the same goods without the fact that decides, which are refused, and with "
    "it, which are classified. Pairs with a half that was not judged are left out.",
    lambda halves: all(passed for _, passed in halves.values()),
    lambda halves: len(halves) == len((True, False)) or None,
    _REFUSALS,
    "always",
)
"""Asked of both halves of a pair, by whether an answer is due; the other rows of an answer."""
_INVALID = _of_gate(
    "invalid_code_rate",
    "invalid codes",
    _ACCURACY,
    "Answers with a code that is not in the schedule, among all answers with a code: also those about several "
    "articles, and those that contradict themselves. A text that is no code is an answer that can't be read.",
)
_OVERPAID, _UNDERPAID = _mispaid("overpaid", "higher", "above", 1), _mispaid("underpaid", "lower", "below", -1)
ROWS = (
    *map(_right_to, LEVELS),
    _row(
        "wrong code",
        "Answers that are not right to all digits that their case expects, among the cases that expect an answer. A "
        "refusal is none; an answer that can't be read is one.",
        lambda each: not each.refused and (each.depth or 0) < LEVELS[-1],
        lambda each: each.answer_due,
        _ACCURACY,
        "always",
    ),
    _row(
        "refused, undue",
        "Refusals, among the cases that expect an answer: no code is given, and none is wrong.",
        lambda each: each.refused,
        lambda each: each.answer_due,
        _ACCURACY,
        "always",
    ),
    *(_agrees_to(level, name) for level, name in DEPTHS.items()),
    _INVALID,
    _of_gate(
        "forbidden_code_rate",
        "forbidden codes",
        _ACCURACY,
        "Answers with a code that the case forbids, among the answers with a code to cases that expect one: also those "
        "about several articles, and those that contradict themselves.",
    ),
    _of_gate(
        "refusal_precision",
        "precision of refusals",
        _REFUSALS,
        "Refusals that the case expects, among all refusals; in any category.",
        headline=False,
    ),
    _of_gate(
        "refusal_recall",
        "recall of refusals",
        _REFUSALS,
        "Refusals, among the cases that expect one; in any category.",
    ),
    *(row for category in CATEGORIES for row in _in_category(category)),
    PAIRS,
    _OVERPAID[0],
    _UNDERPAID[0],
    _row(
        "duty not known",
        "Answers whose duty can't be compared with that of the expected code, among the answers that can be read, to "
        "cases that expect one: the code is not a line of the schedule, one of two different rates is no percentage of "
        "the value, or one of several articles, which share the value equally, has no code.",
        lambda each: each.gap is None,
        lambda each: each.answers and "duty_gap_usd" in each.model_fields_set,
        _DUTY,
    ),
    *(
        _against_scorer(gate, *verdicts)
        for gate in OWN_GATES
        for verdicts in (("passed", "failed"), ("failed", "passed"))
    ),
    _row(
        "mean score of answers",
        "The mean score of the answers to cases that expect one, refusals left out.",
        lambda each: each.score,
        lambda each: each.answers and each.score is not None,
        _ACCURACY,
        "always",
        unit="",
        per="answer",
    ),
    _OVERPAID[1],
    _UNDERPAID[1],
)
"""What is counted over a run's answers, in the order in which it is shown."""
_OF_ANSWERS = tuple(row for row in ROWS if row is not PAIRS)


def case_facts(case: TariffCase) -> dict[str, Any]:
    """Return what a record keeps of a case under `packbench.tariff`, plain JSON, even if the answer can't be read."""
    source, expected = case.notes.source, case.expected
    pair = next((tag for tag in case.notes.tags if tag.startswith(_PAIR)), None)
    return {
        "ruling": source.removeprefix(_RULING) if source.startswith(_RULING) else None,
        "pair": pair,
        "expected_category": expected.expected_refusal_category,
        **({"articles": [_article(article, None) for article in expected.articles]} if expected.articles else {}),
    }


def _article(expected: ExpectedArticle, given: str | None) -> dict[str, str | None]:
    """Return what a record keeps of one of several articles: the digits of its code and of the expected one."""
    return {"code": given, "expected_code": _nearest(expected, given)}


def answer_facts(judged: Judged) -> dict[str, Any]:
    """Return what a record keeps of an answer under `packbench.tariff`, beside the facts of its case, plain JSON."""
    expected, answer, edition = judged.expected, judged.answer, judged.edition
    accepted = answer.status == "verified"
    given = judged.scored.hts_code if accepted and judged.scored else None
    right = _nearest(expected, given) if expected.expected_accept else None
    several = judged.pairs if expected.articles and accepted else ()
    articles = [_article(pair.expected, pair.match.code or None) for pair in several]
    # an article too many has no expected code to be compared with
    is_extra = several and any(match.level == EXTRA for match in judged.matches)
    compared = articles or [{"code": given, "expected_code": right}]
    gates = own_gates(judged)
    return {
        "category": answer.refusal.category if answer.status == "refused" and answer.refusal else None,
        "code": given,
        "expected_code": right,
        # in the place of those of the case
        **({"articles": articles} if articles else {}),
        **({} if edition is None else {"duty_gap_usd": None if is_extra else _mean_gap(compared, edition)}),
        "own_gates": gates,
        "disagreements": [name for name, said in gates.items() if said["target"] != said["scorer"]],
    }


def _mean_gap(articles: Sequence[Mapping[str, str | None]], edition: Edition | None) -> float | None:
    """Return the difference in duty of an answer; several articles share the value of the goods equally."""
    codes = [(article["code"], article["expected_code"]) for article in articles]
    gaps = [duty_gap(given, right, edition) if given and right else None for given, right in codes]
    known = [gap for gap in gaps if gap is not None]
    return round(sum(known) / len(gaps), 2) + 0.0 if len(known) == len(gaps) else None


def is_valid(judged: Judged) -> bool | None:
    """Return whether each code that an answer gives is in the schedule, if there is any; None without a code.

    The codes of an answer that contradicts itself count as well: else a contradiction would hide them.
    """
    codes = [part.hts_code for part in judged.answer.dossier.baselines]
    codes += [best.hts_code] if (best := judged.answer.dossier.optimized) else []
    if not codes:
        return None
    return all(judged.edition is None or judged.edition.existing(code) == code for code in codes)


def _nearest(expected: TariffExpected | ExpectedArticle, given: str | None) -> str | None:
    """Return the preferred code, as digits, that shares the most leading digits with the given one; else the first."""
    codes = map(digits, expected.preferred_hts)
    return max(codes, key=lambda code: depth(code, given or ""), default=None)


def duty_gap(given: str, right: str, edition: Edition | None) -> float | None:
    """Return the duty of a wrong code less that of the right one, on goods worth 10,000 US dollars.

    The rates are the general rates of the schedule.

    Args:
        given: the digits of the answer's code.
        right: the digits of the expected code; one of 6 or 8 digits stands for every line below it.
        edition: the schedule.

    Returns:
        US dollars, rounded to cents: above 0 is overpaid, below 0 underpaid, 0 where the code is right or both rates
        are the same. None where it can't be computed: without a schedule, for a code that is not in it or has no rate,
        and where two different rates are not both percentages of the value.
    """
    if edition is None or edition.existing(given) != given:
        return None
    if is_under(given, right):
        return 0.0
    rate, expected = edition.rate(given), edition.rate(right)
    if rate is None or expected is None:
        return None
    if rate.pct is not None and expected.pct is not None:
        return round((rate.pct - expected.pct) / 100 * GOODS_VALUE, 2) + 0.0
    # the same amount per kilogram or pair is the same duty; a rate in words may mean anything
    return 0.0 if rate.text == expected.text and any(char.isdigit() for char in rate.text) else None


def own_gates(judged: Judged) -> dict[str, dict[str, bool]]:
    """Return what the target's own gates say of an answer, beside what the scorer computes.

    Returns:
        For `citations` and `order`, whether they are right by the `target` and by the `scorer`; a gate is missing where
        one of them does not say.
    """
    stated, faults = judged.answer.citation_gate_result, judged.answer.order
    said = {
        "citations": (stated.ok if stated else None, quotes_hold(judged)),
        "order": (judged.answer.stated_order, None if faults is None else not faults),
    }
    return {
        name: {"target": target, "scorer": scorer}
        for name, (target, scorer) in said.items()
        if target is not None and scorer is not None
    }


def labels(case: TariffCase, facts: Mapping[str, Any]) -> Labels | None:
    """Return the expected chapter and that of the answer; each of several articles counts for itself.

    Args:
        case: the case.
        facts: what the record keeps of it, and of its answer if that can be read.

    Returns:
        The pairs, without a given chapter for a refusal or no code; None where the case expects a refusal.
    """
    if not case.expected.expected_accept:
        return None
    parts = facts.get("articles") or [{"expected_code": _nearest(case.expected, None), **facts}]
    pairs = ((part["expected_code"], part.get("code")) for part in parts if part["expected_code"])
    return tuple((chapter(expected), chapter(given) if given else None) for expected, given in pairs) or None


class TariffMetrics(Metrics):
    """What the reports of a run show of tariff answers, for each model and for the authored ones."""

    label = "chapter"
    depths = LEVELS

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:
        """Return the figures of a run; authored answers have no interval.

        What no record knows of is left out, so that a figure of 0 was measured.

        Args:
            records: its wire records as plain JSON; iterated once.
        """
        return _added(records)[0].figures(ROWS)

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:  # noqa: ARG002 - the records have all that is shown
        """Return the invalid codes of a run, each with its case.

        Args:
            records: its wire records as plain JSON; iterated once.
            figures: those of the run.
        """
        answers, invalid = _added(records)
        return [
            Panel(
                title=f"Invalid codes{of}",
                intro=f"{figure.count} of {pluralize(figure.total or 0, 'answer')} with a code have one that is not in "
                "the schedule.",
                head=("case", "code"),
                rows=tuple(sorted(invalid[sums])),
            )
            for of, sums in answers.titled()
            for figure in sums.figures([_INVALID])
        ]


def _added(records: Iterable[Mapping[str, Any]]) -> tuple[SumsByModel, Mapping[FigureSums, Sequence[tuple[str, str]]]]:
    """Return the sums of a run, and the invalid codes among those of each model, with their cases.

    Answers to the cases of one ruling form a cluster: they are about the same goods.
    """
    answers = SumsByModel("ruling")
    invalid: dict[FigureSums, list[tuple[str, str]]] = defaultdict(list)
    pairs: dict[tuple[FigureSums, str, int], dict[bool, tuple[str, bool]]] = defaultdict(dict)
    for record in records:
        each, sums, name = Answered.of(record), answers.of(record), str(record.get("test_id"))
        cluster = each.ruling or f"\n{name}"
        sums.add(_OF_ANSWERS, each, cluster)
        if each.valid is False:
            invalid[sums].append((name, each.code or each.answer or "no code"))
        if each.pair:
            halves, due = pairs[sums, each.pair, each.trial], each.expects_refusal
            halves[due] = cluster, each.passed and halves.get(due, (cluster, True))[1]
    for (sums, *_), halves in pairs.items():
        sums.add([PAIRS], halves, halves[max(halves)][0])
    return answers, invalid
