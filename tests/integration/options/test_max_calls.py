"""`--packbench-max-calls`: an attempt that asks a model too often is an error, and asks no more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import ended, two_workers
from tests.integration.options.conftest import own_client, recordings
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


def serve(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let own clients find the model, which embeds texts too."""
    own_client(model, monkeypatch)
    answer = model.handler

    def reply(received: Received) -> Reply:
        if "embeddings" in received.path:
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            return Reply(body={"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 3}})
        return answer(received)

    model.handler = reply


def prepare(project: Project, *texts: str) -> None:
    project.prepare(*texts)
    project.write("own.py", LOOPS)


@two_workers
@pytest.mark.parametrize("mode", ["live", "record"])
def test_each_way_to_ask_counts_and_the_others_go_on(
    both: Project, model: Model, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    serve(model, monkeypatch)
    rows = {"context 7": True, "own 7": True, "mixed 9": True, "different 6": True, "embed 7": False, "own 5": False}
    prepare(both, *rows)
    result = model.run(both, "--packbench-max-calls=5", mode=mode, target="own:run")
    ended(result, 1, errors=4, passed=2)
    errors = {case: (error["verdict"], error["kind"], error["message"]) for case, error in both.errors().items()}
    refused = [f"case_{number:02}" for number, is_refused in enumerate(rows.values()) if is_refused]
    assert errors == dict.fromkeys(refused, ("error", "max_calls", MESSAGE.format(5)))
    paths = Counter("embed" in received.path for received in model.requests)
    assert paths == {False: 5 * 5, True: 7}
    assert recordings(both).keys() == ({"case_04.json", "case_05.json"} if mode == "record" else set())
    if mode == "record":
        # a replay asks no model
        replayed = both.run_toy("--packbench-target=own:run", "--packbench-max-calls=1", "-k", "case_05 or case_04")
        ended(replayed, 0, passed=2)


# where the limit comes from, and how many calls of which function it allows
SOURCES = {"-q": (100, 1, "run"), "-o packbench_max_calls=3": (3, 1, "run"), "PACKBENCH_MAX_CALLS=4": (4, 1, "run")}
SOURCES["--packbench-max-calls=4 --packbench-trials=2 --packbench-concurrency=4"] = (4, 2, "run_at_once")


@pytest.mark.parametrize("source", SOURCES)
def test_it_has_a_default_and_other_sources_and_each_trial_counts_its_calls_by_itself(
    project: Project, model: Model, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    serve(model, monkeypatch)
    most, trials, function = SOURCES[source]
    options = source.split()
    if source.startswith("PACKBENCH"):
        monkeypatch.setenv(*options.pop().split("="))
    prepare(project, "own 103", "own 3")
    ended(model.run(project, *options, target=f"own:{function}"), 1, errors=1, passed=1)
    assert {error["message"] for error in project.lines("errors.jsonl")} == {MESSAGE.format(most)}
    assert len(model.requests) == trials * (most + 3)
