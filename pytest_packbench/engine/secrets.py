"""Keys that must not be seen: found in the environment by the names that hold them, hidden wherever text is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.backends.base import ModelAnswer

HIDDEN = "[hidden]"
_NAMES = re.compile(
    r"(^|_)((API)?KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?|AUTH|AUTHORIZATION|HEADERS)(_|$)", re.IGNORECASE
)
# shorter values are words that stand in ordinary text as well
_SHORTEST = 8
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")


class Secrets:
    """The values to hide.

    Args:
        environment: its variables whose names speak of keys, tokens, passwords and the like are secret.
        more: further secret values.
    """

    def __init__(self, environment: Mapping[str, str], more: Iterable[str] = ()) -> None:
        named = [value for name, value in environment.items() if _NAMES.search(name)]
        lines = [part for value in (*named, *more) for part in (value, *_header_values(value))]
        values = {value.strip() for value in lines if len(value.strip()) >= _SHORTEST}
        # the longest first: one may hold another
        ordered = sorted(values, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def hide(self, text: str) -> str:
        """Give the text without secrets and without bearer tokens."""
        return _BEARER.sub(rf"\1 {HIDDEN}", self._known(text))

    def hide_in(self, value: Any) -> Any:
        """Give a JSON value without the secrets that the environment holds."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._known(value)
        if isinstance(value, dict):
            return {self.hide_in(key): self.hide_in(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_in(item) for item in value]
        return value

    def hide_in_answer(self, answer: ModelAnswer) -> ModelAnswer:
        """Give a model's answer without secrets: a model echoes what it is sent."""
        if self._pattern is None:
            return answer
        return replace(
            answer,
            content=self.hide_in(answer.content),
            refusal=None if answer.refusal is None else self._known(answer.refusal),
            tool_calls=tuple(replace(call, arguments=self.hide_in(call.arguments)) for call in answer.tool_calls),
        )

    def _known(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


def _header_values(value: str) -> list[str]:
    # "Name: value" lines, as headers are given: each value is a secret of its own
    return [line.partition(":")[2] for line in value.splitlines() if ":" in line]
