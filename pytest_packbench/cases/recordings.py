"""Finding and reading recordings: `fixtures/<case id>.json`, or a line of `fixtures/recordings.jsonl`.

Every folder of recordings may have such a file with one recording per line. A file of its own takes precedence over a
line, so that a case can be recorded again without changing the file of many.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.cases.files import CaseLocation, case_lines, line_name, read_case_bytes, read_id
from pytest_packbench.cases.load import parse_cassette
from pytest_packbench.cases.packed import RECORDINGS
from pytest_packbench.model.errors import CassetteError, duplicate_id
from pytest_packbench.model.suite import PENDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.cassette import Cassette
    from pytest_packbench.model.suite import Suite


_OWN_CALLS = re.compile(rb'"gateway":\s*\[\s*\{')
_MAX_FILES, _MAX_WHOLE_FILES = 1000, 32
_MAX_BYTES, _MAX_BYTES_OF_OTHERS = 1024 * 1024, 8 * 1024


class Recording(NamedTuple):
    """Where a recording is, or would be.

    Attributes:
        location: its file and line; `duplicate_of` is the id and an earlier line with the same id.
        suite: the folder of its suite.
    """

    location: CaseLocation
    suite: Path

    @property
    def path(self) -> str:
        """The absolute path of its file, with the line of a packed one."""
        return self.location.label(self.location.path)

    @property
    def file(self) -> str:
        """Its path from the folder of the suite, with the line of a packed one."""
        return self.location.label(Path(self.location.path).relative_to(self.suite).as_posix())

    def exists(self) -> bool:
        """Return whether there is a recording; it may be unreadable."""
        return bool(self.location.line) or os.path.exists(self.location.path)  # noqa: PTH110 - a string

    def load(self) -> tuple[Cassette, str]:
        """Return the recording and the hash of its content.

        Raises:
            FileNotFoundError: there is none.
            OSError: it can't be read.
            CassetteError: it is invalid; one line with file, line, JSON pointer, problem and what was expected.
        """
        line, duplicate = self.location.line, self.location.duplicate_of
        if duplicate is not None:
            raise CassetteError(self.file, [duplicate_id(duplicate[0], f"line {duplicate[1]}", key="case_id")])
        return parse_cassette(read_case_bytes(self.location), source=self.file, is_line=bool(line))


def find_recording(suite: Suite, case_id: str) -> Recording:
    """Return the recording of a case; where there is none, that of the file which would contain it."""
    path = suite.cassette_path(case_id)
    line = _lines(path.with_name(RECORDINGS)).get(case_id)
    # most suites have no packed file: then nothing more is looked up
    is_line = line is not None and not path.exists()
    return Recording(line if is_line and line is not None else CaseLocation(str(path), case_id), suite.path)


def all_recordings(suite: Suite) -> dict[str, Recording]:
    """Return all recordings of a suite by their path under `fixtures` without suffix, sorted."""
    folder = suite.path / suite.fixtures
    found: dict[str, Recording] = {}
    for packed in sorted(folder.rglob(RECORDINGS)):
        under = packed.parent.relative_to(folder)
        for name, line in _lines(packed).items():
            found[(under / name).as_posix()] = Recording(line, suite.path)
    for path in folder.rglob("*.json"):
        if path.is_file() and path.parent.name != PENDING:
            name = path.relative_to(folder).with_suffix("").as_posix()
            found[name] = Recording(CaseLocation(str(path), name), suite.path)
    return dict(sorted(found.items()))


def _lines(packed: Path) -> Mapping[str, CaseLocation]:
    """Return the lines of a packed file by case id; without an id, the name of a line says its number."""
    try:
        status = packed.stat()
    except OSError:
        return {}
    return _lines_of(str(packed), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _lines_of(path: str, _changed_ns: int, _size: int) -> Mapping[str, CaseLocation]:
    lines: dict[str, CaseLocation] = {}
    for line in case_lines(path):
        name = read_id(line.raw, "case_id") or line_name(path, line.number)
        first = lines.get(name)
        location = CaseLocation(path, name, line.number, line.start)
        # of two lines for a case neither is right
        lines[name] = location if first is None else location._replace(duplicate_of=(name, first.line))
    return lines


def needs_gateway(folders: Iterable[Path]) -> bool:
    """Whether recordings in these folders contain calls of a target's own clients; reads some of them, in part."""
    return any(_has_own_calls(folder) or _has_own_calls(folder / PENDING) for folder in folders)


def _has_own_calls(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith((".json", ".jsonl"))]
    except OSError:
        return False
    for number, path in enumerate(paths[:_MAX_FILES]):
        # the calls come first where the target has no others
        size = _MAX_BYTES if number < _MAX_WHOLE_FILES else _MAX_BYTES_OF_OTHERS
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - a Path takes longer
            if _OWN_CALLS.search(file.read(size)):
                return True
    return False
