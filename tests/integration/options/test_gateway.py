"""`--packbench-gateway`: where calls of a target's own client are recorded and replayed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.backends import VARIABLE, originals, replace_variables
from pytest_packbench.cases.finder import needs_gateway
from pytest_packbench.engine.gateway import Serving
from tests.integration.conftest import ended
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
TARGET = "--packbench-target=conftest:act"
OWN = "http://127.0.0.1:1/v1"
# the options of a run, and whether the gateway serves it
SERVED = {
    "": False,
    "--packbench-gateway=auto": False,
    "--packbench-gateway=off": False,
    "--packbench-gateway=on": True,
    "--packbench-mode=live": True,
    "--packbench-mode=live --packbench-gateway=auto": True,
    "--packbench-mode=live --packbench-gateway=off": False,
    "--packbench-mode=live --packbench-gateway=on --collect-only": False,
    "--packbench-mode=record": True,
}


@pytest.mark.parametrize("arguments", SERVED)
def test_it_serves_where_it_is_needed(project: Project, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", OWN)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    project.prepare("one")
    project.extend_conftest(NOTE)
    ended(project.run_toy(TARGET, *arguments.split()), 0)
    address, key = (project.root / "variables.txt").read_text("utf-8").split()
    assert (address != OWN) == SERVED[arguments]
    assert (key != "None") == (SERVED[arguments] and "mode" not in arguments)
    assert os.environ["OPENAI_BASE_URL"] == OWN
    assert {VARIABLE, "OPENAI_API_KEY"}.isdisjoint(os.environ)


def test_ini_and_environment_set_it_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.prepare("one")
    project.extend_conftest(NOTE)
    replayed = "packbench: gateway: *replayed, offline*"
    ended(project.run_toy(TARGET, "-o", "packbench_gateway=on"), 0, replayed)
    monkeypatch.setenv("PACKBENCH_GATEWAY", "on")
    ended(project.run_toy(TARGET), 0, replayed)


def test_a_backend_asks_the_address_that_the_user_has_set(
    project: Project, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    project.prepare("points 1")
    options = [option for option in model.options(mode="record") if "base-url" not in option]
    ended(project.run_toy(*options), 0, passed=1)
    data = json.loads(recordings(project)["case_00.json"])
    assert (len(data["exchanges"]), "gateway" in data) == (1, False)


def test_a_session_in_a_session_finds_the_real_addresses() -> None:
    start = {"OPENAI_BASE_URL": "https://mine/v1", "HOME": "/"}
    environment = dict(start)
    for name in ("one", "two"):
        addresses = {"OPENAI_BASE_URL": f"http://{name}", "ANTHROPIC_BASE_URL": f"http://{name}/a"}
        replace_variables(environment, addresses)
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
