"""The suites under a root, and all cases of a suite, those that can't be read with the reason."""

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
from pytest_packbench.model.errors import CaseError, Problem
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.model.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Shard
    from pytest_packbench.model.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """A case of a suite, whether it can be read or not.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        path: its file, absolute.
        file: the file as people read it.
        line: its line in a file of many, from 1; 0 where the file is the case.
        case_id: its id; where it can't be read, or an earlier line has the id, what stands in for it.
        claimed: the id that it has in its file, whether another has it or not.
        loaded: the case; None where it can't be read.
        problem: why not, in one line; empty otherwise.
    """

    suite: Suite
    pack: Pack
    path: Path
    file: str
    line: int
    case_id: str
    claimed: str
    loaded: LoadedCase | None
    problem: str

    @property
    def where(self) -> str:
        """Where it stands, for people: `FILE`, or `FILE:LINE`."""
        return format_location(self.file, self.line)

    @property
    def folder(self) -> str:
        """The name of the folder that holds the file."""
        return self.path.parent.name


def suite_names(value: str | Iterable[str]) -> list[str]:
    """Split names that came repeated or with commas, each once, in order."""
    parts = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def find_suites(root: Path) -> dict[str, Path]:
    """Give the suites of a root, name to folder, sorted by name; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / CONFIG_NAME).is_file()}


def unknown_suite_message(name: str, known: dict[str, Path], own: Path, bundled: Path) -> str:
    """Say that no suite has a name, and which ones there are.

    Args:
        name: what was asked for.
        known: the suites that can be asked for, name to folder.
        own: the folder of the project's own suites, absolute; where it isn't there, `known` came with the package.
        bundled: the folder of the suites that come with the package.
    """
    close = get_close_matches(name, known, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    listed = ", ".join(known) if known else "none"
    shown_root = os.path.relpath(own)
    wrong = f'no suite is called "{name}"{guess}'
    if not own.is_dir():
        where = f"the folder {shown_root} does not exist; set packbench_root, or start pytest where it lies"
        return f"{wrong}: {where}; with the package: {listed}"
    # a name is no path: `../x` is no suite, whatever lies there
    bare = missing_config_message(own / name) if name == Path(name).name else ""
    here = f"{bare or wrong}; known under {shown_root}: {listed}"
    if not (bundled / name / CONFIG_NAME).is_file():
        return here
    return f"{here}; the one that comes with the package is used only in a folder without {shown_root}"


def missing_config_message(folder: Path) -> str:
    """Say in one line that a folder has no `suite.yaml`, and what to do; empty where there is no such folder."""
    if not folder.is_dir():
        return ""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name.isprintable()]
    near = get_close_matches(CONFIG_NAME, names, n=1, cutoff=0.8)
    advice = f"rename {near[0]} in it" if near else "a suite's rules stand in that file"
    return f"{os.path.relpath(folder)} has no {CONFIG_NAME}; {advice}"


def case_counts(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Count a suite's cases, all of them and those of the shard."""
    present = count_cases(suite.cases_path)
    return present, present if shard is None else count_cases(suite.cases_path, shard)


def describe_case_counts(folder: Path) -> str:
    """Say how many cases a folder of cases holds, and how many in each of its folders."""
    counts: dict[str, int] = {}
    for path in case_paths(folder):
        cases = count_cases_in(path)
        if cases:
            kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - text, as it comes
            counts[kind] = counts.get(kind, 0) + cases
    total = sum(counts.values())
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"{pluralize(total, 'case')}{f' ({listed})' if listed else ''}"


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Read all cases of a suite, in the order of their files; `name_of` names a file for people by its absolute path.

    Cases of one id name each other as their problem: ids name records.
    """
    found = [_read(suite, pack, place, name_of(Path(place.path))) for place in iter_cases(suite.cases_path)]
    of_id: dict[str, list[SuiteCase]] = {}
    for case in found:
        of_id.setdefault(case.claimed, []).append(case)
    return tuple(_alone(case, of_id[case.claimed]) for case in found)


def _read(suite: Suite, pack: Pack, place: CaseLocation, file: str) -> SuiteCase:
    loaded, problem = None, ""
    try:
        loaded = load_case(place, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return SuiteCase(
        suite=suite,
        pack=pack,
        path=Path(place.path),
        file=file,
        line=place.line,
        case_id=place.name,
        claimed=place.name if place.twin is None else place.twin[0],
        loaded=loaded,
        problem=problem,
    )


def _alone(case: SuiteCase, of_its_id: list[SuiteCase]) -> SuiteCase:
    others = [other.where for other in of_its_id if other is not case]
    if not others or case.problem:
        return case
    wrong = f'"{case.claimed}" stands also in {", ".join(others)}'
    return replace(case, problem=str(CaseError(case.where, [Problem("/id", wrong, "give it an id of its own")])))
