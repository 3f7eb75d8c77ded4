"""The folders of runs, `<output>/<suite>/<run id>/`: found by what people name, and the names of their files."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_packbench.atomic import write_atomic

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


def read_latest(place: Path) -> str:
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


def find_run_folder(given: Path, output: Path = OUTPUT) -> Path:
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


def find_run_source(given: Path) -> Path:
    """Find what a run is read from: a file of it as it is, else its folder.

    Raises:
        StoredRunError: there is none.
        OSError: `latest` can't be read.
    """
    return given if given.is_file() and given.name != LATEST else find_run_folder(given)


def _latest_folder(place: Path) -> Path:
    try:
        run_id = read_latest(place)
    except StoredRunError as error:
        raise StoredRunError(f"{error}; run the suite again, or give a run's folder") from None
    folder = place.parent / run_id
    if not folder.is_dir():
        raise StoredRunError(f"{place}: names the run {run_id}, which is not there any more; give a run's folder")
    return folder
