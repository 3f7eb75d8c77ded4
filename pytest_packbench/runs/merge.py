"""Merging runs of one suite, such as its shards: their metadata, and one ordered stream of their results."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import RECORD_PROMPTS, TEST_TARGET_PREFIX, Shard
from pytest_packbench.runs.folder import RECORDS, StoredRunError
from pytest_packbench.runs.lines import controls_of_report
from pytest_packbench.runs.metadata import MERGED_FROM, SPENT, sum_run_spending
from pytest_packbench.runs.reading import open_run, sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pytest_packbench.model.control import ControlResult
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.reading import StoredRun


SHARD = "shard"
_REQUIRED_EQUAL = ("suite", "pack", "pack_version", "suite_sha256", "mode")
# not known to a run without cases
_REQUIRED_EQUAL_WITH_CASES = ("backend", "model")
# settings that change no answer
_EXECUTION_SETTINGS = frozenset({"concurrency", "max_tokens", "max_cost", "max_seconds", RECORD_PROMPTS})
_PER_RUN_SETTINGS = frozenset({SHARD, MERGED_FROM, SPENT})
_MAX_NAMED_SHARDS = 10
_MAX_NAMED_CASES = 5


class MergeError(ValueError):
    """Runs cannot be merged; the message is one line with the runs and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The shards of a suite that are merged (`--packbench-shard I/N`).

    Attributes:
        count: how many shards the suite was split into.
        missing: the numbers of the shards that are not merged, from 1, ascending.
    """

    count: int
    missing: tuple[int, ...]

    def describe(self, numbers: Sequence[int]) -> str:
        """List shards, of many only the first: `1/4, 3/4`."""
        more = f" and {len(numbers) - _MAX_NAMED_SHARDS} more" if len(numbers) > _MAX_NAMED_SHARDS else ""
        return ", ".join(f"{number}/{self.count}" for number in numbers[:_MAX_NAMED_SHARDS]) + more


def shards_of(runs: Sequence[Run]) -> Shards | None:
    """Return which shards the runs are.

    Args:
        runs: at least one.

    Returns:
        The shards; None if no run is a shard.

    Raises:
        MergeError: only some of the runs are shards, their shard counts differ, or a shard is there twice.
    """
    shards = {run.run_id: _shard_of(run) for run in runs if SHARD in run.settings}
    other = next((run.run_id for run in runs if SHARD not in run.settings), None)
    of_number: dict[int, str] = {}
    of_count: dict[int, str] = {}
    for run_id, shard in shards.items():
        if other is not None:
            raise MergeError(f"run {run_id} is shard {shard}, but run {other} is not a shard; merge them separately")
        of_count.setdefault(shard.count, f"{shard} (run {run_id})")
        if len(of_count) > 1:
            raise MergeError(f"shard counts differ: {', '.join(sorted(of_count.values()))}")
        first = of_number.setdefault(shard.number, run_id)
        if first != run_id:
            raise MergeError(f"shard {shard} is passed twice: run {first}, run {run_id}; pass one of them")
    for count in of_count:
        return Shards(count=count, missing=tuple(number for number in range(1, count + 1) if number not in of_number))
    return None


def _shard_of(run: Run) -> Shard:
    text = run.settings[SHARD]
    try:
        return Shard.parse(text)
    except (TypeError, ValueError) as error:
        problem = f"got {text!r}; expected a string" if isinstance(error, TypeError) else error
        raise MergeError(f"run {run.run_id}: settings.shard: {problem}") from None


def merged_run(runs: Sequence[Run], run_id: str, *, empty: Collection[str] = ()) -> Run:
    """Return the metadata of the merged run; the order of the runs makes no difference.

    Args:
        runs: at least one.
        run_id: the id of the merged run.
        empty: ids of runs without cases, whose target, backend, model and settings are ignored.

    Returns:
        The run. It lists all versions of a library and all tests of the user that are targets, and has those execution
        settings on which the runs agree; `settings.spent` is the sum, `settings.merged_from` lists the run ids.

    Raises:
        MergeError: the runs do not belong together, or one is there twice.
    """
    runs = sorted(runs, key=lambda run: (run.run_id, run.suite))
    ids = [run.run_id for run in runs]
    # before the ids: the suites of one session share its id
    for name in _REQUIRED_EQUAL:
        _check_same(name, ids, [getattr(run, name) for run in runs])
    twice = next((before for before, after in pairwise(ids) if before == after), None)
    if twice is not None:
        raise MergeError(f"run {twice} is passed twice; pass each run once")
    with_cases = [run for run in runs if run.run_id not in empty] or runs
    of_cases = [run.run_id for run in with_cases]
    # the tests of the user may differ by shard, other targets must be equal
    targets = {name for run in with_cases for name in run.target.split(", ")}
    others = [_without_tests(run.target) for run in with_cases]
    if any(other != others[0] for other in others):
        _check_same("target", of_cases, [run.target for run in with_cases])
    for name in _REQUIRED_EQUAL_WITH_CASES:
        _check_same(name, of_cases, [getattr(run, name) for run in with_cases])
    is_same_target = all(run.target == with_cases[0].target for run in with_cases)
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, set()).add(version)
    return replace(
        with_cases[0],
        run_id=run_id,
        started_at=min(run.started_at for run in runs),
        finished_at=max(run.finished_at for run in runs),
        partial="",
        target=with_cases[0].target if is_same_target else ", ".join(sorted(targets)),
        versions={name: ", ".join(sorted(values)) for name, values in sorted(versions.items())},
        settings={**_joined_settings(with_cases, of_cases), MERGED_FROM: ids},
    )


def _without_tests(target: str) -> set[str]:
    return {name for name in target.split(", ") if not name.startswith(TEST_TARGET_PREFIX)}


def _joined_settings(runs: Sequence[Run], ids: Sequence[str]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run.settings if name not in _PER_RUN_SETTINGS):
        values = [run.settings.get(name) for run in runs]
        if name not in _EXECUTION_SETTINGS:
            _check_same(f"settings.{name}", ids, values)
        if all(value == values[0] for value in values):
            joined[name] = values[0]
        elif name == RECORD_PROMPTS and False in values:
            # what one run must not show, the page of all would
            joined[name] = False
    spent = [run.settings[SPENT] for run in runs if isinstance(run.settings.get(SPENT), dict)]
    return {**joined, SPENT: sum_run_spending(spent)} if spent else joined


def _check_same(name: str, ids: Sequence[str], values: Sequence[Any]) -> None:
    by_value: dict[str, list[str]] = {}
    for run_id, value in zip(ids, values, strict=True):
        by_value.setdefault(json.dumps(value, sort_keys=True), []).append(run_id)
    if len(by_value) > 1:
        listed = [
            f"{value} in run {of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}"
            for value, of in by_value.items()
        ]
        raise MergeError(f"the runs do not belong together: {name} is {', '.join(listed)}")


class Merge:
    """Merges runs into one, reading their results one by one. The order of the runs makes no difference.

    Args:
        folders: the folders of at least one run.
        run_id: the id of the merged run.

    Attributes:
        run: the metadata of the merged run.
        shards: which shards are merged; None if the runs are not shards.
        rerun: the options of pytest that make such a run, as in `StoredRun`.

    Raises:
        MergeError: the runs do not belong together.
        StoredRunError: a report cannot be read.
        OSError: likewise.
    """

    def __init__(self, folders: Iterable[Path], run_id: str) -> None:
        # by run id, so that the order of the arguments makes no difference
        self._runs = sorted((open_run(folder, complete=True) for folder in folders), key=lambda each: each.run.run_id)
        runs = [opened.run for opened in self._runs]
        loosened = next((opened.run.run_id for opened in self._runs if opened.policy_failed), None)
        if loosened is not None:
            raise MergeError(
                f"run {loosened} failed for its acceptance policy, which a merge does not compare; see its changes "
                "with packbench gate --policy-from BASE, allow or revert them, and run again"
            )
        empty = [opened.run.run_id for opened in self._runs if not opened.selected]
        self.run = merged_run(runs, run_id, empty=empty)
        self.shards = shards_of(runs)
        self.rerun = next((opened.rerun for opened in self._runs if opened.selected), "")
        self._missing: list[str] = []
        self._suite_size = 0
        self._tests = 0
        self._not_run = 0

    def results(
        self,
        case_ids: Sequence[str],
        absent: Callable[[str], Result | None] | None = None,
        changed: Callable[[Result], str] | None = None,
    ) -> Iterator[Result]:
        """Yield the results of all runs with their records and payloads, in the order of a run's files; once.

        Args:
            case_ids: the ids of all cases of the suite, sorted.
            absent: returns a result for a case that is in none of the runs; without it the case is left out.
            changed: returns in one line why the suite is not the one of a result; empty if it is.

        Raises:
            MergeError: an attempt is in two runs, or the suite has changed.
            StoredRunError: a file of a run cannot be read, or a record is missing.
            OSError: a file cannot be read.
        """
        self._suite_size = len(case_ids)
        for _, attempts in groupby(self._filled(case_ids, absent, changed), key=lambda each: each.case.test_id):
            ran = True
            for result in attempts:
                ran = ran and _ran(result)
                yield result
            self._tests += 1
            self._not_run += not ran

    def _filled(
        self,
        case_ids: Sequence[str],
        absent: Callable[[str], Result | None] | None,
        changed: Callable[[Result], str] | None,
    ) -> Iterator[Result]:
        """Yield the results of all runs, and what stands for the cases that are in none of them."""
        merged = heapq.merge(*map(_with_run, self._runs), key=lambda each: sort_key(each[0]))
        groups = ((case_id, list(group)) for case_id, group in groupby(merged, key=lambda each: each[0].case.case_id))
        position = 0
        for case_id, members in chain(groups, [(None, [])]):
            while position < len(case_ids) and (case_id is None or case_ids[position] <= case_id):
                if case_ids[position] != case_id:
                    self._missing.append(case_ids[position])
                    filler = absent(case_ids[position]) if absent is not None else None
                    yield from () if filler is None else (filler,)
                position += 1
            for result, opened in _of_one(members, disjoint=self.shards is not None):
                problem = changed(result) if changed is not None else ""
                if problem:
                    raise MergeError(f"run {opened.run.run_id}: {problem}")
                if result.score.counted and result.record is None:
                    path, name = Path(opened.source).with_name(RECORDS), result.case.test_id
                    raise StoredRunError(f"{path}: the record of {name} is missing, but the run's report counts it")
                yield result

    @property
    def controls_present(self) -> int:
        """How many controls the suite of the runs had, as their reports count them; of shards each is in one."""
        counts = [opened.controls.get("present") for opened in self._runs if isinstance(opened.controls, dict)]
        return sum(count for count in counts if type(count) is int)

    def controls(self) -> list[ControlResult]:
        """Return what the controls of all runs came to; of shards each control is in one.

        Raises:
            StoredRunError: the file of a run is missing or invalid, or differs from the run's report.
            OSError: a file can't be read.
        """
        tallies = (
            controls_of_report(Path(opened.source).parent, opened.run.run_id, opened.controls) for opened in self._runs
        )
        return [result for tally in tallies if tally is not None for result in tally.results]

    def partial(self) -> str:
        """Describe why the merged run is not complete, after its results were read; empty if it is complete."""
        reasons = []
        if self.shards is not None and self.shards.missing:
            missing = self.shards.missing
            reasons.append(f"{len(missing)} of {self.shards.count} shards not merged ({self.shards.describe(missing)})")
        if self._not_run:
            reasons.append(f"{self._not_run} of {self._tests} cases did not run")
        if self._missing:
            listed = ", ".join(self._missing[:_MAX_NAMED_CASES]) + (
                " ..." if len(self._missing) > _MAX_NAMED_CASES else ""
            )
            reasons.append(f"{len(self._missing)} of {self._suite_size} cases are in none of the runs: {listed}")
        return "; ".join(reasons)


def _with_run(opened: StoredRun) -> Iterator[tuple[Result, StoredRun]]:
    return ((result, opened) for result in opened.results)


def _ran(result: Result) -> bool:
    return result.score.verdict != "not_run" or result.score.quarantined


def _of_one(members: Sequence[tuple[Result, StoredRun]], *, disjoint: bool) -> Iterator[tuple[Result, StoredRun]]:
    """Yield the attempts at a case, each of the one run that made it; attempts that did not run are left out then.

    Args:
        members: the attempts of all runs, sorted like a run's files, each with its run.
        disjoint: whether no case may be in two runs, as with shards, not even one that did not run.

    Raises:
        MergeError: an attempt is in two runs.
    """
    for _, group in groupby(members, key=lambda each: None if disjoint else sort_key(each[0])):
        attempts = list(group)
        chosen = attempts if disjoint else [each for each in attempts if _ran(each[0])] or attempts[:1]
        runs = {id(opened): opened.run for _, opened in chosen}
        if len(runs) > 1:
            shard = [f" (shard {run.settings[SHARD]})" if SHARD in run.settings else "" for run in runs.values()]
            names = [f"run {run.run_id}{of}" for run, of in zip(runs.values(), shard, strict=True)]
            both = " and in ".join(names[:2])
            raise MergeError(f"{members[0][0].case.test_id} is in {both}; each case may be in one run only")
        yield from chosen
