"""The time limit of a case: an alarm that ends a target, a grace for its end, and then the end of the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pytest_packbench.model.request import TargetFailure

if TYPE_CHECKING:
    from collections.abc import Callable


# a target may clean up after its time limit
_GRACE_S = 10.0


_STUCK = 2
"""The exit code of a process that a time limit has ended: what pytest has for an interrupted run."""


# the function itself: it is replaced during the session
_exit = os._exit


# `signal` itself: converting to and from its enums takes ten times as long as the call
_set_handler: Callable[..., Any] = getattr(sys.modules.get("_signal"), "signal", signal.signal)


class Watchdog:
    """Ends the process where no Python code can run, because a target hangs in C code: an alarm is not heard there.

    A thread of `faulthandler` needs no interpreter. It writes where all threads are, and the exit code is 1. It is
    started again at most every tenth of `grace_s`, because that takes longer than a short case.

    Attributes:
        file: the descriptor to write to; None where nothing is watched.
        grace_s: the time beyond the limit of a case, seconds.
        again_s: when the thread is started again, monotonic seconds; 0 while there is none.
    """

    file: ClassVar[int | None] = None
    grace_s: ClassVar[float] = 300.0
    again_s: ClassVar[float] = 0.0

    @classmethod
    def expect(cls, seconds: float, now: float) -> None:
        """Expect to be called again within the time limit of a case and the grace; `now` is monotonic, seconds."""
        if now < cls.again_s or cls.file is None:
            return
        import faulthandler

        cls.again_s = now + cls.grace_s / 10
        faulthandler.dump_traceback_later(seconds + cls.grace_s, exit=True, file=cls.file)

    @classmethod
    def cancel(cls) -> None:
        """Expect nothing: what comes now may take as long as it likes."""
        if cls.again_s:
            import faulthandler

            cls.again_s = 0.0
            faulthandler.cancel_dump_traceback_later()


class TimeLimitReached(BaseException):
    """Ends a target on the main thread whose time is up."""


class TimeLimit:
    """Ends a block on the main thread after a time, by an alarm of the operating system.

    It costs less than a thread. There is no limit on other threads, without such alarms, and where another alarm rings
    earlier. A block that takes the alarm for itself is not ended, and has reached its limit all the same. A block that
    catches the exception and is still there ten seconds later ends with the process: what has run is in the journal.

    Args:
        seconds: the time; None for no limit.
        keep: stores that the case is an error, before the process ends.

    Attributes:
        reached: whether the time was up before the block ended, whatever it made of the exception.
        file: the descriptor for the line that says why the process ends, for all limits; standard error at first.
    """

    file: ClassVar[int] = 2

    def __init__(self, seconds: float | None, keep: Callable[[], object] = lambda: None) -> None:
        self.reached = False
        self._seconds = seconds
        self._keep = keep
        self._is_in_block = False
        self._handler: Any = None
        self._end = self._outer_end = 0.0

    @staticmethod
    def is_available() -> bool:
        """Return whether the operating system has such alarms."""
        return hasattr(signal, "setitimer")

    @staticmethod
    def remove() -> None:
        """Remove the limit of the block that runs, as a debugger needs."""
        Watchdog.cancel()
        for limit in tuple(_LIMITS):
            limit.stop()

    def __enter__(self) -> Self:
        """Set the alarm."""
        if (
            self._seconds is None
            or not self.is_available()
            or threading.current_thread() is not threading.main_thread()
        ):
            return self
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        if 0 < left <= self._seconds:
            return self
        now = time.monotonic()
        Watchdog.expect(self._seconds, now)
        self._end = now + self._seconds
        self._outer_end = now + left if left else 0.0
        # before the alarm: it would end the process
        handler = _set_handler(signal.SIGALRM, self._ring)
        # one that is not Python's can't be restored
        self._handler = signal.SIG_DFL if handler is None else handler
        _LIMITS.append(self)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, _GRACE_S)
        self._is_in_block = True
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the alarm."""
        self.stop()

    def stop(self) -> None:
        """Remove the alarm, once; call it again after the block, because the alarm may ring while it is removed."""
        self._is_in_block = False
        if self._handler is None:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        _set_handler(signal.SIGALRM, self._handler)
        self._handler = None
        _LIMITS.clear()
        now = time.monotonic()
        # the block may have taken the alarm for itself
        self.reached = self.reached or now > self._end
        if self._outer_end:
            signal.setitimer(signal.ITIMER_REAL, max(self._outer_end - now, 1e-3))

    def _ring(self, _number: int, _frame: object) -> None:
        if not self._is_in_block:
            return
        if self.reached:
            _end_process(self._keep)
        self.reached = True
        raise TimeLimitReached(f"the time limit of {self._seconds:g} s")


def _end_process(keep: Callable[[], object]) -> None:
    """End the process on top of frames that never return; other cases are run by another one."""
    case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or "a case"
    line = (
        f"\npackbench: {case} caught the exception of its time limit and continued for {_GRACE_S:g} s, so the "
        "process ends here; what has run is kept: correct the target, then resume the run (--packbench-resume=latest)\n"
    )
    try:
        os.write(TimeLimit.file, line.encode("utf-8", "backslashreplace"))
        keep()
    finally:
        _exit(_STUCK)


# the one whose block runs; an attribute of the class would cost more
_LIMITS: list[TimeLimit] = []


class ProcessState:
    """What a target must leave as it is, because the rest of the run depends on it."""

    __slots__ = ("_depth", "_process")

    def __init__(self) -> None:
        self._process = os.getpid()
        self._depth = sys.getrecursionlimit()

    def restore(self) -> bool:
        """Restore a recursion limit that was lowered; end a forked process, which must not run the other cases.

        Returns:
            Whether the limit was lowered.
        """
        is_lowered = sys.getrecursionlimit() < self._depth
        if is_lowered:
            sys.setrecursionlimit(self._depth)
        if os.getpid() != self._process:
            os.write(2, b"packbench: the target returned in a process that it had forked; the process was ended\n")
            os._exit(1)
        return is_lowered


def timed_out(what: str, seconds: float) -> TargetFailure:
    """Return the failure of an attempt whose time was up; `what` is the target or the test."""
    advice = "correct what it waits for, or raise --packbench-case-timeout"
    return TargetFailure("timeout", f"{what} took longer than {seconds:g} s and was abandoned; {advice}")
