"""Earlier runs of a suite: what each came to, and the verdict of each case.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
Nothing is judged again.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.counting import cases_of, differences
from pytest_packbench.model.score import FIXTURE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.report import Outline
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.reading import StoredRun

QUARANTINED = "quarantined"
"""The word for a case that its notes exclude, in place of its verdict."""
_MAX_CASES = 16_000


class Kind(NamedTuple):
    """What runs of a suite have in common if their figures belong to one trend: the same pipeline, in the same mode.

    Attributes:
        mode: `fixture`, `live` or `record`.
        target: the name of the target.
        backend: the backend in live mode; empty in fixture mode.
        model: the model in live mode, or those that answered; empty in fixture mode.
        guards: the guards, joined with commas; empty for none.
    """

    mode: str
    target: str
    backend: str
    model: str
    guards: str

    def __str__(self) -> str:
        """Return it in words."""
        model = " / ".join(filter(None, (self.backend, self.model)))
        guards = f"guards {self.guards}" if self.guards else ""
        return ", ".join(filter(None, (f"{self.mode} mode", f"target {self.target}", model, guards)))


class EarlierRun(NamedTuple):
    """An earlier run as its report stored it.

    Attributes:
        outline: what its report states; where the hash of its rules changes, the trend is broken.
        cases: each case by its test id, over its trials; none if they were not read.
    """

    outline: Outline
    cases: Mapping[str, Result] = MappingProxyType({})


def with_cases(stored: StoredRun) -> EarlierRun:
    """Return an earlier run with its cases, which are read once.

    Raises:
        ValueError: one can't be read.
        OSError: the report can't be read.
    """
    return EarlierRun(stored.outline, {case.case.test_id: case for case in cases_of(stored.run, stored.results)})


def since(before: Outline, now: Outline) -> dict[str, Any]:
    """Return by how much `pass_rate` and `mean_score` changed since an earlier run, and which `rules` did.

    If any of the rules, the pack and the trials changed, the figures can't be compared: None, as if not known.
    """
    # each text begins with what differs
    rules = [text.partition(":")[0] for text in differences(before.run, now.run)]
    known = ((name, getattr(before.overall, name), getattr(now.overall, name)) for name in ("pass_rate", "mean_score"))
    return {name: None if rules or None in (old, new) else new - old for name, old, new in known} | {"rules": rules}


def kind_of(run: Run, models: Iterable[str]) -> Kind:
    """Return the kind of a run.

    Args:
        run: its metadata.
        models: which models answered, as `Statistics.models` names them, for a run that itself names none.
    """
    guards = run.settings.get("guards")
    return Kind(
        mode=run.mode,
        target=run.target,
        backend=run.backend or "",
        model="" if run.mode == FIXTURE else run.model or ", ".join(sorted(models)),
        guards=", ".join(map(str, guards)) if isinstance(guards, list | tuple) else "",
    )


def like_runs(
    run: Run,
    models: Iterable[str],
    earlier: Iterable[StoredRun],
    *,
    limit: int = 20,
    max_cases: int = _MAX_CASES,
) -> list[EarlierRun]:
    """Return the latest complete runs that a run can be compared with over time.

    Args:
        run: the run.
        models: as in `kind_of`.
        earlier: complete runs before it, the latest first; no more are taken than needed.
        limit: the largest number of runs.
        max_cases: of how many cases the results are read, the latest run first.

    Returns:
        The runs, the oldest first; runs that can't be read are left out.
    """
    kind = kind_of(run, models)
    like = (stored for stored in earlier if kind_of(stored.run, stored.outline.models) == kind)
    found: list[EarlierRun] = []
    while len(found) < limit and (stored := next(like, None)) is not None:
        max_cases -= stored.outline.totals.selected
        with suppress(ValueError, OSError):
            found.append(with_cases(stored) if max_cases >= 0 else EarlierRun(stored.outline))
    return found[::-1]


def verdict_of(case: Result) -> str:
    """Return the verdict of a case, or that its notes exclude it."""
    return QUARANTINED if case.score.quarantined else case.score.verdict


def verdict_rows(earlier: Iterable[EarlierRun]) -> dict[str, list[str]]:
    """Return the verdicts of each case by its test id, in the order of the runs."""
    rows: dict[str, list[str]] = {}
    for run in earlier:
        for test_id, case in run.cases.items():
            rows.setdefault(test_id, []).append(verdict_of(case))
    return rows
