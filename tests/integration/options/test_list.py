"""`--packbench-list`: the suites with their numbers of cases, or the reason why one can't be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.conftest import CASES, ended, toy_case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project


def test_suites_are_listed_with_their_cases_by_folder(project: Project, bundled: Path) -> None:
    project.cases("alpha", "beta", case_type="one")
    project.case("gamma", case_type="two")
    project.case_lines(toy_case("a"), "", toy_case("b"), "{", path=f"{CASES}/all.jsonl")
    project.write("storage/benchmarks/toy/fixtures/controls/wrong.json", "{}")
    toy = "  toy: 6 cases (. 1, one 2, plain 2, two 1); 1 control; pack toy: a toy"
    result = ended(project.run("--packbench-list"), 0)
    assert result.outlines[:2] == ["suites under storage/benchmarks: 1", toy]
    project.suite("broken", "pack: nothing\n")
    broken = "  broken: 0 cases; can't be used:*unknown pack*"
    ended(project.run("--packbench-list"), 4, "suites under storage/benchmarks: 2", broken, toy)
    # without a folder of suites
    (project.root / "storage" / "benchmarks").rename(project.root / "elsewhere")
    tariff = "  tariff: * cases (*); * controls; pack tariff: *"
    ended(project.run("--packbench-list"), 0, "bundled suites: 1", tariff)
