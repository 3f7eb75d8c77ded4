"""The parts of the site that are made from the code: options, hooks, commands and file formats."""

from __future__ import annotations

import argparse
import inspect
import re
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from pytest_packbench import hookspecs
from pytest_packbench.cli import COMMANDS
from pytest_packbench.commands.schema import KINDS, schema
from pytest_packbench.packs import target_files
from pytest_packbench.plugin import SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FILES = {
    "case": "`cases/<case type>/<id>.json`, or a line of a `.jsonl` below `cases/`",
    "suite": "`suite.yaml`",
    "cassette": "`fixtures/<case id>.json`",
    "record": "a line of `records.jsonl`",
    "report": "`report.json`, under the key `packbench`",
}


def options() -> str:
    """Give the settings as a table, as the parser knows them."""
    rows = [
        (_flag(one), f"`PACKBENCH_{one.name.upper()}`", f"`packbench_{one.name}`", _default(one), one.help)
        for one in SETTINGS
    ]
    files = [
        ("", f"`PACKBENCH_{name.upper()}`", f"`packbench_{name}`", "", about) for name, about in target_files().items()
    ]
    return _table(("option", "environment", "ini", "default", ""), [*rows, *files])


def _flag(one: Setting) -> str:
    if one.option is None:
        return ""
    value = one.option.get("metavar") or "|".join(one.option.get("choices", ()))
    flag = f"--packbench-{one.name.replace('_', '-')}"
    return f"`{flag}={value}`" if value else f"`{flag}`"


def _default(one: Setting) -> str:
    return f"`{one.default}`" if one.default else ""


def hooks() -> str:
    """Give the hooks with their signatures and what their specifications say."""
    found = []
    for name, function in sorted(vars(hookspecs).items()):
        if name.startswith("pytest_packbench_") and inspect.isfunction(function):
            arguments = ", ".join(inspect.signature(function).parameters)
            found.append(f"## `{name}`\n\n```python\ndef {name}({arguments}): ...\n```\n\n{_text(function)}")
    return "\n\n".join(found)


def commands() -> str:
    """Give each command with its arguments, as its parser shows them."""
    return "\n\n".join(f"## packbench {name}\n\n```text\n{usage(name)}\n```" for name in COMMANDS)


def usage(name: str) -> str:
    """Give a command's own help."""
    parser = argparse.ArgumentParser(prog=f"packbench {name}", description=COMMANDS[name], formatter_class=_Wide)
    import_module(f"pytest_packbench.commands.{name}{'_' * iskeyword(name)}").add_arguments(parser)
    return parser.format_help().strip()


class _Wide(argparse.HelpFormatter):
    """Wraps where the page does, whatever terminal builds it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


def formats() -> str:
    """Give the keys of every file, as its schema has them."""
    return "\n\n".join(_format(kind) for kind in KINDS)


def _format(kind: str) -> str:
    whole = schema(kind)
    definitions = whole.get("$defs", {})
    tables = [part for one in whole.get("anyOf", [whole]) for part in _keys(_title(one), one, definitions)]
    for name, one in definitions.items():
        if "properties" in one:
            tables += _keys(name, one, definitions)
    head = f"## {kind}\n\nStands in {_FILES.get(kind, kind)}. Schema: [{kind}.schema.json](schemas/{kind}.schema.json)."
    return "\n\n".join([head, *tables])


def _keys(title: str, one: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    """Give the table of an object's keys, and those of the objects that stand in it."""
    required = set(one.get("required", ()))
    rows = []
    inner: list[tuple[str, dict[str, Any]]] = []
    for name, value in one.get("properties", {}).items():
        about = _one_line(value.get("description", ""))
        rows.append((f"`{name}`", _kind(value, definitions), "yes" if name in required else "", about))
        nested = value.get("items", value) if value.get("type") in ["array", "object"] else value
        if "properties" in nested:
            inner.append((f"{title}: {name}", nested))
    # a column that says nothing is left out
    width = 4 if any(row[3] for row in rows) else 3
    table = _table(("key", "holds", "needed", "")[:width], [row[:width] for row in rows])
    yield f"### {title}\n\n{table}"
    for name, value in inner:
        yield from _keys(name, value, definitions)


def _title(one: dict[str, Any]) -> str:
    pack = next(
        (one["properties"][key]["const"] for key in ("pack_id", "pack") if "const" in one["properties"].get(key, {})),
        "",
    )
    return f"{one['title']} (pack {pack})" if pack else str(one["title"])


def _kind(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].removeprefix("#/$defs/")
        one = definitions.get(name, {})
        return name if "properties" in one or not one else _kind(one, definitions)
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            return " or ".join(dict.fromkeys(_kind(one, definitions) for one in value[key]))
    kind = value.get("type", "anything")
    if kind == "array" and isinstance(value.get("items"), dict):
        return f"list of {_kind(value['items'], definitions)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _text(function: object) -> str:
    # single line ends are wrapped prose
    return inspect.getdoc(function) or ""


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
