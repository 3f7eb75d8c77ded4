"""Commands on stored runs: which run is meant, history, rescoring, and messages that a terminal can show."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from pytest_packbench.runs.journal import Journal
from pytest_packbench.testing import case, write_case
from tests.unit.run_builders import case_result, results_of
from tests.unit.stored_runs import read_jsonl, run_of, suite, write, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ExpectedTexts

    Run = Callable[..., tuple[int, str]]

COMPLETE = "01K00000000000000000000000"
GONE = "01K00000000000000000000001"
TOY = f"toy/{COMPLETE}"
COMMANDS = {
    "report": ["report", "{}"],
    "gate": ["gate", "{}", "--root", "storage"],
    "compare": ["compare", "--baseline", "{}", "--current", "{}", "--out", "-"],
    "rescore": ["rescore", "{}", "--root", "storage"],
    "merge": ["merge", "{}", "--root", "storage"],
}


@pytest.fixture
def packbench(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command; returns its exit code and its output."""

    def call(*arguments: str) -> tuple[int, str]:
        code = main([*arguments])
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one complete run of the suite `toy`; returns the folder of its runs."""
    monkeypatch.chdir(tmp_path)
    root = suite(tmp_path, "a")
    folder = write(tmp_path / "reports" / "benchmarks", run_of(root, run_id=COMPLETE), [case_result("a")], root)
    (folder.parent / "latest").write_text(f"{COMPLETE}\n", encoding="utf-8")
    return folder.parent


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_knows_the_latest_run(toy: Path, packbench: Run, command: list[str]) -> None:
    code, output = packbench(*(word.replace("{}", "toy/latest") for word in command))
    assert code == 0, output


def test_a_run_is_named_by_suite_and_id_or_by_path(toy: Path, packbench: Run) -> None:
    outputs = {packbench("report", name) for name in (TOY, str(toy / COMPLETE), str(toy / "latest"), "toy/latest")}
    assert len(outputs) == 1
    assert next(iter(outputs))[0] == 0


LATEST = {
    "empty": b"",
    "blank": b"  \n",
    "a path": b"../../..",
    "an absolute path": b"/etc",
    "not UTF-8": b"\xff\xfe",
    "too short": b"01A\n",
    "no such run": f"{GONE}\n".encode(),
    "none": None,
}


def test_a_run_that_is_not_there_is_one_line(toy: Path, packbench: Run, expected: ExpectedTexts) -> None:
    lines = []

    def refuse(title: str, *arguments: str) -> None:
        code, output = packbench(*arguments)
        *before, last = output.splitlines()
        # what can't be rescored is named first
        assert (code, [line for line in before if not line.startswith("packbench: not rescored: ")]) == (2, [])
        lines.append(f"{title}: {last}\n")

    for title, content in LATEST.items():
        (toy / "latest").unlink(missing_ok=True)
        if content is not None:
            (toy / "latest").write_bytes(content)
        refuse(f"latest is {title}", "report", "toy/latest")
    for name in ("gate", "rescore", "merge"):
        refuse(f"no latest to {name}", *(word.replace("{}", "toy/latest") for word in COMMANDS[name]))
    (toy.parents[2] / "file").touch()
    for out in ("nowhere/x.md", "storage"):
        refuse(f"rescore into {out}", "rescore", TOY, "--root", "storage", "--out", out)
    for out in ("file/x.md", "storage"):
        refuse(f"compare into {out}", "compare", "--baseline", TOY, "--current", TOY, "--out", out)
    (toy / COMPLETE / "report.json").unlink()
    refuse("no report", "gate", TOY, "--root", "storage")
    expected.check("".join(lines))
    records = f"reports/benchmarks/{TOY}/records.jsonl"
    assert "completeness: unknown, because records alone" in packbench("gate", records, "--root", "storage")[1]


def test_no_command_prints_what_a_terminal_obeys(toy: Path, packbench: Run) -> None:
    root = toy.parents[2] / "storage"
    (root / "toy" / "cases" / "a.json").write_text(json.dumps({"k\x1b[31m\u202e": 1}), encoding="utf-8")
    for command in (
        ["validate", str(root / "toy" / "cases")],
        ["lint", "toy", "--root", "storage"],
        ["rescore", TOY, "--root", "storage"],
        ["gate", "no\x1b[31m\u202e"],
    ):
        _, output = packbench(*command)
        assert (r"\x1b[31m\u202e" in output, "\x1b" in output) == (True, False), command
    forged = case_result("a", "failed", case_type="x\n  pass_rate (case_type y) 9 / 9 = 100.0 %: PASS\x1b[2K")
    write(toy.parent, run_of(root, run_id="01B"), [forged], root)
    _, output = packbench("gate", "toy/01B", "--root", "storage")
    (line,) = [line for line in output.splitlines() if "case_type" in line]
    assert line.endswith("FAIL")
    assert r"\x1b[2K" in line


def test_an_interrupt_is_no_traceback(packbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_packbench.commands.schema.run", interrupt)
    assert packbench("schema", "case") == (2, "packbench: interrupted\n")


def test_history_lists_damaged_and_unfinished_runs_beside_the_others(
    tmp_path: Path, packbench: Run, expected: ExpectedTexts
) -> None:
    root = suite(tmp_path, "a")
    results = [case_result("a", trial=number) for number in range(3)]
    for number in range(3):
        write(tmp_path, run_of(root, run_id=f"01R{number}"), [*results, case_result("b", "error")], root)
    (tmp_path / "toy" / "01R1" / "report.json").write_text("{", encoding="utf-8")
    (tmp_path / "toy" / "01R3").mkdir()
    with Journal(tmp_path / "toy" / "01R3" / "journal.jsonl") as journal:
        journal.append(case_result("a"))
    (tmp_path / "toy" / ".01R9.tmp").mkdir()
    (tmp_path / "toy" / ".01R9.tmp" / "records.jsonl").touch()
    for format_ in ("md", "json"):
        code, output = packbench("history", "toy", "--output", str(tmp_path), "--format", format_)
        assert code == 0
        text = output.replace(str(tmp_path), "TMP").replace(run_of(root).suite_sha256[:12], "RULES")
        expected.check(json.dumps(json.loads(text), indent=1) + "\n" if format_ == "json" else text, format_)
    assert packbench("history", "toy", "--output", str(tmp_path), "--limit", "2")[1].count("\n| 01R") == 2
    for number in (0, 2):
        (tmp_path / "toy" / f"01R{number}" / "report.json").write_text('{"packbench": {"version": true}}', "utf-8")
    code, output = packbench("history", "toy", "--output", str(tmp_path), "--limit", "3")
    assert (code, output.startswith(f"packbench: no run under {tmp_path / 'toy'} can be read; the latest: 01R3: ")) == (
        2,
        True,
    )


RESCORED: dict[str, tuple[list[dict[str, Any]], list[str | None]]] = {
    "each trial by its own result": ([*({"id": "a", "trial": n} for n in range(3)), {"id": "b"}], ["a", "x", "a", "b"]),
    "removed and unreadable cases": (
        [{"id": "gone"}, {"id": "damaged"}, {"id": "c", "verdict": "error", "kind": "timeout"}],
        ["gone", "damaged"],
    ),
    # the stored result contains a surrogate, which no record can contain
    "a result that breaks the pack": ([{"id": "a"}, {"id": "b"}], ["a", None]),
    "other rules": ([{"id": "a"}], ["a"]),
}


def test_rescoring_scores_each_stored_result_by_the_current_rules(
    tmp_path: Path, packbench: Run, expected: ExpectedTexts
) -> None:
    texts = []
    for name, (rows, answers) in RESCORED.items():
        # without the digest of another case
        results, folder = [replace(each, case_sha256=None) for each in results_of(rows)], tmp_path / name
        root = suite(folder)
        for result in results:
            fields: dict[str, Any] = {"input": {"q": 1}, "expected": {"said": result.case_id}}
            write_case(root / "toy", case(result.case_id, pack_id="generic", **fields))
        stored = write(folder / "out", run_of(root), results, root)
        payloads = zip(read_jsonl(stored / "payloads.jsonl"), answers, strict=True)
        write_jsonl(
            stored / "payloads.jsonl",
            [line if answer is None else {**line, "result": {"said": answer}} for line, answer in payloads],
        )
        if name == "removed and unreadable cases":
            (root / "toy" / "cases" / "plain" / "gone.json").unlink()
            (root / "toy" / "cases" / "plain" / "damaged.json").write_text("{", encoding="utf-8")
        if name == "other rules":
            suite(folder, thresholds={"accept": 0.5})
        code, output = packbench("rescore", str(stored), "--root", str(root), "--fail-on", "new_failures>0")
        text = re.sub(r"'[0-9a-f]{12}'", "RULES", output.replace(str(folder), "TMP"))
        texts.append(f"==== {name}: {code}\n{re.sub(r'[0-9T:.-]{23}Z', 'TIME', text)}")
    expected.check("\n".join(texts), "md")


def test_a_condition_on_changes_fails_without_a_case_in_common(tmp_path: Path, packbench: Run) -> None:
    root = suite(tmp_path, "ab")
    before, after = (
        write(tmp_path / "out", run_of(root, run_id=f"01{name}"), [case_result(name)], root) for name in "ab"
    )
    runs = ["--baseline", str(before), "--current", str(after), "--out", "-"]
    code, output = packbench("compare", *runs, "--fail-on", "regressed>0")
    assert code == 1
    assert "packbench: regressed>0: no value: FAIL" in output
    assert packbench("compare", *runs, "--fail-on", "removed>1")[0] == 0
