"""Compute the figures that `packbench report` shows for any number of records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.metrics import Bounds, arithmetic, line, measure
from pytest_packbench.analysis.records import NANO, RecordKey, RecordSums
from pytest_packbench.analysis.rust_report import RUST_CONDITIONS, rust_report
from pytest_packbench.model.metric import AUTHORED, GENERAL_METRICS, MEAN_SCORE
from pytest_packbench.model.record import EVAL_DECISIONS, EVAL_SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.analysis.metrics import ResultSums
    from pytest_packbench.analysis.records import Duplicates, FailingCase, RecordTally
    from pytest_packbench.analysis.rust_report import RustReport
    from pytest_packbench.model.metric import Figure, Metric
    from pytest_packbench.runs.lines import SkippedLines

    _KeyedSums = tuple[RecordKey, RecordSums]


FIXTURE = "fixture"
# metrics of a pack that have columns of their own where it registers them
ATTACK_SUCCESS, UTILITY = "attack_success_rate", "utility_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRate:
    """An observed rate.

    Attributes:
        count: records in the numerator.
        of: records in the denominator.
        share: `count / of`, 0 to 1; None if `of` is 0.
        interval: two-sided Wilson interval, 0 to 1; None if there is no share, if answers were authored, and if a
            case has several trials.
    """

    count: int
    of: int
    share: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """The rates of records of one model and one judge, which are never mixed with others.

    Attributes:
        category: `attack_category`; None for all categories.
        mode: `fixture`, `live` or `record`; empty if unknown, like the next three.
        backend: the backend that answered the model calls.
        model: the model that answered.
        judge: the judge.
        repeated_trials: whether cases have several trials.
        passed: records that passed.
        unsafe: the attack success rate; None if the pack has no such metric.
        utility: the utility rate; None if the pack has no such metric.
        mean_score: 0 to 1 over the records that have a score; None if none has.
        scored: number of records that have a score.
    """

    category: str | None
    mode: str
    backend: str
    model: str
    judge: str
    repeated_trials: bool
    passed: ObservedRate
    unsafe: ObservedRate | None
    utility: ObservedRate | None
    mean_score: float | None
    scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Tokens, time and cost.

    Attributes:
        records: number of counted records.
        tokens_known: number of records with token counts.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds; more than the elapsed time of parallel runs.
        slowest_ms: the slowest record, milliseconds.
        cost_known: number of records with a cost.
        cost_usd: their sum, US dollars; None if no record has one.
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
    """How often a guard fired with one hook and decision; `rule` is None if the guard gave no rule number."""

    rule: int | None
    hook: str
    decision: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFigures:
    """One suite in one run, without duplicates.

    Attributes:
        suite: its name.
        cases: number of cases with a record; fewer than records if cases have several trials.
        verdicts: number of records by verdict; verdicts other than `passed` and `failed` come from `errors.jsonl`.
        decisions: number of records by the agent's decision.
        rows: one for each mode, backend, model and judge.
        categories: the same by category.
        hooks: guard firings by rule, those without a rule last.
        effort: tokens, time and cost.
        failing: number of records that did not pass.
        failing_first: the first of them by test id and trial.
    """

    suite: str
    cases: int
    verdicts: dict[str, int]
    decisions: dict[str, int]
    rows: tuple[RateRow, ...]
    categories: tuple[RateRow, ...]
    hooks: tuple[HookCount, ...]
    effort: Effort
    failing: int
    failing_first: tuple[FailingCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run.

    Attributes:
        run_id: its id.
        suites: its suites, in the order of the wire format, then by name.
        effort: tokens, time and cost.
        figures: the figures of packs in the run's reports, by suite.
        controls: how the controls of the run ended, a line by suite; only where its report has any.
    """

    run_id: str
    suites: tuple[SuiteFigures, ...]
    effort: Effort
    figures: dict[str, tuple[Figure, ...]] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCaps:
    """The caps of `packbench report` on each run; None for no cap.

    Attributes:
        tokens: input and output tokens, over the records that have them.
        seconds: the sum of wall clock over the records.
        cost_usd: US dollars, over the records that have a cost.
    """

    tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewGate:
    """The decision of a condition of the Rust report, or of a cap.

    Attributes:
        suite: the suite; empty for a cap, which applies to a whole run.
        run_id: the run, without duplicates; None for the Rust report's figures, which merge runs and count duplicates.
        metric: `fail_rate` or `pass_rate`; for a cap `tokens`, `seconds` or `cost_usd`.
        observed: its value: a rate 0 to 1, or the amount used.
        min: the smallest value that passes; None if there is a `max`.
        max: the largest value that passes; None if there is a `min`.
        passed: whether the condition is met.
        text: the arithmetic in one line, without the run's name.
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
        runs: sorted by run id.
        original: the figures of the Rust report; None if no record is of its suites.
        duplicates: records whose identity occurred before.
        gates: those of the Rust report, and the same without duplicates and by run if the figures differ.
        skipped: unreadable lines; None if the first one aborts the report.
        other_runs: records ignored because another run was requested.
        with_errors: whether `errors.jsonl` was read for every source.
    """

    runs: tuple[RunFigures, ...]
    original: RustReport | None
    duplicates: Duplicates
    gates: tuple[OverviewGate, ...]
    skipped: SkippedLines | None
    other_runs: int
    with_errors: bool

    @property
    def passed(self) -> bool:
        """Whether every gate passed."""
        return all(gate.passed for gate in self.gates)

    @property
    def repeated(self) -> int:
        """How many duplicates the Rust report counts."""
        unique = sum(suite.effort.records for _, suite in self._counted if suite.suite in RUST_CONDITIONS)
        return sum(suite.total for suite in self.original.suites) - unique if self.original is not None else 0

    @property
    def merged_runs(self) -> int:
        """How many runs the Rust report merges."""
        return len({run_id for run_id, suite in self._counted if suite.suite in RUST_CONDITIONS})

    @property
    def unknown_suites(self) -> list[str]:
        """The suites that the Rust report leaves out, by name."""
        return sorted({suite.suite for _, suite in self._counted if suite.suite not in RUST_CONDITIONS})

    @property
    def _counted(self) -> list[tuple[str, SuiteFigures]]:
        return [(run.run_id, suite) for run in self.runs for suite in run.suites if suite.effort.records]

    @property
    def records(self) -> int:
        """Number of records without duplicates."""
        return sum(run.effort.records for run in self.runs)

    @property
    def cases(self) -> int:
        """Number of cases with a record; a case in two runs counts twice."""
        return sum(suite.cases for run in self.runs for suite in run.suites)


def overview(
    tally: RecordTally,
    *,
    skipped: SkippedLines | None = None,
    other_runs: int = 0,
    with_errors: bool = False,
    caps: ReportCaps | None = None,
    figures: Mapping[tuple[str, str], tuple[Figure, ...]] | None = None,
    controls: Mapping[tuple[str, str], str] | None = None,
) -> Overview:
    """Compute the figures of the counted records, in an order that does not depend on the order of the records.

    Args:
        tally: the counted records and error lines.
        skipped: as in `Overview`, like the next two.
        other_runs: as there.
        with_errors: as there.
        caps: judged like gates.
        figures: the figures of packs in the reports of runs, by run id and suite.
        controls: how the controls of runs ended, likewise.
    """
    by_run: dict[str, dict[str, list[_KeyedSums]]] = {}
    for run_id, suite in tally.errors:
        by_run.setdefault(run_id, {}).setdefault(suite, [])
    for fields, sums in tally.record_sums.items():
        key = RecordKey(*fields)
        by_run.setdefault(key.run_id, {}).setdefault(key.suite, []).append((key, sums))
    runs = tuple(
        replace(
            _run(tally, run_id, by_run[run_id]),
            figures={suite: each for (run, suite), each in sorted((figures or {}).items()) if run == run_id},
            controls={suite: line for (run, suite), line in sorted((controls or {}).items()) if run == run_id},
        )
        for run_id in sorted(by_run)
    )
    rust = rust_report(tally)
    return Overview(
        runs=runs,
        original=rust,
        duplicates=tally.duplicates,
        gates=(*_gates(rust, runs), *_cap_gates(runs, caps or ReportCaps())),
        skipped=skipped,
        other_runs=other_runs,
        with_errors=with_errors,
    )


def _run(tally: RecordTally, run_id: str, suites: dict[str, list[_KeyedSums]]) -> RunFigures:
    return RunFigures(
        run_id=run_id,
        suites=tuple(_suite(tally, run_id, suite, suites[suite]) for suite in sorted(suites, key=_suite_rank)),
        effort=_effort(_total(sums for group in suites.values() for _, sums in group)),
    )


def _suite_rank(suite: str) -> tuple[int, str]:
    return EVAL_SUITES.index(suite) if suite in EVAL_SUITES else len(EVAL_SUITES), suite


def _suite(tally: RecordTally, run_id: str, suite: str, keyed_sums: list[_KeyedSums]) -> SuiteFigures:
    total = _total(sums for _, sums in keyed_sums)
    results = total.results
    passed, records = _counts(results, GENERAL_METRICS["pass_rate"])
    metrics: dict[str, Metric] = {}
    for pack in sorted({key.pack for key, _ in keyed_sums}):
        metrics |= tally.metrics_of(pack, suite)
    decisions = results.count_by(lambda profile: profile.decision)
    errors = tally.errors.get((run_id, suite), Counter())
    return SuiteFigures(
        suite=suite,
        cases=records - total.later + tally.cases_without_first_trial(run_id, suite),
        verdicts={"passed": passed, "failed": records - passed, **dict(sorted(errors.items()))},
        decisions={decision: decisions[decision] for decision in EVAL_DECISIONS},
        rows=_rows(((None, key, sums) for key, sums in keyed_sums), metrics),
        categories=_rows(((key.category, key, sums) for key, sums in keyed_sums), metrics),
        hooks=_hooks(total),
        effort=_effort(total),
        failing=records - passed,
        failing_first=tuple(tally.failing.get((run_id, suite), ())),
    )


def _total(groups: Iterable[RecordSums]) -> RecordSums:
    total = RecordSums()
    for sums in groups:
        total.merge(sums)
    return total


def _rows(
    groups: Iterable[tuple[str | None, RecordKey, RecordSums]], metrics: Mapping[str, Metric]
) -> tuple[RateRow, ...]:
    rows: dict[tuple[tuple[str, str, str, str], str | None], RecordSums] = {}
    for category, key, sums in groups:
        row_key = (key.mode, key.backend, key.model, key.judge), category
        rows.setdefault(row_key, RecordSums()).merge(sums)
    # either all rows have a category or none has
    ranked = sorted(rows.items(), key=lambda row: (row[0][1] or "", row[0][0]))
    return tuple(_row(answered_by, category, sums, metrics) for (answered_by, category), sums in ranked)


def _row(
    answered_by: tuple[str, str, str, str], category: str | None, sums: RecordSums, metrics: Mapping[str, Metric]
) -> RateRow:
    mode, backend, model, judge = answered_by
    # authored answers are no random sample, and trials of one case are not independent: no interval
    sampled, results = backend != AUTHORED and not sums.later, sums.results
    attacks = {
        name: _rate(results, metrics[name], sampled=sampled) for name in (ATTACK_SUCCESS, UTILITY) if name in metrics
    }
    scored = measure(results, GENERAL_METRICS[MEAN_SCORE]).bottom
    return RateRow(
        category=category,
        mode=mode,
        backend=backend,
        model=model,
        judge=judge,
        repeated_trials=sums.later > 0,
        passed=_rate(results, GENERAL_METRICS["pass_rate"], sampled=sampled),
        unsafe=attacks.get(ATTACK_SUCCESS),
        utility=attacks.get(UTILITY),
        mean_score=sums.score_nano / (scored * NANO) if scored else None,
        scored=scored,
    )


def _rate(sums: ResultSums, metric: Metric, *, sampled: bool) -> ObservedRate:
    count, of = _counts(sums, metric)
    return ObservedRate(
        count=count, of=of, share=count / of if of else None, interval=wilson_interval(count, of) if sampled else None
    )


def _counts(sums: ResultSums, metric: Metric) -> tuple[int, int]:
    fraction = measure(sums, metric)
    return round(fraction.top), fraction.bottom


def _hooks(sums: RecordSums) -> tuple[HookCount, ...]:
    ranked = sorted(sums.hooks.items(), key=lambda firing: (firing[0][0] is None, firing[0][0] or 0, firing[0][1:]))
    return tuple(
        HookCount(rule=rule, hook=hook, decision=decision, count=count) for (rule, hook, decision), count in ranked
    )


def _effort(sums: RecordSums) -> Effort:
    return Effort(
        records=sums.results.count(),
        tokens_known=sums.tokens_known,
        tokens_input=sums.tokens_input,
        tokens_output=sums.tokens_output,
        wall_clock_ms=sums.wall_clock_ms,
        slowest_ms=sums.slowest_ms,
        cost_known=sums.costed,
        cost_usd=sums.cost_nano / NANO if sums.costed else None,
    )


def _gates(rust: RustReport | None, runs: tuple[RunFigures, ...]) -> tuple[OverviewGate, ...]:
    """Return the gates of the Rust report, and the same for each run without duplicates if the counts differ."""
    gates = []
    for counted in rust.suites if rust else ():
        gates.append(_gate(counted.suite, None, counted.passed, counted.total))
        figures = [(run.run_id, suite) for run in runs for suite in run.suites if suite.suite == counted.suite]
        judged = [(run_id, suite.verdicts["passed"], suite.effort.records) for run_id, suite in figures]
        if [counts for _, *counts in judged if counts[1]] != [[counted.passed, counted.total]]:
            gates += [_gate(counted.suite, *counts) for counts in judged if counts[2]]
    return tuple(gates)


def _cap_gates(runs: tuple[RunFigures, ...], caps: ReportCaps) -> Iterator[OverviewGate]:
    for run in runs:
        effort = run.effort
        used = {
            "tokens": (effort.tokens_input + effort.tokens_output, caps.tokens, effort.tokens_known),
            "seconds": (effort.wall_clock_ms / 1000, caps.seconds, effort.records),
            "cost_usd": (effort.cost_usd or 0.0, caps.cost_usd, effort.cost_known),
        }
        for metric, (value, cap, known) in used.items():
            if cap is not None:
                yield _cap_gate(run, metric, value, cap, known)


def _cap_gate(run: RunFigures, metric: str, value: float, cap: float, known: int) -> OverviewGate:
    bounds = Bounds(max=cap, tolerance=0)
    # an unknown amount fails: nothing shows that it is within the cap
    passed = known > 0 and bounds.includes(value)
    coverage = f"reported by {known} of {run.effort.records} records" if known < run.effort.records else ""
    compared = f"{value:g} {'<=' if bounds.includes(value) else '>'} cap {cap:g}"
    return OverviewGate(
        suite="",
        run_id=run.run_id,
        metric=metric,
        observed=value,
        min=bounds.min,
        max=bounds.max,
        passed=passed,
        text=line(metric, [compared, coverage], passed=passed),
    )


def _gate(suite: str, run_id: str | None, passed: int, total: int) -> OverviewGate:
    condition = RUST_CONDITIONS[suite]
    fraction, met = condition.measure(passed, total), condition.is_met(passed, total)
    return OverviewGate(
        suite=suite,
        run_id=run_id,
        metric=condition.metric,
        observed=fraction.value,
        min=condition.bounds.min,
        max=condition.bounds.max,
        passed=met,
        text=line(condition.metric, [arithmetic(fraction, condition.bounds)], passed=met),
    )
