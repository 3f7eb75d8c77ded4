"""`packbench lint`: everything about a suite's files that a machine can see is not good."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, suite_and_pack

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.finding import Finding
    from pytest_packbench.model.pack import LintOption, Pack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, with the files that the packs can make use of."""
    parser.add_argument("suite", help="a suite's name, or its folder")
    add_root(parser)
    add_packs(parser)
    parser.add_argument("--format", choices=["text", "json"], default="text", help="one line a finding, or JSON")
    for name, option in _options().items():
        parser.add_argument(f"--{name}", dest=_dest(name), type=Path, metavar="FILE", help=option.help)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings and their count; 1 where one of them is an error."""
    from pytest_packbench.cases.lint import lint

    suite, pack = suite_and_pack(arguments.suite, arguments)
    given = {name: path for name in _options() if (path := getattr(arguments, _dest(name))) is not None}
    _refuse_foreign(given, pack)
    shown = Path(os.path.relpath(suite.path))
    findings = [replace(finding, file=(shown / finding.file).as_posix()) for finding in lint(suite, pack, given)]
    sys.stdout.write(_json(findings) if arguments.format == "json" else _text(findings))
    return FAILED if _count(findings, "error") else FINE


def _options() -> dict[str, LintOption]:
    from pytest_packbench.packs.registry import Packs

    return Packs().lint_options


def _dest(name: str) -> str:
    return f"lint_{name.replace('-', '_')}"


def _refuse_foreign(given: Iterable[str], pack: Pack) -> None:
    known = {option.name for option in pack.lint_options}
    for name in given:
        if name not in known:
            raise UsageError(f'--{name}: the pack "{pack.name}" of this suite makes no use of it')


def _json(findings: Sequence[Finding]) -> str:
    document = {
        "version": 1,
        "errors": _count(findings, "error"),
        "warnings": _count(findings, "warning"),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _text(findings: Sequence[Finding]) -> str:
    from pytest_packbench.model.text import pluralize
    from pytest_packbench.reports.terminal import printable

    counts = ", ".join(pluralize(_count(findings, severity), severity) for severity in ("error", "warning"))
    lines = [printable(f"{finding}{' (warning)' if finding.severity == 'warning' else ''}") for finding in findings]
    return "\n".join([*lines, counts]) + "\n"


def _count(findings: Sequence[Finding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)
