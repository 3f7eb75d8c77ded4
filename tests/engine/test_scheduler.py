"""Each attempt is made once, within its limits, whatever targets do; no wait is endless."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.engine.live_models import Ledger
from pytest_packbench.engine.scheduler import AttemptKey, Throttle
from pytest_packbench.model.run import Caps, RunOptions
from tests.engine.attempts import EchoPack, FakeBackend, RunnerContext, context, hang, job, model_request, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.request import VerifyContext, VerifyRequest

    Target = Callable[..., Any]

ONE_POINT = {"points": 1.0}


async def succeed(_: VerifyRequest) -> dict[str, Any]:
    return ONE_POINT


async def call_model(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    await context.llm.complete(model_request())
    return ONE_POINT


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_each_attempt_is_made_once_per_claim_within_the_limits(tmp_path_factory: Any, data: st.DataObject) -> None:
    count, most, lookahead = (data.draw(st.integers(*ends)) for ends in ((1, 25), (1, 6), (0, 12)))
    # an attempt that is claimed again is made again
    again = data.draw(st.lists(st.sampled_from(range(count)), max_size=5))
    order = [*data.draw(st.permutations(range(count))), *again]
    unplanned, failing = (data.draw(st.sets(st.integers(0, count - 1))) for _ in range(2))
    started: list[int] = []
    claimed = furthest = 0
    backend = FakeBackend(rounds=data.draw(st.integers(0, 3)))

    async def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        nonlocal furthest
        number = request.input["number"]
        started.append(number)
        furthest = max(furthest, len(started) - claimed)
        await context.llm.complete(model_request(text=str(number)))
        if number in failing:
            raise ValueError(number)
        return {"points": number / 100}

    shared = context(tmp_path_factory.mktemp("s"), target, backend=backend)
    jobs = [job(shared, f"case_{number}", number=number) for number in range(count)]
    with RunnerContext(most=most, lookahead=lookahead) as runner:
        runner.plan([job for number, job in enumerate(jobs) if number not in unplanned])
        for number in order:
            attempt = runner.attempt(jobs[number])
            claimed += 1
            assert attempt.payload == {"points": number / 100} if attempt.failure is None else number in failing
        progress = runner.progress()
    assert sorted(started) == sorted(order)
    assert len(runner.settled) == len(order)
    assert backend.most <= most
    assert (progress.done, progress.planned, progress.in_flight, progress.oldest_s) == (count, count, 0, 0)
    # the one that is waited for comes on top
    assert furthest <= lookahead + 1


@pytest.mark.parametrize(
    ("jobs", "quiet_s", "burst_s", "settled"),
    [(20, math.inf, math.inf, 8), (20, math.inf, 0, 1), (20, 0, math.inf, 1), (16, math.inf, math.inf, 1)],
    ids=["until half the lookahead is full", "no longer than a burst", "until it is quiet", "while others wait"],
)
def test_attempts_that_end_in_a_burst_are_settled_together(
    tmp_path: Path, jobs: int, quiet_s: float, burst_s: float, settled: int
) -> None:
    first, rest = threading.Event(), threading.Event()

    async def target(request: VerifyRequest) -> dict[str, Any]:
        number = request.input["number"]
        if number:
            await asyncio.to_thread((first if number < settled else rest).wait)
        return ONE_POINT

    shared = context(tmp_path, target)
    planned = [job(shared, str(number), number=number) for number in range(jobs)]
    # the first one makes room for the last one of sixteen, so that none waits
    runner = RunnerContext(
        most=8 if jobs > 16 else 16,
        lookahead=16,
        on_settled=lambda _: first.set(),
        waits={"quiet_s": quiet_s, "burst_s": burst_s},
    )
    with runner, ThreadPoolExecutor(1) as aside:
        runner.plan(planned)
        claimed = aside.submit(runner.failures, planned[0])
        try:
            assert claimed.result(timeout=20) == [""]
            runner.settle_all()
            assert runner.progress().done == settled
        finally:
            rest.set()
        runner.failures(*planned[1:])


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise self.args[0] if self.args else self


ERRORS = (
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopIteration(1),
    UnreadableError(),
)


@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_target_raises_is_the_error_of_its_case_alone(tmp_path: Path, is_async: bool) -> None:
    def target(request: VerifyRequest) -> Any:
        raise ERRORS[request.input["error"]]

    async def async_target(request: VerifyRequest) -> Any:
        return target(request)

    bad, good = context(tmp_path, async_target if is_async else target), context(tmp_path, succeed)
    pairs = [(job(bad, f"bad_{number}", error=number), job(good, str(number))) for number in range(len(ERRORS))]
    with RunnerContext() as runner:
        runner.plan(job for pair in pairs for job in pair)
        failures = [runner.attempt(bad).failure for bad, _ in pairs]
        assert runner.failures(*(good for _, good in pairs)) == [""] * len(ERRORS)
    assert [failure and failure.kind for failure in failures] == ["target_error"] * len(ERRORS)
    assert failures[-1] is not None
    assert failures[-1].message == "the target raised UnreadableError: (its message cannot be read)"


async def cancel_everything(_: VerifyRequest) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


async def leave() -> None:
    raise SystemExit(3)


async def exit_in_a_task(_: VerifyRequest) -> None:
    await asyncio.gather(asyncio.create_task(leave()))


async def stop_the_loop(_: VerifyRequest) -> dict[str, Any]:
    asyncio.get_running_loop().stop()
    return ONE_POINT


async def close_the_loop(_: VerifyRequest) -> None:
    loop: Any = asyncio.get_running_loop()
    loop.run_forever = loop.close
    loop.stop()


async def ignore_a_failed_call(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    with pytest.raises(RuntimeError):
        await context.llm.complete(model_request())
    return ONE_POINT


async def call_without_await(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    return {"points": context.llm.complete_sync(model_request()).content}


@dataclass
class RaisingPack(EchoPack):
    error: BaseException

    def terms(self, case: Any, answer: Any, rules: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("target", "options", "kind", "words"),
    [
        (cancel_everything, {}, "cancelled", "the attempt was cancelled: by a target"),
        (exit_in_a_task, {}, "target_error", "SystemExit"),
        (stop_the_loop, {}, "", ""),
        (close_the_loop, {}, "loop_blocked", "the event loop ended: a target stopped it"),
        (call_model, {}, "no_backend", "no backend is set"),
        (call_without_await, {"backend": FakeBackend()}, "target_error", "await context.llm.complete"),
        (ignore_a_failed_call, {"backend": FakeBackend(answer=lambda _: 1 / 0)}, "backend_error", "ZeroDivisionError"),
        (succeed, {"pack": RaisingPack(SystemExit(3))}, "scorer_error", "SystemExit"),
        (lambda request: succeed(request), {}, "", ""),  # noqa: PLW0108 - a sync function that returns an awaitable
    ],
)
def test_a_target_that_harms_the_loop_ends_no_other_case(
    tmp_path: Path, target: Target, options: dict[str, Any], kind: str, words: str
) -> None:
    with RunnerContext(waits={"tick_s": 0.01}) as runner:
        failure = runner.attempt(job(context(tmp_path, target, **options), "bad")).failure
        assert (failure.kind if failure else "") == kind
        assert words in (failure.message if failure else "")
        good = context(tmp_path, succeed)
        # nothing can run without a loop
        others = kind if target is close_the_loop else ""
        assert runner.failures(*(job(good, str(number)) for number in range(3))) == [others] * 3


async def ignore_cancellation(_: VerifyRequest) -> dict[str, Any]:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def hang_in_a_pool(_: VerifyRequest) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(hang).result()


async def end_when_cancelled(_: VerifyRequest) -> dict[str, Any]:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return ONE_POINT


def test_a_target_that_takes_too_long_is_abandoned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend(hold=asyncio.Event())
    slow: list[Target] = [
        *(lambda _: asyncio.sleep(3600), lambda _: asyncio.to_thread(hang), lambda _: hang()),
        *(ignore_cancellation, hang_in_a_pool, end_when_cancelled),
        lambda _, context: context.llm.complete_sync(model_request()),
    ]
    with RunnerContext(limit_s=0.1) as runner:
        jobs = [job(context(tmp_path, target, backend=backend), "bad") for target in slow]
        failures = [runner.attempt(job).failure for job in jobs]
        assert runner.failures(job(context(tmp_path, succeed), "good")) == [""]
        # its call is cancelled
        asyncio.run(wait_until(lambda: not backend.busy))
    assert backend.calls == 1
    message = (
        "the target took longer than 0.1 s and was abandoned; correct what it waits for, "
        "or raise --packbench-case-timeout"
    )
    assert [failure and (failure.kind, failure.message) for failure in failures] == [("timeout", message)] * len(slow)
    # asyncio logs what a callback raises
    assert "Exception in callback" not in caplog.text


class HangingPack(EchoPack):
    def terms(self, case: Any, answer: Any, rules: Any) -> Any:
        hang()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such alarms")
def test_scoring_has_the_time_limit_too(tmp_path: Path) -> None:
    live = context(tmp_path, succeed, pack=HangingPack())
    with RunnerContext() as runner:
        failure = runner.attempt(job(replace(live, options=RunOptions(mode="live", case_timeout_s=0.1)))).failure
    assert failure is not None
    assert (failure.kind, failure.message[:33]) == ("timeout", "the scoring took longer than 0.1 ")


def test_discarded_attempts_make_room_and_are_made_only_where_somebody_waits_again(tmp_path: Path) -> None:
    started = []

    async def target(request: VerifyRequest) -> dict[str, Any]:
        number = request.input["number"]
        started.append(number)
        if started == [0]:
            await ignore_cancellation(request)
        return ONE_POINT

    shared = context(tmp_path, target)
    jobs = [job(shared, str(number), number=number) for number in range(12)]
    with RunnerContext(most=1, lookahead=2) as runner:
        runner.plan(jobs)
        asyncio.run(wait_until(lambda: started))
        runner.discard([AttemptKey("unknown", 0), *(job.key for job in jobs[:10])])
        assert runner.failures(jobs[10], jobs[0], jobs[11]) == [""] * 3
        runner.discard([jobs[0].key])
    assert started[:2] == [0, 10]
    assert sorted(started[2:]) == [0, 11]


def test_a_target_that_blocks_the_loop_is_an_error_and_its_late_answer_does_not_count(tmp_path: Path) -> None:
    go = threading.Event()
    started = []

    async def target(request: VerifyRequest) -> dict[str, Any]:
        started.append(request.input["number"])
        if request.input["number"] == 0:
            go.wait()
        return ONE_POINT

    shared = context(tmp_path, target)
    jobs = [job(shared, str(number), number=number) for number in range(3)]
    with RunnerContext(most=1, lookahead=1, limit_s=0.1, waits={"blocked_s": 0.1, "tick_s": 0.05}) as runner:
        runner.plan(jobs)
        assert runner.failures(*jobs) == ["loop_blocked"] * 3
        go.set()
        # one that somebody waits for again is made
        assert runner.failures(job(context(tmp_path, succeed), "more"), jobs[1]) == ["", ""]
    # nobody waits for the last one any more: it does not start when the loop is free again
    assert started == [0, 1]
    assert len(runner.settled) == 5


def test_a_long_time_between_two_cases_is_no_blocked_loop(tmp_path: Path) -> None:
    passed_s, ticks, go = 0.0, [], threading.Event()

    async def target(_: VerifyRequest) -> dict[str, Any]:
        await asyncio.to_thread(go.wait)
        return ONE_POINT

    def tick() -> None:
        ticks.append(1)
        if len(ticks) >= 3:
            go.set()

    waits = {"blocked_s": 0.5, "tick_s": 0.01}
    with RunnerContext(limit_s=3600, waits=waits, clock=lambda: time.monotonic() + passed_s) as runner:
        runner.attempt(job(context(tmp_path, succeed), "first"))
        passed_s = 1e6
        assert runner.attempt(job(context(tmp_path, target), "second"), tick).failure is None


@pytest.mark.parametrize("form", ["sync", "async"])
def test_no_call_is_made_for_an_attempt_that_is_over(tmp_path: Path, form: str) -> None:
    backend, go, refused = FakeBackend(), threading.Event(), threading.Event()

    def call_later(_: VerifyRequest, context: VerifyContext) -> None:
        go.wait()
        with pytest.raises(RuntimeError, match="the attempt is over"):
            context.llm.complete_sync(model_request())
        refused.set()

    async def call_later_async(_: VerifyRequest, context: VerifyContext) -> None:
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="the attempt is over"):
            await context.llm.complete(model_request())
        refused.set()

    with RunnerContext(limit_s=0.05) as runner:
        target = call_later if form == "sync" else call_later_async
        assert runner.failures(job(context(tmp_path, target, backend=backend))) == ["timeout"]
        go.set()
        assert refused.wait(60)
    assert backend.calls == 0


def test_closing_cancels_what_is_in_flight_and_starts_nothing(tmp_path: Path) -> None:
    backend, ledger = FakeBackend(hold=asyncio.Event()), Ledger(Caps())
    ended, closed = [], []

    async def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        try:
            return await call_model(request, context)
        finally:
            ended.append(1)

    async def fail() -> None:
        raise RuntimeError("exceptions of closing are ignored")

    async def close() -> None:
        closed.append(1)

    shared = context(tmp_path, target, backend=backend, ledger=ledger)
    runner = RunnerContext(most=3, lookahead=3)
    runner.plan(job(shared, str(number)) for number in range(10))
    asyncio.run(wait_until(lambda: backend.busy == 3))
    runner.close(close, fail)
    assert (len(ended), backend.calls, closed) == (3, 3, [1])
    # the provider may have counted them
    assert (ledger.calls, ledger.uncounted) == (3, 3)
    runner.close()


def test_what_a_target_has_begun_to_open_is_not_cancelled_before_it_can_be_closed(tmp_path: Path) -> None:
    begun: list[asyncio.Task[None]] = []
    opened = []

    async def start() -> None:
        await asyncio.sleep(0.1)
        opened.append(1)

    async def target(_: VerifyRequest) -> dict[str, Any]:
        begun.append(asyncio.create_task(start()))
        await asyncio.shield(begun[0])
        return ONE_POINT

    async def close() -> None:
        await begun[0]

    runner = RunnerContext()
    runner.plan([job(context(tmp_path, target))])
    asyncio.run(wait_until(lambda: begun))
    runner.stop()
    runner.close(close)
    assert opened == [1]


def test_closing_waits_for_no_blocked_loop_and_leaves_no_thread_of_an_unused_runner(tmp_path: Path) -> None:
    started, closed = threading.Event(), []

    async def target(_: VerifyRequest) -> None:
        started.set()
        hang()

    async def close() -> None:
        closed.append(1)

    before = threading.active_count()
    RunnerContext().close()
    RunnerContext().close(close)
    assert (threading.active_count(), closed) == (before, [1])
    runner = RunnerContext(waits={"close_s": 0.05})
    runner.plan([job(context(tmp_path, target))])
    assert started.wait(60)
    runner.close(close)
    assert closed == [1]


def test_a_sync_target_may_have_its_own_loop_and_threads(tmp_path: Path) -> None:
    backend = FakeBackend()

    def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        async def pipeline() -> float:
            in_a_thread = asyncio.to_thread(context.llm.complete_sync, model_request(text="1"))
            answers = await asyncio.gather(in_a_thread, context.llm.complete(model_request(text="2")))
            return sum(float(answer.content) for answer in answers)

        return {"points": asyncio.run(pipeline()) / 3}

    with RunnerContext() as runner:
        attempt = runner.attempt(job(context(tmp_path, target, backend=backend)))
    assert (attempt.failure, attempt.payload, attempt.calls, len(backend.loops)) == (None, ONE_POINT, 2, 1)


def test_for_a_debugger_sync_targets_run_in_the_waiting_thread_and_an_interrupt_ends_the_run(tmp_path: Path) -> None:
    threads = []

    def target(request: VerifyRequest) -> dict[str, Any]:
        if request.input:
            raise KeyboardInterrupt
        threads.append(threading.current_thread())
        return ONE_POINT

    shared = context(tmp_path, target)
    with RunnerContext(most=1, lookahead=0, use_threads=False, limit_s=None) as runner:
        assert runner.failures(job(shared, "1"), job(shared, "2")) == ["", ""]
        with pytest.raises(KeyboardInterrupt):
            runner.attempt(job(shared, "bad", interrupt=True))
    assert threads == [threading.main_thread()] * 2
    # so does one while a result is scored, in any case
    for error in (KeyboardInterrupt(), UnreadableError(KeyboardInterrupt())):
        with RunnerContext() as runner, pytest.raises(KeyboardInterrupt):
            runner.attempt(job(context(tmp_path, succeed, pack=RaisingPack(error))))


def test_a_limit_that_was_removed_does_not_apply_to_attempts_in_flight(tmp_path: Path) -> None:
    started, go = threading.Event(), threading.Event()

    def target(_: VerifyRequest) -> dict[str, Any]:
        started.set()
        go.wait()
        return ONE_POINT

    with RunnerContext(limit_s=0.4) as runner:
        slow = job(context(tmp_path, target))
        runner.plan([slow])
        assert started.wait(60)
        runner.limit_s = None
        # the first tick comes after the limit
        assert runner.attempt(slow, go.set).failure is None


def test_the_throttle_halves_once_a_second_and_grows_by_one_after_as_many_successes(tmp_path: Path) -> None:
    now = 0.0
    throttle = Throttle(64, clock=lambda: now)
    limits = []
    for seconds in (0.0, 0.5, 0.999, 1.0, 1.5, 2.0):
        now = seconds
        throttle.overloaded()
        limits.append(throttle.limit)
    for successes in (7, 1, 8):
        for _ in range(successes):
            throttle.succeeded()
        limits.append(throttle.limit)
    # an overload starts the count of successes again, also within the second
    throttle.overloaded()
    throttle.succeeded()
    assert [*limits, throttle.limit] == [32, 32, 32, 16, 16, 8, 8, 9, 9, 9]
    for _ in range(64 * 64):
        throttle.succeeded()
    assert throttle.limit == 64
    for seconds in range(10, 20):
        now = seconds
        throttle.overloaded()
    assert throttle.limit == 1
    # attempts without a failure are successes
    shared, limits = context(tmp_path, lambda request: {"points": 1 / request.input["number"]}), []
    with RunnerContext(most=4) as runner:
        runner.throttle.overloaded()
        for number in (1, 0, 2, 3, 4, 5):
            runner.attempt(job(shared, str(number), number=number))
            limits.append(runner.throttle.limit)
    assert limits == [2, 2, 3, 3, 3, 4]
