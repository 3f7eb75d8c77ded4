"""Cases that no report told of, because the session ended early or a worker died: what is known of them all the same.

An attempt that was made stays made: it stands in a journal, or an earlier session of the run left it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_packbench.adapter.tried import tried_before
from pytest_packbench.engine.entries import clock, unscored
from pytest_packbench.records.journal import JournalError, read_journal
from pytest_packbench.records.resume import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.engine.entries import Place
    from pytest_packbench.records.entry import Entry

    Trials = Mapping[int, Entry]


def of_workers(folder: Path) -> dict[str, dict[int, Entry]]:
    """Read what workers of xdist finished, by node id and trial; what can't be read is left out.

    Args:
        folder: the run's folder, where their journals lie.
    """
    found: dict[str, dict[int, Entry]] = {}
    for part in sorted(folder.glob(PARTS)):
        with suppress(OSError, JournalError):
            for entry in read_journal(part):
                found.setdefault(entry.nodeid, {})[entry.trial] = entry
    return found


def not_reached(place: Place, known: Trials, trials: int, stopped: str) -> tuple[Entry, ...]:
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


def crashed(entry: Entry, known: Trials, trials: int) -> tuple[Entry, ...]:
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


def kept_before(place: Place, known: Trials) -> dict[int, Entry]:
    """Take what an earlier session of the run left of a case, unless the case is another one now."""
    now = place.loaded.sha256 if place.loaded is not None else None
    same = {trial: entry for trial, entry in known.items() if entry.case_sha256 == now}
    return {trial: tried_before(entry, place).entry for trial, entry in same.items()}


def _together(known: Trials, *others: Entry) -> tuple[Entry, ...]:
    return tuple(sorted((*known.values(), *others), key=lambda entry: entry.trial))
