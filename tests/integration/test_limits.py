"""`--packbench-max-tokens`, `-max-cost`, `-max-seconds`: a run that reaches a limit starts no more cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import live, model_server, prepare
from tests.integration.test_target import write_program

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_a_limit_of_tokens_ends_a_run(both: Project) -> None:
    prepare(both, *["points 1"] * 12)
    with model_server(latency_s=0.05) as server:
        result = both.run_toy(*live(server, "--packbench-max-tokens=40", "--packbench-concurrency=1"))
        calls = len(server.requests)
    # 18 tokens per call; each of two workers has half
    assert calls == (3 if not both.workers else 4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [(line["verdict"], line["kind"]) for line in both.lines("errors.jsonl")] == [("not_run", "max_tokens")] * (
        12 - calls
    )
    assert len(both.lines("records.jsonl")) == calls
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


def test_tokens_that_a_program_reports_count(project: Project) -> None:
    prepare(project, *["x"] * 6)
    options = ("--packbench-mode=live", "--packbench-concurrency=1", "--packbench-max-tokens=30")
    result = project.run_toy(write_program(project), *options)
    result.assert_outcomes(passed=3, skipped=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"max_tokens"}


def test_a_limit_of_cost_counts_with_the_prices_of_the_suite(project: Project) -> None:
    prepare(project, *["points 1"] * 4)
    prices = "prices:\n  fake-1:\n    input_per_million: 100000\n    output_per_million: 0\n"
    with model_server() as server:
        refused = project.run_toy(*live(server, "--packbench-max-cost=2"))
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines(["*the price of openai fake-1 is unknown*"])
        assert not server.requests
        project.suite(text=f"pack: toy\n{prices}")
        # 11 tokens cost 1.10
        result = project.run_toy(*live(server, "--packbench-max-cost=2", "--packbench-concurrency=1"))
        assert len(server.requests) == 2
    result.stdout.fnmatch_lines(["*caps: cost 2*", "*used: 2 model calls, 36 tokens, 2.2000 USD*"])


def test_a_limit_of_time_ends_a_run(project: Project) -> None:
    prepare(project, *["points 1"] * 6)
    with model_server(latency_s=0.3) as server:
        project.run_toy(*live(server, "--packbench-max-seconds=0.2", "--packbench-concurrency=1"))
        assert len(server.requests) == 1
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"max_seconds"}
