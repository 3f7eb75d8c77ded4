"""Runs whose target sends headers and credentials with its own client: what is compared, and what no file contains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.options.conftest import points, recordings
from tests.servers.fake import Reply
from tests.servers.wire import parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received

OWN = """
import json
import logging
from pathlib import Path

import openai

CLIENT = openai.OpenAI(max_retries=0)
HERE = Path(__file__).parent


def ask(request):
    token, headers = (HERE / "pass.txt").read_text(), json.loads((HERE / "headers.json").read_text())
    tools = [{"type": "mcp", "authorization": token, "headers": {"X-Acme": token}}]
    messages = [{"role": "user", "content": request.input["text"]}]
    print("the token is", token)
    logging.getLogger("own").warning("the token is %s", token)
    body = {"tools": tools, "authorization_token": token}
    answer = CLIENT.chat.completions.create(model="m", messages=messages, extra_headers=headers, extra_body=body)
    if "raise" in request.input["text"]:
        raise ValueError(f"the token {token} is wrong: {body}")
    return json.loads(answer.choices[0].message.content) | {"token": token}
"""
RECORD, TARGET = "--packbench-mode=record", "--packbench-target=own:ask"
FIRST, SECOND = "qz7Wm1Tk93LfUv2Hd8Rb", "b5Ns0Xe47PgJy6Ca1Koq"
REMARK = "recorded without the headers of requests"


def echo(received: Received) -> Reply:
    """Answer as the text asks; refuse with the token where it says so."""
    if "refuse" in parse_request(received).text:
        token = json.loads(received.body)["authorization_token"]
        return Reply(status=401, body={"error": {"message": f"no such token: {token}"}})
    return points(received)


@pytest.fixture
def served(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose target's own client finds the model."""
    model.handler = echo
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    project.write("own.py", OWN)
    change(project, FIRST)
    return project


def change(project: Project, token: str, **headers: str) -> None:
    project.write("pass.txt", token)
    project.write("headers.json", json.dumps(headers))


def leaks(project: Project, *outputs: pytest.RunResult) -> list[str]:
    files = [path for path in project.root.rglob("*") if path.is_file() and path.name != "pass.txt"]
    texts = {path.name: path.read_text("utf-8", "replace") for path in files}
    texts |= {str(number): each.stdout.str() + each.stderr.str() for number, each in enumerate(outputs)}
    return [name for name, text in texts.items() if FIRST in text or SECOND in text]


def test_a_token_of_a_body_is_in_no_file_and_may_be_another(served: Project) -> None:
    served.prepare("points 1")
    recorded = served.run_toy(TARGET, RECORD)
    recorded.assert_outcomes(passed=1)
    change(served, SECOND)
    replayed = served.run_toy(TARGET)
    replayed.assert_outcomes(passed=1)
    assert leaks(served, recorded, replayed) == []
    served.prepare("points 1", "points 0.1", "points 1 raise", "points 1 refuse")
    live = served.run_toy(TARGET, "--packbench-mode=live", "--junitxml=junit.xml", "-rA")
    live.assert_outcomes(passed=1, failed=1, errors=2)
    again = served.run_toy(TARGET)
    assert leaks(served, live, again) == []


def test_a_changed_header_fails_a_replay_unless_the_suite_ignores_it(served: Project) -> None:
    served.prepare("points 1")
    change(served, FIRST, **{"OpenAI-Beta": "one", "X-Tenant": "a"})
    served.run_toy(TARGET, RECORD).assert_outcomes(passed=1)
    change(served, FIRST, **{"OpenAI-Beta": "one", "X-Tenant": "b"})
    result = served.run_toy(TARGET)
    result.assert_outcomes(errors=1)
    assert "ignore_headers): x-tenant; if the pipeline" in " ".join(result.stdout.str().split())
    suite = next(served.root.rglob("suite.yaml"))
    rules = suite.read_text("utf-8")
    suite.write_text(f"{rules}\nrecording: {{ignore_headers: [X-Tenant]}}\n", "utf-8")
    served.run_toy(TARGET).assert_outcomes(passed=1)
    change(served, FIRST, **{"OpenAI-Beta": "two", "X-Tenant": "b"})
    served.run_toy(TARGET).assert_outcomes(errors=1)


def test_that_older_recordings_know_no_headers_is_said_once(served: Project) -> None:
    served.prepare("points 1", "points 0.9")
    served.run_toy(TARGET, RECORD).assert_outcomes(passed=2)
    assert REMARK not in served.run_toy(TARGET).stdout.str()
    for name, text in recordings(served).items():
        path = next(served.root.rglob(f"fixtures/{name}"))
        data = json.loads(text)
        for exchange in data["gateway"]:
            del exchange["version"], exchange["request_headers"]
        path.write_text(json.dumps(data), "utf-8")
    result = served.run_toy(TARGET)
    result.assert_outcomes(passed=2)
    assert result.stdout.str().count(REMARK) == 1
    # of the new form, without its headers
    data["gateway"][0]["version"] = 2
    path.write_text(json.dumps(data), "utf-8")
    result = served.run_toy(TARGET)
    result.assert_outcomes(passed=1, errors=1)
    assert "/gateway/0" in result.stdout.str()
    assert "a version states request_headers" in " ".join(result.stdout.str().split())
