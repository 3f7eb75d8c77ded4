"""Changed inputs and recordings: nothing that was not answered may be scored."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.packs.tariff.model import TariffCase
from tests.controls.wrong_answers import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import Attempt
    from tests.controls.wrong_answers import Answers, Json, Right


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a case's input or of its cassette.

    Attributes:
        name: in a few words.
        kind: the error that it has to become.
        change: gives the changed part from the case's own and the next case's; None where it doesn't apply.
        of: what is changed.
    """

    name: str
    kind: str
    change: Callable[[Json, Json], Json | None]
    of: str = "input"


def tally(change: Change, answers: Answers, folder: Path) -> Tally:
    """Change every case and try it; `folder` takes the changed cassettes."""
    made, slipped = 0, []
    for right, other in zip(answers.rights, (*answers.rights[1:], answers.rights[0]), strict=True):
        make = _with_input if change.of == "input" else _with_cassette
        found = make(change, answers, right, other, folder)
        if found is None:
            continue
        made += 1
        if found.failure is None or found.failure.kind != change.kind or found.score is not None:
            slipped.append(f"{right.case.id}: {found.failure or found.score}")
    return Tally(name=change.name, must=f"error {change.kind}", made=made, cases=made, slipped=tuple(slipped))


def _with_input(change: Change, answers: Answers, right: Right, other: Right, _: Path) -> Attempt | None:
    case, next_case = (json.loads(one.path.read_bytes()) for one in (right, other))
    changed = change.change(case["input"], next_case["input"])
    if changed is None:
        return None
    loaded = check_case({**case, "input": changed}, TariffCase, source=right.path.name, stem=None, pack="tariff")
    return attempt(answers.context, loaded)


def _with_cassette(change: Change, answers: Answers, right: Right, other: Right, folder: Path) -> Attempt | None:
    suite = answers.context.suite
    own, next_one = (json.loads(suite.cassette_path(one.case.id).read_bytes()) for one in (right, other))
    changed = change.change(own, next_one)
    if changed is None:
        return None
    copy = replace(suite, path=folder)
    path = copy.cassette_path(right.case.id)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(changed), encoding="utf-8")
    return attempt(replace(answers.context, suite=copy), right.loaded)


def blanked(own: Json, _: Json) -> Json:
    return {**own, "input": ""}


def halved(own: Json, _: Json) -> Json:
    words = own["input"].split()
    return {**own, "input": " ".join(words[: len(words) // 2])}


def a_word_shorter(own: Json, _: Json) -> Json:
    return {**own, "input": own["input"].rsplit(maxsplit=1)[0]}


def swapped_text(own: Json, other: Json) -> Json:
    return {**own, "input": other["input"]}


def swapped(_: Json, other: Json) -> Json:
    return other


def no_evidence(own: Json, _: Json) -> Json | None:
    return {**own, "evidence": []} if own.get("evidence") else None


def foreign(_: Json, other: Json) -> Json:
    return other


def foreign_in_disguise(own: Json, other: Json) -> Json:
    return {**other, "case_id": own["case_id"]}


def a_call_fewer(own: Json, _: Json) -> Json:
    return {**own, "exchanges": own["exchanges"][:-1]}


def a_call_more(own: Json, _: Json) -> Json:
    return {**own, "exchanges": [*own["exchanges"], own["exchanges"][-1]]}


CHANGES = (
    Change(name="input blanked", kind="cassette_outdated", change=blanked),
    Change(name="input cut to half", kind="cassette_outdated", change=halved),
    Change(name="input a word shorter", kind="cassette_outdated", change=a_word_shorter),
    Change(name="another case's text", kind="cassette_outdated", change=swapped_text),
    Change(name="another case's whole input", kind="cassette_outdated", change=swapped),
    Change(name="evidence taken away", kind="cassette_outdated", change=no_evidence),
    Change(name="another case's cassette", kind="cassette_unreadable", change=foreign, of="cassette"),
    Change(
        name="another case's cassette under this one's id",
        kind="cassette_outdated",
        change=foreign_in_disguise,
        of="cassette",
    ),
    Change(name="cassette a call shorter", kind="cassette_mismatch", change=a_call_fewer, of="cassette"),
    Change(name="cassette a call longer", kind="cassette_mismatch", change=a_call_more, of="cassette"),
)
