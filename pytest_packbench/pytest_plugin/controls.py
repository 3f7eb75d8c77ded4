"""Controls: a wrong answer is replayed and scored in an item of its own, which passes if it ends as its file expects.

In fixture mode only. What a control came to travels on the report of its item to the recorder, as results of cases do.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import CaseIndex, iter_cases, load_case
from pytest_packbench.cases.recordings import case_of_control, escaped_name, find_controls, load_control
from pytest_packbench.engine.controls import end_of_control
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.model.control import ControlResult
from pytest_packbench.model.errors import CaseError, ControlError, Problem, describe_error
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.result import format_timestamp
from pytest_packbench.pytest_plugin.case_run import CaseBroken, CaseFailure, CaseItem, Folder, ItemRun, record_file
from pytest_packbench.pytest_plugin.explain import RERUN, path_argument
from pytest_packbench.reports.terminal import control_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.control import Control
    from pytest_packbench.model.suite import Suite


KIND = "control"
"""The value of `kind` in the mark of a control, and in its properties."""


class ControlDeviation(CaseFailure):
    """A control did not end as written."""


# tools show the whole name
ControlDeviation.__module__ = "builtins"


@dataclass(slots=True, kw_only=True, eq=False)
class ControlRun(ItemRun):
    """A control in an item.

    Attributes:
        folder: the folder of the suite's controls.
        found: its location.
        result: what it came to; None before it was replayed.
    """

    folder: ControlFolder
    found: CaseLocation
    result: ControlResult | None = None

    def execute(self) -> None:
        """Replay the control, once: a plugin may run the item again.

        Raises:
            CaseBroken: it can't be replayed.
        """
        if self.result is None:
            result, redactor = self._replay(), self.folder.contexts.redactor
            line = result.line("")
            if redactor.suspects(json.dumps(line)):
                # its file may quote a secret
                result = ControlResult.from_line(redactor.json(line))
            self.result = result
            self.item.user_properties += (("suite", self.suite.name), ("kind", KIND), ("verdict", result.outcome))
            if result.outcome != "as_written":
                path = escaped_name(path_argument(self.item.config, self.item.path, self.suite))
                self.explanation = control_text(result, f"{RERUN} pytest {path}::{self.item.name}")
        if self.result.outcome == "broken":
            raise CaseBroken(printable(self.result.message))

    def decide(self) -> None:
        """Compare how the control ended with what its file expects.

        Raises:
            ControlDeviation: it ended otherwise.
        """
        if self.result is not None and self.result.outcome != "as_written":
            raise ControlDeviation(printable(self.result.message))

    def new_results(self, when: str, error: BaseException | None) -> tuple[Any, ...]:
        """Return what the control came to, on the report that tells whether it passes."""
        is_decided = self.result is not None and (when == "call" or error is not None)
        return (self.result,) if is_decided else ()

    def _replay(self) -> ControlResult:
        """Replay the control, and compare its end with what it expects. Never raises for what a file or a pack does."""
        source, folder = self.found.label(self.file), self.folder
        result = ControlResult(self.suite.name, self.found.name, self.nodeid, source, "broken")
        try:
            pack = folder.contexts.pack_of(self.suite)
            control = load_control(self.found, file=self.file, names_checks=names_checks(pack))
            result = result._replace(case=control.case, description=control.description, expected=control.expected)
            loaded = folder.case_of(control, source)
            end = end_of_control(folder.context_of(control, source), loaded, control, source=source)
            result = result.ended(control.expected, end)
        except (ControlError, CaseError, TargetError) as error:
            result = result._replace(message=" ".join(folder.contexts.redactor.text(str(error)).split()))
        return result._replace(timestamp=format_timestamp(time.time_ns()))


class ControlFile(pytest.File):
    """A file of one control, or of one per line.

    Attributes:
        found: those of its controls that are in the shard.
    """

    parent: ControlFolder

    def __init__(self, *, found: Sequence[CaseLocation], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.found = found

    @property
    def ihook(self) -> Any:
        """The hooks of the folder: the same conftest.py files apply to both."""
        return self.parent.ihook

    def collect(self) -> Iterator[CaseItem]:
        """Yield an item for each control; one that can't be read is an error when it is set up."""
        suite = self.parent.suite
        file = record_file(suite, self.path, self.nodeid, 0)
        for found in self.found:
            item: CaseItem = CaseItem.from_parent(self, name=printable(found.name))
            item.packbench_run = ControlRun(
                item=item,
                nodeid=item.nodeid,
                suite=suite,
                file=file,
                line=found.line,
                folder=self.parent,
                found=found,
            )
            item.add_marker(pytest.mark.packbench(suite=suite.name, case_type="", difficulty="", tag="", kind=KIND))
            yield item


class ControlFolder(Folder):
    """The folder of a suite's controls.

    Attributes:
        suite: the suite.
        contexts: the suites of the run.
    """

    def __init__(self, *, suite: Suite, contexts: SuiteContexts, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.contexts = contexts

    def context_of(self, control: Control, source: str) -> SuiteContext:
        """Return the context that replays a control.

        Raises:
            ControlError: the pack has no target of its own, or none that can be prepared.
        """
        if control.cassette is None:
            return self.contexts.of_results(self.suite, KIND)
        try:
            return self.contexts.of_pack(self.suite)
        except TargetError as error:
            problem = Problem("/cassette", str(error), "give the result as payload instead")
        except Exception as error:  # noqa: BLE001 - a pack, or a hook of the user, may raise anything
            wrong = f"the pack's own target can't be prepared: {describe_error(error)}"
            problem = Problem("/cassette", wrong, "correct the pack or the hook")
        raise ControlError(source, [problem])

    @cached_property
    def _cases(self) -> CaseIndex:
        return CaseIndex(iter_cases(self.suite.cases_path))

    def case_of(self, control: Control, source: str) -> LoadedCase:
        """Return the case of a control.

        Raises:
            ControlError: there is none, or it can't be read.
        """
        location, pack = case_of_control(control, self._cases, source=source), self.contexts.pack_of(self.suite)
        try:
            return load_case(location, pack.case_model, file=location.path, pack=pack.name)
        except CaseError as error:
            wrong = f'the case "{control.case}" can\'t be read: {error.problems[0]}'
            raise ControlError(source, [Problem("/case", wrong, "correct the case")]) from None

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the controls of the shard, in the order of their files."""
        by_path: dict[str, list[CaseLocation]] = {}
        for found in find_controls(self.path):
            if self.collector.is_in_shard(found.name):
                by_path.setdefault(found.path, []).append(found)
        for text, of_file in by_path.items():
            # the folder itself, where it can't be read
            path = self.path if text == str(self.path) else self.path / os.path.basename(text)  # noqa: PTH119 - a string
            if self.ihook.pytest_ignore_collect(collection_path=path, config=self.config):
                continue
            name, nodeid = (printable(escaped_name(each)) for each in (path.name, self.collector.nodeid_of(text)))
            file: ControlFile = ControlFile.from_parent(self, path=path, name=name, nodeid=nodeid, found=of_file)
            # pytest looks for an argument that names a file among files
            yield from (file,) if self.collector.by_file or len(of_file) > 1 else file.collect()
