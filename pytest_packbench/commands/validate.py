"""Checking files: `packbench validate`, `packbench lint` and `packbench schema`.

`validate` checks any file of a suite or a run, and prints its kind and version; `lint` checks a suite's rules, cases
and recordings for mistakes; `schema` prints the JSON Schema of a format, generated from the model that reads it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from pytest_packbench.api import load_suite
from pytest_packbench.cases.finder import CaseIndex, case_lines, control_file_problem, format_location, iter_cases
from pytest_packbench.cases.lint import PROFILES, lint
from pytest_packbench.cases.load import (
    case_of_control,
    check_target,
    parse_case,
    parse_cassette,
    parse_control,
    read_changes,
)
from pytest_packbench.commands import (
    FAILED,
    FINE,
    UNUSABLE,
    UsageError,
    add_shared,
    bundled_folder,
    chosen_pack,
    code_of,
    json_text,
    packs_for_options,
    packs_of,
    say,
    suite_and_pack,
    warn,
)
from pytest_packbench.files import OpenFile, check_link, escape_unprintable, open_regular
from pytest_packbench.model.case import Case
from pytest_packbench.model.errors import (
    CaseError,
    ControlError,
    InputError,
    NoReportError,
    Problem,
    SuiteError,
    duplicate_id,
    pluralize,
    single_spaced,
    suggestion,
)
from pytest_packbench.model.pack import Pack, names_checks
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord
from pytest_packbench.model.recording import Cassette, Control
from pytest_packbench.model.report import CHANGES_NAME, AllowedChanges, ReviewMark
from pytest_packbench.model.result import Result, Share, adapter, extension_model, model_of, row_model
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.stored import CommittedBaseline, Header
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, CONTROLS, FIXTURES, Interval, Suite
from pytest_packbench.packs.registry import DEFAULT_PACK, Packs, builtin, tools_of
from pytest_packbench.runs.folder import error_lines, payload_lines, read_controls, read_records, record_lines
from pytest_packbench.runs.journal import ENDED_KEY, HEADER_KEY, JOURNAL_VERSION, Entry, read_journal
from pytest_packbench.runs.reading import open_run, read_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pydantic import BaseModel


class Piece(NamedTuple):
    """A JSON object to recognize: a file, or a line of one.

    Attributes:
        packs: the available packs.
        path: its file.
        raw: its bytes.
        data: what it contains; empty if that is no JSON object.
        line: its number, from 1; 0 for a file.
    """

    packs: Packs
    path: Path
    raw: bytes
    data: dict[str, Any]
    line: int = 0

    @property
    def source(self) -> str:
        """Where it is, for error messages."""
        return format_location(str(self.path), self.line)


class Found(NamedTuple):
    """What a piece is.

    Attributes:
        kind: its kind, with the version of its format.
        about: what is said of a file beside that.
        id: what no other line of the file may have.
        key: the key of the id.
    """

    kind: str
    about: str
    id: str
    key: str = "id"


def add_validate_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_shared(parser, "--pack", "--trust")


def run_validate(arguments: argparse.Namespace) -> int:
    """Print one line per file: its kind, or what is wrong with it and where."""
    packs, is_fine = packs_of(arguments), True
    for path in arguments.paths:
        files = list(_files(bundled_folder(path)))
        nothing = (f"{path}: contains no file of a suite or a run: NOT VALID", False)
        lines = (_checked(file, packs, strict=arguments.strict) for file in files)
        for line, is_valid in lines if files else [nothing]:
            is_fine &= is_valid
            say(line)
    return FINE if is_fine else UNUSABLE


def _checked(file: Path, packs: Packs, *, strict: bool) -> tuple[str, bool]:
    """Return the line of a file, and whether it is valid."""
    shown = escape_unprintable(str(file))
    try:
        return f"{shown}: {kind_of(file, packs, strict=strict)}", True
    except (ValueError, OSError) as error:
        text = (error.strerror or str(error)) if isinstance(error, OSError) else single_spaced(str(error))
    # most errors begin with the file, some with its absolute path
    text = text.replace(str(file.absolute()), shown, 1)
    return f"{text if text.startswith(shown) else f'{shown}: {text}'}: NOT VALID", False


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
        raise ControlError(escape_unprintable(str(path)), [problem])
    if path.suffix in {".yaml", ".yml"}:
        return _yaml(path, packs)
    if path.suffix == ".jsonl":
        with open_regular(path, inside=True) as file:
            return _lines(OpenFile(path, file), packs, strict=strict)
    if path.name == BASELINE_NAME:
        baseline = read_baseline(path)
        return f"committed baseline, version {baseline.baseline_version}, {pluralize(len(baseline.cases), 'case')}"
    try:
        return f"report of a run, version {RUN_DOCUMENT_VERSION}, {_case_count(open_run(path, checked=False).results)}"
    except NoReportError as error:
        raw = error.raw
    # a report may be a link to anywhere, unlike a file of a suite
    if path.is_symlink():
        check_link(path)
    found = _found(Piece(packs, path, raw, _object(raw)))
    return found.kind + found.about


def _format_of(piece: Piece, otherwise: str) -> Format:
    """Return the format of an object, by its keys or by the folder of its file; where neither tells it, another."""
    keys = piece.data.keys()
    of_a_run = "run_id" in keys
    if _is_in_controls(piece.path) and not of_a_run and "pack_id" not in keys:
        return FORMATS["control"]
    rows = (row for row in FORMATS.values() if row.noun or not of_a_run)
    return next((row for row in rows if any(needed <= keys for needed in row.keys)), FORMATS[otherwise])


def _found(piece: Piece) -> Found:
    """Read an object of a suite; one of a run, or of no known format, is no case."""
    row = _format_of(piece, "case")
    return _case(piece) if row.noun else row.read(piece)


def _yaml(path: Path, packs: Packs) -> str:
    if path.name == CHANGES_NAME:
        return pluralize(len(read_changes(path, source=str(path)).changes), "allowed change") + " of a policy"
    suite = load_suite(path.parent, packs=packs)
    return "; ".join(filter(None, [f"rules of a suite of pack {suite.config.pack}", packs.not_imported(suite.path)]))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        is_in_controls = _is_in_controls(file)
        # a broken link and a pipe are files that can't be read
        is_read = file.suffix in {".json", ".jsonl", ".yaml"} and (is_in_controls or not file.is_dir())
        # there, what a run reads or refuses; hidden files are a finding of lint
        is_refused = is_in_controls and control_file_problem(str(file)) is not None
        if (is_read or is_refused) and not (is_in_controls and file.name.startswith(".")):
            yield file


def _case(piece: Piece) -> Found:
    packs, name, model = piece.packs, piece.data.get("pack_id"), Case
    if isinstance(name, str):
        if name not in packs:
            problem = Problem("/pack_id", f'unknown pack "{name:.60}"', suggestion(name, sorted(packs)))
            raise CaseError(piece.source, [problem])
        # a run reads it by the model of its suite; a mistake in the rules is reported with their own file
        suite, pack = _suite_around(piece, "cases"), packs[name]
        if isinstance(suite, Suite) and suite.config.pack == name:
            pack = pack.for_suite(suite.config)
        model = pack.case_model
    stem = None if piece.line else piece.path.stem
    case = parse_case(piece.raw, model, source=piece.source, stem=stem, pack=None).case
    return Found(f"case of pack {case.pack_id}", "", case.id)


def _suite_around(piece: Piece, folder: str) -> Suite | SuiteError | None:
    """Return the suite whose folder of this name has a piece, or what is wrong with its rules; None without one."""
    inner = next((each for each in piece.path.absolute().parents if each.name == folder), None)
    return None if inner is None else _suite_in(inner.parent, piece.packs)


@lru_cache(maxsize=4)
def _suite_in(folder: Path, packs: Packs) -> Suite | SuiteError | None:
    """Return the suite that a folder is, or what is wrong with its rules; None if it has none."""
    try:
        return load_suite(folder, packs=packs) if (folder / CONFIG_NAME).exists() else None
    except SuiteError as error:
        return error


def _cassette(piece: Piece) -> Found:
    cassette, _ = parse_cassette(piece.raw, source=piece.source, is_line=bool(piece.line))
    kind = f"cassette, version {cassette.cassette_version}"
    return Found(kind, f", {cassette.origin}", cassette.case_id, "case_id")


def _is_in_controls(path: Path) -> bool:
    return path.absolute().parent.parts[-2:] == (FIXTURES, CONTROLS)


def _control(piece: Piece) -> Found:
    """Read a control, and check that its suite has its case; of a file elsewhere nothing is known."""
    source = escape_unprintable(piece.source)
    name = None if piece.line else piece.path.stem
    suite = _suite_around(piece, FIXTURES) if _is_in_controls(piece.path) else None
    if isinstance(suite, SuiteError):
        raise suite
    pack = None if suite is None else piece.packs[suite.config.pack].for_suite(suite.config)
    checks = None if pack is None else names_checks(pack)
    control = parse_control(piece.raw, source=source, name=name, names_checks=checks)
    if suite is not None and pack is not None:
        case_of_control(control, _cases_in(suite.cases_path), source=source)
        check_target(control, pack, suite.config, source=source)
    about = f" of the case {control.case}, which has to end as {control.expected.verdict}"
    return Found("control", about, control.id)


@lru_cache(maxsize=4)
def _cases_in(folder: Path) -> CaseIndex:
    return CaseIndex(iter_cases(folder))


def _case_count(results: Iterable[Result]) -> str:
    trials = Counter((result.case.test_id, result.case.file) for result in results)
    total = trials.total()
    return pluralize(len(trials), "case") + (f", {total} trials" if total != len(trials) else "")


def _lines(opened: OpenFile, packs: Packs, *, strict: bool) -> str:
    """Read the lines of a file; those of a file of a run as commands read them, by the kind of the first one."""
    path, first = opened.path, next(case_lines(opened), None)
    if first is None:
        if path.name not in _OF_RUNS:
            raise ValueError(f"empty: its kind is not known; expected one of {', '.join(_OF_RUNS)}")
        return "empty"
    likely = "case" if b'"pack_id"' in first.raw else "record"
    row = _format_of(Piece(packs, path, first.raw, _object(first.raw)), likely)
    if not row.noun:
        return _lines_of_a_suite(opened, packs)
    noun, read = row.noun, row.read
    if strict and read is record_lines:
        noun += ", as the Rust reader reads it"
        read = partial(read_records, strict=True)
    return f"{pluralize(sum(1 for _ in read(opened)), 'line')}, each {noun}"


def _lines_of_a_suite(opened: OpenFile, packs: Packs) -> str:
    kinds: set[str] = set()
    ids: dict[str, int] = {}
    for line in case_lines(opened):
        piece = Piece(packs, opened.path, line.raw, _object(line.raw), line.number)
        found = _found(piece)
        kinds.add(found.kind)
        if ids.setdefault(found.id, line.number) != line.number:
            raise InputError(piece.source, [duplicate_id(found.id, f"line {ids[found.id]}", key=found.key)])
    if len(kinds) > 1:
        raise ValueError(f"contains lines of several kinds: {', '.join(sorted(kinds))}")
    return f"{pluralize(len(ids), 'line')}, each {kinds.pop()}"


def _entries(opened: OpenFile) -> list[Entry]:
    run, entries = read_journal(opened)
    if run is None and not entries:
        # a last line that was cut short is no mistake, but there is nothing else
        raise ValueError("no line of this journal can be read")
    return entries


_OF_RUNS = ("records.jsonl", "errors.jsonl", "payloads.jsonl", "controls.jsonl", "journal.jsonl")
"""The files of a run that may be empty."""


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}


# -- lint --


def add_lint_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, with an option for each file that the packs can use."""
    parser.add_argument("suite", help="a suite's name, or its folder; bundled/NAME for a bundled suite")
    add_shared(parser, "--root", "--pack", "--trust")
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


def run_lint(arguments: argparse.Namespace) -> int:
    """Print the findings and their count; return 1 if one of them is an error."""
    suite, pack = suite_and_pack(arguments.suite, arguments)
    packs = packs_of(arguments)
    if not_imported := packs.not_imported(suite.path):
        warn(f"{os.path.relpath(suite.path / CONFIG_NAME)}: {not_imported}")
    options = packs.lint_options
    files = {name: path for name in options if (path := getattr(arguments, _dest(name), None)) is not None}
    used = {option.name for option in tools_of(pack).lint_options}
    if unused := [name for name in files if name not in used]:
        raise UsageError(
            f'--{unused[0]}: the pack "{pack.name}" of this suite does not use this file; remove the option'
        )
    folder = Path(os.path.relpath(suite.path))
    with code_of(pack, "lint", ValueError):
        found = lint(suite, pack, files, profile=arguments.profile)
    findings = [replace(finding, file=(folder / finding.file).as_posix()) for finding in found]
    errors, warnings = (sum(each.severity == severity for each in findings) for severity in ("error", "warning"))
    if arguments.format == "json":
        document = {"version": 1, "errors": errors, "warnings": warnings, "findings": [*map(asdict, findings)]}
        sys.stdout.write(json_text(document))
    else:
        say(*(f"{each}{' (warning)' if each.severity == 'warning' else ''}" for each in findings))
        say(f"{pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}")
    return FAILED if errors else FINE


def _dest(name: str) -> str:
    return f"lint_{name.replace('-', '_')}"


# -- schema --


DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESULT = "result"
"""What a target returns, by the answer model of a pack; no kind of file."""


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `schema`."""
    parser.add_argument("kind", choices=(*KINDS, RESULT))
    about = "for case, suite and result: a pack by its name or as MODULE:ATTR (default: all built-in packs)"
    parser.add_argument("--pack", metavar="PACK", help=about)


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of a file format, generated from the model that reads it."""
    packs = None if arguments.pack is None else [chosen_pack(arguments.pack, packs_of(arguments))]
    sys.stdout.write(json.dumps(schema(arguments.kind, packs), indent=2, ensure_ascii=False) + "\n")
    return FINE


def schema(kind: str, packs: Sequence[Pack] | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file format.

    Args:
        kind: one of `KINDS`, or `RESULT`.
        packs: for `case`, `suite` and `result`, the packs; None for the built-in ones, each under its name. Only the
            first has a result.

    Raises:
        PackError: a pack can't be loaded.
    """
    if kind == RESULT:
        pack = (packs or [builtin()[DEFAULT_PACK]])[0]
        return {"$schema": DIALECT, **pack.answer_model.model_json_schema()}
    made = FORMATS[kind].schema
    if isinstance(made, tuple):
        made = partial(_schema_of_packs, *made, packs or [pack for _, pack in sorted(builtin().items())])
    return {"$schema": DIALECT, **(made() if made else {})}


def _schema_of_packs(attribute: str, key: str, packs: Sequence[Pack]) -> dict[str, Any]:
    schemas = []
    definitions: dict[str, Any] = {}
    for pack in packs:
        # packs may use one name for different models
        prefix = f"{pack.name}." if len(packs) > 1 else ""
        model: type[BaseModel] = getattr(pack, attribute)
        generated = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
        definitions |= {prefix + name: definition for name, definition in generated.pop("$defs", {}).items()}
        if model is pack.suite_model:
            gate = definitions.get(f"{prefix}Gate", {"properties": {"metric": {}}})
            gate["properties"]["metric"]["enum"] = list(pack.suite_model.metric_names())
        generated["properties"][key]["const"] = pack.name
        schemas.append(generated)
    united = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"$defs": definitions, **united} if definitions else united


def _record_schema() -> dict[str, Any]:
    """Return the schema of a record, as far as a schema can express it: `EvalRecord` is stricter."""
    record = adapter(EvalRecord).json_schema()
    extension = extension_model().model_json_schema()
    record["$defs"] |= extension.pop("$defs")
    record["properties"]["packbench"] = extension
    about = "One line of records.jsonl: eval record, wire version 1. A strict reader accepts three suites only."
    return {**record, "title": "EvalRecord", "description": about}


def _report_schema() -> dict[str, Any]:
    document = adapter(Header).json_schema()
    row = row_model().model_json_schema()
    # in files, a named tuple is an object
    interval = model_of("Interval", get_type_hints(Interval), Interval._fields)
    definitions = document.pop("$defs") | row.pop("$defs") | {"Interval": interval.model_json_schema()}
    document["properties"]["cases"] = {"type": "array", "items": {**row, "additionalProperties": False}}
    document["required"].append("cases")
    # what is computed from the other keys, for other readers
    definitions["Figure"]["properties"]["share"] = adapter(Share | None).json_schema()
    definitions["PolicyChange"]["properties"]["allowed"] = {"type": "boolean"}
    return {
        "$defs": definitions,
        "title": "Report",
        "description": "report.json: the document of pytest-json-report with the run under the key packbench.",
        "type": "object",
        "required": ["packbench"],
        "properties": {"packbench": document},
    }


class Format(NamedTuple):
    """A format of files, or of lines.

    Attributes:
        schema: returns its JSON Schema; of a model that depends on the pack, its attribute there and the key with the
            pack's name; None where there is none.
        keys: sets of keys, one of which each of its objects has; none where the name of its file tells it.
        read: reads a `Piece`, an object of a suite, as `Found`; of a run, the lines of an `OpenFile` as commands do.
        noun: what such a line is, with the version of its format; empty for a format of a suite.
    """

    schema: Callable[[], dict[str, Any]] | tuple[str, str] | None
    keys: tuple[AbstractSet[str], ...] = ()
    read: Callable[[Any], Any] = _case
    noun: str = ""


FORMATS = {
    "case": Format(("case_model", "pack_id"), ({"pack_id"},), _case),
    "suite": Format(("suite_model", "pack")),
    "cassette": Format(Cassette.model_json_schema, ({"cassette_version"},), _cassette),
    "control": Format(Control.model_json_schema, ({"case", "expected"},), _control),
    "record": Format(
        _record_schema,
        ({"test_suite"}, {"schema_version"}),
        record_lines,
        f"eval record, version {EVAL_SCHEMA_VERSION}",
    ),
    "report": Format(_report_schema),
    "baseline": Format(CommittedBaseline.model_json_schema),
    "policy_changes": Format(AllowedChanges.model_json_schema),
    "review": Format(ReviewMark.model_json_schema),
    "control of a run": Format(None, ({"run_id", "control"},), read_controls, "control of a run, version 1"),
    "entry of a journal": Format(
        None,
        ({HEADER_KEY}, {ENDED_KEY}, {"suite", "nodeid"}),
        _entries,
        f"entry of a journal, version {JOURNAL_VERSION}",
    ),
    "result": Format(None, ({"result"},), payload_lines, "result of a run, version 1"),
    "error": Format(None, ({"kind"}, {"message"}), error_lines, "error of a run, version 1"),
}
"""The formats by kind; of those whose keys an object has, the first counts."""
KINDS = tuple(kind for kind, row in FORMATS.items() if row.schema)
"""The kinds of which there is a schema."""
