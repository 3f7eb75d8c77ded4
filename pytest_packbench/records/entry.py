"""The entry: what one attempt at one case left behind.

It travels on pytest's report, stands in the journal, and is all that reports are made from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

VERDICTS = ("passed", "failed", "error", "vacuous", "known_hole", "not_run")
QUARANTINE = ("skip", "xfail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One attempt at one case, in plain JSON types.

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

    suite: str
    test_id: str
    case_id: str
    nodeid: str
    file: str
    verdict: str
    kind: str = ""
    message: str = ""
    timestamp: str = ""
    duration_ms: int = 0
    case_type: str = ""
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    facets: dict[str, str] = field(default_factory=dict)
    score: float | None = None
    threshold: float | None = None
    match_level: str | None = None
    match_depth: int | None = None
    answer: str | None = None
    expects_refusal: bool | None = None
    refused: bool | None = None
    decision: str | None = None
    utility: bool | None = None
    valid: bool | None = None
    judge: str | None = None
    terms: tuple[dict[str, Any], ...] = ()
    stale: bool = False
    llm_backend: str | None = None
    llm_model: str | None = None
    case_sha256: str | None = None
    cassette_sha256: str | None = None
    trial: int = 0
    cached: int = 0
    record: dict[str, Any] | None = None
    payload: Any = None

    @property
    def quarantined(self) -> bool:
        """Whether the case's own notes keep it out of rates and completeness."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether the entry stands in the rates: it was scored and passed or failed."""
        return self.verdict in {"passed", "failed"} and not self.quarantined

    def as_json(self) -> dict[str, Any]:
        """Give plain JSON types, fit for xdist and for the journal."""
        # `dataclasses.asdict` copies every payload to its depth, which costs more than scoring
        plain = {name: getattr(self, name) for name in _FIELDS}
        return {**plain, "tags": list(self.tags), "terms": list(self.terms)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Entry:
        """Read what `as_json` gave.

        Raises:
            TypeError: a key is missing or unknown.
        """
        return cls(**{**data, "tags": tuple(data["tags"]), "terms": tuple(data["terms"])})

    def error_line(self, run_id: str) -> dict[str, Any]:
        """Give the line of `errors.jsonl` (design 5)."""
        return {
            "run_id": run_id,
            "test_id": self.test_id,
            "verdict": self.verdict,
            "kind": self.kind,
            "message": self.message,
            "file": self.file,
            "timestamp": self.timestamp,
            **({"trial": self.trial} if self.trial else {}),
        }


_FIELDS = tuple(one.name for one in fields(Entry))
