"""What users do to a run by mistake: each is one line about that case or setting, and no result is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

UNREADABLE = """
class Unreadable(Exception):
    def __str__(self):
        raise self

"""
RESULTS = {
    "object": "object()",
    "nan": "float('nan')",
    "digits": "10 ** 5000",
    "cycle": "(lambda d: d.setdefault('d', d))({})",
}


def test_a_result_that_is_no_json_next_to_a_bad_recording_loses_nothing(both: Project) -> None:
    for name, result in RESULTS.items():
        both.case(name, more=result)
        both.case(f"{name}_bad", more=result)
        both.write(f"storage/benchmarks/toy/fixtures/{name}_bad.json", '{"cassette_version": 1}')
    both.case("good")
    outcome = both.run_toy()
    outcome.assert_outcomes(passed=1, errors=8)
    kinds = {name: error["kind"] for name, error in both.errors().items()}
    bad = {f"{name}_bad": "cassette_unreadable" for name in RESULTS}
    assert kinds == dict.fromkeys(RESULTS, "result_unreadable") | bad
    outcome.stdout.no_fnmatch_line("*INTERNALERROR*")


RAISED = {
    "cancelled": ("import asyncio; raise asyncio.CancelledError('late')", "CancelledError: late"),
    "generator": ("raise GeneratorExit('gone')", "GeneratorExit: gone"),
    "fail": ("import pytest; pytest.fail('by hand')", "Failed: by hand"),
    "skip": ("import pytest; pytest.skip('by hand')", "Skipped: by hand"),
}


def test_whatever_a_target_raises_is_its_cases_error(both: Project) -> None:
    for name, (code, _) in RAISED.items():
        both.case(name, python=code)
    both.case("good")
    both.run_toy().assert_outcomes(passed=1, errors=4)
    errors = {name: (error["kind"], error["message"]) for name, error in both.errors().items()}
    assert errors == {name: ("target_error", f"the target raised {text}") for name, (_, text) in RAISED.items()}


def test_a_pack_that_would_end_the_run_fails_its_own_case(both: Project) -> None:
    both.extend_conftest("""
        def facets(self, case, original=Toy.facets):
            if case.id == "m_odd":
                raise pytest.exit.Exception("enough")
            return original(self, case)

        Toy.facets = facets
        """)
    for name in ("a_good", "m_odd", "z_good"):
        both.case(name)
    both.run_toy("--packbench-concurrency=3").assert_outcomes(passed=2, errors=1)
    (error,) = both.lines("errors.jsonl")
    assert (error["kind"], error["message"]) == ("pack_error", "the case's result can't be stored: Exit: enough")


def test_a_marked_test_may_raise_what_can_not_be_read(project: Project) -> None:
    project.case("one")
    project.write(
        "test_own.py",
        f"""{UNREADABLE}
import pytest

@pytest.mark.packbench_cases("toy")
def test_own(packbench_case, packbench_check):
    raise Unreadable

def test_other():
    pass
""",
    )
    project.run("test_own.py").assert_outcomes(passed=1, errors=1)
    message = "the test raised Unreadable before the check: (its message cannot be read)"
    assert project.errors()["one"]["message"] == message


def test_a_record_hook_that_raises_is_an_error_of_that_case(both: Project) -> None:
    both.extend_conftest("""
        def pytest_packbench_record(item, record):
            if item.name == "bad":
                raise KeyError("mine")
            record.packbench.clear()
        """)
    both.case("bad")
    both.case("good")
    result = both.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    assert both.errors()["bad"]["message"] == "the hook pytest_packbench_record raised KeyError: 'mine'"
    # what a hook does to its record is not stored
    assert both.records()["good"]["packbench"]["score"] == 1.0
    result.stdout.no_fnmatch_line("*pytest_plugin/*.py*")


def test_a_monstrous_case_hides_no_other(project: Project) -> None:
    project.case("good")
    project.case("digits").write_text('{"id": ' + "9" * 5000 + "}", encoding="utf-8")
    project.case("deep").write_text("[" * 50_000, encoding="utf-8")
    renamed = project.case("renamed")
    renamed.write_text(renamed.read_text("utf-8").replace('"difficulty"', '"dificulty"'), encoding="utf-8")
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=3)
    messages = {name: error["message"] for name, error in project.errors().items()}
    assert "contains a number with thousands of digits" in messages["digits"]
    assert "nested too deeply" in messages["deep"]
    result.stdout.fnmatch_lines(['*renamed.json: /dificulty: unknown key "dificulty"; did you mean "difficulty"?'])


@pytest.mark.parametrize("text", ["import (", "raise KeyError(3)", "raise SystemExit(1)"])
def test_a_target_that_can_not_be_imported_is_a_usage_error(project: Project, text: str) -> None:
    project.case("good")
    project.write("broken_target.py", text)
    result = project.run_toy("--packbench-target=broken_target:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: target "broken_target:x": importing broken_target raised *'])


def test_a_target_of_the_request_alone_needs_no_recording(project: Project) -> None:
    project.case("one", points=0.0)
    project.write("storage/benchmarks/toy/fixtures/one.json", "{}")
    project.write(
        "mine.py", "class Mine:\n    async def verify(self, request):\n        return {'points': 0.9}\n\nit = Mine()\n"
    )
    project.run_toy("--packbench-target=mine:it").assert_outcomes(passed=1)
    assert project.records()["one"]["packbench"]["target"] == "mine:it"


def test_results_are_written_without_a_terminal(project: Project) -> None:
    project.case("good")
    project.case("bad", points=0.1)
    assert project.run_toy("-p", "no:terminal").ret == pytest.ExitCode.TESTS_FAILED
    assert len(project.lines("records.jsonl")) == 2


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
def test_a_setup_that_is_only_shown_runs_no_case(project: Project, option: str) -> None:
    project.case("one", python="open('called', 'w')")
    result = project.run_toy(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = f"{option}: benchmark cases have no fixtures to set up; use --collect-only, or select no suite"
    assert [line for line in result.stderr.lines if line] == [f"ERROR: {message}"]
    assert not (project.root / "called").exists()
    assert not project.folders()
