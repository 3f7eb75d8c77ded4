"""Every block of `docs/pytest-way.md`, in its order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_packbench.packs.generic.pack
import pytest_packbench.pytest_plugin.marked

if TYPE_CHECKING:
    import pytest

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs)
PAGE = Path(__file__).parents[2] / "docs" / "pytest-way.md"
# the line before a block of a file ends with the file's name
BLOCK = re.compile(r"(?:`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODES = [1, 1, 1, 1, 1]


def single_spaced(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def contains_line(line: str, wanted: str) -> bool:
    """Whether a line is the one of the page; `…` stands for the rest."""
    start = wanted.removesuffix("…")
    return line == wanted if start == wanted else line.startswith(start.rstrip())


def test_every_block_of_the_page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    codes: list[int] = []
    said: list[str] = []
    files: set[str] = set()
    for block in BLOCK.finditer(PAGE.read_text("utf-8")):
        if block["file"] is not None:
            path = pytester.path / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
            files.add(path.name)
        elif block["kind"] == "console":
            said = []
            for line in block["text"].splitlines():
                program, *words = shlex.split(line)
                assert program == "pytest"
                run = pytester.runpytest(*words)
                codes.append(int(run.ret))
                said += [line.strip("= ") for line in single_spaced(run.stdout.str())]
        elif block["kind"] == "text":
            rest = iter(said)
            for wanted in single_spaced(block["text"]):
                assert any(contains_line(line, wanted) for line in rest), f"not said, or not in this order: {wanted}"
        else:
            # the mark with all that it takes, shown in a test of its own
            own = (pytester.path / "test_queues.py").read_text("utf-8").partition("@pytest.mark")[0]
            extra = pytester.path / "extra.py"
            extra.write_text(own + block["text"].replace("import pytest\n", ""), encoding="utf-8")
            result = pytester.runpytest("extra.py")
            result.assert_outcomes(failed=1)
            result.stdout.fnmatch_lines(["*test_hard_ones[[]money]*"])
    assert codes == EXIT_CODES
    assert files == {"desk.py", "suite.yaml", "refund.json", "money.json", "test_queues.py", "test_variants.py"}
