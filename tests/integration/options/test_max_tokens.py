"""`--packbench-max-tokens`: a run ends when it has used so many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import ended, two_workers
from tests.integration.options.conftest import own_client

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
    errors = [(line["verdict"], line["kind"]) for line in both.lines("errors.jsonl")]
    assert errors == [("not_run", "max_tokens")] * (12 - calls)
    share = "this worker's share (1/2) of the run's cap" if both.workers else "the run's cap"
    split = " (tokens and cost are split equally among the workers)" if both.workers else ""
    expected = "packbench: 12 cases to run in live mode: at least 12 model calls (cases without a recording)"
    limits = f"tokens 40{split}; concurrent attempts: 1*, timeout 300 s per attempt; temperature 0"
    shown = [] if both.workers else [expected]
    ended(result, 1, *shown, f"packbench: caps: {limits}", f"*{share} of 40 tokens is reached*", "*completeness*FAIL*")
    assert not (both.root / "reports/benchmarks/toy/latest").exists()


RULES = """
import sys

import openai

from pytest_packbench.model.request import ModelRequest


def own(request):
    if request.input["text"] != "rule":
        message = {"role": "user", "content": request.input["text"]}
        openai.OpenAI().chat.completions.create(model="m", messages=[message])
    return {"points": 1.0}


def through(request, context):
    if request.input["text"] != "rule":
        message = {"role": "user", "content": request.input["text"]}
        context.llm.complete_sync(ModelRequest(role="ask", system="", messages=(message,)))
    return {"points": 1.0}


if __name__ == "__main__":
    import json

    for line in sys.stdin:
        call = json.loads(line)
        request = type("Request", (), {"input": call["params"]["input"]})
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": own(request)}), flush=True)
"""


@pytest.mark.parametrize("target", ["own:own", "own:through", "cmd:python own.py"])
def test_a_case_that_asks_no_model_has_used_nothing(
    both: Project, model: Model, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    own_client(model, monkeypatch)
    both.prepare("rule", "points 1", "rule", "points 1")
    both.write("own.py", RULES)
    result = model.run(both, "--packbench-max-tokens=1000", "--packbench-concurrency=1", target=target)
    # what a program did is known as far as it is seen
    ended(result, 0, "*used: 2 model calls, 36 tokens, cost not known*", passed=4)
    assert len(model.requests) == 2
