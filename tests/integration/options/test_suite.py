"""`--packbench-suite`, `packbench_root` and paths as arguments: which cases are found and run."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.integration.conftest import CASES, MANY, ended, toy_case

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

TOY = "--packbench-suite=toy"
ONE = f"{CASES}/one"
ALPHA = f"{ONE}/alpha.json"
DATA = yaml.safe_load((Path(__file__).parent / "data" / "suite.yaml").read_text("utf-8").replace("{cases}", CASES))


@pytest.fixture
def filled(project: Project) -> Project:
    """Three cases in files of their own, in two folders, and four in one file."""
    project.case("alpha", case_type="one", difficulty="hard", notes={"tags": ["x", "y"]})
    project.case("beta", case_type="one")
    project.case("gamma", case_type="two", notes={"tags": ["y"]})
    escaped = json.dumps(toy_case("escaped", id="b")).replace('"escaped"', '"\\u0065scaped"')
    hard = toy_case("c", difficulty="hard", notes={"tags": ["x", "z"]})
    project.case_lines(toy_case("a"), "", toy_case("b"), "  ", escaped, hard)
    return project


@pytest.mark.parametrize(("arguments", "expected"), DATA["selections"].values(), ids=DATA["selections"])
def test_cases_are_selected_as_tests_are(filled: Project, arguments: list[str], expected: str) -> None:
    names = expected.split()
    deselecting = {"-k", "-m", "--deselect"} & set(arguments)
    ended(filled.run(*arguments), 0, passed=len(names), deselected=7 - len(names) if deselecting else 0)
    assert sorted(filled.records()) == names
    assert filled.partial() == ("" if len(names) == 7 else f"{len(names)} of 7 cases selected")


def test_only_a_request_runs_a_suite(filled: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled.pytester.makepyfile(test_own="def test_own(): pass")
    ended(filled.run(), 0, passed=1)
    ended(filled.run_toy("--collect-only", "-q"), 0, f"{ALPHA}::alpha", f"{MANY}::escaped", "*7 tests collected*")
    assert not (filled.root / "reports").exists()
    ended(filled.run(TOY, str(path)), 0, passed=8)
    # pytest may start in another folder
    (filled.root / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(filled.root / "deep" / "er")
    root = f"--rootdir={filled.root}"
    ended(filled.run(TOY, root), 0, "reports: ../../reports/benchmarks/toy/*", passed=7)
    ended(filled.run(f"../../{ALPHA}::alpha", root), 0, passed=1)


def usage_error(project: Project, *arguments: str) -> str:
    result = ended(project.run(*arguments), 4)
    line = " ".join(line for line in result.stderr.lines if line).replace(str(project.root), "<ROOT>")
    # what pytest adds to an argument that it can't find
    return re.sub(r" \(no (match|name) .*\)", "", line)


def test_a_suite_that_can_not_be_used_is_a_usage_error_of_one_line(project: Project, expected: ExpectedTexts) -> None:
    project.case("alone")
    project.case_lines(toy_case("a"), "no json")
    project.write("storage/benchmarks/bare/notes.md", "")
    project.write("storage/benchmarks/misnamed/suite.yml", "pack: toy\n")
    errors = {name: usage_error(project, *arguments) for name, arguments in DATA["unknown"].items()}
    for name, rules in DATA["rules"].items():
        project.suite(text=rules.replace("{digits}", "9" * 5000).replace("{brackets}", "[" * 5000))
        errors[name] = usage_error(project, TOY)
    expected.check("".join(f"{name}: {error}\n" for name, error in errors.items()))
    assert project.folders() == []


def test_each_of_several_suites_has_a_folder_and_fails_without_cases(filled: Project) -> None:
    filled.suite("empty")
    nothing = ('*suite "empty" has no case under*', "*empty: FAILED*")
    ended(filled.run("--packbench-suite=empty"), 5, *nothing)
    ended(filled.run("--packbench-suite=toy,empty"), 1, passed=7)
    assert filled.folders("empty") == []
    filled.suite("more", "pack: toy\ndescription: 2026-13-45\ngates: [{metric: mean_score, min: 0.9}]\n")
    filled.case("low", suite="more", points=0.85)
    ended(filled.run(TOY, "--packbench-suite=more"), 1, passed=8)
    assert filled.left("toy").name == filled.left("more").name


def test_bundled_suites_are_used_where_the_project_has_none(
    project: Project, bundled: Path, expected: ExpectedTexts
) -> None:
    (project.root / "conftest.py").unlink()
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    (path,) = bundled.glob("tariff/cases/*/nos_07*.json")
    nodeid = f"{path}::{path.stem}"
    result = project.run("--packbench-suite=tariff", "-k", "nos_07", "-rA")
    ended(result, 0, "packbench: suite tariff (bundled)*", f"PASSED {nodeid}")
    assert [record["packbench"]["bundled"] for record in project.records("tariff").values()] == [True]
    # without an ini file the argument makes the folder of the package the rootdir
    (project.root / "tox.ini").unlink()
    ended(project.run(nodeid), 0, passed=1)
    assert len(project.folders("tariff")) == 2
    assert not list(bundled.rglob("reports"))
    unknown = usage_error(project, TOY)
    (project.root / "storage" / "benchmarks").mkdir(parents=True)
    expected.check(f"{unknown}\n{usage_error(project, '--packbench-suite=tariff')}\n")


def test_folders_of_cases_may_have_any_name_that_is_not_hidden(project: Project) -> None:
    for name in ("build", "dist", "node_modules", "venv", "two", ".hidden", "__pycache__"):
        project.case(f"in_{name.replace('.', '_')}", case_type=name)
    for ini in ("", "norecursedirs = build two"):
        project.pytester.makeini(f"[pytest]\n{ini}\n")
        ended(project.run_toy(), 0, passed=5)
        assert project.partial() == ""


@pytest.mark.parametrize(("option", "conftest"), DATA["ignored"].values(), ids=DATA["ignored"])
def test_what_is_ignored_is_not_collected(project: Project, option: str, conftest: str) -> None:
    alpha = project.case("alpha", case_type="one")
    project.case("beta", case_type="one")
    if "deep" in option:
        (alpha.parent / "deep").mkdir()
        alpha.rename(alpha.parent / "deep" / "alpha.json")
    project.write(f"{ONE}/conftest.py", conftest)
    ended(project.run_toy(*option.split()), 0, passed=1)
    assert set(project.records()) == {"beta"}
    assert project.partial() == "1 of 2 cases selected"


def test_before_pytest_9_an_argument_within_another_is_left_out(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.cases("a", "b")
    project.extend_conftest("""
    def pytest_report_header(config):
        return "arguments: " + " ".join(config.args)
    """)
    monkeypatch.setattr(pytest, "version_tuple", (8, 4, 2))
    folder = "storage/benchmarks/toy"
    nested = [f"{folder}/cases/plain/a.json", f"{folder}/cases/plain/b.json::b"]
    for arguments, left in ((nested, nested), ([*nested, folder], [folder])):
        ended(project.run("--co", *arguments), 0, f"arguments: {' '.join(left)}")


def test_linked_folders_are_run_and_counted_alike(project: Project) -> None:
    project.case("alpha", case_type="one")
    (project.root / CASES / "one").rename(project.root / "outside")
    delta = project.write("outside/deep/delta.json", json.dumps(toy_case("delta")))
    project.case("gamma")
    cases = project.root / CASES
    (delta.parent / "back").symlink_to(project.root / "outside")
    (cases / "linked").symlink_to("../../../../outside")
    (cases / "same").symlink_to(delta.parent)
    (cases / "up").symlink_to(cases)
    (cases / "plain" / "self.json").symlink_to("self.json")
    # a folder of cases may contain other files
    project.write(f"{CASES}/plain/README.md", "no case")
    project.write(f"{CASES}/plain/test_words.py", "def test_one(): pass\n")
    expected: dict[tuple[str, ...], tuple[int, dict[str, int], str]] = {
        (TOY,): (1, {"passed": 4, "errors": 1}, ""),
        (TOY, "-k", "not gamma"): (1, {"passed": 3, "errors": 1, "deselected": 1}, "3 of 4 cases selected"),
        (f"{CASES}/same/delta.json::delta",): (0, {"passed": 1}, "1 of 4 cases selected"),
    }
    for arguments, (code, outcomes, partial) in expected.items():
        ended(project.run(*arguments), code, **outcomes)
        assert project.partial() == partial


def test_cases_are_exempt_from_garbage_collection_while_they_run(project: Project) -> None:
    before = gc.get_threshold()
    project.case("alpha", python="import gc; assert gc.get_freeze_count() > 1000")
    ended(project.run_toy(), 0, passed=1)
    assert gc.get_threshold() == before
    # the next session returns them
    project.run_toy("--collect-only")
    assert gc.get_freeze_count() == 0


def test_a_conftest_applies_to_the_cases_of_its_folder(project: Project) -> None:
    project.case("alpha", case_type="one")
    project.case("gamma", case_type="two")
    project.write(f"{ONE}/deep/beta.json", json.dumps(toy_case("beta")))
    hook = "def pytest_runtest_setup(item): print('applied:', item.name, __file__.split('/')[-2])\n"
    for folder in (ONE, f"{ONE}/deep"):
        project.write(f"{folder}/conftest.py", hook)
    printed = re.findall("applied: (.*)", project.run_toy("-s").stdout.str())
    assert sorted(printed) == ["alpha one", "beta deep", "beta one"]


def test_a_case_in_a_line_is_named_with_its_line(project: Project) -> None:
    project.case("alone")
    project.case_lines(toy_case("first"), "", toy_case("low", points=0.5), "  ", toy_case("last"))
    project.case_lines(toy_case("elsewhere"), path="storage/benchmarks/toy/fixtures/many.jsonl")
    named = (f"case:     {MANY}:3", f"re-run:   pytest {MANY}::low", f"FAILED {MANY}::low - score 0.50 < 0.80*")
    ended(project.run_toy(), 1, *named, passed=3, failed=1)
    files = {case_id: record["packbench"]["file"] for case_id, record in project.records().items()}
    lines = {"first": f"{MANY}:1", "low": f"{MANY}:3", "last": f"{MANY}:5"}
    assert files == {"alone": f"{CASES}/plain/alone.json", **lines}
    assert project.partial() == ""
    project.run_toy("-x")
    assert project.errors()["last"]["file"] == f"{MANY}:5"


def test_bad_lines_are_errors_of_their_own_and_are_not_read_for_another(
    project: Project, expected: ExpectedTexts
) -> None:
    project.case("across")
    project.case_lines(
        toy_case("many-line-2"),  # its id is like the name of a bad line
        '{"id": "torn", ',
        "no json",
        json.dumps(toy_case("wrong")).replace('"easy"', '"simple"'),
        toy_case("bad one"),
        toy_case("twin"),
        toy_case("across"),
        toy_case("twin"),
        toy_case("twin"),
    )
    result = ended(project.run_toy(), 1, passed=1, errors=9)
    assert project.partial() == ""
    assert {row["case_id"] for row in project.document()["cases"]} == {"many-line-2", *project.errors()}
    rerun = [line for line in result.outlines if line.startswith("re-run: ")]
    errors = project.lines("errors.jsonl")
    assert all(error["message"].startswith(f"{error['file']}: ") for error in errors)
    lines = [f"{error['test_id']} {error['message']}" for error in errors]
    expected.check("\n".join([*sorted(lines), *sorted(rerun), ""]))
    # one line is run without reading the others
    path = project.case_lines(toy_case("a"), '{"id": "torn", ', toy_case("b", points=0.0), "no json", toy_case("a"))
    ended(project.run(f"{path}::b"), 1, failed=1)
    assert [row["case_id"] for row in project.document()["cases"]] == ["b"]
    assert project.partial() == "1 of 6 cases selected"
    for name in ("many.line-4", "a", "many.line-5"):
        # a bad line, and two with one id
        ended(project.run(f"{MANY}::{name}"), 1, errors=1)


STRAY, QUIET, OUTSIDE = DATA["stray"], DATA["quiet"], DATA["outside"]


def test_a_file_that_nobody_reads_is_an_error_unless_the_suite_names_it(
    project: Project, expected: ExpectedTexts
) -> None:
    suite = "storage/benchmarks/toy"
    project.case("good")
    for name in (*STRAY, *QUIET):
        project.write(f"{CASES}/{name}", "")
    for name in OUTSIDE:
        project.write(f"{suite}/{name}", "pack_id: toy" if name.endswith("yaml") else json.dumps(toy_case("x")))
    for name in ("baseline.json", "policy_changes.yaml", "data.json", "fixtures/more/x.yaml", "README.json"):
        project.write(f"{suite}/{name}", '{"schedule": {"pack": 1}}')
    result = ended(project.run_toy(), 1, passed=1, errors=len(STRAY) + len(OUTSIDE))
    assert project.partial() == ""
    assert "\x1b[31m\n" not in result.stdout.str()
    assert not [line for line in result.outlines if line.startswith("::error")]
    errors = sorted(f"{error['kind']}: {error['message']}\n" for error in project.lines("errors.jsonl"))
    expected.check("".join(errors))
    for path in (f"{CASES}/c3.JSON", f"{suite}/c9.json::c9.json"):
        ended(project.run(path), 1, errors=1)
    # a case can't be ignored
    ignore = json.dumps(["c3.JSON", "*.txt", "cases/*.y*ml", "*.ndjson", "*.csv", "Makefile", "more/*", "c9.json"])
    project.write(f"{suite}/suite.yaml", f"pack: toy\nignore: {ignore[:-1]}, c12.JSON, good.json]\n")
    ended(project.run_toy(), 0, passed=1)
    assert project.partial() == ""
