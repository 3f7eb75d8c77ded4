"""`packbench accept`: recordings that differ in their calls, and what can't be accepted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.files import canonical_sha256
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TARGET = """
from pytest_packbench import ModelRequest


def ask(request, context):
    question = ModelRequest(role="answer", system="s", messages=({"role": "user", "content": "q"},))
    answer = context.llm.complete_sync(question).content
    return {"queue": context.llm.complete_sync(question).content if answer == "more" else answer}
"""
CONDITIONS = {"target": {"kind": "python", "address": "target_of_accept:ask"}, "pack": {"name": "generic"}, "tools": []}


def recording(case_id: str, *answers: str, **changes: Any) -> str:
    data = {
        "cassette_version": 2,
        "case_id": case_id,
        "input_sha256": canonical_sha256("x"),
        "origin": "authored",
        "llm_backend": "openai",
        "llm_model": "m",
        "conditions": CONDITIONS,
        "exchanges": [{"role": "answer", "answer": answer} for answer in answers],
        **changes,
    }
    return json.dumps({key: value for key, value in data.items() if value is not None})


@pytest.fixture
def accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Write recordings of a suite with the cases a and b, call the command, and return its code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "target_of_accept", raising=False)
    (tmp_path / "target_of_accept.py").write_text(TARGET, encoding="utf-8")
    cases = [case(name, pack_id="generic", input="x", expected={"queue": "refunds"}) for name in "ab"]
    rules = {"target": "target_of_accept:ask", "criteria": [{"exact": "/queue"}]}
    folder = write_suite(tmp_path / "storage" / "benchmarks" / "mine", cases, pack="generic", rules=rules)
    (folder / "fixtures" / ".pending").mkdir(parents=True)

    def call(files: dict[str, str], *options: str) -> tuple[int, str, str]:
        for name, text in files.items():
            (folder / "fixtures" / name).write_text(text, encoding="utf-8")
        code = main(["accept", "mine", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_a_call_more_or_less_is_shown_with_its_answer(accept: Callable[..., tuple[int, str, str]]) -> None:
    one, two = ("refunds",), ("more", "letters")
    files = {"a.json": one, ".pending/a.json": two, "b.json": two, ".pending/b.json": one}
    code, out, err = accept({name: recording(name[-6], *answers) for name, answers in files.items()})
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "a: 1.00 passed -> 0.00 failed",
        *("  answer 1 (answer):", "    -refunds", "    +more", "  answer 2 (answer):", "    +letters"),
        "b: 0.00 failed -> 1.00 passed",
        *("  answer 1 (answer):", "    -more", "    +refunds", "  answer 2 (answer):", "    -letters"),
        "2 of 2 taken over",
    ]


def test_what_can_t_be_accepted_is_one_line(accept: Callable[..., tuple[int, str, str]]) -> None:
    nothing = "suite mine: no recording waits for approval\n"
    assert accept({"a.json": recording("a", "refunds", conditions=None)}) == (0, nothing, "")
    code, out, err = accept({}, "--adopt")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--adopt was removed: for a recording without conditions, delete it and record the case again" in err
    code, out, err = accept({}, "--option=--packbench-target=target_of_accept:nothing")
    assert (code, out, 'has no "nothing"' in err, err.count("\n")) == (2, "", True, 1)
    assert accept({}, "--option=--no-such") == (2, "", "packbench: unrecognized arguments: --no-such\n")
