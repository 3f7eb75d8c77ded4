"""`packbench import`: turns what people have into cases of a suite; shows them first."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.cases.files import LINES_SUFFIX, case_lines, iter_cases, read_case_bytes, read_id
from pytest_packbench.cases.load import check_case, parse_json, read_config
from pytest_packbench.cli import FINE, UNUSABLE, UsageError
from pytest_packbench.commands.paths import ROOT, add_root
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.pack import SourceFlaw
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.model.text import pluralize

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.pack import CaseDraft, Importer, Pack
    from pytest_packbench.model.suite import SuiteConfig


State = Literal["new", "unchanged", "replaced"]
MOST_FLAWS = 20
_MOST_TEXT = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds that the packs bring, each with its own arguments and with ours."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, pack, importer in _importers():
        kind = kinds.add_parser(name, help=importer.help, description=importer.help)
        importer.add_arguments(kind)
        default = f" (default {importer.suite})" if importer.suite else ""
        about = f"the suite that gets the cases; made where there is none{default}"
        kind.add_argument("--suite", required=importer.suite is None, default=importer.suite, help=about)
        add_root(kind)
        kind.add_argument("--write", action="store_true", help="write the cases; without it they are only shown")
        kind.add_argument("--force", action="store_true", help="with --write: in the place of cases that are there")
        kind.add_argument("--skip-bad", action="store_true", help="with --write: leave out what makes no case")
        kind.set_defaults(importer=(pack, importer))


def run(arguments: argparse.Namespace) -> int:
    """Show what would be written, or write it; 2 where something in the source makes no case."""
    pack, importer = arguments.importer
    place = destination(arguments.suite, arguments.root, pack, importer.files(arguments), many=importer.many(arguments))
    found = _Found()
    for one in place.checked(importer.read(arguments), force=arguments.force):
        found.add(one)
    usable = found.cases > 0 and (arguments.skip_bad or not found.flaws)
    if usable and arguments.write:
        place.write(place.checked(importer.read(arguments), force=arguments.force), expected=found.cases)
    _print(_written(found, place) if usable and arguments.write else _shown(found, place, arguments))
    return FINE if usable else UNUSABLE


def _importers() -> Iterator[tuple[str, Pack, Importer]]:
    from pytest_packbench.packs.registry import PackError, Packs

    packs = Packs()
    taken: set[str] = set()
    for name in packs:
        # a pack that can't be loaded is said where a suite asks for it
        with suppress(PackError):
            for importer in packs[name].importers():
                # nobody's kind hides another's
                kind = f"{name}-{importer.name}" if importer.name in taken else importer.name
                taken.add(kind)
                yield kind, packs[name], importer


class _Found:
    """What a source holds: counted, with the first of each."""

    def __init__(self) -> None:
        self.cases = 0
        self.flaws = 0
        self.first: Checked | None = None
        self.shown: list[SourceFlaw] = []
        self.states: Counter[str] = Counter()
        self.types: Counter[str] = Counter()

    def add(self, one: Checked | SourceFlaw) -> None:
        if isinstance(one, Checked):
            self.cases += 1
            self.first = self.first or one
            self.states[one.state] += 1
            self.types[one.case_type] += 1
        else:
            self.flaws += 1
            if self.flaws <= MOST_FLAWS:
                self.shown.append(one)


def _shown(found: _Found, place: Destination, arguments: argparse.Namespace) -> Iterator[str]:
    yield f"{place.name}: {_cases(found)}"
    yield from _flaws(found)
    if found.first is not None:
        yield f"the first, of {found.first.place}, for {found.first.path.as_posix()}:"
        yield _cut(found.first.text.rstrip("\n"))
        yield from (f"with it: {(place.folder / name).as_posix()}" for name in place.files)
    if found.flaws and not arguments.skip_bad:
        yield "nothing was written; mend the source, or pass --skip-bad to leave out what makes no case"
    elif found.cases:
        yield "nothing was written; --write writes"
    else:
        yield "nothing to write"


def _written(found: _Found, place: Destination) -> Iterator[str]:
    yield f"{place.name}: wrote {_cases(found)}"
    yield from _flaws(found)
    yield from (f"wrote {(place.folder / name).as_posix()}" for name in place.files)
    root = place.folder.parent
    options = "" if root == ROOT else f"-o packbench_root={root.as_posix()} "
    has_target = place.rules.target is not None or place.pack.target(place.rules) is not None
    target = "" if has_target else " --packbench-target=package.module:function"
    yield f"run it: pytest {options}--packbench-suite={place.name}{target}"


def _cases(found: _Found) -> str:
    states = ", ".join(f"{number} {state}" for state, number in found.states.items())
    types = ", ".join(f"{name} {number}" for name, number in sorted(found.types.items()))
    return f"{pluralize(found.cases, 'case')}{f' ({states}): {types}' if found.cases else ''}"


def _flaws(found: _Found) -> Iterator[str]:
    if found.flaws:
        yield f"{pluralize(found.flaws, 'place')} in the source {'makes' if found.flaws == 1 else 'make'} no case:"
        yield from (f"  {flaw.place}: {' '.join(flaw.message.split())}" for flaw in found.shown)
    if found.flaws > len(found.shown):
        yield f"  and {found.flaws - len(found.shown)} more"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}… ({len(text) - _MOST_TEXT} characters more)"


def _print(lines: Iterable[str]) -> None:
    from pytest_packbench.reports.terminal import printable

    sys.stdout.writelines(printable(line) + "\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A case that the suite's pack can read.

    Attributes:
        place: where it was read.
        path: the file that it becomes, or that gets it as a line.
        case_id: its id.
        case_type: its type.
        case: the case as plain JSON.
        state: what writing it does to the suite.
    """

    place: str
    path: Path
    case_id: str
    case_type: str
    case: dict[str, Any]
    state: State

    @property
    def text(self) -> str:
        """The content of its file, or its line."""
        if self.path.suffix == LINES_SUFFIX:
            return json.dumps(self.case, ensure_ascii=False) + "\n"
        return json.dumps(self.case, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The suite that gets the cases.

    Attributes:
        name: the suite's name.
        folder: its folder.
        rules: what its `suite.yaml` says, or will say.
        pack: its pack, as the suite uses it.
        files: other files to write, by their name from its folder; those that it has none of.
        there: the cases that it has, by id, in lower case: some file systems know no other.
        many: the file that gets the cases as lines, a case each; None for a file each.
    """

    name: str
    folder: Path
    rules: SuiteConfig
    pack: Pack
    files: Mapping[str, str]
    there: Mapping[str, CaseLocation]
    many: Path | None = None

    def checked(self, drafts: Iterable[CaseDraft | SourceFlaw], *, force: bool) -> Iterator[Checked | SourceFlaw]:
        """Check drafts one by one.

        Args:
            drafts: what an importer gives.
            force: whether a case may take the place of another one of its id.

        Yields:
            What can be written, and what can't and why.
        """
        seen: dict[str, str] = {}
        for draft in drafts:
            if isinstance(draft, SourceFlaw):
                yield draft
                continue
            one = self._checked(draft, force=force)
            if isinstance(one, Checked):
                case_id = one.case_id
                first = seen.setdefault(case_id.lower(), one.place)
                if first != one.place:
                    one = SourceFlaw(place=one.place, message=f'/id: duplicate id "{case_id}", first used at {first}')
            yield one

    def write(self, checked: Iterable[Checked | SourceFlaw], *, expected: int) -> None:
        """Write the cases, then the other files.

        Args:
            checked: what `checked` gives; flaws are passed over.
            expected: how many cases there were when they were looked at.

        Raises:
            ValueError: there are more or fewer now.
            OSError: one can't be written; those before it are, of lines none is.
        """
        from pytest_packbench.atomic import write_atomic

        cases = _all_cases(checked, expected)
        if self.many is None:
            _write_files(cases)
        else:
            _write_lines(self.many, cases)
        for name, text in self.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)

    def _checked(self, draft: CaseDraft, *, force: bool) -> Checked | SourceFlaw:
        try:
            loaded = check_case(draft.case, self.pack.case_model, source=draft.place, stem=None, pack=self.rules.pack)
        except CaseError as error:
            return SourceFlaw(place=draft.place, message=str(error).removeprefix(f"{draft.place}: "))
        case = loaded.case
        path = self.many or self.folder / "cases" / case.case_type / f"{case.id}.json"
        other = self.there.get(case.id.lower())
        state: State = "new"
        if other is not None:
            if other.path != str(path):
                stands = other.label(Path(other.path).as_posix())
                message = f'/id: "{case.id}" stands already in {stands}; remove it, or give another id'
                return SourceFlaw(place=draft.place, message=message)
            state = "unchanged" if _sha256(other) == loaded.sha256 else "replaced"
            if state == "replaced" and not force:
                message = (
                    f"{other.label(path.as_posix())} exists and says something else; --force puts this in its place"
                )
                return SourceFlaw(place=draft.place, message=message)
        return Checked(
            place=draft.place, path=path, case_id=case.id, case_type=case.case_type, case=draft.case, state=state
        )


def _all_cases(checked: Iterable[Checked | SourceFlaw], expected: int) -> Iterator[Checked]:
    """Give the cases; at their end see that there are as many as there were."""
    number = 0
    for one in checked:
        if isinstance(one, Checked):
            number += 1
            yield one
    if number != expected:
        raise ValueError(f"the source changed while it was read: {expected} cases, then {number}; run it again")


def _write_lines(path: Path, cases: Iterable[Checked]) -> None:
    """Write a file of many anew: its own lines in their order, then the new ones."""
    from pytest_packbench.atomic import encode_utf8, replace_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    replaced: dict[str, bytes] = {}
    with TemporaryFile() as new:
        for one in cases:
            if one.state == "new":
                new.write(encode_utf8(one.text))
            elif one.state == "replaced":
                replaced[one.case_id] = encode_utf8(one.text)
        new.seek(0)
        with replace_atomic(path) as lines:
            for line in case_lines(path) if path.exists() else ():
                lines.write(replaced.get(read_id(line.raw) or "", line.raw.rstrip(b"\r\n") + b"\n"))
            shutil.copyfileobj(new, lines)


def _write_files(cases: Iterable[Checked]) -> None:
    from pytest_packbench.atomic import write_atomic

    folders: set[Path] = set()
    for one in cases:
        if one.path.parent not in folders:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            folders.add(one.path.parent)
        if one.state != "unchanged":
            write_atomic(one.path, one.text)


def destination(name: str, root: Path, pack: Pack, files: Mapping[str, str], *, many: str | None = None) -> Destination:
    """Find the suite that gets the cases, or see how a new one will be.

    Args:
        name: the suite's name.
        root: the folder of suites.
        pack: the pack that its cases are of.
        files: other files of the suite, by their name from its folder.
        many: the file under `cases` that gets the cases as lines; None for a file each.

    Raises:
        UsageError: it can't be a suite's name, or the suite is of another pack.
        SuiteError: its rules can't be read.
    """
    from pytest_packbench.commands.init import suite_name

    folder = root / name
    if (folder / CONFIG_NAME).is_file():
        rules = _rules(folder, pack, source=str(folder / CONFIG_NAME))
    else:
        suite_name(name)
        rules = _future_rules(folder, pack, files)
    return Destination(
        name=name,
        folder=folder,
        rules=rules,
        pack=pack.for_suite(rules),
        files={one: text for one, text in files.items() if not (folder / one).exists()},
        there={place.name.lower(): place for place in iter_cases(folder / "cases")},
        many=folder / "cases" / many if many is not None else None,
    )


def _rules(folder: Path, pack: Pack, *, source: str) -> SuiteConfig:
    from pytest_packbench.packs.registry import Packs

    rules = read_config(folder, Packs([pack]).suite_models, source=source)
    if rules.pack != pack.name:
        raise UsageError(f'{source}: the suite is of pack "{rules.pack}"; these are cases of pack "{pack.name}"')
    return rules


def _future_rules(folder: Path, pack: Pack, files: Mapping[str, str]) -> SuiteConfig:
    if CONFIG_NAME not in files:
        return pack.suite_model(pack=pack.name)
    with TemporaryDirectory() as place:
        (Path(place) / CONFIG_NAME).write_text(files[CONFIG_NAME], encoding="utf-8")
        return _rules(Path(place), pack, source=str(folder / CONFIG_NAME))


def _sha256(place: CaseLocation) -> str | None:
    try:
        data = parse_json(read_case_bytes(place))
    except (ValueError, OSError):
        return None
    plain = {key: value for key, value in data.items() if key != "$schema"} if isinstance(data, dict) else data
    return canonical_sha256(plain)
