"""The record of one case as Rust's eval report reads and writes it (wire version 1).

Fields, ranges, strings and the written bytes are those of `EvalRecord` in spec eval_record.rs and serde_json. In
addition a record may have the object `packbench`, the name of any suite, and the backend `unknown`; a strict reader
ignores the first and rejects the others.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, final, get_args, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from pytest_packbench.files import (
    MAX_BITS,
    MAX_DEPTH,
    NUMBERS,
    U32_MAX,
    U64_MAX,
    NumberError,
    escape_unprintable,
    has_surrogate,
    is_plain,
    printable,
    printable_repr,
)
from pytest_packbench.model.case import NAME, CurrentVersion
from pytest_packbench.model.errors import first_problem, format_value, json_pointer, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


EVAL_SCHEMA_VERSION = 1
EVAL_SUITES = ("agentdojo", "harmbench", "injecagent")
EvalDecision = Literal["refuse", "comply_safe", "comply_unsafe"]
EVAL_DECISIONS: tuple[EvalDecision, ...] = get_args(EvalDecision)
_StrictBackend = Literal["stub", "anthropic", "openai", "ollama", "llama_guard"]
EVAL_BACKENDS: tuple[_StrictBackend, ...] = get_args(_StrictBackend)
EvalBackend = Literal[_StrictBackend, "unknown"]
_OPEN_BACKENDS: tuple[EvalBackend, ...] = get_args(EvalBackend)
_MANY_DIGITS = 4_300
# deeper than pydantic_core reads: what is left of such an extension is refused as well
_SHALLOW = 3 * MAX_DEPTH
_PARTS = r'"(?:[^"\\]|\\.)*"?|[\[\]{}]|[^"\[\]{}]+'
_MAX_CACHED_HOOKS = 1_000
# a string of valid Unicode: pydantic looks at the characters only if there is a constraint
_Text = Annotated[str, Field(min_length=0)]
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

    hook: _Text
    decision: _Text
    rule: Annotated[int, Field(ge=0, le=U32_MAX)] | None = None

    def __post_init__(self) -> None:
        """Validate types and ranges."""
        _check(HookDecision, vars(self))


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

    schema_version: Annotated[int, CurrentVersion(EVAL_SCHEMA_VERSION)] = EVAL_SCHEMA_VERSION
    test_suite: Annotated[str, Field(pattern=NAME)]
    test_id: _Text
    attack_category: _Text
    agent_decision: EvalDecision
    expected: EvalDecision
    passed: bool
    hook_decisions: tuple[HookDecision, ...] = ()
    tokens_input: _U64 | None = None
    tokens_output: _U64 | None = None
    wall_clock_ms: _U64
    llm_backend: EvalBackend
    llm_model: _Text
    run_id: _Text
    timestamp: _Text
    packbench: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Validate types, ranges and enums."""
        _check(EvalRecord, vars(self))
        if self.packbench is not None:
            _check_extension(self.packbench)

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
        hooks = [_hook_of(**hook) for hook in wire["hook_decisions"]]
        return cls(**{**wire, "hook_decisions": tuple(hooks)})

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
_Noun = TypeVar("_Noun", HookDecision, EvalRecord)


def strict_problem(record: EvalRecord) -> str | None:
    """Return why a strict reader rejects a record.

    Args:
        record: Any record.

    Returns:
        One line that starts with the field, or None if the reader of spec eval_record.rs accepts it.
    """
    for name, known in (("test_suite", EVAL_SUITES), ("llm_backend", EVAL_BACKENDS)):
        value = getattr(record, name)
        if value not in known:
            return f"{name}: got {format_value(value)}; {suggestion(value, known)}"
    return None


@cache
def _fields_of(kind: type) -> TypeAdapter[Any]:
    """Return what validates the fields of a class; faster than a model, of which each record would be an instance."""
    hints = get_type_hints(kind, include_extras=True)
    create: Any = TypedDict
    values = create(kind.__name__, hints)
    values.__pydantic_config__ = ConfigDict(strict=True)
    return TypeAdapter(values)


def _check(kind: type, values: Mapping[str, Any]) -> None:
    """Raise `RecordError` unless values are those of the fields of a class."""
    try:
        _fields_of(kind).validate_python(values)
    except ValidationError as error:
        problem = str(first_problem(error, values)).removeprefix("/")
        raise RecordError(escape_unprintable(problem)) from None


def _check_extension(extension: object) -> None:
    if type(extension) is not dict:
        raise RecordError(f"packbench: expected an object, got {format_value(extension)}")
    if not is_plain(extension):
        path, wrong = _first_wrong(extension)
        form = f"finite numbers, integers of at most {MAX_BITS:,} bits, whole characters, at most {MAX_DEPTH} levels"
        raise RecordError(f"packbench{json_pointer(path)}: expected plain JSON ({form}), got {printable_repr(wrong)}")


def _first_wrong(value: Any) -> tuple[tuple[str | int, ...], Any]:
    """Return the first innermost part that is not plain, with the keys and indexes that lead to it."""
    path: tuple[str | int, ...] = ()
    # a value may contain itself
    while len(path) < MAX_DEPTH:
        members = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
        found = next((member for member in members if not is_plain(member[1:])), None)
        if found is None:
            break
        path, value = (*path, found[0]), found[1]
    return path, value


def _packbench_of(text: str, *, checked: bool = True) -> dict[str, Any]:
    """Parse the `packbench` object from its part of a line; raises RecordError."""
    try:
        extension: dict[str, Any] = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError) as error:
        # a str may contain a surrogate, which is a TypeError
        raise RecordError(f"packbench: {error}") from None
    if checked:
        _check_extension(extension)
    return extension


def _assemble(kind: type[_Noun], values: dict[str, Any]) -> _Noun:
    """Create an instance from validated values of all fields, without calling the constructor."""
    instance = object.__new__(kind)
    # One assignment for all fields: one per field makes reading records four times as slow.
    object.__setattr__(instance, "__dict__", values)
    return instance


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
    "SUITE": "[a-z0-9][a-z0-9_-]*+",
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
    values: dict[str, Any] = dict(zip(_NAMES[1:], match.groups(), strict=True))
    if strict and (values["test_suite"] not in EVAL_SUITES or values["llm_backend"] not in EVAL_BACKENDS):
        return None
    hooks, extension = values["hook_decisions"], values["packbench"]
    # a long text is not likely to occur again
    hooks_in = _hooks_in if hooks and len(hooks) > _MAX_CACHED_HOOKS else _known_hooks
    values["hook_decisions"] = hooks_in(hooks) if hooks else ()
    values["passed"] = values["passed"] == "true"
    values["schema_version"] = EVAL_SCHEMA_VERSION
    for name in ("tokens_input", "tokens_output", "wall_clock_ms"):
        if number := values[name]:
            values[name] = int(number)
    if extension is not None:
        try:
            known = _packbench_of(extension, checked=not strict)
        except RecordError:
            return None
        values["packbench"] = None if strict else known
    return _assemble(EvalRecord, values)


def _hooks_in(text: str) -> tuple[HookDecision, ...]:
    # No string contains an escape, so that no match starts inside a string.
    return tuple(
        _assemble(HookDecision, {"hook": hook, "decision": decision, "rule": int(rule) if rule else None})
        for hook, decision, rule in _compiled(_HOOK).findall(text)
    )


# guards make the same few decisions again and again
_known_hooks = lru_cache(maxsize=1024)(_hooks_in)
_known_hook = lru_cache(maxsize=1024)(HookDecision)


def _hook_of(hook: Any, decision: Any, rule: Any = None) -> HookDecision:
    """Return a decision of a guard; one that is short, and likely to occur again, is checked once."""
    # other types may have an equality of their own, and True equals 1
    is_plain = type(hook) is type(decision) is str and (rule is None or type(rule) is int)
    known = is_plain and len(hook) + len(decision) <= _MAX_CACHED_HOOKS
    return (_known_hook if known else HookDecision)(hook, decision, rule)


def _read_any(line: str, *, strict: bool) -> EvalRecord:
    """Parse any line, value by value; raises RecordError."""
    if has_surrogate(line):
        raise RecordError("not UTF-8: contains an unescaped surrogate")
    given = _parsed(line)
    record = _struct(given, EvalRecord, _NAMES[:-1], extra=() if strict else ("packbench",))
    problem = strict_problem(record) if strict else None
    if problem is not None:
        raise RecordError(problem)
    return record


def _parsed(line: str) -> Any:
    try:
        try:
            return _loads(line)
        except RecursionError:
            return _loads(_shallow(line))
    except json.JSONDecodeError as error:
        where = f"column {error.colno}: " if error.doc == line else ""
        raise RecordError(f"{where}not JSON: {error.msg}") from None
    except NumberError as error:
        raise RecordError(str(error)) from None
    except RecursionError:
        raise RecordError("nested too deeply") from None


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, **_NUMBERS)


def _shallow(line: str) -> str:
    """Parse a line from the inside, some levels at a time, as serde skips unknown fields however deep they are.

    Returns:
        The line with `[]` for what is deeper than any field; cut short, and so not JSON, if a bracket is not closed.

    Raises:
        ValueError: what is deeper is not JSON.
    """
    pieces: list[list[str]] = [[]]
    depth = 0
    for part in _compiled(_PARTS).findall(line):
        if part in ("[", "{"):
            depth += 1
            if depth % _SHALLOW == 0:
                pieces.append([])
        pieces[-1].append(part)
        if part in ("]", "}"):
            if depth % _SHALLOW == 0 and len(pieces) > 1:
                _loads("".join(pieces.pop()))
                pieces[-1].append("[]")
            depth -= 1
    return "".join(pieces[0])


class _MinusZero(int):
    """`-0`: 0, but a float to serde_json where a field has to be an integer."""


def _integer(text: str) -> float:
    if text == "-0":
        return _MinusZero()
    # Python converts no integer of thousands of digits
    return int(text) if len(text) < _MANY_DIGITS else float(text)


_NUMBERS: dict[str, Any] = {"parse_int": _integer, "parse_constant": NUMBERS["parse_constant"]}


class _Repeated(dict[str, Any]):
    """An object that has keys twice: a mistake where they are fields of a struct."""

    twice: frozenset[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        members = _Repeated(members)
        members.twice = frozenset(key for key, number in Counter(key for key, _ in pairs).items() if number > 1)
    return members


def _struct(given: Any, kind: type[_Noun], names: tuple[str, ...], extra: tuple[str, ...] = ()) -> _Noun:
    """Read a struct: an object in any order, or an array in the order of the fields.

    Args:
        given: the parsed JSON.
        kind: the class; fields with a default may be missing.
        names: the fields; other keys are skipped.
        extra: further fields that only an object has.

    Raises:
        RecordError: it is no such struct.
    """
    if isinstance(given, list) and len(given) <= len(names):
        given = dict(zip(names, given, strict=False))
    if not isinstance(given, dict):
        raise RecordError(f"expected an object, got {printable(format_value(given))}")
    if has_surrogate("".join(given)):
        raise RecordError("a key contains half of a surrogate pair")
    twice = sorted({*names, *extra} & given.twice) if isinstance(given, _Repeated) else ()
    if twice:
        raise RecordError(f"{twice[0]}: duplicate key")
    known = {name: _PARSERS.get(name, _plain)(given[name]) for name in (*names, *extra) if name in given}
    values = {each.name: known.get(each.name, each.default) for each in fields(kind)}
    _check(kind, {name: value for name, value in values.items() if value is not MISSING})
    return _assemble(kind, values)


def _plain(value: Any) -> Any:
    return -0.0 if isinstance(value, _MinusZero) else value


def _variant(value: Any) -> Any:
    """Return the name of an enum's variant: a string, or serde's map form `{"name": null}`."""
    return next(iter(value)) if type(value) is dict and list(value.values()) == [None] else value


def _hooks(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    hooks = []
    for number, member in enumerate(value):
        try:
            hooks.append(_struct(member, HookDecision, ("hook", "decision", "rule")))
        except RecordError as error:
            raise RecordError(f"hook_decisions[{number}]: {error}") from None
    return tuple(hooks)


def _extension(value: Any) -> dict[str, Any]:
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"packbench: {error}") from None
    # of a repeated key the last one counts
    return _packbench_of(text)


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("test_suite", "agent_decision", "expected", "llm_backend"), _variant),
    "hook_decisions": _hooks,
    "packbench": _extension,
}
