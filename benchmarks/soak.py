"""A long run in which everything happens: the totals are compared with an oracle, memory and CPU time with a line.

    python -m benchmarks.soak [--cases 20000] [--seed 1] [--shards 2] [--kills 3]

A generic suite is generated from a seed. Its target passes, fails, raises, raises `SystemExit`, times out, returns
what is no result, swallows the error of its model, is refused by the model, is cut off, and returns vacuous results;
cases are quarantined by `skip` and by `xfail`, and a few files can't be read. The run is live, against a model on
loopback, with two workers of xdist and two trials of each case, in shards. Each shard is killed several times at seeded
moments and resumed; at the end the shards are merged.

What has to come out is computed from the seed alone, without the package: the number of attempts by verdict, by kind of
error, and of each case type. Two things are compared besides: the size of the processes and their CPU time for each
thousand cases, as the slope of a straight line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.kills import HOME
from tests.servers.fake import FakeServer, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers.fake import Received

TRIALS = 2
CASES_OF_A_FILE = 500
WARM_UP = 0.1
"""The part of a session that is not measured."""
KINDS = {
    "pass": 560,
    "ask": 60,
    "fail": 130,
    "raise": 50,
    "exit": 20,
    "end": 5,
    "rubbish": 40,
    "shapeless": 30,
    "swallow": 20,
    "vacuous": 25,
    "hole": 10,
    "crash": 15,
    "skip": 15,
    "xfail": 15,
    "unreadable": 5,
}
"""The kinds of cases, with their share of a thousand."""
CASE_TYPES = ("plain", "odd", "rare")
EXPECTED = {
    "pass": ("passed", "", TRIALS),
    "ask": ("passed", "", TRIALS),
    "fail": ("failed", "", TRIALS),
    "raise": ("error", "target_error", TRIALS),
    "exit": ("error", "target_error", TRIALS),
    "end": ("error", "target_error", TRIALS),
    "rubbish": ("failed", "", TRIALS),
    "shapeless": ("failed", "", TRIALS),
    "swallow": ("error", "bad_request", TRIALS),
    "vacuous": ("vacuous", "vacuous", TRIALS),
    "hole": ("known_hole", "known_hole", TRIALS),
    "crash": ("error", "scorer_error", TRIALS),
    "hang": ("error", "timeout", TRIALS),
    "skip": ("not_run", "skip", 1),
    "xfail": ("known_hole", "xfail", TRIALS),
    "unreadable": ("error", "case_unreadable", 1),
}
"""What each kind has to come to: the verdict of an attempt, its kind in `errors.jsonl`, and the number of its lines."""
SUITE = "pack: toy\ndescription: cases of a long run\n"
PIPELINE = """

import asyncio
import os
import sys

from pytest_packbench.model.request import ModelRequest


async def soak(request, context):
    kind = request.input["kind"]
    called = os.open("called.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(called, b".")
    os.close(called)
    message = {"role": "user", "content": kind}
    call = ModelRequest(role="ask", system="", messages=(message,))
    if kind == "ask":
        return {"points": float((await context.llm.complete(call)).content)}
    if kind == "swallow":
        try:
            await context.llm.complete(call)
        except Exception:
            return {"points": 1.0}
    if kind == "raise":
        raise ValueError("as ordered")
    if kind == "exit":
        sys.exit(0)
    if kind == "end":
        os._exit(0)
    if kind == "rubbish":
        return {"points": object()}
    if kind == "shapeless":
        return ["points"]
    if kind == "hang":
        await asyncio.sleep(3600)
    word = {"vacuous": "vacuous", "hole": "known_hole", "crash": "crash"}.get(kind, "")
    return {"points": 0.25 if kind == "fail" else 1.0, "word": word}
"""


class Sample(NamedTuple):
    """What the processes of a session had used at a moment.

    Attributes:
        calls: calls of the target in the session so far.
        mebibytes: the memory of each process, by its role.
        cpu_s: CPU seconds of all processes.
    """

    calls: int
    mebibytes: dict[str, float]
    cpu_s: float


def kinds_of(cases: int, seed: int) -> list[str]:
    """Return the kind of each case; one case hangs."""
    chosen = random.Random(seed)  # noqa: S311 - kinds of cases
    kinds = chosen.choices(list(KINDS), list(KINDS.values()), k=cases)
    kinds[chosen.randrange(cases)] = "hang"
    return kinds


def write_project(folder: Path, kinds: Sequence[str]) -> None:
    """Write the suite, its pack and its target."""
    suite = folder / "storage" / "benchmarks" / "soak"
    (suite / "cases").mkdir(parents=True)
    (suite / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    pack = (HOME / "tests" / "integration" / "toy_pack.py").read_text("utf-8")
    (folder / "conftest.py").write_text(pack, encoding="utf-8")
    (folder / "pipeline.py").write_text(PIPELINE, encoding="utf-8")
    for start in range(0, len(kinds), CASES_OF_A_FILE):
        lines = [_line(number, kinds[number]) for number in range(start, min(start + CASES_OF_A_FILE, len(kinds)))]
        path = suite / "cases" / f"part_{start // CASES_OF_A_FILE:03}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")


def _line(number: int, kind: str) -> str:
    case: dict[str, Any] = {
        "id": f"case_{number:06}",
        "pack_id": "toy",
        "case_type": CASE_TYPES[number % len(CASE_TYPES)],
        "difficulty": "easy",
        "input": {"kind": kind},
        "expected": {"colour": "red"},
    }
    if kind in {"skip", "xfail"}:
        case["notes"] = {kind: "as ordered"}
    if kind == "unreadable":
        case["difficulty"] = "unheard of"
    return json.dumps(case) + "\n"


def oracle(kinds: Sequence[str]) -> Counter[tuple[str, str, str]]:
    """Return the number of attempts by case type, verdict and kind, from the kinds of cases alone."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for number, kind in enumerate(kinds):
        verdict, reason, lines = EXPECTED[kind]
        counted[CASE_TYPES[number % len(CASE_TYPES)], verdict, reason] += lines
    return counted


def found(folder: Path, case_types: Sequence[str]) -> Counter[tuple[str, str, str]]:
    """Return the same of a run, from its files."""
    counted: Counter[tuple[str, str, str]] = Counter()
    seen: Counter[tuple[str, int]] = Counter()
    for name in ("records.jsonl", "errors.jsonl"):
        with (folder / name).open(encoding="utf-8") as lines:
            for line in lines:
                data = json.loads(line)
                number = int(data["test_id"].rpartition(":")[2].rpartition("_")[2])
                case_type = case_types[number % len(case_types)]
                verdict = data["verdict"] if "verdict" in data else data["packbench"]["verdict"]
                counted[case_type, verdict, data.get("kind", "")] += 1
                trial = data.get("trial", data.get("packbench", {}).get("trial", 0))
                seen[data["test_id"], trial] += 1
    twice = [key for key, times in seen.items() if times > 1]
    if twice:
        print(f"twice in the files: {twice[:5]}")
    return counted


class Watch:
    """Samples the processes of a session."""

    def __init__(self, process: int, called: Path) -> None:
        self.samples: list[Sample] = []
        self._process = process
        self._called = called
        self._before = calls_of(called)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> list[Sample]:
        """Begin."""
        self._thread.start()
        return self.samples

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
        while not self._ended.wait(0.5):
            memory, cpu = {}, 0.0
            for number, process in enumerate([self._process, *sorted(_children(self._process))]):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
                    times = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
                    memory["controller" if number == 0 else f"worker {number}"] = pages * page / 2**20
                    cpu += (int(times[11]) + int(times[12])) / tick
            self.samples.append(Sample(calls_of(self._called) - self._before, memory, cpu))


def calls_of(called: Path) -> int:
    """Return how often the target was called: a byte each."""
    return called.stat().st_size if called.exists() else 0


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text("ascii").split()] if path.exists() else []


def run_shard(folder: Path, shard: str, options: Sequence[str], moments: Sequence[int], timeout_s: int) -> list[Sample]:
    """Run a shard; kill it after these numbers of calls, resume it, and return the samples of its last session."""
    called = folder / "called.txt"
    output = f"out_{shard.partition('/')[0]}"
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-n2", "--packbench-suite=soak"]
    command += [f"--packbench-shard={shard}", f"--packbench-output={output}", f"--packbench-trials={TRIALS}"]
    # some of its answers are odd on purpose
    command += ["--packbench-max-unreadable=0", f"--packbench-case-timeout={timeout_s}", "--packbench-mode=live"]
    command += ["--packbench-target=pipeline:soak"]
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = inherited | {"PYTHONPATH": str(HOME), "OPENAI_API_KEY": "sk-test-soak-0001"}
    samples: list[Sample] = []
    for moment in [*moments, 0]:
        is_resumed = any(folder.glob(f"{output}/soak/*/"))
        resume = ["--packbench-resume=latest"] if is_resumed else []
        due, begun = calls_of(called) + moment, time.monotonic()
        with (folder / "log.txt").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*command, *options, *resume],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with Watch(process.pid, called) as samples:
                while moment and process.poll() is None and calls_of(called) < due:
                    time.sleep(0.02)
                if moment and process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        print(
            f"shard {shard}: exit code {code} after {time.monotonic() - begun:.0f} s, {calls_of(called)} calls",
            flush=True,
        )
    if code != 1:
        raise SystemExit(f"exit code {code}, expected 1: {(folder / 'log.txt').read_text('utf-8')[-2000:]}")
    return samples


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the straight line with the least squares through points."""
    if len(points) < 2:  # noqa: PLR2004 - a line
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def measured(samples: Sequence[Sample]) -> list[str]:
    """Describe memory and CPU time by the number of cases in a session."""
    most = max((sample.calls for sample in samples), default=0)
    usable = [sample for sample in samples if most * WARM_UP <= sample.calls < most]
    lines = []
    for role in sorted({role for sample in usable for role in sample.mebibytes}):
        points = [
            (sample.calls / TRIALS / 1000, sample.mebibytes[role]) for sample in usable if role in sample.mebibytes
        ]
        peak = max(sample.mebibytes.get(role, 0.0) for sample in samples)
        lines.append(f"| {role} | {peak:.0f} MiB | {slope(points):+.2f} MiB |")
    middle = [sample for sample in usable if sample.calls <= most / 2]
    late = [sample for sample in usable if sample.calls > most / 2]
    per_case = [
        slope([(sample.calls / TRIALS, 1000 * sample.cpu_s) for sample in part]) for part in (usable, middle, late)
    ]
    lines.append("")
    lines.append(
        f"CPU time of all processes per case: {per_case[0]:.1f} ms; {per_case[1]:.1f} ms in the first half, "
        f"{per_case[2]:.1f} ms in the second"
    )
    return lines


def answer(received: Received) -> Reply:
    """Answer with all points, or refuse."""
    if "swallow" in parse_request(received).text:
        return Reply(status=400, body={"error": {"message": "no such parameter"}})
    return openai_reply("1.0")


@contextlib.contextmanager
def project(kinds: Sequence[str], keep: Path | None) -> Iterator[Path]:
    """Write the project to a folder, which is removed unless it is named."""
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_project(folder / "project", kinds)
        yield folder / "project"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, kill, resume and merge; compare with the oracle."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="a long run of everything")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3, help="how often each shard is killed")
    parser.add_argument("--limit", type=int, default=4, help="the time limit of an attempt, seconds")
    parser.add_argument("--keep", type=Path, help="a new folder for the project, which is kept")
    arguments = parser.parse_args(argv)
    begun, kinds = time.monotonic(), kinds_of(arguments.cases, arguments.seed)
    chosen = random.Random(arguments.seed)  # noqa: S311 - moments
    part = arguments.cases // arguments.shards * TRIALS
    with project(kinds, arguments.keep) as folder, FakeServer(answer, record=False) as server:
        options = ("--packbench-backend=openai", "--packbench-model=fake-1", f"--packbench-base-url={server.url}/v1")
        figures: list[str] = []
        for number in range(1, arguments.shards + 1):
            shard = f"{number}/{arguments.shards}"
            moments = [chosen.randint(part // 20, part // 8) for _ in range(arguments.kills)]
            figures = measured(run_shard(folder, shard, options, moments, arguments.limit))
        runs = [str(path) for path in sorted(folder.glob("out_*/soak/*/"))]
        merge = [
            sys.executable,
            "-m",
            "pytest_packbench",
            "merge",
            "--pack",
            "conftest:Toy",
            "--output",
            "merged",
            *runs,
        ]
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        merged = subprocess.run(merge, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        whole = next((path for path in folder.glob("merged/soak/*") if path.is_dir()), None)
        if whole is None or merged.returncode != 1:
            print(f"merge: exit code {merged.returncode}: {merged.stdout[-1000:]}{merged.stderr[-1000:]}")
            return 1
        expected, came = oracle(kinds), found(whole, CASE_TYPES)
    print("\n| case type | verdict | kind | expected | found |\n|---|---|---|---:|---:|")
    for key in sorted({*expected, *came}):
        mark = "" if expected[key] == came[key] else " **wrong**"
        print(f"| {' | '.join(key)} | {expected[key]} | {came[key]}{mark} |")
    print(f"| all | | | {sum(expected.values())} | {sum(came.values())} |")
    print("\n| process | peak | slope per 1,000 cases |\n|---|---:|---:|")
    print("\n".join(figures))
    print(f"\nseed {arguments.seed}, {arguments.cases} cases, {TRIALS} trials, {time.monotonic() - begun:.0f} s")
    return int(expected != came)


if __name__ == "__main__":
    sys.exit(main())
