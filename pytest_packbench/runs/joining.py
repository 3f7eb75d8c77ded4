"""Joining runs: the shards of a run merged into one, and a run resumed."""

from __future__ import annotations

import heapq
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import StoredRunError, first_of, pluralize
from pytest_packbench.model.result import KEPT, Result, result_of_record
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
    JOURNAL,
    LACKED,
    LATEST,
    RECORDS,
    REPORT,
    WORKER_JOURNALS,
    is_run_id,
    stored_record,
)
from pytest_packbench.runs.journal import Entry, is_locked, last_attempts, lock_folder, read_journal
from pytest_packbench.runs.reading import controls_of, open_run, sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.recording import ControlResult
    from pytest_packbench.model.report import StoredRun
    from pytest_packbench.model.suite import Suite


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


MISSING_CASE = "missing"
"""Instead of the hash of a case: the case no longer exists."""
_COMPARED_FIELDS = {
    "pack": "the pack",
    "pack_version": "the pack's version",
    "suite_sha256": "the suite's scoring rules",
    "mode": "the mode",
    "target": "the target",
    "backend": "the backend",
    "model": "the model",
}
_RECORDED_FIELDS = ("test_id", "case_id", "verdict", "trial", "score", "threshold", "case_sha256", "cassette_sha256")
"""What a result and its record both state."""
_COMPARED_SETTINGS = ("trials", "guards", "temperature", "shard")
_MAX_NAMED_CASES = 5
_WORKERS_END_S = 15.0
"""How long the workers of a killed controller may take to end, seconds."""
_POLL_S = 0.05
_NEW = "start a new run"
_EXPECTED = "latest, a run id, or the folder of a run, <output>/<suite>/<run id>"
_ADVICE = (
    "repeat the options of that run, start a new run, or set packbench_resume_changed = run to repeat what changed"
)


class ResumeError(ValueError):
    """A run cannot be resumed; the message is one line with the reason."""


@dataclass(slots=True)
class PriorResults:
    """What earlier sessions of a run left of one suite.

    Attributes:
        folder: the run's folder.
        run: the run's metadata; None if it ended before they were written, or if all results were discarded.
        attempts: all attempts, by case id and trial. Those that were scored are not repeated, and those whose target
            had ended are scored now. Others ended with an error or did not start: they are made again, but for
            quarantined cases, and reported for cases that are not selected in this session.
        worker_journals: journals of workers that results were read from.
        replaced: how many answers were discarded, because their case or the suite has changed.
    """

    folder: Path
    run: Run | None
    attempts: dict[str, dict[int, Entry]] = field(default_factory=dict)
    worker_journals: tuple[Path, ...] = ()
    replaced: int = 0

    @classmethod
    def of(
        cls, folder: Path, run: Run | None, entries: Iterable[Entry], worker_journals: Sequence[Path] = ()
    ) -> PriorResults:
        """Sort the attempts of a run by case and trial."""
        prior = cls(folder, run, worker_journals=tuple(worker_journals))
        for entry in entries:
            prior.add(entry)
        return prior

    def add(self, entry: Entry) -> None:
        """Add an attempt, or the result of one whose target had ended."""
        self.attempts.setdefault(entry.case.case_id, {})[entry.attempt.trial] = entry

    def entries(self) -> list[Entry]:
        """Return all attempts."""
        return [entry for trials in self.attempts.values() for entry in trials.values()]

    def kept(self, case_id: str) -> dict[int, Entry]:
        """Return the attempts at a case that are not repeated, by trial."""
        return {trial: entry for trial, entry in self.attempts.get(case_id, {}).items() if _is_kept(entry)}

    def was_scored_differently(self, case_id: str, sha256: str | None) -> bool:
        """Return whether an answer to a case belongs to another version of the case than the one with this hash."""
        return any(entry.case.case_sha256 != sha256 for entry in self.kept(case_id).values())

    def discard(self, case_id: str) -> None:
        """Discard all attempts at a case."""
        self.replaced += len(self.kept(case_id))
        self.attempts.pop(case_id, None)

    def clear(self) -> None:
        """Discard everything."""
        for case_id in [*self.attempts]:
            self.discard(case_id)
        self.run = None


def _is_kept(entry: Entry) -> bool:
    """Return whether the answer of an attempt is kept: it was scored, or its target had ended."""
    return not isinstance(entry, Result) or entry.score.verdict in KEPT


def _is_repeated(entry: Entry) -> bool:
    """Return whether an attempt is made again: it ended with an error or did not start."""
    return isinstance(entry, Result) and entry.score.verdict not in KEPT and not entry.score.quarantined


@dataclass(slots=True)
class ResumedRun:
    """The run that a session resumes.

    Attributes:
        run_id: its id.
        base: the folder of reports that contains it, as `--packbench-output` names it.
        prior: what earlier sessions left, by suite.
        rerun_changed: whether changed cases and suites are run again instead of refused.
        recording_sha256: returns the hash of the recording of a suite's case; None without a readable one. None in live
            and record mode, where scores do not depend on recordings.
        locks: descriptors that keep other sessions from resuming it at the same time.
    """

    run_id: str
    base: Path
    prior: dict[str, PriorResults]
    rerun_changed: bool
    recording_sha256: Callable[[Suite, str], str | None] | None
    locks: list[int] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder of the run of one of its suites."""
        return next(iter(self.prior.values())).folder

    def release(self) -> None:
        """Let other sessions resume the run."""
        while self.locks:
            with suppress(OSError):
                os.close(self.locks.pop())

    def require_rerun(self, suite: str, changes: Sequence[str]) -> None:
        """Raise unless changed cases and suites are to be run again.

        Raises:
            ResumeError: one line that names the changes.
        """
        if not self.rerun_changed:
            problem = f'run {self.run_id} of suite "{suite}" can\'t be resumed: {"; ".join(changes)}; {_ADVICE}'
            raise ResumeError(problem)

    def kept(self, suite: Suite, case_id: str, sha256: str | None) -> Mapping[int, Entry]:
        """Return the attempts at a case that are not repeated.

        Those at another version of the case than the one with this hash, or on another recording, are discarded.
        """
        prior = self.prior.get(suite.name)
        if prior is None:
            return {}
        if prior.was_scored_differently(case_id, sha256):
            prior.discard(case_id)
        kept = prior.kept(case_id)
        used = {entry.attempt.cassette_sha256 for entry in kept.values()} - {None}
        if not used or self.recording_sha256 is None:
            return kept
        now = self.recording_sha256(suite, case_id)
        for trial, entry in kept.items():
            if entry.attempt.cassette_sha256 not in {None, now}:
                del prior.attempts[case_id][trial]
        return prior.kept(case_id)

    def header_line(self, suite: str) -> str:
        """Describe for pytest's header what is kept of a suite."""
        prior = self.prior.get(suite)
        entries = prior.entries() if prior is not None else []
        repeated = sum(map(_is_repeated, entries))
        kept = f"{pluralize(sum(map(_is_kept, entries)), 'attempt')} kept"
        unfinished = f", {repeated} unfinished to repeat" if repeated else ""
        return f"packbench: suite {suite}: resuming run {self.run_id}: {kept}{unfinished}"


def find_resumed(
    requested: str,
    output: Path,
    suites: Collection[str],
    *,
    relative_to: Path,
    rerun_changed: bool,
    recording_sha256: Callable[[Suite, str], str | None] | None,
    is_worker: bool = False,
) -> ResumedRun:
    """Find the run to resume and read what it left.

    Args:
        requested: `latest`, a run id or the folder of a run.
        output: the folder of reports.
        suites: names of the suites that this session runs.
        relative_to: the folder that a relative path starts from.
        rerun_changed: see `ResumedRun`.
        recording_sha256: see `ResumedRun`.
        is_worker: whether another process of this session has resumed the run already.

    Raises:
        ResumeError: the run does not exist, is still running, or cannot be read.
    """
    base, run_id = _locate(requested, output, suites, relative_to)
    folders = {name: base / name / run_id for name in suites}
    existing = {name: folder for name, folder in folders.items() if folder.is_dir()}
    if not existing:
        raise ResumeError(f"no run {run_id} of {_suite_list(suites)} under {base}")
    resumed = ResumedRun(run_id, base, {}, rerun_changed, recording_sha256)
    try:
        # before anything is read: of several sessions, one resumes the run
        for folder in () if is_worker else existing.values():
            lock = lock_folder(folder)
            resumed.locks += [lock] if lock is not None else []
            if lock is None or _is_running(folder):
                raise ResumeError(f"run {run_id} is still running; wait until it ends, or stop it")
        resumed.prior = {name: _prior_results(folder, name) for name, folder in existing.items()}
    except (ValueError, OSError) as error:
        resumed.release()
        raise ResumeError(str(error)) from None
    return resumed


def _is_running(folder: Path) -> bool:
    """Return whether a process writes a run; workers whose controller was killed are waited for."""
    if is_locked(folder / JOURNAL):
        return True
    end = time.monotonic() + _WORKERS_END_S
    while any(map(is_locked, folder.glob(WORKER_JOURNALS))):
        if time.monotonic() >= end:
            return True
        time.sleep(_POLL_S)
    return False


def _locate(requested: str, output: Path, suites: Collection[str], relative_to: Path) -> tuple[Path, str]:
    """Return the folder of reports that contains the requested run, and the id of the run."""
    if requested == LATEST:
        return output, _last_resumable(output, suites)
    if is_run_id(requested):
        return output, requested
    folder = Path(os.path.normpath(relative_to / requested))
    # `bundled/x` before `x`
    for suite in sorted(suites, key=len, reverse=True):
        output = Path(*folder.parts[: -len(Path(suite).parts) - 1])
        if output / suite == folder.parent and is_run_id(folder.name):
            return output, folder.name
    raise ResumeError(f'"{requested}" is no run of {_suite_list(suites)}; expected {_EXPECTED}')


def _last_resumable(output: Path, suites: Collection[str]) -> str:
    """Return the id of the last run that was killed; without one, that of the last run."""
    paths = (path for name in suites for path in (output / name).glob("*/") if is_run_id(path.name))
    folders = sorted(paths, key=lambda path: path.name, reverse=True)
    if not folders:
        raise ResumeError(f"no run of {_suite_list(suites)} under {output}")
    killed = (folder for folder in folders if (folder / JOURNAL).exists() or not (folder / REPORT).exists())
    return next(killed, folders[0]).name


def _suite_list(suites: Collection[str]) -> str:
    return f"suite {', '.join(suites)}"


def _prior_results(folder: Path, suite: str) -> PriorResults:
    """Read what a run left: its journal if it was killed, otherwise its report, records and payloads."""
    journal = folder / JOURNAL
    if journal.exists():
        return _from_journal(journal, suite)
    if not (folder / REPORT).exists():
        # a run may be killed before it writes anything
        return PriorResults.of(folder, None, ())
    stored = open_run(folder, complete=True)
    prior = PriorResults.of(folder, stored.run, stored.results)
    for result in prior.entries():
        if isinstance(result, Result) and result.score.counted and result.record is None:
            raise StoredRunError(f"{folder}: the report counts {result.case.test_id}, but it has no record")
    return prior


def _from_journal(journal: Path, suite: str) -> PriorResults:
    folder = journal.parent
    worker_journals = sorted(folder.glob(WORKER_JOURNALS))
    run, own = read_journal(journal)
    journals = [*(read_journal(path)[1] for path in worker_journals), own]
    for entry in chain.from_iterable(journals):
        if run is None:
            raise StoredRunError(f"{journal}:1: the header is missing; {_NEW}")
        problem = _problem(entry) if entry.case.suite == suite else f'belongs to the suite "{entry.case.suite}"'
        if problem:
            name = entry.case.test_id if isinstance(entry, Result) else f"case {entry.case.case_id}"
            raise StoredRunError(f"{journal}: the result of {name}: {problem}; {_NEW}")
    # an attempt may be in the controller's journal and in that of the worker that made it
    return PriorResults.of(folder, run, last_attempts(journals), worker_journals)


def _problem(entry: Entry) -> str:
    """Return why a result of a journal can't be reported; empty if its record is valid and states the same."""
    if not isinstance(entry, Result):
        return ""
    if entry.record is None:
        return "has a score and no record" if entry.score.counted else ""
    try:
        recorded = result_of_record(stored_record(json.dumps(entry.record))).row()
    except (ValueError, RecursionError) as error:
        return str(error)
    row = entry.row()
    return next((f"its record has another {name}" for name in _RECORDED_FIELDS if recorded[name] != row[name]), "")


def check_unchanged(resumed: ResumedRun, now: Run, case_sha256: Callable[[str], str | None]) -> None:
    """Compare the resumed run of a suite with the run that this session would start.

    Args:
        resumed: the run; prior results that no longer apply are discarded from it.
        now: the suite's run as this session would start it.
        case_sha256: returns the hash of a case now; None if it can't be read, `MISSING_CASE` if it no longer exists.

    Raises:
        ResumeError: something has changed, and changed cases and suites are not to be run again.
    """
    prior = resumed.prior.get(now.suite)
    if prior is None or prior.run is None:
        return
    old, new = _compared(prior.run), _compared(now)
    changes = [f"{what} changed (from {old[what]} to {value})" for what, value in new.items() if old[what] != value]
    if changes:
        resumed.require_rerun(now.suite, changes)
        prior.clear()
    hashes = {case_id: case_sha256(case_id) for case_id in prior.attempts}
    changed = {case_id: sha256 for case_id, sha256 in hashes.items() if prior.was_scored_differently(case_id, sha256)}
    if changed:
        named = list(changed.items())[:_MAX_NAMED_CASES]
        how = [f"case {name} {'no longer exists' if sha256 == MISSING_CASE else 'changed'}" for name, sha256 in named]
        resumed.require_rerun(now.suite, how)
    for case_id, sha256 in hashes.items():
        if case_id in changed or sha256 == MISSING_CASE:
            prior.discard(case_id)


def _compared(run: Run) -> dict[str, Any]:
    """Return what the results of two sessions must share to be comparable."""
    settings = {"trials": 1, "guards": [], **run.settings}
    fields = {what: getattr(run, name) for name, what in _COMPARED_FIELDS.items()}
    return {**fields, **{name: settings.get(name) for name in _COMPARED_SETTINGS}}


def prior_spending(resumed: ResumedRun) -> dict[str, Any] | None:
    """Return what earlier sessions used, as reported; all suites of a session report the same."""
    reported = (recorded_spending(prior.run) for prior in resumed.prior.values() if prior.run is not None)
    return next((spent for spent in reported if spent is not None), None)


def fill_missing_trials(known: Mapping[int, Result], template: Result, trials: int) -> tuple[Result, ...]:
    """Return the results of a case for which the session did not make all trials, sorted by trial.

    Args:
        known: attempts that were made, by trial.
        template: a result with the reason why a trial was not made; copied for each missing trial, and once where no
            attempt is known.
        trials: how many trials are due, 1 or more.
    """
    missing = [trial for trial in range(trials) if trial not in known]
    added = [
        replace(template, attempt=replace(template.attempt, trial=trial))
        for trial in (missing if known else missing[:1])
    ]
    return tuple(sorted((*known.values(), *added), key=lambda result: result.attempt.trial))
