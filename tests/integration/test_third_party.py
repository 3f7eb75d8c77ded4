"""Packs and backends of installed distributions: the installable example of a pack, and what goes wrong in others."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench import backends, load_suite, score
from pytest_packbench.commands import main
from tests.doc_blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

EXAMPLE = ROOT / "docs" / "examples" / "packbench-units"
PACKS = "pytest_packbench.packs"
UNITS = "--packbench-suite=units"
DATA = yaml.safe_load((Path(__file__).parent / "data" / "third_party.yaml").read_text("utf-8"))


@pytest.fixture(autouse=True)
def _site(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions, which are forgotten after the test."""
    site = project.root / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    backends.installed_backends.cache_clear()
    before = set(sys.modules)
    yield site
    backends.installed_backends.cache_clear()
    for name in sys.modules.keys() - before:
        if name.partition(".")[0] in {"packbench_units", "broken_pack", "echo_backend", "pipeline"}:
            del sys.modules[name]


def install(project: Project, name: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Write the metadata of a distribution, as an installer does."""
    info = f"site/{name}-1.0.dist-info"
    project.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in entry_points.items()
    ]
    project.write(f"{info}/entry_points.txt", "\n".join(groups))


def install_units(project: Project, *groups: str) -> Path:
    """Install the example, found by these groups of its entry points."""
    (project.root / "conftest.py").unlink()
    shutil.copytree(EXAMPLE / "packbench_units", project.root / "site" / "packbench_units")
    points = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    install(project, "packbench_units", {group: points[group] for group in groups or points})
    shutil.copytree(EXAMPLE / "storage", project.root / "storage", dirs_exist_ok=True)
    return project.root / "storage" / "benchmarks" / "units"


@pytest.mark.parametrize("workers", [0, 1])
def test_the_example_runs_as_a_plugin_or_as_a_pack_and_its_answers_can_fail(
    project: Project, monkeypatch: pytest.MonkeyPatch, expected: ExpectedTexts, workers: int
) -> None:
    folder = install_units(project, "pytest11" if workers else PACKS)
    # workers get the path that their controller was started with
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH", "")])))
    for name, (case_id, answer) in DATA["answers"].items():
        (path,) = folder.glob(f"cases/*/{case_id}.json")
        (path.parent / f"{name}.json").write_text(path.read_text("utf-8").replace(case_id, name), "utf-8")
        recording = json.loads((folder / "fixtures" / f"{case_id}.json").read_text("utf-8"))
        recording["case_id"] = name
        recording["exchanges"][-1]["answer"].update(answer)
        (folder / "fixtures" / f"{name}.json").write_text(json.dumps(recording), "utf-8")
    run = project.pytester.runpytest_subprocess if workers else project.pytester.runpytest
    run(*(["-n2"] if workers else []), UNITS).assert_outcomes(passed=3, failed=8)
    lines = []
    for name, record in project.records("units").items():
        own = record["packbench"]
        zero = [term["name"] for term in own["terms"] if term["effect"] == "zero"]
        lines.append(" ".join([f"{name}: {own['score']:.2f}", record["agent_decision"], *zero]))
    expected.check("\n".join([*sorted(lines), ""]))


def test_commands_and_functions_know_the_example(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folder = install_units(project)
    project.run(UNITS)
    marathon = folder / "cases/convert/marathon_in_miles.json"
    case = json.loads(marathon.read_text("utf-8"))
    for suite in (None, load_suite(folder)):
        assert score(case, {"value": 26.2, "unit": "mi"}, suite=suite).score == 0.9
    rules = folder / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("tolerance: 0.005", "tolerance: 0.0001"), "utf-8")
    assert main(["rescore", "units/latest", "--fail-on", "regressed>0"]) == 1
    assert "marathon_in_miles" in capsys.readouterr().out
    marathon.write_text(marathon.read_text("utf-8").replace("26.2188", "26.9"), "utf-8")
    assert main(["lint", "units"]) == 1
    assert "answer_wrong: got 26.9, but the conversion gives 26.2188 mi" in capsys.readouterr().out


UNREADABLE = """
from pytest_packbench import Case, SuiteConfig

class Unreadable(Exception):
    def __str__(self):
        raise self

def unreadable(self):
    raise Unreadable

def failing(self):
    return 1 / 0

def answer(refused):
    return type("Odd", (ToyAnswer,), {"refused": property(refused)})

"""


def write_packs(project: Project, methods: dict[str, str]) -> None:
    """Write packs like the toy, each with another method, and a suite of each."""
    classes = [f"class P_{name}(Toy):\n    name = '{name}'\n    {method}\n\n" for name, method in methods.items()]
    instances = ", ".join(f"P_{name}()" for name in methods)
    hook = f"def pytest_packbench_packs():\n    return [Toy(), {instances}]\n"
    project.extend_conftest(UNREADABLE + "".join(classes) + hook)
    for name in methods:
        project.suite(name, f"pack: {name}\n")
        # only a case that fails is explained
        path = project.case(name, suite=name, points=0.5)
        path.write_text(path.read_text("utf-8").replace('"pack_id": "toy"', f'"pack_id": "{name}"'), "utf-8")


def test_a_method_that_fails_is_an_error_of_the_case_or_of_the_suite(project: Project, expected: ExpectedTexts) -> None:
    write_packs(project, DATA["methods"])
    project.case("good")
    suites = ",".join(["toy", *DATA["methods"]])
    for concurrency in (1, 3):
        shutil.rmtree(project.root / "reports", ignore_errors=True)
        result = project.run(f"--packbench-suite={suites}", f"--packbench-concurrency={concurrency}")
        result.assert_outcomes(passed=1, errors=len(DATA["methods"]))
        assert "Traceback" not in result.stderr.str()
        errors = {name: project.lines("errors.jsonl", name)[0] for name in DATA["methods"]}
        expected.check("".join(f"{name}: {error['kind']}: {error['message']}\n" for name, error in errors.items()))
    for member in ("{'narrowed': lambda *_: 1 / 0}", "{'unusable': property(failing)}"):
        write_packs(project, {"raising": f"suite_model = type('Odd', (SuiteConfig,), {member})"})
        result = project.run("--packbench-suite=raising")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(['*suite "raising": the pack "raising" raised ZeroDivisionError: *'])


def test_a_pack_of_a_conftest_replaces_a_built_in_one_or_the_run_is_refused(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.extend_conftest(
        "class Mine(Toy):\n    name = 'generic'\n    version = '77'\n\n"
        "def pytest_packbench_packs():\n    return [Mine()]\n"
    )
    project.suite("mine", "pack: generic\n")
    path = project.case("one", suite="mine")
    path.write_text(path.read_text("utf-8").replace('"toy"', '"generic"'), "utf-8")
    project.run("--packbench-suite=mine").assert_outcomes(passed=1)
    assert project.records("mine")["one"]["packbench"]["pack"] == "generic/77"
    # pytest does not load the file then, or only after the suite was read
    hook = "its hook pytest_packbench_packs was not called, because pytest had not loaded this file"
    below = "storage/benchmarks/mine/conftest.py"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    result = project.run(f"--rootdir={project.root}", "--packbench-suite=mine")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*conftest.py: {hook}*"])
    monkeypatch.chdir(project.root)
    (project.root / "conftest.py").rename(project.root / below)
    result = project.run("--packbench-suite=mine")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{below}: {hook}*"])
    project.run(str(project.root / "storage/benchmarks/mine")).assert_outcomes(passed=1)


NO_PACKS = {"no module": "nowhere:Pack", "function": "json:dumps", "module": "json"}


def test_a_pack_that_can_not_be_loaded_is_an_error_of_one_line(
    project: Project, expected: ExpectedTexts, capsys: pytest.CaptureFixture[str]
) -> None:
    install_units(project)
    install(project, "broken", {PACKS: {"broken": "broken_pack:Broken"}})
    project.suite("mine", "pack: broken\n")
    lines = []
    for name, text in DATA["modules"].items():
        project.write("site/broken_pack.py", text)
        sys.modules.pop("broken_pack", None)
        result = project.run("--packbench-suite=mine")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        lines += [f"{name}: {line}" for line in result.stderr.lines if line]
        capsys.readouterr()
        assert main(["lint", "mine"]) == 2
        lines.append(f"{name}: {capsys.readouterr().err.rstrip()}")
    # of the others none is harmed
    project.run(UNITS).assert_outcomes(passed=3)
    capsys.readouterr()
    for name, spec in NO_PACKS.items():
        assert main(["lint", "units", "--pack", spec]) == 2
        lines.append(f"{name}: {capsys.readouterr().err.rstrip()}")
    earlier = DATA["modules"]["earlier version"]
    for text in (
        "def pytest_packbench_packs():\n    return [5]\n",
        f"{earlier}\ndef pytest_packbench_packs():\n    return [Broken()]\n",
    ):
        project.write("conftest.py", text)
        result = project.run(UNITS)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        lines += [f"hook: {line}" for line in result.stderr.lines if line]
    # objects have addresses
    stable = (re.sub(r"(?<=got )<.*>", "...", line) for line in lines)
    expected.check("".join(f"{line}\n" for line in stable))


ECHO = """
from pytest_packbench import BackendUnusable, ModelAnswer


class Echo:
    name = "echo"
    temperature = 0.0

    def __init__(self, options):
        if not options.model:
            raise BackendUnusable("set --packbench-model")
        self.model = options.model

    async def complete(self, request):
        return ModelAnswer(content=f"{self.model} answers {request.messages[0]['content']}")

    async def aclose(self):
        open("closed.txt", "w").close()


def factory(options):
    return Echo(options)


def nothing(options):
    return object()


def fall(options):
    return 1 / 0


number = 5
"""
PIPELINE = """
from pytest_packbench import ModelRequest

async def ask(request, context):
    question = ModelRequest(role="ask", system="", messages=({"role": "user", "content": "hello"},))
    answer = await context.llm.complete(question)
    return {"points": 1.0 if answer.content == "loud answers hello" else 0.0, "word": answer.content}
"""
ASK = "--packbench-target=pipeline:ask"
LIVE = ("--packbench-mode=live", ASK)


@pytest.fixture
def echo(project: Project) -> Project:
    """A distribution with several backends."""
    project.write("site/echo_backend.py", ECHO)
    project.write("pipeline.py", PIPELINE)
    names = {"echo": "Echo", **dict.fromkeys(("factory", "absent", "nothing", "number", "fall"), "")}
    points = {name: f"echo_backend:{attribute or name}" for name, attribute in names.items()}
    install(project, "echo", {backends.GROUP: {**points, "lost": "no_such_module:B", "openai": "no_such_module:O"}})
    project.case("one")
    return project


def test_a_class_or_a_factory_answers_live_and_is_recorded(echo: Project) -> None:
    for name in ("echo", "factory"):
        echo.run_toy(*LIVE, f"--packbench-backend={name}", "--packbench-model=loud").assert_outcomes(passed=1)
        # a record knows a fixed set of backends
        record = echo.records()["one"]
        assert (record["llm_backend"], record["llm_model"]) == ("unknown", "loud")
        (echo.root / "closed.txt").unlink()
        shutil.rmtree(echo.root / "reports")
    echo.suite(text="pack: toy\nbackend: echo\nmodel: loud\n")
    echo.run_toy(*LIVE).assert_outcomes(passed=1)
    echo.run_toy("--packbench-mode=record", ASK).assert_outcomes(passed=1)
    recording = echo.root / "storage" / "benchmarks" / "toy" / "fixtures" / "one.json"
    assert '"llm_backend": "echo"' in recording.read_text("utf-8")
    echo.run_toy(ASK).assert_outcomes(passed=1)


def test_a_backend_that_can_not_be_opened_is_a_usage_error(echo: Project, expected: ExpectedTexts) -> None:
    # names are listed without importing
    names = backends.backend_names()
    assert names[:3] == ("anthropic", "openai", "ollama")
    assert (names.count("openai"), {"echo", "lost"} < {*names}, "echo_backend" in sys.modules) == (1, True, False)
    assert (backends.is_backend("lost"), backends.is_backend("other")) == (True, False)
    lines = []
    for name in ("echo", "lost", "absent", "nothing", "number", "fall", "other", "suite"):
        if name == "suite":
            echo.suite(text="pack: toy\nbackend: other\n")
        result = echo.run_toy(*LIVE, *([] if name == "suite" else [f"--packbench-backend={name}"]))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        lines += [f"{name}: {line}\n" for line in result.stderr.lines if line]
    expected.check("".join(lines))
