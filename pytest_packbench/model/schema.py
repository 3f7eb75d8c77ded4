"""JSON Schemas of the record line and of the run document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from pytest_packbench.model.checks import own_model, row_model
from pytest_packbench.model.record import EVAL_BACKENDS, EVAL_DECISIONS, EVAL_SCHEMA_VERSION
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.run import MODES, RUN_DOCUMENT_VERSION
from pytest_packbench.model.score import VERDICTS

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import core_schema

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_U32 = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_U64 = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
_NAMED = {"type": "object", "additionalProperties": _TEXT}


class _Plain(GenerateJsonSchema):
    """Schemas that say no more than a reader checks: no titles, no defaults, no references."""

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        return super().generate_inner({key: value for key, value in schema.items() if key != "ref"})

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if "enum" in inner:
            return {"enum": [*inner["enum"], None]}
        return {**inner, "type": [inner["type"], "null"]}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"enum": list(schema["expected"])}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's own signature
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002 - as above
        return value


def _of_model(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(schema_generator=_Plain)


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
        "packbench": _of_model(own_model()),
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
                        "mode": {"enum": list(MODES)},
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
                    "items": {**_of_model(row_model()), "additionalProperties": False},
                },
            },
        }
    },
}
