"""The prose linter finds what it should find, where it is, and lets plain sentences pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import prose
from tests.doc_blocks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

AVOIDED = [
    "This answer is the the best.",
    "The case is passed from a threshold on.",
    "It leaves a JSONL record a case.",
    "Free when it is not used.",
    "A case whose target asks no model of ours.",
    "Nobody is named to answer.",
    "What then: run it again.",
    "The id 't1' stands already at line 3.",
    "This row makes no case.",
    "Please mend the source.",
    "The change never comes from a model's mood.",
    "The run can be gone on with.",
    "Two attempts were begun in vain.",
    "A change of 0.03 is seen four times out of five.",
    "The house has one rim.",
    "See design 4.",
]
PLAIN = [
    "A case passes at or above its threshold.",
    "The run writes one JSONL record per case.",
    "There is no overhead when the plugin is unused.",
    "The id `t1 stands` is a duplicate.",
    "I stands for one.",
]


@pytest.mark.parametrize("text", AVOIDED)
def test_a_phrase_to_avoid_is_found(text: str) -> None:
    assert list(prose.problems(prose.of_page(text, "page.md")))


def test_plain_sentences_pass() -> None:
    assert list(prose.problems(prose.of_page("\n\n".join(PLAIN), "page.md"))) == []


def test_a_page_is_split_into_sentences_with_their_lines() -> None:
    text = (
        "# A title of words\n\nFirst `a b` one. Second\none here:\n\n```text\nnot this one\n```\n\n| cell one | b |\n"
    )
    assert [(one.line, one.text) for one in prose.of_page(text, "page.md")] == [
        (1, "A title of words"),
        (3, "Second one here:"),
        (10, "cell one"),
    ]


def test_a_suite_is_split_into_comments_and_description() -> None:
    text = "pack: generic\ndescription: some of them\n\n# the rules of it\ncriteria:\n  - {exact: /a}  # exact match\n"
    assert [(one.line, one.text) for one in prose.of_yaml(text, "suite.yaml")] == [
        (2, "some of them"),
        (4, "the rules of it"),
        (6, "exact match"),
    ]


def test_a_module_is_split_into_messages_and_public_docstrings() -> None:
    source = '''"""Private module text."""
def shown():
    """Give the answer."""
def _hidden():
    """Give the secret."""
    raise ValueError(f"the case {name + '}'} is gone")
PATTERN = r"one two\\d"
'''

    def texts(*, docstrings: bool = False) -> list[tuple[int, str]]:
        module = prose.of_module(source, "pytest_packbench/x.py", frozenset({"shown"}), docstrings=docstrings)
        return sorted((one.line, one.text) for one in module)

    assert texts() == [(3, "Give the answer."), (6, "the case {name + ''} is gone")]
    assert len(texts(docstrings=True)) == 4


def test_a_docstring_opens_with_a_plain_verb() -> None:
    module = prose.of_module('def shown():\n    """Give the answer."""\n', "hooks.py", frozenset({"shown"}))
    (problem,) = prose.problems(module)
    assert str(problem).startswith('hooks.py:2: "Give" opens a docstring')


def test_the_command_lists_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, code in {"It tells nothing.": 1, "It reports nothing.": 0}.items():
        (tmp_path / "README.md").write_text(f"\n{text}\n", encoding="utf-8")
        assert prose.main([], root=tmp_path) == code
        assert ("README.md:2: " in capsys.readouterr().out) is bool(code)
        assert prose.main(["--list"], root=tmp_path) == 0
        assert capsys.readouterr().out == f"README.md:2: {text}\n"


def test_modules_without_prose_exist() -> None:
    assert [file for file in prose.OTHER_TEXTS if not (ROOT / file).is_file()] == []
