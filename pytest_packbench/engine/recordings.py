"""Recordings: replay model calls from a cassette, and write the cassette of an attempt."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import parse_cassette
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.files import RECORDING, read_regular, write_atomic
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CassetteError, Problem, format_value
from pytest_packbench.model.request import AnswerError, AnswerProblem, ModelAnswer, ToolCall, Usage
from pytest_packbench.model.suite import PENDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.cases.recordings import Recording
    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import ModelCall
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.cassette import Cassette, Exchange
    from pytest_packbench.model.request import ModelRequest, Tool
    from pytest_packbench.model.suite import Suite


# the keys of exchanges that a model, its provider, or a target outside this process wrote
_ANSWER = frozenset({"answer", "refusal", "tool_calls", "problem"})
_GATEWAY_ANSWER = frozenset({"headers", "body", "text", "body_base64", "stream", "stream_base64"})
_OF_EACH_ANSWER = frozenset(
    {"id", "created", "created_at", "completed_at", "responseId", "system_fingerprint", "total_duration"}
    | {"load_duration", "prompt_eval_duration", "eval_duration", "usage", "usageMetadata"}
)
_ADVICE = "if the pipeline's steps changed, edit the recording or record it again (--packbench-mode=record)"


class ReplayError(RuntimeError):
    """The target's calls differ from the cassette's exchanges."""


class UnrecordableError(RuntimeError):
    """A model call of the target was never answered: no replay could reproduce it."""


def check_belongs(cassette: Cassette, *, case_id: str, input_sha256: str, source: str) -> None:
    """Check that a cassette is that of a case and of its current input.

    Raises:
        CassetteError: it is not; says what to do.
    """
    if cassette.case_id != case_id:
        problem = Problem(
            "/case_id", f"got {format_value(cassette.case_id)}", f'expected "{case_id}": a cassette belongs to one case'
        )
        raise CassetteError(source, [problem])
    if cassette.input_sha256 != input_sha256:
        reason = "outdated: the case's input has changed since"
        advice = f'undo the change, or check that the answers are still right and set it to "{input_sha256}"'
        raise CassetteError(source, [Problem("/input_sha256", reason, advice)])


def recorded_calls(suite: Suite, case_id: str) -> int | None:
    """Return the number of exchanges in a case's cassette; None where it is missing or can't be read."""
    try:
        cassette, _ = find_recording(suite, case_id).load()
        return len(cassette.exchanges) + len(cassette.gateway)
    except (CassetteError, OSError):
        return None


@dataclass(slots=True, eq=False)
class Replay:
    """Answers a target's model calls from a cassette, by position and role.

    A target may ignore the exception that its model call raises, so the first mismatch is stored in `mismatch`.

    Attributes:
        cassette: the recording; None where there is none.
        source: the cassette's file, for messages.
        no_backend: whether a backend should answer and none is set: then each call is a mismatch.
        stale: whether an exchange answered another request than today's.
        stale_roles: the roles of such exchanges.
        mismatch: the first mismatch, in one line; empty while there is none.
        used: the number of exchanges replayed.
        truncated: whether one of them was cut off.
        tools: the tools that the model was offered.
        offered: the tools that it was last offered.
    """

    cassette: Cassette | None
    source: str
    no_backend: bool = False
    stale: bool = False
    stale_roles: set[str] = field(default_factory=set)
    mismatch: str = ""
    used: int = 0
    truncated: bool = False
    tools: list[Tool] = field(default_factory=list)
    offered: tuple[Tool, ...] = ()

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """The recorded exchanges."""
        return () if self.cassette is None else self.cassette.exchanges

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer as `complete_sync` does, which never waits."""
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has no such exchange next."""
        role, position, exchanges = format_value(request.role), self.used, self.exchanges
        problem = ""
        if self.no_backend:
            problem = (
                f"the target calls a model (role {role}), and no backend is set; "
                "use --packbench-backend and --packbench-model"
            )
        elif self.cassette is None:
            problem = (
                f"the target calls a model (role {role}), and the case has no cassette; "
                "record one (--packbench-mode=record), or write one (for its format: packbench schema cassette)"
            )
        elif position >= len(exchanges):
            problem = f"call {position + 1} (role {role}) exceeds the {len(exchanges)} recorded ones; {_ADVICE}"
        elif exchanges[position].role != request.role:
            recorded = format_value(exchanges[position].role)
            problem = (
                f"/exchanges/{position}/role: got {recorded}; the call of the target has the role {role}; {_ADVICE}"
            )
        if problem:
            raise self._mismatch(problem)
        exchange = exchanges[position]
        self.used += 1
        if request.tools and request.tools != self.offered:
            self.offered = request.tools
            self.tools += request.tools
        if not self._is_of(exchange.request_sha256, request.as_json()):
            self.stale = True
            self.stale_roles.add(request.role)
        counted, unread = exchange.usage, exchange.problem
        answer = ModelAnswer(
            content=exchange.answer,
            refusal=exchange.refusal,
            usage=Usage(tokens_input=counted.tokens_input, tokens_output=counted.tokens_output),
            tool_calls=tuple(
                [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in exchange.tool_calls]
            ),
            problem=None if unread is None else AnswerProblem(unread.kind, unread.message),
        )
        self.truncated |= unread is not None and unread.kind == "truncated"
        return answer.readable()

    def result(self, request: dict[str, Any]) -> Any:
        """Return the recorded result of a target outside this process (role `verify`); sets `stale`.

        Args:
            request: today's request, plain JSON.

        Raises:
            ReplayError: there is no such recording.
            AnswerError: the result could not be read when it was recorded.
        """
        from pytest_packbench.model.cassette import VERIFY_ROLE

        if self.cassette is None:
            raise self._mismatch(
                "the target runs outside this process, so its result is replayed, and the case has no cassette; "
                "record one (--packbench-mode=record)"
            )
        exchanges = self.exchanges
        if len(exchanges) != 1 or exchanges[0].role != VERIFY_ROLE:
            roles = ", ".join(exchange.role for exchange in exchanges) or "none"
            raise self._mismatch(
                f'/exchanges: got the roles {roles}; expected one exchange "{VERIFY_ROLE}", the result of '
                "a target outside this process; record it again (--packbench-mode=record)"
            )
        self.used = 1
        self.stale = not self._is_of(exchanges[0].request_sha256, request)
        answer, problem = exchanges[0].answer, exchanges[0].problem
        if problem is not None:
            text = answer if isinstance(answer, str) else ""
            raise AnswerError(problem.kind, problem.message, text=text)
        return answer

    def _is_of(self, sha256: str | None, request: dict[str, Any]) -> bool:
        """Whether an answer is that to a request; one that a person wrote answers any request, a recorded one none."""
        if sha256 is None:
            return self.cassette is not None and self.cassette.origin == "authored"
        return sha256 == canonical_sha256(request)

    def finish(self) -> None:
        """Report other tools than the recorded ones, and exchanges that were not replayed, as a mismatch."""
        if self.cassette is not None and not self.mismatch and (self.tools or self.cassette.conditions.tools):
            from pytest_packbench.engine.conditions import tools_problem

            tools = self.cassette.conditions.tools
            if tools is None and self.cassette.origin == "recorded":
                tools = ()
            problem = tools_problem(tools, self.tools)
            if problem:
                self._mismatch(f"{problem}; {_ADVICE}")
        recorded = len(self.exchanges)
        if not self.mismatch and self.used < recorded:
            self._mismatch(
                f"the target made only {self.used} of the {recorded} recorded calls; {_ADVICE}"
                f"{'' if self.used else '; mark a target that calls no model with without_model'}"
            )

    def _mismatch(self, message: str) -> ReplayError:
        mismatch = f"{self.source}: {message}"
        self.mismatch = self.mismatch or mismatch
        return ReplayError(mismatch)


def recording_of(context: SuiteContext, loaded: LoadedCase, state: AttemptState) -> dict[str, Any] | None:
    """Return the cassette of an attempt without a failure as plain JSON; None where no model was called.

    Raises:
        UnrecordableError: a model call was never answered.
    """
    from pytest_packbench.engine.conditions import recorded_conditions
    from pytest_packbench.model.cassette import CASSETTE_VERSION, VERIFY_ROLE

    tools: list[Tool] | None = None
    exchanges: list[dict[str, Any]] = []
    prompts = context.options.record_prompts and context.pack.keeps_prompts(loaded.case)
    # a server does not run for a replay
    can_run = not context.caller.opaque or context.caller.runs_offline
    own = state.traffic.calls if state.traffic is not None and can_run else ()
    gateway = [call.as_exchange(prompts) for call in own]
    if context.caller.opaque and not gateway and state.request is not None:
        sha256 = canonical_sha256(state.request.as_json())
        usage = _usage(state)
        said = {"answer": state.payload}
        if state.unread is not None:
            said = {"answer": state.unread.text, "problem": state.unread.problem()}
        exchanges = [{"role": VERIFY_ROLE, **said, "request_sha256": sha256, **usage}]
    elif state.meter is not None and (state.meter.calls or find_recording(context.suite, loaded.case.id).exists()):
        # an attempt without calls replaces an older recording that has some
        calls = state.meter.calls
        exchanges = model_exchanges(calls, prompts=prompts)
        tools = [tool for call in calls if not call.secondary for tool in call.request.tools]
    elif not gateway:
        return None
    redact = context.redactor.json
    for exchange in exchanges:
        # answers with a secret are not recorded at all
        if "prompt" in exchange:
            exchange["prompt"] = redact(exchange["prompt"])
    return {
        "cassette_version": CASSETTE_VERSION,
        "case_id": loaded.case.id,
        "input_sha256": loaded.input_sha256,
        "origin": "recorded",
        "llm_backend": state.llm_backend,
        "llm_model": state.llm_model,
        "recorded_at": state.timestamp,
        "conditions": redact(recorded_conditions(context, tools)),
        "exchanges": exchanges,
        **({"gateway": gateway} if gateway else {}),
    }


def recorded_answers(
    recording: dict[str, Any], context: SuiteContext, state: AttemptState
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answers in the recording of an attempt, each with its source and its keys there."""
    for call, exchange in zip(state.traffic.calls if state.traffic else (), recording.get("gateway", ()), strict=False):
        said = {name: exchange[name] for name in _GATEWAY_ANSWER.intersection(exchange)}
        # events of a stream split what the model wrote
        yield f"the answer to {call}", {**said, "deltas": call.joined_texts()}
    for number, exchange in enumerate(recording["exchanges"], start=1):
        source = f"the answer to call {number} (role {format_value(exchange['role'])})"
        said = {name: exchange[name] for name in _ANSWER.intersection(exchange)}
        yield "the result" if context.caller.opaque else source, said


def store_recording(suite: Suite, case_id: str, data: dict[str, Any]) -> tuple[Cassette, str]:
    """Write the recording of a case: at once where it has none, else for approval.

    A recording that would change an older one is written to `fixtures/.pending/`, from where `packbench accept` takes
    it. One with the same answers under the same conditions is not written.

    Returns:
        The cassette and the hash of its content, as `Recording.load` returns them.

    Raises:
        OSError: it can't be written; an older recording stays as it was.
    """
    from pytest_packbench.model.cassette import Cassette

    older = find_recording(suite, case_id)
    cassette = Cassette.model_validate(data)
    path = suite.pending_path(case_id) if older.exists() else suite.cassette_path(case_id)
    if older.exists() and _is_same(older, cassette):
        path.unlink(missing_ok=True)
    else:
        write_recording(path, data)
    return cassette, canonical_sha256(data)


def recording_problem(suite: Suite) -> str:
    """Return in one line why no recording can be written into a suite; empty if one can."""
    from tempfile import TemporaryFile  # needed in record mode only

    folder = suite.cassette_path("x").parent
    try:
        with TemporaryFile(dir=folder if folder.exists() else suite.path):
            return ""
    except OSError as error:
        return f"cannot write recordings to {folder}: {error.strerror or error}"


def write_recording(path: Path, data: dict[str, Any]) -> None:
    """Write a recording, whole or not at all; the folder of pending ones is ignored by git.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == PENDING:
        ignore = path.with_name(".gitignore")
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    write_atomic(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def discard_recording(suite: Suite, case_id: str, *, since: str) -> None:
    """Remove the recording of a case that this run has written, where it turns out to be incomplete.

    Args:
        suite: the case's suite.
        case_id: the case.
        since: the start of the run; older recordings stay.
    """
    for path in (suite.pending_path(case_id), suite.cassette_path(case_id)):
        with suppress(OSError, CassetteError):
            cassette, _ = parse_cassette(read_regular(path, RECORDING), source=path.name)
            if cassette.recorded_at is not None and cassette.recorded_at >= since:
                path.unlink()


def _is_same(older: Recording, cassette: Cassette) -> bool:
    """Whether an older recording has the same answers under the same conditions."""
    try:
        before, _ = older.load()
    except (CassetteError, OSError):
        return False
    ignored: Any = {
        "recorded_at": True,
        "exchanges": {"__all__": {"usage", "prompt"}},
        "gateway": {"__all__": {"usage", "request", "headers"}},
    }
    old, new = (each.model_dump(exclude=ignored) for each in (before, cassette))
    for exchange in (*old["gateway"], *new["gateway"]):
        if isinstance(exchange["body"], dict):
            # the same answer has another id and another time
            exchange["body"] = {name: value for name, value in exchange["body"].items() if name not in _OF_EACH_ANSWER}
    return bool(old == new)


def model_exchanges(calls: Sequence[ModelCall], *, prompts: bool) -> list[dict[str, Any]]:
    """Return the exchanges of an attempt in the order in which a replay needs them, as plain JSON.

    A call that failed and was repeated has the answer of the repetition, at the position of the first try.

    Args:
        calls: the calls in the order in which they were made.
        prompts: whether to include what the model was asked.

    Raises:
        UnrecordableError: a call has no answer, not even later.
    """
    remaining = list(calls)
    exchanges: list[dict[str, Any]] = []
    asked: list[ModelRequest] = []
    while remaining:
        call = remaining.pop(0)
        tries = [call, *(other for other in remaining if other.request_sha256 == call.request_sha256)]
        answered = next((other for other in tries if other.answer is not None), None)
        if answered is None or answered.answer is None:
            raise UnrecordableError(
                f"the target gave up on a model call (role {format_value(call.request.role)}) before it was answered: "
                "such an attempt can't be replayed and is not recorded"
            )
        if answered is not call:
            end = remaining.index(answered)
            # the tries in between got no answer either
            remaining = [other for index, other in enumerate(remaining) if index > end or other not in tries]
        prompt = _prompt(answered.request, asked) if prompts else {}
        asked.append(answered.request)
        exchanges.append(_exchange(answered, answered.answer, prompt))
    return exchanges


def _prompt(request: ModelRequest, earlier: Sequence[ModelRequest]) -> dict[str, Any]:
    """Return what a model was asked; of a conversation that goes on, only what is new."""
    for position in reversed(range(len(earlier))):
        before = earlier[position]
        count = len(before.messages)
        if before.role == request.role:
            if before.system == request.system and request.messages[:count] == before.messages:
                return {"prompt": {"continues": position, "messages": list(request.messages[count:])}}
            break
    return {"prompt": {"system": request.system, "messages": list(request.messages)}}


def transcript(attempt: AttemptState, *, prompts: bool) -> list[tuple[str, str, str]]:
    """Return what the models of an attempt were asked and answered, as far as that is recorded.

    Args:
        attempt: the attempt, live or replayed.
        prompts: whether prompts may be shown; without, there is nothing to read.

    Returns:
        Role of the exchange, role of the message, and text, in order.
    """
    if not prompts:
        return []
    from pytest_packbench.engine.gateway.exchanges import transcript_of

    traffic, cassette = attempt.traffic, attempt.cassette
    said: list[dict[str, Any]] = []
    if traffic is not None and not traffic.has_recording:
        said += [call.as_exchange() for call in traffic.calls]
    elif cassette is not None:
        said += [call.model_dump() for call in cassette.gateway if call.request is not None]
    if attempt.meter is None:
        recorded = cassette.exchanges if cassette is not None else ()
        said += [exchange.model_dump() for exchange in recorded if exchange.prompt is not None]
    else:
        with suppress(UnrecordableError):
            said += model_exchanges(attempt.meter.calls, prompts=True)
    return [line for exchange in said for line in transcript_of(exchange)]


def _exchange(call: ModelCall, answer: ModelAnswer, prompt: dict[str, Any]) -> dict[str, Any]:
    stated = {
        "role": call.request.role,
        **prompt,
        "answer": answer.content,
        "refusal": answer.refusal,
        "request_sha256": call.request_sha256,
        **_usage(answer.usage),
        "tool_calls": [tool_call.as_json() for tool_call in answer.tool_calls],
        "problem": None if answer.problem is None else answer.problem._asdict(),
    }
    return {name: value for name, value in stated.items() if value or name == "answer"}


def _usage(usage: Usage | AttemptState) -> dict[str, Any]:
    counts = {"tokens_input": usage.tokens_input, "tokens_output": usage.tokens_output}
    known = {name: count for name, count in counts.items() if count is not None}
    return {"usage": known} if known else {}
