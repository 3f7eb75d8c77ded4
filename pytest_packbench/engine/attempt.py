"""One attempt at one case: request, target, outcome, score. The only place where the order of these stands."""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.problem import CassetteError
from pytest_packbench.engine.cassette import Cassette, Replay, check_belongs, load_cassette
from pytest_packbench.engine.offline import offline
from pytest_packbench.engine.protocols.outcome import ResultError
from pytest_packbench.engine.protocols.request import VerifyContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.engine.protocols.outcome import Outcome
    from pytest_packbench.engine.protocols.pack import Pack
    from pytest_packbench.engine.protocols.score import Score
    from pytest_packbench.engine.targets import Caller

_HOUSE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all cases of a suite share in a run.

    Attributes:
        suite: the suite.
        pack: its pack.
        caller: calls the target.
        target_name: how the target is called in records.
        allow_processes: whether a target may start child processes in fixture mode.
        stale_is_error: whether a stale cassette is an error instead of a remark.
        files: files of the packs' own that a target may need, by name.
    """

    suite: Suite
    pack: Pack
    caller: Caller
    target_name: str
    allow_processes: bool = False
    stale_is_error: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no score: broken, which is another thing than bad.

    Attributes:
        kind: the reason's name, for `errors.jsonl`.
        message: one line for people.
        details: the user's own frames of a traceback, a line each.
    """

    kind: str
    message: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What an attempt left.

    Attributes:
        failure: set when there is no outcome or no score.
        payload: the target's result as it came.
        outcome: what the pack read in it.
        score: what the pack made of the outcome.
        cassette: the recording that answered the model calls.
        cassette_sha256: hash of its meaning.
        stale: whether the recording answered another prompt than today's.
        calls: model calls made.
        finished_ns: UTC clock at the end of the attempt, nanoseconds since 1970.
        duration_ms: wall clock of the attempt.
    """

    failure: Failure | None = None
    payload: Any = None
    outcome: Outcome | None = None
    score: Score | None = None
    cassette: Cassette | None = None
    cassette_sha256: str | None = None
    stale: bool = False
    calls: int = 0
    finished_ns: int = 0
    duration_ms: int = 0


@dataclass(slots=True)
class _Draft:
    failure: Failure | None = None
    payload: Any = None
    outcome: Outcome | None = None
    score: Score | None = None
    cassette: Cassette | None = None
    cassette_sha256: str | None = None
    replay: Replay | None = None


class _Broken(Exception):  # noqa: N818 - it carries a failure, it is none
    def __init__(self, kind: str, message: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=" ".join(message.split()), details=details)


def attempt(bench: Bench, loaded: LoadedCase) -> Attempt:
    """Run one case on its recording and score it. Never raises for anything that the case or target did.

    Args:
        bench: what the suite's cases share.
        loaded: the case.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    return _tried(bench, loaded, _Draft(), (_insert, _ask, _judge))


def rejudge(bench: Bench, loaded: LoadedCase, payload: Any) -> Attempt:
    """Score a result that was stored, without running anything.

    Args:
        bench: what the suite's cases share; its target is not called.
        loaded: the case.
        payload: the result as the target gave it.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    return _tried(bench, loaded, _Draft(payload=payload), (_judge,))


def _tried(
    bench: Bench, loaded: LoadedCase, draft: _Draft, steps: tuple[Callable[[Bench, LoadedCase, _Draft], None], ...]
) -> Attempt:
    begun = time.perf_counter_ns()
    try:
        for step in steps:
            step(bench, loaded, draft)
    except _Broken as broken:
        draft.failure = broken.failure
    duration = time.perf_counter_ns() - begun
    replay = draft.replay
    return Attempt(
        failure=draft.failure,
        payload=draft.payload,
        outcome=draft.outcome,
        score=draft.score,
        cassette=draft.cassette,
        cassette_sha256=draft.cassette_sha256,
        stale=replay is not None and replay.stale,
        calls=replay.used if replay is not None else 0,
        finished_ns=time.time_ns(),
        duration_ms=round(duration / 1_000_000),
    )


def _insert(bench: Bench, loaded: LoadedCase, draft: _Draft) -> None:
    path = bench.suite.cassette_path(loaded.case.id)
    source = f"fixtures/{path.name}"
    if not bench.caller.asks_model:
        # it needs no recording, and one call would be one too many
        draft.replay = Replay(None, source=source)
        return
    try:
        draft.cassette, draft.cassette_sha256 = load_cassette(path, source=source)
        check_belongs(draft.cassette, case_id=loaded.case.id, input_sha256=loaded.input_sha256, source=source)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _Broken("cassette_unreadable", f"{source}: can't be read: {error.strerror}") from None
    except CassetteError as error:
        outdated = error.problems[0].pointer == "/input_sha256"
        raise _Broken("cassette_outdated" if outdated else "cassette_unreadable", str(error)) from None
    draft.replay = Replay(draft.cassette, source=source)


def _ask(bench: Bench, loaded: LoadedCase, draft: _Draft) -> None:
    replay = draft.replay
    if replay is None:
        raise RuntimeError("a case is asked only after its recording was looked for")
    try:
        request = bench.pack.request(loaded.case)
    except Exception as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken("pack_error", f"the pack could not make the request: {_said(error)}", frames(error)) from None
    context = VerifyContext(
        llm=replay, suite=bench.suite.name, case_id=loaded.case.id, mode="fixture", files=bench.files
    )
    with offline(loaded.case.id, allow_processes=bench.allow_processes) as violations:
        payload, trouble = None, None
        try:
            payload = bench.caller(request, context)
            replay.finish()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a user's target raises is that case's error
            trouble = error
    unfit = _unfit(payload)
    draft.payload = None if unfit else payload
    # a target may have swallowed the refusal or the mismatch and gone on with less
    if violations:
        raise _Broken("offline", violations[0])
    if replay.mismatch:
        kind = "cassette_missing" if draft.cassette is None else "cassette_mismatch"
        raise _Broken(kind, replay.mismatch)
    if trouble is not None:
        raise _Broken("target_error", f"the target raised {_said(trouble)}", frames(trouble))
    if unfit:
        raise _Broken("result_unreadable", f"the target's result is not JSON: {unfit}")
    if replay.stale and bench.stale_is_error:
        raise _Broken("cassette_stale", "the recording answered another prompt than today's; make it anew")


def _unfit(payload: Any) -> str:
    """Say why a result can't be kept as JSON; empty where it can."""
    try:
        json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def _judge(bench: Bench, loaded: LoadedCase, draft: _Draft) -> None:
    try:
        draft.outcome = bench.pack.read(draft.payload)
    except ResultError as error:
        raise _Broken("result_unreadable", f"the target's result can't be read: {error}") from None
    except Exception as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken("reader_error", f"the reader raised {_said(error)}", frames(error)) from None
    if draft.outcome.breakdown is not None:
        down = draft.outcome.breakdown
        raise _Broken(down.kind, f"the target reports a failure: {down.kind}: {down.message}")
    try:
        score = bench.pack.score(loaded.case, draft.outcome, bench.suite.config)
    except Exception as error:  # noqa: BLE001 - a scorer may be anybody's
        raise _Broken("scorer_error", f"the scorer raised {_said(error)}", frames(error)) from None
    if score.score is not None and not 0 <= score.score <= 1:
        raise _Broken("scorer_error", f"the scorer gave {score.score!r}, which is no score from 0 to 1")
    draft.score = score


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def frames(error: BaseException) -> tuple[str, ...]:
    """Give the traceback of an error without this package's own frames, a line each."""
    return tuple(
        f"{frame.filename}:{frame.lineno}: in {frame.name}: {frame.line or ''}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_HOUSE)
    )
