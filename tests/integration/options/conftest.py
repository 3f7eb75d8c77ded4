"""A model on loopback that a real client library calls, for runs of the suite `toy`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anthropic.resources.messages
import anyio._backends._asyncio
import genai_prices.data
import httpcore
import httpcore2
import httpx
import httpx2
import openai
import openai.resources.chat.completions

from tests.integration.conftest import Project, json_lines, without_times
from tests.servers.fake import FakeServer, Handler, Received, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# pytester forgets what a run imported: clients are imported once, which takes seconds; or their exceptions would be two
# classes
_WARM = (anthropic, genai_prices, openai, httpx, httpx2, httpcore, httpcore2, anyio)
SECRET = "sk-planted-0123456789abcdef"  # noqa: S105 - planted to be looked for
LIVE = "--packbench-mode=live"


def points(received: Received) -> Reply:
    """Answer with the points that the text asks for; a text with `bad` is a bad request."""
    text = parse_request(received).text
    if "bad" in text:
        return Reply(status=400, body={"error": {"message": "no such parameter"}})
    number = re.search(r"points ([0-9.]+)", text)
    return openai_reply(json.dumps({"points": float(number[1]) if number else 1.0}))


class Model(FakeServer):
    """A model that answers as `handler` says, after `latency_s`."""

    def __init__(self) -> None:
        self.handler: Handler = points
        self.latency_s = 0.0
        super().__init__(self._reply)

    def _reply(self, received: Received) -> Reply:
        reply = self.handler(received)
        return replace(reply, delay_s=reply.delay_s or self.latency_s)

    def options(self, *more: str, mode: str = "live", target: str = "pipeline:ask") -> tuple[str, ...]:
        """Return the options of a run on this model."""
        return (
            f"--packbench-mode={mode}",
            f"--packbench-target={target}",
            "--packbench-backend=openai",
            "--packbench-model=fake-1",
            f"--packbench-base-url={self.url}/v1",
            *more,
        )

    def run(self, project: Project, *more: str, mode: str = "live", target: str = "pipeline:ask") -> pytest.RunResult:
        """Run the suite `toy` on this model."""
        return project.run_toy(*self.options(*more, mode=mode, target=target))


def own_client(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a target's own client find the model."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")


def replayable(folder: Path) -> Any:
    """Return the records of a run, without what a replay changes."""
    return without_times(json_lines(folder / "records.jsonl"), also=("mode",))


def recordings(project: Project) -> dict[str, bytes]:
    """Return the recordings of the suite, by file name."""
    return {path.name: path.read_bytes() for path in project.root.glob("storage/benchmarks/toy/fixtures/*.json")}
