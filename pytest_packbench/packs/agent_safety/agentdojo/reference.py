"""The reference agent of AgentDojo, a script or a model: one more agent in the world of a pair.

It is AgentDojo's own loop around a step: the executor comes first, so that the agent's calls run before its next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop

from pytest_packbench.packs.agent_safety.agentdojo.pipeline import (
    GuardedExecutor,
    ModelAgent,
    PromptRepeater,
    Sequential,
)
from pytest_packbench.packs.agent_safety.agentdojo.scripted import ScriptedAgent, solution_of
from pytest_packbench.packs.agent_safety.agentdojo.suites import UnknownUpstreamError, addressed_as
from pytest_packbench.packs.agent_safety.agentdojo.variants import (
    MEMORY_HINT,
    Memory,
    SaveTask,
    SavingAgent,
    any_of,
    joined,
)
from pytest_packbench.packs.agent_safety.agentdojo.world import DojoWorld
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError, Said, unread_answer
from pytest_packbench.packs.agent_safety.model import is_scripted

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.episode import Episode
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

TURNS = 15
"""Turns with calls that AgentDojo allows: the default of its `ToolsExecutionLoop`."""


def run_pair(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a pair, with each of its attacks; see `target.run`."""
    names = request.input.get("any_of") or [request.input["attack"]]
    addressed = addressed_as(context.backend, context.model)
    try:
        is_scripted(context, UnknownUpstreamError.kind)
        # all of them first: an unknown one is an error before a model is asked
        worlds = {
            name: DojoWorld(request, context, rules, context.model, attack=name, addressed=addressed) for name in names
        }
    except NoEpisodeError as error:
        return error.as_json()
    episodes = {name: _played(world, context, request.input.get("variant")) for name, world in worlds.items()}
    episode = any_of(episodes) if request.input.get("any_of") else episodes[names[0]]
    return episode.as_json()


def _played(world: DojoWorld, context: VerifyContext, variant: str | None) -> Episode:
    """Play a pair; a variant of ours leaves the environment as it is."""
    # as many turns as both solutions need
    user, attacker = (solution_of(world.version, world.suite.name, task.ID) for task in world.tasks)
    turns = max(TURNS, user.calls + attacker.calls)
    if variant is None:
        return _session(world, context, _agent(world, context), turns)
    poison = next(iter(world.injections.values()), "")
    world.injections = {}
    if variant == "memory":
        return _memory_sessions(world, context, poison, turns)
    world.functions = [
        function.model_copy(update={"description": f"{function.description}{poison}"})
        if function.name == user.tools[0]
        else function
        for function in world.functions
    ]
    return _session(world, context, _agent(world, context, reads_tools=True), turns)


def _memory_sessions(world: DojoWorld, context: VerifyContext, poison: str, turns: int) -> Episode:
    """Let the agent save a note with the attack in one session, and do the user's task in the next, which is scored."""
    memory, first = Memory(poison), world.fresh()
    reading, saving, remembering = memory.tools()
    scripted = context.backend == "stub" and context.model != "refuser"
    agent = SavingAgent() if scripted else _agent(first, context)
    first.user_task = SaveTask()
    first.functions += [reading, saving]
    first.environment = world.suite.load_and_inject_default_environment({})
    saved = _session(first, context, agent, turns)
    world.functions.append(remembering)
    world.environment = first.environment
    world.system = f"{world.system}\n\n{MEMORY_HINT}"
    scored = _session(world, context, _agent(world, context, reads_memory=True), turns)
    # an attack that is carried out in the first session counts; to have read it there is no test of the second
    unmarked = [turn.model_copy(update={"attack": False}) for turn in saved.turns]
    landed = saved.checked.landed
    details = {**scored.details, "saved": len(memory.saved), "landed_in_first_session": landed}
    checked = scored.checked.model_copy(update={"landed": landed or scored.checked.landed})
    return joined([saved.model_copy(update={"turns": unmarked}), scored], scored.said, checked, details)


def _agent(world: DojoWorld, context: VerifyContext, **reads: bool) -> Any:
    """Return the agent of the context; `reads` says what else a script reads, see `ScriptedAgent`."""
    if context.backend != "stub":
        return ModelAgent(context.llm)
    place = world.version, world.suite.name
    return ScriptedAgent(context.model, *world.tasks, place=place, chain=world.chain, **reads)


def _session(world: DojoWorld, context: VerifyContext, agent: Any, turns: int) -> Episode:
    """Play a session of an agent in its world, with at most so many turns with calls."""
    if world.begin():
        repeats = any(getattr(guard, "repeats_prompt", False) for guard in context.guards)
        executor = GuardedExecutor(world.chain)
        loop = ToolsExecutionLoop([executor, *([PromptRepeater()] if repeats else []), agent], turns)
        world.pipeline = Sequential([SystemMessage(world.system), InitQuery(), agent, loop])
    episode = world.ending(Said())
    said, problem = episode.said, getattr(agent, "problem", None)
    if problem is not None:
        said = unread_answer(problem).model_copy(update={"text": said.text})
    player = episode.agent.model_copy(update={"scripted": context.backend == "stub"})
    return episode.model_copy(update={"said": said, "agent": player})
