"""What a scorer reads and gives: the outcome, and the score.

The outcome is what a pack reads from the result of a target; scorers see nothing else. The score of a case is a number
from named terms, or the verdict why there is none. What verdicts effect is here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import ConfigDict, Field, Strict

from pytest_packbench.model.record import EvalDecision  # noqa: TC001 - pydantic reads the types of fields

Effect = Literal["add", "zero", "clamp", "note"]
Verdict = Literal["passed", "failed", "error", "vacuous", "known_hole", "not_run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Count = Annotated[int, Field(ge=0, strict=True)]
"""An integer of 0 or more."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A number from 0 to 1."""
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Word = Annotated[str, Strict()]
"""A text: bytes are none."""
Quarantine = Literal["skip", "xfail"]
QUARANTINE: tuple[Quarantine, ...] = get_args(Quarantine)
TOLERANCE = 1e-9
UNREADABLE = "unreadable_answer"
"""The term of an answer that can't be read."""
TRUNCATED = "truncated_answer"
"""The term of an answer that can't be read because it was cut off."""
UNREAD = frozenset({UNREADABLE, TRUNCATED})
# packs create them, without validation
_CHECKED = ConfigDict(revalidate_instances="always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One named contribution to a score.

    Attributes:
        name: the rule that contributed, such as `preferred_match`.
        effect: `add` (the value is added), `zero` (hard fail: the score is exactly 0), `clamp` (the value is the
            change that brought the sum into 0..1) or `note` (a remark that does not change the score).
        value: points, -1 to 1; 0 if `effect` is `zero` or `note`.
        detail: the reason in a few words.
    """

    name: Word
    effect: Effect = "add"
    value: Annotated[float, Field(ge=-1, le=1, strict=True)] = 0.0
    detail: Word = ""

    __pydantic_config__ = _CHECKED

    def as_json(self) -> dict[str, Any]:
        """Return the term as plain JSON."""
        return {"name": self.name, "effect": self.effect, "value": self.value, "detail": self.detail}

    @property
    def points(self) -> str:
        """The effect as text: `+1.00`, `-0.10`, `=0`, or `-` for a note."""
        if self.effect in {"add", "clamp"}:
            return f"{self.value:+.2f}"
        return "=0" if self.effect == "zero" else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What an attempt came to: its verdict, and a number with its terms, or the reason why there is none.

    A pack's scorer gives these; what ended the attempt, or the engine, adds `message` to `actual_text`.

    Attributes:
        score: 0 to 1; None if there is no number (error, vacuous, known hole).
        threshold: the case passes at or above this score, 0 to 1; None if nothing was scored.
        verdict: `passed`, `failed`, `error` (infrastructure failure), `vacuous` (the case could not have failed),
            `known_hole` (the case itself is known to be wrong) or `not_run`.
        terms: the contributions to the score, in the order in which they apply.
        match_level: how the answer matched, in the pack's words; None if it does not apply.
        match_depth: how deeply the answer agrees, in the pack's unit; None if it does not apply.
        message: the reason in one line if the verdict is neither `passed` nor `failed`.
        kind: the name of that reason (`cassette_missing`, `interrupted`, ...); empty for the verdict itself; `skip` or
            `xfail` for a case that its notes quarantine.
        answer: the answer in one short string.
        refused: whether the target refused.
        decision: the target's decision in the values of the wire record; None without a record.
        utility: whether the user's own task was done; None if the pack does not report it.
        valid: whether the answer had the required format; None if the pack does not report it.
        judge: the name of the judge; None if the rules decided.
        input_text: the beginning of the input in one line; empty unless the verdict is `failed`, like the next two.
        expected_text: what was expected where the answer differs, in one short line.
        actual_text: the same of the answer.
    """

    score: Share | None = None
    threshold: Share | None = None
    verdict: Verdict
    terms: tuple[Term, ...] = ()
    match_level: Word | None = None
    match_depth: Count | None = None
    message: Word = ""
    kind: Word = ""
    answer: Word | None = None
    refused: Flag | None = None
    decision: EvalDecision | None = None
    utility: Flag | None = None
    valid: Flag | None = None
    judge: Word | None = None
    input_text: Word = ""
    expected_text: Word = ""
    actual_text: Word = ""

    __pydantic_config__ = _CHECKED

    def __post_init__(self) -> None:
        """Correct the verdict of a hard fail: it never passes, whatever the threshold is."""
        if self.verdict == "passed" and any(term.effect == "zero" for term in self.terms):
            object.__setattr__(self, "verdict", "failed")

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"

    @property
    def quarantined(self) -> bool:
        """Whether the notes of the case exclude it from rates and completeness."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether rates include the case: it passed or failed and is not quarantined."""
        return self.verdict in COUNTED and not self.quarantined


def judged(points: float, threshold: float) -> Verdict:
    """Return the verdict of a score: `passed` at or above the threshold, with a tolerance of 1e-9."""
    return "passed" if points >= threshold - TOLERANCE else "failed"


def unread_score(term: str, reason: str, threshold: float) -> Score:
    """Return the score of an answer that can't be read: 0, a hard fail.

    Args:
        term: `UNREADABLE` or `TRUNCATED`.
        reason: why it can't be read, in one line.
        threshold: the case's.
    """
    terms = (Term(name=term, effect="zero", detail=reason),)
    return Score(score=0.0, threshold=threshold, verdict="failed", terms=terms)


def describe_score(score: Score) -> str:
    """Return a score compared with its threshold: `score 0.35 < 0.80`."""
    if score.score is None or score.threshold is None:
        return score.verdict
    sign = ">=" if score.passed else "<"
    return f"score {score.score:.2f} {sign} {score.threshold:.2f}"


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


class ResultError(ValueError):
    """The result of a target does not have the expected structure: an unreadable answer, with the score 0.

    Args:
        pointer: JSON pointer of the location in the result; empty for the whole result.
        message: what is wrong and what was expected, in one line.

    Attributes:
        pointer: see above.
    """

    def __init__(self, pointer: str, message: str) -> None:
        self.pointer = pointer
        super().__init__(f"result{pointer}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """An infrastructure failure that the target reports; it makes the case an error, not a refusal or a score.

    Attributes:
        kind: the name of the failure, such as `timeout`, `network`, `rate_limit`.
        message: a description in one line.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One decision of a gate or guard in the pipeline; it becomes a hook decision of the record.

    Attributes:
        hook: the name of the gate or guard.
        decision: its decision, such as `deny`.
        rule: the number of its rule, 0 to 2**32 - 1; None without one.
    """

    hook: str
    decision: str
    rule: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fields that the outcomes of all packs share; a pack adds its own in a subclass.

    Attributes:
        breakdown: the infrastructure failure that the target reports; None without one.
        refused: whether the target declined to answer.
        answer: the answer as one short string for tables; None without one.
        firings: the decisions of gates and guards, in order.
    """

    breakdown: Breakdown | None = None
    refused: bool = False
    answer: str | None = None
    firings: tuple[Firing, ...] = ()
