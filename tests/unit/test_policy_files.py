"""What the acceptance policy reads in a suite's folder, and what it leaves out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.policy_files import (
    case_data,
    control_recordings,
    folder_files,
    function_modules,
    other_files,
    read_files,
    source_files,
    text_sha256,
)
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.suite import SuiteConfig
from tests.unit.run_builders import COMPLETE, gate

if TYPE_CHECKING:
    from pathlib import Path

A: dict[str, Any] = {"id": "a", "input": "x"}
HIDDEN = {
    ".git/config": b"1",
    "cases/.draft/z.json": b"{}",
    "cases/.z.json": b"{}",
    "__pycache__/m.pyc": b"1",
    "tables/__pycache__/m.py": b"1",
    "README.md": b"1",
    "notes~": b"1",
    "m.pyc": b"1",
}
FILES = {
    **HIDDEN,
    "baseline.json": b'{"cases": {}}',
    "cases/a.json": json.dumps(A).encode(),
    "cases/bad.json": b"{",
    "cases/list.json": b"[]",
    "cases/more.jsonl": b'\xef\xbb\xbf\n{"id": "m1"}\n\n{"input": 1}\n',
    "cases/notes.txt": b"no case",
    "fixtures/a.json": b'{"case_id": "a", "description": "x"}',
    "fixtures/broken.json": b"{",
    "fixtures/controls/c.json": b'{"id": "c", "description": "x"}',
    "fixtures/controls/all.jsonl": b'{"id": "d", "description": "y"}\n\n[]\n',
    "fixtures/recordings.jsonl": b'{"case_id": "p"}\n{"case_id": "a"}\n',
    "policy_changes.yaml": b"changes: []",
    "suite.yaml": b"pack: toy",
    "tables/t.csv": b"1\r\n2\r\n",
}


def test_each_file_counts_as_what_it_is() -> None:
    found = read_files(FILES.items())
    assert (found.config, found.baseline) == (b"pack: toy", {"cases": {}})
    assert found.files == {"tables/t.csv": text_sha256(b"1\n2\n"), "cases/notes.txt": text_sha256(b"no case")}
    assert list(found.cases) == ["a", "bad", "list", "m1", "more.line-4"]
    assert [found.cases[name].sha256 is None for name in ("a", "bad", "list", "m1")] == [False, True, True, False]
    assert found.cases["m1"].file == "cases/more.jsonl:2"
    assert {facts.data for facts in found.cases.values()} == {None}
    assert found.recordings == {
        "a": canonical_sha256({"case_id": "a", "description": "x"}),
        "broken": text_sha256(b"{"),
        "controls/c": canonical_sha256({"id": "c"}),
        "controls/d": canonical_sha256({"id": "d"}),
        "controls/line 3": canonical_sha256([]),
        "p": canonical_sha256({"case_id": "p"}),
    }
    assert read_files([("baseline.json", b"{")]).baseline == text_sha256(b"{")


def test_only_cases_that_differ_from_the_other_side_are_kept_as_data() -> None:
    found = read_files(FILES.items()).cases
    other = {**found, "a": found["a"]._replace(sha256="0"), "bad": found["m1"]}
    kept = read_files(FILES.items(), other).cases
    assert {name: facts.data for name, facts in kept.items() if facts.data} == {"a": A}
    assert {name: facts.data for name, facts in case_data(FILES.items(), ["a", "bad", "none"]).items()} == {
        "a": A,
        "bad": None,
    }
    assert case_data(FILES.items(), []) == {}
    twice = {"cases/1/a.json": b'{"id": "a", "n": 1}', "cases/2/a.json": b'{"id": "a", "n": 2}'}
    (facts,) = read_files(twice.items()).cases.values()
    assert facts.file == "cases/1/a.json"
    assert case_data(twice.items(), ["a"])["a"].file == "cases/1/a.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "toy"


def test_a_folder_is_read_once_and_without_what_is_hidden(folder: Path) -> None:
    names = [name for name, _ in folder_files(folder)]
    assert len(names) == len(set(names))
    visible = FILES.keys() - HIDDEN.keys()
    assert (
        visible
        <= set(names)
        <= visible
        | {"README.md", "notes~", "m.pyc", "cases/.z.json", "__pycache__/m.pyc"}
        | {"tables/__pycache__/m.py"}
    )
    assert read_files(folder_files(folder)) == read_files((name, FILES[name]) for name in names)
    assert other_files(folder) == {"tables/t.csv": text_sha256(b"1\n2\n")}
    (folder / "gone.csv").symlink_to(folder / "nowhere")
    assert other_files(folder).keys() == {"tables/t.csv"}
    assert dict(folder_files(folder))["gone.csv"] == b""
    recorded = control_recordings(folder)
    assert recorded.keys() == {"controls/c", "controls/d", "controls/line 3"}
    assert control_recordings(folder / "cases") == {}


def test_the_code_of_a_project_is_the_modules_in_its_folder(tmp_path: Path) -> None:
    for name in ("one.py", "beside.py", "pack/__init__.py", "pack/a.py", "pack/b.py", "env/site-packages/x.py", "c.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    modules = [str(tmp_path / name) for name in ("one.py", "pack/a.py", "env/site-packages/x.py", "c.so")]
    expected = ["one.py", "pack/__init__.py", "pack/a.py", "pack/b.py"]
    assert source_files([None, *modules, "/elsewhere/m.py"], tmp_path) == expected
    (tmp_path / "__init__.py").touch()
    assert source_files(modules[:1], tmp_path) == ["one.py"]


def test_the_functions_of_a_suite_are_those_of_its_rules() -> None:
    rules = {
        "scores": [{"function": "my.rules:score"}, ("other:f.g",)],
        "judge": "judges:strict",
        "words": ["a: b", "http://x", "1a:b", "a:b:c"],
        "target": "pipe:run",
        "guards": ["guards:mine"],
        "description": "see:here",
    }
    assert function_modules(rules) == {"my.rules", "other", "judges"}


def test_completeness_is_a_gate_of_each_suite_unless_it_has_one_on_all_cases() -> None:
    rate, groups = gate("pass_rate", min=0.5), gate("completeness", min=0.5, by="difficulty")
    for gates, first in (
        ((), COMPLETE),
        ((rate,), COMPLETE),
        ((groups,), COMPLETE),
        ((gate("completeness", min=0.9),), None),
    ):
        config = SuiteConfig.model_construct(pack="toy", gates=gates)
        assert config.all_gates() == (gates if first is None else (first, *gates))
