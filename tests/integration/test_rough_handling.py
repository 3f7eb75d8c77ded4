"""What users do to a run by mistake: each is one line about that case or setting, and no result is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.mark.parametrize("result", ["object()", "float('nan')", "10 ** 5000", "(lambda d: d.setdefault('d', d))({})"])
def test_a_result_that_is_no_json_beside_a_mismatch_loses_nothing(project: Project, result: str) -> None:
    case = project.case("odd", more=result)
    fixtures = case.parents[2] / "fixtures"
    fixtures.mkdir()
    (fixtures / "odd.json").write_text('{"cassette_version": 1}', encoding="utf-8")
    other = project.case("alone", more=result)
    assert other.exists()
    project.case("good")
    outcome = project.run_toy()
    outcome.assert_outcomes(passed=1, errors=2)
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"cassette_unreadable", "result_unreadable"}
    outcome.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import asyncio; raise asyncio.CancelledError('late')", "CancelledError: late"),
        ("raise GeneratorExit('gone')", "GeneratorExit: gone"),
        ("import pytest; pytest.fail('by hand')", "Failed: by hand"),
        ("import pytest; pytest.skip('by hand')", "Skipped: by hand"),
    ],
)
def test_whatever_a_target_raises_is_its_cases_error(project: Project, code: str, said: str) -> None:
    project.case("raises", python=code)
    project.case("good")
    project.run_toy().assert_outcomes(passed=1, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert (line["kind"], line["message"]) == ("target_error", f"the target raised {said}")


BREAKING = """

class Unsayable(Exception):
    def __str__(self):
        raise self


def breaking(name, error):
    plain = getattr(Toy, name)

    def method(self, *given):
        if "odd" in str(given):
            raise error
        return plain(self, *given)

    setattr(Toy, name, method)


def unkeepable():
    plain = Toy.score

    def score(self, case, outcome, rules):
        if outcome.word == "odd":
            return Score(score=None, threshold=0.5, verdict="vacuous", match_level={1})
        return plain(self, case, outcome, rules)

    Toy.score = score


"""


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("breaking('facets', SystemExit(3))", "the pack toy raised SystemExit: 3"),
        ("breaking('facts', SystemExit(3))", "the pack toy raised SystemExit: 3"),
        ("breaking('explain', Unsayable())", "the pack toy raised Unsayable: (its message cannot be read)"),
        ("breaking('read', Unsayable())", "the reader raised Unsayable: (its message cannot be read)"),
        ("unkeepable()", "the pack toy raised TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_a_pack_that_breaks_at_one_case_breaks_no_other(
    project: Project, concurrency: int, code: str, said: str
) -> None:
    _broken_pack(project, code)
    result = project.run_toy(f"--packbench-concurrency={concurrency}")
    result.assert_outcomes(passed=2, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["message"] == said
    assert "Traceback" not in result.stderr.str()


def test_a_pack_that_would_end_the_run_while_another_case_is_waited_for_breaks_its_own(project: Project) -> None:
    _broken_pack(project, "breaking('facets', pytest.exit.Exception('enough'))")
    result = project.run_toy("--packbench-concurrency=3")
    result.assert_outcomes(passed=2, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert (line["kind"], line["message"]) == ("pack_error", "the case's result can't be stored: Exit: enough")


def _broken_pack(project: Project, code: str) -> None:
    conftest = project.root / "conftest.py"
    conftest.write_text(conftest.read_text("utf-8") + BREAKING + code + "\n", encoding="utf-8")
    project.case("a_good")
    project.case("m_odd", points=0.0, word="odd")
    project.case("z_good")


def test_a_test_of_ones_own_may_raise_what_can_not_be_read(project: Project) -> None:
    project.case("one")
    project.pytester.makepyfile(
        test_own="""
        import pytest
        class Unsayable(Exception):
            def __str__(self):
                raise self
        @pytest.mark.packbench_cases("toy")
        def test_own(packbench_case, packbench_check):
            raise Unsayable
        def test_other():
            pass
        """
    )
    result = project.run("test_own.py")
    result.assert_outcomes(passed=1, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["message"] == "the test raised Unsayable before the check: (its message cannot be read)"


def test_a_raising_record_hook_is_an_error_of_that_case(project: Project) -> None:
    conftest = project.root / "conftest.py"
    hook = "def pytest_packbench_record(item, record):\n    if item.name == 'bad': raise KeyError('mine')\n    record.packbench.clear()\n"
    conftest.write_text(conftest.read_text("utf-8") + "\n" + hook, encoding="utf-8")
    project.case("bad")
    project.case("good")
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["message"] == "the hook pytest_packbench_record raised KeyError: 'mine'"
    (record,) = project.lines("records.jsonl")
    assert record["packbench"]["score"] == 1.0
    result.stdout.no_fnmatch_line("*pytest_plugin/*.py*")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": ' + "9" * 5000 + "}", "contains a number with thousands of digits"),
        ("[" * 50_000, "nested too deeply"),
    ],
)
def test_a_monstrous_case_hides_no_other(project: Project, text: str, said: str) -> None:
    project.case("monster").write_text(text, encoding="utf-8")
    project.case("good")
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"*monster.json: {said}*"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pack: toy\npack: toy\n", 'line 2: duplicate key "pack"; keep one'),
        ("pack: toy\ngates: [{metric: pass_rate, min: 1.0}]\ngates: []\n", 'line 3: duplicate key "gates"'),
        ("pack: toy\nthresholds: {accept: " + "9" * 5000 + "}\n", "contains a value that YAML cannot read"),
        ("pack: toy\nthresholds: " + "[" * 5000, "contains a value that YAML cannot read"),
        ("", "/pack: got null"),
    ],
)
def test_monstrous_rules_are_one_line(plain: Project, text: str, said: str) -> None:
    plain.suite("toy", text)
    result = plain.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: storage/benchmarks/toy/suite.yaml: {said}*"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_a_date_in_the_rules_is_text(plain: Project) -> None:
    plain.suite("toy", "pack: toy\ndescription: 2026-13-45\n")
    plain.case("good")
    plain.run_toy().assert_outcomes(passed=1)


@pytest.mark.parametrize("text", ["import (", "raise KeyError(3)", "raise SystemExit(1)"])
def test_a_target_that_can_not_be_imported_is_a_usage_error(plain: Project, text: str) -> None:
    plain.case("good")
    (plain.root / "broken_target.py").write_text(text, encoding="utf-8")
    result = plain.run_toy("--packbench-target=broken_target:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: target "broken_target:x": importing broken_target raised *'])


def test_a_pack_hook_that_gives_no_packs_is_a_usage_error(plain: Project) -> None:
    plain.case("good")
    plain.pytester.makeconftest("def pytest_packbench_packs():\n    return [3]\n")
    result = plain.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: a hook pytest_packbench_packs failed: PackError: expected an instance of *Pack, got 3"]
    )


def test_without_a_terminal(plain: Project) -> None:
    plain.case("good")
    plain.case("bad", points=0.1)
    result = plain.run_toy("-p", "no:terminal")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(plain.lines("records.jsonl")) == 2


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
def test_a_setup_that_is_only_shown_runs_no_case(project: Project, option: str) -> None:
    project.case("one", python="open('asked', 'w')")
    result = project.run_toy(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"{option}: benchmark cases have no fixtures to set up; use --collect-only, or select no suite"
    assert [line for line in result.stderr.lines if line] == [f"ERROR: {said}"]
    assert not (project.root / "asked").exists()
    assert not project.folders()


def test_a_renamed_key_is_one_mistake_with_a_suggestion(plain: Project) -> None:
    path = plain.case("typo")
    path.write_text(path.read_text("utf-8").replace('"difficulty"', '"dificulty"'), encoding="utf-8")
    result = plain.run_toy()
    result.stdout.fnmatch_lines(['*typo.json: /dificulty: unknown key "dificulty"; did you mean "difficulty"?'])


def test_a_target_of_the_request_alone_needs_no_cassette(plain: Project) -> None:
    case = plain.case("asked")
    (case.parents[2] / "fixtures").mkdir()
    (case.parents[2] / "fixtures" / "asked.json").write_text("{}", encoding="utf-8")
    plain.pytester.makepyfile(mine="def verify(request):\n    return {'points': 0.9}\n")
    plain.run_toy("--packbench-target=mine:verify").assert_outcomes(passed=1)
