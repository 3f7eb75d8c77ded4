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

if TYPE_CHECKING:
    from types import FrameType

    from tests.integration.conftest import Project

MESSAGE = re.compile(r"##teamcity\[(\w+) (.*?)(?<!\|)\]")
ATTRIBUTE = re.compile(r"(\w+)='((?:\|.|[^'|])*)'")
CASES = "storage/benchmarks/toy/cases"


def two_types(project: Project) -> None:
    project.case("good")
    project.case("bad", case_type="odd", points=0.2)


def test_what_the_tree_of_vs_code_is_made_from(plain: Project) -> None:
    two_types(plain)
    items, _ = plain.pytester.inline_genitems("--packbench-suite=toy")
    assert sorted(item.nodeid for item in items) == [f"{CASES}/odd/bad.json::bad", f"{CASES}/plain/good.json::good"]
    for item in items:
        # its adapter asks the parent for the file, and would take an item with callspec for a Python function
        assert isinstance(item.parent, pytest.File)
        assert item.parent.path.is_file()
        assert item.parent.path == item.path
        assert not hasattr(item, "callspec")
        path, line, name = item.location
        assert (path, line, name) == (item.nodeid.partition("::")[0], 0, item.name)
        # suite, case type and case are levels of the tree
        folders = [node.path.name for node in item.listchain() if isinstance(node, pytest.Directory)]
        assert folders[-3:] == ["toy", "cases", item.path.parent.name]


def test_a_click_opens_the_cases_own_line(plain: Project) -> None:
    one = plain.case("good")
    text = one.read_text("utf-8")
    one.unlink()
    many = plain.root / CASES / "many.jsonl"
    many.write_text(f"{text}\n{text.replace('good', 'second')}\n", encoding="utf-8")
    items, _ = plain.pytester.inline_genitems("--packbench-suite=toy")
    assert [item.location for item in items] == [
        (f"{CASES}/many.jsonl", 0, "good"),
        (f"{CASES}/many.jsonl", 1, "second"),
    ]


@pytest.mark.parametrize("folder", [".", "storage", "elsewhere"])
def test_ids_with_an_absolute_path_run_one_case(plain: Project, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    two_types(plain)
    (plain.root / "elsewhere").mkdir()
    monkeypatch.chdir(plain.root / folder)
    result = plain.run(f"--rootdir={plain.root}", f"{plain.root}/{CASES}/plain/good.json::good")
    result.assert_outcomes(passed=1)


def test_pycharms_reader_names_each_case_its_file_and_its_result(project: Project) -> None:
    two_types(project)
    project.case("broken", python="raise OSError('gone')")
    project.case("held", notes={"skip": "under review"})
    result = project.run_toy("--teamcity")
    told: dict[str, dict[str, dict[str, str]]] = {}
    for kind, text in MESSAGE.findall(result.stdout.str()):
        values = {name: value.replace("|n", "\n").replace("|'", "'") for name, value in ATTRIBUTE.findall(text)}
        if kind.startswith("test") and kind != "testCount":
            told.setdefault(values["name"], {})[kind] = values
    cases = {name.removeprefix("storage.benchmarks.toy.cases."): one for name, one in told.items()}
    assert set(cases) == {
        "plain.good_json.good",
        "odd.bad_json.bad",
        "plain.broken_json.broken",
        "plain.held_json.held",
    }
    # by this a case is run again
    assert {one["testStarted"]["metainfo"] for one in cases.values()} == {"good", "bad", "broken", "held"}
    assert {name: sorted(set(one) - {"testStarted", "testFinished", "testStdOut"}) for name, one in cases.items()} == {
        "plain.good_json.good": [],
        "odd.bad_json.bad": ["testFailed"],
        "plain.broken_json.broken": ["testFailed"],
        "plain.held_json.held": ["testIgnored"],
    }
    failed = cases["odd.bad_json.bad"]["testFailed"]
    assert failed["message"].startswith(f"{CASES}/odd/bad.json:")
    assert failed["details"].startswith("score 0.20 < 0.80 (points)\n")
    assert cases["plain.broken_json.broken"]["testFailed"]["details"].startswith("the target raised OSError: gone\n")
    assert "under review" in cases["plain.held_json.held"]["testIgnored"]["message"]


class Debugger(bdb.Bdb):
    """Stops at the lines of a file, as an editor's debugger does."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, object]] = []

    def user_line(self, frame: FrameType) -> None:
        if frame.f_code.co_filename.endswith("stepped.py"):
            self.stops.append((frame.f_code.co_name, frame.f_locals["request"].input["n"]))
        self.set_continue()


def test_a_breakpoint_in_the_target_is_hit_one_case_at_a_time(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        plain.case(f"case_{number}", n=number)
    module = plain.pytester.makepyfile(stepped="def act(request):\n    return {'points': 1.0}\n")
    debugger = Debugger()
    monkeypatch.syspath_prepend(plain.root)
    before = sys.gettrace()
    debugger.set_break(str(module), 2)
    # as under a debugger: traced from the start, and asked for much at once
    debugger.set_trace()
    debugger.set_continue()
    try:
        result = plain.run_toy("--packbench-target=stepped:act", "--packbench-concurrency=8")
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    result.assert_outcomes(passed=3)
    assert debugger.stops == [("act", 0), ("act", 1), ("act", 2)]


def test_the_settings_of_the_page_work(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_environment(monkeypatch)
    walk = PageRunner(pytester, capsys)
    page = list(blocks(ROOT / "docs" / "editors.md"))
    settings = json.loads(next(block.text for block in page if block.file == ".vscode/settings.json"))
    assert walk.command("packbench init support") == 0
    (pytester.path / "tests").mkdir()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for block in page:
        if block.kind == "console":
            walk.block(block)
    assert set(walk.codes) == {0}
    (entry,) = settings["json.schemas"]
    schema = json.loads((pytester.path / entry["url"]).read_text("utf-8"))
    (pattern,) = entry["fileMatch"]
    cases = sorted(pytester.path.glob(pattern.removeprefix("/")))
    assert [path.stem for path in cases] == ["refund_by_name", "refund_in_other_words"]
    for path in cases:
        jsonschema.validate(json.loads(path.read_text("utf-8")), schema, jsonschema.Draft202012Validator)
    result = pytester.runpytest(f"--rootdir={pytester.path}", *settings["python.testing.pytestArgs"])
    result.assert_outcomes(passed=1, failed=1)


def test_what_failed_is_run_again(project: Project) -> None:
    two_types(project)
    project.run_toy("-p", "cacheprovider")
    project.run_toy("-p", "cacheprovider", "--lf").assert_outcomes(failed=1)
