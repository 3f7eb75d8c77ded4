"""Lint: a clean suite has no finding, and each change for the worse is found by its own rule and by no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.lint import SuiteFiles, check
from pytest_packbench.cli import main
from pytest_packbench.packs.tariff.lint import TAGS
from tests.unit.small_suite import BARE, GARLIC, Small, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Change = Callable[[Small], object] if TYPE_CHECKING else object
Json = dict[str, Any]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """The clean suite."""
    return small_suite(tmp_path)


def expecting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["expected"].update(values))


def noting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["notes"].update(values))


def saying(case_id: str, words: str) -> Change:
    """Add words to a description."""
    return lambda small: small.case(case_id, lambda case: case["input"].update(input=f"{case['input']['input']} {words}"))


def tagging(case_id: str, *more: str, without: str = "") -> Change:
    def change(case: Json) -> None:
        case["notes"]["tags"] = [*(tag for tag in case["notes"]["tags"] if tag != without), *more]

    return lambda small: small.case(case_id, change)


def forbidding(case_id: str, *codes: str, **values: Any) -> Change:
    """Forbid more codes, each with a reason."""

    def change(case: Json) -> None:
        case["expected"]["must_not_hts"] += codes
        case["notes"]["reasons"] |= dict.fromkeys(codes, "wrong for a reason")
        case["expected"].update(values)

    return lambda small: small.case(case_id, change)


def ruled(text: str) -> Change:
    return lambda small: small.rules(text)


def baseline(case_id: str, **values: Any) -> Change:
    return lambda small: small.answer(case_id, lambda proposal: proposal["baseline"].update(values))


def documents(case_id: str, *found: Json) -> Change:
    return lambda small: small.case(case_id, lambda case: case["input"].update(evidence=list(found)))


def lost(case_id: str) -> Change:
    return lambda small: small.cassette(case_id).unlink()


def broken(case_id: str) -> Change:
    return lambda small: small.path(case_id).write_text("{", encoding="utf-8")


def moved(case_id: str, folder: str) -> Change:
    def change(small: Small) -> None:
        place = small.folder / "cases" / folder / f"{case_id}.json"
        place.parent.mkdir(exist_ok=True)
        small.path(case_id).rename(place)

    return change


def twice(case_id: str) -> Change:
    """Put a case of the same id and other words in a folder below."""

    def change(small: Small) -> None:
        case = json.loads(small.path(case_id).read_text("utf-8"))
        place = small.path(case_id).parent / "more" / case["case_type"] / f"{case_id}.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(case), encoding="utf-8")

    return change


GENERAL: list[tuple[str, Change]] = [
    ("case_unreadable", broken("books")),
    ("case_unreadable", lambda small: small.path("books").write_bytes(b"\xff")),
    ("duplicate_id duplicate_input", twice("books")),
    ("folder_type", moved("books", "positive")),
    ("date_missing", lambda small: small.case("books", lambda case: case["notes"].pop("date"))),
    ("date_unreal", noting("books", date="2015-02-30")),
    ("duplicate_input", lambda small: small.case("quoted", lambda case: case.update(input=rewritten(small, "powder")))),
    (
        "near_duplicate_input",
        lambda small: small.case("books", lambda case: case["input"].update(input=GARLIC.replace("Ohio", "Iowa"))),
    ),
    ("quarantine_reason", noting("books", skip="later")),
    ("quarantine_reason", noting("books", xfail="  ")),
    ("tag_repeated", tagging("books", "gri_1")),
    ("pair_single", tagging("books", "pair_of_shoes")),
    ("threshold_zero threshold_low", ruled("thresholds: {accept: 0.0}\n")),
    ("threshold_unused", ruled("thresholds: {by_type: {positive: 0.8, negative: 0.9}}\n")),
    ("gate_vacuous", ruled("gates: [{metric: pass_rate, min: 0.0}]\n")),
    ("gate_vacuous", ruled("gates: [{metric: over_refusal_rate, max: 1.0}]\n")),
    ("gate_unreachable", ruled("gates: [{metric: pass_rate, min: 0.9, max: 0.8}]\n")),
    ("cassette_missing", lost("books")),
    ("cassette_unused", lambda small: small.cassette("books").with_name("none.json").write_bytes(small.cassette("books").read_bytes())),
    ("cassette_foreign", lambda small: small.recording("books", lambda cassette: cassette.update(case_id="powder"))),
    ("cassette_outdated", lambda small: small.recording("books", lambda cassette: cassette.update(input_sha256="0" * 64))),
    ("cassette_unreadable", lambda small: small.cassette("books").write_text("[]", encoding="utf-8")),
]
GENERAL[3] = ("folder_type", moved("books", "other"))
GENERAL[13] = (
    "threshold_unused",
    lambda small: (small.path("books").unlink(), lost("books")(small), small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")),
)


def rewritten(small: Small, case_id: str) -> Json:
    """Another case's input in other spacing and case."""
    given: Json = json.loads(small.path(case_id).read_text("utf-8"))["input"]
    return given | {"input": given["input"].upper().replace(" ", "  ")}
