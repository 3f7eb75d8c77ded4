"""Lint: a clean suite has no finding, and each change for the worse is found by its own rule and by no other."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases import lint as general
from pytest_packbench.cli import main
from pytest_packbench.packs.tariff import leaks, lint, lint_schedule
from tests.unit.small_suite import BARE, GARLIC, REPORT, Small, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Small], object]
    Json = dict[str, Any]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """The clean suite."""
    return small_suite(tmp_path)


def expecting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["expected"].update(values))


def noting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["notes"].update(values))


def asking(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["input"].update(values))


def saying(words: str, case_id: str = "powder") -> Change:
    """Add words to a description."""

    def change(case: Json) -> None:
        case["input"]["input"] += f" {words}"

    return lambda small: small.case(case_id, change)


def tagging(case_id: str, *more: str, without: str = "") -> Change:
    def change(case: Json) -> None:
        case["notes"]["tags"] = [*(tag for tag in case["notes"]["tags"] if tag != without), *more]

    return lambda small: small.case(case_id, change)


def listing(name: str, *codes: str, case_id: str = "powder") -> Change:
    """Set a list of codes, each with a reason."""

    def change(case: Json) -> None:
        case["expected"][name] = list(codes)
        others = [] if name == "must_not_hts" else case["expected"]["must_not_hts"]
        case["notes"]["reasons"] = dict.fromkeys([*codes, *others], "wrong or near enough for a reason")

    return lambda small: small.case(case_id, change)


def ruled(text: str) -> Change:
    return lambda small: small.rules(text)


def recorded(case_id: str, **values: Any) -> Change:
    return lambda small: small.recording(case_id, lambda cassette: cassette.update(values))


def answered(case_id: str, part: str, **values: Any) -> Change:
    return lambda small: small.answer(case_id, lambda proposal: proposal[part].update(values))


def lost(case_id: str) -> Change:
    return lambda small: small.cassette(case_id).unlink()


def typeless(small: Small) -> None:
    small.path("books").unlink()
    small.cassette("books").unlink()
    small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")


def moved(small: Small) -> None:
    place = small.folder / "cases" / "other" / "books.json"
    place.parent.mkdir()
    small.path("books").rename(place)


def filed_twice(small: Small) -> None:
    """Put a second case of one id into a folder below; both would have the same cassette and so the same input."""
    place = small.folder / "cases" / "more" / "no_savings" / "books.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(small.path("books").read_bytes())


def repeated(small: Small) -> None:
    """Give one case the words of another, in other spacing and letters."""
    small.case("books", lambda case: case["input"].update(input=GARLIC.upper().replace(" ", "  ")))


def stray(small: Small) -> None:
    (small.folder / "fixtures" / "nobody.json").write_bytes(small.cassette("books").read_bytes())


GENERAL: list[tuple[str, Change]] = [
    ("case_unreadable", lambda small: small.path("books").write_text("{", encoding="utf-8")),
    ("case_unreadable", expecting("books", expected_accept="yes")),
    ("duplicate_id duplicate_input", filed_twice),
    ("duplicate_input", repeated),
    ("near_duplicate_input", asking("books", input=GARLIC.replace("Ohio", "Iowa"))),
    ("folder_type", moved),
    ("source_missing source_form", noting("books", source=" ")),
    ("date_missing", noting("books", date=None)),
    ("date_unreal", noting("books", date="2015-02-30")),
    ("quarantine_reason", noting("books", skip="later")),
    ("quarantine_reason", noting("books", xfail="  ")),
    ("tag_repeated", tagging("books", "gri_1")),
    ("pair_single", tagging("books", "pair_of_shoes")),
    ("threshold_zero", ruled("thresholds: {accept: 0.0}\n")),
    ("threshold_unused", typeless),
    ("gate_vacuous", ruled("gates: [{metric: pass_rate, min: 0.0}]\n")),
    ("gate_vacuous", ruled("gates: [{metric: over_refusal_rate, max: 1.0}]\n")),
    ("gate_unreachable", ruled("gates: [{metric: pass_rate, min: 0.9, max: 0.8}]\n")),
    ("cassette_missing", lost("books")),
    ("cassette_unused", stray),
    ("cassette_foreign", recorded("books", case_id="powder")),
    ("cassette_outdated", recorded("books", input_sha256="0" * 64)),
    ("cassette_unreadable", lambda small: small.cassette("books").write_text("[]", encoding="utf-8")),
]
LEAKS: list[tuple[str, Change]] = [
    ("leak_gold", saying("The seller wrote 0712.90.4020 on it.")),
    ("leak_gold", saying("The seller wrote 0712 90 40 20 on it.")),
    ("leak_gold", saying("The seller wrote 0712-90-4020 on it.")),
    ("leak_gold", saying("The seller wrote 07.12.90 on it.")),
    ("leak_gold", saying("The seller wrote 071290 on it.")),
    ("leak_gold", saying("Article 12/07129040/3.")),
    ("leak_gold", saying("The seller wrote \uff10\uff17\uff11\uff12.\uff19\uff10 on it.")),
    ("leak_gold", saying("It is of heading 0712.")),
    ("leak_gold", saying("It is of chapter 7.")),
    ("leak_gold", saying("Between headings 0910 and 0712 we hesitate.", "trap")),
    ("leak_gold", saying("The portal says 0712.90.4040 too.", "trap")),
    ("leak_code", saying("A neighbour enters his as 6404.11.9020.")),
    ("leak_code", saying("A neighbour enters his as 6404.11.", "bare")),
    ("leak_code", asking("quoted", evidence=[{"source_id": "a", "title": "On 6404.11.90", "text": REPORT}])),
    ("leak_heading", saying("A neighbour enters his under heading no. 2106.")),
    ("leak_heading", saying("A neighbour enters his under chapter twenty-one.")),
    ("leak_heading", saying("A neighbour enters his under HTS number 2106.")),
    ("leak_ruling", saying("See NY N270709.")),
    ("leak_ruling", saying("Customs said so in ruling 812345.")),
    ("leak_conclusion", saying("The garlic gives it the essential character.")),
    ("leak_conclusion", saying("So it has been classified in the usual place.")),
    ("leak_chapter", asking("powder", options={"candidate_chapters": ["07", "21"]})),
    ("planted_code_absent", tagging("powder", "planted_code")),
    ("planted_code_allowed", saying("The forwarder says 2106.90.9900.", "trap")),
]
CODES: list[tuple[str, Change]] = [
    ("preferred_missing", expecting("powder", preferred_hts=[])),
    ("preferred_undue", expecting("bare", preferred_hts=["0712.90.4020"])),
    ("preferred_length", listing("preferred_hts", "0712.90.40")),
    ("forbidden_missing", listing("must_not_hts")),
    ("code_length", listing("must_not_hts", "0910.99.6")),
    ("code_form", listing("must_not_hts", "0910996000")),
    ("code_impossible", listing("must_not_hts", "0910.99.6000", "9903")),
    ("code_conflict", listing("must_not_hts", "0712.90.4020")),
    ("code_conflict", listing("must_not_hts", "0712904020", "0910.99.6000")),
    ("code_repeated", listing("must_not_hts", "0910.99.6000", "0910.99.60.00")),
    ("forbidden_covers_gold", listing("must_not_hts", "0712.90")),
    ("forbidden_unreachable", listing("must_not_hts", "0910", "0910.99.6000")),
    ("reason_missing", noting("powder", reasons={})),
    ("reason_missing allowed_unreachable", expecting("powder", allowed_hts=["0712.90.4040"])),
    ("allowed_unreachable", listing("allowed_hts", "0712.90.4040")),
    ("reason_unused", noting("powder", reasons={"0910.99.6000": "no spice", "4911": "no picture"})),
    ("threshold_unreachable", ruled("scoring: {preferred: 0.7}\n")),
    ("threshold_low", ruled("thresholds: {accept: 0.3}\n")),
    ("threshold_low", ruled("thresholds: {refuse: 0.5}\n")),
    ("threshold_low", ruled("thresholds: {by_type: {no_savings: 0.3}}\n")),
    ("threshold_low", expecting("powder", threshold=0.0)),
]
CODES[14] = ("allowed_unreachable", listing("allowed_hts", "0712.90.4040"))
EXPECTATIONS: list[tuple[str, Change]] = [
    ("type_expectation", expecting("books", no_savings_expected=False)),
    ("type_expectation", expecting("flakes", lever_found_expected=None)),
    ("type_expectation", lambda small: small.case("bare", accepting)),
    ("savings_conflict", expecting("books", lever_count_min=1)),
    ("savings_conflict", expecting("books", duty_delta_range=[-2.0, -1.0])),
    ("savings_conflict", expecting("powder", lever_found_expected=False, min_lever_steps=1)),
    ("savings_conflict", expecting("flakes", expected_best_is_multi_step=False, min_lever_steps=2)),
    ("savings_conflict", expecting("flakes", expected_duty_delta_direction="increase")),
    ("savings_conflict", expecting("flakes", expected_duty_delta_direction="flat")),
    ("expectation_unused", expecting("powder", expected_refusal_category="ambiguous")),
    ("expectation_unused", expecting("bare", lever_count_min=0)),
    ("expectation_unused", expecting("bare", no_savings_expected=True)),
    ("refusal_category_missing", expecting("bare", expected_refusal_category=None)),
]
NOTES: list[tuple[str, Change]] = [
    ("edition_missing", noting("powder", hts_edition=None)),
    ("edition_other", noting("powder", hts_edition="2025 basic")),
    ("source_form", noting("powder", source="ruling:abc")),
    ("tag_unknown", tagging("powder", "garlicky")),
    ("chapter_tag", tagging("bare", without="chapter_07")),
    ("chapter_tag", tagging("powder", "chapter_09")),
    ("chapter_tag", tagging("powder", "chapter_09", without="chapter_07")),
    ("year_tag", tagging("powder", without="ruling_year_2015")),
    ("year_tag", tagging("powder", "ruling_year_2016", without="ruling_year_2015")),
    ("year_tag", tagging("books", "ruling_year_2015")),
    ("description_length", asking("powder", input="garlic powder")),
    ("description_length", asking("powder", input=" ".join(f"word{number}" for number in range(201)))),
    ("citation_trap_evidence", tagging("powder", "citation_trap")),
    ("evidence_tag", tagging("powder", "evidence")),
    ("evidence_tag", tagging("quoted", without="evidence")),
    (
        "evidence_repeated",
        asking("quoted", evidence=[{"source_id": "lab", "text": REPORT}, {"source_id": "lab", "text": "Nothing."}]),
    ),
]
LOOKED_UP: list[tuple[str, Change]] = [
    ("code_unknown", listing("preferred_hts", "0712.90.4099")),
    ("code_unknown", listing("must_not_hts", "0910.11")),
    ("duty_rate", expecting("flakes", expected_duty_total_rate_pct=29.0)),
    ("duty_rate", expecting("trap", preferred_hts=["2208.40.2000"], expected_duty_total_rate_pct=3.0)),
    ("cassette_code", answered("powder", "baseline", hts_code="0712.90.4099")),
    ("cassette_code", lambda small: small.answer("flakes", unknown_what_if)),
    ("cassette_duty", answered("powder", "baseline", duty_basis="compound")),
    ("cassette_duty", answered("powder", "baseline", duty_breakdown={"base_rate_pct": 9.0, "total_rate_pct": 9.0})),
    ("cassette_duty", answered("powder", "baseline", duty_breakdown={"base_rate_pct": None, "total_rate_pct": None})),
    ("cassette_duty", answered("flakes", "optimized", duty_rate_pct=6.5)),
]
CODES_OF_OTHERS = {"chapter_tag"}


def accepting(case: Json) -> None:
    case["expected"].update(expected_accept=True, preferred_hts=["0712.90.4020"], expected_refusal_category=None)


def unknown_what_if(proposal: Json) -> None:
    proposal["what_if_candidates"][0]["expected_hts"] = "2106.10"


def rules_of(small: Small, *, with_schedule: bool = True) -> set[str]:
    return {finding.rule for finding in small.findings(with_schedule=with_schedule)}


@pytest.mark.parametrize("with_schedule", [True, False])
def test_a_clean_suite_has_no_finding(small: Small, *, with_schedule: bool) -> None:
    assert small.findings(with_schedule=with_schedule) == []


@pytest.mark.parametrize(
    ("rules", "change"), [*GENERAL, *LEAKS, *CODES, *EXPECTATIONS, *NOTES, *LOOKED_UP]
)
def test_each_rule_fires_alone(small: Small, rules: str, change: Change) -> None:
    change(small)
    assert rules_of(small) == set(rules.split())


@pytest.mark.parametrize("change", [change for _, change in LOOKED_UP])
def test_without_a_schedule_nothing_is_looked_up(small: Small, change: Change) -> None:
    change(small)
    assert rules_of(small, with_schedule=False) == set()


def test_every_rule_has_a_broken_copy() -> None:
    """Rules are the words given as `rule=`, or after the pointer of a finding."""
    named = {rule for rules, _ in [*GENERAL, *LEAKS, *CODES, *EXPECTATIONS, *NOTES, *LOOKED_UP] for rule in rules.split()}
    known: set[str] = set()
    for module in (general, leaks, lint, lint_schedule):
        known |= set(re.findall(r'"((?:%s)_[a-z_]+)"' % "|".join(FAMILIES), source_of(module)))
    assert named == known - NO_RULES | {"case_unreadable", "cassette_unreadable"}
