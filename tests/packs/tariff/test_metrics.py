"""The metrics of the field: from answers of `data/tariff_metrics.yaml` over their records to figures and gates."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.result import UNREADABLE
from pytest_packbench.model.suite import Gate
from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.metrics import TariffMetrics, duty_gap
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.packs.tariff.cases import Json, case, parse_step, result_of, rules, table
from tests.unit.run_builders import case_result, changed, check_run, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import Figure
    from tests.conftest import ExpectedTexts

TABLE = table("metrics")
CONFIG = rules(schedule="us_2026_revision_10", scored_code="baseline")
PACK = TariffPack().for_suite(CONFIG)
figures = TariffMetrics().figures


def case_of(row: Json) -> Any:
    expected = dict(row.get("case", {}))
    if "category" in expected:
        expected = {"expected_accept": False, "expected_refusal_category": expected["category"]}
    pair = [f"pair_{row['pair']}"] if "pair" in row else []
    plain = case("positive" if expected.get("expected_accept", True) else "negative", tags=("gri_1", *pair), **expected)
    plain["notes"]["source"] = f"ruling:{row['ruling']}" if "ruling" in row else "synthetic"
    plain["input"]["evidence"] = [{"source_id": "report", "text": TABLE["report"]}]
    return PACK.case_model.model_validate(plain)


def record_of(name: str, row: Json, *, backend: str = "openai", trial: int = 0) -> Json:
    """The record of a row, with what its figures read."""
    checked, outcome = case_of(row), None
    if row.get("unread") or row.get("unreadable"):
        score = PACK.unread(checked, UNREADABLE, "it is no object", CONFIG)
    else:
        result = result_of(row["answer"])
        if result.get("tariff_dossier"):
            trace = {"sequence_ok": row["answer"].get("in_order"), "steps": list(map(parse_step, row.get("steps", ())))}
            cited = [{"source_id": source, "quote": quote} for source, quote in row.get("quotes", ())]
            result["tariff_dossier"] |= {"gri_trace": trace, "citations": cited}
        outcome = PACK.read(result)
        score = PACK.score(checked, outcome, CONFIG)
    facts = record_facts(PACK, checked, outcome, score)
    return {
        "test_id": f"tariff:positive:{name}",
        "expected": facts.expected,
        "agent_decision": facts.agent_decision,
        "passed": score.passed,
        "llm_backend": backend,
        "llm_model": "a model",
        "packbench": {
            **facts.extra,
            "trial": trial,
            "score": score.score,
            "facets": PACK.facets(checked),
            "terms": [{"name": term.name} for term in score.terms],
            "match_depth": score.match_depth,
            "match_level": score.match_level,
            "labels": facts.labels,
            **({} if facts.valid is None else {"valid": facts.valid}),
        },
    }


RECORDS = [record_of(name, row) for name, row in TABLE["rows"].items()]


def lines_of(figures_of_run: Sequence[Figure]) -> str:
    lines = []
    for each in figures_of_run:
        value = f"{each.number} {each.unit}" if each.number is not None else f"{each.count} / {each.total}"
        ends = each.interval and f"; {each.interval.low:.3f} to {each.interval.high:.3f}, {each.interval.method}"
        note = each.note and f"; {each.note}"
        lines.append(f"{each.group}: {'! ' if each.headline else ''}{each.name}: {value}{ends or ''}{note}")
    return "".join(f"{line}\n" for line in lines)


def test_the_figures_of_a_run_are_those_of_its_answers_in_any_order(expected: ExpectedTexts) -> None:
    text = lines_of(figures(iter(RECORDS)))
    expected.check(text)
    shuffled = list(RECORDS)
    Random(5).shuffle(shuffled)  # noqa: S311 - an order that is always the same
    assert lines_of(figures(shuffled)) == text
    assert all(each.definition.endswith((".", "value.")) for each in figures(RECORDS))


def test_authored_answers_have_counts_only_and_each_model_figures_of_its_own() -> None:
    authored = [{**record, "llm_backend": "stub", "llm_model": f"m{number}"} for number, record in enumerate(RECORDS)]
    alone = figures(authored)
    assert [(each.group, each.name, each.count, each.number) for each in alone] == [
        (each.group, each.name, each.count, each.number) for each in figures(RECORDS)
    ]
    assert {each.interval for each in alone} == {None}
    both = figures([*authored, *RECORDS])
    groups = dict.fromkeys(each.group for each in both)
    assert [name for name in groups if name.startswith("codes")] == ["codes: openai / a model", "codes: stub"]
    assert {each.interval for each in both if each.group.endswith(": stub")} == {None}
    assert lines_of(both).count("right to 10 digits") == 2


def test_trials_of_a_case_are_no_independent_answers() -> None:
    def accuracy(records: list[Json]) -> Any:
        return next(each for each in figures(records) if each.name == "right to 10 digits")

    once = accuracy(RECORDS)
    thrice = accuracy([record_of(name, row, trial=trial) for name, row in TABLE["rows"].items() for trial in range(3)])
    assert (thrice.count, thrice.total) == (3 * once.count, 3 * once.total)
    assert thrice.interval.high - thrice.interval.low > 0.95 * (once.interval.high - once.interval.low)
    pairs = next(each for each in figures(RECORDS) if each.name == "pairs")
    assert (pairs.count, pairs.total) == (1, 2)


def test_what_is_not_known_counts_nowhere() -> None:
    assert figures([]) == []
    assert figures([{"llm_backend": "stub", "expected": "refuse"}])[0].name == "recall of refusals"
    text = lines_of(figures(TABLE["odd"]))
    assert "right to 10 digits: 0 / 2" in text
    assert "paid" not in text
    assert "duty" not in text
    assert "! pairs:" not in text
    assert "own gates" not in text


def test_each_answer_that_is_due_has_the_expected_chapter_and_its_own() -> None:
    found = {record["test_id"].split(":")[-1]: record["packbench"]["labels"] for record in RECORDS}
    due = {name: tuple(map(tuple, pairs)) for name, pairs in TABLE["chapters"].items()}
    assert {name: found[name] for name in due} == due
    assert found["any category"] is found["unread, refusal due"] is None
    assert found["pair b, without it"] is None


@pytest.mark.parametrize(("given", "expected", "dollars"), TABLE["duty_gaps"])
def test_the_duty_at_stake_comes_from_the_schedule(given: str, expected: str, dollars: float | None) -> None:
    assert duty_gap(given, expected, load_edition("us_2026_revision_10")) == dollars
    assert duty_gap(given, expected, None) is None


def results() -> list[Result]:
    names = ("match_depth", "match_level", "valid")
    return [
        changed(
            case_result(f"c{number}", "passed" if record["passed"] else "failed"),
            expects_refusal=record["expected"] == "refuse",
            refused=record["agent_decision"] == "refuse",
            **{name: record["packbench"].get(name) for name in names},
        )
        for number, record in enumerate(RECORDS)
    ]


@pytest.mark.parametrize(
    ("metric", "figure"),
    [
        *((f"accuracy_{digits}", f"right to {digits} digits") for digits in (2, 4, 6, 8, 10)),
        ("forbidden_code_rate", "forbidden codes"),
        ("invalid_code_rate", "invalid codes"),
        ("refusal_precision", "precision of refusals"),
        ("refusal_recall", "recall of refusals"),
    ],
)
def test_a_gate_bounds_what_the_figure_shows(metric: str, figure: str) -> None:
    shown = next(each for each in figures(RECORDS) if each.name == figure)
    rule = Gate.model_validate({"metric": metric, "max": 1.0})
    (result,) = check_run(run(), results(), [rule], metrics=CONFIG.metrics)
    assert result.text.startswith(f"{metric} {shown.count} / {shown.total} = ")
    assert result.observed == shown.share


def test_a_forbidden_code_in_one_trial_counts_whatever_the_others_are() -> None:
    def trial(number: int, **changes: Any) -> Result:
        return changed(case_result("one", "failed"), trial=number, score=0.0, expects_refusal=False, **changes)

    trials = [
        trial(0, refused=True, decision="refuse", match_level="unexpected_refusal"),
        trial(1, refused=False, decision="comply_unsafe", match_level="forbidden_code", match_depth=0),
        trial(2, refused=False, decision="comply_safe", match_level="none", match_depth=0),
    ]
    rule = Gate.model_validate({"metric": "forbidden_code_rate", "max": 0.0})
    (result,) = check_run(run(), trials, [rule], metrics=CONFIG.metrics)
    assert result.text.startswith("forbidden_code_rate 1 / 1 = 100.0 % > max 0.0 %")


@pytest.mark.parametrize("metric", ["forbidden_code_rate", "invalid_code_rate"])
def test_answers_without_a_code_say_nothing_about_codes(metric: str) -> None:
    codeless = [
        result
        for record, result in zip(RECORDS, results(), strict=True)
        if record["test_id"].split(":")[-1] in {"no code", "refused by mistake", "can't be read", "contradictory"}
    ]
    assert len(codeless) == 4
    (result,) = check_run(run(), codeless, [Gate.model_validate({"metric": metric, "max": 0})], metrics=CONFIG.metrics)
    assert not result.passed
    assert result.text == f"{metric}: no case to judge: FAIL"


def test_a_gate_names_a_metric_that_the_pack_has() -> None:
    assert {f"accuracy_{digits}" for digits in (2, 4, 6, 8, 10)} <= CONFIG.metrics.keys()
    for metric in ("accuracy_3", "pairs"):
        with pytest.raises(ValidationError, match=r"expected one of the metrics of pack tariff: .*accuracy_10"):
            rules(gates=[{"metric": metric, "min": 0.5}])
