"""`packbench import white-box`: suites of the original harness, with their stored results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ValidationError

from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.files import LIMITS, read_regular, why_unreadable
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceFlaw, SourceRemark
from pytest_packbench.model.errors import first_problem
from pytest_packbench.packs.tariff.white_box.cases import PACK, to_case
from pytest_packbench.packs.tariff.white_box.original import document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RESULTS = "pytest_packbench.packs.tariff.white_box:results"
"""The target of imported suites with results."""
_CASES = "cases"
_FILES = "*.json"
_PLACES = (_CASES, f"storage/benchmarks/*/{_CASES}", f"*/{_CASES}")
"""Where folders of cases are: in a suite's folder, a repository, its folder of benchmarks."""
_IMPORT = LIMITS["import"]
_UNKNOWN = "unknown"
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
_NO_RESULT = (
    "no result: it has neither `result` nor `status`; answers of a model alone are none, only the pipeline that they "
    "belong to can make one of them"
)


class Document(NamedTuple):
    """A JSON document of a file: its place, the name of the file, and its content."""

    place: str
    name: str
    content: Any


class Metadata(BaseModel):
    """What gave a recorded result, and when."""

    model_provider: str = _UNKNOWN
    model_id: str = _UNKNOWN
    timestamp: str | None = None


class Recorded(BaseModel):
    """A result as `scripts/record_fixture.py` of the original writes it; one that stands alone answers no request."""

    result: dict[str, Any]
    request: dict[str, Any] | None = None
    metadata: Metadata = Metadata()


class StoredResult(NamedTuple):
    """A result, its file and the name of that."""

    place: str
    name: str
    recorded: Recorded

    def belongs_to(self, case: Any) -> bool:
        """Return whether it answers a case of the original: its request, else by the name of the file."""
        asked, known = self.recorded.request, case if isinstance(case, dict) else {}
        return self.name == known.get("id") if asked is None else _asked(asked) == _asked(known.get("input"))

    @property
    def recording(self) -> dict[str, Any]:
        """The cassette, without case and input."""
        metadata = self.recorded.metadata
        return {
            "origin": "recorded",
            "llm_backend": metadata.model_provider,
            "llm_model": metadata.model_id,
            "recorded_at": metadata.timestamp,
            # the version of the pack that scored it there is not one of ours
            "conditions": {"target": {"kind": "python", "address": RESULTS}, "pack": {"name": PACK}},
            "exchanges": [{"role": "verify", "answer": document(self.recorded.result)}],
        }


class WhiteBox(Importer):
    """Suites of the original harness: a repository, its folder of benchmarks, or a suite."""

    name = "white-box"
    help = "suites of the original tariff harness, white-box: their cases, and stored results as recordings"
    names_suites = True
    unique_inputs = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the folder, and where else results are."""
        about = "the repository, its folder storage/benchmarks, or a suite's folder"
        parser.add_argument("folder", type=Path, metavar="DIR", help=about)
        about = (
            "a file or folder of results, as record_fixture.py writes them or each named after its case; for several "
            "suites, a folder with a folder for each (repeat)"
        )
        parser.add_argument("--results", type=Path, action="append", default=[], metavar="PATH", help=about)

    def parts(self, arguments: argparse.Namespace, root: Path) -> Iterator[argparse.Namespace]:
        """Yield the arguments for each suite of the folder; its results may be in its own folder, too."""
        folder: Path = arguments.folder
        for results in arguments.results:
            if not results.exists():
                raise ValueError(f"--results: {results}: no such file or folder")
        suites = source_suites(folder)
        if not suites:
            raise ValueError(
                f"{folder}: no cases; expected a folder {_CASES} with JSON files, here or in a suite's folder"
            )
        if arguments.suite and len(suites) > 1:
            names = ", ".join(suite.name for suite in suites)
            raise ValueError(f"--suite: {folder} contains the suites {names}; pass the folder of one of them")
        for suite in suites:
            own = suite.resolve()
            name = arguments.suite or own.name
            if (root / name).resolve() == own:
                raise ValueError(
                    f"{suite} is where the suite {name} would be written; write to another folder with --root"
                )
            places = [place / own.name if len(suites) > 1 else place for place in arguments.results]
            yield argparse.Namespace(**{**vars(arguments), "suite": name, "folder": suite, "results": [*places, suite]})

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceRemark]:
        """Yield the cases of one suite with their recordings, then what became of the other files."""
        found = list(_results(arguments))
        results, used = [each for each in found if isinstance(each, StoredResult)], set()
        for case in _documents((arguments.folder / _CASES).rglob(_FILES)):
            if isinstance(case, SourceFlaw):
                yield case
                continue
            own = [result for result in results if result.belongs_to(case.content)]
            used |= {result.place for result in own}
            different = next((each for each in own if each.recorded.result != own[0].recorded.result), None)
            if different:
                # nothing says which of them is the right one
                message = f"another result of {case.place} than {own[0].place}, so none was imported; remove one"
                yield SourceFlaw(place=different.place, message=message)
            recording = own[0].recording if own and not different else None
            yield CaseDraft(place=case.place, case=to_case(case.content), recording=recording)
        for each in found:
            if isinstance(each, SourceRemark):
                yield each
            elif each.place not in used:
                yield SourceRemark(place=each.place, message="no case of the suite has its request, or its name as id")

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: those of the original, and whether results are replayed."""
        has_results = any(isinstance(result, StoredResult) for result in _results(arguments))
        return {"suite.yaml": _SUITE + (_WITH_RESULTS if has_results else _WITHOUT_RESULTS)}


def source_suites(folder: Path) -> list[Path]:
    """Return the folders of suites, sorted by name: the folder itself, those of a repository, or those in it."""
    for place in _PLACES:
        if suites := [cases.parent for cases in sorted(folder.glob(place)) if cases.is_dir()]:
            return suites
    return []


def _documents(files: Iterable[Path]) -> Iterator[Document | SourceFlaw]:
    """Yield the JSON documents of files, sorted by their place."""
    for file in sorted(files):
        place = file.as_posix()
        try:
            yield Document(place, file.stem, parse_json(read_regular(file, _IMPORT), _IMPORT))
        except OSError as error:
            yield SourceFlaw(place=place, message=why_unreadable(error))
        except JsonError as error:
            yield SourceFlaw(place=place, message=str(error))


def _results(arguments: argparse.Namespace) -> Iterator[StoredResult | SourceRemark]:
    """Yield the results of a suite: those in its folder, and those of `--results`."""
    files = {file for place in arguments.results for file in ([place] if place.is_file() else place.rglob(_FILES))}
    for each in _documents(file for file in files if arguments.folder / _CASES not in file.parents):
        yield each if isinstance(each, SourceFlaw) else _result(each)


def _result(found: Document) -> StoredResult | SourceRemark:
    content = found.content if isinstance(found.content, dict) else {}
    if not {"result", "status"} & content.keys():
        return SourceRemark(place=found.place, message=_NO_RESULT)
    try:
        recorded = Recorded.model_validate(content if "result" in content else {"result": content})
    except ValidationError as error:
        return SourceFlaw(place=found.place, message=str(first_problem(error, content)))
    return StoredResult(found.place, found.name, recorded)


def _asked(request: Any) -> Any:
    """Return what a request asks; null, an empty list and an absent key are the same."""
    asked = request if isinstance(request, dict) else {"input": request}
    return [asked.get(key) or None for key in ("input", "options", "evidence")]
