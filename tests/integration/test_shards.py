"""A part of a suite on each machine, then one run of them all."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from pytest_packbench.model.run import shard_of
from tests.integration.test_case_lines import MANY, line, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

COUNT = 3
FILES = [f"file_{number}" for number in range(5)]
LINES = [f"line_{number}" for number in range(7)]
BAD = "many.line-4"
OF_TIME = {"run_id", "timestamp", "wall_clock_ms", "duration_ms"}


@pytest.fixture
def filled(project: Project) -> Project:
    for number, name in enumerate(FILES):
        project.case(name, points=number / 4, notes={"tags": [name]})
    lines = [line(name, points=1.0) for name in LINES]
    write(project, *lines[:3], "{", *lines[3:])
    return project


def in_shard(number: int, count: int = COUNT) -> set[str]:
    return {name for name in [*FILES, *LINES, BAD] if shard_of(name, count) == number}


def shard(project: Project, number: int, *arguments: str, count: int = COUNT) -> pytest.RunResult:
    return project.run_toy(f"--packbench-shard={number}/{count}", f"--packbench-output=part{number}", *arguments)


def part(project: Project, number: int) -> Path:
    (folder,) = (path for path in (project.root / f"part{number}" / "toy").iterdir() if path.is_dir())
    return folder


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    return found


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in OF_TIME}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def parts_of(folder: Path) -> dict[str, list[Any]]:
    found = {}
    for name in ("records.jsonl", "errors.jsonl", "payloads.jsonl"):
        found[name] = [without_times(json.loads(one)) for one in (folder / name).read_text("utf-8").splitlines()]
    return found


def test_shards_merged_are_the_whole_run(
    filled: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: set[str] = set()
    for number in range(1, COUNT + 1):
        result = shard(filled, number)
        cases = {one["case_id"] for one in document(part(filled, number))["cases"]}
        assert cases == in_shard(number)
        assert not cases & ran
        ran |= cases
        run = document(part(filled, number))["run"]
        assert run["settings"]["shard"] == f"{number}/{COUNT}"
        assert run["partial"] == f"shard {number}/{COUNT}: {len(cases)} of 13 cases"
        result.stdout.fnmatch_lines([f"*shard {number}/{COUNT}: {len(cases)} of 13 cases*"])
        assert not (filled.root / f"part{number}" / "toy" / "latest").exists()
    assert ran == {*FILES, *LINES, BAD}
    filled.run_toy()
    monkeypatch.chdir(filled.root)
    monkeypatch.syspath_prepend(filled.root)
    folders = [str(part(filled, number)) for number in range(1, COUNT + 1)]
    assert main(["merge", "--pack", "conftest:Toy", "--output", "merged", *folders]) == 1
    assert "completeness 12 / 13" in capsys.readouterr().out
    merged = filled.root / "merged" / "toy"
    folder = merged / (merged / "latest").read_text("utf-8").strip()
    assert parts_of(folder) == parts_of(filled.left())
    one, other = document(folder), document(filled.left())
    assert without_times(one["cases"]) == without_times(other["cases"])
    assert one["gates"] == other["gates"]
    assert one["totals"] == other["totals"]
    assert main(["merge", "--pack", "conftest:Toy", *folders[1:]]) == 2
    assert "1 of 3 shards missing: 1/3" in capsys.readouterr().err


def test_an_empty_shard_is_complete(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.case("a")
    full = shard_of("a", 2)
    result = shard(project, 3 - full, count=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [f"*shard {3 - full}/2: 0 of 1 cases*", "*completeness: not judged in a shard; packbench*"]
    )
    result.stdout.no_fnmatch_line("*FAILED*")
    assert document(part(project, 3 - full))["cases"] == []
    assert shard(project, full, count=2).ret == pytest.ExitCode.OK
    monkeypatch.chdir(project.root)
    monkeypatch.syspath_prepend(project.root)
    folders = [str(part(project, number)) for number in (1, 2)]
    assert main(["merge", "--pack", "conftest:Toy", *folders]) == 0


def test_a_selection_that_leaves_nothing_is_not_an_empty_shard(filled: Project) -> None:
    assert shard(filled, 1, "-k", "nobody").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not (filled.root / "part1").exists()


def test_a_file_that_cannot_be_read_is_in_one_shard(project: Project) -> None:
    project.case("a")
    (project.root / MANY).symlink_to("nowhere")
    for number in range(1, COUNT + 1):
        shard(project, number)
        run, cases = (document(part(project, number))[name] for name in ("run", "cases"))
        assert {one["case_id"] for one in cases} == {one for one in ("a", "many") if shard_of(one, COUNT) == number}
        assert run["partial"] == f"shard {number}/{COUNT}: {len(cases)} of 2 cases"


def test_a_suite_without_cases_is_never_green(plain: Project) -> None:
    result = shard(plain, 1)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(['*suite "toy" has no case under*'])


def test_gates_are_judged_when_all_is_there(plain: Project) -> None:
    plain.suite("toy", "pack: toy\ngates:\n  - {metric: mean_score, min: 0.99}\n  - {must_pass: [b]}\n")
    plain.case("a", points=0.9)
    result = shard(plain, shard_of("a", 2), count=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "*mean_score: not judged in a shard; packbench merge judges it",
            "*must_pass*: not judged in a shard; packbench merge judges it",
        ]
    )


def test_a_shard_that_did_not_run_all_of_its_cases_fails(plain: Project) -> None:
    plain.case("a", python="raise KeyboardInterrupt")
    plain.case("b")
    result = plain.run_toy("--packbench-shard=1/1")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert plain.report()["packbench"]["run"]["partial"] == "shard 1/1: interrupted: 2 of 2 cases did not run"
    assert [gate["passed"] for gate in plain.report()["packbench"]["gates"]] == [False]


@pytest.mark.parametrize("value", ["2/0", "0/3", "4/3", "x"])
def test_a_wrong_shard_is_a_usage_error(plain: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    plain.case("a")
    result = plain.run_toy(f"--packbench-shard={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-shard: got '{value}'; expected I/N with I from 1 to N, such*"])
    monkeypatch.setenv("PACKBENCH_SHARD", value)
    result = plain.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: environment variable PACKBENCH_SHARD: got '{value}'; expected I/N*"])


def test_a_shard_by_ini(plain: Project) -> None:
    plain.case("a")
    plain.pytester.makeini(f"[pytest]\npackbench_shard = {3 - shard_of('a', 2)}/2\n")
    assert plain.run_toy().ret == pytest.ExitCode.OK
    assert plain.report()["packbench"]["cases"] == []


@pytest.mark.parametrize("name", [FILES[0], LINES[0]])
def test_a_case_of_another_shard_is_refused_by_name(filled: Project, name: str) -> None:
    own = shard_of(name, COUNT)
    other = own % COUNT + 1
    file = MANY if name in LINES else f"storage/benchmarks/toy/cases/plain/{name}.json"
    result = filled.run(f"{file}::{name}", f"--packbench-shard={other}/{COUNT}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-shard: {name} is in shard {own}/3, not in {other}/3; *"])
    filled.run(f"{file}::{name}", f"--packbench-shard={own}/{COUNT}").assert_outcomes(
        passed=int(name in LINES), failed=int(name in FILES)
    )


def test_marked_tests_are_sharded_too(plain: Project) -> None:
    for name in FILES:
        plain.case(name)
    plain.pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.packbench_cases("toy")
        def test_one(packbench_case, packbench_check):
            packbench_check({"points": 1.0})
        """
    )
    own = {name for name in FILES if shard_of(name, COUNT) == 2}
    plain.run("test_own.py", f"--packbench-shard=2/{COUNT}").assert_outcomes(passed=len(own))
    assert {one["packbench"]["case_id"] for one in plain.lines("records.jsonl")} == own


def test_shards_of_several_functions_are_merged(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(FILES):
        plain.case(name, case_type="hard" if number == 0 else "soft")
    body = """
        @pytest.mark.packbench_cases("toy", case_type="{0}")
        def test_{0}(packbench_case, packbench_check):
            packbench_check({{"points": 1.0}})
        """
    plain.pytester.makepyfile(
        test_own="import pytest\n" + "".join(dedent(body.format(name)) for name in ("hard", "soft"))
    )
    for number in range(1, COUNT + 1):
        plain.run("test_own.py", f"--packbench-shard={number}/{COUNT}", f"--packbench-output=part{number}")
    monkeypatch.chdir(plain.root)
    monkeypatch.syspath_prepend(plain.root)
    folders = [str(part(plain, number)) for number in range(1, COUNT + 1)]
    assert main(["merge", "--pack", "conftest:Toy", *folders]) == 0
    run = document(plain.left())["run"]
    assert (run["target"], run["partial"]) == ("test:test_own.py::test_hard, test:test_own.py::test_soft", "")
