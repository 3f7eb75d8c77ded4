"""What a suite's acceptance policy depends on in its files: cases, recordings, tables, and code of the pack."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import LINES_SUFFIX, SUFFIXES, case_folders, format_location, line_name
from pytest_packbench.cases.load import JsonError, case_sha256, parse_json
from pytest_packbench.cases.packed import RECORDINGS
from pytest_packbench.limits import LIMITS, RECORDING, read_regular
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.policy import CHANGES_NAME, CaseFacts
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LIMIT = LIMITS["policy"]
_OWN_FILES = frozenset({CONFIG_NAME, BASELINE_NAME, CHANGES_NAME})
# these may themselves be links
_READ_BY_NAME = ("cases", "fixtures")
_CONTROLS = "fixtures/controls/"
_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
# they name the pipeline under test, which changes are tested for, not decided by
_PIPELINE = frozenset({"target", "guards", "backend", "model", "description"})


class SuiteFiles(NamedTuple):
    """The files of a suite, read.

    Attributes:
        config: the bytes of `suite.yaml`; None without one.
        baseline: the content of `baseline.json`, or its hash if it is no JSON; None without one.
        files: hashes of the other files, by path.
        recordings: hashes of the recordings by path under `fixtures` without suffix.
        cases: the cases by id.
    """

    config: bytes | None
    baseline: Any
    files: dict[str, str]
    recordings: dict[str, str]
    cases: dict[str, CaseFacts]


def folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder and its subfolders, sorted as they are found: path from the folder, content.

    Links are followed, and hidden folders skipped, as cases are found. A file that can't be read counts as empty.
    """
    roots = [folder / name for name in _READ_BY_NAME]
    for root in (*roots, folder):
        for parent, names in case_folders(root):
            relative = Path(parent).relative_to(folder)
            if root == folder and relative.parts[:1] and relative.parts[0] in _READ_BY_NAME:
                continue
            for name in sorted(names):
                path = Path(parent, name)
                try:
                    yield (relative / name).as_posix(), read_regular(path, _LIMIT._replace(inside=root != folder))
                except OSError:
                    # the run reports it as an error
                    yield (relative / name).as_posix(), b""


def read_files(files: Iterable[tuple[str, bytes]], keep: Mapping[str, CaseFacts] | None = None) -> SuiteFiles:
    """Read the files of a suite.

    Args:
        files: path from the suite's folder and content.
        keep: the cases of the other side: only cases that differ from these are kept as data; None keeps no data.

    Returns:
        What the acceptance policy depends on; hidden files and readmes are left out.
    """
    found = SuiteFiles(None, None, {}, {}, {})
    packed: dict[str, str] = {}
    for path, raw in files:
        folder, _, inner = path.partition("/")
        name = posixpath.basename(path)
        if any(part.startswith(".") or part == "__pycache__" for part in path.split("/")):
            continue
        if folder == "cases" and name.endswith(SUFFIXES):
            for case_id, facts in _cases(path, raw):
                # of two cases with one id neither counts: the run reports them
                other = None if keep is None else keep.get(case_id)
                is_kept = other is not None and (other.sha256 != facts.sha256 or facts.sha256 is None)
                found.cases.setdefault(case_id, facts if is_kept else facts._replace(data=None))
        elif folder == "fixtures" and (key := _key_of_lines(path)):
            packed |= _packed_recordings(posixpath.dirname(inner), raw, key)
        elif folder == "fixtures" and name.endswith(".json"):
            found.recordings[inner.removesuffix(".json")] = _digest(raw, is_control=path.startswith(_CONTROLS))
        elif path == CONFIG_NAME:
            found = found._replace(config=raw)
        elif path == BASELINE_NAME:
            found = found._replace(baseline=_baseline(raw))
        elif _is_other(path):
            found.files[path] = text_sha256(raw)
    # a file of its own takes precedence over a line
    return found._replace(recordings={**packed, **found.recordings})


def case_data(files: Iterable[tuple[str, bytes]], names: Iterable[str]) -> dict[str, CaseFacts]:
    """Return the cases with these ids, with their data."""
    wanted = set(names)
    found: dict[str, CaseFacts] = {}
    for path, raw in files if wanted else ():
        if path.startswith("cases/") and path.endswith(SUFFIXES):
            for case_id, facts in _cases(path, raw):
                if case_id in wanted:
                    found.setdefault(case_id, facts)
    return found


def other_files(folder: Path) -> dict[str, str]:
    """Return the hashes of the files in a suite's folder that are neither cases nor recordings, by path.

    Files below `cases` and `fixtures` are not looked at, because there may be a million.
    """
    found: dict[str, str] = {}
    for parent, folders, names in os.walk(folder):
        if parent == str(folder):
            folders[:] = [name for name in folders if name not in _READ_BY_NAME]
        folders[:] = sorted(name for name in folders if not (name.startswith(".") or name == "__pycache__"))
        for name in sorted(names):
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            if _is_other(relative) and path.is_file():
                found[relative] = text_sha256(read_regular(path, _LIMIT))
    return found


def control_recordings(folder: Path) -> dict[str, str]:
    """Return the hashes of the recordings in the folders under `fixtures`, which are those of no case, by path."""
    fixtures = folder / "fixtures"
    try:
        folders = [entry.path for entry in os.scandir(fixtures) if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return {}
    files = ((f"fixtures/{Path(each).name}/{path}", raw) for each in folders for path, raw in folder_files(Path(each)))
    return read_files(files).recordings


def text_sha256(raw: bytes) -> str:
    """Return the hash of a file whose line ends may differ between systems."""
    return hashlib.sha256(raw.replace(b"\r\n", b"\n")).hexdigest()


def source_files(modules: Iterable[str | None], root: Path) -> list[str]:
    """Return the files of modules that are the project's: path from its folder, sorted.

    Of a module in a package all Python files in its folder count.

    Args:
        modules: the files of the modules; None for one without a file.
        root: the project's folder, absolute.
    """
    found: set[str] = set()
    for name in modules:
        path = Path(os.path.abspath(name or ""))  # noqa: PTH100 - without following links
        if name is None or path.suffix != ".py" or root not in path.parents or "site-packages" in path.parts:
            continue
        whole = (path.parent / "__init__.py").exists() and path.parent != root
        paths = sorted(path.parent.glob("*.py")) if whole else [path]
        found |= {each.relative_to(root).as_posix() for each in paths}
    return sorted(found)


def function_modules(config: Mapping[str, Any]) -> set[str]:
    """Return the modules of the functions that a suite's rules name as `module:function`."""

    def inside(value: Any) -> Iterator[str]:
        if isinstance(value, str) and (match := _FUNCTION.fullmatch(value)):
            yield match[1]
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for member in members:
            yield from inside(member)

    return set(inside({key: value for key, value in config.items() if key not in _PIPELINE}))


def _is_other(path: str) -> bool:
    name = posixpath.basename(path)
    own = path in _OWN_FILES or name.startswith((".", "README")) or name.endswith(("~", ".pyc"))
    return not own


def _cases(path: str, raw: bytes) -> Iterator[tuple[str, CaseFacts]]:
    if not path.endswith(LINES_SUFFIX):
        stem = posixpath.basename(path).removesuffix(".json")
        yield _case(raw, path, stem)
        return
    for number, line in enumerate(io.BytesIO(raw), 1):
        if line.strip() and not (number == 1 and not line.removeprefix(b"\xef\xbb\xbf").strip()):
            yield _case(line, format_location(path, number), line_name(path, number))


def _case(raw: bytes, file: str, name: str) -> tuple[str, CaseFacts]:
    try:
        data = parse_json(raw)
    except JsonError:
        return name, CaseFacts(file, None)
    case_id = data.get("id") if isinstance(data, dict) else None
    if not isinstance(data, dict):
        return name, CaseFacts(file, None)
    return case_id if isinstance(case_id, str) else name, CaseFacts(file, case_sha256(data), data)


def _key_of_lines(path: str) -> str:
    """Return the key with the id of each line of a file of recordings or of controls; empty for another file."""
    if path.startswith(_CONTROLS) and path.endswith(LINES_SUFFIX):
        return "id"
    return "case_id" if posixpath.basename(path) == RECORDINGS else ""


def _packed_recordings(folder: str, raw: bytes, key: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(io.BytesIO(raw), 1):
        if line.strip():
            try:
                name = json.loads(line).get(key, f"line {number}")
            except (ValueError, AttributeError, RecursionError):
                name = f"line {number}"
            yield posixpath.join(folder, str(name)), _digest(line, is_control=key == "id")


def _digest(raw: bytes, *, is_control: bool = False) -> str:
    """Return the hash of a recording, or of a control without its words for people."""
    try:
        data = parse_json(raw, RECORDING)
        if is_control and isinstance(data, dict):
            data = {key: value for key, value in data.items() if key not in {"description", "$schema"}}
        return canonical_sha256(data)
    except JsonError:
        return hashlib.sha256(raw).hexdigest()


def _baseline(raw: bytes) -> Any:
    try:
        return parse_json(raw, LIMITS[BASELINE_NAME])
    except JsonError:
        return text_sha256(raw)
