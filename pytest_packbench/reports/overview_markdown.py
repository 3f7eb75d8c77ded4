"""Render the figures of any number of records as Markdown: first the Rust report, then packbench's own figures.

The Rust report is byte for byte that of the original harness, which escapes nothing. In all other lines, text from
records is escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_packbench.analysis.formatting import (
    DASH,
    format_interval,
    format_mean,
    format_percent,
    format_score_and_threshold,
)
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.overview import FIXTURE
from pytest_packbench.analysis.rust_report import rust_report_markdown
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.metric import AUTHORED
from pytest_packbench.reports.blocks import Points, Section, Table, Text, figure_tables, markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.analysis.overview import Effort, ObservedRate, Overview, RateRow, RunFigures, SuiteFigures
    from pytest_packbench.analysis.records import Duplicates, FailingCase, TrialId
    from pytest_packbench.analysis.rust_report import RustReport
    from pytest_packbench.reports.blocks import Block, Row
    from pytest_packbench.runs.lines import SkippedLines

_WILSON = f"{100 * CONFIDENCE:g} % Wilson interval"
_UNSAFE = "comply_unsafe"
_HOOKS_INTRO = (
    "Every check of the pipeline is counted, also checks of drafts: a case can pass after a check rejected a draft."
)
_RATES = (
    *("category", "mode", "backend", "model", "judge"),
    *(column for name in ("passed", "attack success", "utility") for column in (name, _WILSON)),
    "mean score",
)
_WHERE = "records.jsonl has all"
_FENCE = re.compile(r"`{3,}|~{3,}")


def overview_markdown(overview: Overview) -> str:
    """Render an overview.

    Returns:
        The Rust report if there is one, unchanged; then packbench's figures in GitHub Flavored Markdown, ended by one
        line end. Tables are limited to `MAX_ROWS` rows.
    """
    rust = "" if overview.original is None else _rust_lines(overview.original)
    runs = pluralize(len(overview.runs), "run")
    blocks: list[Block] = [
        Points(list(_notes(overview))),
        Table("Gates", ("suite", "result", "records", "arithmetic"), list(_gate_rows(overview))),
        *map(_run, overview.runs),
    ]
    title = f"packbench report: {runs}, {_record_count(overview.cases, overview.records)}"
    return f"{rust}{markdown([Section(title, blocks)])}\n"


def _record_count(cases: int, records: int) -> str:
    trials = "" if cases == records else f" ({pluralize(cases, 'case')}, {pluralize(records, 'trial')})"
    return f"{pluralize(records, 'record')}{trials}"


def _rust_lines(figures: RustReport) -> str:
    lines = rust_report_markdown(figures)
    names = [figures.run_id, *(name for suite in figures.suites for name in suite.categories)]
    if any("\n" in name or "\r" in name for name in names):
        lines += _closing_markup(lines)
    return lines if lines.endswith("\n\n") else f"{lines}\n"


def _closing_markup(lines: str) -> str:
    """Return lines that close HTML, comments and code fences, which unescaped names with line ends may have opened.

    A fence is opened by a line with words and closed by one without: the first of the two does not close anything, and
    the second closes whichever is open.
    """
    longest = max((len(fence) for fence in _FENCE.findall(lines)), default=3)
    fences = "".join(f"{char * longest} end of the Rust report\n{char * longest}\n\n" for char in "`~")
    return f"\n</details></pre></script></style></textarea> --> ?> ]]>\n\n{fences}"


def _notes(overview: Overview) -> Iterator[str]:
    yield _rust_note(overview)
    yield from _duplicates_note(overview.duplicates, several_runs=len(overview.runs) > 1)
    if overview.skipped is not None:
        yield _skipped_note(overview.skipped)
    if overview.other_runs:
        yield f"{pluralize(overview.other_runs, 'record')} of other runs ignored."
    if not overview.with_errors:
        yield (
            "Errors and cases that did not run are not included: they are in errors.jsonl, which is read if you pass "
            "the run's folder."
        )
    rows = [row for run in overview.runs for suite in run.suites for row in suite.rows]
    if any(row.passed.interval for row in rows):
        yield (
            f"Intervals are two-sided {100 * CONFIDENCE:g} % Wilson intervals. They assume independent cases: if cases "
            "share parts, the uncertainty is larger than shown."
        )
    if any(row.backend == AUTHORED for row in rows):
        yield (
            f"Answers of the backend {AUTHORED} were authored or scripted: counts only, without intervals. They say "
            "nothing about a model."
        )
    if any(row.repeated_trials for row in rows):
        yield "Trials of the same case are not independent: rates over several trials have no interval."
    if not overview.gates:
        yield "No gate is judged here; packbench gate RUN judges a run by the gates of its suite."
    if any(row.mode == FIXTURE for row in rows):
        yield "Figures of fixture mode show whether the pipeline or the scoring changed, not how good a model is."


def _rust_note(overview: Overview) -> str:
    """Describe how the figures of the Rust report differ from packbench's, and why."""
    if overview.original is None:
        return "The Rust report does not cover these suites: all figures are packbench's."
    reasons = []
    if overview.repeated:
        reasons.append(f"it counts {pluralize(overview.repeated, 'duplicate')}")
    if overview.merged_runs > 1:
        reasons.append(f"it merges {overview.merged_runs} runs under the id of the first")
    if overview.unknown_suites:
        reasons.append(f"it does not cover {', '.join(overview.unknown_suites)}")
    if overview.skipped is not None and overview.skipped.count:
        reasons.append("it would have stopped at the first unreadable line")
    if overview.original.wrapped:
        reasons.append("a sum of tokens overflowed 2^64")
    if reasons:
        return f"The lines above are the Rust report. The figures below differ from it: {'; '.join(reasons)}."
    return "The lines above are the Rust report; the figures below agree with it."


def _duplicates_note(duplicates: Duplicates, *, several_runs: bool) -> Iterator[str]:
    if not duplicates.count:
        return
    names = [_trial_name(trial, several_runs=several_runs) for trial in duplicates.first]
    conflicts = f" {duplicates.conflicting} of them passed although the counted record failed, or the reverse."
    yield (
        f"{pluralize(duplicates.count, 'duplicate')} (same run, test id and trial; the first record counts): "
        f"{', '.join(names)}{_more(duplicates.names, len(names))}.{conflicts if duplicates.conflicting else ''}"
    )


def _trial_name(trial: TrialId, *, several_runs: bool) -> str:
    details = [f"run {trial.run_id}"] if several_runs else []
    if trial.trial:
        details.append(f"trial {trial.trial}")
    return f"{trial.test_id} ({', '.join(details)})" if details else trial.test_id


def _skipped_note(skipped: SkippedLines) -> str:
    if not skipped.count:
        return "All lines were read."
    more = _more(skipped.count, len(skipped.first))
    return f"{pluralize(skipped.count, 'unreadable line')} skipped: {'; '.join(skipped.first)}{more}."


def _more(number: int, listed: int) -> str:
    return f" and {number - listed} more" if number > listed else ""


def _gate_rows(overview: Overview) -> Iterator[Row]:
    for gate in overview.gates:
        arithmetic, _, verdict = gate.text.rpartition(": ")
        records = "as in the Rust report" if gate.run_id is None else f"run {gate.run_id}, without duplicates"
        yield gate.suite, verdict, records, arithmetic


def _run(run: RunFigures) -> Section:
    controls = [f"Controls of {name}: {line}." for name, line in run.controls.items()]
    figures = [
        table for name, each in run.figures.items() for table in figure_tables(each, f"Figures of {name}", defined=True)
    ]
    whole = [Text(_effort(run.effort))] if len(run.suites) > 1 else []
    return Section(f"Run {run.run_id or '(empty)'}", [*whole, *map(_suite, run.suites), *map(Text, controls), *figures])


def _suite(suite: SuiteFigures) -> Section:
    repeated = suite.cases != suite.effort.records
    trials = f"{pluralize(suite.cases, 'case')}, {pluralize(suite.effort.records, 'trial')}. " if repeated else ""
    verdicts = f"Verdicts{' of trials' if repeated else ''}: {_counts(suite.verdicts)}."
    attacks = any(row.unsafe is not None for row in suite.rows)
    decisions = {name: number for name, number in suite.decisions.items() if attacks or number or name != _UNSAFE}
    hooks = [(each.rule, each.hook, each.decision, each.count) for each in suite.hooks]
    failing = ("test", "trial", "category", "expected", "decision", "score", "backend", "model")
    return Section(
        suite.suite,
        [
            Text(f"{trials}{verdicts} Decisions: {_counts(decisions)}."),
            Table("", _RATES, list(map(_rate_row, suite.rows))),
            Table("By category", _RATES, list(map(_rate_row, suite.categories))),
            Section(
                "Hook decisions by rule",
                [Text(_HOOKS_INTRO), Table("", ("rule", "hook", "decision", "count"), hooks)] if hooks else [],
            ),
            Text(_effort(suite.effort)),
            Table("Failing cases", failing, list(map(_failing_row, suite.failing_first)), suite.failing, _WHERE),
        ],
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _rate_row(row: RateRow) -> Row:
    rates = (text for rate in (row.passed, row.unsafe, row.utility) for text in _rate_cells(rate))
    category = None if row.category is None else row.category or "(empty)"
    return (category, row.mode, row.backend, row.model, row.judge, *rates, format_mean(row.mean_score))


def _rate_cells(rate: ObservedRate | None) -> tuple[str, str]:
    if rate is None or not rate.of:
        return DASH, DASH
    return f"{rate.count} / {rate.of} = {format_percent(rate.count, rate.of)}", format_interval(rate.interval)


def _effort(effort: Effort) -> str:
    tokens = "Tokens: not known."
    if effort.tokens_known:
        coverage = _coverage(effort.tokens_known, effort.records)
        tokens = f"Tokens: {effort.tokens_input} input + {effort.tokens_output} output{coverage}."
    total, slowest = effort.wall_clock_ms / 1000, effort.slowest_ms / 1000
    parts = [tokens, f"Wall clock: {total:.1f} s summed over the records, slowest {slowest:.1f} s."]
    if effort.cost_usd is not None:
        parts.append(f"Cost: {effort.cost_usd:.4f} USD{_coverage(effort.cost_known, effort.records)}.")
    return " ".join(parts)


def _coverage(known: int, records: int) -> str:
    return "" if known == records else f" (reported by {known} of {pluralize(records, 'record')})"


def _failing_row(case: FailingCase) -> Row:
    return (
        case.test_id,
        case.trial or None,
        case.category or "(empty)",
        case.expected,
        case.agent_decision,
        format_score_and_threshold(case.score, case.threshold),
        case.backend,
        case.model,
    )
