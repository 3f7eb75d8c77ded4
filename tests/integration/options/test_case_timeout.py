"""`--packbench-case-timeout`: an attempt is given up after so long, in each mode, and nothing that hangs holds the run."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.time_limit import TimeLimit, TimeLimitReached
from tests.integration.options.conftest import recordings

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

HANGING = """
import asyncio
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

ONE = {"points": 1.0}


def sleep():
    time.sleep(3600)


def compute():
    while True:
        pass


def catch():
    try:
        time.sleep(3600)
    except BaseException:
        return ONE


def wrap():
    try:
        time.sleep(3600)
    except BaseException as error:
        raise ValueError("retried too often") from error


def pool():
    return ThreadPoolExecutor().submit(time.sleep, 3600).result()


def thread():
    started = threading.Thread(target=time.sleep, args=(3600,))
    started.start()
    started.join()


def process():
    # on a thread that is left, it ends by itself
    subprocess.run(["sleep", "30"])


async def wait():
    await asyncio.sleep(3600)


async def block():
    time.sleep(3600)


async def group():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(block())


async def in_thread():
    await asyncio.to_thread(time.sleep, 3600)


def retry():
    while True:
        try:
            time.sleep(0.2)
        except:
            pass


async def retry_async():
    while True:
        try:
            await asyncio.sleep(0.2)
        except:
            pass


def own_alarm():
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(1)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    time.sleep(0.4)
    return ONE


async def stay():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


def fine():
    return ONE


def late():
    # 60 seconds in fixture mode
    return {"points": 1.0 if 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60 else 0.0}


def answer(request):
    return globals()[request.input["text"]]()


@pytest.mark.packbench_cases("toy")
def test_case(packbench_case, packbench_check):
    if packbench_case.input["text"] == "checked":
        packbench_check(ONE)
        time.sleep(3600)
    result = globals()[packbench_case.input["text"]]()
    packbench_check(asyncio.run(result) if asyncio.iscoroutine(result) else result)
"""
HANGS = ("sleep", "compute", "catch", "wrap", "pool", "thread", "process")
ASYNC_HANGS = ("wait", "block", "group", "in_thread", "stay")
OPTIONS = ("--packbench-suite=toy", "--packbench-target=pipeline:answer")
SOON = ("--packbench-case-timeout=0.2", "-o", "packbench_allow_processes=yes")
MESSAGE = (
    "the {} took longer than 0.2 s and was abandoned; correct what it waits for, or raise --packbench-case-timeout"
)


def prepare(project: Project, *names: str) -> None:
    project.prepare(*names)
    project.write("pipeline.py", HANGING)


@pytest.mark.parametrize(
    "options",
    [(), ("-n", "1"), ("--packbench-concurrency=2",), ("--packbench-mode=live",)],
    ids=["plain", "xdist", "concurrent", "live"],
)
def test_whatever_hangs_is_an_error_the_others_run_and_the_process_ends(
    project: Project, options: tuple[str, ...]
) -> None:
    # a thread can't be ended, and takes time from the others
    hangs = [name for name in (*HANGS, *ASYNC_HANGS) if name != "compute" or options in {(), ("-n", "1")}]
    if len(options) == 1:
        # on a thread: what is caught there is lost
        hangs = [name for name in hangs if name not in {"block", "group"}]
    prepare(project, *hangs, "fine")
    started = time.monotonic()
    result = project.pytester.runpytest_subprocess(*OPTIONS, *SOON, *options, timeout=120)
    assert time.monotonic() - started < 60
    result.assert_outcomes(errors=len(hangs), passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    errors = project.lines("errors.jsonl")
    assert [(line["kind"], line["message"]) for line in errors] == [("timeout", MESSAGE.format("target"))] * len(hangs)
    # a function without a model needs no backend
    assert [record["llm_backend"] for record in project.lines("records.jsonl")] == ["unknown"]
    assert "was destroyed but it is pending" not in result.stderr.str() + result.stdout.str()


def test_what_takes_the_alarm_is_an_error_too(project: Project) -> None:
    prepare(project, "own_alarm", "fine")
    result = project.pytester.runpytest_subprocess(*OPTIONS, *SOON, timeout=60)
    result.assert_outcomes(errors=1, passed=1)
    assert [line["message"] for line in project.lines("errors.jsonl")] == [MESSAGE.format("target")]


IMPATIENT = (
    HANGING
    + """

import pytest_packbench.engine.time_limit as t; t._GRACE_S = 0.1
"""
)
STUCK = "*packbench: *::case_01 caught the exception of its time limit and continued for 0.1 s, so the process ends*"


@pytest.mark.parametrize("how", ["retry", "retry_async"])
def test_what_catches_the_exception_and_continues_ends_the_process_and_its_run_is_resumed(
    project: Project, how: str
) -> None:
    prepare(project, "fine", how, "fine")
    project.write("pipeline.py", IMPATIENT)
    result = project.pytester.runpytest_subprocess(*OPTIONS, *SOON, timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stderr.fnmatch_lines([STUCK])
    (folder,) = project.folders()
    assert not (folder / "report.json").exists()
    entries = [json.loads(line) for line in (folder / "journal.jsonl").read_text("utf-8").splitlines()]
    results = [(each["case_id"], each["verdict"], each["message"]) for each in entries if "verdict" in each]
    # the last one did not run
    assert results == [("case_00", "passed", ""), ("case_01", "error", MESSAGE.format("target"))]
    # without the case, it is an error of the run all the same
    rest = project.pytester.runpytest_subprocess(
        *OPTIONS, *SOON, "--packbench-resume=latest", "-k", "case_02", timeout=60
    )
    rest.assert_outcomes(passed=1)
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["timeout"]
    project.write("pipeline.py", IMPATIENT + f"\n\ndef {how}():\n    return ONE\n")
    resumed = project.pytester.runpytest_subprocess(*OPTIONS, *SOON, "--packbench-resume=latest", timeout=60)
    resumed.assert_outcomes(passed=3)
    assert project.folders() == [folder]


@pytest.mark.parametrize("how", ["retry", "retry_async"])
def test_with_workers_only_its_worker_ends(project: Project, how: str) -> None:
    prepare(project, "fine", how, "fine", "fine")
    project.write("pipeline.py", IMPATIENT)
    result = project.pytester.runpytest_subprocess(*OPTIONS, *SOON, "-n", "2", timeout=60)
    result.assert_outcomes(failed=1, passed=3)
    result.stderr.fnmatch_lines([STUCK])
    # not only a worker that crashed: the case says why
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["timeout"]


def test_a_marked_test_that_catches_it_and_continues_ends_the_process(project: Project) -> None:
    prepare(project, "fine", "retry")
    project.write("pipeline.py", IMPATIENT)
    result = project.pytester.runpytest_subprocess("-p", "no:cacheprovider", *SOON, "pipeline.py", timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stderr.fnmatch_lines(["*packbench: pipeline.py::test_case*case_01* caught the exception of its time limit*"])
    (folder,) = project.folders()
    assert "case_00" in (folder / "journal.jsonl").read_text("utf-8")


def test_fixture_mode_has_a_limit_and_shows_where_the_target_was(project: Project) -> None:
    prepare(project, "late", "sleep")
    project.run(*OPTIONS, "-k", "case_00").assert_outcomes(passed=1)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    result = project.run(*OPTIONS, *SOON, "-k", "case_01")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*/pipeline.py:*: in sleep: time.sleep(3600)"])


def test_a_marked_test_has_a_limit(project: Project) -> None:
    prepare(project, *HANGS[:3], "wait", "block", "checked", "fine")
    result = project.pytester.runpytest_subprocess("-p", "no:cacheprovider", *SOON, "pipeline.py", timeout=120)
    # a case that was checked before is an error, too
    result.assert_outcomes(errors=6, passed=1)
    errors = project.lines("errors.jsonl")
    assert [(line["kind"], line["message"]) for line in errors] == [("timeout", MESSAGE.format("test"))] * 6
    assert sorted(project.records()) == ["case_06"]


@pytest.mark.parametrize("waits", ["await asyncio.sleep(3600)", "time.sleep(3600)"])
def test_ctrl_c_interrupts_an_async_target_which_cleans_up(project: Project, waits: str) -> None:
    prepare(project, "interrupted", "fine")
    target = f"""
async def interrupted():
    threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    try:
        {waits}
    finally:
        await asyncio.sleep(0)
        print("cleaned up", file=open("cleaned", "w"))
"""
    project.write("pipeline.py", HANGING + target)
    result = project.pytester.runpytest_subprocess(*OPTIONS, timeout=20)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert (project.root / "cleaned").exists()


def test_a_debugger_ends_the_limit() -> None:
    with TimeLimit(0.05) as limit:
        TimeLimit.remove()
        time.sleep(0.1)
    assert not limit.reached


def test_another_alarm_keeps_its_time() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        # the other one is earlier
        with TimeLimit(3600) as limit:
            time.sleep(0.15)
        assert (limit.reached, rung) == (False, [1])
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeLimitReached), TimeLimit(0.05) as limit:
            time.sleep(3600)
        assert (limit.reached, rung) == (True, [1])
        time.sleep(0.4)
        assert rung == [1, 1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_have_no_limit() -> None:
    limits: list[bool] = []

    def block() -> None:
        with TimeLimit(0.01) as limit:
            time.sleep(0.05)
        limits.append(limit.reached)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert limits == [False]


LOOPS = """
import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai

CLIENT = openai.OpenAI()
REFUSED = threading.Event()


def ask(text):
    message = {"role": "user", "content": text}
    return json.loads(CLIENT.chat.completions.create(model="m", messages=[message]).choices[0].message.content)


def loop():
    while True:
        try:
            ask("points 0.5")
        except openai.BadRequestError:
            REFUSED.set()
        time.sleep(0.05)


def here():
    loop()


def pool():
    ThreadPoolExecutor().submit(loop).result()


def thread():
    started = threading.Thread(target=loop, daemon=True)
    started.start()
    started.join()


async def in_thread():
    await asyncio.to_thread(loop)


def run(request):
    text = request.input["text"]
    if text.startswith("points"):
        # after the first case has been refused a call
        assert REFUSED.wait(60)
        return ask(text)
    result = globals()[text]()
    return asyncio.run(result) if asyncio.iscoroutine(result) else result
"""


@pytest.mark.parametrize(
    ("mode", "how"), [("live", "here"), ("live", "in_thread"), ("record", "pool"), ("record", "thread")]
)
def test_what_goes_on_after_the_limit_pays_no_more_and_disturbs_no_other(
    project: Project, model: Model, monkeypatch: pytest.MonkeyPatch, mode: str, how: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    project.prepare(how, "points 1", "points 0.9")
    project.write("own.py", LOOPS)
    options = ("--packbench-suite=toy", "--packbench-target=own:run", f"--packbench-mode={mode}")
    more = ("--packbench-concurrency=1", "--packbench-case-timeout=5", "--packbench-max-calls=1000")
    result = project.pytester.runpytest_subprocess(*options, *more, timeout=120)
    result.assert_outcomes(errors=1, passed=2)
    (error,) = project.lines("errors.jsonl")
    assert (error["kind"], error["test_id"].rpartition(":")[2]) == ("timeout", "case_00")
    asked = [received.json()["messages"][0]["content"] for received in model.requests]
    assert asked == ["points 0.5"] * (len(asked) - 2) + ["points 1", "points 0.9"]
    assert set(recordings(project)) == ({"case_01.json", "case_02.json"} if mode == "record" else set())
