"""The agent-safety pack."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.pack import Comparison, Judges, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.packs.agent_safety import metrics, scoring
from pytest_packbench.packs.agent_safety.episode import Episode
from pytest_packbench.packs.agent_safety.metrics import NO_ATTACK
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.answer import Agreement
    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.request import Target, VerifyContext
    from pytest_packbench.model.result import Term
    from pytest_packbench.packs.agent_safety.worlds import SafetyWorlds

# an injection task that every environment of AgentDojo has
_ANY_TASK = "injection_task_1"
_WORDS = {True: "landed", False: "did not land", None: "unknown"}


class AgentSafetyPack(Pack):
    """Attacks on agents: AgentDojo, HarmBench, InjecAgent."""

    name = "agent_safety"
    version = "1"
    case_model = SafetyCase
    answer_model = Episode
    suite_model = SafetySuiteConfig
    metrics = metrics.SafetyMetrics()

    def terms(self, case: SafetyCase, answer: Episode, rules: SafetySuiteConfig) -> Iterator[Term | Agreement]:
        """Yield what an episode earns; see `scoring.terms`."""
        return scoring.terms(case, answer, rules)

    def request(self, case: SafetyCase) -> VerifyRequest:
        """Return the request; without an attack it names any injection task, whose texts and checker are not used."""
        request = super().request(case)
        ids = request.input["ids"]
        if ids.get("injection_task") != NO_ATTACK:
            return request
        return VerifyRequest(input={**request.input, "ids": {**ids, "injection_task": _ANY_TASK}})

    def facets(self, case: SafetyCase) -> dict[str, str]:
        """Return the attack, its category, the injection task, and the groups of the case."""
        facets = {"attack": case.input.attack_name, "attack_category": case.notes.attack_category}
        if case.input.suite == "agentdojo" and not case.input.is_benign:
            ids = case.input.ids
            facets[metrics.CLUSTER] = f"{ids['environment']}:{ids['injection_task']}"
        elif case.input.suite == "injecagent":
            # one attack is paired with every user tool, base and enhanced
            tools = case.input.material.get("attacker_tools") or ()
            facets |= {metrics.CLUSTER: f"{case.case_type}:{', '.join(map(str, tools))}"} if tools else {}
        return {**facets, **case.notes.groups}

    def facts(self, case: SafetyCase, answer: Episode | None, terms: Sequence[Term]) -> RecordFacts:  # noqa: ARG002 - the decision is the episode's
        """Return the fields of the wire record, and what a failing case shows."""
        if answer is None:
            return RecordFacts()
        return RecordFacts(
            attack_category=case.notes.attack_category,
            expected=case.expected.decision,
            agent_decision=scoring.decision_of(case, answer),
            utility=scoring.utility_of(case, answer),
            valid=answer.said.problem is None if case.input.suite == "injecagent" else None,
            judge=None if answer.checked.judge is None else answer.checked.judge.name,
            test_suite=case.input.suite,
            extra=metrics.record_extra(case, answer),
            compared=_compared(case, answer),
        )

    def target(self, rules: SafetySuiteConfig) -> Target:
        """Return the reference target, which runs a case in the pipeline of its benchmark."""

        def verify(request: VerifyRequest, context: VerifyContext) -> Any:
            # benchmarks have dependencies of their own: only the one of the case is imported
            benchmark = import_module(f"{__package__}.{request.input['suite']}.target")
            return benchmark.run(request, context, rules)

        return verify

    def world(self, rules: SafetySuiteConfig, agent: str) -> SafetyWorlds:
        """Return what opens the world of each case: a user's agent acts there, and its word counts for nothing."""
        from pytest_packbench.packs.agent_safety.worlds import SafetyWorlds

        return SafetyWorlds(rules, agent)

    def judges(self, rules: SafetySuiteConfig) -> Judges:
        """Return the judges that the suite names, and the models that judges and guards ask."""
        from pytest_packbench.packs.agent_safety.guards.standard import guard_roles
        from pytest_packbench.packs.agent_safety.judges import judge_roles

        return Judges(rules.judges, {**judge_roles(rules), **guard_roles(rules)})

    def tools(self) -> Tools:
        """Return the importers of the benchmarks, and the starter."""
        from pytest_packbench.packs.agent_safety.tools import SafetyTools  # only commands need it

        return SafetyTools()


def _compared(case: SafetyCase, episode: Episode) -> Iterator[Comparison]:
    """Yield the rows of expected and actual: the decision, the attack, the user's task, the guards, the calls."""
    calls = ", ".join(call.name + (" (denied)" if call.status == "denied" else "") for call in episode.calls)
    fired = ", ".join(f"{ruling.hook} {ruling.decision}" for ruling in episode.rulings)
    reached = "reached the agent" if episode.exposed else "did not reach the agent"
    removed = f", removed by {', '.join(episode.removed_by)}" if episode.removed_by else ""
    decision, done = scoring.decision_of(case, episode), scoring.DONE[scoring.utility_of(case, episode)]
    rows = (
        ("decision", case.expected.decision, decision),
        ("attack", "does not land", f"{_WORDS[episode.checked.landed]}; {reached}{removed}"),
        ("user's task", "done", done),
        ("guards", "", fired or "none fired"),
        ("tool calls", "", calls or "none"),
    )
    for what, expected, actual in rows:
        if what != "attack" or not case.input.is_benign:
            yield Comparison(what=what, expected=expected, actual=actual)
