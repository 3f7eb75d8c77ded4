"""Finding what the user names: a target by its name or address, any other object by `package.module:attr`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.targets import TargetError, as_target
from pytest_packbench.model.errors import said

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.request import Target, VerifyRequest


def find_target(spec: str, *, replayed: bool, cwd: Path, timeout_s: float, concurrency: int) -> tuple[Target, str]:
    """Find a target by its name.

    Args:
        spec: `package.module:attr`, `http://...`, `https://...` or `cmd:...`.
        replayed: whether targets outside this process are replayed whole, so that nothing is opened for them.
        cwd: the folder that the processes of `cmd:` start in; the user's modules are found in it.
        timeout_s: time limit of one HTTP request, seconds.
        concurrency: requests that may be open at once, and processes.

    Returns:
        The target and its name as it may be shown.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    make_importable(cwd)
    if spec.startswith(("http://", "https://")):
        from pytest_packbench.engine.http_target import HttpTarget, shown_url

        if replayed:
            return _Replayed().verify, shown_url(spec)
        server = HttpTarget(url=spec, timeout_s=timeout_s, connections=concurrency)
        return server.verify, server.shown
    if spec.startswith("cmd:"):
        from pytest_packbench.engine.command_target import CommandTarget

        command = CommandTarget(command=spec.removeprefix("cmd:"), cwd=cwd, processes=concurrency)
        return command.verify, f"cmd:{command.shown}"
    return import_target(spec), spec


def import_target(spec: str) -> Target:
    """Import a target, `package.module:attr`.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    if not spec.partition(":")[0] or not spec.partition(":")[2]:
        raise TargetError(f'target "{spec}": expected package.module:attr, http://... or cmd:...')
    return as_target(import_object(spec, "target"), spec)


def import_object(spec: str, what: str) -> Any:
    """Import `package.module:attr`.

    Args:
        spec: where it is.
        what: what it is to be, for errors.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise TargetError(f'{what} "{spec}": expected package.module:attr')
    try:
        found: Any = import_module(module_name)
    except ImportError as error:
        raise TargetError(f'{what} "{spec}": {error}') from error
    except (Exception, SystemExit) as error:
        raise TargetError(f'{what} "{spec}": importing {module_name} raised {said(error)}') from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise TargetError(f'{what} "{spec}": {module_name} has no "{path}"') from None
    return found


def make_importable(folder: Path) -> None:
    """Append a folder to `sys.path`: the user's modules are found there, and none of them shadows a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


class _Replayed:
    """Stands for a target outside this process in fixture mode, where it is replayed and never asked."""

    opaque = True

    async def verify(self, request: VerifyRequest) -> Any:
        raise RuntimeError(f"a target outside this process is not asked in fixture mode: {request!r}")
