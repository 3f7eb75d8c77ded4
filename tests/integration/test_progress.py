"""How far a live run is: the line itself, on a terminal, and where the output is none."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.scheduler import RunProgress
from pytest_packbench.pytest_plugin.terminal import progress_line

if TYPE_CHECKING:
    from tests.integration.conftest import Project

NONE = {"tokens": 0, "cost": 0.0, "currency": "USD"}
SPENT = {"tokens": 51_234, "cost": 0.1234, "currency": "USD"}
UNKNOWN = {"tokens": None, "cost": None, "currency": "USD"}
HALFWAY = {"failing": 2, "retries": 1, "elapsed_s": 30.0}
# done, planned, under way, the age of the oldest; what is spent; the rest
LINES: dict[str, tuple[tuple[int, int, int, float], dict[str, Any], dict[str, Any]]] = {
    "packbench: 0 of 200 done, 0 failing": ((0, 200, 0, 0.0), NONE, {}),
    "packbench: 0 of 200 done, 0 failing, 8 under way, the oldest for 4 s": ((0, 200, 8, 4.2), NONE, {}),
    # of the first attempts that are over the rate is not known yet
    "packbench: 7 of 200 done, 1 failing, 8 under way": ((7, 200, 8, 0.0), NONE, {"failing": 1, "elapsed_s": 9.0}),
    "packbench: 40 of 200 done, 2 failing, about 2 min left, 0.1234 USD, 8 under way, 1 repeated call, 51,234 tokens": (
        (40, 200, 8, 0.0),
        SPENT,
        HALFWAY,
    ),
    "packbench: 40 of 200 done, 2 failing, about 2 min left, 0.1234 USD": (
        (40, 200, 8, 0.0),
        SPENT,
        {**HALFWAY, "width": 70},
    ),
    "packbench: 40": ((40, 200, 0, 0.0), NONE, {"elapsed_s": 30.0, "width": 13}),
    # what is not known is never 0
    "packbench: 190 of 200 done, 0 failing, about 5 s left": ((190, 200, 0, 0.0), UNKNOWN, {"elapsed_s": 30.0}),
    "packbench: 100 of 2,000 done, 0 failing, about 317 min left": ((100, 2000, 0, 0.0), NONE, {"elapsed_s": 1000.0}),
}


@pytest.mark.parametrize("line", LINES)
def test_the_line(line: str) -> None:
    (done, planned, in_flight, oldest_s), spent, more = LINES[line]
    progress = RunProgress(done=done, planned=planned, in_flight=in_flight, oldest_s=oldest_s)
    assert progress_line(progress, spent, **more) == line


def write_cases(project: Project, count: int = 4) -> list[str]:
    project.prepare(*["x"] * count)
    project.case("case_bad", text="bad")
    project.write(
        "slow.py",
        "import asyncio\nasync def act(request):\n    print('printed')\n    await asyncio.sleep(0.4)\n"
        "    return {'points': 0 if request.input['text'] == 'bad' else 1}\n",
    )
    return ["--packbench-suite=toy", "--packbench-mode=live", "--packbench-target=slow:act"]


def screen_of(output: str) -> list[str]:
    """Return what a terminal shows at the end, which is wide and high enough for all lines."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", output):
        number = int(re.sub(r"\D", "", part.partition(";")[0]) or 1) if part[0] == "\x1b" else 0
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif part[0] != "\x1b":
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
        elif part[-1] == "K":
            rows[row] = rows[row][:column]
        elif part[-1] == "A":
            row -= number
        elif part[-1] == "G":
            column = number - 1
    return [line.rstrip() for line in rows]


def on_terminal(project: Project, *options: str) -> str:
    """Run pytest on a terminal, and return what it wrote."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--packbench-concurrency=1", *options]
    process = subprocess.Popen(command, cwd=project.root, stdout=terminal, stderr=terminal, stdin=terminal)
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65536):
            output += chunk
    except OSError:
        # the terminal is closed at the other end
        pass
    process.wait(timeout=60)
    os.close(controller)
    return output.decode("utf-8", "replace").replace("\r\n", "\n\r")


@pytest.mark.parametrize("options", ["", "-v", "-s"])
def test_a_terminal_has_one_line_that_leaves_nothing_behind(project: Project, options: str) -> None:
    text = on_terminal(project, *write_cases(project), *options.split())
    assert re.search(r"packbench: [1-4] of 5 done, [01] failing, ", text), text
    screen = screen_of(text)
    assert not [line for line in screen if "of 5 done" in line], "\n".join(screen)
    cases = [line for line in screen if re.match(r"storage/.*case_(0\d|bad)\.json", line)]
    states = {"-v": r"::case_\w+ (PASSED 1.00|FAILED 0.00) +\[ *\d+%\]", "-s": " [.F]", "": r" [.F] +\[ *\d+%\]"}
    pattern = rf"storage/benchmarks/toy/cases/plain/case_\w+\.json{states[options]}"
    assert len(cases) == 5
    assert all(re.fullmatch(pattern, line) for line in cases), "\n".join(cases)


def test_elsewhere_a_line_comes_from_time_to_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    options = write_cases(project)
    monkeypatch.setattr("pytest_packbench.pytest_plugin.terminal.INTERVAL_S", 0.3)
    for more in ("", "-v"):
        result = project.run(*options, "--packbench-concurrency=1", *more.split())
        lines = [line for line in result.outlines if re.match(r"packbench: \d of 5 done, \d failing", line)]
        assert lines, result.stdout.str()
        assert "\x1b" not in result.stdout.str()
        # pytest repeats what its result belongs to
        results = [line for line in result.outlines if re.search(r"(PASSED|FAILED) \d\.\d\d", line)]
        assert all("::case_" in line for line in results)
        assert len(results) == (5 if more else 0)
    for silent in ("-q -q", "-p no:terminal", "--packbench-mode=fixture"):
        output = project.run(*options, "--packbench-concurrency=1", *silent.split()).stdout.str()
        assert not re.search("of 5 done", output), silent
