"""Cases of the original harness: what is read, what is written for it, and what is refused with its key."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.cases.load import check_case
from pytest_packbench.model.errors import CaseError, json_pointer
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.white_box.cases import to_case

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = yaml.safe_load((Path(__file__).parent / "data" / "white_box.yaml").read_text("utf-8"))


def parent_of(case: dict[str, Any], pointer: str) -> tuple[Any, str]:
    *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.removeprefix("/").split("/")]
    value: Any = case
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value, last


def changed(row: dict[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = deepcopy(DATA["base"])
    for pointer, value in row.get("set", {}).items():
        parent, key = parent_of(case, pointer)
        parent[int(key) if isinstance(parent, list) else key] = value
    for pointer in row.get("remove", []):
        parent, key = parent_of(case, pointer)
        del parent[key]
    return case


def value_at(case: dict[str, Any], pointer: str) -> Any:
    parent, key = parent_of(case, pointer)
    return parent[int(key)] if isinstance(parent, list) else parent.get(key)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield what says something: each value that is no object, no list, nor null, with its pointer."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    elif value is not None:
        yield json_pointer(path), value


def is_somewhere(pointer: str, value: Any, case: dict[str, Any]) -> bool:
    """Whether a value of the file is in the case, in its place or in `notes.imported`."""
    kept = case["notes"].get("imported", {})
    if any(pointer == key or pointer.startswith(f"{key}/") for key in kept):
        return True
    try:
        return bool(value_at(case, pointer) == value)
    except (KeyError, TypeError, IndexError, AttributeError):
        return False


def read(data: dict[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = to_case(data)
    check_case(case, TariffCase, source="case", stem=None, pack="tariff")
    return case


@pytest.mark.parametrize("name", DATA["read"])
def test_what_the_original_reads_becomes_a_case_and_nothing_is_lost(name: str) -> None:
    row = DATA["read"][name]
    data = changed(row)
    before = deepcopy(data)
    case = read(data)
    assert data == before
    assert {pointer: value_at(case, pointer) for pointer in row["gives"] if pointer != "/notes"} == {
        pointer: value for pointer, value in row["gives"].items() if pointer != "/notes"
    }
    kept = case["notes"].pop("imported", {})
    assert kept == row.get("kept", {})
    # 1 and true are equal in Python
    assert json.dumps(kept) == json.dumps(dict(sorted(row.get("kept", {}).items())))
    assert case["notes"] == row["gives"].get("/notes", case["notes"])
    case["notes"]["imported"] = kept
    assert [pointer for pointer, value in leaves(data) if not is_somewhere(pointer, value, case)] == []


@pytest.mark.parametrize("name", DATA["refused"])
def test_what_has_no_clear_meaning_is_an_error_that_names_the_key(name: str) -> None:
    row = DATA["refused"][name]
    with pytest.raises(CaseError) as caught:
        read(changed(row))
    assert str(caught.value).removeprefix("case: ") == row["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
POINTERS = sorted({pointer for pointer, _ in leaves(DATA["base"])} | {"/input", "/expected", "/notes", "/notes/tags"})


@given(st.sampled_from([*POINTERS, "/input/options", "/input/evidence", "/input/options/evidence"]), JSON)
def test_any_value_anywhere_is_kept_or_refused(pointer: str, value: Any) -> None:
    data = changed({"set": {pointer: value}})
    try:
        case = read(data)
    except CaseError as error:
        # the key, or one below it
        place = pointer.removesuffix("/0")
        assert any(problem.pointer.startswith(place) for problem in error.problems)
    else:
        assert [place for place, leaf in leaves(data) if not is_somewhere(place, leaf, case)] == []


@given(st.dictionaries(st.sampled_from(sorted(DATA["base"])) | st.text(max_size=5), JSON, max_size=7))
def test_any_object_is_a_case_or_refused(document: dict[str, Any]) -> None:
    with pytest.raises(CaseError):
        read(document)


PAGE = Path(__file__).parents[3] / "docs" / "import-white-box.md"


def test_the_page_names_every_key_of_a_case() -> None:
    text = PAGE.read_text("utf-8")
    names = {step for pointer, _ in leaves(DATA["base"]) for step in pointer.split("/") if step and not step.isdigit()}
    names |= set(DATA["base"]["expected"]) | set(DATA["base"]["input"])
    assert [name for name in sorted(names) if not re.search(rf"[`.]{name}[`.]", text)] == []
    departures = (PAGE.parent / "scoring-departures.md").read_text("utf-8")
    (table,) = re.findall(r"^## What is scored otherwise$.*", text, re.MULTILINE | re.DOTALL)
    named = [
        name for line in re.findall(r"\| (`[^|]*`) \|$", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    ]
    assert [name for name in named if f"| `{name}` |" not in departures] == []
