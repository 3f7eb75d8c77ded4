"""The reference target for HarmBench: the behaviour is requested as published, a judge rules on the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.answers import TextAnswer, text_answer
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.harmbench import behaviors
from pytest_packbench.packs.agent_safety.judges import JUDGE_ERROR, JudgeError, JudgeQuestion
from pytest_packbench.packs.agent_safety.judges.standard import LLAMA_GUARD, choose_judge, declines

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.harmbench.behaviors import Behavior
    from pytest_packbench.packs.agent_safety.judges import Judge, JudgeRuling
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
        The result for `outcome.read`, without the text of the behaviour. `landed` is null for a copyright behaviour,
        which is not sent because no judge can rule on it. It is not valid where the answer is empty, and an `error`
        where the text is missing or has changed, or where the judge failed. An answer that was cut off is judged as far
        as it goes, as the benchmark does.

    Raises:
        GuardError: a guard raised an exception.
        Exception: whatever the model call raises.
    """
    if context.backend == "stub" and context.model not in SCRIPTED:
        expected = ", ".join(SCRIPTED)
        return _error("unknown_agent", f'unknown scripted agent "{context.model}"; expected one of {expected}')
    try:
        paths = [context.files[FILE], HARMLESS] if FILE in context.files else [HARMLESS]
        case = request.input
        behavior = behaviors.find_behavior(paths, case["ids"]["behavior"], case["text_sha256"] or "")
        chain = Chain(context.guards, attack=attack_patterns(behavior.request), planted=(behavior.request,))
        ending = await _ending(behavior, chain, context, rules)
    except behaviors.FileError as error:
        return _error("text_missing", str(error))
    except JudgeError as error:
        return _error(JUDGE_ERROR, str(error))
    return {
        "exposed": chain.exposed,
        "removed_by": chain.removed_by,
        "collateral": chain.collateral,
        "hook_decisions": chain.decisions,
        "scripted": context.backend == "stub",
        "agent": context.model or None,
        "guards": chain.names,
        "versions": {"harmbench": request.input["version"]},
        **ending,
    }


async def _ending(behavior: Behavior, chain: Chain, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Call the agent, then the judge."""
    if behavior.functional == "copyright":
        return {"landed": None}
    # the engine sends a request of the judge's role to the judge's model
    judge = choose_judge(rules.judges, {LLAMA_GUARD: context.llm, **context.judges})
    prompt = chain.on_prompt_submit(behavior.request)
    if prompt is None:
        return _without_ruling(judge, "a guard denied the request")
    answer = await _answer(prompt, context)
    transcript = {"transcript": [{"role": "assistant", "content": answer.text}]}
    if answer.declined:
        return _without_ruling(judge, "the model declined through its API") | transcript
    if not answer.text.strip():
        reason = answer.problem or "the agent's answer is empty"
        unread = {"refused": None, "valid": False, "invalid_because": reason, "cut_off": answer.cut_off}
        return _without_ruling(judge, reason) | unread | transcript
    result = await judge(JudgeQuestion(asked=prompt, answered=answer.text, category=behavior.semantic))
    return _with_ruling(judge, result, answer.text) | transcript


async def _answer(prompt: str, context: VerifyContext) -> TextAnswer:
    """Return the agent's answer."""
    if context.backend == "stub":
        return TextAnswer(SCRIPTED[context.model])
    messages = ({"role": "user", "content": prompt},)
    return await text_answer(context.llm, ModelRequest(role="answer", system="", messages=messages))


def _with_ruling(judge: Judge, result: JudgeRuling, answer: str) -> dict[str, Any]:
    unsafe = result.word == "unsafe"
    declined = declines(answer) if result.declined is None else result.declined
    return {
        "landed": unsafe,
        "refused": declined and not unsafe,
        "judge": _judge_object(judge, result.word, ", ".join(result.categories)),
    }


def _without_ruling(judge: Judge, reason: str) -> dict[str, Any]:
    """Return the result of a case that needs no ruling; it names the judge, because it counts in the judge's rates."""
    return {"landed": False, "refused": True, "judge": _judge_object(judge, "not_asked", reason)}


def _judge_object(judge: Judge, verdict: str, detail: str) -> dict[str, Any]:
    model = {} if judge.model is None else {"model": judge.model}
    return {"name": judge.name, **model, "verdict": verdict, "detail": detail, "weakest": judge.weakest}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": " ".join(message.split())}}
