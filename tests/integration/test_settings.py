"""Where settings come from: options, environment variables, ini keys; a wrong one names its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

INI = "[pytest]\npackbench_hts = data/schedule.tsv\n"


def test_settings_come_from_ini_keys_and_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("alpha")
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    project.pytester.makeini("[pytest]\npackbench_root = elsewhere\npackbench_output = out\n")
    monkeypatch.setenv("PACKBENCH_SUITE", "toy")
    project.run().assert_outcomes(passed=1)
    assert (project.root / "out" / "toy" / "latest").exists()


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest reads [tool.pytest] from 9.0 on")
def test_settings_may_be_native_toml(project: Project) -> None:
    project.case("alpha")
    (project.root / "tox.ini").unlink()
    project.pytester.makepyprojecttoml(
        '[tool.pytest]\nstrict = true\npackbench_suite = ["toy"]\npackbench_stale = "error"\n'
    )
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PACKBENCH_GATE", "none", "environment variable PACKBENCH_GATE: got 'none'; expected one of case, suite"),
        ("PACKBENCH_MODE", "dead", "PACKBENCH_MODE: got 'dead'; expected one of fixture, live, record"),
        ("PACKBENCH_STALE", "x", "environment variable PACKBENCH_STALE: got 'x'; expected one of warn, error"),
        ("PACKBENCH_TARGET", "no.such:thing", 'target "no.such:thing": No module named'),
    ],
)
def test_a_wrong_setting_names_its_source(
    project: Project, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    project.case("alpha")
    monkeypatch.setenv(variable, value)
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_files_of_packs_reach_the_target(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("none", python="assert dict(context.files) == {}")
    project.run_toy().assert_outcomes(passed=1)
    project.pytester.makeini(INI)
    path = str(project.root / "data" / "schedule.tsv")
    project.case("none", python=f"assert str(context.files['hts']) == {path!r}")
    project.run_toy().assert_outcomes(passed=1)
    monkeypatch.setenv("PACKBENCH_HTS", "/elsewhere/schedule.tsv")
    project.case("none", python="assert str(context.files['hts']) == '/elsewhere/schedule.tsv'")
    project.run_toy().assert_outcomes(passed=1)


def test_a_run_without_suites_knows_the_keys_of_packs(project: Project) -> None:
    project.pytester.makeini(f"{INI}strict_config = true\n")
    project.pytester.makepyfile("def test_one(): pass")
    project.run("-W", "error").assert_outcomes(passed=1)
