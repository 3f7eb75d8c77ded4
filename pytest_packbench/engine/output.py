"""What cases print and log while several run at once, kept apart: each case's own is shown with it alone.

It is told apart by the context that asyncio tasks and this package's threads carry. What a thread of the target's own
or a child process prints goes where it would go anyway.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 1_000_000
_FORMAT = "%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"


@dataclass(slots=True)
class Output:
    """What one attempt printed and logged, at most a million characters of each.

    Attributes:
        out: pieces of standard output.
        err: pieces of standard error.
        log: log records, a line each.
    """

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, stream: str, text: str) -> None:
        """Keep a piece of `out`, `err` or `log`."""
        size = self._sizes.get(stream, 0)
        if size < _MOST:
            self._sizes[stream] = size + len(text)
            getattr(self, stream).append(text[: _MOST - size])

    def sections(self) -> list[tuple[str, str]]:
        """Give what there is, as pytest calls its sections: `stdout`, `stderr`, `log`."""
        texts = (("stdout", "".join(self.out)), ("stderr", "".join(self.err)), ("log", "\n".join(self.log)))
        return [(name, text) for name, text in texts if text]


_CURRENT: ContextVar[Output | None] = ContextVar("packbench_output", default=None)


@contextmanager
def collecting() -> Iterator[Output]:
    """Keep what the block prints and logs, where `Streams` are routed."""
    output = Output()
    token = _CURRENT.set(output)
    try:
        yield output
    finally:
        _CURRENT.reset(token)


class _Routed:
    """A standard stream that gives a case's own text to the case; everything else is the stream's."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        output = _CURRENT.get()
        if output is None:
            return int(self._stream.write(text) or 0)
        output.add(self._name, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Log(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output = _CURRENT.get()
        if output is not None:
            output.add("log", self.format(record))


def outside_cases(_: logging.LogRecord) -> bool:
    """Whether a log record was made outside all cases: a filter for handlers that would show it with another case."""
    return _CURRENT.get() is None


class Streams:
    """Routes the process's standard streams and logging while a run works ahead."""

    def __init__(self) -> None:
        self._active = False
        self._log = _Log()
        self._log.setFormatter(logging.Formatter(_FORMAT))

    def start(self) -> None:
        """Begin to route."""
        self._active = True
        logging.getLogger().addHandler(self._log)
        self.route()

    def route(self) -> None:
        """Route the streams of now: whoever captures output puts others in their place again and again."""
        if not self._active:
            return
        if not isinstance(sys.stdout, _Routed):
            sys.stdout = _Routed(sys.stdout, "out")
        if not isinstance(sys.stderr, _Routed):
            sys.stderr = _Routed(sys.stderr, "err")

    def stop(self) -> None:
        """Give the streams back."""
        self._active = False
        logging.getLogger().removeHandler(self._log)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Routed):
                setattr(sys, name, stream._stream)  # noqa: SLF001 - its own class's
