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


def load_page_module() -> Any:
    """Return the module that writes the page; it is in no package."""
    spec = spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = load_page_module()
ROWS = [PAGE.Row("this", "1.2 x", "that", "1.3 x", "Met.")]


def test_the_page_has_the_table_of_a_run() -> None:
    _, begin, rest = PAGE.PAGE.read_text("utf-8").partition(PAGE.BEGIN)
    measured, end, _ = rest.partition(PAGE.END)
    assert begin
    assert end
    assert "Measured on 20" in measured
    for budget in ("5 ms", "1.3 x", "1.15 x", "95 %", "200 MiB", "1.6 x", "CPU s"):
        assert budget in measured


def test_the_command_writes_between_the_markers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "python -m benchmarks" in PAGE.PAGE.read_text("utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{PAGE.BEGIN}\nold\n{PAGE.END}\nafter\n", encoding="utf-8")
    PAGE.write_table(PAGE.table(ROWS), page)
    PAGE.write_table(PAGE.table(ROWS), page)
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{PAGE.BEGIN}\n\n| what |")
    assert text.endswith(f"| this | 1.2 x | that | 1.3 x | Met. |\n\n{PAGE.END}\nafter\n")
    assert "old" not in text
    page.write_text("nothing here", encoding="utf-8")
    with pytest.raises(ValueError, match="has no lines"):
        PAGE.write_table("x", page)


def test_a_budget_is_met_or_missed_by_a_percentage() -> None:
    assert PAGE.describe_budget(1.3, 1.3) == "Met."
    missed = PAGE.describe_budget(1.43, 1.3, limit=1.5, why="A reason.")
    assert missed == "Missed by 10%, within the limit of 1.5. A reason."
    assert PAGE.describe_budget(2.6, 1.3, limit=1.5) == "Missed by 100%."
