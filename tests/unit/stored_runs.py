"""Runs written to folders as sessions leave them, and what merging makes of them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from pytest_packbench.api import load_suite
from pytest_packbench.atomic import write_atomic
from pytest_packbench.cli import main
from pytest_packbench.packs.registry import builtin
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.runs.folder import SUMMARY
from pytest_packbench.runs.lines import open_jsonl
from pytest_packbench.runs.writer import RunWriter, sort_results
from tests.unit.run_builders import any_case_result, conclusion_of, document, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

RULES = """pack: generic
gates:
  - {metric: pass_rate, min: 0.5, by: case_type}
  - {metric: mean_score, min: 0.3}
"""


def suite(root: Path, case_ids: Sequence[str] = ()) -> Path:
    """Write a suite `toy` of the generic pack with empty cases, and return the root of suites."""
    folder = root / "storage" / "toy"
    (folder / "cases").mkdir(parents=True)
    (folder / "suite.yaml").write_text(RULES, encoding="utf-8")
    for case_id in case_ids:
        (folder / "cases" / f"{case_id}.json").write_text("{}", encoding="utf-8")
    return folder.parent


def run_of(root: Path, **changes: Any) -> Run:
    """A run of that suite."""
    found = load_suite(root / "toy")
    pack = builtin()["generic"]
    facts: dict[str, Any] = {"pack": pack.name, "pack_version": pack.version, "suite_sha256": found.sha256}
    return run(**{**facts, **changes})


def recorded_result(entry: CaseResult, run_id: str) -> CaseResult:
    """An entry with the record and the result that a session would have kept."""
    if not entry.counted:
        return entry
    record = {
        "schema_version": 1,
        "test_suite": entry.suite,
        "test_id": entry.test_id,
        "attack_category": entry.case_type,
        "agent_decision": "comply_safe",
        "expected": "comply_safe",
        "passed": entry.verdict == "passed",
        "hook_decisions": [],
        "wall_clock_ms": entry.duration_ms,
        "llm_backend": entry.llm_backend,
        "llm_model": "m-1",
        "run_id": run_id,
        "timestamp": entry.timestamp,
        "packbench": {
            "version": 1,
            "score": entry.score,
            "threshold": entry.threshold,
            "verdict": entry.verdict,
            "terms": [],
            "case_id": entry.case_id,
            "trial": entry.trial,
        },
    }
    return replace(entry, record=record, payload={"said": f"{entry.case_id} \ud800 ü"})


def write(output: Path, of: Run, entries: Sequence[CaseResult], root: Path) -> Path:
    """Write a run as a session does, and return its folder."""
    config = load_suite(root / "toy").config
    kept = sort_results(recorded_result(entry, of.run_id) for entry in entries)
    gates, levels = config.all_gates(), builtin()["generic"].depths or None
    writer = RunWriter(output, of.suite, of.run_id)
    writer.write_results(kept)
    writer.write_page(SUMMARY, summary_markdown(conclusion_of(of, kept, *gates, levels=levels)))
    # with spaces, as another program may write it
    told = document(of, kept, *gates, levels=levels)
    report = {"exitcode": 0, "tests": [{"nodeid": "x"}], "packbench": told}
    write_atomic(writer.folder / "report.json", json.dumps(report, ensure_ascii=False) + "\n")
    (output / ".gitignore").unlink()
    return writer.folder


def write_jsonl(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write objects in JSON Lines as a run does."""
    with open_jsonl(path) as write_line:
        for line in lines:
            write_line(line)


def merge(output: Path, root: Path, folders: Sequence[Path], *options: str) -> tuple[int, Path | None, str]:
    """Merge runs; return the exit code, the folder of the merged run and the output."""
    before = set((output / "toy").glob("*/"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        arguments = [*map(str, folders), "--root", str(root), "--output", str(output), *options]
        code = main(["merge", *arguments])
    made = set((output / "toy").glob("*/")) - before
    return code, made.pop() if made else None, said.getvalue()


def content(folder: Path) -> dict[str, Any]:
    """What the files of a run say, but for what differs between two runs of the same."""
    run_id = folder.name
    lines = {
        path.name: [
            {**json.loads(line), "run_id": json.loads(line)["run_id"] == run_id}
            for line in path.read_text("utf-8").splitlines()
        ]
        for path in folder.glob("*.jsonl")
    }
    report = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    told = {name: value for name, value in report.items() if name != "run"}
    facts = {name: value for name, value in report["run"].items() if name not in {"run_id", "settings"}}
    page = (folder / "summary.md").read_text("utf-8").replace(run_id, "RUN")
    return {**lines, "report": told, "run": facts, "page": page}


@st.composite
def any_results(draw: st.DrawFn, *, trials: bool = False) -> list[CaseResult]:
    """The entries of a run: of each case one, or a few trials."""
    found = []
    for case_id in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)):
        for trial in range(draw(st.integers(1, 3)) if trials else 1):
            names: dict[str, Any] = {"case_id": case_id, "test_id": f"toy:plain:{case_id}", "file": f"{case_id}.json"}
            found.append(replace(draw(any_case_result()), **names, nodeid=f"{case_id}.json::{case_id}", trial=trial))
    return found
