"""The targets of `benchmarks.stress.faults`, copied into its project: they do at one case what the environment names.

`FAULT` is the name of a function below, `FAULT_AT` the number of the case. `CALLED` is the file that notes each call.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import locale
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pytest_packbench.engine.time_limit import Watchdog
from pytest_packbench.model.request import ModelRequest, VerifyContext, VerifyRequest

_FAULT = os.environ.get("FAULT", "")
_AT = int(os.environ.get("FAULT_AT", "5"))
_CALLED = os.environ["CALLED"]
_OUTPUT = os.environ["OUTPUT"]
_held: list[object] = []
if "GRACE_S" in os.environ:
    Watchdog.grace_s = float(os.environ["GRACE_S"])


def _number(request: VerifyRequest) -> int:
    """Return the number of the case, note the call, and do what its fault is."""
    number = int(request.input["text"].rpartition(" ")[2])
    called = os.open(_CALLED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(called, f"{number}\n".encode())
    os.close(called)
    if _FAULT and number == _AT:
        globals()[_FAULT]()
    if number == int(os.environ.get("KILLED_AT", "-1")):
        kill_process()
    return number


def _question(request: VerifyRequest) -> ModelRequest:
    return ModelRequest(role="ask", system="", messages=({"role": "user", "content": request.input["text"]},))


def plain(request: VerifyRequest) -> dict[str, Any]:
    """Answer without a model."""
    _number(request)
    return {"answer": "ok"}


def slow(request: VerifyRequest) -> dict[str, Any]:
    """Answer without a model, after a while."""
    time.sleep(0.05)
    return plain(request)


async def ask(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Ask the model on the event loop."""
    _number(request)
    return {"answer": (await context.llm.complete(_question(request))).content}


def ask_sync(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Ask the model on a thread."""
    _number(request)
    return {"answer": context.llm.complete_sync(_question(request)).content}


async def guarded(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Ask the model, and let the guards look at the case."""
    number = _number(request)
    answer = (await context.llm.complete(_question(request))).content
    for guard in context.guards:
        await asyncio.to_thread(guard.check, number)
    return {"answer": answer}


async def streamed(request: VerifyRequest) -> dict[str, Any]:
    """Ask the model by a client of its own, with a stream, as the gateway sees it."""
    import openai

    _number(request)
    pieces = []
    async with openai.AsyncOpenAI(max_retries=3) as client:
        message: Any = {"role": "user", "content": request.input["text"]}
        stream = await client.chat.completions.create(model="fake-1", messages=[message], stream=True)
        async for event in stream:
            pieces += [choice.delta.content or "" for choice in event.choices]
    return {"answer": "".join(pieces)}


def hang_holding_the_interpreter() -> None:
    """Never return from C code, and let no other thread run."""
    max(itertools.repeat(1))


def hang_in_c() -> None:
    """Wait forever in C code, which does not see signals."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def end_process() -> None:
    """End the process as if all were well."""
    os._exit(0)


def end_process_on_thread() -> None:
    """End the process from a thread, as if all were well."""
    thread = threading.Thread(target=end_process)
    thread.start()
    thread.join()


def replace_process() -> None:
    """Replace the process by a program that succeeds."""
    os.execv(shutil.which("true") or "/bin/true", ["true"])  # noqa: S606 - this is the fault


def kill_process() -> None:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave_by_system_exit() -> None:
    """Raise `SystemExit` as if all were well."""
    sys.exit(0)


def skip() -> None:
    """Raise what pytest takes for a skipped test."""
    import pytest

    pytest.skip("no reason")


def close_standard_output() -> None:
    """Close the descriptors of both streams."""
    os.close(1)
    os.close(2)


def fill_memory() -> None:
    """Take all the memory that there is."""
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    pieces = []
    while True:
        pieces.append(bytearray(2**24))


def open_files() -> None:
    """Take all the files that there are, and keep them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        while True:
            _held.append(os.dup(0))
    except OSError:
        pass


def fork_and_return() -> None:
    """Return in two processes."""
    os.fork()


def leave_child() -> None:
    """Leave a child behind."""
    if os.fork() == 0:
        time.sleep(10)
        os._exit(0)


def leave_threads() -> None:
    """Leave threads behind that never end."""
    for _ in range(20):
        threading.Thread(target=threading.Event().wait).start()


def change_folder() -> None:
    """Change to a folder that is gone."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


def clear_environment() -> None:
    """Remove all variables."""
    os.environ.clear()


def change_locale() -> None:
    """Change to a language with other numbers, where there is one."""
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:
            continue
        return


def lower_recursion_limit() -> None:
    """Lower the recursion limit as far as possible."""
    for limit in range(20, 3000):
        try:
            sys.setrecursionlimit(limit)
        except RecursionError:
            continue
        return


def ignore_signals() -> None:
    """Ignore all signals; only the main thread can."""
    for number in {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except ValueError:
            return


def replace_streams() -> None:
    """Leave no streams."""
    sys.stdout = sys.stderr = None


def step_clock_back() -> None:
    """Step the clock two hours back, for everything that asks Python for the time."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() - 7200
    time.time_ns = lambda: nanoseconds() - 7200 * 10**9


if "CLOCK_BACK" in os.environ:
    step_clock_back()


def break_clock() -> None:
    """Set the clock to no date at all."""
    time.time, time.time_ns = lambda: -1e12, lambda: -(10**21)


def remove_output() -> None:
    """Remove the folder of reports."""
    shutil.rmtree(_OUTPUT)


def limit_files() -> None:
    """Let no file grow, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["FILE_SIZE"]),) * 2)


def hang() -> None:
    """Wait forever."""
    time.sleep(3600)
