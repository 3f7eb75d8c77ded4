"""Where cases stand: files of one and files of many, found by names and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.cases.files import (
    CaseIndex,
    CaseLine,
    case_lines,
    case_name,
    count_cases,
    find_case,
    format_location,
    iter_cases,
    load_case,
    read_id,
    split_location,
)
from pytest_packbench.cases.load import parse_case
from pytest_packbench.model.case import CASE_ID_LENGTH, Case
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.run import Shard, shard_of
from pytest_packbench.packs.generic.model import GenericCase
from tests.doc_blocks import ROOT, blocks

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)
texts = st.text(st.sampled_from('ab"\\{}[]:, \nidé\u2028\U0001f600'), max_size=12) | ids.map(
    lambda one: f'"id": "{one}"'
)
keys = st.sampled_from(["a", "id ", "Id", "input", 'x"id', "\\id", "notes", "ids"]) | texts.filter(
    lambda one: one != "id"
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.just("id"), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def written_object(draw: st.DrawFn, own: st.SearchStrategy[Any]) -> tuple[Any, bytes]:
    """An object with an id somewhere among its keys, written in one of the ways JSON allows."""
    before = draw(st.dictionaries(keys, values, max_size=3))
    after = draw(st.dictionaries(keys, values, max_size=3))
    case_id = draw(own)
    data = {**before, "id": case_id, **{key: value for key, value in after.items() if key not in before}}
    text = json.dumps(
        data,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")])),
    )
    if draw(st.booleans()):
        text = text.replace('"id"', '"\\u0069d"')
    if draw(st.booleans()) and isinstance(case_id, str) and case_id.isascii():
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in case_id)
        text = text.replace(json.dumps(case_id), f'"{escaped}"')
    return case_id, draw(st.sampled_from([b"", b"\xef\xbb\xbf", b" \t"])) + text.encode()


@given(written_object(ids))
def test_a_line_is_known_by_the_id_that_parsing_gives(line: tuple[str, bytes]) -> None:
    case_id, raw = line
    assert read_id(raw) == json.loads(raw.decode("utf-8-sig"))["id"] == case_id
    assert read_id(raw + b"\r\n") == case_id


@given(written_object(values))
def test_an_id_that_no_case_may_have_is_none(line: tuple[Any, bytes]) -> None:
    case_id, raw = line
    fits = isinstance(case_id, str) and case_id.isascii() and case_id.replace("_", "a").replace("-", "a").isalnum()
    assert read_id(raw) == (case_id if fits and case_id[0] not in "_-" else None)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'"id"',
        b'{"id": "a b"}',
        b'{"id": "a::b"}',
        b'{"id": 1}',
        b'{"id": null, "x": {"id": "a"}}',
        b'{"x": {"id": "a"}}',
        b'{"x": "\\"id\\": \\"a\\""}',
        b'{"id": "-a"}',
        b'{"id": "a\\n"}',
        b'{"id": "' + b"a" * (CASE_ID_LENGTH + 1) + b'"}',
        b'{"x": ' + b"[" * 100_000,
        b"\xff\xfe{\x00",
        b'{"x": {}, "id": "a"',
    ],
)
def test_a_line_without_an_id_of_a_case(raw: bytes) -> None:
    assert read_id(raw) is None


def test_a_broken_line_keeps_the_id_that_stands_in_it() -> None:
    assert read_id(b'{"pack_id": "toy", "n": -1.5e3, "f": false, "id": "a", "input": {') == "a"
    assert read_id(b'{"id": "' + b"a" * CASE_ID_LENGTH + b'", "x"') == "a" * CASE_ID_LENGTH


def case(case_id: str, **more: Any) -> dict[str, Any]:
    outline = {"pack_id": "toy", "case_type": "plain", "difficulty": "easy", "input": 1, "expected": 1}
    return {"id": case_id, **outline, **more}


def write_many(path: Path, *lines: object, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes(("\n".join(texts) + end).encode())
    return path


@given(st.lists(ids, unique=True, max_size=8), st.data())
def test_the_place_of_each_case_holds_that_case(
    tmp_path_factory: pytest.TempPathFactory, case_ids: list[str], data: st.DataObject
) -> None:
    spaced = [
        line
        for one in case_ids
        for line in [*data.draw(st.lists(st.sampled_from(["", "  ", "\r"]), max_size=2)), case(one)]
    ]
    path = write_many(
        tmp_path_factory.mktemp("lines") / "all.jsonl", *spaced, end=data.draw(st.sampled_from(["", "\n"]))
    )
    assert [place.name for place in iter_cases(path.parent)] == case_ids
    assert count_cases(path.parent) == len(case_ids)
    lines = path.read_bytes().split(b"\n")
    for one in case_ids:
        place = find_case(str(path), one)
        assert place is not None
        assert load_case(place, Case, file="all.jsonl", pack="toy").case.id == one
        assert json.loads(lines[place.line - 1])["id"] == one


def test_blank_lines_a_byte_order_mark_and_no_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n\n" + b'{"id": "a"}\r\n' + b"   \n" + b'{"id": "b"}')
    assert [(line.number, case_name(str(path), line)) for line in case_lines(path)] == [(3, "a"), (5, "b")]
    path.write_bytes(b'\xef\xbb\xbf{"id": "a"}')
    assert [case_name(str(path), line) for line in case_lines(path)] == ["a"]


def test_both_kinds_are_walked_in_order_and_found_by_name(tmp_path: Path) -> None:
    write_many(tmp_path / "one" / "a.json", case("a"))
    write_many(tmp_path / "one" / "all.jsonl", case("b"), "{", case("b"), {"id": 3})
    write_many(tmp_path / "top.jsonl", case("c"))
    write_many(tmp_path / "one" / "notes.txt", "no case")
    walked = [(Path(place.path).name, place.name, place.line) for place in iter_cases(tmp_path)]
    assert walked == [
        ("top.jsonl", "c", 1),
        ("a.json", "a", 0),
        ("all.jsonl", "b", 1),
        ("all.jsonl", "all.line-2", 2),
        ("all.jsonl", "all.line-3", 3),
        ("all.jsonl", "all.line-4", 4),
    ]
    index = CaseIndex(tmp_path)
    assert len([*index]) == count_cases(tmp_path) == 6
    assert [index.find(name) for name in index] == list(iter_cases(tmp_path))
    assert index.find("nobody") is None
    assert find_case(str(tmp_path / "one" / "gone.jsonl"), "a") is None
    assert find_case(str(tmp_path / "one" / "gone.json"), "gone") is None


def test_a_file_changed_since_is_looked_through_again(tmp_path: Path) -> None:
    path = write_many(tmp_path / "all.jsonl", case("a"))
    assert find_case(str(path), "b") is None
    write_many(path, case("longer"), case("b"))
    found = find_case(str(path), "b")
    assert found is not None
    assert found.line == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["", '{"id": "a" 7'], "f.jsonl:2: column 12: not JSON: "),
        ([case("a", id=7)], "f.jsonl:1: /id: got 7; expected a string"),
        ([case("a"), case("b", inputs=1)], 'f.jsonl:2: /inputs: unknown key "inputs"; did you mean "input"?'),
        ([case("a", pack_id="tox")], 'f.jsonl:1: /pack_id: got "tox"; expected "toy", the pack of this suite'),
        ([case("a"), case("a")], 'f.jsonl:2: /id: duplicate id "a", also in f.jsonl:1; use a unique id'),
        (['{"id": "a", "id": "b"}'], 'f.jsonl:1: duplicate key "id" in one object; keep one'),
        (["[1]"], "f.jsonl:1: got [1]; expected an object"),
    ],
)
def test_what_is_wrong_with_a_line_names_file_line_and_pointer(tmp_path: Path, lines: list[Any], said: str) -> None:
    path = write_many(tmp_path / "f.jsonl", *lines)
    *_, last = iter_cases(tmp_path)
    with pytest.raises(CaseError) as caught:
        load_case(last, Case, file=path.name, pack="toy")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_counts_as_one_case(tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (place,) = iter_cases(tmp_path)
    assert place.name == "gone"
    assert count_cases(tmp_path) == 1
    with pytest.raises(CaseError, match=r"gone\.jsonl: cannot be read: "):
        load_case(place, Case, file="gone.jsonl", pack=None)


def test_hidden_folders_hold_no_cases(tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "build"):
        write_many(tmp_path / "cases" / name / f"in{name}.json", case("a"))
    assert [place.name for place in iter_cases(tmp_path / "cases")] == ["inbuild"]


def test_links_to_folders_are_followed_out_of_the_folder_and_once(tmp_path: Path) -> None:
    cases, outside = tmp_path / "suite" / "cases", tmp_path / "outside"
    for path in (cases / "own" / "a.json", outside / "b.json", outside / "sub" / "c.json"):
        write_many(path, case(path.stem))
    links = {
        "again": outside,
        "beyond": outside / "sub",
        "far": outside,
        "inside": cases / "own",
        "over": tmp_path,
        "self": cases,
    }
    for name, goal in links.items():
        (cases / name).symlink_to(goal)
    (outside / "sub" / "back").symlink_to(outside)
    (outside / "sub" / "home").symlink_to(cases)
    (outside / "loop").symlink_to(outside / "loop")
    walked = [Path(place.path).relative_to(cases).as_posix() for place in iter_cases(cases)]
    assert walked == ["again/b.json", "beyond/c.json", "own/a.json"]
    assert count_cases(cases) == 3


@given(st.sampled_from(["a/b.jsonl", "a.json", "bundled:toy/cases/x.jsonl", "7.json"]), st.integers(0, 10**6))
def test_a_located_place_comes_apart_again(file: str, line: int) -> None:
    if file.endswith(".jsonl"):
        assert split_location(format_location(file, line)) == (file, line)
    assert split_location(file) == (file, 0)


def test_the_guide_shows_a_case() -> None:
    (block,) = (block for block in blocks(ROOT / "docs" / "cases.md") if block.kind == "json")
    assert block.file is not None
    raw, stem = block.text.encode(), Path(block.file).stem
    shown = parse_case(raw, GenericCase, source=block.file, stem=stem, pack="generic").case
    assert Path(block.file).parent.name == shown.case_type


@given(st.lists(ids, unique=True), st.integers(1, 12))
def test_each_case_is_in_one_shard_and_stays_there(case_ids: list[str], count: int) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert all(sum(one in shard for shard in shards) == 1 for one in case_ids)


def test_shards_are_known_numbers_of_about_one_size() -> None:
    # what a case's shard is may not change between versions: machines of different ones share a suite
    # the first eight bytes of sha256sum, modulo
    assert [shard_of(f"case_{number}", 5) for number in range(10)] == KNOWN
    sizes = [sum(f"case_{number}" in Shard(one, 10) for number in range(10_000)) for one in range(1, 11)]
    assert min(sizes) > 900
    assert max(sizes) < 1100


KNOWN = [3, 5, 5, 3, 2, 5, 5, 3, 3, 4]


@given(st.integers(1, 10**8), st.integers(1, 10**8))
def test_a_shard_is_read_as_it_is_written(number: int, count: int) -> None:
    if number <= count:
        assert Shard.parse(str(Shard(number, count))) == Shard(number, count)
    else:
        with pytest.raises(ValueError, match="expected I/N with I from 1 to N"):
            Shard.parse(f"{number}/{count}")


@pytest.mark.parametrize("text", ["", "x", "0/3", "2/0", "4/3", "1/3 ", "+1/3", "1/3/5", "\u0661/\u0663", "1", "01/3"])
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected I/N"):
        Shard.parse(text)


def test_a_shard_is_counted_without_parsing(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(30)]
    write_many(tmp_path / "all.jsonl", *(case(name) for name in names[:20]))
    for name in names[20:]:
        write_many(tmp_path / "plain" / f"{name}.json", "not read")
    for number in (1, 2, 3):
        shard = Shard(number, 3)
        assert count_cases(tmp_path, shard) == sum(name in shard for name in names)
    assert case_name("many.jsonl", CaseLine(17, 0, b"{")) == "many.line-17"
