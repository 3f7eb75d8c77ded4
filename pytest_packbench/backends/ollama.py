"""Models that Ollama serves, on this machine or another."""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError
from pytest_packbench.backends.answers import Unreadable, arguments, count, parsed
from pytest_packbench.backends.caller import Asking
from pytest_packbench.backends.opened import checked_url, imported, model_named
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage

if TYPE_CHECKING:
    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelRequest, Tool

_CARRIED = frozenset({"type", "items", "description", "enum"})
_AGAIN = frozenset({"timeout", "network", "rate_limit", "overloaded", "server_error"})
# as the clients of OpenAI and Anthropic wait
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_S = 0.5, 8.0, 120.0


@dataclass(slots=True)
class _Seen:
    """What the last response of a call said: the client's own errors don't tell it all."""

    status: int = 0
    retry_after: str = ""


_seen: ContextVar[_Seen] = ContextVar("_seen")


class Ollama(Asking):
    """Chats, by the official client; it has no retries of its own, so they are here.

    Without a base URL it asks where OLLAMA_HOST says, else this machine. It needs no key.
    """

    name = "ollama"

    def __init__(self, options: BackendOptions) -> None:
        self._ollama: Any = imported(self.name)
        self._httpx: Any = imported("httpx")
        model = model_named(options.model, name=self.name)
        self._host = options.base_url or os.environ.get("OLLAMA_HOST", "")
        if self._host:
            checked_url(self._host, name=self.name, bare_host=True)
        super().__init__(options, model=model, http=self._httpx)

    def _open(self, **how: Any) -> Any:
        return self._ollama.AsyncClient(self._host or None, **how)

    async def _close(self, client: Any) -> None:
        # older clients can only be closed by the HTTP client within
        await (client.close() if hasattr(client, "close") else client._client.aclose())  # noqa: SLF001 - see above

    async def _watch(self, response: Any) -> None:
        seen = _seen.get()
        seen.status = response.status_code
        seen.retry_after = response.headers.get("retry-after", "")
        await super()._watch(response)

    async def _ask(self, request: ModelRequest) -> Any:
        asked = self._asked(request)
        seen = _Seen()
        _seen.set(seen)
        tries = 0
        while True:
            seen.status, seen.retry_after = 0, ""
            try:
                return await self._chat(asked, seen)
            except BackendError as error:
                wait_s = _wait_s(tries, seen.retry_after)
                if error.kind not in _AGAIN or tries == self._options.retries or wait_s > _LONGEST_ASKED_S:
                    raise
                await asyncio.sleep(wait_s)
            tries += 1

    def _usage(self, data: Any) -> Usage:
        return Usage(tokens_input=count(data.prompt_eval_count), tokens_output=count(data.eval_count))

    async def _chat(self, asked: dict[str, Any], seen: _Seen) -> Any:
        httpx = self._httpx
        try:
            async with self._slots.client() as client:
                return await client.chat(**asked)
        except httpx.TimeoutException:
            raise self._failures.timeout(self._options.timeout_s) from None
        except self._ollama.ResponseError as error:
            body = json.dumps({"error": getattr(error, "error", None) or str(error)}, ensure_ascii=False)
            raise self._failures.of_status(seen.status, body) from None
        except (ConnectionError, httpx.HTTPError) as error:
            raise self._failures.network(error) from None
        except UnicodeEncodeError as error:
            raise self._failures.unsendable(error) from None
        except (ValueError, TypeError, AttributeError) as error:
            # the client reads whatever comes as JSON of the form it expects
            if seen.status >= HTTPStatus.BAD_REQUEST:
                raise self._failures.of_status(seen.status, "") from None
            raise self._failures.unreadable(Unreadable(f"expected a chat response: {error}")) from None

    def _asked(self, request: ModelRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *_messages(request.messages)],
            "options": {"temperature": self.temperature, "num_predict": self._options.max_output_tokens},
        }
        if request.tools:
            asked["tools"] = [_tool(tool) for tool in request.tools]
        elif request.output_schema is not None:
            asked["format"] = request.output_schema
        return asked

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        if data.done_reason == "length":
            raise self._failures.truncated(usage, self._options.max_output_tokens)
        content = data.message.content or ""
        if request.output_schema is not None and not request.tools:
            return ModelAnswer(content=parsed(content), usage=usage)
        # Ollama gives calls no id: counted through the conversation, so that each is another
        before = sum(len(message.get("tool_calls", ())) for message in request.messages)
        calls = tuple(
            ToolCall(
                id=f"call_{number}",
                name=call.function.name,
                arguments=arguments(dict(call.function.arguments), call.function.name),
            )
            for number, call in enumerate(data.message.tool_calls or (), before + 1)
        )
        return ModelAnswer(content=content, usage=usage, tool_calls=calls)


def _tool(tool: Tool) -> dict[str, Any]:
    """Write a tool; what the client would silently drop from a parameter's schema goes into its description."""
    properties = {name: _carried(schema) for name, schema in tool.parameters.get("properties", {}).items()}
    return {
        "type": "function",
        "function": tool.as_json() | {"parameters": tool.parameters | {"properties": properties}},
    }


def _carried(schema: dict[str, Any]) -> dict[str, Any]:
    carried = {key: value for key, value in schema.items() if key in _CARRIED}
    lost = {key: value for key, value in schema.items() if key not in _CARRIED | {"title"}}
    if not lost:
        return carried
    said = f"{carried.get('description', '')} (JSON Schema: {json.dumps(lost)})".strip()
    return carried | {"description": said}


def _messages(messages: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Write messages as Ollama has them: a tool's answer names the tool, not the call."""
    names = {call["id"]: call["name"] for message in messages for call in message.get("tool_calls", ())}
    written = []
    for message in messages:
        if message["role"] == "tool":
            name = names.get(message["tool_call_id"], "")
            written.append({"role": "tool", "content": message["content"], "tool_name": name})
        elif calls := message.get("tool_calls"):
            functions = [{"function": {"name": call["name"], "arguments": call["arguments"]}} for call in calls]
            written.append({"role": "assistant", "content": message["content"], "tool_calls": functions})
        else:
            written.append({"role": message["role"], "content": message["content"]})
    return written


def _wait_s(tries: int, retry_after: str) -> float:
    """Tell how long to wait: as the server asks, else longer each time."""
    asked = _seconds(retry_after)
    if asked is not None and asked > 0:
        return asked
    jitter = 1 - 0.25 * random.random()  # noqa: S311 - it keeps callers apart and guards nothing
    return min(_FIRST_WAIT_S * 2.0**tries, _LONGEST_WAIT_S) * jitter


def _seconds(retry_after: str) -> float | None:
    """Read Retry-After: seconds or a date (RFC 9110, 10.2.3); None where it is neither."""
    try:
        return float(retry_after)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
