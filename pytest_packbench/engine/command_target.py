"""Command targets: a pipeline in a program, called by JSON-RPC 2.0 over its standard input and output, one per line."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import LIMITS
from pytest_packbench.model.errors import format_value
from pytest_packbench.model.redaction import Redactor, redact_options
from pytest_packbench.model.request import (
    MAX_RESULT_BYTES,
    ROUTE,
    AnswerError,
    GatewayRoute,
    TargetError,
    TargetFailure,
    VerifyRequest,
    request_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


_STDERR_EXCERPT = 200
_LINE_EXCERPT_BYTES = 4000
_VALUE_EXCERPT = 60
_NO_OBJECT = "expected an object"
_STDIN, _STDOUT = 0, 1
_STDERR_LINES = 40
_STDERR_LINE_BYTES = 16 * 1024
_END_S = 1.5
"""How long each of the three steps of a process's end may take, seconds: all fit in one step of closing a run."""
_OWN_END_S = 1.0
"""How long a process that wrote no reply may take to end by itself, seconds."""


class CommandTarget:
    """Calls child processes, each for one case at a time, from one event loop.

    Processes are started when needed and reused; where the gateway records or replays their model calls, each case has
    one of its own, which knows the gateway's address for that case alone. One that violates the protocol, dies, or
    whose request is cancelled is killed with its process group, and the next request gets a new one.

    Attributes:
        shown: the command without secrets.
    """

    opaque = True
    runs_offline = True

    def __init__(
        self, *, command: str, cwd: Path, processes: int, end_wait_s: float = _END_S, redactor: Redactor | None = None
    ) -> None:
        """Parse the command; nothing is started yet.

        Args:
            command: program and arguments, quoted as for a POSIX shell; no shell is used.
            cwd: the folder in which processes start, absolute.
            processes: maximum number of processes, at least 1.
            end_wait_s: how long a process may take for each step of its end before the next, harder one, seconds.
            redactor: the run's; one of its own by default.

        Raises:
            TargetError: one line: the command can't be parsed.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise TargetError(f"target cmd: the command can't be parsed: {error}") from None
        if not self._words:
            raise TargetError("target cmd: the command is empty; expected cmd:program arguments")
        if "\0" in command:
            raise TargetError("target cmd: the command contains a NUL character")
        words, secrets = redact_options(self._words)
        self.shown = " ".join(words)
        self._program = words[0]
        self._cwd = cwd
        self._end_wait_s = end_wait_s
        self._redactor = Redactor(os.environ, secrets) if redactor is None else redactor
        self._slots = asyncio.Semaphore(processes)
        self._idle: list[ChildProcess] = []
        self._children: set[ChildProcess] = set()
        self._starting: set[asyncio.Task[ChildProcess]] = set()
        self._requests = 0
        self._closed = False
        # without aclose: when the object is freed, at the latest at the interpreter's exit
        weakref.finalize(self, _kill_all, self._children, os.getpid())

    @property
    def processes(self) -> int:
        """The number of processes that were started, or are about to start, and have not ended."""
        return len(self._children)

    async def verify(self, request: VerifyRequest) -> Any:
        """Send one request to a process and return the `result` of its reply.

        Raises:
            AnswerError: it has answered, and that is no result.
            TargetFailure: there is no answer; `details` is the process's standard error since the request.
        """
        self._requests += 1
        number = self._requests
        line = request_json({"jsonrpc": "2.0", "id": number, "method": "verify", "params": request.as_json()})
        route = ROUTE.get()
        async with self._slots:
            if route is not None and route.environment is not None:
                return await self._call_once(route.environment, number, line)
            child = self._idle_child()
            if child is not None:
                child.forget_errors()
                _assign(route, child)
                # it may have ended after an earlier reply, which was not noticed yet
                with suppress(_EndedNormally):
                    return await self._call(child, number, line)
            token, environment = ("", None) if route is None else route.shared_environment()
            child = await self._start_shielded(environment)
            child.token = token
            _assign(route, child)
            return await self._call(child, number, line)

    async def _call_once(self, environment: Mapping[str, str], number: int, line: bytes) -> Any:
        """Send a request to a process of its own, which has ended when this returns."""
        child = await self._start_shielded(environment)
        try:
            return await self._call(child, number, line, keeps=False)
        finally:
            try:
                await child.close()
            except asyncio.CancelledError:
                child.kill()
                raise

    async def aclose(self) -> None:
        """End all processes: close their input, then terminate, then kill them."""
        self._closed = True
        if self._starting:
            await asyncio.wait(self._starting)
        idle, self._idle = self._idle, []
        ends = [child.close() if child in idle else child.kill_and_wait() for child in list(self._children)]
        await asyncio.gather(*ends)

    def _idle_child(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        return None

    async def _start_shielded(self, environment: Mapping[str, str] | None) -> ChildProcess:
        if self._closed:
            raise TargetFailure("target_unreachable", f"{self._program}: the target was closed")
        # a start that is cancelled half way would leave pipes behind
        start = asyncio.create_task(self._start(environment))
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

    async def _start(self, environment: Mapping[str, str] | None) -> ChildProcess:
        child = ChildProcess(self._children.discard, end_wait_s=self._end_wait_s)
        self._children.add(child)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child,
                *self._words,
                cwd=self._cwd,
                # Python would buffer a short reply
                env={"PYTHONUNBUFFERED": "1", **(os.environ if environment is None else environment)},
                start_new_session=True,
            )
        except BaseException:
            self._children.discard(child)
            raise
        return child

    async def _call(self, child: ChildProcess, number: int, line: bytes, *, keeps: bool = True) -> Any:
        reusable, left = False, child.has_lines
        try:
            answer = await child.exchange(line)
            reply = await self._parse_reply(child, number, answer, left=left)
            reusable = True
        except ChildEndedError:
            raise self._ended(child) from None
        except ChildOutputError:
            await child.kill_and_wait()
            problem = f"wrote more than {MAX_RESULT_BYTES // 2**20} MiB in one reply"
            raise self._unreadable(child, problem) from None
        finally:
            if not reusable:
                child.kill()
            elif keeps and not self._closed:
                self._idle.append(child)
        if reply.get("error") is not None:
            raise self._error_reply(child, reply["error"])
        return reply["result"]

    async def _parse_reply(self, child: ChildProcess, number: int, answer: bytes, *, left: bool) -> dict[str, Any]:
        """Parse a reply; ends a process that violates the protocol, so that its standard error is complete.

        One that then fails has not answered: what it wrote may be its error message. Nor is a line an answer that was
        `left` from before the request.
        """
        try:
            reply: Any = parse_json(answer, LIMITS["result"])
        except ValueError as error:
            # what begins like an object should have been one
            problem = str(error) if answer.lstrip().startswith(b"{") else _NO_OBJECT
        else:
            problem = _reply_problem(reply, number, self._redactor)
        if problem:
            await child.end_or_kill()
            text = self._redactor.excerpt(answer[:_LINE_EXCERPT_BYTES].decode("utf-8", "replace"))
            excerpt = format_value(text)
            if child.exit_code:
                message = f"{self._program}: {_describe_exit(child.exit_code)} after it wrote {excerpt}"
                raise TargetFailure("target_died", message, self._stderr(child))
            wrong = f"wrote a line to standard output that is not a reply: {self._redactor.excerpt(problem)}: {excerpt}"
            advice = "write only JSON-RPC replies there, one per line, and logs to standard error"
            if left:
                message = f"{self._program}: {wrong}, before it got the request; {advice}"
                raise TargetFailure("target_error", message, self._stderr(child))
            raise self._unreadable(child, f"{wrong}; {advice}", text)
        return dict(reply)

    def _unreadable(self, child: ChildProcess, problem: str, text: str = "") -> AnswerError:
        details = self._stderr(child)
        return AnswerError("answer_unreadable", f"{self._program}: {problem}", text=text, details=details)

    def _error_reply(self, child: ChildProcess, error: Any) -> TargetFailure:
        said = error if isinstance(error, dict) else {"message": error}
        message = self._redactor.excerpt(f"error {said.get('code', '')}: {said.get('message', '')}")
        details = (f"data: {self._redactor.excerpt(str(said['data']), 1000)}",) if said.get("data") is not None else ()
        return TargetFailure("target_error", f"{self._program} answered: {message}", (*details, *self._stderr(child)))

    def _ended(self, child: ChildProcess) -> TargetFailure:
        if self._closed:
            return TargetFailure("target_died", f"{self._program}: the target was closed before it answered")
        code = child.exit_code
        lines = self._stderr(child)
        excerpt = self._redactor.excerpt(lines[-1], _STDERR_EXCERPT) if lines else ""
        message = f"{self._program}: {_describe_exit(code)} before it answered{': ' if excerpt else ''}{excerpt}"
        return (_EndedNormally if code == 0 else TargetFailure)("target_died", message, lines)

    def _stderr(self, child: ChildProcess) -> tuple[str, ...]:
        # redacted as a whole: a secret may have several lines
        return tuple(line[:1000] for line in self._redactor.text(child.error_tail()).splitlines() if line.strip())


def _assign(route: GatewayRoute | None, child: ChildProcess) -> None:
    if route is not None and child.token:
        route.assign(child.token)


class _EndedNormally(TargetFailure):
    """A process ended with exit code 0 before it answered."""


class ChildEndedError(Exception):
    """The process can't answer any more: it ended, or closed one of its pipes."""


class ChildOutputError(Exception):
    """The process wrote a longer line than is read."""


class ChildProcess(asyncio.SubprocessProtocol):
    """One child process, used on the event loop for one request at a time.

    Both outputs are read as they come, so that the process never blocks on writing, and what it wrote to standard
    error before its reply is available with the reply.

    Attributes:
        token: names it to the gateway; empty where it has none of its own.
    """

    def __init__(self, on_end: Callable[[ChildProcess], None], *, end_wait_s: float = _END_S) -> None:
        """Create the protocol of a process; `on_end` is called when it has ended and its pipes are closed."""
        self.token = ""
        self._on_end = on_end
        self._end_wait_s = end_wait_s
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines: deque[bytes] = deque()
        self._line = bytearray()
        self._unread_bytes = 0
        self._output_too_long = False
        self._open = True
        self._killed = False
        self._errors: deque[bytes] = deque(maxlen=_STDERR_LINES)
        self._error = bytearray()
        self._changed = asyncio.Event()
        self._exited = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Whether it may get a request; one that ended may too while it has unread lines, so that they are reported."""
        return self._open or bool(self._lines)

    @property
    def has_lines(self) -> bool:
        """Whether it has written something that was not read, also a part of a line."""
        return bool(self._lines) or bool(self._line.strip())

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs and if it was killed here."""
        return self._transport.get_returncode() if self._transport is not None and not self._killed else None

    def error_tail(self) -> str:
        """Return the last lines of standard error since `forget_errors`, at most 40."""
        lines = [*self._errors, bytes(self._error)] if self._error else [*self._errors]
        return b"\n".join(lines[-_STDERR_LINES:]).decode("utf-8", "replace")

    def forget_errors(self) -> None:
        """Drop the lines of standard error so far: they belong to an earlier request."""
        self._errors.clear()

    async def exchange(self, line: bytes) -> bytes:
        """Write a line, passed without its end, and return the next line of output that is not blank.

        Raises:
            ChildEndedError: the process ended first; its exit code and standard error are complete then.
            ChildOutputError: its line is longer than is read.
        """
        pipe = self._stdin()
        if pipe is not None and not pipe.is_closing():
            pipe.writelines((line, b"\n"))
        while True:
            if self._lines:
                answer = self._lines.popleft()
                self._unread_bytes -= len(answer)
                return answer
            if self._output_too_long:
                raise ChildOutputError
            if self._ended.is_set():
                raise ChildEndedError
            if not self._open:
                # the rest of its output may still be on the way
                await self._wait_for_end()
                continue
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """End the process and its group: close its input, then terminate, then kill it."""
        pipe = self._stdin()
        if pipe is not None:
            pipe.close()
        if not await _is_set_within(self._exited, self._end_wait_s):
            self._signal(signal.SIGTERM)
        await self._wait_for_end()

    def kill(self) -> None:
        """Kill the process and its group, without waiting."""
        self._open = False
        self._killed = self._killed or not self._exited.is_set()
        self._signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)

    async def end_or_kill(self) -> None:
        """Close the input of the process, give it a moment to end by itself, and kill it otherwise."""
        pipe = self._stdin()
        if pipe is not None:
            pipe.close()
        await _is_set_within(self._exited, min(_OWN_END_S, self._end_wait_s))
        await self.kill_and_wait()

    async def kill_and_wait(self) -> None:
        """Kill the process and wait until it has ended."""
        self.kill()
        await self._wait_for_end()

    async def _wait_for_end(self) -> None:
        if not await _is_set_within(self._exited, self._end_wait_s):
            self.kill()
        if not await _is_set_within(self._ended, self._end_wait_s) and self._transport is not None:
            # a process outside its group keeps the pipes open
            self._transport.close()
            self._finish()

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_STDIN))

    def _signal(self, number: signal.Signals) -> None:
        # after its exit was collected, its id may be another process's
        if self._transport is None or self._exited.is_set():
            return
        send_to_group(self._transport.get_pid(), number)

    def _finish(self) -> None:
        self._open = False
        self._ended.set()
        self._changed.set()
        self._on_end(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the started process."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Receive output."""
        if fd != _STDOUT:
            self._add_errors(data)
        elif not self._output_too_long:
            self._add_output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Handle the end of a pipe."""
        if fd == _STDOUT and self._line:
            self._end_line()
        # an error of its input means that it did not read the whole request
        if fd == _STDOUT or (fd == _STDIN and exc is not None):
            self._open = False
            self._changed.set()

    def process_exited(self) -> None:
        """Handle the end of the process, and kill what it left in its group."""
        self._open = False
        if self._transport is not None and sys.platform != "win32":
            send_to_group(self._transport.get_pid(), signal.SIGKILL)
        self._exited.set()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own signature
        """Handle the end of all pipes."""
        if self._transport is not None:
            self._transport.close()
        self._finish()

    def _add_output(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self._extend_line(first)
        for part in more:
            self._end_line()
            self._extend_line(part)

    def _extend_line(self, part: bytes) -> None:
        self._line += part
        if self._unread_bytes + len(self._line) > MAX_RESULT_BYTES:
            self._line.clear()
            self._output_too_long = True
            self._changed.set()
            self.kill()

    def _end_line(self) -> None:
        if self._line.strip():
            self._lines.append(bytes(self._line))
            self._unread_bytes += len(self._line)
            self._changed.set()
        self._line.clear()

    def _add_errors(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._errors.append(bytes(self._error + part[:_STDERR_LINE_BYTES]))
            self._error.clear()
        self._error += rest[: max(0, _STDERR_LINE_BYTES - len(self._error))]


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "closed its standard output"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _reply_problem(reply: Any, number: int, redactor: Redactor) -> str:
    """Return why a message is not the reply to request `number` (JSON-RPC 2.0, 5); empty if it is."""
    if not isinstance(reply, dict):
        return _NO_OBJECT
    if reply.get("jsonrpc") != "2.0":
        return '"jsonrpc": "2.0" is missing'
    failed = reply.get("error") is not None
    # many libraries write the absent one as null
    if failed == ("result" in reply and not (failed and reply["result"] is None)):
        return 'expected either "result" or "error"'
    request_id = reply.get("id")
    # a program that can't parse a request does not know its id
    if request_id is None and failed:
        return ""
    if isinstance(request_id, bool) or request_id != number:
        return f'expected "id": {number}, got {redactor.excerpt(json.dumps(request_id), _VALUE_EXCERPT)}'
    return ""


def _kill_started(start: asyncio.Task[ChildProcess]) -> None:
    if not start.cancelled() and start.exception() is None:
        start.result().kill()


def _kill_all(children: set[ChildProcess], owner: int) -> None:
    # a forked process has a copy of the set, but none of these children
    if os.getpid() == owner:
        for child in list(children):
            child.kill()


def send_to_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and its group; without effect where there is none."""
    # it has ended, or (macOS) its exit was not collected yet
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
