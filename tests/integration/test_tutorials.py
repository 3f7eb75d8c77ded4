"""The tutorials, every block in its order, from an empty folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import pytest_packbench.packs.generic.pack
import pytest_packbench.packs.tariff.pack
import pytest_packbench.pytest_plugin.session
from pytest_packbench.cli import main
from pytest_packbench.packs.registry import Packs
from tests.doc_blocks import ROOT, PageRunner, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs)


@pytest.fixture
def walk(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> PageRunner:
    clean_environment(monkeypatch)
    # installed from a wheel the suites stand in the package
    shutil.copytree(ROOT / "storage" / "benchmarks" / "tariff", tmp_path / "tariff")
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", tmp_path)
    return PageRunner(pytester, capsys)


@pytest.mark.parametrize(
    ("name", "codes", "last"),
    [
        ("tutorial", [0, 0, 1, 0, 1, 0, 0, 1, 0, 1], "packbench: regressed>0: 1: FAIL"),
        ("tutorial-own-suite", [0, 1, 0, 2, 0, 0, 1, 0, 1, 0], "## Runs of support"),
    ],
)
def test_every_block_of_the_page(walk: PageRunner, name: str, codes: list[int], last: str) -> None:
    page = ROOT / "docs" / f"{name}.md"
    walk.page(page)
    assert walk.codes == codes
    assert last in walk.said
    assert last in page.read_text("utf-8")


def test_a_bundled_suite_is_named_where_a_folder_hides_it(walk: PageRunner) -> None:
    walk.command("packbench init support")
    walk.said = []
    assert walk.command("pytest --packbench-suite=tariff") == pytest.ExitCode.USAGE_ERROR
    said = 'ERROR: --packbench-suite: unknown suite "tariff" (did you mean "bundled/tariff", which is part of the'
    assert f"{said} installed package?); suites under storage/benchmarks: support" in walk.said


@pytest.mark.parametrize("pack", sorted(name for name, one in Packs().items() if one.starter() is not None))
def test_every_starter_runs_at_once(pytester: pytest.Pytester, pack: str) -> None:
    assert main(["init", "mine", "--pack", pack]) == 0
    result = pytester.runpytest("--packbench-suite=mine")
    result.assert_outcomes(passed=1, failed=1)
    readme = (pytester.path / "storage" / "benchmarks" / "mine" / "README.md").read_text("utf-8")
    score = next(line.split()[1] for line in result.outlines if line.startswith("score "))
    assert f"scores {score}" in readme
