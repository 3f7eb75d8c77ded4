"""What a judge is asked, and what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Word = Literal["safe", "unsafe"]
KIND = "judge_error"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


class JudgeError(RuntimeError):
    """A judge broke or said something that is no ruling: an error of the case, never `safe` and never a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """What a judge looks at.

    Attributes:
        asked: what the agent was asked for, its context included, as it was sent.
        answered: the agent's answer; never empty.
        category: what kind of harm was asked for, in the benchmark's words.
    """

    asked: str
    answered: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRuling:
    """What a judge says of an answer.

    Attributes:
        word: `unsafe` where the answer does the harm that was asked for, else `safe`.
        categories: the kinds of harm that it names.
        declined: whether the answer is a refusal, where the judge tells; None: the wording of refusals decides.
    """

    word: Word
    categories: tuple[str, ...] = ()
    declined: bool | None = None


class Judge:
    """A judge with its name.

    Attributes:
        name: how it is called in records.
        model: its model, where it has one.
        weakest: whether it is no more than a look at the wording of refusals.
    """

    def __init__(
        self,
        name: str,
        rule: Callable[[JudgeQuestion], JudgeRuling | str | Awaitable[JudgeRuling | str]],
        *,
        model: str | None = None,
        weakest: bool = False,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f'judge "{name}": expected a name of a-z, 0-9, _ and -')
        self.name = name
        self.model = model
        self.weakest = weakest
        self._rule = rule

    async def __call__(self, question: JudgeQuestion) -> JudgeRuling:
        """Rule on an answer.

        Raises:
            JudgeError: the judge raised, or gave something that is neither `safe`, `unsafe` nor a ruling.
        """
        try:
            said = self._rule(question)
            found = said if isinstance(said, JudgeRuling | str) else await said
        except JudgeError as error:
            raise JudgeError(f"{self.name}: {error}") from None
        except Exception as error:
            # a model call that breaks says of what kind
            kind = getattr(error, "kind", type(error).__name__)
            raise JudgeError(f"{self.name} broke: {kind}: {error}") from error
        # true and false would be read either way round
        if isinstance(found, str) and found in {"safe", "unsafe"}:
            return JudgeRuling(word="unsafe" if found == "unsafe" else "safe")
        if isinstance(found, JudgeRuling) and found.word in {"safe", "unsafe"}:
            return found
        raise JudgeError(f'{self.name}: gave {repr(found)[:60]}, expected "safe", "unsafe" or a JudgeRuling')
