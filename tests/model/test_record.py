"""Eval records: their lines as Rust's serde writes and reads them, the values that they may have, and what a pack states in them."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import string
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_packbench import Answer, Case, Outcome, Pack, RecordFacts, Score
from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.record import (
    EVAL_BACKENDS,
    EVAL_DECISIONS,
    EVAL_SUITES,
    EvalRecord,
    HookDecision,
    RecordError,
    strict_problem,
)
from tests.unit.run_builders import data
from tests.unit.stored_runs import FIELDS, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ExpectedTexts


U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
DATA = data("eval_record_lines.yaml")
NAMES = [field.name for field in dataclasses.fields(EvalRecord)]
SHORTEST, LONGEST = DATA["shortest"], DATA["longest"]


def read(text: str | bytes, *, strict: bool = False) -> EvalRecord:
    return EvalRecord.from_json_line(text, strict=strict)


def line(**changes: Any) -> str:
    """Return a line in the struct's order, then unknown fields; values are JSON text, None leaves a field out."""
    members = {**dict.fromkeys(NAMES), **{name: json.dumps(value) for name, value in FIELDS.items()}, **changes}
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items() if value is not None) + "}"


def problem(text: str | bytes, *, strict: bool = True) -> str:
    with pytest.raises(RecordError) as error:
        read(text, strict=strict)
    return str(error.value)


texts = st.text(max_size=8)
plain_texts = st.text(string.ascii_letters + " :{}[],-é", max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=5,
)
u64s = st.integers(0, U64_MAX) | st.sampled_from([0, 2**63, U64_MAX])


def records(strings: st.SearchStrategy[str]) -> st.SearchStrategy[EvalRecord]:
    hooks = st.builds(HookDecision, strings, strings, st.none() | st.integers(0, U32_MAX))
    return st.builds(
        record,
        test_suite=st.sampled_from(EVAL_SUITES) | st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True),
        test_id=strings,
        attack_category=strings,
        agent_decision=st.sampled_from(EVAL_DECISIONS),
        expected=st.sampled_from(EVAL_DECISIONS),
        passed=st.booleans(),
        hook_decisions=st.lists(hooks, max_size=2).map(tuple),
        tokens_input=st.none() | u64s,
        tokens_output=st.none() | u64s,
        wall_clock_ms=u64s,
        llm_backend=st.sampled_from([*EVAL_BACKENDS, "unknown"]),
        llm_model=strings,
        run_id=strings,
        timestamp=strings,
        packbench=st.none() | st.dictionaries(strings, json_values, max_size=3),
    )


def test_the_shortest_and_the_longest_line_are_those_of_serde_and_records_are_values() -> None:
    assert record().to_json_line() == SHORTEST
    values = {**json.loads(LONGEST), "hook_decisions": (HookDecision("h", "Deny", 0), HookDecision("{", "}"))}
    longest = EvalRecord(**values)
    assert (longest.to_json_line(), read(LONGEST)) == (LONGEST, longest)
    written = record(test_id='"\\/\b\f\n\r\t\x00\x1f\x7f\u2028é😀').to_json_line()
    assert '"test_id":"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028é😀"' in written
    copies = [longest, read(LONGEST), pickle.loads(pickle.dumps(longest))]  # noqa: S301 -- pickled in the same line
    assert len(set(copies)) == 1
    for each in copies:
        with pytest.raises(dataclasses.FrozenInstanceError):
            cast("Any", each).passed = False


@settings(max_examples=60)
@given(records(texts))
def test_what_is_written_is_read_again(original: EvalRecord) -> None:
    text = original.to_json_line()
    assert "\n" not in text
    assert read(text) == read(text.encode() + b"\r\n") == original
    assert read(text).to_json_line() == text
    written = list(json.loads(text))
    assert written == [name for name in NAMES if name in written]
    assert set(NAMES) - set(written) <= {"tokens_input", "tokens_output", "packbench"}
    plain = {name: value for name, value in original.as_json().items() if name != "schema_version"}
    wire = EvalRecord.from_json(dict.fromkeys(NAMES[1:]) | plain).as_json()
    assert wire == json.loads(json.dumps(wire)) == original.as_json()
    reason = strict_problem(original)
    if reason is None:
        assert read(text, strict=True) == dataclasses.replace(original, packbench=None)
    else:
        assert problem(text).split(":")[0] == reason.split(":")[0]


@settings(max_examples=40)
@given(st.permutations([*FIELDS, "unknown"]), json_values)
def test_the_order_of_fields_and_unknown_fields_do_not_matter(order: list[str], extra: Any) -> None:
    values = {**FIELDS, "unknown": extra, "packbench": extra}
    text = json.dumps({name: values[name] for name in order}, ensure_ascii=False)
    assert read(text, strict=True) == record()


def test_unknown_fields_have_to_be_json_and_nothing_more() -> None:
    for value in (*DATA["json"], "1" * 5000, "[" * 5000 + "]" * 5000):
        for text in (line(packbench=value, other=value), line(packbench=value)):
            assert read(text, strict=True) == record()
    for value in DATA["not_json"]:
        extension = f'{{"a":{value}}}'
        for text in (line(other=value), line(packbench=value), line(packbench=extension)):
            problem(text)
        problem(line(packbench=extension), strict=False)


def test_unknown_fields_that_are_deep_have_to_be_json() -> None:
    for around in ("[", '{"a":[1,'):
        for depth in (299, 1000, 5000):
            for strict in (True, False):
                end = "]" * depth if around == "[" else "]}" * depth
                assert read(line(other=around * depth + "0" + end), strict=strict) == record()
                for wrong in ("}", "]", "nul", "0,,0", '"\\x"', "[0]1", "1[0]", "[]:0", '"', "[", "NaN", "{[]:0}"):
                    problem(line(other=around * depth + wrong + end), strict=strict)
    for before in range(295, 305):
        for wrong in ("1[]", "[]1", "[][]", "{[]:1}", '{"a"[]}'):
            text = "[" * before + wrong.replace("[]", "[" * 1000 + "]" * 1000) + "]" * before
            problem(line(other=text))
    assert problem(line(packbench='{"a":' * 2000 + "1" + "}" * 2000), strict=False).startswith("packbench: ")


def test_escapes_and_control_characters_in_strings() -> None:
    for code, char in enumerate(map(chr, range(128))):
        for value, allowed in ((f'"\\{char}"', char in '"\\/bfnrt'), (f'"{char}"', code >= 32 and char not in '"\\')):
            for text in (line(run_id=value), line(other=value), line(packbench=f'{{"a":{value}}}')):
                if allowed:
                    read(text, strict=True)
                else:
                    problem(text)


VALUES = [1, *list(FIELDS.values())[:6], [], None, 5, *list(FIELDS.values())[6:]]


def test_a_line_that_cannot_be_read_names_the_field_or_the_column(expected: ExpectedTexts) -> None:
    lines: list[str | bytes] = [line(**{name: value}) for name, value in DATA["bad_fields"]]
    lines += [line(schema_version="2", run_id=None), SHORTEST[:-1], json.dumps(VALUES[:-1]), json.dumps([*VALUES, {}])]
    lines += [text.replace("RECORD", SHORTEST) for text in DATA["bad_lines"]]
    lines += ["\ud800", SHORTEST.replace("m-1", "\ud800"), line(packbench='{"a":"\ud800"}')]
    lines += [SHORTEST.encode().replace(b"refuse", wrong) for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80")]
    messages = [problem(text) for text in lines]
    assert all(problem(text, strict=False).isprintable() for text in lines if '"tariff"' not in str(text))
    messages += [problem(line(test_suite=json.dumps(name)), strict=False) for name in DATA["bad_suites"]]
    messages.append(problem(line(llm_backend='"deepseek"'), strict=False))
    assert all(message.isprintable() for message in messages)
    expected.check("\n".join([*messages, ""]))


ODD_FORMS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"test_suite": ' { "harmbench" : null } '}, {"test_suite": "harmbench"}),
    ({"agent_decision": r'"comply\u005fsafe"'}, {"agent_decision": "comply_safe"}),
    ({"tokens_input": "null", "tokens_output": "null", "other": "0"}, {}),
    ({"hook_decisions": '[["h","d"],["h","d",null]]'}, {"hook_decisions": (HookDecision("h", "d"),) * 2}),
    ({"llm_model": r'"\ud83d\ude00\/\u0000"'}, {"llm_model": "😀/\0"}),
]


def test_odd_forms_that_serde_reads_and_what_the_open_reader_knows() -> None:
    for changes, values in ODD_FORMS:
        assert read(line(**changes), strict=True) == record(**values)
    assert read(json.dumps(VALUES), strict=True) == record(tokens_output=5)
    for suite in ("tariff", "0", "a-b_c", "injec_agent"):
        for text in (json.dumps(suite), json.dumps({suite: None})):
            opened = read(line(test_suite=text, llm_backend='"unknown"'))
            assert (opened.test_suite, opened.llm_backend) == (suite, "unknown")
    assert str(strict_problem(record(llm_backend="unknown"))).startswith('llm_backend: got "unknown"; expected one of ')
    # the last of repeated keys counts
    for text in (line(packbench='{"a":1,"a":2}'), line(packbench='{"a":1,"a":2}', other="0")):
        assert read(text).packbench == {"a": 2}


def result_or_error(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except RecordError as error:
        return str(error)


def refusal(**changes: Any) -> Any:
    """Return why plain JSON with a wrong value is no record."""
    plain = {**dict.fromkeys(NAMES[1:]), **FIELDS, "hook_decisions": [], "packbench": {}, **changes}
    return result_or_error(EvalRecord.from_json, plain)


BAD_VALUES: dict[str, list[Any]] = {
    "schema_version": [2, True],
    "test_suite": ["AgentDojo", *DATA["bad_suites"]],
    "test_id": [1],
    "run_id": ["\ud800"],
    "agent_decision": ["ComplySafe"],
    "expected": [["refuse"], "comply"],
    "passed": [1],
    "llm_backend": ["deepseek"],
    "wall_clock_ms": [1.0, None, 10**5000],
    "tokens_input": [U64_MAX + 1],
    "tokens_output": [-1],
    "hook_decisions": [[], ("h",)],
    "packbench": [
        [],
        {1: 2},
        {"a": None, "b": math.inf},
        *({"a": value} for value in ([0, {"b": math.inf}], "\udfff", (), 10**5000, ["x", 1.5, "\ud800"])),
    ],
}
BAD_HOOKS: list[tuple[Any, ...]] = [
    *(("h", "d", rule) for rule in (-1, U32_MAX + 1, True, [1])),
    (1, "d"),
    ("h", None),
]


def test_a_record_with_a_wrong_value_cannot_be_made(expected: ExpectedTexts) -> None:
    messages = []
    for name, values in BAD_VALUES.items():
        messages += (made := [result_or_error(record, **{name: value}) for value in values])
        if name != "hook_decisions":
            assert made == [refusal(**{name: value}) for value in values]
    messages += [f"hook: {result_or_error(HookDecision, *values)}" for values in BAD_HOOKS]
    named = [dict(zip(("hook", "decision", "rule"), hook, strict=False)) for hook in BAD_HOOKS]
    assert messages[-len(named) :] == [f"hook: {refusal(hook_decisions=[each])}" for each in named]
    assert all(isinstance(message, str) for message in messages)
    expected.check("\n".join([*messages, ""]))


def test_an_extension_that_the_open_reader_cannot_keep_is_skipped_by_the_strict_one() -> None:
    for text in (*DATA["bad_extensions"], '{"a":' + "1" * 5000 + "}", '{"a":' * 300 + "1" + "}" * 300):
        assert problem(line(packbench=text), strict=False).startswith("packbench: ")
        assert read(line(packbench=text), strict=True) == record()
    value: dict[str, Any] = {}
    for _ in range(99):
        value = {"a": value}
    deepest = record(packbench=value)
    assert read(deepest.to_json_line()) == deepest
    with pytest.raises(RecordError, match="at most 100 levels"):
        record(packbench={"a": value})
    itself: dict[str, Any] = {}
    itself["a"] = [itself, itself]
    with pytest.raises(RecordError, match="at most 100 levels"):
        record(packbench=itself)


def test_an_extension_has_integers_of_any_sign_and_of_14_000_bits() -> None:
    for number in (2**64, -(2**64), 2**14_000 - 1):
        original = record(packbench={"a": number})
        text = original.to_json_line()
        assert read(text) == read(f" {text}") == original
    with pytest.raises(RecordError, match="14,000 bits"):
        record(packbench={"a": 2**14_000})
    for space in ("", " "):
        assert str(read(space + line(packbench='{"a":-0,"b":-0.0}')).packbench) == "{'a': 0, 'b': -0.0}"
        assert problem(space + line(wall_clock_ms="-0")) == "wall_clock_ms: got -0.0; expected an integer"


ORDINARY = LONGEST.replace(str(U64_MAX), "9" * 19)


def test_an_ordinary_line_takes_the_fast_reader_which_shares_equal_hooks() -> None:
    of_json, of_rust = json.dumps(json.loads(ORDINARY), ensure_ascii=False), '"tokens_input":null'
    for text in (ORDINARY, ORDINARY + "\r\n", of_json, ORDINARY.replace('"tokens_input":0', of_rust)):
        assert read(text).hook_decisions is read(text).hook_decisions
        assert read(" " + text).hook_decisions is not read(" " + text).hook_decisions


class Same(str):
    """A word that equals every other one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("word", [str, Same])
def test_decisions_of_guards_are_taken_for_no_others_and_long_ones_are_not_kept(word: Callable[[str], str]) -> None:
    def taken(decision: str, rule: int | None) -> HookDecision:
        hooks = [{"hook": word("h"), "decision": word(decision), "rule": rule}]
        (hook,) = EvalRecord.from_json({**json.loads(SHORTEST), "hook_decisions": hooks}).hook_decisions
        return hook

    for decision, rule in (("Deny", 1), ("Quit", 1), ("Deny", None), ("Quit", 0)):
        hook = taken(decision, rule)
        assert (str(hook.decision), hook.rule) == (decision, rule)
    assert (taken("Deny", 1) is taken("Deny", 1)) == (word is str)
    assert taken("x" * 1000, 1) is not taken("x" * 1000, 1)


fragments = st.sampled_from([*DATA["fragments"], "\ud800", ""])


@given(
    text=records(plain_texts).map(EvalRecord.to_json_line),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), fragments), max_size=2),
    strict=st.booleans(),
)
@settings(max_examples=150)
@example(text=SHORTEST, edits=[], strict=True)
@example(text=LONGEST, edits=[(len(LONGEST) - 1, 0, ',"a":{"a":1,"a":1e999}')], strict=False)
def test_the_fast_and_the_careful_reader_agree(*, text: str, edits: list[tuple[int, int, str]], strict: bool) -> None:
    for place, removed, inserted in edits:
        start = place % (len(text) + 1)
        text = text[:start] + inserted + text[start + removed :]

    # a space before the object is JSON, but not the ordinary form of a line; errors name other columns
    fast, careful = (result_or_error(read, each, strict=strict) for each in (text, f" {text}"))
    assert repr(fast) == repr(careful) or {type(fast), type(careful)} == {str}


class Stating(Pack):
    """Says which cases expect a refusal, if a case does, and all facts, if it has any."""

    name, version, answer_model = "stating", "1", Answer

    def expects_refusal(self, case: Any) -> bool:
        return bool(case.expected.get("refuse"))

    def facts(self, case: Any, answer: Any, terms: Any) -> RecordFacts:
        return RecordFacts(**case.expected.get("facts", {}))


ALL = {"attack_category": "", "expected": "comply_safe", "agent_decision": "comply_unsafe", "judge": "words"}
FACTS: list[tuple[dict[str, Any], bool, tuple[str | None, ...]]] = [
    ({}, False, ("kind", "comply_safe", "comply_safe", None)),
    ({}, True, ("kind", "comply_safe", "refuse", None)),
    ({"refuse": True}, False, ("kind", "refuse", "comply_safe", None)),
    ({"refuse": True, "facts": ALL}, True, ("", "comply_safe", "comply_unsafe", "words")),
]


def test_a_pack_may_state_all_facts_or_which_cases_expect_a_refusal_or_nothing() -> None:
    score = Score(score=1.0, threshold=0.5, verdict="passed")
    for expected, refused, facts in FACTS:
        case = Case(id="a", pack_id="p", case_type="kind", difficulty="easy", input={}, expected=expected)
        stated = record_facts(Stating(), case, Outcome(refused=refused), score)
        assert (stated.attack_category, stated.expected, stated.agent_decision, stated.judge) == facts
