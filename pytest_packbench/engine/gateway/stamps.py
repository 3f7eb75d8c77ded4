"""Stamps: to which case a request from this process to the gateway belongs.

The stamp is a context variable, which tasks and callbacks inherit, and which work for a thread pool has from its
submitter. HTTP clients carry it to the gateway in a header, together with the place of the call. Threads that are
started bare have none, and nor has a forked process: what they serve is not known. Once the case that started a thread
has ended, the thread has its stamp after all, which the gateway refuses.

A call whose provider is not there is for its client a refused connection: the gateway, which is there, closes it, and
here the client gets the exception that it would get from its provider's address.

A task or work of a pool that began inside a case and goes on after it, as a worker that is started at the first use
does, may have served other cases with the stamp of the first: `running_work` names it.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from copy import copy
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakValueDictionary, ref

from pytest_packbench.engine.offline import caller_location, carry_pool_work, current_task, note_request, replace

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

    Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


CASE_HEADER = "x-packbench-case"
CALLER_HEADER = "x-packbench-caller"
INPUT_HEADER = "x-packbench-input"
"""What an app works on, JSON with percent signs for what is not ASCII; only `packbench capture` reads it."""
CALL_HEADER = "x-packbench-call"
REFUSED: set[str] = set()
"""The numbers of the calls, as in their header, whose provider is not there."""
ELSEWHERE = "+"
"""Follows, in the header, the token of a stamp that is for one thread and was inherited on another."""
# of printable ASCII, all but the percent sign
_SAFE = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("%")).decode()


# compared by identity
@dataclass(slots=True, eq=False, weakref_slot=True)
class _Stamp:
    """A token, who set it, what inherited it and has made calls since, and whether a request went elsewhere."""

    token: str
    strayed: bool = False
    entered: int = 0
    thread: int | None = None
    owners: list[ref[asyncio.Task[Any]]] = field(default_factory=list)
    work: dict[int, ref[asyncio.Task[Any] | _PoolWork]] = field(default_factory=dict)

    def note_call(self) -> None:
        task, work = current_task(), _RUNNING.get(threading.get_ident())
        if task is not None and all(owner() is not task for owner in self.owners):
            self.work[id(task)] = ref(task)
        # a loop that another case started serves this one by the way
        if work is not None and work.stamp is self:
            self.work[id(work)] = ref(work)


class _PoolWork:
    """A function that a pool runs with the stamp of its submitter, or with none if that has none."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.stamp = function, _CURRENT.get()
        self._done = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        ident, token = threading.get_ident(), _CURRENT.set(self.stamp)
        before, _RUNNING[ident] = _RUNNING.get(ident), self
        try:
            return self.function(*arguments, **options)
        finally:
            self._done = True
            _CURRENT.reset(token)
            if before is None:
                del _RUNNING[ident]
            else:
                _RUNNING[ident] = before

    def done(self) -> bool:
        return self._done


_STARTED_BY, _NUMBER = "_packbench_stamp", "_packbench_call"
_NUMBERS = count()
_CURRENT: ContextVar[_Stamp | None] = ContextVar("packbench_stamp", default=None)
# what runs now on the threads of pools
_RUNNING: dict[int, _PoolWork] = {}
# a stamp lives as long as a context that has it
_STAMPS: WeakValueDictionary[str, _Stamp] = WeakValueDictionary()


@contextmanager
def stamped(token: str, *, on_this_thread: bool = False) -> Iterator[_Stamp]:
    """Give the requests of the block, and of what it starts, the stamp of a case.

    Args:
        token: the case's.
        on_this_thread: whether the stamp is that of work between cases: what such work starts on other threads may
            still serve a case.
    """
    stamp = _STAMPS.setdefault(token, _Stamp(token, thread=threading.get_ident() if on_this_thread else None))
    task = current_task()
    if task is not None:
        stamp.owners.append(ref(task))
    stamp.entered += 1
    before = _CURRENT.set(stamp)
    try:
        yield stamp
    finally:
        stamp.entered -= 1
        # an abandoned coroutine is closed outside its context, where the variable has no value to reset
        with suppress(ValueError):
            _CURRENT.reset(before)


def running_work(token: str) -> list[str]:
    """Describe the tasks and the work of pools that inherited a stamp, have made a call, and still run."""
    stamp = _STAMPS.get(token)
    works = [] if stamp is None else [each() for each in list(stamp.work.values())]
    return [_description(work) for work in works if work is not None and not work.done()]


def caller_of(header: str) -> str:
    """Return the `file:line` of a header `x-packbench-caller`."""
    return unquote(header)


@cache
def install(base_url: str) -> Callable[[], None]:
    """Have HTTP clients stamp requests to `base_url`, once; also those whose library is imported later.

    Returns:
        A function that undoes it.
    """
    gateway = _Gateway.at(base_url)
    importer = _Importer(gateway)
    undo_work = [carry_pool_work(_PoolWork), replace(threading.Thread, "start", _noting_start)]
    for name in _CLIENTS:
        if (module := sys.modules.get(name)) is not None:
            importer.patch(module)
    sys.meta_path.insert(0, importer)

    def undo() -> None:
        with suppress(ValueError):
            sys.meta_path.remove(importer)
        importer.undo()
        for undo_one in reversed(undo_work):
            undo_one()

    return undo


class _Gateway(NamedTuple):
    """The address whose requests get headers."""

    host: str
    port: int
    path: str

    @classmethod
    def at(cls, base_url: str) -> _Gateway:
        parts = urlsplit(base_url)
        return cls(parts.hostname or "", parts.port or 0, f"{parts.path.rstrip('/')}/")

    def receives(self, url: Any) -> bool:
        """Whether it gets a request to this URL: an object with `host`, `port` and `path`."""
        # the port is what differs from all others
        return bool(url.port == self.port and url.host == self.host and url.path.startswith(self.path))


def _noting_start(start: Callable[..., Any]) -> Callable[..., Any]:
    def noting(thread: threading.Thread) -> None:
        # some versions of Python let a thread inherit the context
        token = _CURRENT.set(None)
        try:
            vars(thread)[_STARTED_BY] = token.old_value if token.old_value is not Token.MISSING else None
            start(thread)
        finally:
            _CURRENT.reset(token)

    return noting


def _note_stray(host: str, port: int | None, scheme: str = "http") -> None:
    """Note a request that goes past the gateway, so that nobody counts it."""
    note_request(host, port or (443 if scheme == "https" else 80))
    if (stamp := _CURRENT.get()) is not None:
        stamp.strayed = True


def _headers() -> dict[str, str]:
    """Return the headers of a request that is sent now."""
    headers, stamp = {}, _CURRENT.get()
    if stamp is not None:
        stamp.note_call()
    elif threading.get_ident() not in _RUNNING:
        starter = vars(threading.current_thread()).get(_STARTED_BY)
        stamp = starter if starter is not None and not starter.entered else None
    if stamp is not None:
        is_elsewhere = stamp.thread not in {None, threading.get_ident()}
        headers[CASE_HEADER] = f"{stamp.token}{ELSEWHERE * is_elsewhere}"
    if caller := caller_location():
        headers[CALLER_HEADER] = quote(caller, safe=_SAFE)
    return headers


def _new_number() -> str:
    # a forked process counts on
    return f"{os.getpid()}.{next(_NUMBERS)}"


def _was_refused(number: str | None) -> bool:
    """Whether the provider of a call is not there; once."""
    if number not in REFUSED:
        return False
    REFUSED.discard(number)
    return True


def _refusal() -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def _send(position: int, gateway: _Gateway, send: Callable[..., Any]) -> Callable[..., Any]:
    """Stamp the request that a function gets at this position."""

    @contextmanager
    def sending(arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[None]:
        request = arguments[position] if len(arguments) > position else options["request"]
        if not gateway.receives(request.url):
            _note_stray(request.url.host, request.url.port, request.url.scheme)
            yield
            return
        # a request may be sent again, and elsewhere
        for name in (CASE_HEADER, CALLER_HEADER):
            request.headers.pop(name, None)
        request.headers.update(_headers())
        # one library may send by another one
        number = request.headers.setdefault(CALL_HEADER, _new_number())
        try:
            yield
        except Exception:
            if not _was_refused(number):
                raise
            library, cause = sys.modules[type(request).__module__.partition(".")[0]], _refusal()
            raise library.ConnectError(str(cause), request=request) from cause

    if inspect.iscoroutinefunction(send):

        async def stamping(*arguments: Any, **options: Any) -> Any:
            with sending(arguments, options):
                return await send(*arguments, **options)

        return stamping

    def stamping_now(*arguments: Any, **options: Any) -> Any:
        with sending(arguments, options):
            return send(*arguments, **options)

    return stamping_now


def _http_putrequest(gateway: _Gateway, putrequest: Callable[..., Any]) -> Callable[..., Any]:
    def stamping(connection: Any, method: str, url: str, *arguments: Any, **options: Any) -> Any:
        putrequest(connection, method, url, *arguments, **options)
        if (connection.host, connection.port) == gateway[:2] and url.startswith(gateway.path):
            number = _new_number()
            setattr(connection, _NUMBER, number)
            for name, value in {**_headers(), CALL_HEADER: number}.items():
                connection.putheader(name, value)
        else:
            _note_stray(connection.host, connection.port)

    return stamping


def _websocket(gateway: _Gateway, send: Callable[..., Any]) -> Callable[..., Any]:
    def stamping(protocol: Any, request: Any) -> Any:
        # earlier versions called it otherwise
        url = getattr(protocol, "uri", None) or protocol.wsuri
        if gateway.receives(url):
            request.headers.update(_headers())
        else:
            _note_stray(url.host, url.port)
        return send(protocol, request)

    return stamping


def _http_getresponse(_gateway: _Gateway, getresponse: Callable[..., Any]) -> Callable[..., Any]:
    def receiving(connection: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return getresponse(connection, *arguments, **options)
        except OSError:
            if not _was_refused(vars(connection).get(_NUMBER)):
                raise
            raise _refusal() from None

    return receiving


_HTTPX = (("Client", "send", partial(_send, 1)), ("AsyncClient", "send", partial(_send, 1)))
# urllib3, and so requests, use http.client
_CLIENTS: dict[str, Sequence[tuple[str, str, Callable[[_Gateway, Callable[..., Any]], Callable[..., Any]]]]] = {
    "aiohttp": (("ClientRequest", "send", partial(_send, 0)),),
    "http.client": (
        ("HTTPConnection", "putrequest", _http_putrequest),
        ("HTTPConnection", "getresponse", _http_getresponse),
    ),
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
    "websockets.client": (("ClientProtocol", "send_request", _websocket),),
}


class _Importer:
    """An entry of `sys.meta_path` that patches clients after their import, by whatever finder and loader has it."""

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway
        self._undos: list[Callable[[], None]] = []

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _CLIENTS or self not in sys.meta_path:
            return None
        # those before this one have been asked
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                # a copy: other modules may have the same loader
                loader: Any = copy(spec.loader)
                loader.exec_module = partial(self._execute, loader.exec_module)
                spec.loader = loader
                return spec
        return None

    def _execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        if self in sys.meta_path:
            self.patch(module)

    def patch(self, module: ModuleType) -> None:
        for owner_name, name, wrap in _CLIENTS[module.__name__]:
            owner = getattr(module, owner_name, None)
            if hasattr(owner, name):
                self._undos.append(replace(owner, name, partial(wrap, self._gateway)))

    def undo(self) -> None:
        while self._undos:
            self._undos.pop()()


def _description(work: asyncio.Task[Any] | _PoolWork) -> str:
    if isinstance(work, _PoolWork):
        function: Any = work.function
        while isinstance(function, partial):
            # `asyncio.to_thread` calls `Context.run` with the function
            is_run = getattr(function.func, "__name__", "") == "run" and function.args
            function = function.args[0] if is_run else function.func
        code, what, name = getattr(function, "__code__", None), "work for a thread pool", _name(function)
    else:
        coroutine: Any = work.get_coro()
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        what, name = f'the task "{work.get_name()}"', _name(coroutine)
    return f"{what} ({name}{_place(code)})"


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _place(code: CodeType | None) -> str:
    return "" if code is None else f", {code.co_filename}:{code.co_firstlineno}"


def _forget() -> None:
    """Leave the stamp behind in a forked process, which may be that of a pool."""
    _CURRENT.set(None)
    _RUNNING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
