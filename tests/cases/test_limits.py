"""Each kind of file is read up to its limits, and one line says what to do about what is beyond them."""

from __future__ import annotations

import os
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from pytest_packbench import files
from pytest_packbench.cases.finder import case_counts, suite_locations
from pytest_packbench.cases.load import load_case, parse_case, parse_json, parse_yaml, read_suite
from pytest_packbench.commands import main
from pytest_packbench.files import LIMITS, Limit, lines_of, open_regular, read_line, read_regular
from pytest_packbench.model.case import Case
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.packs.generic.suite import GenericSuiteConfig
from pytest_packbench.packs.generic.values import MISSING, CriterionError, compile_path
from tests.doc_blocks import ROOT

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
CHAIN = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 300)]
YAML = {
    "gates:\n  - max: &a [*a]\n": "line 2: an alias contains itself; write out the value",
    BOMB: "line 5: has more than 50,000 values, aliases written out; use fewer aliases",
    "\n".join(CHAIN): "line 100: nested deeper than 100; remove levels",
    MERGES: "has more than 50,000 values, aliases written out; use fewer aliases",
    "description: " + "x " * 1_000_000: "is larger than 1 MiB; remove what is not a rule of the suite",
    "a: " + "[" * 150 + "]" * 150: "line 1: nested deeper than 100; remove levels",
    "a: " + "[" * 5000: "nested deeper than 100; remove levels",
    "\n".join(f"k{n}: 1" for n in range(20_000)) + "\nk7: 2": 'line 20001: duplicate key "k7"; keep one',
    "? !!binary aGk=\n: 1\npack: 5": "/pack: unknown pack 5; expected one of generic",
    'pack: generic\n"\\uD800": 1\n': r'got the key "\ud800"; expected a string of valid Unicode',
    'pack: generic\n"\\e[31m": 1\n': r'unknown key "\x1b[31m"',
}


@pytest.mark.parametrize("text", YAML, ids=[each[:20] for each in YAML])
def test_yaml_that_stands_for_too_much_is_refused_at_once(tmp_path: Path, text: str, yardstick: float) -> None:
    (tmp_path / "suite.yaml").write_text(text, "utf-8")
    before = time.process_time()
    with pytest.raises(SuiteError) as caught:
        read_suite(tmp_path, {"generic": GenericSuiteConfig}, source="s/suite.yaml")
    assert time.process_time() - before < 300 * yardstick
    assert str(caught.value).startswith("s/suite.yaml: ")
    assert YAML[text] in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_document_with_aliases_within_the_limits_is_read() -> None:
    assert len(parse_yaml("\n".join(CHAIN[:99]).encode(), source="x")) == 99
    text = "a: &a {k: [1, 2]}\nb: *a\nc: [*a, *a]\nd: {<<: *a, m: 3}\n"
    inner = {"k": [1, 2]}
    assert parse_yaml(text.encode(), source="x") == {
        "a": inner,
        "b": inner,
        "c": [inner, inner],
        "d": {**inner, "m": 3},
    }


SMALL = Limit(200, "advice", 40, 5)
JSON: dict[bytes, str] = {
    b'{"a": "' + b"x" * 200 + b'"}': "is larger than 200 bytes; advice",
    b"[" + b"1," * 60 + b"1]": "has more than 40 values; advice",
    b'{"a": {"b": {"c": {"d": {"e": [[1]]}}}}}': "/a/b: nested deeper than 5; remove levels",
}


@pytest.mark.parametrize("raw", JSON)
def test_json_is_bounded(raw: bytes) -> None:
    with pytest.raises(ValueError, match="; ") as caught:
        parse_json(raw, SMALL)
    assert str(caught.value) == JSON[raw]
    assert parse_json(raw, Limit(1000, values=100, depth=10)) is not None


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    raw = b'{"a": "' + b'[{,\\"' * 30 + b'"}'
    assert parse_json(raw, SMALL) == {"a": '[{,"' * 30}
    assert parse_json(b'"[[[[[["', SMALL) == "[" * 6


def test_a_case_names_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = b'{"id": "a", "input": ' + b"[" * 150 + b"]" * 150 + b"}"
    with pytest.raises(CaseError, match=r"^cases/a\.json: /input/0: nested deeper than 100; remove levels$"):
        parse_case(deep, Case, source="cases/a.json", stem="a", pack=None)


def test_only_regular_files_are_opened_and_none_that_is_too_large(tmp_path: Path) -> None:
    pipe, large, folder = tmp_path / "pipe", tmp_path / "large", tmp_path / "folder"
    os.mkfifo(pipe)
    large.write_bytes(b"first\n" + b"x" * 300 + b"\nlast")
    folder.mkdir()
    readers: list[Any] = [lambda path: read_regular(path, SMALL), lambda path: read_line(path, 6, SMALL)]
    readers.append(lambda path: open_regular(path).__enter__())
    for read in readers:
        with pytest.raises(OSError, match=r"pipe: is a named pipe, not a file; replace it by a file, or remove it"):
            read(pipe)
        with pytest.raises(OSError, match="is a device, not a file") as caught:
            read("/dev/zero")
        # workers of xdist send it
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - made here
        with pytest.raises(IsADirectoryError):
            read(folder)
    with pytest.raises(OSError, match=r"large: is larger than 200 bytes; advice"):
        read_regular(large, SMALL)
    assert len(read_line(large, 6, SMALL)) == 201
    assert read_line(large, 0, SMALL) == b"first\n"
    assert read_line(large, 307, SMALL) == b"last"
    # a file of the system states no size
    assert read_regular("/proc/self/status", Limit(1_000_000)).startswith(b"Name:")
    with pytest.raises(OSError, match="status: is larger than 100 bytes"):
        read_regular("/proc/self/status", Limit(100))


def test_a_line_of_any_length_is_read_up_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for size in (1, 4095, 4096, 4097, files.MIB * 2):
        path.write_bytes(b"x\n" + b"y" * size + b"\nz")
        assert read_line(path, 2, LIMITS["case"]) == b"y" * size + b"\n"
    with open_regular(path) as file:
        assert list(lines_of(file, SMALL)) == [b"x\n", b"y" * 201, b"z"]
    path.write_bytes(b"y" * 5000)
    assert read_line(path, 0, LIMITS["case"]) == b"y" * 5000


@pytest.mark.parametrize(
    "text",
    ["$..[?$..*]", "$..[?@..[?@..[?$..d]]]", "$..*..*..nothing", "$[?@..b]..c", "$.a[?$.c[*]]", "$.a[?$['b'][0:2]]"],
)
def test_a_json_path_that_may_visit_a_value_many_times_is_refused_with_the_suite(text: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        compile_path(text)
    assert caught.value.context == {
        "wrong": f'"{text}" may visit a value many times',
        "expected": "at most one .., one list with commas, and in a filter $ with keys and indexes only",
    }


def test_a_json_path_visits_each_value_once_for_each_of_its_parts(yardstick: float) -> None:
    document: Any = {f"a{i}": {f"b{j}": {f"c{k}": [{"d": k}] for k in range(29)} for j in range(30)} for i in range(30)}
    assert len(compile_path("$..c1").find(document)) == 900
    assert compile_path("$.a1.b2.c3[?@.d == 3].d").find(document) == [3]
    assert compile_path("$.a1[?@.c1[0].d == $['a1'].b2.c1[0]['d']]..d").find(document) == [*range(29)] * 30
    assert compile_path("$[?@.b1['..'] == '$.a[*]..']").find(document) is MISSING
    before = time.process_time()
    assert compile_path("$..[?@.nothing]").find(document) is MISSING
    assert compile_path("$.*[?@..nothing]").find(document) is MISSING
    assert compile_path("$[?@[?@[?@..nothing]]]").find(document) is MISSING
    assert time.process_time() - before < 150 * yardstick
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(CriterionError, match="recursion limit exceeded in the value; expected fewer levels"):
        compile_path("$..x").find(deep)


def test_the_limits_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    listed = {cells[0].split("`")[1]: cells[1:] for cells in rows if cells[1].endswith(("MiB", " bytes"))}
    assert listed.keys() == LIMITS.keys()
    for name, (size, values, depth) in listed.items():
        limit = LIMITS[name]
        assert size == files.format_size(limit.size), name
        assert (values, depth) in {("", ""), (f"{limit.values:,}", str(limit.depth))}, name


def linked_suite(folder: Path) -> Path:
    suite = folder / "suites" / "toy"
    for name in ("cases", "fixtures/controls"):
        (suite / name).mkdir(parents=True)
    (suite / "suite.yaml").write_text("pack: generic\n", "utf-8")
    return suite


def test_links_of_a_suite_lead_nowhere_out_of_the_project(tmp_path: Path) -> None:
    secret, project = tmp_path / "secret", tmp_path / "project"
    secret.mkdir()
    (secret / "token.json").write_text('{"token": "abc"}', "utf-8")
    suite = linked_suite(project)
    (project / ".git" / "annex").mkdir(parents=True)
    for path in (project / "shared.json", project / ".git" / "config.json", project / ".git" / "annex" / "a.json"):
        path.write_text("{}", "utf-8")
    link = suite / "cases" / "link.json"
    lines = {"../../../shared.json": True, "../../../.git/annex/a.json": True, "../../../.git/config.json": False}
    for target, is_inside in {
        **lines,
        "../../../../secret/token.json": False,
        str(secret / "token.json"): False,
    }.items():
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        if is_inside:
            assert read_regular(link, LIMITS["case"]) == read_line(link, 0, LIMITS["case"]) == b"{}"
        else:
            for read in (read_regular, partial(read_line, start=0)):
                with pytest.raises(OSError, match=r"link\.json: is a link that leaves the project; replace it by"):
                    read(link, limit=LIMITS["case"])
        # what is not of a suite is the user's choice
        assert read_regular(link, LIMITS["import"]).startswith(b"{")


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_named_like_the_rules_opens_no_other_folder(tmp_path: Path, *, exists: bool) -> None:
    secret, suite = tmp_path / "secret", linked_suite(tmp_path / "project")
    secret.mkdir()
    (secret / "token.json").write_text('{"token": "abc"}', "utf-8")
    if exists:
        (secret / "suite.yaml").write_text("pack: generic\n", "utf-8")
    (suite / "cases" / "suite.yaml").symlink_to(secret / "suite.yaml")
    (suite / "cases" / "link.json").symlink_to(secret / "token.json")
    with pytest.raises(OSError, match="is a link that leaves the project"):
        read_regular(suite / "cases" / "link.json", LIMITS["case"])


def test_the_folder_of_a_suite_and_its_rules_may_be_links(tmp_path: Path) -> None:
    real, project = linked_suite(tmp_path / "elsewhere"), tmp_path / "project"
    (real / "cases" / "a.json").write_text("{}", "utf-8")
    (real / "cases" / "b.json").symlink_to("a.json")
    (project / "suites").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (project / "suites" / "whole").symlink_to(real)
    # a tool that builds a tree of links, each file one of its own
    mirror = project / "suites" / "mirror"
    (mirror / "cases").mkdir(parents=True)
    for name in ("suite.yaml", "cases/a.json", "cases/b.json"):
        (mirror / name).symlink_to(real / name)
    for suite in (project / "suites" / "whole", mirror):
        assert read_regular(suite / "suite.yaml", LIMITS["suite.yaml"]) == b"pack: generic\n"
        assert [read_regular(path, LIMITS["case"]) for path in sorted(suite.glob("cases/*"))] == [b"{}", b"{}"]
    # a file with another name is no suite.yaml
    alone = project / "suites" / "alone"
    alone.mkdir()
    (alone / "suite.yaml").symlink_to(real / "cases" / "a.json")
    with pytest.raises(SuiteError, match=r"^alone/suite\.yaml: is a link that leaves the project; "):
        read_suite(alone, {"generic": GenericSuiteConfig}, source="alone/suite.yaml")


@pytest.mark.parametrize("name", ["cases", "fixtures", "fixtures/controls", "fixtures/.pending"])
def test_a_suite_whose_folders_leave_the_project_is_refused(tmp_path: Path, name: str) -> None:
    suite = tmp_path / "suites" / "toy"
    (suite / name).parent.mkdir(parents=True, exist_ok=True)
    (suite / "suite.yaml").write_text("pack: generic\n", "utf-8")
    (tmp_path / "outside").mkdir()
    (suite / name).symlink_to(tmp_path / "outside")
    with pytest.raises(SuiteError, match=rf"^toy/{name}: is a link that leaves the project; "):
        read_suite(suite, {"generic": GenericSuiteConfig}, source="toy/suite.yaml")
    # within the folder of suites it is inside
    (suite / name).unlink()
    (tmp_path / "suites" / "other").mkdir()
    (suite / name).symlink_to(tmp_path / "suites" / "other")
    assert read_suite(suite, {"generic": GenericSuiteConfig}, source="toy/suite.yaml").name == "toy"


def test_a_linked_folder_out_of_the_project_counts_as_one_case_that_cannot_be_read(tmp_path: Path) -> None:
    suite = linked_suite(tmp_path / "project")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.json").touch()
    for name, target in {"linked": tmp_path / "outside", "root": Path("/"), "named.json": tmp_path / "outside"}.items():
        (suite / "cases" / name).symlink_to(target)
    loaded = read_suite(suite, {"generic": GenericSuiteConfig}, source="toy/suite.yaml")
    found = list(suite_locations(loaded))
    assert sorted(location.name for location in found) == ["linked", "named", "root"]
    assert case_counts(loaded, None) == (3, 3)
    for location in found:
        with pytest.raises(CaseError, match=r"^x: is a link that leaves the project; replace it by a copy"):
            load_case(location, Case, file="x", pack=None)


def test_a_cell_of_a_table_that_is_too_long_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"id,input,expected\na,b," + b"x" * (17 * 2**20) + b"\n")
    words = ["import", "csv", str(path), "--suite", "mine", "--input", "input", "--expected", "expected"]
    assert main(words) == 2
    assert "rows.csv:2: invalid CSV: field larger than field limit (16777216)" in capsys.readouterr().out
