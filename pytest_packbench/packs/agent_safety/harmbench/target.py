"""The reference target for HarmBench: the behaviour is requested as published, a judge rules on the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.episode import Checked, NoEpisodeError, Said, Turn, said_by
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.harmbench.behaviors import MAX_ANSWER_TOKENS, find_behavior
from pytest_packbench.packs.agent_safety.harmbench.classifier import (
    REPRODUCED,
    classifier,
    repository_of,
    similarity,
    unassessed,
)
from pytest_packbench.packs.agent_safety.judges import (
    LLAMA_GUARD,
    REFUSAL_DETECTOR,
    ROLES,
    JudgeQuestion,
    JudgeRuling,
    choose_judge,
    declines,
    judge_roles,
    llama_guard,
)
from pytest_packbench.packs.agent_safety.model import is_scripted
from pytest_packbench.packs.agent_safety.worlds import AgentWorld

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.episode import Episode
    from pytest_packbench.packs.agent_safety.judges import Judge, Word
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

FILE = "harmbench"
"""The file or folder that ini `packbench_harmbench` names: the user's CSV files."""

HARMLESS = Path(__file__).with_name("harmless.csv")
"""Harmless behaviours, for the bundled suite."""

KEPT = "(the request; its text stays in the CSV file)"
"""What an episode has in the place of the text of a behaviour."""
# the answers of the scripted agents: they show how the suite works and say nothing about any model
_COMPLIES = "Sure, here it is, just as you asked."
_DECLINES = "I'm sorry, but I can't help with that."


async def run(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a case with one call of the role `answer`; its text is read from the context's file `harmbench`.

    Returns:
        The episode as plain JSON, without the text of the behaviour. `landed` is null for a copyright behaviour that no
        judge can rule on, which is not sent. Its answer is unreadable where it is empty; there is no episode where the
        text is missing or has changed, or where the judge failed. An answer that was cut off is judged as far as it
        goes, as the benchmark does.

    Raises:
        GuardError: a guard raised an exception.
        Exception: whatever the model call raises.
    """
    try:
        world, said = RequestWorld(request, context, rules, context.model, scripted=is_scripted(context)), Said()
        if await world.chain.off_loop(world.begin):
            messages = ({"role": "user", "content": world.task},)
            asked = ModelRequest(role="answer", system="", messages=messages, max_output_tokens=MAX_ANSWER_TOKENS)
            script = _DECLINES if world.agent == "refuser" else _COMPLIES
            said = Said(text=script) if world.scripted else await said_by(context.llm, asked)
        return (await world.ending(said)).as_json()
    except NoEpisodeError as error:
        return error.as_json()


class RequestWorld(AgentWorld):
    """The world of a behaviour: the request is the task, there are no tools, and the judge rules on the answer.

    Raises:
        FileError: the text of the behaviour is missing or has changed.
        JudgeError: there is no such judge.
    """

    def __init__(
        self,
        request: VerifyRequest,
        context: VerifyContext,
        rules: SafetySuiteConfig,
        agent: str,
        *,
        scripted: bool | None = None,
    ) -> None:
        case, files = request.input, [path for path in (context.files.get(FILE), HARMLESS) if path]
        self._behavior = find_behavior(files, case["ids"]["behavior"], case["text_sha256"] or "")
        self._repository = repository_of(files[0])
        self._judge, *self._others = _judges(context, rules, self._repository)
        self._unassessed = unassessed(self._behavior, self._judge, self._repository)
        text = self._behavior.request
        super().__init__(request, Chain.of_case(context, rules, attack_patterns(text), text), agent, scripted=scripted)

    def begin(self) -> bool:
        """Let the guards rule on the request; a behaviour that no judge can rule on is not sent."""
        return not self._unassessed and super().begin()

    def prompt(self) -> str:
        """Return the request."""
        return self._behavior.request

    async def ending(self, said: Said) -> Episode:
        """Have the judges rule on the answer, if there is one; it meets the guards before them.

        Raises:
            JudgeError: a judge failed.
        """
        # the published limit counts tokens of a model that is not known here
        details: dict[str, Any] = {"answer_clipped": False} if self.scripted is None else {}
        turns: list[Turn] = []
        if self.task is not None:
            request = Turn(role="user", text=KEPT, attack=self.chain.exposed)
            turns = [request, Turn(role="assistant", text=said.text or "")]
        if self._unassessed:
            ended, checked = Said(), Checked(landed=None)
            details["not_assessed"] = self._unassessed
        else:
            ended, checked = await self._ruled(said)
        versions = {"harmbench": self._request.input["version"]}
        return self.episode(turns, ended, checked, versions, **details)

    async def _ruled(self, said: Said) -> tuple[Said, Checked]:
        """Return how the answer is read, and the judge's ruling on it, or why there is none."""
        if self.task is None:
            return self._without_ruling("a guard denied the request")
        text = await self.chain.off_loop(self.chain.on_final_answer, said.text or "")
        if said.declined:
            return self._without_ruling(f"the model declined through its API: {said.text}")
        if self.chain.answer_denied:
            return self._without_ruling("a guard withheld the answer")
        if not text.strip():
            reason = said.problem or "the agent's answer is empty"
            return Said(problem=reason, cut_off=said.cut_off), self._without_ruling(reason)[1]
        behavior, second = self._behavior, None
        if behavior.functional_category == "copyright" and self._repository is not None:
            highest = similarity(behavior, self._repository, text)
            word: Word = "unsafe" if highest > REPRODUCED else "safe"
            ruling = JudgeRuling(word=word, categories=(f"similarity {highest:.2f}",))
        else:
            question = JudgeQuestion(
                asked=self.task,
                answered=text,
                category=behavior.semantic_category,
                behavior=behavior.behavior,
                context=behavior.context_string,
            )
            ruling = await self._judge(question)
            for other in self._others:
                second = other.verdict(await other(question))
        unsafe = ruling.word == "unsafe"
        declined = declines(text) if ruling.declined is None else ruling.declined
        checked = Checked(landed=unsafe, judge=self._judge.verdict(ruling), second_judge=second)
        if said.problem is not None and not said.cut_off and not unsafe:
            # only of an answer that was cut off does a part count as safe
            return Said(problem=said.problem), checked
        return Said(declined=declined and not unsafe), checked

    def _without_ruling(self, reason: str) -> tuple[Said, Checked]:
        # it names the judge, because it counts in the judge's rates
        return Said(declined=True), Checked(landed=False, judge=self._judge.unasked(reason))


def _judges(context: VerifyContext, rules: SafetySuiteConfig, repository: Path | None) -> list[Judge]:
    """Return the judges of a suite; those that are models are asked in their role.

    Args:
        context: has the model client, and the user's own judges.
        rules: the suite's rules.
        repository: the user's copy of HarmBench's repository, with the prompts of its classifier; None without one.

    Raises:
        JudgeError: there is no such judge.
    """
    known: dict[str, Any] = {}
    # the engine sends a request of a judge's role to the judge's model
    for role, (_, model, _) in judge_roles(rules).items():
        if (name := rules.judges[ROLES.index(role)]) == LLAMA_GUARD:
            known[name] = llama_guard(context.llm, model, role)
        else:
            known[name] = classifier(repository, context.llm, model, role)
    known |= context.judges
    return [choose_judge(name, known) for name in rules.judges or (REFUSAL_DETECTOR,)]
