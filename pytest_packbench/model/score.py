"""The score of one case: a number from named terms, or a word for why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

Verdict = Literal["passed", "failed", "error", "vacuous", "known_hole", "not_run"]
Effect = Literal["add", "zero", "clamp", "note"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
TOLERANCE = 1e-9


class Constraint(NamedTuple):
    """What a field holds, beside its type.

    Attributes:
        words: all of it, for who finds something else there; empty where nobody is told.
        least: the least number.
        most: the greatest number.
        pattern: a regular expression that the text matches.
        among: the texts of which it is one.
    """

    words: str = ""
    least: int | None = None
    most: int | None = None
    pattern: str | None = None
    among: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One named contribution to a score.

    Attributes:
        name: what contributed, such as `preferred_match`.
        effect: `add` (value is added), `zero` (hard fail: the score is exactly 0), `clamp` (value is the
            change that brought the sum into 0..1) or `note` (no effect on the number, said all the same).
        value: points, -1 to 1; 0 where `effect` is `zero` or `note`.
        detail: why, in a few words.
    """

    name: str
    effect: Effect = "add"
    value: Annotated[float, Constraint("a number from -1 to 1", least=-1, most=1)] = 0.0
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """Give the term as plain JSON."""
        return {"name": self.name, "effect": self.effect, "value": self.value, "detail": self.detail}

    @property
    def points(self) -> str:
        """The effect as text: `+1.00`, `-0.10`, `=0`, or `-` for a note."""
        if self.effect in {"add", "clamp"}:
            return f"{self.value:+.2f}"
        return "=0" if self.effect == "zero" else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What scoring one case gave.

    Attributes:
        score: 0 to 1; None when there is no number (error, vacuous, known hole).
        threshold: the score from which the case passes, 0 to 1.
        verdict: see design 4.
        terms: what made the score, in the order applied.
        match_level: how the answer matched, in the pack's words; None where it doesn't apply.
        match_depth: how deep the answer agrees, in the pack's unit; None where it doesn't apply.
        message: one line where the verdict is neither passed nor failed.
    """

    score: float | None
    threshold: float
    verdict: Verdict
    terms: tuple[Term, ...] = ()
    match_level: str | None = None
    match_depth: int | None = None
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"


def judged(points: float, threshold: float) -> Verdict:
    """Compare a score with its threshold, forgiving float noise of 1e-9."""
    return "passed" if points >= threshold - TOLERANCE else "failed"


def describe_score(score: Score) -> str:
    """Say a score against its threshold: `score 0.35 < 0.80`."""
    if score.score is None:
        return score.verdict
    sign = ">=" if score.passed else "<"
    return f"score {score.score:.2f} {sign} {score.threshold:.2f}"
