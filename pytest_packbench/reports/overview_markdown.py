"""The report on any number of records as Markdown: first the original's lines, then our figures.

The original's lines are not escaped, for they are its own, byte for byte. In ours text from records is never trusted:
it reaches the page through `cell` alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_packbench.analysis.figures import DASH, average, count, interval, percent, score
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.overview import FIXTURE
from pytest_packbench.analysis.rust_report import original_markdown
from pytest_packbench.model.metric import AUTHORED
from pytest_packbench.reports.tables import WIDE, cell, told_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.analysis.overview import Effort, Overview, Rate, Row, RunFigures, SuiteFigures
    from pytest_packbench.analysis.rust_report import Original
    from pytest_packbench.analysis.tally import Duplicates, FailingCase, TrialId
    from pytest_packbench.runs.lines import Skipped

_WILSON = f"{100 * CONFIDENCE:g} % interval (Wilson)"
_UNSAFE = "comply_unsafe"
_HOOKS = """#### Hook decisions by rule

Each check of the pipeline as often as it looked, at drafts too: a case may pass after a check sent a draft back."""
_FENCE = re.compile(r"`{3,}|~{3,}")


def overview_markdown(found: Overview) -> str:
    """Write an overview.

    Returns:
        Where the original has something to say of the records, exactly its lines; then ours in GitHub Flavored
        Markdown, ended by one line end. Of each table at most `MOST_ROWS` rows are shown, and it says how many there
        are.
    """
    before = "" if found.original is None else _originals_lines(found.original)
    parts = [
        f"# packbench report: {count(len(found.runs), 'run')}, {_records(found.cases, found.records)}",
        "\n".join(f"- {remark}" for remark in _remarks(found)),
        told_table("## Gates", ("result", "suite", "records", "arithmetic"), _gate_rows(found)),
        *(part for run in found.runs for part in _run(run)),
    ]
    return before + "\n\n".join(part for part in parts if part) + "\n"


def _records(cases: int, records: int) -> str:
    trials = "" if cases == records else f" ({count(cases, 'case')}, {count(records, 'trial')})"
    return f"{count(records, 'record')}{trials}"


def _originals_lines(figures: Original) -> str:
    lines = original_markdown(figures)
    names = [figures.run_id, *(name for suite in figures.suites for name in suite.categories)]
    if any("\n" in name or "\r" in name for name in names):
        lines += _seal(lines)
    return lines if lines.endswith("\n\n") else f"{lines}\n"


def _seal(lines: str) -> str:
    """End what an unescaped name with a line end in it may have opened: HTML, a comment, a fence of code.

    A fence is opened by a line with words and ended by one without: the first of two closes nothing, and the second
    closes whichever is open.
    """
    longest = max((len(fence) for fence in _FENCE.findall(lines)), default=3)
    fences = "".join(f"{char * longest} end of the original's lines\n{char * longest}\n\n" for char in "`~")
    return f"\n</details></pre></script></style></textarea> --> ?> ]]>\n\n{fences}"


def _remarks(found: Overview) -> Iterator[str]:
    yield from _differences(found)
    yield from _duplicates(found.duplicates, several_runs=len(found.runs) > 1)
    if found.skipped is not None:
        yield _skipped(found.skipped)
    if found.other_runs:
        yield f"{count(found.other_runs, 'record')} of other runs left out."
    if not found.with_errors:
        yield (
            "Cases that broke or did not run are not known here: they stand in errors.jsonl, which is read beside the "
            "records where the folder of a run is given."
        )
    rows = [row for run in found.runs for suite in run.suites for row in suite.rows]
    if any(row.passed.interval for row in rows):
        yield (
            f"Intervals are two-sided {100 * CONFIDENCE:g} % Wilson intervals. They take the cases as independent: "
            "where cases share parts, the truth is less certain than they say."
        )
    if any(row.backend == AUTHORED for row in rows):
        yield f"Answers of the backend {AUTHORED} are authored or scripted: counts, no interval, no word on a model."
    if any(row.repeated_trials for row in rows):
        yield "Several trials of a case are not independent: rates over them have no interval."
    if not found.gates:
        yield "No gate is judged here; packbench gate RUN judges a run by the gates of its suite."
    if any(row.mode == FIXTURE for row in rows):
        yield ("Figures of fixture mode tell whether the pipeline or the scoring changed, not how good a model is.")


def _differences(found: Overview) -> Iterator[str]:
    """Say in one line how the original's figures differ from ours, and why."""
    if found.original is None:
        yield "The original's report does not know these suites: all figures are ours."
        return
    reasons = []
    if found.repeated:
        reasons.append(f"they count {count(found.repeated, 'duplicate')} again")
    if found.merged_runs > 1:
        reasons.append(f"they merge {found.merged_runs} runs under the name of the first")
    if found.unknown_suites:
        reasons.append(f"they leave out {', '.join(map(cell, found.unknown_suites))}, which it does not know")
    if found.skipped is not None and found.skipped.count:
        reasons.append("it would have stopped at the first line that can't be read")
    if found.original.wrapped:
        reasons.append("a sum of tokens went over 2^64 and began again at 0")
    if reasons:
        yield f"The lines above are the original's, and our figures below differ from them: {'; '.join(reasons)}."
    else:
        yield "The lines above are the original's; our figures below agree with them."


def _duplicates(duplicates: Duplicates, *, several_runs: bool) -> Iterator[str]:
    if not duplicates.count:
        return
    names = [_name(name, several_runs=several_runs) for name in duplicates.first]
    conflicts = f" {duplicates.conflicting} of them passed where the one that counts failed, or the reverse."
    yield (
        f"{count(duplicates.count, 'duplicate')} (same run, test id and trial), of which the first record counts: "
        f"{', '.join(names)}{_more(duplicates.names, len(names))}.{conflicts if duplicates.conflicting else ''}"
    )


def _name(name: TrialId, *, several_runs: bool) -> str:
    where = [f"run {cell(name.run_id)}"] if several_runs else []
    if name.trial:
        where.append(f"trial {name.trial}")
    return f"{cell(name.test_id)} ({', '.join(where)})" if where else cell(name.test_id)


def _skipped(skipped: Skipped) -> str:
    if not skipped.count:
        return "Every line could be read."
    named = "; ".join(cell(problem, WIDE) for problem in skipped.first)
    more = _more(skipped.count, len(skipped.first))
    return f"{count(skipped.count, 'line')} left out that can't be read: {named}{more}."


def _more(number: int, shown: int) -> str:
    return f" and {number - shown} more" if number > shown else ""


def _gate_rows(found: Overview) -> Iterator[tuple[str, ...]]:
    for gate in found.gates:
        arithmetic, _, verdict = gate.text.rpartition(": ")
        records = "as the original counts" if gate.run_id is None else f"run {gate.run_id}, each once"
        yield verdict, gate.suite, records, arithmetic


def _run(run: RunFigures) -> Iterator[str]:
    yield f"## Run {cell(run.run_id or '(empty)')}"
    if len(run.suites) > 1:
        yield _effort(run.effort)
    for suite in run.suites:
        yield from _suite(suite)


def _suite(suite: SuiteFigures) -> Iterator[str]:
    yield f"### {cell(suite.suite)}"
    several = suite.cases != suite.effort.records
    trials = f"{count(suite.cases, 'case')}, {count(suite.effort.records, 'trial')}. " if several else ""
    verdicts = f"Verdicts{' of trials' if several else ''}: {_counts(suite.verdicts)}."
    attacks = any(row.unsafe is not None for row in suite.rows)
    decisions = {name: number for name, number in suite.decisions.items() if attacks or number or name != _UNSAFE}
    yield f"{trials}{verdicts} Decisions: {_counts(decisions)}."
    yield told_table("", _rate_head(), map(_rate_row, suite.rows))
    yield told_table("#### By category", _rate_head("category"), map(_rate_row, suite.categories))
    hooks = (
        (str(one.rule) if one.rule is not None else DASH, one.hook, one.decision, str(one.count)) for one in suite.hooks
    )
    yield told_table(_HOOKS, ("rule", "hook", "decision", "count"), hooks)
    yield _effort(suite.effort)
    yield _failing(suite)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {cell(name)}" for name, number in counts.items())


def _rate_head(*label: str) -> tuple[str, ...]:
    rates = (column for name in ("passed", "attack success", "utility") for column in (name, _WILSON))
    return (*label, "mode", "backend", "model", "judge", *rates, "mean score")


def _rate_row(row: Row) -> tuple[str, ...]:
    label = () if row.category is None else (row.category or "(empty)",)
    answered_by = tuple(name or DASH for name in (row.mode, row.backend, row.model, row.judge))
    rates = (text for rate in (row.passed, row.unsafe, row.utility) for text in _rate(rate))
    return (*label, *answered_by, *rates, average(row.mean_score))


def _rate(rate: Rate | None) -> tuple[str, str]:
    if rate is None or not rate.of:
        return DASH, DASH
    return f"{rate.count} / {rate.of} = {percent(rate.count, rate.of)}", interval(rate.interval)


def _effort(effort: Effort) -> str:
    tokens = "Tokens: not told."
    if effort.tokens_known:
        known = _known(effort.tokens_known, effort.records)
        tokens = f"Tokens: {effort.tokens_input} input + {effort.tokens_output} output{known}."
    total, slowest = effort.wall_clock_ms / 1000, effort.slowest_ms / 1000
    told = [tokens, f"Wall clock: {total:.1f} s as the sum over the records, {slowest:.1f} s for the slowest."]
    if effort.cost_usd is not None:
        told.append(f"Cost: {effort.cost_usd:.4f} USD{_known(effort.cost_known, effort.records)}.")
    return " ".join(told)


def _known(known: int, records: int) -> str:
    return "" if known == records else f" (told by {known} of {count(records, 'record')})"


def _failing(suite: SuiteFigures) -> str:
    head = ("test", "trial", "category", "expected", "decision", "score", "threshold", "backend", "model")
    table = told_table("#### Failing cases", head, map(_failing_row, suite.failing_first))
    more = suite.failing - len(suite.failing_first)
    return f"{table}\n\n{more} more are not shown." if more else table


def _failing_row(case: FailingCase) -> tuple[str, ...]:
    return (
        case.test_id,
        str(case.trial) if case.trial else DASH,
        case.category or "(empty)",
        case.expected,
        case.agent_decision,
        *score(case.score, case.threshold),
        case.backend,
        case.model,
    )
