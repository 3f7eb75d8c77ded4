"""Measure the cost of the installed plugin in a run that does not use it.

    python -m benchmarks.unused [--rounds N]

The wheel is built, and installed beside pytest and the plugins that it requires in a new environment. One test that
does nothing, four commands in turn: without plugins, with the required ones, with this one whose list of files is
empty, and with its real list: pytest reads the list of each distribution with a plugin. Each command runs in a forked
process that has loaded pytest's own modules (`forked.py`). The result is CPU time: the mean of the fastest tenth of
many rounds, because other work on the machine slows a run down by more than the cost that is measured here.

Where a CPython 3.12 is found, the same is measured there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import REPORT, environment, pytest_command, write_no_op

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = Path(__file__).resolve().parent.parent
NEWER = "3.12"


class Cost(NamedTuple):
    """CPU milliseconds of a run without plugins, and what the required ones, this one and its list of files add."""

    alone: float
    required: float
    ours: float
    listed: float

    @property
    def both(self) -> float:
        """What this plugin adds with its list of files."""
        return self.ours + self.listed


class Unused(NamedTuple):
    """What the plugin costs in a run without suites.

    Attributes:
        here: on the Python of this process.
        newer: on `NEWER`; None where there is none.
        wheel: the number of files in the wheel.
        installed: the number of files in the list, with those that pip compiles.
    """

    here: Cost
    newer: Cost | None
    wheel: int
    installed: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(description="cost of the installed plugin in a run without suites")
    parser.add_argument("--rounds", type=int, default=100)
    found = measure(parser.parse_args(argv).rounds)
    for name, cost in ((platform.python_version(), found.here), (NEWER, found.newer)):
        if cost is None:
            print(f"no CPython {name} on this machine")
            continue
        print(
            f"Python {name}: pytest alone {cost.alone:.1f} ms, required plugins {cost.required:+.1f} ms, "
            f"ours {cost.ours:+.1f} ms, its list of files {cost.listed:+.1f} ms: {cost.both:.1f} ms together"
        )
    print(f"{found.wheel} files in the wheel, {found.installed} in the list")
    return 0


def measure(rounds: int) -> Unused:
    """Measure all commands."""
    with tempfile.TemporaryDirectory() as folder:
        write_no_op(Path(folder, "plain"), 1)
        wheel = build_wheel(Path(folder, "wheel"))
        here, installed = _measure(Path(sys.executable), rounds, wheel, Path(folder))
        newer = find_python(NEWER)
        other = _measure(newer, rounds, wheel, Path(folder))[0] if newer is not None else None
        return Unused(here, other, len(zipfile.ZipFile(wheel).namelist()), installed)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the repository."""
    _pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(HOME))
    (wheel,) = folder.glob("*.whl")
    return wheel


def _measure(base: Path, rounds: int, wheel: Path, folder: Path) -> tuple[Cost, int]:
    """Return the costs on a Python, and the number of files in the list of an installation."""
    place = Path(tempfile.mkdtemp(dir=folder))
    subprocess.run([str(base), "-m", "venv", str(place / "environment")], check=True)
    python = place / "environment" / "bin" / "python"
    _pip(python, "install", str(wheel))
    (packages,) = (place / "environment" / "lib").glob("*/site-packages")
    listed, unlisted = place / "listed", place / "unlisted"
    for copy in (listed, unlisted):
        shutil.copytree(packages, copy)
    (record,) = unlisted.glob("pytest_packbench-*.dist-info/RECORD")
    files = len(record.read_text("utf-8").splitlines())
    record.write_text("", encoding="utf-8")
    # what is left is what the plugin requires
    _pip(python, "uninstall", "--yes", "pytest-packbench")
    every = _arguments()
    commands = [(_arguments(*REPORT), None), (every, None), (every, str(unlisted)), (every, str(listed))]
    described = json.dumps([{"arguments": arguments, "site": site} for arguments, site in commands])
    output = subprocess.run(
        [str(python), str(HOME / "benchmarks" / "forked.py"), str(rounds), described],
        cwd=folder / "plain",
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    fastest = max(1, rounds // 10)
    alone, required, ours, all_of_it = (
        statistics.mean(sorted(column)[:fastest]) for column in json.loads(output.stdout)
    )
    return Cost(alone, required - alone, ours - required, all_of_it - ours), files


def find_python(version: str) -> Path | None:
    """Return a CPython of a version, from the search path or from pyenv; None where there is none that works."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for name in (f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))):
        path = shutil.which(name)
        check = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
        if path is not None and not subprocess.run([path, "-c", check], check=False, capture_output=True).returncode:
            return Path(path)
    return None


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _arguments(*without: str) -> list[str]:
    # naming a plugin makes pytest search the environment again
    _, _, _, *arguments = pytest_command(*(f"no:{name}" for name in without))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
