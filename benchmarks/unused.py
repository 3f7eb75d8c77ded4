"""Measure the cost of the installed plugin in a run that does not use it.

    python -m benchmarks.unused [--rounds N]

One test that does nothing, four commands in turn: without this plugin and the plugins that it requires, with those,
with all, and with all if the plugin is installed from a wheel. The last two differ by the list of the package's files:
pytest reads the list of each distribution with a plugin, and the list of an editable install is short. Other plugins
of the environment are not loaded. Each command runs in a forked process that has loaded pytest's own modules
(`forked.py`). The result is CPU time: the mean of the fastest tenth of many rounds, because other work on the machine
slows a run down by more than the cost that is measured here.
"""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import REPORT, environment, pytest_command, write_no_op

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = Path(__file__).resolve().parent.parent


class Unused(NamedTuple):
    """CPU milliseconds of a run without plugins, and the cost of required plugins, this one, and its list of files."""

    alone: float
    required: float
    ours: float
    listed: float
    files: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(description="cost of the installed plugin in a run without suites")
    parser.add_argument("--rounds", type=int, default=100)
    found = measured(parser.parse_args(argv).rounds)
    print(
        f"pytest alone {found.alone:.0f} ms, required plugins {found.required:+.1f} ms, ours {found.ours:+.1f} ms, "
        f"the list of its {found.files} files {found.listed:+.1f} ms"
    )
    return 0


def measured(rounds: int) -> Unused:
    """Measure all commands."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "plain")
        write_no_op(place, 1)
        installed = {found.name for found in entry_points(group="pytest11")}
        site, files = Path(folder, "site"), _install(Path(folder, "site"))
        every = _without(installed - {*REPORT, "packbench"})
        runs = [(_without(installed), None), (_without(installed - {*REPORT}), None), (every, None), (every, str(site))]
        commands = json.dumps([{"arguments": arguments, "site": path} for arguments, path in runs])
        said = subprocess.run(
            [sys.executable, str(HOME / "benchmarks" / "forked.py"), str(rounds), commands],
            cwd=place,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    fastest = max(1, rounds // 10)
    alone, required, ours, listed = (statistics.mean(sorted(column)[:fastest]) for column in json.loads(said.stdout))
    return Unused(alone, required - alone, ours - required, listed - ours, files)


def _install(site: Path) -> int:
    """Install the package as a wheel does; return the number of its files."""
    found = distribution("pytest-packbench")
    shutil.copytree(HOME / "pytest_packbench", site / "pytest_packbench", ignore=shutil.ignore_patterns("__pycache__"))
    suites = site / "pytest_packbench" / "_suites"
    if not suites.exists():
        shutil.copytree(HOME / "storage" / "benchmarks", suites)
    compileall.compile_dir(site, quiet=1)
    about = site / f"pytest_packbench-{found.version}.dist-info"
    about.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(found.read_text(name) or "", encoding="utf-8")
    files = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*")) if path.is_file()]
    # each name is followed by a hash and a size
    lines = [f"{name},sha256={'0' * 43},1000" for name in files]
    (about / "RECORD").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return len(files)


def _without(names: set[str]) -> list[str]:
    # naming a plugin makes pytest search the environment again
    _, _, _, *arguments = pytest_command(*(f"no:{name}" for name in sorted(names)))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
