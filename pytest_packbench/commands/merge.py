"""`packbench merge`: runs that belong together, or the shards of one, become one run, judged by the suite's gates."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import OUTPUT, add_packs, add_root, find_suite, packs_of, run_folder, run_place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_packbench.cases.files import CasePlace
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.runs.merging import Shards
    from pytest_packbench.runs.stored import OpenReport
    from pytest_packbench.runs.writer import RunFolder

_MOST_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="the folders of the runs, or of all shards of one run")
    add_root(parser)
    add_packs(parser)
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="the folder of reports (default reports/benchmarks)"
    )
    parser.add_argument("--baseline", type=Path, help="the run that max_ratio_to_baseline compares with")
    parser.add_argument(
        "--allow-missing", action="store_true", help="merge although shards are missing: the run is partial and fails"
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, write the merged run, and say in the exit code whether its gates hold.

    Raises:
        UsageError: the runs can't be merged, or a file of the merged run can't be written.
    """
    from ulid import ULID

    from pytest_packbench.analysis.conclusion import judge
    from pytest_packbench.analysis.gates import check_run
    from pytest_packbench.analysis.statistics import statistics
    from pytest_packbench.analysis.trials import rule_of
    from pytest_packbench.atomic import write_atomic
    from pytest_packbench.reports.terminal import table
    from pytest_packbench.runs.files import ensure_gitignore
    from pytest_packbench.runs.merging import joined_run, shards_of
    from pytest_packbench.runs.stored import load_run, open_report
    from pytest_packbench.runs.writer import RunFolder

    _check_output(arguments.output)
    folders = [run_folder(path, arguments.output) for path in arguments.runs]
    reports, empty = _looked_into([open_report(folder) for folder in folders])
    merged = joined_run([report.run for report in reports], str(ULID()), empty=empty)
    shards = shards_of([report.run for report in reports])
    if shards is not None and shards.missing and not arguments.allow_missing:
        raise UsageError(
            f"{len(shards.missing)} of {shards.count} shards missing: {shards.named(shards.missing)}; "
            "give them too, or --allow-missing"
        )
    packs = packs_of(arguments.packs)
    suite = find_suite(merged.suite, arguments.root, packs)
    pack = packs[suite.config.pack].for_suite(suite.config)
    _check_rules(merged, suite, pack)
    earlier = load_run(run_place(arguments.baseline)) if arguments.baseline else None
    folder = arguments.output / merged.suite / merged.run_id
    try:
        ensure_gitignore(arguments.output)
        with RunFolder(folder) as place:
            join = _Join(merged=merged, suite=suite, pack=pack, shards=shards, compared=earlier is not None)
            entries = join.write(list(zip(folders, reports, strict=True)), place)
            merged = replace(merged, partial=join.partial(entries))
            rule = rule_of(merged, suite.config.trials_rule())
            figures = statistics(entries, levels=pack.depths or None, trials_rule=rule)
            gates = check_run(merged, entries, suite.config.all_gates(), earlier, trials_rule=rule)
            place.finish(merged, entries, figures, gates)
        if not merged.partial:
            write_atomic(folder.parent / "latest", merged.run_id + "\n")
    except OSError as error:
        named = str(error.filename or "")
        if named and not named.endswith(".tmp") and merged.run_id not in named:
            # a run can't be read
            raise
        # the error names a draft, which nobody asked for
        raise UsageError(f"the merged run can't be written to {folder}: {error.strerror or error}") from None
    sys.stdout.write("\n".join([*table(merged, entries, figures, gates), f"reports: {folder}", ""]))
    # the summary's own word: a failing case or a missing one fails a merge as it fails a run
    return FINE if judge(merged, figures, gates).status == "passed" else FAILED


def _check_output(output: Path) -> None:
    there = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--output: {there} is no folder; expected a folder, or a new name")


def _looked_into(reports: Sequence[OpenReport]) -> tuple[list[OpenReport], list[str]]:
    """Find the ids of the runs without a case; their reports are to be read on from what is given."""
    looked, empty = [], []
    for report in reports:
        first = next(report.entries, None)
        if first is None:
            empty.append(report.run.run_id)
        looked.append(replace(report, entries=chain(() if first is None else (first,), report.entries)))
    return looked, empty


def _check_rules(merged: Run, suite: Suite, pack: Pack) -> None:
    if suite.sha256 != merged.suite_sha256:
        raise UsageError(f"the rules of suite {merged.suite} have changed since the runs; check out those of the runs")
    if (pack.name, pack.version) != (merged.pack, merged.pack_version):
        raise UsageError(
            f"the runs are of pack {merged.pack} {merged.pack_version}, and this is {pack.name} {pack.version}; "
            "merge with the version that ran"
        )


@dataclass(slots=True, kw_only=True)
class _Join:
    """The entries of all runs on their way into one folder.

    Attributes:
        merged: what is true of the joined run.
        suite: its suite.
        pack: the suite's pack.
        shards: which shards are joined; None where the runs are none.
        compared: whether the joined run is compared with another one.
        lost: cases of the suite that stand in none of the runs.
        known: how many cases the suite has.
    """

    merged: Run
    suite: Suite
    pack: Pack
    shards: Shards | None
    compared: bool = False
    lost: list[str] = field(default_factory=list)
    known: int = 0

    def write(self, runs: Sequence[tuple[Path, OpenReport]], place: RunFolder) -> list[CaseResult]:
        """Write every entry, and keep what figures and the page need of them."""
        from pytest_packbench.analysis.kept import KeptEntries

        kept = KeptEntries(compared=self.compared)
        for entry in self._entries(runs):
            place.add(entry, self.merged.run_id)
            kept.add(entry)
        return kept.entries

    def partial(self, entries: Sequence[CaseResult]) -> str:
        """Say why the joined run is not complete; empty where it is."""
        reasons = []
        if self.shards is not None and self.shards.missing:
            missing = self.shards.missing
            reasons.append(f"{len(missing)} of {self.shards.count} shards not merged ({self.shards.named(missing)})")
        # by test: a case of several trials is one
        idle = {entry.test_id for entry in entries if entry.verdict == "not_run" and not entry.quarantined}
        if idle:
            reasons.append(f"{len(idle)} of {len({entry.test_id for entry in entries})} cases did not run")
        if self.lost:
            shown = ", ".join(self.lost[:_MOST_NAMED]) + (" ..." if len(self.lost) > _MOST_NAMED else "")
            reasons.append(f"{len(self.lost)} of {self.known} cases are in none of the runs: {shown}")
        return "; ".join(reasons)

    def _entries(self, runs: Sequence[tuple[Path, OpenReport]]) -> Iterator[CaseResult]:
        from pytest_packbench.cases.files import CaseIndex
        from pytest_packbench.runs.merging import LinesBeside, filled, joined_entries

        index = CaseIndex(self.suite.cases_path)
        self.known = len(index)
        records = [LinesBeside(folder / "records.jsonl") for folder, _ in runs]
        payloads = [LinesBeside(folder / "payloads.jsonl") for folder, _ in runs]
        joined = joined_entries([report for _, report in runs], apart=self.shards is not None)
        for each in filled(joined, sorted(index)):
            if isinstance(each, str):
                self.lost.append(each)
                place = index.find(each)
                if self.shards is not None and place is not None:
                    # a shard is run whole: what is in none was due
                    yield self._absent(place, self.shards)
                continue
            number, entry = each
            record, payload = records[number].take(entry), payloads[number].take(entry)
            if entry.counted and record is None:
                path = runs[number][0] / "records.jsonl"
                raise UsageError(f"{path}: no record of {entry.test_id} at its place, and the run's report counts it")
            result = None if payload is None else payload.get("result")
            yield replace(entry, record=record, payload=result)
        for lines in (*records, *payloads):
            lines.end()

    def _absent(self, case: CasePlace, shards: Shards) -> CaseResult:
        from pytest_packbench.cases.files import read_place
        from pytest_packbench.engine.results import Place, unscored
        from pytest_packbench.model.errors import CaseError

        file = Path(os.path.relpath(case.path)).as_posix()
        loaded = None
        try:
            loaded = read_place(case, self.pack.case_model, file=file, pack=self.pack.name)
        except CaseError:
            # it would have been an error; here it only did not run
            loaded = None
        place = Place(
            suite=self.suite,
            pack=self.pack,
            case_id=case.name,
            nodeid=f"{file}::{case.name}",
            file=case.located(file),
            folder=Path(case.path).parent.name,
            loaded=loaded,
        )
        kind = "shard_missing" if shards.missing else "in_no_shard"
        told = (
            f"not merged: shards {shards.named(shards.missing)}" if shards.missing else "in none of the merged shards"
        )
        return unscored(place, "not_run", kind, told, timestamp=self.merged.finished_at)
