"""What stands between a target and a backend: keeps each exchange, books its tokens, hides secrets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.base import BackendError, ModelAnswer, Usage
from pytest_packbench.cases.load import canonical_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.backends.base import Backend, ModelRequest
    from pytest_packbench.engine.ledger import Ledger, Price
    from pytest_packbench.engine.secrets import Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is asked, and at what price.

    Attributes:
        backend: answers.
        price: what its model costs; None where that is unknown.
    """

    backend: Backend
    price: Price | None = None


@dataclass(slots=True)
class Said:
    """One exchange as it happened.

    Attributes:
        role: the step that asked.
        request_sha256: hash of the request.
        answer: what came; None while it is under way or where it broke.
        error: how it broke.
        aside: whether the pack asked it, not the model under test.
    """

    role: str
    request_sha256: str
    answer: ModelAnswer | None = None
    error: BackendError | None = None
    aside: bool = False


class Meter:
    """Answers one attempt's model calls: the model under test, and those that the pack asks beside it, by role.

    Attributes:
        said: the exchanges in the order in which they were asked.
    """

    def __init__(self, asked: Asked | None, aside: Mapping[str, Asked], *, ledger: Ledger, secrets: Secrets) -> None:
        self.said: list[Said] = []
        self._asked = asked
        self._aside = aside
        self._ledger = ledger
        self._secrets = secrets
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._waiting: set[Any] = set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over: a target that was abandoned spends nothing more.
        """
        self._refuse_late()
        said = Said(request.role, canonical_sha256(request.as_json()), aside=request.role in self._aside)
        self.said.append(said)
        asked = self._aside.get(request.role, self._asked)
        if asked is None:
            said.error = BackendError("no_backend", f"nobody is named to answer the role {request.role}")
            raise said.error
        try:
            answer = await asked.backend.complete(request)
        except BackendError as error:
            said.error = hidden = BackendError(error.kind, self._secrets.hide(str(error)))
            self._ledger.add(getattr(error, "usage", None), asked.price)
            raise hidden from None
        self._ledger.add(answer.usage, asked.price)
        said.answer = self._secrets.hide_in_answer(answer)
        return said.answer

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of a target that runs on a thread.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over, or an async target asks this way, which would hold up all others.
        """
        self._refuse_late()
        if _running() is self._loop:
            raise RuntimeError("an async target asks with `await context.llm.complete(...)`")
        future = asyncio.run_coroutine_threadsafe(self.complete(request), self._loop)
        self._waiting.add(future)
        try:
            return future.result()
        finally:
            self._waiting.discard(future)

    def broken(self) -> BackendError | None:
        """Give the first call that broke and that the target didn't make again with success.

        A target may swallow what its model call raises, and go on with less.
        """
        answered = {one.request_sha256 for one in self.said if one.answer is not None}
        return next((one.error for one in self.said if one.error and one.request_sha256 not in answered), None)

    def close(self) -> None:
        """End the attempt: no call is made any more, and those under way are cancelled."""
        self._closed = True
        for future in tuple(self._waiting):
            future.cancel()

    @property
    def usage(self) -> Usage:
        """Tokens of the model under test, all answered calls; None for a count that one of them doesn't have."""
        return Usage(tokens_input=self._sum("tokens_input"), tokens_output=self._sum("tokens_output"))

    def _sum(self, name: str) -> int | None:
        counts = [getattr(one.answer.usage, name) for one in self.said if one.answer is not None and not one.aside]
        return None if not counts or any(count is None for count in counts) else sum(counts)

    def _refuse_late(self) -> None:
        if self._closed:
            raise RuntimeError("the case is over: its time limit passed, or the run was stopped")


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
