"""Workers of xdist produce what one process produces, also where one of them dies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.testing import SuiteResults
from tests.integration.conftest import CASES, MANY, toy_case, without_times

if TYPE_CHECKING:
    from tests.integration.conftest import Project

# workers are other processes than this one, which runs the suite itself the first time
DYING = f"import os; os.getpid() == {os.getpid()} or os.kill(os.getpid(), 9)"


def files_of_run(project: Project, output: str) -> dict[str, Any]:
    """Return the content of a run's files without what differs from run to run."""
    (folder,) = (project.root / output / "toy").glob("*/")
    results = SuiteResults(folder=folder)
    lines = {name: results.lines(name) for name in ("records.jsonl", "errors.jsonl", "payloads.jsonl")}
    content: dict[str, Any] = without_times({**lines, **results.report["packbench"]})
    return content


def write_cases(project: Project) -> None:
    for number in range(6):
        project.case(f"case_{number}", points=number / 5, notes={"tags": [f"t{number % 2}"]})
    project.case("hole", word="known_hole")
    project.case("crash", word="crash")
    project.case("skipped", notes={"skip": "not today"})
    project.case("wrong", points=0.1, notes={"xfail": "known"})
    project.case("typo").write_text("{", encoding="utf-8")
    project.case("twin", case_type="one")
    project.case_lines(toy_case("a"), "{", toy_case("twin"), toy_case("b", points=0.25))


def test_two_workers_write_what_one_process_writes(project: Project) -> None:
    write_cases(project)
    for gate in ("case", "suite"):
        options = [f"--packbench-output={gate}/{{}}", f"--packbench-gate={gate}", "-v"]
        one = project.run_toy(options[0].format("one"), *options[1:])
        two = project.run_toy(options[0].format("two"), *options[1:], "-n", "2")
        assert one.ret == two.ret == pytest.ExitCode.TESTS_FAILED
        assert one.parseoutcomes() == two.parseoutcomes()
        files = files_of_run(project, f"{gate}/one")
        assert (len(files["records.jsonl"]), len(files["errors.jsonl"])) == (8, 8)
        assert files_of_run(project, f"{gate}/two") == files
        if gate == "case":
            two.stdout.fnmatch_lines([f"*FAILED 0.25*{MANY}::b*"])
            two.stdout.fnmatch_lines([f"FAILED {MANY}::b - score 0.25 < 0.80*"])
            two.stdout.no_fnmatch_line("*auto-save*")


def test_without_workers_the_gateway_is_that_of_this_process(project: Project) -> None:
    project.case("a")
    project.write(
        "own.py", "import os\ndef act(request):\n    return {'points': 1, 'more': os.environ['OPENAI_BASE_URL']}\n"
    )
    options = ("--packbench-mode=live", "--packbench-gateway=on", "--packbench-target=own:act")
    project.run_toy(*options, "-n", "0").assert_outcomes(passed=1)
    (payload,) = project.lines("payloads.jsonl")
    assert payload["result"]["more"].startswith("http://127.0.0.1:")


def test_a_worker_that_dies_costs_only_its_case(project: Project) -> None:
    for number in range(4):
        project.case(f"case_{number}")
    project.case("crash", word="crash")
    project.case("killer", python=DYING)
    project.run_toy("--packbench-output=one")
    project.run_toy("-n", "2", "--packbench-output=two")
    one, two = files_of_run(project, "one"), files_of_run(project, "two")
    dead = "toy:plain:killer"
    assert two["records.jsonl"] == [record for record in one["records.jsonl"] if record["test_id"] != dead]
    others = [error for error in two["errors.jsonl"] if error["test_id"] != dead]
    assert others == one["errors.jsonl"]
    (lost,) = (error for error in two["errors.jsonl"] if error["test_id"] == dead)
    assert (lost["verdict"], lost["kind"]) == ("error", "worker_crashed")
    assert len(two["cases"]) == len(one["cases"])


def test_a_case_that_does_not_exist_is_a_usage_error(project: Project) -> None:
    project.case_lines(toy_case("a"), "no json")
    for missing in (f"{MANY}::c", f"{CASES}/plain/none.json"):
        result = project.run("-n", "2", f"{MANY}::a", missing)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: *not found: *{missing}*"])


# before xdist looks for groups
GROUPING = """
def pytest_itemcollected(item):
    if item.name != "alpha":
        item.add_marker(pytest.mark.xdist_group("g"))
"""


def test_an_at_sign_in_a_name_is_no_group(project: Project) -> None:
    project.case("alpha")
    project.case("mail@work")
    project.write(f"{CASES}/at@home.jsonl", "{\n")
    project.extend_conftest(GROUPING)
    project.run_toy("-n", "2", "--dist=loadgroup").assert_outcomes(passed=1, errors=2)
    assert project.partial() == ""
    assert len(project.report()["packbench"]["cases"]) == 3
