"""Changes of inputs and recordings, each of which must be an error and never a score."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.packs.tariff.model import TariffCase
from tests.controls.wrong_answers import ControlSummary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import Attempt
    from tests.controls.wrong_answers import Json, RightAnswer, SuiteAnswers


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a case's input or of its cassette.

    Attributes:
        name: a short description.
        kind: the required kind of error.
        change: returns the changed part, from the case's original and the next case's; None if it doesn't apply.
        part: the part that is changed.
    """

    name: str
    kind: str
    change: Callable[[Json, Json], Json | None]
    part: str = "input"


def run_controls(change: Change, answers: SuiteAnswers, folder: Path) -> ControlSummary:
    """Run every case with the change; `folder` is for changed cassettes."""
    total, missed = 0, []
    for right, other in zip(answers.right_answers, (*answers.right_answers[1:], answers.right_answers[0]), strict=True):
        run = _with_input if change.part == "input" else _with_cassette
        outcome = run(change, answers, right, other, folder)
        if outcome is None:
            continue
        total += 1
        if outcome.failure is None or outcome.failure.kind != change.kind or outcome.score is not None:
            missed.append(f"{right.case.id}: {outcome.failure or outcome.score}")
    return ControlSummary(
        name=change.name, requirement=f"error {change.kind}", total=total, cases=total, missed=tuple(missed)
    )


def _with_input(
    change: Change, answers: SuiteAnswers, right: RightAnswer, other: RightAnswer, _: Path
) -> Attempt | None:
    case, next_case = (json.loads(answer.path.read_bytes()) for answer in (right, other))
    changed = change.change(case["input"], next_case["input"])
    if changed is None:
        return None
    loaded = check_case({**case, "input": changed}, TariffCase, source=right.path.name, stem=None, pack="tariff")
    return attempt(answers.context, loaded)


def _with_cassette(
    change: Change, answers: SuiteAnswers, right: RightAnswer, other: RightAnswer, folder: Path
) -> Attempt | None:
    suite = answers.context.suite
    cassette, next_cassette = (
        json.loads(suite.cassette_path(answer.case.id).read_bytes()) for answer in (right, other)
    )
    changed = change.change(cassette, next_cassette)
    if changed is None:
        return None
    copy = replace(suite, path=folder)
    path = copy.cassette_path(right.case.id)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(changed), encoding="utf-8")
    return attempt(replace(answers.context, suite=copy), right.loaded)


def blanked(original: Json, _: Json) -> Json:
    return {**original, "input": ""}


def halved(original: Json, _: Json) -> Json:
    words = original["input"].split()
    return {**original, "input": " ".join(words[: len(words) // 2])}


def one_word_shorter(original: Json, _: Json) -> Json:
    return {**original, "input": original["input"].rsplit(maxsplit=1)[0]}


def swapped_text(original: Json, other: Json) -> Json:
    return {**original, "input": other["input"]}


def no_evidence(original: Json, _: Json) -> Json | None:
    return {**original, "evidence": []} if original.get("evidence") else None


def replaced(_: Json, other: Json) -> Json:
    return other


def replaced_under_same_id(original: Json, other: Json) -> Json:
    return {**other, "case_id": original["case_id"]}


def one_call_less(original: Json, _: Json) -> Json:
    return {**original, "exchanges": original["exchanges"][:-1]}


def one_call_more(original: Json, _: Json) -> Json:
    return {**original, "exchanges": [*original["exchanges"], original["exchanges"][-1]]}


CHANGES = (
    Change(name="input blanked", kind="cassette_outdated", change=blanked),
    Change(name="input cut to half", kind="cassette_outdated", change=halved),
    Change(name="input one word shorter", kind="cassette_outdated", change=one_word_shorter),
    Change(name="another case's text", kind="cassette_outdated", change=swapped_text),
    Change(name="another case's whole input", kind="cassette_outdated", change=replaced),
    Change(name="evidence removed", kind="cassette_outdated", change=no_evidence),
    Change(name="another case's cassette", kind="cassette_unreadable", change=replaced, part="cassette"),
    Change(
        name="another case's cassette under this case's id",
        kind="cassette_outdated",
        change=replaced_under_same_id,
        part="cassette",
    ),
    Change(name="cassette one call shorter", kind="cassette_mismatch", change=one_call_less, part="cassette"),
    Change(name="cassette one call longer", kind="cassette_mismatch", change=one_call_more, part="cassette"),
)
