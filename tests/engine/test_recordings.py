"""A recording replays to equal answers under the conditions that it was made under; what can't be replayed is not recorded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.engine.live_models import ModelCall
from pytest_packbench.engine.recordings import (
    Replay,
    ReplayError,
    UnrecordableError,
    guard_name,
    judges_of,
    model_exchanges,
    parts_of,
    store_recording,
    transcript,
)
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import Case
from pytest_packbench.model.pack import Judges
from pytest_packbench.model.recording import CASSETTE_VERSION, Cassette
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import AnswerProblem, ModelAnswer, ModelRequest, Tool, ToolCall, Usage
from pytest_packbench.model.run import RunOptions
from pytest_packbench.model.suite import SuiteConfig
from tests.cassettes import authored_cassette
from tests.engine.attempts import (
    EchoPack,
    FakeBackend,
    RunnerContext,
    case,
    context,
    ignore_tick,
    job,
    model_request,
    suite,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
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
    calls = [
        ModelCall(ModelRequest(role=role, system="", messages=()), f"{number:064x}", answer)
        for number, (role, answer) in enumerate(exchanges)
    ]
    data = authored_cassette("a", {}, model_exchanges(calls, prompts=True))
    replay = Replay(Cassette.model_validate(json.loads(json.dumps(data))), source="a.json")
    for call in calls:
        assert replay.complete_sync(call.request) == call.answer
    replay.finish()
    assert not replay.mismatch


def cassette(roles: list[str], request_sha256: str | None = None) -> Cassette:
    exchanges = [{"role": role, "answer": place, "request_sha256": request_sha256} for place, role in enumerate(roles)]
    return Cassette.model_validate(authored_cassette("a", 1, exchanges))


ROLES = st.lists(st.sampled_from(["propose", "critique", "revise"]), max_size=6)


@given(ROLES, ROLES)
def test_a_replay_matches_exactly_when_the_roles_do(recorded: list[str], called: list[str]) -> None:
    replay, found = Replay(cassette(recorded), source="f"), []
    for role in called:
        try:
            found.append(replay.complete_sync(model_request(role)).content)
        except ReplayError:
            break
    replay.finish()
    assert (replay.mismatch == "") is (recorded == called)
    assert found == list(range(len(found)))


def test_a_recording_of_another_prompt_is_stale() -> None:
    for recorded in (canonical_sha256(model_request().as_json()), "1" * 64, None):
        replay = Replay(cassette(["ask"], recorded), source="f")
        replay.complete_sync(model_request())
        assert replay.stale is (recorded == "1" * 64)


# calls by the hash of the request, with the answer or "-" for a failure, and the answers in the recording
SEQUENCES: list[tuple[str, str | None]] = [
    ("a1 b2", "1 2"),
    ("a- a1", "1"),
    ("a- a- a1 b2", "1 2"),
    # at once: the first one failed and was repeated after the second
    ("a- b2 a1", "1 2"),
    ("a- b2 a- a1 a3", "1 2 3"),
    ("a-", None),
    ("a1 a-", None),
    ("a- b2", None),
]


@pytest.mark.parametrize(("sequence", "in_order"), SEQUENCES)
def test_a_repeated_call_is_recorded_where_a_replay_makes_it(sequence: str, in_order: str | None) -> None:
    calls = [
        ModelCall(model_request(), call[0], None if call[1] == "-" else ModelAnswer(content=call[1]))
        for call in sequence.split()
    ]
    if in_order is None:
        with pytest.raises(UnrecordableError, match="gave up on a model call"):
            model_exchanges(calls, prompts=False)
    else:
        assert [exchange["answer"] for exchange in model_exchanges(calls, prompts=False)] == in_order.split()


@dataclass
class Limit:
    """A guard with a setting."""

    most: int = 3
    name: str = "limit"


def other() -> None:
    """Guard nothing."""


def tool(name: str = "look", description: str = "looks") -> Tool:
    return Tool(name=name, description=description, parameters={"type": "object"})


def asking(*tools: Tool, text: str = "?") -> Callable[..., Any]:
    """A target that makes a call and offers tools."""

    def verify(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        assert len(context.guards) < 3
        answer = context.llm.complete_sync(replace(model_request(text=text), tools=tools))
        return {"points": 1.0, "said": answer.content}

    return verify


class Outside:
    """A target outside this process, as far as the engine can tell."""

    opaque = True

    async def verify(self, request: VerifyRequest) -> dict[str, Any]:
        return {"points": 1.0, "of": request.input}


ASKING, OUTSIDE = asking(), Outside().verify


def conditioned(
    folder: Path, target: Callable[..., Any], mode: str, /, *guards: Any, backend: Any = None, **changes: Any
) -> SuiteContext:
    made = context(
        folder, target, backend=backend or FakeBackend(), mode=mode, redactor=Redactor({"API_KEY": "planted-value-1"})
    )
    return replace(made, guards=guards, guard_parts=parts_of((guard_name(guard), guard) for guard in guards), **changes)


def record(
    *arguments: Any, kind: type[Case] = Case, inputs: dict[str, Any] | None = None, **changes: Any
) -> AttemptState:
    folder, target, *guards = arguments
    asked = job(conditioned(folder, target, "record", *guards, **changes), **(inputs or {}))
    loaded = asked.loaded._replace(case=kind.model_validate(asked.loaded.case.model_dump(by_alias=True)))
    with RunnerContext() as runner:
        done = runner.wait_for(replace(asked, loaded=loaded), ignore_tick).attempt
    assert done is not None
    return done


def replay(*arguments: Any, **changes: Any) -> AttemptState:
    folder, target, *guards = arguments
    return attempt(replace(conditioned(folder, target, "fixture", *guards, **changes), backend="", model=""), case())


def change(folder: Path, **keys: Any) -> dict[str, Any]:
    """Change keys of the recording; return it as it was."""
    path = folder / "fixtures" / "a.json"
    data: dict[str, Any] = json.loads(path.read_bytes())
    path.write_text(json.dumps(data | keys))
    return data


def found(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))


def failure(done: AttemptState, kind: str = "cassette_conditions") -> str:
    assert done.failure is not None
    assert done.failure.kind == kind
    # what can't be recorded was scored before
    assert done.score is None or kind in {"unrecordable", "cassette_unwritable"}
    return done.failure.message


def test_an_attempt_that_gave_up_on_a_call_is_an_error_without_a_recording(tmp_path: Path) -> None:
    async def impatient(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(context.llm.complete(model_request()), 0.01)
        return {"points": 1.0}

    recorded = record(tmp_path, impatient, backend=FakeBackend(hold=asyncio.Event()))
    assert failure(recorded, "unrecordable")
    # nor anything to read
    assert (transcript(recorded, prompts=True), found(tmp_path)) == ([], [])


def test_calls_at_once_with_a_repeated_one_replay_to_the_same_result(tmp_path: Path) -> None:
    failures: list[int] = []

    def fail_once(request: ModelRequest) -> str:
        text: str = request.messages[0]["content"]
        if text == "0.2" and not failures:
            failures.append(1)
            raise BackendError("server_error", "an error")
        return text

    async def at_once(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        async def ask(text: str) -> float:
            for _ in range(3):
                try:
                    return float((await context.llm.complete(model_request(text=text))).content)
                except RuntimeError:
                    continue
            return 0.0

        one, two = await asyncio.gather(ask("0.2"), ask("0.4"))
        return {"points": one + 2 * two}

    recorded, replayed = record(tmp_path, at_once, backend=FakeBackend(answer=fail_once)), replay(tmp_path, at_once)
    assert recorded.payload == {"points": 1.0}
    for name in ("failure", "payload", "score", "llm_backend", "llm_model", "tokens_input", "tokens_output"):
        assert getattr(replayed, name) == getattr(recorded, name), name


def deep_answer() -> ModelAnswer:
    content: Any = "end"
    for _level in range(5000):
        content = [content]
    return ModelAnswer(content=content)


LOOK = ToolCall(id="1", name="look", arguments={"at": "planted-value-1"})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ModelAnswer(content="your key is planted-value-1"), "contains the value of API_KEY at /answer"),
        (ModelAnswer(content="", refusal="AKIA" + "Q7" * 8), "contains a key of AWS at /refusal"),
        (ModelAnswer(content="", tool_calls=(LOOK,)), "contains the value of API_KEY at /tool_calls/0/arguments/at"),
        (deep_answer(), "is nested too deeply to be searched for secrets"),
    ],
    ids=["content", "refusal", "tool call", "deep"],
)
def test_an_answer_with_a_secret_is_not_recorded(tmp_path: Path, answer: ModelAnswer, words: str) -> None:
    def target(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        context.llm.complete_sync(model_request())
        return {"points": 1.0}

    done = record(tmp_path, target, backend=FakeBackend(answer=lambda _: answer))
    assert done.failure is not None
    assert done.failure.message.startswith(f'the answer to call 1 (role "ask") {words}')
    assert found(tmp_path) == []


def test_a_key_in_a_prompt_is_hashed_and_not_recorded(tmp_path: Path) -> None:
    target = asking(text="use planted-value-1")
    assert record(tmp_path, target, backend=FakeBackend(answer=lambda _: "done")).failure is None
    assert "planted" not in (tmp_path / "fixtures" / "a.json").read_text("utf-8")
    replayed = replay(tmp_path, target)
    assert (replayed.failure, replayed.stale) == (None, False)


def test_what_a_case_contains_is_no_secret_of_its_recording(tmp_path: Path) -> None:
    canary = "AKIA" + "Q7" * 8
    backend = FakeBackend(answer=lambda _: f"it is {canary}")
    assert record(tmp_path, ASKING, backend=backend, inputs={"text": f"keep {canary} to yourself"}).failure is None
    assert canary in (tmp_path / "fixtures" / "a.json").read_text("utf-8")


def test_a_changed_recording_waits_for_approval(tmp_path: Path) -> None:
    pending = ["fixtures/.pending/a.json", "fixtures/a.json"]
    # the model answers as recorded again: nothing waits any more
    said = iter(("one", "one", "two", "one"))
    for files in (1, 1, 2, 1):
        record(tmp_path, ASKING, backend=FakeBackend(answer=lambda _: next(said)))
        assert found(tmp_path) == pending[2 - files :]
        assert '"one"' in (tmp_path / "fixtures" / "a.json").read_text("utf-8")
        assert files == 1 or (tmp_path / "fixtures" / ".pending" / ".gitignore").read_text("utf-8") == "*\n"
    # the same again is no other recording, but one that can't be read is
    (tmp_path / "fixtures" / "a.json").write_text("{", "utf-8")
    record(tmp_path, ASKING)
    assert found(tmp_path) == pending


def exchange(text: str, answer: str, **changes: Any) -> dict[str, Any]:
    call = RecordedCall.of("openai", "POST", "/v1/chat/completions", json.dumps({"messages": text}).encode())
    call.status, call.end, call.pieces = 200, "complete", [json.dumps({"id": answer * 2, "said": answer}).encode()]
    return {**call.as_exchange(), **changes}


FIRST = [exchange("a", "1"), exchange("b", "2"), exchange("c", "3"), exchange("a", "4")]


@pytest.mark.parametrize(
    ("second", "is_changed"),
    [
        (FIRST[::-1], False),
        ([FIRST[3], *FIRST[1:3], FIRST[0]], False),
        (
            [
                {**each, "headers": {"x-request-id": "r2"}, "began_ms": 5, "ended_ms": 9}
                for each in FIRST[1:] + FIRST[:1]
            ],
            False,
        ),
        ([*FIRST[:3], exchange("a", "4", body={"id": "other", "said": "4"})], False),
        (FIRST[1:], True),
        ([*FIRST, FIRST[0]], True),
        ([*FIRST[:3], exchange("a", "5")], True),
        ([*FIRST[:3], exchange("d", "4")], True),
        # the answers of two others
        ([exchange("a", "1"), exchange("b", "3"), exchange("c", "2"), exchange("a", "4")], True),
        ([*FIRST[:3], exchange("a", "4", end="cut")], True),
    ],
)
def test_the_same_calls_in_another_order_are_no_other_recording(
    tmp_path: Path, second: list[dict[str, Any]], *, is_changed: bool
) -> None:
    for gateway in (FIRST, second):
        store_recording(suite(tmp_path), "a", authored_cassette("a", {}, [], gateway=gateway))
    pending = ["fixtures/.pending/a.json"] * is_changed
    assert found(tmp_path) == [*pending, "fixtures/a.json"]
    assert json.loads((tmp_path / "fixtures" / "a.json").read_text("utf-8"))["gateway"] == FIRST


def test_a_recording_is_replaced_when_no_model_is_called(tmp_path: Path) -> None:
    said = [("ask", "user", "?"), ("ask", "answer", "?")]
    recorded = record(tmp_path, ASKING)
    assert [transcript(recorded, prompts=prompts) for prompts in (True, False)] == [said, []]
    assert replay(tmp_path, ASKING).payload == recorded.payload

    def silent(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        return {"points": 0.5 if context.case_id else 0.0}

    recorded = record(tmp_path, silent)
    (tmp_path / "fixtures" / ".pending" / "a.json").replace(tmp_path / "fixtures" / "a.json")
    replayed = replay(tmp_path, silent)
    assert (replayed.failure, replayed.payload, replayed.llm_backend) == (None, recorded.payload, recorded.llm_backend)


def test_a_recording_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fixtures").write_text("a file where the folder should be")
    message = failure(record(tmp_path, ASKING), "cassette_unwritable")
    assert message.startswith("the recording can't be written: ")


def test_a_result_of_a_target_outside_this_process_is_replayed_in_turn_and_at_once(tmp_path: Path) -> None:
    recorded = record(tmp_path, OUTSIDE)
    with RunnerContext() as runner:
        at_once = runner.attempt(job(context(tmp_path, OUTSIDE, mode="fixture")))
    for replayed in (at_once, replay(tmp_path, OUTSIDE)):
        assert (replayed.failure, replayed.payload) == (None, recorded.payload) == (None, {"points": 1.0, "of": {}})
    record(tmp_path, ASKING)
    (tmp_path / "fixtures" / ".pending" / "a.json").replace(tmp_path / "fixtures" / "a.json")
    assert "/exchanges: got the roles ask; expected one" in failure(replay(tmp_path, OUTSIDE), "cassette_mismatch")


AGAIN = "record it again: pytest --packbench-suite=s --packbench-mode=record -k a"
LIMIT = Limit()


@pytest.mark.parametrize(
    ("recorded", "now", "expected"),
    [
        ((), (LIMIT,), "/conditions/guards: recorded with none, run with limit (most=3)"),
        ((LIMIT,), (), "/conditions/guards: recorded with limit (most=3), run with none"),
        ((LIMIT,), (Limit(4),), "/conditions/guards: recorded with limit (most=3), run with limit (most=4)"),
        ((LIMIT, other), (other, LIMIT), "recorded with limit (most=3), other, run with other, limit (most=3)"),
    ],
)
@pytest.mark.parametrize("target", [ASKING, OUTSIDE], ids=["asking", "outside"])
def test_other_guards_are_an_error(
    tmp_path: Path, target: Callable[..., Any], recorded: tuple[Any, ...], now: tuple[Any, ...], expected: str
) -> None:
    record(tmp_path, target, *recorded)
    assert replay(tmp_path, target, *recorded).failure is None
    text = failure(replay(tmp_path, target, *now))
    assert (expected in text, text.startswith("fixtures/a.json: "), text.endswith(AGAIN)) == (True, True, True)


def test_another_judge_is_an_error(tmp_path: Path) -> None:
    class Judged(EchoPack):
        def judges(self, rules: Any) -> Judges:
            return Judges(rules.guards, {"judge": ("ollama", rules.model)} if rules.model else {})

    rules = context(tmp_path, ASKING).suite.config
    own = judges_of(Judged(), rules.model_copy(update={"guards": ("own",)}), {"own": other})
    model = judges_of(Judged(), rules.model_copy(update={"model": "m1"}), {})
    record(tmp_path, ASKING, judge_parts=own)
    assert replay(tmp_path, ASKING, judge_parts=own).failure is None
    text = failure(replay(tmp_path, ASKING, judge_parts=model))
    assert 'recorded with own, run with judge (role="judge", backend="ollama", model="m1")' in text


def test_changed_code_of_a_guard_is_a_remark_where_the_guard_runs_and_an_error_where_it_does_not(
    tmp_path: Path,
) -> None:
    for folder, target in ((tmp_path / "called", ASKING), (tmp_path / "outside", OUTSIDE)):
        record(folder, target, LIMIT)
        conditions = change(folder)["conditions"]
        conditions["guards"][0]["code_sha256"] = "0" * 64
        change(folder, conditions=conditions)
    done = replay(tmp_path / "called", ASKING, LIMIT)
    assert (done.failure, done.remark) == (None, "the code of guard limit has changed since the recording")
    text = failure(replay(tmp_path / "outside", OUTSIDE, LIMIT))
    assert text == f"fixtures/a.json: /conditions/guards: the code of limit has changed since; {AGAIN}"


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        ((), "run with none; these differ: look"),
        ((tool(), tool("send")), "run with look, send; these differ: send"),
        ((tool(description="may send"),), "run with look; these differ: look"),
    ],
)
def test_other_tools_are_an_error(tmp_path: Path, now: tuple[Tool, ...], difference: str) -> None:
    record(tmp_path, asking(tool()))
    assert replay(tmp_path, asking(tool())).failure is None
    text = failure(replay(tmp_path, asking(*now)), "cassette_mismatch")
    assert "/conditions/tools: recorded with the tools look, run with" in text
    assert difference in text


def test_a_result_is_that_of_its_target_alone(tmp_path: Path) -> None:
    recorded = "/conditions/target: recorded with http://host/a, run with"
    record(tmp_path, OUTSIDE, target_name="http://host/a")
    assert replay(tmp_path, OUTSIDE, target_name="http://host/a").failure is None
    text = failure(replay(tmp_path, OUTSIDE, target_name="cmd:node agent.mjs"))
    assert f"{recorded} cmd:node agent.mjs; record it again" in text
    # also with a target that runs: the recording has no model calls to replay
    text = failure(replay(tmp_path, ASKING, target_name="shop:verify"))
    assert f"{recorded} shop:verify; record it again" in text
    # a Python target runs again
    record(tmp_path / "called", ASKING, target_name="shop:verify")
    assert replay(tmp_path / "called", ASKING, target_name="shop:other").failure is None


def test_a_recording_of_one_scripted_model_does_not_answer_for_another(tmp_path: Path) -> None:
    class Scripted(SuiteConfig):
        scripted = ("naive", "careful")

    record(tmp_path, OUTSIDE)
    change(tmp_path, llm_backend="stub", llm_model="naive")
    scripted = replace(conditioned(tmp_path, OUTSIDE, "fixture"), backend="stub")
    scripted = replace(scripted, suite=replace(scripted.suite, config=Scripted(pack="echo")))
    assert attempt(replace(scripted, model="naive"), case()).failure is None
    text = failure(attempt(replace(scripted, model="careful"), case()))
    assert "/llm_model: recorded with the scripted model naive, run with careful" in text


def test_another_pack_is_an_error_and_another_version_of_it_a_remark(tmp_path: Path) -> None:
    renamed, newer = (
        type("Other", (EchoPack,), {name: value})() for name, value in (("name", "other"), ("version", "2"))
    )
    record(tmp_path, ASKING)
    text = failure(replay(tmp_path, ASKING, pack=renamed))
    assert text == f'fixtures/a.json: /conditions/pack/name: recorded with "echo", run with "other"; {AGAIN}'
    done = replay(tmp_path, ASKING, pack=newer)
    assert (done.failure, done.remark) == (None, "recorded with version 1 of the pack echo, now 2")


def test_what_a_recording_states(tmp_path: Path) -> None:
    def verify(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        messages: tuple[dict[str, Any], ...] = ()
        assert context.guards == (LIMIT,)
        for text in ("?", "?"):
            messages = (*messages, {"role": "user", "content": text})
            context.llm.complete_sync(replace(model_request(), system="s", messages=messages))
        return {"points": 1.0}

    record(tmp_path, verify, LIMIT, target_name="shop:verify")
    data = change(tmp_path)
    (guard,) = data["conditions"].pop("guards")
    assert data["cassette_version"] == CASSETTE_VERSION
    assert data["conditions"] == {
        "target": {"kind": "python", "address": "shop:verify"},
        "pack": {"name": "echo", "version": "1"},
        "judges": [],
        "tools": [],
    }
    assert (guard["name"], guard["settings"], len(guard["code_sha256"])) == ("limit", {"most": 3}, 64)
    question = {"role": "user", "content": "?"}
    assert [exchange["prompt"] for exchange in data["exchanges"]] == [
        {"system": "s", "messages": [question]},
        {"continues": 0, "messages": [question]},
    ]


class PrivateCase(Case):
    """A case whose texts stay where they are."""

    @property
    def keeps_prompts(self) -> bool:
        return False


@pytest.mark.parametrize(
    "how", [{"options": RunOptions(mode="record", record_prompts=False)}, {"kind": PrivateCase}], ids=["option", "case"]
)
def test_prompts_are_left_out_where_the_user_or_the_case_says_so(tmp_path: Path, how: dict[str, Any]) -> None:
    record(tmp_path, ASKING, **how)
    (exchange,) = change(tmp_path)["exchanges"]
    assert exchange.keys() == {"role", "answer", "request_sha256", "usage"}


def test_the_settings_of_a_part() -> None:
    class Slotted:
        __slots__ = ("low", "unset")
        name = "slotted"

        def __init__(self) -> None:
            self.low = {2, 1}

    class Stated:
        name = "stated"
        settings = {"kind": Limit, "path": None, "of": {1: {"b", "a"}}}  # noqa: RUF012 - as a user writes it

    parts = {"slotted": Slotted(), "stated": Stated(), "f": other, "provided": None}
    slotted, stated, function, provided = parts_of(parts.items())
    assert slotted.settings == {"low": [1, 2]}
    assert stated.settings == {"kind": f"{__name__}.Limit", "of": {"1": ["a", "b"]}, "path": None}
    assert (function.settings, function.code_sha256) == ({}, slotted.code_sha256)
    assert (provided.settings, provided.code_sha256) == ({}, None)


def test_a_target_that_ignores_the_guards_has_no_result(tmp_path: Path) -> None:
    text = failure(replay(tmp_path, lambda request, context: {"points": 1.0}, LIMIT), "guards_unused")
    assert "so its result met no guard: limit; " in text
    assert replay(tmp_path, lambda request, context: {"points": float(len(context.guards))}, LIMIT).failure is None


def test_a_judge_that_was_asked_something_else_has_not_ruled(tmp_path: Path) -> None:
    def judged(text: str) -> Callable[..., Any]:
        def verify(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
            context.llm.complete_sync(model_request())
            context.llm.complete_sync(model_request("judge", text))
            return {"points": 1.0}

        return verify

    record(tmp_path, judged("one"))
    assert replay(tmp_path, judged("one"), roles=frozenset({"judge"})).failure is None
    for role, problem in (("other", "the prompt"), ("judge", "the request to the role judge")):
        text = failure(replay(tmp_path, judged("two"), roles=frozenset({role})), "cassette_stale")
        assert text.startswith(f"{problem} has changed since ")


def test_a_recorded_answer_without_a_hash_or_tools_answers_nothing(tmp_path: Path) -> None:
    target = asking(tool())
    record(tmp_path, target)
    data = change(tmp_path)
    for now, kind in (
        ({"exchanges": [{**data["exchanges"][0], "request_sha256": None}]}, "cassette_stale"),
        ({"conditions": {**data["conditions"], "tools": None}}, "cassette_mismatch"),
    ):
        change(tmp_path, **(data | now))
        assert failure(replay(tmp_path, target), kind)
        # what a person wrote answers any request
        change(tmp_path, origin="authored")
        assert replay(tmp_path, target).failure is None
