"""`--packbench-max-calls`: an attempt that asks a model too often is an error, and asks no more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import two_workers
from tests.integration.options.conftest import recordings
from tests.servers.fake import Reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received

LOOPS = """
import asyncio
import itertools
import json

import openai

from pytest_packbench.backends import BackendError
from pytest_packbench.model.request import ModelRequest

CLIENT = openai.OpenAI()


def own(text):
    CLIENT.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])


def embed(text):
    CLIENT.embeddings.create(model="e", input=text)


def through(context, text):
    context.llm.complete_sync(ModelRequest(role="ask", system="", messages=({"role": "user", "content": text},)))


def run(request, context):
    how, count = request.input["text"].split()
    for number in range(int(count)):
        text = "same" if how != "different" else f"{number}"
        call = {"context": lambda: through(context, text), "embed": lambda: embed(text)}.get(how, lambda: own(text))
        if how == "mixed" and number % 2:
            call = lambda: through(context, text)
        try:
            call()
        except (openai.OpenAIError, BackendError):
            # as a loop that tries again does
            pass
    return {"points": 1.0}


async def run_at_once(request):
    async with openai.AsyncOpenAI() as client:
        asked = (
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "same"}])
            for _ in range(int(request.input["text"].split()[1]))
        )
        await asyncio.gather(*asked, return_exceptions=True)
    return {"points": 1.0}
"""
MESSAGE = "the attempt asked for more than {} model calls (--packbench-max-calls); end its loop, or raise the limit"


@pytest.fixture
def asked(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The model; own clients find it too."""
    return serve(project, model, monkeypatch)


def serve(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    answer = model.handler

    def reply(received: Received) -> Reply:
        if "embeddings" in received.path:
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            return Reply(body={"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 3}})
        return answer(received)

    model.handler = reply
    return model


def prepare(project: Project, *texts: str) -> None:
    project.prepare(*texts)
    project.write("own.py", LOOPS)


@two_workers
@pytest.mark.parametrize("mode", ["live", "record"])
def test_each_way_to_ask_counts_and_the_others_go_on(
    both: Project, model: Model, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    serve(both, model, monkeypatch)
    rows = {"context 7": True, "own 7": True, "mixed 9": True, "different 6": True, "embed 7": False, "own 5": False}
    prepare(both, *rows)
    result = model.run(both, "--packbench-max-calls=5", mode=mode, target="own:run")
    result.assert_outcomes(errors=4, passed=2)
    errors = {case: (error["verdict"], error["kind"], error["message"]) for case, error in both.errors().items()}
    refused = [f"case_{number:02}" for number, is_refused in enumerate(rows.values()) if is_refused]
    assert errors == dict.fromkeys(refused, ("error", "max_calls", MESSAGE.format(5)))
    paths = Counter("embed" in received.path for received in model.requests)
    assert paths == {False: 5 * 5, True: 7}
    stored = {name.removesuffix(".json") for name in recordings(both)}
    assert stored == ({"case_04", "case_05"} if mode == "record" else set())
    if mode == "record":
        # a replay asks no model
        replayed = both.run_toy("--packbench-target=own:run", "--packbench-max-calls=1", "-k", "case_05 or case_04")
        replayed.assert_outcomes(passed=2)


def test_calls_at_once_count_and_each_trial_by_itself(project: Project, asked: Model) -> None:
    prepare(project, "own 8", "own 3")
    options = ("--packbench-max-calls=4", "--packbench-trials=2", "--packbench-concurrency=4")
    asked.run(project, *options, target="own:run_at_once").assert_outcomes(errors=1, passed=1)
    assert {error["message"] for error in project.lines("errors.jsonl")} == {MESSAGE.format(4)}
    assert len(asked.requests) == 2 * (4 + 3)


@pytest.mark.parametrize(("source", "most"), [("default", 100), ("ini", 3), ("environment", 4)])
def test_it_has_a_default_and_other_sources(
    project: Project, asked: Model, monkeypatch: pytest.MonkeyPatch, source: str, most: int
) -> None:
    if source == "ini":
        project.pytester.makeini(f"[pytest]\npackbench_max_calls = {most}\n")
    elif source == "environment":
        monkeypatch.setenv("PACKBENCH_MAX_CALLS", f"{most}")
    prepare(project, "own 103")
    asked.run(project, target="own:run").assert_outcomes(errors=1)
    assert [error["message"] for error in project.lines("errors.jsonl")] == [MESSAGE.format(most)]
    assert len(asked.requests) == most


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_wrong_value_is_one_line(project: Project, value: str) -> None:
    project.prepare("points 1")
    result = project.run_toy(f"--packbench-max-calls={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-max-calls: got '{value}'; expected a whole number, 1 or more"])
