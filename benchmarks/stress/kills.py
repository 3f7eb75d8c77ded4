"""Kill runs at seeded moments, resume them, and check that no finished answer is lost and none is made again.

Live runs against a server on loopback and runs in fixture mode, each killed with SIGKILL at a moment of its own, some
of them twice, and then resumed to the end. They take turns: one attempt at a time, eight at once, two workers of xdist,
and, with a model, record mode. A hook keeps pytest's main thread busy for 0.6 s now and then.

An answer is finished when the server has sent it at least 0.3 s before the kill: what was sent later may still have
been on its way. In fixture mode, it is finished when the target has returned at least 0.1 s before. Then

- lost: finished answers that no journal has,
- twice: answers in a journal that were asked for again,
- unequal: runs whose records, without times and run ids, differ from those of a run that was never killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.stress.session import Warm, case, lines_of, without_times
from tests.servers.fake import FakeServer
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.fake import Received, Reply

GRACE_S = 0.3
FIXTURE_GRACE_S = 0.1
CASES = 48
WAIT_S = 120.0
BUSY_S = 0.6
"""How long the hook keeps the main thread busy, seconds."""
LONGEST_S = 0.12
"""The longest latency of an answer, seconds."""
SUITE = "pack: generic\ndescription: cases for runs that are killed\n"
PIPELINE = """
import json
import os
import time

from pytest_packbench.model.request import ModelRequest


async def ask(request, context):
    call = ModelRequest(role="ask", system="", messages=({"role": "user", "content": request.input["text"]},))
    answer = (await context.llm.complete(call)).content
    line = json.dumps({"case": request.input["text"], "at": time.time()}) + "\\n"
    ended = os.open("ended.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ended, line.encode())
    os.close(ended)
    return {"answer": answer}
"""
CONFTEST = """
import time
from itertools import count, cycle

numbers = count(1)


def pytest_runtest_logreport(report):
    if report.when == "setup":
        time.sleep(0.01 if next(numbers) % 8 else {busy})
"""


class Variant(NamedTuple):
    """A way to run the suite.

    Attributes:
        name: for the table.
        mode: `fixture`, `live` or `record`.
        options: further options of pytest.
    """

    name: str
    mode: str
    options: tuple[str, ...] = ()


LIVE = (
    Variant("live, one at a time", "live", ("--packbench-concurrency=1",)),
    Variant("live, eight at once", "live", ("--packbench-concurrency=8",)),
    Variant("live, two workers", "live", ("-n2",)),
    Variant("record, eight at once", "record", ("--packbench-concurrency=8",)),
)
FIXTURE = (
    Variant("fixture", "fixture"),
    Variant("fixture, eight at once", "fixture", ("--packbench-concurrency=8",)),
    Variant("fixture, two workers", "fixture", ("-n2",)),
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one run was like that was killed and resumed.

    Attributes:
        variant: the way it was run.
        moments: after how many answers, and how many seconds later, its sessions were killed.
        killed: how many of these kills came before the session ended.
        finished: answers finished before a kill.
        kept: answers that the journals had after a kill.
        on_the_wire: answers that were asked for and not kept, because they were in flight.
        lost: finished answers that were not kept.
        twice: kept answers that were asked for again.
        equal: whether the records are those of an undisturbed run.
    """

    variant: Variant
    moments: list[tuple[int, float]]
    killed: int = 0
    finished: int = 0
    kept: int = 0
    on_the_wire: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    equal: bool = False

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, nothing was made again, and the records are equal."""
        return not self.lost and not self.twice and self.equal


class Model:
    """A model's server that knows which of its answers were sent when."""

    def __init__(self, seed: int) -> None:
        self.asked: list[tuple[str, float]] = []
        self._due: dict[int, tuple[str, float]] = {}
        self._random = random.Random(seed)  # noqa: S311 - latencies
        self._numbers = count()
        self._lock = threading.Lock()

    def answer(self, received: Received) -> Reply:
        """Answer after a while: every seventh case with a wrong answer."""
        text = parse_request(received).text
        number = int(text.rpartition(" ")[2])
        with self._lock:
            delay = self._random.uniform(0.02, LONGEST_S)
            now = time.time()
            self.asked.append((text, now))
            self._due[next(self._numbers)] = (text, now + delay)
        return replace(openai_reply("no" if number % 7 == 0 else "ok"), delay_s=delay)

    def sent(self, until: float) -> list[str]:
        """Return the questions whose answers were sent up to this time (seconds since 1970)."""
        with self._lock:
            return [text for text, due in self._due.values() if due <= until]

    def forget(self) -> None:
        """Start a new session."""
        with self._lock:
            self.asked.clear()
            self._due.clear()


class Bench:
    """A project with a suite, its server, and the records of undisturbed runs."""

    def __init__(self, folder: Path, warm: Warm, *, cases: int = CASES, seed: int = 1) -> None:
        self.folder = folder
        self.cases = cases
        self._warm = warm
        self.model = Model(seed)
        self._numbers = count()
        self._expected: dict[str, Any] = {}
        self._finished: set[str] = set()
        self._server = FakeServer(self.model.answer)
        suite = folder / "storage" / "benchmarks" / "kills"
        (suite / "cases").mkdir(parents=True)
        (suite / "suite.yaml").write_text(SUITE, encoding="utf-8")
        for name, text in {
            "pytest.ini": "[pytest]\n",
            "pipeline.py": PIPELINE,
            "conftest.py": CONFTEST.format(busy=BUSY_S),
        }.items():
            (folder / name).write_text(text, encoding="utf-8")
        lines = [json.dumps(case(number)) + "\n" for number in range(cases)]
        (suite / "cases" / "many.jsonl").write_text("".join(lines), encoding="utf-8")
        self._fixtures = suite / "fixtures"

    def __enter__(self) -> Self:
        """Start the server, and make the undisturbed runs: one in record mode, one that replays it."""
        self._server.__enter__()
        for variant in (LIVE[1], LIVE[3], FIXTURE[0]):
            output = f"whole_{variant.mode}"
            self.start(variant, output)
            code = self.wait()
            if code != 1:
                raise SystemExit(f"{variant.name}: exit code {code}\n{self.log()}")
            self._expected[variant.mode] = self.records(output)
        self._recordings = self.recordings()
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the server."""
        self._server.__exit__(*raised)

    def start(self, variant: Variant, output: str, *more: str) -> int:
        """Start a session; return the id of its process."""
        self.model.forget()
        (self.folder / "ended.txt").unlink(missing_ok=True)
        arguments = [
            "-q",
            "--packbench-suite=kills",
            f"--packbench-output={output}",
            f"--packbench-mode={variant.mode}",
        ]
        arguments += ["--packbench-target=pipeline:ask", *variant.options, *more]
        if variant.mode != "fixture":
            url = f"{self._server.url}/v1"
            arguments += ["--packbench-backend=openai", "--packbench-model=fake-1", f"--packbench-base-url={url}"]
        return self._warm.start(self.folder, arguments)

    def run_killed(self, variant: Variant, moments: list[tuple[int, float]], *, at_all: bool = True) -> Outcome:
        """Run the suite; kill and resume it at these moments, then let it end.

        Args:
            variant: how it is run.
            moments: after how many answers a session is killed, and how many seconds later.
            at_all: whether the workers of xdist are killed too, or only the process that controls them.
        """
        outcome = Outcome(variant=variant, moments=moments)
        output = f"out_{next(self._numbers)}"
        if variant.mode == "record":
            for path in self._fixtures.glob("*"):
                path.unlink()
        kept: set[str] = set()
        more: tuple[str, ...] = ()
        for answers, delay in [*moments, (sys.maxsize, 0.0)]:
            process = self.start(variant, output, *more)
            if answers < sys.maxsize:
                self._kill(process, variant, answers, delay, at_all=at_all)
            outcome.killed += self.wait() == -signal.SIGKILL
            asked = self.asked(variant)
            outcome.twice += sorted(kept & set(asked)) + sorted({text for text in asked if asked.count(text) > 1})
            kept |= self.kept(output)
            if answers < sys.maxsize:
                finished = self._finished - kept
                outcome.lost += sorted(finished)
                outcome.finished += len(self._finished)
                outcome.kept = len(kept)
                outcome.on_the_wire += len(set(asked) - kept)
            more = ("--packbench-resume=latest",) if any(self.folder.glob(f"{output}/kills/*/")) else ()
        outcome.equal = self.is_whole(variant.mode, output)
        if variant.mode == "record":
            outcome.equal = outcome.equal and self.recordings() == self._recordings
        return outcome

    def asked(self, variant: Variant) -> list[str]:
        """Return the questions of the last session: those that reached the server, or the target in fixture mode."""
        return (
            [text for text, _ in self.model.asked] if variant.mode != "fixture" else [text for text, _ in self.ended()]
        )

    def kept(self, output: str) -> set[str]:
        """Return the questions whose answers are in a journal of the run, or in its records."""
        from pytest_packbench.runs.journal import read_journal

        journals = self.folder.glob(f"{output}/kills/*/journal*.jsonl")
        kept = {entry.case.case_id for path in journals for entry in read_journal(path)[1]}
        for path in self.folder.glob(f"{output}/kills/*/records.jsonl"):
            kept |= {line["packbench"]["case_id"] for line in lines_of(path)}
        return {f"question {int(case_id[5:])}" for case_id in kept}

    def records(self, output: str) -> Any:
        """Return the records of the only run in a folder, without times and run ids."""
        folders = list(self.folder.glob(f"{output}/kills/*/"))
        if len(folders) != 1 or not (folders[0] / "report.json").exists():
            return [str(path) for path in folders]
        return [without_times(line) for line in lines_of(folders[0] / "records.jsonl")]

    def recordings(self) -> dict[str, Any]:
        """Return the recordings, without their times, by file."""
        read = {path.name: json.loads(path.read_text("utf-8")) for path in self._fixtures.glob("*.json")}
        return {name: {**recording, "recorded_at": ""} for name, recording in sorted(read.items())}

    def log(self) -> str:
        """Return what the last session printed."""
        return (self.folder / "log.txt").read_text("utf-8")

    def wait(self) -> int:
        """Wait for the last session; return its exit code, negative for a signal."""
        return self._warm.wait()

    def is_whole(self, mode: str, output: str) -> bool:
        """Return whether a run has the records of an undisturbed one."""
        return bool(self.records(output) == self._expected[mode])

    def ended(self) -> list[tuple[str, float]]:
        """Return the questions whose answers the target of the last session has returned, and when."""
        path = self.folder / "ended.txt"
        # the last line may be of a process that was killed while it wrote
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        return [(line["case"], line["at"]) for line in map(json.loads, lines) if line]

    def _kill(self, process: int, variant: Variant, answers: int, delay: float, *, at_all: bool) -> None:
        """Kill a session at its moment, unless it has ended before."""
        fixture = variant.mode == "fixture"
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            done = len(self.ended()) if fixture else len(self.model.sent(time.time()))
            if done >= answers or not is_running(process):
                break
            time.sleep(0.002)
        time.sleep(delay)
        until = time.time() - (FIXTURE_GRACE_S if fixture else GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if at_all else os.kill)(process, signal.SIGKILL)
        finished = [text for text, at in self.ended() if at <= until] if fixture else self.model.sent(until)
        self._finished = set(finished)


def is_running(process: int) -> bool:
    """Return whether a forked session has not ended; the warm process waits for it at once."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def moments_of(chosen: random.Random, cases: int) -> list[tuple[int, float]]:
    """Choose when the sessions of a run are killed: once, or twice; the first time anywhere, even at the very end."""
    first = chosen.randint(0, cases)
    # while the hook keeps the main thread busy, no more answers are asked for
    moments = [(first, chosen.uniform(0, 2 * BUSY_S))]
    if chosen.random() < 1 / 4 and first < cases:
        moments.append((chosen.randint(0, (cases - first) // 2), chosen.uniform(0, LONGEST_S)))
    return moments


def run(seed: int, seconds: float) -> int:
    """Kill runs of each kind in turn until the time is over, and print a table; return how many were not good."""
    begun, outcomes = time.monotonic(), list[Outcome]()
    chosen = random.Random(seed)  # noqa: S311 - moments
    with tempfile.TemporaryDirectory() as folder, Warm() as warm, Bench(Path(folder, "project"), warm) as bench:
        for variant in cycle((*LIVE, *FIXTURE)):
            if time.monotonic() - begun > seconds:
                break
            outcomes.append(bench.run_killed(variant, moments_of(chosen, bench.cases)))
    print("| run | killed runs | kills | finished answers | kept | in flight | lost | twice | unequal |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for variant in (*LIVE, *FIXTURE):
        print(_row(variant.name, [outcome for outcome in outcomes if outcome.variant is variant]))
    print(_row("all", outcomes))
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    for outcome in bad:
        print(f"{outcome.variant.name}: {outcome.moments}: lost {outcome.lost}, twice {outcome.twice}")
    return len(bad)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    sums = (
        len(outcomes),
        sum(outcome.killed for outcome in outcomes),
        sum(outcome.finished for outcome in outcomes),
        sum(outcome.kept for outcome in outcomes),
        sum(outcome.on_the_wire for outcome in outcomes),
        sum(len(outcome.lost) for outcome in outcomes),
        sum(len(outcome.twice) for outcome in outcomes),
        sum(not outcome.equal for outcome in outcomes),
    )
    return f"| {name} | {' | '.join(map(str, sums))} |"
