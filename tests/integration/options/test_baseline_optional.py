"""`--packbench-baseline-optional`: a baseline that can't be found or compared fails a run, unless it is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project

LATEST, OPTIONAL = "--packbench-baseline=latest", "--packbench-baseline-optional"


def test_a_run_that_can_t_be_compared_fails_and_says_so_first(project: Project) -> None:
    project.case("a")
    for rules, reason in (
        ("", "there is no earlier complete run to compare with"),
        ("thresholds: {accept: 0.1}", "not compared with *: scoring rules: * before, * now"),
    ):
        project.suite(text=f"pack: toy\ngates: [{{max_regressions: 0}}]\n{rules}\n")
        for options in ((OPTIONAL,), ()):
            latest = project.root / "reports/benchmarks/toy/latest"
            if rules:
                latest.write_text(project.folders()[0].name)
            not_judged = f"  regressions: {reason}: not judged, because the baseline is optional"
            expected = [not_judged, f"baseline: {reason}"] if options else [f"baseline: {reason}: FAIL"]
            lines = ended(project.run_toy(LATEST, *options), int(not options), *expected).outlines
            title, _, sentence, _, first, *_ = project.text().splitlines()
            assert project.document()["comparison"]["failed"] is not options
            assert first.startswith("- baseline: ")
            if options:
                assert title == "# packbench: toy - PASSED, 1 of 1 judged case passed"
            else:
                assert title.startswith("# packbench: toy - FAILED, NOT COMPARED WITH THE BASELINE, ")
                assert sentence.startswith("**Baseline latest: ")
                heading = next(number for number, line in enumerate(lines) if "packbench: toy ===" in line)
                assert lines[heading + 1].startswith("baseline: ")
            latest.unlink()


def test_a_path_of_no_run_is_a_usage_error_unless_the_baseline_is_optional(project: Project) -> None:
    project.case("a")
    nowhere = "--packbench-baseline=nowhere"
    project.refused("--packbench-baseline: *", nowhere)
    # ini and environment say yes or no
    for optional in ((OPTIONAL,), ("-o", "packbench_baseline_optional=yes")):
        ended(project.run_toy(nowhere, *optional), 0, "baseline: not compared: *nowhere*")


def test_a_part_of_the_suite_with_edited_cases_only_passes(project: Project) -> None:
    project.cases("a", "b")
    project.run_toy()
    project.case("a", points=0.9)
    unchanged = "baseline: not compared with *: no case is unchanged in both runs"
    ended(project.run_toy(LATEST, "-k", "a.json"), 0, unchanged)
    project.case("b", points=0.9)
    ended(project.run_toy(LATEST), 1)
