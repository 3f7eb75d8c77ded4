"""The offline guard: no network and no child process while a case runs on its recording.

An audit hook sees what a patched `socket.socket` misses: raw sockets, other libraries' clients, name look-ups. It
can't be removed, so there is one per process, which ignores everything while no case runs. It does not see data sent
through a connection that was open before the case started: `send` raises no audit event.
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


# compared by identity: two suites may have cases of the same name
@dataclass(slots=True, eq=False)
class _GuardedCase:
    case: str
    allow_processes: bool
    violations: list[str] = field(default_factory=list)


class _Guard:
    def __init__(self) -> None:
        self.active: list[_GuardedCase] = []
        self.installed = False

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS:
            return
        if event in _SOCKET_EVENTS:
            if getattr(arguments[0], "family", None) not in _NETWORK:
                return
            action = f"{event.removeprefix('socket.')} to {arguments[1]!r}" if len(arguments) > 1 else event
        elif event in _LOOKUP_EVENTS:
            action = f"look-up of {arguments[0]!r}"
        else:
            action = f"child process ({event}{f': {arguments[0]!r}' if arguments else ''})"
        cases = [case for case in self._current() if not (event in _PROCESS_EVENTS and case.allow_processes)]
        if not cases:
            return
        advice = (
            "set packbench_allow_processes = yes to allow it"
            if event in _PROCESS_EVENTS
            else "call models through context.llm, or use --packbench-mode=live"
        )
        culprit = "the target" if len(cases) == 1 else "one of the running cases"
        location = _caller_location()
        for case in cases:
            case.violations.append(
                f"case {case.case}: fixture mode is offline, but {culprit} tried: {action}{location}; {advice}"
            )
        raise OfflineError(cases[0].violations[-1])

    def _current(self) -> list[_GuardedCase]:
        case = _CURRENT.get()
        if case is not None:
            # also after its case's end: an abandoned thread, a task that was left behind
            return [case]
        # the case of a thread that a target started is unknown: it is one of those that run, and none may pass by luck
        thread = threading.current_thread()
        own_thread = thread is threading.main_thread() or thread.name.startswith(THREAD_PREFIX)
        return [] if own_thread else list(self.active)


THREAD_PREFIX = "packbench"
"""The beginning of the names of this package's own threads."""

_CURRENT: ContextVar[_GuardedCase | None] = ContextVar("packbench_offline_case", default=None)
_GUARD = _Guard()


def _caller_location() -> str:
    for frame in reversed(traceback.extract_stack(limit=40)):
        if frame.filename != __file__ and "/lib/python" not in frame.filename.replace("\\", "/"):
            return f" at {frame.filename}:{frame.lineno}"
    return ""


@contextmanager
def offline(case_id: str, *, allow_processes: bool) -> Iterator[list[str]]:
    """Refuse network and child processes while the block runs; blocks of several cases may run concurrently.

    Args:
        case_id: named in the error.
        allow_processes: whether child processes are allowed.

    Yields:
        The violations so far, one line each: a target may ignore the `OfflineError` that each raised.
    """
    if not _GUARD.installed:
        sys.addaudithook(_GUARD.audit)
        _GUARD.installed = True
    case = _GuardedCase(case_id, allow_processes)
    token = _CURRENT.set(case)
    _GUARD.active.append(case)
    try:
        yield case.violations
    finally:
        _GUARD.active.remove(case)
        # an abandoned coroutine is closed outside its context, where the variable has no value to reset
        with suppress(ValueError):
            _CURRENT.reset(token)
