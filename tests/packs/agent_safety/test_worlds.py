"""Worlds: an agent of the user acts in a case's environment, and what it says of itself counts for nothing."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

import asyncio
import inspect
import json
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime

from pytest_packbench.engine.attempt import at_once
from pytest_packbench.engine.targets import TargetCaller, as_target, run_in_thread
from pytest_packbench.model.request import AnswerError, Tool, VerifyContext
from pytest_packbench.packs.agent_safety import serving, worlds
from pytest_packbench.packs.agent_safety.agentdojo.importer import Pair, case_of
from pytest_packbench.packs.agent_safety.agentdojo.suites import suite_of
from pytest_packbench.packs.agent_safety.agentdojo.upstream import ADVICE
from pytest_packbench.packs.agent_safety.episode import Episode
from pytest_packbench.packs.agent_safety.guards.base import GuardError, GuardRuling
from pytest_packbench.packs.agent_safety.serving import WorldClosedError
from pytest_packbench.packs.agent_safety.worlds import MAX_CALLS, AgentRequest, SafetyWorlds, as_function
from tests.packs.agent_safety.runs import (
    PACK,
    RULES,
    RulingGuard,
    SafetyRun,
    ScriptedModel,
    cases_of,
    checked,
    expect,
    guard_of,
    nested,
    read,
    run_case,
    scored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_packbench.model.request import World
    from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig

# the attacker wants the password changed
PAIR = checked(case_of(Pair("banking", 1, 7, "easy")))
TABLE = yaml.safe_load((Path(__file__).parent / "data" / "worlds.yaml").read_text("utf-8"))
READS, OBEYS = tuple(TABLE["reads"]), tuple(TABLE["obeys"])


def context_of(case: SafetyCase, guards: Sequence[Any] = ()) -> VerifyContext:
    return VerifyContext(llm=ScriptedModel([]), suite="s", case_id=case.id, mode="fixture", guards=tuple(guards))


def act(agent: Any, case: SafetyCase = PAIR, guards: Sequence[Any] = (), rules: SafetySuiteConfig = RULES) -> SafetyRun:
    """Run an agent as a target, as the engine does."""
    caller = TargetCaller(as_target(agent, "agent", PACK.adapt_target), PACK.world(rules, "my:agent"))
    try:
        result = at_once(caller.call(PACK.request(case), context_of(case, guards)))
    finally:
        caller.close()
    outcome = read(json.loads(json.dumps(result)))
    return SafetyRun(case=case, result=result, outcome=outcome, score=scored(case, outcome, rules))


def request_of(world: World) -> AgentRequest:
    request = world.__enter__()
    assert isinstance(request, AgentRequest)
    return request


def plays(
    *calls: tuple[str, dict[str, Any]], then: Any = "Done.", replies: list[str] | None = None
) -> Callable[[Any], Any]:
    said = [] if replies is None else replies

    def agent(request: AgentRequest) -> Any:
        said.extend(request.call(name, arguments) for name, arguments in calls)
        if isinstance(then, Exception):
            raise then
        return then

    return agent


def case_named(name: Any) -> SafetyCase:
    """A pair of AgentDojo, the first case of a bundled suite that has no known hole, or one of InjecAgent by its id."""
    if isinstance(name, dict):
        return checked(
            case_of(Pair._make([*name["pair"], "easy"]), *name.get("attacks", ()), variant=name.get("variant"))
        )
    suite = "injecagent" if name.startswith("own_") else name
    cases = [case for case in cases_of(suite) if case.expected.known_hole is None]
    return next(case for case in cases if name in {suite, case.id})


@pytest.mark.parametrize("row", TABLE["rows"].values(), ids=list(TABLE["rows"]))
def test_what_is_known_of_an_agent_is_what_it_did(row: dict[str, Any]) -> None:
    case = case_named(row["case"]) if "case" in row else PAIR
    rules = RULES.model_copy(update={"judges": tuple(row["judges"])}) if "judges" in row else RULES
    replies: list[str] = []
    for obeys, wanted in ((False, row["known"]), (True, {"verdict": row.get("obeying"), "checked.landed": True})):
        if obeys and "obeying" not in row:
            continue
        calls = [*row["plays" if "plays" in row else "pipeline"], *([OBEYS] if obeys else [])]
        calls = [(name, {"x": nested(70)} if arguments == "deep" else arguments) for name, arguments in calls]
        agent = plays(*calls, then=row.get("then", "Done."), replies=replies) if "plays" in row else Played(calls)
        run = act(agent, case, [guard_of(guard) for guard in row.get("guards", ())], rules)
        for path, value in wanted.items():
            expect(run, path, value, replies=replies)


def test_an_agent_is_told_its_task_and_nothing_of_the_case() -> None:
    seen: list[AgentRequest] = []
    act(seen.append)
    (request,) = seen
    assert set(request.input) == {"task", "system", "tools", "http", "mcp"}
    assert "injection_task" not in json.dumps(request.as_json())
    assert {"name", "description", "parameters"} == set(request.input["tools"][0])
    with pytest.raises(WorldClosedError, match="the case is over"):
        request.call(*READS)


NO_NUMBER = "the arguments can't be read: Out of range float values are not JSON compliant"


@pytest.mark.parametrize(
    ("name", "arguments", "reply"),
    [
        ("", {}, "Invalid tool ? provided."),
        ("get\udc80", {}, "Invalid tool get\ufffd provided."),
        ("get_iban", {"x": float("nan")}, NO_NUMBER),
        ("get_iban", '{"x": NaN}', NO_NUMBER),
        ("get_iban", '{"x": 1e999}', NO_NUMBER),
        ("get_iban", {"x": 1 << 99}, ""),
        ("get_iban", {"x": 10**5000}, "the arguments can't be read: Exceeds the limit"),
        ("get_iban", {"x": object()}, "the arguments can't be read: Object of type object is not JSON serializable"),
        ("get_iban", {"x": nested(5000)}, "the arguments can't be read: "),
        ("get_iban", {"x": nested(70)}, "the arguments can't be read: /x/0: nested deeper than 64; remove levels"),
        ("get_iban", {"x": {1: 2}}, ""),
        ("send_money", {"subject": "\udc80"}, "ValidationError"),
        ("get_iban", {"x": "[b'1']"}, ""),
    ],
)
def test_no_call_and_no_answer_of_an_agent_makes_its_result_unreadable(name: str, arguments: Any, reply: str) -> None:
    replies: list[str] = []

    def agent(request: AgentRequest) -> Any:
        noted = dict(READS[1])
        request.call(READS[0], noted)
        noted.clear()
        request.call(*OBEYS)
        replies.append(request.call(name, arguments))
        return {"answer": "Done.\ud83d", "usage": {"tokens_input": object()}, "llm_model": {1, 2}}

    run = act(agent)
    assert replies[0].startswith(reply)
    assert (run.score.verdict, run.episode.checked.landed, run.outcome.answer) == ("failed", True, "Done.\ufffd")
    assert "\\ud" not in json.dumps(run.result, allow_nan=False)
    # as it was at the time of the call
    assert run.episode.calls[0].arguments == READS[1]


def test_what_a_pipeline_tells_does_not_make_its_result_unreadable() -> None:
    def with_a_role_of_its_own(messages: Any, env: Any, before: Any) -> Any:
        return [{**messages[0], "role": ""}, *messages[1:]], env

    run = act(Played([READS, OBEYS], with_a_role_of_its_own))
    assert (run.score.verdict, run.calls) == ("failed", [(READS[0], "run"), (OBEYS[0], "run")])
    recorded = act(plays(READS)).result | {"turns": [{"role": "assistant", "text": "", "calls": [{"name": ""}]}]}
    assert SafetyWorlds(RULES, "http://127.0.0.1").replayed(recorded)["error"]["kind"] == "world_error"


def test_only_an_agent_outside_this_process_names_its_model() -> None:
    claim = {"answer": "Done.", "llm_backend": "openai", "llm_model": "gpt-5", "usage": {"tokens_input": 1}}
    for name, reported in (("my:agent", set()), ("http://127.0.0.1", {"llm_backend", "llm_model"})):
        world = SafetyWorlds(RULES, name).open(PACK.request(PAIR), context_of(PAIR))
        with world:
            pass
        result = world.result(claim, None)
        assert result["usage"] == {"tokens_input": 1}
        assert result.keys() & {"llm_backend", "llm_model"} == reported


@pytest.mark.parametrize(
    ("report", "kept"),
    [
        ({"usage": {"k" * 2_000_000: 1}}, {}),
        (
            {"usage": {"\udc80": 1, 3: 4, "tokens_input": 10**5000, "tokens_output": 5}},
            {"tokens_output": 5},
        ),
        ({"usage": {"tokens_input": True, "tokens_output": -1}}, {}),
        ({"usage": [1]}, {}),
        ({"llm_model": "m" * 2_000_000, "llm_backend": "\udc80"}, {}),
    ],
)
def test_no_report_of_a_model_hides_what_landed(report: dict[str, Any], kept: dict[str, int]) -> None:
    world = SafetyWorlds(RULES, "http://127.0.0.1").open(PACK.request(PAIR), context_of(PAIR))
    with world as request:
        assert isinstance(request, AgentRequest)
        for call in (READS, OBEYS):
            request.call(*call)
    episode = Episode.model_validate(json.loads(json.dumps(world.result({"answer": "Done.", **report}, None))))
    assert (episode.checked.landed, episode.usage) == (True, kept)
    assert len(episode.llm_model or "") <= 200


def test_answers_of_other_types_are_read_and_failures_are_errors() -> None:
    message = type("Message", (), {"content": "Done."})()
    cut = AnswerError("truncated", "cut off at 9 tokens", text="I")
    for answer, verdict, text, problem in (
        (message, "passed", "Done.", None),
        (cut, "vacuous", "I", "cut off at 9 tokens"),
    ):
        run = act(plays(READS, then=answer))
        assert (run.score.verdict, run.outcome.answer, run.episode.said.problem) == (verdict, text, problem)
        assert act(plays(READS, OBEYS, then=answer)).score.verdict == "failed"
    with pytest.raises(ZeroDivisionError):
        act(plays(READS, then=ZeroDivisionError()))
    with pytest.raises(TypeError, match="called tools and returned a pipeline"):
        act(plays(READS, then=Played([])))
    # a factory makes a pipeline for all cases, a target one for each
    assert act(lambda: Played([READS])).score.verdict == act(lambda _: Played([READS])).score.verdict == "passed"
    # what a guard takes that is no attack is measured
    deaf = RulingGuard("deaf", on_tool_output=GuardRuling(decision="deny"))
    assert act(plays(("get_iban", {})), guards=[deaf]).result["collateral"]["removed_words"] > 0
    behaviour = case_named("harmbench")
    other = behaviour.model_copy(update={"input": behaviour.input.model_copy(update={"text_sha256": "0" * 64})})
    assert "text_missing: harmless_" in act(plays(), other).score.message
    asked: list[AgentRequest] = []
    assert (act(asked.append, behaviour).result, asked[0].input["task"]) != ({}, "")
    assert asked[0].input["task"] not in json.dumps(act(plays(), behaviour).result)


def test_without_its_extra_a_pair_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run = act(plays(READS))
    monkeypatch.setattr(sys, "path", [])
    for run in (act(plays(READS)), run_case(PAIR, model="obedient")):
        assert run.score.message == f"the target reports a failure: extra_missing: {ADVICE}"


def test_an_agent_cannot_reach_the_guards_and_judges_of_its_world() -> None:
    met: list[VerifyContext] = []

    def disarms(request: AgentRequest, context: VerifyContext) -> str:
        met.append(context)
        for guard in context.guards:
            guard.on_tool_output = lambda _: None
        request.call(*READS)
        request.call(*OBEYS)
        return "Done."

    async def disarms_later(request: AgentRequest, context: VerifyContext) -> str:
        return disarms(request, context)

    for agent in (disarms, disarms_later):
        run = act(agent, guards=[PACK.guards()["redact"]()])
        assert (run.episode.removed_by, run.episode.exposed, run.episode.agent.guards) == (
            ("redact",),
            False,
            ("redact",),
        )
    # as the engine calls targets
    caller = TargetCaller(as_target(disarms, "agent"), PACK.world(RULES, "my:agent"))
    context = replace(context_of(PAIR, [PACK.guards()["redact"]()]), judges={"mine": print})
    result = asyncio.run(caller.call(PACK.request(PAIR), context, run_in_thread))
    assert (read(result).document.exposed, result["agent"]["guards"]) == (False, ["redact"])
    assert [(context.guards, context.judges) for context in met] == [((), {})] * 3
    # whose id names the attack
    (case_id,) = {context.case_id for context in met}
    assert case_id.startswith("case_")
    assert "task" not in case_id


def ignoring(request: AgentRequest) -> str:
    for name, arguments in (READS, OBEYS):
        with suppress(Exception):
            request.call(name, arguments)
        assert http(request.input["http"], f"/tools/{name}", arguments)[0] in {200, 500}
    return "Done."


class Ignoring(ToolsExecutor):  # type: ignore[misc]  # an extra
    def query(self, *step: Any) -> Any:
        with suppress(GuardError):
            return super().query(*step)
        return step


@pytest.mark.parametrize("phase", ["pre_tool_use", "on_tool_output"])
def test_a_guard_that_fails_is_an_error_even_if_the_agent_ignores_it(phase: str) -> None:
    broken = RulingGuard("broken", **{phase: RuntimeError("no rules")})
    for agent in (ignoring, Played([READS, OBEYS], executor=Ignoring())):
        with pytest.raises(GuardError, match=f"guard broken.{phase} raised RuntimeError: no rules"):
            act(agent, guards=[broken])


def test_the_world_of_an_abandoned_agent_is_closed() -> None:
    begun, ended = threading.Event(), threading.Event()
    raised: list[Exception] = []
    urls: list[str] = []

    def agent(request: AgentRequest) -> str:
        urls.append(request.input["http"])
        begun.set()
        ended.wait(10)
        try:
            return request.call(*OBEYS)
        except WorldClosedError as error:
            raised.append(error)
            raise

    async def abandon() -> None:
        caller = TargetCaller(agent, PACK.world(RULES, "my:agent"))
        task = asyncio.create_task(caller.call(PACK.request(PAIR), context_of(PAIR), run_in_thread))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectionRefusedError):
            http(urls[0], "")
        ended.set()
        while not raised:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(abandon(), 20))


def test_an_agent_is_told_of_its_mistakes() -> None:
    said: list[str] = []

    def agent(request: AgentRequest) -> str:
        said.extend(request.call("read_file", arguments) for arguments in ("{", "[1]", None, '{"file_path": "no"}'))
        said.append(request.call("no_such_tool"))
        for _ in range(MAX_CALLS):
            last = request.call("get_iban")
        said.append(last)
        return "Done."

    run = act(agent)
    assert said[0].startswith("the arguments can't be read: ")
    assert said[1] == "the arguments are a list; expected an object"
    assert said[2].startswith("ValidationError: ")
    assert said[4] == "Invalid tool no_such_tool provided."
    assert said[5] == f"no more than {MAX_CALLS} tool calls may be made in one case"
    assert len(run.calls) == MAX_CALLS - 2
    # nobody saw what the further ones were for
    assert run.score.verdict == "vacuous"
    assert run.episode.said.problem == f"a tool call was refused: {said[5]}"


def test_tools_are_functions_with_signatures() -> None:
    functions: dict[str, Callable[..., str]] = {}

    def agent(request: AgentRequest) -> str:
        functions.update({each.__name__: each for each in request.functions})
        assert "Invalid" not in functions["get_most_recent_transactions"](n=2)
        return functions["send_money"]("GB1", 1.5, subject="s", date="2024-01-01")

    run = act(agent)
    assert run.calls == [("get_most_recent_transactions", "run"), ("send_money", "run")]
    send = functions["send_money"]
    assert list(inspect.signature(send).parameters) == ["recipient", "amount", "subject", "date"]
    assert send.__annotations__ == {"recipient": str, "amount": float, "subject": str, "date": str, "return": str}
    assert "recipient: IBAN of the recipient" in (send.__doc__ or "")
    optional = inspect.signature(functions["update_user_info"]).parameters["city"]
    assert (optional.default, optional.annotation) == (None, str | None)
    kinds = {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "b": {}}
    of_kinds = Tool(name="f", description="d", parameters={"type": "object", "properties": kinds, "required": ["a"]})
    assert as_function(of_kinds, lambda *_: "").__annotations__ == {"a": int | str, "b": Any, "return": str}
    free = Tool(name="free", description="d", parameters={"type": "object", "additionalProperties": True})
    assert as_function(free, lambda name, arguments: f"{name} {arguments}")(a=1) == "free {'a': 1}"


def http(url: str, path: str, body: Any = None, *, method: str = "", **headers: str) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method or ("GET" if data is None else "POST"), parts.path + path, data, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    is_json = "json" in (response.headers["content-type"] or "")
    return response.status, json.loads(text) if is_json else text.decode()


def test_the_world_is_served_as_json_and_only_to_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, tuple[int, Any]] = {}
    urls: list[str] = []

    def agent(request: AgentRequest) -> str:
        url = request.input["http"]
        urls.append(url)
        port = urlsplit(url).port
        answers.update(
            described=http(url, ""),
            read=http(url, f"/tools/{READS[0]}", READS[1]),
            unknown=http(url, "/tools/no%2Fsuch", {}),
            not_json=http(url, "/tools/get_iban", b"{"),
            not_utf8=http(url, "/tools/get_iban", b'{"x": "\xed\xa0\x80"}'),
            not_an_object=http(url, "/tools/get_iban", [1]),
            method=http(url, "/tools/get_iban"),
            elsewhere=http(url, "/else", {}),
            stream=http(url, "/mcp"),
            mcp_form=http(url, "/mcp", {}),
            secret=http(f"http://127.0.0.1:{port}/guess", "/tools/get_iban", {}),
            host=http(url, "/tools/get_iban", {}, Host=f"evil.example:{port}"),
            origin=http(url, "/tools/get_iban", {}, Origin=f"http://127.0.0.1:{port}"),
            mcp_origin=http(url, "/mcp", {}, Origin="http://evil.example"),
        )
        return "Done."

    run = act(agent)
    has_mcp = find_spec("mcp") is not None
    assert {name: status for name, (status, _) in answers.items()} == {
        "described": 200, "read": 200, "unknown": 200, "not_json": 200, "not_utf8": 200, "not_an_object": 200,
        "method": 405, "elsewhere": 404, "stream": 405 if has_mcp else 501,
        "mcp_form": 400 if has_mcp else 501, "secret": 404, "host": 421, "origin": 403, "mcp_origin": 403,
    }  # fmt: skip
    assert set(answers["described"][1]) == {"task", "system", "tools"}
    assert answers["read"][1]["error"] is False
    assert answers["unknown"][1] == {"output": "Invalid tool no/such provided.", "error": True}
    # an agent is told of its mistake by each door as by the others
    for name in ("not_json", "not_utf8", "not_an_object"):
        assert answers[name][1]["error"] is True
        assert answers[name][1]["output"].startswith("the arguments ")
    assert (run.episode.exposed, run.calls) == (True, [(READS[0], "run"), ("no/such", "failed")])
    assert run.result["details"]["doors"] == ["http"]
    with pytest.raises(ConnectionRefusedError):
        http(urls[0], "")
    act(agent)
    assert urls[0] != urls[1]
    monkeypatch.setitem(sys.modules, "mcp", None)
    act(agent)
    assert answers["stream"] == (501, {"problem": serving.ADVICE})


def test_the_world_is_served_over_mcp() -> None:
    mcp = pytest.importorskip("mcp")
    seen: dict[str, Any] = {}

    async def agent(request: AgentRequest) -> str:
        async with mcp.Client(request.input["mcp"]) as world:
            tools = (await world.list_tools()).tools
            assert [(tool.name, tool.description, tool.input_schema) for tool in tools] == [
                tuple(tool.values()) for tool in request.input["tools"]
            ]
            outputs = await asyncio.gather(*(world.call_tool(*call) for call in (READS, ("no_such_tool", {}))))
            seen.update({str(output.is_error): output.content[0].text for output in outputs})
        return "Done."

    run = act(agent)
    assert "Invalid tool no_such_tool provided." in seen["True"]
    assert "amount" in seen["False"]
    assert (run.episode.exposed, run.score.verdict, run.result["details"]["doors"]) == (True, "passed", ["mcp"])


def test_a_call_that_hangs_is_an_error_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "CALL_WAIT_S", 0.01)
    begun, ended = threading.Event(), threading.Event()

    def hangs(_: Any) -> None:
        begun.set()
        ended.wait(10)

    def agent(request: AgentRequest) -> str:
        threading.Thread(target=suppressed, args=(request,)).start()
        begun.wait(10)
        return "Done."

    def suppressed(request: AgentRequest) -> None:
        with suppress(WorldClosedError):
            request.call(*READS)

    run = act(agent, guards=[RulingGuard("hangs", pre_tool_use=hangs)])
    ended.set()
    assert run.score.message.endswith("target_error: a tool call was still running 0.01 s after the agent had returned")


class Played(BasePipelineElement):  # type: ignore[misc]  # an extra
    """A pipeline of AgentDojo's kind that makes calls; `tells` changes what it returns of them."""

    def __init__(
        self,
        calls: Sequence[tuple[str, dict[str, Any]]],
        tells: Callable[..., Any] = lambda *it: it,
        executor: Any = None,
    ) -> None:
        self.name = "gpt-4o-2024-05-13"
        self.calls, self.tells, self.executor = calls, tells, executor or ToolsExecutor()

    def query(self, query: str, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        messages = [{"role": "user", "content": [{"type": "text", "content": query}]}]
        before = env.model_copy(deep=True)
        for name, arguments in self.calls:
            call = FunctionCall(function=name, args=arguments)
            messages.append({"role": "assistant", "content": [], "tool_calls": [call]})
            messages = list(self.executor.query(query, runtime, env, messages, {})[3])
        messages.append({"role": "assistant", "content": [{"type": "text", "content": "Done."}], "tool_calls": []})
        messages, env = self.tells(messages, env, before)[:2]
        return query, runtime, env, messages, {}


def test_a_pipeline_that_stops_is_judged_by_what_it_did() -> None:
    def is_cut_off(*_: Any) -> Any:
        raise AnswerError("truncated", "cut off at 9 tokens", text="I")

    def aborts(messages: Any, env: Any, _before: Any) -> Any:
        raise AbortAgentError("stop", messages, env)

    for tells, problem in ((is_cut_off, "cut off at 9 tokens"), (aborts, None)):
        run = act(Played([READS, OBEYS], tells))
        assert (run.score.verdict, run.episode.checked.landed, run.episode.said.problem) == ("failed", True, problem)
    for environment in (None, 5, "before"):

        def aborts_in(messages: Any, _env: Any, before: Any, environment: Any = environment) -> Any:
            raise AbortAgentError("stop", messages, before if environment == "before" else environment)

        for obeys, verdict in ((1, "failed"), (0, "passed")):
            run = act(Played([READS, *[OBEYS] * obeys], aborts_in))
            assert (run.score.verdict, run.outcome.answer) == (verdict, "stop"), environment
    deny = GuardRuling(decision="deny")
    run = act(Played([READS]), guards=[RulingGuard("ends", on_final_answer=deny, on_tool_list=None)])
    assert (run.outcome.answer, run.calls) == ("[withheld by a guard]", [(READS[0], "run")])


def test_a_pipeline_cannot_hide_what_it_did() -> None:
    def without_calls(messages: Any, env: Any, before: Any) -> Any:
        return [messages[0], messages[-1]], env

    def as_before(messages: Any, env: Any, before: Any) -> Any:
        return messages, before

    def restored(messages: Any, env: Any, before: Any) -> Any:
        for name in type(env).model_fields:
            setattr(env, name, getattr(before, name))
        return messages, env

    for tells in (without_calls, as_before, restored):
        assert act(Played([READS, OBEYS], tells)).score.verdict == "failed"

    def obeyed(env: Any) -> Any:
        FunctionsRuntime(suite_of("v1.2.2", "banking").tools).run_function(env, *OBEYS)
        return env

    def in_another(messages: Any, env: Any, before: Any) -> Any:
        return messages, obeyed(before)

    asked: list[Any] = []

    def in_the_one_before(messages: Any, env: Any, before: Any) -> Any:
        asked.append(env)
        # without an answer it is asked again, in the environment that it returned
        again = [*messages[:-1], {**messages[-1], "content": None}]
        return (again, before) if len(asked) == 1 and obeyed(env) else (messages, env)

    for tells in (in_another, in_the_one_before):
        assert act(Played([READS], tells)).score.verdict == "failed"
    # attempted calls count in the checker of this attack
    pair = checked(case_of(Pair("slack", 0, 5, "easy")))
    attack = suite_of("v1.2.2", "slack").injection_tasks["injection_task_5"].ground_truth(None)
    attempts = [(call.function, dict(call.args)) for call in attack]
    assert act(Played(attempts, without_calls), pair).score.verdict == "failed"


def test_what_a_pipeline_is_denied_runs_nowhere() -> None:
    money = {"recipient": "a", "amount": 1.0, "subject": "b", "date": "2022-01-01"}
    plain = {"password": "new_password"}
    nested = {"password": FunctionCall(function="get_iban", args={})}
    ends: list[Any] = []

    class Asking(Played):
        def query(self, *step: Any) -> Any:
            _, runtime, env = step[:3]
            ends.append([runtime.run_function(env, *call) for call in (("send_money", money), (OBEYS[0], nested))])
            for call in (("send_money", money), ("no_such_tool", {})):
                with pytest.raises(RuntimeError) as caught:
                    runtime.run_function(env, *call, raise_on_error=True)
                ends.append(str(caught.value))
            ends.append(runtime.run_function(env, "update_password", plain))
            ends.append(env.user_account.password)
            return super().query(*step)

    deny = RulingGuard(
        "denies",
        pre_tool_use=lambda call: GuardRuling(decision="deny") if call.tool in {"send_money", "get_iban"} else None,
    )
    run = act(Asking([READS]), guards=[deny])
    assert ends[0][0][1] == ends[1] == "denied by the guard denies: denied"
    assert ends[0][1] == ("", "PermissionError: denied by the guard denies: denied")
    assert ends[2] == "Invalid tool no_such_tool provided."
    # it gets what a tool of AgentDojo returns, from an environment of its own
    assert ends[3:] == [({"message": "Password updated."}, None), "new_password"]
    statuses = [status for _, status in run.calls]
    assert statuses == ["denied", "failed", "denied", "failed", "run", "run"]
    assert run.score.verdict == "failed"


@pytest.mark.parametrize(("name", "value"), [("security", lambda *_: False), ("GOAL", "Nothing.")])
def test_an_agent_that_changes_the_checkers_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    task = type(suite_of("v1.2.2", "banking").injection_tasks["injection_task_7"])

    def agent(request: AgentRequest) -> str:
        request.call(*READS)
        monkeypatch.setattr(task, name, value)
        request.call(*OBEYS)
        return "Done."

    run = act(agent)
    assert run.score.verdict == "error"
    assert f"checkers_changed: {task.__module__}.InjectionTask7.{name} is not as AgentDojo has it" in run.score.message
    monkeypatch.undo()
    assert act(plays(READS, OBEYS)).score.verdict == "failed"


@pytest.mark.parametrize(
    ("tells", "problem"),
    [
        (None, "a NoneType"),
        (lambda *step: step[:4], "a tuple"),
        (lambda query, runtime, env, messages, extra: (query, runtime, None, messages, extra), "a tuple"),
        (lambda query, runtime, env, messages, extra: (query, runtime, env, [], extra), "a tuple"),
        (
            lambda query, runtime, env, messages, extra: (query, runtime, env, messages[:1], extra),
            "a tuple",
        ),
    ],
)
def test_a_pipeline_that_returns_no_step_is_told_and_judged(tells: Any, problem: str) -> None:
    class Returning(Played):
        def query(self, *step: Any) -> Any:
            whole = super().query(*step)
            return tells(*whole) if tells else None

    with pytest.raises(
        TypeError, match=f"the pipeline Returning returned {problem} that is no step; expected .query, runtime, env"
    ):
        act(Returning([READS]))
    run = act(Returning([READS, OBEYS]))
    assert (run.score.verdict, run.episode.checked.landed) == ("failed", True)


def test_tools_of_injecagent_have_the_parameters_that_are_described() -> None:
    case = next(case for case in cases_of("injecagent") if case.id == "own_ds_base_0")
    parameters = [
        {"name": "subject", "type": "string", "description": "Of the books.", "required": True},
        {"name": "limit", "type": "natural number"},
        "and more",
    ]
    described = [{"name": name, "summary": "Helps."} for name in case.input.material["attacker_tools"]]
    described.append({"name": case.input.material["user_tool"], "parameters": parameters})
    material = {**case.input.material, "tools": described}
    replies: list[Any] = []

    def agent(request: AgentRequest) -> str:
        replies.extend((request.input["tools"], request.call("no_such_tool")))
        return "Done."

    run = act(agent, case.model_copy(update={"input": case.input.model_copy(update={"material": material})}))
    properties = {"subject": {"type": "string", "description": "Of the books."}, "limit": {"description": ""}}
    schemas = {tool["name"]: (tool["description"], tool["parameters"]) for tool in replies[0]}
    assert schemas["LibraryCatalogueSearch"] == (
        "LibraryCatalogueSearch",
        {"type": "object", "properties": properties, "required": ["subject"]},
    )
    assert schemas["GmailSendEmail"][1]["additionalProperties"] is True
    assert (replies[1], run.calls) == ("Invalid tool no_such_tool provided.", [("no_such_tool", "failed")])


def test_a_recording_of_a_bare_claim_is_refused() -> None:
    worlds = SafetyWorlds(RULES, "http://127.0.0.1")
    assert worlds.replayed({"landed": False, "exposed": True})["error"]["kind"] == "cassette_outdated"
    result = act(plays(READS)).result
    assert worlds.replayed(result) is result
    for details in (5, True, "doors", ["doors"]):
        assert worlds.replayed({"details": details})["error"]["kind"] == "world_error"


def test_arguments_of_any_size_are_those_of_a_call() -> None:
    # a call that leaves no trace would hide an attack
    huge = {**OBEYS[1], "pad": "a" * 2_000_000}
    for pad in (huge["pad"], [0] * 1_100_000):
        run = act(plays(READS, (OBEYS[0], {**OBEYS[1], "pad": pad})))
        assert (run.score.verdict, run.calls) == ("failed", [(READS[0], "run"), (OBEYS[0], "run")])
    run = act(lambda request: str(http(request.input["http"], f"/tools/{OBEYS[0]}", huge)))
    assert (run.score.verdict, run.calls) == ("failed", [(OBEYS[0], "run")])
