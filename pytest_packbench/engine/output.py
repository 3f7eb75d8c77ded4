"""What cases print and log while several run at once, kept apart: each case's own is shown with it alone.

It is told apart by the context that asyncio tasks and this package's threads carry. What a thread of the target's own
or a child process prints goes where it would go anyway.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_MOST = 1_000_000
# far more changes of streams than happen while one thing is printed
_KEPT = 1_000
_STREAMS = {"stdout": "out", "stderr": "err"}
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


def collected_in(output: Output) -> Context:
    """Give a copy of the context of now, in which what is printed and logged is kept, where `Streams` are routed."""
    context = copy_context()
    context.run(_CURRENT.set, output)
    return context


class _Routed:
    """A standard stream that gives a case's own text to the case; everything else is the stream's.

    Whoever kept it, such as a debugger, writes to the stream itself once nothing is routed any more.
    """

    def __init__(self, stream: Any, name: str, streams: Streams) -> None:
        self.plain = stream
        self._name = name
        self._streams = streams

    def write(self, text: str) -> int:
        output = _CURRENT.get() if self._streams.active else None
        if output is None:
            return int(self.plain.write(text) or 0)
        output.add(self._name, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


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
        # print holds no reference to the stream that it writes to: one that goes while a case prints ends the process
        self._given: OrderedDict[tuple[str, int], _Routed] = OrderedDict()
        self._log = _Log()
        self._log.setFormatter(logging.Formatter(_FORMAT))
        self._plain: type[ModuleType] | None = None

    @property
    def active(self) -> bool:
        """Whether streams are routed."""
        return self._plain is not None

    def start(self) -> None:
        """Begin to route, also what takes the place of the streams later."""
        if self.active:
            return
        logging.getLogger().addHandler(self._log)
        self._plain = type(sys)
        # whoever captures output puts others in their place again and again, and a case may print at any moment:
        # looking after them later would let something slip
        sys.__class__ = _watching(self._plain, self._routed)
        for name in _STREAMS:
            setattr(sys, name, getattr(sys, name))

    def stop(self) -> None:
        """Give the streams back."""
        if self._plain is None:
            return
        sys.__class__, self._plain = self._plain, None
        logging.getLogger().removeHandler(self._log)
        for name in _STREAMS:
            stream = getattr(sys, name)
            if isinstance(stream, _Routed):
                setattr(sys, name, stream.plain)

    def _routed(self, name: str, stream: Any) -> Any:
        # what a case itself puts there is its own affair
        if isinstance(stream, _Routed) or stream is None or _CURRENT.get() is not None:
            return stream
        # who captures output puts the same few in place again and again
        key = (name, id(stream))
        found = self._given.pop(key, None)
        routed = self._given[key] = _Routed(stream, _STREAMS[name], self) if found is None else found
        if len(self._given) > _KEPT:
            self._given.popitem(last=False)
        return routed


def _watching(plain: type[ModuleType], routed: Callable[[str, Any], Any]) -> type[ModuleType]:
    class System(plain):  # type: ignore[valid-type, misc]  # the class of a module is found when it runs
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, routed(name, value) if name in _STREAMS else value)

    return System
