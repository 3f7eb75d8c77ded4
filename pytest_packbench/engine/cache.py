"""Answers of models kept in a folder: a call that was made before, in any run, is answered from there.

An answer is found by all that it was asked for: the request, who is asked where, how, and which trial asks. Trials, and
calls that an attempt makes again word for word, are calls of their own: else all of them would agree.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pytest_packbench.atomic import write_atomic
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.backends import Backend
    from pytest_packbench.engine.secrets import Secrets
    from pytest_packbench.model.request import ModelRequest

CACHE_VERSION = 1
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)


class AnswerCache:
    """A folder of answers; several tasks and several processes may use it at once.

    Errors are never kept, refusals are. A file that can't be read as an answer is no answer, and is written anew. Two
    equal requests at the same time in one process ask once: the second waits for the first.

    Args:
        folder: where they are kept; made where it is missing.
        how: what answers depend on beside backend, model and request: address, temperature, longest answer.
        secrets: what is hidden before an answer is written.
    """

    def __init__(self, folder: Path, how: Mapping[str, Any], secrets: Secrets) -> None:
        self._folder = folder
        self._how = dict(how)
        self._secrets = secrets
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def check(self) -> None:
        """Make the folder, and see whether answers can be kept in it: later one that can't costs no answer.

        Raises:
            OSError: nothing can be written there.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self._folder):
            pass

    async def complete(
        self, backend: Backend, request: ModelRequest, *, trial: int, again: int
    ) -> tuple[ModelAnswer, bool]:
        """Answer from the folder, or ask and keep the answer.

        Args:
            backend: who is asked.
            request: for what.
            trial: which of several attempts at the case asks, from 0.
            again: how often the attempt made this very call before.

        Returns:
            The answer, without secrets where it is from the folder, and whether it is.

        Raises:
            BackendError: the call broke.
        """
        key = self._key(backend, request, trial, again)
        lock = self._busy.setdefault(key, asyncio.Lock())
        async with lock:
            found = self._read(key)
            if found is not None:
                return found, True
            answer = await backend.complete(request)
            self._write(key, self._secrets.hide_in_answer(answer))
            return answer, False

    def _key(self, backend: Backend, request: ModelRequest, trial: int, again: int) -> str:
        return canonical_sha256(
            {
                "version": CACHE_VERSION,
                "backend": backend.name,
                "model": backend.model,
                "temperature": backend.temperature,
                "how": self._how,
                "trial": trial,
                "again": again,
                "request": request.as_json(),
            }
        )

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"

    def _read(self, key: str) -> ModelAnswer | None:
        try:
            data = json.loads(self._path(key).read_bytes())
            whole = data["cache_version"] == CACHE_VERSION and data["sha256"] == canonical_sha256(data["answer"])
            return _answer(data["answer"]) if whole else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def _write(self, key: str, answer: ModelAnswer) -> None:
        path = self._path(key)
        data = _plain(answer)
        # an answer that can't be kept is an answer all the same
        with suppress(OSError, ValueError, TypeError):
            text = _ENCODER.encode({"cache_version": CACHE_VERSION, "sha256": canonical_sha256(data), "answer": data})
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text + "\n")


def _plain(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "content": answer.content,
        "refusal": answer.refusal,
        "tokens_input": answer.usage.tokens_input,
        "tokens_output": answer.usage.tokens_output,
        "tool_calls": [call.as_json() for call in answer.tool_calls],
    }


def _answer(data: dict[str, Any]) -> ModelAnswer:
    return ModelAnswer(
        content=data["content"],
        refusal=data["refusal"],
        usage=Usage(tokens_input=data["tokens_input"], tokens_output=data["tokens_output"]),
        tool_calls=tuple(ToolCall(**call) for call in data["tool_calls"]),
    )
