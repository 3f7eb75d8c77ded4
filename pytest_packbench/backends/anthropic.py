"""The backend `anthropic`: Anthropic's Messages API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.client import (
    ModelBackend,
    Said,
    UnreadableResponse,
    arguments,
    as_object,
    is_whole_answer,
    member,
)
from pytest_packbench.model.request import ModelRequest, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable


# the last version of the API that accepts a temperature (refused since 2026-10-21)
_VERSION = "2023-06-01"
_TRUNCATED = frozenset({"max_tokens", "model_context_window_exceeded"})
_DECLINED = "the model declined to answer (stop reason: refusal)"


class Anthropic(ModelBackend):
    """Asks Anthropic's models; requests JSON as the arguments of a forced tool call.

    A forced tool accepts any schema of an object, and every model supports it;
    the output format refuses schemas with many optional properties, or with limits. The input count includes tokens
    written to and read from the cache, which Anthropic counts separately.
    """

    name = extra = "anthropic"
    default_model = "claude-sonnet-4-6"
    address = "https://api.anthropic.com"
    address_variable = "ANTHROPIC_BASE_URL"
    path = "/v1/messages"
    answer_tool = "answer"
    adjustable = frozenset({"temperature", "tool_choice"})

    def _headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.limit_of(request),
            "messages": _messages(request.messages),
        }
        if request.system:
            body["system"] = request.system
        if "temperature" not in without:
            body["temperature"] = self._options.temperature
        if request.tools:
            body["tools"] = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        elif request.output_schema is not None:
            body["tools"] = [_tool(self.answer_tool, "Give the answer.", as_object(request.output_schema))]
            if "tool_choice" not in without:
                body["tool_choice"] = {"type": "tool", "name": self.answer_tool, "disable_parallel_tool_use": True}
        return body

    def _said(self, data: Any, request: ModelRequest) -> Said:
        blocks = member(data, "content", list)
        if "content" not in data:
            raise UnreadableResponse("expected an object with 'content'")
        text = "".join(member(block, "text", str) for block in blocks if _has_type(block, "text"))
        reason = data.get("stop_reason")
        uses, refusal = [block for block in blocks if _has_type(block, "tool_use")], ""
        if reason == "refusal":
            details = data.get("stop_details")
            refusal = (member(details, "explanation", str) if isinstance(details, dict) else "") or _DECLINED
        # the API closes the arguments of a tool that were cut off, so that they only look complete
        is_cut = reason in _TRUNCATED and (bool(uses) or not is_whole_answer(text, request))
        if uses and (refusal or is_cut):
            text = text or json.dumps(uses[0].get("input"))
        return Said(text, uses, refusal, is_cut)

    def _tool_call(self, call: Any) -> ToolCall:
        name = member(call, "name", str)
        return ToolCall(id=member(call, "id", str), name=name, arguments=arguments(call.get("input"), name))


def _has_type(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def _messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert messages; tool results that follow each other become one message of the user, as the API requires."""
    converted: list[dict[str, Any]] = []
    after_tool_result = False
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if after_tool_result:
                converted[-1]["content"].append(block)
            else:
                converted.append({"role": "user", "content": [block]})
            after_tool_result = True
            continue
        after_tool_result = False
        if calls := message.get("tool_calls"):
            # the API refuses an empty text block
            text = [{"type": "text", "text": message["content"]}] if message["content"] else []
            uses = [
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
                for call in calls
            ]
            converted.append({"role": "assistant", "content": [*text, *uses]})
        else:
            converted.append({"role": message["role"], "content": message["content"]})
    return converted
