"""Anthropic's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.answers import arguments, as_object, count, member, parsed, unwrapped
from pytest_packbench.backends.caller import Posting
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_packbench.model.request import ModelRequest

# the last version of the API under which a temperature can be set (from 2026-10-21 on each one is refused)
_VERSION = "2023-06-01"
_ANSWER = "answer"
_TRUNCATED = frozenset({"max_tokens", "model_context_window_exceeded"})
_DECLINED = "the model declined to answer (stop reason: refusal)"
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic(Posting):
    """Messages, by the official client; JSON is asked for as the arguments of a tool that must be called.

    The key comes from ANTHROPIC_API_KEY.
    A forced tool takes any schema of an object and every model knows it; the output format takes neither many optional
    properties nor limits. Usage counts the input with what was written to and read from the cache: that is what the
    model read, and Anthropic counts it apart.
    """

    name = "anthropic"
    default_model = "claude-sonnet-4-6"
    path = "/v1/messages"
    adjustable = frozenset({"temperature", "tool_choice"})

    def _client(self, **how: Any) -> Any:
        headers = {"anthropic-version": _VERSION}
        return self._sdk.AsyncAnthropic(api_key=self._key, base_url=self._url, default_headers=headers, **how)

    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._options.max_output_tokens,
            "messages": _messages(request.messages),
        }
        if request.system:
            body["system"] = request.system
        if "temperature" not in without:
            body["temperature"] = self._options.temperature
        if request.tools:
            body["tools"] = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        elif request.output_schema is not None:
            body["tools"] = [_tool(_ANSWER, "Give the answer.", as_object(request.output_schema))]
            if "tool_choice" not in without:
                body["tool_choice"] = {"type": "tool", "name": _ANSWER, "disable_parallel_tool_use": True}
        return body

    def _counted(self, counts: dict[str, Any]) -> Usage:
        inputs = [number for name in _INPUTS if (number := count(counts.get(name))) is not None]
        tokens_input = count(sum(inputs)) if inputs else None
        return Usage(tokens_input=tokens_input, tokens_output=count(counts.get("output_tokens")))

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        blocks = member(data, "content", list)
        text = "".join(member(block, "text", str) for block in blocks if _is(block, "text"))
        reason = data.get("stop_reason")
        if reason == "refusal":
            details = data.get("stop_details")
            explained = member(details, "explanation", str) if isinstance(details, dict) else ""
            return ModelAnswer(content=None, refusal=text or explained or _DECLINED, usage=usage)
        if reason in _TRUNCATED:
            raise self._failures.truncated(usage, self._options.max_output_tokens)
        calls = [_tool_call(block) for block in blocks if _is(block, "tool_use")]
        if request.output_schema is None or request.tools:
            return ModelAnswer(content=text, usage=usage, tool_calls=tuple(calls))
        given = next((call.arguments for call in calls if call.name == _ANSWER), None)
        content = unwrapped(parsed(text) if given is None else given, request.output_schema)
        return ModelAnswer(content=content, usage=usage)


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def _messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write messages as blocks where tools are in play: answers of tools belong into one message of the user."""
    written: list[dict[str, Any]] = []
    answering = False
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if answering:
                written[-1]["content"].append(block)
            else:
                written.append({"role": "user", "content": [block]})
            answering = True
            continue
        answering = False
        if calls := message.get("tool_calls"):
            # an empty text block is refused
            said = [{"type": "text", "text": message["content"]}] if message["content"] else []
            uses = [
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
                for call in calls
            ]
            written.append({"role": "assistant", "content": [*said, *uses]})
        else:
            written.append({"role": message["role"], "content": message["content"]})
    return written


def _tool_call(block: dict[str, Any]) -> ToolCall:
    name = member(block, "name", str)
    return ToolCall(id=member(block, "id", str), name=name, arguments=arguments(block.get("input"), name))
