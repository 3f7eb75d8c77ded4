"""The folder of kept answers: one file an answer, for each thing that could change it; nothing broken is kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.cache import AnswerCache
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer, ModelRequest, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUEST = ModelRequest(role="propose", system="be short", messages=({"role": "user", "content": "hello"},))
ANSWER = ModelAnswer(
    content="hi \ud800",
    usage=Usage(tokens_input=3, tokens_output=None),
    tool_calls=(ToolCall(id="1", name="look", arguments={"at": [1, None]}),),
)
HOW = {"base_url": "", "temperature": 0.0, "max_output_tokens": 100}


@dataclass
class CountingBackend:
    """A backend that counts its calls and answers, or breaks, as it is told."""

    name: str = "openai"
    model: str = "small"
    temperature: float | None = 0.0
    answer: ModelAnswer | BackendError = ANSWER
    asked: list[ModelRequest] = field(default_factory=list)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked.append(request)
        await asyncio.sleep(0)
        if isinstance(self.answer, BackendError):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        pass


def cache(folder: Path, **how: Any) -> AnswerCache:
    return AnswerCache(folder, HOW | how, Redactor({"SOME_API_KEY": "planted-0123456789"}))


def complete(
    kept: AnswerCache, backend: CountingBackend, request: ModelRequest = REQUEST, trial: int = 0, again: int = 0
) -> tuple[ModelAnswer, bool]:
    return asyncio.run(kept.complete(backend, request, trial=trial, repetition=again))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_an_answer_is_given_again_by_any_process(tmp_path: Path) -> None:
    backend = CountingBackend()
    assert complete(cache(tmp_path), backend) == (ANSWER, False)
    assert complete(cache(tmp_path), backend) == (ANSWER, True)
    assert len(backend.asked) == 1


OTHERS: dict[str, Callable[[Path], tuple[ModelAnswer, bool]]] = {
    "request": lambda folder: complete(cache(folder), CountingBackend(), replace(REQUEST, system="be long")),
    "role": lambda folder: complete(cache(folder), CountingBackend(), replace(REQUEST, role="critique")),
    "backend": lambda folder: complete(cache(folder), CountingBackend(name="ollama")),
    "model": lambda folder: complete(cache(folder), CountingBackend(model="large")),
    "address": lambda folder: complete(cache(folder, base_url="http://other"), CountingBackend()),
    "temperature": lambda folder: complete(cache(folder, temperature=0.5), CountingBackend()),
    "longest answer": lambda folder: complete(cache(folder, max_output_tokens=7), CountingBackend()),
    "the backend's own temperature": lambda folder: complete(cache(folder), CountingBackend(temperature=None)),
    "trial": lambda folder: complete(cache(folder), CountingBackend(), trial=1),
    "again": lambda folder: complete(cache(folder), CountingBackend(), again=1),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_could_change_an_answer_makes_it_another(tmp_path: Path, other: str) -> None:
    complete(cache(tmp_path), CountingBackend())
    assert OTHERS[other](tmp_path)[1] is False
    assert len(files(tmp_path)) == 2


def test_errors_are_never_kept_and_refusals_are(tmp_path: Path) -> None:
    kept, backend = cache(tmp_path), CountingBackend(answer=BackendError("rate_limit", "too much"))
    with pytest.raises(BackendError):
        complete(kept, backend)
    assert files(tmp_path) == []
    backend.answer = ModelAnswer(content="", refusal="I can't")
    complete(kept, backend)
    assert complete(kept, backend) == (backend.answer, True)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"cache_version": 1}', b"[" * 100_000])
def test_a_file_that_holds_no_answer_is_written_anew(tmp_path: Path, content: bytes) -> None:
    backend = CountingBackend()
    complete(cache(tmp_path), backend)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(content)
    assert complete(cache(tmp_path), backend) == (ANSWER, False)
    assert path.read_bytes() == whole


def test_a_changed_answer_is_no_answer(tmp_path: Path) -> None:
    backend = CountingBackend()
    complete(cache(tmp_path), backend)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"look", b"kill"))
    assert complete(cache(tmp_path), backend) == (ANSWER, False)


def test_equal_calls_at_the_same_time_ask_once(tmp_path: Path) -> None:
    kept, backend = cache(tmp_path), CountingBackend()

    async def all_at_once() -> list[tuple[ModelAnswer, bool]]:
        return list(await asyncio.gather(*(kept.complete(backend, REQUEST, trial=0, repetition=0) for _ in range(20))))

    found = asyncio.run(all_at_once())
    assert [cached for _, cached in found] == [False] + [True] * 19
    assert len(backend.asked) == 1


def test_one_that_waited_for_a_call_that_broke_asks_itself(tmp_path: Path) -> None:
    kept, backend = cache(tmp_path), CountingBackend(answer=BackendError("timeout", "late"))

    async def all_at_once() -> list[Any]:
        calls = (kept.complete(backend, REQUEST, trial=0, repetition=0) for _ in range(3))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    assert all(isinstance(one, BackendError) for one in asyncio.run(all_at_once()))
    assert len(backend.asked) == 3


def test_secrets_are_hidden_before_an_answer_is_written(tmp_path: Path) -> None:
    complete(cache(tmp_path), CountingBackend(answer=ModelAnswer(content={"key": "planted-0123456789"})))
    (path,) = files(tmp_path)
    assert b"planted" not in path.read_bytes()
    assert b"[redacted]" in path.read_bytes()


def test_a_folder_that_can_not_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert complete(cache(tmp_path / "file" / "below"), CountingBackend()) == (ANSWER, False)
