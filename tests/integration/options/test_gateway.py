"""`--packbench-gateway`: where calls of a target's own client are recorded and replayed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.backends import VARIABLE, originals, replace_variables
from pytest_packbench.cases.finder import needs_gateway
from pytest_packbench.engine.gateway import Serving
from tests.integration.options.conftest import recordings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

NOTE = """
import os

with open("variables.txt", "a") as file:
    print(os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY"), file=file)


def act(request):
    return {"points": 1.0}


act.asks_model = False
"""
OFF, ON, AUTO = (f"--packbench-gateway={value}" for value in ("off", "on", "auto"))
LIVE = "--packbench-mode=live"


@pytest.mark.parametrize(
    ("arguments", "served"),
    [
        ((), False),
        ((AUTO,), False),
        ((OFF,), False),
        ((ON,), True),
        ((LIVE,), True),
        ((LIVE, AUTO), True),
        ((LIVE, OFF), False),
        ((LIVE, ON, "--collect-only"), False),
        (("--packbench-mode=record",), True),
    ],
)
def test_it_serves_where_it_is_needed(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], served: bool
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    project.prepare("one")
    project.extend_conftest(NOTE)
    result = project.run_toy("--packbench-target=conftest:act", *arguments)
    assert result.ret == 0, result.stdout.str()
    address, key = (project.root / "variables.txt").read_text("utf-8").split()
    assert (address != "http://127.0.0.1:1/v1") == served
    placed = served and not any("mode" in argument for argument in arguments)
    assert (key != "None") == placed
    assert os.environ["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert {VARIABLE, "OPENAI_API_KEY"}.isdisjoint(os.environ)


@pytest.mark.parametrize("source", ["ini", "environment"])
def test_ini_and_environment_set_it_too(project: Project, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    project.prepare("one")
    project.extend_conftest(NOTE)
    if source == "ini":
        project.pytester.makeini("[pytest]\npackbench_gateway = on\n")
    else:
        monkeypatch.setenv("PACKBENCH_GATEWAY", "on")
    result = project.run_toy("--packbench-target=conftest:act")
    result.stdout.fnmatch_lines(["packbench: gateway: *replayed, offline*"])


def test_another_value_is_a_usage_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKBENCH_GATEWAY", "perhaps")
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: environment variable PACKBENCH_GATEWAY: got 'perhaps'; expected one of auto,*"]
    )


def test_a_backend_asks_the_address_that_the_user_has_set(
    project: Project, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    project.prepare("points 1")
    options = [option for option in model.options(mode="record") if "base-url" not in option]
    project.run_toy(*options).assert_outcomes(passed=1)
    data = json.loads(recordings(project)["case_00.json"])
    assert (len(data["exchanges"]), "gateway" in data) == (1, False)


def test_a_session_in_a_session_finds_the_real_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    environment = {"OPENAI_BASE_URL": "https://mine/v1", "HOME": "/"}
    start = dict(environment)
    replace_variables(environment, {"OPENAI_BASE_URL": "http://one", "ANTHROPIC_BASE_URL": "http://one/a"})
    replace_variables(environment, {"OPENAI_BASE_URL": "http://two", "ANTHROPIC_BASE_URL": "http://two/a"})
    assert originals(environment) == start
    environment["OPENAI_BASE_URL"] = "http://test"
    assert originals(environment) == {**start, "OPENAI_BASE_URL": "http://test"}
    assert originals({VARIABLE: "no json", "A": "b"}) == {"A": "b"}


def test_recordings_are_looked_at_for_calls_of_own_clients(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"exchanges": [], "note": "gateway"}')
    assert not needs_gateway([tmp_path, tmp_path / "missing"])
    (tmp_path / "recordings.jsonl").write_text('{}\n{"exchanges":[],"gateway":[{"provider":"openai"}]}\n')
    assert needs_gateway([tmp_path])


def test_it_restores_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    serving = Serving("fixture")
    assert serving.open_case(None, "one") is None
    serving.start()
    assert os.environ["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
    serving.stop()
    serving.stop()
    assert "OPENAI_BASE_URL" not in os.environ
