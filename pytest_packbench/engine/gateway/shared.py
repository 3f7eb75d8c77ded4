"""The shared recording of a suite: calls that one case, or an import, makes for all cases of a process.

An index that is built at its first use is one. Only the check at the end of a run that records adds calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.finder import CaseLocation, Recording
from pytest_packbench.cases.load import load_recording
from pytest_packbench.model.suite import FIXTURES, SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_packbench.engine.gateway.exchanges import CaseTraffic, RecordedCall
    from pytest_packbench.model.recording import GatewayExchange


class SharedCalls:
    """The shared recordings of the suites of a session, each read when a call needs it.

    Args:
        folders: the folders of the suites.

    Attributes:
        folders: as above.
        outside: the case that stands for what no case does, such as an import.
    """

    def __init__(self, folders: Sequence[Path], outside: CaseTraffic) -> None:
        self.folders, self.outside = folders, outside
        self._read: dict[Path, tuple[GatewayExchange, ...]] = {}

    def take(self, case: CaseTraffic, call: RecordedCall) -> GatewayExchange | None:
        """Return the shared answer to a call, each once for a case; None where there is none.

        Raises:
            CassetteError: a shared recording is invalid.
        """
        for folder in self._of(case):
            for position, exchange in enumerate(self.calls(folder)):
                if (folder, position) not in case.borrowed and case.is_of(exchange, call):
                    case.borrowed.add((folder, position))
                    return exchange
        return None

    def has(self, case: CaseTraffic, exchange: GatewayExchange) -> bool:
        """Whether a call of a case's own recording is shared, so that another case may have made it."""
        return any(is_same_request(exchange, each) for folder in self._of(case) for each in self.calls(folder))

    def calls(self, folder: Path) -> tuple[GatewayExchange, ...]:
        """Return the shared calls of the suite in a folder."""
        if folder not in self._read:
            try:
                self._read[folder] = load_recording(shared_recording(folder))[0].gateway
            except FileNotFoundError:
                self._read[folder] = ()
        return self._read[folder]

    def _of(self, case: CaseTraffic) -> Sequence[Path]:
        suite: Any = case.suite
        return self.folders if case is self.outside else () if suite is None else (suite.path,)


def is_same_request(one: GatewayExchange, other: GatewayExchange) -> bool:
    """Whether two recorded calls asked the same."""
    return (one.provider, one.request_sha256) == (other.provider, other.request_sha256)


def shared_recording(folder: Path) -> Recording:
    """Return the place of the shared recording of the suite in a folder."""
    return Recording(CaseLocation(str(folder / FIXTURES / SHARED), "shared"), folder)
