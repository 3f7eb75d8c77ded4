"""How cases are found, selected and named: in a shell, under xdist, by an editor."""

from __future__ import annotations

import gc
import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.pytest_plugin.stash import ungrouped_name
from tests.integration.conftest import TOY

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.fixture
def filled(project: Project) -> Project:
    project.case("alpha", case_type="one", difficulty="hard", notes={"tags": ["x", "y"]})
    project.case("beta", case_type="one")
    project.case("gamma", case_type="two", notes={"tags": ["y"]})
    return project


TARIFF = Path(__file__).parents[2] / "storage" / "benchmarks" / "tariff"
ALPHA = "storage/benchmarks/toy/cases/one/alpha.json"


def names(result: pytest.RunResult) -> set[str]:
    return {line.rpartition("::")[2].split()[0] for line in result.outlines if ".json::" in line and "PASSED" in line}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--packbench-suite=toy",), {"alpha", "beta", "gamma"}),
        (("storage/benchmarks/toy",), {"alpha", "beta", "gamma"}),
        (("storage/benchmarks",), {"alpha", "beta", "gamma"}),
        (("storage/benchmarks/toy/cases/one",), {"alpha", "beta"}),
        ((ALPHA,), {"alpha"}),
        ((f"{ALPHA}::alpha",), {"alpha"}),
        (("--packbench-suite=toy", f"{ALPHA}::alpha"), {"alpha"}),
        (("--packbench-suite=toy", "-k", "gamma"), {"gamma"}),
        (("--packbench-suite=toy", "-m", "packbench(case_type='two')"), {"gamma"}),
        (("--packbench-suite=toy", "-m", "packbench(difficulty='hard', tag='y')"), {"alpha"}),
        (("--packbench-suite=toy", "-m", "packbench(tag='y')"), {"alpha", "gamma"}),
        (("--packbench-suite=toy", "-m", "packbench(suite='toy') and not packbench(tag='y')"), {"beta"}),
        (("--packbench-suite=toy", "--deselect", ALPHA), {"beta", "gamma"}),
    ],
)
def test_selection(filled: Project, arguments: tuple[str, ...], expected: set[str]) -> None:
    verbose = () if filled.workers else ("-v",)
    result = filled.run(*verbose, *arguments)
    result.assert_outcomes(
        passed=len(expected),
        deselected=None
        if filled.workers
        else 3 - len(expected)
        if "-k" in arguments or "-m" in arguments or "--deselect" in arguments
        else 0,
    )
    assert result.ret == pytest.ExitCode.OK
    ran = {line["packbench"]["case_id"] for line in filled.lines("records.jsonl")}
    assert ran == expected
    if verbose:
        assert names(result) == expected


def test_a_plain_pytest_collects_no_benchmark(filled: Project) -> None:
    filled.pytester.makepyfile(test_own="def test_own(): pass")
    result = filled.run()
    result.assert_outcomes(passed=1)
    assert not (filled.root / "reports").exists()


def test_a_suite_runs_beside_tests(filled: Project) -> None:
    path = filled.pytester.makepyfile(test_own="def test_own(): pass")
    result = filled.run("--packbench-suite=toy", str(path))
    result.assert_outcomes(passed=4)


def test_last_failed(filled: Project) -> None:
    filled.case("beta", case_type="one", points=0.0)
    filled.run_toy().assert_outcomes(passed=2, failed=1)
    result = filled.run_toy("--lf")
    assert result.parseoutcomes()["failed"] == 1
    assert "passed" not in result.parseoutcomes()


def test_collect_only_writes_nothing(filled: Project) -> None:
    filled.run_toy()
    before = filled.folders()
    result = filled.run_toy("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK
    if not filled.workers:
        result.stdout.fnmatch_lines([f"{ALPHA}::alpha", "*3 tests collected*"])
    assert filled.folders() == before


def test_from_another_folder(filled: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (filled.root / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(filled.root / "deep" / "er")
    result = filled.run("--packbench-suite=toy", f"--rootdir={filled.root}")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["reports: ../../reports/benchmarks/toy/*"])
    result = filled.run("../../storage/benchmarks/toy/cases/one/alpha.json::alpha", f"--rootdir={filled.root}")
    result.assert_outcomes(passed=1)


def test_an_absolute_id_works_again_as_an_argument(filled: Project) -> None:
    result = filled.run(f"{filled.root / ALPHA}::alpha", f"--rootdir={filled.root}")
    result.assert_outcomes(passed=1)


def test_a_folder_without_rules_is_named_with_what_to_rename(plain: Project) -> None:
    folder = plain.suite("other")
    (folder / "suite.yaml").rename(folder / "suite.yml")
    result = plain.run("--packbench-suite=other")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "storage/benchmarks/other has no suite.yaml; rename suite.yml in it; suites under storage/benchmarks: toy"
    result.stderr.fnmatch_lines([f"ERROR: --packbench-suite: {said}"])


def test_a_root_that_is_not_there_is_named(plain: Project) -> None:
    result = plain.run_toy("-o", "packbench_root=stroage")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = 'unknown suite "toy": the folder stroage does not exist; set packbench_root, or start pytest in its parent folder'
    result.stderr.fnmatch_lines([f"ERROR: --packbench-suite: {said}; bundled suites: *"])


@pytest.mark.parametrize(
    "arguments", [("--packbench-suite=tou",), ("--packbench-suite=toy,tou",), ("--packbench-suite=../toy",)]
)
def test_an_unknown_suite_is_a_usage_error_that_lists_the_known(project: Project, arguments: tuple[str, ...]) -> None:
    project.suite("other")
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --packbench-suite: unknown suite *suites under storage/benchmarks: other, toy"]
    )
    result.stderr.no_fnmatch_line("*Traceback*")


def test_a_named_suite_without_cases_is_never_green(project: Project) -> None:
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(['*suite "toy" has no case under*', "*toy: FAILED*"])
    assert project.folders() == []


def test_a_suite_without_cases_fails_beside_one_with_cases(filled: Project) -> None:
    filled.suite("empty")
    result = filled.run("--packbench-suite=toy,empty")
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_several_suites_share_a_run_id_and_have_a_folder_each(filled: Project) -> None:
    filled.suite("more", "pack: toy\ngates: [{metric: mean_score, min: 0.9}]\n")
    filled.case("low", suite="more", points=0.85)
    result = filled.run("--packbench-suite=toy", "--packbench-suite=more")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert filled.left("toy").name == filled.left("more").name
    assert [test["nodeid"] for test in filled.report("more")["tests"]] == [
        "storage/benchmarks/more/cases/plain/low.json::low"
    ]
    assert filled.report("more")["summary"]["total"] == 1


def test_bad_suite_rules_are_a_usage_error(project: Project) -> None:
    project.suite("toy", "pack: toy\nthreshold: 1\n")
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ['ERROR: storage/benchmarks/toy/suite.yaml: /threshold: unknown key "threshold"; did you mean "thresholds"?']
    )


def test_the_list_of_suites(filled: Project) -> None:
    filled.suite("broken", "pack: nothing\n")
    result = filled.run("--packbench-list")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        [
            "suites under storage/benchmarks: 2",
            "  broken: 0 cases; can't be used:*unknown pack*",
            "  toy: 3 cases (one 2, two 1); pack toy: a toy",
        ]
    )


def test_suite_and_root_by_ini_and_environment(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.case("alpha")
    (plain.root / "storage" / "benchmarks").rename(plain.root / "elsewhere")
    plain.pytester.makeini("[pytest]\npackbench_root = elsewhere\npackbench_output = out\n")
    monkeypatch.setenv("PACKBENCH_SUITE", "toy")
    plain.run().assert_outcomes(passed=1)
    assert (plain.root / "out" / "toy" / "latest").exists()


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest reads [tool.pytest] from 9.0 on")
def test_native_toml(plain: Project) -> None:
    plain.case("alpha")
    (plain.root / "tox.ini").unlink()
    plain.pytester.makepyprojecttoml(
        '[tool.pytest]\nstrict = true\npackbench_suite = ["toy"]\npackbench_stale = "error"\n'
    )
    plain.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PACKBENCH_GATE", "none", "environment variable PACKBENCH_GATE: got 'none'; expected one of case, suite"),
        ("PACKBENCH_MODE", "dead", "PACKBENCH_MODE: got 'dead'; expected one of fixture, live, record"),
        ("PACKBENCH_STALE", "x", "environment variable PACKBENCH_STALE: got 'x'; expected one of warn, error"),
        ("PACKBENCH_TARGET", "no.such:thing", 'target "no.such:thing": No module named'),
    ],
)
def test_a_wrong_setting_names_its_source(
    plain: Project, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    plain.case("alpha")
    monkeypatch.setenv(variable, value)
    result = plain.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_a_target_from_the_project(plain: Project) -> None:
    plain.case("alpha", points=0.0)
    plain.pytester.makepyfile(
        mine="class Mine:\n    async def verify(self, request):\n        return {'points': 0.9}\n\npipeline = Mine()\n"
    )
    plain.run_toy("--packbench-target=mine:pipeline").assert_outcomes(passed=1)
    (record,) = plain.lines("records.jsonl")
    assert record["packbench"]["target"] == "mine:pipeline"


def test_what_editors_need(plain: Project) -> None:
    path = plain.case("alpha")
    items, _ = plain.pytester.inline_genitems("--packbench-suite=toy")
    (item,) = items
    assert isinstance(item.parent, pytest.File)
    assert item.parent.path == path
    assert "::" in item.nodeid
    assert not hasattr(item, "callspec")
    assert item.location == ("storage/benchmarks/toy/cases/plain/alpha.json", 0, "alpha")


def test_the_wheels_suites_are_used_only_where_the_project_has_none(
    plain: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain.case("alpha")
    bundled = tmp_path_factory.mktemp("site") / "_suites"
    (plain.root / "storage" / "benchmarks").rename(bundled)
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", bundled)
    result = plain.run_toy("-rA")
    result.assert_outcomes(passed=1)
    nodeid = f"{bundled}/toy/cases/plain/alpha.json::alpha"
    result.stdout.fnmatch_lines(["packbench: suite toy (bundled)*", f"PASSED {nodeid}"])
    (record,) = plain.lines("records.jsonl")
    assert record["packbench"]["bundled"] is True
    (plain.root / "storage" / "benchmarks").mkdir(parents=True)
    assert plain.run_toy().ret == pytest.ExitCode.USAGE_ERROR


def test_junit_carries_scores(filled: Project) -> None:
    filled.run_toy("--junitxml=out.xml")
    text = (filled.root / "out.xml").read_text("utf-8")
    assert '<property name="score" value="1.0"' in text
    assert '<property name="case_type" value="two"' in text


def test_the_users_own_json_report_is_left_alone(filled: Project) -> None:
    filled.run_toy("--json-report", "--json-report-file=mine.json", "--json-report-omit=log")
    mine = json.loads((filled.root / "mine.json").read_text("utf-8"))
    assert "packbench" not in mine
    assert len(mine["tests"]) == 3
    assert filled.report()["packbench"]["run"]["run_id"] == filled.left().name


def test_without_the_json_report_plugin(filled: Project) -> None:
    result = filled.run_toy("-p", "no:pytest_jsonreport")
    result.assert_outcomes(passed=3)
    assert filled.report()["packbench"]["totals"]["verdicts"]["passed"] == 3


def test_verbose_shows_scores_and_the_summary_keeps_pytests_words(filled: Project) -> None:
    filled.case("beta", case_type="one", points=0.25)
    result = filled.run_toy("-v")
    path = "storage/benchmarks/toy/cases/one/beta.json::beta"
    wanted = f"*FAILED 0.25*{path}*" if filled.workers else f"{path} FAILED 0.25*"
    result.stdout.fnmatch_lines([wanted])
    result.stdout.fnmatch_lines([f"FAILED {path} - score 0.25 < 0.80*"])
    result.stdout.no_fnmatch_line("*auto-save*")


@pytest.mark.parametrize("dist", ["load", "loadgroup"])
def test_an_at_sign_in_a_file_name_makes_no_other_case(plain: Project, dist: str) -> None:
    plain.case("alpha")
    plain.case("mail@work")
    many = plain.root / "storage" / "benchmarks" / "toy" / "cases" / "at@home.jsonl"
    many.write_text("{\n", "utf-8")
    with (plain.root / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(GROUPING)
    result = plain.run_toy("-n", "2", f"--dist={dist}")
    result.assert_outcomes(passed=1, errors=2)
    assert plain.report()["packbench"]["run"]["partial"] == ""
    assert len(plain.report()["packbench"]["cases"]) == 3


def test_a_group_is_taken_off_behind_the_name_of_the_file() -> None:
    assert ungrouped_name("a@g", "a") == ungrouped_name("a@g", "other") == "a"
    assert ungrouped_name("mail@work", "mail@work") == ungrouped_name("mail@work@g", "mail@work") == "mail@work"


# before xdist looks for groups
GROUPING = """
def pytest_itemcollected(item):
    if item.name != "alpha":
        item.add_marker(pytest.mark.xdist_group("g"))
"""


@pytest.mark.parametrize("option", ["--verbose", "--ignore=storage/benchmarks/toy/cases/two"])
def test_folders_of_cases_may_have_any_name_that_is_not_hidden(filled: Project, option: str) -> None:
    for name in ("build", "dist", "node_modules", "venv", ".hidden", "__pycache__"):
        filled.case(f"in_{name.replace('.', '_')}", case_type=name)
    filled.pytester.makeini("[pytest]\nnorecursedirs = build two\n" if filled.workers else "[pytest]\n")
    ignored = option.startswith("--ignore")
    filled.run_toy(option).assert_outcomes(passed=6 if ignored else 7)
    assert filled.report()["packbench"]["run"]["partial"] == ("6 of 7 cases selected" if ignored else "")


def test_cases_behind_links_are_run_and_counted_alike(filled: Project) -> None:
    outside = filled.root / "outside"
    shutil.copytree(filled.root / "storage" / "benchmarks" / "toy" / "cases" / "two", outside / "deep")
    (outside / "deep" / "gamma.json").rename(outside / "deep" / "delta.json")
    text = (outside / "deep" / "delta.json").read_text("utf-8")
    (outside / "deep" / "delta.json").write_text(text.replace("gamma", "delta"), "utf-8")
    (outside / "deep" / "back").symlink_to(outside)
    cases = filled.root / "storage" / "benchmarks" / "toy" / "cases"
    (cases / "linked").symlink_to("../../../../outside")
    (cases / "same").symlink_to(outside / "deep")
    (cases / "up").symlink_to(cases)
    (cases / "one" / "self.json").symlink_to("self.json")
    result = filled.run_toy()
    result.assert_outcomes(passed=4, errors=1)
    assert filled.report()["packbench"]["run"]["partial"] == ""
    shutil.rmtree(filled.root / "reports")
    filled.run_toy("-k", "not gamma").assert_outcomes(passed=3, errors=1, deselected=None)
    assert filled.report()["packbench"]["run"]["partial"] == "4 of 5 cases selected"
    shutil.rmtree(filled.root / "reports")
    nodeid = "storage/benchmarks/toy/cases/same/delta.json::delta"
    filled.run(nodeid).assert_outcomes(passed=1)
    assert filled.report()["packbench"]["run"]["partial"] == "1 of 5 cases selected"


def test_a_bundled_case_by_its_path_writes_nothing_into_the_wheel(
    plain: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bundled = tmp_path_factory.mktemp("site") / "_suites"
    shutil.copytree(TARIFF, bundled / "tariff")
    shutil.rmtree(plain.root / "storage")
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", bundled)
    case = next(iter(sorted(bundled.glob("tariff/cases/*/*.json"))))
    plain.run(f"{case}::{case.stem}").assert_outcomes(passed=1)
    assert plain.lines("records.jsonl", "tariff")
    assert not list(bundled.rglob("reports"))


@pytest.mark.parametrize(
    ("arguments", "conftest"),
    [
        ((f"--ignore={ALPHA}",), ""),
        (("--ignore-glob=*alph*",), ""),
        ((), "collect_ignore = ['alpha.json']"),
        ((), "collect_ignore_glob = ['al*']"),
        ((), "def pytest_ignore_collect(collection_path): return collection_path.name == 'alpha.json' or None"),
    ],
)
def test_what_is_ignored_is_not_collected(plain: Project, arguments: tuple[str, ...], conftest: str) -> None:
    plain.case("alpha", case_type="one")
    plain.case("beta", case_type="one")
    (plain.root / "storage/benchmarks/toy/cases/one/conftest.py").write_text(conftest, "utf-8")
    plain.run_toy(*arguments).assert_outcomes(passed=1)
    assert [one["packbench"]["case_id"] for one in plain.lines("records.jsonl")] == ["beta"]


def test_a_folder_of_cases_may_hold_other_things(project: Project) -> None:
    alpha = project.case("alpha", case_type="one")
    project.case("beta", case_type="one")
    folder = project.root / "storage/benchmarks/toy/cases/one"
    (folder / "deep").mkdir()
    alpha.rename(folder / "deep" / "alpha.json")
    (folder / "notes.md").write_text("no case", "utf-8")
    (folder / "test_words.py").write_text("def test_one(): pass\n", "utf-8")
    (folder / "lost.json").symlink_to(folder / "nowhere.json")
    project.run_toy().assert_outcomes(passed=3, errors=1)
    said = {one["test_id"]: one["message"] for one in project.lines("errors.jsonl")}
    assert "cannot be read: No such file or directory" in said["toy:one:lost"]


def test_a_model_that_breaks_on_one_case_hides_no_other(project: Project) -> None:
    fragile = """
        from pydantic import field_validator
        from pytest_packbench.model.case import Case

        class Fragile(Case):
            @field_validator("input", mode="before")
            @classmethod
            def look(cls, value):
                return {**value, "half": 1 / value.get("n", 1)}

        Toy.case_model = Fragile
        """
    project.pytester.makeconftest(TOY + textwrap.dedent(fragile))
    project.case("alpha", case_type="one", n=0)
    project.case("beta", case_type="one")
    project.run_toy().assert_outcomes(passed=1, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["kind"] == "case_unreadable"
    assert "alpha.json: the pack's Fragile raised ZeroDivisionError: division by zero" in line["message"]


def test_cases_are_out_of_garbage_collections_way_as_long_as_they_run(project: Project) -> None:
    before = gc.get_threshold()
    project.case("alpha", python="import gc; assert gc.get_freeze_count() > 1000")
    project.run_toy().assert_outcomes(passed=1)
    assert gc.get_threshold() == before
    gc.collect()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("arguments", [("--packbench-suite=toy",), (ALPHA, "storage/benchmarks/toy/cases/two")])
def test_each_case_has_its_file_above_it(filled: Project, arguments: tuple[str, ...]) -> None:
    look = """
        def pytest_collection_finish(session):
            for item in session.items:
                file, folder = item.parent, item.parent.parent
                assert isinstance(file, pytest.File) and isinstance(folder, pytest.Directory)
                assert (file.path, file.name, folder.path) == (item.path, item.path.name, item.path.parent)
                assert item.nodeid == file.nodeid + "::" + item.name
        """
    filled.pytester.makeconftest(TOY + textwrap.dedent(look))
    filled.run(*arguments).assert_outcomes(passed=3 if len(arguments) == 1 else 2)


def test_a_folders_conftest_counts_for_its_cases_alone(plain: Project) -> None:
    plain.case("alpha", case_type="one")
    plain.case("gamma", case_type="two")
    deep = plain.root / "storage/benchmarks/toy/cases/one/deep"
    deep.mkdir()
    plain.case("beta", case_type="one").rename(deep / "beta.json")
    hook = "def pytest_runtest_setup(item): item.user_properties.append((__file__.split('/')[-2], 1))\n"
    for folder in ("one", "one/deep"):
        (plain.root / "storage/benchmarks/toy/cases" / folder / "conftest.py").write_text(hook, "utf-8")
    seen = """
        import json

        def pytest_runtest_logreport(report):
            if report.when == "call":
                names = [name for name, _ in report.user_properties if name in {"one", "deep"}]
                with open("seen.txt", "a") as file:
                    file.write(report.nodeid.rpartition("::")[2] + ": " + " ".join(sorted(names)) + "\\n")
        """
    plain.pytester.makeconftest(TOY + textwrap.dedent(seen))
    plain.run_toy()
    assert (plain.root / "seen.txt").read_text("utf-8").splitlines() == ["alpha: one", "beta: deep one", "gamma: "]
