"""A suite is prepared from options and hooks: it has a context, or one line names the mistake."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.contexts import SuiteContexts
from pytest_packbench.engine.targets import import_object
from pytest_packbench.engine.trial_results import CaseRef
from pytest_packbench.model.request import TargetError, without_model
from pytest_packbench.model.run import Caps, ExpectedCalls, RunOptions, SetupError
from pytest_packbench.model.suite import SuiteConfig
from tests.cassettes import authored_cassette
from tests.engine.attempts import EchoPack, case, suite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts


class GuardedPack(EchoPack):
    def guards(self) -> dict[str, Any]:
        return {"wall": lambda: "wall", "gone": lambda: import_object("nowhere:x", "its library")}


class ScriptedRules(SuiteConfig):
    scripted = ("naive", "careful")


class ScriptedPack(EchoPack):
    def target(self, rules: Any) -> Any:
        return calling_target


class Unusable:
    def __init__(self) -> None:
        raise LookupError("no model")


@without_model
def silent_target(request: Any) -> dict[str, float]:
    return {"points": 1.0}


def calling_target(request: Any, context: Any) -> dict[str, float]:
    return {"points": 1.0}


def contexts(options: RunOptions | None = None, **hooks: Any) -> SuiteContexts:
    made = SuiteContexts(options or RunOptions(), {"echo": GuardedPack()})
    for name, hook in hooks.items():
        setattr(made, f"hooked_{name}", hook)
    return made


def test_a_suite_runs_the_target_of_a_hook(tmp_path: Path) -> None:
    prepared, echo_suite = contexts(target=lambda _: silent_target), suite(tmp_path)
    prepared.prepare(echo_suite)
    # in fixture mode nothing is opened before a case needs it
    assert prepared.opened(echo_suite).target_name == ""
    context = prepared.context(echo_suite)
    assert (context.target_name, context.asks_model) == ("hook:silent_target", False)
    assert context.caller.target is silent_target
    assert prepared.opened(echo_suite) is context
    # a missing target is an error of the case that needs it
    prepared = contexts()
    prepared.prepare(echo_suite)
    with pytest.raises(TargetError, match='pack "echo" has no target of its own'):
        prepared.context(echo_suite)
    assert prepared.target_name(echo_suite).startswith("unknown (")


MISTAKES: dict[str, tuple[RunOptions, dict[str, Any]]] = {
    "unknown guard": (RunOptions(guards=("moat",)), {}),
    "missing guard": (RunOptions(guards=("nowhere:x",)), {}),
    "guard without a module": (RunOptions(guards=(":x",)), {}),
    "guard without its library": (RunOptions(guards=("gone",)), {}),
    "guard that can't be created": (RunOptions(guards=(f"{__name__}:Unusable",)), {}),
    "guard that no result meets": (RunOptions(guards=("wall",)), {"description": "takes no context"}),
    "no backend": (RunOptions(mode="live"), {}),
    "backend in fixture mode": (RunOptions(backend="openai"), {}),
    "no scripted models": (RunOptions(backend="stub"), {}),
    "no scripted models in live mode": (RunOptions(mode="live", backend="stub", caps=Caps(cost=1.0)), {}),
    "too few trials": (RunOptions(mode="live", trials=2), {"trials": {"at_least": 3}}),
    "missing target": (RunOptions(target="nowhere:x"), {}),
    "missing target of the suite": (RunOptions(mode="record"), {"target": "a:b"}),
}


def test_a_mistake_in_options_or_rules_is_one_line(tmp_path: Path, expected: ExpectedTexts) -> None:
    lines = []
    for name, (options, rules) in MISTAKES.items():
        target = None if "target" in rules else silent_target if "description" in rules else calling_target
        with pytest.raises(SetupError) as error:
            contexts(options, target=lambda _, target=target: target).prepare(suite(tmp_path, **rules))
        lines.append(f"{name}: {str(error.value).replace(str(tmp_path), '<folder>')}\n")
    scripted = SuiteContexts(RunOptions(mode="live", backend="stub", model="m"), {"echo": ScriptedPack()})
    with pytest.raises(SetupError) as error:
        scripted.prepare(replace(suite(tmp_path), config=ScriptedRules(pack="echo")))
    lines.append(f"no such scripted model: {error.value}\n")
    contexts(RunOptions(trials=3)).prepare(suite(tmp_path, trials={"at_least": 3}))
    expected.check("".join(lines))


@pytest.mark.parametrize(
    ("selected", "guards"),
    [(None, "wall dog"), (("none",), "dog"), (("wall", "wall"), "wall wall dog"), ((), "")],
)
def test_guards_are_those_selected_then_those_of_the_hook(
    tmp_path: Path, selected: tuple[str, ...] | None, guards: str
) -> None:
    prepared = contexts(RunOptions(guards=selected), target=lambda _: calling_target, guards=lambda _: ["dog"])
    assert prepared.context(suite(tmp_path, guards=["wall"])).guards == tuple(guards.split())


def test_as_many_calls_are_expected_as_recorded_else_one_per_attempt(tmp_path: Path) -> None:
    echo_suite = suite(tmp_path)
    cassette = authored_cassette("a", {}, [{"role": "x", "answer": 1}] * 3)
    echo_suite.cassette_path("a").parent.mkdir()
    echo_suite.cassette_path("a").write_text(json.dumps(cassette))
    cases = [case("a"), case("b"), case("c"), case("d", {"skip": "broken"})]
    case_refs = [CaseRef.at(echo_suite, EchoPack(), each, case_id=each.case.id, nodeid="", file="") for each in cases]
    attempts = {"a": 1, "b": 0, "c": 2, "d": 0}
    prepared = contexts(RunOptions(trials=2), target=lambda _: calling_target)
    calls = prepared.expected_calls((each, attempts[each.case.case_id]) for each in case_refs)
    assert calls == ExpectedCalls(cases=2, trials=2, recorded=3, unrecorded=2, external=0)
