"""Every gate: what it passes, what it stops and what it has nothing to say about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from pytest_packbench.packs.tariff.checks import CHECKS, CRITICAL, CheckInput, CheckResult, check_form, run_checks
from pytest_packbench.packs.tariff.dossier import Level, Proposal, Rule
from tests.unit.tariff_answers import (
    NORMAL_PATH,
    Json,
    answer,
    check_input,
    citation,
    classification,
    critique_answer,
    duty,
    evidence,
    optimized,
    refusal,
    refusal_answer,
    step,
    trace,
    what_if,
)

Path = tuple[tuple[str, str, str, str], ...]
BY_NAME = {gate.name: gate for gate in CHECKS}


def run_check(name: str, plain: Json, *documents: Json, critique: Json | None = None) -> CheckResult:
    return BY_NAME[name](check_input(plain, *documents, critique=critique))


def assert_fails(result: CheckResult, *fragments: str) -> None:
    """The gate fails with exactly one violation for each fragment, in order, and the violation says it."""
    assert result.decision == "fail"
    assert len(result.lines) == len(fragments), result.lines
    for line, fragment in zip(result.lines, fragments, strict=True):
        assert fragment in line


def test_the_list_is_in_order_and_only_composition_is_not_critical() -> None:
    assert [(gate.rule, gate.name) for gate in CHECKS] == list(
        enumerate(
            (
                "completeness",
                "code_form",
                "gri_sequence",
                "essential_character",
                "duty_arithmetic",
                "citations",
                "missing_evidence",
                "lawful_what_ifs",
                "critic",
                "refusal",
                "composition",
            ),
            1,
        )
    )
    assert {"form", *BY_NAME} - CRITICAL == {"composition"}


def test_a_sound_classification_passes_all_that_apply() -> None:
    assert {result.name: result.decision for result in run_checks(check_input(answer()))} == {
        "completeness": "pass",
        "code_form": "pass",
        "gri_sequence": "pass",
        "essential_character": "skip",
        "duty_arithmetic": "pass",
        "citations": "skip",
        "missing_evidence": "pass",
        "lawful_what_ifs": "skip",
        "critic": "pass",
        "refusal": "skip",
        "composition": "skip",
    }


def test_a_sound_refusal_passes_all_that_apply() -> None:
    results = run_checks(check_input(refusal_answer(), evidence()))
    assert {result.name for result in results if result.decision == "pass"} == {"completeness", "critic", "refusal"}
    assert not [result for result in results if result.decision == "fail"]


def test_form_fails_with_what_was_wrong() -> None:
    assert check_form([]).decision == "pass"
    result = check_form(["/baseline: the key is missing"])
    assert (result.name, result.rule, result.decision) == ("form", 0, "fail")
    assert result.lines == ["/baseline: the key is missing"]


# gate 1


@pytest.mark.parametrize(
    ("plain", "fragment"),
    [
        (answer(baseline=None), "without a baseline"),
        (answer(gri_trace={"steps": []}), "without a GRI trace"),
        (answer(candidate_headings=[]), "without candidate headings"),
        (answer(refusal=refusal()), "both classifies and refuses"),
        (refusal_answer(refusal=None), "refuses without a refusal"),
        (refusal_answer(baseline=classification()), "but also has baseline"),
        (refusal_answer(optimized=optimized()), "but also has optimized"),
        (refusal_answer(what_if_candidates=[what_if()]), "but also has what_if_candidates"),
    ],
)
def test_completeness_stops(plain: Json, fragment: str) -> None:
    assert_fails(run_check("completeness", plain), fragment)


def test_a_refusal_may_show_how_far_the_rules_led() -> None:
    plain = refusal_answer(gri_trace=trace(("1", "heading", "0712 0910", "tied")), candidate_headings=["0712"])
    assert run_check("completeness", plain).decision == "pass"
    assert run_check("gri_sequence", plain).decision == "pass"


# gate 2


@pytest.mark.parametrize("code", ["0712.90.4020", "0712904020", "0712.90.40.20", "0712 90 4020", "7318.15.20"])
def test_code_form_takes_full_codes_however_dotted(code: str) -> None:
    assert run_check("code_form", answer(baseline=classification(code))).decision == "pass"


@pytest.mark.parametrize(
    "code", ["0712", "0712.90", "0712.90.402", "0712.90.402000", "HTS 0712.90.4020", "0712.90.40 (20 kg)", "none", " "]
)
def test_code_form_stops_a_baseline_that_is_no_full_code(code: str) -> None:
    assert_fails(run_check("code_form", answer(baseline=classification(code))), "baseline code")


@pytest.mark.parametrize(
    ("plain", "fragment"),
    [
        (answer(candidate_headings=["0712.90"]), "candidate heading"),
        (answer(optimized=optimized(hts_code="0712.90"), what_if_candidates=[what_if()]), "optimized code"),
        (answer(what_if_candidates=[what_if(expected_hts="0712")]), "does not have 6 or 8 or 10 digits"),
    ],
)
def test_code_form_stops_other_codes(plain: Json, fragment: str) -> None:
    assert_fails(run_check("code_form", plain), fragment)


@pytest.mark.parametrize("expected", ["0712.90", "0712.90.40", "0712.90.4040"])
def test_a_what_if_may_be_told_at_six_digits_or_more(expected: str) -> None:
    assert run_check("code_form", answer(what_if_candidates=[what_if(expected_hts=expected)])).decision == "pass"


@pytest.mark.parametrize(
    ("one", "fragments"),
    [
        (step("1", "heading", "0712.90 0910", "0910"), ['step 1: "0712.90" is not a heading']),
        (step("6", "subheading", "0712 0713.10", "0713.10"), ['"0712" is not a subheading of 6 digits']),
        (step("6", "line", "0712.90 0712.90.4020", "failed"), ['"0712.90", "0712.90.4020" is not a line']),
        (step("6", "suffix", "0712.90.40", "failed"), ["is not a suffix of 10 digits"]),
        (step("1", "heading", "0712 0910", "0713"), ['chooses "0713", which is not among its candidates']),
        (step("1", "heading", "0712 0910", "0712", chosen=None), ["is decided without a chosen code"]),
        (step("1", "heading", "0712 0910", "tied", chosen="0712"), ["is tied but chooses"]),
        (step("1", "heading", "0712", "failed", chosen="0712"), ["is failed but chooses"]),
        (step("1", "heading", "0712 0910", "07"), ['"07" is not a heading', "not among its candidates"]),
    ],
)
def test_code_form_stops_a_step_whose_codes_are_not_of_its_level(one: Json, fragments: list[str]) -> None:
    assert_fails(run_check("code_form", answer(gri_trace={"steps": [one]})), *fragments)


def test_code_form_compares_digits_not_dots() -> None:
    dotless = trace(("6", "line", "07129040 0712.90.85", "0712.90.40"))
    assert run_check("code_form", answer(gri_trace=dotless)).decision == "pass"


def test_code_form_skips_a_refusal_without_codes() -> None:
    assert run_check("code_form", refusal_answer()).decision == "skip"


# gate 3

TIED = ("1", "heading", "0712 0910", "tied")
TIED_3A = ("3a", "heading", "0712 0910", "tied")
TIED_3B = ("3b", "heading", "0712 0910", "tied")
BELOW = NORMAL_PATH[1:]

CLEAN: dict[str, Path] = {
    "normal": NORMAL_PATH,
    "heading only": NORMAL_PATH[:1],
    "levels left out at the end": NORMAL_PATH[:2],
    "subheading skipped": (NORMAL_PATH[0], *NORMAL_PATH[2:]),
    "one line, then its suffixes": (NORMAL_PATH[0], ("6", "line", "0712.90.40", "0712.90.40"), NORMAL_PATH[3]),
    "incomplete article": (("1", "heading", "0712 0910", "failed"), ("2a", "heading", "0712", "0712"), *BELOW),
    "one heading tried and failed": (("1", "heading", "0712", "failed"), ("2a", "heading", "0712", "0712")),
    "mixture by 2b and 3a": (TIED, ("2b", "heading", "0712 0910", "tied"), ("3a", "heading", "0712 0910", "0712")),
    "3a": (TIED, ("3a", "heading", "0712 0910", "0712"), *BELOW),
    "3b": (TIED, TIED_3A, ("3b", "heading", "0712 0910", "0712"), *BELOW),
    "3b after a 3a that failed": (
        TIED,
        ("3a", "heading", "0712 0910", "failed"),
        ("3b", "heading", "0712 0910", "0712"),
    ),
    "3c takes the last": (
        ("1", "heading", "0703 0712", "tied"),
        ("3a", "heading", "0703 0712", "tied"),
        ("3b", "heading", "0703 0712", "failed"),
        ("3c", "heading", "0703 0712", "0712"),
    ),
    "rule 4": (("1", "heading", "0703 0910", "failed"), ("4", "heading", "0712", "0712"), *BELOW),
    "several rule 1 steps": (("1", "heading", "0703", "failed"), TIED, ("3a", "heading", "0712 0910", "0712")),
    "rule 3 below the heading, opened by rule 6": (
        NORMAL_PATH[0],
        ("6", "subheading", "0712.20 0712.90", "tied"),
        ("3a", "subheading", "0712.20 0712.90", "0712.90"),
        *NORMAL_PATH[2:],
    ),
    "packing first": (("5b", "heading", "4819 0712", "0712"), *NORMAL_PATH),
    "packing last": (*NORMAL_PATH, ("5a", "heading", "4202", "failed")),
    "packing between, at another level": (NORMAL_PATH[0], ("5b", "suffix", "0712.90.4020", "0712.90.4020"), *BELOW),
    "US rule first": (("us_1a", "heading", "0712 0910", "tied"), *NORMAL_PATH),
    "US rule decides": (TIED, ("us_1a", "heading", "0712 0910", "0712"), *BELOW),
    "US rule last": (*NORMAL_PATH, ("us_1c", "heading", "0712 0910", "0712")),
    "US rule below the heading": (NORMAL_PATH[0], ("us_1b", "subheading", "0712.90", "0712.90")),
}


@pytest.mark.parametrize("path", CLEAN.values(), ids=CLEAN)
def test_lawful_orders_are_clean(path: Path) -> None:
    result = run_check("gri_sequence", answer(gri_trace=trace(*path)))
    assert (result.decision, result.lines) == ("pass", [])


# only what the violation needs, so that none hides another
BROKEN: dict[str, tuple[Path, list[tuple[str, int | None]]]] = {
    "S1 rule 2a first": (
        (("2a", "heading", "0712", "0712"), ("1", "heading", "0712", "0712")),
        [("S1", 1)],
    ),
    "S1 rule 3a although rule 1 decided": (
        (("1", "heading", "0712", "0712"), ("3a", "heading", "0712 0910", "0712")),
        [("S1", 2)],
    ),
    "S1 the later rule 1 step counts": (
        (TIED, ("1", "heading", "0712 0910", "0712"), ("3a", "heading", "0712 0910", "0712")),
        [("S1", 3)],
    ),
    "S1 a tie of one": ((("1", "heading", "0712", "tied"), ("2a", "heading", "0712", "0712")), [("S1", 2)]),
    "S1 a tie of one written twice": (
        (("1", "heading", "0712 07.12", "tied"), ("2a", "heading", "0712", "0712")),
        [("S1", 2)],
    ),
    "S1 rule 4 first": ((("4", "heading", "0712", "0712"),), [("S1", 1)]),
    "S1 rule 3a below the heading without rule 6": (
        (TIED, ("3a", "heading", "0712 0910", "0712"), ("3a", "subheading", "0712.20 0712.90", "0712.90")),
        [("S1", 3)],
    ),
    "S2 3b without 3a": ((TIED, ("3b", "heading", "0712 0910", "0712")), [("S2", 2)]),
    "S2 3b although 3a decided": (
        (TIED, ("3a", "heading", "0712 0910", "0712"), ("3b", "heading", "0712 0910", "0712")),
        [("S2", 3)],
    ),
    "S2 3c without 3b": (
        (("1", "heading", "0703 0712", "tied"), TIED_3A, ("3c", "heading", "0703 0712", "0712")),
        [("S2", 3)],
    ),
    "S2 3c before 3b": (
        (
            ("1", "heading", "0703 0712", "tied"),
            ("3a", "heading", "0703 0712", "tied"),
            ("3c", "heading", "0703 0712", "0712"),
            ("3b", "heading", "0703 0712", "tied"),
        ),
        [("S2", 3)],
    ),
    "S2 3a of another level": (
        (
            TIED,
            TIED_3A,
            ("us_1a", "heading", "0712 0910", "0712"),
            ("6", "subheading", "0712.20 0712.90", "tied"),
            ("3b", "subheading", "0712.20 0712.90", "0712.90"),
        ),
        [("S2", 5)],
    ),
    "S2 3c takes another than the last": (
        (TIED, TIED_3A, TIED_3B, ("3c", "heading", "0712 0910", "0712")),
        [("S2", 4)],
    ),
    "S3 rule 4 after a heading was found": (
        (TIED, ("3a", "heading", "0712 0910", "0712"), ("4", "heading", "0712", "0712")),
        [("S3", 3)],
    ),
    "S3 rule 4 before the heading is found": (
        (
            ("1", "heading", "0712 0910", "failed"),
            ("4", "heading", "0712", "0712"),
            ("2a", "heading", "0712", "0712"),
        ),
        [("S3", 2)],
    ),
    "S3 rule 4 ends a tie": ((TIED, ("4", "heading", "0712", "0712")), [("S3", 2)]),
    "S4 rule 6 first": (
        (("6", "subheading", "0712.20 0712.90", "0712.90"), NORMAL_PATH[0]),
        [("S4", 1), ("S4", 2)],
    ),
    "S4 rule 6 while the heading is tied": (
        (TIED, ("6", "subheading", "0712.90", "0712.90"), ("us_1a", "heading", "0712 0910", "0712")),
        [("S4", 2)],
    ),
    "S4 rule 1 on a line before the heading": (
        (("1", "line", "0712.90.40", "0712.90.40"), ("us_1a", "heading", "0712 0910", "0712")),
        [("S4", 1)],
    ),
    "S4 rule 6 on headings": (
        (("1", "heading", "0712", "0712"), ("6", "heading", "0712 0910", "0712")),
        [("S4", 2)],
    ),
    "S4 subheadings of another heading": (
        (NORMAL_PATH[0], ("6", "subheading", "0712.90 0910.99", "0712.90")),
        [("S4", 2)],
    ),
    "S4 lines of another subheading": (
        (*NORMAL_PATH[:2], ("6", "line", "0712.90.40 0712.20.20", "0712.90.40")),
        [("S4", 3)],
    ),
    "S4 suffixes of another line": (
        (*NORMAL_PATH[:3], ("6", "suffix", "0712.90.4020 0712.90.8580", "0712.90.4020")),
        [("S4", 4)],
    ),
    "S4 a code of more levels": (
        (NORMAL_PATH[0], ("6", "subheading", "0712.20 0712.90.40", "failed")),
        [("S4", 2)],
    ),
    "S4 line while the subheading is open": (
        (NORMAL_PATH[0], ("6", "subheading", "0712.20 0712.90", "tied"), NORMAL_PATH[2]),
        [("S4", 3)],
    ),
    "S4 subheading after the line": (
        (NORMAL_PATH[0], NORMAL_PATH[2], NORMAL_PATH[1]),
        [("S4", 3)],
    ),
    "S4 heading after the subheading": (
        (TIED, ("us_1a", "heading", "0712 0910", "0712"), NORMAL_PATH[1], ("3a", "heading", "0712 0910", "0712")),
        [("S4", 4)],
    ),
    "S5 rule 3a alone": ((TIED, ("3a", "heading", "0712", "0712")), [("S5", 2)]),
    "S5 rule 3b on one heading twice": ((TIED, TIED_3A, ("3b", "heading", "0712 07.12", "0712")), [("S5", 3)]),
    "S5 rule 3c on two codes of one heading": (
        (TIED, TIED_3A, TIED_3B, ("3c", "heading", "0712.20 0712.90", "0712.90")),
        [("S5", 4)],
    ),
    "S7 another heading": (
        (("1", "heading", "0712 0910", "0910"),),
        [("S7", 1)],
    ),
    "S7 another suffix": (
        (*NORMAL_PATH[:3], ("6", "suffix", "0712.90.4020 0712.90.4040", "0712.90.4040")),
        [("S7", 4)],
    ),
    "S7 the first stray step says it": (
        (("1", "heading", "0712 0910", "0910"), ("6", "subheading", "0910.99", "0910.99")),
        [("S7", 1)],
    ),
    "S7 no heading": ((TIED,), [("S7", None)]),
    "S7 packing decides no heading": ((TIED, ("5b", "heading", "0712", "0712")), [("S7", None)]),
    "S7 packing is held to the code": ((*NORMAL_PATH, ("5a", "heading", "4202", "4202")), [("S7", 5)]),
    "S8 suffix after the subheading": ((*NORMAL_PATH[:2], NORMAL_PATH[3]), [("S8", 3)]),
    "S8 suffix before the line": ((*NORMAL_PATH[:2], NORMAL_PATH[3], NORMAL_PATH[2]), [("S8", 3)]),
    "S8 suffix while the line is open": (
        (*NORMAL_PATH[:2], ("6", "line", "0712.90.40 0712.90.85", "tied"), NORMAL_PATH[3]),
        [("S8", 4)],
    ),
    "S8 before a heading": (
        (("6", "suffix", "0712.90.4020", "0712.90.4020"), ("us_1a", "heading", "0712 0910", "0712")),
        [("S4", 1), ("S8", 1)],
    ),
}


@pytest.mark.parametrize(("path", "codes"), BROKEN.values(), ids=BROKEN)
def test_each_break_of_the_order_is_named(path: Path, codes: list[tuple[str, int | None]]) -> None:
    result = run_check("gri_sequence", answer(gri_trace=trace(*path)))
    assert result.decision == "fail"
    assert [(found.code, found.step) for found in result.violations] == codes, result.lines


SETS: list[tuple[str, list[str]]] = [
    ("6109 6203", ["S6"]),
    ("6101 6114", ["S6"]),
    ("6201 6211", ["S6"]),
    ("6203 6211 9503", ["S6"]),
    ("6109 9503", []),
    ("6301 6302", []),
    ("6115 6212", []),
    ("6109 6115", []),
    ("6203 6212", []),
    ("6109 6302", []),
]


@pytest.mark.parametrize(("headings", "codes"), SETS)
def test_textile_garments_are_no_set(headings: str, codes: list[str]) -> None:
    chosen = headings[:4]
    as_set = step("3b", "heading", headings, chosen, as_set=True)
    steps = [step("1", "heading", headings, "tied"), step("3a", "heading", headings, "tied"), as_set]
    plain = answer(gri_trace={"steps": steps}, baseline=classification(f"{chosen}.10.0000"))
    assert [found.code for found in run_check("gri_sequence", plain).violations] == codes
    steps[2] = {**as_set, "as_set": False}
    assert run_check("gri_sequence", {**plain, "gri_trace": {"steps": steps}}).decision == "pass"


def test_codes_are_compared_by_their_digits() -> None:
    loose = trace(
        ("1", "heading", "07.12 0910", "07.12"),
        ("6", "subheading", "071220 0712 90", "071290"),
        ("6", "line", "07129040", "0712.90.40"),
        ("6", "suffix", "0712.90.40.20", "0712904020"),
    )
    loose["steps"][1]["candidates"] = ["071220", "0712 90"]
    assert run_check("gri_sequence", answer(gri_trace=loose)).decision == "pass"


def test_a_code_chosen_without_a_decision_binds_nobody() -> None:
    steps = [*trace(*NORMAL_PATH)["steps"], step("us_1a", "heading", "0910", "tied", chosen="0910")]
    assert run_check("gri_sequence", answer(gri_trace={"steps": steps})).decision == "pass"


def test_a_violation_says_where_and_what_would_mend_it() -> None:
    path = (NORMAL_PATH[0], ("6", "subheading", "0712.90 0910.99", "0712.90"))
    result = run_check("gri_sequence", answer(gri_trace=trace(*path)))
    assert result.lines == ["S4, step 2: 0910.99 is not under 0712, chosen in step 1; compare only codes under it"]


def test_without_a_trace_nothing_is_judged() -> None:
    assert run_check("gri_sequence", refusal_answer()).decision == "skip"
    assert run_check("gri_sequence", answer(gri_trace={"steps": []})).decision == "skip"


# gate 4

BY_3B = trace(TIED, TIED_3A, ("3b", "heading", "0712 0910", "0712"), *BELOW)
PARTS = [{"component": "Garlic powder", "material": "garlic"}, {"component": "jar", "material": "glass"}]
CHARACTER = {"component": "garlic  powder", "factors": ["weight"], "rationale": "it is what is bought"}


def with_composition(**changes: Any) -> Json:
    return answer(gri_trace=BY_3B, composition_table=PARTS, essential_character=CHARACTER, **changes)


def test_essential_character_passes_a_component_of_the_table() -> None:
    assert run_check("essential_character", with_composition()).decision == "pass"


def test_essential_character_skips_where_3b_does_not_decide() -> None:
    tied = trace(TIED, TIED_3A, TIED_3B, ("3c", "heading", "0712 0910", "0910"))
    assert (
        run_check(
            "essential_character", {**with_composition(), "gri_trace": tied, "essential_character": None}
        ).decision
        == "skip"
    )


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"essential_character": None}, "essential_character is missing"),
        ({"essential_character": {**CHARACTER, "component": "lid"}}, 'name one of "Garlic powder", "jar"'),
        ({"composition_table": None}, "add the composition table"),
        ({"composition_table": []}, "add the composition table"),
        ({"essential_character": {**CHARACTER, "factors": []}}, "has no factor"),
        ({"essential_character": {**CHARACTER, "factors": [" "]}}, "has no factor"),
    ],
)
def test_essential_character_stops(changes: Json, fragment: str) -> None:
    assert_fails(run_check("essential_character", {**with_composition(), **changes}), fragment)


# gate 5


@pytest.mark.parametrize(
    "changes",
    [
        {"duty_basis": "free", "duty_rate_pct": 0, "duty_breakdown": duty(0)},
        {"duty_basis": "free", "duty_rate_pct": 7.5, "duty_breakdown": duty(0, 7.5)},
        {"duty_rate_pct": 27.5, "duty_breakdown": duty(2.5, 7.5, 17.5)},
        {"duty_rate_pct": 10.005, "duty_breakdown": duty(2.5, 7.5, total=10.0)},
        {"duty_breakdown": duty(29.8, total=29.805)},
        {"duty_basis": "specific", "duty_rate_pct": None, "duty_breakdown": duty(None)},
        {"duty_basis": "compound", "duty_rate_pct": None, "duty_breakdown": duty(None, 25.0)},
    ],
)
def test_duty_that_adds_up_passes(changes: Json) -> None:
    assert run_check("duty_arithmetic", answer(baseline=classification(**changes))).decision == "pass"


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        (
            {"duty_basis": "free", "duty_rate_pct": 2.5, "duty_breakdown": duty(2.5)},
            ["free, but the base rate is 2.5 %"],
        ),
        ({"duty_basis": "free", "duty_rate_pct": 5.0, "duty_breakdown": duty(0, 7.5)}, ["is not the total of 7.5 %"]),
        (
            {"duty_rate_pct": 5.0, "duty_breakdown": duty(2.5, 7.5, total=5.0)},
            ["add up to 10 %, not to the total of 5 %"],
        ),
        ({"duty_breakdown": duty(29.8, total=29.806)}, ["not to the total", "is not the total"]),
        ({"duty_rate_pct": None}, ["but a rate is null"]),
        ({"duty_breakdown": duty(None)}, ["but a rate is null"]),
        ({"duty_breakdown": {**duty(29.8), "total_rate_pct": None}}, ["but a rate is null"]),
        ({"duty_basis": "free", "duty_rate_pct": None}, ["but a rate is null"]),
        ({"duty_basis": "specific"}, ["set base_rate_pct, total_rate_pct, duty_rate_pct to null"]),
        ({"duty_basis": "compound", "duty_breakdown": duty(None)}, ["set duty_rate_pct to null"]),
    ],
)
def test_duty_that_does_not_add_up_is_stopped(changes: Json, fragments: list[str]) -> None:
    assert_fails(run_check("duty_arithmetic", answer(baseline=classification(**changes))), *fragments)


def with_what_ifs(*what_ifs: Json, **changes: Any) -> Json:
    return answer(what_if_candidates=list(what_ifs) or [what_if()], optimized=optimized(**changes))


def test_the_optimised_duty_keeps_its_promise() -> None:
    assert run_check("duty_arithmetic", with_what_ifs()).decision == "pass"
    assert run_check("duty_arithmetic", with_what_ifs(duty_rate_pct=20.005)).decision == "pass"
    assert run_check("duty_arithmetic", with_what_ifs(duty_rate_pct=None)).decision == "pass"
    assert_fails(run_check("duty_arithmetic", with_what_ifs(duty_rate_pct=20.1)), "is -9.7 percentage points")
    assert_fails(run_check("duty_arithmetic", with_what_ifs(what_if(estimated_duty_delta=-9.0))), "estimates -9;")


def test_only_the_named_what_if_has_to_agree() -> None:
    other = what_if("pickled", estimated_duty_delta=-1.0)
    assert run_check("duty_arithmetic", with_what_ifs(other, what_if())).decision == "pass"


def test_no_what_if_saves_more_than_the_duty() -> None:
    deep = what_if(estimated_duty_delta=-30.0)
    assert_fails(
        run_check("duty_arithmetic", answer(what_if_candidates=[deep])), "would save 30 of 29.8 percentage points"
    )
    for all_of_it in (-29.8, -29.803):
        free = what_if(estimated_duty_delta=all_of_it)
        assert run_check("duty_arithmetic", answer(what_if_candidates=[free])).decision == "pass"


def test_a_delta_against_a_specific_rate_is_not_computed() -> None:
    specific = classification(rate=None, duty_basis="specific")
    assert run_check("duty_arithmetic", {**with_what_ifs(), "baseline": specific}).decision == "pass"


def test_duty_skips_a_refusal() -> None:
    assert run_check("duty_arithmetic", refusal_answer()).decision == "skip"


# a busy machine is no failure
CALM = settings(deadline=None)
RATES = st.floats(0, 100).map(lambda rate: round(rate, 3))


@CALM
@for_all(base=RATES, layers=st.lists(RATES, max_size=5), slip=st.floats(0.006, 50), up=st.booleans())
def test_duty_sums_hold_and_slips_are_seen(base: float, layers: list[float], slip: float, *, up: bool) -> None:
    total = sum(layers, base)
    right = classification(duty_rate_pct=total, duty_breakdown=duty(base, *layers, total=total))
    assert run_check("duty_arithmetic", answer(baseline=right)).decision == "pass"
    wrong = total + slip if up else max(total - slip, 0)
    if abs(wrong - total) > 0.0051:
        slipped = classification(duty_rate_pct=wrong, duty_breakdown=duty(base, *layers, total=wrong))
        assert_fails(run_check("duty_arithmetic", answer(baseline=slipped)), "correct the sum")


# gate 6


def with_citations(*quotes: str, source: str = "lab_report") -> Json:
    return answer(citations=[citation(quote, source) for quote in quotes])


def test_a_quote_is_found_whatever_its_white_space() -> None:
    document = evidence("Dried cloves,\n  ground to\u00a080 mesh.")
    assert run_check("citations", with_citations("cloves, ground\tto 80 mesh"), document).decision == "pass"


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("dried cloves", "Dried cloves, ground."),
        ("cloves ground", "Dried cloves, ground."),
        ("60 % cotton", "Shell: 160 % cotton"),
        ("5 % elastane", "95.5 % elastane"),
        ("weighs 1", "weighs 1,200 g"),
        ("woven fabric", "non-woven fabric"),
        ("cotton", "a cottonseed oil"),
        ("water", "water-repellent"),
        ("\u2003 ", "any text"),
    ],
)
def test_a_quote_that_does_not_stand_there_is_stopped(quote: str, text: str) -> None:
    assert_fails(run_check("citations", with_citations(quote), evidence(text)), "copy")


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("cotton", "cottonseed oil and cotton."),
        ("(cotton)", "100%(cotton)shell"),
        ("1,200 g", "It weighs 1,200 g."),
        ("non-woven", "a non-woven fabric"),
        ("80 mesh.", "ground to 80 mesh."),
    ],
)
def test_a_quote_of_whole_words_is_found(quote: str, text: str) -> None:
    assert run_check("citations", with_citations(quote), evidence(text)).decision == "pass"


def test_a_quote_has_to_stand_in_the_source_it_names() -> None:
    documents = evidence("Ground to 80 mesh."), evidence("Whole cloves.", "invoice")
    assert run_check("citations", with_citations("Whole cloves", source="invoice"), *documents).decision == "pass"
    assert_fails(run_check("citations", with_citations("Whole cloves"), *documents), 'does not occur in "lab_report"')
    assert_fails(
        run_check("citations", with_citations("Whole cloves", source="memo"), *documents),
        'cite "lab_report", "invoice"',
    )


def test_two_documents_may_share_a_name() -> None:
    documents = evidence("Ground to 80 mesh."), evidence("Whole cloves.")
    assert run_check("citations", with_citations("Ground to 80 mesh", "Whole cloves"), *documents).decision == "pass"


def test_without_evidence_there_is_nothing_to_cite() -> None:
    assert run_check("citations", answer()).decision == "skip"
    assert_fails(run_check("citations", with_citations("Whole cloves")), "the request has no evidence")


def test_a_classification_cites_the_evidence_at_hand() -> None:
    assert_fails(run_check("citations", answer(), evidence()), 'quote the deciding words of "lab_report"')
    assert run_check("citations", refusal_answer(), evidence()).decision == "skip"


WORDS = st.lists(st.text("abcäß中٣", min_size=1, max_size=4), min_size=1, max_size=8)
SPACES = st.text(" \t\n\r\u00a0\u2028\u3000", min_size=1, max_size=3)


@CALM
@for_all(words=WORDS, data=st.data())
def test_any_run_of_words_is_found_whatever_the_white_space(words: list[str], data: st.DataObject) -> None:
    text = words[0] + "".join(data.draw(SPACES) + word for word in words[1:])
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    quote = words[first] + "".join(data.draw(SPACES) + word for word in words[first + 1 : last + 1])
    assert run_check("citations", with_citations(quote), evidence(text)).decision == "pass"
    assert_fails(run_check("citations", with_citations(f"{quote} x"), evidence(text)), "copy it word for word")


# gate 7


def with_reliance(source: str | None, **changes: Any) -> Json:
    return answer(relies_on=[{"document": "the laboratory's report", "source_id": source}], **changes)


def test_a_classification_rests_on_what_it_has() -> None:
    assert run_check("missing_evidence", with_reliance("lab_report"), evidence()).decision == "pass"
    assert_fails(run_check("missing_evidence", with_reliance(None), evidence()), 'relies on "the laboratory\'s report"')
    assert_fails(run_check("missing_evidence", with_reliance("lab_report")), "which is not in the request")


def test_a_refusal_for_missing_evidence_names_it() -> None:
    missing = refusal_answer(refusal=refusal("missing_evidence"))
    named = {**missing, "relies_on": [{"document": "drawing", "source_id": None}]}
    assert run_check("missing_evidence", named).decision == "pass"
    assert_fails(run_check("missing_evidence", missing), "names no document")
    at_hand = {**missing, "relies_on": [{"document": "report", "source_id": "lab_report"}]}
    assert_fails(run_check("missing_evidence", at_hand, evidence()), "names no document")


def test_another_refusal_needs_no_document() -> None:
    assert run_check("missing_evidence", refusal_answer()).decision == "skip"
    assert run_check("missing_evidence", refusal_answer(refusal=None)).decision == "skip"


# gate 8


def test_lawful_what_ifs_pass() -> None:
    assert run_check("lawful_what_ifs", with_what_ifs()).decision == "pass"
    five = [what_if(name) for name in "abcde"]
    assert run_check("lawful_what_ifs", answer(what_if_candidates=five)).decision == "pass"


@pytest.mark.parametrize(
    ("plain", "fragment"),
    [
        (answer(what_if_candidates=[what_if(name) for name in "abcdef"]), "has 6 what-ifs"),
        (answer(what_if_candidates=[what_if("a"), what_if("b"), what_if("a")]), 'duplicate what-if id "a"'),
        (answer(what_if_candidates=[what_if(kind="description")]), "changes only the description"),
        (answer(what_if_candidates=[what_if(kind="valuation")]), "changes only the valuation"),
        (answer(what_if_candidates=[what_if(steps=[])]), "has no step"),
        (answer(what_if_candidates=[what_if(steps=[" "])]), "has no step"),
        (answer(what_if_candidates=[what_if(required_evidence=[])]), "names no evidence"),
        (answer(what_if_candidates=[what_if(required_evidence=["\t"])]), "names no evidence"),
        (answer(optimized=optimized()), "not in what_if_candidates"),
        (with_what_ifs(what_if_id="other"), "not in what_if_candidates"),
        (with_what_ifs(hts_code="0712.90.4020"), "make them equal"),
        (with_what_ifs(what_if(expected_hts="0712.90")), "make them equal"),
    ],
)
def test_what_ifs_are_stopped(plain: Json, fragment: str) -> None:
    assert_fails(run_check("lawful_what_ifs", plain), fragment)


# gates 9, 10 and 11


def test_the_critics_conflicts_stop_and_its_remarks_do_not() -> None:
    remarks = critique_answer(missing=["mesh size"], unsupported=["origin"])
    assert run_check("critic", answer(), critique=remarks).decision == "pass"
    result = run_check("critic", answer(), critique=critique_answer("it is\nwhole", "it is fresh"))
    assert_fails(result, "it is whole", "it is fresh")


def test_without_a_critique_the_critic_has_no_say() -> None:
    alone = replace(check_input(answer()), critique=None)
    assert BY_NAME["critic"](alone).decision == "skip"


@pytest.mark.parametrize(
    ("declined", "fragments"),
    [
        (refusal(questions=[]), ["the insufficient_info refusal has no question"]),
        (refusal("ambiguous", questions=[]), ["the ambiguous refusal has no question"]),
        (refusal("missing_evidence", questions=[" "]), ["the missing_evidence refusal has no question"]),
        (refusal(reason=" "), ["has no reason"]),
        (refusal("out_of_scope", reason="\n", questions=[]), ["has no reason"]),
    ],
)
def test_a_refusal_that_helps_nobody_is_stopped(declined: Json, fragments: list[str]) -> None:
    assert_fails(run_check("refusal", refusal_answer(refusal=declined)), *fragments)


def test_refusals_that_help_pass() -> None:
    assert run_check("refusal", refusal_answer()).decision == "pass"
    assert run_check("refusal", refusal_answer(refusal=refusal("out_of_scope", questions=[]))).decision == "pass"
    assert run_check("refusal", answer(refusal=refusal(questions=[]))).decision == "skip"


def with_weights(*weights: float | None) -> Json:
    return answer(
        composition_table=[{"component": "part", "material": "glass", "weight_pct": weight} for weight in weights]
    )


@pytest.mark.parametrize("weights", [(100,), (60, 40), (33.3, 33.3, 33.3), (50, 51), (99,)])
def test_weights_that_make_the_whole_pass(weights: tuple[float, ...]) -> None:
    assert run_check("composition", with_weights(*weights)).decision == "pass"


@pytest.mark.parametrize("weights", [(98.9,), (60, 41.1), (0,), (50, 50, 50)])
def test_weights_that_do_not_are_noted(weights: tuple[float, ...]) -> None:
    assert_fails(run_check("composition", with_weights(*weights)), "the weights add up to")


@pytest.mark.parametrize("plain", [answer(), with_weights(), with_weights(60, None), with_weights(None)])
def test_unknown_weights_are_not_judged(plain: Json) -> None:
    assert run_check("composition", plain).decision == "skip"


# any proposal

TEXT = st.one_of(
    st.sampled_from(["0712", "0712.90", "0712.90.40", "0712.90.4020", "6109", "6203", "a", "lab_report"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)
TEXTS = st.lists(TEXT, max_size=3)
PERCENT = st.one_of(st.none(), st.floats(0, 1000))
RATIO = st.floats(0, 1)


def optional(strategy: st.SearchStrategy[Json]) -> st.SearchStrategy[Json | None]:
    return st.one_of(st.none(), strategy)


STEPS = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(get_args(Rule)),
        "level": st.sampled_from(get_args(Level)),
        "candidates": TEXTS,
        "outcome": st.sampled_from(["decided", "tied", "failed"]),
        "chosen": st.one_of(st.none(), TEXT),
        "as_set": st.booleans(),
        "reason": TEXT,
    }
)
DUTIES = st.fixed_dictionaries(
    {
        "base_rate_pct": PERCENT,
        "applied_additional_duties": st.lists(
            st.fixed_dictionaries({"layer_id": TEXT, "pct": st.floats(0, 1000), "reason": TEXT}), max_size=2
        ),
        "total_rate_pct": PERCENT,
    }
)
WHAT_IFS = st.fixed_dictionaries(
    {
        "id": TEXT,
        "kind": st.sampled_from(["materials", "origin", "description", "valuation"]),
        "change": TEXT,
        "steps": TEXTS,
        "expected_hts": TEXT,
        "estimated_duty_delta": st.floats(-1e300, 1e300),
        "rationale": TEXT,
        "required_evidence": TEXTS,
    }
)
PROPOSALS = st.fixed_dictionaries(
    {
        "decision": st.sampled_from(["classify", "refuse"]),
        "product_summary": TEXT,
        "candidate_headings": TEXTS,
        "gri_trace": st.fixed_dictionaries({"steps": st.lists(STEPS, max_size=6)}),
        "composition_table": st.one_of(
            st.none(),
            st.lists(st.fixed_dictionaries({"component": TEXT, "material": TEXT, "weight_pct": PERCENT}), max_size=2),
        ),
        "essential_character": optional(
            st.fixed_dictionaries({"component": TEXT, "factors": TEXTS, "rationale": TEXT})
        ),
        "baseline": optional(
            st.fixed_dictionaries(
                {
                    "hts_code": TEXT,
                    "duty_basis": st.sampled_from(["free", "ad valorem", "specific", "compound"]),
                    "duty_rate_pct": PERCENT,
                    "duty_breakdown": DUTIES,
                    "rationale": TEXT,
                    "confidence": RATIO,
                }
            )
        ),
        "optimized": optional(
            st.fixed_dictionaries({"what_if_id": TEXT, "hts_code": TEXT, "duty_rate_pct": PERCENT, "rationale": TEXT})
        ),
        "what_if_candidates": st.lists(WHAT_IFS, max_size=7),
        "citations": st.lists(st.fixed_dictionaries({"source_id": TEXT, "claim": TEXT, "quote": TEXT}), max_size=2),
        "relies_on": st.lists(
            st.fixed_dictionaries({"document": TEXT, "source_id": st.one_of(st.none(), TEXT)}), max_size=2
        ),
        "refusal": optional(
            st.fixed_dictionaries(
                {"category": st.sampled_from(["ambiguous", "out_of_scope", "missing_evidence"]), "reason": TEXT}
            )
        ),
    }
)


@settings(CALM, max_examples=150)
@for_all(plain=PROPOSALS, text=TEXT, conflicts=TEXTS)
def test_no_gate_raises_and_each_violation_is_one_line(plain: Json, text: str, conflicts: list[str]) -> None:
    judged_input: CheckInput = check_input(plain, evidence(text), critique=critique_answer(*conflicts))
    assert Proposal.model_validate(plain) == judged_input.proposal
    results = run_checks(judged_input)
    assert [(result.rule, result.name) for result in results] == [(gate.rule, gate.name) for gate in CHECKS]
    assert run_checks(judged_input) == results
    for result in results:
        assert (result.decision == "fail") == bool(result.violations)
        assert all(len(line.splitlines()) == 1 for line in result.lines)
