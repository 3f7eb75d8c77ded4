"""The offline guard: no network and no child process while a case runs on its recording.

While a case is recorded, the guard only notes what it would refuse. An audit hook sees what a patched `socket.socket`
misses: raw sockets, other libraries' clients, name look-ups. It can't be removed, so there is one per process, which
ignores everything that no case does. SECURITY.md lists what it does not see.

Whose work it is that the hook sees, in this order:

1. the context variable that the case's function, tasks and callbacks inherit;
2. the asyncio task, which may run in a context of its own;
3. the claim on the thread, by a sync case, by what a case gave to a thread pool, or by a callback at exit;
4. the case that started the thread, unless a tracer's library has done it for its reports;
5. any running case, on a thread that was started outside of cases and runs an event loop, or was given something by
   one of them, by a condition, an event or a queue, and for what it starts: it may serve them. All others, and the main
   thread without a claim, serve none: what they try is refused, and no case is an error.

The only addresses that may be reached are those that this process serves: its gateway, which answers from recordings,
and the worlds in which agents act.

In Python 3.11 no audit event tells that work is started for later, and in no version one tells of the processes of
`multiprocessing`: `_watch` replaces the functions that start these.
"""

from __future__ import annotations

import _queue  # whose queue the module `queue` takes over, which few runs need
import inspect
import os
import re
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial, wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, finalize

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from pytest_packbench.engine.scheduler import CapturedOutput

    Carrier = Callable[[Callable[..., Any]], Callable[..., Any]]
    """Returns a function that runs the given one on behalf of the thread that calls the carrier."""
    Unseen = dict[str, tuple[int, str]]
    """By `HOST:PORT`: how many connections were made, and by which place in the code the first one."""

# the kernel's own interfaces, and sockets within the machine, which event loops need
_LOCAL = frozenset(getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name))
# the system's own socket: a subclass may state what it likes
_SOCKET: Any = socket.SocketType
_SOCKET_EVENTS = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_LOOKUP_EVENTS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"})
_PROCESS_EVENTS = frozenset(
    {
        "_winapi.CreateProcess",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "pty.spawn",
        "subprocess.Popen",
    }
)
_EVENTS = _SOCKET_EVENTS | _LOOKUP_EVENTS | _PROCESS_EVENTS
# Python's own helper, which runs no code of the target; creating a lock may start it
_RESOURCE_TRACKER = re.compile(r"from multiprocessing\.resource_tracker import main; ?main\([\w, =]*\)")
# what `platform.processor` of the standard library asks once, for clients that state where they run
_PROCESSOR = ("uname", ["uname", "-p"])
_SERVED_HOSTS = ("127.0.0.1", b"127.0.0.1")
# a target may try again and again
_MAX_NOTED = 100
ADVICE = "record its model calls (--packbench-mode=record), or use --packbench-mode=live"
"""What to do about a use of the network."""
_ENGINE = __file__.removesuffix("offline.py")
_PACKAGE = _ENGINE.removesuffix(f"engine{os.sep}")
# whose functions are between a caller and what it calls
_BETWEEN = (__file__, f"{_ENGINE}gateway{os.sep}stamps.py")
_LIBRARIES = ("<frozen", os.__file__.removesuffix("os.py"))


# whose threads report what a case did, and serve none
_TRACERS = frozenset({"ddtrace", "langfuse", "langsmith", "logfire", "opentelemetry", "posthog", "sentry_sdk"})
_EXPORTER = re.compile(r"[/\\]opentelemetry[/\\]exporter[/\\]")


class OfflineError(RuntimeError):
    """A case tried to reach the network or to start a process in fixture mode."""


# compared by identity: two suites may have cases of the same name
@dataclass(slots=True, eq=False)
class _GuardedCase:
    case: str
    suite: object
    allow_processes: bool
    advice: str
    unneeded: frozenset[str] = frozenset()
    unseen: Unseen | None = None
    over: bool = False
    violations: list[str] = field(default_factory=list)


class _Claim(NamedTuple):
    """Whose work a thread does for now.

    Attributes:
        owner: the case; None for work from outside of cases.
        what: what runs, if the thread's name does not tell.
    """

    owner: _GuardedCase | None
    what: str = ""


_STARTED_BY, _GIVEN_BY = "_packbench_started_by", "_packbench_given_by"
_NO_THREAD = SimpleNamespace()
# whether fixture mode has begun
_WALLED: list[bool] = []
# the owners of work that is for no case, of tracers and of this package, and of work that may be for each running one
_NO_CASE, _ANY = (_GuardedCase("", None, allow_processes=False, advice="") for _ in range(2))
_CURRENT: ContextVar[_GuardedCase | None] = ContextVar("packbench_offline_case", default=None)
CURRENT_OUTPUT: ContextVar[CapturedOutput | None] = ContextVar("packbench_output", default=None)
"""The output of the case for which the caller works, where cases run concurrently."""
_ACTIVE: list[_GuardedCase] = []
_CLAIMS: dict[int, _Claim] = {}
_TASKS: WeakKeyDictionary[asyncio.Task[Any], _GuardedCase] = WeakKeyDictionary()
_SERVED: list[tuple[str, int]] = []
# by address: the host that was looked up, and by text: what was refused and is no case's
_NAMES: dict[str, str] = {}
_REFUSED: dict[str, int] = {}
_OWN_THREADS: list[int] = []
_CARRIERS: list[Carrier] = []
# what ends the replacement of `ThreadPoolExecutor.submit`, while it is replaced
_UNWATCH: list[Callable[[], None]] = []
_WOULD_END = " would end the whole run; return, or raise an exception"
# undo what `keep_process` has left of a run that failed
_KEPT: list[Callable[[], None]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    if event in _SOCKET_EVENTS:
        address = arguments[1] if len(arguments) > 1 else None
        if _SERVED and _is_served(event, arguments[0], address):
            return
        family = _SOCKET.family.__get__(arguments[0]) if isinstance(arguments[0], _SOCKET) else None
        if family not in _LOCAL:
            _refuse(f"{event.removeprefix('socket.')} to {address!r}", address)
        elif address is not None and address == _fork_server():
            _refuse_process("multiprocessing, start method forkserver")
    elif event in _LOOKUP_EVENTS:
        if _SERVED and event == "socket.getaddrinfo" and arguments[0] in _SERVED_HOSTS:
            return
        _refuse(f"look-up of {arguments[0]!r}", arguments)
    elif arguments[:2] != _PROCESSOR:
        _refuse_process(f"{event}{f': {arguments[0]!r}' if arguments else ''}")


def _is_served(event: str, connection: Any, address: Any) -> bool:
    """Whether a socket connects to an address that this process serves, or is one end of such a connection."""
    if event == "socket.connect":
        return type(address) is tuple and address in _SERVED
    if event == "socket.bind" or address is not None:
        return False
    # a connected socket sends
    with suppress(OSError, TypeError):
        return _SOCKET.getpeername(connection) in _SERVED or _SOCKET.getsockname(connection) in _SERVED
    return False


def _refuse_process(how: str) -> None:
    _refuse(f"child process ({how})", is_process=True)


def _refuse(action: str, address: Any = (), *, is_process: bool = False) -> None:
    """Raise an error and note it, if this thread works for a case that may not do this; or note it only."""
    if _OWN_THREADS and threading.get_ident() in _OWN_THREADS:
        return
    owner = _NO_CASE if _is_export() else _owner()
    is_case = owner not in {None, _NO_CASE, _ANY}
    suspects = [owner] if owner is not None and is_case else list(_ACTIVE)
    suspects = [case for case in suspects if not (is_process and case.allow_processes)]
    cases = suspects if is_case or owner is _ANY else []
    if not cases and _WALLED and sys.is_finalizing():
        # whose object is freed can't be known, and `tell_late` has run
        text = f"fixture mode is offline, but an object that was left until the interpreter's exit tried: {action}"
        print(f"packbench: {text}", file=sys.stderr)  # noqa: T201 - pytest has ended
        raise OfflineError(text)
    place, goals = caller_location(), _goals(address)
    if any(case.unseen is not None for case in [*cases, *_ACTIVE]):
        _note_unseen(cases, goals, place, int(not action.startswith("look-up")))
    elif cases:
        raise _violation(cases, owner, action, place, goals)
    elif suspects and not _is_exempt():
        text = f"{_what()} ({_library()}) tried: {action}{place and f' at {place}'}"
        _REFUSED[text] = _REFUSED.get(text, 0) + 1
        raise OfflineError(f"fixture mode is offline, but {text}")


def _violation(
    cases: list[_GuardedCase], owner: _GuardedCase | None, action: str, place: str, goals: list[str]
) -> OfflineError:
    """Note a violation of cases; return its error."""
    is_process = action.startswith("child process")
    advice = "set packbench_allow_processes = yes to allow it" if is_process else cases[0].advice
    culprit = "the target" if place else f"{_what()} ({_library()}) of the target"
    if owner is _ANY:
        culprit = f"code on {_what()}, which no case started,"
    elif owner is not None and owner.over:
        # also after the case's end: a thread or a task that was left behind
        culprit, advice = f"{_what()}, left running by case {owner.case},", "end it before the target returns"
    text = f"fixture mode is offline, but {culprit} tried: {action}{place and f' at {place}'}; {advice}"
    for case in cases:
        message = f"case {case.case}: {text}"
        if len(case.violations) < _MAX_NOTED and case.unneeded.isdisjoint(goals):
            case.violations.append(message)
        if case.over:
            note_late(case.suite, case.case, message)
    return OfflineError(f"case {cases[0].case}: {text}")


def _goals(address: Any) -> list[str]:
    """Return where something leads to: `HOST:PORT`, with the name that was looked up, and without; none if nowhere."""
    if not isinstance(address, tuple) or not address:
        return []
    host, *port = map(str, address[:2])
    return [":".join([name, *port]) for name in (_NAMES.get(host, host), host)]


def _note_unseen(cases: list[_GuardedCase], goals: list[str], place: str, count: int) -> None:
    for case in cases:
        if goals and case.unseen is not None and case.unneeded.isdisjoint(goals):
            before, first = case.unseen.get(goals[0], (0, place or _what()))
            case.unseen[goals[0]] = before + count, first


def note_request(host: str, port: int) -> None:
    """Note a request that goes past the gateway, on a connection that may have been opened before the case."""
    if (owner := _owner()) is not None and (host, port) not in _SERVED:
        _note_unseen([owner], _goals((host, port)), caller_location(), 0)


def take_refused() -> list[str]:
    """Return what was refused and is no case's, one line each, and forget it."""
    lines = [f"{count} x {text}" for text, count in _REFUSED.items()]
    _REFUSED.clear()
    return lines


def _owner() -> _GuardedCase | None:
    """Return the case for which this thread works; None for work from outside of cases that serves none."""
    owner, ident = _CURRENT.get(), threading.get_ident()
    if owner is None and (task := current_task()) is not None:
        owner = _TASKS.get(task)
    claim = _CLAIMS.get(ident)
    if owner is None and claim is not None:
        # also for nobody: a case may have started the thread of a pool
        owner = claim.owner
    elif owner is None:
        owner = _NO_CASE if _library() in _TRACERS else vars(_this_thread()).get(_STARTED_BY)
    if owner is None and not _is_exempt():
        loops = getattr(sys.modules.get("asyncio"), "_get_running_loop", bool)()
        owner = _ANY if loops or vars(_this_thread()).get(_GIVEN_BY) in [_ANY, *_ACTIVE] else None
    return owner


def _this_thread() -> Any:
    """Return the object of this thread; `current_thread` would make one, which calls what is replaced here."""
    threads: Any = threading._active  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    return threads.get(threading.get_ident(), _NO_THREAD)


def _is_exempt() -> bool:
    """Whether this thread runs pytest and other tests."""
    return _this_thread() is threading.main_thread() and threading.get_ident() not in _CLAIMS


def _library() -> str:
    """Return whose function this thread runs: the name of a package."""
    thread = _this_thread()
    module = getattr(vars(thread).get("_target"), "__module__", None) or type(thread).__module__
    return str(module).partition(".")[0]


def _is_export() -> bool:
    """Whether an exporter of OpenTelemetry works here, on whichever thread."""
    frame = inspect.currentframe()
    while frame is not None:
        if _EXPORTER.search(file := frame.f_code.co_filename):
            return True
        frame = None if _code_kind(file) == "user" else frame.f_back
    return False


def _what() -> str:
    """Describe what runs now."""
    task, claim = current_task(), _CLAIMS.get(threading.get_ident())
    if task is not None:
        return f'the task "{task.get_name()}"'
    if claim is not None and claim.what:
        return claim.what
    return f'the thread "{threading.current_thread().name}"'


def _work_for(claim: _Claim, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """Call a function on behalf of a case."""
    ident, token = threading.get_ident(), _CURRENT.set(None if claim.owner is _ANY else claim.owner)
    before = _CLAIMS.get(ident)
    _CLAIMS[ident] = claim
    # what the thread was given was this work
    vars(_this_thread()).pop(_GIVEN_BY, None)
    try:
        return function(*arguments, **options)
    finally:
        _restore_claim(ident, before)
        _CURRENT.reset(token)


def _restore_claim(ident: int, claim: _Claim | None) -> None:
    """Restore a thread's claim."""
    if claim is None:
        _CLAIMS.pop(ident, None)
    else:
        _CLAIMS[ident] = claim


@contextmanager
def offline(
    case_id: str,
    *,
    allow_processes: bool,
    suite: object = None,
    shares_thread: bool = False,
    advice: str = ADVICE,
    unneeded: Iterable[str] = (),
    unseen: Unseen | None = None,
) -> Iterator[list[str]]:
    """Refuse network and child processes while the block runs; blocks of several cases may run concurrently.

    What the block starts and leaves running stays refused after its end.

    Args:
        case_id: named in the error.
        allow_processes: whether child processes are allowed.
        suite: the case's suite, which `take_late` compares by identity.
        shares_thread: whether the block is part of a task, beside which others run on this thread.
        advice: what to do about a use of the network.
        unneeded: what the case does without offline, as `HOST:PORT`: refused as well, and no violation.
        unseen: gets where the case leads, while it is recorded: then nothing is refused.

    Yields:
        The violations so far, one line each: a target may ignore the `OfflineError` that each raised.
    """
    watch()
    _WALLED[:] = [True] * (unseen is None) or _WALLED
    case = _GuardedCase(case_id, suite, allow_processes, advice, frozenset(unneeded), unseen)
    token = _CURRENT.set(case)
    ident, before = threading.get_ident(), None
    if not shares_thread:
        before = _CLAIMS.get(ident)
        _CLAIMS[ident] = _Claim(case)
    elif (task := current_task()) is not None:
        _TASKS[task] = case
    _ACTIVE.append(case)
    try:
        yield case.violations
    finally:
        _ACTIVE.remove(case)
        case.over = True
        if not shares_thread:
            _restore_claim(ident, before)
        # an abandoned coroutine is closed outside its context, where the variable has no value to reset
        with suppress(ValueError):
            _CURRENT.reset(token)


def serve_address(host: str, port: int) -> Callable[[], None]:
    """Allow cases to reach an address that this process serves; return what ends that."""
    address = (host, port)
    _SERVED.append(address)

    def end() -> None:
        with suppress(ValueError):
            _SERVED.remove(address)

    return end


@contextmanager
def for_no_case() -> Iterator[None]:
    """Let what the block and its tasks do be no case's: it is this package's own work for one."""
    token = _CURRENT.set(_NO_CASE)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def own_work() -> Iterator[None]:
    """Allow this thread everything in the block: it is this package's own work, whatever runs at the same time."""
    ident = threading.get_ident()
    _OWN_THREADS.append(ident)
    try:
        yield
    finally:
        _OWN_THREADS.remove(ident)


def keep_process(tell: Callable[[str], object]) -> Callable[[int], None]:
    """Keep code from ending this process at once, as `os._exit` does: its exit code would be that of the run.

    A case gets a `SystemExit` instead. On other threads the process ends with another exit code than 0.

    Args:
        tell: writes a line to the terminal.

    Returns:
        A function that ends this, given the exit code of the run. Whoever ends the process after a run that failed, as
        exit handlers do, still ends it with that code, until a later session. Forked processes are not affected.
    """
    process, kept = os.getpid(), list[int]()

    def guarded_exit(end: Callable[[int], Any], status: int = 0) -> Any:
        if os.getpid() != process:
            return end(status)
        if kept:
            return end(status or kept[0])
        call = f"os._exit({status})"
        if _works_for_case():
            raise SystemExit(f"{call}{_WOULD_END}")
        tell(f"packbench: {call} ended the run{f' at {place}' if (place := caller_location()) else ''}")
        return end(status or 1)

    def guarded_exec(name: str, execute: Callable[..., Any], *arguments: Any) -> Any:
        if os.getpid() != process or kept:
            return execute(*arguments)
        _refuse_process(f"os.exec: {arguments[0]!r}")
        raise SystemExit(f"os.{name}(){_WOULD_END}")

    while _KEPT:
        _KEPT.pop()()
    wraps_of: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "_exit": lambda end: partial(guarded_exit, end),
        **{name: partial(partial, guarded_exec, name) for name in ("execv", "execve")},
    }
    # the module in C has the same functions
    modules = (os, sys.modules[os.name])
    undo = [replace(each, name, wrap) for each in modules for name, wrap in wraps_of.items()]

    def finish(status: int) -> None:
        kept.append(status)
        _KEPT.extend(undo)
        while not status and _KEPT:
            _KEPT.pop()()

    return finish


def _works_for_case() -> bool:
    return _CURRENT.get() is not None or CURRENT_OUTPUT.get() is not None


# by the identity of the suite and the id of the case: the suite, and what the case's work tried after its end
_LATE: dict[tuple[int, str], tuple[object, str]] = {}


def note_late(suite: object, case_id: str, message: str) -> None:
    """Note that something was refused after the end of its case; the first message of each case stays."""
    _LATE.setdefault((id(suite), case_id), (suite, message))


def take_late(suite: object) -> list[tuple[str, str]]:
    """Return what was refused after the end of a suite's cases, as pairs of case id and message, and forget it."""
    return [(key[1], _LATE.pop(key)[1]) for key in list(_LATE) if key[0] == id(suite)]


def tell_late() -> None:
    """Write what happened too late for the run's summary, and forget it."""
    while _LATE:
        _, (_, message) = _LATE.popitem()
        print(f"packbench: {message}", file=sys.stderr)  # noqa: T201 - pytest has ended


def bound_to_case(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, as work of the case that this thread works for, wherever it is called."""
    owner = _owner()
    return function if owner is None else partial(_work_for, _Claim(owner), function)


def note_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have an event loop note the case of each task."""
    import asyncio  # most targets of recorded cases are sync

    def create_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        if (owner := _owner()) is not None:
            _TASKS[task] = owner
        return task

    loop.set_task_factory(create_task)


def caller_location() -> str:
    """Return where the caller's own code is on the stack, as `file:line`; empty where only libraries are."""
    frame = inspect.currentframe()
    while frame is not None:
        kind = _code_kind(frame.f_code.co_filename)
        if kind == "user":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if kind == "package":
            # this package calls the target
            return ""
        frame = frame.f_back
    return ""


@lru_cache(maxsize=4096)
def _code_kind(file: str) -> str:
    if file in _BETWEEN or file.startswith(_LIBRARIES) or "site-packages" in file or "dist-packages" in file:
        return "library"
    return "package" if file.startswith(_PACKAGE) else "user"


def replace(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replace a function by one that wraps it.

    Args:
        owner: the class or module.
        name: its attribute.
        wrap: gets the function, returns what is called instead.

    Returns:
        A function that undoes it. Where something else has replaced the function since, that stays, and calls what
        was there before.
    """
    original, inherited = getattr(owner, name), name not in vars(owner)
    current = wrap(original)

    if inspect.iscoroutinefunction(original):

        @wraps(original)
        async def replaced(*arguments: Any, **options: Any) -> Any:
            return await current(*arguments, **options)

    else:

        @wraps(original)
        def replaced(*arguments: Any, **options: Any) -> Any:
            return current(*arguments, **options)

    def undo() -> None:
        nonlocal current
        current = original
        if vars(owner).get(name) is not replaced:
            return
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)

    setattr(owner, name, replaced)
    return undo


def carry_pool_work(carrier: Carrier) -> Callable[[], None]:
    """Have all functions that are submitted to thread pools pass through `carrier`; return what ends this."""
    import concurrent.futures.thread  # noqa: F401 - the pool's first work is carried too

    # inside of the guard's own carrier
    _CARRIERS.insert(0, carrier)
    _watch_pools()

    def undo() -> None:
        with suppress(ValueError):
            _CARRIERS.remove(carrier)
        if not _CARRIERS and _UNWATCH:
            _UNWATCH.pop()()

    return undo


def current_task() -> asyncio.Task[Any] | None:
    """Return the asyncio task that runs on this thread; None where there is none."""
    module = sys.modules.get("asyncio")
    # `current_task` raises where no loop runs
    if module is None or module._get_running_loop() is None:  # noqa: SLF001 - asyncio documents it for event loops
        return None
    task: asyncio.Task[Any] | None = module.current_task()
    return task


@cache
def watch() -> None:
    """Begin to watch, once for the process: before targets are imported, whose threads may wait for what cases give."""
    _watch()
    sys.addaudithook(_audit)


def _watch() -> None:
    """Replace the functions that start work for later, to note its case, and those that no audit event tells of."""
    import _thread
    import atexit

    atexit.register(tell_late)
    replace(atexit, "register", _noting_callback)
    replace(finalize, "__init__", _noting_finalizer)
    replace(threading.Thread, "start", _noting_thread)
    replace(_thread, "start_new_thread", _noting_raw_thread)
    replace(socket, "getaddrinfo", _naming)
    replace(threading.Condition, "notify", _giving)
    for name in ("__enter__", "wait"):
        replace(threading.Condition, name, _taking)
    for module in filter(None, (_queue, sys.modules.get("queue"))):
        vars(module)["SimpleQueue"] = _Queue
    _CARRIERS.append(_work_for_owner)
    _watch_pools()
    with suppress(ImportError):
        import _posixsubprocess

        replace(_posixsubprocess, "fork_exec", _refusing_processes)


def _give(shared: Any) -> None:
    """Note the case for which something that threads share is changed."""
    if (owner := _owner()) is not None:
        vars(shared)[_GIVEN_BY] = owner


def _take(shared: Any) -> None:
    """Note the case that gave this thread something."""
    if (giver := vars(shared).get(_GIVEN_BY)) is not None:
        vars(threading.current_thread())[_GIVEN_BY] = giver


def _giving(notify: Callable[..., Any]) -> Callable[..., Any]:
    def giving(condition: Any, *arguments: Any) -> Any:
        _give(condition)
        return notify(condition, *arguments)

    return giving


def _taking(enter: Callable[..., Any]) -> Callable[..., Any]:
    def taking(condition: Any, *arguments: Any, **options: Any) -> Any:
        result = enter(condition, *arguments, **options)
        _take(condition)
        return result

    return taking


class _Queue(_queue.SimpleQueue[Any]):
    """A simple queue that tells what a case gave to a thread, as others do by their conditions."""

    def put(self, *arguments: Any, **options: Any) -> None:
        _give(self)
        super().put(*arguments, **options)

    def get(self, *arguments: Any, **options: Any) -> Any:
        item = super().get(*arguments, **options)
        _take(self)
        return item

    put_nowait = put

    def get_nowait(self) -> Any:
        return self.get(False)


def _naming(look_up: Callable[..., Any]) -> Callable[..., Any]:
    def naming(host: Any, *arguments: Any, **options: Any) -> Any:
        found = look_up(host, *arguments, **options)
        _NAMES.update({each[4][0]: str(host) for each in found})
        return found

    return naming


def _watch_pools() -> None:
    """Carry work for thread pools, once their module is imported: a pool's first work starts a thread."""
    pools: Any = sys.modules.get("concurrent.futures.thread")
    if _CARRIERS and not _UNWATCH and hasattr(pools, "ThreadPoolExecutor"):
        _UNWATCH.append(replace(pools.ThreadPoolExecutor, "submit", _carrying_work))


def _noting_thread(start: Callable[..., Any]) -> Callable[..., Any]:
    def noting(thread: threading.Thread) -> None:
        if (owner := _owner()) is not None:
            vars(thread)[_STARTED_BY] = owner
            # as on the threads of concurrent cases: what a case leaves behind must not block the exit
            with suppress(RuntimeError):
                thread.daemon = thread.daemon or owner is not _ANY
        _watch_pools()
        start(thread)

    return noting


def _noting_raw_thread(start: Callable[..., Any]) -> Callable[..., Any]:
    def noting(function: Callable[..., Any], *arguments: Any) -> Any:
        return start(bound_to_case(function), *arguments)

    return noting


def _carrying_work(submit: Callable[..., Any]) -> Callable[..., Any]:
    def carrying(pool: Any, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        for carrier in tuple(_CARRIERS):
            function = carrier(function)
        return submit(pool, function, *arguments, **options)

    return carrying


def _work_for_owner(function: Callable[..., Any]) -> Callable[..., Any]:
    # also for nobody: the pool's thread may be one that a case started
    return partial(_work_for, _Claim(_owner()), function)


class _AtExit:
    """A callback at exit, equal to the function for `atexit.unregister`."""

    def __init__(self, function: Callable[..., Any], owner: _GuardedCase, what: str) -> None:
        self._function = function
        self._claim = _Claim(owner, f'the {what} "{getattr(function, "__name__", function)}"')

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _work_for(self._claim, self._function, *arguments, **options)

    def __eq__(self, other: object) -> bool:
        return bool(self._function == other)

    def __hash__(self) -> int:
        return hash(self._function)


def _at_exit(function: Any, what: str) -> Any:
    owner = _owner()
    # one callback runs the finalizers of the whole process
    is_shared = function == getattr(finalize, "_exitfunc", None)
    return function if owner in {None, _ANY} or is_shared or not callable(function) else _AtExit(function, owner, what)


def _noting_callback(register: Callable[..., Any]) -> Callable[..., Any]:
    def noting(function: Any, /, *arguments: Any, **options: Any) -> Any:
        register(_at_exit(function, "atexit callback"), *arguments, **options)
        return function

    return noting


def _noting_finalizer(create: Callable[..., None]) -> Callable[..., None]:
    def noting(finalizer: Any, thing: Any, function: Any, /, *arguments: Any, **options: Any) -> None:
        create(finalizer, thing, _at_exit(function, "finalizer"), *arguments, **options)

    return noting


def _refusing_processes(fork_exec: Callable[..., Any]) -> Callable[..., Any]:
    def refusing(*arguments: Any) -> Any:
        words = [os.fsdecode(word) for word in arguments[0]] if arguments else []
        program = words[-1] if words else ""
        if _RESOURCE_TRACKER.fullmatch(program) is None:
            _refuse_process(f"fork_exec: {words[:1]}")
        return fork_exec(*arguments)

    return refusing


def _fork_server() -> object:
    """Return the address of multiprocessing's fork server, which starts processes on request; None if there is none."""
    module = sys.modules.get("multiprocessing.forkserver")
    server = getattr(module, "_forkserver", None)
    return getattr(server, "_forkserver_address", None)
