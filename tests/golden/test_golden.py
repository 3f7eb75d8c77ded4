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
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.golden.project import EXPECTED, Project
from tests.servers.fake import FakeServer
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = yaml.safe_load(Path(__file__).with_name("scenarios.yaml").read_text("utf-8"))
REPOSITORY = Path(__file__).parents[2]
PYDANTIC = tuple(int(part) for part in version("pydantic").split(".")[:2])
NEEDS = {"agentdojo": "agentdojo", "trials_and_live": "openai", "record": "openai"}
LIVE = (
    *("--packbench-backend=openai", "--packbench-model=fake-1"),
    *("--packbench-base-url=http://model.test/v1", "--packbench-concurrency=1"),
)
# pytester forgets what a run imported: what is imported here is imported once
_WARM = [
    import_module(name)
    for extra, name in (
        ("agentdojo", "pytest_packbench.packs.agent_safety.agentdojo.pair"),
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


def write_files(project: Project, files: dict[str, Any]) -> None:
    for name, content in files.items():
        project.write(name, content)


def append(project: Project, texts: dict[str, str]) -> None:
    write_files(project, {name: (project.root / name).read_text("utf-8") + text for name, text in texts.items()})


def replace(project: Project, edit: list[str]) -> None:
    name, old, new = edit
    project.write(name, (project.root / name).read_text("utf-8").replace(old, new))


def set_variables(project: Project, variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        project.env.pop(name, None)
        if value is not None:
            project.env[name] = value.replace("ROOT", str(project.root))


CHANGES: dict[str, Callable[[Project, Any], object]] = {
    "projects": lambda project, names: write_files(
        project, {path: content for name in names for path, content in DATA["projects"][name].items()}
    ),
    "bundled": lambda project, names: project.suite(*names),
    "files": write_files,
    "append": append,
    "replace": replace,
    "copy": lambda project, folder: shutil.copytree(REPOSITORY / folder, project.root, dirs_exist_ok=True),
    "env": set_variables,
}


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
    if name == "schemas" and PYDANTIC < (2, 14):
        pytest.skip("an older pydantic writes some numbers of JSON Schemas in another way")
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
                CHANGES[key](project, value)
            else:
                run(project, key, value, **dict(how))
    project.check()


def test_each_expected_folder_has_its_scenario() -> None:
    assert {path.name for path in EXPECTED.iterdir()} == set(DATA["scenarios"])
