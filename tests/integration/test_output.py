"""`--packbench-output`, and what pytest's JSON report has to do with a run's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_reports_are_in_the_folder_of_the_option(project: Project) -> None:
    project.case("good")
    project.run_toy("--packbench-output=deep/out").assert_outcomes(passed=1)
    folder = project.root / "deep" / "out" / "toy"
    run = (folder / "latest").read_text("utf-8").strip()
    assert {path.name for path in (folder / run).iterdir()} == {
        "payloads.jsonl",
        "records.jsonl",
        "report.json",
        "summary.md",
    }
    assert not (project.root / "reports").exists()


def test_a_users_own_json_report_is_left_alone(both: Project) -> None:
    for case_id in ("a", "b", "c"):
        both.case(case_id)
    both.run_toy("--json-report", "--json-report-file=mine.json", "--json-report-omit=log")
    mine = json.loads((both.root / "mine.json").read_text("utf-8"))
    assert "packbench" not in mine
    assert len(mine["tests"]) == 3
    assert both.report()["packbench"]["run"]["run_id"] == both.left().name


def test_a_report_is_written_without_the_json_report_plugin(both: Project) -> None:
    both.case("good")
    both.run_toy("-p", "no:pytest_jsonreport").assert_outcomes(passed=1)
    assert both.report()["packbench"]["totals"]["verdicts"]["passed"] == 1
