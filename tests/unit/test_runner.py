"""Working ahead: each attempt is made once, within its bounds, whatever targets do; nothing is waited for without end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.engine.metering import Ledger
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer
from pytest_packbench.model.run import Caps
from tests.unit.attempts import EchoPack, FakeBackend, RunnerContext, context, hang, ignore_tick, job, model_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.runner import Runner
    from pytest_packbench.engine.scheduler import FinishedAttempt, Job
    from pytest_packbench.model.request import VerifyContext, VerifyRequest


def take(runner: Runner, one: Job) -> FinishedAttempt:
    return runner.wait_for(one, ignore_tick)


def kind(done: FinishedAttempt) -> str:
    assert done.attempt is not None
    return done.attempt.failure.kind if done.attempt.failure is not None else ""


def message(done: FinishedAttempt) -> str:
    assert done.attempt is not None
    assert done.attempt.failure is not None
    return done.attempt.failure.message


async def fine(request: VerifyRequest) -> dict[str, Any]:
    return {"points": 1.0}


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_each_attempt_is_made_once_within_the_bounds(tmp_path_factory: Any, data: st.DataObject) -> None:
    count, most = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 6))
    lookahead = data.draw(st.integers(0, 12))
    order = data.draw(st.permutations(range(count)))
    unplanned = data.draw(st.sets(st.integers(0, count - 1)))
    failing = data.draw(st.sets(st.integers(0, count - 1)))
    made: list[int] = []
    taken = 0
    furthest = 0
    backend = FakeBackend(rounds=data.draw(st.integers(0, 3)))

    async def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        nonlocal furthest
        number = request.input["number"]
        made.append(number)
        furthest = max(furthest, len(made) - taken)
        await context.llm.complete(model_request(text=str(number)))
        if number in failing:
            raise ValueError(number)
        return {"points": number / 100}

    shared = context(tmp_path_factory.mktemp("s"), target, backend=backend)
    jobs = [job(shared, f"case_{number}", number=number) for number in range(count)]
    running = RunnerContext(most=most, lookahead=lookahead)
    with running as runner:
        runner.plan([one for number, one in enumerate(jobs) if number not in unplanned])
        for number in order:
            done = take(runner, jobs[number])
            taken += 1
            assert done.attempt is not None
            assert done.job.key == jobs[number].key
            assert kind(done) == ("target_error" if number in failing else "")
            assert number in failing or done.attempt.payload == {"points": number / 100}
        progress = runner.progress()
    assert sorted(made) == list(range(count))
    assert len(running.over) == count
    assert backend.most <= most
    assert (progress.done, progress.planned) == (count, count)
    # the one that is waited for comes on top
    assert furthest <= lookahead + 1


def test_an_attempt_that_was_taken_is_made_anew(tmp_path: Path) -> None:
    numbers = iter([0.1, 0.9])
    shared = context(tmp_path, lambda _: {"points": next(numbers)})
    with RunnerContext() as runner:
        found = [take(runner, job(shared)).attempt for _ in range(2)]
        assert runner.progress().done == 1
    assert [one.payload for one in found if one is not None] == [{"points": 0.1}, {"points": 0.9}]


def test_a_retry_waits_for_room_like_any_other(tmp_path: Path) -> None:
    backend = FakeBackend(rounds=3)

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        await context.llm.complete(model_request())
        return {"points": 1.0}

    shared = context(tmp_path, target, backend=backend)
    with RunnerContext(most=2, lookahead=8) as runner:
        runner.plan([job(shared, str(number)) for number in range(20)])
        for number in range(20):
            take(runner, job(shared, str(number)))
            take(runner, job(shared, str(number)))
    assert backend.asked == 40
    assert backend.most == 2


@pytest.mark.parametrize(
    ("jobs", "bounds", "answered"),
    [(20, (math.inf, math.inf), 8), (20, (math.inf, 0), 1), (20, (0, math.inf), 1), (16, (math.inf, math.inf), 1)],
    ids=[
        "until the window is full of them",
        "no longer than a burst",
        "until it is quiet",
        "while others wait to begin",
    ],
)
def test_answers_of_a_burst_are_taken_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, bounds: tuple[float, float], answered: int
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.runner._QUIET_S", bounds[0])
    monkeypatch.setattr("pytest_packbench.engine.runner._BURST_S", bounds[1])
    first, rest = threading.Event(), threading.Event()

    async def target(request: VerifyRequest) -> dict[str, Any]:
        number = request.input["number"]
        if number:
            await asyncio.to_thread((first if number < answered else rest).wait)
        return {"points": 1.0}

    shared = context(tmp_path, target)
    planned = [job(shared, str(number), number=number) for number in range(jobs)]
    # the first one makes room for the last one of sixteen, so that none waits
    running = RunnerContext(most=8 if jobs > 16 else 16, lookahead=16, on_settled=lambda _: first.set())
    with running as runner, ThreadPoolExecutor(1) as aside:
        runner.plan(planned)
        taken = aside.submit(take, runner, planned[0])
        try:
            assert kind(taken.result(timeout=20)) == ""
            runner.settle_all()
            assert runner.progress().done == answered
        finally:
            rest.set()
        for one in planned[1:]:
            take(runner, one)


def test_released_attempts_free_their_place_and_are_not_made(tmp_path: Path) -> None:
    made = []
    go = [threading.Event() for _ in range(4)]

    def target(request: VerifyRequest) -> dict[str, Any]:
        made.append(request.input["number"])
        # the next ones are released while this one is under way, and nothing else can be
        assert go[request.input["number"] // 10].wait(60)
        return {"points": 1.0}

    shared = context(tmp_path, target)
    jobs = [job(shared, str(number), number=number) for number in range(40)]
    with RunnerContext(most=1, lookahead=2) as runner:
        runner.plan(jobs)
        for ten in range(4):
            runner.discard([one.key for one in jobs[10 * ten + 1 : 10 * ten + 10]])
            # the loop does first what it was told first
            go[ten].set()
            take(runner, jobs[10 * ten])
    assert made == [0, 10, 20, 30]


def test_a_cap_begins_nothing_more_and_what_is_under_way_ends(tmp_path: Path) -> None:
    ledger = Ledger(Caps(tokens=20))
    backend = FakeBackend(rounds=2)

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        await context.llm.complete(model_request())
        return {"points": 1.0}

    shared = context(tmp_path, target, backend=backend, ledger=ledger)
    jobs = [job(shared, str(number)) for number in range(30)]
    with RunnerContext(most=3, ledger=ledger) as runner:
        runner.plan(jobs)
        found = [take(runner, one) for one in jobs]
    made = [done for done in found if done.attempt is not None]
    # five tokens an attempt, and the window at most beyond the cap
    assert 4 <= len(made) <= 4 + 3
    assert backend.asked == len(made)
    assert {kind(done) for done in made} == {""}
    assert {done.kind for done in found if done.attempt is None} == {"max_tokens"}


def raising(error: BaseException) -> Callable[[VerifyRequest], Any]:
    def target(request: VerifyRequest) -> Any:
        if request.input.get("bad"):
            raise error
        return {"points": 1.0}

    return target


def raising_later(error: BaseException) -> Callable[[VerifyRequest], Any]:
    async def target(request: VerifyRequest) -> Any:
        await asyncio.sleep(0)
        return raising(error)(request)

    return target


@pytest.mark.parametrize("form", [raising, raising_later])
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), StopIteration(1), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_target_raises_is_its_own_cases_error(
    tmp_path: Path, form: Callable[[BaseException], Any], error: BaseException
) -> None:
    shared = context(tmp_path, form(error))
    jobs = [job(shared, str(number), bad=number == 1) for number in range(4)]
    with RunnerContext() as runner:
        runner.plan(jobs)
        kinds = [kind(take(runner, one)) for one in jobs]
    assert kinds == ["", "target_error", "", ""]


class UnsayableError(Exception):
    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize("form", [raising, raising_later])
def test_an_error_whose_text_can_not_be_read_is_its_own_cases_error(
    tmp_path: Path, form: Callable[[BaseException], Any]
) -> None:
    shared = context(tmp_path, form(UnsayableError()))
    jobs = [job(shared, str(number), bad=number == 1) for number in range(3)]
    with RunnerContext() as runner:
        runner.plan(jobs)
        done = [take(runner, one) for one in jobs]
    assert [kind(one) for one in done] == ["", "target_error", ""]
    assert message(done[1]) == "the target raised UnsayableError: (its message cannot be read)"


async def cancels_itself(_: VerifyRequest) -> dict[str, Any]:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return {"points": 1.0}


async def cancels_everything(_: VerifyRequest) -> dict[str, Any]:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return {"points": 1.0}


async def falls_in_a_task(_: VerifyRequest) -> dict[str, Any]:
    async def fall() -> None:
        raise SystemExit(3)

    await asyncio.gather(asyncio.create_task(fall()))
    return {"points": 1.0}


async def stops_the_loop(_: VerifyRequest) -> dict[str, Any]:
    asyncio.get_running_loop().stop()
    return {"points": 1.0}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (cancels_itself, "cancelled"),
        (cancels_everything, "cancelled"),
        (falls_in_a_task, "target_error"),
        (stops_the_loop, ""),
    ],
)
def test_a_target_that_meddles_with_the_loop_ends_no_other_case(
    tmp_path: Path, target: Callable[..., Any], expected: str
) -> None:
    with RunnerContext() as runner:
        assert kind(take(runner, job(context(tmp_path, target), "bad"))) == expected
        assert [kind(take(runner, job(context(tmp_path, fine), str(number)))) for number in range(3)] == ["", "", ""]


async def swallows_its_cancellation(_: VerifyRequest) -> dict[str, Any]:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def waits(_: VerifyRequest) -> None:
    await asyncio.sleep(3600)


async def waits_in_a_thread(_: VerifyRequest) -> None:
    await asyncio.to_thread(hang)


def hangs(_: VerifyRequest) -> None:
    hang()


def hangs_in_a_pool(_: VerifyRequest) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(hang).result()


async def ends_at_last(_: VerifyRequest) -> dict[str, Any]:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return {"points": 1.0}


@pytest.mark.parametrize(
    "target", [waits, swallows_its_cancellation, waits_in_a_thread, hangs, hangs_in_a_pool, ends_at_last]
)
def test_a_target_that_takes_too_long_is_abandoned_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Callable[..., Any]
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.scheduler._CANCEL_WAIT_S", 0.05)
    with RunnerContext(limit_s=0.05) as runner:
        done = take(runner, job(context(tmp_path, target), "bad"))
        assert kind(done) == "timeout"
        assert "took longer than 0.05 s and was abandoned" in message(done)
        assert kind(take(runner, job(context(tmp_path, fine), "good"))) == ""


def test_a_released_attempt_that_goes_on_all_the_same_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.scheduler._CANCEL_WAIT_S", 0.05)
    bad, good = job(context(tmp_path, swallows_its_cancellation), "bad"), job(context(tmp_path, fine), "good")
    with RunnerContext(most=1) as runner:
        runner.plan([bad, good])
        while not runner.progress().in_flight:
            time.sleep(0.001)
        runner.discard([bad.key])
        assert kind(take(runner, good)) == ""


@pytest.mark.parametrize("target", ["hangs", "hangs_in_a_pool", "waits_in_a_thread", "swallows_its_cancellation"])
def test_the_interpreter_ends_although_a_target_hangs(tmp_path: Path, target: str) -> None:
    script = (
        "from pathlib import Path\n"
        "from tests.unit import test_runner as here\n"
        f"with here.RunnerContext(limit_s=0.05) as runner:\n"
        f"    done = here.take(runner, here.job(here.context(Path('.'), here.{target})))\n"
        "print(here.kind(done))\n"
    )
    # an hour is what it would take to wait for it
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip() == "timeout"


def test_a_target_that_holds_up_the_loop_is_named_and_no_late_answer_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.runner._BLOCKED_S", 0.05)
    monkeypatch.setattr("pytest_packbench.engine.runner._TICK_S", 0.05)
    go = threading.Event()
    made = []

    async def target(request: VerifyRequest) -> dict[str, Any]:
        made.append(request.input["number"])
        if request.input["number"] == 0:
            go.wait()
        return {"points": 1.0}

    shared = context(tmp_path, target)
    jobs = [job(shared, str(number), number=number) for number in range(3)]
    running = RunnerContext(most=1, lookahead=1, limit_s=0.05)
    with running as runner:
        runner.plan(jobs)
        kinds = [kind(take(runner, one)) for one in jobs]
        go.set()
        again = kind(take(runner, job(context(tmp_path, fine), "more")))
    assert kinds == ["loop_blocked"] * 3
    assert again == ""
    # nobody waits for the other two any more: they are not begun when the loop is free again
    assert made == [0]
    assert len(running.over) == 4


def test_a_long_time_between_two_cases_is_no_blocked_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_packbench.engine.runner._BLOCKED_S", 0.5)
    monkeypatch.setattr("pytest_packbench.engine.runner._TICK_S", 0.01)
    release = asyncio.Event()

    async def target(_: VerifyRequest) -> dict[str, Any]:
        await release.wait()
        return {"points": 1.0}

    ticks = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            runner._scheduler.loop.call_soon_threadsafe(release.set)

    with RunnerContext(limit_s=3600) as runner:
        take(runner, job(context(tmp_path, fine), "first"))
        # what other tests do meanwhile: the loop was last seen alive long ago
        runner._scheduler.last_heartbeat -= 10**6
        assert kind(runner.wait_for(job(context(tmp_path, target), "second"), tick)) == ""


def test_a_scorer_that_exits_is_its_own_cases_error_and_loses_no_other(tmp_path: Path) -> None:
    class Leaving(EchoPack):
        def score(self, case: Any, outcome: Any, rules: Any) -> Any:
            if case.id == "bad":
                raise SystemExit(3)
            return super().score(case, outcome, rules)

    shared = context(tmp_path, fine, pack=Leaving())
    jobs = [job(shared, name) for name in ("good", "bad", "fine")]
    with RunnerContext(most=1) as runner:
        runner.plan(jobs)
        assert [kind(take(runner, one)) for one in jobs] == ["", "scorer_error", ""]


def test_an_abandoned_target_spends_nothing_more(tmp_path: Path) -> None:
    backend = FakeBackend()
    go, went = threading.Event(), threading.Event()
    later: list[BaseException] = []

    def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        go.wait()
        try:
            context.llm.complete_sync(model_request())
        except RuntimeError as error:
            later.append(error)
        went.set()
        return {"points": 1.0}

    with RunnerContext(limit_s=0.05) as runner:
        assert kind(take(runner, job(context(tmp_path, target, backend=backend)))) == "timeout"
        go.set()
        assert went.wait(60)
    assert backend.asked == 0
    assert "the attempt is over" in str(later[0])


def test_an_abandoned_target_that_goes_on_spends_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_packbench.engine.scheduler._CANCEL_WAIT_S", 0.05)
    backend = FakeBackend()
    go, went = asyncio.Event(), threading.Event()
    later: list[BaseException] = []

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await go.wait()
        try:
            await context.llm.complete(model_request())
        except RuntimeError as error:
            later.append(error)
        went.set()
        return {"points": 1.0}

    with RunnerContext(limit_s=0.05) as runner:
        assert kind(take(runner, job(context(tmp_path, target, backend=backend)))) == "timeout"
        runner._scheduler.loop.call_soon_threadsafe(go.set)
        assert went.wait(60)
    assert backend.asked == 0
    assert "the attempt is over" in str(later[0])


def test_what_ended_in_time_is_not_ended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.scheduler._CANCEL_WAIT_S", 0.02)

    async def slow(_: VerifyRequest) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        return {"points": 1.0}

    with RunnerContext(limit_s=0.05) as runner:
        assert kind(take(runner, job(context(tmp_path, waits), "bad"))) == "timeout"
        assert kind(take(runner, job(context(tmp_path, slow), "slow"))) == "timeout"
    # asyncio logs what a callback raises
    assert not [record.message for record in caplog.records if "Exception in callback" in record.message]


def test_tasks_and_threads_that_a_target_leaves_behind_spend_nothing_more(tmp_path: Path) -> None:
    backend = FakeBackend()
    go, went = threading.Event(), threading.Event()
    tasks = set()

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        async def on() -> None:
            await asyncio.sleep(0.01)
            await context.llm.complete(model_request())

        def beside() -> None:
            go.wait()
            with pytest.raises(RuntimeError):
                context.llm.complete_sync(model_request())
            went.set()

        tasks.add(asyncio.create_task(on()))
        threading.Thread(target=beside).start()
        await context.llm.complete(model_request())
        return {"points": 1.0}

    with RunnerContext() as runner:
        assert kind(take(runner, job(context(tmp_path, target, backend=backend)))) == ""
        go.set()
        assert went.wait(60)
    assert backend.asked == 1
    assert [type(task.exception()) for task in tasks if task.done() and not task.cancelled()] in ([], [RuntimeError])


def test_closing_cancels_what_is_under_way_and_begins_nothing(tmp_path: Path) -> None:
    backend = FakeBackend(hold=asyncio.Event())
    ended = []

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        try:
            await context.llm.complete(model_request())
        finally:
            ended.append(1)
        return {"points": 1.0}

    closed = []

    async def close() -> None:
        closed.append(1)

    ledger = Ledger(Caps())
    runner = RunnerContext(most=3, lookahead=3).runner
    runner.plan(job(context(tmp_path, target, backend=backend, ledger=ledger), str(number)) for number in range(10))
    while backend.busy < 3:
        threading.Event().wait(0.001)
    runner.close(close, forever_on_the_loop)
    assert (len(ended), backend.asked, closed) == (3, 3, [1])
    # the provider may have counted them
    assert (ledger.calls, ledger.uncounted) == (3, 3)
    runner.close()


async def forever_on_the_loop() -> None:
    raise RuntimeError("whatever closing raises is dropped")


def test_a_runner_that_was_never_used_leaves_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    runner = RunnerContext().runner
    runner.close()
    assert threading.active_count() == before


def test_an_awaitable_of_a_sync_function_is_awaited(tmp_path: Path) -> None:
    with RunnerContext() as runner:
        done = take(runner, job(context(tmp_path, lambda request: fine(request))))  # noqa: PLW0108 - a function that isn't async
    assert kind(done) == ""


def asks_on_its_own_loop(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    async def pipeline() -> float:
        one, two = await asyncio.gather(
            context.llm.complete(model_request(text="1")), context.llm.complete(model_request(text="2"))
        )
        return (float(one.content) + float(two.content)) / 3

    return {"points": asyncio.run(pipeline())}


def asks_from_its_own_threads(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda text: context.llm.complete_sync(model_request(text=text)).content, ["1", "2"])
    return {"points": (float(one) + float(two)) / 3}


@pytest.mark.parametrize("target", [asks_on_its_own_loop, asks_from_its_own_threads])
def test_a_sync_target_may_have_its_own_loop_and_threads(tmp_path: Path, target: Callable[..., Any]) -> None:
    backend = FakeBackend()
    with RunnerContext() as runner:
        done = take(runner, job(context(tmp_path, target, backend=backend)))
    assert kind(done) == ""
    assert done.attempt is not None
    assert (done.attempt.payload, done.attempt.calls) == ({"points": 1.0}, 2)
    assert len(backend.loops) == 1


def test_an_async_target_that_asks_without_await_is_told_so(tmp_path: Path) -> None:
    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        return {"points": context.llm.complete_sync(model_request()).content}

    with RunnerContext() as runner:
        done = take(runner, job(context(tmp_path, target, backend=FakeBackend())))
    assert kind(done) == "target_error"
    assert "await context.llm.complete" in message(done)


def test_a_call_that_breaks_in_an_unknown_way_is_an_error_although_the_target_goes_on(tmp_path: Path) -> None:
    def fall(_: object) -> str:
        raise ZeroDivisionError("in the client")

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        with pytest.raises(RuntimeError):
            await context.llm.complete(model_request())
        return {"points": 1.0}

    with RunnerContext() as runner:
        done = take(runner, job(context(tmp_path, target, backend=FakeBackend(answer=fall))))
    assert kind(done) == "backend_error"


def test_an_answer_that_is_nested_too_deep_is_an_error_although_the_target_goes_on(tmp_path: Path) -> None:
    def deep(_: object) -> ModelAnswer:
        found: Any = "end"
        for _level in range(5000):
            found = [found]
        return ModelAnswer(content=found)

    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        with pytest.raises(RuntimeError):
            await context.llm.complete(model_request())
        return {"points": 1.0}

    shared = context(
        tmp_path, target, backend=FakeBackend(answer=deep), redactor=Redactor({}, ["planted-to-be-hidden"])
    )
    with RunnerContext() as runner:
        done = take(runner, job(shared))
    assert kind(done) == "answer_unreadable"


def test_for_a_debugger_sync_targets_run_in_the_thread_that_takes_one_at_a_time(tmp_path: Path) -> None:
    threads = []

    def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"points": float(context.llm.complete_sync(model_request(text="0.5")).content)}

    shared = context(tmp_path, target, backend=FakeBackend())
    jobs = [job(shared, str(number)) for number in range(3)]
    with RunnerContext(most=1, lookahead=0, use_threads=False, limit_s=None) as runner:
        runner.plan(jobs)
        for count, one in enumerate(jobs, 1):
            assert kind(take(runner, one)) == ""
            assert len(threads) == count
    assert set(threads) == {threading.main_thread()}


def test_for_a_debugger_an_interrupt_ends_the_run(tmp_path: Path) -> None:
    with (
        RunnerContext(most=1, lookahead=0, use_threads=False, limit_s=None) as runner,
        pytest.raises(KeyboardInterrupt),
    ):
        take(runner, job(context(tmp_path, raising(KeyboardInterrupt())), bad=True))


def test_a_lifted_limit_is_waited_out(tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()

    def target(_: VerifyRequest) -> dict[str, Any]:
        began.set()
        go.wait()
        return {"points": 1.0}

    ticks = []

    def tick() -> None:
        ticks.append(1)
        go.set()

    with RunnerContext(limit_s=0.4) as runner:
        one = job(context(tmp_path, target))
        runner.plan([one])
        assert began.wait(60)
        runner.remove_limit()
        # the first tick comes after the limit that was lifted
        assert kind(runner.wait_for(one, tick)) == ""
    assert ticks
