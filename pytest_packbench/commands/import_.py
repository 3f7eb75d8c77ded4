"""`packbench import`: convert files into cases of a suite; without `--write` it only shows them."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.atomic import encode_utf8
from pytest_packbench.cases.files import LINES_SUFFIX, case_file_sha256, case_lines, iter_cases, read_id
from pytest_packbench.cases.load import check_case, check_config, parse_cassette, parse_json, parse_yaml, read_config
from pytest_packbench.cli import FINE, UNUSABLE, UsageError
from pytest_packbench.commands.paths import ROOT, add_root, packs_for_options, root_of
from pytest_packbench.engine.recordings import write_recording
from pytest_packbench.limits import RECORDING, read_regular
from pytest_packbench.model.authoring import CaseDraft, SourceDoubt, SourceFlaw, SourceRemark
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CaseError, CassetteError, Problem, pluralize
from pytest_packbench.model.suite import CONFIG_NAME, FIXTURES
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.folder import DRAFTS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.authoring import Importer
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.packs.registry import Packs


State = Literal["new", "unchanged", "replaced"]
MAX_FLAWS = 20
_MAX_TEXT = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of sources that packs can read, each with its own arguments and the common ones."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, pack, importer in _importers(packs_for_options(parser)):
        kind = kinds.add_parser(name, help=importer.help, description=importer.help)
        importer.add_arguments(kind)
        default = f" (default: {importer.suite})" if importer.suite else ""
        default = " (default: as in the source)" if importer.names_suites else default
        about = f"the suite to add the cases to; created if there is none{default}"
        is_required = importer.suite is None and not importer.names_suites
        kind.add_argument("--suite", required=is_required, default=importer.suite, help=about)
        add_root(kind)
        kind.add_argument("--write", action="store_true", help="write the cases; without it they are only shown")
        kind.add_argument("--force", action="store_true", help="with --write: replace existing cases")
        about = (
            "exit with 0 although entries can't be imported"
            if importer.keeps_good
            else "skip entries that can't be imported"
        )
        kind.add_argument("--skip-bad", action="store_true", help=f"with --write: {about}")
        kind.set_defaults(importer=(pack, importer))


def run(arguments: argparse.Namespace) -> int:
    """Show what would be written, or write it; return 2 if an entry of the source can't be imported."""
    _, importer = arguments.importer
    parts = list(importer.parts(arguments, root_of(arguments)))
    if len(parts) == 1:
        return _import(parts[0])
    return max(_import_among_others(part) for part in parts)


def _import_among_others(arguments: argparse.Namespace) -> int:
    """Import one of several suites; a suite that can't be imported does not stop the others."""
    try:
        return _import(arguments)
    except (UsageError, ValueError, OSError) as error:
        sys.stdout.write(printable(" ".join(f"{arguments.suite}: {error}".split())) + "\n")
        return UNUSABLE


def _import(arguments: argparse.Namespace) -> int:
    """Import one suite."""
    pack, importer = arguments.importer
    suite = destination(
        arguments.suite,
        root_of(arguments),
        pack,
        importer.files(arguments),
        many=importer.many(arguments),
        unique_inputs=importer.unique_inputs,
    )
    summary = _SourceSummary(
        shown=None if importer.keeps_good else MAX_FLAWS, is_pipeline_elsewhere=importer.names_suites
    )
    for entry in suite.checked(importer.read(arguments), force=arguments.force):
        summary.add(entry)
    usable = summary.cases > 0 and (arguments.skip_bad or not summary.flaws)
    skip_bad = arguments.skip_bad or importer.keeps_good
    if arguments.write and summary.cases > 0 and (skip_bad or not summary.flaws):
        suite.write(suite.checked(importer.read(arguments), force=arguments.force), expected=summary.cases)
        lines = _result_lines(summary, suite, is_default=arguments.root in {None, ROOT})
    else:
        lines = _preview_lines(summary, suite, skip_bad=skip_bad)
    sys.stdout.writelines(printable(line) + "\n" for line in lines)
    return FINE if usable else UNUSABLE


def _importers(packs: Packs) -> Iterator[tuple[str, Pack, Importer]]:
    from pytest_packbench.packs.registry import PackError

    names: set[str] = set()
    for pack_name in packs:
        # a pack that can't be loaded is an error where a suite requests it
        with suppress(PackError):
            for importer in packs[pack_name].importers():
                kind = f"{pack_name}-{importer.name}" if importer.name in names else importer.name
                names.add(kind)
                yield kind, packs[pack_name], importer


class _SourceSummary:
    """Counts the entries of a source, and keeps the first case and the first flaws to show, or all of them."""

    def __init__(self, *, shown: int | None = MAX_FLAWS, is_pipeline_elsewhere: bool = False) -> None:
        self._shown = shown
        self.is_pipeline_elsewhere = is_pipeline_elsewhere
        self.cases = 0
        self.recordings = 0
        self.flaws = 0
        self.remarks: list[SourceRemark] = []
        self.doubts: list[SourceDoubt] = []
        self.first_case: CheckedCase | None = None
        self.first_flaws: list[SourceFlaw] = []
        self.states: Counter[str] = Counter()
        self.types: Counter[str] = Counter()

    def add(self, entry: CheckedCase | SourceFlaw | SourceRemark) -> None:
        if isinstance(entry, SourceDoubt):
            self.doubts.append(entry)
        elif isinstance(entry, SourceRemark):
            self.remarks.append(entry)
        elif isinstance(entry, CheckedCase):
            self.cases += 1
            self.recordings += entry.recording is not None
            self.first_case = self.first_case or entry
            self.states[entry.state] += 1
            self.types[entry.loaded.case.case_type] += 1
        else:
            self.flaws += 1
            if self._shown is None or self.flaws <= self._shown:
                self.first_flaws.append(entry)

    @property
    def case_line(self) -> str:
        """How many cases there are, by what writing does to the suite and by type."""
        states = ", ".join(f"{number} {state}" for state, number in self.states.items())
        types = ", ".join(f"{name} {number}" for name, number in sorted(self.types.items()))
        recordings = f"; with {pluralize(self.recordings, 'recording')}" if self.recordings else ""
        return f"{pluralize(self.cases, 'case')}{f' ({states}): {types}{recordings}' if self.cases else ''}"

    def flaw_lines(self) -> Iterator[str]:
        """Describe the entries that are left out, and those that can't be imported."""
        if self.remarks:
            yield f"{pluralize(len(self.remarks), 'file')} left out:"
            yield from (_entry_line(remark) for remark in self.remarks)
        if self.doubts:
            yield from _first_lines("may not be what its author wrote", len(self.doubts), self.doubts[: self._shown])
        if self.flaws:
            yield from _first_lines("can't be imported", self.flaws, self.first_flaws)


def _first_lines(what: str, count: int, first: Sequence[SourceFlaw | SourceRemark]) -> Iterator[str]:
    yield f"{count} {'entry' if count == 1 else 'entries'} of the source {what}:"
    yield from map(_entry_line, first)
    if count > len(first):
        yield f"  and {count - len(first)} more"


def _entry_line(entry: SourceFlaw | SourceRemark) -> str:
    """Describe an entry in one line: the name of a file may contain a line break."""
    return f"  {' '.join(entry.place.splitlines())}: {' '.join(entry.message.split())}"


def _preview_lines(summary: _SourceSummary, suite: Destination, *, skip_bad: bool) -> Iterator[str]:
    yield f"{suite.name}: {summary.case_line}"
    yield from summary.flaw_lines()
    case = summary.first_case
    if case is not None:
        yield f"the first case, from {' '.join(case.place.splitlines())}, for {case.path.as_posix()}:"
        text = case.text.rstrip("\n")
        yield text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT} more characters)"
        yield from (f"and the file {(suite.folder / name).as_posix()}" for name in suite.files)
    if summary.flaws and not skip_bad:
        yield "nothing was written; correct the source, or pass --skip-bad to skip entries that can't be imported"
    elif summary.cases:
        yield "nothing was written; pass --write to write"
    else:
        yield "no case to import; nothing was written"


def _result_lines(summary: _SourceSummary, suite: Destination, *, is_default: bool) -> Iterator[str]:
    yield f"{suite.name}: wrote {summary.case_line}"
    yield from summary.flaw_lines()
    yield from (f"wrote {(suite.folder / name).as_posix()}" for name in suite.files)
    options = "" if is_default else f"-o packbench_root={suite.folder.parent.as_posix()} "
    has_target = suite.rules.target is not None or (
        # without a recording, the target of the pack has nothing to replay
        suite.pack.target(suite.rules) is not None and (summary.recordings > 0 or not summary.is_pipeline_elsewhere)
    )
    target = "" if has_target else " --packbench-target=package.module:function"
    yield f"run it: pytest {options}--packbench-suite={suite.name}{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCase:
    """A case that the suite's pack can read.

    Attributes:
        place: the location in the source that it was read from.
        path: the file to write: its own, or the file of lines.
        case: the case as plain JSON.
        loaded: the same as its pack reads it.
        state: whether writing it adds a case, changes none, or replaces one.
        recording: its cassette as plain JSON; None without one.
    """

    place: str
    path: Path
    case: dict[str, Any]
    loaded: LoadedCase
    state: State
    recording: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The content of its file, or its line."""
        indent = None if self.path.suffix == LINES_SUFFIX else 2
        return json.dumps(self.case, indent=indent, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The suite that the cases are written to.

    Attributes:
        name: the suite's name.
        folder: its folder.
        rules: the content of its `suite.yaml`, existing or new.
        pack: its pack, as the suite configures it.
        files: other files to write, those that the suite lacks, by path from its folder.
        existing: its cases by id in lower case, because some file systems ignore case.
        many: the `.jsonl` file that the cases are written to, one per line; None for one file per case.
        unique_inputs: whether two cases with the same input are an error.
    """

    name: str
    folder: Path
    rules: SuiteConfig
    pack: Pack
    files: Mapping[str, str]
    existing: Mapping[str, CaseLocation]
    many: Path | None = None
    unique_inputs: bool = True

    def checked(
        self, drafts: Iterable[CaseDraft | SourceFlaw | SourceRemark], *, force: bool
    ) -> Iterator[CheckedCase | SourceFlaw | SourceRemark]:
        """Check drafts one by one.

        Args:
            drafts: the output of an importer.
            force: whether a case may replace an existing one with its id.

        Yields:
            A case to write, or the reason why an entry can't be imported.
        """
        seen: dict[str, str] = {}
        inputs: dict[str, str] = {}
        by_content = {name.rpartition("_")[2]: location.name for name, location in self.existing.items()}
        for draft in drafts:
            if not isinstance(draft, CaseDraft):
                yield draft
                continue
            if draft.content and draft.content in by_content:
                # the row has moved in the source
                draft = replace(draft, case={**draft.case, "id": by_content[draft.content]})  # noqa: PLW2901 - see above
            entry = self._checked(draft, force=force)
            if isinstance(entry, CheckedCase):
                case_id = entry.loaded.case.id
                first = seen.setdefault(case_id.lower(), entry.place)
                first_input = inputs.setdefault(entry.loaded.input_sha256, entry.place)
                if first != entry.place and not draft.content:
                    entry = SourceFlaw(
                        place=entry.place, message=f'/id: duplicate id "{case_id}", first used at {first}'
                    )
                elif first_input != entry.place and self.unique_inputs:
                    entry = SourceFlaw(
                        place=entry.place, message=f"/input: same input as {first_input}; remove one of the two"
                    )
            yield entry

    def write(self, checked: Iterable[CheckedCase | SourceFlaw | SourceRemark], *, expected: int) -> None:
        """Write the cases, then the other files.

        Args:
            checked: the result of `checked`; flaws are skipped.
            expected: the number of cases of the first reading.

        Raises:
            ValueError: the source has more or fewer cases than that now.
            OSError: a file can't be written; files before it are written, of a file of lines nothing is.
        """
        from pytest_packbench.atomic import write_atomic

        for draft in self.folder.rglob(DRAFTS):
            # of an import that was killed
            draft.unlink(missing_ok=True)
        cases = self._with_recordings(_all_cases(checked, expected))
        if self.many is None:
            _write_files(cases)
        else:
            _write_lines(self.many, cases)
        for name, text in self.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)

    def _with_recordings(self, cases: Iterable[CheckedCase]) -> Iterator[CheckedCase]:
        """Write the recording of each case before the case: a case without its recording could not be run."""
        for case in cases:
            if case.recording is not None:
                write_recording(self._recording_path(case.loaded.case.id), case.recording)
            yield case

    def _recording_path(self, case_id: str) -> Path:
        return self.folder / FIXTURES / f"{case_id}.json"

    def _recording(self, draft: CaseDraft, loaded: LoadedCase, *, force: bool) -> dict[str, Any] | None:
        """Return the whole cassette of a draft; None without one.

        Raises:
            InputError: it is not valid, or would replace another one.
        """
        if draft.recording is None:
            return None
        from pytest_packbench.model.cassette import CASSETTE_VERSION, VERIFY_ROLE

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
        path = self._recording_path(loaded.case.id)
        parse_cassette(encode_utf8(json.dumps(recording, ensure_ascii=False)), source=path.as_posix())
        if path.exists() and not force and _differs(path, recording):
            problem = Problem("", "already exists and differs", "pass --force to replace it")
            raise CassetteError(path.as_posix(), [problem])
        return recording

    def _checked(self, draft: CaseDraft, *, force: bool) -> CheckedCase | SourceFlaw:
        try:
            loaded = check_case(draft.case, self.pack.case_model, source=draft.place, stem=None, pack=self.rules.pack)
            case = loaded.case
            path = self.many or self.folder / "cases" / case.case_type / f"{case.id}.json"
            state, problem = self._state(loaded, path, force=force)
            if problem:
                return SourceFlaw(place=draft.place, message=problem)
            recording = self._recording(draft, loaded, force=force)
        except (CaseError, CassetteError) as error:
            return SourceFlaw(place=draft.place, message=str(error).removeprefix(f"{draft.place}: "))
        return CheckedCase(
            place=draft.place, path=path, case=draft.case, loaded=loaded, state=state, recording=recording
        )

    def _state(self, loaded: LoadedCase, path: Path, *, force: bool) -> tuple[State, str]:
        """Return what writing a case would do to the suite, and why it can't be written, if so."""
        other = self.existing.get(loaded.case.id.lower())
        if other is None:
            return "new", ""
        if other.path != str(path):
            location = other.label(Path(other.path).as_posix())
            advice = "remove that case, or choose another id"
            return "new", f'/id: duplicate id "{loaded.case.id}", used in {location}; {advice}'
        if case_file_sha256(other) == loaded.sha256:
            return "unchanged", ""
        exists = f"{other.label(path.as_posix())} already exists and differs; pass --force to replace it"
        return "replaced", "" if force else exists


def _all_cases(checked: Iterable[CheckedCase | SourceFlaw | SourceRemark], expected: int) -> Iterator[CheckedCase]:
    """Yield the cases, and check at the end that there are as many as expected."""
    number = 0
    for entry in checked:
        if isinstance(entry, CheckedCase):
            number += 1
            yield entry
    if number != expected:
        raise ValueError(f"the source changed while it was read: {expected} cases, then {number}; run it again")


def _write_lines(path: Path, cases: Iterable[CheckedCase]) -> None:
    """Rewrite a file of lines: the existing ones in their order, then the new ones."""
    from pytest_packbench.atomic import replace_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    replaced: dict[str, bytes] = {}
    with TemporaryFile() as new:
        for case in cases:
            if case.state == "new":
                new.write(encode_utf8(case.text))
            elif case.state == "replaced":
                replaced[case.loaded.case.id] = encode_utf8(case.text)
        new.seek(0)
        with replace_atomic(path) as lines:
            for line in case_lines(path) if path.exists() else ():
                lines.write(replaced.get(read_id(line.raw) or "", line.raw.rstrip(b"\r\n") + b"\n"))
            shutil.copyfileobj(new, lines)


def _write_files(cases: Iterable[CheckedCase]) -> None:
    from pytest_packbench.atomic import write_atomic

    for case in cases:
        if case.state != "unchanged":
            case.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(case.path, case.text)


def destination(
    name: str,
    root: Path,
    pack: Pack,
    files: Mapping[str, str],
    *,
    many: str | None = None,
    unique_inputs: bool = True,
) -> Destination:
    """Return the suite that the cases are written to, an existing one or a new one.

    Args:
        name: the suite's name.
        root: the folder of suites.
        pack: the pack of its cases.
        files: other files of the suite, by path from its folder.
        many: the `.jsonl` file under `cases` that the cases are written to; None for one file per case.
        unique_inputs: whether two cases with the same input are an error.

    Raises:
        UsageError: no suite can have this name, or the suite belongs to another pack.
        SuiteError: its rules can't be read.
    """
    from pytest_packbench.commands.init import suite_name

    folder = root / name
    if not (folder / CONFIG_NAME).is_file():
        suite_name(name)
    rules = _rules(folder / CONFIG_NAME, pack, files.get(CONFIG_NAME))
    return Destination(
        name=name,
        folder=folder,
        rules=rules,
        pack=pack.for_suite(rules),
        files={file: text for file, text in files.items() if not (folder / file).exists()},
        existing={location.name.lower(): location for location in iter_cases(folder / "cases")},
        many=folder / "cases" / many if many is not None else None,
        unique_inputs=unique_inputs,
    )


def _rules(path: Path, pack: Pack, new: str | None) -> SuiteConfig:
    """Return the rules of the suite: those of its file, else the new ones of the importer, else the defaults."""
    from pytest_packbench.packs.registry import Packs

    models, source = Packs([pack]).suite_models, str(path)
    if path.is_file():
        rules = read_config(path.parent, models, source=source)
    elif new is not None:
        rules = check_config(parse_yaml(new.encode(), source=source, models=models), models, source=source)
    else:
        rules = pack.suite_model(pack=pack.name)
    if rules.pack != pack.name:
        raise UsageError(
            f'{source}: the suite belongs to pack "{rules.pack}", the cases to pack "{pack.name}"; choose another suite'
        )
    return rules


def _differs(path: Path, recording: dict[str, Any]) -> bool:
    """Return whether a file contains anything else than a recording."""
    try:
        return bool(parse_json(read_regular(path, RECORDING), RECORDING) != recording)
    except ValueError:
        return True
