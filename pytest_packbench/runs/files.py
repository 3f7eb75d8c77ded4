"""Files of a run as files: lines of compact JSON, written whole, and held by whoever writes them."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from pytest_packbench.atomic import encoded, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path


_CAREFUL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FINITE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONSTANTS = (b"NaN", b"Infinity")
_SCALARS = (str, int)
_BUFFER = 1 << 18


def compact(value: Any, *, finite: bool = True) -> bytes:
    r"""Write plain JSON without spaces as UTF-8, on one line; a surrogate, which UTF-8 can't hold, as its escape.

    Args:
        value: plain JSON: objects with keys that are texts, arrays, texts, numbers, true, false and null.
        finite: whether numbers have to be finite; else `NaN`, `Infinity` and `-Infinity` are written.

    Raises:
        TypeError: something in it is no JSON; not each such thing is noticed.
        ValueError: a number is not finite where it has to be, or something holds itself.
        RecursionError: it is nested too deeply.
    """
    try:
        # several times as fast, but it takes no surrogate and no deep nesting
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return encoded((_FINITE if finite else _CAREFUL).encode(value))
    if finite and any(word in text for word in _CONSTANTS):
        # a text may hold these words as well
        _FINITE.encode(value)
    return text


def plain(value: Any) -> Any:
    """Copy a value into plain JSON: tuples become arrays, keys texts, and a number that is not finite null."""
    # most values are scalars, and there are many
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def open_jsonl(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open a file for JSON objects, one a line; it takes the place of an older one when the block ends well.

    Args:
        path: the file; its folder exists.

    Yields:
        What writes one object; raises OSError where it can't be written, ValueError for a number that is not finite.

    Raises:
        OSError: it can't be written; an older file is untouched and nothing is left beside it.
    """
    with replacing(path, buffer=_BUFFER) as file:

        def write(line: dict[str, Any]) -> None:
            file.write(compact(line) + b"\n")

        yield write


def hold(file: FileIO) -> bool:
    """Hold an open file until it is closed or the process ends, however it ends.

    Returns:
        Whether it is ours; also where nothing can be held.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # a file system without locks
        return True
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds a file; False where there is none, or where it can't be told."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        return not hold(file)
    return False
