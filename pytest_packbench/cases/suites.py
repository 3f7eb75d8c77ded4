"""The suites under a root, and the cases of a suite, including those that cannot be read."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cases.files import (
    case_paths,
    count_cases,
    count_cases_in,
    format_location,
    iter_cases,
    load_case,
)
from pytest_packbench.model.errors import CaseError, duplicate_id
from pytest_packbench.model.suite import CONFIG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Shard
    from pytest_packbench.model.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """A case of a suite, which may be unreadable.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        path: its file, absolute.
        file: the name of the file for users.
        line: its line in a JSON Lines file, from 1; 0 for a JSON file.
        case_id: its name, `CaseLocation.name`.
        written_id: the id in its file, which another case may have as well.
        loaded: the case; None if it cannot be read.
        problem: why it cannot be used, in one line; empty otherwise.
    """

    suite: Suite
    pack: Pack
    path: Path
    file: str
    line: int
    case_id: str
    written_id: str
    loaded: LoadedCase | None
    problem: str

    @property
    def location(self) -> str:
        """Its location for users: `FILE`, or `FILE:LINE`."""
        return format_location(self.file, self.line)

    @property
    def folder(self) -> str:
        """The name of the folder that contains the file."""
        return self.path.parent.name


def suite_names(value: str | Iterable[str]) -> list[str]:
    """Return the names in one or several comma-separated lists, each once, in order."""
    parts = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def find_suites(root: Path) -> dict[str, Path]:
    """Return the suites under a root, name to folder, sorted; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / CONFIG_NAME).is_file()}


def unknown_suite_message(name: str, known: dict[str, Path], root: Path, bundled: Path) -> str:
    """Return the message for an unknown suite, with the suites that exist.

    Args:
        name: the requested name.
        known: the suites that can be requested, name to folder.
        root: the folder of the project's suites, absolute; if it does not exist, `known` are the bundled suites.
        bundled: the folder of the suites in the installed package.
    """
    close = get_close_matches(name, known, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    listed = ", ".join(known) if known else "none"
    shown_root = os.path.relpath(root)
    message = f'unknown suite "{name}"{guess}'
    if not root.is_dir():
        advice = f"the folder {shown_root} does not exist; set packbench_root, or start pytest in its parent folder"
        return f"{message}: {advice}; bundled suites: {listed}"
    # a name is not a path: `../x` is not a suite, even if the folder exists
    incomplete = missing_config_message(root / name) if name == Path(name).name else ""
    message = f"{incomplete or message}; suites under {shown_root}: {listed}"
    if not (bundled / name / CONFIG_NAME).is_file():
        return message
    return f"{message}; the bundled suite is used only where {shown_root} does not exist"


def missing_config_message(folder: Path) -> str:
    """Return the message for a folder without a `suite.yaml`; empty if the folder does not exist."""
    if not folder.is_dir():
        return ""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name.isprintable()]
    near = get_close_matches(CONFIG_NAME, names, n=1, cutoff=0.8)
    advice = f"rename {near[0]} in it" if near else "create it with the rules of the suite"
    return f"{os.path.relpath(folder)} has no {CONFIG_NAME}; {advice}"


def case_counts(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Return the number of cases of a suite, and of those in the shard."""
    present = count_cases(suite.cases_path)
    return present, present if shard is None else count_cases(suite.cases_path, shard)


def describe_case_counts(folder: Path) -> str:
    """Describe how many cases a folder contains, and how many each of its subfolders: `3 cases (a 2, b 1)`."""
    counts: dict[str, int] = {}
    for path in case_paths(folder):
        cases = count_cases_in(path)
        if cases:
            kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - a string, as case_paths yields
            counts[kind] = counts.get(kind, 0) + cases
    total = sum(counts.values())
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"{total} case{'' if total == 1 else 's'}{f' ({listed})' if listed else ''}"


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Load all cases of a suite, in the order of their files.

    Cases with the same id get a problem that names the others, because ids identify records.

    Args:
        suite: the suite.
        pack: its pack.
        name_of: returns the name of a file for users.
    """
    cases = [_load(suite, pack, location, name_of(Path(location.path))) for location in iter_cases(suite.cases_path)]
    by_id: dict[str, list[SuiteCase]] = {}
    for case in cases:
        by_id.setdefault(case.written_id, []).append(case)
    return tuple(_with_duplicates(case, by_id[case.written_id]) for case in cases)


def _load(suite: Suite, pack: Pack, location: CaseLocation, file: str) -> SuiteCase:
    loaded, problem = None, ""
    try:
        loaded = load_case(location, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return SuiteCase(
        suite=suite,
        pack=pack,
        path=Path(location.path),
        file=file,
        line=location.line,
        case_id=location.name,
        written_id=location.name if location.duplicate_of is None else location.duplicate_of[0],
        loaded=loaded,
        problem=problem,
    )


def _with_duplicates(case: SuiteCase, same_id: list[SuiteCase]) -> SuiteCase:
    others = [other.location for other in same_id if other is not case]
    if not others or case.problem:
        return case
    return replace(case, problem=str(CaseError(case.location, [duplicate_id(case.written_id, ", ".join(others))])))
