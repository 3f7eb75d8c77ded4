"""A project whose run shows every verdict, and what such a run leaves, without what differs from run to run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

from pytest_packbench.testing import write_case, write_suite
from tests.integration.conftest import TOY, toy_case, without_times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SUITES = ("toy", "marked")
_WITHOUT_MODEL = """
from pytest_packbench import without_model

act = without_model(act)
"""
_MARKED = """
import pytest


@pytest.mark.packbench_cases("marked")
def test_marked(packbench_case, packbench_check):
    packbench_check({"points": packbench_case.input["points"]})
"""
_PLAIN = """
import pytest


def test_passes():
    print("printed")


def test_fails():
    assert 1 == 2


@pytest.mark.xfail(reason="known", strict=True)
def test_xfails():
    assert 1 == 2


@pytest.mark.skip(reason="later")
def test_skipped():
    pass
"""
_LOGS = (
    "import logging, sys; logging.getLogger('toy').warning('logged by the target'); print('to stderr', file=sys.stderr)"
)


def write_project(root: Path, *, ini: str = "") -> None:
    """Write a suite with a case of each verdict, a suite for a marked test, and plain tests."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "conftest.py").write_text(TOY + _WITHOUT_MODEL, "utf-8")
    (root / "pytest.ini").write_text(f"[pytest]\n{ini}", "utf-8")
    (root / "test_marked.py").write_text(_MARKED, "utf-8")
    (root / "test_plain.py").write_text(_PLAIN, "utf-8")
    for name in SUITES:
        folder = write_suite(root / "storage" / "benchmarks" / name, (), pack="toy")
        (folder / "suite.yaml").write_text("pack: toy\ndescription: a toy\n", "utf-8")
    toy, marked = (root / "storage" / "benchmarks" / name for name in SUITES)
    for case in (
        toy_case("good"),
        toy_case("bad", case_type="odd", points=0.2),
        toy_case("broken", python="raise OSError('gone')"),
        toy_case("crash", word="crash"),
        toy_case("down", down=True),
        toy_case("hole", word="known_hole"),
        toy_case("logs", python=_LOGS),
        toy_case("later", notes={"skip": "under review"}),
        toy_case("known", points=0.2, notes={"xfail": "known to fail"}),
        toy_case("umlauts", python="raise OSError('grüße ☃')"),
    ):
        write_case(toy, case)
    (toy / "cases" / "plain" / "unreadable.json").write_text("{", "utf-8")
    for case in (toy_case("good", points=1.0), toy_case("low", points=0.1)):
        write_case(marked, case)


class Left(NamedTuple):
    """What a run leaves.

    Attributes:
        status: the exit code.
        files: the lines of the files of the run, by suite and file, without times and ids.
        junit: the tests in JUnit's file: name, verdict with message, and properties, in order of their names.
        outcomes: the outcomes of pytest-json-report in `report.json`, by node id.
        totals: the numbers of the run in `report.json`.
        output: what was printed.
    """

    status: int
    files: Mapping[str, Any]
    junit: tuple[Any, ...]
    outcomes: Mapping[str, str]
    totals: Mapping[str, Any]
    output: str


def run(
    root: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "pytest"),
    command: tuple[str, ...] = (sys.executable,),
) -> subprocess.CompletedProcess[bytes]:
    """Run pytest in a process of its own, without the plugins that are installed unless an option names them."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return subprocess.run(
        [*command, *program, *options],
        cwd=root,
        env={**inherited, "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )


_NOT_INHERITED = ("PACKBENCH_", "PYTEST_", "GITHUB_", "TEAMCITY_", "CI", "COV_")


def left_by(root: Path, process: subprocess.CompletedProcess[bytes], output: Path | None = None) -> Left:
    """Read what a run has left."""
    files: dict[str, Any] = {}
    outcomes: dict[str, str] = {}
    totals: dict[str, Any] = {}
    for suite in SUITES:
        folders = sorted(((output or root / "reports" / "benchmarks") / suite).glob("*/records.jsonl"))
        for folder in [path.parent for path in folders]:
            for path in sorted(folder.glob("*.jsonl")):
                lines = [without_times(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
                files[f"{suite}/{path.name}"] = lines
            report = json.loads((folder / "report.json").read_text("utf-8"))
            outcomes |= {test["nodeid"]: test.get("outcome", "passed") for test in report.get("tests", ())}
            files[f"{suite}/names"] = sorted(path.name for path in folder.iterdir())
            totals[suite] = without_times(report["packbench"].get("totals"))
            totals[f"{suite} exit"] = report["exitcode"]
    return Left(
        status=process.returncode,
        files=files,
        junit=_junit_of((output or root) / "junit.xml"),
        outcomes=outcomes,
        totals=totals,
        output=process.stdout.decode("utf-8", "replace"),
    )


def _junit_of(path: Path) -> tuple[Any, ...]:
    if not path.exists():
        return ()
    tests = ET.parse(path).iter("testcase")  # noqa: S314 - our own file
    return tuple(
        sorted(
            (
                f"{test.get('classname')}::{test.get('name')}",
                *((child.tag, _first_line(child)) for child in test if child.tag in _VERDICTS),
                *sorted((each.get("name"), each.get("value")) for each in test.iter("property")),
            )
            for test in tests
        )
    )


_VERDICTS = {"failure", "error", "skipped"}


def _first_line(element: ET.Element) -> str:
    return re.sub(r"/\S*/|0x[0-9a-f]+", "", (element.get("message") or "").partition("\n")[0])
