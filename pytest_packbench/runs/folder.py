"""The folders of runs, `<output>/<suite>/<run id>/`: found by what people name, their files written and held."""

from __future__ import annotations

import json
import math
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from pytest_packbench.atomic import encoded, replacing, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO

OUTPUT = Path("reports") / "benchmarks"
REPORT = "report.json"
SUMMARY = "summary.md"
DIFF = "diff.md"
RECORDS = "records.jsonl"
ERRORS = "errors.jsonl"
PAYLOADS = "payloads.jsonl"
JOURNAL = "journal.jsonl"
WORKER_JOURNALS = "journal.*.jsonl"
"""Where workers of xdist keep what they have not told yet; the journal proper stands beside."""
DRAFTS = ".*.tmp"
LATEST = "latest"
"""Beside the runs of a suite: holds the id of the last complete one. Also the word for it where a run is asked for."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ULID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
_IGNORE = "# reports come and go; commit one by name where it has to stay\n*\n"
_CAREFUL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FINITE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SCALARS = (str, int)
_BUFFER = 1 << 18


class StoredRunError(ValueError):
    """A stored run can't be found or read: one line with the file and what is wrong."""


def is_run_id(text: str) -> bool:
    """Whether a text is the id of a session's run, a ULID."""
    return _ULID.fullmatch(text) is not None


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


def latest_of(place: Path) -> str:
    """Read which run was the last complete one.

    Args:
        place: the file `latest` of a suite's runs.

    Raises:
        StoredRunError: it names no run.
        OSError: it can't be read.
    """
    try:
        run_id = place.read_text("utf-8").strip()
    except UnicodeDecodeError:
        run_id = ""
    # only a name: where the runs lie is not for a file to say
    if not _NAME.fullmatch(run_id):
        raise StoredRunError(f"{place}: holds no run id")
    return run_id


def find_folder(given: Path, output: Path = OUTPUT) -> Path:
    """Find the folder of a run.

    Args:
        given: the folder, a file in it, or `<suite>/latest`.
        output: the folder of reports, from which it may be named, too.

    Raises:
        StoredRunError: there is none.
        OSError: `latest` can't be read.
    """
    for place in (given, output / given):
        if place.name == LATEST and place.is_file():
            return _latest_folder(place)
        if place.is_dir():
            return place
        if place.is_file():
            return place.parent
    if given.name == LATEST:
        raise StoredRunError(f"{output / given}: no complete run of this suite yet; run it, or give a run's folder")
    raise StoredRunError(f"no run at {given}; expected a run's folder, or SUITE/latest")


def find_source(given: Path) -> Path:
    """Find what a run is read from: a file of it as it is, else its folder.

    Raises:
        StoredRunError: there is none.
        OSError: `latest` can't be read.
    """
    return given if given.is_file() and given.name != LATEST else find_folder(given)


def _latest_folder(place: Path) -> Path:
    try:
        run_id = latest_of(place)
    except StoredRunError as error:
        raise StoredRunError(f"{error}; run the suite again, or give a run's folder") from None
    folder = place.parent / run_id
    if not folder.is_dir():
        raise StoredRunError(f"{place}: names the run {run_id}, which is not there any more; give a run's folder")
    return folder


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
    if finite and (b"NaN" in text or b"Infinity" in text):
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
