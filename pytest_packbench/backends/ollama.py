"""The backend `ollama`: models served by Ollama, on this machine or another."""

from __future__ import annotations

from typing import Any

from pytest_packbench.backends.answers import (
    UnreadableResponse,
    arguments,
    is_whole_answer,
    member,
    parse_json_text,
    tool_calls,
)
from pytest_packbench.backends.client import ModelBackend
from pytest_packbench.model.request import ModelAnswer, ModelRequest, ToolCall, Usage


class Ollama(ModelBackend):
    """Asks Ollama's chat API at the base URL, else at OLLAMA_HOST, else on this machine. No key is needed."""

    name = extra = "ollama"
    address = "http://127.0.0.1:11434"
    address_variable = "OLLAMA_HOST"
    path = "/api/chat"
    needs_key = False

    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:  # noqa: ARG002 - it refuses none
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *_messages(request.messages)],
            "stream": False,
            "options": {"temperature": self.temperature, "num_predict": self.limit_of(request)},
        }
        if request.tools:
            body["tools"] = [{"type": "function", "function": tool.as_json()} for tool in request.tools]
        elif request.output_schema is not None:
            body["format"] = request.output_schema
        return body

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        message = member(data, "message", dict)
        if not message:
            raise UnreadableResponse("expected an object with 'message'")
        content = member(message, "content", str)
        if data.get("done_reason") == "length" and not is_whole_answer(content, request):
            return self._truncated(content, usage, request)
        if request.output_schema is not None and not request.tools:
            return ModelAnswer(content=parse_json_text(content), usage=usage)
        # Ollama's calls have no id: they are numbered through the conversation, so that each is unique
        before = sum(len(message.get("tool_calls", ())) for message in request.messages)
        calls = tool_calls(enumerate(member(message, "tool_calls", list), before + 1), _tool_call)
        return ModelAnswer(content=content, usage=usage, tool_calls=calls)


def _tool_call(numbered: tuple[int, Any]) -> ToolCall:
    function = member(numbered[1], "function", dict)
    name = member(function, "name", str)
    return ToolCall(id=f"call_{numbered[0]}", name=name, arguments=arguments(function.get("arguments"), name))


def _messages(messages: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Convert messages to Ollama's form, in which a tool's result names the tool instead of the call."""
    names = {call["id"]: call["name"] for message in messages for call in message.get("tool_calls", ())}
    converted = []
    for message in messages:
        if message["role"] == "tool":
            name = names.get(message["tool_call_id"], "")
            converted.append({"role": "tool", "content": message["content"], "tool_name": name})
        elif calls := message.get("tool_calls"):
            functions = [{"function": {"name": call["name"], "arguments": call["arguments"]}} for call in calls]
            converted.append({"role": "assistant", "content": message["content"], "tool_calls": functions})
        else:
            converted.append({"role": message["role"], "content": message["content"]})
    return converted
