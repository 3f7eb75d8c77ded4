"""Answers the tariff suite's model calls in any provider's words, from the suite's authored cassettes.

The reference target is run once over every cassette; what it asks on the way is the key under which the answer is found
again. A request that it never made is a failure of the test.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelAnswer, VerifyContext, VerifyRequest
from pytest_packbench.packs.tariff.target import verify
from tests.servers.wire import ProviderRequest, answer_with, reply

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.request import ModelRequest
    from tests.servers.fake import Handler, Reply

_CHARACTERS_A_TOKEN = 4

Answers = dict[tuple[str, str], dict[str, Any]]


class _Listening:
    """Replays a cassette and records the request of each exchange."""

    def __init__(self, exchanges: list[dict[str, Any]], answers: Answers) -> None:
        self._exchanges = iter(exchanges)
        self._answers = answers

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        exchange = next(self._exchanges)
        assert exchange["role"] == request.role
        known = self._answers.setdefault(_key(request.system, list(request.messages)), exchange)
        assert known.get("answer") == exchange.get("answer"), "two cases ask the same and are answered differently"
        return ModelAnswer(content=exchange.get("answer"), refusal=exchange.get("refusal"))


def _key(system: str, messages: list[dict[str, Any]]) -> tuple[str, str]:
    return system, "\n".join(message["content"] for message in messages)


def authored_answers(suite: Path) -> Answers:
    """Return the recorded exchanges of a tariff suite by instructions and prompt."""
    answers: Answers = {}
    read = []
    for path in sorted(suite.glob("cases/*/*.json")):
        case = json.loads(path.read_bytes())
        llm = _Listening(json.loads((suite / "fixtures" / path.name).read_bytes())["exchanges"], answers)
        context = VerifyContext(llm=llm, suite=suite.name, case_id=case["id"], mode="fixture")
        read.append((VerifyRequest.model_validate(case["input"]), context))

    async def collect() -> None:
        for request, context in read:
            await verify(request, context)

    asyncio.run(collect())
    return answers


def tariff_handler(suite: Path) -> Handler:
    """Return a handler that answers the calls of a tariff suite; a token is counted for every four characters."""
    answers = authored_answers(suite)

    def answer(question: ProviderRequest) -> Reply:
        exchange = answers[_key(question.system, question.messages)]
        asked = len(question.system) + len(question.text)
        given = json.dumps(exchange.get("answer"))
        usage = (asked // _CHARACTERS_A_TOKEN, len(given) // _CHARACTERS_A_TOKEN)
        return reply(question, exchange.get("answer"), usage=usage, refusal=exchange.get("refusal"))

    return answer_with(answer)
