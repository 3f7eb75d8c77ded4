"""The commands find suites and packs as pytest does: by ini `packbench_root`, and by the hooks of a conftest.py."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands import paths

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

INI = {
    "pytest.ini": "[pytest]\npackbench_root = bench\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npackbench_root = "bench"\n',
    "tox.ini": "[pytest]\npackbench_root = bench\n",
    "setup.cfg": "[tool:pytest]\npackbench_root = bench\n",
}


def packbench(project: Project, *arguments: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest_packbench", *arguments],
        cwd=project.root / folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def configured(plain: Project) -> Project:
    """The toy suite under a root that only the ini file names, its pack in the conftest.py only."""
    plain.case("alpha", notes={"source": "made up", "date": "2026-01-01"})
    (plain.root / "storage" / "benchmarks").rename(plain.root / "bench")
    (plain.root / "storage").rmdir()
    (plain.root / "tox.ini").unlink()
    set_ini(plain.root, "pytest.ini")
    return plain


def set_ini(root: Path, name: str) -> None:
    for other in INI:
        (root / other).unlink(missing_ok=True)
    (root / name).write_text(INI[name], encoding="utf-8")


@pytest.mark.parametrize("name", INI)
def test_lint_reads_each_ini_file(configured: Project, name: str) -> None:
    set_ini(configured.root, name)
    ended = packbench(configured, "lint", "toy")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 errors, 0 warnings\n", "", 0)


def test_the_configuration_is_read_where_plugins_are_not_loaded_by_themselves(
    configured: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    ended = packbench(configured, "lint", "toy")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 errors, 0 warnings\n", "", 0)


def test_a_project_without_the_plugin_has_the_default_root(configured: Project) -> None:
    (configured.root / "pytest.ini").write_text("[pytest]\naddopts = -p no:packbench\n", encoding="utf-8")
    ended = packbench(configured, "lint", "toy")
    assert "the folder storage/benchmarks does not exist" in ended.stderr
    assert ended.returncode == 2


def test_a_folder_below_has_the_same_root(configured: Project) -> None:
    (configured.root / "src").mkdir()
    ended = packbench(configured, "lint", "toy", folder="src")
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_validate_knows_the_packs_of_a_conftest(configured: Project) -> None:
    ended = packbench(configured, "validate", "bench/toy")
    assert ended.returncode == 0
    assert "bench/toy/cases/plain/alpha.json: case of pack toy" in ended.stdout


@pytest.mark.parametrize("command", ["gate", "rescore", "merge"])
def test_commands_on_runs_know_the_suite(configured: Project, command: str) -> None:
    configured.run_toy().assert_outcomes(passed=1)
    ended = packbench(configured, command, str(configured.left()))
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_new_suites_are_written_under_the_root_of_the_ini(configured: Project) -> None:
    ended = packbench(configured, "init", "mine")
    assert (configured.root / "bench" / "mine" / "suite.yaml").exists()
    assert "run it: pytest --packbench-suite=mine\n" in ended.stdout
    (configured.root / "cases.csv").write_text("id,question,answer\na,b,c\n", encoding="utf-8")
    columns = (
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
    )
    ended = packbench(configured, "import", "csv", "cases.csv", *columns, "--suite", "more", "--write")
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert (configured.root / "bench" / "more" / "cases" / "plain" / "a.json").exists()


def test_options_win(configured: Project) -> None:
    ended = packbench(configured, "lint", "toy", "--root", "other")
    assert "the folder other does not exist" in ended.stderr
    (configured.root / "toys.py").write_text(
        "from conftest import Toy\n\nclass Other(Toy):\n    version = '2'\n", encoding="utf-8"
    )
    run = packbench(configured, "lint", "toy", "--root", "bench", "--pack", "toys:Other")
    assert (run.stdout, run.returncode) == ("0 errors, 0 warnings\n", 0)


def test_with_both_options_no_configuration_is_read(configured: Project) -> None:
    (configured.root / "conftest.py").rename(configured.root / "toys.py")
    (configured.root / "conftest.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    assert packbench(configured, "lint", "toy", "--root", "bench", "--pack", "toys:Toy").returncode == 0
    ended = packbench(configured, "lint", "toy")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "conftest.py" in line
    assert "RuntimeError: broken" in line
    assert packbench(configured, "lint", "--help").returncode == 0


def test_what_a_conftest_prints_is_not_in_the_output(configured: Project) -> None:
    with (configured.root / "conftest.py").open("a", encoding="utf-8") as file:
        file.write("\nprint('hello')\n")
    assert packbench(configured, "lint", "toy").stdout == "0 errors, 0 warnings\n"


def test_a_hook_that_fails_is_one_line(configured: Project) -> None:
    (configured.root / "conftest.py").write_text("def pytest_packbench_packs():\n    return [1]\n", encoding="utf-8")
    ended = packbench(configured, "lint", "toy")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "a hook pytest_packbench_packs failed" in line


def test_a_suite_in_the_ini_file_need_not_exist(configured: Project) -> None:
    with (configured.root / "pytest.ini").open("a", encoding="utf-8") as file:
        file.write("packbench_suite = mine\n")
    assert packbench(configured, "init", "mine").returncode == 0


def test_without_configuration_pytest_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKBENCH_ROOT", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\n', encoding="utf-8")
    assert not paths._is_configured(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text("", encoding="utf-8")
    assert paths._is_configured(tmp_path)
    code = "import sys; from pytest_packbench.cli import main; main(['init', 'a']); sys.exit('pytest' in sys.modules)"
    (tmp_path / "bare").mkdir()
    (tmp_path / "tests" / "conftest.py").unlink()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "bare", check=True, capture_output=True)


def test_the_environment_counts(configured: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (configured.root / "bench").rename(configured.root / "moved")
    monkeypatch.setenv("PACKBENCH_ROOT", "moved")
    assert main(["lint", "toy"]) == 0
