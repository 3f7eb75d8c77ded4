"""The strict reader of records compared with the verdicts and output of the Rust reader, if vectors are available."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pytest_packbench.model.record import EvalRecord, RecordError
from tests.parity.vectors import vectors


def _verdict(line: str | bytes) -> tuple[str, str | None]:
    try:
        return "OK", EvalRecord.from_json_line(line).to_json_line()
    except RecordError:
        return "ERR", None


@pytest.mark.parametrize("vector", vectors("eval_record_edges.jsonl"))
def test_verdict_and_output_agree(vector: dict[str, Any]) -> None:
    expected = (vector["verdict"], vector.get("output"))
    if "input" in vector:
        assert _verdict(vector["input"]) == expected
        assert _verdict(vector["input"].encode()) == expected
    else:
        assert _verdict(base64.b64decode(vector["input_b64"])) == expected
