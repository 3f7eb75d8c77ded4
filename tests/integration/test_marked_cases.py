"""Tests in the pytest way: the mark `packbench_cases`, plain and under xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.pytest_plugin.marked
from pytest_packbench.pytest_plugin.stash import ungrouped

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

# pytester forgets what a run imported: what is imported here is imported once
_WARM = pytest_packbench.pytest_plugin

BODY = """
import pytest

@pytest.fixture
def target():
    def act(order):
        exec(order.get("python", ""))
        return {"points": order.get("points", 1.0), "word": order.get("word", ""), "down": order.get("down", False)}
    return act

@pytest.mark.packbench_cases("toy")
def test_toy(packbench_case, packbench_check, target):
    packbench_check(target(packbench_case.input))
"""


def write(project: Project, text: str = BODY, name: str = "test_own.py") -> Path:
    path = project.root / name
    path.write_text(text, encoding="utf-8")
    return path


def write_marked_test(
    project: Project, body: str, mark: str = '"toy"', takes: str = "packbench_case, packbench_check"
) -> Path:
    """One marked function with the body given, a line each."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return write(project, f"import pytest\n\n@pytest.mark.packbench_cases({mark})\ndef test_toy({takes}):\n{lines}\n")


def test_passed_and_failed(project: Project) -> None:
    write(project)
    project.case("good", points=0.8)
    project.case("bad", points=0.3)
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "score 0.30 < 0.80 (points)",
            "*points  1.0*0.3*",
            "0.30  score (threshold 0.80)",
            "test:   test_own.py::test_toy",
            "case:   storage/benchmarks/toy/cases/plain/bad.json",
            "re-run: pytest 'test_own.py::test_toy[[]bad]'",
            "*packbench: toy*",
        ]
    )
    records = {record["test_id"]: record for record in project.lines("records.jsonl")}
    assert {name: record["passed"] for name, record in records.items()} == {
        "toy:plain:good": True,
        "toy:plain:bad": False,
    }
    own = records["toy:plain:good"]["packbench"]
    assert own["target"] == "test:test_own.py::test_toy"
    assert own["file"] == "storage/benchmarks/toy/cases/plain/good.json"
    assert own["facets"] == {"colour": "red"}
    assert {record["run_id"] for record in records.values()} == {project.left().name}
    assert (project.left().parent / "latest").read_text("utf-8").strip() == project.left().name
    document = project.report()
    assert {test["nodeid"]: test["outcome"] for test in document["tests"]} == {
        "test_own.py::test_toy[good]": "passed",
        "test_own.py::test_toy[bad]": "failed",
    }
    assert document["packbench"]["run"]["target"] == "test:test_own.py::test_toy"


def test_each_verdict_as_for_items_from_files(project: Project) -> None:
    write(project)
    project.case("good")
    project.case("down", down=True)
    project.case("crash", word="crash")
    project.case("empty", word="vacuous")
    project.case("hole", word="known_hole")
    project.case("raises", python="1 / 0")
    project.case("leaves", python="import pytest; pytest.skip('no licence here')")
    project.case("set_aside", notes={"skip": "gold in doubt"})
    project.case("odd", points=0.1, notes={"xfail": "schedule changed"})
    project.case("typo").write_text("{", encoding="utf-8")
    result = project.run("-rsx", "--junitxml=junit.xml", "-v")
    result.assert_outcomes(passed=1, skipped=2, xfailed=2, errors=5)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random(
        ["*PASSED 1.00*", "*gold in doubt*", "*schedule changed*score 0.10 < 0.80*", "*said known_hole*"]
    )
    said = {line["case"]: (line["verdict"], line["kind"], line["message"]) for line in errors(project)}
    assert {name: one[:2] for name, one in said.items()} == {
        "down": ("error", "timeout"),
        "crash": ("error", "scorer_error"),
        "empty": ("vacuous", "vacuous"),
        "hole": ("known_hole", "known_hole"),
        "raises": ("error", "target_error"),
        "leaves": ("not_run", "skipped_elsewhere"),
        "set_aside": ("not_run", "skip"),
        "odd": ("known_hole", "xfail"),
        "typo": ("error", "case_unreadable"),
    }
    assert said["raises"][2] == "the test raised ZeroDivisionError before the check: division by zero"
    assert [record["test_id"] for record in project.lines("records.jsonl")] == ["toy:plain:good"]
    junit = (project.root / "junit.xml").read_text("utf-8")
    assert (junit.count("<error"), junit.count("<failure")) == (5, 0)
    assert '<property name="verdict" value="vacuous"' in junit
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.no_fnmatch_line("*pytest_plugin/marked.py*")


def errors(project: Project) -> list[dict[str, Any]]:
    return [{**line, "case": line["test_id"].rpartition(":")[2]} for line in project.lines("errors.jsonl")]


def test_gates_alone_decide(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 0.6}]\n")
    write(project)
    project.case("bad", points=0.3)
    project.case("good")
    result = project.run("--packbench-gate=suite", "-rx")
    result.assert_outcomes(passed=1, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*pass_rate 1 / 2 = 50.0 % < min 60.0 %*FAIL", "XFAIL*toy[[]bad]*score 0.30 < 0.80*"])


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("pass", "never_checked", "the test did not call packbench_check(result)"),
        ("packbench_check({'points': 1})\npackbench_check({'points': 1})", "checked_twice", "was called twice"),
        (
            "packbench_check({'points': 1})\ntry: packbench_check({'points': 1})\nexcept BaseException: pass",
            "checked_twice",
            "was called twice",
        ),
        ("packbench_check(object())", "result_unreadable", "result is not JSON"),
        ("packbench_check({})", "result_unreadable", "/points: is missing"),
        ("assert packbench_case.id == 'other', 'not mine'", "target_error", "the test raised AssertionError before"),
    ],
)
def test_a_test_that_measures_nothing_is_an_error(plain: Project, body: str, kind: str, words: str) -> None:
    write_marked_test(plain, body)
    plain.case("one")
    result = plain.run()
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = plain.lines("errors.jsonl")
    assert (line["verdict"], line["kind"]) == ("error", kind)
    assert words in line["message"]
    assert plain.lines("records.jsonl") == []


@pytest.mark.parametrize("points", [0.3, 1.0])
def test_a_failure_can_not_be_swallowed(plain: Project, points: float) -> None:
    write_marked_test(plain, f"try: packbench_check({{'points': {points}}})\nexcept Exception: pass")
    plain.case("one")
    result = plain.run()
    result.assert_outcomes(passed=int(points == 1.0), failed=int(points < 1.0))
    (record,) = plain.lines("records.jsonl")
    assert record["passed"] is (points == 1.0)


def test_a_fixture_that_breaks_is_an_error_of_the_case(plain: Project) -> None:
    write(plain, BODY.replace("    def act(order)", "    raise OSError('no\\nserver')\n    def act(order)"))
    plain.case("one")
    result = plain.run()
    result.assert_outcomes(errors=1)
    (line,) = plain.lines("errors.jsonl")
    assert (line["kind"], line["message"]) == ("target_error", "a fixture raised OSError before the check: no")


def test_what_the_test_asserts_after_the_check_changes_no_record(plain: Project) -> None:
    write_marked_test(
        plain, "score = packbench_check({'points': 1.0})\nassert score.score == 1.0\nassert False, 'not fit for us'"
    )
    plain.case("one")
    result = plain.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not fit for us*"])
    (record,) = plain.lines("records.jsonl")
    assert record["passed"] is True


def test_a_users_xfail_hides_no_breakdown(plain: Project) -> None:
    path = write_marked_test(plain, "raise OSError('no server')")
    path.write_text(path.read_text("utf-8").replace("@pytest", "@pytest.mark.xfail\n@pytest", 1), encoding="utf-8")
    plain.case("one")
    result = plain.run()
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*completeness 0 / 1 = 0.0 % < min 100.0 %: FAIL*"])


def test_a_check_in_a_fixture_fails_the_test_and_breaks_nothing(plain: Project) -> None:
    write(
        plain,
        """
import pytest

@pytest.fixture(autouse=True)
def checked(packbench_case, packbench_check):
    packbench_check(packbench_case.input)

@pytest.mark.packbench_cases("toy")
def test_toy():
    pass
""",
    )
    plain.case("good", points=1.0)
    plain.case("bad", points=0.3)
    result = plain.run()
    result.assert_outcomes(passed=1, failed=1)


def test_the_suites_files_are_collected_only_when_they_are_asked_for(project: Project) -> None:
    write(project)
    project.suite("other")
    project.case("good")
    project.case("theirs", suite="other")
    project.run().assert_outcomes(passed=1)
    assert project.folders("other") == []
    result = project.run("test_own.py", "--packbench-suite=other", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*test_own.py::test_toy[[]good]*", "*theirs.json::theirs*"])
    (folder,) = project.folders("other")
    assert folder.name in {one.name for one in project.folders("toy")}
    assert len(project.folders("toy")) == 2


def test_a_case_that_stands_twice_is_an_error_that_names_both(project: Project) -> None:
    write(project)
    project.case("good")
    project.case("alone", case_type="spare")
    result = project.run("test_own.py", "storage/benchmarks/toy/cases/plain")
    result.assert_outcomes(passed=1, errors=2)
    messages = {line["message"] for line in project.lines("errors.jsonl")}
    mine, file = "test_own.py::test_toy[good]", "storage/benchmarks/toy/cases/plain/good.json::good"
    assert any(f"is run twice, by {mine} and by {file}; select one" in one for one in messages)
    assert any(f"is run twice, by {file} and by {mine}; select one" in one for one in messages)
    assert {record["test_id"] for record in project.lines("records.jsonl")} == {"toy:spare:alone"}


def test_variants_are_runs_of_their_own(project: Project) -> None:
    path = write_marked_test(
        project, 'packbench_check({"points": share})', takes="packbench_case, packbench_check, share"
    )
    text = path.read_text("utf-8").replace(
        "@pytest", '@pytest.mark.parametrize("share", [0.9, 0.3], ids=["big", "small@x"])\n@pytest', 1
    )
    path.write_text(text, encoding="utf-8")
    project.case("one")
    result = project.run()
    result.assert_outcomes(errors=2)
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"case_twice"}
    project.run("-k", "big").assert_outcomes(passed=1)
    project.run("-k", "small", "--dist=loadgroup").assert_outcomes(failed=1)
    runs = project.folders()[1:]
    assert [(run / "records.jsonl").read_text("utf-8").count('"test_id":"toy:plain:one"') for run in runs] == [1, 1]


def test_filters_and_selection(plain: Project) -> None:
    plain.case("a", case_type="one", difficulty="hard", notes={"tags": ["x", "y"]})
    plain.case("b", case_type="one", notes={"tags": ["y"]})
    plain.case("lone", case_type="two", difficulty="hard")
    plain.case("broken", case_type="two").write_text("{", encoding="utf-8")
    for mark, wanted in (
        ('"toy", case_type="one"', ["a", "b"]),
        ('"toy", tag=["x", "z"], difficulty="hard"', ["a", "broken"]),
        ('"toy", case_type=("two", "three")', ["lone", "broken"]),
    ):
        write_marked_test(plain, "packbench_check({'points': 1})", mark)
        found = plain.run("--collect-only", "-q").stdout.str()
        assert [one for one in ("a", "b", "lone", "broken") if f"[{one}]" in found] == wanted
    write_marked_test(plain, "packbench_check({'points': 1})")
    plain.run("-m", "packbench(difficulty='hard', tag='x')").assert_outcomes(passed=1, deselected=3)
    plain.run("-k", "lone or broken").assert_outcomes(passed=1, errors=1, deselected=2)
    plain.run("test_own.py::test_toy[b]").assert_outcomes(passed=1)
    summary = (plain.folders()[-1] / "summary.md").read_text("utf-8")
    assert "1 of 4 cases selected" in summary


def test_several_suites_and_marks(plain: Project) -> None:
    plain.suite("other")
    plain.case("same", case_type="one")
    plain.case("left_out", case_type="two")
    plain.case("same", suite="other")
    path = write_marked_test(plain, "packbench_check({'points': 1})", '"toy", case_type="one"')
    text = path.read_text("utf-8").replace(
        "@pytest", '@pytest.mark.packbench_cases("toy", "other", case_type=["plain", "one"])\n@pytest'
    )
    path.write_text(text.replace('"toy", "other"', '"other"'), encoding="utf-8")
    result = plain.run("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_toy[[]other-same] PASSED*", "*test_toy[[]toy-same] PASSED*"])
    assert [record["test_id"] for record in plain.lines("records.jsonl", "other")] == ["other:plain:same"]
    write_marked_test(plain, "packbench_check({'points': 1})", '"toy", "other"')
    plain.run().assert_outcomes(passed=3)


def test_stopped_early_is_not_run(project: Project) -> None:
    write(project)
    for number in range(9):
        project.case(f"c{number}", points=0.0)
    result = project.run("-x")
    assert result.ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    left = project.lines("errors.jsonl")
    assert {line["verdict"] for line in left} == {"not_run"}
    assert len(left) + len(project.lines("records.jsonl")) == 9
    assert not (project.left().parent / "latest").exists()


def test_last_failed(plain: Project) -> None:
    write(plain)
    plain.case("good")
    plain.case("bad", points=0.3)
    plain.case("broken", down=True)
    plain.run("-p", "cacheprovider").assert_outcomes(passed=1, failed=1, errors=1)
    plain.run("-p", "cacheprovider", "--lf").assert_outcomes(failed=1, errors=1)


def test_a_dead_worker_is_an_error_of_its_case(plain: Project) -> None:
    write(plain)
    plain.case("a_killer", python="import os; os._exit(9)")
    plain.case("good")
    plain.case("well")
    result = plain.run("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = plain.lines("errors.jsonl")
    assert (line["test_id"], line["kind"]) == ("toy:plain:a_killer", "worker_crashed")
    assert {record["test_id"] for record in plain.lines("records.jsonl")} == {"toy:plain:good", "toy:plain:well"}
    assert len(plain.report()["tests"]) == 3


def test_a_worker_that_dies_before_it_could_tell_anything(plain: Project) -> None:
    write(plain, BODY.replace("    def act(order)", "    import os; os._exit(9)\n    def act(order)"))
    plain.case("killer")
    assert plain.run("-n", "1").ret == pytest.ExitCode.TESTS_FAILED
    (line,) = plain.lines("errors.jsonl")
    assert (line["test_id"], line["kind"]) == ("toy:plain:killer", "worker_crashed")


def test_groups_of_xdist(plain: Project) -> None:
    path = write(plain)
    path.write_text(
        path.read_text("utf-8").replace("@pytest.mark", '@pytest.mark.xdist_group("g")\n@pytest.mark', 1),
        encoding="utf-8",
    )
    plain.case("good")
    plain.case("down", down=True)
    plain.run("-n", "2", "--dist=loadgroup").assert_outcomes(passed=1, errors=1)
    assert plain.report()["packbench"]["totals"]["verdicts"]["not_run"] == 0
    assert len(plain.report()["tests"]) == 2


def test_classes_and_async_tests(plain: Project) -> None:
    write(
        plain,
        """
import pytest

class TestToy:
    @pytest.mark.packbench_cases("toy")
    def test_method(self, packbench_request, packbench_check):
        packbench_check(packbench_request.input)

@pytest.mark.anyio
@pytest.mark.packbench_cases("other")
async def test_async(packbench_case, packbench_check):
    import anyio
    await anyio.sleep(0)
    packbench_check(packbench_case.input)

@pytest.fixture
def anyio_backend():
    return "asyncio"
""",
    )
    plain.suite("other")
    plain.case("good", points=1.0)
    plain.case("bad", suite="other", points=0.3)
    result = plain.run("-p", "anyio")
    result.assert_outcomes(passed=1, failed=1)
    (record,) = plain.lines("records.jsonl")
    assert record["packbench"]["target"] == "test:test_own.py::TestToy::test_method"


def test_live_mode_is_the_sessions_and_hides_secrets(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "very-hidden-value")
    write_marked_test(
        project,
        "packbench_check({'points': 1, 'said': 'very-hidden-value', 'llm_backend': 'openai', 'llm_model': 'm'})",
    )
    project.case("one")
    project.case("two").write_text("{", encoding="utf-8")
    project.run("--packbench-mode=live").assert_outcomes(passed=1, errors=1)
    (record,) = project.lines("records.jsonl")
    assert (record["packbench"]["mode"], record["llm_backend"], record["llm_model"]) == ("live", "openai", "m")
    assert "very-hidden-value" not in (project.left() / "payloads.jsonl").read_text("utf-8")


def test_a_run_of_nothing_but_errors_names_its_target(project: Project) -> None:
    write(project, BODY.replace("packbench_check(target", "str(target"))
    project.case("one", points=1.0)
    project.run("--packbench-mode=live").assert_outcomes(errors=1)
    assert project.report()["packbench"]["run"]["target"] == "test:test_own.py::test_toy"


def test_the_cap_of_a_run_stops_marked_tests(plain: Project) -> None:
    write(plain)
    plain.case("one")
    plain.run("--packbench-max-seconds=0.000001").assert_outcomes(skipped=1)
    (line,) = plain.lines("errors.jsonl")
    assert (line["verdict"], line["kind"]) == ("not_run", "max_seconds")


@pytest.mark.parametrize(
    ("mark", "options", "words"),
    [
        ('"toyy"', (), 'unknown suite "toyy" (did you mean "toy"?); suites under storage*toy'),
        ("", (), "got packbench_cases(); expected names of suites"),
        ('"toy", kind="plain"', (), 'unknown argument "kind"; expected one of case_type, difficulty, tag'),
        ('"toy", tag=3', (), "expected a string for tag, or a list of strings"),
        ('"toy", tag="t", case_type=["p", "q"]', (), 'suite "toy" has no case with tag t, case_type p or q'),
        ('"bad"', (), "storage/benchmarks/bad/suite.yaml: /pack: *"),
        ('"toy"', ("--packbench-mode=record",), "--packbench-mode=record: a marked test calls its model itself*"),
        ('"toy"', ("--packbench-mode=live", "--packbench-trials=2"), "--packbench-trials: got 2; a marked test*"),
    ],
)
def test_a_mark_that_can_not_be_used_is_one_line(
    plain: Project, mark: str, options: tuple[str, ...], words: str
) -> None:
    write_marked_test(plain, "pass", mark)
    plain.suite("bad", "pack: nobodys\n")
    plain.case("one")
    result = plain.run(*options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR collecting test_own.py*", f"test_own.py::test_toy: packbench_cases: *{words}*"]
    )
    assert plain.folders() == []


def test_a_session_that_can_not_be_joined_is_refused_to_each_test(plain: Project) -> None:
    write(plain)
    write(plain, name="test_more.py")
    plain.case("one")
    result = plain.run("--packbench-resume=nobody", "--continue-on-collection-errors")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [f"{name}.py::test_toy: packbench_cases: --packbench-resume*" for name in ("test_more", "test_own")]
    )


def test_a_run_with_tests_of_the_users_own_is_not_resumed(project: Project) -> None:
    write_marked_test(project, 'packbench_check({"points": 1.0})', '"toy", case_type="own"')
    project.case("mine", case_type="own")
    project.case("down", case_type="theirs", down=True)
    both = ("test_own.py", "storage/benchmarks/toy/cases/theirs")
    project.run(*both).assert_outcomes(passed=1, errors=1)
    result = project.run(*both, "--packbench-resume=latest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            'ERROR: --packbench-resume: run 01* of suite "toy" has tests marked with packbench_cases, which can\'t be resumed; start a new run'
        ]
    )


def test_a_group_of_xdist_is_no_part_of_a_node_id() -> None:
    known = {"test_own.py::test_toy[a@b]"}
    assert ungrouped("test_own.py::test_toy[a@b]@group", known) in known
    assert ungrouped("test_own.py::test_toy[a@b]", known) in known
    assert ungrouped("test_own.py::test_other", known) == "test_own.py::test_other"


def test_an_unknown_suite_under_xdist(plain: Project) -> None:
    write_marked_test(plain, "pass", '"toyy"')
    result = plain.run("-n", "2")
    result.stdout.fnmatch_lines(["test_own.py::test_toy: packbench_cases: unknown suite *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_tests_that_can_not_check_are_told(plain: Project) -> None:
    plain.case("one")
    write_marked_test(plain, "pass", takes="")
    plain.run().stdout.fnmatch_lines(
        ["test_own.py::test_toy: packbench_cases: the test does not use the fixture packbench_check*"]
    )
    write(plain, "def test_bare(packbench_check): pass\n")
    result = plain.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["packbench_case: the test needs the mark @pytest.mark.packbench_cases*"])
    write(
        plain,
        """
import pytest, unittest

class TestOld(unittest.TestCase):
    @pytest.mark.packbench_cases("toy")
    def test_toy(self):
        pass
""",
    )
    result = plain.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*packbench_cases: a unittest.TestCase can't use fixtures*"])


def test_cases_of_one_id_name_each_other(plain: Project) -> None:
    write(plain)
    plain.case("twin", case_type="one")
    plain.case("twin", case_type="two")
    result = plain.run()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines_random(["*one/twin.json: /id: *twin* in*two/twin.json*"])


def test_without_json_report(project: Project) -> None:
    write(project)
    project.case("good")
    project.run("-p", "no:pytest_jsonreport").assert_outcomes(passed=1)
    assert "tests" not in project.report()


def test_packs_of_a_folder_the_controller_did_not_load(plain: Project) -> None:
    inner = plain.root / "deep" / "inner"
    inner.mkdir(parents=True)
    (plain.root / "conftest.py").rename(inner / "conftest.py")
    write(plain, name="deep/inner/test_own.py")
    plain.case("good")
    plain.run().assert_outcomes(passed=1)
    result = plain.run("-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*xdist's controller can't use a suite that its workers use:*conftest.py of rootdir*"])


def test_the_record_hook_sees_marked_tests(plain: Project) -> None:
    hook = "\n\ndef pytest_packbench_record(item, record):\n    print('seen', item.name, record.passed)\n"
    path = plain.root / "conftest.py"
    path.write_text(path.read_text("utf-8") + hook, encoding="utf-8")
    write(plain)
    plain.case("good")
    plain.run("-s").stdout.fnmatch_lines(["*seen test_toy[[]good] True*"])


def test_a_result_is_kept_as_it_was_scored(plain: Project) -> None:
    write_marked_test(plain, "result = {'points': 1.0}\npackbench_check(result)\nresult['points'] = 0")
    plain.case("good")
    plain.run().assert_outcomes(passed=1)
    (line,) = plain.lines("payloads.jsonl")
    assert '"points": 1.0' in str(line).replace("'", '"')
