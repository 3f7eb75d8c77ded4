"""Keys that must not be seen: found in the environment by the names that hold them, hidden wherever text is kept."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.request import ModelAnswer

HIDDEN = "[hidden]"
_NAMES = re.compile(
    r"(^|_)((API)?KEYS?|TOKENS?|SECRETS?|PASS(WORDS?|WD|PHRASE)?|PATS?|CREDENTIALS?|AUTH|AUTHORIZATION|HEADERS)(_|$)|"
    # run together, as in PGPASSWORD, MYAPIKEY, GHTOKEN; a bare PWD is the current folder
    r"(KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|_PWD)$",
    re.IGNORECASE,
)
# shorter values are words that stand in ordinary text as well
_SHORTEST = 8
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_LOGIN = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]+(?=@)")


class Secrets:
    """The values to hide.

    Args:
        environment: its variables whose names speak of keys, tokens, passwords and the like are secret.
        more: further secret values.
    """

    def __init__(self, environment: Mapping[str, str], more: Iterable[str] = ()) -> None:
        named = [value for name, value in environment.items() if _NAMES.search(name)]
        parts = {part.strip() for value in (*named, *more) for part in _parts(value)}
        values = {form for part in parts if len(part) >= _SHORTEST for form in _forms(part)}
        # the longest first: one may hold another
        ordered = sorted(values, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def hide(self, text: str) -> str:
        """Give the text without secrets, bearer tokens and the logins of URLs."""
        return _LOGIN.sub(HIDDEN, _BEARER.sub(rf"\1 {HIDDEN}", self._known(text)))

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
            tool_calls=tuple(
                replace(
                    call, id=self._known(call.id), name=self._known(call.name), arguments=self.hide_in(call.arguments)
                )
                for call in answer.tool_calls
            ),
        )

    def _known(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


def _parts(value: str) -> list[str]:
    """Give a value, its lines, what stands after the colon of "Name: value" lines, and the texts of a JSON object."""
    lines = value.splitlines()
    found = [value, *lines, *(line.partition(":")[2] for line in lines if ":" in line)]
    if value.lstrip().startswith("{"):
        try:
            held = json.loads(value)
        except ValueError:
            return found
        # a service account's file, say: the key is in it, and so are addresses that are no secret
        for name, text in held.items():
            if isinstance(text, str) and _NAMES.search(name):
                found += [text, *text.splitlines()]
    return found


def _forms(text: str) -> set[str]:
    """Give a secret as it may stand in text: as it is, in JSON, in a Python literal, in a URL."""
    encoded = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, *encoded, repr(text)[1:-1], quote(text, safe=""), quote(text)}
