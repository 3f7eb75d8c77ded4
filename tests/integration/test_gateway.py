"""A pipeline with a model client of its own, unchanged: recorded through the gateway, and replayed without a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.options.conftest import recordings, replayable

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

OPENAI = """
import json

import openai

CLIENT = openai.OpenAI()


def ask(request):
    answer = CLIENT.chat.completions.create(
        model="fake-1", messages=[{"role": "user", "content": request.input["text"]}]
    )
    return json.loads(answer.choices[0].message.content)
"""
TARGET = "--packbench-target=own:ask"
RECORD = "--packbench-mode=record"


@pytest.fixture
def served(model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The model where the clients' own variables point to."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
    return model


def cassette(project: Project, case: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recordings(project)[f"{case}.json"])
    return data


def test_an_unchanged_pipeline_is_recorded_and_replayed(both: Project, served: Model) -> None:
    both.prepare("points 0.9", "points 0.5", "points 1", "bad")
    both.write("own.py", OPENAI)
    recorded = both.run_toy(TARGET, RECORD)
    recorded.assert_outcomes(passed=2, failed=1, errors=1)
    assert sorted(recordings(both)) == ["case_00.json", "case_01.json", "case_02.json"]
    assert len(served.requests) == 4
    served.close_connections()
    replayed = both.run_toy(TARGET)
    replayed.assert_outcomes(passed=2, failed=1, errors=1)
    assert len(served.requests) == 4
    first, second = map(replayable, both.folders())
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
