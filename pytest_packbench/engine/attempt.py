"""One attempt at one case: request, target, outcome, score. The only place where the order of these stands.

`attempt` does all of it at once. Where cases run side by side, `ask_ahead` does the part that waits, on the
runner's event loop, and `settle` the rest, in the order in which results come in.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import STUB
from pytest_packbench.backends.answers import count
from pytest_packbench.cases.load import load_cassette
from pytest_packbench.engine.context import UNKNOWN, Attempt, AttemptState, Failure, SuiteContext
from pytest_packbench.engine.external import TargetFailure
from pytest_packbench.engine.metering import price_of
from pytest_packbench.engine.offline import offline
from pytest_packbench.engine.recordings import Replay, check_belongs
from pytest_packbench.engine.targets import in_thread
from pytest_packbench.model.errors import CassetteError, said, text_of
from pytest_packbench.model.outcome import Outcome, ResultError
from pytest_packbench.model.request import Usage, VerifyContext, VerifyRequest
from pytest_packbench.model.score import Score

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pytest_packbench.engine.context import SuiteContext
    from pytest_packbench.engine.metering import Live
    from pytest_packbench.engine.targets import Aside
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.request import LLM


_HOUSE = str(Path(__file__).resolve().parent.parent)
_LOOP = str(Path(asyncio.__file__).parent)
_IMPORTING = (str(Path(importlib.__file__).parent), "<frozen importlib")
# made once: `json.dumps` makes one each time
_STRICT = json.JSONEncoder(allow_nan=False)


class _Broken(Exception):  # noqa: N818 - it carries a failure, it is none
    def __init__(
        self, kind: str, message: str, details: tuple[str, ...] = (), raised: BaseException | None = None
    ) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=" ".join(message.split()), details=details, raised=raised)


def attempt(bench: SuiteContext, loaded: LoadedCase) -> Attempt:
    """Run one case on its recording and score it. Never raises for anything that the case or target did.

    Args:
        bench: what the suite's cases share, in fixture mode.
        loaded: the case.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    draft = AttemptState()
    _steps(bench, loaded, draft, _begin, _ask)
    return settle(bench, loaded, draft)


async def ask_ahead(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState, *, aside: Aside = in_thread) -> None:
    """Ask the target for one attempt without holding up the event loop. Never raises but for a cancellation.

    Args:
        bench: what the suite's cases share, in any mode.
        loaded: the case.
        draft: takes what comes, to be given to `settle`.
        aside: runs a sync target where it holds up nobody.
    """
    _steps(bench, loaded, draft, _begin)
    if draft.failure is None:
        await _ask_ahead(bench, draft, aside)


def abandoned(draft: AttemptState, limit_s: float) -> AttemptState:
    """Give the draft of an attempt that took too long; what still asks for it gets no model and changes nothing."""
    if draft.meter is not None:
        draft.meter.close()
    passed = f"the target took longer than {limit_s:g} s and was abandoned (--packbench-case-timeout)"
    left = replace(draft, payload=None, trouble=TargetFailure("timeout", passed))
    left.ended()
    return left


def settle(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> Attempt:
    """Make an attempt of what was asked: check, read, score, and record where that is the mode.

    Args:
        bench: what the suite's cases share.
        loaded: the case.
        draft: what asking left.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    if draft.failure is None:
        _steps(bench, loaded, draft, _check, _judge, _record)
    backend, model, usage = answered_by(bench, draft)
    replay, meter = draft.replay, draft.meter
    return Attempt(
        failure=_hidden(bench, draft.failure),
        payload=draft.payload,
        outcome=draft.outcome,
        score=draft.score,
        cassette=draft.cassette,
        cassette_sha256=draft.cassette_sha256,
        stale=replay is not None and replay.stale,
        calls=replay.used if replay is not None else len(meter.said) if meter is not None else 0,
        cached=meter.cached if meter is not None else 0,
        backend=backend,
        model=model,
        usage=usage,
        trial=draft.trial,
        finished_ns=draft.finished_ns or time.time_ns(),
        duration_ms=round(draft.duration / 1_000_000),
    )


def rejudge(bench: SuiteContext, loaded: LoadedCase, payload: Any) -> Attempt:
    """Score a result that was stored, without running anything.

    Args:
        bench: what the suite's cases share; its target is not called.
        loaded: the case.
        payload: the result as the target gave it.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    draft = AttemptState(payload=payload)
    _steps(bench, loaded, draft, _judge)
    return Attempt(
        failure=draft.failure,
        payload=payload,
        outcome=draft.outcome,
        score=draft.score,
        finished_ns=time.time_ns(),
    )


def _steps(
    bench: SuiteContext,
    loaded: LoadedCase,
    draft: AttemptState,
    *steps: Callable[[SuiteContext, LoadedCase, AttemptState], None],
) -> None:
    try:
        for step in steps:
            step(bench, loaded, draft)
    except _Broken as broken:
        draft.failure = broken.failure


def _begin(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> None:
    draft.begun = time.perf_counter_ns()
    llm = _fixture_llm(bench, loaded, draft) if bench.live is None else _live_llm(bench, loaded, draft, bench.live)
    try:
        request: object = bench.pack.request(loaded.case)
    except bench.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken("pack_error", f"the pack could not make the request: {said(error)}", frames(error)) from None
    if not isinstance(request, VerifyRequest):
        raise _Broken("pack_error", f"the pack gave {_kind(request)} as request, expected a VerifyRequest")
    draft.request = request
    backend, model = _named_to_target(bench, draft)
    draft.context = VerifyContext(
        llm=llm,
        suite=bench.suite.name,
        case_id=loaded.case.id,
        mode=bench.mode,
        files=bench.files,
        backend=backend,
        model=model,
        guards=bench.guards,
        judges=bench.judges,
    )


def _named_to_target(bench: SuiteContext, draft: AttemptState) -> tuple[str, str]:
    # a target may address the model by its name: replayed under another one, each request would differ
    if bench.live is None and draft.cassette is not None and bench.backend != STUB:
        return draft.cassette.llm_backend, draft.cassette.llm_model
    return bench.backend, bench.model


def _fixture_llm(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> LLM:
    source = f"fixtures/{loaded.case.id}.json"
    if not bench.asks_model and not bench.caller.opaque:
        # it needs no recording, and one call would be one too many
        draft.replay = Replay(None, source=source)
        return draft.replay
    path = bench.suite.cassette_path(loaded.case.id)
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
    return draft.replay


def _live_llm(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState, live: Live) -> LLM:
    meter = live.meter(draft.trial) if bench.asks_model else None
    if meter is None:
        draft.replay = Replay(None, source=loaded.case.id, nobody=True)
        return draft.replay
    draft.meter = meter
    return meter


def _ask(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> None:
    request, context = _ready(draft)
    if bench.caller.opaque:
        _replay_whole(draft)
        draft.ended()
        return
    with offline(loaded.case.id, allow_processes=bench.allow_processes) as violations:
        draft.violations = violations
        try:
            draft.payload = bench.caller(request, context)
        except bench.stops:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a user's target raises is that case's error
            draft.trouble = error
    draft.ended()


async def _ask_ahead(bench: SuiteContext, draft: AttemptState, aside: Aside) -> None:
    request, context = _ready(draft)
    if bench.live is None and bench.caller.opaque:
        _replay_whole(draft)
        draft.ended()
        return
    try:
        with _guard(bench, context.case_id) as violations:
            draft.violations = violations
            draft.payload = await bench.caller.ahead(request, context, aside)
    except BaseException as error:
        draft.trouble = error
        if _is_cancelled(error):
            raise
    finally:
        if draft.meter is not None:
            draft.meter.close()
        draft.ended()
    told_usage(bench, draft)


def _is_cancelled(error: BaseException) -> bool:
    """Whether somebody cancelled this very task; a target may raise or pass on such an error for another reason."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _guard(bench: SuiteContext, case_id: str) -> AbstractContextManager[list[str]]:
    if bench.live is not None:
        return nullcontext([])
    return offline(case_id, allow_processes=bench.allow_processes)


def _ready(draft: AttemptState) -> tuple[VerifyRequest, VerifyContext]:
    if draft.request is None or draft.context is None:
        raise RuntimeError("a case is asked only after it was begun")
    return draft.request, draft.context


def _replay_whole(draft: AttemptState) -> None:
    request, _ = _ready(draft)
    if draft.replay is None:
        raise RuntimeError("a target outside this process is replayed only from a recording")
    try:
        draft.payload = draft.replay.whole(request.as_json())
    except RuntimeError as error:
        draft.trouble = error


def _check(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> None:  # noqa: ARG001 - one form for all steps
    replay = draft.replay
    if draft.trouble is None and replay is not None and not bench.caller.opaque:
        replay.finish()
    unfit = _keep_result(bench, draft)
    # a target may have swallowed the refusal or the mismatch and gone on with less
    if draft.violations:
        raise _Broken("offline", draft.violations[0])
    if replay is not None and replay.mismatch:
        kind = "cassette_missing" if draft.cassette is None else "cassette_mismatch"
        raise _Broken("no_backend" if bench.live is not None else kind, replay.mismatch)
    _check_trouble(bench, draft)
    if unfit:
        raise _Broken("result_unreadable", f"the target's result is not JSON: {unfit}")
    if replay is not None and (foreign := sorted(replay.stale_roles & bench.roles)):
        # a ruling on another answer is no ruling on this one
        other = f"the recorded answer of the role {', '.join(foreign)} is about another text than today's"
        raise _Broken("cassette_stale", f"{other}; record it anew (--packbench-mode=record)")
    if replay is not None and replay.stale and bench.stale_is_error:
        advice = "record it anew (--packbench-mode=record)"
        raise _Broken("cassette_stale", f"the recording answered another prompt than today's; {advice}")


def _check_trouble(bench: SuiteContext, draft: AttemptState) -> None:
    trouble = draft.trouble
    if isinstance(trouble, TargetFailure) and trouble.kind == "timeout":
        # the calls that it cut off are no trouble of their own
        raise _Broken(trouble.kind, str(trouble))
    if draft.meter is not None and (broken := draft.meter.broken()) is not None:
        raise _Broken(broken.kind, f"a model call broke ({broken.kind}): {broken}")
    if isinstance(trouble, TargetFailure):
        raise _Broken(trouble.kind, str(trouble), trouble.details)
    if trouble is not None:
        raised = trouble if bench.debugged else None
        raise _Broken("target_error", f"the target raised {said(trouble)}", frames(trouble), raised)


def _record(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> None:
    if bench.mode != "record" or draft.trial != 0:
        return
    from pytest_packbench.engine.recordings import UnrecordableError, keep

    try:
        kept = keep(bench, loaded, draft, *answered_by(bench, draft))
    except UnrecordableError as error:
        raise _Broken("unrecordable", str(error)) from None
    except OSError as error:
        raise _Broken("cassette_unwritable", f"the recording can't be written: {error.strerror or error}") from None
    if kept is not None:
        draft.cassette, draft.cassette_sha256 = kept


def _hidden(bench: SuiteContext, failure: Failure | None) -> Failure | None:
    if failure is None or bench.live is None:
        return failure
    hide = bench.live.secrets.hide
    return replace(failure, message=hide(failure.message), details=tuple(map(hide, failure.details)))


def _keep_result(bench: SuiteContext, draft: AttemptState) -> str:
    """Put what a result is as JSON in its place, or nothing; say why it can't be kept, empty where it can."""
    try:
        # what a target does to its result later is not what was scored
        kept = json.loads(_STRICT.encode(draft.payload))
        draft.payload = kept if bench.live is None else bench.live.secrets.hide_in(kept)
    except Exception as error:  # noqa: BLE001 - a result's own methods may be anybody's
        draft.payload = None
        return text_of(error) or type(error).__name__
    return ""


def _judge(bench: SuiteContext, loaded: LoadedCase, draft: AttemptState) -> None:
    try:
        outcome: object = bench.pack.read(draft.payload)
    except ResultError as error:
        raise _Broken("result_unreadable", f"the target's result can't be read: {error}") from None
    except bench.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken("reader_error", f"the reader raised {said(error)}", frames(error)) from None
    if not isinstance(outcome, Outcome):
        raise _Broken("reader_error", f"the reader gave {_kind(outcome)}, expected an Outcome")
    _check_outcome(outcome)
    draft.outcome = outcome
    if outcome.breakdown is not None:
        down = outcome.breakdown
        raise _Broken(down.kind, f"the target reports a failure: {down.kind}: {down.message}")
    try:
        score: object = bench.pack.score(loaded.case, outcome, bench.suite.config)
    except bench.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a scorer may be anybody's
        raise _Broken("scorer_error", f"the scorer raised {said(error)}", frames(error)) from None
    if not isinstance(score, Score):
        raise _Broken("scorer_error", f"the scorer gave {_kind(score)}, expected a Score")
    if not _in_range(score.score):
        raise _Broken("scorer_error", f"the scorer gave {score.score!r}, which is no score from 0 to 1")
    draft.score = score


def _check_outcome(outcome: Outcome) -> None:
    # what is no value of JSON, such as a boolean of numpy, would break only where the entry is written
    refused: object = outcome.refused
    answer: object = outcome.answer
    wrong = ""
    if not isinstance(refused, bool):
        wrong = f"refused is {_exactly(refused)}, expected True or False"
    elif not isinstance(answer, str | None):
        wrong = f"answer is {_exactly(answer)}, expected a text or None"
    if wrong:
        raise _Broken("reader_error", f"the reader gave an Outcome whose {wrong}")


def _exactly(found: object) -> str:
    kind = type(found)
    # numpy's own boolean is called bool as well
    return _kind(found) if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def _in_range(points: object) -> bool:
    if isinstance(points, bool) or not isinstance(points, int | float):
        return points is None
    return 0 <= points <= 1


def _kind(found: object) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"


def frames(error: BaseException) -> tuple[str, ...]:
    """Give the traceback of an error, a line each, without the frames of this package, the event loop and importing."""
    return tuple(
        f"{frame.filename}:{frame.lineno}: in {frame.name}: {frame.line or ''}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_HOUSE, _LOOP, *_IMPORTING))
    )


_NAMES = ("llm_backend", "llm_model")
_COUNTS = ("tokens_input", "tokens_output")


def answered_by(bench: SuiteContext, draft: AttemptState) -> tuple[str, str, Usage]:
    """Say who answered, which model and at what price in tokens: what is not told is unknown, never a guess."""
    if draft.meter is not None and any(not one.aside for one in draft.meter.said):
        return bench.backend, bench.model, draft.meter.usage
    told = _told(draft.payload)
    if draft.cassette is not None and bench.live is None:
        cassette = draft.cassette
        return cassette.llm_backend, cassette.llm_model, cassette.usage(bench.roles)
    if told[0] == UNKNOWN and bench.backend and (bench.backend == STUB or bench.caller.opaque):
        # a scripted model, or what the user says of a target outside this process
        return bench.backend, bench.model or UNKNOWN, told[2]
    return told


def told_usage(bench: SuiteContext, draft: AttemptState) -> None:
    """Book what a result tells of its own use of a model, so that the run's caps hold for it as well."""
    metered = draft.meter is not None and any(not one.aside for one in draft.meter.said)
    if bench.live is None or draft.trouble is not None or metered:
        return
    backend, model, usage = _told(draft.payload)
    if usage == Usage():
        if bench.caller.opaque:
            bench.live.ledger.tell(None, None)
        return
    if backend == UNKNOWN and bench.backend:
        backend, model = bench.backend, bench.model
    bench.live.ledger.tell(usage, price_of(bench.suite.config, backend, model))


def _told(payload: Any) -> tuple[str, str, Usage]:
    """Read what a result says of the model behind it: `llm_backend`, `llm_model`, `usage` at its top."""
    if not isinstance(payload, dict):
        return UNKNOWN, UNKNOWN, Usage()
    backend, model = (value if isinstance(value, str) and value else UNKNOWN for value in map(payload.get, _NAMES))
    usage = payload.get("usage")
    counts = {name: count(usage.get(name)) for name in _COUNTS} if isinstance(usage, dict) else {}
    return backend, model, Usage(**counts)
