"""Runs pytest again and again in children of one warm process, each killed at its own moment, then resumed.

    python killing.py PLAN

The plan is JSON: `chains`, each with the folder of its reports and the moments at which its sessions are killed. After
the last moment a chain is resumed undisturbed. A line of JSON is printed for each session: what was done when it began,
what its target was asked for, how it ended.

A moment is `call:N` (the target is asked for the N-th time in a process), `line:N:P` (P per mille of the N-th line of
the journal are written) or `file:N` (the N-th time that a file of the reports is opened for writing, renamed or
removed). The whole process group gets SIGKILL.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

# what children need is imported before they are forked
import pytest

import pytest_packbench.pytest_plugin.session
import pytest_packbench.pytest_plugin.xdist
import pytest_packbench.reports.markdown
from pytest_packbench.runs.journal import read_journal

_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.reports)
MOMENT = "KILLED_AT"
CALLS = "calls.txt"
_WRITING = os.O_WRONLY | os.O_RDWR


def arm() -> None:
    """Get ready to die at the moment that the environment names; called by the project's conftest."""
    kind, _, rest = os.environ.get(MOMENT, "").partition(":")
    if kind == "file":
        left = int(rest)

        def heard(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event in {"os.rename", "os.remove", "os.mkdir"} or (event == "open" and arguments[2] & _WRITING)
            if writes and isinstance(arguments[0], str | Path) and f"{os.sep}out" in str(Path(arguments[0]).absolute()):
                left -= 1
                if left == 0:
                    _die()

        sys.addaudithook(heard)
    if kind == "line":
        number, per_mille = map(int, rest.split(":"))
        _tear(number, per_mille)


def called(case_id: str) -> None:
    """Note that the target was asked, and die where that is the moment."""
    handle = os.open(CALLS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{case_id}\n".encode())
    os.close(handle)
    kind, _, rest = os.environ.get(MOMENT, "").partition(":")
    if kind == "call":
        _SEEN.append(case_id)
        if len(_SEEN) == int(rest):
            _die()


_SEEN: list[str] = []


def _die() -> None:
    os.killpg(0, signal.SIGKILL)


def _tear(number: int, per_mille: int) -> None:
    from pytest_packbench.runs import journal

    left, whole = number, journal._write_all

    def write(file: Any, line: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            file.write(line[: len(line) * per_mille // 1000])
            _die()
        whole(file, line)

    journal._write_all = write


def session(output: str, moment: str, options: list[str]) -> dict[str, Any]:
    """Run pytest once in a child, resuming where there is a run already."""
    folder = Path(output, "toy")
    runs = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    done = sorted({entry.case_id for path in runs for entry in _entries(path)})
    Path(CALLS).unlink(missing_ok=True)
    arguments = ["--packbench-suite=toy", f"--packbench-output={output}", "-q", *options]
    arguments += ["--packbench-resume=latest"] if runs else []
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ[MOMENT] = moment
        file = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os._exit(pytest.main(arguments))
    _, status = os.waitpid(child, 0)
    calls = Path(CALLS).read_text("utf-8").splitlines() if Path(CALLS).exists() else []
    ended = os.waitstatus_to_exitcode(status)
    log = Path("log.txt").read_text("utf-8") if ended not in {0, -signal.SIGKILL} else ""
    return {"output": output, "moment": moment, "done": done, "calls": calls, "ended": ended, "log": log}


def _entries(folder: Path) -> list[Any]:
    path = folder / "journal.jsonl"
    return read_journal(path) if path.exists() else []


def main(plan: dict[str, Any]) -> None:
    """Go through the chains."""
    # what a run imports is imported before children are forked; its report goes where nobody looks
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--packbench-suite=toy", "--packbench-output=warm", "-q", *plan["options"], "-n0"])
    for chain in plan["chains"]:
        for moment in [*chain["moments"], ""]:
            sys.stdout.write(json.dumps(session(chain["output"], moment, plan["options"])) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
