"""`packbench schema`: the JSON Schemas of our files, made from the models that read them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FINE, UsageError

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.model.pack import Pack

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS = ("case", "suite", "cassette", "record", "report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("kind", choices=KINDS)
    about = "for case and suite: a pack's name, or its module:attr; all built-in packs where it isn't given"
    parser.add_argument("--pack", help=about)


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    sys.stdout.write(json.dumps(schema(arguments.kind, arguments.pack), indent=2, ensure_ascii=False) + "\n")
    return FINE


def schema(kind: str, pack: str | None = None) -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a kind of file.

    Args:
        kind: one of `KINDS`.
        pack: for `case` and `suite`, a pack's name or `module:attr`; None for any built-in one, told apart by name.

    Raises:
        UsageError: there is no such pack.
        PackError: it can't be loaded.
    """
    if kind in {"case", "suite"}:
        return {"$schema": DIALECT, **_of_packs(kind, pack)}
    if kind == "cassette":
        from pytest_packbench.model.cassette import Cassette

        return {"$schema": DIALECT, **Cassette.model_json_schema()}
    from pytest_packbench.model.schema import RECORD, REPORT

    return {"$schema": DIALECT, **(RECORD if kind == "record" else REPORT)}


def _of_packs(kind: str, pack: str | None) -> dict[str, Any]:
    chosen = _chosen(pack)
    key = "pack_id" if kind == "case" else "pack"
    found = []
    definitions: dict[str, Any] = {}
    for one in chosen:
        model = one.case_model if kind == "case" else one.suite_model
        # packs may call different things by one name
        prefix = f"{one.name}." if len(chosen) > 1 else ""
        made = model.model_json_schema(by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}")
        definitions |= {prefix + name: part for name, part in made.pop("$defs", {}).items()}
        if kind == "suite":
            gate = definitions.get(f"{prefix}Gate", {"properties": {"metric": {}}})
            gate["properties"]["metric"]["enum"] = list(one.suite_model.metric_names())
        made["properties"][key] = {**made["properties"][key], "const": one.name}
        found.append(made)
    schemas = found[0] if len(found) == 1 else {"anyOf": found}
    return {"$defs": definitions, **schemas} if definitions else schemas


def _chosen(pack: str | None) -> list[Pack]:
    from pytest_packbench.packs.registry import Packs, builtin, import_pack

    if pack is None:
        own = builtin()
        return [own[name] for name in sorted(own)]
    if ":" in pack:
        return [import_pack(pack)]
    packs = Packs()
    if pack not in packs:
        raise UsageError(f'no pack is called "{pack}"; known: {", ".join(sorted(packs))}')
    return [packs[pack]]
