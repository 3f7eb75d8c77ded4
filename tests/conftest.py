"""A copy of the tariff suite for a test to run and to change, and texts that are compared with files."""

from __future__ import annotations

import concurrent.futures.process
import concurrent.futures.thread
import difflib
import importlib.util
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tabulate
import yaml

import pytest_packbench.analysis.changes
import pytest_packbench.analysis.conclusion
import pytest_packbench.packs.agent_safety.pack
import pytest_packbench.packs.generic.pack
import pytest_packbench.packs.tariff.pack
import pytest_packbench.packs.tariff.target
import pytest_packbench.pytest_plugin.check
import pytest_packbench.pytest_plugin.explain
import pytest_packbench.pytest_plugin.marked
import pytest_packbench.pytest_plugin.prefetch
import pytest_packbench.pytest_plugin.recorder
import pytest_packbench.pytest_plugin.session
import pytest_packbench.pytest_plugin.settings
import pytest_packbench.pytest_plugin.xdist
import pytest_packbench.reports.blocks
import pytest_packbench.reports.page
import pytest_packbench.reports.page.case_data
import pytest_packbench.reports.story

if TYPE_CHECKING:
    from collections.abc import Iterator

if importlib.util.find_spec("hypothesis"):  # a newcomer who runs a suite here has only what the package needs
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile("packbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        "first_failure",  # for measurements: the smallest example is of no use there, and takes minutes
        settings.get_profile("packbench"),
        phases=[Phase.explicit, Phase.generate],
        database=None,
        derandomize=True,
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "packbench"))

UPDATE = "PACKBENCH_UPDATE_GOLDEN"
# read now: tests of the plugin take its variables out of the environment
_UPDATING = bool(os.environ.get(UPDATE))
# last, so that the installed package is tested; for tests of `benchmarks`
sys.path.append(str(Path(__file__).parents[1]))
# steps of their own in .ci/run: python -m pytest tests/beside, tests/machines
collect_ignore = ["beside", "machines"]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as for jobs in the background of a shell; processes that tests interrupt would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
SUITE = Path(__file__).parents[1] / "storage" / "benchmarks" / "tariff"
# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench, concurrent.futures, tabulate, yaml)


@pytest.fixture(scope="session")
def yardstick() -> float:
    """CPU time of a fixed piece of work, seconds: some 0.04; seconds say more of the machine than of the code."""

    def once() -> float:
        before = time.process_time()
        sum(number * number for number in range(1_000_000))
        return time.process_time() - before

    return min(once() for _ in range(3))


@dataclass
class Copy:
    """The copied suite and pytest run on it."""

    pytester: pytest.Pytester

    @property
    def folder(self) -> Path:
        return self.pytester.path / "storage" / "benchmarks" / "tariff"

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest("--packbench-suite=tariff", *arguments)


def forget_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what this project and CI systems set in the environment; runs load no plugins that import much."""
    for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_")) or name == "CI"]:
        monkeypatch.delenv(name)
    # a quarter of the time that a new process takes; the last leaves a thread and a socket in each run
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:anyio -p no:hypothesispytest -p no:rerunfailures")


@pytest.fixture(autouse=True)
def _restored_path() -> Iterator[None]:
    """Restore where modules are looked for: commands of the program append the current folder."""
    path = sys.path[:]
    yield
    sys.path[:] = path


@pytest.fixture
def copy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """The tariff suite in a project of its own."""
    forget_variables(monkeypatch)
    monkeypatch.setenv("COLUMNS", "240")
    pytester.makeini("[pytest]\n")
    suite = Copy(pytester)
    shutil.copytree(SUITE, suite.folder)
    return suite


class ExpectedTexts:
    """The texts that one test expects, each in a file below `expected/<module>/` beside the test's module.

    With the variable `PACKBENCH_UPDATE_GOLDEN`, a check writes its file instead; the difference in git is part of the
    review.
    """

    def __init__(self, module: Path, test: str) -> None:
        self._stem = module.parent / "expected" / module.stem.removeprefix("test_") / test.removeprefix("test_")

    def check(self, text: str, name: str = "txt") -> None:
        """Compare a text with its file.

        Args:
            text: the text, with what differs from run to run taken out.
            name: the end of the file's name, such as `md`, or `summary.md` where a test checks several texts.
        """
        path = self._stem.with_name(f"{self._stem.name}.{name}")
        if _UPDATING:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        expected = path.read_text("utf-8") if path.exists() else ""
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(path), "this run", "", "", 2, ""
            )
            advice = f"if the change is intended: {UPDATE}=1 pytest, and read the difference in git"
            pytest.fail("\n".join([*difference, advice]), pytrace=False)


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> ExpectedTexts:
    """The files with the texts that this test expects."""
    return ExpectedTexts(request.path, re.sub(r"[^\w.-]+", "_", request.node.name).strip("_"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let an idle worker take tests from a busy one: some tests take a thousand times as long as others."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped] # it has no types

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
