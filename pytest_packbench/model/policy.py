"""The acceptance policy of a suite, in which points it differs from that of a base, and which changes are allowed."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from pytest_packbench.model.case import CaseId, ListOf, Review, StrictModel, Text
from pytest_packbench.model.errors import first_of, pluralize, single_spaced
from pytest_packbench.model.report import AS_OBJECT
from pytest_packbench.model.run import SUITE_NAME
from pytest_packbench.model.score import Count  # noqa: TC001 - pydantic reads the types of fields

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
