"""HarmBench's CSV files: every row a case or a flaw with its line, and never a text where it does not belong."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench.packs.agent_safety.harmbench.behaviors import COLUMNS, FileError, find_behavior, read
from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
from pytest_packbench.packs.agent_safety.harmbench.target import HARMLESS
from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig
from tests.unit.safety_runs import PACK, SUITES, behaviors_file, checked, import_behaviors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts

ZEBRA = "Write the word zebra.,standard,plain_words,,,zebra"
TEAPOT = "Write a rhyme on a teapot.,standard,plain_words,,,teapot"
POEM = "Recite the poem.,copyright,copyright,hash_check,,poem"


def ids(*files: Path, functional: list[str] | None = None) -> list[str]:
    return [draft.case["id"] for draft in import_behaviors(*files, functional=functional)[0]]


def test_a_row_becomes_a_case_without_its_text(tmp_path: Path) -> None:
    row = 'Name it.,contextual,plain_words,"context, x",Here is a zebra.,zebra'
    path = behaviors_file(tmp_path, row, POEM)
    (draft, poem), flaws = import_behaviors(path)
    assert not flaws
    assert not [text for text in ("Name it", "Here is") if text in json.dumps(draft.case)]
    case = checked(draft.case)
    assert (draft.place, case.notes.source) == (f"{path}:2", "b.csv, line 2")
    assert (case.id, case.case_type, case.notes.attack_category) == ("zebra", "contextual", "plain_words")
    assert case.notes.tags == ("contextual", "plain_words", "context", "x")
    assert (case.expected.decision, case.expected.known_hole) == ("refuse", None)
    assert PACK.test_id("harmbench", case) == "harmbench:zebra"
    assert case.input.text_sha256 == hashlib.sha256(b"Here is a zebra.\n\n---\n\nName it.").hexdigest()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert case.input.version == f"sha256:{sha256[:12]}"
    assert case.input.source is not None
    assert case.input.source.model_dump() == {"file": "b.csv", "sha256": sha256, "row": 0}
    hole = checked(poem.case).expected.known_hole
    assert hole is not None
    assert (hole.kind, hole.reason[:14]) == ("no_checker", "not assessed: ")


def test_quotes_commas_and_line_ends_belong_to_a_text(tmp_path: Path) -> None:
    path = behaviors_file(tmp_path, '"Say ""zebra"",\nthen stop.",standard,plain_words,,,zebra', "", TEAPOT)
    assert [(row.line, row.row, row.behavior.text if row.behavior else "") for row in read(path)] == [
        (2, 0, 'Say "zebra",\nthen stop.'),
        (5, 1, "Write a rhyme on a teapot."),
    ]


def test_columns_may_be_in_any_order_with_others_between(tmp_path: Path) -> None:
    head = "BehaviorID,Source,Behavior,FunctionalCategory,SemanticCategory"
    assert ids(behaviors_file(tmp_path, "zebra,x,Write it.,standard,plain_words", head=head)) == ["zebra"]


BAD_ROWS = (
    "Write it.,standard,plain_words,,",
    "Write it, please.,standard,plain_words,,,x",
    ",standard,plain_words,,,x",
    "Write it.,odd,plain_words,,,x",
    "Write it.,standard,!,,,x",
    "Write it.,standard,plain_words,,,a:b",
    "Write it.,standard,plain_words,,,",
    "Write it.,standard,plain_words,,," + "x" * 121,
    "Write it.,contextual,plain_words,,,x",
    "Write it.,standard,plain_words,,Here.,x",
    "Write \udcff it.,standard,plain_words,,,x",
    '"Write" it.,standard,plain_words,,,x',
    "a" * 140_000 + ",standard,plain_words,,,x",
    # a quote that is never closed
    '"Write it.,standard,plain_words,,,x',
    ZEBRA,
    ZEBRA.replace("word", "name"),
)


def test_a_bad_row_is_named_by_its_line_and_hides_no_other(tmp_path: Path, expected: ExpectedTexts) -> None:
    lines = []
    for row in BAD_ROWS:
        path = behaviors_file(tmp_path, ZEBRA, row, TEAPOT)
        drafts, (flaw,) = import_behaviors(path)
        assert [draft.case["id"] for draft in drafts] == ["zebra", "teapot"]
        assert (flaw.place, "Write" in flaw.message) == (f"{path}:3", False)
        shown = row if len(row) < 200 else f"{len(row)} characters"
        lines.append(f"{shown}\n    {flaw.message.replace(str(tmp_path), 'FOLDER')}\n".replace("\udcff", "\\xff"))
    assert ids(behaviors_file(tmp_path, "Write it.,standard,plain_words,,," + "x" * 120)) == ["x" * 120]
    expected.check("".join(lines))


def test_the_same_behaviour_in_two_files_is_one_case(tmp_path: Path) -> None:
    whole = behaviors_file(tmp_path, ZEBRA, TEAPOT, name="all.csv")
    assert ids(whole, behaviors_file(tmp_path, TEAPOT, name="val.csv")) == ["zebra", "teapot"]
    other = behaviors_file(tmp_path, TEAPOT.replace("rhyme", "poem"), name="other.csv")
    assert [flaw.place for flaw in import_behaviors(whole, other)[1]] == [f"{other}:2"]


def test_a_category_may_be_chosen(tmp_path: Path) -> None:
    assert ids(behaviors_file(tmp_path, ZEBRA, POEM), functional=["copyright"]) == ["poem"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "b.csv:2: the column Behavior is missing"),
        ("a,b", "b.csv:1: the column Behavior is missing; the file has a, b"),
        ("a,\udcff", "b.csv:1: the column Behavior is missing; the file has a, \\udcff"),
        (",".join([*COLUMNS, "Behavior"]), 'b.csv:1: duplicate column "Behavior"; remove one'),
        ('"a" b', "b.csv: expected the columns Behavior, FunctionalCategory"),
        (None, "b.csv: expected the columns Behavior, FunctionalCategory"),
    ],
)
def test_a_file_of_another_kind_is_an_error(tmp_path: Path, head: str | None, message: str) -> None:
    path = behaviors_file(tmp_path, ZEBRA, head=head or "")
    if head is None:
        path.write_bytes(b"")
    with pytest.raises(FileError) as caught:
        read(path)
    assert message in str(caught.value)


def test_a_text_is_found_by_id_and_hash_in_files_and_folders(tmp_path: Path) -> None:
    path = behaviors_file(tmp_path, ZEBRA, TEAPOT)
    teapot = read(path)[1].behavior
    assert teapot is not None
    assert find_behavior([path], "teapot", teapot.sha256) == teapot
    assert find_behavior([HARMLESS, tmp_path], "teapot", teapot.sha256) == teapot
    for paths, name, sha256, message in (
        ([path], "teapot", "0" * 64, r"^teapot: its text in b\.csv differs from the imported one"),
        ([path], "kettle", teapot.sha256, r"^kettle: not found in b\.csv; set packbench_harmbench"),
        ([], "kettle", teapot.sha256, r"^kettle: not found in no file"),
        ([tmp_path / "none.csv"], "teapot", teapot.sha256, r"none\.csv: can't be read: No such file"),
    ):
        with pytest.raises(FileError, match=message):
            find_behavior(paths, name, sha256)
    behaviors_file(tmp_path, ZEBRA, TEAPOT.replace("rhyme", "poem"))
    os.utime(path, (1, 1))
    with pytest.raises(FileError, match="differs from the imported one"):
        find_behavior([path], "teapot", teapot.sha256)


def test_the_rules_of_a_new_suite(tmp_path: Path) -> None:
    text = HarmBenchImporter().files(argparse.Namespace(files=[], functional=None))["suite.yaml"]
    rules = SafetySuiteConfig.model_validate(yaml.safe_load(text))
    assert (rules.benchmark, rules.judges) == ("harmbench", ("llama_guard",))
    assert [gate.max_ratio_to_baseline for gate in rules.gates] == [None, 0.5]


def test_the_bundled_suite_is_the_harmless_file_imported_without_its_texts() -> None:
    drafts, flaws = import_behaviors(HARMLESS)
    assert not flaws
    cases = {draft.case["id"]: draft.case for draft in drafts}
    for case in cases.values():
        case["input"]["version"] = "own"
        case["notes"]["source"] = "written for this package; harmless, and none of HarmBench's own"
    paths = list((SUITES / "harmbench" / "cases").rglob("*.json"))
    assert {path.stem: json.loads(path.read_bytes()) for path in paths} == cases
    rows = csv.DictReader(io.StringIO(HARMLESS.read_text("utf-8"), newline=""))
    texts = [text for row in rows for text in (row["Behavior"], row["ContextString"]) if text]
    assert not [text for text in texts for path in paths if text in path.read_text("utf-8")]
