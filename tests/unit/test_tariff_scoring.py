"""The scoring rules of the tariff pack: each term alone, and the algebra of them all."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.outcome import Breakdown
from pytest_packbench.model.score import Score, Term
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.outcome import TariffOutcome, read
from pytest_packbench.packs.tariff.scoring import score
from tests.unit.tariff_cases import RIGHT, Json, answer, case, classification, levers, refusal, rules, score_of, term

SAME_LINE, SAME_SUBHEADING, SAME_HEADING = "6404.11.9050", "6404.11.2030", "6404.19.9030"
SAME_CHAPTER, ELSEWHERE = "6402.99.3165", "8544.42.9090"
LADDER = {"scoring": {"ladder": {"4": 0.4, "6": 0.5, "8": 0.7}}}
NO_GATES = {"citation_gate_result": None, "missing_evidence_gate_result": None}


def points(found: Score) -> float:
    assert found.score is not None
    return found.score


def scoring_terms(found: Score) -> list[str]:
    """The terms that change the number."""
    return [term.name for term in found.terms if term.effect != "note"]


@pytest.mark.parametrize(
    ("code", "expected", "level", "worth", "depth"),
    [
        (RIGHT, {}, "preferred", 1.0, 10),
        ("6404119020", {}, "preferred", 1.0, 10),
        ("HTS 6404.11.90-20", {}, "preferred", 1.0, 10),
        (SAME_LINE, {}, "chapter", 0.3, 8),
        (SAME_SUBHEADING, {}, "chapter", 0.3, 6),
        (SAME_HEADING, {}, "chapter", 0.3, 4),
        (SAME_CHAPTER, {}, "chapter", 0.3, 2),
        (ELSEWHERE, {}, "none", 0.0, 0),
        ("6404.11.90", {}, "chapter", 0.3, 8),
        (None, {}, "none", 0.0, 0),
        ("no idea", {}, "none", 0.0, 0),
        (SAME_HEADING, {"allowed_hts": [SAME_HEADING]}, "allowed", 0.7, 4),
        (SAME_HEADING, {"allowed_hts": ["6404.19"]}, "allowed", 0.7, 4),
        (ELSEWHERE, {"allowed_hts": [ELSEWHERE]}, "allowed", 0.7, 0),
        (RIGHT, {"allowed_hts": [RIGHT]}, "preferred", 1.0, 10),
        (RIGHT, {"preferred_hts": ["6404.11"]}, "preferred", 1.0, 6),
        (RIGHT, {"preferred_hts": ["6404.11.90"]}, "preferred", 1.0, 8),
        (SAME_LINE, {"preferred_hts": ["6404.11.90"]}, "preferred", 1.0, 8),
        (SAME_SUBHEADING, {"preferred_hts": ["6404.11.90"]}, "chapter", 0.3, 6),
        (RIGHT, {"preferred_hts": ["6404"]}, "chapter", 0.3, 4),
        (RIGHT, {"preferred_hts": ["64"]}, "chapter", 0.3, 2),
        ("6404", {"preferred_hts": ["6404"]}, "preferred", 1.0, 4),
        (ELSEWHERE, {"preferred_hts": [RIGHT, "8544.42.9090"]}, "preferred", 1.0, 10),
        (SAME_LINE, {"preferred_hts": [ELSEWHERE, RIGHT]}, "chapter", 0.3, 8),
        (RIGHT, {"preferred_hts": []}, "none", 0.0, 0),
    ],
)
def test_match(code: str | None, expected: Json, level: str, worth: float, depth: int) -> None:
    found = score_of(case(**expected), answer(code, **NO_GATES))
    assert (found.score, found.match_level, found.match_depth) == (worth, level, depth)
    assert found.terms[0].value == worth
    assert found.terms[0].name == ("no_match" if level == "none" else f"{level}_match")


@pytest.mark.parametrize(
    ("code", "level", "worth"),
    [
        (RIGHT, "preferred", 1.0),
        (SAME_LINE, "ladder_8", 0.7),
        (SAME_SUBHEADING, "ladder_6", 0.5),
        (SAME_HEADING, "ladder_4", 0.4),
        (SAME_CHAPTER, "chapter", 0.3),
        (ELSEWHERE, "none", 0.0),
    ],
)
def test_ladder(code: str, level: str, worth: float) -> None:
    found = score_of(case(), answer(code, **NO_GATES), **LADDER)
    assert (found.match_level, found.score) == (level, worth)


def test_a_ladder_of_one_step_serves_all_below_it() -> None:
    found = score_of(case(), answer(SAME_LINE, **NO_GATES), scoring={"ladder": {"4": 0.4}})
    assert (found.match_level, found.score) == ("ladder_4", 0.4)


@given(
    st.dictionaries(st.sampled_from("468"), st.floats(0, 1), max_size=3),
    st.floats(0, 1),
    st.sampled_from([SAME_LINE, SAME_SUBHEADING, SAME_HEADING, SAME_CHAPTER, ELSEWHERE]),
    st.sampled_from([SAME_LINE, SAME_SUBHEADING, SAME_HEADING, SAME_CHAPTER, ELSEWHERE]),
)
def test_the_ladder_is_monotone(ladder: dict[str, float], chapter: float, one: str, other: str) -> None:
    config = {"scoring": {"ladder": ladder, "chapter": chapter, "preferred": 1.0}}
    left, right = (score_of(case(), answer(code, **NO_GATES), **config) for code in (one, other))
    assert left.match_depth is not None
    assert right.match_depth is not None
    if left.match_depth >= right.match_depth:
        assert points(left) >= points(right)


@pytest.mark.parametrize(
    ("mode", "baseline", "optimized", "worth"),
    [
        ("final", RIGHT, None, 1.0),
        ("final", RIGHT, SAME_CHAPTER, 0.3),
        ("final", SAME_CHAPTER, RIGHT, 1.0),
        ("baseline", RIGHT, SAME_CHAPTER, 1.0),
        ("baseline", SAME_CHAPTER, RIGHT, 0.3),
        ("baseline", None, RIGHT, 0.0),
    ],
)
def test_which_code_is_scored(mode: str, baseline: str | None, optimized: str | None, worth: float) -> None:
    result = answer(baseline, dossier_optimized=classification(optimized), **NO_GATES)
    assert score_of(case(), result, scored_code=mode).score == worth


@pytest.mark.parametrize(
    ("citations", "evidence", "effect", "detail"),
    [
        (True, True, "add", "passed gates: citations, missing evidence"),
        (True, None, "add", "passed gates: citations"),
        (None, True, "add", "passed gates: missing evidence"),
        (None, None, "note", "no bonus: no critical gate ran"),
        (True, False, "note", "no bonus: failed gates: missing evidence"),
        (False, True, "note", "no bonus: failed gates: citations"),
    ],
)
def test_bonus(citations: object, evidence: object, effect: str, detail: str) -> None:
    gates = {
        key: None if ok is None else {"ok": ok}
        for key, ok in (("citation_gate_result", citations), ("missing_evidence_gate_result", evidence))
    }
    found = term(score_of(case(), answer(SAME_CHAPTER, **gates)), "process_bonus")
    assert (found.effect, found.detail) == (effect, detail)
    assert found.value == (0.05 if effect == "add" else 0.0)


@pytest.mark.parametrize(("code", "worth"), [(RIGHT, 1.0), (SAME_CHAPTER, 0.35), (ELSEWHERE, 0.0)])
def test_the_bonus_needs_a_match(code: str, worth: float) -> None:
    assert score_of(case(), answer(code)).score == worth


def test_an_allowed_match_reaches_075_and_no_more() -> None:
    found = score_of(case(allowed_hts=[SAME_HEADING]), answer(SAME_HEADING))
    assert (found.score, found.threshold, found.verdict) == (0.75, 0.8, "failed")


@pytest.mark.parametrize(("ok", "effect", "value"), [(True, "note", 0.0), (False, "add", -0.1), (None, "note", 0.0)])
def test_gri_sequence(ok: object, effect: str, value: float) -> None:
    found = score_of(case(), answer(dossier_gri_trace={"sequence_ok": ok}))
    assert (term(found, "gri_sequence").effect, term(found, "gri_sequence").value) == (effect, value)
    assert found.score == (0.95 if ok is False else 1.0)


@pytest.mark.parametrize(
    ("base", "best", "limits", "worth"),
    [
        (20.0, 20.0, [-0.01, 0.01], 1.05),
        (20.0, 20.01, [-0.01, 0.01], 1.05),
        (20.0, 19.99, [-0.01, 0.01], 1.05),
        (20.0, 20.02, [-0.01, 0.01], 0.95),
        (20.0, 19.98, [-0.01, 0.01], 0.95),
        (20.0, 5.0, [-15.0, -15.0], 1.05),
        (None, 5.0, [-15.0, -15.0], 1.05),
        (20.0, None, [0.0, 0.0], 1.05),
    ],
)
def test_duty_delta(base: float | None, best: float | None, limits: list[float], worth: float) -> None:
    result = answer(dossier_baseline=classification(rate=base), dossier_optimized=classification(rate=best))
    found = score_of(case(duty_delta_range=limits), result)
    assert round(sum(each.value for each in found.terms if each.effect == "add"), 9) == worth
    assert term(found, "duty_delta").effect == ("add" if worth < 1 else "note")


def test_a_delta_that_cannot_be_computed_says_so() -> None:
    found = score_of(case(duty_delta_range=[0.0, 0.0]), answer())
    assert term(found, "duty_delta").detail.startswith("not computable")


def test_both_penalties_together() -> None:
    result = answer(dossier_gri_trace={"sequence_ok": False}, dossier_optimized=classification(), **NO_GATES)
    found = score_of(case(duty_delta_range=[5.0, 5.0]), result)
    assert (found.score, found.verdict) == (0.8, "passed")


@pytest.mark.parametrize(
    ("expected", "result", "name"),
    [
        ({"must_not_hts": [RIGHT]}, answer(), "forbidden_code"),
        ({"must_not_hts": ["64"]}, answer(), "forbidden_code"),
        ({"must_not_hts": ["8544", "6404.11"]}, answer("6404119020"), "forbidden_code"),
        ({"must_not_hts": [ELSEWHERE]}, answer(dossier_optimized=classification(ELSEWHERE)), "forbidden_code"),
        ({"no_savings_expected": True}, answer(lever_proof=levers(1)), "no_savings_violation"),
        ({"no_savings_expected": True}, answer(dossier_what_if_candidates=[{}]), "no_savings_violation"),
        ({"no_savings_expected": True}, answer(dossier_savings_estimate={"per_unit": 1}), "no_savings_violation"),
        ({}, answer(citation_gate_result={"ok": False}), "citations_invalid"),
        ({"expected_duty_total_rate_pct": 19.9}, answer(), "duty_total_rate"),
        ({"expected_duty_total_rate_pct": 20.0}, answer(dossier_baseline={"hts_code": RIGHT}), "duty_total_rate"),
        ({"expected_duty_delta_direction": "flat"}, answer(), "duty_delta_direction"),
        (
            {"expected_duty_delta_direction": "flat"},
            answer(dossier_optimized=classification(rate=19.0)),
            "duty_delta_direction",
        ),
        ({"lever_found_expected": True}, answer(), "lever_missing"),
        ({"lever_found_expected": False}, answer(lever_proof=levers(1)), "unexpected_lever"),
        ({"lever_count_min": 2}, answer(lever_proof=levers(1)), "lever_count"),
        ({"lever_compliance_ok": True}, answer(lever_proof=levers(1, ok=False)), "lever_compliance"),
        ({"expected_best_is_multi_step": True}, answer(lever_proof=levers(1, 5)), "lever_multi_step"),
        ({"expected_best_is_multi_step": True}, answer(), "lever_multi_step"),
        ({"min_lever_steps": 3}, answer(lever_proof=levers(2, 5)), "lever_steps"),
        ({"min_lever_steps": 1}, answer(), "lever_steps"),
    ],
)
def test_a_hard_fail_is_exactly_zero(expected: Json, result: Json, name: str) -> None:
    found = score_of(case(**expected), result)
    assert found.score == 0.0
    assert found.verdict == "failed"
    assert term(found, name).effect == "zero"
    assert [each.name for each in found.terms if each.effect in {"zero", "clamp"}] == [name]
    assert found.match_level == ("forbidden_code" if name == "forbidden_code" else "preferred")


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        ({"must_not_hts": ["6404.19", SAME_LINE]}, answer()),
        ({"must_not_hts": [RIGHT]}, answer("6404.11", dossier_baseline=classification("6404.11"))),
        ({"no_savings_expected": True}, answer(dossier_optimized=classification(rate=20.0))),
        ({}, answer(citation_gate_result=None)),
        ({"expected_duty_total_rate_pct": 20.0001}, answer()),
        ({"expected_duty_total_rate_pct": 0.0}, answer(dossier_optimized=classification(rate=0))),
        ({"expected_duty_delta_direction": "flat"}, answer(dossier_optimized=classification(rate=20.0))),
        ({"expected_duty_delta_direction": "decrease"}, answer(dossier_optimized=classification(rate=0.0))),
        ({"expected_duty_delta_direction": "increase"}, answer(dossier_optimized=classification(rate=21))),
        ({"lever_found_expected": True, "lever_count_min": 1}, answer(lever_proof=levers(1))),
        ({"lever_found_expected": False, "lever_count_min": 0}, answer()),
        ({"lever_compliance_ok": True}, answer(lever_proof=levers(1))),
        ({"lever_compliance_ok": True}, answer()),
        ({"lever_compliance_ok": False}, answer(lever_proof=levers(1, ok=False))),
        ({"expected_best_is_multi_step": True, "min_lever_steps": 2}, answer(lever_proof=levers(2))),
        ({"expected_best_is_multi_step": False, "min_lever_steps": 0}, answer()),
    ],
)
def test_no_hard_fail_without_its_cause(expected: Json, result: Json) -> None:
    assert not [each for each in score_of(case(**expected), result).terms if each.effect == "zero"]


@pytest.mark.parametrize(
    ("mode", "baseline", "optimized", "is_forbidden"),
    [
        ("final", RIGHT, ELSEWHERE, True),
        ("final", ELSEWHERE, RIGHT, False),
        ("final", ELSEWHERE, None, True),
        ("baseline", ELSEWHERE, RIGHT, True),
        ("baseline", RIGHT, ELSEWHERE, False),
        ("baseline", None, ELSEWHERE, True),
    ],
)
def test_a_forbidden_code_speaks_of_the_scored_goods(
    mode: str,
    baseline: str | None,
    optimized: str | None,
    is_forbidden: bool,
) -> None:
    result = answer(baseline, dossier_optimized=classification(optimized))
    found = score_of(case(must_not_hts=["8544"]), result, scored_code=mode)
    assert ("forbidden_code" in scoring_terms(found)) is is_forbidden


@pytest.mark.parametrize(
    ("mode", "optimized", "wanted", "is_right"),
    [
        ("final", classification(RIGHT, 0.0), 0.0, True),
        ("final", classification(RIGHT, 0.0), 20.0, False),
        ("final", classification(RIGHT, None), 20.0, False),
        ("final", classification(None, 5.0), 20.0, True),
        ("baseline", classification(RIGHT, 0.0), 20.0, True),
        ("baseline", classification(RIGHT, 0.0), 0.0, False),
    ],
)
def test_the_rate_is_that_of_the_scored_code(
    mode: str,
    optimized: Json,
    wanted: float,
    is_right: bool,
) -> None:
    found = score_of(case(expected_duty_total_rate_pct=wanted), answer(dossier_optimized=optimized), scored_code=mode)
    assert ("duty_total_rate" not in scoring_terms(found)) is is_right


@pytest.mark.parametrize(
    ("wanted", "given_category", "worth", "level"),
    [
        ("ambiguous", "ambiguous", 1.0, "refusal"),
        (None, "ambiguous", 1.0, "refusal"),
        (None, None, 1.0, "refusal"),
        ("ambiguous", "insufficient_info", 0.5, "refusal_category_mismatch"),
        ("ambiguous", None, 0.5, "refusal_category_mismatch"),
        ("ambiguous", "unheard_of", 0.5, "refusal_category_mismatch"),
    ],
)
def test_refusal(wanted: str | None, given_category: str | None, worth: float, level: str) -> None:
    found = score_of(case("negative", expected_accept=False, expected_refusal_category=wanted), refusal(given_category))
    assert (found.score, found.match_level, found.match_depth) == (worth, level, None)
    assert found.passed == (worth == 1.0)


def test_an_undue_refusal_is_zero_and_no_wrong_code() -> None:
    found = score_of(case(), refusal())
    assert (found.score, found.match_level, found.match_depth) == (0.0, "unexpected_refusal", None)


def test_an_undue_acceptance_is_zero_with_any_code() -> None:
    due = case("negative", expected_accept=False, preferred_hts=[RIGHT])
    found = score_of(due, answer())
    assert (found.score, found.match_level, found.match_depth) == (0.0, "unexpected_acceptance", None)
    assert scoring_terms(score_of({**due, "expected": {**due["expected"], "must_not_hts": ["64"]}}, answer())) == [
        "unexpected_acceptance",
        "forbidden_code",
    ]


@pytest.mark.parametrize(
    ("own", "by_type", "accept", "threshold"),
    [
        (None, None, True, 0.8),
        (None, None, False, 0.9),
        (None, 0.6, True, 0.6),
        (None, 0.6, False, 0.6),
        (0.7, 0.6, True, 0.7),
        (0.0, 0.6, True, 0.0),
    ],
)
def test_threshold(
    own: float | None,
    by_type: float | None,
    accept: bool,
    threshold: float,
) -> None:
    types = {} if by_type is None else {"adversarial": by_type, "positive": 0.1}
    given_case = case("adversarial", expected_accept=accept, threshold=own)
    assert score_of(given_case, answer(), thresholds={"by_type": types}).threshold == threshold


def test_the_suite_sets_thresholds_and_constants() -> None:
    config: dict[str, Any] = {
        "thresholds": {"accept": 0.7, "refuse": 0.4},
        "scoring": {"allowed": 0.6, "bonus": 0.1, "wrong_refusal_category": 0.4},
    }
    allowed = score_of(case(allowed_hts=[SAME_HEADING]), answer(SAME_HEADING), **config)
    assert (allowed.score, allowed.verdict) == (0.7, "passed")
    wrong = case("negative", expected_accept=False, expected_refusal_category="ambiguous")
    assert score_of(wrong, refusal(), **config).passed


def test_terms_stand_in_the_order_applied() -> None:
    strict = case(must_not_hts=["64"], no_savings_expected=True, duty_delta_range=[0, 0], lever_count_min=3)
    result = answer(
        dossier_optimized=classification(rate=5.0), dossier_gri_trace={"sequence_ok": False}, lever_proof=levers(1)
    )
    assert [each.name for each in score_of(strict, result).terms] == [
        "preferred_match",
        "process_bonus",
        "gri_sequence",
        "duty_delta",
        "forbidden_code",
        "no_savings_violation",
        "lever_count",
    ]


@pytest.mark.parametrize(
    ("given_case", "result", "name", "detail"),
    [
        (case(), answer("6404119020"), "preferred_match", f"6404119020 matches {RIGHT}"),
        (case(), answer(SAME_HEADING), "chapter_match", f"{SAME_HEADING}: the first 4 digits match"),
        (case(), answer(ELSEWHERE), "no_match", f"{ELSEWHERE}: no digits match"),
        (case(), answer(None), "no_match", "the answer contains no code"),
        (case(), answer(None), "process_bonus", "no bonus: no match"),
        (case(), answer(dossier_gri_trace=None), "gri_sequence", "not assessed: no GRI trace"),
        (
            case(duty_delta_range=[-20, 0.5]),
            answer(dossier_optimized=classification(rate=5.0)),
            "duty_delta",
            "-15 percentage points, within -20 to 0.5",
        ),
        (
            case(duty_delta_range=[0, 0.5]),
            answer(dossier_optimized=classification(rate=5.0)),
            "duty_delta",
            "-15 percentage points, outside 0 to 0.5",
        ),
        (
            case(duty_delta_range=[0, 0.5]),
            answer(),
            "duty_delta",
            "not computable: a rate is missing or not ad valorem",
        ),
        (case(must_not_hts=["64"]), answer(), "forbidden_code", f"{RIGHT} is under the forbidden code 64"),
        (
            case(no_savings_expected=True),
            answer(lever_proof=levers(1), dossier_what_if_candidates=[{}, {}]),
            "no_savings_violation",
            "1 savings lever; 2 what-if options",
        ),
        (case(expected_duty_total_rate_pct=5), answer(), "duty_total_rate", "20 %, expected 5 %"),
        (
            case(expected_duty_delta_direction="flat"),
            answer(),
            "duty_delta_direction",
            "not computable, expected flat",
        ),
        (
            case(lever_found_expected=False),
            answer(lever_proof=levers(1, 1)),
            "unexpected_lever",
            "2 savings levers, expected none",
        ),
        (case(lever_count_min=2), answer(), "lever_count", "0 savings levers, expected at least 2"),
        (
            case(min_lever_steps=2),
            answer(lever_proof=levers(1)),
            "lever_steps",
            "1 step in the first lever, expected at least 2",
        ),
        (case(), refusal("ambiguous"), "unexpected_refusal", "refusal (ambiguous), expected an answer"),
        (case(), refusal(None), "unexpected_refusal", "refusal (no category), expected an answer"),
        (case(expected_accept=False), answer(), "unexpected_acceptance", f"answer ({RIGHT}), expected a refusal"),
        (case(expected_accept=False), answer(None), "unexpected_acceptance", "answer (no code), expected a refusal"),
        (case(expected_accept=False), refusal("ambiguous"), "refusal", "ambiguous"),
        (
            case(expected_accept=False, expected_refusal_category="ambiguous"),
            refusal(None),
            "refusal_category_mismatch",
            "no category, expected ambiguous",
        ),
    ],
)
def test_a_term_says_why(given_case: Json, result: Json, name: str, detail: str) -> None:
    assert term(score_of(given_case, result), name).detail == detail


@pytest.mark.parametrize(
    ("code", "dossier", "worth", "clamp"),
    [(RIGHT, {}, 1.0, -0.05), (ELSEWHERE, {"dossier_gri_trace": {"sequence_ok": False}}, 0.0, 0.1)],
)
def test_the_clamp_is_a_term(code: str, dossier: Json, worth: float, clamp: float) -> None:
    found = score_of(case(), answer(code, **dossier))
    assert found.score == worth
    assert found.terms[-1] == Term(name="clamp", effect="clamp", value=clamp, detail="to 0..1")


def test_a_breakdown_is_an_error_without_a_number() -> None:
    down = TariffOutcome(breakdown=Breakdown(kind="timeout", message="after 5 s"))
    for given_case in (case(), case("negative", expected_accept=False)):
        found = score(TariffCase.model_validate(given_case), down, rules())
        assert (found.score, found.verdict, found.terms) == (None, "error", ())
        assert "timeout: after 5 s" in found.message
        assert not found.passed


CODES = st.sampled_from([RIGHT, SAME_LINE, SAME_SUBHEADING, SAME_HEADING, SAME_CHAPTER, ELSEWHERE, "64", "6404.11"])
RATES = st.none() | st.sampled_from([0.0, 5.0, 20.0, 20.01])
LISTS = st.lists(CODES, max_size=2)
FLAGS = st.none() | st.booleans()
EXPECTED = st.fixed_dictionaries(
    {
        "preferred_hts": LISTS,
        "allowed_hts": LISTS,
        "must_not_hts": LISTS,
        "expected_accept": st.booleans(),
        "expected_refusal_category": st.none() | st.sampled_from(["ambiguous", "out_of_scope"]),
        "no_savings_expected": st.booleans(),
        "duty_delta_range": st.none() | st.just([-0.01, 0.01]),
        "expected_duty_total_rate_pct": RATES,
        "expected_duty_delta_direction": st.none() | st.sampled_from(["flat", "decrease"]),
        "lever_found_expected": FLAGS,
        "lever_count_min": st.none() | st.integers(0, 2),
        "lever_compliance_ok": FLAGS,
        "expected_best_is_multi_step": FLAGS,
        "min_lever_steps": st.none() | st.integers(0, 2),
    }
)
OUTCOMES = st.builds(
    TariffOutcome,
    accepted=st.booleans(),
    refusal_category=st.none() | st.sampled_from(["ambiguous", "missing_evidence"]),
    baseline_code=st.none() | CODES,
    optimized_code=st.none() | CODES,
    baseline_rate_pct=RATES,
    optimized_rate_pct=RATES,
    sequence_ok=FLAGS,
    citations_ok=FLAGS,
    evidence_ok=FLAGS,
    levers=st.integers(0, 2),
    lever_steps=st.none() | st.integers(1, 3),
    levers_compliant=FLAGS,
    what_ifs=st.integers(0, 1),
).map(lambda found: replace(found, refused=not found.accepted))
FRACTIONS = st.floats(0, 1)
PENALTIES = st.floats(-1, 0)
CONFIGS = st.fixed_dictionaries(
    {
        "scored_code": st.sampled_from(["final", "baseline"]),
        "scoring": st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(("preferred", "allowed", "chapter", "bonus", "wrong_refusal_category"), FRACTIONS),
                **dict.fromkeys(("gri_sequence", "duty_delta"), PENALTIES),
                "ladder": st.dictionaries(st.sampled_from("468"), FRACTIONS),
            },
        ),
    }
)


@given(EXPECTED, OUTCOMES, CONFIGS)
def test_a_score_is_what_its_terms_say(expected: Json, outcome: TariffOutcome, config: Json) -> None:
    found = score(TariffCase.model_validate(case(**expected)), outcome, rules(**config))
    worth = points(found)
    assert 0 <= worth <= 1
    if any(each.effect == "zero" for each in found.terms):
        assert worth == 0.0
        assert not any(each.effect == "clamp" for each in found.terms)
    else:
        assert worth == pytest.approx(sum(each.value for each in found.terms), abs=1e-8)
    assert found.passed == (worth >= found.threshold - 1e-9)
    for each in found.terms:
        assert -1 <= each.value <= 1
        assert each.effect in {"add", "clamp"} or each.value == 0
    assert found.terms[0].effect != "note"
    assert found.match_depth is None or found.match_depth in {0, 2, 4, 6, 8, 10}


@given(EXPECTED, OUTCOMES, CONFIGS, FRACTIONS)
def test_no_bonus_lifts_a_hard_fail(expected: Json, outcome: TariffOutcome, config: Json, bonus: float) -> None:
    checked = TariffCase.model_validate(case(**expected))
    failed = score(checked, outcome, rules(**config))
    config = {**config, "scoring": {**config["scoring"], "bonus": bonus}}
    if any(each.effect == "zero" for each in failed.terms):
        assert score(checked, replace(outcome, evidence_ok=True), rules(**config)).score == 0.0


@given(EXPECTED, OUTCOMES)
def test_a_better_code_never_scores_less(expected: Json, outcome: TariffOutcome) -> None:
    expected |= {"preferred_hts": [RIGHT], "allowed_hts": [SAME_HEADING], "must_not_hts": []}
    checked = TariffCase.model_validate(case(**expected))
    found = [
        points(score(checked, replace(outcome, baseline_code=code, optimized_code=None), rules()))
        for code in (RIGHT, SAME_HEADING, SAME_CHAPTER, ELSEWHERE)
    ]
    assert all(better >= worse for better, worse in itertools.pairwise(found))


@given(EXPECTED, OUTCOMES, st.sampled_from(["{}", "HTS {}", " {} "]))
def test_spelling_changes_nothing_but_the_details(expected: Json, outcome: TariffOutcome, form: str) -> None:
    def spelled(code: str | None) -> str | None:
        return code and form.format(code.replace(".", "-"))

    respelled = replace(
        outcome, baseline_code=spelled(outcome.baseline_code), optimized_code=spelled(outcome.optimized_code)
    )
    checked = TariffCase.model_validate(case(**expected))
    left, right = score(checked, outcome, rules()), score(checked, respelled, rules())
    assert (left.score, left.match_level, left.match_depth) == (right.score, right.match_level, right.match_depth)
    assert scoring_terms(left) == scoring_terms(right)


@given(st.sampled_from([6, 8]), st.text("0123456789", min_size=10, max_size=10), st.sampled_from([2, 4, 5, 7, 9]))
def test_a_prefix_of_six_or_eight_digits_is_a_wanted_code(wanted: int, code: str, unwanted: int) -> None:
    assert score_of(case(preferred_hts=[code[:wanted]]), answer(code)).match_level == "preferred"
    assert score_of(case(preferred_hts=[code[:unwanted]]), answer(code)).match_level == "chapter"
    assert score_of(case(preferred_hts=[code]), answer(code[:wanted])).match_level == "chapter"


def test_the_same_result_read_twice_scores_the_same() -> None:
    assert score_of(case(), answer()) == score_of(case(), answer())
    assert read(answer()) == read(answer())
