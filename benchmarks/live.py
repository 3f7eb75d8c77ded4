"""Compare live runs with the ideal rate: trivial cases, each one call of 200 ms, in whole pytest runs.

    python benchmarks/live.py [--cases N] [--latency SECONDS] [--concurrency N ...] [--rounds N]
                              [--target NAME ...]

The ideal is cases x latency / concurrency, and the rate is that of the calls: from the first call of the target to its
last answer, by its own clock. The work of the command before (starting, collecting) and after (writing its reports) is
only part of `whole run`. The server (`python -m tests.servers`) is a separate process on the same processors. One
target only sleeps: its cost is the plugin's own. Another calls the server over a bare connection, and `openai` is one
model call per case with the official client: the additional cost is that of the server and the client. Targets with a
client of their own call the server directly, and through the gateway. CPU time is
user plus system of the run; of several rounds, the fastest is used because other work on the machine only slows a run
down. Memory is the peak of the resident set.

The last line is the CPU time that the gateway adds to a call that it replays: a bare client calls it and, for
comparison, the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(__file__).resolve().parent.parent
TARGET = """
import asyncio
import atexit
import json
import os
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

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
ADDRESS = urlsplit(os.environ["OPENAI_BASE_URL"])


async def post(request):
    first or first.append(time.perf_counter())
    reader, writer = idle.pop() if idle else await asyncio.open_connection(ADDRESS.hostname, ADDRESS.port)
    body = json.dumps(BODY).encode()
    head = f"POST {{ADDRESS.path}}/chat/completions HTTP/1.1\\r\\nHost: {{ADDRESS.netloc}}\\r\\n"
    head += f"Content-Type: application/json\\r\\nContent-Length: {{len(body)}}\\r\\n\\r\\n"
    writer.write(head.encode() + body)
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    length = int(re.search(rb"(?i)content-length: *([0-9]+)", head)[1])
    reply = json.loads(await reader.readexactly(length))
    idle.append((reader, writer))
    return answered(reply["choices"][0]["message"]["content"])


clients = []


async def own(request):
    import openai

    # neither the import nor the client is a part of the calls
    clients or clients.append(openai.AsyncOpenAI(api_key="none"))
    first or first.append(time.perf_counter())
    answer = await clients[0].chat.completions.create(**BODY)
    return answered(answer.choices[0].message.content)


async def ask(request, context):
    from pytest_packbench.model.request import ModelRequest

    first or first.append(time.perf_counter())
    call = ModelRequest(role="ask", system="", messages=({{"role": "user", "content": request.input["text"]}},))
    return answered((await context.llm.complete(call)).content)
"""
NAMES = {
    "wait": "target that sleeps",
    "post": "target that asks the server",
    "wait gateway": "the same with the gateway on",
    "post gateway": "the same through the gateway",
    "ask": "openai",
    "own": "openai client of its own",
    "own gateway": "the same through the gateway",
}
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
    parser.add_argument("--target", nargs="+", choices=NAMES)
    arguments = parser.parse_args(argv)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| target | at once | ideal s | calls s | whole run s | CPU s | peak MiB | share of the ideal rate |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with serving(arguments.latency) as url:
        for target in arguments.target or NAMES:
            measure(target, url, arguments)
    with serving(0) as url:
        replay(url, arguments.rounds)
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
        prepare(many, arguments.cases, arguments.latency)
        for concurrency in arguments.concurrency:
            found = best(many, target, url, concurrency, arguments.rounds)
            ideal = arguments.cases * arguments.latency / concurrency
            name = NAMES[target]
            print(
                f"| {name} | {concurrency} | {ideal:.2f} | {found.calls:.2f} | {found.wall:.2f} | {found.cpu:.2f} "
                f"| {found.mebibytes:.0f} | {ideal / found.calls:.1%} |",
                flush=True,
            )


def prepare(folder: Path, cases: int, latency: float) -> None:
    """Write a project with this number of cases."""
    suite = folder / "storage" / "benchmarks" / "many"
    (suite / "cases").mkdir(parents=True)
    (suite / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "pipeline.py").write_text(TARGET.format(latency=latency), encoding="utf-8")
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
    function, _, gateway = target.partition(" ")
    command += ["--packbench-mode=live", f"--packbench-target=pipeline:{function}"]
    command += [f"--packbench-gateway={'on' if gateway else 'off'}"]
    command += [f"--packbench-concurrency={concurrency}"]
    if target == "ask":
        command += ["--packbench-backend=openai", "--packbench-model=fake", f"--packbench-base-url={url}/v1"]
    begun = time.perf_counter()
    environment = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    calls = float((folder / "calls.txt").read_text(encoding="utf-8"))
    return Run(calls, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20)


def replay(url: str, rounds: int, calls: int = 1000) -> None:
    """Print the CPU time that a replayed call adds; the request is a prompt of 2 KB."""
    from pytest_packbench.engine.gateway import Gateway
    from pytest_packbench.model.recording import GatewayExchange

    body = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "word " * 400}]})
    forwarding = Gateway(offline=False, upstreams={"openai": f"{url}/v1"})
    forwarding.configure(record=True)
    forwarding.start()
    with (traffic := forwarding.open_case("one")).active():
        post(forwarding.url + "/openai/v1", body, 1)
    forwarding.stop()
    exchange = GatewayExchange.model_validate(traffic.calls[0].as_exchange())
    gateway = Gateway(offline=True)
    gateway.start()
    best_replayed = best_direct = float("inf")
    for _ in range(rounds):
        best_direct = min(best_direct, post(f"{url}/v1", body, calls))
        with (replayed := gateway.open_case("one", [exchange] * calls)).active():
            best_replayed = min(best_replayed, post(f"{gateway.url}/openai/v1", body, calls))
        replayed.finish()
        if replayed.mismatch:
            raise SystemExit(replayed.mismatch)
    gateway.stop()
    print(f"replay of a call: {best_replayed - best_direct:.2f} ms CPU more than the same call of a server")


def post(base_url: str, body: str, calls: int) -> float:
    """Make calls over one connection; return the CPU time of this process for each, ms."""
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    begun = time.process_time()
    for _ in range(calls):
        connection.request("POST", f"{parts.path}/chat/completions", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
    spent = time.process_time() - begun
    connection.close()
    return spent * 1000 / calls


if __name__ == "__main__":
    sys.exit(main())
