"""A project whose files are damaged, and how often hypothesis tries: `--hypothesis-profile=fuzz` tries four times more."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.conftest import forget_variables
from tests.fuzz.project import make_project
from tests.fuzz.reading import Project

if TYPE_CHECKING:
    from pathlib import Path

settings.register_profile("fuzz", max_examples=400)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, whose suite has run five times."""
    return make_project(tmp_path_factory.mktemp("fuzz") / "project")


@pytest.fixture
def project(made: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the project, which is the working directory."""
    forget_variables(monkeypatch)
    shutil.copytree(made, pytester.path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(pytester.path)
    return Project(pytester)
