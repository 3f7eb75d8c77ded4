"""`packbench accept`: take over recordings that change older ones, after showing what changes."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.cases.load import UNSTATED_ADVICE
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_run_options
from pytest_packbench.model.errors import CaseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext

_MAX_LINES = 60


class Taken(NamedTuple):
    """What was found about one recording.

    Attributes:
        text: what is shown of it, one or more lines.
        problem: why it can't be taken over; empty if it can.
    """

    text: str
    problem: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the name of a suite of this project")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the ids of cases; all that wait by default")
    # removed; its message says what replaces it
    parser.add_argument("--adopt", action="store_true", help=SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")
    add_run_options(parser, "the recordings are for")


def run(arguments: argparse.Namespace) -> int:
    """Show each recording's score before and after and its changed answers, and take it over."""
    from pytest_packbench.pytest_plugin.project import with_suite
    from pytest_packbench.reports.terminal import printable

    if arguments.adopt:
        raise UsageError(f"--adopt was removed: for a recording without conditions, {UNSTATED_ADVICE}")

    def use(context: SuiteContext) -> list[Taken]:
        if context.suite.bundled:
            raise UsageError(f'suite "{context.suite.name}": recordings of the installed package can\'t be changed')
        redact, found = context.redactor.text, _accepted(context, arguments.cases, write=not arguments.dry_run)
        return [Taken(redact(taken.text), redact(taken.problem)) for taken in found]

    # recordings are replayed whatever the suite, its scripted model, the environment or a copied option says
    found = with_suite(arguments.suite, [*arguments.options, "--packbench-backend=recorded"], use)
    sys.stdout.write("".join(f"{printable(taken.text)}\n" for taken in found))
    problems = [taken.problem for taken in found if taken.problem]
    for problem in problems:
        sys.stderr.write(f"packbench: not taken over: {printable(problem)}\n")
    if not found:
        sys.stdout.write(f"suite {arguments.suite}: no recording waits for approval\n")
    else:
        verb = "would be taken over" if arguments.dry_run else "taken over"
        sys.stdout.write(f"{len(found) - len(problems)} of {len(found)} {verb}\n")
    return FAILED if problems else FINE


def _accepted(context: SuiteContext, names: Sequence[str], *, write: bool) -> Iterator[Taken]:
    """Replay each pending recording beside the older one; move it in the older one's place if it can be replayed."""
    from pytest_packbench.cases.files import CaseIndex, iter_cases, load_case
    from pytest_packbench.engine.attempt import attempt

    suite, pack = context.suite, context.pack
    folder = suite.pending_path("x").parent
    pending = {path.stem: path for path in sorted(folder.glob("*.json"))}
    unknown = [name for name in names if name not in pending]
    if unknown:
        raise UsageError(f"{unknown[0]}: no recording in {folder} waits for approval")
    cases = CaseIndex(iter_cases(suite.cases_path))
    now = replace(context, suite=replace(suite, fixtures=folder.relative_to(suite.path).as_posix()))
    for name in names or pending:
        location, loaded = cases.find(name), None
        if location is not None:
            with suppress(CaseError):
                loaded = load_case(location, pack.case_model, file=location.path, pack=pack.name)
        if loaded is None:
            yield Taken(f"{name}:", f"{pending[name]}: no case that can be read has this id; remove the recording")
            continue
        before, after = attempt(context, loaded), attempt(now, loaded)
        head = f"{name}: {_score_text(before)} -> {_score_text(after)}"
        if after.failure is not None:
            yield Taken(head, f"{pending[name]}: {after.failure.message}")
            continue
        yield Taken("\n".join([head, *_difference(before, after)]))
        if write:
            pending[name].replace(suite.cassette_path(name))


def _score_text(done: AttemptState) -> str:
    if done.failure is not None:
        return f"error {done.failure.kind}"
    score = done.score
    return "no score" if score is None or score.score is None else f"{score.score:.2f} {score.verdict}"


def _difference(before: AttemptState, after: AttemptState) -> list[str]:
    """Return what two recordings of a case differ in, as a diff of their answers."""
    old, new = _parts(before), _parts(after)
    lines: list[str] = []
    for title in old | new:
        one, other = (parts.get(title, "").splitlines() for parts in (old, new))
        if one != other:
            lines += [f"  {title}:", *(f"    {line}" for line in list(unified_diff(one, other, lineterm="", n=1))[3:])]
    rest = len(lines) - _MAX_LINES
    return lines if rest <= 0 else [*lines[:_MAX_LINES], f"  ... {rest} more lines"]


def _parts(done: AttemptState) -> dict[str, str]:
    """Return what is compared of the recording of an attempt: texts, each with a title."""
    from pytest_packbench.engine.gateway.exchanges import answer_of

    recording = done.cassette.model_dump(mode="json") if done.cassette is not None else {}
    parts = {"conditions": _text({key: recording.get(key) for key in ("llm_backend", "llm_model", "conditions")})}
    for number, exchange in enumerate(recording.get("exchanges", ()), 1):
        said = {key: exchange[key] for key in ("answer", "refusal", "tool_calls") if exchange[key]}
        only_answer = said.keys() == {"answer"}
        parts[f"answer {number} ({exchange['role']})"] = _text(said["answer"] if only_answer else said)
    for number, call in enumerate(recording.get("gateway", ()), 1):
        end = {key: call[key] for key in ("status", "end")}
        is_usual = end == {"status": 200, "end": "complete"}
        answer = answer_of(call)
        parts[f"answer {number} ({call['method']} {call['path']})"] = _text(
            answer if is_usual else {**end, "answer": answer}
        )
    return parts


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
