"""`packbench capture`: the conversations of a running app become drafts of cases, each with its recording.

The app runs as it is, next to a gateway that forwards its calls and keeps them in memory. A conversation that the
suite's own target replays becomes a draft, whose expected answer is left open. Nothing is written without a yes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from pydantic import TypeAdapter

from pytest_packbench.app import CAPTURE
from pytest_packbench.cases.finder import iter_cases
from pytest_packbench.cases.load import parse_json, read_located
from pytest_packbench.commands import UsageError, add_run_options, say
from pytest_packbench.engine.attempt import AttemptState, at_once, end, names_of, run_target
from pytest_packbench.engine.gateway import Gateway
from pytest_packbench.engine.gateway.conversations import Conversations
from pytest_packbench.engine.gateway.protocols import conflict_in
from pytest_packbench.engine.recordings import Replay, recording_of, write_recording
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import LoadedCase
from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.model.recording import Cassette

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.gateway import CaseTraffic


_TYPE = "captured"
_END_S = 5.0
_START = "start the app with these variables, and end this by Ctrl-C:"
_STATE = (
    "the app does not state its input: call pytest_packbench.capture(input) there, send the header x-packbench-input, "
    "or set capture: {input: POINTER} in suite.yaml"
)
_WARNING = "keys and tokens are redacted, personal data is not: look at these files before you share them"


def add_capture_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="the suite of this project that gets the cases")
    about = "serve at this port until Ctrl-C, for an app that is started elsewhere, instead of running COMMAND"
    parser.add_argument("--port", type=int, default=0, help=about)
    parser.add_argument("--yes", action="store_true", help="write without a question")
    add_run_options(parser, "replays the drafts")
    parser.add_argument("program", nargs="*", metavar="COMMAND", help="the app, behind two hyphens: -- python app.py")


def run_capture(arguments: argparse.Namespace) -> int:
    """Run the app, replay its conversations, show what they become, and write it after a yes; return 1 for no case."""
    from pytest_packbench.pytest_plugin.project import with_suite

    if bool(arguments.program) is bool(arguments.port) or arguments.port not in range(65536):
        raise UsageError("capture: expected either the app (-- COMMAND), or --port with 1 to 65535")
    if os.environ.get("CI") if arguments.yes else not sys.stdin.isatty():
        raise UsageError("capture: a person has to agree: expected a terminal, or --yes where CI is not set")
    options = [*arguments.options, "--packbench-gateway=on", "--packbench-backend=recorded"]
    drafts = with_suite(arguments.suite, options, partial(_captured, arguments))
    say(*(shown for shown, _ in drafts), _WARNING)
    files = {path: file for _, some in drafts for path, file in some.items()}
    if files and not arguments.yes:
        say(f"write {pluralize(len(files), 'file')}? [y/N]")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            files = {}
    for path, file in files.items():
        write_recording(path, file)
        say(f"wrote {Path(os.path.relpath(path)).as_posix()}")
    if not files:
        say("nothing was written")
    return int(_TYPE not in [path.parent.name for path in files])


def _captured(arguments: argparse.Namespace, context: SuiteContext) -> list[tuple[str, dict[Path, Any]]]:
    """Run the app, and return what becomes of each conversation: a line about it, and what is written by path.

    The latest conversation comes first, so that it counts among those with the same input.
    """
    serving: Any = context.serving
    if context.suite.bundled or (context.caller.opaque and not context.caller.runs_offline):
        expected = "expected one of this project, with a function or a program (cmd:) as its target"
        raise UsageError(f'suite "{context.suite.name}" with target {context.target_name}: {expected}')
    with serving.restored():
        if conflict := conflict_in(os.environ):
            raise UsageError(conflict)
        gateway = Gateway(offline=False, port=arguments.port)
        conversations = Conversations()
        gateway.configure(redactor=context.redactor, conversation_of=conversations.of)
        gateway.start()
        try:
            _run(arguments.program, {**gateway.environment(), CAPTURE: gateway.url})
        finally:
            gateway.stop()
    known: dict[str, str] = {}
    for location in iter_cases(context.suite.cases_path):
        # of those that are open too
        with suppress(OSError, ValueError, LookupError, TypeError):
            known[canonical_sha256(parse_json(read_located(location))["input"])] = location.name
    drafts = [_draft(context, serving, traffic, known) for traffic in reversed(conversations)]
    if not drafts:
        raise UsageError("no model call came: does the app read the address of its model from the variables?")
    return [*drafts, (f"calls beyond what is kept: {conversations.left_out}", {})]


def _run(program: list[str], variables: dict[str, str]) -> None:
    """Run an app until it ends, or wait for one that is started elsewhere; until Ctrl-C at the latest."""
    with suppress(KeyboardInterrupt, TimeoutExpired):
        if not program:
            lines = (f"export {name}={value}" for name, value in variables.items())
            # pytest takes what is printed elsewhere
            print(_START, *lines, sep="\n", file=sys.__stdout__, flush=True)
            Event().wait()
        process = Popen(program, env={**os.environ, **variables})  # noqa: S603 - the user's own, without a shell
        try:
            process.wait()
        except KeyboardInterrupt:
            # the terminal has sent it to the app as well
            process.wait(_END_S)
        finally:
            process.kill()


def _draft(
    context: SuiteContext, serving: Any, traffic: CaseTraffic, known: dict[str, str]
) -> tuple[str, dict[Path, Any]]:
    """Return what becomes of a conversation, and add its input to those that are known."""
    redactor, suite = context.redactor, context.suite
    state = AttemptState(traffic=traffic)
    state.stop_clock()
    state.llm_backend, state.llm_model = names_of(traffic.calls)
    calls = [call.as_exchange(context.options.record_prompts) for call in traffic.calls]
    asked = pluralize(len(calls), "call")
    # events of a stream split what the model wrote
    if found := redactor.find([*calls, [call.joined_texts() for call in traffic.calls]]):
        return f"dropped, {asked}: an answer contains {found[0].what} at {found[0].pointer}", {}
    name = f"{_TYPE}_{canonical_sha256(traffic.token)[:12]}"
    path = suite.cassette_path(name)
    try:
        value = _input_of(context, traffic)
        sha256 = canonical_sha256(value)
        if sha256 in known:
            return f"dropped, {asked}: the same input as case {known[sha256]}", {}
        model: Any = context.pack.case_model
        form: Any = model.model_fields["input"].annotation
        case_input = TypeAdapter(form).validate_python(value)
        loaded = LoadedCase(model.model_construct(id=name, input=case_input), "", sha256)
        recording: Any = recording_of(context, loaded, state)
        cassette = Cassette.model_validate(recording)
        replayed = serving.open_case(suite, name, cassette.gateway)
        state = AttemptState(cassette=cassette, replay=Replay(None, source=name), traffic=replayed)
        at_once(run_target(context, loaded, state))
        end(context, loaded, state)
        ended = state.failure
        # an exception may be the very failure that a user met
        is_whole = len(replayed.replayed) == len(calls)
        if ended is not None and not (ended.kind == "target_error" and is_whole):
            raise ValueError(f"the suite's target does not replay it: {ended.message}")  # noqa: TRY301 - as `_input_of`
    except ValueError as error:
        reason = redactor.excerpt(str(error))
        file = path.parent / f".{_TYPE}" / path.name
        return f"calls without a case, {asked}: {reason}", {file: {"reason": reason, "gateway": calls}}
    known[sha256] = name
    case = {
        "id": name,
        "pack_id": context.pack.name,
        "case_type": _TYPE,
        "difficulty": "medium",
        "input": value,
        # a case without expected, or with an unknown key, is an error, whatever its pack is
        "open": "add the key expected, with what is right for this input, and remove this key",
    }
    shown = redactor.excerpt(format_value(value)) if context.options.record_prompts else "not shown"
    result = f"returns {format_value(state.payload)}" if ended is None else f"fails: {ended.message}"
    files = {path: recording, suite.cases_path / _TYPE / path.name: case}
    return f"{name}, {asked}: input {shown}, the target {redactor.excerpt(result)}", files


def _input_of(context: SuiteContext, traffic: CaseTraffic) -> Any:
    """Return the input that the app states, else what `suite.yaml` points to in the first request.

    Raises:
        ValueError: there is none, it contains a secret, or a call failed.
    """
    if (error := traffic.unrecovered_error()) is not None:
        raise ValueError(f"a call failed ({error.kind}): {error}")
    _, _, stated = traffic.case_id.partition("?")
    pointer = context.suite.config.capture.get("input")
    if stated:
        value = parse_json(unquote_to_bytes(stated.encode("latin-1")))
    elif pointer is None:
        raise ValueError(_STATE)
    else:
        value = traffic.calls[0].body
        try:
            for step in pointer.split("/")[1:]:
                value = value[int(step)] if isinstance(value, list) else value[step]
        except (ValueError, LookupError, TypeError):
            raise ValueError(f"the first request has nothing at {pointer} (suite.yaml, /capture/input)") from None
    if context.redactor.find(value):
        raise ValueError("its input contains a secret")
    return value
