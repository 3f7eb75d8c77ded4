"""From an attempt to what its item needs: the entry, the wire record, and what a failure shows."""

from __future__ import annotations

import json
import time
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from pytest_packbench.cases.problem import pointer_of
from pytest_packbench.engine.attempt import frames
from pytest_packbench.engine.bench import Failure
from pytest_packbench.engine.entries import clock, entry_of, unscored
from pytest_packbench.engine.protocols.pack import Comparison
from pytest_packbench.engine.said import said
from pytest_packbench.records.evalrecord import EvalRecord, RecordError
from pytest_packbench.records.serde import has_surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.bench import Attempt, Bench
    from pytest_packbench.engine.entries import Place
    from pytest_packbench.records.entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One attempt, as its item and the session see it.

    Attributes:
        entry: what reports are made from.
        attempt: what the engine left; None where it was not begun.
        record: the wire record; None where none is due.
        rows: expected against actual.
        failure: why there is no score.
    """

    entry: Entry
    attempt: Attempt | None = None
    record: EvalRecord | None = None
    rows: Sequence[Comparison] = ()
    failure: Failure | None = None


def tried(place: Place, attempt: Attempt, bench: Bench, run_id: str) -> Tried:
    """Make an attempt's entry; a pack that breaks here makes it an error."""
    try:
        entry, record = entry_of(place, attempt, bench, run_id)
        if record is None:
            # a record is checked when it is made; what has none breaks here and not where it is written
            json.dumps(entry.as_json())
        # a table takes time, and only a case that failed shows one
        rows = _rows(place, attempt) if entry.verdict == "failed" else []
    except bench.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        return broke(place, _broken(place, attempt, error), trial=attempt.trial)
    failure = None
    if entry.verdict in {"error", "vacuous"}:
        failure = attempt.failure or Failure(kind=entry.kind, message=entry.message)
    return Tried(entry=entry, attempt=attempt, record=record, rows=rows, failure=failure)


def _broken(place: Place, attempt: Attempt, error: BaseException) -> Failure:
    pointer = _surrogate_at(attempt.payload) if isinstance(error, RecordError) else None
    if pointer is not None:
        where = f"at {pointer}" if pointer else "at its top"
        message = f"the target's result holds text that is no Unicode {where}: an unpaired surrogate; expected UTF-8"
        return Failure(kind="result_unreadable", message=message)
    message = f"the pack {place.pack.name} raised {said(error)}"
    return Failure(kind="pack_error", message=message, details=frames(error))


def _surrogate_at(value: object) -> str | None:
    """Point to the first text that holds a surrogate, or to the object whose key does; None where there is none."""
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, str) and has_surrogate(found):
            return pointer_of(place)
        if isinstance(found, dict):
            if any(isinstance(key, str) and has_surrogate(key) for key in found):
                return pointer_of(place)
            waiting += reversed([((*place, key), one) for key, one in found.items()])
        elif isinstance(found, list | tuple):
            waiting += reversed([((*place, index), one) for index, one in enumerate(found)])
    return None


def _rows(place: Place, attempt: Attempt) -> list[Comparison]:
    case = place.loaded.case if place.loaded is not None else None
    found: list[object] = list(place.pack.explain(case, attempt.outcome))
    rows = [row for row in found if isinstance(row, Comparison)]
    if len(rows) < len(found) or not all(isinstance(text, str) for row in rows for text in astuple(row)):
        raise TypeError(f"explain gave {found!r}, expected comparisons, each of texts")
    return rows


def tried_before(entry: Entry, place: Place) -> Tried:
    """Make of an entry that an earlier session of the run left what its item needs.

    Args:
        entry: it was scored.
        place: where the case stands today: pytest may call it otherwise, and lines of a file may have moved.
    """
    wire, record = entry.record, None
    if wire is not None:
        wire = {**wire, "packbench": {**wire.get("packbench", {}), "file": place.file}}
        record = EvalRecord.from_json_line(json.dumps(wire), strict=False)
    return Tried(entry=replace(entry, nodeid=place.nodeid, file=place.file, record=wire), record=record)


def broke(place: Place, failure: Failure, *, trial: int = 0) -> Tried:
    """Make the entry of an attempt that broke outside the engine."""
    entry = unscored(place, "error", failure.kind, failure.message, timestamp=clock(time.time_ns()))
    return Tried(entry=replace(entry, trial=trial), failure=failure)


def not_run(place: Place, kind: str, message: str, *, trial: int = 0) -> Tried:
    """Make the entry of an attempt that was not begun."""
    entry = unscored(place, "not_run", kind, message, timestamp=clock(time.time_ns()))
    return Tried(entry=replace(entry, trial=trial))
