"""`packbench import white-box`: suites of the original harness, with their stored results."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.finder import case_lines
from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.files import LIMITS, read_regular, why_unreadable
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceFlaw, SourceRemark
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.packs.tariff.white_box.cases import MappingError, to_case
from pytest_packbench.packs.tariff.white_box.original import document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RESULTS = "pytest_packbench.packs.tariff.white_box:results"
"""The target of imported suites with results."""
CASES = "cases"
_IMPORT = LIMITS["import"]
# a repository may have other folders of cases
_PLACES = ("storage/benchmarks", "benchmarks", "")
_SAME = {
    "input": "this input",
    "options": "this input with these options",
    "evidence": "this input with this evidence",
}
_DATA = (".json", ".jsonl", ".yaml", ".yml", ".csv")
_SUITE = """\
# imported from the original harness, white-box
pack: tariff
description: imported from a suite of white-box
# as there: the code of the changed goods counts, if there is one
scored_code: final
"""
_WITH_RESULTS = f"""
# the recorded results are replayed: no pipeline runs, only the scoring is tested
target: {RESULTS}
"""
_WITHOUT_RESULTS = """
# the pipeline under test; without it, that of the pack
# target: package.module:function
"""


class SourceSuite(NamedTuple):
    """A suite of the source.

    Attributes:
        name: its name.
        folder: its folder.
        cases: its folder of cases.
    """

    name: str
    folder: Path
    cases: Path


class WhiteBox(Importer):
    """Suites of the original harness: a repository, its folder of benchmarks, a suite, or a folder of cases."""

    name = "white-box"
    help = "suites of the original tariff harness, white-box: their cases, and stored results as recordings"
    names_suites = True
    unique_inputs = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the folder, and where else results are."""
        about = "the repository, its folder storage/benchmarks, a suite's folder, or a folder of cases"
        parser.add_argument("folder", type=Path, metavar="DIR", help=about)
        about = (
            "a file or folder of results, each in a file named after its case, or with case_id and result; for "
            "several suites, a folder with a folder for each (repeat)"
        )
        parser.add_argument("--results", type=Path, action="append", default=[], metavar="PATH", help=about)

    def parts(self, arguments: argparse.Namespace, root: Path) -> Iterator[argparse.Namespace]:
        """Yield the arguments for each suite of the folder."""
        folder: Path = arguments.folder
        if not folder.is_dir():
            raise ValueError(f"{folder}: {'no folder' if folder.exists() else 'no such folder'}")
        for results in arguments.results:
            if not results.exists():
                raise ValueError(f"--results: {results}: no such file or folder")
        suites = source_suites(folder)
        if not suites:
            raise ValueError(
                f"{folder}: no cases; expected a folder {CASES} with JSON files, here or in a suite's folder"
            )
        if arguments.suite and len(suites) > 1:
            names = ", ".join(suite.name for suite in suites)
            raise ValueError(f"--suite: {folder} contains the suites {names}; pass the folder of one of them")
        for suite in suites:
            name = arguments.suite or suite.name
            if os.path.realpath(root / name) == os.path.realpath(suite.folder):
                raise ValueError(
                    f"{suite.folder} is where the suite {name} would be written; write to another folder with --root"
                )
            values = {**vars(arguments), "suite": name, "source": suite, "several": len(suites) > 1}
            yield argparse.Namespace(**values)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw | SourceRemark]:
        """Yield the cases of one suite with their recordings, then what became of the other files."""
        suite: SourceSuite = arguments.source
        entries = list(_cases(suite.cases))
        found = _Results([entry for entry in entries if isinstance(entry, _Read)])
        others = list(found.assign(stored_results(_result_files(arguments))))
        for entry in entries:
            if isinstance(entry, _Read):
                yield CaseDraft(place=entry.place, case=entry.case, recording=found.recordings.get(entry.place))
            else:
                yield entry
        yield from others

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: those of the original, and whether results are replayed."""
        has_results = any(isinstance(result, StoredResult) for result in stored_results(_result_files(arguments)))
        return {"suite.yaml": _SUITE + (_WITH_RESULTS if has_results else _WITHOUT_RESULTS)}


class _Read(NamedTuple):
    """A case that could be mapped: its place, the case, and its input and id as they were read."""

    place: str
    case: dict[str, Any]
    case_input: object
    id: str


def source_suites(folder: Path) -> list[SourceSuite]:
    """Return the suites of a folder, sorted by name: those with a folder of cases, or the folder itself."""
    if (folder / CASES).is_dir():
        return [_suite(folder)]
    if folder.resolve().name == CASES:
        return [_suite(folder.resolve().parent)]
    for place in _PLACES:
        found = sorted((folder / place).glob(f"*/{CASES}"))
        if suites := [_suite(cases.parent) for cases in found if cases.is_dir()]:
            return suites
    return [SourceSuite(_name(folder), folder, folder)] if any(_data_files(folder)) else []


def _suite(folder: Path) -> SourceSuite:
    return SourceSuite(_name(folder), folder, folder / CASES)


def _name(folder: Path) -> str:
    return folder.resolve().name


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the data files below a folder, sorted; hidden ones and those in hidden folders are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(_DATA) and not name.startswith("."):
                yield Path(parent) / name


def _cases(folder: Path) -> Iterator[_Read | SourceFlaw]:
    for file in _data_files(folder):
        place = file.as_posix()
        if file.suffix.lower() != ".json":
            yield SourceFlaw(place=place, message="not a case of white-box; expected a .json file, or no data file")
            continue
        try:
            data = parse_json(read_regular(file, _IMPORT), _IMPORT)
            yield _Read(place, to_case(data), data["input"], data["id"])
        except OSError as error:
            yield SourceFlaw(place=place, message=why_unreadable(error))
        except (JsonError, MappingError) as error:
            yield SourceFlaw(place=place, message=str(error.problem))
        except RecursionError:
            yield SourceFlaw(place=place, message="nested too deeply; expected a JSON object of a few levels")


def _result_files(arguments: argparse.Namespace) -> Iterator[Path]:
    suite: SourceSuite = arguments.source
    if suite.folder != suite.cases:
        yield from (file for file in _data_files(suite.folder) if suite.cases not in file.parents and _is_json(file))
    for path in arguments.results:
        if path.is_file() and not arguments.several:
            yield path
        else:
            folder = path / _name(suite.folder) if arguments.several else path
            yield from filter(_is_json, _data_files(folder))


def _is_json(file: Path) -> bool:
    return file.suffix.lower() in {".json", LINES}


class _Results:
    """Which stored result is the recording of which case.

    Attributes:
        recordings: the recordings by the place of their case.
    """

    def __init__(self, cases: Iterable[_Read]) -> None:
        self._cases = list(cases)
        self._found: dict[str, list[StoredResult]] = {}
        self.recordings: dict[str, dict[str, Any]] = {}

    def assign(
        self, results: Iterable[StoredResult | SourceFlaw | SourceRemark]
    ) -> Iterator[SourceFlaw | SourceRemark]:
        """Give each case the result of its request, else of its id; yield what is no recording, and why."""
        for result in results:
            if not isinstance(result, StoredResult):
                yield result
                continue
            cases, reason = self._cases_of(result)
            if reason:
                yield SourceRemark(place=result.place, message=reason)
            for case in cases:
                self._found.setdefault(case.place, []).append(result)
        for case in self._cases:
            yield from self._decide(case, self._found.get(case.place, []))

    def _decide(self, case: _Read, found: list[StoredResult]) -> Iterator[SourceFlaw]:
        if not found:
            return
        first, *others = found
        different = next((other for other in others if other.payload != first.payload), None)
        if different is None:
            self.recordings[case.place] = first.recording
        else:
            # nothing says which of them is the right one
            message = f"another result of the case {case.id} than {first.place}, so none was imported; remove one"
            yield SourceFlaw(place=different.place, message=message)

    def _cases_of(self, result: StoredResult) -> tuple[list[_Read], str]:
        if result.request is None:
            cases = [case for case in self._cases if result.case_id in {case.id, case.case["id"]}]
            return cases, "" if cases else f'no case of the suite has the id "{result.case_id}"'
        keys = [differs(result.request, case.case_input) for case in self._cases]
        cases = [case for case, key in zip(self._cases, keys, strict=True) if not key]
        if cases:
            return cases, ""
        nearest = next((key for key in keys if key not in {"", "input"}), "input")
        return [], f"/request/{nearest}: no case of the suite has {_SAME[nearest]}"


LINES = ".jsonl"
_UNKNOWN = "unknown"
_SCRIPTED = frozenset({"fixture", "mock", "stub"})
_RESULT_KEYS = frozenset({"status", "iterations", "tariff_dossier", "proof"})
_WRAPPED = ("result", "payload")
_IDS = ("case_id", "case", "id", "test_id")
_SCRIPT = (
    "contains proposals and critiques of a model but no result, so it is no recording: only the pipeline that they "
    "belong to can make a result of them"
)


class StoredResult(NamedTuple):
    """A result with what its file says about it.

    Attributes:
        place: the file, with the line of a file of lines.
        payload: the result.
        case_id: the id of its case, from the file or its name; empty if the request is stated.
        request: the request that it answers; None if the file does not state it.
        recording: the cassette, without case, input and target.
    """

    place: str
    payload: dict[str, Any]
    case_id: str
    request: dict[str, Any] | None
    recording: dict[str, Any]


def stored_results(files: Iterable[Path]) -> Iterator[StoredResult | SourceFlaw | SourceRemark]:
    """Read the results of files: JSON with one result, a list or an object of several, or JSON Lines."""
    for file in files:
        place = file.as_posix()
        try:
            if file.suffix.lower() == LINES:
                for line in case_lines(file):
                    yield from _document(f"{place}:{line.number}", line.raw, stem="")
            else:
                yield from _document(place, read_regular(file, _IMPORT), stem=file.stem)
        except OSError as error:
            yield SourceFlaw(place=place, message=why_unreadable(error))


def _document(place: str, raw: bytes, *, stem: str) -> Iterator[StoredResult | SourceFlaw | SourceRemark]:
    try:
        data = parse_json(raw, _IMPORT)
    except JsonError as error:
        yield SourceFlaw(place=place, message=str(error))
        return
    if isinstance(data, list):
        for index, entry in enumerate(data):
            yield _one(f"{place}: /{index}", entry, name="")
    elif isinstance(data, dict) and data and all(_has_result(entry) for entry in data.values()):
        # results by the ids of their cases; a single result has a text or a list somewhere
        for name, entry in data.items():
            yield _one(f"{place}: {json_pointer([name])}", entry, name=name)
    else:
        yield _one(place, data, name=stem)


def _has_result(data: object) -> bool:
    if not isinstance(data, dict):
        return False
    return bool(_RESULT_KEYS & data.keys()) or any(isinstance(data.get(key), dict) for key in _WRAPPED)


def _one(place: str, data: object, *, name: str) -> StoredResult | SourceFlaw | SourceRemark:
    if not isinstance(data, dict) or not _has_result(data):
        is_script = isinstance(data, dict) and bool({"proposals", "critics"} & data.keys())
        known = ", ".join((*_WRAPPED, *sorted(_RESULT_KEYS)))
        return SourceRemark(place=place, message=_SCRIPT if is_script else f"no result: none of the keys {known}")
    wrapped = next((data[key] for key in _WRAPPED if isinstance(data.get(key), dict)), None)
    # a result that stands alone says nothing else
    payload, stated = (data, {}) if wrapped is None else (wrapped, data)
    if "proof" not in payload and isinstance(stated.get("proof"), dict):
        payload = {**payload, "proof": stated["proof"]}
    request = stated.get("request")
    is_stated = isinstance(request, dict) and request.get("input") is not None
    case_id = _case_id(data) or name
    if not is_stated and not case_id:
        return SourceFlaw(place=place, message="/case_id: the key is missing; expected the id of the case")
    metadata = stated.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    backend, model = _model(payload, metadata)
    return StoredResult(
        place=place,
        payload=payload,
        case_id="" if is_stated else case_id,
        request=request if is_stated else None,
        recording={
            "origin": "recorded",
            "llm_backend": backend,
            "llm_model": model,
            "recorded_at": _text(metadata.get("timestamp")) or None,
            "conditions": {
                "target": {"kind": "python", "address": RESULTS},
                # the version of the pack that scored it there is not one of ours
                "pack": {"name": "tariff"},
            },
            "exchanges": [{"role": "verify", "answer": document(payload)}],
        },
    )


def _case_id(data: Mapping[str, Any]) -> str:
    """Return the id of the case that a result names; empty if it names none."""
    case = data.get("case")
    if isinstance(case, dict):
        return _text(case.get("id"))
    # ids in records have the suite and the type in front
    names = (_text(data.get(key)).rpartition(":")[2] for key in _IDS)
    return next(filter(None, names), "")


def differs(request: Mapping[str, Any], case_input: object) -> str:
    """Return the key in which a recorded request differs from a case's as it was read; empty if it is the same."""
    own = case_input if isinstance(case_input, dict) else {"input": case_input}
    for key in ("input", "options", "evidence"):
        # null, an empty list and an absent key are the same request
        if (request.get(key) or None) != (own.get(key) or None):
            return key
    return ""


def _model(payload: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the backend and the model that a file states, `unknown` where it doesn't."""
    routing = payload.get("model_routing")
    routing = routing if isinstance(routing, dict) else {}
    proposer, critic = (
        part if isinstance(part, dict) else {} for part in (routing.get("proposer"), routing.get("critic"))
    )
    backend = _text(proposer.get("provider")) or _text(metadata.get("model_provider")) or _UNKNOWN
    model = _text(proposer.get("model")) or _text(metadata.get("model_id")) or _UNKNOWN
    judge = _text(critic.get("model"))
    if judge and judge != model:
        model = f"{model}, critic {judge}"
    # answers of a script are none of a model's
    return ("stub" if backend in _SCRIPTED else backend), model


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
