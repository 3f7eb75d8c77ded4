"""Commands on stored runs: which run is meant, history, rescoring, validation, and messages that a terminal can show."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from pytest_packbench.runs.journal import Journal
from pytest_packbench.testing import case, write_case
from tests.unit.run_builders import case_result, data, results_of, run
from tests.unit.stored_runs import error, lines_of, read_jsonl, run_of, suite, write, write_jsonl

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


def test_a_run_is_named_by_suite_and_id_or_by_path_and_every_command_knows_the_latest(
    toy: Path, packbench: Run
) -> None:
    outputs = {packbench("report", name) for name in (TOY, str(toy / COMPLETE), str(toy / "latest"), "toy/latest")}
    assert [code for code, _ in outputs] == [0]
    for command in COMMANDS.values():
        code, output = packbench(*(word.replace("{}", "toy/latest") for word in command))
        assert code == 0, output


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
    for format_ in ("md", "json"):
        code, output = packbench("history", "toy", "--output", str(tmp_path), "--format", format_)
        assert code == 0
        text = output.replace(str(tmp_path), "TMP").replace(run_of(root).suite_sha256[:12], "RULES")
        expected.check(json.dumps(json.loads(text), indent=1) + "\n" if format_ == "json" else text, format_)
    assert packbench("history", "toy", "--output", str(tmp_path), "--limit", "2")[1].count("\n| 01R") == 2
    for number in (0, 2):
        (tmp_path / "toy" / f"01R{number}" / "report.json").write_text('{"packbench": {"version": true}}', "utf-8")
    code, output = packbench("history", "toy", "--output", str(tmp_path), "--limit", "3")
    assert code == 2
    assert output.startswith(f"packbench: no run under {tmp_path / 'toy'} can be read; the latest: 01R3: ")


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


def content(described: dict[str, Any]) -> bytes:
    """Return the content that `data/validated_files.yaml` describes."""
    objects = [error(**changes) for changes in described.get("errors", ())]
    objects += [{**case("a", pack_id="generic"), **changes} for changes in described.get("cases", ())]
    present = [{key: value for key, value in each.items() if value != "MISSING"} for each in objects]
    lines = "".join(f"{json.dumps(each)}\n" for each in present)
    text: str = described.get("text", "")
    return lines_of(described.get("records", ())) + lines.encode() + text.encode()


def journal_of(folder: Path, *case_ids: str, head: bool = False) -> bytes:
    path = folder / "written.jsonl"
    with Journal(path, run if head else None) as journal:
        for case_id in case_ids:
            journal.append(case_result(case_id))
    content = path.read_bytes()
    path.unlink()
    return content


def test_each_file_is_named_with_its_kind_or_its_first_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packbench: Run, expected: ExpectedTexts
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []

    def validate(title: str, path: str) -> None:
        code, output = packbench("validate", path)
        assert ("NOT VALID" in output) is (code == 2)
        texts.append(f"{title}: {code}\n  {output}")

    journal = journal_of(tmp_path, "a", "b")
    journals = {
        "head of a journal": journal_of(tmp_path, head=True),
        "journal": journal_of(tmp_path, "a", head=True),
        "journal of another version": journal_of(tmp_path, head=True).replace(b'l":1', b'l":true'),
        "journal cut short": journal[:-9],
        "journal cut short in the middle": journal[:-9] + b"\n",
    }
    files = {
        title: (described["file"], content(described)) for title, described in data("validated_files.yaml").items()
    }
    for title, (name, text) in {**files, **{key: ("journal.jsonl", text) for key, text in journals.items()}}.items():
        (tmp_path / name).write_bytes(text)
        validate(title, name)
    root = suite(tmp_path / "project")
    trials = [case_result("a", trial=number) for number in range(3)]
    validate("report", str(write(tmp_path, run_of(root), trials, root).relative_to(tmp_path) / "report.json"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "lost.json").symlink_to(tmp_path / "nowhere")
    validate("link to no file", "links")
    expected.check("".join(texts))
