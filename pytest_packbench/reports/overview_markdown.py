"""Render the figures of any number of records as Markdown: first the Rust report, then packbench's own figures.

The Rust report is byte for byte that of the original harness (spec, `eval_record.rs`), which escapes nothing. In all
other lines, text from records is escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.formatting import (
    format_interval,
    format_mean,
    format_percent,
    format_score_and_threshold,
)
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.records import RUST_CONDITIONS
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.metric import AUTHORED
from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.model.strict_json import U64_MAX
from pytest_packbench.reports.blocks import Points, Section, Table, Text, figure_tables, markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.analysis.records import Document
    from pytest_packbench.reports.blocks import Block, Row

_HOOKS_INTRO = (
    "Every check of the pipeline is counted, also checks of drafts: a case can pass after a check rejected a draft."
)
_NAMES = ("category", "mode", "backend", "model", "judge")
_RATES = (*_NAMES, "passed", f"{100 * CONFIDENCE:g} % Wilson interval", *EVAL_DECISIONS, "mean score")
_FAILING = ("test", "trial", "category", "expected", "decision", "score", "backend", "model")
_WHERE = "records.jsonl has all"
_FENCE = re.compile(r"`{3,}|~{3,}")


def overview_markdown(overview: Document) -> str:
    """Render an overview, as `analysis.records.overview` returns it.

    Returns:
        The Rust report if there is one, unchanged; then packbench's figures in GitHub Flavored Markdown, ended by one
        line end. Tables are limited to `MAX_ROWS` rows.
    """
    original, records, cases = overview["original"], overview["records"], overview["cases"]
    rust = "" if original is None else _closed(rust_report_markdown(original), original)
    runs = pluralize(len(overview["runs"]), "run")
    trials = "" if cases == records else f" ({pluralize(cases, 'case')}, {pluralize(records, 'trial')})"
    blocks: list[Block] = [
        Points(list(_notes(overview))),
        Table("Gates", ("suite", "result", "records", "arithmetic"), list(map(_gate_row, overview["gates"]))),
        *map(_run, overview["runs"]),
    ]
    title = f"packbench report: {runs}, {pluralize(records, 'record')}{trials}"
    return f"{rust}{markdown([Section(title, blocks)])}\n"


def rust_report_markdown(original: Document) -> str:
    """Render the figures as the Rust harness does. Nothing is escaped, so a category can break the table."""
    lines = [f"# B0 eval — run {original['run_id']}", ""]
    for suite in original["suites"]:
        condition = RUST_CONDITIONS[suite["suite"]]
        lines += [condition.heading, "", "| Category | passed | failed | rate |", "|---|---|---|---|"]
        for category, (passed, total) in suite["categories"].items():
            lines.append(f"| {category} | {passed}/{total} | {total - passed} | {_whole_percent(passed, total)} |")
        passed, total, verdict = suite["passed"], suite["total"], "PASS" if suite["is_met"] else "FAIL"
        rate = f"{passed} / {total} = {_whole_percent(passed, total)}"
        lines += ["", f"**Aggregate: {rate} — {verdict} ({condition.wording})**", ""]
    given, returned = original["tokens_input"], original["tokens_output"]
    # Rust's sum of both wraps too
    if (given + returned) & U64_MAX:
        lines += ["## Cost audit", "", f"Total tokens: {given} input + {returned} output"]
    return "".join(f"{line}\n" for line in lines)


def _whole_percent(passed: int, total: int) -> str:
    # dividing first, as Rust does: 23 / 40 is 57 %, not 58 %
    return f"{passed / total * 100:.0f}%"


def _closed(lines: str, original: Document) -> str:
    """Return the Rust report with lines that close what unescaped names with line ends may have opened.

    These are HTML, comments and code fences. A fence is opened by a line with words and closed by one without: the
    first of the two does not close anything, and the second closes whichever is open.
    """
    names = [original["run_id"], *(name for suite in original["suites"] for name in suite["categories"])]
    if any("\n" in name or "\r" in name for name in names):
        longest = max((len(fence) for fence in _FENCE.findall(lines)), default=3)
        fences = "".join(f"{char * longest} end of the Rust report\n{char * longest}\n\n" for char in "`~")
        lines += f"\n</details></pre></script></style></textarea> --> ?> ]]>\n\n{fences}"
    return lines if lines.endswith("\n\n") else f"{lines}\n"


def _notes(overview: Document) -> Iterator[str]:
    skipped, duplicates = overview["skipped"], overview["duplicates"]
    suites = [suite for run in overview["runs"] for suite in run["suites"]]
    rows = [row for suite in suites for row in suite["rows"]]
    if duplicates["count"]:
        names = ["run {run_id}, {test_id}, trial {trial}".format(**each) for each in duplicates["first"]]
        yield (
            f"{pluralize(duplicates['count'], 'duplicate')} (same run, test id and trial; the first record counts), of "
            f"which {duplicates['conflicting']} ended differently: {_some(names, duplicates['names'])}."
        )
    if skipped is not None:
        problems = f": {_some(skipped['first'], skipped['count'])}" if skipped["count"] else ""
        yield f"{pluralize(skipped['count'], 'unreadable line')} skipped{problems}."
    if overview["other_runs"]:
        yield f"{pluralize(overview['other_runs'], 'record')} of other runs ignored."
    notes = {
        "The lines above are the Rust report. It merges runs, counts duplicates and covers "
        f"{' and '.join(RUST_CONDITIONS)} only; the figures below do not.": overview["original"],
        "Errors and cases that did not run are not included: they are in errors.jsonl, which is read if you pass the "
        "run's folder.": not overview["with_errors"],
        f"Intervals are two-sided {100 * CONFIDENCE:g} % Wilson intervals. They assume independent cases: if cases "
        "share parts, the uncertainty is larger than shown.": any(row["passed"]["interval"] for row in rows),
        f"Answers of the backend {AUTHORED} were authored or scripted: counts only, without intervals. They say "
        "nothing about a model.": any(row["backend"] == AUTHORED for row in rows),
        "Trials of the same case are not independent: rates over several trials have no interval.": any(
            suite["cases"] != suite["effort"]["records"] for suite in suites
        ),
        "No gate is judged here; packbench gate RUN judges a run by the gates of its suite.": not overview["gates"],
        "Figures of fixture mode show whether the pipeline or the scoring changed, not how good a model is.": any(
            row["mode"] == FIXTURE for row in rows
        ),
    }
    yield from (note for note, applies in notes.items() if applies)


def _some(first: Sequence[str], number: int) -> str:
    """Return the first of a number of texts, and how many more there are."""
    return "; ".join([*first, *[f"{number - len(first)} more"] * (number > len(first))])


def _gate_row(gate: Document) -> Row:
    arithmetic, _, verdict = gate["text"].rpartition(": ")
    records = "as in the Rust report" if gate["run_id"] is None else f"run {gate['run_id']}, without duplicates"
    return gate["suite"], verdict, records, arithmetic


def _run(run: Document) -> Section:
    blocks: list[Block] = [Text(_effort(run["effort"]))] if len(run["suites"]) > 1 else []
    blocks += map(_suite, run["suites"])
    for report in run["reports"]:
        name, controls = report["suite"], report["controls"]
        blocks += [Text(f"Controls of {name}: {controls}.")] if controls else []
        blocks += figure_tables(report["figures"], f"Figures of {name}", defined=True)
    return Section(f"Run {run['run_id'] or '(empty)'}", blocks)


def _suite(suite: Document) -> Section:
    cases, records = suite["cases"], suite["effort"]["records"]
    trials = f"{pluralize(cases, 'case')}, {pluralize(records, 'trial')}. " if cases != records else ""
    counts = ", ".join(f"{number} {name}" for name, number in suite["verdicts"].items())
    hooks = Table("", ("rule", "hook", "decision", "count"), [tuple(each.values()) for each in suite["hooks"]])
    return Section(
        suite["suite"],
        [
            Text(f"{trials}Verdicts{' of trials' if trials else ''}: {counts}."),
            Table("", _RATES, list(map(_rate_row, suite["rows"]))),
            Table("By category", _RATES, list(map(_rate_row, suite["categories"]))),
            Section("Hook decisions by rule", [Text(_HOOKS_INTRO), hooks] if hooks.rows else []),
            Text(_effort(suite["effort"])),
            Table("Failing cases", _FAILING, list(map(_failing_row, suite["failing_first"])), suite["failing"], _WHERE),
        ],
    )


def _rate_row(row: Document) -> Row:
    passed, of, interval = (row["passed"][name] for name in ("count", "of", "interval"))
    return (
        # only the rows by category have one
        row["category"] or "(empty)" if "category" in row else None,
        *(row[name] for name in _NAMES[1:]),
        f"{passed} / {of} = {format_percent(passed, of)}",
        format_interval(interval),
        *(row[decision] for decision in EVAL_DECISIONS),
        format_mean(row["mean_score"]),
    )


def _effort(effort: Document) -> str:
    def coverage(known: int) -> str:
        records = effort["records"]
        return "" if known == records else f" (reported by {known} of {pluralize(records, 'record')})"

    tokens = "Tokens: not known."
    if effort["tokens_known"]:
        amounts = f"{effort['tokens_input']} input + {effort['tokens_output']} output"
        tokens = f"Tokens: {amounts}{coverage(effort['tokens_known'])}."
    used = f"{tokens} Wall clock: {effort['wall_clock_ms'] / 1000:.1f} s summed over the records."
    if effort["cost_usd"] is None:
        return used
    return f"{used} Cost: {effort['cost_usd']:.4f} USD{coverage(effort['cost_known'])}."


def _failing_row(case: dict[str, Any]) -> Row:
    return (
        case["test_id"],
        case["trial"] or None,
        case["attack_category"] or "(empty)",
        case["expected"],
        case["agent_decision"],
        format_score_and_threshold(case["score"], case["threshold"]),
        case["llm_backend"],
        case["llm_model"],
    )
