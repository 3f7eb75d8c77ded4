"""An import into a file of many cases: its own lines stay, new ones come behind them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands.import_ import CheckedCase, Destination, destination
from pytest_packbench.model.pack import CaseDraft, SourceFlaw
from pytest_packbench.packs.generic.pack import GenericPack

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def draft(case_id: str, answer: str = "x") -> CaseDraft:
    case = {
        "id": case_id,
        "pack_id": "generic",
        "case_type": "plain",
        "difficulty": "easy",
        "input": "\u2028é",
        "expected": answer,
    }
    return CaseDraft(place=f"source:{case_id}", case=case)


def place(root: Path) -> Destination:
    return destination("s", root, GenericPack(), {"suite.yaml": "pack: generic\n"}, many="all.jsonl")


def write(root: Path, *drafts: CaseDraft, force: bool = False) -> list[CheckedCase | SourceFlaw]:
    found = list(place(root).checked(drafts, force=force))
    place(root).write(iter(found), expected=sum(isinstance(one, CheckedCase) for one in found))
    return found


def states(found: Iterable[CheckedCase | SourceFlaw]) -> list[str]:
    return [one.state if isinstance(one, CheckedCase) else one.message for one in found]


def lines(root: Path) -> list[dict[str, Any]]:
    text = (root / "s" / "cases" / "all.jsonl").read_bytes()
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def test_each_case_is_a_line(tmp_path: Path) -> None:
    assert states(write(tmp_path, draft("a"), draft("b"))) == ["new", "new"]
    assert lines(tmp_path) == [draft("a").case, draft("b").case]
    assert (tmp_path / "s" / "suite.yaml").exists()


def test_another_import_keeps_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, draft("a"), draft("b"), draft("c"))
    file = tmp_path / "s" / "cases" / "all.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    found = write(tmp_path, draft("b", "other"), draft("d"))
    assert states(found)[1] == "new"
    assert states(found)[0] == f"{file.as_posix()}:2 already exists and differs; pass --force to replace it"
    assert [line["id"] for line in lines(tmp_path)] == ["a", "b", "c", "d"]
    assert states(write(tmp_path, draft("b", "other"), draft("a"), force=True)) == ["replaced", "unchanged"]
    assert [(line["id"], line["expected"]) for line in lines(tmp_path)] == [
        ("a", "x"),
        ("b", "other"),
        ("c", "x"),
        ("d", "x"),
    ]


def test_a_case_that_stands_in_a_file_of_its_own_is_not_written_twice(tmp_path: Path) -> None:
    file = tmp_path / "s" / "cases" / "plain" / "A.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(draft("A").case), "utf-8")
    (found,) = place(tmp_path).checked([draft("a")], force=True)
    assert states([found]) == [
        f'/id: duplicate id "a", used in {file.as_posix()}; remove that case, or choose another id'
    ]


def test_a_source_that_changed_meanwhile_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path, draft("a"))
    found = list(place(tmp_path).checked([draft("b")], force=False))
    with pytest.raises(ValueError, match="the source changed while it was read: 2 cases, then 1"):
        place(tmp_path).write(found, expected=2)
    assert [line["id"] for line in lines(tmp_path)] == ["a"]
