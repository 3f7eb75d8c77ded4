"""From drafts to case files: checked by the suite's own pack, never over what is there."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.cases.files import MANY, case_lines, id_of, raw_of, walk_cases
from pytest_packbench.cases.load import check_case, parse_json, read_config
from pytest_packbench.cli import UsageError
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.pack import Flaw
from pytest_packbench.model.suite import CONFIG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.cases.files import CasePlace
    from pytest_packbench.model.pack import Draft, Pack
    from pytest_packbench.model.suite import SuiteConfig

State = Literal["new", "unchanged", "replaced"]


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
        if self.path.suffix == MANY:
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
    there: Mapping[str, CasePlace]
    many: Path | None = None

    def checked(self, drafts: Iterable[Draft | Flaw], *, force: bool) -> Iterator[Checked | Flaw]:
        """Check drafts one by one.

        Args:
            drafts: what an importer gives.
            force: whether a case may take the place of another one of its id.

        Yields:
            What can be written, and what can't and why.
        """
        seen: dict[str, str] = {}
        for draft in drafts:
            if isinstance(draft, Flaw):
                yield draft
                continue
            one = self._checked(draft, force=force)
            if isinstance(one, Checked):
                case_id = one.case_id
                first = seen.setdefault(case_id.lower(), one.place)
                if first != one.place:
                    one = Flaw(place=one.place, message=f'/id: "{case_id}" stands already at {first}; ids name files')
            yield one

    def write(self, checked: Iterable[Checked | Flaw], *, expected: int) -> None:
        """Write the cases, then the other files.

        Args:
            checked: what `checked` gives; flaws are passed over.
            expected: how many cases there were when they were looked at.

        Raises:
            ValueError: there are more or fewer now.
            OSError: one can't be written; those before it are, of lines none is.
        """
        from pytest_packbench.atomic import write_atomic

        cases = (one for one in checked if isinstance(one, Checked))
        if self.many is None:
            _write_files(cases, expected)
        else:
            _write_lines(self.many, cases, expected)
        for name, text in self.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)

    def _checked(self, draft: Draft, *, force: bool) -> Checked | Flaw:
        try:
            loaded = check_case(draft.case, self.pack.case_model, source=draft.place, stem=None, pack=self.rules.pack)
        except CaseError as error:
            return Flaw(place=draft.place, message=str(error).removeprefix(f"{draft.place}: "))
        case = loaded.case
        path = self.many or self.folder / "cases" / case.case_type / f"{case.id}.json"
        other = self.there.get(case.id.lower())
        state: State = "new"
        if other is not None:
            if other.path != str(path):
                stands = other.located(Path(other.path).as_posix())
                message = f'/id: "{case.id}" stands already in {stands}; remove it, or give another id'
                return Flaw(place=draft.place, message=message)
            state = "unchanged" if _sha256(other) == loaded.sha256 else "replaced"
            if state == "replaced" and not force:
                message = (
                    f"{other.located(path.as_posix())} exists and says something else; --force puts this in its place"
                )
                return Flaw(place=draft.place, message=message)
        return Checked(
            place=draft.place, path=path, case_id=case.id, case_type=case.case_type, case=draft.case, state=state
        )


def _write_lines(path: Path, cases: Iterable[Checked], expected: int) -> None:
    """Write a file of many anew: its own lines in their order, then the new ones."""
    from pytest_packbench.atomic import encoded, replacing

    path.parent.mkdir(parents=True, exist_ok=True)
    count, replaced = 0, dict[str, bytes]()
    with TemporaryFile() as new:
        for one in cases:
            count += 1
            if one.state == "new":
                new.write(encoded(one.text))
            elif one.state == "replaced":
                replaced[one.case_id] = encoded(one.text)
        _check_count(count, expected)
        new.seek(0)
        with replacing(path) as lines:
            for line in case_lines(path) if path.exists() else ():
                lines.write(replaced.get(id_of(line.raw) or "", line.raw.rstrip(b"\r\n") + b"\n"))
            shutil.copyfileobj(new, lines)


def _write_files(cases: Iterable[Checked], expected: int) -> None:
    from pytest_packbench.atomic import write_atomic

    count, folders = 0, set[Path]()
    for one in cases:
        count += 1
        if one.path.parent not in folders:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            folders.add(one.path.parent)
        if one.state != "unchanged":
            write_atomic(one.path, one.text)
    _check_count(count, expected)


def _check_count(count: int, expected: int) -> None:
    if count != expected:
        raise ValueError(f"the source changed while it was read: {expected} cases, then {count}; run it again")


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
        there={place.name.lower(): place for place in walk_cases(folder / "cases")},
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


def _sha256(place: CasePlace) -> str | None:
    try:
        data = parse_json(raw_of(place))
    except (ValueError, OSError):
        return None
    plain = {key: value for key, value in data.items() if key != "$schema"} if isinstance(data, dict) else data
    return canonical_sha256(plain)
