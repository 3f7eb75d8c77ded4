"""Files of a run: lines of JSON, and a folder that git leaves alone."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_packbench.records.atomic import replacing, write_atomic
from pytest_packbench.records.compact import compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

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
