"""The mark `packbench_cases`: what it asks for, and the session that it begins."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.suites import suites_under
from pytest_packbench.plugin import ASKED, MARK
from pytest_packbench.pytest_plugin.case_run import unpack_report
from pytest_packbench.pytest_plugin.collection import marks_of
from pytest_packbench.pytest_plugin.jsonreport import switch_on_late
from pytest_packbench.pytest_plugin.selection import Asked, suites_root, unknown
from pytest_packbench.pytest_plugin.session import register
from pytest_packbench.pytest_plugin.stash import BENCHES
from pytest_packbench.pytest_plugin.xdist import late_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.cases.suites import SuiteCase
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.recorder import Recorder

_REFUSED = pytest.StashKey[str]()
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

    def fits(self, case: SuiteCase) -> bool:
        """Whether a case is asked for; one that can't be read is judged by its folder alone, so that it is not lost."""
        if case.loaded is None:
            return case.folder in self.wanted.get("case_type", (case.folder,))
        model = case.loaded.case
        has = {"case_type": (model.case_type,), "difficulty": (model.difficulty,), "tag": model.notes.tags}
        return all(any(one in values for one in has[name]) for name, values in self.wanted.items())


def parameters(cases: Sequence[SuiteCase], *, several: bool) -> list[object]:
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


def _called(mark: pytest.Mark) -> str:
    said = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
    return f"{MARK}({', '.join(said)})"


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
        raise MarkError(unknown(name, known, config, config.option))
    if _REFUSED in config.stash:
        raise pytest.UsageError(config.stash[_REFUSED])
    if BENCHES not in config.stash:
        _begin(config)
    suite = config.stash[BENCHES].join(name, known[name], bundled=asked.bundled)
    recorder = _recorder_of(config)
    if recorder is not None:
        recorder.add(suite)
    return suite


def _begin(config: pytest.Config) -> None:
    try:
        register(config, late=True)
    except pytest.UsageError as error:
        # what is half begun is not begun again: the next mark is told the same
        config.stash[_REFUSED] = str(error)
        raise
    switch_on_late(config)


def _recorder_of(config: pytest.Config) -> Recorder | None:
    """Give the session's recorder; None in a worker of xdist."""
    recorder: Recorder | None = config.pluginmanager.getplugin("packbench-recorder")
    return recorder


def learn(config: pytest.Config, told: str, reports: Iterable[pytest.TestReport]) -> None:
    """Learn on xdist's controller what only workers have collected.

    Args:
        config: the controller's.
        told: what a worker told of its marked tests.
        reports: those that came before anybody listened, to be looked at now.
    """
    unheard = BENCHES not in config.stash
    try:
        cases = [(join(config, one["suite"]), one) for one in json.loads(told)]
    except (MarkError, pytest.UsageError) as error:
        # a worker could use the suite, so what differs is what this process has loaded
        hint = "hooks that name packs have to stand in the conftest.py of rootdir, or in a plugin"
        pytest.exit(f"packbench: xdist's controller can't use a suite that its workers use: {error}; {hint}", 4)
    recorder = _recorder_of(config)
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
            unpack_report(report)
            for plugin in (recorder, getattr(config, "_json_report", None)):
                if plugin is not None:
                    plugin.pytest_runtest_logreport(report=report)
        else:
            recorder.pytest_runtest_logreport(report)
