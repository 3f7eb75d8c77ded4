"""The backend `openai`: OpenAI's chat completions, also of other servers (vLLM, llama.cpp, gateways)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.client import (
    ModelBackend,
    Said,
    as_object,
    fits_strict,
    is_whole_answer,
    member,
)

if TYPE_CHECKING:
    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelRequest

_LIMITS = ("max_completion_tokens", "max_tokens")
_FILTERED = "the provider's content filter withheld the answer"


class OpenAI(ModelBackend):
    """Asks a chat completions API.

    As OpenAI counts them, input tokens include cached ones, and output tokens include reasoning.
    """

    name = extra = "openai"
    address = "https://api.openai.com/v1"
    address_variable = "OPENAI_BASE_URL"
    path = "/chat/completions"
    adjustable = frozenset({"temperature", *_LIMITS})
    continues_texts = True

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        # other servers accept the older name, OpenAI's newer models only the newer one
        self._limits = _LIMITS[::-1] if self._is_own_server else _LIMITS

    def _headers(self, key: str) -> dict[str, str]:
        account = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
        values = {name: os.environ.get(variable, "").strip() for name, variable in account.items()}
        return {**super()._headers(key), **{name: value for name, value in values.items() if value}}

    def _path(self, request: ModelRequest) -> str:
        return "/completions" if request.raw else self.path

    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        if request.raw:
            temperature = {} if "temperature" in without else {"temperature": self._options.temperature}
            text = request.messages[0]["content"]
            return {"model": self.model, "prompt": text, **temperature, "max_tokens": self.limit_of(request)}
        messages = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {"model": self.model, "messages": [*messages, *map(_message, request.messages)]}
        if "temperature" not in without:
            body["temperature"] = self._options.temperature
        limit = next((name for name in self._limits if name not in without), self._limits[0])
        body[limit] = self.limit_of(request)
        if request.tools:
            body["tools"] = [{"type": "function", "function": tool.as_json()} for tool in request.tools]
        elif request.output_schema is not None:
            schema = as_object(request.output_schema)
            form = {"name": "answer", "schema": schema, "strict": fits_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body

    def _said(self, data: Any, request: ModelRequest) -> Said:
        choice = next(iter(member(data, "choices", list)), None)
        if request.raw:
            return Said(member(choice, "text", str))
        message = member(choice, "message", dict)
        content, calls = message.get("content"), member(message, "tool_calls", list)
        text = content if isinstance(content, str) else ""
        reason = choice.get("finish_reason") if isinstance(choice, dict) else None
        refusal = member(message, "refusal", str) or (_FILTERED if reason == "content_filter" else "")
        is_cut = reason == "length" and not is_whole_answer(text, request)
        has_no_text = not isinstance(content, str) and not (calls and content is None)
        return Said(None if has_no_text else text, calls, refusal, is_cut)


def _message(message: dict[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": message["content"] or None, "tool_calls": calls}
