"""JSON Schemas of a record and of a report, generated from the classes of what they contain."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import TypeAdapter

from pytest_packbench.model.header import Header
from pytest_packbench.model.metric import Interval
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.result import adapter, extension_model, model_of, row_model
from pytest_packbench.model.score import Share


def _record() -> dict[str, Any]:
    """Return the schema of a record, as far as a schema can express it: `EvalRecord` is stricter."""
    schema = TypeAdapter(EvalRecord).json_schema()
    extension = extension_model().model_json_schema()
    schema["$defs"] |= extension.pop("$defs")
    schema["properties"]["packbench"] = extension
    return schema


def _document() -> dict[str, Any]:
    schema = adapter(Header).json_schema()
    row = row_model().model_json_schema()
    schema["$defs"] |= row.pop("$defs")
    schema["properties"]["cases"] = {"type": "array", "items": {**row, "additionalProperties": False}}
    schema["required"].append("cases")
    # in files, a named tuple is an object
    interval = model_of("Interval", get_type_hints(Interval), Interval._fields)
    schema["$defs"]["Interval"] = interval.model_json_schema()
    # what is computed from the other keys, for other readers
    schema["$defs"]["Figure"]["properties"]["share"] = TypeAdapter(Share | None).json_schema()
    schema["$defs"]["PolicyChange"]["properties"]["allowed"] = {"type": "boolean"}
    return schema


RECORD: dict[str, Any] = {
    **_record(),
    "title": "EvalRecord",
    "description": "One line of records.jsonl: eval record, wire version 1. A strict reader accepts three suites only.",
}
_DOCUMENT = _document()
REPORT: dict[str, Any] = {
    "$defs": _DOCUMENT.pop("$defs"),
    "title": "Report",
    "description": "report.json: the document of pytest-json-report with the run under the key packbench.",
    "type": "object",
    "required": ["packbench"],
    "properties": {"packbench": _DOCUMENT},
}
