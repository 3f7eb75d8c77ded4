"""The answer of a target as a closed document, and what its terms come to."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from pytest_packbench.files import escape_unprintable
from pytest_packbench.model.case import StrictModel
from pytest_packbench.model.errors import format_value, json_pointer, single_spaced, unknown_keys, without_keys
from pytest_packbench.model.result import Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.result import Breakdown, Firing

# removes the rounding error of a sum such as 1.0 - 0.1 + 0.05
_DECIMALS = 9


class Answer(StrictModel):
    """What a target returns, as one closed document: an unknown key or another form makes an answer unreadable.

    A subclass has the keys of its domain. The properties say what every report needs of an answer; override those whose
    default does not fit. The rules of the suite are the context of the validation (`info.context`).
    """

    @cached_property
    def unread_keys(self) -> tuple[str, ...]:
        """The keys that a suite with `unknown_keys: ignore` leaves unread, as JSON pointers."""
        return ()

    @property
    def refused(self) -> bool:
        """Whether the target declined to answer; by default, whether the document has a `refusal` that isn't empty."""
        return bool(getattr(self, "refusal", None))

    @property
    def shown(self) -> str | None:
        """The answer as one short string for tables; None without one. The default is its keys that are set."""
        return format_value(self.model_dump(mode="json", exclude_unset=True))

    @property
    def failure(self) -> Breakdown | None:
        """The infrastructure failure that the target reports, which makes the case an error; None without one."""
        return None

    @property
    def firings(self) -> tuple[Firing, ...]:
        """The decisions of gates and guards, in order."""
        return ()

    @property
    def decided_by(self) -> str:
        """The name of the check of the pipeline that alone decided how it ended, for controls; empty if none did."""
        return ""

    @classmethod
    def decided_unread(cls, result: Any) -> str:  # noqa: ARG003 - for pipelines that say why they have no answer
        """Return the same of a result that can't be read, plain JSON; by default, nothing is known of it."""
        return ""


_AnswerT = TypeVar("_AnswerT", bound=Answer)


def pointers_of(paths: Iterable[Sequence[str | int]]) -> tuple[str, ...]:
    """Return paths as JSON pointers in one printable line each."""
    return tuple(single_spaced(escape_unprintable(json_pointer(path))) for path in paths)


def without_unknown_keys(model: type[_AnswerT], result: Any, rules: Any) -> _AnswerT:
    """Validate a result as a suite with `unknown_keys: ignore` reads it: without the keys that no model knows.

    A result without any other key has no content, and stays unreadable.

    Args:
        model: the answer model.
        result: the result of a target.
        rules: the content of `suite.yaml`.

    Returns:
        The answer; it knows which keys were left unread.

    Raises:
        ValidationError: it does not fit without those keys either.
    """
    left: tuple[str, ...] = ()
    while True:
        try:
            answer = model.model_validate(result, context=rules)
        except ValidationError as error:
            paths = unknown_keys(error, result)
            rest = without_keys(result, paths) if paths else None
            if not rest:
                raise
            # a validator may have stopped at the first ones, so that others become known only without them
            left, result = (*left, *pointers_of(paths)), rest
        else:
            vars(answer)["unread_keys"] = left
            return answer


class Agreement(NamedTuple):
    """How an answer agrees with what was expected.

    Attributes:
        level: the kind of agreement, in the pack's words; None if it does not apply.
        depth: how deeply it agrees, in the pack's unit; None if it does not apply.
    """

    level: str | None = None
    depth: int | None = None


_WITHOUT_SCORE = ("vacuous", "known_hole", "error")


class Unscored(Exception):  # noqa: N818 - a finding, not a mistake
    """A case shows nothing of an answer, which gets no score; `Pack.terms` raises it.

    Args:
        verdict: `vacuous` (the case could not have failed), `known_hole` (the case itself is known to be wrong) or
            `error` (the answer lacks what the case is about, which its pipeline should have measured).
        message: the reason in one line.
        kind: the name of that reason; empty for the verdict itself.

    Raises:
        ValueError: another verdict, such as `passed`, which only a score can give.
    """

    def __init__(self, verdict: Literal["vacuous", "known_hole", "error"], message: str, *, kind: str = "") -> None:
        if verdict not in _WITHOUT_SCORE:
            raise ValueError(f"got the verdict {verdict!r}; expected one of {', '.join(_WITHOUT_SCORE)}")
        self.verdict = verdict
        self.kind = kind
        super().__init__(message)


def total_of(terms: Sequence[Term]) -> tuple[float, tuple[Term, ...]]:
    """Return the sum of the terms from 0 to 1, exactly 0 with a hard fail, and the term that brought it there."""
    if any(term.effect == "zero" for term in terms):
        return 0.0, ()
    total = round(sum(term.value for term in terms if term.effect == "add"), _DECIMALS)
    points = min(1.0, max(0.0, total))
    if points == total:
        return points, ()
    return points, (Term(name="clamp", effect="clamp", value=round(points - total, _DECIMALS), detail="to 0..1"),)
