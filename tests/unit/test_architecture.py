"""How the package is laid out: who imports whom, who touches the outside, and what an unrelated run may import.

Each test collects all that breaks its rule, a line each. The last one breaks every rule and looks whether that is seen.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import pytest_packbench
from tests.doc_blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "pytest_packbench"
PACKAGE = Path(pytest_packbench.__file__).parent
MAY_IMPORT = {
    "model": set[str](),
    "cases": {"model"},
    "backends": {"model"},
    "runs": {"model"},
    "analysis": {"model", "runs"},
    "engine": {"model", "cases", "backends"},
    "packs": {"model", "cases", "backends", "engine", *pytest_packbench.__all__},
    "reports": {"model", "analysis", "runs"},
    "atomic": set[str](),
}
"""The folders that a folder may import, beside itself; packs may also take the package's public names."""

MAY_NOT_IMPORT = {
    "pytest_plugin": {"commands", "cli", "__main__"},
    "commands": {"pytest_plugin", "plugin", "hookspecs", "testing"},
    "plugin": {"commands", "cli", "__main__"},
    "hookspecs": {"commands", "cli", "__main__"},
    "testing": set[str](),
    "cli": {"pytest_plugin", "plugin", "hookspecs", "testing"},
    "__main__": {"pytest_plugin", "plugin", "hookspecs", "testing"},
    "api": {"pytest_plugin", "plugin", "hookspecs", "testing", "commands", "cli"},
    "": set[str](),
}
"""For those who may import all but a few; the last is the package's own `__init__`."""

MAY_ALSO_IMPORT = {"commands": {"pytest_plugin.project"}}
"""Modules that a folder may import although it may not import their folder: pytest reads the project's configuration."""

FREE = {"__version__", "atomic"}
"""What everyone may import; `atomic` replaces files and knows nothing of ours."""

REGISTRY = "packs.registry"
PYTEST_SIDE = {"plugin", "hookspecs", "testing", "pytest_plugin"}
OUTSIDE = {
    *("socket", "socketserver", "ssl", "http.client", "http.server", "urllib.request", "ftplib", "smtplib", "xmlrpc"),
    *(
        "subprocess",
        "multiprocessing",
        "pty",
        "anthropic",
        "openai",
        "ollama",
        "httpx",
        "httpx2",
        "requests",
        "aiohttp",
    ),
}
"""Modules by which one talks to others, or starts them."""

OUTSIDE_CALLS = {
    *("open_connection", "start_server", "create_connection", "create_server", "subprocess_exec", "subprocess_shell"),
    *("create_subprocess_exec", "create_subprocess_shell", "popen", "fork", "posix_spawn", "execv", "execve"),
}
"""Functions of `asyncio` and `os` that do the same."""

TOUCHES_THE_OUTSIDE = re.compile(r"backends(\..+)?|engine\.(http_target|command_target|offline)")
"""Modules that may use those; `offline` is there to forbid them."""

NO_SCORERS = {"time", "datetime", "random", "secrets", "uuid", "os", "pathlib", "io", "tempfile", "shutil"}
WORDS = {"tariff": ("hts", "tariff", "gri_"), "agent_safety": ("injection", "agentdojo", "harmbench", "injecagent")}
"""A domain's words, by the pack in which they stay."""

NAMES_PACKS = {"packs", REGISTRY}
NAMES_BENCHMARKS = "model.record"
"""Modules that may use all of them: those that name the packs; and the wire record, whose values come from elsewhere."""


class Module(NamedTuple):
    """A module: its name within the package, its code, and what it imports, wherever that stands in it.

    Attributes:
        name: dotted, without the package's own; empty for the package itself.
        imported: line and dotted name of each import; what is ours begins with a dot, and the package itself is one.
    """

    name: str
    source: str
    tree: ast.Module
    imported: list[tuple[int, str]]

    @property
    def folder(self) -> str:
        """The first-level folder, or the module itself where it stands beside the folders."""
        return self.name.partition(".")[0]

    @property
    def ours(self) -> list[tuple[int, str]]:
        """What it imports of the package, without the leading dot."""
        return [(line, name[1:]) for line, name in self.imported if name.startswith(".")]

    @property
    def others(self) -> list[tuple[int, str]]:
        """What it imports from elsewhere."""
        return [(line, name) for line, name in self.imported if not name.startswith(".")]


def modules_of(package: Path) -> list[Module]:
    """Read a package."""
    return [read(package, path) for path in sorted(package.rglob("*.py"))]


def read(package: Path, path: Path) -> Module:
    parts = path.relative_to(package).with_suffix("").parts
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, source, tree, list(imports(tree, package.name)))


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            ours = name == package or name.startswith(f"{package}.")
            yield node.lineno, f".{name.removeprefix(package).removeprefix('.')}" if ours else name


def is_within(name: str, parents: set[str]) -> bool:
    """Whether a dotted name is one of these, or in one of them."""
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def forbidden_imports(modules: list[Module]) -> list[str]:
    """Who imports whom it may not; folders that the tables don't have."""
    known = {*MAY_IMPORT, *MAY_NOT_IMPORT}
    found = [f"{module.name}: {module.folder} is in no table" for module in modules if module.folder not in known]
    for module in modules:
        may, may_not = MAY_IMPORT.get(module.folder), MAY_NOT_IMPORT.get(module.folder, set())
        for line, name in module.ours:
            target = name.partition(".")[0]
            free = target in {module.folder, *FREE}
            free = free or is_within(name, MAY_ALSO_IMPORT.get(module.folder, set()))
            if not free and (target in may_not if may is None else target not in may):
                found.append(f"{module.name}:{line}: imports {name or 'the package'}")
    return found


def packs_in(modules: list[Module]) -> set[str]:
    """The folders of the packs."""
    return {module.name.split(".")[1] for module in modules if re.fullmatch(r"packs\.\w+\..+", module.name)}


def pack_imports(modules: list[Module]) -> list[str]:
    """Who imports a pack without being in it."""
    return [
        f"{module.name}:{line}: imports {name}"
        for module in modules
        for line, name in module.ours
        for pack in packs_in(modules)
        if is_within(name, {f"packs.{pack}"})
        and not (module.name in {"", *NAMES_PACKS} or is_within(module.name, {f"packs.{pack}"}))
    ]


def pytest_imports(modules: list[Module]) -> list[str]:
    """Who imports pytest from elsewhere than its side; who imports what is private to it."""
    return [
        f"{module.name}:{line}: imports {name}"
        for module in modules
        for line, name in module.others
        if is_within(name, {"_pytest"}) or (is_within(name, {"pytest", "pluggy"}) and module.folder not in PYTEST_SIDE)
    ]


def heavy_imports(modules: list[Module]) -> list[str]:
    """What the entry point imports at its top beside the standard library and pytest."""
    (entry,) = [module for module in modules if module.name == "plugin"]
    light = {"pytest", *sys.stdlib_module_names}
    lines = [node.lineno for node in entry.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [
        f"plugin:{line}: imports {name}"
        for line, name in entry.imported
        if line in lines and name.partition(".")[0] not in light
    ]


def outside_uses(modules: list[Module]) -> list[str]:
    """Who uses the network or starts processes, and may not."""
    found: list[str] = []
    for module in modules:
        if not TOUCHES_THE_OUTSIDE.fullmatch(module.name):
            used = [(line, name) for line, name in module.others if is_within(name, OUTSIDE)]
            used += [(node.lineno, node.attr) for node in attributes(module.tree) if node.attr in OUTSIDE_CALLS]
            found += [f"{module.name}:{line}: uses {name}" for line, name in used]
    return found


def attributes(tree: ast.AST) -> list[ast.Attribute]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]


def scorers(modules: list[Module]) -> list[Module]:
    return [module for module in modules if module.folder == "packs" and "scoring" in module.name]


def impure_scorers(modules: list[Module]) -> list[str]:
    """Scorers with a clock, randomness or files."""
    named = [
        f"{module.name}:{line}: imports {name}"
        for module in scorers(modules)
        for line, name in module.others
        if is_within(name, NO_SCORERS)
    ]
    return named + [f"{module.name}: opens a file" for module in scorers(modules) if "open(" in module.source]


def misplaced_words(modules: list[Module]) -> list[str]:
    """A domain's words elsewhere than in its pack: in names, and in strings without a space."""
    return [
        f"{module.name}: {word}"
        for module in modules
        if module.name not in NAMES_PACKS and module.name != NAMES_BENCHMARKS
        for pack, domain in WORDS.items()
        if not is_within(module.name, {f"packs.{pack}"})
        for word in sorted(words_of(module.tree))
        if any(one in word for one in domain)
    ]


def words_of(tree: ast.AST) -> set[str]:
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in attributes(tree)}
    words |= {text for text in strings(tree) if " " not in text}
    return {word.lower() for word in words}


def strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def branches(modules: list[Module]) -> list[str]:
    """Where code outside the packs names a pack."""
    packs = packs_in(modules)
    return [
        f"{module.name}:{line}"
        for module in modules
        if module.folder != "packs"
        for line in branches_on_a_pack(module.tree, packs)
    ]


def branches_on_a_pack(tree: ast.AST, packs: set[str]) -> list[str]:
    """The lines that name a pack, or compare a pack's name with a literal; a default of an argument is none."""
    told = {id(word.value) for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "default"}
    found = []
    for node in ast.walk(tree):
        named = isinstance(node, ast.Constant) and node.value in packs and id(node) not in told
        compared = isinstance(node, ast.Compare) and literal(node) and any(map(is_pack, ast.walk(node)))
        matched = isinstance(node, ast.Match) and any(map(is_pack, ast.walk(node.subject)))
        if named or compared or matched:
            found.append(f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    return found


def literal(node: ast.Compare) -> bool:
    return any(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", word) for word in strings(node))


def is_pack(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in {"pack", "pack_id", "pack_name"}


def run_time_cycles(package: str) -> list[str]:
    """Modules, and folders, that import each other at run time, as `benchmarks/architecture.py` counts them."""
    spec = spec_from_file_location("architecture", ROOT / "benchmarks" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    measures: Any = module_from_spec(spec)
    spec.loader.exec_module(measures)
    known = measures.runtime_imports(package)
    return [", ".join(group) for graph in (known, measures.by_folder(known)) for group in measures.cycles(graph)]


MODULES = modules_of(PACKAGE)


def assert_none(broken: list[str]) -> None:
    """Say all that breaks a rule."""
    assert not broken, "\n".join(["", *broken])


def test_folders_import_only_whom_they_may() -> None:
    assert_none(forbidden_imports(MODULES))


def test_a_pack_is_imported_by_the_registry_and_the_public_names_alone() -> None:
    assert {*WORDS} <= packs_in(MODULES)
    assert_none(pack_imports(MODULES))


def test_nothing_imports_itself_by_a_way_round() -> None:
    assert_none(run_time_cycles(NAME))


def test_only_pytests_side_imports_pytest() -> None:
    assert_none(pytest_imports(MODULES))


def test_the_entry_point_imports_the_standard_library_and_pytest_only() -> None:
    assert_none(heavy_imports(MODULES))


def test_only_named_modules_touch_the_outside() -> None:
    assert_none(outside_uses(MODULES))


def test_scorers_have_no_clock_no_randomness_no_files() -> None:
    assert {module.name.split(".")[1] for module in scorers(MODULES)} == packs_in(MODULES)
    assert_none(impure_scorers(MODULES))


def test_domain_words_stay_in_their_pack() -> None:
    assert_none(misplaced_words(MODULES))


def test_no_branch_on_a_packs_name_outside_the_packs() -> None:
    assert_none(branches(MODULES))


def test_the_package_is_silent_and_light_when_imported() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_packbench.plugin;"
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    new = set(run.stdout.split())
    assert not new & {"pydantic", "yaml", "tabulate", "ulid", "filelock", "asyncio"}
    assert {name for name in new if name.startswith(NAME)} == {NAME, f"{NAME}.plugin"}


def test_public_names_resolve() -> None:
    for name in pytest_packbench.__all__:
        assert getattr(pytest_packbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_packbench.nothing


BROKEN = {
    "plugin": "import os, yaml\ndef hook():\n    from broken.pytest_plugin import session",
    "cli": "from broken.commands import report\nimport broken.pytest_plugin",
    "testing": "import pytest",
    "adapter.old": "",
    "model.case": "import broken\nfrom broken import __version__, Case\nfrom broken.runs import journal",
    "runs.journal": "from broken.model.case import Case\nfrom broken.analysis.rates import rate",
    "model.record": "SOURCE = 'harmbench'",
    "analysis.rates": "def rate():\n    from broken.runs import journal",
    "analysis.bounds": "if TYPE_CHECKING:\n    from broken.analysis.rates import rate\nfrom broken.model import case",
    "backends.wire": "import socket",
    "engine.targets": "from broken.model import case\nfrom http import HTTPStatus\nfrom http.client import HTTP_PORT",
    "engine.http_target": "import httpx2\nimport pytest",
    "engine.child": "async def start(loop):\n    await loop.subprocess_exec()",
    "packs.registry": "from broken.packs.tariff import scoring",
    "packs.tariff.scoring": "import os.path\nfrom broken.cases import files\nfrom broken import Case\nTARIFF = open('x')",
    "packs.generic.scoring": "from broken.packs.tariff.scoring import TARIFF\nfrom random import random\nx = TARIFF",
    "packs.agent_safety.target": "import socketserver",
    "cases.files": "from broken.engine.targets import run\nif suite.pack == 'mine': pass\nx = f(default='tariff')",
    "pytest_plugin.session": "import pytest\nfrom _pytest import main\nfrom broken.engine import targets",
    "commands.report": "from broken.packs import tariff\nfrom broken.pytest_plugin.session import Session",
    "commands.paths": "from broken.pytest_plugin.project import read_project",
    "pytest_plugin.project": "",
}
"""A package by module, that breaks each rule, and comes near to breaking it."""


def test_what_breaks_a_rule_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "broken"
    for name, code in BROKEN.items():
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    for folder in {path.parent for path in package.rglob("*.py")} | {package / "packs"}:
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (package / "analysis" / "__init__.py").write_text("from broken.analysis import bounds", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    modules = modules_of(package)
    assert forbidden_imports(modules) == [
        "adapter: adapter is in no table",
        "adapter.old: adapter is in no table",
        "cases.files:1: imports engine.targets.run",
        "cli:2: imports pytest_plugin",
        "commands.report:2: imports pytest_plugin.session.Session",
        "model.case:1: imports the package",
        "model.case:2: imports Case",
        "model.case:3: imports runs.journal",
        "runs.journal:2: imports analysis.rates.rate",
    ]
    assert pack_imports(modules) == [
        "commands.report:1: imports packs.tariff",
        "packs.generic.scoring:1: imports packs.tariff.scoring.TARIFF",
    ]
    assert run_time_cycles("broken") == [
        "broken.analysis, broken.analysis.bounds, broken.analysis.rates, broken.model.case, broken.runs.journal",
        "broken.analysis, broken.model, broken.runs",
    ]
    assert pytest_imports(modules) == [
        "engine.http_target:2: imports pytest",
        "pytest_plugin.session:2: imports _pytest.main",
    ]
    assert heavy_imports(modules) == ["plugin:1: imports yaml"]
    assert outside_uses(modules) == [
        "engine.child:2: uses subprocess_exec",
        "engine.targets:3: uses http.client.HTTP_PORT",
        "packs.agent_safety.target:1: uses socketserver",
    ]
    assert impure_scorers(modules) == [
        "packs.generic.scoring:2: imports random.random",
        "packs.tariff.scoring:1: imports os.path",
        "packs.tariff.scoring: opens a file",
    ]
    assert misplaced_words(modules) == ["cases.files: tariff", "packs.generic.scoring: tariff"]
    assert branches(modules) == ["cases.files:2: suite.pack == 'mine'"]
    for code in (
        'x = 1 if suite.config.pack == "mine" else 2',
        'if entry.pack in {"mine", "yours"}: pass',
        'special = {"tariff": 1}',
        'match pack.name:\n    case "mine": pass',
        'if pack_id != "mine": pass',
    ):
        assert branches_on_a_pack(ast.parse(code), {"tariff"})
