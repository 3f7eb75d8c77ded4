"""Changes of inputs and recordings, each of which must be an error and never a score."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.packs.tariff.model import TariffCase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.engine.attempt import AttemptState
    from tests.controls.right_answers import Json, RightAnswer


@dataclass(frozen=True)
class Change:
    """A change of a case's cassette, or of its input by default, and the kind of error that it must be."""

    name: str
    # returns the changed input or cassette, from the case's own and the next case's; None if it doesn't apply
    change: Callable[[Json, Json], Json | None]
    kind: str = "cassette_outdated"
    of_cassette: bool = False

    @property
    def requirement(self) -> str:
        return f"error {self.kind}"

    def misses(self, right: RightAnswer, following: RightAnswer) -> Iterator[str]:
        suite = right.context.suite
        paths = [suite.cassette_path(one.case.id) if self.of_cassette else one.path for one in (right, following)]
        own, other = (json.loads(path.read_bytes()) for path in paths)
        changed = self.change(own, other) if self.of_cassette else self.change(own["input"], other["input"])
        if changed is not None:
            run = _with_cassette(right, changed) if self.of_cassette else _with_input(right, {**own, "input": changed})
            caught = run.failure is not None and run.failure.kind == self.kind and run.score is None
            yield "" if caught else f"{run.failure or run.score}"


def _with_input(right: RightAnswer, case: Json) -> AttemptState:
    return attempt(right.context, check_case(case, TariffCase, source=right.path.name, stem=None, pack="tariff"))


def _with_cassette(right: RightAnswer, cassette: Json) -> AttemptState:
    with TemporaryDirectory() as folder:
        suite = replace(right.context.suite, path=Path(folder))
        path = suite.cassette_path(right.case.id)
        path.parent.mkdir()
        path.write_text(json.dumps(cassette), encoding="utf-8")
        return attempt(replace(right.context, suite=suite), right.loaded)


INPUTS: dict[str, Callable[[Json, Json], Json | None]] = {
    "input blanked": lambda own, _: {**own, "input": "?"},
    "input cut to half": lambda own, _: {**own, "input": own["input"][: len(own["input"]) // 2]},
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
    *(Change(name, change) for name, change in INPUTS.items()),
    *(Change(name, change, f"cassette_{kind}", of_cassette=True) for name, (kind, change) in CASSETTES.items()),
)
