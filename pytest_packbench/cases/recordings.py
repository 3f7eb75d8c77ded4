"""Finding and reading recordings: `fixtures/<case id>.json`, or a line of `fixtures/recordings.jsonl`; and controls.

Every folder of recordings may have such a file with one recording per line. A file of its own takes precedence over a
line, so that a case can be recorded again without changing the file of many.

Controls are `fixtures/controls/<control id>.json`, or lines of a `.jsonl` file there; an id occurs once.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import (
    CASE_SUFFIX,
    LINES_SUFFIX,
    SUFFIXES,
    CaseIndex,
    CaseLocation,
    file_paths,
    find_case,
    is_unread,
    lines_by_id,
    located_bytes,
    locations_in,
    read_case_bytes,
    split_location,
    unprintable_name,
)
from pytest_packbench.cases.load import case_sha256, parse_cassette, parse_control, parse_json
from pytest_packbench.files import CONTROL, RECORDING, RECORDINGS, escape_unprintable, has_control_characters
from pytest_packbench.model.case import CASE_ID, canonical_sha256
from pytest_packbench.model.errors import (
    CassetteError,
    ControlError,
    Problem,
    describe_error,
    duplicate_id,
    suggestion,
    unreadable,
)
from pytest_packbench.model.pack import Pack
from pytest_packbench.model.run import RECORD_PROMPTS, Run
from pytest_packbench.model.suite import CONTROLS, FIXTURES, PENDING, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.model.recording import Cassette, Control, ControlResult
    from pytest_packbench.model.result import Result


_ID = re.compile(CASE_ID)
_OWN_CALLS = re.compile(rb'"gateway":\s*\[\s*\{')
_HIDDEN = "not shown: prompts are not kept (packbench_record_prompts, or the pack)"
_MAX_FILES, _MAX_WHOLE_FILES = 1000, 32
_MAX_BYTES, _MAX_BYTES_OF_OTHERS = 1024 * 1024, 8 * 1024


class Recording(NamedTuple):
    """Where a recording is, or would be.

    Attributes:
        location: its file and line.
        suite: the folder of its suite.
    """

    location: CaseLocation
    suite: Path

    @property
    def path(self) -> str:
        """The absolute path of its file, with the line of a packed one."""
        return self.location.label(self.location.path)

    @property
    def file(self) -> str:
        """Its path from the folder of the suite, with the line of a packed one."""
        return self.location.label(Path(self.location.path).relative_to(self.suite).as_posix())

    def exists(self) -> bool:
        """Return whether there is a recording; it may be unreadable."""
        return bool(self.location.line) or os.path.exists(self.location.path)  # noqa: PTH110 - a string

    def load(self) -> tuple[Cassette, str]:
        """Return the recording and the hash of its content.

        Raises:
            FileNotFoundError: there is none.
            OSError: it can't be read.
            CassetteError: it is invalid; one line with file, line, JSON pointer, problem and what was expected.
        """
        if self.location.problem is not None:
            raise CassetteError(self.file, [self.location.problem])
        raw = read_case_bytes(self.location, RECORDING)
        return parse_cassette(raw, source=self.file, is_line=bool(self.location.line))


def find_recording(suite: Suite, case_id: str) -> Recording:
    """Return the recording of a case; where there is none, that of the file which would contain it."""
    path = suite.cassette_path(case_id)
    line = None if path.exists() else lines_by_id(str(path.with_name(RECORDINGS)), "case_id").get(case_id)
    return Recording(CaseLocation(str(path), case_id) if line is None else line, suite.path)


class SourceTexts(NamedTuple):
    """The texts of the cases of a suite as they are in its files now; nothing is validated.

    Attributes:
        case_text: returns the text of the case of a result: its file, or its line; None if it can't be found.
        exchanges_text: returns the text of the recording that the result was made with; None without one.
        remark: returns in which way these texts differ from those of the run; empty if they don't.
    """

    case_text: Callable[[Result], str | None]
    exchanges_text: Callable[[Result], str | None]
    remark: Callable[[Result], str]


def source_texts(suite: Suite, root: Path, *, is_checked: bool = True) -> SourceTexts:
    """Return what reads the texts of a suite's cases and recordings; no file outside of its folder is read.

    Args:
        suite: the suite.
        root: the project's root, from which results name their files.
        is_checked: whether the texts are compared with the hashes of results; a run that has just read them need not.
    """
    folder, prefix = _real_folder(str(suite.path)), f"bundled:{suite.record_name}/"

    def case_text(result: Result) -> str | None:
        file, _ = split_location(result.case.file)
        within = file.removeprefix(prefix)
        path = os.path.join(suite.path if within != file else root, within)  # noqa: PTH118 - strings
        location = _case_within(folder, path, result.case.case_id)
        return None if location is None else _text_of(location)

    def exchanges_text(result: Result) -> str | None:
        case_id, digest = result.case.case_id, result.attempt.cassette_sha256
        # an attempt that replayed nothing was not made with the recording that is there now
        if digest is None or _ID.fullmatch(case_id) is None:
            return None
        waiting = _text_of(CaseLocation(str(suite.pending_path(case_id)), case_id))
        if waiting is not None and _hash(waiting, canonical_sha256) == digest:
            return waiting
        return _text_of(find_recording(suite, case_id).location)

    def remark(result: Result) -> str:
        if not is_checked:
            return ""
        # a new recording with the same answers leaves the older one in place
        has_recorded = (result.record or {}).get("packbench", {}).get("mode") == "record"
        recorded = None if has_recorded else exchanges_text(result)
        texts = (
            ("case", case_text(result), result.case.case_sha256, case_sha256),
            ("recording", recorded, result.attempt.cassette_sha256, canonical_sha256),
        )
        changed = [name for name, text, digest, hashed in texts if text and digest and _hash(text, hashed) != digest]
        return f"the {' and the '.join(changed)} changed after this run" if changed else ""

    return SourceTexts(case_text, exchanges_text, remark)


def shown_texts(suite: Suite, pack: Pack, root: Path, run: Run, *, is_checked: bool = True) -> SourceTexts:
    """Return what reads the texts of a suite's cases without inputs and prompts that must not be shown.

    Args:
        suite: the suite.
        pack: its pack, which can exclude cases (`keeps_prompts`).
        root: as in `source_texts`, like the last one.
        run: the run, which may keep no prompts at all (`packbench_record_prompts`).
        is_checked: as there.
    """
    texts = source_texts(suite, root, is_checked=is_checked)
    return hide_prompts(texts, pack, are_kept=run.settings.get(RECORD_PROMPTS) is not False)


def hide_prompts(texts: SourceTexts, pack: Pack, *, are_kept: bool) -> SourceTexts:
    """Return texts without the inputs of cases and the prompts of recordings that must not be shown.

    Args:
        texts: the texts of a suite.
        pack: the pack of the suite, which can exclude cases (`keeps_prompts`).
        are_kept: whether the run keeps prompts at all (`packbench_record_prompts`).
    """
    if are_kept and type(pack).keeps_prompts is Pack.keeps_prompts:
        return texts
    known: dict[str, bool] = {}

    def is_hidden(result: Result) -> bool:
        # a result has its input only where it may be shown
        if not are_kept or result.score.input_text:
            return not are_kept
        if result.case.test_id not in known:
            known[result.case.test_id] = not _keeps_prompts(pack, texts.case_text(result))
        return known[result.case.test_id]

    def shown(text_of: Callable[[Result], str | None], hide: Callable[[Any], None]) -> Callable[[Result], str | None]:
        def shown_text(result: Result) -> str | None:
            text = text_of(result)
            return _changed(text, hide) if text is not None and is_hidden(result) else text

        return shown_text

    return SourceTexts(shown(texts.case_text, _hide_input), shown(texts.exchanges_text, _hide_prompts), texts.remark)


def _keeps_prompts(pack: Pack, text: str | None) -> bool:
    try:
        return text is not None and pack.keeps_prompts(pack.case_model.model_validate(parse_json(text.encode())))
    except Exception:  # noqa: BLE001 - packs are the user's code, and what can't be checked is not shown
        return False


def _changed(text: str, change: Callable[[Any], None]) -> str | None:
    """Return the text of an object that is changed; None if it can't be parsed."""
    try:
        value = parse_json(text.encode(), RECORDING)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    change(value)
    return json.dumps(value, ensure_ascii=False)


def _hide_input(case: dict[str, Any]) -> None:
    """Put a remark in the place of the input of a case."""
    case["input"] = _HIDDEN


def _hide_prompts(recording: dict[str, Any]) -> None:
    """Leave the answers of a recording only."""
    for name, asked in (("exchanges", "prompt"), ("gateway", "request")):
        exchanges = recording.get(name)
        if isinstance(exchanges, list):
            recording[name] = [
                {key: value for key, value in each.items() if key not in {asked, "request_headers"}}
                for each in exchanges
                if isinstance(each, dict)
            ]
        else:
            recording.pop(name, None)


def _case_within(folder: str, path: str, name: str) -> CaseLocation | None:
    """Return the location of a case in a file; None if the file is not within the folder, or has no such case."""
    parent, file = os.path.split(path)
    if not _real_folder(parent).startswith(folder) or file in {"", "..", "."}:
        return None
    return find_case(path, name) if file.endswith(LINES_SUFFIX) else CaseLocation(path, name)


@lru_cache(maxsize=64)
def _real_folder(path: str) -> str:
    return f"{os.path.realpath(path)}{os.sep}"


def _text_of(location: CaseLocation) -> str | None:
    try:
        return read_case_bytes(location).decode("utf-8", "replace").removeprefix("\ufeff")
    except (OSError, ValueError):
        return None


def _hash(text: str, hashed: Callable[[Any], str]) -> str:
    try:
        return hashed(parse_json(text.encode()))
    except ValueError:
        return ""


def recording_key(path: str) -> str:
    """Return the key with the id in a file of recordings or controls; empty for any other file of a suite.

    Args:
        path: the file, from the suite's folder.
    """
    folder, name = posixpath.split(path)
    if not path.startswith(f"{FIXTURES}/"):
        return ""
    is_control = f"{folder}/".startswith(f"{FIXTURES}/{CONTROLS}/")
    is_read = name.endswith(CASE_SUFFIX) or name == RECORDINGS or (is_control and name.endswith(LINES_SUFFIX))
    return ("id" if is_control else "case_id") if is_read else ""


def recordings_in(suite: Path, paths: Iterable[str]) -> dict[str, CaseLocation]:
    """Return the recordings and controls in files of a suite by their path under `fixtures`, without the suffix.

    Args:
        suite: the folder of the suite.
        paths: the files, from there; those of another kind are left out.
    """
    found: dict[str, CaseLocation] = {}
    for path in paths:
        key = recording_key(path)
        for location in locations_in(str(suite / path), key) if key else ():
            name = posixpath.join(posixpath.dirname(path), location.name).removeprefix(f"{FIXTURES}/")
            # a file of its own takes precedence over a line
            if not (location.line and name in found):
                found[name] = location
    return found


def all_recordings(suite: Suite) -> dict[str, Recording]:
    """Return all recordings of a suite by their path under `fixtures` without suffix, sorted."""
    files = file_paths(suite.path / FIXTURES, skip=[suite.controls_path])
    found = recordings_in(suite.path, (Path(path).relative_to(suite.path).as_posix() for path in files))
    return {name: Recording(location, suite.path) for name, location in sorted(found.items())}


def find_controls(folder: Path) -> list[CaseLocation]:
    """Return the controls in a folder, in the order of their files, with files there that are not read as controls."""
    found: list[CaseLocation] = []
    first: dict[str, CaseLocation] = {}
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - strings
    except FileNotFoundError:
        return []
    except OSError as error:
        return [CaseLocation(str(folder), folder.name, problem=unreadable(error, "expected a folder of controls"))]
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118 - a string
        if name.startswith("."):
            continue
        if (problem := control_file_problem(path)) is not None:
            found.append(CaseLocation(path, escaped_name(name), problem=problem))
        elif name.endswith(SUFFIXES):
            found += [_distinct(location, name, first) for location in locations_in(path, noun="control")]
    return found


def _distinct(location: CaseLocation, file: str, first: dict[str, CaseLocation]) -> CaseLocation:
    """Return the location of a control; with another name and a problem if another file has the same id."""
    other = first.setdefault(location.written_id, location)
    if other is location or location.problem is not None:
        return location
    problem = duplicate_id(location.name, other.label(Path(other.path).name))
    return location._replace(name=f"{location.name}.{file}-{location.line}", problem=problem)


def control_file_problem(path: str) -> Problem | None:
    """Return why a file in the folder of controls is not read at all; None if it is, or need not be."""
    folder, name = os.path.split(path)
    if name == "__pycache__":
        return None
    if has_control_characters(name):
        return unprintable_name(path)
    if os.path.isdir(path):  # noqa: PTH112 - strings
        return Problem("", "a folder is not read", f"move its controls to {os.path.basename(folder)}")  # noqa: PTH119
    if is_unread(name):
        return Problem("", "not read as a control, because of its suffix", "rename it to .json, or remove it")
    return None


def hidden_controls(folder: Path) -> list[str]:
    """Return the names of hidden files in a folder of controls, which are not read but look like controls."""
    return sorted(escaped_name(path.name) for path in folder.glob(".*") if path.name.lower().endswith(SUFFIXES))


def escaped_name(name: str) -> str:
    """Return the name or path of a file with escapes for what can't be shown; reports have one line for each."""
    return escape_unprintable(name)


def load_control(location: CaseLocation, *, source: str, names_checks: bool | None = None) -> Control:
    """Read and check a control; whether its case exists is checked by `case_of_control`.

    Args:
        location: its location.
        source: its file for error messages, with its line.
        names_checks: whether the pack names the check that decides (`Pack.decided_by`); None if that is not known.

    Raises:
        ControlError: it is invalid, or could not fail; one line with file, JSON pointer, problem and what was expected.
    """
    raw = located_bytes(location, CONTROL, ControlError, source)
    name = None if location.line else location.name
    return parse_control(raw, source=source, name=name, names_checks=names_checks)


def is_same_control(result: ControlResult, found: CaseLocation | None) -> bool:
    """Whether a control of a run is the one at this location, as far as its line tells."""
    if found is None:
        return False
    try:
        control = load_control(found, source=result.file)
    except ControlError:
        return result.outcome == "broken"
    if result.expected is None:
        # one that was broken or did not run may have a line without it
        return True
    return (result.case, result.expected.as_json()) == (control.case, control.expected.as_json())


def check_target(control: Control, pack: Pack, rules: Any, *, source: str) -> None:
    """Check that the pack has the target through which a control's answers of a model are replayed.

    Raises:
        ControlError: it has none.
    """
    if control.cassette is None:
        return
    try:
        missing = pack.target(rules) is None
    except Exception as error:  # noqa: BLE001 - a pack may raise anything
        wrong = f'the pack "{pack.name}" raised in target(): {describe_error(error)}'
    else:
        wrong = f'the pack "{pack.name}" has no target of its own' if missing else ""
    if wrong:
        raise ControlError(source, [Problem("/cassette", wrong, "give the result as payload instead")])


def case_of_control(control: Control, cases: CaseIndex, *, source: str) -> CaseLocation:
    """Return the location of the case of a control.

    Raises:
        ControlError: the suite has no such case.
    """
    location = cases.find(control.case)
    if location is None:
        advice = suggestion(control.case, cases)
        if not advice.startswith("did you mean"):
            # the ids are not listed
            advice = "name a case of the suite, or remove the control"
        raise ControlError(source, [Problem("/case", f'the suite has no case "{control.case}"', advice)])
    return location


def needs_gateway(folders: Iterable[Path]) -> bool:
    """Whether recordings in these folders contain calls of a target's own clients; reads some of them, in part."""
    return any(_has_own_calls(folder) or _has_own_calls(folder / PENDING) for folder in folders)


def _has_own_calls(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith(SUFFIXES) and entry.is_file()]
    except OSError:
        return False
    for number, path in enumerate(paths[:_MAX_FILES]):
        # the calls come first where the target has no others
        size = _MAX_BYTES if number < _MAX_WHOLE_FILES else _MAX_BYTES_OF_OTHERS
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - a Path takes longer
            if _OWN_CALLS.search(file.read(size)):
                return True
    return False
