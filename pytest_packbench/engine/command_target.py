"""A pipeline in a program: JSON-RPC 2.0, one message a line, over its standard input and output."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pytest_packbench.cases.load import parse_json
from pytest_packbench.engine.external import MOST_BYTES, TargetError, TargetFailure, Veil, request_json
from pytest_packbench.engine.secrets import HIDDEN
from pytest_packbench.model.errors import format_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.request import VerifyRequest


_SECRET_NAME = re.compile(
    r"(^|[-_])(api)?(keys?|tokens?|secrets?|passwords?|passwd|auth|authorization)$", re.IGNORECASE
)
_LAST_WORDS = 200
_SEEN_BYTES = 4000
_NO_OBJECT = "expected an object"
_STDIN, _STDOUT = 0, 1
_TAIL_LINES = 40
_LINE_BYTES = 16 * 1024
_SETTLE_S = 2.0


class CommandTarget:
    """Asks child processes, each one case at a time. Used from one event loop.

    Processes are started when needed and kept. One that breaks the protocol, dies, or whose request is cancelled is
    killed with its whole group, and the next request gets a fresh one.

    Attributes:
        opaque: its model calls, if any, are out of sight, so that it is recorded whole.
        shown: the command as it may be shown.
    """

    opaque = True

    def __init__(self, *, command: str, cwd: Path, processes: int) -> None:
        """Read the command; nothing is started yet.

        Args:
            command: program and arguments, in the quotes of a POSIX shell; no shell runs it.
            cwd: the folder that the processes start in, absolute.
            processes: how many may run at once, at least 1.

        Raises:
            TargetError: one line: the command can't be read.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise TargetError(f"target cmd: the command can't be read: {error}") from None
        if not self._words:
            raise TargetError("target cmd: the command is empty; expected cmd:program arguments")
        if "\0" in command:
            raise TargetError("target cmd: the command holds a NUL character")
        seen, hidden = _without_secrets(self._words)
        self.shown = " ".join(seen)
        self._program = seen[0]
        self._cwd = cwd
        self._veil = Veil(hidden)
        self._slots = asyncio.Semaphore(processes)
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._starting: set[asyncio.Task[Child]] = set()
        self._serial = 0
        self._closed = False
        # without aclose, at the latest when the interpreter ends
        weakref.finalize(self, _kill_all, self._children, os.getpid())

    async def verify(self, request: VerifyRequest) -> Any:
        """Ask one process; give the `result` of its reply.

        Raises:
            TargetFailure: no result; `kind` and message say why, `details` are the process's standard error since the
                request began.
        """
        self._serial += 1
        number = self._serial
        line = request_json({"jsonrpc": "2.0", "id": number, "method": "verify", "params": request.as_json()})
        async with self._slots:
            child = self._idle_child()
            if child is not None:
                child.forget_errors()
                # it may have ended after an earlier answer, and that was not seen yet
                with suppress(_EndedQuietly):
                    return await self._asked(child, number, line)
            return await self._asked(await self._started(), number, line)

    async def aclose(self) -> None:
        """End all processes: their input is closed, then they are asked to end, then made to."""
        self._closed = True
        if self._starting:
            await asyncio.wait(self._starting)
        idle, self._idle = self._idle, []
        ends = [child.close() if child in idle else child.killed() for child in list(self._children)]
        await asyncio.gather(*ends)

    def _idle_child(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        return None

    async def _started(self) -> Child:
        if self._closed:
            raise TargetFailure("target_unreachable", f"{self._program}: the target was closed")
        # a start that is cut off half way would leave pipes behind
        start = asyncio.create_task(self._start())
        self._starting.add(start)
        start.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            start.add_done_callback(_kill_started)
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise TargetFailure(
                "target_unreachable",
                f'can\'t start "{self._program}" in {self._cwd}: {reason}; check the command and the PATH',
            ) from None

    async def _start(self) -> Child:
        child = Child(self._children.discard)
        self._children.add(child)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child,
                *self._words,
                cwd=self._cwd,
                # Python would keep a short answer in its buffer
                env={"PYTHONUNBUFFERED": "1", **os.environ},
                start_new_session=True,
            )
        except BaseException:
            self._children.discard(child)
            raise
        return child

    async def _asked(self, child: Child, number: int, line: bytes) -> Any:
        kept = False
        try:
            answer = await child.exchange(line)
            reply = await self._reply(child, number, answer)
            kept = True
        except ChildEndedError:
            raise self._ended(child) from None
        except ChildTooLoudError:
            await child.killed()
            why = f"wrote more than {MOST_BYTES // 2**20} MiB in one answer"
            raise self._unreadable(child, why) from None
        finally:
            if not kept:
                child.kill()
            elif not self._closed:
                self._idle.append(child)
        if reply.get("error") is not None:
            raise self._refused(child, reply["error"])
        return self._veil.result(reply["result"])

    async def _reply(self, child: Child, number: int, answer: bytes) -> dict[str, Any]:
        """Read the reply out of a line; a process that broke the protocol is ended first, its last words are told."""
        try:
            reply: Any = parse_json(answer)
        except ValueError as error:
            # what begins as an object was meant as one
            wrong = str(error) if answer.lstrip().startswith(b"{") else _NO_OBJECT
        else:
            wrong = _wrong(reply, number, self._veil)
        if wrong:
            await child.killed()
            beginning = format_value(self._veil.excerpt(answer[:_SEEN_BYTES].decode("utf-8", "replace")))
            raise self._unreadable(
                child,
                f"wrote a line to standard output that is no reply: {self._veil.excerpt(wrong)}: {beginning}; "
                "only JSON-RPC replies, a line each, go there; write logs to standard error",
            )
        return dict(reply)

    def _unreadable(self, child: Child, why: str) -> TargetFailure:
        return TargetFailure("result_unreadable", f"{self._program}: {why}", self._said(child))

    def _refused(self, child: Child, error: Any) -> TargetFailure:
        if not isinstance(error, dict):
            message = format_value(self._veil.result(error))
        else:
            message = self._veil.excerpt(f"error {error.get('code', '')}: {error.get('message', '')}")
        data = self._veil.result(error.get("data")) if isinstance(error, dict) else None
        details = () if data is None else (f"data: {self._veil.excerpt(str(data), 1000)}",)
        return TargetFailure("target_error", f"{self._program} answered: {message}", (*details, *self._said(child)))

    def _ended(self, child: Child) -> TargetFailure:
        if self._closed:
            return TargetFailure("target_died", f"{self._program}: the target was closed before it answered")
        code = child.exit_code
        said = self._said(child)
        words = self._veil.excerpt(said[-1], _LAST_WORDS) if said else ""
        message = f"{self._program}: {_end(code)} before it answered{': ' if words else ''}{words}"
        return (_EndedQuietly if code == 0 else TargetFailure)("target_died", message, said)

    def _said(self, child: Child) -> tuple[str, ...]:
        # hidden as a whole: a secret may have several lines
        return tuple(line[:1000] for line in self._veil.text(child.error_tail()).splitlines() if line.strip())


class _EndedQuietly(TargetFailure):
    """A process ended without an answer and without an error."""


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
        """Wait to be connected; `on_end` is called when the process is gone and its pipes are closed."""
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
        """Write one line, given without its end, and give the next one that it writes and that isn't blank.

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
        self._signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)

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


def _end(code: int | None) -> str:
    if code is None:
        return "closed its standard output"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _wrong(reply: Any, number: int, veil: Veil) -> str:
    """Say what is wrong with a message as the reply to request `number` (JSON-RPC 2.0, 5); empty where nothing is."""
    if not isinstance(reply, dict):
        return _NO_OBJECT
    if reply.get("jsonrpc") != "2.0":
        return '"jsonrpc": "2.0" is missing'
    failed = reply.get("error") is not None
    # many libraries write the one that is absent as null
    if failed == ("result" in reply and not (failed and reply["result"] is None)):
        return 'expected either "result" or "error"'
    name = reply.get("id")
    # who can't read a request can't know its id
    if name is None and failed:
        return ""
    if isinstance(name, bool) or name != number:
        return f'expected "id": {number}, got {format_value(veil.result(name))}'
    return ""


def _without_secrets(words: list[str]) -> tuple[list[str], list[str]]:
    """Hide the values of options and variables with secret names; give the words to show, and those values."""
    seen, hidden, follows = [], [], False
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if follows and not word.startswith("-"):
            seen.append(HIDDEN)
            hidden.append(word)
            follows = False
        elif equals and _SECRET_NAME.search(name):
            seen.append(f"{name}={HIDDEN}")
            hidden.append(value)
            follows = False
        else:
            seen.append(word)
            follows = position > 0 and word.startswith("-") and not equals and bool(_SECRET_NAME.search(word))
    return seen, hidden


def _kill_started(start: asyncio.Task[Child]) -> None:
    if not start.cancelled() and start.exception() is None:
        start.result().kill()


def _kill_all(children: set[Child], owner: int) -> None:
    # a forked process has the same list, and none of these children
    if os.getpid() == owner:
        for child in list(children):
            child.kill()


def send_to_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and to all that it started; without effect where there is none."""
    # gone, or (as macOS says it) only waiting to be reaped
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
