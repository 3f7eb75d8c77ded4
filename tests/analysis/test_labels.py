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
from tests.unit.run_builders import case_result, data, run

if TYPE_CHECKING:
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts

DATA: dict[str, Any] = data("labels.yaml")

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
SHARES: Any = DATA["shares"]


@pytest.mark.parametrize(("label", "kind", "share"), SHARES)
def test_each_share_of_a_label(label: str | None, kind: str, share: list[int]) -> None:
    assert PAIRS.share(kind, label) == tuple(share)
    # not known is not 0
    assert (PAIRS.share(kind, label).value is None) is (share[1] == 0)


TEXTS: dict[tuple[str | None, str | None], int] = {("a", f"{number}"): 1 for number in range(30)}
LABELS = {
    "a support desk": PAIRS,
    "nothing": Confusion(),
    "labels that are long texts": Confusion(
        {("a", f"text {number} {'x' * 100}"): 1 + (number < 5) for number in range(300)}
    ),
    "labels without an answer": Confusion({(f"l{number}", None): 1 for number in range(30)}),
    "labels that are called like a row of the table": Confusion(
        {**TEXTS, ("a", "(others)"): 5, ("a", "(none)"): 2, ("a", None): 1, ("(none)", "a"): 1}
    ),
    "thousands, of which those with most errors are shown": Confusion(
        {
            **{(f"l{number}", f"l{number + 1}"): 1 + number // 1000 for number in range(4000)},
            ("worst", "l0"): 9,
            ("good", "good"): 99,
        }
    ),
}


def test_figures_and_tables_show_what_is_not_known_as_such_and_of_many_labels_those_with_most_errors(
    expected: ExpectedTexts,
) -> None:
    texts = []
    for name, confusion in LABELS.items():
        assert all(figure.interval is None for figure in confusion.figures("label", sampled=False))
        lines = [
            f"{each.name}: {each.number if each.total is None else f'{each.count} / {each.total}'}"
            f"{' with an interval' * (each.interval is not None)}{' (headline)' * each.headline} {each.note}".rstrip()
            for each in confusion.figures("label", sampled=True)
        ]
        for panel in confusion.panels("label"):
            lines += [
                f"{panel.title}: {panel.intro}",
                *(f"  {' | '.join(map(str, row))}" for row in (panel.head, *panel.rows)),
            ]
        texts.append("\n  ".join([f"{name}:", *lines]))
    expected.check("\n".join(texts) + "\n")


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


GATES: Any = DATA["gates"]


@pytest.mark.parametrize(("gate", "ends"), GATES)
def test_gates_on_labels(gate: dict[str, Any], ends: list[Any]) -> None:
    results = concluded(DESK, gate).gates[1:]
    assert [[result.value, result.passed, result.counted and [*result.counted]] for result in results] == ends
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
READ: Any = DATA["read"]


@pytest.mark.parametrize(("expected", "result", "labels"), READ)
def test_the_labels_of_a_case_and_an_answer(expected: Any, result: Any, labels: Any) -> None:
    pack, case = load(RULES, expected)
    if result is None:
        facts = record_facts(pack, case, None, pack.unread(case, "unreadable_answer", "no", RULES))
    else:
        outcome = pack.read(result)
        facts = record_facts(pack, case, outcome, pack.score(case, outcome, RULES))
    assert facts.labels == (labels and tuple(map(tuple, labels)))


def test_a_text_has_no_label_but_itself() -> None:
    for path, labels in {
        "$.intent": (("billing", None),),
        "$..intent": None,
        "$": ((None, '{"intent": "billing"}'),),
    }.items():
        rules = suite(f"labels: {path}\ncriteria: [{{exact: /intent}}]")
        _, case = load(suite("criteria: [{exact: /intent}]"), {"intent": "billing"})
        assert rules.labels_of(case, '{"intent": "billing"}') == labels


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
