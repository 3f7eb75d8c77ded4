"""`packbench import`: tables become cases, shown first, checked by the suite, never over what is there."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.api import load_suite
from pytest_packbench.cli import main
from pytest_packbench.commands.import_ import CheckedCase, destination
from pytest_packbench.model.case import CASE_ID
from pytest_packbench.model.pack import CaseDraft, SourceFlaw
from pytest_packbench.packs.generic.importer import case_id
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.tables import CsvFormat, TableRow, csv_rows
from pytest_packbench.testing import case as plain_case

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

ROOT = Path(__file__).parents[2]
SCENARIOS = yaml.safe_load((Path(__file__).parent / "data" / "imports.yaml").read_text("utf-8"))
SUITE = Path("storage") / "benchmarks" / "s"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # the command adds the folder
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(words: str, *, table: str | bytes | None = None, file: str = "t.csv") -> int:
    if table is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(table.encode() if isinstance(table, str) else table)
    return main(["import", *shlex.split(words)])


def only_case() -> dict[str, Any]:
    (path,) = SUITE.glob("cases/*/*.json")
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return case


def files_in_folder() -> list[str]:
    """Every file of a suite with its content in one line."""
    paths = sorted(path for path in Path().rglob("*/*/*") if path.is_file())
    return [f"{path.as_posix()}: {' '.join(path.read_text('utf-8').split())}" for path in paths]


def test_what_each_import_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    text = ""
    for number, (name, steps) in enumerate(SCENARIOS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        text += f"==== {name}\n"
        for step in steps:
            for file, content in step.items():
                if file != "run":
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    (folder / file).write_bytes(content.encode())
            code = main(["import", *shlex.split(step["run"])])
            captured = capsys.readouterr()
            assert code == 0 or captured.err.count("\n") <= 1
            text += f"$ packbench import {step['run']}\n{captured.out}{captured.err}exit code {code}\n"
        text += "".join(f"{line}\n" for line in files_in_folder())
    assert "\x1b" not in text
    expected.check(text)


def test_what_is_written_is_what_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run("csv t.csv --suite s", table="id,input,expected\na,one,1\n")
    assert not SUITE.exists()
    shown = capsys.readouterr().out
    run("csv t.csv --suite s --write")
    assert (SUITE / "cases/plain/a.json").read_text("utf-8") in shown
    assert load_suite(SUITE).config.pack == "generic"


@pytest.mark.parametrize(
    ("text", "expected_id"),
    [
        ("a", "a"),
        ("case-1_B", "case-1_B"),
        ("Where is it?", "Where_is_it"),
        ("../../etc/passwd", "etc_passwd"),
        ("_x", "x"),
        ("café", "cafe"),
        ("a\nb", "a_b"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 111 + "_79072a47"),
    ],
)
def test_ids_that_can_name_files(text: str, expected_id: str) -> None:
    assert case_id(text) == expected_id


@given(st.text(min_size=1))
def test_any_text_becomes_an_id(text: str) -> None:
    converted = case_id(text)
    assert re.fullmatch(CASE_ID, converted)
    assert len(converted) <= 120
    assert case_id(converted) == converted


def test_ids_of_texts_in_other_scripts_stay_different() -> None:
    assert len({case_id(text) for text in ("東京", "大阪", "q 東京", "q 大阪", "x" * 200, "x" * 201)}) == 6


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xef\xbb\xbfinput,expected\r\n\xc3\xa9,e\r\n", ""),
        (b"input;expected\n\xe9;e\n", "--delimiter ';' --encoding cp1252"),
        ("input\texpected\né\te\n".encode("utf-16"), "--delimiter tab --encoding utf-16"),
        (" input , expected\né,e".encode(), ""),
    ],
)
def test_formats_of_csv(content: bytes, words: str) -> None:
    assert run(f"csv t.csv --suite s --write {words}", table=content) == 0
    assert (only_case()["input"], only_case()["expected"]) == ("é", "e")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "t.csv:3: not encoded in UTF-8; save the file as UTF-8, or pass --encoding"),
        ("--encoding ascii", "t.csv: not encoded in ASCII; save the file as UTF-8, or pass --encoding"),
    ],
)
def test_another_encoding_is_an_error(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"csv t.csv --suite s {words}", table=b"input,expected\n1,2\n\xe9,2\n") == 2
    assert capsys.readouterr().err.startswith(f"packbench: {message}")


def test_a_suite_has_to_be_named() -> None:
    with pytest.raises(SystemExit) as stop:
        run("csv t.csv", table="input,expected\na,b\n")
    assert stop.value.code == 2


CELL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5))
def test_cells_survive_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    values = [row.values if isinstance(row, TableRow) else row for row in csv_rows(path, CsvFormat())]
    assert values == [{"a": a, "b": b} for a, b in rows]


def test_a_cell_may_contain_a_whole_document_of_which_the_beginning_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # the limit of csv, a setting of the whole process
    csv.field_size_limit(131_072)
    run("csv t.csv --suite s", table="input,expected\n" + "x" * 1_000_000 + ",e\n")
    assert len(capsys.readouterr().out) < 5_000
    assert run("csv t.csv --suite s --write") == 0
    assert len(only_case()["input"]) == 1_000_000
    assert csv.field_size_limit() == 131_072


PACK = """
from pytest_packbench.model.pack import CaseDraft, Importer
from pytest_packbench.packs.generic.pack import GenericPack


class Counted(Importer):
    name, help, suite = "counted", "rows by number", "numbers"

    def add_arguments(self, parser):
        parser.add_argument("--rows", type=int)
        parser.add_argument("--fickle", action="store_true")

    def read(self, arguments):
        for row in range(arguments.rows):
            case = {"id": f"n{row}", "pack_id": "counting", "case_type": "n", "difficulty": "easy"}
            yield CaseDraft(place=f"row {row}", case={**case, "input": row, "expected": row})
        arguments.rows += arguments.fickle

    def files(self, arguments):
        return {"suite.yaml": "pack: counting\\ndescription: numbers\\n", "NOTICE": "by numbers\\n"}


class Csv(Counted):
    name = "csv"


class Counting(GenericPack):
    name = "counting"

    def for_suite(self, rules):
        return self

    def importers(self):
        return (Counted(), Csv())
"""


@pytest.fixture
def _installed_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with a pack, as far as Python can tell."""
    monkeypatch.delitem(sys.modules, "counting_pack", raising=False)
    Path("counting_pack.py").write_text(PACK, encoding="utf-8")
    info = Path("counting_pack-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-pack\nVersion: 1\n", encoding="utf-8")
    entry_point = "[pytest_packbench.packs]\ncounting = counting_pack:Counting\n"
    (info / "entry_points.txt").write_text(entry_point, encoding="utf-8")
    monkeypatch.syspath_prepend(str(Path.cwd()))


@pytest.mark.usefixtures("_installed_pack")
def test_a_pack_brings_its_own_kinds_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("counted --rows 3") == 0
    preview = "numbers: 3 cases (3 new): n 3\nthe first case, from row 0, for storage/benchmarks/numbers/"
    assert capsys.readouterr().out.startswith(preview)
    assert run("counted --rows 3 --write") == 0
    folder = Path("storage/benchmarks/numbers")
    assert sorted(path.name for path in folder.rglob("*.*")) == ["n0.json", "n1.json", "n2.json", "suite.yaml"]
    assert (folder / "NOTICE").read_text("utf-8") == "by numbers\n"
    (folder / "NOTICE").write_text("ours", encoding="utf-8")
    capsys.readouterr()
    assert run("counted --rows 4 --write") == 0
    assert (folder / "NOTICE").read_text("utf-8") == "ours"
    assert "wrote storage" not in capsys.readouterr().out
    # a kind whose name is used gets that of its pack in front
    assert run("csv t.csv --suite s", table="input,expected\na,b\n") == run("counting-csv --rows 1") == 0


@pytest.mark.usefixtures("_installed_pack")
def test_a_source_that_changes_while_it_is_read_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("counted --rows 2 --write --fickle") == 2
    assert "the source changed while it was read: 2 cases, then 3; run it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("page", "header"),
    [
        ("docs/generic.md", "text,currency,total\nInvoice,EUR,1.5\n"),
        ("pytest_packbench/packs/generic/starter/suite/README.md", "id,message,queue,order\na,m,q,7\n"),
    ],
)
def test_the_command_of_a_page_works(page: str, header: str) -> None:
    (line,) = re.findall(r"^ *packbench import (csv .*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert run(line.replace("SUITE_NAME", "s"), table=header, file="questions.csv") == 0


class Lines:
    """An import into one file of many cases."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "s" / "cases" / "all.jsonl"

    def checked(self, *drafts: CaseDraft, force: bool = False) -> list[CheckedCase | SourceFlaw]:
        return list(self._suite().checked(drafts, force=force))

    def write(self, *drafts: CaseDraft, force: bool = False, missing: int = 0) -> list[str]:
        """Import drafts; return the state of each, or why it can't be imported."""
        checked = self.checked(*drafts, force=force)
        number = sum(isinstance(entry, CheckedCase) for entry in checked)
        self._suite().write(iter(checked), expected=number + missing)
        return [entry.state if isinstance(entry, CheckedCase) else entry.message for entry in checked]

    def _suite(self) -> Any:
        return destination("s", self.root, GenericPack(), {"suite.yaml": "pack: generic\n"}, many="all.jsonl")

    def cases(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_bytes().split(b"\n")[:-1]]


def draft(name: str, answer: str = "x") -> CaseDraft:
    case = plain_case(name, pack_id="generic", input="\u2028é", expected=answer)
    return CaseDraft(place=f"source:{name}", case=case)


def test_an_import_into_a_file_of_lines_keeps_what_is_there(tmp_path: Path) -> None:
    lines = Lines(tmp_path)
    assert lines.write(draft("a"), draft("b"), draft("c")) == ["new", "new", "new"]
    assert lines.cases() == [draft("a").case, draft("b").case, draft("c").case]
    assert (tmp_path / "s" / "suite.yaml").exists()
    # a last line without a line end
    lines.file.write_bytes(lines.file.read_bytes().rstrip(b"\n"))
    exists = f"{lines.file.as_posix()}:2 already exists and differs; pass --force to replace it"
    assert lines.write(draft("b", "other"), draft("d")) == [exists, "new"]
    assert lines.write(draft("b", "other"), draft("a"), force=True) == ["replaced", "unchanged"]
    assert [(case["id"], case["expected"]) for case in lines.cases()] == [
        *(("a", "x"), ("b", "other"), ("c", "x"), ("d", "x"))
    ]


def test_a_case_with_its_own_file_is_not_written_into_a_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "s" / "cases" / "plain" / "A.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(draft("A").case), "utf-8")
    (flaw,) = Lines(tmp_path).checked(draft("a"), force=True)
    assert isinstance(flaw, SourceFlaw)
    assert flaw.message == f'/id: duplicate id "a", used in {file.as_posix()}; remove that case, or choose another id'


def test_a_source_that_lost_a_case_changes_no_line(tmp_path: Path) -> None:
    lines = Lines(tmp_path)
    lines.write(draft("a"))
    with pytest.raises(ValueError, match="the source changed while it was read: 2 cases, then 1"):
        lines.write(draft("b"), missing=1)
    assert [case["id"] for case in lines.cases()] == ["a"]
