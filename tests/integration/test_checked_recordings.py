"""A run that records replays once at its end: what differs in each run is named, and what one case makes for all shared."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.conftest import ended
from tests.integration.options.conftest import Model, own_client, recordings
from tests.servers.fake import Reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.servers.fake import Received

RECORD = "--packbench-mode=record"
SHARED = "storage/benchmarks/toy/fixtures/shared/calls.json"
PIPELINE = """
import functools
import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx

CLIENT = httpx.Client(trust_env=False)
ANSWERS, SEEN, NUMBERS = {}, ["nothing"], itertools.count(100)


def post(path, **body):
    url = f"{os.environ['OPENAI_BASE_URL']}/{path}"
    answer = CLIENT.post(url, json=body, headers={"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"})
    answer.raise_for_status()
    return answer.json()


def complete(text, **more):
    answer = post("chat/completions", model="fake-1", messages=[{"role": "user", "content": text}], **more)
    return json.loads(answer["choices"][0]["message"]["content"])


def embedded(*texts):
    return post("embeddings", model="e", input=list(texts))


def dated(request):
    return complete(f"{time.strftime('%A, %d %B %Y, %H:%M:%S')}.{uuid.uuid4()} {request.input['text']}")


def unknown(request):
    return complete(f"{request.input['text']} in {os.urandom(9).hex().translate(str.maketrans('0123456789', 'ghijklmnop'))} words")


def counted(request):
    return complete(request.input["text"], seed=next(NUMBERS))


def remembering(request):
    SEEN.append(request.input["text"])
    return complete(f"after {SEEN[-2]}: {SEEN[-1]}")


@functools.cache
def index():
    return embedded("returns", "shipping")


def searching(request):
    index()
    embedded(request.input["text"])
    return complete(request.input["text"])


def cached(request):
    text = request.input["text"].partition("#")[0]
    if text not in ANSWERS:
        ANSWERS[text] = complete(text)
    return ANSWERS[text]


def tooled(request):
    made = str(uuid.uuid4())
    call = {"id": made, "type": "function", "function": {"name": "points", "arguments": "{}"}}
    told = [
        {"role": "user", "content": request.input["text"]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": made, "content": "7"},
    ]
    answer = post("chat/completions", model="fake-1", messages=told)
    return json.loads(answer["choices"][0]["message"]["content"])


def with_program(request):
    subprocess.run([sys.executable, "-c", ""], check=True)
    return complete(request.input["text"])


def effects(request):
    with Path("effects.txt").open("a") as file:
        file.write("x")
    return complete(request.input["text"])
"""


def answer(received: Received) -> Reply:
    """Points as the text asks for; a vector for each text of an embedding."""
    body = received.json()
    if "input" in body:
        data = [
            {"object": "embedding", "index": at, "embedding": [float(len(text))]}
            for at, text in enumerate(body["input"])
        ]
        return Reply(
            body={"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}}
        )
    points = re.search(r"points ([0-9.]+)", body["messages"][0]["content"])
    message = {"role": "assistant", "content": json.dumps({"points": float(points[1]) if points else 1.0})}
    return Reply(
        body={"id": "c", "model": "fake-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )


@pytest.fixture
def served(checked: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model that the pipelines of the project ask."""
    model.handler = answer
    own_client(model, monkeypatch)
    checked.write("own.py", PIPELINE)
    return model


def target(name: str) -> str:
    return f"--packbench-target=own:{name}"


def shared(project: Project) -> list[Any]:
    path = project.root / SHARED
    return (
        [call["request"]["input"] for call in json.loads(path.read_text("utf-8"))["gateway"]] if path.exists() else []
    )


def change(project: Project, old: str, new: str) -> None:
    assert old in PIPELINE
    project.write("own.py", PIPELINE.replace(old, new))


def one_line(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def test_what_differs_in_each_run_is_named_with_the_line_that_declares_it(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9", "points 0.5", "points 1")
    result = ended(checked.run_toy(target("dated"), RECORD), 1, "recorded: 3 of 3 cases, 0 of 3 replay")
    line = re.search(r"declare that in suite.yaml: (recording: .*?\]\})", one_line(result))
    assert line is not None
    assert "record it again" not in result.stdout.str()
    assert checked.text("report.html").count("does not replay") >= 3
    # what was paid for is kept, and replays once that is declared
    checked.suite(text=f"pack: toy\ndescription: a toy\n{line[1]}\n")
    assert len(yaml.safe_load(line[1])["recording"]["ignore"]) >= 2
    ended(checked.run_toy(target("dated")), 1, passed=2, failed=1)
    assert len(served.requests) == 3
    change(checked, "{request.input['text']}\")\n\n\ndef unknown", "{request.input['text'][:-1]}\")\n\n\ndef unknown")
    ended(checked.run_toy(target("dated")), 1, errors=3)


@pytest.mark.usefixtures("served")
def test_a_program_that_a_target_starts_does_so_in_the_check(checked: Project) -> None:
    checked.prepare("points 1")
    ended(checked.run_toy(target("with_program"), RECORD), 0, "recorded: 1 of 1 case, 1 of 1 replay*")
    ended(checked.run_toy(target("with_program")), 1, "*packbench_allow_processes*", errors=1)


def test_of_what_has_no_known_form_the_place_is_named(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9")
    result = checked.run_toy(target("unknown"), RECORD)
    assert (
        r'{"at": "/messages/0/content", "pattern": "(?<=points\\ 0\\.9\\ in\\ )\\S+", "as": "<differs>"}'
        in one_line(result)
    )
    checked.prepare("points 0.9", "points 1")
    text = one_line(checked.run_toy(target("counted"), RECORD))
    assert "case_01 does not replay: " in text
    assert '{"at": "/seed", "pattern": "^\\\\S+", "as": "<differs>"}' in text


def test_a_case_that_asks_by_what_ran_before_replays_alone_only(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9", "points 1")
    text = one_line(checked.run_toy(target("remembering"), RECORD))
    assert "case_00 does not replay: it does alone, but not after other cases: fixtures/case_00.json: POST" in text
    assert "case_01 does not replay: fixtures/case_01.json: POST" in text


@pytest.mark.parametrize("where", ["case", "import"])
def test_an_index_that_is_built_once_is_shared(checked: Project, served: Model, where: str) -> None:
    if where == "import":
        change(checked, "\n\ndef searching", "\n\nindex()\n\n\ndef searching")
    checked.prepare("points 0.9", "points 1", "points 0.8")
    result = ended(checked.run_toy(target("searching"), RECORD), 0, "recorded: 3 of 3 cases, 3 of 3 replay", passed=3)
    assert "1 call made once for all cases, now in fixtures/shared/calls.json: POST /v1/embeddings." in one_line(result)
    assert (len(served.requests), shared(checked)) == (7, [["returns", "shipping"]])
    ended(checked.run_toy(target("searching")), 0, passed=3)
    last = checked.run_toy(target("searching"), "-k", "case_02")
    ended(last, 0, passed=1)
    if where == "case":
        assert "1 case: 1 call replayed from fixtures/shared/calls.json, which is recorded for all cases." in one_line(
            last
        )
        assert "replayed from fixtures/shared/calls.json" in checked.text("report.html")
    for part in ("1/2", "2/2"):
        assert checked.run_toy(target("searching"), f"--packbench-shard={part}").ret == 0
    ended(checked.run_toy(target("searching"), "-n2"), 0, passed=3)
    assert len(served.requests) == 7
    # nothing has changed, so that nothing waits
    before = recordings(checked), (checked.root / SHARED).read_bytes()
    ended(checked.run_toy(target("searching"), RECORD), 0, passed=3)
    assert (recordings(checked), (checked.root / SHARED).read_bytes()) == before
    assert not [*checked.root.glob("storage/benchmarks/toy/fixtures/.pending/*.json")]


def test_a_shared_call_is_no_answer_to_what_a_case_itself_asks(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9", "points 1")
    ended(checked.run_toy(target("searching"), RECORD), 0, passed=2)
    own = 'embedded(request.input["text"])'
    for broken in ('embedded("returns", "shipping")', 'embedded("returns")', "index()", f"{own}; {own}"):
        change(checked, own, broken)
        ended(checked.run_toy(target("searching")), 1, errors=2)
    change(checked, 'embedded("returns", "shipping")', 'embedded("shipping", "returns")')
    ended(checked.run_toy(target("searching")), 1, errors=2)
    (checked.root / SHARED).write_text("<<<<<<< HEAD\n", "utf-8")
    result = ended(checked.run_toy(target("searching"), "-k", "case_01"), 1, errors=1)
    assert "fixtures/shared/calls.json: line 1 column 1: <<<<<<< marks a conflict" in one_line(result)


def test_the_answer_to_a_repeated_question_is_shared_and_to_others_not(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9#a", "points 0.9#b", "points 1#c")
    ended(checked.run_toy(target("cached"), RECORD), 0, "recorded: 2 of 3 cases, 3 of 3 replay", passed=3)
    assert len(json.loads((checked.root / SHARED).read_text("utf-8"))["gateway"]) == 1
    for case in ("case_00", "case_01", "case_02"):
        ended(checked.run_toy(target("cached"), "-k", case), 0, passed=1)
    # a case that takes the answer to another's question
    change(checked, '.partition("#")[0]', '[:7] + "0.9"')
    ended(checked.run_toy(target("cached")), 1, errors=1, passed=2)


def test_made_up_ids_replay_and_are_no_change_when_they_are_recorded_again(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9", "points 1")
    for _ in range(2):
        ended(checked.run_toy(target("tooled"), RECORD), 0, "recorded: 2 of 2 cases, 2 of 2 replay", passed=2)
    assert not [*checked.root.glob("storage/benchmarks/toy/fixtures/.pending/*.json")]
    change(checked, '"tool_call_id": made', '"tool_call_id": "another"')
    ended(checked.run_toy(target("tooled")), 1, errors=2)


def test_a_target_with_effects_is_not_replayed_where_the_suite_wants_that(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9")
    idle = "ignore: [{at: /message, pattern: points, as: x}]"
    checked.suite(text=f"pack: toy\ndescription: a toy\nrecording: {{check: off, {idle}}}\n")
    warning = "suite.yaml: /recording/ignore/0 matches nothing in what was recorded."
    lines = ("recorded: 1 of 1 case, not checked (recording: check is off)", warning)
    ended(checked.run_toy(target("effects"), RECORD), 0, *lines)
    assert (checked.root / "effects.txt").read_text("utf-8") == "x"
    assert json.loads(recordings(checked)["case_00.json"])["conditions"]["recording"]["check"] is False
    checked.suite()
    checked.run_toy(target("effects"), RECORD)
    assert (checked.root / "effects.txt").read_text("utf-8") == "xxx"


def test_a_check_that_can_not_start_says_why_and_what_was_recorded_is_kept(checked: Project, served: Model) -> None:
    checked.prepare("points 0.9")
    checked.extend_conftest(
        """
        import os

        if "PACKBENCH_CHECK" in os.environ:
            raise ValueError("only once")
        """
    )
    result = checked.run_toy(target("searching"), RECORD, "--junitxml=junit.xml")
    result.stdout.fnmatch_lines(["recorded: 1 of 1 case, not checked: * exit code 4: *only once*"])
    assert (result.ret, sorted(recordings(checked))) == (0, ["case_00.json"])
