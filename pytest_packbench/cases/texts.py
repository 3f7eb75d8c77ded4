"""The texts of cases and recordings as they are in the files of a suite now, for reports that may show them.

Nothing is validated. Inputs and prompts that a run or a pack keeps out of files are left out.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.finder import LINES_SUFFIX, CaseLocation, find_case, find_recording, split_location
from pytest_packbench.cases.load import case_sha256, parse_json, read_located
from pytest_packbench.files import RECORDING, canonical_sha256
from pytest_packbench.model.case import CASE_ID, Case
from pytest_packbench.model.run import RECORD_PROMPTS, Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import Suite


_HIDDEN = "not shown: prompts are not kept (packbench_record_prompts, or the pack)"


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
        if digest is None or re.fullmatch(CASE_ID, case_id) is None:
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
        pack: its pack, whose case model can exclude cases (`keeps_prompts`).
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
        pack: the pack of the suite, whose case model can exclude cases (`keeps_prompts`).
        are_kept: whether the run keeps prompts at all (`packbench_record_prompts`).
    """
    if are_kept and pack.case_model.keeps_prompts is Case.keeps_prompts:
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
        return text is not None and bool(pack.case_model.model_validate(parse_json(text.encode())).keeps_prompts)
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
        return read_located(location).decode("utf-8", "replace").removeprefix("\ufeff")
    except (OSError, ValueError):
        return None


def _hash(text: str, hashed: Callable[[Any], str]) -> str:
    try:
        return hashed(parse_json(text.encode()))
    except ValueError:
        return ""
