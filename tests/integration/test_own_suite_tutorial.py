"""Every block of `docs/tutorial-own-suite.md`, in its order, from an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pytest_packbench.adapter.session
import pytest_packbench.packs.generic.pack
from pytest_packbench.cli import main
from pytest_packbench.packs import Packs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.adapter, pytest_packbench.packs)
PAGE = Path(__file__).parents[2] / "docs" / "tutorial-own-suite.md"
BLOCK = re.compile(r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODES = [0, 1, 0, 2, 0, 0, 1, 0, 1, 0]


class Block(NamedTuple):
    """A fenced block: a file to write, commands to run, or what they have to have said."""

    file: str | None
    kind: str
    text: str


def blocks() -> Iterator[Block]:
    for found in BLOCK.finditer(PAGE.read_text("utf-8")):
        yield Block(found["file"], found["kind"], found["text"])


def shown(line: str) -> Callable[[str], bool]:
    """Whether a line is the one of the page, whatever its spaces; `…` at its end stands for the rest."""
    wanted = " ".join(line.split())
    start = wanted.removesuffix("…").rstrip()
    return (lambda one: one.startswith(start)) if start != wanted else (lambda one: one == wanted)


def test_every_block_of_the_page(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    codes: list[int] = []
    said: list[str] = []
    for block in blocks():
        if block.file is not None:
            path = pytester.path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            said = []
            for line in block.text.splitlines():
                program, *words = shlex.split(line)
                code = pytester.runpytest(*words).ret if program == "pytest" else main(words)
                codes.append(int(code))
                said += [" ".join(one.split()) for one in capsys.readouterr().out.splitlines()]
        else:
            assert block.kind == "text", f"a block that nothing does: {block}"
            rest = iter(said)
            for line in block.text.splitlines():
                assert any(map(shown(line), rest)), f"not said, or not in this order: {line}"
    assert codes == EXIT_CODES


@pytest.mark.parametrize("pack", sorted(name for name, one in Packs().items() if one.starter() is not None))
def test_every_starter_runs_at_once(pytester: pytest.Pytester, pack: str) -> None:
    assert main(["init", "mine", "--pack", pack]) == 0
    result = pytester.runpytest("--packbench-suite=mine")
    result.assert_outcomes(passed=1, failed=1)
    readme = (pytester.path / "storage" / "benchmarks" / "mine" / "README.md").read_text("utf-8")
    score = next(line.split()[1] for line in result.outlines if line.startswith("score "))
    assert f"scores {score}" in readme
