"""The end of a run in plain lines for a terminal: no colours, and nothing in them that a terminal would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import count, judge, limits
from pytest_packbench.analysis.figures import average, interval, percent, score, terms_text
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.trials import rule_of
from pytest_packbench.model.result import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_packbench.analysis.statistics import Statistics, Totals
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

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


def table(
    run: Run, entries: Iterable[CaseResult] | Listing, statistics: Statistics, gate_results: Sequence[GateResult]
) -> list[str]:
    """Say how a run ended.

    Args:
        run: what is true of all entries.
        entries: one for each selected case, or for each trial of it; or what a listing kept of them, at least
            `MOST_CASES` of each table; in the order to show.
        statistics: the numbers of these entries.
        gate_results: how the gates decided on them.

    Returns:
        Lines without their ends: totals, what decided, what the run can and can't tell, case types, gates, and at most
        `MOST_CASES` each of the cases that failed, that broke, and whose recordings are stale.
    """
    listing = entries if isinstance(entries, Listing) else Listing("given", MOST_CASES).take(entries, rule_of(run))
    return [
        totals_line(statistics.totals),
        *(
            one_line(line, _SENTENCE)
            for line in (judge(run, statistics, gate_results).sentence, *limits(run, statistics))
        ),
        "",
        *_columns(_group_rows(statistics), numbers=True),
        *_sentences("gates", [result.text for result in gate_results]),
        *_section("failed", listing, "failed", _failed_row),
        *_section("broken", listing, "broken", _broken_row),
        *_section("stale: the recording answered another prompt than today's", listing, "stale", _stale_row),
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


def _group_rows(statistics: Statistics) -> Iterator[tuple[str, ...]]:
    wilson = f"{100 * statistics.confidence:g} % Wilson"
    yield ("case type", "passed", "rate", "mean score", *([wilson] if statistics.has_intervals else ()))
    for group in (*statistics.grouped().get("case_type", ()), statistics.overall):
        yield (
            "all" if group is statistics.overall else one_line(group.value) or UNREADABLE,
            f"{group.passed} / {group.n}",
            percent(group.passed, group.n),
            average(group.mean_score),
            *([interval(group.interval)] if statistics.has_intervals else ()),
        )


def _failed_row(case: CaseResult) -> tuple[str, ...]:
    shown, bound = score(case.score, case.threshold)
    return case.case_id, f"{shown} < {bound}", terms_text(case.terms)


def _broken_row(case: CaseResult) -> tuple[str, ...]:
    return case.case_id, case.kind or case.verdict, case.message


def _stale_row(case: CaseResult) -> tuple[str, ...]:
    return (case.case_id,)


def _sentences(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {one_line(line, _SENTENCE)}" for line in lines)] if lines else []


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
    return ["  ".join(_padded(row, widths, numbers=numbers)).rstrip() for row in rows]


def _padded(row: tuple[str, ...], widths: list[int], *, numbers: bool) -> Iterator[str]:
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if numbers and column else cell.ljust(width)


def _shown(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return " " if char.isspace() and char not in _OBEYED else char.encode("unicode_escape").decode("ascii")
