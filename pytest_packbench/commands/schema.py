"""`packbench schema`: print the JSON Schema of a file format, generated from the model that reads it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FINE
from pytest_packbench.commands.paths import chosen_pack, packs_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.model.case import StrictModel
    from pytest_packbench.model.pack import Pack

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS = ("case", "suite", "cassette", "control", "record", "report", "baseline", "policy_changes", "review")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("kind", choices=KINDS)
    about = "for case and suite: a pack by its name or as MODULE:ATTR (default: all built-in packs)"
    parser.add_argument("--pack", metavar="PACK", help=about)


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    packs = None if arguments.pack is None else [chosen_pack(arguments.pack, packs_of(arguments))]
    sys.stdout.write(json.dumps(schema(arguments.kind, packs), indent=2, ensure_ascii=False) + "\n")
    return FINE


def schema(kind: str, packs: Sequence[Pack] | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file format.

    Args:
        kind: one of `KINDS`.
        packs: for `case` and `suite`, the packs; None for the built-in ones, each under its name.

    Raises:
        PackError: a pack can't be loaded.
    """
    if kind in {"case", "suite"}:
        from pytest_packbench.packs.registry import builtin

        return {"$schema": DIALECT, **_schema_of_packs(kind, packs or [pack for _, pack in sorted(builtin().items())])}
    from pytest_packbench.model import baseline, cassette, control, policy
    from pytest_packbench.model.schema import RECORD, REPORT

    # the models of formats that depend on no pack
    models: dict[str, type[StrictModel]] = {
        "cassette": cassette.Cassette,
        "control": control.Control,
        "baseline": baseline.CommittedBaseline,
        "policy_changes": policy.AllowedChanges,
        "review": policy.ReviewMark,
    }
    if kind in models:
        return {"$schema": DIALECT, **models[kind].model_json_schema()}
    return {"$schema": DIALECT, **(RECORD if kind == "record" else REPORT)}


def _schema_of_packs(kind: str, packs: Sequence[Pack]) -> dict[str, Any]:
    key = "pack_id" if kind == "case" else "pack"
    schemas = []
    definitions: dict[str, Any] = {}
    for pack in packs:
        model = pack.case_model if kind == "case" else pack.suite_model
        # packs may use one name for different models
        prefix = f"{pack.name}." if len(packs) > 1 else ""
        generated = model.model_json_schema(by_alias=True, ref_template=f"#/$defs/{prefix}{{model}}")
        definitions |= {prefix + name: definition for name, definition in generated.pop("$defs", {}).items()}
        if kind == "suite":
            gate = definitions.get(f"{prefix}Gate", {"properties": {"metric": {}}})
            gate["properties"]["metric"]["enum"] = list(pack.suite_model.metric_names())
        generated["properties"][key] = {**generated["properties"][key], "const": pack.name}
        schemas.append(generated)
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"$defs": definitions, **schema} if definitions else schema
