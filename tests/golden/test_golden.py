"""What commands print, how they exit, and what they write.

Each scenario of `scenarios.yaml` is a sequence of steps in a project of its own, compared with `expected/<scenario>`.
After an intended change: `PACKBENCH_UPDATE_GOLDEN=1 pytest tests/golden`, and the difference in git is part of the
review. A step either changes the project (`projects`, `bundled`, `files`, `append`, `replace`, `copy`, `env`) or is a
command under its name. In commands, RUN1 and RUN2 are the folders of the runs of the desk, ROOT is the project, and LIVE
stands for the options of a model's server.
"""

from __future__ import annotations

import shlex
import shutil
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden.project import EXPECTED, Project
from tests.servers.fake import FakeServer
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

DATA = yaml.safe_load(Path(__file__).with_name("scenarios.yaml").read_text("utf-8"))
REPOSITORY = Path(__file__).parents[2]
NEEDS = {"agentdojo": "agentdojo", "trials_and_live": "openai", "record": "openai"}
LIVE = (
    *("--packbench-backend=openai", "--packbench-model=fake-1"),
    *("--packbench-base-url=http://model.test/v1", "--packbench-concurrency=1"),
)
CHANGES = {"projects", "bundled", "files", "append", "replace", "copy", "env"}
# pytester forgets what a run imported: what is imported here is imported once
_WARM = [
    import_module(name)
    for extra, name in (
        ("agentdojo", "pytest_packbench.packs.agent_safety.agentdojo.agents"),
        ("openai", "openai.resources.chat.completions"),
        ("openai", "anyio._backends._asyncio"),
    )
    if find_spec(extra) is not None
]


def answer(request: ProviderRequest) -> object:
    """A model that sorts messages; it declines some, and breaks on some."""
    if "decline" in request.text:
        return openai_reply(None, refusal="I won't.", model=request.model)
    if "cut" in request.text:
        return openai_reply('{"queue": "bil', finish_reason="length", model=request.model)
    return {"queue": "billing" if "refund" in request.text else "general"}


def change(project: Project, key: str, value: Any) -> None:
    """Change the project as a step says."""
    if key == "files":
        for name, content in value.items():
            project.write(name, content)
    elif key == "projects":
        for name in value:
            change(project, "files", DATA["projects"][name])
    elif key == "append":
        change(
            project, "files", {name: (project.root / name).read_text("utf-8") + text for name, text in value.items()}
        )
    elif key == "replace":
        name, old, new = value
        project.write(name, (project.root / name).read_text("utf-8").replace(old, new))
    elif key == "bundled":
        project.suite(*value)
    elif key == "copy":
        shutil.copytree(REPOSITORY / value, project.root, dirs_exist_ok=True)
    else:
        variables = project.env | value
        project.env = {name: text.replace("ROOT", str(project.root)) for name, text in variables.items() if text}


def run(project: Project, step: str, command: str, *, stdin: str = "", **how: Any) -> None:
    """Run the command of a step."""
    for number, folder in enumerate(project.runs("desk"), 1):
        command, stdin = (text.replace(f"RUN{number}", str(folder)) for text in (command, stdin))
    program, *arguments = shlex.split(command)
    arguments = [part for argument in arguments for part in (LIVE if argument == "LIVE" else (argument,))]
    text = (project.root / stdin).read_text("utf-8") if stdin else ""
    project.step(step, program, arguments, stdin=text, **how)


@pytest.mark.parametrize("name", DATA["scenarios"])
def test_scenario(name: str, pytester: pytest.Pytester) -> None:
    if find_spec(NEEDS.get(name, "pytest")) is None:
        pytest.skip(f"the extra {NEEDS[name]} is not installed")
    project = Project(name, pytester)
    if name == "record":
        project.normal.expect_cassettes()
    live = NEEDS.get(name) == "openai"
    with FakeServer(answer_with(answer)) if live else nullcontext() as server:
        if server is not None:
            # what is recorded names the address, and the server's port is another in each run
            project.env |= {"OPENAI_API_KEY": "sk-planted-0123456789", "HTTP_PROXY": server.url}
        for step in DATA["scenarios"][name]:
            (key, value), *how = step.items()
            if key in CHANGES:
                change(project, key, value)
            else:
                run(project, key, value, **dict(how))
    project.check()


def test_each_expected_folder_has_its_scenario() -> None:
    assert {path.name for path in EXPECTED.iterdir()} == set(DATA["scenarios"])
