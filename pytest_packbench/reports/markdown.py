"""The run on one page of Markdown, for whoever decides about a release (design 5).

Text from models and cases is never trusted: it reaches the page through `cell` alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import count, judge, limits
from pytest_packbench.analysis.figures import DASH, aligned, average, interval, percent, score, terms_text
from pytest_packbench.analysis.trials import case_trials, folded, rule_of
from pytest_packbench.model.result import UNREADABLE
from pytest_packbench.reports.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.statistics import Group, Statistics, Totals
    from pytest_packbench.analysis.trials import TrialFigures
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

    Rows = Iterable[tuple[str | None, ...]]

# a page of more rows is read by nobody
MOST_ROWS = 200
_WIDTH = 120
# what explains a case that went wrong is worth more room than an answer
_WIDE = 400

_SPECIAL = str.maketrans(
    {
        **{char: f"\\{char}" for char in "\\|`*~[]$"},
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
    }
)
# viewers make links of bare addresses too; of mail, escaped or not, so that only a hair space parts it
_LINKS = (
    (re.compile("//"), r"/\\/"),
    (re.compile(r"(www)\.", re.IGNORECASE), r"\1\\."),
    (re.compile(r"@(?=\S)"), "@\u200a"),
)
# between letters or digits an underscore is no markup
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_HEADING = re.compile(r"^(?=#)")


# columns repeat themselves
@lru_cache(maxsize=1024)
def cell(text: str | None, limit: int = _WIDTH) -> str:
    """Make text harmless and whole in a table's cell or in a sentence of GitHub Flavored Markdown.

    Args:
        text: anything, also out of a model or a case; None for nothing.
        limit: characters shown at most, before escaping.

    Returns:
        One line without markup, links, images or HTML; a dash for None; cut with an ellipsis where too long.
    """
    if text is None:
        return DASH
    safe = _UNDERSCORE.sub(r"\\_", one_line(text, limit).translate(_SPECIAL))
    for pattern, replacement in _LINKS:
        safe = pattern.sub(replacement, safe)
    return _HEADING.sub(r"\\", safe)


def summary_markdown(
    run: Run,
    entries: Iterable[CaseResult],
    statistics: Statistics,
    gate_results: Sequence[GateResult],
    *,
    most: int = MOST_ROWS,
    worst_first: bool = False,
) -> str:
    """Write the summary of a run.

    Args:
        run: what is true of all entries.
        entries: one for each selected case, or for each trial of it; shown by case id, a row a case.
        statistics: the numbers of these entries.
        gate_results: how the gates decided on them.
        most: how many rows of a table are shown, 1 or more.
        worst_first: show what went wrong before the groups, and cases by how badly they did, not by their id.

    Returns:
        GitHub Flavored Markdown, ended by one line end. A table that is cut says how many rows there are.
    """
    judgement = judge(run, statistics, gate_results)
    attempts = list(entries)
    cases = sorted(folded(attempts, rule_of(run)), key=_badness if worst_first else _by_id)
    groups = [*_group_sections(statistics, most), _depth_section(statistics)]
    groups.append(section("Refusals", ("due", "refused", "answered"), _refusal_rows(statistics)))
    wrong, everything = _case_sections(cases, case_trials(attempts), most)
    parts = [
        f"# packbench: {cell(run.suite)} - {judgement.headline}",
        f"**{cell(judgement.sentence, _WIDE * 4)}**",
        "\n".join(f"- {cell(sentence, _WIDE)}" for sentence in limits(run, statistics)),
        _about(run),
        section("Totals", *_totals(statistics.totals)),
        _trials_section(run, statistics.trials),
        section("Gates", ("result", "arithmetic"), _gate_rows(gate_results), widths={1: _WIDE}, most=most),
        *((*wrong, *groups) if worst_first else (*groups, *wrong)),
        *everything,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _by_id(entry: CaseResult) -> tuple[str, str, int]:
    return entry.case_id, entry.test_id, entry.trial


def _badness(entry: CaseResult) -> tuple[int, float, str]:
    rank = 0 if entry.verdict in {"error", "vacuous"} else 1 if entry.verdict == "failed" else 2
    return rank, (entry.score or 0.0) - (entry.threshold or 0.0), entry.case_id


def _about(run: Run) -> str:
    model = f", asked {run.backend} / {run.model}" if run.backend and run.model else ""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items()))
    told = [
        f"Run {run.run_id}: pack {run.pack} {run.pack_version}, target {run.target}, {run.mode} mode{model}",
        f"{run.started_at} to {run.finished_at}",
        f"rules {run.suite_sha256[:12]}",
        versions,
    ]
    return cell("; ".join(part for part in told if part), _WIDE) + "."


def _totals(totals: Totals) -> tuple[tuple[str, ...], Rows]:
    outside = {f"quarantined: {kind}": number for kind, number in totals.quarantined.items()}
    counts = {"selected": totals.selected, **totals.verdicts, **outside, "stale recordings": totals.stale}
    return tuple(counts), [tuple(map(str, counts.values()))]


def _trials_section(run: Run, figures: TrialFigures | None) -> str:
    if figures is None:
        return ""
    temperature = run.settings.get("temperature")
    shown = "not set" if temperature is None else f"{temperature}"
    mean = f"mean score {average(figures.mean_score)}"
    if figures.standard_error is not None:
        mean += f", standard error {figures.standard_error:.3f} (clustered by case)"
    when = _WHEN.get(figures.rule, f"{figures.rule} of its trials pass")
    told = (
        f"{figures.trials} trials a case at temperature {shown}; a case passes when {when}. "
        f"{count(figures.cases, 'case')} with {count(figures.attempts, 'judged trial')}: {mean}. "
        "All rates, intervals and gates count cases, never trials; what a gate asks of a case with yes or no is "
        "answered by its worst trial."
    )
    head = ("k", "at least one of k trials passes", "all of k trials pass", "cases")
    rows = ((str(one.k), _share(one.at_k), _share(one.hat_k), str(one.cases)) for one in figures.passes)
    return "\n\n".join(part for part in (section("Trials", head, rows), cell(told, _WIDE * 2), _COLUMNS) if part)


_WHEN = {
    "mean": "the mean score of its trials reaches the threshold",
    "all": "all of its trials pass",
    "any": "one of its trials passes",
}
_COLUMNS = (
    "The columns are `pass@k` and `pass^k`, estimated without bias from all trials of a case and averaged over cases."
)


def _share(value: float) -> str:
    return aligned(value, as_percent=True)[0]


def _gate_rows(gate_results: Sequence[GateResult]) -> Rows:
    for result in gate_results:
        verdict = "PASS" if result.passed else "FAIL"
        yield verdict, result.text.removesuffix(f": {verdict}")


def _group_sections(statistics: Statistics, most: int) -> Iterator[str]:
    wilson = [_wilson(statistics)] if statistics.has_intervals else []
    for name, groups in statistics.grouped().items():
        head = (name, "passed", "judged", "pass rate", *wilson, "mean score", "not judged")
        rows = (_group_row(group.value or UNREADABLE, group, statistics) for group in groups)
        whole = [_group_row("all cases", statistics.overall, statistics)]
        yield section(f"By {name.replace('_', ' ')}", head, rows, last=whole, most=most)


def _wilson(statistics: Statistics) -> str:
    return f"{100 * statistics.confidence:g} % interval (Wilson, two-sided)"


def _group_row(label: str, group: Group, statistics: Statistics) -> tuple[str, ...]:
    return (
        label,
        str(group.passed),
        str(group.n),
        percent(group.passed, group.n),
        *([interval(group.interval)] if statistics.has_intervals else ()),
        average(group.mean_score),
        str(group.selected - group.n),
    )


def _depth_section(statistics: Statistics) -> str:
    head = ("at least", "answers", "share", *([_wilson(statistics)] if statistics.has_intervals else []))
    rows = (
        (
            str(depth.level),
            f"{depth.agreeing} / {depth.n}",
            percent(depth.agreeing, depth.n),
            *([interval(depth.interval)] if statistics.has_intervals else ()),
        )
        for depth in statistics.depth
    )
    return section("Depth of agreement", head, rows)


def _refusal_rows(statistics: Statistics) -> Rows:
    found = statistics.refusals
    if found.due_refused or found.due_answered or found.undue_refused:
        yield "a refusal", str(found.due_refused), str(found.due_answered)
        yield "an answer", str(found.undue_refused), str(found.undue_answered)


_UNJUDGED = {
    "error": "Errors: broken before a score",
    "vacuous": "Vacuous: could not have failed",
    "not_run": "Not run",
    "known_hole": "Known holes",
}


def _case_sections(
    entries: Sequence[CaseResult], trials: Mapping[tuple[str, str], tuple[int, int]], most: int
) -> tuple[list[str], list[str]]:
    """Give the sections of what went wrong, and those of all cases."""
    failed = [entry for entry in entries if entry.counted and entry.verdict == "failed"]
    # the terms are those of a case's worst trial
    column, worst = (("trials passed",), " (worst trial)") if trials else ((), "")
    head = ("case", "type", "score", "threshold", "match", "depth", "answer", *column, f"why{worst}")
    rows = (_failed_row(entry, _passes(entry, trials)) for entry in failed)
    wrong = [section("Failed", head, rows, widths={len(head) - 1: _WIDE}, most=most)]
    for verdict, title in _UNJUDGED.items():
        found = [entry for entry in entries if entry.verdict == verdict and not entry.quarantined]
        wrong.append(_reasons(title, found, most))
    wrong.append(_reasons("Quarantined by their notes", [entry for entry in entries if entry.quarantined], most))
    head = ("case", "verdict", "score", "threshold", "match", "depth", "answer", *column, f"terms{worst}")
    everything = section("All cases", head, (_case_row(entry, _passes(entry, trials)) for entry in entries), most=most)
    old = ((entry.case_id, entry.file) for entry in entries if entry.stale)
    stale = section("Stale: the recording answered another prompt than today's", ("case", "file"), old, most=most)
    return wrong, [everything, stale]


def _reasons(title: str, entries: Sequence[CaseResult], most: int) -> str:
    rows = ((entry.case_id, entry.kind, entry.message, entry.file) for entry in entries)
    return section(title, ("case", "kind", "message", "file"), rows, widths={2: _WIDE}, most=most)


def _passes(entry: CaseResult, trials: Mapping[tuple[str, str], tuple[int, int]]) -> tuple[str, ...]:
    if not trials:
        return ()
    passed, n = trials.get((entry.test_id, entry.file), (int(entry.verdict == "passed"), 1))
    return (f"{passed} / {n}",)


def _failed_row(entry: CaseResult, passes: tuple[str, ...]) -> tuple[str | None, ...]:
    return entry.case_id, entry.case_type, *_result(entry), *passes, terms_text(entry.terms, details=True)


def _case_row(entry: CaseResult, passes: tuple[str, ...]) -> tuple[str | None, ...]:
    verdict = f"quarantined: {entry.kind}" if entry.quarantined else entry.verdict
    return entry.case_id, verdict, *_result(entry), *passes, terms_text(entry.terms)


def _result(entry: CaseResult) -> tuple[str | None, ...]:
    depth = None if entry.match_depth is None else str(entry.match_depth)
    return *score(entry.score, entry.threshold), entry.match_level, depth, entry.answer


def section(
    title: str,
    head: tuple[str, ...],
    rows: Rows,
    *,
    last: Rows = (),
    widths: Mapping[int, int] | None = None,
    most: int = MOST_ROWS,
    rest: str = "all stand in report.json",
) -> str:
    """Write a heading and a table, or nothing where there is no row.

    Args:
        title: the heading.
        head: the names of the columns.
        rows: the cells of each row.
        last: rows that are shown after all others.
        widths: the width of columns of another width than usual, in characters.
        most: how many rows are shown, 1 or more.
        rest: what is said of those that are not.
    """
    rows = iter(rows)
    shown = list(islice(rows, most))
    if not shown:
        return ""
    hidden = sum(1 for _ in rows)
    more = f"\n\n{most} of {most + hidden} shown; {rest}." if hidden else ""
    return f"## {cell(title)}\n\n{_table(head, [*shown, *last], widths or {})}{more}"


def _table(head: tuple[str, ...], rows: Rows, widths: Mapping[int, int]) -> str:
    from tabulate import tabulate

    cells = [[cell(text, widths.get(column, _WIDTH)) for column, text in enumerate(row)] for row in rows]
    return tabulate(cells, headers=[cell(name) for name in head], tablefmt="github", disable_numparse=True)
