"""Generate the reference pages from the code: options, hooks, commands and file formats."""

from __future__ import annotations

import argparse
import inspect
import re
from typing import TYPE_CHECKING, Any

from pytest_packbench import hookspecs
from pytest_packbench.commands import COMMANDS, declare
from pytest_packbench.commands.validate import KINDS, schema
from pytest_packbench.packs import TARGET_FILES
from pytest_packbench.plugin import SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FILES = {
    "case": "`cases/<case type>/<id>.json`, or a line of a `.jsonl` under `cases/`",
    "suite": "`suite.yaml`",
    "cassette": "`fixtures/<case id>.json`, or a line of `fixtures/recordings.jsonl`",
    "control": "`fixtures/controls/<control id>.json`, or a line of a `.jsonl` there",
    "record": "a line of `records.jsonl`",
    "report": "`report.json`, under the key `packbench`",
    "baseline": "`baseline.json` in the folder of a suite",
    "policy_changes": "`policy_changes.yaml` in the folder of a suite",
    "review": "a line of `review.jsonl`, which the page of a run makes",
}


def options() -> str:
    """Render the table of all settings."""
    rows = [
        (
            _flag(setting),
            "" if setting.name == "resume" else f"`PACKBENCH_{setting.name.upper()}`",
            "" if setting.ini is None else f"`packbench_{setting.name}`",
            _default(setting),
            setting.help,
        )
        for setting in SETTINGS
    ]
    files = [
        ("", f"`PACKBENCH_{name.upper()}`", f"`packbench_{name}`", "", text) for name, text in TARGET_FILES.items()
    ]
    return _table(("option", "environment", "ini", "default", "meaning"), [*rows, *files])


def _flag(setting: Setting) -> str:
    if setting.option is None:
        return ""
    value = setting.option.get("metavar") or "|".join(setting.option.get("choices", ()))
    flag = f"--packbench-{setting.name.replace('_', '-')}"
    return f"`{flag}={value}`" if value else f"`{flag}`"


def _default(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else ""


def hooks() -> str:
    """Render the hooks with their signatures and docstrings."""
    sections = []
    for name, function in sorted(vars(hookspecs).items()):
        if name.startswith("pytest_packbench_") and inspect.isfunction(function):
            arguments = ", ".join(inspect.signature(function).parameters)
            sections.append(
                f"## `{name}`\n\n```python\ndef {name}({arguments}): ...\n```\n\n{inspect.getdoc(function)}"
            )
    return "\n\n".join(sections)


def commands() -> str:
    """Render the help of each command."""
    return "\n\n".join(f"## packbench {name}\n\n```text\n{usage(name)}\n```" for name in COMMANDS)


def usage(name: str) -> str:
    """Return the help of a command."""
    parser = argparse.ArgumentParser(prog=f"packbench {name}", description=COMMANDS[name], formatter_class=_Wide)
    declare(name, parser)
    return parser.format_help().strip()


class _Wide(argparse.HelpFormatter):
    """Wraps at the width of the page instead of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


def formats() -> str:
    """Render the keys of every file format, from its schema."""
    return "\n\n".join(_format(kind) for kind in KINDS)


def _format(kind: str) -> str:
    document = schema(kind)
    definitions = document.get("$defs", {})
    tables = [
        part for variant in document.get("anyOf", [document]) for part in _keys(_title(variant), variant, definitions)
    ]
    for name, definition in definitions.items():
        if "properties" in definition:
            tables += _keys(name, definition, definitions)
    head = f"## {kind}\n\nFile: {_FILES.get(kind, kind)}. Schema: [{kind}.schema.json](schemas/{kind}.schema.json)."
    return "\n\n".join([head, *tables])


def _keys(title: str, definition: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    """Render the table of an object's keys, and those of its nested objects."""
    required = set(definition.get("required", ()))
    rows = []
    inner: list[tuple[str, dict[str, Any]]] = []
    for name, value in definition.get("properties", {}).items():
        description = _one_line(value.get("description", ""))
        rows.append((f"`{name}`", _kind(value, definitions), "yes" if name in required else "", description))
        nested = value.get("items", value) if value.get("type") in ["array", "object"] else value
        if "properties" in nested:
            inner.append((f"{title}: {name}", nested))
    # an empty column is left out
    width = 4 if any(row[3] for row in rows) else 3
    table = _table(("key", "type", "required", "meaning")[:width], [row[:width] for row in rows])
    yield f"### {title}\n\n{table}"
    for name, value in inner:
        yield from _keys(name, value, definitions)


def _title(definition: dict[str, Any]) -> str:
    pack = next(
        (
            definition["properties"][key]["const"]
            for key in ("pack_id", "pack")
            if "const" in definition["properties"].get(key, {})
        ),
        "",
    )
    return f"{definition['title']} (pack {pack})" if pack else str(definition["title"])


def _kind(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].removeprefix("#/$defs/")
        definition = definitions.get(name, {})
        return name if "properties" in definition or not definition else _kind(definition, definitions)
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{allowed}`" for allowed in value["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            return " or ".join(dict.fromkeys(_kind(variant, definitions) for variant in value[key]))
    kind = value.get("type", "anything")
    if kind == "array" and isinstance(value.get("items"), dict):
        return f"list of {_kind(value['items'], definitions)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
