"""The cases of a page as compressed data: rows for the table, and chunks of details for the view of one case.

The script of the page unpacks the rows at its start, and a chunk of details when one of its cases is opened. Both are
tables: the names of their columns once, then values. Texts of files and results are parsed when they are shown: a chunk
is a JSON object, then these texts, each after `SEPARATOR`, which details name by position.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from binascii import b2a_base64
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from pytest_packbench.analysis.counting import by_case, fold_case, name_some, trials_rule_of
from pytest_packbench.files import NUMBERS
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import FURTHER_FIELDS, Result, values_of
from pytest_packbench.reports.blocks import SIGNS
from pytest_packbench.reports.story import NOWHERE, Place
from pytest_packbench.reports.terminal import lost_terms, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.run import Run


MAX_EXCHANGES = 8 * 1024 * 1024
"""The size of a page's details beyond which further cases are stored without their exchanges, bytes."""
MAX_PAYLOADS = 2 * MAX_EXCHANGES
"""The size beyond which further cases are stored without texts, bytes."""
_MAX_TEXT = 2 * 1024 * 1024
_CHUNK_CASES = 64
_CHUNK_CHARACTERS = 1024 * 1024
# a higher one takes longer, and makes a page less than 1 % smaller
_LEVEL = 6
_GZIP = 31
SEPARATOR = "\x1e"
"""Separates the texts of a chunk; JSON contains it in escaped form only."""
# the keys of a recording that the script shows
_SHOWN = ("exchanges", "gateway")
_DIGESTS = re.compile(r'"(?:input|request)_sha256": ?"[0-9a-f]{64}", ?')
_ROW_FIELDS = (
    *("test_id", "case_id", "suite", "verdict", "quarantined", "kind", "message", "score", "threshold", "case_type"),
    *("difficulty", "tags", "facets", "answer", "refused", "stale", "duration_ms", "cost_usd", "file"),
    *("case_sha256", "input_text", "expected_text", "actual_text"),
)
_MADE = (*("passed", "trials", "tokens", "change", "before", "terms", "command", "can_accept", "details", "key"),)
# the verdicts of an answer that was compared and is not accepted
_WRONG = ("failed", "known_hole")
_ATTEMPT_FIELDS = (
    *("trial", "verdict", "kind", "message", "score", "threshold", "match_level", "match_depth", "answer"),
    *("decision", "refused", "utility", "valid", "judge", "stale", "remark", "llm_backend", "llm_model"),
    *("duration_ms", "cached", *FURTHER_FIELDS),
)
# of these, what is shown under its name
_FACTS = ("judge", *FURTHER_FIELDS)
_ATTEMPT_MADE = ("terms", "hooks", "tokens_input", "tokens_output", "payload", "cut")
_DETAILS = ("case", "recording", "remark", "history", "trials", "baseline")
# much faster than looking up each name
_ROW_VALUES, _ATTEMPT_VALUES = values_of(*_ROW_FIELDS), values_of(*_ATTEMPT_FIELDS)


class CaseSources(NamedTuple):
    """What a project has of the cases of a run; the first three functions get a result of the case.

    Attributes:
        case_text: the text of the case file, or of its line; None where it is not at hand.
        exchanges_text: the text of its recording; None where there is none.
        remark: what to know about these texts, such as that the file has changed since the run; empty for nothing.
        redact: replaces secrets in these texts.
        place: where the page is read.
        can_accept: whether a further answer can be added to the accepted ones of a case (`Pack.can_accept`).
    """

    case_text: Callable[[Result], str | None]
    exchanges_text: Callable[[Result], str | None]
    remark: Callable[[Result], str] = lambda _: ""
    redact: Callable[[str], str] = str
    place: Place = NOWHERE
    can_accept: bool = True


NO_SOURCES = CaseSources(lambda _: None, lambda _: None)
"""The sources of a run whose suite is not at hand."""


class Block(NamedTuple):
    """Data in the page.

    Attributes:
        name: `rows`, or `details-0`, `details-1` and so on.
        text: JSON, compressed by gzip, in base64.
    """

    name: str
    text: str


class CaseBlocks(NamedTuple):
    """All data of the cases of a run.

    Attributes:
        blocks: the rows, then the details.
        notices: what is missing, one sentence each.
    """

    blocks: tuple[Block, ...]
    notices: tuple[str, ...] = ()


def case_blocks(
    results: Sequence[Result],
    sources: CaseSources,
    run: Run,
    *,
    baseline: Mapping[str, Result] | None = None,
    history: Mapping[str, Sequence[str]],
) -> CaseBlocks:
    """Compress the cases of a run for its page.

    Args:
        results: all results, those of all trials; secrets in them are replaced already.
        sources: what the project has of the cases.
        run: what is true of all results.
        baseline: the results of the baseline by test id, one for each case; None without a baseline.
        history: the verdicts of earlier runs by test id, oldest first.
    """
    rows: list[tuple[Any, ...]] = []
    packed, rule = _Details(sources), trials_rule_of(run)
    words: dict[str, str] = {}
    if baseline is not None:
        # runs without a baseline need no comparison
        from pytest_packbench.analysis.changes import SMALLER, Change
        from pytest_packbench.reports.diff import KINDS

        words = {kind: word.replace(" ", "_") or "same" for kind, (word, _) in KINDS.items()}
    # what is left out of a large page is of cases that passed
    for trials in sorted(by_case(results), key=lambda trials: all(result.score.passed for result in trials)):
        case = fold_case(trials, rule)
        before = None if baseline is None else baseline.get(case.case.test_id)
        kinds = ["added"] if before is None else [*Change(before, case).kinds, SMALLER]
        made = (
            # by verdicts: those of a quarantined case are shown, too
            sum(result.score.verdict == "passed" for result in trials),
            len(trials),
            _tokens(trials),
            words.get(kinds[0]),
            None if before is None else (before.score.verdict, before.score.score, before.score.answer),
            _effects_of(case),
            f"pytest {quoted(case.case.nodeid)} {sources.place.options}".rstrip(),
            sources.can_accept
            and case.score.verdict in _WRONG
            and not (case.score.refused or case.case.expects_refusal),
            *packed.add(case, trials, before, history.get(case.case.test_id, ())),
        )
        rows.append((*_ROW_VALUES(case), *made))
    packed.flush()
    told_apart = (run.mode, run.target, run.finished_at[:19].replace("T", " "))
    table = {
        "run": run.run_id,
        "pack": run.pack,
        "label": " ".join(filter(None, told_apart)),
        "root": sources.place.root,
        "signs": SIGNS,
        "changes": list(words.values()),
        # equal values beside each other are compressed best
        "columns": dict(zip((*_ROW_FIELDS, *_MADE), zip(*rows, strict=True), strict=False)),
    }
    return CaseBlocks((Block("rows", _compressed(_json(table))), *packed.blocks), packed.notices())


def root_link(root: Path, folder: Path) -> str | None:
    """Return the path from a page's folder up to the project's root; None if the page lies elsewhere."""
    up = os.path.relpath(root, folder).replace(os.sep, "/")
    # a path that also goes down would show folders of this machine
    return up if set(up.split("/")) <= {"..", "."} else None


class _Details:
    """Collects the details of cases and compresses them in chunks."""

    def __init__(self, sources: CaseSources) -> None:
        self.blocks: list[Block] = []
        self._sources = sources
        self._chunk: list[tuple[Any, ...]] = []
        self._texts: list[str] = []
        self._characters = self._size = 0
        self._case_id = ""
        # case ids, in order, by what is left out of them
        self._left_out: dict[str, dict[str, None]] = {}

    def add(
        self, case: Result, trials: Sequence[Result], before: Result | None, earlier: Sequence[str]
    ) -> tuple[int, int]:
        """Add a case; return the number of its chunk and its position there."""
        if len(self._chunk) >= _CHUNK_CASES or self._characters >= _CHUNK_CHARACTERS:
            self.flush()
        keeps_texts = self._size < MAX_PAYLOADS
        self._case_id = case.case.case_id
        details = (
            self._source(self._sources.case_text(case)) if keeps_texts else None,
            self._exchanges(case),
            self._sources.remark(case),
            earlier,
            [self._attempt(result, keeps_texts=keeps_texts) for result in trials],
            None if before is None else self._attempt(before, keeps_texts=keeps_texts),
        )
        if not keeps_texts:
            self._leave_out("The texts and results")
        self._chunk.append(details)
        return len(self.blocks), len(self._chunk) - 1

    def flush(self) -> None:
        """Compress what was collected since the last chunk."""
        if self._chunk:
            names = {"details": _DETAILS, "attempts": (*_ATTEMPT_FIELDS, *_ATTEMPT_MADE), "facts": _FACTS}
            head = {**names, "cases": self._chunk}
            texts = SEPARATOR.join([_json(head), *self._texts])
            block = Block(f"details-{len(self.blocks)}", _compressed(texts))
            self.blocks.append(block)
            self._size += len(block.text)
        self._chunk, self._texts, self._characters = [], [], 0

    def notices(self) -> tuple[str, ...]:
        """Return what was left out."""
        return tuple(
            f"{what} of {pluralize(len(cases), 'case')} ({name_some([*cases])}) are left "
            "out, because this page would be too large; the files of the run and of the suite contain them."
            for what, cases in self._left_out.items()
        )

    def _leave_out(self, what: str) -> None:
        self._left_out.setdefault(what, {})[self._case_id] = None

    def _exchanges(self, case: Result) -> int | None:
        text = self._sources.exchanges_text(case)
        if text is None or (len(text) <= _MAX_TEXT and self._size + self._characters // 4 < MAX_EXCHANGES):
            return self._source(text, _SHOWN)
        self._leave_out("The recorded exchanges")
        return None

    def _attempt(self, result: Result, *, keeps_texts: bool) -> tuple[Any, ...]:
        record, payload = result.record or {}, result.attempt.payload
        text = _json(payload) if keeps_texts and payload is not None else ""
        return (
            *_ATTEMPT_VALUES(result),
            result.score.terms or None,
            record.get("hook_decisions") or None,
            record.get("tokens_input"),
            record.get("tokens_output"),
            self._add_text(text) if text else None,
            len(text) > _MAX_TEXT or None,
        )

    def _source(self, text: str | None, keys: Sequence[str] = ()) -> int | None:
        """Add the text of a file without secrets, spaces and a recording's digests; return its position.

        Of an object only `keys` are added, all if there are none.
        """
        if text is None:
            return None
        # written as results are: a secret has no other spelling there; what is no object stays as it is
        with suppress(ValueError, AttributeError, RecursionError):
            value = json.loads(text, **NUMBERS)
            text = _json({key: item for key, item in value.items() if not keys or key in keys})
        if keys:
            text = _DIGESTS.sub("", text)
        return self._add_text(self._sources.redact(text.replace(SEPARATOR, "")))

    def _add_text(self, text: str) -> int:
        """Add a text to the chunk; return its position, from 1."""
        if len(text) > _MAX_TEXT:
            self._leave_out("The ends of long texts")
            text = text[:_MAX_TEXT]
        self._characters += len(text)
        self._texts.append(text)
        return len(self._texts)


def _effects_of(case: Result) -> tuple[tuple[str, bool], ...]:
    """Return the terms of a case by name, and whether each cost points, or is why a failed case has none."""
    lost = lost_terms(case.score.terms, or_without=case.score.verdict == "failed")
    return tuple([(term.name, term in lost) for term in case.score.terms])


def _tokens(trials: Iterable[Result]) -> int | None:
    counts: list[Any] = [
        (result.record or {}).get(name) for result in trials for name in ("tokens_input", "tokens_output")
    ]
    return None if None in counts else sum(counts)


def _compressed(text: str) -> str:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, zlib.DEF_MEM_LEVEL + 1)
    # a surrogate can't be encoded otherwise
    raw = text.encode("utf-8", "backslashreplace")
    return b2a_base64(packer.compress(raw) + packer.flush(), newline=False).decode("ascii")


def _json(value: Any) -> str:
    try:
        # several times as fast as the standard library
        return to_json(value).decode()
    except (ValueError, TypeError):
        # an unpaired surrogate
        return _encode(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=asdict).encode
