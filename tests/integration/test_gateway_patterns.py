"""How pipelines call models: no call lands with the wrong case, and one that belongs to no case fails the recording.

Each pattern is run by cases one after the other and by eight at once, with a real client that was made before them.
The server numbers its answers, so that those of one case can't be taken for those of another.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from pytest_packbench.engine.gateway.stamps import install
from pytest_packbench.engine.offline import take_late
from pytest_packbench.engine.targets import run_in_thread
from tests.integration.options.conftest import recordings, replayable
from tests.servers.fake import FakeServer, Received, Reply
from tests.unit.gateways import KEY, recording, replaying, stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model as Server

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


def one_after_the_other(clients: Clients, case: str) -> list[str]:
    return [clients.ask(prompt) for prompt in prompts(case)]


async def awaited(clients: Clients, case: str) -> list[str]:
    return [await clients.aask(prompt) for prompt in prompts(case)]


def threads(clients: Clients, case: str) -> list[str]:
    answers: dict[str, str] = {}

    def ask(prompt: str) -> None:
        try:
            answers[prompt] = clients.ask(prompt)
        except BadRequestError:
            answers[prompt] = ""

    made = [threading.Thread(target=ask, args=[prompt]) for prompt in prompts(case)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    return list(answers.values())


async def tasks(clients: Clients, case: str) -> list[str]:
    made = [asyncio.create_task(clients.aask(prompt)) for prompt in prompts(case)]
    return [await task for task in reversed(made)]


async def gathered(clients: Clients, case: str) -> list[str]:
    return list(await asyncio.gather(*map(clients.aask, prompts(case))))


def pool(clients: Clients, case: str) -> list[str]:
    return list(clients.pool.map(clients.ask, prompts(case)))


async def executor(clients: Clients, case: str) -> list[str]:
    loop = asyncio.get_running_loop()
    first, *others = prompts(case)
    done = [
        loop.run_in_executor(which, clients.ask, prompt)
        for which, prompt in zip((None, clients.pool), others, strict=True)
    ]
    return [await asyncio.to_thread(clients.ask, first), *(await asyncio.gather(*done))]


async def retried(clients: Clients, case: str) -> list[str]:
    return [await clients.aask(f"{prompt} overloaded") for prompt in prompts(case)]


async def identical(clients: Clients, case: str) -> list[str]:
    return [await clients.aask("the same") for _ in range(CALLS)]


async def identical_at_once(clients: Clients, case: str) -> list[str]:
    return list(await asyncio.gather(*(clients.aask("the same") for _ in range(CALLS))))


async def from_queue(clients: Clients, case: str) -> list[str]:
    answers = []
    for prompt in prompts(case):
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        clients.queue.put_nowait((prompt, answered))
        answers.append(await answered)
    return answers


async def from_lazy_worker(clients: Clients, case: str) -> list[str]:
    if not clients.started:
        clients.started.append(asyncio.create_task(clients.serve_queue(), name="lazy"))
    return await from_queue(clients, case)


def from_thread_queue(clients: Clients, case: str) -> list[str]:
    answers = []
    for prompt in prompts(case):
        answered: queue.SimpleQueue[Any] = queue.SimpleQueue()
        clients.thread_queue.put((prompt, answered))
        answer = answered.get(timeout=WAIT_S)
        if isinstance(answer, Exception):
            raise answer
        answers.append(answer)
    return answers


def from_lazy_thread(clients: Clients, case: str) -> list[str]:
    start_thread(clients)
    return from_thread_queue(clients, case)


def from_lazy_pool_work(clients: Clients, case: str) -> list[str]:
    if not clients.started:
        clients.started.append(clients.pool.submit(clients.serve_thread_queue))
    return from_thread_queue(clients, case)


def start_thread(clients: Clients) -> None:
    if not clients.started:
        clients.started.append(threading.Thread(target=clients.serve_thread_queue))
        clients.started[0].start()


async def start_worker(clients: Clients) -> None:
    clients.started.append(asyncio.create_task(clients.serve_queue()))


async def start_worker_thread(clients: Clients) -> None:
    start_thread(clients)


async def start_pool_work(clients: Clients) -> None:
    clients.started.append(clients.pool.submit(clients.serve_thread_queue))


async def start_nothing(clients: Clients) -> None:
    pass


class Pattern(NamedTuple):
    """How cases call models.

    Attributes:
        target: makes the calls of a case, returns the answers.
        alone: which cases are attributed, one after the other: all, or the first.
        together: whether they are attributed, eight at once.
        start: what starts outside of cases.
    """

    target: Callable[[Clients, str], Any]
    alone: str = "all"
    together: bool = True
    start: Callable[[Clients], Awaitable[None]] = start_nothing


PATTERNS = {
    "one after the other": Pattern(one_after_the_other),
    "awaited": Pattern(awaited),
    "tasks": Pattern(tasks),
    "gather": Pattern(gathered),
    "retry after 429": Pattern(retried),
    "thread pool": Pattern(pool),
    "executor": Pattern(executor),
    "identical prompts": Pattern(identical),
    "identical prompts at once": Pattern(identical_at_once),
    "bare threads": Pattern(threads, together=False),
    "queue worker outside": Pattern(from_queue, together=False, start=start_worker),
    "worker thread outside": Pattern(from_thread_queue, together=False, start=start_worker_thread),
    "pool worker outside": Pattern(from_thread_queue, together=False, start=start_pool_work),
    "lazy worker": Pattern(from_lazy_worker, "first", together=False),
    "lazy worker thread": Pattern(from_lazy_thread, "first", together=False),
    "lazy worker in a pool": Pattern(from_lazy_pool_work, "first", together=False),
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
    """Run all cases of a pattern, as the runner does: a task per case, sync targets on threads."""

    async def case(name: str, clients: Clients) -> Ended:
        traffic = gateway.open_case(name, None if recorded is None else stored(recorded[name].traffic))
        target, answers = partial(pattern.target, clients, name), []
        with traffic.active():
            # those who wait for all to be active make sure of it
            await asyncio.sleep(0)
            try:
                is_async = asyncio.iscoroutinefunction(pattern.target)
                answers = await (target() if is_async else run_in_thread(target))
            except BadRequestError:
                assert traffic.unattributed
        traffic.finish()
        return Ended(traffic, answers)

    async def main() -> dict[str, Ended]:
        clients = Clients()
        await pattern.start(clients)
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
        first = {"c0"} if pattern.alone == "first" else set(ended)
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
            assert at_once or {case for case, _ in late} == ({"c0"} if pattern.alone == "first" else set())
            return
        # offline, and in another order
        with replaying() as gateway:
            replayed = run(gateway, pattern, at_once=not at_once and pattern.together, recorded=ended)
        assert len(server.requests) == made
        for case, each in replayed.items():
            assert (each.traffic.mismatch, each.traffic.unattributed) == ("", "")
            assert sorted(each.answers) == sorted(ended[case].answers)


OWN = f"""
import sys

patterns = sys.modules[{__name__!r}]
CLIENTS = patterns.Clients()
"""
CONFTEST = """
def pytest_unconfigure():
    import own
    for _ in own.CLIENTS.started:
        own.CLIENTS.thread_queue.put(None)
    own.CLIENTS.pool.shutdown()
"""


@pytest.mark.parametrize("at_once", [False, True], ids=["alone", "eight at once"])
@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "queue worker outside"])
def test_so_it_is_with_pytest(
    project: Project, model: Server, monkeypatch: pytest.MonkeyPatch, name: str, at_once: bool
) -> None:
    pattern = PATTERNS[name]
    model.handler, model.latency_s = Model(), 0.02
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    project.prepare(*(f"c{number}" for number in range(CASES)))
    project.extend_conftest(CONFTEST)
    is_async = asyncio.iscoroutinefunction(pattern.target)
    project.write(
        "own.py",
        OWN
        + (f"patterns.asyncio.run(patterns.{pattern.start.__name__}(CLIENTS))\n")
        + f"{'async ' * is_async}def ask(request):\n"
        + f"    answers = {'await ' * is_async}patterns.PATTERNS[{name!r}].target(CLIENTS, request.input['text'])\n"
        + "    return {'points': 1.0, 'answers': sorted(answers)}\n",
    )
    options = ("--packbench-target=own:ask", f"--packbench-concurrency={CASES if at_once else 1}")
    result = project.run_toy(*options, "--packbench-mode=record")
    # a worker of a pool has the stamp of work outside of cases, unlike a thread: it may serve another test; and what
    # the first case leaves running is its error
    alone = "none" if pattern.start is start_pool_work else pattern.alone
    expected = set(range(CASES)) if (pattern.together if at_once else alone == "all") else set()
    stored_cases = recordings(project)
    if at_once and not pattern.together:
        # one that made all its calls after the others had ended is not in doubt
        expected = {int(file[5:7]) for file in stored_cases}
        assert len(expected) < CASES
    assert set(stored_cases) == {f"case_{number:02}.json" for number in expected}
    payloads = {
        line["case_id"]: line["result"]["answers"] for line in project.lines("payloads.jsonl") if line.get("result")
    }
    for file, content in stored_cases.items():
        exchanges = [each for each in json.loads(content)["gateway"] if each["status"] == 200]
        contents = [each["body"]["choices"][0]["message"]["content"] for each in exchanges]
        assert sorted(contents) == payloads[file.removesuffix(".json")]
        assert len(contents) == CALLS
        own = f"c{int(file[5:7])}: "
        assert all(content.startswith((own, "the same")) for content in contents)
    if len(expected) < CASES:
        errors = project.errors()
        kinds = {case: error["kind"] for case, error in errors.items()}
        assert kinds == {f"case_{number:02}": "unattributed" for number in set(range(CASES)) - expected}
        for error in errors.values():
            assert "POST /v1/chat/completions" in error["message"] or "serve_" in error["message"], error
            assert f"{__file__}:" in error["message"]
        return
    result.assert_outcomes(passed=CASES)
    made = len(model.requests)
    project.run_toy(options[0]).assert_outcomes(passed=CASES)
    assert len(model.requests) == made
    first, second = map(replayable, project.folders())
    assert first == second
