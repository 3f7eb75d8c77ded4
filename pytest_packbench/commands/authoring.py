"""New suites and cases: `packbench init` and `packbench import`.

`init` creates a suite that runs at once, or a copy of a bundled suite; `import` converts files into cases of a suite,
and only shows them without `--write`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.finder import LINES_SUFFIX, bundled_root, case_lines, find_suites, iter_cases, read_id
from pytest_packbench.cases.load import (
    case_file_sha256,
    check_case,
    check_config,
    parse_cassette,
    parse_yaml,
    read_config,
)
from pytest_packbench.commands import (
    FINE,
    PYTEST_FILES,
    SHARED_FILES,
    UNUSABLE,
    UsageError,
    add_shared,
    chosen_pack,
    code_of,
    command_lines,
    new_root,
    packs_for_options,
    packs_of,
    root_of,
    say,
)
from pytest_packbench.commands.judging import write_first_baseline
from pytest_packbench.files import (
    RECORDING,
    canonical_sha256,
    encode_utf8,
    read_regular,
    replace_atomic,
    single_files,
    write_atomic,
)
from pytest_packbench.model.authoring import (
    SUITE_NAME,
    TARGET_MODULE,
    CaseDraft,
    Importer,
    SourceDoubt,
    SourceFlaw,
    SourceRemark,
    Starter,
)
from pytest_packbench.model.case import NAME, LoadedCase
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    Problem,
    describe_error,
    first_of,
    format_value,
    pluralize,
    single_spaced,
)
from pytest_packbench.model.recording import CASSETTE_VERSION, VERIFY_ROLE
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, FIXTURES, SuiteConfig
from pytest_packbench.packs.registry import DEFAULT_PACK, PackError, Packs, tools_of
from pytest_packbench.reports.terminal import one_line
from pytest_packbench.runs.folder import DRAFTS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_packbench.model.pack import Pack


_MAX_LISTED = 100
_MAX_TEXT = 4000
_OTHERS: dict[type, tuple[str, str, str]] = {
    SourceRemark: ("file", "files", "left out"),
    SourceDoubt: ("entry", "entries", "of the source may not be what its author wrote"),
    SourceFlaw: ("entry", "entries", "of the source can't be imported"),
}
"""What a source has beside cases, in the order in which it is shown: a noun, its plural, and what is said of them."""


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of sources that packs can read, each with its own arguments and the common ones."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, pack, importer in _importers(packs_for_options(parser)):
        kind = kinds.add_parser(name, help=importer.help, description=importer.help)
        importer.add_arguments(kind)
        default = "as in the source" if importer.names_suites else importer.suite
        about = f"the suite to add the cases to; created if there is none{f' (default: {default})' if default else ''}"
        kind.add_argument("--suite", required=default is None, default=importer.suite, help=about)
        add_shared(kind, "--root")
        kind.add_argument("--write", action="store_true", help="write the cases; without it they are only shown")
        kind.add_argument("--force", action="store_true", help="with --write: replace existing cases")
        about = "with --write: skip entries that can't be imported"
        kind.add_argument("--skip-bad", action="store_true", help=about)
        kind.set_defaults(importer=(pack, importer))


def run_import(arguments: argparse.Namespace) -> int:
    """Show what would be written, or write it; return 2 if an entry of the source can't be imported."""
    _, importer = arguments.importer
    parts = list(importer.parts(arguments, root_of(arguments)))
    return _import(parts[0]) if len(parts) == 1 else max(map(_import_among_others, parts))


def _import_among_others(arguments: argparse.Namespace) -> int:
    """Import one of several suites; one that can't be imported does not stop the others."""
    try:
        return _import(arguments)
    except (UsageError, ValueError, OSError) as error:
        say(single_spaced(f"{arguments.suite}: {error}"))
        return UNUSABLE


def _import(arguments: argparse.Namespace) -> int:
    """Import one suite."""
    _, importer = arguments.importer
    suite, summary = Destination(arguments), _Summary()
    for entry in suite.checked(importer.read(arguments)):
        summary.add(entry)
    is_usable = summary.cases > 0 and (arguments.skip_bad or not summary.others[SourceFlaw])
    if arguments.write and is_usable:
        suite.write(suite.checked(importer.read(arguments)), expected=summary.cases)
        lines = _result_lines(summary, suite, arguments)
    else:
        lines = _preview_lines(summary, suite, is_usable=is_usable)
    say(*lines)
    return FINE if is_usable else UNUSABLE


def _importers(packs: Packs) -> Iterator[tuple[str, Pack, Importer]]:
    names: set[str] = set()
    for pack_name in packs:
        # a pack that can't be loaded is an error where a suite requests it
        with suppress(PackError):
            for importer in tools_of(packs[pack_name]).importers():
                kind = f"{pack_name}-{importer.name}" if importer.name in names else importer.name
                names.add(kind)
                yield kind, packs[pack_name], importer


class _Summary:
    """Counts the cases of a source, and keeps the first of them and all other entries.

    Attributes:
        cases: the number of cases.
        recordings: how many of them have a recording.
        first: the first case; None without any.
        others: the other entries, by class.
    """

    def __init__(self) -> None:
        self.cases = self.recordings = 0
        self.first: CheckedCase | None = None
        self.others: dict[type, list[SourceRemark]] = {kind: [] for kind in _OTHERS}
        self._states: Counter[str] = Counter()
        self._types: Counter[str] = Counter()

    def add(self, entry: CheckedCase | SourceRemark) -> None:
        if isinstance(entry, CheckedCase):
            self.cases += 1
            self.recordings += bool(entry.recording)
            self.first = self.first or entry
            self._states[entry.state] += 1
            self._types[entry.loaded.case.case_type] += 1
        else:
            self.others[type(entry)].append(entry)

    def lines(self, suite: str) -> Iterator[str]:
        """Say how many cases there are, by what writing does to the suite and by type, and which entries are odd."""
        states = ", ".join(f"{number} {state}" for state, number in self._states.items())
        types = ", ".join(f"{name} {number}" for name, number in sorted(self._types.items()))
        recordings = f"; with {pluralize(self.recordings, 'recording')}" if self.recordings else ""
        yield f"{suite}{pluralize(self.cases, 'case')}{f' ({states}): {types}{recordings}' if self.cases else ''}"
        for kind, (noun, plural, what) in _OTHERS.items():
            entries = self.others[kind]
            if entries:
                yield f"{len(entries):,} {noun if len(entries) == 1 else plural} {what}:"
            listed = [single_spaced(f"{entry.place}: {entry.message}") for entry in entries]
            yield from (f"  {line}" for line in first_of(listed, _MAX_LISTED))


def _preview_lines(summary: _Summary, suite: Destination, *, is_usable: bool) -> Iterator[str]:
    yield from summary.lines(f"{suite.name}: ")
    case = summary.first
    if case is not None:
        yield f"the first case, from {single_spaced(case.place)}, for {case.path.as_posix()}:"
        text = case.text.rstrip("\n")
        yield text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT} more characters)"
        yield from (f"and the file {(suite.folder / name).as_posix()}" for name in suite.files)
    if is_usable:
        yield "nothing was written; pass --write to write"
    elif summary.cases:
        yield "nothing was written; correct the source, or pass --skip-bad to skip entries that can't be imported"
    else:
        yield "no case to import; nothing was written"


def _result_lines(summary: _Summary, suite: Destination, arguments: argparse.Namespace) -> Iterator[str]:
    _, importer = arguments.importer
    yield from summary.lines(f"{suite.name}: wrote ")
    yield from (f"wrote {(suite.folder / name).as_posix()}" for name in suite.files)
    has_target = suite.rules.target is not None or (
        # without a recording, the target of the pack has nothing to replay
        suite.pack.target(suite.rules) is not None and (summary.recordings > 0 or not importer.names_suites)
    )
    run_line, _ = command_lines(suite.name, arguments)
    yield run_line + ("" if has_target else " --packbench-target=package.module:function")


class CheckedCase(NamedTuple):
    """A case that the suite's pack can read.

    Attributes:
        place: the location in the source that it was read from.
        path: the file to write: its own, or the file of lines.
        case: the case as plain JSON.
        loaded: the same as its pack reads it.
        state: `new`, `unchanged` or `replaced`, which writing it means for the suite.
        recording: the text of its cassette; empty without one.
    """

    place: str
    path: Path
    case: dict[str, Any]
    loaded: LoadedCase
    state: str
    recording: str = ""

    @property
    def text(self) -> str:
        """The content of its file, or its line."""
        indent = None if self.path.suffix == LINES_SUFFIX else 2
        return json.dumps(self.case, indent=indent, ensure_ascii=False) + "\n"


class Destination:
    """The suite that the cases are written to, an existing one or a new one.

    Args:
        arguments: of the command: the name of the suite, its root, the importer with its pack, and whether a case may
            replace an existing one with its id.

    Attributes:
        name: the suite's name.
        folder: its folder.
        rules: the content of its `suite.yaml`, existing or new.
        pack: its pack, as the suite configures it.
        files: other files to write, those that the suite lacks, by path from its folder.

    Raises:
        UsageError: no suite can have this name, or the suite belongs to another pack.
        SuiteError: its rules can't be read.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        pack, importer = arguments.importer
        self.name: str = arguments.suite
        self.folder: Path = root_of(arguments) / self.name
        config, files, many = self.folder / CONFIG_NAME, importer.files(arguments), importer.many(arguments)
        if not config.is_file():
            suite_name(self.name)
        self.rules = _rules(config, pack, files.get(CONFIG_NAME))
        self.pack = pack.for_suite(self.rules)
        self.files = {file: text for file, text in files.items() if not (self.folder / file).exists()}
        self._cases = self.folder / "cases"
        # some file systems ignore case
        self._existing = {location.name.lower(): location for location in iter_cases(self._cases)}
        self._many: Path | None = self._cases / many if many is not None else None
        self._unique_inputs: bool = importer.unique_inputs
        self._replaces: bool = arguments.force

    def checked(self, drafts: Iterable[CaseDraft | SourceRemark]) -> Iterator[CheckedCase | SourceRemark]:
        """Check drafts one by one.

        Args:
            drafts: the output of an importer.

        Yields:
            A case to write, or the reason why an entry can't be imported.
        """
        seen: dict[str, str] = {}
        inputs: dict[str, str] = {}
        by_content = {name.rpartition("_")[2]: location.name for name, location in self._existing.items()}
        for draft in drafts:
            if not isinstance(draft, CaseDraft):
                yield draft
                continue
            if draft.content and draft.content in by_content:
                # the row has moved in the source
                draft = replace(draft, case={**draft.case, "id": by_content[draft.content]})  # noqa: PLW2901 - see above
            place, problem = draft.place, ""
            try:
                entry = self._checked(draft)
            except (CaseError, CassetteError) as error:
                yield SourceFlaw(place=place, message=str(error).removeprefix(f"{place}: "))
                continue
            case_id = entry.loaded.case.id
            first = seen.setdefault(case_id.lower(), place)
            first_input = inputs.setdefault(entry.loaded.input_sha256, place)
            if first != place and not draft.content:
                problem = f'/id: duplicate id "{case_id}", first used at {first}'
            elif first_input != place and self._unique_inputs:
                problem = f"/input: same input as {first_input}; remove one of the two"
            yield SourceFlaw(place=place, message=problem) if problem else entry

    def write(self, checked: Iterable[CheckedCase | SourceRemark], *, expected: int) -> None:
        """Write the cases, each after its recording, without which it could not be run; then the other files.

        Args:
            checked: the result of `checked`; flaws are skipped.
            expected: the number of cases of the first reading.

        Raises:
            ValueError: the source has more or fewer cases than that now; of a file of lines nothing is written.
            OSError: a file can't be written; files before it are written, of a file of lines nothing is.
        """
        for draft in self.folder.rglob(DRAFTS):
            # of an import that was killed
            draft.unlink(missing_ok=True)
        lines: dict[str, bytes] = {}
        number = 0
        for case in checked:
            if not isinstance(case, CheckedCase):
                continue
            number += 1
            if case.recording:
                _write_cases(self._recording_path(case.loaded.case.id), case.recording)
            if case.state != "unchanged" and self._many is None:
                _write_cases(case.path, case.text)
            elif case.state != "unchanged":
                lines[case.loaded.case.id] = encode_utf8(case.text)
        if number != expected:
            raise ValueError(f"the source changed while it was read: {expected} cases, then {number}; run it again")
        if self._many is not None:
            _write_lines(self._many, lines)
        for name, text in self.files.items():
            _write_cases(self.folder / name, text)

    def _recording_path(self, case_id: str) -> Path:
        return self.folder / FIXTURES / f"{case_id}.json"

    def _recording(self, draft: CaseDraft, loaded: LoadedCase) -> str:
        """Return the text of the whole cassette of a draft; empty without one.

        Raises:
            InputError: it is not valid, or would replace another one.
        """
        if draft.recording is None:
            return ""
        recording: dict[str, Any] = {
            "cassette_version": CASSETTE_VERSION,
            "case_id": loaded.case.id,
            "input_sha256": loaded.input_sha256,
            **draft.recording,
        }
        request_sha256 = canonical_sha256(self.pack.request(loaded.case).as_json())
        recording["exchanges"] = [
            {"request_sha256": request_sha256, **exchange}
            if exchange["role"] == VERIFY_ROLE and recording["origin"] == "recorded"
            else exchange
            for exchange in recording["exchanges"]
        ]
        path, text = self._recording_path(loaded.case.id), json.dumps(recording, indent=2, ensure_ascii=False) + "\n"
        parse_cassette(encode_utf8(text), source=path.as_posix())
        if path.exists() and not self._replaces and read_regular(path, RECORDING) != encode_utf8(text):
            problem = Problem("", "already exists and differs", "pass --force to replace it")
            raise CassetteError(path.as_posix(), [problem])
        return text

    def _checked(self, draft: CaseDraft) -> CheckedCase:
        """Check a draft as a case of the suite.

        Raises:
            CaseError: it is not valid, or can't be written.
            CassetteError: its recording is not valid, or would replace another one.
        """
        loaded = check_case(draft.case, self.pack.case_model, source=draft.place, stem=None, pack=self.rules.pack)
        case = loaded.case
        path = self._many or self._cases / case.case_type / f"{case.id}.json"
        state, other = "new", self._existing.get(case.id.lower())
        if other is not None and other.path != str(path):
            wrong = f'duplicate id "{case.id}", used in {other.label(Path(other.path).as_posix())}'
            raise CaseError(draft.place, [Problem("/id", wrong, "remove that case, or choose another id")])
        if other is not None:
            state = "unchanged" if case_file_sha256(other) == loaded.sha256 else "replaced"
            if state == "replaced" and not self._replaces:
                wrong = f"{other.label(path.as_posix())} already exists and differs"
                raise CaseError(draft.place, [Problem("", wrong, "pass --force to replace it")])
        recording = self._recording(draft, loaded)
        return CheckedCase(draft.place, path, draft.case, loaded, state, recording)


def _write_lines(path: Path, lines: dict[str, bytes]) -> None:
    """Rewrite a file of lines, some of them with other lines by the id of their case; then those that are new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomic(path) as file:
        for line in case_lines(path) if path.exists() else ():
            file.write(lines.pop(read_id(line.raw) or "", line.raw.rstrip(b"\r\n") + b"\n"))
        file.writelines(lines.values())


def _write_cases(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)


def _rules(path: Path, pack: Pack, new: str | None) -> SuiteConfig:
    """Return the rules of the suite: those of its file, else the new ones of the importer, else the defaults."""
    models, source = Packs([pack]).suite_models, str(path)
    if path.is_file():
        rules = read_config(path.parent, models, source=source)
    else:
        data = {"pack": pack.name} if new is None else parse_yaml(new.encode(), source=source, models=models)
        rules = check_config(data, models, source=source)
    if rules.pack != pack.name:
        raise UsageError(
            f'{source}: the suite belongs to pack "{rules.pack}", the cases to pack "{pack.name}"; choose another suite'
        )
    return rules


_MAX_NAME = 80


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    about = "the name of the new suite: lower-case letters, digits, _ and -; with --from, that suite's name by default"
    parser.add_argument("name", metavar="NAME", nargs="?", help=about)
    about = f"the pack of its cases: a name, or MODULE:ATTR for a pack to import (default: {DEFAULT_PACK})"
    parser.add_argument("--pack", metavar="PACK", help=about)
    about = (
        "write a target that calls a model with a client of its own, to be recorded as it is: openai, langchain or node"
    )
    parser.add_argument("--target", metavar="CLIENT", help=about)
    about = "write a copy of a suite of the installed package: its rules, and a file for each case and each recording"
    parser.add_argument("--from", dest="source", metavar="SUITE", help=about)
    about = "whether recordings contain what the model was asked; asked on a terminal (default: yes)"
    parser.add_argument("--record-prompts", choices=["yes", "no"], help=about)
    add_shared(parser, "--root")


def run_init(arguments: argparse.Namespace) -> int:
    """Write the starter of a pack or the files of a bundled suite, and print what was written and what to do next."""
    if arguments.source is not None:
        return _copy(arguments)
    if arguments.name is None:
        raise UsageError("init: expected the NAME of the new suite, or --from SUITE for a copy of a bundled one")
    name, root = suite_name(arguments.name), new_root(arguments)
    starter = _starter(arguments.pack or DEFAULT_PACK, arguments.target, packs_of(arguments))
    is_recorded = arguments.target is not None
    files = _files(starter, name, root / name)
    _refuse_existing(root / name, *files)
    _write_new({path: text.encode() for path, text in files.items()})
    lines = [f"wrote {path.as_posix()}" for path in files]
    if not is_recorded:
        lines += _first_baseline(name, root)
    lines += _record_prompts(arguments.record_prompts)
    readme = (root / name / "README.md").as_posix()
    commands = command_lines(name, arguments)
    lines += ["", *_next_steps(starter, readme, *commands, is_recorded=is_recorded)]
    say(*lines)
    return FINE


def _first_baseline(name: str, root: Path) -> list[str]:
    """Run the cases of a new suite, and write what they come to as its first committed baseline.

    Returns:
        A line that says what was written, or why nothing was.
    """
    try:
        path = write_first_baseline(name, root)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - packs and targets are the user's code
        reason = one_line(describe_error(error), 200)
        advice = f"after the first run: packbench baseline set {name}/latest --reason TEXT"
        return [f"no {BASELINE_NAME} was written: {reason}; {advice}"]
    return [f"wrote {path.as_posix()}"]


def _record_prompts(answer: str | None) -> list[str]:
    """Ask whether recordings may contain prompts unless the option says so; write a `no` into a new pytest.ini.

    Returns:
        Lines that say what was written, or what to write.
    """
    if answer is None and sys.stdin.isatty() and sys.stdout.isatty():
        sys.stdout.write(
            "Keep prompts in recordings? They help to read failures, but may contain personal data. [Y/n] "
        )
        sys.stdout.flush()
        answer = "no" if sys.stdin.readline().strip().lower() in {"n", "no"} else "yes"
    if answer != "no":
        return []
    setting = "packbench_record_prompts = no"
    existing = next((name for name in (*PYTEST_FILES, *SHARED_FILES) if Path(name).is_file()), None)
    if existing is not None:
        return [f"add to the pytest settings in {existing}: {setting}"]
    Path("pytest.ini").write_text(f"[pytest]\n{setting}\n", encoding="utf-8")
    return [f"wrote pytest.ini: {setting}"]


def _copy(arguments: argparse.Namespace) -> int:
    """Write a bundled suite as single files, and print what was written and what to do next."""
    for option in ("pack", "target"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"--{option}: a copy has the {option} of its suite; remove the option")
    source, suites = arguments.source.removeprefix(BUNDLED), find_suites(bundled_root())
    if source not in suites:
        listed = ", ".join(suites) or "none"
        raise UsageError(f'--from: unknown suite "{arguments.source}"; suites of the installed package: {listed}')
    name, root = suite_name(arguments.name or source), new_root(arguments)
    folder = root / name
    # the baseline of the original is that of another suite
    files = {folder / file: content for file, content in single_files(suites[source]) if file != BASELINE_NAME}
    _refuse_existing(folder)
    _write_new(files)
    say(
        f"wrote {folder.as_posix()}: {pluralize(len(files), 'file')}",
        *_first_baseline(name, root),
        "",
        *command_lines(name, arguments),
        f"In this project, {name} is now your copy, and {BUNDLED}{source} the original.",
    )
    return FINE


def _write_new(files: Mapping[Path, bytes]) -> None:
    """Write new files, all or none.

    Raises:
        OSError: one can't be written; it names the file.
    """
    written: list[Path] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # exclusively: the file may have been created since the check
            with path.open("xb") as file:
                written.append(path)
                file.write(content)
    except OSError as error:
        for made in (*written, path):
            if made in written:
                made.unlink()
            # folders that are empty now: any file in the suite's would make the next one refuse
            for folder in made.parents:
                with suppress(OSError):
                    folder.rmdir()
        raise OSError(error.errno, error.strerror, path.as_posix()) from None


def suite_name(name: str) -> str:
    """Return the name of a suite, checked.

    Raises:
        UsageError: no suite can have this name.
    """
    if len(name) > _MAX_NAME or re.fullmatch(NAME, name) is None:
        better = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:_MAX_NAME]
        hint = f"; try {better}" if better else ""
        expected = f"expected at most {_MAX_NAME} lower-case letters, digits, _ and -, the first a letter or a digit"
        raise UsageError(f"invalid suite name {format_value(name)}: {expected}{hint}")
    return name


def _starter(name: str, client: str | None, packs: Packs) -> Starter:
    """Return the starter of a pack, or the one whose target has a client of its own.

    Raises:
        UsageError: there is none.
    """
    pack = chosen_pack(name, packs)
    tools = tools_of(pack)
    with code_of(pack, "starter"):
        starter: object = tools.starter()
    if starter is None:
        raise UsageError(f'the pack "{name}" has no starter suite; choose another pack')
    if not isinstance(starter, Starter) or not all(map(_are_texts, (starter.suite, starter.project))):
        expected = "a Starter, whose suite and project are texts by path"
        raise UsageError(f"the pack {pack.name}: starter() returned {starter!r}, expected {expected}")
    if client is None:
        return starter
    if client not in starter.pipelines:
        expected = f"one of {', '.join(starter.pipelines)}" if starter.pipelines else f'none with the pack "{name}"'
        raise UsageError(f"--target: unknown client {format_value(client)}; expected {expected}")
    return starter.pipelines[client]


def _are_texts(files: object) -> bool:
    return isinstance(files, Mapping) and all(isinstance(text, str) for pair in files.items() for text in pair)


def _files(starter: Starter, name: str, folder: Path) -> dict[Path, str]:
    # a module's name has no hyphen and begins with no digit
    module = f"target_{name.replace('-', '_')}"

    def filled(text: str) -> str:
        return text.replace(SUITE_NAME, name).replace(TARGET_MODULE, module)

    suite = {folder / filled(key): filled(text) for key, text in starter.suite.items()}
    return suite | {Path(filled(key)): filled(text) for key, text in starter.project.items()}


def _refuse_existing(*paths: Path) -> None:
    existing = next(filter(os.path.lexists, paths), None)
    if existing is not None:
        advice = "nothing was written; choose another name, or remove what exists"
        raise UsageError(f"{existing.as_posix()} already exists; {advice}")


def _next_steps(starter: Starter, readme: str, run_line: str, lint_line: str, *, is_recorded: bool) -> Iterator[str]:
    yield from (f'first:  pip install "pytest-packbench[{extra}]"' for extra in _missing(starter.needs))
    yield from (f"first:  pip install {package}" for package in _missing(starter.installs))
    next_step = f"One case passes and one fails; the output shows why. Next steps: {readme}"
    if is_recorded:
        yield f"record: {run_line.removeprefix('run it: ')} --packbench-mode=record"
        next_step = f"Recording calls a model with your OPENAI_API_KEY; later runs are offline. Next steps: {readme}"
    yield from (run_line, lint_line, next_step)
    for extra in _missing(starter.takes):
        yield f'Some rules of this pack need an extra: pip install "pytest-packbench[{extra}]"'


def _missing(libraries: Mapping[str, str]) -> list[str]:
    """Return the extras of the libraries that aren't installed, each once."""
    absent = (extra for library, extra in libraries.items() if find_spec(library.partition(".")[0]) is None)
    return list(dict.fromkeys(absent))
