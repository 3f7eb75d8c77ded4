"""Files of the packs' own reach a target: by ini from rootdir, by environment, which comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.integration.conftest import Project


def test_a_file_named_in_the_ini(project: Project) -> None:
    project.pytester.makeini("[pytest]\npackbench_hts = data/schedule.tsv\n")
    place = project.root / "data" / "schedule.tsv"
    project.case("a", python=f"assert str(context.files['hts']) == {str(place)!r}")
    project.run_toy().assert_outcomes(passed=1)


def test_the_environment_comes_before_the_ini(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.pytester.makeini("[pytest]\npackbench_hts = data/schedule.tsv\n")
    monkeypatch.setenv("PACKBENCH_HTS", "/elsewhere/schedule.tsv")
    project.case("a", python="assert str(context.files['hts']) == '/elsewhere/schedule.tsv'")
    project.run_toy().assert_outcomes(passed=1)


def test_nothing_is_given_where_nothing_is_named(plain: Project) -> None:
    plain.case("a", python="assert dict(context.files) == {}")
    plain.run_toy().assert_outcomes(passed=1)


def test_an_unrelated_run_knows_the_key(plain: Project) -> None:
    plain.pytester.makeini("[pytest]\nstrict_config = true\npackbench_hts = data/schedule.tsv\n")
    plain.pytester.makepyfile("def test_one(): pass")
    plain.run("-W", "error").assert_outcomes(passed=1)
