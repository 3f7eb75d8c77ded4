"""This checkout beside another version of the package, both run in turn on the same work.

    python -m benchmarks.against PYTHON [--rounds N] [--cases N] [--records N]

PYTHON is the interpreter of an environment in which the other version is installed, with the same versions of
everything else. Each line is a whole command, run alternately in both; CPU time is user plus system of the process and
its children, memory the peak of the process. Medians count. The last columns are this checkout's figure over the
other's: 1.00 is no change.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import Usage, used, write_generic
from benchmarks.report import write_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUNDLED = Path(__file__).resolve().parent.parent / "storage" / "benchmarks"
PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "packbench",
    "-p",
    "pytest_jsonreport",
    "-p",
    "metadata",
)
PACKBENCH = ("-m", "pytest_packbench")
# 1 says that a gate failed, which the made records decide
CODES = (0, 1)


class Work(NamedTuple):
    """A command: its name, its words behind the interpreter, and where it runs."""

    name: str
    words: tuple[str, ...]
    folder: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="this version beside another one")
    parser.add_argument("python", help="the interpreter of the other version's environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--records", type=int, default=200_000)
    arguments = parser.parse_args(argv)
    print("work                                CPU s: other    this    MiB: other   this    CPU x   memory x")
    with tempfile.TemporaryDirectory() as folder:
        for work in works(Path(folder), arguments.cases, arguments.records):
            others, ours = [], []
            for _ in range(arguments.rounds):
                others.append(used(work.folder, [arguments.python, *work.words], codes=CODES))
                ours.append(used(work.folder, [sys.executable, *work.words], codes=CODES))
            print(line(work.name, median(others), median(ours)), flush=True)
    return 0


def works(folder: Path, cases: int, records: int) -> Iterator[Work]:
    """Prepare the work, one piece at a time.

    Args:
        folder: an empty one.
        cases: of the suite of trivial cases.
        records: of the report.
    """
    few, many = folder / "few", folder / "many"
    write_generic(few, 1)
    yield Work("one generic case", (*PYTEST, "--packbench-suite=toy"), few)
    write_generic(many, cases)
    yield Work(f"{cases:,} generic cases", (*PYTEST, "--packbench-suite=toy"), many)
    live = (*PYTEST, "--packbench-suite=toy", "--packbench-mode=live", "--packbench-concurrency=64")
    (many / "conftest.py").write_text(LIVE, encoding="utf-8")
    yield Work(f"{cases:,} live, without a model", live, many)
    for number in (1, 2):
        shard = ("--packbench-output=parts", f"--packbench-shard={number}/2")
        used(many, [sys.executable, *PYTEST, "--packbench-suite=toy", *shard])
    parts = tuple(str(path.parent) for path in sorted(many.glob("parts/toy/*/report.json")))
    yield Work("packbench merge of two shards", (*PACKBENCH, "merge", *parts, "--output=merged"), many)
    yield Work(
        "packbench compare of a shard",
        (*PACKBENCH, "compare", f"--baseline={parts[0]}", f"--current={parts[0]}", "--out=diff.md"),
        many,
    )
    shutil.copytree(BUNDLED, folder / "tariff" / "storage" / "benchmarks")
    (folder / "tariff" / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    yield Work("the tariff suite", (*PYTEST, "--packbench-suite=tariff"), folder / "tariff")
    write_records(folder / "records.jsonl", records, own=False)
    yield Work(f"packbench report, {records:,} records", (*PACKBENCH, "report", "records.jsonl"), folder)


LIVE = """
from pytest_packbench import without_model


@without_model
async def act(request):
    return {"answer": request.input["number"], "text": "ok"}


def pytest_packbench_target(config, suite):
    return act
"""


def median(usages: Sequence[Usage]) -> Usage:
    """Take the median of each column."""
    return Usage(*(statistics.median(each[column] for each in usages) for column in (0, 1)))


def line(name: str, other: Usage, ours: Usage) -> str:
    """Format one line."""
    return (
        f"{name:36}{other.seconds:12.2f}{ours.seconds:8.2f}{other.mebibytes:14.1f}{ours.mebibytes:7.1f}"
        f"{ours.seconds / other.seconds:9.2f}{ours.mebibytes / other.mebibytes:11.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
