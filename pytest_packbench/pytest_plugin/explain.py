"""What pytest shows of a case that does not pass: files, the command to re-run it, the location for CI and editors.

Equal errors of several cases are shown once. The first failing cases
are explained in full, the others are named in a line each. Only what the terminal shows changes: JUnit and JSON reports
keep the error and the explanation of each case.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.finder import find_recording
from pytest_packbench.engine.trial_results import Trial, shown_input
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import pytest_options
from pytest_packbench.plugin import rootdir_of
from pytest_packbench.reports.terminal import (
    error_text,
    failure_text,
    headline,
    one_line,
    printable,
    quoted,
    transcript_lines,
    trials_lines,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.pack import Comparison
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.case_run import CaseRun

RERUN = "re-run:"
"""What the line with the command that runs a case again begins with."""
INPUT = "input:"
"""What the line with the beginning of a case's input begins with."""

# a line or two of a terminal
_INPUT_WIDTH = 220


@dataclass(frozen=True, slots=True)
class Crash:
    """The location of a failure, in the form of pytest's `reprcrash`.

    Attributes:
        path: the case's file, from rootdir.
        lineno: its line there, from 1.
        message: the first line of the explanation.
    """

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        """Return it as pytest's own, in the form that editors make a link of."""
        return f"{self.path}:{self.lineno}: {self.message}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation whose first line is the message.

    Of plain text pytest uses all as the message: twice in JUnit, and in full in the short summary on CI.

    Attributes:
        text: the whole explanation.
        reprcrash: the first line, with the location.
    """

    text: str
    reprcrash: Crash

    def __str__(self) -> str:
        """Return the whole explanation."""
        return self.text

    def toterminal(self, tw: Any) -> None:
        """Write the explanation."""
        for line in self.text.splitlines():
            tw.line(line)


def explanation_at(location: tuple[str, int | None, str], text: str) -> Explanation:
    """Return an explanation with the location of its item (pytest's `location`)."""
    path, line, _ = location
    return Explanation(text, Crash(path, (line or 0) + 1, text.partition("\n")[0]))


def worst_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the lowest score."""
    return min(trials, key=lambda trial: 1.0 if trial.result.score.score is None else trial.result.score.score)


def explain_failure(run: CaseRun, trials: Sequence[Trial]) -> str:
    """Explain a case whose score is below its threshold; of several trials, the worst one."""
    worst = worst_trial(trials)
    score = worst.result.score
    if run.result is None:
        raise ValueError("a failing case has a result")
    heading = [headline(score)]
    if len(trials) > 1:
        heading = trials_lines([trial.result for trial in trials], run.result, run.suite.config.trials_rule())
    if worst.result.score.input_text:
        heading.append(f"{INPUT} {one_line(worst.result.score.input_text, _INPUT_WIDTH)}")
    return failure_text(
        heading, score, worst.rows, [*_transcript(run, worst.attempt), *_context_lines(run, worst.attempt)]
    )


def show_difference(item: pytest.Item, rows: Iterable[Comparison]) -> None:
    """Give the plugin of PyCharm and TeamCity the expected and actual values of a failed case, for its diff."""
    plugin: Any = getattr(item.config, "_teamcityReporting", None)
    # in a worker of xdist, the plugin only sees reports
    if getattr(plugin, "current_test_item", None) is not item:
        return
    compared = list(rows)
    expected, actual = (
        printable("\n".join(f"{row.what}: {getattr(row, name)}" for row in compared)) for name in ("expected", "actual")
    )
    # as pytest calls it for a failed `assert actual == expected`
    plugin.pytest_assertrepr_compare(config=item.config, op="==", left=actual, right=expected)


def explain_error(run: CaseRun, trial: Trial) -> str:
    """Explain a case that ended in an error."""
    failure = trial.failure
    details = failure.details if failure is not None else ()
    is_mismatch = failure is not None and failure.kind == "cassette_mismatch"
    heading = {"heading": "recorded and current request:"} if is_mismatch else {}
    # of a problem in the code under test, the input may be the cause
    shown = _input_of(run) if details and not is_mismatch else ""
    where = [*([f"{INPUT}  {shown}"] if shown else []), f"{RERUN} {rerun_command(run)}"]
    return error_text(trial.result.score.message, details, where, **heading)


def rerun_command(run: CaseRun) -> str:
    """Return the command that runs only this case, from the folder of this pytest call and with its options."""
    options = rerun_options(run.contexts.opened(run.suite), is_marked=bool(run.test_function))
    return f"pytest {quoted(_argument(run))}{' ' if options else ''}{options}"


def rerun_options(context: SuiteContext, *, is_marked: bool) -> str:
    """Return the options of the command that runs a case again, quoted for a shell.

    Args:
        context: that of the suite of the case.
        is_marked: whether a marked test runs it, which makes its own calls: of the options, only the mode matters.
    """
    options = _options(context)
    return pytest_options(options[:1] if is_marked else options)


def _input_of(run: CaseRun) -> str:
    context = run.contexts.opened(run.suite)
    if not context.target_name:
        return ""
    try:
        return shown_input(run.case_ref(), context)
    except Exception:  # noqa: BLE001 - packs are the user's code, and the error to show is another one
        return ""


def _transcript(run: CaseRun, attempt: AttemptState | None) -> list[str]:
    if attempt is None or run.test_function:
        return []
    from pytest_packbench.engine.recordings import transcript

    settings = run.contexts.settings
    if run.loaded is None or not run.loaded.case.keeps_prompts:
        return []
    # a secret that is cut off is not recognized
    redact = run.contexts.redactor.text
    lines = transcript(attempt, prompts=settings.record_prompts)
    return transcript_lines([(role, who, redact(text)) for role, who, text in lines])


def _context_lines(run: CaseRun, attempt: AttemptState | None) -> list[str]:
    rows = {"test": run.test_function, "case": run.where}
    config = run.item.config
    live = run.contexts.settings.mode != "fixture"
    if attempt is None:
        rows["resumed"] = "from an earlier session of this run; not run again"
    elif not run.test_function:
        rows["cassette"] = "none"
        if attempt.cassette is not None:
            found = find_recording(run.suite, run.name).location
            path = os.path.relpath(found.label(found.path), config.invocation_params.dir)
            rows["cassette"] = f"{path} ({attempt.calls} of its exchanges {'recorded' if live else 'replayed'})"
        if live:
            rows["model"] = f"{attempt.llm_backend} {attempt.llm_model}, {pluralize(attempt.calls, 'call')}"
    rows["re-run"] = rerun_command(run)
    return [f"{name + ':':10}{text}" for name, text in rows.items() if text]


def _argument(run: CaseRun) -> str:
    config = run.item.config
    folder = config.invocation_params.dir
    if run.test_function:
        file, separator, name = run.nodeid.partition("::")
        return f"{os.path.relpath(rootdir_of(config) / file, folder)}{separator}{name}"
    return f"{path_argument(config, run.path, run.suite)}::{run.name}"


def path_argument(config: pytest.Config, path: Path, suite: Suite) -> str:
    """Return the path of a file of a suite as an argument of pytest: relative, but for a bundled suite elsewhere."""
    relative = os.path.relpath(path, config.invocation_params.dir)
    return str(path) if relative.startswith(os.pardir) and suite.bundled else relative


def _options(context: SuiteContext) -> tuple[tuple[str, str], ...]:
    settings = context.options
    target, guards = target_options(context)
    return (
        ("mode", "" if settings.mode == "fixture" else settings.mode),
        target,
        ("backend", settings.backend),
        ("model", settings.model),
        ("base-url", _base_url(context)),
        guards,
        ("trials", str(settings.trials) if settings.trials > 1 else ""),
    )


def target_options(context: SuiteContext) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the options, by name, for the same target and the same guards; each value is empty where none is set."""
    settings = context.options
    # as in records: a URL or a command may contain a secret
    target = settings.target and (context.target_name or settings.target)
    guards = "none" if settings.guards == () else ",".join(settings.guards or ())
    return ("target", target), ("guard", guards)


def _base_url(context: SuiteContext) -> str:
    """Return the URL of the model's server if a backend uses it: only then it is known to contain no password."""
    live, settings = context.live, context.options
    if live is None:
        return ""
    has_judge = any(client.backend.name == settings.backend for client in live.by_role.values())
    return settings.base_url if live.primary is not None or has_judge else ""


# with -vv, all are shown
_MAX_SHOWN = 20
VERBOSE = 2
"""How verbose pytest is with `-vv`."""
# what pytest's short summary lists: the character of its option -r, and how a case is counted
_LISTED = {"failed": ("f", "more failing case"), "error": ("E", "more error")}


class ErrorGroups:
    """Shows equal errors once, and the first failing cases and errors, in the process that the user started."""

    def __init__(self) -> None:
        self._all: dict[str, list[Any]] = {}
        self._repeated: list[pytest.TestReport] = []
        self._unexplained: list[pytest.TestReport] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Leave out repeated errors and further cases in pytest's sections; count what its short summary leaves out."""
        stats = terminalreporter.stats
        self._all = {name: stats[name] for name in _LISTED if name in stats}
        style = terminalreporter.config.option.tbstyle
        cases = {name: _cases(reports) for name, reports in self._all.items()}
        if style != "no":
            self._repeated = list(_repeated(cases.get("error", ())))
        if style == "line":
            # pytest writes the location and the message in a line
            for report in chain(*cases.values()):
                report.longrepr = replace(report.longrepr, text="")
        elif style != "no":
            once = {name: _without(reports, self._repeated) for name, reports in cases.items()}
            self._unexplained = [report for reports in once.values() for report in _others(terminalreporter, reports)]
        self._leave_out(terminalreporter, [*self._repeated, *self._unexplained])
        result = yield
        listed = [name for name, (character, _) in _LISTED.items() if character in terminalreporter.reportchars]
        unlisted = {name: len(self._all[name]) - len(stats[name]) for name in listed if name in self._all}
        counts = [pluralize(count, _LISTED[name][1]) for name, count in unlisted.items() if count]
        if counts:
            terminalreporter.line(f"{' and '.join(counts)}; -vv explains all, -vv --tb=no lists them")
        stats |= self._all
        return result

    def show_all(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all errors and failures again: other plugins read them. Count those that are not explained.

        pytest does not list the cases that fail only a gate. They are explained here.
        """
        terminalreporter.stats |= self._all
        if self._repeated:
            terminalreporter.write_sep("_", f"{pluralize(len(self._repeated), 'more case')} with errors as above")
        _count_others(terminalreporter, len(self._unexplained))
        self._explain_gated(terminalreporter)

    def shorten_list(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Leave further cases out of pytest's short summary, which it writes after all plugins."""
        others = (_others(terminalreporter, _cases(reports)) for reports in self._all.values())
        self._leave_out(terminalreporter, [*chain(*others)])

    def _leave_out(self, reporter: pytest.TerminalReporter, hidden: Sequence[pytest.TestReport]) -> None:
        reporter.stats |= {name: _without(reports, hidden) for name, reports in self._all.items()}

    def _explain_gated(self, reporter: pytest.TerminalReporter) -> None:
        """Explain the failing cases where only gates decide, whose reports pytest does not show."""
        gated = [report for report in reporter.stats.get("xfailed", ()) if _is_failing_case(report)]
        if not gated or reporter.config.option.tbstyle in {"no", "line"}:
            return
        others = _others(reporter, gated)
        reporter.section("FAILING CASES, judged by the gates", yellow=True)
        for report in _without(gated, others):
            reporter.write_sep("_", printable(report.location[2]), yellow=True)
            for line in str(report.longrepr).splitlines():
                reporter.line(line)
        _count_others(reporter, len(others))


def _cases(reports: Iterable[Any]) -> list[Any]:
    """Return the reports of cases: not those of other tests, of errors that no case has, and of collection."""
    return [each for each in reports if isinstance(each.longrepr, Explanation)]


def _without(reports: Iterable[Any], hidden: Iterable[pytest.TestReport]) -> list[Any]:
    ids = set(map(id, hidden))
    return [report for report in reports if id(report) not in ids]


def _repeated(reports: Iterable[pytest.TestReport]) -> Iterator[pytest.TestReport]:
    """Yield the reports of cases whose error is that of an earlier one."""
    from pytest_packbench.analysis.counting import error_key

    seen: set[str] = set()
    for report in reports:
        lines = [line for line in str(report.longrepr).splitlines() if not line.startswith((RERUN, INPUT))]
        path, _, name = report.location
        key = error_key("\n".join(lines), name, path)
        if key in seen:
            yield report
        seen.add(key)


def _is_failing_case(report: pytest.TestReport) -> bool:
    # the report of another phase has the properties of the case as well
    return report.when == "call" and dict(report.user_properties).get("verdict") == "failed"


def _others(reporter: pytest.TerminalReporter, reports: Sequence[pytest.TestReport]) -> Sequence[pytest.TestReport]:
    """Return the reports that are only counted."""
    return () if reporter.config.get_verbosity() >= VERBOSE else reports[_MAX_SHOWN:]


def _count_others(reporter: pytest.TerminalReporter, count: int) -> None:
    if count:
        reporter.write_sep("_", f"{pluralize(count, 'more case')}; -vv explains all")
