"""The mark `packbench_cases`: what it asks for, and the cases that it brings."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.files import located, read_place, walk_cases
from pytest_packbench.engine.contexts import shown_path
from pytest_packbench.model.errors import CaseError, Problem
from pytest_packbench.plugin import ASKED, MARK
from pytest_packbench.pytest_plugin.collection import marks_of
from pytest_packbench.pytest_plugin.jsonreport import switch_on_late
from pytest_packbench.pytest_plugin.selection import Asked, own_root, suites_root, suites_under, unknown
from pytest_packbench.pytest_plugin.session import register
from pytest_packbench.pytest_plugin.stash import BENCHES
from pytest_packbench.pytest_plugin.xdist import late_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.cases.files import CasePlace
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.recorder import Recorder


_FILTERS = ("case_type", "difficulty", "tag")


class MarkError(ValueError):
    """A mark can't be used; one line says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What one mark asks for.

    Attributes:
        suites: names of suites, in the mark's order.
        wanted: allowed values by `case_type`, `difficulty` and `tag`; a case has to fit all that are named.
    """

    suites: tuple[str, ...]
    wanted: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, mark: pytest.Mark) -> Asking:
        """Read a mark.

        Raises:
            MarkError: it names no suite, or says something that no mark can.
        """
        if not mark.args or not all(isinstance(name, str) and name for name in mark.args):
            raise MarkError(f"got {_called(mark)}; expected names of suites, each a text")
        wanted = {}
        for name, value in mark.kwargs.items():
            values = (value,) if isinstance(value, str) else value
            if name not in _FILTERS:
                raise MarkError(f'got {_called(mark)}; "{name}" is no filter: expected {", ".join(_FILTERS)}')
            if not isinstance(values, list | tuple) or not values or not all(isinstance(one, str) for one in values):
                raise MarkError(f"got {_called(mark)}; expected a text for {name}, or a list of texts")
            wanted[name] = tuple(values)
        return cls(suites=tuple(dict.fromkeys(mark.args)), wanted=wanted)

    def fits(self, case: FiledCase) -> bool:
        """Whether a case is asked for; one that can't be read is judged by its folder alone, so that it is not lost."""
        if case.loaded is None:
            return case.folder in self.wanted.get("case_type", (case.folder,))
        model = case.loaded.case
        has = {"case_type": (model.case_type,), "difficulty": (model.difficulty,), "tag": model.notes.tags}
        return all(any(one in values for one in has[name]) for name, values in self.wanted.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledCase:
    """A case of a suite as a mark finds it.

    Attributes:
        suite: its suite.
        path: its file, absolute.
        file: the file as node ids name it.
        line: its line in a file of many, from 1; 0 where the file is the case.
        case_id: its id; where it can't be read, or an earlier line has the id, what stands in for it.
        claimed: the id that it has in its file, whether another has it or not.
        loaded: the case; None where it can't be read.
        problem: why not, in one line; empty otherwise.
    """

    suite: Suite
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


def suite_cases(config: pytest.Config, suite: Suite, pack: Pack) -> tuple[FiledCase, ...]:
    """Read all cases of a suite, in the order of their files; a file that can't be read hides no other.

    Cases of one id name each other as their problem: ids name records.
    """
    found = [_read(config, suite, pack, place) for place in walk_cases(suite.cases_path)]
    places: dict[str, list[FiledCase]] = {}
    for case in found:
        places.setdefault(case.claimed, []).append(case)
    return tuple(_alone(case, places[case.claimed]) for case in found)


def parameters(cases: Sequence[FiledCase], *, several: bool) -> list[object]:
    """Make pytest's parameters of cases: their ids, and the marks that `-m` selects by.

    A case's id is the parameter's; the suite comes before it where there are several, its folder where a suite has
    the id twice.
    """
    times = Counter((case.suite.name, case.case_id) for case in cases)
    made: list[object] = []
    for case in cases:
        twice = times[case.suite.name, case.case_id] > 1
        parts = (case.suite.name if several else "", case.folder if twice else "", case.case_id)
        marks = list(marks_of(case.suite, case.loaded))
        made.append(pytest.param(case, id="-".join(part for part in parts if part), marks=marks))
    return made


def _read(config: pytest.Config, suite: Suite, pack: Pack, place: CasePlace) -> FiledCase:
    path = Path(place.path)
    file = shown_path(path, config.rootpath)
    loaded, problem = None, ""
    try:
        loaded = read_place(place, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return FiledCase(
        suite=suite,
        path=path,
        file=file,
        line=place.line,
        case_id=place.name,
        claimed=place.name if place.twin is None else place.twin[0],
        loaded=loaded,
        problem=problem,
    )


def _alone(case: FiledCase, of_its_id: list[FiledCase]) -> FiledCase:
    others = [other.where for other in of_its_id if other is not case]
    if not others or case.problem:
        return case
    wrong = f'"{case.claimed}" stands also in {", ".join(others)}'
    return replace(case, problem=str(CaseError(case.where, [Problem("/id", wrong, "give it an id of its own")])))


def _called(mark: pytest.Mark) -> str:
    said = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
    return f"{MARK}({', '.join(said)})"


REFUSED = pytest.StashKey[str]()


def join(config: pytest.Config, name: str) -> Suite:
    """Give a suite that a mark names; register the session's plugins where that was not done yet.

    Raises:
        MarkError: no suite has such a name.
        pytest.UsageError: the suite or a setting can't be used.
    """
    if BENCHES in config.stash and name in config.stash[BENCHES].suites:
        return config.stash[BENCHES].suites[name]
    if ASKED not in config.stash:
        root, bundled = suites_root(config, config.option)
        config.stash[ASKED] = Asked(root=root, bundled=bundled, named=(), folders={})
    asked = config.stash[ASKED]
    known = suites_under(asked.root)
    if name not in known:
        raise MarkError(unknown(name, known, own_root(config, config.option)))
    if REFUSED in config.stash:
        raise pytest.UsageError(config.stash[REFUSED])
    if BENCHES not in config.stash:
        _begin(config)
    suite = config.stash[BENCHES].join(name, known[name], bundled=asked.bundled)
    recorder = recorder_of(config)
    if recorder is not None:
        recorder.add(suite)
    return suite


def _begin(config: pytest.Config) -> None:
    try:
        register(config, late=True)
    except pytest.UsageError as error:
        # what is half begun is not begun again: the next mark is told the same
        config.stash[REFUSED] = str(error)
        raise
    switch_on_late(config)


def recorder_of(config: pytest.Config) -> Recorder | None:
    """Give the session's recorder; None in a worker of xdist."""
    recorder: Recorder | None = config.pluginmanager.getplugin("packbench-recorder")
    return recorder


def learn(config: pytest.Config, told: str, reports: Iterable[pytest.TestReport]) -> None:
    """Learn on xdist's controller what only workers have collected.

    Args:
        config: the controller's.
        told: what a worker told of its marked tests; see `marked.told_of`.
        reports: those that came before anybody listened, to be looked at now.
    """
    unheard = BENCHES not in config.stash
    try:
        cases = [(join(config, one["suite"]), one) for one in json.loads(told)]
    except (MarkError, pytest.UsageError) as error:
        # a worker could use the suite, so what differs is what this process has loaded
        hint = "hooks that name packs have to stand in the conftest.py of rootdir, or in a plugin"
        pytest.exit(f"packbench: xdist's controller can't use a suite that its workers use: {error}; {hint}", 4)
    recorder = recorder_of(config)
    if recorder is None:
        raise RuntimeError("a controller keeps a recorder")
    for suite, one in cases:
        pack = recorder.benches.pack_of(suite)
        path = config.rootpath / one["file"]
        named = {"file": one["file"], "name": one["case_id"], "nodeid": one["nodeid"]}
        place = partial(late_place, suite, pack, path, **named)
        recorder.select(suite.name, one["nodeid"], place, one["target"])
    for report in reports:
        if unheard:
            for plugin in (recorder, getattr(config, "_json_report", None)):
                if plugin is not None:
                    plugin.pytest_runtest_logreport(report=report)
        else:
            recorder.pytest_runtest_logreport(report)
