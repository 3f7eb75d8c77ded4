"""How pipelines call models: no call lands with the wrong case, and one that belongs to no case fails the recording.

Each pattern is run by cases one after the other and by eight at once, with a real client that was made before them.
The server numbers its answers, so that those of one case can't be taken for those of another.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from pytest_packbench.engine.gateway.stamps import install
from pytest_packbench.engine.offline import take_late
from pytest_packbench.engine.targets import run_in_thread
from tests.engine.gateway.gateways import KEY, recording, replaying, stored
from tests.servers.fake import FakeServer, Received, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway

CASES = 8
CALLS = 3
WAIT_S = 30.0


class Clients:
    """A pipeline's clients, made at import, and what it shares between cases."""

    def __init__(self) -> None:
        options: dict[str, Any] = {"api_key": KEY, "max_retries": 3}
        # without TLS they are made at once; with no idle connections there are none to close
        http: dict[str, Any] = {"verify": False, "limits": httpx2.Limits(max_keepalive_connections=0)}
        self.sync = OpenAI(**options, http_client=httpx2.Client(**http))
        self.async_ = AsyncOpenAI(**options, http_client=httpx2.AsyncClient(**http))
        self.pool = ThreadPoolExecutor(4)
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.thread_queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.started: list[Any] = []

    def ask(self, prompt: str) -> str:
        answer = self.sync.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])
        return str(answer.choices[0].message.content)

    async def aask(self, prompt: str) -> str:
        answer = await self.async_.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])
        return str(answer.choices[0].message.content)

    async def serve_queue(self) -> None:
        while (item := await self.queue.get()) is not None:
            prompt, answered = item
            await settle(answered, self.aask(prompt))

    def serve_thread_queue(self) -> None:
        while (item := self.thread_queue.get()) is not None:
            prompt, answered = item
            try:
                answered.put(self.ask(prompt))
            except BadRequestError as error:
                answered.put(error)

    async def close(self) -> None:
        for _ in self.started:
            self.thread_queue.put(None)
            self.queue.put_nowait(None)
        for worker in self.started:
            if isinstance(worker, threading.Thread):
                await asyncio.to_thread(worker.join)
            elif isinstance(worker, asyncio.Task):
                await worker
        self.pool.shutdown()
        await self.async_.close()
        self.sync.close()


async def settle(answered: asyncio.Future[str], answer: Awaitable[str]) -> None:
    try:
        answered.set_result(await answer)
    except BadRequestError as error:
        answered.set_exception(error)


def prompts(case: str) -> list[str]:
    return [f"{case}: {number}" for number in range(CALLS)]


def threads(clients: Clients, case: str) -> list[str]:
    answers: dict[str, str] = {}

    def ask(prompt: str) -> None:
        answers[prompt] = ""
        with suppress(BadRequestError):
            answers[prompt] = clients.ask(prompt)

    made = [threading.Thread(target=ask, args=[prompt]) for prompt in prompts(case)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    return list(answers.values())


async def tasks(clients: Clients, case: str) -> list[str]:
    made = [asyncio.create_task(clients.aask(prompt)) for prompt in prompts(case)]
    return [await task for task in reversed(made)]


async def executor(clients: Clients, case: str) -> list[str]:
    loop = asyncio.get_running_loop()
    first, *others = prompts(case)
    done = [
        loop.run_in_executor(pool, clients.ask, text) for pool, text in zip((None, clients.pool), others, strict=True)
    ]
    return [await asyncio.to_thread(clients.ask, first), *(await asyncio.gather(*done))]


def awaited(text: str = "") -> Callable[[Clients, str], Any]:
    async def target(clients: Clients, case: str) -> list[str]:
        return [await clients.aask(f"{prompt}{text}") for prompt in prompts(case)]

    return target


def at_once(text: str = "") -> Callable[[Clients, str], Any]:
    async def target(clients: Clients, case: str) -> list[str]:
        return list(await asyncio.gather(*(clients.aask(text or prompt) for prompt in prompts(case))))

    return target


async def from_queue(clients: Clients, case: str) -> list[str]:
    answers = []
    for prompt in prompts(case):
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        clients.queue.put_nowait((prompt, answered))
        answers.append(await answered)
    return answers


def from_thread_queue(clients: Clients, case: str) -> list[str]:
    answers = []
    for prompt in prompts(case):
        answered: queue.SimpleQueue[Any] = queue.SimpleQueue()
        clients.thread_queue.put((prompt, answered))
        if isinstance(answer := answered.get(timeout=WAIT_S), Exception):
            raise answer
        answers.append(answer)
    return answers


def start_task(clients: Clients) -> Any:
    return asyncio.create_task(clients.serve_queue(), name="lazy")


def start_thread(clients: Clients) -> Any:
    thread = threading.Thread(target=clients.serve_thread_queue)
    thread.start()
    return thread


def start_pool_work(clients: Clients) -> Any:
    return clients.pool.submit(clients.serve_thread_queue)


class Pattern(NamedTuple):
    """How cases call models.

    Attributes:
        target: makes the calls of a case, returns the answers.
        together: whether they are attributed, eight at once.
        start: starts what serves the cases.
        lazy: whether the first case starts it; then only this one is attributed, one after the other.
    """

    target: Callable[[Clients, str], Any]
    together: bool = True
    start: Callable[[Clients], Any] | None = None
    lazy: bool = False

    async def run(self, clients: Clients, case: str) -> Any:
        """Run a case as the runner does: sync targets on threads."""
        if self.lazy:
            self.start_once(clients)
        target = partial(self.target, clients, case)
        return await (target() if asyncio.iscoroutinefunction(self.target) else run_in_thread(target))

    def start_once(self, clients: Clients) -> None:
        if self.start is not None and not clients.started:
            clients.started.append(self.start(clients))


STARTS = {
    "queue worker": (from_queue, start_task),
    "worker thread": (from_thread_queue, start_thread),
    "pool worker": (from_thread_queue, start_pool_work),
}
PATTERNS = {
    "one after the other": Pattern(lambda clients, case: [*map(clients.ask, prompts(case))]),
    "awaited": Pattern(awaited()),
    "tasks": Pattern(tasks),
    "gather": Pattern(at_once()),
    "retry after 429": Pattern(awaited(" overloaded")),
    "thread pool": Pattern(lambda clients, case: [*clients.pool.map(clients.ask, prompts(case))]),
    "executor": Pattern(executor),
    "identical prompts at once": Pattern(at_once("the same")),
    "bare threads": Pattern(threads, together=False),
    **{f"{name} outside": Pattern(target, together=False, start=start) for name, (target, start) in STARTS.items()},
    **{
        f"lazy {name}": Pattern(target, together=False, start=start, lazy=True)
        for name, (target, start) in STARTS.items()
    },
}


class Ended(NamedTuple):
    """A case that has ended."""

    traffic: CaseTraffic
    answers: list[str]


class Model:
    """A server that numbers its answers; it is overloaded at the first request of each prompt that says so."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.seen: set[str] = set()

    def __call__(self, received: Received) -> Reply:
        prompt = received.json()["messages"][0]["content"]
        if "overloaded" in prompt and prompt not in self.seen:
            self.seen.add(prompt)
            return Reply(status=429, headers={"retry-after-ms": "1"}, body={"error": {"message": "slow down"}})
        message = {"role": "assistant", "content": f"{prompt} -> {next(self.numbers)}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return Reply(body={"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def run(
    gateway: Gateway, pattern: Pattern, *, at_once: bool, recorded: dict[str, Ended] | None = None
) -> dict[str, Ended]:
    """Run all cases of a pattern, each in a task."""

    async def case(name: str, clients: Clients) -> Ended:
        traffic = gateway.open_case(name, None if recorded is None else stored(recorded[name].traffic))
        answers: list[str] = []
        with traffic.active():
            # those who wait for all to be active make sure of it
            await asyncio.sleep(0)
            try:
                answers = await pattern.run(clients, name)
            except BadRequestError:
                assert traffic.unattributed
        traffic.finish()
        return Ended(traffic, answers)

    async def main() -> dict[str, Ended]:
        clients = Clients()
        if not pattern.lazy:
            pattern.start_once(clients)
        names = [f"c{number}" for number in range(CASES)]
        try:
            if at_once:
                return dict(zip(names, await asyncio.gather(*(case(name, clients) for name in names)), strict=True))
            return {name: await case(name, clients) for name in names}
        finally:
            await clients.close()

    undo = install(gateway.url)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("OPENAI_BASE_URL", gateway.environment()["OPENAI_BASE_URL"])
            return asyncio.run(main())
    finally:
        undo()


def check_calls(name: str, ended: Ended) -> None:
    """Check that the recording of a case contains its calls, with the answers that it got, and no others."""
    calls = ended.traffic.calls
    answered = [call for call in calls if call.status == 200]
    contents = [
        exchange.body["choices"][0]["message"]["content"]
        for exchange in stored(ended.traffic)
        if exchange.status == 200
    ]
    assert sorted(contents) == sorted(ended.answers)
    assert len(answered) == CALLS
    asked = {call.body["messages"][0]["content"] for call in calls}
    assert asked == {"the same"} or all(prompt.startswith(f"{name}: ") for prompt in asked)


@pytest.mark.parametrize("at_once", [False, True], ids=["alone", "eight at once"])
@pytest.mark.parametrize("name", PATTERNS)
def test_no_call_lands_with_the_wrong_case(name: str, at_once: bool) -> None:
    pattern = PATTERNS[name]
    model = Model()
    with FakeServer(model) as server:
        with recording(server.url) as gateway:
            ended = run(gateway, pattern, at_once=at_once)
            late = take_late(None)
        made = len(server.requests)
        attributed = {case for case, each in ended.items() if not each.traffic.unattributed}
        first = {"c0"} if pattern.lazy else set(ended)
        assert attributed == ((set(ended) if pattern.together else set()) if at_once else first)
        for case in attributed:
            check_calls(case, ended[case])
        for case in set(ended) - attributed:
            message = ended[case].traffic.unattributed
            assert "POST /v1/chat/completions (model m)" in message or "serve_" in message, message
            assert f"{__file__}:" in message, message
            assert "--packbench-concurrency=1" in message
        if attributed != set(ended):
            # at once, others may have ended before the one whose worker it was
            assert at_once or {case for case, _ in late} == ({"c0"} if pattern.lazy else set())
            return
        # offline, and in another order
        with replaying() as gateway:
            replayed = run(gateway, pattern, at_once=not at_once and pattern.together, recorded=ended)
        assert len(server.requests) == made
        for case, each in replayed.items():
            assert (each.traffic.mismatch, each.traffic.unattributed) == ("", "")
            assert sorted(each.answers) == sorted(ended[case].answers)
