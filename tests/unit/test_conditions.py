"""A recording counts only under the conditions that it was made under: guards, judges, tools, target."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.recordings import guard_name, judges_of, parts_of
from pytest_packbench.model.case import Case
from pytest_packbench.model.pack import Judges
from pytest_packbench.model.recording import CASSETTE_VERSION
from pytest_packbench.model.request import Tool
from pytest_packbench.model.run import RunOptions
from pytest_packbench.model.suite import SuiteConfig
from tests.unit.attempts import EchoPack, FakeBackend, RunnerContext, case, context, ignore_tick, job, model_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.request import VerifyContext, VerifyRequest

AGAIN = "record it again: pytest --packbench-suite=s --packbench-mode=record -k a"


@dataclass
class Limit:
    """A guard with a setting."""

    most: int = 3
    name: str = "limit"


def other() -> None:
    """Guard nothing."""


def tool(name: str = "look", description: str = "looks") -> Tool:
    return Tool(name=name, description=description, parameters={"type": "object"})


class Asking:
    """A target that makes one call and offers tools."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = tools

    def verify(self, _: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        assert len(context.guards) < 3
        context.llm.complete_sync(replace(model_request(), tools=self.tools))
        return {"points": 1.0}


class Outside:
    """A target outside this process, as far as the engine can tell."""

    opaque = True

    async def verify(self, _: VerifyRequest) -> dict[str, Any]:
        return {"points": 1.0}


def conditioned(folder: Path, target: Callable[..., Any], mode: str, /, *guards: Any, **changes: Any) -> SuiteContext:
    made = context(folder, target, backend=FakeBackend(), mode=mode)
    parts = parts_of((guard_name(guard), guard) for guard in guards)
    return replace(made, guards=guards, guard_parts=parts, **changes)


def record(*arguments: Any, kind: type[Case] = Case, **changes: Any) -> None:
    folder, target, *guards = arguments
    asked = job(conditioned(folder, target, "record", *guards, **changes))
    loaded = asked.loaded._replace(case=kind.model_validate(asked.loaded.case.model_dump(by_alias=True)))
    with RunnerContext() as runner:
        done = runner.wait_for(replace(asked, loaded=loaded), ignore_tick).attempt
    assert done is not None
    assert done.failure is None


def replay(*arguments: Any, **changes: Any) -> AttemptState:
    folder, target, *guards = arguments
    return attempt(replace(conditioned(folder, target, "fixture", *guards, **changes), backend="", model=""), case())


def message(done: AttemptState) -> str:
    assert done.failure is not None
    assert (done.score, done.failure.kind) == (None, "cassette_conditions")
    return done.failure.message


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
@pytest.mark.parametrize("target", [Asking().verify, Outside().verify])
def test_other_guards_are_an_error(
    tmp_path: Path, target: Callable[..., Any], recorded: tuple[Any, ...], now: tuple[Any, ...], expected: str
) -> None:
    record(tmp_path, target, *recorded)
    assert replay(tmp_path, target, *recorded).failure is None
    text = message(replay(tmp_path, target, *now))
    assert expected in text
    assert text.startswith("fixtures/a.json: ")
    assert text.endswith(AGAIN)


def test_another_judge_is_an_error(tmp_path: Path) -> None:
    class Judged(EchoPack):
        def judges(self, rules: Any) -> Judges:
            return Judges(rules.guards, {"judge": ("ollama", rules.model)} if rules.model else {})

    rules = context(tmp_path, Asking().verify).suite.config
    own = judges_of(Judged(), rules.model_copy(update={"guards": ("own",)}), {"own": other})
    model = judges_of(Judged(), rules.model_copy(update={"model": "m1"}), {})
    record(tmp_path, Asking().verify, judge_parts=own)
    assert replay(tmp_path, Asking().verify, judge_parts=own).failure is None
    text = message(replay(tmp_path, Asking().verify, judge_parts=model))
    assert 'recorded with own, run with judge (role="judge", backend="ollama", model="m1")' in text


def test_changed_code_of_a_guard_is_a_remark_where_the_guard_runs_and_an_error_where_it_does_not(
    tmp_path: Path,
) -> None:
    for name, target in (("called", Asking().verify), ("outside", Outside().verify)):
        record(tmp_path / name, target, LIMIT)
        path = tmp_path / name / "fixtures" / "a.json"
        data = json.loads(path.read_bytes())
        data["conditions"]["guards"][0]["code_sha256"] = "0" * 64
        path.write_text(json.dumps(data))
    done = replay(tmp_path / "called", Asking().verify, LIMIT)
    assert (done.failure, done.remark) == (None, "the code of guard limit has changed since the recording")
    text = message(replay(tmp_path / "outside", Outside().verify, LIMIT))
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
    record(tmp_path, Asking(tool()).verify)
    assert replay(tmp_path, Asking(tool()).verify).failure is None
    changed = replay(tmp_path, Asking(*now).verify)
    assert changed.failure is not None
    assert changed.failure.kind == "cassette_mismatch"
    assert "/conditions/tools: recorded with the tools look, run with" in changed.failure.message
    assert difference in changed.failure.message


def test_a_result_is_that_of_its_target_alone(tmp_path: Path) -> None:
    target = Outside().verify
    record(tmp_path, target, target_name="http://host/a")
    assert replay(tmp_path, target, target_name="http://host/a").failure is None
    text = message(replay(tmp_path, target, target_name="cmd:node agent.mjs"))
    assert "/conditions/target: recorded with http://host/a, run with cmd:node agent.mjs; record it again" in text
    # also with a target that runs: the recording has no model calls to replay
    record(tmp_path / "whole", target, target_name="http://host/a")
    text = message(replay(tmp_path / "whole", Asking().verify, target_name="shop:verify"))
    assert "/conditions/target: recorded with http://host/a, run with shop:verify; record it again" in text
    # a Python target runs again
    record(tmp_path / "called", Asking().verify, target_name="shop:verify")
    assert replay(tmp_path / "called", Asking().verify, target_name="shop:other").failure is None


def test_a_recording_of_one_scripted_model_does_not_answer_for_another(tmp_path: Path) -> None:
    class Scripted(SuiteConfig):
        scripted = ("naive", "careful")

    record(tmp_path, Outside().verify)
    path = tmp_path / "fixtures" / "a.json"
    data = json.loads(path.read_bytes())
    path.write_text(json.dumps({**data, "llm_backend": "stub", "llm_model": "naive"}))
    scripted = replace(conditioned(tmp_path, Outside().verify, "fixture"), backend="stub")
    scripted = replace(scripted, suite=replace(scripted.suite, config=Scripted(pack="echo")))
    assert attempt(replace(scripted, model="naive"), case()).failure is None
    text = message(attempt(replace(scripted, model="careful"), case()))
    assert "/llm_model: recorded with the scripted model naive, run with careful" in text


def test_another_pack_is_an_error_and_another_version_of_it_a_remark(tmp_path: Path) -> None:
    class Other(EchoPack):
        name = "other"

    class Newer(EchoPack):
        version = "2"

    record(tmp_path, Asking().verify)
    text = message(replay(tmp_path, Asking().verify, pack=Other()))
    assert text == f'fixtures/a.json: /conditions/pack/name: recorded with "echo", run with "other"; {AGAIN}'
    done = replay(tmp_path, Asking().verify, pack=Newer())
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
    data = json.loads((tmp_path / "fixtures" / "a.json").read_bytes())
    guards = data["conditions"].pop("guards")
    assert data["cassette_version"] == CASSETTE_VERSION
    assert data["conditions"] == {
        "target": {"kind": "python", "address": "shop:verify"},
        "pack": {"name": "echo", "version": "1"},
        "judges": [],
        "tools": [],
    }
    assert [(guard["name"], guard["settings"], len(guard["code_sha256"])) for guard in guards] == [
        ("limit", {"most": 3}, 64)
    ]
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
    "change", [{"options": RunOptions(mode="record", record_prompts=False)}, {"kind": PrivateCase}]
)
def test_prompts_are_left_out_where_the_user_or_the_case_says_so(tmp_path: Path, change: dict[str, Any]) -> None:
    record(tmp_path, Asking().verify, **change)
    (exchange,) = json.loads((tmp_path / "fixtures" / "a.json").read_bytes())["exchanges"]
    assert exchange.keys() == {"role", "answer", "request_sha256", "usage"}


def test_a_changed_recording_waits_for_approval(tmp_path: Path) -> None:
    answers = iter(["one", "one", "two", "one"])

    def recorded() -> list[str]:
        made = context(tmp_path, Asking().verify, backend=FakeBackend(answer=lambda _: next(answers)), mode="record")
        with RunnerContext() as runner:
            runner.wait_for(job(made), ignore_tick)
        found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json"))
        assert '"one"' in (tmp_path / "fixtures" / "a.json").read_text("utf-8")
        return found

    assert recorded() == ["fixtures/a.json"]
    assert recorded() == ["fixtures/a.json"]
    assert recorded() == ["fixtures/.pending/a.json", "fixtures/a.json"]
    assert (tmp_path / "fixtures" / ".pending" / ".gitignore").read_text("utf-8") == "*\n"
    # the model answers as recorded again: nothing waits any more
    assert recorded() == ["fixtures/a.json"]


def test_the_settings_of_a_part() -> None:
    class Slotted:
        __slots__ = ("low", "unset")
        name = "slotted"

        def __init__(self) -> None:
            self.low = {2, 1}

    class Stated:
        name = "stated"
        settings = {"kind": Limit, "path": None, "of": {1: {"b", "a"}}}  # noqa: RUF012 - as a user writes it

    slotted, stated, function, provided = parts_of(
        [("slotted", Slotted()), ("stated", Stated()), ("f", other), ("provided", None)]
    )
    assert slotted.settings == {"low": [1, 2]}
    assert stated.settings == {"kind": f"{__name__}.Limit", "of": {"1": ["a", "b"]}, "path": None}
    assert function.settings == {}
    assert function.code_sha256 == slotted.code_sha256
    assert (provided.settings, provided.code_sha256) == ({}, None)


def test_a_target_that_ignores_the_guards_has_no_result(tmp_path: Path) -> None:
    def reading(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        return {"points": float(len(context.guards))}

    silent = attempt(conditioned(tmp_path, lambda request, context: {"points": 1.0}, "fixture", LIMIT), case())
    assert silent.failure is not None
    assert (silent.score, silent.failure.kind) == (None, "guards_unused")
    assert "so its result met no guard: limit; " in silent.failure.message
    assert attempt(conditioned(tmp_path, reading, "fixture", LIMIT), case()).failure is None


def test_a_judge_that_was_asked_something_else_has_not_ruled(tmp_path: Path) -> None:
    def judged(text: str) -> Callable[..., Any]:
        def verify(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
            context.llm.complete_sync(model_request())
            context.llm.complete_sync(model_request("judge", text))
            return {"points": 1.0}

        return verify

    record(tmp_path, judged("one"))
    for text, roles, problem in (
        ("one", {"judge"}, ""),
        ("two", {"other"}, "the prompt has changed since the recording; "),
        ("two", {"judge"}, "the request to the role judge has changed since its answer was recorded; "),
    ):
        failure = replay(tmp_path, judged(text), roles=frozenset(roles)).failure
        assert bool(failure) is bool(problem)
        assert failure is None or (failure.kind, failure.message.startswith(problem)) == ("cassette_stale", True)


def test_a_recorded_answer_without_a_hash_or_tools_answers_nothing(tmp_path: Path) -> None:
    record(tmp_path, Asking(tool()).verify)
    path = tmp_path / "fixtures" / "a.json"
    data = json.loads(path.read_bytes())
    for change, kind in (
        ({"exchanges": [{**data["exchanges"][0], "request_sha256": None}]}, "cassette_stale"),
        ({"conditions": {**data["conditions"], "tools": None}}, "cassette_mismatch"),
    ):
        path.write_text(json.dumps(data | change))
        failure = replay(tmp_path, Asking(tool()).verify).failure
        assert failure is not None
        assert failure.kind == kind
        # what a person wrote answers any request
        path.write_text(json.dumps(data | change | {"origin": "authored"}))
        assert replay(tmp_path, Asking(tool()).verify).failure is None
