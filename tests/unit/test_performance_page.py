"""The page of measurements: its table comes from the command, between markers that the command finds."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

import pytest

from tests.doc_blocks import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def page() -> Any:
    """The module that writes the page; it is in no package."""
    spec = spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_writes_between_the_markers(page: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = page.PAGE.read_text("utf-8").partition(page.BEGIN)[2].partition(page.END)[0]
    assert "Measured on 20" in measured
    assert all(budget in measured for budget in ("5 ms", "1.3 x", "1.15 x", "95 %", "200 MiB", "1.6 x", "CPU s"))
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        page.write_table(page.table([page.Row("this", "1.2 x", "that", "1.3 x", "Met.")]), path)
    text = path.read_text("utf-8")
    assert text.startswith(f"before\n{page.BEGIN}\n\n| what |")
    assert text.endswith(f"| this | 1.2 x | that | 1.3 x | Met. |\n\n{page.END}\nafter\n")
    assert "old" not in text
    path.write_text("nothing here", encoding="utf-8")
    with pytest.raises(ValueError, match="has no lines"):
        page.write_table("x", path)


def test_a_budget_is_met_or_missed_by_a_percentage(page: Any) -> None:
    assert page.describe_budget(1.3, 1.3) == "Met."
    missed = page.describe_budget(1.43, 1.3, limit=1.5, why="A reason.")
    assert missed == "Missed by 10%, within the limit of 1.5. A reason."
    assert page.describe_budget(2.6, 1.3, limit=1.5) == "Missed by 100%."
