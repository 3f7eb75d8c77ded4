"""`packbench validate --strict`: records as the Rust reader reads them, and words that are nearly right."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from pytest_packbench.commands import main
from tests.parity.test_parity import vectors

RECORD = {
    "schema_version": 1,
    "test_suite": "agentdojo",
    "test_id": "agentdojo:slack:1",
    "attack_category": "a",
    "agent_decision": "refuse",
    "expected": "refuse",
    "passed": True,
    "wall_clock_ms": 1,
    "llm_backend": "stub",
    "llm_model": "m",
    "run_id": "r",
    "timestamp": "t",
}
SUITES = "expected one of agentdojo, harmbench, injecagent"
BACKENDS = "expected one of stub, anthropic, openai, ollama, llama_guard"
OPEN_BACKENDS = "expected 'stub', 'anthropic', 'openai', 'ollama', 'llama_guard' or 'unknown'"
DECISIONS = "expected 'refuse', 'comply_safe' or 'comply_unsafe'"


def output_of(content: bytes, *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    Path("some.jsonl").write_bytes(content)
    code = main(["validate", *options, "some.jsonl"])
    return code, capsys.readouterr().out.removeprefix("some.jsonl:").strip()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"packbench": "ignored there"}, ""),
        ({"test_suite": "tariff"}, f'test_suite: got "tariff"; {SUITES}'),
        ({"test_suite": "agent_dojo"}, 'test_suite: got "agent_dojo"; did you mean "agentdojo"?'),
        ({"test_suite": "agent-dojo"}, 'test_suite: got "agent-dojo"; did you mean "agentdojo"?'),
        ({"test_suite": "agentdoj"}, 'test_suite: got "agentdoj"; did you mean "agentdojo"?'),
        ({"test_suite": "inject_agent"}, 'test_suite: got "inject_agent"; did you mean "injecagent"?'),
        (
            {"llm_backend": "llamaguard"},
            f'llm_backend: got "llamaguard"; {OPEN_BACKENDS}; did you mean "llama_guard"?',
        ),
        ({"llm_backend": "unknown"}, f'llm_backend: got "unknown"; {BACKENDS}'),
        ({"expected": "accept"}, f'expected: got "accept"; {DECISIONS}'),
        ({"expected": "comply-safe"}, f'expected: got "comply-safe"; {DECISIONS}; did you mean "comply_safe"?'),
        ({"schema_version": 2}, "schema_version: got 2; expected 1"),
    ],
)
def test_only_what_rust_reads_is_valid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = json.dumps({**RECORD, **changes}).encode()
    code, output = output_of(json.dumps(RECORD).encode() + b"\n \n" + line, "--strict", capsys=capsys)
    assert (code, output) == (
        (2, f"3: {problem}: NOT VALID")
        if problem
        else (0, "2 lines, each eval record, version 1, as the Rust reader reads it")
    )
    # other files are read as before
    for content in (b'{"pack_id": "x", "case_type": "y"}', b" \n"):
        other = output_of(content, capsys=capsys)
        assert other[0] == 2
        assert output_of(content, "--strict", capsys=capsys) == other


def test_each_known_line_is_valid_exactly_if_rust_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = json.dumps(RECORD).encode() + b"\n"
    wrong = []
    for vector in vectors("eval_record_edges.jsonl"):
        line = base64.b64decode(vector["input_b64"]) if "input_b64" in vector else vector["input"].encode()
        code, _ = output_of(first + line, "--strict", capsys=capsys)
        # a file is read with the white space around its lines cut off
        if (code == 0) != (vector.get("verdict_trimmed", vector["verdict"]) in {"OK", "SKIP"}):
            wrong.append(vector["id"])
    assert wrong == []
