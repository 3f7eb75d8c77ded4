"""Lines of records for tests, and the command on files of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from pytest_packbench.analysis.tally import Tally
from pytest_packbench.model.record import EVAL_DECISIONS, EVAL_SUITES, EvalRecord
from pytest_packbench.runs.lines import RecordSource, read_records

if TYPE_CHECKING:
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
    """A record that passed."""
    return EvalRecord(**{**FIELDS, **changes})


def line(**changes: Any) -> bytes:
    """Its line."""
    return record(**changes).to_json_line().encode() + b"\n"


def lines(passed: int, failed: int = 0, **changes: Any) -> bytes:
    """Return this many lines of passed and failed cases, with distinct ids."""
    suite = changes.get("test_suite", "agentdojo")
    results = [True] * passed + [False] * failed
    return b"".join(
        line(**{"test_id": f"{suite}:{number}", "passed": good, **changes}) for number, good in enumerate(results)
    )


def file_of(folder: Path, content: bytes, name: str = "in.jsonl") -> str:
    """Write a file of lines and return its name."""
    path = folder / name
    path.write_bytes(content)
    return str(path)


def folder_of(folder: Path, content: bytes, *errors: dict[str, str]) -> str:
    """The folder of a run, with error lines where there are any."""
    folder.mkdir(parents=True)
    file_of(folder, content, "records.jsonl")
    if errors:
        file_of(folder, b"".join(json.dumps(error).encode() + b"\n" for error in errors), "errors.jsonl")
    return str(folder)


def error(verdict: str = "error", **changes: str) -> dict[str, str]:
    """A line of errors.jsonl."""
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


def tally_of(records: list[EvalRecord]) -> Tally:
    """Records, counted."""
    tally = Tally()
    for one in records:
        tally.add_record(one)
    return tally


def read(path: str, **options: Any) -> list[EvalRecord]:
    """The records of a file."""
    return list(read_records(RecordSource(path), **options))


names = st.text(max_size=4) | st.sampled_from(["a", "b", "|", "a\nb"])
records = st.builds(
    record,
    test_suite=st.sampled_from((*EVAL_SUITES, "tariff")),
    test_id=st.sampled_from("abcde"),
    attack_category=names,
    agent_decision=st.sampled_from(EVAL_DECISIONS),
    passed=st.booleans(),
    wall_clock_ms=st.integers(0, 2**64 - 1),
    tokens_input=st.none() | st.integers(0, 2**64 - 1),
    llm_backend=st.sampled_from(["stub", "anthropic"]),
    run_id=st.sampled_from(["r1", "r2"]),
    packbench=st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "trial": st.integers(0, 2),
            "score": st.floats(0, 1),
            "cost_usd": st.floats(0, 10),
            "utility": st.booleans(),
            "judge": st.sampled_from(["j1", "j2"]),
            "mode": st.sampled_from(["fixture", "live"]),
        },
    ),
)
