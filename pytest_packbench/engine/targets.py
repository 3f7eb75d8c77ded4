"""Targets: finding the pipeline under test and calling it, whatever shape it has."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_packbench.engine.protocols.request import Target, VerifyContext, VerifyRequest

_WITH_CONTEXT = 2


class TargetError(ValueError):
    """The target can't be found, or can't be called as one."""


class TargetFailure(RuntimeError):  # noqa: N818 - it tells of a failure elsewhere: in a server or in a process
    """A target outside this process gave no result.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `target_unreachable`, `target_timeout`, `target_died`,
            `target_error` or `result_unreadable`.
        details: what the target said, such as its standard error, a line each.
    """

    def __init__(self, kind: str, message: str, details: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.details = details
        super().__init__(message)


def import_target(spec: str) -> Target:
    """Import `package.module:attr`.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise TargetError(f'target "{spec}": expected package.module:attr')
    try:
        found: Any = import_module(module_name)
    except ImportError as error:
        raise TargetError(f'target "{spec}": {error}') from error
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise TargetError(f'target "{spec}": importing {module_name} raised {said}') from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise TargetError(f'target "{spec}": {module_name} has no "{path}"') from None
    return as_target(found, spec)


def as_target(found: Any, name: str) -> Target:
    """Take a function, or an object with a method `verify`.

    Raises:
        TargetError: it is neither.
    """
    verify = getattr(found, "verify", None)
    if callable(verify):
        return verify  # type: ignore[no-any-return]  # what a user gives is checked when it is called
    if not callable(found):
        raise TargetError(
            f'target "{name}": expected a function or an object with verify(), got {type(found).__name__}'
        )
    return found  # type: ignore[no-any-return]  # see above


def takes_context(target: Target) -> bool:
    """Whether the target wants the context beside the request: two positional parameters or `*args`."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = sum(1 for one in parameters if one.kind in kinds)
    return positional >= _WITH_CONTEXT or any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)


class Caller:
    """Calls one target for many cases; async targets share one event loop.

    Attributes:
        target: the callable.
        asks_model: whether it may make model calls; see `without_model`.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._takes_context = takes_context(target)
        # only the context brings a model along
        self.asks_model = self._takes_context and bool(getattr(target, "asks_model", True))
        self._loop: asyncio.Runner | None = None

    def __call__(self, request: VerifyRequest, context: VerifyContext) -> Any:
        """Give the target's result; raises what the target raises."""
        result = self.target(request, context) if self._takes_context else self.target(request)
        if inspect.isawaitable(result):
            if self._loop is None:
                self._loop = asyncio.Runner()
                # whoever forgets to close the caller leaves no loop behind
                weakref.finalize(self, self._loop.close)
            return self._loop.run(_awaited(result))
        return result

    def close(self) -> None:
        """Close the event loop, if there was one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None


async def _awaited(result: Any) -> Any:
    return await result
