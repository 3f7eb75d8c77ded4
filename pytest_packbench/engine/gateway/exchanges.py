"""The calls of one case through the gateway: what is recorded of them, and how they are replayed."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import secrets
import time
from binascii import b2a_base64
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.gateway import stamps
from pytest_packbench.engine.gateway.likeness import alike, alike_sha256, applied, differences, recorded_sha256s
from pytest_packbench.engine.gateway.protocols import (
    CHATS,
    SHOWN,
    as_recorded,
    deciding,
    is_stream,
    joined_texts,
    kept_headers,
    model_of,
    uses_tokens,
    without_keys,
)
from pytest_packbench.files import NUMBERS, canonical_sha256
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.model.redaction import Redactor, without_credentials, without_secrets

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_packbench.backends import BackendError
    from pytest_packbench.engine.gateway.service import Gateway
    from pytest_packbench.engine.live_models import CallLimit
    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.request import Usage
    from pytest_packbench.model.suite import IgnoreRule

WEBSOCKET = 101
"""The status of a call that has become a websocket."""
UNSUPPORTED = "unsupported_call"
"""The kind of the error of a call that can't be recorded."""
QUESTIONS = ("messages", "input", "contents", "prompt")
"""The keys under which a request has what is asked."""
_MAX_DIFF_LINES = 40
_MAX_COMPARED_LINES = 2000
_SHOWN_BEFORE, _SHOWN = 20, 80
_WORD = re.compile(r"\w")
_ADVICE = "if the pipeline has changed, record it again (--packbench-mode=record)"


@dataclass(slots=True, eq=False)
class RecordedCall:
    """One call of a client of the target's own.

    Attributes:
        provider: whose protocol it is.
        method: the HTTP method.
        path: the path, and the query without keys.
        body: the JSON body of the request; None where it has none.
        asked: what is compared of it: the body without credentials, or its hash where it is no JSON.
        request_headers: the headers of the request that decide on its answer.
        redactor: removes secrets; gets to know those of the request.
        request_sha256: hash of method, path, and the body without credentials.
        model: the model that it names; empty where it names none.
        status: the HTTP status of the answer; None as long as it has not begun.
        headers: the headers of the answer, as the client gets them.
        pieces: the body of the answer.
        end: `complete`, `cut` (by the provider), `aborted` (by the client) or `refused` (the provider is not there);
            empty while it is in flight.
        usage: tokens that the provider counted; None where it states none.
        error: why it failed.
        cached: whether the answer came from the cache.
        cost_usd: what it cost, US dollars; None while it is in flight, and where that is not known.
        caller: the place in the target's code that made it; empty where that is not known.
        number: what its client calls it; empty where that is not known.
        began: when it began, monotonic seconds.
        ended: when it was over; likewise.
    """

    provider: str
    method: str
    path: str
    body: Any
    asked: Any
    request_headers: dict[str, str]
    redactor: Redactor
    request_sha256: str
    model: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    end: str = ""
    usage: Usage | None = None
    error: BackendError | None = None
    cached: bool = False
    cost_usd: float | None = 0.0
    caller: str = ""
    number: str = ""
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0

    @classmethod
    def of(
        cls,
        provider: str,
        method: str,
        target: str,
        body: bytes,
        redactor: Redactor | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> RecordedCall:
        """Return the call of a request; `target` is its path and query as the client sent them."""
        path, redactor = without_keys(target), redactor or Redactor()
        value, key = _parsed(body)
        found: list[str] = []
        # Ollama's client sends a key where there is one, and its servers need none
        ignored = ("authorization",) * (provider == "ollama")
        kept = deciding(without_credentials(headers or {}, found), ignored)
        asked = without_credentials(key, found)
        sha256 = canonical_sha256({"method": method, "path": path, "body": asked})
        redactor.add(found, "a credential of a request")
        return cls(provider, method, path, value, asked, redactor.json(kept), redactor, sha256, model_of(path, value))

    @property
    def uses_tokens(self) -> bool:
        """Whether it makes a model work, unlike a list of models or a count of tokens."""
        return self.status == WEBSOCKET or uses_tokens(self.method, self.path)

    @property
    def asks_chat_model(self) -> bool:
        """Whether it asks a chat model, unlike an embedding."""
        return self.method == "POST" and CHATS.fullmatch(self.path.partition("?")[0]) is not None

    @property
    def succeeded(self) -> bool:
        """Whether it has a whole answer that is no error, or the client stopped one."""
        return (
            self.error is None
            and self.status is not None
            and self.end in {"complete", "aborted"}
            and not self.is_given_up
        )

    @property
    def is_given_up(self) -> bool:
        """Whether the client left before it had an answer, or a part that it could use."""
        has_some = (self.is_streamed and self.content) or self.status == WEBSOCKET
        return self.end == "aborted" and not has_some

    @property
    def content(self) -> bytes:
        """The body of the answer as far as it has come."""
        return b"".join(self.pieces)

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events or lines."""
        return is_stream(self.headers.get("content-type", ""))

    @property
    def is_streamed(self) -> bool:
        """Whether the answer came in pieces: as a stream, or as a JSON list, as Gemini streams by default."""
        return self.is_stream or self.content.lstrip()[:1] == b"["

    def joined_texts(self) -> dict[str, str]:
        """Return what the events of a streamed answer spell together, by their place in the events."""
        return joined_texts(self.content) if self.is_streamed else {}

    def __str__(self) -> str:
        """Return method, path and model."""
        path = self.redactor.text(self.path)
        is_named = not self.model or f"models/{self.model}" in path
        return f"{self.method} {path}{'' if is_named else f' (model {self.model})'}"

    def shown_body(self) -> Any:
        """Return the JSON body of the request without secrets; None where it has none."""
        return self.redactor.json(without_secrets(self.body))

    def alike_sha256(self, rules: Sequence[IgnoreRule]) -> str:
        """Return a hash that it shares with calls that ask the same by the rules of a suite."""
        return alike_sha256(self.method, self.path, self.asked, rules)

    def as_exchange(self, prompts: bool = True, rules: Sequence[IgnoreRule] = ()) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Return the call as a cassette states it (see `GatewayExchange`), plain JSON without the request's secrets.

        Args:
            prompts: whether to include the body of the request, and values of its headers.
            rules: what differs in each run.
        """
        body = self.shown_body() if prompts else None
        counts = {} if self.usage is None else asdict(self.usage)
        usage = {name: count for name, count in counts.items() if count is not None}
        return {
            "provider": self.provider,
            "method": self.method,
            "path": self.redactor.text(self.path),
            "version": 3,
            "request_headers": as_recorded(self.request_headers, SHOWN if prompts else ()),
            **({"request": body} if prompts and body is not None else {}),
            "request_sha256": self.request_sha256,
            **({} if alike(self.asked, rules) == self.asked else {"alike_sha256": self.alike_sha256(rules)}),
            "status": self.status,
            "headers": kept_headers(self.headers, self.redactor),
            **answer_as_json(self.content, stream=self.is_stream),
            "end": self.end or "aborted",
            **({"usage": usage} if usage else {}),
        }


def _parsed(body: bytes) -> tuple[Any, Any]:
    """Return the JSON value of a body, None where it is none, and what is hashed of it."""
    if not body:
        return None, None
    try:
        value = json.loads(body, object_pairs_hook=_once_each, **NUMBERS)
        canonical_sha256(value)
    except (ValueError, RecursionError):
        return None, {"sha256": hashlib.sha256(body).hexdigest()}
    return value, value


def _once_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, unless it names a member twice: who reads the first one reads another request."""
    value = dict(members)
    if len(value) < len(members):
        raise ValueError("a member is there twice")
    return value


def answer_as_json(content: bytes, *, stream: bool) -> dict[str, Any]:
    """Return the key and the value under which a cassette keeps an answer; nothing where it is empty."""
    if not content:
        return {}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"stream_base64" if stream else "body_base64": b2a_base64(content, newline=False).decode("ascii")}
    if stream:
        return {"stream": text}
    value = _lossless(text)
    return {"text": text} if value is None else {"body": value}


def _lossless(text: str) -> Any:
    """Return the JSON value of a text that can be written again as the same text but for its spaces; else None."""
    try:
        value = json.loads(text, **NUMBERS)
        # repeated names, and numbers that Python writes otherwise, make a difference
        written = [json.dumps(value, ensure_ascii=plain) for plain in (False, True)]
        written[0].encode()
    except (ValueError, RecursionError):
        return None
    return value if "".join(text.split()) in ["".join(each.split()) for each in written] else None


@dataclass(slots=True, eq=False)
class CaseTraffic:
    """The calls of one attempt at a case through the gateway.

    Attributes:
        case_id: the case.
        gateway: the gateway.
        recorded: the exchanges to replay; none where calls are forwarded.
        trial: the number of the attempt at the case, from 0.
        suite: the case's suite, which is compared by identity.
        ignored_headers: names of headers that do not decide on an answer, in addition to those that never do.
        ignored: what differs in each run in the bodies of requests.
        token: names the case to the gateway, in the path or in a header.
        calls: the calls in the order in which they began.
        replayed: the positions of the exchanges that were replayed.
        borrowed: the exchanges of the shared recording that were replayed.
        mismatch: the first call that is not in the recording, in one line, or what is in it and was not asked for.
        difference: the lines of a unified diff of that call and the nearest recorded one.
        unattributed: the first call that can't be attributed to this or another case, in one line.
        capped: the cap of the run that refused a call; None as long as none did.
        limit: limits the calls of chat models; None for no limit.
        strayed: whether a request of its code went past the gateway.
        given_up: whether it has ended although its target goes on.
        refused: the error of the first request that the gateway does not serve.
        neighbours: the cases that were active during its calls.
        kept: answers of an earlier recording in part, which are not asked for again.
        tasks: what answers the calls in flight, on the gateway's event loop.
        started: when it began, monotonic seconds.
        waited_s: how long calls were left open until their clients ended them, as when they were recorded, seconds.
    """

    case_id: str
    gateway: Gateway
    recorded: tuple[GatewayExchange, ...] = ()
    trial: int = 0
    suite: Any = None
    ignored_headers: tuple[str, ...] = ()
    ignored: tuple[IgnoreRule, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    calls: list[RecordedCall] = field(default_factory=list)
    replayed: set[int] = field(default_factory=set)
    borrowed: list[GatewayExchange] = field(default_factory=list)
    mismatch: str = ""
    difference: tuple[str, ...] = ()
    unattributed: str = ""
    capped: BackendError | None = None
    limit: CallLimit | None = None
    strayed: bool = False
    given_up: bool = False
    refused: BackendError | None = None
    neighbours: set[CaseTraffic] = field(default_factory=set)
    kept: list[GatewayExchange] = field(default_factory=list)
    tasks: dict[asyncio.Task[None], RecordedCall] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    waited_s: float = 0.0

    @property
    def key(self) -> tuple[object, str]:
        """The suite and the case's id."""
        return self.suite, self.case_id

    @property
    def has_recording(self) -> bool:
        """Whether there is anything to replay."""
        return bool(self.recorded)

    @property
    def recorded_wait_s(self) -> float:
        """How long after its beginning the last call ended that its client ended, when it was recorded, seconds."""
        return max((each.ended_ms or 0 for each in self.recorded if each.end == "aborted"), default=0) / 1000

    def as_exchanges(self, *, prompts: bool = True) -> list[dict[str, Any]]:
        """Return the calls as a cassette states them; with their times, if a replay has to wait for clients."""
        exchanges = [call.as_exchange(prompts, self.ignored) for call in self.calls]
        if any(each["end"] == "aborted" for each in exchanges):
            for call, each in zip(self.calls, exchanges, strict=False):
                times = (call.began, max(call.ended, call.began))
                each["began_ms"], each["ended_ms"] = (round((at - self.started) * 1000) for at in times)
        return exchanges

    def lacks_rival(self, exchange: GatewayExchange) -> bool:
        """Whether a call has not begun that had when this answer was complete, and that its client ended."""
        end = exchange.ended_ms
        return end is not None and any(
            other.end == "aborted" and (other.began_ms or 0) < end and position not in self.replayed
            for position, other in enumerate(self.recorded)
        )

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight."""
        return any(not call.end for call in self.calls)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Attribute the calls of this context to the case; afterwards its token is revoked, and calls in flight end."""
        self.gateway.enter(self)
        try:
            with stamps.stamped(self.token) as stamp:
                yield
                self.strayed = stamp.strayed
        finally:
            self.gateway.leave(self)

    def close(self) -> None:
        """End the case although its target goes on: what it still asks for is refused."""
        self.given_up = True
        self.gateway.leave(self)

    def repetition(self, call: RecordedCall) -> int:
        """Return how often this very call was made before, without an error."""
        earlier = (other for other in self.calls if other is not call and other.error is None)
        return sum(
            1 for other in earlier if (other.provider, other.request_sha256) == (call.provider, call.request_sha256)
        )

    def take(self, call: RecordedCall) -> GatewayExchange | None:
        """Return the next recorded answer to a call; None where there is none, which is a mismatch."""
        for is_of in (self.is_of, self._is_like):
            for position, exchange in enumerate(self.recorded):
                if position not in self.replayed and is_of(exchange, call):
                    self.replayed.add(position)
                    return exchange
        try:
            shared, problem = self.gateway.shared.take(self, call), ""
        except CassetteError as error:
            shared, problem = None, str(error)
        if shared is None and not self.mismatch:
            self.mismatch = problem or self._missing(call)
        return shared

    def take_kept(self, call: RecordedCall) -> GatewayExchange | None:
        """Return the next answer to a call that is kept of an earlier recording; None where there is none."""
        found = next((exchange for exchange in self.kept if self.is_of(exchange, call)), None)
        if found is not None:
            self.kept.remove(found)
        return found

    def finish(self) -> None:
        """Report recorded exchanges that nobody asked for as a mismatch."""
        made, total = len(self.replayed), len(self.recorded)
        left = sorted({*range(total)} - self.replayed) if made < total and not self.mismatch else ()
        for position in left:
            if not self.gateway.shared.has(self, first := self.recorded[position]):
                self.mismatch = (
                    f"the target's own client made only {made} of the {total} "
                    f"recorded calls; not made: /gateway/{position}, {first.method} {first.path}; {_ADVICE}"
                )
                break

    def unrecovered_error(self, *, returned: bool = True, tests_fallback: bool = False) -> BackendError | None:
        """Return the first error of a call from which the target did not recover.

        Args:
            returned: whether the target returned. If it raised, a call that its client gave up is told by that.
            tests_fallback: whether a target may do without any answer.

        It has recovered where a call succeeded later, of a chat model if that failed: the pipeline may have asked
        another one. A call that its client gave up before it had an answer has failed too, unless another one succeeded
        meanwhile or later. There is no recovery from a call that can't be recorded.
        """
        from pytest_packbench.backends import BackendError

        if self.refused is not None:
            return self.refused
        for position, call in enumerate(self.calls):
            error = call.error
            if error is None and returned and call.is_given_up:
                error = BackendError("timeout", f"{call.provider}: {call}: the client gave up before it had an answer")
            if error is None:
                continue
            if error.kind == UNSUPPORTED:
                return error
            since = call.began if call.is_given_up else call.ended
            if not tests_fallback and not any(
                other.succeeded
                and (later > position or other.ended > since)
                and (other.asks_chat_model or not call.asks_chat_model)
                for later, other in enumerate(self.calls)
            ):
                return error
        return None

    def is_of(self, exchange: GatewayExchange, call: RecordedCall) -> bool:
        """Whether an exchange is the recording of a call."""
        return self._asks(exchange, call) and not self._other_headers(exchange, call)

    def _is_like(self, exchange: GatewayExchange, call: RecordedCall) -> bool:
        """Whether an exchange is the recording of a call but for what differs in each run."""
        if exchange.provider != call.provider or self._other_headers(exchange, call):
            return False
        return call.alike_sha256(self.ignored) in recorded_sha256s(exchange, self.ignored)

    def _asks(self, exchange: GatewayExchange, call: RecordedCall) -> bool:
        """Whether a recorded request is that of a call, but for its headers."""
        return (exchange.provider, exchange.request_sha256) == (call.provider, call.request_sha256)

    def _other_headers(self, exchange: GatewayExchange, call: RecordedCall) -> list[str]:
        """Return the names of headers that differ from the recorded ones; none where these are not known."""
        if exchange.request_headers is None:
            return []
        recorded = deciding(exchange.request_headers, self.ignored_headers)
        return sorted(dict(as_recorded(recorded).items() ^ as_recorded(call.request_headers).items()))

    def _missing(self, call: RecordedCall) -> str:
        if not self.recorded:
            return (
                f"the target's own client calls a model ({call}), and the case has no recorded exchanges; "
                "record them (--packbench-mode=record)"
            )
        same = [exchange for exchange in self.recorded if self.is_of(exchange, call)]
        if same:
            return f"{call}: asked more often than the {len(same)} time(s) that it was recorded; {_ADVICE}"
        asked = call.shown_body()
        nearest = self._nearest(call, asked)
        problem = f"{call} is none of the {len(self.recorded)} recorded requests"
        if nearest is None:
            return f"{problem}, of which none has a body to compare; {_ADVICE}"
        exchange = self.recorded[nearest]
        if self._asks(exchange, call):
            where = (
                "with other headers (name those that decide on no answer in suite.yaml, recording: ignore_headers): "
                f"{', '.join(self._other_headers(exchange, call))}"
            )
        else:
            where = self._compared(exchange, call, asked) + self._declared(exchange, call)
        return f"{problem}; the nearest is /gateway/{nearest}, {where}; {_ADVICE}"

    def _declared(self, exchange: GatewayExchange, call: RecordedCall) -> str:
        """Return which rules would make a call that of an exchange, and which do nothing; empty where none would."""
        now, known_only = call.shown_body(), not self.gateway.checks
        both = (alike(without_secrets(each), self.ignored) for each in (exchange.request, now))
        found = [*differences(*both, known_only=known_only)]
        texts = [
            f"suite.yaml: /recording/ignore/{number} matches nothing in it"
            for number, rule in enumerate(self.ignored)
            if applied(rule, now) == now
        ]
        if found and all(rules for _, rules in found):
            declared = json.dumps([rule for _, rules in found for rule in rules], ensure_ascii=False)
            texts.append(f"if it differs in every run, declare that in suite.yaml: recording: {{ignore: {declared}}}")
        elif not known_only:
            places = ", ".join(place for place, _ in found[:3])
            texts.append(f"it differs at {places}: have it ask the same in each run, or declare recording: ignore")
        return "".join(f"; {text}" for text in texts)

    def _nearest(self, call: RecordedCall, asked: Any) -> int | None:
        """Return the position of the recorded request that is most like a call."""
        now = _lines(asked)
        alike = []
        for position, exchange in enumerate(self.recorded):
            if self._asks(exchange, call):
                # the same, but for its headers
                return position
            if exchange.request is not None and exchange.provider == call.provider:
                ratio = difflib.SequenceMatcher(None, _lines(exchange.request), now, autojunk=False).ratio()
                alike.append((ratio + (exchange.path == call.path), -position))
        return -max(alike)[1] if alike else None

    def _compared(self, exchange: GatewayExchange, call: RecordedCall, asked: Any) -> str:
        """Return how a recorded request and a call differ first; keep all differences."""
        before = [f"{exchange.method} {exchange.path}", *_lines(exchange.request)]
        after = [f"{call.method} {call.path}", *_lines(asked)]
        lines = list(difflib.unified_diff(before, after, "recorded", "now", lineterm="", n=1))
        more = [f"... {len(lines) - _MAX_DIFF_LINES} more lines"] if len(lines) > _MAX_DIFF_LINES else []
        self.difference = (*lines[:_MAX_DIFF_LINES], *more)
        if not lines:
            return "which differs in what is not shown (a redacted value)"
        first = list(takewhile(lambda line: line[0] != "@", lines[3:]))
        old, new = (
            next((line[1:].strip(" ,") for line in first if line[0] == sign and _WORD.search(line)), "nothing")
            for sign in "-+"
        )
        start = max(0, len(commonprefix([old, new])) - _SHOWN_BEFORE)  # noqa: RUF071 - of texts, not of paths
        return f"recorded {old[start:][:_SHOWN]}, now {new[start:][:_SHOWN]}"


def _lines(value: Any) -> list[str]:
    # older recordings contain some
    shown = without_secrets(value)
    return json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False).splitlines()[:_MAX_COMPARED_LINES]


_WRAPPED = ("choices", "candidates", "message", "content", "parts", "text")
_ANSWERS = ("answer", "body", "text", "stream", "body_base64", "stream_base64")


def transcript_of(exchange: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the messages and the answer of an exchange with its request or prompt: title, role and text of each.

    Args:
        exchange: as a cassette states it, with all its keys or without those that are not set.
    """
    title = exchange.get("role") or f"{exchange['method']} {exchange['path']}"
    asked = without_secrets(exchange.get("request") or exchange.get("prompt"))
    lines = []
    if isinstance(asked, dict):
        lines = [(title, "system", _said(asked[name])) for name in ("system", "instructions") if asked.get(name)]
        asked = next((asked[name] for name in QUESTIONS if asked.get(name)), asked)
    for message in asked if isinstance(asked, list) else [asked]:
        role = message.get("role") if isinstance(message, dict) else None
        lines += [(title, str(role or "user"), _said(message))] if message is not None else []
    status = exchange.get("status", 200)
    label = "answer" if status == 200 else f"answer (status {status or 'none'})"  # noqa: PLR2004 - the status of success
    if (end := exchange.get("end", "complete")) != "complete":
        label = f"{label}, {end}"
    answer = exchange.get("tool_calls") or exchange.get("refusal") or answer_of(exchange)
    return [*lines, (title, label, _said(answer))]


def answer_of(exchange: Mapping[str, Any]) -> Any:
    """Return the answer in an exchange; None where it is empty."""
    return next((exchange[name] for name in _ANSWERS if exchange.get(name) is not None), None)


def _said(value: Any) -> str:
    """Return the text of a message or an answer, in whatever it is wrapped; of one with more than text, its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(_said, value))
    if isinstance(value, dict) and not (value.get("tool_calls") or value.get("refusal")):
        inner = next((value[name] for name in _WRAPPED if value.get(name)), None)
        if inner is not None:
            return _said(inner)
    return "" if value is None else json.dumps(value, ensure_ascii=False)
