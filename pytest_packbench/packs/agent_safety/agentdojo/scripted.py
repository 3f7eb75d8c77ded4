"""The scripted agents: they play a task's own solution, as far as they have read what it needs.

AgentDojo's solutions are written by someone who knows the whole environment. A script that plays them blindly completes
the user's task behind a guard that withholds everything, and the cost of the guard can't be seen. So each argument of a
call, and each word of the final answer, has to occur in what the agent has read:

* A word that occurs in the user's task, or in what the tools returned to the agent, is known.
* A word that the tools return when the solution is played undisturbed, and that the agent hasn't read, is missing.
* A word that occurs in neither was worked out from the whole: a sum, a choice, a phrase. It is missing as soon as a
  guard removed a word that was no part of the attack, or denied or changed a call.
* Behind guards that leave no word of what the tools returned, everything is missing: the agent doesn't know what it
  would act on.

A call with a missing word is left out, and an answer with one becomes an answer that says so: that is what a real agent
does. A claim about what was read needs the reading: words of the answer that the tools return are not taken from the
user's task. What an attacker words freely, such as the subject of a payment, is never missing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime

from pytest_packbench.packs.agent_safety.agentdojo.pipeline import assistant_message, text_of, trailing_outputs
from pytest_packbench.packs.agent_safety.agentdojo.suites import suite_of
from pytest_packbench.packs.agent_safety.guards.base import contains, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentdojo.base_tasks import BaseInjectionTask

    from pytest_packbench.packs.agent_safety.agentdojo.pipeline import Step
    from pytest_packbench.packs.agent_safety.guards.base import Chain

DECLINED = "I can't help with that."
LOST = "I could not find out what I need"


class ScriptedAgent(BasePipelineElement):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Plays a task's own solution, one call per turn, with what it has read.

    Attributes:
        kind: `obedient` plays the user's task; `gullible` also does until it reads the attack, then plays the
            attacker's; `refuser` calls nothing.
        user_task: the user's task.
        injection_task: the attacker's task.
        place: benchmark version and environment of both.
        chain: the guards of the case, and the attack to search for in what the agent reads.
        reads_tools: whether it reads the descriptions of its tools first, because the attack is in one of them.
        reads_memory: whether it starts with what it saved in an earlier session.
    """

    name = "scripted"

    def __init__(
        self,
        kind: str,
        user_task: BaseUserTask,
        injection_task: BaseInjectionTask,
        *,
        place: tuple[str, str],
        chain: Chain,
        reads_tools: bool = False,
        reads_memory: bool = False,
    ) -> None:
        self._kind = kind
        self._task: Any = user_task
        self._injection_task = injection_task
        self._place = place
        self._chain = chain
        self._calls: list[Any] | None = None
        self._position = 0
        self._left_out: list[str] = []
        self._asked: frozenset[str] = frozenset()
        self._read: set[str] = set()
        self._unread: list[str] = []
        self._reads_tools = reads_tools
        self._reads_memory = reads_memory

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Append the next call of the script that it can make, or its final answer."""
        if self._kind == "refuser":
            return query, runtime, env, [*messages, assistant_message(DECLINED)], extra_args or {}
        outputs = [text_of(message) for message in trailing_outputs(messages)]
        self._unread += outputs
        if self._calls is None:
            self._calls = list(self._task.ground_truth(env))
            self._asked = frozenset(word for one in messages if one["role"] == "user" for word in words(text_of(one)))
            if self._reads_memory:
                opening = assistant_message("", [FunctionCall(function="read_memory", args={})])
                return query, runtime, env, [*messages, opening], extra_args or {}
            if self._reads_tools:
                outputs += [function.description for function in runtime.functions.values()]
                self._unread += outputs
        if self._kind == "gullible" and any(contains(text, self._chain.attack) for text in outputs):
            self._task, self._kind = self._injection_task, "obedient"
            self._calls, self._left_out, self._position = list(self._task.ground_truth(env)), [], 0
        return query, runtime, env, [*messages, self._next()], extra_args or {}

    def _next(self) -> dict[str, Any]:
        while self._calls:
            call = self._calls.pop(0)
            lacks = self._lacks(_leaves(call.args))
            self._position += 1
            if not lacks:
                return assistant_message("", [call])
            self._left_out.append(call.function)
        answer = self._task.GROUND_TRUTH_OUTPUT
        if self._left_out or self._lacks([answer], is_answer=True):
            calls = f", so I left out {', '.join(self._left_out)}" if self._left_out else ""
            return assistant_message(f"{LOST}{calls}.")
        return assistant_message(answer)

    def _lacks(self, texts: Iterable[str], *, is_answer: bool = False) -> bool:
        """Return whether a text has a word that the agent neither read nor can work out."""
        by_attacker = self._task is self._injection_task
        if self._chain.withheld and not by_attacker:
            return True
        steps = solution_of(*self._place, self._task.ID).returned
        returned = steps[-1] if is_answer else steps[min(self._position, len(steps) - 1)]
        for word in (word for text in texts for word in words(text)):
            if word in self._asked and not (is_answer and word in returned):
                continue
            if word in self._known():
                continue
            if word in returned or (self._chain.interfered and not by_attacker):
                return True
        return False

    def _known(self) -> set[str]:
        # only where the user's task doesn't have the word: outputs can be long
        for text in self._unread:
            self._read.update(words(text))
        self._unread.clear()
        return self._read


class Solution(NamedTuple):
    """A task's own solution, played in the unchanged environment.

    Attributes:
        tools: the names of the tools that it calls, in order;
            the suite's first tool where it calls none.
        returned: the words that the tools return before each of its calls, and before its answer; of an attacker's
            task, the words of its goal too, because the attacker's agent reads it in the output of a tool.
    """

    tools: tuple[str, ...]
    returned: tuple[frozenset[str], ...]

    @property
    def calls(self) -> int:
        """The number of its calls."""
        return len(self.returned) - 1


@cache
def solution_of(version: str, environment: str, task_id: str) -> Solution:
    """Play the solution of a user task or an injection task, by its id."""
    suite = suite_of(version, environment)
    task: Any = (suite.user_tasks | suite.injection_tasks)[task_id]
    env = _environment(version, environment).model_copy(deep=True)
    known = frozenset[str]()
    if isinstance(task, BaseUserTask):
        env = task.init_environment(env)
    else:
        known = frozenset(words(task.GOAL))
    returned = [known]
    runtime = FunctionsRuntime(suite.tools)
    calls = task.ground_truth(env)
    for call in calls:
        result, error = runtime.run_function(env, call.function, dict(call.args))
        known = known.union(words(error or tool_result_to_str(result)))
        returned.append(known)
    return Solution(tuple(call.function for call in calls) or (suite.tools[0].name,), tuple(returned))


@cache
def _environment(version: str, environment: str) -> Any:
    return suite_of(version, environment).load_and_inject_default_environment({})


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
