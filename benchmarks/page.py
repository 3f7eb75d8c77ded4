"""The table of `docs/performance.md`: what was measured, what stands beside it, and whether the budget is met."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN = "<!-- what `python -m benchmarks` measured: begin -->"
END = "<!-- what `python -m benchmarks` measured: end -->"


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: what was measured.
        figure: what came out.
        yardstick: what stands beside it.
        budget: what was planned; empty where nothing was.
        verdict: whether that is met, or by how much it is missed and why.
    """

    what: str
    figure: str
    yardstick: str
    budget: str = ""
    verdict: str = ""


def judged(value: float, most: float, *, bar: float | None = None, why: str = "") -> str:
    """Say whether a value keeps its budget, or by how much it misses it.

    Args:
        value: what was measured.
        most: the budget.
        bar: a wider one that still counts.
        why: what is added where the budget is missed, a sentence.
    """
    if value <= most:
        return "Met."
    missed = f"Missed by {value / most - 1:.0%}" if most else "Missed"
    within = f", within the bar of {bar:g}" if bar is not None and value <= bar else ""
    return f"{missed}{within}. {why}".rstrip()


def facts(loads: tuple[float, float], minutes: float) -> str:
    """Say on what, when and beside what the figures were measured."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("pytest", "pytest-json-report", "pydantic"))
    before, after = loads
    busy = max(loads) > (os.cpu_count() or 1) * 0.75
    remark = (
        " The machine did other work as well: ratios suffer from that, too, though less than seconds." if busy else ""
    )
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} in {minutes:.0f} minutes: {os.cpu_count()} processors "
        f"({platform.machine()}, {platform.system()}), Python {platform.python_version()}, {versions}. "
        f"Load of the machine {before:.1f} before, {after:.1f} after.{remark}"
    )


def table(rows: list[Row]) -> str:
    """Write the rows in Markdown."""
    lines = ["| what | measured | beside | budget | |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def put(text: str, page: Path = PAGE) -> None:
    """Put a text between the page's markers.

    Raises:
        ValueError: the page has no such place.
    """
    head, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
