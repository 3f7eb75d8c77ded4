"""The suites under a root, and the cases of a suite, including those that cannot be read."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import (
    LINES_SUFFIX,
    CaseLocation,
    case_lines,
    case_paths,
    load_case,
    read_id,
    suite_locations,
)
from pytest_packbench.model.errors import CaseError, duplicate_id, pluralize
from pytest_packbench.model.run import BUNDLED, Shard
from pytest_packbench.model.strict_json import escape_unprintable
from pytest_packbench.model.suite import CONFIG_NAME, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack


class Project(NamedTuple):
    """A project as pytest finds it from the current folder.

    Attributes:
        rootdir: pytest's rootdir, absolute.
        root: the folder of suites, absolute, whether it exists or not.
        packs: the packs of hooks in conftest.py files and plugins; of one name the last counts.
        settings: the settings that decide what fails a run, by `policy_settings`; empty for their defaults.
        hooks: the files with hooks that decide what is tested.
    """

    rootdir: Path
    root: Path
    packs: tuple[Pack, ...] = ()
    settings: Mapping[str, Any] = {}
    hooks: tuple[str, ...] = ()


class SuiteCase(NamedTuple):
    """A case of a suite, which may be unreadable.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        at: its location.
        file: the name of the file for users.
        loaded: the case; None if it cannot be read.
        problem: why it cannot be used, in one line; empty otherwise.
    """

    suite: Suite
    pack: Pack
    at: CaseLocation
    file: str
    loaded: LoadedCase | None
    problem: str

    @property
    def folder(self) -> str:
        """The name of the folder that contains the file."""
        return Path(self.at.path).parent.name

    @property
    def location(self) -> str:
        """The file for users, with the line in a file of many."""
        return self.at.label(self.file)


def suite_names(value: str | Iterable[str]) -> list[str]:
    """Return the names in one or several comma-separated lists, each once, in order."""
    parts = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))


class FoundSuite(NamedTuple):
    """A suite that can be requested.

    Attributes:
        name: the name that it has in a run.
        path: its folder, absolute.
        bundled: whether it is part of the installed package.
    """

    name: str
    path: Path
    bundled: bool

    def contains(self, path: str) -> bool:
        """Return whether a path is the folder, or in it."""
        return (path + os.sep).startswith(str(self.path) + os.sep)


def bundled_root() -> Path:
    """Return the folder of the suites that belong to the package; of a source tree, that of its own suites."""
    package = Path(os.path.abspath(__file__)).parent.parent  # noqa: PTH100 - as the plugin finds them
    packed = package / "_suites"
    return packed if packed.is_dir() else package.parent / "storage" / "benchmarks"


def named_suites(root: Path, bundled: Path) -> dict[str, FoundSuite]:
    """Return the suites by all names that they can be requested by.

    A bare name is that of a suite of the project; of a bundled one where the project has no folder of suites. As
    `bundled/NAME` a bundled suite can always be requested.

    Args:
        root: the folder of the project's suites, absolute; it may be missing.
        bundled: the folder of the bundled suites.
    """
    own = {name: FoundSuite(name, path, bundled=False) for name, path in find_suites(root).items()}
    has_own = root.is_dir()
    by_name = dict(own)
    for name, path in find_suites(bundled).items():
        # in the repository of this package both folders are the same
        is_own = name in own and own[name].path == path
        found = own[name] if is_own else FoundSuite(BUNDLED + name if has_own else name, path, bundled=True)
        by_name[BUNDLED + name] = found
        if not has_own:
            by_name[name] = found
    return by_name


def find_suites(root: Path) -> dict[str, Path]:
    """Return the suites under a root, name to folder, sorted; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / CONFIG_NAME).is_file()}


def unknown_suite_message(
    name: str,
    known: Collection[str],
    root: Path,
    advice: str = "set packbench_root, or start pytest in its parent folder",
) -> str:
    """Return the message for an unknown suite, with the suites that exist.

    Args:
        name: the requested name.
        known: the names that can be requested, as `named_suites` returns them.
        root: the folder of the project's suites; it may be missing.
        advice: what to do then.
    """
    has_own, shown_root = root.is_dir(), os.path.relpath(root)
    is_bundled = name.startswith(BUNDLED) or not has_own
    listed = [escape_unprintable(each) for each in known if each.startswith(BUNDLED) is is_bundled]
    close = [BUNDLED + name] if BUNDLED + name in known else get_close_matches(name, listed, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    # a name is not a path: `../x` is not a suite, even if the folder exists
    incomplete = missing_config_message(root / name) if name == Path(name).name else ""
    message = incomplete or f'unknown suite "{escape_unprintable(name)}"{guess}'
    if not has_own:
        message += f": the folder {shown_root} does not exist; {advice}"
    return (
        f"{message}; {'bundled suites' if is_bundled else f'suites under {shown_root}'}: {', '.join(listed) or 'none'}"
    )


def missing_config_message(folder: Path) -> str:
    """Return the message for a folder without a `suite.yaml`; empty if the folder does not exist."""
    if not folder.is_dir():
        return ""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name.isprintable()]
    near = get_close_matches(CONFIG_NAME, names, n=1, cutoff=0.8)
    advice = f"rename {near[0]} in it" if near else "create it with the rules of the suite"
    return f"{os.path.relpath(folder)} has no {CONFIG_NAME}; {advice}"


def case_counts(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Return the number of cases of a suite, stray files included, and of those in the shard."""
    counts = Counter(shard is None or location.written_id in shard for location in suite_locations(suite))
    return counts.total(), counts[True]


def describe_case_counts(folder: Path) -> str:
    """Describe how many cases a folder contains: `3 cases (a 2, b 1)`.

    Files are counted by their subfolder, lines of a JSON Lines file by their case type.
    """
    counts: Counter[str] = Counter()
    for path in case_paths(folder):
        kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - a string, as case_paths yields
        if path.endswith(LINES_SUFFIX):
            with suppress(OSError):
                counts.update(read_id(line.raw, "case_type") or kind for line in case_lines(path))
        else:
            counts[kind] += 1
    total = counts.total()
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    return f"{pluralize(total, 'case')}{f' ({listed})' if listed else ''}"


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Load all cases of a suite, in the order of their files, then its stray files.

    Cases with the same id get a problem that names the others, because ids identify records.

    Args:
        suite: the suite.
        pack: its pack.
        name_of: returns the name of a file for users.
    """
    places = [(location, name_of(Path(location.path))) for location in suite_locations(suite)]
    by_id: dict[str, list[str]] = {}
    for location, file in places:
        by_id.setdefault(location.written_id, []).append(location.label(file))
    return tuple(_suite_case(suite, pack, location, file, by_id[location.written_id]) for location, file in places)


def _suite_case(suite: Suite, pack: Pack, location: CaseLocation, file: str, same_id: list[str]) -> SuiteCase:
    loaded, source = None, location.label(file)
    others = ", ".join(other for other in same_id if other != source)
    problem = str(CaseError(source, [duplicate_id(location.name, others)])) if others else ""
    try:
        loaded = load_case(location, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return SuiteCase(suite, pack, location, file, loaded, problem)
