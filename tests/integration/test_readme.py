"""The README quotes today's output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_packbench.cli import main
from tests.doc_blocks import ROOT, blocks, clean_environment, line_matcher, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from tests.conftest import Copy

FAILURE, RUN = (block.text.splitlines() for block in blocks(ROOT / "README.md") if block.kind == "text")
(CASE,) = (json.loads(block.text) for block in blocks(ROOT / "README.md") if block.kind == "json")


def first_missing_line(quoted: Iterable[str], output: Iterable[str]) -> list[str]:
    """Return the first quoted line that the output does not contain, in this order."""
    rest = iter(map(normalize, output))
    return [line for line in quoted if not any(map(line_matcher(line), rest))][:1]


def test_the_run_is_quoted_correctly(copy: Copy) -> None:
    command, *lines = RUN
    assert command == "$ pytest --packbench-suite=tariff"
    assert first_missing_line([line for line in lines if line != "..."], copy.run().outlines) == []


def test_the_failure_is_quoted_correctly(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch)
    assert main(["init", "support"]) == 0
    command, _, title, *lines = FAILURE
    assert command == "$ pytest --packbench-suite=support"
    output = pytester.runpytest("--packbench-suite=support").outlines
    start = output.index(lines[0])
    end = lines.index("...")
    assert normalize(output[start - 1]) == normalize(title)
    assert output[start : start + end] == lines[:end]
    assert first_missing_line(lines[end + 1 :], output[start + end :]) == []


def test_the_case_is_quoted_correctly(pytester: pytest.Pytester) -> None:
    assert main(["init", "support"]) == 0
    (path,) = pytester.path.glob(f"storage/benchmarks/support/cases/*/{CASE['id']}.json")
    case = json.loads(path.read_text("utf-8"))
    assert {**CASE, "notes": case["notes"]} == case
