"""`--packbench-list`: the suites of a project, with their numbers of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import toy_case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project


def test_each_suite_is_listed_with_its_cases_by_folder(project: Project) -> None:
    for case_id, case_type in {"alpha": "one", "beta": "one", "gamma": "two"}.items():
        project.case(case_id, case_type=case_type)
    project.case_lines(toy_case("a"), "", toy_case("b"), "{", path="storage/benchmarks/toy/cases/all.jsonl")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[:2] == [
        "suites under storage/benchmarks: 1",
        "  toy: 6 cases (. 3, one 2, two 1); pack toy: a toy",
    ]


def test_a_suite_that_can_not_be_used_is_listed_with_the_reason(project: Project) -> None:
    project.suite("broken", "pack: nothing\n")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["suites under storage/benchmarks: 2", "  broken: 0 cases; can't be used:*unknown pack*", "  toy: 0 cases; *"]
    )


def test_without_a_folder_of_suites_the_bundled_ones_are_listed(project: Project, bundled: Path) -> None:
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    result = project.run("--packbench-list")
    result.stdout.fnmatch_lines(["bundled suites: 1", "  tariff: * cases (*); pack tariff: *"])
