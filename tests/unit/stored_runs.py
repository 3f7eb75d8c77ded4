"""Records, their lines and files, and runs of a suite `toy` written to folders as sessions leave them."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.records import Records
from pytest_packbench.api import load_suite
from pytest_packbench.cases.load import case_sha256
from pytest_packbench.commands import main
from pytest_packbench.files import compact_json, replace_atomic, write_atomic
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.run import SUMMARY
from pytest_packbench.packs.registry import builtin
from pytest_packbench.reports.story import summary_markdown
from pytest_packbench.runs.folder import read_records
from pytest_packbench.runs.writing import RunWriter, sort_results
from pytest_packbench.testing import write_suite
from tests.unit.run_builders import changed, conclusion_of, data, document, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run


FIELDS: dict[str, Any] = data("usual.yaml")["record"]
RUN = FIELDS["run_id"]


def record(**changes: Any) -> EvalRecord:
    return EvalRecord(**{**FIELDS, **changes})


def line(**changes: Any) -> bytes:
    return record(**changes).to_json_line().encode() + b"\n"


def lines_of(rows: Iterable[dict[str, Any]]) -> bytes:
    """Return the lines of the records that `data/reports.yaml` describes."""
    content: list[bytes] = []
    number = 0
    for row in rows:
        changes = dict(row)
        number, count = changes.pop("from", number), changes.pop("n", 1)
        name = changes.get("test_suite", "agentdojo")
        content += [line(**{"test_id": f"{name}:{n}", **changes}) for n in range(number, number + count)]
        number += count
    return b"".join(content)


def error(verdict: str = "error", **changes: Any) -> dict[str, Any]:
    return {**data("usual.yaml")["error"], "verdict": verdict, **changes}


def file_of(folder: Path, content: bytes, name: str = "in.jsonl") -> str:
    """Write a file of lines and return its name."""
    path = folder / name
    path.write_bytes(content)
    return str(path)


def folder_of(folder: Path, content: bytes, *errors: dict[str, Any]) -> str:
    """Write the folder of a run, with error lines if there are any, and return its name."""
    folder.mkdir(parents=True)
    file_of(folder, content, "records.jsonl")
    if errors:
        file_of(folder, b"".join(json.dumps(error).encode() + b"\n" for error in errors), "errors.jsonl")
    return str(folder)


def records_of(records: Iterable[EvalRecord]) -> Records:
    counted = Records()
    for each in records:
        counted.add(each)
    return counted


def read(path: str, **options: Any) -> list[EvalRecord]:
    return list(read_records(path, **options))


EMPTY_CASE = case_sha256({})
"""The hash of the cases that `suite` writes."""
GATES = [{"metric": "pass_rate", "min": 0.5, "by": "case_type"}, {"metric": "mean_score", "min": 0.3}]


def suite(root: Path, case_ids: Sequence[str] = (), **rules: Any) -> Path:
    """Write a suite `toy` of the generic pack with empty cases, and return the root of suites."""
    folder = write_suite(root / "storage" / "toy", (), pack="generic", rules={"gates": GATES, **rules})
    for case_id in case_ids:
        (folder / "cases" / f"{case_id}.json").write_text("{}", encoding="utf-8")
    return folder.parent


def run_of(root: Path, **changes: Any) -> Run:
    pack = builtin()["generic"]
    facts = {"pack": pack.name, "pack_version": pack.version, "suite_sha256": load_suite(root / "toy").sha256}
    return run(**{**facts, **changes})


def recorded_result(result: Result, run_id: str) -> Result:
    """Return a result with the record and the payload that a session would have stored."""
    if not result.score.counted:
        return result
    names = ("score", "threshold", "verdict", "case_id", "trial")
    same = {name: result.row()[name] for name in ("test_id", "llm_backend", "timestamp")}
    recorded = record(
        **{**same, "test_suite": result.case.suite, "attack_category": result.case.case_type, "run_id": run_id},
        **dict.fromkeys(("agent_decision", "expected"), "comply_safe"),
        passed=result.score.verdict == "passed",
        wall_clock_ms=result.attempt.duration_ms,
        packbench={"version": 1, "terms": [], **{name: result.row()[name] for name in names}},
    )
    return changed(result, record=recorded.as_json(), payload={"said": f"{result.case.case_id} \ud800 ü"})


def write(output: Path, of: Run, results: Sequence[Result], root: Path) -> Path:
    """Write a run as a session does, and return its folder."""
    gates = load_suite(root / "toy").config.all_gates()
    recorded = sort_results(recorded_result(result, of.run_id) for result in results)
    writer = RunWriter(output, of.suite, of.run_id)
    writer.write_results(recorded)
    writer.write_page(SUMMARY, summary_markdown(conclusion_of(of, recorded, *gates)))
    # with spaces, as another program may write it
    packbench = document(of, recorded, *gates)
    report = {"exitcode": 0, "tests": [{"nodeid": "x"}], "packbench": packbench}
    write_atomic(writer.folder / "report.json", json.dumps(report, ensure_ascii=False) + "\n")
    (writer.folder / ".rows.tmp").unlink()
    (output / ".gitignore").unlink()
    return writer.folder


def write_jsonl(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    with replace_atomic(path) as file:
        for line in lines:
            file.write(compact_json(line) + b"\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def merge(output: Path, root: Path, folders: Sequence[Path], *options: str) -> tuple[int, Path | None, str]:
    """Merge runs; return the exit code, the folder of the merged run and the output."""
    before = set((output / "toy").glob("*/"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main(["merge", *map(str, folders), "--root", str(root), "--output", str(output), *options])
    merged = set((output / "toy").glob("*/")) - before
    return code, merged.pop() if merged else None, printed.getvalue()


def content(folder: Path) -> dict[str, Any]:
    """Return the content of a run's files, except for what differs between two runs of the same."""
    run_id = folder.name
    lines = {
        path.name: [{**line, "run_id": line["run_id"] == run_id} for line in read_jsonl(path)]
        for path in folder.glob("*.jsonl")
    }
    report = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    metadata = {name: value for name, value in report.pop("run").items() if name not in {"run_id", "settings"}}
    page = (folder / "summary.md").read_text("utf-8").replace(run_id, "RUN")
    return {**lines, "report": report, "run": metadata, "page": page}
