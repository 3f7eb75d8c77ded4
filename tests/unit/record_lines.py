"""Records, their lines and files, and lines of errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.tally import Tally
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.runs.lines import RecordSource, read_records
from tests.unit.run_builders import data

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FIELDS: dict[str, Any] = data("usual.yaml")["record"]
RUN = FIELDS["run_id"]


def record(**changes: Any) -> EvalRecord:
    """Return a record that passed."""
    return EvalRecord(**{**FIELDS, **changes})


def line(**changes: Any) -> bytes:
    """Return the line of a record."""
    return record(**changes).to_json_line().encode() + b"\n"


def lines_of(rows: Iterable[dict[str, Any]]) -> bytes:
    """Return the lines of the records that `data/reports.yaml` describes."""
    content: list[bytes] = []
    number = 0
    for row in rows:
        changes = dict(row)
        number, count = changes.pop("from", number), changes.pop("n", 1)
        name = changes.get("test_suite", "agentdojo")
        content += [line(**{"test_id": f"{name}:{n}", **changes}) for n in range(number, number + count)]
        number += count
    return b"".join(content)


def error(verdict: str = "error", **changes: Any) -> dict[str, Any]:
    """Return a line of errors.jsonl."""
    return {**data("usual.yaml")["error"], "verdict": verdict, **changes}


def file_of(folder: Path, content: bytes, name: str = "in.jsonl") -> str:
    """Write a file of lines and return its name."""
    path = folder / name
    path.write_bytes(content)
    return str(path)


def folder_of(folder: Path, content: bytes, *errors: dict[str, Any]) -> str:
    """Write the folder of a run, with error lines if there are any, and return its name."""
    folder.mkdir(parents=True)
    file_of(folder, content, "records.jsonl")
    if errors:
        file_of(folder, b"".join(json.dumps(error).encode() + b"\n" for error in errors), "errors.jsonl")
    return str(folder)


def tally_of(records: Iterable[EvalRecord]) -> Tally:
    """Count records."""
    tally = Tally()
    for each in records:
        tally.add_record(each)
    return tally


def read(path: str, **options: Any) -> list[EvalRecord]:
    """Read the records of a file."""
    return list(read_records(RecordSource(path), **options))
