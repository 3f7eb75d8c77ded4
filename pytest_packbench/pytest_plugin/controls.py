"""Controls: a wrong answer is replayed and scored in an item of its own, which passes if it ends as its file expects.

In fixture mode only. What a control came to travels on the report of its item to the recorder, as results of cases do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.files import load_case
from pytest_packbench.cases.recordings import case_of_control, escaped_name, load_control
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.result_builder import end_of_control
from pytest_packbench.model.control import ControlResult
from pytest_packbench.model.errors import CaseError, ControlError, Problem, describe_error, single_spaced
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.result import timestamp_now
from pytest_packbench.pytest_plugin.case_run import CONTROL_KIND, CaseBroken, CaseFailure, ItemRun, record_file
from pytest_packbench.pytest_plugin.explain import RERUN, path_argument
from pytest_packbench.reports.terminal import control_text, printable

if TYPE_CHECKING:
    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.control import Control
    from pytest_packbench.pytest_plugin.collection import ControlFolder


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
            result, redactor = self._replay(), self.contexts.redactor
            line = result.as_json()
            if redactor.suspects(json.dumps(line)):
                # its file may quote a secret
                result = ControlResult.from_line(redactor.json(line))
            self.result = result
            self.item.user_properties += (
                ("suite", self.suite.name),
                ("kind", CONTROL_KIND),
                ("verdict", result.outcome),
            )
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
        source = record_file(self.suite, self.item.path, self.file, self.line)
        result = ControlResult(self.suite.name, self.found.name, self.nodeid, source, "broken")
        try:
            control = load_control(self.found, source=source, names_checks=names_checks(self.pack))
            result = result._replace(case=control.case, description=control.description, expected=control.expected)
            loaded = self._case_of(control, source)
            end = end_of_control(self._context_of(control, source), loaded, control, source=source)
            result = result.ended(control.expected, end)
        except ControlError as error:
            result = result._replace(message=single_spaced(self.contexts.redactor.text(str(error))))
        return result._replace(timestamp=timestamp_now())

    def _context_of(self, control: Control, source: str) -> SuiteContext:
        """Return the context that replays a control.

        Raises:
            ControlError: the pack has no target of its own, or none that can be prepared.
        """
        if control.cassette is None:
            return self.contexts.of_results(self.suite, CONTROL_KIND)
        try:
            return self.contexts.of_pack(self.suite)
        except TargetError as error:
            problem = Problem("/cassette", str(error), "give the result as payload instead")
        except Exception as error:  # noqa: BLE001 - a pack, or a hook of the user, may raise anything
            wrong = f"the pack's own target can't be prepared: {describe_error(error)}"
            problem = Problem("/cassette", wrong, "correct the pack or the hook")
        raise ControlError(source, [problem])

    def _case_of(self, control: Control, source: str) -> LoadedCase:
        """Return the case of a control.

        Raises:
            ControlError: there is none, or it can't be read.
        """
        location = case_of_control(control, self.folder.cases, source=source)
        try:
            return load_case(location, self.pack.case_model, file=location.path, pack=self.pack.name)
        except CaseError as error:
            wrong = f'the case "{control.case}" can\'t be read: {error.problems[0]}'
            raise ControlError(source, [Problem("/case", wrong, "correct the case")]) from None
