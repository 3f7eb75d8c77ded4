"""Finding suites, and the documents in them: cases, recordings and controls, each in a JSON file or in a line.

A JSON file has the name of what it contains (`<id>.json`), a JSON Lines file (`*.jsonl`) has one document per line.
Cases may be in any such file below `cases`, controls in any directly in `fixtures/controls`. A recording is
`fixtures/<case id>.json`, or a line of the `recordings.jsonl` beside it: the file takes precedence, so that a case can
be recorded again without changing the file of many.

These functions work on names and bytes; a line is parsed only if its id cannot be found without parsing.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections import Counter
from contextlib import suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.files import (
    CASE,
    CONTROL,
    RECORDING,
    RECORDINGS,
    InputLimitError,
    Limit,
    OpenFile,
    StrPath,
    check_link,
    contains,
    escape_unprintable,
    has_control_characters,
    lines_of,
    open_regular,
)
from pytest_packbench.model.case import CASE_ID, CASE_ID_LENGTH
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    ControlError,
    InputError,
    Problem,
    duplicate_id,
    pluralize,
    unreadable,
)
from pytest_packbench.model.run import BUNDLED, Shard
from pytest_packbench.model.suite import CONFIG_NAME, CONTROLS, FIXTURES, PENDING, SHARED, Suite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pytest_packbench.model.pack import Pack


CASE_SUFFIX = ".json"
LINES_SUFFIX = ".jsonl"
SUFFIXES = (CASE_SUFFIX, LINES_SUFFIX)
_BOM = b"\xef\xbb\xbf"
_CASE_ID = re.compile(CASE_ID.removesuffix("$"))
_IGNORE = "name it under ignore in suite.yaml"
_NOT_STRAY = ("fixtures", "cases")
_OWN_FILES = frozenset({CONFIG_NAME, "baseline.json", "policy_changes.yaml"})
_DATA_SUFFIX = re.compile(r"\.(?:json|jsonl|ndjson|ya?ml)(?:\.|$)", re.IGNORECASE)
_HEAD = 1 << 20
_KEY = rb"""(?:^|[\s{,"'])%s["']?\s*:"""
_LINE = r"(?s).*\.line-[0-9]+"
_OWN_CALLS = rb'"gateway":\s*\[\s*\{'
_MAX_FILES, _MAX_WHOLE_FILES = 1000, 32
_MAX_BYTES, _MAX_BYTES_OF_OTHERS = 1024 * 1024, 8 * 1024


class Kind(NamedTuple):
    """A kind of documents in the folder of a suite.

    Attributes:
        noun: what one is called.
        key: the key with its id.
        limit: how large one may be, in a file or a line.
        error: what is raised where one is invalid, or can't be read.
    """

    noun: str
    key: str
    limit: Limit
    error: type[InputError]


CASE_KIND = Kind("case", "id", CASE, CaseError)
CASSETTE_KIND = Kind("cassette", "case_id", RECORDING, CassetteError)
CONTROL_KIND = Kind("control", "id", CONTROL, ControlError)


@cache
def _id_first(key: str) -> re.Pattern[bytes]:
    """Return the pattern of a line whose id follows only members with scalar values; other lines are parsed."""
    members = rb'(?:"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[-+.\w]+)\s*,\s*)*?'
    return re.compile(
        rb"(?:\xef\xbb\xbf)?\s*\{\s*" + members + rb'"%s"\s*:\s*"([A-Za-z0-9][\w-]*)"\s*[,}]' % key.encode()
    )


class CaseLocation(NamedTuple):
    """The location of one case, recording or control.

    Attributes:
        path: its file.
        name: its id as known without parsing the case: the name of a JSON file without its suffix; the id of a line,
            or `line_name` if it has none or an earlier line has the same.
        line: its line in a JSON Lines file, from 1; 0 for a JSON file.
        start: the offset of that line in the file, bytes.
        duplicate: the id of the line if an earlier line has the same; empty if none has.
        problem: why it can't be read, known from its name or place alone; None if nothing is.
        content: its bytes, where they are known already.
    """

    path: str
    name: str
    line: int = 0
    start: int = 0
    duplicate: str = ""
    problem: Problem | None = None
    content: bytes = b""

    @property
    def written_id(self) -> str:
        """The id in its file, which an earlier line may have as well."""
        return self.duplicate or self.name

    def label(self, file: str) -> str:
        """Return `FILE`, or `FILE:LINE` for a line, with `file` as the name of the file."""
        return format_location(file, self.line)

    def within(self, folder: Path) -> str:
        """Return its path from a folder around it, with the line."""
        return self.label(Path(self.path).relative_to(folder).as_posix())


class CaseLine(NamedTuple):
    """One line of a JSON Lines file.

    Attributes:
        number: its number, from 1.
        start: its offset in the file, bytes.
        raw: its bytes.
    """

    number: int
    start: int
    raw: bytes


def format_location(file: str, line: int) -> str:
    """Return `FILE:LINE`, or `FILE` if the line is 0."""
    return f"{file}:{line}" if line else file


def split_location(location: str) -> tuple[str, int]:
    """Split the output of `format_location` into the file and the line, 0 without a line."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file.endswith(LINES_SUFFIX) and line.isdecimal() else (location, 0)


def file_stem(path: str) -> str:
    """Return the name of a file without its folder and suffix."""
    name = os.path.basename(path)  # noqa: PTH119 - strings, because there may be a million
    return name.rpartition(".")[0] or name


def case_folders(folder: StrPath, *, skip: Iterable[StrPath] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and its subfolders recursively, sorted, with the names of their files.

    Symbolic links to folders outside are followed, to each folder once, so that they cannot form a cycle. One that
    leads out of the project is not followed; it appears among the files. Hidden folders are skipped.

    Args:
        folder: the folder.
        skip: the paths of subfolders that are left out.
    """
    skipped = {os.fspath(path) for path in skip}
    linked: set[str] = set()
    seen: set[str] = set()

    def is_visited(path: str, parent: str, names: list[str]) -> bool:
        if is_hidden(os.path.basename(path)) or path in skipped:  # noqa: PTH119 - strings, as os.walk returns them
            return False
        # folders that are not reached by a link need no further check
        if parent not in linked and not os.path.islink(path):  # noqa: PTH114 - see above
            return True
        if leaves_project(path):
            # it takes the place of the cases in it
            names.append(os.path.basename(path))  # noqa: PTH119 - see above
            return False
        real, root = os.path.realpath(path), os.path.realpath(folder)
        # a folder inside is visited without the link, and a parent folder would contain this folder again
        if real in seen or contains(root, real) or contains(real, root):
            return False
        seen.add(real)
        linked.add(path)
        return True

    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in sorted(folders) if is_visited(os.path.join(parent, name), parent, names)]  # noqa: PTH118 - see above
        yield parent, names


def leaves_project(path: str) -> bool:
    """Return whether a link leads out of the project."""
    return _link_problem(path) is not None


def _link_problem(path: str) -> Problem | None:
    try:
        check_link(path)
    except InputLimitError as error:
        return unreadable(error, "")
    return None


def is_hidden(name: str) -> bool:
    """Return whether a folder with this name is skipped: that of an editor, a version control system or Python."""
    return name.startswith(".") or name == "__pycache__"


def file_paths(folder: StrPath, *, skip: Iterable[StrPath] = ()) -> Iterator[str]:
    """Yield the files under a folder that are not hidden, sorted, the files of a folder before its subfolders.

    Args:
        folder: the folder.
        skip: as for `case_folders`.
    """
    for parent, names in case_folders(folder, skip=skip):
        for name in sorted(names):
            if not is_hidden(name):
                yield os.path.join(parent, name)  # noqa: PTH118 - strings, because there may be a million


def case_paths(folder: StrPath) -> Iterator[str]:
    """Yield the case files under a folder, sorted as `file_paths`."""
    return (path for path in file_paths(folder) if path.endswith(SUFFIXES))


def is_unread(name: str) -> bool:
    """Return whether a file in the folder of cases is neither a case nor one of those that every folder may contain.

    Those are files of pytest and Python, dotfiles, copies of editors (`*~`) and `README*`.
    """
    return not (name.endswith((*SUFFIXES, ".py", ".pyc", "~")) or name.startswith((".", "README")))


def is_stray(suite: Suite, path: str) -> bool:
    """Return whether a file of a suite's folder looks like a case but is not read as one.

    Under `cases` it is any file with another suffix; beside `cases`, a case in JSON or YAML. Files that `ignore` in
    `suite.yaml` names are not stray.
    """
    relative = os.path.relpath(path, suite.path).replace(os.sep, "/")
    folder, _, _ = relative.partition("/")
    name = os.path.basename(path)  # noqa: PTH119 - a string, see above
    if folder == "cases":
        is_found = is_unread(name)
    else:
        is_found = folder not in _NOT_STRAY and relative not in _OWN_FILES and _is_case_elsewhere(path, name)
    return is_found and not any(fnmatchcase(each, entry) for entry in suite.config.ignore for each in (relative, name))


def _is_case_elsewhere(path: str, name: str) -> bool:
    if _DATA_SUFFIX.search(name) is None or name.startswith((".", "README")) or name.endswith("~"):
        return False
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    has = {key: re.search(_KEY % key, head, re.MULTILINE) is not None for key in (b"pack_id", b"input", b"expected")}
    return has[b"pack_id"] or (has[b"input"] and has[b"expected"])


def stray_locations(suite: Suite) -> Iterator[CaseLocation]:
    """Yield the stray files of a suite (see `is_stray`), sorted; each counts as a case that can't be read.

    The name is that of the file with its suffix, which no id can be.
    """
    for folders, may_be_stray in (
        (_folders_beside(suite), _DATA_SUFFIX.search),
        (case_folders(suite.cases_path), is_unread),
    ):
        for parent, names in folders:
            # computing the path of each case takes longer than reading its name
            for name in sorted(filter(may_be_stray, names)):
                path = os.path.join(parent, name)  # noqa: PTH118 - a string, see above
                if is_stray(suite, path):
                    yield CaseLocation(path, name, problem=stray_problem(path))


def _folders_beside(suite: Suite) -> Iterator[tuple[str, list[str]]]:
    for parent, folders, names in os.walk(suite.path):
        is_top = parent == str(suite.path)
        if CONFIG_NAME in names and not is_top:
            # another suite
            folders.clear()
            continue
        folders[:] = [name for name in sorted(folders) if not is_hidden(name) and not (is_top and name in _NOT_STRAY)]
        yield parent, names


def stray_problem(path: str) -> Problem:
    """Return the problem of a stray file, or of a link to a folder out of the project."""
    name = os.path.basename(path)  # noqa: PTH119 - a string, see above
    if os.path.isdir(path) and (problem := _link_problem(path)) is not None:  # noqa: PTH112 - see above
        return problem
    if name.endswith(SUFFIXES):
        return Problem("", "a case outside the folder cases is not read", f"move it to cases, or {_IGNORE}")
    wrong = "not read as a case, because of its suffix"
    return Problem("", wrong, f"rename it to .json (one case) or .jsonl (one case per line), or {_IGNORE}")


def suite_locations(suite: Suite) -> Iterator[CaseLocation]:
    """Yield the locations of all cases of a suite, then those of its stray files."""
    yield from iter_cases(suite.cases_path)
    yield from stray_locations(suite)


def case_lines(path: StrPath | OpenFile) -> Iterator[CaseLine]:
    """Yield the lines of a JSON Lines file that are not blank, of a line that is too long the beginning.

    Raises:
        OSError: it can't be read.
    """
    with open_regular(path, inside=True) as file:
        for number, raw in enumerate(lines_of(file, RECORDING), start=1):
            if raw.removeprefix(_BOM).strip():
                yield CaseLine(number, file.tell() - len(raw), raw)


def read_id(raw: bytes, key: str = "id") -> str | None:
    """Return the id of a line; the line is parsed only if nested values or escapes precede the id.

    Args:
        raw: the line.
        key: `id` of a case, or `case_id` of a recording.

    Returns:
        The id; None if the line has no valid id.
    """
    match = _id_first(key).match(raw)
    if match is not None:
        name = match[1].decode("ascii")
        return name if len(name) <= CASE_ID_LENGTH else None
    if len(raw) > RECORDING.size:
        return None
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    name = data.get(key) if isinstance(data, dict) else None
    is_valid = isinstance(name, str) and len(name) <= CASE_ID_LENGTH and _CASE_ID.fullmatch(name) is not None
    return name if is_valid else None


def line_name(path: str, line: int) -> str:
    """Return a name for a line without a unique id, `many.line-17`; ids contain no dot, so it is never an id."""
    return f"{file_stem(path)}.line-{line}"


def is_line_name(name: str) -> bool:
    """Return whether a name has the form of `line_name`."""
    return re.fullmatch(_LINE, name) is not None


def line_locations(path: str, kind: Kind, *, keeps_content: bool = False) -> Iterator[CaseLocation]:
    """Yield the locations of the lines of a file; of two lines with the same id the second gets a `line_name`.

    Args:
        path: a JSON Lines file.
        kind: what is in it.
        keeps_content: whether the locations have the bytes of their lines, for what reads them one by one.

    Raises:
        OSError: it can't be read.
    """
    seen: dict[str, int] = {}
    for line in case_lines(path):
        of_line = line_name(path, line.number)
        name, content = read_id(line.raw, kind.key) or of_line, line.raw if keeps_content else b""
        earlier = seen.setdefault(name, line.number)
        if earlier == line.number:
            yield CaseLocation(path, name, line.number, line.start, content=content)
        else:
            problem = duplicate_id(name, f"line {earlier}", key=kind.key)
            yield CaseLocation(path, of_line, line.number, line.start, name, problem, content)


def locations_in(path: str, kind: Kind = CASE_KIND, *, keeps_content: bool = False) -> Iterator[CaseLocation]:
    """Yield the locations of all cases, recordings or controls in a file.

    A file of lines that can't be read, or has none, is one of them, which can't be loaded.

    Args:
        path: the file.
        kind: what is in it.
        keeps_content: as for `line_locations`.
    """
    if not path.endswith(LINES_SUFFIX):
        yield CaseLocation(path, file_stem(path))
        return
    noun = kind.noun
    advice = f"expected one {noun} per line; remove the file if it needs none"
    problem: Problem | None = Problem("", f"the file contains no {noun}", advice)
    try:
        for location in line_locations(path, kind, keeps_content=keeps_content):
            problem = None
            yield location
    except OSError as error:
        problem = unreadable_file(error)
    if problem is not None:
        yield CaseLocation(path, file_stem(path), problem=problem)


def iter_cases(folder: StrPath) -> Iterator[CaseLocation]:
    """Yield the locations of all cases under a folder, by file, then by line."""
    for path in case_paths(folder):
        yield from locations_in(path)


def find_case(path: str, name: str) -> CaseLocation | None:
    """Return the location of a case in a file, None if it is not there; the lines of a file are read only once."""
    if path.endswith(LINES_SUFFIX):
        return lines_by_id(path).get(name)
    return CaseLocation(path, name) if os.path.exists(path) else None  # noqa: PTH110 - a string, see above


def lines_by_id(path: str, kind: Kind = CASE_KIND) -> Mapping[str, CaseLocation]:
    """Return the lines of a file by their names; of two lines with the same id the second, since neither is right.

    Raises:
        OSError: a file of recordings is there, and can't be read.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a string, see above
    except (OSError, ValueError):
        # a path cannot contain a null character
        return {}
    return _lines_by_id(path, kind, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=6)
def _lines_by_id(path: str, kind: Kind, _changed_ns: int, _size: int) -> Mapping[str, CaseLocation]:
    found: dict[str, CaseLocation] = {}
    # a file of cases that can't be read is one case
    for location in locations_in(path) if kind is CASE_KIND else line_locations(path, kind):
        found[location.name] = found[location.written_id] = location
    return found


class CaseIndex(dict[str, CaseLocation]):
    """Cases by name, in the order of their files; of two with the same name the first by path and line."""

    def __init__(self, locations: Iterable[CaseLocation]) -> None:
        super().__init__()
        for location in locations:
            self.setdefault(location.name, location)

    find = dict.get


def unprintable_name(path: str) -> Problem:
    """Return the problem of a file with a name, or in a folder, that terminals and services of CI would interpret."""
    folder, name = os.path.split(path)
    whose = "its name" if has_control_characters(name) else "the name of its folder"
    shown = escape_unprintable(name if has_control_characters(name) else os.path.basename(folder))  # noqa: PTH119 - a string, see above
    wrong = f'{whose} has control characters, line breaks, marks of direction or bytes that are not UTF-8: "{shown}"'
    return Problem("", wrong, "rename it")


def unreadable_file(error: OSError) -> Problem:
    """Return the problem of a file that cannot be opened."""
    return unreadable(error, "expected a file")


class Recording(NamedTuple):
    """Where a recording is, or would be; as text, for messages, its path from the folder of the suite.

    Attributes:
        location: its file and line.
        suite: the folder of its suite.
    """

    location: CaseLocation
    suite: Path

    def __str__(self) -> str:
        """Return its path from the folder of the suite, with the line of a packed one."""
        return self.location.within(self.suite)

    def exists(self) -> bool:
        """Return whether there is a recording; it may be unreadable."""
        return bool(self.location.line) or os.path.exists(self.location.path)  # noqa: PTH110 - a string


def find_recording(suite: Suite, case_id: str) -> Recording:
    """Return the recording of a case; where there is none, that of the file which would contain it.

    Raises:
        OSError: the file of many recordings is there, and can't be read.
    """
    path = suite.cassette_path(case_id)
    line = None if path.exists() else lines_by_id(str(path.with_name(RECORDINGS)), CASSETTE_KIND).get(case_id)
    return Recording(CaseLocation(str(path), case_id) if line is None else line, suite.path)


def recording_kind(path: str) -> Kind | None:
    """Return whether a file of a suite has recordings or controls; None for any other.

    Args:
        path: the file, from the suite's folder.
    """
    folder, name = posixpath.split(path)
    if not path.startswith(f"{FIXTURES}/"):
        return None
    is_control = f"{folder}/".startswith(f"{FIXTURES}/{CONTROLS}/")
    is_read = name.endswith(CASE_SUFFIX) or name == RECORDINGS or (is_control and name.endswith(LINES_SUFFIX))
    return (CONTROL_KIND if is_control else CASSETTE_KIND) if is_read else None


def recordings_in(suite: Path, paths: Iterable[str]) -> dict[str, CaseLocation]:
    """Return the recordings and controls in files of a suite by their path under `fixtures`, without the suffix.

    Args:
        suite: the folder of the suite.
        paths: the files, from there; those of another kind are left out.
    """
    found: dict[str, CaseLocation] = {}
    for path in paths:
        kind = recording_kind(path)
        for location in locations_in(str(suite / path), kind) if kind else ():
            name = posixpath.join(posixpath.dirname(path), location.name).removeprefix(f"{FIXTURES}/")
            # a file of its own takes precedence over a line
            if not (location.line and name in found):
                found[name] = location
    return found


def all_recordings(suite: Suite) -> dict[str, Recording]:
    """Return all recordings of a suite by their path under `fixtures` without suffix, sorted."""
    shared = suite.path / FIXTURES / SHARED
    files = file_paths(suite.path / FIXTURES, skip=[suite.controls_path, shared.parent])
    found = recordings_in(suite.path, (Path(path).relative_to(suite.path).as_posix() for path in files))
    return {name: Recording(location, suite.path) for name, location in sorted(found.items())}


def find_controls(folder: Path) -> list[CaseLocation]:
    """Return the controls in a folder, in the order of their files, with files there that are not read as controls."""
    found: list[CaseLocation] = []
    first: dict[str, CaseLocation] = {}
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - strings
    except FileNotFoundError:
        return []
    except OSError as error:
        return [CaseLocation(str(folder), folder.name, problem=unreadable(error, "expected a folder of controls"))]
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118 - a string
        if name.startswith("."):
            continue
        if (problem := control_file_problem(path)) is not None:
            found.append(CaseLocation(path, escape_unprintable(name), problem=problem))
        elif name.endswith(SUFFIXES):
            found += [_distinct(location, name, first) for location in locations_in(path, CONTROL_KIND)]
    return found


def _distinct(location: CaseLocation, file: str, first: dict[str, CaseLocation]) -> CaseLocation:
    """Return the location of a control; with another name and a problem if another file has the same id."""
    other = first.setdefault(location.written_id, location)
    if other is location or location.problem is not None:
        return location
    problem = duplicate_id(location.name, other.label(Path(other.path).name))
    return location._replace(name=f"{location.name}.{file}-{location.line}", problem=problem)


def control_file_problem(path: str) -> Problem | None:
    """Return why a file in the folder of controls is not read at all; None if it is, or need not be."""
    folder, name = os.path.split(path)
    if name == "__pycache__":
        return None
    if has_control_characters(name):
        return unprintable_name(path)
    if os.path.isdir(path):  # noqa: PTH112 - strings
        return Problem("", "a folder is not read", f"move its controls to {os.path.basename(folder)}")  # noqa: PTH119
    if is_unread(name):
        return Problem("", "not read as a control, because of its suffix", "rename it to .json, or remove it")
    return None


def needs_gateway(folders: Iterable[Path]) -> bool:
    """Whether recordings in these folders contain calls of a target's own clients; reads some of them, in part."""
    inner = ("", PENDING, SHARED.partition("/")[0])
    return any(_has_own_calls(folder / name) for folder in folders for name in inner)


def _has_own_calls(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith(SUFFIXES) and entry.is_file()]
    except OSError:
        return False
    for number, path in enumerate(paths[:_MAX_FILES]):
        # the calls come first where the target has no others
        size = _MAX_BYTES if number < _MAX_WHOLE_FILES else _MAX_BYTES_OF_OTHERS
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - a Path takes longer
            if re.search(_OWN_CALLS, file.read(size)):
                return True
    return False


class Project(NamedTuple):
    """A project as pytest finds it from the current folder.

    Attributes:
        rootdir: pytest's rootdir, absolute.
        root: the folder of suites, absolute, whether it exists or not.
        packs: the packs of hooks in conftest.py files and plugins; of one name the last counts.
        settings: the settings that decide what fails a run, by `policy_settings`; empty for their defaults.
        hooks: the files with hooks that decide what is tested.
    """

    rootdir: Path
    root: Path
    packs: tuple[Pack, ...] = ()
    settings: Mapping[str, Any] = {}
    hooks: tuple[str, ...] = ()


def suite_names(value: str | Iterable[str]) -> list[str]:
    """Return the names in one or several comma-separated lists, each once, in order."""
    parts = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))


class FoundSuite(NamedTuple):
    """A suite that can be requested.

    Attributes:
        name: the name that it has in a run.
        path: its folder, absolute.
        bundled: whether it is part of the installed package.
    """

    name: str
    path: Path
    bundled: bool

    def contains(self, path: str) -> bool:
        """Return whether a path is the folder, or in it."""
        return (path + os.sep).startswith(str(self.path) + os.sep)


def bundled_root() -> Path:
    """Return the folder of the suites that belong to the package; of a source tree, that of its own suites."""
    package = Path(os.path.abspath(__file__)).parent.parent  # noqa: PTH100 - as the plugin finds them
    packed = package / "_suites"
    return packed if packed.is_dir() else package.parent / "storage" / "benchmarks"


def named_suites(root: Path, bundled: Path) -> dict[str, FoundSuite]:
    """Return the suites by all names that they can be requested by.

    A bare name is that of a suite of the project; of a bundled one where the project has no folder of suites. As
    `bundled/NAME` a bundled suite can always be requested.

    Args:
        root: the folder of the project's suites, absolute; it may be missing.
        bundled: the folder of the bundled suites.
    """
    own = {name: FoundSuite(name, path, bundled=False) for name, path in find_suites(root).items()}
    has_own = root.is_dir()
    by_name = dict(own)
    for name, path in find_suites(bundled).items():
        # in the repository of this package both folders are the same
        is_own = name in own and own[name].path == path
        found = own[name] if is_own else FoundSuite(BUNDLED + name if has_own else name, path, bundled=True)
        by_name[BUNDLED + name] = found
        if not has_own:
            by_name[name] = found
    return by_name


def find_suites(root: Path) -> dict[str, Path]:
    """Return the suites under a root, name to folder, sorted; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / CONFIG_NAME).is_file()}


def unknown_suite_message(
    name: str,
    known: Collection[str],
    root: Path,
    advice: str = "set packbench_root, or start pytest in its parent folder",
) -> str:
    """Return the message for an unknown suite, with the suites that exist.

    Args:
        name: the requested name.
        known: the names that can be requested, as `named_suites` returns them.
        root: the folder of the project's suites; it may be missing.
        advice: what to do then.
    """
    has_own, shown_root = root.is_dir(), os.path.relpath(root)
    is_bundled = name.startswith(BUNDLED) or not has_own
    listed = [escape_unprintable(each) for each in known if each.startswith(BUNDLED) is is_bundled]
    close = [BUNDLED + name] if BUNDLED + name in known else get_close_matches(name, listed, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    # a name is not a path: `../x` is not a suite, even if the folder exists
    incomplete = missing_config_message(root / name) if name == Path(name).name else ""
    message = incomplete or f'unknown suite "{escape_unprintable(name)}"{guess}'
    if not has_own:
        message += f": the folder {shown_root} does not exist; {advice}"
    return (
        f"{message}; {'bundled suites' if is_bundled else f'suites under {shown_root}'}: {', '.join(listed) or 'none'}"
    )


def missing_config_message(folder: Path) -> str:
    """Return the message for a folder without a `suite.yaml`; empty if the folder does not exist."""
    if not folder.is_dir():
        return ""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name.isprintable()]
    near = get_close_matches(CONFIG_NAME, names, n=1, cutoff=0.8)
    advice = f"rename {near[0]} in it" if near else "create it with the rules of the suite"
    return f"{os.path.relpath(folder)} has no {CONFIG_NAME}; {advice}"


def case_counts(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Return the number of cases of a suite, stray files included, and of those in the shard."""
    counts = Counter(shard is None or location.written_id in shard for location in suite_locations(suite))
    return counts.total(), counts[True]


def describe_case_counts(folder: Path) -> str:
    """Describe how many cases a folder contains: `3 cases (a 2, b 1)`.

    Files are counted by their subfolder, lines of a JSON Lines file by their case type.
    """
    counts: Counter[str] = Counter()
    for path in case_paths(folder):
        kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - a string, as case_paths yields
        if path.endswith(LINES_SUFFIX):
            with suppress(OSError):
                counts.update(read_id(line.raw, "case_type") or kind for line in case_lines(path))
        else:
            counts[kind] += 1
    total = counts.total()
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    return f"{pluralize(total, 'case')}{f' ({listed})' if listed else ''}"
