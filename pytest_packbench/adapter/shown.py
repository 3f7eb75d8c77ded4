"""How a case's failure is shown by readers that ask for its first line: JUnit, the short summary, editors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from typing import Protocol

    class Writer(Protocol):
        """What pytest gives to write on."""

        def line(self, text: str = "") -> None:
            """Write a line."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a case failed, as pytest's readers ask for it.

    Attributes:
        path: the case's file, from rootdir.
        lineno: its line there, from 1.
        message: the first line of the explanation.
    """

    path: str
    lineno: int
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation with its first line apart.

    As plain text pytest would give all of it as the message: twice in JUnit, and whole in a CI's short summary.

    Attributes:
        text: all of it.
        reprcrash: the first line, with the place.
    """

    text: str
    reprcrash: Crash

    def __str__(self) -> str:
        """Give all of it."""
        return self.text

    def toterminal(self, tw: Writer) -> None:
        """Write it."""
        for line in self.text.splitlines():
            tw.line(line)


def is_of_case(report: pytest.TestReport) -> bool:
    """Whether a report is that of a case: then it bears a case's properties."""
    return "verdict" in dict(report.user_properties)


class Shown:
    """Makes explanations of the plain text that reports bring, in the process that the user started."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Change the report of a case before any reader sees it; xdist would have made text of it again."""
        text = report.longrepr
        if not report.failed or not isinstance(text, str) or not is_of_case(report):
            return
        path, line, _ = report.location
        crash = Crash(path, (line or 0) + 1, text.partition("\n")[0])
        report.longrepr = Explanation(text, crash)  # type: ignore[assignment]  # pytest's own class is private
