"""Live runs and recording: mode, backend, concurrency, trials, limits, timeout and cache."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import (
    SECRET,
    all_text,
    cassettes,
    json_lines,
    live,
    model_server,
    points,
    prepare,
    replayable,
)
from tests.servers.fake import Received, Reply
from tests.servers.wire import error_reply, openai_reply, parse_request

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

LIVE = "--packbench-mode=live"
CACHE = "--packbench-cache=answers"


def test_recordings_replay_to_the_same_records_and_are_made_again_for_selected_cases(both: Project) -> None:
    prepare(both, "points 0.9", "points 0.5", "points 1", "bad")
    with model_server() as server:
        both.run_toy(*live(server, mode="record")).assert_outcomes(passed=2, failed=1, errors=1)
        recordings = cassettes(both)
        # a case with an error has no recording
        assert sorted(recordings) == ["case_00.json", "case_01.json", "case_02.json"]
        both.run_toy("--packbench-target=pipeline:ask").assert_outcomes(passed=2, failed=1, errors=1)
        assert len(server.requests) == 4
        first, second = map(replayable, both.folders())
        both.run_toy(*live(server, "-k", "case_01", mode="record")).assert_outcomes(failed=1)
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
    cassette = json.loads(recordings["case_00.json"])
    assert (cassette["origin"], cassette["exchanges"][0]["answer"]) == ("recorded", {"points": 0.9})
    changed = {name for name, content in cassettes(both).items() if recordings[name] != content}
    assert changed == {"case_01.json"}


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ask_sync"])
def test_a_failure_shows_the_output_of_its_own_case(project: Project, target: str) -> None:
    prepare(project, "points 0.1", "points 1", "points 1", "points 1")
    with model_server(latency_s=0.05) as server:
        result = project.run_toy(*live(server, target=target))
    text = result.stdout.str()
    for output in ("asking for case_00", "asked for case_00", "trouble with case_00", "logging for case_00"):
        assert text.count(output) == 1, output
    assert not [number for number in range(1, 4) if f"case_{number:02}\n" in text.replace("::case_", "")]
    assert "asking for" not in result.stderr.str()


def test_a_case_that_another_plugin_skips_calls_no_model(both: Project) -> None:
    prepare(both, *(f"text_{number}" for number in range(12)))
    both.extend_conftest("""
        def pytest_collection_modifyitems(items):
            for item in items[:-2]:
                item.add_marker(pytest.mark.skip(reason="not today"))
        """)
    result = both.run_toy(LIVE, "--packbench-target=pipeline:note", "--packbench-concurrency=2")
    result.assert_outcomes(passed=2, skipped=10)
    assert sorted((both.root / "called.txt").read_text("utf-8").split()) == ["text_10", "text_11"]


def test_secrets_reach_no_file_and_no_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "tok-other-planted-9876543210"
    monkeypatch.setenv("SOME_SERVICE_TOKEN", other)

    def echo(received: Received) -> Reply:
        key = received.headers["authorization"].removeprefix("Bearer ")
        assert key.startswith("sk-planted-")
        if "error" in parse_request(received).text:
            return Reply(status=400, body={"error": {"message": f"bad key {key}, Authorization: Bearer {key}"}})
        return openai_reply(json.dumps({"points": 0.1, "echo": f"{key} and {other}", other: [key]}))

    prepare(project, "error", "echo")
    with model_server(echo) as server:
        echoed = project.run_toy(*live(server, mode="record", target="pipeline:leak"))
    # nor does the password of an address that is not used
    address = "--packbench-base-url=http://me:planted-password@h/"
    raised = project.run_toy(LIVE, "--packbench-target=pipeline:leak_error", address)
    # nothing is recorded of an answer with a key
    echoed.assert_outcomes(errors=2)
    raised.assert_outcomes(errors=2)
    text = all_text(project) + "".join(run.stdout.str() + run.stderr.str() for run in (echoed, raised))
    assert not [secret for secret in ("sk-planted-", other, "planted-password") if secret in text]
    assert "[redacted]" in text


FAILURES = {
    "rate_limit": error_reply(429, "slow down", headers={"retry-after": "0"}),
    "server_error": error_reply(500, "an error"),
    "auth": error_reply(401, f"wrong key {SECRET}"),
    "answer_unreadable": openai_reply('{"points": ', finish_reason="stop"),
    "truncated": openai_reply('{"points": 1', finish_reason="length"),
    "timeout": Reply(hang=True),
    "network": Reply(body=b"{" * 100, cut=True),
}


def test_a_failed_call_is_an_error_of_its_case_even_if_the_target_ignores_it(project: Project) -> None:
    prepare(project, *FAILURES, "points 1")
    project.pytester.makeini("[pytest]\npackbench_retries = 1\npackbench_call_timeout = 0.5\n")
    with model_server(lambda received: FAILURES.get(parse_request(received).text) or points(received)) as server:
        result = project.run_toy(*live(server, target="pipeline:ignore_errors"))
    result.assert_outcomes(errors=len(FAILURES), passed=1)
    errors = [(line["verdict"], line["kind"]) for line in project.lines("errors.jsonl")]
    assert errors == [("error", kind) for kind in FAILURES]
    assert list(project.records()) == ["case_07"]
    # the wait that a server asks for is made as often as the setting says
    assert [parse_request(received).text for received in server.requests].count("rate_limit") == 2


MISTAKES = {
    "no backend": (LIVE,),
    "fixture mode": ("--packbench-backend=openai",),
    "no model": (LIVE, "--packbench-backend=openai"),
    "no key": (LIVE, "--packbench-backend=openai", "--packbench-model=m"),
    "no key of a worker": (LIVE, "--packbench-backend=openai", "--packbench-model=m", "-n2"),
    "no scripted model": (LIVE, "--packbench-backend=stub"),
    "unknown backend": (LIVE, "--packbench-backend=nobody"),
    "trials in fixture mode": ("--packbench-trials=2",),
    "no trial": (LIVE, "--packbench-trials=0"),
    "no concurrency": ("--packbench-concurrency=0",),
    "negative cost": ("--packbench-max-cost=-1",),
    "no number of tokens": ("--packbench-max-tokens=1.5",),
    "no time": ("--packbench-max-seconds=0",),
    "no number of seconds": ("--packbench-case-timeout=nan",),
    "price of a program": (LIVE, "--packbench-target=cmd:python program.py", "--packbench-max-cost=1"),
    "unknown price": (LIVE, "--packbench-backend=openai", "--packbench-model=fake-1", "--packbench-max-cost=2"),
    "cache in a file": (LIVE, "--packbench-cache=called.txt"),
    "cache below a file": (LIVE, "--packbench-cache=called.txt/below"),
    "unknown guard": ("--packbench-guard=nobody",),
    "guards and none": ("--packbench-guard=none", "--packbench-guard=redact"),
}


def test_a_mistake_in_the_options_is_one_line_before_the_first_case(
    project: Project, expected: ExpectedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    prepare(project, "x")
    project.write("called.txt", "")
    lines = []
    for name, options in MISTAKES.items():
        target = "note" if name.startswith("cache") else "ask"
        if name == "unknown price":
            monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        result = project.run_toy(f"--packbench-target=pipeline:{target}", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, name
        lines.append(f"{name}: {result.stderr.str().strip()}\n".replace(str(project.root), "<PROJECT>"))
    expected.check("".join(lines))
    assert not project.folders()
    assert (project.root / "called.txt").read_text("utf-8") == ""


def test_cases_run_at_once_and_are_reported_in_order(project: Project) -> None:
    prepare(project, *["points 1"] * 12)
    with model_server(latency_s=0.1) as server:
        result = project.run_toy(*live(server, "-v", "--packbench-concurrency=5"))
        assert server.most_open == 5
    result.assert_outcomes(passed=12)
    reported = [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line and "::" in line]
    assert reported == [f"case_{number:02}" for number in range(12)]
    # nobody watches
    assert "in flight" not in result.stdout.str()


def test_a_worker_runs_two_cases_at_once(project: Project) -> None:
    prepare(project, *["points 1"] * 12)
    with model_server(latency_s=0.1) as server:
        result = project.run_toy("-n", "2", *live(server, "--packbench-concurrency=8"))
        assert server.most_open <= 4
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["*each worker runs two attempts at a time*"])


def test_a_run_that_stops_early_wastes_the_calls_of_its_window_at_most(project: Project) -> None:
    prepare(project, "points 0", *["points 1"] * 40)
    with model_server(latency_s=0.02) as server:
        result = project.run_toy(*live(server, "-x", "--packbench-concurrency=3"))
        assert len(server.requests) <= 1 + 2 * 3
    result.assert_outcomes(failed=1)
    # answers arrive while the files of the run are closed
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.TESTS_FAILED, False)
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"stopped"}


def test_an_interrupted_run_stores_all_answers_that_it_has(project: Project) -> None:
    prepare(project, *["points 1"] * 8)
    project.extend_conftest("""
        def pytest_runtest_logreport(report):
            if report.when == "call" and "case_02" in report.nodeid:
                raise KeyboardInterrupt
        """)
    with model_server(latency_s=0.05) as server:
        result = project.run_toy(*live(server, "--packbench-concurrency=2"))
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.INTERRUPTED, False)
    # also of cases that pytest had not reached
    scored = len(project.records())
    assert 3 <= scored <= len(server.requests) <= 3 + 2 * 2
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["interrupted"] * (8 - scored)


def test_a_terminal_shows_the_progress(project: Project) -> None:
    prepare(project, *["points 1"] * 2)
    with model_server(latency_s=0.8) as server:
        controller, terminal = pty.openpty()
        options = live(server, "--packbench-concurrency=1")
        command = [sys.executable, "-m", "pytest", "--packbench-suite=toy", *options]
        process = subprocess.Popen(command, cwd=project.root, stdout=terminal, stderr=terminal, stdin=terminal)
        os.close(terminal)
        output = b""
        try:
            while chunk := os.read(controller, 65536):
                output += chunk
        except OSError:
            # the terminal is closed at the other end
            pass
        process.wait(timeout=60)
        os.close(controller)
    text = output.decode("utf-8", "replace")
    assert process.returncode == 0, text
    assert re.search(r"packbench: \d of 2 done, .* 1 in flight", text), text


def test_the_rule_of_the_suite_decides_on_the_trials_of_a_case(both: Project) -> None:
    answers = {"even": [1.0, 0.7, 1.0], "low": [1.0, 0.1, 0.3]}
    prepare(both, "even", "low")

    def next_answer(received: Received) -> Reply:
        scores = answers[parse_request(received).text]
        scores.append(scores.pop(0))
        return openai_reply(json.dumps({"points": scores[-1]}))

    for rule, passed in (("mean", 1), ("any", 2)):
        both.suite(text=f"pack: toy\ntrials: {rule}\n")
        with model_server(next_answer) as server:
            result = both.run_toy(*live(server, "--packbench-trials=3"))
        result.assert_outcomes(passed=passed, failed=2 - passed)
        if rule == "mean":
            result.stdout.fnmatch_lines(["*1 of 3 trials passed, mean score 0.47, threshold 0.80 (rule: mean)*"])
        records = json_lines(both.folders()[-1] / "records.jsonl")
        trials = [(record["packbench"]["case_id"], record["packbench"]["trial"]) for record in records]
        assert trials == [(case, trial) for case in ("case_00", "case_01") for trial in range(3)]


def test_a_limit_of_tokens_ends_a_run(both: Project) -> None:
    prepare(both, *["points 1"] * 12)
    with model_server(latency_s=0.05) as server:
        result = both.run_toy(*live(server, "--packbench-max-tokens=40", "--packbench-concurrency=1"))
        calls = len(server.requests)
    # 18 tokens per call; each of two workers has half
    assert calls == (3 if not both.workers else 4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    errors = [(line["verdict"], line["kind"]) for line in both.lines("errors.jsonl")]
    assert errors == [("not_run", "max_tokens")] * (12 - calls)
    assert len(both.records()) == calls
    share = "this worker's share (1/2) of the run's cap" if both.workers else "the run's cap"
    split = " (tokens and cost are split equally among the workers)" if both.workers else ""
    result.stdout.fnmatch_lines_random(
        [
            f"packbench: caps: tokens 40{split}; concurrent attempts: 1*, timeout 300 s per attempt; temperature 0",
            "packbench: 12 cases to run in live mode: at least 12 model calls (cases without a recording)",
            f"*{share} of 40 tokens is reached*",
            "*completeness*FAIL*",
        ]
    )
    assert not (both.root / "reports/benchmarks/toy/latest").exists()


def test_limits_of_cost_and_time_end_a_run(project: Project) -> None:
    prepare(project, *["points 1"] * 4)
    # 11 tokens cost 1.10
    prices = "prices:\n  fake-1:\n    input_per_million: 100000\n    output_per_million: 0\n"
    project.suite(text=f"pack: toy\n{prices}")
    for option, calls, latency in (("max-cost=2", 2, 0.0), ("max-seconds=0.2", 1, 0.3)):
        with model_server(latency_s=latency) as server:
            result = project.run_toy(*live(server, f"--packbench-{option}", "--packbench-concurrency=1"))
            assert len(server.requests) == calls
        if calls == 2:
            result.stdout.fnmatch_lines(["*caps: cost 2*", "*used: 2 model calls, 36 tokens, 2.2000 USD*"])
        kinds = [line["kind"] for line in json_lines(project.folders()[-1] / "errors.jsonl")]
        assert kinds == [option.partition("=")[0].replace("-", "_")] * (4 - calls)


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_a_process_ends_although_a_target_hangs(project: Project, mode: str) -> None:
    prepare(project, "hang", "fine")
    options = ("--packbench-target=pipeline:hang", "--packbench-case-timeout=0.3", f"--packbench-mode={mode}")
    result = project.pytester.runpytest_subprocess("--packbench-suite=toy", *options, timeout=120)
    result.assert_outcomes(errors=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["timeout"]
    result.stdout.fnmatch_lines(["*took longer than 0.3 s and was abandoned*"])
    # a function without a model needs no backend
    assert [record["llm_backend"] for record in project.lines("records.jsonl")] == ["unknown"]


def test_a_second_run_with_a_cache_calls_the_model_for_errors_only(both: Project) -> None:
    prepare(both, "points 0.9", "points 0.5", "bad")
    with model_server() as server:
        both.run_toy(*live(server, CACHE)).assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 3
        second = both.run_toy(*live(server, CACHE, "--packbench-max-tokens=2", mode="record"))
        second.assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 4
    second.stdout.fnmatch_lines(["used: 1 model call, 0 tokens*, 2 more answered from the cache"])
    oldest, newest = both.folders()
    records = json_lines(newest / "records.jsonl")
    counts = [(record["packbench"]["cached"], record["packbench"]["calls"]) for record in records]
    assert counts == [(1, 1), (1, 1)]
    assert [(record["tokens_input"], record["tokens_output"]) for record in records] == [(11, 7), (11, 7)]
    rows = json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["cases"]
    assert [row["cached"] for row in rows] == [1, 1, 0]
    remark = "2 of 2 answers came, wholly or partly, from the response cache: the model was not called again for them."
    assert remark in (newest / "summary.md").read_text("utf-8")
    assert remark in " ".join(second.stdout.str().split())
    assert "response cache" not in (oldest / "summary.md").read_text("utf-8")
    assert json.loads(cassettes(both)["case_00.json"])["exchanges"][0]["answer"] == {"points": 0.9}
    stored = [path.read_text("utf-8") for path in (both.root / "answers").rglob("*.json")]
    assert (len(stored), SECRET in "".join(stored)) == (2, False)
