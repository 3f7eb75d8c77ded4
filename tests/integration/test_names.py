"""Names of files and texts of cases with what terminals and services of CI interpret: refused as names, escaped as texts."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

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
    ET.parse(both.root / "junit.xml")  # noqa: S314 - pytest wrote it here and now
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
    ET.parse(project.root / "junit.xml")  # noqa: S314 - pytest wrote it here and now
    texts = {path.name: path.read_text("utf-8") for path in (*project.left().glob("*.md"), summary)}
    texts["junit.xml"] = (project.root / "junit.xml").read_text("utf-8")
    for output, text in {**texts, "terminal": "\n".join(result.outlines)}.items():
        assert RAW.search(text) is None, output
        assert "<img" not in text or output == "terminal", output
        assert "##[" not in text or output.endswith(".md"), output
    assert all(re.match("::(error|warning) ", line) for line in commands(result.outlines))
