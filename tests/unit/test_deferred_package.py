"""A deferred package runs nothing until a name of it is accessed, and then is the package itself."""

from __future__ import annotations

import sys
from importlib import import_module, invalidate_caches
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.agent_safety.agentdojo.upstream import defer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "outer_pkg.inner"
FILES = {
    "outer_pkg/__init__.py": "",
    "outer_pkg/inner/__init__.py": f"import sys\nsys.outer_ran.append(1)\nfrom {NAME}.heavy import NAME\n__all__ = ['NAME']\n",
    "outer_pkg/inner/heavy.py": "NAME = 'heavy'\n",
    "outer_pkg/inner/light.py": "NAME = 'light'\n",
}


@pytest.fixture
def executions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One element for each time that the package's own code ran."""
    (tmp_path / "outer_pkg" / "inner").mkdir(parents=True)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    ran: list[int] = []
    monkeypatch.setattr(sys, "outer_ran", ran, raising=False)
    yield ran
    for name in [name for name in sys.modules if name.startswith("outer_pkg")]:
        del sys.modules[name]


def test_its_modules_are_imported_without_running_it(executions: list[int], tmp_path: Path) -> None:
    defer(NAME)
    light, package = import_module(f"{NAME}.light"), sys.modules[NAME]
    assert (light.NAME, package.light, executions) == ("light", light, [])
    assert not hasattr(package, "__wrapped__")
    assert (f"{NAME}.heavy" in sys.modules, executions) == (False, [])
    heavy = tmp_path / "outer_pkg" / "inner" / "heavy.py"
    heavy.rename(tmp_path / "away")
    # code that fails runs again
    for times in (1, 2):
        with pytest.raises(ImportError):
            _ = package.NAME
        assert len(executions) == times
    (tmp_path / "away").rename(heavy)
    invalidate_caches()
    assert (package.NAME, executions) == ("heavy", [1, 1, 1])
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
    assert (sys.modules[NAME], len(executions)) == (package, 3)


def test_an_import_of_all_names_runs_it_and_one_that_is_imported_or_missing_is_left_alone(
    executions: list[int],
) -> None:
    defer(NAME)
    namespace: dict[str, object] = {}
    exec(f"from {NAME} import *", namespace)  # noqa: S102 - the statement itself is under test
    assert (namespace["NAME"], executions) == ("heavy", [1])
    package = sys.modules[NAME]
    for name in (NAME, f"{NAME}.absent", "outer_pkg.absent"):
        defer(name)
    assert (sys.modules[NAME], executions) == (package, [1])
    assert not [name for name in sys.modules if name.startswith("outer_pkg") and name.endswith("absent")]
