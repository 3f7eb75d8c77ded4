"""Where settings come from, what a wrong one is called, and the options that list, judge and place a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import toy_case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

INI = "[pytest]\npackbench_hts = data/schedule.tsv\n"


def test_settings_come_from_ini_keys_and_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("alpha")
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    project.pytester.makeini("[pytest]\npackbench_root = elsewhere\npackbench_output = out\n")
    monkeypatch.setenv("PACKBENCH_SUITE", "toy")
    project.run().assert_outcomes(passed=1)
    assert (project.root / "out" / "toy" / "latest").exists()
    project.run("--packbench-output=deep/out").assert_outcomes(passed=1)
    folder = project.root / "deep" / "out" / "toy"
    files = {path.name for path in (folder / (folder / "latest").read_text("utf-8").strip()).iterdir()}
    assert files == {"payloads.jsonl", "records.jsonl", "report.json", "summary.md"}
    assert not (project.root / "reports").exists()


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest reads [tool.pytest] from 9.0 on")
def test_settings_may_be_native_toml(project: Project) -> None:
    project.case("alpha")
    (project.root / "tox.ini").unlink()
    settings = 'strict = true\npackbench_suite = ["toy"]\npackbench_stale = "error"\n'
    project.pytester.makepyprojecttoml(f"[tool.pytest]\n{settings}")
    project.run().assert_outcomes(passed=1)


def test_a_wrong_setting_names_its_source(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("alpha")
    for name, value, message in (
        ("GATE", "none", "environment variable PACKBENCH_GATE: got 'none'; expected one of case, suite"),
        ("STALE", "x", "environment variable PACKBENCH_STALE: got 'x'; expected one of warn, error"),
        ("TARGET", "no.such:thing", 'target "no.such:thing": No module named'),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(f"PACKBENCH_{name}", value)
            result = project.run_toy()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{message}*"])


def test_files_of_packs_reach_the_target(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("none", python="assert dict(context.files) == {}")
    project.run_toy().assert_outcomes(passed=1)
    project.pytester.makeini(f"{INI}strict_config = true\n")
    path = str(project.root / "data" / "schedule.tsv")
    project.case("none", python=f"assert str(context.files['hts']) == {path!r}")
    project.run_toy().assert_outcomes(passed=1)
    monkeypatch.setenv("PACKBENCH_HTS", "/elsewhere/schedule.tsv")
    project.case("none", python="assert str(context.files['hts']) == '/elsewhere/schedule.tsv'")
    project.run_toy().assert_outcomes(passed=1)
    # a run without suites knows the keys of packs, too
    project.pytester.makepyfile("def test_one(): pass")
    project.run("-W", "error").assert_outcomes(passed=1)


def test_suites_are_listed_with_their_cases_by_folder_or_the_reason_why_not(project: Project) -> None:
    for case_id, case_type in {"alpha": "one", "beta": "one", "gamma": "two"}.items():
        project.case(case_id, case_type=case_type)
    project.case_lines(toy_case("a"), "", toy_case("b"), "{", path="storage/benchmarks/toy/cases/all.jsonl")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.OK
    toy = "  toy: 6 cases (. 3, one 2, two 1); pack toy: a toy"
    assert result.outlines[:2] == ["suites under storage/benchmarks: 1", toy]
    project.suite("broken", "pack: nothing\n")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    broken = "  broken: 0 cases; can't be used:*unknown pack*"
    result.stdout.fnmatch_lines(["suites under storage/benchmarks: 2", broken, toy])


def test_without_a_folder_of_suites_the_bundled_ones_are_listed(project: Project, bundled: Path) -> None:
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    result = project.run("--packbench-list")
    result.stdout.fnmatch_lines(["bundled suites: 1", "  tariff: * cases (*); pack tariff: *"])


@pytest.mark.parametrize(
    ("option", "minimum", "outcome", "code"),
    [
        ("case", 0.5, "failed", 1),
        ("suite", 0.5, "xfailed", 0),
        ("suite", 0.51, "xfailed", 1),
    ],
)
def test_a_gate_decides_at_its_minimum(project: Project, option: str, minimum: float, outcome: str, code: int) -> None:
    project.suite(text=f"pack: toy\ngates: [{{metric: pass_rate, min: {minimum}}}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=0.8)
    result = project.run_toy(f"--packbench-gate={option}")
    result.assert_outcomes(passed=1, **{outcome: 1})
    assert result.ret == code
    assert project.report()["packbench"]["status"] == ("failed" if code else "passed")
    assert len(project.records()) == 2


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
