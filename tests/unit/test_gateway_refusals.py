"""What would leave the gateway unseen: redirects, calls that are given up or refused, logins, requests sent twice."""

from __future__ import annotations

import socket
from base64 import b64encode
from typing import TYPE_CHECKING

import httpx
import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.gateway import stamps
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.engine.gateway.protocols import conflict_in, upstreams_of
from pytest_packbench.engine.gateway.server import MAX_BODY_BYTES, MAX_HEAD_BYTES
from pytest_packbench.engine.live_models import Ledger
from pytest_packbench.model.run import Caps
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.raw import CLOSE, RawServer, head
from tests.servers.wire import openai_reply
from tests.unit.gateways import recording, replaying, stored

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from tests.servers.fake import Received

BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
PATH = "/openai/v1/chat/completions"


def post(gateway: Gateway, path: str = PATH, *, body: object = BODY, timeout: float = 20) -> httpx.Response:
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=timeout) as client:
        return client.post(f"{gateway.url}{path}", json=body)


@pytest.mark.parametrize(
    ("kind", "later", "decides"),
    [("network", "b", True), ("network", "a", False), ("server_error", "b", False), ("server_error", "", True)],
)
def test_a_provider_that_answers_by_an_error_may_be_replaced_by_another_model(
    kind: str, later: str, *, decides: bool
) -> None:
    with replaying() as gateway:
        traffic = gateway.open_case("one")
    failed, succeeded = (RecordedCall.of("openai", "POST", PATH, text.encode()) for text in ('"a"', f'"{later}"'))
    failed.error, failed.end = BackendError(kind, "x"), "complete"
    succeeded.status, succeeded.end = 200, "complete"
    traffic.calls += [failed, succeeded] if later else [failed]
    assert traffic.unrecovered_error() is (failed.error if decides else None)


def error_of(traffic: CaseTraffic) -> str:
    error = traffic.unrecovered_error()
    return "" if error is None else f"{error.kind}: {error}"


@pytest.mark.parametrize("record", [True, False])
def test_no_client_follows_a_redirect_past_the_gateway(*, record: bool) -> None:
    ledger = Ledger(Caps())
    with FakeServer(scripted(openai_reply("elsewhere"))) as other:
        place = other.url.replace("://", "://bob:pw@") + "/v1/chat/completions?sig=secret"
        with FakeServer(scripted(Reply(status=307, headers={"location": place}), openai_reply("x"))) as server:
            serving = recording(server.url, ledger=ledger, record=record)
            with serving as gateway, (traffic := gateway.open_case("one")).active():
                answer = post(gateway)
                # swallowed, and asked again
                assert post(gateway).status_code == 200
            assert (answer.status_code, "location" in answer.headers) == (307, False)
        assert (other.requests, ledger.calls) == ([], 2)
    assert error_of(traffic).startswith("unsupported_call: openai: POST /v1/chat/completions (model m): the provider")
    assert "set OPENAI_BASE_URL to the address that it redirects to" in error_of(traffic)
    assert "secret" not in error_of(traffic)
    assert "set OPENAI_BASE_URL to the address that it redirects to" in error_of(traffic)
    with replaying() as gateway, (replayed := gateway.open_case("one", stored(traffic))).active():
        assert post(gateway).status_code == 307
    assert "unsupported_call" in error_of(replayed)


@pytest.mark.parametrize("mode", ["record", "live", "fixture"])
@pytest.mark.parametrize(
    "path",
    [
        *("/v1@OTHER/chat/completions", "/v1/@OTHER", "/v1:pw@OTHER/x", "/v1\\@OTHER/x", "/v1/a\\b", "/v1#@OTHER/x"),
        *("/v1/../admin", "/v1/..", "/v1/./x", "/../x?y", "/v1/%2e%2e/admin", "/v1/.%2E/x", "/v1/a%2Fb", "/v1/a%2fb"),
        *("/v1/a%5Cb", "/v1/a%5cb", "/v1/a%0ab", "/v1/a%00", "/v1/a%1f", "/v1/a%7F", "/v1%2f@OTHER/x"),
    ],
)
def test_a_path_that_could_lead_elsewhere_is_refused_in_every_mode(path: str, mode: str) -> None:
    with FakeServer(scripted(openai_reply("elsewhere"))) as other, FakeServer(scripted(openai_reply("x"))) as server:
        serving = replaying() if mode == "fixture" else recording(server.url, record=mode == "record")
        with serving as gateway:
            gateway.upstreams |= {"openai": server.url, "gemini": server.url}
            for provider in ("openai", "gemini"):
                target = f"/{provider}{path.replace('OTHER', other.url.removeprefix('http://'))}"
                with (traffic := gateway.open_case("one")).active():
                    received = sent(gateway, target, **{"content-length": "0", "authorization": "Bearer mine"})
                assert received.startswith("HTTP/1.1 400")
                assert "a path has no @, \\ or #, no step . or .., and none of these encoded" in error_of(traffic)
        assert (server.requests, other.requests) == ([], [])


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1.OTHER/x", "/.OTHER/x"),
        ("/v1OTHER/x", "/OTHER/x"),
        ("/v18080/x", "/8080/x"),
        ("/v1:1/x", "/:1/x"),
        ("/v1//OTHER/x", "/OTHER/x"),
        ("/v1?x=@OTHER/..%2f#y", "/?x=@OTHER/..%2f#y"),
        ("/v1/a..b/.c/d.?e", "/a..b/.c/d.?e"),
        ("/v1/models/gpt-4.1%20a%3Ab%40c", "/models/gpt-4.1%20a%3Ab%40c"),
    ],
)
@pytest.mark.parametrize("base", ["", "/own/v1"])
def test_scheme_host_and_port_are_those_of_the_setting(path: str, asked: str, base: str) -> None:
    with FakeServer(scripted(openai_reply("elsewhere"))) as other, FakeServer(scripted(openai_reply("x"))) as server:
        host = other.url.removeprefix("http://")
        with recording(server.url, record=False) as gateway:
            gateway.upstreams |= {"openai": server.url + base}
            sent(gateway, f"/openai{path.replace('OTHER', host)}", **{"content-length": "0"})
        (request,) = server.requests
        expected = asked.replace("OTHER", host)
        whole = base + path.removeprefix("/v1").replace("OTHER", host) if base else expected
        assert (request.path, request.headers["host"]) == (whole, server.url.removeprefix("http://"))
        assert other.requests == []


def given_up(gateway: Gateway, text: str, *, model: str = "m") -> None:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    with pytest.raises(httpx.ReadTimeout):
        post(gateway, body=body, timeout=0.2)


def test_a_call_that_its_client_gave_up_is_an_error_unless_another_one_succeeded() -> None:
    def answer(received: Received) -> Reply:
        return Reply(hang=True) if "slow" in received.json()["model"] else openai_reply("x")

    def asked(gateway: Gateway, *calls: tuple[str, str]) -> CaseTraffic:
        with (traffic := gateway.open_case("one")).active():
            for model, text in calls:
                if model == "slow":
                    given_up(gateway, text, model=model)
                else:
                    post(gateway, body={**BODY, "messages": [{"role": "user", "content": text}]})
        return traffic

    with FakeServer(answer) as server, recording(server.url) as gateway:
        swallowed = asked(gateway, ("fast", "a"), ("slow", "b"))
        expected = "timeout: openai: POST /v1/chat/completions (model slow): the client gave up before an answer began"
        assert error_of(swallowed) == expected
        # the exception says it
        assert swallowed.unrecovered_error(returned=False) is None
        assert error_of(asked(gateway, ("slow", "b"), ("fast", "c"))) == ""


@pytest.mark.parametrize("mode", ["record", "live", "fixture"])
@pytest.mark.parametrize("child", [False, True])
def test_a_request_that_is_refused_is_an_error_of_its_case(mode: str, *, child: bool) -> None:
    too_long = {"content-length": str(MAX_BODY_BYTES + 1)}
    with FakeServer(scripted(openai_reply("x"))) as server:
        serving = replaying() if mode == "fixture" else recording(server.url, record=mode == "record")
        with serving as gateway:
            for path, headers, status, reason in (
                ("/mistral/v1/chat/completions?key=sk-1", {}, 404, "packbench's gateway serves openai, anthropic"),
                (PATH, too_long, 413, "packbench's gateway takes bodies of 32 MiB at most"),
                (PATH, {"x-long": "x" * MAX_HEAD_BYTES}, 431, "the head of the request is too long"),
                (f"{PATH}?{'x' * MAX_HEAD_BYTES}", {}, 431, "the head of the request is too long"),
            ):
                with (traffic := gateway.open_case("one")).active():
                    stamp = {} if child else {stamps.CASE_HEADER: traffic.token}
                    way = f"/case/{traffic.token}" if child else ""
                    received = sent(gateway, way + path, **{**stamp, **headers})
                assert received.startswith(f"HTTP/1.1 {status}")
                assert error_of(traffic).startswith(f"unsupported_call: POST {path.partition('?')[0]}: {reason}")
                assert bool(traffic.mismatch) == (mode == "fixture")
                assert (traffic.calls, traffic.unattributed) == ([], "")
            # without the secret, it may be anyone's
            with (traffic := gateway.open_case("one")).active():
                sent(gateway, "/x", first="wrong")
            assert error_of(traffic) == ""
        assert server.requests == []


def sent(gateway: Gateway, path: str, *, first: str = "", **headers: str) -> str:
    """Send a head, and return what comes back."""
    host = "{}:{}".format(*gateway.address)
    fields = {"host": host, "connection": "close", **headers}
    target = f"/{first or gateway.url.rpartition('/')[2]}{path}"
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    with socket.create_connection(gateway.address, 10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received.decode()


def test_a_login_in_the_address_is_sent_where_the_client_sends_none_and_never_shown() -> None:
    with FakeServer(scripted(openai_reply("x"))) as server, recording(server.url) as gateway:
        host = server.url.removeprefix("http://")
        gateway.upstreams |= upstreams_of({"OLLAMA_HOST": f"bob:p%40ss-w0rd@{host}"})
        with (traffic := gateway.open_case("one")).active(), httpx.Client(trust_env=False) as client:
            url = f"{gateway.url}/ollama/api/chat"
            client.post(url, json=BODY)
            client.post(url, json=BODY, headers={"authorization": "Bearer mine"})
            gateway.upstreams |= upstreams_of({"OLLAMA_HOST": f"http://bob:p%40ss-w0rd@127.0.0.1:{closed_port()}"})
            failed = client.post(url, json=BODY)
    expected = "Basic " + b64encode(b"bob:p@ss-w0rd").decode()
    assert [request.headers["authorization"] for request in server.requests] == [expected, "Bearer mine"]
    assert server.requests[0].headers["host"] == host
    assert "no answer from http://127.0.0.1" in error_of(traffic)
    everything = failed.text + error_of(traffic) + str([call.as_exchange() for call in traffic.calls])
    assert not [word for word in ("bob", "w0rd", expected) if word in everything]


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_nothing_is_sent_again_after_the_provider_closed_a_kept_connection(method: str) -> None:
    whole = [head("content-length: 2", "content-type: application/json"), b"{}"]
    wires = iter([whole, [CLOSE], whole, whole])
    ledger = Ledger(Caps())
    with RawServer(lambda _: next(wires)) as server, recording(server.url, ledger=ledger) as gateway:
        with (traffic := gateway.open_case("one")).active(), httpx.Client(trust_env=False) as client:
            path = "chat/completions" if method == "POST" else "models"
            url = f"{gateway.url}/openai/v1/{path}"
            statuses = [client.request(method, url).status_code for _ in range(3)]
        assert (statuses, len(server.requests)) == ([200, 502, 200], 3)
        assert (ledger.calls, len(traffic.calls)) == (3 if method == "POST" else 0, 3)
        assert "closed without an answer" in str(traffic.calls[1].error)


def test_variables_of_one_provider_may_not_lead_to_different_addresses() -> None:
    for same in (
        {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://a/v1/"},
        {"OLLAMA_HOST": "127.0.0.1", "OLLAMA_BASE_URL": "http://localhost:11434/v1"},
        {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "", "ANTHROPIC_BASE_URL": "http://b"},
    ):
        assert conflict_in(same) == ""
    other = {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://bob:pw@b/v1?key=1"}
    assert conflict_in(other) == (
        "OPENAI_BASE_URL=http://a/v1 and OPENAI_API_BASE=http://b/v1 lead to different addresses of openai; "
        "set one of them"
    )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
def test_clients_of_ollama_may_speak_the_protocol_of_openai(path: str) -> None:
    with FakeServer(scripted(openai_reply("x"))) as server, recording(server.url) as gateway:
        gateway.upstreams |= upstreams_of({"OLLAMA_BASE_URL": f"{server.url}/v1"})
        with (traffic := gateway.open_case("one")).active():
            # where the variable ended in /v1, the client adds none
            assert post(gateway, f"/ollama{path}").status_code == 200
    (exchange,) = stored(traffic)
    assert (server.requests[0].path, exchange.path) == ("/v1/chat/completions",) * 2
    assert (exchange.usage is not None, error_of(traffic)) == (True, "")
