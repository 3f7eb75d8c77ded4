"""`packbench history`: the runs of a suite over time, its flaky cases, and what one case came to in each run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output
from pytest_packbench.model.errors import pluralize
from pytest_packbench.reports.blocks import Section, Table, Text, aligned, markdown
from pytest_packbench.runs.folder import JOURNAL, RECORDS, REPORT, StoredRunError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.trend import EarlierCase, EarlierRun, Kind
    from pytest_packbench.model.run import Run
    from pytest_packbench.reports.blocks import Block

    # like runs with their cases, oldest first
    Trend = tuple[Kind, Sequence[EarlierRun]]

_DEFAULT_LIMIT = 20
_VERSION = 2
_UNREADABLE = "can't be read"
_UNFINISHED = "did not end"
_COPY = "copy"
_SIGNS = {
    "passed": "✓",
    "failed": "✗",
    "error": "!",
    "vacuous": "∅",
    "known_hole": "○",
    "not_run": "\N{EN DASH}",
    "quarantined": "‖",
}
_ABSENT, _BREAK = "·", "/"
_RUN_COLUMNS = (
    *("run", "finished", "status", "passed", "broken", "pass rate", "95 % interval", "rate change", "mean score"),
    *("mean change", "since the run before"),
)
_OTHER_COLUMNS = ("run", "finished", "mode", "target", "status", "why it is in no trend")
_CASE_COLUMNS = ("run", "finished", "verdict", "score", "answer", "trials passed", "changed since the run before")
_FLAKY_COLUMNS = ("case", "changes", "verdicts, oldest first")
# reports that may be open at once
_MAX_OPEN = 20
_CHANGED = {"scoring rules": "rules"}
_FLAKY = (
    "The verdict changed and changed back, although the case, its recording and the rules are the same: "
    "what differs is the target, the model or the connection to it."
)
_ONCE = "Neither the case, its recording nor the rules changed: the target or the model did, or the case is flaky."
_MAX_FLAKY = 50
_MAX_NAMED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    parser.add_argument("case", nargs="?", help="the id of a case: show its verdict in each run")
    add_output(parser)
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
        UsageError: there is no run, none that can be read, or none with the case.
    """
    parent, limit = arguments.output / arguments.suite, max(arguments.limit, 1)
    folders = _folders(parent)
    if not folders:
        raise UsageError(f"no runs under {parent}")
    trends, others = _trends(folders, limit)
    if not trends and all(other["mode"] is None for other in others):
        raise UsageError(f"no run under {parent} can be read; the latest: {others[0]['run']}: {others[0]['trouble']}")
    shown = trends if arguments.all else trends[:1]
    hidden = [] if arguments.all or not shown else [*_hidden(trends[1:]), *_counted(others)]
    others = others[:limit][::-1] if arguments.all or not shown else []
    read = [(kind, _with_cases(runs, others)) for kind, runs in shown]
    if arguments.case is None:
        found = [_trend_object(trend) for trend in read]
        document: dict[str, Any] = {"trends": found, "others": others}
        blocks: list[Block] = [*(_trend_section(arguments.suite, trend) for trend in found), _other_runs(others)]
    else:
        test_id = _test_id(arguments.case, read, parent)
        read = [(kind, runs) for kind, runs in read if any(_cases_of(test_id, runs))]
        found = [_case_object(trend, test_id) for trend in read]
        document = {"case": test_id, "trends": found}
        signs = [_signs(map(_verdict, _cases_of(test_id, runs)), _breaks(runs)) for _, runs in read]
        blocks = [_case_section(arguments.suite, test_id, *each) for each in zip(found, signs, strict=True)]
    if hidden:
        blocks.append(Text(f"Not shown: {'; '.join(hidden)}. --all shows all runs."))
    # each table is as long as was asked for
    text = aligned(markdown(blocks, level=2, max_rows=sys.maxsize))
    if arguments.format == "json":
        from pytest_packbench.reports.terminal import printable_json

        text = json.dumps({"version": _VERSION, "suite": arguments.suite, **document}, ensure_ascii=False)
        text = printable_json(text)
    # answers of models may contain what can't be encoded
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    return FINE


def _folders(parent: Path) -> list[Path]:
    """Return the folders of runs, the latest first."""
    # run ids sort by time; a name that begins with a dot is an unfinished merge
    names = (JOURNAL, RECORDS, REPORT)
    return sorted(
        (
            path
            for path in parent.glob("*/")
            if not path.name.startswith(".") and any((path / name).is_file() for name in names)
        ),
        reverse=True,
    )


def _trends(folders: Sequence[Path], limit: int) -> tuple[list[Trend], list[dict[str, Any]]]:
    """Return the complete runs by kind without their cases, the kind of the latest first, and all others likewise."""
    from pytest_packbench.analysis.trend import read_earlier

    read: list[EarlierRun] = []
    others: list[dict[str, Any]] = []
    numbers: Counter[Kind] = Counter()
    for folder in folders:
        try:
            earlier = read_earlier(folder)
        except (StoredRunError, OSError) as error:
            others.append(_unreadable(folder, error))
            continue
        numbers[earlier.kind] += not earlier.run.partial
        is_open = not earlier.run.partial and numbers[earlier.kind] <= limit and len(read) < _MAX_OPEN
        read.append(earlier if is_open else earlier._replace(results=None))
    found: dict[str, EarlierRun] = {}
    # of a run and its copies, the folder with the name of the run counts
    for earlier in sorted(read, key=lambda each: each.folder.name != each.run_id):
        counted = found.setdefault(earlier.run_id, earlier)
        if counted is not earlier:
            reason = f"the run of {counted.folder.name} again, which is counted once"
            others.append(_other(earlier.folder.name, _COPY, reason, earlier.run))
    trends: dict[Kind, list[EarlierRun]] = {}
    for earlier in sorted(found.values(), key=lambda each: each.run_id, reverse=True):
        if earlier.run.partial:
            others.append(_other(earlier.folder.name, earlier.status, earlier.run.partial, earlier.run))
        else:
            trends.setdefault(earlier.kind, []).append(earlier)
    # run ids sort by time
    others.sort(key=lambda other: str(other["run"]), reverse=True)
    return [(kind, runs[:limit][::-1]) for kind, runs in trends.items()], others


def _other(name: str, status: str, reason: str, run: Run | None = None) -> dict[str, Any]:
    """Return a run that is in no trend.

    Args:
        name: the name of its folder.
        status: its status, `copy`, or that it did not end or can't be read.
        reason: why it is in no trend.
        run: its metadata; None if it can't be read.
    """
    about = {"finished": run and run.finished_at, "mode": run and run.mode, "target": run and run.target}
    return {"run": name, **about, "status": status, "trouble": reason}


def _unreadable(folder: Path, error: Exception) -> dict[str, Any]:
    status = _UNREADABLE if (folder / REPORT).exists() else _UNFINISHED
    reason = f"{folder / REPORT}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return _other(folder.name, status, reason)


def _with_cases(runs: Iterable[EarlierRun], others: list[dict[str, Any]]) -> list[EarlierRun]:
    """Read the cases of like runs; a run whose cases can't be read is added to the others."""
    complete: list[EarlierRun] = []
    for earlier in runs:
        try:
            complete.append(earlier.with_cases())
        except (StoredRunError, OSError) as error:
            others.append(_unreadable(earlier.folder, error))
    return complete


def _hidden(trends: Sequence[Trend]) -> Iterator[str]:
    for kind, runs in trends:
        yield f"{pluralize(len(runs), 'run')} in {_kind_text(kind._asdict())}"


def _counted(others: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    broken = [other["run"] for other in others if other["mode"] is None]
    copies = sum(other["status"] == _COPY for other in others)
    if len(others) > len(broken) + copies:
        yield pluralize(len(others) - len(broken) - copies, "incomplete run")
    if copies:
        yield f"{pluralize(copies, 'folder')} with a copy of a run"
    if broken:
        names = ", ".join([*broken[:_MAX_NAMED][::-1], *(["..."] if len(broken) > _MAX_NAMED else ())])
        yield f"{pluralize(len(broken), 'run')} that did not end or can't be read ({names})"


def _kind_text(kind: Mapping[str, Any]) -> str:
    model = " / ".join(filter(None, (kind["backend"], kind["model"])))
    guards = f"guards {kind['guards']}" if kind["guards"] else ""
    return ", ".join(filter(None, (f"{kind['mode']} mode", f"target {kind['target']}", model, guards)))


def _kind_object(kind: Kind) -> dict[str, Any]:
    return {name: value or None for name, value in kind._asdict().items() if name != "suite"}


def _trend_object(trend: Trend) -> dict[str, Any]:
    kind, runs = trend
    changed: list[dict[str, Any]] = [
        {"test_id": test_id, "changes": count, "verdicts": [*map(_verdict, _cases_of(test_id, runs))]}
        for test_id, count in _changed_cases(runs)
    ]
    steps = [None, *(_step(before, now) for before, now in pairwise(runs))]
    return {
        **_kind_object(kind),
        "runs": [_run_object(*each) for each in zip(runs, steps, strict=False)],
        # one change may be that of the target
        "flaky": [each for each in changed if each["changes"] > 1],
        "changed_once": [each for each in changed if each["changes"] == 1],
    }


def _run_object(earlier: EarlierRun, step: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "run": earlier.run_id,
        "finished": earlier.finished_at,
        "status": earlier.status,
        "cases": earlier.selected,
        "judged": earlier.judged,
        "passed": earlier.passed,
        "failed": earlier.judged - earlier.passed,
        "broken": earlier.broken,
        "pass_rate": earlier.pass_rate,
        "interval": earlier.interval,
        "mean_score": earlier.mean_score,
        "rules": earlier.suite_sha256[:12],
        "change": step,
    }


def _step(before: EarlierRun, now: EarlierRun) -> dict[str, Any]:
    """Return what changed from one run to the next: the rates, unless the rules did, and the cases."""
    rules, old, new = _changed_rules(before, now), before.cases or {}, now.cases or {}
    causes = [_causes(old[test_id], new[test_id]) for test_id in old.keys() & new.keys()]
    edited = sum(not {"case", "judge"}.isdisjoint(each) for each in causes)
    return {
        "pass_rate": None if rules else _difference(before.pass_rate, now.pass_rate),
        "mean_score": None if rules else _difference(before.mean_score, now.mean_score),
        "rules": rules,
        "cases": {
            "added": len(new.keys() - old.keys()),
            "removed": len(old.keys() - new.keys()),
            "edited": edited,
            "recorded_again": causes.count(["recording"]),
        },
    }


def _changed_rules(before: EarlierRun, now: EarlierRun) -> list[str]:
    from pytest_packbench.analysis.changes import differences

    # each begins with what differs
    return [text.partition(":")[0] for text in differences(before.run, now.run)]


def _causes(before: EarlierCase, now: EarlierCase) -> list[str]:
    """Return what changed of a case itself between two runs."""
    # an error may come before the recording is read
    recordings = {before.cassette_sha256, now.cassette_sha256} - {None}
    changed = {
        "case": before.case_sha256 != now.case_sha256,
        "judge": before.judge != now.judge,
        "recording": len(recordings) > 1,
    }
    return [what for what, has_changed in changed.items() if has_changed]


def _difference(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _changed_cases(runs: Sequence[EarlierRun]) -> list[tuple[str, int]]:
    """Return the cases whose verdict changed without a cause, those that changed most often first, and how often."""
    changes: Counter[str] = Counter()
    for before, now in pairwise(runs):
        old, new = before.cases or {}, now.cases or {}
        both = () if _changed_rules(before, now) else old.keys() & new.keys()
        changes.update(test_id for test_id in both if _flipped(old[test_id], new[test_id]))
    return sorted(changes.items(), key=lambda each: (-each[1], each[0]))


def _flipped(before: EarlierCase, now: EarlierCase) -> bool:
    return before.verdict != now.verdict and before.case_sha256 is not None and not _causes(before, now)


def _cases_of(test_id: str, runs: Iterable[EarlierRun]) -> Iterator[EarlierCase | None]:
    return ((earlier.cases or {}).get(test_id) for earlier in runs)


def _verdict(case: EarlierCase | None) -> str | None:
    return None if case is None else case.verdict


def _breaks(runs: Sequence[EarlierRun]) -> list[bool]:
    """Return for each run whether the rules changed since the run before."""
    return [False, *(bool(_changed_rules(before, now)) for before, now in pairwise(runs))]


def _signs(verdicts: Iterable[str | None], breaks: Iterable[bool]) -> str:
    """Return a sign for each verdict, and one where the rules changed."""
    signs: list[str] = []
    for verdict, is_break in zip(verdicts, breaks, strict=True):
        signs += [_BREAK] if is_break else []
        signs.append(_ABSENT if verdict is None else _SIGNS[verdict])
    return " ".join(signs)


def _legend(signs: str) -> str:
    meanings = {**{sign: word for word, sign in _SIGNS.items()}, _ABSENT: "not in the run", _BREAK: "rules changed"}
    used = [f"{sign} {word.replace('_', ' ')}" for sign, word in meanings.items() if sign in signs]
    return f"{', '.join(used)}."


def _trend_section(suite: str, trend: Mapping[str, Any]) -> Section:
    breaks = [bool(each["change"] and each["change"]["rules"]) for each in trend["runs"]]
    return Section(
        f"Runs of {suite}",
        [
            Text(f"Like runs: {_kind_text(trend)}."),
            Table("", _RUN_COLUMNS, list(map(_run_row, trend["runs"]))),
            _changed_section("Flaky cases", _FLAKY, trend["flaky"], breaks),
            _changed_section("Verdicts that changed once", _ONCE, trend["changed_once"], breaks),
        ],
    )


def _changed_section(title: str, intro: str, cases: Sequence[Mapping[str, Any]], breaks: Sequence[bool]) -> Section:
    rows = [(each["test_id"], str(each["changes"]), _signs(each["verdicts"], breaks)) for each in cases[:_MAX_FLAKY]]
    said = f"{intro} {_legend(''.join(signs for _, _, signs in rows))}" if rows else ""
    return Section(title, [Text(said), Table("", _FLAKY_COLUMNS, rows, len(cases), "--format json names all")])


def _run_row(now: Mapping[str, Any]) -> tuple[str | None, ...]:
    from pytest_packbench.analysis.formatting import format_interval, format_mean, format_percent

    step = now["change"] or {"pass_rate": None, "mean_score": None, "rules": (), "cases": {}}
    changed = [f"trend broken: {', '.join(step['rules'])} changed"] if step["rules"] else []
    changed += [f"{pluralize(count, 'case')} {how.replace('_', ' ')}" for how, count in step["cases"].items() if count]
    return (
        now["run"],
        now["finished"],
        now["status"],
        f"{now['passed']} of {now['judged']}",
        str(now["broken"]) if now["broken"] else None,
        format_percent(now["passed"], now["judged"]),
        None if now["interval"] is None else format_interval(now["interval"]),
        None if step["pass_rate"] is None else f"{_signed(100 * step['pass_rate'], 1)} points",
        format_mean(now["mean_score"]),
        None if step["mean_score"] is None else _signed(step["mean_score"], 2),
        "; ".join(changed) or None,
    )


def _signed(value: float, digits: int) -> str:
    """Return a change with its sign; one that is not 0 is not shown as 0."""
    if not round(value, 9):
        return "0"
    while not round(value, digits):
        digits += 1
    return f"{value:+.{digits}f}"


def _test_id(name: str, trends: Iterable[Trend], parent: Path) -> str:
    """Return the test id of a case that a user names by its id, or by that."""
    known = {
        test_id: case.case_id for _, runs in trends for each in runs for test_id, case in (each.cases or {}).items()
    }
    found = [test_id for test_id, case_id in known.items() if name in {test_id, case_id}]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name}: the id of several cases; expected one of the test ids {', '.join(sorted(found))}")
    from difflib import get_close_matches

    close = get_close_matches(name, known.values(), n=1)
    advice = f'did you mean "{close[0]}"?' if close else "expected the id of a case, or its test id"
    raise UsageError(f'{parent}: no case "{name}" in these runs; {advice}')


def _case_object(trend: Trend, test_id: str) -> dict[str, Any]:
    kind, runs = trend
    having = [each for each in runs if test_id in (each.cases or {})]
    return {
        **_kind_object(kind),
        "changes": dict(_changed_cases(runs)).get(test_id, 0),
        "runs": [_case_run(test_id, *each) for each in zip([None, *having], having, strict=False)],
    }


def _case_run(test_id: str, before: EarlierRun | None, now: EarlierRun) -> dict[str, Any]:
    """Return what a case came to in a run, and what changed since the run before that has it."""
    case, changed = (now.cases or {})[test_id], []
    if before is not None:
        changed = [_CHANGED.get(name, name) for name in _changed_rules(before, now)]
        changed += _causes((before.cases or {})[test_id], case)
    stated = {name: value for name, value in case._asdict().items() if name != "case_id"}
    return {"run": now.run_id, "finished": now.finished_at, **stated, "changed": changed}


def _case_section(suite: str, test_id: str, trend: Mapping[str, Any], signs: str) -> Section:
    changes = trend["changes"]
    flaky = "Flaky: its" if changes > 1 else "Its"
    times = {1: "once", 2: "twice"}.get(changes, f"{changes} times")
    remark = f"{flaky} verdict changed {times} although the case, its recording and the rules are the same."
    blocks: list[Block] = [
        Text(f"Like runs: {_kind_text(trend)}."),
        Text(f"{signs}: {_legend(signs)}"),
        Text(remark if changes else ""),
        Table("", _CASE_COLUMNS, list(map(_case_row, trend["runs"]))),
    ]
    return Section(f"{test_id} in runs of {suite}", blocks)


def _case_row(now: Mapping[str, Any]) -> tuple[str | None, ...]:
    from pytest_packbench.analysis.formatting import format_mean

    kind = f" ({now['kind']})" if now["kind"] else ""
    return (
        now["run"],
        now["finished"],
        f"{_SIGNS[now['verdict']]} {now['verdict']}{kind}",
        format_mean(now["score"]),
        now["answer"],
        f"{now['passed']} of {now['trials']}" if now["trials"] > 1 else None,
        ", ".join(now["changed"]) or None,
    )


def _other_runs(others: Sequence[Mapping[str, Any]]) -> Table:
    rows = [(*list(other.values())[:-1], _short(other["run"], other["trouble"])) for other in others]
    return Table("Runs in no trend", _OTHER_COLUMNS, rows)


def _short(name: str, reason: str) -> str:
    """Return the reason of a run without the path of its folder, which the row names."""
    path, _, rest = reason.partition(f"{name}/{REPORT}: ")
    return rest if path and rest else reason.partition(f"{name}: ")[2] or reason
