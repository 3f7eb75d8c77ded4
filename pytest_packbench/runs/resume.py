"""A run that was begun: what is true of it, and which of its attempts need not be made again."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.checks import own_problem
from pytest_packbench.model.record import EvalRecord, RecordError
from pytest_packbench.model.run import Run
from pytest_packbench.runs.journal import latest, read_head, read_journal
from pytest_packbench.runs.merging import LinesBeside
from pytest_packbench.runs.stored import JOURNAL, REPORT, StoredRunError, open_report

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult


PARTS = "journal.*.jsonl"
"""Where workers of xdist keep what they have not told yet; the journal proper stands beside."""
_DONE = frozenset({"passed", "failed", "known_hole"})
_FACTS = {
    "pack": "the pack",
    "pack_version": "the pack's version",
    "suite_sha256": "the suite's scoring rules",
    "mode": "the mode",
    "target": "the target",
    "backend": "the backend",
    "model": "the model",
}
_HASHES = frozenset({"suite_sha256"})
_SETTINGS = ("trials", "guards", "temperature", "shard")
_DEFAULTS: dict[str, Any] = {"trials": 1, "guards": []}
_SPENT = "spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that was begun.

    Attributes:
        run: what is true of it; None where it died before that was written.
        entries: what was scored, one for each trial of each case; records and payloads are among them.
        broken: attempts that broke or were not begun, those of quarantined cases among them.
        again: how many of them are to be made again.
        parts: journals of workers that the entries were read from as well.
    """

    run: Run | None
    entries: tuple[CaseResult, ...]
    again: int
    broken: tuple[CaseResult, ...] = ()
    parts: tuple[Path, ...] = ()


def is_done(entry: CaseResult) -> bool:
    """Whether an attempt need not be made again: it was scored. What broke or was not begun is tried again."""
    return entry.verdict in _DONE


def is_unfinished(folder: Path) -> bool:
    """Whether a run's folder has something to resume: it died, or attempts broke or were not begun.

    Args:
        folder: the run's folder.

    Raises:
        StoredRunError: its report can't be read.
        OSError: the same.
    """
    if (folder / JOURNAL).exists() or not (folder / REPORT).exists():
        return True
    report = open_report(folder)
    return report.status != "passed" and any(not is_done(entry) and not entry.quarantined for entry in report.entries)


def read_begun(folder: Path) -> Begun:
    """Read what a run has so far: its journal where it died, else its report, records and payloads.

    Args:
        folder: the run's folder.

    Raises:
        StoredRunError: one of them can't be read, or an older version wrote the journal.
        JournalError: a line of the journal is no entry.
        OSError: a file can't be read.
    """
    journal = folder / JOURNAL
    if not journal.exists():
        # it may have died before it wrote anything
        return _from_report(folder) if (folder / REPORT).exists() else Begun(run=None, entries=(), again=0)
    head = read_head(journal)
    parts = tuple(sorted(folder.glob(PARTS)))
    found = [entry for path in (*parts, journal) for entry in read_journal(path)]
    if head is None and found:
        raise StoredRunError(f"{journal}: its first line does not tell what was run; start a new run")
    for entry in found:
        _check(entry, folder, journal)
    # the same attempt may stand in the journal of the worker that made it, too
    entries = latest(sorted(found, key=lambda entry: entry.timestamp))
    return replace(_sorted_out(None if head is None else _run(head, journal), entries), parts=parts)


def _check(entry: CaseResult, folder: Path, journal: Path) -> None:
    """See that an entry of a journal can stand in the run's reports.

    Raises:
        StoredRunError: it is of another suite, or its record is missing or none.
    """
    record, wrong = entry.record, ""
    if entry.suite != folder.parent.name:
        wrong = f'is of the suite "{entry.suite}"'
    elif record is None:
        wrong = "was scored and has no record" if entry.counted else ""
    else:
        try:
            wrong = own_problem(EvalRecord.from_json_line(json.dumps(record), strict=False).packbench or {}) or ""
        except RecordError as error:
            wrong = str(error)
    if wrong:
        raise StoredRunError(f"{journal}: the entry of {entry.test_id}: {wrong}; start a new run")


def differences(before: Run, now: Run) -> list[str]:
    """Name what makes the results of two sessions results of different things.

    Args:
        before: the run as it was begun.
        now: the run as it would be resumed.

    Returns:
        One text for each difference; empty where the run can be resumed.
    """
    told = []
    for name, words in _FACTS.items():
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            told.append(f"{words} changed" + ("" if name in _HASHES else f" ({was or 'none'}, now {is_now or 'none'})"))
    for name in _SETTINGS:
        was, is_now = (run.settings.get(name, _DEFAULTS.get(name)) for run in (before, now))
        if was != is_now:
            told.append(f"{name} changed ({_shown(was)}, now {_shown(is_now)})")
    return told


def spent_before(run: Run) -> dict[str, Any] | None:
    """Give what earlier sessions of a run used, where it was told."""
    spent = run.settings.get(_SPENT)
    return spent if isinstance(spent, dict) and _is_spent(spent) else None


def _is_spent(spent: dict[str, Any]) -> bool:
    counts = [spent.get(name) for name in ("calls", "tokens", "uncounted")] + [spent.get("cached", 0)]
    cost = spent.get("cost", "")
    is_cost = cost is None or (isinstance(cost, int | float) and not isinstance(cost, bool))
    return all(type(count) is int for count in counts) and is_cost and isinstance(spent.get("currency"), str)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _from_report(folder: Path) -> Begun:
    report = open_report(folder)
    records, payloads = LinesBeside(folder / "records.jsonl"), LinesBeside(folder / "payloads.jsonl")
    entries = []
    for entry in report.entries:
        record, payload = records.take(entry), payloads.take(entry)
        if entry.counted and record is None:
            raise StoredRunError(f"{folder}: no record of {entry.test_id}, which its report counts")
        entries.append(replace(entry, record=record, payload=None if payload is None else payload.get("result")))
    records.end()
    payloads.end()
    return _sorted_out(report.run, entries)


def _sorted_out(run: Run | None, entries: list[CaseResult]) -> Begun:
    done = tuple(entry for entry in entries if is_done(entry))
    broken = tuple(entry for entry in entries if not is_done(entry))
    again = sum(not entry.quarantined for entry in broken)
    return Begun(run=run, entries=done, again=again, broken=broken)


def _run(head: dict[str, Any], path: Path) -> Run:
    known = {one.name for one in fields(Run)}
    try:
        run = Run(**{name: value for name, value in head.items() if name in known})
    except TypeError as error:
        raise StoredRunError(f"{path}:1: /run: {error}") from None
    kinds: dict[str, type] = {**dict.fromkeys(_TEXTS, str), "settings": dict}
    if not all(isinstance(getattr(run, name), kind) for name, kind in kinds.items()):
        raise StoredRunError(f"{path}:1: /run: not what a run is")
    return run


_TEXTS = ("run_id", "suite", "pack", "pack_version", "suite_sha256", "mode", "target", "started_at")
