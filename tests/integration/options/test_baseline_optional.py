"""`--packbench-baseline-optional`: a baseline that can't be found or compared fails a run, unless it is optional."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

LATEST, OPTIONAL = "--packbench-baseline=latest", "--packbench-baseline-optional"
GATE = "gates: [{max_regressions: 0}]\n"


def test_a_run_that_can_t_be_compared_fails_and_says_so_first(project: Project) -> None:
    project.suite(text=f"pack: toy\n{GATE}")
    project.case("a")
    missing = "there is no earlier complete run to compare with"
    other_rules = "not compared with *: scoring rules: * before, * now"
    first_run = project.root
    for rules, reason in (("", missing), ("thresholds: {accept: 0.1}\n", other_rules)):
        project.suite(text=f"pack: toy\n{GATE}{rules}")
        for options in ((OPTIONAL,), ()):
            latest = project.root / "reports" / "benchmarks" / "toy" / "latest"
            if rules:
                latest.write_text(first_run.name)
            result = project.run_toy(LATEST, *options)
            folder = project.folders()[-1]
            title, _, sentence, _, first, *_ = (folder / "summary.md").read_text("utf-8").splitlines()
            comparison = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]["comparison"]
            assert comparison["failed"] is not options
            assert first.startswith("- baseline: ")
            if options:
                assert (result.ret, title) == (0, "# packbench: toy - PASSED, 1 of 1 judged case passed")
                result.stdout.fnmatch_lines(
                    [f"  regressions: {reason}: not judged, because the baseline is optional", f"baseline: {reason}"]
                )
            else:
                assert result.ret == pytest.ExitCode.TESTS_FAILED
                assert title.startswith("# packbench: toy - FAILED, NOT COMPARED WITH THE BASELINE, ")
                assert sentence.startswith("**Baseline latest: ")
                lines = result.stdout.lines
                start = next(number for number, line in enumerate(lines) if "packbench: toy ===" in line)
                result.stdout.fnmatch_lines([f"baseline: {reason}: FAIL"])
                assert lines[start + 1].startswith("baseline: ")
            latest.unlink()
        first_run = folder


def test_a_path_of_no_run_is_a_usage_error_unless_the_baseline_is_optional(project: Project) -> None:
    project.case("a")
    nowhere = "--packbench-baseline=nowhere"
    assert project.run_toy(nowhere).ret == pytest.ExitCode.USAGE_ERROR
    result = project.run_toy(nowhere, OPTIONAL)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["baseline: not compared: *nowhere*"])
    # ini and environment say yes or no
    assert project.run_toy(nowhere, "-o", "packbench_baseline_optional=yes").ret == pytest.ExitCode.OK


def test_a_part_of_the_suite_with_edited_cases_only_passes(project: Project) -> None:
    project.case("a")
    project.case("b")
    project.run_toy()
    project.case("a", points=0.9)
    result = project.run_toy(LATEST, "-k", "a.json")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["baseline: not compared with *: no case is unchanged in both runs"])
    project.case("b", points=0.9)
    assert project.run_toy(LATEST).ret == pytest.ExitCode.TESTS_FAILED
