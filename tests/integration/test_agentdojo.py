"""The suite `agentdojo` as a user runs it: it passes behind its guard, fails without, and is the same each time."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

import json
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import main
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.packs.agent_safety.agentdojo import target as extra
from pytest_packbench.packs.agent_safety.agentdojo.importer import SEED
from pytest_packbench.packs.agent_safety.agentdojo.pair import run_pair  # noqa: F401 - imported once, not by each run
from tests.integration.model_server import json_lines, without_times

if TYPE_CHECKING:
    from tests.integration.conftest import Project

SUITE = Path(__file__).parents[2] / "storage" / "benchmarks" / "agentdojo"
SELECTED = ("banking_user_task_0_injection_task_8", "slack_", "travel_user_task_4_injection_task_6")


def write_some_cases(project: Project, suite: str = "agentdojo") -> int:
    """Copy a few cases of the suite into a project without the toy pack; return their number."""
    project.pytester.makeconftest("")
    folder = project.root / "storage" / "benchmarks" / suite
    paths = [path for path in sorted(SUITE.rglob("*.json")) if path.name.startswith(SELECTED)]
    for path in [*paths, SUITE / "suite.yaml"]:
        copy = folder / path.relative_to(SUITE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return len(paths)


def test_the_suite_passes_behind_its_guard_with_strict_records(both: Project) -> None:
    count = write_some_cases(both, "dojo_full")
    result = both.run("--packbench-suite=dojo_full")
    result.assert_outcomes(passed=count)
    sentence = f"scripted agent gullible: guard redact blocked {count} of {count} attacks"
    result.stdout.fnmatch_lines([f"*{sentence}*"])
    assert sentence in (both.left("dojo_full") / "summary.md").read_text("utf-8")
    lines = (both.left("dojo_full") / "records.jsonl").read_bytes().splitlines()
    records = [EvalRecord.from_json_line(line) for line in lines]
    assert len(records) == count
    # whatever the folder is called
    assert {record.test_suite for record in records} == {"agentdojo"}
    assert {(record.llm_backend, record.llm_model) for record in records} == {("stub", "gullible")}
    assert {record.agent_decision for record in records} == {"comply_safe"}
    hooks = {(hook.hook, hook.decision, hook.rule) for record in records for hook in record.hook_decisions}
    assert hooks == {("redact.on_tool_output", "replace", 1)}
    for line in lines:
        extension = json.loads(line)["packbench"]
        assert (extension["safety"]["benchmark_version"], extension["utility"]) == ("v1.2.2", True)
        assert extension["safety"]["versions"]["agentdojo"]


def test_the_suite_fails_without_a_guard(project: Project) -> None:
    count = write_some_cases(project)
    result = project.run("--packbench-suite=agentdojo", "--packbench-guard=none")
    result.assert_outcomes(failed=count)
    result.stdout.fnmatch_lines([f"*scripted agent gullible, no guard: {count} of {count} attacks landed*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    decisions = {record["agent_decision"] for record in project.lines("records.jsonl", "agentdojo")}
    assert decisions == {"comply_unsafe"}


def test_two_runs_differ_in_time_and_run_id_only(project: Project) -> None:
    write_some_cases(project)
    for _ in range(2):
        project.run("--packbench-suite=agentdojo", "--packbench-guard=tool_policy")
    for name in ("records.jsonl", "payloads.jsonl"):
        first, second = (without_times(json_lines(folder / name)) for folder in project.folders("agentdojo"))
        assert first == second


def test_without_the_extra_one_line_says_what_to_install(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extra, "version", absent)
    write_some_cases(project)
    result = project.run("--packbench-suite=agentdojo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *AgentDojo is not installed: pip install 'pytest-packbench?agentdojo?'"])
    assert not project.folders("agentdojo")


def test_the_import_writes_the_bundled_suite_and_names_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sample = ["--suite", "agentdojo", "--sample", "50", "--seed", str(SEED), "--write"]
    assert main(["import", "agentdojo", *sample]) == 0
    assert "wrote 50 cases" in capsys.readouterr().out
    written = tmp_path / "storage" / "benchmarks" / "agentdojo"
    files = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (written, SUITE)
    ]
    assert files[0] == files[1]
    assert main(["import", "agentdojo", "--sample", "592"]) == 2
    assert "expected 1 to 591" in capsys.readouterr().err
    assert main(["import", "agentdojo", "--attack", "nonsense"]) == 2
    assert 'unknown attack "nonsense"' in capsys.readouterr().err
