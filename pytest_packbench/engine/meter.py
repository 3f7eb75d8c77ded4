"""What stands between a target and a backend: keeps each exchange, books its tokens, hides secrets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.base import BackendError, ModelAnswer, Usage
from pytest_packbench.cases.load import canonical_sha256
from pytest_packbench.engine.said import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from pytest_packbench.backends.base import Backend, ModelRequest
    from pytest_packbench.engine.cache import AnswerCache
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


@dataclass(slots=True, eq=False)
class Said:
    """One exchange as it happened.

    Attributes:
        role: the step that asked.
        request_sha256: hash of the request.
        answer: what came; None while it is under way or where it broke.
        error: how it broke.
        aside: whether the pack asked it, not the model under test.
        cached: whether a folder of kept answers answered.
    """

    role: str
    request_sha256: str
    answer: ModelAnswer | None = None
    error: BackendError | None = None
    aside: bool = False
    cached: bool = False


class Meter:
    """Answers one attempt's model calls: the model under test, and those that the pack asks beside it, by role.

    Attributes:
        said: the exchanges in the order in which they were asked.
    """

    def __init__(
        self,
        asked: Asked | None,
        aside: Mapping[str, Asked],
        *,
        ledger: Ledger,
        secrets: Secrets,
        cache: AnswerCache | None = None,
        trial: int = 0,
    ) -> None:
        self.said: list[Said] = []
        self._asked = asked
        self._aside = aside
        self._ledger = ledger
        self._secrets = secrets
        self._cache = cache
        self._trial = trial
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._under_way: set[asyncio.Task[Any] | None] = set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over: a target that was abandoned spends nothing more.
        """
        if _running() is self._loop:
            return await self._complete(request)
        # a target that isn't async may run a loop of its own; the backend's clients belong to the run's
        self._refuse_late()
        return await asyncio.wrap_future(self._on_loop(request))

    async def _answer(self, backend: Backend, request: ModelRequest, said: Said) -> ModelAnswer:
        if self._cache is None:
            return await backend.complete(request)
        same = [one for one in self.said if one.request_sha256 == said.request_sha256 and one.error is None]
        found = await self._cache.complete(backend, request, trial=self._trial, again=len(same) - 1)
        said.cached = found.cached
        return found.answer

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of a target that runs on a thread.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over, or an async target asks this way, which would hold up all others.
        """
        self._refuse_late()
        if _running() is self._loop:
            raise RuntimeError("an async target asks with `await context.llm.complete(...)`")
        return self._on_loop(request).result()

    def _on_loop(self, request: ModelRequest) -> Future[ModelAnswer]:
        return asyncio.run_coroutine_threadsafe(self._complete(request), self._loop)

    async def _complete(self, request: ModelRequest) -> ModelAnswer:
        self._refuse_late()
        said = Said(request.role, canonical_sha256(request.as_json()), aside=request.role in self._aside)
        self.said.append(said)
        asked = self._aside.get(request.role, self._asked)
        if asked is None:
            said.error = BackendError("no_backend", f"nobody is named to answer the role {request.role}")
            raise said.error
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            answer = await self._answer(asked.backend, request, said)
        except BackendError as error:
            self._ledger.add(error.usage, asked.price)
            said.error = BackendError(error.kind, self._secrets.hide(str(error)), usage=error.usage)
            raise said.error from None
        except Exception as error:
            self._ledger.add(None, asked.price)
            said.error = BackendError("backend_error", self._secrets.hide(f"{type(error).__name__}: {text_of(error)}"))
            raise said.error from error
        except asyncio.CancelledError:
            # the provider may have counted it all the same
            self._ledger.add(None, asked.price)
            raise
        finally:
            self._under_way.discard(task)
        if said.cached:
            self._ledger.add_cached()
        else:
            self._ledger.add(answer.usage, asked.price)
        try:
            said.answer = self._secrets.hide_in_answer(answer)
        except RecursionError:
            said.error = BackendError("answer_unreadable", "the answer is nested too deep to be searched for secrets")
            raise said.error from None
        return said.answer

    def broken(self) -> BackendError | None:
        """Give the first call that broke and that the target didn't make again with success.

        A target may swallow what its model call raises, and go on with less.
        """
        answered = {one.request_sha256 for one in self.said if one.answer is not None}
        return next((one.error for one in self.said if one.error and one.request_sha256 not in answered), None)

    def close(self) -> None:
        """End the attempt, on the loop: no call is made any more, and those under way are cancelled."""
        self._closed = True
        for task in tuple(self._under_way):
            if task is not None:
                task.cancel()

    @property
    def cached(self) -> int:
        """Calls that a folder of kept answers answered."""
        return sum(one.cached for one in self.said)

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
