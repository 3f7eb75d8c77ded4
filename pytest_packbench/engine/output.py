"""What cases print and log while several run at once, kept apart: each case's own is shown with it alone.

It is told apart by the context that asyncio tasks and this package's threads carry. What a thread of the target's own
or a child process prints goes where it would go anyway. A stream that a case puts in place of `sys.stdout` or
`sys.stderr` is in place for that case alone.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import OrderedDict
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        own: the streams that it put in place itself, by their names in `sys`.
    """

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, stream: str, text: str) -> None:
        """Keep a piece of `out`, `err` or `log`."""
        size = self._sizes.get(stream, 0)
        if size < _MOST:
            self._sizes[stream] = size + len(text)
            getattr(self, stream).append(text[: _MOST - size])

    def sections(self) -> list[tuple[str, str]]:
        """Give what there is, as pytest calls its sections: `stdout`, `stderr`, `log`; all of it fit for UTF-8."""
        texts = (("stdout", "".join(self.out)), ("stderr", "".join(self.err)), ("log", "\n".join(self.log)))
        # as pytest's own capture does with half of a surrogate pair
        return [(name, text.encode("utf-8", "replace").decode("utf-8")) for name, text in texts if text]


_CURRENT: ContextVar[Output | None] = ContextVar("packbench_output", default=None)


def collected_in(output: Output) -> Context:
    """Give a copy of the context of now, in which what is printed and logged is kept, where `Streams` are routed."""
    context = copy_context()
    context.run(_CURRENT.set, output)
    return context


class _Forwarded:
    """An attribute of the stream that takes what is written."""

    def __set_name__(self, _: type[_Routed], name: str) -> None:
        self._name = name

    def __get__(self, stream: _Routed, _: type[_Routed] | None = None) -> Any:
        return getattr(stream.taking, self._name)


class _Routed(io.TextIOBase):
    """A standard stream that gives a case's own text to the case; everything else is the stream's.

    Whoever kept it, such as a debugger, writes to the stream itself once nothing is routed any more.
    """

    # what the base class has words of its own for; anything else comes by `__getattr__`
    encoding: Any = _Forwarded()
    errors: Any = _Forwarded()
    newlines: Any = _Forwarded()
    fileno: Any = _Forwarded()
    isatty: Any = _Forwarded()
    writable: Any = _Forwarded()
    closed: Any = False

    def __init__(self, stream: Any, name: str, streams: Streams) -> None:
        self.plain = stream
        self._name = name
        self._streams = streams

    @property
    def taking(self) -> Any:
        """The stream behind: the one that the case of now put in place itself, or the process's."""
        case = self._case()
        return self.plain if case is None else case.own.get(self._name, self.plain)

    def write(self, text: str) -> int:
        case = self._case()
        if case is None:
            return int(self.plain.write(text) or 0)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._name not in case.own:
            case.add(_STREAMS[self._name], text)
        elif (own := case.own[self._name]) is not None:
            # print came past `sys`, and knows this stream only
            return int(own.write(text) or 0)
        return len(text)

    def flush(self) -> None:
        case = self._case()
        # what a case printed is kept as it comes
        if (case is None or self._name in case.own) and self.taking is not None:
            self.taking.flush()

    def close(self) -> None:
        """Do nothing: it is everybody's, and the base class closes it when it goes."""

    def _case(self) -> Output | None:
        return _CURRENT.get() if self._streams.active else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.taking, name)


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
        sys.__class__ = type("System", (self._plain,), {name: self._watched(name) for name in _STREAMS})
        for name in _STREAMS:
            setattr(sys, name, getattr(sys, name))

    def stop(self) -> None:
        """Give the streams back."""
        if self._plain is None:
            return
        sys.__class__, self._plain = self._plain, None
        logging.getLogger().removeHandler(self._log)
        case = _CURRENT.get()
        for name in _STREAMS:
            stream = vars(sys).get(name)
            if case is not None:
                # a debugger that stops in a case has put the terminal there
                stream = case.own.pop(name, stream)
            if name in vars(sys):
                setattr(sys, name, stream.plain if isinstance(stream, _Routed) else stream)

    def _watched(self, name: str) -> property:
        """Make of a name in `sys` what is a case's own inside a case; print reads past it, and gets what is routed."""
        held = vars(sys)

        def read(_: ModuleType) -> Any:
            if name not in held:
                raise AttributeError(f"module 'sys' has no attribute {name!r}")
            case, stream = _CURRENT.get(), held[name]
            if case is not None:
                return case.own.get(name, stream)
            return stream.plain if isinstance(stream, _Routed) else stream

        def put(_: ModuleType, stream: Any) -> None:
            case = _CURRENT.get()
            if case is None:
                held[name] = self._routed(name, stream)
            elif isinstance(stream, _Routed):
                case.own.pop(name, None)
            else:
                case.own[name] = stream

        def drop(_: ModuleType) -> None:
            held.pop(name, None)

        return property(read, put, drop)

    def _routed(self, name: str, stream: Any) -> Any:
        if isinstance(stream, _Routed) or stream is None:
            return stream
        # who captures output puts the same few in place again and again
        key = (name, id(stream))
        found = self._given.pop(key, None)
        routed = self._given[key] = _Routed(stream, name, self) if found is None else found
        if len(self._given) > _KEPT:
            self._given.popitem(last=False)
        return routed
