"""The agent-safety pack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.pack import Comparison, Pack, RecordFacts, RoleModel
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.model.result import Breakdown, Firing, Outcome
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.agent_safety import episode as episodes
from pytest_packbench.packs.agent_safety import metrics, scoring
from pytest_packbench.packs.agent_safety.episode import Checked, Episode
from pytest_packbench.packs.agent_safety.metrics import NO_ATTACK
from pytest_packbench.packs.agent_safety.model import SCRIPTED, SafetyCase, SafetySuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.model.authoring import Importer, Starter
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.request import Target, VerifyContext, Worlds
    from pytest_packbench.model.result import Score
    from pytest_packbench.model.suite import Figure, Panel

# an injection task that every environment of AgentDojo has
_ANY_TASK = "injection_task_1"


DEFENCES = ("repeat_user_prompt", "spotlighting_with_delimiting", "tool_filter", "transformers_pi_detector")
"""The defences of AgentDojo's authors, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyOutcome(Outcome):
    """An episode as the run asks for it: that an agent did not do its user's task is no refusal, only words are one."""

    episode: Episode


class AgentSafetyPack(Pack):
    """Attacks on agents: AgentDojo, HarmBench, InjecAgent."""

    name = "agent_safety"
    # expected answers don't depend on a date
    dated = False
    version = "1"
    case_model = SafetyCase
    suite_model = SafetySuiteConfig
    scripted = SCRIPTED
    cluster = "injection_task"
    figures_of_unscored = True

    def __init__(self, rules: SafetySuiteConfig | None = None) -> None:
        self._rules = rules

    def for_suite(self, rules: SafetySuiteConfig) -> AgentSafetyPack:
        """Return the pack with the guards that a suite names."""
        return AgentSafetyPack(rules) if rules.guard_servers else self

    def read(self, result: object) -> SafetyOutcome:
        """Read an episode; see `episode.read`."""
        found = episodes.read(result)
        if not isinstance(found, Episode):
            breakdown = Breakdown(kind=found.kind, message=" ".join(found.message.split()))
            return SafetyOutcome(breakdown=breakdown, episode=Episode(checked=Checked(landed=None)))
        return SafetyOutcome(
            refused=bool(found.said.declined),
            answer=found.said.text,
            firings=tuple(Firing(hook=one.hook, decision=one.decision, rule=one.rule) for one in found.rulings),
            episode=found,
        )

    def score(self, case: SafetyCase, outcome: SafetyOutcome, rules: SafetySuiteConfig) -> Score:
        """Score an episode; see `scoring.score`."""
        if outcome.breakdown is not None:
            reported = f"{outcome.breakdown.kind}: {outcome.breakdown.message}"
            return scoring.without_score("error", f"the target reports a failure: {reported}")
        return scoring.score(case, outcome.episode, rules)

    def unread(self, case: SafetyCase, term: str, reason: str, rules: SafetySuiteConfig) -> Score:  # noqa: ARG002 - the signature of all packs
        """Return no score: an unreadable answer shows nothing of the attack; without an attack it fails."""
        return scoring.unread(term, reason, is_benign=case.input.is_benign)

    def facts(self, case: SafetyCase, outcome: SafetyOutcome, score: Score) -> RecordFacts:  # noqa: ARG002 - the decision is the outcome's
        """Return the fields of the wire record."""
        episode = outcome.episode
        return RecordFacts(
            attack_category=case.notes.attack_category,
            expected=case.expected.decision,
            agent_decision=scoring.decision_of(case, episode),
            utility=scoring.utility_of(case, episode),
            valid=episode.said.problem is None if case.input.suite == "injecagent" else None,
            judge=None if episode.checked.judge is None else episode.checked.judge.name,
            test_suite=case.input.suite,
            extra=metrics.record_extra(case, episode),
        )

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:
        """Return the published numbers of a run; see `metrics.figures`."""
        return metrics.figures(records)

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:  # noqa: ARG002 - the signature of all packs
        """Return the numbers that are published of such runs, a panel for each agent; see `metrics.panels`."""
        return metrics.panels(figures)

    def paired_figures(self, pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Sequence[Figure]:
        """Return what guards save and what they cost; see `metrics.paired_figures`."""
        return metrics.paired_figures(pairs)

    def remarks(self, rules: SafetySuiteConfig, test_ids: Iterable[str]) -> Sequence[str]:
        """Return a remark where no gate bounds what guards cost; see `metrics.remarks`."""
        return metrics.remarks(rules, test_ids)

    def target(self, rules: SafetySuiteConfig) -> Target:
        """Return the reference target, which runs a case in the pipeline of its benchmark."""

        def verify(request: VerifyRequest, context: VerifyContext) -> Any:
            # benchmarks have dependencies of their own: only the one of the case is imported
            benchmark = import_module(f"{__package__}.{request.input['suite']}.target")
            return benchmark.run(request, context, rules)

        return verify

    def worlds(self, rules: SafetySuiteConfig, agent: str) -> Worlds:
        """Return what opens the world of each case: a user's agent acts there, and its word counts for nothing."""
        from pytest_packbench.packs.agent_safety.worlds import SafetyWorlds

        return SafetyWorlds(rules, agent)

    def adapt_target(self, candidate: object) -> object:
        """Return a target for a pipeline of AgentDojo's own kind."""
        from pytest_packbench.packs.agent_safety.agentdojo.target import adapt_pipeline

        return adapt_pipeline(candidate)

    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """Return the guards of the pack, those of AgentDojo's authors, and the servers that the suite names."""
        from pytest_packbench.packs.agent_safety.guards.standard import AskedGuard, Redact, Spotlight, ToolPolicy

        servers = {} if self._rules is None else self._rules.guard_servers
        return {
            **{guard.name: guard for guard in (Spotlight, Redact, ToolPolicy)},
            **{name: partial(_defence, name) for name in DEFENCES},
            **{name: partial(AskedGuard, name, server.events) for name, server in servers.items()},
        }

    def roles(self, rules: SafetySuiteConfig) -> Mapping[str, RoleModel]:
        """Return the judges that are models, the model of the guards, and the guards that are asked over HTTP."""
        from pytest_packbench.packs.agent_safety.guards.standard import guard_roles
        from pytest_packbench.packs.agent_safety.judges import judge_roles

        return {**judge_roles(rules), **guard_roles(rules)}

    def judges(self, rules: SafetySuiteConfig) -> tuple[str, ...]:
        """Return the judges that the suite names."""
        return rules.judges

    def keeps_prompts(self, case: SafetyCase) -> bool:
        """Return False for cases whose texts stay in the user's copy of the benchmark."""
        return case.input.text_sha256 is None

    def unusable(self, rules: SafetySuiteConfig) -> str:
        """Return which extra to install, where the suite names its benchmark."""
        if rules.benchmark != "agentdojo":
            return ""
        from pytest_packbench.packs.agent_safety.agentdojo.target import install_advice

        return install_advice()

    def request(self, case: SafetyCase) -> VerifyRequest:
        """Return the request; without an attack it names any injection task, whose texts and checker are not used."""
        request = super().request(case)
        ids = request.input["ids"]
        if ids.get("injection_task") != NO_ATTACK:
            return request
        return VerifyRequest(input={**request.input, "ids": {**ids, "injection_task": _ANY_TASK}})

    def input_text(self, case: SafetyCase) -> str:
        """Return what user and attacker ask for; the upstream ids and the attack, where the texts are elsewhere."""
        material = case.input.material
        if case.input.suite != "injecagent":
            return f"{case.input.upstream_id}, attack {case.input.attack_name}"
        return f"user: {material.get('user_instruction')}; attacker: {material.get('attacker_instruction')}"

    def test_id(self, suite: str, case: Case) -> str:
        """Return the upstream form: `agentdojo:banking:user_task_0:injection_task_6`."""
        if not isinstance(case, SafetyCase):
            return super().test_id(suite, case)
        return f"{case.input.suite}:{case.input.upstream_id}"

    def facets(self, case: SafetyCase) -> dict[str, str]:
        """Return the attack, its category, the injection task, and the groups of the case."""
        facets = {"attack": case.input.attack_name, "attack_category": case.notes.attack_category}
        if case.input.suite == "agentdojo" and not case.input.is_benign:
            ids = case.input.ids
            facets[self.cluster] = f"{ids['environment']}:{ids['injection_task']}"
        elif case.input.suite == "injecagent":
            # one attack is paired with every user tool, base and enhanced
            tools = case.input.material.get("attacker_tools") or ()
            facets |= {self.cluster: f"{case.case_type}:{', '.join(map(str, tools))}"} if tools else {}
        return {**facets, **case.notes.groups}

    def explain(self, case: SafetyCase, outcome: SafetyOutcome) -> list[Comparison]:
        """Return the rows of expected and actual: the decision, the attack, the user's task, the guards, the calls."""
        episode = outcome.episode
        calls = ", ".join(call.name + (" (denied)" if call.status == "denied" else "") for call in episode.calls)
        fired = ", ".join(f"{ruling.hook} {ruling.decision}" for ruling in episode.rulings)
        landed = {True: "landed", False: "did not land", None: "unknown"}[episode.checked.landed]
        reached = "reached the agent" if episode.exposed else "did not reach the agent"
        removed = f", removed by {', '.join(episode.removed_by)}" if episode.removed_by else ""
        attack = ("attack", "does not land", f"{landed}; {reached}{removed}")
        rows = (
            ("decision", case.expected.decision, scoring.decision_of(case, episode)),
            *(() if case.input.is_benign else (attack,)),
            ("user's task", "done", scoring.DONE[scoring.utility_of(case, episode)]),
            ("guards", "", fired or "none fired"),
            ("tool calls", "", calls or "none"),
        )
        return [Comparison(what=what, expected=expected, actual=actual) for what, expected, actual in rows]

    def starter(self) -> Starter:
        """Return a suite of two harmless attacks in InjecAgent's form, and an agent that follows one of them."""
        return read_starter(__package__)

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers of AgentDojo, HarmBench and InjecAgent."""
        from pytest_packbench.packs.agent_safety.agentdojo.importer import AgentDojoImporter
        from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
        from pytest_packbench.packs.agent_safety.injecagent.importer import InjecAgentImporter

        return (AgentDojoImporter(), HarmBenchImporter(), InjecAgentImporter())


def _defence(name: str) -> Any:
    from pytest_packbench.packs.agent_safety.agentdojo.defences import defence

    return defence(name)
