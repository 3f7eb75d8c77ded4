"""All cases of a suite at once, those that can't be read with the reason: one bad file hides no other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cases.files import located, read_place, walk_cases
from pytest_packbench.model.errors import CaseError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.cases.files import CasePlace
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
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
        return located(self.file, self.line)

    @property
    def folder(self) -> str:
        """The name of the folder that holds the file."""
        return self.path.parent.name


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Read all cases of a suite, in the order of their files.

    Cases of one id name each other as their problem: ids name records.

    Args:
        suite: the suite.
        pack: its pack.
        name_of: gives the name of a file for people, from its absolute path.
    """
    found = [_read(suite, pack, place, name_of(Path(place.path))) for place in walk_cases(suite.cases_path)]
    of_id: dict[str, list[SuiteCase]] = {}
    for case in found:
        of_id.setdefault(case.claimed, []).append(case)
    return tuple(_alone(case, of_id[case.claimed]) for case in found)


def _read(suite: Suite, pack: Pack, place: CasePlace, file: str) -> SuiteCase:
    loaded, problem = None, ""
    try:
        loaded = read_place(place, pack.case_model, file=file, pack=pack.name)
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
