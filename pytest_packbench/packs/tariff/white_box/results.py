"""Stored results of the original harness as recordings.

A file is a recording if it contains a whole result: what the pipeline returned for one request. Proposals and critiques
of a model without a result are none: only the pipeline that they belong to can make a result of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import case_lines
from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.model.authoring import SourceFlaw, SourceRemark
from pytest_packbench.model.errors import json_pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

RESULTS = "pytest_packbench.packs.tariff.imported:results"
"""The target of imported suites with results."""
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
                yield from _document(place, file.read_bytes(), stem=file.stem)
        except OSError as error:
            yield SourceFlaw(place=place, message=f"can't be read: {error.strerror}")


def _document(place: str, raw: bytes, *, stem: str) -> Iterator[StoredResult | SourceFlaw | SourceRemark]:
    try:
        data = parse_json(raw)
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
            "exchanges": [{"role": "verify", "answer": payload}],
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
