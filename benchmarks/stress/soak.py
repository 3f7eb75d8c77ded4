"""Long runs in which everything happens: the totals are compared with an oracle.

A generic suite is generated from a seed. Its target passes, fails, raises, raises `SystemExit`, times out, returns
what is no result, swallows the error of its model, is refused by the model, is cut off, and returns vacuous results;
cases are quarantined by `skip` and by `xfail`, and a few files can't be read. The run is live, against a model on
loopback, with two workers of xdist and two trials of each case, in shards. Each shard is killed at seeded moments and
resumed; at the end the shards are merged.

What has to come out is computed from the seed alone, without the package: the number of attempts by verdict, by kind of
error, and of each case type.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.stress.session import HOME, KEY, inherited, lines_of
from tests.servers.fake import FakeServer, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.fake import Received

CASES, SHARDS, KILLS, TRIALS = 400, 2, 1, 2
LIMIT_S = 4
CASES_OF_A_FILE = 500
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
        for data in lines_of(folder / name):
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


def calls_of(called: Path) -> int:
    """Return how often the target was called: a byte each."""
    return called.stat().st_size if called.exists() else 0


def run_shard(folder: Path, shard: str, options: Sequence[str], moments: Sequence[int]) -> None:
    """Run a shard; kill it after these numbers of calls, and resume it.

    Raises:
        SystemExit: its last session did not end as a run with failures does.
    """
    called = folder / "called.txt"
    output = f"out_{shard.partition('/')[0]}"
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-n2", "--packbench-suite=soak"]
    command += [f"--packbench-shard={shard}", f"--packbench-output={output}", f"--packbench-trials={TRIALS}"]
    # some of its answers are odd on purpose
    command += ["--packbench-max-unreadable=0", f"--packbench-case-timeout={LIMIT_S}", "--packbench-mode=live"]
    command += ["--packbench-target=pipeline:soak", *options]
    environment = inherited() | {"PYTHONPATH": str(HOME), "OPENAI_API_KEY": KEY}
    for moment in [*moments, 0]:
        resume = ["--packbench-resume=latest"] if any(folder.glob(f"{output}/soak/*/")) else []
        due = calls_of(called) + moment
        with (folder / "log.txt").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*command, *resume], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            while moment and process.poll() is None and calls_of(called) < due:
                time.sleep(0.02)
            if moment and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    if code != 1:
        raise SystemExit(f"exit code {code}, expected 1: {(folder / 'log.txt').read_text('utf-8')[-2000:]}")


def answer(received: Received) -> Reply:
    """Answer with all points, or refuse."""
    if "swallow" in parse_request(received).text:
        return Reply(status=400, body={"error": {"message": "no such parameter"}})
    return openai_reply("1.0")


def run(seed: int, seconds: float) -> int:
    """Make long runs, from seeds in turn, until the time is over; return how many did not come to what is expected."""
    begun, wrong = time.monotonic(), 0
    for number in range(seed, sys.maxsize):
        if time.monotonic() - begun > seconds:
            break
        with tempfile.TemporaryDirectory() as folder:
            wrong += not _is_as_expected(Path(folder, "project"), number)
    return wrong


def _is_as_expected(folder: Path, seed: int) -> bool:
    """Run, kill, resume and merge the cases of a seed; compare with the oracle, and print what differs."""
    kinds, chosen = kinds_of(CASES, seed), random.Random(seed)  # noqa: S311 - moments
    write_project(folder, kinds)
    part = CASES // SHARDS * TRIALS
    with FakeServer(answer, record=False) as server:
        options = ("--packbench-backend=openai", "--packbench-model=fake-1", f"--packbench-base-url={server.url}/v1")
        for number in range(1, SHARDS + 1):
            moments = [chosen.randint(part // 20, part // 8) for _ in range(KILLS)]
            run_shard(folder, f"{number}/{SHARDS}", options, moments)
    runs = [str(path) for path in sorted(folder.glob("out_*/soak/*/"))]
    merge = [sys.executable, "-m", "pytest_packbench", "merge", "--pack", "conftest:Toy", "--output", "merged", *runs]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    merged = subprocess.run(merge, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    whole = next((path for path in folder.glob("merged/soak/*") if path.is_dir()), None)
    if whole is None or merged.returncode != 1:
        print(f"merge: exit code {merged.returncode}: {merged.stdout[-1000:]}{merged.stderr[-1000:]}")
        return False
    expected, came = oracle(kinds), found(whole, CASE_TYPES)
    for key in sorted(key for key in {*expected, *came} if expected[key] != came[key]):
        print(f"seed {seed}: {' '.join(key)}: expected {expected[key]}, found {came[key]} **wrong**")
    print(
        f"seed {seed}: {sum(came.values())} lines of {CASES} cases in {SHARDS} shards, killed {SHARDS * KILLS} times",
        flush=True,
    )
    return expected == came
