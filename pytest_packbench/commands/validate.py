"""`packbench validate`: whether any of our files can be read, and which version it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FINE, UNUSABLE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_LINE_KEYS = {
    "entry of a journal": {"suite", "test_id", "nodeid", "verdict", "terms"},
    "result of a run": {"run_id", "test_id", "result"},
    "error of a run": {"run_id", "test_id", "verdict", "kind", "message", "file", "timestamp"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="+", type=Path, help="case, cassette, suite.yaml, report, .jsonl, or a folder")


def run(arguments: argparse.Namespace) -> int:
    """Print one line a file: what it is, or what is wrong with it and where."""
    bad = False
    for path in arguments.paths:
        for file in _files(path):
            try:
                sys.stdout.write(f"{file}: {kind_of(file)}\n")
            except (ValueError, OSError) as error:
                bad = True
                text = f"{file}: {error.strerror}" if isinstance(error, OSError) else " ".join(str(error).split())
                sys.stdout.write(f"{text if text.startswith(str(file)) else f'{file}: {text}'}: NOT VALID\n")
    return UNUSABLE if bad else FINE


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    suffixes = {".json", ".jsonl", ".yaml"}
    yield from (file for file in sorted(path.rglob("*")) if file.is_file() and file.suffix in suffixes)


def kind_of(path: Path) -> str:
    """Read a file as what it is.

    Args:
        path: any file of ours.

    Returns:
        What it is, with the version of its form.

    Raises:
        ValueError: it can't be read as any; one line with the place.
        OSError: it can't be read at all.
    """
    if path.suffix in {".yaml", ".yml"}:
        from pytest_packbench.api import load_suite

        return f"rules of a suite of pack {load_suite(path.parent).config.pack}"
    if path.suffix == ".jsonl":
        return _lines(path)
    from pytest_packbench.cases.load import parse_json
    from pytest_packbench.cases.problem import CaseError, Problem

    try:
        data = parse_json(path.read_bytes())
    except ValueError as error:
        raise CaseError(str(path), [getattr(error, "problem", Problem("", str(error), "expected JSON"))]) from None
    if isinstance(data, dict) and "cassette_version" in data:
        from pytest_packbench.engine.cassette import load_cassette

        cassette, _ = load_cassette(path, source=str(path))
        return f"cassette, version {cassette.cassette_version}, {cassette.origin}"
    if isinstance(data, dict) and "packbench" in data:
        from pytest_packbench.records.stored import load_run

        return f"report of a run, version {data['packbench'].get('version')}, {len(load_run(path).entries)} cases"
    return _case(path, data)


def _case(path: Path, data: Any) -> str:
    from pytest_packbench.cases.load import check_case
    from pytest_packbench.cases.model import Case
    from pytest_packbench.cases.problem import CaseError, Problem, suggestion
    from pytest_packbench.packs import builtin

    packs = builtin()
    name = data.get("pack_id") if isinstance(data, dict) else None
    if isinstance(name, str) and name not in packs:
        problem = Problem("/pack_id", f'no built-in pack is called "{name}"', suggestion(name, sorted(packs)))
        raise CaseError(str(path), [problem])
    model = packs[name].case_model if isinstance(name, str) else Case
    case = check_case(data, model, source=str(path), stem=path.stem, pack=None).case
    return f"case of pack {case.pack_id}"


def _lines(path: Path) -> str:
    kinds: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                kind = _line(line.rstrip(b"\r\n"), f"{path}:{number}")
                kinds[kind] = kinds.get(kind, 0) + 1
    if len(kinds) > 1:
        raise ValueError(f"holds lines of several kinds: {', '.join(sorted(kinds))}")
    return next(
        (f"{count} {'line' if count == 1 else 'lines'}, each {kind}" for kind, count in kinds.items()), "no lines"
    )


def _line(line: bytes, place: str) -> str:
    from pytest_packbench.records.evalrecord import EVAL_SCHEMA_VERSION, EvalRecord, RecordError

    try:
        EvalRecord.from_json_line(line, strict=False)
    except RecordError as error:
        try:
            keys = set(json.loads(line))
        except (ValueError, TypeError):
            keys = set()
        kind = next((kind for kind, needed in _LINE_KEYS.items() if needed <= keys), None)
        if kind is None:
            raise ValueError(f"{place}: {error}") from None
        return f"{kind}, version 1"
    return f"eval record, version {EVAL_SCHEMA_VERSION}"
