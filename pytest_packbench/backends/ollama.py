"""The backend `ollama`: models served by Ollama, on this machine or another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.client import (
    ModelBackend,
    Said,
    UnreadableResponse,
    is_whole_answer,
    member,
)

if TYPE_CHECKING:
    from pytest_packbench.model.request import ModelRequest


class Ollama(ModelBackend):
    """Asks Ollama's chat API at the base URL, else at OLLAMA_HOST, else on this machine. No key is needed."""

    name = extra = "ollama"
    address = "http://127.0.0.1:11434"
    address_variable = "OLLAMA_HOST"
    path = "/api/chat"
    needs_key = wraps_answers = False

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

    def _said(self, data: Any, request: ModelRequest) -> Said:
        message = member(data, "message", dict)
        if not message:
            raise UnreadableResponse("expected an object with 'message'")
        content = member(message, "content", str)
        is_cut = data.get("done_reason") == "length" and not is_whole_answer(content, request)
        if is_cut or (request.output_schema is not None and not request.tools):
            return Said(content, [], is_cut=is_cut)
        # Ollama's calls have no id: they are numbered through the conversation, so that each is unique
        before = sum(len(message.get("tool_calls", ())) for message in request.messages)
        numbered = enumerate(member(message, "tool_calls", list), before + 1)
        calls = [{**call, "id": f"call_{number}"} if isinstance(call, dict) else call for number, call in numbered]
        return Said(content, calls)


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
