"""The controls of the tariff suite and the gates of its pipeline.

Each place where a gate can object is reached by a recording or a control, and the suite fails without any one gate.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_packbench.engine.attempt import replay
from pytest_packbench.engine.targets import TargetCaller
from pytest_packbench.engine.trial_results import CaseRef, end_of_control
from pytest_packbench.model.recording import Control, compare
from pytest_packbench.packs.tariff import checks
from pytest_packbench.packs.tariff.checks import CHECKS
from pytest_packbench.packs.tariff.judged import edition_of
from pytest_packbench.packs.tariff.order import ORDER
from pytest_packbench.packs.tariff.target import reference_target
from tests.conftest import SUITE
from tests.controls.test_tariff_suite import MAX_SHARED, containment, prose, shingles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.controls.right_answers import RightAnswer

PAGE = Path(__file__).parents[2] / "docs" / "tariff.md"
SOURCE = ast.parse(Path(checks.__file__).read_text("utf-8"))
RIGHT = {"preferred", "refusal"}


def _named() -> set[tuple[str, str]]:
    """Each objection with its gate: those that `checks.py` names, those of the order, and the term of a saving."""
    calls: dict[str, list[str]] = {}
    objections: dict[str, set[str]] = {}
    for function in SOURCE.body:
        if isinstance(function, ast.FunctionDef):
            names = [
                node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            ]
            calls[function.name] = [node.func.id for node in names if isinstance(node.func, ast.Name)]
            made = [node.args[0] for node in names if isinstance(node.func, ast.Name) and node.func.id == "Objection"]
            objections[function.name] = {str(arg.value) for arg in made if isinstance(arg, ast.Constant)}
    found = {("form", "proposal_form"), ("savings", "optimized_rate")}
    for gate in CHECKS:
        for function_name in (gate, *(name for name in calls[gate] if name.endswith("_faults"))):
            found |= {(gate, objection) for objection in objections.get(function_name, ())}
    ends = {"no_step_for_the_heading", "code_not_under_the_choice"}
    return found | {("gri_sequence", objection) for objection in {objection for _, objection, *_ in ORDER} | ends}


OBJECTIONS = _named()
# each stands beside another objection that its flaw causes as well
NEVER_ALONE: set[tuple[str, str]] = set()


class Run(NamedTuple):
    """A recording or control as it ended: its rulings and objections by iteration, and what is not as it should be."""

    name: str
    failed: dict[int, list[str]]
    objections: dict[int, set[tuple[str, str]]]
    problem: str


class Pipeline:
    """The suite with some of the gates of its pipeline."""

    def __init__(self, answers: Sequence[RightAnswer], gates: Sequence[str]) -> None:
        context = answers[0].context
        self._rights = {right.case.id: right for right in answers}
        self.caller = TargetCaller(reference_target(edition_of(context.suite.config.schedule)))
        self.context = replace(context, caller=self.caller)
        self._gates = {name: CHECKS[name] for name in gates}

    @contextmanager
    def _only_its_gates(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "CHECKS", self._gates)
            yield

    def recording(self, case_id: str) -> Run:
        """Replay the recording of a case."""
        right = self._rights[case_id]
        with self._only_its_gates():
            attempt = replay(self.context, right.loaded, right.cassette, source=case_id, owner=case_id)
        failed = attempt.score is None or attempt.score.verdict != "passed"
        return _run(case_id, attempt.payload, str(attempt.failure or attempt.score) if failed else "")

    def control(self, control: Control) -> Run:
        """Replay a control, and compare its end."""
        right, name = self._rights[control.case], f"controls/{control.id}"
        names = {"case_id": control.case, "nodeid": name, "file": name}
        case_ref = CaseRef.at(self.context.suite, self.context.pack, right.loaded, **names)
        with self._only_its_gates():
            result = end_of_control(case_ref, control, self.context, "a_run")
        deviations = [row.deviation for row in compare(control.expected, result.score) if row.deviation]
        return _run(name, result.attempt.payload, "; ".join(deviations))


def _run(name: str, ended: Any, problem: str) -> Run:
    payload: Any = ended if isinstance(ended, dict) else {}
    failed: dict[int, list[str]] = {}
    for ruling in payload.get("trace", ()):
        of_iteration = failed.setdefault(ruling["iteration"], [])
        of_iteration += [ruling["hook"].removeprefix("tariff.")] if ruling["decision"] == "fail" else []
    objections: dict[int, set[tuple[str, str]]] = {number: set() for number in failed}
    for each in payload.get("notes", {}).get("objections", ()):
        objections[each["iteration"]].add((each["gate"], each["name"]))
    return Run(name, failed, objections, problem)


@pytest.fixture(scope="module")
def controls() -> list[Control]:
    return [Control.model_validate_json(path.read_bytes()) for path in sorted(SUITE.glob("fixtures/controls/*.json"))]


@pytest.fixture(scope="module")
def runs(answers: list[RightAnswer], controls: list[Control]) -> Iterator[list[Run]]:
    pipeline = Pipeline(answers, tuple(CHECKS))
    yield [*(pipeline.recording(right.case.id) for right in answers), *map(pipeline.control, controls)]
    pipeline.caller.close()


def test_every_recording_and_control_ends_as_written(runs: list[Run]) -> None:
    assert {run.name: run.problem for run in runs if run.problem} == {}


def test_each_objection_is_reached_by_a_recording_or_a_control(runs: list[Run]) -> None:
    found = [objections for run in runs for objections in run.objections.values()]
    assert set().union(*found) == OBJECTIONS
    alone = {next(iter(objections)) for objections in found if len(objections) == 1}
    assert OBJECTIONS - alone == NEVER_ALONE


@pytest.mark.parametrize("gate", CHECKS)
def test_without_one_gate_the_suite_fails(
    gate: str, answers: list[RightAnswer], controls: list[Control], runs: list[Run]
) -> None:
    """Of the recordings and controls in which the gate alone objects, each ends otherwise without it."""
    deciding = {run.name for run in runs if [gate] in run.failed.values()}
    pipeline = Pipeline(answers, [name for name in CHECKS if name != gate])
    again = [pipeline.recording(right.case.id) for right in answers if right.case.id in deciding]
    again += [pipeline.control(control) for control in controls if f"controls/{control.id}" in deciding]
    pipeline.caller.close()
    # without it, a proposal that can't be parsed is still none
    unnoticed = {run.name for run in again if not run.problem and (gate, "proposal_form") not in run.objections[1]}
    assert again
    assert unnoticed == set()


def test_most_wrong_first_proposals_fall_to_computing_gates_alone(
    answers: list[RightAnswer], runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The critic's text is written by hand: what it alone rejects shows nothing of the pipeline."""
    rejected = {run.name: run.failed[1] for run in runs if run.failed}
    computed: list[str] = []
    by_critic: list[str] = []
    pipeline = Pipeline(answers, ())
    for right in answers:
        gates = rejected[right.case.id]
        first = right.cassette.model_copy(update={"exchanges": right.cassette.exchanges[:2]})
        with monkeypatch.context() as patch:
            patch.setattr(checks, "CHECKS", {})
            ungated = replay(pipeline.context, right.loaded, first, source=right.case.id, owner=right.case.id)
        if gates and ungated.score is not None and ungated.score.match_level not in RIGHT:
            (by_critic if "critic" in gates else computed).append(right.case.id)
    pipeline.caller.close()
    assert f"{len(computed)} fall to gates that compute, {len(by_critic)} need the critic" in PAGE.read_text("utf-8")
    assert len(computed) >= 20
    assert len(by_critic) >= 5
    assert len({gate for name in computed for gate in rejected[name]}) >= 8


def test_the_controls_are_spread_and_unlike_each_other(answers: list[RightAnswer], controls: list[Control]) -> None:
    cases = {right.case.id: right.case for right in answers}
    of = [cases[control.case] for control in controls]
    assert len(controls) >= 70
    assert len({case.case_type for case in of}) == 5
    assert len({case.difficulty for case in of}) == 4
    assert len({control.case.split("_")[1] for control in controls}) >= 30
    assert max(Counter(control.case for control in controls).values()) <= 2
    replayed = {control.id: control.cassette.exchanges for control in controls if control.cassette is not None}
    texts = {
        name: shingles(list(prose([exchange.model_dump(mode="json") for exchange in exchanges])))
        for name, exchanges in replayed.items()
    }
    shared = containment({name: runs for name, runs in texts.items() if len(runs) > 20})
    assert {pair: share for pair, share in shared.items() if share > MAX_SHARED} == {}
    named = [term for control in controls for term in control.expected.terms or ()]
    ends = ("forbidden_code", "unexpected_refusal", "unexpected_acceptance", "refusal_category_mismatch")
    proofs = ("citations_invalid", "citation_missing", "citation_forbidden", "deciding_rule", "gri_sequence")
    savings = (
        "no_savings_violation",
        "savings_target",
        "savings_lever",
        "base_rate",
        "optimized_rate",
        "lever_missing",
    )
    unread = ("unreadable_answer", "truncated_answer", "contradictory_decision")
    assert {name for name in (*ends, *proofs, *savings, *unread) if name not in named} == set()


ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| .+ \| `(\S+)` \|$", re.MULTILINE)


def test_the_page_has_the_numbers_and_names_for_each_objection_where_it_is_reached(
    controls: list[Control], runs: list[Run]
) -> None:
    page, count = PAGE.read_text("utf-8"), len(controls)
    replayed = sum(control.cassette is not None for control in controls)
    chapters = len({control.case.split("_")[1] for control in controls})
    assert f"`{count} of {count} controls (wrong answers that must be noticed) ended as written`" in page
    assert f"for {len({control.case for control in controls})} cases of {chapters} chapters" in page
    assert f"{replayed} of them are answers of a model" in page
    assert f"{count - replayed} are results that only the scorer can catch" in page
    assert f"all {len(OBJECTIONS)} are reached" in page
    rows = [((gate, objection), name) for gate, objection, name in ROW.findall(page)]
    assert {row for row, _ in rows} == OBJECTIONS
    reached = {run.name.removeprefix("controls/"): set().union(*run.objections.values()) for run in runs}
    assert [name for row, name in rows if row not in reached.get(name, set())] == []
