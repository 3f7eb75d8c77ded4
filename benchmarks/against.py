"""Compare this checkout with another version of the package, both run in turn on the same work.

    python -m benchmarks.against PYTHON [--rounds N] [--cases N] [--large N] [--records N] [--only TEXT]

PYTHON is the interpreter of an environment with the other version, and with the same versions of everything else. Each
line is a whole command, run alternately in both; CPU time is user plus system of the process and its children, memory
the peak of the process; both are medians. The last columns are this checkout's figure divided by the other's: 1.00 is
no change. `--only` measures only the lines with names that contain the text.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import agentdojo, live, shards
from benchmarks.overhead import Usage, used, write_generic
from benchmarks.report import write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
# exit code 1 is a failed gate: this depends on the generated records
CODES = (0, 1)
LATENCY = 0.2
LIVE_CASES = 1000


class Work(NamedTuple):
    """A command: its name, its arguments for the interpreter, and the function that prepares its folder."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print all lines."""
    parser = argparse.ArgumentParser(description="compare this version with another one")
    parser.add_argument("python", help="the interpreter of the other version's environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", metavar="TEXT", default="")
    arguments = parser.parse_args(argv)
    print("work                                       CPU s: other    this    MiB: other   this    CPU x   memory x")
    with live.serving(LATENCY) as url:
        # where the target of the live work asks
        os.environ["OPENAI_BASE_URL"] = f"{url}/v1"
        for work in works(arguments.cases, arguments.large, arguments.records):
            if arguments.only in work.name:
                with tempfile.TemporaryDirectory() as folder:
                    print(measure(work, Path(folder), arguments.python, arguments.rounds), flush=True)
    return 0


def measure(work: Work, folder: Path, python: str, rounds: int) -> str:
    """Run a piece of work with both versions in turn; return its line.

    Args:
        work: the work.
        folder: an empty folder, in which each version gets one of its own: a run reads the runs before it.
        python: the interpreter of the other version.
        rounds: how often each version runs.
    """
    other, this = folder / "other", folder / "this"
    work.prepare(other)
    work.prepare(this)
    others, ours = [], []
    for _ in range(rounds):
        others.append(used(other, [python, *work.words], codes=CODES))
        ours.append(used(this, [sys.executable, *work.words], codes=CODES))
    return line(work.name, median(others), median(ours))


def works(cases: int, large: int, records: int) -> Iterator[Work]:
    """List the work to measure.

    Args:
        cases: size of the suite of trivial cases.
        large: size of the large suite.
        records: size of the report.
    """
    suite = (*PYTEST, "--packbench-suite=toy")
    two, live_mode = ("-p", "xdist", "-n", "2"), ("--packbench-mode=live", "--packbench-concurrency=64")
    command = (*PYTEST, "--packbench-suite=many", "--packbench-target=pipeline:post", *live_mode)
    compare = (*PACKBENCH, "compare", "--baseline=whole", "--current=whole", "--out=diff.md")
    control = agentdojo.CONTROLS[0]
    pairs = (*PYTEST, f"--packbench-suite={control.attack}", f"--packbench-model={control.agent}")
    shard = (*suite, f"--packbench-shard=1/{shards.SHARDS}", "--packbench-output=shards")
    report = (*PACKBENCH, "report", "records.jsonl")
    yield Work("one generic case", suite, lambda folder: write_generic(folder, 1))
    yield Work(f"{cases:,} generic cases", suite, lambda folder: write_generic(folder, cases))
    yield Work(f"{cases:,} generic cases, -n 2", (*suite, *two), lambda folder: write_generic(folder, cases))
    yield Work(f"{cases:,} live, without a model", (*suite, *live_mode), lambda folder: _without_model(folder, cases))
    yield Work(f"{LIVE_CASES:,} live, a server of 200 ms", command, _asked)
    yield Work(f"{large:,} generic cases", suite, lambda folder: _lines(folder, large))
    yield Work(f"one shard of {shards.SHARDS}, {large:,} cases", shard, lambda folder: _lines(folder, large))
    yield Work(
        "packbench merge of two shards",
        (*PACKBENCH, "merge", "1", "2", "--output=merged"),
        lambda folder: _parts(folder, cases),
    )
    yield Work(f"packbench compare, {large:,} cases", compare, lambda folder: _whole(folder, large))
    yield Work("the tariff suite", (*PYTEST, "--packbench-suite=tariff"), _tariff)
    yield Work("AgentDojo, all 949 pairs", pairs, lambda folder: _pairs(folder, control))
    yield Work(f"packbench report, {records:,} records", report, lambda folder: _records(folder, records))


def _without_model(folder: Path, cases: int) -> None:
    write_generic(folder, cases)
    (folder / "conftest.py").write_text(LIVE, encoding="utf-8")


def _asked(folder: Path) -> None:
    live.prepare(folder, LIVE_CASES, LATENCY)


def _pairs(folder: Path, control: agentdojo.Control) -> None:
    folder.mkdir()
    agentdojo.prepare(folder, [control])


def _lines(folder: Path, cases: int) -> None:
    """Write the cases as lines of one file."""
    write_generic(folder, 1)
    (path,) = folder.rglob("case_000000.json")
    case = json.loads(path.read_text("utf-8"))
    path.unlink()
    with path.with_name("all.jsonl").open("w", encoding="utf-8") as file:
        for number in range(cases):
            fields = {
                "id": f"case_{number:07}",
                "input": {"number": number},
                "expected": {"answer": number, "text": "ok"},
            }
            file.write(json.dumps({**case, **fields}) + "\n")


def _parts(folder: Path, cases: int) -> None:
    write_generic(folder, cases)
    for number in (1, 2):
        shard = ("--packbench-output=parts", f"--packbench-shard={number}/2")
        used(folder, [sys.executable, *PYTEST, "--packbench-suite=toy", *shard])
        (made,) = (path.parent for path in folder.glob("parts/toy/*/report.json"))
        made.rename(folder / str(number))


def _whole(folder: Path, cases: int) -> None:
    _lines(folder, cases)
    used(folder, [sys.executable, *PYTEST, "--packbench-suite=toy"])
    (made,) = (path.parent for path in folder.glob("reports/benchmarks/toy/*/report.json"))
    made.rename(folder / "whole")


def _tariff(folder: Path) -> None:
    shutil.copytree(BUNDLED, folder / "storage" / "benchmarks")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def _records(folder: Path, records: int) -> None:
    folder.mkdir()
    write_records(folder / "records.jsonl", records, own=False)


LIVE = """
from pytest_packbench import without_model


@without_model
async def act(request):
    return {"answer": request.input["number"], "text": "ok"}


def pytest_packbench_target(config, suite):
    return act
"""


def median(usages: Sequence[Usage]) -> Usage:
    """Return the median of each column."""
    return Usage(*(statistics.median(each[column] for each in usages) for column in (0, 1)))


def line(name: str, other: Usage, ours: Usage) -> str:
    """Format one line."""
    return (
        f"{name:40}{other.seconds:12.2f}{ours.seconds:8.2f}{other.mebibytes:14.1f}{ours.mebibytes:7.1f}"
        f"{ours.seconds / other.seconds:9.2f}{ours.mebibytes / other.mebibytes:11.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
