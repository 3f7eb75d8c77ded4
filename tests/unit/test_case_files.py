"""Where cases are: files of one case and of many, found by names and bytes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench import testing
from pytest_packbench.cases.files import (
    CaseIndex,
    CaseLine,
    case_file_sha256,
    case_lines,
    case_name,
    count_cases,
    find_case,
    format_location,
    is_line_name,
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
    lines = yaml.safe_load((Path(__file__).parent / "data" / "case_lines.yaml").read_text("utf-8"))
    for case_id, texts in lines.items():
        assert {text: read_id(text.encode("latin-1")) for text in texts} == dict.fromkeys(texts, case_id)
    for length, is_valid in ((CASE_ID_LENGTH, True), (CASE_ID_LENGTH + 1, False)):
        longest = "a" * length
        for start in ('{"id": "', '{"x": [], "id": "'):
            assert read_id(f'{start}{longest}"}}'.encode()) == (longest if is_valid else None)
    assert read_id(b'{"x": ' + b"[" * 100_000) is None


def case(case_id: str, **fields: Any) -> dict[str, Any]:
    return testing.case(case_id, **{"pack_id": "toy", **fields})


def write_lines(path: Path, *lines: object, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes(("\n".join(texts) + end).encode())
    return path


@given(st.lists(ids, unique=True, max_size=8), st.data())
def test_each_case_of_a_file_is_found_at_its_line(
    tmp_path_factory: pytest.TempPathFactory, case_ids: list[str], data: st.DataObject
) -> None:
    blanks = st.lists(st.sampled_from(["", "  ", "\r"]), max_size=2)
    lines = [line for case_id in case_ids for line in [*data.draw(blanks), case(case_id)]]
    end = data.draw(st.sampled_from(["", "\n"]))
    path = write_lines(tmp_path_factory.mktemp("lines") / "all.jsonl", *lines, end=end)
    assert [location.name for location in iter_cases(path.parent)] == case_ids
    assert count_cases(path.parent) == len(case_ids)
    for case_id in case_ids:
        location = find_case(str(path), case_id)
        assert location is not None
        loaded = load_case(location, Case, file="all.jsonl", pack="toy")
        assert (loaded.case.id, loaded.sha256) == (case_id, case_file_sha256(location))
        assert json.loads(path.read_bytes().split(b"\n")[location.line - 1])["id"] == case_id


def test_blank_lines_count_as_lines_and_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n\n" + b'{"id": "a"}\r\n' + b"   \n" + b'{"id": "b"}')
    assert [(line.number, case_name(str(path), line)) for line in case_lines(path)] == [(3, "a"), (5, "b")]
    path.write_bytes(b'\xef\xbb\xbf{"id": "a"}')
    assert [case_name(str(path), line) for line in case_lines(path)] == ["a"]


def test_cases_are_listed_by_file_and_line_and_found_by_name(tmp_path: Path) -> None:
    write_lines(tmp_path / "one" / "a.json", case("a"))
    write_lines(tmp_path / "one" / "all.jsonl", case("b"), "{", case("b"), {"id": 3})
    write_lines(tmp_path / "top.jsonl", case("c"))
    write_lines(tmp_path / "one" / "notes.txt", "no case")
    (tmp_path / "one" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    for hidden in (".git", "__pycache__"):
        write_lines(tmp_path / hidden / "hidden.json", case("hidden"))
    locations = list(iter_cases(tmp_path))
    assert [(Path(location.path).name, location.name, location.line) for location in locations] == [
        ("top.jsonl", "c", 1),
        ("a.json", "a", 0),
        ("all.jsonl", "b", 1),
        ("all.jsonl", "all.line-2", 2),
        ("all.jsonl", "all.line-3", 3),
        ("all.jsonl", "all.line-4", 4),
        # a file that can't be read counts as one case
        ("gone.jsonl", "gone", 0),
    ]
    assert [is_line_name(location.name) for location in locations] == [False] * 3 + [True] * 3 + [False]
    index = CaseIndex(tmp_path)
    assert len([*index]) == count_cases(tmp_path) == 7
    assert [index.find(name) for name in index] == locations
    assert index.find("nobody") is None
    with pytest.raises(CaseError, match=r"gone\.jsonl: cannot be read: "):
        load_case(locations[-1], Case, file="gone.jsonl", pack=None)
    assert [case_file_sha256(location) is None for location in locations] == [False] * 3 + [True, False, False, True]
    for missing in ("missing.jsonl", "missing.json", "nul\0.json"):
        assert find_case(str(tmp_path / missing), "missing") is None


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "all.jsonl", case("a"))
    assert find_case(str(path), "b") is None
    write_lines(path, case("longer"), case("b"))
    location = find_case(str(path), "b")
    assert location is not None
    assert location.line == 2


@pytest.mark.parametrize(
    ("lines", "message"),
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
def test_a_mistake_in_a_line_is_one_line_with_file_and_number(tmp_path: Path, lines: list[Any], message: str) -> None:
    path = write_lines(tmp_path / "f.jsonl", *lines)
    *_, last = iter_cases(tmp_path)
    with pytest.raises(CaseError) as caught:
        load_case(last, Case, file=path.name, pack="toy")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_links_to_folders_outside_are_followed_once(tmp_path: Path) -> None:
    cases, outside = tmp_path / "suite" / "cases", tmp_path / "outside"
    for path in (cases / "own" / "a.json", outside / "b.json", outside / "sub" / "c.json"):
        write_lines(path, case(path.stem))
    links = {
        cases / "again": outside,
        cases / "beyond": outside / "sub",
        cases / "far": outside,
        cases / "inside": cases / "own",
        cases / "over": tmp_path,
        cases / "self": cases,
        outside / "sub" / "back": outside,
        outside / "sub" / "home": cases,
        outside / "loop": outside / "loop",
    }
    for link, destination in links.items():
        link.symlink_to(destination)
    visited = [Path(location.path).relative_to(cases).as_posix() for location in iter_cases(cases)]
    assert visited == ["again/b.json", "beyond/c.json", "own/a.json"]
    assert count_cases(cases) == 3


@given(st.sampled_from(["a/b.jsonl", "a.json", "bundled:toy/cases/x.jsonl", "7.json"]), st.integers(0, 10**6))
def test_a_location_is_split_into_its_file_and_line(file: str, line: int) -> None:
    if file.endswith(".jsonl"):
        assert split_location(format_location(file, line)) == (file, line)
    assert split_location(file) == (file, 0)
    assert split_location(f"{file}:x") == (f"{file}:x", 0)


def test_the_case_in_the_guide_is_valid() -> None:
    (block,) = (block for block in blocks(ROOT / "docs" / "cases.md") if block.kind == "json")
    assert block.file is not None
    path = Path(block.file)
    shown = parse_case(block.text.encode(), GenericCase, source=block.file, stem=path.stem, pack="generic").case
    assert path.parent.name == shown.case_type


@given(st.lists(ids, unique=True), st.integers(1, 12))
def test_each_case_is_in_the_shard_that_its_hash_names(case_ids: list[str], count: int) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    for case_id in case_ids:
        # machines with different versions share a suite: what a case's shard is may never change
        number = int.from_bytes(sha256(case_id.encode()).digest()[:8]) % count + 1
        assert shard_of(case_id, count) == number
        assert [case_id in shard for shard in shards] == [shard.number == number for shard in shards]


@given(st.integers(1, 10**8), st.integers(1, 10**8))
def test_a_shard_is_parsed_from_its_text(number: int, count: int) -> None:
    if number <= count:
        assert Shard.parse(str(Shard(number, count))) == Shard(number, count)
    else:
        with pytest.raises(ValueError, match="expected I/N with I from 1 to N"):
            Shard.parse(f"{number}/{count}")


@pytest.mark.parametrize("text", ["", "x", "0/3", "2/0", "4/3", "1/3 ", "+1/3", "1/3/5", "\u0661/\u0663", "1", "01/3"])
def test_another_text_is_no_shard(text: str) -> None:
    with pytest.raises(ValueError, match="expected I/N"):
        Shard.parse(text)


def test_the_cases_of_a_shard_are_counted_without_parsing(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(30)]
    write_lines(tmp_path / "all.jsonl", *(case(name) for name in names[:20]))
    for name in names[20:]:
        write_lines(tmp_path / "plain" / f"{name}.json", "not read")
    for number in (1, 2, 3):
        shard = Shard(number, 3)
        assert count_cases(tmp_path, shard) == sum(name in shard for name in names)
    assert case_name("many.jsonl", CaseLine(17, 0, b"{")) == "many.line-17"
