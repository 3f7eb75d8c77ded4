"""Measure the cost of a trivial case, compared with a parametrized test that does nothing.

    python benchmarks/overhead.py [--cases N ...] [--rounds N] [--large] [--generic]

Both runs are whole pytest commands, in separate processes, with and without a JSON report. A toy pack scores each case
1.0, so that the rest is the plugin's work: collecting, validating, recording, writing. CPU time is user plus system of
the process without its start (the same command with 10 cases); it is the median of several rounds. Memory per case is
the growth of the peak over those 10 cases. Only the required plugins are loaded. For comparison, `by hand` is a
collector of 20 lines that makes one test per file and only compares an id. `--large` adds 100,000 cases.
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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START = 10
SIZES = (1_000, 10_000)
LARGE = 100_000
CONFTEST = """
from pytest_packbench import Answer, Pack, Term


class Toy(Pack):
    name = "toy"
    version = "1"
    answer_model = Answer

    def terms(self, case, answer, rules):
        return (Term(name="points", value=1.0),)


def pytest_packbench_packs():
    return [Toy()]


def act(request):
    return {}


def pytest_packbench_target(config, suite):
    return act
"""
GENERIC_CONFTEST = """
def act(request):
    return {"answer": request.input["number"], "text": "ok"}


def pytest_packbench_target(config, suite):
    return act
"""
NO_OP = """
import pytest


@pytest.mark.parametrize("number", range({cases}))
def test_nothing(number):
    pass
"""


BY_HAND = """
import json

import pytest


class Item(pytest.Item):
    def runtest(self):
        case = json.loads(self.path.read_text("utf-8"))
        if case["id"] != self.name:
            raise AssertionError(self.name)


class File(pytest.File):
    def collect(self):
        yield Item.from_parent(self, name=self.path.stem)


def pytest_collect_file(file_path, parent):
    return File.from_parent(parent, path=file_path) if file_path.suffix == ".json" else None
"""
REPORT = ("pytest_jsonreport", "metadata")


class Usage(NamedTuple):
    """The cost of a command: CPU seconds and peak memory, MiB."""

    seconds: float
    mebibytes: float


class Peaks(NamedTuple):
    """The peak memory of whole commands, MiB."""

    no_op: float
    ours: float


class Overhead(NamedTuple):
    """The cost of the cases without the start: the no-op, ours, and a hand-written collector (None: not measured)."""

    cases: int
    reported: bool
    no_op: Usage
    ours: Usage
    by_hand: Usage | None
    peaks: Peaks

    @property
    def time(self) -> float:
        """CPU time compared with the no-op."""
        return self.ours.seconds / self.no_op.seconds

    @property
    def memory(self) -> float:
        """Memory per case compared with the no-op."""
        return self.ours.mebibytes / self.no_op.mebibytes


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print all sizes."""
    parser = argparse.ArgumentParser(description="a trivial case against a parametrized no-op")
    parser.add_argument("--cases", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help=f"measure {LARGE} cases as well")
    parser.add_argument("--generic", action="store_true", help="cases of the generic pack")
    arguments = parser.parse_args(argv)
    heading = "   cases  json report   no-op us   packbench us   ratio   no-op KiB   packbench KiB   ratio"
    print(f"{heading}   peak MiB   by hand")
    for cases in [*arguments.cases, *([LARGE] if arguments.large else [])]:
        for reported in (True, False):
            by_hand = reported and cases < LARGE
            found = measure(
                cases, reported=reported, rounds=arguments.rounds, by_hand=by_hand, generic=arguments.generic
            )
            print(line(found), flush=True)
    return 0


def measure(cases: int, *, reported: bool, rounds: int, by_hand: bool = False, generic: bool = False) -> Overhead:
    """Measure one size; the commands run in turn, so that other work on the machine affects all of them.

    Args:
        cases: the number of cases.
        reported: whether to write the JSON report.
        rounds: the number of rounds; the result is their median.
        by_hand: whether to measure the collector of 20 lines, too.
        generic: whether to use the generic pack instead of a toy pack.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        commands = {"plain": no_op_command(reported=reported), "suite": suite_command(reported=reported)}
        for number in (START, cases):
            write_no_op(place / "plain" / str(number), number)
            (write_generic if generic else write_suite)(place / "suite" / str(number), number)
            if by_hand:
                write_by_hand(place / "hand" / str(number), place / "suite" / str(number))
        if by_hand:
            commands["hand"] = [*no_op_command(reported=reported), "storage"]
        usages: dict[tuple[str, int], list[Usage]] = {}
        for _ in range(rounds):
            for name, command in commands.items():
                for number in (START, cases):
                    usages.setdefault((name, number), []).append(used(place / name / str(number), command))
    grown = {name: growth(usages[name, START], usages[name, cases]) for name in commands}
    peaks = Peaks(*(statistics.median(each.mebibytes for each in usages[name, cases]) for name in ("plain", "suite")))
    return Overhead(cases, reported, grown["plain"], grown["suite"], grown.get("hand"), peaks)


def growth(few: Sequence[Usage], many: Sequence[Usage]) -> Usage:
    """Return the cost of many cases minus the cost of a few; medians."""
    begin, end = ([statistics.median(each[column] for each in usages) for column in (0, 1)] for usages in (few, many))
    return Usage(end[0] - begin[0], end[1] - begin[1])


def each_case(found: Overhead, usage: Usage) -> tuple[float, float]:
    """Return microseconds and KiB per case."""
    cases = found.cases - START
    return 1e6 * usage.seconds / cases, 1024 * usage.mebibytes / cases


def line(found: Overhead) -> str:
    """Format the line of one size."""
    (plain_us, plain_kib), (ours_us, ours_kib) = each_case(found, found.no_op), each_case(found, found.ours)
    by_hand = f"{found.by_hand.seconds / found.no_op.seconds:8.2f}" if found.by_hand is not None else "       -"
    return (
        f"{found.cases:8}  {'yes' if found.reported else 'no':>11}  {plain_us:9.0f}  {ours_us:13.0f}  {found.time:6.2f}"
        f"  {plain_kib:10.1f}  {ours_kib:14.1f}  {found.memory:6.2f}  {found.peaks.ours:9.1f}  {by_hand}"
    )


def pytest_command(*plugins: str) -> list[str]:
    """Return the start of a command that loads only these plugins of the environment."""
    loaded = [word for plugin in plugins for word in ("-p", plugin)]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *loaded]


def no_op_command(*, reported: bool) -> list[str]:
    """Return the command of the reference."""
    report = ["--json-report", "--json-report-file=report.json"] if reported else []
    return [*pytest_command(*(REPORT if reported else ())), *report]


def suite_command(*, reported: bool) -> list[str]:
    """Return the command of the suite; the plugin enables the JSON report itself."""
    return [*pytest_command("packbench", *(REPORT if reported else ())), "--packbench-suite=toy"]


def used(
    folder: Path,
    command: Sequence[str],
    *,
    codes: tuple[int, ...] = (0,),
) -> Usage:
    """Run a command in a folder; return its CPU seconds and its peak memory.

    Args:
        folder: the working directory.
        command: the command with its arguments.
        codes: the exit codes of success.
    """
    # pytest loads only the plugins that the command names
    variables = environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20)


def write_by_hand(folder: Path, suite: Path) -> None:
    """Write the hand-written collector as a conftest.py, for the same case files."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "conftest.py").write_text(BY_HAND, encoding="utf-8")
    (folder / "storage").symlink_to(suite / "storage", target_is_directory=True)


def environment() -> dict[str, str]:
    """Return the environment without variables that change how pytest runs or packages are loaded."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PACKBENCH"))}
    # later runs of an installed package do not compile
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def write_no_op(folder: Path, cases: int) -> None:
    """Write the reference test."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_no_op.py").write_text(NO_OP.format(cases=cases), encoding="utf-8")


def write_suite(folder: Path, cases: int) -> None:
    """Write a suite with this number of cases, one per file."""
    _write_cases(folder, cases, "toy", lambda _: {})
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")


def write_generic(folder: Path, cases: int) -> None:
    """Write the same for the generic pack, with a target that returns the expected answer."""
    _write_cases(folder, cases, "generic", lambda number: {"answer": number, "text": "ok"})
    (folder / "conftest.py").write_text(GENERIC_CONFTEST, encoding="utf-8")


def _write_cases(folder: Path, cases: int, pack: str, expected: Callable[[int], dict[str, Any]]) -> None:
    place = folder / "storage" / "benchmarks" / "toy"
    (place / "cases" / "plain").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (place / "suite.yaml").write_text(f"pack: {pack}\ndescription: trivial cases\n", encoding="utf-8")
    for number in range(cases):
        case = {
            "id": f"case_{number:06}",
            "pack_id": pack,
            "case_type": "plain",
            "difficulty": "easy",
            "input": {"number": number},
            "expected": expected(number),
        }
        (place / "cases" / "plain" / f"case_{number:06}.json").write_text(json.dumps(case), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
