"""Measure the project's own tests: their lines, their time, and what they cover of the package.

    python -m benchmarks.own_tests [--rounds N] [--data FILE]

**Time** is the wall clock of `pytest -n 2`, the README's second command without the installation, in a checkout with
the extra `dev`. The budget is five minutes on two processors with nothing else to do: read the load that is printed.

**Coverage** (`--data`) is measured in runs of their own: lines and branches of the package, those that run in child
processes included, by these tests and by those on several machines. Tests of extras that are not installed are skipped.
Those alongside other plugins are left out: pytest-cov would erase the data. The file then holds which test runs which
line, as `python -m benchmarks.mutants` reads it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME = Path(__file__).resolve().parent.parent
TESTS = HOME / "tests"
PYTEST = ("-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider")
BUDGET_MIN = 5


def size() -> tuple[int, int]:
    """Return the number of Python files of the tests, and of their lines."""
    files = sorted(TESTS.rglob("*.py"))
    return len(files), sum(path.read_bytes().count(b"\n") for path in files)


def run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Run Python with arguments in the repository and return what it prints; a failure ends the measurement."""
    ran = subprocess.run([sys.executable, *command], cwd=HOME, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stdout[-3000:]}{ran.stderr[-1000:]}")
    return ran.stdout


def summary(printed: str) -> str:
    """Return the last line of pytest: how many tests passed or were skipped."""
    lines = [line for line in printed.splitlines() if re.search(r"\d+ passed", line)]
    return lines[-1].strip("= ")


def timed() -> str:
    """Run the tests once and describe how long it took."""
    load, begun = os.getloadavg()[0], time.monotonic()
    printed = run(*PYTEST)
    minutes = (time.monotonic() - begun) / 60
    verdict = "met" if minutes <= BUDGET_MIN else f"missed by {minutes - BUDGET_MIN:.1f}"
    return f"{minutes:.1f} minutes (load before {load:.1f}; budget {BUDGET_MIN}: {verdict}): {summary(printed)}"


def covered(data: Path) -> str:
    """Run the tests once with coverage and describe what they cover."""
    env = {**os.environ, "COVERAGE_FILE": str(data.resolve())}
    traced = ("-m", "coverage", "run", *PYTEST, "-p", "benchmarks.traced")
    printed = [summary(run(*traced, env=env)), summary(run(*traced, "tests/machines", env=env))]
    run("-m", "coverage", "combine", "-q", env=env)
    with tempfile.TemporaryDirectory() as folder:
        run("-m", "coverage", "json", "-q", "-o", f"{folder}/totals.json", env=env)
        totals = json.loads(Path(folder, "totals.json").read_text("utf-8"))["totals"]
    parts = (("lines", "covered_lines", "num_statements"), ("branches", "covered_branches", "num_branches"))
    shares = [
        f"{totals[part]:,} of {totals[whole]:,} {name} ({totals[part] / totals[whole]:.2%})"
        for name, part, whole in parts
    ]
    return f"covered: {', '.join(shares)}: {'; '.join(printed)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_tests", description="the project's own tests")
    parser.add_argument("--rounds", type=int, default=1, help="how often they are timed (default 1)")
    parser.add_argument("--data", type=Path, help="measure the coverage as well, and write its data to this file")
    arguments = parser.parse_args(argv)
    print("{:,} files, {:,} lines".format(*size()), flush=True)
    for _ in range(arguments.rounds):
        print(timed(), flush=True)
    if arguments.data:
        print(covered(arguments.data), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
