"""What a target may give back without anybody losing a result: odd text, depth, size, control characters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import TOY

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.mark.parametrize(
    "more",
    [
        "'\\ud800 alone'",
        "{'\\udfff': 1}",
        "10 ** 400",
        "'x' * 1_000_000",
        "__import__('functools').reduce(lambda inner, _: [inner], range(300), 1)",
        "True and {'a': [None, 1e308, -0.0]}",
    ],
)
def test_an_odd_result_is_kept_or_said_and_loses_nothing(project: Project, more: str) -> None:
    project.case("odd", more=more)
    project.case("good")
    result = project.run_toy()
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert sum(result.parseoutcomes().get(word, 0) for word in ("passed", "errors")) == 2
    lines = project.lines("records.jsonl")
    assert "toy:plain:good" in {line["test_id"] for line in lines}
    assert len(lines) + len(project.lines("errors.jsonl")) == 2
    assert json.loads((project.left() / "report.json").read_text("utf-8"))["packbench"]["totals"]["selected"] == 2


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ("{'a/b': ['x', 'bad \\udc00']}", "result_unreadable", "an unpaired surrogate at /more/a~1b/1"),
        ("{'k': {'\\udfff': 1}}", "result_unreadable", "an unpaired surrogate at /more/k"),
        ("'plain'", "pack_error", "the pack toy raised RecordError: attack_category"),
    ],
)
def test_text_that_is_no_unicode_is_named_as_the_results(project: Project, more: str, kind: str, said: str) -> None:
    toy = TOY.replace("attack_category=case.case_type", "attack_category='\\ud800'")
    assert toy != TOY
    project.pytester.makeconftest(toy)
    project.case("odd", more=more)
    project.run_toy().assert_outcomes(errors=1)
    (error,) = project.lines("errors.jsonl")
    assert error["kind"] == kind
    assert said in error["message"]


def test_text_of_cases_and_models_reaches_no_terminal_raw(project: Project) -> None:
    evil = "\x1b[31mred\x07\u202eesrever"
    project.case(
        "fails", points=0.1, python="raise ValueError('" + evil.replace("\x1b", "\\x1b").replace("\x07", "\\x07") + "')"
    )
    project.case("skips", notes={"skip": evil})
    project.case("hides", points=0.1, notes={"xfail": evil})
    result = project.run_toy("-rsxfE", "-v")
    assert result.parseoutcomes() == {"errors": 1, "skipped": 1, "xfailed": 1}
    assert "\x1b[31mred" not in result.stdout.str()
    assert "\u202e" not in result.stdout.str()
    assert "\x1b" not in (project.left() / "summary.md").read_text("utf-8")
