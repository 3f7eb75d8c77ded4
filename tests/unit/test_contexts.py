"""Suites made ready to run by the engine alone: options and hooks in, contexts or one line of an error out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.contexts import SuiteContexts, UserHooks
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.result_builder import CaseRef
from pytest_packbench.model.request import without_model
from pytest_packbench.model.run import Caps, ExpectedCalls, RunOptions, SetupError
from pytest_packbench.model.suite import Suite, SuiteConfig
from tests.cassettes import authored_cassette
from tests.unit.attempts import EchoPack, case

if TYPE_CHECKING:
    from pathlib import Path


class GuardedPack(EchoPack):
    """A pack with a guard of its own."""

    def guards(self) -> dict[str, Any]:
        return {"wall": lambda: "wall"}


@without_model
def good(request: Any) -> dict[str, float]:
    return {"points": 1.0}


def calling_target(request: Any, context: Any) -> dict[str, float]:
    return {"points": 1.0}


def suite_of(folder: Path, **rules: Any) -> Suite:
    return Suite(name="s", path=folder, config=SuiteConfig(pack="echo", **rules), sha256="0" * 64)


def contexts(options: RunOptions | None = None, **hooks: Any) -> SuiteContexts:
    return SuiteContexts(options or RunOptions(), {"echo": GuardedPack()}, UserHooks(**hooks))


def test_a_suite_runs_by_the_target_of_a_hook(tmp_path: Path) -> None:
    ready, suite = contexts(target=lambda _: good), suite_of(tmp_path)
    ready.prepare(suite)
    assert ready.opened(suite) is None, "in fixture mode nothing is opened before a case needs it"
    context = ready.context(suite)
    assert (context.target_name, context.asks_model) == ("hook:good", False)
    found = attempt(context, case("a"))
    assert found.score is not None
    assert found.score.score == 1.0
    assert ready.opened(suite) is context


@pytest.mark.parametrize(
    ("options", "rules", "said"),
    [
        (
            RunOptions(guards=("moat",)),
            {},
            'suite "s": unknown guard "moat"; expected one of ',
        ),
        (RunOptions(guards=("nowhere:x",)), {}, 'guard "nowhere:x": No module named'),
        (RunOptions(mode="live"), {}, 'suite "s": the target calls a model, and no backend is set'),
        (RunOptions(backend="openai"), {}, "--packbench-backend: got openai in fixture mode"),
        (RunOptions(backend="stub"), {}, 'suite "s": backend stub: the pack echo has no scripted models'),
        (RunOptions(mode="live", trials=2), {"trials": {"at_least": 3}}, "at_least 3 is not reachable"),
        (RunOptions(target="nowhere:x"), {}, 'target "nowhere:x": No module named'),
        (RunOptions(mode="record"), {"target": "a:b"}, 'suite.yaml: /target: "a:b": No module named'),
        (RunOptions(mode="live", backend="stub", caps=Caps(cost=1.0)), {}, "has no scripted models"),
    ],
)
def test_what_was_asked_for_wrongly_is_one_error(
    tmp_path: Path, options: RunOptions, rules: dict[str, Any], said: str
) -> None:
    target = (lambda _: None) if "target" in rules else (lambda _: calling_target)
    with pytest.raises(SetupError) as error:
        contexts(options, target=target).prepare(suite_of(tmp_path, **rules))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_suite_without_a_target_says_so_when_a_case_needs_it(tmp_path: Path) -> None:
    ready, suite = contexts(), suite_of(tmp_path)
    ready.prepare(suite)
    with pytest.raises(TargetError, match='pack "echo" has no target of its own'):
        ready.context(suite)
    assert ready.target_name(suite).startswith("unknown (")


def test_guards_come_by_name_then_from_the_hook_and_not_at_all_where_none_are_wanted(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, guards=["wall"])
    hooks: dict[str, Any] = {"target": lambda _: good, "guards": lambda _: ["dog"]}
    assert contexts(**hooks).context(suite).guards == ("wall", "dog")
    assert contexts(RunOptions(guards=("none",)), **hooks).context(suite).guards == ("dog",)
    assert contexts(RunOptions(guards=()), **hooks).context(suite).guards == ()


def test_expected_calls_are_those_recorded_and_one_an_attempt_where_none_are(tmp_path: Path) -> None:
    suite, loaded = suite_of(tmp_path), [case("a"), case("b"), case("c")]
    cassette = authored_cassette("a", {}, [{"role": "x", "answer": 1}] * 3)
    suite.cassette_path("a").parent.mkdir()
    suite.cassette_path("a").write_text(json.dumps(cassette))
    places = [
        CaseRef(suite=suite, pack=EchoPack(), case_id=one.case.id, nodeid="", file="", folder="", loaded=one)
        for one in loaded
    ]
    ready = contexts(RunOptions(trials=2), target=lambda _: calling_target)
    made = {"a": 1, "b": 0, "c": 2}
    found = ready.expected_calls(places, lambda place: made[place.case_id])
    assert found == ExpectedCalls(cases=2, trials=2, recorded=3, unrecorded=2, external=0)
