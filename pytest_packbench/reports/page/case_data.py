"""The cases of a page as compressed data: rows for the table, and chunks of details for the view of one case.

The script of the page unpacks the rows at its start, and a chunk of details when one of its cases is opened. Texts of
files and results stay strings there, and are parsed when they are shown.
"""

from __future__ import annotations

import json
import os
import shlex
import zlib
from base64 import b64encode
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
# twice as fast as the default, for a tenth more bytes
_LEVEL = 3
_GZIP = 31
_ATTEMPT_FIELDS = (
    *("trial", "verdict", "kind", "message", "score", "threshold", "terms", "match_level", "match_depth", "answer"),
    *("decision", "refused", "utility", "valid", "judge", "stale", "remark", "llm_backend", "llm_model"),
    *("duration_ms", "cached", "timestamp"),
)


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
    blocks = (Block("rows", _compressed(rows)), *packed.blocks)
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
        self._characters = self._size = 0
        self._without_exchanges = self._without_texts = self._cut = 0

    def add(
        self, case: CaseResult, trials: Sequence[CaseResult], before: CaseResult | None, earlier: Sequence[str]
    ) -> tuple[str, int]:
        """Add a case; return the name of its block and its position there."""
        if len(self._chunk) >= _CHUNK_CASES or self._characters >= _CHUNK_CHARACTERS:
            self.flush()
        keeps_texts = self._size < MAX_PAYLOADS
        details: dict[str, Any] = {
            "case": self._text(self._sources.case_text(case), redact=True) if keeps_texts else None,
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
            block = Block(f"details-{len(self.blocks)}", _compressed(self._chunk))
            self.blocks.append(block)
            self._size += len(block.text)
        self._chunk, self._characters = [], 0

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

    def _exchanges(self, case: CaseResult) -> str | None:
        text = self._sources.exchanges_text(case)
        if text is not None and self._size + self._characters // 4 >= MAX_EXCHANGES:
            self._without_exchanges += 1
            return None
        return self._text(text, redact=True)

    def _attempt(self, result: CaseResult, *, keeps_texts: bool) -> dict[str, Any]:
        record = result.record or {}
        return {
            **{name: getattr(result, name) for name in _ATTEMPT_FIELDS},
            "hooks": record.get("hook_decisions", ()),
            "tokens": [record.get("tokens_input"), record.get("tokens_output")],
            "payload": None if result.payload is None or not keeps_texts else self._text(_json(result.payload)),
        }

    def _text(self, text: str | None, *, redact: bool = False) -> str | None:
        if text is None:
            return None
        if redact:
            text = self._redact(text)
        if len(text) > _MAX_TEXT:
            self._cut += 1
            text = text[:_MAX_TEXT]
        self._characters += len(text)
        return text


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
    return {
        "id": case.case_id,
        "test_id": case.test_id,
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
        "link": f"{root_link}/{file}" if is_linked else None,
        "nodeid": case.nodeid,
        "command": f"pytest {shell_quoted(case.nodeid)}{' ' if options else ''}{options}",
        "case_sha256": case.case_sha256,
    }


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
    return term.get("effect") == "zero" or (isinstance(value, int | float) and value < 0)


def _tokens(trials: Iterable[CaseResult]) -> int | None:
    counts = [count for result in trials for count in _counts(result)]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _counts(result: CaseResult) -> Iterator[int | None]:
    record = result.record or {}
    yield record.get("tokens_input")
    yield record.get("tokens_output")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _compressed(value: Any) -> str:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    # a surrogate can't be encoded otherwise
    raw = _json(value).encode("utf-8", "backslashreplace")
    return b64encode(packer.compress(raw) + packer.flush()).decode("ascii")
