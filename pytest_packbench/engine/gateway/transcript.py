"""What was asked and answered in recorded calls, as text for people; of other forms than the usual ones, the JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWERS = ("body", "text", "stream", "body_base64", "stream_base64")


def transcript_of(exchange: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the messages and the answer of an exchange with its request: title, role and text of each.

    Args:
        exchange: as a cassette states it, with all its keys or without those that are not set.
    """
    title = f"{exchange['method']} {exchange['path']}"
    lines = [(title, role, text) for role, text in _asked(exchange.get("request"))]
    status = exchange.get("status")
    label = "answer" if status == 200 else f"answer (status {status or 'none'})"  # noqa: PLR2004 - the status of success
    if (end := exchange.get("end", "complete")) != "complete":
        label = f"{label}, {end}"
    return [*lines, (title, label, _answered(answer_of(exchange)))]


def answer_of(exchange: Mapping[str, Any]) -> Any:
    """Return the answer in an exchange; None where it is empty."""
    return next((exchange[name] for name in _ANSWERS if exchange.get(name) is not None), None)


def _asked(request: Any) -> list[tuple[str, str]]:
    if not isinstance(request, dict):
        return [] if request is None else [("request", _text(request))]
    lines = [("system", _text(request[name])) for name in ("system", "instructions") if request.get(name)]
    for name in ("messages", "contents", "input", "prompt"):
        messages = request.get(name)
        if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):
            return [*lines, *((str(each.get("role", "user")), _text_of(each)) for each in messages)]
        if messages:
            return [*lines, ("user", _text(messages))]
    return [*lines, ("request", _text(request))]


def _answered(answer: Any) -> str:
    if not isinstance(answer, dict):
        return _text(answer)
    choices = answer.get("choices") or answer.get("candidates")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message") or choices[0].get("content")
        return _text_of(message) if isinstance(message, dict) else _text(choices[0])
    if isinstance(message := answer.get("message"), dict):
        return _text_of(message)
    return _text_of(answer) if "content" in answer else _text(answer)


def _text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message: as one string, in blocks or in parts; with what is no text, its JSON."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n".join(_text(part["text"]) for part in content)
    return content if isinstance(content, str) and not message.get("tool_calls") else _text(dict(message))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
