"""The local servers that other tests and the benchmarks rely on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import load_cassette
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.model.request import VerifyContext, VerifyRequest
from pytest_packbench.packs.tariff.target import verify
from tests.conftest import SUITE
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.tariff import tariff_handler
from tests.unit.backend_calls import PROVIDERS, clear_environment, failed_call, request, use_backend

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


async def results(cases: list[Any], models: Iterable[Any]) -> list[Any]:
    contexts = [VerifyContext(llm=llm, suite="tariff", case_id="", mode="live") for _, llm in zip(cases, models)]  # noqa: B905 - one model may answer all
    requests = [VerifyRequest.model_validate(case["input"]) for case in cases]
    return [await verify(request, context) for request, context in zip(requests, contexts, strict=True)]


def test_the_tariff_server_answers_in_each_providers_format_as_the_cassettes_do() -> None:
    paths = sorted(SUITE.glob("cases/*/*.json"))[::9]
    cases = [json.loads(path.read_bytes()) for path in paths]
    cassettes = [load_cassette(SUITE / "fixtures" / path.name, source=path.name)[0] for path in paths]
    recorded = asyncio.run(results(cases, [Replay(cassette, source="") for cassette in cassettes]))
    with FakeServer(tariff_handler(SUITE)) as server:
        for provider in PROVIDERS:
            live = use_backend(provider, server.url, lambda backend: results(cases, repeat(backend)))
            assert live == recorded
    assert len(server.requests) == 3 * sum(len(cassette.exchanges) for cassette in cassettes)


def test_a_server_runs_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "tests.servers", "--latency", "0.01", "--json", '{"code": "7"}']
    with subprocess.Popen(command, stdout=-1, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        json_request = request(output_schema={"type": "object"})
        answer = use_backend("ollama", url, lambda backend: backend.complete(json_request), timeout_s=10)
        process.terminate()
    assert answer.content == {"code": "7"}


def test_an_exception_of_the_handler_fails_the_test() -> None:
    def handler(_received: Received) -> Reply:
        raise LookupError("no such case")

    with pytest.raises(LookupError, match="no such case"):
        failed_call("ollama", handler)
