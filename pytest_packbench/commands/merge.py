"""`packbench merge`: runs that belong together become one, judged by the suite's gates."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.places import OUTPUT, add_root, find_suite, run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run
    from pytest_packbench.records.stored import StoredRun

_SAME = ("suite", "pack", "pack_version", "suite_sha256", "mode", "target")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="the folders of the runs")
    add_root(parser)
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="the folder of reports (default reports/benchmarks)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, write the merged run, and say in the exit code whether its gates hold."""
    from pytest_packbench.reports.document import run_document
    from pytest_packbench.reports.files import ensure_gitignore, write_atomic
    from pytest_packbench.reports.folder import write_run
    from pytest_packbench.reports.gates import check
    from pytest_packbench.reports.judgement import judge
    from pytest_packbench.reports.statistics import statistics
    from pytest_packbench.reports.terminal import table

    folders = [run_folder(path, arguments.output) for path in arguments.runs]
    merged, entries = joined([_whole(folder) for folder in folders])
    suite = find_suite(merged.suite, arguments.root)
    if suite.sha256 != merged.suite_sha256:
        raise UsageError(f"the rules of suite {merged.suite} have changed since the runs; check out those of the runs")
    merged = replace(merged, partial=_missing(suite.cases_path, entries))
    figures = statistics(entries)
    gates = check(entries, suite.config.all_gates())
    ensure_gitignore(arguments.output)
    folder = arguments.output / merged.suite / merged.run_id
    write_run(folder, merged, entries, figures, gates)
    document = {"packbench": run_document(merged, entries, figures, gates)}
    write_atomic(folder / "report.json", json.dumps(document, ensure_ascii=False) + "\n")
    if not merged.partial:
        write_atomic(folder.parent / "latest", merged.run_id + "\n")
    sys.stdout.write("\n".join([*table(merged, entries, figures, gates), f"reports: {folder}", ""]))
    # the summary's own word: a failing case or a missing one fails a merge as it fails a run
    return FINE if judge(merged, figures, gates).status == "passed" else FAILED


def joined(runs: Sequence[StoredRun]) -> tuple[Run, list[Entry]]:
    """Join runs of one suite, one mode and the same rules; each attempt may stand in one of them only.

    Args:
        runs: at least one.

    Returns:
        What is true of the joined run, under an id of its own, and its entries in order.

    Raises:
        UsageError: they don't belong together, or an attempt stands in two of them.
    """
    from ulid import ULID

    from pytest_packbench.reports.folder import in_order

    first = runs[0]
    for name in _SAME:
        if len({getattr(one.run, name) for one in runs}) > 1:
            listed = ", ".join(f"{one.run.run_id}: {getattr(one.run, name)}" for one in runs)
            raise UsageError(f"the runs don't belong together: {name} differs ({listed})")
    run_id = str(ULID())
    seen: dict[tuple[str, int], str] = {}
    entries = []
    for one in runs:
        for entry in one.entries:
            key = (entry.test_id, entry.trial)
            if key in seen:
                both = f"{seen[key]} and in {one.run.run_id}"
                raise UsageError(f"{entry.test_id} stands in {both}; each may be in one run")
            seen[key] = one.run.run_id
            entries.append(_under(entry, run_id))
    settings = {**first.run.settings, "merged_from": [one.run.run_id for one in runs]}
    merged = replace(
        first.run,
        run_id=run_id,
        started_at=min(one.run.started_at for one in runs),
        finished_at=max(one.run.finished_at for one in runs),
        settings=settings,
    )
    return merged, in_order(entries)


def _under(entry: Entry, run_id: str) -> Entry:
    return entry if entry.record is None else replace(entry, record={**entry.record, "run_id": run_id})


def _whole(folder: Path) -> StoredRun:
    """Read a run with its records and results, which the report leaves out."""
    from pytest_packbench.records.stored import load_run

    stored = load_run(folder)
    records = {(line["test_id"], _trial(line)): line for line in _lines(folder / "records.jsonl")}
    payloads = {(line["test_id"], line.get("trial", 0)): line["result"] for line in _lines(folder / "payloads.jsonl")}
    entries = [
        replace(
            entry,
            record=records.get((entry.test_id, entry.trial)),
            payload=payloads.get((entry.test_id, entry.trial)),
        )
        for entry in stored.entries
    ]
    return replace(stored, entries=tuple(entries))


def _trial(line: dict[str, Any]) -> int:
    return int(line.get("packbench", {}).get("trial", 0))


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line:
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise UsageError(f"{path}:{number}: not JSON: {error}") from None
    return found


def _missing(cases: Path, entries: Sequence[Entry]) -> str:
    known = {path.stem for path in cases.rglob("*.json")}
    lost = sorted(known - {entry.case_id for entry in entries})
    shown = ", ".join(lost[:5]) + (" ..." if len(lost) > 5 else "")  # noqa: PLR2004 - as many as one reads at a glance
    return f"{len(lost)} of {len(known)} cases are in none of the runs: {shown}" if lost else ""
