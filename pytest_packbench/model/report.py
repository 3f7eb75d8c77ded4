"""What `report.json` states of a run without its cases, and what a committed baseline and an acceptance policy do.

`Header` is all of that, `Outline` the part that a trend needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, Self, cast, get_type_hints

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
)
from pydantic_core.core_schema import no_info_after_validator_function
from typing_extensions import TypedDict

from pytest_packbench.model.case import CaseId, CurrentVersion, ListOf, Review, StrictModel, Text
from pytest_packbench.model.errors import StoredRunError, first_of, pluralize, single_spaced
from pytest_packbench.model.result import Count, Flag, Quarantine, Share, Verdict  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION, SUITE_NAME, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic_core import CoreSchema

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.stored import BaselineChange, Header


POLICY_VERSION = 1
CHANGES_NAME = "policy_changes.yaml"
"""The file in a suite's folder that allows changes of its acceptance policy."""
MAX_LINES = 100
"""How many changes a page and a terminal show; `report.json` has all."""


class PolicyError(ValueError):
    """An acceptance policy can't be read; one line with what to do."""


class PolicyChange(NamedTuple):
    """One change of the acceptance policy that is not known to make it tighter.

    Attributes:
        what: in a few words, such as `threshold lowered`.
        file: the file, from the suite's folder; a configuration file from the project's.
        key: the place in it, as an entry of `policy_changes.yaml` names it; empty for a whole case.
        old: the value in the base, plain JSON; `ABSENT` if there is none; a long value as `sha256:` and its hash.
        new: the value now, likewise.
        case: the id of the case; empty if it is about no case.
        reason: why it is allowed, by an entry of `policy_changes.yaml`; empty if it is not allowed.
    """

    what: str
    file: str
    key: str
    old: Any
    new: Any
    case: str = ""
    reason: str = ""

    @property
    def line(self) -> str:
        """The change in one line: what, where, old and new value."""
        case = f" (case {self.case})" if self.case else ""
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{self.what}: {where}{case}: {value_text(self.old)} -> {value_text(self.new)}"


class PolicyOutcome(NamedTuple):
    """In which points the acceptance policy of a suite differs from that of a base.

    Attributes:
        base: what it was compared with, in a few words.
        changes: the changes that are not known to be tighter.
        problems: why it could not be compared, or an entry does not match, one line each.
        notes: what else to know, one line each.
        stated: whether its report states that it failed the run.
    """

    base: str
    changes: tuple[Annotated[PolicyChange, AS_OBJECT], ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stated: Annotated[bool, Field(alias="failed", strict=True)] = False

    @property
    def loosened(self) -> tuple[PolicyChange, ...]:
        """The changes that no entry allows."""
        return tuple(change for change in self.changes if not change.reason)

    @property
    def failed(self) -> bool:
        """Whether the run, or the command, fails."""
        return bool(self.loosened or self.problems or self.stated)

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        loosened, allowed = len(self.loosened), len(self.changes) - len(self.loosened)
        counts = {
            f"{pluralize(loosened, 'change')} not allowed": loosened,
            f"{allowed} allowed by {CHANGES_NAME}": allowed,
            pluralize(len(self.problems), "problem"): len(self.problems),
        }
        said = ", ".join(text for text, count in counts.items() if count)
        return f"{said or 'nothing loosened'} since {self.base}"

    def lines(self) -> list[str]:
        """Return the outcome in lines of plain text, with values from cases and files: a line for each change."""
        changes = [_change_line(change) for change in sorted(self.changes, key=lambda change: bool(change.reason))]
        advice = (
            [f"to allow a change, add case or key, old, new and reason to {CHANGES_NAME} in the suite's folder"]
            if self.loosened
            else []
        )
        return [
            self.headline,
            *(f"{problem}: FAIL" for problem in self.problems),
            *first_of(changes, MAX_LINES),
            *advice,
            *self.notes,
        ]


def same(old: Any, new: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1, which is 1.0."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(value, new[key]) for key, value in old.items())
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, bool) is isinstance(new, bool) and bool(old == new)


def _change_line(change: PolicyChange) -> str:
    reason = single_spaced(change.reason)
    return f"{change.line}: allowed: {reason}" if reason else f"{change.line}: FAIL"


def value_text(value: Any) -> str:
    """Return a value of a change for people: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


class StoredPolicy(TypedDict):
    """The acceptance policy that a run stores: see `Policy` in `policy.py`."""

    version: Count
    config: dict[str, Any]
    files: dict[str, str]
    code: dict[str, str]
    hooks: NotRequired[dict[str, str]]
    recordings: dict[str, str]
    settings: dict[str, Any]
    baseline: Any


class AllowedChange(StrictModel):
    """One entry of `policy_changes.yaml`.

    Attributes:
        case: the id of the case; None if the change is about no case.
        key: the place, as the line of the change names it; None for a whole case.
        old: the value in the base, as the line shows it; `absent` if there was none.
        new: the value now, likewise.
        reason: why the change is right.
    """

    case: Text | None = None
    key: Text | None = None
    old: Any
    new: Any
    reason: Annotated[str, StringConstraints(pattern=r"\S")]

    def allows(self, change: PolicyChange) -> bool:
        """Return whether it is about this change, with exactly these values."""
        named = (self.case or "", self.key or "") == (change.case, change.key)
        return named and same(self.old, change.old) and same(self.new, change.new)


class AllowedChanges(StrictModel):
    """The content of `policy_changes.yaml`.

    Attributes:
        changes: the allowed changes.
    """

    changes: ListOf[AllowedChange] = ()


class ReviewMark(Review):
    """A line of `review.jsonl`: what a reviewer marked on the page of a run.

    Attributes:
        version: the version of the format.
        suite: the name of the case's suite in the run.
        case: the id of the case.
        case_sha256: the hash of the case as the run had it.
        answer: the answer as the page showed it; null without one.
        result: the result of the target with this answer, as in `payloads.jsonl`, for `also_acceptable`; null if it is
            too long for the page.
    """

    version: Literal[1]
    suite: Annotated[str, StringConstraints(pattern=SUITE_NAME, max_length=200)]
    case: CaseId
    case_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    answer: str | None = None
    result: Any = None

    @property
    def review(self) -> dict[str, str]:
        """What the notes of the case keep of it."""
        return {name: single_spaced(getattr(self, name)) for name in Review.model_fields}


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


class KeyCounts(NamedTuple):
    """Unknown keys in results of a run: keys that the answer model of the pack does not have.

    Attributes:
        results: the results with such keys.
        passed: those of them that passed.
        keys: in how many of the results each key is, by its JSON pointer with `*` for an index; the most frequent ones.
    """

    results: Count
    passed: Count
    keys: dict[str, Count]


class UnknownKeys(NamedTuple):
    """What a run reports of unknown keys.

    Attributes:
        unreadable: those in results that are unreadable.
        ignored: those that a suite with `unknown_keys: ignore` has left unread.
    """

    unreadable: KeyCounts
    ignored: KeyCounts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run that was opened.

    Attributes:
        source: the file that it is read from.
        run: the metadata of the run.
        results: one for each trial of each case, sorted; read once, and of a file that is damaged further down it
            raises `StoredRunError`. A committed baseline has one for each case.
        header: what its report states, all of it or its outline; None if only records were read, and of a committed
            baseline.
        history: the changes of a committed baseline, the oldest first.
        lists_all_cases: whether cases without a score are included; False if only records were read, which do not
            count them.
        committed: whether it is a committed baseline, which has one result for all trials of a case.
        reopen: returns the results with their records and payloads, as far as there are files with them; None if
            `results` have them. A committed baseline has none.
    """

    source: str
    run: Run
    results: Iterable[Result]
    header: Outline | None = None
    history: tuple[BaselineChange, ...] = ()
    lists_all_cases: bool = True
    committed: bool = False
    reopen: Callable[[], Iterable[Result]] | None = field(default=None, compare=False, repr=False)

    def read(self) -> Self:
        """Return the run with all its results in memory, in the same order.

        Raises:
            StoredRunError: the rest of a file is damaged.
        """
        return replace(self, results=tuple(self.results))

    def complete_results(self) -> Iterable[Result]:
        """Return the results with records and payloads, of a run that was opened without them by opening it again."""
        return self.results if self.reopen is None else self.reopen()

    @property
    def stated(self) -> Header:
        """What its report states; `outline` if no more was read.

        Raises:
            StoredRunError: it has none.
        """
        return cast("Header", self.outline)

    @property
    def outline(self) -> Outline:
        """The outline of what its report states; errors are as above."""
        if self.header is None:
            raise StoredRunError(f"{self.source}: does not say what the run came to; expected the folder of a run")
        return self.header


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLookup:
    """A request to compare a run, and what was found.

    Attributes:
        requested: `none`, `latest` (the suite's last complete run), `passed` (the last one of the same mode and target
            whose gates passed), `committed` (the baseline in the suite's folder), the id of a run, or a path.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        stored: the run to compare with; None if it was not found or not requested.
        reason: why it was not found, in one line; empty if it was found or not requested.
        warning: what to know about the run, in one line; empty if there is nothing.
    """

    requested: str = ""
    optional: bool = False
    fail_on: str = ""
    stored: StoredRun | None = None
    reason: str = ""
    warning: str = ""
