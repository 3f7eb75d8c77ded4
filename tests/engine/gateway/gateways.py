"""Gateways between real clients and a server on loopback."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from pytest_packbench.engine.gateway import Gateway
from pytest_packbench.engine.gateway.protocols import PROVIDERS
from pytest_packbench.model.recording import GatewayExchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.engine.gateway import CaseTraffic

KEY = "sk-test-0123456789abcdef"
CHAT = "/openai/v1/chat/completions"


def sse(*values: Any, ending: str = "\n\n") -> list[bytes]:
    """Server-sent events; those with a type state it, as Anthropic and OpenAI do."""
    names = [f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else "" for value in values]
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    return [f"{name}data: {text}{ending}".encode() for name, text in zip(names, texts, strict=True)]


def openai_chunk(text: str, **fields: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices} | fields


OPENAI = [openai_chunk("Zwölf "), openai_chunk("pounds")]
OPENAI_USAGE = openai_chunk("", choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})


@contextmanager
def recording(url: str, **settings: Any) -> Iterator[Gateway]:
    """A gateway that forwards to a fake server, for each provider, and records."""
    gateway = Gateway(offline=False, upstreams={name: url + each.stripped for name, each in PROVIDERS.items()})
    gateway.configure(**({"record": True} | settings))
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


@contextmanager
def replaying() -> Iterator[Gateway]:
    """A gateway of fixture mode."""
    gateway = Gateway(offline=True)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def serving(mode: str, url: str, **settings: Any) -> Any:
    """A gateway of any mode."""
    return replaying() if mode == "fixture" else recording(url, record=mode == "record", **settings)


def recorded(url: str, act: Callable[[Gateway], object], **settings: Any) -> CaseTraffic:
    """What a case did that is over, against a server."""
    with recording(url, **settings) as gateway, (traffic := gateway.open_case("one")).active():
        act(gateway)
    return traffic


def replayed(
    exchanges: Sequence[GatewayExchange], act: Callable[[Gateway], object], ignored: tuple[str, ...] = ()
) -> CaseTraffic:
    """What a case did on its recording."""
    with replaying() as gateway, (traffic := gateway.open_case("one", exchanges)).active():
        traffic.ignored_headers = ignored
        act(gateway)
    return traffic


def stored(traffic: CaseTraffic, *, prompts: bool = True) -> list[GatewayExchange]:
    """The exchanges of a case, as they come back from a cassette's file."""
    return [from_file(exchange) for exchange in traffic.as_exchanges(prompts=prompts)]


def from_file(exchange: Mapping[str, Any]) -> GatewayExchange:
    return GatewayExchange.model_validate(
        json.loads(json.dumps(exchange, ensure_ascii=False, allow_nan=False).encode())
    )


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def post(
    gateway: Gateway,
    body: Any = "x",
    path: str = CHAT,
    *,
    method: str = "POST",
    timeout: float = 20,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """Ask once: with a text, with a body, or without one; no variable of the environment is read.

    Where the connection is closed without an answer, the status is 0.
    """
    body = question(body) if isinstance(body, str) else body
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=timeout) as client:
        try:
            return client.request(method, f"{gateway.url}{path}", json=body, headers=headers)
        except httpx.RemoteProtocolError:
            return httpx.Response(0)


def error_of(traffic: CaseTraffic) -> str:
    """The kind and the message of the error that decides a case; empty if there is none."""
    error = traffic.unrecovered_error()
    return "" if error is None else f"{error.kind}: {error}"
