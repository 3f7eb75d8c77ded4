"""What a run of a suite imports: what its pack, its mode and its outputs need, and nothing else.

Each test compares the modules of a run, beyond those of an empty test with a JSON report, with a file in `expected/`,
and states by rule what no such run may have.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

SPY = """
import json, sys

def pytest_unconfigure(config):
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
TARGET = """
def act(request):
    return {"answer": 4}


def pytest_packbench_target(config, suite):
    return act
"""
SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
OURS = "pytest_packbench"
PACKS = ("agent_safety", "generic", "tariff")
LIVE = ("engine.metering", "engine.scheduler", "engine.runner", "engine.cache", "pytest_plugin.prefetch")
"""Modules that only live runs, and those with several attempts in flight, need."""

OTHERS = frozenset(
    {
        *("asyncio", "concurrent.futures", "email", "http", "sqlite3", "ssl", "unittest", "xml", "argparse", "csv"),
        *("agentdojo", "anthropic", "filelock", "genai_prices", "httpx", "httpx2", "jsonpath", "jsonschema", "ollama"),
        *("openai", "pydantic", "rapidfuzz", "regex", "tabulate", "ulid", "yaml"),
    }
)
"""What takes long to import, here or in the standard library."""


class Project:
    """A folder in which pytest runs in processes of its own, with the required plugins only."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            monkeypatch.delenv(name, raising=False)
        self.pytester = pytester
        pytester.makefile(".toml", pytest="")
        (pytester.path / "empty").mkdir()
        (pytester.path / "empty" / "test_empty.py").write_text("def test_one(): pass", encoding="utf-8")

    def bring(self, name: str) -> None:
        """Copy a suite of the repository."""
        shutil.copytree(SUITES / name, self.pytester.path / "storage" / "benchmarks" / name)

    def imported(self, conftest: str, *arguments: str) -> list[str]:
        """The modules of ours and the long ones that a run has, beyond those of an empty test."""
        self.pytester.makeconftest(SPY)
        empty = self._modules("--json-report", "--json-report-file=empty.json", "empty")
        self.pytester.makeconftest(SPY + conftest)
        found = self._modules("-p", "packbench", *arguments)
        return sorted(name for name in found - empty if name in OTHERS or name.partition(".")[0] == OURS)

    def _modules(self, *arguments: str) -> set[str]:
        command = (
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "pytest_jsonreport",
            "-p",
            "metadata",
        )
        result = self.pytester.run(*command, *arguments)
        assert result.ret == 0, result.stdout.str()
        return set(json.loads((self.pytester.path / "modules.json").read_text("utf-8")))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


@pytest.fixture
def generic(project: Project) -> Project:
    """A generic suite of one case."""
    root = project.pytester.path / "storage" / "benchmarks"
    write_suite(root / "sums", [case("four", input={"sum": "2+2"}, expected={"answer": 4})], pack="generic")
    return project


def has_no(found: list[str], *names: str) -> bool:
    """Whether none of these modules of ours, nor one in them, was imported."""
    prefixes = tuple(f"{OURS}.{name}" for name in names)
    return not [name for name in found if name in prefixes or name.startswith(tuple(f"{one}." for one in prefixes))]


def other_packs(pack: str) -> tuple[str, ...]:
    return tuple(f"packs.{other}" for other in PACKS if other != pack)


def listed(modules: list[str]) -> str:
    return "".join(f"{name}\n" for name in modules)


def test_a_generic_run(generic: Project, expected: ExpectedTexts) -> None:
    found = generic.imported(TARGET, "--packbench-suite=sums")
    assert has_no(found, *other_packs("generic"), *LIVE, "commands", "cli", "backends.client", "model.cassette")
    assert has_no(found, "reports.diff", "reports.github", "runs.resume", "runs.stored", "analysis.comparison")
    assert not {"asyncio", "ssl", "concurrent.futures", "filelock", "jsonschema", "regex"} & {*found}
    expected.check(listed(found))


def test_a_generic_run_without_a_json_report(generic: Project, expected: ExpectedTexts) -> None:
    with_report = generic.imported(TARGET, "--packbench-suite=sums")
    found = generic.imported(TARGET, "--packbench-suite=sums", "-p", "no:pytest_jsonreport")
    assert {*found} <= {*with_report}
    expected.check(listed(found))


def test_a_live_run_without_a_model(generic: Project, expected: ExpectedTexts) -> None:
    found = generic.imported(TARGET, "--packbench-suite=sums", "--packbench-mode=live")
    assert "asyncio" in found
    assert has_no(found, *other_packs("generic"), "backends.client", "engine.cache", "model.cassette")
    assert not {"anthropic", "openai", "ollama", "httpx", "httpx2", "genai_prices"} & {*found}
    expected.check(listed(found))


def test_a_tariff_run(project: Project, expected: ExpectedTexts) -> None:
    project.bring("tariff")
    found = project.imported("", "--packbench-suite=tariff")
    assert has_no(found, *other_packs("tariff"), *LIVE, "reports.diff", "runs.stored", "packs.tariff.lint")
    # its target is async, and runs on an event loop
    assert "rapidfuzz" not in found
    expected.check(listed(found))


def test_a_safety_run(project: Project, expected: ExpectedTexts) -> None:
    project.bring("harmbench")
    found = project.imported("", "storage/benchmarks/harmbench/cases/contextual/harmless_sum_of_receipt.json")
    assert has_no(found, *other_packs("agent_safety"), *LIVE, "packs.agent_safety.agentdojo")
    assert has_no(found, "packs.agent_safety.injecagent", "reports.diff", "runs.stored")
    # its target is async, too
    assert "agentdojo" not in found
    expected.check(listed(found))
