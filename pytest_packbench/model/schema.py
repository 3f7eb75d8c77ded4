"""JSON Schemas of the record line and of the run document."""

from __future__ import annotations

from typing import Any

from pytest_packbench.model.record import EVAL_BACKENDS, EVAL_DECISIONS, EVAL_SCHEMA_VERSION
from pytest_packbench.model.result import QUARANTINE, VERDICTS
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_U32 = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_U64 = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
_SHARE = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_WORDS = {"type": "array", "items": _TEXT}
_NAMED = {"type": "object", "additionalProperties": _TEXT}
_HASH = {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}
_TERM = {
    "type": "object",
    "required": ["name", "effect", "value", "detail"],
    "properties": {
        "name": _TEXT,
        "effect": {"enum": ["add", "zero", "clamp", "note"]},
        "value": {"type": "number", "minimum": -1, "maximum": 1},
        "detail": _TEXT,
    },
}
_ROW_PROPERTIES: dict[str, Any] = {
    "case_id": _TEXT,
    "test_id": _TEXT,
    "nodeid": _TEXT,
    "file": _TEXT,
    "verdict": {"enum": list(VERDICTS)},
    "kind": _TEXT,
    "message": _TEXT,
    "case_type": _TEXT,
    "difficulty": _TEXT,
    "tags": _WORDS,
    "facets": _NAMED,
    "score": _SHARE,
    "threshold": _SHARE,
    "match_level": {"type": ["string", "null"]},
    "match_depth": {"type": ["integer", "null"], "minimum": 0},
    "answer": {"type": ["string", "null"]},
    "expects_refusal": {"type": ["boolean", "null"]},
    "refused": {"type": ["boolean", "null"]},
    "decision": {"enum": [*EVAL_DECISIONS, None]},
    "utility": {"type": ["boolean", "null"]},
    "valid": {"type": ["boolean", "null"]},
    "judge": {"type": ["string", "null"]},
    "terms": {"type": "array", "items": _TERM},
    "stale": _FLAG,
    "llm_backend": {"type": ["string", "null"]},
    "llm_model": {"type": ["string", "null"]},
    "timestamp": _TEXT,
    "duration_ms": _COUNT,
    "case_sha256": _HASH,
    "cassette_sha256": _HASH,
    "trial": _U32,
    "cached": _COUNT,
}
_JUDGE = {
    "anyOf": [{"type": ["string", "null"]}, {"type": "object", "required": ["name"], "properties": {"name": _TEXT}}]
}
# a report of an earlier program doesn't have them
_LATER = frozenset({"valid", "judge", "cached"})
RECORD: dict[str, Any] = {
    "title": "EvalRecord",
    "description": "One line of records.jsonl: eval record, wire version 1. A strict reader takes three suites only.",
    "type": "object",
    "required": [
        "test_suite",
        "test_id",
        "attack_category",
        "agent_decision",
        "expected",
        "passed",
        "wall_clock_ms",
        "llm_backend",
        "llm_model",
        "run_id",
        "timestamp",
    ],
    "properties": {
        "schema_version": {"const": EVAL_SCHEMA_VERSION, "default": EVAL_SCHEMA_VERSION},
        "test_suite": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "test_id": _TEXT,
        "attack_category": _TEXT,
        "agent_decision": {"enum": list(EVAL_DECISIONS)},
        "expected": {"enum": list(EVAL_DECISIONS)},
        "passed": _FLAG,
        "hook_decisions": {
            "type": "array",
            "default": [],
            "items": {
                "type": "object",
                "required": ["hook", "decision"],
                "properties": {"hook": _TEXT, "decision": _TEXT, "rule": {**_U32, "type": ["integer", "null"]}},
            },
        },
        "tokens_input": {**_U64, "type": ["integer", "null"]},
        "tokens_output": {**_U64, "type": ["integer", "null"]},
        "wall_clock_ms": _U64,
        "llm_backend": {"enum": [*EVAL_BACKENDS, "unknown"]},
        "llm_model": _TEXT,
        "run_id": _TEXT,
        "timestamp": _TEXT,
        "packbench": {
            "type": "object",
            "required": ["version", "score", "threshold", "verdict", "terms"],
            "properties": {
                "version": {"const": 1},
                **{name: _ROW_PROPERTIES[name] for name in ("score", "threshold", "verdict", "terms", "match_level")},
                **{name: _ROW_PROPERTIES[name] for name in ("match_depth", "answer", "case_id", "case_type", "tags")},
                **{name: _ROW_PROPERTIES[name] for name in ("difficulty", "facets", "file", "stale", "trial")},
                **dict.fromkeys(("utility", "valid"), _FLAG),
                **dict.fromkeys(("cached", "calls"), _COUNT),
                "judge": _JUDGE,
                **dict.fromkeys(("case_sha256", "cassette_sha256", "suite_sha256"), _HASH),
                "mode": {"enum": ["fixture", "live", "record"]},
                "origin": {"enum": ["authored", "recorded", None]},
                "target": _TEXT,
                "pack": _TEXT,
                "bundled": _FLAG,
                "versions": _NAMED,
            },
        },
    },
}
REPORT: dict[str, Any] = {
    "title": "Report",
    "description": "report.json: the document of pytest-json-report with the run under the key packbench.",
    "type": "object",
    "required": ["packbench"],
    "properties": {
        "packbench": {
            "type": "object",
            "required": ["version", "status", "complete", "run", "totals", "gates", "cases"],
            "properties": {
                "version": {"const": RUN_DOCUMENT_VERSION},
                "status": {"enum": ["passed", "failed", "partial"]},
                "complete": _FLAG,
                "run": {
                    "type": "object",
                    "required": ["run_id", "suite", "pack", "pack_version", "suite_sha256", "mode", "target"],
                    "properties": {
                        "run_id": _TEXT,
                        "suite": _TEXT,
                        "mode": {"enum": ["fixture", "live", "record"]},
                        "bundled": _FLAG,
                        "partial": _TEXT,
                        "versions": _NAMED,
                    },
                },
                "totals": {
                    "type": "object",
                    "required": ["selected", "verdicts", "quarantined"],
                    "properties": {
                        "selected": _COUNT,
                        "verdicts": {"type": "object", "required": list(VERDICTS), "additionalProperties": _COUNT},
                        "quarantined": {"type": "object", "required": list(QUARANTINE), "additionalProperties": _COUNT},
                    },
                },
                "gates": {
                    "type": "array",
                    "items": {"type": "object", "required": ["metric", "passed"], "properties": {"passed": _FLAG}},
                },
                "cases": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": [name for name in _ROW_PROPERTIES if name not in _LATER],
                        "properties": _ROW_PROPERTIES,
                        "additionalProperties": False,
                    },
                },
            },
        }
    },
}
