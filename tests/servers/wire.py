"""Answers in each provider's wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.servers.fake import Handler, Received, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A provider's request, read.

    Attributes:
        provider: `openai`, `anthropic` or `ollama`.
        model: the model's name.
        system: the instructions.
        messages: the rest, as the provider writes them.
        wants_json: whether the answer has to be JSON.
        body: the whole body.
    """

    provider: str
    model: str
    system: str
    messages: list[dict[str, Any]]
    wants_json: bool
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """All the messages' text."""
        return "\n".join(part for message in self.messages for part in _texts(message.get("content")))


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content or () if block.get("type") == "text"]


def parse_request(received: Received) -> ProviderRequest:
    """Read a request of any of the three providers."""
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
    usage: tuple[int, int] | None = (11, 7),
    model: str = "fake-model",
) -> Reply:
    """A chat completion.

    Args:
        content: the text; JSON as text where JSON is asked for.
        refusal: the refusal field.
        finish_reason: as given; else `tool_calls` or `stop`.
        tool_calls: `{id, name, arguments}` each.
        usage: prompt and completion tokens; None leaves the object out.
        model: the model that says it answered.
    """
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in tool_calls
    ]
    message = {"role": "assistant", "content": content, "refusal": refusal} | ({"tool_calls": calls} if calls else {})
    reason = finish_reason or ("tool_calls" if calls else "stop")
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Reply(body=body)


def anthropic_reply(
    text: str | None = None,
    *,
    tool_uses: Sequence[Mapping[str, Any]] = (),
    stop_reason: str | None = None,
    stop_details: Mapping[str, Any] | None = None,
    usage: Mapping[str, int] | tuple[int, int] | None = (11, 7),
    model: str = "claude-sonnet-4-6",
) -> Reply:
    """A message.

    Args:
        text: a text block.
        tool_uses: `{id, name, arguments}` each; a forced one is how JSON is answered.
        stop_reason: as given; else `tool_use` or `end_turn`.
        stop_details: what stands beside a refusal.
        usage: input and output tokens, or the whole object; None leaves it out.
        model: the model that says it answered.
    """
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text is not None else []
    blocks += [
        {"type": "tool_use", "id": use["id"], "name": use["name"], "input": use["arguments"]} for use in tool_uses
    ]
    body: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": stop_reason or ("tool_use" if tool_uses else "end_turn"),
        "stop_sequence": None,
        "stop_details": stop_details,
    }
    if usage is not None:
        body["usage"] = (
            dict(usage) if isinstance(usage, Mapping) else {"input_tokens": usage[0], "output_tokens": usage[1]}
        )
    return Reply(body=body)


def ollama_reply(
    content: str = "",
    *,
    tool_calls: Sequence[Mapping[str, Any]] = (),
    done_reason: str = "stop",
    usage: tuple[int, int] | None = (11, 7),
    model: str = "fake-model",
) -> Reply:
    """A chat response.

    Args:
        content: the text; JSON as text where JSON is asked for.
        tool_calls: `{name, arguments}` each; Ollama gives them no id.
        done_reason: `stop`, `length` ...
        usage: `prompt_eval_count` and `eval_count`; None leaves both out.
        model: the model that says it answered.
    """
    calls = [{"function": {"name": call["name"], "arguments": call["arguments"]}} for call in tool_calls]
    body: dict[str, Any] = {
        "model": model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {}),
        "done": True,
        "done_reason": done_reason,
    }
    if usage:
        body |= {"prompt_eval_count": usage[0], "eval_count": usage[1]}
    return Reply(body=body)


def reply(
    question: ProviderRequest, answer: Any, *, usage: tuple[int, int] | None = (11, 7), refusal: str | None = None
) -> Reply:
    """Answer in the format of the requested provider.

    Args:
        question: the request.
        answer: a JSON value where JSON was asked for, else a string.
        usage: tokens in and out.
        refusal: the model's words where it declines; Ollama has none for that.
    """
    if question.provider == "anthropic":
        if refusal is not None:
            return anthropic_reply(refusal, stop_reason="refusal", usage=usage, model=question.model)
        if question.wants_json:
            use = {"id": "toolu_1", "name": question.body["tool_choice"]["name"], "arguments": answer}
            return anthropic_reply(tool_uses=[use], usage=usage, model=question.model)
        return anthropic_reply(answer, usage=usage, model=question.model)
    text = json.dumps(answer) if question.wants_json else answer
    if question.provider == "openai":
        return openai_reply(None if refusal else text, refusal=refusal, usage=usage, model=question.model)
    return ollama_reply(refusal or text, usage=usage, model=question.model)


def error_reply(status: int, message: str = "no", *, headers: Mapping[str, str] | None = None) -> Reply:
    """An error that all three clients can read."""
    body = {"type": "error", "error": {"type": "some_error", "message": message}}
    return Reply(status=status, body=body, headers=dict(headers or {}))


def answer_with(function: Callable[[ProviderRequest], Any]) -> Handler:
    """Return a handler that answers each request by a function, with a JSON value, a text or a `Reply`."""

    def handler(received: Received) -> Reply:
        question = parse_request(received)
        answer = function(question)
        return answer if isinstance(answer, Reply) else reply(question, answer)

    return handler
