"""Helpers that the tests of shards use until they use the fixture's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.integration.conftest import MANY, Project, toy_case

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MANY", "line", "write"]


def line(case_id: str, **fields: Any) -> str:
    return json.dumps(toy_case(case_id, **fields))


def write(project: Project, *lines: str, path: str = MANY) -> Path:
    return project.case_lines(*lines, path=path)
