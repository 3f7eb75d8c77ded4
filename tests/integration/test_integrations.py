"""What other plugins show of cases: PyCharm's reader, JUnit, Allure and pytest-html, with the plugins themselves."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.integration.conftest import CASES, json_lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

SLOW_MS = 60
PIPELINE = """
import time

def act(request):
    time.sleep(0.06)
    if request.input.get("broken"):
        raise OSError("gone")
    return {"points": request.input.get("points", 1.0)}
"""


@pytest.fixture(params=["fixture", "live"])
def modes(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of a run whose attempts are made when pytest reaches them, and of one that makes them before."""
    return ("--packbench-target=slow:act", f"--packbench-mode={request.param}")


def write_cases(project: Project) -> None:
    project.write("slow.py", PIPELINE)
    project.case("good")
    project.case("bad", case_type="odd", points=0.2)
    project.case("broken", python="raise OSError('gone')", broken=True)


def test_durations_are_those_of_the_attempts(project: Project, modes: tuple[str, ...]) -> None:
    write_cases(project)
    result = project.run_toy("--teamcity", "--junitxml=junit.xml", "--durations=0", "-vv", *modes)
    finished = re.findall(r"testFinished .*?duration='(\d+)'.*?(good|bad|broken)'", result.stdout.str())
    assert {name for _, name in finished} == {"good", "bad", "broken"}
    assert all(SLOW_MS <= int(duration) < 10 * SLOW_MS for duration, _ in finished), finished
    tests = ET.parse(project.root / "junit.xml").iter("testcase")  # noqa: S314 - our own file
    times = {test.get("name"): float(test.get("time") or 0) for test in tests}
    assert all(SLOW_MS <= 1000 * time < 10 * SLOW_MS for time in times.values()), times
    for line in ("*s call *::good", "*s call *::bad", "*s setup *::broken", "0.00s setup *::good"):
        result.stdout.fnmatch_lines([line])


def test_pycharm_gets_the_two_sides_of_its_diff(project: Project) -> None:
    write_cases(project)
    output = project.run_toy("--teamcity").stdout.str()
    # by this a case is run again
    assert set(re.findall(r"testStarted .*?metainfo='(.*?)'", output)) == {"good", "bad", "broken"}
    (failed,) = re.findall(r"testFailed .*?type='comparisonFailure'.*", output)
    assert "bad.json.bad" in failed.replace("_json", ".json")
    (expected,), (actual,) = (re.findall(rf" {side}='(.*?)(?<!\|)'", failed) for side in ("expected", "actual"))
    assert (expected, actual) == ("points: 1.0", "points: 0.2")


def allure_results(folder: Path) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_text("utf-8")) for path in folder.glob("*-result.json"))
    return {result["name"]: result for result in found}


def test_allure_tells_what_failed_from_what_broke(both: Project, modes: tuple[str, ...]) -> None:
    pytest.importorskip("allure_pytest")
    write_cases(both)
    both.case("later", notes={"skip": "under review"})
    both.write(f"{CASES}/plain/unreadable.json", "{")
    both.run_toy("--alluredir=allure", *modes)
    results = allure_results(both.root / "allure")
    assert {name: result["status"] for name, result in results.items()} == {
        "good": "passed",
        "bad": "failed",
        "broken": "broken",
        "unreadable": "broken",
        "later": "skipped",
    }
    bad = results["bad"]
    assert bad["statusDetails"]["message"] == "CaseFailure: score 0.20 < 0.80 (points)"
    assert "Traceback" not in results["broken"]["statusDetails"]["trace"]
    parameters = {parameter["name"]: parameter["value"].strip("'") for parameter in bad["parameters"]}
    assert parameters == {
        "suite": "toy",
        "case_type": "odd",
        "difficulty": "easy",
        "verdict": "failed",
        "score": "0.2",
        "threshold": "0.8",
        "match_depth": "2",
    }
    for name in ("good", "bad", "broken"):
        assert SLOW_MS <= results[name]["stop"] - results[name]["start"] < 10 * SLOW_MS, name
    # another score is no other test
    history = {name: result["historyId"] for name, result in results.items()}
    both.case("bad", case_type="odd", points=1.0)
    both.run_toy("--alluredir=again", *modes)
    again = {name: result["historyId"] for name, result in allure_results(both.root / "again").items()}
    assert again == history


def test_pytest_html_has_columns_for_score_and_threshold(both: Project) -> None:
    pytest.importorskip("pytest_html")
    write_cases(both)
    both.write("test_own.py", "def test_own(): pass\n")
    both.run_toy("--html=page.html", "--self-contained-html", ".")
    page = (both.root / "page.html").read_text("utf-8")
    (blob,) = re.findall(r'data-jsonblob="(.*?)"', page)
    tests = json.loads(html.unescape(blob))["tests"]
    rows = {nodeid.partition("::")[2].partition("::")[0]: test[-1]["resultsTableRow"] for nodeid, test in tests.items()}
    texts = {name: [re.sub("<.*?>", "", cell) for cell in cells] for name, cells in rows.items()}
    assert texts["bad"][2:7] == ["toy", "odd", "easy", "0.20", "0.80"]
    assert texts["good"][2:7] == ["toy", "plain", "easy", "1.00", "0.80"]
    assert texts["test_own"][2:7] == [""] * 5
    heads = re.findall(r"<th .*?>(.*?)</th>", page)
    assert {"Suite", "Score", "Threshold"} <= set(heads)


def test_the_short_summary_names_no_class(both: Project) -> None:
    both.case("good")
    both.write("storage/benchmarks/toy/fixtures/controls/wrong.json", "{")
    result = both.run_toy("-rA")
    (line,) = (line for line in result.outlines if line.startswith("ERROR ") and "wrong" in line)
    assert " - " in line
    assert "CaseBroken" not in result.stdout.str()
    assert json_lines(both.left() / "controls.jsonl")[0]["outcome"] == "broken"
