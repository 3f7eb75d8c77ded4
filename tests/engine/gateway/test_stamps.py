"""A request to the gateway carries the stamp of the case whose work it is: by real clients, pools, tasks and threads."""

from __future__ import annotations

import asyncio
import contextvars
import http.client
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import httpx2
import pytest
import requests

from pytest_packbench.engine.gateway.stamps import (
    CALLER_HEADER,
    CASE_HEADER,
    caller_of,
    install,
    running_work,
    stamped,
)
from pytest_packbench.engine.offline import OfflineError, offline
from tests.doc_blocks import ROOT
from tests.servers.fake import FakeServer, Reply, scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

WAIT_S = 30.0


class Served(NamedTuple):
    """A gateway's address, another path of its server, and the stamps that have arrived at any path."""

    server: FakeServer
    url: str
    elsewhere: str

    def stamps(self) -> list[str | None]:
        return [request.headers.get(CASE_HEADER) for request in self.server.requests]

    def last(self) -> tuple[str | None, str]:
        headers = self.server.requests[-1].headers
        return headers.get(CASE_HEADER), caller_of(headers.get(CALLER_HEADER, ""))


@pytest.fixture
def gateway() -> Iterator[Served]:
    with FakeServer(scripted(Reply(body={}))) as server:
        undo = install(f"{server.url}/secret")
        yield Served(server, f"{server.url}/secret/openai/v1/models", f"{server.url}/other")
        undo()


def with_http_client(url: str) -> None:
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host)
    connection.request("POST", f"/{path}", body=b"{}")
    connection.getresponse().read()
    connection.close()


def with_urllib(url: str) -> None:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - a server of this test
        answer.read()


def with_keyword(url: str) -> None:
    with httpx2.Client() as client:
        client.send(request=client.build_request("GET", url), stream=False)


def with_a_subclass(url: str) -> None:
    class Client(httpx.Client):
        def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            return super().send(request, **options)

    with Client() as client:
        client.get(url)


async def with_httpx(url: str) -> None:
    async with httpx.AsyncClient(verify=False) as client:  # noqa: S501 - there is no TLS
        await client.get(url)


async def with_httpx2(url: str) -> None:
    async with httpx2.AsyncClient(verify=False) as client:
        await client.send(request=client.build_request("GET", url))


async def with_aiohttp(url: str) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.read()


SYNC: list[Callable[[str], Any]] = [
    *(with_http_client, with_urllib, with_keyword, with_a_subclass),
    *(requests.get, httpx.get, httpx2.get),
]
ASYNC: list[Callable[[str], Awaitable[None]]] = [with_httpx, with_httpx2, with_aiohttp]


def ask(url: str) -> None:
    httpx.get(url, verify=False)  # noqa: S501 - there is no TLS


def here() -> str:
    frame = sys._getframe(1)  # noqa: SLF001 - the line of the caller
    return f"{__file__}:{frame.f_lineno}"


@pytest.mark.parametrize("call", SYNC)
def test_sync_clients_carry_the_stamp_and_the_place(gateway: Served, call: Callable[[str], Any]) -> None:
    with stamped("a"):
        call(gateway.url)
        call(gateway.elsewhere)
        with stamped("b"):
            call(gateway.url)
    call(gateway.url)
    assert gateway.stamps() == ["a", None, "b", None]
    places = [caller_of(request.headers.get(CALLER_HEADER, "")) for request in gateway.server.requests]
    assert [place.rpartition(":")[0] for place in places] == [__file__, "", __file__, __file__]


@pytest.mark.parametrize("call", ASYNC)
def test_async_clients_carry_those_of_their_task(gateway: Served, call: Callable[[str], Awaitable[None]]) -> None:
    async def case(name: str) -> None:
        with stamped(name):
            await asyncio.sleep(0)
            await asyncio.gather(call(gateway.url), call(gateway.url))
            # below in the stack, as the first user's frame
            await call(gateway.elsewhere)

    async def main() -> None:
        await asyncio.gather(*(case(f"c{number}") for number in range(8)))
        await call(gateway.url)

    asyncio.run(main())
    stamps = sorted(stamp for stamp in gateway.stamps() if stamp)
    assert stamps == sorted([f"c{number}" for number in range(8)] * 2)
    assert gateway.last()[0] is None
    assert gateway.last()[1].startswith(__file__)


def test_the_place_is_the_first_line_outside_of_libraries(gateway: Served) -> None:
    with stamped("a"):
        _, line = httpx.get(gateway.url), here()
    assert gateway.last() == ("a", line)
    code = compile("import httpx\nhttpx.get(url)", "/Über 100%.py", "exec")
    exec(code, {"url": gateway.url})  # noqa: S102 - code in a file whose name no header can have
    assert gateway.last() == (None, "/Über 100%.py:2")


def test_a_request_that_is_sent_again_has_the_stamp_of_its_last_sender(gateway: Served) -> None:
    with httpx.Client() as client:
        request = client.build_request("GET", gateway.url)
        for name in ("a", "b"):
            with stamped(name):
                client.send(request)
        client.send(request)
    assert gateway.stamps() == ["a", "b", None]


def test_work_for_a_pool_has_the_stamp_of_its_submitter(gateway: Served) -> None:
    call = partial(ask, gateway.url)
    with ThreadPoolExecutor(1) as pool:
        with stamped("a"):
            # the thread of the pool starts inside this case
            pool.submit(call).result()
            list(pool.map(ask, [gateway.url]))
        with stamped("b"):
            pool.submit(call).result()
        pool.submit(call).result()
        # a context that was copied by hand, as libraries do, wins
        with stamped("c"):
            context = contextvars.copy_context()
        pool.submit(context.run, call).result()
    assert gateway.stamps() == ["a", "a", "b", None, "c"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_none(gateway: Served) -> None:
    with stamped("a"), warnings.catch_warnings():
        # of threads that are not forked: the server's, which the child does not need
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            with_http_client(gateway.url)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with_http_client(gateway.url)
    assert gateway.stamps() == [None, "a"]


async def serve(queue: asyncio.Queue[Any], url: str) -> None:
    async with httpx.AsyncClient(verify=False) as client:  # noqa: S501 - there is no TLS
        while (answered := await queue.get()) is not None:
            await client.get(url)
            answered.set_result(None)


def serve_on_thread(opened: threading.Event, ended: threading.Event, url: str) -> None:
    httpx.get(url)
    opened.set()
    ended.wait(WAIT_S)


def test_work_that_outlives_its_case_after_a_call_is_named(gateway: Served) -> None:
    async def main() -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        with stamped("a"):
            await asyncio.create_task(with_httpx(gateway.url))
            worker = asyncio.create_task(serve(queue, gateway.url), name="lazy")
            # this one makes no call
            idle = asyncio.create_task(queue.join())
            assert running_work("a") == []
            for _ in range(2):
                answered = asyncio.get_running_loop().create_future()
                queue.put_nowait(answered)
                await answered
            await with_httpx(gateway.url)
        code = serve.__code__
        described = f'the task "lazy" (serve, {code.co_filename}:{code.co_firstlineno})'
        assert running_work("a") == [described]
        with stamped("b"):
            await asyncio.gather(with_httpx(gateway.url), asyncio.to_thread(ask, gateway.url))
            assert running_work("b") == []
        queue.put_nowait(None)
        await worker
        assert running_work("a") == []
        idle.cancel()

    asyncio.run(main())
    assert running_work("never") == []


@pytest.mark.parametrize("how", ["submit", "to_thread"])
def test_so_is_work_of_a_pool(gateway: Served, how: str) -> None:
    opened, ended = threading.Event(), threading.Event()
    work = partial(serve_on_thread, opened, ended, gateway.url)

    async def in_a_thread() -> None:
        with stamped("a"):
            running = asyncio.create_task(asyncio.to_thread(serve_on_thread, opened, ended, gateway.url))
            assert await asyncio.to_thread(opened.wait, WAIT_S)
        check()
        ended.set()
        await running

    def check() -> None:
        with stamped("b"):
            assert [name for name in running_work("a") if "serve_on_thread, " in name] == running_work("a") != []
            assert running_work("b") == []

    if how == "to_thread":
        asyncio.run(in_a_thread())
    else:
        with ThreadPoolExecutor(1) as pool:
            with stamped("a"):
                running = pool.submit(work)
                assert opened.wait(WAIT_S)
            check()
            ended.set()
            running.result()
    assert running_work("a") == []


def test_a_loop_that_a_case_started_serves_others_with_their_stamps(gateway: Served) -> None:
    loop, running = asyncio.new_event_loop(), {}
    with ThreadPoolExecutor(1) as pool:
        for name in ("a", "b"):
            with stamped(name):
                if name == "a":
                    pool.submit(loop.run_forever)
                asyncio.run_coroutine_threadsafe(with_httpx(gateway.url), loop).result(WAIT_S)
                running[name] = len(running_work(name))
        loop.call_soon_threadsafe(loop.stop)
    loop.close()
    assert gateway.stamps() == ["a", "b"]
    # whom it serves with the first stamp is not known
    assert running == {"a": 1, "b": 0}


LATE = """
import importlib, importlib.util, json, sys
from pytest_packbench.engine.gateway.stamps import install, stamped

class Other:
    # an importer that was there before and sees each import
    seen = []
    @classmethod
    def find_spec(cls, name, path, target=None):
        cls.seen.append(name)

sys.meta_path.insert(0, Other)
before = list(sys.meta_path)
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
starts = ThreadPoolExecutor.submit, Thread.start
clients = ["http.client", "httpx", "httpx2", *sys.argv[2:]]
assert not set(clients) & set(sys.modules), "imported too early"
undo = install(sys.argv[1])
first = importlib.import_module(clients[1])
undo_again = install(sys.argv[1] + "/never")
for name in clients:
    assert importlib.util.find_spec(name).loader.get_code(name) is not None
    module = importlib.import_module(name)
    for loader in (module.__loader__, module.__spec__.loader):
        assert type(loader).__module__.startswith("_frozen_importlib"), loader
    importlib.reload(module)
    assert name in Other.seen
import httpx, httpx2, asyncio
url = sys.argv[1] + "/openai/v1"
with stamped("late"):
    httpx.get(url), httpx2.get(url)
    import urllib.request
    urllib.request.urlopen(url).read()
    if "aiohttp" in clients:
        import aiohttp
        async def main():
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                await answer.read()
        asyncio.run(main())
    undo_again()
    undo()
    assert sys.meta_path == before
    assert (ThreadPoolExecutor.submit, Thread.start) == starts
    httpx.get(url), httpx2.get(url)
    importlib.reload(importlib.import_module("http.client"))
    urllib.request.urlopen(url).read()
"""


def test_clients_that_are_imported_later_are_stamped_too(gateway: Served) -> None:
    extra = ["aiohttp"] if importlib.util.find_spec("aiohttp") else []
    base = gateway.url.removesuffix("/openai/v1/models")
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(LATE), base, *extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.stderr == ""
    assert gateway.stamps() == ["late"] * (3 + len(extra)) + [None] * 3


@pytest.mark.parametrize("first", [0, 1])
def test_two_gateways_are_undone_in_any_order(gateway: Served, first: int) -> None:
    def patched() -> list[Any]:
        clients = httpx.Client.send, httpx.AsyncClient.send, http.client.HTTPConnection.putrequest
        # one that is undone before a later one leaves the functions of clients wrapped
        return [sys.meta_path[:], ThreadPoolExecutor.submit, *(clients if first == 1 else ())]

    before = patched()
    urls = [f"{gateway.server.url}/{name}" for name in ("one", "two")]
    undos = [install(url) for url in urls]
    with stamped("a"):
        undos.pop(first)()
        for url in urls:
            requests.get(f"{url}/x", timeout=WAIT_S)
            httpx.get(f"{url}/x")
        undos.pop()()
        httpx.get(f"{urls[0]}/x")
    assert gateway.stamps() == [*([None, None, "a", "a"] if first == 0 else ["a", "a", None, None]), None]
    assert patched() == before


def test_the_offline_guard_and_the_stamps_know_the_same_work(gateway: Served) -> None:
    undo = install(f"{gateway.server.url}/more")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with offline("one", allow_processes=False) as violations, stamped("a"), pytest.raises(OfflineError):
            pool.submit(ask, gateway.url).result()
        # the stamps go, the guard stays
        undo()
        with offline("two", allow_processes=False) as more, pytest.raises(OfflineError):
            pool.submit(ask, gateway.url).result()
        with stamped("b"):
            pool.submit(ask, gateway.url).result()
    line = ask.__code__.co_firstlineno + 1
    assert [f"case {name}: " in each[0] for name, each in (("one", violations), ("two", more))] == [True, True]
    assert all(f" at {__file__}:{line};" in each[0] for each in (violations, more))
    assert gateway.stamps() == ["b"]
