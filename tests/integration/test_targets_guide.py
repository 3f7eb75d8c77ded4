"""The guide to targets: its files answer, and its commands pass."""

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
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import at_once
from pytest_packbench.engine.command_target import CommandTarget
from pytest_packbench.engine.targets import TargetCaller, import_target
from pytest_packbench.model.request import ModelAnswer, VerifyContext, VerifyRequest
from tests.doc_blocks import BLOCK, ROOT, blocks, clean_environment
from tests.servers.fake import closed_port

if TYPE_CHECKING:
    from pytest_packbench.model.request import ModelRequest

PAGE = ROOT / "docs" / "targets.md"
GUIDE = PAGE.read_text("utf-8")
PARIS = {"capital": "Paris"}
FRANCE = VerifyRequest(input={"country": "France"})
ECHO = """
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": call}))
"""
COMMANDS = [line for block in blocks(PAGE) if block.kind == "console" for line in block.text.splitlines()]
TARGETS = [shlex.split(target)[0] for target in re.findall(r"--packbench-target=('[^']+'|\S+)", "\n".join(COMMANDS))]


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of the guide's files."""
    clean_environment(monkeypatch)
    pytester.makeini("[pytest]")
    for block in BLOCK.finditer(GUIDE):
        # the paragraph before a file names it
        paragraph = GUIDE[: block.start("kind") - 3].rstrip().rpartition("\n\n")[2]
        file = re.search(r"`([\w./]+\.\w+)`", paragraph)
        if file is not None and block["kind"] != "console":
            path = pytester.path / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], "utf-8")
    # `python` is this one
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return pytester.path


def test_the_guide_has_its_blocks(folder: Path) -> None:
    names = {path.name for path in folder.rglob("*.*") if path.is_file()}
    assert names - {"tox.ini"} == {
        "suite.yaml", "france.json", "pipeline.py", "service.py", "asking.py", "server.py", "agent.py", "agent.mjs", "agent.sh"
    }  # fmt: skip
    assert TARGETS == [
        "pipeline:answer",
        "service:service",
        "http://127.0.0.1:8377/verify",
        "cmd:python agent.py",
        "cmd:node agent.mjs",
        "cmd:sh agent.sh",
    ]


def test_the_target_with_a_model_returns_its_answer(folder: Path, pytester: pytest.Pytester) -> None:
    requests: list[ModelRequest] = []
    answers = [ModelAnswer(content=PARIS), ModelAnswer(content=None, refusal="I won't")]

    class Model:
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return self.complete_sync(request)

        def complete_sync(self, request: ModelRequest) -> ModelAnswer:
            requests.append(request)
            return answers.pop(0)

    pytester.syspathinsert()
    caller = TargetCaller(import_target("asking:answer"))
    assert caller.asks_model
    context = VerifyContext(llm=Model(), suite="capitals", case_id="france", mode="live")
    try:
        assert [at_once(caller.call(FRANCE, context)) for _ in "12"] == [PARIS, {"refusal": {"category": "declined"}}]
    finally:
        caller.close()
    assert "France" in requests[0].messages[0]["content"]


def answers_of(command: str, folder: Path, number: int) -> list[Any]:
    async def run() -> list[Any]:
        async with aclosing(CommandTarget(command=command, cwd=folder, processes=1)) as program:
            return [await program.verify(FRANCE) for _ in range(number)]

    return asyncio.run(run())


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pytest") and "http:" not in line])
def test_a_command_of_the_guide_passes(folder: Path, pytester: pytest.Pytester, line: str) -> None:
    words = shlex.split(line)[1:]
    command = words[-1].partition("=cmd:")[2]
    if command and shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command} is not installed")
    pytester.runpytest(*words).assert_outcomes(passed=1)
    if command:
        assert answers_of(command, folder, 3) == [PARIS] * 3


def test_the_messages_of_the_guide_are_those_that_are_sent(folder: Path) -> None:
    (folder / "echo.py").write_text(ECHO)
    messages = [json.loads(block.text) for block in blocks(PAGE) if block.kind == "json" and "jsonrpc" in block.text]
    assert answers_of("python echo.py", folder, 1) == messages[:1]
    assert messages[1]["result"] == PARIS
    assert set(messages[2]["error"]) == {"code", "message"}


def test_the_server_answers(folder: Path, pytester: pytest.Pytester) -> None:
    port = closed_port()
    script = (folder / "server.py").read_text("utf-8")
    (folder / "server.py").write_text(script.replace("8377", str(port)), "utf-8")
    (line,) = [line for line in COMMANDS if "http:" in line]
    with subprocess.Popen([sys.executable, "server.py"], cwd=folder, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                with suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.01)
            result = pytester.runpytest(*shlex.split(line.replace("8377", str(port)))[1:])
        finally:
            server.kill()
    result.assert_outcomes(passed=1)
