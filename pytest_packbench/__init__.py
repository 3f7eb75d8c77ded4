"""Benchmark cases as pytest tests: recorded or live AI pipelines, partial credit, honest reports.

The public names are resolved on first use, so that importing the package (as pytest does for
every run in an environment where it is installed) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.api import load_suite, score
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.errors import CaseError, SuiteError
    from pytest_packbench.model.outcome import Outcome, ResultError
    from pytest_packbench.model.record import EvalRecord, RecordError
    from pytest_packbench.model.request import VerifyContext, VerifyRequest, without_model
    from pytest_packbench.model.score import Score, Term
    from pytest_packbench.model.suite import Suite

__version__ = "0.1.0"

__all__ = [
    "Case",
    "CaseError",
    "EvalRecord",
    "Outcome",
    "RecordError",
    "ResultError",
    "Score",
    "Suite",
    "SuiteError",
    "Term",
    "VerifyContext",
    "VerifyRequest",
    "load_suite",
    "score",
    "without_model",
]

_HOMES = {
    "Case": "model.case",
    "CaseError": "model.errors",
    "EvalRecord": "model.record",
    "Outcome": "model.outcome",
    "RecordError": "model.record",
    "ResultError": "model.outcome",
    "Score": "model.score",
    "Suite": "model.suite",
    "SuiteError": "model.errors",
    "Term": "model.score",
    "VerifyContext": "model.request",
    "VerifyRequest": "model.request",
    "load_suite": "api",
    "score": "api",
    "without_model": "model.request",
}


def __getattr__(name: str) -> object:
    """Resolve a public name from the module that holds it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names beside what is loaded."""
    return sorted({*globals(), *__all__})
