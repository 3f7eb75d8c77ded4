"""Files of a run: lines of JSON, a folder that git leaves alone, and who writes a file."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic_core import to_json

from pytest_packbench.atomic import encoded, replacing, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import FileIO
    from pathlib import Path


_CAREFUL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FINITE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONSTANTS = (b"NaN", b"Infinity")


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


_IGNORE = "# reports come and go; commit one by name where it has to stay\n*\n"
_BUFFER = 1 << 18


def write_jsonl(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, whole, in the place of an older file.

    Args:
        path: the file; its folder exists.
        lines: objects of plain JSON, taken one by one.

    Raises:
        OSError: it can't be written; an older file is untouched and nothing is left beside it.
        ValueError: a number is not finite.
    """
    with replacing(path) as file:
        for line in lines:
            _write_line(file, line)


@contextmanager
def open_jsonl(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open a new file for JSON objects, one a line, as `write_jsonl` writes them; for files in a folder of a draft.

    Args:
        path: the file, not there yet; its folder exists.

    Yields:
        What writes one object; raises OSError where it can't be written, ValueError for a number that is not finite.

    Raises:
        OSError: it can't be made.
    """
    with path.open("xb", buffering=_BUFFER) as file:
        yield lambda line: _write_line(file, line)


def _write_line(file: BinaryIO, line: dict[str, Any]) -> None:
    file.write(compact(line) + b"\n")


def ensure_gitignore(folder: Path) -> None:
    """Make a folder, and in it a `.gitignore` that keeps its content out of git, unless there is one.

    Args:
        folder: the folder; made with its parents where it is missing.

    Raises:
        OSError: it can't be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".gitignore"
    if not path.exists():
        write_atomic(path, _IGNORE)
