"""A call that its client ended, or whose provider was not there, ends so again: a replay takes the way of the recording."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import time
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import ollama
import openai
import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.gateway import Serving, service
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.model.run import RunOptions
from tests.cassettes import authored_cassette
from tests.engine.attempts import RunnerContext, context, hang, job
from tests.engine.gateway.gateways import (
    CHAT,
    KEY,
    error_of,
    post,
    question,
    recorded,
    replayed,
    replaying,
    stored,
)
from tests.engine.gateway.test_upstream import ANSWER, BEGUN, EVENTS, STREAM, ask, both, client
from tests.servers.fake import FakeServer, Reply, closed_port
from tests.servers.raw import CLOSE, RawServer, head
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_packbench.engine.gateway import Gateway
    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.request import VerifyRequest
    from tests.servers.fake import Received


def by_model(received: Received) -> Reply:
    """Each model answers with its name: `slow` never, `late` after a while."""
    model = (received.json() or {}).get("model", "")
    return (
        Reply(hang=True) if model == "slow" else Reply(body=openai_reply(model).body, delay_s=0.4 * (model == "late"))
    )


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(by_model) as fake:
        yield fake


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_SLACK_S", 0.2)


async def said(asking: openai.AsyncOpenAI, model: str) -> str | None:
    answer = await asking.chat.completions.create(model=model, messages=question("x")["messages"])
    return answer.choices[0].message.content


def in_loop(function: Callable[[openai.AsyncOpenAI], Any]) -> Callable[[Gateway], Any]:
    async def run(gateway: Gateway) -> Any:
        url = gateway.environment()["OPENAI_BASE_URL"]
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as asking:
            return await function(asking)

    return lambda gateway: asyncio.run(run(gateway))


async def waited_for(asking: openai.AsyncOpenAI) -> Any:
    try:
        return await asyncio.wait_for(said(asking, "slow"), 0.6)
    except TimeoutError:
        return await said(asking, "quick")


async def limited_as_a_whole(asking: openai.AsyncOpenAI) -> Any:
    try:
        async with asyncio.timeout(1):
            return [await said(asking, name) for name in ("late", "slow")]
    except TimeoutError:
        return await said(asking, "quick")


def raced(*names: str) -> Callable[[Gateway], Any]:
    async def race(asking: openai.AsyncOpenAI) -> Any:
        tasks = [asyncio.create_task(said(asking, name)) for name in names]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        return [task.result() for task in done]

    return in_loop(race)


async def hedged(asking: openai.AsyncOpenAI) -> Any:
    first = asyncio.create_task(said(asking, "late"))
    done, _ = await asyncio.wait([first], timeout=0.2)
    second = None if done else asyncio.create_task(said(asking, "slow"))
    try:
        return await first, second is not None
    finally:
        if second is not None:
            second.cancel()


def timed_out(gateway: Gateway, *names: str, limit_s: float = 0.6) -> list[Any]:
    """The answers of some models, or what kept them from answering; by default, the second one is a fallback."""
    found: list[Any] = []
    with client(gateway, timeout=limit_s, max_retries=0) as asking:
        for name in names or ("slow", "quick"):
            try:
                answer = asking.chat.completions.create(model=name, messages=question("x")["messages"])
                found.append(answer.choices[0].message.content)
            except openai.APIConnectionError as error:
                found.append(type(error))
    return found


WAYS = [
    (timed_out, ["aborted", "complete"]),
    (in_loop(waited_for), ["aborted", "complete"]),
    (in_loop(limited_as_a_whole), ["complete", "aborted", "complete"]),
    (raced("slow", "late"), ["aborted", "complete"]),
    (raced("late", "slow"), ["complete", "aborted"]),
    (raced("slow", "late", "slow"), ["aborted", "complete", "aborted"]),
    (in_loop(hedged), ["complete", "aborted"]),
]


@pytest.mark.parametrize(
    ("act", "ends"), WAYS, ids=["timeout", "wait_for", "whole", "lost", "lost later", "three", "hedged"]
)
def test_a_call_that_its_client_ends_is_ended_again_and_the_others_answer(
    server: FakeServer, act: Callable[[Gateway], Any], ends: list[str]
) -> None:
    traffic, again, exchanges = both(server.url, act)
    assert sorted(exchange.end for exchange in exchanges) == sorted(ends)
    assert [error_of(each) for each in (traffic, again)] == ["", ""]
    # no longer than the client's own limit
    assert again.waited_s < traffic.recorded_wait_s + 2
    for _ in range(5):
        # the first answer does not come before the others are asked
        left = replayed(exchanges, act)
        left.finish()
        assert left.mismatch == ""


@pytest.mark.parametrize("begun", [True, False])
def test_a_stream_that_stalls_does_so_again_until_the_client_leaves(*, begun: bool) -> None:
    def read(gateway: Gateway) -> list[str]:
        parts: list[str] = []
        with client(gateway, timeout=0.3, max_retries=0) as asking:
            try:
                stream = asking.chat.completions.create(model="m", messages=question("x")["messages"], stream=True)
                parts += [part.choices[0].delta.content or "" for part in stream]
            except (httpx.TimeoutException, openai.APITimeoutError) as error:
                parts.append(type(error).__name__)
        return parts

    with RawServer(lambda _: [*(BEGUN if begun else BEGUN[:1]), 600.0]) as server:
        _, again, (exchange,) = both(server.url, read)
    assert (exchange.end, exchange.content()) == ("aborted", EVENTS[0] * begun)
    assert 0.2 < again.waited_s < 5


def test_a_client_that_asks_again_after_its_own_limit_gets_the_later_answer() -> None:
    count = iter(range(9))
    with FakeServer(lambda _: Reply(hang=True) if next(count) < 1 else openai_reply("there")) as server:
        traffic, _, exchanges = both(server.url, lambda gateway: ask(gateway, timeout=0.3, max_retries=2))
    assert ([each.end for each in exchanges], error_of(traffic)) == (["aborted", "complete"], "")


def test_a_stream_that_is_left_open_ends_with_its_case() -> None:
    left: list[Any] = []

    def begin(gateway: Gateway) -> str | None:
        asking = client(gateway)
        stream = asking.chat.completions.create(model="m", messages=question("x")["messages"], stream=True)
        # neither read to its end nor closed
        left.append((asking, stream))
        return next(iter(stream)).choices[0].delta.content

    with RawServer(lambda _: [*BEGUN, 600.0]) as server:
        traffic, _, exchanges = both(server.url, begin)
    assert (exchanges[0].end, error_of(traffic)) == ("aborted", "")
    with replaying() as gateway:
        with (again := gateway.open_case("one", exchanges)).active():
            begin(gateway)
            assert again.tasks
        assert (again.tasks, again.mismatch) == ({}, "")
    for asking, _ in left:
        asking.close()


@pytest.mark.usefixtures("impatient")
def test_a_client_that_waits_longer_than_before_is_a_mismatch(server: FakeServer) -> None:
    exchanges = stored(recorded(server.url, timed_out))
    found: list[Any] = []
    begun = time.monotonic()
    again = replayed(exchanges, lambda gateway: found.extend(timed_out(gateway, limit_s=20)))
    assert "its client gave it up when it was recorded, and waits for" in again.mismatch
    assert found == [openai.APIConnectionError, "quick"]
    assert time.monotonic() - begun < 5


@pytest.mark.usefixtures("impatient")
def test_a_race_without_its_loser_and_a_pipeline_that_does_not_wait_are_mismatches(server: FakeServer) -> None:
    for act, now in (
        (raced("late", "slow"), raced("late")),
        (timed_out, lambda gateway: timed_out(gateway, "quick")),
    ):
        again = replayed(stored(recorded(server.url, act)), now)
        again.finish()
        assert "the target's own client made only 1 of the 2 recorded calls" in again.mismatch


def test_an_older_recording_of_a_call_that_was_ended_breaks_off_as_before(server: FakeServer) -> None:
    (exchange, _) = stored(recorded(server.url, timed_out))
    known = exchange.model_dump(mode="json", exclude_unset=True)
    older = type(exchange).model_validate({k: v for k, v in known.items() if k not in {"began_ms", "ended_ms"}})

    found: list[Any] = []
    again = replayed([older], lambda gateway: found.extend(timed_out(gateway, "slow", limit_s=20)))
    assert (found, again.waited_s) == ([openai.APIConnectionError], 0)


def test_times_are_recorded_only_where_a_client_ended_a_call(server: FakeServer) -> None:
    plain = recorded(server.url, lambda gateway: post(gateway, "x"))
    assert not [key for key in plain.as_exchanges()[0] if key.endswith("_ms")]
    first, second = recorded(server.url, timed_out).as_exchanges()
    assert 0 <= first["began_ms"] < second["began_ms"] <= second["ended_ms"]
    assert first["ended_ms"] - first["began_ms"] >= 200


def call(model: str, kind: str = "", path: str = CHAT, **times: float) -> RecordedCall:
    made = RecordedCall.of("openai", "POST" if path == CHAT else "GET", path, question(model).__repr__().encode())
    made.end, made.status = "complete", None if kind == "network" else 200
    made.error = BackendError(kind, "x") if kind else None
    made.began, made.ended = times.get("began", 0.0), times.get("ended", 0.0)
    return made


LISTING = "/v1/models"


@pytest.mark.parametrize(
    ("calls", "recovered"),
    [
        ([call("a", "network", ended=1), call("b", ended=2)], True),
        ([call("a", "network", ended=1)], False),
        ([call("a", ended=1), call("b", "network", began=2, ended=3)], False),
        # at once, and the first one lasted longer
        ([call("a", ended=4), call("b", "network", began=2, ended=3)], True),
        # no model has answered
        ([call("a", "network", ended=1), call("b", path=LISTING, ended=2)], False),
        ([call("a", "network", path=LISTING, ended=1), call("b", ended=2)], True),
        ([call("a", "network", ended=1), call("b", "server_error", ended=2)], False),
    ],
)
def test_a_failure_is_recovered_by_an_answer_of_a_model_after_it(calls: list[RecordedCall], *, recovered: bool) -> None:
    with replaying() as gateway:
        traffic = gateway.open_case("one")
    traffic.calls += calls
    assert (traffic.unrecovered_error() is None) is recovered
    # unless that is what the suite tests
    assert traffic.unrecovered_error(tests_fallback=True) is None


def get(library: Any) -> Callable[[str], Any]:
    return lambda url: library.Client(trust_env=False).get(f"{url}/api/tags")


async def get_async(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as asking:
        await asking.get(f"{url}/api/tags")


def get_plain(url: str) -> None:
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host)
    connection.request("GET", f"/{path}/api/tags")
    connection.getresponse()


REFUSED: list[tuple[Callable[[str], Any], type[Exception]]] = [
    (get(httpx), httpx.ConnectError),
    (lambda url: asyncio.run(get_async(url)), httpx.ConnectError),
    (lambda url: ollama.Client(url).list(), ConnectionError),
    (
        lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=1).models.list(),
        openai.APIConnectionError,
    ),
    (lambda url: urllib.request.urlopen(f"{url}/api/tags"), ConnectionRefusedError),  # noqa: S310
    (get_plain, ConnectionRefusedError),
]


@pytest.mark.parametrize(
    ("act", "expected"), REFUSED, ids=["httpx", "async", "ollama", "openai", "urllib", "http.client"]
)
@pytest.mark.parametrize("mode", ["live", "record"])
def test_a_provider_that_is_not_there_is_a_refused_connection_in_each_mode(
    act: Callable[[str], Any], expected: type[Exception], mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{closed_port()}")
    exchanges: list[GatewayExchange] = []
    for each in (mode, "fixture"):
        served = Serving(each)
        served.start()
        try:
            traffic = served.open_case(None, "one", exchanges or None)
            assert traffic is not None
            assert served.gateway is not None
            with traffic.active(), pytest.raises(expected) as raised:
                act(f"{served.gateway.url}/ollama")
        finally:
            served.stop()
        if expected in {httpx.ConnectError, ConnectionRefusedError}:
            assert os.strerror(errno.ECONNREFUSED) in str(raised.value)
        exchanges = exchanges or [each for each in stored(traffic) if each.end == "refused"]
        assert exchanges[0].status is None
        assert exchanges[0].headers == {}


@pytest.mark.parametrize("wire", [[CLOSE], [head(f"content-length: {len(ANSWER)}"), ANSWER[:50], CLOSE]])
def test_a_provider_that_closes_the_connection_does_so_again(wire: list[bytes]) -> None:
    def act(gateway: Gateway) -> str:
        try:
            return str(ask(gateway, max_retries=0))
        except openai.APIConnectionError as error:
            return f"{type(error)} {type(error.__cause__)}"

    with RawServer(lambda _: wire) as server:
        traffic, _, (exchange,) = both(server.url, act)
    assert (exchange.end, error_of(traffic)[:7]) == ("cut", "network")


def test_the_head_of_a_stream_is_passed_on_before_its_first_event() -> None:
    found: list[str] = []

    def act(gateway: Gateway) -> None:
        with httpx.stream("POST", f"{gateway.url}{CHAT}", json={}, trust_env=False, timeout=0.3) as answer:
            found.append(answer.headers["x-request-id"])

    with RawServer(
        lambda _: [head(f"content-type: {STREAM}", "x-request-id: r1", "transfer-encoding: chunked"), 9.0]
    ) as server:
        replayed(stored(recorded(server.url, act)), act)
    assert found == ["r1", "r1"]


@pytest.mark.parametrize("at_once", [True, False])
def test_the_recorded_wait_is_not_charged_to_the_time_limit(
    server: FakeServer, tmp_path: Path, *, at_once: bool
) -> None:
    exchanges = recorded(server.url, timed_out).as_exchanges()
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "a.json").write_text(json.dumps(authored_cassette("a", {}, [], gateway=exchanges)))
    served = Serving("fixture")
    served.start()

    def target(request: VerifyRequest) -> dict[str, float]:
        assert served.gateway is not None
        assert timed_out(served.gateway) == [openai.APITimeoutError, "quick"]
        if hangs:
            hang()
        return {"points": 1.0}

    limited = RunOptions(mode="fixture", case_timeout_s=0.2)
    shared = replace(context(tmp_path, target, mode="fixture"), serving=served, options=limited)
    try:
        for hangs in (False, True):
            if at_once:
                with RunnerContext(limit_s=0.2) as runner:
                    done = runner.attempt(job(shared))
            else:
                done = attempt(shared, job(shared).loaded)
            assert (done.failure.kind if done.failure else "") == ("timeout" if hangs else "")
            assert done.waited_ms >= 200 or hangs
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        # what came can't be used
        ([head("content-type: application/json", "content-length: 500"), b'{"choices": [', 600.0], "timeout"),
        (BEGUN[:1], "timeout"),
        # a stream may be read in part
        (BEGUN, ""),
    ],
)
def test_a_client_that_leaves_without_anything_to_use_has_no_answer(wire: list[bytes | float], kind: str) -> None:
    def left(gateway: Gateway) -> None:
        with pytest.raises(httpx.ReadTimeout):
            post(gateway, timeout=0.3)

    with RawServer(lambda _: [*wire, 600.0]) as server:
        traffic = recorded(server.url, left)
    assert (traffic.calls[0].end, error_of(traffic).partition(":")[0]) == ("aborted", kind)
