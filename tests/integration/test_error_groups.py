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
    assert text.count("ERROR at setup of") == 20
    assert re.search(r"^_+ 5 more cases; -vv explains all _+$", text, re.MULTILINE)
    assert "\n  one_19  target_error  the target raised OSError: disk 19\n5 more cases without a score; " in text
    assert len(json_lines(project.left() / "errors.jsonl")) == 25


EXPLAINED = re.compile(r"^_+ bad_(\d\d) _+\n(?:\[gw.+\n)?score .+\ninput: .+\n\n +expected +actual\n", re.MULTILINE)


MORE = re.compile(r"^_+ 3 more cases; -vv explains all _+$", re.MULTILINE)
LISTED = re.compile(r"^(FAILED|ERROR) \S+::(?:bad|error)_\d\d - ", re.MULTILINE)


def test_the_first_failing_cases_are_explained_and_the_others_counted(both: Project) -> None:
    for number in range(23):
        both.case(f"bad_{number:02}", points=0.0)
    by_gates = "--packbench-gate=suite"
    for options, count in (((), 20), (("-vv",), 23), ((by_gates,), 20), ((by_gates, "-vv"), 23)):
        text = both.run_toy(*options).stdout.str()
        assert len(EXPLAINED.findall(text)) == text.count("re-run: ") == count
        assert bool(MORE.search(text)) is (count < 23)
        assert LISTED.findall(text) == ["FAILED"] * (0 if by_gates in options else count)
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


def test_the_short_summary_lists_twenty_cases_of_a_kind_and_all_other_tests(both: Project) -> None:
    for number in range(24):
        both.case(f"bad_{number:02}", points=0.0)
        both.case(f"error_{number:02}", python="raise OSError('no disk')")
    both.write("test_own.py", "import pytest\n\n@pytest.mark.parametrize('n', range(24))\ndef test_it(n): assert 0\n")
    both.extend_conftest("""
        def pytest_terminal_summary(terminalreporter):
            print(*(f"{len(terminalreporter.stats[name])} {name}" for name in ("failed", "error")), "for other plugins")
    """)
    counted = "4 more failing cases and 4 more errors; -vv explains all, -vv --tb=no lists them"
    for options, count in ((("--tb=no",), 20), (("--tb=no", "-rE"), 20), (("--tb=no", "-vv"), 24), (("-rN",), 0)):
        result = both.run_toy("test_own.py", *options)
        result.assert_outcomes(failed=48, errors=24)
        text = result.stdout.str()
        assert "48 failed 24 error for other plugins" in text
        is_all = "-rE" not in options
        assert sorted(LISTED.findall(text)) == ["ERROR"] * count + ["FAILED"] * (count if is_all else 0)
        assert len(re.findall(r"^FAILED test_own.py::test_it", text, re.MULTILINE)) == (24 if count and is_all else 0)
        line = (counted if is_all else counted.partition(" and ")[2]) if count == 20 else ""
        assert "\n".join(line for line in result.outlines if "lists them" in line) == line
