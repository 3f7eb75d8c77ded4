"""Reading a run that was stored: a run folder, a `report.json`, or record lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pytest_packbench.records.entry import VERDICTS, Entry
from pytest_packbench.records.evalrecord import EvalRecord, RecordError
from pytest_packbench.records.run import RUN_DOCUMENT_VERSION, Run

if TYPE_CHECKING:
    from pathlib import Path

REPORT = "report.json"
_ENTRY_FIELDS = {one.name for one in fields(Entry)}
_RUN_FIELDS = {one.name for one in fields(Run)}
_FROM_RECORD = (
    "score",
    "threshold",
    "match_level",
    "match_depth",
    "answer",
    "case_id",
    "case_type",
    "difficulty",
    "facets",
    "file",
    "stale",
    "case_sha256",
    "cassette_sha256",
    "trial",
    "utility",
)


class StoredRunError(ValueError):
    """A stored run can't be read: one line with the file and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as its files tell it.

    Attributes:
        source: the file that it was read from.
        run: what is true of all its entries.
        entries: one for each case, sorted by test id and trial; records and payloads are not among them.
    """

    source: str
    run: Run
    entries: tuple[Entry, ...]


def load_run(path: Path) -> StoredRun:
    """Read a run.

    Args:
        path: a run folder, its `report.json`, or a `.jsonl` of records of one run.

    Raises:
        StoredRunError: it is none of these, or of a version that this program doesn't know.
        OSError: it can't be read.
    """
    place = path / REPORT if path.is_dir() else path
    if place.suffix == ".jsonl":
        return _from_records(place)
    return _from_report(place)


def _from_report(path: Path) -> StoredRun:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StoredRunError(f"{path}: not JSON: {error}") from None
    ours = document.get("packbench") if isinstance(document, dict) else None
    if not isinstance(ours, dict):
        raise StoredRunError(f'{path}: no key "packbench"; expected the report.json of a run')
    if ours.get("version") != RUN_DOCUMENT_VERSION:
        raise StoredRunError(
            f"{path}: /packbench/version: got {ours.get('version')!r}; this program reads {RUN_DOCUMENT_VERSION}"
        )
    try:
        run = Run(**{name: value for name, value in ours["run"].items() if name in _RUN_FIELDS})
        _check("run", run, _RUN_TYPES)
        entries = [_entry(row, run) for row in ours["cases"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoredRunError(f"{path}: /packbench: not a run document: {type(error).__name__}: {error}") from None
    return StoredRun(source=str(path), run=run, entries=_sorted(entries))


def _entry(row: dict[str, Any], run: Run) -> Entry:
    known = {name: value for name, value in row.items() if name in _ENTRY_FIELDS}
    known["tags"], known["terms"] = tuple(row["tags"]), tuple(row["terms"])
    return _sound(Entry(suite=run.suite, **known))


def _sound(entry: Entry) -> Entry:
    """Check what mypy can't see of a file: reports count, compare and sort by these."""
    _check(f"case {entry.case_id!r}", entry, _ENTRY_TYPES)
    if entry.verdict not in VERDICTS:
        raise ValueError(f"case {entry.case_id!r}: verdict {entry.verdict!r} is none of {', '.join(VERDICTS)}")
    for name in ("score", "threshold"):
        value = getattr(entry, name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"case {entry.case_id!r}: {name} {value!r} does not lie between 0 and 1")
    # what a file holds is checked at run time, whatever the annotation says
    terms: tuple[Any, ...] = entry.terms
    for term in terms:
        sound = isinstance(term, dict) and isinstance(term.get("name"), str) and isinstance(term.get("effect"), str)
        if not sound or not isinstance(term.get("value"), int | float):
            raise ValueError(f"case {entry.case_id!r}: a term is not of the form name, effect, value")
    return entry


def _check(where: str, found: object, types: dict[str, Any]) -> None:
    for name, kind in types.items():
        value = getattr(found, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{where}: {name} is {value!r:.60}")


_NUMBER = int | float | None
_ENTRY_TYPES: dict[str, Any] = {
    **dict.fromkeys(("suite", "test_id", "case_id", "nodeid", "file", "verdict", "kind", "message"), str),
    **dict.fromkeys(("case_type", "difficulty", "timestamp"), str),
    **dict.fromkeys(("score", "threshold"), _NUMBER),
    **dict.fromkeys(("trial", "duration_ms"), int),
    "facets": dict,
    "tags": tuple,
    "terms": tuple,
    "stale": bool,
    "match_depth": int | None,
    "answer": str | None,
    "case_sha256": str | None,
}
_RUN_TYPES: dict[str, Any] = {
    **dict.fromkeys(("run_id", "suite", "pack", "pack_version", "suite_sha256", "mode", "target"), str),
    **dict.fromkeys(("started_at", "finished_at", "partial"), str),
}


def _from_records(path: Path) -> StoredRun:
    records: list[EvalRecord] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                records.append(EvalRecord.from_json_line(line, strict=False))
            except RecordError as error:
                raise StoredRunError(f"{path}:{number}: {error}") from None
    if not records:
        raise StoredRunError(f"{path}: no records")
    ids = sorted({record.run_id for record in records})
    suites = sorted({record.test_suite for record in records})
    if len(ids) > 1 or len(suites) > 1:
        raise StoredRunError(f"{path}: holds {len(ids)} runs of {len(suites)} suites; expected one of each")
    try:
        # the same attempt written twice is one attempt: the first counts, as in a report
        unique = {(entry.test_id, entry.trial): entry for entry in map(entry_of_record, reversed(records))}
        run = _run_of(records)
        _check("run", run, _RUN_TYPES)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoredRunError(f"{path}: not records of ours: {error}") from None
    return StoredRun(source=str(path), run=run, entries=_sorted(list(unique.values())))


def entry_of_record(record: EvalRecord) -> Entry:
    """Make an entry of a wire record; what only our own object tells is missing in a foreign one."""
    ours = record.packbench or {}
    entry = Entry(
        **{name: ours[name] for name in _FROM_RECORD if name in ours and name not in {"case_id", "file"}},
        suite=record.test_suite,
        test_id=record.test_id,
        case_id=str(ours.get("case_id", record.test_id)),
        nodeid=f"{ours.get('file', '')}::{ours.get('case_id', record.test_id)}",
        file=str(ours.get("file", "")),
        verdict="passed" if record.passed else "failed",
        timestamp=record.timestamp,
        duration_ms=record.wall_clock_ms,
        tags=tuple(ours.get("tags", ())),
        expects_refusal=record.expected == "refuse",
        refused=record.agent_decision == "refuse",
        decision=record.agent_decision,
        terms=tuple(ours.get("terms", ())),
        llm_backend=record.llm_backend,
        llm_model=record.llm_model,
    )
    return _sound(entry)


def _run_of(records: list[EvalRecord]) -> Run:
    first = records[0]
    ours = first.packbench or {}
    pack, _, version = str(ours.get("pack", "")).partition("/")
    return Run(
        run_id=first.run_id,
        suite=first.test_suite,
        description="",
        pack=pack,
        pack_version=version,
        suite_sha256=str(ours.get("suite_sha256", "")),
        bundled=bool(ours.get("bundled", False)),
        mode=str(ours.get("mode", "")),
        target=str(ours.get("target", "")),
        started_at=min(record.timestamp for record in records),
        finished_at=max(record.timestamp for record in records),
        versions=dict(ours.get("versions", {})),
    )


def _sorted(entries: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.test_id, entry.trial)))
