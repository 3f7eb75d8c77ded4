"""Workers of xdist leave what one process leaves, also where one of them dies."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tests.integration.model_server import without_times

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

FILES = ("records.jsonl", "errors.jsonl", "payloads.jsonl")
# workers are other processes than this one, which runs the suite itself the first time
DYING = f"import os; os.getpid() == {os.getpid()} or os._exit(9)"


def run_files(project: Project, name: str) -> dict[str, Any]:
    """What the files of a run say, without what differs from run to run."""
    (folder,) = (path for path in (project.root / name / "toy").iterdir() if path.is_dir())
    found: dict[str, Any] = {file: _lines(folder / file) for file in FILES}
    document = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    run = document.pop("run")
    times = {"started_at", "finished_at"}
    return without_times({**found, **document, "run": {key: one for key, one in run.items() if key not in times}})  # type: ignore[no-any-return]  # it gives what it was given


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_cases(project: Project) -> None:
    for number in range(6):
        project.case(f"case_{number}", points=number / 5, notes={"tags": [f"t{number % 2}"]})
    project.case("hole", word="known_hole")
    project.case("crash", word="crash")
    project.case("skipped", notes={"skip": "not today"})


def test_two_workers_leave_what_one_process_leaves(plain: Project) -> None:
    write_cases(plain)
    codes = [plain.run_toy("--packbench-output=one").ret, plain.run_toy("-n", "2", "--packbench-output=two").ret]
    assert codes == [1, 1]
    one = run_files(plain, "one")
    assert (len(one["records.jsonl"]), len(one["errors.jsonl"])) == (6, 3)
    assert run_files(plain, "two") == one


def test_a_worker_that_dies_costs_its_case_and_no_other(plain: Project) -> None:
    write_cases(plain)
    plain.case("killer", python=DYING)
    plain.run_toy("--packbench-output=one")
    plain.run_toy("-n", "2", "--packbench-output=two")
    one, two = run_files(plain, "one"), run_files(plain, "two")
    dead = "toy:plain:killer"
    assert two["records.jsonl"] == [each for each in one["records.jsonl"] if each["test_id"] != dead]
    others = [each for each in two["errors.jsonl"] if each["test_id"] != dead]
    assert others == one["errors.jsonl"]
    (lost,) = (each for each in two["errors.jsonl"] if each["test_id"] == dead)
    assert (lost["verdict"], lost["kind"]) == ("error", "worker_crashed")
    assert len(two["cases"]) == len(one["cases"])
