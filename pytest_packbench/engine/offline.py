"""The offline guard: no network and no child process while a case runs on its recording.

An audit hook sees what a patched `socket.socket` misses: raw sockets, other libraries' clients, name look-ups. It
can't be removed, so there is one per process, which ignores everything that no case does. SECURITY.md lists what it
does not see.

Whose work it is that the hook sees, in this order:

1. the context variable that the case's function, tasks and callbacks inherit;
2. the asyncio task, which may run in a context of its own;
3. the claim on the thread, by a sync case, by what a case gave to a thread pool, or by a callback at exit;
4. the case that started the thread;
5. any running case, on a thread that was started outside of cases: it may serve them. The main thread is exempt: it
   runs pytest and other tests, unless there is a claim.

The only addresses that may be reached are those that this process serves: its gateway, which answers from recordings,
and the worlds in which agents act.

In Python 3.11 no audit event tells that work is started for later, and in no version one tells of the processes of
`multiprocessing`: `_watch` replaces the functions that start these.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, finalize

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from pytest_packbench.engine.scheduler import CapturedOutput

    Carrier = Callable[[Callable[..., Any]], Callable[..., Any]]
    """Returns a function that runs the given one on behalf of the thread that calls the carrier."""

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
_SERVED_HOSTS = ("127.0.0.1", b"127.0.0.1")
# a target may try again and again
_MAX_NOTED = 100
_ADVICE = "record its model calls (--packbench-mode=record), or use --packbench-mode=live"
_ENGINE = __file__.removesuffix("offline.py")
_PACKAGE = _ENGINE.removesuffix(f"engine{os.sep}")
# whose functions are between a caller and what it calls
_BETWEEN = (__file__, f"{_ENGINE}gateway{os.sep}stamps.py")
_LIBRARIES = ("<frozen", os.__file__.removesuffix("os.py"))


class OfflineError(RuntimeError):
    """A case tried to reach the network or to start a process in fixture mode."""


# compared by identity: two suites may have cases of the same name
@dataclass(slots=True, eq=False)
class _GuardedCase:
    case: str
    suite: object
    allow_processes: bool
    advice: str
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


_STARTED_BY = "_packbench_started_by"
_CURRENT: ContextVar[_GuardedCase | None] = ContextVar("packbench_offline_case", default=None)
CURRENT_OUTPUT: ContextVar[CapturedOutput | None] = ContextVar("packbench_output", default=None)
"""The output of the case for which the caller works, where cases run concurrently."""
_ACTIVE: list[_GuardedCase] = []
_CLAIMS: dict[int, _Claim] = {}
_TASKS: WeakKeyDictionary[asyncio.Task[Any], _GuardedCase] = WeakKeyDictionary()
_SERVED: list[tuple[str, int]] = []
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
            _refuse(f"{event.removeprefix('socket.')} to {address!r}")
        elif address is not None and address == _fork_server():
            _refuse_process("multiprocessing, start method forkserver")
    elif event in _LOOKUP_EVENTS:
        if _SERVED and event == "socket.getaddrinfo" and arguments[0] in _SERVED_HOSTS:
            return
        _refuse(f"look-up of {arguments[0]!r}")
    else:
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


def _refuse(action: str, *, is_process: bool = False) -> None:
    """Raise an error and note it, if this thread works for a case that may not do this."""
    if _OWN_THREADS and threading.get_ident() in _OWN_THREADS:
        return
    owner = _owner()
    suspects = _suspects() if owner is None else [owner]
    cases = [case for case in suspects if not (is_process and case.allow_processes)]
    if not cases and sys.is_finalizing():
        # whose object is freed can't be known, and `tell_late` has run
        text = f"fixture mode is offline, but an object that was left until the interpreter's exit tried: {action}"
        print(f"packbench: {text}", file=sys.stderr)  # noqa: T201 - pytest has ended
        raise OfflineError(text)
    if not cases:
        return
    advice = cases[0].advice
    if is_process:
        advice = "set packbench_allow_processes = yes to allow it"
    culprit = "the target"
    if owner is None:
        culprit = f"code on {_what()}, which no case started,"
    elif owner.over:
        # also after the case's end: a thread or a task that was left behind
        culprit, advice = f"{_what()}, left running by case {owner.case},", "end it before the target returns"
    place = caller_location()
    text = f"fixture mode is offline, but {culprit} tried: {action}{place and f' at {place}'}; {advice}"
    for case in cases:
        message = f"case {case.case}: {text}"
        if len(case.violations) < _MAX_NOTED:
            case.violations.append(message)
        if case.over:
            note_late(case.suite, case.case, message)
    raise OfflineError(f"case {cases[0].case}: {text}")


def _owner() -> _GuardedCase | None:
    """Return the case for which this thread works; None if that is unknown or outside of cases."""
    owner = _CURRENT.get()
    if owner is None and (task := current_task()) is not None:
        owner = _TASKS.get(task)
    if owner is None and (claim := _CLAIMS.get(threading.get_ident())) is not None:
        return claim.owner
    return owner or vars(threading.current_thread()).get(_STARTED_BY)


def _suspects() -> list[_GuardedCase]:
    """Return the cases that work without an owner may serve."""
    is_claimed = threading.get_ident() in _CLAIMS
    return [] if not is_claimed and threading.current_thread() is threading.main_thread() else list(_ACTIVE)


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
    ident, token = threading.get_ident(), _CURRENT.set(claim.owner)
    before = _CLAIMS.get(ident)
    _CLAIMS[ident] = claim
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
    advice: str = _ADVICE,
) -> Iterator[list[str]]:
    """Refuse network and child processes while the block runs; blocks of several cases may run concurrently.

    What the block starts and leaves running stays refused after its end.

    Args:
        case_id: named in the error.
        allow_processes: whether child processes are allowed.
        suite: the case's suite, which `take_late` compares by identity.
        shares_thread: whether the block is part of a task, beside which others run on this thread.
        advice: what to do about a use of the network.

    Yields:
        The violations so far, one line each: a target may ignore the `OfflineError` that each raised.
    """
    _install()
    case = _GuardedCase(case_id, suite, allow_processes, advice)
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
def _install() -> None:
    """Begin to watch, once for the process."""
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
    _CARRIERS.append(_work_for_owner)
    _watch_pools()
    with suppress(ImportError):
        import _posixsubprocess

        replace(_posixsubprocess, "fork_exec", _refusing_processes)


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
                thread.daemon = True
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
    return function if owner is None or is_shared or not callable(function) else _AtExit(function, owner, what)


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
