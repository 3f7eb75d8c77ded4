"""A pipeline in a program, asked over its standard input and output: real child processes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.command_target import CommandTarget
from pytest_packbench.engine.external_io import MAX_RESULT_BYTES, TargetError, TargetFailure
from pytest_packbench.engine.targets import TargetCaller, run_in_thread
from pytest_packbench.model.request import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ROOT = Path(__file__).parents[2]
# each input tells the child what to do, in Python; `said` is what it prints as its reply
CHILD = """
import json, os, signal, subprocess, sys, time
for line in sys.stdin:
    call = json.loads(line)
    number, params = call["id"], call["params"]
    reply = {"jsonrpc": "2.0", "id": number, "result": None}
    said = None
    exec(params["options"].get("do", ""))
    print(json.dumps(reply) if said is None else said)
"""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups and signals are POSIX's")


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "child.py").write_text(CHILD)
    return f"{shlex.quote(sys.executable)} child.py"


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    gc.collect()
    with pytest.raises(ChildProcessError):
        # neither running nor a zombie
        os.waitpid(-1, os.WNOHANG)


def request_for(code: str = "", given: Any = None) -> VerifyRequest:
    return VerifyRequest(input=given, options={"do": code})


WHO = request_for("reply['result'] = os.getpid()")


class Harness:
    """Uses a target on a loop of its own and closes it."""

    def __init__(self, command: str, cwd: Path) -> None:
        self.command = command
        self.cwd = cwd

    def using(self, use: Callable[[CommandTarget], Awaitable[Any]], processes: int = 1) -> Any:
        async def run() -> Any:
            target = CommandTarget(command=self.command, cwd=self.cwd, processes=processes)
            async with aclosing(target):
                return await use(target)

        return asyncio.run(run())

    def answer(self, code: str = "", given: Any = None) -> Any:
        return self.using(lambda target: target.verify(request_for(code, given)))

    def failure(self, code: str) -> TargetFailure:
        """The failure of one request; the next one has to work, in whichever process."""

        async def use(target: CommandTarget) -> TargetFailure:
            failure = await failure_of(target, request_for(code))
            assert isinstance(await target.verify(WHO), int)
            return failure

        failure: TargetFailure = self.using(use)
        assert "\n" not in str(failure)
        assert len(str(failure)) < 700
        return failure


@pytest.fixture
def harness(command: str, tmp_path: Path) -> Harness:
    return Harness(command, tmp_path)


@pytest.fixture
def short_settle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_packbench.engine.command_target._END_S", 0.2)


async def failure_of(target: CommandTarget, request: VerifyRequest) -> TargetFailure:
    with pytest.raises(TargetFailure) as caught:
        await target.verify(request)
    return caught.value


async def wait_for_file(path: Path) -> None:
    """Wait for a file that a child makes."""
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - a child has no event of ours to set
        await asyncio.sleep(0.001)


async def cancelled_when(task: asyncio.Task[Any], path: Path) -> None:
    """Cancel a task when the child has made the file."""
    await wait_for_file(path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return False
        # no /proc: ask the signals
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    except ProcessLookupError:
        return False
    # a grandchild is reaped by init, whenever that is
    return state != "Z"


def wait_until_gone(pid: int) -> None:
    while is_alive(pid):
        threading.Event().wait(0.002)


def test_the_request_is_json_rpc_and_the_result_comes_back(harness: Harness) -> None:
    request = VerifyRequest(
        input={"text": "Größe 🪑\u2028\n"}, options={"do": "reply['result'] = call"}, evidence=(1, "b")
    )
    call = harness.using(lambda target: target.verify(request))
    assert call == {"jsonrpc": "2.0", "id": 1, "method": "verify", "params": request.as_json()}
    assert set(call["params"]) == {"input", "options", "evidence"}


def test_raw_unicode_and_blank_lines_come_through(harness: Harness) -> None:
    code = (
        "sys.stdout.reconfigure(encoding='utf-8')\n"
        "print('\\n\\r')\n"
        "said = json.dumps({'jsonrpc': '2.0', 'id': number, 'result': 'Größe 🪑\\u2028 \\u0085'}, ensure_ascii=False) + '\\r'"
    )
    assert harness.answer(code) == "Größe 🪑\u2028 \u0085"


@pytest.mark.parametrize("result", [None, 0, "", [], {"result": None, "error": None}])
def test_any_json_is_a_result(harness: Harness, result: object) -> None:
    assert harness.answer("reply['result'] = params['input']", result) == result


def test_an_error_that_is_null_is_none(harness: Harness) -> None:
    assert harness.answer("reply.update(result=1, error=None)") == 1


def test_it_is_a_target_for_the_caller(harness: Harness) -> None:
    target = CommandTarget(command=harness.command, cwd=harness.cwd, processes=1)
    caller = TargetCaller(target.verify)
    assert (caller.opaque, caller.asks_model) == (True, False)

    async def run() -> Any:
        result = await caller.call_async(request_for("reply['result'] = 7"), None, run_in_thread)  # type: ignore[arg-type]  # it asks for no context
        await caller.aclose()
        return result

    assert asyncio.run(run()) == 7


def test_a_process_is_kept_for_the_next_request(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[int]:
        return [await target.verify(WHO) for _ in range(5)]

    assert len(set(harness.using(use))) == 1


def test_many_at_once_use_as_many_processes_as_allowed_and_each_get_their_own_answer(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[Any]:
        # all processes are busy at once: each waits for the others
        code = (
            "open(f'here-{os.getpid()}', 'w').close()\n"
            "while len([name for name in os.listdir('.') if name.startswith('here-')]) < 3: time.sleep(0.001)\n"
            "reply['result'] = [params['input'], os.getpid()]"
        )
        return await asyncio.gather(*(target.verify(request_for(code, number)) for number in range(30)))

    answers = harness.using(use, processes=3)
    assert [number for number, _ in answers] == list(range(30))
    assert len({pid for _, pid in answers}) == 3


def test_no_process_is_started_before_it_is_needed(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[int]:
        assert not target._children
        return [await target.verify(WHO), await target.verify(WHO), len(target._children)]

    assert harness.using(use, processes=8)[2] == 1


def test_it_runs_in_the_folder_and_with_the_environment_of_the_user(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_COLOUR", "green")
    code = "reply['result'] = [os.getcwd(), os.environ['PIPELINE_COLOUR'], sys.argv[1:]]"
    harness.command += " --flag 'two words' $HOME *"
    found = harness.answer(code)
    assert found == [os.path.realpath(harness.cwd), "green", ["--flag", "two words", "$HOME", "*"]]


def test_a_buffered_answer_of_python_arrives(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    # nothing flushes in this child
    assert "flush" not in CHILD
    assert harness.answer("reply['result'] = 'short'") == "short"


def test_it_works_on_a_loop_in_another_thread(harness: Harness) -> None:
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append((harness.answer("reply['result'] = 1"), harness.failure("sys.exit(3)")))
    )
    thread.start()
    thread.join()
    assert found[0][0] == 1
    assert "exit code 3" in str(found[0][1])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('Loading model ...')", 'expected an object: "Loading model ..."'),
        ("print({'a': 1})", "line 1 column 2: not JSON"),
        ("print(42)", 'expected an object: "42"'),
        ("print('{\"step\": 1}')", '"jsonrpc": "2.0" is missing'),
        ('said = \'{"jsonrpc": "2.0", "id": 1, "result": NaN}\'', "NaN is not JSON"),
        ('said = \'{"jsonrpc": "2.0", "id": 1, "id": 1, "result": 1}\'', 'duplicate key "id"'),
        ("reply['id'] = 99", 'expected "id": 1, got 99'),
        ("reply['id'] = True", 'expected "id": 1, got true'),
        ("reply['id'] = '1'", 'expected "id": 1, got "1"'),
        ("del reply['id']", 'expected "id": 1, got null'),
        ("del reply['result']", 'expected either "result" or "error"'),
        ("reply['error'] = {'code': 1, 'message': 'x'}; reply['result'] = 5", 'expected either "result" or "error"'),
        ("reply['jsonrpc'] = '1.0'", '"jsonrpc": "2.0" is missing'),
        ("said = '\\x1b[31mred'", "\\\\u001b[31mred"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe\\n')", "expected an object"),
        ("said = '[' * 100000", "expected an object"),
    ],
)
def test_a_line_that_is_no_reply(harness: Harness, code: str, said: str) -> None:
    failure = harness.failure(code)
    assert failure.kind == "result_unreadable"
    assert said.replace("\\\\", "\\") in str(failure)
    assert "logs to standard error" in str(failure)


def test_a_line_after_an_answer_is_found_with_the_next_request(harness: Harness) -> None:
    async def use(target: CommandTarget) -> TargetFailure:
        await target.verify(request_for("said = json.dumps(reply) + '\\ndone!'"))
        return await failure_of(target, request_for())

    failure = harness.using(use)
    assert failure.kind == "result_unreadable"
    assert '"done!"' in str(failure)


def test_an_error_reply_keeps_the_process(harness: Harness) -> None:
    code = (
        "print('tried hard', file=sys.stderr)\n"
        "del reply['result']; reply['error'] = {'code': -32000, 'message': 'no index\\nfound', 'data': {'tries': 3}}"
    )

    async def use(target: CommandTarget) -> tuple[list[int], TargetFailure]:
        before = await target.verify(WHO)
        failure = await failure_of(target, request_for(code))
        return [before, await target.verify(WHO)], failure

    pids, failure = harness.using(use)
    assert pids[0] == pids[1]
    assert failure.kind == "target_error"
    assert "answered: error -32000: no index found" in str(failure)
    assert failure.details == ("data: {'tries': 3}", "tried hard")


@pytest.mark.parametrize("error", ["'broken'", "[1]", "{}", "{'message': None}"])
def test_any_error_reply_is_one_line(harness: Harness, error: str) -> None:
    assert harness.failure(f"del reply['result']; reply['error'] = {error}").kind == "target_error"


def test_an_error_reply_need_not_know_the_id(harness: Harness) -> None:
    failure = harness.failure(
        "reply = {'jsonrpc': '2.0', 'id': None, 'error': {'code': -32700, 'message': 'Parse error'}}"
    )
    assert "error -32700: Parse error" in str(failure)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise KeyError('chapter')", "ended with exit code 1 before it answered: KeyError: 'chapter'"),
        ("sys.exit(0)", "ended with exit code 0 before it answered"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL before it answered"),
        ("os.abort()", "was killed by SIGABRT before it answered"),
        ("sys.stdout.write('{\"jsonrpc'); sys.stdout.flush(); os._exit(5)", "not a reply"),
    ],
)
def test_a_process_that_dies(harness: Harness, code: str, said: str) -> None:
    failure = harness.failure(code)
    assert failure.kind == ("result_unreadable" if "not a reply" in said else "target_died")
    assert said in str(failure)


@pytest.mark.usefixtures("short_settle_time")
@pytest.mark.parametrize("pipe", ["os.close(1)", "os.close(0); os.close(1)"])
def test_a_process_that_closes_its_output_and_stays(harness: Harness, pipe: str) -> None:
    failure = harness.failure(f"{pipe}; time.sleep(600)")
    assert failure.kind == "target_died"
    assert "closed its standard output before it answered" in str(failure)


@pytest.mark.usefixtures("short_settle_time")
def test_a_process_that_closes_its_input_before_it_read_all(harness: Harness) -> None:
    harness.command = (
        f"{shlex.quote(sys.executable)} -c 'import os, time; os.read(0, 10); os.close(0); time.sleep(600)'"
    )
    failure = harness.using(lambda target: failure_of(target, request_for(given="x" * 3_000_000)))
    assert failure.kind == "target_died"


def test_what_a_dying_process_wrote_to_standard_error_is_told(harness: Harness) -> None:
    code = "for number in range(100): print('line', number, file=sys.stderr)\nprint('gr\\xfc\\xdf', file=sys.stderr); os._exit(9)"
    failure = harness.failure(code)
    assert len(failure.details) == 40
    assert failure.details[0] == "line 61"
    assert failure.details[-1] == "grüß"


def test_standard_error_of_an_earlier_case_is_not_told_again(harness: Harness) -> None:
    async def use(target: CommandTarget) -> TargetFailure:
        await target.verify(request_for("print('of the first', file=sys.stderr)"))
        return await failure_of(target, request_for("print('of the second', file=sys.stderr); os._exit(1)"))

    assert harness.using(use).details == ("of the second",)


def test_a_flood_on_standard_error_blocks_nobody(harness: Harness) -> None:
    code = "sys.stderr.write('x' * 10_000_000 + '\\n'); [print('y' * 1000, file=sys.stderr) for _ in range(5000)]; reply['result'] = 1"
    assert harness.answer(code) == 1
    failure = harness.failure("sys.stderr.write('x' * 10_000_000); sys.stderr.flush(); os._exit(1)")
    assert sum(map(len, failure.details)) <= 1000


def test_a_large_result_comes_whole(harness: Harness) -> None:
    assert harness.answer("reply['result'] = 'x' * 3_000_000") == "x" * 3_000_000


def test_a_large_request_goes_out_whole(harness: Harness) -> None:
    assert harness.answer("reply['result'] = len(params['input'])", "x" * 3_000_000) == 3_000_000


@pytest.mark.parametrize("code", ["said = ' ' * {more}", "while True: sys.stdout.write('x' * 1_000_000)"])
def test_an_answer_that_is_too_long_ends_the_process(harness: Harness, code: str) -> None:
    failure = harness.failure(code.replace("{more}", str(MAX_RESULT_BYTES + 1)))
    assert failure.kind == "result_unreadable"
    assert "wrote more than 32 MiB" in str(failure)


def test_a_program_that_answers_once_and_ends_is_started_anew(harness: Harness) -> None:
    async def use(target: CommandTarget) -> list[Any]:
        # whether its end was seen before the next request is chance: both must work
        answers = []
        for number in range(10):
            answers.append(
                await target.verify(
                    request_for("reply['result'] = params['input']; print(json.dumps(reply)); sys.exit(0)", number)
                )
            )
            for _ in range(number):
                await asyncio.sleep(0.001)
        return answers

    assert harness.using(use) == list(range(10))


def test_a_program_that_cannot_start(tmp_path: Path) -> None:
    harness = Harness("no-such-program --key hush", tmp_path)
    failure = harness.using(lambda target: failure_of(target, request_for()))
    assert failure.kind == "target_unreachable"
    assert str(failure).startswith(f'can\'t start "no-such-program" in {tmp_path}: No such file or directory')
    assert "hush" not in str(failure)


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("data")
    failure = Harness("./data.txt", tmp_path).using(lambda target: failure_of(target, request_for()))
    assert failure.kind == "target_unreachable"
    assert "Permission denied" in str(failure)


def test_a_folder_that_is_none(command: str, tmp_path: Path) -> None:
    failure = Harness(command, tmp_path / "gone").using(lambda target: failure_of(target, request_for()))
    assert failure.kind == "target_unreachable"


def test_a_cancelled_request_kills_its_process_and_poisons_nothing(harness: Harness, tmp_path: Path) -> None:
    # it ignores what is polite, and would answer late
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('begun', 'w').write(str(os.getpid()))\n"
        "os.rename('begun', 'begun.whole')\n"
        "time.sleep(600)"
    )

    async def use(target: CommandTarget) -> tuple[int, int]:
        before = await target.verify(WHO)
        await cancelled_when(asyncio.create_task(target.verify(request_for(code))), tmp_path / "begun.whole")
        after = [
            await target.verify(request_for("reply['result'] = [params['input'], os.getpid()]", number))
            for number in range(3)
        ]
        assert [number for number, _ in after] == [0, 1, 2]
        return before, after[0][1]

    before, after = harness.using(use)
    assert (tmp_path / "begun.whole").read_text() == str(before)
    assert after != before
    wait_until_gone(before)


def test_an_answer_that_comes_at_the_moment_of_cancelling_reaches_nobody_else(harness: Harness) -> None:
    async def use(target: CommandTarget) -> None:
        for number in range(60):
            task = asyncio.create_task(target.verify(request_for("reply['result'] = 'late'")))
            # from before the start of the process to after its answer
            for _ in range(number):
                await asyncio.sleep(0.0005 if number % 2 else 0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if number % 10 == 0:
                assert await target.verify(request_for("reply['result'] = params['input']", number)) == number

    harness.using(use)


def test_a_process_whose_start_was_cancelled_is_not_left_beside_the_next_one(harness: Harness) -> None:
    async def use(target: CommandTarget) -> None:
        task = asyncio.create_task(target.verify(WHO))
        while not target._starting:  # noqa: ASYNC110 - it has no event to set
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await target.verify(WHO)
        async with asyncio.timeout(30):
            while len(target._children) > 1:  # noqa: ASYNC110 - it has no event to set
                await asyncio.sleep(0.001)

    harness.using(use)


def test_a_request_cancelled_in_the_queue_starts_nothing(harness: Harness, tmp_path: Path) -> None:
    async def use(target: CommandTarget) -> int:
        busy = asyncio.create_task(target.verify(request_for("open('busy', 'w').close(); time.sleep(600)")))
        queued = asyncio.create_task(target.verify(request_for("open('queued', 'w').close()")))
        await wait_for_file(tmp_path / "busy")
        queued.cancel()
        await asyncio.wait([queued])
        await cancelled_when(busy, tmp_path / "busy")
        answer: int = await target.verify(request_for("reply['result'] = 3"))
        return answer

    assert harness.using(use) == 3
    assert not (tmp_path / "queued").exists()


GRANDCHILD = "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); reply['result'] = p.pid"


def test_no_grandchild_outlives_closing(harness: Harness) -> None:
    wait_until_gone(harness.answer(GRANDCHILD))


def test_no_grandchild_outlives_a_dead_process(harness: Harness) -> None:
    async def use(target: CommandTarget) -> int:
        pid: int = await target.verify(request_for(GRANDCHILD))
        assert is_alive(pid)
        # it holds the child's pipes, which must not hold up the answer
        failure = await failure_of(target, request_for("os._exit(4)"))
        assert "exit code 4" in str(failure)
        return pid

    wait_until_gone(harness.using(use))


@pytest.mark.usefixtures("short_settle_time")
def test_a_process_that_left_the_group_holds_up_nothing(harness: Harness) -> None:
    code = "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); reply['result'] = p.pid"
    pid = harness.answer(code)
    os.kill(pid, signal.SIGKILL)


def test_closing_lets_a_process_end_by_itself(harness: Harness, tmp_path: Path) -> None:
    assert (
        harness.answer("import atexit; atexit.register(lambda: open('ended', 'w').close()); reply['result'] = 1") == 1
    )
    assert (tmp_path / "ended").exists()


@pytest.mark.usefixtures("short_settle_time")
def test_closing_asks_one_that_stays_and_then_makes_it_end(harness: Harness, tmp_path: Path) -> None:
    stays = (
        "def asked(*_): open('asked', 'w').close()\n"
        "signal.signal(signal.SIGTERM, asked)\n"
        "reply['result'] = os.getpid(); print(json.dumps(reply))\n"
        "while True: time.sleep(600)"
    )
    pid = harness.answer(stays)
    assert (tmp_path / "asked").exists()
    wait_until_gone(pid)


def test_closing_ends_requests_under_way(harness: Harness, tmp_path: Path) -> None:
    async def use(target: CommandTarget) -> TargetFailure:
        task = asyncio.create_task(failure_of(target, request_for("open('begun', 'w').close(); time.sleep(600)")))
        await wait_for_file(tmp_path / "begun")
        await target.aclose()
        await target.aclose()
        assert "was closed" in str(await failure_of(target, request_for()))
        return await task

    failure = harness.using(use)
    assert failure.kind == "target_died"
    assert "was closed before it answered" in str(failure)


@pytest.mark.parametrize("stubborn", [False, True])
def test_no_child_survives_an_interpreter_that_ends_without_closing(
    command: str, tmp_path: Path, stubborn: bool
) -> None:
    code = "reply['result'] = os.getpid()"
    if stubborn:
        # it won't notice the end of its input
        code += "; print(json.dumps(reply)); time.sleep(600)"
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from pytest_packbench.engine.command_target import CommandTarget\n"
        "from pytest_packbench.model.request import VerifyRequest\n"
        f"target = CommandTarget(command={command!r}, cwd=Path({str(tmp_path)!r}), processes=1)\n"
        f"print(asyncio.run(target.verify(VerifyRequest(input=None, options={{'do': {code!r}}}))), flush=True)\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    wait_until_gone(int(run.stdout))


def test_a_child_sees_the_end_of_its_input_when_its_parent_is_killed(command: str, tmp_path: Path) -> None:
    script = (
        "import asyncio, os\nfrom pathlib import Path\n"
        "from pytest_packbench.engine.command_target import CommandTarget\n"
        "from pytest_packbench.model.request import VerifyRequest\n"
        f"target = CommandTarget(command={command!r}, cwd=Path({str(tmp_path)!r}), processes=2)\n"
        "async def ask():\n"
        "    code = 'time.sleep(0.05); reply[\"result\"] = os.getpid()'\n"
        "    request = VerifyRequest(input=None, options={'do': code})\n"
        "    print(*await asyncio.gather(target.verify(request), target.verify(request)), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(ask())\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == -9
    one, other = map(int, run.stdout.split())
    assert one != other
    wait_until_gone(one)
    wait_until_gone(other)


SECRET, GIVEN, LINES = (
    "sk-environment-93d1",
    "tok-5d2c9e81",
    "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\n-----END KEY-----",
)
SECRETS = (SECRET, GIVEN, "AAAABBBBCCCC")


@pytest.fixture
def harness_with_secrets(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setenv("PIPELINE_API_KEY", SECRET)
    monkeypatch.setenv("SIGNING_SECRET", LINES)
    harness.command += f" --api-key {GIVEN} --token={GIVEN} {GIVEN}"
    return harness


ECHO = "echo = os.environ['PIPELINE_API_KEY'] + ' ' + os.environ['SIGNING_SECRET'] + ' ' + ' '.join(sys.argv)\n"


@pytest.mark.parametrize(
    "code",
    [
        "print(echo)",
        "print(json.dumps({'jsonrpc': '2.0', 'id': echo, 'result': 1}))",
        "print('{\"' + sys.argv[-1] + '\": 1, \"' + sys.argv[-1] + '\": 2}')",
        "del reply['result']; reply['error'] = {'code': 1, 'message': echo, 'data': [echo]}",
        "del reply['result']; reply['error'] = echo",
        "print(echo, file=sys.stderr); sys.exit(1)",
        "raise RuntimeError(echo)",
        "sys.stderr.write(('x' * 900 + echo + ' ') * 30); sys.stderr.flush(); os._exit(1)",
    ],
)
def test_no_secret_in_a_message(harness_with_secrets: Harness, code: str) -> None:
    failure = harness_with_secrets.failure(ECHO + code)
    said = "\n".join([str(failure), *failure.details])
    assert [secret for secret in SECRETS if secret in said] == []


def test_no_secret_in_an_echoed_result(harness_with_secrets: Harness) -> None:
    said = json.dumps(harness_with_secrets.answer(ECHO + "reply['result'] = {'echo': [echo], echo: 1}"))
    assert [secret for secret in SECRETS if secret in said] == []


def test_the_arguments_themselves_arrive(harness_with_secrets: Harness) -> None:
    assert harness_with_secrets.answer("reply['result'] = [len(word) for word in sys.argv[1:]]") == [9, 12, 20, 12]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python agent.py --flag 'a b'", "python agent.py --flag a b"),
        ("agent --api-key abc --model m", "agent --api-key [redacted] --model m"),
        ("env API_KEY=abc agent --token=def", "env API_KEY=[redacted] agent --token=[redacted]"),
        ("agent --token --verbose", "agent --token --verbose"),
        ("agent --max-tokens-per-call 5", "agent --max-tokens-per-call 5"),
    ],
)
def test_what_is_shown_of_a_command(command: str, shown: str) -> None:
    assert CommandTarget(command=command, cwd=Path(), processes=1).shown == shown


@pytest.mark.parametrize(
    ("command", "said"), [("", "is empty"), ("   ", "is empty"), ("a 'b", "No closing quotation"), ("a\0b", "NUL")]
)
def test_a_command_that_is_none(command: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=said):
        CommandTarget(command=command, cwd=tmp_path, processes=1)


def test_an_infinite_number_in_a_request_is_that_cases_error(harness: Harness) -> None:
    failure = harness.using(lambda target: failure_of(target, VerifyRequest(input=json.loads("1e999"))))
    assert failure.kind == "target_error"
