"""What reports say, in their order: of a run what decides about a release first, of a comparison what got worse.

The functions return blocks, which a page, a terminal and the job summary share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import Conclusion, caveats, run_verdict
from pytest_packbench.analysis.counting import (
    MAX_ROWS,
    Listing,
    Statistics,
    name_some,
)
from pytest_packbench.analysis.statistics import (
    CONFIDENCE,
    capitalized,
    format_change,
    format_duration,
    format_interval,
    format_mean,
    format_percent,
    format_score_and_threshold,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import FIXTURE, UNREADABLE_GROUP, Result
from pytest_packbench.model.run import recorded_spending
from pytest_packbench.model.suite import GateResult, gates_text
from pytest_packbench.reports.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Points,
    Row,
    Section,
    Table,
    Text,
    figure_tables,
    interval_svgs,
    markdown,
    minute,
    text,
    verdict_cell,
)
from pytest_packbench.reports.terminal import lost_terms, one_line, policy_lines, quoted, spent_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.recording import ControlTally
    from pytest_packbench.model.report import Group, Outline, Totals, TrialFigures
    from pytest_packbench.model.run import Run


MAX_CASES = 20
"""How many cases of a kind a terminal lists, unless more are asked for."""
# rows of a table on the first screen of a page, and cases in a command
_FIRST = 10
_ANSWER = 160
_WILSON = f"{100 * CONFIDENCE:g} % Wilson interval"
_WHEN = {
    "mean": "the mean score of its trials is at or above the threshold",
    "all": "all of its trials pass",
    "any": "any of its trials passes",
}
_UNJUDGED = {
    "error": "Errors (no score)",
    "vacuous": "Vacuous (could not have failed)",
    "not_run": "Not run",
    "known_hole": "Known holes",
    "quarantined": "Quarantined (by the notes of the case)",
}
_JUDGED = ("type", "score", "match", "depth", "answer", "trials passed")


def _score(case: Result) -> str | None:
    return None if case.score.score is None else format_score_and_threshold(case.score.score, case.score.threshold)


_COLUMNS: dict[str, Callable[[Result], str | int | Cell | None]] = {
    "verdict": lambda case: verdict_cell("quarantined" if case.score.quarantined else case.score.verdict),
    "type": lambda case: case.case.case_type,
    "score": _score,
    "match": lambda case: case.score.match_level,
    "depth": lambda case: case.score.match_depth,
    "trials passed": lambda case: "{} / {}".format(*case.trials) if case.trials[1] > 1 else None,
    "input": lambda case: one_line(case.score.input_text, _ANSWER),
    "expected": lambda case: one_line(case.score.expected_text, _ANSWER),
    "actual": lambda case: one_line(case.score.actual_text or case.score.answer or "", _ANSWER),
    "answer": lambda case: case.score.answer,
    "points lost by": lambda case: ", ".join(term.name for term in lost_terms(case.score.terms)),
    "terms": lambda case: format_terms(case.score.terms),
    "terms in detail": lambda case: format_terms(case.score.terms, details=True),
    "kind": lambda case: case.score.kind,
    "message": lambda case: case.score.message,
    "file": lambda case: case.case.file,
}
"""What a table of cases may say of each case."""
# the score of a case is that of all its trials, and these are those of one
_OF_WORST = frozenset({"actual", "points lost by", "terms", "terms in detail"})


class Place(NamedTuple):
    """What links and commands of a page depend on.

    Attributes:
        root: the path or address from the page to the folder that the files of results are relative to; None if a
            reader of the page can't open them.
        options: the options of pytest that make the same run, quoted for a shell.
    """

    root: str | None = None
    options: str = ""

    def address(self, file: str) -> str:
        """Return where the file of a case is, from the page; empty if a reader can't open it."""
        path, colon, line = file.rpartition(":")
        path, anchor = (path, f"#L{line}") if colon and line.isdecimal() else (file, "")
        outside = not path or path.startswith(("bundled:", "/")) or ".." in path.split("/")
        if self.root is None or outside or "\\" in path or not path.isprintable():
            return ""
        return f"{self.root}/{quote(path)}{anchor}"


NOWHERE = Place()


def summary_markdown(conclusion: Conclusion, *, max_rows: int = MAX_ROWS, place: Place = NOWHERE) -> str:
    """Render the summary of a run: one screen that decides, then the details, folded.

    Args:
        conclusion: what it came to.
        max_rows: how many rows of a table are rendered, 1 to `MAX_ROWS`.
        place: where the page is read.

    Returns:
        GitHub Flavored Markdown that ends with one line end.
    """
    run, verdict, listing = conclusion.run, run_verdict(conclusion), conclusion.page_cases
    failed = ("score", "trials passed", "input", "expected", "actual", "points lost by")
    blocks = [
        Text(verdict.sentence, strong=True),
        Points(
            [
                *_baseline_lines(conclusion),
                *policy_lines(conclusion.policy),
                *_first_sentences(conclusion),
                *_controls_line(conclusion.controls),
            ]
        ),
        wrong_controls(conclusion.controls),
        gates_table([gate for gate in conclusion.gates if not gate.passed], "Failed gates"),
        *_changes(conclusion),
        case_table(
            "Failed",
            listing,
            ["failed"],
            failed,
            max_rows=_FIRST,
            name=lambda case: Cell(case.case.case_id, href=place.address(case.case.file)),
        ),
        *error_blocks(listing, _FIRST),
        *figure_tables(figure for figure in conclusion.figures if figure.headline),
        Text(used_sentence(conclusion)),
        *_command(listing, run, place),
        *_folded_parts(conclusion),
    ]
    page = Section(f"packbench: {run.suite} - {verdict.headline}", blocks)
    return markdown([page], max_rows=max_rows) + "\n"


def summary_lines(conclusion: Conclusion, *, max_cases: int = MAX_CASES) -> list[str]:
    """Summarize a run for a terminal.

    Args:
        conclusion: what it came to.
        max_cases: how many rows each list of cases has.

    Returns:
        Lines without their ends. A run that could not be compared with its baseline, and fails because of it, says so
        first.
    """
    listing = conclusion.page_cases
    since = Points(_baseline_lines(conclusion))
    is_unseen = conclusion.baseline is not None and conclusion.baseline.fails_unseen
    totals, *sentences = _first_sentences(conclusion)
    return text(
        [
            *([since] if is_unseen else []),
            Points([totals, run_verdict(conclusion).sentence, *sentences]),
            *figure_tables(figure for figure in conclusion.all_figures if figure.headline),
            *rate_tables(conclusion.statistics, ["case_type"]),
            Section("Gates", [Points([gate.text for gate in conclusion.gates])]),
            case_table("Failed", listing, ["failed"], ("score", "trials passed", "terms"), max_rows=max_cases),
            *error_blocks(listing, max_cases),
            case_table("Stale recordings", listing, ["stale"], (), max_rows=max_cases),
            *([] if is_unseen else [since]),
            Points(policy_lines(conclusion.policy)),
        ]
    )


def _first_sentences(conclusion: Conclusion) -> list[str]:
    """Return what a reader has to know before the numbers: how many cases there are, and what they can show."""
    return [totals_line(conclusion.statistics.totals), *caveats(conclusion)]


def totals_line(totals: Totals) -> str:
    """Return the totals in one line, without zero counts except that of `passed`."""
    verdicts = [f"{number} {verdict}" for verdict, number in totals.verdicts.items() if number or verdict == "passed"]
    quarantined = ", ".join(f"{number} {kind}" for kind, number in totals.quarantined.items() if number)
    parts = (
        ", ".join(verdicts),
        f"quarantined {quarantined}" if quarantined else "",
        pluralize(totals.stale, "stale recording") if totals.stale else "",
    )
    return f"{pluralize(totals.selected, 'case')}: {'; '.join(filter(None, parts))}"


def _baseline_lines(conclusion: Conclusion) -> list[str]:
    if conclusion.baseline is None:
        return []
    from pytest_packbench.reports.diff import baseline_lines

    return [f"baseline: {line}" for line in baseline_lines(conclusion.baseline)]


def _changes(conclusion: Conclusion) -> Iterator[Table]:
    if conclusion.compared is not None:
        from pytest_packbench.reports.diff import worst_changes

        yield worst_changes(conclusion.compared, _FIRST)


def control_lines(tally: ControlTally | None) -> list[str]:
    """Return what a terminal says of the controls of a run: how many ended as written, and which did not."""
    return text([Points(_controls_line(tally)), wrong_controls(tally, MAX_CASES)])


def _controls_line(tally: ControlTally | None) -> list[str]:
    return [] if tally is None else [tally.line("(wrong answers that must be noticed) ")]


def wrong_controls(tally: ControlTally | None, max_rows: int = MAX_ROWS) -> Table:
    """Return the controls that did not end as written."""
    wrong = () if tally is None else tally.wrong
    head = ("control", "case", "what is wrong with the answer", "how it ended instead")
    rows = [(each.control, each.case, each.description, each.message) for each in wrong[:max_rows]]
    return Table("Controls that deviate or could not be replayed", head, rows, len(wrong))


def gates_table(
    gates: Sequence[GateResult], title: str = "", draw: Callable[[GateResult], str] = lambda _: ""
) -> Table:
    """Return how each gate decided, with its arithmetic; `draw` returns a drawing of it for HTML."""
    return Table(
        title,
        ("gate", "result", "arithmetic", "against the limit"),
        [(*_gate_cells(gate), Cell("", svg=draw(gate))) for gate in gates],
    )


def _gate_cells(gate: GateResult) -> tuple[str, Cell, str]:
    verdict, color = ("PASS", "pass") if gate.passed else ("FAIL", "fail")
    arithmetic = gate.text.removeprefix(gate.subject).removesuffix(f": {verdict}").lstrip(": ")
    if not gate.judged:
        verdict, color = "not judged", "plain"
    elif gate.proven is False:
        verdict, color = f"{verdict}, not proven", "warn" if gate.passed else "fail"
    return gate.subject, Cell(verdict, color=color), arithmetic


def case_table(
    title: str,
    listing: Listing,
    tables: Sequence[str],
    columns: Sequence[str],
    *,
    max_rows: int = MAX_ROWS,
    name: Callable[[Result], Cell] = lambda case: Cell(case.case.case_id),
) -> Table:
    """Return a table of cases.

    Args:
        title: what it shows.
        listing: the cases of the run.
        tables: which of its tables, one after the other.
        columns: what it says of each case, by the names of `_COLUMNS`.
        max_rows: how many rows it has of each table at most, 1 to `MAX_ROWS`; the others are counted.
        name: returns what names a case.
    """
    rows = [
        (name(case), *(_COLUMNS[column](case) for column in columns))
        for table in tables
        for case in listing.first(table, max_rows)
    ]
    worst = _OF_WORST if listing.repeated else frozenset()
    head = ("case", *(f"{column} (worst trial)" if column in worst else column for column in columns))
    return Table(title, head, rows, sum(map(listing.count, tables)))


def error_blocks(listing: Listing, max_groups: int) -> Iterator[Block]:
    """Yield the errors of most cases, equal ones together."""
    groups = listing.error_groups(max_groups)
    rows = [
        (
            name_some([case.case.case_id for case in group.first], group.count),
            group.count if group.count > 1 else None,
            score.kind or score.verdict,
            score.message,
        )
        for group in groups
        for score in (group.first[0].score,)
    ]
    yield Table("Errors and vacuous cases", ("case", "cases", "kind", "message"), rows)
    hidden = listing.count("broken") - sum(group.count for group in groups)
    if hidden:
        yield Text(f"{pluralize(hidden, 'more case')} without a score; report.json lists all.")


def used_sentence(conclusion: Conclusion) -> str:
    """Return what a live run used, and how long its attempts took; empty in fixture mode."""
    run, times = conclusion.run, conclusion.times
    if run.mode == FIXTURE:
        return ""
    spent = recorded_spending(run)
    used = "used: calls, tokens and cost not known" if spent is None else spent_text(spent)
    took = ""
    if times is not None:
        p50, p95 = (format_duration(value) for value in (times.p50_ms, times.p95_ms))
        took = f"; {pluralize(times.attempts, 'attempt')}: p50 {p50}, p95 {p95}"
    return f"{capitalized(used)}{took}."


def _command(listing: Listing, run: Run, place: Place) -> Iterator[Block]:
    """Yield the command that runs the cases again that did not pass."""
    cases = [case for name in ("failed", "broken") for case in listing.first(name, _FIRST)][:_FIRST]
    if not cases:
        return
    total = listing.count("failed") + listing.count("broken")
    if run.bundled:
        names = (
            f"--packbench-suite={quoted(run.requested_suite)} -k {quoted(' or '.join(c.case.case_id for c in cases))}"
        )
    else:
        names = " ".join(quoted(case.case.nodeid) for case in cases)
    which = f"the {total} cases" if total > 1 else "the case"
    if total > len(cases):
        which = f"the first {len(cases)} of {total} cases"
    yield Text(f"To re-run {which} that did not pass:")
    yield Code(f"pytest {names} {place.options}".rstrip())


def _folded_parts(conclusion: Conclusion) -> Iterator[Section]:
    run, statistics, listing = conclusion.run, conclusion.statistics, conclusion.page_cases

    def folded(title: str, *blocks: Block) -> Section:
        return Section(title, blocks, folded=True)

    yield folded(f"Gates: {gates_text(conclusion.gates)}", gates_table(conclusion.gates))
    yield folded("Figures and what they mean", *figure_tables(conclusion.all_figures, defined=True))
    yield folded(
        "Rates by group",
        trials_section(run, statistics.trials),
        *rate_tables(statistics),
        depth_table(statistics),
        refusals_table(statistics),
    )
    yield folded(
        f"Failed: {listing.count('failed')}, with the terms of their scores",
        case_table("", listing, ["failed"], (*_JUDGED, "terms in detail")),
    )
    without = sum(map(listing.count, _UNJUDGED))
    unjudged = (case_table(title, listing, [name], ("kind", "message", "file")) for name, title in _UNJUDGED.items())
    yield folded(f"Without a verdict that counts: {without}", *unjudged)
    yield folded(f"Passed: {listing.count('passed')}", case_table("", listing, ["passed"], (*_JUDGED, "terms")))
    stale = case_table("", listing, ["stale"], ("file",))
    yield folded(f"Stale recordings: {listing.count('stale')}", stale)
    yield folded("About this run", about(run, statistics))


def trials_section(run: Run, figures: TrialFigures | None) -> Section:
    """Return what repeating the cases showed; a section without blocks if each case had one trial."""
    if figures is None:
        return Section("Trials", ())
    temperature = run.settings.get("temperature")
    mean = f"mean score {format_mean(figures.mean_score)}"
    if figures.standard_error is not None:
        mean += f", standard error {figures.standard_error:.3f} (clustered by case)"
    said = (
        f"{figures.trials} trials per case at temperature {'not set' if temperature is None else temperature}; "
        f"a case passes when {_WHEN.get(figures.rule, f'{figures.rule} of its trials pass')}. "
        f"{pluralize(figures.cases, 'case')} with {pluralize(figures.attempts, 'judged trial')}: {mean}. "
        "Rates, intervals and gates count cases, not trials; yes-or-no metrics of a case are those of its worst trial. "
        "The columns are pass@k and pass^k: unbiased estimates from all trials of a case, averaged over cases."
    )
    head = ("k", "at least one of k trials passes", "all of k trials pass", "cases")
    rows = [(each.k, _share(each.at_k), _share(each.hat_k), each.cases) for each in figures.passes]
    return Section("Trials", [Table("", head, rows), Text(said)])


def _share(value: float) -> str:
    return format_with_bounds(value, as_percent=True)[0]


def rate_tables(statistics: Statistics, names: Iterable[str] | None = None) -> list[Table]:
    """Return a table for what the cases are grouped by, or for some of these; the last row is of all cases."""
    groups, tables = statistics.grouped(), []
    for name in groups if names is None else groups.keys() & names:
        of = [*groups[name], statistics.overall]
        scale, drawings = interval_svgs([(group.pass_rate, group.interval) for group in of])
        *rows, last = (_rate_row(group, drawing) for group, drawing in zip(of, drawings, strict=True))
        head = (name.replace("_", " "), "passed", "rate", _WILSON, "mean score", "not judged", scale)
        tables.append(Table(f"By {head[0]}", head, rows, last=[last], numbers=range(1, 6)))
    return tables


def _rate_row(group: Group, drawing: str) -> Row:
    return (
        group.value or (UNREADABLE_GROUP if group.name else "all cases"),
        f"{group.passed} / {group.n}",
        format_percent(group.passed, group.n),
        format_interval(group.interval),
        format_mean(group.mean_score),
        group.selected - group.n or None,
        Cell("", svg=drawing),
    )


def depth_table(statistics: Statistics) -> Table:
    """Return how many answers agree at least to each level of depth."""
    rows = [
        (
            depth.level,
            f"{depth.agreeing} / {depth.n}",
            format_percent(depth.agreeing, depth.n),
            format_interval(depth.interval),
        )
        for depth in statistics.depth
    ]
    return Table("Depth of agreement", ("at least", "answers", "share", _WILSON), rows, numbers=(1, 2))


def refusals_table(statistics: Statistics) -> Table:
    """Return the refusals that were expected and those that were not, if there are any."""
    of, unread = statistics.refusals, statistics.unread_answers
    rows = [("refusal", of.due_refused, of.due_answered), ("answer", of.undue_refused, of.undue_answered)]
    if not (of.due_refused or of.due_answered or of.undue_refused):
        rows = []
    head: tuple[str, ...] = ("expected", "refused", "answered")
    if not any(unread):
        return Table("Refusals", head, rows, numbers=(1, 2))
    # what nobody can read is no answer
    split = [(*row[:2], row[2] - none, none) for row, none in zip(rows, unread, strict=False)]
    return Table("Refusals", (*head, "can't be read"), split, numbers=(1, 2, 3))


def trend_table(title: str, points: Sequence[Outline], known: Iterable[Mapping[str, Any]]) -> Table:
    """Return what like runs came to, and what changed from each to the next.

    Args:
        title: what the table shows.
        points: the runs, oldest first.
        known: of each, `change`: what changed since the run before, as `since` returns it, and in its
            `cases` how many were added, removed and so on; and `broken`: how many cases ended in an error, could not
            have failed, or did not run. What is not known may be left out or None.
    """
    rows = []
    for point, more in zip(points, known, strict=True):
        overall = point.overall
        rate, mean, rules, cases = map((more.get("change") or {}).get, ("pass_rate", "mean_score", "rules", "cases"))
        since = [f"trend broken: {', '.join(rules)} changed"] if rules else []
        since += [
            f"{pluralize(count, 'case')} {how.replace('_', ' ')}" for how, count in (cases or {}).items() if count
        ]
        rows.append(
            (
                Cell(point.run.run_id, css="mono"),
                minute(point.run.finished_at),
                verdict_cell(point.status),
                f"{overall.passed} of {overall.n}",
                more.get("broken") or None,
                format_percent(overall.passed, overall.n),
                format_interval(overall.interval),
                None if rate is None else f"{format_change(100 * rate, 1)} points",
                format_mean(overall.mean_score),
                None if mean is None else format_change(mean),
                "; ".join(since),
            )
        )
    head = ("run", "finished", "result", "passed", "broken", "pass rate", "95 % interval", "rate change", "mean score")
    return Table(title, (*head, "mean change", "since the run before"), rows, numbers=(3, 4, 5, 7, 8, 9))


def about(run: Run, statistics: Statistics) -> Facts:
    """Return what is true of all results of a run."""
    named = (
        *("suite", "description", "run_id", "started_at", "finished_at", "pack", "pack_version", "mode", "target"),
        *("backend", "model", "partial"),
    )
    facts = {name: getattr(run, name) for name in named} | {
        "rules": run.suite_sha256[:12],
        "answers from": _listed(statistics.models),
        "settings": _listed(run.settings),
        "versions": _listed(run.versions),
    }
    return Facts([(name.replace("_", " "), said) for name, said in facts.items() if said])


def _listed(values: Mapping[str, Any]) -> str:
    """Return names with their values, without values that are no text or number."""
    plain = {name: value for name, value in sorted(values.items()) if isinstance(value, str | int | float)}
    return ", ".join(f"{name} {value}" for name, value in plain.items())
