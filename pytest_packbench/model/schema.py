"""JSON Schemas of a record and of a report, generated from the classes of what they contain."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, TypeAdapter

from pytest_packbench.model.case import CurrentVersion
from pytest_packbench.model.gate import GateResult  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.policy import POLICY_VERSION
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.result import extension_model, row_model
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION, Run
from pytest_packbench.model.score import Count, Share, Verdict  # noqa: TC001 - likewise


class Totals(BaseModel):
    """The counts of cases."""

    selected: Count
    verdicts: dict[Verdict, Count]
    quarantined: dict[Literal["skip", "xfail"], Count]


class StoredInterval(BaseModel):
    """A confidence interval."""

    low: float
    high: float
    method: str


class StoredFigure(BaseModel):
    """A named figure of the run, with its share."""

    group: str
    name: str
    headline: bool
    count: Count | None
    total: Count | None
    share: Share | None
    number: float | None
    unit: str
    interval: StoredInterval | None
    note: str
    definition: str


class StoredComparison(BaseModel):
    """What has changed since the baseline."""

    requested: str
    baseline: str | None
    problem: str
    conditions: list[Any]
    failed: bool


class StoredPolicy(BaseModel):
    """The acceptance policy."""

    version: Annotated[int, CurrentVersion(POLICY_VERSION)]
    config: dict[str, Any]
    files: dict[str, str]
    code: dict[str, str]
    recordings: dict[str, str]
    settings: dict[str, Any]
    baseline: Any


class StoredControls(BaseModel):
    """The counts of controls, and which did not end as written."""

    present: Count
    selected: Count
    as_written: Count
    deviates: Count
    broken: Count
    not_run: Count
    wrong: list[str]


class StoredChange(BaseModel):
    """One change of the acceptance policy."""

    what: str
    file: str
    key: str
    old: Any
    new: Any
    case: str
    reason: str
    allowed: bool


class StoredChanges(BaseModel):
    """The changes of the acceptance policy since its base."""

    base: str
    failed: bool
    changes: list[StoredChange]
    problems: list[str]
    notes: list[str]


class Document(BaseModel):
    """The run."""

    version: Annotated[int, CurrentVersion(RUN_DOCUMENT_VERSION)]
    status: Literal["passed", "failed", "partial"]
    complete: bool
    run: Run
    totals: Totals
    figures: list[StoredFigure] = []
    gates: list[GateResult]
    rerun: str = ""
    comparison: StoredComparison | None = None
    policy: StoredPolicy | None = None
    controls: StoredControls | None = None
    policy_changes: StoredChanges | None = None
    cases: list[Any]


def _record() -> dict[str, Any]:
    """Return the schema of a record, as far as a schema can express it: `EvalRecord` is stricter."""
    schema = TypeAdapter(EvalRecord).json_schema()
    extension = extension_model().model_json_schema()
    schema["$defs"] |= extension.pop("$defs")
    schema["properties"]["packbench"] = extension
    return schema


def _document() -> dict[str, Any]:
    schema = Document.model_json_schema()
    row = row_model().model_json_schema()
    schema["$defs"] |= row.pop("$defs")
    schema["properties"]["cases"]["items"] = {**row, "additionalProperties": False}
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
