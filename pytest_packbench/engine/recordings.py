"""Recordings: replay model calls from a cassette, and write the cassette of an attempt, with its conditions.

The conditions are the target, the guards, the judges and the pack; a recording is replayed under those of its time
only.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.finder import Recording, find_recording
from pytest_packbench.cases.load import load_recording, parse_cassette
from pytest_packbench.files import RECORDING, canonical_sha256, read_regular, write_atomic
from pytest_packbench.model.errors import CassetteError, Problem, format_value, single_spaced
from pytest_packbench.model.request import (
    AnswerError,
    AnswerProblem,
    ModelAnswer,
    ModelRequest,
    Tool,
    ToolCall,
    Usage,
    VerifyRequest,
)
from pytest_packbench.model.run import STUB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.live_models import ModelCall
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.recording import Cassette, Exchange, GatewayExchange, RecordedPart, RecordedTool
    from pytest_packbench.model.suite import IgnoreRule, Suite


# the keys of exchanges that a model, its provider, or a target outside this process wrote
_ANSWER = frozenset({"answer", "refusal", "tool_calls", "problem"})
_GATEWAY_ANSWER = frozenset({"headers", "body", "text", "body_base64", "stream", "stream_base64"})
_OF_EACH_ANSWER = frozenset(
    {"id", "created", "created_at", "completed_at", "responseId", "system_fingerprint", "total_duration"}
    | {"load_duration", "prompt_eval_duration", "eval_duration", "usage", "usageMetadata"}
)
REFERENCE = "reference"
"""The name of a pack's own target in records."""
_PREFIXES = {"http://": "http", "https://": "http", "cmd:": "cmd", "hook:": "hook"}
_ADVICE = "if the pipeline's steps changed, edit the recording or record it again (--packbench-mode=record)"
_SHOWN = 200
"""So much of the end of a call that has no recording is shown, characters: it has what the pipeline wants now."""


class ReplayError(RuntimeError):
    """The target's calls differ from the cassette's exchanges."""


class UnrecordableError(RuntimeError):
    """A model call of the target was never answered: no replay could reproduce it."""


def check_belongs(cassette: Cassette, *, case_id: str, input_sha256: str, source: object) -> None:
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
        cassette, _ = load_recording(find_recording(suite, case_id))
        return len(cassette.exchanges) + len(cassette.gateway)
    except (CassetteError, OSError):
        return None


@dataclass(slots=True, eq=False)
class Replay:
    """Answers a target's model calls from a cassette, by position and role.

    A target may ignore the exception that its model call raises, so the first mismatch is stored in `mismatch`.

    Attributes:
        cassette: the recording; None where there is none.
        source: what names the cassette's file in messages.
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
    source: object
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
        position, exchanges = self.used, self.exchanges
        if position >= len(exchanges) or exchanges[position].role != request.role:
            raise self._mismatch(self._why_not(request))
        exchange = exchanges[position]
        self.used += 1
        if request.tools and request.tools != self.offered:
            self.offered = request.tools
            self.tools += request.tools
        if not self._is_of(exchange.request_sha256, request):
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
        if unread is None:
            return answer
        self.truncated |= unread.kind == "truncated"
        return answer.readable()

    def _why_not(self, request: ModelRequest) -> str:
        """Return why the next call is not answered, in one line."""
        role, position, exchanges = format_value(request.role), self.used, self.exchanges
        if self.no_backend:
            return (
                f"the target calls a model (role {role}), and no backend is set; "
                "use --packbench-backend and --packbench-model"
            )
        if self.cassette is None:
            return (
                f"the target calls a model (role {role}), and the case has no cassette; "
                "record one (--packbench-mode=record), or write one (for its format: packbench schema cassette)"
            )
        if position >= len(exchanges):
            end = single_spaced(str(request.messages[-1].get("content")))[-_SHOWN:] if request.messages else ""
            ends = f"; it ends in {json.dumps(end, ensure_ascii=False)}" if end else ""
            return f"call {position + 1} (role {role}) exceeds the {len(exchanges)} recorded ones{ends}; {_ADVICE}"
        recorded = format_value(exchanges[position].role)
        return f"/exchanges/{position}/role: got {recorded}; the call of the target has the role {role}; {_ADVICE}"

    def result(self, request: VerifyRequest) -> Any:
        """Return the recorded result of a target outside this process (role `verify`); sets `stale`.

        Args:
            request: today's request.

        Raises:
            ReplayError: there is no such recording.
            AnswerError: the result could not be read when it was recorded.
        """
        from pytest_packbench.model.recording import VERIFY_ROLE

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

    def _is_of(self, sha256: str | None, request: ModelRequest | VerifyRequest) -> bool:
        """Whether an answer is that to a request; one that a person wrote answers any request, a recorded one none."""
        if sha256 is None:
            return self.cassette is not None and self.cassette.origin == "authored"
        return sha256 == canonical_sha256(request.as_json())

    def finish(self) -> None:
        """Report other tools than the recorded ones, and exchanges that were not replayed, as a mismatch."""
        if self.cassette is not None and not self.mismatch and (self.tools or self.cassette.conditions.tools):
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
    from pytest_packbench.model.recording import CASSETTE_VERSION, VERIFY_ROLE

    tools: list[Tool] | None = None
    exchanges: list[dict[str, Any]] = []
    prompts = context.options.record_prompts and loaded.case.keeps_prompts
    # a server does not run for a replay
    can_run = not context.caller.opaque or context.caller.runs_offline
    gateway = state.traffic.as_exchanges(prompts=prompts) if state.traffic is not None and can_run else []
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
        The cassette and the hash of its content, as `load_recording` returns them.

    Raises:
        OSError: it can't be written; an older recording stays as it was.
    """
    from pytest_packbench.model.recording import Cassette

    older = find_recording(suite, case_id)
    cassette = Cassette.model_validate(data)
    path = suite.pending_path(case_id) if older.exists() else suite.cassette_path(case_id)
    if older.exists() and _is_same(older, cassette, suite.config.recording.ignore):
        path.unlink(missing_ok=True)
    else:
        write_recording(path, data)
    suite.partial_path(case_id).unlink(missing_ok=True)
    return cassette, canonical_sha256(data)


def partial_exchanges(suite: Suite, case_id: str) -> list[GatewayExchange]:
    """Return the answers in a case's partial recording, which record mode need not pay for again."""
    path = suite.partial_path(case_id)
    with suppress(OSError, CassetteError):
        cassette, _ = parse_cassette(read_regular(path, RECORDING), source=path.name)
        return [each for each in cassette.gateway if (each.status, each.end) == (200, "complete")]
    return []


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
    """Write a recording, whole or not at all; a hidden folder, such as that of pending ones, is ignored by git.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name.startswith("."):
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


def _is_same(older: Recording, cassette: Cassette, rules: Sequence[IgnoreRule]) -> bool:
    """Whether an older recording has the same answers under the same conditions, but for what differs in each run."""
    from pytest_packbench.engine.gateway.likeness import recorded_sha256s

    try:
        before, _ = load_recording(older)
    except (CassetteError, OSError):
        return False
    ignored: Any = {
        "recorded_at": True,
        "conditions": {"recording"},
        "exchanges": {"__all__": {"usage", "prompt"}},
        "gateway": {"__all__": {"usage", "request", "headers", "began_ms", "ended_ms"}},
    }
    old, new = (each.model_dump(exclude=ignored) for each in (before, cassette))
    calls = (*before.gateway, *cassette.gateway)
    for call, exchange in zip(calls, (*old["gateway"], *new["gateway"]), strict=True):
        exchange["request_sha256"] = [*recorded_sha256s(call, rules), call.request_sha256][0]
        if isinstance(exchange["body"], dict):
            # the same answer has another id and another time
            exchange["body"] = {name: value for name, value in exchange["body"].items() if name not in _OF_EACH_ANSWER}
    for recording in (old, new):
        # the same calls at once begin in any order, and a replay finds each by its request
        recording["gateway"] = sorted(map(canonical_sha256, recording["gateway"]))
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


class Part(NamedTuple):
    """A guard or a judge of a run; see `RecordedPart`."""

    name: str
    settings: dict[str, Any]
    code_sha256: str | None


def guard_name(guard: Any) -> str:
    """Return a guard's `name`, else the name of its class or function."""
    name = getattr(guard, "name", None)
    if isinstance(name, str) and name:
        return name
    return getattr(guard, "__qualname__", None) or type(guard).__qualname__


def parts_of(named: Iterable[tuple[str, Any]]) -> tuple[Part, ...]:
    """Describe guards or judges as they are before the first case: their name, their settings, a hash of their code.

    Args:
        named: each with its name; None in the place of one that the pack provides itself.

    Returns:
        One part for each. The settings are what the attribute `settings` contains, else all attributes of the object.
        The code is the source file of its class or function.
    """
    return tuple(Part(name, _settings_of(part), _code_sha256(part)) for name, part in named)


def judges_of(pack: Pack, rules: Any, registered: Mapping[str, Any]) -> tuple[Part, ...]:
    """Describe the judges of a suite: those that it names, and the models that its pack asks beside the one under test.

    Args:
        pack: its pack.
        rules: the content of its `suite.yaml`.
        registered: the judges of the user, by name.
    """
    judges = pack.judges(rules)
    named = parts_of((name, registered.get(name)) for name in judges.names)
    asked = (
        Part(role, {"role": role, "backend": backend, "model": model}, None)
        for role, (backend, model, *_) in judges.roles.items()
    )
    return (*named, *asked)


def recorded_conditions(context: SuiteContext, tools: Sequence[Tool] | None) -> dict[str, Any]:
    """Return the conditions of a recording as plain JSON.

    Args:
        context: the suite's.
        tools: the tools that the model was offered; None where that is not known.
    """
    rules = context.suite.config.recording.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        "target": target_of(context),
        "pack": {"name": context.pack.name, "version": context.pack.version},
        "guards": [part._asdict() for part in context.guard_parts],
        "judges": [part._asdict() for part in context.judge_parts],
        "tools": None if tools is None else [{"name": name, "sha256": sha256} for name, sha256 in tool_hashes(tools)],
        **({"recording": rules} if rules else {}),
    }


def target_of(context: SuiteContext) -> dict[str, str]:
    """Return the kind and the address of a suite's target, without secrets."""
    name = context.target_name
    if name == REFERENCE:
        return {"kind": REFERENCE, "address": context.pack.name}
    kind = next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), "python")
    return {"kind": kind, "address": name if kind == "http" else name.removeprefix(f"{kind}:")}


def tool_hashes(tools: Iterable[Tool]) -> list[tuple[str, str]]:
    """Return name and hash of each distinct tool, sorted."""
    return sorted({(tool.name, canonical_sha256(tool.as_json())) for tool in tools})


def check_conditions(cassette: Cassette, context: SuiteContext, *, case_id: str, source: object) -> str:
    """Check that a recording was made under the conditions of this run.

    Guards and judges, and for a target outside this process the target and the code of both, must be those of the
    recording: what is replayed has not met today's. A Python target runs again, so it may differ, and so may the code
    of its guards.

    Args:
        cassette: the recording.
        context: the suite's.
        case_id: the case, for the command that records it again.
        source: what names the recording's file in messages.

    Returns:
        What has changed without making the recording invalid, in one line; empty if nothing has.

    Raises:
        CassetteError: a condition differs; names both sides and the command that records it again.
    """
    recorded, opaque, pack = cassette.conditions, context.caller.opaque, context.pack

    def invalid(pointer: str, problem: str) -> CassetteError:
        return CassetteError(source, [Problem(pointer, problem, record_again(context, case_id))])

    parts = (("guard", recorded.guards, context.guard_parts), ("judge", recorded.judges, context.judge_parts))
    is_replayed_whole = not cassette.gateway and (opaque or recorded.target.kind in {"http", "cmd"})
    targets = (recorded.target.model_dump(), target_of(context)) if is_replayed_whole else (None, None)
    compared: list[tuple[str, Any, Any, Callable[[Any], str]]] = [
        ("/conditions/pack/name", recorded.pack.name, pack.name, '"{}"'.format),
        ("/conditions/target", *targets, _target_text),
        *((f"/conditions/{kind}s", _settings(old), _settings(new), _parts_text) for kind, old, new in parts),
    ]
    for pointer, before, now, told in compared:
        if before != now:
            raise invalid(pointer, f"recorded with {told(before)}, run with {told(now)}")
    if context.backend == STUB and cassette.llm_model in {*context.suite.config.scripted} - {context.model}:
        raise invalid("/llm_model", f"recorded with the scripted model {cassette.llm_model}, run with {context.model}")
    remarks = []
    if cassette.gateway and cassette.gateway[0].version is None:
        remarks.append("recorded without the headers of requests, so they are not compared")
    for kind, old, new in parts:
        changed = [part.name for part, before in zip(new, old, strict=True) if part.code_sha256 != before.code_sha256]
        if changed and opaque:
            raise invalid(f"/conditions/{kind}s", f"the code of {', '.join(changed)} has changed since")
        # the answers of a person are from no run with these guards
        if cassette.origin != "authored":
            remarks += [f"the code of {kind} {name} has changed since the recording" for name in changed]
    if cassette.origin == "recorded" and recorded.pack.version not in {None, pack.version}:
        remarks.append(f"recorded with version {recorded.pack.version} of the pack {pack.name}, now {pack.version}")
    return "; ".join(remarks)


def tools_problem(recorded: Sequence[RecordedTool] | None, offered: Iterable[Tool]) -> str:
    """Return how the tools that the model was offered differ from the recorded ones; empty if they don't."""
    if recorded is None:
        return ""
    before = {tool.name: tool.sha256 for tool in recorded}
    now = dict(tool_hashes(offered))
    if before == now:
        return ""
    differing = {name for name, _ in before.items() ^ now.items()}
    changed = f"the tools {_names(before)}, run with {_names(now)}; these differ: {_names(differing)}"
    return f"/conditions/tools: recorded with {changed}"


def record_again(context: SuiteContext, case_id: str) -> str:
    """Return the advice to record a case again, with the command; the backend is the user's choice."""
    options = context.options
    # as in records: a URL or a command may contain a secret
    target = f" --packbench-target={shlex.quote(context.target_name)}" if options.target else ""
    guards = "none" if options.guards == () else ",".join(options.guards or ())
    guard = f" --packbench-guard={shlex.quote(guards)}" if guards else ""
    command = f"pytest --packbench-suite={context.suite.name} --packbench-mode=record{target}{guard} -k {case_id}"
    return f"record it again: {command}"


def _target_text(target: Mapping[str, str]) -> str:
    kind, address = target["kind"], target["address"]
    return address if kind in {"http", "python"} else f"{kind}:{address}"


def _settings(parts: Iterable[RecordedPart | Part]) -> list[tuple[str, dict[str, Any]]]:
    return [(part.name, part.settings) for part in parts]


def _parts_text(parts: Iterable[tuple[str, dict[str, Any]]]) -> str:
    texts = []
    for part, stated in parts:
        settings = ", ".join(f"{name}={format_value(value)}" for name, value in stated.items())
        texts.append(f"{part} ({settings})" if settings else part)
    return ", ".join(texts) or "none"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _settings_of(part: Any) -> dict[str, Any]:
    if part is None or inspect.isfunction(part):
        return {}
    stated = getattr(part, "settings", None)
    if not isinstance(stated, dict):
        slots = [name for owner in type(part).__mro__ for name in _slots(owner)]
        stated = {
            **{name: getattr(part, name) for name in slots if hasattr(part, name)},
            **getattr(part, "__dict__", {}),
        }
    return {str(name): _plain(value) for name, value in sorted(stated.items()) if name != "name"}


def _slots(owner: type) -> Sequence[str]:
    slots = owner.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if not name.startswith("__"))


def _plain(value: Any) -> Any:
    """Return a setting as JSON; of an object that is none, its type, since its text may contain an address."""
    if value is None or isinstance(value, bool | int | float | str | Path):
        return value.name if isinstance(value, Path) else value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=str)
    if isinstance(value, re.Pattern):
        return value.pattern if isinstance(value.pattern, str) else repr(value.pattern)
    kind = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _code_sha256(part: Any) -> str | None:
    if part is None:
        return None
    code = part if inspect.isroutine(part) or isinstance(part, type) else type(part)
    try:
        file = inspect.getsourcefile(code)
        content = Path(file).read_bytes() if file is not None else None
    except (TypeError, OSError):
        return None
    return None if content is None else hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()
