"""Change the package in small ways, one at a time, and count the changes that no test notices.

    python -m benchmarks.own_tests --data coverage.db
    python -m benchmarks.mutants --data coverage.db [--count N] [--seed TEXT] [--part I/N] [--list]

The first command notes which test runs which line. Of the changes that are possible, the seed selects some: each has a
hash of the seed, its function and its code, and those with the lowest hashes are tried. A change therefore stays
selected when other code moves, so that two versions of the tests can be compared on the same changes.

A changed module is tried by the tests that run the changed lines, unit tests first, until one fails. The file is
changed in place: run this in a clean clone with the package installed as editable; each `--part` needs its own clone.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "pytest_packbench"
COUNT, SEED = 100, "1"
TIMEOUT_S = 900
"""An attempt that takes longer has been stopped by an endless loop: noticed."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One small change of one module.

    Attributes:
        path: the module, relative to the repository.
        lines: the first and the last line of the changed expression.
        function: the qualified name of the function or class around it; empty for the module.
        before, after: the expression and what replaces it.
        span: begin and end of the expression, in bytes of the file.
    """

    path: str
    lines: tuple[int, int]
    function: str
    before: str
    after: str
    span: tuple[int, int]

    def __str__(self) -> str:
        """Describe the change in one line."""
        return f"{self.path}:{self.lines[0]} {self.function}: {_one_line(self.before)} -> {_one_line(self.after)}"


def _one_line(text: str) -> str:
    return shorten(text, 80, placeholder="...")


def mutants(path: Path) -> Iterator[Mutant]:
    """Return the changes that are possible in a module, in the order of their place."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, function: str) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for replaced, replacement in _changes(node):
            last_line = replaced.end_lineno or replaced.lineno
            begin = starts[replaced.lineno - 1] + replaced.col_offset
            end = starts[last_line - 1] + (replaced.end_col_offset or 0)
            yield Mutant(
                path=path.relative_to(HOME).as_posix(),
                lines=(replaced.lineno, last_line),
                function=function,
                before=source[begin:end].decode(),
                after=replacement,
                span=(begin, end),
            )
        for child in _executed(node):
            yield from walk(child, function)

    yield from walk(ast.parse(source), "")


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a node that are executed: no annotations, no code for type checkers."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_comment"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Return what may be changed of a node itself, and the code that replaces it."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.Continue():
            yield node, "break"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant) or value.value:
            yield node, "return None"
        case ast.If(test=test) | ast.IfExp(test=test) if ast.unparse(test) != "TYPE_CHECKING":
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.expr() if (changed := _changed(node)) is not None:
            yield node, f"({changed})"


def _changed(node: ast.expr) -> str | None:
    """Return the code that replaces an expression; None if it stays."""
    changed: ast.expr | None = None
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=right) if type(operator) in _COMPARISONS:
            changed = ast.Compare(left=left, ops=[_COMPARISONS[type(operator)]()], comparators=right)
        case ast.BoolOp(op=operator, values=values):
            changed = ast.BoolOp(op=ast.Or() if isinstance(operator, ast.And) else ast.And(), values=values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            changed = operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            if not _is_text(left) and not _is_text(right):
                changed = ast.BinOp(left=left, op=_ARITHMETIC[type(operator)](), right=right)
        case ast.Constant(value=bool(value)):
            changed = ast.Constant(not value)
        case ast.Constant(value=int(value)):
            changed = ast.Constant(value + 1)
    return None if changed is None else ast.unparse(changed)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def selected(seed: str, count: int) -> list[Mutant]:
    """Return the changes with the lowest hashes."""
    ranked: list[tuple[str, Mutant]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        seen: dict[str, int] = {}
        for mutant in mutants(path):
            name = f"{seed}\n{mutant.path}\n{mutant.function}\n{mutant.before}\n{mutant.after}"
            seen[name] = seen.get(name, 0) + 1
            ranked.append((sha256(f"{name}\n{seen[name]}".encode()).hexdigest(), mutant))
    ranked.sort(key=lambda pair: pair[0])
    return [mutant for _, mutant in ranked[:count]]


def tests_of(mutant: Mutant, data: Path) -> list[list[str]]:
    """Return the tests that run the changed lines, in the order in which they are tried."""
    import coverage

    stored = coverage.CoverageData(str(data))
    stored.read()
    by_line = stored.contexts_by_lineno(str(HOME / mutant.path))
    first, last = mutant.lines
    tests = {test for line in range(first, last + 1) for test in by_line.get(line, ()) if test}
    # lines that are only run when the module is imported are tried by all its tests
    tests = tests or {test for names in by_line.values() for test in names if test}
    unit = sorted(test for test in tests if test.startswith("tests/unit/"))
    rest = sorted(test for test in tests if not test.startswith("tests/unit/"))
    return [chosen for chosen in (unit, rest) if chosen]


def noticed(mutant: Mutant, data: Path) -> str | None:
    """Try a change; return what noticed it, or None."""
    path = HOME / mutant.path
    source = path.read_bytes()
    begin, end = mutant.span
    # compiled files are recognized by size and second, which a change may share
    env = {**os.environ, "HYPOTHESIS_PROFILE": "first_failure", "PYTHONDONTWRITEBYTECODE": "1"}
    path.write_bytes(source[:begin] + mutant.after.encode() + source[end:])
    try:
        for tests in tests_of(mutant, data):
            with NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listed:
                listed.write("\n".join(tests))
                listed.flush()
                command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"@{listed.name}"]
                try:
                    ran = subprocess.run(
                        command, cwd=HOME, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
                    )
                except subprocess.TimeoutExpired:
                    return "no end"
            if ran.returncode:
                lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return lines[0] if lines else f"exit code {ran.returncode}: {(ran.stderr or ran.stdout)[-200:]!r}"
    finally:
        path.write_bytes(source)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Try the selected changes and print each with the test that noticed it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="small changes that tests notice")
    parser.add_argument("--data", type=Path, required=True, help="the data of `python -m benchmarks.own_tests --data`")
    parser.add_argument("--count", type=int, default=COUNT, help=f"number of changes (default {COUNT})")
    parser.add_argument("--seed", default=SEED, help=f"selects the changes (default {SEED})")
    parser.add_argument("--part", default="1/1", help="try the I-th of N parts only")
    parser.add_argument("--list", action="store_true", help="print the changes without trying them")
    parser.add_argument("--json", type=Path, help="a file for what was found, which is also continued")
    arguments = parser.parse_args(argv)
    part, parts = (int(number) for number in arguments.part.split("/"))
    chosen = selected(arguments.seed, arguments.count)[part - 1 :: parts]
    if arguments.list:
        print("\n".join(str(mutant) for mutant in chosen))
        return 0
    results: dict[str, str | None] = {}
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text("utf-8"))
    for mutant in chosen:
        if str(mutant) in results:
            continue
        begun = time.monotonic()
        results[str(mutant)] = noticed(mutant, arguments.data)
        print(
            f"{time.monotonic() - begun:4.0f} s  {mutant}\n        {results[str(mutant)] or 'NOT NOTICED'}", flush=True
        )
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    dead = sum(results[str(mutant)] is not None for mutant in chosen)
    print(f"{dead} of {len(chosen)} changes are noticed by a test (seed {arguments.seed}, part {arguments.part})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
