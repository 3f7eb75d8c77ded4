"""Linting one suite: the general rules of case quality, then those of its pack."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pytest_packbench.cases.finder import (
    SUFFIXES,
    CaseIndex,
    CaseLocation,
    Recording,
    all_recordings,
    find_controls,
    find_recording,
    is_line_name,
    iter_cases,
    split_location,
    stray_locations,
)
from pytest_packbench.cases.load import case_of_control, check_target, load_case, load_control, load_recording
from pytest_packbench.files import escape_unprintable
from pytest_packbench.model.authoring import FiledCase, Finding
from pytest_packbench.model.errors import (
    InputError,
    Problem,
    fold,
    format_value,
    pluralize,
    suggestion,
    unreadable,
)
from pytest_packbench.model.pack import Pack, instances, names_checks
from pytest_packbench.model.suite import CONFIG_NAME, Gate, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.recording import Cassette, Control


NEAR = 0.9
"""Two inputs are near-duplicates at or above this Jaccard similarity of their word triples."""
Profile = Literal["own", "imported"]
"""Which rules are checked: all, or those that also hold for suites which were written for another program."""
PROFILES: tuple[Profile, ...] = get_args(Profile)
OWN_RULES = frozenset({"date_missing", "near_duplicate_input", "pair_single"})
"""The general rules that the profile `imported` leaves out; see also `Pack.own_lint_rules`."""
SOFT_RULES = frozenset({"cassette_missing", "duplicate_input"})
"""The general rules whose findings are warnings in the profile `imported`."""
PAIR = "pair_"
"""Prefix of the tags that join the cases of a pair."""
_GROUPS = ("case_type", "difficulty", "tag")
_SHINGLE = 3
_MIN_REASON_WORDS = 2
_NOISE = 1e-9
Shingles = frozenset[tuple[str, ...]]


class SuiteFiles(NamedTuple):
    """The files of a suite, the input of the rules.

    Attributes:
        suite: the suite.
        pack: its pack.
        cases: the cases that can be read, in the order of their files.
        unread: the names of cases that cannot be read.
        recordings: the recordings by case id.
        controls: the controls that can be read, by their file.
    """

    suite: Suite
    pack: Pack
    cases: Sequence[FiledCase]
    unread: AbstractSet[str]
    recordings: Mapping[str, Recording]
    controls: Mapping[str, Control]

    @property
    def ids(self) -> set[str]:
        """The ids of the cases that can be read."""
        return {filed.loaded.case.id for filed in self.cases}


def lint(suite: Suite, pack: Pack, options: Mapping[str, Path], *, profile: Profile = "own") -> list[Finding]:
    """Check the quality of a suite's files; a file that cannot be read is a finding and does not hide others.

    Args:
        suite: the suite.
        pack: its pack.
        options: the files for the pack's `lint_options`, by name.
        profile: which rules are checked.

    Returns:
        The findings sorted by file, then in the order of the rules; files are relative to the suite's folder.

    Raises:
        ValueError: the file of an option is invalid.
        OSError: the file of an option cannot be read.
    """
    findings: list[Finding] = []
    files = _read(suite, pack, findings)
    findings += check(files)
    findings += instances(pack.tools().lint(files.cases, suite.config, options), Finding, "lint")
    if profile == "imported":
        findings = list(_of_imported(findings, pack))
    return sorted(findings, key=lambda finding: split_location(finding.file))


def _of_imported(findings: Iterable[Finding], pack: Pack) -> Iterator[Finding]:
    """Leave out what holds only for suites that are written for this program."""
    for finding in findings:
        if finding.rule not in OWN_RULES | pack.tools().own_lint_rules:
            yield replace(finding, severity="warning") if finding.rule in SOFT_RULES else finding


def check(files: SuiteFiles) -> Iterator[Finding]:
    """Yield the findings of the general rules."""
    for rule in _SUITE_RULES:
        yield from rule(files)
    for filed in files.cases:
        for case_rule in _CASE_RULES:
            yield from case_rule(filed)


def _read(suite: Suite, pack: Pack, findings: list[Finding]) -> SuiteFiles:
    # ids contain no slash, so that a recording in a subfolder belongs to no case
    recordings = all_recordings(suite)
    cassettes: dict[str, Cassette] = {}
    for name, recording in recordings.items():
        with _reported(findings, "cassette_unreadable", str(recording)):
            cassettes[name], _ = load_recording(recording)
    places = [*iter_cases(suite.cases_path)]
    loaded: dict[CaseLocation, LoadedCase] = {}
    for location in places:
        with _reported(findings, "case_unreadable"):
            file = Path(location.path).relative_to(suite.path).as_posix()
            loaded[location] = load_case(location, pack.case_model, file=file, pack=pack.name)
    cases = [_filed(suite, location, case, cassettes.get(case.case.id)) for location, case in loaded.items()]
    unread = {location.name for location in places if location not in loaded}
    controls = _read_controls(suite, pack, CaseIndex(places), findings)
    return SuiteFiles(suite, pack, cases, unread, recordings, controls)


@contextmanager
def _reported(findings: list[Finding], rule: str, source: str = "") -> Iterator[None]:
    """Make findings of what is wrong with a file that is read in this block; it does not hide others."""
    try:
        yield
    except InputError as error:
        findings += _unreadable(error.source, error.problems, rule)
    except OSError as error:
        findings += _unreadable(source, [unreadable(error, "expected a JSON file")], rule)


def _filed(suite: Suite, location: CaseLocation, loaded: LoadedCase, cassette: Cassette | None) -> FiledCase:
    folder = Path(location.path).parent
    # a JSON Lines file outside the folders of case types may contain any type
    is_of_any = location.line and folder == suite.cases_path
    return FiledCase(
        file=location.within(suite.path),
        folder=loaded.case.case_type if is_of_any else folder.name,
        loaded=loaded,
        cassette=cassette,
        cassette_file=str(find_recording(suite, loaded.case.id)),
    )


def _read_controls(suite: Suite, pack: Pack, cases: CaseIndex, findings: list[Finding]) -> dict[str, Control]:
    controls: dict[str, Control] = {}
    for each in find_controls(suite.controls_path):
        source = escape_unprintable(each.within(suite.path))
        with _reported(findings, "control_unreadable"):
            control = load_control(each, source=source, names_checks=names_checks(pack))
            case_of_control(control, cases, source=source)
            check_target(control, pack, suite.config, source=source)
            controls[source] = control
    # they look like controls
    hidden = (path for path in suite.controls_path.glob(".*") if path.name.lower().endswith(SUFFIXES))
    files = sorted(escape_unprintable(path.relative_to(suite.path).as_posix()) for path in hidden)
    findings += [
        _at(file, "", "control_hidden", "a hidden file is not read; rename it, or remove it") for file in files
    ]
    return controls


def _unreadable(source: str, problems: Iterable[Problem], rule: str) -> Iterator[Finding]:
    for problem in problems:
        yield _at(source, problem.pointer, rule, f"{problem.wrong}; {problem.expected}")


def _empty(files: SuiteFiles) -> Iterator[Finding]:
    if not files.cases and not files.unread:
        yield _at(CONFIG_NAME, "", "suite_empty", "the suite has no cases; add one")
    notes = [filed.loaded.case.notes for filed in files.cases]
    if notes and not files.unread and all(each.skip is not None or each.xfail is not None for each in notes):
        message = (
            f"no case is judged: {pluralize(len(notes), 'case')}, all quarantined; remove notes.skip or notes.xfail"
        )
        yield _at(CONFIG_NAME, "", "suite_quarantined", message)


def _stray(files: SuiteFiles) -> Iterator[Finding]:
    for location in stray_locations(files.suite):
        yield from _unreadable(location.within(files.suite.path), filter(None, [location.problem]), "file_misnamed")


def _thresholds(files: SuiteFiles) -> Iterator[Finding]:
    thresholds = files.suite.config.thresholds
    types = {filed.loaded.case.case_type for filed in files.cases}
    for name in sorted(thresholds.by_type.keys() - types):
        message = f'no case has the type "{name}"; remove it'
        yield replace(_at(CONFIG_NAME, f"/thresholds/by_type/{name}", "threshold_unused", message), severity="warning")


def _gates(files: SuiteFiles) -> Iterator[Finding]:
    for index, gate in enumerate(files.suite.config.gates):
        pointer = f"/gates/{index}"
        if _cannot_fail(gate):
            message = f"the gate passes for any {gate.metric}; use a stricter bound"
            yield _at(CONFIG_NAME, pointer, "gate_vacuous", message)
        yield from _gate_names(gate, pointer, files)


def _cannot_fail(gate: Gate) -> bool:
    if gate.must_pass or gate.compares:
        return False
    return (gate.min is None or gate.min <= 0) and (gate.max is None or gate.max >= 1)


def _gate_names(gate: Gate, pointer: str, files: SuiteFiles) -> Iterator[Finding]:
    """Yield names of cases and groups that do not exist: such a gate fails every run."""
    known = files.ids
    for position, name in enumerate(gate.must_pass):
        if name not in known | files.unread:
            close = get_close_matches(name, known, n=1)
            advice = f'did you mean "{close[0]}"?' if close else "remove it"
            message = f'unknown case "{name}"; {advice}'
            yield _at(CONFIG_NAME, f"{pointer}/must_pass/{position}", "gate_unknown_case", message)
    facets = {name for filed in files.cases for name in files.pack.facets(filed.loaded.case)} if gate.by else ()
    groups = (*_GROUPS, *sorted(facets))
    if gate.by is not None and gate.by not in groups and files.cases:
        message = f'no case has the facet "{gate.by}"; {suggestion(gate.by, groups)}'
        yield _at(CONFIG_NAME, f"{pointer}/by", "gate_unknown_group", message)


def _ids(files: SuiteFiles) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for filed in files.cases:
        other = first.setdefault(filed.loaded.case.id, filed.file)
        if other != filed.file:
            yield _at(filed, "/id", "duplicate_id", f"duplicate id, also in {other}; use a unique id")


def _pairs(files: SuiteFiles) -> Iterator[Finding]:
    tags = Counter(tag for filed in files.cases for tag in _pair_tags(filed))
    for filed in files.cases:
        for index, tag in enumerate(filed.loaded.case.notes.tags):
            if tag in _pair_tags(filed) and tags[tag] == 1:
                message = f'no other case has the tag "{tag}"; add the other case of the pair'
                yield _at(filed, f"/notes/tags/{index}", "pair_single", message)


def _pair_tags(filed: FiledCase) -> set[str]:
    return {tag for tag in filed.loaded.case.notes.tags if tag.startswith(PAIR)}


def _duplicates(files: SuiteFiles) -> Iterator[Finding]:
    words = [_words(filed) for filed in files.cases]
    first: dict[tuple[str, ...], FiledCase] = {}
    distinct: list[tuple[FiledCase, Shingles]] = []
    for filed, case_words in zip(files.cases, words, strict=True):
        other = first.setdefault(case_words, filed)
        if other is filed:
            distinct.append((filed, _shingles(case_words)))
        else:
            yield _at(filed, "/input", "duplicate_input", f"same input as {other.file}; change one of them")
    for left, right, similarity in _near_duplicates([shingles for _, shingles in distinct]):
        earlier, later = distinct[left][0], distinct[right][0]
        if not _pair_tags(earlier) & _pair_tags(later):
            message = f"{similarity:.0%} similar to {earlier.file}; reword it, or give both the same tag {PAIR}…"
            yield _at(later, "/input", "near_duplicate_input", message)


def _words(filed: FiledCase) -> tuple[str, ...]:
    plain = filed.loaded.case.model_dump(mode="json", include={"input"})["input"]
    text = fold(" ".join(_leaves(plain))).casefold()
    return tuple(re.findall(r"\w+", text))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


def _shingles(words: tuple[str, ...]) -> Shingles:
    last = max(1, len(words) - _SHINGLE + 1)
    return frozenset(words[start : start + _SHINGLE] for start in range(last))


def _near_duplicates(sets: Sequence[Shingles]) -> Iterator[tuple[int, int, float]]:
    """Yield the indexes and the similarity of similar sets, without comparing all pairs.

    Sets with a similarity of `NEAR` or more share at least one of their few rarest members.
    """
    frequency = Counter(shingle for shingles in sets for shingle in shingles)
    indexes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for right, shingles in enumerate(sets):
        rarest = sorted(shingles, key=lambda shingle: (frequency[shingle], shingle))
        rarest = rarest[: len(shingles) - math.ceil(NEAR * len(shingles) - _NOISE) + 1]
        for left in sorted({left for shingle in rarest for left in indexes[shingle]}):
            similarity = len(sets[left] & shingles) / len(sets[left] | shingles)
            if similarity >= NEAR - _NOISE:
                yield left, right, similarity
        for shingle in rarest:
            indexes[shingle].append(right)


def _cassettes(files: SuiteFiles) -> Iterator[Finding]:
    for name in sorted(files.recordings.keys() - files.ids - files.unread):
        found = files.recordings[name]
        # a line without an id, or a file without lines, is unreadable and nothing more
        if not (is_line_name(name) or found.location.problem):
            yield _at(str(found), "", "cassette_unused", "no case has this id; remove the cassette")
    for filed in files.cases:
        case = filed.loaded.case
        if filed.cassette is not None:
            yield from _belonging(filed, filed.cassette)
        # a suite without any cassette has a target that calls no model
        elif files.recordings and case.id not in files.recordings and case.notes.skip is None:
            yield _at(
                filed, "", "cassette_missing", f"the cassette {filed.cassette_file} is missing; record it or write it"
            )


def _controls(files: SuiteFiles) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for file, control in files.controls.items():
        expected = control.expected
        if expected.verdict == "failed" and not (expected.score is not None or expected.terms or expected.decided_by):
            message = "any failure would do; state the score, the terms, or the check that decides (decided_by)"
            yield _at(file, "/expected", "control_unspecific", message)
        answer = control.model_dump_json(exclude={"id", "description", "expected", "schema_uri"})
        other = first.setdefault(answer, file)
        if other != file:
            yield _at(file, "", "control_repeated", f"the same answer to the same case as {other}; remove one of them")


def _belonging(filed: FiledCase, cassette: Cassette) -> Iterator[Finding]:
    if cassette.case_id != filed.loaded.case.id:
        message = f"got {format_value(cassette.case_id)}, the id of another case; each case needs its own cassette"
        yield _at(filed.cassette_file, "/case_id", "cassette_foreign", message)
    elif cassette.input_sha256 != filed.loaded.input_sha256:
        message = (
            f"the input of the case has changed since the recording, now {filed.loaded.input_sha256}; record it again"
        )
        yield _at(filed.cassette_file, "/input_sha256", "cassette_outdated", message)


def _folder(filed: FiledCase) -> Iterator[Finding]:
    case_type = filed.loaded.case.case_type
    if filed.folder != case_type:
        message = f'got {format_value(case_type)} in the folder "{filed.folder}"; move the file or change the type'
        yield _at(filed, "/case_type", "folder_type", message)


def _no_input(filed: FiledCase) -> Iterator[Finding]:
    given = filed.loaded.case.model_dump(mode="json", include={"input"})["input"]
    if given in (None, {}, []) or (isinstance(given, str) and not given.strip()):
        yield _at(filed, "/input", "input_empty", f"got {format_value(given)}; add what the target is asked")


def _provenance(filed: FiledCase) -> Iterator[Finding]:
    notes = filed.loaded.case.notes
    if notes.source is None or not notes.source.strip():
        yield _at(filed, "/notes/source", "source_missing", "state where the expected answer comes from")


def _undated(files: SuiteFiles) -> Iterator[Finding]:
    for filed in files.cases if files.pack.tools().dated else ():
        if filed.loaded.case.notes.date is None:
            yield _at(filed, "/notes/date", "date_missing", "state on which day the expected answer was verified")


def _quarantine(filed: FiledCase) -> Iterator[Finding]:
    notes = filed.loaded.case.notes
    for key, reason in (("skip", notes.skip), ("xfail", notes.xfail)):
        if reason is not None and len(reason.split()) < _MIN_REASON_WORDS:
            yield _at(
                filed,
                f"/notes/{key}",
                "quarantine_reason",
                f"got {format_value(reason)}; state the reason in a sentence",
            )


def _at(where: FiledCase | str, pointer: str, rule: str, message: str) -> Finding:
    file = where if isinstance(where, str) else where.file
    return Finding(file=file, pointer=pointer, rule=rule, message=message)


_SUITE_RULES: tuple[Callable[[SuiteFiles], Iterable[Finding]], ...] = (
    _empty,
    _stray,
    _thresholds,
    _gates,
    _ids,
    _pairs,
    _duplicates,
    _cassettes,
    _controls,
    _undated,
)
_CASE_RULES: tuple[Callable[[FiledCase], Iterable[Finding]], ...] = (
    _folder,
    _no_input,
    _provenance,
    _quarantine,
)
