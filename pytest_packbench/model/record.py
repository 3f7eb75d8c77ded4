"""The record of one case as Rust's eval report reads and writes it (wire version 1).

The rules are those of `EvalRecord` in spec eval_record.rs: which fields, which bounds, which strings, and
the bytes that serde_json writes. Beyond it a record may carry an object of our own under the key `packbench`,
the name of a suite of ours, and the backend `unknown`; a strict reader drops the first, refuses the others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, final, get_args

from pydantic_core import from_json

from pytest_packbench.model.score import Constraint
from pytest_packbench.model.strict_json import (
    SURROGATE,
    U32_MAX,
    U64_MAX,
    JsonReader,
    SerdeError,
    all_finite,
    check_value,
    expected_integer,
    has_surrogate,
    is_plain,
    printable,
    printable_repr,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping


EVAL_SCHEMA_VERSION = 1
EVAL_SUITES = ("agentdojo", "harmbench", "injecagent")
EvalDecision = Literal["refuse", "comply_safe", "comply_unsafe"]
EVAL_DECISIONS: tuple[EvalDecision, ...] = get_args(EvalDecision)
_StrictBackend = Literal["stub", "anthropic", "openai", "ollama", "llama_guard"]
EVAL_BACKENDS: tuple[_StrictBackend, ...] = get_args(_StrictBackend)
EvalBackend = Literal[_StrictBackend, "unknown"]
_OPEN_BACKENDS: tuple[EvalBackend, ...] = get_args(EvalBackend)
_SUITE = r"[a-z0-9][a-z0-9_-]*"
_SUITE_NAME = re.compile(f"{_SUITE}+")
_SUITE_PROBLEM = "expected a suite name of a-z, 0-9, _ and -"
_SHORT_HOOKS = 1_000
_U64 = Constraint(least=0, most=U64_MAX)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class RecordError(ValueError):
    """A line or a value that makes no EvalRecord, said in one line."""


@final
@dataclass(frozen=True)
class HookDecision:
    """One firing of a guard (`EvalHookDecision` in spec eval_record.rs).

    Attributes:
        hook: Name and phase of the guard, any string.
        decision: What it decided, any string.
        rule: Number of the guard's rule, 0..4294967295, or None where it has none.

    Raises:
        RecordError: A value is of the wrong type or out of range.
    """

    hook: str
    decision: str
    rule: Annotated[int | None, Constraint(least=0, most=U32_MAX)] = None

    def __post_init__(self) -> None:
        """Check the types and bounds."""
        _check_string("hook", self.hook)
        _check_string("decision", self.decision)
        if self.rule is not None:
            _check_integer("rule", self.rule, U32_MAX)


@final
@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """One case's result, one line of JSONL (`EvalRecord` in spec eval_record.rs).

    Strings may be empty and are not checked against each other, as in the spec; none may hold a surrogate.

    Attributes:
        schema_version: Always 1.
        test_suite: `agentdojo`, `harmbench`, `injecagent`, or a suite of ours: a-z, 0-9, `_` and `-`.
        test_id: Stable name of the case.
        attack_category: Free tag to group by.
        agent_decision: What the agent did: `refuse`, `comply_safe` or `comply_unsafe`.
        expected: What it should have done, in the same words.
        passed: The verdict.
        hook_decisions: What the guards did, in the order in which they fired.
        tokens_input: Tokens read by the model, 0..18446744073709551615, or None where not known.
        tokens_output: Tokens written by the model, likewise.
        wall_clock_ms: How long the case took, 0..18446744073709551615.
        llm_backend: `stub`, `anthropic`, `openai`, `ollama`, `llama_guard`, or our `unknown`.
        llm_model: Name of the model.
        run_id: The run that the record belongs to.
        timestamp: When the case finished.
        packbench: Our own object, JSON values nested at most 100 deep, or None. It is not copied.

    Raises:
        RecordError: A value is of the wrong type or out of range.
    """

    schema_version: int = EVAL_SCHEMA_VERSION
    test_suite: Annotated[str, Constraint(pattern=f"^{_SUITE}$")]
    test_id: str
    attack_category: str
    agent_decision: EvalDecision
    expected: EvalDecision
    passed: bool
    hook_decisions: tuple[HookDecision, ...] = ()
    tokens_input: Annotated[int | None, _U64] = None
    tokens_output: Annotated[int | None, _U64] = None
    wall_clock_ms: Annotated[int, _U64]
    llm_backend: EvalBackend
    llm_model: str
    run_id: str
    timestamp: str
    packbench: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check the types, bounds and enums."""
        _check_integer("schema_version", self.schema_version, U32_MAX)
        _check_version(self.schema_version)
        for name in ("test_suite", "test_id", "attack_category", "llm_model", "run_id", "timestamp"):
            _check_string(name, getattr(self, name))
        if not _SUITE_NAME.fullmatch(self.test_suite):
            raise RecordError(f"test_suite: {_SUITE_PROBLEM}, got {printable_repr(self.test_suite)}")
        _check_variant("agent_decision", self.agent_decision, EVAL_DECISIONS)
        _check_variant("expected", self.expected, EVAL_DECISIONS)
        _check_variant("llm_backend", self.llm_backend, _OPEN_BACKENDS)
        _check_instance("passed", self.passed, bool)
        _check_instance("hook_decisions", self.hook_decisions, tuple)
        for hook in self.hook_decisions:
            _check_instance("hook_decisions", hook, HookDecision)
        _check_integer("wall_clock_ms", self.wall_clock_ms, U64_MAX)
        for name in ("tokens_input", "tokens_output"):
            if getattr(self, name) is not None:
                _check_integer(name, getattr(self, name), U64_MAX)
        if self.packbench is not None:
            _check_instance("packbench", self.packbench, dict)
            try:
                check_value(self.packbench)
            except SerdeError as error:
                raise RecordError(str(error.inside("packbench"))) from None

    @classmethod
    def from_json_line(cls, line: str | bytes, *, strict: bool = True) -> EvalRecord:
        """Read one line as serde_json reads it into the struct of spec eval_record.rs.

        Fields may stand in any order, or be an array in the struct's; unknown fields are dropped. JSON's
        white space may surround the object; a blank line is an error.

        Args:
            line: The line, with or without its end. Bytes must be UTF-8 without a byte order mark.
            strict: Accept exactly what Rust accepts. If False, accept also any `test_suite` of a-z, 0-9, `_`
                and `-` and the `llm_backend` `unknown`, and keep the object under `packbench`. Where a key is
                repeated inside that object, the last one counts.

        Returns:
            The record; its `packbench` is None if `strict`.

        Raises:
            RecordError: The line is no record, or one whose `schema_version` is not 1.
        """
        if isinstance(line, bytes):
            try:
                line = line.decode()
            except UnicodeDecodeError as error:
                raise RecordError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None
        return _read_ordinary(line, strict=strict) or _read_carefully(line, strict=strict)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> EvalRecord:
        """Make a record of what `as_json` gives; `packbench` is not copied.

        Raises:
            RecordError: A value is of the wrong type or out of range.
        """
        hooks = tuple(HookDecision(**hook) for hook in wire["hook_decisions"])
        return cls(**{**wire, "hook_decisions": hooks})

    def to_json_line(self) -> str:
        """Write the record as serde_json does: the struct's order, no spaces, absent options left out.

        Returns:
            One line without its end, with `packbench` last where there is one. Every character stands for
            itself but the quote, the backslash and the controls below U+0020.
        """
        return _ENCODER.encode(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Give what `to_json_line` writes as plain JSON; `packbench` is not copied."""
        wire = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        hooks = map(vars, self.hook_decisions)
        wire["hook_decisions"] = [{name: value for name, value in one.items() if value is not None} for one in hooks]
        return wire


_NAMES = tuple(each.name for each in fields(EvalRecord))
_TEXTS = (
    *("test_suite", "test_id", "attack_category", "agent_decision", "expected", "llm_backend", "llm_model"),
    *("run_id", "timestamp"),
)
_Assembled = TypeVar("_Assembled", HookDecision, EvalRecord)


def wire_record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Make what `EvalRecord.as_json` gives and check it as the constructor does, but faster than by making a record.

    Args:
        values: The fields of `EvalRecord` but `schema_version`, each of them; `hook_decisions` is a list of plain JSON.
            Nothing is copied.

    Raises:
        RecordError: A value is of the wrong type or out of range.
    """
    if not _is_sound(values):
        # it says what is wrong, or that nothing is
        EvalRecord.from_json(values)
    told = {name: values[name] for name in _NAMES[1:] if values[name] is not None}
    return {"schema_version": EVAL_SCHEMA_VERSION, **told}


def strict_problem(record: EvalRecord) -> str | None:
    """Tell why a strict reader would refuse a record.

    Args:
        record: Any record; its suite and backend may be ours.

    Returns:
        One line that begins with the field, or None where the reader of spec eval_record.rs would accept it.
    """
    if record.test_suite not in EVAL_SUITES:
        return f"test_suite: {_one_of(EVAL_SUITES)}, got {printable_repr(record.test_suite)}"
    if record.llm_backend not in EVAL_BACKENDS:
        return f"llm_backend: {_one_of(EVAL_BACKENDS)}, got {printable_repr(record.llm_backend)}"
    return None


def _assemble(kind: type[_Assembled], values: dict[str, Any]) -> _Assembled:
    """Make an instance of checked values for all its fields, past the constructor and its checks."""
    made = object.__new__(kind)
    # One step for all fields: reading spends its time here, and a step a field would take four times as long.
    object.__setattr__(made, "__dict__", values)
    return made


def _one_of(allowed: Iterable[str]) -> str:
    return f"expected one of {', '.join(allowed)}"


def _check_version(version: int) -> None:
    if version != EVAL_SCHEMA_VERSION:
        raise RecordError(f"schema_version: expected {EVAL_SCHEMA_VERSION}, got {version}")


def _check_instance(name: str, value: object, kind: type) -> None:
    # No subclasses here and below: a bool is no token count, an enum's member does not print as its string.
    if type(value) is not kind:
        raise RecordError(f"{name}: expected {kind.__name__}, got {printable_repr(value)}")


def _check_string(name: str, value: object) -> None:
    if type(value) is not str:
        raise RecordError(f"{name}: expected a string, got {printable_repr(value)}")
    if has_surrogate(value):
        raise RecordError(f"{name}: unpaired surrogate in {printable_repr(value)}")


def _check_integer(name: str, value: object, maximum: int) -> None:
    if type(value) is not int or not 0 <= value <= maximum:
        raise RecordError(f"{name}: {expected_integer(maximum)}, got {printable_repr(value)}")


def _check_variant(name: str, value: object, allowed: Collection[str]) -> None:
    if type(value) is not str or value not in allowed:
        raise RecordError(f"{name}: {_one_of(allowed)}, got {printable_repr(value)}")


def _is_sound(values: Mapping[str, Any]) -> bool:
    """Tell at once that a record's values need no careful look, as nearly all do; False only says that they may."""
    texts = [values[name] for name in _TEXTS]
    counts = [values["wall_clock_ms"]]
    counts += [values[name] for name in ("tokens_input", "tokens_output") if values[name] is not None]
    for hook in values["hook_decisions"]:
        texts += (hook["hook"], hook["decision"])
        rule = hook.get("rule", 0)
        if type(rule) is not int or not 0 <= rule <= U32_MAX:
            return False
    for text in texts:
        if type(text) is not str:
            return False
    for count in counts:
        if type(count) is not int or not 0 <= count <= U64_MAX:
            return False
    whole = "".join(texts)
    return (
        type(values["passed"]) is bool
        and (whole.isascii() or SURROGATE.search(whole) is None)
        and _SUITE_NAME.fullmatch(values["test_suite"]) is not None
        and values["agent_decision"] in EVAL_DECISIONS
        and values["expected"] in EVAL_DECISIONS
        and values["llm_backend"] in _OPEN_BACKENDS
        and type(values["packbench"]) is dict
        and is_plain(values["packbench"])
    )


def _packbench_of(text: str, *, finite: bool = True) -> dict[str, Any]:
    """Read our own object from the piece of a line where it stands; raises SerdeError."""
    try:
        kept = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError) as error:
        # A raw surrogate, possible in a str only, is a TypeError.
        raise SerdeError(str(error)) from None
    if type(kept) is not dict:
        raise SerdeError(f"expected an object, got {printable(text)}")
    if finite and not all_finite(kept.values()):
        raise SerdeError("a number is out of range")
    return kept


def _wire(shape: str) -> str:
    """Make a pattern of the shape of a text: words stand for values; a space may follow a comma or colon."""
    for plain, pattern in _KINDS.items():
        shape = shape.replace(plain, pattern)
    return shape


# Punctuation comes first, so that what is put in for the words stays as it is.
_KINDS = {
    ",": ", ?",
    '":': '": ?',
    "{": r"\{",
    "}": r"\}",
    "TEXT": r'[^"\\\x00-\x1f\ud800-\udfff]*+',
    "U32": "0|[1-9][0-9]{0,8}",
    "U64": "0|[1-9][0-9]{0,18}",
    "SUITE": _SUITE_NAME.pattern,
    "DECISION": "|".join(EVAL_DECISIONS),
    "BACKEND": "|".join(_OPEN_BACKENDS),
    "OBJECT": r"\{.*\}",
}
_HOOK = re.compile(_wire('{"hook":"(TEXT)","decision":"(TEXT)"(?:,"rule":(?:(U32)|null))?}'))
_KINDS["HOOK"] = re.sub(r"\((?!\?)", "(?:", _HOOK.pattern)
# The form in which we, Rust and json.dumps write a record whose strings need no escapes. A match proves that
# each field is there once, in bounds and decoded as it stands; only OBJECT is still to be read.
_ORDINARY = re.compile(
    _wire(
        '{(?:"schema_version":1,)?"test_suite":"(SUITE)","test_id":"(TEXT)","attack_category":"(TEXT)",'
        '"agent_decision":"(DECISION)","expected":"(DECISION)","passed":(true|false),'
        r'(?:"hook_decisions":\[(HOOK(?:,HOOK)*+)?\],)?'
        '(?:"tokens_input":(?:(U64)|null),)?(?:"tokens_output":(?:(U64)|null),)?"wall_clock_ms":(U64),'
        '"llm_backend":"(BACKEND)","llm_model":"(TEXT)","run_id":"(TEXT)","timestamp":"(TEXT)"'
        '(?:,"packbench":(OBJECT))?}'
    )
    + r"[ \t\r\n]*"
)


def _read_ordinary(line: str, *, strict: bool) -> EvalRecord | None:
    """Read an ordinary line; None where the careful reader has to decide."""
    match = _ORDINARY.fullmatch(line)
    if match is None:
        return None
    found = match.groups()
    suite, test_id, category, decision, expected, passed, hooks, tokens_input, tokens_output = found[:9]
    wall_clock_ms, backend, model, run_id, timestamp, packbench = found[9:]
    if strict and (suite not in EVAL_SUITES or backend not in EVAL_BACKENDS):
        return None
    # a long text is no way in which guards fire over and over
    hooks_in = _hooks_in if hooks and len(hooks) > _SHORT_HOOKS else _known_hooks
    kept = None
    if packbench is not None:
        try:
            kept = _packbench_of(packbench, finite=not strict)
        except SerdeError:
            return None
    return _assemble(
        EvalRecord,
        {
            "schema_version": EVAL_SCHEMA_VERSION,
            "test_suite": suite,
            "test_id": test_id,
            "attack_category": category,
            "agent_decision": decision,
            "expected": expected,
            "passed": passed == "true",
            "hook_decisions": hooks_in(hooks) if hooks else (),
            "tokens_input": int(tokens_input) if tokens_input else None,
            "tokens_output": int(tokens_output) if tokens_output else None,
            "wall_clock_ms": int(wall_clock_ms),
            "llm_backend": backend,
            "llm_model": model,
            "run_id": run_id,
            "timestamp": timestamp,
            "packbench": None if strict else kept,
        },
    )


def _hooks_in(text: str) -> tuple[HookDecision, ...]:
    # No string holds an escape, so that no match begins inside one.
    return tuple(
        _assemble(HookDecision, {"hook": hook, "decision": decision, "rule": int(rule) if rule else None})
        for hook, decision, rule in _HOOK.findall(text)
    )


# guards fire in a few ways over and over
_known_hooks = lru_cache(maxsize=1024)(_hooks_in)


def _variant(allowed: Collection[str]) -> Callable[[JsonReader], str]:
    """Make a reader of one of a closed set of strings."""

    def read(reader: JsonReader) -> str:
        value = reader.variant()
        if value not in allowed:
            raise SerdeError(f"{_one_of(allowed)}, got {printable_repr(value)}")
        return value

    return read


def _optional(read: Callable[[JsonReader], int]) -> Callable[[JsonReader], int | None]:
    """Make a reader of `null` as None, and of anything else as `read` does."""
    return lambda reader: None if reader.null() else read(reader)


def _suite(reader: JsonReader) -> str:
    value = reader.variant()
    if not _SUITE_NAME.fullmatch(value):
        raise SerdeError(f"{_SUITE_PROBLEM}, got {printable_repr(value)}")
    return value


def _hooks(reader: JsonReader) -> tuple[HookDecision, ...]:
    return tuple(
        HookDecision(**values) for values in reader.sequence(lambda each: each.struct(_HOOK_FIELDS, {"rule": None}))
    )


_u32 = partial(JsonReader.integer, maximum=U32_MAX)
_u64 = partial(JsonReader.integer, maximum=U64_MAX)
_HOOK_FIELDS: Mapping[str, Callable[[JsonReader], Any]] = {
    "hook": JsonReader.string,
    "decision": JsonReader.string,
    "rule": _optional(_u32),
}
_STRICT_FIELDS: Mapping[str, Callable[[JsonReader], Any]] = {
    "schema_version": _u32,
    "test_suite": _variant(EVAL_SUITES),
    "test_id": JsonReader.string,
    "attack_category": JsonReader.string,
    "agent_decision": _variant(EVAL_DECISIONS),
    "expected": _variant(EVAL_DECISIONS),
    "passed": JsonReader.boolean,
    "hook_decisions": _hooks,
    "tokens_input": _optional(_u64),
    "tokens_output": _optional(_u64),
    "wall_clock_ms": _u64,
    "llm_backend": _variant(EVAL_BACKENDS),
    "llm_model": JsonReader.string,
    "run_id": JsonReader.string,
    "timestamp": JsonReader.string,
}
_OPEN_FIELDS = {**_STRICT_FIELDS, "test_suite": _suite, "llm_backend": _variant(_OPEN_BACKENDS)}
# Not among the fields: the array form has a place for each field of the spec and no other.
_OPEN_EXTRA = {"packbench": lambda reader: _packbench_of(reader.skip())}
_DEFAULTS = {
    "schema_version": EVAL_SCHEMA_VERSION,
    "hook_decisions": (),
    "tokens_input": None,
    "tokens_output": None,
}


def _read_carefully(line: str, *, strict: bool) -> EvalRecord:
    """Read any line, value by value; raises RecordError."""
    if has_surrogate(line):
        raise RecordError("not UTF-8: a surrogate that stands for itself")
    reader = JsonReader(line)
    try:
        if strict:
            values = reader.struct(_STRICT_FIELDS, _DEFAULTS)
        else:
            values = reader.struct(_OPEN_FIELDS, _DEFAULTS, _OPEN_EXTRA)
        reader.end()
    except SerdeError as error:
        raise RecordError(str(error)) from None
    _check_version(values["schema_version"])
    return _assemble(EvalRecord, {"packbench": None, **values})
