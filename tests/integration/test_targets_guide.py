"""Every block of the guide to targets is what it says it is: the files answer, the commands name what exists."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import read_config
from pytest_packbench.engine.command_target import CommandTarget
from pytest_packbench.engine.targets import TargetCaller, import_target
from pytest_packbench.model.request import ModelAnswer, VerifyContext, VerifyRequest
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.plugin import SETTINGS
from tests.servers.fake import closed_port

if TYPE_CHECKING:
    from pytest_packbench.model.request import ModelRequest

GUIDE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w./]+\.\w+)`")
PARIS = {"capital": "Paris"}
FRANCE = VerifyRequest(input={"country": "France"})
COMMANDS = [line for kind, text in BLOCK.findall(GUIDE) if kind == "console" for line in text.splitlines()]
TARGETS = [re.search(r"--packbench-target=('[^']+'|\S+)", line) for line in COMMANDS]


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project made of the guide's files."""
    for name in [name for name in os.environ if name.startswith("PACKBENCH_")]:
        monkeypatch.delenv(name)
    pytester.makeini("[pytest]")
    for block in BLOCK.finditer(GUIDE):
        # the paragraph before a file names it
        paragraph = GUIDE[: block.start()].rstrip().rpartition("\n\n")[2]
        named = FILE.search(paragraph)
        if named is None or block[1] == "console":
            continue
        path = pytester.path / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block[2], "utf-8")
    # `python` is this one
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return pytester.path


def given(kind: str) -> list[str]:
    """The targets of the guide's commands that begin with `kind`."""
    targets = [shlex.split(found[1])[0] for found in TARGETS if found]
    return [target for target in targets if target.startswith(kind)]


def test_the_guide_has_its_blocks(folder: Path) -> None:
    names = {path.name for path in folder.rglob("*.*") if path.is_file()}
    assert names - {"tox.ini"} == {
        "suite.yaml", "france.json", "pipeline.py", "service.py", "asking.py", "server.py", "agent.py", "agent.mjs", "agent.sh"
    }  # fmt: skip
    assert given("") == [
        "pipeline:answer",
        "service:service",
        "http://127.0.0.1:8377/verify",
        "cmd:python agent.py",
        "cmd:node agent.mjs",
        "cmd:sh agent.sh",
    ]


def test_the_commands_name_options_that_exist() -> None:
    options = {f"--packbench-{setting.name.replace('_', '-')}" for setting in SETTINGS}
    assert set(re.findall(r"--packbench-[\w-]*\w", GUIDE)) <= options


def test_the_case_and_the_suite_can_be_read(folder: Path) -> None:
    suite = folder / "storage/benchmarks/capitals"
    pack = GenericPack()
    config = read_config(suite, {pack.name: pack.suite_model}, source="suite.yaml")
    case = json.loads((suite / "cases/easy/france.json").read_text("utf-8"))
    assert config.pack == "generic"
    assert case["input"] == FRANCE.input


class Model:
    """Answers as a model would."""

    asked: ModelRequest | None = None

    def __init__(self, answer: ModelAnswer) -> None:
        self.answer = answer

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked = request
        return self.answer

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        return asyncio.run(self.complete(request))


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (ModelAnswer(content=PARIS), PARIS),
        (ModelAnswer(content=None, refusal="I won't"), {"refusal": {"category": "declined"}}),
    ],
)
def test_the_target_that_asks_a_model_gives_its_answer(
    folder: Path, pytester: pytest.Pytester, said: ModelAnswer, result: dict[str, Any]
) -> None:
    pytester.syspathinsert()
    model = Model(said)
    caller = TargetCaller(import_target("asking:answer"))
    assert caller.asks_model
    context = VerifyContext(llm=model, suite="capitals", case_id="france", mode="live")
    try:
        assert caller(FRANCE, context) == result
    finally:
        caller.close()
    assert model.asked is not None
    assert "France" in model.asked.messages[0]["content"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pytest") and "http:" not in line])
def test_a_command_of_the_guide_passes(pytester: pytest.Pytester, line: str) -> None:
    words = shlex.split(line)[1:]
    program = words[-1].partition("=cmd:")[2].partition(" ")[0]
    if program and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    result = pytester.runpytest(*words)
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.parametrize("target", given("cmd:"))
def test_the_programs_answer(target: str, folder: Path) -> None:
    command = target.removeprefix("cmd:")
    if shutil.which(shlex.split(command)[0]) is None:
        pytest.skip(f"{shlex.split(command)[0]} is not installed")

    async def run() -> list[Any]:
        program = CommandTarget(command=command, cwd=folder, processes=1)
        async with aclosing(program):
            return [await program.verify(FRANCE) for _ in range(3)]

    assert asyncio.run(run()) == [PARIS] * 3


def test_the_messages_shown_are_the_messages_sent(folder: Path) -> None:
    (folder / "echo.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    call = json.loads(line)\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': call}))\n"
    )
    shown = [json.loads(text) for kind, text in BLOCK.findall(GUIDE) if kind == "json" and "jsonrpc" in text]

    async def run() -> Any:
        program = CommandTarget(command="python echo.py", cwd=folder, processes=1)
        async with aclosing(program):
            return await program.verify(FRANCE)

    assert asyncio.run(run()) == shown[0]
    assert shown[1]["result"] == PARIS
    assert set(shown[2]["error"]) == {"code", "message"}


def test_the_server_answers(folder: Path, pytester: pytest.Pytester) -> None:
    port = closed_port()
    script = (folder / "server.py").read_text("utf-8")
    (folder / "server.py").write_text(script.replace("8377", str(port)), "utf-8")
    (line,) = [line for line in COMMANDS if "http:" in line]
    with subprocess.Popen([sys.executable, "server.py"], cwd=folder, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            result = pytester.runpytest(*shlex.split(line.replace("8377", str(port)))[1:])
        finally:
            server.kill()
    result.assert_outcomes(passed=1)


def wait_for(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
