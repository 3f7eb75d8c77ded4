"""Joining runs that belong together: what has to be the same, and one stream of all entries in order."""

from __future__ import annotations

import heapq
import json
import re
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, pairwise
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import TEST_TARGET_PREFIX
from pytest_packbench.runs.folder import RECORDS, StoredRunError
from pytest_packbench.runs.lines import ResultFiles
from pytest_packbench.runs.metadata import SPENT, sum_run_spending
from pytest_packbench.runs.report import open_report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.report import OpenRun


SHARD = "shard"
_MERGED_FROM = "merged_from"
_SAME = ("suite", "pack", "pack_version", "suite_sha256", "mode")
# what a run without a case may not have got to know
_SAME_ASKED = ("backend", "model")
# how a run was driven, and where it stopped: neither changes an answer
_DRIVEN = frozenset({"concurrency", "max_tokens", "max_cost", "max_seconds"})
_OWN = frozenset({SHARD, _MERGED_FROM, SPENT})
_SHARD = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")
_MOST_NAMED = 10
_MOST_LOST = 5


class MergeError(ValueError):
    """Runs can't be joined: one line that says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The parts of one suite that were run apart (`--packbench-shard I/N`).

    Attributes:
        count: how many there should be.
        given: the numbers of those that are there, from 1, ascending.
    """

    count: int
    given: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the others."""
        return tuple(sorted(set(range(1, self.count + 1)) - set(self.given)))

    def named(self, numbers: Sequence[int]) -> str:
        """Name some of them: `1/4, 3/4`; of many the first ones."""
        more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
        return ", ".join(f"{number}/{self.count}" for number in numbers[:_MOST_NAMED]) + more


def shards_of(runs: Sequence[Run]) -> Shards | None:
    """Tell which shards runs are.

    Args:
        runs: at least one.

    Returns:
        The shards; None where no run is one.

    Raises:
        MergeError: some runs are shards and others aren't, they are shards of different numbers, or one is there
            twice.
    """
    numbers: dict[int, str] = {}
    counts: dict[int, str] = {}
    others = [run.run_id for run in runs if SHARD not in run.settings]
    for run in runs:
        if SHARD in run.settings:
            number, count = _parsed(run)
            if others:
                raise MergeError(f"run {run.run_id} is shard {number}/{count}, and run {others[0]} is none")
            counts.setdefault(count, f"{number}/{count} (run {run.run_id})")
            if len(counts) > 1:
                raise MergeError(f"shards of different numbers: {', '.join(sorted(counts.values()))}")
            if number in numbers:
                raise MergeError(f"shard {number}/{count} stands there twice: run {numbers[number]}, run {run.run_id}")
            numbers[number] = run.run_id
    return Shards(count=next(iter(counts)), given=tuple(sorted(numbers))) if counts else None


def _parsed(run: Run) -> tuple[int, int]:
    text = run.settings[SHARD]
    found = _SHARD.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[1]) > int(found[2]):
        raise MergeError(f"run {run.run_id}: settings.shard: got {text!r}, expected I/N with I from 1 to N")
    return int(found[1]), int(found[2])


def joined_run(runs: Sequence[Run], run_id: str, *, empty: Collection[str] = ()) -> Run:
    """Say what is true of the joined run. The order of the runs makes no difference.

    Args:
        runs: at least one.
        run_id: the id of the joined run.
        empty: ids of runs without a case, of which target, backend, model and settings are not asked.

    Returns:
        The run. Where the runs have different versions of a library, it has both; tests of the user's own it has from
        all; how they were driven it has where they agree; `settings.spent` is the sum, and `settings.merged_from`
        names the runs.

    Raises:
        MergeError: the runs don't belong together, or one is there twice.
    """
    runs = sorted(runs, key=lambda run: (run.run_id, run.suite))
    # first, for the suites of one session share its id
    for name in _SAME:
        _check_same(name, [(run.run_id, getattr(run, name)) for run in runs])
    for before, after in pairwise(runs):
        if before.run_id == after.run_id:
            raise MergeError(f"run {before.run_id} is given twice")
    asked = [run for run in runs if run.run_id not in empty] or runs
    target = _joined_target(asked)
    for name in _SAME_ASKED:
        _check_same(name, [(run.run_id, getattr(run, name)) for run in asked])
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, set()).add(version)
    return replace(
        asked[0],
        run_id=run_id,
        started_at=min(run.started_at for run in runs),
        finished_at=max(run.finished_at for run in runs),
        partial="",
        target=target,
        versions={name: ", ".join(sorted(found)) for name, found in sorted(versions.items())},
        settings={**_joined_settings(asked), _MERGED_FROM: [run.run_id for run in runs]},
    )


def _joined_target(runs: Sequence[Run]) -> str:
    """Name what was tested; which of the user's own tests had a case in a run is chance, the rest is not."""
    named = [set(run.target.split(", ")) for run in runs]
    rest = {frozenset(name for name in names if not name.startswith(TEST_TARGET_PREFIX)) for names in named}
    if len(rest) > 1:
        _check_same("target", [(run.run_id, run.target) for run in runs])
    together = {run.target for run in runs}
    return together.pop() if len(together) == 1 else ", ".join(sorted(set().union(*named)))


def _joined_settings(runs: Sequence[Run]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run.settings if name not in _OWN):
        found = [(run.run_id, run.settings.get(name)) for run in runs]
        if name not in _DRIVEN:
            _check_same(f"settings.{name}", found)
        if all(value == found[0][1] for _, value in found):
            joined[name] = found[0][1]
    spent = [run.settings[SPENT] for run in runs if isinstance(run.settings.get(SPENT), dict)]
    return {**joined, SPENT: sum_run_spending(spent)} if spent else joined


def _check_same(name: str, found: Sequence[tuple[str, Any]]) -> None:
    by_value: dict[str, list[str]] = {}
    for run_id, value in found:
        by_value.setdefault(json.dumps(value, sort_keys=True), []).append(run_id)
    if len(by_value) > 1:
        told = [
            f"{value} in run {ids[0]}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}"
            for value, ids in by_value.items()
        ]
        raise MergeError(f"the runs don't belong together: {name} is {', '.join(told)}")


class Merge:
    """Runs on their way into one: what is true of it, and its results one by one. The order of the runs is no matter.

    Args:
        folders: those of at least one run; each is opened when it is given.
        run_id: the id of the joined run.

    Attributes:
        run: what is true of the joined run.
        shards: which shards are joined; None where the runs are none.

    Raises:
        MergeError: the runs don't belong together.
        StoredRunError: a report can't be read.
        OSError: the same.
    """

    def __init__(self, folders: Iterable[Path], run_id: str) -> None:
        self._folders: list[Path] = []
        self._reports: list[OpenRun] = []
        empty = []
        for folder in folders:
            report = open_report(folder)
            first = list(islice(report.entries, 1))
            if not first:
                empty.append(report.run.run_id)
            self._folders.append(folder)
            self._reports.append(replace(report, entries=chain(first, report.entries)))
        runs = [report.run for report in self._reports]
        self.run = joined_run(runs, run_id, empty=empty)
        self.shards = shards_of(runs)
        self._lost: list[str] = []
        self._known = 0
        self._tests = 0
        self._idle = 0

    def results(
        self, case_ids: Sequence[str], absent: Callable[[str], CaseResult | None] | None = None
    ) -> Iterator[CaseResult]:
        """Give the results of all runs with their records and payloads, in the order of a run's files.

        Args:
            case_ids: the ids of all cases that the suite has, sorted.
            absent: gives a result for a case that stands in none of the runs; without it there is none.

        Raises:
            MergeError: an attempt stands in two runs, or a run is not in order.
            StoredRunError: a file of a run can't be read, or a record of it is missing.
            OSError: a file can't be read.
        """
        for _, attempts in groupby(self._results(case_ids, absent), key=lambda result: result.test_id):
            # by test: a case of several trials is one
            ran = True
            for result in attempts:
                ran = ran and _ran(result)
                yield result
            self._tests += 1
            self._idle += not ran

    def _results(
        self, case_ids: Sequence[str], absent: Callable[[str], CaseResult | None] | None
    ) -> Iterator[CaseResult]:
        self._known = len(case_ids)
        files = [ResultFiles(folder) for folder in self._folders]
        joined = _joined(self._reports, apart=self.shards is not None)
        for each in _filled(joined, case_ids):
            if isinstance(each, str):
                self._lost.append(each)
                found = absent(each) if absent is not None else None
                if found is not None:
                    yield found
                continue
            number, entry = each
            result = files[number].complete(entry)
            if result.counted and result.record is None:
                told = f"no record of {entry.test_id} at its place, and the run's report counts it"
                raise StoredRunError(f"{self._folders[number] / RECORDS}: {told}")
            yield result
        for each_file in files:
            each_file.end()

    def partial(self) -> str:
        """Say why the joined run is not complete, when its results were given; empty where it is."""
        reasons = []
        if self.shards is not None and self.shards.missing:
            missing = self.shards.missing
            reasons.append(f"{len(missing)} of {self.shards.count} shards not merged ({self.shards.named(missing)})")
        if self._idle:
            reasons.append(f"{self._idle} of {self._tests} cases did not run")
        if self._lost:
            shown = ", ".join(self._lost[:_MOST_LOST]) + (" ..." if len(self._lost) > _MOST_LOST else "")
            reasons.append(f"{len(self._lost)} of {self._known} cases are in none of the runs: {shown}")
        return "; ".join(reasons)


def _ran(entry: CaseResult) -> bool:
    return entry.verdict != "not_run" or entry.quarantined


def _joined(reports: Sequence[OpenRun], *, apart: bool) -> Iterator[tuple[int, CaseResult]]:
    """Give the entries of all runs in the order of a run's files, holding one case at a time.

    An attempt may stand in one run only; of one that did not run in some of them the attempt that ran counts.

    Args:
        reports: the runs, each in the order in which a run is written.
        apart: whether no case may stand in two runs, as in shards, not even one that did not run.

    Yields:
        The place of the entry's run in `reports`, and the entry.

    Raises:
        MergeError: an attempt stands in two runs, or a run is not in order.
    """
    # by run id, so that the order of the arguments makes no difference
    ranked = sorted(range(len(reports)), key=lambda number: reports[number].run.run_id)
    streams = [_numbered(reports[number], number) for number in ranked]
    merged = heapq.merge(*streams, key=lambda each: _key(each[1]))
    for _, group in groupby(merged, key=lambda each: each[1].case_id):
        members = list(group)
        if len({number for number, _ in members}) == 1:
            yield from members
        elif apart:
            raise _twice(members, reports)
        else:
            yield from _resolved(members, reports)


def _key(entry: CaseResult) -> tuple[str, str, int]:
    return entry.case_id, entry.test_id, entry.trial


def _numbered(report: OpenRun, number: int) -> Iterator[tuple[int, CaseResult]]:
    last = ("", "", 0)
    for entry in report.entries:
        key = _key(entry)
        if key < last:
            raise MergeError(f"{report.source}: {entry.test_id} stands behind {last[1]}; expected cases by their id")
        last = key
        yield number, entry


def _resolved(members: list[tuple[int, CaseResult]], reports: Sequence[OpenRun]) -> Iterator[tuple[int, CaseResult]]:
    for _, group in groupby(members, key=lambda each: _key(each[1])):
        attempts = list(group)
        kept = [each for each in attempts if _ran(each[1])] or attempts[:1]
        if len({number for number, _ in kept}) > 1:
            raise _twice(kept, reports)
        yield from kept


def _twice(members: list[tuple[int, CaseResult]], reports: Sequence[OpenRun]) -> MergeError:
    runs = [reports[number].run for number in dict.fromkeys(number for number, _ in members)]
    named = [f"run {run.run_id}{f' (shard {run.settings[SHARD]})' if SHARD in run.settings else ''}" for run in runs]
    return MergeError(f"{members[0][1].test_id} stands in {' and in '.join(named[:2])}; each case may be in one run")


def _filled(
    entries: Iterable[tuple[int, CaseResult]], case_ids: Sequence[str]
) -> Iterator[tuple[int, CaseResult] | str]:
    """Put the ids of cases without an entry, of all `case_ids` sorted, where their entries would stand."""
    at = 0
    for each in entries:
        while at < len(case_ids) and case_ids[at] <= each[1].case_id:
            if case_ids[at] != each[1].case_id:
                yield case_ids[at]
            at += 1
        yield each
    yield from islice(case_ids, at, None)
