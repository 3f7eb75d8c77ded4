"""What people read in a terminal: what a live run asks and used, why a case doesn't pass, and how a run ended.

Plain lines without colours. Where text of a model or a case is in them, nothing is left that a terminal would obey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.figures import average, count, interval, percent, score, terms_text
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.model.run import WORKER_WINDOW
from pytest_packbench.model.score import describe_score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.listing import Listing
    from pytest_packbench.analysis.statistics import Statistics, Totals
    from pytest_packbench.model.pack import Comparison
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import ExpectedCalls, RunOptions
    from pytest_packbench.model.score import Score

MOST_CASES = 20
_WIDTH = 160
_SENTENCE = 1600
# white space that moves the cursor
_OBEYED = frozenset("\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029")


def printable(text: str) -> str:
    r"""Neutralise what a terminal or an editor would obey instead of show, and keep line ends.

    Args:
        text: anything, also out of a model or a case.

    Returns:
        The text with control and format characters (escape sequences, bidirectional overrides, surrogates,
        unassigned ones) as their escapes, such as `\x1b`, and every kind of space but the line end as a space.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def one_line(text: str, limit: int = _WIDTH) -> str:
    """Make text printable, in one line, of at most `limit` characters; an ellipsis shows that it was cut."""
    # of a very long text only the beginning is looked at
    seen = text[: 4 * limit]
    line = printable(" ".join(seen.split()))
    return line if len(line) <= limit and len(seen) == len(text) else f"{line[: limit - 1].rstrip()}…"


def expected_text(expected: ExpectedCalls, mode: str) -> str:
    """Say how many model calls a run is expected to make.

    Args:
        expected: the calls.
        mode: `live` or `record`.
    """
    trials = f" x {expected.trials} trials" if expected.trials > 1 else ""
    attempts = f"{_counted(expected.cases, 'case')}{trials}"
    more = "more model call" if expected.recorded else "model call"
    parts = [
        f"about {_counted(expected.recorded, 'model call')}, as recorded" if expected.recorded else "",
        f"at least {_counted(expected.unrecorded, more)}, for cases without a recording" if expected.unrecorded else "",
        f"{_counted(expected.external, 'attempt')} whose target asks no model of ours" if expected.external else "",
    ]
    return f"packbench: {attempts} to be run in {mode} mode: {'; '.join(filter(None, parts)) or 'nothing to ask'}"


def caps_text(options: RunOptions, *, shared: bool) -> str:
    """Say what bounds a live run; `shared`: several processes run it."""
    caps = options.caps
    named = (
        ("tokens", None if caps.tokens is None else f"{caps.tokens:,}"),
        ("cost", None if caps.cost is None else f"{caps.cost:g}"),
        ("seconds", None if caps.seconds is None else f"{caps.seconds:g}"),
    )
    told = ", ".join(f"{name} {cap}" for name, cap in named if cap is not None)
    if told and shared and (caps.tokens is not None or caps.cost is not None):
        told += " (workers share tokens and cost in equal parts)"
    told = told or "none (set one with --packbench-max-tokens, --packbench-max-cost or --packbench-max-seconds)"
    most = f"{min(options.concurrency, WORKER_WINDOW)} a worker" if shared else f"{options.concurrency}"
    limit = f", {options.case_timeout_s:g} s each" if options.case_timeout_s is not None else ", no time limit"
    return f"packbench: caps: {told}; attempts at once: {most}{limit}; temperature {options.temperature:g}"


def spent_text(spent: Mapping[str, Any]) -> str:
    """Say what a live run used, in one line.

    Args:
        spent: what its ledger says (`Ledger.as_json`).
    """
    if spent["uncounted"] and not spent["calls"] and not spent.get("cached"):
        # what a target asks by itself is known only as far as it tells
        others = f", others told of {spent['tokens']:,}" if spent["tokens"] else ""
        untold = f"{_counted(spent['uncounted'], 'answer')} of the target told no tokens{others}"
        return f"asked: no model call of ours; {untold}, cost unknown"
    cost = "cost unknown" if spent["cost"] is None else f"{spent['cost']:.4f} {spent['currency']}"
    uncounted = f" ({_counted(spent['uncounted'], 'call')} without a token count)" if spent["uncounted"] else ""
    cached = f", {spent['cached']:,} more answered from the cache" if spent.get("cached") else ""
    return f"asked: {_counted(spent['calls'], 'model call')}, {spent['tokens']:,} tokens{uncounted}, {cost}{cached}"


def headline(score: Score) -> str:
    """Say in one line how the case did: the first line of a failure is what summaries show.

    It names the terms that cost points, else those that gave none. Else the first term tells only where it is how the
    answer matched, or stands alone: of several criteria any may be the one that gave too little.
    """
    terms = score.terms
    costs = [term.name for term in terms if term.effect == "zero" or (term.effect == "add" and term.value < 0)]
    names = costs or [term.name for term in terms if term.effect == "add" and not term.value]
    if not names and (score.match_level is not None or len(terms) == 1):
        names = [term.name for term in terms[:1]]
    why = f" ({', '.join(names)})" if names else ""
    return f"{describe_score(score)}{why}"


def trials_lines(trials: Sequence[CaseResult], verdict: CaseResult, rule: str | dict[str, int]) -> list[str]:
    """Say how several trials of a case did, before the worst of them is shown.

    Args:
        trials: their results.
        verdict: the case's over them.
        rule: how that is made of them.
    """
    from pytest_packbench.analysis.trials import rule_text

    passed = sum(one.verdict == "passed" for one in trials)
    mean = "no mean"
    if verdict.score is not None:
        mean = f"mean score {verdict.score:.2f}, threshold {verdict.threshold:.2f}"
    return [
        f"{passed} of {len(trials)} trials passed, {mean} (rule: {rule_text(rule)})",
        "scores: " + ", ".join("-" if one.score is None else f"{one.score:.2f}" for one in trials),
        "",
        "the worst trial:",
    ]


def failure_text(head: Sequence[str], score: Score, rows: Iterable[Comparison], where: Sequence[str]) -> str:
    """Explain a case under its threshold: expected, actual, terms, where to look, how to re-run.

    Args:
        head: the first lines.
        score: the score that is too low.
        rows: expected against actual.
        where: the last lines.
    """
    compared = ((row.what, row.expected, row.actual) for row in rows)
    terms = ((term.points, term.name, term.detail) for term in score.terms)
    return printable(
        "\n".join(
            [
                *head,
                "",
                *_columns(filter(any, [("", "expected", "actual"), *compared])),
                "",
                *_columns(filter(any, [("points", "term", ""), *terms])),
                f"{score.score:.2f}  score (threshold {score.threshold:.2f})",
                "",
                *where,
            ]
        )
    )


def error_text(message: str, frames: Sequence[str], where: Sequence[str]) -> str:
    """Explain a case that broke: one line, the user's own frames of the traceback, how to re-run."""
    shown = ["", "in the code under test:", *(f"  {frame}" for frame in frames)] if frames else []
    return printable("\n".join([message, *shown, "", *where]))


def table(told: Conclusion) -> list[str]:
    """Say how a run ended.

    Returns:
        Lines without their ends: totals, what decided, what the run can and can't tell, case types, gates, and at most
        `MOST_CASES` each of the cases that failed, that broke, and whose recordings are stale.
    """
    from pytest_packbench.analysis.conclusion import judge, limits

    run, statistics, ends = told.run, told.statistics, told.ends
    gates = [f"  {one_line(gate.text, _SENTENCE)}" for gate in told.gates]
    return [
        totals_line(statistics.totals),
        *(one_line(line, _SENTENCE) for line in (judge(told).sentence, *limits(run, statistics))),
        "",
        *_columns(_group_rows(statistics), numbers=True),
        *(["", "gates:", *gates] if gates else []),
        *_section("failed", ends, "failed", _failed_row),
        *_section("broken", ends, "broken", lambda case: (case.case_id, case.kind or case.verdict, case.message)),
        *_section(
            "stale: the recording answered another prompt than today's", ends, "stale", lambda case: (case.case_id,)
        ),
    ]


def totals_line(totals: Totals) -> str:
    """Write the totals in one line; what there is none of is left out, but for `passed`."""
    ended = [f"{number} {verdict}" for verdict, number in totals.verdicts.items() if number or verdict == "passed"]
    outside = [f"{number} {kind}" for kind, number in totals.quarantined.items() if number]
    parts = [", ".join(ended)]
    if outside:
        parts.append(f"quarantined {', '.join(outside)}")
    if totals.stale:
        parts.append(f"{count(totals.stale, 'stale recording')}")
    return f"{count(totals.selected, 'case')}: {'; '.join(parts)}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _group_rows(statistics: Statistics) -> Iterator[tuple[str, ...]]:
    wilson = f"{100 * CONFIDENCE:g} % Wilson"
    yield ("case type", "passed", "rate", "mean score", *([wilson] if statistics.has_intervals else ()))
    for group in (*statistics.grouped().get("case_type", ()), statistics.overall):
        yield (
            "all" if group is statistics.overall else one_line(group.value) or UNREADABLE_GROUP,
            f"{group.passed} / {group.n}",
            percent(group.passed, group.n),
            average(group.mean_score),
            *([interval(group.interval)] if statistics.has_intervals else ()),
        )


def _failed_row(case: CaseResult) -> tuple[str, ...]:
    shown, bound = score(case.score, case.threshold)
    return case.case_id, f"{shown} < {bound}", terms_text(case.terms)


def _section(title: str, listing: Listing, name: str, row: Callable[[CaseResult], tuple[str, ...]]) -> list[str]:
    shown = [tuple(map(one_line, row(each.case))) for each in listing.first(name, MOST_CASES)]
    if not shown:
        return []
    hidden = listing.count(name) - len(shown)
    more = [f"  and {hidden} more"] if hidden else []
    return ["", f"{title}:", *(f"  {line}" for line in _columns(shown)), *more]


def _columns(rows: Iterable[tuple[str, ...]], *, numbers: bool = False) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # the first column is a name
    sides = [">" if numbers and column else "<" for column in range(len(widths))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def _shown(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return " " if char.isspace() and char not in _OBEYED else char.encode("unicode_escape").decode("ascii")
