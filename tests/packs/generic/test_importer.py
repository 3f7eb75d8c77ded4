"""`packbench import`: tables become cases, shown first, checked by the suite, never over what is there."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.commands import main
from pytest_packbench.commands.authoring import CheckedCase, Destination
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceDoubt, case_id
from pytest_packbench.model.case import CASE_ID
from pytest_packbench.packs.generic.importer import Csv
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.testing import case as plain_case

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from tests.conftest import ExpectedTexts

ROOT = Path(__file__).parents[3]
SCENARIOS = yaml.safe_load((Path(__file__).parent / "data" / "imports.yaml").read_text("utf-8"))
SUITE = Path("storage") / "benchmarks" / "s"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # the command adds the folder
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(words: str, table: bytes | None = None, file: str = "t.csv") -> int:
    if table is not None:
        Path(file).write_bytes(table)
    return main(["import", *shlex.split(words)])


def only_case() -> dict[str, Any]:
    (path,) = SUITE.glob("cases/*/*.json")
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return case


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
            code = run(step["run"])
            captured = capsys.readouterr()
            assert code == 0 or captured.err.count("\n") <= 1
            text += f"$ packbench import {step['run']}\n{captured.out}{captured.err}exit code {code}\n"
        written = sorted(path for path in Path().rglob("*/*/*") if path.is_file())
        text += "".join(f"{path.as_posix()}: {' '.join(path.read_text('utf-8').split())}\n" for path in written)
    assert "\x1b" not in text
    expected.check(text)


IDS = {"a": "a", "case-1_B": "case-1_B", "Where is it?": "Where_is_it", "../../etc/passwd": "etc_passwd", "_x": "x"}
IDS |= {"café": "cafe", "a\nb": "a_b", "x" * 120: "x" * 120, "x" * 121: "x" * 111 + "_79072a47"}


@given(st.text(min_size=1))
def test_any_text_becomes_an_id_that_can_name_a_file(text: str) -> None:
    converted = case_id(text)
    assert re.fullmatch(CASE_ID, converted)
    assert len(converted) <= 120
    assert case_id(converted) == converted
    assert {example: case_id(example) for example in IDS} == IDS
    # texts in other scripts stay different
    assert len({case_id(text) for text in ("東京", "大阪", "q 東京", "q 大阪", "x" * 200, "x" * 201)}) == 6


@pytest.mark.parametrize(
    ("content", "words", "error"),
    [
        (b"\xef\xbb\xbfinput,expected\r\n\xc3\xa9,e\r\n", "", ""),
        (b"input;expected\n\xe9;e\n", "--delimiter ';' --encoding cp1252", ""),
        ("input\texpected\né\te\n".encode("utf-16"), "--delimiter tab --encoding utf-16", ""),
        (" input , expected\né,e".encode(), "", ""),
        (b"input,expected\n1,2\n\xe9,2\n", "", "t.csv:3: not encoded in UTF-8; save the file as UTF-8, or pass "),
        (b"input,expected\n\xe9,2\n", "--encoding ascii", "t.csv:2: not encoded in ASCII; save the file as UTF-8, or "),
    ],
)
def test_formats_of_csv(content: bytes, words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"csv t.csv --suite s --write {words}", content) == (2 if error else 0)
    if error:
        assert capsys.readouterr().err.startswith(f"packbench: {error}")
    else:
        assert (only_case()["input"], only_case()["expected"]) == ("é", "e")


CELL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5))
def test_cells_survive_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    parser = ArgumentParser()
    Csv().add_arguments(parser)
    read = Csv().read(parser.parse_args([str(path), "--input", "a", "--expected", "b"]))
    # what looks like an error of a spreadsheet is a doubt beside its row
    drafts = [one for one in read if not isinstance(one, SourceDoubt)]
    assert [(one.case["input"], one.case["expected"]) for one in drafts if isinstance(one, CaseDraft)] == rows
    assert len(drafts) == len(rows)


def test_a_cell_may_contain_a_document_of_which_the_beginning_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    # the limit of csv, a setting of the whole process
    csv.field_size_limit(131_072)
    run("csv t.csv --suite s", b"input,expected\n" + b"x" * 1_000_000 + b",e\n")
    assert len(capsys.readouterr().out) < 5_000
    assert run("csv t.csv --suite s --write") == 0
    assert len(only_case()["input"]) == 1_000_000
    assert csv.field_size_limit() == 131_072


PACK = """
from pytest_packbench.model.authoring import CaseDraft, Importer, Tools
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.testing import case


class Counted(Importer):
    name, help, suite = "counted", "rows by number", "numbers"

    def add_arguments(self, parser):
        parser.add_argument("--rows", type=int)

    def read(self, arguments):
        for row in range(arguments.rows):
            yield CaseDraft(place=f"row {row}", case=case(f"n{row}", pack_id="counting", input=row, expected=row))

    def files(self, arguments):
        return {"suite.yaml": "pack: counting\\n", "NOTICE": "by numbers\\n"}


class Csv(Counted):
    name = "csv"


class CountingTools(Tools):
    importers = lambda self: (Counted(), Csv())


class Counting(GenericPack):
    name = "counting"
    tools = lambda self: CountingTools()
"""


def test_a_pack_brings_its_own_kinds_and_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # an installed distribution, as far as Python can tell
    monkeypatch.delitem(sys.modules, "counting_pack", raising=False)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("counting_pack.py").write_text(PACK, encoding="utf-8")
    info = Path("counting_pack-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-pack\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[pytest_packbench.packs]\ncounting = counting_pack:Counting\n", "utf-8")

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
    assert run("csv t.csv --suite s", b"input,expected\na,b\n") == run("counting-csv --rows 1") == 0


def test_what_is_imported_passes_lint_in_the_order_of_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"input": f"question {number}", "expected": {"a": number}} for number in (5, 3, 9, 1)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    assert (
        run("jsonl t.json --suite s --write", b"\xef\xbb\xbf \n" + json.dumps(rows, indent=1).encode(), "t.json") == 0
    )
    assert main(["lint", "s"]) == 0
    assert "4 of 4 cases without the day on which the answer was verified" in capsys.readouterr().out
    names = sorted(path.name for path in SUITE.glob("cases/*/*.json"))
    inputs = [json.loads((SUITE / "cases/plain" / name).read_text("utf-8"))["input"] for name in names]
    assert inputs == [row["input"] for row in rows]
    # the same rows as lines, and in another order, are the same cases
    assert run("jsonl t.json --suite s --write", lines, "t.json") == 0
    assert run("jsonl t.json --suite s --write", b"\n".join(reversed(lines.split(b"\n"))), "t.json") == 0
    assert sorted(path.name for path in SUITE.glob("cases/*/*.json")) == names
    assert run("csv t.csv --suite d --date =2026-02-28 --write", b"input,expected\na,b\nc,d\n") == 0
    capsys.readouterr()
    assert main(["lint", "d"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


PAGES = {
    "docs/generic.md": b"text,currency,total\nInvoice,EUR,1.5\n",
    "pytest_packbench/packs/generic/starter/suite/README.md": b"id,message,queue,order\na,m,q,7\n",
}


@pytest.mark.parametrize("page", PAGES)
def test_the_command_of_a_page_works(page: str) -> None:
    (line,) = re.findall(r"^ *packbench import (csv .*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert run(line.replace("SUITE_NAME", "s"), PAGES[page], "questions.csv") == 0


def draft(name: str, answer: str = "x") -> CaseDraft:
    case = plain_case(name, pack_id="generic", input=f"\u2028é {name}", expected=answer)
    return CaseDraft(place=f"source:{name}", case=case)


class Lines(Importer):
    """Drafts that go into one file of many cases."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """There are none."""

    def read(self, arguments: argparse.Namespace) -> Iterable[CaseDraft]:
        raise NotImplementedError

    def many(self, arguments: argparse.Namespace) -> str:
        return "all.jsonl"

    def files(self, arguments: argparse.Namespace) -> dict[str, str]:
        return {"suite.yaml": "pack: generic\n"}


def write_lines(*drafts: CaseDraft, force: bool = False, missing: int = 0) -> list[str]:
    """Import drafts into one file of many cases; return the state of each, or why it can't be imported."""
    importer = (GenericPack(), Lines())
    suite = Destination(Namespace(suite="s", root=Path(), force=force, importer=importer))
    checked = list(suite.checked(drafts))
    suite.write(checked, expected=sum(isinstance(entry, CheckedCase) for entry in checked) + missing)
    return [entry.state if isinstance(entry, CheckedCase) else entry.message for entry in checked]


def cases_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


def test_an_import_into_a_file_of_lines_keeps_what_is_there() -> None:
    file, single = Path("s/cases/all.jsonl"), Path("s/cases/plain/E.json")
    assert write_lines(draft("a"), draft("b"), draft("c")) == ["new", "new", "new"]
    assert cases_in(file) == [draft("a").case, draft("b").case, draft("c").case]
    assert Path("s/suite.yaml").exists()
    # a last line without a line end
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    exists = "s/cases/all.jsonl:2 already exists and differs; pass --force to replace it"
    assert write_lines(draft("b", "other"), draft("d")) == [exists, "new"]
    assert write_lines(draft("b", "other"), draft("a"), force=True) == ["replaced", "unchanged"]
    # a case with a file of its own, and a source that lost a case
    single.parent.mkdir()
    single.write_text(json.dumps(draft("E").case), "utf-8")
    duplicate = f'/id: duplicate id "e", used in {single.as_posix()}; remove that case, or choose another id'
    assert write_lines(draft("e"), force=True) == [duplicate]
    with pytest.raises(ValueError, match="the source changed while it was read: 2 cases, then 1"):
        write_lines(draft("f"), missing=1)
    answers = [(case["id"], case["expected"]) for case in cases_in(file)]
    assert answers == [("a", "x"), ("b", "other"), ("c", "x"), ("d", "x")]
