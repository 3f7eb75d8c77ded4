"""The fenced blocks of a page: files to write, commands to run, and their quoted output."""

from __future__ import annotations

import glob
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.commands import main
from tests.conftest import forget_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])
BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
# what makes an environment: the tests have theirs
_PREPARING = ("pip ", "python3 -m venv ", ". .venv/")


class Block(NamedTuple):
    """A fenced block: a file to write, commands to run, or what they print."""

    file: str | None
    kind: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    return blocks_of(page.read_text("utf-8"))


def blocks_of(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        yield Block(match["file"], match["kind"], re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE))


def line_matcher(line: str) -> Callable[[str], bool]:
    """Whether a line is the one of the page, whatever its spaces and rules; `…` at its end stands for the rest."""
    wanted = normalize(line)
    start = wanted.removesuffix("…").rstrip()
    return (lambda one: one.startswith(start)) if start != wanted else (lambda one: one == wanted)


def normalize(line: str) -> str:
    return " ".join(re.sub(r"^[=_]{3,} | [=_]{3,}$", "", line).split())


def first_missing_line(quoted: Iterable[str], output: Iterable[str]) -> list[str]:
    """Return the first quoted line that the output does not contain, in this order."""
    rest = iter(map(normalize, output))
    return [line for line in quoted if not any(map(line_matcher(line), rest))][:1]


@dataclass
class PageRunner:
    """Runs the instructions of pages in a folder.

    Attributes:
        codes: the exit codes of all commands, in order.
        output: the lines that the commands of the last block printed.
        snippets: a list for the blocks that are only shown; a page must have none without it.
    """

    pytester: pytest.Pytester
    capsys: pytest.CaptureFixture[str]
    codes: list[int] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    snippets: list[Block] | None = None

    def block(self, block: Block) -> None:
        if block.file is not None:
            path = self.pytester.path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            self.output = []
            for line in block.text.splitlines():
                if not line.startswith(_PREPARING):
                    self.codes.append(self.command(line))
        elif block.kind == "text":
            assert first_missing_line(block.text.splitlines(), self.output) == []
        else:
            assert self.snippets is not None, f"a block that is only shown: {block}"
            self.snippets.append(block)

    def command(self, line: str) -> int:
        """Run a line: ours here, anything else in a shell."""
        program, *words = shlex.split(line)
        if program not in {"pytest", "packbench"} or set(words) & {">", ">>", "|", "&&"}:
            done = subprocess.run(
                ["sh", "-c", line], cwd=self.pytester.path, capture_output=True, text=True, check=False
            )
            code = done.returncode
            self.output += [normalize(one) for one in (done.stdout + done.stderr).splitlines()]
        else:
            # a shell's own patterns
            words = [word for text in words for word in (sorted(glob.glob(text)) if "*" in text else [text])]  # noqa: PTH207
            code = int(self.pytester.runpytest(*words).ret) if program == "pytest" else main(words)
        captured = self.capsys.readouterr()
        self.output += [normalize(one) for text in captured for one in text.splitlines()]
        return code


def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which pages are walked: wide, without settings of ours, and with no stale bytecode."""
    forget_variables(monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    # a file that a page changes within a second would be run as it was before
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
