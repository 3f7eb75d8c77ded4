"""`packbench validate`: check any file of a suite or a run, and print its kind and version."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.api import load_suite
from pytest_packbench.cases.files import CaseIndex, case_lines, format_location, iter_cases, parse_line
from pytest_packbench.cases.load import (
    JsonError,
    check_case,
    load_cassette,
    parse_cassette,
    parse_control,
    parse_json,
    read_changes,
)
from pytest_packbench.cases.recordings import case_of_control, check_target, control_file_problem, escaped_name
from pytest_packbench.cli import FINE, UNUSABLE
from pytest_packbench.commands.paths import add_packs, add_trust, bundled_folder, packs_of
from pytest_packbench.limits import RECORDING, read_regular
from pytest_packbench.model.case import Case
from pytest_packbench.model.checks import extension_problem
from pytest_packbench.model.control import ControlResult
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    ControlError,
    InputError,
    Problem,
    SuiteError,
    duplicate_id,
    pluralize,
    suggestion,
)
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.policy import CHANGES_NAME
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord, RecordError
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, CONTROLS, FIXTURES
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.committed import read_baseline
from pytest_packbench.runs.journal import ENDED_KEY, HEADER_KEY, JOURNAL_VERSION, parse_entry
from pytest_packbench.runs.lines import RecordLineError, RecordSource, check_line, read_records, strict_json_line
from pytest_packbench.runs.report import is_report, open_report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_packbench.cases.files import CaseLine
    from pytest_packbench.model.control import Control
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.packs.registry import Packs


# an empty file of a run is recognized by its name
_EMPTY = {
    "records.jsonl": "no eval record: no case of the run was scored",
    "errors.jsonl": "no error of a run",
    "payloads.jsonl": "no result of a run",
    "controls.jsonl": "no control",
    "journal.jsonl": "no entry of a journal: no case had ended",
}
_JOURNAL = f"entry of a journal, version {JOURNAL_VERSION}"
_HEAD = f"head of a journal, version {JOURNAL_VERSION}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="a case, cassette, suite.yaml, report or .jsonl file, a folder of them, or bundled/NAME",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="read eval records as the Rust reader does: the suites, backends and values of the spec only",
    )
    add_packs(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per file: its kind, or what is wrong with it and where."""
    bad = False
    packs = packs_of(arguments)
    for path in arguments.paths:
        files = list(_files(bundled_folder(path)))
        if not files:
            bad = True
            sys.stdout.write(printable(f"{path}: contains no file of a suite or a run: NOT VALID") + "\n")
        for file in files:
            try:
                kind = kind_of(file, packs, strict=arguments.strict)
                sys.stdout.write(printable(f"{escaped_name(str(file))}: {kind}") + "\n")
            except (ValueError, OSError) as error:
                bad = True
                sys.stdout.write(printable(f"{_error_text(file, error)}: NOT VALID") + "\n")
    return UNUSABLE if bad else FINE


def kind_of(path: Path, packs: Packs, *, strict: bool = False) -> str:
    """Recognize and check a file of a suite or a run.

    Args:
        path: the file.
        packs: the available packs.
        strict: whether records are read exactly as Rust reads them.

    Returns:
        Its kind, with the version of its format.

    Raises:
        ValueError: the file is not valid; one line with the location.
        OSError: the file can't be read.
    """
    problem = control_file_problem(str(path)) if _is_in_controls(path) else None
    if problem is not None:
        raise ControlError(escaped_name(str(path)), [problem])
    if path.suffix in {".yaml", ".yml"}:
        return _yaml(path, packs)
    if path.suffix == ".jsonl":
        return _strict_records(path) if strict and _has_records(path) else _lines(path, packs)
    if path.name == BASELINE_NAME:
        baseline = read_baseline(path)
        return f"committed baseline, version {baseline.baseline_version}, {pluralize(len(baseline.cases), 'case')}"
    if is_report(path):
        return f"report of a run, version {RUN_DOCUMENT_VERSION}, {_case_count(open_report(path).results)}"
    try:
        data = parse_json(read_regular(path, RECORDING), RECORDING)
    except JsonError as error:
        raise CaseError(str(path), [error.problem]) from None
    return _json(path, data, packs)


def _json(path: Path, data: Any, packs: Packs) -> str:
    """Check a case, a cassette or a control, and return its kind."""
    if _is_control(path, data):
        control = _checked_control(read_regular(path, RECORDING), path, packs, name=path.stem)
        return f"control of the case {control.case}, which has to end as {control.expected.verdict}"
    if isinstance(data, dict) and "cassette_version" in data:
        cassette, _ = load_cassette(path, source=str(path))
        return f"cassette, version {cassette.cassette_version}, {cassette.origin}"
    return _case(path, data, packs)


def _yaml(path: Path, packs: Packs) -> str:
    if path.name == CHANGES_NAME:
        return pluralize(len(read_changes(path, source=str(path)).changes), "allowed change") + " of a policy"
    suite = load_suite(path.parent, packs=packs)
    return "; ".join(filter(None, [f"rules of a suite of pack {suite.config.pack}", packs.not_imported(suite.path)]))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    suffixes = {".json", ".jsonl", ".yaml"}
    for file in sorted(path.rglob("*")):
        if _is_in_controls(file):
            # what a run reads or refuses; hidden files are a finding of lint
            is_read = file.suffix in suffixes or control_file_problem(str(file)) is not None
            yield from [file] if is_read and not file.name.startswith(".") else []
        # a broken link and a pipe are files that can't be read
        elif file.suffix in suffixes and not file.is_dir():
            yield file


def _error_text(file: Path, error: ValueError | OSError) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else " ".join(str(error).split())
    # most errors begin with the file, some with its absolute path
    shown = escaped_name(str(file))
    text = text.replace(str(file.absolute()), shown, 1)
    return text if text.startswith(shown) else f"{shown}: {text}"


def _case(path: Path, data: Any, packs: Packs) -> str:
    name = data.get("pack_id") if isinstance(data, dict) else None
    if isinstance(name, str) and name not in packs:
        problem = Problem("/pack_id", f'unknown pack "{name}"', suggestion(name, sorted(packs)))
        raise CaseError(str(path), [problem])
    model = _case_model(name, path, packs) if isinstance(name, str) else Case
    case = check_case(data, model, source=str(path), stem=path.stem, pack=None).case
    return f"case of pack {case.pack_id}"


def _case_model(name: str, path: Path, packs: Packs) -> type[Case]:
    """Return the model of the cases of a file: that of its suite, which a run reads them by, if it has one."""
    suite = next((folder.parent for folder in path.absolute().parents if folder.name == "cases"), None)
    config = None if suite is None else _config_of(suite, packs)
    return packs[name].case_model if config is None or config.pack != name else packs[name].for_suite(config).case_model


@lru_cache(maxsize=4)
def _config_of(suite: Path, packs: Packs) -> SuiteConfig | None:
    # a mistake in the rules is reported with their own file
    with suppress(SuiteError):
        return load_suite(suite, packs=packs).config
    return None


def _is_control(path: Path, data: object) -> bool:
    """Return whether a JSON value is meant as a control: by its keys, or by the folder of its file."""
    if isinstance(data, dict) and data.keys() & {"pack_id", "run_id"}:
        return False
    has_keys = isinstance(data, dict) and {"case", "expected"} <= data.keys()
    return has_keys or _is_in_controls(path)


def _is_in_controls(path: Path) -> bool:
    return path.absolute().parent.parts[-2:] == (FIXTURES, CONTROLS)


def _checked_control(raw: bytes, path: Path, packs: Packs, *, name: str | None, line: int = 0) -> Control:
    """Read a control, and check that its suite has its case; of a file elsewhere nothing is known."""
    source, folder = format_location(escaped_name(str(path)), line), path.absolute().parent
    suite = folder.parent.parent
    if folder.parts[-2:] != (FIXTURES, CONTROLS) or not (suite / CONFIG_NAME).exists():
        return parse_control(raw, source=source, name=name)
    config = load_suite(suite, packs=packs).config
    pack = packs[config.pack].for_suite(config)
    control = parse_control(raw, source=source, name=name, names_checks=names_checks(pack))
    case_of_control(control, _cases_of(suite), source=source)
    check_target(control, pack, config, source=source)
    return control


@lru_cache(maxsize=4)
def _cases_of(suite: Path) -> CaseIndex:
    return CaseIndex(iter_cases(suite / "cases"))


def _case_count(results: Iterable[CaseResult]) -> str:
    cases: set[tuple[str, str]] = set()
    trials = 0
    for result in results:
        cases.add((result.test_id, result.file))
        trials += 1
    return pluralize(len(cases), "case") + (f", {trials} trials" if trials != len(cases) else "")


def _has_records(path: Path) -> bool:
    """Return whether the first line that is not blank is meant as an eval record, valid or not."""
    line = next(case_lines(path), None)
    if line is None:
        return False
    try:
        EvalRecord.from_json_line(line.raw, strict=False)
    except RecordError:
        return bool({"test_suite", "schema_version"} & _object(line.raw).keys())
    return True


def _strict_records(path: Path) -> str:
    try:
        number = sum(1 for _ in read_records(RecordSource(str(path)), strict=True))
    except RecordLineError as error:
        line, _, problem = str(error).removeprefix(f"{path}:").partition(" ")
        raise ValueError(f"{path}:{line}: {problem}") from None
    return f"{pluralize(number, 'line')}, each eval record, version {EVAL_SCHEMA_VERSION}, as the Rust reader reads it"


def _lines(path: Path, packs: Packs) -> str:
    kinds: dict[str, int] = {}
    ids: dict[str, int] = {}
    truncated, has_head = "", False
    for line in case_lines(path):
        try:
            kind = _line(line, path, packs, ids)
        except InputError:
            # its message begins with the location
            raise
        except ValueError as error:
            if kinds.keys() <= {_JOURNAL} and (kinds or has_head) and not line.raw.endswith(b"\n"):
                truncated = "; the last line is truncated and was skipped"
                break
            raise ValueError(f"{path}:{line.number}: {error}") from None
        if kind == _HEAD and not kinds:
            has_head = True
        else:
            kinds[kind] = kinds.get(kind, 0) + 1
    return _kind_of_lines(path, kinds, has_head=has_head) + truncated


def _kind_of_lines(path: Path, kinds: dict[str, int], *, has_head: bool) -> str:
    if len(kinds) > 1:
        raise ValueError(f"contains lines of several kinds: {', '.join(sorted(kinds))}")
    for kind, number in kinds.items():
        return f"{pluralize(number, 'line')}, each {kind}"
    if has_head:
        return f"{_HEAD}, and no entry"
    if path.name not in _EMPTY:
        raise ValueError(f"empty: its kind is not known; expected one of {', '.join(_EMPTY)}")
    return f"empty: {_EMPTY[path.name]}"


def _line(line: CaseLine, path: Path, packs: Packs, ids: dict[str, int]) -> str:
    """Recognize a line by its keys, check it, and return its kind."""
    try:
        record = EvalRecord.from_json_line(line.raw, strict=False)
    except RecordError as error:
        data = _object(line.raw)
        if "test_suite" in data or "schema_version" in data:
            raise
        _check_as_read(line.raw, data)
        if kind := _line_of_a_suite(line, data, path, packs, ids) or _control_of_a_run(data):
            return kind
        if not data and (ids or b'"pack_id"' in line.raw):
            # raises the error of a case: that of a record would mislead
            parse_line(line, Case, file=str(path), pack=None)
        if HEADER_KEY in data:
            return _journal_head(data)
        if ENDED_KEY in data or ("suite" in data and "nodeid" in data):
            parse_entry(data)
            return _JOURNAL
        if data.keys() & {"result", "kind", "message"}:
            check_line(data)
            return f"{'result' if 'result' in data else 'error'} of a run, version 1"
        raise ValueError(str(error)) from None
    problem = extension_problem(record.packbench) if record.packbench is not None else None
    if problem is not None:
        raise ValueError(problem)
    return f"eval record, version {EVAL_SCHEMA_VERSION}"


def _line_of_a_suite(line: CaseLine, data: dict[str, Any], path: Path, packs: Packs, ids: dict[str, int]) -> str:
    """Check a line of a packed file, and return its kind; empty if it is none."""
    if _is_control(path, data):
        return _control_line(line, path, packs, ids)
    if "cassette_version" in data:
        return _cassette_line(line, path, ids)
    if "pack_id" in data and "case_type" in data:
        return _case_line(line, data["pack_id"], path, packs, ids)
    return ""


def _control_of_a_run(data: dict[str, Any]) -> str:
    if not {"run_id", "control"} <= data.keys():
        return ""
    ControlResult.from_line(data)
    return "control of a run, version 1"


def _case_line(line: CaseLine, name: Any, path: Path, packs: Packs, ids: dict[str, int]) -> str:
    if not isinstance(name, str) or name not in packs:
        problem = Problem("/pack_id", f'unknown pack "{name!s:.60}"', suggestion(str(name), sorted(packs)))
        raise CaseError(format_location(str(path), line.number), [problem])
    case_id = parse_line(line, _case_model(name, path, packs), file=str(path), pack=None).case.id
    first = ids.setdefault(case_id, line.number)
    if first != line.number:
        raise CaseError(format_location(str(path), line.number), [duplicate_id(case_id, f"line {first}")])
    return f"case of pack {name}"


def _cassette_line(line: CaseLine, path: Path, ids: dict[str, int]) -> str:
    source = format_location(str(path), line.number)
    cassette, _ = parse_cassette(line.raw, source=source, is_line=True)
    first = ids.setdefault(cassette.case_id, line.number)
    if first != line.number:
        raise CassetteError(source, [duplicate_id(cassette.case_id, f"line {first}", key="case_id")])
    return f"cassette, version {cassette.cassette_version}"


def _control_line(line: CaseLine, path: Path, packs: Packs, ids: dict[str, int]) -> str:
    control = _checked_control(line.raw, path, packs, name=None, line=line.number)
    first = ids.setdefault(control.id, line.number)
    if first != line.number:
        raise ControlError(format_location(str(path), line.number), [duplicate_id(control.id, f"line {first}")])
    return "control"


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}


def _check_as_read(line: bytes, data: dict[str, Any]) -> None:
    """Refuse bytes and keys of an object that other readers of JSON refuse, or read differently."""
    if not data:
        return
    try:
        strict_json_line(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def _journal_head(data: dict[str, Any]) -> str:
    if type(data[HEADER_KEY]) is not int or data[HEADER_KEY] != JOURNAL_VERSION:
        raise ValueError(
            f"{HEADER_KEY}: got {data[HEADER_KEY]!r:.60}; expected {JOURNAL_VERSION}, the version that packbench reads"
        )
    if not isinstance(data.get("run"), dict):
        raise ValueError("run: expected an object")  # noqa: TRY004 - a mistake in a file, reported like the others
    return _HEAD
