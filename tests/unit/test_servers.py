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

from pytest_packbench.model.request import ModelAnswer, VerifyContext, VerifyRequest
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


class _CassetteHandler:
    """Plays a cassette."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self.exchanges = iter(exchanges)

    async def complete(self, _request: Any) -> Any:
        exchange = next(self.exchanges)
        return ModelAnswer(content=exchange.get("answer"), refusal=exchange.get("refusal"))

    def complete_sync(self, _request: Any) -> Any:
        raise AssertionError


async def verify_over_http(cases: list[Any], llms: Iterable[Any]) -> list[Any]:
    found = []
    for case, llm in zip(cases, llms, strict=False):
        context = VerifyContext(llm=llm, suite="tariff", case_id=case["id"], mode="live")
        found.append(await verify(VerifyRequest.model_validate(case["input"]), context))
    return found


def test_the_tariff_suite_answers_as_its_cassettes_do() -> None:
    paths = sorted(SUITE.glob("cases/*/*.json"))[::9]
    cases = [json.loads(path.read_bytes()) for path in paths]
    fixtures = [json.loads((SUITE / "fixtures" / path.name).read_bytes())["exchanges"] for path in paths]
    expected = asyncio.run(verify_over_http(cases, map(_CassetteHandler, fixtures)))
    with FakeServer(tariff_handler(SUITE)) as server:
        for provider in PROVIDERS:
            assert (
                use_backend(provider, server.url, lambda backend: verify_over_http(cases, repeat(backend))) == expected
            )
    assert len(server.requests) == 3 * sum(map(len, fixtures))


def test_it_runs_as_a_process() -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "--latency", "0.01", "--json", '{"code": "7"}'],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        answer = use_backend(
            "ollama", url, lambda backend: backend.complete(request(output_schema={"type": "object"})), timeout_s=10
        )
        assert answer.content == {"code": "7"}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_a_handler_that_fails_fails_the_test() -> None:
    def handler(_received: Received) -> Reply:
        raise LookupError("no such case")

    with pytest.raises(LookupError, match="no such case"):
        failed_call("ollama", handler)
