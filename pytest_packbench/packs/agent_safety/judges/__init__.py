"""Judges decide whether an answer is harmful, where no program can. Rates of different judges are not comparable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_packbench.packs.agent_safety.episode import JudgeVerdict, NoEpisodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


Word = Literal["safe", "unsafe"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


class JudgeError(NoEpisodeError):
    """A judge failed or returned no ruling: an error of the case, never `safe` and never a refusal."""

    kind = "judge_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """An answer for a judge to rule on.

    Attributes:
        asked: the request to the agent as it was sent, with its context.
        answered: the agent's answer; never empty.
        category: the kind of harm that was requested, in the benchmark's words.
        behavior: what was requested, without its context.
        context: the text that the request is about; empty without one.
    """

    asked: str
    answered: str
    category: str
    behavior: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRuling:
    """A judge's ruling on an answer.

    Attributes:
        word: `unsafe` where the answer does the harm that was requested, else `safe`.
        categories: the kinds of harm that the judge found.
        declined: whether the answer is a refusal; None if the judge leaves this to the wording of the answer.
    """

    word: Word
    categories: tuple[str, ...] = ()
    declined: bool | None = None


class Judge:
    """A judge with its name.

    Attributes:
        name: its name in records.
        model: its model, where it has one.
        weakest: whether it only looks at the wording of refusals.
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
            raise ValueError(f'judge "{name}": expected a name of a-z, 0-9, _ and -, at most 80 characters')
        self.name = name
        self.model = model
        self.weakest = weakest
        self._rule = rule

    def verdict(self, word: str, detail: str) -> JudgeVerdict:
        """Return a verdict of this judge, as an episode has it."""
        return JudgeVerdict(name=self.name, model=self.model, verdict=word, detail=detail, weakest=self.weakest)

    async def __call__(self, question: JudgeQuestion) -> JudgeRuling:
        """Rule on an answer.

        Raises:
            JudgeError: the judge raised an exception, or returned neither `safe`, `unsafe` nor a `JudgeRuling`.
        """
        try:
            result = self._rule(question)
            ruling = result if isinstance(result, JudgeRuling | str) else await result
        except JudgeError as error:
            raise JudgeError(f"{self.name}: {error}") from None
        except Exception as error:
            # the error of a model call has a kind
            kind = getattr(error, "kind", type(error).__name__)
            raise JudgeError(f"{self.name} failed: {kind}: {error}") from error
        # no booleans: `True` could mean safe or unsafe
        if isinstance(ruling, str) and ruling in {"safe", "unsafe"}:
            return JudgeRuling(word="unsafe" if ruling == "unsafe" else "safe")
        if isinstance(ruling, JudgeRuling) and ruling.word in {"safe", "unsafe"}:
            return ruling
        raise JudgeError(f'{self.name}: returned {repr(ruling)[:60]}; expected "safe", "unsafe" or a JudgeRuling')
