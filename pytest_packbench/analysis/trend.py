"""Earlier runs of a suite: what each came to, and the verdict of each case, read from their reports.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
Nothing is judged again.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.counting import TrialsRuleError, fold_case, trials_rule_of
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.runs.folder import REPORT, StoredRunError, is_run_id
from pytest_packbench.runs.metadata import MERGED_FROM
from pytest_packbench.runs.reading import open_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.counting import Rule
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run

QUARANTINED = "quarantined"
"""The word for a case that its notes exclude, in place of its verdict."""
_MAX_CASES = 16_000


class EarlierCase(NamedTuple):
    """What a run came to in one case, over all its trials.

    Attributes:
        case_id: the id of the case.
        verdict: one of `VERDICTS`, or `quarantined`.
        kind: the name of the reason if the verdict is neither `passed` nor `failed`.
        score: the mean over its judged trials; None if the case was not judged, or one of them has none.
        answer: the answer in one short string, of the trial that decides; None if it is not known.
        case_sha256: the hash of the case's content; None if it could not be read.
        cassette_sha256: the hash of its recording; None without one.
        judge: the name of the judge; None if the rules decided.
        passed: how many of its trials passed.
        trials: how many there were.
    """

    case_id: str
    verdict: str
    kind: str
    score: float | None
    answer: str | None
    case_sha256: str | None
    cassette_sha256: str | None
    judge: str | None
    passed: int
    trials: int


class EarlierRun(NamedTuple):
    """An earlier run as its report stored it.

    Attributes:
        run: its metadata.
        status: `passed`, `failed` or `partial`.
        folder: the folder of the run, which may have another name than its id.
        results: those of its report, which is open; None if it is not.
        models: which models answered, as `Statistics.models` names them.
        selected: how many cases should have run.
        broken: how many of them ended in error, could not have failed, or did not run.
        judged: how many were judged, which the rates are over.
        passed: how many of these passed.
        mean_score: 0 to 1; None without a judged case.
        interval: two-sided 95 % Wilson interval of the pass rate; None without a judged case, and if any answer was
            authored.
        cases: test id to case; None if they were not read.
    """

    run: Run
    status: str
    folder: Path
    results: Iterable[Result] | None
    models: tuple[str, ...]
    selected: int
    broken: int
    judged: int
    passed: int
    mean_score: float | None
    interval: tuple[float, float] | None
    cases: Mapping[str, EarlierCase] | None = None

    @property
    def kind(self) -> Kind:
        """What it has in common with like runs."""
        return kind_of(self.run, self.models)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def finished_at(self) -> str:
        """When the run ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
        return self.run.finished_at

    @property
    def suite_sha256(self) -> str:
        """The hash of the suite's scoring rules in that run."""
        return self.run.suite_sha256

    @property
    def pass_rate(self) -> float | None:
        """The share of the judged cases that passed, 0 to 1; None without a judged case."""
        return self.passed / self.judged if self.judged else None

    def with_cases(self) -> EarlierRun:
        """Return the same with its cases; the report is opened again only if it is not open.

        Raises:
            StoredRunError: one can't be read.
            OSError: the report can't be read.
        """
        try:
            rule = trials_rule_of(self.run)
        except TrialsRuleError as error:
            raise StoredRunError(f"run {self.run_id}: {error}") from None
        results = open_run(self.folder, checked=False).results if self.results is None else self.results
        by_case = groupby(results, key=lambda result: result.case.test_id)
        cases = {test_id: _case(list(trials), rule) for test_id, trials in by_case}
        return self._replace(results=None, cases=cases)


class Kind(NamedTuple):
    """What runs have in common if their figures belong to one trend: the same pipeline, in the same mode.

    Attributes:
        suite: the name of the suite, without `bundled/`.
        mode: `fixture`, `live` or `record`.
        target: the name of the target.
        backend: the backend in live mode; empty in fixture mode.
        model: the model in live mode, or those that answered; empty in fixture mode, None if it is not known.
        guards: the guards, joined with commas; empty for none.
    """

    suite: str
    mode: str
    target: str
    backend: str
    model: str | None
    guards: str


def kind_of(run: Run, models: Iterable[str] | None = None) -> Kind:
    """Return the kind of a run.

    Args:
        run: its metadata.
        models: which models answered, for a run whose target calls a model of its own; None if they are not known.
    """
    guards = run.settings.get("guards")
    answered = None if models is None else ", ".join(sorted(models))
    return Kind(
        suite=run.suite.removeprefix(BUNDLED),
        mode=run.mode,
        target=run.target,
        backend=run.backend or "",
        model="" if run.mode == FIXTURE else run.model or answered,
        guards=", ".join(map(str, guards)) if isinstance(guards, list | tuple) else "",
    )


def like_runs(
    folder: Path, run: Run, *, limit: int = 20, models: Iterable[str] | None = None, max_cases: int = _MAX_CASES
) -> list[EarlierRun]:
    """Read the latest complete runs that a run can be compared with over time.

    Args:
        folder: the folder of the suite's runs, which contains a folder for each.
        run: the run; only older ones are returned, and none that was merged into it.
        limit: the largest number of runs.
        models: which models answered in the run, as `Statistics.models` names them; they are compared where the run
            itself names no model, unless they are None.
        max_cases: of how many cases the results are read, the latest run first; `cases` of the other runs is None.

    Returns:
        The runs, the oldest first; runs that can't be read are left out.
    """
    found: list[EarlierRun] = []
    kind, left, merged = kind_of(run, models), max_cases, run.settings.get(MERGED_FROM)
    parts = merged if isinstance(merged, list) else ()
    names = (path.name for path in folder.glob("*/") if is_run_id(path.name) and path.name < run.run_id)
    # run ids sort by time
    for name in sorted(names, reverse=True):
        if len(found) == limit:
            break
        with suppress(StoredRunError, OSError):
            earlier = None if name in parts else read_earlier(folder / name)
            if earlier is None or earlier.run_id != name or earlier.run.partial:
                continue
            if (earlier.kind if kind.model is not None else earlier.kind._replace(model=None)) == kind:
                is_read = earlier.selected <= left
                left -= earlier.selected * is_read
                found.append(earlier.with_cases() if is_read else earlier)
    return found[::-1]


def read_earlier(folder: Path) -> EarlierRun:
    """Read the report of a run, without its cases.

    Args:
        folder: the folder of the run.

    Raises:
        StoredRunError: the run did not end, or its report can't be read; one line with the place in it.
        OSError: the report can't be read.
    """
    opened = open_run(folder, checked=False)
    try:
        overall, totals, models = (opened.header[name] for name in ("overall", "totals", "models"))
        mean, interval, verdicts = overall["mean_score"], overall["interval"], totals["verdicts"]
        return EarlierRun(
            run=opened.run,
            status=opened.status,
            folder=folder,
            results=opened.results,
            models=tuple(map(_text, models)),
            selected=int(totals["selected"]),
            broken=sum(int(verdicts[name]) for name in ("error", "vacuous", "not_run")),
            judged=int(overall["n"]),
            passed=int(overall["passed"]),
            mean_score=None if mean is None else float(mean),
            interval=None if interval is None else (float(interval[0]), float(interval[1])),
        )
    except (ValueError, TypeError, KeyError, IndexError):
        raise StoredRunError(f"{folder / REPORT}: /packbench: not a run document") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def verdict_rows(earlier: Iterable[EarlierRun]) -> dict[str, list[str]]:
    """Return the verdicts of each case by its test id, in the order of the runs."""
    rows: dict[str, list[str]] = {}
    for run in earlier:
        for test_id, case in (run.cases or {}).items():
            rows.setdefault(test_id, []).append(case.verdict)
    return rows


def _case(trials: Sequence[Result], rule: Rule) -> EarlierCase:
    result = fold_case(trials, rule)
    score = result.score
    return EarlierCase(
        case_id=result.case.case_id,
        verdict=QUARANTINED if score.quarantined else score.verdict,
        kind=score.kind,
        score=score.score if score.counted else None,
        answer=score.answer,
        case_sha256=result.case.case_sha256,
        cassette_sha256=result.attempt.cassette_sha256,
        judge=score.judge,
        passed=sum(trial.score.passed for trial in trials),
        trials=len(trials),
    )
