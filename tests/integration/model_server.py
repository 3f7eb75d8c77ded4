"""Runs of the suite `toy` on a model: a target that calls it, a real client library, a server on loopback."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio._backends._asyncio
import httpcore2
import httpx2
import openai
import openai.resources.chat.completions
import pytest

from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Project
    from tests.servers.fake import Handler

# pytester forgets what a run imported: the client is imported once, or its exceptions would be two classes
_WARM = (openai, httpx2, httpcore2, anyio)
SECRET = "sk-planted-0123456789abcdef"  # noqa: S105 - planted to be looked for
PIPELINE = """
import asyncio
import logging
import os
import sys
import time

from pytest_packbench.model.request import ModelRequest

SCHEMA = {"type": "object", "properties": {"points": {"type": "number"}}, "required": ["points"]}


def question(request):
    message = {"role": "user", "content": request.input["text"]}
    return ModelRequest(role="judge", system="give points", messages=(message,), output_schema=SCHEMA)


def announce(context):
    print("asking for", context.case_id)
    print("trouble with", context.case_id, file=sys.stderr)
    logging.getLogger("pipeline").warning("logging for %s", context.case_id)


async def ask(request, context):
    announce(context)
    answer = await context.llm.complete(question(request))
    print("asked for", context.case_id)
    return answer.content


def ask_sync(request, context):
    announce(context)
    answer = context.llm.complete_sync(question(request))
    print("asked for", context.case_id)
    return answer.content


async def ignore_errors(request, context):
    try:
        return await ask(request, context)
    except Exception:
        return {"points": 1.0}


async def leak(request, context):
    print("printed", os.environ["OPENAI_API_KEY"])
    return {**await ask(request, context), "key": os.environ["OPENAI_API_KEY"]}


def leak_error(request):
    raise ValueError("failed with " + os.environ["SOME_SERVICE_TOKEN"])


def hang(request):
    if request.input["text"] == "hang":
        time.sleep(3600)
    return {"points": 1.0}


async def note(request):
    with open("called.txt", "a") as file:
        print(request.input["text"], file=file)
    return {"points": 1.0}
"""


def points(received: Received) -> Reply:
    """Answer with the points that the text asks for; a text with `bad` is a bad request."""
    text = parse_request(received).text
    if "bad" in text:
        return Reply(status=400, body={"error": {"message": "no such parameter"}})
    number = re.search(r"points ([0-9.]+)", text)
    return openai_reply(json.dumps({"points": float(number[1]) if number else 1.0}))


@contextmanager
def model_server(handler: Handler = points, *, latency_s: float = 0.0) -> Iterator[FakeServer]:
    """A server and its key."""
    with FakeServer(handler, latency_s=latency_s) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", SECRET)
        yield server


def prepare(project: Project, *texts: str) -> None:
    """Write the targets, and a case for each text: case_00, case_01 ..."""
    project.pytester.makepyfile(pipeline=PIPELINE)
    for number, text in enumerate(texts):
        project.case(f"case_{number:02}", text=text)


def live(server: FakeServer, *more: str, mode: str = "live", target: str = "pipeline:ask") -> tuple[str, ...]:
    """Return the options of a run on a server."""
    return (
        f"--packbench-mode={mode}",
        f"--packbench-target={target}",
        "--packbench-backend=openai",
        "--packbench-model=fake-1",
        f"--packbench-base-url={server.url}/v1",
        *more,
    )


def without_times(value: Any, *, also: tuple[str, ...] = ()) -> Any:
    """Return JSON without what differs from run to run, and without the keys `also`."""
    names = {"run_id", "timestamp", "wall_clock_ms", "duration_ms", *also}
    if isinstance(value, dict):
        return {key: without_times(inner, also=also) for key, inner in value.items() if key not in names}
    return [without_times(inner, also=also) for inner in value] if isinstance(value, list) else value


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def replayable(folder: Path) -> Any:
    """Return the records of a run, without what a replay changes."""
    return without_times(json_lines(folder / "records.jsonl"), also=("mode",))


def cassettes(project: Project) -> dict[str, bytes]:
    """Return the recordings of the suite, by file name."""
    return {path.name: path.read_bytes() for path in project.root.glob("storage/benchmarks/toy/fixtures/*")}


def all_text(project: Project) -> str:
    """Return the text of all files of the project."""
    return "\n".join(path.read_text("utf-8", "replace") for path in project.root.rglob("*") if path.is_file())
