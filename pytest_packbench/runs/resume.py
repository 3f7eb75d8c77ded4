"""Going on with a run that was begun: what is kept of it, what changed since, and what is missing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.checks import own_problem
from pytest_packbench.model.record import EvalRecord, RecordError
from pytest_packbench.model.text import pluralize
from pytest_packbench.runs.folder import JOURNAL, LATEST, REPORT, WORKER_JOURNALS, StoredRunError, is_run_id
from pytest_packbench.runs.journal import JournalError, is_held, latest, read_head, read_journal
from pytest_packbench.runs.lines import ResultFiles
from pytest_packbench.runs.metadata import spent_of_run
from pytest_packbench.runs.report import open_report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite

GONE = "gone"
"""In the place of a case's hash: there is no such case any more."""
_DONE = frozenset({"passed", "failed", "known_hole"})
_FACTS = {
    "pack": "the pack",
    "pack_version": "the pack's version",
    "suite_sha256": "the suite's scoring rules",
    "mode": "the mode",
    "target": "the target",
    "backend": "the backend",
    "model": "the model",
}
_SETTINGS = ("trials", "guards", "temperature", "shard")
_DEFAULTS: dict[str, Any] = {"trials": 1, "guards": []}
_MOST_NAMED = 5
_EXPECTED = "latest, a run's id or its folder"
_ADVICE = "start a new run, or set packbench_resume_changed = run to run anew what changed"


class ResumeError(ValueError):
    """A run can't be resumed: one line that says why."""


@dataclass(slots=True)
class Kept:
    """What is kept of one suite.

    Attributes:
        folder: the run's folder.
        run: what is true of the run; None where it died before that was written, or nothing of it is kept.
        entries: what need not be run again, by case id and trial.
        again: how many attempts broke or were not begun and are made again.
        broken: such attempts, by case id and trial, those of quarantined cases among them: what is said of a case that
            is not selected now.
        parts: journals of workers that what is kept was read from.
    """

    folder: Path
    run: Run | None
    entries: dict[str, dict[int, CaseResult]] = field(default_factory=dict)
    again: int = 0
    broken: dict[str, dict[int, CaseResult]] = field(default_factory=dict)
    parts: tuple[Path, ...] = ()

    @classmethod
    def of(cls, folder: Path, run: Run | None, found: Iterable[CaseResult], parts: Sequence[Path] = ()) -> Kept:
        """Sort what a run has: what was scored is kept, what broke or was not begun is tried again."""
        kept = cls(folder, run, parts=tuple(parts))
        for entry in found:
            if entry.verdict in _DONE:
                kept.entries.setdefault(entry.case_id, {})[entry.trial] = entry
            else:
                kept.broken.setdefault(entry.case_id, {})[entry.trial] = entry
                kept.again += not entry.quarantined
        return kept

    def all_entries(self) -> list[CaseResult]:
        """Give all that is kept."""
        return [entry for trials in self.entries.values() for entry in trials.values()]

    def broken_entries(self) -> list[CaseResult]:
        """Give all attempts that broke or were not begun."""
        return [entry for trials in self.broken.values() for entry in trials.values()]

    def is_of_another(self, case_id: str, sha256: str | None) -> bool:
        """Whether what is kept of a case was scored on another one than the case of this hash."""
        return any(entry.case_sha256 != sha256 for entry in self.entries.get(case_id, {}).values())

    def forget(self, case_id: str) -> None:
        """Keep nothing of a case."""
        self.entries.pop(case_id, None)
        self.broken.pop(case_id, None)

    def drop_all(self) -> None:
        """Keep nothing."""
        self.entries.clear()
        self.broken.clear()
        self.run = None


@dataclass(slots=True)
class Resumed:
    """The run that a session goes on with.

    Attributes:
        run_id: its id.
        base: the folder of reports that it lies in, as `--packbench-output` names it.
        kept: what is kept, by suite.
        anew: whether what changed is run anew instead of refused.
        recording_sha256: gives the hash of the recording of a suite's case; None where none can be read.
        dropped: suites of which nothing is kept, for their rules or what runs them have changed.
    """

    run_id: str
    base: Path
    kept: dict[str, Kept]
    anew: bool
    recording_sha256: Callable[[Suite, str], str | None]
    dropped: list[str] = field(default_factory=list)
    _looked_at: set[tuple[str, str]] = field(default_factory=set)

    def for_worker(self) -> dict[str, Any]:
        """Give what a worker of xdist needs to know of it."""
        return {"folder": str(next(iter(self.kept.values())).folder), "dropped": self.dropped}

    def change(self, suite: str, what: Sequence[str]) -> None:
        """Refuse to go on, unless what changed is to be run anew.

        Raises:
            ResumeError: one line that names what changed.
        """
        if not self.anew:
            raise ResumeError(self.refusal(suite, what))

    def refusal(self, suite: str, what: Sequence[str]) -> str:
        """Say what changed."""
        return f'run {self.run_id} of suite "{suite}" can\'t be resumed: {"; ".join(what)}; {_ADVICE}'

    def trials(self, suite: Suite, case_id: str) -> Mapping[int, CaseResult]:
        """Give the trials of a case that need not be made again: none that was scored on another recording."""
        kept = self.kept.get(suite.name)
        found = kept.entries.get(case_id) if kept is not None else None
        if kept is None or found is None:
            return {}
        if (suite.name, case_id) not in self._looked_at:
            self._looked_at.add((suite.name, case_id))
            hashes = {entry.cassette_sha256 for entry in found.values()} - {None}
            if hashes and hashes != {self.recording_sha256(suite, case_id)}:
                del kept.entries[case_id]
                return {}
        return found

    def told(self, suite: str) -> str:
        """Say for the header what is kept."""
        kept = self.kept.get(suite)
        count = len(kept.all_entries()) if kept is not None else 0
        again = f", {kept.again} broken or not begun are made again" if kept is not None and kept.again else ""
        return f"packbench: suite {suite}: resuming run {self.run_id}: {pluralize(count, 'attempt')} kept{again}"


def find_resumed(
    asked: str,
    output: Path,
    suites: Collection[str],
    *,
    home: Path,
    anew: bool,
    recording_sha256: Callable[[Suite, str], str | None],
    shared: bool = False,
) -> Resumed:
    """Find and read the run that is to be resumed.

    Args:
        asked: `latest`, a run's id or its folder.
        output: the folder of reports.
        suites: names of the suites that are run.
        home: the folder from which a path is meant.
        anew: whether what changed is run anew instead of refused.
        recording_sha256: see `Resumed`.
        shared: whether another process of this session goes on with it already.

    Raises:
        ResumeError: there is no such run, it is under way, or it can't be read.
    """
    base, run_id = _place(asked, output, suites, home)
    folders = {name: base / name / run_id for name in suites}
    found = {name: folder for name, folder in folders.items() if folder.is_dir()}
    if not found:
        raise ResumeError(f"no run {run_id} of {_listed(suites)} under {base}")
    if not shared and any(is_held(folder / JOURNAL) for folder in found.values()):
        raise ResumeError(f"run {run_id} is still running; wait for it or end it first")
    try:
        kept = {name: _kept(folder) for name, folder in found.items()}
    except (StoredRunError, JournalError, OSError) as error:
        raise ResumeError(str(error)) from None
    return Resumed(run_id, base, kept, anew, recording_sha256)


def _place(asked: str, output: Path, suites: Collection[str], home: Path) -> tuple[Path, str]:
    """Find the folder of reports that a run lies in, and its id."""
    if asked == LATEST:
        return output, _last(output, suites)
    if os.sep not in asked and "/" not in asked:
        if not is_run_id(asked):
            raise ResumeError(f'"{asked}" is no run; expected {_EXPECTED}')
        return output, asked
    path = Path(os.path.normpath(home / asked))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise ResumeError(f"no run at {path}; expected {_EXPECTED}")
    if folder.parent.name not in suites or not is_run_id(folder.name):
        raise ResumeError(f"{folder} is no run of {_listed(suites)}; expected <output>/<suite>/<run id>")
    return folder.parent.parent, folder.name


def _last(output: Path, suites: Collection[str]) -> str:
    """Find the last run that can be gone on with; where there is none the last one."""
    runs = sorted(
        (path for name in suites if (output / name).is_dir() for path in (output / name).iterdir()),
        key=lambda path: path.name,
        reverse=True,
    )
    folders = [path for path in runs if path.is_dir() and is_run_id(path.name)]
    if not folders:
        raise ResumeError(f"no run of {_listed(suites)} under {output}")
    return next((folder.name for folder in folders if _may_go_on(folder)), folders[0].name)


def _may_go_on(folder: Path) -> bool:
    """Whether a run has something to resume: it died, or attempts broke or were not begun."""
    try:
        if (folder / JOURNAL).exists() or not (folder / REPORT).exists():
            return True
        report = open_report(folder)
        return report.status != "passed" and any(
            entry.verdict not in _DONE and not entry.quarantined for entry in report.entries
        )
    except (StoredRunError, OSError):
        return False


def _listed(suites: Collection[str]) -> str:
    return f"suite {', '.join(suites)}"


def _kept(folder: Path) -> Kept:
    """Read what a run has so far: its journal where it died, else its report, records and payloads."""
    journal = folder / JOURNAL
    if journal.exists():
        return _from_journal(journal)
    # it may have died before it wrote anything
    return _from_report(folder) if (folder / REPORT).exists() else Kept.of(folder, None, ())


def _from_journal(journal: Path) -> Kept:
    folder = journal.parent
    run = read_head(journal)
    parts = sorted(folder.glob(WORKER_JOURNALS))
    found = [entry for path in (*parts, journal) for entry in read_journal(path)]
    if run is None and found:
        raise StoredRunError(f"{journal}: its first line does not tell what was run; start a new run")
    for entry in found:
        _check(entry, folder, journal)
    # the same attempt may stand in the journal of the worker that made it, too
    return Kept.of(folder, run, latest(sorted(found, key=lambda entry: entry.timestamp)), parts)


def _check(entry: CaseResult, folder: Path, journal: Path) -> None:
    """See that an entry of a journal can stand in the run's reports: it is of the suite, and its record is one."""
    record, wrong = entry.record, ""
    if entry.suite != folder.parent.name:
        wrong = f'is of the suite "{entry.suite}"'
    elif record is None:
        wrong = "was scored and has no record" if entry.counted else ""
    else:
        try:
            wrong = own_problem(EvalRecord.from_json_line(json.dumps(record), strict=False).packbench or {}) or ""
        except RecordError as error:
            wrong = str(error)
    if wrong:
        raise StoredRunError(f"{journal}: the entry of {entry.test_id}: {wrong}; start a new run")


def _from_report(folder: Path) -> Kept:
    report, files = open_report(folder), ResultFiles(folder)
    found = []
    for entry in report.entries:
        result = files.complete(entry)
        if result.counted and result.record is None:
            raise StoredRunError(f"{folder}: no record of {result.test_id}, which its report counts")
        found.append(result)
    files.end()
    return Kept.of(folder, report.run, found)


def check_unchanged(resumed: Resumed, now: Run, case_sha256: Callable[[CaseResult], str | None]) -> None:
    """Compare a suite's run as it was begun with what this session would make of it.

    Args:
        resumed: what changed is refused, or nothing of it is kept.
        now: the run of the suite as this session would make it.
        case_sha256: gives the hash of the case that a result tells of, as it is today; None where it can't be read,
            `GONE` where there is none any more.

    Raises:
        ResumeError: they are not the same, and what changed is not to be run anew.
    """
    kept = resumed.kept.get(now.suite)
    if kept is None or kept.run is None:
        return
    changed = _differences(kept.run, now)
    if changed:
        resumed.change(now.suite, changed)
        kept.drop_all()
        resumed.dropped.append(now.suite)
    known = {**kept.broken, **kept.entries}
    hashes = {case_id: case_sha256(next(iter(trials.values()))) for case_id, trials in known.items()}
    gone = [case_id for case_id, sha256 in hashes.items() if sha256 == GONE]
    missed = [case_id for case_id in gone if case_id in kept.entries]
    if missed:
        resumed.change(now.suite, [f"{named(missed)}: no such case any more"])
    others = [case_id for case_id, sha256 in hashes.items() if sha256 != GONE and kept.is_of_another(case_id, sha256)]
    if others:
        resumed.change(now.suite, [f"{named(others)} changed"])
    for case_id in (*gone, *others):
        kept.forget(case_id)


def _differences(before: Run, now: Run) -> list[str]:
    """Name what makes the results of two sessions results of different things; nothing where it can be resumed."""
    told = []
    for name, words in _FACTS.items():
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            values = "" if name == "suite_sha256" else f" ({was or 'none'}, now {is_now or 'none'})"
            told.append(f"{words} changed{values}")
    for name in _SETTINGS:
        was, is_now = (run.settings.get(name, _DEFAULTS.get(name)) for run in (before, now))
        if was != is_now:
            told.append(f"{name} changed ({_shown(was)}, now {_shown(is_now)})")
    return told


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def named(case_ids: Sequence[str]) -> str:
    """Name cases; of many the first ones."""
    more = len(case_ids) - _MOST_NAMED
    return f"case {', '.join(case_ids[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def spent_of(resumed: Resumed) -> dict[str, Any] | None:
    """Give what earlier sessions used, as their report tells it; all suites of a session tell the same."""
    told = (spent_of_run(kept.run) for kept in resumed.kept.values() if kept.run is not None)
    return next((spent for spent in told if spent is not None), None)


def filled_up(
    known: Mapping[int, CaseResult], told: CaseResult, trials: int, *, once: bool = False
) -> tuple[CaseResult, ...]:
    """Give the results of a case of which the session did not make all trials.

    Args:
        known: attempts at it that were made, by trial.
        told: says of a trial why it was not made.
        trials: how many are due, 1 or more.
        once: whether `told` stands for the first missing trial alone, as always where nothing is known.
    """
    missing = [trial for trial in range(trials) if trial not in known]
    others = [replace(told, trial=trial) for trial in (missing[:1] if once or not known else missing)]
    return tuple(sorted((*known.values(), *others), key=lambda result: result.trial))
