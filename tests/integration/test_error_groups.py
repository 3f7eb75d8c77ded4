"""The terminal shows equal errors once and explains the first failing cases; the files of a run keep all of each case."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.integration.conftest import json_lines, toy_case

if TYPE_CHECKING:
    import pytest

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

REMEDY = (
    "no licence; " + "run the licence tool, and set LICENCE_FILE to the path that it prints; " * 3 + "then try again"
)
SAME = {"python": f"raise OSError({REMEDY!r})"}


def write_cases(project: Project) -> None:
    """Write 16 cases with the same error, two with another one, and four with the same typo, two of them in lines."""
    project.prepare("first", "second")
    for number in range(14):
        project.case(f"same_{number:02}", **SAME)
    project.case("other", python="raise OSError('no disk')")
    project.case("again", python="raise OSError('no disk')\n")
    project.case("good")
    for name in ("typo", "typos"):
        path = project.case(name)
        path.write_text(path.read_text("utf-8").replace('"easy"', '"simple"'), encoding="utf-8")
    typos = [toy_case(name) | {"difficulty": "simple"} for name in ("line_3", "line_4")]
    project.case_lines(toy_case("line_1", **SAME), toy_case("line_2", **SAME), *typos)


def shown(result: pytest.RunResult) -> str:
    """Return what pytest and the plugin write of errors, without the header and what changes."""
    left_out = ("Captured stdout", "says hello", "generated xml file")
    text = "\n".join(line for line in result.outlines if not any(words in line for words in left_out))
    text = re.sub(r"benchmarks/toy/[0-9A-Z]{26}", "benchmarks/toy/RUN", text[text.index("= ERRORS") :])
    text = re.sub(r"/\S+/conftest.py:\d+", "conftest.py:1", text)
    return re.sub(r"[=_]{2,}", "--", re.sub(r" in \d\S*s( \(.*\))? =", " =", text)) + "\n"


def test_equal_errors_are_shown_once(project: Project, expected: ExpectedTexts) -> None:
    write_cases(project)
    result = project.run_toy("--junitxml=junit.xml")
    result.assert_outcomes(passed=3, errors=22)
    expected.check(shown(result))
    # each case has its own error in the files
    errors = project.lines("errors.jsonl")
    assert len([error for error in errors if REMEDY in error["message"]]) == 16
    junit = (project.root / "junit.xml").read_text("utf-8")
    assert junit.count(f'message="failed on setup with &quot;the target raised OSError: {REMEDY}&quot;"') == 16
    report = project.report()
    assert len([test for test in report["tests"] if REMEDY in str(test["setup"].get("longrepr"))]) == 16


def test_equal_errors_from_workers_and_of_missing_recordings(both: Project) -> None:
    both.prepare("first", "second", "third")
    result = both.run_toy("--packbench-target=pipeline:ask", "-v")
    result.assert_outcomes(errors=3)
    text = result.stdout.str()
    assert len(re.findall(r"^_+ ERROR at setup of case_0\d _+$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^_+ 2 more cases with errors as above _+$", text, re.MULTILINE)) == 1
    # pytest's short summary has each
    assert len(re.findall(r"^ERROR \S+::case_0\d - \S+ the target ", text, re.MULTILINE)) == 3
    assert re.search(
        r"^  case_00, case_01, case_02  3 +cassette_missing  fixtures/case_00.json: the target", text, re.MULTILINE
    )


def test_different_errors_stay_apart(project: Project) -> None:
    for number in range(25):
        project.case(f"one_{number:02}", python=f"raise OSError('disk {number:02}')")
    result = project.run_toy()
    text = result.stdout.str()
    assert "with errors as above" not in text
    assert text.count("ERROR at setup of") == 25
    assert "\n  one_19  target_error  the target raised OSError: disk 19\n5 more cases without a score; " in text
    assert len(json_lines(project.left() / "errors.jsonl")) == 25


EXPLAINED = re.compile(r"^_+ bad_(\d\d) _+\n(?:\[gw.+\n)?score .+\ninput: .+\n\n +expected +actual\n", re.MULTILINE)


def test_the_first_failing_cases_are_explained_and_the_others_named(both: Project) -> None:
    for number in range(23):
        both.case(f"bad_{number:02}", points=0.0)
    by_gates, every = "--packbench-gate=suite", [f"{number:02}" for number in range(23)]
    for options, count, is_listed in (((), 20, True), ((by_gates,), 20, False), ((by_gates, "-vv"), 23, False)):
        text = both.run_toy(*options).stdout.str()
        explained = EXPLAINED.findall(text)
        assert len(explained) == text.count("re-run: ") == count
        assert (" 3 more failing cases in " in text) is (count < 23)
        named = re.findall(r"^bad_(\d\d): score 0.00 < 0.80", text, re.MULTILINE)
        listed = re.findall(r"^FAILED \S+::bad_(\d\d) - score", text, re.MULTILINE)
        assert sorted(listed if is_listed else explained + named) == every
        assert len(named) == (0 if is_listed else 23 - count)
    text = both.run_toy(by_gates, "--tb=no").stdout.str()
    assert "re-run" not in text
    assert "\n  20 of 23 shown; report.json lists all.\n" in text
    assert len(re.findall(r"^  bad_\d\d +0.00 < 0.80", both.run_toy("-vv", "--tb=no").stdout.str(), re.MULTILINE)) == 23
    text = both.run_toy("--tb=line", "--show-capture=no").stdout.str()
    section = text[text.index("= FAILURES =") : text.index("= packbench: toy =")]
    assert len(re.findall(r"\.py:\d+: score 0.00 < 0.80|\.json:\d+: score 0.00 < 0.80", section)) == 23
    # xdist adds a line with its worker
    assert section.count("\n") < 50
    assert "re-run" not in text
