"""The reference target for HarmBench: the behaviour is requested as published, a judge rules on the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.harmbench import behaviors
from pytest_packbench.packs.agent_safety.judges import JUDGE_ERROR, JudgeError, JudgeQuestion, JudgeRuling
from pytest_packbench.packs.agent_safety.judges.standard import (
    CLASSIFIER,
    REFUSAL_DETECTOR,
    choose_judge,
    declines,
    model_judges,
)
from pytest_packbench.packs.agent_safety.outcome import TextAnswer, text_answer

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.harmbench.behaviors import Behavior
    from pytest_packbench.packs.agent_safety.judges import Judge
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

FILE = "harmbench"
"""The file or folder that ini `packbench_harmbench` names: the user's CSV files."""

HARMLESS = Path(__file__).with_name("harmless.csv")
"""Harmless behaviours, for the bundled suite."""

_COMPLY = "Sure, here it is, just as you asked."
SCRIPTED = {"gullible": _COMPLY, "obedient": _COMPLY, "refuser": "I'm sorry, but I can't help with that."}
"""The answers of the scripted agents: they show how the suite works and say nothing about any model."""


async def run(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a case with one call of the role `answer`; its text is read from the context's file `harmbench`.

    Returns:
        The result for `outcome.read`, without the text of the behaviour. `landed` is null for a copyright behaviour
        that no judge can rule on, which is not sent. It is not valid where the answer is empty, and an `error`
        where the text is missing or has changed, or where the judge failed. An answer that was cut off is judged as far
        as it goes, as the benchmark does.

    Raises:
        GuardError: a guard raised an exception.
        Exception: whatever the model call raises.
    """
    if context.backend == "stub" and context.model not in SCRIPTED:
        expected = ", ".join(SCRIPTED)
        return error_result("unknown_agent", f'unknown scripted agent "{context.model}"; expected one of {expected}')
    try:
        behavior = behavior_of(request, context)
        chain = Chain(
            context.guards,
            attack=attack_patterns(behavior.request),
            planted=(behavior.request,),
            llm=context.llm,
            time_limit_s=rules.guard_time_limit_s,
        )
        ending = await _ending(behavior, chain, context, rules)
    except behaviors.FileError as error:
        return error_result("text_missing", str(error))
    except JudgeError as error:
        return error_result(JUDGE_ERROR, str(error))
    return {
        "exposed": chain.exposed,
        "removed_by": chain.removed_by,
        "collateral": chain.collateral,
        "hook_decisions": chain.decisions,
        "guard_timeouts": chain.timeouts,
        "scripted": context.backend == "stub",
        "agent": context.model or None,
        "guards": chain.names,
        "versions": {"harmbench": request.input["version"]},
        **ending,
    }


def behavior_of(request: VerifyRequest, context: VerifyContext) -> Behavior:
    """Return the behaviour of a case; raises `FileError` where its text is missing or has changed."""
    paths = [context.files[FILE], HARMLESS] if FILE in context.files else [HARMLESS]
    case = request.input
    return behaviors.find_behavior(paths, case["ids"]["behavior"], case["text_sha256"] or "")


class Judging(NamedTuple):
    """Who rules on the answers to a behaviour.

    Attributes:
        behavior: the behaviour.
        judges: the judge, and the second one whose agreement is recorded, if there is one.
        repository: the user's copy of HarmBench's repository; None where no judge reads it.
        unassessed: why no judge can rule; empty where one can.
    """

    behavior: Behavior
    judges: tuple[Judge, ...]
    repository: Path | None
    unassessed: str

    def ending_without_request(self) -> dict[str, Any]:
        """Return how a case ends whose behaviour is not sent, because no judge can rule."""
        return {"landed": None, "details": {"not_assessed": self.unassessed}}

    async def ending(self, chain: Chain, prompt: str, answer: TextAnswer) -> dict[str, Any]:
        """Have the judges rule on an answer, if there is one; raises `JudgeError`."""
        behavior, judge = self.behavior, self.judges[0]
        transcript = {"transcript": [{"role": "assistant", "content": answer.text}]}
        text = await chain.off_loop(chain.on_final_answer, answer.text)
        if answer.declined or chain.answer_denied:
            declined = f"the model declined through its API: {answer.text}"
            reason = declined if answer.declined else "a guard withheld the answer"
            return without_ruling(judge, reason) | transcript
        if not text.strip():
            reason = answer.problem or "the agent's answer is empty"
            unread = {"refused": None, "valid": False, "invalid_because": reason, "cut_off": answer.cut_off}
            return without_ruling(judge, reason) | unread | transcript
        if behavior.functional == "copyright" and self.repository is not None:
            from pytest_packbench.packs.agent_safety.harmbench.classifier import reproduction

            found = reproduction(behavior, self.repository, text)
            detail = f"similarity {found.similarity:.2f}"
            result = JudgeRuling(word="unsafe" if found.found else "safe", categories=(detail,))
            return _with_ruling(judge, result, text) | transcript
        question = JudgeQuestion(
            asked=prompt, answered=text, category=behavior.semantic, behavior=behavior.text, context=behavior.context
        )
        ended = _with_ruling(judge, await judge(question), text)
        for other in self.judges[1:]:
            second = await other(question)
            ended["details"] = {"second_judge": _judge_object(other, second.word, ", ".join(second.categories))}
        return ended | transcript


def judging_of(behavior: Behavior, context: VerifyContext, rules: SafetySuiteConfig) -> Judging:
    """Return who rules on the answers to a behaviour; raises `JudgeError`."""
    repository = _repository(context, rules)
    # the engine sends a request of a judge's role to the judge's model
    built_in = model_judges(rules, context.llm, repository)
    names = rules.judges or (REFUSAL_DETECTOR,)
    judges = tuple(choose_judge([name], {**built_in, **context.judges}) for name in names)
    return Judging(behavior, judges, repository, _unassessed(behavior, rules, repository))


async def _ending(behavior: Behavior, chain: Chain, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Call the agent, then the judge, and the second judge where the suite names one."""
    judging = judging_of(behavior, context, rules)
    if judging.unassessed:
        return judging.ending_without_request()
    prompt = await chain.off_loop(chain.on_prompt_submit, behavior.request)
    if prompt is None:
        return without_ruling(judging.judges[0], "a guard denied the request")
    return await judging.ending(chain, prompt, await _answer(prompt, context))


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


async def _answer(prompt: str, context: VerifyContext) -> TextAnswer:
    """Return the agent's answer, of the length that the benchmark reads."""
    if context.backend == "stub":
        return TextAnswer(SCRIPTED[context.model])
    messages = ({"role": "user", "content": prompt},)
    request = ModelRequest(role="answer", system="", messages=messages, max_output_tokens=behaviors.MAX_ANSWER_TOKENS)
    return await text_answer(context.llm, request)


def _with_ruling(judge: Judge, result: JudgeRuling, answer: str) -> dict[str, Any]:
    unsafe = result.word == "unsafe"
    declined = declines(answer) if result.declined is None else result.declined
    return {
        "landed": unsafe,
        "refused": declined and not unsafe,
        "judge": _judge_object(judge, result.word, ", ".join(result.categories)),
    }


def without_ruling(judge: Judge, reason: str) -> dict[str, Any]:
    """Return the result of a case that needs no ruling; it names the judge, because it counts in the judge's rates."""
    return {"landed": False, "refused": True, "judge": _judge_object(judge, "not_asked", reason)}


def _judge_object(judge: Judge, verdict: str, detail: str) -> dict[str, Any]:
    model = {} if judge.model is None else {"model": judge.model}
    return {"name": judge.name, **model, "verdict": verdict, "detail": detail, "weakest": judge.weakest}


def error_result(kind: str, message: str) -> dict[str, Any]:
    """Return the result of a case that couldn't be judged."""
    return {"error": {"kind": kind, "message": " ".join(message.split())}}
