"""`--packbench-list`: the suites with their numbers of cases."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.activation import suites_root, suites_under
from pytest_packbench.adapter.suites import known_packs, read_suite
from pytest_packbench.cases.files import case_paths, count_in

if TYPE_CHECKING:
    from pathlib import Path


def show_suites(config: pytest.Config) -> int:
    """Print the suites and give the exit code: 0, or 4 where a suite's rules can't be read."""
    root, bundled = suites_root(config, config.option)
    packs = known_packs(config)
    status = pytest.ExitCode.OK
    found = suites_under(root)
    lines = [f"suites under {os.path.relpath(root)}{' (bundled)' if bundled else ''}: {len(found) or 'none'}"]
    for name, path in found.items():
        try:
            suite = read_suite(config, name, path, packs, bundled=bundled)
            about = f"pack {suite.config.pack}: {suite.config.description}"
        except pytest.UsageError as error:
            about, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
        lines.append(f"  {name}: {_counted(path / 'cases')}; {about}")
    _print("\n".join(lines))
    return int(status)


def _counted(folder: Path) -> str:
    counts: dict[str, int] = {}
    for path in case_paths(folder):
        cases = count_in(path)
        if cases:
            kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - text, as it comes
            counts[kind] = counts.get(kind, 0) + cases
    total = sum(counts.values())
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"{total} case{'' if total == 1 else 's'}{f' ({listed})' if listed else ''}"


def _print(text: str) -> None:
    import sys

    sys.stdout.write(text + "\n")
