"""`packbench import`: tables become cases, shown first, checked by the suite, never over what is there."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.api import load_suite
from pytest_packbench.cases.load import parse_case
from pytest_packbench.cli import main
from pytest_packbench.model.case import CASE_ID
from pytest_packbench.packs.generic.importer import case_id
from pytest_packbench.packs.generic.model import GenericCase
from pytest_packbench.packs.generic.tables import CsvFormat, TableRow, csv_rows

ROOT = Path(__file__).parents[2]
SUITE = Path("storage") / "benchmarks" / "s"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # the command adds the folder
    monkeypatch.setattr(sys, "path", [*sys.path])


def write_table(text: str | bytes, name: str = "t.csv") -> None:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def run(*words: str, kind: str = "csv", file: str = "t.csv") -> int:
    return main(["import", kind, file, "--suite", "s", *words])


def cases() -> dict[str, dict[str, Any]]:
    found = {}
    for path in SUITE.glob("cases/*/*.json"):
        case = parse_case(path.read_bytes(), GenericCase, source=str(path), stem=path.stem, pack="generic").case
        assert case.case_type == path.parent.name
        found[path.stem] = json.loads(path.read_text("utf-8"))
    return found


def only_case() -> dict[str, Any]:
    (case,) = cases().values()
    return case


def test_without_write_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\nb,two,2\n")
    assert run() == 0
    assert [path.name for path in Path().iterdir()] == ["t.csv"]
    said = capsys.readouterr().out
    assert said.startswith(
        "s: 2 cases (2 new): plain 2\nthe first case, from t.csv:2, for storage/benchmarks/s/cases/plain/a.json:\n{\n"
    )
    assert '\n  "input": "one",\n' in said
    assert '"two"' not in said
    assert said.endswith("\nand the file storage/benchmarks/s/suite.yaml\nnothing was written; pass --write to write\n")


def test_what_is_written_is_what_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\n")
    run()
    shown = capsys.readouterr().out
    assert run("--write") == 0
    assert (SUITE / "cases/plain/a.json").read_text("utf-8") in shown
    out = capsys.readouterr().out
    assert out.startswith("s: wrote 1 case (1 new): plain 1\nwrote storage/benchmarks/s/suite.yaml\n")
    assert out.endswith("run it: pytest --packbench-suite=s --packbench-target=package.module:function\n")


def test_columns_become_a_case() -> None:
    write_table(
        'nr,question,context,answer,sure,kind,hard?,labels,who,day\n7,q,c,a,0.5,How To,HARD,"x; y,x",expert,2026-01-31\n'
    )
    words = (
        "--id nr --input question,text=context --expected answer,p=sure --json sure --case-type kind --difficulty hard?"
    )
    assert run(*words.split(), "--tags", "labels", "--source", "who", "--date", "day", "--write") == 0
    assert only_case() == {
        "id": "7",
        "pack_id": "generic",
        "case_type": "how_to",
        "difficulty": "hard",
        "input": {"question": "q", "text": "c"},
        "expected": {"answer": "a", "p": 0.5},
        "notes": {"source": "expert", "date": "2026-01-31", "tags": ["x", "y"]},
    }
    rules = load_suite(SUITE).config.model_dump()
    assert [(one["rule"], one["path"]) for one in rules["criteria"]] == [("exact", "/answer"), ("exact", "/p")]


def test_columns_of_our_own_names_need_no_option() -> None:
    write_table("tags,difficulty,case_type,date,expected,input,id\na,expert,answer,2026-01-31,e,i,x\n")
    assert run("--write") == 0
    assert only_case() == {
        "id": "x",
        "pack_id": "generic",
        "case_type": "answer",
        "difficulty": "expert",
        "input": "i",
        "expected": "e",
        "notes": {"source": "t.csv", "date": "2026-01-31", "tags": ["a"]},
    }


def test_values_for_all_rows() -> None:
    write_table("input,expected\ni,e\n")
    assert (
        run("--case-type", "=answer", "--difficulty", "=easy", "--tags", "=a,b", "--source", "=expert", "--write") == 0
    )
    case = only_case()
    assert (case["case_type"], case["difficulty"]) == ("answer", "easy")
    assert case["notes"] == {"source": "expert", "tags": ["a", "b"]}


def test_a_column_with_a_comma_or_a_sign_in_its_name() -> None:
    write_table('"a,b",c=d,expected\n1,2,3\n')
    assert run("--input", "a,b", "--input", "c=d", "--write") == 0
    assert only_case()["input"] == {"a,b": "1", "c=d": "2"}


def test_text_stays_text_unless_it_is_declared_as_json() -> None:
    write_table("input,expected\n007,true\n")
    assert run("--write") == 0
    assert (only_case()["input"], only_case()["expected"]) == ("007", "true")
    assert run("--write", "--json", "expected", "--id", "input") == 0
    assert cases()["007"]["expected"] is True


def test_empty_cells() -> None:
    write_table("id,input,a,b\nx,i,,1\n")
    assert run("--expected", "a,b", "--json", "b", "--write") == 0
    assert only_case()["expected"] == {"a": "", "b": 1}
    assert run("--expected", "a,b", "--json", "a,b") == 2
    assert run("--expected", "refuse=b,a", "--omit-empty", "--force", "--write") == 2


def test_omit_empty_leaves_keys_out() -> None:
    write_table("id,input,refuse,answer\nx,i,true,\ny,i,,a\n")
    assert run("--expected", "refuse,answer", "--json", "refuse", "--omit-empty", "--write") == 0
    assert {name: case["expected"] for name, case in cases().items()} == {"x": {"refuse": True}, "y": {"answer": "a"}}


def test_ids_from_the_content_are_stable() -> None:
    write_table("input,expected\none,1\ntwo,2\n")
    assert run("--write") == 0
    before = cases()
    write_table("expected,input\n2,two\n1,one\n")
    assert run("--write") == 0
    assert cases() == before
    assert all(re.fullmatch(r"case_[0-9a-f]{16}", name) for name in before)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a", "a"),
        ("case-1_B", "case-1_B"),
        ("Where is it?", "Where_is_it"),
        ("../../etc/passwd", "etc_passwd"),
        ("_x", "x"),
        ("café", "cafe"),
        ("a\nb", "a_b"),
    ],
)
def test_ids_that_can_name_files(text: str, made: str) -> None:
    assert case_id(text) == made


@given(st.text(min_size=1))
def test_any_text_makes_an_id(text: str) -> None:
    made = case_id(text)
    assert re.fullmatch(CASE_ID, made)
    assert len(made) <= 120
    assert case_id(made) == made


def test_texts_of_other_scripts_stay_different() -> None:
    made = {case_id(text) for text in ("東京", "大阪", "q 東京", "q 大阪", "x" * 200, "x" * 201)}
    assert len(made) == 6


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("a,other,2", 'duplicate id "a", first used at t.csv:2'),
        ("A,other,2", 'duplicate id "A", first used at t.csv:2'),
    ],
)
def test_two_of_one_id(capsys: pytest.CaptureFixture[str], second: str, message: str) -> None:
    write_table(f"id,input,expected\na,one,1\n{second}\nc,three,3\n")
    assert run() == 2
    out = capsys.readouterr().out
    assert f"  t.csv:3: /id: {message}" in out
    assert out.startswith("s: 2 cases")


def test_two_of_one_content(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("input,expected\none,1\none,1\none,2\n")
    assert run() == 2
    out = capsys.readouterr().out
    assert re.search(r'  t\.csv:3: /id: duplicate id "case_[0-9a-f]+", first used at t\.csv:2', out)
    assert out.startswith("s: 2 cases")


def test_bad_rows_are_named_and_hide_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(
        'id,input,expected,difficulty\na,"two\nlines",1,easy\nb,short\nc,x,1,easy,more\nd,x,1,trivial\n\n , , ,\n'
        ',x,1,easy\nf,x,"1"2,easy\ng,"say ""so""",1,easy\n'
    )
    assert run() == 2
    out = capsys.readouterr().out
    assert out.startswith("s: 2 cases (2 new): plain 2\n5 entries of the source can't be imported:\n")
    for line in (
        "  t.csv:4: 2 cells, but 4 in the header; quote cells",
        "  t.csv:5: 5 cells, but 4 in the header; quote cells",
        '  t.csv:6: the difficulty is "trivial"; expected one of easy, medium, hard, expert\n',
        '  t.csv:9: the id is empty; add a value in "id"\n',
        "  t.csv:10: invalid CSV: ',' expected after '\"'; look for an unclosed quote\n",
    ):
        assert line in out
    assert out.endswith(
        "nothing was written; correct the source, or pass --skip-bad to skip entries that can't be imported\n"
    )


def test_bad_rows_keep_all_from_being_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\nb\nc,three,3\n")
    assert run("--write") == 2
    assert not SUITE.exists()
    assert run("--write", "--skip-bad") == 0
    assert set(cases()) == {"a", "c"}
    out = capsys.readouterr().out
    assert "s: wrote 2 cases (2 new): plain 2\n1 entry of the source can't be imported:\n  t.csv:3: 1 cell," in out


def test_only_the_first_flaws_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("input,expected\n" + "x\n" * 50)
    assert run() == 2
    out = capsys.readouterr().out
    assert out.count("  t.csv:") == 20
    assert "  and 30 more\n" in out


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\nb,two,2\n")
    run("--write")
    write_table("id,input,expected\na,one,1\nb,two,3\n")
    before = cases()
    assert run("--write") == 2
    assert cases() == before
    assert (
        "  t.csv:3: storage/benchmarks/s/cases/plain/b.json already exists and differs; pass --force"
        in capsys.readouterr().out
    )
    assert run("--write", "--force") == 0
    assert capsys.readouterr().out.startswith("s: wrote 2 cases (1 unchanged, 1 replaced): plain 2\n")
    assert cases()["b"]["expected"] == "3"


def test_the_same_again_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\n")
    run("--write")
    path = SUITE / "cases/plain/a.json"
    # as an editor may have left it
    text = json.dumps({"$schema": "case.schema.json", **json.loads(path.read_text("utf-8"))})
    path.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert run("--write") == 0
    assert capsys.readouterr().out.startswith("s: wrote 1 case (1 unchanged): plain 1\n")
    assert path.read_text("utf-8") == text


def test_an_id_of_another_type_is_not_moved(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected\na,one,1\n")
    run("--write")
    assert run("--write", "--force", "--case-type", "=other") == 2
    assert '/id: duplicate id "a", used in storage/benchmarks/s/cases/plain/a.json; remove' in capsys.readouterr().out


def test_the_rules_of_the_suite_decide(capsys: pytest.CaptureFixture[str]) -> None:
    SUITE.mkdir(parents=True)
    rules = "pack: generic\ntarget: my:own\ncriteria: [{exact: /queue}]\ninput_schema: {type: string, maxLength: 3}\n"
    (SUITE / "suite.yaml").write_text(rules, encoding="utf-8")
    write_table("id,input,queue\na,one,x\nb,longer,x\n")
    assert run("--expected", "queue=queue", "--write", "--skip-bad") == 0
    out = capsys.readouterr().out
    assert "  t.csv:3: /input: " in out
    assert out.endswith("run it: pytest --packbench-suite=s\n")
    assert set(cases()) == {"a"}
    assert (SUITE / "suite.yaml").read_text("utf-8") == rules
    assert run("--expected", "other=queue") == 2
    assert '  t.csv:2: /expected/queue: no value at /queue for the criterion "exact /queue"' in capsys.readouterr().out


def test_a_suite_of_another_pack(capsys: pytest.CaptureFixture[str]) -> None:
    SUITE.mkdir(parents=True)
    (SUITE / "suite.yaml").write_text("pack: tariff\n", encoding="utf-8")
    write_table("input,expected\na,b\n")
    assert run() == 2
    assert 'the suite belongs to pack "tariff", the cases to pack "generic"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("", [], "t.csv: the file is empty; expected a first line with the names of the columns"),
        ("a,b\n1,2\n", [], 't.csv: no column "input"; set another one with --input; columns: a, b'),
        ("input,expected\n1,2\n", ["--json", "x"], 'no column "x"; set another one with --json'),
        ("input,a,a\n1,2,3\n", [], 't.csv:1: duplicate column "a"'),
        (
            "input;expected\n1;2\n",
            [],
            "t.csv:1: a single column, \"input;expected\"; to split it, pass --delimiter ';'",
        ),
        (
            b"input,expected\n1,2\n\xe9,2\n",
            [],
            "t.csv:3: not encoded in UTF-8; save the file as UTF-8, or pass --encoding",
        ),
        ("input,expected\n1,2\n", ["--encoding", "utf-99"], 'unknown encoding "utf-99"'),
        ("input,expected\n1,2\n", ["--delimiter", "ab"], '--delimiter: got "ab"; expected one character'),
    ],
)
def test_a_file_that_cant_be_read(
    capsys: pytest.CaptureFixture[str], content: str | bytes, words: list[str], message: str
) -> None:
    write_table(content)
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("packbench: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_no_file_and_no_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file="nowhere.csv") == 2
    assert capsys.readouterr().err == "packbench: nowhere.csv: No such file or directory\n"
    assert run(file=".") == 2
    assert capsys.readouterr().err == "packbench: .: expected a regular file\n"
    write_table("input,expected\na,b\n")
    assert main(["import", "csv", "t.csv", "--suite", "../s"]) == 2
    assert "invalid suite name" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["import", "csv", "t.csv"])
    assert stop.value.code == 2


def test_a_header_alone_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("input,expected\n")
    assert run("--write") == 2
    assert capsys.readouterr().out == "s: 0 cases\nno case to import; nothing was written\n"
    assert not SUITE.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xef\xbb\xbfinput,expected\r\n\xc3\xa9,e\r\n", []),
        (b"input;expected\n\xe9;e\n", ["--delimiter", ";", "--encoding", "cp1252"]),
        ("input\texpected\né\te\n".encode("utf-16"), ["--delimiter", "tab", "--encoding", "utf-16"]),
        (" input , expected\né,e".encode(), []),
    ],
)
def test_forms_of_csv(content: bytes, words: list[str]) -> None:
    write_table(content)
    assert run("--write", *words) == 0
    assert (only_case()["input"], only_case()["expected"]) == ("é", "e")


CELL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5))
def test_a_cell_comes_out_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    read = [row.values if isinstance(row, TableRow) else row for row in csv_rows(path, CsvFormat())]
    assert read == [{"a": a, "b": b} for a, b in rows]


def test_cells_of_whole_documents() -> None:
    write_table("input,expected\n" + "x" * 1_000_000 + ",e\n")
    # csv's own limit, and a setting of the whole process
    csv.field_size_limit(131_072)
    assert run("--write") == 0
    assert len(only_case()["input"]) == 1_000_000
    assert csv.field_size_limit() == 131_072


def test_a_long_case_is_shown_cut(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("input,expected\n" + "x" * 50_000 + ",e\n")
    run()
    assert len(capsys.readouterr().out) < 5_000


def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("id,input,expected,difficulty\na,\x1b[31m\u202e,e,easy\nb,x,e,\x1b[31m\n")
    run()
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_json_lines() -> None:
    lines = [
        '{"id": 7, "input": {"q": [1, null]}, "expected": true, "tags": ["a"], "difficulty": "hard"}',
        "",
        '{"input": "\\ud800", "expected": 1.5, "tags": null}',
    ]
    write_table("\ufeff" + "\r\n".join(lines), "t.jsonl")
    assert run("--write", kind="jsonl", file="t.jsonl") == 0
    found = cases()
    seven = found.pop("7")
    assert (seven["input"], seven["expected"], seven["difficulty"]) == ({"q": [1, None]}, True, "hard")
    assert seven["notes"] == {"source": "t.jsonl", "tags": ["a"]}
    (other,) = found.values()
    assert (other["input"], other["expected"], other["notes"]) == ("\ud800", 1.5, {"source": "t.jsonl"})


def test_pointers_into_json_lines() -> None:
    write_table('{"m": [{"text": "hi"}], "out": {"queue": "q", "n": 1}, "/x": 2}\n', "t.jsonl")
    words = ["--input", "/m/0/text", "--expected", "/out/queue,number=/out/n,x=/x", "--write"]
    assert run(*words, kind="jsonl", file="t.jsonl") == 0
    assert (only_case()["input"], only_case()["expected"]) == ("hi", {"queue": "q", "number": 1, "x": 2})


def test_bad_lines_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(
        '{"input": 1, "expected": 2}\n{"input": 1,}\n[1]\n{"input": 1}\n{"input": 1, "expected": NaN}\n', "t.jsonl"
    )
    assert run(kind="jsonl", file="t.jsonl") == 2
    out = capsys.readouterr().out
    assert out.startswith("s: 1 case ")
    for line in (
        "  t.jsonl:2: column 12: trailing comma; remove the comma",
        "  t.jsonl:3: got [1]; expected a JSON object",
        '  t.jsonl:4: "expected" is missing; keys in this row: input',
        "  t.jsonl:5: NaN is not JSON",
    ):
        assert line in out


@pytest.mark.parametrize("text", ['[{"input": 1}]', '[\n{"input": 1}\n]\n'])
def test_a_list_is_no_json_lines(capsys: pytest.CaptureFixture[str], text: str) -> None:
    write_table(text, "t.jsonl")
    assert run(kind="jsonl", file="t.jsonl") == 2
    assert "t.jsonl:1: a JSON list; expected one object per line" in capsys.readouterr().err


def test_a_source_that_changes_while_it_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    assert main(["import", "counted", "--rows", "2", "--write", "--fickle"]) == 2
    assert "the source changed while it was read: 2 cases, then 3; run it again" in capsys.readouterr().err


PACK = """
from pytest_packbench.model.pack import CaseDraft, SourceFlaw, Importer
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


def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution with a pack, as far as Python can tell."""
    monkeypatch.delitem(sys.modules, "counting_pack", raising=False)
    Path("counting_pack.py").write_text(PACK, encoding="utf-8")
    info = Path("counting_pack-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-pack\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[pytest_packbench.packs]\ncounting = counting_pack:Counting\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))


def test_a_pack_brings_kinds_of_its_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    assert main(["import", "counted", "--rows", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("numbers: 3 cases (3 new): n 3\nthe first case, from row 0, for storage/benchmarks/numbers/")
    assert main(["import", "counted", "--rows", "3", "--write"]) == 0
    folder = Path("storage/benchmarks/numbers")
    assert sorted(path.name for path in folder.rglob("*.*")) == ["n0.json", "n1.json", "n2.json", "suite.yaml"]
    assert (folder / "NOTICE").read_text("utf-8") == "by numbers\n"
    (folder / "NOTICE").write_text("ours", encoding="utf-8")
    assert main(["import", "counted", "--rows", "4", "--write"]) == 0
    assert (folder / "NOTICE").read_text("utf-8") == "ours"
    assert "wrote storage" not in capsys.readouterr().out.partition("3 unchanged")[2]


def test_no_kind_hides_another(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    write_table("input,expected\na,b\n")
    assert run() == 0
    assert main(["import", "counting-csv", "--rows", "1"]) == 0


@pytest.mark.parametrize(
    ("page", "header"),
    [
        ("docs/generic.md", "text,currency,total\nInvoice,EUR,1.5\n"),
        ("pytest_packbench/packs/generic/starter/suite/README.md", "id,message,queue,order\na,m,q,7\n"),
    ],
)
def test_the_command_that_a_page_shows(page: str, header: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    (line,) = re.findall(r"^ *packbench (import csv .*)$", text, re.MULTILINE)
    write_table(header, "questions.csv")
    assert main(shlex.split(line.replace("SUITE_NAME", "s"))) == 0
