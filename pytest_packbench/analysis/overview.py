"""Our figures of any number of records: what `packbench report` prints and writes, before it is text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.analysis.intervals import wilson
from pytest_packbench.analysis.metrics import Bounds, arithmetic, line, measured
from pytest_packbench.analysis.rust_report import CONDITIONS, original
from pytest_packbench.analysis.sums import NANO, Cell
from pytest_packbench.analysis.tally import Place
from pytest_packbench.model.metric import AUTHORED, GENERAL_METRICS, MEAN_SCORE
from pytest_packbench.model.record import EVAL_DECISIONS, EVAL_SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.analysis.rust_report import Original
    from pytest_packbench.analysis.sums import Sums
    from pytest_packbench.analysis.tally import Duplicates, FailingCase, Tally
    from pytest_packbench.model.metric import Metric
    from pytest_packbench.runs.lines import Skipped


FIXTURE = "fixture"
# metrics of a pack that have columns of their own where it registers them
ATTACK_SUCCESS, UTILITY = "attack_success_rate", "utility_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share.

    Attributes:
        count: records of a kind.
        of: records that could be of that kind.
        share: `count / of`, 0 to 1; None where `of` is 0.
        interval: two-sided Wilson interval, 0 to 1; None where there is no share, where answers were authored or
            scripted, and where a case was tried more than once.
    """

    count: int
    of: int
    share: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Records that one model answered and one judge judged: rates never mix them.

    Attributes:
        category: `attack_category`; None for all categories.
        mode: `fixture`, `live` or `record`; empty where the records don't tell, like the next three.
        backend: who answered the model calls.
        model: which model.
        judge: who judged.
        repeated_trials: whether cases were tried more than once.
        passed: records that passed.
        unsafe: the attack success rate; None where the pack has no such metric.
        utility: the utility rate; None where the pack has no such metric.
        mean_score: 0 to 1 over the records that have a score; None where none has.
        scored: how many have one.
    """

    category: str | None
    mode: str
    backend: str
    model: str
    judge: str
    repeated_trials: bool
    passed: Rate
    unsafe: Rate | None
    utility: Rate | None
    mean_score: float | None
    scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What it took.

    Attributes:
        records: how many were counted.
        tokens_known: how many of them tell tokens.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds; runs in parallel took less.
        slowest_ms: of one record, milliseconds.
        cost_known: how many records tell a cost.
        cost_usd: their sum, dollars; None where none does.
    """

    records: int
    tokens_known: int
    tokens_input: int
    tokens_output: int
    wall_clock_ms: int
    slowest_ms: int
    cost_known: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCount:
    """How often a guard fired in one way; `rule` is None where the guard gave no number."""

    rule: int | None
    hook: str
    decision: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFigures:
    """One suite in one run, each record counted once.

    Attributes:
        suite: its name.
        cases: how many cases left a record; fewer than records where a case was tried more than once.
        verdicts: verdict to cases; those beside `passed` and `failed` are known from `errors.jsonl` only.
        decisions: agent's decision to records.
        rows: a row for each mode, backend, model and judge.
        categories: the same by category.
        hooks: guard firings by rule, those without a rule last.
        effort: what it took.
        failing: how many records did not pass.
        failing_first: the first of them by test id and trial.
    """

    suite: str
    cases: int
    verdicts: dict[str, int]
    decisions: dict[str, int]
    rows: tuple[Row, ...]
    categories: tuple[Row, ...]
    hooks: tuple[HookCount, ...]
    effort: Effort
    failing: int
    failing_first: tuple[FailingCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run; its suites stand in the order of the wire format, then by name."""

    run_id: str
    suites: tuple[SuiteFigures, ...]
    effort: Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a run may take at most; None where nothing is said.

    Attributes:
        tokens: input and output tokens of a run, as far as its records tell.
        seconds: the sum of wall clock over a run's records.
        cost_usd: dollars of a run, as far as its records tell.
    """

    tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewGate:
    """How a condition of the original, or a cap, decided.

    Attributes:
        suite: the suite; empty for a cap, which is on a whole run.
        run_id: the run, its records counted once; None for the original's own figures, runs and duplicates merged.
        metric: `fail_rate` or `pass_rate`; for a cap `tokens`, `seconds` or `cost_usd`.
        observed: its value: a rate 0 to 1, or what was taken.
        min: the least value that passes; None where there is a greatest.
        max: the greatest value that passes; None where there is a least.
        passed: whether the condition holds.
        text: the arithmetic in one line; the run's name is not in it.
    """

    suite: str
    run_id: str | None
    metric: str
    observed: float
    min: float | None
    max: float | None
    passed: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All figures of a report.

    Attributes:
        runs: by run id.
        original: what the original would make of the records; None where none is of its suites.
        duplicates: records that were there already.
        gates: the original's, and the same on our figures where these differ.
        skipped: lines that could not be read; None where the first would have aborted.
        other_runs: records left out because another run was asked for.
        with_errors: whether `errors.jsonl` was read for every source.
    """

    runs: tuple[RunFigures, ...]
    original: Original | None
    duplicates: Duplicates
    gates: tuple[OverviewGate, ...]
    skipped: Skipped | None
    other_runs: int
    with_errors: bool

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.passed for gate in self.gates)

    @property
    def repeated(self) -> int:
        """How many duplicates the original counts again."""
        ours = sum(suite.effort.records for _, suite in self._counted if suite.suite in CONDITIONS)
        return sum(suite.total for suite in self.original.suites) - ours if self.original is not None else 0

    @property
    def merged_runs(self) -> int:
        """How many runs the original merges."""
        return len({run_id for run_id, suite in self._counted if suite.suite in CONDITIONS})

    @property
    def unknown_suites(self) -> list[str]:
        """The suites that the original leaves out, by name."""
        return sorted({suite.suite for _, suite in self._counted if suite.suite not in CONDITIONS})

    @property
    def _counted(self) -> list[tuple[str, SuiteFigures]]:
        return [(run.run_id, suite) for run in self.runs for suite in run.suites if suite.effort.records]

    @property
    def records(self) -> int:
        """How many records were counted, each once."""
        return sum(run.effort.records for run in self.runs)

    @property
    def cases(self) -> int:
        """How many cases they are of; a case in two runs is two."""
        return sum(suite.cases for run in self.runs for suite in run.suites)


def overview(
    tally: Tally,
    *,
    skipped: Skipped | None = None,
    other_runs: int = 0,
    with_errors: bool = False,
    caps: Caps | None = None,
) -> Overview:
    """Make figures of what was counted, in an order that does not depend on that of the records.

    `skipped`, `other_runs` and `with_errors` are those of `Overview`, `caps` are judged as gates.
    """
    places: dict[str, dict[str, list[tuple[Place, Cell]]]] = {}
    for run_id, suite in tally.errors:
        places.setdefault(run_id, {}).setdefault(suite, [])
    for key, cell in tally.cells.items():
        place = Place(*key)
        places.setdefault(place.run_id, {}).setdefault(place.suite, []).append((place, cell))
    runs = tuple(_run(tally, run_id, places[run_id]) for run_id in sorted(places))
    merged = original(tally)
    return Overview(
        runs=runs,
        original=merged,
        duplicates=tally.duplicates,
        gates=(*_gates(merged, runs), *_capped(runs, caps or Caps())),
        skipped=skipped,
        other_runs=other_runs,
        with_errors=with_errors,
    )


def _run(tally: Tally, run_id: str, suites: dict[str, list[tuple[Place, Cell]]]) -> RunFigures:
    return RunFigures(
        run_id=run_id,
        suites=tuple(_suite(tally, run_id, suite, suites[suite]) for suite in sorted(suites, key=_suite_rank)),
        effort=_effort(_sum(cell for cells in suites.values() for _, cell in cells)),
    )


def _suite_rank(suite: str) -> tuple[int, str]:
    return EVAL_SUITES.index(suite) if suite in EVAL_SUITES else len(EVAL_SUITES), suite


def _suite(tally: Tally, run_id: str, suite: str, cells: list[tuple[Place, Cell]]) -> SuiteFigures:
    whole = _sum(cell for _, cell in cells)
    sums = whole.sums()
    passed, records = _counts(sums, GENERAL_METRICS["pass_rate"])
    metrics: dict[str, Metric] = {}
    for pack in sorted({place.pack for place, _ in cells}):
        metrics |= tally.metrics_of(pack, suite)
    decisions = sums.by(lambda one: one.decision)
    beside = tally.errors.get((run_id, suite), Counter())
    return SuiteFigures(
        suite=suite,
        cases=records - whole.later + tally.only_later(run_id, suite),
        verdicts={"passed": passed, "failed": records - passed, **dict(sorted(beside.items()))},
        decisions={decision: decisions[decision] for decision in EVAL_DECISIONS},
        rows=_rows(((None, place, cell) for place, cell in cells), metrics),
        categories=_rows(((place.category, place, cell) for place, cell in cells), metrics),
        hooks=_hooks(whole),
        effort=_effort(whole),
        failing=records - passed,
        failing_first=tuple(tally.failing.get((run_id, suite), ())),
    )


def _sum(cells: Iterable[Cell]) -> Cell:
    whole = Cell()
    for cell in cells:
        whole.absorb(cell)
    return whole


def _rows(cells: Iterable[tuple[str | None, Place, Cell]], metrics: Mapping[str, Metric]) -> tuple[Row, ...]:
    groups: dict[tuple[tuple[str, str, str, str], str | None], Cell] = {}
    for category, place, cell in cells:
        key = (place.mode, place.backend, place.model, place.judge), category
        groups.setdefault(key, Cell()).absorb(cell)
    # all rows have a category or none has
    ranked = sorted(groups.items(), key=lambda group: (group[0][1] or "", group[0][0]))
    return tuple(_row(answered_by, category, cell, metrics) for (answered_by, category), cell in ranked)


def _row(
    answered_by: tuple[str, str, str, str], category: str | None, cell: Cell, metrics: Mapping[str, Metric]
) -> Row:
    mode, backend, model, judge = answered_by
    # what somebody wrote is no sample of anything, and trials of one case are not independent (design 7)
    sampled, sums = backend != AUTHORED and not cell.later, cell.sums()
    attacks = {
        name: _rate(sums, metrics[name], sampled=sampled) for name in (ATTACK_SUCCESS, UTILITY) if name in metrics
    }
    scored = measured(sums, GENERAL_METRICS[MEAN_SCORE]).bottom
    return Row(
        category=category,
        mode=mode,
        backend=backend,
        model=model,
        judge=judge,
        repeated_trials=cell.later > 0,
        passed=_rate(sums, GENERAL_METRICS["pass_rate"], sampled=sampled),
        unsafe=attacks.get(ATTACK_SUCCESS),
        utility=attacks.get(UTILITY),
        mean_score=cell.score_nano / (scored * NANO) if scored else None,
        scored=scored,
    )


def _rate(sums: Sums, metric: Metric, *, sampled: bool) -> Rate:
    count, of = _counts(sums, metric)
    return Rate(count=count, of=of, share=count / of if of else None, interval=wilson(count, of) if sampled else None)


def _counts(sums: Sums, metric: Metric) -> tuple[int, int]:
    found = measured(sums, metric)
    return round(found.top), found.bottom


def _hooks(cell: Cell) -> tuple[HookCount, ...]:
    ranked = sorted(cell.hooks.items(), key=lambda one: (one[0][0] is None, one[0][0] or 0, one[0][1:]))
    return tuple(
        HookCount(rule=rule, hook=hook, decision=decision, count=count) for (rule, hook, decision), count in ranked
    )


def _effort(cell: Cell) -> Effort:
    return Effort(
        records=cell.sums().count(),
        tokens_known=cell.tokens_known,
        tokens_input=cell.tokens_input,
        tokens_output=cell.tokens_output,
        wall_clock_ms=cell.wall_clock_ms,
        slowest_ms=cell.slowest_ms,
        cost_known=cell.costed,
        cost_usd=cell.cost_nano / NANO if cell.costed else None,
    )


def _gates(merged: Original | None, runs: tuple[RunFigures, ...]) -> tuple[OverviewGate, ...]:
    """The original's gates, and the same by run on our figures where these are not the original's."""
    gates = []
    for one in merged.suites if merged else ():
        gates.append(_gate(one.suite, None, one.passed, one.total))
        ours = [(run.run_id, suite) for run in runs for suite in run.suites if suite.suite == one.suite]
        judged = [(run_id, suite.verdicts["passed"], suite.effort.records) for run_id, suite in ours]
        if [counts for _, *counts in judged if counts[1]] != [[one.passed, one.total]]:
            gates += [_gate(one.suite, *counts) for counts in judged if counts[2]]
    return tuple(gates)


def _capped(runs: tuple[RunFigures, ...], caps: Caps) -> Iterator[OverviewGate]:
    for run in runs:
        effort = run.effort
        taken = {
            "tokens": (effort.tokens_input + effort.tokens_output, caps.tokens, effort.tokens_known),
            "seconds": (effort.wall_clock_ms / 1000, caps.seconds, effort.records),
            "cost_usd": (effort.cost_usd or 0.0, caps.cost_usd, effort.cost_known),
        }
        for metric, (value, cap, known) in taken.items():
            if cap is not None:
                yield _cap(run, metric, value, cap, known)


def _cap(run: RunFigures, metric: str, value: float, cap: float, known: int) -> OverviewGate:
    bounds = Bounds(max=cap, tolerance=0)
    # what no record tells can't be shown to keep a cap
    passed = known > 0 and bounds.hold(value)
    told = f"told by {known} of {run.effort.records} records" if known < run.effort.records else ""
    compared = f"{value:g} {'<=' if bounds.hold(value) else '>'} cap {cap:g}"
    return OverviewGate(
        suite="",
        run_id=run.run_id,
        metric=metric,
        observed=value,
        min=bounds.min,
        max=bounds.max,
        passed=passed,
        text=line(metric, [compared, told], passed=passed),
    )


def _gate(suite: str, run_id: str | None, passed: int, total: int) -> OverviewGate:
    condition = CONDITIONS[suite]
    fraction, holds = condition.measured(passed, total), condition.holds(passed, total)
    return OverviewGate(
        suite=suite,
        run_id=run_id,
        metric=condition.metric,
        observed=fraction.value,
        min=condition.bounds.min,
        max=condition.bounds.max,
        passed=holds,
        text=line(condition.metric, [arithmetic(fraction, condition.bounds)], passed=holds),
    )
