"""What each section of the page says, as plain data for its template.

A part of a section is an object with the key `kind`: `text`, `heading`, `table`, `svg`, `key`, `list`, `facts`,
`details` or `columns`. The template escapes all texts; only drawings of `plots` are markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import caveats, run_verdict
from pytest_packbench.analysis.formatting import (
    DASH,
    figure_interval,
    figure_value,
    format_change,
    format_duration,
    format_interval,
    format_mean,
    format_percent,
    format_score,
    format_terms,
    format_with_bounds,
    grouped_figures,
)
from pytest_packbench.analysis.intervals import exact_bound
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.gate import CHANGE_METRICS
from pytest_packbench.model.metric import MEAN_SCORE
from pytest_packbench.model.policy import value_text
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.reports.page.plots import (
    BINS,
    Range,
    TrendMark,
    bar_svg,
    change_range,
    histogram_svg,
    interval_svg,
    share_range,
    trend_svg,
)
from pytest_packbench.reports.terminal import costs, one_line, spent_text
from pytest_packbench.runs.metadata import recorded_spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.baseline import BaselineOutcome
    from pytest_packbench.analysis.comparison import Change, RunComparison
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.listing import CaseRow
    from pytest_packbench.analysis.statistics import Group, Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.metric import Figure, Panel
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.reports.page import AttemptEffort, CaseNumbers, RunPage, TrendPoint

    Part = dict[str, Any]
    Cell = str | dict[str, Any]
    Link = Callable[[str], str]

_NONE = "\u2013"
SIGNS = {
    "passed": ("✓", "passed", "pass"),
    "failed": ("✗", "failed", "fail"),
    "error": ("!", "error", "broken"),
    "vacuous": ("∅", "vacuous", "warn"),
    "known_hole": ("○", "known hole", "plain"),
    "not_run": (_NONE, "not run", "plain"),
    "quarantined": ("‖", "quarantined", "plain"),
}
"""The sign, the words and the colour of each verdict."""
_STATUS = {"passed": ("✓", "pass"), "failed": ("✗", "fail"), "partial": (_NONE, "warn")}
_NUMERIC = frozenset({"count", "passed", "judged", "cases", "share", "mean score", "not judged", "score", "tokens"})
_TEXT = 300
_ANSWER = 160
_MAX_FLIPS = 50
_MAX_SMALL = 20
_MAX_PRINTED = 10
_FEW_GROUPS = 10
_FAILING = ("failed", "error")
_SWATCH = "0,0,18,12"
_P50, _P95 = 50, 95
_TENTH_OF_A_CENT = 0.001
_UP_TO_MINUTE = len("2026-05-04T12:30")


def run_view(page: RunPage, number: int, *, several: bool) -> dict[str, Any]:
    """Return what the page says of one run.

    Args:
        page: the run.
        number: its number on the page, from 0.
        several: whether the page has other runs.
    """
    conclusion, run = page.conclusion, page.conclusion.run

    def link(test_id: str) -> str:
        return f"#case={quote(test_id, safe='')}" + (f"&run={number}" if several else "")

    sections = [section for section in _sections(page, link if page.cases is not None else None) if section]
    verdict = run_verdict(conclusion)
    sign, color = _STATUS[verdict.status]
    backend = f"{run.backend} / {run.model}" if run.backend and run.model else ""
    about = (run.suite, f"{run.mode} mode", run.target, backend, _minute(run.finished_at), run.run_id)
    return {
        "number": number,
        "suffix": f"-{number + 1}" if several else "",
        "level": 2 if several else 1,
        "color": color,
        "sign": sign,
        "headline": _headline(verdict.headline),
        "sentence": verdict.sentence,
        "eyebrow": " · ".join(part for part in about if part),
        "tiles": list(_tiles(page)),
        "limits": [*caveats(run, conclusion.statistics), *page.notes, *_case_notices(page)],
        "sections": sections,
        "nav": [{"id": section["id"], "nav": section["nav"]} for section in sections if section["nav"]],
    }


def overview_table(pages: Sequence[RunPage]) -> Part:
    """Return a table of all runs of a page, each with a link to its verdict."""
    head = ("run", "suite", "mode", "target", "finished", "result", "passed", "mean score")
    rows = []
    for number, page in enumerate(pages, 1):
        run, overall = page.conclusion.run, page.conclusion.statistics.overall
        verdict = run_verdict(page.conclusion)
        sign, color = _STATUS[verdict.status]
        rows.append(
            _row(
                {"text": run.run_id, "href": f"#verdict-{number}", "cls": "mono"},
                run.suite,
                run.mode,
                run.target,
                _minute(run.finished_at),
                {"text": f"{sign} {verdict.status}", "badge": color},
                _number_cell(f"{overall.passed} of {overall.n}"),
                _number_cell(format_mean(overall.mean_score)),
            )
        )
    return _table(f"{len(pages)} runs", head, rows, numeric=(6, 7))


def _sections(page: RunPage, link: Link | None) -> Iterator[Part | None]:
    conclusion = page.conclusion
    yield _section("gates", "Gates", _gates(conclusion.gates))
    yield _section("policy", "Acceptance policy", _policy(conclusion), nav="Policy")
    yield _section("controls", "Controls", _controls(conclusion), screen=not _has_wrong_controls(conclusion))
    yield _section("baseline", "Since the baseline", _baseline(conclusion, link), nav="Changes")
    yield _printed_failures(conclusion)
    yield _section("trend", "Trend", _trend(page), screen=True)
    yield _section("scores", "Scores", _scores(page.numbers), screen=True)
    yield _section("rates", "Rates by group", _rates(conclusion.statistics), screen=True, nav="Rates")
    yield _section("figures", "Figures of the pack", _figures(conclusion, page.panels), screen=True, nav="Figures")
    yield _section("effort", "Time, tokens and cost", _effort(page, link), screen=True, nav="Effort")
    yield _cases(page, link)
    yield _section("about", "About this run", _about(page), screen=True, nav="About")


def _section(name: str, title: str, parts: Iterable[Part], *, nav: str = "", screen: bool = False) -> Part | None:
    found = list(parts)
    if not found:
        return None
    return {"id": name, "title": title, "nav": nav or title, "screen": screen, "parts": found}


def _tiles(page: RunPage) -> Iterator[dict[str, str]]:
    statistics, comparison = page.conclusion.statistics, _compared(page.conclusion)
    gates, controls = page.conclusion.gates, page.conclusion.controls
    overall, verdicts = statistics.overall, statistics.totals.verdicts
    interval = f"{format_percent(overall.passed, overall.n)} ({format_interval(overall.interval)})"
    some = "" if statistics.all_authored else f"{statistics.authored} of {overall.n} "
    authored = f"{some}answers authored: counts only" if overall.n else "nothing was judged"
    yield _tile("Passed", f"{overall.passed} of {overall.n}", interval if overall.interval else authored)
    yield _tile("Mean score", format_mean(overall.mean_score), f"of {pluralize(overall.n, 'judged case')}")
    if gates:
        yield _gates_tile(gates, in_shard="shard" in page.conclusion.run.settings)
    if controls is not None and controls.results:
        wrong = "fail" if controls.wrong else ""
        yield _tile("Controls", f"{controls.as_written} of {len(controls.results)}", "ended as written", wrong)
    unjudged = [
        f"{verdicts[name]} {SIGNS[name][1]}" for name in ("error", "vacuous", "known_hole", "not_run") if verdicts[name]
    ]
    quarantined = sum(statistics.totals.quarantined.values())
    unjudged += [f"{quarantined} quarantined"] if quarantined else []
    if unjudged:
        color = "broken" if verdicts["error"] else ""
        number = statistics.totals.selected - overall.n
        yield _tile("Not judged", str(number), ", ".join(unjudged), color)
    if comparison is not None:
        counts = comparison.counts()
        failing, fixed = counts["new_failures"], counts["fixed"]
        unseen = _unseen_failures(comparison)
        gone = f"; {unseen} that failed there not compared" if unseen else ""
        note = f"{fixed} recovered since the baseline{gone}"
        yield _tile("New failures", str(failing), note, "fail" if failing else "")
    yield from _effort_tiles(page)


def _gates_tile(gates: Sequence[GateResult], *, in_shard: bool) -> dict[str, str]:
    judged = sum(gate.judged for gate in gates)
    if not judged:
        return _tile("Gates", f"0 of {len(gates)}", "judged; packbench merge judges them" if in_shard else "judged")
    failed = sum(not gate.passed for gate in gates)
    note = "passed" if judged == len(gates) else f"passed, {len(gates) - judged} not judged"
    return _tile("Gates", f"{judged - failed} of {len(gates)}", note, "fail" if failed else "")


def _effort_tiles(page: RunPage) -> Iterator[dict[str, str]]:
    numbers, run = page.numbers, page.conclusion.run
    if run.mode == FIXTURE or numbers is None:
        return
    if numbers.durations:
        yield _tile(
            "Time, median",
            format_duration(_percentile(numbers.durations, _P50)),
            f"95 % within {format_duration(_percentile(numbers.durations, _P95))}",
        )
    spent = recorded_spending(run)
    yield _tile("Tokens", *_tokens(numbers, spent))
    yield _tile("Cost", *_cost(numbers, spent))


def _tokens(numbers: CaseNumbers, spent: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the tokens of a run and what they are of, as `spent_text` counts them; unknown ones are not 0."""
    if spent is None:
        of = f"of {numbers.tokens_known} of {len(numbers.durations)} attempts with a record"
        known = _thousands(numbers.tokens_input + numbers.tokens_output)
        return (known, of) if numbers.tokens_known else ("not known", "")
    if spent["tokens"] is None or (not spent["tokens"] and _is_unseen(spent)):
        return "not known", _unseen_calls(spent)
    notes = []
    if spent.get("cached"):
        notes.append(f"{_thousands(spent['cached'])} more answered from the cache")
    elif numbers.tokens_known and spent["tokens"]:
        notes.append(f"{_thousands(numbers.tokens_output)} output, of attempts with a record")
    if spent["uncounted"]:
        notes.append(f"{pluralize(spent['uncounted'], 'call')} without a count")
    return _thousands(spent["tokens"]), ", ".join(filter(None, [*notes, _unseen_calls(spent)]))


def _cost(numbers: CaseNumbers, spent: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the cost of a run and what it is of; a cost that is not known is not 0."""
    if spent is None:
        if numbers.cost_known:
            return f"{_money(numbers.cost_usd)} USD", f"of {numbers.cost_known} of {len(numbers.durations)} attempts"
        return "not known", ""
    unseen = _unseen_calls(spent)
    if spent["cost"] is None:
        uncounted = f"{pluralize(spent['uncounted'], 'call')} without a token count" if spent["uncounted"] else ""
        return "not known", (uncounted or "no price is set for the model") if spent["calls"] else unseen
    if _is_unseen(spent) and not spent["cost"]:
        return "not known", unseen
    calls = "" if spent["calls"] is None else pluralize(spent["calls"], "model call")
    return f"{_money(spent['cost'])} {spent['currency']}".rstrip(), ", ".join(filter(None, (calls, unseen)))


def _is_unseen(spent: Mapping[str, Any]) -> bool:
    """Whether nothing is known of the calls of a run: no call went through packbench, and some target ran."""
    return spent["calls"] is None or bool(spent.get("unmetered") and not spent["calls"])


def _unseen_calls(spent: Mapping[str, Any]) -> str:
    if spent.get("unmetered"):
        return f"calls of {pluralize(spent['unmetered'], 'attempt')} not seen"
    return "calls not seen" if spent["calls"] is None else ""


def _gates(gates: Sequence[GateResult]) -> Iterator[Part]:
    if not gates:
        yield _text("The suite has no gate.", "muted")
        return
    rows = []
    axes = [_gate_axis(gate) for gate in gates]
    common = len(set(filter(None, axes))) == 1
    for gate, axis in zip(gates, axes, strict=True):
        detailed = _needs_detail(gate)
        color, words = _gate_status(gate)
        plot: Cell = ""
        if gate.observed is not None and axis is not None:
            plot = {
                "svg": interval_svg(
                    gate.observed,
                    axis,
                    interval=gate.interval,
                    low=gate.min,
                    high=gate.max,
                    status=color,
                    ends=not common,
                    decisive=_exact_bounds(gate),
                ),
                "text": "",
            }
        counted = "" if gate.counted is None else f"{gate.counted[0]} of {gate.counted[1]}"
        cells = (
            gate.subject,
            {"text": words, "badge": color},
            _number_cell(_gate_value(gate, gate.observed)),
            _number_cell(counted or DASH),
            {"text": _gate_interval(gate), "cls": "nowrap"},
            {"text": _gate_limit(gate), "cls": "nowrap"},
            plot,
        )
        rows.append(_row(*cells, cls="has-detail" if detailed else ""))
        if detailed:
            text = gate.text.removesuffix(": PASS").removesuffix(": FAIL")
            rows.append({"cells": [{"text": text, "span": len(cells)}], "cls": "detail", "plain": True})
    ends = next(filter(None, axes), None)
    scale = f", {_axis_text(ends)}" if common and ends is not None else ""
    head = ("gate", "result", "value", "cases", "95 % interval", "limit", f"against the limit{scale}")
    failing, judged = sum(not gate.passed for gate in gates), sum(gate.judged for gate in gates)
    counts = [f"{failing} failed"] if failing else ["passed"] if judged == len(gates) else []
    if judged < len(gates):
        counts += [f"{judged - failing} passed"] if judged > failing else []
        counts.append("not judged" if not judged else f"{len(gates) - judged} not judged")
    yield _table(f"{pluralize(len(gates), 'gate')}: {', '.join(counts)}", head, rows, numeric=(2, 3))
    confident = any(_exact_bounds(gate) for gate in gates)
    yield _key(
        ("allowed", "values that pass"),
        ("limit", "limit"),
        ("interval", "95 % interval"),
        ("pass", "passed"),
        ("fail", "failed"),
        *([("plain", "value, where its exact bound decides")] if confident else ()),
    )


def _gate_status(gate: GateResult) -> tuple[str, str]:
    if not gate.passed:
        return "fail", "✗ failed"
    if not gate.judged:
        return "plain", f"{_NONE} not judged"
    return ("warn", "✓ passed, not proven") if gate.proven is False else ("pass", "✓ passed")


def _needs_detail(gate: GateResult) -> bool:
    """Whether the arithmetic says more than the columns."""
    named = gate.metric == "must_pass" or gate.metric in CHANGE_METRICS.values() or "baseline" in gate.text
    return gate.proven is False or gate.observed is None or (not gate.passed and named)


def _axis_text(axis: Range) -> str:
    return f"{100 * axis.low:g} to {100 * axis.high:g} %"


def _gate_axis(gate: GateResult) -> Range | None:
    """Return the axis of a gate; None for a count, which has no scale."""
    if gate.observed is None or gate.metric in {CHANGE_METRICS["max_regressions"], CHANGE_METRICS["max_new_failures"]}:
        return None
    shown = [
        gate.observed,
        *(gate.interval or ()),
        *_exact_bounds(gate),
        *(limit for limit in (gate.min, gate.max) if limit is not None),
    ]
    return change_range(shown) if gate.metric == CHANGE_METRICS["min_mean_change"] else share_range(shown)


def _gate_value(gate: GateResult, value: float | None) -> str:
    if value is None:
        return DASH
    if gate.metric == CHANGE_METRICS["min_mean_change"]:
        return format_change(value, 3)
    if gate.metric in CHANGE_METRICS.values():
        return f"{value:g}"
    limits = [limit for limit in (gate.min, gate.max) if limit is not None]
    return format_with_bounds(value, *limits, as_percent=gate.metric != MEAN_SCORE)[0]


def _gate_limit(gate: GateResult) -> str:
    limits = (("at least", gate.min), ("at most", gate.max))
    text = ", ".join(f"{word} {_gate_value(gate, limit)}" for word, limit in limits if limit is not None) or DASH
    return text if gate.confidence is None else f"{text}, with {100 * gate.confidence:g} % confidence"


def _exact_bounds(gate: GateResult) -> tuple[float, ...]:
    """Return the one-sided exact bounds that a gate with confidence compares instead of its value."""
    if gate.confidence is None or gate.counted is None:
        return ()
    sides = ((gate.min, False), (gate.max, True))
    return tuple(
        exact_bound(*gate.counted, gate.confidence, upper=upper) for limit, upper in sides if limit is not None
    )


def _gate_interval(gate: GateResult) -> str:
    if gate.interval is None:
        return DASH
    if gate.metric in CHANGE_METRICS.values():
        return f"{format_change(gate.interval[0], 3)} to {format_change(gate.interval[1], 3)}"
    return format_interval(gate.interval)


def _policy(conclusion: Conclusion) -> Iterator[Part]:
    outcome = conclusion.policy
    if outcome is None:
        return
    color = "fail" if outcome.failed else "pass"
    yield _text(_capitalized(outcome.headline) + ".", badge=color, sign="✗ failed" if outcome.failed else "✓ passed")
    if outcome.problems:
        yield _list(outcome.problems)
    ordered = sorted(outcome.changes, key=lambda change: bool(change.reason))
    rows = [
        _row(
            change.what,
            {"text": f"{change.file}: {change.key}" if change.key else change.file, "cls": "text mono"},
            change.case or DASH,
            {"text": one_line(value_text(change.old), _ANSWER), "cls": "answer"},
            {"text": one_line(value_text(change.new), _ANSWER), "cls": "answer"},
            {"text": f"allowed: {change.reason}" if change.reason else "✗ not allowed", "cls": "text"},
        )
        for change in ordered[:_MAX_FLIPS]
    ]
    head = ("change", "place", "case", "before", "now", "allowed")
    if rows:
        yield _table("Changes that are not known to be tighter", head, rows, total=len(ordered))
    if outcome.notes:
        yield _list(outcome.notes)


def _has_wrong_controls(conclusion: Conclusion) -> bool:
    return conclusion.controls is not None and bool(conclusion.controls.wrong)


def _controls(conclusion: Conclusion) -> Iterator[Part]:
    tally = conclusion.controls
    if tally is None:
        return
    wrong = tally.wrong
    sign = (
        ("fail", "✗ failed") if wrong else ("pass", "✓ passed") if tally.as_written else ("plain", f"{_NONE} not run")
    )
    yield _text(f"{_capitalized(tally.text)}.", badge=sign[0], sign=sign[1])
    yield _text("Controls are recordings of wrong answers, each with the end that it must have.", "intro")
    rows = [
        _row(
            result.control,
            result.case,
            {"text": result.description, "cls": "text"},
            {"text": one_line(result.message, _TEXT), "cls": "text"},
        )
        for result in wrong[:_MAX_FLIPS]
    ]
    head = ("control", "case", "what is wrong with the answer", "how it ended instead")
    if rows:
        yield _table("Controls that did not end as written", head, rows, total=len(wrong))


def _compared(conclusion: Conclusion) -> RunComparison | None:
    return None if conclusion.baseline is None else conclusion.baseline.compared


def _baseline(conclusion: Conclusion, link: Link | None) -> Iterator[Part]:
    outcome = conclusion.baseline
    if outcome is None:
        return
    comparison = outcome.compared
    if comparison is None:
        color, sign = ("fail", "✗ not compared") if outcome.fails_unseen else ("warn", f"{_NONE} not compared")
        yield _text(_capitalized(outcome.problem) + ".", badge=color, sign=sign)
        return
    from pytest_packbench.reports.diff import sentences

    notes = list(_about_comparison(outcome, comparison))
    yield from notes
    changes = {kind: rows.first for kind, rows in comparison.changes.items()}
    failed = {row.case.test_id: row.case for row in conclusion.page_cases.first("failed", MAX_ROWS)}
    counts = comparison.counts()
    listed: set[str] = set()
    for kind, title in (("new_failures", "New failures"), ("fixed", "Recovered")):
        yield from _flips(title, changes[kind], counts[kind], link, failed=failed, always=kind == "new_failures")
        listed.update(change.test_id for change in changes[kind])
    yield from _mean_change(comparison)
    for kind, title in (("regressed", "Lower scores"), ("improved", "Higher scores")):
        rest = [change for change in changes[kind] if change.test_id not in listed]
        yield from _flips(title, rest, len(rest), link, failed=failed, printed=False)
        listed.update(change.test_id for change in rest)
    yield from _other_cases(comparison, link)
    texts = [text for text in sentences(comparison) if text and text not in {note["text"] for note in notes}]
    if texts:
        yield {"kind": "details", "text": "What the numbers mean", "parts": [_list(texts)]}


def _about_comparison(outcome: BaselineOutcome, comparison: RunComparison) -> Iterator[Part]:
    """Yield what to know before the cases: what was compared, and what limits or fails the comparison."""
    from pytest_packbench.reports.diff import comparison_headline, trials_sentences

    baseline = comparison.baseline
    about = f"{_capitalized(comparison_headline(comparison))}, compared with run {baseline.run_id}"
    yield _text(f"{about} of {_minute(baseline.finished_at)}." if baseline.finished_at else f"{about}.")
    for text in comparison.differences:
        yield _text(f"The runs differ in {text}.", badge="warn", sign="! forced comparison")
    if outcome.warning:
        yield _text(_capitalized(outcome.warning) + ".", badge="warn", sign="! note")
    for text in trials_sentences(comparison) if len(set(comparison.trials)) > 1 else ():
        yield _text(text, badge="warn", sign="! note")
    if comparison.committed:
        yield _text("The baseline is the committed one; answers and terms are not stored in it.", "intro")
    for text in outcome.failures:
        yield _text(_capitalized(text) + ".", badge="fail", sign="✗ failed")


def _flips(
    title: str,
    changes: Sequence[Change],
    total: int,
    link: Link | None,
    *,
    failed: Mapping[str, CaseResult],
    always: bool = False,
    printed: bool = True,
) -> Iterator[Part]:
    """Yield a heading and a table of cases that changed, with both answers; `failed` has those that fail now."""
    if not changes and not always:
        return
    yield {"kind": "heading", "text": f"{title}: {total}", "cls": "" if printed else "no-print"}
    if not changes:
        yield _text("None.", "muted")
        return
    shown = changes[:_MAX_FLIPS]
    cells = [_flip_cells(change, failed.get(change.test_id)) for change in shown]
    names = ("expected", "actual", "why")
    # a column without a text says nothing
    filled = [name for name in names if any(each[name] for each in cells)]
    rows = []
    for change, texts in zip(shown, cells, strict=True):
        told = {name: _answer_cell(texts[name] or None) for name in names[:2]}
        told["why"] = {"text": one_line(texts["why"], _TEXT), "cls": "text muted why"}
        rows.append(
            _row(
                _case_cell(change.test_id, link),
                _verdict_cell(change.before, change.answer_before),
                _verdict_cell(change.after, change.answer_after),
                *(told[name] for name in filled if name != "why"),
                _number_cell(f"{format_mean(change.score_before)} → {format_mean(change.score_after)}"),
                *(told[name] for name in filled if name == "why"),
            )
        )
    pair = [name for name in filled if name != "why"]
    head = ("case", "in the baseline", "now", *pair, "score", *(["why"] if "why" in filled else []))
    caption = f"{title}: verdict, answer and score in the baseline and now"
    yield _table(caption, head, rows, numeric=(3 + len(pair),), total=total, printed=printed, quiet=True)


def _flip_cells(change: Change, case: CaseResult | None) -> dict[str, str]:
    """Return what was expected and what came instead, which belong together, and why the score changed."""
    reasons = list(_telling(change.reasons))
    if case is None:
        return {"expected": "", "actual": "", "why": "; ".join(reasons)}
    if change.answer_before == change.answer_after or not reasons:
        # equal answers do not show what became worse
        lost = costs(case.terms)
        reasons += [
            f"{term['name']}: {term['detail']}" for term in case.terms if term["name"] in lost and term["detail"]
        ]
    actual = case.actual_text or (case.answer if case.expected_text else "")
    return {"expected": case.expected_text, "actual": actual or "", "why": "; ".join(reasons)}


def _telling(reasons: Sequence[str]) -> Sequence[str]:
    """Return what changed without notes, which change no score, unless nothing else did."""
    return [reason for reason in reasons if not reason.endswith("(note)")] or reasons


def _mean_change(comparison: RunComparison) -> Iterator[Part]:
    mean = comparison.mean
    if mean is None:
        return
    known = not comparison.authored and mean.low is not None and mean.high is not None
    interval = (mean.low or 0.0, mean.high or 0.0) if known else None
    axis = change_range([mean.mean, *(interval or ())])
    seen = DASH if comparison.authored or mean.detectable is None else f"{mean.detectable:.3f}"
    # as in the sentences below: why there is none
    why = "authored" if comparison.authored else "one pair" if mean.n == 1 else "one cluster"
    cells = (
        "mean score",
        _number_cell(format_change(mean.mean, 3)),
        {
            "text": f"none: {why}" if interval is None else " to ".join(format_change(end, 3) for end in interval),
            "cls": "nowrap",
        },
        _number_cell(str(mean.n)),
        _number_cell(seen),
        _number_cell(f"{comparison.lost} lost, {comparison.won} won"),
        {"svg": interval_svg(mean.mean, axis, interval=interval), "text": ""},
    )
    axis_text = f"change, from {axis.low:+g} to {axis.high:+g}"
    head = ("figure", "change", "95 % interval", "pairs", "smallest change that would be seen", "flips", axis_text)
    yield {"kind": "heading", "text": "Mean change", "cls": "no-print"}
    caption = "Change of the mean score over unchanged cases"
    yield _table(caption, head, [_row(*cells)], numeric=(1, 3, 4, 5), printed=False, quiet=True)


def _other_cases(comparison: RunComparison, link: Link | None) -> Iterator[Part]:
    """Yield the cases that are not compared: a failing case may have been removed, quarantined or edited."""
    counts = comparison.counts()
    edited, quarantined = comparison.listed["hash_changed"], comparison.listed["quarantined"]
    numbers = {
        "removed": counts["removed"],
        "case or judge changed": edited.count,
        "quarantined now": quarantined.count,
        "added": counts["added"],
    }
    if not any(numbers.values()):
        return
    found = [
        *((case.test_id, "removed", case.verdict, case.answer, "", None) for case in comparison.removed),
        *(_not_compared(change, "case or judge changed") for change in edited.first),
        *(_not_compared(change, "quarantined now") for change in quarantined.first),
        *((case.test_id, "added", "", None, case.verdict, case.answer) for case in comparison.added),
    ]
    # what failed and is no longer compared first
    found.sort(key=lambda each: (each[1] == "added", each[2] not in _FAILING))
    rows = [
        _row(
            _case_cell(test_id, link if after else None),
            what,
            _verdict_cell(before, answer_before) if before else DASH,
            _verdict_cell(after, answer_after) if after else DASH,
        )
        for test_id, what, before, answer_before, after, answer_after in found[:_MAX_SMALL]
    ]
    total = sum(numbers.values())
    yield {"kind": "heading", "text": f"Cases that are not compared: {total}", "cls": ""}
    caption = ", ".join(f"{number} {name}" for name, number in numbers.items() if number)
    where = "packbench compare lists more"
    yield _table(caption, ("case", "change", "in the baseline", "now"), rows, total=total, where=where)


def _not_compared(change: Change, what: str) -> tuple[str, str, str, str | None, str, str | None]:
    after = "quarantined" if change.quarantined else change.after
    return change.test_id, what, change.before, change.answer_before, after, change.answer_after


def _unseen_failures(comparison: RunComparison) -> int:
    """Return how many cases that failed in the baseline are not compared, of those that the page lists."""
    edited = [*comparison.listed["hash_changed"].first, *comparison.listed["quarantined"].first]
    return sum(change.before in _FAILING for change in edited) + sum(
        case.verdict in _FAILING for case in comparison.removed
    )


def _trend(page: RunPage) -> Iterator[Part]:
    if not page.trend:
        return
    points = [*page.trend, *_own_point(page)]
    marks, rows = [], []
    for number, point in enumerate(points):
        sign, color = _STATUS.get(point.status, ("", "plain"))
        before = points[number - 1] if number else point
        edited = _changed_cases(before.case_hashes, point.case_hashes)
        label = f"{_minute(point.finished_at)}: {point.passed} of {point.judged} passed, run {point.run_id}"
        rate = point.passed / point.judged if point.judged else None
        marks.append(TrendMark(label, rate, point.mean_score, point.interval, color, point.suite_sha256, edited))
        changes = ["rules changed"] if point.suite_sha256 != before.suite_sha256 else []
        changes += [f"{pluralize(edited, 'case')} changed"] if edited else []
        rows.append(
            _row(
                {"text": point.run_id, "cls": "mono"},
                {"text": _minute(point.finished_at), "cls": "nowrap"},
                {"text": f"{sign} {point.status}", "badge": color},
                _number_cell(f"{point.passed} of {point.judged}"),
                {"text": format_interval(point.interval), "cls": "nowrap"},
                _number_cell(format_mean(point.mean_score)),
                ", ".join(changes),
            )
        )
    shown = [value for mark in marks for value in (mark.value, mark.mean, *(mark.interval or ())) if value is not None]
    axis = share_range(shown)
    earlier = pluralize(len(page.trend), "earlier complete run")
    own = " and this one" if len(points) > len(page.trend) else "; this one has only a part of the suite"
    changed = " \u00b1n: n cases were added, removed or edited." if any(m.changed for m in marks) else ""
    yield _text(f"{earlier} of this suite with the same mode, target and model{own}.{changed}", "intro")
    yield {"kind": "svg", "svg": trend_svg(marks, axis)}
    yield _key(("value", "pass rate"), ("mean", "mean score"), ("pass", "passed run"), ("fail", "failed run"))
    head = ("run", "finished", "result", "passed", "95 % interval", "mean score", "since the run before")
    yield {
        "kind": "details",
        "text": "The same as a table",
        "parts": [_table("Runs, oldest first", head, rows, numeric=(3, 5))],
    }


def _own_point(page: RunPage) -> Iterator[TrendPoint]:
    """Yield the run as a point of its trend; a part of a suite is no such point."""
    run, overall = page.conclusion.run, page.conclusion.statistics.overall
    if run.partial:
        return
    yield page.trend[-1]._replace(
        run_id=run.run_id,
        finished_at=run.finished_at,
        status=run_verdict(page.conclusion).status,
        passed=overall.passed,
        judged=overall.n,
        mean_score=overall.mean_score,
        interval=overall.interval,
        suite_sha256=run.suite_sha256,
        case_hashes=None if page.numbers is None else page.numbers.case_hashes,
    )


def _changed_cases(before: Mapping[str, str | None] | None, now: Mapping[str, str | None] | None) -> int:
    """Return how many cases only one of two runs has, or in another content; 0 where they are not known."""
    if before is None or now is None:
        return 0
    # a case that could not be read has no hash
    return sum(before.get(test_id, "") != now.get(test_id, "") for test_id in before.keys() | now.keys())


def _scores(numbers: CaseNumbers | None) -> Iterator[Part]:
    if numbers is None or not any((*numbers.passed, *numbers.failed)):
        return
    filled = [index for index in range(BINS) if numbers.passed[index] or numbers.failed[index]]
    if len(filled) == 1:
        yield _text(f"All scores are from {filled[0] / BINS:.2f} to {(filled[0] + 1) / BINS:.2f}.")
    else:
        yield {"kind": "svg", "svg": histogram_svg(numbers.passed, numbers.failed, tuple(numbers.thresholds))}
        yield _key(("bar-pass", "passed"), ("bar-fail", "failed"), ("limit", "threshold"))
    rows = [
        _row(
            f"{index / BINS:.2f} to {(index + 1) / BINS:.2f}",
            _number_cell(str(numbers.passed[index])),
            _number_cell(str(numbers.failed[index])),
        )
        for index in filled
    ]
    limits = ", ".join(f"{value:g} ({pluralize(count, 'attempt')})" for value, count in numbers.thresholds.items())
    yield {
        "kind": "details",
        "text": "The same as a table",
        "parts": [
            _table("Scores of judged attempts", ("score", "passed", "failed"), rows, numeric=(1, 2)),
            _text(f"Thresholds: {limits}.", "intro"),
        ],
    }


def _rates(statistics: Statistics) -> Iterator[Part]:
    if not statistics.overall.n:
        return
    if not statistics.has_intervals:
        yield _text("Authored answers are no sample of a model's answers, so that only counts are shown.", "intro")
    tables = {
        name: (_group_table(name, groups, statistics), len(groups)) for name, groups in statistics.grouped().items()
    }
    yield from (part for part, number in tables.values() if number <= _FEW_GROUPS)
    columns = [[part] for part in (*_depths(statistics), *_refusals(statistics))]
    if columns:
        yield {"kind": "columns", "columns": columns}
    for name, (part, number) in tables.items():
        if number > _FEW_GROUPS:
            yield {"kind": "details", "text": f"By {name.replace('_', ' ')}: {number} groups", "parts": [part]}


def _group_table(name: str, groups: Sequence[Group], statistics: Statistics) -> Part:
    words, sampled = name.replace("_", " "), statistics.has_intervals
    head = (words, "passed", *(("95 % interval", "") if sampled else ()), "mean score", "not judged")
    every = [*groups, statistics.overall]
    axis = share_range([end for group in every for end in (group.interval or (group.pass_rate or 0.0,))])
    rows = []
    for group in every:
        label = group.value or (UNREADABLE_GROUP if group is not statistics.overall else "all cases")
        rate = f" = {format_percent(group.passed, group.n)}" if group.interval is not None else ""
        cells: list[Cell] = [label, _number_cell(f"{group.passed} of {group.n}{rate}")]
        if sampled:
            plot = "" if group.pass_rate is None else interval_svg(group.pass_rate, axis, interval=group.interval)
            cells += [{"text": format_interval(group.interval), "cls": "nowrap"}, {"svg": plot, "text": ""}]
        cells += [_number_cell(format_mean(group.mean_score)), _number_cell(str(group.selected - group.n))]
        rows.append(_row(*cells, cls="total" if group is statistics.overall else ""))
    if sampled:
        head = (*head[:3], _axis_text(axis), *head[4:])
    return _table(f"By {words}", head, rows, numeric=(1, len(head) - 2, len(head) - 1))


def _depths(statistics: Statistics) -> Iterator[Part]:
    rows = [
        _row(
            str(depth.level),
            _number_cell(f"{depth.agreeing} of {depth.n}"),
            _number_cell(format_percent(depth.agreeing, depth.n) if depth.interval is not None else DASH),
            {"text": format_interval(depth.interval), "cls": "nowrap"},
        )
        for depth in statistics.depth
    ]
    if rows:
        yield _table("Depth of agreement", ("at least", "answers", "share", "95 % interval"), rows, numeric=(1, 2))


def _refusals(statistics: Statistics) -> Iterator[Part]:
    found = statistics.refusals
    if not (found.due_refused or found.due_answered or found.undue_refused):
        return

    def cell(number: int, *, right: bool) -> Cell:
        return {"text": str(number), "cls": f"num {'is-pass' if right else 'is-fail' if number else 'muted'}"}

    rows = [
        _row("a refusal", cell(found.due_refused, right=True), cell(found.due_answered, right=False)),
        _row("an answer", cell(found.undue_refused, right=False), cell(found.undue_answered, right=True)),
    ]
    yield _table("Refusals", ("expected", "refused", "answered"), rows, numeric=(1, 2))


def _figures(conclusion: Conclusion, panels: Sequence[Panel]) -> Iterator[Part]:
    for panel in panels:
        yield from _panel(panel)
    figures, shown = conclusion.all_figures, {id(figure) for panel in panels for figure in panel.figures}
    headlines = [figure for figure in figures if figure.headline and id(figure) not in shown]
    for group, members in grouped_figures(headlines):
        yield _figure_table(_capitalized(group) or "Figures", members)
    if len(figures) > len(headlines):
        every = [
            _figure_table(_capitalized(group) or "Figures", members) for group, members in grouped_figures(figures)
        ]
        yield {
            "kind": "details",
            "text": f"All {len(figures)} figures" if len(figures) > 1 else "The figure",
            "parts": every,
        }


def _figure_table(caption: str, figures: Sequence[Figure]) -> Part:
    shares = [value for figure in figures for value in _figure_ends(figure)]
    axis = share_range(shares)
    plotted = bool(shares)
    rows = []
    for figure in figures:
        plot = ""
        if figure.share is not None and figure.interval is not None:
            plot = interval_svg(figure.share, axis, interval=figure.interval[:2])
        cells: list[Cell] = [
            {"text": figure.name, "note": figure.definition, "cls": "figure"},
            {"text": figure_value(figure), "cls": "text"},
        ]
        if plotted:
            cells += [{"text": figure_interval(figure) or DASH, "cls": "text"}, {"svg": plot, "text": ""}]
        rows.append(_row(*cells))
    columns = ("interval", _axis_text(axis)) if plotted else ()
    return _table(caption, ("figure", "value", *columns), rows)


def _figure_ends(figure: Figure) -> tuple[float, ...]:
    return () if figure.share is None or figure.interval is None else (figure.share, *figure.interval[:2])


def _panel(panel: Panel) -> Iterator[Part]:
    yield {"kind": "heading", "text": panel.title, "cls": ""}
    if panel.intro:
        yield _text(panel.intro, "intro")
    if panel.figures:
        yield {**_figure_table(panel.title, panel.figures), "quiet": True}
    if panel.rows:
        yield _matrix(panel) if panel.matrix else _panel_table(panel)


def _panel_table(panel: Panel) -> Part:
    numeric = [
        index
        for index in range(1, len(panel.head))
        if all(isinstance(row[index], int | float | None) for row in panel.rows)
    ]
    rows = [
        _row(*(_number_cell(_plain(value)) if index in numeric else _plain(value) for index, value in enumerate(row)))
        for row in panel.rows[:MAX_ROWS]
    ]
    return _table(panel.title, panel.head, rows, numeric=numeric, total=len(panel.rows), quiet=True)


def _matrix(panel: Panel) -> Part:
    """Return a table of counts in which the diagonal is right: a row and a column of the same name."""
    rows = []
    for label, *counts in panel.rows[:MAX_ROWS]:
        cells: list[Cell] = [str(label)]
        for name, count in zip(panel.head[1:], counts, strict=True):
            color = "heat-0" if not count else "heat-right" if name == label else "heat-wrong"
            cells.append({"text": _plain(count) if count else "·", "cls": f"heat {color}"})
        rows.append(_row(*cells))
    return {**_table(panel.title, panel.head, rows, total=len(panel.rows), quiet=True), "cls": "matrix"}


def _plain(value: str | float | None) -> str:
    if value is None:
        return DASH
    return f"{value:g}" if isinstance(value, float) else str(value)


def _effort(page: RunPage, link: Link | None) -> Iterator[Part]:
    numbers, run = page.numbers, page.conclusion.run
    if numbers is None or run.mode == FIXTURE or not numbers.durations:
        return
    attempts = len(numbers.durations)
    times = (("median", _P50), ("95 % within", _P95), ("longest", 100))
    items = [
        (
            "time of an attempt",
            ", ".join(f"{name} {format_duration(_percentile(numbers.durations, share))}" for name, share in times),
        )
    ]
    spent = recorded_spending(run)
    if spent is not None:
        items.append(("used", spent_text(spent).removeprefix("used: ")))
    else:
        known = {"tokens": _tokens(numbers, None), "cost": _cost(numbers, None)}
        items += [(name, f"{value} ({about})" if about else value) for name, (value, about) in known.items()]
    if numbers.tokens_known:
        split = f"{_thousands(numbers.tokens_input)} input, {_thousands(numbers.tokens_output)} output"
        cached = ", answers from the cache included" if spent is not None and spent.get("cached") else ""
        of = f"of {numbers.tokens_known} of {pluralize(attempts, 'attempt')} with a record{cached}"
        items.append(("tokens in records", f"{split} ({of})"))
    yield {"kind": "facts", "items": items}
    longest = max(numbers.slowest[0].duration_ms, 1)
    took = [(each, each.duration_ms / longest) for each in numbers.slowest]
    yield _attempts("The attempts that took longest", "longest", took, link, total=attempts, priced=numbers.cost_known)
    if numbers.dearest:
        most = numbers.dearest[0].cost_usd or 1.0
        costly = [(each, (each.cost_usd or 0.0) / most) for each in numbers.dearest]
        total = numbers.cost_known
        yield _attempts("The attempts that cost most", "dearest", costly, link, total=total, priced=total)


def _attempts(
    title: str,
    worst: str,
    attempts: Sequence[tuple[AttemptEffort, float]],
    link: Link | None,
    *,
    total: int,
    priced: int,
) -> Part:
    """Return a table of attempts, each with its share of the worst one; costs only where one is known."""
    rows = []
    for each, share in attempts:
        cells: list[Cell] = [
            _case_cell(each.test_id, link, f" (trial {each.trial + 1})" if each.trial else ""),
            _number_cell(format_duration(each.duration_ms)),
            _number_cell("not known" if each.tokens is None else _thousands(each.tokens)),
        ]
        if priced:
            cells.append(_number_cell("not known" if each.cost_usd is None else _money(each.cost_usd)))
        rows.append(_row(*cells, {"svg": bar_svg(share), "text": ""}))
    head = ("case", "time", "tokens", *(("cost, USD",) if priced else ()), f"against the {worst}")
    where = "the table of cases has all"
    return _table(title, head, rows, numeric=(1, 2, 3) if priced else (1, 2), total=total, where=where)


def _cases(page: RunPage, link: Link | None) -> Part | None:
    listing, parts, anchors = page.conclusion.page_cases, [], set[str]()
    for name, title in (("broken", "Cases without a score"), ("failed", "Failed cases")):
        table = _case_table(title, listing.first(name, MAX_ROWS), listing.count(name), link, anchors=anchors)
        parts += [table] if table is not None else []
    if not parts:
        parts = [_text("No case failed.", "muted")]
    return {"id": "cases", "title": "Cases", "nav": "Cases", "screen": True, "parts": [], "failing": parts}


def _printed_failures(conclusion: Conclusion) -> Part | None:
    """Return the first cases without a score and the first that failed, for print, which has no table of cases.

    New failures are in the section on the baseline.
    """
    listing, compared = conclusion.page_cases, _compared(conclusion)
    new = [] if compared is None else compared.changes["new_failures"].first[:_MAX_FLIPS]
    said = {change.test_id for change in new}
    found = [row for name in ("broken", "failed") for row in listing.first(name, MAX_ROWS)]
    rows = [row for row in found if row.case.test_id not in said]
    total = listing.count("broken") + listing.count("failed") - len(said)
    title = f"{'Other failing' if said else 'Failing'} cases: {total}"
    table = _case_table(title, rows[:_MAX_PRINTED], total, None, left_out=("input", "file"))
    if table is None:
        return None
    return {"id": "failing", "title": title, "nav": "", "printed": True, "parts": [{**table, "quiet": True}]}


def _case_table(
    title: str,
    rows: Sequence[CaseRow],
    total: int,
    link: Link | None,
    *,
    left_out: Iterable[str] = (),
    anchors: set[str] | None = None,
) -> Part | None:
    """Return a table of cases without empty columns; None without a case.

    Args:
        title: what it shows.
        rows: the cases.
        total: how many there are.
        link: returns where a link to a case leads; None if the page does not have the cases.
        left_out: columns that are not needed.
        anchors: the cases that the page has a row of, which links lead to where no script runs; None for none.
    """
    every = [_case_cells(row) for row in rows]
    if not every:
        return None
    empty = {name for name in every[0] if all(cells[name]["text"] in {"", DASH} for cells in every)}
    names = [name for name in every[0] if name not in {*left_out, *empty}]
    parts = []
    for row, cells in zip(rows, every, strict=True):
        case = _case_cell(row.case.test_id, link)
        if link is not None and anchors is not None and row.case.test_id not in anchors:
            anchors.add(row.case.test_id)
            case = {**case, "id": link(row.case.test_id)[1:]}
        parts.append(_row(case, *(cells[name] for name in names)))
    numeric = [number for number, name in enumerate(names, 1) if name in {"score", "trials passed"}]
    return _table(title, ("case", *names), parts, numeric=numeric, total=total)


def _case_cells(row: CaseRow) -> dict[str, dict[str, Any]]:
    case = row.case
    reasons = (case.kind, case.message, format_terms(case.terms, details=True))
    # the score is that of all trials, the terms are those of the worst one
    worst = "worst trial: " if row.trials > 1 and case.terms else ""
    return {
        "verdict": _verdict_cell("quarantined" if case.quarantined else case.verdict),
        "score": _number_cell(_score_text(case)),
        "trials passed": _number_cell(f"{row.passed} of {row.trials}" if row.trials > 1 else ""),
        "input": {"text": one_line(case.input_text, _ANSWER) or DASH, "cls": "text"},
        "expected": _answer_cell(case.expected_text or None),
        "actual": _answer_cell(case.actual_text or case.answer),
        "why": {"text": one_line(worst + ": ".join(filter(None, reasons)), _TEXT), "cls": "text muted"},
        "file": {"text": case.file, "cls": "text mono"},
    }


def _score_text(case: CaseResult) -> str:
    if case.score is None:
        return DASH
    # a hard fail fails a case whatever its other trials came to
    is_lower = case.threshold is not None and case.score < case.threshold
    return f" {'<' if is_lower else 'of'} ".join(format_score(case.score, case.threshold))


def _about(page: RunPage) -> Iterator[Part]:
    run = page.conclusion.run
    settings = ", ".join(
        f"{name} {value}" for name, value in sorted(run.settings.items()) if isinstance(value, str | int | float)
    )
    facts = {
        "suite": f"{run.suite}{' (of the installed package)' if run.bundled else ''}",
        "description": run.description,
        "run": run.run_id,
        "time": f"{run.started_at} to {run.finished_at}",
        "pack": f"{run.pack} {run.pack_version}",
        "target": run.target,
        "model": f"{run.backend} / {run.model}" if run.backend and run.model else "",
        "answers from": ", ".join(f"{name} ({count})" for name, count in page.conclusion.statistics.models.items()),
        "rules": run.suite_sha256[:12],
        "settings": settings,
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())),
        "incomplete": run.partial,
    }
    yield {"kind": "facts", "items": [(name, text) for name, text in facts.items() if text]}


def _case_notices(page: RunPage) -> Sequence[str]:
    return () if page.cases is None else page.cases.notices


def _tile(name: str, value: str, note: str = "", color: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "note": note, "color": color}


def _text(text: str, cls: str = "", *, badge: str = "", sign: str = "") -> Part:
    return {"kind": "text", "text": text, "cls": cls, "badge": badge, "sign": sign}


def _list(items: Iterable[str]) -> Part:
    return {"kind": "list", "items": list(items), "cls": "intro"}


def _key(*names: tuple[str, str]) -> Part:
    return {"kind": "key", "items": [{"svg": _swatch(name), "text": text} for name, text in names]}


def _swatch(name: str) -> str:
    shapes = {
        "allowed": '<rect class="allowed" x="0" y="0" width="18" height="12" rx="2"/>',
        "limit": '<line class="limit" x1="9" y1="0" x2="9" y2="12"/>',
        "interval": '<line class="interval" x1="0" y1="6" x2="18" y2="6"/>',
        "pass": '<circle class="mark-pass" cx="9" cy="6" r="4.5"/>',
        "plain": '<circle class="mark-plain" cx="9" cy="6" r="4.5"/>',
        "fail": '<polygon class="mark-fail" points="9,0 15,6 9,12 3,6"/>',
        "value": '<line class="line-value" x1="0" y1="6" x2="18" y2="6"/>',
        "mean": '<line class="line-mean" x1="0" y1="6" x2="18" y2="6"/>',
    }
    shape = shapes.get(name, f'<rect class="{name}" x="3" y="0" width="12" height="12"/>')
    return f'<svg viewBox="{_SWATCH}" width="18" height="12" aria-hidden="true">{shape}</svg>'


def _table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Part],
    *,
    numeric: Iterable[int] = (),
    total: int = 0,
    where: str = "report.json lists all",
    printed: bool = True,
    quiet: bool = False,
) -> Part:
    """Return a table whose first cells name its rows.

    Args:
        caption: what it shows.
        head: the names of the columns.
        rows: as `_row` returns them.
        numeric: the columns with numbers, which are aligned to the right.
        total: how many rows there are, if they are not all shown.
        where: where the others are.
        printed: whether it is on the printed sheet.
        quiet: whether only screen readers get the caption, because a heading says the same.
    """
    columns = set(numeric)
    shown = sum(not row.get("plain") for row in rows)
    return {
        "kind": "table",
        "caption": caption,
        "label": caption,
        "head": [{"text": text, "cls": "num" if index in columns else ""} for index, text in enumerate(head)],
        "rows": list(rows),
        "more": f"{shown} of {total} shown; {where}." if total > shown else "",
        "cls": "",
        "quiet": quiet,
        "hidden_in_print": not printed,
    }


def _row(*cells: Cell, cls: str = "") -> Part:
    return {"cells": list(cells), "cls": cls}


def _number_cell(text: str) -> dict[str, Any]:
    return {"text": text, "cls": "num"}


def _case_cell(test_id: str, link: Link | None, more: str = "") -> dict[str, Any]:
    """Return the name of a case without that of its suite, which all cases of a page share."""
    return {
        "text": f"{test_id.partition(':')[2] or test_id}{more}",
        "href": link(test_id) if link is not None else "",
        "cls": "case",
    }


def _verdict_cell(verdict: str, answer: str | None = None) -> dict[str, Any]:
    """Return a verdict, with an answer below it if it is known."""
    sign, words, color = SIGNS.get(verdict, ("", verdict, "plain"))
    below = "" if answer is None else one_line(answer, _ANSWER)
    return {"text": f"{sign} {words}", "badge": color, "below": below, "cls": "answers" if below else "nowrap"}


def _answer_cell(answer: str | None) -> dict[str, Any]:
    return {"text": DASH if answer is None else one_line(answer, _ANSWER), "cls": "answer"}


def _percentile(values: Sequence[int], percent: int) -> int:
    """Return the smallest of sorted values that at least this share of them does not exceed."""
    return values[-(-percent * len(values) // 100) - 1]


def _thousands(number: int) -> str:
    return f"{number:,}".replace(",", "\u2009")


def _money(amount: float) -> str:
    if amount >= 1 or not amount:
        return f"{amount:.2f}"
    return f"{amount:.4f}" if amount >= _TENTH_OF_A_CENT else f"{amount:.6f}"


def _minute(timestamp: str) -> str:
    """Return a time without seconds, such as `2026-05-04 12:30 UTC`."""
    return f"{timestamp[:10]} {timestamp[11:16]} UTC" if len(timestamp) > _UP_TO_MINUTE else timestamp


def _headline(headline: str) -> tuple[str, str]:
    """Return the first words of a headline and the rest of it, without words in capitals."""
    first, *rest = (part.lower() if part.isupper() else part for part in headline.split(", "))
    return _capitalized(first), "".join(f", {part}" for part in rest)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
