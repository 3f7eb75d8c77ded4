"""A run without a suite: only the entry point is imported, nothing is written, nothing changes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SPY = """
import json, sys

def pytest_unconfigure(config):
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
PACKAGE = {"pytest_packbench"} | {f"pytest_packbench.{name}" for name in ("plugin", "hookspecs", "packs")}
# what `json-report` imports is in the comparison on both sides
HEAVY = {"pydantic", "yaml", "tabulate", "ulid", "filelock", "asyncio", "pytest_packbench.pytest_plugin"}


class Run(NamedTuple):
    """What a process of pytest printed, imported and left."""

    output: str
    modules: set[str]
    files: set[str]


@pytest.fixture
def unrelated(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of somebody else, with JSON files where suites would be."""
    pytester.makeconftest(SPY)
    pytester.makepyfile("def test_one(): pass")
    folder = pytester.path / "storage" / "benchmarks" / "theirs" / "cases"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text("{}", encoding="utf-8")
    return pytester


def run(pytester: pytest.Pytester, *arguments: str) -> Run:
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments)
    assert result.ret == 0
    modules = set(json.loads((pytester.path / "modules.json").read_text("utf-8")))
    lines = [line for line in result.outlines if "plugins:" not in line and "passed in" not in line]
    return Run("\n".join(lines), modules, files(pytester.path))


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in {"stdout", "stderr", "modules.json"}
    }


def test_an_unrelated_run_imports_the_entry_point_and_nothing_else(unrelated: pytest.Pytester) -> None:
    loaded, without = run(unrelated), run(unrelated, "-p", "no:packbench")
    assert loaded.output == without.output
    assert loaded.files == without.files
    assert loaded.modules - without.modules <= PACKAGE
    # other plugins of the environment may import theirs
    assert not (loaded.modules - without.modules) & HEAVY


def test_an_unrelated_run_under_xdist_is_untouched(unrelated: pytest.Pytester) -> None:
    _, modules, left = run(unrelated, "-n", "1")
    imported = {name for name in modules if name.startswith("pytest_packbench")}
    assert imported <= {*PACKAGE, "pytest_packbench.pytest_plugin", "pytest_packbench.pytest_plugin.xdist_controller"}
    assert not [name for name in left if name.startswith("reports")]


def test_without_the_plugin_a_suites_folder_is_nothing_special(unrelated: pytest.Pytester) -> None:
    result = unrelated.runpytest("-p", "no:packbench", "storage")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("arguments", [("-p", "no:cacheprovider"), ("--packbench-list",)], ids=["unused", "list"])
def test_no_warning_is_an_error(unrelated: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    unrelated.makeini("[pytest]\n")
    result = unrelated.run(sys.executable, *["-X", "dev", "-W", "error", "-m", "pytest", "-W", "error"], *arguments)
    assert result.ret == 0
