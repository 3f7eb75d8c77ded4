"""Each request to a program gets its own answer or an error of one line, and no child process outlives its target."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.engine.command_target import CommandTarget
from pytest_packbench.engine.targets import TargetCaller, run_in_thread
from pytest_packbench.model.request import MAX_RESULT_BYTES, AnswerError, TargetError, TargetFailure, VerifyRequest
from tests.engine.attempts import EchoPack, RunnerContext, context, job, wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pytest_packbench import Case
    from tests.conftest import ExpectedTexts

ROOT = Path(__file__).parents[2]
DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("command_target.yaml").read_text("utf-8"))
# each request tells the child what to do, in Python; `line` is what it prints instead of its reply
CHILD = """
import json, os, signal, sys, time
for request in sys.stdin:
    call = json.loads(request)
    reply = {"jsonrpc": "2.0", "id": call["id"], "result": None}
    value, line = call["params"]["input"], None
    exec(call["params"]["options"].get("do", ""))
    print(json.dumps(reply) if line is None else line)
"""
PID = "reply['result'] = os.getpid()"
ECHO = "reply['result'] = value"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups and signals are POSIX's")


class Doing(EchoPack):
    """A pack whose cases name what the child does."""

    def request(self, case: Case) -> VerifyRequest:
        return request(case.input["do"])


@pytest.fixture(autouse=True)
def _no_child_remains() -> Iterator[None]:
    # garbage is looked for in what the test makes: in all that was imported, it takes half a second
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()
    with pytest.raises(ChildProcessError):
        # neither running nor a zombie
        os.waitpid(-1, os.WNOHANG)


def request(code: str = "", value: Any = None) -> VerifyRequest:
    return VerifyRequest(input=value, options={"do": code})


@dataclass
class Harness:
    """Uses targets on event loops of their own and closes them."""

    folder: Path
    command: str = f"{shlex.quote(sys.executable)} -S child.py"

    def use(self, use: Callable[[CommandTarget], Awaitable[Any]], **options: Any) -> Any:
        async def run() -> Any:
            fields: dict[str, Any] = {"command": self.command, "cwd": self.folder, "processes": 1} | options
            async with aclosing(CommandTarget(**fields)) as target:
                return await use(target)

        return asyncio.run(run())

    def answer(self, code: str = "", value: Any = None, **options: Any) -> Any:
        return self.use(lambda target: target.verify(request(code, value)), **options)

    def failures(self, *codes: str, **options: Any) -> list[TargetFailure | AnswerError]:
        """The failures of requests in a row; after them one has to work, in whichever process."""

        async def use(target: CommandTarget) -> list[TargetFailure | AnswerError]:
            failures = [await failure_of(target, request(code)) for code in codes]
            assert isinstance(await target.verify(request(PID)), int)
            return failures

        return list(self.use(use, **options))


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "child.py").write_text(CHILD)
    return Harness(tmp_path)


async def failure_of(target: CommandTarget, request: VerifyRequest) -> TargetFailure | AnswerError:
    with pytest.raises((TargetFailure, AnswerError)) as caught:
        await target.verify(request)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert isinstance(caught.value, TargetFailure | AnswerError)
    return caught.value


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(pid, 0)
        # a grandchild is reaped by init, whenever that is
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(*pids: int) -> None:
    for pid in pids:
        while is_alive(pid):
            time.sleep(0.002)


UNICODE = DATA["values"]["text"]
LARGE = "x" * 3_000_000
RESULTS: dict[str, tuple[str, Any, Any]] = {
    **{name: (ECHO, value, value) for name, value in DATA["values"].items()},
    **{name: (code, UNICODE, result) for name, (code, result) in DATA["results"].items()},
    "large result": ("reply['result'] = 'x' * 3_000_000", None, LARGE),
    "large request": ("reply['result'] = len(value)", LARGE, len(LARGE)),
}


def test_requests_and_results_are_json_rpc(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_COLOUR", "green")
    # nothing flushes in the child
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    harness.command += " --flag 'two words' $HOME *"
    surroundings = "reply['result'] = [os.getcwd(), os.environ['PIPELINE_COLOUR'], sys.argv[1:]]"
    expected = [os.path.realpath(harness.folder), "green", ["--flag", "two words", "$HOME", "*"]]
    echo = VerifyRequest(input={"text": UNICODE}, options={"do": "reply['result'] = call"}, evidence=(1, "b"))

    async def use(target: CommandTarget) -> None:
        caller = TargetCaller(target.verify)
        assert (caller.opaque, caller.asks_model) == (True, False)
        assert target.processes == 0
        call = await caller.call(echo, None, run_in_thread)  # type: ignore[arg-type]  # it takes no context
        assert call == {"jsonrpc": "2.0", "id": 1, "method": "verify", "params": echo.as_json()}
        assert set(call["params"]) == {"input", "options", "evidence"}
        for name, (code, value, result) in RESULTS.items():
            assert await target.verify(request(code, value)) == result, name
        assert await target.verify(request(surroundings)) == expected
        assert target.processes == 1
        await caller.aclose()
        assert target.processes == 0
        with pytest.raises(TargetFailure, match="JSON") as caught:
            await target.verify(VerifyRequest(input=json.loads("1e999")))
        assert caught.value.kind == "target_error"

    harness.use(use, processes=8)


def test_concurrent_requests_share_the_processes_and_each_gets_its_own_answer(harness: Harness) -> None:
    # each process waits until all are busy
    code = (
        "open(f'here-{os.getpid()}', 'w').close()\n"
        "while len([name for name in os.listdir('.') if name.startswith('here-')]) < 3: time.sleep(0.001)\n"
        "reply['result'] = [value, os.getpid()]"
    )

    async def use(target: CommandTarget) -> list[Any]:
        return await asyncio.gather(*(target.verify(request(code, number)) for number in range(30)))

    answers = harness.use(use, processes=3)
    assert [number for number, _ in answers] == list(range(30))
    assert len({pid for _, pid in answers}) == 3


def test_every_failure_is_one_line(harness: Harness, expected: ExpectedTexts) -> None:
    lines = []
    for name, failure in zip(DATA["failures"], harness.failures(*DATA["failures"].values()), strict=True):
        message = str(failure).replace(sys.executable, "<python>")
        details = [] if "Traceback (most recent call last):" in failure.details else [*failure.details]
        lines.append("\n    ".join([f"{name}: {failure.kind}: {message}", *details]) + "\n")
    expected.check("".join(lines))


def test_an_error_reply_keeps_the_process_and_a_later_line_fails_the_next_request(harness: Harness) -> None:
    error = "reply = {**reply, 'error': {'code': 1, 'message': 'x'}}; del reply['result']"

    async def use(target: CommandTarget) -> None:
        before = await target.verify(request(PID))
        await failure_of(target, request(error))
        assert await target.verify(request(PID + "; line = json.dumps(reply) + '\\ndone!'")) == before
        failure = await failure_of(target, request())
        assert (failure.kind, '"done!"' in str(failure)) == ("target_error", True)

    harness.use(use)


def test_a_process_that_closes_a_pipe_and_stays_is_killed(harness: Harness) -> None:
    codes = "os.close(1); time.sleep(600)", "os.close(0); os.close(1); time.sleep(600)"
    for failure in harness.failures(*codes, end_wait_s=0.2):
        assert failure.kind == "target_died"
        assert "closed its standard output before it answered" in str(failure)
    code = "import os, time; os.read(0, 10); os.close(0); time.sleep(600)"
    harness.command = f"{shlex.quote(sys.executable)} -S -c {shlex.quote(code)}"
    large = request(value=LARGE)
    assert harness.use(lambda target: failure_of(target, large), end_wait_s=0.2).kind == "target_died"


def test_errors_have_the_last_forty_lines_and_too_long_an_answer_ends_the_process(harness: Harness) -> None:
    lines, flood, *long = harness.failures(
        "for number in range(100): print('line', number, file=sys.stderr)\nprint('gr\\xfc\\xdf', file=sys.stderr); os._exit(9)",
        "sys.stderr.write('x' * 10_000_000); sys.stderr.flush(); os._exit(1)",
        f"line = ' ' * {MAX_RESULT_BYTES + 1}",
        "while True: sys.stdout.write('x' * 1_000_000)",
    )
    assert lines.details == (*(f"line {number}" for number in range(61, 100)), "grüß")
    assert sum(map(len, flood.details)) <= 1000
    assert [failure.kind for failure in long] == ["answer_unreadable"] * 2
    assert all("wrote more than 32 MiB" in str(failure) for failure in long)


def test_a_program_that_answers_once_and_ends_is_started_again(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[Any]:
        answers = []
        for number in range(4):
            answers.append(await target.verify(request(ECHO + "; print(json.dumps(reply)); sys.exit(0)", number)))
            if number % 2:
                # its end may be noticed before the next request or later
                await wait_until(lambda: not target.processes)
        return answers

    assert harness.use(use) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("command", "folder", "problem"),
    [
        ("no-such-program --key hush", "", '"no-such-program" in {}: No such file or directory'),
        ("./child.py", "", '"./child.py" in {}: Permission denied'),
        ("python", "/gone", '"python" in {}: No such file or directory'),
    ],
)
def test_a_program_that_does_not_start_is_a_failure(harness: Harness, command: str, folder: str, problem: str) -> None:
    cwd = Path(f"{harness.folder}{folder}")
    failure = harness.use(lambda target: failure_of(target, request()), command=command, cwd=cwd)
    assert failure.kind == "target_unreachable"
    assert str(failure).startswith(f"can't start {problem.format(cwd)}; check")
    assert "hush" not in str(failure)
    for unreadable in ("", "   ", "a 'b", "a\0b"):
        with pytest.raises(TargetError, match=r"is empty|No closing quotation|NUL"):
            CommandTarget(command=unreadable, cwd=Path(), processes=1)


def test_a_cancelled_request_kills_its_process_and_affects_no_later_one(harness: Harness, tmp_path: Path) -> None:
    # it ignores polite signals, and would answer too late
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('started', 'w').close(); time.sleep(600)"

    async def use(target: CommandTarget) -> int:
        before: int = await target.verify(request(PID))
        task = asyncio.create_task(target.verify(request(code)))
        queued = asyncio.create_task(target.verify(request("open('queued', 'w').close()")))
        await wait_until((tmp_path / "started").exists)
        queued.cancel()
        await asyncio.wait([queued])
        task.cancel()
        await asyncio.wait([task])
        assert [await target.verify(request(ECHO, number)) for number in range(3)] == [0, 1, 2]
        assert await target.verify(request(PID)) != before
        return before

    wait_until_gone(harness.use(use))
    assert not (tmp_path / "queued").exists()


def test_an_answer_at_the_moment_of_cancelling_reaches_nobody_else(harness: Harness) -> None:
    async def use(target: CommandTarget) -> None:
        for number in range(24):
            task = asyncio.create_task(target.verify(request("reply['result'] = 'late'")))
            # from before the start of the process to after its answer
            for _ in range(2 * number):
                await asyncio.sleep(0.0005 if number % 2 else 0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if number % 6 == 0:
                assert await target.verify(request(ECHO, number)) == number

    harness.use(use)


GRANDCHILD = (
    "import subprocess\n"
    "p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=bool(value))\n"
    "reply['result'] = p.pid"
)


def test_no_grandchild_outlives_the_target_or_its_process_and_none_delays_it(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[int]:
        first: int = await target.verify(request(GRANDCHILD))
        assert is_alive(first)
        # it has the child's pipes open, which must not delay the failure
        assert "exit code 4" in str(await failure_of(target, request("os._exit(4)")))
        return [first, await target.verify(request(GRANDCHILD))]

    wait_until_gone(*harness.use(use))
    # one that left the process group stays
    os.kill(harness.answer(GRANDCHILD, value=True, end_wait_s=0.2), signal.SIGKILL)


def test_closing_lets_a_process_end_then_terminates_then_kills_it(harness: Harness, tmp_path: Path) -> None:
    stays = (
        "import atexit; atexit.register(lambda: open('ended', 'w').close())\n"
        "signal.signal(signal.SIGTERM, lambda *_: open('terminated', 'w').close())\n"
        "reply['result'] = os.getpid()\n"
    )
    harness.answer(stays)
    assert [(tmp_path / name).exists() for name in ("ended", "terminated")] == [True, False]
    pid = harness.answer(f"{stays}print(json.dumps(reply))\nwhile True: time.sleep(600)", end_wait_s=0.2)
    assert (tmp_path / "terminated").exists()
    wait_until_gone(pid)

    async def close_at_the_start(target: CommandTarget) -> None:
        # which answers never: on a busy machine another one may be faster than closing
        task = asyncio.create_task(failure_of(target, request("time.sleep(600)")))
        await asyncio.sleep(0)
        await target.aclose()
        failure = await task
        assert (failure.kind, "the target was closed before it answered" in str(failure)) == ("target_died", True)

    harness.use(close_at_the_start)

    # requests in flight end, others are refused
    async def use(target: CommandTarget) -> None:
        task = asyncio.create_task(failure_of(target, request("open('started', 'w').close(); time.sleep(600)")))
        await wait_until((tmp_path / "started").exists)
        for _ in range(2):
            await target.aclose()
        failures = [await task, await failure_of(target, request())]
        assert [failure.kind for failure in failures] == ["target_died", "target_unreachable"]
        assert all("the target was closed" in str(failure) for failure in failures)

    harness.use(use)


@pytest.mark.parametrize("killed", [False, True])
def test_no_child_outlives_an_interpreter_that_closes_no_target(harness: Harness, killed: bool) -> None:
    # one of the two children does not notice the end of its input, which is all that a killed interpreter leaves
    stays = "; print(json.dumps(reply), flush=True); time.sleep(600)"
    codes = [f"time.sleep(0.05); {PID}", f"time.sleep(0.05); {PID}{'' if killed else stays}"]
    script = (
        "import asyncio, os\nfrom pathlib import Path\n"
        "from tests.engine.test_command_target import CommandTarget, request\n"
        f"target = CommandTarget(command={harness.command!r}, cwd=Path({str(harness.folder)!r}), processes=2)\n"
        "async def use():\n"
        f"    print(*await asyncio.gather(*(target.verify(request(code)) for code in {codes!r})), flush=True)\n"
        f"    {'os.kill(os.getpid(), 9)' if killed else ''}\n"
        "asyncio.run(use())\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == (-9 if killed else 0), run.stderr
    pids = set(map(int, run.stdout.split()))
    assert len(pids) == 2
    wait_until_gone(*pids)


VARIABLE, ARGUMENT = "sk-environment-93d1", "tok-5d2c9e81"
SECRETS = (VARIABLE, ARGUMENT, "AAAABBBBCCCC")
ECHO_SECRETS = "echo = ' '.join([os.environ['PIPELINE_API_KEY'], os.environ['SIGNING_SECRET'], *sys.argv])\n"


def test_no_message_contains_a_secret(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_API_KEY", VARIABLE)
    monkeypatch.setenv("SIGNING_SECRET", "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\n-----END KEY-----")
    harness.command += f" --api-key {ARGUMENT} --token={ARGUMENT} {ARGUMENT}"
    failures = harness.failures(*(ECHO_SECRETS + code for code in DATA["leaks"].values()))
    texts = dict(zip(DATA["leaks"], ["\n".join([str(failure), *failure.details]) for failure in failures], strict=True))
    texts["shown"] = CommandTarget(command=harness.command, cwd=Path(), processes=1).shown.removesuffix(f" {ARGUMENT}")
    assert [name for name, text in texts.items() for secret in SECRETS if secret in text] == []
    assert harness.answer("reply['result'] = [len(word) for word in sys.argv[1:]]") == [9, 12, 20, 12]


ENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "result": ("", {}),
    "error": ("raise ValueError", {}),
    "wrong line": ("line = '?'", {}),
    "time limit": ("time.sleep(60)", {"limit_s": 0.5}),
    "cancelled": ("time.sleep(60)", {}),
    "interrupted": ("time.sleep(60)", {}),
    "no time to start": ("time.sleep(60)", {}),
    "killed": ("import atexit; atexit.register(time.sleep, 60); signal.signal(signal.SIGTERM, signal.SIG_IGN)", {}),
}


def end_cases(harness: Harness, end: str) -> int:
    """Run four cases until they end; how many processes are left."""
    code, options = ENDS[end]
    target = CommandTarget(command=harness.command, cwd=harness.folder, processes=4)
    shared = context(harness.folder, target.verify, pack=Doing())
    runner = RunnerContext(most=4, **options)
    jobs = [job(shared, str(number), do=code) for number in range(4)]
    runner.plan(jobs)
    if end in {"cancelled", "interrupted", "no time to start"}:
        asyncio.run(wait_until(lambda: target.processes == 4))
    else:
        runner.failures(*jobs)
    if end == "cancelled":
        runner.discard([each.key for each in jobs])
    if end == "interrupted":
        runner.stop()
    runner.close(target.aclose)
    return target.processes


@pytest.mark.parametrize("end", ENDS)
def test_no_pipe_and_no_child_is_left_however_a_case_ends(
    harness: Harness, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    assert end_cases(harness, end) == 0
    # a transport that is not closed is an error of the test, and a loop that was closed too early is logged
    gc.collect()
    assert caplog.messages == []
