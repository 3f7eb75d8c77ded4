"""What CI servers read: GitHub's summary and annotations, JUnit XML, the short summary."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

GATED = "pack: toy\ndescription: a toy\ngates:\n  - {metric: pass_rate, min: 0.9}\n"


@pytest.fixture
def step(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of a GitHub job whose repository holds the project in a folder; to be asked for after the project."""
    page = pytester.path / "step_summary.md"
    page.write_text("of another tool", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    return page


def test_github_gets_summary_and_annotations_once(project: Project, step: Path) -> None:
    project.suite(text=GATED)
    project.case("good")
    project.case("bad", points=0.2)
    project.case("worse", points=0.1)
    project.case("broken", python="raise OSError('50 %, gone')")
    result = project.run_toy()
    assert result.ret == 1
    folder = f"{project.root.name}/storage/benchmarks/toy"
    commands = [line for line in result.outlines if line.startswith("::")]
    rules = f"::error file={folder}/suite.yaml,line=3,title=toy%3A gate"
    case = f"::error file={folder}/cases/plain"
    (pass_rate,) = [line.strip() for line in result.outlines if line.startswith("  pass_rate")]
    assert commands == [
        f"{rules} completeness::completeness 3 / 4 = 75.0 %25 < min 100.0 %25: FAIL",
        f"{rules} pass_rate::{pass_rate.replace('%', '%25')}",
        f"{case}/broken.json,line=1,title=toy%3A broken%3A error (target_error)::the target raised OSError: 50 %25, gone",
        f"{case}/worse.json,line=1,title=toy%3A worse scored 0.10 < 0.80::answer: 0.1%0Apoints +0.10 (as the target says)",
        f"{case}/bad.json,line=1,title=toy%3A bad scored 0.20 < 0.80::answer: 0.2%0Apoints +0.20 (as the target says)",
    ]
    page = step.read_text("utf-8")
    assert page.startswith("of another tool\n# packbench: toy - FAILED, 1 of 3 judged cases passed\n")
    assert page.count("# packbench: ") == 1
    assert page.index("| worse ") < page.index("| bad ") < page.index("| broken ") < page.index("## By case type")


def test_a_case_of_many_in_a_file_has_its_line(project: Project, step: Path) -> None:
    one = project.case("bad", points=0.2)
    text = one.read_text("utf-8")
    one.unlink()
    many = one.parent.parent / "many.jsonl"
    many.write_text(text.replace('"bad"', '"good"').replace("0.2", "1.0") + "\n\n" + text + "\n", encoding="utf-8")
    result = project.run_toy()
    result.stdout.fnmatch_lines(["::error file=*/cases/many.jsonl,line=3,title=toy%3A bad scored 0.20 < 0.80::*"])


def test_what_a_case_prints_commands_nothing(project: Project, step: Path) -> None:
    project.case("bad", points=0.1, python="print('::error::one\\n  ::add-mask::two\\nx ##[error]three')")
    project.case("broken", python="print('::error::four'); raise OSError('\\n::error::five')")
    lines = project.run_toy().outlines
    assert [line for line in lines if line.lstrip().startswith("::") and "title=toy%3A" not in line] == []
    assert {": :error::one", "  : :add-mask::two", "x ## [error]three", ": :error::four"} <= set(lines)


def test_a_file_outside_the_repository_is_left_out(plain: Project, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(plain.root / "elsewhere"))
    plain.case("bad", points=0.2)
    plain.run_toy().stdout.fnmatch_lines(["::error title=toy%3A bad scored 0.20 < 0.80::*"])


def test_a_summary_that_cant_be_written_is_one_line(plain: Project, step: Path) -> None:
    plain.case("good")
    step.unlink()
    step.mkdir()
    result = plain.run_toy()
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"packbench: GITHUB_STEP_SUMMARY: {step} can't be written: Is a directory"])


def test_nobody_is_told_without_a_suite(plain: Project, step: Path) -> None:
    plain.pytester.makepyfile("def test_one():\n    assert True\n")
    result = plain.run()
    assert result.ret == 0
    assert not [line for line in result.outlines if line.startswith("::")]
    assert step.read_text("utf-8") == "of another tool"


@pytest.mark.parametrize("actions", ["", "false"])
def test_elsewhere_nothing_is_annotated(plain: Project, monkeypatch: pytest.MonkeyPatch, actions: str) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", actions)
    plain.case("bad", points=0.2)
    assert not [line for line in plain.run_toy().outlines if line.startswith("::")]


def junit(plain: Project, *arguments: str) -> dict[str, ET.Element]:
    place = plain.root / "junit.xml"
    result = plain.run_toy(f"--junitxml={place}", *arguments)
    assert "warning" not in result.stdout.str().lower()
    tree = ET.parse(place)  # noqa: S314 - pytest wrote it here and now
    return {case.attrib["name"]: case for case in tree.iter("testcase")}


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_junit_has_score_threshold_type_and_one_line_messages(project: Project, family: str) -> None:
    project.case("good")
    project.case("bad", points=0.2, case_type="odd")
    project.case("broken", python="raise OSError('gone')")
    found = junit(project, "-o", f"junit_family={family}", "-W", "error")
    told = {
        name: {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")} for name, case in found.items()
    }
    assert told["bad"] == {
        "suite": "toy",
        "case_type": "odd",
        "difficulty": "easy",
        "verdict": "failed",
        "score": "0.2",
        "threshold": "0.8",
        "match_depth": "2",
    }
    assert told["good"]["score"] == "1.0"
    assert "score" not in told["broken"]
    failure, error = found["bad"].find("failure"), found["broken"].find("error")
    assert failure is not None
    assert error is not None
    assert failure.attrib["message"] == "score 0.20 < 0.80 (points)"
    assert (failure.text or "").startswith("score 0.20 < 0.80 (points)\n\n")
    assert error.attrib["message"] == 'failed on setup with "the target raised OSError: gone"'
    if family == "xunit1":
        assert found["bad"].attrib["file"] == "storage/benchmarks/toy/cases/odd/bad.json"


@pytest.mark.parametrize("ahead", [(), ("--packbench-concurrency=4",)])
def test_a_duration_is_the_cases_own(plain: Project, ahead: tuple[str, ...]) -> None:
    for number in range(4):
        plain.case(f"case_{number}", python="sum(range(2_000_000))")
    found = junit(plain, *ahead)
    # beside each other the later ones waited for little, and worked all the same
    for line in plain.lines("records.jsonl"):
        shown = float(found[line["packbench"]["case_id"]].attrib["time"])
        assert 1000 * shown >= line["wall_clock_ms"] > 0


def test_the_short_summary_stays_short_in_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project.case("bad", points=0.2)
    project.case("broken", python="raise OSError('gone')")
    lines = project.run_toy().outlines
    summary = lines[next(n for n, line in enumerate(lines) if "short test summary info" in line) + 1 : -1]
    place = "storage/benchmarks/toy/cases/plain"
    assert sorted(summary) == [
        f"ERROR {place}/broken.json::broken - the target raised OSError: gone",
        f"FAILED {place}/bad.json::bad - score 0.20 < 0.80 (points)",
    ]
