"""The project whose files are damaged: a suite with two complete runs, pipelines, and data to import."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

SUITE = "toy"
IDS = ("a", "b", "c", "d")
REPORTS = "reports/benchmarks"
SHARDS = ("shards/1", "shards/2")
ANSWER: dict[str, Any] = {
    "currency": "EUR",
    "sum": 119.0,
    "items": [{"name": "chair"}, {"name": "table"}],
    "summary": "Two things",
}
EXPECTED: dict[str, Any] = {"currency": "EUR", "total": 119.0, "goods": ["chair", "table"], "summary": "Two things"}
RULES = """pack: generic
description: invoices, read
target: pipeline:say
thresholds:
  accept: 0.9
  by_type: {hard: 0.95}
criteria:
  - {exact: /currency, hard_fail: true}
  - {numeric: /sum, name: total, expected: /total, absolute: 0.01, weight: 2}
  - {set: "$.items[*].name", expected: /goods}
  - {exact: /summary}
forbidden: [As an AI language model]
gates:
  - {metric: pass_rate, min: 0.9}
  - {metric: mean_score, min: 0.9}
"""
_HOME: Final = Path(__file__).resolve().parents[2]
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
_SETTLED: Final = "2026-03-01T12:00:0{}.000Z"
_DURATION: Final = re.compile(r'("(?:created|duration|duration_ms|wall_clock_ms)"): ?[\d.e-]+')
PIPELINE = '''"""Targets of a project whose files are damaged."""

import json
import os
import signal
from pathlib import Path

from pytest_packbench.model.request import ModelRequest

HOME = Path(__file__).parent


def say(request):
    if os.environ.get("FUZZ_EXIT") == request.input["text"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return json.loads((HOME / "answer.json").read_text())


def read(request):
    raw = (HOME / "answers" / request.input["text"]).read_bytes()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "surrogateescape")


async def ask(request, context):
    call = ModelRequest(role="ask", system="", messages=({"role": "user", "content": request.input["text"]},))
    answer = (await context.llm.complete(call)).content
    try:
        return json.loads(answer) if isinstance(answer, str) else answer
    except (ValueError, RecursionError):
        return answer
'''


ANSWER_SH = """export LC_ALL=C
while IFS= read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  name=$(printf %s "$line" | grep -o 'n[0-9][0-9][0-9][0-9][0-9][0-9]' | head -n 1)
  sed "s/\\"id\\": 7777/\\"id\\": $id/" "answers/$name"
done
"""


def case_of(case_id: str, **changes: Any) -> dict[str, Any]:
    """Return a valid case of the suite."""
    return {
        "id": case_id,
        "pack_id": "generic",
        "case_type": "plain",
        "difficulty": "easy",
        "input": {"text": case_id},
        "expected": EXPECTED,
        "notes": {"tags": ["one", "two"], "source": "authored"},
        **changes,
    }


def cassette_of(case_id: str, address: str = "pipeline:ask") -> dict[str, Any]:
    """Return a valid recording of a case, with one call of a model."""
    from pytest_packbench.files import canonical_sha256

    return {
        "cassette_version": 2,
        "case_id": case_id,
        "input_sha256": canonical_sha256({"text": case_id}),
        "origin": "authored",
        "llm_backend": "stub",
        "llm_model": "authored",
        "conditions": {"target": {"kind": "python", "address": address}, "pack": {"name": "generic"}, "tools": []},
        "exchanges": [{"role": "ask", "answer": ANSWER, "usage": {"tokens_input": 3, "tokens_output": 5}}],
    }


def write(path: Path, content: object) -> Path:
    """Write a file of JSON, text or bytes, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
    path.write_bytes(json.dumps(content, indent=1).encode() if data is None else data)
    return path


def make_project(folder: Path) -> Path:
    """Write the project into a folder, and run its suite twice.

    Raises:
        RuntimeError: the valid suite does not pass.
    """
    write(folder / "pipeline.py", PIPELINE)
    write(folder / "answer.json", ANSWER)
    write(folder / "answer.sh", ANSWER_SH)
    suite = folder / "storage" / "benchmarks" / SUITE
    write(suite / "suite.yaml", RULES)
    for case_id in IDS:
        write(suite / "cases" / "plain" / f"{case_id}.json", case_of(case_id))
    waits = case_of("waits", notes={"skip": "waits for a decision", "source": "authored"})
    write(suite / "cases" / "plain" / "waits.json", waits)
    control = {
        "id": "wrong_sum",
        "case": "a",
        "description": "another sum",
        "expected": {"verdict": "failed", "score": 0.6},
    }
    write(suite / "fixtures" / "controls" / "wrong_sum.json", {**control, "payload": {**ANSWER, "sum": 1.0}})
    _run(folder)
    _run(folder)
    for shard in SHARDS:
        _run(folder, f"--packbench-shard={shard[-1]}/2", f"--packbench-output={shard}")
    # a run that was killed has a journal
    _run(folder, "--packbench-output=killed", stops_at="c")
    _settle(folder)
    newest = runs_of(folder / REPORTS)[-1].relative_to(folder)
    command = [sys.executable, "-m", "pytest_packbench", "baseline", "set", str(newest), "--reason", "the first"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    baseline = suite / "baseline.json"
    baseline.write_text(_TIMESTAMP.sub(_SETTLED.format(9), baseline.read_text("utf-8")), "utf-8")
    return folder


def _settle(folder: Path) -> None:
    """Give runs fixed ids, times, durations and folders, so that a seed damages the same bytes each time."""
    runs = [run for part in (REPORTS, *SHARDS, "killed") for run in runs_of(folder / part)]
    settled = {run.name: f"01M8460000000000000000000{number}" for number, run in enumerate(runs)}
    ids = re.compile("|".join(settled))
    for number, run in enumerate(runs):
        for file in (*run.iterdir(), run.parent / "latest"):
            if not file.exists():
                continue
            text = ids.sub(lambda found: settled[found[0]], file.read_text("utf-8"))
            text = text.replace(str(folder), "/project").replace(str(_HOME), "/package")
            text = _DURATION.sub(r"\1:1", _TIMESTAMP.sub(_SETTLED.format(number), text))
            file.write_text(text, "utf-8")
        run.rename(run.with_name(settled[run.name]))


def _run(folder: Path, *options: str, stops_at: str = "") -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", f"--packbench-suite={SUITE}", *options]
    environment = {**os.environ, "FUZZ_EXIT": stops_at}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != (-signal.SIGKILL if stops_at else 0):
        raise RuntimeError(f"the valid suite does not pass: {done.stdout}{done.stderr}")


def runs_of(folder: Path) -> list[Path]:
    """Return the folders of the runs in a folder of reports, the older first."""
    return sorted(path for path in (folder / SUITE).iterdir() if path.is_dir())
