"""A HarmBench case as it is run: the behaviour is asked for as it stands, a judge says whether the answer does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.harmbench import behaviors
from pytest_packbench.packs.agent_safety.judges import ruling
from pytest_packbench.packs.agent_safety.judges.standard import LLAMA_GUARD, chosen, declines

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.harmbench.behaviors import Behavior
    from pytest_packbench.packs.agent_safety.judges.ruling import Judge, JudgeRuling
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

FILE = "harmbench"
"""The user's CSV file, or the folder of such files, as `packbench_harmbench` names it."""

OWN = Path(__file__).with_name("harmless.csv")
"""Behaviours of our own that harm nobody, for the suite that comes with the package."""

_COMPLY = "Sure, here it is, just as you asked."
SCRIPTED = {"gullible": _COMPLY, "obedient": _COMPLY, "refuser": "I'm sorry, but I can't help with that."}
"""What the scripted agents answer: they show what the suite does, and nothing about any model."""


class _NoAnswerError(Exception):
    pass


async def run(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a case, whose text the context's file `harmbench` contains, with one call of the role `answer`.

    Returns:
        The result that `outcome.read` reads; without the behaviour's text. `landed` is null for a behaviour on
        copyright, which is not sent: no judge can tell. An `error` where the text is missing or another one, where the
        judge broke, or where the agent answered nothing.

    Raises:
        GuardError: a guard broke.
        Exception: whatever the model call raises.
    """
    if context.backend == "stub" and context.model not in SCRIPTED:
        known = ", ".join(SCRIPTED)
        return _error("unknown_agent", f'no scripted agent "{context.model}"; known here: {known}')
    try:
        places = [context.files[FILE], OWN] if FILE in context.files else [OWN]
        given = request.input
        found = behaviors.request_of(places, given["ids"]["behavior"], given["text_sha256"] or "")
        chain = Chain(context.guards, attack=attack_patterns(found.request))
        told = await _told(found, chain, context, rules)
    except behaviors.FileError as error:
        return _error("text_missing", str(error))
    except ruling.JudgeError as error:
        return _error(ruling.KIND, str(error))
    except _NoAnswerError as error:
        return _error("answer_empty", str(error))
    return {
        "exposed": chain.exposed,
        "removed_by": chain.removed_by,
        "hook_decisions": chain.decisions,
        "scripted": context.backend == "stub",
        "agent": context.model or None,
        "guards": chain.names,
        "versions": {"harmbench": request.input["version"]},
        **told,
    }


async def _told(found: Behavior, chain: Chain, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Ask the agent, then the judge."""
    if found.functional == "copyright":
        return {"landed": None}
    # the engine sends a request of the judge's role to the judge's model
    judge = chosen(rules.judges, {LLAMA_GUARD: context.llm, **context.judges})
    asked = chain.on_prompt_submit(found.request)
    if asked is None:
        return _undisputed(judge, "a guard denied the request")
    said, declined = await _answer(asked, context)
    transcript = {"transcript": [{"role": "assistant", "content": said}]}
    if declined:
        return _undisputed(judge, "the model declined by its interface") | transcript
    if not said.strip():
        raise _NoAnswerError("the agent answered nothing")
    rule = await judge(ruling.JudgeQuestion(asked=asked, answered=said, category=found.semantic))
    return _ruled(judge, rule, said) | transcript


async def _answer(asked: str, context: VerifyContext) -> tuple[str, bool]:
    """Give the agent's words, and whether the model declined to answer by its interface."""
    if context.backend == "stub":
        return SCRIPTED[context.model], False
    messages = ({"role": "user", "content": asked},)
    answer = await context.llm.complete(ModelRequest(role="answer", system="", messages=messages))
    if answer.refusal is not None:
        return answer.refusal or "declined", True
    if not isinstance(answer.content, str):
        raise TypeError(f"the model answered a {type(answer.content).__name__}, expected text")
    return answer.content, False


def _ruled(judge: Judge, rule: JudgeRuling, said: str) -> dict[str, Any]:
    unsafe = rule.word == "unsafe"
    declined = declines(said) if rule.declined is None else rule.declined
    return {
        "landed": unsafe,
        "refused": declined and not unsafe,
        "judge": _named(judge, rule.word, ", ".join(rule.categories)),
    }


def _undisputed(judge: Judge, why: str) -> dict[str, Any]:
    """Give what is known without the judge, who stands in the record all the same: its rates hold this case too."""
    return {"landed": False, "refused": True, "judge": _named(judge, "not_asked", why)}


def _named(judge: Judge, verdict: str, detail: str) -> dict[str, Any]:
    model = {} if judge.model is None else {"model": judge.model}
    return {"name": judge.name, **model, "verdict": verdict, "detail": detail, "weakest": judge.weakest}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": " ".join(message.split())}}
