"""The conditions of a recording: the target, the guards, the judges and the pack, and whether they are today's."""

from __future__ import annotations

import hashlib
import inspect
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.errors import CassetteError, Problem, format_value
from pytest_packbench.model.run import STUB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.cassette import Cassette, RecordedPart, RecordedTool
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.request import Tool


REFERENCE = "reference"
"""The name of a pack's own target in records."""
_PREFIXES = {"http://": "http", "https://": "http", "cmd:": "cmd", "hook:": "hook"}


class Part(NamedTuple):
    """A guard or a judge of a run; see `RecordedPart`."""

    name: str
    settings: dict[str, Any]
    code_sha256: str | None


def guard_name(guard: Any) -> str:
    """Return a guard's `name`, else the name of its class or function."""
    name = getattr(guard, "name", None)
    if isinstance(name, str) and name:
        return name
    return getattr(guard, "__qualname__", None) or type(guard).__qualname__


def parts_of(named: Iterable[tuple[str, Any]]) -> tuple[Part, ...]:
    """Describe guards or judges as they are before the first case: their name, their settings, a hash of their code.

    Args:
        named: each with its name; None in the place of one that the pack provides itself.

    Returns:
        One part for each. The settings are what the attribute `settings` contains, else all attributes of the object.
        The code is the source file of its class or function.
    """
    return tuple(Part(name, _settings_of(part), _code_sha256(part)) for name, part in named)


def judges_of(pack: Pack, rules: Any, registered: Mapping[str, Any]) -> tuple[Part, ...]:
    """Describe the judges of a suite: those that it names, and the models that its pack asks beside the one under test.

    Args:
        pack: its pack.
        rules: the content of its `suite.yaml`.
        registered: the judges of the user, by name.
    """
    named = parts_of((name, registered.get(name)) for name in pack.judges(rules))
    asked = (
        Part(role, {"role": role, "backend": backend, "model": model}, None)
        for role, (backend, model, *_) in pack.roles(rules).items()
    )
    return (*named, *asked)


def recorded_conditions(context: SuiteContext, tools: Sequence[Tool] | None) -> dict[str, Any]:
    """Return the conditions of a recording as plain JSON.

    Args:
        context: the suite's.
        tools: the tools that the model was offered; None where that is not known.
    """
    return {
        "target": target_of(context),
        "pack": {"name": context.pack.name, "version": context.pack.version},
        "guards": [part._asdict() for part in context.guard_parts],
        "judges": [part._asdict() for part in context.judge_parts],
        "tools": None if tools is None else [{"name": name, "sha256": sha256} for name, sha256 in tool_hashes(tools)],
    }


def target_of(context: SuiteContext) -> dict[str, str]:
    """Return the kind and the address of a suite's target, without secrets."""
    name = context.target_name
    if name == REFERENCE:
        return {"kind": REFERENCE, "address": context.pack.name}
    kind = next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), "python")
    return {"kind": kind, "address": name if kind == "http" else name.removeprefix(f"{kind}:")}


def tool_hashes(tools: Iterable[Tool]) -> list[tuple[str, str]]:
    """Return name and hash of each distinct tool, sorted."""
    from pytest_packbench.model.case import canonical_sha256

    return sorted({(tool.name, canonical_sha256(tool.as_json())) for tool in tools})


def check_conditions(cassette: Cassette, context: SuiteContext, *, case_id: str, source: str) -> str:
    """Check that a recording was made under the conditions of this run.

    Guards and judges, and for a target outside this process the target and the code of both, must be those of the
    recording: what is replayed has not met today's. A Python target runs again, so it may differ, and so may the code
    of its guards.

    Args:
        cassette: the recording.
        context: the suite's.
        case_id: the case, for the command that records it again.
        source: the recording's file, for messages.

    Returns:
        What has changed without making the recording invalid, in one line; empty if nothing has.

    Raises:
        CassetteError: a condition differs; names both sides and the command that records it again.
    """
    recorded, opaque = cassette.conditions, context.caller.opaque

    def invalid(pointer: str, problem: str) -> CassetteError:
        return CassetteError(source, [Problem(pointer, problem, record_again(context, case_id))])

    pack = context.pack
    target, now = recorded.target.model_dump(), target_of(context)
    is_replayed_whole = not cassette.gateway and (opaque or target["kind"] in {"http", "cmd"})
    is_other_script = context.backend == STUB and cassette.llm_model in {*pack.scripted} - {context.model}
    parts = (("guard", recorded.guards, context.guard_parts), ("judge", recorded.judges, context.judge_parts))
    for differs, pointer, before, current in (
        (recorded.pack.name != pack.name, "/conditions/pack/name", f'"{recorded.pack.name}"', f'"{pack.name}"'),
        (is_replayed_whole and target != now, "/conditions/target", _target_text(**target), _target_text(**now)),
        (is_other_script, "/llm_model", f"the scripted model {cassette.llm_model}", context.model),
        *(
            (_settings(old) != _settings(new), f"/conditions/{kind}s", _parts_text(old), _parts_text(new))
            for kind, old, new in parts
        ),
    ):
        if differs:
            raise invalid(pointer, f"recorded with {before}, run with {current}")
    remarks = []
    if cassette.gateway and cassette.gateway[0].version is None:
        remarks.append("recorded without the headers of requests, so they are not compared")
    for kind, old, new in parts:
        changed = [part.name for part, before in zip(new, old, strict=True) if part.code_sha256 != before.code_sha256]
        if changed and opaque:
            raise invalid(f"/conditions/{kind}s", f"the code of {', '.join(changed)} has changed since")
        # the answers of a person are from no run with these guards
        if cassette.origin != "authored":
            remarks += [f"the code of {kind} {name} has changed since the recording" for name in changed]
    if cassette.origin == "recorded" and recorded.pack.version not in {None, pack.version}:
        remarks.append(f"recorded with version {recorded.pack.version} of the pack {pack.name}, now {pack.version}")
    return "; ".join(remarks)


def tools_problem(recorded: Sequence[RecordedTool] | None, offered: Iterable[Tool]) -> str:
    """Return how the tools that the model was offered differ from the recorded ones; empty if they don't."""
    if recorded is None:
        return ""
    before = {tool.name: tool.sha256 for tool in recorded}
    now = dict(tool_hashes(offered))
    if before == now:
        return ""
    differing = {name for name, _ in before.items() ^ now.items()}
    changed = f"the tools {_names(before)}, run with {_names(now)}; these differ: {_names(differing)}"
    return f"/conditions/tools: recorded with {changed}"


def record_again(context: SuiteContext, case_id: str) -> str:
    """Return the advice to record a case again, with the command; the backend is the user's choice."""
    options = context.options
    # as in records: a URL or a command may contain a secret
    target = f" --packbench-target={shlex.quote(context.target_name)}" if options.target else ""
    guards = "none" if options.guards == () else ",".join(options.guards or ())
    guard = f" --packbench-guard={shlex.quote(guards)}" if guards else ""
    command = f"pytest --packbench-suite={context.suite.name} --packbench-mode=record{target}{guard} -k {case_id}"
    return f"record it again: {command}"


def _target_text(kind: str, address: str) -> str:
    return address if kind in {"http", "python"} else f"{kind}:{address}"


def _settings(parts: Iterable[RecordedPart | Part]) -> list[tuple[str, dict[str, Any]]]:
    return [(part.name, part.settings) for part in parts]


def _parts_text(parts: Iterable[RecordedPart | Part]) -> str:
    texts = []
    for part in parts:
        settings = ", ".join(f"{name}={format_value(value)}" for name, value in part.settings.items())
        texts.append(f"{part.name} ({settings})" if settings else part.name)
    return ", ".join(texts) or "none"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _settings_of(part: Any) -> dict[str, Any]:
    if part is None or inspect.isfunction(part):
        return {}
    stated = getattr(part, "settings", None)
    if not isinstance(stated, dict):
        slots = [name for owner in type(part).__mro__ for name in _slots(owner)]
        stated = {
            **{name: getattr(part, name) for name in slots if hasattr(part, name)},
            **getattr(part, "__dict__", {}),
        }
    return {str(name): _plain(value) for name, value in sorted(stated.items()) if name != "name"}


def _slots(owner: type) -> Sequence[str]:
    slots = owner.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if not name.startswith("__"))


def _plain(value: Any) -> Any:
    """Return a setting as JSON; of an object that is none, its type, since its text may contain an address."""
    if value is None or isinstance(value, bool | int | float | str | Path):
        return value.name if isinstance(value, Path) else value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=str)
    if isinstance(value, re.Pattern):
        return value.pattern if isinstance(value.pattern, str) else repr(value.pattern)
    kind = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _code_sha256(part: Any) -> str | None:
    if part is None:
        return None
    code = part if inspect.isroutine(part) or isinstance(part, type) else type(part)
    try:
        file = inspect.getsourcefile(code)
        content = Path(file).read_bytes() if file is not None else None
    except (TypeError, OSError):
        return None
    return None if content is None else hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()
