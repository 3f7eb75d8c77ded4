"""`packbench validate`: each file is named with its kind, or with the place of its first problem."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import main
from pytest_packbench.runs.journal import Journal
from pytest_packbench.testing import case
from tests.unit.record_lines import error, line
from tests.unit.run_builders import case_result, run
from tests.unit.stored_runs import run_of, suite, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.conftest import ExpectedTexts

CASE = case("a", pack_id="generic")


def lines(*objects: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in objects).encode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in error().items() if key != name}


def journal_of(folder: Path, *case_ids: str, head: bool = False) -> bytes:
    path = folder / "written.jsonl"
    with Journal(path, run if head else None) as journal:
        for case_id in case_ids:
            journal.append(case_result(case_id))
    content = path.read_bytes()
    path.unlink()
    return content


RESULT = b'{"run_id":"r","test_id":"t","case_id":"c","trial":%s,"result":1}\n'
FILES: dict[str, tuple[str, bytes]] = {
    "empty records": ("records.jsonl", b"\n"),
    "empty errors": ("errors.jsonl", b"\n"),
    "empty payloads": ("payloads.jsonl", b"\n"),
    "empty journal": ("journal.jsonl", b"\n"),
    "empty file of no known name": ("in.jsonl", b""),
    "errors": ("errors.jsonl", lines(error(), {**error(), "trial": 2})),
    "error without a message": ("errors.jsonl", lines(error(), {**error(), "message": None})),
    "error with a number for its kind": ("errors.jsonl", lines(error(), {**error(), "kind": 1})),
    "error with an unknown verdict": ("errors.jsonl", lines(error(), {**error(), "verdict": "great"})),
    "error with a string for its trial": ("errors.jsonl", lines(error(), {**error(), "trial": "1"})),
    "error without a file": ("errors.jsonl", lines(error(), without("file"))),
    "error without a run": ("errors.jsonl", lines(error(), without("run_id"))),
    "records": ("in.jsonl", line() + line(test_id="agentdojo:2")),
    "record with a bad trial": ("in.jsonl", line(packbench={"trial": "x"})),
    "record with a bad version": ("in.jsonl", line() + line(packbench={"version": True})),
    "record with another schema": ("in.jsonl", b'{"schema_version":true}'),
    "payload": ("in.jsonl", RESULT % b"0"),
    "payload without a case": ("in.jsonl", line() + b'{"run_id":"r","test_id":"t","result":1}\n'),
    "payload with a negative trial": ("in.jsonl", RESULT % b"-1"),
    "entry of a journal without a result": ("in.jsonl", b'{"suite":"s","nodeid":"n"}'),
    "array": ("in.jsonl", b"[]"),
    "object": ("in.jsonl", b"{}"),
    "cases": ("many.jsonl", lines(CASE, {**CASE, "id": "b"})),
    "case of no difficulty": ("many.jsonl", lines(CASE, {**CASE, "difficulty": "odd"})),
    "case of a mistyped pack": ("many.jsonl", lines(CASE, {**CASE, "pack_id": "generik"})),
    "case of no pack": ("many.jsonl", lines(CASE, {**CASE, "pack_id": []})),
    "duplicate case": ("many.jsonl", lines(CASE) + b"\n" + lines(CASE)),
    "case with more behind it": ("many.jsonl", lines(CASE) + b"\n" + lines(CASE)[:-1] + b" x\n"),
    "case cut short": ("many.jsonl", lines(CASE) + b'\n{"id": "b\n'),
    "no case": ("many.jsonl", lines(CASE) + b"\nno json\n"),
    "rules": ("suite.yaml", b"pack: ["),
    "case in a file": ("a.json", json.dumps(CASE).encode()),
    "no JSON": ("a.json", b"{"),
}


def test_each_file_is_named_with_its_kind_or_its_first_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []

    def validate(title: str, path: str) -> None:
        code = main(["validate", path])
        out, err = capsys.readouterr()
        assert ("NOT VALID" in out) is (code == 2)
        texts.append(f"{title}: {code}\n  {out}{err}")

    journal = journal_of(tmp_path, "a", "b")
    journals = {
        "head of a journal": journal_of(tmp_path, head=True),
        "journal": journal_of(tmp_path, "a", head=True),
        "journal of another version": journal_of(tmp_path, head=True).replace(b'l":1', b'l":true'),
        "journal cut short": journal[:-9],
        "journal cut short in the middle": journal[:-9] + b"\n",
    }
    for title, (name, content) in {**FILES, **{key: ("journal.jsonl", text) for key, text in journals.items()}}.items():
        (tmp_path / name).write_bytes(content)
        validate(title, name)
    root = suite(tmp_path / "project")
    trials = [case_result("a", trial=number) for number in range(3)]
    validate("report", str(write(tmp_path, run_of(root), trials, root).relative_to(tmp_path) / "report.json"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "lost.json").symlink_to(tmp_path / "nowhere")
    validate("link to no file", "links")
    expected.check("".join(texts))
