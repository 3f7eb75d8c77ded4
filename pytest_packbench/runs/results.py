"""The results of a run while it goes on: each stands in the journal once, from the moment that its attempt ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.runs.writer import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.resume import Kept
    from pytest_packbench.runs.writer import RunWriter


class RunResults:
    """Collects the results of a run and keeps its journal.

    Args:
        writer: writes what the run leaves.
        head: gives what is true of the run so far, for the journal's first line.
        kept: what is kept of the run where a session goes on with it.

    Attributes:
        writer: the same.
        told: the results of each case by node id, one for each trial; the last time that a case was run counts.
        trouble: what went wrong with the run as a whole, a line each.
    """

    def __init__(self, writer: RunWriter, head: Callable[[], Run], kept: Kept | None = None) -> None:
        self.writer = writer
        self.told: dict[str, tuple[CaseResult, ...]] = {}
        self.trouble: list[str] = []
        self._head = head
        self._kept = kept
        # attempts that are in the journal and of which no case was told yet, by node id and trial
        self._untold: dict[str, dict[int, CaseResult]] = {}
        self._journaled: set[tuple[str, int, str]] = set()

    def begin(self) -> None:
        """Begin the journal."""
        self.guard(lambda: self.writer.begin(self._head))

    def go_on(self) -> None:
        """Note that what is kept of the run is in its journal already; what is forgotten of it later is not."""
        if self._kept is not None:
            self._journaled.update(map(_identity, self._kept.all_entries()))

    def keep(self, result: CaseResult) -> None:
        """Append an attempt to the journal before its case is told: what was paid for is not lost."""
        self._journaled.add(_identity(result))
        self._untold.setdefault(result.nodeid, {})[result.trial] = result
        self._append(result)

    def take(self, trials: tuple[CaseResult, ...]) -> None:
        """Take the results of a case, one for each trial; those that are not in the journal yet are appended to it."""
        self.told[trials[0].nodeid] = trials
        self._untold.pop(trials[0].nodeid, None)
        for result in trials:
            identity = _identity(result)
            if identity in self._journaled:
                self._journaled.discard(identity)
            else:
                self._append(result)

    def untold(self, nodeid: str) -> Mapping[int, CaseResult]:
        """Give the attempts at a case that are in the journal, by trial, where the case was not told yet."""
        return self._untold.get(nodeid, {})

    def carry_over(self) -> list[str]:
        """Take what an earlier session of the run has of cases that this one was not asked for; give their node ids."""
        if self._kept is None:
            return []
        kept, broken = self._kept.entries, self._kept.broken
        ran = {trials[0].case_id for trials in self.told.values()}
        carried = []
        for case_id in {**kept, **broken}:
            if case_id not in ran:
                found = broken.get(case_id, {}) | kept.get(case_id, {})
                trials = tuple(found[number] for number in sorted(found))
                self.told[trials[0].nodeid] = trials
                carried.append(trials[0].nodeid)
        return carried

    def ordered(self) -> list[CaseResult]:
        """Give all results in the order in which every file shows them."""
        return in_order(result for trials in self.told.values() for result in trials)

    def guard(self, write: Callable[[], object]) -> None:
        """Write to the run's folder; where that can't be done it is noted once, and the session goes on."""
        try:
            write()
        except OSError as error:
            trouble = f"reports can't be written to {self.writer.folder}: {error.strerror or error}"
            if trouble not in self.trouble:
                self.trouble.append(trouble)

    def _append(self, result: CaseResult) -> None:
        self.guard(lambda: self.writer.begin(self._head).append(result))


def _identity(result: CaseResult) -> tuple[str, int, str]:
    return result.nodeid, result.trial, result.timestamp
