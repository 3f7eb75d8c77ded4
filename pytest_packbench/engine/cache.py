"""A folder of model answers: a call that was answered before, in any run, is answered from the folder.

The key is everything that an answer depends on: the request, backend, model, address and parameters, and the number of
the trial. Trials, and repeated identical calls of one attempt, have keys of their own: they would always agree
otherwise.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pytest_packbench.files import LIMITS, read_regular, write_atomic
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.request import ModelAnswer
from pytest_packbench.model.result import adapter
from pytest_packbench.model.strict_json import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.backends import Backend
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.request import ModelRequest

CACHE_VERSION = 1
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)


@dataclass(eq=False)
class AnswerCache:
    """A folder of answers; several tasks and several processes may use it at once.

    Errors are not cached, nor answers that contain a secret; refusals are. A file that can't be read counts as missing
    and is replaced. Of equal requests that one process makes at the same time, the first is sent and the others wait
    for its answer.

    Attributes:
        folder: where answers are stored; created where it is missing.
        parameters: what answers depend on beside backend, model and request: address, temperature, token limit.
        redactor: finds secrets in answers, which are not written then.
    """

    folder: Path
    parameters: Mapping[str, Any]
    redactor: Redactor
    _locks: WeakValueDictionary[Path, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def check(self) -> None:
        """Create the folder and check that it is writable; later write errors are ignored.

        Raises:
            OSError: it can't be written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self.folder):
            pass

    async def complete(
        self, backend: Backend, request: ModelRequest, *, trial: int, repetition: int
    ) -> tuple[ModelAnswer, bool]:
        """Answer from the folder, else ask the backend and store the answer.

        Args:
            backend: answers what the folder does not contain.
            request: the request.
            trial: the number of the attempt at the case, from 0.
            repetition: how often the attempt made this very call before.

        Returns:
            The answer, and whether it is from the folder.

        Raises:
            BackendError: the call failed.
        """
        key = {
            "backend": backend.name,
            "model": backend.model,
            "temperature": backend.temperature,
            "how": self.parameters,
            "trial": trial,
            "again": repetition,
            "request": request.as_json(),
        }
        lock = self._locks.setdefault(self._path(key), asyncio.Lock())
        async with lock:
            stored = self.load(key)
            with suppress(TypeError, ValueError):
                # the tokens are beside the rest
                return adapter(ModelAnswer).validate_python({**stored, "usage": stored}), True
            answer = await backend.complete(request)
            data = asdict(answer)
            usage = data.pop("usage")
            self.store(key, data | usage)
            return answer, False

    def load(self, key: Mapping[str, Any]) -> Any:
        """Return what is stored under a key; None where there is nothing, or it can't be read."""
        try:
            data = json.loads(read_regular(self._path(key), LIMITS["cached answer"]), **NUMBERS)
            intact = data["cache_version"] == CACHE_VERSION and data["sha256"] == canonical_sha256(data["answer"])
            return data["answer"] if intact else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def store(self, key: Mapping[str, Any], answer: dict[str, Any]) -> None:
        """Store an answer, plain JSON, under a key that states everything on which it depends."""
        path = self._path(key)
        # an answer that can't be stored is an answer all the same
        with suppress(OSError, ValueError, TypeError, RecursionError):
            sha256 = canonical_sha256(answer)
            text = _ENCODER.encode({"cache_version": CACHE_VERSION, "sha256": sha256, "answer": answer})
            # an answer without the secret would be another one
            if self.redactor.suspects(text) and self.redactor.find(answer):
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text + "\n")

    def _path(self, key: Mapping[str, Any]) -> Path:
        name = canonical_sha256({"version": CACHE_VERSION, **key})
        return self.folder / name[:2] / f"{name}.json"
