"""What runs a case, as the rest of the adapter sees it: an item from a file, or a test of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.records.entry import Entry


class Tested(Protocol):
    """A case with what its attempts left.

    Attributes:
        suite: the case's suite.
        loaded: the case, None where its file can't be read.
        problem: why it can't be run, in one line; empty otherwise.
        entries: what its attempts left, one for each trial.
        entry: the case's verdict over them.
        explanation: what to show for it when it doesn't pass.
    """

    suite: Suite
    loaded: LoadedCase | None
    problem: str
    entries: tuple[Entry, ...]
    entry: Entry | None
    explanation: str

    @property
    def config(self) -> pytest.Config:
        """The session's configuration."""

    @property
    def path(self) -> Path:
        """The case file, absolute."""

    @property
    def name(self) -> str:
        """The case's id."""

    @property
    def file_id(self) -> str:
        """The case file as node ids name it."""

    @property
    def line(self) -> int:
        """The case's line in a file of many, from 1; 0 where the file is the case."""

    @property
    def case_nodeid(self) -> str:
        """What pytest calls it, without the group that xdist may append."""

    @property
    def own_test(self) -> str:
        """Node id of the user's own test function that runs the case; empty where the case's item does."""
