"""Run pytest many times, each time in a process forked from this one, which has loaded pytest's own modules.

    python benchmarks/forked.py ROUNDS COMMANDS

COMMANDS is a JSON list; each has `arguments` for pytest and `site`, a folder of installed packages that takes the place
of the environment's own, or null. They run in turn, ROUNDS times, in the working directory. The output is a JSON list
per command: the CPU time of each of its runs, user plus system, milliseconds. The imports that all commands have in
common take three times as long as the rest, and vary by more than the cost of an installed plugin: here they are not
part of a run.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import sysconfig
from typing import TYPE_CHECKING, NoReturn

import pytest
from _pytest.config import default_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Measure and print the times."""
    rounds, commands = int(argv[0]), json.loads(argv[1])
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    # garbage collection in a child would copy the memory that it shares with this process
    gc.freeze()
    for command in commands:
        once(**command)
    times = [[once(**command) for command in commands] for _ in range(rounds)]
    print(json.dumps(list(zip(*times, strict=True))))
    return 0


def once(arguments: list[str], site: str | None) -> float:
    """Run pytest once.

    Returns:
        CPU milliseconds.

    Raises:
        SystemExit: the run failed.
    """
    child = os.fork()
    if not child:
        _run(arguments, site)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"pytest {' '.join(arguments)}: exit code {os.waitstatus_to_exitcode(status)}")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def _run(arguments: list[str], site: str | None) -> NoReturn:
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if site is not None:
            sys.path[sys.path.index(sysconfig.get_path("purelib"))] = site
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        # this process is a copy and must not end anything that belongs to the original
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
