"""Measure one of 100 shards, and the merge of all of them.

    python -m benchmarks.shards [--cases N ...] [--shards N]

The cases are in JSONL files of 10,000 lines each. One shard really runs. The others are generated from its records, one
record per case, by the same writer as every run. The merge is the whole command over all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.overhead import START, Usage, suite_command, used, write_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result

CASES = (10_000, 100_000)
SHARDS = 100
_FILE = 10_000


class ShardCosts(NamedTuple):
    """The cost of running one shard, of selecting its cases without running, and of merging all shards."""

    cases: int
    shard: Usage
    selected: Usage
    merge: Usage


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print all sizes."""
    parser = argparse.ArgumentParser(description="a suite in many shards")
    parser.add_argument("--cases", type=int, nargs="+", default=list(CASES))
    parser.add_argument("--shards", type=int, default=SHARDS)
    arguments = parser.parse_args(argv)
    print("   cases  shards   one shard s   MiB   to select s   MiB   merge s   MiB")
    for cases in arguments.cases:
        found = measure(cases, arguments.shards)
        print(
            f"{cases:8}  {arguments.shards:6}  {found.shard.seconds:12.2f}  {found.shard.mebibytes:4.0f}"
            f"  {found.selected.seconds:12.2f}  {found.selected.mebibytes:4.0f}"
            f"  {found.merge.seconds:8.2f}  {found.merge.mebibytes:4.0f}",
            flush=True,
        )
    return 0


def measure(cases: int, shards: int) -> ShardCosts:
    """Measure one size."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "suite")
        ids = _write_cases(place, cases)
        command = [*suite_command(reported=True), f"--packbench-shard=1/{shards}", "--packbench-output=shards"]
        ran = used(place, command)
        selected = used(place, [*command, "--collect-only"])
        (first,) = (path for path in (place / "shards" / "toy").iterdir() if path.is_dir())
        others = _write_others(first, ids, shards)
        merge = [sys.executable, "-m", "pytest_packbench", "merge", "--pack", "conftest:Toy", "--output", "merged"]
        merged = used(place, [*merge, str(first), *map(str, others)])
        (whole,) = (path for path in (place / "merged" / "toy").iterdir() if path.is_dir())
        with (whole / "records.jsonl").open("rb") as records:
            if sum(1 for _ in records) != cases:
                raise SystemExit(f"the merge of {cases} cases has another number of cases")
    return ShardCosts(cases, ran, selected, merged)


def _write_cases(place: Path, cases: int) -> list[str]:
    write_suite(place, START)
    folder = place / "storage" / "benchmarks" / "toy" / "cases" / "plain"
    case = json.loads((folder / f"case_{0:06}.json").read_text("utf-8"))
    for path in folder.glob("*.json"):
        path.unlink()
    ids = [f"case_{number:07}" for number in range(cases)]
    for begin in range(0, cases, _FILE):
        text = "".join(json.dumps({**case, "id": case_id}) + "\n" for case_id in ids[begin : begin + _FILE])
        (folder / f"part_{begin // _FILE:04}.jsonl").write_text(text, encoding="utf-8")
    return ids


def _write_others(first: Path, ids: Sequence[str], shards: int) -> list[Path]:
    """Write the shards that did not run; return their folders."""
    # not at the top: the memory of this process counts as memory of the commands that it starts
    from pytest_packbench.analysis.conclusion import conclude, run_document
    from pytest_packbench.model.run import shard_of
    from pytest_packbench.runs.reading import open_run
    from pytest_packbench.runs.writing import RunWriter

    real = open_run(first, checked=False)
    # the reports of a run contain no records: one is enough as a template
    record = json.loads((first / "records.jsonl").read_text("utf-8").partition("\n")[0])
    result = next(iter(real.results))
    pattern = replace(result, attempt=replace(result.attempt, payload={}))
    parts: dict[int, list[str]] = {}
    for case_id in ids:
        parts.setdefault(shard_of(case_id, shards), []).append(case_id)
    folders = []
    for number in range(2, shards + 1):
        run_id = first.name[:-4] + f"{number:04}"
        part = parts.get(number, [])
        entries = [_entry(pattern, record, case_id) for case_id in part]
        partial = real.run.partial.replace(f"1/{shards}", f"{number}/{shards}")
        partial = partial.replace(f" {len(parts.get(1, []))} of ", f" {len(part)} of ")
        settings = {**real.run.settings, "shard": f"{number}/{shards}"}
        run = replace(real.run, run_id=run_id, settings=settings, partial=partial)
        writer = RunWriter(first.parent.parent, run.suite, run_id)
        writer.write_results(entries)
        writer.complete(run_document(conclude(run, entries, None)))
        folders.append(writer.folder)
    return folders


def _entry(pattern: Result, record: dict[str, Any], case_id: str) -> Result:
    test_id = f"toy:plain:{case_id}"
    own = {**record["packbench"], "case_id": case_id}
    nodeid = f"{pattern.case.nodeid.partition('::')[0]}::{case_id}"
    return replace(
        pattern,
        case=replace(pattern.case, case_id=case_id, test_id=test_id, nodeid=nodeid),
        record={**record, "test_id": test_id, "packbench": own},
    )


if __name__ == "__main__":
    sys.exit(main())
