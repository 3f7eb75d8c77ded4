"""The document of a tariff answer: it is closed, read in two steps, and results of the earlier reference target are such documents."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_packbench.api import load_suite, score
from pytest_packbench.model.result import Breakdown, Firing, Outcome, ResultError
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.conftest import SUITE
from tests.packs.tariff.cases import RIGHT, Json, answer, case, refusal, rules, score_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACK = TariffPack()
OPEN = PACK.for_suite(rules(unknown_keys="ignore"))
TABLES = table("answers")
EARLIER: list[Json] = json.loads((Path(__file__).parent / "data" / "earlier_results.json").read_text("utf-8"))
WHOLE = answer(
    optimized=(RIGHT, 5.0),
    levers=(2, 1),
    dossier={
        "examined": [{"change": "other_upper", "reason": "the same line"}],
        "citations": [{"source_id": "report", "quote": "a rubber sole"}],
        "relies_on": [{"document": "the report", "source_id": "report"}],
        "composition_table": [{"component": "sole", "material": "rubber"}],
        "gri_trace": {
            "steps": [
                {"rule": "1", "level": "heading", "candidates": ["6404"], "outcome": "decided", "chosen": "6404"},
            ]
        },
    },
    trace=[{"hook": "gate", "decision": "pass", "rule": 1}],
)


def with_value(result: Json, path: Sequence[Any], value: Any) -> Json:
    """A copy of a result with another value at a path."""
    changed = deepcopy(result)
    part: Any = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return changed


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every location in a JSON value, its root first."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


OBJECTS = [path for path in paths(WHOLE) if isinstance(at(WHOLE, path), dict)]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: "/".join(map(str, path)) or "top")
def test_an_unknown_key_is_unreadable_wherever_it_stands_and_left_unread_where_the_suite_says_so(
    path: tuple[Any, ...],
) -> None:
    changed = with_value(WHOLE, (*path, "hts_codes"), "9999.99.9999")
    pointer = "".join(f"/{step}" for step in (*path, "hts_codes"))
    with pytest.raises(ResultError, match="unknown key") as caught:
        PACK.read(changed)
    assert caught.value.pointer == pointer
    assert caught.value.unknown_keys == (pointer,)
    terms = score_of(case(), changed, unknown_keys="ignore").terms
    assert [term.detail for term in terms if term.name == "unknown_key"] == [pointer]


@pytest.mark.parametrize("row", TABLES["mistakes"])
def test_a_mistake_is_one_line_with_its_place(row: Json) -> None:
    result = with_value(WHOLE, row["path"], row["value"]) if "path" in row else row["result"]
    with pytest.raises(ResultError) as caught:
        PACK.read(result)
    assert row["said"] in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize(("dossier", "because"), TABLES["dossiers"].values(), ids=TABLES["dossiers"])
def test_beside_a_refusal_only_codes_rates_and_savings_are_looked_at(dossier: Json, because: str) -> None:
    checked = case(expected_accept=False, expected_refusal_category="ambiguous")
    result = score(checked, refusal("ambiguous", tariff_dossier=dossier), pack="tariff")
    assert (result.score, result.terms[0].name) == (float(because == "refusal"), because), result.terms


QUOTE = "a sole of rubber or of leather"


@pytest.mark.parametrize(("citations", "wrong"), TABLES["citations"].values(), ids=TABLES["citations"])
def test_a_faulty_value_beside_a_refusal_is_a_note_and_the_rest_of_the_dossier_is_read(
    citations: Any, wrong: str | None
) -> None:
    checked = case(expected_accept=False, must_cite=None if wrong else ["report"])
    checked["input"]["evidence"] = [{"source_id": "report", "text": f"{QUOTE}, not told"}]
    faulty = {"citations": citations, "baseline": {"hts_code": None, "confidence": 100.0}}
    result = score(checked, refusal(tariff_dossier=faulty), pack="tariff")
    assert result.score == (0.0 if wrong else 1.0), result.terms
    invalid = [term.detail for term in result.terms if term.name == "citations_invalid"]
    assert [wrong in detail for detail in invalid if wrong] == [True] * bool(wrong), invalid
    notes = [term.detail for term in result.terms if term.name == "form"]
    assert any(note.startswith("next to the refusal, not read: /baseline/confidence: got 100.0") for note in notes)


@pytest.mark.parametrize(("baseline", "decision", "valid"), TABLES["recommended"].values(), ids=TABLES["recommended"])
def test_a_refusal_that_recommends_a_code_is_none_and_its_codes_are_read(
    baseline: Json, decision: str | None, valid: bool
) -> None:
    config = rules(schedule="us_2026_revision_10")
    pack = PACK.for_suite(config)
    checked: Any = pack.case_model.model_validate(case(must_not_hts=["6402"]))
    outcome = pack.read(refusal(tariff_dossier={"baseline": baseline}))
    found = pack.score(checked, outcome, config)
    facts = pack.facts(checked, outcome.document, found.terms)
    assert not outcome.refused
    assert (found.score, found.terms[0].name) == (0.0, "contradictory_decision")
    assert (facts.agent_decision, facts.valid) == (decision, valid)


def test_a_failure_is_an_error_and_rulings_become_firings() -> None:
    outcome = PACK.read({"error": {"kind": "timeout", "message": "late"}, "trace": WHOLE["trace"]})
    assert outcome.breakdown == Breakdown(kind="timeout", message="late")
    assert outcome.firings == (Firing(hook="gate", decision="pass", rule=1),)
    assert not outcome.refused
    assert PACK.read(WHOLE).answer == RIGHT
    assert PACK.read(answer(optimized=("6402.99.3165", 6.0))).answer == f"{RIGHT}, optimised 6402.99.3165"


@pytest.mark.parametrize("earlier", EARLIER, ids=lambda earlier: earlier["case"])
def test_a_result_of_the_earlier_reference_target_scores_as_it_did(earlier: Json) -> None:
    suite = load_suite(SUITE)
    (path,) = suite.cases_path.glob(f"*/{earlier['case']}.json")
    plain = json.loads(path.read_bytes())
    assert score(plain, earlier["result"], suite=suite).score == earlier["score"]
    notes = TariffAnswer.model_validate(earlier["result"]).notes
    assert {"accepted", "iterations", "citations", "lever_proof"} <= notes.keys()


@pytest.mark.parametrize("earlier", EARLIER[:2], ids=lambda earlier: earlier["case"])
def test_the_history_of_an_earlier_result_may_say_nothing_else_than_the_document(earlier: Json) -> None:
    result = earlier["result"]
    words = {"accepted": result["accepted"], "not accepted": not result["accepted"], "status": result["status"]}
    for path, value in TABLES["history"]:
        where = [len(result["iterations"]) - 1 if step == "last" else step for step in path]
        other = words.get(value, value) if isinstance(value, str) else value
        other = [{"accepted": result["accepted"]}] if path == ["iterations"] else other
        with pytest.raises(ResultError, match="unknown key"):
            PACK.read(with_value(result, where, other))


def test_a_result_whose_pipeline_did_not_reach_its_model_is_no_refusal() -> None:
    iterations = [{"i": 1, "accepted": False, "rejected_because": ["llm_unavailable"]}]
    with pytest.raises(ResultError):
        PACK.read({"status": "rejected", "accepted": False, "iterations": iterations})


def test_an_earlier_result_without_a_proposal_that_passed_is_a_refusal_without_a_category() -> None:
    result = EARLIER[2]["result"]
    refused = {"category": "missing_evidence", "reason": "llm_unavailable: no proposal", "questions": []}
    answer_read = TariffAnswer.model_validate(with_value(result, ("refusal",), refused))
    assert (answer_read.status, answer_read.refusal, answer_read.notes["refusal"]) == ("refused", None, refused)
    assert (answer_read.shown, answer_read.dossier.baseline) == (None, None)
    last = ("iterations", len(result["iterations"]) - 1, "rejected_because")
    with pytest.raises(ResultError, match="rejected"):
        PACK.read(with_value(with_value(result, ("refusal",), refused), last, ["llm_unavailable"]))


NAMES = st.sampled_from(
    ["status", "iterations", "accepted", "tariff_dossier", "refusal", "error", "trace", "notes", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["verified", "refused"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@example(("status",), {"\x1e": None})
@given(st.sampled_from([path for path in paths(WHOLE) if path]), JSON)
def test_any_value_at_any_location_is_read_or_refused_in_one_line(path: tuple[Any, ...], value: Any) -> None:
    for pack in (PACK, OPEN):
        for result in (with_value(WHOLE, path, value), value):
            try:
                outcome = pack.read(result)
            except ResultError as error:
                assert len(str(error).splitlines()) == 1
            else:
                assert isinstance(outcome, Outcome)


@given(st.sampled_from([path for path in paths(EARLIER[0]["result"]) if path]), JSON)
def test_any_value_in_an_earlier_result_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    try:
        PACK.read(with_value(EARLIER[0]["result"], path, value))
    except ResultError as error:
        assert len(str(error).splitlines()) == 1
