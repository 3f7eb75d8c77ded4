"""`packbench history`: the runs of a suite over time, its flaky cases, and what one case came to in each run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.changes import Change
from pytest_packbench.analysis.formatting import format_mean
from pytest_packbench.analysis.listing import name_some
from pytest_packbench.analysis.trend import kind_of, since, verdict_of, with_cases
from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_shared, write_stdout
from pytest_packbench.model.errors import pluralize, suggestion
from pytest_packbench.model.result import values_of
from pytest_packbench.reports.blocks import SIGNS, Facts, Section, Table, Text, markdown
from pytest_packbench.reports.plots import minute
from pytest_packbench.reports.story import trend_table
from pytest_packbench.reports.terminal import printable_json
from pytest_packbench.runs.reading import open_complete, run_folders

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.trend import EarlierRun, Kind
    from pytest_packbench.model.result import Result
    from pytest_packbench.reports.blocks import Block, Row

    # like runs with their cases, oldest first
    Trends = Mapping[Kind, Sequence[EarlierRun]]

_DEFAULT_LIMIT = 20
_VERSION = 3
_SIGNS = {**SIGNS, "not in the run": "·", "rules changed": "/"}
_LEGEND = ", ".join(f"{sign} {word.replace('_', ' ')}" for word, sign in _SIGNS.items())
_CHANGED = (
    "The case, its recording and the rules are the same. A verdict that changed and changed back is that of a flaky "
    "case: what differs is the target, the model or the connection to it. Where it changed once, the target or the "
    f"model may have changed. {_LEGEND}."
)
_MAX_CHANGED = 50
_MAX_NAMED = 3
_CASE_COLUMNS = ("run", "finished", "verdict", "score", "answer", "trials passed", "changed since the run before")
_CASE_KEYS = ("kind", "answer", "case_sha256", "cassette_sha256", "judge")


class Step(NamedTuple):
    """What changed from one run to the next.

    Attributes:
        before: the earlier run.
        now: the later one.
        change: what changed of the rules and the figures, as `since` returns it.
        causes: of each case in both runs what changed of the case itself: `case`, `judge` or `recording`, else nothing.
        flipped: the cases whose verdict changed although nothing else did.
    """

    before: EarlierRun
    now: EarlierRun
    change: Mapping[str, Any]
    causes: Mapping[str, str]
    flipped: Collection[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    parser.add_argument("case", nargs="?", help="the id of a case: show its verdict in each run")
    add_shared(parser, "--output")
    parser.add_argument(
        "--all",
        action="store_true",
        help="show all runs, each kind in a table of its own; by default only those like the latest complete run: "
        "of the same mode, target, backend, model and guards",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=_DEFAULT_LIMIT,
        metavar="N",
        help="show the latest N runs of each kind (default: 20)",
    )
    parser.add_argument("--format", choices=["md", "json"], default="md", help="Markdown (default) or JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print like runs in a table, the oldest first, then the cases whose verdict changed without a cause.

    Raises:
        UsageError: there is no run to show, or none with the case.
    """
    parent, suite = arguments.output / arguments.suite, arguments.suite
    trends, hidden, others = _trends(parent, max(arguments.limit, 1), all_kinds=arguments.all)
    if not trends and (not others or not arguments.all or arguments.case is not None):
        reasons = "; ".join(f"{other['run']}: {other['trouble']}" for other in others[:_MAX_NAMED])
        latest = f"; the latest: {reasons}" if others else ""
        raise UsageError(f"no complete run under {parent}{latest}")
    blocks: list[Block]
    if arguments.case is None:
        listed = others[::-1] if arguments.all else []
        objects = [_trend_object(*trend) for trend in trends.items()]
        document: dict[str, Any] = {"trends": objects, "others": listed}
        blocks = [_trend_section(suite, *trend, each) for trend, each in zip(trends.items(), objects, strict=True)]
        blocks.append(Section("Runs in no trend", [Facts([(other["run"], other["trouble"]) for other in listed])]))
    else:
        test_id = _test_id(arguments.case, trends, parent)
        trends = {kind: having for kind, runs in trends.items() if (having := [e for e in runs if test_id in e.cases])}
        objects = [_case_object(test_id, *trend) for trend in trends.items()]
        document = {"case": test_id, "trends": objects}
        blocks = [_case_section(suite, test_id, *each) for each in zip(trends, objects, strict=True)]
    if not arguments.all:
        blocks.append(Text(_not_shown(hidden, [other["run"] for other in others])))
    # each table is as long as was asked for
    text = markdown(blocks, level=2, max_rows=sys.maxsize, padded=True)
    if arguments.format == "json":
        text = printable_json(json.dumps({"version": _VERSION, "suite": suite, **document}, ensure_ascii=False))
    write_stdout(f"{text}\n")
    return FINE


def _trends(
    parent: Path, limit: int, *, all_kinds: bool
) -> tuple[Trends, Mapping[Kind, int], Sequence[Mapping[str, str]]]:
    """Read the latest complete runs with their cases, of all kinds or of that of the latest.

    Returns:
        The runs by kind; how many there are of the kinds that are not read; and the runs in no trend, the latest first.
    """
    trends: dict[Kind, list[EarlierRun]] = {}
    hidden: Counter[Kind] = Counter()
    others: list[Mapping[str, str]] = []
    for folder in run_folders(parent):
        try:
            stored = open_complete(folder)
            kind = kind_of(stored.run, stored.outline.models)
            if not all_kinds and kind != next(iter(trends), kind):
                hidden[kind] += 1
            elif len(trends.get(kind, ())) < limit:
                earlier = with_cases(stored)
                trends.setdefault(kind, []).insert(0, earlier)
        except (ValueError, OSError) as error:
            others.append({"run": folder.name, "trouble": str(error)})
    return trends, hidden, others


def _not_shown(hidden: Mapping[Kind, int], others: Sequence[str]) -> str:
    parts = [f"{pluralize(number, 'run')} in {kind}" for kind, number in hidden.items()]
    if others:
        parts.append(f"{pluralize(len(others), 'run')} in no trend ({name_some(others)})")
    return f"Not shown: {'; '.join(parts)}. --all shows all runs." if parts else ""


def _step(before: EarlierRun, now: EarlierRun) -> Step:
    change = since(before.outline, now.outline)
    changes = [Change(case, now.cases[test_id]) for test_id, case in before.cases.items() if test_id in now.cases]
    causes = {each.test_id: _cause(*each) for each in changes}
    flipped = [
        each.test_id
        for each in changes
        if verdict_of(each.before) != verdict_of(each.after)
        and each.before.case.case_sha256 is not None
        and not (change["rules"] or causes[each.test_id])
    ]
    return Step(before, now, change, causes, flipped)


def _cause(before: Result, now: Result) -> str:
    if before.case.case_sha256 != now.case.case_sha256:
        return "case"
    if before.score.judge != now.score.judge:
        return "judge"
    # an error may come before the recording is read
    recordings = {before.attempt.cassette_sha256, now.attempt.cassette_sha256} - {None}
    return "recording" if len(recordings) > 1 else ""


def _kind_object(kind: Kind) -> dict[str, Any]:
    return {name: value or None for name, value in kind._asdict().items()}


def _trend_object(kind: Kind, runs: Sequence[EarlierRun]) -> dict[str, Any]:
    steps = list(starmap(_step, pairwise(runs)))
    counts = Counter(test_id for step in steps for test_id in step.flipped)
    changed: list[dict[str, Any]] = [
        {"test_id": test_id, "changes": count, "verdicts": _verdicts(test_id, runs)}
        for test_id, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]
    return {
        **_kind_object(kind),
        "runs": [_run_object(*each) for each in zip(runs, [None, *steps], strict=True)],
        # one change may be that of the target
        "flaky": [each for each in changed if each["changes"] > 1],
        "changed_once": [each for each in changed if each["changes"] == 1],
    }


def _verdicts(test_id: str, runs: Iterable[EarlierRun]) -> list[str | None]:
    return [verdict_of(each.cases[test_id]) if test_id in each.cases else None for each in runs]


def _run_object(now: EarlierRun, step: Step | None) -> dict[str, Any]:
    run, overall, totals = now.outline.run, now.outline.overall, now.outline.totals
    return {
        "run": run.run_id,
        "finished": run.finished_at,
        "status": now.outline.status,
        "cases": totals.selected,
        "judged": overall.n,
        "passed": overall.passed,
        "failed": overall.n - overall.passed,
        "broken": sum(totals.verdicts.get(name, 0) for name in ("error", "vacuous", "not_run")),
        "pass_rate": overall.pass_rate,
        "interval": overall.interval,
        "mean_score": overall.mean_score,
        "rules": run.suite_sha256[:12],
        "change": None if step is None else _change_object(step),
    }


def _change_object(step: Step) -> dict[str, Any]:
    before, now, causes = step.before, step.now, Counter(step.causes.values())
    return {
        **step.change,
        "cases": {
            "added": len(now.cases.keys() - before.cases.keys()),
            "removed": len(before.cases.keys() - now.cases.keys()),
            "edited": causes["case"] + causes["judge"],
            "recorded_again": causes["recording"],
        },
    }


def _trend_section(suite: str, kind: Kind, of: Sequence[EarlierRun], trend: Mapping[str, Any]) -> Section:
    changed = [*trend["flaky"], *trend["changed_once"]]
    breaks = [f"{_SIGNS['rules changed']} " if (run["change"] or {}).get("rules") else "" for run in trend["runs"]]
    rows = []
    for each in changed[:_MAX_CHANGED]:
        signs = [_SIGNS[verdict or "not in the run"] for verdict in each["verdicts"]]
        rows.append((each["test_id"], each["changes"], " ".join(map("".join, zip(breaks, signs, strict=True)))))
    head = ("case", "changes", "verdicts, oldest first")
    table = Table("", head, rows, len(changed), "--format json names all")
    runs = trend_table("", [run.outline for run in of], trend["runs"])
    unexplained = Section("Verdicts that changed without a cause", [Text(_CHANGED if rows else ""), table])
    return Section(f"Runs of {suite}", [Text(f"Like runs: {kind}."), runs, unexplained])


def _test_id(name: str, trends: Trends, parent: Path) -> str:
    """Return the test id of a case that a user names by its id, or by that."""
    known = {
        test_id: case.case.case_id for runs in trends.values() for each in runs for test_id, case in each.cases.items()
    }
    found = [test_id for test_id, case_id in known.items() if name in {test_id, case_id}]
    if len(found) > 1:
        raise UsageError(f"{name}: the id of several cases; expected one of the test ids {', '.join(sorted(found))}")
    if not found:
        raise UsageError(f'{parent}: no case "{name}" in these runs; {suggestion(name, sorted(known.values()))}')
    return found[0]


def _case_object(test_id: str, kind: Kind, runs: Sequence[EarlierRun]) -> dict[str, Any]:
    steps = list(starmap(_step, pairwise(runs)))
    return {
        **_kind_object(kind),
        "changes": sum(test_id in step.flipped for step in steps),
        "runs": [_case_run(test_id, *each) for each in zip(runs, [None, *steps], strict=True)],
    }


def _case_run(test_id: str, now: EarlierRun, step: Step | None) -> dict[str, Any]:
    """Return what a case came to in a run, and what changed since the run before that has it."""
    case = now.cases[test_id]
    passed, trials = case.trials
    return {
        "run": now.outline.run.run_id,
        "finished": now.outline.run.finished_at,
        "verdict": verdict_of(case),
        "score": case.score.score if case.score.counted else None,
        **dict(zip(_CASE_KEYS, values_of(*_CASE_KEYS)(case), strict=True)),
        "passed": passed,
        "trials": trials,
        "changed": [] if step is None else [*step.change["rules"], *filter(None, [step.causes[test_id]])],
    }


def _case_section(suite: str, test_id: str, kind: Kind, trend: Mapping[str, Any]) -> Section:
    times = pluralize(trend["changes"], "time")
    remark = f"Its verdict changed {times} although the case, its recording and the rules are the same."
    rows = list(map(_case_row, trend["runs"]))
    said = [Text(f"Like runs: {kind}."), Text(remark if trend["changes"] else "")]
    return Section(f"{test_id} in runs of {suite}", [*said, Table("", _CASE_COLUMNS, rows)])


def _case_row(now: Mapping[str, Any]) -> Row:
    return (
        now["run"],
        minute(now["finished"]),
        f"{now['verdict']} ({now['kind']})" if now["kind"] else now["verdict"],
        format_mean(now["score"]),
        now["answer"],
        f"{now['passed']} of {now['trials']}" if now["trials"] > 1 else None,
        ", ".join(now["changed"]),
    )
