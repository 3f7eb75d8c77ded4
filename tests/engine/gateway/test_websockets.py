"""Websockets pass the gateway in live mode only, to the provider's address, for the case that opened them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.live_models import Ledger
from pytest_packbench.model.run import Caps
from tests.engine.gateway.gateways import error_of, post, recording, serving
from tests.servers.fake import closed_port
from tests.servers.proxy import ForwardProxy
from tests.servers.raw import CLOSE, RawServer, head

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.engine.gateway import Gateway

REALTIME = "/openai/v1/realtime?model=m"
OPENED = head(
    "upgrade: websocket", "connection: Upgrade", "sec-websocket-accept: yes", status="101 Switching Protocols"
)
LARGE = b"frame " * 100_000


def provider(request: bytes) -> Sequence[bytes | float]:
    """Opens a websocket, answers what the client sends, and ends when it says so."""
    if request.startswith(b"GET "):
        return [OPENED, b"welcome\r\n"]
    return [LARGE, b"end\r\n", CLOSE] if request.startswith(b"bye") else [b"answer\r\n"]


def handshake(gateway: Gateway, path: str = REALTIME, *, secret: str = "", **headers: str) -> bytes:
    fields = {"host": "{}:{}".format(*gateway.address), "upgrade": "websocket", "connection": "Upgrade"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    target = f"/{secret or gateway.url.rpartition('/')[2]}{path}"
    lines = [f"GET {target} HTTP/1.1", "sec-websocket-key: k", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Client:
    """A client that reads and writes as it is told."""

    def __init__(self, gateway: Gateway, *words: Any, **headers: str) -> None:
        self._socket = socket.create_connection(gateway.address, 10)
        self._socket.sendall(handshake(gateway, *words, **headers))
        self.file = self._socket.makefile("rb")
        self.status = self.file.readline().decode().split(" ")[1]
        lines = iter(lambda: self.file.readline().strip().decode(), "")
        self.headers = dict(line.split(": ", 1) for line in lines)

    def say(self, text: str) -> bytes:
        self._socket.sendall(f"{text}\r\n\r\n".encode())
        return self.file.readline()

    def close(self) -> None:
        self.file.close()
        self._socket.close()


def status_of(gateway: Gateway, *words: Any, **headers: str) -> str:
    client = Client(gateway, *words, **headers)
    client.close()
    return client.status


@contextmanager
def live(url: str, **settings: Any) -> Iterator[Gateway]:
    with recording(url, record=False, **settings) as gateway:
        yield gateway


def test_both_sides_say_what_they_like_until_one_of_them_ends() -> None:
    ledger = Ledger(Caps())
    with RawServer(provider) as server, live(server.url, ledger=ledger) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            client = Client(gateway, authorization="Bearer k", sec_websocket_protocol="realtime")
            assert (client.status, client.headers["sec-websocket-accept"]) == ("101", "yes")
            assert client.file.readline() == b"welcome\r\n"
            assert [client.say("ask") for _ in range(2)] == [b"answer\r\n"] * 2
            assert client.say("bye") == LARGE + b"end\r\n"
            assert client.file.read() == b""
            client.close()
    first, *lines = server.requests[0].decode().split("\r\n")
    assert first == "GET /v1/realtime?model=m HTTP/1.1"
    for line in ("upgrade: websocket", "connection: Upgrade", "authorization: Bearer k", "sec-websocket-key: k"):
        assert line in lines
    (call,) = traffic.calls
    assert (call.status, call.end, error_of(traffic)) == (101, "complete", "")
    # it is a call, of which nobody knows what it used
    assert (ledger.calls, ledger.uncounted, ledger.as_json()["cost"]) == (1, 1, None)
    assert call.cost_usd is None


def test_a_websocket_that_stays_open_is_closed_with_its_attempt() -> None:
    with RawServer(provider) as server, live(server.url) as gateway:
        with (traffic := gateway.open_case("one")).active():
            client = Client(gateway)
            assert client.say("ask") == b"welcome\r\n"
        client.file.read()
        client.close()
        assert [call.end for call in traffic.calls] == ["aborted"]
        assert error_of(traffic) == ""
        # the connection of the provider is not given to the next call
        with gateway.open_case("two").active():
            assert status_of(gateway) == "101"
        assert server.connections == 2


@pytest.mark.parametrize("mode", ["record", "fixture"])
def test_in_other_modes_it_is_refused_and_live_mode_named(mode: str) -> None:
    with serving(mode, f"http://127.0.0.1:{closed_port()}") as gateway:
        with (traffic := gateway.open_case("one")).active():
            assert status_of(gateway) == "400"
            # whose path could be recorded otherwise
            assert status_of(gateway, "/openai/v1/responses/r") == "400"
        said = traffic.mismatch if mode == "fixture" else error_of(traffic)
    assert "GET /openai/v1/realtime: a websocket can't be recorded; run such cases in live mode" in said


@pytest.mark.parametrize("caps", [Caps(tokens=1_000_000), Caps(cost=5.0)])
def test_a_cap_that_could_not_hold_refuses_it_before_it_opens(caps: Caps) -> None:
    with RawServer(provider) as server, live(server.url, ledger=Ledger(caps)) as gateway:
        with (traffic := gateway.open_case("one")).active():
            assert status_of(gateway) == "400"
        assert server.connections == 0
    assert "no" in error_of(traffic)
    assert "cap on tokens or cost" in error_of(traffic)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"host": "evil.example.test"}, "421"),
        ({"origin": "https://evil.example.test"}, "403"),
        ({"origin": "null"}, "403"),
        ({"sec_fetch_site": "cross-site"}, "403"),
        ({"secret": "wrong"}, "404"),
    ],
)
def test_who_does_not_know_the_secret_or_comes_from_a_page_opens_none(words: dict[str, str], status: str) -> None:
    with RawServer(provider) as server, live(server.url) as gateway, gateway.open_case("one").active():
        assert status_of(gateway, **words) == status
    assert server.connections == 0


def test_one_of_several_cases_must_be_its_owner() -> None:
    with RawServer(provider) as server, live(server.url) as gateway, ExitStack() as cases:
        one, two = (gateway.open_case(name) for name in ("one", "two"))
        cases.enter_context(one.active())
        cases.enter_context(two.active())
        assert status_of(gateway) == "400"
        assert server.connections == 0
        assert status_of(gateway, x_packbench_case=two.token) == "101"
    assert ([len(case.calls) for case in (one, two)], server.connections) == ([0, 1], 1)


@pytest.mark.parametrize("library", ["aiohttp", "websockets"])
def test_clients_say_whose_their_websocket_is(library: str) -> None:
    module = pytest.importorskip(library)
    from pytest_packbench.engine.gateway.stamps import install

    async def converse(gateway: Gateway, name: str) -> int:
        with (traffic := gateway.open_case(name)).active():
            url = f"{gateway.url}{REALTIME}"
            # the answer of this provider is none for them
            if library == "aiohttp":
                async with module.ClientSession() as session:
                    with pytest.raises(module.WSServerHandshakeError):
                        await session.ws_connect(url)
            else:
                with pytest.raises(module.InvalidHandshake):
                    await module.connect(url.replace("http://", "ws://"), proxy=None)
            await asyncio.sleep(0.05)
        return len(traffic.calls)

    async def both(gateway: Gateway) -> list[int]:
        return list(await asyncio.gather(converse(gateway, "one"), converse(gateway, "two")))

    with RawServer(provider) as server, live(server.url) as gateway:
        undo = install(gateway.url)
        try:
            assert asyncio.run(both(gateway)) == [1, 1]
        finally:
            undo()


def test_what_the_provider_answers_instead_is_an_answer() -> None:
    refusal = [head("content-type: application/json", "content-length: 2", status="401 Unauthorized"), b"{}"]
    with RawServer(lambda _: refusal) as server, live(server.url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            assert status_of(gateway) == "401"
    assert error_of(traffic).startswith("bad_credentials") or "401" in error_of(traffic)


def test_a_provider_that_switches_unasked_opens_none() -> None:
    with RawServer(lambda _: [OPENED, b"x", CLOSE]) as server, live(server.url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            assert post(gateway).status_code == 0
    assert error_of(traffic).startswith("network: ")


def test_a_proxy_is_passed_by_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(provider) as server, ForwardProxy(server.url) as way:
        monkeypatch.setenv("http_proxy", way.url)
        with live("http://models.example.test") as gateway, gateway.open_case("one").active():
            client = Client(gateway)
            assert (client.status, client.say("ask")) == ("101", b"welcome\r\n")
            client.close()
    assert way.heads[0].startswith("CONNECT models.example.test:80 HTTP/1.1\r\n")
