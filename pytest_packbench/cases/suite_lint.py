"""Lint of one suite: its files read, the general rules, the pack's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cases.files import ONE, SUFFIXES, parted, read_place, walk_cases
from pytest_packbench.cases.lint import SuiteFiles, check
from pytest_packbench.cases.load import load_cassette
from pytest_packbench.model.errors import CaseError, CassetteError, InputError, Problem
from pytest_packbench.model.finding import FiledCase, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_packbench.model.cassette import Cassette
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite


def lint(suite: Suite, pack: Pack, options: Mapping[str, Path]) -> list[Finding]:
    """Find what is not good in a suite's files. A file that can't be read is a finding and hides no other.

    Args:
        suite: the suite.
        pack: its pack.
        options: values of the pack's `lint_options`, by name.

    Returns:
        The findings by file, in each in the order of the rules; files are named from the suite's folder.

    Raises:
        ValueError: an option's file can't be used.
        OSError: an option's file can't be read.
    """
    findings: list[Finding] = []
    files = _read(suite, pack, findings)
    findings += check(files)
    findings += pack.lint(files.cases, suite.config, options)
    return sorted(findings, key=_by_place)


def _by_place(finding: Finding) -> tuple[str, int]:
    return parted(finding.file)


def _read(suite: Suite, pack: Pack, findings: list[Finding]) -> SuiteFiles:
    folder = suite.path / "fixtures"
    # no case has an id with a slash, so a file in a folder of its own is nobody's
    paths = {path.relative_to(folder).with_suffix("").as_posix(): path for path in _json_files(folder)}
    cassettes: dict[str, Cassette] = {}
    for name, path in paths.items():
        try:
            cassettes[name] = _cassette(path, _name(suite, path))
        except CassetteError as error:
            findings += _unreadable(error, "cassette_unreadable")
    cases: list[FiledCase] = []
    unread: set[str] = set()
    for place in walk_cases(suite.cases_path):
        path = Path(place.path)
        try:
            loaded = read_place(place, pack.case_model, file=_name(suite, path), pack=pack.name)
        except CaseError as error:
            findings += _unreadable(error, "case_unreadable")
            unread.add(place.name)
            continue
        case_id = loaded.case.id
        cases.append(
            FiledCase(
                file=place.located(_name(suite, path)),
                # beside the folders of the types a file of many may hold any
                folder=loaded.case.case_type if place.line and path.parent == suite.cases_path else path.parent.name,
                loaded=loaded,
                cassette=cassettes.get(case_id),
                cassette_file=_name(suite, suite.cassette_path(case_id)),
            )
        )
    facets: set[str] = set()
    for filed in cases:
        facets.update(pack.facets(filed.loaded.case))
    return SuiteFiles(
        config=suite.config,
        cases=cases,
        unread=unread,
        cassettes={name: _name(suite, path) for name, path in paths.items()},
        unread_cassettes=paths.keys() - cassettes.keys(),
        dated=pack.dated,
        facets=facets,
        misnamed=[_name(suite, path) for path in sorted(suite.cases_path.rglob("*")) if _is_misnamed(path)],
    )


def _is_misnamed(path: Path) -> bool:
    endings = [ending.lower() for ending in path.suffixes]
    is_json = any(ending.startswith((ONE, ".ndjson")) for ending in endings)
    return is_json and path.suffix not in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.json") if path.is_file())


def _name(suite: Suite, path: Path) -> str:
    return path.relative_to(suite.path).as_posix()


def _cassette(path: Path, source: str) -> Cassette:
    try:
        return load_cassette(path, source=source)[0]
    except OSError as error:
        raise CassetteError(source, [_closed(error)]) from None


def _closed(error: OSError) -> Problem:
    return Problem("", f"can't be read: {error.strerror}", "expected a JSON file")


def _unreadable(error: InputError, rule: str) -> Iterator[Finding]:
    for problem in error.problems:
        message = f"{problem.wrong}; {problem.expected}"
        yield Finding(file=error.source, pointer=problem.pointer, rule=rule, message=message)
