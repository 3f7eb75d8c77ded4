"""The facts that editors' own readers of pytest rely on; PyCharm's reader is run for real."""

from __future__ import annotations

import bdb
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
    from types import FrameType

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
        if kind.startswith("test") and kind != "testCount":
            name = values["name"].removeprefix("storage.benchmarks.toy.cases.")
            messages.setdefault(name, {})[kind] = values
    ordinary = {"testStarted", "testFinished", "testStdOut"}
    assert {name: set(kinds) - ordinary for name, kinds in messages.items()} == {
        "plain.good_json.good": set(),
        "odd.bad_json.bad": {"testFailed"},
        "plain.broken_json.broken": {"testFailed"},
        "plain.waiting_json.waiting": {"testIgnored"},
    }
    # by this a case is run again
    metainfo = {kinds["testStarted"]["metainfo"] for kinds in messages.values()}
    assert metainfo == {"good", "bad", "broken", "waiting"}
    failed = messages["odd.bad_json.bad"]["testFailed"]
    assert failed["message"].startswith(f"{CASES}/odd/bad.json:")
    assert failed["details"].startswith("score 0.20 < 0.80 (points)\n")
    error = messages["plain.broken_json.broken"]["testFailed"]
    assert error["details"].startswith("the target raised OSError: gone\n")
    assert "under review" in messages["plain.waiting_json.waiting"]["testIgnored"]["message"]


class Debugger(bdb.Bdb):
    """Stops at the lines of a file, as an editor's debugger does."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, object]] = []

    def user_line(self, frame: FrameType) -> None:
        if frame.f_code.co_filename.endswith("stepped.py"):
            self.stops.append((frame.f_code.co_name, frame.f_locals["request"].input["n"]))
        self.set_continue()


def test_a_breakpoint_in_the_target_is_hit_one_case_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        project.case(f"case_{number}", n=number)
    module = project.write("stepped.py", "def act(request):\n    return {'points': 1.0}\n")
    debugger = Debugger()
    monkeypatch.syspath_prepend(project.root)
    before = sys.gettrace()
    debugger.set_break(str(module), 2)
    # as under a debugger: traced from the start, with many cases at once requested
    debugger.set_trace()
    debugger.set_continue()
    try:
        result = project.run_toy("--packbench-target=stepped:act", "--packbench-concurrency=8")
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    result.assert_outcomes(passed=3)
    assert debugger.stops == [("act", 0), ("act", 1), ("act", 2)]


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
