"""Whole commands in rounds, in turn: CPU time of the child, its peak memory, and the ratio to a yardstick."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOME = Path(__file__).resolve().parent.parent
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
REPORT = ("pytest_jsonreport", "metadata")


class Usage(NamedTuple):
    """The cost of a command: CPU seconds (user and system), peak memory (MiB), and seconds until it ended."""

    seconds: float
    mebibytes: float
    wall: float


class Command(NamedTuple):
    """A command that is measured.

    Attributes:
        name: for the table.
        words: the command with its arguments.
        folder: where it runs.
        variables: more variables of its environment; None where one is removed.
        against: the name of its yardstick; empty for a yardstick.
        limit: the largest ratio of CPU time; 0 without one.
        most: the most MiB; 0 without a limit.
        codes: the exit codes of success.
        per: what its CPU time beyond the yardstick's is divided by, such as a number of calls; 0 if it is not.
        most_ms: the most milliseconds of that.
    """

    name: str
    words: Sequence[str]
    folder: Path
    variables: Mapping[str, str | None] = {}
    against: str = ""
    limit: float = 0.0
    most: float = 0.0
    codes: tuple[int, ...] = (0,)
    per: int = 0
    most_ms: float = 0.0


def used(command: Command) -> Usage:
    """Run a command.

    Raises:
        SystemExit: its exit code is none of success.
    """
    begun = time.perf_counter()
    with subprocess.Popen(
        command.words,
        cwd=command.folder,
        env=environment(command.variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in command.codes:
        raise SystemExit(f"{command.folder}: {' '.join(command.words)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20, time.perf_counter() - begun)


def environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment without variables that change how pytest runs or packages are loaded."""
    prefixes = ("PYTEST", "PACKBENCH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "CI")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {name: value for name, value in {**plain, **PLAIN, **variables}.items() if value is not None}


def rounds(commands: Sequence[Command], number: int) -> Iterator[str]:
    """Run commands in turn, after a round that compiles and caches; yield the rows of a table.

    The fastest of each is shown: other work on the machine only slows a command down.
    """
    taken = [[used(command) for command in commands] for _ in range(number + 1)][1:]
    least = {
        command.name: Usage(*map(min, zip(*column, strict=True)))
        for command, column in zip(commands, zip(*taken, strict=True), strict=True)
    }
    for command in commands:
        usage = least[command.name]
        ratio = usage.seconds / least[command.against].seconds if command.against else 1.0
        beyond = 1000 * (usage.seconds - least[command.against].seconds) if command.against else 0.0
        each = f"{beyond / command.per:+.2f} ms each" if command.per else f"{beyond:+.0f} ms" if command.against else ""
        yield (
            f"| {command.name} | {1000 * usage.seconds:,.0f} | {ratio:.2f} | {each} | {usage.mebibytes:.0f} "
            f"| {usage.wall:.2f} | {judgement(command, ratio, beyond, usage)} |"
        )


def judgement(command: Command, ratio: float, beyond: float, usage: Usage) -> str:
    """Return which limits a command has, and whether it is within them."""
    limits = (
        (command.limit, ratio, "{:g} x"),
        (command.most, usage.mebibytes, "{:g} MiB"),
        (command.most_ms, beyond / (command.per or 1), "{:g} ms"),
    )
    return ", ".join(
        f"{form.format(most)}: {'met' if value <= most else f'missed by {value / most - 1:.0%}'}"
        for most, value, form in limits
        if most
    )


def pytest_words(python: str, *plugins: str) -> list[str]:
    """Return the start of a command that loads only these plugins of the environment."""
    loaded = [word for plugin in plugins for word in ("-p", plugin)]
    return [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *loaded]


def new_environment(folder: Path, *packages: str) -> str:
    """Make an environment with packages, compiled as pip does; return its interpreter."""
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if uv() else []), str(folder)], check=True)
    install = (
        [uv(), "pip", "install", "--compile-bytecode", "--python", python] if uv() else [python, "-m", "pip", "install"]
    )
    subprocess.run([*install, "--quiet", *packages], check=True)
    return python


def uv() -> str:
    """Return the program `uv` of this environment or of the machine; empty without one."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv") or ""


def wheel(folder: Path) -> str:
    """Build the wheel of the repository."""
    build = (
        [uv(), "build", "--quiet", "--wheel", "--out-dir"]
        if uv()
        else [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w"]
    )
    subprocess.run([*build, str(folder), str(HOME)], check=True)
    (built,) = folder.glob("*.whl")
    return str(built)
