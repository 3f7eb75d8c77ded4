"""What a trivial case costs through the plugin, beside a parametrized test that does nothing.

    python benchmarks/overhead.py [--cases N ...] [--rounds N] [--large]

Both runs are whole pytest commands, in processes of their own, with and without a JSON report. A toy pack scores each
case 1.0, so that what is left is ours: collecting, validating, recording, writing. CPU time is user plus system of the
process, its start taken off (the same command on 10 cases); of several rounds the median counts. Memory a case is the
growth of the peak over those 10 cases. `--large` adds 100,000 cases.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

START = 10
SIZES = (1_000, 10_000)
LARGE = 100_000
CONFTEST = """
from pytest_packbench.engine.protocols.outcome import Outcome
from pytest_packbench.engine.protocols.pack import Pack, RecordFacts
from pytest_packbench.engine.protocols.score import Score, Term


class Toy(Pack):
    name = "toy"
    version = "1"

    def read(self, result):
        return Outcome(answer="1")

    def score(self, case, outcome, rules):
        return Score(score=1.0, threshold=0.8, verdict="passed", terms=(Term(name="points", value=1.0),))

    def facts(self, case, outcome, score):
        return RecordFacts(attack_category=case.case_type, expected="comply_safe", agent_decision="comply_safe")


def pytest_packbench_packs():
    return [Toy()]


def act(request):
    return {}


def pytest_packbench_target(config, suite):
    return act
"""
NO_OP = """
import pytest


@pytest.mark.parametrize("number", range({cases}))
def test_nothing(number):
    pass
"""


class Usage(NamedTuple):
    """What a command used: CPU seconds and peak memory, MiB."""

    seconds: float
    mebibytes: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="a trivial case against a parametrized no-op")
    parser.add_argument("--cases", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help=f"measure {LARGE} cases as well")
    arguments = parser.parse_args(argv)
    print("   cases  json report   no-op us   packbench us   ratio   no-op KiB   packbench KiB   ratio")
    for cases in [*arguments.cases, *([LARGE] if arguments.large else [])]:
        for reported in (True, False):
            print(row(cases, reported=reported, rounds=arguments.rounds), flush=True)
    return 0


def row(cases: int, *, reported: bool, rounds: int) -> str:
    """Measure one size and give its line."""
    with tempfile.TemporaryDirectory() as folder:
        plain, suite = Path(folder, "plain"), Path(folder, "suite")
        for number in (START, cases):
            write_no_op(plain / str(number), number)
            write_suite(suite / str(number), number)
        ours = growth(suite, suite_command(reported=reported), cases, rounds)
        theirs = growth(plain, no_op_command(reported=reported), cases, rounds)
    time, memory = ours.seconds / theirs.seconds, ours.mebibytes / theirs.mebibytes
    word = "yes" if reported else "no"
    each = [1e6 * usage.seconds / (cases - START) for usage in (theirs, ours)]
    kibibytes = [1024 * usage.mebibytes / (cases - START) for usage in (theirs, ours)]
    return (
        f"{cases:8}  {word:>11}  {each[0]:9.0f}  {each[1]:13.0f}  {time:6.2f}"
        f"  {kibibytes[0]:10.1f}  {kibibytes[1]:14.1f}  {memory:6.2f}"
    )


def no_op_command(*, reported: bool) -> list[str]:
    """Give the command of the yardstick."""
    report = ["--json-report", "--json-report-file=report.json"] if reported else ["-p", "no:pytest_jsonreport"]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *report]


def suite_command(*, reported: bool) -> list[str]:
    """Give the command of the suite; the plugin switches the JSON report on by itself."""
    report = [] if reported else ["-p", "no:pytest_jsonreport"]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--packbench-suite=toy", *report]


def growth(folder: Path, command: Sequence[str], cases: int, rounds: int) -> Usage:
    """Give what a command uses on so many cases beyond what it uses on a few; medians."""
    few = [used(folder / str(START), command) for _ in range(rounds)]
    many = [used(folder / str(cases), command) for _ in range(rounds)]
    medians = [Usage(*(statistics.median(column) for column in zip(*usages, strict=True))) for usages in (few, many)]
    return Usage(medians[1].seconds - medians[0].seconds, medians[1].mebibytes - medians[0].mebibytes)


def used(folder: Path, command: Sequence[str]) -> Usage:
    """Run a command in a folder; give its CPU seconds and its peak memory."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20)


def write_no_op(folder: Path, cases: int) -> None:
    """Write the yardstick."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_no_op.py").write_text(NO_OP.format(cases=cases), encoding="utf-8")


def write_suite(folder: Path, cases: int) -> None:
    """Write a suite of so many cases, one a file."""
    place = folder / "storage" / "benchmarks" / "toy"
    (place / "cases" / "plain").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (place / "suite.yaml").write_text("pack: toy\ndescription: trivial cases\n", encoding="utf-8")
    for number in range(cases):
        case = {
            "id": f"case_{number:06}",
            "pack_id": "toy",
            "case_type": "plain",
            "difficulty": "easy",
            "input": {"number": number},
            "expected": {},
        }
        (place / "cases" / "plain" / f"case_{number:06}.json").write_text(json.dumps(case), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
