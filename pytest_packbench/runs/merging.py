"""Merging the shards of a run into one run."""

from __future__ import annotations

import heapq
import json
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import StoredRunError, first_of, pluralize
from pytest_packbench.model.run import (
    CAPS,
    MERGED_FROM,
    RECORD_PROMPTS,
    SPENT,
    TEST_TARGET_PREFIX,
    Run,
    Shard,
    join_sorted,
    recorded_spending,
    sum_spending,
)
from pytest_packbench.runs.folder import (
    LACKED,
    RECORDS,
)
from pytest_packbench.runs.reading import controls_of, open_run, sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.recording import ControlResult
    from pytest_packbench.model.report import StoredRun
    from pytest_packbench.model.result import Result


SHARD = "shard"
_PER_RUN_SETTINGS = frozenset({SHARD, MERGED_FROM, SPENT})
# they change no answer, or say what one run did
_MAY_DIFFER = _PER_RUN_SETTINGS | {"concurrency", *CAPS, RECORD_PROMPTS}
_MAX_REPEATED_CASES = 5


class MergeError(ValueError):
    """Runs cannot be merged; the message is one line with the runs and the reason."""


def missing_shards(runs: Sequence[Run]) -> list[Shard] | None:
    """Return which shards of a run are not there (`--packbench-shard I/N`); None if no run is a shard.

    Raises:
        MergeError: only some of the runs are shards, their shard counts differ, or a shard is there twice.
    """
    shards = {run.run_id: _shard_of(run) for run in runs}
    present = {shard for shard in shards.values() if shard is not None}
    if not present:
        return None
    counts = {shard.count for shard in present}
    if len(present) < len(runs) or len(counts) > 1:
        listed = ", ".join(f"run {run_id}: {shard or 'no shard'}" for run_id, shard in shards.items())
        raise MergeError(f"the runs are not the shards of one run, each passed once: {listed}")
    (count,) = counts
    return [shard for number in range(count) if (shard := Shard(number + 1, count)) not in present]


def _shard_of(run: Run) -> Shard | None:
    text = run.settings.get(SHARD)
    try:
        return None if text is None else Shard.parse(str(text))
    except ValueError as error:
        raise MergeError(f"run {run.run_id}: settings.shard: {error}") from None


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
    _check_same(runs, _shared)
    twice = next((before for before, after in pairwise(ids) if before == after), None)
    if twice is not None:
        raise MergeError(f"run {twice} is passed twice; pass each run once")
    with_cases = [run for run in runs if run.run_id not in empty] or runs
    _check_same(with_cases, _shared_with_cases)
    targets = {run.target for run in with_cases}
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
        target=join_sorted(
            {name for target in targets for name in target.split(", ")} if len(targets) > 1 else targets
        ),
        versions={name: join_sorted(values) for name, values in sorted(versions.items())},
        settings={**_joined_settings(with_cases), MERGED_FROM: ids},
    )


def _shared(run: Run) -> dict[str, Any]:
    """Return by name what all runs share."""
    return {name: getattr(run, name) for name in ("suite", "pack", "pack_version", "suite_sha256", "mode")}


def _shared_with_cases(run: Run) -> dict[str, Any]:
    """Return by name what all runs share that have cases: others know neither."""
    # the tests of the user may differ by shard
    targets = sorted(name for name in run.target.split(", ") if not name.startswith(TEST_TARGET_PREFIX))
    settings = {f"settings.{name}": value for name, value in run.settings.items() if name not in _MAY_DIFFER}
    return {"target without test functions": targets, "backend": run.backend, "model": run.model, **settings}


def _check_same(runs: Sequence[Run], shared: Callable[[Run], Mapping[str, Any]]) -> None:
    stated = [(run.run_id, shared(run)) for run in runs]
    for name in dict.fromkeys(name for _, values in stated for name in values):
        by_value: dict[str, str] = {}
        for run_id, values in stated:
            by_value.setdefault(json.dumps(values.get(name), sort_keys=True), run_id)
        if len(by_value) > 1:
            listed = ", ".join(f"{value} in run {run_id}" for value, run_id in by_value.items())
            raise MergeError(f"the runs do not belong together: {name} is {listed}")


def _joined_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings on which all runs agree, and what they spent together."""
    first, settings = runs[0].settings, [run.settings for run in runs]
    joined = {
        name: value
        for name, value in first.items()
        if name not in _PER_RUN_SETTINGS and all(each.get(name) == value for each in settings)
    }
    if any(RECORD_PROMPTS in each for each in settings):
        # what one run must not show, the page of all would
        joined.setdefault(RECORD_PROMPTS, False)
    spent = [each for each in map(recorded_spending, runs) if each is not None]
    if not spent or len(spent) < sum(SPENT in each for each in settings):
        return joined
    # what one run does not know of its own is not known of all
    unknown = {name: None for each in spent for name, value in each.items() if value is None}
    return {**joined, SPENT: sum_spending(spent) | unknown}


class Merge:
    """Merges runs into one, reading their results one by one. The order of the runs makes no difference.

    Args:
        folders: the folders of at least one run.
        run_id: the id of the merged run.

    Attributes:
        run: the metadata of the merged run.
        missing_shards: the shards of the run that are not merged; None if the runs are not shards.
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
        loosened = next((opened.run.run_id for opened in self._runs if opened.stated.policy_failed), None)
        if loosened is not None:
            raise MergeError(
                f"run {loosened} failed for its acceptance policy, which a merge does not compare; see its changes "
                "with packbench gate --policy-from BASE, allow or revert them, and run again"
            )
        empty = [opened.run.run_id for opened in self._runs if not opened.stated.totals.selected]
        self.run = merged_run(runs, run_id, empty=empty)
        self.missing_shards = missing_shards(runs)
        self.rerun = next((each.stated.rerun for each in self._runs if each.stated.totals.selected), "")
        self._missing: list[str] = []
        # whether all attempts at a case ran, by test id
        self._ran: dict[str, bool] = {}

    def results(
        self,
        case_ids: Sequence[str],
        absent: Callable[[str], Result],
        changed: Callable[[Result], str],
    ) -> Iterator[Result]:
        """Yield the results of all runs with their records and payloads, in the order of a run's files; once.

        Args:
            case_ids: the ids of all cases of the suite, sorted.
            absent: returns a result for a case that is in none of the shards; of other runs it is left out.
            changed: returns in one line why the suite is not the one of a result; empty if it is.

        Raises:
            MergeError: an attempt is in two runs, or the suite has changed.
            StoredRunError: a file of a run cannot be read, or a record is missing.
            OSError: a file cannot be read.
        """
        suite = (((case_id,), None, None) for case_id in case_ids)
        # a case of the suite comes before all attempts at it
        merged = heapq.merge(suite, *map(_by_key, self._runs), key=itemgetter(0))
        for case_id, members in groupby(merged, key=lambda each: each[0][0]):
            attempts = [(result, opened) for _, result, opened in members if result is not None and opened is not None]
            if not attempts:
                self._missing.append(case_id)
                yield from () if self.missing_shards is None else (self._noted(absent(case_id)),)
            runs = dict.fromkeys(opened.run.run_id for _, opened in attempts)
            if len(runs) > 1:
                both = " and in run ".join(runs)
                raise MergeError(f"{attempts[0][0].case.test_id} is in run {both}; each case may be in one run only")
            for result, opened in attempts:
                problem = changed(result)
                if problem:
                    raise MergeError(f"run {opened.run.run_id}: {problem}")
                if result.score.counted and result.record is None:
                    path, name = Path(opened.source).with_name(RECORDS), result.case.test_id
                    raise StoredRunError(f"{path}: the record of {name} {LACKED}")
                yield self._noted(result)

    def _noted(self, result: Result) -> Result:
        """Return a result whose case is counted, as one that ran if all attempts at it did."""
        name, has_run = result.case.test_id, result.score.verdict != "not_run" or result.score.quarantined
        self._ran[name] = self._ran.get(name, True) and has_run
        return result

    def controls(self) -> tuple[list[ControlResult], int]:
        """Return what the controls of all runs came to, and how many their suite had; of shards each is in one.

        Raises:
            StoredRunError: the file of a run is missing or invalid, or differs from the run's report.
            OSError: a file can't be read.
        """
        known = [tally for opened in self._runs if (tally := controls_of(opened)) is not None]
        return [result for tally in known for result in tally.results], sum(tally.counts.present for tally in known)

    @property
    def shards_text(self) -> str:
        """How many shards are not merged, and which."""
        missing = self.missing_shards or ()
        of = f"{len(missing)} of {missing[0].count}" if missing else "0"
        return f"{of} shards missing: {', '.join(map(str, missing))}"

    def partial(self) -> str:
        """Describe why the merged run is not complete, after its results were read; empty if it is complete."""
        reasons = [self.shards_text] if self.missing_shards else []
        idle, missing = sum(not ran for ran in self._ran.values()), len(self._missing)
        if idle:
            reasons.append(f"{idle} of {len(self._ran)} cases did not run")
        if missing:
            listed = ", ".join(first_of(self._missing, _MAX_REPEATED_CASES))
            reasons.append(f"{pluralize(missing, 'case')} of the suite in none of the runs: {listed}")
        return "; ".join(reasons)


def _by_key(opened: StoredRun) -> Iterator[tuple[tuple[Any, ...], Result, StoredRun]]:
    return ((sort_key(result), result, opened) for result in opened.results)
