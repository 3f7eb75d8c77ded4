"""For every branch of the tariff scorer: a right answer that passes, and a wrong one that fails with its score."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pytest_packbench.packs.tariff import scoring
from tests.unit.tariff_cases import RIGHT, Json, answer, case, classification, levers, refusal, score_of

NO_TRACE: Json = {"dossier_gri_trace": None}
OUT_OF_ORDER: Json = {"dossier_gri_trace": {"sequence_ok": False}}
CHEAPER = classification("6402.99.3165", 6.0)
REFUSE: Json = {"expected_accept": False}


@dataclass(frozen=True)
class Control:
    """Expectations of a case, a right and a wrong answer, and the score of the wrong one with the term that causes it."""

    branch: str
    expected: Json
    right: Json
    wrong: Json
    score: float
    term: str
    config: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return self.branch


def with_delta_range(low: float, high: float) -> Json:
    """Expectations with a range of the duty delta and a threshold that no penalty passes."""
    return {"duty_delta_range": [low, high], "threshold": 0.96}


CONTROLS = (
    Control("allowed", {"allowed_hts": ["6404.19"]}, answer(), answer("6404.19.9030"), 0.75, "allowed_match"),
    Control("chapter", {}, answer(), answer("6402.99.3165"), 0.35, "chapter_match"),
    Control(
        "chapter, no gate ran",
        {},
        answer(),
        answer("6402.99.3165", citation_gate_result=None, missing_evidence_gate_result=None),
        0.3,
        "chapter_match",
    ),
    Control(
        "chapter, a gate failed",
        {},
        answer(),
        answer("6402.99.3165", missing_evidence_gate_result={"ok": False}),
        0.3,
        "process_bonus",
    ),
    Control("another chapter", {}, answer(), answer("8544.42.9090"), 0.0, "no_match"),
    Control("no code", {}, answer(), answer(None), 0.0, "no_match"),
    Control(
        "suffix", {}, answer(), answer("6404.11.9050"), 0.75, "ladder_8_match", {"scoring": {"ladder": {"8": 0.7}}}
    ),
    Control(
        "subheading", {}, answer(), answer("6404.11.2030"), 0.55, "ladder_6_match", {"scoring": {"ladder": {"6": 0.5}}}
    ),
    Control(
        "heading", {}, answer(), answer("6404.19.9030"), 0.45, "ladder_4_match", {"scoring": {"ladder": {"4": 0.4}}}
    ),
    Control("prefix of the expected code", {}, answer(), answer("6404.11"), 0.35, "chapter_match"),
    Control(
        "beside the expected prefix",
        {"preferred_hts": ["6404.11"]},
        answer(),
        answer("6404.19.9030"),
        0.35,
        "chapter_match",
    ),
    Control(
        "baseline scored",
        {},
        answer(),
        answer("6402.99.3165", dossier_optimized=classification(RIGHT)),
        0.35,
        "chapter_match",
        {"scored_code": "baseline"},
    ),
    Control(
        "optimised scored",
        {},
        answer(dossier_optimized=classification(RIGHT)),
        answer(dossier_optimized=CHEAPER),
        0.35,
        "chapter_match",
    ),
    Control("order of rules", {"threshold": 0.96}, answer(**NO_TRACE), answer(**OUT_OF_ORDER), 0.95, "gri_sequence"),
    Control(
        "delta too low",
        with_delta_range(-15, 1),
        answer(dossier_optimized=classification(rate=5.0)),
        answer(dossier_optimized=classification(rate=4.9)),
        0.95,
        "duty_delta",
    ),
    Control(
        "delta too high",
        with_delta_range(-15, 1),
        answer(dossier_optimized=classification(rate=21.0)),
        answer(dossier_optimized=classification(rate=21.1)),
        0.95,
        "duty_delta",
    ),
    Control(
        "penalties together",
        with_delta_range(0, 0),
        answer(),
        answer(dossier_optimized=classification(rate=1.0), **OUT_OF_ORDER),
        0.85,
        "gri_sequence",
    ),
    Control("less than nothing", {}, answer(), answer("8544.42.9090", **OUT_OF_ORDER), 0.0, "clamp"),
    Control(
        "forbidden",
        {"preferred_hts": [RIGHT], "must_not_hts": ["6402.99.3165"]},
        answer(),
        answer("6402.99.3165"),
        0.0,
        "forbidden_code",
    ),
    Control(
        "forbidden as a prefix", {"must_not_hts": ["6402"]}, answer(), answer("6402.99.3165"), 0.0, "forbidden_code"
    ),
    Control(
        "forbidden and preferred",
        {"preferred_hts": ["64"], "must_not_hts": ["6402"]},
        answer("64"),
        answer("6402.99.3165"),
        0.0,
        "forbidden_code",
    ),
    Control(
        "forbidden in another spelling",
        {"must_not_hts": ["6402.99.3165"]},
        answer(),
        answer("HTS 6402993165"),
        0.0,
        "forbidden_code",
    ),
    Control(
        "forbidden after a change",
        {"must_not_hts": ["6402"]},
        answer(),
        answer(dossier_optimized=CHEAPER),
        0.0,
        "forbidden_code",
    ),
    Control(
        "savings: lever",
        {"no_savings_expected": True},
        answer(),
        answer(lever_proof=levers(1)),
        0.0,
        "no_savings_violation",
    ),
    Control(
        "savings: what-if",
        {"no_savings_expected": True},
        answer(),
        answer(dossier_what_if_candidates=[{}]),
        0.0,
        "no_savings_violation",
    ),
    Control(
        "savings: rate",
        {"no_savings_expected": True},
        answer(dossier_optimized=classification()),
        answer(dossier_optimized=classification(rate=19.5)),
        0.0,
        "no_savings_violation",
    ),
    Control(
        "savings: amount",
        {"no_savings_expected": True},
        answer(dossier_savings_estimate={"per_unit": 0}),
        answer(dossier_savings_estimate={"per_unit": 0.1}),
        0.0,
        "no_savings_violation",
    ),
    Control(
        "savings: mutation",
        {"no_savings_expected": True},
        answer(dossier_mutations=[{"expected_duty_rate_pct": 20.0}]),
        answer(dossier_mutations=[{"expected_duty_rate_pct": 19.0}]),
        0.0,
        "no_savings_violation",
    ),
    Control("citations", {}, answer(), answer(citation_gate_result={"ok": False}), 0.0, "citations_invalid"),
    Control(
        "total rate",
        {"expected_duty_total_rate_pct": 20.0},
        answer(),
        answer(dossier_baseline=classification(rate=20.0005)),
        0.0,
        "duty_total_rate",
    ),
    Control(
        "total rate missing",
        {"expected_duty_total_rate_pct": 20.0},
        answer(),
        answer(dossier_baseline=classification(rate=None)),
        0.0,
        "duty_total_rate",
    ),
    Control(
        "total rate of 0",
        {"expected_duty_total_rate_pct": 0.0},
        answer(dossier_optimized=classification(rate=0.0)),
        answer(),
        0.0,
        "duty_total_rate",
    ),
    Control(
        "direction",
        {"expected_duty_delta_direction": "decrease"},
        answer(dossier_optimized=classification(rate=5.0)),
        answer(dossier_optimized=classification(rate=25.0)),
        0.0,
        "duty_delta_direction",
    ),
    Control(
        "direction unknown",
        {"expected_duty_delta_direction": "flat"},
        answer(dossier_optimized=classification()),
        answer(),
        0.0,
        "duty_delta_direction",
    ),
    Control(
        "lever missing", {"lever_found_expected": True}, answer(lever_proof=levers(1)), answer(), 0.0, "lever_missing"
    ),
    Control(
        "unexpected lever",
        {"lever_found_expected": False},
        answer(),
        answer(lever_proof=levers(1)),
        0.0,
        "unexpected_lever",
    ),
    Control(
        "levers too few",
        {"lever_count_min": 2},
        answer(lever_proof=levers(1, 1)),
        answer(lever_proof=levers(1)),
        0.0,
        "lever_count",
    ),
    Control(
        "lever implausible",
        {"lever_compliance_ok": True},
        answer(lever_proof=levers(1)),
        answer(lever_proof=levers(1, ok=False)),
        0.0,
        "lever_compliance",
    ),
    Control(
        "lever of one step",
        {"expected_best_is_multi_step": True},
        answer(lever_proof=levers(2)),
        answer(lever_proof=levers(1, 2)),
        0.0,
        "lever_multi_step",
    ),
    Control(
        "lever of few steps",
        {"min_lever_steps": 3},
        answer(lever_proof=levers(3)),
        answer(lever_proof=levers(2, 3)),
        0.0,
        "lever_steps",
    ),
    Control("unexpected refusal", {}, answer(), refusal(), 0.0, "unexpected_refusal"),
    Control("unexpected acceptance", REFUSE, refusal(), answer(), 0.0, "unexpected_acceptance"),
    Control(
        "wrong category",
        {**REFUSE, "expected_refusal_category": "out_of_scope"},
        refusal("out_of_scope"),
        refusal("ambiguous"),
        0.5,
        "refusal_category_mismatch",
    ),
    Control(
        "no category",
        {**REFUSE, "expected_refusal_category": "out_of_scope"},
        refusal("out_of_scope"),
        refusal(None),
        0.5,
        "refusal_category_mismatch",
    ),
)


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_the_right_answer_passes(control: Control) -> None:
    score = score_of(case(**control.expected), control.right, **control.config)
    assert score.passed
    assert score.score == 1.0


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_the_wrong_answer_fails_with_its_score(control: Control) -> None:
    score = score_of(case(**control.expected), control.wrong, **control.config)
    assert score.verdict == "failed"
    assert score.score == control.score
    assert control.term in [term.name for term in score.terms]


def test_every_hard_fail_has_a_control() -> None:
    zeroed: set[str] = set()
    for control in CONTROLS:
        score = score_of(case(**control.expected), control.wrong, **control.config)
        zeroed |= {term.name for term in score.terms if term.effect == "zero"}
    assert zeroed >= scoring.UNSAFE_TERMS
    assert zeroed == {control.term for control in CONTROLS if control.score == 0.0} - {"no_match", "clamp"}
