"""One attempt at one case: request, target, outcome, score. The only module that knows the order of these steps.

`attempt` runs all of them. Where cases run concurrently, `run_target` and `end` run those up to a checked result, on
the scheduler's event loop; `settle` runs those of the pack, in the order in which targets end.
"""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from pytest_packbench.cases.finder import find_recording
from pytest_packbench.cases.load import load_recording
from pytest_packbench.engine.offline import ADVICE, offline
from pytest_packbench.engine.recordings import (
    Replay,
    UnrecordableError,
    check_belongs,
    check_conditions,
    partial_exchanges,
    record_again,
    recorded_answers,
    recording_of,
    store_recording,
    write_recording,
)
from pytest_packbench.engine.targets import release_pools
from pytest_packbench.engine.time_limit import ProcessState, TimeLimit, timed_out
from pytest_packbench.files import RECORDINGS, why_unreadable
from pytest_packbench.model.errors import (
    CassetteError,
    describe_error,
    error_text,
    first_problem,
    format_value,
    pluralize,
    single_spaced,
    user_frames,
)
from pytest_packbench.model.request import (
    LLM,
    AnswerError,
    TargetFailure,
    Usage,
    VerifyContext,
    VerifyRequest,
    WatchedContext,
    causes_of,
    count,
)
from pytest_packbench.model.result import (
    PROBLEM_KINDS,
    TRUNCATED,
    UNREADABLE,
    Attempt,
    EndedAttempt,
    Outcome,
    ResultError,
    Score,
    UnreadAnswer,
    adapter,
    timestamp_now,
    with_unknown_keys,
)
from pytest_packbench.model.run import STUB, UNSEEN
from pytest_packbench.model.suite import FIXTURES, SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.gateway import CaseTraffic, RecordedCall
    from pytest_packbench.engine.live_models import CallLimit, LiveModels, Meter, ModelCall
    from pytest_packbench.engine.offline import Unseen
    from pytest_packbench.engine.targets import RunInThread
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.recording import Cassette, ExchangeUsage
    from pytest_packbench.model.redaction import Found, Redactor


T = TypeVar("T")
_BACKENDS = frozenset({"openai", "anthropic", "ollama"})
_DIGITS = 12
UNKNOWN = "unknown"
"""The name of a backend or model that nothing states."""


def attribute(context: SuiteContext, state: AttemptState) -> None:
    """Set which backend and model answered an attempt, how many calls and tokens that took, and what it cost.

    The cost, US dollars, is None in fixture mode, and if one call's is not known. Calls that the cache answered cost
    nothing, nor does a target that is marked as one without a model.
    """
    own = [call for call in state.traffic.calls if call.uses_tokens] if state.traffic is not None else []
    made: list[ModelCall | RecordedCall] = [*(state.meter.calls if state.meter is not None else ()), *own]
    state.calls, state.cached = len(made), sum(call.cached for call in made)
    if state.traffic is not None:
        state.waited_ms = round(state.traffic.waited_s * 1000)
    if state.replay is not None:
        state.stale = state.replay.stale
        state.calls += state.replay.used
    state.llm_backend, state.llm_model, usages = _answered_by(context, state, own)
    state.tokens_input = _sum([usage.tokens_input for usage in usages])
    state.tokens_output = _sum([usage.tokens_output for usage in usages])
    costs = [state.reported_usd, *(call.cost_usd for call in made)]
    # a scripted model has no price
    if context.live is not None and None not in costs and (len(costs) > 1 or context.backend != STUB):
        # digits beyond these are only those of the floating-point sum
        state.cost_usd = round(sum(filter(None, costs)), _DIGITS)


def _answered_by(
    context: SuiteContext, state: AttemptState, own: Sequence[RecordedCall]
) -> tuple[str, str, list[Usage | ExchangeUsage]]:
    """Return the backend and the model that answered, and the tokens of each call of the model under test."""
    counted: list[Usage | ExchangeUsage] = [call.usage or Usage() for call in own]
    if state.meter is not None and state.meter.primary_called:
        answers = [call.answer for call in state.meter.calls if not call.secondary]
        usages = [answer.usage for answer in answers if answer is not None]
        return context.backend, context.model, usages + counted
    if own and context.live is not None:
        return *names_of(own), counted
    if state.cassette is not None and context.live is None:
        cassette = state.cassette
        counted = [each.usage for each in cassette.exchanges if each.role not in context.roles]
        if cassette.gateway:
            from pytest_packbench.engine.gateway.protocols import uses_tokens

            counted += [each.usage for each in cassette.gateway if uses_tokens(each.method, each.path)]
        return cassette.llm_backend, cassette.llm_model, counted
    backend, model, usage = _reported(state.payload)
    if backend == UNKNOWN and context.backend and (context.backend == STUB or context.caller.opaque):
        # a scripted model, or what the user states of a target outside this process
        backend, model = context.backend, context.model or UNKNOWN
    return backend, model, [usage]


def count_reported_usage(context: SuiteContext, state: AttemptState) -> float | None:
    """Count the usage that a result reports of the target's own model calls, so that the run's caps apply to it.

    Returns:
        What it costs, US dollars; 0 where such calls were seen, or the target makes none; None if it is not known.
    """
    metered = state.meter is not None and state.meter.primary_called
    metered = metered or bool(state.traffic is not None and state.traffic.calls)
    if metered:
        return 0.0
    if context.live is None or state.raised is not None:
        return None
    backend, model, usage = _reported(state.payload)
    if usage == Usage():
        caller = context.caller
        is_watched = state.traffic is not None and not state.traffic.strayed
        if context.backend == STUB or caller.without_model or (is_watched and not caller.opaque):
            return 0.0
        context.live.ledger.add_unmetered_attempt(is_blind=not (is_watched and caller.runs_offline))
        return None
    if backend == UNKNOWN and context.backend:
        backend, model = context.backend, context.model
    return context.live.add_reported(usage, context.suite.config, backend, model)


def names_of(calls: Sequence[RecordedCall]) -> tuple[str, str]:
    """Return the backend and the model of a target's own calls; of several, those that wrote text, all of them."""
    writing = [call for call in calls if "embed" not in call.path.lower()] or calls
    providers = list(dict.fromkeys(call.provider for call in writing))
    models = list(dict.fromkeys(call.model for call in writing if call.model))
    backend = providers[0] if len(providers) == 1 and providers[0] in _BACKENDS else UNKNOWN
    return backend, ", ".join(models) or UNKNOWN


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the tokens of several calls; None where one of them lacks the count, or there is none."""
    return sum(filter(None, counts)) if counts and None not in counts else None


def _reported(payload: Any) -> tuple[str, str, Usage]:
    """Return what a result reports of its model: `llm_backend`, `llm_model` and `usage` at its top level."""
    if not isinstance(payload, dict):
        return UNKNOWN, UNKNOWN, Usage()
    names = (payload.get(key) for key in ("llm_backend", "llm_model"))
    backend, model = (name if isinstance(name, str) and name else UNKNOWN for name in names)
    counts = payload.get("usage")
    if not isinstance(counts, dict):
        return backend, model, Usage()
    tokens_input, tokens_output = count(counts.get("tokens_input")), count(counts.get("tokens_output"))
    return backend, model, Usage(tokens_input=tokens_input, tokens_output=tokens_output)


_RECORD_AGAIN = "record it again (--packbench-mode=record)"
_GOES_PAST = (
    "other calls of the case are recorded: if this is a model call, its client has a fixed address; leave that out of "
    "the code, so that the client reads its variable (such as OPENAI_BASE_URL), and record again"
)
_UNSEEN_ADVICE = (
    'lead the client of a model to the gateway, as by base_url=os.environ["OPENAI_BASE_URL"]; or name in suite.yaml '
    "what the target does without offline (recording: {unseen: [HOST:PORT]}); what was recorded is kept"
)
# `json.dumps` creates one at each call
_STRICT_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no score.

    Attributes:
        kind: the reason's name, for `errors.jsonl`.
        message: the reason in one line.
        details: the frames of the user's own code in the traceback, one line each; for a `cassette_mismatch` of the
            gateway, the lines of a diff of the requests.
        raised: the target's exception, kept for a debugger only: it keeps its frames alive.
    """

    kind: str
    message: str
    details: tuple[str, ...] = ()
    raised: BaseException | None = field(default=None, compare=False, repr=False)


_MAX_ANSWER = 80
_STORED = [each.name for each in fields(Attempt)]


@dataclass(slots=True)
class AttemptState:
    """The state of an attempt at a case; the fields of an `Attempt` are under the same names.

    Attributes:
        trial: the number of the attempt at the case, from 0.
        failure: set at the first error; then there is no outcome or no score.
        request: the target's input.
        verify_context: what the target may use.
        replay: answers model calls from a recording.
        owner: whose work it is for the offline guard; empty for the case's.
        keep: stores that the case is an error, before its target ends the process.
        meter: answers model calls from a backend.
        limit: limits the calls of chat models; None in fixture mode.
        traffic: the calls of the target's own model clients, through the gateway; None where it does not serve.
        cassette: the recording that was replayed or made.
        cassette_sha256: hash of its content.
        payload: the target's result as plain JSON, unread.
        text: its text, until it is searched for secrets.
        not_json: why the result is no JSON; empty where it is.
        unread: why nobody can read the answer; None if it may be read.
        counted: whether it is counted among the results that are unreadable for their form.
        truncated: whether an answer of the model under test was cut off.
        outcome: the result as the pack read it.
        score: the pack's score of the outcome.
        raised: the target's exception, until the attempt is settled: it keeps its frames alive.
        secrets: the secrets in the result. It is read and scored as it is, and redacted before it is stored or shown.
        is_checked: whether it is known how the result came about.
        ended: whether `end` has checked the result, and stated which model answered.
        recording: the cassette that record mode writes, as plain JSON.
        violations: what the target tried although fixture mode is offline.
        unseen: where it led past the gateway while it was recorded.
        stale: whether the prompt has changed since the recording.
        remark: what else has changed since the recording, in one line; empty if nothing has.
        calls: the number of model calls.
        cached: the number of those that the cache answered.
        llm_backend: the backend that answered, `unknown` where nothing states it.
        llm_model: the model that answered, `unknown` where nothing states it.
        tokens_input: tokens of all requests, as providers counted them; None where one of them was not.
        tokens_output: tokens of all answers; likewise.
        waited_ms: how long replayed calls were left open until their clients ended them, milliseconds.
        reported_usd: what the result's own report of its calls costs, as `count_reported_usage` returns it.
        cost_usd: what all calls cost, US dollars; None where it is not known.
        started_ns: monotonic clock at the start, nanoseconds.
        duration_ms: wall-clock duration, milliseconds.
        timestamp: when it ended; see `format_timestamp`.
    """

    trial: int = 0
    failure: Failure | None = None
    request: VerifyRequest | None = None
    verify_context: VerifyContext | None = None
    replay: Replay | None = None
    owner: str = ""
    keep: Callable[[], object] = lambda: None
    meter: Meter | None = None
    limit: CallLimit | None = None
    traffic: CaseTraffic | None = None
    cassette: Cassette | None = None
    cassette_sha256: str | None = None
    payload: Any = None
    text: str = ""
    not_json: str = ""
    unread: UnreadAnswer | None = None
    counted: bool = False
    truncated: bool = False
    outcome: Outcome | None = None
    score: Score | None = None
    raised: BaseException | None = None
    secrets: tuple[Found, ...] = ()
    is_checked: bool = False
    ended: bool = False
    recording: dict[str, Any] | None = None
    violations: list[str] = field(default_factory=list)
    unseen: Unseen = field(default_factory=dict)
    stale: bool = False
    remark: str = ""
    calls: int = 0
    cached: int = 0
    llm_backend: str = UNKNOWN
    llm_model: str = UNKNOWN
    tokens_input: int | None = None
    tokens_output: int | None = None
    waited_ms: int = 0
    reported_usd: float | None = None
    cost_usd: float | None = None
    started_ns: int = 0
    duration_ms: int = 0
    timestamp: str = ""

    @classmethod
    def of(cls, stored: Attempt) -> AttemptState:
        """Return the state of a stored attempt whose target had ended; what it does not state is as at the start."""
        known = {name: value for name in _STORED if (value := getattr(stored, name)) is not None}
        return cls(ended=True, **known)

    def stored(self) -> Attempt:
        """Return what is kept of an attempt that has ended until it is scored."""
        return Attempt(**{name: getattr(self, name) for name in _STORED})

    def limited(self, limit_s: float | None) -> float | None:
        """Return the time limit, longer by what calls may be left open because that was so when they were recorded."""
        return limit_s if limit_s is None or self.traffic is None else limit_s + self.traffic.recorded_wait_s

    def stop_clock(self) -> None:
        """Set the duration and the time of the end."""
        self.duration_ms = round((time.perf_counter_ns() - self.started_ns) / 1_000_000)
        self.timestamp = timestamp_now()


class Plain(NamedTuple):
    """A result as plain JSON, and its text; or why it is none."""

    payload: Any = None
    text: str = ""
    not_json: str = ""

    @classmethod
    def of(cls, result: object) -> Plain:
        """Convert a result, while its case runs: it may have methods of its own, and the target may change it later."""
        try:
            text = _STRICT_ENCODER.encode(result)
            # the encoder writes no number that `NUMBERS` would refuse
            return cls(json.loads(text), text)
        except Exception as error:  # noqa: BLE001 - as above
            return cls(not_json=error_text(error) or type(error).__name__)


def attempt(
    context: SuiteContext,
    loaded: LoadedCase,
    state: AttemptState | None = None,
    *,
    keep: Callable[[], object] = lambda: None,
) -> AttemptState:
    """Run and score one case on its recording, in fixture mode; never raises for what the case or target did.

    Args:
        context: in fixture mode.
        loaded: the case.
        state: the attempt, where it does not begin with nothing.
        keep: stores that the case is an error, where its target goes on after the time limit and the process ends.
    """
    state = state or AttemptState()
    state.keep = keep
    at_once(run_target(context, loaded, state))
    return settle(context, loaded, state)


def replay(context: SuiteContext, loaded: LoadedCase, cassette: Cassette, *, source: str, owner: str) -> AttemptState:
    """Run and score one case on another recording than its own; otherwise as `attempt`.

    Args:
        context: in fixture mode.
        loaded: the case.
        cassette: the recording, which belongs to the case as it is.
        source: its file, for messages.
        owner: whose work it is, for the offline guard.
    """
    recorded = AttemptState(cassette=cassette, replay=Replay(cassette, source=source), owner=owner)
    return attempt(context, loaded, recorded)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]  # what a coroutine returns is the value of this exception
    coroutine.close()
    raise RuntimeError("a coroutine that was to be run at once waits")


async def run_target(
    context: SuiteContext, loaded: LoadedCase, state: AttemptState, *, in_thread: RunInThread | None = None
) -> None:
    """Call the target for one attempt, on an event loop or at once.

    Args:
        context: of any mode; in fixture mode if it is called at once.
        loaded: the case.
        state: receives the result, for `settle`.
        in_thread: runs a sync target on a thread, so that the event loop is not blocked; None where all is done here,
            under the time limit of a case: then the coroutine never waits.

    Raises:
        BaseException: its task was cancelled; or, where all is done here, the target ends the whole run.
    """
    _run_steps(context, loaded, state, _prepare)
    if state.failure is None:
        await _call_target(context, loaded, state, in_thread)


def abandon(state: AttemptState, limit_s: float) -> AttemptState:
    """Return an attempt that exceeded its time limit; its target can change nothing and call no model any more."""
    if state.meter is not None:
        state.meter.close()
    abandoned = replace(state, payload=None, raised=timed_out("the target", limit_s))
    abandoned.stop_clock()
    return abandoned


def end(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Check the result of a target that has ended, and state which model answered; no code of the pack is called."""
    if not state.is_checked:
        # the target, or the pack, may have loaded keys
        context.redactor.refresh()
        if state.failure is None:
            with _guard(context, state) as violations:
                _check(context, loaded, state)
            state.violations += violations
    if state.is_checked and state.violations:
        # whatever the target, or a method of its exception, made of it
        first, *others = dict.fromkeys(state.violations)
        state.failure = Failure(kind="offline", message=first, details=tuple(others))
    attribute(context, state)
    if state.failure is None and state.unseen:
        state.failure = _recorded_in_part(context, loaded, state)
    state.timestamp = state.timestamp or timestamp_now()
    if state.failure is None and context.options.mode == "record" and state.trial == 0:
        # settling it says why there is none
        with suppress(UnrecordableError):
            recording = recording_of(context, loaded, state)
            if recording is not None and not _secret_in(recording, context, loaded, state):
                state.recording = recording
    state.ended = True


def settle(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> AttemptState:
    """Finish an attempt whose target has ended: read and score the result; record it in record mode.

    Returns:
        The attempt; with a failure instead of a score if there was an error.
    """
    if not state.ended:
        end(context, loaded, state)
    if state.failure is None:
        is_recorded = context.options.mode == "record" and state.trial == 0
        _run_steps(context, loaded, state, _read_and_score, *((_record,) if is_recorded else ()))
    if state.failure is not None:
        state.failure = redacted_failure(state.failure, context.redactor, state.secrets)
    if state.secrets:
        state.payload = context.redactor.json(state.payload)
    state.raised = None
    return state


def redacted_failure(failure: Failure, redactor: Redactor, secrets: tuple[Found, ...] = ()) -> Failure:
    """Return a failure without secrets, its message in one line; it may quote the `secrets` of the result."""
    # redacted first: a secret may have several lines
    message = single_spaced(redactor.text(failure.message, secrets))
    details = redactor.text("\n".join(failure.details), secrets).splitlines() if failure.details else ()
    return replace(failure, message=message, details=tuple(details))


def settle_stored(context: SuiteContext, loaded: LoadedCase, stored: EndedAttempt) -> AttemptState:
    """Score an attempt of an earlier session, or of another process, whose target had ended; nothing is called again.

    Returns:
        The attempt, as `settle` would have returned it then.
    """
    state = AttemptState.of(stored.attempt)
    if state.cassette_sha256 is not None:
        # resuming has compared its hash
        with suppress(OSError, CassetteError):
            state.cassette, _ = load_recording(find_recording(context.suite, loaded.case.id))
    return settle(context, loaded, state)


def reject_answer(context: SuiteContext, loaded: LoadedCase, state: AttemptState, reason: str) -> None:
    """Score an attempt again as an unreadable answer; `reason` says why in one line."""
    state.unread, state.payload = _unread(state, reason), None
    _run_steps(context, loaded, state, _read_and_score)


def score_payload(context: SuiteContext, loaded: LoadedCase, payload: Any, *, truncated: bool = False) -> AttemptState:
    """Score a stored result of the target, without running anything.

    Args:
        context: the suite's.
        loaded: the case.
        payload: the result.
        truncated: whether an answer of the model under test was cut off.

    Returns:
        The attempt; with a failure instead of a score if there was an error.
    """
    state = AttemptState(payload=payload, timestamp=timestamp_now(), truncated=truncated, ended=True)
    return settle(context, loaded, state)


class _AttemptFailed(Exception):  # noqa: N818 - carries a `Failure`
    """Ends the steps of an attempt."""

    def __init__(
        self, kind: str, message: str, details: tuple[str, ...] = (), raised: BaseException | None = None
    ) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, details=details, raised=raised)


def _run_steps(context: SuiteContext, loaded: LoadedCase, state: AttemptState, *steps: Step) -> None:
    try:
        for step in steps:
            step(context, loaded, state)
    except _AttemptFailed as error:
        state.failure = error.failure


def _prepare(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Create the target's arguments."""
    state.started_ns = time.perf_counter_ns()
    live = context.live
    llm: LLM
    if state.replay is not None:
        llm = state.replay
    else:
        llm = _replay(context, loaded, state) if live is None else _meter(context, loaded, state, live)
    source = "the pack's request()"
    state.request = _from_pack(context, lambda: context.pack.request(loaded.case), "pack_error", source)
    if not isinstance(state.request, VerifyRequest):
        raise _AttemptFailed("pack_error", f"{source} returned {_type_of(state.request)}, expected a VerifyRequest")
    backend, model = context.backend, context.model
    if live is None and state.cassette is not None and backend != STUB:
        # a target may send the model's name: replayed under another one, each request would differ
        backend, model = state.cassette.llm_backend, state.cassette.llm_model
    kind = WatchedContext if context.guards and not context.caller.opaque else VerifyContext
    state.verify_context = kind(
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


def _from_pack(
    context: SuiteContext,
    call: Callable[[], T],
    kind: str,
    source: str,
    passes: tuple[type[BaseException], ...] = (),
) -> T:
    """Return what a pack's method returns; an exception is a failure of this kind.

    What ends the run, and the exceptions in `passes`, are the caller's to handle.
    """
    try:
        return call()
    except (*passes, *context.options.stops):
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be third-party code
        raise _AttemptFailed(kind, f"{source} raised {describe_error(error)}", user_frames(error)) from None


def _replay(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> LLM:
    """Return the replay of the case's cassette; without one, each model call of the target is an error."""
    source: object = f"fixtures/{loaded.case.id}.json"
    asks = context.asks_model or context.caller.opaque
    # a scripted model runs inside the target, and a target without a model has nothing to replay
    own = context.serving if context.backend != STUB and not context.caller.without_model else None
    if asks or own is not None:
        try:
            # which is looked into first, and may be unreadable
            source = f"fixtures/{RECORDINGS}"
            source = recording = find_recording(context.suite, loaded.case.id)
            cassette, sha256 = load_recording(recording)
            if asks or cassette.gateway:
                state.cassette, state.cassette_sha256 = cassette, sha256
                check_belongs(cassette, case_id=loaded.case.id, input_sha256=loaded.input_sha256, source=source)
                state.remark = check_conditions(cassette, context, case_id=loaded.case.id, source=source)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _AttemptFailed("cassette_unreadable", f"{source}: {why_unreadable(error)}") from None
        except CassetteError as error:
            pointer = error.problems[0].pointer
            kind = "cassette_outdated" if pointer == "/input_sha256" else "cassette_unreadable"
            if state.cassette is not None and pointer.startswith(("/conditions", "/llm_model")):
                kind = "cassette_conditions"
            raise _AttemptFailed(kind, str(error)) from None
    exchanges = state.cassette.gateway if state.cassette is not None else ()
    if exchanges and own is None and context.start_gateway is not None:
        own = context.start_gateway()
    if exchanges and own is None:
        problem = "/gateway: contains calls of the target's own client, which --packbench-gateway=off does not replay"
        raise _AttemptFailed("gateway_off", f"{source}: {problem}")
    if own is not None:
        state.traffic = own.open_case(context.suite, loaded.case.id, exchanges)
    state.replay = Replay(state.cassette if asks else None, source=source)
    return state.replay


def _meter(context: SuiteContext, loaded: LoadedCase, state: AttemptState, live: LiveModels) -> LLM:
    """Return what asks the backend; where none is set, each model call of the target is an error."""
    state.limit = live.limit(context.options.max_calls)
    if context.serving is not None:
        state.traffic = context.serving.open_case(context.suite, loaded.case.id, trial=state.trial)
    if state.traffic is not None:
        state.traffic.limit = state.limit
        if context.options.mode == "record":
            state.traffic.kept = partial_exchanges(context.suite, loaded.case.id)
    state.meter = live.meter(state.trial, state.limit) if context.asks_model else None
    if state.meter is not None:
        return state.meter
    state.replay = Replay(None, source=loaded.case.id, no_backend=True)
    return state.replay


async def _call_target(
    context: SuiteContext, loaded: LoadedCase, state: AttemptState, in_thread: RunInThread | None
) -> None:
    """Call the target, or replay the result of one outside this process; check the result where all is done here."""
    shares_thread = in_thread is not None
    arguments, replayed = _arguments(state), _replayed(context, state)
    # a result that is replayed whole makes no calls
    traffic = nullcontext() if replayed is not None else _traffic_of(context, state)
    with _guard(context, state, shares_thread=shares_thread) as state.violations:
        with traffic:
            limit = TimeLimit(None if shares_thread else state.limited(context.options.case_timeout_s), state.keep)
            process = ProcessState()
            try:
                with limit:
                    if replayed is not None:
                        plain = Plain.of(replayed())
                    else:
                        plain = await context.caller.call(*arguments, in_thread, Plain.of)
                    state.payload, state.text, state.not_json = plain
            except BaseException as error:
                state.raised = error
                # on a loop, the runner decides what ends the run
                if _is_cancellation(error) if shares_thread else isinstance(error, context.options.stops):
                    raise
            finally:
                if process.restore() and state.not_json:
                    # what is no answer for want of frames is the target's doing
                    state.raised, state.not_json = RecursionError(state.not_json), ""
                limit.stop()
                if state.meter is not None:
                    state.meter.close()
                state.stop_clock()
        if limit.reached:
            _leave_target(context, state)
        state.reported_usd = count_reported_usage(context, state)
        if not shares_thread:
            _check(context, loaded, state)


def _recorded_in_part(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> Failure:
    """Keep what the gateway saw of a case that went past it, and start no more cases."""
    case_id = loaded.case.id
    with suppress(UnrecordableError, OSError):
        recording = recording_of(context, loaded, state) if state.trial == 0 else None
        if recording is not None and not _secret_in(recording, context, loaded, state):
            write_recording(context.suite.partial_path(case_id), recording)
    places = [f"{goal} ({count or 1} x, {place})" for goal, (count, place) in state.unseen.items()]
    problem = f"recorded in part: offline, the target can't reach {places[0]}"
    message = f"{problem}{f' and {len(places) - 1} more' if places[1:] else ''}; {_UNSEEN_ADVICE}"
    if context.live is not None and context.options.unseen == "stop":
        advice = "correct it and record again, or record the others with --packbench-unseen=continue"
        context.live.ledger.stop(UNSEEN, f"case {case_id}: {problem}; {advice}")
    return Failure(kind="recorded_in_part", message=message, details=tuple(places))


def _leave_target(context: SuiteContext, state: AttemptState) -> None:
    """Make an attempt whose time was up an error, whatever the target made of that."""
    where = user_frames(state.raised) if state.raised is not None else ()
    failure = timed_out("the target", state.limited(context.options.case_timeout_s) or 0)
    failure.details = where
    state.payload, state.raised = None, failure
    if state.traffic is not None:
        state.traffic.close()
    # pools of the target may hang as well
    release_pools()


def _replayed(context: SuiteContext, state: AttemptState) -> Callable[[], Any] | None:
    """Return what replays the whole result of a target outside this process; None where the target is called.

    A program runs where its model calls are recorded.
    """
    caller, replay = context.caller, state.replay
    runs = caller.runs_offline and state.cassette is not None and bool(state.cassette.gateway)
    if context.live is not None or replay is None or not caller.opaque or runs:
        return None

    def replayed() -> Any:
        result = replay.result(_arguments(state)[0])
        return result if caller.worlds is None else caller.worlds.replayed(result)

    return replayed


def _traffic_of(context: SuiteContext, state: AttemptState) -> AbstractContextManager[None]:
    """Return the block in which calls of the target's own model clients belong to the attempt."""
    if state.traffic is None:
        return nullcontext()
    rules = context.suite.config.recording
    state.traffic.ignored_headers, state.traffic.ignored = rules.ignore_headers, rules.ignore
    if context.caller.opaque and context.serving is not None:
        return context.serving.outside_process(state.traffic)
    return state.traffic.active()


def _guard(
    context: SuiteContext, state: AttemptState, *, shares_thread: bool = False
) -> AbstractContextManager[list[str]]:
    if state.verify_context is None:
        return nullcontext([])
    unseen = None
    if context.live is not None:
        if context.options.mode != "record" or state.traffic is None or context.caller.opaque:
            return nullcontext([])
        unseen = state.unseen
    has_recording = state.traffic is not None and state.traffic.has_recording
    return offline(
        state.owner or state.verify_context.case_id,
        suite=context.suite,
        # this package starts the program of a target
        allow_processes=context.options.allow_processes or context.caller.opaque,
        shares_thread=shares_thread,
        advice=_GOES_PAST if has_recording else ADVICE,
        unneeded=context.suite.config.recording.unseen,
        unseen=unseen,
    )


def _arguments(state: AttemptState) -> tuple[VerifyRequest, VerifyContext]:
    if state.request is None or state.verify_context is None:
        raise RuntimeError("the target is called after the attempt was prepared")
    return state.request, state.verify_context


def _is_cancellation(error: BaseException) -> bool:
    """Whether this very task was cancelled; a target may raise or pass on a `CancelledError` for another reason."""
    import asyncio  # the event loop that runs this has imported it

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Check how a result came about, under the offline guard: an exception may have methods of its own."""
    _run_steps(context, loaded, state, _check_result)
    state.is_checked = True


def _check_result(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Check how the result came about: a target may ignore the exception of a refused or failed call."""
    replay = state.replay
    if state.raised is None and replay is not None and not context.caller.opaque:
        replay.finish()
    if state.raised is None and state.traffic is not None and context.live is None:
        state.traffic.finish()
        if count := len(state.traffic.borrowed):
            shared = f"{pluralize(count, 'call')} replayed from {FIXTURES}/{SHARED}, which is recorded for all cases"
            state.remark = "; ".join(filter(None, [state.remark, shared]))
    _find_secrets(context, state)
    if isinstance(state.verify_context, WatchedContext) and not state.verify_context.read and state.raised is None:
        names = ", ".join(part.name for part in context.guard_parts)
        problem = f"the target did not read context.guards, so its result met no guard: {names}"
        raise _AttemptFailed("guards_unused", f"{problem}; have it call them, or use --packbench-guard=none")
    if replay is not None and replay.mismatch:
        kind = "cassette_missing" if state.cassette is None else "cassette_mismatch"
        raise _AttemptFailed("no_backend" if context.live is not None else kind, replay.mismatch)
    if state.limit is not None and (refused := state.limit.refused) is not None:
        # whatever the target made of it, and also if its time was up then
        raise _AttemptFailed(refused.kind, str(refused))
    _check_traffic(context, loaded, state)
    said = state.meter if state.meter is not None else replay
    state.truncated = said is not None and said.truncated
    _check_exceptions(context, state)
    if state.not_json and state.unread is None:
        state.unread = _unread(state, f"the target's result is not JSON: {state.not_json}", by_form=True)
    if replay is not None and (foreign := sorted(replay.stale_roles & context.roles)):
        # a judge's ruling on another answer is no ruling on this one
        problem = f"the request to the role {', '.join(foreign)} has changed since its answer was recorded"
        raise _AttemptFailed("cassette_stale", f"{problem}; {_RECORD_AGAIN}")
    if replay is not None and replay.stale and context.options.stale_is_error:
        again = record_again(context, loaded.case.id)
        raise _AttemptFailed("cassette_stale", f"the prompt has changed since the recording; {again}")


def _check_traffic(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Check the calls of the target's own clients, whatever the target made of their errors."""
    traffic = state.traffic
    if traffic is None:
        return
    if traffic.unattributed and context.options.mode != "live":
        raise _AttemptFailed("unattributed", traffic.unattributed)
    if traffic.capped is not None:
        raise _AttemptFailed(traffic.capped.kind, str(traffic.capped))
    if traffic.mismatch:
        source = find_recording(context.suite, loaded.case.id)
        kind = "cassette_mismatch" if traffic.has_recording else "cassette_missing"
        raise _AttemptFailed(kind, f"{source}: {traffic.mismatch}", traffic.difference)


def _unread(
    state: AttemptState, reason: str, *, by_form: bool = False, unknown_keys: tuple[str, ...] = ()
) -> UnreadAnswer:
    """Return an unreadable answer; one without a result may be so because it was cut off."""
    term = TRUNCATED if state.truncated else UNREADABLE
    by_form = by_form and term == UNREADABLE
    return UnreadAnswer(term, single_spaced(reason), by_form=by_form, unknown_keys=unknown_keys)


def _find_secrets(context: SuiteContext, state: AttemptState) -> None:
    """Find the secrets in the result; one that is nested too deeply for that is none."""
    # the target may have loaded keys
    context.redactor.refresh()
    try:
        if context.redactor.suspects(state.text):
            state.secrets = context.redactor.find(state.payload)
            context.redactor.json(state.payload)
    except RecursionError as error:
        state.payload, state.not_json = None, str(error)
    state.text = ""


def _check_exceptions(context: SuiteContext, state: AttemptState) -> None:
    raised = state.raised
    if isinstance(raised, TargetFailure) and raised.kind == "timeout":
        # the calls that it cut off did not fail by themselves
        raise _AttemptFailed(raised.kind, str(raised), raised.details)
    if state.meter is not None and (error := state.meter.unrecovered_error()) is not None:
        raise _AttemptFailed(error.kind, f"a model call failed ({error.kind}): {error}")
    own = state.traffic if context.live is not None else None
    rules = context.suite.config.recording
    if own is not None and (
        error := own.unrecovered_error(returned=raised is None, tests_fallback=rules.tests_fallback)
    ):
        raise _AttemptFailed(error.kind, f"a call of the target's own client failed ({error.kind}): {error}")
    if isinstance(raised, TargetFailure):
        raise _AttemptFailed(raised.kind, str(raised), raised.details)
    led_to = causes_of(raised) if raised is not None else ()
    if answer := next((cause for cause in led_to if isinstance(cause, AnswerError)), None):
        term = TRUNCATED if answer.kind == PROBLEM_KINDS[TRUNCATED] else UNREADABLE
        # redacted first: a secret may have several lines, and the text is cut where it is shown
        reason, text = (context.redactor.text(part) for part in (error_text(answer), answer.text))
        # a program or a server has no model here whose answer it would be
        by_form = term == UNREADABLE and context.caller.opaque
        state.unread = UnreadAnswer(term, single_spaced(reason), text, by_form=by_form)
        return
    if raised is not None:
        message = f"the target raised {describe_error(raised)}"
        raise _AttemptFailed("target_error", message, user_frames(raised), raised if context.options.debugged else None)


def _read_and_score(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Have the pack read and score the result, which has a time limit of its own on the main thread."""
    limit = TimeLimit(context.options.case_timeout_s)
    try:
        with limit:
            _read(context, state)
            _score(context, loaded, state)
    except context.options.stops:
        raise
    except BaseException:
        if not limit.reached:
            raise
    finally:
        limit.stop()
    if limit.reached:
        state.score = None
        raise _AttemptFailed("timeout", str(timed_out("the scoring", context.options.case_timeout_s or 0)))


def _read(context: SuiteContext, state: AttemptState) -> None:
    """Have the pack read the result, unless nobody can read it."""
    if state.unread is None:
        try:
            outcome = _from_pack(
                context, lambda: context.pack.read(state.payload), "reader_error", "the reader", passes=(ResultError,)
            )
        except ResultError as error:
            reason, unknown = f"the target's result can't be read: {error_text(error)}", error.unknown_keys
            state.unread = _unread(state, reason, by_form=True, unknown_keys=unknown)
    if state.unread is not None:
        said = state.unread.text or context.redactor.json(state.payload, state.secrets)
        state.outcome = Outcome(answer=_excerpt(said))
        return
    # what JSON can't represent, such as numpy's boolean, would only fail when the result is written
    refused: object = outcome.refused
    answer: object = outcome.answer
    for is_valid, said in (
        (isinstance(refused, bool), f"refused is {_type_of(refused)}, expected True or False"),
        (isinstance(answer, str | None), f"answer is {_type_of(answer)}, expected a str or None"),
    ):
        if not is_valid:
            raise _AttemptFailed("reader_error", f"the reader returned an Outcome whose {said}")
    state.outcome = outcome
    if (breakdown := outcome.breakdown) is not None:
        raise _AttemptFailed(breakdown.kind, f"the target reports a failure: {breakdown.kind}: {breakdown.message}")


def _excerpt(answer: object) -> str | None:
    """Return the beginning of an unreadable answer, for tables; None if there is none."""
    if answer is None or answer == "":
        return None
    text = answer if isinstance(answer, str) else format_value(answer)
    line = single_spaced(text[: 4 * _MAX_ANSWER].encode("utf-8", "backslashreplace").decode())
    return line if len(line) <= _MAX_ANSWER and len(text) <= 4 * _MAX_ANSWER else f"{line[: _MAX_ANSWER - 3]}..."


def _type_of(value: object) -> str:
    kind = type(value)
    # numpy's boolean is called bool too
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return "None" if value is None else f"a {module}{kind.__qualname__}"


def _score(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Have the pack score the outcome, or an unreadable answer."""
    unread, pack, rules = state.unread, context.pack, context.suite.config
    _from_pack(context, lambda: pack.threshold_of(loaded.case, rules), "pack_error", "the pack")

    def call() -> Score:
        if unread is not None:
            return pack.unread(loaded.case, unread.term, unread.reason, rules)
        return pack.score(loaded.case, state.outcome, rules)

    score = _from_pack(context, call, "scorer_error", "the scorer")
    if unread is not None:
        score = with_unknown_keys(score, unread.unknown_keys)
    try:
        adapter(Score).validate_python(score)
    except ValidationError as error:
        message = f"the scorer returned a Score with a wrong value: {first_problem(error)}"
        raise _AttemptFailed("scorer_error", message) from None
    state.score = score


def _secret_in(recording: dict[str, Any], context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> str:
    """Return where a recording has a secret in an answer; empty where it has none.

    A text that has the form of a key is none where the case itself contains it: its file is as public as a recording.
    """
    for source, answer in recorded_answers(recording, context, state):
        try:
            text = json.dumps(answer)
        except RecursionError:
            return f"{source} is nested too deeply to be searched for secrets"
        if context.redactor.suspects(text):
            for found in context.redactor.find(answer):
                if found.is_known or found.text not in loaded.case.model_dump_json():
                    return f"{source} contains {found.what} at {found.pointer}"
    return ""


def _record(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> None:
    """Write the exchanges of the first trial as the case's cassette, in record mode."""
    try:
        recording = state.recording or recording_of(context, loaded, state)
        if recording is None:
            return
        if problem := _secret_in(recording, context, loaded, state):
            advice = "keep it away from the target and the model, and record again; revoke it if it is yours"
            raise _AttemptFailed("secret_in_answer", f"{problem}, so that nothing was recorded; {advice}")
        state.cassette, state.cassette_sha256 = store_recording(context.suite, loaded.case.id, recording)
    except UnrecordableError as error:
        raise _AttemptFailed("unrecordable", str(error)) from None
    except OSError as error:
        message = f"the recording can't be written: {error.strerror or error}"
        raise _AttemptFailed("cassette_unwritable", message) from None


if TYPE_CHECKING:
    Step = Callable[[SuiteContext, LoadedCase, "AttemptState"], None]
