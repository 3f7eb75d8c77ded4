"""JSON Schemas of the record line and of the run document."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, WithJsonSchema

from pytest_packbench.model.checks import bounded_hints, model_of, own_model, row_model
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord, HookDecision
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.run import MODES, RUN_DOCUMENT_VERSION
from pytest_packbench.model.score import VERDICTS

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import core_schema

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
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


def _record_model() -> type[BaseModel]:
    """Give the model of a record, as far as a schema tells it: reading has its own, stricter rules."""
    hook = model_of("Hook", bounded_hints(HookDecision), _required(HookDecision))
    changed = {
        "schema_version": Annotated[
            Any, WithJsonSchema({"const": EVAL_SCHEMA_VERSION, "default": EVAL_SCHEMA_VERSION})
        ],
        "hook_decisions": Annotated[list[hook], Field(json_schema_extra={"default": []})],  # type: ignore[valid-type]  # made here
        "packbench": own_model(),
    }
    return model_of("Record", bounded_hints(EvalRecord) | changed, _required(EvalRecord))


def _required(kind: type[EvalRecord | HookDecision]) -> list[str]:
    return [one.name for one in fields(kind) if one.default is MISSING]


RECORD: dict[str, Any] = {
    "title": "EvalRecord",
    "description": "One line of records.jsonl: eval record, wire version 1. A strict reader takes three suites only.",
    **_of_model(_record_model()),
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
