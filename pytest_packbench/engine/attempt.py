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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import STUB
from pytest_packbench.backends.answers import count
from pytest_packbench.cases.load import load_cassette
from pytest_packbench.engine.external import TargetFailure
from pytest_packbench.engine.metering import price_of
from pytest_packbench.engine.offline import offline
from pytest_packbench.engine.recordings import Replay, UnrecordableError, check_belongs, keep
from pytest_packbench.engine.targets import in_thread
from pytest_packbench.model.errors import CassetteError, describe_error, error_text
from pytest_packbench.model.outcome import Outcome, ResultError
from pytest_packbench.model.request import Usage, VerifyContext, VerifyRequest
from pytest_packbench.model.score import Score

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import Live, Meter
    from pytest_packbench.engine.targets import Aside
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.cassette import Cassette
    from pytest_packbench.model.request import LLM

    Step = Callable[[SuiteContext, LoadedCase, "Attempt"], None]


UNKNOWN = "unknown"
"""What a backend or model is called where nothing tells who answered."""
_RECORD_ANEW = "record it anew (--packbench-mode=record)"
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_LOOP = str(Path(asyncio.__file__).parent)
_IMPORTING = (str(Path(importlib.__file__).parent), "<frozen importlib")
# made once: `json.dumps` makes one each time
_STRICT = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no score: broken, which is another thing than bad.

    Attributes:
        kind: the reason's name, for `errors.jsonl`.
        message: one line for people.
        details: the user's own frames of a traceback, a line each.
        raised: what the target raised, where somebody steps through the code; it would keep its frames alive.
    """

    kind: str
    message: str
    details: tuple[str, ...] = ()
    raised: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Attempt:
    """An attempt: begun, asked, then settled.

    Attributes:
        trial: which of several attempts at the case, from 0.
        failure: set as soon as something broke; then there is no outcome or no score.
        request: what the target is asked.
        verify_context: what it may use.
        replay: answers its model calls from a recording.
        meter: answers them from a backend.
        cassette: the recording that answered them, or that was made.
        cassette_sha256: hash of its meaning.
        payload: the target's result as it came.
        outcome: what the pack read in it.
        score: what the pack made of the outcome.
        trouble: what the target raised, until the attempt is settled: it would keep its frames alive.
        violations: what it tried although fixture mode is offline.
        stale: whether the recording answered another prompt than today's.
        calls: model calls made.
        cached: those of them that a folder of kept answers answered.
        backend: who answered, `unknown` where nothing tells.
        model: which model answered, `unknown` where nothing tells.
        usage: tokens of all calls, as providers counted them.
        begun: monotonic clock at the start, nanoseconds.
        duration_ms: wall clock of the attempt.
        finished_ns: UTC clock at its end, nanoseconds since 1970.
    """

    trial: int = 0
    failure: Failure | None = None
    request: VerifyRequest | None = None
    verify_context: VerifyContext | None = None
    replay: Replay | None = None
    meter: Meter | None = None
    cassette: Cassette | None = None
    cassette_sha256: str | None = None
    payload: Any = None
    outcome: Outcome | None = None
    score: Score | None = None
    trouble: BaseException | None = None
    violations: list[str] = field(default_factory=list)
    stale: bool = False
    calls: int = 0
    cached: int = 0
    backend: str = UNKNOWN
    model: str = UNKNOWN
    usage: Usage = field(default_factory=Usage)
    begun: int = 0
    duration_ms: int = 0
    finished_ns: int = 0

    def end(self) -> None:
        """Note the clocks at the end."""
        self.duration_ms = round((time.perf_counter_ns() - self.begun) / 1_000_000)
        self.finished_ns = time.time_ns()


def attempt(context: SuiteContext, loaded: LoadedCase) -> Attempt:
    """Run one case on its recording, in fixture mode, and score it; never raises for what the case or target did."""
    state = Attempt()
    _take(context, loaded, state, _begin, _ask)
    return settle(context, loaded, state)


async def ask_ahead(context: SuiteContext, loaded: LoadedCase, state: Attempt, *, aside: Aside = in_thread) -> None:
    """Ask the target for one attempt without holding up the event loop. Never raises but for a cancellation.

    Args:
        context: of any mode.
        loaded: the case.
        state: takes what comes, to be given to `settle`.
        aside: runs a sync target where it holds up nobody.
    """
    _take(context, loaded, state, _begin)
    if state.failure is None:
        await _ask_ahead(context, state, aside)


def abandoned(state: Attempt, limit_s: float) -> Attempt:
    """Give an attempt that took too long as it is left; what still asks for it gets no model and changes nothing."""
    if state.meter is not None:
        state.meter.close()
    passed = f"the target took longer than {limit_s:g} s and was abandoned (--packbench-case-timeout)"
    left = replace(state, payload=None, trouble=TargetFailure("timeout", passed))
    left.end()
    return left


def settle(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> Attempt:
    """Settle an attempt that was asked: check, read, score, and record where that is the mode.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    if state.failure is None:
        _take(context, loaded, state, _check, _read, _score)
    state.backend, state.model, state.usage = _answered_by(context, state)
    if state.failure is None:
        _take(context, loaded, state, _record)
    if state.replay is not None:
        state.stale, state.calls = state.replay.stale, state.replay.used
    elif state.meter is not None:
        state.calls, state.cached = len(state.meter.said), state.meter.cached
    if state.failure is not None and context.live is not None:
        hide, failure = context.live.secrets.hide, state.failure
        state.failure = replace(failure, message=hide(failure.message), details=tuple(map(hide, failure.details)))
    state.finished_ns = state.finished_ns or time.time_ns()
    state.trouble = None
    return state


def rejudge(context: SuiteContext, loaded: LoadedCase, payload: Any) -> Attempt:
    """Score a result that was stored, as the target gave it, without running anything.

    Returns:
        The attempt; with a failure instead of a score where something broke.
    """
    state = Attempt(payload=payload, finished_ns=time.time_ns())
    _take(context, loaded, state, _read, _score)
    return state


def frames(error: BaseException) -> tuple[str, ...]:
    """Give the traceback of an error, a line each, without the frames of this package, the event loop and importing."""
    return tuple(
        f"{frame.filename}:{frame.lineno}: in {frame.name}: {frame.line or ''}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, _LOOP, *_IMPORTING))
    )


class _Broken(Exception):  # noqa: N818 - it carries a failure, it is none
    """Ends the steps of an attempt."""

    def __init__(
        self, kind: str, message: str, details: tuple[str, ...] = (), raised: BaseException | None = None
    ) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=" ".join(message.split()), details=details, raised=raised)


def _take(context: SuiteContext, loaded: LoadedCase, state: Attempt, *steps: Step) -> None:
    try:
        for step in steps:
            step(context, loaded, state)
    except _Broken as broken:
        state.failure = broken.failure


def _begin(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:
    """Make what the target is given."""
    state.begun = time.perf_counter_ns()
    live = context.live
    llm = _recording(context, loaded, state) if live is None else _backend(context, loaded, state, live)
    try:
        request: object = context.pack.request(loaded.case)
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken(
            "pack_error", f"the pack could not make the request: {describe_error(error)}", frames(error)
        ) from None
    if not isinstance(request, VerifyRequest):
        raise _Broken("pack_error", f"the pack gave {_kind(request)} as request, expected a VerifyRequest")
    backend, model = context.backend, context.model
    if live is None and state.cassette is not None and backend != STUB:
        # a target may address the model by its name: replayed under another one, each request would differ
        backend, model = state.cassette.llm_backend, state.cassette.llm_model
    state.request = request
    state.verify_context = VerifyContext(
        llm=llm,
        suite=context.suite.name,
        case_id=loaded.case.id,
        mode=context.options.mode,
        files=context.options.files,
        backend=backend,
        model=model,
        guards=context.guards,
        judges=context.judges,
    )


def _recording(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> LLM:
    """Read the case's cassette; without one each model call of the target is one too many."""
    source = f"fixtures/{loaded.case.id}.json"
    if context.asks_model or context.caller.opaque:
        path = context.suite.cassette_path(loaded.case.id)
        try:
            state.cassette, state.cassette_sha256 = load_cassette(path, source=source)
            check_belongs(state.cassette, case_id=loaded.case.id, input_sha256=loaded.input_sha256, source=source)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _Broken("cassette_unreadable", f"{source}: can't be read: {error.strerror}") from None
        except CassetteError as error:
            outdated = error.problems[0].pointer == "/input_sha256"
            raise _Broken("cassette_outdated" if outdated else "cassette_unreadable", str(error)) from None
    state.replay = Replay(state.cassette, source=source)
    return state.replay


def _backend(context: SuiteContext, loaded: LoadedCase, state: Attempt, live: Live) -> LLM:
    """Give what asks a backend; where nobody is named each model call of the target is one too many."""
    state.meter = live.meter(state.trial) if context.asks_model else None
    if state.meter is not None:
        return state.meter
    state.replay = Replay(None, source=loaded.case.id, nobody=True)
    return state.replay


def _ask(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:
    """Ask the target, or replay the one outside this process."""
    request, given = _begun(state)
    if context.caller.opaque:
        _replay_whole(state, request)
    else:
        with offline(loaded.case.id, allow_processes=context.options.allow_processes) as state.violations:
            try:
                state.payload = context.caller(request, given)
            except context.options.stops:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever a user's target raises is that case's error
                state.trouble = error
    state.end()


async def _ask_ahead(context: SuiteContext, state: Attempt, aside: Aside) -> None:
    """Do the same on the event loop, which other cases use as well."""
    request, given = _begun(state)
    if context.live is None and context.caller.opaque:
        _replay_whole(state, request)
        state.end()
        return
    guard: AbstractContextManager[list[str]] = nullcontext([])
    if context.live is None:
        guard = offline(given.case_id, allow_processes=context.options.allow_processes)
    try:
        with guard as state.violations:
            state.payload = await context.caller.ahead(request, given, aside)
    except BaseException as error:
        state.trouble = error
        if _is_cancelled(error):
            raise
    finally:
        if state.meter is not None:
            state.meter.close()
        state.end()
    _book_told_usage(context, state)


def _begun(state: Attempt) -> tuple[VerifyRequest, VerifyContext]:
    if state.request is None or state.verify_context is None:
        raise RuntimeError("a case is asked only after it was begun")
    return state.request, state.verify_context


def _replay_whole(state: Attempt, request: VerifyRequest) -> None:
    if state.replay is None:
        raise RuntimeError("a target outside this process is replayed only from a recording")
    try:
        state.payload = state.replay.whole(request.as_json())
    except RuntimeError as error:
        state.trouble = error


def _is_cancelled(error: BaseException) -> bool:
    """Whether somebody cancelled this very task; a target may raise or pass on such an error for another reason."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:  # noqa: ARG001 - one form for all steps
    """Refuse a result that came by a wrong way: a target may swallow what it is refused, and go on with less."""
    replay = state.replay
    if state.trouble is None and replay is not None and not context.caller.opaque:
        replay.finish()
    unfit = _keep_result(context, state)
    if state.violations:
        raise _Broken("offline", state.violations[0])
    if replay is not None and replay.mismatch:
        kind = "cassette_missing" if state.cassette is None else "cassette_mismatch"
        raise _Broken("no_backend" if context.live is not None else kind, replay.mismatch)
    _check_trouble(context, state)
    if unfit:
        raise _Broken("result_unreadable", f"the target's result is not JSON: {unfit}")
    if replay is not None and (foreign := sorted(replay.stale_roles & context.roles)):
        # a ruling on another answer is no ruling on this one
        other = f"the recorded answer of the role {', '.join(foreign)} is about another text than today's"
        raise _Broken("cassette_stale", f"{other}; {_RECORD_ANEW}")
    if replay is not None and replay.stale and context.options.stale_is_error:
        raise _Broken("cassette_stale", f"the recording answered another prompt than today's; {_RECORD_ANEW}")


def _keep_result(context: SuiteContext, state: Attempt) -> str:
    """Put what a result is as JSON in its place, or nothing; say why it can't be kept, empty where it can."""
    try:
        # what a target does to its result later is not what was scored
        kept = json.loads(_STRICT.encode(state.payload))
        state.payload = kept if context.live is None else context.live.secrets.hide_in(kept)
    except Exception as error:  # noqa: BLE001 - a result's own methods may be anybody's
        state.payload = None
        return error_text(error) or type(error).__name__
    return ""


def _check_trouble(context: SuiteContext, state: Attempt) -> None:
    trouble = state.trouble
    if isinstance(trouble, TargetFailure) and trouble.kind == "timeout":
        # the calls that it cut off are no trouble of their own
        raise _Broken(trouble.kind, str(trouble))
    if state.meter is not None and (broken := state.meter.broken()) is not None:
        raise _Broken(broken.kind, f"a model call broke ({broken.kind}): {broken}")
    if isinstance(trouble, TargetFailure):
        raise _Broken(trouble.kind, str(trouble), trouble.details)
    if trouble is not None:
        raised = trouble if context.options.debugged else None
        raise _Broken("target_error", f"the target raised {describe_error(trouble)}", frames(trouble), raised)


def _read(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:  # noqa: ARG001 - see `_check`
    """Have the pack read the result."""
    try:
        outcome: object = context.pack.read(state.payload)
    except ResultError as error:
        raise _Broken("result_unreadable", f"the target's result can't be read: {error}") from None
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        raise _Broken("reader_error", f"the reader raised {describe_error(error)}", frames(error)) from None
    if not isinstance(outcome, Outcome):
        raise _Broken("reader_error", f"the reader gave {_kind(outcome)}, expected an Outcome")
    if wrong := _wrong_in(outcome):
        raise _Broken("reader_error", f"the reader gave an Outcome whose {wrong}")
    state.outcome = outcome
    if outcome.breakdown is not None:
        down = outcome.breakdown
        raise _Broken(down.kind, f"the target reports a failure: {down.kind}: {down.message}")


def _wrong_in(outcome: Outcome) -> str:
    # what is no value of JSON, such as a boolean of numpy, would break only where the entry is written
    refused: object = outcome.refused
    answer: object = outcome.answer
    if not isinstance(refused, bool):
        return f"refused is {_exactly(refused)}, expected True or False"
    if not isinstance(answer, str | None):
        return f"answer is {_exactly(answer)}, expected a text or None"
    return ""


def _exactly(found: object) -> str:
    kind = type(found)
    # numpy's own boolean is called bool as well
    return _kind(found) if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def _kind(found: object) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"


def _score(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:
    """Have the pack score what it read."""
    try:
        score: object = context.pack.score(loaded.case, state.outcome, context.suite.config)
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a scorer may be anybody's
        raise _Broken("scorer_error", f"the scorer raised {describe_error(error)}", frames(error)) from None
    if not isinstance(score, Score):
        raise _Broken("scorer_error", f"the scorer gave {_kind(score)}, expected a Score")
    if not _in_range(score.score):
        raise _Broken("scorer_error", f"the scorer gave {score.score!r}, which is no score from 0 to 1")
    state.score = score


def _in_range(points: object) -> bool:
    if isinstance(points, bool) or not isinstance(points, int | float):
        return points is None
    return 0 <= points <= 1


def _record(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> None:
    """Keep the first trial's exchanges as the case's cassette, in record mode."""
    if context.options.mode != "record" or state.trial != 0:
        return
    try:
        kept = keep(context, loaded, state)
    except UnrecordableError as error:
        raise _Broken("unrecordable", str(error)) from None
    except OSError as error:
        raise _Broken("cassette_unwritable", f"the recording can't be written: {error.strerror or error}") from None
    if kept is not None:
        state.cassette, state.cassette_sha256 = kept


def _answered_by(context: SuiteContext, state: Attempt) -> tuple[str, str, Usage]:
    """Say who answered, which model and at what price in tokens: what is not told is unknown, never a guess."""
    if state.meter is not None and state.meter.asked_model:
        return context.backend, context.model, state.meter.usage
    if state.cassette is not None and context.live is None:
        cassette = state.cassette
        return cassette.llm_backend, cassette.llm_model, cassette.usage(context.roles)
    backend, model, usage = _told(state.payload)
    if backend == UNKNOWN and context.backend and (context.backend == STUB or context.caller.opaque):
        # a scripted model, or what the user says of a target outside this process
        return context.backend, context.model or UNKNOWN, usage
    return backend, model, usage


def _book_told_usage(context: SuiteContext, state: Attempt) -> None:
    """Book what a result tells of its own use of a model, so that the run's caps hold for it as well."""
    metered = state.meter is not None and state.meter.asked_model
    if context.live is None or state.trouble is not None or metered:
        return
    backend, model, usage = _told(state.payload)
    if usage == Usage():
        if context.caller.opaque:
            context.live.ledger.tell(None, None)
        return
    if backend == UNKNOWN and context.backend:
        backend, model = context.backend, context.model
    context.live.ledger.tell(usage, price_of(context.suite.config, backend, model))


def _told(payload: Any) -> tuple[str, str, Usage]:
    """Read what a result says of the model behind it: `llm_backend`, `llm_model`, `usage` at its top."""
    if not isinstance(payload, dict):
        return UNKNOWN, UNKNOWN, Usage()
    named = (payload.get(name) for name in ("llm_backend", "llm_model"))
    backend, model = (value if isinstance(value, str) and value else UNKNOWN for value in named)
    counts = payload.get("usage")
    if not isinstance(counts, dict):
        return backend, model, Usage()
    tokens_input, tokens_output = count(counts.get("tokens_input")), count(counts.get("tokens_output"))
    return backend, model, Usage(tokens_input=tokens_input, tokens_output=tokens_output)
