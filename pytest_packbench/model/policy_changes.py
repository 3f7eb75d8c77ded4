"""`policy_changes.yaml`: the changes of a suite's acceptance policy that are allowed, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import ListOf, StrictModel, Text
from pytest_packbench.model.policy import same

if TYPE_CHECKING:
    from pytest_packbench.model.policy import PolicyChange


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

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.case is None and self.key is None:
            context = {"wrong": "names neither case nor key", "expected": "case, key or both"}
            raise PydanticCustomError("allowed_change", "a change", context)
        return self

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
