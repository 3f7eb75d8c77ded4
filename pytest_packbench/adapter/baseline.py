"""A run beside an earlier one: what changed stands in the run's folder and on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run

PAGE = "diff.md"
LATEST = "latest"


def compared(baseline: str, run: Run, entries: Sequence[Entry], folder: Path) -> list[str]:
    """Compare a run with its baseline and write the page `diff.md` into the run's folder.

    Args:
        baseline: `none`, `latest` (the suite's last complete run) or the path of a run.
        run: what is true of the run.
        entries: its entries.
        folder: its folder.

    Returns:
        What to say on the terminal; why there is no comparison, where there is none.

    Raises:
        OSError: the page can't be written.
    """
    if baseline == "none":
        return []
    from pytest_packbench.records.stored import StoredRun, StoredRunError, load_run
    from pytest_packbench.reports.comparison import compare
    from pytest_packbench.reports.diff import answer, diff_markdown, sentences
    from pytest_packbench.reports.files import write_atomic

    place = _latest(folder.parent) if baseline == LATEST else Path(baseline)
    if place is None:
        return ["there is no earlier complete run to compare with"]
    try:
        earlier = load_run(place)
    except (StoredRunError, OSError) as error:
        return [f"not compared: {error}"]
    comparison = compare(earlier, StoredRun(source=str(folder), run=run, entries=tuple(entries)))
    if comparison.differences:
        return [f"not compared with {earlier.run.run_id}: {'; '.join(comparison.differences)}"]
    write_atomic(folder / PAGE, diff_markdown(comparison))
    return [f"{answer(comparison)} since {earlier.run.run_id} ({PAGE})", *sentences(comparison)[:1]]


def _latest(folder: Path) -> Path | None:
    try:
        return folder / (folder / LATEST).read_text("utf-8").strip()
    except OSError:
        return None
