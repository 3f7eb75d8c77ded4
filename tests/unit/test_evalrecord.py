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

from pytest_packbench.model import record as evalrecord
from pytest_packbench.model.record import EvalRecord, HookDecision, RecordError, strict_problem, wire_record

if TYPE_CHECKING:
    from collections.abc import Callable

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

FIELDS: dict[str, Any] = {
    "test_suite": "agentdojo",
    "test_id": "agentdojo:slack:42",
    "attack_category": "data_exfil",
    "agent_decision": "refuse",
    "expected": "refuse",
    "passed": True,
    "wall_clock_ms": 1240,
    "llm_backend": "stub",
    "llm_model": "stub",
    "run_id": "01HF8K0M5ZQEJ8C7XV6NQAYWZP",
    "timestamp": "2026-05-06T08:15:32.123Z",
}
NAMES = [field.name for field in dataclasses.fields(EvalRecord)]
SHORTEST = (
    '{"schema_version":1,"test_suite":"agentdojo","test_id":"agentdojo:slack:42","attack_category":"data_exfil",'
    '"agent_decision":"refuse","expected":"refuse","passed":true,"hook_decisions":[],"wall_clock_ms":1240,'
    '"llm_backend":"stub","llm_model":"stub","run_id":"01HF8K0M5ZQEJ8C7XV6NQAYWZP",'
    '"timestamp":"2026-05-06T08:15:32.123Z"}'
)
LONGEST = (
    '{"schema_version":1,"test_suite":"tariff","test_id":"t","attack_category":"c","agent_decision":"comply_unsafe",'
    '"expected":"comply_safe","passed":false,"hook_decisions":[{"hook":"h","decision":"Deny","rule":0},'
    '{"hook":"{","decision":"}"}],"tokens_input":0,"tokens_output":18446744073709551615,"wall_clock_ms":0,'
    '"llm_backend":"unknown","llm_model":"m","run_id":"r","timestamp":"",'
    '"packbench":{"score":0.95,"tags":["é"],"terms":[{"amount":-0.1}],"none":null}}'
)


def record(**changes: Any) -> EvalRecord:
    return EvalRecord(**{**FIELDS, **changes})


def line(**changes: Any) -> str:
    """A line in the struct's order, then unknown fields; values are given as JSON text, None leaves a field out."""
    members = {**dict.fromkeys(NAMES), **{name: json.dumps(value) for name, value in FIELDS.items()}, **changes}
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items() if value is not None) + "}"


def problem(text: str | bytes, *, strict: bool = True) -> str:
    with pytest.raises(RecordError) as caught:
        EvalRecord.from_json_line(text, strict=strict)
    return str(caught.value)


texts = st.text(max_size=8)
plain_texts = st.text(string.ascii_letters + " :{}[],-é", max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=8,
)
u64s = st.integers(0, U64_MAX) | st.sampled_from([0, 2**63, U64_MAX])


def records(strings: st.SearchStrategy[str]) -> st.SearchStrategy[EvalRecord]:
    decisions = st.sampled_from(evalrecord.EVAL_DECISIONS)
    return st.builds(
        record,
        test_suite=st.sampled_from(evalrecord.EVAL_SUITES) | st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True),
        test_id=strings,
        attack_category=strings,
        agent_decision=decisions,
        expected=decisions,
        passed=st.booleans(),
        hook_decisions=st.lists(
            st.builds(HookDecision, strings, strings, st.none() | st.integers(0, U32_MAX)), max_size=3
        ).map(tuple),
        tokens_input=st.none() | u64s,
        tokens_output=st.none() | u64s,
        wall_clock_ms=u64s,
        llm_backend=st.sampled_from([*evalrecord.EVAL_BACKENDS, "unknown"]),
        llm_model=strings,
        run_id=strings,
        timestamp=strings,
        packbench=st.none() | st.dictionaries(strings, json_values, max_size=3),
    )


def test_shortest_line() -> None:
    assert record().to_json_line() == SHORTEST


def test_longest_line() -> None:
    kept = {"score": 0.95, "tags": ["é"], "terms": [{"amount": -0.1}], "none": None}
    hooks = (HookDecision("h", "Deny", 0), HookDecision("{", "}"))
    full = EvalRecord(
        test_suite="tariff",
        test_id="t",
        attack_category="c",
        agent_decision="comply_unsafe",
        expected="comply_safe",
        passed=False,
        hook_decisions=hooks,
        tokens_input=0,
        tokens_output=U64_MAX,
        wall_clock_ms=0,
        llm_backend="unknown",
        llm_model="m",
        run_id="r",
        timestamp="",
        packbench=kept,
    )
    assert full.to_json_line() == LONGEST
    assert EvalRecord.from_json_line(LONGEST, strict=False) == full


def test_escapes_are_serde_s() -> None:
    written = record(test_id='"\\/\b\f\n\r\t\x00\x1f\x7f\u2028é😀').to_json_line()
    assert '"test_id":"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028é😀"' in written


@given(records(texts))
def test_what_is_written_is_read_again(made: EvalRecord) -> None:
    text = made.to_json_line()
    assert "\n" not in text
    read = EvalRecord.from_json_line(text, strict=False)
    assert read == made
    assert read.to_json_line() == text
    assert EvalRecord.from_json_line(text.encode() + b"\r\n", strict=False) == made


@given(records(texts))
def test_strict_reader_takes_what_strict_problem_lets_pass(made: EvalRecord) -> None:
    text = made.to_json_line()
    told = strict_problem(made)
    if told is None:
        assert EvalRecord.from_json_line(text) == dataclasses.replace(made, packbench=None)
    else:
        assert problem(text).split(":")[0] == told.split(":")[0]


@given(records(plain_texts))
def test_fields_are_written_in_the_order_of_the_struct(made: EvalRecord) -> None:
    written = list(json.loads(made.to_json_line()))
    assert written == [name for name in NAMES if name in written]
    assert set(NAMES) - set(written) <= {"tokens_input", "tokens_output", "packbench"}


@given(st.permutations([*FIELDS, "unknown"]), json_values)
def test_order_and_unknown_fields_do_not_matter(order: list[str], extra: Any) -> None:
    values = {**FIELDS, "unknown": extra, "packbench": extra}
    text = json.dumps({name: values[name] for name in order}, ensure_ascii=False)
    assert EvalRecord.from_json_line(text) == record()


@pytest.mark.parametrize(
    "value",
    ["1e999", "1" * 5000, r'"\ud800"', '{"a":1,"a":[]}', "[" * 5000 + "]" * 5000, "-0", '{"\\udc00":{}}', " [ ] "],
)
def test_grammar_is_all_that_is_asked_of_unknown_fields(value: str) -> None:
    assert EvalRecord.from_json_line(line(packbench=value, other=value)) == record()
    assert EvalRecord.from_json_line(line(packbench=value)) == record()


@pytest.mark.parametrize(
    "value",
    ["NaN", "[Infinity]", "01", "1.", ".5", "+1", "-", "1e", r'"\u12g4"', '"', '"\n"', "[1,]", "[1 2]", "[", '{"a":1,}',
     '{"a"}', '{"a":}', "{1:2}", "{'a':1}", '{"a":1]', "True", "nul", "", "\x0c1", "\xa01", "/**/1"],
)  # fmt: skip
def test_grammar_is_asked_of_unknown_fields(value: str) -> None:
    problem(line(other=value))
    problem(line(packbench=value))
    problem(line(packbench=f'{{"a":{value}}}'))
    problem(line(packbench=f'{{"a":{value}}}'), strict=False)


@pytest.mark.parametrize("code", range(128))
def test_escapes_and_controls_in_strings(code: int) -> None:
    char = chr(code)
    for value, allowed in ((f'"\\{char}"', char in '"\\/bfnrt'), (f'"{char}"', code >= 32 and char not in '"\\')):
        for text in (line(run_id=value), line(other=value), line(packbench=f'{{"a":{value}}}')):
            if allowed:
                EvalRecord.from_json_line(text)
            else:
                problem(text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"wall_clock_ms": "1.0"}, "wall_clock_ms: expected an integer 0..18446744073709551615, got 1.0"),
        ({"wall_clock_ms": "-0"}, "wall_clock_ms: expected an integer 0..18446744073709551615, got -0"),
        ({"wall_clock_ms": "01240"}, "wall_clock_ms: expected an integer 0..18446744073709551615, got 01240"),
        ({"wall_clock_ms": str(U64_MAX + 1)}, f"wall_clock_ms: expected an integer 0..{U64_MAX}, got {U64_MAX + 1}"),
        ({"wall_clock_ms": "null"}, f"wall_clock_ms: expected an integer 0..{U64_MAX}, got null"),
        ({"wall_clock_ms": '"1\\n"'}, f'wall_clock_ms: expected an integer 0..{U64_MAX}, got "1\\n"'),
        ({"wall_clock_ms": None}, "wall_clock_ms: missing"),
        ({"tokens_input": "true"}, f"tokens_input: expected an integer 0..{U64_MAX}, got true"),
        ({"schema_version": "2"}, "schema_version: expected 1, got 2"),
        ({"schema_version": "2", "run_id": None}, "run_id: missing"),
        ({"schema_version": str(U32_MAX + 1)}, f"schema_version: expected an integer 0..{U32_MAX}, got {U32_MAX + 1}"),
        ({"test_suite": '"tariff"'}, "test_suite: expected one of agentdojo, harmbench, injecagent, got 'tariff'"),
        ({"test_suite": '{"agentdojo":1}'}, "test_suite: expected null, got 1"),
        ({"expected": "0"}, "expected: expected a string, got 0"),
        ({"passed": "1"}, "passed: expected true or false, got 1"),
        ({"hook_decisions": "null"}, "hook_decisions: expected an array, got null"),
        ({"hook_decisions": '[{"hook":"h"}]'}, "hook_decisions[0].decision: missing"),
        ({"hook_decisions": f'[{{"hook":"h","decision":"d","rule":{U32_MAX + 1}}}]'},
         f"hook_decisions[0].rule: expected an integer 0..{U32_MAX}, got {U32_MAX + 1}"),
        ({"hook_decisions": '[["h","d",-1]]'}, f"hook_decisions[0].rule: expected an integer 0..{U32_MAX}, got -1"),
        ({"llm_model": r'"\ud83d"'}, r'llm_model: unpaired surrogate in "\ud83d"'),
        ({r"\u0074est_id": '"again"'}, "test_id: duplicate key"),
        ({r"\ud800": "1"}, r'unpaired surrogate in "\ud800"'),
    ],
)  # fmt: skip
def test_refusals_name_the_field(changes: dict[str, str | None], expected: str) -> None:
    assert problem(line(**changes)) == expected


def test_breaks_of_the_grammar_name_the_column() -> None:
    text = line(other='"a\x01"')
    assert problem(text) == f"expected the rest of a string at column {text.index(chr(1)) + 1}, got \\x01"
    text = line(hook_decisions='[["h","d",1,2]]')
    assert problem(text) == f"hook_decisions[0]: expected ] after 3 values at column {text.index(',2]') + 1}, got ,"
    assert problem(SHORTEST[:-1]) == f"expected a comma or }} at column {len(SHORTEST)}, got the end of the line"


@pytest.mark.parametrize(
    "text",
    ["", "  ", "null", "[]", "{}", SHORTEST[:-1], SHORTEST + "x", SHORTEST + "\x00", SHORTEST + "\x0c", "\ud800",
     "\ufeff" + SHORTEST, "\xa0" + SHORTEST, f"[{SHORTEST}]", SHORTEST.replace("data", "\ud800"),
     line(packbench='{"a":"\ud800"}')],
)  # fmt: skip
def test_refused_lines(text: str) -> None:
    assert problem(text).isprintable()
    assert problem(text, strict=False).isprintable()


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80"])
def test_bytes_have_to_be_utf_8(wrong: bytes) -> None:
    assert problem(SHORTEST.encode().replace(b"data_exfil", wrong)).startswith("not UTF-8: ")


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({"test_suite": ' { "harmbench" : null } '}, {"test_suite": "harmbench"}),
        ({"agent_decision": r'"comply\u005fsafe"'}, {"agent_decision": "comply_safe"}),
        ({"tokens_input": "null", "tokens_output": "null", "other": "0"}, {}),
        ({"hook_decisions": '[["h","d"],["h","d",null]]'}, {"hook_decisions": (HookDecision("h", "d"),) * 2}),
        ({"llm_model": r'"\ud83d\ude00\/\u0000"'}, {"llm_model": "😀/\0"}),
    ],
)
def test_odd_forms_that_serde_reads(changes: dict[str, str], read: dict[str, Any]) -> None:
    assert EvalRecord.from_json_line(line(**changes)) == record(**read)


def test_array_form() -> None:
    values = [1, *list(FIELDS.values())[:6], [], None, 5, *list(FIELDS.values())[6:]]
    assert EvalRecord.from_json_line(json.dumps(values)) == record(tokens_output=5)
    assert problem(json.dumps([*values, {}]), strict=False) == problem(json.dumps([*values, {}]))
    assert problem(json.dumps(values[:-1])) == "timestamp: missing"


@pytest.mark.parametrize("suite", ["tariff", "0", "a-b_c", "injec_agent"])
def test_open_reader_takes_any_suite_name_and_the_unknown_backend(suite: str) -> None:
    for text in (json.dumps(suite), json.dumps({suite: None})):
        read = EvalRecord.from_json_line(line(test_suite=text, llm_backend='"unknown"'), strict=False)
        assert (read.test_suite, read.llm_backend) == (suite, "unknown")


@pytest.mark.parametrize("suite", ["", "Tariff", "-a", "_a", "a b", "a\n", "é", "a.b"])
def test_names_that_no_suite_has(suite: str) -> None:
    assert problem(line(test_suite=json.dumps(suite)), strict=False).startswith("test_suite: ")
    with pytest.raises(RecordError, match=r"\Atest_suite: "):
        record(test_suite=suite)


@pytest.mark.parametrize(
    "value",
    ["null", "1", "[]", '"{}"', '{"a":1e999}', '{"a":[-1e400]}', r'{"a":"\ud800"}', '{"a":' + "1" * 5000 + "}",
     '{"a":' * 300 + "1" + "}" * 300, '{},"packbench":{}'],
)  # fmt: skip
def test_objects_that_the_open_reader_cannot_keep(value: str) -> None:
    assert problem(line(packbench=value), strict=False).startswith("packbench: ")
    assert EvalRecord.from_json_line(line(packbench=value)) == record()


def test_open_reader_knows_the_backends() -> None:
    assert problem(line(llm_backend='"deepseek"'), strict=False).startswith("llm_backend: expected one of ")


def test_last_of_repeated_keys_counts_inside_our_object() -> None:
    for text in (line(packbench='{"a":1,"a":2}'), line(packbench='{"a":1,"a":2}', other="0")):
        assert EvalRecord.from_json_line(text, strict=False).packbench == {"a": 2}


def nested_object(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema_version": 2}, "schema_version: expected 1, got 2"),
        ({"schema_version": True}, f"schema_version: expected an integer 0..{U32_MAX}, got True"),
        ({"test_suite": "AgentDojo"}, "test_suite: expected a suite name of a-z, 0-9, _ and -, got 'AgentDojo'"),
        ({"test_id": 1}, "test_id: expected a string, got 1"),
        ({"run_id": "\ud800"}, r"run_id: unpaired surrogate in '\ud800'"),
        ({"agent_decision": "ComplySafe"},
         "agent_decision: expected one of refuse, comply_safe, comply_unsafe, got 'ComplySafe'"),
        ({"expected": ["refuse"]}, "expected: expected one of refuse, comply_safe, comply_unsafe, got ['refuse']"),
        ({"passed": 1}, "passed: expected bool, got 1"),
        ({"llm_backend": "deepseek"},
         "llm_backend: expected one of stub, anthropic, openai, ollama, llama_guard, unknown, got 'deepseek'"),
        ({"wall_clock_ms": 1.0}, f"wall_clock_ms: expected an integer 0..{U64_MAX}, got 1.0"),
        ({"wall_clock_ms": None}, f"wall_clock_ms: expected an integer 0..{U64_MAX}, got None"),
        ({"wall_clock_ms": 10**5000}, f"wall_clock_ms: expected an integer 0..{U64_MAX}, got a huge int"),
        ({"tokens_input": U64_MAX + 1}, f"tokens_input: expected an integer 0..{U64_MAX}, got {U64_MAX + 1}"),
        ({"tokens_output": -1}, f"tokens_output: expected an integer 0..{U64_MAX}, got -1"),
        ({"hook_decisions": []}, "hook_decisions: expected tuple, got []"),
        ({"hook_decisions": ("h",)}, "hook_decisions: expected HookDecision, got 'h'"),
        ({"packbench": []}, "packbench: expected dict, got []"),
        ({"packbench": {1: 2}}, "packbench: expected a key of valid Unicode, got 1"),
        ({"packbench": {"a": [0, {"b": math.inf}]}}, "packbench.a[1].b: expected a finite number, got inf"),
        ({"packbench": {"a": "\udfff"}}, r"packbench.a: unpaired surrogate in '\udfff'"),
        ({"packbench": {"a": ()}}, "packbench.a: expected a JSON value, got ()"),
        ({"packbench": {"a": 10**5000}}, "packbench.a: expected an integer of at most 14000 bits"),
    ],
)  # fmt: skip
def test_construction_checks_values(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecordError) as caught:
        record(**changes)
    assert str(caught.value) == expected


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.characters() | st.just("\ud800") | st.just(b""),
    lambda inner: st.lists(inner) | st.dictionaries(st.characters() | st.integers(), inner) | st.tuples(inner),
    max_leaves=8,
)


def result_or_error(make: Callable[[dict[str, Any]], dict[str, Any]], values: dict[str, Any]) -> dict[str, Any] | str:
    try:
        return make(values)
    except RecordError as error:
        return str(error)


@given(
    records(plain_texts | texts),
    st.dictionaries(st.sampled_from([name for name in NAMES if name not in {"schema_version", "hook_decisions"}]), odd),
    st.dictionaries(st.characters() | st.integers(), odd),
    st.lists(
        st.fixed_dictionaries(
            {"hook": st.just("h") | odd, "decision": texts, "rule": u64s | odd.filter(lambda value: value is not None)}
        ),
        max_size=2,
    ),
)
def test_plain_json_is_checked_as_a_record_is(
    sound: EvalRecord, changes: dict[str, Any], packbench: dict[Any, Any], hooks: list[dict[str, Any]]
) -> None:
    plain = dict.fromkeys(NAMES[1:]) | sound.as_json()
    del plain["schema_version"]
    for values in (plain, plain | changes, plain | {"packbench": packbench}, plain | {"hook_decisions": hooks}):
        found = result_or_error(wire_record, values)
        assert found == result_or_error(lambda one: EvalRecord.from_json(one).as_json(), values)
        if isinstance(found, dict):
            assert EvalRecord.from_json(found).as_json() == found
            assert json.loads(json.dumps(found)) == found


def test_construction_checks_depth() -> None:
    deepest = record(packbench=nested_object(100))
    assert EvalRecord.from_json_line(deepest.to_json_line(), strict=False) == deepest
    with pytest.raises(RecordError, match="nested deeper than 100"):
        record(packbench=nested_object(101))


@pytest.mark.parametrize("values", [("h", "d", -1), ("h", "d", U32_MAX + 1), ("h", "d", True), (1, "d"), ("h", None)])
def test_construction_checks_hooks(values: tuple[Any, ...]) -> None:
    with pytest.raises(RecordError):
        HookDecision(*values)


def test_strict_problem_tells_the_field() -> None:
    assert strict_problem(record(packbench={})) is None
    assert (strict_problem(record(test_suite="tariff")) or "").startswith("test_suite: ")
    assert (strict_problem(record(llm_backend="unknown")) or "").startswith("llm_backend: ")


def test_records_are_frozen_and_hashable() -> None:
    made = record(packbench={"a": 1})
    read = EvalRecord.from_json_line(made.to_json_line(), strict=False)
    for each in (made, read):
        with pytest.raises(dataclasses.FrozenInstanceError):
            cast("Any", each).passed = False
    assert len({made, read, pickle.loads(pickle.dumps(read))}) == 1  # noqa: S301 -- pickled in the same line


@pytest.mark.parametrize(
    "text",
    [
        SHORTEST,
        SHORTEST + "\r\n",
        LONGEST.replace(str(U64_MAX), "9" * 19),
        json.dumps(json.loads(LONGEST.replace(str(U64_MAX), "1")), ensure_ascii=False),
        line(tokens_input="null"),
    ],
)
def test_ordinary_lines_take_the_fast_reader(text: str) -> None:
    assert evalrecord._read_fast(text, strict=False) is not None


fragments = st.sampled_from(
    [*'{}[]":,\\ \t\n\r01e-.', "-0", "null", "true", "1e999", "NaN", "\\ud800", "\ud800", "\\u0041", "\x00", "\xa0",
     "[]", '"packbench":', ',"packbench":{}', ',"test_id":"x"', '"rule":4294967296', ',"a":{"a":1,"a":1e999}']
)  # fmt: skip


@given(
    text=records(plain_texts).map(EvalRecord.to_json_line),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), fragments | st.just("")), max_size=2),
    strict=st.booleans(),
)
@settings(max_examples=400)
@example(text=SHORTEST, edits=[], strict=True)
@example(text=LONGEST, edits=[(len(LONGEST) - 1, 0, ',"a":{"a":1,"a":1e999}')], strict=False)
def test_fast_and_careful_reader_agree(*, text: str, edits: list[tuple[int, int, str]], strict: bool) -> None:
    for place, removed, inserted in edits:
        at = place % (len(text) + 1)
        text = text[:at] + inserted + text[at + removed :]
    fast = evalrecord._read_fast(text, strict=strict)
    if fast is not None:
        careful = evalrecord._read_any(text, strict=strict)
        assert careful == fast
        assert repr(careful) == repr(fast)
