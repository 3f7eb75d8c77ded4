"""The verdicts of cases: pytest's outcome, the exit code, and where each is written; nothing that a case does ends a run."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.conftest import two_workers

if TYPE_CHECKING:
    from tests.integration.conftest import Project

DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("verdicts.yaml").read_text("utf-8"))
UNSCORED, SCORED, UNREADABLE = DATA["unscored"], DATA["scored"], DATA["unreadable"]
ANSWERS = DATA["unreadable_answers"]
MISBEHAVING_PACK = """
    def facets(self, case, original=Toy.facets):
        if case.id == "pack_exits":
            raise pytest.exit.Exception("enough")
        return original(self, case)

    def facts(self, case, answer, terms, original=Toy.facts):
        if case.id.startswith("bad_record") and answer is not None:
            return RecordFacts(attack_category="\\ud800")
        return original(self, case, answer, terms)

    from pytest_packbench import Case

    class Untold(Case):
        @property
        def described(self):
            if self.id == "no_input_text":
                raise KeyError("mine")
            return ""

    Toy.facets, Toy.facts, Toy.case_model = facets, facts, Untold

    def pytest_packbench_record(item, record):
        if item.name == "bad_hook":
            raise KeyError("mine")
        # what a hook does to its record is not stored
        record.packbench.clear()
    """


def test_every_verdict_has_its_outcome_and_its_line(both: Project) -> None:
    both.extend_conftest(MISBEHAVING_PACK)
    for name, fields in SCORED.items():
        both.case(name, **fields)
    for name, row in (UNSCORED | ANSWERS).items():
        both.case(name, **row["case"])
        if name.endswith("bad_recording"):
            both.write(f"storage/benchmarks/toy/fixtures/{name}.json", '{"cassette_version": 2}')
    typo = both.case("typo")
    typo.write_text(typo.read_text("utf-8").replace('"difficulty"', '"dificulty"'), encoding="utf-8")
    both.case("long_number").write_text('{"id": ' + "9" * 5000 + "}", encoding="utf-8")
    both.case("deep").write_text("[" * 50_000, encoding="utf-8")
    both.case("twin", case_type="one")
    both.case("twin", case_type="two")
    result = both.run_toy("-rsx", "--packbench-concurrency=3")
    count = sum(row["verdict"] in {"error", "vacuous"} for row in UNSCORED.values()) + len(UNREADABLE) + 1
    assert result.parseoutcomes() == {"passed": 8, "failed": 7, "errors": count, "skipped": 1, "xfailed": 3}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    records = both.records()
    for name, row in ANSWERS.items():
        record = records.pop(name)
        (term,) = record["packbench"]["terms"]
        assert (record["passed"], record["packbench"]["score"], term["name"]) == (False, 0.0, "unreadable_answer"), name
        assert row["reason"] in term["detail"], name
    scores = {name: (one["passed"], one["packbench"]["score"]) for name, one in records.items()}
    assert scores == {name: (name != "below", fields.get("points", 1.0)) for name, fields in SCORED.items()}
    errors = both.errors()
    for name, row in UNSCORED.items():
        error = errors.pop(name)
        assert (error["verdict"], error["kind"]) == (row["verdict"], row["kind"]), name
        assert row["message"] in error["message"], name
    assert errors.keys() == UNREADABLE.keys()
    for name, message in UNREADABLE.items():
        assert errors[name]["kind"] == "case_unreadable"
        assert message in errors[name]["message"]
    assert both.report()["packbench"]["totals"]["verdicts"]["known_hole"] == 1
    result.stdout.fnmatch_lines_random(
        [
            "*score 0.30 < 0.80*",
            "SKIPPED*gold in doubt*",
            "XFAIL*schedule changed*score 0.10 < 0.80*",
            '*typo.json: /dificulty: unknown key "dificulty"; did you mean "difficulty"?*',
            "*one/twin.json: /id: *twin* in*two/twin.json*",
            "*completeness 15 / *FAIL*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_packbench*attempt.py*")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


VERDICTS = {
    pytest.ExitCode.OK: ({"points": 0.8}, {"word": "known_hole"}, {"notes": {"skip": "in doubt"}}),
    pytest.ExitCode.TESTS_FAILED: ({"points": 0.3}, {"word": "vacuous"}, {"python": "raise OSError"}),
}


@pytest.mark.parametrize(("exit_code", "fields"), [(code, row) for code, rows in VERDICTS.items() for row in rows])
def test_a_verdict_decides_on_the_exit_code(project: Project, exit_code: int, fields: dict[str, Any]) -> None:
    project.case("good")
    project.case("one", **fields)
    # results are written and judged without a terminal too
    assert project.run_toy("-p", "no:terminal").ret == exit_code
    assert (project.left() / "errors.jsonl").exists() is ("points" not in fields)
    assert (project.left().parent / "latest").read_text("utf-8").strip() == project.left().name


@pytest.mark.parametrize(("statement", "options"), [("raise KeyboardInterrupt", ()), ("pass", ("-x",))])
@two_workers
def test_a_run_that_ends_early_is_partial_and_keeps_its_results(
    both: Project, statement: str, options: tuple[str, ...]
) -> None:
    both.case("a")
    both.case("b", points=0.0, python=f"import time; time.sleep(0.4); {statement}")
    # so many that the other worker has not finished when the session ends
    for number in range(14):
        both.case(f"c{number:02}", python="import time; time.sleep(0.2)")
    assert both.run_toy(*options).ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    records, errors = both.records(), both.lines("errors.jsonl")
    assert "a" in records
    assert "not_run" in {line["verdict"] for line in errors}
    assert len(records) + len(errors) == 16
    assert "PARTIAL" in (both.left() / "summary.md").read_text("utf-8")
    assert not (both.left().parent / "latest").exists()


# a program may send it to the process and to its group
ENDING = """
    import os, signal

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    def pytest_keyboard_interrupt():
        end()

    def pytest_sessionfinish():
        end()
"""


def test_a_signal_to_end_ends_the_run_once(project: Project) -> None:
    project.extend_conftest(ENDING)
    project.case("a")
    project.case("b", python="import conftest\ntry:\n    conftest.end()\nfinally:\n    conftest.end()")
    project.case("c")
    assert project.pytester.runpytest_subprocess("--packbench-suite=toy").ret == pytest.ExitCode.INTERRUPTED
    assert project.records().keys() == {"a"}
    assert {error["kind"] for error in project.lines("errors.jsonl")} == {"interrupted"}


def test_a_run_that_has_ended_is_completed_in_spite_of_it(project: Project) -> None:
    project.extend_conftest(ENDING)
    project.case("a")
    assert project.pytester.runpytest_subprocess("--packbench-suite=toy").ret == pytest.ExitCode.OK
    assert project.report()["packbench"]["status"] == "passed"


def test_a_handler_of_the_user_is_kept_and_ours_is_removed(project: Project) -> None:
    project.case("own", python="import signal; assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        project.run_toy().assert_outcomes(passed=1)
        assert signal.signal(signal.SIGTERM, signal.SIG_DFL) == signal.SIG_IGN
        project.run_toy().assert_outcomes(errors=1)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        # only the main thread may set one
        results: list[pytest.RunResult] = []
        thread = threading.Thread(target=lambda: results.append(project.run_toy()))
        thread.start()
        thread.join()
        results[0].assert_outcomes(errors=1)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_control_characters_reach_no_terminal_and_no_page(project: Project) -> None:
    evil = "\x1b[31mred\x07\u202eesrever"
    project.case("fails", points=0.1, python=f"raise ValueError({evil!a})")
    project.case("skips", notes={"skip": evil})
    project.case("hides", points=0.1, notes={"xfail": evil})
    result = project.run_toy("-rsxfE", "-v")
    assert result.parseoutcomes() == {"errors": 1, "skipped": 1, "xfailed": 1}
    assert "\x1b[31mred" not in result.stdout.str()
    assert "\u202e" not in result.stdout.str()
    assert "\x1b" not in (project.left() / "summary.md").read_text("utf-8")


def test_options_of_pytest_show_what_is_hidden_or_run_nothing(project: Project) -> None:
    project.case("odd", points=0.1, notes={"xfail": "schedule changed"})
    project.case("well", points=1.0, notes={"xfail": "should fail"}, python="open('called', 'w').close()")
    for option in ("--setup-plan", "--setup-only"):
        result = project.run_toy(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        message = f"{option}: benchmark cases have no fixtures to set up; use --collect-only, or select no suite"
        assert [line for line in result.stderr.lines if line] == [f"ERROR: {message}"]
    assert not (project.root / "called").exists()
    assert not project.folders()
    project.run_toy("--runxfail").assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff\n"])
def test_a_file_of_lines_without_a_case_is_an_error(project: Project, text: str) -> None:
    project.case("good")
    project.case_lines(text)
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*plain/many.jsonl: the file contains no case; expected one case per line*"])
    assert project.errors().keys() == {"many"}
    # one shard has it
    failed = [project.run_toy(f"--packbench-shard={shard}/2").parseoutcomes().get("errors", 0) for shard in (1, 2)]
    assert sorted(failed) == [0, 1]
