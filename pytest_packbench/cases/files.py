"""Finding suites, and their cases: one per JSON file (`<id>.json`), or one per line of a JSON Lines file (`*.jsonl`).

These functions work on names and bytes; a line is parsed only if its id cannot be found without parsing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.load import case_sha256, parse_case, parse_json
from pytest_packbench.files import (
    CASE,
    RECORDING,
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
    read_line,
    read_regular,
)
from pytest_packbench.model.case import CASE_ID, CASE_ID_LENGTH, Case, LoadedCase
from pytest_packbench.model.errors import CaseError, InputError, Problem, duplicate_id, pluralize, unreadable
from pytest_packbench.model.run import BUNDLED, Shard
from pytest_packbench.model.suite import CONFIG_NAME, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

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
_LINE = re.compile(r".*\.line-[0-9]+", re.DOTALL)


@cache
def _id_first(key: str) -> re.Pattern[bytes]:
    """Return the pattern of a line whose id follows only members with scalar values; other lines are parsed."""
    members = rb'(?:"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[-+.\w]+)\s*,\s*)*?'
    return re.compile(
        rb"(?:\xef\xbb\xbf)?\s*\{\s*" + members + rb'"%s"\s*:\s*"([A-Za-z0-9][\w-]*)"\s*[,}]' % key.encode()
    )


class CaseLocation(NamedTuple):
    """The location of one case.

    Attributes:
        path: its file.
        name: its id as known without parsing the case: the name of a JSON file without its suffix; the id of a line,
            or `line_name` if it has none or an earlier line has the same.
        line: its line in a JSON Lines file, from 1; 0 for a JSON file.
        start: the offset of that line in the file, bytes.
        duplicate: the id of the line if an earlier line has the same; empty if none has.
        problem: why it can't be read, known from its name or place alone; None if nothing is.
        content: the bytes of its line, where they are known already.
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
    return _LINE.fullmatch(name) is not None


def line_locations(path: str, key: str = "id", *, keeps_content: bool = False) -> Iterator[CaseLocation]:
    """Yield the locations of the lines of a file; of two lines with the same id the second gets a `line_name`.

    Args:
        path: a JSON Lines file, of cases, recordings or controls.
        key: as for `read_id`.
        keeps_content: whether the locations have the bytes of their lines, for what reads them one by one.

    Raises:
        OSError: it can't be read.
    """
    seen: dict[str, int] = {}
    for line in case_lines(path):
        of_line = line_name(path, line.number)
        name, content = read_id(line.raw, key) or of_line, line.raw if keeps_content else b""
        earlier = seen.setdefault(name, line.number)
        if earlier == line.number:
            yield CaseLocation(path, name, line.number, line.start, content=content)
        else:
            problem = duplicate_id(name, f"line {earlier}", key=key)
            yield CaseLocation(path, of_line, line.number, line.start, name, problem, content)


def locations_in(
    path: str, key: str = "id", noun: str = "case", *, keeps_content: bool = False
) -> Iterator[CaseLocation]:
    """Yield the locations of all cases in a file, or of its recordings or controls.

    A file of lines that can't be read, or has none, is one case, which can't be loaded.

    Args:
        path: the file.
        key: as for `read_id`.
        noun: what is in it.
        keeps_content: as for `line_locations`.
    """
    if not path.endswith(LINES_SUFFIX):
        yield CaseLocation(path, file_stem(path))
        return
    problem: Problem | None = no_lines(noun)
    try:
        for location in line_locations(path, key, keeps_content=keeps_content):
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


def lines_by_id(path: str, key: str = "id") -> Mapping[str, CaseLocation]:
    """Return the lines of a file by their names; of two lines with the same id the second, since neither is right.

    Raises:
        OSError: a file of recordings is there, and can't be read.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a string, see above
    except (OSError, ValueError):
        # a path cannot contain a null character
        return {}
    return _lines_by_id(path, key, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=6)
def _lines_by_id(path: str, key: str, _changed_ns: int, _size: int) -> Mapping[str, CaseLocation]:
    found: dict[str, CaseLocation] = {}
    # a file of cases that can't be read is one case
    for location in locations_in(path) if key == "id" else line_locations(path, key):
        found[location.name] = found[location.written_id] = location
    return found


class CaseIndex(dict[str, CaseLocation]):
    """Cases by name, in the order of their files; of two with the same name the first by path and line."""

    def __init__(self, locations: Iterable[CaseLocation]) -> None:
        super().__init__()
        for location in locations:
            self.setdefault(location.name, location)

    find = dict.get


def read_case_bytes(location: CaseLocation, limit: Limit = CASE) -> bytes:
    """Return the bytes of a case, a recording or a control.

    Args:
        location: its location.
        limit: how large its file may be.

    Raises:
        OSError: it can't be read.
    """
    if not location.line:
        return read_regular(location.path, limit)
    return location.content or read_line(location.path, location.start, limit)


def case_file_sha256(location: CaseLocation) -> str | None:
    """Return the hash of a case, as `LoadedCase.sha256`, without validating it; None if it is no JSON object."""
    try:
        data = parse_json(read_case_bytes(location))
    except (OSError, ValueError):
        return None
    return case_sha256(data) if isinstance(data, dict) else None


def load_case(location: CaseLocation, model: type[Case], *, file: str, pack: str | None) -> LoadedCase:
    """Load and validate the case at a location.

    Args:
        location: its location.
        model: the pack's case model.
        file: the name of the file for error messages.
        pack: the name of the suite's pack, which the case must name as well; None to accept any.

    Raises:
        CaseError: the case is invalid; one line with file, line, JSON pointer, problem and what was expected.
    """
    source = location.label(file)
    if location.problem is None and has_control_characters(file):
        location = location._replace(problem=unprintable_name(file))
    raw = located_bytes(location, CASE, CaseError, source)
    return parse_case(raw, model, source=source, stem=None if location.line else location.name, pack=pack)


def located_bytes(location: CaseLocation, limit: Limit, error_type: type[InputError], source: str) -> bytes:
    """Return the bytes of a case or a control; raises the error if it can't be read."""
    problem = location.problem
    if problem is None:
        try:
            return read_case_bytes(location, limit)
        except OSError as error:
            problem = unreadable_file(error)
    raise error_type(source, [problem])


def no_lines(noun: str = "case") -> Problem:
    """Return the problem of a JSON Lines file without a line."""
    return Problem(
        "", f"the file contains no {noun}", f"expected one {noun} per line; remove the file if it needs none"
    )


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


class SuiteCase(NamedTuple):
    """A case of a suite, which may be unreadable.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        at: its location.
        file: the name of the file for users.
        loaded: the case; None if it cannot be read.
        problem: why it cannot be used, in one line; empty otherwise.
    """

    suite: Suite
    pack: Pack
    at: CaseLocation
    file: str
    loaded: LoadedCase | None
    problem: str

    @property
    def folder(self) -> str:
        """The name of the folder that contains the file."""
        return Path(self.at.path).parent.name

    @property
    def location(self) -> str:
        """The file for users, with the line in a file of many."""
        return self.at.label(self.file)


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


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Load all cases of a suite, in the order of their files, then its stray files.

    Cases with the same id get a problem that names the others, because ids identify records.

    Args:
        suite: the suite.
        pack: its pack.
        name_of: returns the name of a file for users.
    """
    places = [(location, name_of(Path(location.path))) for location in suite_locations(suite)]
    by_id: dict[str, list[str]] = {}
    for location, file in places:
        by_id.setdefault(location.written_id, []).append(location.label(file))
    return tuple(_suite_case(suite, pack, location, file, by_id[location.written_id]) for location, file in places)


def _suite_case(suite: Suite, pack: Pack, location: CaseLocation, file: str, same_id: list[str]) -> SuiteCase:
    loaded, source = None, location.label(file)
    others = ", ".join(other for other in same_id if other != source)
    problem = str(CaseError(source, [duplicate_id(location.name, others)])) if others else ""
    try:
        loaded = load_case(location, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return SuiteCase(suite, pack, location, file, loaded, problem)
