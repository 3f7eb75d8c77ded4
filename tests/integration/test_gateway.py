"""A pipeline with a model client of its own, unchanged, is recorded and replayed; the rest of the session sees nothing of it."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.testing import SuiteResults
from tests.integration.conftest import json_lines
from tests.integration.options.conftest import SECRET, recordings, replayable
from tests.servers.fake import FakeServer, Handler, Reply, scripted
from tests.servers.wire import anthropic_reply, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received

PIPELINES = """
import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import anthropic
import httpx
import openai

from pytest_packbench.model.request import ModelRequest

OPENAI = openai.OpenAI()
ONCE = openai.OpenAI(max_retries=0)
ASYNC = openai.AsyncOpenAI()
ANTHROPIC = anthropic.Anthropic()
POOL = ThreadPoolExecutor(2)
GO, DONE = threading.Event(), threading.Event()


def messages(text):
    return [{"role": "user", "content": text}]


def complete(text, client=OPENAI):
    answer = client.chat.completions.create(model="fake-1", messages=messages(text))
    return json.loads(answer.choices[0].message.content)


def ask(request):
    return complete(request.input["text"])


async def ask_async(request):
    asked = [
        ASYNC.chat.completions.create(model="fake-1", messages=messages(text))
        for text in (request.input["text"], "points 0.3")
    ]
    answers = await asyncio.gather(*asked)
    return json.loads(answers[0].choices[0].message.content)


def ask_anthropic(request):
    answer = ANTHROPIC.messages.create(model="fake-2", max_tokens=99, messages=messages(request.input["text"]))
    return json.loads(answer.content[0].text)


def ask_in_pool(request):
    return POOL.submit(ask, request).result()


def stream(request):
    text = request.input["text"]
    chunks = OPENAI.chat.completions.create(model="fake-1", messages=messages(text), stream=True)
    return json.loads("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


def both(request, context):
    question = ModelRequest(role="judge", system="", messages=({"role": "user", "content": request.input["text"]},))
    context.llm.complete_sync(question)
    return complete(request.input["text"] + " once more")


def swallow(request):
    try:
        return complete(request.input["text"], ONCE)
    except openai.OpenAIError:
        return {"points": 1.0}


def fall_back(request):
    try:
        return OPENAI.with_options(timeout=0.4, max_retries=0).chat.completions.create(
            model="slow", messages=messages(request.input["text"])
        )
    except openai.APITimeoutError:
        return complete(request.input["text"])


def three(request):
    for step in range(3):
        complete(f"{request.input['text']} {step}")
    return {"points": 1.0}


def nothing(request):
    return {"points": 1.0}


def bare_thread(request):
    found = []
    thread = threading.Thread(target=lambda: found.append(swallow(request)))
    thread.start()
    thread.join()
    return found[0] if found else {"points": 1.0}


def late(request):
    def call():
        GO.wait(20)
        swallow(request)
        DONE.set()

    POOL.submit(call)
    return complete(request.input["text"])
"""
RECORD, LIVE = "--packbench-mode=record", "--packbench-mode=live"
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1"}


def target(name: str) -> str:
    return f"--packbench-target=own:{name}"


# an async client that outlives its loop warns when it is freed
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True, scope="module")
def clients_are_freed() -> Iterator[None]:
    """Free the clients of all pipelines in the last of these tests, after pytester has forgotten their modules."""
    yield
    gc.collect()


@pytest.fixture
def served(model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The model where the clients' own variables point to."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    return model


def prepare(project: Project, *texts: str) -> None:
    project.prepare(*texts)
    project.write("own.py", PIPELINES)


def missing(result: pytest.RunResult, *parts: str) -> list[str]:
    """Return the parts that the output of a run lacks, wherever its lines are broken."""
    text = "".join((result.stdout.str() + result.stderr.str()).split())
    return [part for part in parts if "".join(part.split()) not in text]


def variables() -> dict[str, str]:
    # pytest's own
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def cassette(project: Project, case: str = "case_00") -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recordings(project)[f"{case}.json"])
    return data


def test_an_unchanged_pipeline_is_recorded_and_replayed(both: Project, served: Model) -> None:
    prepare(both, "points 0.9", "points 0.5", "points 1", "bad")
    before = variables()
    recorded = both.run_toy(target("ask"), RECORD)
    recorded.assert_outcomes(passed=2, failed=1, errors=1)
    served_line = "packbench: gateway: model calls of the target's own clients are *recorded*"
    recorded.stdout.fnmatch_lines([served_line, "recorded: 3 of 4 cases", "used: 4 model calls, 54 tokens*"])
    assert sorted(recordings(both)) == ["case_00.json", "case_01.json", "case_02.json"]
    assert len(served.requests) == 4
    replayed = both.run_toy(target("ask"))
    replayed.assert_outcomes(passed=2, failed=1, errors=1)
    replayed.stdout.fnmatch_lines(["packbench: gateway: model calls of the target's own clients are replayed*"])
    assert len(served.requests) == 4
    assert variables() == before
    first, second = map(replayable, both.folders())
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
    headers = [received.headers for received in served.requests]
    assert {header["authorization"] for header in headers} == {f"Bearer {SECRET}"}
    assert not [name for header in headers for name in header if name.startswith("x-packbench")]
    exchange = cassette(both)["gateway"][0]
    assert exchange["request"]["messages"] == [{"role": "user", "content": "points 0.9"}]
    assert SECRET not in both.all_text()


def streamed(*parts: str) -> Handler:
    """An answer in pieces."""
    chunks = [{**CHUNK, "choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"
    return scripted(Reply(body=body.encode(), headers={"content-type": "text/event-stream"}))


@pytest.mark.parametrize(
    ("name", "handler"),
    [
        ("ask_async", None),
        ("ask_in_pool", None),
        ("ask_anthropic", scripted(anthropic_reply('{"points": 0.9}'))),
        ("stream", streamed('{"poi', 'nts": 0.9}')),
    ],
)
def test_each_way_to_call_is_replayed(
    project: Project, served: Model, monkeypatch: pytest.MonkeyPatch, name: str, handler: Handler | None
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", served.url)
    prepare(project, "points 0.9", "points 0.9")
    served.handler = handler or served.handler
    project.run_toy(target(name), RECORD).assert_outcomes(passed=2)
    made = len(served.requests)
    project.run_toy(target(name), "--packbench-concurrency=2").assert_outcomes(passed=2)
    assert len(served.requests) == made
    first, second = map(replayable, project.folders())
    assert first == second
    assert first[0]["llm_backend"] == ("anthropic" if name == "ask_anthropic" else "openai")


LEAK = json.dumps({"points": 0.9, "key": SECRET})


@pytest.mark.parametrize(
    ("name", "handler", "place"),
    [
        ("ask", scripted(openai_reply(LEAK)), ""),
        ("stream", streamed(LEAK[:30], LEAK[30:]), "/deltas/choices.0.delta.content"),
    ],
)
def test_a_secret_in_an_answer_is_not_recorded(
    project: Project, served: Model, name: str, handler: Handler, place: str
) -> None:
    prepare(project, "points 0.9")
    served.handler = handler
    project.run_toy(target(name), RECORD).assert_outcomes(errors=1)
    error = project.errors()["case_00"]
    assert (error["kind"], place in error["message"]) == ("secret_in_answer", True)
    assert recordings(project) == {}
    assert SECRET not in project.all_text()


def test_own_calls_and_those_of_the_context_are_one_recording(project: Project, served: Model) -> None:
    prepare(project, "points 0.9", "points 0.5")
    options = served.options(target("both"), mode="record")
    project.run_toy(*options).assert_outcomes(passed=1, failed=1)
    assert [len(cassette(project)[name]) for name in ("exchanges", "gateway")] == [1, 1]
    project.run_toy(target("both")).assert_outcomes(passed=1, failed=1)
    assert len(served.requests) == 4
    first, second = map(replayable, project.folders())
    assert first == second
    assert first[0]["tokens_input"] == 22


def test_what_differs_from_the_recording_is_an_error_although_the_target_swallows_it(
    project: Project, served: Model
) -> None:
    prepare(project, "points 0.9", "points 0.5", "points 1")
    project.run_toy(target("swallow"), RECORD).assert_outcomes(passed=2, failed=1)
    (project.root / "storage/benchmarks/toy/fixtures/case_02.json").unlink()
    project.write(
        "own.py",
        PIPELINES.replace(
            'model="fake-1", messages=messages(text))\n    return',
            ('model="fake-1", messages=messages(text.replace("0.9", "0.8")))\n    return'),
        ),
    )
    result = project.run_toy(target("swallow"), "--packbench-output=second")
    result.assert_outcomes(failed=1, errors=2)
    assert not missing(
        result,
        "case_00.json: POST /v1/chat/completions (model fake-1) is none of the 1 recorded requests",
        "the case has no recorded exchanges; record them (--packbench-mode=record)",
    )
    kinds = [line["kind"] for line in json_lines(next(project.root.glob("second/toy/*/errors.jsonl")))]
    assert kinds == ["cassette_mismatch", "cassette_missing"]
    assert len(served.requests) == 3


def test_calls_that_are_not_made_any_more_are_an_error(project: Project, served: Model) -> None:
    prepare(project, "points 0.9")
    project.run_toy(target("three"), RECORD).assert_outcomes(passed=1)
    result = project.run_toy(target("ask"))
    result.assert_outcomes(errors=1)
    project.run_toy(target("nothing")).assert_outcomes(errors=1)
    assert len(served.requests) == 3


def test_a_provider_that_fails_decides_the_case(project: Project, served: Model) -> None:
    prepare(project, "points 0.9")
    served.handler = scripted(Reply(status=429, body={"error": {"message": "slow"}}))
    project.run_toy(target("swallow"), RECORD).assert_outcomes(errors=1)
    assert project.errors()["case_00"]["kind"] == "rate_limit"
    assert recordings(project) == {}


def test_a_suite_may_test_what_a_pipeline_does_without_an_answer(project: Project, served: Model) -> None:
    prepare(project, "points 0.9")
    rules = next(project.root.rglob("suite.yaml"))
    rules.write_text(rules.read_text("utf-8") + "recording: {tests_fallback: true}\n", "utf-8")
    served.handler = scripted(Reply(status=429, body={"error": {"message": "slow"}}))
    for options in ([RECORD], [], [LIVE]):
        project.run_toy(target("swallow"), *options).assert_outcomes(passed=1)
    # a call that is not made any more is an error here too
    project.run_toy(target("nothing")).assert_outcomes(errors=1)


def test_a_fallback_is_recorded_and_replayed_and_the_wait_for_it_is_summed(both: Project, served: Model) -> None:
    prepare(both, "points 0.9", "points 0.9")
    answer = served.handler
    served.handler = lambda received: Reply(hang=True) if received.json()["model"] == "slow" else answer(received)
    both.run_toy(target("fall_back"), LIVE).assert_outcomes(passed=2)
    both.run_toy(target("fall_back"), RECORD).assert_outcomes(passed=2)
    assert [each["end"] for each in cassette(both)["gateway"]] == ["aborted", "complete"]
    result = both.run_toy(target("fall_back"), "--packbench-case-timeout=0.3")
    result.assert_outcomes(passed=2)
    assert len(served.requests) == 8
    said = " ".join(result.stdout.str().split())
    waited = re.search(
        r"Replayed calls of 2 cases were left open for ([0-9.]+ m?s) until their clients ended them", said
    )
    assert waited is not None
    summary = max(both.root.rglob("summary.md"), key=lambda path: path.stat().st_mtime).read_text("utf-8")
    assert f"left open for {waited[1]}" in summary


def test_variables_that_contradict_each_other_are_a_usage_error(
    project: Project, served: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(project, "points 0.9")
    monkeypatch.setenv("OPENAI_API_BASE", "http://elsewhere.test/v1")
    result = project.run_toy(target("ask"), RECORD)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: OPENAI_BASE_URL=* and OPENAI_API_BASE=http://elsewhere.test/v1 lead to diff*"])
    assert served.requests == []


def test_calls_that_may_be_of_several_cases_are_of_none(both: Project, served: Model) -> None:
    prepare(both, *(["points 0.9"] * 4))
    served.latency_s = 0.3
    result = both.run_toy(target("bare_thread"), RECORD, "--packbench-concurrency=2")
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) >= 2, outcomes
    assert not missing(result, "can't be attributed to a case: POST /v1/chat/completions")
    assert len(recordings(both)) == 4 - outcomes["errors"]


def test_a_call_after_the_end_of_its_case_fails_the_run(project: Project, served: Model) -> None:
    prepare(project, "points 0.9")
    project.extend_conftest("""
        def pytest_runtest_teardown():
            import own

            own.GO.set()
            own.DONE.wait(20)
        """)
    result = project.run_toy(target("late"), RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.errors()["case_00"]["kind"] == "unattributed"
    assert len(served.requests) == 1
    # what was recorded lacks a call
    assert recordings(project) == {}


def test_a_cap_refuses_calls_in_the_middle_of_a_case(both: Project, served: Model) -> None:
    prepare(both, "points 0.9")
    both.run_toy(target("three"), RECORD, "--packbench-max-tokens=30").assert_outcomes(skipped=1)
    limit = 2 if not both.workers else 1
    assert limit <= len(served.requests) <= 3
    assert both.errors()["case_00"]["kind"] == "max_tokens"
    assert recordings(both) == {}


def test_trials_a_cache_and_a_resumed_run(project: Project, served: Model) -> None:
    prepare(project, "points 0.9", "points 1")
    options = (target("ask"), "--packbench-cache=answers")
    served.handler = lambda received: openai_reply("no json" if b"points 1" in received.body else '{"points": 0.9}')
    project.run_toy(*options, RECORD, "--packbench-trials=2").assert_outcomes(passed=1, errors=1)
    assert len(served.requests) == 4
    assert len(cassette(project)["gateway"]) == 1
    project.run_toy(*options, RECORD, "--packbench-trials=2", "--packbench-resume=latest")
    # both trials that had failed are answered from the cache
    assert len(served.requests) == 4
    project.run_toy(target("ask"), "-k", "case_00").assert_outcomes(passed=1)
    records = [record for folder in project.folders() for record in SuiteResults(folder=folder).records]
    assert {record["tokens_input"] for record in records} == {11}


def test_a_changed_recording_is_shown_and_accepted(
    project: Project, served: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(project, "points 0.9")
    project.run_toy(target("ask"), RECORD).assert_outcomes(passed=1)
    before = recordings(project)
    project.run_toy(target("ask"), RECORD).assert_outcomes(passed=1)
    # with another id, the answer is the same
    assert not list(project.root.rglob(".pending/*.json"))
    served.handler = scripted(openai_reply('{"points": 0.25}'))
    project.run_toy(target("ask"), RECORD).assert_outcomes(failed=1)
    assert recordings(project) == before
    made = len(served.requests)
    capsys.readouterr()
    assert main(["accept", "toy", f"--option={target('ask')}"]) == 0
    shown = capsys.readouterr().out
    for part in ("case_00: 0.90 passed -> 0.25 failed", "answer 1 (POST /v1/chat/completions)"):
        assert shown.count(part) == 1
    failed = project.run_toy(target("ask"))
    failed.assert_outcomes(failed=1)
    assert not missing(failed, "POST /v1/chat/completions  user     points 0.9")
    assert len(served.requests) == made


CHILD = """
import json
import os
import sys
import urllib.request

with open("children.txt", "a") as file:
    names = ("OPENAI_API_KEY", "SOME_SERVICE_TOKEN", "HTTPS_PROXY", "NO_PROXY", "PACKBENCH_GATEWAY_ORIGINALS")
    print("started", *(os.environ.get(name) for name in names[: 5 if "no-key" in os.environ[names[0]] else 4]), file=file)


def complete(text):
    body = json.dumps({"model": "fake-1", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(json.load(answer)["choices"][0]["message"]["content"])


for line in sys.stdin:
    call = json.loads(line)
    text = call["params"]["input"]["text"]
    result = {"points": 0.9}
    if "none" not in text:
        result = complete(text)
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""


def test_a_program_runs_on_its_recorded_calls(project: Project, served: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_TOKEN", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")
    prepare(project, "points 0.9", "points 0.5", "none 1")
    project.write("child.py", CHILD)
    program = f"--packbench-target=cmd:{sys.executable} child.py"
    project.run_toy(program, RECORD).assert_outcomes(passed=2, failed=1)
    assert len(served.requests) == 2
    kept = [
        {name for name in ("exchanges", "gateway") if cassette(project, f"case_0{number}").get(name)}
        for number in range(3)
    ]
    assert kept == [{"gateway"}, {"gateway"}, {"exchanges"}]
    started = project.root / "children.txt"
    assert started.read_text("utf-8").splitlines() == [f"started {SECRET} {SECRET} None *"] * 3
    started.unlink()
    result = project.run_toy(program)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["packbench: suite toy: pipeline run; children are not walled in"])
    assert (
        missing(result, "The program ran on its recorded model calls. Of cases without any, the recorded result was")
        == []
    )
    assert "Pipeline not run" not in result.stdout.str()
    # the third is replayed whole
    assert (
        started.read_text("utf-8").splitlines()
        == ["started no-key-needed None http://127.0.0.1:9 127.0.0.1,localhost None"] * 2
    )
    assert len(served.requests) == 2
    first, second = map(replayable, project.folders())
    assert first == second
    assert first[0]["llm_model"] == "fake-1"
    started.unlink()
    project.write("child.py", CHILD.replace('"role": "user"', '"role": "system"'))
    project.run_toy(program).assert_outcomes(passed=1, errors=2)
    project.run_toy(program, "--packbench-mode=live", "--packbench-concurrency=1").assert_outcomes(passed=3)
    assert len(served.requests) == 4


def test_a_server_gets_the_address_of_its_case(project: Project, served: Model) -> None:
    prepare(project, "points 0.9", "points 0.5")

    def serve(received: Received) -> Reply:
        url = received.headers["x-packbench-gateway"] + "/openai/v1/chat/completions"
        text = received.json()["input"]["text"]
        body = json.dumps({"model": "fake-1", "messages": [{"role": "user", "content": text}]}).encode()
        question = urllib.request.Request(url, body, {"content-type": "application/json"})  # noqa: S310 - our gateway
        with urllib.request.urlopen(question) as answer:  # noqa: S310 - as above
            return Reply(body=json.loads(json.load(answer)["choices"][0]["message"]["content"]))

    with FakeServer(serve) as server:
        address = f"--packbench-target={server.url}/verify"
        result = project.run_toy(address, RECORD, "--packbench-max-tokens=100")
        result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["used: 2 model calls, 36 tokens*"])
    # it does not run for a replay
    assert [each["role"] for each in cassette(project)["exchanges"]] == ["verify"]
    assert "gateway" not in cassette(project)
    project.run_toy(address).assert_outcomes(passed=1, failed=1)
    first, second = map(replayable, project.folders())
    assert first == second
    assert first[0]["llm_model"] == "fake-1"


def test_the_gateway_starts_late_for_a_recording_that_was_not_looked_at(project: Project, served: Model) -> None:
    prepare(project, "points 0.9")
    project.write("child.py", CHILD)
    program = f"--packbench-target=cmd:{sys.executable} child.py"
    project.run_toy(program, RECORD).assert_outcomes(passed=1)
    path = project.root / "storage/benchmarks/toy/fixtures/case_00.json"
    path.write_text(" " * 1_100_000 + path.read_text("utf-8"), "utf-8")
    before = variables()
    project.run_toy(program).assert_outcomes(passed=1)
    assert variables() == before
    result = project.run_toy(program, "--packbench-gateway=off")
    result.assert_outcomes(errors=1)
    assert not missing(result, "case_00.json: /gateway: contains calls of the target's own client")
    assert len(served.requests) == 1


def test_a_time_limit_ends_the_calls_of_its_case(project: Project, served: Model) -> None:
    prepare(project, "points 0.9", "points 1")
    slow = Reply(hang=True)
    served.handler = lambda received: slow if b"0.9" in received.body else openai_reply('{"points": 1.0}')
    project.run_toy(target("ask"), RECORD, "--packbench-case-timeout=2").assert_outcomes(passed=1, errors=1)
    assert project.errors()["case_00"]["kind"] == "timeout"
    assert sorted(recordings(project)) == ["case_01.json"]
    assert served.open == 0


HANGING_ONCE = """
import os, time

try:
    with open("pid.txt", "x") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)
except FileExistsError:
    pass
"""


def test_a_program_that_hangs_in_fixture_mode_is_killed_and_the_next_runs(project: Project, served: Model) -> None:
    prepare(project, *["points 1"] * 3)
    project.write("child.py", CHILD)
    program = f"--packbench-target=cmd:{sys.executable} child.py"
    project.run_toy(program, RECORD).assert_outcomes(passed=3)
    # the first process hangs, before it reads
    project.write("child.py", HANGING_ONCE + CHILD)
    started = time.monotonic()
    result = project.run_toy(program, "--packbench-case-timeout=3")
    result.assert_outcomes(passed=2, errors=1)
    assert time.monotonic() - started < 30
    assert [error["kind"] for error in SuiteResults(folder=project.folders()[-1]).lines("errors.jsonl")] == ["timeout"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((project.root / "pid.txt").read_text()), 0)


OWN = """
import json

import openai

CLIENT = openai.OpenAI(max_retries=0)


def ask(request):
    messages = [{"role": "user", "content": request.input["text"]}]
    answer = CLIENT.chat.completions.create(model="fake-1", messages=messages)
    return json.loads(answer.choices[0].message.content)
"""
CALL_AT_IMPORT = """
try:
    CLIENT.models.list()
except openai.OpenAIError as error:
    with open("refused.txt", "a") as file:
        print(error, file=file)
"""


def prepare_own(project: Project, code: str = OWN) -> None:
    project.prepare("points 0.9", "points 0.8")
    project.write("own.py", code)


def test_a_controller_needs_no_key_and_reaches_no_network(
    project: Project, served: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_own(project)
    project.run_toy(target("ask"), RECORD, "-n", "2").assert_outcomes(passed=2)
    monkeypatch.delenv("OPENAI_API_KEY")
    prepare_own(project, OWN + CALL_AT_IMPORT)
    made = len(served.requests)
    project.run_toy(target("ask"), "-n", "2").assert_outcomes(passed=2)
    assert len(served.requests) == made
    # of the controller and both workers
    refused = (project.root / "refused.txt").read_text("utf-8").splitlines()
    assert len([line for line in refused if "fixture mode is offline" in line]) == len(refused) == 3
    assert [len(json.loads(data)["gateway"]) for data in recordings(project).values()] == [1, 1]


OTHERS = """
import os

import pytest

NAMES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "PACKBENCH_GATEWAY_ORIGINALS")


@pytest.fixture(scope="module")
def key():
    os.environ["OPENAI_API_KEY"] = "mine"
    yield
    del os.environ["OPENAI_API_KEY"]


@pytest.fixture(autouse=True)
def none_set():
    assert [name for name in NAMES[:1] + NAMES[2:] if name in os.environ] == []
    yield
    assert "OPENAI_BASE_URL" not in os.environ


@pytest.mark.skipif("'OPENAI_API_KEY' not in os.environ", reason="no key")
def test_paid():
    raise AssertionError("a key was found")


def test_with_key(key):
    assert os.environ["OPENAI_API_KEY"] == "mine"


def test_later(key):
    assert os.environ["OPENAI_API_KEY"] == "mine"


def test_a_call_of_a_client_from_an_import_is_refused():
    import openai
    import own

    with pytest.raises(openai.BadRequestError, match="fixture mode is offline"):
        own.CLIENT.models.list()
"""


def test_other_tests_find_the_variables_as_the_user_has_set_them(
    both: Project, served: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_own(both)
    both.run_toy(target("ask"), RECORD).assert_outcomes(passed=2)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name)
    made = len(served.requests)
    both.write("test_other.py", OTHERS)
    both.write("test_second.py", OTHERS)
    files = ("test_other.py", "storage/benchmarks/toy", "test_second.py")
    both.run_toy(*files, target("ask")).assert_outcomes(passed=8, skipped=2)
    assert len(served.requests) == made


FIXED_TOO = """
FIXED = openai.OpenAI(base_url="URL/v1", max_retries=0)


def both(request):
    answer = ask(request)
    FIXED.chat.completions.create(model="fake-1", messages=[{"role": "user", "content": "points 1"}])
    return answer
"""


# a refused client leaves its socket open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_with_a_fixed_address_beside_recorded_calls_is_named(project: Project, served: Model) -> None:
    prepare_own(project, OWN + FIXED_TOO.replace("URL", served.url))
    both = "--packbench-target=own:both"
    project.run_toy(target("ask"), RECORD).assert_outcomes(passed=2)
    result = project.run_toy(both, "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    result.assert_outcomes(errors=2)
    advice = "its client has a fixed address; leave that out of the code, so that the client reads its variable"
    assert missing(result, advice, "record its model calls") == ["record its model calls"]


def test_a_call_while_the_target_is_imported_is_refused(project: Project, served: Model) -> None:
    prepare_own(project, OWN + "\nwith CLIENT:\n    CLIENT.models.list()\n")
    # a recording would not help
    result = project.run_toy(target("ask"), "--packbench-gateway=on")
    assert not missing(
        result, "is refused; make it inside a case, whose calls can be recorded (--packbench-mode=record)"
    )
    assert served.requests == []


LATE_ADDRESS = "import os\n\nos.environ.setdefault('ANTHROPIC_BASE_URL', 'http://127.0.0.1:9')\n"


def test_the_header_names_where_calls_go(both: Project, served: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_own(both, LATE_ADDRESS + OWN)
    address = served.url.replace("//", "//someone:secretpassword@")
    monkeypatch.setenv("OLLAMA_HOST", address)
    line = "not seen): openai -> {}/v1, anthropic -> https://api.anthropic.com, ollama -> http://"
    absent = ["secretpassword", "gemini"]
    assert missing(both.run_toy(target("ask"), RECORD), line.format(served.url), *absent) == absent
    assert missing(both.run_toy(target("ask")), "->")
