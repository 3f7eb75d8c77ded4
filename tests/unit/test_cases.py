"""Files of cases and suite rules: how they are found and read; every mistake is one line with its location."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import field_validator

from pytest_packbench import testing
from pytest_packbench.cases.finder import (
    CaseIndex,
    case_counts,
    find_case,
    format_location,
    is_line_name,
    iter_cases,
    read_id,
    split_location,
)
from pytest_packbench.cases.load import (
    JsonError,
    case_file_sha256,
    check_case,
    load_case,
    parse_case,
    parse_cassette,
    parse_json,
    read_config,
    scoring_sha256,
)
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import CASE_ID_LENGTH, Case, LoadedCase
from pytest_packbench.model.errors import CaseError, CassetteError, SuiteError, json_pointer
from pytest_packbench.model.run import Shard, shard_of
from pytest_packbench.model.suite import Suite, SuiteConfig
from pytest_packbench.packs.generic.suite import GenericCase
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from tests.cassettes import authored_cassette
from tests.doc_blocks import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ExpectedTexts

DATA = Path(__file__).parent / "data"
GOOD: dict[str, Any] = json.loads((DATA / "good_case.json").read_bytes())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def changed_case(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the good case with other values at JSON pointers."""
    case: dict[str, Any] = copy.deepcopy(GOOD)
    for pointer, value in changes.items():
        target: Any = case
        *parents, last = [int(step) if step.isdecimal() else step for step in pointer.split("/")[1:]]
        for step in parents:
            target = target[step]
        target[last] = value
        if value == "<removed>":
            del target[last]
    return case


def loaded(data: object) -> LoadedCase:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return parse_case(raw, TariffCase, source="c.json", stem="pos_64_shoe", pack="tariff")


def rules(folder: Path, text: str) -> SuiteConfig:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return read_config(folder, {"tariff": TariffSuiteConfig, "toy": SuiteConfig}, source="suite.yaml")


def case(**fields: Any) -> dict[str, Any]:
    return {**testing.case(), "pack_id": "toy", **fields}


def write_lines(path: Path, *lines: object, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes(("\n".join(texts) + end).encode())
    return path


class Fragile(Case):
    @field_validator("expected", mode="before")
    @classmethod
    def divide(cls, value: Any) -> Any:
        return 1 / value["n"]


def test_a_recording_has_as_many_tokens_as_a_record_can_have() -> None:
    for count, problem in ((2**64 - 1, ""), (2**64, "/exchanges/0/usage/tokens_output: ")):
        exchange = {"role": "judge", "answer": 1, "usage": {"tokens_output": count}}
        with pytest.raises(CassetteError, match=problem) if problem else nullcontext():
            parse_cassette(json.dumps(authored_cassette("a", 1, [exchange])).encode(), source="f")


def test_each_mistake_in_a_file_is_one_line_with_its_location(expected: ExpectedTexts, tmp_path: Path) -> None:
    def last_line(lines: list[Any]) -> object:
        write_lines(tmp_path / "f.jsonl", *(line if isinstance(line, str) else case(**line) for line in lines))
        *_, last = iter_cases(tmp_path)
        return load_case(last, Case, file="f.jsonl", pack="toy")

    def cassette(version: object) -> object:
        content = authored_cassette("a", 1, [], cassette_version=version)
        path = write_lines(tmp_path / "a.json", content)
        return parse_cassette(path.read_bytes(), source="f")

    readers: dict[str, Callable[[Any], object]] = {
        "cases": lambda changes: loaded(changed_case(changes)),
        "cases of a suite": lambda changes: check_case(
            changed_case(changes),
            TariffSuiteConfig(pack="tariff").narrowed(TariffCase),
            source="c.json",
            stem=None,
            pack=None,
        ),
        "json": lambda text: loaded(text.encode("latin-1")),
        "rules": lambda text: rules(tmp_path, text),
        "lines": last_line,
        "cassettes": cassette,
        "fragile model": lambda data: check_case(data, Fragile, source="c.json", stem=None, pack=None),
    }
    inputs: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "case_mistakes.yaml").read_text("utf-8"))
    inputs["json"] |= {"a hundred thousand levels": "[" * 100_000, "thousands of digits": "1" * 5000}
    inputs["fragile model"] = {"exception of the model": {**GOOD, "expected": {"n": 0}}}
    messages = []
    for kind, rows in inputs.items():
        for name, value in rows.items():
            with pytest.raises((CaseError, SuiteError, CassetteError)) as caught:
                readers[kind](value)
            messages.append(f"{kind}, {name}: {caught.value}\n")
    expected.check("".join(messages))
    with pytest.raises(JsonError) as without_file:
        parse_json(b"[,]")
    assert str(without_file.value) == "line 1 column 2: not JSON: Expecting value; expected JSON"
    assert json_pointer(["a/b", "~1", 0]) == "/a~1b/~01/0"


def test_hashes_follow_the_meaning_of_a_case() -> None:
    same = b"\xef\xbb\xbf" + json.dumps({"$schema": "x.json", **GOOD}, indent=2).encode()
    other_tags = changed_case({"/notes/tags": []})
    other_input = changed_case({"/input/input": "other"})
    hashes = [(case.sha256, case.input_sha256) for case in map(loaded, (GOOD, same, other_tags, other_input))]
    assert hashes[0] == hashes[1]
    assert [len({row[column] for row in hashes}) for column in (0, 1)] == [3, 2]
    assert hashes[0][1] == hashes[2][1]


@given(json_values)
@example({"tuple[": None})
def test_a_hash_ignores_order_and_any_json_value_is_a_case_or_an_error_of_one_line(value: Any) -> None:
    def backwards(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: backwards(part[key]) for key in reversed(part)}
        return [backwards(item) for item in part] if isinstance(part, list) else part

    assert canonical_sha256(backwards(value)) == canonical_sha256(value)
    assert parse_json(json.dumps(value, indent=3).encode()) == value
    try:
        check_case(value, TariffCase, source="c", stem=None, pack=None)
    except CaseError as error:
        assert "\n" not in str(error)


TRIALS: dict[str, Any] = {"": "mean", "trials: mean": "mean", "trials: all": "all", "trials: any": "any"}
TRIALS |= {f"trials: {{at_least: {least}}}": {"at_least": least} for least in (1, 3)}


def test_rules_are_read_with_the_model_of_their_pack(tmp_path: Path) -> None:
    text = "{pack: tariff, allow_pass: both are sold, scored_code: baseline, scoring: {allowed: 0.85}, "
    text += "thresholds: {by_type: {adversarial: 0.9}}}"
    config = rules(tmp_path, text)
    assert isinstance(config, TariffSuiteConfig)
    assert (config.scored_code, config.scoring.allowed) == ("baseline", 0.85)
    assert config.thresholds.by_type == {"adversarial": 0.9}
    assert [gate.metric for gate in config.all_gates()] == ["completeness"]
    assert {text: rules(tmp_path, f"pack: tariff\n{text}").trials_rule() for text in TRIALS} == TRIALS


def test_only_a_rule_that_changes_verdicts_changes_the_hash(tmp_path: Path) -> None:
    def digests(*changes: dict[str, Any]) -> set[str]:
        return {scoring_sha256(SuiteConfig.model_validate({"pack": "toy", **each})) for each in changes}

    (plain,) = digests({"description": "other"}, {"gates": [{"metric": "pass_rate", "min": 0.5}]}, {"model": "m-1"}, {})
    others = digests({"pack": "other"}, {"thresholds": {"accept": 0.7}}, {"thresholds": {"by_type": {"a": 1}}})
    assert len({plain, *others}) == 4
    texts = ("", "scored_code: baseline", "trials: all")
    of_pack, baseline, trials = (scoring_sha256(rules(tmp_path, f"pack: tariff\n{text}")) for text in texts)
    assert (of_pack == baseline, of_pack == trials) == (False, True)
    # every key either changes verdicts or does not
    assert SuiteConfig.model_fields.keys() - SuiteConfig.not_scoring == {"pack", "thresholds", "unknown_keys"}
    assert SuiteConfig.model_fields.keys() >= SuiteConfig.not_scoring


ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)
texts = st.text(st.sampled_from('ab"\\{}[]:, \nidé\u2028\U0001f600'), max_size=12) | ids.map('"id": "{}"'.format)
keys = st.sampled_from(["a", "id ", "Id", "input", 'x"id', "\\id", "ids"]) | texts.filter(lambda text: text != "id")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.just("id"), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def objects_with_id(draw: st.DrawFn) -> tuple[Any, bytes]:
    """An id, and an object with this id among its keys, in one of the forms that JSON allows."""
    before, after = (draw(st.dictionaries(keys, values, max_size=2)) for _ in range(2))
    case_id = draw(ids | values)
    data = {**before, "id": case_id, **{key: value for key, value in after.items() if key not in before}}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")]))
    text = json.dumps(data, ensure_ascii=draw(st.booleans()), separators=separators)
    if draw(st.booleans()):
        text = text.replace('"id"', '"\\u0069d"')
    if draw(st.booleans()) and isinstance(case_id, str) and case_id.isascii():
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in case_id)
        text = text.replace(json.dumps(case_id), f'"{escaped}"')
    return case_id, draw(st.sampled_from([b"", b"\xef\xbb\xbf", b" \t"])) + text.encode()


@given(objects_with_id(), st.sampled_from([b"", b"\n", b"\r\n"]))
def test_a_line_has_the_id_that_parsing_finds_where_a_case_may_have_it(line: tuple[Any, bytes], end: bytes) -> None:
    case_id, raw = line
    is_valid = isinstance(case_id, str) and case_id.isascii() and case_id.replace("_", "a").replace("-", "a").isalnum()
    assert read_id(raw + end) == (case_id if is_valid and case_id[0] not in "_-" else None)


def test_a_broken_line_has_an_id_only_if_it_is_certain() -> None:
    lines = yaml.safe_load((DATA / "case_lines.yaml").read_text("utf-8"))
    for case_id, texts in lines.items():
        assert {text: read_id(text.encode("latin-1")) for text in texts} == dict.fromkeys(texts, case_id)
    for length, is_valid in ((CASE_ID_LENGTH, True), (CASE_ID_LENGTH + 1, False)):
        longest = "a" * length
        for start in ('{"id": "', '{"x": [], "id": "'):
            assert read_id(f'{start}{longest}"}}'.encode()) == (longest if is_valid else None)
    assert read_id(b'{"x": ' + b"[" * 100_000) is None


@given(st.lists(ids, unique=True, min_size=1, max_size=8), st.data())
def test_each_case_of_a_file_is_found_at_its_line(
    tmp_path_factory: pytest.TempPathFactory, case_ids: list[str], data: st.DataObject
) -> None:
    blanks = st.lists(st.sampled_from(["", "  ", "\r"]), max_size=2)
    lines = [line for case_id in case_ids for line in [*data.draw(blanks), case(id=case_id)]]
    end = data.draw(st.sampled_from(["", "\n"]))
    path = write_lines(tmp_path_factory.mktemp("lines") / "all.jsonl", *lines, end=end)
    assert [location.name for location in iter_cases(path.parent)] == case_ids
    for case_id in case_ids:
        location = find_case(str(path), case_id)
        assert location is not None
        loaded = load_case(location, Case, file="all.jsonl", pack="toy")
        assert (loaded.case.id, loaded.sha256) == (case_id, case_file_sha256(location))
        assert json.loads(path.read_bytes().split(b"\n")[location.line - 1])["id"] == case_id


def test_cases_are_listed_by_file_and_line_and_found_by_name(tmp_path: Path) -> None:
    write_lines(tmp_path / "one" / "a.json", case(id="a"))
    write_lines(tmp_path / "one" / "all.jsonl", case(id="b"), "{", case(id="b"), {"id": 3})
    (tmp_path / "top.jsonl").write_bytes(b'\xef\xbb\xbf\r\n\n{"id": "c"}\r\n   \n{"id": "d"}')
    (tmp_path / "top2.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "e"}')
    write_lines(tmp_path / "one" / "notes.txt", "no case")
    (tmp_path / "one" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    for hidden in (".git", "__pycache__"):
        write_lines(tmp_path / hidden / "hidden.json", case(id="hidden"))
    locations = list(iter_cases(tmp_path))
    # blank lines count as lines, a byte order mark is ignored, and a file that can't be read counts as one case
    expected = ["top.jsonl 3 c", "top.jsonl 5 d", "top2.jsonl 1 e", "a.json 0 a", "all.jsonl 1 b"]
    expected += [f"all.jsonl {number} all.line-{number}" for number in (2, 3, 4)] + ["gone.jsonl 0 gone"]
    assert [f"{Path(each.path).name} {each.line} {each.name}" for each in locations] == expected
    assert [is_line_name(location.name) for location in locations] == [False] * 5 + [True] * 3 + [False]
    index = CaseIndex(iter_cases(tmp_path))
    assert len([*index]) == 9
    assert [index.find(name) for name in index] == locations
    assert index.find("nobody") is None
    with pytest.raises(CaseError, match=r"gone\.jsonl: cannot be read: "):
        load_case(locations[-1], Case, file="gone.jsonl", pack=None)
    assert [case_file_sha256(location) is None for location in locations] == [False] * 5 + [True, False, False, True]
    # a file that changed is read again
    write_lines(tmp_path / "one" / "all.jsonl", "", case(id="new"))
    changed = find_case(str(tmp_path / "one" / "all.jsonl"), "new")
    assert changed is not None
    assert changed.line == 2
    for missing in ("missing.jsonl", "missing.json", "nul\0.json"):
        assert find_case(str(tmp_path / missing), "missing") is None
    assert split_location(format_location("a/b.jsonl", 7)) == ("a/b.jsonl", 7)
    for text in ("a/b.jsonl", "a.json", "7.json", "a/b.jsonl:x", "a.json:x"):
        assert split_location(text) == (text, 0)


def test_links_to_folders_outside_are_followed_once(tmp_path: Path) -> None:
    for name in ("cases/own/a", "outside/b", "outside/sub/c"):
        write_lines(tmp_path / f"{name}.json", case(id=name[-1]))
    links = "again outside, beyond outside/sub, far outside, inside cases/own, over ., self cases"
    in_outside = "sub/back outside, sub/home cases, loop outside/loop"
    for folder, pairs in (("cases", links), ("outside", in_outside)):
        for link, destination in map(str.split, pairs.split(", ")):
            (tmp_path / folder / link).symlink_to(tmp_path / destination)
    cases = tmp_path / "cases"
    visited = [Path(location.path).relative_to(cases).as_posix() for location in iter_cases(cases)]
    assert visited == ["again/b.json", "beyond/c.json", "own/a.json"]


def test_the_case_in_the_guide_is_valid() -> None:
    files = (block for block in blocks(ROOT / "docs" / "cases.md") if block.kind == "json" and block.file is not None)
    (block,) = (block for block in files if "/controls/" not in str(block.file))
    assert block.file is not None
    path = Path(block.file)
    shown = parse_case(block.text.encode(), GenericCase, source=block.file, stem=path.stem, pack="generic").case
    assert path.parent.name == shown.case_type


@given(st.lists(ids, unique=True, min_size=2, max_size=20), st.integers(1, 12))
def test_each_case_is_in_the_shard_that_its_hash_names_and_counted_without_parsing(
    tmp_path_factory: pytest.TempPathFactory, case_ids: list[str], count: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    suite = Suite(name="toy", path=folder, config=SuiteConfig.model_construct(pack="toy"), sha256="")
    write_lines(folder / "cases" / "all.jsonl", *(case(id=case_id) for case_id in case_ids[1:]))
    for case_id in case_ids[:1]:
        write_lines(folder / "cases" / "plain" / f"{case_id}.json", "not read")
    # machines with different versions share a suite: what a case's shard is may never change
    numbers = [int.from_bytes(sha256(case_id.encode()).digest()[:8]) % count + 1 for case_id in case_ids]
    assert [shard_of(case_id, count) for case_id in case_ids] == numbers
    for number in range(1, count + 1):
        shard = Shard(number, count)
        assert Shard.parse(str(shard)) == shard
        assert [case_id in shard for case_id in case_ids] == [each == number for each in numbers]
        assert case_counts(suite, shard) == (len(case_ids), numbers.count(number))


@pytest.mark.parametrize("text", ["", "x", "0/3", "2/0", "4/3", "1/3 ", "+1/3", "1/3/5", "\u0661/\u0663", "1", "01/3"])
def test_another_text_is_no_shard(text: str) -> None:
    with pytest.raises(ValueError, match="expected I/N with I from 1 to N"):
        Shard.parse(text)
