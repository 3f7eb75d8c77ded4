"""The facts that editors' own readers of pytest rely on; PyCharm's reader is run for real."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from tests.doc_blocks import ROOT, PageRunner, blocks, clean_environment
from tests.integration.conftest import CASES, toy_case

if TYPE_CHECKING:
    from tests.integration.conftest import Project

MESSAGE = re.compile(r"##teamcity\[(\w+) (.*?)(?<!\|)\]")
ATTRIBUTE = re.compile(r"(\w+)='((?:\|.|[^'|])*)'")
MANY = f"{CASES}/many.jsonl"


def write_cases(project: Project) -> None:
    project.case("good")
    project.case("bad", case_type="odd", points=0.2)


def test_what_the_tree_of_vs_code_is_made_from(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cases(project)
    project.case_lines(toy_case("first"), "", toy_case("second"), path=MANY)
    items, _ = project.pytester.inline_genitems("--packbench-suite=toy")
    lines = {item.nodeid: item.location[1] for item in items}
    # a click opens a case's own line, counted from 0
    assert lines == {
        f"{MANY}::first": 0,
        f"{MANY}::second": 2,
        f"{CASES}/odd/bad.json::bad": 0,
        f"{CASES}/plain/good.json::good": 0,
    }
    for item in items:
        # its adapter asks the parent for the file, and would take an item with callspec for a Python function
        assert isinstance(item.parent, pytest.File)
        assert item.parent.path == item.path
        assert item.path.is_file()
        assert not hasattr(item, "callspec")
        path, _, name = item.location
        assert item.nodeid == f"{path}::{name}" == f"{item.parent.nodeid}::{item.name}"
        # suite, case type and case are levels of the tree
        folders = [node.path.name for node in item.listchain() if isinstance(node, pytest.Directory)]
        assert folders[-len(path.split("/")) + 3 :] == path.split("/")[2:-1]
    # an id with an absolute path, from another folder
    (project.root / "elsewhere").mkdir()
    monkeypatch.chdir(project.root / "elsewhere")
    nodeid = f"{project.root}/{CASES}/plain/good.json::good"
    project.run(f"--rootdir={project.root}", nodeid).assert_outcomes(passed=1)


def test_pycharms_reader_names_each_case_its_file_and_its_result(both: Project) -> None:
    write_cases(both)
    both.case("broken", python="raise OSError('gone')")
    both.case("waiting", notes={"skip": "under review"})
    result = both.run_toy("--teamcity")
    messages: dict[str, dict[str, dict[str, str]]] = {}
    for kind, text in MESSAGE.findall(result.stdout.str()):
        values = {name: value.replace("|n", "\n").replace("|'", "'") for name, value in ATTRIBUTE.findall(text)}
        if kind not in {"testCount", "testStdOut", "testFinished"} and kind.startswith("test"):
            name = values["name"].removeprefix("storage.benchmarks.toy.cases.")
            messages.setdefault(name, {})[kind] = values
    # by this a case is run again
    assert {kinds.pop("testStarted")["metainfo"] for kinds in messages.values()} == {"good", "bad", "broken", "waiting"}
    facts = {
        "plain.good_json.good": ("", ""),
        "odd.bad_json.bad": ("testFailed", "score 0.20 < 0.80 (points)\n"),
        "plain.broken_json.broken": ("testFailed", "the target raised OSError: gone\n"),
        "plain.waiting_json.waiting": ("testIgnored", "under review"),
    }
    assert {name: "".join(kinds) for name, kinds in messages.items()} == {
        name: kind for name, (kind, _) in facts.items()
    }
    assert messages["odd.bad_json.bad"]["testFailed"]["message"].startswith(f"{CASES}/odd/bad.json:")
    for name, (kind, text) in facts.items():
        assert text in "".join(messages[name].get(kind, {}).values())


def test_the_settings_of_the_page_work(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_environment(monkeypatch)
    runner = PageRunner(pytester, capsys)
    page = list(blocks(ROOT / "docs" / "editors.md"))
    settings = json.loads(next(block.text for block in page if block.file == ".vscode/settings.json"))
    assert runner.command("packbench init support") == 0
    (pytester.path / "tests").mkdir()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for block in page:
        if block.kind == "console":
            runner.block(block)
    assert set(runner.codes) == {0}
    (entry,) = settings["json.schemas"]
    schema = json.loads((pytester.path / entry["url"]).read_text("utf-8"))
    (pattern,) = entry["fileMatch"]
    cases = sorted(pytester.path.glob(pattern.removeprefix("/")))
    assert [path.stem for path in cases] == ["refund_by_name", "refund_in_other_words"]
    for path in cases:
        jsonschema.validate(json.loads(path.read_text("utf-8")), schema, jsonschema.Draft202012Validator)
    result = pytester.runpytest(f"--rootdir={pytester.path}", *settings["python.testing.pytestArgs"])
    result.assert_outcomes(passed=1, failed=1)
