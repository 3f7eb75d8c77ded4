"""An attempt whose target has ended is stored before it is scored, and is scored later to the same result."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import settle_stored
from pytest_packbench.engine.trial_results import CaseRef, build_trial, ended_attempt
from pytest_packbench.model.result import EndedAttempt, ended_from, ended_line
from tests.engine.attempts import FakeBackend, RunnerContext, context, job, model_request

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.scheduler import Flight, Job
    from pytest_packbench.model.request import VerifyContext, VerifyRequest


async def ask(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    if request.input.get("fails"):
        raise ValueError("no answer")
    await context.llm.complete(model_request())
    return {"points": request.input["points"]}


def case_ref(shared: SuiteContext, job: Job) -> CaseRef:
    name = job.loaded.case.id
    file = f"{name}.json"
    return CaseRef.at(shared.suite, shared.pack, job.loaded, case_id=name, nodeid=f"{file}::{name}", file=file)


class Store:
    """Stores ended attempts as JSON; notes the threads and what was settled by then."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.lines: dict[str, str] = {}
        self.threads: set[str] = set()
        self.keeps = keeps

    def __call__(self, job: Job, attempt: AttemptState) -> bool:
        assert attempt.score is None
        ended = ended_attempt(case_ref(job.context, job), attempt)
        self.lines[ended.case.case_id] = json.dumps(ended_line(ended))
        self.threads.add(threading.current_thread().name)
        return self.keeps

    def ended(self, name: str) -> EndedAttempt:
        return ended_from(json.loads(self.lines[name]))


@pytest.mark.parametrize("mode", ["live", "record"])
def test_an_attempt_that_is_scored_later_has_the_same_result(tmp_path: Path, mode: str) -> None:
    def shared(name: str) -> SuiteContext:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return context(folder, ask, backend=FakeBackend(), mode=mode)

    first, later, store = shared("first"), shared("later"), Store()
    jobs = [job(first, f"case_{number}", points=number / 4) for number in range(4)]
    with RunnerContext(on_ended=store) as runner:
        attempts = {each.loaded.case.id: runner.attempt(each) for each in jobs}
    assert store.threads == {"packbench-loop"}
    for each in jobs:
        name = each.loaded.case.id
        stored = settle_stored(later, each.loaded, store.ended(name))
        now, then = (
            build_trial(case_ref(shared, each), attempt, shared, "01RUN").result
            for shared, attempt in ((later, stored), (first, attempts[name]))
        )
        assert now == then
        assert now.record is not None
        assert (now.record["tokens_input"], now.record["llm_model"]) == (3, "fake")
        assert now.record["packbench"]["cost_usd"] == now.attempt.cost_usd == 5e-6
    if mode == "record":
        recorded, again = (
            {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.json")} for name in ("first", "later")
        )
        assert recorded == again
        assert len(recorded) == 4


def test_failed_attempts_are_not_stored(tmp_path: Path) -> None:
    store = Store()
    shared = context(tmp_path, ask, backend=FakeBackend())
    with RunnerContext(on_ended=store) as runner:
        kinds = runner.failures(job(shared, "bad", fails=True), job(shared, "good", points=1.0))
    assert kinds == ["target_error", ""]
    assert list(store.lines) == ["good"]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_closed_runner_settles_what_is_stored_alone(tmp_path: Path, keeps: bool) -> None:
    ended = threading.Semaphore(0)
    store = Store(keeps=keeps)

    def store_and_tell(job: Job, attempt: AttemptState) -> bool:
        kept = store(job, attempt)
        ended.release()
        return kept

    async def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        if request.input.get("waits"):
            await context.llm.complete(model_request())
        return {"points": 1.0}

    class Waiting(FakeBackend):
        async def complete(self, request: Any) -> Any:

            await asyncio.sleep(3600)

    shared = context(tmp_path, target, backend=Waiting())
    settled: list[Flight] = []
    runner = RunnerContext(on_ended=store_and_tell, on_settled=settled.append)
    runner.plan([job(shared, "ends"), job(shared, "waits", waits=True), job(shared, "ends_too")])
    for _ in range(2):
        assert ended.acquire(timeout=20)
    runner.close()
    runner.settle_all()
    names = sorted(each.job.loaded.case.id for each in settled)
    assert names == (["ends", "ends_too"] if keeps else [])


def test_another_recording_is_not_taken_for_that_of_the_attempt(tmp_path: Path) -> None:
    store = Store()
    shared = context(tmp_path, ask, backend=FakeBackend())
    with RunnerContext(on_ended=store) as runner:
        each = job(shared, "good", points=1.0)
        runner.attempt(each)
    ended = store.ended("good")
    ended = replace(ended, attempt=replace(ended.attempt, cassette_sha256="0" * 64))
    stored = settle_stored(shared, each.loaded, ended)
    assert (stored.cassette, stored.cassette_sha256) == (None, "0" * 64)
