"""Our strict reader against the verdicts and the output of Rust's, where such vectors are at hand."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_packbench.model.record import EvalRecord, RecordError

FOLDER = Path(os.environ.get("PACKBENCH_PARITY", Path(__file__).parents[2].parent / "shared" / "parity"))
EDGES = FOLDER / "eval_record_edges.jsonl"


def _vectors() -> list[Any]:
    if not EDGES.is_file():
        reason = f"no {EDGES.name} in {FOLDER} (PACKBENCH_PARITY)"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    lines = EDGES.read_text(encoding="utf-8").split("\n")
    return [pytest.param(vector, id=vector["id"]) for vector in map(json.loads, filter(None, lines))]


def _verdict(line: str | bytes) -> tuple[str, str | None]:
    try:
        return "OK", EvalRecord.from_json_line(line).to_json_line()
    except RecordError:
        return "ERR", None


@pytest.mark.parametrize("vector", _vectors())
def test_verdict_and_output_agree(vector: dict[str, Any]) -> None:
    expected = (vector["verdict"], vector.get("output"))
    if "input" in vector:
        assert _verdict(vector["input"]) == expected
        assert _verdict(vector["input"].encode()) == expected
    else:
        assert _verdict(base64.b64decode(vector["input_b64"])) == expected
