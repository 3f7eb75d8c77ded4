"""What a case that doesn't pass says for itself: plain text, fit for any terminal and for JUnit."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.analysis.conclusion import count
from pytest_packbench.cases.files import located
from pytest_packbench.engine.results import scored
from pytest_packbench.model.score import Score, Term
from pytest_packbench.pytest_plugin.stash import BENCHES
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from pytest_packbench.engine.context import Attempt, Failure, SuiteContext
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.pytest_plugin.case_run import Tested, Tried
    from pytest_packbench.pytest_plugin.settings import Settings


def headline(score: Score) -> str:
    """Say in one line how the case did: the first line of a failure is what summaries show.

    It names the terms that cost points, else those that gave none. Else the first term tells only where it is how the
    answer matched, or stands alone: of several criteria any may be the one that gave too little.
    """
    terms = score.terms
    costs = [term.name for term in terms if term.effect == "zero" or (term.effect == "add" and term.value < 0)]
    names = costs or [term.name for term in terms if term.effect == "add" and not term.value]
    if not names and (score.match_level is not None or len(terms) == 1):
        names = [term.name for term in terms[:1]]
    why = f" ({', '.join(names)})" if names else ""
    return f"{scored(score)}{why}"


def failure_text(item: Tested, trials: Sequence[Tried], entry: CaseResult, rule: str | dict[str, int]) -> str:
    """Explain a case under its threshold: expected, actual, terms, where to look, how to re-run.

    Args:
        item: the case.
        trials: its attempts; where there are several, the worst is shown.
        entry: the case's verdict over them.
        rule: how the verdict is made of several.
    """
    worst = min(trials, key=lambda one: one.entry.score if one.entry.score is not None else 1.0)
    tried = worst.attempt
    score = _score_of(worst.entry) if tried is None else tried.score
    if score is None:
        raise ValueError("a failing case has a score")
    return printable(
        "\n".join(
            [
                *(_over_trials(trials, entry, rule) if len(trials) > 1 else [headline(score)]),
                "",
                *_table(("", "expected", "actual"), [(row.what, row.expected, row.actual) for row in worst.rows]),
                "",
                *_table(("points", "term", ""), [(term.points, term.name, term.detail) for term in score.terms]),
                f"{score.score:.2f}  score (threshold {score.threshold:.2f})",
                "",
                *_whereabouts(item, tried),
            ]
        )
    )


def error_text(item: Tested, failure: Failure) -> str:
    """Explain a case that broke: one line, the user's own frames, how to re-run."""
    frames = ["", "in the code under test:", *(f"  {frame}" for frame in failure.details)] if failure.details else []
    return printable("\n".join([failure.message, *frames, "", f"re-run: {rerun_command(item)}"]))


def rerun_command(item: Tested) -> str:
    """Give the command that runs this case alone, from where pytest was called, with what was asked for."""
    options = [f" --packbench-{name}={shlex.quote(value)}" for name, value in _asked(item)]
    return f"pytest {shlex.quote(_argument(item))}{''.join(options)}"


def _argument(item: Tested) -> str:
    here = item.config.invocation_params.dir
    if item.own_test:
        file, mark, rest = item.case_nodeid.partition("::")
        return f"{os.path.relpath(item.config.rootpath / file, here)}{mark}{rest}"
    where = os.path.relpath(item.path, here)
    if where.startswith(os.pardir) and item.suite.bundled:
        where = str(item.path)
    return f"{where}::{item.name}"


def _asked(item: Tested) -> list[tuple[str, str]]:
    settings = item.config.stash[BENCHES].settings
    mode = ("mode", "" if settings.mode == "fixture" else settings.mode)
    bench = item.config.stash[BENCHES].known(item.suite)
    # a URL or a command may hold a secret: the target is named as records name it
    target = bench.target_name if settings.target and bench is not None else settings.target
    guards = "none" if settings.guards == () else ",".join(settings.guards or ())
    given = (
        mode,
        ("target", target),
        ("backend", settings.backend),
        ("model", settings.model),
        ("base-url", _address(bench, settings)),
        ("guard", guards),
        ("trials", str(settings.trials) if settings.trials > 1 else ""),
    )
    # a test of the user's own asks nobody through us
    return [(name, value) for name, value in ([mode] if item.own_test else given) if value]


def _address(bench: SuiteContext | None, settings: Settings) -> str:
    """Give the address of the models' server where a backend was opened on it: only then it holds no password."""
    live = bench.live if bench is not None else None
    if live is None:
        return ""
    judged = any(one.backend.name == settings.backend for one in live.aside.values())
    return settings.base_url if live.asked is not None or judged else ""


def _over_trials(trials: Sequence[Tried], entry: CaseResult, rule: str | dict[str, int]) -> list[str]:
    passed = sum(one.entry.verdict == "passed" for one in trials)
    named = rule if isinstance(rule, str) else f"at least {rule['at_least']}"
    mean = f"mean score {entry.score:.2f}, threshold {entry.threshold:.2f}" if entry.score is not None else "no mean"
    return [
        f"{passed} of {len(trials)} trials passed, {mean} (rule: {named})",
        "scores: " + ", ".join("-" if one.entry.score is None else f"{one.entry.score:.2f}" for one in trials),
        "",
        "the worst trial:",
    ]


def _score_of(entry: CaseResult) -> Score:
    """Give the score of an attempt that an earlier session of the run made."""
    if entry.threshold is None:
        raise ValueError("what was scored has a threshold")
    terms = tuple(Term(**term) for term in entry.terms)
    return Score(score=entry.score, threshold=entry.threshold, verdict="failed", terms=terms)


def _whereabouts(item: Tested, attempt: Attempt | None) -> list[str]:
    if attempt is None:
        kept = "kept:     from an earlier session of this run; not run again"
        return [f"case:     {located(item.file_id, item.line)}", kept, f"re-run:   {rerun_command(item)}"]
    if item.own_test:
        return [
            f"test:   {item.own_test}",
            f"case:   {located(item.file_id, item.line)}",
            f"re-run: {rerun_command(item)}",
        ]
    cassette = item.suite.cassette_path(item.name)
    recorded = attempt.cassette is not None
    shown = os.path.relpath(cassette, item.config.invocation_params.dir) if recorded else ""
    live = item.config.stash[BENCHES].settings.mode != "fixture"
    played = f"{attempt.calls} of its exchanges {'recorded' if live else 'replayed'}" if recorded else "none"
    return [
        f"case:     {located(item.file_id, item.line)}",
        f"cassette: {shown} ({played})" if shown else f"cassette: {played}",
        *([f"model:    {attempt.backend} {attempt.model}, {count(attempt.calls, 'call')}"] if live else []),
        f"re-run:   {rerun_command(item)}",
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
        if any(row)
    ]


if TYPE_CHECKING:

    class Writer(Protocol):
        """What pytest gives to write on."""

        def line(self, text: str = "") -> None:
            """Write a line."""


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

    def toterminal(self, tw: Writer) -> None:
        """Write it."""
        for line in self.text.splitlines():
            tw.line(line)


def is_of_case(report: pytest.TestReport) -> bool:
    """Whether a report is that of a case: then it bears a case's properties."""
    return "verdict" in dict(report.user_properties)


class Shown:
    """Makes explanations of the plain text that reports bring, in the process that the user started."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Change the report of a case before any reader sees it; xdist would have made text of it again."""
        text = report.longrepr
        if not report.failed or not isinstance(text, str) or not is_of_case(report):
            return
        path, line, _ = report.location
        crash = Crash(path, (line or 0) + 1, text.partition("\n")[0])
        report.longrepr = Explanation(text, crash)  # type: ignore[assignment]  # pytest's own class is private
