"""A command opens each file of a run once: what two readers of one file disagree about would decide a run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stored.test_earlier_runs import COMMANDS, kept, project, ran

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kept", "project", "ran"]
_PAGES = (
    "packbench compare --baseline desk1 --current desk2 --html page.html",
    "packbench report desk1 --html page.html",
    "packbench open desk1 --print",
    "packbench baseline set desk1 --reason because",
)
_opened: list[Counter[Path]] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened and isinstance(arguments[0], str | bytes | os.PathLike):
        path, mode = Path(os.fsdecode(arguments[0])), arguments[1]
        if (mode is None or "r" in str(mode)) and path.suffix in {".json", ".jsonl"}:
            _opened[-1][path.absolute()] += 1


sys.addaudithook(_note)


def test_a_second_opening_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("{}", encoding="utf-8")
    _opened.append(Counter())
    for _ in range(2):
        path.read_text("utf-8")
        os.close(os.open(path, os.O_RDONLY))
    assert _opened.pop() == {path: 4}


@pytest.mark.parametrize("command", [*COMMANDS, *_PAGES])
def test_each_file_of_a_run_is_opened_once(command: str, ran: Callable[[str], object], kept: Path) -> None:
    before = {path for path in kept.rglob("*.json*") if "reports" in path.parts or path.name == "baseline.json"}
    before |= set(kept.glob("*.jsonl"))
    _opened.append(Counter())
    try:
        ran(command)
    finally:
        opened = _opened.pop()
    found = {path.relative_to(kept).as_posix(): count for path, count in opened.items() if path in before}
    assert {path: count for path, count in found.items() if count > 1} == {}
