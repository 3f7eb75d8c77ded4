"""What is read of stored runs: what `report.json` states of a run without its cases, and the committed baseline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from pytest_packbench.model.case import CurrentVersion, Fraction, ListOf, StrictModel, misfit
from pytest_packbench.model.report import (
    AS_OBJECT,
    ControlCounts,
    Depth,
    Exposure,
    Group,
    Outline,
    PolicyOutcome,
    Refusals,
    StoredPolicy,
    TrialFigures,
    UnknownKeys,
)
from pytest_packbench.model.result import COUNTED, NO_SCORE, Count, Flag, Number, Verdict
from pytest_packbench.model.run import SUITE_NAME
from pytest_packbench.model.suite import (
    Figure,  # noqa: TC001 - likewise
    GateResult,  # noqa: TC001 - pydantic reads the types of fields
)

StatedT = TypeVar("StatedT")


# nothing but these options, whatever a report contains: readers copy them into a shell
_RERUN = re.compile(
    r"""(?:--packbench-(?:mode|target|backend|model|guard|trials)=(?:[\w@%+=:,./-]|'[^']*'|"'")+(?: |\Z))*""", re.ASCII
)


def _not_null(value: Any) -> Any:
    if value is None:
        raise misfit("got null", "an object, or no such key")
    return value


# a report has no such key where there is nothing to state
_Stated = Annotated[StatedT | None, BeforeValidator(_not_null)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedCondition:
    """A condition on what changed since the baseline, and whether it was met, which fails the run."""

    condition: str
    met: Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedComparison:
    """What came of comparing a run with its baseline, without the cases.

    Attributes:
        requested: the baseline as the user named it.
        baseline: the id of its run; None if it was not found.
        problem: why the run was not compared; empty if it was.
        warning: what to know about the baseline; empty if there is nothing.
        figures: what changed, by name; None for what is not known.
        conditions: those that were requested.
        failed: whether the comparison failed the run.
        mean: the mean change of the scores; None if it is not known.
        optional: whether the run passes without a comparison.
    """

    requested: str
    baseline: str | None
    problem: str
    warning: str
    figures: dict[str, Number | None]
    conditions: tuple[StatedCondition, ...]
    failed: Flag
    mean: dict[str, Any] | None = None
    optional: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(Outline):
    """The run: what it came to when it ended.

    Attributes:
        groups: the cases by what they share.
        depth: how deeply answers agree.
        refusals: expected against actual ones.
        exposure: how many cases could have failed; None if all that ran could.
        authored: judged cases whose answers a person or a script wrote.
        cached: judged cases with an answer that was kept from an earlier run.
        interval: how the intervals of groups are computed.
        figures: those of the pack.
        gates: how they decided.
        rerun: the options of pytest that make the same run, quoted for a shell; empty if they are others, or none.
        comparison: with the baseline; None if none was requested.
        policy: the acceptance policy; None where it is not known.
        policy_changes: in which points it differs from that of a base; None if none was requested.
        controls: how they ended; None if there are none.
        trials: what repeating the cases showed; None if each had one trial.
        unknown_keys: keys that the answer model of the pack does not have; None if no result has any.
    """

    groups: tuple[Annotated[Group, AS_OBJECT], ...]
    depth: tuple[Annotated[Depth, AS_OBJECT], ...]
    refusals: Annotated[Refusals, AS_OBJECT]
    exposure: Annotated[Exposure, AS_OBJECT] | None = None
    authored: Count
    cached: Count
    interval: dict[str, Any]
    figures: tuple[Figure, ...] = ()
    gates: tuple[GateResult, ...]
    rerun: Annotated[str, AfterValidator(lambda options: options if _RERUN.fullmatch(options) else "")] = ""
    comparison: _Stated[StatedComparison] = None
    policy: StoredPolicy | None = None
    policy_changes: _Stated[Annotated[PolicyOutcome, AS_OBJECT]] = None
    controls: Annotated[ControlCounts, AS_OBJECT] | None = None
    trials: Annotated[TrialFigures, AS_OBJECT] | None = None
    unknown_keys: Annotated[UnknownKeys, AS_OBJECT] | None = None

    @property
    def policy_failed(self) -> bool:
        """Whether the acceptance policy failed the run."""
        return self.policy_changes is not None and self.policy_changes.failed

    @property
    def held(self) -> bool:
        """Whether nothing but cases failed the run: no gate, baseline or policy."""
        compared = self.comparison
        # the first run of all has no earlier one
        is_worse = compared is not None and (
            (compared.failed and compared.baseline is not None) or any(each.met for each in compared.conditions)
        )
        return not (is_worse or self.policy_failed) and all(gate.passed for gate in self.gates)


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
