"""`--packbench-unseen`: record mode states what went past the gateway, keeps what was paid for, and spends no more."""

from __future__ import annotations

import json
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest

from tests.integration.options.conftest import own_client, recordings
from tests.integration.test_gateway import missing
from tests.servers.fake import FakeServer, Reply, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

TARGET, RECORD = "--packbench-target=ranked:answer", "--packbench-mode=record"
# the client of the model, and what each pipeline asks elsewhere
OWN = """
import asyncio
import http.client
import json
import os
import queue
import socket
import threading
import time
import urllib.request

import httpx
import openai

CLIENT = openai.OpenAI(max_retries=0)
HOST, PORT = "127.0.0.1", {port}


def ask(request):
    messages = [{{"role": "user", "content": request.input["text"]}}]
    said = CLIENT.chat.completions.create(model="m", messages=messages)
    return json.loads(said.choices[0].message.content)

{pipeline}
"""
PIPELINES = {
    "urllib": """
    def answer(request):
        found = ask(request)
        try:
            urllib.request.urlopen(f"http://{HOST}:{PORT}/rerank", b"{}")
        except Exception:
            pass
        return found
    """,
    "fixed client": """
    FIXED = openai.OpenAI(base_url=f"http://{HOST}:{PORT}/v1", max_retries=0)


    def answer(request):
        try:
            FIXED.models.list()
        except Exception:
            pass
        return ask(request)
    """,
    "raw socket": """
    def answer(request):
        found = ask(request)
        try:
            socket.create_connection((HOST, PORT)).close()
        except Exception:
            pass
        return found
    """,
    "look-up": """
    def answer(request):
        found = ask(request)
        try:
            socket.create_connection(("reranker.invalid", PORT))
        except Exception:
            pass
        return found
    """,
    "task": """
    async def answer(request):
        async def rank():
            try:
                _, writer = await asyncio.open_connection(HOST, PORT)
                writer.close()
            except Exception:
                pass

        ranking = asyncio.create_task(rank())
        found = await asyncio.to_thread(ask, request)
        await ranking
        return found
    """,
    "thread": """
    def answer(request):
        def rank():
            try:
                httpx.get(f"http://{HOST}:{PORT}/", trust_env=False)
            except Exception:
                pass

        thread = threading.Thread(target=rank)
        thread.start()
        found = ask(request)
        thread.join()
        return found
    """,
    "connection of the import": """
    WARM = http.client.HTTPConnection(HOST, PORT)
    WARM.connect()


    def answer(request):
        found = ask(request)
        try:
            WARM.request("GET", "/")
            WARM.getresponse().read()
        except Exception:
            pass
        return found
    """,
    "worker with a queue": """
    JOBS = queue.Queue()


    def work():
        while True:
            done = JOBS.get()
            try:
                socket.create_connection((HOST, PORT)).close()
            except Exception:
                pass
            done.set()


    threading.Thread(target=work, daemon=True).start()


    def answer(request):
        done = threading.Event()
        JOBS.put(done)
        found = ask(request)
        done.wait(20)
        return found
    """,
}
# a client that is refused, or warm, leaves its socket open
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def elsewhere() -> Iterator[FakeServer]:
    with FakeServer(scripted(Reply(body={"object": "list", "data": []}))) as server:
        yield server


@pytest.fixture
def prepared(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> Project:
    own_client(model, monkeypatch)
    project.prepare("points 0.9", "points 1")
    return project


def write_pipeline(project: Project, server: FakeServer, pipeline: str) -> str:
    port = server.url.rpartition(":")[2]
    project.write("ranked.py", OWN.format(port=port, pipeline=textwrap.dedent(pipeline)))
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("name", PIPELINES)
def test_what_goes_past_the_gateway_stops_the_recording_and_what_was_paid_for_is_kept(
    name: str, prepared: Project, model: Model, elsewhere: FakeServer
) -> None:
    goal = write_pipeline(prepared, elsewhere, PIPELINES[name])
    goal = goal.replace("127.0.0.1", "reranker.invalid") if name == "look-up" else goal
    result = prepared.run_toy(TARGET, RECORD)
    assert result.ret == 1
    outcomes = result.parseoutcomes()
    assert (outcomes["errors"], outcomes["skipped"]) == (1, 1)
    error = prepared.errors()["case_00"]
    assert error["kind"] == "recorded_in_part"
    assert f"the target can't reach {goal} (1 x, {prepared.root / 'ranked.py'}:" in error["message"]
    assert 'base_url=os.environ["OPENAI_BASE_URL"]' in error["message"]
    assert len(model.requests) == 1
    # nothing that a replay would take
    assert recordings(prepared) == {}
    folder = prepared.root / "storage/benchmarks/toy/fixtures/.partial"
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "case_00.json"]
    assert len(json.loads((folder / "case_00.json").read_text("utf-8"))["gateway"]) == 1
    # what the target does without offline is named; the answer that is kept is not paid for again
    prepared.suite(text=f"pack: toy\nrecording:\n  unseen: ['{goal}']\n")
    recorded = prepared.run_toy(TARGET, RECORD)
    recorded.assert_outcomes(passed=2)
    assert not missing(recorded, f"packbench: suite toy: not needed offline (suite.yaml, recording: unseen): {goal}")
    assert len(model.requests) == 2
    assert sorted(recordings(prepared)) == ["case_00.json", "case_01.json"]
    assert not (folder / "case_00.json").exists()
    if name != "connection of the import":
        made = len(elsewhere.requests)
        prepared.run_toy(TARGET).assert_outcomes(passed=2)
        # it is refused as before
        assert len(elsewhere.requests) == made
    # and an error without the rule
    prepared.suite()
    if name != "connection of the import":
        prepared.run_toy(TARGET).assert_outcomes(errors=2)


def test_all_cases_are_recorded_in_part_where_that_is_asked_for(
    prepared: Project, model: Model, elsewhere: FakeServer
) -> None:
    write_pipeline(prepared, elsewhere, PIPELINES["urllib"])
    result = prepared.run_toy(TARGET, RECORD, "--packbench-unseen=continue")
    result.assert_outcomes(errors=2)
    assert result.ret == 1
    assert len(model.requests) == 2


def test_the_first_case_that_goes_past_the_gateway_names_all_places(
    prepared: Project, model: Model, elsewhere: FakeServer
) -> None:
    twice = PIPELINES["urllib"].replace("pass", "pass\n        socket.create_connection((HOST, PORT + 0)).close()")
    with FakeServer(scripted(Reply())) as other:
        port = other.url.rpartition(":")[2]
        goal = write_pipeline(prepared, elsewhere, twice.replace("PORT + 0", port))
        result = prepared.run_toy(TARGET, RECORD)
    assert len(model.requests) == 1
    assert not missing(result, f"{goal} (1 x, ", "and 1 more", f"127.0.0.1:{port} (1 x, ")


def test_a_case_with_another_error_is_that_error(prepared: Project, elsewhere: FakeServer) -> None:
    raising = PIPELINES["urllib"].replace("return found", "raise ValueError('no rank')")
    write_pipeline(prepared, elsewhere, raising)
    prepared.run_toy(TARGET, RECORD).assert_outcomes(errors=2)
    assert {error["kind"] for error in prepared.errors().values()} == {"target_error"}


@pytest.mark.parametrize("unseen", ["*:443", "host", "http://host:443", "host:443:x", "*"])
def test_a_rule_that_names_no_host_and_port_is_refused(project: Project, unseen: str) -> None:
    project.case("one")
    project.suite(text=f"pack: toy\nrecording: {{unseen: ['{unseen}']}}\n")
    result = project.run_toy()
    assert result.ret == 4
    assert not missing(result, "/recording/unseen/0")


BACKGROUND = """
def beat():
    while not os.path.exists(__file__ + ".stop"):
        try:
            urllib.request.urlopen(f"http://{HOST}:{PORT}/beat", b"x")
        except Exception:
            pass
        BEATS.set()
        time.sleep(0.01)


BEATS = threading.Event()
threading.Thread(target=beat, name="reports", daemon=True).start()


def answer(request):
    found = ask(request)
    # not woken up by this case: it looks, and waits
    for _ in range(3):
        time.sleep(0.02)
    return found
"""


def test_a_thread_from_before_that_a_case_gives_nothing_is_no_case_s(
    prepared: Project, model: Model, elsewhere: FakeServer
) -> None:
    write_pipeline(prepared, elsewhere, BACKGROUND)
    recorded, replayed = prepared.run_toy(TARGET, RECORD), prepared.run_toy(TARGET)
    prepared.write("ranked.py.stop", "")
    for thread in threading.enumerate():
        if thread.name == "reports":
            thread.join(20)
    recorded.assert_outcomes(passed=2)
    replayed.assert_outcomes(passed=2)
    assert not missing(replayed, "packbench: refused, and no case's: ", 'x the thread "reports" (ranked) tried: ')
    assert len(model.requests) == 2


TRACER = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "libraries"))
import posthog


def answer(request):
    posthog.capture("asked")
    found = ask(request)
    posthog.flush()
    return found
"""
LIBRARY = """
import queue
import threading
import urllib.request

EVENTS, STARTED = queue.Queue(), []


def consume():
    while True:
        EVENTS.get()
        try:
            urllib.request.urlopen("http://127.0.0.1:{port}/batch", b"x")
        except Exception:
            pass
        EVENTS.task_done()


def capture(event):
    if not STARTED:
        STARTED.append(threading.Thread(target=consume, name="consumer", daemon=True))
        STARTED[0].start()
    EVENTS.put(event)


def flush():
    EVENTS.join()
"""


@pytest.mark.parametrize("name", ["posthog", "unheard_of"])
def test_what_a_known_tracer_sends_is_no_case_s_and_an_unknown_one_is_named(
    name: str, prepared: Project, elsewhere: FakeServer
) -> None:
    goal = write_pipeline(prepared, elsewhere, TRACER.replace("posthog", name))
    port = goal.rpartition(":")[2]
    prepared.write(f"libraries/site-packages/{name}.py", LIBRARY.format(port=port))
    prepared.write(
        "ranked.py", (prepared.root / "ranked.py").read_text().replace('"libraries"', '"libraries/site-packages"')
    )
    if name == "posthog":
        prepared.run_toy(TARGET, RECORD).assert_outcomes(passed=2)
        replayed = prepared.run_toy(TARGET)
        replayed.assert_outcomes(passed=2)
        assert not missing(replayed, "refused, and no case's", 'the thread "consumer" (posthog) tried: ')
        return
    result = prepared.run_toy(TARGET, RECORD)
    assert not missing(result, f'recorded in part: offline, the target can\'t reach {goal} (1 x, the thread "consumer"')
    assert result.ret == 1


def test_tracing_that_the_environment_switches_on_is_off_and_said(
    prepared: Project, elsewhere: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = "import os\n\ndef answer(request):\n    assert os.environ.get('OTEL_SDK_DISABLED') == WANTED\n    return ask(request)\n"
    write_pipeline(prepared, elsewhere, pipeline.replace("WANTED", "None"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", elsewhere.url)
    monkeypatch.setenv("LANGFUSE_TRACING_ENABLED", "false")
    recorded = prepared.run_toy(TARGET, RECORD)
    recorded.assert_outcomes(passed=2)
    line = "packbench: fixture mode switches tracing off: "
    assert missing(recorded, line) == [line]
    write_pipeline(prepared, elsewhere, pipeline.replace("WANTED", "'true'"))
    replayed = prepared.run_toy(TARGET)
    replayed.assert_outcomes(passed=2)
    # what is off already is not said
    assert f"{line}OTEL_SDK_DISABLED=true\n" in replayed.stdout.str()
