"""The labels of answers: their confusion, precision, recall and F1, in figures, tables and gates, and what is not known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.analysis.counting import ResultSums
from pytest_packbench.analysis.labels import F1, PRECISION, RECALL, Confusion
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.report import BaselineLookup, StoredRun
from pytest_packbench.packs.generic.suite import GenericSuiteConfig
from tests.packs.generic.suites import load, suite
from tests.unit.run_builders import case_result, run

if TYPE_CHECKING:
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.result import Result

# a support desk: expected and given label, and how many
PAIRS = Confusion(
    Counter(
        {
            ("billing", "billing"): 6,
            ("delivery", "delivery"): 2,
            ("delivery", "billing"): 3,
            ("delivery", None): 1,
            ("legal", "billing"): 2,
            (None, "billing"): 1,
            ("delivery", "spam"): 1,
        }
    )
)
SHARES: list[tuple[str | None, str, tuple[int, int]]] = [
    ("billing", PRECISION, (6, 12)),
    ("billing", RECALL, (6, 6)),
    ("billing", F1, (12, 18)),
    ("delivery", PRECISION, (2, 2)),
    ("delivery", RECALL, (2, 7)),
    ("legal", PRECISION, (0, 0)),
    ("legal", RECALL, (0, 2)),
    ("legal", F1, (0, 2)),
    ("spam", PRECISION, (0, 1)),
    ("spam", RECALL, (0, 0)),
    (None, RECALL, (8, 15)),
    (None, PRECISION, (8, 15)),
]


@pytest.mark.parametrize(("label", "kind", "share"), SHARES)
def test_each_share_of_a_label(label: str | None, kind: str, share: tuple[int, int]) -> None:
    assert PAIRS.share(kind, label) == share
    # not known is not 0
    assert (PAIRS.share(kind, label).value is None) is (share[1] == 0)


def test_figures_and_tables_show_what_is_not_known_as_such() -> None:
    figures = {figure.name: figure for figure in PAIRS.figures("label", sampled=False)}
    assert [name for name, figure in figures.items() if figure.headline] == ["recall, all labels", "macro F1"]
    assert figures["macro F1"].number == pytest.approx((12 / 18 + 4 / 9 + 0) / 3)
    assert (figures["precision of legal"].measured, figures["recall of legal"].share) == (False, 0)
    assert all(figure.interval is None for figure in figures.values())
    sampled = {figure.name: figure.interval is not None for figure in PAIRS.figures("label", sampled=True)}
    assert [sampled[name] for name in ("precision of billing", "F1 of billing", "precision of legal")] == [1, 0, 0]
    matrix, table = PAIRS.panels("label")
    assert [list(row) for row in (matrix.head, *matrix.rows)] == [
        ["expected", "billing", "delivery", "spam", "(none)"],
        ["delivery", 3, 2, 1, 1],
        ["legal", 2, 0, 0, 0],
        ["(none)", 1, 0, 0, 0],
    ]
    assert {str(row[0]): row[1:] for row in table.rows} == {
        "billing": (6, 12, 0.5, 1.0, 0.667),
        "delivery": (7, 2, 1.0, 0.286, 0.444),
        "legal": (2, 0, None, 0.0, 0.0),
        "spam": (0, 1, 0.0, None, 0.0),
    }
    assert [*Confusion().figures("label", sampled=True), *Confusion().panels("label")] == []
    texts = Confusion({("a", f"text {number} {'x' * 100}"): 1 + (number < 5) for number in range(300)})
    matrix, table = texts.panels("label")
    assert (len(matrix.head), matrix.head[1], sum(int(cell or 0) for cell in matrix.rows[0][1:])) == (
        22,
        "(others)",
        305,
    )
    assert (len(table.rows), max(len(str(row[0])) for row in table.rows)) == (20, 80)
    many = Confusion({(f"l{number}", None): 1 for number in range(30)})
    assert len([*many.figures("label", sampled=False)]) == 2 + 3 * 20


def test_labels_that_are_called_like_an_artificial_row_have_their_own() -> None:
    texts: dict[tuple[str | None, str | None], int] = {("a", f"{number}"): 1 for number in range(30)}
    pairs = Confusion({**texts, ("a", "(others)"): 5, ("a", "(none)"): 2, ("a", None): 1, ("(none)", "a"): 1})
    matrix, table = pairs.panels("label")
    assert (
        dict(zip(matrix.head, matrix.rows[1], strict=True)).items()
        >= {'"(others)"': 5, "(others)": 12, '"(none)"': 2, "(none)": 1}.items()
    )
    assert {str(row[0]): row[2] for row in table.rows if "(" in str(row[0])} == {'"(others)"': 5, '"(none)"': 2}


def test_thousands_of_labels_are_counted_at_once() -> None:
    class Pairs(dict[Any, int]):
        read = 0

        def items(self) -> Any:
            self.read += 1
            return super().items()

    pairs = Pairs({(f"l{number}", f"l{number + 1}"): 1 for number in range(50)})
    [*Confusion(pairs).figures("label", sampled=True)]
    assert pairs.read == 1


def test_of_thousands_of_labels_those_with_most_errors_are_shown_and_the_others_counted() -> None:
    pairs: dict[tuple[str | None, str | None], int] = {
        (f"l{number}", f"l{number + 1}"): 1 + number // 1000 for number in range(4000)
    }
    confusion = Confusion({**pairs, ("worst", "l0"): 9, ("good", "good"): 99})
    matrix, table = confusion.panels("label")
    for panel, total in ((matrix, 4001), (table, 4003)):
        assert len(panel.rows) == 20
        assert f"the 20 of {total:,} labels with most errors." in panel.intro
        assert "worst" in {row[0] for row in panel.rows}
    assert len(matrix.head) <= 1 + 2 * 20 + 2
    figures = [*confusion.figures("label", sampled=False)]
    assert len(figures) == 2 + 3 * 20
    assert figures[1].note == "the 20 of 4,002 labels with most errors are below"
    assert "recall of worst" in {figure.name for figure in figures}


def test_a_gate_by_label_counts_the_results_once(monkeypatch: pytest.MonkeyPatch) -> None:
    work: Counter[str] = Counter()

    def counted(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            work[name] += 1
            return real(*arguments)

        monkeypatch.setattr(owner, name, staticmethod(call) if owner is Confusion else call)

    counted(Confusion, "of")
    counted(ResultSums, "count")
    gates = {"metric": "label_recall", "max_ratio_to_baseline": 1.0, "by": "label"}
    rules = GenericSuiteConfig.model_validate({"pack": "generic", "labels": "/intent", "gates": [gates]})
    works = []
    for number in (5, 60):
        results = [labelled(f"c{each}", f"l{each}", f"l{each % 3}") for each in range(number)]
        before = StoredRun(source="r", run=run(run_id="BEFORE"), results=tuple(results))
        work.clear()
        judged = conclude(run(), results, rules, (), BaselineLookup(stored=before, requested="r")).gates[1:]
        assert len(judged) == number
        works.append(dict(work))
    assert works[0] == works[1]


LABEL = st.none() | st.sampled_from("abc")


@given(st.lists(st.tuples(LABEL, LABEL).filter(any), max_size=12))
def test_f1_is_the_harmonic_mean_and_every_answer_is_counted_once(pairs: list[tuple[str | None, str | None]]) -> None:
    confusion = Confusion.of(Counter((pair,) for pair in pairs))
    assert sum(confusion.pairs.values()) == len(pairs)
    for label in confusion.known:
        precision, recall, f1 = (confusion.share(kind, label).value for kind in (PRECISION, RECALL, F1))
        if precision and recall:
            assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
        else:
            assert not f1
    assert confusion.share(RECALL).total == sum(expected is not None for expected, _ in pairs)


def labelled(name: str, expected: str | None, given: str | None, **more: Any) -> Result:
    result = case_result(name, **more)
    return replace(result, score=replace(result.score, labels=((expected, given),)))


def concluded(results: list[Result], *gates: dict[str, Any]) -> Conclusion:
    rules = GenericSuiteConfig.model_validate({"pack": "generic", "labels": "/intent", "gates": [*gates]})
    return conclude(run(), results, rules, (), BaselineLookup())


DESK = [
    *(labelled(f"b{number}", "billing", "billing") for number in range(3)),
    labelled("d", "delivery", "billing"),
    labelled("l", "legal", None),
]


GATES: list[tuple[dict[str, Any], list[tuple[str | None, bool, tuple[int, int] | None]]]] = [
    ({"metric": "label_recall", "min": 0.5}, [(None, True, (3, 5))]),
    ({"metric": "label_precision", "min": 0.8}, [(None, False, (3, 4))]),
    (
        {"metric": "label_precision", "min": 0.5, "by": "label"},
        # what no answer has is not known, and passes no gate
        [("billing", True, (3, 4)), ("delivery", False, None), ("legal", False, None)],
    ),
    (
        {"metric": "label_recall", "max": 0.0, "by": "label"},
        [("billing", False, (3, 3)), ("delivery", True, (0, 1)), ("legal", True, (0, 1))],
    ),
    (
        {"metric": "label_f1", "min": 0.8, "by": "label"},
        [("billing", True, (6, 7)), ("delivery", False, (0, 1)), ("legal", False, (0, 1))],
    ),
]


@pytest.mark.parametrize(("gate", "ends"), GATES)
def test_gates_on_labels(gate: dict[str, Any], ends: list[tuple[str | None, bool, tuple[int, int] | None]]) -> None:
    results = concluded(DESK, gate).gates[1:]
    assert [(result.value, result.passed, result.counted) for result in results] == ends
    assert all("not known, because no answer has such a label" in each.text for each in results if not each.counted)


def test_a_gate_on_a_label_is_compared_with_the_baseline_of_that_label() -> None:
    before = StoredRun(source="r", run=run(run_id="BEFORE"), results=tuple(DESK))
    gates = [{"metric": "label_recall", "max_ratio_to_baseline": 1.0, "by": "label"}]
    rules = GenericSuiteConfig.model_validate({"pack": "generic", "labels": "/intent", "gates": gates})
    now = [*DESK[:3], labelled("d", "delivery", "delivery"), DESK[4]]
    results = conclude(run(), now, rules, (), BaselineLookup(stored=before, requested="r")).gates[1:]
    assert [(result.value, result.passed) for result in results] == [
        ("billing", True),
        ("delivery", False),
        ("legal", True),
    ]


def test_errors_are_in_no_number_and_of_several_trials_a_wrong_label_counts() -> None:
    error = case_result("e", verdict="error")
    trials = [labelled("t", "billing", "billing", trial=0), labelled("t", "billing", "legal", trial=1)]
    assert concluded([*trials, error]).labels.pairs == {("billing", "legal"): 1}
    # nor in those of a case whose other trial has a label
    unfinished = [labelled("u", "billing", "billing", trial=0), case_result("u", verdict="error", trial=1)]
    assert concluded(unfinished).labels.pairs == {}
    assert concluded([error], {"metric": "label_recall", "min": 0.1}).gates[1].passed is False


RULES = suite("labels: /intent\ncriteria: [{exact: /intent, weight: 2}, {exact: /more, value: 1}]")
READ: list[tuple[dict[str, Any], Any, Any]] = [
    ({"intent": "billing"}, {"intent": "billing"}, (("billing", "billing"),)),
    ({"intent": "billing"}, {"intent": "Billing"}, (("billing", "Billing"),)),
    ({"intent": "billing"}, {"intent": 5}, (("billing", "5"),)),
    ({"intent": True}, {"intent": True}, (("true", "true"),)),
    # right where the value is equal, as for a criterion
    ({"intent": True}, {"intent": "true"}, (("true", '"true"'),)),
    ({"intent": "true"}, {"intent": True}, (("true", "true (no text)"),)),
    ({"intent": 5}, {"intent": "5"}, (("5", '"5"'),)),
    ({"intent": 1}, {"intent": 1.0}, (("1", "1"),)),
    ({"intent": 1}, {"intent": True}, (("1", "true"),)),
    ({"intent": "billing"}, {"intent": ["billing"]}, (("billing", None),)),
    ({"intent": "billing"}, {"intent": ""}, (("billing", None),)),
    ({"intent": "billing"}, {"other": 1}, (("billing", None),)),
    ({"intent": "billing"}, {"refusal": {"category": "x"}, "intent": "billing"}, (("billing", None),)),
    ({"intent": "billing"}, None, (("billing", None),)),
    ({"refuse": True}, {"intent": "billing"}, ((None, "billing"),)),
    ({"refuse": True}, {"refusal": True}, None),
]


@pytest.mark.parametrize(("expected", "result", "labels"), READ)
def test_the_labels_of_a_case_and_an_answer(expected: Any, result: Any, labels: Any) -> None:
    pack, case = load(RULES, expected)
    if result is None:
        facts = record_facts(pack, case, None, pack.unread(case, "unreadable_answer", "no", RULES))
    else:
        outcome = pack.read(result)
        facts = record_facts(pack, case, outcome, pack.score(case, outcome, RULES))
    assert facts.labels == labels


def test_a_text_has_no_label_but_itself() -> None:
    for path, labels in {
        "$.intent": (("billing", None),),
        "$..intent": None,
        "$": ((None, '{"intent": "billing"}'),),
    }.items():
        rules = suite(f"labels: {path}\ncriteria: [{{exact: /intent}}]")
        _, case = load(suite("criteria: [{exact: /intent}]"), {"intent": "billing"})
        assert rules.labels_of(case, '{"intent": "billing"}') == labels


def test_labels_ignore_case_where_their_criterion_does() -> None:
    rules = suite("labels: /intent\ncriteria: [{exact: /intent, ignore_case: true}]")
    pack, case = load(rules, {"intent": "Billing"})
    outcome = pack.read({"intent": "BILLING"})
    assert record_facts(pack, case, outcome, pack.score(case, outcome, rules)).labels == (("Billing", "Billing"),)


def test_a_case_has_a_label_and_no_gate_on_labels_passes_without_any() -> None:
    intents: list[Any] = [None, [], ""]
    for intent in intents:
        with pytest.raises(CaseError, match=r"/expected/intent: no label at /intent; expected a text, a number, or"):
            load(RULES, {"intent": intent})
    with pytest.raises(ValueError, match="validation error"):
        suite("labels: a")
    rules = suite("gates: [{metric: label_f1, max: 0.5}, {metric: label_recall, min: 0.1, by: case_type}]")
    results = conclude(run(), [case_result("a")], rules, (), BaselineLookup()).gates[1:]
    assert [(result.passed, "not known" in result.text) for result in results] == [(False, True)] * 2
