"""The commands find suites and packs as pytest does: by ini `packbench_root`, and by the hooks of a conftest.py."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_packbench.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import Project

INI = {
    "pytest.ini": "[pytest]\npackbench_root = bench\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npackbench_root = "bench"\n',
    "tox.ini": "[pytest]\npackbench_root = bench\n",
    "setup.cfg": "[tool:pytest]\npackbench_root = bench\n",
}


class Ended(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int


CLEAN = Ended("0 errors, 0 warnings\n", "", 0)


@pytest.fixture
def configured(project: Project) -> Project:
    """The toy suite under a root that only the ini file names, its pack in the conftest.py only."""
    project.case("alpha", notes={"source": "made up", "date": "2026-01-01"})
    (project.root / "storage" / "benchmarks").rename(project.root / "bench")
    (project.root / "storage").rmdir()
    (project.root / "tox.ini").unlink()
    project.write("pytest.ini", INI["pytest.ini"])
    return project


@pytest.fixture
def packbench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ended]]:
    """Runs a command in this process, which forgets the project's modules after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = {"conftest", "toys"}

    def run(*arguments: str) -> Ended:
        for name in modules & sys.modules.keys():
            del sys.modules[name]
        capsys.readouterr()
        code = main(list(arguments))
        return Ended(*capsys.readouterr(), code)

    yield run
    for name in modules & sys.modules.keys():
        del sys.modules[name]


@pytest.mark.parametrize("name", INI)
def test_lint_reads_each_ini_file(configured: Project, packbench: Callable[..., Ended], name: str) -> None:
    (configured.root / "pytest.ini").unlink()
    configured.write(name, INI[name])
    assert packbench("lint", "toy") == CLEAN


def test_plugins_need_not_be_loaded_automatically(
    configured: Project, packbench: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert packbench("lint", "toy") == CLEAN


def test_a_project_without_the_plugin_has_the_default_root(
    configured: Project, packbench: Callable[..., Ended]
) -> None:
    configured.write("pytest.ini", "[pytest]\naddopts = -p no:packbench\n")
    ended = packbench("lint", "toy")
    assert "the folder storage/benchmarks does not exist" in ended.err
    assert ended.code == 2


def test_a_folder_below_has_the_same_root(
    configured: Project, packbench: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured.root / "src").mkdir()
    monkeypatch.chdir(configured.root / "src")
    assert packbench("lint", "toy") == CLEAN


def test_the_environment_comes_before_the_ini_file(
    configured: Project, packbench: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured.root / "bench").rename(configured.root / "moved")
    monkeypatch.setenv("PACKBENCH_ROOT", "moved")
    assert packbench("lint", "toy") == CLEAN


def test_commands_know_the_packs_of_a_conftest(configured: Project, packbench: Callable[..., Ended]) -> None:
    configured.run_toy().assert_outcomes(passed=1)
    ended = packbench("validate", "bench/toy")
    assert (ended.code, "bench/toy/cases/plain/alpha.json: case of pack toy" in ended.out) == (0, True)
    for command in ("gate", "rescore", "merge"):
        ended = packbench(command, str(configured.folders()[0]))
        assert (ended.err, ended.code) == ("", 0), command


def test_new_suites_are_written_under_the_root_of_the_ini_file(
    configured: Project, packbench: Callable[..., Ended]
) -> None:
    # a suite in the ini file need not exist yet
    configured.write("pytest.ini", INI["pytest.ini"] + "packbench_suite = mine\n")
    assert "run it: pytest --packbench-suite=mine\n" in packbench("init", "mine").out
    assert (configured.root / "bench" / "mine" / "suite.yaml").exists()
    configured.write("cases.csv", "id,question,answer\na,b,c\n")
    columns = [
        "--id",
        "id",
        "--input",
        "question",
        "--expected",
        "answer",
        "--case-type",
        "=plain",
        "--difficulty",
        "=easy",
    ]
    ended = packbench("import", "csv", "cases.csv", *columns, "--suite", "more", "--write")
    assert (ended.err, ended.code) == ("", 0)
    assert (configured.root / "bench" / "more" / "cases" / "plain" / "a.json").exists()


def test_options_come_before_the_configuration(configured: Project, packbench: Callable[..., Ended]) -> None:
    assert "the folder other does not exist" in packbench("lint", "toy", "--root", "other").err
    (configured.root / "conftest.py").rename(configured.root / "toys.py")
    configured.write("conftest.py", "raise RuntimeError('broken')\n")
    # with both options no configuration is read
    assert packbench("lint", "toy", "--root", "bench", "--pack", "toys:Toy") == CLEAN
    ended = packbench("lint", "toy")
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert "conftest.py" in line
    assert "RuntimeError: broken" in line
    with pytest.raises(SystemExit) as stop:
        packbench("lint", "--help")
    assert stop.value.code == 0


def test_what_a_conftest_prints_is_not_in_the_output(configured: Project, packbench: Callable[..., Ended]) -> None:
    configured.extend_conftest("print('hello')\n")
    assert packbench("lint", "toy") == CLEAN


def test_a_hook_that_fails_is_one_line(configured: Project, packbench: Callable[..., Ended]) -> None:
    configured.write("conftest.py", "def pytest_packbench_packs():\n    return [1]\n")
    ended = packbench("lint", "toy")
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert "a hook pytest_packbench_packs failed" in line


SCRIPT = """
import pathlib, sys
from pytest_packbench.cli import main

for name, text in {"pyproject.toml": "[project]", "tests/conftest.py": "", "last.py": ""}.items():
    main(["init", name.partition(".")[0].replace("/", "-"), "--pack", "generic"])
    print("pytest" in sys.modules, file=sys.stderr)
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(text)
"""


def test_without_configuration_pytest_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKBENCH_ROOT", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    script = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(script, cwd=tmp_path, check=True, capture_output=True, text=True)
    # in an empty folder, with a pyproject.toml of others, and with a conftest.py
    assert ended.stderr.split() == ["False", "False", "True"]
