"""From an attempt at a case to its result, with the wire record inside, whatever broke on the way."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import astuple, dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pytest_packbench import __version__
from pytest_packbench.engine.attempt import UNKNOWN, Attempt, Failure, frames
from pytest_packbench.model.errors import describe_error, json_pointer
from pytest_packbench.model.pack import Comparison, record_facts
from pytest_packbench.model.record import EVAL_BACKENDS, RecordError, wire_record
from pytest_packbench.model.result import EXTENSION_VERSION, CaseResult, extension_object, format_timestamp
from pytest_packbench.model.score import describe_score
from pytest_packbench.model.strict_json import has_surrogate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.outcome import Outcome
    from pytest_packbench.model.pack import Pack, RecordFacts
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a case stands.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        case_id: its id; the file's stem where it can't be read.
        nodeid: what pytest calls it.
        file: its file as the node id names it.
        folder: the name of the folder that holds the file.
        loaded: the case; None where it can't be read.
    """

    suite: Suite
    pack: Pack
    case_id: str
    nodeid: str
    file: str
    folder: str
    loaded: LoadedCase | None


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
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        return broken_trial(place, _failure_of(place, attempt, error), trial=attempt.trial)
    return Trial(result=result, attempt=attempt, rows=rows)


def broken_trial(place: Place, failure: Failure, *, trial: int = 0) -> Trial:
    """Make the trial of an attempt that broke outside the engine."""
    result = unscored(place, "error", failure.kind, failure.message, trial=trial)
    return Trial(result=result, attempt=Attempt(failure=failure, trial=trial))


def idle_trial(place: Place, kind: str, message: str, *, trial: int = 0) -> Trial:
    """Make the trial of an attempt that was not begun: the reason's name, and the same for people in one line."""
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


def result_of(place: Place, attempt: Attempt, context: SuiteContext, run_id: str) -> CaseResult:
    """Make the result of an attempt, and in it the wire record where one is due.

    A case that its notes quarantine (`xfail`) was run and scored, but leaves no record: it is outside the rates.

    Raises:
        RecordError: what the pack says of the case makes no record.
        Exception: anything else that the pack raises.
    """
    if place.loaded is None:
        raise ValueError("a case that can't be read has no attempt")
    score, outcome = attempt.score, attempt.outcome
    if attempt.failure is not None or score is None or outcome is None:
        failure = attempt.failure or Failure(kind="error", message="no score")
        return unscored(
            place,
            "error",
            failure.kind,
            failure.message,
            timestamp=format_timestamp(attempt.finished_ns),
            duration_ms=attempt.duration_ms,
            trial=attempt.trial,
            payload=attempt.payload,
        )
    fields = _outline(place) | _told_by_attempt(attempt, score, outcome)
    reason = place.loaded.case.notes.xfail
    if reason is not None:
        message = f"quarantined (xfail): {reason}; {describe_score(score)}"
        return CaseResult(**fields, verdict="known_hole", kind="xfail", message=message)
    if score.verdict not in {"passed", "failed"} or score.score is None:
        return CaseResult(**fields, verdict=score.verdict, kind=score.verdict, message=score.message or score.verdict)
    facts = record_facts(place.pack, place.loaded.case, outcome, score)
    fields |= _told_by_pack(score, facts)
    wire = _wire(fields, attempt, facts) | {
        "run_id": run_id,
        "hook_decisions": _hooks(outcome),
        "packbench": {**facts.extra, **_own(place, attempt, context, fields)},
    }
    return CaseResult(**fields, record=wire_record(wire))


def unscored(place: Place, verdict: str, kind: str, message: str, **told: Any) -> CaseResult:
    """Make the result of a case that has no score.

    Args:
        place: where the case stands.
        verdict: neither `passed` nor `failed`.
        kind: the reason's name.
        message: the reason for people, one line.
        told: what else the attempt tells, by the names of `CaseResult`; `timestamp` is now where it isn't given.
    """
    try:
        outline = _outline(place)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a pack may be anybody's, and what it broke still needs a result
        outline = _outline(replace(place, loaded=None))
    told.setdefault("timestamp", format_timestamp(time.time_ns()))
    return CaseResult(**outline, verdict=verdict, kind=kind, message=message, **told)


@cache
def versions() -> dict[str, str]:
    """Give the versions of what could change a result, name to version."""
    found = {"pytest_packbench": __version__, "python": platform.python_version()}
    for name in ("pytest", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = UNKNOWN
    return found


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
    message = f"the pack {place.pack.name} raised {describe_error(error)}"
    return Failure(kind="pack_error", message=message, details=frames(error))


def _surrogate_at(value: object) -> str | None:
    """Point to the first text that holds a surrogate, or to the object whose key does; None where there is none."""
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, str) and has_surrogate(found):
            return json_pointer(place)
        if isinstance(found, dict):
            if any(isinstance(key, str) and has_surrogate(key) for key in found):
                return json_pointer(place)
            waiting += reversed([((*place, key), one) for key, one in found.items()])
        elif isinstance(found, list | tuple):
            waiting += reversed([((*place, index), one) for index, one in enumerate(found)])
    return None


def _outline(place: Place) -> dict[str, Any]:
    """Give the fields that tell which case it is.

    Raises:
        TypeError: what the pack says of it is no text.
        Exception: anything else that the pack raises.
    """
    suite, loaded = place.suite.name, place.loaded
    outline: dict[str, Any] = {"suite": suite, "case_id": place.case_id, "nodeid": place.nodeid, "file": place.file}
    if loaded is None:
        return {**outline, "test_id": f"{suite}:{place.folder}:{place.case_id}"}
    case = loaded.case
    test_id: object = place.pack.test_id(suite, case)
    if not isinstance(test_id, str) or not test_id:
        raise TypeError(f"test_id gave {test_id!r}, expected a text")
    facets: object = place.pack.facets(case)
    if not isinstance(facets, dict) or not all(isinstance(one, str) for pair in facets.items() for one in pair):
        raise TypeError(f"facets gave {facets!r}, expected names and values, each a text")
    return {
        **outline,
        "test_id": test_id,
        "case_type": case.case_type,
        "difficulty": case.difficulty,
        "tags": case.notes.tags,
        "facets": facets,
        "case_sha256": loaded.sha256,
    }


def _told_by_attempt(attempt: Attempt, score: Score, outcome: Outcome) -> dict[str, Any]:
    """Give the fields that a scored attempt tells, whatever its verdict."""
    fields = {
        "timestamp": format_timestamp(attempt.finished_ns),
        "duration_ms": attempt.duration_ms,
        "score": score.score,
        "threshold": score.threshold,
        "match_level": score.match_level,
        "match_depth": score.match_depth,
        "answer": outcome.answer,
        "refused": outcome.refused,
        "terms": tuple([term.as_json() for term in score.terms]),
        "stale": attempt.stale,
        "llm_backend": attempt.backend if attempt.backend in EVAL_BACKENDS else UNKNOWN,
        "llm_model": attempt.model,
        "cassette_sha256": attempt.cassette_sha256,
        "trial": attempt.trial,
        "payload": attempt.payload,
    }
    return fields | ({"cached": attempt.cached} if attempt.cached else {})


def _told_by_pack(score: Score, facts: RecordFacts) -> dict[str, Any]:
    """Give the fields of a result that leaves a record."""
    fields = {
        "verdict": score.verdict,
        "expects_refusal": facts.expected == "refuse",
        "decision": facts.agent_decision,
        "judge": facts.judge,
    }
    # our object in the record has these two only where the pack tells
    told = (("utility", facts.utility), ("valid", facts.valid))
    return fields | {name: value for name, value in told if value is not None}


def _wire(fields: dict[str, Any], attempt: Attempt, facts: RecordFacts) -> dict[str, Any]:
    """Give the fields of the record that are of the case alone."""
    return {
        **{name: fields[name] for name in ("test_id", "llm_backend", "llm_model", "timestamp")},
        "test_suite": facts.test_suite or fields["suite"],
        "attack_category": facts.attack_category,
        "agent_decision": facts.agent_decision,
        "expected": facts.expected,
        "passed": fields["verdict"] == "passed",
        "tokens_input": attempt.usage.tokens_input,
        "tokens_output": attempt.usage.tokens_output,
        "wall_clock_ms": attempt.duration_ms,
    }


def _own(place: Place, attempt: Attempt, context: SuiteContext, fields: dict[str, Any]) -> dict[str, Any]:
    """Make our own object in the record."""
    return extension_object(
        {
            **fields,
            "version": EXTENSION_VERSION,
            "terms": list(fields["terms"]),
            "tags": list(fields["tags"]),
            "mode": context.options.mode,
            "origin": attempt.cassette.origin if attempt.cassette is not None else None,
            "target": context.target_name,
            "pack": f"{place.pack.name}/{place.pack.version}",
            "bundled": place.suite.bundled,
            "suite_sha256": place.suite.sha256,
            "versions": versions(),
            **({"calls": attempt.calls} if attempt.cached else {}),
        }
    )


def _hooks(outcome: Outcome) -> list[dict[str, Any]]:
    """Put what guards decided as the record does."""
    return [
        {"hook": firing.hook, "decision": firing.decision, **({} if firing.rule is None else {"rule": firing.rule})}
        for firing in outcome.firings
    ]
