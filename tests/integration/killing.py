"""Runs pytest again and again in children of one warm process, each killed at its own moment, then resumed.

    python killing.py PLAN

The plan is JSON: `chains`, for each folder of reports the moments at which its sessions are killed, and `options` of
pytest. After the last moment a chain is resumed undisturbed. A line of JSON is printed for each session.

A moment is `call:N` (the N-th call of the target in a process), `file:N` (the N-th time that a file of the reports is
opened for writing, renamed or removed), or `bytes:N` (the first write beyond so many bytes of any file, of which the
system writes the part that fits).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

# what children need is imported before they are forked
import pytest

import pytest_packbench.pytest_plugin.session
import pytest_packbench.pytest_plugin.xdist
import pytest_packbench.reports.story
from pytest_packbench.model.result import Result
from pytest_packbench.runs.journal import read_journal

_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.reports)
MOMENT = "KILLED_AT"
CALLS = Path("calls.txt")
PLUGINS = ("-pno:cacheprovider", "-ppytest_packbench.plugin", "-ppytest_jsonreport.plugin", "-pxdist.plugin")
_WRITING = os.O_WRONLY | os.O_RDWR
_numbers = count(1)


def _reach(kind: str) -> None:
    """Count an event; kill the whole process group if it is the moment."""
    if os.environ.get(MOMENT, "").startswith(f"{kind}:") and os.environ[MOMENT] == f"{kind}:{next(_numbers)}":
        os.killpg(0, signal.SIGKILL)


def arm() -> None:
    """Prepare for the moment that the environment names; called by the project's conftest."""

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in {"os.rename", "os.remove", "os.mkdir"} or (event == "open" and arguments[2] & _WRITING)
        if writes and isinstance(arguments[0], str | Path) and f"{os.sep}out_" in str(Path(arguments[0]).absolute()):
            _reach("file")

    kind, _, number = os.environ.get(MOMENT, "").partition(":")
    if kind == "file":
        sys.addaudithook(on_event)
    if kind == "bytes":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(number), int(number)))


def called(case_id: str) -> None:
    """Note a call of the target."""
    with CALLS.open("a", encoding="utf-8") as file:
        file.write(f"{case_id}\n")
    _reach("call")


def run_session(output: str, moment: str, options: list[str]) -> dict[str, Any]:
    """Run pytest once in a child, resuming the run if there is one."""
    runs = sorted(path for path in Path(output, "toy").glob("*") if path.is_dir())
    journals = [path / "journal.jsonl" for path in runs if (path / "journal.jsonl").exists()]
    scored = sorted(
        {entry.case.case_id for path in journals for entry in read_journal(path)[1] if isinstance(entry, Result)}
    )
    CALLS.unlink(missing_ok=True)
    arguments = [*PLUGINS, "--packbench-suite=toy", "--packbench-gate=suite", f"--packbench-output={output}", *options]
    arguments += ["--packbench-resume=latest"] if runs else []
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ[MOMENT] = moment
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os._exit(pytest.main(["-q", *arguments]))
    exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = CALLS.read_text("utf-8").splitlines() if CALLS.exists() else []
    killed = exit_code in {-signal.SIGKILL, -signal.SIGXFSZ}
    log_text = "" if killed else Path("log.txt").read_text("utf-8")
    return {"moment": moment, "killed": killed, "code": exit_code, "scored": scored, "calls": calls, "log": log_text}


def main(plan: dict[str, Any]) -> None:
    """Run the sessions of all chains."""
    # what a run imports is imported before children are forked; its report goes where nobody looks
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*PLUGINS, "--packbench-suite=toy", "--packbench-output=warm", "-q", *plan["options"], "-n0"])
    for output, moments in plan["chains"].items():
        for moment in [*moments, ""]:
            sys.stdout.write(json.dumps(run_session(output, moment, plan["options"])) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
