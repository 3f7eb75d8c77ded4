"""A project with a small pack of its own, in which tests run suites with pytest."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.testing import SuiteResults, case, run_folders, write_case, write_suite
from tests.conftest import SUITE, forget_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.options.conftest import Model

TOY = Path(__file__).with_name("toy_pack.py").read_text("utf-8")
CASES = "storage/benchmarks/toy/cases"
MANY = f"{CASES}/plain/many.jsonl"
PIPELINE = """
import logging
import os
import sys
import time

from pytest_packbench.model.request import ModelRequest

SCHEMA = {"type": "object", "properties": {"points": {"type": "number"}}, "required": ["points"]}


def question(request):
    message = {"role": "user", "content": request.input["text"]}
    return ModelRequest(role="judge", system="give points", messages=(message,), output_schema=SCHEMA)


def announce(context):
    print("asking for", context.case_id)
    print("trouble with", context.case_id, file=sys.stderr)
    logging.getLogger("pipeline").warning("logging for %s", context.case_id)


async def ask(request, context):
    announce(context)
    answer = await context.llm.complete(question(request))
    print("asked for", context.case_id)
    return answer.content


def ask_sync(request, context):
    announce(context)
    answer = context.llm.complete_sync(question(request))
    print("asked for", context.case_id)
    return answer.content


async def ignore_errors(request, context):
    try:
        return await ask(request, context)
    except Exception:
        return {"points": 1.0}


async def leak(request, context):
    print("printed", os.environ["OPENAI_API_KEY"])
    return {**await ask(request, context), "key": os.environ["OPENAI_API_KEY"]}


def leak_error(request):
    raise ValueError("failed with " + os.environ["SOME_SERVICE_TOKEN"])


def hang(request):
    if request.input["text"] == "hang":
        time.sleep(3600)
    return {"points": 1.0}


async def note(request):
    with open("called.txt", "a") as file:
        print(request.input["text"], file=file)
    return {"points": 1.0}
"""


def toy_case(case_id: str, *, case_type: str = "plain", **fields: Any) -> dict[str, Any]:
    """Return a case as plain JSON; what is no key of a case belongs to its input."""
    keys = {key: fields.pop(key) for key in ("difficulty", "notes") if key in fields}
    return case(case_id, pack_id="toy", case_type=case_type, input=fields, expected={"colour": "red"}, **keys)


def without_times(value: Any, *, also: tuple[str, ...] = ()) -> Any:
    """Return JSON without what differs from run to run, and without the keys `also`."""
    names = {"run_id", "timestamp", "wall_clock_ms", "duration_ms", "started_at", "finished_at", *also}
    if isinstance(value, dict):
        return {key: without_times(inner, also=also) for key, inner in value.items() if key not in names}
    return [without_times(inner, also=also) for inner in value] if isinstance(value, list) else value


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def ended(result: pytest.RunResult, code: int, *lines: str, **outcomes: int) -> pytest.RunResult:
    """Check how a run ended: its exit code, lines that it printed in any order, and how many tests had which outcome."""
    assert result.ret == code, result.stdout.str() + result.stderr.str()
    pytest.LineMatcher([*result.outlines, *result.errlines]).fnmatch_lines_random(lines)
    if outcomes:
        result.assert_outcomes(**outcomes)
    return result


two_workers = pytest.mark.parametrize("both", [0, 2], ids=["plain", "xdist"], indirect=True)


@dataclass
class Project:
    """A project folder with suites, and pytest run in it."""

    pytester: pytest.Pytester
    workers: int

    @property
    def root(self) -> Path:
        return self.pytester.path

    def suite(self, name: str = "toy", text: str = "pack: toy\ndescription: a toy\n") -> Path:
        folder = write_suite(self.root / "storage" / "benchmarks" / name, (), pack="toy")
        (folder / "suite.yaml").write_text(text, encoding="utf-8")
        return folder

    def case(self, case_id: str, *, suite: str = "toy", **fields: Any) -> Path:
        return write_case(self.root / "storage" / "benchmarks" / suite, toy_case(case_id, **fields))

    def cases(self, *names: str, **fields: Any) -> None:
        """Write cases that differ in their names only."""
        for name in names:
            self.case(name, **fields)

    def case_lines(self, *lines: str | dict[str, Any], path: str = MANY) -> Path:
        """Write a file with one case per line: cases, or lines as they are."""
        return self.write(path, "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def prepare(self, *texts: str) -> None:
        """Write targets that call a model, and a case for each text: case_00, case_01 ..."""
        self.write("pipeline.py", PIPELINE)
        for number, text in enumerate(texts):
            self.case(f"case_{number:02}", text=text)

    def copy_suite(self, suite: str, *names: str, judge: str = "", folder: str = "") -> int:
        """Copy one of our suites, all of it or the cases whose files begin so, without the toy pack; count the cases."""
        self.pytester.makeconftest("")
        source, copy = SUITE.with_name(suite), self.root / "storage" / "benchmarks" / (folder or suite)
        paths = [path for path in sorted(source.glob("cases/*/*.json")) if path.name.startswith(names or "")]
        for path in [*paths, *(path for path in source.iterdir() if path.is_file())]:
            target = copy / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        if judge:
            rules = (copy / "suite.yaml").read_text("utf-8").replace("[refusal_detector]", f"[{judge}]")
            (copy / "suite.yaml").write_text(rules, "utf-8")
        return len(paths)

    def extend_conftest(self, code: str) -> None:
        """Add code to the module of the toy pack."""
        self.write("conftest.py", TOY + dedent(code))

    def run(self, *arguments: str) -> pytest.RunResult:
        workers = ("-n", str(self.workers)) if self.workers else ()
        return self.pytester.runpytest(*workers, *arguments, no_reraise_ctrlc=True)

    def run_toy(self, *arguments: str) -> pytest.RunResult:
        return self.run("--packbench-suite=toy", *arguments)

    def refused(self, message: str, *arguments: str) -> None:
        """Run the suite `toy`, which is a usage error."""
        ended(self.run_toy(*arguments), 4, f"ERROR: {message}")

    def folders(self, suite: str = "toy") -> list[Path]:
        return run_folders(self.root, suite)

    def left(self, suite: str = "toy") -> Path:
        """The folder of the last run."""
        return self.folders(suite)[-1]

    def text(self, name: str = "summary.md", suite: str = "toy") -> str:
        """A file of the last run."""
        return (self.left(suite) / name).read_text("utf-8")

    def records(self, suite: str = "toy") -> dict[str, dict[str, Any]]:
        """The records of the last run, by case id."""
        return {record["packbench"]["case_id"]: record for record in self.lines("records.jsonl", suite)}

    def errors(self, suite: str = "toy") -> dict[str, dict[str, Any]]:
        """The errors of the last run, by case id; a case that can't be read has the name of its file or line."""
        return {error["test_id"].rpartition(":")[2]: error for error in self.lines("errors.jsonl", suite)}

    def lines(self, name: str, suite: str = "toy") -> list[dict[str, Any]]:
        return SuiteResults(folder=self.left(suite)).lines(name)

    def all_text(self) -> str:
        """The text of all files of the project."""
        return "\n".join(path.read_text("utf-8", "replace") for path in self.root.rglob("*") if path.is_file())

    def report(self, suite: str = "toy") -> dict[str, Any]:
        return SuiteResults(folder=self.left(suite)).report

    def document(self, suite: str = "toy") -> dict[str, Any]:
        """Our object in the report of the last run."""
        return self.report(suite)["packbench"]  # type: ignore[no-any-return]  # it is JSON

    def partial(self, suite: str = "toy") -> str:
        """Which part of its suite the last run had; empty for all."""
        text: str = self.document(suite)["run"]["partial"]
        return text


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the toy pack and an empty suite `toy`; pytest runs in one process."""
    return _project(pytester, monkeypatch, 0)


@pytest.fixture
def bundled(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite tariff in the folder of suites of an installed package, which an editable install does not have."""
    folder = tmp_path_factory.mktemp("site") / "_suites"
    shutil.copytree(SUITE, folder / "tariff")
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", folder)
    return folder


@pytest.fixture(params=[0, 1], ids=["plain", "xdist"])
def both(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same, once without workers and once with one: for what passes between processes.

    A second worker takes as long to start as the first: tests of what workers share have the mark `two_workers`.
    """
    return _project(pytester, monkeypatch, request.param)


@pytest.fixture
def checked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same in one process, where runs that record check their recordings, in a process of its own each."""
    return _project(pytester, monkeypatch, 0, checks=True)


def _project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: int, *, checks: bool = False
) -> Project:
    forget_variables(monkeypatch)
    if not checks:
        # which takes longer than most tests
        monkeypatch.setattr("pytest_packbench.pytest_plugin.check.check_recordings", lambda _: None)
    monkeypatch.setenv("COLUMNS", "240")
    pytester.makeconftest(TOY)
    pytester.makeini("[pytest]\n")
    project = Project(pytester, workers)
    project.suite()
    return project


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a suite, for changes of its acceptance policy."""
    from tests.integration.policy_repository import make_repository

    forget_variables(monkeypatch)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.syspath_prepend(pytester.path)
    return make_repository(pytester.path)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A model on loopback, and its key."""
    # its client libraries take long to import
    from tests.integration.options.conftest import SECRET, Model

    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with Model() as server:
        yield server
