"""Pointers that git-lfs leaves in the place of files which were not fetched: each reader names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from tests.integration.conftest import CASES

if TYPE_CHECKING:
    from tests.integration.conftest import Project

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{7:064}\nsize 1234\n"
NAMED = "is a pointer of Git LFS, not the file itself; run git lfs pull"
SUITE = "storage/benchmarks/toy"
# the file that is a pointer, more options of pytest, and the exit code
RUNS = {
    f"{CASES}/plain/one.json": ([], 1),
    f"{CASES}/plain/many.jsonl": ([], 1),
    f"{SUITE}/suite.yaml": ([], 4),
    f"{SUITE}/fixtures/case_00.json": (["--packbench-target=pipeline:ask"], 1),
    f"{SUITE}/fixtures/recordings.jsonl": (["--packbench-target=pipeline:ask"], 1),
    f"{SUITE}/fixtures/controls/wrong.json": ([], 1),
    f"{SUITE}/baseline.json": (["--packbench-baseline=committed"], 1),
}
# what no run reads is no error
UNREAD = (
    f"{SUITE}/baseline.json",
    f"{SUITE}/policy_changes.yaml",
    f"{SUITE}/model.bin",
    "reports/benchmarks/toy/latest",
)
COMMANDS = {
    f"validate {CASES}/plain/one.json": f"{CASES}/plain/one.json",
    "report FILE": "records.jsonl",
    "gate FILE": "records.jsonl",
    "compare --baseline FILE --current FILE": "records.jsonl",
    "import csv FILE --suite new": "rows.csv",
    "import csv FILE --suite new --encoding cp1252": "rows.csv",
    "import jsonl FILE --suite new": "rows.jsonl",
    "import harmbench FILE": "behaviors.csv",
}


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
    for file in UNREAD:
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
