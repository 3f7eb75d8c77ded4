"""Controls: a wrong answer is replayed and scored, and its end is compared with what its file expects."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_packbench.cases.files import CaseIndex, iter_cases, load_case
from pytest_packbench.cases.recordings import case_of_control, load_control
from pytest_packbench.engine.attempt import replay, score_payload
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.model.control import ControlEnd, ControlResult, compare, deviation_text
from pytest_packbench.model.errors import CaseError, ControlError, Problem, describe_error
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.result import format_timestamp
from pytest_packbench.model.run import CONTROL_OWNER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.cases.recordings import FoundControl
    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.control import Control, Row
    from pytest_packbench.model.suite import Suite


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
            end = self._end_of(suite, control, source)
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

    def _end_of(self, suite: Suite, control: Control, source: str) -> ControlEnd:
        loaded = self._case_of(suite, control, source)
        pack = self._contexts.pack_of(suite)
        if control.cassette is None:
            context = self._contexts.of_results(suite, "control")
            return _end(context, score_payload(context, loaded, control.payload))
        try:
            context = self._contexts.of_pack(suite)
        except TargetError as error:
            problem = Problem("/cassette", str(error), "give the result as payload instead")
            raise ControlError(source, [problem]) from None
        cassette = control.cassette.recording(loaded.case.id, loaded.input_sha256, pack.name)
        return _end(context, replay(context, loaded, cassette, source=source, owner=CONTROL_OWNER + control.id))

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


def _end(context: SuiteContext, attempt: Attempt) -> ControlEnd:
    redact = context.redactor.text
    score, failure = attempt.score, attempt.failure
    if failure is not None or score is None:
        kind, message = ("error", "no score") if failure is None else (failure.kind, failure.message)
        return ControlEnd("error", kind=kind, message=message)
    try:
        decided_by = str(context.pack.decided_by(attempt.payload))
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be third-party code
        message = redact(f"the pack raised in decided_by: {describe_error(error)}")
        return ControlEnd("error", kind="pack_error", message=" ".join(message.split()))
    terms = ({**term.as_json(), "detail": redact(term.detail)} for term in score.terms)
    has_kind = score.verdict not in {"passed", "failed"}
    return ControlEnd(
        score.verdict,
        score=None if score.score is None else float(score.score),
        terms=tuple(terms),
        kind=score.kind or score.verdict if has_kind else "",
        decided_by=decided_by,
        message=redact(score.message),
    )
