"""`packbench lint`: check a suite's rules, cases and recordings for mistakes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cases.lint import PROFILES, lint
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, add_trust, packs_for_options, packs_of, suite_and_pack
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.reports.terminal import printable, printable_json

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, with an option for each file that the packs can use."""
    parser.add_argument("suite", help="a suite's name, or its folder; bundled/NAME for a bundled suite")
    add_root(parser)
    add_packs(parser)
    add_trust(parser)
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default=PROFILES[0],
        help="which rules are checked: all (own, the default), or without those for suites that are written for "
        "packbench (imported)",
    )
    parser.add_argument("--format", choices=["text", "json"], default="text", help="one line per finding, or JSON")
    for name, option in packs_for_options(parser).lint_options.items():
        parser.add_argument(f"--{name}", dest=_dest(name), type=Path, metavar="FILE", help=option.help)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings and their count; return 1 if one of them is an error."""
    suite, pack = suite_and_pack(arguments.suite, arguments)
    packs = packs_of(arguments)
    if not_imported := packs.not_imported(suite.path):
        sys.stderr.write(f"packbench: {os.path.relpath(suite.path / CONFIG_NAME)}: {not_imported}\n")
    options = packs.lint_options
    files = {name: path for name in options if (path := getattr(arguments, _dest(name), None)) is not None}
    used = {option.name for option in pack.lint_options}
    if unused := [name for name in files if name not in used]:
        raise UsageError(
            f'--{unused[0]}: the pack "{pack.name}" of this suite does not use this file; remove the option'
        )
    folder = Path(os.path.relpath(suite.path))
    findings = [
        replace(finding, file=(folder / finding.file).as_posix())
        for finding in lint(suite, pack, files, profile=arguments.profile)
    ]
    errors, warnings = (sum(each.severity == severity for each in findings) for severity in ("error", "warning"))
    if arguments.format == "json":
        document = {"version": 1, "errors": errors, "warnings": warnings, "findings": [*map(asdict, findings)]}
        sys.stdout.write(printable_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
    else:
        for each in findings:
            sys.stdout.write(printable(f"{each}{' (warning)' if each.severity == 'warning' else ''}") + "\n")
        sys.stdout.write(f"{pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}\n")
    return FAILED if errors else FINE


def _dest(name: str) -> str:
    return f"lint_{name.replace('-', '_')}"
