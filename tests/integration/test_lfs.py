"""Pointers that git-lfs leaves in the place of files which were not fetched: each reader names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench.commands import main

if TYPE_CHECKING:
    from tests.integration.conftest import Project

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{7:064}\nsize 1234\n"
NAMED = "is a pointer of Git LFS, not the file itself; run git lfs pull"
SUITE = "storage/benchmarks/toy"
DATA = yaml.safe_load((Path(__file__).parent / "data" / "lfs.yaml").read_text("utf-8"))
RUNS, COMMANDS = DATA["runs"], DATA["commands"]


@pytest.mark.parametrize("file", RUNS)
def test_a_run_names_it(project: Project, file: str) -> None:
    project.prepare("points 1")
    project.write(file, POINTER)
    options, code = RUNS[file]
    result = project.run_toy(*options)
    assert result.ret == code
    text = result.stdout.str() + result.stderr.str()
    # recordings are named from the folder of their suite
    assert f"{file.removeprefix(f'{SUITE}/')}: {NAMED}" in text
    assert "Traceback" not in text


def test_what_no_run_reads_may_be_one(project: Project) -> None:
    project.case("one")
    for file in DATA["unread"]:
        project.write(file, POINTER)
    result = project.run_toy()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "LFS" not in result.stdout.str()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_it(project: Project, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = COMMANDS[command]
    project.write(file, POINTER)
    assert main(command.replace("FILE", file).split()) == 2
    captured = capsys.readouterr()
    assert f"{file}: {NAMED}" in captured.out + captured.err
