"""Where a suite's cases stand: a file each (`<id>.json`), or a line each in a file of many (`*.jsonl`).

Everything here works on names and bytes: a case is parsed only where its line hides its id.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.cases.load import case_sha256, parse_case, parse_json
from pytest_packbench.model.case import CASE_ID, CASE_ID_LENGTH
from pytest_packbench.model.errors import CaseError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.case import Case, LoadedCase
    from pytest_packbench.model.run import Shard


CASE_SUFFIX = ".json"
LINES_SUFFIX = ".jsonl"
SUFFIXES = (CASE_SUFFIX, LINES_SUFFIX)
_SPACE = rb"[ \t\r\n]*"
_PLAIN = rb'"[^"\\]*"'
_MEMBER = rb'(?!"id")' + _PLAIN + _SPACE + b":" + _SPACE + rb"(?:" + _PLAIN + rb"|[-+.0-9A-Za-z]+)" + _SPACE + b","
# members with plain values may stand before the id; anything deeper is left to the parser
_ID_FIRST = re.compile(
    rb"(?:\xef\xbb\xbf)?" + _SPACE + rb"\{" + _SPACE + b"(?:" + _MEMBER + _SPACE + b")*+"
    rb'"id"' + _SPACE + b":" + _SPACE + rb'"([A-Za-z0-9][A-Za-z0-9_-]*)"' + _SPACE + rb"[,}]"
)
_CASE_ID = re.compile(CASE_ID.removesuffix("$"))
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(r".*\.line-[0-9]+", re.DOTALL)


class CaseLocation(NamedTuple):
    """Where one case stands.

    Attributes:
        path: its file.
        name: its id as far as it can be told without parsing: of a file the stem, of a line its id, or
            `<stem>.line-<number>` where it has none.
        line: its line in a file of many, from 1; 0 where the file is the case.
        start: where that line begins, bytes from the file's beginning.
        twin: the id of the line and the earlier line that has it already; None where none has.
    """

    path: str
    name: str
    line: int = 0
    start: int = 0
    twin: tuple[str, int] | None = None

    def label(self, file: str) -> str:
        """Name the place, the file being called `file`: `FILE`, or `FILE:LINE`."""
        return format_location(file, self.line)


class CaseLine(NamedTuple):
    """One line of a file of many cases.

    Attributes:
        number: from 1.
        start: where it begins, bytes from the file's beginning.
        raw: its bytes.
    """

    number: int
    start: int
    raw: bytes


def format_location(file: str, line: int) -> str:
    """Name a place for people: `FILE`, or `FILE:LINE` where a line of it is meant (0 for none)."""
    return f"{file}:{line}" if line else file


def split_location(place: str) -> tuple[str, int]:
    """Take apart what `located` gives: the file, and the line, 0 for none."""
    file, _, line = place.rpartition(":")
    return (file, int(line)) if file.endswith(LINES_SUFFIX) and line.isdecimal() else (place, 0)


def file_stem(path: str) -> str:
    """Give the name of a file without its folder and its suffix."""
    return os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119, PTH122 - text: there may be a million


def case_folders(folder: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """Give a folder of cases and those under it, each before its own, sorted, with the names of their files.

    Links to folders are followed, out of the folder only, and to each folder once: none leads in a circle. Hidden
    folders are left out.
    """
    linked: set[str] = set()
    seen: set[str] = set()

    def leads_on(parent: str, name: str) -> bool:
        if is_hidden(name):
            return False
        path = os.path.join(parent, name)  # noqa: PTH118 - text, as os.walk gives it
        # what no link leads to costs a look at its kind only
        if parent not in linked and not os.path.islink(path):  # noqa: PTH114 - as above
            return True
        real, root = os.path.realpath(path), os.path.realpath(folder)
        # what lies inside is found without the link, and what holds the folder leads back to it
        if real in seen or _holds(root, real) or _holds(real, root):
            return False
        seen.add(real)
        linked.add(path)
        return True

    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in sorted(folders) if leads_on(place, name)]
        yield place, names


def is_hidden(name: str) -> bool:
    """Whether a folder of this name is an editor's, a version control's or Python's, so that no case is looked for."""
    return name.startswith(".") or name == "__pycache__"


def _holds(outer: str, inner: str) -> bool:
    return (inner + os.sep).startswith(outer.rstrip(os.sep) + os.sep)


def case_paths(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Give the case files under a folder, each folder's files before its folders, sorted."""
    for place, names in case_folders(folder):
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                yield os.path.join(place, name)  # noqa: PTH118 - text: there may be a million


def case_lines(path: str | os.PathLike[str]) -> Iterator[CaseLine]:
    """Read the lines of a file of many cases one by one, blank ones left out; raises OSError."""
    start = 0
    with open(path, "rb") as lines:  # noqa: PTH123 - a path as text, as above
        for number, raw in enumerate(lines, start=1):
            if raw.strip() and not (number == 1 and not raw.removeprefix(_BOM).strip()):
                yield CaseLine(number, start, raw)
            start += len(raw)


def read_id(raw: bytes) -> str | None:
    """Tell the id of a line without parsing it, unless it hides it behind nested values or escapes.

    Returns:
        The id that parsing the line gives; None where it has none that a case may have.
    """
    found = _ID_FIRST.match(raw)
    if found is not None:
        name = found[1].decode("ascii")
        return name if len(name) <= CASE_ID_LENGTH else None
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    name = data.get("id") if isinstance(data, dict) else None
    fits = isinstance(name, str) and len(name) <= CASE_ID_LENGTH and _CASE_ID.fullmatch(name) is not None
    return name if fits else None


def case_name(path: str, line: CaseLine) -> str:
    """Name a line by its id, or by its number where it has none."""
    return read_id(line.raw) or line_name(path, line.number)


def line_name(path: str, line: int) -> str:
    """Name a line by its number: `many.line-17`; no id has a dot, so it is never another line's."""
    return f"{file_stem(path)}.line-{line}"


def is_line_name(name: str) -> bool:
    """Whether a name may be one that `numbered` gives."""
    return _LINE.fullmatch(name) is not None


def locations_in(path: str) -> Iterator[CaseLocation]:
    """Give the places of all cases in a file; of two lines of one id the later is named by its number."""
    if not path.endswith(LINES_SUFFIX):
        yield CaseLocation(path, file_stem(path))
        return
    seen: dict[str, int] = {}
    try:
        for line in case_lines(path):
            name = case_name(path, line)
            earlier = seen.setdefault(name, line.number)
            if earlier == line.number:
                yield CaseLocation(path, name, line.number, line.start)
            else:
                yield CaseLocation(path, line_name(path, line.number), line.number, line.start, (name, earlier))
    except OSError:
        # as one case, which whoever reads it finds unreadable
        yield CaseLocation(path, file_stem(path))


def iter_cases(folder: str | os.PathLike[str]) -> Iterator[CaseLocation]:
    """Give the places of all cases under a folder, by file, then by line."""
    for path in case_paths(folder):
        yield from locations_in(path)


def count_cases_in(path: str, shard: Shard | None = None) -> int:
    """Count the cases in a file, or those of a shard; a file that can't be read counts as one, as in `locations_in`."""
    if not path.endswith(LINES_SUFFIX):
        return int(shard is None or file_stem(path) in shard)
    try:
        return sum(shard is None or case_name(path, line) in shard for line in case_lines(path))
    except OSError:
        return int(shard is None or file_stem(path) in shard)


def count_cases(folder: str | os.PathLike[str], shard: Shard | None = None) -> int:
    """Count the cases under a folder, or those of a shard, by names and lines."""
    return sum(count_cases_in(path, shard) for path in case_paths(folder))


def find_case(path: str, name: str) -> CaseLocation | None:
    """Find the case of a name in a file, None if it isn't there; asked for many of one, it looks it through once."""
    try:
        now = os.stat(path)  # noqa: PTH116 - a path as text, as above
    except (OSError, ValueError):
        # a name with a null character is no path
        return None
    if not path.endswith(LINES_SUFFIX):
        return CaseLocation(path, name)
    return _places_of(path, now.st_mtime_ns, now.st_size).get(name)


@lru_cache(maxsize=2)
def _places_of(path: str, _changed_ns: int, _size: int) -> dict[str, CaseLocation]:
    return {place.name: place for place in locations_in(path)}


class CaseIndex:
    """The cases of a folder by name; of a name that two have, the first by path and line."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # there may be a million: a file is its path alone, lines share theirs
        self._found: dict[str, str | tuple[str, int, int] | CaseLocation] = {}
        for place in iter_cases(folder):
            line = place if place.twin is not None else (place.path, place.line, place.start)
            self._found.setdefault(place.name, line if place.line else place.path)

    def __iter__(self) -> Iterator[str]:
        """Give the names in the order of the files."""
        return iter(self._found)

    def find(self, name: str) -> CaseLocation | None:
        """Give the place of a case; None where there is none."""
        found = self._found.get(name)
        if isinstance(found, CaseLocation):
            return found
        if isinstance(found, str):
            return CaseLocation(found, name)
        return CaseLocation(found[0], name, found[1], found[2]) if found is not None else None


def read_case_bytes(place: CaseLocation) -> bytes:
    """Read the bytes of the case at a place; raises OSError."""
    with open(place.path, "rb") as content:  # noqa: PTH123 - a path as text, as above
        if not place.line:
            return content.read()
        content.seek(place.start)
        return content.readline()


def case_file_sha256(place: CaseLocation) -> str | None:
    """Hash the case at a place as `LoadedCase.sha256` does, without looking at what it holds; None if unreadable."""
    try:
        return case_sha256(parse_json(read_case_bytes(place)))
    except (OSError, ValueError):
        return None


def load_case(place: CaseLocation, model: type[Case], *, file: str, pack: str | None) -> LoadedCase:
    """Read the case at a place into its pack's model.

    Args:
        place: where it stands.
        model: the pack's case model.
        file: how to call its file in an error.
        pack: the suite's pack, which has to be the case's; None to take any.

    Raises:
        CaseError: one line with file, line, pointer, what is wrong, what was expected.
    """
    try:
        raw = read_case_bytes(place)
    except OSError as error:
        raise CaseError(place.label(file), [unreadable_file(error)]) from None
    if place.line:
        loaded = parse_line(CaseLine(place.line, place.start, raw), model, file=file, pack=pack)
        if loaded.case.id != place.name:
            earlier = format_location(file, place.twin[1]) if place.twin is not None else "an earlier line"
            wrong = f'"{loaded.case.id}" stands also in {earlier}'
            raise CaseError(place.label(file), [Problem("/id", wrong, "give it an id of its own")])
        return loaded
    if place.path.endswith(LINES_SUFFIX):
        # it could not be read when it was looked through
        raise CaseError(file, [Problem("", "could not be read", "expected one case a line; try again")])
    return parse_case(raw, model, source=file, stem=place.name, pack=pack)


def parse_line(line: CaseLine, model: type[Case], *, file: str, pack: str | None) -> LoadedCase:
    """Read the case of a line; arguments and errors as in `load_case`."""
    source = format_location(file, line.number)
    try:
        return parse_case(line.raw.rstrip(b"\r\n"), model, source=source, stem=None, pack=pack)
    except CaseError as error:
        # the parser sees a document of one line
        plain = [replace(one, wrong=one.wrong.removeprefix("line 1 ")) for one in error.problems]
        raise CaseError(source, plain) from None


def unreadable_file(error: OSError) -> Problem:
    """Say that a file can't be opened."""
    return Problem("", f"can't be read: {error.strerror or error}", "expected a file of cases")
