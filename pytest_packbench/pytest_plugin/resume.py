"""Cases that no report told of, because the session ended early or a worker died: what is known of them all the same.

An attempt that was made stays made: it stands in a journal, or an earlier session of the run left it.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench.cases.files import find_in, parted, sha256_at
from pytest_packbench.cases.load import load_cassette
from pytest_packbench.engine.results import clock, unscored
from pytest_packbench.engine.trial import kept_trial
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.runs.files import is_held
from pytest_packbench.runs.journal import JournalError, read_journal
from pytest_packbench.runs.resume import PARTS, Begun, differences, is_unfinished, read_begun, spent_before
from pytest_packbench.runs.stored import JOURNAL, StoredRunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.engine.results import Place
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.case_run import CaseRun
    from pytest_packbench.pytest_plugin.suites import SessionSuites


if TYPE_CHECKING:
    Trials = Mapping[int, CaseResult]


def of_workers(folder: Path) -> dict[str, dict[int, CaseResult]]:
    """Read what workers of xdist finished, by node id and trial; what can't be read is left out.

    Args:
        folder: the run's folder, where their journals lie.
    """
    found: dict[str, dict[int, CaseResult]] = {}
    for part in sorted(folder.glob(PARTS)):
        with suppress(OSError, JournalError):
            for entry in read_journal(part):
                found.setdefault(entry.nodeid, {})[entry.trial] = entry
    return found


def not_reached(place: Place, known: Trials, trials: int, stopped: str) -> tuple[CaseResult, ...]:
    """Give the entries of a case that the session did not come to.

    Args:
        place: where the case stands.
        known: attempts at it that were made, by trial.
        trials: how many are due, 1 or more.
        stopped: `interrupted` or `stopped`.

    Returns:
        What is known, and one entry `not_run` for each trial that is missing; one alone where nothing is known.
    """
    message = f"not run: the session was {stopped}{'' if stopped == 'interrupted' else ' early'}"
    idle = unscored(place, "not_run", stopped, message, timestamp=clock(time.time_ns()))
    missing = [trial for trial in range(trials) if trial not in known] if known else [0]
    return _together(known, *(replace(idle, trial=trial) for trial in missing))


def crashed(entry: CaseResult, known: Trials, trials: int) -> tuple[CaseResult, ...]:
    """Give the entries of a case whose worker died.

    Args:
        entry: says that it died.
        known: attempts that it had finished, by trial.
        trials: how many are due, 1 or more.

    Returns:
        What is known, and `entry` as the first trial that is not.
    """
    missing = next((trial for trial in range(trials) if trial not in known), None)
    return _together(known, *(() if missing is None else (replace(entry, trial=missing),)))


def kept_before(place: Place, known: Trials) -> dict[int, CaseResult]:
    """Take what an earlier session of the run left of a case, unless the case is another one now."""
    now = place.loaded.sha256 if place.loaded is not None else None
    same = {trial: entry for trial, entry in known.items() if entry.case_sha256 == now}
    return {trial: kept_trial(entry, place).result for trial, entry in same.items()}


def _together(known: Trials, *others: CaseResult) -> tuple[CaseResult, ...]:
    return tuple(sorted((*known.values(), *others), key=lambda entry: entry.trial))


LATEST = "latest"
REFUSED = "packbench_refused"
OPTION = "--packbench-resume"
_MOST_NAMED = 5
_GONE = "gone"
_RUN_ID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
_EXPECTED = "latest, a run's id or its folder"
_ADVICE = "start a new run, or set packbench_resume_changed = run to run anew what changed"


@dataclass(slots=True)
class Kept:
    """What is kept of one suite.

    Attributes:
        folder: the run's folder.
        run: what is true of the run; None where it died before that was written, or nothing of it is kept.
        entries: what need not be run again, by case id and trial.
        again: attempts that broke or were not begun.
        broken: those attempts, by case id and trial: what is said of a case that is not selected now.
        parts: journals of workers that what is kept was read from.
    """

    folder: Path
    run: Run | None
    entries: dict[str, dict[int, CaseResult]]
    again: int
    broken: dict[str, dict[int, CaseResult]] = field(default_factory=dict)
    parts: tuple[Path, ...] = ()
    _looked_at: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, folder: Path, begun: Begun) -> Kept:
        """Sort what a run has by case."""
        return cls(folder, begun.run, _by_case(begun.entries), begun.again, _by_case(begun.broken), begun.parts)

    def all_entries(self) -> list[CaseResult]:
        """Give all that is kept."""
        return [entry for trials in self.entries.values() for entry in trials.values()]

    def broken_entries(self) -> list[CaseResult]:
        """Give all attempts that broke or were not begun."""
        return [entry for trials in self.broken.values() for entry in trials.values()]

    def each(self) -> dict[str, CaseResult]:
        """Give one entry of each case that something is known of, by the case's id."""
        return {case_id: next(iter(found.values())) for case_id, found in {**self.broken, **self.entries}.items()}

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

    def trials(self, suite: Suite, case_id: str) -> Mapping[int, CaseResult]:
        """Give what is kept of a case; nothing that was scored on another recording than today's."""
        found = self.entries.get(case_id)
        if found is None:
            return {}
        if case_id not in self._looked_at:
            self._looked_at.add(case_id)
            hashes = {entry.cassette_sha256 for entry in found.values()} - {None}
            if hashes and hashes != {_recording_sha256(suite, case_id)}:
                del self.entries[case_id]
                return {}
        return found


@dataclass(slots=True)
class Resumed:
    """The run that a session goes on with.

    Attributes:
        run_id: its id.
        base: the folder of reports that it lies in, as `--packbench-output` names it.
        kept: what is kept, by suite.
        anew: whether what changed is run anew instead of refused.
        dropped: suites of which nothing is kept, for their rules or what runs them have changed.
    """

    run_id: str
    base: Path
    kept: dict[str, Kept]
    anew: bool
    dropped: list[str] = field(default_factory=list)

    def for_worker(self) -> dict[str, Any]:
        """Give what a worker of xdist needs to know of it."""
        return {"folder": str(next(iter(self.kept.values())).folder), "dropped": self.dropped}

    def change(self, suite: str, what: Sequence[str]) -> None:
        """Refuse to go on, unless what changed is to be run anew.

        Raises:
            pytest.UsageError: one line that names what changed.
        """
        if not self.anew:
            raise pytest.UsageError(self.refusal(suite, what))

    def refusal(self, suite: str, what: Sequence[str]) -> str:
        """Say what changed."""
        return f'{OPTION}: run {self.run_id} of suite "{suite}" can\'t be resumed: {"; ".join(what)}; {_ADVICE}'

    def trials(self, suite: Suite, case_id: str) -> Mapping[int, CaseResult]:
        """Give the trials of a case that need not be made again."""
        kept = self.kept.get(suite.name)
        return {} if kept is None else kept.trials(suite, case_id)

    def told(self, suite: str) -> str:
        """Say for the header what is kept."""
        kept = self.kept.get(suite)
        count = len(kept.all_entries()) if kept is not None else 0
        again = f", {kept.again} broken or not begun are made again" if kept is not None and kept.again else ""
        attempts = f"{count} attempt{'' if count == 1 else 's'}"
        return f"packbench: suite {suite}: resuming run {self.run_id}: {attempts} kept{again}"


def find_resumed(config: pytest.Config, benches: SessionSuites) -> Resumed | None:
    """Find and read the run that is to be resumed; None where none is.

    Raises:
        pytest.UsageError: there is no such run, or it can't be read.
    """
    asked = benches.settings.resume
    if not asked:
        return None
    # a worker of xdist must not look for the latest run itself
    told = getattr(config, "workerinput", {}).get(OPTION, {})
    base, run_id = _place(told.get("folder", asked), benches)
    folders = {name: base / name / run_id for name in benches.suites}
    found = {name: folder for name, folder in folders.items() if folder.is_dir()}
    if not found:
        raise pytest.UsageError(f"{OPTION}: no run {run_id} of {_listed(benches)} under {base}")
    if not told and any(is_held(folder / JOURNAL) for folder in found.values()):
        raise pytest.UsageError(f"{OPTION}: run {run_id} is still running; wait for it or end it first")
    try:
        kept = {name: Kept.of(folder, read_begun(folder)) for name, folder in found.items()}
    except (StoredRunError, JournalError, OSError) as error:
        raise pytest.UsageError(f"{OPTION}: {error}") from None
    for name in told.get("dropped", ()):
        if name in kept:
            kept[name].drop_all()
    return Resumed(run_id, base, kept, benches.settings.resume_changed == "run")


def check_run(config: pytest.Config, resumed: Resumed, suite: str, now: Run) -> None:
    """Compare a suite's run as it was begun with what this session would make of it.

    Raises:
        pytest.UsageError: they are not the same, and what changed is not to be run anew.
    """
    kept = resumed.kept.get(suite)
    if kept is None or kept.run is None:
        return
    changed = differences(kept.run, now)
    if changed:
        resumed.change(suite, changed)
        kept.drop_all()
        resumed.dropped.append(suite)
    hashes = {case_id: _now(config, one) for case_id, one in kept.each().items()}
    gone = [case_id for case_id, now in hashes.items() if now == _GONE]
    missed = [case_id for case_id in gone if case_id in kept.entries]
    if missed:
        resumed.change(suite, [f"{_named(missed)}: no such case any more"])
    changed = [case_id for case_id, now in hashes.items() if now != _GONE and kept.is_of_another(case_id, now)]
    if changed:
        resumed.change(suite, [f"{_named(changed)} changed"])
    for case_id in (*gone, *changed):
        kept.forget(case_id)


class Changes:
    """Looks at the cases that were collected: none may have changed since it was scored."""

    def __init__(self, resumed: Resumed) -> None:
        self._resumed = resumed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse, or forget, what was scored on another case than today's."""
        for suite, kept in self._resumed.kept.items():
            runs = [run for item in session.items if (run := run_of(item)) is not None and not run.own_test]
            due = [run for run in runs if run.suite.name == suite]
            changed = [run.name for run in due if _is_changed(run, kept.entries.get(run.name, {}).values())]
            if changed and not self._resumed.anew:
                _refuse(session.config, self._resumed.refusal(suite, [f"{_named(changed)} changed"]))
            for case_id in changed:
                kept.forget(case_id)


def spent_of(resumed: Resumed) -> dict[str, Any] | None:
    """Give what earlier sessions used, as their report tells it; all suites of a session tell the same."""
    told = (spent_before(kept.run) for kept in resumed.kept.values() if kept.run is not None)
    return next((spent for spent in told if spent is not None), None)


def _place(asked: str, benches: SessionSuites) -> tuple[Path, str]:
    output = benches.settings.output
    if asked == LATEST:
        return output, _latest(output, benches)
    if os.sep not in asked and "/" not in asked:
        if not _RUN_ID.fullmatch(asked):
            raise pytest.UsageError(f'{OPTION}: "{asked}" is no run; expected {_EXPECTED}')
        return output, asked
    path = Path(os.path.normpath(benches.settings.home / asked))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise pytest.UsageError(f"{OPTION}: no run at {path}; expected {_EXPECTED}")
    if folder.parent.name not in benches.suites or not _RUN_ID.fullmatch(folder.name):
        raise pytest.UsageError(
            f"{OPTION}: {folder} is no run of {_listed(benches)}; expected <output>/<suite>/<run id>"
        )
    return folder.parent.parent, folder.name


def _latest(output: Path, benches: SessionSuites) -> str:
    runs = sorted(
        (path for name in benches.suites if (output / name).is_dir() for path in (output / name).iterdir()),
        key=lambda path: path.name,
        reverse=True,
    )
    folders = [path for path in runs if path.is_dir() and _RUN_ID.fullmatch(path.name)]
    if not folders:
        raise pytest.UsageError(f"{OPTION}: no run of {_listed(benches)} under {output}")
    return next((folder.name for folder in folders if _may_go_on(folder)), folders[0].name)


def _may_go_on(folder: Path) -> bool:
    try:
        return is_unfinished(folder)
    except (StoredRunError, OSError):
        return False


def _listed(benches: SessionSuites) -> str:
    return f"suite {', '.join(benches.suites)}"


def _named(case_ids: Sequence[str]) -> str:
    more = len(case_ids) - _MOST_NAMED
    return f"case {', '.join(case_ids[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def _by_case(entries: Iterable[CaseResult]) -> dict[str, dict[int, CaseResult]]:
    found: dict[str, dict[int, CaseResult]] = {}
    for entry in entries:
        found.setdefault(entry.case_id, {})[entry.trial] = entry
    return found


def _now(config: pytest.Config, entry: CaseResult) -> str | None:
    """Give the hash of the case that an entry tells of, as it is today.

    Returns:
        `_GONE` where there is none any more; None where it can't be read.
    """
    if entry.file.startswith("bundled:"):
        return entry.case_sha256
    file = parted(entry.file)[0]
    place = find_in(str(config.rootpath / file), entry.case_id)
    return _GONE if place is None else sha256_at(place)


def _is_changed(run: CaseRun, entries: Iterable[CaseResult]) -> bool:
    now = run.loaded.sha256 if run.loaded is not None and not run.problem else None
    return any(entry.case_sha256 != now for entry in entries)


def _refuse(config: pytest.Config, message: str) -> NoReturn:
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is None:
        raise pytest.UsageError(message)
    # only the process that the user started can speak: the controller says it
    output[REFUSED] = message
    pytest.exit(message, returncode=int(pytest.ExitCode.USAGE_ERROR))


def _recording_sha256(suite: Suite, case_id: str) -> str | None:
    path = suite.cassette_path(case_id)
    try:
        return load_cassette(path, source=path.name)[1]
    except (OSError, CassetteError):
        return None
