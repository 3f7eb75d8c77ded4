"""The result of one attempt at a case: three values, and their forms in files.

A `Result` is what is known of the case, what the target did, and what that came to. Files are flat: the names of all
fields differ, so a line is the fields of all three, and is read back by pydantic's adapters of the same classes.

The outcome is what a pack reads from the result of a target; scorers see nothing else. The score of a case is a
number from named terms, or the verdict why there is none. What verdicts effect is here too.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from pytest_packbench.files import U32_MAX, escape_unprintable
from pytest_packbench.model.case import SHA256
from pytest_packbench.model.errors import first_problem, single_spaced
from pytest_packbench.model.record import EvalDecision  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.run import (
    Mode,
    Origin,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_packbench.model.record import EvalRecord


Effect = Literal["add", "zero", "clamp", "note"]
Verdict = Literal["passed", "failed", "error", "vacuous", "known_hole", "not_run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Count = Annotated[int, Field(ge=0, strict=True)]
"""An integer of 0 or more."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A number from 0 to 1."""
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Word = Annotated[str, Strict()]
"""A text: bytes are none."""
Quarantine = Literal["skip", "xfail"]
QUARANTINE: tuple[Quarantine, ...] = get_args(Quarantine)
TOLERANCE = 1e-9
UNREADABLE = "unreadable_answer"
"""The term of an answer that can't be read."""
TRUNCATED = "truncated_answer"
"""The term of an answer that can't be read because it was cut off."""
UNREAD = frozenset({UNREADABLE, TRUNCATED})
UNKNOWN_KEY = "unknown_key"
"""The remark on a key that the answer model of a pack does not have; its detail is the JSON pointer of the key."""
MOST_UNKNOWN_KEYS = 20
"""The largest number of such remarks on one answer; one more counts the others."""
# packs create them, without validation
_CHECKED = ConfigDict(revalidate_instances="always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One named contribution to a score.

    Attributes:
        name: the rule that contributed, such as `preferred_match`.
        effect: `add` (the value is added), `zero` (hard fail: the score is exactly 0), `clamp` (the value is the
            change that brought the sum into 0..1) or `note` (a remark that does not change the score).
        value: points, -1 to 1; 0 if `effect` is `zero` or `note`.
        detail: the reason in a few words.
    """

    name: Word
    effect: Effect = "add"
    value: Annotated[float, Field(ge=-1, le=1, strict=True)] = 0.0
    detail: Word = ""

    __pydantic_config__ = _CHECKED

    def as_json(self) -> dict[str, Any]:
        """Return the term as plain JSON."""
        return {"name": self.name, "effect": self.effect, "value": self.value, "detail": self.detail}

    @property
    def points(self) -> str:
        """The effect as text: `+1.00`, `-0.10`, `=0`, or `-` for a note."""
        if self.effect in {"add", "clamp"}:
            return f"{self.value:+.2f}"
        return "=0" if self.effect == "zero" else "-"


Labels = tuple[tuple[Word | None, Word | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What an attempt came to: its verdict, and a number with its terms, or the reason why there is none.

    A pack's scorer gives these; what ended the attempt, or the engine, adds `message` to `actual_text`.

    Attributes:
        score: 0 to 1; None if there is no number (error, vacuous, known hole).
        threshold: the case passes at or above this score, 0 to 1; None if nothing was scored.
        verdict: `passed`, `failed`, `error` (infrastructure failure), `vacuous` (the case could not have failed),
            `known_hole` (the case itself is known to be wrong) or `not_run`.
        terms: the contributions to the score, in the order in which they apply.
        match_level: how the answer matched, in the pack's words; None if it does not apply.
        match_depth: how deeply the answer agrees, in the pack's unit; None if it does not apply.
        message: the reason in one line if the verdict is neither `passed` nor `failed`.
        kind: the name of that reason (`cassette_missing`, `interrupted`, ...); empty for the verdict itself; `skip` or
            `xfail` for a case that its notes quarantine.
        answer: the answer in one short string.
        refused: whether the target refused.
        decision: the target's decision in the values of the wire record; None without a record.
        utility: whether the user's own task was done; None if the pack does not report it.
        valid: whether the answer had the required format; None if the pack does not report it.
        judge: the name of the judge; None if the rules decided.
        decided_by: the check of the pipeline that decided; only controls ask the pack for it, and no row has it.
        labels: the expected label and that of the answer, of each thing that is labelled; None for a case that expects
            none, and for an answer without one. None without labels.
        input_text: the beginning of the input in one line; empty unless the verdict is `failed`, like the next two.
        expected_text: what was expected where the answer differs, in one short line.
        actual_text: the same of the answer.
    """

    score: Share | None = None
    threshold: Share | None = None
    verdict: Verdict
    terms: tuple[Term, ...] = ()
    match_level: Word | None = None
    match_depth: Count | None = None
    message: Word = ""
    kind: Word = ""
    answer: Word | None = None
    refused: Flag | None = None
    decision: EvalDecision | None = None
    utility: Flag | None = None
    valid: Flag | None = None
    judge: Word | None = None
    decided_by: Word = field(default="", repr=False)
    labels: Labels | None = None
    input_text: Word = ""
    expected_text: Word = ""
    actual_text: Word = ""

    __pydantic_config__ = _CHECKED

    def __post_init__(self) -> None:
        """Correct the verdict of a hard fail: it never passes, whatever the threshold is; keep labels as tuples."""
        if self.labels is not None:
            # JSON has only lists, and metrics count results by their labels
            object.__setattr__(self, "labels", tuple(map(tuple, self.labels)))
        if self.verdict == "passed" and "zero" in [term.effect for term in self.terms]:
            object.__setattr__(self, "verdict", "failed")

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"

    @property
    def quarantined(self) -> bool:
        """Whether the notes of the case exclude it from rates and completeness."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether rates include the case: it passed or failed and is not quarantined."""
        return self.verdict in COUNTED and not self.quarantined


def judged(points: float, threshold: float) -> Verdict:
    """Return the verdict of a score: `passed` at or above the threshold, with a tolerance of 1e-9."""
    return "passed" if points >= threshold - TOLERANCE else "failed"


def unread_score(term: str, reason: str, threshold: float) -> Score:
    """Return the score of an answer that can't be read: 0, a hard fail.

    Args:
        term: `UNREADABLE` or `TRUNCATED`.
        reason: why it can't be read, in one line.
        threshold: the case's.
    """
    terms = (Term(name=term, effect="zero", detail=reason),)
    return Score(score=0.0, threshold=threshold, verdict="failed", terms=terms)


def unknown_key_notes(pointers: Collection[str]) -> tuple[Term, ...]:
    """Return the remarks on the unknown keys of an answer.

    Args:
        pointers: where the keys are, as JSON pointers.
    """
    shown = list(pointers)[:MOST_UNKNOWN_KEYS]
    if left_out := len(pointers) - len(shown):
        shown.append(f"and {left_out:,} more")
    return tuple(Term(name=UNKNOWN_KEY, effect="note", detail=each) for each in shown)


def with_unknown_keys(score: Score, pointers: Collection[str]) -> Score:
    """Return a score with the remarks on the unknown keys of its answer, after its terms."""
    return replace(score, terms=(*score.terms, *unknown_key_notes(pointers))) if pointers else score


def describe_score(score: Score) -> str:
    """Return a score compared with its threshold: `score 0.35 < 0.80`."""
    if score.score is None or score.threshold is None:
        return score.verdict
    sign = ">=" if score.passed else "<"
    return f"score {score.score:.2f} {sign} {score.threshold:.2f}"


Reported = Literal["passed", "failed", "error", "xfailed", "skipped"]
FIXTURE = "fixture"


class Effects(NamedTuple):
    """What a verdict leads to.

    Attributes:
        fixture: how pytest reports the case in fixture mode.
        live: how pytest reports it in live and record mode. With `--packbench-gate=suite`, a failed case is xfailed.
        counted: whether rates include the case; it has a record then, otherwise a line in `errors.jsonl`.
        due: whether completeness counts the case as one that has to be judged, in fixture mode.
        due_live: the same in live and record mode.
        kept: whether a resumed run keeps the attempt instead of repeating it: answers are kept.
        loss: whether a case that passed before has become worse with it.
    """

    fixture: Reported
    live: Reported
    counted: bool
    due: bool
    due_live: bool
    kept: bool
    loss: bool


_YES, _NO = True, False
EFFECTS: dict[str, Effects] = {
    "passed": Effects("passed", "passed", counted=_YES, due=_YES, due_live=_YES, kept=_YES, loss=_NO),
    "failed": Effects("failed", "failed", counted=_YES, due=_YES, due_live=_YES, kept=_YES, loss=_YES),
    "error": Effects("error", "error", counted=_NO, due=_YES, due_live=_YES, kept=_NO, loss=_YES),
    # a recording can be mended; what a live model does not read or say is no fault of the run (`reported`)
    "vacuous": Effects("error", "xfailed", counted=_NO, due=_YES, due_live=_NO, kept=_YES, loss=_YES),
    "known_hole": Effects("xfailed", "xfailed", counted=_NO, due=_NO, due_live=_NO, kept=_YES, loss=_NO),
    "not_run": Effects("skipped", "skipped", counted=_NO, due=_YES, due_live=_YES, kept=_NO, loss=_YES),
}
"""Each verdict with its effects; quarantined cases are exempt from rates and completeness, whatever their verdict."""

NO_SCORE = "the score is missing, but the verdict is"
"""What is wrong with a result of `COUNTED` that has no score."""
COUNTED = tuple(verdict for verdict, effects in EFFECTS.items() if effects.counted)
"""The verdicts of results that count in rates."""
KEPT = frozenset(verdict for verdict, effects in EFFECTS.items() if effects.kept)
"""The verdicts of attempts that a resumed run keeps."""


def _can_be_mended(mode: str, *, valid: bool | None) -> bool:
    # an answer that nobody can read is what a model said: no fault of its recording
    return mode == FIXTURE and valid is not False


def reported(verdict: str, mode: str, *, valid: bool | None = None) -> Reported:
    """Return the outcome in pytest of a verdict.

    Args:
        verdict: one of `VERDICTS`.
        mode: `fixture`, `live` or `record`.
        valid: False for an unreadable answer, which ends on its recording as it did in the run that made
            it.
    """
    effects = EFFECTS[verdict]
    return effects.fixture if _can_be_mended(mode, valid=valid) else effects.live


def is_broken(verdict: str, mode: str, *, valid: bool | None = None) -> bool:
    """Whether a verdict is an error of the run; see `reported`."""
    return reported(verdict, mode, valid=valid) == "error"


def is_due(verdict: str, mode: str, *, valid: bool | None = None) -> bool:
    """Whether completeness counts a case with a verdict as one that has to be judged; see `reported`."""
    effects = EFFECTS[verdict]
    return effects.due if _can_be_mended(mode, valid=valid) else effects.due_live


class ResultError(ValueError):
    """The result of a target does not have the expected structure: an unreadable answer, with the score 0.

    Args:
        pointer: JSON pointer of the location in the result; empty for the whole result.
        message: what is wrong and what was expected, in one line.
        unknown_keys: JSON pointers of the keys that the answer model of the pack does not have.

    Attributes:
        pointer: see above.
        unknown_keys: see above.
    """

    def __init__(self, pointer: str, message: str, unknown_keys: tuple[str, ...] = ()) -> None:
        self.pointer = pointer
        self.unknown_keys = unknown_keys
        # the keys of a result are the target's
        super().__init__(escape_unprintable(single_spaced(f"result{pointer}: {message}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """An infrastructure failure that the target reports; it makes the case an error, not a refusal or a score.

    Attributes:
        kind: the name of the failure, such as `timeout`, `network`, `rate_limit`.
        message: a description in one line.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One decision of a gate or guard in the pipeline; it becomes a hook decision of the record.

    Attributes:
        hook: the name of the gate or guard.
        decision: its decision, such as `deny`.
        rule: the number of its rule, 0 to 2**32 - 1; None without one.
    """

    hook: str
    decision: str
    rule: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a target's result contains: the document, and what every report needs of it.

    Attributes:
        document: the answer, an instance of `Pack.answer_model`; None if it can't be read.
        breakdown: the infrastructure failure that the target reports; None without one.
        refused: whether the target declined to answer.
        answer: the answer as one short string for tables; None without one.
        firings: the decisions of gates and guards, in order.
    """

    document: Any = None
    breakdown: Breakdown | None = None
    refused: bool = False
    answer: str | None = None
    firings: tuple[Firing, ...] = ()


UNREADABLE_GROUP = "(can't be read)"
"""The name under which reports group cases that cannot be read."""
ERROR_LINE_FIELDS = ("run_id", "test_id", "verdict", "kind", "message", "file", "timestamp")
"""The string keys that a line of `errors.jsonl` always has; the key `trial` is omitted for the first trial."""
PROBLEM_KINDS = {UNREADABLE: "answer_unreadable", TRUNCATED: "truncated"}
"""The kind of the problem of a recorded answer, by the term of its score."""
EXTENSION_VERSION = 1
"""The version of the `packbench` object of a record."""
_NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_JUDGE = {"anyOf": [{"type": "string"}, _NAMED, {"type": "null"}]}
Digest = Annotated[str, Field(pattern=SHA256)]
_NOT_IN_ROWS = frozenset(
    {"finished_ns", "suite", "payload", "tokens_input", "tokens_output", "calls", "recording", "unread", "truncated"}
    | {"decided_by", "waited_ms"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInfo:
    """What is known of a case without its content; of one that can't be read, its place and its id.

    Attributes:
        suite: the name of the suite.
        test_id: the id of the record, unique in a suite.
        case_id: the id of the case; the name of the file without its suffix if the case cannot be read.
        nodeid: pytest's node id, which runs the case again.
        file: the case file as in the node id.
        case_type: see `Case`; empty if the case cannot be read, like the next three.
        difficulty: see `Case`.
        tags: see `Notes`.
        facets: what the pack groups by, name to value.
        expects_refusal: whether a refusal is the right reaction; None without a record.
        case_sha256: hash of the case's content; None if it cannot be read.
    """

    suite: str
    test_id: str
    case_id: str
    nodeid: str
    file: str
    case_type: str = ""
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    facets: dict[str, str] = field(default_factory=dict)
    expects_refusal: Flag | None = None
    case_sha256: Digest | None = None


@dataclass(frozen=True, slots=True)
class UnreadAnswer:
    """An answer of a target or of its model that can't be read; it is scored, and no failure.

    Attributes:
        term: `unreadable_answer` or `truncated_answer`.
        reason: why it can't be read, in one line.
        text: the answer, as far as it is known and not in the payload.
        by_form: whether the target has returned a result of another form than its pack reads: not an answer that was
            cut off, nor one of its model.
        unknown_keys: JSON pointers of the keys that the answer model of the pack does not have.
    """

    term: Annotated[str, BeforeValidator(lambda term: term if term == TRUNCATED else UNREADABLE)]
    reason: str = ""
    text: str = ""
    by_form: Flag = False
    unknown_keys: tuple[str, ...] = ()

    def problem(self) -> dict[str, str]:
        """Return it as the problem of a recorded answer, plain JSON."""
        return {"kind": PROBLEM_KINDS[self.term], "message": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a target did once, in plain JSON types.

    An attempt that has ended and is not scored yet contains what was paid for, so that scoring it later gives the same
    result; the last six are known only until then.

    Attributes:
        trial: the number of the attempt, from 0.
        timestamp: when it ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        duration_ms: its duration, milliseconds.
        llm_backend: the backend that answered the model calls.
        llm_model: the model that answered.
        cost_usd: what its model calls cost, US dollars; None if one's cost is not known, and in fixture mode.
        cached: the number of model calls answered from the response cache.
        cassette_sha256: hash of the content of the recording that was replayed; None without one.
        stale: whether the prompts have changed since the cassette was recorded.
        remark: what else has changed since the recording, in one line; empty if nothing has.
        payload: the result of the target, without secrets once it is scored; None without one.
        tokens_input: tokens of all requests; None where unknown.
        tokens_output: tokens of all answers; None where unknown.
        calls: the number of model calls.
        recording: the cassette that record mode writes once the attempt is scored, as plain JSON; None without one.
        unread: why the answer can't be read; None if it may be read.
        truncated: whether an answer of the model under test was cut off.
        waited_ms: how long replayed calls were left open until their clients ended them, milliseconds.
    """

    trial: Annotated[int, Field(ge=0, le=U32_MAX, strict=True)] = 0
    timestamp: str = ""
    duration_ms: Count = 0
    llm_backend: str | None = None
    llm_model: str | None = None
    cost_usd: Annotated[float, Field(ge=0, strict=True)] | None = None
    cached: Count = 0
    cassette_sha256: Digest | None = None
    stale: Flag = False
    remark: str = ""
    payload: Any = None
    tokens_input: Count | None = None
    tokens_output: Count | None = None
    calls: Count = 0
    recording: dict[str, Any] | None = None
    unread: UnreadAnswer | None = None
    truncated: Flag = False
    waited_ms: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """A case, and an attempt at it whose target has returned a result that is not scored yet."""

    case: CaseInfo
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(EndedAttempt):
    """A case, an attempt at it, and its score: what journal, report, records, page and comparison are about.

    Attributes:
        case: what is known of the case.
        attempt: what the target did.
        score: what that came to.
        record: the wire record with its `packbench` object; None if the attempt leaves no record.
        folded: of a case over several trials, how many of them passed and how many there were; None for one attempt.
    """

    score: Score
    record: dict[str, Any] | None = None
    folded: tuple[int, int] | None = None

    @property
    def trials(self) -> tuple[int, int]:
        """How many trials passed, quarantined or not if there is one, and how many there were."""
        return self.folded or (int(self.score.verdict == "passed"), 1)

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, for xdist and the journal."""
        waited_ms = self.attempt.waited_ms
        return {"suite": self.case.suite, **self.row(), "cost_usd": self.attempt.cost_usd} | {
            "record": self.record,
            "payload": self.attempt.payload,
            **({"waited_ms": waited_ms} if waited_ms else {}),
        }

    def row(self) -> dict[str, Any]:
        """Return the row of a report: all fields except suite, record and payload, and a cost or labels of None."""
        row: dict[str, Any] = dict(zip(ROW_FIELDS, _ROW_VALUES(self), strict=True))
        row["tags"], row["terms"] = list(row["tags"]), [term.as_json() for term in row["terms"]]
        row["labels"] = row["labels"] and [*map(list, row["labels"])]
        for name in ("cost_usd", "labels"):
            if row[name] is None:
                del row[name]
        return row

    def error_line(self, run_id: str) -> dict[str, Any]:
        """Return the line of `errors.jsonl`."""
        row = self.row()
        trial = {"trial": self.attempt.trial} if self.attempt.trial else {}
        return {"run_id": run_id, **{name: row[name] for name in ERROR_LINE_FIELDS[1:]}, **trial}


_PARTS = (("case", CaseInfo), ("attempt", Attempt), ("score", Score))
_PLACES = {each.name: f"{part}.{each.name}" for part, noun in _PARTS for each in fields(noun)}
_PLACES["finished_ns"] = "attempt.timestamp"
_ENDED_FIELDS = (
    *("suite", "case_id", "nodeid", "file", "trial", "finished_ns", "duration_ms", "case_sha256", "cassette_sha256"),
    *("llm_backend", "llm_model", "tokens_input", "tokens_output", "cost_usd", "calls", "cached", "stale", "remark"),
    *("payload", "recording", "unread", "truncated"),
)
_USUAL_FIELDS = (
    *("test_id", "case_id", "nodeid", "file", "verdict", "kind", "message", "timestamp", "duration_ms"),
    *("case_type", "difficulty", "tags", "facets", "score", "threshold", "match_level", "match_depth", "answer"),
    *("input_text", "expected_text", "actual_text", "expects_refusal", "refused", "decision", "utility"),
    *("valid", "judge", "terms", "stale", "remark", "llm_backend", "llm_model", "case_sha256"),
    *("cassette_sha256", "trial", "cached", "cost_usd"),
)
FURTHER_FIELDS = tuple(name for name in _PLACES if name not in {*_USUAL_FIELDS, *_NOT_IN_ROWS})
"""The fields that are added to one of the three: in rows and, where they are known, in records, page and comparison."""
ROW_FIELDS = (*_USUAL_FIELDS, *FURTHER_FIELDS)
"""The fields in the row of a report: the suite is stored once for the run, record and payload in other files."""
OPTIONAL_ROW_FIELDS = frozenset(
    {"valid", "judge", "cached", "cost_usd", "remark", "input_text", "expected_text", "actual_text", *FURTHER_FIELDS}
)
"""Fields that rows may lack: earlier versions do not write them, and a cost that is not known is left out."""
EXTENSION_KEYS = (
    *("version", "score", "threshold", "verdict", "terms", "match_level", "match_depth", "answer"),
    *("case_id", "case_type", "difficulty", "tags", "facets", "file", "mode", "origin", "stale", "trial"),
    *("target", "pack", "bundled", "case_sha256", "cassette_sha256", "suite_sha256", "versions"),
    *("utility", "valid", "refused", "cached", "calls", "cost_usd", *FURTHER_FIELDS),
)
"""The keys of the `packbench` object in the order in which they are written; those of the last line are optional."""
# faster than looking up each name
_ROW_VALUES = attrgetter(*(_PLACES[name] for name in ROW_FIELDS))


@cache
def adapter(noun: Any) -> TypeAdapter[Any]:
    """Return what validates a type from plain JSON; unknown keys are ignored, so that later versions can add some."""
    return TypeAdapter(noun)


def result_from(data: Mapping[str, Any], record: dict[str, Any] | None = None) -> Result:
    """Create a result from the fields of its parts: a row with its suite, or a line of a journal.

    Args:
        data: the fields by name, as `as_json` returns them.
        record: the wire record, which is not validated.

    Raises:
        ValidationError: a field is missing, or has the wrong type or range.
    """
    case, attempt, score = (adapter(noun).validate_python(data) for _, noun in _PARTS)
    return Result(case=case, attempt=attempt, score=score, record=record)


def result_sent(data: Mapping[str, Any]) -> Result:
    """Create a result from the output of `as_json` of another process of the run, which a pack made: not validated."""
    given = {**data, "tags": tuple(data["tags"]), "terms": tuple([Term(**term) for term in data["terms"]])}
    parts: dict[str, Any] = {
        part: noun(**{each.name: given[each.name] for each in fields(noun) if each.name in given})
        for part, noun in _PARTS
    }
    return Result(**parts, record=data["record"])


def with_score(result: Result, **changes: Any) -> Result:
    """Return a result with changed fields of its score."""
    return replace(result, score=replace(result.score, **changes))


def ended_line(ended: EndedAttempt) -> dict[str, Any]:
    """Return an ended attempt as plain JSON."""
    line = dict(zip(_ENDED_FIELDS, values_of(*_ENDED_FIELDS)(ended), strict=True))
    unread = ended.attempt.unread
    return line | {
        "finished_ns": nanoseconds(ended.attempt.timestamp),
        "unread": None if unread is None else asdict(unread),
    }


def values_of(*names: str) -> Callable[[EndedAttempt], tuple[Any, ...]]:
    """Return a function that returns two or more fields of a result, in whatever part they are."""
    return attrgetter(*(_PLACES.get(name, f"score.{name}") for name in names))


def ended_from(data: Mapping[str, Any]) -> EndedAttempt:
    """Create an ended attempt from the output of `ended_line`.

    Raises:
        ValidationError: a field is missing, or has the wrong type or range.
    """
    ns = data.get("finished_ns")
    # its line does not name the record
    known = {
        "test_id": data.get("case_id"),
        **data,
        "timestamp": format_timestamp(ns) if type(ns) is int and ns >= 0 else None,
    }
    return EndedAttempt(case=adapter(CaseInfo).validate_python(known), attempt=adapter(Attempt).validate_python(known))


def result_of_record(record: EvalRecord) -> Result:
    """Create a result from a wire record; fields that only the `packbench` object has may be missing.

    Raises:
        ValidationError: the `packbench` object has a field of a wrong type or range.
    """
    extension = record.packbench or {}
    case_id, file = extension.get("case_id") or record.test_id, extension.get("file", "")
    return result_from(
        {
            "refused": record.agent_decision == "refuse",
            **extension,
            "suite": record.test_suite,
            "test_id": record.test_id,
            "case_id": case_id,
            "nodeid": f"{file}::{case_id}",
            "file": file,
            "verdict": "passed" if record.passed else "failed",
            "timestamp": record.timestamp,
            "duration_ms": record.wall_clock_ms,
            "expects_refusal": record.expected == "refuse",
            "decision": record.agent_decision,
            "llm_backend": record.llm_backend,
            "llm_model": record.llm_model,
            "judge": _judge_name(extension.get("judge")),
        }
    )


@cache
def row_model() -> type[BaseModel]:
    """Return the model of a row of a report."""
    hints = _hints()
    required = [name for name in ROW_FIELDS if name not in OPTIONAL_ROW_FIELDS]
    return model_of("Row", {name: hints[name] for name in ROW_FIELDS}, required)


@cache
def extension_model() -> type[BaseModel]:
    """Return the model of the `packbench` object of a record; other programs may add keys to it."""
    hints = _hints() | {
        "version": Annotated[int, Field(ge=EXTENSION_VERSION, le=EXTENSION_VERSION, strict=True)],
        "mode": Mode,
        "origin": Origin | None,
        **dict.fromkeys(("target", "pack"), str),
        **dict.fromkeys(("bundled", "utility", "valid"), Flag),
        "suite_sha256": Digest | None,
        "versions": dict[str, str],
        "judge": Annotated[str | None, BeforeValidator(_judge_name), WithJsonSchema(_JUDGE)],
    }
    required = ("version", "score", "threshold", "verdict", "terms")
    return model_of("Extension", {key: hints[key] for key in (*EXTENSION_KEYS, "judge")}, required)


def model_of(name: str, hints: Mapping[str, Any], required: Collection[str]) -> type[BaseModel]:
    """Return a model with fields of these types."""
    fields: dict[str, Any] = {key: (hint, ... if key in required else None) for key, hint in hints.items()}
    return create_model(name, **fields)


def extension_problem(extension: Mapping[str, Any]) -> str:
    """Return the first problem of the `packbench` object of a record in one line; empty if it is valid."""
    try:
        extension_model().model_validate(extension)
    except ValidationError as error:
        return f"packbench{first_problem(error, extension)}"
    return ""


def _judge_name(judge: Any) -> Any:
    """Return the name of a judge, which may be in an object with its findings."""
    name = judge.get("name") if isinstance(judge, dict) else None
    return name if isinstance(name, str) else judge


def _hints() -> dict[str, Any]:
    return {name: hint for _, noun in _PARTS for name, hint in get_type_hints(noun, include_extras=True).items()}


def models_of(results: Iterable[Result]) -> list[str]:
    """Return which models answered in results that count, `backend / model`, sorted."""
    answers = {(each.attempt.llm_backend, each.attempt.llm_model) for each in results if each.score.counted}
    return sorted(" / ".join(filter(None, answer)) for answer in answers if answer[0] not in {None, "unknown"})


def timestamp_now() -> str:
    """Return the time as `format_timestamp` does."""
    return format_timestamp(time.time_ns())


def format_timestamp(ns: int) -> str:
    """Return a time (UTC, nanoseconds since 1970) as `YYYY-MM-DDTHH:MM:SS.mmmZ`, of a wrong clock the nearest."""
    return f"{_second(min(max(ns // 1_000_000_000, 0), _LAST_SECOND))}.{ns // 1_000_000 % 1000:03d}Z"


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""


def nanoseconds(timestamp: str) -> int:
    """Return the time (UTC, nanoseconds since 1970) of the output of `format_timestamp`; 0 for any other text."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000) * 1_000_000
    except ValueError:
        return 0


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


class ErrorLine(NamedTuple):
    """One line of `errors.jsonl`.

    Attributes:
        run_id: the id of the run.
        test_id: the case; starts with the suite's name and a colon.
        verdict: one of `VERDICTS`.
        kind: the name of the reason; `skip` or `xfail` for a quarantined case.
        message: the reason in one line.
        file: the case file as the node id names it.
        timestamp: when the case ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        trial: the number of the attempt, from 0; 0 if the line has none.
    """

    run_id: Text
    test_id: Text
    verdict: Verdict
    kind: Text
    message: str
    file: str
    timestamp: str
    trial: Count = 0
