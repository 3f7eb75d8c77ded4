"""`packbench accept`: take over recordings that change older ones, or add to old ones what they were made with."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_run_options
from pytest_packbench.model.errors import pluralize

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.cases.recordings import Recording
    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.suite import Suite

_MAX_LINES = 60
# recordings are replayed whatever the suite, its scripted model, the environment or a copied option says
_REPLAY = ("--packbench-mode=fixture", "--packbench-backend=recorded")


class Taken(NamedTuple):
    """What was found about one recording.

    Attributes:
        text: what is shown of it, one or more lines.
        problem: why it can't be taken over; empty if it can.
        is_note: whether it is about all recordings.
    """

    text: str
    problem: str = ""
    is_note: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the name of a suite of this project")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the ids of cases; all that wait by default")
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="add target, guards, judges and tools of today to recordings that state none, instead",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")
    add_run_options(parser, "the recordings are for")


def run(arguments: argparse.Namespace) -> int:
    """Show each recording's score before and after and its changed answers, and take it over."""
    from pytest_packbench.pytest_plugin.project import ProjectError, with_suite
    from pytest_packbench.reports.terminal import printable

    def use(suites: SuiteContexts, suite: Suite) -> list[Taken]:
        if suite.bundled:
            raise UsageError(f'suite "{suite.name}": recordings of the installed package can\'t be changed')
        context = suites.context(suite)
        chosen = _adopted if arguments.adopt else _accepted
        redact = suites.redactor.text
        return [
            taken._replace(text=redact(taken.text), problem=redact(taken.problem))
            for taken in chosen(context, arguments.cases, write=not arguments.dry_run)
        ]

    try:
        found = with_suite(arguments.suite, [*arguments.options, *_REPLAY], use)
    except ProjectError as error:
        raise UsageError(str(error)) from None
    sys.stdout.write("".join(f"{printable(taken.text)}\n" for taken in found))
    for taken in found:
        if taken.problem:
            sys.stderr.write(f"packbench: not taken over: {printable(taken.problem)}\n")
    found = [taken for taken in found if not taken.is_note]
    done = sum(not taken.problem for taken in found)
    if not found:
        none = "nothing to add: each recording states its" if arguments.adopt else "no recording waits for"
        what = "conditions" if arguments.adopt else "approval"
        sys.stdout.write(f"suite {arguments.suite}: {none} {what}\n")
    else:
        verb = "would be taken over" if arguments.dry_run else "taken over"
        sys.stdout.write(f"{done} of {len(found)} {verb}\n")
    return FAILED if done < len(found) else FINE


def _accepted(context: SuiteContext, names: Sequence[str], *, write: bool) -> Iterator[Taken]:
    """Replay each pending recording beside the older one; move it in the older one's place if it can be replayed."""
    from pytest_packbench.engine.attempt import attempt

    suite = context.suite
    folder = suite.pending_path("x").parent
    pending = {path.stem: path for path in sorted(folder.glob("*.json"))}
    unknown = [name for name in names if name not in pending]
    if unknown:
        raise UsageError(f"{unknown[0]}: no recording in {folder} waits for approval")
    cases = _cases(context)
    now = replace(context, suite=replace(suite, fixtures=folder.relative_to(suite.path).as_posix()))
    for name in names or pending:
        loaded = cases.get(name)
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


def _adopted(context: SuiteContext, names: Sequence[str], *, write: bool) -> Iterator[Taken]:
    """Add today's conditions to each recording that states none, with the tools that its replay offers."""
    from pytest_packbench.engine.conditions import recorded_conditions, tool_hashes
    from pytest_packbench.model.cassette import CASSETTE_VERSION

    old = {name: (recording, data) for name, recording, data in _unstated(context.suite) if not names or name in names}
    if not old:
        return
    conditions = recorded_conditions(context, None)
    yield Taken(_assumption(conditions, len(old)), is_note=True)
    cases, opaque = _cases(context), context.caller.opaque
    stated: dict[str, tuple[Recording, dict[str, Any]]] = {}
    for name, (recording, data) in old.items():
        if name not in cases:
            yield Taken(f"{name}:", f"{recording.file}: no case that can be read has this id; remove the recording")
            continue
        exchanges = data.pop("exchanges", None)
        data |= {"cassette_version": CASSETTE_VERSION, "conditions": dict(conditions), "exchanges": exchanges}
        done, problem = _replayed(context, cases[name], data)
        if problem:
            yield Taken(f"{name}: {_score_text(done)}", f"{recording.file}: {problem}")
            continue
        tools = [] if done.replay is None else tool_hashes(done.replay.tools)
        if not opaque:
            data["conditions"]["tools"] = [{"name": tool, "sha256": sha256} for tool, sha256 in tools]
        stated[name] = recording, data
        offered = f", tools {', '.join(tool for tool, _ in tools)}" if tools else ""
        yield Taken(f"{name}: {_score_text(done)}{offered}")
    if write:
        _write_all(stated.values())


def _unstated(suite: Suite) -> Iterator[tuple[str, Recording, dict[str, Any]]]:
    """Yield the recordings that state no conditions, each with the id of its case and its content."""
    from pytest_packbench.cases.files import read_case_bytes
    from pytest_packbench.cases.load import JsonError, parse_json
    from pytest_packbench.cases.recordings import all_recordings
    from pytest_packbench.limits import RECORDING

    for name, recording in all_recordings(suite).items():
        try:
            data = parse_json(read_case_bytes(recording.location, RECORDING), RECORDING)
        except (JsonError, OSError):
            # the run and lint report it
            continue
        if isinstance(data, dict) and "cassette_version" in data and "conditions" not in data:
            yield name, recording, data


def _replayed(context: SuiteContext, loaded: LoadedCase, data: dict[str, Any]) -> tuple[Attempt, str]:
    """Replay a recording that is not yet in its place; return the attempt, and why it can't be replayed."""
    from pytest_packbench.engine.attempt import attempt

    with TemporaryDirectory(dir=context.suite.path / context.suite.fixtures, prefix=".adopt-") as folder:
        path = Path(folder)
        (path / f"{loaded.case.id}.json").write_text(json.dumps(data), encoding="utf-8")
        fixtures = path.relative_to(context.suite.path).as_posix()
        done = attempt(replace(context, suite=replace(context.suite, fixtures=fixtures)), loaded)
    # the file that was replayed is gone
    problem = "" if done.failure is None else done.failure.message.removeprefix(f"{fixtures}/{loaded.case.id}.json: ")
    return done, problem


def _write_all(recordings: Iterable[tuple[Recording, dict[str, Any]]]) -> None:
    """Write recordings into their files, single or packed."""
    from pytest_packbench.atomic import write_atomic
    from pytest_packbench.engine.recordings import write_recording

    packed: dict[str, dict[int, dict[str, Any]]] = {}
    for recording, data in recordings:
        if recording.location.line:
            packed.setdefault(recording.location.path, {})[recording.location.line] = data
        else:
            write_recording(Path(recording.location.path), data)
    for path, changed in packed.items():
        lines = Path(path).read_text("utf-8").split("\n")
        for number, data in changed.items():
            lines[number - 1] = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        write_atomic(Path(path), "\n".join(lines))


def _cases(context: SuiteContext) -> dict[str, LoadedCase]:
    """Return the cases that can be read, by id."""
    from pytest_packbench.cases.files import iter_cases, load_case
    from pytest_packbench.model.errors import CaseError

    cases = {}
    for location in iter_cases(context.suite.cases_path):
        with suppress(CaseError):
            cases[location.name] = load_case(
                location, context.pack.case_model, file=location.path, pack=context.pack.name
            )
    return cases


def _assumption(conditions: Mapping[str, Any], count: int) -> str:
    target, pack = conditions["target"], conditions["pack"]
    parts = {kind: ", ".join(part["name"] for part in conditions[kind]) or "none" for kind in ("guards", "judges")}
    stated = [
        f"target {target['kind']} {target['address']}",
        f"pack {pack['name']} {pack['version']}",
        *(f"{kind} {names}" for kind, names in parts.items()),
    ]
    return f"{pluralize(count, 'recording')} without conditions; assumed are those of today: {'; '.join(stated)}"


def _score_text(done: Attempt) -> str:
    if done.failure is not None:
        return f"error {done.failure.kind}"
    score = done.score
    return "no score" if score is None or score.score is None else f"{score.score:.2f} {score.verdict}"


def _difference(before: Attempt, after: Attempt) -> list[str]:
    """Return what two recordings of a case differ in, as a diff of their answers."""
    old = before.cassette.model_dump(mode="json") if before.cassette is not None else {}
    new = after.cassette.model_dump(mode="json") if after.cassette is not None else {}
    heads = ("llm_backend", "llm_model", "conditions")
    lines = _diff({key: old.get(key) for key in heads}, {key: new.get(key) for key in heads}, "conditions")
    pairs = zip_longest(old.get("exchanges", ()), new.get("exchanges", ()))
    for number, (one, other) in enumerate(pairs, 1):
        role = (other or one)["role"]
        lines += _diff(_answer(one), _answer(other), f"answer {number} ({role})")
    for number, (one, other) in enumerate(zip_longest(old.get("gateway", ()), new.get("gateway", ())), 1):
        call = other or one
        lines += _diff(_own_answer(one), _own_answer(other), f"answer {number} ({call['method']} {call['path']})")
    rest = len(lines) - _MAX_LINES
    return lines if rest <= 0 else [*lines[:_MAX_LINES], f"  ... {rest} more lines"]


def _answer(exchange: dict[str, Any] | None) -> object:
    if exchange is None:
        return None
    kept = {key: exchange[key] for key in ("answer", "refusal", "tool_calls") if exchange[key]}
    return kept["answer"] if kept.keys() == {"answer"} else kept


def _own_answer(exchange: dict[str, Any] | None) -> object:
    """Return the answer to a call of the target's own client; status and end only where it is not a usual one."""
    if exchange is None:
        return None
    from pytest_packbench.engine.gateway.exchanges import answer_of

    answer, kept = answer_of(exchange), {key: exchange[key] for key in ("status", "end")}
    return answer if kept == {"status": 200, "end": "complete"} else {**kept, "answer": answer}


def _diff(before: object, after: object, title: str) -> list[str]:
    if before == after:
        return []
    old, new = (_lines(value) for value in (before, after))
    return [f"  {title}:", *(f"    {line}" for line in list(unified_diff(old, new, lineterm="", n=1))[3:])]


def _lines(value: object) -> list[str]:
    if value is None:
        return []
    return value.splitlines() if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False).split("\n")
