"""JSON Schemas of a record and of a report."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pytest_packbench.model.checks import extension_schema, object_schema, row_schema, schema_of, schemas_of
from pytest_packbench.model.policy import POLICY_VERSION
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord, HookDecision
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.run import MODES, RUN_DOCUMENT_VERSION
from pytest_packbench.model.score import VERDICTS

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

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


class _CompactGenerator(GenerateJsonSchema):
    """Generates schemas without titles, with `null` among the types, and constants as `const`."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if "enum" in inner:
            return {"enum": [*inner["enum"], None]}
        return {**inner, "type": [inner["type"], "null"]}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        values = list(schema["expected"])
        return {"enum": values} if len(values) > 1 else {"const": values[0]}

    def chain_schema(self, schema: core_schema.ChainSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["steps"][-1])

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's own signature
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002 - as above
        return value


def _record_schema() -> CoreSchema:
    """Return the schema of a record, as far as a schema can express it: `EvalRecord` is stricter."""
    hook = object_schema(schemas_of(HookDecision), _required(HookDecision))
    version = core_schema.literal_schema([EVAL_SCHEMA_VERSION])
    hints = get_type_hints(EvalRecord, include_extras=True)
    special = {
        "schema_version": core_schema.with_default_schema(version, default=EVAL_SCHEMA_VERSION),
        "hook_decisions": core_schema.with_default_schema(core_schema.list_schema(hook), default=[]),
        "packbench": extension_schema(),
    }
    plain = {name: schema_of(hint) for name, hint in hints.items() if name not in special}
    return object_schema({name: (plain | special)[name] for name in hints}, _required(EvalRecord))


def _required(kind: type[EvalRecord | HookDecision]) -> list[str]:
    return [each.name for each in fields(kind) if each.default is MISSING]


RECORD: dict[str, Any] = {
    "title": "EvalRecord",
    "description": "One line of records.jsonl: eval record, wire version 1. A strict reader accepts three suites only.",
    **_CompactGenerator().generate(_record_schema()),
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
                    "items": {**_CompactGenerator().generate(row_schema()), "additionalProperties": False},
                },
            },
        }
    },
}
