"""Fixture mode: no network, no child process, and one recording per case; each violation fails the case whose it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cassettes import authored_cassette

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

CONNECT = "with socket.socket() as s: s.connect(('127.0.0.1', 9))"
DATAGRAM = "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'x', ('127.0.0.1', 9))"
REFUSED = {
    "connect": (f"import socket\n{CONNECT}", "connect to ('127.0.0.1', 9)"),
    "sendto": (f"import socket\n{DATAGRAM}", "sendto"),
    "urlopen": ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')", "look-up of '127.0.0.1'"),
    "caught": (f"import socket\ntry:\n    {CONNECT}\nexcept Exception: pass", "connect to"),
    "subprocess": ("import subprocess; subprocess.run(['true'])", "child process (subprocess.Popen"),
    "system": ("import os; os.system('true')", "child process (os.system"),
}
ASK = """
from pytest_packbench.model.request import ModelRequest
for role in request.input["roles"]:
    print(context.llm.complete_sync(ModelRequest(role=role, system="s", messages=())).content)
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_leaves_the_process_is_an_error_of_its_case(project: Project) -> None:
    for name, (python, _) in REFUSED.items():
        project.case(name, python=python)
    local = "import asyncio, socket; asyncio.run(asyncio.sleep(0)); [s.close() for s in socket.socketpair()]"
    project.case("local", python=local)
    # the guard works inside of cases only
    own = project.pytester.makepyfile(
        test_own="import socket\ndef test_own():\n    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.close()"
    )
    project.run_toy(str(own)).assert_outcomes(passed=2, errors=len(REFUSED))
    errors = project.errors()
    for name, (_, action) in REFUSED.items():
        assert errors[name]["kind"] == "offline"
        assert f"case {name}: fixture mode is offline, but the target tried: {action}" in errors[name]["message"]
    allowed = project.run_toy("-o", "packbench_allow_processes=yes", "-k", "subprocess or system")
    allowed.assert_outcomes(passed=2, deselected=len(REFUSED) - 1)


def write_case_with_cassette(
    project: Project, name: str, roles: list[str], exchanges: list[dict[str, Any]], **changes: Any
) -> None:
    case = json.loads(project.case(name, python=changes.pop("python", ASK), roles=roles).read_text("utf-8"))
    cassette = json.dumps(authored_cassette(name, case["input"], exchanges, pack="toy", **changes))
    project.write(f"storage/benchmarks/toy/fixtures/{name}.json", cassette)


def test_a_cassette_that_does_not_fit_is_an_error_in_one_line(project: Project, expected: ExpectedTexts) -> None:
    one, two = {"role": "one", "answer": "1"}, {"role": "two", "answer": "2"}
    ignoring = "\n".join(["try:", *(f"    {line}" for line in ASK.strip().splitlines()), "except Exception: pass"])
    project.case("missing", python=ASK, roles=["one"])
    write_case_with_cassette(project, "one_call_more", ["one", "two"], [one])
    write_case_with_cassette(project, "one_call_fewer", ["one"], [one, two])
    write_case_with_cassette(project, "another_role", ["two"], [one])
    write_case_with_cassette(project, "ignored", ["two"], [one], python=ignoring)
    write_case_with_cassette(project, "changed_input", ["one"], [one], input_sha256="0" * 64)
    write_case_with_cassette(project, "another_case", ["one"], [one], case_id="other")
    write_case_with_cassette(project, "another_version", ["one"], [one], cassette_version=3)
    write_case_with_cassette(project, "unknown_key", ["one"], [one], exchange=[])
    project.run_toy().assert_outcomes(errors=9)
    expected.check("".join(f"{name}: {one['kind']}: {one['message']}\n" for name, one in project.errors().items()))


def test_a_changed_prompt_is_an_error_or_on_request_a_remark(project: Project) -> None:
    exchanges = [{"role": "one", "answer": 1, "request_sha256": "0" * 64}]
    write_case_with_cassette(project, "asks", ["one"], exchanges, origin="recorded")
    result = project.run_toy("-o", "packbench_stale=warn")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*stale*"])
    assert project.lines("records.jsonl")[0]["packbench"]["stale"] is True
    project.run_toy().assert_outcomes(errors=1)


TARGET = """
import asyncio, atexit, contextvars, multiprocessing, socket, threading, time, weakref
import kept

TASKS = []

class Client:
    pass

class ClientThatCloses:
    def __del__(self):
        with socket.socket() as opened:
            opened.connect(("127.0.0.1", 9))

def connect():
    try:
        with socket.socket() as opened:
            opened.connect(("127.0.0.1", 9))
    except Exception:
        pass

def later():
    time.sleep(0.2)
    connect()

def leave_thread():
    threading.Thread(target=later, name="poller", daemon=True).start()

async def call(request):
    await asyncio.sleep(0)
    await globals()[request.input["call"]]()
    return {"points": 1.0}

async def connects():
    connect()

async def waits():
    # both: other tasks and other threads may run meanwhile
    await asyncio.sleep(0.3)
    time.sleep(0.3)

async def leaves_a_thread():
    leave_thread()

async def leaves_a_task():
    async def poll():
        await asyncio.sleep(0.2)
        connect()
    loop = asyncio.get_running_loop()
    TASKS.append(loop.create_task(poll(), name="poller", context=contextvars.Context()))

async def leaves_a_callback():
    atexit.register(connect)
    atexit.register(later)
    atexit.unregister(later)

async def leaves_a_finalizer():
    kept.LEFT.append(Client())
    weakref.finalize(kept.LEFT[-1], connect)
    weakref.finalize(kept.LEFT[-1], later).detach()

async def leaves_a_destructor():
    kept.LEFT.append(ClientThatCloses())

async def spawns():
    multiprocessing.get_context("spawn").Process(target=print).start()

async def hides_in_a_context():
    contextvars.Context().run(connect)

async def hides_in_a_thread():
    thread = threading.Thread(target=connect, name="packbench-loop")
    thread.start()
    thread.join()
"""


def prepare(project: Project, **calls: str) -> None:
    project.write("kept.py", "LEFT = []\n")
    project.write("mine.py", TARGET)
    # the guard fails the run, not the gate
    gate = "gates:\n  - metric: completeness\n    min: 0.1\n"
    project.suite(text=f"pack: toy\ndescription: a toy\ntarget: mine:call\n{gate}")
    project.extend_conftest("\ndel pytest_packbench_target\n")
    for name, call in calls.items():
        project.case(name, call=call)


CONCURRENCY = pytest.mark.parametrize(("both", "concurrency"), [(0, 1), (0, 4), (1, 4)], indirect=["both"])


@CONCURRENCY
def test_each_async_case_that_hides_its_access_is_an_error(both: Project, concurrency: int) -> None:
    hidden = {"context": "hides_in_a_context", "thread": "hides_in_a_thread", "process": "spawns"}
    prepare(both, **{f"case_{number}": "connects" for number in range(6)}, **hidden, quiet="waits")
    both.run_toy(f"--packbench-concurrency={concurrency}").assert_outcomes(errors=9, passed=1)
    assert {
        name: error["message"].startswith(f"case {name}: fixture mode is offline, but the target tried: connect to")
        for name, error in both.errors().items()
        if name != "process"
    } == dict.fromkeys((*(f"case_{number}" for number in range(6)), "context", "thread"), True)
    process = both.errors()["process"]["message"]
    assert "the target tried: child process (fork_exec: [" in process
    assert "packbench_allow_processes = yes" in process


@CONCURRENCY
def test_what_a_case_leaves_running_is_its_own_error(both: Project, concurrency: int) -> None:
    quiet = dict.fromkeys(("b", "c", "d", "e"), "waits")
    prepare(both, a_task="leaves_a_task", a_thread="leaves_a_thread", **quiet)
    result = both.run_toy(f"--packbench-concurrency={concurrency}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # where cases wait for their turn, pytest had passed it
    assert result.parseoutcomes()["passed"] >= len(quiet)
    for what in ("task", "thread"):
        error = both.errors()[f"a_{what}"]
        culprit = f'the {what} "poller", left running by case a_{what},'
        assert f"case a_{what}: fixture mode is offline, but {culprit} tried: connect to" in error["message"]
        assert error["kind"] == "offline"
        assert f"left running by case a_{what}" in result.stdout.str()
    assert sorted(both.records()) == sorted(quiet)


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("leaves_a_callback", 'the atexit callback "connect", left running by case a,'),
        ("leaves_a_finalizer", 'the finalizer "connect", left running by case a,'),
        ("leaves_a_destructor", "an object that was left until the interpreter's exit"),
    ],
)
def test_what_runs_at_exit_is_refused_and_told(project: Project, call: str, left: str) -> None:
    prepare(project, a=call)
    result = project.pytester.runpytest_subprocess("--packbench-suite=toy")
    result.assert_outcomes(passed=1)
    case = "case a: " if "case a" in left else ""
    told = f"packbench: {case}fixture mode is offline, but {left} tried: connect to ('127.0.0.1', 9)"
    assert [line.startswith(told) for line in result.errlines if line.startswith("packbench")] == [True]
