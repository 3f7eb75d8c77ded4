"""`packbench validate`: each file is named with its kind, or with the place of its first problem."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import main
from pytest_packbench.runs.journal import Journal
from pytest_packbench.testing import case
from tests.unit.run_builders import case_result, data, run
from tests.unit.stored_runs import error, lines_of, run_of, suite, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.conftest import ExpectedTexts


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
