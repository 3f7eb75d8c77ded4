"""The record of one case as Rust's eval report reads and writes it (wire version 1).

Fields, ranges, strings and the written bytes are those of `EvalRecord` in spec eval_record.rs and serde_json. In
addition a record may have the object `packbench`, the name of any suite, and the backend `unknown`; a strict reader
ignores the first and rejects the others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, final, get_args

from pydantic import Field
from pydantic_core import from_json

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
_MAX_CACHED_HOOKS = 1_000
_LONGEST_COMPARED = 100
_CLOSE = 0.8
_U64 = Annotated[int, Field(ge=0, le=U64_MAX)]
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class RecordError(ValueError):
    """A line or a value is not a valid EvalRecord; the message is one line."""


@final
@dataclass(frozen=True)
class HookDecision:
    """One decision of a guard (`EvalHookDecision` in spec eval_record.rs).

    Attributes:
        hook: Name and phase of the guard, any string.
        decision: Its decision, any string.
        rule: Number of the guard's rule, 0..4294967295, or None without one.

    Raises:
        RecordError: A value has the wrong type or is out of range.
    """

    hook: str
    decision: str
    rule: Annotated[int, Field(ge=0, le=U32_MAX)] | None = None

    def __post_init__(self) -> None:
        """Validate types and ranges."""
        _check_string("hook", self.hook)
        _check_string("decision", self.decision)
        if self.rule is not None:
            _check_integer("rule", self.rule, U32_MAX)


@final
@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """The result of one case, one line of JSON (`EvalRecord` in spec eval_record.rs).

    Strings may be empty, and fields may contradict each other, as in the spec; no string may contain a surrogate.

    Attributes:
        schema_version: Always 1.
        test_suite: `agentdojo`, `harmbench`, `injecagent`, or another name of a-z, 0-9, `_` and `-`.
        test_id: Stable name of the case.
        attack_category: Any tag to group by.
        agent_decision: The decision of the agent: `refuse`, `comply_safe` or `comply_unsafe`.
        expected: The expected decision, one of the same values.
        passed: Whether the case passed.
        hook_decisions: The decisions of the guards, in order.
        tokens_input: Input tokens, 0..18446744073709551615, or None if not known.
        tokens_output: Output tokens, likewise.
        wall_clock_ms: Duration of the case, milliseconds, 0..18446744073709551615.
        llm_backend: `stub`, `anthropic`, `openai`, `ollama`, `llama_guard`, or `unknown`.
        llm_model: Name of the model.
        run_id: The id of the run.
        timestamp: When the case ended.
        packbench: The extension object, JSON values nested at most 100 deep, or None. It is not copied.

    Raises:
        RecordError: A value has the wrong type or is out of range.
    """

    schema_version: int = EVAL_SCHEMA_VERSION
    test_suite: Annotated[str, Field(pattern=f"^{_SUITE}$")]
    test_id: str
    attack_category: str
    agent_decision: EvalDecision
    expected: EvalDecision
    passed: bool
    hook_decisions: tuple[HookDecision, ...] = ()
    tokens_input: _U64 | None = None
    tokens_output: _U64 | None = None
    wall_clock_ms: _U64
    llm_backend: EvalBackend
    llm_model: str
    run_id: str
    timestamp: str
    packbench: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Validate types, ranges and enums."""
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
        """Parse one line as serde_json parses it into the struct of spec eval_record.rs.

        The fields may be in any order, or an array in the order of the struct; unknown fields are ignored. JSON white
        space may surround the object; a blank line is an error.

        Args:
            line: The line, with or without its line end. Bytes must be UTF-8 without a byte order mark.
            strict: Accept exactly what Rust accepts. If False, also accept any `test_suite` of a-z, 0-9, `_` and
                `-` and the `llm_backend` `unknown`, and keep the object `packbench`. If a key is repeated in that
                object, the last one counts.

        Returns:
            The record; its `packbench` is None if `strict`.

        Raises:
            RecordError: The line is not a record, or its `schema_version` is not 1.
        """
        if isinstance(line, bytes):
            try:
                line = line.decode()
            except UnicodeDecodeError as error:
                raise RecordError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None
        return _read_fast(line, strict=strict) or _read_any(line, strict=strict)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> EvalRecord:
        """Create a record from the output of `as_json`; `packbench` is not copied.

        Raises:
            RecordError: A value has the wrong type or is out of range.
        """
        hooks = tuple(HookDecision(**hook) for hook in wire["hook_decisions"])
        return cls(**{**wire, "hook_decisions": hooks})

    def to_json_line(self) -> str:
        """Return the record as serde_json writes it: in the struct's order, without spaces and absent options.

        Returns:
            One line without its line end; `packbench` is the last key. Only the quote, the backslash and the control
            characters below U+0020 are escaped.
        """
        return _ENCODER.encode(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain JSON, without absent options; `packbench` is not copied."""
        wire = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        hooks = map(vars, self.hook_decisions)
        wire["hook_decisions"] = [{name: value for name, value in hook.items() if value is not None} for hook in hooks]
        return wire


_NAMES = tuple(each.name for each in fields(EvalRecord))
_TEXTS = (
    *("test_suite", "test_id", "attack_category", "agent_decision", "expected", "llm_backend", "llm_model"),
    *("run_id", "timestamp"),
)
_Assembled = TypeVar("_Assembled", HookDecision, EvalRecord)


def wire_record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a record as `EvalRecord.as_json` does, validated like a record but faster.

    Args:
        values: All fields of `EvalRecord` except `schema_version`; `hook_decisions` is a list of plain JSON. Nothing is
            copied.

    Raises:
        RecordError: A value has the wrong type or is out of range.
    """
    if not _is_surely_valid(values):
        # the constructor validates each value
        EvalRecord.from_json(values)
    present = {name: values[name] for name in _NAMES[1:] if values[name] is not None}
    return {"schema_version": EVAL_SCHEMA_VERSION, **present}


def strict_problem(record: EvalRecord) -> str | None:
    """Return why a strict reader rejects a record.

    Args:
        record: Any record.

    Returns:
        One line that starts with the field, or None if the reader of spec eval_record.rs accepts it.
    """
    if record.test_suite not in EVAL_SUITES:
        return f"test_suite: {_not_among(record.test_suite, EVAL_SUITES)}"
    if record.llm_backend not in EVAL_BACKENDS:
        return f"llm_backend: {_not_among(record.llm_backend, EVAL_BACKENDS)}"
    return None


def _assemble(kind: type[_Assembled], values: dict[str, Any]) -> _Assembled:
    """Create an instance from validated values of all fields, without calling the constructor."""
    instance = object.__new__(kind)
    # One assignment for all fields: one per field makes reading records four times as slow.
    object.__setattr__(instance, "__dict__", values)
    return instance


def _one_of(allowed: Iterable[str]) -> str:
    return f"expected one of {', '.join(allowed)}"


def _not_among(value: object, allowed: Collection[str]) -> str:
    """Describe a value that is none of the allowed ones, with the one that may be meant."""
    return f"{_one_of(allowed)}, got {printable_repr(value)}{_did_you_mean(value, allowed)}"


def _did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """Return the allowed word that a value resembles, such as `agentdojo` for `Agent Dojo`; empty if there is none."""
    from difflib import get_close_matches  # valid records need no suggestion

    if not isinstance(value, str):
        return ""
    # only the beginning, since comparing takes time
    letters = {_letters(word): word for word in allowed}
    close = get_close_matches(_letters(value[:_LONGEST_COMPARED]), letters, n=1, cutoff=_CLOSE)
    return f'; did you mean "{letters[close[0]]}"?' if close else ""


def _letters(word: str) -> str:
    return "".join(char for char in word.lower() if char.isalnum())


def _check_version(version: int) -> None:
    if version != EVAL_SCHEMA_VERSION:
        raise RecordError(f"schema_version: expected {EVAL_SCHEMA_VERSION}, got {version}")


def _check_instance(name: str, value: object, kind: type) -> None:
    # Subclasses are rejected here and below: a bool is not a token count, an enum member does not print as its string.
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
        raise RecordError(f"{name}: {_not_among(value, allowed)}")


def _is_surely_valid(values: Mapping[str, Any]) -> bool:
    """Return whether values are certainly valid, as nearly all are; False means that they need a full validation."""
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
    joined = "".join(texts)
    return (
        type(values["passed"]) is bool
        and (joined.isascii() or SURROGATE.search(joined) is None)
        and _SUITE_NAME.fullmatch(values["test_suite"]) is not None
        and values["agent_decision"] in EVAL_DECISIONS
        and values["expected"] in EVAL_DECISIONS
        and values["llm_backend"] in _OPEN_BACKENDS
        and type(values["packbench"]) is dict
        and is_plain(values["packbench"])
    )


def _packbench_of(text: str, *, finite: bool = True) -> dict[str, Any]:
    """Parse the `packbench` object from its part of a line; raises SerdeError."""
    try:
        extension = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError) as error:
        # A str may contain a surrogate, which is a TypeError.
        raise SerdeError(str(error)) from None
    if type(extension) is not dict:
        raise SerdeError(f"expected an object, got {printable(text)}")
    if finite and not all_finite(extension.values()):
        raise SerdeError("a number is out of range")
    return extension


def _wire_pattern(template: str) -> str:
    """Convert a template to a pattern: its words are placeholders, and a space may follow a comma or colon."""
    for placeholder, pattern in _PLACEHOLDERS.items():
        template = template.replace(placeholder, pattern)
    return template


# Punctuation comes first, so that it is not replaced in the patterns of the other placeholders.
_PLACEHOLDERS = {
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
_HOOK = _wire_pattern('{"hook":"(TEXT)","decision":"(TEXT)"(?:,"rule":(?:(U32)|null))?}')
_PLACEHOLDERS["HOOK"] = re.sub(r"\((?!\?)", "(?:", _HOOK)
# The form in which this package, Rust and json.dumps write a record whose strings need no escapes. A match proves that
# each field is present once, in range and unescaped; only OBJECT needs to be parsed.
_ORDINARY = (
    _wire_pattern(
        '{(?:"schema_version":1,)?"test_suite":"(SUITE)","test_id":"(TEXT)","attack_category":"(TEXT)",'
        '"agent_decision":"(DECISION)","expected":"(DECISION)","passed":(true|false),'
        r'(?:"hook_decisions":\[(HOOK(?:,HOOK)*)?\],)?'
        '(?:"tokens_input":(?:(U64)|null),)?(?:"tokens_output":(?:(U64)|null),)?"wall_clock_ms":(U64),'
        '"llm_backend":"(BACKEND)","llm_model":"(TEXT)","run_id":"(TEXT)","timestamp":"(TEXT)"'
        '(?:,"packbench":(OBJECT))?}'
    )
    + r"[ \t\r\n]*"
)
# a run that only writes records does without compiling the patterns
_compiled = cache(re.compile)


def _read_fast(line: str, *, strict: bool) -> EvalRecord | None:
    """Parse a line in the usual form; None if `_read_any` must parse it."""
    match = _compiled(_ORDINARY).fullmatch(line)
    if match is None:
        return None
    groups = match.groups()
    suite, test_id, category, decision, expected, passed, hooks, tokens_input, tokens_output = groups[:9]
    wall_clock_ms, backend, model, run_id, timestamp, packbench = groups[9:]
    if strict and (suite not in EVAL_SUITES or backend not in EVAL_BACKENDS):
        return None
    # a long text is not likely to occur again
    hooks_in = _hooks_in if hooks and len(hooks) > _MAX_CACHED_HOOKS else _known_hooks
    extension = None
    if packbench is not None:
        try:
            extension = _packbench_of(packbench, finite=not strict)
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
            "packbench": None if strict else extension,
        },
    )


def _hooks_in(text: str) -> tuple[HookDecision, ...]:
    # No string contains an escape, so that no match starts inside a string.
    return tuple(
        _assemble(HookDecision, {"hook": hook, "decision": decision, "rule": int(rule) if rule else None})
        for hook, decision, rule in _compiled(_HOOK).findall(text)
    )


# guards make the same few decisions again and again
_known_hooks = lru_cache(maxsize=1024)(_hooks_in)


def _variant(allowed: Collection[str]) -> Callable[[JsonReader], str]:
    """Return a reader of one of several strings."""

    def read(reader: JsonReader) -> str:
        value = reader.variant()
        if value not in allowed:
            raise SerdeError(_not_among(value, allowed))
        return value

    return read


def _optional(read: Callable[[JsonReader], int]) -> Callable[[JsonReader], int | None]:
    """Return a reader of `null` or of what `read` reads."""
    return lambda reader: None if reader.null() else read(reader)


def _suite(reader: JsonReader) -> str:
    value = reader.variant()
    if not _SUITE_NAME.fullmatch(value):
        raise SerdeError(f"{_SUITE_PROBLEM}, got {printable_repr(value)}{_did_you_mean(value, EVAL_SUITES)}")
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
# Not among the fields: the array form contains the fields of the spec only.
_OPEN_EXTRA = {"packbench": lambda reader: _packbench_of(reader.skip())}
_DEFAULTS = {
    "schema_version": EVAL_SCHEMA_VERSION,
    "hook_decisions": (),
    "tokens_input": None,
    "tokens_output": None,
}


def _read_any(line: str, *, strict: bool) -> EvalRecord:
    """Parse any line, value by value; raises RecordError."""
    if has_surrogate(line):
        raise RecordError("not UTF-8: contains an unescaped surrogate")
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
