"""The response cache: one file per answer, for each thing that could change it; nothing broken is stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.cache import AnswerCache
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage
from tests.unit.attempts import FakeBackend, model_request

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"base_url": "", "temperature": 0.0, "max_output_tokens": 100}
ANSWER = ModelAnswer(
    content="hi \ud800",
    usage=Usage(tokens_input=3, tokens_output=None),
    tool_calls=(ToolCall(id="1", name="look", arguments={"at": [1, None]}),),
)
# what could change the answer: the backend, or the call
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "system": ({}, {"request": replace(model_request(), system="be long")}),
    "role": ({}, {"request": model_request("critique")}),
    "backend": ({"name": "ollama"}, {}),
    "model": ({"model": "large"}, {}),
    "temperature of the backend": ({"temperature": None}, {}),
    "address": ({}, {"settings": {"base_url": "http://other"}}),
    "temperature": ({}, {"settings": {"temperature": 0.5}}),
    "tokens": ({}, {"settings": {"max_output_tokens": 7}}),
    "trial": ({}, {"trial": 1}),
    "repetition": ({}, {"repetition": 1}),
}


def backend_with(answer: ModelAnswer | BackendError = ANSWER, **fields: Any) -> FakeBackend:
    def give(_: object) -> ModelAnswer:
        if isinstance(answer, BackendError):
            raise answer
        return answer

    return FakeBackend(answer=give, rounds=1, **fields)


def complete(
    folder: Path, backend: FakeBackend, *, calls: int = 1, settings: dict[str, Any] | None = None, **changes: Any
) -> list[Any]:
    """Make calls at once, as another process would: with a cache of its own."""
    cache = AnswerCache(folder, SETTINGS | (settings or {}), Redactor({"SOME_API_KEY": "planted-0123456789"}))
    fields: dict[str, Any] = {"request": model_request(), "trial": 0, "repetition": 0} | changes

    async def gather() -> list[Any]:
        return await asyncio.gather(*(cache.complete(backend, **fields) for _ in range(calls)), return_exceptions=True)

    return asyncio.run(gather())


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("fields", "changes"), CHANGES.values(), ids=CHANGES)
def test_an_answer_serves_any_process_until_something_changes(
    tmp_path: Path, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    backend = backend_with()
    assert [*complete(tmp_path, backend), *complete(tmp_path, backend)] == [(ANSWER, False), (ANSWER, True)]
    assert backend.calls == 1
    assert complete(tmp_path, backend_with(**fields), **changes) == [(ANSWER, False)]
    assert len(files_of(tmp_path)) == 2


def test_refusals_are_stored_with_secrets_redacted_and_errors_are_not(tmp_path: Path) -> None:
    error = BackendError("rate_limit", "too much")
    assert complete(tmp_path, backend_with(error)) == [error]
    assert files_of(tmp_path) == []
    refusal = backend_with(ModelAnswer(content="planted-0123456789", refusal="I can't"))
    complete(tmp_path, refusal)
    assert complete(tmp_path, refusal) == [(ModelAnswer(content="[redacted]", refusal="I can't"), True)]
    (path,) = files_of(tmp_path)
    assert b"planted" not in path.read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b'{"cache_version": 1}', b"[" * 100_000, None], ids=repr
)
def test_a_damaged_file_is_written_again(tmp_path: Path, content: bytes | None) -> None:
    complete(tmp_path, backend_with())
    (path,) = files_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"look", b"kill") if content is None else content)
    assert complete(tmp_path, backend_with()) == [(ANSWER, False)]
    assert path.read_bytes() == whole


def test_equal_calls_at_the_same_time_are_one_unless_it_fails(tmp_path: Path) -> None:
    error, backend = BackendError("timeout", "late"), backend_with()
    failing = backend_with(error)
    assert (complete(tmp_path, failing, calls=3), failing.calls) == ([error] * 3, 3)
    assert complete(tmp_path, backend, calls=20) == [(ANSWER, False)] + [(ANSWER, True)] * 19
    assert backend.calls == 1


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert complete(tmp_path / "file" / "below", backend_with()) == [(ANSWER, False)]
