"""`packbench open`: open the page of a run in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output, add_packs, add_root
from pytest_packbench.runs.folder import JOURNAL, PAGE, REPORT, find_run_folder, is_run_id

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, nargs="?", help="the run: its folder, or SUITE/latest (default: the newest)")
    parser.add_argument("--print", action="store_true", help="print the path of the page, and open no browser")
    add_output(parser)
    add_root(parser)
    add_packs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Open the page of a run, one for each suite of the newest, and print its path; make it where it is missing.

    Raises:
        UsageError: there is no run, or the page can't be written.
        StoredRunError: the run did not end, or can't be read.
        OSError: a file can't be read.
    """
    if arguments.run is not None:
        pages = [_page(find_run_folder(arguments.run, arguments.output), arguments)]
    else:
        pages = [_page(folder, arguments) for folder in _newest(arguments.output)]
    for page in pages:
        sys.stdout.write(f"{page}\n")
    if arguments.print:
        return FINE
    sys.stdout.flush()
    if not all(map(_has_opened, pages)):
        sys.stderr.write("packbench: no browser could be started; open the file yourself\n")
    return FINE


def _newest(output: Path) -> Sequence[Path]:
    """Return the folders of the newest run, one for each suite."""
    folders = [
        folder
        for pattern in ("*/*/", "*/*/*/")
        for folder in output.glob(pattern)
        if is_run_id(folder.name) and any((folder / name).is_file() for name in (PAGE, REPORT, JOURNAL))
    ]
    if not folders:
        raise UsageError(f"no run under {output}; run a suite, or pass the folder of a run")
    # run ids sort by time
    newest = max(folder.name for folder in folders)
    return sorted(folder for folder in folders if folder.name == newest)


def _page(folder: Path, arguments: argparse.Namespace) -> Path:
    """Return the page of a run; it is made from the run's files where it is missing."""
    page = folder / PAGE
    if page.is_file():
        return page
    from pytest_packbench.commands.stored_page import write_page

    return write_page(folder, arguments)


def _has_opened(page: Path) -> bool:
    """Open a page in a browser with windows; return whether one was started."""
    import webbrowser

    # without a display, a browser for terminals would take this one over
    if sys.platform not in {"win32", "darwin"} and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    try:
        return webbrowser.open(page.resolve().as_uri())
    except (webbrowser.Error, OSError):
        return False
