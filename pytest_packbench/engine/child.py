"""One child process that answers lines with lines: its pipes, its end, and its whole process group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING, cast

from pytest_packbench.engine.outside import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_STDIN, _STDOUT = 0, 1
_TAIL_LINES = 40
_LINE_BYTES = 16 * 1024
_SETTLE_S = 2.0


class ChildEndedError(Exception):
    """The child can't answer any more: it ended, or closed one of its pipes."""


class ChildTooLoudError(Exception):
    """The child wrote more than is read, without an end."""


class Child(asyncio.SubprocessProtocol):
    """What is known of one child; made and used inside the event loop, one request at a time.

    Both outputs are taken as they come, so that a child never blocks on writing, and what it wrote to standard error
    before its answer is there when the answer is.
    """

    def __init__(self, on_end: Callable[[Child], None]) -> None:
        """Wait to be connected.

        Args:
            on_end: called when the process is gone and its pipes are closed.
        """
        self._on_end = on_end
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines: deque[bytes] = deque()
        self._line = bytearray()
        self._waiting = 0
        self._too_loud = False
        self._open = True
        self._killed = False
        self._errors: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._error = bytearray()
        self._stirred = asyncio.Event()
        self._exited = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Whether it may be asked; one that ended leaving lines behind may, so that they are found."""
        return self._open or bool(self._lines)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs and where it had to be killed."""
        return self._transport.get_returncode() if self._transport is not None and not self._killed else None

    def error_tail(self) -> str:
        """Give the last lines that it wrote to standard error since `forget_errors`, at most 40."""
        lines = [*self._errors, bytes(self._error)] if self._error else [*self._errors]
        return b"\n".join(lines[-_TAIL_LINES:]).decode("utf-8", "replace")

    def forget_errors(self) -> None:
        """Begin a new tail: what comes now belongs to another request."""
        self._errors.clear()

    async def exchange(self, line: bytes) -> bytes:
        """Write one line and give the next one that it writes and that isn't blank.

        Args:
            line: without its end.

        Raises:
            ChildEndedError: it ended first; its exit code and standard error are known then, if it let go of them.
            ChildTooLoudError: its line is longer than is read.
        """
        pipe = self._stdin()
        if pipe is not None and not pipe.is_closing():
            pipe.writelines((line, b"\n"))
        while True:
            if self._lines:
                found = self._lines.popleft()
                self._waiting -= len(found)
                return found
            if self._too_loud:
                raise ChildTooLoudError
            if self._ended.is_set():
                raise ChildEndedError
            if not self._open:
                # its last words may be on their way still
                await self._settle()
                continue
            self._stirred.clear()
            await self._stirred.wait()

    async def close(self) -> None:
        """Let it end: close its input, then ask it to, then make it; its group ends with it."""
        pipe = self._stdin()
        if pipe is not None:
            pipe.close()
        if not await _set_within(self._exited, _SETTLE_S):
            self._signal(signal.SIGTERM)
        await self._settle()

    def kill(self) -> None:
        """End it and its group at once, without waiting."""
        self._open = False
        self._killed = self._killed or not self._exited.is_set()
        if sys.platform == "win32":
            self._signal(signal.SIGTERM)
        else:
            self._signal(signal.SIGKILL)

    async def killed(self) -> None:
        """End it at once and wait until it is gone."""
        self.kill()
        await self._settle()

    async def _settle(self) -> None:
        if not await _set_within(self._exited, _SETTLE_S):
            self.kill()
        if not await _set_within(self._ended, _SETTLE_S) and self._transport is not None:
            # a process outside of its group holds the pipes
            self._transport.close()
            self._over()

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_STDIN))

    def _signal(self, number: signal.Signals) -> None:
        # once it is reaped its id may be another's
        if self._transport is None or self._exited.is_set():
            return
        send_to_group(self._transport.get_pid(), number)

    def _over(self) -> None:
        self._open = False
        self._ended.set()
        self._stirred.set()
        self._on_end(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the process."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what it wrote."""
        if fd != _STDOUT:
            self._note(data)
        elif not self._too_loud:
            self._hear(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Take the end of a pipe."""
        if fd == _STDOUT and self._line:
            self._take_line()
        # with an error at its input, it didn't read the whole request
        if fd == _STDOUT or (fd == _STDIN and exc is not None):
            self._open = False
            self._stirred.set()

    def process_exited(self) -> None:
        """Take its end, and end what it left behind in its group."""
        self._open = False
        if self._transport is not None and sys.platform != "win32":
            send_to_group(self._transport.get_pid(), signal.SIGKILL)
        self._exited.set()
        self._stirred.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own signature
        """Take the end of everything."""
        if self._transport is not None:
            self._transport.close()
        self._over()

    def _hear(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self._grow(first)
        for part in more:
            self._take_line()
            self._grow(part)

    def _grow(self, part: bytes) -> None:
        self._line += part
        if self._waiting + len(self._line) > MOST_BYTES:
            self._line.clear()
            self._too_loud = True
            self._stirred.set()
            self.kill()

    def _take_line(self) -> None:
        if self._line.strip():
            self._lines.append(bytes(self._line))
            self._waiting += len(self._line)
            self._stirred.set()
        self._line.clear()

    def _note(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._errors.append(bytes(self._error + part[:_LINE_BYTES]))
            self._error.clear()
        self._error += rest[: max(0, _LINE_BYTES - len(self._error))]


def send_to_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and to all that it started; without effect where there is none."""
    try:
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # gone, or (as macOS says it) only waiting to be reaped
        pass


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
