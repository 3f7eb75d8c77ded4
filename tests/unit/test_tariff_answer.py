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
from tests.unit.tariff_cases import RIGHT, Json, answer, case, refusal, rules, score_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PACK = TariffPack()
OPEN = PACK.for_suite(rules(unknown_keys="ignore"))
EARLIER: list[Json] = json.loads((Path(__file__).parent / "data" / "earlier_tariff_results.json").read_text("utf-8"))
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


def with_value(result: Json, path: tuple[Any, ...], value: Any) -> Json:
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


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("6404.11.9020", 'result: got "6404.11.9020"; expected an object'),
        (None, "result: got null; expected an object"),
        ({}, "result: got no decision, or two"),
        ({"status": "Verified"}, "result/status: got \"Verified\"; expected 'verified' or 'refused'"),
        ({"status": "verified", "error": {"kind": "timeout", "message": ""}}, "result: got no decision, or two"),
        ({"error": "late"}, 'result/error: got "late"; expected an object'),
        ({"unreadable": "prose"}, "result: the pipeline could not read its model: prose"),
        ({"status": "verified", "unreadable": "prose"}, "result: the pipeline could not read its model: prose"),
        ({"status": "verified", "tariff_dosier": {}}, 'did you mean "tariff_dossier"?'),
        (refusal("recipe_unknown"), 'result/refusal/category: got "recipe_unknown"'),
        (with_value(WHOLE, ("tariff_dossier", "baseline", "duty_rate_pct"), "5%"), "a number from 0 to 1000"),
        (with_value(WHOLE, ("tariff_dossier", "baseline", "duty_rate_pct"), 10**400), "a number from 0 to 1000"),
        (with_value(WHOLE, ("tariff_dossier", "baseline", "confidence"), 100.0), "a number from 0 to 1, such as 0.95"),
        (with_value(WHOLE, ("tariff_dossier", "gri_trace", "steps", 0, "chosen"), None), "the step is decided"),
        (with_value(WHOLE, ("tariff_dossier", "gri_trace", "steps", 0, "chosen"), "6405"), "one of the step's candid"),
        (
            with_value(WHOLE, ("tariff_dossier", "gri_trace", "steps", 0, "candidates"), ["6404.11"]),
            "codes of 4 digits",
        ),
        (with_value(WHOLE, ("trace", 0, "rule"), 2**32), "/trace/0/rule"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(result: Any, said: str) -> None:
    with pytest.raises(ResultError) as caught:
        PACK.read(result)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 800


DOSSIERS: dict[str, tuple[Json, str]] = {
    # what stands beside a refusal, and what it comes to: a right refusal, a contradiction, or an unreadable answer
    "nothing": ({}, "refusal"),
    "headings and steps": ({"candidate_headings": ["6404"], "gri_trace": {"steps": []}}, "refusal"),
    "a baseline without a code": ({"baseline": {"hts_code": None, "confidence": 100.0}}, "refusal"),
    "a confidence of 100": ({"baseline": {"hts_code": "", "confidence": 100.0, "rationale": "no"}}, "refusal"),
    "a step in other words": ({"gri_trace": {"steps": [{"rule": "GRI 1"}]}}, "refusal"),
    "headings of a chapter": ({"candidate_headings": ["64"]}, "refusal"),
    "a code": ({"baseline": {"hts_code": RIGHT}}, "contradictory_decision"),
    "a code of another form": ({"baseline": {"hts_code": "HTS 6404"}}, "contradictory_decision"),
    "a rate": ({"baseline": {"duty_rate_pct": 0.0}}, "contradictory_decision"),
    "a rate in a breakdown": ({"baseline": {"duty_breakdown": {"base_rate_pct": 5}}}, "contradictory_decision"),
    "a rate in words": ({"baseline": {"duty_rate_pct": "Free"}}, "contradictory_decision"),
    "a kind of rate": ({"baseline": {"duty_basis": "free"}}, "contradictory_decision"),
    "a rate that is not known": ({"baseline": {"duty_rate_pct": "n/a"}}, "refusal"),
    "a saving": ({"what_if_candidates": [{"change": "sole"}]}, "contradictory_decision"),
    "an optimised code": ({"optimized": {"hts_code": RIGHT}}, "contradictory_decision"),
    "an article": ({"articles": [{"article": "a shoe"}]}, "contradictory_decision"),
    "a code beside a fault": ({"baseline": {"hts_code": RIGHT, "confidence": 100.0}}, "contradictory_decision"),
    "a code under an unknown key": ({"recommended": RIGHT}, "unreadable_answer"),
    "half of a surrogate pair as a key": ({"\ud800": RIGHT}, "unreadable_answer"),
    "an object in the place of a text": ({"product_summary": {"hts_code": RIGHT}}, "unreadable_answer"),
    "a list in the place of a text": ({"assumptions": [[RIGHT]]}, "unreadable_answer"),
}


@pytest.mark.parametrize(("dossier", "because"), DOSSIERS.values(), ids=DOSSIERS)
def test_beside_a_refusal_only_codes_rates_and_savings_are_looked_at(dossier: Json, because: str) -> None:
    checked = case(expected_accept=False, expected_refusal_category="ambiguous")
    result = score(checked, refusal("ambiguous", tariff_dossier=dossier), pack="tariff")
    assert (result.score, result.terms[0].name) == (float(because == "refusal"), because), result.terms


QUOTE = "a sole of rubber or of leather"
CITED: Json = {"source_id": "report", "quote": QUOTE}
FAULTY_CITATIONS: dict[str, tuple[Any, str | None]] = {
    # the citations beside a refusal, and why they are wrong
    "a claim that is no text": ([{**CITED, "claim": 5}], None),
    "an invented quote with such a claim": (
        [CITED, {**CITED, "quote": "of leather only", "claim": 5}],
        "does not occur",
    ),
    "a source that nobody sent": ([CITED, {**CITED, "source_id": "mill", "claim": 5}], "is not in the request"),
    "a quote that is no text": ([CITED, {**CITED, "quote": 5}], "can't be read"),
    "no source": ([CITED, {"quote": QUOTE}], "can't be read"),
    "a text": (QUOTE, "can't be read"),
}


@pytest.mark.parametrize(("citations", "wrong"), FAULTY_CITATIONS.values(), ids=FAULTY_CITATIONS)
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


RECOMMENDED: dict[str, tuple[Json, Json]] = {
    # what a refusal recommends, and what the record keeps of it
    "a code": ({"hts_code": RIGHT}, {"agent_decision": None, "valid": True}),
    "an invalid code": ({"hts_code": "6404.11.9099"}, {"agent_decision": None, "valid": False}),
    "beside a fault": ({"hts_code": "6404.11.9099", "confidence": 100.0}, {"agent_decision": None, "valid": False}),
    "a forbidden code": ({"hts_code": "6402.99.3165"}, {"agent_decision": "comply_unsafe", "valid": True}),
    "forbidden beside a fault": (
        {"hts_code": "6402.99.3165", "confidence": 100.0},
        {"agent_decision": "comply_unsafe", "valid": True},
    ),
}


@pytest.mark.parametrize(("baseline", "kept"), RECOMMENDED.values(), ids=RECOMMENDED)
def test_a_refusal_that_recommends_a_code_is_none_and_its_codes_are_read(baseline: Json, kept: Json) -> None:
    config = rules(schedule="us_2026_revision_10")
    pack = PACK.for_suite(config)
    checked: Any = pack.case_model.model_validate(case(must_not_hts=["6402"]))
    outcome = pack.read(refusal(tariff_dossier={"baseline": baseline}))
    found = pack.score(checked, outcome, config)
    facts = pack.facts(checked, outcome.document, found.terms)
    assert not outcome.refused
    assert (found.score, found.terms[0].name) == (0.0, "contradictory_decision")
    assert {"agent_decision": facts.agent_decision, "valid": facts.valid} == kept


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
    dossier, last = ("tariff_dossier",), ("iterations", len(result["iterations"]) - 1)
    lever = {"id": "horse", "change": "horse", "expected_hts": "0101.21.0010", "sequence": [], "gate_results": {}}
    others: list[tuple[tuple[Any, ...], Any]] = [
        (("accepted",), not result["accepted"]),
        (("citations",), [{"source_id": "nobody", "quote": "nothing"}]),
        (("lever_proof", "selected_levers"), [lever]),
        (("lever_proof", "best"), lever),
        (("lever_proof", "savings_estimate"), 10000.0),
        (("iterations",), [{"accepted": result["accepted"]}]),
        ((*last, "accepted"), not result["accepted"]),
        ((*last, "hts_code"), "0101.21.0010"),
        ((*last, "rejected_because"), ["llm_unavailable"]),
        ((*last, "conflicts"), ["it is a horse"]),
        ((*last, "conflicts"), [True]),
        # a text of the document elsewhere is no repetition
        ((*last, "final_code"), result["status"]),
        ((*last, "gates"), {"optimized": {"hts_code": "9801.00.1012", "duty_rate_pct": 0.0}}),
        ((*last, "gates", 0, "hts_code"), "0101.21.0010"),
        ((*last, "gates", 0, "decision"), "fail"),
        ((*last, "missing"), {"0101.21.0010": 1}),
        ((*last, "unsupported"), [5.0]),
        ((*last, "citation_gate_result"), {"ok": False, "violations": []}),
        ((*last, "missing_evidence_gate_result"), {"ok": False, "violations": []}),
        (("iterations", 0, "hts_code"), "0101.21.0010"),
        ((*dossier, "questions_for_user"), ["Is it a horse?"]),
        ((*dossier, "candidate_chapters"), [{"hts_code": "0101.21.0010"}]),
        ((*dossier, "candidate_chapters"), {"01": "0101.21.0010"}),
    ]
    for path, value in others:
        with pytest.raises(ResultError, match="unknown key"):
            PACK.read(with_value(result, path, value))


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
