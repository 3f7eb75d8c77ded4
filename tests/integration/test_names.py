"""Names of files and texts of cases with what terminals and services of CI interpret: refused as names, escaped as texts."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.testing import write_case
from tests.integration.conftest import CASES, toy_case
from tests.integration.test_ci import commands, github

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

NAMES = [
    b"a\n::error::pwned.json",
    b"b\x1b[31mred.json",
    b"c\xff.json",
    b"d\r::stop-commands::x.jsonl",
    b"e\x00".rstrip(b"\0") + "\u202e.json".encode(),
    "g\u200f.json".encode(),
]
HOSTILE = "\x1b[31m\n::error::pwned\r\n##[error]x <img src=x onerror=alert(1)> \x00\u202e\ud800 =1+1"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


# the facts of the schema of Jenkins' xUnit plugin, against which pytest checks its own reports: the attributes of each
# element, required ones with a star, and its children. Properties of a case are pytest's `record_property`, which
# that schema does not know.
JUNIT = {
    "testsuites": ("name time tests failures errors", "testsuite"),
    "testsuite": (
        "name* tests* failures* errors* group time skipped timestamp hostname id package file log url version",
        "testsuite properties testcase system-out system-err",
    ),
    "testcase": ("name* time classname group", "skipped error failure system-out system-err properties"),
    "properties": ("", "property"),
    "property": ("name* value*", ""),
    **dict.fromkeys(("skipped", "error", "failure"), ("type message", "")),
    **dict.fromkeys(("system-out", "system-err"), ("", "")),
}


def check_junit(path: Path) -> dict[str, int]:
    """Check a JUnit report by its schema and its own counts, and return these."""
    root = ET.fromstring(path.read_bytes())  # noqa: S314 - pytest wrote it here and now
    for element in root.iter():
        attributes, children = (words.split() for words in JUNIT[element.tag])
        assert {name.removesuffix("*") for name in attributes} >= element.attrib.keys(), element.tag
        assert {name[:-1] for name in attributes if name.endswith("*")} <= element.attrib.keys(), element.tag
        assert {child.tag for child in element} <= set(children), element.tag
        assert re.fullmatch(r"[0-9,]*(\.[0-9]{0,3})?", element.get("time", "0")), element.attrib
        texts = [element.text or "", *element.attrib.values()]
        assert not any(RAW.search(text) for text in texts), texts
    (suite,) = root.findall("testsuite")
    counts = {
        "tests": len(suite.findall("testcase")),
        **{f"{kind}s": len(suite.findall(f"testcase/{kind}")) for kind in ("error", "failure")},
        "skipped": len(suite.findall("testcase/skipped")),
    }
    assert {name: int(suite.attrib[name]) for name in counts} == counts
    return counts


def place(folder: Path, name: bytes, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(os.path.join(os.fsencode(folder), name), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123 - a name that is no text
        file.write(content)


def test_names_that_a_terminal_or_a_service_of_ci_interprets_are_refused_and_shown_with_escapes(
    both: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = github(monkeypatch, both.root / "step_summary.md", both.root)
    both.case("good")
    for number, name in enumerate(NAMES):
        place(both.root / CASES / "plain", name, json.dumps(toy_case(f"case_{number}")))
    place(both.root / CASES / "fol\nder", b"inside.json", json.dumps(toy_case("inside")))
    place(both.root / "storage/benchmarks/toy/fixtures/controls", b"f\x1b]0;title\x07.json", "{}")
    result = both.run_toy("-v", "-rA", "--junitxml=junit.xml")
    assert result.parseoutcomes() == {"passed": 1, "errors": len(NAMES) + 2}
    shown = [
        r"plain/a\n\x3a\x3aerror\x3a\x3apwned.json",
        r"plain/b\x1b[31mred.json",
        r"plain/c\udcff.json",
        r"plain/d\r\x3a\x3astop-commands\x3a\x3ax.jsonl",
        r"plain/e\u202e.json",
        r"plain/g\u200f.json",
        r"fol\nder/inside.json",
    ]
    assert sorted(error["file"] for error in both.lines("errors.jsonl")) == sorted(f"{CASES}/{name}" for name in shown)
    message = both.errors()[r"b\x1b[31mred.json"]["message"]
    assert message.endswith(
        r'its name has control characters, line breaks, marks of direction or bytes that are not UTF-8: "b\x1b[31mred.json"; rename it'
    )
    assert check_junit(both.root / "junit.xml") == {"tests": 9, "errors": 8, "failures": 0, "skipped": 0}
    files = [*both.left().iterdir(), summary, both.root / "junit.xml"]
    texts = {path.name: path.read_text("utf-8") for path in files if path.is_file()}
    for output, text in {**texts, "terminal": "\n".join(result.outlines)}.items():
        assert RAW.search(text) is None, output
    assert all(line.startswith("::error ") for line in commands(result.outlines))
    collected = both.run_toy("--collect-only")
    assert RAW.search("\n".join(collected.outlines)) is None


def test_a_suite_in_such_a_folder_is_refused(project: Project) -> None:
    project.suite("to\x1by")
    for arguments in (["--packbench-suite=to\x1by"], ["storage/benchmarks/to\x1by"]):
        result = project.run(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([r"ERROR: *to\x1by/suite.yaml: the name of its folder has control characters*"])
    result = project.run("--packbench-suite=other", "--packbench-list")
    assert "\x1b" not in result.stdout.str() + result.stderr.str()


def test_texts_of_cases_and_targets_reach_no_output_raw(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = github(monkeypatch, project.root / "step_summary.md", project.root)
    code = f"raise ValueError({HOSTILE!a})"
    project.case("raises", python=code, notes={"tags": [HOSTILE[:20]], "source": "s"})
    project.case("fails", points=0.1, text=HOSTILE)
    project.case("skipped", notes={"skip": HOSTILE[:20]})
    project.case("xfails", points=0.1, notes={"xfail": HOSTILE[:20]})
    result = project.run_toy("-rA", "--junitxml=junit.xml")
    assert result.parseoutcomes() == {"failed": 1, "errors": 1, "skipped": 1, "xfailed": 1}
    assert check_junit(project.root / "junit.xml") == {"tests": 4, "errors": 1, "failures": 1, "skipped": 2}
    texts = {path.name: path.read_text("utf-8") for path in (*project.left().glob("*.md"), summary)}
    texts["junit.xml"] = (project.root / "junit.xml").read_text("utf-8")
    for output, text in {**texts, "terminal": "\n".join(result.outlines)}.items():
        assert RAW.search(text) is None, output
        assert "<img" not in text or output == "terminal", output
        assert "##[" not in text or output.endswith(".md"), output
    assert all(re.match("::(error|warning) ", line) for line in commands(result.outlines))


def test_links_out_of_the_project_are_errors_of_their_own(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    cases, fixtures = project.root / CASES / "plain", project.root / "storage/benchmarks/toy/fixtures"
    for name in ("secret", "many"):
        (outside / f"{name}.json").write_text(json.dumps(toy_case(name, text="a secret of the machine")), "utf-8")
    fixtures.mkdir()
    project.case("good", text="x")
    (cases / "secret.json").symlink_to(outside / "secret.json")
    (cases / "many.jsonl").symlink_to(outside / "many.json")
    (cases / "folder").symlink_to(outside)
    project.prepare("recorded")
    (fixtures / "case_00.json").symlink_to(outside / "secret.json")
    result = project.run_toy("--packbench-target=pipeline:ask")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    messages = {name: error["message"] for name, error in project.errors().items()}
    assert messages.keys() >= {"secret", "many", "folder", "case_00"}
    advice = (
        "is a link that leaves the project; replace it by a copy, or let a link stand for the whole folder of the suite"
    )
    for name in ("secret.json", "many.jsonl", "folder", "fixtures/case_00.json"):
        assert any(f"{name}: {advice}" in message for message in messages.values()), name
    assert (
        "a secret of the machine"
        not in "".join(path.read_text("utf-8") for path in project.left().iterdir()) + result.stdout.str()
    )
    assert project.run_toy("--collect-only", "-q").ret == 0
    inside = project.run(f"{CASES}/plain/folder/secret.json")
    assert inside.ret != 0
    assert "Traceback" not in inside.stderr.str() + inside.stdout.str()


def test_a_project_may_be_in_a_folder_with_brackets(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project.root / "a [b]::c"
    (project.root / "storage").rename(project.root / "moved")
    root.mkdir()
    for name in ("moved", "conftest.py", "tox.ini"):
        (project.root / name).rename(root / ("storage" if name == "moved" else name))
    write_case(root / "storage/benchmarks/toy", toy_case("good"))
    for folder in (root, root / "storage"):
        monkeypatch.chdir(folder)
        project.run_toy().assert_outcomes(passed=1)
