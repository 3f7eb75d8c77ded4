"""Folders of runs, `<output>/<suite>/<run id>/`: the names of their files, and how users refer to a run."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from pytest_packbench.files import LIMITS, read_regular, write_atomic

OUTPUT = Path("reports") / "benchmarks"
REPORT = "report.json"
SUMMARY = "summary.md"
PAGE = "report.html"
DIFF = "diff.md"
RECORDS = "records.jsonl"
ERRORS = "errors.jsonl"
PAYLOADS = "payloads.jsonl"
CONTROLS = "controls.jsonl"
JOURNAL = "journal.jsonl"
WORKER_JOURNALS = "journal.*.jsonl"
"""Pattern of the journals of xdist workers, beside the controller's journal."""
DRAFTS = ".*.tmp"
"""Pattern of files that were being replaced when a process was killed."""
NO_BASELINE = "none"
"""The word that users write instead of an earlier run to compare with."""
LATEST = "latest"
"""File beside the runs of a suite with the id of the last complete run; also the word that users write for that run."""

COMMITTED = "committed"
"""The word that users write for the baseline in the suite's folder."""
PASSED = "passed"
"""The word that users write for the last complete run whose gates held."""
BASELINE_WORDS = (NO_BASELINE, LATEST, PASSED, COMMITTED)

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(f"[{_DIGITS}]{{26}}")
_GITIGNORE = "# reports are not committed by default; use git add --force to keep one\n*\n"


NO_VERDICT = "records do not say what a run came to; expected the folder of a run"
"""Why records are no run."""
LACKED = "is missing, but the run's report counts it; restore the file from the run"
"""What is wrong with the line of a result."""


class StoredRunError(ValueError):
    """A stored run is missing or unreadable; the message is one line with the file and the problem."""


class NoReportError(StoredRunError):
    """A file is no report of a run.

    Attributes:
        raw: its content.
    """

    def __init__(self, problem: str, raw: bytes) -> None:
        super().__init__(problem)
        self.raw = raw


def is_run_id(text: str) -> bool:
    """Return whether a text is a run id, a ULID."""
    return _ULID.fullmatch(text) is not None


def new_run_id(seed: str = "") -> str:
    """Return a new run id, so that ids sort by time: https://github.com/ulid/spec.

    Args:
        seed: its 16 bytes in hexadecimal, the first six are the time in milliseconds; by default now and random.
    """
    number = int(seed, 16) if seed else (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    # 26 digits of five bits each, of which the first has three
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def ensure_gitignore(folder: Path) -> None:
    """Create a folder with a `.gitignore` that excludes its content; an existing `.gitignore` is left unchanged.

    Args:
        folder: the folder; it is created with its parents if it does not exist.

    Raises:
        OSError: the folder or the file cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".gitignore"
    if not path.exists():
        write_atomic(path, _GITIGNORE)


def read_latest(suite_folder: Path) -> str:
    """Return the id of the last complete run of a suite.

    Args:
        suite_folder: the folder of the suite's runs, which contains the file `latest`.

    Raises:
        StoredRunError: the file does not contain a run id.
        OSError: the file cannot be read.
    """
    path = suite_folder / LATEST
    try:
        run_id = read_regular(path, LIMITS["latest"]).decode("utf-8").strip()
    except UnicodeDecodeError:
        run_id = ""
    # an id and nothing else: the file must not point to another folder
    if not is_run_id(run_id):
        raise StoredRunError(f"{path}: does not contain a run id; run the suite again, or pass the folder of a run")
    return run_id


def find_run_folder(path: Path, output: Path = OUTPUT) -> Path:
    """Return the folder of the run that a user names.

    Args:
        path: the folder, a file in it, or `<suite>/latest`.
        output: the folder of reports; `path` may also be relative to it.

    Raises:
        StoredRunError: no such run exists.
        OSError: `latest` cannot be read.
    """
    for candidate in (path, output / path):
        if candidate.name == LATEST and candidate.is_file():
            folder = candidate.with_name(read_latest(candidate.parent))
            if not folder.is_dir():
                raise StoredRunError(f"{candidate}: {folder} no longer exists; pass the folder of a run")
            return folder
        if candidate.is_dir():
            return candidate
        if candidate.is_file():
            return candidate.parent
    if path.name == LATEST:
        raise StoredRunError(
            f"{output / path}: this suite has no complete run yet; run it, or pass the folder of a run"
        )
    raise StoredRunError(f"no run at {path}; expected the folder of a run, or SUITE/latest")


def find_run_source(path: Path) -> Path:
    """Return the file that a user names if it is one, otherwise the folder of the run.

    Raises:
        StoredRunError: no such run exists.
        OSError: `latest` cannot be read.
    """
    return path if path.is_file() and path.name != LATEST else find_run_folder(path)
