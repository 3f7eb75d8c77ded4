"""The earlier run that a run is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.runs.folder import LATEST, StoredRunError, latest_of

if TYPE_CHECKING:
    from pytest_packbench.runs.stored import StoredRun

NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The run to compare with.

    Attributes:
        stored: the run; None where there is none or none was asked for.
        why: why there is none, for people; empty where none was asked for.
    """

    stored: StoredRun | None = None
    why: str = ""


def find_baseline(asked: str, folder: Path) -> Earlier:
    """Find and read the run to compare with; where that can't be done it says why.

    Args:
        asked: `none`, `latest` (the suite's last complete run) or the path of a run.
        folder: the folder of the run that is compared; the suite's other runs lie beside it.
    """
    if asked == NONE:
        return Earlier()
    # most runs are compared with none: what reads one is imported late
    from pytest_packbench.runs.stored import read_run

    try:
        place = _latest(folder.parent) if asked == LATEST else Path(asked)
        if place is None:
            return Earlier(why="there is no earlier complete run to compare with")
        stored = read_run(place).stored
    except (StoredRunError, OSError) as error:
        return Earlier(why=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a run that is resumed may be the last complete one itself
        return Earlier(why=f"run {folder.name} is no baseline of its own; name another one")
    return Earlier(stored=stored)


def _latest(folder: Path) -> Path | None:
    try:
        return folder / latest_of(folder / LATEST)
    except OSError:
        return None
