"""Runs under faults: of the disk, the clock, signals, servers, targets, guards and judges.

Each run is of a suite of 12 cases, all of which pass where nothing is wrong. Under a fault

- the cases that it does not touch keep their verdicts; the others are errors, or were not run,
- the exit code says so: 0 only where the fault has changed nothing,
- no traceback of this package is printed, and where a run ends early, a line says what to do,
- the run is resumed without the fault: it then has the records of a run without one, without times and run ids, and
  answers of the model that it had are not paid for again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.stress.session import HOME, KEY, Warm, case, inherited, lines_of, without_times
from tests.servers.raw import CLOSE, RawServer, chunk, head
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Script = Callable[[int, int], Sequence[bytes | float]]
    """What a server sends for a case, at the n-th request for it, from 1."""

CASES = 12
AT = 5
"""The case at which targets and servers go wrong."""
WAIT_S = 180
"""After this time, a session that hangs is killed, seconds."""
LIMIT_S = 2
SUITE = "pack: generic\ndescription: cases for runs under faults\n"
JUDGED = f"{SUITE}criteria:\n- {{python: 'pipeline:judge', path: /answer}}\n"
CONFTEST = """
import os
import time


class Guard:
    name = "waiting"

    def check(self, number):
        if number == 5 and os.environ.get("FAULT_OF_GUARD"):
            time.sleep(3600)


def pytest_packbench_guards(config, suite):
    return [Guard()] if os.environ.get("GUARDED") else []
"""
JUDGE = """

def judge(answer, expected, case):
    if case["text"].endswith(" 5") and os.environ.get("FAULT_OF_JUDGE"):
        time.sleep(3600)
    return answer == expected
"""
OK = openai_reply("ok").wire()
_PROCESSES = ("-o", "packbench_allow_processes=yes")
"""The client of OpenAI asks `uname` for the name of the system."""
_QUESTION = re.compile(rb"question (\d+)")
LIVE = "live"
ONE = "--packbench-concurrency=1"
LIMIT = f"--packbench-case-timeout={LIMIT_S}"
RESUME = "--packbench-resume=latest"


class Wrong(Exception):  # noqa: N818 - a fault was not met as it should be
    """What a fault has led to and should not."""


class Row(NamedTuple):
    """A fault in the table.

    Attributes:
        group: what is at fault.
        name: the fault.
        check: makes the runs; returns what they came to, in words.
    """

    group: str
    name: str
    check: Callable[[Bench], str]


class Session(NamedTuple):
    """A session of pytest.

    Attributes:
        code: its exit code, negative for a signal.
        log: what it printed.
        seconds: how long it took.
        asked: the numbers of the cases for which the model was asked.
        called: those for which the target was called.
    """

    code: int
    log: str
    seconds: float
    asked: list[int]
    called: list[int]


class Bench:
    """A project with a suite, and a server that does what a script says."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder = folder
        self.suite = folder / "storage" / "benchmarks" / "faults"
        self.script: Script = _well
        self._warm = warm
        self._asked: list[int] = []
        self._outputs = count()
        self._expected: dict[tuple[str, ...], Any] = {}
        (self.suite / "cases").mkdir(parents=True)
        self.rules(SUITE)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        pipeline = Path(__file__).with_name("targets.py").read_text("utf-8")
        (folder / "pipeline.py").write_text(pipeline + JUDGE, encoding="utf-8")
        self.write_cases(range(CASES))
        self._server = RawServer(self._answer)

    def __enter__(self) -> Self:
        """Start the server."""
        self._server.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the server."""
        self._server.__exit__(*raised)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._server.url

    def rules(self, text: str) -> None:
        """Write `suite.yaml`."""
        (self.suite / "suite.yaml").write_text(text, encoding="utf-8")

    def write_cases(self, numbers: Iterable[int], text: str = "question") -> None:
        """Write the cases, all in one file."""
        cases = [{**case(number), "input": {"text": f"{text} {number}"}} for number in numbers]
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        (self.suite / "cases" / "many.jsonl").write_text(lines, encoding="utf-8")

    def output(self) -> str:
        """Return a new folder for reports."""
        return f"out_{next(self._outputs)}"

    def arguments(self, output: str, *options: str, target: str = "plain", mode: str = "fixture") -> list[str]:
        """Return the arguments of pytest."""
        named = target if ":" in target else f"pipeline:{target}"
        arguments = [
            "-q",
            "--packbench-suite=faults",
            f"--packbench-output={output}",
            f"--packbench-mode={mode}",
            f"--packbench-target={named}",
        ]
        if mode != "fixture" and named in {"pipeline:ask", "pipeline:ask_sync", "pipeline:guarded"}:
            url = next((option for option in options if option.startswith("--packbench-base-url")), "")
            url = url or f"--packbench-base-url={self.url}/v1"
            arguments += ["--packbench-backend=openai", "--packbench-model=fake-1", url]
        return [*arguments, *options]

    def environment(self, output: str, fault: str = "", **variables: object) -> dict[str, str]:
        """Return the variables of a session."""
        own = {
            "FAULT": fault,
            "CALLED": str(self.folder / "called.txt"),
            "OUTPUT": str(self.folder / output),
            "GRACE_S": "1",
            "OPENAI_BASE_URL": f"{self.url}/v1",
        }
        return own | {name: str(value) for name, value in variables.items()}

    def start(
        self,
        output: str,
        *options: str,
        fault: str = "",
        target: str = "plain",
        mode: str = "fixture",
        **variables: object,
    ) -> int:
        """Start a session; return the id of its process."""
        self._asked.clear()
        (self.folder / "called.txt").write_text("", encoding="utf-8")
        self._begun = time.monotonic()
        arguments = self.arguments(output, *options, target=target, mode=mode)
        return self._warm.start(self.folder, arguments, self.environment(output, fault, **variables))

    def wait(self, process: int, *, twice: bool = False) -> Session:
        """Wait for a session; kill one that hangs.

        Args:
            process: its id.
            twice: whether it is interrupted twice: the second time ends whatever reports the first, with a traceback.
        """
        killer = threading.Timer(WAIT_S, _kill, (process,))
        killer.start()
        code = self._warm.wait()
        killer.cancel()
        seconds = time.monotonic() - self._begun
        log = (self.folder / "log.txt").read_text("utf-8", "replace")
        session = Session(code, log, seconds, list(self._asked), self.called())
        if seconds >= WAIT_S:
            raise Wrong(f"hung for {seconds:.0f} s")
        for word in ("INTERNALERROR", "pytest_packbench/"):
            if word in log and "Traceback" in log and not (twice and log.rstrip().endswith("KeyboardInterrupt")):
                raise Wrong(f"a traceback: {log[-600:]}")
        return session

    def run(self, output: str, *options: str, **how: Any) -> Session:
        """Start a session and wait for it."""
        return self.wait(self.start(output, *options, **how))

    def called(self) -> list[int]:
        """Return the numbers of the cases for which the target was called."""
        return [int(line) for line in (self.folder / "called.txt").read_text("utf-8").split()]

    def asked(self) -> list[int]:
        """Return the numbers of the cases for which the model was asked."""
        return list(self._asked)

    def runs(self, output: str) -> list[Path]:
        """Return the folders of the runs."""
        return sorted(path for path in self.folder.glob(f"{output}/faults/*") if path.is_dir())

    def verdicts(self, output: str) -> dict[int, str]:
        """Return the verdict of each case, or its kind, in the last run."""
        (*_, folder) = self.runs(output) or [Path()]
        found = {}
        for name in ("records.jsonl", "errors.jsonl"):
            for line in lines_of(folder / name):
                case_id = line["test_id"].rpartition(":")[2]
                found[int(case_id[5:])] = line.get("kind") or line["packbench"]["verdict"]
        return found

    def records(self, output: str) -> Any:
        """Return the records of the last run without times and run ids."""
        (*_, folder) = self.runs(output) or [Path()]
        if not (folder / "report.json").exists() or (folder / "errors.jsonl").exists():
            return f"{folder.name}: {sorted(path.name for path in folder.glob('*'))}"
        return [without_times(line) for line in lines_of(folder / "records.jsonl")]

    def expected(self, target: str, mode: str, **variables: object) -> Any:
        """Return the records of a run without a fault."""
        key = (target, mode, (self.suite / "suite.yaml").read_text("utf-8"), str(variables))
        if key not in self._expected:
            script, self.script = self.script, _well
            output = self.output()
            session = self.run(output, target=target, mode=mode, **variables)
            if session.code:
                raise Wrong(f"without a fault: exit code {session.code}: {session.log[-500:]}")
            self._expected[key] = self.records(output)
            self.script = script
        return self._expected[key]

    def resume(self, output: str, *options: str, kept: Iterable[int] = (), **how: Any) -> Session:
        """Resume a run without the fault, which must then be whole; the kept answers are not asked for again."""
        self.script = _well
        session = self.run(output, RESUME, *options, **how)
        expected = {"target": "plain", "mode": "fixture"} | how
        if session.code:
            raise Wrong(f"resumed: exit code {session.code}: {session.log[-500:]}")
        if self.records(output) != self.expected(**expected):
            raise Wrong(f"resumed: other records than those of an undisturbed run: {self.records(output)!r:.300}")
        again = sorted(set(kept) & set(session.asked or session.called))
        if again:
            raise Wrong(f"asked again for the answers to {again}")
        return session

    def _answer(self, request: bytes) -> Sequence[bytes | float]:
        found = _QUESTION.search(request)
        number = int(found[1]) if found is not None else -1
        self._asked.append(number)
        return self.script(number, self._asked.count(number))


# what servers do


def _well(_number: int, _time: int) -> Sequence[bytes | float]:
    return [OK]


def _at(*steps: bytes | float, first: int = sys.maxsize) -> Script:
    """Return a script that does this at one case, the first times, and answers all others."""
    return lambda number, time: steps if number == AT and time <= first else [OK]


def _drip(wire: bytes) -> list[bytes | float]:
    """Return an answer that comes a byte at a time."""
    return [step for byte in wire for step in (bytes([byte]), 0.05)]


def _status(code: int, *headers: str) -> bytes:
    body = b'{"error": {"message": "too much"}}'
    lines = (f"content-length: {len(body)}", "content-type: application/json", *headers)
    return head(*lines, status=f"{code} Refused") + body


def _events(*texts: str, ends: bool = True) -> list[bytes]:
    """Return a streamed answer, chunk by chunk."""
    lines = [head("content-type: text/event-stream", "transfer-encoding: chunked")]
    for text in texts:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake-1", "choices": [choice]}
        lines.append(chunk(f"data: {json.dumps(event)}\n\n".encode()))
    return [*lines, *([chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"] if ends else [])]


STREAM = _events("o", "k")


# faults


def _met(bench: Bench, output: str, session: Session, *, code: int, kinds: dict[int, str], says: str = "") -> str:
    """Check a session with a fault; return its verdicts in words."""
    if session.code != code:
        raise Wrong(f"exit code {session.code}, expected {code}: {session.log[-500:]}")
    verdicts = bench.verdicts(output)
    expected = {number: kinds.get(number, "passed") for number in range(CASES)} if kinds or code in {0, 1} else {}
    if verdicts != expected and expected:
        differing = {number: verdicts.get(number) for number in expected if verdicts.get(number) != expected[number]}
        raise Wrong(f"verdicts: {differing}, expected {kinds}")
    if says not in session.log:
        raise Wrong(f'does not say "{says}": {session.log[-500:]}')
    return _counted(verdicts)


def _counted(verdicts: dict[int, str]) -> str:
    counted = Counter(verdicts.values())
    return ", ".join(f"{counted[name]} {name}" for name in sorted(counted, key=lambda name: (name != "passed", name)))


def at_a_case(
    bench: Bench,
    *,
    fault: str = "",
    script: Script = _well,
    kind: str = "",
    target: str = "plain",
    mode: str = "fixture",
    options: tuple[str, ...] = (),
    says: str = "",
    **variables: object,
) -> str:
    """Have one case go wrong, and no other; resume the run."""
    output = bench.output()
    bench.script = script
    session = bench.run(output, *options, fault=fault, target=target, mode=mode, **variables)
    kinds = {AT: kind} if kind else {}
    result = _met(bench, output, session, code=int(bool(kind)), kinds=kinds, says=says)
    if kind:
        kept = set(range(CASES)) - {AT}
        same = {name: value for name, value in variables.items() if not name.startswith("FAULT")}
        options = tuple(name for name in options if name != LIMIT)
        bench.resume(output, *options, kept=kept, target=target, mode=mode, **same)
    elif bench.records(output) != bench.expected(target, mode):
        raise Wrong("other records than those of an undisturbed run")
    bench.script = _well
    return result


def ends_early(
    bench: Bench,
    *,
    fault: str,
    code: int,
    target: str = "plain",
    mode: str = "fixture",
    says: str = "",
    options: tuple[str, ...] = (),
    **variables: object,
) -> str:
    """Have a fault end the process; what was stored before is kept."""
    output = bench.output()
    session = bench.run(output, *options, fault=fault, target=target, mode=mode, **variables)
    if session.code != code or says not in session.log:
        raise Wrong(f"exit code {session.code}, expected {code}: {session.log[-500:]}")
    resumed = bench.resume(output, target=target, mode=mode, kept=range(AT))
    return f"ended after {session.seconds:.0f} s; {CASES - len(resumed.called)} kept"


def full_before(bench: Bench, *, workers: str = "-n0", mounted: str = "size=64k") -> str:
    """Start a live run where nothing can be written: no model may be called."""
    output = bench.output()
    folder = bench.folder / output
    with _unwritable(folder, mounted):
        session = bench.run(output, workers, target="ask", mode=LIVE)
    if session.code != 4 or session.asked or "no model was called" not in session.log:  # noqa: PLR2004 - usage
        raise Wrong(f"exit code {session.code}, asked {len(session.asked)} times: {session.log[-300:]}")
    return "exit code 4, 0 calls"


def full(bench: Bench, *, mode: str, target: str, options: tuple[str, ...] = (), at: int = AT) -> str:
    """Let no file grow from one case on; at most what is in flight then is made again."""
    output = bench.output()
    session = bench.run(output, *options, fault="limit_files", target=target, mode=mode, FILE_SIZE=9000, FAULT_AT=at)
    if session.code != 1 or "cannot write reports" not in session.log or RESUME.partition("=")[0] not in session.log:
        raise Wrong(f"exit code {session.code}: {session.log[-500:]}")
    done = session.asked or session.called
    resumed = bench.resume(output, *options, target=target, mode=mode)
    again = len(set(done) & set(resumed.asked or resumed.called))
    if mode == LIVE and again > (1 if ONE in options else 8):
        raise Wrong(f"asked again {again} times")
    return f"{len(done)} made, then the run stopped; {again} made again"


def removed(bench: Bench, *, mode: str, target: str) -> str:
    """Remove the folder of reports in the middle: the run ends as if nothing had been."""
    return at_a_case(bench, fault="remove_output", mode=mode, target=target)


def four_runs(bench: Bench) -> str:
    """Start four runs with one folder of reports at the same time."""
    output = bench.output()
    ended = _at_once(bench, output, [()] * 4)
    codes = [code for code, _ in ended]
    folders = bench.runs(output)
    expected = bench.expected("plain", "fixture")
    whole = [json.loads((path / "report.json").read_bytes())["packbench"]["complete"] for path in folders]
    records = [[without_times(line) for line in lines_of(path / "records.jsonl")] for path in folders]
    latest = (bench.folder / output / "faults" / "latest").read_text("utf-8").strip()
    if codes != [0] * 4 or len(folders) != 4 or not all(whole) or latest not in {path.name for path in folders}:  # noqa: PLR2004
        raise Wrong(f"exit codes {codes}, {len(folders)} folders, latest {latest}")
    if any(each != expected for each in records):
        raise Wrong("other records than those of an undisturbed run")
    return "4 whole runs"


def four_resumes(bench: Bench) -> str:
    """Resume a killed run four times at once: one does it, the others refuse."""
    output = bench.output()
    bench.run(output, fault="kill_process", target="slow")
    ended = _at_once(bench, output, [(RESUME,)] * 4)
    codes = sorted(code for code, _ in ended)
    # one that starts when another has ended finds nothing to resume, and repeats its verdict
    if not set(codes) <= {0, 4} or 0 not in codes:
        raise Wrong(f"exit codes {codes}: {ended[0][1][-500:]}")
    if any(code and "still running" not in log for code, log in ended):
        raise Wrong(f"a refusal without its reason: {ended}")
    called = Counter(bench.called())
    if len(bench.runs(output)) != 1 or max(called.values()) > 1 or set(called) & set(range(AT)):
        raise Wrong(f"called {dict(called)}")
    if bench.records(output) != bench.expected("slow", "fixture"):
        raise Wrong("other records than those of an undisturbed run")
    return f"{codes.count(0)} resumed, {codes.count(4)} refused"


def clock_back_between(bench: Bench, *, mode: str, target: str) -> str:
    """Kill a run with an error, resume it with a clock of two hours before, kill it again, and resume it."""
    output = bench.output()
    options = (ONE,) if mode == LIVE else ()
    bench.script = lambda number, _time: [_status(400) if number == 2 else OK]  # noqa: PLR2004 - any case
    first = bench.run(output, *options, fault="kill_process", target=target, mode=mode)
    bench.script = _well
    second = bench.run(output, RESUME, *options, target=target, mode=mode, KILLED_AT=8, CLOCK_BACK="1")
    bench.resume(output, *options, target=target, mode=mode, kept=range(8))
    if first.code != -signal.SIGKILL or second.code != -signal.SIGKILL:
        raise Wrong(f"exit codes {first.code} and {second.code}: {second.log[-300:]}")
    return "nothing made again"


def signalled(
    bench: Bench, *, numbers: Sequence[int], mode: str, target: str, options: tuple[str, ...] = (), code: int = 2
) -> str:
    """Send signals in the middle; what has ended is kept."""
    output = bench.output()
    bench.script = lambda number, _time: [5.0, OK] if number > AT else [OK]
    process = bench.start(output, *options, target=target, mode=mode)
    _until(lambda: len(bench.called()) >= AT)
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
        time.sleep(0.01)
    session = bench.wait(process, twice=len(numbers) > 1)
    kept = {number for number, verdict in bench.verdicts(output).items() if verdict == "passed"}
    if session.code not in {code, -signal.SIGINT if len(numbers) > 1 else code}:
        raise Wrong(f"exit code {session.code}, expected {code}: {session.log[-500:]}")
    resumed = bench.resume(output, *options, target=target, mode=mode, kept=kept)
    return f"{len(kept)} kept, {len(resumed.called)} made after"


def workers_killed(bench: Bench, *, mode: str, target: str) -> str:
    """Kill a worker of xdist with SIGKILL: xdist starts another, and the case that it had is an error."""
    output = bench.output()
    session = bench.run(output, "-n2", fault="kill_process", mode=mode, target=target)
    verdicts = bench.verdicts(output)
    wrong = {number: verdict for number, verdict in verdicts.items() if verdict != "passed"}
    if session.code != 1 or len(verdicts) != CASES or set(wrong.values()) - {"worker_crashed"} or AT not in wrong:
        raise Wrong(f"exit code {session.code}: {verdicts}")
    bench.resume(output, "-n2", mode=mode, target=target, kept=set(verdicts) - set(wrong))
    return _counted(verdicts)


def storm(bench: Bench, *, target: str = "ask") -> str:
    """Refuse each call twice with 429, then answer."""
    answer = STREAM if target == "streamed" else [OK]
    bench.script = lambda _number, time: [_status(429, "retry-after: 0", "retry-after-ms: 1")] if time <= 2 else answer  # noqa: PLR2004
    output = bench.output()
    session = bench.run(output, target=target, mode=LIVE)
    bench.script = _well
    return f"{_met(bench, output, session, code=0, kinds={})}; {len(session.asked)} requests"


def all_fail(bench: Bench, *, script: Script = _well, kind: str, options: tuple[str, ...] = ()) -> str:
    """Have all calls fail."""
    output = bench.output()
    bench.script = script
    session = bench.run(output, "-k", "case_000 or case_005", *options, target="ask", mode=LIVE)
    verdicts = bench.verdicts(output)
    if session.code != 1 or set(verdicts.values()) != {kind}:
        raise Wrong(f"exit code {session.code}: {verdicts}: {session.log[-300:]}")
    # the server's address is part of no condition of a run
    bench.resume(output, target="ask", mode=LIVE)
    return f"{_counted(verdicts)}, after {session.seconds:.0f} s"


def recorded(bench: Bench, *, script: Script, kind: str, target: str, options: tuple[str, ...] = ()) -> str:
    """Record while one answer goes wrong: it gets no recording, and is recorded by the resumed run; then replay."""
    _forget_recordings(bench)
    output = bench.output()
    bench.script = script
    session = bench.run(output, *options, target=target, mode="record")
    result = _met(bench, output, session, code=1, kinds={AT: kind})
    files = sorted(path.stem for path in (bench.suite / "fixtures").glob("*.json"))
    if f"case_{AT:03}" in files or len(files) != CASES - 1:
        raise Wrong(f"recordings of {files}")
    bench.script = _well if target != "streamed" else lambda _number, _time: STREAM
    resumed = bench.run(output, RESUME, target=target, mode="record")
    if resumed.code or set(resumed.called) != {AT}:
        raise Wrong(f"resumed: exit code {resumed.code}, called {resumed.called}: {resumed.log[-500:]}")
    replayed = bench.run(bench.output(), *_PROCESSES, target=target)
    if replayed.code or replayed.asked:
        raise Wrong(f"replayed: exit code {replayed.code}: {replayed.log[-500:]}")
    _forget_recordings(bench)
    bench.script = _well
    return f"{result}; {len(files)} recorded"


def large_recording(bench: Bench) -> str:
    """Record and replay an answer of 20 MB."""
    _forget_recordings(bench)
    wire = openai_reply("x" * 20_000_000).wire()
    output = bench.output()
    bench.script = _at(wire)
    session = bench.run(output, target="ask", mode="record")
    _met(bench, output, session, code=1, kinds={AT: "failed"})
    replayed = bench.run(replaying := bench.output(), target="ask")
    result = _met(bench, replaying, replayed, code=1, kinds={AT: "failed"})
    size = (bench.suite / "fixtures" / f"case_{AT:03}.json").stat().st_size
    _forget_recordings(bench)
    return f"{result}; {size / 1e6:.0f} MB replayed in {replayed.seconds:.1f} s"


def full_while_recording(bench: Bench) -> str:
    """Record where recordings can't be written from one case on."""
    _forget_recordings(bench)
    output = bench.output()
    options = (ONE, "--packbench-trials=1")
    session = bench.run(output, *options, fault="limit_files", target="ask", mode="record", FILE_SIZE=700)
    if session.code != 1:
        raise Wrong(f"exit code {session.code}: {session.log[-500:]}")
    broken = [path.name for path in (bench.suite / "fixtures").glob("*") if not _is_json(path)]
    if broken:
        raise Wrong(f"cut recordings: {broken}")
    resumed = bench.run(output, RESUME, *options, target="ask", mode="record")
    files = list((bench.suite / "fixtures").glob("*.json"))
    if resumed.code or len(files) != CASES:
        raise Wrong(f"resumed: exit code {resumed.code}, {len(files)} recordings: {resumed.log[-500:]}")
    _forget_recordings(bench)
    return f"{len(session.asked)} asked, {len(resumed.asked)} after; all recorded"


def http_target(bench: Bench, *, script: Script, kind: str) -> str:
    """Have the server of an `http:` target go wrong at one case."""
    output = bench.output()
    answer = _http(b'{"answer": "ok"}')
    bench.script = lambda number, time: answer if script(number, time) == [OK] else script(number, time)
    target = f"{bench.url}/verify"
    session = bench.run(output, LIMIT, target=target, mode=LIVE)
    result = _met(bench, output, session, code=1, kinds={AT: kind})
    bench.script = lambda _number, _time: answer
    resumed = bench.run(output, RESUME, target=target, mode=LIVE)
    if resumed.code or set(resumed.asked) != {AT}:
        raise Wrong(f"resumed: exit code {resumed.code}, asked {resumed.asked}: {resumed.log[-300:]}")
    bench.script = _well
    return result


def judged(bench: Bench, *, mode: str, target: str) -> str:
    """Have a judge hang at one case."""
    bench.rules(JUDGED)
    try:
        output = bench.output()
        session = bench.run(output, LIMIT, target=target, mode=mode, FAULT_OF_JUDGE="1")
        result = _met(bench, output, session, code=1, kinds={AT: "timeout"})
        bench.resume(output, target=target, mode=mode, kept=set(range(CASES)) - {AT})
    finally:
        bench.rules(SUITE)
    return result


# small things


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _http(body: bytes) -> list[bytes | float]:
    return [head(f"content-length: {len(body)}", "content-type: application/json") + body]


def _forget_recordings(bench: Bench) -> None:
    shutil.rmtree(bench.suite / "fixtures", ignore_errors=True)


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise Wrong("the session did not get so far")
        time.sleep(0.005)


def _at_once(bench: Bench, output: str, sessions: Sequence[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Run several sessions at the same time; return their exit codes and what they printed."""
    (bench.folder / "called.txt").write_text("", encoding="utf-8")
    environment = inherited() | bench.environment(output) | {"PYTHONPATH": str(HOME)}
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider"]
    started = [
        subprocess.Popen(
            [*command, *bench.arguments(output, *options, target="slow" if options else "plain")],
            cwd=bench.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for options in sessions
    ]
    printed = [process.communicate(timeout=WAIT_S)[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, printed, strict=True)]


@contextlib.contextmanager
def _unwritable(folder: Path, options: str) -> Iterator[None]:
    """Make a folder that has no room: a file system of its own where that may be mounted, else without permission."""
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        folder.chmod(0o555)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["/bin/umount", str(folder)], check=True)
        folder.chmod(0o755)


def _refused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def rows() -> list[Row]:
    """Return all faults."""
    in_fixture: list[tuple[str, str]] = [
        ("os._exit(0)", "end_process"),
        ("exec of a program that succeeds", "replace_process"),
        ("SystemExit(0)", "leave_by_system_exit"),
        ("pytest.skip()", "skip"),
        ("memory full (RLIMIT_AS)", "fill_memory"),
        ("recursion limit lowered", "lower_recursion_limit"),
        ("fork", "fork_and_return"),
        ("hangs, interruptible", "hang"),
    ]
    harmless = [
        ("closes descriptors 1 and 2", "close_standard_output"),
        ("leaves sys.stdout = None", "replace_streams"),
        ("changes to a folder that is removed", "change_folder"),
        ("clears the environment", "clear_environment"),
        ("changes the locale", "change_locale"),
        ("ignores all signals", "ignore_signals"),
        ("leaves 20 threads", "leave_threads"),
    ]
    limits = {"hang": (LIMIT,)}
    kinds = {"replace_process": "offline", "fork_and_return": "offline", "hang": "timeout"}
    live: dict[str, Any] = {"mode": LIVE, "target": "ask"}
    sync: dict[str, Any] = {"mode": LIVE, "target": "ask_sync"}
    dns = "--packbench-base-url=http://no-such-host.invalid/v1"
    refused = f"--packbench-base-url=http://127.0.0.1:{_refused_port()}/v1"
    cut, slow, reset = OK[: -len(OK) // 4], _drip(OK), b"HTTP/1.1 2"
    http_ok = bytes(_http(b'{"answer": "ok"}')[0])  # type: ignore[arg-type]  # it is bytes
    table: list[tuple[str, str, Callable[[Bench], str]]] = [
        ("output", "full before a live run", full_before),
        ("output", "full before a live run, 2 workers", partial(full_before, workers="-n2")),
        ("output", "read-only before a live run", partial(full_before, mounted="ro")),
        ("output", "full in the middle, live", partial(full, options=(ONE,), at=8, **live)),
        ("output", "full in the middle, live, 8 at once", partial(full, at=8, **live)),
        ("output", "full in the middle, fixture", partial(full, mode="fixture", target="plain")),
        ("output", "removed in the middle, fixture", partial(removed, mode="fixture", target="plain")),
        ("output", "removed in the middle, live", partial(removed, **live)),
        ("output", "four runs at once", four_runs),
        ("output", "one killed run resumed four times at once", four_resumes),
        ("output", "full while recording", full_while_recording),
        ("clock", "steps back in the middle", partial(at_a_case, fault="step_clock_back")),
        ("clock", "no date at all", partial(at_a_case, fault="break_clock")),
        ("clock", "steps back between killed sessions", partial(clock_back_between, **live)),
        ("signals", "SIGINT, fixture", partial(signalled, numbers=(signal.SIGINT,), mode="fixture", target="slow")),
        ("signals", "SIGINT, live", partial(signalled, numbers=(signal.SIGINT,), **live)),
        (
            "signals",
            "SIGINT twice, fixture",
            partial(signalled, numbers=(signal.SIGINT, signal.SIGINT), mode="fixture", target="slow"),
        ),
        ("signals", "SIGINT twice, live", partial(signalled, numbers=(signal.SIGINT, signal.SIGINT), **live)),
        ("signals", "SIGTERM, live", partial(signalled, numbers=(signal.SIGTERM,), **live)),
        ("signals", "SIGKILL of a worker, fixture", partial(workers_killed, mode="fixture", target="plain")),
        ("signals", "SIGKILL of a worker, live", partial(workers_killed, **live)),
        ("backend", "each call refused twice with 429", storm),
        (
            "backend",
            "429 with an hour to wait",
            partial(all_fail, script=lambda _n, _t: [_status(429, "retry-after: 3600")], kind="rate_limit"),
        ),
        ("backend", "answer cut", partial(at_a_case, script=_at(cut, CLOSE), kind="network", **live)),
        ("backend", "answer cut once", partial(at_a_case, script=_at(cut, CLOSE, first=1), **live)),
        (
            "backend",
            "connection closed in the head",
            partial(at_a_case, script=_at(reset, CLOSE), kind="network", **live),
        ),
        ("backend", "drips bytes", partial(at_a_case, script=_at(*slow), kind="timeout", options=(LIMIT,), **live)),
        ("backend", "never answers", partial(at_a_case, script=_at(3600.0), kind="timeout", options=(LIMIT,), **live)),
        ("backend", "no such host", partial(all_fail, kind="network", options=(dns,))),
        ("backend", "no server at the address", partial(all_fail, kind="network", options=(refused,))),
        ("http: target", "drips bytes", partial(http_target, script=_at(*_drip(http_ok)), kind="timeout")),
        ("http: target", "answer cut", partial(http_target, script=_at(http_ok[:-3], CLOSE), kind="target_died")),
        ("http: target", "429", partial(http_target, script=_at(_status(429)), kind="target_error")),
        (
            "gateway",
            "stream cut while recording",
            partial(recorded, script=_stream(*_events("o", ends=False), CLOSE), kind="network", target="streamed"),
        ),
        (
            "gateway",
            "stream drips while recording",
            partial(
                recorded,
                script=_stream(*[step for event in _events(*"ok" * 20) for step in (event, 0.4)]),
                kind="timeout",
                target="streamed",
                options=(LIMIT,),
            ),
        ),
        (
            "gateway",
            "429 while recording",
            partial(recorded, script=_stream(_status(429, "retry-after-ms: 1")), kind="rate_limit", target="streamed"),
        ),
        ("gateway", "each call refused with 429, once", partial(storm, target="streamed")),
        ("recording", "answer cut", partial(recorded, script=_at(cut, CLOSE), kind="network", target="ask")),
        ("recording", "an answer of 20 MB", large_recording),
        *(
            (
                "target",
                name,
                partial(at_a_case, fault=fault, kind=kinds.get(fault, "target_error"), options=limits.get(fault, ())),
            )
            for name, fault in in_fixture
        ),
        *(("target", name, partial(at_a_case, fault=fault)) for name, fault in harmless),
        ("target", "os._exit(0), live", partial(at_a_case, fault="end_process", kind="target_error", **sync)),
        ("target", "exec, live", partial(at_a_case, fault="replace_process", kind="target_error", **live)),
        ("target", "fork, live", partial(at_a_case, fault="fork_and_return", **live)),
        ("target", "leaves a child, live", partial(at_a_case, fault="leave_child", **sync)),
        (
            "target",
            "os._exit(0) on a thread",
            partial(ends_early, fault="end_process_on_thread", code=1, says="os._exit(0) ended the run"),
        ),
        (
            "target",
            "hangs in C code",
            partial(ends_early, fault="hang_in_c", code=1, options=(LIMIT,), says="Timeout ("),
        ),
        (
            "target",
            "hangs in C code and does not release the interpreter",
            partial(ends_early, fault="hang_holding_the_interpreter", code=1, options=(LIMIT,), says="Timeout ("),
        ),
        (
            "target",
            "the same, live",
            partial(
                ends_early, fault="hang_holding_the_interpreter", code=1, options=(LIMIT, ONE), says="Timeout (", **live
            ),
        ),
        (
            "target",
            "hangs in C code, live",
            partial(at_a_case, fault="hang_in_c", kind="timeout", options=(LIMIT,), **sync),
        ),
        ("target", "opens all files", partial(ends_early, fault="open_files", code=1, says="can't be concluded")),
        (
            "guard",
            "hangs, live",
            partial(
                at_a_case,
                kind="timeout",
                options=(LIMIT,),
                GUARDED="1",
                FAULT_OF_GUARD="1",
                mode=LIVE,
                target="guarded",
            ),
        ),
        ("judge", "hangs, fixture", partial(judged, mode="fixture", target="plain")),
        ("judge", "hangs, live", partial(judged, **live)),
    ]
    return [Row(*row) for row in table]


def _stream(*steps: bytes | float) -> Script:
    """Return a script that streams, and does this at one case."""
    return lambda number, _time: steps if number == AT else STREAM


def run(seed: int, seconds: float, only: str = "") -> int:
    """Have faults happen in an order of the seed until the time is over; return how many were wrong."""
    begun, wrong, chosen = time.monotonic(), 0, rows()
    random.Random(seed).shuffle(chosen)  # noqa: S311 - an order
    os.environ.setdefault("OPENAI_API_KEY", KEY)
    print("| at fault | fault | result | seconds |\n|---|---|---|---:|")
    with tempfile.TemporaryDirectory() as folder, Warm() as warm, Bench(Path(folder, "project"), warm) as bench:
        for row in chosen:
            start = time.monotonic()
            if only not in f"{row.group} {row.name}" or start - begun > seconds:
                continue
            try:
                result = row.check(bench)
            except (Wrong, OSError, ValueError) as error:
                wrong += 1
                result = f"**wrong**: {error!r}"
                bench.script = _well
            print(f"| {row.group} | {row.name} | {result} | {time.monotonic() - start:.1f} |", flush=True)
    return wrong
