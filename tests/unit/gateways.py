"""Gateways between real clients and a server on loopback."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.gateway import Gateway
from pytest_packbench.engine.gateway.protocols import PROVIDERS
from pytest_packbench.model.recording import GatewayExchange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_packbench.engine.gateway import CaseTraffic

KEY = "sk-test-0123456789abcdef"


def upstreams(url: str) -> dict[str, str]:
    """The addresses of a fake server, for each provider."""
    return {name: url + provider.stripped for name, provider in PROVIDERS.items()}


@contextmanager
def recording(url: str, **settings: Any) -> Iterator[Gateway]:
    """A gateway that forwards to a fake server and records."""
    gateway = Gateway(offline=False, upstreams=upstreams(url))
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


def stored(traffic: CaseTraffic, *, prompts: bool = True) -> list[GatewayExchange]:
    """The exchanges of a case, as they come back from a cassette's file."""
    return [from_file(call.as_exchange(prompts)) for call in traffic.calls]


def from_file(exchange: Mapping[str, Any]) -> GatewayExchange:
    return GatewayExchange.model_validate(
        json.loads(json.dumps(exchange, ensure_ascii=False, allow_nan=False).encode())
    )
