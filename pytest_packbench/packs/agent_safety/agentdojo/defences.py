"""The defences of AgentDojo's authors as guards: their texts, models and marks are those of the installed package.

Debenedetti et al., "AgentDojo", NeurIPS 2024 (arXiv 2406.13352), section 4.3; the names are upstream's.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelRequest
from pytest_packbench.packs.agent_safety.agentdojo.upstream import defer, install_advice
from pytest_packbench.packs.agent_safety.guards.base import GuardError, GuardRuling

if TYPE_CHECKING:
    from pytest_packbench.packs.agent_safety.guards.base import ToolList, ToolOutput

DETECTOR = "protectai/deberta-v3-base-prompt-injection-v2"
"""The model of `transformers_pi_detector`, as upstream names it."""


class RepeatUserPrompt:
    """Repeats the user's prompt after the outputs of tools."""

    name = "repeat_user_prompt"
    instant = True
    repeats_prompt = True


class SpotlightingWithDelimiting:
    """Puts marks around the outputs of tools, and tells the model so in the system message."""

    name = "spotlighting_with_delimiting"
    instant = True

    @property
    def system_note(self) -> str:
        """What is appended to the system message."""
        return str(_upstream(self.name).elements[0].system_message)

    def on_tool_output(self, output: ToolOutput) -> GuardRuling:
        """Put the marks around an output (rule 1)."""
        executor = _upstream(self.name).elements[-1].elements[0]
        return GuardRuling(decision="replace", text=executor.output_formatter(output.text), rule=1)


class ToolFilter:
    """Asks the model which tools the user's task needs, and offers no others."""

    name = "tool_filter"

    def on_tool_list(self, offered: ToolList) -> GuardRuling:
        """Leave the tools that the model names (rule 1)."""
        from agentdojo.agent_pipeline.agent_pipeline import TOOL_FILTER_PROMPT

        if offered.llm is None:
            raise GuardError("it asks a model, and no backend is set; use --packbench-backend")
        texts = (offered.prompt, TOOL_FILTER_PROMPT)
        messages = tuple({"role": "user", "content": text} for text in texts)
        request = ModelRequest(role="guard", system="", messages=messages, tools=offered.tools)
        answer = offered.llm.complete_sync(request)
        text = answer.content if isinstance(answer.content, str) else ""
        return GuardRuling(decision="replace", tools=tuple(tool for tool in offered.tools if tool.name in text), rule=1)


class TransformersDetector:
    """Removes outputs in which a classifier finds an injection; the classifier is never downloaded."""

    name = "transformers_pi_detector"

    def on_tool_output(self, output: ToolOutput) -> GuardRuling | None:
        """Replace an output that the classifier objects to (rule 1)."""
        from agentdojo.types import get_text_content_as_str, text_content_block_from_string

        detector = _detector()
        is_attack, _score = detector.detect(output.text)
        if not is_attack:
            return None
        text = get_text_content_as_str(detector.transform([text_content_block_from_string(output.text)]))
        return GuardRuling(decision="replace", text=text, rule=1)


_DEFENCES = {one.name: one for one in (RepeatUserPrompt, SpotlightingWithDelimiting, ToolFilter, TransformersDetector)}


def defence(name: str) -> Any:
    """Return a defence by its upstream name.

    Raises:
        GuardError: a package or the model that it needs is missing; says what to do.
    """
    if advice := install_advice():
        raise GuardError(advice)
    if name == TransformersDetector.name:
        _check_detector()
    return _DEFENCES[name]()


@cache
def _upstream(name: str) -> Any:
    """Return upstream's pipeline with a defence, around an agent that does nothing."""
    defer()
    from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, PipelineConfig
    from agentdojo.agent_pipeline.basic_elements import InitQuery

    config = PipelineConfig(llm=InitQuery(), model_id=None, defense=name, system_message_name=None, system_message=" ")
    return AgentPipeline.from_config(config)


def _check_detector() -> None:
    from importlib.util import find_spec

    missing = [package for package in ("transformers", "torch") if find_spec(package) is None]
    if missing:
        raise GuardError(f"{missing[0]} is not installed: pip install {missing[0]}")
    home = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub"))
    folder = home.expanduser() / f"models--{DETECTOR.replace('/', '--')}"
    if not folder.is_dir():
        raise GuardError(f"{DETECTOR} is not in {home}; download it before the run")


@cache
def _detector() -> Any:
    # nothing is downloaded, also not a newer version
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from agentdojo.agent_pipeline.pi_detector import TransformersBasedPIDetector

    return TransformersBasedPIDetector(model_name=DETECTOR, safe_label="SAFE", threshold=0.5, mode="message")
