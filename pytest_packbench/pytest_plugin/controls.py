"""Controls: a wrong answer is replayed and scored in an item of its own, which passes if it ends as its file expects.

In fixture mode only. What a control came to travels on the report of its item to the recorder, as JSON.
"""

from __future__ import annotations

import json
import os
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import SUFFIXES, CaseIndex, iter_cases, load_case
from pytest_packbench.cases.recordings import case_of_control, escaped_name, find_controls, load_control
from pytest_packbench.engine.controls import end_of_control
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.model.control import ControlResult, compare, deviation_text
from pytest_packbench.model.errors import CaseError, ControlError, Problem, describe_error
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.result import format_timestamp
from pytest_packbench.model.suite import CONTROLS
from pytest_packbench.plugin import CONTEXTS, CONTROL_ATTRIBUTE
from pytest_packbench.pytest_plugin.case_run import CaseBroken, FixturelessItem, without_own_traceback
from pytest_packbench.pytest_plugin.explain import RERUN, explanation_at
from pytest_packbench.reports.terminal import control_text, printable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.cases.recordings import FoundControl
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.control import Control, Row
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.collection import Collector


KIND = "control"
"""The value of `kind` in the mark of a control, and in its properties."""


class Controls:
    """Replays the controls of the suites of a run.

    Args:
        contexts: the suites.
    """

    def __init__(self, contexts: SuiteContexts) -> None:
        self._contexts = contexts
        self._cases: dict[str, CaseIndex] = {}

    def run(self, suite: Suite, found: FoundControl, *, file: str, nodeid: str) -> tuple[ControlResult, Sequence[Row]]:
        """Replay one control, and compare its end with what it expects. Never raises for what a file or a pack does.

        Args:
            suite: its suite.
            found: its location.
            file: the name of its file, for messages.
            nodeid: its node id.

        Returns:
            The result, and the rows of its table.
        """
        source = found.location.label(file)
        result = ControlResult(suite.name, found.location.name, nodeid, source, "broken")
        try:
            control = load_control(found, file=file, names_checks=names_checks(self._contexts.pack_of(suite)))
            written = control.expected.model_dump(mode="json", exclude_unset=True)
            result = result._replace(case=control.case, description=control.description, expected=written)
            loaded = self._case_of(suite, control, source)
            end = end_of_control(self._context_of(suite, control, source), loaded, control, source=source)
        except (ControlError, CaseError, TargetError) as error:
            return result._replace(message=self._redacted(error), timestamp=format_timestamp(time.time_ns())), ()
        rows = compare(control.expected, end)
        deviation = deviation_text(rows, end)
        return result._replace(
            outcome="deviates" if deviation else "as_written",
            actual=end.as_json(),
            message=deviation,
            timestamp=format_timestamp(time.time_ns()),
        ), rows

    def _redacted(self, error: Exception) -> str:
        return " ".join(self._contexts.redactor.text(str(error)).split())

    def _context_of(self, suite: Suite, control: Control, source: str) -> SuiteContext:
        if control.cassette is None:
            return self._contexts.of_results(suite, "control")
        try:
            return self._contexts.of_pack(suite)
        except TargetError as error:
            problem = Problem("/cassette", str(error), "give the result as payload instead")
            raise ControlError(source, [problem]) from None
        except Exception as error:  # noqa: BLE001 - a pack, or a hook of the user, may raise anything
            wrong = f"the pack's own target can't be prepared: {describe_error(error)}"
            raise ControlError(source, [Problem("/cassette", wrong, "correct the pack or the hook")]) from None

    def _case_of(self, suite: Suite, control: Control, source: str) -> LoadedCase:
        index = self._cases.get(suite.name)
        if index is None:
            index = self._cases[suite.name] = CaseIndex(iter_cases(suite.cases_path))
        location = case_of_control(control, index, source=source)
        pack = self._contexts.pack_of(suite)
        try:
            return load_case(location, pack.case_model, file=location.path, pack=pack.name)
        except CaseError as error:
            problem = error.problems[0]
            wrong = f'the case "{control.case}" can\'t be read: {problem}'
            raise ControlError(source, [Problem("/case", wrong, "correct the case")]) from None


RUNNER: pytest.StashKey[Controls] = pytest.StashKey()


class ControlDeviation(AssertionError):  # noqa: N818 - pytest shows the name, and a deviation is a failure
    """A control did not end as written."""


# tools show the whole name
ControlDeviation.__module__ = "builtins"


class ControlItem(FixturelessItem):
    """One control as a test.

    Attributes:
        packbench_control: its suite.
        found: its location.
        result: what it came to; None before it was replayed.
        replay_s: how long that took, seconds.
    """

    def __init__(self, *, suite: Suite, found: FoundControl, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.packbench_control = suite
        self.found = found
        self.result: ControlResult | None = None
        self.replay_s = 0.0
        self._rows: Sequence[Row] = ()
        self.add_marker(pytest.mark.packbench(suite=suite.name, case_type="", difficulty="", tag="", kind=KIND))

    @property
    def ihook(self) -> Any:
        """The hooks of the file: pytest would look them up for each path again."""
        return self.parent.ihook if self.parent is not None else super().ihook

    def setup(self) -> None:
        """Replay the control; pytest reports one that can't be replayed as an error."""
        # a plugin may run the item again
        if self.result is None:
            runner = self.config.stash.get(RUNNER, None)
            if runner is None:
                runner = self.config.stash[RUNNER] = Controls(self.config.stash[CONTEXTS])
            self.result, self._rows = runner.run(
                self.packbench_control, self.found, file=self._file, nodeid=self.nodeid
            )
            values = (("suite", self.packbench_control.name), ("kind", KIND), ("verdict", self.result.outcome))
            self.user_properties.extend(values)
        if self.result.outcome == "broken":
            raise CaseBroken(printable(self.result.message))

    def runtest(self) -> None:
        """Compare how the control ended with what its file expects.

        Raises:
            ControlDeviation: it ended otherwise.
        """
        if self.result is not None and self.result.outcome != "as_written":
            raise ControlDeviation(printable(self.result.message))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the explanation of a control that did not end as written; pytest shows any other exception."""
        # without a traceback, which would show only this package, and takes long to write
        own = isinstance(excinfo.value, CaseBroken | ControlDeviation)
        return self.explanation() if own else super().repr_failure(excinfo, style)

    def _traceback_filter(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        # of pytest, which has no public way to leave out a traceback in the setup
        return without_own_traceback(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the control's line from 0, and its id, as editors need them."""
        return self.path, max(self.found.location.line - 1, 0), self.name

    @cached_property
    def _file(self) -> str:
        suite = self.packbench_control
        if suite.bundled:
            # as in records, without this machine's folders
            return escaped_name(f"bundled:{suite.record_name}/{self.path.relative_to(suite.path).as_posix()}")
        return self.parent.nodeid if self.parent is not None else str(self.path)

    def explanation(self) -> str:
        """Return what pytest shows of a control that does not pass: the table, and how to replay it again."""
        folder = self.config.invocation_params.dir
        path = os.path.relpath(self.path, folder)
        if path.startswith(os.pardir) and self.packbench_control.bundled:
            path = str(self.path)
        command = f"{RERUN} pytest {escaped_name(path)}::{self.name}"
        return control_text(self.result, self._rows, command) if self.result is not None else ""


class ControlFile(pytest.File):
    """A file of one control, or of one per line.

    Attributes:
        suite: the suite of the controls.
        found: those of its controls that are in the shard.
    """

    def __init__(self, *, suite: Suite, found: Sequence[FoundControl], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.found = found

    @property
    def ihook(self) -> Any:
        """The hooks of the folder: the same conftest.py files apply to both."""
        return self.parent.ihook if self.parent is not None else super().ihook

    def collect(self) -> Iterator[ControlItem]:
        """Yield an item for each control; one that can't be read is an error when it is set up."""
        for found in self.found:
            yield ControlItem.from_parent(self, name=printable(found.location.name), suite=self.suite, found=found)


class FixturesFolder(pytest.Directory):
    """The folder of a suite's recordings, of which only the controls are collected: recordings are no tests.

    Attributes:
        collector: has the suites.
        suite: the suite.
    """

    def __init__(self, *, collector: Collector, suite: Suite, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.collector = collector
        self.suite = suite

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the folder of controls, and what other plugins find in the folder."""
        with os.scandir(self.path) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            is_folder = entry.is_dir()
            if entry.name.startswith(".") or (not is_folder and entry.name.endswith(SUFFIXES)):
                continue
            if entry.name == CONTROLS and not is_folder:
                # its only item says so
                yield ControlFolder.from_parent(
                    self, path=self.path / CONTROLS, suite=self.suite, collector=self.collector
                )
                continue
            path = self.path / entry.name
            if self.ihook.pytest_ignore_collect(collection_path=path, config=self.config):
                continue
            if is_folder:
                folder = self.ihook.pytest_collect_directory(path=path, parent=self)
                yield from [folder] if folder is not None else []
            elif entry.is_file():
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)


class ControlFolder(pytest.Directory):
    """The folder of a suite's controls.

    Attributes:
        collector: has the suites, and knows whether an argument names a file.
        suite: the suite.
    """

    def __init__(self, *, collector: Collector, suite: Suite, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.collector = collector
        self.suite = suite

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the controls of the shard, in the order of their files."""
        by_path: dict[str, list[FoundControl]] = {}
        for found in find_controls(self.path):
            if self.collector.in_shard(found.location.name):
                by_path.setdefault(found.location.path, []).append(found)
        for text, of_file in by_path.items():
            # the folder itself, where it can't be read
            path = self.path if text == str(self.path) else self.path / os.path.basename(text)  # noqa: PTH119 - a string
            if self.ihook.pytest_ignore_collect(collection_path=path, config=self.config):
                continue
            nodeid = printable(escaped_name(self.collector.nodeid_of(text)))
            file: ControlFile = ControlFile.from_parent(
                self, path=path, name=printable(escaped_name(path.name)), nodeid=nodeid, suite=self.suite, found=of_file
            )
            # pytest looks for an argument that names a file among files
            yield from (file,) if self.collector.by_file or len(of_file) > 1 else file.collect()


class ControlReporter:
    """Completes the reports of controls, in the process that runs them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what a control came to, and its explanation, to the report of a phase."""
        report = yield
        if not isinstance(item, ControlItem) or item.result is None or call.when == "teardown":
            return report
        if call.when == "call" or report.failed:
            setattr(report, CONTROL_ATTRIBUTE, json.dumps(item.result))
        if call.when == "setup":
            # the replay, as the duration of the test: editors show that of its call only
            item.replay_s, report.duration = report.duration, 0.0 if report.passed else report.duration
        else:
            report.duration += item.replay_s
        if call.excinfo is not None and isinstance(call.excinfo.value, CaseBroken | ControlDeviation):
            report.longrepr = explanation_at(report.location, item.explanation())  # type: ignore[assignment]  # pytest's own is private
        return report
