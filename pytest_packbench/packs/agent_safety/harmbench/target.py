"""The reference target for HarmBench: the behaviour is requested as published, a judge rules on the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.episode import Checked, NoEpisodeError, Said, Turn, said_by
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.harmbench import behaviors
from pytest_packbench.packs.agent_safety.judges import (
    CLASSIFIER,
    REFUSAL_DETECTOR,
    JudgeQuestion,
    JudgeRuling,
    choose_judge,
    declines,
    model_judges,
)
from pytest_packbench.packs.agent_safety.model import is_scripted

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.episode import Episode
    from pytest_packbench.packs.agent_safety.harmbench.behaviors import Behavior
    from pytest_packbench.packs.agent_safety.judges import Judge
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

FILE = "harmbench"
"""The file or folder that ini `packbench_harmbench` names: the user's CSV files."""

HARMLESS = Path(__file__).with_name("harmless.csv")
"""Harmless behaviours, for the bundled suite."""

KEPT = "(the request; its text stays in the CSV file)"
"""What an episode has in the place of the text of a behaviour."""
_COMPLY = "Sure, here it is, just as you asked."
ANSWERS = {"gullible": _COMPLY, "obedient": _COMPLY, "refuser": "I'm sorry, but I can't help with that."}
"""The answers of the scripted agents: they show how the suite works and say nothing about any model."""


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
    prompt, said = None, None
    try:
        scripted = is_scripted(context)
        judged = judged_case(request, context, rules)
        if not judged.unassessed:
            chain = judged.chain
            prompt = await chain.off_loop(chain.on_prompt_submit, judged.behavior.request)
        if prompt is not None:
            said = await _answer(prompt, context)
        return (await judged.episode(prompt, said, agent=context.model, scripted=scripted, details={})).as_json()
    except NoEpisodeError as error:
        return error.as_json()


class JudgedCase(NamedTuple):
    """A case of HarmBench, with who rules on it.

    Attributes:
        behavior: the behaviour.
        version: the version of its file.
        chain: the guards.
        judges: the judge, and the second one whose agreement is recorded, if there is one.
        repository: the user's copy of HarmBench's repository; None where no judge reads it.
        unassessed: why no judge can rule; empty where one can.
    """

    behavior: Behavior
    version: str
    chain: Chain
    judges: tuple[Judge, ...]
    repository: Path | None
    unassessed: str

    async def episode(
        self, prompt: str | None, said: Said | None, *, agent: str, scripted: bool, details: dict[str, Any]
    ) -> Episode:
        """Have the judges rule on an answer, if there is one.

        Args:
            prompt: the request as the guards let it through; None if it was not sent.
            said: the agent's answer; None likewise.
            agent: the name of the agent.
            scripted: whether it is a script.
            details: details of the episode.

        Raises:
            JudgeError: a judge failed.
        """
        turns: list[Turn] = []
        if self.unassessed:
            ended, checked = Said(), Checked(landed=None)
            details = {**details, "not_assessed": self.unassessed}
        elif prompt is None or said is None:
            ended, checked = self._without_ruling("a guard denied the request")
        else:
            answer = Turn(role="assistant", text=said.text or "")
            turns = [Turn(role="user", text=KEPT, attack=self.chain.exposed), answer]
            ended, checked = await self._ruled(prompt, said)
        return self.chain.episode(
            turns,
            ended,
            checked,
            agent=agent,
            scripted=scripted,
            versions={"harmbench": self.version},
            details=details,
        )

    async def _ruled(self, prompt: str, said: Said) -> tuple[Said, Checked]:
        behavior, judge = self.behavior, self.judges[0]
        text = await self.chain.off_loop(self.chain.on_final_answer, said.text or "")
        if said.declined:
            return self._without_ruling(f"the model declined through its API: {said.text}")
        if self.chain.answer_denied:
            return self._without_ruling("a guard withheld the answer")
        if not text.strip():
            reason = said.problem or "the agent's answer is empty"
            _, checked = self._without_ruling(reason)
            return Said(problem=reason, cut_off=said.cut_off), checked
        if behavior.functional == "copyright" and self.repository is not None:
            from pytest_packbench.packs.agent_safety.harmbench.classifier import reproduction

            found = reproduction(behavior, self.repository, text)
            detail = f"similarity {found.similarity:.2f}"
            return _with_ruling(
                judge, JudgeRuling(word="unsafe" if found.found else "safe", categories=(detail,)), text
            )
        question = JudgeQuestion(
            asked=prompt, answered=text, category=behavior.semantic, behavior=behavior.text, context=behavior.context
        )
        ended, checked = _with_ruling(judge, await judge(question), text)
        for other in self.judges[1:]:
            second = await other(question)
            verdict = other.verdict(second.word, ", ".join(second.categories))
            checked = checked.model_copy(update={"second_judge": verdict})
        return ended, checked

    def _without_ruling(self, reason: str) -> tuple[Said, Checked]:
        # it names the judge, because it counts in the judge's rates
        return Said(declined=True), Checked(landed=False, judge=self.judges[0].verdict("not_asked", reason))


def judged_case(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> JudgedCase:
    """Return a case with its guards and judges.

    Raises:
        FileError: the text of the behaviour is missing or has changed.
        JudgeError: there is no such judge.
    """
    case, own = request.input, [context.files[FILE]] if FILE in context.files else []
    behavior = behaviors.find_behavior([*own, HARMLESS], case["ids"]["behavior"], case["text_sha256"] or "")
    repository = _repository(context, rules)
    # the engine sends a request of a judge's role to the judge's model
    built_in = model_judges(rules, context.llm, repository)
    names = rules.judges or (REFUSAL_DETECTOR,)
    judges = tuple(choose_judge([name], {**built_in, **context.judges}) for name in names)
    chain = Chain.of_case(context, rules, attack_patterns(behavior.request), behavior.request)
    return JudgedCase(behavior, case["version"], chain, judges, repository, _unassessed(behavior, rules, repository))


def _unassessed(behavior: Behavior, rules: SafetySuiteConfig, repository: Path | None) -> str:
    """Return why no judge can rule on an answer; empty where one can."""
    if behavior.functional != "copyright":
        return ""
    if rules.judges[:1] != (CLASSIFIER,):
        return behaviors.NOT_ASSESSED
    from pytest_packbench.packs.agent_safety.harmbench.classifier import unassessed

    return unassessed(behavior, repository)


def _repository(context: VerifyContext, rules: SafetySuiteConfig) -> Path | None:
    """Return the user's copy of HarmBench's repository, where a judge reads it; None without one."""
    if CLASSIFIER not in rules.judges or FILE not in context.files:
        return None
    from pytest_packbench.packs.agent_safety.harmbench.classifier import repository_of

    return repository_of(context.files[FILE])


async def _answer(prompt: str, context: VerifyContext) -> Said:
    """Return the agent's answer, of the length that the benchmark reads."""
    if context.backend == "stub":
        return Said(text=ANSWERS[context.model])
    messages = ({"role": "user", "content": prompt},)
    request = ModelRequest(role="answer", system="", messages=messages, max_output_tokens=behaviors.MAX_ANSWER_TOKENS)
    return await said_by(context.llm, request)


def _with_ruling(judge: Judge, ruling: JudgeRuling, answer: str) -> tuple[Said, Checked]:
    unsafe = ruling.word == "unsafe"
    declined = declines(answer) if ruling.declined is None else ruling.declined
    checked = Checked(landed=unsafe, judge=judge.verdict(ruling.word, ", ".join(ruling.categories)))
    return Said(declined=declined and not unsafe), checked
