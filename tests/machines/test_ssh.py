"""Workers of pytest-xdist on another machine: over ssh to this one, with another Python and a copy of the project.

`OTHER_PYTHON` is the path of a Python with the package, its extra `openai` and pytest-xdist; without it, it is a new
virtual environment of this Python.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench
from pytest_packbench.testing import SuiteResults, case, run_folders, write_case
from tests.integration.conftest import without_times
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterator

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
PRIVILEGES = Path("/run/sshd")
KEY = "sk-planted-on-the-worker-0123456789"
SUITE = "storage/benchmarks/mine"
RULES = """
pack: generic
target: pipeline:answer
criteria: [{exact: /word}]
"""
CASES = [f"case_{number}" for number in range(6)]
PIPELINE = """
import os
import signal
from pathlib import Path
from pytest_packbench.model.request import ModelRequest

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def answer(request, context):
    message = {"role": "user", "content": request.input}
    asked = ModelRequest(role="say", system="say it", messages=(message,), output_schema=SCHEMA)
    return context.llm.complete_sync(asked).content


def cut_off(request):
    ends = Path("ends.txt")
    if request.input == "case_3" and ends.exists():
        processes = ends.read_text().split()
        ends.unlink()
        # the server first, if it has to go; then this connection
        for process in [*processes, os.getppid()]:
            os.kill(int(process), signal.SIGKILL)
        signal.pause()
    return {"word": request.input}
"""


@dataclass
class Machines:
    """This machine, and the other one: folders with the same project, and how it is reached."""

    here: Path
    there: Path
    tx: str
    server: int

    def run(self, *options: str, here: dict[str, str] | None = None, suite: str = "mine") -> tuple[int, str]:
        """Run pytest in the folder of this machine; return its exit code and its output."""
        named = [f"--packbench-suite={suite}"] if suite else []
        names = ("PACKBENCH_", "GITHUB_", "OPENAI_", "PYTEST_", "CI")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *named, *options],
            cwd=self.here,
            env={**variables, "COLUMNS": "200", **(here or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    def over_ssh(self, *options: str, **more: Any) -> tuple[int, str]:
        return self.run("--dist=load", f"--tx={self.tx}", *options, **more)

    def results(self) -> SuiteResults:
        return SuiteResults(folder=run_folders(self.here, "mine")[-1])

    def copy(self) -> None:
        """Copy the project to the other machine, as a checkout of the same commit."""
        shutil.copytree(
            self.here, self.there, dirs_exist_ok=True, ignore=shutil.ignore_patterns("reports", "__pycache__")
        )


@contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[Path, int]]:
    """Run a server on loopback for this user; yield the configuration for ssh, and its process id."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nStrictModes no\n"
        f"SetEnv OPENAI_API_KEY={KEY}\n",
        encoding="utf-8",
    )
    config = folder / "ssh_config"
    config.write_text(
        f"Host bench1\nHostName 127.0.0.1\nPort {port}\nUser {getpass.getuser()}\nIdentityFile {folder}/user\n"
        f"IdentitiesOnly yes\nBatchMode yes\nStrictHostKeyChecking no\nUserKnownHostsFile {folder}/known\n"
        "LogLevel ERROR\n",
        encoding="utf-8",
    )
    # what Debian's service creates at its start
    is_missing = os.geteuid() == 0 and not PRIVILEGES.exists()
    if is_missing:
        PRIVILEGES.mkdir()
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([str(SSHD), "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        for _ in range(100):
            if "listening" in (folder / "sshd.log").read_text("utf-8"):
                break
            time.sleep(0.05)
        yield config, server.pid
    finally:
        server.kill()
        server.wait()
        if is_missing:
            PRIVILEGES.rmdir()


@pytest.fixture(scope="session")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another Python with the same packages."""
    if os.environ.get("OTHER_PYTHON"):
        return Path(os.environ["OTHER_PYTHON"])
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [Path(pytest_packbench.__file__).parents[1], Path(pytest.__file__).parents[1]]
    (packages / "same.pth").write_text("\n".join(map(str, ours)), encoding="utf-8")
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a suite, recorded once."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "pipeline.py").write_text(PIPELINE, encoding="utf-8")
    for name in CASES:
        write_case(folder / SUITE, case(name, pack_id="generic", input=name, expected={"word": name}))
    (folder / SUITE / "suite.yaml").write_text(RULES, encoding="utf-8")
    here = Machines(folder, folder, "", 0)
    with FakeServer(say) as model:
        code, output = here.run(*options_of(model, "record"), here={"OPENAI_API_KEY": KEY})
    assert code == 0, output
    shutil.rmtree(folder / "reports")
    return folder


@pytest.fixture
def machines(tmp_path: Path, project: Path, other_python: Path) -> Iterator[Machines]:
    """Two machines, one of which is reached over ssh."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server is not installed")
    shutil.copytree(project, tmp_path / "here")
    with ssh_server(tmp_path) as (config, server):
        there = tmp_path / "srv" / "copy"
        tx = f"ssh=bench1//ssh_config={config}//python={other_python}//chdir={there}"
        found = Machines(tmp_path / "here", there, tx, server)
        found.copy()
        yield found


def say(received: Received) -> Reply:
    text = parse_request(received).text
    return openai_reply(json.dumps({"word": next(name for name in CASES if name in text)}))


def options_of(model: FakeServer, mode: str = "live") -> list[str]:
    """The options of a run on a model."""
    names = {"mode": mode, "backend": "openai", "model": "fake-1", "base-url": f"{model.url}/v1"}
    return [f"--packbench-{name}={value}" for name, value in names.items()]


def content(results: SuiteResults, *also: str) -> Any:
    """The records of a run without what differs from run to run, and from Python to Python."""
    return without_times(results.records, also=("versions", *also))


def test_a_recorded_suite_has_the_same_records(machines: Machines) -> None:
    assert machines.run()[0] == 0
    alone = machines.results()
    code, output = machines.over_ssh()
    assert code == 0, output
    shared = machines.results()
    assert shared.folder != alone.folder
    assert len(shared.records) == len(CASES)
    assert content(shared) == content(alone)
    assert shared.report["packbench"]["totals"] == alone.report["packbench"]["totals"]
    # nothing is left there but what xdist copies
    assert {path.name for path in machines.there.iterdir()} - {"__pycache__"} == {
        *("pytest", "_pytest", "storage", "pipeline.py", "pytest.ini")
    }


def test_a_live_run_takes_the_key_of_the_machine_that_calls(machines: Machines) -> None:
    with FakeServer(say) as model:
        code, output = machines.over_ssh(*options_of(model), here={"OPENAI_API_KEY": "sk-of-the-first-machine"})
    assert code == 0, output
    assert len(model.requests) == len(CASES)
    assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {KEY}"}
    results = machines.results()
    assert {record["packbench"]["mode"] for record in results.records} == {"live"}
    assert results.report["packbench"]["run"]["settings"]["spent"]["calls"] == len(CASES)
    files = run_folders(machines.here, "mine")[-1].iterdir()
    texts = [output, *(path.read_text("utf-8") for path in files)]
    assert not any(KEY in text for text in texts)


@pytest.mark.parametrize("is_gone", [False, True], ids=["the connection", "the machine"])
def test_what_was_done_before_a_loss_is_kept(machines: Machines, *, is_gone: bool) -> None:
    (machines.there / "ends.txt").write_text(f"{machines.server} " if is_gone else "", encoding="utf-8")
    code, output = machines.over_ssh("--packbench-target=pipeline:cut_off")
    results = machines.results()
    lost = {error["test_id"].rpartition(":")[2]: error["kind"] for error in results.errors}
    names = [record["packbench"]["case_id"] for record in results.records]
    assert "Traceback" not in output
    assert lost["case_3"] == "worker_crashed"
    if is_gone:
        assert code == 2, output
        assert (
            "--tx: a worker can't be started: HostNotFound: bench1; check each --tx by hand (ssh HOST PYTHON -V), and "
            "name suites by --packbench-suite, not by a path; the results so far are kept"
        ) in output
        assert names == CASES[:3]
        assert lost == {"case_3": "worker_crashed", "case_4": "interrupted", "case_5": "interrupted"}
    else:
        assert code == 1, output
        assert names == [*CASES[:3], *CASES[4:]]
    assert results.report["packbench"]["status"] == "failed"


def test_a_machine_that_can_not_start_is_named_once(machines: Machines) -> None:
    code, output = machines.run("--dist=load", f"--tx={machines.tx.replace('bench1', 'nobody.invalid')}")
    assert code == 4, output
    assert "--tx: a worker can't be started: HostNotFound: nobody.invalid; check each --tx by hand" in output
    code, output = machines.over_ssh(SUITE)
    assert code == 4, output
    assert "name suites by --packbench-suite, not by a path" in output
    shutil.rmtree(machines.there / SUITE)
    code, output = machines.over_ssh()
    assert code == 4, output
    assert "worker gw0 (bench1) ended before it had collected its cases: pytest.UsageError: --packbench-suite: " in (
        output
    )
    assert "Traceback" not in output


REFUSALS: dict[str, tuple[int, tuple[str, ...]]] = {
    # the exit code, and what is said
    "rules": (4, ("worker gw0 (/", "suite mine differs: on this machine storage/benchmarks/mine, pack generic ")),
    "case": (4, ("worker gw0 (/", "suite mine differs: on this machine ", "; use the same commit and packages")),
    "environment": (4, ("no suite is selected there; name it by --packbench-suite",)),
    "target": (1, ("0 passed, 6 error", "worker_differs", "pipeline.py differs: on this machine ")),
    "recording": (4, ("worker gw0 (/", "can't write into the folders of this machine")),
}


@pytest.mark.parametrize("change", REFUSALS)
def test_a_worker_that_runs_something_else_is_refused(machines: Machines, change: str) -> None:
    there = machines.there
    # a folder on this machine is another machine, too, and is reached faster
    tx = f"--tx=popen//chdir={there}"
    # the line about the target in pytest's header would load it, and it would be compared before any case
    options, variables, suite = ["--dist=load", tx, "-q"], {}, "mine"
    if change == "rules":
        (there / SUITE / "suite.yaml").write_text(RULES + "thresholds: {accept: 0.1}\n", encoding="utf-8")
    elif change == "case":
        path = next((there / SUITE).glob("cases/*/case_1.json"))
        path.write_text(path.read_text("utf-8").replace('"word": "case_1"', '"word": "case_2"'), encoding="utf-8")
    elif change == "environment":
        variables, suite = {"PACKBENCH_SUITE": "mine"}, ""
    elif change == "target":
        (there / "pipeline.py").write_text(PIPELINE + "\n# another commit\n", encoding="utf-8")
        # a worker on this machine would import the one of this folder
        options[1] = f"--tx={machines.tx}"
    else:
        options += ["--packbench-mode=record", "--packbench-backend=openai", "--packbench-model=m"]
        variables = {"OPENAI_API_KEY": "sk-of-the-first-machine"}
    if change == "environment":
        # a worker of execnet on this machine gets the environment, unless its specification changes it
        options[1] += "//env:PACKBENCH_SUITE="
    code, output = machines.run(*options, here=variables, suite=suite)
    expected, texts = REFUSALS[change]
    assert code == expected, output
    assert all(text in output for text in texts), output
    assert "Traceback" not in output
