"""The result of one attempt at a case, and its forms in files.

`CaseResult` is the only definition of the fields. The line of a journal, the row of a report and the `packbench` object
of a wire record are derived from it; `model.checks` and `model.schema` derive types and ranges from its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.score import COUNTED, VERDICTS, Constraint
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.record import EvalRecord


QUARANTINE = ("skip", "xfail")
UNREADABLE_GROUP = "(can't be read)"
"""The name under which reports group cases that cannot be read."""
ERROR_LINE_FIELDS = ("run_id", "test_id", "verdict", "kind", "message", "file", "timestamp")
"""The string keys that a line of `errors.jsonl` always has; the key `trial` is omitted for the first trial."""
EXTENSION_VERSION = 1
"""The version of the `packbench` object of a record."""
EXTENSION_KEYS = (
    *("version", "score", "threshold", "verdict", "terms", "match_level", "match_depth", "answer"),
    *("case_id", "case_type", "difficulty", "tags", "facets", "file", "mode", "origin", "stale", "trial"),
    *("target", "pack", "bundled", "case_sha256", "cassette_sha256", "suite_sha256", "versions"),
    *("utility", "valid", "refused", "cached", "calls", "cost_usd"),
)
"""The keys of that object in the order in which they are written; the last six are optional."""
_Text = Annotated[str, Constraint("a string")]
_TextOrNull = Annotated[str | None, Constraint("a string or null")]
_Flag = Annotated[bool, Constraint("true or false")]
_FlagOrNull = Annotated[bool | None, Constraint("true, false or null")]
_Share = Annotated[float | None, Constraint("a number from 0 to 1, or null", minimum=0, maximum=1)]
_Count = Annotated[int, Constraint("an integer of 0 or more", minimum=0)]
_CountOrNull = Annotated[int | None, Constraint("an integer of 0 or more, or null", minimum=0)]
_CostOrNull = Annotated[float | None, Constraint("a number of 0 or more, or null", minimum=0)]
_U32 = Annotated[int, Constraint(f"an integer from 0 to {U32_MAX}", minimum=0, maximum=U32_MAX)]
_Digest = Annotated[str | None, Constraint("a SHA-256 in hexadecimal, or null", pattern=r"^[0-9a-f]{64}$")]
_Strings = Annotated[tuple[str, ...], Constraint("an array of strings")]
_StringMap = Annotated[dict[str, str], Constraint("an object of strings")]
_StringMapOrNull = Annotated[dict[str, str] | None, Constraint("an object of strings, or null")]
_Terms = Annotated[
    tuple[dict[str, Any], ...], Constraint("an array of objects with name, effect, value from -1 to 1, and detail")
]
_Verdict = Annotated[str, Constraint(f"one of {', '.join(VERDICTS)}", choices=VERDICTS)]
_Decision = Annotated[str | None, Constraint(f"one of {', '.join(EVAL_DECISIONS)}, or null", choices=EVAL_DECISIONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One attempt at one case, in plain JSON types; validated only when it is read from a file.

    Attributes:
        suite: the name of the suite.
        test_id: the id of the record, unique in a suite.
        case_id: the id of the case; the name of the file without its suffix if the case cannot be read.
        nodeid: pytest's node id, which runs the case again.
        file: the case file as in the node id.
        verdict: one of `VERDICTS`.
        kind: the name of the reason if the verdict is neither `passed` nor `failed` (`cassette_missing`,
            `interrupted`, ...); `skip` or `xfail` for a case that its notes quarantine.
        message: the reason in one line; empty if passed or failed.
        timestamp: when the case ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        duration_ms: duration of the attempt, milliseconds.
        case_type: see `Case`; empty if the case cannot be read, like the next three.
        difficulty: see `Case`.
        tags: see `Notes`.
        facets: what the pack groups by, name to value.
        score: 0 to 1, None without a number.
        threshold: 0 to 1, None if nothing was scored.
        match_level: how the answer matched, in the pack's words.
        match_depth: how deeply the answer agrees, in the pack's unit.
        answer: the answer in one short string.
        input_text: the beginning of the input in one line; empty unless the verdict is `failed`, like the next two.
        expected_text: what was expected where the answer differs, in one short line.
        actual_text: the same of the answer.
        expects_refusal: whether a refusal is the right reaction.
        refused: whether the target refused.
        decision: the target's decision in the values of the wire record; None without a record.
        utility: whether the user's own task was done; None if the pack does not report it.
        valid: whether the answer had the required format; None if the pack does not report it.
        judge: the name of the judge; None if the rules decided.
        terms: the terms of the score as plain JSON.
        stale: whether the prompts have changed since the cassette was recorded.
        remark: what else has changed since the recording, in one line; empty if nothing has.
        llm_backend: the backend that answered the model calls.
        llm_model: the model that answered.
        case_sha256: hash of the case's content; None if it cannot be read.
        cassette_sha256: hash of the recording's content; None without one.
        trial: the number of the attempt, from 0.
        cached: number of model calls answered from the response cache.
        cost_usd: what its model calls cost, US dollars; None if one's cost is not known, and in fixture mode.
        record: the wire record with its `packbench` object; None if the attempt leaves no record.
        payload: the result of the target, without secrets; None without one.
    """

    suite: _Text
    test_id: _Text
    case_id: _Text
    nodeid: _Text
    file: _Text
    verdict: _Verdict
    kind: _Text = ""
    message: _Text = ""
    timestamp: _Text = ""
    duration_ms: _Count = 0
    case_type: _Text = ""
    difficulty: _Text = ""
    tags: _Strings = ()
    facets: _StringMap = field(default_factory=dict)
    score: _Share = None
    threshold: _Share = None
    match_level: _TextOrNull = None
    match_depth: _CountOrNull = None
    answer: _TextOrNull = None
    input_text: _Text = ""
    expected_text: _Text = ""
    actual_text: _Text = ""
    expects_refusal: _FlagOrNull = None
    refused: _FlagOrNull = None
    decision: _Decision = None
    utility: _FlagOrNull = None
    valid: _FlagOrNull = None
    judge: _TextOrNull = None
    terms: _Terms = ()
    stale: _Flag = False
    remark: _Text = ""
    llm_backend: _TextOrNull = None
    llm_model: _TextOrNull = None
    case_sha256: _Digest = None
    cassette_sha256: _Digest = None
    trial: _U32 = 0
    cached: _Count = 0
    cost_usd: _CostOrNull = None
    record: dict[str, Any] | None = None
    payload: Any = None

    @property
    def quarantined(self) -> bool:
        """Whether the notes of the case exclude it from rates and completeness."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether rates include the result: it passed or failed and is not quarantined."""
        return self.verdict in COUNTED and not self.quarantined

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, for xdist and the journal."""
        # `dataclasses.asdict` makes deep copies of payloads, which takes longer than scoring
        plain = dict(zip(_FIELDS, _VALUES(self), strict=True))
        plain["tags"], plain["terms"] = list(self.tags), list(self.terms)
        return plain

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaseResult:
        """Create a result from the output of `as_json`.

        Raises:
            TypeError: a key is missing or unknown.
        """
        return cls(**{**data, "tags": tuple(data["tags"]), "terms": tuple(data["terms"])})

    def row(self) -> dict[str, Any]:
        """Return the row of a report: all fields except the suite, the record, the payload, and a cost of None."""
        row = {name: getattr(self, name) for name in ROW_FIELDS}
        if self.cost_usd is None:
            del row["cost_usd"]
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any], suite: str) -> CaseResult:
        """Create a result from the row of a suite's report; unknown keys are ignored, values are not validated.

        Raises:
            TypeError: a key is missing.
        """
        known = {name: row[name] for name in ROW_FIELDS if name in row}
        for name in ("tags", "terms"):
            # other types are reported by the validation
            known[name] = tuple(known[name]) if isinstance(known.get(name), list) else known.get(name)
        return cls(suite=suite, **known)

    @classmethod
    def from_record(cls, record: EvalRecord) -> CaseResult:
        """Create a result from a wire record; fields that only the `packbench` object has may be missing.

        Args:
            record: the record; its `packbench` object must be valid (`extension_problem`).
        """
        extension = record.packbench or {}
        values = {name: extension[name] for name in _EXTENSION_FIELDS if name in extension}
        case_id, file = extension.get("case_id") or record.test_id, extension.get("file", "")
        judge = extension.get("judge")
        # an object also contains the judge's findings
        judge = judge.get("name") if isinstance(judge, dict) else judge
        return cls(
            **{
                **values,
                "suite": record.test_suite,
                "test_id": record.test_id,
                "case_id": case_id,
                "nodeid": f"{file}::{case_id}",
                "file": file,
                "verdict": "passed" if record.passed else "failed",
                "timestamp": record.timestamp,
                "duration_ms": record.wall_clock_ms,
                "tags": tuple(extension.get("tags", ())),
                "expects_refusal": record.expected == "refuse",
                "refused": extension.get("refused", record.agent_decision == "refuse"),
                "decision": record.agent_decision,
                "terms": tuple(extension.get("terms", ())),
                "llm_backend": record.llm_backend,
                "llm_model": record.llm_model,
                "judge": judge if isinstance(judge, str) else None,
            }
        )

    def error_line(self, run_id: str) -> dict[str, Any]:
        """Return the line of `errors.jsonl`."""
        return {
            "run_id": run_id,
            **{name: getattr(self, name) for name in ERROR_LINE_FIELDS[1:]},
            **({"trial": self.trial} if self.trial else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """An attempt whose target has returned a result that is not scored yet, in plain JSON types.

    It contains what was paid for, so that scoring it later gives the same result; validated only when it is read from a
    file.

    Attributes:
        suite: the name of the suite.
        case_id: the id of the case.
        nodeid: pytest's node id.
        file: the case file as in the node id.
        trial: the number of the attempt, from 0.
        finished_ns: when the target ended (UTC, nanoseconds since 1970).
        duration_ms: duration of the attempt, milliseconds.
        case_sha256: hash of the case's content.
        cassette_sha256: hash of the content of the recording that was replayed; None without one.
        llm_backend: the backend that answered the model calls.
        llm_model: the model that answered.
        tokens_input: tokens of all requests; None where unknown.
        tokens_output: tokens of all answers; None where unknown.
        cost_usd: what the calls cost, US dollars; None where unknown.
        calls: the number of model calls.
        cached: the number of those that the response cache answered.
        stale: whether the prompts have changed since the cassette was recorded.
        remark: what else has changed since then.
        payload: the result of the target.
        recording: the cassette that record mode writes once the attempt is scored, as plain JSON; None without one.
        unread: why the answer can't be read, as plain JSON (`UnreadAnswer`); None if it may be read.
        truncated: whether an answer of the model under test was cut off.
    """

    suite: _Text
    case_id: _Text
    nodeid: _Text
    file: _Text
    trial: _U32
    finished_ns: _Count
    duration_ms: _Count
    case_sha256: _Digest
    cassette_sha256: _Digest
    llm_backend: _Text
    llm_model: _Text
    tokens_input: _CountOrNull
    tokens_output: _CountOrNull
    cost_usd: _CostOrNull = None
    calls: _Count
    cached: _Count
    stale: _Flag
    remark: _Text = ""
    payload: Any
    recording: dict[str, Any] | None
    unread: _StringMapOrNull = None
    truncated: _Flag = False

    @property
    def timestamp(self) -> str:
        """When the target ended, as in the result of the attempt."""
        return format_timestamp(self.finished_ns)

    def as_json(self) -> dict[str, Any]:
        """Return the attempt as plain JSON."""
        return dict(zip(_ENDED_FIELDS, _ENDED_VALUES(self), strict=True))


def models_of(results: Iterable[CaseResult]) -> list[str]:
    """Return which models answered in results that count, `backend / model`, sorted."""
    answers = {(each.llm_backend, each.llm_model) for each in results if each.counted}
    return sorted(" / ".join(filter(None, answer)) for answer in answers if answer[0] not in {None, "unknown"})


def format_timestamp(ns: int) -> str:
    """Return a time (UTC, nanoseconds since 1970) as `YYYY-MM-DDTHH:MM:SS.mmmZ`, of a wrong clock the nearest."""
    return f"{_second(min(max(ns // 1_000_000_000, 0), _LAST_SECOND))}.{ns // 1_000_000 % 1000:03d}Z"


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def extension_object(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `packbench` object of a record.

    Args:
        values: the fields of a result, the metadata of the run, and the record's `origin` and `calls`, by key; other
            keys are ignored.
    """
    return {key: values[key] for key in EXTENSION_KEYS if key in values}


_FIELDS = tuple(each.name for each in fields(CaseResult))
_ENDED_FIELDS = tuple(each.name for each in fields(EndedAttempt))
# faster than looking up each name
_VALUES = attrgetter(*_FIELDS)
_ENDED_VALUES = attrgetter(*_ENDED_FIELDS)
ROW_FIELDS = tuple(name for name in _FIELDS if name not in {"suite", "record", "payload"})
"""The fields in the row of a report: the suite is stored once for the run, record and payload in other files."""
OPTIONAL_ROW_FIELDS = frozenset(
    {"valid", "judge", "cached", "cost_usd", "remark", "input_text", "expected_text", "actual_text"}
)
"""Fields that rows may lack: earlier versions do not write them, and a cost that is not known is left out."""
_EXTENSION_FIELDS = frozenset(EXTENSION_KEYS).intersection(_FIELDS)
