"""Run pytest many times, each time in a process forked from this one, in which pytest's own modules are loaded.

    python benchmarks/forked.py ROUNDS COMMANDS

COMMANDS is a JSON list; each has `arguments` for pytest and `site`, a folder of installed packages that is looked in
first, or null. They run in turn, ROUNDS times, in the working directory. Written is a JSON list for each command: the
CPU time of each of its runs, user plus system, milliseconds. What all commands import alike takes three times as long
as the rest, and varies by more than what an installed plugin adds: here it is no part of a run.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest
from _pytest.config import default_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Measure and print."""
    rounds, commands = int(argv[0]), json.loads(argv[1])
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    # a child that looks for garbage would copy what it shares with this process
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
        SystemExit: the run did not go well.
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
            sys.path.insert(0, site)
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        # this process is a copy: nothing of the other one's is to be ended here
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
