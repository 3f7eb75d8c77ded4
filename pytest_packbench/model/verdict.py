"""The verdicts, and the only table of their effects."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Verdict = Literal["passed", "failed", "error", "vacuous", "known_hole", "not_run"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
Reported = Literal["passed", "failed", "error", "xfailed", "skipped"]
FIXTURE = "fixture"


class Effects(NamedTuple):
    """What a verdict leads to.

    Attributes:
        fixture: how pytest reports the case in fixture mode.
        live: how pytest reports it in live and record mode. With `--packbench-gate=suite`, a failed case is xfailed.
        counted: whether rates include the case; it has a record then, otherwise a line in `errors.jsonl`.
        due: whether completeness counts the case as one that has to be judged, in fixture mode.
        due_live: the same in live and record mode.
        kept: whether a resumed run keeps the attempt instead of repeating it: answers are kept.
        loss: whether a case that passed before has become worse with it.
    """

    fixture: Reported
    live: Reported
    counted: bool
    due: bool
    due_live: bool
    kept: bool
    loss: bool


_YES, _NO = True, False
EFFECTS: dict[str, Effects] = {
    "passed": Effects("passed", "passed", counted=_YES, due=_YES, due_live=_YES, kept=_YES, loss=_NO),
    "failed": Effects("failed", "failed", counted=_YES, due=_YES, due_live=_YES, kept=_YES, loss=_YES),
    "error": Effects("error", "error", counted=_NO, due=_YES, due_live=_YES, kept=_NO, loss=_YES),
    # a recording can be mended; what a live model does not read or say is no fault of the run
    "vacuous": Effects("error", "xfailed", counted=_NO, due=_YES, due_live=_NO, kept=_YES, loss=_YES),
    "known_hole": Effects("xfailed", "xfailed", counted=_NO, due=_NO, due_live=_NO, kept=_YES, loss=_NO),
    "not_run": Effects("skipped", "skipped", counted=_NO, due=_YES, due_live=_YES, kept=_NO, loss=_YES),
}
"""Each verdict with its effects; quarantined cases are exempt from rates and completeness, whatever their verdict."""

COUNTED = tuple(verdict for verdict, effects in EFFECTS.items() if effects.counted)
"""The verdicts of results that count in rates."""
KEPT = frozenset(verdict for verdict, effects in EFFECTS.items() if effects.kept)
"""The verdicts of attempts that a resumed run keeps."""


def reported(verdict: str, mode: str) -> Reported:
    """Return the outcome in pytest of a verdict in a mode, `fixture`, `live` or `record`."""
    effects = EFFECTS[verdict]
    return effects.fixture if mode == FIXTURE else effects.live


def is_broken(verdict: str, mode: str) -> bool:
    """Whether a verdict is an error of the run in a mode."""
    return reported(verdict, mode) == "error"


def is_due(verdict: str, mode: str) -> bool:
    """Whether completeness counts a case with a verdict as one that has to be judged."""
    effects = EFFECTS[verdict]
    return effects.due if mode == FIXTURE else effects.due_live
