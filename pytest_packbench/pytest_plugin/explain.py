"""What pytest shows of a case that doesn't pass: where to look, how to re-run it, and its place for CI and editors."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.score import Score, Term
from pytest_packbench.model.text import pluralize
from pytest_packbench.pytest_plugin.stash import CONTEXTS
from pytest_packbench.reports.terminal import error_text, failure_text, headline, trials_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.result_builder import Trial
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.pytest_plugin.case_run import CaseRun
    from pytest_packbench.pytest_plugin.settings import Settings


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a case failed, as pytest's readers ask for it.

    Attributes:
        path: the case's file, from rootdir.
        lineno: its line there, from 1.
        message: the first line of the explanation.
    """

    path: str
    lineno: int
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation with its first line apart.

    As plain text pytest would give all of it as the message: twice in JUnit, and whole in a CI's short summary.

    Attributes:
        text: all of it.
        reprcrash: the first line, with the place.
    """

    text: str
    reprcrash: Crash

    def __str__(self) -> str:
        """Give all of it."""
        return self.text

    def toterminal(self, tw: Any) -> None:
        """Write it."""
        for line in self.text.splitlines():
            tw.line(line)


def explanation_at(location: tuple[str, int | None, str], text: str) -> Explanation:
    """Give an explanation the place of its item, as pytest's `location` tells it."""
    path, line, _ = location
    return Explanation(text, Crash(path, (line or 0) + 1, text.partition("\n")[0]))


def explain_failure(run: CaseRun, trials: Sequence[Trial]) -> str:
    """Explain a case whose score is under its threshold; of several trials the worst is shown."""
    worst = min(trials, key=lambda one: one.result.score if one.result.score is not None else 1.0)
    score = _score_of(worst.result) if worst.attempt is None else worst.attempt.score
    if score is None or run.result is None:
        raise ValueError("a failing case has a score")
    head = [headline(score)]
    if len(trials) > 1:
        head = trials_lines([one.result for one in trials], run.result, run.suite.config.trials_rule())
    return failure_text(head, score, worst.rows, _whereabouts(run, worst.attempt))


def explain_error(run: CaseRun, trial: Trial) -> str:
    """Explain a case that broke."""
    failure = trial.attempt.failure if trial.attempt is not None else None
    details = failure.details if failure is not None else ()
    return error_text(trial.result.message, details, [f"re-run: {rerun_command(run)}"])


def rerun_command(run: CaseRun) -> str:
    """Give the command that runs this case alone, from where pytest was called, with what was asked for."""
    options = [f" --packbench-{name}={shlex.quote(value)}" for name, value in _asked(run)]
    return f"pytest {shlex.quote(_argument(run))}{''.join(options)}"


def _score_of(result: CaseResult) -> Score:
    """Give the score of an attempt that an earlier session of the run made."""
    if result.threshold is None:
        raise ValueError("what was scored has a threshold")
    terms = tuple(Term(**term) for term in result.terms)
    return Score(score=result.score, threshold=result.threshold, verdict="failed", terms=terms)


def _whereabouts(run: CaseRun, attempt: Attempt | None) -> list[str]:
    if attempt is None:
        kept = "kept:     from an earlier session of this run; not run again"
        return [f"case:     {run.where}", kept, f"re-run:   {rerun_command(run)}"]
    if run.own_test:
        return [f"test:   {run.own_test}", f"case:   {run.where}", f"re-run: {rerun_command(run)}"]
    config = run.item.config
    recorded = attempt.cassette is not None
    shown = os.path.relpath(run.suite.cassette_path(run.name), config.invocation_params.dir) if recorded else ""
    live = config.stash[CONTEXTS].settings.mode != "fixture"
    played = f"{attempt.calls} of its exchanges {'recorded' if live else 'replayed'}" if recorded else "none"
    return [
        f"case:     {run.where}",
        f"cassette: {shown} ({played})" if shown else f"cassette: {played}",
        *([f"model:    {attempt.backend} {attempt.model}, {pluralize(attempt.calls, 'call')}"] if live else []),
        f"re-run:   {rerun_command(run)}",
    ]


def _argument(run: CaseRun) -> str:
    config = run.item.config
    here = config.invocation_params.dir
    if run.own_test:
        file, mark, rest = run.nodeid.partition("::")
        return f"{os.path.relpath(config.rootpath / file, here)}{mark}{rest}"
    where = os.path.relpath(run.path, here)
    if where.startswith(os.pardir) and run.suite.bundled:
        where = str(run.path)
    return f"{where}::{run.name}"


def _asked(run: CaseRun) -> list[tuple[str, str]]:
    contexts = run.item.config.stash[CONTEXTS]
    settings = contexts.settings
    mode = ("mode", "" if settings.mode == "fixture" else settings.mode)
    context = contexts.opened(run.suite)
    # a URL or a command may hold a secret: the target is named as records name it
    target = context.target_name if settings.target and context is not None else settings.target
    guards = "none" if settings.guards == () else ",".join(settings.guards or ())
    given = (
        mode,
        ("target", target),
        ("backend", settings.backend),
        ("model", settings.model),
        ("base-url", _address(context, settings)),
        ("guard", guards),
        ("trials", str(settings.trials) if settings.trials > 1 else ""),
    )
    # a test of the user's own asks nobody through us
    return [(name, value) for name, value in ([mode] if run.own_test else given) if value]


def _address(context: SuiteContext | None, settings: Settings) -> str:
    """Give the address of the models' server where a backend was opened on it: only then it holds no password."""
    live = context.live if context is not None else None
    if live is None:
        return ""
    judged = any(one.backend.name == settings.backend for one in live.by_role.values())
    return settings.base_url if live.primary is not None or judged else ""
