"""How a control ends: its wrong answer is scored, or replayed first. Written controls and those of audits end alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_packbench.engine.attempt import replay, score_payload
from pytest_packbench.model.control import ControlEnd
from pytest_packbench.model.errors import describe_error, single_spaced
from pytest_packbench.model.run import CONTROL_OWNER

if TYPE_CHECKING:
    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.control import Control


def end_of_control(context: SuiteContext, loaded: LoadedCase, control: Control, *, source: str) -> ControlEnd:
    """Return how a control ends. Never raises for what a pack or a target does.

    Args:
        context: of its suite; with the pack's own target for a control with a cassette.
        loaded: its case.
        control: the control.
        source: its file, for messages.
    """
    if control.cassette is None:
        return end_of(context, score_payload(context, loaded, control.payload))
    cassette = control.cassette.recording(loaded.case.id, loaded.input_sha256, context.pack.name)
    return end_of(context, replay(context, loaded, cassette, source=source, owner=CONTROL_OWNER + control.id))


def end_of(context: SuiteContext, attempt: AttemptState) -> ControlEnd:
    """Return how an attempt ended, as controls are compared; its texts are redacted."""
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
        return ControlEnd("error", kind="pack_error", message=single_spaced(message))
    has_kind = score.verdict not in {"passed", "failed"}
    return ControlEnd(
        verdict=score.verdict,
        score=None if score.score is None else float(score.score),
        terms=tuple(replace(term, detail=redact(term.detail)) for term in score.terms),
        kind=score.kind or score.verdict if has_kind else "",
        decided_by=decided_by,
        message=redact(score.message),
    )
