"""Redaction: replace secrets by `[redacted]` in messages, printed output, stored results and recordings.

Values of environment variables whose names look like those of secrets are redacted everywhere. Text is also searched
for what has the form of a secret: bearer tokens, authorization headers, API keys, and the login in a URL.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.request import ModelAnswer

REDACTED = "[redacted]"
"""What replaces a secret."""
_VARIABLE = re.compile(
    # an author's name is no secret, and GIT_AUTHOR_NAME occurs in ordinary text
    r"KEY|TOKEN|SECRET|PASS(W|PHRASE)|CREDENTIAL|AUTH(?!ORS?(_|$))|HEADERS|PASS$|(^|_)PASS_|(^|_)PATS?(_|$)|"
    # a bare PWD is the current folder
    r"_PWD$",
    re.IGNORECASE,
)
# stricter than for variables: the value of --tokenizer or --author is no secret
_OPTION = re.compile(r"(^|[-_])(api)?(keys?|tokens?|secrets?|passwords?|passwd|auth|authorization)$", re.IGNORECASE)
# shorter values of the environment are words of ordinary text as well
_MIN_LENGTH = 8
# shorter values are parts of many words; a result may contain such a value by chance, a message loses nothing
_MIN_LENGTH_IN_TEXT = 4
_EXCERPT = 300
_FORMS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{6,}"), rf"\1 {REDACTED}"),
    (
        re.compile(r"(?i)\b((?:proxy-)?authorization|(?:x-)?api-key)(\W{1,4})(?!bearer|basic)[^\s\"',}]+"),
        rf"\1\2{REDACTED}",
    ),
    (re.compile(r"\bsk-[\w*-]{6,}"), REDACTED),
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), REDACTED),
)


class Redactor:
    """Replaces secrets in texts and JSON values.

    Args:
        environment: environment variables; the values of those named like secrets are redacted, from 8 characters.
        values: further secret values, redacted in text from 4 characters and in JSON values from 8.
    """

    def __init__(self, environment: Mapping[str, str], values: Iterable[str] = ()) -> None:
        encoded = {form for value in values for form in _encodings(value)}
        named = {value for name, value in environment.items() if _VARIABLE.search(name)}
        parts = {part.strip() for value in named | encoded for part in _parts(value)}
        secrets = {form for part in parts if len(part) >= _MIN_LENGTH for form in _encodings(part)}
        self._in_values = _any_of(secrets)
        self._in_text = _any_of(secrets | {form for form in encoded if len(form) >= _MIN_LENGTH_IN_TEXT})

    def text(self, text: str) -> str:
        """Return a text without secret values, and without what has the form of a secret."""
        if self._in_text is not None:
            text = self._in_text.sub(REDACTED, text)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return text

    def excerpt(self, text: str, limit: int = _EXCERPT) -> str:
        """Return the beginning of a redacted text: one line of at most `limit` characters."""
        # redacted first: a secret that is cut in two is not recognized
        line = " ".join(self.text(text).split())
        return line if len(line) <= limit else f"{line[: limit - 1]}…"

    def json(self, value: Any) -> Any:
        """Return a JSON value without secret values; its texts are not searched for forms."""
        if self._in_values is None:
            return value
        if isinstance(value, str):
            return self._in_values.sub(REDACTED, value)
        if isinstance(value, dict):
            return {self.json(key): self.json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value

    def answer(self, answer: ModelAnswer) -> ModelAnswer:
        """Return a model's answer without secret values: models echo what they are sent."""
        if self._in_values is None:
            return answer
        calls = answer.tool_calls
        return replace(
            answer,
            content=self.json(answer.content),
            refusal=self.json(answer.refusal),
            tool_calls=tuple(
                replace(call, id=self.json(call.id), name=self.json(call.name), arguments=self.json(call.arguments))
                for call in calls
            ),
        )


def redact_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Redact the values of options and variables with secret names in a command line.

    Returns:
        The words to show, and the redacted values.
    """
    shown, secrets, value_follows = [], [], False
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if value_follows and not word.startswith("-"):
            shown.append(REDACTED)
            secrets.append(word)
            value_follows = False
        elif equals and _OPTION.search(name):
            shown.append(f"{name}={REDACTED}")
            secrets.append(value)
            value_follows = False
        else:
            shown.append(word)
            value_follows = position > 0 and word.startswith("-") and not equals and bool(_OPTION.search(word))
    return shown, secrets


def _any_of(texts: set[str]) -> re.Pattern[str] | None:
    # the longest first: one secret may be part of another
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _parts(value: str) -> list[str]:
    """Return a value, its lines, what follows the colon of "Name: value" lines, and the secrets of a JSON object."""
    lines = value.splitlines()
    parts = [value, *lines, *(line.partition(":")[2] for line in lines if ":" in line)]
    if value.lstrip().startswith("{"):
        try:
            members = json.loads(value)
        except (ValueError, RecursionError):
            return parts
        # for example a service account's file: it contains the key, and addresses that are not secret
        for name, text in members.items():
            if isinstance(text, str) and _VARIABLE.search(name):
                parts += [text, *text.splitlines()]
    return parts


def _encodings(text: str) -> set[str]:
    """Return a secret as it may occur in text: as it is, in JSON, in a Python literal, in a URL."""
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, *escaped, repr(text)[1:-1], quote(text, safe=""), quote(text)}
