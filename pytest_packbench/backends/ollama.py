"""The backend `ollama`: models served by Ollama, on this machine or another."""

from __future__ import annotations

import asyncio
import json
import random
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError
from pytest_packbench.backends.answers import (
    UnreadableResponse,
    arguments,
    is_whole_answer,
    member,
    parse_json_text,
    parse_response,
    tool_calls,
)
from pytest_packbench.backends.client import ClientBackend, check_url, import_client, required_model
from pytest_packbench.backends.originals import original
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage

if TYPE_CHECKING:
    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelRequest, Tool

# the client would read it from the environment
_ADDRESS = "http://127.0.0.1:11434"
_CLIENT_KEYWORDS = frozenset({"type", "items", "description", "enum"})
_RETRIED = frozenset({"timeout", "network", "rate_limit", "overloaded", "server_error"})
# the delays of OpenAI's and Anthropic's clients
_FIRST_DELAY_S, _MAX_DELAY_S, _MAX_RETRY_AFTER_S = 0.5, 8.0, 120.0


@dataclass(slots=True)
class _Response:
    """A call's last response: what the client's errors and its own reading of it don't contain."""

    http: Any = None
    status: int = 0
    retry_after: str = ""


_RESPONSE: ContextVar[_Response] = ContextVar("packbench_ollama_response")


class Ollama(ClientBackend):
    """Asks Ollama's chat API through the official client, which does not retry: this class does.

    The address is the base URL, else OLLAMA_HOST, else this machine. No key is needed.
    """

    name = "ollama"

    def __init__(self, options: BackendOptions) -> None:
        self._ollama: Any = import_client(self.name)
        self._httpx: Any = import_client("httpx")
        model = required_model(options.model, name=self.name)
        self._host = options.base_url or original("OLLAMA_HOST")
        if self._host:
            check_url(self._host, name=self.name, bare_host=True)
        super().__init__(options, model=model, http=self._httpx)

    def _open(self, **how: Any) -> Any:
        return self._ollama.AsyncClient(self._host or _ADDRESS, **how)

    async def _close(self, client: Any) -> None:
        # older clients can only be closed through their HTTP client
        await (client.close() if hasattr(client, "close") else client._client.aclose())  # noqa: SLF001 - older clients

    async def _on_response(self, response: Any) -> None:
        last = _RESPONSE.get()
        last.http, last.status = response, response.status_code
        last.retry_after = response.headers.get("retry-after", "")
        await super()._on_response(response)

    async def _ask(self, request: ModelRequest) -> Any:
        body = self._body(request)
        response = _Response()
        _RESPONSE.set(response)
        retries = 0
        while True:
            response.status, response.retry_after = 0, ""
            try:
                return await self._chat(body, response)
            except BackendError as error:
                delay_s = retry_delay_s(retries, response.retry_after)
                if error.kind not in _RETRIED or retries == self._options.retries or delay_s > _MAX_RETRY_AFTER_S:
                    raise
                await asyncio.sleep(delay_s)
            retries += 1
            self._options.on_retry()

    async def _chat(self, body: dict[str, Any], response: _Response) -> Any:
        httpx = self._httpx
        sending = self._errors.sending(
            self._options.timeout_s, late=httpx.TimeoutException, lost=(ConnectionError, httpx.HTTPError)
        )
        try:
            with sending:
                async with self._clients.lend() as client:
                    await client.chat(**body)
        except self._ollama.ResponseError as error:
            message = json.dumps({"error": getattr(error, "error", None) or str(error)}, ensure_ascii=False)
            raise self._errors.of_status(response.status, message) from None
        except (ValueError, TypeError, AttributeError) as error:
            # the client parses whatever comes as JSON of the form it expects, or all of it is lost
            if response.http is None:
                raise UnreadableResponse(f"expected a chat request: {error}") from None
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise self._errors.of_status(response.status, "") from None
        return parse_response(response.http.text)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *_messages(request.messages)],
            "options": {"temperature": self.temperature, "num_predict": self.limit_of(request)},
        }
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        elif request.output_schema is not None:
            body["format"] = request.output_schema
        return body

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        message = member(data, "message", dict)
        if not message:
            raise UnreadableResponse("expected an object with 'message'")
        content = member(message, "content", str)
        if data.get("done_reason") == "length" and not is_whole_answer(content, request):
            return self._errors.truncated(content, usage, self.limit_of(request))
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


def _tool(tool: Tool) -> dict[str, Any]:
    """Convert a tool; the keywords of a parameter's schema that the client would drop go into its description."""
    properties = {name: _parameter(schema) for name, schema in tool.parameters.get("properties", {}).items()}
    return {
        "type": "function",
        "function": tool.as_json() | {"parameters": tool.parameters | {"properties": properties}},
    }


def _parameter(schema: dict[str, Any]) -> dict[str, Any]:
    supported = {key: value for key, value in schema.items() if key in _CLIENT_KEYWORDS}
    dropped = {key: value for key, value in schema.items() if key not in _CLIENT_KEYWORDS | {"title"}}
    if not dropped:
        return supported
    description = f"{supported.get('description', '')} (JSON Schema: {json.dumps(dropped)})".strip()
    return supported | {"description": description}


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


def retry_delay_s(retries: int, retry_after: str) -> float:
    """Return how long to wait before the next try: Retry-After, else exponentially longer, seconds."""
    requested = _seconds(retry_after)
    if requested is not None and requested > 0:
        return requested
    jitter = 1 - 0.25 * random.random()  # noqa: S311 - spreads retries, protects nothing
    return min(_FIRST_DELAY_S * 2.0**retries, _MAX_DELAY_S) * jitter


def _seconds(retry_after: str) -> float | None:
    """Parse Retry-After, seconds or a date (RFC 9110, 10.2.3); None where it is neither."""
    try:
        return float(retry_after)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
