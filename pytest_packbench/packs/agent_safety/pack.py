"""The agent-safety pack: the parts of this folder behind the engine's protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.record import EVAL_SUITES
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.agent_safety import outcome as reading
from pytest_packbench.packs.agent_safety import scoring, summary
from pytest_packbench.packs.agent_safety.model import SCRIPTED, SafetyCase, SafetySuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Importer, Starter
    from pytest_packbench.model.request import Target, VerifyContext, VerifyRequest
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.agent_safety.outcome import SafetyOutcome


class AgentSafetyPack(Pack):
    """Attacks on agents: AgentDojo, HarmBench, InjecAgent."""

    name = "agent_safety"
    # what an attacker wants of an agent does not change with the day
    dated = False
    version = "1"
    case_model = SafetyCase
    suite_model = SafetySuiteConfig
    scripted = SCRIPTED
    cluster = "injection_task"
    test_suites = EVAL_SUITES

    def read(self, result: object) -> SafetyOutcome:
        """Read a result; see `outcome.read`."""
        return reading.read(result)

    def score(self, case: SafetyCase, outcome: SafetyOutcome, rules: SafetySuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules)

    def facts(self, case: SafetyCase, outcome: SafetyOutcome, score: Score) -> RecordFacts:  # noqa: ARG002 - the decision is the outcome's
        """Put case and outcome into the wire record's words."""
        return RecordFacts(
            attack_category=case.notes.attack_category,
            expected=case.expected.decision,
            agent_decision=outcome.decision,
            utility=scoring.utility_of(case, outcome),
            valid=outcome.valid if case.input.suite == "injecagent" else None,
            judge=None if outcome.judge is None else outcome.judge.name,
            test_suite=case.input.suite,
            extra=summary.own_object(case, outcome),
        )

    def summary(self, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """Give the lines of a run's summary; see `summary.lines`."""
        return summary.lines(records)

    def target(self, rules: SafetySuiteConfig) -> Target:
        """Give the reference target, which hands a case to its benchmark's own pipeline."""

        def verify(request: VerifyRequest, context: VerifyContext) -> Any:
            # each benchmark has needs of its own: only the one that is asked for is imported
            benchmark = import_module(f"{__package__}.{request.input['suite']}.target")
            return benchmark.run(request, context, rules)

        return verify

    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """Give the guards that come with the pack: `spotlight`, `redact`, `tool_policy`."""
        from pytest_packbench.packs.agent_safety.guards.standard import Redact, Spotlight, ToolPolicy

        return {guard.name: guard for guard in (Spotlight, Redact, ToolPolicy)}

    def roles(self, rules: SafetySuiteConfig) -> Mapping[str, tuple[str, str]]:
        """Give the judge that is a model of its own, where the suite names it."""
        from pytest_packbench.packs.agent_safety.judges.standard import BACKEND, LLAMA_GUARD, MODEL, ROLE

        return {ROLE: (BACKEND, MODEL)} if LLAMA_GUARD in rules.judges else {}

    def unusable(self, rules: SafetySuiteConfig) -> str:
        """Say which extra is missing, where the suite names its benchmark."""
        if rules.benchmark != "agentdojo":
            return ""
        from pytest_packbench.packs.agent_safety.agentdojo.target import install_advice

        return install_advice()

    def test_id(self, suite: str, case: Case) -> str:
        """Give the upstream form: `agentdojo:banking:user_task_0:injection_task_6`."""
        if not isinstance(case, SafetyCase):
            return super().test_id(suite, case)
        return f"{case.input.suite}:{case.input.upstream_id}"

    def facets(self, case: SafetyCase) -> dict[str, str]:
        """Give the attack, its category, the task that it brings along, and the case's own groups."""
        found = {"attack": case.input.attack, "attack_category": case.notes.attack_category}
        if case.input.suite == "agentdojo":
            ids = case.input.ids
            found[self.cluster] = f"{ids['environment']}:{ids['injection_task']}"
        elif case.input.suite == "injecagent":
            # one attack is paired with every user tool, base and enhanced
            wanted = case.input.material.get("attacker_tools") or ()
            found |= {self.cluster: f"{case.case_type}:{', '.join(map(str, wanted))}"} if wanted else {}
        return {**found, **case.notes.groups}

    def explain(self, case: SafetyCase, outcome: SafetyOutcome) -> list[Comparison]:
        """Give the rows expected against actual: the decision, the attack, the user's task, the guards, the calls."""
        calls = ", ".join(call.name + (" (denied)" if call.status == "denied" else "") for call in outcome.tool_calls)
        fired = ", ".join(f"{one.hook} {one.decision}" for one in outcome.firings)
        landed = {True: "landed", False: "did not land", None: "not known"}[outcome.landed]
        reached = "reached the agent" if outcome.exposed else "did not reach the agent"
        removed = f", removed by {', '.join(outcome.removed_by)}" if outcome.removed_by else ""
        told = {True: "done", False: "not done", None: "not known"}
        return [
            Comparison(what="decision", expected=case.expected.decision, actual=outcome.decision),
            Comparison(what="attack", expected="gets nothing", actual=f"{landed}; {reached}{removed}"),
            Comparison(what="user's task", expected="done", actual=told[scoring.utility_of(case, outcome)]),
            Comparison(what="guards", expected="", actual=fired or "none fired"),
            Comparison(what="tool calls", expected="", actual=calls or "none"),
        ]

    def starter(self) -> Starter:
        """Give a suite of two harmless attacks in InjecAgent's form, and an agent that falls for one."""
        return read_starter(__package__)

    def importers(self) -> tuple[Importer, ...]:
        """Give the kinds of `packbench import` that make cases of this pack."""
        from pytest_packbench.packs.agent_safety.agentdojo.importer import AgentDojoImporter
        from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
        from pytest_packbench.packs.agent_safety.injecagent.importer import InjecAgentImporter

        return (AgentDojoImporter(), HarmBenchImporter(), InjecAgentImporter())
