"""The shared recording of a suite: calls that one case, or an import, makes for all cases of a process.

An index that is built at its first use is one. Only the check at the end of a run that records adds calls.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pytest_packbench.cases.finder import CaseLocation, Recording
from pytest_packbench.cases.load import load_recording
from pytest_packbench.model.suite import FIXTURES, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.engine.gateway.exchanges import CaseTraffic, RecordedCall
    from pytest_packbench.model.recording import GatewayExchange


class SharedCalls:
    """The shared recordings of the suites of a session, each read when a call needs it.

    Args:
        folders: the folders of the suites.

    Attributes:
        lent: the calls that were replayed, or not made by the case that has recorded them; each with the case.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.lent: list[tuple[CaseTraffic, GatewayExchange]] = []
        self.folders = folders
        self._read = cache(shared_calls)

    def take(self, case: CaseTraffic, call: RecordedCall) -> GatewayExchange | None:
        """Return the shared answer to a call, each once for a case; None where there is none.

        Raises:
            CassetteError: a shared recording is invalid.
        """
        for exchange in self.of(case, is_missing=True):
            if case.is_of(exchange, call) and not any(each is exchange for each in case.borrowed):
                case.borrowed.append(exchange)
                self.lent.append((case, exchange))
                return exchange
        return None

    def has(self, case: CaseTraffic, exchange: GatewayExchange) -> bool:
        """Whether a call of a case's own recording is shared, so that another case may have made it."""
        for each in self.of(case, is_missing=False):
            if key_of(each) == key_of(exchange):
                self.lent.append((case, each))
                return True
        return False

    def of(self, case: CaseTraffic, *, is_missing: bool) -> Iterable[GatewayExchange]:  # noqa: ARG002 - for the check
        """Return the calls that a case shares with others; what is no case's, with all suites.

        Args:
            case: the case.
            is_missing: whether its own recording lacks a call, or has one that it did not make.
        """
        folders = self.folders if case.suite is None else [case.suite.path]
        return [call for folder in folders for call in self._read(folder)]


def shared_calls(folder: Path) -> tuple[GatewayExchange, ...]:
    """Return the shared calls of the suite in a folder."""
    try:
        return load_recording(Recording(CaseLocation(str(folder / FIXTURES / SHARED), "shared"), folder))[0].gateway
    except FileNotFoundError:
        return ()


def key_of(exchange: GatewayExchange) -> tuple[str, str]:
    """Return what recorded calls share that ask the same."""
    return exchange.provider, exchange.request_sha256
