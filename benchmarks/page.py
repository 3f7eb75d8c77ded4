"""Write the table of `docs/performance.md`: measurements, references, and whether the budgets are met."""

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
        what: the name of the measurement.
        figure: the result.
        yardstick: the reference.
        budget: the planned limit; empty if there is none.
        verdict: whether the budget is met, or by how much and why it is missed.
    """

    what: str
    figure: str
    yardstick: str
    budget: str = ""
    verdict: str = ""


def judged(value: float, most: float, *, limit: float | None = None, why: str = "") -> str:
    """Describe whether a value is within its budget, or by how much it misses it.

    Args:
        value: the measured value.
        most: the budget.
        limit: a wider budget that is still acceptable.
        why: a sentence to add if the budget is missed.
    """
    if value <= most:
        return "Met."
    missed = f"Missed by {value / most - 1:.0%}" if most else "Missed"
    within = f", within the limit of {limit:g}" if limit is not None and value <= limit else ""
    return f"{missed}{within}. {why}".rstrip()


def facts(loads: tuple[float, float], minutes: float) -> str:
    """Describe the machine, the versions and the load of the measurement."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("pytest", "pytest-json-report", "pydantic"))
    before, after = loads
    busy = max(loads) > (os.cpu_count() or 1) * 0.75
    remark = (
        " The machine was busy with other work: this affects ratios, too, although less than seconds." if busy else ""
    )
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} in {minutes:.0f} minutes: {os.cpu_count()} processors "
        f"({platform.machine()}, {platform.system()}), Python {platform.python_version()}, {versions}. "
        f"Load of the machine {before:.1f} before, {after:.1f} after.{remark}"
    )


def table(rows: list[Row]) -> str:
    """Format the rows as Markdown."""
    lines = ["| what | measured | reference | budget | |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def put(text: str, page: Path = PAGE) -> None:
    """Write a text between the markers of the page.

    Raises:
        ValueError: the page has no markers.
    """
    head, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
