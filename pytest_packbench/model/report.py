"""The numbers that a report states, and the outline of a run for a trend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, get_type_hints

from pydantic_core.core_schema import no_info_after_validator_function
from typing_extensions import TypedDict

from pytest_packbench.model.case import CurrentVersion
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION, Run
from pytest_packbench.model.score import Count, Flag, Quarantine, Share, Verdict  # noqa: TC001 - pydantic reads the types of fields

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class _AsObject:
    """Reads a named tuple from an object with its fields: keys that it does not know are ignored."""

    def __get_pydantic_core_schema__(self, noun: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        hints = get_type_hints(noun, include_extras=True)
        known: Any = TypedDict
        fields = known(
            noun.__name__,
            {name: NotRequired[hint] if name in noun._field_defaults else hint for name, hint in hints.items()},
        )
        fields.__doc__ = noun.__doc__
        return no_info_after_validator_function(lambda found: noun(**found), handler(fields))


# a named tuple takes a fifth of the time of a frozen dataclass to create, at every start
AS_OBJECT = _AsObject()


class Totals(NamedTuple):
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


class Group(NamedTuple):
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


class Depth(NamedTuple):
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


class Refusals(NamedTuple):
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


class Exposure(NamedTuple):
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


class PassAt(NamedTuple):
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


class TrialFigures(NamedTuple):
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
    passes: tuple[Annotated[PassAt, AS_OBJECT], ...]


class ControlCounts(NamedTuple):
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
class Outline:
    """What a trend shows of a run: a part of a header, since all of it takes longer to read.

    Attributes:
        version: that of the format.
        status: the verdict on the run.
        complete: whether nothing is missing.
        run: its metadata.
        totals: the number of cases by verdict.
        overall: all cases as one group.
        models: number of judged cases by model.
    """

    version: Annotated[int, CurrentVersion(RUN_DOCUMENT_VERSION)]
    status: Literal["passed", "failed", "partial"]
    complete: Flag
    run: Run
    totals: Annotated[Totals, AS_OBJECT]
    overall: Annotated[Group, AS_OBJECT]
    models: dict[str, Count]
