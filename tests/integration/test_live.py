"""Live and record mode: a real client library, a real server on loopback, whole pytest runs."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio._backends._asyncio
import httpcore2
import httpx2
import openai
import openai.resources.chat.completions
import pytest

from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import error_reply, openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Project

# pytester forgets what a run imported: the client is imported once, or its exceptions would be two classes
_WARM = (openai, httpx2, httpcore2, anyio)
SECRET = "sk-planted-0123456789abcdef"  # noqa: S105 - planted to be looked for
PIPELINE = """
import asyncio
import logging
import sys
import time

from pytest_packbench.model.request import ModelRequest

SCHEMA = {"type": "object", "properties": {"points": {"type": "number"}}, "required": ["points"]}


def question(request):
    text = request.input["text"]
    return ModelRequest(
        role="judge", system="give points", messages=({"role": "user", "content": text},), output_schema=SCHEMA
    )


async def ask(request, context):
    print("asking for", context.case_id)
    print("trouble with", context.case_id, file=sys.stderr)
    logging.getLogger("pipeline").warning("logging for %s", context.case_id)
    answer = await context.llm.complete(question(request))
    print("asked for", context.case_id)
    return answer.content


def ask_sync(request, context):
    print("asking for", context.case_id)
    answer = context.llm.complete_sync(question(request))
    print("asked for", context.case_id)
    return answer.content


async def swallow(request, context):
    try:
        return await ask(request, context)
    except Exception:
        return {"points": 1.0}


async def again(request, context):
    try:
        return await ask(request, context)
    except Exception:
        return await ask(request, context)


def hang(request):
    if request.input["text"] == "hang":
        time.sleep(3600)
    return {"points": 1.0}


async def block(request):
    if request.input["text"] == "hang":
        time.sleep(3600)
    return {"points": 1.0}


def plain(request):
    return {"points": 1.0}
"""


def points(received: Received) -> Reply:
    """Answer with the points that the text asks for."""
    found = re.search(r"points ([0-9.]+)", parse_request(received).text)
    return openai_reply(json.dumps({"points": float(found[1]) if found else 1.0}))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(points) as running:
        yield running


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def prepare(project: Project, *texts: str) -> None:
    project.pytester.makepyfile(pipeline=PIPELINE)
    for number, text in enumerate(texts):
        project.case(f"case_{number:02}", text=text)


def live(server: FakeServer, *more: str, mode: str = "live", target: str = "pipeline:ask") -> tuple[str, ...]:
    return (
        f"--packbench-mode={mode}",
        f"--packbench-target={target}",
        "--packbench-backend=openai",
        "--packbench-model=fake-1",
        f"--packbench-base-url={server.url}/v1",
        *more,
    )


def comparable(path: Path) -> list[dict[str, Any]]:
    """The records of a run, without time, run id and mode."""
    records = [json.loads(line) for line in (path / "records.jsonl").read_text("utf-8").splitlines()]
    for record in records:
        for name in ("timestamp", "wall_clock_ms", "run_id"):
            del record[name]
        del record["packbench"]["mode"]
    return records


def everything(project: Project) -> str:
    """The text of all files in the project."""
    return "\n".join(path.read_text("utf-8", "replace") for path in project.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ask_sync"])
def test_a_recording_replays_to_the_same_records(project: Project, server: FakeServer, target: str) -> None:
    prepare(project, "points 0.9", "points 0.5", "points 1")
    result = project.run_toy(*live(server, mode="record", target=target))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=1)
    asked_before = len(server.requests)
    assert asked_before == 3
    replayed = project.run_toy(f"--packbench-target={target}")
    replayed.assert_outcomes(passed=2, failed=1)
    assert len(server.requests) == asked_before
    first, second = project.folders()
    assert comparable(first) == comparable(second)
    record = comparable(first)[0]
    assert (record["llm_backend"], record["llm_model"]) == ("openai", "fake-1")
    assert (record["tokens_input"], record["tokens_output"]) == (11, 7)
    cassette = json.loads((project.root / "storage/benchmarks/toy/fixtures/case_00.json").read_text("utf-8"))
    assert cassette["origin"] == "recorded"
    assert cassette["exchanges"][0]["answer"] == {"points": 0.9}


def test_live_mode_keeps_no_recording(project: Project, server: FakeServer) -> None:
    prepare(project, "points 1")
    project.run_toy(*live(server)).assert_outcomes(passed=1)
    assert not (project.root / "storage/benchmarks/toy/fixtures").exists()
    assert project.lines("records.jsonl")[0]["packbench"]["mode"] == "live"


def test_what_re_runs_a_case_asks_the_same_server_as_often(plain: Project, server: FakeServer) -> None:
    prepare(plain, "points 0.5")
    result = plain.run_toy(*live(server, "--packbench-trials=2"))
    result.stdout.fnmatch_lines(["model:    openai fake-1, 1 call", "re-run: * --packbench-trials=2"])
    result.stdout.fnmatch_lines([f"re-run: * --packbench-model=fake-1 --packbench-base-url={server.url}/v1 *"])


def test_an_address_that_nobody_looked_at_is_not_shown(plain: Project) -> None:
    prepare(plain, "points 1")
    plain.pytester.makepyfile(
        alone="""
        from pytest_packbench import without_model

        @without_model
        def ask(request):
            return {"points": 0.5}
    """
    )
    result = plain.run_toy(
        "--packbench-mode=live", "--packbench-target=alone:ask", "--packbench-base-url=http://me:pw@h/"
    )
    result.stdout.fnmatch_lines(["re-run: * --packbench-mode=live --packbench-target=alone:ask"])
    result.stdout.no_fnmatch_line("*me:pw*")


def test_one_case_is_recorded_anew_and_no_other(plain: Project, server: FakeServer) -> None:
    prepare(plain, "points 1", "points 1")
    plain.run_toy(*live(server, mode="record")).assert_outcomes(passed=2)
    fixtures = plain.root / "storage/benchmarks/toy/fixtures"
    before = {path.name: path.read_bytes() for path in fixtures.iterdir()}
    plain.run_toy(*live(server, "-k", "case_01", mode="record")).assert_outcomes(passed=1, deselected=1)
    after = {path.name: path.read_bytes() for path in fixtures.iterdir()}
    assert before["case_00.json"] == after["case_00.json"]
    assert before["case_01.json"] != after["case_01.json"]


def test_a_case_that_broke_is_not_recorded(project: Project) -> None:
    def broken(received: Received) -> Reply:
        return error_reply(400, "no such parameter") if "bad" in parse_request(received).text else points(received)

    prepare(project, "bad", "points 1")
    with FakeServer(broken) as server:
        result = project.run_toy(*live(server, mode="record"))
    result.assert_outcomes(errors=1, passed=1)
    fixtures = project.root / "storage/benchmarks/toy/fixtures"
    assert [path.name for path in fixtures.iterdir()] == ["case_01.json"]
    (error,) = project.lines("errors.jsonl")
    assert error["kind"] == "bad_request"
    assert len(project.lines("records.jsonl")) == 1


def test_cases_are_asked_side_by_side_and_reported_in_order(plain: Project) -> None:
    prepare(plain, *["points 1"] * 12)
    with FakeServer(points, latency_s=0.15) as server:
        result = plain.run_toy(*live(server, "-v", "--packbench-concurrency=5"))
    result.assert_outcomes(passed=12)
    assert server.most_open == 5
    named = [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line and "::" in line]
    assert named == [f"case_{number:02}" for number in range(12)]


def test_stopping_early_wastes_the_window_at_most(plain: Project) -> None:
    prepare(plain, "points 0", *["points 1"] * 40)
    with FakeServer(points, latency_s=0.02) as server:
        result = plain.run_toy(*live(server, "-x", "--packbench-concurrency=3"))
    result.assert_outcomes(failed=1)
    # what was cut off answers late, when the run's files are closed
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.TESTS_FAILED, False)
    assert len(server.requests) <= 1 + 2 * 3
    kinds = {line["kind"] for line in plain.lines("errors.jsonl")}
    assert kinds == {"stopped"}


def test_a_worker_asks_for_two_at_a_time(plain: Project) -> None:
    prepare(plain, *["points 1"] * 16)
    with FakeServer(points, latency_s=0.1) as server:
        result = plain.run_toy("-n", "2", *live(server, "--packbench-concurrency=8"))
    result.assert_outcomes(passed=16)
    assert server.most_open <= 4
    result.stdout.fnmatch_lines(["*each worker runs two attempts at a time*"])


def test_output_is_shown_with_its_own_case_alone(plain: Project) -> None:
    prepare(plain, "points 0.1", *["points 1"] * 6)
    with FakeServer(points, latency_s=0.1) as server:
        result = plain.run_toy(*live(server))
    text = result.stdout.str()
    for shown in ("asking for case_00", "asked for case_00", "trouble with case_00", "logging for case_00"):
        assert text.count(shown) == 1, shown
    for number in range(1, 7):
        assert f"case_{number:02}\n" not in text.replace("::case_", "")
    assert "asking for" not in result.stderr.str()


def test_a_sync_target_keeps_its_output_too(plain: Project) -> None:
    prepare(plain, "points 0.1", "points 1", "points 1")
    with FakeServer(points, latency_s=0.1) as server:
        result = plain.run_toy(*live(server, target="pipeline:ask_sync"))
    assert result.stdout.str().count("asked for case_00") == 1
    assert "asking for case_01" not in result.stdout.str()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error_reply(429, "slow down", headers={"retry-after": "0"}), "rate_limit"),
        (error_reply(500, "fell over"), "server_error"),
        (error_reply(401, f"wrong key {SECRET}"), "auth"),
        (openai_reply('{"points": ', finish_reason="stop"), "answer_unreadable"),
        (openai_reply('{"points": 1', finish_reason="length"), "truncated"),
        (Reply(hang=True), "timeout"),
        (Reply(body=b"{" * 100, cut=True), "network"),
    ],
    ids=["429", "500", "401", "unreadable", "truncated", "hang", "cut"],
)
@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:swallow"])
def test_a_call_that_breaks_is_an_error_even_where_the_target_goes_on(
    plain: Project, reply: Reply, kind: str, target: str
) -> None:
    prepare(plain, "bad", "points 1")
    plain.pytester.makeini("[pytest]\npackbench_retries = 1\npackbench_call_timeout = 1\n")
    with FakeServer(lambda got: reply if "bad" in parse_request(got).text else points(got)) as server:
        result = plain.run_toy(*live(server, target=target))
    result.assert_outcomes(errors=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (error,) = plain.lines("errors.jsonl")
    assert (error["verdict"], error["kind"]) == ("error", kind)
    assert [record["test_id"] for record in plain.lines("records.jsonl")] == ["toy:plain:case_01"]


def test_a_call_that_the_target_makes_again_with_success_is_no_error(plain: Project) -> None:
    prepare(plain, "points 1")
    replies = [error_reply(400, "first time"), openai_reply('{"points": 1}')]
    with FakeServer(lambda _: replies.pop(0)) as server:
        result = plain.run_toy(*live(server, mode="record", target="pipeline:again"))
    result.assert_outcomes(passed=1)
    plain.run_toy("--packbench-target=pipeline:again").assert_outcomes(passed=1)


def test_overload_is_asked_again_later_and_passes(plain: Project) -> None:
    prepare(plain, *["points 1"] * 6)
    busy = [error_reply(429, "slow down", headers={"retry-after": "0.05"}) for _ in range(3)]
    with FakeServer(lambda got: busy.pop() if busy else points(got)) as server:
        plain.run_toy(*live(server)).assert_outcomes(passed=6)
    assert len(server.requests) == 9


def test_a_refusal_is_an_answer(plain: Project) -> None:
    plain.pytester.makepyfile(
        declining=PIPELINE
        + "\n\nasync def decline(request, context):\n"
        + "    answer = await context.llm.complete(question(request))\n"
        + "    return {'points': 1.0 if answer.refusal == 'I would rather not' else 0.0}\n"
    )
    plain.case("case_00", text="x")
    with FakeServer(lambda _: openai_reply(None, refusal="I would rather not")) as server:
        arguments = live(server, mode="record", target="declining:decline")
        plain.run_toy(*arguments).assert_outcomes(passed=1)
    plain.run_toy("--packbench-target=declining:decline").assert_outcomes(passed=1)


@pytest.mark.parametrize(("target", "kind"), [("pipeline:hang", "timeout"), ("pipeline:block", "loop_blocked")])
def test_a_target_that_hangs_is_abandoned_and_named(
    plain: Project, monkeypatch: pytest.MonkeyPatch, target: str, kind: str
) -> None:
    monkeypatch.setattr("pytest_packbench.engine.runner._BLOCKED_S", 0.5)
    monkeypatch.setattr("pytest_packbench.engine.runner._CLOSE_S", 0.5)
    prepare(plain, "hang", "fine")
    begun = time.monotonic()
    result = plain.run_toy("--packbench-mode=live", f"--packbench-target={target}", "--packbench-case-timeout=0.5")
    # an hour is what it would take to wait for it
    assert time.monotonic() - begun < 600
    assert plain.lines("errors.jsonl")[0]["kind"] == kind
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_process_ends_although_a_target_hangs(plain: Project) -> None:
    prepare(plain, "hang", "fine")
    result = plain.pytester.runpytest_subprocess(
        "--packbench-suite=toy",
        "--packbench-target=pipeline:hang",
        "--packbench-case-timeout=0.5",
        timeout=120,
    )
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*took longer than 0.5 s and was abandoned*"])


def test_a_target_without_model_needs_no_backend(project: Project) -> None:
    prepare(project, "x", "y")
    project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:plain").assert_outcomes(passed=2)
    assert project.lines("records.jsonl")[0]["llm_backend"] == "unknown"


def test_trials_are_records_of_one_item(project: Project) -> None:
    answers = {"even": [1.0, 0.7, 1.0], "low": [1.0, 0.1, 0.3]}
    prepare(project, "even", "low")

    def in_turn(received: Received) -> Reply:
        return openai_reply(json.dumps({"points": answers[parse_request(received).text].pop(0)}))

    with FakeServer(in_turn) as server:
        result = project.run_toy(*live(server, "--packbench-trials=3"))
    result.assert_outcomes(passed=1, failed=1)
    records = project.lines("records.jsonl")
    assert [(record["test_id"], record["packbench"]["trial"]) for record in records] == [
        (f"toy:plain:case_0{case}", trial) for case in (0, 1) for trial in (0, 1, 2)
    ]
    result.stdout.fnmatch_lines(["*1 of 3 trials passed, mean score 0.47, threshold 0.80 (rule: mean)*"])


@pytest.mark.parametrize(("rule", "passes"), [("any", 2), ("all", 0), ("{at_least: 2}", 1)])
def test_the_suite_says_how_trials_make_a_verdict(plain: Project, rule: str, passes: int) -> None:
    answers = {"even": [1.0, 0.7, 1.0], "low": [1.0, 0.1, 0.3]}
    prepare(plain, "even", "low")
    plain.suite(text=f"pack: toy\ndescription: a toy\ntrials: {rule}\n")

    def in_turn(received: Received) -> Reply:
        return openai_reply(json.dumps({"points": answers[parse_request(received).text].pop(0)}))

    with FakeServer(in_turn) as server:
        result = plain.run_toy(*live(server, "--packbench-trials=3"))
    result.assert_outcomes(passed=passes, failed=2 - passes)


def test_a_cap_on_tokens_stops_the_run_and_says_so(project: Project) -> None:
    prepare(project, *["points 1"] * 12)
    with FakeServer(points, latency_s=0.05) as server:
        result = project.run_toy(*live(server, "--packbench-max-tokens=40", "--packbench-concurrency=1"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(server.requests) < 12
    idle = project.lines("errors.jsonl")
    assert {line["kind"] for line in idle} == {"max_tokens"}
    assert {line["verdict"] for line in idle} == {"not_run"}
    assert len(idle) + len(project.lines("records.jsonl")) == 12
    share = "this worker's share (1/2) of the run's cap" if project.workers else "the run's cap"
    shared = " (tokens and cost are split equally among the workers)" if project.workers else ""
    result.stdout.fnmatch_lines_random(
        [
            f"packbench: caps: tokens 40{shared}; concurrent attempts: 1*, timeout 300 s per attempt; temperature 0",
            "packbench: 12 cases to run in live mode: at least 12 model calls (cases without a recording)",
            f"*{share} of 40 tokens is reached*",
            "*completeness*FAIL*",
        ]
    )
    assert not (project.root / "reports/benchmarks/toy/latest").exists()


def test_a_cap_on_cost_counts_with_the_suites_own_prices(plain: Project) -> None:
    prepare(plain, *["points 1"] * 4)
    prices = "prices:\n  fake-1:\n    input_per_million: 100000\n    output_per_million: 0\n"
    plain.suite(text=f"pack: toy\ndescription: a toy\n{prices}")
    with FakeServer(points) as server:
        # 11 tokens cost 1.10
        result = plain.run_toy(*live(server, "--packbench-max-cost=2", "--packbench-concurrency=1"))
    assert len(server.requests) == 2
    result.stdout.fnmatch_lines(["*caps: cost 2*", "*used: 2 model calls, 36 tokens, 2.2000 USD*"])


def test_a_cap_on_time_begins_nothing_more(plain: Project) -> None:
    prepare(plain, *["points 1"] * 6)
    with FakeServer(points, latency_s=0.3) as server:
        plain.run_toy(*live(server, "--packbench-max-seconds=0.2", "--packbench-concurrency=1"))
    assert len(server.requests) == 1
    assert {line["kind"] for line in plain.lines("errors.jsonl")} == {"max_seconds"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--packbench-mode=live",), "no backend is set; use --packbench-backend=anthropic|openai|ollama"),
        (("--packbench-backend=openai",), "got openai in fixture mode, which replays recordings"),
        (("--packbench-mode=live", "--packbench-backend=openai"), "--packbench-model"),
        (("--packbench-mode=live", "--packbench-backend=stub"), "the pack toy has no scripted models"),
        (
            ("--packbench-mode=live", "--packbench-backend=nobody"),
            "got 'nobody'; expected one of anthropic, openai, ollama, stub",
        ),
        (("--packbench-trials=2",), "got 2 in fixture mode"),
        (("--packbench-concurrency=0",), "--packbench-concurrency: got '0'; expected a whole number, 1 or more"),
        (("--packbench-max-cost=-1",), "--packbench-max-cost: got '-1'; expected a number above 0"),
        (("--packbench-case-timeout=nan",), "--packbench-case-timeout: got 'nan'; expected a number above 0"),
        (
            ("--packbench-guard=nobody",),
            'unknown guard "nobody"; expected one of none, module:attr',
        ),
    ],
)
def test_a_mistake_is_a_usage_error_before_the_first_case(
    plain: Project, arguments: tuple[str, ...], said: str
) -> None:
    prepare(plain, "x")
    result = plain.run_toy("--packbench-target=pipeline:ask", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()
    assert len(result.stderr.str().strip().splitlines()) == 1


def test_a_missing_key_names_its_variable(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(project, "x")
    monkeypatch.delenv("OPENAI_API_KEY")
    result = project.run_toy(
        "--packbench-mode=live",
        "--packbench-target=pipeline:ask",
        "--packbench-backend=openai",
        "--packbench-model=some-model",
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "OPENAI_API_KEY" in result.stderr.str()


def test_a_cost_cap_without_a_price_is_a_usage_error(plain: Project, server: FakeServer) -> None:
    prepare(plain, "x")
    result = plain.run_toy(*live(server, "--packbench-max-cost=1"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the price of openai fake-1 is unknown" in result.stderr.str()
    assert not server.requests


def test_secrets_reach_no_file_and_no_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "tok-other-planted-9876543210"
    monkeypatch.setenv("SOME_SERVICE_TOKEN", other)

    def leaking(received: Received) -> Reply:
        text = parse_request(received).text
        if "error" in text:
            return error_reply(400, f"bad key {SECRET}, Authorization: Bearer {SECRET}")
        assert received.headers["authorization"] == f"Bearer {SECRET}"
        return openai_reply(json.dumps({"points": 0.1, "echo": f"{SECRET} and {other}", other: [SECRET]}))

    prepare(project, "error", "echo")
    project.pytester.makepyfile(
        leaky=PIPELINE
        + "\n\nasync def leak(request, context):\n"
        + "    import os\n"
        + "    print('printed', os.environ['OPENAI_API_KEY'])\n"
        + "    result = await ask(request, context)\n"
        + "    return {**result, 'key': os.environ['OPENAI_API_KEY']}\n"
        + "\n\ndef fall(request):\n"
        + "    import os\n"
        + "    raise ValueError('fell with ' + os.environ['SOME_SERVICE_TOKEN'])\n"
    )
    with FakeServer(leaking) as server:
        result = project.run_toy(*live(server, mode="record", target="leaky:leak"))
        result.assert_outcomes(errors=1, failed=1)
        fallen = project.run_toy("--packbench-mode=live", "--packbench-target=leaky:fall")
        fallen.assert_outcomes(errors=2)
    seen = everything(project) + "".join(run.stdout.str() + run.stderr.str() for run in (result, fallen))
    assert SECRET not in seen
    assert other not in seen
    assert "[redacted]" in seen


def test_an_interrupted_run_keeps_what_it_has(plain: Project) -> None:
    prepare(plain, *["points 1"] * 8)
    conftest = plain.root / "conftest.py"
    conftest.write_text(
        conftest.read_text("utf-8")
        + "\n\ndef pytest_runtest_logreport(report):\n"
        + "    if report.when == 'call' and 'case_02' in report.nodeid:\n"
        + "        raise KeyboardInterrupt\n",
        encoding="utf-8",
    )
    with FakeServer(points, latency_s=0.05) as server:
        result = plain.run_toy(*live(server, "--packbench-concurrency=2"))
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.INTERRUPTED, False)
    # what was answered ahead is kept as well
    kept = len(plain.lines("records.jsonl"))
    assert 3 <= kept <= len(server.requests) <= 3 + 2 * 2
    assert [line["kind"] for line in plain.lines("errors.jsonl")] == ["interrupted"] * (8 - kept)


def test_fixture_mode_runs_side_by_side_as_well(project: Project) -> None:
    for number in range(6):
        project.case(f"good_{number}", points=1.0)
    project.case("online", python="import socket\nwith socket.socket() as s: s.connect(('127.0.0.1', 9))")
    result = project.run_toy("--packbench-concurrency=4")
    result.assert_outcomes(passed=6, errors=1)
    (error,) = project.lines("errors.jsonl")
    assert (error["kind"], error["test_id"]) == ("offline", "toy:plain:online")


def agent(project: Project, body: str) -> str:
    (project.root / "agent.py").write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    text = asked['params']['input']['text']\n"
        f"    {body}\n"
        "    reply = {'jsonrpc': '2.0', 'id': asked['id'], 'result': result}\n"
        "    print(json.dumps(reply), flush=True)\n",
        encoding="utf-8",
    )
    return f"cmd:{sys.executable} agent.py"


def test_a_command_is_recorded_whole_and_replayed_without_running(project: Project) -> None:
    prepare(project, "x", "y")
    result = "result = {'points': 0.9, 'llm_backend': 'ollama', 'llm_model': 'small', 'usage': {'tokens_input': 3, 'tokens_output': 4}}"
    target = agent(project, result)
    project.run_toy("--packbench-mode=record", f"--packbench-target={target}").assert_outcomes(passed=2)
    (project.root / "agent.py").unlink()
    replayed = project.run_toy(f"--packbench-target={target}")
    replayed.assert_outcomes(passed=2)
    replayed.stdout.fnmatch_lines(["*pipeline not run: scoring only*"])
    first, second = project.folders()
    assert comparable(first) == comparable(second)
    record = comparable(first)[0]
    assert (record["llm_backend"], record["llm_model"]) == ("ollama", "small")
    assert (record["tokens_input"], record["tokens_output"]) == (3, 4)


def test_a_command_that_dies_costs_its_case_alone(project: Project) -> None:
    prepare(project, "fine", "die", "fine", "fine")
    target = agent(
        project, "result = {'points': 1.0} if text == 'fine' else (print('last words', file=sys.stderr), os._exit(3))"
    )
    result = project.run_toy("--packbench-mode=live", f"--packbench-target={target}")
    result.assert_outcomes(passed=3, errors=1)
    (error,) = project.lines("errors.jsonl")
    assert (error["kind"], error["test_id"]) == ("target_died", "toy:plain:case_01")
    result.stdout.fnmatch_lines(["*last words*"])


def test_a_server_is_recorded_whole_and_may_go_away(project: Project) -> None:
    def verify(received: Received) -> Reply:
        assert set(received.json()) == {"input", "options", "evidence"}
        return (
            Reply(cut=True, body=b"{}" * 50)
            if received.json()["input"]["text"] == "die"
            else Reply(body={"points": 1.0})
        )

    prepare(project, "fine", "die", "fine")
    with FakeServer(verify) as server:
        target = f"--packbench-target={server.url.replace('//', '//user:planted-password@')}/verify"
        result = project.run_toy("--packbench-mode=record", target)
    result.assert_outcomes(passed=2, errors=1)
    assert project.lines("errors.jsonl")[0]["kind"] == "target_died"
    replayed = project.run_toy(target, "-k", "not case_01")
    replayed.assert_outcomes(passed=2)
    assert "planted-password" not in everything(project) + result.stdout.str() + replayed.stdout.str()


def test_a_terminal_shows_how_far_the_run_is(plain: Project) -> None:
    import os
    import pty
    import subprocess

    prepare(plain, *["points 1"] * 3)
    with FakeServer(points, latency_s=1.2) as server:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "pytest", "--packbench-suite=toy", *live(server, "--packbench-concurrency=1")]
        process = subprocess.Popen(command, cwd=plain.root, stdout=slave, stderr=slave, stdin=subprocess.DEVNULL)
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        process.wait(timeout=60)
        os.close(master)
    text = seen.decode("utf-8", "replace")
    assert process.returncode == 0, text
    assert re.search(r"packbench: \d of 3 done, .* 1 in flight", text), text


def test_quiet_output_has_no_progress(plain: Project, server: FakeServer) -> None:
    prepare(plain, "points 1")
    assert "in flight" not in plain.run_toy(*live(server)).stdout.str()
