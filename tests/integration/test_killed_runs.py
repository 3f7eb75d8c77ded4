"""A run that is killed at any moment loses at most what was in flight, and is resumed to the records of a whole run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration import killing

if TYPE_CHECKING:
    from tests.integration.conftest import Project

SEED = 20260521
CASES = 6
PLAIN = 40
KILLED = -9
PLUGINS = ("-pno:cacheprovider", "-ppytest_packbench.plugin", "-ppytest_jsonreport.plugin", "-pxdist.plugin")
FOLDER = Path(killing.__file__).parent
CONFTEST = """
import sys
sys.path.insert(0, {folder!r})
import killing
killing.arm()
"""


def kill_moments(chance: random.Random, cases: int) -> str:
    """Draw a moment among those that a run of so many cases has."""
    line = f"line:{chance.randint(1, cases + 1)}:{chance.choice((0, 1, 500, 999, 1000))}"
    # a run opens, renames and removes some 16 files
    return chance.choice((f"call:{chance.randint(1, cases)}", line, f"file:{chance.randint(1, 16)}"))


def prepare(project: Project, cases: int) -> None:
    conftest = project.root / "conftest.py"
    text = CONFTEST.format(folder=str(FOLDER)) + conftest.read_text("utf-8")
    conftest.write_text(text, encoding="utf-8")
    for number in range(cases):
        points = 0.5 if number == 1 else 1.0
        project.case(f"case_{number:02}", points=points, python="import killing; killing.called(context.case_id)")


def run_sessions(project: Project, chains: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    """Run a plan; give what each session did."""
    plan = json.dumps({"chains": chains, "options": [*options, "--packbench-gate=suite", *PLUGINS]})
    command = [sys.executable, str(FOLDER / "killing.py"), plan]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    # looking for plugins takes longer than a run
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    left = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, check=False)
    assert left.returncode == 0, left.stderr
    return [json.loads(line) for line in left.stdout.splitlines()]


def records(folder: Path) -> list[dict[str, Any]]:
    """The records of the only run under a folder, without what differs from run to run."""
    (run,) = (path for path in (folder / "toy").iterdir() if path.is_dir())
    assert {path.name for path in run.iterdir()} == {"report.json", "records.jsonl", "payloads.jsonl", "summary.md"}
    rows = json.loads((run / "report.json").read_text("utf-8"))["packbench"]["cases"]
    found = [json.loads(line) for line in (run / "records.jsonl").read_text("utf-8").splitlines()]
    assert [row["test_id"] for row in rows] == [record["test_id"] for record in found]
    assert {record["run_id"] for record in found} == {run.name}
    for record in found:
        for name in ("timestamp", "wall_clock_ms", "run_id"):
            del record[name]
    return found


def check(found: list[dict[str, Any]]) -> None:
    """See that each session was killed or went well, and asked for nothing that was done."""
    for each in found:
        assert each["ended"] in ({0, KILLED} if each["moment"] else {0}), each["log"]
        assert not set(each["done"]) & set(each["calls"]), each
        assert len(each["calls"]) == len(set(each["calls"])), each


def test_a_run_killed_at_any_moment_is_resumed(plain: Project) -> None:
    prepare(plain, CASES)
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    chains = [{"output": f"out{number}", "moments": [kill_moments(chance, CASES)]} for number in range(PLAIN)]
    found = run_sessions(plain, [{"output": "out_whole", "moments": []}, *chains])
    check(found)
    # a moment past the run's end kills nothing, and then nothing is left to do
    assert sum(each["ended"] == KILLED for each in found) >= PLAIN * 3 // 4
    expected = records(plain.root / "out_whole")
    assert len(expected) == CASES
    for chain in chains:
        assert records(plain.root / str(chain["output"])) == expected, chain


def test_a_run_by_two_workers_killed_again_and_again_is_resumed(plain: Project) -> None:
    cases = 40
    prepare(plain, cases)
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    drawn = [chance.choice(("call:1", "call:2", "line:2:500", "line:3:1000", "file:4")) for _ in range(10)]
    found = run_sessions(plain, [{"output": "out_killed", "moments": drawn}], "-n", "2")
    check(found)
    assert [each["ended"] for each in found].count(KILLED) >= 8
    whole = run_sessions(plain, [{"output": "out_whole", "moments": []}])
    check(whole)
    expected = records(plain.root / "out_whole")
    assert len(expected) == cases
    assert records(plain.root / "out_killed") == expected
