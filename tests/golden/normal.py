"""Replaces what differs in each run, and lays out JSON so that a difference can be read.

Tokens of JSON stay as they were written: only the white space between them changes, and a first line names its kind.
"""

from __future__ import annotations

import html
import json
import re
from hashlib import sha256

Node = str | list["Node"] | dict[str, "Node"]
_WIDTH = 110
_STRING = r'"(?:[^"\\]|\\.)*"'
_SCALAR = re.compile(rf'{_STRING}|[^\s\[\]{{}},:"]+')
_SPACE = re.compile(rf"{_STRING}|(\s+)")
_ULID = re.compile(r"(?<![0-9A-Z])01[0-9A-HJKMNP-TV-Z]{24}(?![0-9A-Z])")
_CASSETTE = re.compile(r'("cassette_sha256":)"([0-9a-f]{64})"')
_CHOICES = re.compile(r"\(choose from [^)]*\)")
# numbers that time decides
_TIMED = "created|duration|duration_ms|wall_clock_ms|slowest_ms|seconds"
_VERSIONED = "pytest_packbench|python|pytest|pydantic|agentdojo|openai|anthropic|ollama|pluggy|httpx2?"
_RULES: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?", "<TIME>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC|Z)?", "<TIME>"),
    (r"benchmark_diff_\d{8}[T_-]?\d{6}Z?", "benchmark_diff_<TIME>"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<PORT>"),
    (r"\bat 0x[0-9a-f]+", "at <ADDRESS>"),
    (r"<PACKAGE>/[\w/]+\.py:\d+", "<PACKAGE>/<MODULE>:<LINE>"),
    (rf'"({_TIMED})": ?-?[\d.]+(?:e-?\d+)?', r'"\1":<TIMED>'),
    (rf'"({_VERSIONED})": ?"\d[^"]*"', r'"\1":"<VERSION>"'),
    (rf"\b({_VERSIONED}) \d+\.\d[\w.]*", r"\1 <VERSION>"),
    (r"Python \d+\.\d+\.\d+", "Python <VERSION>"),
    (r"(Wall clock:|slowest) [\d.]+ s\b", r"\1 <S>"),
    (r"\b(p50|p95) [\d.]+ (?:ms|s|min)\b", r"\1 <TIMED>"),
    (r"\b[\d.]+ (?:ms|s|min)95 % within [\d.]+ (?:ms|s|min)\b", "<TIMED>, 95 % within <TIMED>"),
    (r'time="\d+\.\d+"', 'time="<TIMED>"'),
    # that of a baseline.json, which holds the time
    (r'"baseline": ?"[0-9a-f]{64}"', '"baseline":"<SHA256>"'),
    (r'hostname="[^"]*"', 'hostname="<HOST>"'),
    (r"in \d+\.\d\ds(?: \(\d+:\d\d:\d\d\))?", "in <SECONDS>"),
)
# pytest's own lines about itself
_HEADER = re.compile(
    r"platform |cachedir: |rootdir: |configfile: |plugins: |metadata: |hypothesis profile |created: |"
    r"\d+ workers? \[|scheduling tests via|bringing up nodes|\[gw\d+\]|gw\d+ |collecting |initialized: |ready: "
)
_PROGRESS = re.compile(r"[.FEsxX]+(?: +\[ *\d+%\])?")
_RULED = re.compile(r"^([=_!-])\1{2,} (.*?) \1{2,}$|^([=_!-])\3{2,}$", re.MULTILINE)


class Normal:
    """One scenario's names for what differs: its runs, its recordings, and folders of the machine."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = sorted(folders.items(), key=lambda item: -len(item[0]))
        self._runs: dict[str, str] = {}
        self._cassettes: dict[str, str] | None = None

    def expect_cassettes(self) -> None:
        """Name the hashes of recordings too: those that are made in the scenario hold the time."""
        self._cassettes = {}

    def text(self, text: str) -> str:
        """Name everything that differs from run to run."""
        for folder, name in self._folders:
            text = text.replace(folder, name)
        text = _ULID.sub(self._run, text)
        # argparse quotes choices in some versions of Python only
        text = _CHOICES.sub(lambda found: found[0].replace("'", ""), text)
        text = text if self._cassettes is None else _CASSETTE.sub(self._cassette, text)
        for pattern, name in _RULES:
            text = re.sub(pattern, name, text)
        return text

    def _run(self, found: re.Match[str]) -> str:
        return self._runs.setdefault(found[0], f"RUN-{len(self._runs) + 1}")

    def _cassette(self, found: re.Match[str]) -> str:
        assert self._cassettes is not None
        name = self._cassettes.setdefault(found[2], f"CASSETTE-{len(self._cassettes) + 1}")
        return f'{found[1]}"{name}"'

    def terminal(self, text: str, *, workers: bool) -> str:
        """Normalise what was printed; with workers without what tells in which order they came."""
        text = _RULED.sub(lambda found: f"{found[1] * 3} {found[2]} {found[1] * 3}" if found[1] else found[3] * 3, text)
        lines = [line.rstrip() for line in self.text(text).splitlines()]
        lines = [line for line in lines if not _HEADER.match(line)]
        if workers:
            lines = [line for line in lines if not _PROGRESS.fullmatch(line)]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    def file(self, name: str, raw: bytes, *, hashing: bool = False, workers: bool = False) -> str:
        """Normalise a file's content by its name; `hashing` keeps of each line the case and a hash only."""
        text = raw.decode("utf-8")
        if name.endswith(".jsonl"):
            lines = text.split("\n")
            remark = f"({len(lines) - 1} lines, {_spaces(text)}, {'ended' if lines[-1] == '' else 'not ended'})"
            texts = [self.text(line) for line in lines if line]
            return "\n".join([remark, *(_hashed(line) if hashing else _shown(_read(line)) for line in texts)]) + "\n"
        if name.endswith(".json"):
            remark = f"({_spaces(text)}, {'ended' if text.endswith(chr(10)) else 'not ended'})"
            node = _read(self.text(text))
            if name == "report.json":
                node = _without_pytest(node, workers=workers)
            return f"{remark}\n{_shown(node)}\n"
        text = self.text(_words_of_page(text) if name.endswith(".html") else text)
        return text.replace("><", ">\n<") if name.endswith(".xml") else text


def _words_of_page(text: str) -> str:
    """Return the words of a page, a line for each block or cell; without style, script, plots and times."""
    text = re.sub(r"<(style|script|svg|nav)\b.*?</\1>|<section id=\"effort\".*?</section>", "", text, flags=re.DOTALL)
    text = re.sub(r"</?(a|b|strong|em|span|code|small|meta|link|br|input|hr|col)\b[^>]*>", "", text)
    lines = (" ".join(html.unescape(line).split()) for line in re.split(r"<[^>]*>", text))
    return "\n".join(line for line in lines if line) + "\n"


def _read(text: str) -> Node:
    """Return JSON as objects, lists and the tokens of all else, as they were written."""
    node: Node = json.loads(_SCALAR.sub(lambda token: json.dumps(token[0]), text), object_pairs_hook=_object)
    return node


def _object(pairs: list[tuple[str, Node]]) -> Node:
    members = dict(pairs)
    assert len(members) == len(pairs), f"repeated key: {pairs}"
    return members


def _hashed(line: str) -> str:
    case = re.search(r'"case_id":"([^"]*)"', line)
    return f"{sha256(line.encode()).hexdigest()[:16]} {case[1] if case else ''}".rstrip()


def _shown(node: Node, indent: str = "") -> str:
    if isinstance(node, str):
        return node
    inner = indent + " "
    if isinstance(node, dict):
        parts = [f"{key}: {_shown(value, inner)}" for key, value in node.items()]
    else:
        parts = [_shown(value, inner) for value in node]
    left, right = "{}" if isinstance(node, dict) else "[]"
    line = left + ", ".join(parts) + right
    if len(line) + len(indent) <= _WIDTH and "\n" not in line:
        return line
    return f"{left}\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}{right}"


def _spaces(text: str) -> str:
    between = set(_SPACE.findall(text)) - {"", "\n"}
    kind = "compact" if not between else "spaced" if between == {" "} else "indented"
    return kind if text.isascii() else f"{kind}, not only ASCII"


def _without_pytest(node: Node, *, workers: bool) -> Node:
    """Keep of pytest-json-report's part what is ours: ids, outcomes, properties."""
    phases = {'"setup"', '"call"', '"teardown"', '"keywords"'}
    assert isinstance(node, dict)
    shared = {key: value for key, value in node.items() if key not in {'"collectors"', '"warnings"'}}
    tests, summary = shared.get('"tests"'), shared.get('"summary"')
    if isinstance(tests, list):
        rows = [{key: test[key] for key in test if key not in phases} for test in tests if isinstance(test, dict)]
        shared['"tests"'] = list(sorted(rows, key=str) if workers else rows)
    if isinstance(summary, dict) and workers:
        shared['"summary"'] = dict(sorted(summary.items()))
    return shared
