"""Changes of inputs and recordings, each of which must be an error and never a score."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.packs.tariff.model import TariffCase
from tests.controls.right_answers import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.engine.attempt import Attempt
    from tests.controls.right_answers import ControlSummary, Json, RightAnswer


@dataclass(frozen=True)
class Change:
    """A change of a case's input or of its cassette, and the kind of error that it must be."""

    name: str
    part: str
    kind: str
    # returns the changed part, from the case's original and the next case's; None if it doesn't apply
    change: Callable[[Json, Json], Json | None]


def run_controls(change: Change, answers: Sequence[RightAnswer], folder: Path) -> ControlSummary:
    """Run every case with the change; `folder` is for changed cassettes."""
    return summary(change.name, f"error {change.kind}", _controls(change, answers, folder))


def _controls(change: Change, answers: Sequence[RightAnswer], folder: Path) -> Iterator[tuple[RightAnswer, str]]:
    run = _with_input if change.part == "input" else _with_cassette
    for right, other in zip(answers, (*answers[1:], answers[0]), strict=True):
        outcome = run(change, right, other, folder)
        if outcome is not None:
            kind = outcome.failure.kind if outcome.failure else ""
            caught = kind == change.kind and outcome.score is None
            yield right, "" if caught else f"{outcome.failure or outcome.score}"


def _with_input(change: Change, right: RightAnswer, other: RightAnswer, _: Path) -> Attempt | None:
    case, next_case = (json.loads(answer.path.read_bytes()) for answer in (right, other))
    changed = change.change(case["input"], next_case["input"])
    if changed is None:
        return None
    loaded = check_case({**case, "input": changed}, TariffCase, source=right.path.name, stem=None, pack="tariff")
    return attempt(right.context, loaded)


def _with_cassette(change: Change, right: RightAnswer, other: RightAnswer, folder: Path) -> Attempt | None:
    suite = right.context.suite
    cassettes = (json.loads(suite.cassette_path(answer.case.id).read_bytes()) for answer in (right, other))
    copy = replace(suite, path=folder)
    path = copy.cassette_path(right.case.id)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(change.change(*cassettes)), encoding="utf-8")
    return attempt(replace(right.context, suite=copy), right.loaded)


def first_half(text: str) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2])


INPUTS: dict[str, Callable[[Json, Json], Json | None]] = {
    "input blanked": lambda own, _: {**own, "input": ""},
    "input cut to half": lambda own, _: {**own, "input": first_half(own["input"])},
    "input one word shorter": lambda own, _: {**own, "input": own["input"].rsplit(maxsplit=1)[0]},
    "another case's text": lambda own, other: {**own, "input": other["input"]},
    "another case's whole input": lambda _, other: other,
    "evidence removed": lambda own, _: {**own, "evidence": []} if own.get("evidence") else None,
}
CASSETTES: dict[str, tuple[str, Callable[[Json, Json], Json]]] = {
    "another case's cassette": ("unreadable", lambda _, other: other),
    "another case's cassette under this case's id": (
        "outdated",
        lambda own, other: {**other, "case_id": own["case_id"]},
    ),
    "cassette one call shorter": ("mismatch", lambda own, _: {**own, "exchanges": own["exchanges"][:-1]}),
    "cassette one call longer": (
        "mismatch",
        lambda own, _: {**own, "exchanges": own["exchanges"] + own["exchanges"][-1:]},
    ),
}
CHANGES = (
    *(Change(name, "input", "cassette_outdated", change) for name, change in INPUTS.items()),
    *(Change(name, "cassette", f"cassette_{kind}", change) for name, (kind, change) in CASSETTES.items()),
)
