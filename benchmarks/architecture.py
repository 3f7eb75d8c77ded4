"""Measure the layout of the package in this checkout: its size, its import cycles, the path of one case.

    python -m benchmarks.architecture [--no-way]
    python -m benchmarks.architecture --tokens [COMMIT [COMMIT]]

**Size**: lines and files of each folder, those of `packs/` by pack. A line is blank, code if it has tokens of the
program, or else docs: docstrings and comments. Private functions and methods have a name with one leading underscore;
`once` counts those that their module uses in one location apart from the definition.

**Cycles**: modules that import each other at run time, directly or indirectly, as `grimp` reads them: imports inside
functions count, imports for type checkers do not. Importing a module also imports its parent packages, which counts if
such a package imports something. Imports from `plugin.py` and from the package's `__init__` are left out: the entry
point imports inside its hooks, and the public names are resolved on first use. Imports by a name in a string are not
detected. The same is computed per folder, with all modules of a folder as one.

**The path of a case**: the third case of the tariff suite, replayed from its recording in a separate pytest session
(`walked.py`), from the start of its test protocol to the end. A call is a call of a Python function of the package. A
pack's folder is one location, and each module outside of it is another. A move is a call in another location than the
call before it, regardless of the caller; the first call is a move, too. Returns are not counted.

`--tokens` counts the code instead, or what has changed of it: see `benchmarks/weight.py`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grimp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HOME = Path(__file__).resolve().parent.parent
PACKAGE = "pytest_packbench"
SUITE = "tariff"
SHORT = 100
"""A file with fewer lines is short."""

PLAIN = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
"""Tokens that do not count as code."""


class Size(NamedTuple):
    """The size of a file or folder: numbers of files, of lines by kind, and of private functions."""

    files: int
    short: int
    code: int
    docs: int
    blank: int
    private: int
    once: int

    @property
    def lines(self) -> int:
        """All lines."""
        return self.code + self.docs + self.blank


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the layout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architecture", description="how the code is laid out")
    parser.add_argument("--no-way", action="store_true", help="leave out the path of a case, which runs pytest")
    parser.add_argument(
        "--tokens", nargs="*", metavar="COMMIT", help="only count tokens, or what has changed since a commit"
    )
    arguments = parser.parse_args(argv)
    # imported here, since a test runs this file alone
    from benchmarks.weight import weight_lines

    print("\n".join(weight_lines(HOME, PACKAGE, arguments.tokens or [])), end="\n\n")
    if arguments.tokens is not None:
        return 0
    print("\n".join(size_lines(sizes(HOME / PACKAGE))), end="\n\n")
    known = runtime_imports(PACKAGE)
    print(cycles_line("modules", cycles(known)))
    print(cycles_line("folders", cycles(by_folder(known))))
    if not arguments.no_way:
        print("", *way_lines(calls_of_a_case()), sep="\n")
    return 0


def sizes(package: Path) -> dict[str, Size]:
    """Measure each folder of a package by its relative path; `.` contains the files outside of folders."""
    found: dict[str, list[Size]] = {}
    for path in sorted(package.rglob("*.py")):
        found.setdefault(_folder(path.relative_to(package)), []).append(size(path.read_text("utf-8")))
    return {folder: total(files) for folder, files in sorted(found.items())}


def _folder(path: Path) -> str:
    parents = path.parts[:-1]
    return "/".join(parents[: 2 if parents[:1] == ("packs",) else 1]) or "."


def total(measured: Iterable[Size]) -> Size:
    """Add up two sizes."""
    return Size(*map(sum, zip(*measured, strict=True)))


def size(source: str) -> Size:
    """Measure the text of one file."""
    lines, code = source.splitlines(), code_lines(source)
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
    tree = ast.parse(source)
    private = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("_")
        and not node.name.startswith("__")
    ]
    named = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return Size(
        files=1,
        short=len(lines) < SHORT,
        code=len(code - blank),
        docs=len(lines) - len(code | blank),
        blank=len(blank),
        private=len(private),
        once=sum(named[name] == 1 for name in private),
    )


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines with code; a statement that is a single string does not count."""
    found: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in PLAIN:
            statement.append(token)
        elif token.type in {tokenize.NEWLINE, tokenize.ENDMARKER}:
            if any(part.type != tokenize.STRING for part in statement):
                found.update(line for part in statement for line in range(part.start[0], part.end[0] + 1))
            statement = []
    return found


def size_lines(measured: Mapping[str, Size]) -> list[str]:
    """Write the table of sizes."""
    heads = (f"of < {SHORT}", "code", "docs", "blank", "lines", "private", "once")
    lines = [f"{'folder':24}{'files':>9}" + "".join(f"{head:>9}" for head in heads)]
    for folder, one in {**measured, "total": total(measured.values())}.items():
        figures = (one.files, one.short, one.code, one.docs, one.blank, one.lines, one.private, one.once)
        lines.append(f"{folder:24}" + "".join(f"{figure:9,}" for figure in figures))
    return lines


def runtime_imports(package: str) -> dict[str, set[str]]:
    """Map each module of a package to the modules of the package that it imports at run time."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    left_out = {package, f"{package}.plugin"}
    known = {
        module: set() if module in left_out else graph.find_modules_directly_imported_by(module)
        for module in graph.modules
    }
    return {
        module: imported | {around for one in imported for around in _around(one) if known[around]} - own
        for module, imported in known.items()
        for own in [{module, *_around(module)}]
    }


def _around(module: str) -> list[str]:
    """Return the parent packages of a module."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def by_folder(known: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Group the modules by first-level folder."""
    found: dict[str, set[str]] = {}
    for module, imported in known.items():
        folder = _first_level(module)
        found.setdefault(folder, set()).update({_first_level(one) for one in imported} - {folder})
    return found


def _first_level(module: str) -> str:
    return ".".join(module.split(".")[:2])


def cycles(known: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, the largest first."""
    reached = {module: _reached(module, known) for module in known}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in known
        if module in reached[module]
    }
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group))]


def _reached(module: str, known: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(known[module])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(known[name])
    return found


def cycles_line(what: str, found: Sequence[Sequence[str]]) -> str:
    """Describe the cycles among the modules, or the folders."""
    members = [", ".join(name.partition(".")[2] or name for name in group) for group in found]
    details = "".join(f"\n  {len(group)}: {names}" for group, names in zip(found, members, strict=True))
    return f"cycles of {what} at run time: {len(found)}, with {sum(map(len, found))} {what}{details}"


def calls_of_a_case() -> list[str]:
    """Run the case; return the files of the called functions, relative to the package, in order."""
    # a separate module, because the benchmarks start pytest without other plugins
    from benchmarks.measure import REPORT, environment, pytest_words

    with tempfile.TemporaryDirectory() as folder:
        calls_path = Path(folder, "calls.json")
        plugins = pytest_words(sys.executable, "packbench", *REPORT, "benchmarks.walked")
        ran = subprocess.run(
            [
                *plugins,
                f"--walked-to={calls_path}",
                f"--packbench-suite={SUITE}",
                f"--packbench-output={folder}/reports",
            ],
            cwd=HOME,
            env=environment({}),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise SystemExit(f"{ran.stdout}\npytest ended with exit code {ran.returncode}")
        calls: list[str] = json.loads(calls_path.read_text("utf-8"))
        return calls


def place(file: str) -> str:
    """Return the location of a file of the package: its pack's folder, or the file itself."""
    first, *rest = file.split("/")
    return f"{first}/{rest[0]}/" if first == "packs" and len(rest) > 1 else file


def moves(calls: Sequence[str], to: Callable[[str], str] = place) -> int:
    """Count the calls in another location than the call before."""
    places = [to(file) for file in calls]
    return sum(before != after for before, after in zip(["", *places], places, strict=False))


def way_lines(calls: Sequence[str]) -> list[str]:
    """List the locations in the order of their first call, with the calls in each, and the totals."""
    counted = Counter(map(place, calls))
    outside = sum(not name.endswith("/") for name in counted)
    return [
        f"the path of the third case of {SUITE}, replayed",
        *(f"  {number:6,}  {name}" for name, number in counted.items()),
        f"{outside} modules outside its pack, {moves(calls)} moves, {len(calls):,} calls",
    ]


if __name__ == "__main__":
    sys.exit(main())
