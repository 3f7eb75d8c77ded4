"""Change what decides on a verdict in small ways, one at a time, and count the changes that no test notices.

    python -m benchmarks.mutants [--data FILE] [--of AREA] [--count N] [--seed TEXT] [--part I/N] [--list]

A run of all tests notes which test runs which line; `--data` is the file of an earlier one, by `python -m
benchmarks.own_tests --rounds 0 --data FILE`. Of the changes that are possible in the modules of `MODULES`, the seed
selects some: each has a hash of the seed, its function and its code, and those with the lowest hashes are tried. A
change therefore stays selected when other code moves, so that two versions of the tests can be compared on the same
changes.

A changed module is tried by the tests that run the changed lines until one fails: unit tests first, then those of
`tests/golden`, then all others; within each, the test that runs the fewest lines is the first. At the end, the tests
that failed have to pass without a change. Changes that nobody can notice are argued in `equivalent_mutants.yaml`; they
are not tried.

The tests and the package are imported once, and each change is made in the imported functions of a fork. What is only
run while modules are imported is tried in a process of its own; `--fresh` does that for all: for what is left at the
end.

The file is changed in place: run this in a clean clone with the package installed as editable; each `--part` needs its
own clone.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import yaml

from benchmarks.own_tests import covered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "pytest_packbench"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.yaml")
COUNT, SEED = 300, "1"
LIMIT_S = "PACKBENCH_LIMIT_S"
"""The variable with the limit of a test, for `benchmarks.limited`."""
ENOUGH, MOST_EQUIVALENT = 0.92, 0.08
"""The least share of the other changes that a test has to notice, and the largest share that may be equivalent."""
MODULES = {
    "scoring": (
        "api.py",
        "model/case.py",
        "model/checks.py",
        "model/recording.py",
        "model/result.py",
        "model/suite.py",
        "packs/agent_safety/harmbench/classifier.py",
        "packs/agent_safety/episode.py",
        "packs/agent_safety/judges.py",
        "packs/agent_safety/metrics.py",
        "packs/agent_safety/model.py",
        "packs/agent_safety/scoring.py",
        "packs/generic/pack.py",
        "packs/generic/rules.py",
        "packs/generic/suite.py",
        "packs/generic/values.py",
        "packs/tariff/answer.py",
        "packs/tariff/checks.py",
        "packs/tariff/citations.py",
        "packs/tariff/edition.py",
        "packs/tariff/judged.py",
        "packs/tariff/metrics.py",
        "packs/tariff/model.py",
        "packs/tariff/notation.py",
        "packs/tariff/order.py",
        "packs/tariff/savings.py",
        "packs/tariff/schedule.py",
        "packs/tariff/scoring.py",
    ),
    "gates": (
        "analysis/conclusion.py",
        "analysis/gates.py",
        "commands/judging.py",
        "model/suite.py",
        "model/suite.py",
        "model/report.py",
        "policy.py",
    ),
    "statistics": (
        "analysis/counting.py",
        "analysis/statistics.py",
        "analysis/counting.py",
        "analysis/records.py",
    ),
    "comparison": (
        "analysis/changes.py",
        "commands/report.py",
        "model/report.py",
    ),
    "records": (
        "model/record.py",
        "model/result.py",
        "model/run.py",
        "files.py",
        "runs/folder.py",
        "runs/journal.py",
        "runs/merging.py",
        "runs/reading.py",
        "runs/resuming.py",
        "runs/writing.py",
    ),
    "recordings": (
        "cases/finder.py",
        "cases/load.py",
        "engine/gateway/exchanges.py",
        "engine/gateway/stamps.py",
        "engine/recordings.py",
        "engine/trial_results.py",
        "model/recording.py",
        "model/request.py",
    ),
    "loading": (
        "cases/finder.py",
        "cases/load.py",
        "cases/texts.py",
        "files.py",
        "model/pack.py",
        "model/errors.py",
        "model/schema.py",
    ),
}
"""The modules that are changed, by area; patterns below the package."""
PACKAGE_AREA = "package"
"""All modules, also those that decide on no verdict; only if it is asked for."""
CORE = tuple(
    f"tests/{folder}/"
    for folder in ("analysis", "backends", "cases", "commands", "engine", "model", "packs", "reports", "runs", "unit")
)
STAGES = {"unit": CORE, "golden": ("tests/golden/",), "others": ("tests/",)}
"""The beginnings of the tests of each stage; a test belongs to the first that fits."""
_FIRST = (6, 40)
_FAILED = "failed: "
_LIMITS_S = {"unit": 30, "golden": 60, "others": 60}
_STAGE_S = 1800
"""How long one test may take, of processor time, and all of a stage: a change that makes a loop endless is noticed."""

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
        number: 1 for the first change of this text in the function, 2 for the second.
    """

    path: str
    lines: tuple[int, int]
    function: str
    before: str
    after: str
    span: tuple[int, int]
    number: int

    def __str__(self) -> str:
        """Describe the change in one line."""
        return f"{self.path}:{self.lines[0]} {self.change}"

    @property
    def change(self) -> str:
        """The function and what is changed in it, wherever it stands."""
        return f"{self.function}: {_one_line(self.before)} -> {_one_line(self.after)}"

    @property
    def key(self) -> str:
        """What names the change as long as its function and its code stay."""
        return self._sha256("")[:12]

    def applied(self, source: bytes) -> bytes:
        """Return the module with the change; the lines that follow keep their numbers."""
        begin, end = self.span
        lines = "\n" * (self.lines[1] - self.lines[0])
        after = f"{self.after[:-1]}{lines})" if self.after.endswith(")") else f"{self.after}{lines}"
        return source[:begin] + after.encode() + source[end:]

    def rank(self, seed: str) -> str:
        """Return by what changes are selected, the lowest first."""
        return self._sha256(f"{seed}\n")

    def _sha256(self, seed: str) -> str:
        name = f"{seed}{self.path}\n{self.function}\n{self.before}\n{self.after}\n{self.number}"
        return sha256(name.encode()).hexdigest()


def _one_line(text: str) -> str:
    return shorten(text, 80, placeholder="...")


def mutants(path: Path) -> Iterator[Mutant]:
    """Return the changes that are possible in a module, in the order of their place."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: dict[tuple[str, str, str], int] = {}

    def walk(node: ast.AST, function: str) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for replaced, replacement in _changes(node):
            last_line = replaced.end_lineno or replaced.lineno
            begin = starts[replaced.lineno - 1] + replaced.col_offset
            end = starts[last_line - 1] + (replaced.end_col_offset or 0)
            before = source[begin:end].decode()
            same = (function, before, replacement)
            seen[same] = seen.get(same, 0) + 1
            yield Mutant(
                path=path.relative_to(HOME).as_posix(),
                lines=(replaced.lineno, last_line),
                function=function,
                before=before,
                after=replacement,
                span=(begin, end),
                number=seen[same],
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


def modules(areas: Collection[str]) -> list[Path]:
    """Return the modules of areas; of all without any.

    Raises:
        SystemExit: a pattern fits no module.
    """
    patterns = [pattern for area, each in MODULES.items() if not areas or area in areas for pattern in each]
    patterns += ["**/*.py"] if PACKAGE_AREA in areas else []
    found = {pattern: list(PACKAGE.glob(pattern)) for pattern in patterns}
    if missing := [pattern for pattern, paths in found.items() if not paths]:
        raise SystemExit(f"benchmarks/mutants.py: MODULES: no module for {', '.join(missing)}; correct the patterns")
    return sorted({path for paths in found.values() for path in paths})


def selected(paths: Sequence[Path], seed: str, count: int) -> list[Mutant]:
    """Return the changes with the lowest hashes."""
    possible = [mutant for path in paths for mutant in mutants(path)]
    return sorted(possible, key=lambda mutant: mutant.rank(seed))[:count]


def equivalents() -> dict[str, str]:
    """Return the reasons of the changes that nobody can notice, by the key of the change.

    Raises:
        SystemExit: an entry is about none of the changes that are selected by default, or has no reason.
    """
    drawn = {mutant.key: mutant for mutant in selected(modules(()), SEED, COUNT)}
    reasons: dict[str, str] = {}
    for entry in yaml.safe_load(EQUIVALENT.read_text("utf-8")):
        mutant = drawn.get(entry["key"])
        if mutant is None or mutant.change != entry["change"] or not entry.get("reason"):
            raise SystemExit(
                f"{EQUIVALENT.name}: {entry['key']}: expected a selected change, its text and a reason; got "
                f"{entry['change']!r}; remove the entry, or argue it again for the code as it is"
            )
        reasons[mutant.key] = entry["reason"]
    return reasons


@cache
def lines_of_tests(data: Path) -> dict[str, int]:
    """Return how many steps from line to line of the package each test takes at least once."""
    query = "select context, count(*) from arc join context on context.id = context_id group by context_id"
    return dict(sqlite3.connect(data).execute(query).fetchall())


@cache
def tests_by_line(path: str, data: Path) -> Mapping[int, list[str]]:
    """Return the tests that run each line of a module, wherever its clone stood."""
    import coverage

    stored = coverage.CoverageData(str(data))
    stored.read()
    names = [name for name in stored.measured_files() if Path(name).as_posix().endswith(f"/{path}")]
    return stored.contexts_by_lineno(names[0]) if names else {}


def tests_of(mutant: Mutant, data: Path) -> dict[str, list[str]]:
    """Return the tests that run the changed lines by stage, in the order in which they are tried."""
    by_line = tests_by_line(mutant.path, data)
    first, last = mutant.lines
    tests = {test for line in range(first, last + 1) for test in by_line.get(line, ()) if test}
    # what is only run when the module is imported may be on record for the test that happened to import it
    if not mutant.function or not tests:
        tests = {test for names in by_line.values() for test in names if test}
    lines = lines_of_tests(data)
    stages: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for test in sorted(tests, key=lambda test: (lines.get(test, 0), test)):
        stages[next(stage for stage, begins in STAGES.items() if test.startswith(begins))].append(test)
    return stages


_OPTIONS = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
# compiled files are recognized by size and second, which a change may share
_ENVIRONMENT = {"HYPOTHESIS_PROFILE": "first_failure", "PYTHONDONTWRITEBYTECODE": "1"}


@cache
def imported_functions(tests: tuple[str, ...]) -> dict[str, list[FunctionType]]:
    """Import tests and with them the package; return its functions by file."""
    import pytest

    os.environ |= _ENVIRONMENT
    sys.dont_write_bytecode = True
    os.chdir(HOME)
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
        code = pytest.main([*_OPTIONS, "--collect-only", *tests])
    if code:
        raise SystemExit(f"{', '.join(tests)} can't be collected")
    functions: dict[str, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(PACKAGE)):
            functions.setdefault(each.__code__.co_filename, []).append(each)
    # pytest collects garbage at its end: without this, among all that is imported
    gc.collect()
    gc.freeze()
    return functions


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def patches(mutant: Mutant, source: bytes, tests: tuple[str, ...]) -> list[tuple[FunctionType, CodeType]]:
    """Return the imported functions that a change is in, with their new code; none if it is in no function."""
    path = HOME / mutant.path
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(source, path, "exec"))}
    found = [
        (function, new.get((function.__code__.co_qualname, function.__code__.co_firstlineno)))
        for function in imported_functions(tests).get(str(path), [])
    ]
    return [
        (function, code)
        for function, code in found
        if code is not None and code != function.__code__ and code.co_freevars == function.__code__.co_freevars
    ]


def _run_forked(
    changed: Sequence[tuple[FunctionType, CodeType]], arguments: Sequence[str], printed: Path, limit_s: str
) -> None:
    """Run tests in this process, a fork that ends with the exit code of pytest."""
    import pytest

    output = os.open(printed, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for function, code in changed:
        function.__code__ = code
    os.environ[LIMIT_S] = limit_s
    exit_code = pytest.main(list(arguments))
    sys.stdout.flush()
    os._exit(exit_code)


def run_tests(
    tests: Sequence[str], stage: str, changed: Sequence[tuple[FunctionType, CodeType]] | None = None
) -> str | None:
    """Run tests until one fails.

    Args:
        tests: their names.
        stage: the stage, for the limit of each test.
        changed: functions with their new code, for a fork of this process, which saves most of the time; None for a
            process that imports all.

    Returns:
        What failed; None if all tests pass.
    """
    limit_s = str(_LIMITS_S[stage])
    with TemporaryDirectory() as folder:
        listed, printed = Path(folder, "tests.txt"), Path(folder, "printed.txt")
        listed.write_text("\n".join(tests), "utf-8")
        printed.touch()
        arguments = ["-x", *_OPTIONS, "-p", "benchmarks.limited", f"@{listed}"]
        if changed is None:
            env = {**os.environ, **_ENVIRONMENT, LIMIT_S: limit_s}
            command = [sys.executable, "-m", "pytest", *arguments]
            try:
                with printed.open("w") as output:
                    code: int | None = subprocess.run(
                        command, cwd=HOME, env=env, stdout=output, stderr=output, timeout=_STAGE_S, check=False
                    ).returncode
            except subprocess.TimeoutExpired:
                code = None
        else:
            process = get_context("fork").Process(target=_run_forked, args=(changed, arguments, printed, limit_s))
            process.start()
            process.join(_STAGE_S)
            code = process.exitcode
            process.kill()
        if code is None or -code == signal.SIGPROF:
            return "no end"
        text = printed.read_text("utf-8", "replace")
    if not code:
        return None
    lines = [line.partition(" ")[2] for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    # a message follows the name, and both may have spaces; a test may be one of a file
    names = [test for test in tests if lines and f"{lines[0]} ".startswith((f"{test} ", f"{test}::"))]
    if names:
        name = max(names, key=len)
        return f"{_FAILED}{name if '::' in name else lines[0].partition(' - ')[0]}"
    # the data may be of another commit, parameters may change with the code, and some can't be named
    gone = {test for test in tests if f"not found: {HOME / test.partition('[')[0]}\n" in text}
    if gone:
        functions = {test.partition("[")[0] for test in gone if "[" in test}
        left = [*sorted(functions), *(test for test in tests if test not in gone)]
        return run_tests(left, stage, changed) if left else None
    return f"exit code {code}: {''.join(lines)[:200] or text[-200:]}"


def noticed(
    mutant: Mutant, stages: Mapping[str, Sequence[str]], distrusted: Collection[str], imported: tuple[str, ...]
) -> str | None:
    """Try a change; return what noticed it, or None."""
    path = HOME / mutant.path
    source, stat = path.read_bytes(), path.stat()
    changed = mutant.applied(source)
    functions = (patches(mutant, changed, imported) if imported else None) or None
    path.write_bytes(changed)
    try:
        for stage, tests in stages.items():
            left = [test for test in tests if test not in distrusted]
            # a few first: a run that names thousands of tests takes long to begin
            for size in (*_FIRST, len(left)):
                batch, left = left[:size], left[size:]
                if batch and (found := run_tests(batch, stage, functions)):
                    return found
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return None


def failed_test(found: str | None) -> str:
    """Return the test that noticed a change; empty if none failed by itself."""
    return found.removeprefix(_FAILED) if found and found.startswith(_FAILED) else ""


def without_cause(tests: Sequence[str], *, quick: bool) -> set[str]:
    """Return those of some tests that fail without a change, too."""
    failing: set[str] = set()
    while (left := [test for test in tests if test not in failing]) and (
        found := run_tests(left, "others", [] if quick else None)
    ):
        if not failed_test(found):
            raise SystemExit(f"the tests don't run without a change: {found}")
        failing.add(failed_test(found))
    return failing


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description="small changes that tests notice"
    )
    options.add_argument(
        "--data", type=Path, help="data of `python -m benchmarks.own_tests --data`, instead of a run of all tests"
    )
    options.add_argument(
        "--of", action="append", default=[], choices=(*MODULES, PACKAGE_AREA), help="an area (default: all but package)"
    )
    options.add_argument("--count", type=int, default=COUNT, help=f"number of changes (default {COUNT})")
    options.add_argument("--seed", default=SEED, help=f"selects the changes (default {SEED})")
    options.add_argument("--part", default="1/1", help="try the I-th of N parts only")
    options.add_argument("--stage", action="append", default=[], choices=STAGES, help="run these tests only")
    options.add_argument(
        "--few", type=int, metavar="N", help="only the first N tests of each stage; 0: only those of --tests"
    )
    options.add_argument("--fresh", action="store_true", help="import all again for each change")
    options.add_argument(
        "--tests", action="append", default=[], help="a file of unit tests that the data lacks, tried first"
    )
    options.add_argument("--only", action="append", default=[], help="the key of a change to try (default: all)")
    options.add_argument("--list", action="store_true", help="print the changes without trying them")
    options.add_argument("--json", type=Path, help="a file for what was found, which is also continued")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Try the selected changes and print each with the test that noticed it."""
    arguments = parser().parse_args(argv)
    part, parts = (int(number) for number in arguments.part.split("/"))
    chosen = selected(modules(arguments.of), arguments.seed, arguments.count)[part - 1 :: parts]
    chosen = [mutant for mutant in chosen if not arguments.only or mutant.key in arguments.only]
    if arguments.list:
        print("\n".join(f"{mutant.key} {mutant}" for mutant in chosen))
        return 0
    changed = subprocess.run(["git", "diff", "--quiet", "--", str(PACKAGE)], cwd=HOME, check=False)  # noqa: S607
    if changed.returncode:
        raise SystemExit("the package is not as it is committed: run `git checkout -- pytest_packbench` in a clone")
    with TemporaryDirectory() as folder:
        if not is_editable(folder):
            raise SystemExit("processes of the tests would import another package: run `pip install -e '.[dev]'` here")
        data = arguments.data or Path(folder, "coverage.db")
        if arguments.data is None:
            print(covered(data), flush=True)
        return tried(chosen, data, arguments)


def is_editable(folder: str) -> bool:
    """Whether processes in any `folder` import the package of this repository, and so what is changed in it."""
    code = "import pytest_packbench; print(pytest_packbench.__file__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    return Path(found.stdout.strip()) == PACKAGE / "__init__.py"


def tried(chosen: Sequence[Mutant], data: Path, arguments: argparse.Namespace) -> int:
    """Try the changes until each was noticed by a test that passes without it; return the exit code."""
    argued = equivalents()
    results: dict[str, str | None] = {}
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text("utf-8"))
    distrusted: set[str] = set()
    imported = () if arguments.fresh else tuple(arguments.tests) if arguments.few == 0 else CORE
    while True:
        for mutant in sorted(chosen, key=lambda mutant: mutant.key in results):
            if mutant.key in argued or results.get(mutant.key):
                continue
            begun = time.monotonic()
            stages = tests_of(mutant, data)
            wanted = {name: stages[name][: arguments.few] for name in arguments.stage or STAGES}
            wanted |= {"unit": [*arguments.tests, *wanted["unit"]]} if "unit" in wanted else {}
            results[mutant.key] = found = noticed(mutant, wanted, distrusted, imported)
            seconds = time.monotonic() - begun
            print(f"{seconds:4.0f} s  {mutant.key} {mutant}\n        {found or 'NOT NOTICED'}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
        failing = without_cause(
            sorted({failed_test(found) for found in results.values()} - {""}), quick=not arguments.fresh
        )
        if not failing:
            break
        distrusted |= failing
        results = {key: found for key, found in results.items() if failed_test(found) not in failing}
    equivalent = sum(mutant.key in argued for mutant in chosen)
    others = len(chosen) - equivalent
    dead = sum(results.get(mutant.key) is not None for mutant in chosen if mutant.key not in argued)
    print(
        f"{len(chosen)} changes (seed {arguments.seed}, part {arguments.part}): {equivalent} equivalent; of the other "
        f"{others}, tests notice {dead} ({dead / max(others, 1):.1%})"
    )
    return 0 if dead >= ENOUGH * others and equivalent <= MOST_EQUIVALENT * len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
