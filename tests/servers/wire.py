"""Requests and answers in each provider's wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.servers.fake import Handler, Received, Reply

Tokens = tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A provider's request; the messages are without the instructions, and as the provider writes them."""

    provider: str
    model: str
    system: str
    messages: list[dict[str, Any]]
    wants_json: bool
    body: dict[str, Any]

    @property
    def text(self) -> str:
        contents = [message.get("content") or () for message in self.messages]
        parts = [[{"type": "text", "text": part}] if isinstance(part, str) else part for part in contents]
        return "\n".join(block["text"] for part in parts for block in part if block.get("type") == "text")


def parse_request(received: Received) -> ProviderRequest:
    """Parse a request to any of the three providers."""
    body = received.json()
    messages = body["messages"]
    if received.path.endswith("/messages"):
        system, provider = body.get("system", ""), "anthropic"
        wants_json = body.get("tool_choice", {}).get("type") == "tool"
    else:
        system = "".join(message["content"] for message in messages if message["role"] == "system")
        messages = [message for message in messages if message["role"] != "system"]
        provider = "ollama" if received.path.endswith("/api/chat") else "openai"
        wants_json = bool(body.get("format") or body.get("response_format"))
    return ProviderRequest(
        provider=provider, model=body["model"], system=system, messages=messages, wants_json=wants_json, body=body
    )


def openai_reply(
    content: str | None = None,
    *,
    refusal: str | None = None,
    finish_reason: str | None = None,
    tool_calls: Sequence[Mapping[str, Any]] = (),
    usage: Tokens = (11, 7),
    model: str = "fake-model",
) -> Reply:
    """A chat completion; a tool call has `id`, `name` and `arguments`."""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
    for call in tool_calls:
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        message.setdefault("tool_calls", []).append({"id": call["id"], "type": "function", "function": function})
    reason = finish_reason or ("tool_calls" if tool_calls else "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Reply(body=body)


def anthropic_reply(
    text: str | None = None,
    *,
    tool_uses: Sequence[Mapping[str, Any]] = (),
    stop_reason: str | None = None,
    stop_details: Mapping[str, Any] | None = None,
    usage: Mapping[str, int] | Tokens = (11, 7),
    model: str = "claude-sonnet-4-6",
) -> Reply:
    """A message; a tool use has `id`, `name` and `arguments`; usage as two counts, or as the whole object."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text is not None else []
    blocks += [
        {"type": "tool_use", "input": use["arguments"], "id": use["id"], "name": use["name"]} for use in tool_uses
    ]
    body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": blocks}
    reason = stop_reason or ("tool_use" if tool_uses else "end_turn")
    body |= {"stop_reason": reason, "stop_sequence": None, "stop_details": stop_details}
    if usage is not None:
        counts = zip(("input_tokens", "output_tokens"), usage, strict=False)
        body["usage"] = dict(usage) if isinstance(usage, Mapping) else dict(counts)
    return Reply(body=body)


def ollama_reply(
    content: str = "",
    *,
    tool_calls: Sequence[Mapping[str, Any]] = (),
    done_reason: str = "stop",
    usage: Tokens = (11, 7),
    model: str = "fake-model",
) -> Reply:
    """A chat response; a tool call has `name` and `arguments`, Ollama gives it no id."""
    calls = [{"function": {"name": call["name"], "arguments": call["arguments"]}} for call in tool_calls]
    message = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    body: dict[str, Any] = {"model": model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True}
    body["done_reason"] = done_reason
    if usage:
        body |= {"prompt_eval_count": usage[0], "eval_count": usage[1]}
    return Reply(body=body)


REPLIES: dict[str, Callable[..., Reply]]
REPLIES = {"openai": openai_reply, "anthropic": anthropic_reply, "ollama": ollama_reply}


def reply(question: ProviderRequest, answer: Any, *, usage: Tokens = (11, 7), refusal: str | None = None) -> Reply:
    """Answer a request in its provider's format: with JSON, a text, or the words of a refusal."""
    fields: dict[str, Any] = {"usage": usage, "model": question.model}
    text = json.dumps(answer) if question.wants_json else answer
    if question.provider == "anthropic" and refusal is not None:
        return anthropic_reply(stop_reason="refusal", stop_details={"explanation": refusal}, **fields)
    if question.provider == "anthropic" and question.wants_json:
        use = {"id": "toolu_1", "name": question.body["tool_choice"]["name"], "arguments": answer}
        return anthropic_reply(tool_uses=[use], **fields)
    if question.provider == "openai":
        return openai_reply(None if refusal else text, refusal=refusal, **fields)
    # Ollama's format has no refusals
    return REPLIES[question.provider](refusal or text, **fields)


def error_reply(status: int, message: str = "no", *, headers: Mapping[str, str] | None = None) -> Reply:
    """An error in a form that all three clients can read."""
    body = {"type": "error", "error": {"type": "some_error", "message": message}}
    return Reply(status=status, body=body, headers=dict(headers or {}))


def answer_with(function: Callable[[ProviderRequest], Any]) -> Handler:
    """Return a handler that answers each request by a function, with a JSON value, a text or a `Reply`."""

    def handler(received: Received) -> Reply:
        question = parse_request(received)
        answer = function(question)
        return answer if isinstance(answer, Reply) else reply(question, answer)

    return handler
