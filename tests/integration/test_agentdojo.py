"""The suite `agentdojo` as a user runs it: passes behind its guard, fails without, the same each time."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

import json
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import main
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.packs.agent_safety.agentdojo import target as extra
from pytest_packbench.packs.agent_safety.agentdojo.importer import SEED
from pytest_packbench.packs.agent_safety.agentdojo.pair import run_pair  # noqa: F401 - imported once, not by each run

if TYPE_CHECKING:
    from tests.integration.conftest import Project

SUITE = Path(__file__).parents[2] / "storage" / "benchmarks" / "agentdojo"
SOME = ("banking_user_task_0_injection_task_8", "slack_", "travel_user_task_4_injection_task_6")


def write_some_cases(project: Project, suite: str = "agentdojo") -> int:
    """Give a project a few cases of the suite, and nothing of the toy; tells how many."""
    project.pytester.makeconftest("")
    folder = project.root / "storage" / "benchmarks" / suite
    found = [path for path in sorted(SUITE.rglob("*.json")) if path.name.startswith(SOME)]
    for path in found:
        copy = folder / path.relative_to(SUITE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(SUITE / "suite.yaml", folder)
    return len(found)


def test_it_passes_behind_its_guard_and_its_records_are_strict(project: Project) -> None:
    count = write_some_cases(project)
    project.run("--packbench-suite=agentdojo").assert_outcomes(passed=count)
    lines = (project.left("agentdojo") / "records.jsonl").read_bytes().splitlines()
    records = [EvalRecord.from_json_line(line) for line in lines]
    assert len(records) == count
    assert {record.test_suite for record in records} == {"agentdojo"}
    assert {(record.llm_backend, record.llm_model) for record in records} == {("stub", "gullible")}
    assert {record.agent_decision for record in records} == {"comply_safe"}
    assert {(hook.hook, hook.decision, hook.rule) for record in records for hook in record.hook_decisions} == {
        ("redact.on_tool_output", "replace", 1)
    }
    own: list[dict[str, Any]] = [json.loads(line)["packbench"] for line in lines]
    assert {one["safety"]["benchmark_version"] for one in own} == {"v1.2.2"}
    assert {one["safety"]["versions"]["agentdojo"] for one in own}
    assert {one["utility"] for one in own} == {True}


def test_it_fails_without_a_guard(plain: Project) -> None:
    count = write_some_cases(plain)
    result = plain.run("--packbench-suite=agentdojo", "--packbench-guard=none")
    assert result.ret == 1
    result.assert_outcomes(failed=count)
    records = plain.lines("records.jsonl", "agentdojo")
    assert {record["agent_decision"] for record in records} == {"comply_unsafe"}


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ("redact", "*scripted agent gullible: guard redact blocked {count} of {count} attacks*"),
        ("none", "*scripted agent gullible, no guard: {count} of {count} attacks landed*"),
    ],
)
def test_the_summary_says_what_a_script_measures(plain: Project, guard: str, words: str) -> None:
    count = write_some_cases(plain)
    result = plain.run("--packbench-suite=agentdojo", f"--packbench-guard={guard}")
    result.stdout.fnmatch_lines([words.format(count=count)])
    assert words.strip("*").format(count=count) in (plain.left("agentdojo") / "summary.md").read_text("utf-8")


def test_a_guard_of_the_users_own_stands_in_the_order_given(plain: Project) -> None:
    count = write_some_cases(plain)
    plain.pytester.makepyfile(
        my_guards="""
        from pytest_packbench.packs.agent_safety.guards.base import GuardRuling

        class Quiet:
            name = "quiet"

            def on_tool_output(self, output):
                return GuardRuling(decision="replace", text="", rule=42)
        """
    )
    arguments = ("--packbench-suite=agentdojo", "--packbench-guard=spotlight", "--packbench-guard=my_guards:Quiet")
    plain.run(*arguments).assert_outcomes(passed=count)
    hooks = plain.lines("records.jsonl", "agentdojo")[0]["hook_decisions"]
    assert [one["hook"] for one in hooks[:3]] == [
        "spotlight.on_prompt_submit",
        "spotlight.on_tool_output",
        "quiet.on_tool_output",
    ]
    assert hooks[2]["rule"] == 42


def test_two_runs_differ_in_time_and_run_id_alone(plain: Project) -> None:
    write_some_cases(plain)
    for _ in range(2):
        plain.run("--packbench-suite=agentdojo", "--packbench-guard=tool_policy")
    first, second = (
        [_without_times(json.loads(line)) for line in (folder / "records.jsonl").read_text("utf-8").splitlines()]
        for folder in plain.folders("agentdojo")
    )
    assert first == second
    payloads = [(folder / "payloads.jsonl").read_text("utf-8") for folder in plain.folders("agentdojo")]
    results = [[json.loads(line)["result"] for line in text.splitlines()] for text in payloads]
    assert results[0] == results[1]


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in {"run_id", "timestamp", "wall_clock_ms"}}


def test_a_full_import_under_another_name_still_writes_strict_records(plain: Project) -> None:
    count = write_some_cases(plain, "dojo_full")
    plain.run("--packbench-suite=dojo_full").assert_outcomes(passed=count)
    lines = (plain.left("dojo_full") / "records.jsonl").read_bytes().splitlines()
    assert {EvalRecord.from_json_line(line).test_suite for line in lines} == {"agentdojo"}


def test_without_the_extra_one_line_says_what_to_install(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extra, "version", absent)
    write_some_cases(plain)
    result = plain.run("--packbench-suite=agentdojo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *AgentDojo is not installed: pip install 'pytest-packbench?agentdojo?'"])
    assert not plain.folders("agentdojo")


def test_the_import_writes_the_suite_that_comes_with_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["import", "agentdojo", "--suite", "agentdojo", "--sample", "50", "--seed", str(SEED), "--write"]
    assert main(arguments) == 0
    assert "wrote 50 cases" in capsys.readouterr().out
    written = tmp_path / "storage" / "benchmarks" / "agentdojo"
    names = {path.relative_to(written) for path in written.rglob("*") if path.is_file()}
    assert names == {path.relative_to(SUITE) for path in SUITE.rglob("*") if path.is_file()}
    assert all((written / name).read_bytes() == (SUITE / name).read_bytes() for name in names)


def test_an_import_that_asks_for_what_is_not_there_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", "agentdojo", "--sample", "592"]) == 2
    assert "expected 1 to 591" in capsys.readouterr().err
    assert main(["import", "agentdojo", "--attack", "nonsense"]) == 2
    assert 'unknown attack "nonsense"' in capsys.readouterr().err
