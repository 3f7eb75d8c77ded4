"""What a run imports, prints and leaves: nothing without a suite, and of a suite what its pack, mode and outputs need.

The modules of a run of a suite, beyond those of an empty test with a JSON report, are compared with a file in
`expected/`; rules say what no such run may have.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pytest_packbench
from pytest_packbench.testing import case, write_suite
from tests.conftest import SUITE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts

SPY = """
import json, sys

def pytest_unconfigure(config):
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
OURS = "pytest_packbench"
ENTRY = {OURS} | {f"{OURS}.{name}" for name in ("plugin", "hookspecs", "packs")}
PACKS = ("agent_safety", "generic", "tariff")
LIVE = (
    "engine.live_models",
    "engine.scheduler",
    "pytest_plugin.prefetch",
)
"""Modules that only live runs, and those with several attempts in flight, need."""
TOOLS = ("commands", "model.authoring")
"""What commands alone need of a pack."""

SLOW = frozenset(
    {
        *("asyncio", "concurrent.futures", "email", "http", "sqlite3", "ssl", "unittest", "xml", "argparse", "csv"),
        *("agentdojo", "anthropic", "filelock", "genai_prices", "httpx", "httpx2", "jsonpath", "jsonschema", "ollama"),
        *("openai", "pydantic", "rapidfuzz", "regex", "tabulate", "yaml"),
    }
)
"""What takes long to import, of other packages or of the standard library."""

# what `json-report` imports is in the comparison on both sides
HEAVY = {"pydantic", "yaml", "tabulate", "filelock", "asyncio", "pytest_packbench.pytest_plugin"}


class Run(NamedTuple):
    """What a process of pytest printed, imported and left."""

    output: str
    modules: set[str]
    files: set[str]


def run(pytester: pytest.Pytester, *arguments: str) -> Run:
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments)
    assert result.ret == 0, result.stdout.str()
    lines = [line for line in result.outlines if "plugins:" not in line and "passed in" not in line]
    modules = set(json.loads((pytester.path / "modules.json").read_text("utf-8")))
    files = {path.relative_to(pytester.path).as_posix() for path in pytester.path.rglob("*") if path.is_file()}
    own = {name for name in files if "__pycache__" in name or name in {"stdout", "stderr", "modules.json"}}
    return Run("\n".join(lines), modules, files - own)


@pytest.fixture
def unrelated(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of somebody else, with JSON files where suites would be."""
    pytester.makeconftest(SPY)
    pytester.makepyfile("def test_one(): pass")
    folder = pytester.path / "storage" / "benchmarks" / "theirs" / "cases"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text("{}", encoding="utf-8")
    return pytester


def test_an_unrelated_run_imports_the_entry_point_and_nothing_else(unrelated: pytest.Pytester) -> None:
    loaded, without = run(unrelated), run(unrelated, "-p", "no:packbench")
    assert (loaded.output, loaded.files) == (without.output, without.files)
    assert loaded.modules - without.modules <= ENTRY
    # other plugins of the environment may import theirs
    assert not (loaded.modules - without.modules) & HEAVY
    workers = run(unrelated, "-n", "1")
    imported = {name for name in workers.modules if name.startswith(OURS)}
    assert imported <= {*ENTRY, f"{OURS}.pytest_plugin", f"{OURS}.pytest_plugin.xdist"}
    assert not [name for name in workers.files if name.startswith("reports")]
    assert unrelated.runpytest("-p", "no:packbench", "storage").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("arguments", [("-p", "no:cacheprovider"), ("--packbench-list",)], ids=["unused", "list"])
def test_no_warning_is_an_error(unrelated: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    unrelated.makeini("[pytest]\n")
    result = unrelated.run(sys.executable, *["-X", "dev", "-W", "error", "-m", "pytest", "-W", "error"], *arguments)
    assert result.ret == 0


@pytest.fixture
def suites(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of suites of a project in which pytest runs with the required plugins only."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    pytester.makefile(".toml", pytest="")
    (pytester.path / "empty").mkdir()
    (pytester.path / "empty" / "test_empty.py").write_text("def test_one(): pass", encoding="utf-8")
    return pytester.path / "storage" / "benchmarks"


def imported(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    """Return the modules of ours and the slow ones that a run has, beyond those of an empty test."""
    plugins = ("-p", "pytest_jsonreport", "-p", "metadata")
    pytester.makeconftest(SPY)
    empty = run(pytester, *plugins, "--json-report", "--json-report-file=empty.json", "empty").modules
    modules = run(pytester, *plugins, "-p", "packbench", *arguments).modules
    return sorted(name for name in modules - empty if name in SLOW or name.partition(".")[0] == OURS)


def has_no(modules: list[str], *names: str) -> bool:
    """Whether none of these modules of ours, nor one in them, was imported."""
    return not [name for name in modules if f"{name}.".startswith(tuple(f"{OURS}.{unwanted}." for unwanted in names))]


def other_packs(pack: str) -> tuple[str, ...]:
    return tuple(f"packs.{other}" for other in PACKS if other != pack)


def listed(modules: list[str]) -> str:
    return "".join(f"{name}\n" for name in modules)


def test_a_generic_run(suites: Path, pytester: pytest.Pytester, expected: ExpectedTexts) -> None:
    pytester.makepyfile(sums="def act(request):\n    return {'answer': 4}\n")
    sums = [case("four", input={"sum": "2+2"}, expected={"answer": 4})]
    write_suite(suites / "sums", sums, pack="generic", rules={"target": "sums:act"})
    modules = imported(pytester, "--packbench-suite=sums")
    assert has_no(modules, *other_packs("generic"), *LIVE, *TOOLS, "backends.client", "model.recording")
    assert has_no(modules, "reports.diff", "reports.github", "runs.merging", "runs.resuming", "analysis.changes")
    assert not {"asyncio", "ssl", "concurrent.futures", "filelock", "jsonschema", "regex"} & {*modules}
    expected.check(listed(modules))
    assert {*imported(pytester, "--packbench-suite=sums", "-p", "no:pytest_jsonreport")} <= {*modules}
    modules = imported(pytester, "--packbench-suite=sums", "--packbench-mode=live")
    assert "asyncio" in modules
    # the gateway counts tokens as the backends do
    assert has_no(modules, *other_packs("generic"), "backends.anthropic", "backends.openai", "model.recording")
    assert not {"anthropic", "openai", "ollama", "httpx", "httpx2", "genai_prices"} & {*modules}
    expected.check(listed(modules), "live.txt")


def test_a_tariff_run(suites: Path, pytester: pytest.Pytester, expected: ExpectedTexts) -> None:
    shutil.copytree(SUITE, suites / "tariff")
    modules = imported(pytester, "--packbench-suite=tariff")
    assert has_no(modules, *other_packs("tariff"), *LIVE, *TOOLS, "reports.diff", "packs.tariff.lint")
    # its target is async, and runs on an event loop
    assert "rapidfuzz" not in modules
    expected.check(listed(modules))


def test_a_safety_run(suites: Path, pytester: pytest.Pytester, expected: ExpectedTexts) -> None:
    shutil.copytree(SUITE.with_name("harmbench"), suites / "harmbench")
    modules = imported(pytester, "storage/benchmarks/harmbench/cases/contextual/harmless_sum_of_receipt.json")
    unneeded = ("packs.agent_safety.agentdojo", "packs.agent_safety.injecagent", "reports.diff")
    assert has_no(modules, *other_packs("agent_safety"), *LIVE, *TOOLS, *unneeded)
    # its target is async, too
    assert "agentdojo" not in modules
    expected.check(listed(modules))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as an installer leaves it, except that only its compiled files can be imported."""
    (source,) = pytest_packbench.__path__
    site = tmp_path_factory.mktemp("site")
    package, info = site / OURS, site / "pytest_packbench-1.dist-info"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "starter"))
    compileall.compile_dir(package, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    # pytest reads the first module before that can ask it not to
    for path in {*package.rglob("*.py")} - {package / "__init__.py"}:
        path.write_text("no Python", "utf-8")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-packbench\nVersion: 1\n", "utf-8")
    (info / "entry_points.txt").write_text("[pytest11]\npackbench = pytest_packbench.plugin\n", "utf-8")
    (info / "RECORD").write_text(f"{OURS}/__init__.py,,\n{OURS}/plugin.py,,\n", "utf-8")
    return site


@pytest.mark.parametrize("without_bytecode", ["", "1"])
def test_an_installed_package_is_imported_from_what_its_installer_compiled(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, installed: Path, without_bytecode: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), str(pytester.path)]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", without_bytecode)
    pytester.makepyfile(test_one="def test_one(): 0", sums="def act(request): return {'answer': 4}")
    sums = [case("four", input={"sum": "2+2"}, expected={"answer": 4})]
    write_suite(pytester.path / "storage/benchmarks/sums", sums, pack="generic", rules={"target": "sums:act"})
    compiled = {*installed.rglob("*.pyc")}
    # a second session of a process asks again
    sessions = (
        "import pytest; print(*[pytest.main([argument]) for argument in ('test_one.py', '--packbench-suite=sums')])"
    )
    assert pytester.run(sys.executable, "-c", sessions).outlines[-1] == "0 0"
    assert {*installed.rglob("*.pyc")} - compiled <= {*installed.glob(f"{OURS}/__pycache__/__init__.*")}
