"""Where commands find suites and put runs: as pytest does, from the current folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import UsageError

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.cases.suite import Suite

ROOT = Path("storage") / "benchmarks"
OUTPUT = Path("reports") / "benchmarks"


def add_root(parser: argparse.ArgumentParser) -> None:
    """Declare `--root`, the folder of suites."""
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of suites (default storage/benchmarks)")


def find_suite(name: str, root: Path) -> Suite:
    """Read a suite by its name under the root, or by its folder; the wheel's where the root does not exist.

    Raises:
        UsageError: there is none.
        SuiteError: its rules can't be read.
    """
    from pytest_packbench.api import load_suite
    from pytest_packbench.cases.suite import CONFIG_NAME

    bundled = Path(__file__).resolve().parent.parent / "_suites"
    places = [Path(name), root / name, *([] if root.is_dir() else [bundled / name])]
    for place in places:
        if (place / CONFIG_NAME).is_file():
            return load_suite(place)
    known = sorted(path.parent.name for path in (root if root.is_dir() else bundled).glob(f"*/{CONFIG_NAME}"))
    raise UsageError(f'no suite is called "{name}" under {root}; known: {", ".join(known) or "none"}')


def run_folder(given: Path, output: Path = OUTPUT) -> Path:
    """Find a run: a folder, a file in it, or `<suite>/latest` under the output folder.

    Raises:
        UsageError: there is none.
    """
    for place in (given, output / given):
        if place.name == "latest" and place.is_file():
            return place.parent / place.read_text("utf-8").strip()
        if place.is_dir():
            return place
        if place.is_file():
            return place.parent
    raise UsageError(f"no run at {given}; expected a run's folder, or SUITE/latest")


def run_place(given: Path) -> Path:
    """Find what a run is read from: a file of it as it is, else its folder.

    Raises:
        UsageError: there is none.
    """
    return given if given.is_file() and given.name != "latest" else run_folder(given)
