"""`packbench history`: the runs of a suite over time, its flaky cases, and what one case came to in each run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output
from pytest_packbench.model.errors import pluralize
from pytest_packbench.reports.blocks import Section, Table, Text, aligned, markdown
from pytest_packbench.runs.folder import JOURNAL, RECORDS, REPORT, StoredRunError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.run import Run
    from pytest_packbench.reports.blocks import Block
    from pytest_packbench.runs.history import EarlierCase, EarlierRun, Kind

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
_CHANGED = {"scoring rules": "rules"}
_FLAKY = (
    "The verdict changed and changed back, although the case, its recording and the rules are the same: "
    "what differs is the target, the model or the connection to it."
)
_ONCE = "Neither the case, its recording nor the rules changed: the target or the model did, or the case is flaky."
_MAX_FLAKY = 50
_MAX_NAMED = 3


class _OtherRun(NamedTuple):
    """A run that is in no trend.

    Attributes:
        name: its id, or the name of its folder.
        run: its metadata; None if it can't be read.
        status: `partial`, `copy`, or that it did not end or can't be read.
        reason: why it is in no trend.
    """

    name: str
    run: Run | None
    status: str
    reason: str


class _Step(NamedTuple):
    """What changed from one run to the next.

    Attributes:
        rate: the change of the pass rate, -1 to 1; None if the rules changed or a rate is not known.
        mean: the change of the mean score, likewise.
        rules: in what the rules differ, which breaks the trend.
        cases: how many cases were added, removed, edited and recorded again.
    """

    rate: float | None
    mean: float | None
    rules: tuple[str, ...]
    cases: Mapping[str, int]

    @property
    def changed(self) -> str:
        """What changed, in words."""
        broken = [f"trend broken: {', '.join(self.rules)} changed"] if self.rules else []
        return "; ".join(
            [*broken, *(f"{pluralize(count, 'case')} {how}" for how, count in self.cases.items() if count)]
        )


class _Changed(NamedTuple):
    """A case whose verdict changed between like runs although neither the case nor the rules did.

    Attributes:
        test_id: the case.
        changes: how often its verdict changed so.
        row: a sign for each run, oldest first.
    """

    test_id: str
    changes: int
    row: str

    @property
    def is_flaky(self) -> bool:
        """Whether it changed back as well: one change may be that of the target."""
        return self.changes > 1


class _Trend(NamedTuple):
    """Like runs with their cases, oldest first, and what changed from each run to the next; nothing before the first.

    Attributes:
        kind: what they have in common.
        runs: the runs, with their cases.
        steps: for each run what changed since the run before; None for the first.
    """

    kind: Kind
    runs: Sequence[EarlierRun]
    steps: Sequence[_Step | None]


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
    if not trends and not any(other.run for other in others):
        raise UsageError(f"no run under {parent} can be read; the latest: {others[0].name}: {others[0].reason}")
    shown = trends if arguments.all else trends[:1]
    hidden = [] if arguments.all or not shown else [*_hidden(trends[1:]), *_counted(others)]
    others = others[:limit][::-1] if arguments.all or not shown else []
    read = [_with_cases(parent, kind, runs, others) for kind, runs in shown]
    if arguments.case is None:
        document: dict[str, Any] = {
            "trends": [_trend_object(trend) for trend in read],
            "others": [*map(_other_object, others)],
        }
        blocks: list[Block] = [*(_trend_section(arguments.suite, trend) for trend in read), _other_runs(others)]
    else:
        test_id = _test_id(arguments.case, read, parent)
        read = [trend for trend in read if any(_cases_of(test_id, trend.runs))]
        document = {"case": test_id, "trends": [_case_object(trend, test_id) for trend in read]}
        blocks = [_case_section(arguments.suite, test_id, trend) for trend in read]
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


def _trends(folders: Sequence[Path], limit: int) -> tuple[list[tuple[Kind, list[EarlierRun]]], list[_OtherRun]]:
    """Return the complete runs by kind, the kind of the latest first, and all others, the latest first."""
    from pytest_packbench.runs.history import read_earlier

    read: list[tuple[Path, EarlierRun]] = []
    others: list[_OtherRun] = []
    for folder in folders:
        try:
            read.append((folder, read_earlier(folder, with_cases=False)))
        except (StoredRunError, OSError) as error:
            others.append(_unreadable(folder, error))
    found: dict[str, tuple[Path, EarlierRun]] = {}
    # of a run and its copies, the folder with the name of the run counts
    for folder, earlier in sorted(read, key=lambda each: each[0].name != each[1].run_id):
        counted, _ = found.setdefault(earlier.run_id, (folder, earlier))
        if counted != folder:
            reason = f"the run of {counted.name} again, which is counted once"
            others.append(_OtherRun(folder.name, earlier.run, _COPY, reason))
    trends: dict[Kind, list[EarlierRun]] = {}
    for folder, earlier in sorted(found.values(), key=lambda each: each[1].run_id, reverse=True):
        if earlier.run.partial:
            others.append(_OtherRun(folder.name, earlier.run, earlier.status, earlier.run.partial))
        else:
            trends.setdefault(earlier.kind, []).append(earlier)
    # run ids sort by time
    others.sort(key=lambda other: other.name, reverse=True)
    return [(kind, runs[:limit][::-1]) for kind, runs in trends.items()], others


def _unreadable(folder: Path, error: Exception) -> _OtherRun:
    status = _UNREADABLE if (folder / REPORT).exists() else _UNFINISHED
    reason = f"{folder / REPORT}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return _OtherRun(folder.name, None, status, reason)


def _with_cases(parent: Path, kind: Kind, runs: Iterable[EarlierRun], others: list[_OtherRun]) -> _Trend:
    """Read the cases of like runs; a run whose cases can't be read is added to the others."""
    from pytest_packbench.runs.history import read_earlier

    complete: list[EarlierRun] = []
    for earlier in runs:
        folder = earlier.folder or parent / earlier.run_id
        try:
            complete.append(read_earlier(folder))
        except (StoredRunError, OSError) as error:
            others.append(_unreadable(folder, error))
    steps = [_step(before, now) for before, now in pairwise(complete)]
    return _Trend(kind, complete, [None, *steps][: len(complete)])


def _hidden(trends: Sequence[tuple[Kind, list[EarlierRun]]]) -> Iterator[str]:
    for kind, runs in trends:
        yield f"{pluralize(len(runs), 'run')} in {_kind_text(kind)}"


def _counted(others: Sequence[_OtherRun]) -> Iterator[str]:
    broken = [other.name for other in others if other.run is None]
    copies = sum(other.status == _COPY for other in others)
    if len(others) > len(broken) + copies:
        yield pluralize(len(others) - len(broken) - copies, "incomplete run")
    if copies:
        yield f"{pluralize(copies, 'folder')} with a copy of a run"
    if broken:
        names = ", ".join([*broken[:_MAX_NAMED][::-1], *(["..."] if len(broken) > _MAX_NAMED else ())])
        yield f"{pluralize(len(broken), 'run')} that did not end or can't be read ({names})"


def _kind_text(kind: Kind) -> str:
    model = " / ".join(filter(None, (kind.backend, kind.model)))
    texts = (f"{kind.mode} mode", f"target {kind.target}", model, f"guards {kind.guards}" if kind.guards else "")
    return ", ".join(filter(None, texts))


def _trend_section(suite: str, trend: _Trend) -> Section:
    rows = [_run_row(*each) for each in zip(trend.runs, trend.steps, strict=True)]
    changed = _changed_cases(trend)
    flaky = [each for each in changed if each.is_flaky]
    once = [each for each in changed if not each.is_flaky]
    return Section(
        f"Runs of {suite}",
        [
            Text(f"Like runs: {_kind_text(trend.kind)}."),
            Table("", _RUN_COLUMNS, rows),
            _changed_section("Flaky cases", _FLAKY, flaky),
            _changed_section("Verdicts that changed once", _ONCE, once),
        ],
    )


def _changed_section(title: str, intro: str, cases: Sequence[_Changed]) -> Section:
    shown = cases[:_MAX_FLAKY]
    rows = [(each.test_id, str(each.changes), each.row) for each in shown]
    said = f"{intro} {_legend(''.join(each.row for each in shown))}" if shown else ""
    return Section(title, [Text(said), Table("", _FLAKY_COLUMNS, rows, len(cases), "--format json names all")])


def _run_row(now: EarlierRun, step: _Step | None) -> tuple[str | None, ...]:
    from pytest_packbench.analysis.formatting import format_interval, format_mean, format_percent

    return (
        now.run_id,
        now.finished_at,
        now.status,
        f"{now.passed} of {now.judged}",
        str(now.broken) if now.broken else None,
        format_percent(now.passed, now.judged),
        None if now.interval is None else format_interval(now.interval),
        None if step is None or step.rate is None else f"{_signed(100 * step.rate, 1)} points",
        format_mean(now.mean_score),
        None if step is None or step.mean is None else _signed(step.mean, 2),
        None if step is None else step.changed or None,
    )


def _step(before: EarlierRun, now: EarlierRun) -> _Step:
    rules, old, new = _changed_rules(before, now), before.cases or {}, now.cases or {}
    both = old.keys() & new.keys()
    edited = {test_id for test_id in both if _is_edited(old[test_id], new[test_id])}
    recorded = [test_id for test_id in both - edited if _is_recorded_again(old[test_id], new[test_id])]
    return _Step(
        rate=None if rules or not before.judged or not now.judged else _difference(before.pass_rate, now.pass_rate),
        mean=None if rules else _difference(before.mean_score, now.mean_score),
        rules=rules,
        cases={
            "added": len(new.keys() - old.keys()),
            "removed": len(old.keys() - new.keys()),
            "edited": len(edited),
            "recorded again": len(recorded),
        },
    )


def _changed_rules(before: EarlierRun, now: EarlierRun) -> tuple[str, ...]:
    from pytest_packbench.analysis.changes import differences

    # each begins with what differs
    return tuple(text.partition(":")[0] for text in differences(before.run, now.run))


def _is_edited(before: EarlierCase, now: EarlierCase) -> bool:
    return (before.case_sha256, before.judge) != (now.case_sha256, now.judge)


def _is_recorded_again(before: EarlierCase, now: EarlierCase) -> bool:
    # an error may come before the recording is read
    return before.cassette_sha256 != now.cassette_sha256 and None not in {before.cassette_sha256, now.cassette_sha256}


def _difference(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _signed(value: float, digits: int) -> str:
    """Return a change with its sign; one that is not 0 is not shown as 0."""
    if not round(value, 9):
        return "0"
    while not round(value, digits):
        digits += 1
    return f"{value:+.{digits}f}"


def _changed_cases(trend: _Trend) -> list[_Changed]:
    """Return the cases whose verdict changed without a cause, those that changed most often first."""
    changes: Counter[str] = Counter()
    for (before, now), step in zip(pairwise(trend.runs), trend.steps[1:], strict=True):
        if step is not None and not step.rules:
            old, new = before.cases or {}, now.cases or {}
            changes.update(test_id for test_id, case in new.items() if test_id in old and _flipped(old[test_id], case))
    ordered = sorted(changes.items(), key=lambda each: (-each[1], each[0]))
    return [_Changed(test_id, count, _row_of_signs(test_id, trend)) for test_id, count in ordered]


def _flipped(before: EarlierCase, now: EarlierCase) -> bool:
    is_same = before.case_sha256 is not None and not _is_edited(before, now) and not _is_recorded_again(before, now)
    return is_same and before.verdict != now.verdict


def _row_of_signs(test_id: str, trend: _Trend) -> str:
    signs: list[str] = []
    for case, step in zip(_cases_of(test_id, trend.runs), trend.steps, strict=True):
        signs += [_BREAK] if step is not None and step.rules else []
        signs.append(_ABSENT if case is None else _SIGNS[case.verdict])
    return " ".join(signs)


def _legend(signs: str) -> str:
    meanings = {**{sign: word for word, sign in _SIGNS.items()}, _ABSENT: "not in the run", _BREAK: "rules changed"}
    used = [f"{sign} {word.replace('_', ' ')}" for sign, word in meanings.items() if sign in signs]
    return f"{', '.join(used)}."


def _test_id(name: str, trends: Iterable[_Trend], parent: Path) -> str:
    """Return the test id of a case that a user names by its id, or by that."""
    found: dict[str, None] = {}
    known: dict[str, None] = {}
    for trend in trends:
        for earlier in trend.runs:
            for test_id, case in (earlier.cases or {}).items():
                known[case.case_id] = None
                if name in {test_id, case.case_id}:
                    found[test_id] = None
    if len(found) == 1:
        return next(iter(found))
    if found:
        raise UsageError(f"{name}: the id of several cases; expected one of the test ids {', '.join(sorted(found))}")
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    advice = f'did you mean "{close[0]}"?' if close else "expected the id of a case, or its test id"
    raise UsageError(f'{parent}: no case "{name}" in these runs; {advice}')


def _case_section(suite: str, test_id: str, trend: _Trend) -> Section:
    signs = _row_of_signs(test_id, trend)
    changes = _changes_of(test_id, trend)
    flaky = "Flaky: its" if changes > 1 else "Its"
    remark = f"{flaky} verdict changed {_times(changes)} although the case, its recording and the rules are the same."
    blocks: list[Block] = [
        Text(f"Like runs: {_kind_text(trend.kind)}."),
        Text(f"{signs}: {_legend(signs)}"),
        Text(remark if changes else ""),
        Table("", _CASE_COLUMNS, list(_case_rows(test_id, trend.runs))),
    ]
    return Section(f"{test_id} in runs of {suite}", blocks)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"  # noqa: PLR2004 - the words for these


def _changes_of(test_id: str, trend: _Trend) -> int:
    """Return how often the verdict of a case changed without a cause."""
    return next((each.changes for each in _changed_cases(trend) if each.test_id == test_id), 0)


def _case_rows(test_id: str, runs: Sequence[EarlierRun]) -> Iterator[tuple[str | None, ...]]:
    from pytest_packbench.analysis.formatting import format_mean

    for earlier, case, changed in _case_steps(test_id, runs):
        yield (
            earlier.run_id,
            earlier.finished_at,
            f"{_SIGNS[case.verdict]} {case.verdict}{f' ({case.kind})' if case.kind else ''}",
            format_mean(case.score),
            case.answer,
            f"{case.passed} of {case.trials}" if case.trials > 1 else None,
            ", ".join(changed) or None,
        )


def _case_steps(test_id: str, runs: Sequence[EarlierRun]) -> Iterator[tuple[EarlierRun, EarlierCase, list[str]]]:
    """Yield each run that has the case, the case in it, and what changed since the run before that has it."""
    before: tuple[EarlierRun, EarlierCase] | None = None
    for earlier in runs:
        case = (earlier.cases or {}).get(test_id)
        if case is None:
            continue
        changed: list[str] = []
        if before is not None:
            changed += (_CHANGED.get(name, name) for name in _changed_rules(before[0], earlier))
            changed += ["case"] * (before[1].case_sha256 != case.case_sha256)
            changed += ["judge"] * (before[1].judge != case.judge)
            changed += ["recording"] * _is_recorded_again(before[1], case)
        yield earlier, case, changed
        before = earlier, case


def _other_runs(others: Sequence[_OtherRun]) -> Table:
    rows = [
        (other.name, *((None,) * 3 if other.run is None else _about(other.run)), other.status, _short(other))
        for other in others
    ]
    return Table("Runs in no trend", _OTHER_COLUMNS, rows)


def _short(other: _OtherRun) -> str:
    """Return the reason of a run without the path of its folder, which the row names."""
    path, _, reason = other.reason.partition(f"{other.name}/{REPORT}: ")
    return reason if path and reason else other.reason.partition(f"{other.name}: ")[2] or other.reason


def _about(of: Run) -> tuple[str, str, str]:
    return of.finished_at, of.mode, of.target


def _kind_object(kind: Kind) -> dict[str, Any]:
    return {name: value or None for name, value in kind._asdict().items() if name != "suite"}


def _trend_object(trend: _Trend) -> dict[str, Any]:
    changed = _changed_cases(trend)
    return {
        **_kind_object(trend.kind),
        "runs": [_run_object(*each) for each in zip(trend.runs, trend.steps, strict=True)],
        "flaky": [_changed_object(each, trend) for each in changed if each.is_flaky],
        "changed_once": [_changed_object(each, trend) for each in changed if not each.is_flaky],
    }


def _changed_object(changed: _Changed, trend: _Trend) -> dict[str, Any]:
    return {
        "test_id": changed.test_id,
        "changes": changed.changes,
        "verdicts": [None if case is None else case.verdict for case in _cases_of(changed.test_id, trend.runs)],
    }


def _cases_of(test_id: str, runs: Iterable[EarlierRun]) -> Iterator[EarlierCase | None]:
    return ((earlier.cases or {}).get(test_id) for earlier in runs)


def _run_object(earlier: EarlierRun, step: _Step | None) -> dict[str, Any]:
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
        "change": None
        if step is None
        else {
            "pass_rate": step.rate,
            "mean_score": step.mean,
            "rules": step.rules,
            "cases": {how.replace(" ", "_"): count for how, count in step.cases.items()},
        },
    }


def _case_object(trend: _Trend, test_id: str) -> dict[str, Any]:
    return {
        **_kind_object(trend.kind),
        "changes": _changes_of(test_id, trend),
        "runs": [
            {
                "run": earlier.run_id,
                "finished": earlier.finished_at,
                **{name: value for name, value in case._asdict().items() if name != "case_id"},
                "changed": changed,
            }
            for earlier, case, changed in _case_steps(test_id, trend.runs)
        ],
    }


def _other_object(other: _OtherRun) -> dict[str, Any]:
    finished, mode, target = (None,) * 3 if other.run is None else _about(other.run)
    return {
        "run": other.name,
        "finished": finished,
        "mode": mode,
        "target": target,
        "status": other.status,
        "trouble": other.reason,
    }
