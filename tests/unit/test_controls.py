"""Controls: files that could not fail are refused, and an end is compared with what a file expects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.api import load_suite
from pytest_packbench.cases.finder import all_recordings, find_controls
from pytest_packbench.cases.lint import lint
from pytest_packbench.cases.load import check_target, load_control, parse_control
from pytest_packbench.commands import main
from pytest_packbench.files import packed_files, single_files
from pytest_packbench.model.errors import ControlError
from pytest_packbench.model.recording import (
    ControlExpected,
    ControlResult,
    tally_of,
)
from pytest_packbench.model.result import Score, Term
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from pytest_packbench.model.suite import Suite

DATA: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "data" / "controls.yaml").read_text("utf-8"))
WRONG = {
    "id": "wrong",
    "case": "refund",
    "description": "the wrong queue",
    "expected": {"verdict": "failed", "score": 0.0, "terms": ["queue"]},
    "payload": {"queue": "sales"},
}


def make_suite(folder: Path, **files: dict[str, Any] | str) -> Suite:
    """Write a suite with one case and with controls; a text is the file of a control as it is."""
    cases = [case("refund", pack_id="generic", case_type="answer", input="x", expected={"queue": "refunds"})]
    write_suite(folder, cases, pack="generic", rules={"criteria": [{"exact": "/queue"}]})
    controls = folder / "fixtures" / "controls"
    controls.mkdir(parents=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (controls / (name if "." in name else f"{name}.json")).write_text(text, encoding="utf-8")
    return load_suite(folder)


@pytest.mark.parametrize("name", DATA["mistakes"])
def test_a_control_that_could_not_fail_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DATA["mistakes"][name]
    control = {key: value for key, value in {**WRONG, **change}.items() if value != "REMOVE"}
    suite = make_suite(tmp_path / "suite", wrong=control)
    assert main(["validate", str(suite.controls_path)]) == 2
    assert f"wrong.json: {message}" in capsys.readouterr().out
    pointer, _, rest = message.partition(": ") if message.startswith("/") else ("", "", message)
    findings = [finding for finding in lint(suite, GenericPack(), {}) if finding.rule == "control_unreadable"]
    assert (findings[0].pointer, rest in findings[0].message) == (pointer, True)


@pytest.mark.parametrize(("expected", "end", "deviation"), DATA["ends"])
def test_an_end_is_compared_with_what_is_written(expected: dict[str, Any], end: dict[str, Any], deviation: str) -> None:
    terms = [Term(name=name, effect=effect, value=value, detail="why") for name, effect, value in end.pop("terms", [])]
    score, stated = Score(**end, terms=tuple(terms)), ControlExpected.model_validate(expected)
    result = ControlResult("s", "a", "n", "f", "not_run").ended(stated, score)
    assert (result.outcome, result.message) == ("deviates" if deviation else "as_written", deviation)


def test_lint_finds_controls_that_say_too_little_or_nothing_new(tmp_path: Path) -> None:
    suite = make_suite(
        tmp_path / "suite",
        wrong=WRONG,
        any={**WRONG, "id": "any", "expected": {"verdict": "failed"}, "payload": {"queue": "none"}},
        again={**WRONG, "id": "again"},
        **{"notes.txt": "words", "README.md": "words", "old.json": json.dumps({"cassette_version": 2})},
    )
    found = {(finding.file.rpartition("/")[2], finding.rule) for finding in lint(suite, GenericPack(), {})}
    assert {each for each in found if each[1].startswith(("control", "cassette"))} == {
        ("any.json", "control_unspecific"),
        ("wrong.json", "control_repeated"),
        ("notes.txt", "control_unreadable"),
        ("old.json", "control_unreadable"),
    }


def test_a_packed_suite_has_the_same_controls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = make_suite(tmp_path / "suite", wrong=WRONG, other={**WRONG, "id": "other", "description": "é"})
    packed = tmp_path / "packed"
    for file, content in packed_files(suite.path):
        (packed / file).parent.mkdir(parents=True, exist_ok=True)
        (packed / file).write_bytes(content)
    assert (packed / "fixtures" / "controls" / "controls.jsonl").read_text("utf-8").count("\n") == 2
    loaded = [load_control(found, source="f") for found in find_controls(packed / "fixtures" / "controls")]
    assert [(control.id, control.description) for control in loaded] == [("other", "é"), ("wrong", "the wrong queue")]
    assert not all_recordings(load_suite(packed))
    assert dict(single_files(packed)).keys() == dict(single_files(suite.path)).keys()
    assert main(["validate", str(packed / "fixtures")]) == 0
    assert "controls.jsonl: 2 lines, each control" in capsys.readouterr().out


NESTED = '{"a": ' * 500 + "1" + "}" * 500
REPLAYED = {"cassette_version": 2, "exchanges": [{"role": "a", "answer": {}}]}
UNREPLAYABLE = {key: value for key, value in WRONG.items() if key != "payload"} | {
    "id": "replayed",
    "cassette": REPLAYED,
}


def test_validate_and_lint_refuse_what_a_run_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others: dict[str, Any] = {"UPPER.JSON": WRONG, "c.yaml": "id: c", ".hidden.json": WRONG, "a\nb.json": "{"}
    suite = make_suite(
        tmp_path / "suite",
        wrong=WRONG,
        deep=json.dumps({**WRONG, "id": "deep", "payload": "X"}).replace('"X"', NESTED),
        replayed=UNREPLAYABLE,
        **others,
    )
    os.mkfifo(suite.controls_path / "pipe.json")
    for name in ("inside", "__pycache__"):
        (suite.controls_path / name).mkdir()
    for name in ("lost.json", "lost.jsonl"):
        (suite.controls_path / name).symlink_to("nowhere")
    (suite.controls_path / "blank.jsonl").write_text(" \n", encoding="utf-8")
    expected = {
        "deep.json": "/payload/a: nested deeper than 100; remove levels",
        "replayed.json": '/cassette: the pack "generic" has no target of its own; give the result as payload instead',
        "UPPER.JSON": "not read as a control, because of its suffix; rename it to .json, or remove it",
        "c.yaml": "not read as a control, because of its suffix; rename it to .json, or remove it",
        "a\\nb.json": "its name has control characters, line breaks, marks of direction or bytes that are not UTF-8",
        "pipe.json": "is a named pipe, not a file; replace it by a file, or remove it",
        "inside": "a folder is not read; move its controls to controls",
        "lost.json": "No such file or directory",
        "lost.jsonl": "No such file or directory",
        "blank.jsonl": "empty: its kind is not known",
    }
    assert main(["validate", str(suite.controls_path)]) == 2
    printed = {line.partition(": ")[0].rpartition("/")[2]: line for line in capsys.readouterr().out.splitlines()}
    assert {name for name, line in printed.items() if line.endswith(": NOT VALID")} == expected.keys()
    found = {finding.file.rpartition("/")[2]: finding for finding in lint(suite, GenericPack(), {})}
    assert found.pop(".hidden.json").rule == "control_hidden"
    for name in ("lost.json", "lost.jsonl"):
        assert "cannot be read: No such file or directory; expected a file" in found[name].message
    assert "the file contains no control; expected one control per line" in found["blank.jsonl"].message
    for name, message in expected.items():
        assert message in printed[name]
        assert message.startswith((found[name].pointer, "not"))
        assert found[name].rule == "control_unreadable"


def test_a_pack_whose_target_raises_replays_no_control() -> None:
    class Raising(GenericPack):
        def target(self, _rules: object) -> Any:
            raise OSError("none\nhere")

    control = parse_control(json.dumps(UNREPLAYABLE).encode(), source="c.json", name=None)
    with pytest.raises(ControlError) as caught:
        check_target(control, Raising(), None, source="c.json")
    assert str(caught.value) == (
        'c.json: /cassette: the pack "generic" raised in target(): OSError: none here; give the result as payload instead'
    )


def test_of_two_controls_with_one_id_the_second_is_an_error(tmp_path: Path) -> None:
    suite = make_suite(tmp_path / "suite", wrong=WRONG, **{"more.jsonl": json.dumps(WRONG) + "\n\n"})
    problems = [str(found.problem) for found in find_controls(suite.controls_path) if found.problem is not None]
    assert problems == ['/id: duplicate id "wrong", also in more.jsonl:1; use a unique id']


def test_of_a_control_in_two_runs_the_worse_end_counts() -> None:
    fine = ControlResult("s", "a", "n", "f", "as_written")
    with pytest.raises(ValueError, match="without both expected and actual"):
        ControlResult.from_line(fine.as_json())
    ends: list[dict[str, Any]] = [{"verdict": "failed", "score": 10**400}, {"verdict": "failed", "scored": 1}, {}]
    for actual in ends:
        with pytest.raises(ValueError, match="/actual/"):
            ControlResult.from_line({**fine.as_json(), "expected": {"verdict": "failed"}, "actual": actual})
    with pytest.raises(ValueError, match="/actual/a~1~0: unknown"):
        ControlResult.from_line({**fine.as_json(), "expected": {"verdict": "failed"}, "actual": {"a/~": 1}})
    tally = tally_of([fine, fine._replace(outcome="deviates"), fine._replace(control="b", outcome="not_run")], 3)
    assert tally is not None
    assert tally.line() == "0 of 2 controls ended as written, 1 not run, 1 not selected"
    assert tally.counts.wrong == ("a",)
    assert tally_of([], 0) is None
    for change in ({"outcome": "fine"}, {"expected": 1}, {"case": None}):
        with pytest.raises(ValueError, match=next(iter(change))):
            ControlResult.from_line({**fine.as_json(), **change})


REFUSED = {"status": "refused"}


def ruling(iteration: int, gate: str, decision: str) -> dict[str, Any]:
    return {"hook": f"tariff.{gate}", "decision": decision, "iteration": iteration}


@pytest.mark.parametrize(
    ("result", "gates"),
    [
        ({**REFUSED, "trace": [ruling(1, "critic", "fail"), ruling(2, "critic", "pass")]}, "critic"),
        (
            {
                **REFUSED,
                "trace": [ruling(1, "form", "fail"), ruling(2, "critic", "fail"), ruling(2, "citations", "fail")],
            },
            "critic, citations",
        ),
        ({"unreadable": "prose", "trace": [ruling(1, "form", "fail")]}, "form"),
        ({**REFUSED, "trace": [3, {"decision": "fail"}, {"decision": "fail", "iteration": "x", "hook": 3}]}, ""),
        ({"trace": 1}, ""),
        (None, ""),
    ],
)
def test_the_gates_that_rejected_last_decide(result: object, gates: str) -> None:
    assert TariffPack().decided_by(result) == gates
