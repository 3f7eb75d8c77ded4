"""`--packbench-shard`: a part of each suite per machine, merged to one run."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.model.run import shard_of
from pytest_packbench.testing import SuiteResults
from tests.integration.conftest import MANY, ended, json_lines, toy_case, without_times

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

COUNT = 3
FILES = [f"file_{number}" for number in range(5)]
LINES = [f"line_{number}" for number in range(7)]
# a line that is no JSON
BAD = "many.line-4"


@pytest.fixture
def filled(project: Project) -> Project:
    """Five cases in files, seven in the lines of one file, and a line that is no case."""
    for number, name in enumerate(FILES):
        project.case(name, points=number / 4, notes={"tags": [name]})
    lines = [toy_case(name, points=1.0) for name in LINES]
    project.case_lines(*lines[:3], "{", *lines[3:])
    return project


def run_shard(project: Project, number: int, *arguments: str, count: int = COUNT) -> pytest.RunResult:
    return project.run(f"--packbench-shard={number}/{count}", f"--packbench-output=part{number}", *arguments)


def part(project: Project, number: int) -> Path:
    (folder,) = (path for path in (project.root / f"part{number}" / "toy").iterdir() if path.is_dir())
    return folder


def document(folder: Path) -> dict[str, Any]:
    return SuiteResults(folder=folder).report["packbench"]  # type: ignore[no-any-return] # it is JSON


def check_part(project: Project, number: int, names: list[str]) -> str:
    """Check which cases a shard has; return its description."""
    report = document(part(project, number))
    cases = {row["case_id"] for row in report["cases"]}
    assert cases == {name for name in names if shard_of(name, COUNT) == number}
    description: str = report["run"]["partial"]
    assert description == f"shard {number}/{COUNT}: {len(cases)} of {len(names)} cases"
    return description


def merge(project: Project, numbers: list[int], *arguments: str) -> int:
    folders = [str(part(project, number)) for number in numbers]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.root)
        patch.syspath_prepend(project.root)
        return main(["merge", "--pack", "conftest:Toy", *arguments, *folders])


def test_merged_shards_are_the_whole_run(filled: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, COUNT + 1):
        result = run_shard(filled, number, "--packbench-suite=toy")
        result.stdout.fnmatch_lines([f"*{check_part(filled, number, [*FILES, *LINES, BAD])}*"])
        assert not (filled.root / f"part{number}" / "toy" / "latest").exists()
    filled.run_toy()
    assert merge(filled, [1, 2, 3], "--output", "merged") == 1
    assert "completeness 12 / 13" in capsys.readouterr().out
    merged = filled.root / "merged" / "toy"
    folder = merged / (merged / "latest").read_text("utf-8").strip()
    for name in ("records.jsonl", "errors.jsonl", "payloads.jsonl"):
        assert without_times(json_lines(folder / name)) == without_times(json_lines(filled.left() / name))
    one, other = document(folder), document(filled.left())
    for key in ("cases", "gates", "totals"):
        assert without_times(one[key]) == without_times(other[key])
    assert merge(filled, [2, 3]) == 2
    assert "1 of 3 shards missing: 1/3" in capsys.readouterr().err


def test_an_empty_shard_is_complete_and_gates_are_judged_after_the_merge(both: Project) -> None:
    both.suite("toy", "pack: toy\ngates:\n  - {metric: mean_score, min: 0.99}\n  - {must_pass: [b]}\n")
    both.case("a", points=0.9)
    empty = 3 - shard_of("a", 2)
    later = "not judged in a shard; packbench*"
    for number in (1, 2):
        result = run_shard(both, number, "--packbench-suite=toy", count=2)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines([f"*mean_score: {later}", f"*must_pass*: {later}"])
        if number == empty:
            result.stdout.fnmatch_lines([f"*shard {empty}/2: 0 of 1 cases*", f"*completeness: {later}"])
    assert document(part(both, empty))["cases"] == []
    assert merge(both, [1, 2]) == 1


def test_without_cases_a_shard_is_not_merely_empty_and_an_interrupted_one_fails(project: Project) -> None:
    result = project.run_toy("--packbench-shard=1/1")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(['*suite "toy" has no case under*'])
    project.case("a", python="raise KeyboardInterrupt")
    project.case("b")
    assert project.run_toy("--packbench-shard=1/1", "-k", "nobody").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not project.folders()
    assert project.run_toy("--packbench-shard=1/1").ret == pytest.ExitCode.INTERRUPTED
    report = project.report()["packbench"]
    assert report["run"]["partial"] == "shard 1/1: interrupted: 2 of 2 cases did not run"
    assert [gate["passed"] for gate in report["gates"]] == [False]


def test_a_shard_of_the_path_of_a_case_is_refused(filled: Project) -> None:
    for path in (f"storage/benchmarks/toy/cases/plain/{FILES[0]}.json", f"{MANY}::{LINES[0]}"):
        refused = filled.run(path, f"--packbench-shard=1/{COUNT}")
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines(
            ["ERROR: --packbench-shard: got '1/3' and the path of a case; expected one of them"]
        )


def test_the_cases_of_several_marked_tests_are_sharded_and_merged(project: Project) -> None:
    for number, name in enumerate(FILES):
        project.case(name, case_type="hard" if number == 0 else "soft")
    body = """
        @pytest.mark.packbench_cases("toy", case_type="{0}")
        def test_{0}(packbench_case, packbench_check):
            packbench_check({{"points": 1.0}})
        """
    tests = "".join(dedent(body.format(name)) for name in ("hard", "soft"))
    project.pytester.makepyfile(test_own=f"import pytest\n{tests}")
    for number in range(1, COUNT + 1):
        run_shard(project, number, "test_own.py")
        check_part(project, number, FILES)
    assert merge(project, [1, 2, 3]) == 0
    run = document(project.left())["run"]
    assert (run["target"], run["partial"]) == ("test:test_own.py::test_hard, test:test_own.py::test_soft", "")


def test_each_file_that_is_no_case_is_an_error_of_one_shard(project: Project) -> None:
    folder = "storage/benchmarks/toy/cases"
    project.case("a")
    names = [f"plain/odd\x07{number}.json" for number in range(4)]
    for name in (*names, "stray.json", "plain/notes.txt"):
        project.write(f"{folder}/{name}", "{}")
    reported = []
    for number in range(1, COUNT + 1):
        run_shard(project, number, "--packbench-suite=toy")
        rows = document(part(project, number))["cases"]
        reported += [row["case_id"] for row in rows]
        assert document(part(project, number))["run"]["partial"] == f"shard {number}/{COUNT}: {len(rows)} of 7 cases"
    odd = [f"odd\\x07{number}.json" for number in range(4)]
    assert sorted(reported) == sorted(["a", *odd, "stray", "notes.txt"])


@pytest.mark.parametrize("option", ["--packbench-shard=", "--packbench-resume="])
def test_an_option_without_its_value_does_not_run_everything(project: Project, option: str) -> None:
    project.case("a")
    result = project.run_toy(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option.rstrip('=')}: got no value; expected *, or no such option"])


def test_no_ini_key_selects_a_part_or_an_earlier_run(project: Project) -> None:
    project.cases("a", "b")
    project.write("pytest.ini", "[pytest]\npackbench_shard = 9/9\npackbench_resume = latest\n")
    result = project.run_toy("-W", "default")
    ended(result, pytest.ExitCode.OK, "*Unknown config option: packbench_*", passed=2)
