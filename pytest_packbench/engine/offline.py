"""The offline guard: no network and no child process while a case runs on its recording (design 7).

An audit hook sees what a patched `socket.socket` misses: raw sockets, other libraries' clients, name
look-ups. It can't be taken out again, so there is one for the process, awake only while cases run.
A connection that was open before the case began sends unseen: `send` raises no audit event.
"""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NETWORK = frozenset({socket.AF_INET, socket.AF_INET6})
_SOCKET_EVENTS = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_LOOKUP_EVENTS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"})
_PROCESS_EVENTS = frozenset(
    {
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


class OfflineError(RuntimeError):
    """A case tried to reach the network or to start a process in fixture mode."""


# compared by identity: two suites may have a case of one name
@dataclass(slots=True, eq=False)
class _Watch:
    case: str
    allow_processes: bool
    violations: list[str] = field(default_factory=list)


class _Guard:
    def __init__(self) -> None:
        self.active: list[_Watch] = []
        self.installed = False

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS:
            return
        if event in _SOCKET_EVENTS:
            if getattr(arguments[0], "family", None) not in _NETWORK:
                return
            what = f"{event.removeprefix('socket.')} to {arguments[1]!r}" if len(arguments) > 1 else event
        elif event in _LOOKUP_EVENTS:
            what = f"look-up of {arguments[0]!r}"
        else:
            what = f"child process ({event}{f': {arguments[0]!r}' if arguments else ''})"
        concerned = [one for one in self._watching() if not (event in _PROCESS_EVENTS and one.allow_processes)]
        if not concerned:
            return
        who = "the target" if len(concerned) == 1 else "one of the cases under way"
        where = _caller()
        for watch in concerned:
            watch.violations.append(f"case {watch.case}: fixture mode is offline, but {who} tried: {what}{where}")
        raise OfflineError(concerned[0].violations[-1])

    def _watching(self) -> list[_Watch]:
        watch = _WATCH.get()
        if watch is not None:
            # also after its case's end: a thread that was abandoned, a task that was left behind
            return [watch]
        # a thread that a target started doesn't know its case: it is one of those that run, and none may pass by luck
        thread = threading.current_thread()
        ours = thread is threading.main_thread() or thread.name.startswith(THREADS)
        return [] if ours else list(self.active)


THREADS = "packbench"
"""How the names of this package's own threads begin."""

_WATCH: ContextVar[_Watch | None] = ContextVar("packbench_watch", default=None)
_GUARD = _Guard()


def _caller() -> str:
    for frame in reversed(traceback.extract_stack(limit=40)):
        if frame.filename != __file__ and "/lib/python" not in frame.filename.replace("\\", "/"):
            return f" at {frame.filename}:{frame.lineno}"
    return ""


@contextmanager
def offline(case_id: str, *, allow_processes: bool) -> Iterator[list[str]]:
    """Refuse network and child processes while the block runs; blocks of several cases may run side by side.

    Args:
        case_id: named in the refusal.
        allow_processes: whether child processes are allowed (the user's choice).

    Yields:
        The violations so far, one line each: a target may swallow the `OfflineError` that each raised.
    """
    if not _GUARD.installed:
        sys.addaudithook(_GUARD.audit)
        _GUARD.installed = True
    watch = _Watch(case_id, allow_processes)
    token = _WATCH.set(watch)
    _GUARD.active.append(watch)
    try:
        yield watch.violations
    finally:
        _GUARD.active.remove(watch)
        # a coroutine that was abandoned is closed outside of its context, where nothing was set
        with suppress(ValueError):
            _WATCH.reset(token)
