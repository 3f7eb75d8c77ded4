"""Compare live runs with the ideal rate: trivial cases, each one call of 200 ms, in whole pytest runs.

    python benchmarks/live.py [--cases N] [--latency SECONDS] [--concurrency N ...] [--rounds N]

The ideal is cases x latency / concurrency, and the rate is that of the calls: from the first call of the target to its
last answer, by its own clock. The work of the command before (starting, collecting) and after (writing its reports) is
only part of `whole run`. The server (`python -m tests.servers`) is a separate process on the same processors. One
target only sleeps: its cost is the plugin's own. Another calls the server over a bare connection, and `openai` is one
model call per case with the official client: the additional cost is that of the server and the client. CPU time is
user plus system of the run; of several rounds, the fastest is used because other work on the machine only slows a run
down. Memory is the peak of the resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(__file__).resolve().parent.parent
TARGET = """
import asyncio
import atexit
import json
import re
import time
from pathlib import Path

first, last = [], [0.0]
atexit.register(lambda: Path("calls.txt").write_text(str(last[0] - first[0])))


def answered(text):
    last[0] = time.perf_counter()
    return {{"answer": text}}


async def wait(request):
    first or first.append(time.perf_counter())
    await asyncio.sleep({latency})
    return answered("ok")


idle = []
BODY = {{"model": "fake", "messages": [{{"role": "user", "content": "question"}}]}}


async def post(request):
    first or first.append(time.perf_counter())
    reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", {port})
    body = json.dumps(BODY).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
                 b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    length = int(re.search(rb"(?i)content-length: *([0-9]+)", head)[1])
    said = json.loads(await reader.readexactly(length))
    idle.append((reader, writer))
    return answered(said["choices"][0]["message"]["content"])


async def ask(request, context):
    from pytest_packbench.model.request import ModelRequest

    first or first.append(time.perf_counter())
    asked = ModelRequest(role="ask", system="", messages=({{"role": "user", "content": request.input["text"]}},))
    return answered((await context.llm.complete(asked)).content)
"""
NAMES = {"wait": "target that sleeps", "post": "target that asks the server", "ask": "openai"}
SUITE = """
pack: generic
description: one trivial case many times
"""


class Run(NamedTuple):
    """The cost of a run: its calls, the whole command, and CPU, in seconds; peak memory, MiB."""

    calls: float
    wall: float
    cpu: float
    mebibytes: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print all targets."""
    parser = argparse.ArgumentParser(description="live runs against the ideal rate")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.2, metavar="SECONDS")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| target | at once | ideal s | calls s | whole run s | CPU s | peak MiB | share of the ideal rate |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with serving(arguments.latency) as url:
        for target in NAMES:
            measure(target, url, arguments)
    return 0


@contextmanager
def serving(latency: float) -> Iterator[str]:
    """Run the server as a separate process; yield its URL."""
    command = [sys.executable, "-m", "tests.servers", "--latency", str(latency)]
    with subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip() if server.stdout is not None else ""
            if not url:
                raise SystemExit(f"{' '.join(command)}: the server did not start")
            yield url
        finally:
            server.terminate()


def measure(target: str, url: str, arguments: argparse.Namespace) -> None:
    """Print the lines of a target."""
    with tempfile.TemporaryDirectory() as folder:
        many = Path(folder, "many")
        prepare(many, arguments.cases, arguments.latency, url)
        for concurrency in arguments.concurrency:
            found = best(many, target, url, concurrency, arguments.rounds)
            ideal = arguments.cases * arguments.latency / concurrency
            name = NAMES[target]
            print(
                f"| {name} | {concurrency} | {ideal:.2f} | {found.calls:.2f} | {found.wall:.2f} | {found.cpu:.2f} "
                f"| {found.mebibytes:.0f} | {ideal / found.calls:.1%} |",
                flush=True,
            )


def prepare(folder: Path, cases: int, latency: float, url: str) -> None:
    """Write a project with this number of cases."""
    suite = folder / "storage" / "benchmarks" / "many"
    (suite / "cases").mkdir(parents=True)
    (suite / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "pipeline.py").write_text(TARGET.format(latency=latency, port=url.rpartition(":")[2]), encoding="utf-8")
    for number in range(cases):
        case = {
            "id": f"case_{number:05}",
            "pack_id": "generic",
            "case_type": "plain",
            "difficulty": "easy",
            "input": {"text": f"question {number}"},
            "expected": {"answer": "ok"},
        }
        (suite / "cases" / f"{case['id']}.json").write_text(json.dumps(case), encoding="utf-8")


def best(folder: Path, target: str, url: str, concurrency: int, rounds: int) -> Run:
    """Run several times; return the figures of the fastest run."""
    return min(once(folder, target, url, concurrency) for _ in range(rounds))


def once(folder: Path, target: str, url: str, concurrency: int) -> Run:
    """Run pytest once in a separate process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--packbench-suite=many"]
    command += ["--packbench-mode=live", f"--packbench-target=pipeline:{target}"]
    command += [f"--packbench-concurrency={concurrency}"]
    if target == "ask":
        command += ["--packbench-backend=openai", "--packbench-model=fake", f"--packbench-base-url={url}/v1"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    calls = float((folder / "calls.txt").read_text(encoding="utf-8"))
    return Run(calls, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20)


if __name__ == "__main__":
    sys.exit(main())
