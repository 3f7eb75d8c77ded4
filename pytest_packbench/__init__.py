"""Benchmark cases as pytest tests: recorded or live AI pipelines, partial credit, honest reports.

Public names are imported on first use, because pytest imports this package in every run of an environment that has it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.analysis.statistics import rate_interval
    from pytest_packbench.analysis.table import FigureRow, FigureSums, SumsByModel
    from pytest_packbench.api import load_suite, score
    from pytest_packbench.app import capture
    from pytest_packbench.backends import Backend, BackendError, BackendOptions, BackendUnusable
    from pytest_packbench.model.answer import Agreement, Answer, Unscored
    from pytest_packbench.model.authoring import (
        CaseDraft,
        FiledCase,
        Finding,
        Importer,
        SourceFlaw,
        SourceRemark,
        Starter,
        Tools,
    )
    from pytest_packbench.model.case import Case, Fraction, ListOf, Notes, StrictModel, Text
    from pytest_packbench.model.errors import CaseError, SuiteError
    from pytest_packbench.model.pack import (
        Comparison,
        Decision,
        Judges,
        LintOption,
        Metrics,
        Pack,
        RecordFacts,
        RoleModel,
    )
    from pytest_packbench.model.record import EvalRecord, RecordError
    from pytest_packbench.model.request import (
        LLM,
        AnswerError,
        ModelAnswer,
        ModelRequest,
        Target,
        Tool,
        ToolCall,
        Usage,
        VerifyContext,
        VerifyRequest,
        without_model,
    )
    from pytest_packbench.model.result import Breakdown, Firing, Outcome, ResultError, Score, Term, Verdict, judged
    from pytest_packbench.model.suite import Figure, Gate, GateResult, Interval, Metric, Panel, Suite, SuiteConfig
    from pytest_packbench.packs.agent_safety.guards.base import GuardRuling, Prompt, ToolOutput, ToolUse
    from pytest_packbench.packs.agent_safety.judges import JudgeQuestion, JudgeRuling

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "Agreement",
    "Answer",
    "AnswerError",
    "Backend",
    "BackendError",
    "BackendOptions",
    "BackendUnusable",
    "Breakdown",
    "Case",
    "CaseDraft",
    "CaseError",
    "Comparison",
    "Decision",
    "EvalRecord",
    "Figure",
    "FigureRow",
    "FigureSums",
    "FiledCase",
    "Finding",
    "Firing",
    "Fraction",
    "Gate",
    "GateResult",
    "GuardRuling",
    "Importer",
    "Interval",
    "JudgeQuestion",
    "JudgeRuling",
    "Judges",
    "LintOption",
    "ListOf",
    "Metric",
    "Metrics",
    "ModelAnswer",
    "ModelRequest",
    "Notes",
    "Outcome",
    "Pack",
    "Panel",
    "Prompt",
    "RecordError",
    "RecordFacts",
    "ResultError",
    "RoleModel",
    "Score",
    "SourceFlaw",
    "SourceRemark",
    "Starter",
    "StrictModel",
    "Suite",
    "SuiteConfig",
    "SuiteError",
    "SumsByModel",
    "Target",
    "Term",
    "Text",
    "Tool",
    "ToolCall",
    "ToolOutput",
    "ToolUse",
    "Tools",
    "Unscored",
    "Usage",
    "Verdict",
    "VerifyContext",
    "VerifyRequest",
    "capture",
    "judged",
    "load_suite",
    "rate_interval",
    "score",
    "without_model",
]

_MODULES = {
    "Agreement": "model.answer",
    "Answer": "model.answer",
    "AnswerError": "model.request",
    "Backend": "backends",
    "BackendError": "backends",
    "BackendOptions": "backends",
    "BackendUnusable": "backends",
    "Breakdown": "model.result",
    "Case": "model.case",
    "CaseDraft": "model.authoring",
    "CaseError": "model.errors",
    "Comparison": "model.pack",
    "Decision": "model.pack",
    "EvalRecord": "model.record",
    "Figure": "model.suite",
    "FigureRow": "analysis.table",
    "FigureSums": "analysis.table",
    "FiledCase": "model.authoring",
    "Finding": "model.authoring",
    "Firing": "model.result",
    "Fraction": "model.case",
    "Gate": "model.suite",
    "GateResult": "model.suite",
    "GuardRuling": "packs.agent_safety.guards.base",
    "Importer": "model.authoring",
    "Interval": "model.suite",
    "JudgeQuestion": "packs.agent_safety.judges",
    "JudgeRuling": "packs.agent_safety.judges",
    "Judges": "model.pack",
    "LLM": "model.request",
    "LintOption": "model.pack",
    "ListOf": "model.case",
    "Metric": "model.suite",
    "Metrics": "model.pack",
    "ModelAnswer": "model.request",
    "ModelRequest": "model.request",
    "Notes": "model.case",
    "Outcome": "model.result",
    "Pack": "model.pack",
    "Panel": "model.suite",
    "Prompt": "packs.agent_safety.guards.base",
    "RecordError": "model.record",
    "RecordFacts": "model.pack",
    "ResultError": "model.result",
    "RoleModel": "model.pack",
    "Score": "model.result",
    "SourceFlaw": "model.authoring",
    "SourceRemark": "model.authoring",
    "Starter": "model.authoring",
    "StrictModel": "model.case",
    "Suite": "model.suite",
    "SuiteConfig": "model.suite",
    "SuiteError": "model.errors",
    "SumsByModel": "analysis.table",
    "Target": "model.request",
    "Term": "model.result",
    "Text": "model.case",
    "Tool": "model.request",
    "ToolCall": "model.request",
    "ToolOutput": "packs.agent_safety.guards.base",
    "ToolUse": "packs.agent_safety.guards.base",
    "Tools": "model.authoring",
    "Unscored": "model.answer",
    "Usage": "model.request",
    "Verdict": "model.result",
    "VerifyContext": "model.request",
    "VerifyRequest": "model.request",
    "capture": "app",
    "judged": "model.result",
    "load_suite": "api",
    "rate_interval": "analysis.statistics",
    "score": "api",
    "without_model": "model.request",
}


def import_compiled() -> None:
    """Import this package's modules from their compiled files, as those of any library.

    pytest rewrites the assertions of every package that is installed with a plugin, and where it can't write bytecode,
    it parses and compiles each module in every run. Here nothing has to be rewritten, and pytest has no public way to
    leave a package out. A pytest without this attribute rewrites as before.
    """
    for finder in sys.meta_path:
        getattr(finder, "_must_rewrite", set()).discard(__name__)


import_compiled()


def __getattr__(name: str) -> object:
    """Import a public name from the module that defines it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names and the loaded names."""
    return sorted({*globals(), *__all__})
