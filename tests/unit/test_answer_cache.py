"""The response cache: one file per answer, for each thing that could change it; nothing broken is stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.cache import AnswerCache
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer, ModelRequest, ToolCall, Usage

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = ModelRequest(role="propose", system="be short", messages=({"role": "user", "content": "hello"},))
ANSWER = ModelAnswer(
    content="hi \ud800",
    usage=Usage(tokens_input=3, tokens_output=None),
    tool_calls=(ToolCall(id="1", name="look", arguments={"at": [1, None]}),),
)
SETTINGS = {"base_url": "", "temperature": 0.0, "max_output_tokens": 100}


@dataclass
class CountingBackend:
    """A backend that counts its calls, and answers or fails."""

    name: str = "openai"
    model: str = "small"
    temperature: float | None = 0.0
    answer: ModelAnswer | BackendError = ANSWER
    calls: int = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, BackendError):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        pass


@dataclass
class Calls:
    """Calls of a backend through caches in one folder."""

    folder: Path

    def cache(self, **settings: Any) -> AnswerCache:
        return AnswerCache(self.folder, SETTINGS | settings, Redactor({"SOME_API_KEY": "planted-0123456789"}))

    def complete(
        self, backend: CountingBackend | None = None, request: ModelRequest = REQUEST, trial: int = 0, again: int = 0,
        **settings: Any,
    ) -> tuple[ModelAnswer, bool]:  # fmt: skip
        """Make a call as another process would, with a cache of its own."""
        cache = self.cache(**settings)
        return asyncio.run(cache.complete(backend or CountingBackend(), request, trial=trial, repetition=again))

    def at_once(self, backend: CountingBackend, number: int) -> list[Any]:
        cache = self.cache()

        async def gather() -> list[Any]:
            calls = (cache.complete(backend, REQUEST, trial=0, repetition=0) for _ in range(number))
            return list(await asyncio.gather(*calls, return_exceptions=True))

        return asyncio.run(gather())

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


# what could change the answer
CHANGES: dict[str, dict[str, Any]] = {
    "system": {"request": replace(REQUEST, system="be long")},
    "role": {"request": replace(REQUEST, role="critique")},
    "backend": {"backend": CountingBackend(name="ollama")},
    "model": {"backend": CountingBackend(model="large")},
    "temperature of the backend": {"backend": CountingBackend(temperature=None)},
    "address": {"base_url": "http://other"},
    "temperature": {"temperature": 0.5},
    "tokens": {"max_output_tokens": 7},
    "trial": {"trial": 1},
    "repetition": {"again": 1},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_answer_serves_any_process_until_something_changes(calls: Calls, change: dict[str, Any]) -> None:
    assert calls.complete() == (ANSWER, False)
    backend = CountingBackend()
    assert (calls.complete(backend), backend.calls) == ((ANSWER, True), 0)
    assert calls.complete(**change) == (ANSWER, False)
    assert len(calls.files) == 2


def test_refusals_are_stored_and_errors_are_not(calls: Calls) -> None:
    backend = CountingBackend(answer=BackendError("rate_limit", "too much"))
    with pytest.raises(BackendError):
        calls.complete(backend)
    assert calls.files == []
    backend.answer = ModelAnswer(content="", refusal="I can't")
    calls.complete(backend)
    assert calls.complete(backend) == (backend.answer, True)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b'{"cache_version": 1}', b"[" * 100_000, None], ids=repr
)
def test_a_damaged_file_is_written_again(calls: Calls, content: bytes | None) -> None:
    calls.complete()
    (path,) = calls.files
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"look", b"kill") if content is None else content)
    assert calls.complete() == (ANSWER, False)
    assert path.read_bytes() == whole


def test_equal_calls_at_the_same_time_are_one_unless_it_fails(calls: Calls) -> None:
    backend = CountingBackend(answer=BackendError("timeout", "late"))
    assert all(isinstance(result, BackendError) for result in calls.at_once(backend, 3))
    assert backend.calls == 3
    backend = CountingBackend()
    assert calls.at_once(backend, 20) == [(ANSWER, False)] + [(ANSWER, True)] * 19
    assert backend.calls == 1


def test_an_answer_with_a_secret_is_not_written(calls: Calls) -> None:
    for content in ({"key": "planted-0123456789"}, "AKIA" + "Q7" * 8):
        answer = ModelAnswer(content=content)
        assert calls.complete(CountingBackend(answer=answer)) == (answer, False)
    assert calls.files == []


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert Calls(tmp_path / "file" / "below").complete() == (ANSWER, False)
