"""`--packbench-max-tokens`: a run ends when it has used so many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import two_workers

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


@two_workers
def test_a_limit_of_tokens_ends_a_run(both: Project, model: Model) -> None:
    both.prepare(*["points 1"] * 12)
    model.latency_s = 0.05
    result = model.run(both, "--packbench-max-tokens=40", "--packbench-concurrency=1")
    # 18 tokens per call; each of two workers has half
    calls = 3 if not both.workers else 4
    assert len(model.requests) == len(both.records()) == calls
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    errors = [(line["verdict"], line["kind"]) for line in both.lines("errors.jsonl")]
    assert errors == [("not_run", "max_tokens")] * (12 - calls)
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
