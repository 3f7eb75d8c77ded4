"""Text for a terminal: expected and actual use of a live run, and why a case failed.

Plain lines without colours. Control characters in text from models and cases are escaped.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.statistics import (
    DASH,
)
from pytest_packbench.model.errors import pluralize, single_spaced
from pytest_packbench.model.result import Result, Score, Term, describe_score
from pytest_packbench.model.run import WORKER_WINDOW, ExpectedCalls, RunOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.model.pack import Comparison
    from pytest_packbench.model.recording import ControlResult
    from pytest_packbench.model.report import PolicyOutcome

_WIDTH = 160
_MESSAGE = 200
_MAX_MESSAGES = 24
_SENTENCE = 1600
# the runner of GitHub accepts `::` at the beginning of a line, and the older `##[` anywhere; Azure Pipelines accepts
# `##vso[` and TeamCity `##teamcity[`
# logs are also split elsewhere than at line ends
_BREAKS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
_COMMAND = rf"(?m)(^|[{_BREAKS}])([^\S\n{_BREAKS}]*)::"
_OLD_COMMAND = r"##(?=\w*\[)"
# in JSON every character may be an escape
_JSON_CHARACTER = r"[^\n -~]|##(?=\w*\[)"
# the first alternative is what joins emoji, or the letters of scripts such as Persian
_ODD = r"(?<=([^\x00-\x7f]))[\u200c\u200d](?=([^\x00-\x7f]))|[^\n -~]"
# white space that moves the cursor
_CURSOR_MOVES = frozenset("\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029")


def printable(text: str) -> str:
    r"""Escape characters that a terminal or an editor would interpret, and keep line ends.

    Args:
        text: any text, also from a model or a case.

    Returns:
        The text with control and format characters (escape sequences, bidirectional overrides, surrogates,
        unassigned ones) as their escapes, such as `\x1b`, and every kind of space except the line end as a space.
        Joiners stay between two characters that they can join. What services of CI would take for a command is changed,
        see `escape_commands`.
    """
    return escape_commands(text if text.isprintable() else re.sub(_ODD, _visible, text))


def escape_commands(text: str) -> str:
    """Change a text so that GitHub Actions, Azure Pipelines and TeamCity do not take any of it for a command."""
    if "::" not in text and "##" not in text:
        return text
    return re.sub(_OLD_COMMAND, "## ", re.sub(_COMMAND, r"\1\2: :", text))


def printable_json(text: str) -> str:
    """Return a JSON document of the same value, without characters and commands that `printable` would change.

    Args:
        text: the document; its line ends are between values.
    """
    return re.sub(_JSON_CHARACTER, _json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    found = match[0]
    return "#\\u0023" if found == "##" else found if found.isprintable() else json.dumps(found)[1:-1]


def one_line(text: str, limit: int = _WIDTH) -> str:
    """Return text as one printable line of at most `limit` characters; an ellipsis shows that it was cut."""
    # long texts are cut first, to save time
    beginning = text[: 4 * limit]
    line = printable(single_spaced(beginning))
    return line if len(line) <= limit and len(beginning) == len(text) else f"{line[: limit - 1].rstrip()}…"


def expected_text(expected: ExpectedCalls, mode: str) -> str:
    """Return how many model calls a run is expected to make, in one line.

    Args:
        expected: the calls.
        mode: `live` or `record`.
    """
    trials = f" x {expected.trials} trials" if expected.trials > 1 else ""
    more = "more model call" if expected.recorded else "model call"
    parts = [
        f"about {pluralize(expected.recorded, 'model call')} (as recorded)" if expected.recorded else "",
        f"at least {pluralize(expected.unrecorded, more)} (cases without a recording)" if expected.unrecorded else "",
        f"{pluralize(expected.external, 'attempt')} with a target that calls its model itself"
        if expected.external
        else "",
    ]
    calls = "; ".join(filter(None, parts)) or "no model calls"
    return f"packbench: {pluralize(expected.cases, 'case')}{trials} to run in {mode} mode: {calls}"


def prompts_text(*, recorded: bool) -> str:
    """Return the first line of a run that records: whether recordings contain prompts, and how to change that."""
    if recorded:
        return "packbench: recordings contain prompts, which may contain personal data (packbench_record_prompts = yes)"
    return "packbench: recordings contain no prompts, only their hashes (packbench_record_prompts = no)"


def gateway_text(mode: str, upstreams: Mapping[str, str]) -> str:
    """Return the line of a run whose gateway serves: what happens to calls of a pipeline's own clients.

    Args:
        mode: the run's.
        upstreams: where calls are forwarded, by provider.
    """
    how = {"fixture": "replayed, offline", "record": "forwarded and recorded"}.get(mode, "forwarded and counted")
    line = f"packbench: gateway: model calls of the target's own clients are {how} (--packbench-gateway=off: not seen)"
    places = ", ".join(f"{provider} -> {address}" for provider, address in upstreams.items())
    return f"{line}: {places}" if places else line


def recorded_text(results: Iterable[Result]) -> str:
    """Return for how many cases of a run there is a recording, and how many have calls that belong to no case."""
    firsts = [result for result in results if result.attempt.trial == 0]
    recorded = sum(result.attempt.cassette_sha256 is not None for result in firsts)
    unattributed = sum(result.score.kind == "unattributed" for result in firsts)
    problem = "; %s not: model calls can't be attributed (record with --packbench-concurrency=1)"
    return f"recorded: {recorded} of {pluralize(len(firsts), 'case')}{problem % unattributed if unattributed else ''}"


def caps_text(options: RunOptions, *, shared: bool, asks_backend: bool) -> str:
    """Return the limits of a live run in one line.

    Args:
        options: those of the run.
        shared: whether several workers run it.
        asks_backend: whether it asks a backend; the temperature of targets' own clients is not known.
    """
    caps = options.caps
    named = (
        ("tokens", None if caps.tokens is None else f"{caps.tokens:,}"),
        ("cost", None if caps.cost is None else f"{caps.cost:g}"),
        ("seconds", None if caps.seconds is None else f"{caps.seconds:g}"),
    )
    limits = ", ".join(f"{name} {cap}" for name, cap in named if cap is not None)
    if limits and shared and (caps.tokens is not None or caps.cost is not None):
        limits += " (tokens and cost are split equally among the workers)"
    limits = limits or "none (set one with --packbench-max-tokens, --packbench-max-cost or --packbench-max-seconds)"
    in_flight = f"{min(options.concurrency, WORKER_WINDOW)} per worker" if shared else f"{options.concurrency}"
    timeout = "no timeout" if options.case_timeout_s is None else f"timeout {options.case_timeout_s:g} s per attempt"
    temperature = f"; temperature {options.temperature:g}" if asks_backend else ""
    return f"packbench: caps: {limits}; concurrent attempts: {in_flight}, {timeout}{temperature}"


def spent_text(spent: Mapping[str, Any]) -> str:
    """Return what a live run used, in one line.

    Args:
        spent: the ledger as JSON (`Ledger.as_json`).
    """
    unseen = pluralize(spent.get("unmetered", 0), "attempt")
    if spent["calls"] is None:
        tokens = f", {spent['tokens']:,} tokens reported by results" if spent["tokens"] else ""
        if spent.get("unmetered"):
            return f"used: not known; {unseen} without a call through packbench{tokens}"
        cost = "" if spent["cost"] is None else f", {spent['cost']:.4f} {spent['currency']}"
        return f"used: model calls not known{tokens}{cost}"
    cost = "cost not known" if spent["cost"] is None else f"{spent['cost']:.4f} {spent['currency']}"
    uncounted = f" ({pluralize(spent['uncounted'], 'call')} without a token count)" if spent["uncounted"] else ""
    cached = f", {spent['cached']:,} more answered from the cache" if spent.get("cached") else ""
    unknown = f"; not known for {unseen} without a call through packbench" if spent.get("unmetered") else ""
    calls = pluralize(spent["calls"], "model call")
    tokens = "tokens not known" if spent["tokens"] is None else f"{spent['tokens']:,} tokens"
    return f"used: {calls}, {tokens}{uncounted}, {cost}{cached}{unknown}"


def headline(score: Score) -> str:
    """Return the score of a case and the terms that explain it in one line, which pytest's short summary shows.

    The terms are those that cost points or gave none. The first term leads if it describes a match that gave a part of
    its points. Without any of these, it is named if it describes the match or is the only one: of several criteria, any
    may have given too few points.
    """
    terms = score.terms
    names = [term.name for term in lost_terms(terms)]
    is_partial = score.match_level is not None and terms[0].effect == "add" and 0 < terms[0].value < 1
    if is_partial or (not names and (score.match_level is not None or len(terms) == 1)):
        names = [terms[0].name, *names]
    why = f" ({', '.join(names)})" if names else ""
    return f"{describe_score(score)}{why}"


def lost_terms(terms: Sequence[Term], *, or_without: bool = True) -> list[Term]:
    """Return the terms that cost points, and those that gave none where these are asked for (`or_without`)."""
    added = [term for term in terms if term.effect == "add"]
    lost = [term for term in added if term.value < 0 or (or_without and not term.value)]
    return [term for term in terms if term.effect == "zero" or term in lost]


def quoted(text: str) -> str:
    """Quote an argument for a shell, in one line; line breaks and control characters in the form of Bash."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + text.encode("unicode_escape").decode().replace("'", r"\'") + "'"


def trials_lines(trials: Sequence[Result], verdict: Result, rule: str | dict[str, int]) -> list[str]:
    """Return lines about the trials of a case, which come before the explanation of the worst one.

    Args:
        trials: their results.
        verdict: the case's result over all trials.
        rule: the trials rule.
    """
    from pytest_packbench.analysis.counting import MEAN, has_hard_fail, trials_rule_text

    passed = sum(trial.score.verdict == "passed" for trial in trials)
    mean = "no mean score"
    if verdict.score.score is not None:
        mean = f"mean score {verdict.score.score:.2f}, threshold {verdict.score.threshold:.2f}"
    hard_fails = sum(map(has_hard_fail, trials)) if rule == MEAN else 0
    never = f"; {pluralize(hard_fails, 'trial')} with a hard fail, which never passes" if hard_fails else ""
    return [
        f"{passed} of {len(trials)} trials passed, {mean} (rule: {trials_rule_text(rule)}){never}",
        "scores: " + ", ".join(DASH if trial.score.score is None else f"{trial.score.score:.2f}" for trial in trials),
        "",
        "the worst trial:",
    ]


def failure_text(head: Sequence[str], score: Score, rows: Iterable[Comparison], where: Sequence[str]) -> str:
    """Explain a case below its threshold: expected and actual values, terms, files, how to re-run it.

    Args:
        head: the first lines.
        score: the score that is too low.
        rows: expected against actual values.
        where: the last lines.
    """
    compared = [(row.what, row.expected, row.actual, "") for row in rows]
    sum_of_terms = f"{score.score:.2f}  score (threshold {score.threshold:.2f})"
    return _explanation(head, compared, score.terms, [sum_of_terms], where)


def control_text(result: ControlResult, command: str) -> str:
    """Explain a control that did not end as written, or can't be replayed.

    Args:
        result: what it came to.
        command: the line with the command that replays it again.
    """
    compared = [(row.what, row.expected, row.actual, "DEVIATES" if row.deviation else "") for row in result.rows]
    message = f"the control did not end as written: {result.message}" if compared else result.message
    terms = () if result.actual is None else result.actual.terms
    about = [f"control: {result.file}", *([f"case:    {result.case}"] if result.case else [])]
    return _explanation(list(filter(None, (message, result.description))), compared, terms, [], [*about, command])


def _explanation(
    head: Sequence[str],
    compared: Sequence[tuple[str, ...]],
    terms: Iterable[Term],
    below: Sequence[str],
    where: Sequence[str],
) -> str:
    """Return tables of what was compared and of the terms, between lines; `below` is directly below the terms."""
    points = [(term.points, term.name, term.detail) for term in terms]
    parts = (
        head,
        text_table([("", "expected", "actual", ""), *compared]) if compared else (),
        [*(text_table([("points", "term", ""), *points]) if points else ()), *below],
        where,
    )
    return printable("\n\n".join("\n".join(part) for part in parts if part))


def transcript_lines(transcript: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the lines of a transcript, each cut to one line, of a long one the first and the last.

    Args:
        transcript: role of the exchange, role of the message, and text; see `engine.recordings.transcript`.
    """
    rows = [(role, who, one_line(text, _MESSAGE)) for role, who, text in transcript]
    if len(rows) > _MAX_MESSAGES:
        left_out = len(rows) - _MAX_MESSAGES
        half = _MAX_MESSAGES // 2
        rows = [*rows[:half], ("", "", f"... {pluralize(left_out, 'message')} left out"), *rows[-half:]]
    return [*text_table([("model call", "message", "text"), *rows]), ""] if rows else []


def error_text(
    message: str, details: Sequence[str], where: Sequence[str], *, heading: str = "in the code under test:"
) -> str:
    """Explain an error: its message, details such as the traceback in the user's code, how to re-run the case."""
    part = ["", heading, *(f"  {line}" for line in details)] if details else []
    return printable("\n".join([message, *part, "", *where]))


def policy_lines(outcome: PolicyOutcome | None) -> list[str]:
    """Return in which points an acceptance policy differs from that of a base, one line each."""
    return [] if outcome is None else [f"policy: {one_line(line, _SENTENCE)}" for line in outcome.lines()]


def text_table(rows: Iterable[tuple[str, ...]], *, numbers: bool = False) -> list[str]:
    """Return rows as aligned columns, one line each.

    Args:
        rows: the cells, all rows with the same number of them.
        numbers: align all columns but the first to the right.
    """
    from tabulate import tabulate

    cells = [tuple(map(printable, row)) for row in rows]
    if not cells:
        return []
    sides = ("left", *("right" if numbers else "left" for _ in cells[0][1:]))
    text = tabulate(cells, tablefmt="plain", colalign=sides, disable_numparse=True)
    return [line.rstrip() for line in text.split("\n")]


def _visible(match: re.Match[str]) -> str:
    char, before, after = match[0], match[1], match[2]
    if char.isprintable() or (before and f"{before}{after}".isprintable()):
        return char
    return " " if char.isspace() and char not in _CURSOR_MOVES else char.encode("unicode_escape").decode("ascii")
