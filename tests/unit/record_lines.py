"""Records, their lines and files, and lines of errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.tally import Tally
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.runs.lines import RecordSource, read_records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RUN = "01HF8K0M5ZQEJ8C7XV6NQAYWZP"
FIELDS: dict[str, Any] = {
    "test_suite": "agentdojo",
    "test_id": "agentdojo:1",
    "attack_category": "x",
    "agent_decision": "refuse",
    "expected": "refuse",
    "passed": True,
    "wall_clock_ms": 1,
    "llm_backend": "anthropic",
    "llm_model": "m-1",
    "run_id": RUN,
    "timestamp": "t",
}


def record(**changes: Any) -> EvalRecord:
    """Return a record that passed."""
    return EvalRecord(**{**FIELDS, **changes})


def line(**changes: Any) -> bytes:
    """Return the line of a record."""
    return record(**changes).to_json_line().encode() + b"\n"


def lines(passed: int, failed: int = 0, **changes: Any) -> bytes:
    """Return this many lines of passed and failed cases, with distinct ids."""
    suite = changes.get("test_suite", "agentdojo")
    verdicts = [True] * passed + [False] * failed
    return b"".join(
        line(**{"test_id": f"{suite}:{number}", "passed": verdict, **changes})
        for number, verdict in enumerate(verdicts)
    )


def error(verdict: str = "error", **changes: Any) -> dict[str, Any]:
    """Return a line of errors.jsonl."""
    return {
        "run_id": RUN,
        "test_id": "agentdojo:e1",
        "verdict": verdict,
        "kind": "timeout",
        "message": "took too long",
        "file": "cases/e1.json",
        "timestamp": "t",
        **changes,
    }


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
