"""A run beside an earlier one: what changed stands in the run's folder and on the terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.gate import Gate, GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import StoredRun


PAGE = "diff.md"
LATEST = "latest"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The run to compare with.

    Attributes:
        stored: the run; None where there is none or none was asked for.
        why: why there is none, for people; empty where none was asked for.
    """

    stored: StoredRun | None = None
    why: str = ""

    @classmethod
    def find(cls, baseline: str, folder: Path) -> Earlier:
        """Find and read it.

        Args:
            baseline: `none`, `latest` (the suite's last complete run) or the path of a run.
            folder: the folder of the run that is compared; the suite's other runs lie beside it.
        """
        if baseline == "none":
            return cls()
        from pytest_packbench.runs.stored import StoredRunError, read_run

        try:
            place = _latest(folder.parent) if baseline == LATEST else Path(baseline)
            if place is None:
                return cls(why="there is no earlier complete run to compare with")
            stored = read_run(place).stored
            # a run that is resumed may be the last complete one itself
            own = stored.run.run_id == folder.name
            return (
                cls(why=f"run {folder.name} is no baseline of its own; name another one") if own else cls(stored=stored)
            )
        except (StoredRunError, OSError) as error:
            return cls(why=f"not compared: {error}")

    @property
    def entries(self) -> tuple[CaseResult, ...] | None:
        """The entries that gates compare with; None where there is no run."""
        return self.stored.entries if self.stored is not None else None

    def check(self, run: Run, entries: Sequence[CaseResult], rules: Iterable[Gate]) -> tuple[GateResult, ...]:
        """Judge a run by its gates, those that ask for a baseline by this one.

        Args:
            run: what is true of the run; its settings tell the rule for trials.
            entries: its entries.
            rules: the gates.
        """
        from pytest_packbench.analysis.gates import check_run

        return check_run(run, entries, rules, self.stored, why=self.why)

    def compared(self, run: Run, entries: Sequence[CaseResult], folder: Path) -> list[str]:
        """Compare a run with it and write the page `diff.md` into the run's folder.

        Args:
            run: what is true of the run.
            entries: its entries.
            folder: its folder.

        Returns:
            What to say on the terminal, a line each.

        Raises:
            OSError: the page can't be written.
        """
        if self.stored is None:
            return [self.why] if self.why else []
        from pytest_packbench.analysis.comparison import compare
        from pytest_packbench.atomic import write_atomic
        from pytest_packbench.reports.diff import answer, diff_markdown, sentences
        from pytest_packbench.runs.stored import StoredRun

        earlier = self.stored.run.run_id
        comparison = compare(self.stored, StoredRun(source=str(folder), run=run, entries=tuple(entries)))
        if comparison.differences:
            return [f"not compared with {earlier}: {'; '.join(comparison.differences)}"]
        write_atomic(folder / PAGE, diff_markdown(comparison))
        return [f"{answer(comparison)} since {earlier} ({PAGE})", *sentences(comparison)[:1]]


def _latest(folder: Path) -> Path | None:
    """Find the last complete run; None where there is none.

    Raises:
        StoredRunError: the file that names it names no run.
    """
    place = folder / LATEST
    try:
        run_id = place.read_text("utf-8").strip()
    except UnicodeDecodeError:
        run_id = ""
    except OSError:
        return None
    # only a name: where the runs lie is not for a file to say
    if not _RUN_ID.fullmatch(run_id):
        from pytest_packbench.runs.stored import StoredRunError

        raise StoredRunError(f"{place}: holds no run id")
    return folder / run_id
