"""The cases of a page as compressed data: rows for the table, and chunks of details for the view of one case.

The script of the page unpacks the rows at its start, and a chunk of details when one of its cases is opened. Texts of
files and results are parsed when they are shown. A chunk is a JSON object, then these texts, each after `SEPARATOR`;
the details of a case name a text by its position. What several cases have in common is one text, which `{"$shared":
<position>}` stands for. Keys whose value is null, false or empty are omitted, and so are
a test id and a command that follow from suite, case type, file and id.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import zlib
from binascii import b2a_base64
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.comparison import change_of
from pytest_packbench.analysis.trials import MEAN, count_passed, fold_case, group_by_case
from pytest_packbench.model.errors import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.result import CaseResult


MAX_EXCHANGES = 8 * 1024 * 1024
"""The size of a page's details beyond which further cases are stored without their exchanges, bytes."""
MAX_PAYLOADS = 2 * MAX_EXCHANGES
"""The size beyond which further cases are stored without texts, bytes."""
_MAX_TEXT = 2 * 1024 * 1024
_CHUNK_CASES = 64
_CHUNK_CHARACTERS = 1024 * 1024
_LEVEL = 7
_GZIP = 31
SEPARATOR = "\x1e"
"""Separates the texts of a chunk; JSON contains it in escaped form only."""
_SHARED = "$shared"
# fewer objects in an array are not worth a look
_MIN_SHARED = 4
_MAX_DEPTH = 4
_PROSE = re.compile(r'"[^"]{40}')
_DIGESTS = re.compile(r'"(?:input|request)_sha256": ?"[0-9a-f]{64}", ?')
_ATTEMPT_FIELDS = (
    *("trial", "verdict", "kind", "message", "score", "threshold", "match_level", "match_depth", "answer"),
    *("decision", "refused", "utility", "valid", "judge", "stale", "remark", "llm_backend", "llm_model"),
    *("duration_ms", "cached"),
)


_ATTEMPT_VALUES = attrgetter(*_ATTEMPT_FIELDS)


class CaseSources(NamedTuple):
    """Where the texts of cases come from; each function gets a result of the case.

    Attributes:
        case_text: the text of the case file, or of its line; None where it is not at hand.
        exchanges_text: the text of its recording; None where there is none.
        remark: what to know about these texts, such as that the file has changed since the run; empty for nothing.
    """

    case_text: Callable[[CaseResult], str | None]
    exchanges_text: Callable[[CaseResult], str | None]
    remark: Callable[[CaseResult], str] = lambda _: ""


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
    results: Sequence[CaseResult],
    sources: CaseSources,
    *,
    baseline: Mapping[str, CaseResult] | None,
    history: Mapping[str, Sequence[str]],
    redact: Callable[[str], str],
    run: str = "",
    rule: Rule = MEAN,
    root_link: str | None = None,
    options: str = "",
) -> CaseBlocks:
    """Compress the cases of a run for its page.

    Args:
        results: all results, those of all trials; secrets in them are replaced already.
        sources: of the texts of cases and recordings.
        baseline: the results of the baseline by test id, one for each case; None without a baseline.
        history: the verdicts of earlier runs by test id, oldest first.
        redact: replaces secrets in the texts of the sources.
        run: the id of the run.
        rule: the trials rule of the run.
        root_link: the path from the folder of the page to the project's root (`root_link`); None if files can't be
            linked to.
        options: the options of the command that runs a case again, quoted for a shell.
    """
    rows: list[dict[str, Any]] = []
    packed = _Details(sources, redact)
    for trials in sorted(group_by_case(results), key=_failures_first):
        case = fold_case(trials, rule)
        before = None if baseline is None else baseline.get(case.test_id)
        row = _row(case, trials, before, run=run, root_link=root_link, options=options)
        if baseline is not None:
            row["change"] = "added" if before is None else change_of(before, case)
        row["details"], row["key"] = packed.add(case, trials, before, history.get(case.test_id, ()))
        rows.append(row)
    packed.flush()
    blocks = (Block("rows", _compressed(_json(rows))), *packed.blocks)
    return CaseBlocks(blocks, packed.notices())


def root_link(root: Path, folder: Path) -> str | None:
    """Return the path from a page's folder up to the project's root; None if the page lies elsewhere."""
    up = os.path.relpath(root, folder).replace(os.sep, "/")
    # a path that also goes down would show folders of this machine
    return up if set(up.split("/")) <= {"..", "."} else None


class _Details:
    """Collects the details of cases and compresses them in chunks."""

    def __init__(self, sources: CaseSources, redact: Callable[[str], str]) -> None:
        self.blocks: list[Block] = []
        self._sources = sources
        self._redact = redact
        self._chunk: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._shared: dict[str, int] = {}
        self._characters = self._size = self._references = 0
        self._without_exchanges = self._without_texts = self._cut = 0

    def add(
        self, case: CaseResult, trials: Sequence[CaseResult], before: CaseResult | None, earlier: Sequence[str]
    ) -> tuple[str, int]:
        """Add a case; return the name of its block and its position there."""
        if len(self._chunk) >= _CHUNK_CASES or self._characters >= _CHUNK_CHARACTERS:
            self.flush()
        keeps_texts = self._size < MAX_PAYLOADS
        details: dict[str, Any] = {
            "case": self._source(self._sources.case_text(case)) if keeps_texts else None,
            "recording": self._exchanges(case),
            "remark": self._sources.remark(case),
            "trials": [self._attempt(result, keeps_texts=keeps_texts) for result in trials],
            "baseline": None if before is None else self._attempt(before, keeps_texts=keeps_texts),
            "history": list(earlier),
        }
        self._without_texts += not keeps_texts
        self._chunk.append(details)
        return f"details-{len(self.blocks)}", len(self._chunk) - 1

    def flush(self) -> None:
        """Compress what was collected since the last chunk."""
        if self._chunk:
            # sorted, because similar texts are compressed best beside each other
            shared = sorted(self._shared)
            places = {self._shared[text]: place for place, text in enumerate(shared)}
            head = {"cases": self._chunk, "shared": [places[number] for number in range(len(places))]}
            texts = SEPARATOR.join([_json(head), *shared, *self._texts])
            block = Block(f"details-{len(self.blocks)}", _compressed(texts))
            self.blocks.append(block)
            self._size += len(block.text)
        self._chunk, self._texts, self._shared, self._characters = [], [], {}, 0

    def notices(self) -> tuple[str, ...]:
        """Return what was left out."""
        limits = (
            (self._without_exchanges, "the recorded exchanges of {} are left out", MAX_EXCHANGES),
            (self._without_texts, "the texts and results of {} are left out", MAX_PAYLOADS),
        )
        found = [
            f"{text.format(pluralize(count, 'case'))}, because the details of this page exceed {size >> 20} MB; "
            "the files of the run and of the suite contain them"
            for count, text, size in limits
            if count
        ]
        if self._cut:
            found.append(f"{pluralize(self._cut, 'text')} of more than {_MAX_TEXT >> 20} MB were cut")
        return tuple(text[0].upper() + text[1:] + "." for text in found)

    def _exchanges(self, case: CaseResult) -> int | None:
        text = self._sources.exchanges_text(case)
        if text is not None and self._size + self._characters // 4 >= MAX_EXCHANGES:
            self._without_exchanges += 1
            return None
        return self._source(text)

    def _attempt(self, result: CaseResult, *, keeps_texts: bool) -> dict[str, Any]:
        record = result.record or {}
        values = zip(_ATTEMPT_FIELDS, _ATTEMPT_VALUES(result), strict=True)
        return {
            **_stated(values),
            "terms": self._share(result.terms),
            "hooks": self._share(record.get("hook_decisions", ())),
            "tokens": [record.get("tokens_input"), record.get("tokens_output")],
            "payload": self._payload(result.payload) if keeps_texts else None,
        }

    def _payload(self, payload: Any) -> int | None:
        if payload is None:
            return None
        self._references = 0
        text = _json(self._with_shared(payload, _MAX_DEPTH))
        # a payload may have such a key of its own
        return self._add_text(text if text.count(_SHARED) == self._references else _json(payload))

    def _with_shared(self, value: Any, depth: int) -> Any:
        """Return a value without its arrays of objects: cases often have the same, such as the log of all checks."""
        if not depth or not isinstance(value, dict | list):
            return value
        if isinstance(value, dict):
            return {key: self._with_shared(item, depth - 1) for key, item in value.items()}
        if len(value) >= _MIN_SHARED and isinstance(value[0], dict):
            return value if _PROSE.search(text := _json(value)) else self._share_text(text)
        return [self._with_shared(item, depth - 1) for item in value] if value and isinstance(value[0], dict) else value

    def _share(self, value: Any) -> dict[str, int]:
        return self._share_text(_json(value))

    def _share_text(self, text: str) -> dict[str, int]:
        self._references += 1
        return {_SHARED: self._shared.setdefault(text, len(self._shared))}

    def _source(self, text: str | None) -> int | None:
        """Return the text of a file without secrets, indentation and digests, none of which is shown."""
        if text is None:
            return None
        if text.startswith("{"):
            # no string of a JSON text contains a line break
            text = "".join([line.strip(" \r\t") for line in text.split("\n")])
        return self._add_text(self._redact(_DIGESTS.sub("", text.replace(SEPARATOR, ""))))

    def _add_text(self, text: str) -> int:
        """Add a text to the chunk; return its position, from 1."""
        if len(text) > _MAX_TEXT:
            self._cut += 1
            text = text[:_MAX_TEXT]
        self._characters += len(text)
        self._texts.append(text)
        return len(self._texts)


def _row(
    case: CaseResult,
    trials: Sequence[CaseResult],
    before: CaseResult | None,
    *,
    run: str,
    root_link: str | None,
    options: str,
) -> dict[str, Any]:
    path = case.file.partition(".jsonl:")
    file = path[0] + (".jsonl" if path[1] else "")
    is_linked = root_link is not None and not file.startswith(("bundled:", "/")) and ".." not in file.split("/")
    command = f"pytest {shell_quoted(case.nodeid)}{' ' if options else ''}{options}"
    values = {
        "id": case.case_id,
        "test_id": case.test_id if case.test_id != f"{case.suite}:{case.case_type}:{case.case_id}" else None,
        "suite": case.suite,
        "run": run,
        "verdict": case.verdict,
        "quarantined": case.quarantined,
        "kind": case.kind,
        "message": case.message,
        "score": case.score,
        "threshold": case.threshold,
        "type": case.case_type,
        "difficulty": case.difficulty,
        "tags": case.tags,
        "facets": case.facets,
        "answer": case.answer,
        "refused": case.refused if case.answer is None else None,
        "stale": case.stale,
        "passed": count_passed(trials),
        "trials": len(trials),
        "duration_ms": sum(result.duration_ms for result in trials),
        "tokens": _tokens(trials),
        "change": None,
        "before": None if before is None else [before.verdict, before.score, before.answer],
        "terms": [str(term.get("name")) for term in case.terms],
        "lost": [str(term.get("name")) for term in case.terms if _costs(term)],
        "file": case.file,
        # the path up to the project's root, from which the file's name leads to it
        "root": root_link if is_linked else None,
        "command": command if command != f"pytest {case.file}::{case.case_id}" else None,
        "case_sha256": case.case_sha256,
    }
    return _stated(values.items())


def _stated(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return values by name, without those that the script takes for granted; 0 is stated."""
    return {name: value for name, value in values if value or (value == 0 and value is not False)}


def shell_quoted(text: str) -> str:
    """Quote an argument for a shell, in one line; line breaks and control characters in the form of Bash."""
    if not text.isprintable():
        return "$'" + text.encode("unicode_escape").decode().replace("'", r"\'") + "'"
    return shlex.quote(text)


def _failures_first(trials: Sequence[CaseResult]) -> bool:
    """Sort cases that passed behind others: what is left out of a large page is of those."""
    return all(result.verdict == "passed" for result in trials)


def _costs(term: Mapping[str, Any]) -> bool:
    """Whether a term lowers the score."""
    value = term.get("value")
    effect = term.get("effect")
    return effect == "zero" or (effect == "add" and isinstance(value, int | float) and value < 0)


def _tokens(trials: Iterable[CaseResult]) -> int | None:
    counts = [count for result in trials for count in _counts(result)]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _counts(result: CaseResult) -> Iterator[int | None]:
    record = result.record or {}
    yield record.get("tokens_input")
    yield record.get("tokens_output")


def _compressed(text: str) -> str:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, zlib.DEF_MEM_LEVEL + 1)
    # a surrogate can't be encoded otherwise
    raw = text.encode("utf-8", "backslashreplace")
    return b2a_base64(packer.compress(raw) + packer.flush(), newline=False).decode("ascii")


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
