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
from pytest_packbench.packs.tariff.white_box.cases import to_case, written_id
from pytest_packbench.packs.tariff.white_box.original import document as as_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RESULTS = "pytest_packbench.packs.tariff.white_box:results"
"""The target of imported suites with results."""
CASES = "cases"
_IMPORT = LIMITS["import"]
# a repository may have other folders of cases
_PLACES = ("storage/benchmarks", "benchmarks", "")
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


class SourceSuite(NamedTuple):
    """A suite of the source: its folder, and its folder of cases, which may be the same."""

    folder: Path
    cases: Path

    @property
    def name(self) -> str:
        """The name of the suite."""
        return self.folder.resolve().name


class Document(NamedTuple):
    """A JSON document of a file: its place, the name of its file, or none of a line, and its content."""

    place: str
    name: str
    content: Any


class StoredResult(NamedTuple):
    """A result with what its file says about it.

    Attributes:
        place: the file, with the line of a file of lines.
        payload: the result.
        case_id: the id of its case, from the file or its name.
        request: the request that it answers; empty if the file does not state it.
        recording: the cassette, without case, input and target.
    """

    place: str
    payload: dict[str, Any]
    case_id: str
    request: dict[str, Any]
    recording: dict[str, Any]

    def belongs_to(self, case: dict[str, Any]) -> bool:
        """Return whether it answers a case of the original: its request, else its id."""
        if self.request:
            return _asked(self.request) == _asked(case.get("input"))
        return self.case_id in (case.get("id"), written_id(case.get("id")))


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
            if (root / name).resolve() == suite.folder.resolve():
                raise ValueError(
                    f"{suite.folder} is where the suite {name} would be written; write to another folder with --root"
                )
            values = {**vars(arguments), "suite": name, "source": suite, "several": len(suites) > 1}
            yield argparse.Namespace(**values)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceRemark]:
        """Yield the cases of one suite with their recordings, then what became of the other files."""
        entries = list(_documents(_data_files(arguments.source.cases)))
        cases = [each for each in entries if isinstance(each, Document) and isinstance(each.content, dict)]
        recordings, others = _assigned(cases, _results(arguments))
        for entry in entries:
            if not isinstance(entry, Document):
                yield entry
            elif isinstance(entry.content, dict):
                yield CaseDraft(place=entry.place, case=to_case(entry.content), recording=recordings.get(entry.place))
            else:
                yield SourceFlaw(place=entry.place, message="not a case; expected a JSON object")
        yield from others

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: those of the original, and whether results are replayed."""
        has_results = any(isinstance(result, StoredResult) for result in _results(arguments))
        return {"suite.yaml": _SUITE + (_WITH_RESULTS if has_results else _WITHOUT_RESULTS)}


def source_suites(folder: Path) -> list[SourceSuite]:
    """Return the suites of a folder, sorted by name: those with a folder of cases, or the folder itself."""
    if folder.resolve().name == CASES:
        folder = folder.resolve().parent
    if (folder / CASES).is_dir():
        return [SourceSuite(folder, folder / CASES)]
    for place in _PLACES:
        found = sorted((folder / place).glob(f"*/{CASES}"))
        if suites := [SourceSuite(cases.parent, cases) for cases in found if cases.is_dir()]:
            return suites
    return [SourceSuite(folder, folder)] if any(_data_files(folder)) else []


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the data files below a folder, sorted; hidden ones and those in hidden folders are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(_DATA) and not name.startswith("."):
                yield Path(parent) / name


def _documents(files: Iterable[Path]) -> Iterator[Document | SourceFlaw]:
    """Yield the JSON documents of files: one each, or one a line of a file of lines."""
    for file in files:
        place = file.as_posix()
        try:
            is_lines = file.suffix.lower() == LINES
            raws = [(f"{place}:{line.number}", "", line.raw) for line in case_lines(file)] if is_lines else []
            raws = raws if is_lines else [(place, file.stem, read_regular(file, _IMPORT))]
        except OSError as error:
            yield SourceFlaw(place=place, message=why_unreadable(error))
            continue
        for where, name, raw in raws:
            try:
                yield Document(where, name, parse_json(raw, _IMPORT))
            except JsonError as error:
                yield SourceFlaw(place=where, message=str(error))


def _results(arguments: argparse.Namespace) -> Iterator[StoredResult | SourceRemark]:
    """Yield the results of a suite: those in its folder, and those of `--results`."""
    suite: SourceSuite = arguments.source
    places = [path / suite.name if arguments.several else path for path in arguments.results]
    places += [suite.folder] if suite.folder != suite.cases else []
    files = (file for path in places for file in ([path] if path.is_file() else _data_files(path)))
    wanted = (file for file in files if suite.cases not in file.parents and file.suffix.lower() in {".json", LINES})
    for each in _documents(wanted):
        if isinstance(each, SourceFlaw):
            yield each
        else:
            yield from map(_result, _entries(each))


def _entries(document: Document) -> Iterator[Document]:
    """Yield the members of a list, and of an object with a result for each id; else the document itself."""
    content = document.content
    if isinstance(content, list):
        for index, entry in enumerate(content):
            yield Document(f"{document.place}: /{index}", "", entry)
    # a single result has a text or a list somewhere
    elif isinstance(content, dict) and content and None not in map(_payload, content.values()):
        for name, entry in content.items():
            yield Document(f"{document.place}: {json_pointer([name])}", name, entry)
    else:
        yield document


def _payload(content: object) -> dict[str, Any] | None:
    """Return the result of an object: under a key, or the object itself; None if it has none."""
    whole = _object(content)
    wrapped = next((whole[key] for key in _WRAPPED if isinstance(whole.get(key), dict)), None)
    if wrapped is None:
        return whole if _RESULT_KEYS & whole.keys() else None
    proof = whole.get("proof")
    return {**wrapped, "proof": wrapped.get("proof", proof)} if isinstance(proof, dict) else wrapped


def _result(document: Document) -> StoredResult | SourceRemark:
    whole, payload = _object(document.content), _payload(document.content)
    if payload is None:
        known = ", ".join((*_WRAPPED, *sorted(_RESULT_KEYS)))
        reason = _SCRIPT if {"proposals", "critics"} & whole.keys() else f"no result: none of the keys {known}"
        return SourceRemark(place=document.place, message=reason)
    # a result that stands alone says nothing else
    stated = {} if payload is whole else whole
    request, case_id = _object(stated.get("request")), _case_id(whole) or document.name
    if request.get("input") is None:
        request = {}
    if not request and not case_id:
        return SourceFlaw(place=document.place, message="/case_id: the key is missing; expected the id of the case")
    metadata = _object(stated.get("metadata"))
    backend, model = _model(payload, metadata)
    recording = {
        "origin": "recorded",
        "llm_backend": backend,
        "llm_model": model,
        "recorded_at": _text(metadata.get("timestamp")) or None,
        "conditions": {
            "target": {"kind": "python", "address": RESULTS},
            # the version of the pack that scored it there is not one of ours
            "pack": {"name": "tariff"},
        },
        "exchanges": [{"role": "verify", "answer": as_document(payload)}],
    }
    return StoredResult(document.place, payload, case_id, request, recording)


def _assigned(
    cases: Iterable[Document], results: Iterable[StoredResult | SourceRemark]
) -> tuple[dict[str, dict[str, Any]], list[SourceRemark]]:
    """Return the recordings by the place of their case, and what is no recording, with the reason."""
    found: dict[str, list[StoredResult]] = {case.place: [] for case in cases}
    others = []
    for result in results:
        if not isinstance(result, StoredResult):
            others.append(result)
            continue
        belonging = [case.place for case in cases if result.belongs_to(case.content)]
        if not belonging:
            what = "this request" if result.request else f'the id "{result.case_id}"'
            others.append(SourceRemark(place=result.place, message=f"no case of the suite has {what}"))
        for place in belonging:
            found[place].append(result)
    for place, (first, *more) in ((place, each) for place, each in found.items() if each):
        different = next((other for other in more if other.payload != first.payload), None)
        if different is not None:
            # nothing says which of them is the right one
            message = f"another result of {place} than {first.place}, so none was imported; remove one"
            others.append(SourceFlaw(place=different.place, message=message))
            found[place] = []
    return {place: each[0].recording for place, each in found.items() if each}, others


def _asked(request: object) -> list[object]:
    """Return what a request asks; null, an empty list and an absent key are the same."""
    own = request if isinstance(request, dict) else {"input": request}
    return [own.get(key) or None for key in ("input", "options", "evidence")]


def _case_id(whole: Mapping[str, Any]) -> str:
    """Return the id of the case that a result names; empty if it names none."""
    # ids in records have the suite and the type in front
    names = (_text(whole.get(key)).rpartition(":")[2] for key in _IDS)
    return _text(_object(whole.get("case")).get("id")) or next(filter(None, names), "")


def _model(payload: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the backend and the model that a file states, `unknown` where it doesn't."""
    routing = _object(payload.get("model_routing"))
    proposer = _object(routing.get("proposer"))
    backend = _text(proposer.get("provider")) or _text(metadata.get("model_provider")) or _UNKNOWN
    model = _text(proposer.get("model")) or _text(metadata.get("model_id")) or _UNKNOWN
    judge = _text(_object(routing.get("critic")).get("model"))
    if judge not in {"", model}:
        model = f"{model}, critic {judge}"
    # answers of a script are none of a model's
    return ("stub" if backend in _SCRIPTED else backend), model


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
