"""One suite's share of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.engine.entries import Place
    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.journal import Journal
    from pytest_packbench.records.run import Run
    from pytest_packbench.reports.gates import GateResult
    from pytest_packbench.reports.statistics import Statistics


@dataclass(slots=True, kw_only=True)
class SuiteRun:
    """One suite's share of the session, while it runs and after.

    Attributes:
        suite: the suite.
        folder: where its reports go.
        selected: what has to run, by node id; the place is looked at only for a case that left no entry.
        targets: how records name the tests that run its cases; empty where items from files do.
        entries: what ran, by node id, each trial; the last run of an item counts.
        untold: attempts that are in the journal and that no report told of yet, by node id and trial.
        journal: open from the first entry on.
        ordered: all that ran, in the order in which every file shows them, at the end.
        present: how many cases the suite has, at the end.
        due: how many of them the whole suite, or the shard, has to run.
        run: what is true of all entries, at the end.
        statistics: the numbers, at the end.
        gates: how the gates decided, at the end.
        baseline: what the comparison with an earlier run said, a line each.
        trouble: what went wrong with the suite as a whole, a line each.
    """

    suite: Suite
    folder: Path
    selected: dict[str, Callable[[], Place]] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    entries: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    untold: dict[str, dict[int, Entry]] = field(default_factory=dict)
    journal: Journal | None = None
    ordered: Sequence[Entry] = ()
    present: int = 0
    due: int = 0
    run: Run | None = None
    statistics: Statistics | None = None
    gates: tuple[GateResult, ...] = ()
    baseline: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the suite as a whole fails the session."""
        return bool(self.trouble) or any(not gate.passed for gate in self.gates)
