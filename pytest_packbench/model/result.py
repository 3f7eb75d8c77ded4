"""The entry: what one attempt at one case left behind.

It travels on pytest's report, stands in the journal, and is all that reports are made from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.strict_json import U32_MAX, shown

if TYPE_CHECKING:
    from collections.abc import Callable


VERDICTS = ("passed", "failed", "error", "vacuous", "known_hole", "not_run")
QUARANTINE = ("skip", "xfail")
UNREADABLE = "(can't be read)"
"""The name of a group of cases that can't be read, whose own names are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
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
    def from_json(cls, data: dict[str, Any]) -> CaseResult:
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


_FIELDS = tuple(one.name for one in fields(CaseResult))
_DIGEST = re.compile(r"[0-9a-f]{64}")
_EFFECTS = ("add", "zero", "clamp", "note")


def entry_problem(entry: CaseResult) -> tuple[str, str] | None:
    """Tell what is wrong with an entry.

    Args:
        entry: made of what a file holds, whatever its annotations promise.

    Returns:
        The field and, in words, what it is and was expected to be; None where all fields are sound.
    """
    for name, (is_sound, expected) in _CHECKS.items():
        value = getattr(entry, name)
        if not is_sound(value):
            return name, f"got {shown(repr(value))}, expected {expected}"
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_share(value: Any) -> bool:
    return value is None or (type(value) in {int, float} and 0 <= value <= 1)


def _is_digest(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _DIGEST.fullmatch(value) is not None)


def _is_term(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and value.get("effect") in _EFFECTS
        and type(value.get("value")) in {int, float}
        and -1 <= value["value"] <= 1
        and isinstance(value.get("detail"), str)
    )


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_TEXT = (_is_text, "a string")
_TEXT_OR_NULL = (_or_none(_is_text), "a string or null")
_FLAG_OR_NULL = (_or_none(_is_flag), "true, false or null")
_SHARE = (_is_share, "a number from 0 to 1, or null")
_COUNT = (_is_count, "an integer of 0 or more")
_HASH = (_is_digest, "a SHA-256 in hexadecimal, or null")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("suite", "test_id", "case_id", "nodeid", "file", "kind", "message"), _TEXT),
    **dict.fromkeys(("timestamp", "case_type", "difficulty"), _TEXT),
    **dict.fromkeys(("match_level", "answer", "llm_backend", "llm_model", "judge"), _TEXT_OR_NULL),
    **dict.fromkeys(("expects_refusal", "refused", "utility", "valid"), _FLAG_OR_NULL),
    **dict.fromkeys(("score", "threshold"), _SHARE),
    "duration_ms": _COUNT,
    "cached": _COUNT,
    "trial": (lambda value: _is_count(value) and value <= U32_MAX, f"an integer from 0 to {U32_MAX}"),
    **dict.fromkeys(("case_sha256", "cassette_sha256"), _HASH),
    "verdict": (lambda value: value in VERDICTS, f"one of {', '.join(VERDICTS)}"),
    "decision": (_or_none(lambda value: value in EVAL_DECISIONS), f"one of {', '.join(EVAL_DECISIONS)}, or null"),
    "match_depth": (_or_none(_is_count), "an integer of 0 or more, or null"),
    "stale": (_is_flag, "true or false"),
    "tags": (lambda value: isinstance(value, tuple) and all(map(_is_text, value)), "an array of strings"),
    "facets": (
        lambda value: isinstance(value, dict) and all(map(_is_text, value)) and all(map(_is_text, value.values())),
        "an object of strings",
    ),
    "terms": (
        lambda value: isinstance(value, tuple) and all(map(_is_term, value)),
        "an array of objects with name, effect, value from -1 to 1, and detail",
    ),
}
