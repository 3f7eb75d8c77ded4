"""One trial of a case: an attempt with the result that it leaves, whatever broke on the way."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from pytest_packbench.engine.attempt import frames
from pytest_packbench.engine.context import Attempt, Failure
from pytest_packbench.engine.results import result_of, unscored
from pytest_packbench.model.errors import pointer_of, said
from pytest_packbench.model.pack import Comparison
from pytest_packbench.model.record import RecordError
from pytest_packbench.model.strict_json import has_surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.context import SuiteContext
    from pytest_packbench.engine.results import Place
    from pytest_packbench.model.result import CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One attempt at a case, with its result.

    Attributes:
        result: what the session records.
        attempt: what the engine left; None where the attempt was not begun, or made by an earlier session of the run.
        rows: expected against actual, where the case failed.
    """

    result: CaseResult
    attempt: Attempt | None = None
    rows: Sequence[Comparison] = ()


def trial_of(place: Place, attempt: Attempt, context: SuiteContext, run_id: str) -> Trial:
    """Make the trial of an attempt; a pack that breaks here makes it an error."""
    try:
        result = result_of(place, attempt, context, run_id)
        if result.record is None:
            # a record is checked when it is made; what has none breaks here and not where it is written
            json.dumps(result.as_json())
        # a table takes time, and only a case that failed shows one
        rows = _rows(place, attempt) if result.verdict == "failed" else ()
    except context.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        return broken_trial(place, _failure_of(place, attempt, error), trial=attempt.trial)
    return Trial(result=result, attempt=attempt, rows=rows)


def broken_trial(place: Place, failure: Failure, *, trial: int = 0) -> Trial:
    """Make the trial of an attempt that broke outside the engine.

    Args:
        place: where the case stands.
        failure: what broke.
        trial: which of several attempts at the case, from 0.
    """
    result = unscored(place, "error", failure.kind, failure.message, trial=trial)
    return Trial(result=result, attempt=Attempt(failure=failure, trial=trial))


def idle_trial(place: Place, kind: str, message: str, *, trial: int = 0) -> Trial:
    """Make the trial of an attempt that was not begun.

    Args:
        place: where the case stands.
        kind: the reason's name.
        message: the reason for people, one line.
        trial: which of several attempts at the case, from 0.
    """
    return Trial(result=unscored(place, "not_run", kind, message, trial=trial))


def kept_trial(result: CaseResult, place: Place) -> Trial:
    """Make a trial of a result that an earlier session of the run left.

    Args:
        result: it was scored.
        place: where the case stands today: pytest may call it otherwise, and lines of a file may have moved.
    """
    record = result.record
    if record is not None:
        record = {**record, "packbench": {**record.get("packbench", {}), "file": place.file}}
    return Trial(result=replace(result, nodeid=place.nodeid, file=place.file, record=record))


def _rows(place: Place, attempt: Attempt) -> list[Comparison]:
    case = place.loaded.case if place.loaded is not None else None
    found: list[object] = list(place.pack.explain(case, attempt.outcome))
    rows = [row for row in found if isinstance(row, Comparison)]
    if len(rows) < len(found) or not all(isinstance(text, str) for row in rows for text in astuple(row)):
        raise TypeError(f"explain gave {found!r}, expected comparisons, each of texts")
    return rows


def _failure_of(place: Place, attempt: Attempt, error: BaseException) -> Failure:
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
