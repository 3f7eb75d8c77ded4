"""What one attempt at a case leaves, and all that is made of it.

`CaseResult` is the only list of its fields. Made from it are the line of a journal, the row of a report, our own object
in a wire record and what is read back from there; `model.checks` and `model.schema` take its types and bounds from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.score import VERDICTS, Constraint
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.record import EvalRecord


QUARANTINE = ("skip", "xfail")
UNREADABLE_GROUP = "(can't be read)"
"""The name of a group of cases that can't be read, whose own names are empty."""
ERROR_LINE_FIELDS = ("run_id", "test_id", "verdict", "kind", "message", "file", "timestamp")
"""What a line of `errors.jsonl` always holds: texts; the trial stands there too, but for the first."""
EXTENSION_VERSION = 1
"""The version of our own object in a record."""
EXTENSION_KEYS = (
    *("version", "score", "threshold", "verdict", "terms", "match_level", "match_depth", "answer"),
    *("case_id", "case_type", "difficulty", "tags", "facets", "file", "mode", "origin", "stale", "trial"),
    *("target", "pack", "bundled", "case_sha256", "cassette_sha256", "suite_sha256", "versions"),
    *("utility", "valid", "cached", "calls"),
)
"""The keys of that object as they are written, the last four only where they tell something; other keys are foreign."""
_Text = Annotated[str, Constraint("a string")]
_TextOrNull = Annotated[str | None, Constraint("a string or null")]
_Flag = Annotated[bool, Constraint("true or false")]
_FlagOrNull = Annotated[bool | None, Constraint("true, false or null")]
_Share = Annotated[float | None, Constraint("a number from 0 to 1, or null", least=0, most=1)]
_Count = Annotated[int, Constraint("an integer of 0 or more", least=0)]
_CountOrNull = Annotated[int | None, Constraint("an integer of 0 or more, or null", least=0)]
_U32 = Annotated[int, Constraint(f"an integer from 0 to {U32_MAX}", least=0, most=U32_MAX)]
_Digest = Annotated[str | None, Constraint("a SHA-256 in hexadecimal, or null", pattern=r"^[0-9a-f]{64}$")]
_Words = Annotated[tuple[str, ...], Constraint("an array of strings")]
_Named = Annotated[dict[str, str], Constraint("an object of strings")]
_Terms = Annotated[
    tuple[dict[str, Any], ...], Constraint("an array of objects with name, effect, value from -1 to 1, and detail")
]
_Verdict = Annotated[str, Constraint(f"one of {', '.join(VERDICTS)}", among=VERDICTS)]
_Decision = Annotated[str | None, Constraint(f"one of {', '.join(EVAL_DECISIONS)}, or null", among=EVAL_DECISIONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One attempt at one case, in plain JSON types; checked only where it is read from a file.

    Attributes:
        suite: the suite's name.
        test_id: the record's id, unique in a suite.
        case_id: the case's id; the file's stem where the case can't be read.
        nodeid: what pytest calls the item; re-runs it as an argument.
        file: the case file as the node id names it.
        verdict: one of `VERDICTS`.
        kind: the reason's name where the verdict is neither passed nor failed (`cassette_missing`,
            `interrupted`, ...); `skip` or `xfail` for a case that is quarantined in its notes.
        message: one line for people; empty where passed or failed.
        timestamp: when the case finished, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        duration_ms: wall clock of the attempt, milliseconds.
        case_type: see the case; empty where the case can't be read, like the next three.
        difficulty: see the case.
        tags: see the case.
        facets: what the pack groups by, name to value.
        score: 0 to 1, None without a number.
        threshold: 0 to 1, None where nothing was scored.
        match_level: how the answer matched, in the pack's words.
        match_depth: how deep the answer agrees, in the pack's unit.
        answer: the answer in one short string.
        expects_refusal: whether a refusal was due.
        refused: whether the target refused.
        decision: what the target did, as the wire record says it; None without a record.
        utility: whether the user's own task was done; None where the pack doesn't tell.
        valid: whether the answer could be read as the benchmark wants it; None where the pack doesn't tell.
        judge: who ruled; None where nobody but the rules did.
        terms: the terms of the score, plain JSON.
        stale: whether the cassette answered another prompt than today's.
        llm_backend: who answered the model calls.
        llm_model: which model answered.
        case_sha256: hash of the case's meaning; None where it can't be read.
        cassette_sha256: hash of the recording's meaning; None without one.
        trial: which of several attempts it was, from 0.
        cached: model calls that a folder of kept answers answered.
        record: the wire record with its `packbench` object; None where no record is due.
        payload: the target's result as it came; None where there is none.
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
    tags: _Words = ()
    facets: _Named = field(default_factory=dict)
    score: _Share = None
    threshold: _Share = None
    match_level: _TextOrNull = None
    match_depth: _CountOrNull = None
    answer: _TextOrNull = None
    expects_refusal: _FlagOrNull = None
    refused: _FlagOrNull = None
    decision: _Decision = None
    utility: _FlagOrNull = None
    valid: _FlagOrNull = None
    judge: _TextOrNull = None
    terms: _Terms = ()
    stale: _Flag = False
    llm_backend: _TextOrNull = None
    llm_model: _TextOrNull = None
    case_sha256: _Digest = None
    cassette_sha256: _Digest = None
    trial: _U32 = 0
    cached: _Count = 0
    record: dict[str, Any] | None = None
    payload: Any = None

    @property
    def quarantined(self) -> bool:
        """Whether the case's own notes keep it out of rates and completeness."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether the result stands in the rates: it was scored and passed or failed."""
        return self.verdict in {"passed", "failed"} and not self.quarantined

    def as_json(self) -> dict[str, Any]:
        """Give plain JSON types, fit for xdist and for the journal."""
        # `dataclasses.asdict` copies every payload to its depth, which costs more than scoring
        plain = {name: getattr(self, name) for name in _FIELDS}
        return {**plain, "tags": list(self.tags), "terms": list(self.terms)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaseResult:
        """Read what `as_json` gave.

        Raises:
            TypeError: a key is missing or unknown.
        """
        return cls(**{**data, "tags": tuple(data["tags"]), "terms": tuple(data["terms"])})

    def row(self) -> dict[str, Any]:
        """Give the row of a report: all but the suite, which the run tells, and what stands in files of its own."""
        return {name: getattr(self, name) for name in ROW_FIELDS}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], suite: str) -> CaseResult:
        """Read the row of a report of a suite; foreign keys are left out, and values not checked.

        Raises:
            TypeError: a key is missing.
        """
        known = {name: row[name] for name in ROW_FIELDS if name in row}
        for name in ("tags", "terms"):
            # what is no array is told with its name by the check
            known[name] = tuple(known[name]) if isinstance(known.get(name), list) else known.get(name)
        return cls(suite=suite, **known)

    @classmethod
    def from_record(cls, record: EvalRecord) -> CaseResult:
        """Make a result of a wire record; what only our own object tells is missing in a foreign one.

        Args:
            record: its own object is sound (`own_problem`).
        """
        ours = record.packbench or {}
        told = {name: ours[name] for name in _OF_OWN if name in ours}
        case_id, file, judge = ours.get("case_id") or record.test_id, ours.get("file", ""), ours.get("judge")
        # an object also says what the judge found
        judge = judge.get("name") if isinstance(judge, dict) else judge
        return cls(
            **{
                **told,
                "suite": record.test_suite,
                "test_id": record.test_id,
                "case_id": case_id,
                "nodeid": f"{file}::{case_id}",
                "file": file,
                "verdict": "passed" if record.passed else "failed",
                "timestamp": record.timestamp,
                "duration_ms": record.wall_clock_ms,
                "tags": tuple(ours.get("tags", ())),
                "expects_refusal": record.expected == "refuse",
                "refused": record.agent_decision == "refuse",
                "decision": record.agent_decision,
                "terms": tuple(ours.get("terms", ())),
                "llm_backend": record.llm_backend,
                "llm_model": record.llm_model,
                "judge": judge if isinstance(judge, str) else None,
            }
        )

    def error_line(self, run_id: str) -> dict[str, Any]:
        """Give the line of `errors.jsonl`."""
        return {
            "run_id": run_id,
            **{name: getattr(self, name) for name in ERROR_LINE_FIELDS[1:]},
            **({"trial": self.trial} if self.trial else {}),
        }


def format_timestamp(ns: int) -> str:
    """Write a UTC clock reading (nanoseconds since 1970) as `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return f"{_second(ns // 1_000_000_000)}.{ns // 1_000_000 % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def extension_object(told: Mapping[str, Any]) -> dict[str, Any]:
    """Make our own object in a record.

    Args:
        told: the fields of a result, what is true of all cases of the run, and the record's `origin` and `calls`, by
            key; foreign ones are left out.
    """
    return {key: told[key] for key in EXTENSION_KEYS if key in told}


_FIELDS = tuple(one.name for one in fields(CaseResult))
ROW_FIELDS = tuple(name for name in _FIELDS if name not in {"suite", "record", "payload"})
"""The fields in the row of a report: the run tells the suite, and the other two stand in files of their own."""
OPTIONAL_ROW_FIELDS = frozenset({"valid", "judge", "cached"})
"""Those that a report of an earlier program doesn't have."""
_OF_OWN = frozenset(EXTENSION_KEYS).intersection(_FIELDS)
