"""Captured output of concurrent cases: what each prints and logs is shown with it alone.

A case is recognized by the context variables that asyncio tasks and this package's threads carry. What a target's own
threads and child processes print is not captured. A stream that a case assigns to `sys.stdout` or `sys.stderr` is in
effect for that case alone.
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

    from pytest_packbench.model.redaction import Redactor

_MAX_CHARACTERS = 1_000_000
# far more than the assignments of streams that happen while one object is printed
_MAX_STREAMS = 1_000
_STREAMS = {"stdout": "out", "stderr": "err"}
_FORMAT = "%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"


@dataclass(slots=True)
class CapturedOutput:
    """What one attempt printed and logged, at most a million characters of each.

    Attributes:
        out: pieces of standard output.
        err: pieces of standard error.
        log: log records, one line each.
        redirected: the streams that the case itself assigned, by their names in `sys`.
    """

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    redirected: dict[str, Any] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, stream: str, text: str) -> None:
        """Add a piece of `out`, `err` or `log`."""
        size = self._sizes.get(stream, 0)
        if size < _MAX_CHARACTERS:
            self._sizes[stream] = size + len(text)
            getattr(self, stream).append(text[: _MAX_CHARACTERS - size])

    def sections(self) -> list[tuple[str, str]]:
        """Return the output that is not empty by pytest's names of sections: `stdout`, `stderr`, `log`."""
        texts = (("stdout", "".join(self.out)), ("stderr", "".join(self.err)), ("log", "\n".join(self.log)))
        # unpaired surrogates are replaced as in pytest's own capture
        return [(name, text.encode("utf-8", "replace").decode("utf-8")) for name, text in texts if text]


_CURRENT: ContextVar[CapturedOutput | None] = ContextVar("packbench_output", default=None)


def capturing_context(output: CapturedOutput) -> Context:
    """Return a copy of the current context in which a started `StreamRouter` captures what is printed and logged."""
    context = copy_context()
    context.run(_CURRENT.set, output)
    return context


def is_in_case() -> bool:
    """Whether the caller works for a case that runs concurrently to others."""
    return _CURRENT.get() is not None


class _Delegated:
    """An attribute of the current stream behind a routed one."""

    def __set_name__(self, _: type[_RoutedStream], name: str) -> None:
        self._name = name

    def __get__(self, stream: _RoutedStream, _: type[_RoutedStream] | None = None) -> Any:
        return getattr(stream.current, self._name)


class _RoutedStream(io.TextIOBase):
    """A standard stream that captures the text of cases and passes on everything else.

    Whoever keeps a reference to it, such as a debugger, writes to the stream itself once the router has stopped.
    """

    # attributes that the base class defines; others are resolved by `__getattr__`
    encoding: Any = _Delegated()
    errors: Any = _Delegated()
    newlines: Any = _Delegated()
    fileno: Any = _Delegated()
    isatty: Any = _Delegated()
    writable: Any = _Delegated()
    closed: Any = False

    def __init__(self, stream: Any, name: str, router: StreamRouter) -> None:
        self.original = stream
        self._name = name
        self._router = router

    @property
    def current(self) -> Any:
        """The stream behind this one: the one that the current case assigned, else the original."""
        case = self._case()
        return self.original if case is None else case.redirected.get(self._name, self.original)

    def write(self, text: str) -> int:
        case = self._case()
        if case is None:
            return int(self.original.write(text) or 0)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._name not in case.redirected:
            case.add(_STREAMS[self._name], text)
        elif (redirected := case.redirected[self._name]) is not None:
            # print does not read the attribute of `sys`, and always has this stream
            return int(redirected.write(text) or 0)
        return len(text)

    def flush(self) -> None:
        case = self._case()
        # captured text is not buffered
        if (case is None or self._name in case.redirected) and self.current is not None:
            self.current.flush()

    def close(self) -> None:
        """Do nothing: the original is shared, and the base class calls this when the object is freed."""

    def _case(self) -> CapturedOutput | None:
        return _CURRENT.get() if self._router.active else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class _CaptureHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output = _CURRENT.get()
        if output is not None:
            output.add("log", self.format(record))


def is_outside_cases(_: logging.LogRecord) -> bool:
    """Whether a log record belongs to no case: a filter for handlers that would show it with another case."""
    return _CURRENT.get() is None


def redact_log_record(record: logging.LogRecord, redactor: Redactor) -> bool:
    """Redact the message and all other texts of a log record; true, as a filter that keeps every record."""
    # a case may have loaded keys
    redactor.refresh()
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the handler reports arguments that do not fit the message
        return True
    redacted = redactor.text(message)
    if redacted != message:
        record.msg, record.args = redacted, None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    for name, value in vars(record).items():
        # such as the name of the logger, the traceback, and what a call adds by `extra`
        if name != "msg" and isinstance(value, str):
            setattr(record, name, redactor.text(value))
    return True


class StreamRouter:
    """Routes standard streams and logging to the cases that run ahead, from `start` to `stop`."""

    def __init__(self) -> None:
        # print keeps no reference to the stream it writes to: one that is freed while a case prints crashes the process
        self._routed: OrderedDict[tuple[str, int], _RoutedStream] = OrderedDict()
        self._handler = _CaptureHandler()
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        self._sys_class: type[ModuleType] | None = None

    @property
    def active(self) -> bool:
        """Whether streams are routed."""
        return self._sys_class is not None

    def start(self) -> None:
        """Start to route the current streams and those that replace them later."""
        if self.active:
            return
        logging.getLogger().addHandler(self._handler)
        self._sys_class = type(sys)
        # pytest's capture assigns sys.stdout again and again while cases print: only a class of the module `sys` sees
        # every assignment, and tells those of a case (redirect_stdout) from others
        sys.__class__ = type("System", (self._sys_class,), {name: self._property(name) for name in _STREAMS})
        for name in _STREAMS:
            setattr(sys, name, getattr(sys, name))

    def stop(self) -> None:
        """Restore the streams and the module `sys`."""
        if self._sys_class is None:
            return
        sys.__class__, self._sys_class = self._sys_class, None
        logging.getLogger().removeHandler(self._handler)
        case = _CURRENT.get()
        for name in _STREAMS:
            stream = vars(sys).get(name)
            if case is not None:
                # a debugger that stops in a case has assigned the terminal
                stream = case.redirected.pop(name, stream)
            if name in vars(sys):
                setattr(sys, name, stream.original if isinstance(stream, _RoutedStream) else stream)

    def _property(self, name: str) -> property:
        """Return a property of `sys` that is local to each case; print bypasses it and gets the routed stream."""
        attributes = vars(sys)

        def get(_: ModuleType) -> Any:
            if name not in attributes:
                raise AttributeError(f"module 'sys' has no attribute {name!r}")
            case, stream = _CURRENT.get(), attributes[name]
            if case is not None:
                return case.redirected.get(name, stream)
            return stream.original if isinstance(stream, _RoutedStream) else stream

        def assign(_: ModuleType, stream: Any) -> None:
            case = _CURRENT.get()
            if case is None:
                attributes[name] = self._route(name, stream)
            elif isinstance(stream, _RoutedStream):
                case.redirected.pop(name, None)
            else:
                case.redirected[name] = stream

        def delete(_: ModuleType) -> None:
            attributes.pop(name, None)

        return property(get, assign, delete)

    def _route(self, name: str, stream: Any) -> Any:
        if isinstance(stream, _RoutedStream) or stream is None:
            return stream
        # captures assign the same few streams again and again
        key = (name, id(stream))
        known = self._routed.pop(key, None)
        routed = self._routed[key] = _RoutedStream(stream, name, self) if known is None else known
        if len(self._routed) > _MAX_STREAMS:
            self._routed.popitem(last=False)
        return routed
