"""Settings: from options, ini keys and the environment, and what a wrong one is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench.plugin import SETTINGS
from tests.integration.options.conftest import SECRET

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

HERE = Path(__file__).parent
MISTAKES = yaml.safe_load((HERE / "data" / "option_mistakes.yaml").read_text("utf-8"))


def test_each_option_has_its_file_of_tests() -> None:
    options = {setting.name for setting in SETTINGS if setting.option is not None} | {"list"}
    files = {path.stem.removeprefix("test_"): path.read_text("utf-8") for path in (HERE / "options").glob("test_*.py")}
    assert options == files.keys()
    for name, text in files.items():
        assert text.startswith(f'"""`--packbench-{name.replace("_", "-")}`'), name
        assert "\ndef test_" in text, name


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
    settings = 'strict = true\npackbench_suite = ["toy"]\npackbench_stale = "error"\n'
    project.pytester.makepyprojecttoml(f"[tool.pytest]\n{settings}")
    project.run().assert_outcomes(passed=1)


def test_a_mistake_in_the_settings_is_one_line_before_the_first_case(
    project: Project, expected: ExpectedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    project.prepare("x")
    project.write("called.txt", "")
    lines = []
    for name, settings in MISTAKES.items():
        target = "note" if name.startswith("cache") else "ask"
        if name == "unknown price":
            monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        variables = [setting for setting in settings if setting.startswith("PACKBENCH_")]
        with monkeypatch.context() as environment:
            for variable in variables:
                environment.setenv(*variable.split("="))
            options = [setting for setting in settings if setting not in variables]
            result = project.run_toy(f"--packbench-target=pipeline:{target}", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, name
        lines.append(f"{name}: {result.stderr.str().strip()}\n".replace(str(project.root), "<PROJECT>"))
    expected.check("".join(lines))
    assert not project.folders()
    assert (project.root / "called.txt").read_text("utf-8") == ""


def test_files_of_packs_reach_the_target(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("none", python="assert dict(context.files) == {}")
    project.run_toy().assert_outcomes(passed=1)
    project.pytester.makeini("[pytest]\npackbench_hts = data/schedule.tsv\naddopts = --strict-config\n")
    path = str(project.root / "data" / "schedule.tsv")
    project.case("none", python=f"assert str(context.files['hts']) == {path!r}")
    project.run_toy().assert_outcomes(passed=1)
    monkeypatch.setenv("PACKBENCH_HTS", "/elsewhere/schedule.tsv")
    project.case("none", python="assert str(context.files['hts']) == '/elsewhere/schedule.tsv'")
    project.run_toy().assert_outcomes(passed=1)
    # a run without suites knows the keys of packs, too
    project.pytester.makepyfile("def test_one(): pass")
    project.run("-W", "error").assert_outcomes(passed=1)
