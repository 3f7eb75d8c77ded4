"""Lint every sentence that a user can read: messages, help, public docstrings, documentation, comments of suites.

`python -m tests.prose` checks them with proselint and with the words to avoid in `prose.yaml`, and exits with 1 if it finds anything.
`--list` prints the sentences instead, one per line.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml
from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]
CODE = ("pytest_packbench/**/*.py", "benchmarks/*.py", "docs/examples/**/*.py")
PAGES = ("*.md", "docs/*.md", "docs/examples/**/*.md", "pytest_packbench/packs/*/starter/**/*.md")
YAML = ("storage/benchmarks/*/suite.yaml", "pytest_packbench/packs/*/starter/**/*.yaml", "docs/examples/**/*.yaml")
PUBLIC_DOCSTRINGS = re.compile(r"pytest_packbench/(hookspecs|testing|__init__|model/\w+)\.py|docs/examples/.+")
"""Modules with docstrings that users read: hooks, public names, and models that become descriptions in JSON Schemas."""

RULES = yaml.safe_load((ROOT / "tests" / "prose.yaml").read_text("utf-8"))
OTHER_TEXTS: dict[str, str] = RULES["other_texts"]
OPENING = re.compile(r"^(Gives?|Says?|Takes?|Puts?|Holds?|Tells?|Makes?) ")
WORDS = re.compile(r"[A-Za-z]{2,}[^A-Za-z]{0,3} +[^A-Za-z]{0,3}[A-Za-z]{2,}")
END = re.compile(r"(?<=[.!?:])[\"')*_]*\s+(?=[A-Z`\"'(*<{-])")
SKIPPED_BLOCK = re.compile(
    r"^ *```.*?^ *```$|<!-- what .+? begin -->.*?<!-- what .+? end -->|<!--.*?-->", re.MULTILINE | re.DOTALL
)
CODE_SPAN = re.compile(r"`[^`\n]+`|\]\([^)\n]*\)|https?://\S+|\{[^{}\n]*\}|\b[A-Z]+_[A-Z_]+\b")
NOT_PROSE = re.compile(r"[\\^]|^\s*(\{\"|\[\w)")


class Sentence(NamedTuple):
    """One sentence on one line, where it begins, and the same with code spans and addresses replaced by dots."""

    file: str
    line: int
    text: str
    masked: str
    docstring: bool = False


def sentences(root: Path) -> Iterator[Sentence]:
    """Find every sentence that a user can read."""
    for path in _paths(root, PAGES):
        yield from of_page(path.read_text("utf-8"), path.relative_to(root).as_posix())
    for path in _paths(root, YAML):
        yield from of_yaml(path.read_text("utf-8"), path.relative_to(root).as_posix())
    for path in _paths(root, CODE):
        yield from of_module(path.read_text("utf-8"), path.relative_to(root).as_posix(), public_names(root))


def _paths(root: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in root.glob(pattern)})


@cache
def public_names(root: Path) -> frozenset[str]:
    """Return the names in `__all__` of the package, read without importing it."""
    path = root / "pytest_packbench" / "__init__.py"
    names = re.search(
        r"^__all__ = (\[.*?\])$", path.read_text("utf-8") if path.exists() else "", re.MULTILINE | re.DOTALL
    )
    return frozenset(ast.literal_eval(names[1])) if names else frozenset()


def of_page(text: str, file: str) -> Iterator[Sentence]:
    """Split a Markdown page into sentences, without its code blocks; every table cell is one."""
    prose = SKIPPED_BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*prose.splitlines(), ""], 1):
        new_block = not line.strip() or re.match(r"\s*([-*|#>]|\d+\.) ?", line)
        if new_block and block:
            yield from _split(block, file)
            block = []
        if line.lstrip().startswith("|"):
            for cell in line.split("|"):
                yield from _split([(number, cell.strip())], file)
        elif line.strip():
            block.append((number, re.sub(r"^\s*([-*>]|#+|\d+\.) +", "", line).strip()))


def of_yaml(text: str, file: str) -> Iterator[Sentence]:
    """Split the comments and the description of a `suite.yaml` into sentences."""
    for number, line in enumerate(text.splitlines(), 1):
        if prose := re.search(r"(?:^|\s)# *(.+)$|^description: *(.+)$", line):
            yield from _split([(number, prose[1] or prose[2])], file)


def of_module(source: str, file: str, public: frozenset[str] = frozenset()) -> Iterator[Sentence]:
    """Split the strings of a module into sentences: messages, and the docstrings of `public` names."""
    tree = ast.parse(source)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    readable = _public_docstrings(tree, public, every=bool(PUBLIC_DOCSTRINGS.fullmatch(file)))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    types = {id(part) for node in _annotations(tree) for part in ast.walk(node)}
    for node in ast.walk(tree):
        text = _text(node)
        if text is None or id(node) in parts | types:
            continue
        if id(node) in documented:
            if id(node) in readable:
                yield from _prose(text, node.lineno, file, docstring=True)  # type: ignore[attr-defined]  # a string has one
        elif file not in OTHER_TEXTS and not NOT_PROSE.search(text):
            yield from _prose(text, node.lineno, file)  # type: ignore[attr-defined]  # a string has one


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{re.sub('[{}]', '', _expression(part))}}}"
            for part in node.values
        )
    return None


def _expression(part: ast.expr) -> str:
    return ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""


def _annotations(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def _public_docstrings(tree: ast.Module, public: frozenset[str], *, every: bool) -> set[int]:
    roots = [tree] if every else [node for node in tree.body if getattr(node, "name", None) in public]
    return {id(node.value) for root in roots for node in ast.walk(root) if isinstance(node, ast.Expr)}


def _prose(text: str, line: int, file: str, *, docstring: bool = False) -> Iterator[Sentence]:
    block: list[tuple[int, str]] = []
    for number, part in enumerate([*text.split("\n"), ""], line):
        if (not part.strip() or re.match(r"\s+[\w*]+( \([^)]*\))?: ", part)) and block:
            yield from _split(block, file, docstring=docstring)
            block = []
        if part.strip():
            block.append((number, part.strip()))


def _split(block: list[tuple[int, str]], file: str, *, docstring: bool = False) -> Iterator[Sentence]:
    starts, text = [], ""
    for number, part in block:
        starts.append((len(text), number))
        text += part + " "
    masked = CODE_SPAN.sub(lambda found: "·" * len(found[0]), text)
    begin = 0
    for end in [*(found.end() for found in END.finditer(masked)), len(masked)]:
        line = max(number for start, number in starts if start <= begin)
        sentence = Sentence(file, line, text[begin:end].strip(), masked[begin:end].strip(), docstring)
        if WORDS.search(sentence.masked):
            yield sentence
        begin = end


def problems(found: Iterable[Sentence]) -> Iterator[str]:
    """Check sentences with our list and with proselint."""
    avoid = [
        (re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE), advice)
        for words, advice in RULES["avoid"].items()
    ]
    for sentence in found:
        hits = ((pattern.search(sentence.masked), advice) for pattern, advice in avoid)
        advices = [f'"{hit[0]}": write {advice}' for hit, advice in hits if hit]
        if sentence.docstring and (opening := OPENING.match(sentence.masked)):
            advices.append(f'"{opening[1]}" opens a docstring: write Return, Describe, Parse, Render')
        for advice in [*advices, *_linted(sentence.masked)]:
            yield f"{sentence.file}:{sentence.line}: {advice}: {sentence.text}"


def _linted(text: str) -> list[str]:
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many(__register__)
    # the first prefix that matches decides, so that what is off comes first
    off = dict.fromkeys(RULES["switched_off"], False)
    checks = off | {name: on for name, on in DEFAULT["checks"].items() if name not in off}
    results = LintFile("sentence", text).lint({"max_errors": 100, "checks": checks})
    return [f"{result.check_result.check_path}: {result.check_result.message}" for result in results]


def main(arguments: list[str] | None = None, *, root: Path = ROOT) -> int:
    """List or check the sentences of a repository; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description="Lint the sentences that users read.")
    parser.add_argument("--list", action="store_true", help="print the sentences, one per line, and check nothing")
    options = parser.parse_args(arguments)
    found = list(sentences(root))
    lines = [f"{one.file}:{one.line}: {one.text}" for one in found] if options.list else [*problems(found)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if not options.list:
        sys.stdout.write(f"{len(found)} sentences, {len(lines)} problems\n")
    return int(bool(lines) and not options.list)


if __name__ == "__main__":
    sys.exit(main())
