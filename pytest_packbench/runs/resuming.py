"""Resuming a run: what its earlier sessions have stored, and whether it is still the same run."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import StoredRunError, pluralize
from pytest_packbench.model.result import KEPT, Result, result_of_record
from pytest_packbench.model.run import (
    Run,
    recorded_spending,
)
from pytest_packbench.runs.folder import (
    JOURNAL,
    LATEST,
    REPORT,
    WORKER_JOURNALS,
    is_run_id,
    stored_record,
)
from pytest_packbench.runs.journal import Entry, is_locked, last_attempts, lock_folder, read_journal
from pytest_packbench.runs.reading import open_run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.suite import Suite


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
