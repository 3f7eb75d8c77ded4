"""JSON Schemas of a record and of a report."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from pytest_packbench.model.policy import POLICY_VERSION
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord
from pytest_packbench.model.result import extension_model, row_model
from pytest_packbench.model.run import MODES, RUN_DOCUMENT_VERSION
from pytest_packbench.model.score import QUARANTINE, VERDICTS

_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_STRING_MAP = {"type": "object", "additionalProperties": _STRING}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 0}
_FIGURE = {
    "type": "object",
    "required": [
        *("group", "name", "headline", "count", "total", "share", "number", "unit", "interval", "note", "definition")
    ],
    "properties": {
        **dict.fromkeys(("group", "name", "unit", "note", "definition"), _STRING),
        "headline": _BOOLEAN,
        **dict.fromkeys(("count", "total"), _COUNT_OR_NULL),
        "share": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "number": _NUMBER_OR_NULL,
        "interval": {
            "type": ["object", "null"],
            "required": ["low", "high", "method"],
            "properties": {"low": {"type": "number"}, "high": {"type": "number"}, "method": _STRING},
        },
    },
}


def _record_schema() -> dict[str, Any]:
    """Return the schema of a record, as far as a schema can express it: `EvalRecord` is stricter."""
    schema = TypeAdapter(EvalRecord).json_schema()
    extension = extension_model().model_json_schema()
    schema["$defs"] |= extension.pop("$defs")
    schema["properties"]["packbench"] = extension
    schema["properties"]["schema_version"] = {"const": EVAL_SCHEMA_VERSION}
    return schema


_ROW = {**row_model().model_json_schema(), "additionalProperties": False}
RECORD: dict[str, Any] = {
    "title": "EvalRecord",
    "description": "One line of records.jsonl: eval record, wire version 1. A strict reader accepts three suites only.",
    **_record_schema(),
}
REPORT: dict[str, Any] = {
    "$defs": _ROW.pop("$defs"),
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
                "complete": _BOOLEAN,
                "run": {
                    "type": "object",
                    "required": ["run_id", "suite", "pack", "pack_version", "suite_sha256", "mode", "target"],
                    "properties": {
                        "run_id": _STRING,
                        "suite": _STRING,
                        "mode": {"enum": list(MODES)},
                        "bundled": _BOOLEAN,
                        "partial": _STRING,
                        "versions": _STRING_MAP,
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
                "figures": {"type": "array", "items": _FIGURE},
                "gates": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["metric", "passed"],
                        "properties": {
                            "passed": _BOOLEAN,
                            "judged": _BOOLEAN,
                            "confidence": {"type": ["number", "null"]},
                            "proven": {"type": ["boolean", "null"]},
                        },
                    },
                },
                "comparison": {
                    "type": "object",
                    "required": ["requested", "baseline", "problem", "conditions", "failed"],
                    "properties": {"requested": _STRING, "problem": _STRING, "failed": _BOOLEAN},
                },
                "policy": {
                    "type": "object",
                    "required": ["version", "config", "files", "code", "recordings", "settings", "baseline"],
                    "properties": {
                        "version": {"const": POLICY_VERSION},
                        "config": {"type": "object"},
                        "files": _STRING_MAP,
                        "code": _STRING_MAP,
                        "recordings": _STRING_MAP,
                        "settings": {"type": "object"},
                    },
                },
                "controls": {
                    "type": "object",
                    "required": ["present", "selected", "as_written", "deviates", "broken", "not_run", "wrong"],
                    "properties": {
                        **dict.fromkeys(("present", "selected", "as_written", "deviates", "broken", "not_run"), _COUNT),
                        "wrong": {"type": "array", "items": _STRING},
                    },
                },
                "policy_changes": {
                    "type": "object",
                    "required": ["base", "failed", "changes", "problems", "notes"],
                    "properties": {
                        "base": _STRING,
                        "failed": _BOOLEAN,
                        "changes": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["what", "file", "key", "old", "new", "case", "reason", "allowed"],
                                "properties": {
                                    **dict.fromkeys(("what", "file", "key", "case", "reason"), _STRING),
                                    "allowed": _BOOLEAN,
                                },
                            },
                        },
                        "problems": {"type": "array", "items": _STRING},
                        "notes": {"type": "array", "items": _STRING},
                    },
                },
                "cases": {
                    "type": "array",
                    "items": _ROW,
                },
            },
        }
    },
}
