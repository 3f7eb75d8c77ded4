"""The commands find suites and packs as pytest does: by ini `packbench_root`, and by the hooks of a conftest.py."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import Project

    Packbench = Callable[..., tuple[str, str, int]]

INI = {
    "pytest.ini": "[pytest]\npackbench_root = bench\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npackbench_root = "bench"\n',
    "tox.ini": "[pytest]\npackbench_root = bench\n",
    "setup.cfg": "[tool:pytest]\npackbench_root = bench\n",
}


CLEAN = ("0 errors, 0 warnings\n", "", 0)


@pytest.fixture
def configured(project: Project) -> Project:
    """The toy suite under a root that only the ini file names, its pack in the conftest.py only."""
    project.case("alpha", text="?", notes={"source": "made up", "date": "2026-01-01"})
    (project.root / "storage" / "benchmarks").rename(project.root / "bench")
    (project.root / "storage").rmdir()
    (project.root / "tox.ini").unlink()
    project.write("pytest.ini", INI["pytest.ini"])
    return project


@pytest.fixture
def packbench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Packbench]:
    """Runs a command in this process, which forgets the project's modules."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def forget() -> None:
        for name in {"conftest", "toys"} & sys.modules.keys():
            del sys.modules[name]

    def run(*arguments: str) -> tuple[str, str, int]:
        forget()
        capsys.readouterr()
        code = main(list(arguments))
        return (*capsys.readouterr(), code)

    yield run
    forget()


def test_lint_reads_each_ini_file(configured: Project, packbench: Packbench, monkeypatch: pytest.MonkeyPatch) -> None:
    (configured.root / "pytest.ini").unlink()
    for name, text in INI.items():
        path = configured.write(name, text)
        assert packbench("lint", "toy") == CLEAN, name
        path.unlink()
    # from a folder below, where plugins are not loaded automatically and the conftest.py prints
    configured.write("pytest.ini", INI["pytest.ini"])
    configured.extend_conftest("print('hello')\n")
    (configured.root / "src").mkdir()
    monkeypatch.chdir(configured.root / "src")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert packbench("lint", "toy") == CLEAN


def test_options_come_before_the_environment_and_that_before_the_ini_file(
    configured: Project, packbench: Packbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured.root / "bench").rename(configured.root / "moved")
    monkeypatch.setenv("PACKBENCH_ROOT", "moved")
    assert packbench("lint", "toy") == CLEAN
    assert "the folder other does not exist" in packbench("lint", "toy", "--root", "other")[1]
    (configured.root / "conftest.py").rename(configured.root / "toys.py")
    configured.write("conftest.py", "raise RuntimeError('broken')\n")
    # with both options no configuration is read
    assert packbench("lint", "toy", "--root", "moved", "--pack", "toys:Toy") == CLEAN


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("conftest.py", "raise RuntimeError('broken')\n", "RuntimeError: broken"),
        ("conftest.py", "def pytest_packbench_packs():\n    return [1]\n", "a hook pytest_packbench_packs failed"),
        ("pytest.ini", "[pytest]\naddopts = -p no:packbench\n", "the folder storage/benchmarks does not exist"),
    ],
)
def test_a_configuration_that_can_not_be_used_is_an_error_of_one_line(
    configured: Project, packbench: Packbench, file: str, text: str, message: str
) -> None:
    configured.write(file, text)
    _, error, code = packbench("lint", "toy")
    assert (code, error.count("\n"), message in error) == (2, 1, True), error
    with pytest.raises(SystemExit, match="0"):
        packbench("lint", "--help")


def test_commands_know_the_packs_of_a_conftest_and_write_under_the_root(
    configured: Project, packbench: Packbench
) -> None:
    configured.run_toy().assert_outcomes(passed=1)
    output, _, code = packbench("validate", "bench/toy")
    assert (code, "bench/toy/cases/plain/alpha.json: case of pack toy" in output) == (0, True)
    for command in ("gate", "rescore", "merge"):
        assert packbench(command, str(configured.folders()[0]))[1:] == ("", 0), command
    # a suite in the ini file need not exist yet
    configured.write("pytest.ini", INI["pytest.ini"] + "packbench_suite = mine\n")
    assert "run it: pytest --packbench-suite=mine\n" in packbench("init", "mine")[0]
    assert (configured.root / "bench" / "mine" / "suite.yaml").exists()
    configured.write("cases.csv", "id,question,answer\na,b,c\n")
    columns = "--id id --input question --expected answer --case-type =plain --difficulty =easy"
    assert packbench("import", "csv", "cases.csv", *columns.split(), "--suite", "more", "--write")[1:] == ("", 0)
    assert (configured.root / "bench" / "more" / "cases" / "plain" / "a.json").exists()


SCRIPT = """
import pathlib, sys
from pytest_packbench.commands import main

suite = pathlib.Path("storage/benchmarks/own")
suite.mkdir(parents=True)
(suite / "suite.yaml").write_text("pack: generic")
for name, text in {"pyproject.toml": "[project]", "tests/conftest.py": "", "conftest.py": "", "last.py": ""}.items():
    main(["lint", "own"])
    print("pytest" in sys.modules, file=sys.stderr)
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(text)
"""


def test_without_configuration_pytest_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKBENCH_ROOT", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    script = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(script, cwd=tmp_path, check=True, capture_output=True, text=True)
    # in an empty folder, with a pyproject.toml of others, with a conftest.py that is not read, and with one that is
    assert ended.stderr.split() == ["False", "False", "False", "True"]
