"""A run that asks for no suite: nothing imported but the entry point, nothing written, nothing changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SPY = """
import json, sys

def pytest_unconfigure(config):
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
OURS = {"pytest_packbench"} | {f"pytest_packbench.{name}" for name in ("plugin", "hookspecs", "packs")}
# what `json-report` brings stands in the comparison on both sides
HEAVY = {"pydantic", "yaml", "tabulate", "ulid", "filelock", "asyncio", "pytest_packbench.pytest_plugin"}


@pytest.fixture
def unrelated(pytester: pytest.Pytester) -> pytest.Pytester:
    """Somebody else's project, with JSON files of its own where suites would be."""
    pytester.makeconftest(SPY)
    pytester.makepyfile("def test_one(): pass")
    folder = pytester.path / "storage" / "benchmarks" / "theirs" / "cases"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text("{}", encoding="utf-8")
    return pytester


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[str, set[str], set[str]]:
    """Run pytest in a process of its own: what it said, what it imported, which files it left."""
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments)
    assert result.ret == 0
    modules = set(json.loads((pytester.path / "modules.json").read_text("utf-8")))
    said = "\n".join(line for line in result.outlines if "plugins:" not in line and "passed in" not in line)
    return said, modules, files(pytester.path)


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in {"stdout", "stderr", "modules.json"}
    }


def test_an_unrelated_run_imports_the_entry_point_and_nothing_else(unrelated: pytest.Pytester) -> None:
    with_us = run(unrelated)
    without = run(unrelated, "-p", "no:packbench")
    assert with_us[0] == without[0]
    assert with_us[1] - without[1] <= OURS
    # other plugins of the environment may bring theirs
    assert not (with_us[1] - without[1]) & HEAVY
    assert with_us[2] == without[2]


def test_an_unrelated_run_under_xdist_is_untouched(unrelated: pytest.Pytester) -> None:
    _, modules, left = run(unrelated, "-n", "1")
    ours = {name for name in modules if name.startswith("pytest_packbench")}
    assert ours <= {*OURS, "pytest_packbench.pytest_plugin", "pytest_packbench.pytest_plugin.xdist_controller"}
    assert not [name for name in left if name.startswith("reports")]


def test_without_the_plugin_a_suites_folder_is_nothing_special(unrelated: pytest.Pytester) -> None:
    result = unrelated.run(sys.executable, "-m", "pytest", "-p", "no:packbench", "storage")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_warnings_as_errors(unrelated: pytest.Pytester) -> None:
    result = unrelated.run(
        sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"
    )
    assert result.ret == 0


def test_a_suite_runs_with_warnings_as_errors(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    result = pytester.run(sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-W", "error", "--packbench-list")
    assert result.ret == 0
