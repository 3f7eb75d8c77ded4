"""`--packbench-list`: the suites with their numbers of cases, or the reason why one can't be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import CASES, toy_case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project


def test_suites_are_listed_with_their_cases_by_folder(project: Project, bundled: Path) -> None:
    for case_id, case_type in {"alpha": "one", "beta": "one", "gamma": "two"}.items():
        project.case(case_id, case_type=case_type)
    project.case_lines(toy_case("a"), "", toy_case("b"), "{", path=f"{CASES}/all.jsonl")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.OK
    toy = "  toy: 6 cases (. 1, one 2, plain 2, two 1); pack toy: a toy"
    assert result.outlines[:2] == ["suites under storage/benchmarks: 1", toy]
    project.suite("broken", "pack: nothing\n")
    result = project.run("--packbench-list")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    broken = "  broken: 0 cases; can't be used:*unknown pack*"
    result.stdout.fnmatch_lines(["suites under storage/benchmarks: 2", broken, toy])
    # without a folder of suites
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    result = project.run("--packbench-list")
    result.stdout.fnmatch_lines(["bundled suites: 1", "  tariff: * cases (*); * controls; pack tariff: *"])
