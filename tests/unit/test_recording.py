"""Recordings replay to equal answers, and what cannot be replayed is not recorded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.live_models import ModelCall
from pytest_packbench.engine.recordings import Replay, UnrecordableError, model_exchanges, transcript
from pytest_packbench.model.recording import Cassette
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import AnswerProblem, ModelAnswer, ModelRequest, ToolCall, Usage
from tests.cassettes import authored_cassette
from tests.unit.attempts import FakeBackend, RunnerContext, case, context, ignore_tick, job, model_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.model.request import VerifyContext, VerifyRequest

PARTLY = AnswerProblem("answer_unreadable", "another call can't be read")
counts = st.none() | st.integers(0, 10**6)
words = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=10).filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
answers = st.builds(
    ModelAnswer,
    content=values,
    refusal=st.none() | words,
    usage=st.builds(Usage, tokens_input=counts, tokens_output=counts),
    tool_calls=st.lists(
        st.builds(ToolCall, id=words, name=words, arguments=st.dictionaries(st.text(max_size=5), values, max_size=2)),
        max_size=2,
    ).map(tuple),
).flatmap(lambda answer: st.sampled_from([answer, replace(answer, problem=PARTLY)] if answer.tool_calls else [answer]))


@given(st.lists(st.tuples(words, answers), max_size=5))
def test_a_recording_answers_as_the_model_did(exchanges: list[tuple[str, ModelAnswer]]) -> None:
    requests = [ModelRequest(role=role, system="", messages=()) for role, _ in exchanges]
    calls = [
        ModelCall(request, f"{number:064x}", answer)
        for number, (request, (_, answer)) in enumerate(zip(requests, exchanges, strict=True))
    ]
    data = authored_cassette("a", {}, model_exchanges(calls, prompts=True))
    replay = Replay(Cassette.model_validate(json.loads(json.dumps(data))), source="a.json")
    for request, (_, answer) in zip(requests, exchanges, strict=True):
        assert replay.complete_sync(request) == answer
    replay.finish()
    assert not replay.mismatch


# calls by the hash of the request, with the answer or None for a failure, and the answers in the recording
SEQUENCES: list[tuple[list[tuple[str, str | None]], list[str] | None]] = [
    ([("a", "1"), ("b", "2")], ["1", "2"]),
    ([("a", None), ("a", "1")], ["1"]),
    ([("a", None), ("a", None), ("a", "1"), ("b", "2")], ["1", "2"]),
    # at once: the first one failed and was repeated after the second
    ([("a", None), ("b", "2"), ("a", "1")], ["1", "2"]),
    ([("a", None), ("b", "2"), ("a", None), ("a", "1"), ("a", "again")], ["1", "2", "again"]),
    ([("a", None)], None),
    ([("a", "1"), ("a", None)], None),
    ([("a", None), ("b", "2")], None),
]


@pytest.mark.parametrize(("sequence", "answers_in_order"), SEQUENCES)
def test_a_repeated_call_is_recorded_where_a_replay_makes_it(
    sequence: list[tuple[str, str | None]], answers_in_order: list[str] | None
) -> None:
    request = model_request()
    calls = [ModelCall(request, sha, None if text is None else ModelAnswer(content=text)) for sha, text in sequence]
    if answers_in_order is None:
        with pytest.raises(UnrecordableError, match="gave up on a model call"):
            model_exchanges(calls, prompts=False)
    else:
        assert [exchange["answer"] for exchange in model_exchanges(calls, prompts=False)] == answers_in_order


def record(
    folder: Path, target: Callable[..., Any], backend: FakeBackend, redactor: Redactor | None = None
) -> AttemptState:
    with RunnerContext() as runner:
        recording = context(folder, target, backend=backend, mode="record", redactor=redactor)
        finished = runner.wait_for(job(recording), ignore_tick).attempt
    assert finished is not None
    return finished


def replay_attempt(folder: Path, target: Callable[..., Any]) -> AttemptState:
    return attempt(context(folder, target, mode="fixture"), case())


async def impatient_target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    try:
        await asyncio.wait_for(context.llm.complete(model_request()), 0.01)
    except TimeoutError:
        return {"points": 1.0}
    return {"points": 0.0}


def test_an_attempt_that_gave_up_on_a_call_is_an_error_without_a_recording(tmp_path: Path) -> None:
    recorded = record(tmp_path, impatient_target, FakeBackend(hold=asyncio.Event()))
    assert recorded.failure is not None
    assert recorded.failure.kind == "unrecordable"
    # nor anything to read
    assert transcript(recorded, prompts=True) == []
    assert not list(tmp_path.rglob("*.json"))


async def parallel_target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    async def ask(text: str) -> float:
        for _ in range(3):
            try:
                return float((await context.llm.complete(model_request(text=text))).content)
            except RuntimeError:
                continue
        return 0.0

    one, two = await asyncio.gather(ask("0.2"), ask("0.4"))
    return {"points": one + 2 * two}


def test_calls_at_once_with_a_repeated_one_replay_to_the_same_result(tmp_path: Path) -> None:
    failures: list[int] = []

    def fail_once(request: ModelRequest) -> str:
        text: str = request.messages[0]["content"]
        if text == "0.2" and not failures:
            failures.append(1)
            raise BackendError("server_error", "an error")
        return text

    recorded = record(tmp_path, parallel_target, FakeBackend(answer=fail_once))
    assert (recorded.failure, recorded.payload) == (None, {"points": 1.0})
    replayed = replay_attempt(tmp_path, parallel_target)
    assert (replayed.failure, replayed.payload, replayed.score) == (None, recorded.payload, recorded.score)
    names = ("llm_backend", "llm_model", "tokens_input", "tokens_output")
    assert [getattr(replayed, name) for name in names] == [getattr(recorded, name) for name in names]


async def calling_target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    return {"points": 1.0, "echo": (await context.llm.complete(model_request())).content}


async def silent_target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    return {"points": 0.5 if context.case_id else 0.0}


def deep_answer(_: object) -> ModelAnswer:
    content: Any = "end"
    for _level in range(5000):
        content = [content]
    return ModelAnswer(content=content)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("your key is planted-value-1", "contains the value of API_KEY at /answer"),
        (ModelAnswer(content="", refusal="AKIA" + "Q7" * 8), "contains a key of AWS at /refusal"),
        (
            ModelAnswer(content="", tool_calls=(ToolCall(id="1", name="look", arguments={"at": "planted-value-1"}),)),
            "contains the value of API_KEY at /tool_calls/0/arguments/at",
        ),
        (deep_answer(None), "is nested too deeply to be searched for secrets"),
    ],
)
def test_an_answer_with_a_secret_is_not_recorded(tmp_path: Path, answer: Any, words: str) -> None:
    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        await context.llm.complete(model_request())
        return {"points": 1.0}

    failure = record(
        tmp_path, target, FakeBackend(answer=lambda _: answer), Redactor({"API_KEY": "planted-value-1"})
    ).failure
    assert failure is not None
    assert failure.message.startswith(f'the answer to call 1 (role "ask") {words}')
    assert not list(tmp_path.rglob("*.json"))


def test_a_key_in_a_prompt_is_hashed_and_not_recorded(tmp_path: Path) -> None:
    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        answer = await context.llm.complete(model_request(text="use planted-value-1"))
        return {"points": 1.0, "answer": answer.content}

    backend = FakeBackend(answer=lambda _: "done")
    assert record(tmp_path, target, backend, Redactor({"API_KEY": "planted-value-1"})).failure is None
    (path,) = tmp_path.rglob("*.json")
    assert "planted" not in path.read_text("utf-8")
    replayed = replay_attempt(tmp_path, target)
    assert (replayed.failure, replayed.stale) == (None, False)


def test_what_a_case_contains_is_no_secret_of_its_recording(tmp_path: Path) -> None:
    canary = "AKIA" + "Q7" * 8
    backend = FakeBackend(answer=lambda _: f"it is {canary}")
    shared = context(tmp_path, calling_target, backend=backend, mode="record")
    with RunnerContext() as runner:
        assert runner.attempt(job(shared, text=f"keep {canary} to yourself")).failure is None
    assert canary in next(tmp_path.rglob("*.json")).read_text("utf-8")


def test_a_recording_is_replaced_when_no_model_is_called(tmp_path: Path) -> None:
    recorded = record(tmp_path, calling_target, FakeBackend())
    said = [("ask", "user", "?"), ("ask", "answer", "?")]
    assert [transcript(recorded, prompts=prompts) for prompts in (True, False)] == [said, []]
    (path,) = tmp_path.rglob("*.json")
    assert replay_attempt(tmp_path, calling_target).payload == recorded.payload
    # the same again is no other recording, but one that can't be read is
    for text, count in ((path.read_text("utf-8"), 0), ("{", 1)):
        path.write_text(text, "utf-8")
        record(tmp_path, calling_target, FakeBackend())
        assert len([*tmp_path.rglob(".pending/*.json")]) == count
    recorded = record(tmp_path, silent_target, FakeBackend())
    (pending,) = tmp_path.rglob(".pending/*.json")
    pending.replace(path)
    replayed = replay_attempt(tmp_path, silent_target)
    assert (replayed.failure, replayed.payload, replayed.llm_backend) == (None, recorded.payload, recorded.llm_backend)


def test_a_recording_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fixtures").write_text("a file where the folder should be")
    failure = record(tmp_path, calling_target, FakeBackend()).failure
    assert failure is not None
    assert failure.kind == "cassette_unwritable"
    assert failure.message.startswith("the recording can't be written: ")


class Outside:
    """A target outside this process, whose results are recorded."""

    opaque = True

    async def verify(self, request: VerifyRequest) -> dict[str, Any]:
        return {"points": 1.0, "of": request.input}


def test_a_result_of_a_target_outside_this_process_is_replayed_in_turn_and_at_once(tmp_path: Path) -> None:
    recorded = record(tmp_path, Outside().verify, FakeBackend())
    with RunnerContext() as runner:
        at_once = runner.attempt(job(context(tmp_path, Outside().verify, mode="fixture")))
    for replayed in (at_once, replay_attempt(tmp_path, Outside().verify)):
        assert (replayed.failure, replayed.payload) == (None, recorded.payload) == (None, {"points": 1.0, "of": {}})
    record(tmp_path, calling_target, FakeBackend())
    (pending,) = tmp_path.rglob(".pending/*.json")
    pending.replace(tmp_path / "fixtures" / "a.json")
    failure = replay_attempt(tmp_path, Outside().verify).failure
    assert failure is not None
    assert (failure.kind, "/exchanges: got the roles ask; expected one" in failure.message) == (
        "cassette_mismatch",
        True,
    )
