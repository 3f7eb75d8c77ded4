"""The committed baseline: what a run of a suite came to, in a small file in the suite's folder."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, model_validator

from pytest_packbench.model.case import CurrentVersion, Fraction, ListOf, StrictModel, misfit
from pytest_packbench.model.run import SUITE_NAME
from pytest_packbench.model.score import COUNTED, NO_SCORE, Count, Verdict

BASELINE_VERSION = 1
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BaselineCase(StrictModel):
    """What one case came to, over all its trials.

    Attributes:
        sha256: hash of the case; None if it could not be read.
        score: 0 to 1, the mean of its trials; None without a score.
        verdict: its verdict.
        kind: why it has no score, or is quarantined; None for a case in the rates.
        judge: the judge that decided; None without one.
        trials: number of trials.
        passed: how many of them passed.
    """

    sha256: _Digest | None
    score: Fraction | None
    verdict: Verdict
    kind: str | None = None
    judge: str | None = None
    trials: Annotated[int, Field(ge=1)] = 1
    passed: Count | None = None

    @model_validator(mode="after")
    def _score_fits_the_verdict(self) -> Self:
        if self.score is None and self.verdict in COUNTED:
            raise misfit(f"{NO_SCORE} {self.verdict}", "a score")
        if self.score is not None and self.verdict in {"error", "not_run"}:
            raise misfit(f"the score is {self.score:g}, but the verdict is {self.verdict}", "no score")
        return self


class BaselineRun(StrictModel):
    """The run that a committed baseline was taken from; see `Run`.

    Attributes:
        run_id: as there, like all but the last three.
        suite: the name of the suite, without `bundled/`.
        pack: as in `Run`.
        pack_version: as there.
        suite_sha256: hash of the scoring rules.
        mode: as there.
        target: as there.
        finished_at: as there.
        models: what answered, `backend / model`, sorted.
        authored: whether all answers were written by a person or a script.
        trials: number of trials of each case.
        trials_rule: how trials decide a case; None for one trial.
    """

    run_id: str
    suite: Annotated[str, Field(pattern=SUITE_NAME)]
    pack: str
    pack_version: str
    suite_sha256: _Digest
    mode: Literal["fixture", "live", "record"]
    target: str
    finished_at: str
    models: ListOf[str] = ()
    authored: StrictBool = False
    trials: Annotated[int, Field(ge=1)] = 1
    trials_rule: str | dict[str, int] | None = None


class BaselineChange(StrictModel):
    """One entry of the history of a committed baseline.

    Attributes:
        set_at: when it was set, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        run_id: the run that it was taken from.
        reason: why, as the user gave it.
        loosened: in how many points it is looser than the one before.
    """

    set_at: str
    run_id: str
    reason: Annotated[str, Field(min_length=1)]
    loosened: Count = 0


class CommittedBaseline(StrictModel):
    """The content of `baseline.json`.

    Attributes:
        baseline_version: the version of the format.
        run: the run that it was taken from.
        history: why it was set, the oldest first.
        cases: what each case came to, by test id.
    """

    baseline_version: Annotated[Literal[1], CurrentVersion(BASELINE_VERSION)]
    run: BaselineRun
    history: ListOf[BaselineChange] = ()
    cases: dict[str, BaselineCase]
