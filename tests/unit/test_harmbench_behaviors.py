"""HarmBench's CSV files: every row a case or a flaw with its line, and never a text where it does not belong."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_packbench.model.pack import CaseDraft, SourceFlaw
from pytest_packbench.packs.agent_safety.harmbench import behaviors
from pytest_packbench.packs.agent_safety.harmbench.behaviors import COLUMNS, FileError, find_behavior, read
from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
from pytest_packbench.packs.agent_safety.harmbench.target import HARMLESS
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig
from tests.unit.safety_runs import PACK, SUITES

HEAD = ",".join(COLUMNS)
ZEBRA = "Write the word zebra.,standard,plain_words,,,zebra"
TEAPOT = "Write a rhyme on a teapot.,standard,plain_words,,,teapot"


def file(folder: Path, *rows: str, name: str = "b.csv", head: str = HEAD) -> Path:
    path = folder / name
    path.write_bytes("\n".join([head, *rows, ""]).encode("utf-8", "surrogateescape"))
    return path


def imported_cases(*files: Path, functional: list[str] | None = None) -> list[CaseDraft | SourceFlaw]:
    return list(HarmBenchImporter().read(argparse.Namespace(files=list(files), functional=functional)))


def flaws(*files: Path) -> list[tuple[str, str]]:
    found = [(one.place, one.message) for one in imported_cases(*files) if isinstance(one, SourceFlaw)]
    assert not [message for _, message in found if "zebra." in message or "\n" in message]
    return [(Path(place.rpartition(":")[0]).name + ":" + place.rpartition(":")[2], message) for place, message in found]


def ids(*files: Path, functional: list[str] | None = None) -> list[str]:
    return [one.case["id"] for one in imported_cases(*files, functional=functional) if isinstance(one, CaseDraft)]


def test_a_row_becomes_a_case_without_its_text(tmp_path: Path) -> None:
    path = file(tmp_path, 'Name it.,contextual,plain_words,"context, x",Here is a zebra.,zebra')
    (draft,) = imported_cases(path)
    assert isinstance(draft, CaseDraft)
    assert "Name it" not in json.dumps(draft.case)
    assert "Here is" not in json.dumps(draft.case)
    case = SafetyCase.model_validate(draft.case)
    assert draft.place == f"{path}:2"
    assert (case.id, case.case_type, case.notes.attack_category) == ("zebra", "contextual", "plain_words")
    assert case.notes.tags == ("contextual", "plain_words", "context", "x")
    assert case.expected.decision == "refuse"
    assert PACK.test_id("harmbench", case) == "harmbench:zebra"
    assert case.input.text_sha256 == hashlib.sha256(b"Here is a zebra.\n\n---\n\nName it.").hexdigest()
    assert case.input.source is not None
    assert case.input.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_copyright_is_imported_as_not_assessed(tmp_path: Path) -> None:
    (draft,) = imported_cases(file(tmp_path, "Recite the poem.,copyright,copyright,hash_check,,poem"))
    assert isinstance(draft, CaseDraft)
    hole = SafetyCase.model_validate(draft.case).expected.known_hole
    assert hole is not None
    assert hole.kind == "no_checker"
    assert hole.reason.startswith("not assessed: ")


def test_quotes_commas_and_line_ends_belong_to_a_text(tmp_path: Path) -> None:
    path = file(tmp_path, '"Say ""zebra"",\nthen stop.",standard,plain_words,,,zebra', TEAPOT)
    rows = read(path)
    assert [(one.line, one.behavior.text if one.behavior else "") for one in rows] == [
        (2, 'Say "zebra",\nthen stop.'),
        (4, "Write a rhyme on a teapot."),
    ]


def test_columns_may_stand_in_any_order_and_others_beside_them(tmp_path: Path) -> None:
    head = "BehaviorID,Source,Behavior,FunctionalCategory,SemanticCategory"
    assert ids(file(tmp_path, "zebra,x,Write the word zebra.,standard,plain_words", head=head)) == ["zebra"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("Write it.,standard,plain_words,,", "got 5 cells, expected 6"),
        ("Write it, please.,standard,plain_words,,,x", "got 7 cells, expected 6"),
        (",standard,plain_words,,,x", "Behavior: empty, expected text"),
        (
            "Write it.,odd,plain_words,,,x",
            'FunctionalCategory: got "odd", expected one of standard, contextual, copyright',
        ),
        ("Write it.,standard,!,,,x", 'SemanticCategory: got "!", expected a word'),
        ("Write it.,standard,plain_words,,,a:b", 'BehaviorID: got "a:b", expected letters, digits, _ and -'),
        ("Write it.,standard,plain_words,,,", 'BehaviorID: got "", expected letters, digits, _ and -'),
        ("Write it.,standard,plain_words,,," + "x" * 121, "expected letters, digits, _ and -"),
        ("Write it.,contextual,plain_words,,,x", "ContextString: got none, expected text"),
        ("Write it.,standard,plain_words,,Here.,x", "ContextString: got text, expected none"),
        ("Write \udcff it.,standard,plain_words,,,x", "Behavior: not UTF-8; save the file as UTF-8"),
        ('"Write" it.,standard,plain_words,,,x', "not CSV: ',' expected after '\"'"),
        ("a" * 140_000 + ",standard,plain_words,,,x", "not CSV: field larger than field limit (131072)"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_hides_no_other(tmp_path: Path, bad: str, message: str) -> None:
    path = file(tmp_path, ZEBRA, bad, TEAPOT)
    ((place, said),) = flaws(path)
    assert place == "b.csv:3"
    assert message in said
    assert ids(path) == ["zebra", "teapot"]


def test_a_quote_that_is_never_closed_swallows_nothing(tmp_path: Path) -> None:
    path = file(tmp_path, ZEBRA, '"Write it.,standard,plain_words,,,x', TEAPOT)
    assert flaws(path) == [("b.csv:3", "not CSV: unexpected end of data")]
    assert ids(path) == ["zebra", "teapot"]


def test_two_of_one_id_are_named_together(tmp_path: Path) -> None:
    path = file(tmp_path, ZEBRA, ZEBRA, ZEBRA.replace("word", "name"))
    assert [place for place, _ in flaws(path)] == ["b.csv:3", "b.csv:4"]
    assert [message.replace(str(tmp_path), "") for _, message in flaws(path)] == [
        "duplicate id zebra, first in /b.csv:2; remove one",
        "duplicate id zebra with a different text, first in /b.csv:2; remove one",
    ]


def test_the_same_behaviour_in_two_files_is_one_case(tmp_path: Path) -> None:
    whole, part = file(tmp_path, ZEBRA, TEAPOT, name="all.csv"), file(tmp_path, TEAPOT, name="val.csv")
    assert not flaws(whole, part)
    assert ids(whole, part) == ["zebra", "teapot"]
    other = file(tmp_path, TEAPOT.replace("rhyme", "poem"), name="other.csv")
    assert [place for place, _ in flaws(whole, other)] == ["other.csv:2"]


def test_only_some_may_be_asked_for(tmp_path: Path) -> None:
    path = file(tmp_path, ZEBRA, "Recite the poem.,copyright,copyright,,,poem")
    assert ids(path, functional=["copyright"]) == ["poem"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "b.csv:2: the column Behavior is missing"),
        ("a,b", "b.csv:1: the column Behavior is missing; the file has a, b"),
        ("a,\udcff", "b.csv:1: the column Behavior is missing; the file has a, \\udcff"),
        (HEAD + ",Behavior", 'b.csv:1: duplicate column "Behavior"; remove one'),
        ('"a" b', "b.csv: expected the columns Behavior, FunctionalCategory"),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(FileError) as refused:
        read(file(tmp_path, ZEBRA, head=head))
    assert message in str(refused.value)


def test_an_empty_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(b"")
    with pytest.raises(FileError, match="expected the columns"):
        read(path)


def test_a_text_is_found_by_id_and_hash_in_files_and_folders(tmp_path: Path) -> None:
    path = file(tmp_path, ZEBRA, TEAPOT)
    wanted = read(path)[1].behavior
    assert wanted is not None
    assert find_behavior([path], "teapot", wanted.sha256) == wanted
    assert find_behavior([HARMLESS, tmp_path], "teapot", wanted.sha256) == wanted
    with pytest.raises(FileError, match=r"its text in b\.csv differs from the imported one"):
        find_behavior([path], "teapot", "0" * 64)
    with pytest.raises(FileError, match=r"kettle: not found in b\.csv; set packbench_harmbench"):
        find_behavior([path], "kettle", wanted.sha256)
    with pytest.raises(FileError, match=r"none\.csv: can't be read: No such file"):
        find_behavior([tmp_path / "none.csv"], "teapot", wanted.sha256)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = file(tmp_path, ZEBRA)
    first = read(path)[0].behavior
    assert first is not None
    find_behavior([path], "zebra", first.sha256)
    path.write_text(f"{HEAD}\n{ZEBRA.replace('word', 'name')}\n", "utf-8")
    behaviors._by_id.cache_clear()
    with pytest.raises(FileError, match="differs from the imported one"):
        find_behavior([path], "zebra", first.sha256)


def test_the_suite_that_is_written_beside_is_one(tmp_path: Path) -> None:
    text = HarmBenchImporter().files(argparse.Namespace(files=[], functional=None))["suite.yaml"]
    rules = SafetySuiteConfig.model_validate(yaml.safe_load(text))
    assert (rules.benchmark, rules.judges) == ("harmbench", ("llama_guard",))
    assert [gate.max_ratio_to_baseline for gate in rules.gates] == [None, 0.5]


def test_our_own_suite_is_our_own_file_imported() -> None:
    found = {one.case["id"]: one.case for one in imported_cases(HARMLESS) if isinstance(one, CaseDraft)}
    assert not [one for one in imported_cases(HARMLESS) if isinstance(one, SourceFlaw)]
    stored = {path.stem: json.loads(path.read_bytes()) for path in (SUITES / "harmbench" / "cases").rglob("*.json")}
    for case in found.values():
        case["input"]["version"] = "own"
        case["notes"]["source"] = "written for this package; harmless, and none of HarmBench's own"
    assert stored == found


def test_no_text_of_a_behaviour_stands_in_a_case_of_ours() -> None:
    texts = [row["Behavior"] for row in _own_rows()] + [row["ContextString"] for row in _own_rows()]
    for path in (SUITES / "harmbench" / "cases").rglob("*.json"):
        assert not [text for text in texts if text and text in path.read_text("utf-8")]


def _own_rows() -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(HARMLESS.read_text("utf-8"), newline="")))
