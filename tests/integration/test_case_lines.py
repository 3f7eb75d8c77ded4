"""Files of many cases, one a line: each line is a case like any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from pytest_packbench.model.run import shard_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

MANY = "storage/benchmarks/toy/cases/plain/many.jsonl"


def line(case_id: str, *, notes: dict[str, Any] | None = None, difficulty: str = "easy", **order: Any) -> str:
    case = {
        "id": case_id,
        "pack_id": "toy",
        "case_type": "plain",
        "difficulty": difficulty,
        "input": order,
        "expected": {"colour": "red"},
        "notes": notes or {},
    }
    return json.dumps(case)


def write(project: Project, *lines: str, path: str = MANY) -> Path:
    file = project.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def entries(project: Project) -> dict[str, dict[str, Any]]:
    found = {one["packbench"]["case_id"]: one["packbench"] for one in project.lines("records.jsonl")}
    return found | {one["case_id"]: one for one in project.report()["packbench"]["cases"]}


def test_lines_run_beside_files(project: Project) -> None:
    project.case("alone")
    write(project, line("first"), "", line("low", points=0.5), "  ", line("last", notes={"tags": ["x"]}))
    write(project, line("elsewhere"), path="storage/benchmarks/toy/fixtures/many.jsonl")
    write(project, line("elsewhere"), path="storage/benchmarks/toy/more.jsonl")
    result = project.run_toy()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [f"case:     {MANY}:3", f"re-run:   pytest {MANY}::low", f"FAILED {MANY}::low - score 0.50 < 0.80*"]
    )
    files = {one["packbench"]["case_id"]: one["packbench"]["file"] for one in project.lines("records.jsonl")}
    assert files == {
        "alone": "storage/benchmarks/toy/cases/plain/alone.json",
        "first": f"{MANY}:1",
        "low": f"{MANY}:3",
        "last": f"{MANY}:5",
    }
    assert project.report()["packbench"]["run"]["partial"] == ""


def test_a_bad_line_is_an_error_of_its_own(project: Project) -> None:
    write(
        project,
        line("good"),
        '{"id": "torn", ',
        "no json",
        line("wrong").replace('"easy"', '"simple"'),
        line("bad one"),
        line("other"),
    )
    result = project.run_toy()
    result.assert_outcomes(passed=2, errors=4)
    result.stdout.fnmatch_lines_random(
        [
            f"{MANY}:2: column *: not JSON:*",
            f"re-run: pytest {MANY}::torn",
            f"{MANY}:3: column 1: not JSON: Expecting value; expected one JSON object",
            f"re-run: pytest {MANY}::many.line-3",
            f'{MANY}:4: /difficulty: got "simple"; expected*',
            f'{MANY}:5: /id: got "bad one"*',
        ]
    )
    errors = {one["test_id"]: one["file"] for one in project.lines("errors.jsonl")}
    assert errors == {
        "toy:plain:torn": f"{MANY}:2",
        "toy:plain:many.line-3": f"{MANY}:3",
        "toy:plain:wrong": f"{MANY}:4",
        "toy:plain:many.line-5": f"{MANY}:5",
    }


def test_an_id_like_the_name_of_a_bad_line_is_another_case(project: Project) -> None:
    write(project, line("many-line-3"), line("a"), "no json", line("many-line-5"), line("a"))
    result = project.run_toy()
    result.assert_outcomes(passed=2, errors=3)
    assert project.report()["packbench"]["run"]["partial"] == ""
    assert entries(project).keys() == {"many-line-3", "a", "many.line-3", "many-line-5", "many.line-5"}


def test_ids_given_twice_name_each_other(project: Project) -> None:
    project.case("across")
    write(project, line("twin"), line("across"), line("fine"), line("twin"), line("twin"))
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=5)
    said = [one["message"] for one in project.lines("errors.jsonl")]
    alone = "storage/benchmarks/toy/cases/plain/across.json"
    assert sorted(said) == [
        f'{alone}: /id: duplicate id "across", also in {MANY}:2; use a unique id',
        f'{MANY}:1: /id: duplicate id "twin", also in {MANY}:4; use a unique id',
        f'{MANY}:2: /id: duplicate id "across", also in {alone}; use a unique id',
        f'{MANY}:4: /id: duplicate id "twin", also in {MANY}:1; use a unique id',
        f'{MANY}:5: /id: duplicate id "twin", also in {MANY}:1; use a unique id',
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((f"{MANY}::b",), {"b"}),
        ((f"{MANY}::b", f"{MANY}::c"), {"b", "c"}),
        ((f"{MANY}::b", MANY), {"a", "b", "c", "hidden"}),
        ((f"{MANY}::b", "storage/benchmarks/toy/cases"), {"a", "b", "c", "hidden"}),
        ((f"{MANY}::hidden", "--packbench-suite=toy"), {"hidden"}),
        (("--packbench-suite=toy", "-k", "hidden"), {"hidden"}),
        (("--packbench-suite=toy", "-m", "packbench(difficulty='hard', tag='y')"), {"c"}),
        (("--packbench-suite=toy", "--deselect", f"{MANY}::b"), {"a", "c", "hidden"}),
    ],
)
def test_selection(plain: Project, arguments: tuple[str, ...], expected: set[str]) -> None:
    hidden = line("hidden", id="b").replace('"hidden"', '"\\u0068idden"')
    write(plain, line("a"), line("b"), hidden, line("c", difficulty="hard", notes={"tags": ["x", "y"]}))
    plain.run(*arguments).assert_outcomes(passed=len(expected), deselected=None)
    assert {one["packbench"]["case_id"] for one in plain.lines("records.jsonl")} == expected


def test_a_single_line_is_run_without_looking_at_the_others(project: Project) -> None:
    path = write(project, line("a"), '{"id": "torn", ', line("b", points=0.0), "no json")
    result = project.run(f"{path}::b")
    result.assert_outcomes(failed=1)
    assert entries(project).keys() == {"b"}
    assert project.report()["packbench"]["run"]["partial"] == "1 of 4 cases selected"
    result = project.run(f"{MANY}::many.line-4")
    result.assert_outcomes(errors=1)


@pytest.mark.parametrize(
    "missing", [f"{MANY}::c", f"{MANY}::many.line-1", "storage/benchmarks/toy/cases/plain/alone.json::other"]
)
def test_a_case_that_is_not_there_is_a_usage_error(project: Project, missing: str) -> None:
    project.case("alone")
    write(project, line("a"), "no json")
    result = project.run(f"{MANY}::a", missing)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: not found: *{missing}*"])


def test_a_single_line_with_a_twin_is_an_error_all_the_same(plain: Project) -> None:
    write(plain, line("twin"), line("b"), line("twin"))
    plain.run(f"{MANY}::twin").assert_outcomes(errors=1)
    plain.run(f"{MANY}::many.line-3").assert_outcomes(errors=1)
    plain.run(f"{MANY}::b").assert_outcomes(passed=1)


def test_last_failed(project: Project) -> None:
    write(project, line("a"), line("b", points=0.0))
    project.run_toy().assert_outcomes(passed=1, failed=1)
    result = project.run_toy("--lf")
    assert result.parseoutcomes()["failed"] == 1
    assert "passed" not in result.parseoutcomes()


def test_what_did_not_run_keeps_its_line(project: Project) -> None:
    write(project, *(line(f"c{number}", points=0.0) for number in range(12)))
    project.run_toy("-x")
    left = {one["test_id"]: one["file"] for one in project.lines("errors.jsonl")}
    assert left
    assert all(file == f"{MANY}:{int(name.rpartition('c')[2]) + 1}" for name, file in left.items())


def test_editors_find_the_line(plain: Project) -> None:
    path = write(plain, line("a"), "", line("b"))
    items, _ = plain.pytester.inline_genitems("--packbench-suite=toy")
    assert [item.location for item in items] == [(MANY, 0, "a"), (MANY, 2, "b")]
    assert {item.path for item in items} == {path}


def test_marked_tests_take_lines(plain: Project) -> None:
    write(plain, line("a"), line("b", points=0.0), "{")
    plain.pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.packbench_cases("toy")
        def test_one(packbench_case, packbench_check):
            packbench_check({"points": packbench_case.input.get("points", 1.0)})
        """
    )
    result = plain.run("test_own.py")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines([f"case:   {MANY}:2"])


def test_marked_tests_take_no_line_of_two_with_one_id(project: Project) -> None:
    write(project, line("twin"), line("fine"), line("twin"), line("twin"))
    project.pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.packbench_cases("toy")
        def test_one(packbench_case, packbench_check):
            packbench_check({"points": 1.0})
        """
    )
    project.run("test_own.py").assert_outcomes(passed=1, errors=3)
    assert sorted(one["message"] for one in project.lines("errors.jsonl")) == [
        f'{MANY}:1: /id: duplicate id "twin", also in {MANY}:3, {MANY}:4; use a unique id',
        f'{MANY}:3: /id: duplicate id "twin", also in {MANY}:1; use a unique id',
        f'{MANY}:4: /id: duplicate id "twin", also in {MANY}:1; use a unique id',
    ]
    twins = shard_of("twin", 2)
    result = project.run("test_own.py", f"--packbench-shard={twins}/2", "--packbench-output=part")
    result.assert_outcomes(passed=int(shard_of("fine", 2) == twins), errors=3)


def test_commands_know_lines(
    plain: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plain.suite("words", "pack: generic\ndescription: words\n")
    case = {"pack_id": "generic", "case_type": "plain", "difficulty": "easy", "input": "x", "expected": {"answer": "x"}}
    lines = [json.dumps({"id": name, **case}) for name in ("a", "b", "b")]
    (folder / "cases" / "all.jsonl").write_text("\n".join(["", *lines, "{"]), "utf-8")
    monkeypatch.chdir(plain.root)
    main(["lint", "words"])
    said = capsys.readouterr().out
    file = "storage/benchmarks/words/cases/all.jsonl"
    assert f'{file}:4: /id: case_unreadable: duplicate id "b", also in cases/all.jsonl:3; use a unique' in said
    assert f"{file}:5: /: case_unreadable: column 2: not JSON" in said
    assert "folder_type" not in said
    result = plain.run("--packbench-list")
    result.stdout.fnmatch_lines(["  words: 4 cases (. 4); pack generic: words"])
