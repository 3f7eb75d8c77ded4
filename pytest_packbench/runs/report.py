"""Names under which callers outside of `runs` still open reports.

To be replaced: `open_report(path)` by `open_run(path, checked=False)`, and `OpenRun` and `is_report` by those of
`runs.reading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.runs.reading import OpenRun, is_report, open_run

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OpenRun", "is_report", "open_report"]


def open_report(path: Path) -> OpenRun:
    """Open the report of a run, which is not compared with the files beside it; see `open_run`."""
    return open_run(path, checked=False)
