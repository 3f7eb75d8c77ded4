"""The header of a report: what `report.json` states of a run without its cases, and the numbers in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator

from pytest_packbench.model.case import CurrentVersion, misfit
from pytest_packbench.model.gate import GateResult  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.metric import Figure  # noqa: TC001 - likewise
from pytest_packbench.model.policy import PolicyOutcome, StoredPolicy  # noqa: TC001 - likewise
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION, Run
from pytest_packbench.model.score import Count, Flag, Number, Quarantine, Share, Verdict  # noqa: TC001 - likewise

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
class Totals:
    """The number of cases by verdict; `verdicts` and `quarantined` add up to `selected`.

    Attributes:
        selected: all cases that should have run.
        verdicts: number of cases by verdict, without quarantined cases.
        quarantined: number of cases that their notes exclude, for `skip` and `xfail`.
        stale: cases whose prompt has changed since the recording was made, whatever their verdict.
    """

    selected: Count
    verdicts: dict[Verdict, Count]
    quarantined: dict[Quarantine, Count]
    stale: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The cases that share a value.

    Attributes:
        name: what they are grouped by: `case_type`, `difficulty`, or a facet's name.
        value: what they share; empty for unreadable cases.
        selected: all cases in the group.
        n: those that were judged, which the rates are over.
        passed: those of `n` that passed.
        pass_rate: `passed / n`, 0 to 1; None if `n` is 0.
        mean_score: 0 to 1; None if `n` is 0.
        interval: two-sided Wilson interval of the pass rate, 0 to 1; None if `n` is 0 or any answer was authored,
            because authored answers are no random sample.
    """

    name: str
    value: str
    selected: Count
    n: Count
    passed: Count
    pass_rate: Share | None
    mean_score: Share | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many answers agree with what was expected to at least one depth.

    Attributes:
        level: the depth, in the pack's unit, above 0.
        agreeing: answers whose depth is `level` or more.
        n: judged answers of known depth to cases that expect an answer.
        share: `agreeing / n`, 0 to 1; None if `n` is 0.
        interval: two-sided Wilson interval of the share, 0 to 1; None if `n` is 0 or any answer of the run was
            authored.
    """

    level: Count
    agreeing: Count
    n: Count
    share: Share | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Refusals:
    """Expected against actual refusals, over the judged cases.

    Attributes:
        due_refused: cases that expect a refusal and were refused.
        due_answered: cases that expect a refusal and were answered.
        undue_refused: cases that expect an answer and were refused.
        undue_answered: cases that expect an answer and were answered.
    """

    due_refused: Count = 0
    due_answered: Count = 0
    undue_refused: Count = 0
    undue_answered: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How many of the cases that ran could have failed.

    Attributes:
        tested: those that were judged.
        n: those and the vacuous ones.
        share: `tested / n`, 0 to 1.
        interval: two-sided Wilson interval of the share, 0 to 1; None if any answer was authored.
    """

    tested: Count
    n: Count
    share: Share
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAt:
    """pass@k and pass^k for one `k`, averaged over cases.

    Attributes:
        k: number of trials drawn, 1 or more.
        cases: judged cases with at least `k` trials.
        at_k: pass@k, the probability that at least one of `k` trials passes, 0 to 1.
        hat_k: pass^k, the probability that all of `k` trials pass, 0 to 1.
    """

    k: Count
    cases: Count
    at_k: Share
    hat_k: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What repeating the cases showed, over the cases whose trials were all judged.

    Attributes:
        rule: the trials rule in words.
        trials: the largest number of trials of a case.
        attempts: judged trials of these cases.
        cases: number of these cases.
        mean_score: mean over cases of the mean over their trials, 0 to 1; None without a case.
        standard_error: of that mean, clustered by case; None for fewer than two cases, and if any answer was authored,
            because authored answers are not a random sample.
        passes: pass@k and pass^k for some `k` up to the number of trials.
    """

    rule: str
    trials: Count
    attempts: Count
    cases: Count
    mean_score: Share | None
    standard_error: float | None
    passes: tuple[PassAt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCounts:
    """The controls of a run.

    Attributes:
        present: how many the suite has, or the shard.
        selected: how many were selected, of which the next four are the parts.
        as_written: how many ended as written.
        deviates: how many ended otherwise.
        broken: how many could not be replayed.
        not_run: how many the session did not reach.
        wrong: the ids of those that deviate or are broken.
    """

    present: Count
    selected: Count
    as_written: Count
    deviates: Count
    broken: Count
    not_run: Count
    wrong: tuple[str, ...]


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
class Header:
    """The run: what it came to when it ended.

    Attributes:
        version: that of the format.
        status: the verdict on the run.
        complete: whether nothing is missing.
        run: its metadata.
        totals: the number of cases by verdict.
        overall: all cases as one group.
        groups: the cases by what they share.
        depth: how deeply answers agree.
        refusals: expected against actual ones.
        exposure: how many cases could have failed; None if all that ran could.
        authored: judged cases whose answers a person or a script wrote.
        models: number of judged cases by model.
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
    """

    version: Annotated[int, CurrentVersion(RUN_DOCUMENT_VERSION)]
    status: Literal["passed", "failed", "partial"]
    complete: Flag
    run: Run
    totals: Totals
    overall: Group
    groups: tuple[Group, ...]
    depth: tuple[Depth, ...]
    refusals: Refusals
    exposure: Exposure | None = None
    authored: Count
    models: dict[str, Count]
    cached: Count
    interval: dict[str, Any]
    figures: tuple[Figure, ...] = ()
    gates: tuple[GateResult, ...]
    rerun: Annotated[str, AfterValidator(lambda options: options if _RERUN.fullmatch(options) else "")] = ""
    comparison: _Stated[StatedComparison] = None
    policy: StoredPolicy | None = None
    policy_changes: _Stated[PolicyOutcome] = None
    controls: ControlCounts | None = None
    trials: TrialFigures | None = None

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
