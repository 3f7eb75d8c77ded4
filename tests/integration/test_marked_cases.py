"""Tests in the pytest way: the mark `packbench_cases` with its fixtures."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench.testing import SuiteResults
from tests.integration.conftest import CASES

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

MODULE = """
import os
import pytest

class Unreadable(Exception):
    def __str__(self):
        raise self

@pytest.fixture
def target(packbench_case):
    if packbench_case.id == "fixture":
        raise OSError("no\\nserver")
    def act(order):
        exec(order.get("python", ""))
        return {"points": order.get("points", 1.0), "word": order.get("word", ""), "down": order.get("down", False)}
    return act

@pytest.mark.packbench_cases("toy")
def test_toy(packbench_case, packbench_check, target):
    packbench_check(target(packbench_case.input))
"""
DATA = yaml.safe_load((Path(__file__).parent / "data" / "marked_cases.yaml").read_text("utf-8"))
CHECK = "packbench_check({'points': 1.0})"


def marked(body: str, mark: str = '"toy"', takes: str = "packbench_case, packbench_check", name: str = "toy") -> str:
    """Return one marked test."""
    return f"import pytest\n\n@pytest.mark.packbench_cases({mark})\ndef test_{name}({takes}):\n{indent(body, '    ')}\n"


@pytest.mark.filterwarnings("ignore:User properties of .* are not JSON-serializable")
def test_a_property_of_the_user_may_be_anything(project: Project) -> None:
    project.case("one")
    odd = "type('Odd', (), {'__str__': lambda _: 1 / 0, '__hash__': None})()"
    body = f"record_property('tags', ['a'])\nrecord_property('odd', {odd})\n{CHECK}"
    project.write("test_own.py", marked(body, takes="packbench_case, packbench_check, record_property"))
    project.run().assert_outcomes(passed=1)
    assert project.records()["one"]["passed"]


def test_a_session_that_deselects_all_its_tests_has_run_none(project: Project) -> None:
    project.case("one")
    project.write("test_own.py", marked(CHECK))
    assert project.run("-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not project.folders()


def test_each_verdict_as_for_items_from_files(both: Project) -> None:
    both.write("test_own.py", MODULE)
    for name, fields in DATA["verdicts"].items():
        both.case(name, **fields["case"])
    both.case("typo").write_text("{", encoding="utf-8")
    result = both.run("-rsx", "--junitxml=junit.xml", "-v", "-p", "no:pytest_jsonreport")
    result.assert_outcomes(passed=1, failed=1, skipped=2, xfailed=2, errors=7)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random(
        [
            "*PASSED 0.80*",
            "*gold in doubt*",
            "*schedule changed*score 0.10 < 0.80*",
            "*said known_hole*",
            "re-run:   pytest 'test_own.py::test_toy[[]bad]'",
        ]
    )
    assert {name: f"{error['verdict']} {error['kind']}" for name, error in both.errors().items()} == {
        **{name: fields["error"] for name, fields in DATA["verdicts"].items() if "error" in fields},
        "typo": "error case_unreadable",
    }
    messages = {case_id: error["message"] for case_id, error in both.errors().items()}
    assert messages["raises"] == "the test raised ZeroDivisionError before the check: division by zero"
    assert messages["unreadable"] == "the test raised Unreadable before the check: (its message cannot be read)"
    assert messages["fixture"] == "a fixture raised OSError before the check: no"
    records = both.records()
    assert {case_id: record["passed"] for case_id, record in records.items()} == {"good": True, "bad": False}
    good = records["good"]["packbench"]
    assert (good["target"], good["file"]) == ("test:test_own.py::test_toy", f"{CASES}/plain/good.json")
    assert good["facets"] == {"colour": "red"}
    assert "tests" not in both.report()
    junit = (both.root / "junit.xml").read_text("utf-8")
    assert (junit.count("<error"), junit.count("<failure")) == (7, 1)
    assert '<property name="verdict" value="vacuous"' in junit
    result.stdout.no_fnmatch_line("*pytest_plugin/marked.py*")
    result = both.run("--packbench-gate=suite", "-k", "good or bad", "-rx")
    result.assert_outcomes(passed=1, xfailed=1)
    result.stdout.fnmatch_lines(["XFAIL*toy[[]bad]*score 0.30 < 0.80*"])


LATE = """
    @pytest.fixture(autouse=True)
    def late(request):
        check = request.getfixturevalue("packbench_check")
        yield
        if request.node.name == "test_afterwards[afterwards]":
            check({"points": 1.0})
    """


def test_a_test_has_to_check_one_result_once(project: Project, expected: ExpectedTexts) -> None:
    for name, body in DATA["bodies"].items():
        project.case(name, case_type=name)
        project.write(f"test_{name}.py", marked(body, f'"toy", case_type="{name}"', name=name))
    project.extend_conftest(LATE)
    result = project.run()
    # the message of a failed comparison is pytest's
    errors = {name: f"{error['kind']}: {error['message']}" for name, error in project.errors().items()}
    errors["asserts_before"] = errors["asserts_before"].partition(": not mine")[0]
    records = {name: f"record passed={record['passed']}" for name, record in project.records().items()}
    outcomes = {test["nodeid"].partition("[")[2][:-1]: test["outcome"] for test in project.report()["tests"]}
    lines = [f"{name}: {outcomes[name]}: {text}\n" for name, text in sorted((errors | records).items())]
    expected.check("".join(lines))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = ["*not fit for use*", "*packbench_check was called after the test; call it in the test*"]
    result.stdout.fnmatch_lines_random([*lines, "*the result is not JSON: Unable to serialize unknown type: *object*"])
    payloads = {payload["test_id"]: payload for payload in project.lines("payloads.jsonl")}
    assert "'points': 1.0" in str(payloads["toy:changes_result:changes_result"])


def test_a_case_that_is_selected_twice_is_an_error_that_names_both(both: Project) -> None:
    both.write("test_own.py", MODULE)
    both.case("good")
    both.case("alone", case_type="spare")
    both.write("test_own_too.py", marked(CHECK))
    both.run("test_own.py", "test_own_too.py", f"{CASES}/plain", "-k", "good or test_own.py").assert_outcomes(
        passed=1, errors=3, deselected=1 - both.workers
    )
    test, file = "test_own.py::test_toy[good]", f"{CASES}/plain/good.json::good"
    advice = "select one of them, or run pytest for each"
    assert {error["message"].removeprefix("the case is run twice, ") for error in both.lines("errors.jsonl")} == {
        f"by {test} and by {file}; {advice}",
        f"by {file} and by {test}; {advice}",
        f"by {test.replace('own', 'own_too')} and by {file}; {advice}",
    }
    assert set(both.records()) == {"alone"}


def test_a_mark_selects_by_case_type_difficulty_and_tag(project: Project) -> None:
    project.case("a", case_type="one", difficulty="hard", notes={"tags": ["x", "y"]})
    project.case("b", case_type="one", notes={"tags": ["y"]})
    project.case("lone", case_type="two", difficulty="hard")
    project.case("broken", case_type="two").write_text("{", encoding="utf-8")
    for mark, selected in DATA["selecting"].items():
        project.write("test_own.py", marked(CHECK, mark))
        lines = project.run("--collect-only", "-q").outlines
        assert sorted(line.partition("[")[2][:-1] for line in lines if "[" in line) == selected.split(), mark
    project.write("test_own.py", marked(CHECK))
    project.run("-m", "packbench(difficulty='hard', tag='x')").assert_outcomes(passed=1, deselected=3)
    project.run("-k", "lone or broken").assert_outcomes(passed=1, errors=1, deselected=2)
    project.run("test_own.py::test_toy[b]").assert_outcomes(passed=1)
    assert "1 of 4 cases selected" in (project.folders()[-1] / "summary.md").read_text("utf-8")


def test_several_suites_and_marks(project: Project) -> None:
    project.suite("other")
    project.case("same", case_type="one")
    project.case("left_out", case_type="two")
    project.case("same", suite="other")
    second = '@pytest.mark.packbench_cases("other", case_type=["plain", "one"])\n@pytest'
    project.write("test_own.py", marked(CHECK, '"toy", case_type="one"').replace("@pytest", second))
    project.run().assert_outcomes(passed=2)
    assert set(project.records("other")) == {"same"}
    project.write("test_own.py", marked(CHECK, '"toy", "other"'))
    result = project.run("-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_toy[[]other-same] PASSED*"])


def test_a_worker_that_dies_costs_only_its_case_and_groups_are_no_part_of_an_id(project: Project) -> None:
    ids = '@pytest.mark.parametrize("share", [1.0], ids=["small@x"])\n@pytest.mark.xdist_group("g")\n@pytest.mark.packb'
    test = MODULE.replace("@pytest.mark.packb", ids).replace("packbench_check,", "packbench_check, share,")
    project.write("test_own.py", test)
    project.case("good")
    project.case("killer", python="os.kill(os.getpid(), 9)")
    assert project.run("-n", "2", "--dist=loadgroup").ret == pytest.ExitCode.TESTS_FAILED
    assert project.errors()["killer"]["kind"] == "worker_crashed"
    assert set(project.records()) == {"good"}
    assert len(project.report()["tests"]) == 2


ASYNC = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def checked(packbench_case, packbench_check):
    packbench_check(packbench_case.input)

class TestToy:
    @pytest.mark.anyio
    @pytest.mark.packbench_cases("toy", case_type="plain")
    async def test_method(self, packbench_request, packbench_check):
        packbench_check({**packbench_request.input, "llm_backend": "openai", "llm_model": "m"})

@pytest.mark.packbench_cases("toy", case_type="fixture")
def test_fixture(checked):
    pass
"""


def test_methods_async_functions_and_fixtures_may_check(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "very-hidden-value")
    project.write("test_own.py", ASYNC)
    project.case("good", points=1.0, text="very-hidden-value")
    project.case("bad", points=0.3)
    project.case("low", points=0.3, case_type="fixture")
    project.run("-p", "anyio", "--packbench-mode=live").assert_outcomes(passed=1, failed=2)
    record = project.records()["good"]
    assert record["packbench"]["target"] == "test:test_own.py::TestToy::test_method"
    assert (record["packbench"]["mode"], record["llm_backend"], record["llm_model"]) == ("live", "openai", "m")
    assert "very-hidden-value" not in (project.left() / "payloads.jsonl").read_text("utf-8")
    project.run("-p", "anyio", "--packbench-max-seconds=0.000001", "-k", "bad").assert_outcomes(skipped=1, deselected=2)
    (error,) = SuiteResults(folder=project.folders()[-1]).errors
    assert (error["verdict"], error["kind"]) == ("not_run", "max_seconds")


def test_a_users_xfail_hides_no_error(project: Project) -> None:
    project.write("test_own.py", "import pytest\npytestmark = pytest.mark.xfail\n" + marked("raise OSError('down')"))
    project.case("one")
    result = project.run("-n", "1", "--packbench-mode=live")
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*completeness 0 / 1 = 0.0 % < min 100.0 %: FAIL*"])
    assert project.report()["packbench"]["run"]["target"] == "test:test_own.py::test_toy"


def collection_errors(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.INTERRUPTED
    return "".join(f"{line}\n" for line in result.outlines if ": packbench_cases: " in line)


def test_a_mark_that_can_not_be_used_is_an_error_of_one_line(project: Project, expected: ExpectedTexts) -> None:
    project.suite("bad", "pack: nothing\n")
    project.case("one")
    for name, parts in DATA["unusable"].items():
        project.write(f"test_{name}.py", marked("pass", name=name, **parts))
    result = project.run()
    result.assert_outcomes(errors=len(DATA["unusable"]))
    assert project.folders() == []
    text = collection_errors(result)
    for options in (("--packbench-mode=record",), ("--packbench-mode=live", "--packbench-trials=2")):
        project.write("test_no_value.py", marked("pass"))
        text += collection_errors(project.run(*options, "test_no_value.py"))
    # a session that can't start is refused to each of its tests
    project.write("test_wrong_value.py", marked("pass"))
    refused = project.run("--packbench-resume=none", "test_no_value.py", "test_wrong_value.py")
    refused.assert_outcomes(errors=2)
    expected.check(text + collection_errors(refused))
    result = project.run("-n", "2", "test_unknown_suite.py")
    result.stdout.fnmatch_lines(["test_unknown_suite.py::test_unknown_suite: packbench_cases: unknown suite *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


UNSUPPORTED = """
import pytest, unittest

def test_bare(packbench_check):
    pass

class TestOld(unittest.TestCase):
    @pytest.mark.packbench_cases("toy")
    def test_toy(self):
        pass
"""


def test_a_test_that_can_not_be_parametrized_is_an_error(project: Project) -> None:
    project.case("one")
    project.write("test_own.py", UNSUPPORTED)
    result = project.run()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines_random(
        [
            'packbench_case: expected a test function with the mark @pytest.mark.packbench_cases("suite"); a unittest.*',
            "*ERROR at setup of TestOld.test_toy*",
        ]
    )


def test_a_run_with_marked_tests_is_not_resumed(project: Project) -> None:
    project.write("test_own.py", marked(CHECK, '"toy", case_type="own"'))
    project.case("mine", case_type="own")
    project.case("down", case_type="theirs", down=True)
    arguments = ("test_own.py", f"{CASES}/theirs")
    project.run(*arguments).assert_outcomes(passed=1, errors=1)
    result = project.run(*arguments, "--packbench-resume=latest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    reason = "can't be resumed: the target changed (from *test_own.py::test_*; *start a new run, or *"
    result.stderr.fnmatch_lines([f'ERROR: --packbench-resume: run 01* of suite "toy" {reason}'])


def test_a_pack_that_only_workers_know_is_a_usage_error(project: Project) -> None:
    inner = project.root / "deep" / "inner"
    inner.mkdir(parents=True)
    (project.root / "conftest.py").rename(inner / "conftest.py")
    project.write("deep/inner/test_own.py", MODULE)
    project.case("good")
    project.run().assert_outcomes(passed=1)
    result = project.run("-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*xdist's controller can't use a suite that its workers use:*conftest.py of rootdir*"])
