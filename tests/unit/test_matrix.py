"""The versions that `nox` runs are those that `pyproject.toml` declares."""

from __future__ import annotations

import re
import sys
from itertools import pairwise

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from benchmarks import matrix
from tests.doc_blocks import ROOT

SESSIONS = (ROOT / "noxfile.py").read_text("utf-8")


def test_each_requirement_of_users_has_a_lowest_version_that_a_session_installs() -> None:
    alone = {matrix.lowest(text) for extra in matrix.extras() for text in matrix.declared(extra)}
    together = {matrix.lowest(text) for text in matrix.beside_each_other()}
    everything = {matrix.lowest(text) for extra in ("", *matrix.extras()) for text in matrix.declared(extra)}

    assert everything == everything & (alone | together)
    apart = {matrix.lowest(text) for extra in matrix.APART for text in matrix.declared(extra)}
    assert everything - together == apart, "only the extras that are named are left out where all is at its lowest"
    assert len({pin.partition("==")[0] for pin in together}) == len(together), "two bounds of one package"


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("pydantic>=2.10", "pydantic==2.10"),
        ("pytest>=8.4,!=9.1.0", "pytest==8.4"),
        ("Nox[uv]>=2025.2,<2027; python_version > '3'", "nox==2025.2"),
    ],
)
def test_the_lowest_version_is_the_one_declared(text: str, pin: str) -> None:
    assert matrix.lowest(text) == pin


@pytest.mark.parametrize("text", ["pytest", "pytest<9", "pytest>=8,>=8.4", "pytest==8.4"])
def test_a_requirement_without_one_lower_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text}: expected one lower bound")):
        matrix.lowest(str(Requirement(text)))


def test_each_extra_of_users_has_tests_that_exist() -> None:
    assert {*matrix.TESTS_OF_EXTRAS} == {*matrix.extras()}
    named = {word for words in matrix.TESTS_OF_EXTRAS.values() for word in words if word.endswith(".py")}
    named |= {*re.findall(r'"(tests/[^"]+\.py)"', SESSIONS)}
    assert len(named) > 12
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    assert {matrix.name_of(text) for text in matrix.tools()} == {*matrix.TOOLS}


def test_the_releases_of_pytest_are_declared_and_rise() -> None:
    (declared,) = (Requirement(text) for text in matrix.declared() if matrix.name_of(text) == "pytest")
    releases = [each.partition("==")[2] for each in matrix.pytest_releases()]

    assert f">={releases[0]}" in str(declared.specifier)
    minors = [Version(each.replace("*", "999")) for each in releases]
    assert minors == sorted(minors)
    assert [each for each in minors if each not in declared.specifier] == []
    # each minor version from the lowest on has its last release
    last = {minor.release[:2] for minor in minors if minor.release[-1] == 999}
    assert last == {(8, 4), (9, 0), (9, 1)}


def test_the_pythons_are_those_of_the_classifiers_and_the_next() -> None:
    pythons = [tuple(map(int, each.split("."))) for each in matrix.pythons()]

    assert matrix.project()["requires-python"] == f">={matrix.pythons()[0]}"
    assert all(after == (3, before[1] + 1) for before, after in pairwise(pythons))
    assert len(pythons) > 3


def test_another_version_than_expected_and_a_package_that_is_not_installed_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "find_spec", lambda name: sys.modules["tests.doc_blocks"].__spec__)
    installed = pytest.__version__

    assert matrix.main([f"pytest=={installed}"]) == 0
    assert f"pytest {installed}\n" in capsys.readouterr().out
    assert matrix.main(["pytest==7.0"]) == 1
    assert capsys.readouterr().err == f"pytest: expected ==7.0, installed is {installed}\n"
    monkeypatch.setattr(matrix, "find_spec", lambda name: None)
    assert matrix.main([]) == 1
    assert "expected the one of an installed wheel" in capsys.readouterr().err
