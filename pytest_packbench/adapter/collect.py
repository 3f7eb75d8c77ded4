"""Collection: one case file is a `pytest.File` with one item, `<path>::<case id>`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import parse_case
from pytest_packbench.cases.problem import CaseError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.records.entry import Entry

SUFFIX = ".json"


class CaseFailure(Exception):  # noqa: N818 - pytest shows the name: a case failed, nothing broke
    """A case was scored and its score is under its threshold."""


_Failed: Any = pytest.fail.Exception


class CaseBroken(_Failed):  # type: ignore[misc]  # pytest gives the class as an attribute of a function only
    """A case could not be scored.

    Without a traceback: it would be ours, and pytest would parse every file in it for each case.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class CaseItem(pytest.Item):
    """One case as a test.

    Attributes:
        suite: the case's suite.
        loaded: the case, None where its file can't be read.
        problem: why it can't be read, in one line; empty otherwise.
        entries: what its attempts left, one for each trial, from setup on.
        entry: the case's verdict over them: the one entry where there is one trial.
        explanation: what to show for it when it doesn't pass, from setup on.
        own_test: the user's own test that runs the case; empty, for the item itself does.
    """

    own_test = ""

    def __init__(self, *, suite: Suite, loaded: LoadedCase | None, problem: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.loaded = loaded
        self.problem = problem
        self.entries: tuple[Entry, ...] = ()
        self.entry: Entry | None = None
        self.explanation = ""
        for mark in marks_of(suite, loaded):
            self.add_marker(mark)

    @property
    def file_id(self) -> str:
        """The case file as node ids name it."""
        return self.parent.nodeid if self.parent is not None else str(self.path)

    @property
    def case_nodeid(self) -> str:
        """The node id without the group that xdist may append to it."""
        return f"{self.file_id}::{self.name}"

    def setup(self) -> None:
        """Run and score the case: a problem here is an error in pytest's words."""
        from pytest_packbench.adapter.execute import execute

        execute(self)

    def runtest(self) -> None:
        """Compare score and threshold: a problem here is a failure in pytest's words."""
        from pytest_packbench.adapter.execute import decide

        decide(self)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Explain a case that failed; anything else is pytest's to show."""
        if isinstance(excinfo.value, CaseFailure):
            return self.explanation
        if isinstance(excinfo.value, pytest.xfail.Exception):
            # its traceback is all ours, and pytest would parse every file in it for each case
            return self.explanation or str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Give the file, its first line, and the plain id, as editors need them."""
        return self.path, 0, self.name


class CaseFile(pytest.File):
    """A case file.

    Attributes:
        suite: the suite that it belongs to.
        benches: the session's suites.
    """

    def __init__(self, *, suite: Suite, benches: Benches, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.benches = benches

    def collect(self) -> Iterator[CaseItem]:
        """Give the case, or an item whose setup tells why it can't be read: one bad file hides no other."""
        pack = self.benches.pack_of(self.suite)
        loaded, problem = None, ""
        try:
            loaded = parse_case(
                self.path.read_bytes(), pack.case_model, source=self.nodeid, stem=self.path.stem, pack=pack.name
            )
        except CaseError as error:
            problem = str(error)
        except OSError as error:
            problem = str(CaseError(self.nodeid, [Problem("", f"can't be read: {error}", "expected a JSON file")]))
        yield CaseItem.from_parent(self, name=self.path.stem, suite=self.suite, loaded=loaded, problem=problem)


class Collector:
    """The hooks of collection, registered in a session that was asked for suites."""

    def __init__(self, benches: Benches) -> None:
        self._benches = benches
        self._suites = [(str(suite.cases_path) + os.sep, suite) for suite in benches.suites.values()]
        self.collected: dict[str, int] = dict.fromkeys(benches.suites, 0)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> CaseFile | None:
        """Take the case files of the suites that were asked for."""
        if file_path.suffix != SUFFIX:
            return None
        text = str(file_path)
        for folder, suite in self._suites:
            if text.startswith(folder):
                return self._file(file_path, parent, suite)
        return None

    def _file(self, path: Path, parent: pytest.Collector, suite: Suite) -> CaseFile:
        extra: dict[str, Any] = {}
        if not path.is_relative_to(parent.config.rootpath):
            # pytest would name it from the argument, and the id could not be passed back
            extra["nodeid"] = str(path)
        return CaseFile.from_parent(parent, path=path, suite=suite, benches=self._benches, **extra)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count the cases found, before any is deselected."""
        if isinstance(item, CaseItem):
            self.collected[item.suite.name] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn cases of one id in a suite into errors that name each other: ids name cassettes and records."""
        first: dict[tuple[str, str], CaseItem] = {}
        for item in items:
            if isinstance(item, CaseItem):
                other = first.setdefault((item.suite.name, item.name), item)
                if other is not item and other.path != item.path:
                    for one, twin in ((item, other), (other, item)):
                        wrong = f'"{one.name}" stands also in {twin.file_id}'
                        problem = Problem("/id", wrong, "give it an id of its own")
                        one.problem = one.problem or str(CaseError(one.file_id, [problem]))


def marks_of(suite: Suite, loaded: LoadedCase | None) -> Iterator[pytest.MarkDecorator]:
    """Give the marks that `-m` selects a case by."""
    # one mark a tag, each with all fields: a list in a mark could not be selected by one of its members
    case = loaded.case if loaded is not None else None
    for tag in (case.notes.tags if case is not None else ()) or ("",):
        yield pytest.mark.packbench(
            suite=suite.name,
            case_type=case.case_type if case is not None else "",
            difficulty=case.difficulty if case is not None else "",
            tag=tag,
        )
