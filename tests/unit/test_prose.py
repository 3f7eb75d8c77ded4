"""The prose linter finds what it should find, where it is, and lets plain sentences pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import prose
from tests.doc_blocks import ROOT
from tests.unit.run_builders import data

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SENTENCES = data("prose.yaml")


def test_a_phrase_to_avoid_is_found_and_plain_sentences_pass() -> None:
    def has_problems(text: str) -> bool:
        return bool(list(prose.problems(prose.of_page(text, "page.md"))))

    assert [text for text in SENTENCES["avoided"] if not has_problems(text)] == []
    assert not has_problems("\n\n".join(SENTENCES["plain"]))


def test_texts_are_split_into_sentences_with_their_lines() -> None:
    rows = SENTENCES["split"]
    module = prose.of_module(rows["module"]["text"], "pytest_packbench/x.py", frozenset({"shown"}))
    sentences = {
        "page": [*prose.of_page(rows["page"]["text"], "page.md")],
        "suite": [*prose.of_yaml(rows["suite"]["text"], "suite.yaml")],
        "module": sorted(module),
    }
    for name, row in rows.items():
        assert [[each.line, each.text] for each in sentences[name]] == row["sentences"], name
    (problem,) = prose.problems(sentences["module"][:1])
    assert str(problem).startswith('pytest_packbench/x.py:3: "Give" opens a docstring')


def test_the_command_lists_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [file for file in prose.OTHER_TEXTS if not (ROOT / file).is_file()] == []
    for text, code in {"It tells nothing.": 1, "It reports nothing.": 0}.items():
        (tmp_path / "README.md").write_text(f"\n{text}\n", encoding="utf-8")
        assert prose.main([], root=tmp_path) == code
        assert ("README.md:2: " in capsys.readouterr().out) is bool(code)
        assert prose.main(["--list"], root=tmp_path) == 0
        assert capsys.readouterr().out == f"README.md:2: {text}\n"
