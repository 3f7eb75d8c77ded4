"""`--packbench-output`: the folder of reports, with a document of pytest-json-report that leaves a user's own alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_reports_are_in_the_folder_of_the_option(project: Project) -> None:
    project.case("alpha")
    ended(project.run_toy("--packbench-output=deep/out"), 0, passed=1)
    folder = project.root / "deep" / "out" / "toy"
    files = {path.name for path in (folder / (folder / "latest").read_text("utf-8").strip()).iterdir()}
    assert files == {"payloads.jsonl", "records.jsonl", "report.html", "report.json", "summary.md"}
    assert not (project.root / "reports").exists()
    assert main(["validate", "storage", "deep"]) == 0


@pytest.mark.parametrize(("both", "without"), [(0, False), (1, False), (0, True)], indirect=["both"])
def test_a_users_own_json_report_is_left_alone(both: Project, without: bool) -> None:
    both.case("a")
    both.run_toy(*(["-p", "no:pytest_jsonreport"] if without else ["--json-report", "--json-report-file=mine.json"]))
    assert both.document()["run"]["run_id"] == both.left().name
    if not without:
        mine = json.loads((both.root / "mine.json").read_text("utf-8"))
        assert ("packbench" in mine, len(mine["tests"])) == (False, 1)


@pytest.mark.parametrize("autoload", [True, False])
def test_the_document_of_json_report_is_that_of_its_format(
    project: Project, monkeypatch: pytest.MonkeyPatch, autoload: bool
) -> None:
    if not autoload:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.case("a")
    project.case("b", points=0.2)
    ended(project.run_toy("-p", "packbench"), 1, passed=1, failed=1)
    # https://github.com/numirias/pytest-json-report#format, at each release of pytest that is supported
    document = project.report()
    own = {"created", "duration", "exitcode", "root", "environment", "summary", "tests"}
    assert document.keys() == own | {"packbench"}
    assert (document["exitcode"], document["root"]) == (1, str(project.root))
    assert document["summary"] == {"passed": 1, "failed": 1, "total": 2, "collected": 2}
    passed, failed = document["tests"]
    assert (passed["nodeid"][-9:], passed["outcome"]) == ("a.json::a", "passed")
    phases = [failed[name]["outcome"] for name in ("setup", "call", "teardown")]
    assert phases == ["passed", "failed", "passed"]
    assert failed["call"]["duration"] >= 0
    assert "score 0.20" in failed["call"]["longrepr"]
