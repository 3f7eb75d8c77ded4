"""The rules of the house: who imports whom, and what an unrelated run may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_packbench

PACKAGE = Path(pytest_packbench.__file__).parent
ROOMS = ("analysis", "backends", "cases", "engine", "model", "packs", "pytest_plugin", "reports", "runs")
MAY_IMPORT = {
    "cases": set(),
    "records": set(),
    "backends": set(),
    "engine": {"cases", "backends", "records"},
    "engine.protocols": {"cases", "backends"},
    "packs": {"cases", "engine.protocols"},
    "reports": {"records"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def room_of(dotted: str) -> str | None:
    parts = dotted.split(".")
    if parts[0] != "pytest_packbench" or len(parts) == 1 or parts[1] not in ROOMS:
        return None
    return "engine.protocols" if parts[1:3] == ["engine", "protocols"] else parts[1]


def identifier(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_rooms_know_only_whom_they_may(path: Path) -> None:
    room = room_of(".".join(("pytest_packbench", *path.relative_to(PACKAGE).with_suffix("").parts)))
    if room not in MAY_IMPORT:
        return
    known = {found for name in imports(path) if (found := room_of(name)) is not None}
    own = {room, "engine.protocols"} if room == "engine" else {room}
    assert known - own <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_only_the_adapter_imports_pytest(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] in {"pytest_plugin", "plugin.py", "hookspecs.py"}:
        return
    assert not [name for name in imports(path) if name.split(".")[0] in {"pytest", "_pytest", "pluggy"}]


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_no_private_pytest(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith("_pytest")]


def test_the_entry_point_imports_the_standard_library_and_pytest_only() -> None:
    tree = ast.parse((PACKAGE / "plugin.py").read_text("utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - {"pytest"} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    "path", [path for path in MODULES if "packs" in path.parts and "scoring" in path.name], ids=identifier
)
def test_scorers_have_no_clock_no_randomness_no_files(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"time", "datetime", "random", "os", "pathlib", "io"}
    assert "open(" not in path.read_text("utf-8")


DOMAIN = ("hts", "tariff", "gri_", "injection", "agentdojo", "harmbench", "injecagent")


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_domain_words_stay_in_their_pack(path: Path) -> None:
    place = path.relative_to(PACKAGE).as_posix()
    if place.startswith("packs/") or place == "model/record.py":
        return
    tree = ast.parse(path.read_text("utf-8"))
    words = {node.id.lower() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr.lower() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    words |= {
        node.value.lower()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value
    }
    assert not [word for word in words for domain in DOMAIN if domain in word]


PACKS = {path.parent.name for path in PACKAGE.glob("packs/*/pack.py")}


def branches_on_a_pack(tree: ast.AST) -> list[str]:
    """The lines of a module that name a pack, or compare a pack's name with a literal."""
    told = {id(word.value) for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "default"}
    found = []
    for node in ast.walk(tree):
        named = isinstance(node, ast.Constant) and node.value in PACKS and id(node) not in told
        compared = isinstance(node, ast.Compare) and _literal(node) and any(map(_is_pack, ast.walk(node)))
        matched = isinstance(node, ast.Match) and any(map(_is_pack, ast.walk(node.subject)))
        if named or compared or matched:
            found.append(f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    return found


def _literal(node: ast.Compare) -> bool:
    words = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", word) for word in words)


def _is_pack(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in {"pack", "pack_id", "pack_name"}


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_no_branch_on_a_packs_name_outside_the_packs(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] != "packs":
        assert branches_on_a_pack(ast.parse(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    [
        'x = 1 if suite.config.pack == "mine" else 2',
        'if pack.name == "mine": pass',
        'if entry.pack in {"mine", "yours"}: pass',
        'special = {"tariff": 1}',
        'match pack.name:\n    case "mine": pass',
        'if pack_id != "mine": pass',
    ],
)
def test_a_branch_on_a_packs_name_is_seen(code: str) -> None:
    assert branches_on_a_pack(ast.parse(code))


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
    assert not new & {"pydantic", "yaml", "tabulate", "ulid", "asyncio"}
    assert {name for name in new if name.startswith("pytest_packbench")} == {
        "pytest_packbench",
        "pytest_packbench.plugin",
    }


def test_public_names_resolve() -> None:
    for name in pytest_packbench.__all__:
        assert getattr(pytest_packbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_packbench.nothing
