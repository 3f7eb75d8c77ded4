"""`packbench init`: what it writes, what it refuses, what it says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.cli import main
from pytest_packbench.packs.registry import Packs

if TYPE_CHECKING:
    from pathlib import Path

STARTERS = sorted(name for name, pack in Packs().items() if pack.starter() is not None)
PACKS = """
from pytest_packbench.model.pack import Pack
from pytest_packbench.model.pack import Starter


class Bare(Pack):
    name, version = "bare", "1"
    read = score = facts = None


class Needy(Bare):
    def starter(self):
        files = {"suite.yaml": "pack: needy\\ntarget: TARGET_MODULE:f\\n", "cases/a/SUITE_NAME_1.json": "SUITE_NAME"}
        needs = {"no_such_library": "lacking", "no_such_library.part": "lacking", "json": "there"}
        return Starter(suite=files, project={"TARGET_MODULE.py": ""}, needs=needs, takes={"no_such_thing": "more"})
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # the command adds the folder
    monkeypatch.setattr(sys, "path", [*sys.path])


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_there_are_starters() -> None:
    assert {"agent_safety", "generic", "tariff"} <= set(STARTERS)


@pytest.mark.parametrize("pack", STARTERS)
def test_a_starter_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: str) -> None:
    assert main(["init", "2-mine", "--pack", pack]) == 0
    wrote = [line.removeprefix("wrote ") for line in capsys.readouterr().out.splitlines() if line.startswith("wrote ")]
    assert set(wrote) == files(tmp_path)
    assert len(wrote) == len(set(wrote))
    folder = tmp_path / "storage" / "benchmarks" / "2-mine"
    rules = load_suite(folder).config
    assert rules.pack == pack
    # with --packbench-gate=suite nothing else judges a score
    assert {gate.metric for gate in rules.gates} & {"pass_rate", "attack_success_rate"}
    assert len(list(folder.glob("cases/*/*.json"))) == 2
    texts = [(tmp_path / name).read_text("utf-8") for name in wrote]
    assert not [text for text in (*texts, *wrote) if "SUITE_NAME" in text or "TARGET_MODULE" in text]
    assert "pytest --packbench-suite=2-mine" in (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("pack", STARTERS)
def test_lint_has_nothing_against_a_starter(capsys: pytest.CaptureFixture[str], pack: str) -> None:
    main(["init", "mine", "--pack", pack])
    capsys.readouterr()
    assert main(["lint", "mine"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


@pytest.mark.parametrize("pack", ["generic", "agent_safety"])
def test_the_target_of_a_starter_has_five_lines(tmp_path: Path, pack: str) -> None:
    main(["init", "mine", "--pack", pack])
    assert len((tmp_path / "target_mine.py").read_text("utf-8").splitlines()) == 5


def test_it_says_what_to_run_next(capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "mine"])
    said = capsys.readouterr().out
    assert "run it: pytest --packbench-suite=mine\n" in said
    assert "check:  packbench lint mine\n" in said
    main(["init", "mine-too", "--root", "else/where"])
    said = capsys.readouterr().out
    assert "run it: pytest -o packbench_root=else/where --packbench-suite=mine-too\n" in said
    assert "check:  packbench lint mine-too --root else/where\n" in said


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ("storage/benchmarks/mine/suite.yaml", "storage/benchmarks/mine"),
        ("storage/benchmarks/mine/cases/a.json", "storage/benchmarks/mine"),
        ("storage/benchmarks/mine", "storage/benchmarks/mine"),
        ("target_mine.py", "target_mine.py"),
    ],
)
def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str, named: str) -> None:
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("precious", encoding="utf-8")
    assert main(["init", "mine"]) == 2
    assert capsys.readouterr().err.startswith(f"packbench: {named} already exists; nothing was written;")
    assert files(tmp_path) == {there}
    assert (tmp_path / there).read_text("utf-8") == "precious"


def test_twice_is_once(tmp_path: Path) -> None:
    assert main(["init", "mine"]) == 0
    before = files(tmp_path)
    assert main(["init", "mine"]) == 2
    assert files(tmp_path) == before


def test_an_empty_folder_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "storage" / "benchmarks" / "mine").mkdir(parents=True)
    assert main(["init", "mine"]) == 0


@pytest.mark.parametrize("name", ["", "../up", "a/b", "My Suite", "-x y", "_x", "é", "a" * 81, "a,b", "a\n", "."])
def test_a_name_that_names_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["init", "--", name]) == 2
    said = capsys.readouterr().err
    assert "invalid suite name" in said
    assert said.count("\n") == 1
    assert files(tmp_path) == set()


def test_a_better_name_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "My Suite!"])
    assert capsys.readouterr().err.endswith("; try my-suite\n")


def test_an_unknown_pack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine", "--pack", "generik"]) == 2
    said = f'packbench: unknown pack "generik"; expected one of {", ".join(STARTERS)}, which have a starter suite\n'
    assert capsys.readouterr().err == said


def test_a_pack_without_a_starter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "packs_of_init_test.py").write_text(PACKS, encoding="utf-8")
    assert main(["init", "mine", "--pack", "packs_of_init_test:Bare"]) == 2
    said = capsys.readouterr().err
    assert 'the pack "packs_of_init_test:Bare" has no starter suite; expected one of ' in said
    assert ", ".join(STARTERS) in said


def test_missing_extras_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "packs_of_init_test.py").write_text(PACKS, encoding="utf-8")
    assert main(["init", "mine", "--pack", "packs_of_init_test:Needy"]) == 0
    said = capsys.readouterr().out
    assert said.count('first:  pip install "pytest-packbench[lacking]"\n') == 1
    assert "[there]" not in said
    assert 'Some rules of this pack need an extra: pip install "pytest-packbench[more]"\n' in said
    assert (tmp_path / "storage/benchmarks/mine/cases/a/mine_1.json").read_text("utf-8") == "mine"
    assert (tmp_path / "storage/benchmarks/mine/suite.yaml").read_text("utf-8").endswith("target: target_mine:f\n")


def test_a_project_above_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    main(["init", "mine"])
    assert "Note:" not in capsys.readouterr().out
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    main(["init", "mine"])
    assert (
        f"Note: because of {tmp_path / 'pytest.ini'}, pytest may use its folder as rootdir" in capsys.readouterr().out
    )
