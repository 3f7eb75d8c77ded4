"""The gateway as a whole: whose a call is, and whether it is forwarded, replayed or refused."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.backends import BackendError
from pytest_packbench.backends.client import OVERLOADED, ErrorFactory
from pytest_packbench.engine.gateway import stamps
from pytest_packbench.engine.gateway.exchanges import UNSUPPORTED, WEBSOCKET, CaseTraffic, RecordedCall
from pytest_packbench.engine.gateway.protocols import (
    PROVIDERS,
    Provider,
    as_recorded,
    deciding,
    error_body,
    error_in,
    is_allowed,
    is_final,
    served_path,
    upstreams_of,
    usage_of,
    variables_for,
    without_login,
)
from pytest_packbench.engine.gateway.server import LoopbackServer, Reply, Request
from pytest_packbench.engine.gateway.shared import SharedCalls
from pytest_packbench.engine.offline import note_late
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.run import MAX_UNREADABLE, Caps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.engine.gateway.upstream import Answer, Upstream
    from pytest_packbench.engine.live_models import AnswerCache, Ledger
    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.suite import Prices

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Longer answers are cut off."""
_BAD_REQUEST, _NOT_FOUND = 400, 404
_FIRST_REDIRECT, _NOT_MODIFIED, _FIRST_ERROR = 300, 304, 400
_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_WHOLE = 3
"""The version of recordings that have all headers of answers."""
_RETRY_COUNT = "x-stainless-retry-count"
_SLACK_S, _POLL_S = 10.0, 0.005
_HIDDEN_HEADERS = frozenset(
    {
        *("alt-svc", "connection", "content-length", "keep-alive", "proxy-authenticate"),
        *("set-cookie", "strict-transport-security", "trailer", "transfer-encoding", "upgrade"),
    }
)
# servers and proxies may take such a path for another one, or for another host
_AMBIGUOUS = re.compile(r"(?i)[^?]*([@\\#]|%([01].|2[ef]|5c|7f)|/\.\.?([/?]|$))")
_SETTLE_STEPS, _SETTLE_STEP_S = 100, 0.001
_NO_PROXY = "127.0.0.1,localhost"
_REMEDY = "run one case at a time (--packbench-concurrency=1), or start workers inside the case that they work for"

_INSIDE = "make it inside a case, whose calls can be recorded (--packbench-mode=record)"


class _Owner(NamedTuple):
    """Whose a call is: a case's, or nobody's.

    Attributes:
        case: the case.
        refusal: why it is refused; empty where it isn't.
        is_counted: whether it is counted although it is nobody's.
        shared: what answers it although it is nobody's.
    """

    case: CaseTraffic | None = None
    refusal: str = ""
    is_counted: bool = False
    shared: GatewayExchange | None = None


class _Asked(NamedTuple):
    """A request, the call that is kept of it, and its answer."""

    provider: Provider
    request: Request
    path: str
    call: RecordedCall
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What calls are subject to, as soon as the run knows.

    Attributes:
        ledger: counts calls, and refuses them once a cap is reached.
        price: returns the price of a model's tokens, by provider and model.
        on_overload: called when a provider is overloaded.
        cache: answers calls that were answered in an earlier run.
        redactor: the run's.
        record: whether calls are recorded, so that one that can't be attributed is an error.
        conversation_of: returns the conversation of a call, where calls are an app's and no case's (`Conversations`).
    """

    ledger: Ledger | None = None
    price: Callable[[str, str], Prices | None] | None = None
    on_overload: Callable[[], None] | None = None
    cache: AnswerCache | None = None
    redactor: Redactor = field(default_factory=Redactor)
    record: bool = False
    conversation_of: Callable[..., CaseTraffic | None] | None = None


class Gateway:
    """Serves the protocols of providers on loopback, in a thread of its own.

    Args:
        offline: whether nothing is ever forwarded (fixture mode): then there is nothing that could.
        upstreams: the address of each provider, fixed before the run; by default what the environment says now.
        port: the port to serve at; 0 for any that is free.
        folders: the folders of the suites.

    Attributes:
        url: `http://127.0.0.1:PORT/SECRET`.
        address: host and port.
        offline: whether nothing is ever forwarded.
        upstreams: the address of each provider.
        checks: whether a run that has recorded looks for what differs in each run.
        shared: the calls that are recorded for all cases of a suite.
        before: the calls that were forwarded before the first case, such as those of imports.
        outside: the stamp of work that belongs to no case, whichever run at the same time.
    """

    def __init__(
        self,
        *,
        offline: bool,
        upstreams: Mapping[str, str] | None = None,
        port: int = 0,
        folders: Sequence[Path] = (),
    ) -> None:
        self.offline = offline
        self.checks = False
        self.upstreams = {**upstreams_of(os.environ), **(upstreams or {})}
        self._server = LoopbackServer(self._handle, self._turned_away, port)
        self.url = self._server.url
        self.address = self._server.address
        self._upstream: Upstream | None = None
        if not offline:
            from pytest_packbench.engine.gateway.upstream import Upstream

            self._upstream = Upstream()
        self._settings = _Settings()
        self.outside, self.shared = CaseTraffic("", self).token, SharedCalls(folders)
        self.before: list[RecordedCall] = []
        self._lock = threading.Lock()
        self._open: dict[str, CaseTraffic] = {}
        # the case, and whether its target goes on
        self._ended: dict[str, tuple[tuple[object, str], bool]] = {}
        self._children: dict[str, CaseTraffic | None] = {}
        self._active: list[CaseTraffic] = []

    def start(self) -> None:
        """Start to serve; the address is taken already, and earlier calls wait."""
        self._server.start()

    def stop(self) -> None:
        """Close all connections and the address."""
        if self._upstream is not None and self._server.is_running:
            self._server.loop.call_soon_threadsafe(self._upstream.close)
        self._server.stop()

    def configure(self, **settings: Any) -> None:
        """Set what calls are subject to; see `_Settings`."""
        self._settings = _Settings(**settings)

    @property
    def _redactor(self) -> Redactor:
        return self._settings.redactor

    def environment(self, token: str = "") -> dict[str, str]:
        """Return the variables by which clients find the gateway.

        Args:
            token: that of a case or of `child_token`, for a child; empty for this process.
        """
        url = f"{self.url}/case/{token}" if token else self.url
        values = variables_for(url, placeholders=self.offline, environment=os.environ)
        for name in ("NO_PROXY", "no_proxy"):
            before = os.environ.get(name, "")
            if before != "*":
                values[name] = before if _NO_PROXY in before else ",".join(filter(None, [before, _NO_PROXY]))
        return values

    def open_case(
        self, case_id: str, recorded: Sequence[GatewayExchange] | None = None, *, trial: int = 0, suite: object = None
    ) -> CaseTraffic:
        """Return what collects, or replays, the calls of one attempt at a case; its token is valid from now.

        Args:
            case_id: the case.
            recorded: the exchanges to replay; None to forward calls.
            trial: the number of the attempt at the case, from 0.
            suite: the case's suite, which `take_late` compares by identity.
        """
        traffic = CaseTraffic(case_id, self, tuple(recorded or ()), trial, suite)
        with self._lock:
            self._open[traffic.token] = traffic
        return traffic

    def child_token(self) -> str:
        """Return a token for a child that works for one case after the other; see `assign`."""
        token = CaseTraffic("", self).token
        with self._lock:
            self._children[token] = None
        return token

    def assign(self, token: str, traffic: CaseTraffic | None) -> None:
        """Attribute the calls of a child to a case from now; None for no case."""
        with self._lock:
            self._children[token] = traffic

    def enter(self, traffic: CaseTraffic) -> None:
        """Begin a case: its target runs now."""
        with self._lock:
            self._open[traffic.token] = traffic
            self._active.append(traffic)

    def leave(self, traffic: CaseTraffic) -> None:
        """End a case: revoke its token, end its calls in flight, and find work that it leaves running."""
        if any(call.end in {"", "aborted"} for call in list(traffic.tasks.values())) and self._server.is_running:
            self._server.run(_settled(traffic))
        with self._lock:
            if traffic in self._active:
                self._active.remove(traffic)
            self._open.pop(traffic.token, None)
            self._ended[traffic.token] = traffic.key, traffic.given_up
            for token, assigned in self._children.items():
                if assigned is traffic:
                    self._children[token] = None
        # else each case would keep all that ran before it
        neighbours, traffic.neighbours = traffic.neighbours, set()
        is_in_doubt = neighbours and self._records and not traffic.given_up
        work = stamps.running_work(traffic.token) if is_in_doubt else []
        if work:
            message = (
                f"{work[0]} was started by case {traffic.case_id}, called a model while other cases ran, and still "
                f"runs at its end, so that its calls may be another case's; {_REMEDY}"
            )
            traffic.unattributed = traffic.unattributed or message
            with self._lock:
                for case in neighbours:
                    case.unattributed = case.unattributed or message
                    if case.token in self._ended:
                        note_late(*case.key, message)

    @property
    def _records(self) -> bool:
        """Whether a call that belongs to no case would be missing, or wrong, in a recording."""
        return self.offline or self._settings.record

    def _received(self, request: Request) -> tuple[_Owner, RecordedCall]:
        """Return the call of a request, and whose it is; note one that can't be attributed."""
        token, name, path = _split(request.target)
        # these are taken off the request
        stamp = request.headers.pop(stamps.CASE_HEADER, "")
        caller = stamps.caller_of(request.headers.pop(stamps.CALLER_HEADER, ""))
        number = request.headers.pop(stamps.CALL_HEADER, "")
        stated = request.headers.pop(stamps.INPUT_HEADER, "")
        call = RecordedCall.of(name, request.method, path, request.body, self._redactor, headers=request.headers)
        call.caller, call.number = caller, number
        if (conversation_of := self._settings.conversation_of) is not None:
            return _Owner(conversation_of(self, call, stamp or (stated and f"?{stated}"), len(request.body))), call
        with self._lock:
            active = list(self._active)
            case = self._open.get(token) or self._children.get(token)
            if case is not None:
                return _Owner(case), call
            if token and token not in self._children:
                return _Owner(refusal=self._revoked(token, call)), call
            owner = self._unstamped(active, call) if token or not stamp else self._stamped(stamp, active, call)
            return owner, call

    def _stamped(self, stamp: str, active: list[CaseTraffic], call: RecordedCall) -> _Owner:
        if stamp in self._open:
            case = self._open[stamp]
            case.neighbours.update(other for other in active if other is not case)
            return _Owner(case)
        if stamp == self.outside or (stamp.removesuffix(stamps.ELSEWHERE) == self.outside and not active):
            return self._outside(call)
        ended, goes_on = self._ended.get(stamp, (None, False))
        if ended and (goes_on or not self._records):
            return _Owner(refusal=self._revoked(stamp, call))
        if stamp.endswith(stamps.ELSEWHERE):
            # a worker of a pool, for one of them or for none
            words = f"made by work that no case started, while {_counted(active)}"
        elif ended:
            words = f"made with the stamp of case {ended[1]}, which has ended"
        else:
            words = "made with an unknown stamp"
        return self._unattributed(active, call, words, ended)

    def _unstamped(self, active: list[CaseTraffic], call: RecordedCall) -> _Owner:
        if len(active) == 1:
            return _Owner(active[0])
        if active:
            return self._unattributed(active, call, f"made while {_counted(active)}")
        return self._outside(call)

    def _outside(self, call: RecordedCall) -> _Owner:
        if self.offline:
            message = f"fixture mode is offline, and no case made this call: {call} is refused; {_INSIDE}"
            try:
                return _Owner(refusal=message, shared=self.shared.take(CaseTraffic("", self), call))
            except CassetteError as error:
                return _Owner(refusal=str(error))
        if not (self._active or self._ended):
            self.before.append(call)
        return _Owner()

    def _unattributed(
        self, active: list[CaseTraffic], call: RecordedCall, words: str, ended: tuple[object, str] | None = None
    ) -> _Owner:
        if not self._records:
            return _Owner(is_counted=True)
        place = f" at {call.caller}" if call.caller else ""
        message = f"a model call can't be attributed to a case: {call}{place}, {words}; {_REMEDY}"
        for case in active:
            case.unattributed = case.unattributed or message
        if ended:
            note_late(*ended, message)
        return _Owner(refusal=message)

    def _revoked(self, token: str, call: RecordedCall) -> str:
        ended, _ = self._ended.get(token, (None, False))
        if ended is None:
            return f"{call} is refused: its address belongs to no case of this run"
        message = f"{call} was made by work of case {ended[1]}, which has ended; end it before the target returns"
        note_late(*ended, message)
        return message

    async def _handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        owner, call = self._received(request)
        provider, path = PROVIDERS.get(call.provider), _split(request.target)[2]
        if provider is None or _AMBIGUOUS.match(path):
            status, message = _NOT_FOUND, f"packbench's gateway serves {', '.join(PROVIDERS)}"
            if provider is not None:
                status, message = _BAD_REQUEST, "a path has no @, \\ or #, no step . or .., and none of these encoded"
            self._unsupported(owner.case, call, message)
            headers = {"content-type": "text/plain", "x-should-retry": "false"}
            await reply.send(status, headers, message.encode())
            return
        asked = _Asked(provider, request, path, call, reply)
        if owner.shared is not None:
            await self._repeat(owner.shared, asked)
        elif owner.refusal:
            await _refuse(asked, _BAD_REQUEST, "packbench_refused", owner.refusal)
        elif request.is_websocket and (problem := self._why_no_websocket(owner.case)):
            self._unsupported(owner.case, call, problem)
            await _refuse(asked, _BAD_REQUEST, UNSUPPORTED, problem)
        elif owner.case is None:
            await self._forward(asked, counted=owner.is_counted)
        else:
            await self._serve(owner.case, asked)

    def _why_no_websocket(self, case: CaseTraffic | None) -> str:
        """Return why a websocket is not opened; empty where it is."""
        if self._records:
            return "a websocket can't be recorded; run such cases in live mode (--packbench-mode=live)"
        if case is None:
            return f"it is not known whose this websocket is; {_REMEDY}"
        caps = self._settings.ledger.caps if self._settings.ledger is not None else Caps()
        is_capped = caps.tokens is not None or caps.cost is not None
        return "what a websocket uses is not known, so none is opened with a cap on tokens or cost" * is_capped

    def _turned_away(self, request: Request, reason: str) -> None:
        """Note a request that the server refuses."""
        owner, call = self._received(request)
        self._unsupported(owner.case, call, reason)

    def _unsupported(self, case: CaseTraffic | None, call: RecordedCall, reason: str) -> None:
        """Note a call that is refused although it is a case's, whose target may ignore that."""
        if case is not None:
            path = self._redactor.excerpt(f"/{call.provider}{call.path.partition('?')[0]}")
            message = f"{call.method} {path}: {reason}"
            case.refused = case.refused or BackendError(UNSUPPORTED, message)
            if self.offline:
                case.mismatch = case.mismatch or message

    async def _serve(self, case: CaseTraffic, asked: _Asked) -> None:
        """Answer a call of a case."""
        task: Any = asyncio.current_task()
        call = asked.call
        call.request_headers = deciding(call.request_headers, case.ignored_headers)
        case.tasks[task] = call
        if asked.request.headers.get(_RETRY_COUNT, "0") != "0":
            # a client that repeats a call by itself shows nobody the answer before: in a replay, it need not wait
            for earlier in case.calls:
                if earlier.request_sha256 == call.request_sha256 and earlier.status in _RETRIED:
                    earlier.headers = {**earlier.headers, "retry-after-ms": "1"}
        case.calls.append(call)
        try:
            if self._upstream is None:
                await self._replay(case, asked)
            elif self._records and not is_allowed(asked.provider, call.method, call.path):
                message = f"{call}: packbench's gateway can't record this call of {call.provider}"
                call.error = BackendError(UNSUPPORTED, message)
                await _refuse(asked, _NOT_FOUND, UNSUPPORTED, message)
            else:
                await self._ask(case, asked)
        finally:
            call.end, call.ended = call.end or "aborted", time.monotonic()
            del case.tasks[task]

    async def _replay(self, case: CaseTraffic, asked: _Asked) -> None:
        exchange = case.take(asked.call)
        if exchange is None:
            asked.call.error = BackendError("cassette_mismatch", case.mismatch)
            await _refuse(asked, _BAD_REQUEST, "packbench_mismatch", case.mismatch)
            return
        # who wins a race does not win before the others have begun
        now = time.monotonic()
        patience_s = ((exchange.ended_ms or 0) - (exchange.began_ms or 0)) / 1000 + _SLACK_S
        # asked for again and again: few recordings have rivals, and the others cost nothing
        while case.lacks_rival(exchange) and time.monotonic() < now + patience_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        await self._repeat(exchange, asked)
        if exchange.end == "aborted" and exchange.ended_ms is not None:
            # a limit may be one of several calls, which are answered at once now; and this machine may be slower
            patience_s = max(patience_s, case.started + 2 * exchange.ended_ms / 1000 + _SLACK_S - now)
            # who leaves is noticed at once
            asked.reply.started = True
            try:
                await asyncio.sleep(patience_s)
                case.mismatch = case.mismatch or (
                    f"{asked.call}: its client gave it up when it was recorded, and waits for {patience_s:.0f} s now; "
                    "if the pipeline has changed, record it again (--packbench-mode=record)"
                )
            finally:
                case.waited_s += time.monotonic() - now
        if exchange.end != "complete":
            self._drop(asked)

    async def _repeat(self, exchange: GatewayExchange, asked: _Asked) -> None:
        """Answer from a recorded exchange, as far as it goes."""
        call, reply = asked.call, asked.reply
        content = exchange.content()
        call.status, call.headers, call.pieces = exchange.status, exchange.headers, [content]
        self._judge(call, exchange.end)
        headers = dict(exchange.headers)
        if exchange.version != _WHOLE and exchange.status in _RETRIED:
            # who asks again need not wait
            headers |= {"retry-after-ms": "1", **({"retry-after": "0"} if "retry-after" in headers else {})}
        # the client may be gone, and its case over, as soon as it has the whole
        call.end = exchange.end
        if exchange.status is None:
            return
        is_whole = exchange.end == "complete"
        if is_whole and not exchange.is_stream:
            await reply.send(exchange.status, headers, content)
            return
        reply.start(exchange.status, headers)
        if content or call.is_stream:
            await reply.write(content)
        if is_whole:
            await reply.finish()

    def _drop(self, asked: _Asked) -> None:
        """End a call without an answer, or in the middle of it."""
        if asked.call.end == "refused":
            stamps.REFUSED.add(asked.call.number)
        asked.reply.drop()

    async def _ask(self, case: CaseTraffic, asked: _Asked) -> None:
        """Answer a call of a case from the cache, else forward it."""
        call = asked.call
        ledger, cache = self._settings.ledger, self._settings.cache
        refused = case.limit.take() if case.limit is not None and call.asks_chat_model else None
        # an attempt that has begun goes on after unreadable results of others
        if refused is None and ledger is not None and (cap := ledger.reached_cap())[0] not in ("", MAX_UNREADABLE):
            refused = BackendError(*cap)
            case.capped = case.capped or refused
        if refused is not None:
            call.error = refused
            await _refuse(asked, _BAD_REQUEST, refused.kind, str(refused))
            return
        if (kept := case.take_kept(call)) is not None:
            await self._repeat(kept, asked)
            return
        if cache is None or asked.request.is_websocket:
            await self._forward(asked, counted=True)
            return
        key = {
            "gateway": {
                "provider": call.provider,
                "upstream": self.upstreams[call.provider],
                "request_sha256": call.request_sha256,
                "headers": as_recorded(call.request_headers),
                "trial": case.trial,
                "again": case.repetition(call),
            }
        }
        if (stored := _exchange_of(cache.load(key))) is None:
            await self._forward(asked, counted=True)
            # the cache itself looks at each event alone
            if call.end == "complete" and call.error is None and not self._redactor.find(call.joined_texts()):
                cache.store(key, call.as_exchange(prompts=False))
            return
        call.cached = True
        if ledger is not None:
            ledger.add_cached_call()
        await self._repeat(stored, asked)

    async def _forward(self, asked: _Asked, *, counted: bool) -> None:
        """Send a call on, and its answer back piece by piece."""
        from pytest_packbench.engine.gateway.upstream import UnreachableError, UpstreamError

        if self._upstream is None:
            raise RuntimeError("nothing is forwarded in fixture mode")
        provider, request, path, call, reply = asked
        address = self.upstreams[provider.name]
        answer: Answer | None = None
        last, end = b"", "aborted"
        call.cost_usd = None
        try:
            path = path.removeprefix(provider.stripped)
            asks = (request.method, address, path, request.headers, request.body)
            answer = await self._upstream.send(*asks, switches=request.is_websocket)
            call.status = answer.status
            # where a redirect leads, the client would go past the gateway
            hidden = {*_HIDDEN_HEADERS, *(("location",) if _is_redirect(answer.status) else ())}
            call.headers = {name: value for name, value in answer.headers.items() if name not in hidden}
            last = await self._pass_on(answer, reply, call)
            end = "complete"
        except UpstreamError as error:
            end = "refused" if isinstance(error, UnreachableError) else "cut"
            self._fail(call, address, error)
        finally:
            if answer is not None and end != "complete":
                answer.close()
            self._account(call, end, counted=counted)
        if end != "complete":
            self._drop(asked)
        else:
            # with this, the client may be gone and its case over
            await reply.write(last)
            await reply.finish()

    async def _pass_on(self, answer: Answer, reply: Reply, call: RecordedCall) -> bytes:
        """Send on the pieces of an answer as they come; return the one that completes it, if its length is known."""
        from pytest_packbench.engine.gateway.upstream import CutError

        if answer.status == WEBSOCKET:
            await reply.switch(call.headers, *answer.connection)
            return b""
        reply.start(answer.status, call.headers, answer.length)
        if call.is_stream:
            await reply.write(b"")
        size, last = 0, b""
        while piece := await answer.read():
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise CutError(f"the answer is longer than {MAX_ANSWER_BYTES // 2**20} MiB")
            call.pieces.append(piece)
            if size == answer.length:
                last = piece
            else:
                await reply.write(piece)
        return last

    def _fail(self, call: RecordedCall, address: str, error: Exception) -> None:
        text = self._redactor.text(f"no answer from {without_login(address)}: {error}")
        call.error = call.error or BackendError("network", f"{call.provider}: {text}")

    def _judge(self, call: RecordedCall, end: str) -> None:
        """Read usage and error from an answer."""
        content = call.content
        call.usage = usage_of(call.path, content) if call.uses_tokens else None
        if call.error is not None:
            return
        factory = ErrorFactory(call.provider, self._redactor)
        if _is_redirect(call.status):
            # the client does not see where: it would go there past the gateway
            variable = next(iter(PROVIDERS[call.provider].variables))
            advice = f"which packbench's gateway does not follow; set {variable} to the address that it redirects to"
            call.error = BackendError(UNSUPPORTED, f"{call.provider}: {call}: the provider redirects it, {advice}")
        elif call.status is not None and call.status >= _FIRST_ERROR:
            call.error = factory.of_status(call.status, content.decode("utf-8", "replace"))
        elif call.is_streamed and (found := error_in(content)) is not None:
            call.error = factory.of_stream(*found)
        elif end == "cut":
            call.error = BackendError("network", f"{call.provider}: the provider broke off its answer")

    def _account(self, call: RecordedCall, end: str, *, counted: bool) -> None:
        """Count a call that is over."""
        if end == "aborted" and call.is_stream and is_final(call.content):
            end = "complete"
        self._judge(call, end)
        call.end = end
        settings = self._settings
        if call.status in OVERLOADED and settings.on_overload is not None:
            settings.on_overload()
        if counted and settings.ledger is not None and call.uses_tokens:
            price = settings.price(call.provider, call.model) if settings.price is not None else None
            call.cost_usd = settings.ledger.add_call(call.usage, price)


def _is_redirect(status: int | None) -> bool:
    return status is not None and _FIRST_REDIRECT <= status < _FIRST_ERROR and status != _NOT_MODIFIED


def _counted(active: list[CaseTraffic]) -> str:
    return f"{len(active)} cases ran" if len(active) > 1 else "1 case ran"


def _split(target: str) -> tuple[str, str, str]:
    """Return the token, the provider and its path in the path of a request."""
    token = ""
    if target.startswith("/case/"):
        token, _, target = target.removeprefix("/case/").partition("/")
    name, _, path = target.removeprefix("/").partition("/")
    return token, name, served_path(name, f"/{path}")


async def _settled(traffic: CaseTraffic) -> None:
    """Wait until calls whose clients have left are over, and end the others."""
    for _ in range(_SETTLE_STEPS):
        if not traffic.is_busy:
            break
        await asyncio.sleep(_SETTLE_STEP_S)
    # those that their clients ended are left open
    tasks = [task for task, call in traffic.tasks.items() if call.end in {"", "aborted"}]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)


async def _refuse(asked: _Asked, status: int, kind: str, message: str) -> None:
    """Answer by an error of our own, after which clients do not try again."""
    call = asked.call
    body = error_body(call.provider, kind, f"packbench: {message}")
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    call.status, call.headers, call.pieces, call.end = status, headers, [body], "complete"
    await asked.reply.send(status, headers, body)


def _exchange_of(stored: Any) -> GatewayExchange | None:
    from pytest_packbench.model.recording import GatewayExchange

    # nothing is stored, or what is no exchange
    with suppress(ValueError):
        return GatewayExchange.model_validate(stored)
    return None
