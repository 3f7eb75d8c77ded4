"""Earlier runs of a suite: what each came to, and the verdict of each case, read from their reports.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
Nothing is judged again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.counting import by_case, differences, fold_case, trials_rule_of
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.runs.folder import REPORT, StoredRunError, is_run_id
from pytest_packbench.runs.metadata import MERGED_FROM
from pytest_packbench.runs.reading import open_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


class TrendPoint(NamedTuple):
    """A run as a point of its trend.

    Attributes:
        run: its metadata; where the hash of its rules changes, the trend is broken.
        status: `passed`, `failed` or `partial`.
        passed: judged cases that passed.
        judged: judged cases.
        mean_score: 0 to 1; None if no case was judged.
        interval: two-sided Wilson interval of the pass rate, 0 to 1; None without one.
    """

    run: Run
    status: str
    passed: int
    judged: int
    mean_score: float | None
    interval: tuple[float, float] | None

    @property
    def rate(self) -> float | None:
        """The pass rate; None if no case was judged."""
        return self.passed / self.judged if self.judged else None

    def since(self, before: TrendPoint) -> dict[str, Any]:
        """Return by how much `pass_rate` and `mean_score` changed since an earlier run, and which `rules` did.

        If any of the rules, the pack and the trials changed, the figures can't be compared: None, as if not known.
        """
        # each text begins with what differs
        rules = [text.partition(":")[0] for text in differences(before.run, self.run)]
        figures = ((before.rate, self.rate), (before.mean_score, self.mean_score))
        rate, mean = (None if rules or old is None or now is None else now - old for old, now in figures)
        return {"pass_rate": rate, "mean_score": mean, "rules": rules}


class EarlierRun(NamedTuple):
    """An earlier run as its report stored it.

    Attributes:
        kind: what it has in common with like runs.
        point: its metadata and its figures.
        selected: how many cases should have run.
        broken: how many of them ended in error, could not have failed, or did not run.
        results: those of its report, which is open; none once the cases are read.
        cases: each case by its test id, over its trials; none until they are read.
    """

    kind: Kind
    point: TrendPoint
    selected: int
    broken: int
    results: Iterable[Result]
    cases: Mapping[str, Result]

    def with_cases(self) -> EarlierRun:
        """Return the same with its cases, which are read once.

        Raises:
            ValueError: one can't be read.
            OSError: the report can't be read.
        """
        rule = trials_rule_of(self.point.run)
        folded = (fold_case(trials, rule) for trials in by_case(self.results))
        return self._replace(results=(), cases={case.case.test_id: case for case in folded})


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


def run_folders(suite_folder: Path) -> list[Path]:
    """Return the folders of a suite's runs, the latest first: run ids sort by time. Other folders are none."""
    return sorted((path for path in suite_folder.glob("*/") if is_run_id(path.name)), reverse=True)


def like_runs(
    folder: Path,
    run: Run,
    models: Iterable[str],
    opened: StoredRun | None = None,
    *,
    limit: int = 20,
    max_cases: int = _MAX_CASES,
) -> list[EarlierRun]:
    """Read the latest complete runs that a run can be compared with over time.

    Args:
        folder: the folder of the suite's runs, which contains a folder for each.
        run: the run; only older ones are returned, and none that was merged into it.
        models: as in `kind_of`.
        opened: a run with its results in memory: if it is one of these, it is not opened again.
        limit: the largest number of runs.
        max_cases: of how many cases the results are read, the latest run first.

    Returns:
        The runs, the oldest first; runs that can't be read are left out.
    """
    found: list[EarlierRun] = []
    kind, merged = kind_of(run, models), run.settings.get(MERGED_FROM)
    parts = merged if isinstance(merged, list) else ()
    for path in run_folders(folder):
        if path.name >= run.run_id or path.name in parts or len(found) == limit:
            continue
        with suppress(ValueError, OSError):
            earlier = read_earlier(path, opened)
            if earlier.kind == kind:
                max_cases -= earlier.selected
                found.append(earlier.with_cases() if max_cases >= 0 else earlier)
    return found[::-1]


def read_earlier(folder: Path, opened: StoredRun | None = None) -> EarlierRun:
    """Read the report of a complete run, without its cases.

    Args:
        folder: the folder of the run.
        opened: a run with its results in memory, which is taken if it is the one in the folder.

    Raises:
        StoredRunError: the run did not end or is partial, its report can't be read, or it is the copy of a run, which
            has another folder; one line with the place in it.
        OSError: the report can't be read.
    """
    # the file of an opened run may be gone
    if opened is None or not (Path(opened.source).exists() and (folder / REPORT).samefile(opened.source)):
        opened = open_run(folder, checked=False, whole=False)
    run = opened.run
    if run.run_id != folder.name:
        raise StoredRunError(f"{folder}: contains the run {run.run_id}, which counts in the folder of this name")
    if run.partial:
        raise StoredRunError(f"{folder}: partial: {run.partial}")
    stated = opened.outline
    overall, verdicts = stated.overall, stated.totals.verdicts
    return EarlierRun(
        kind=kind_of(run, stated.models),
        point=TrendPoint(
            run=run,
            status=stated.status,
            passed=overall.passed,
            judged=overall.n,
            mean_score=overall.mean_score,
            interval=overall.interval,
        ),
        selected=stated.totals.selected,
        broken=sum(verdicts.get(name, 0) for name in ("error", "vacuous", "not_run")),
        results=opened.results,
        cases={},
    )


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
