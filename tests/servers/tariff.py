"""Answers the tariff suite's model calls in any provider's format, from the suite's authored cassettes.

The reference target is run once on every cassette; its requests are the keys of the answers. A request that it never made is
a failure of the test.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelAnswer, VerifyContext
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.target import verify
from tests.servers.wire import ProviderRequest, answer_with, reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_packbench.model.request import ModelRequest
    from tests.servers.fake import Handler, Reply

Exchange = dict[str, Any]


@dataclass
class _Recorder:
    """Replays a cassette and stores each exchange by the request's instructions and prompt."""

    exchanges: Iterator[Exchange]
    answers: dict[tuple[str, str], Exchange]

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        exchange = next(self.exchanges)
        assert exchange["role"] == request.role
        stored = self.answers.setdefault(_key(request.system, list(request.messages)), exchange)
        assert stored.get("answer") == exchange.get("answer"), "two cases have one request and different answers"
        return ModelAnswer(content=exchange.get("answer"), refusal=exchange.get("refusal"))


def _key(system: str, messages: list[dict[str, Any]]) -> tuple[str, str]:
    return system, "\n".join(message["content"] for message in messages)


def tariff_handler(suite: Path) -> Handler:
    """Return a handler that answers the calls of a tariff suite; a token is counted for every four characters."""
    answers: dict[tuple[str, str], Exchange] = {}
    pack = TariffPack()
    for path in sorted(suite.glob("cases/*/*.json")):
        case = json.loads(path.read_bytes())
        llm = _Recorder(iter(json.loads((suite / "fixtures" / path.name).read_bytes())["exchanges"]), answers)
        context = VerifyContext(llm=llm, suite=suite.name, case_id=case["id"], mode="fixture")
        asyncio.run(verify(pack.request(TariffCase.model_validate(case)), context))

    def answer(request: ProviderRequest) -> Reply:
        exchange = answers[_key(request.system, request.messages)]
        lengths = len(request.system) + len(request.text), len(json.dumps(exchange.get("answer")))
        usage = lengths[0] // 4, lengths[1] // 4
        return reply(request, exchange.get("answer"), usage=usage, refusal=exchange.get("refusal"))

    return answer_with(answer)
