"""A deferred package runs nothing until it is asked, and then is what it always was."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.agent_safety.agentdojo.target import defer

if TYPE_CHECKING:
    from pathlib import Path

BODY = "import sys\nsys.outer_ran.append(1)\nfrom outer_pkg.inner.heavy import NAME\n__all__ = ['NAME']\n"


@pytest.fixture
def executions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    inner = tmp_path / "outer_pkg" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer_pkg" / "__init__.py").write_text("")
    (inner / "__init__.py").write_text(BODY)
    (inner / "heavy.py").write_text("NAME = 'heavy'\n")
    (inner / "light.py").write_text("NAME = 'light'\n")
    monkeypatch.syspath_prepend(tmp_path)
    found: list[int] = []
    monkeypatch.setattr(sys, "outer_ran", found, raising=False)
    for name in ("", ".inner", ".inner.heavy", ".inner.light"):
        monkeypatch.delitem(sys.modules, f"outer_pkg{name}", raising=False)
    return found


def clean() -> None:
    for name in [name for name in sys.modules if name.startswith("outer_pkg")]:
        del sys.modules[name]


def test_its_modules_are_imported_without_it(executions: list[int]) -> None:
    defer("outer_pkg.inner")
    try:
        light = import_module("outer_pkg.inner.light")
        assert (light.NAME, executions) == ("light", [])
        assert "outer_pkg.inner.heavy" not in sys.modules
        package = sys.modules["outer_pkg.inner"]
        assert (package.light, executions) == (light, [])
        assert not hasattr(package, "__wrapped__")
        assert not executions
        # whoever asks it for a name gets the package as it is
        assert (package.NAME, executions) == ("heavy", [1])
        assert sys.modules["outer_pkg.inner"] is package
        with pytest.raises(AttributeError, match="nothing"):
            _ = package.nothing
        assert executions == [1]
    finally:
        clean()


def test_a_from_import_of_a_name_runs_it(executions: list[int]) -> None:
    defer("outer_pkg.inner")
    try:
        found: dict[str, object] = {}
        exec("from outer_pkg.inner import NAME", found)  # noqa: S102 - the statement itself is what is tried
        assert (found["NAME"], executions) == ("heavy", [1])
    finally:
        clean()


def test_what_fails_is_tried_again(executions: list[int], tmp_path: Path) -> None:
    (tmp_path / "outer_pkg" / "inner" / "heavy.py").unlink()
    defer("outer_pkg.inner")
    try:
        package = sys.modules["outer_pkg.inner"]
        for tries in (1, 2):
            with pytest.raises(ImportError):
                _ = package.NAME
            assert len(executions) == tries
    finally:
        clean()


def test_what_is_imported_or_absent_stays_as_it_is(executions: list[int]) -> None:
    try:
        package = import_module("outer_pkg.inner")
        defer("outer_pkg.inner")
        assert (sys.modules["outer_pkg.inner"], executions) == (package, [1])
        defer("outer_pkg.inner.absent")
        defer("outer_pkg.light_no")
        assert "outer_pkg.light_no" not in sys.modules
    finally:
        clean()
