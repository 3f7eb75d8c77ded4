"""The layout of the package by the rules in `data/architecture.yaml`; a broken package shows that they find breaches."""

from __future__ import annotations

import ast
import re
import runpy
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench
from pytest_packbench.model.result import EXTENSION_KEYS, Attempt, CaseInfo, Score, extension_model
from pytest_packbench.model.run import MODES, Run
from pytest_packbench.model.suite import GENERAL_METRICS, Gate
from pytest_packbench.plugin import BY_NAME
from tests.doc_blocks import ROOT
from tests.unit.run_builders import data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import ExpectedTexts

NAME = "pytest_packbench"
RULES: dict[str, Any] = data("architecture.yaml")
NOUNS = {noun.__name__: {each.name for each in fields(noun)} for noun in (CaseInfo, Attempt, Score, Run)}
PUBLIC = {"public names": pytest_packbench.__all__}
MAY_IMPORT: dict[str, set[str]] = {
    folder: {each for name in names for each in PUBLIC.get(name, [name])}
    for folder, names in RULES["may_import"].items()
}


class Module:
    """A module: `name` is dotted, without the package's own; `imports` are lines and dotted names, ours begin with a dot."""

    def __init__(self, package: Path, path: Path) -> None:
        parts = path.relative_to(package).with_suffix("").parts
        self.package = package.name
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.folder = self.name.partition(".")[0]
        self.tree = ast.parse(path.read_text("utf-8"))
        self.nodes = list(ast.walk(self.tree))
        self.imports = [each for node in self.nodes for each in self._imports(node)]
        words = {name_of(node) for node in self.nodes} | {text for text in strings(self.nodes) if " " not in text}
        self.words = sorted(word.lower() for word in words)

    def _imports(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            parent = ""
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"line {node.lineno}: imports are absolute here"
                parent = f"{node.module}."
            for name in [parent + alias.name for alias in node.names]:
                ours = is_within(name, [self.package])
                yield node.lineno, f".{name.removeprefix(self.package).removeprefix('.')}" if ours else name


def modules_of(package: Path) -> list[Module]:
    return [Module(package, path) for path in sorted(package.rglob("*.py"))]


def packs_in(modules: list[Module]) -> set[str]:
    return {module.name.split(".")[1] for module in modules if re.fullmatch(r"packs\.\w+\..+", module.name)}


def is_within(name: str, parents: list[str] | set[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def name_of(node: ast.AST) -> str:
    """The name that a node refers to; empty if it is none."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def strings(nodes: list[ast.AST]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def forbidden_folders(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        may, may_not = MAY_IMPORT.get(module.folder), RULES["may_not_import"].get(module.folder)
        if may is None and may_not is None:
            yield f"{module.name}: {module.folder} is in no table"
        for line, name in module.imports:
            if not name.startswith("."):
                continue
            target = name[1:].partition(".")[0]
            free = target in {module.folder, *RULES["free"]}
            free = free or is_within(name[1:], RULES["may_also_import"].get(module.folder, []))
            if not free and (target in (may_not or []) if may is None else target not in may):
                yield f"{module.name}:{line}: imports {name[1:] or 'the package'}"


def forbidden_packs(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for line, name in module.imports:
            for pack in packs_in(modules):
                own = is_within(module.name, [f"packs.{pack}"]) or re.fullmatch(RULES["imports_packs"], module.name)
                if is_within(name, [f".packs.{pack}"]) and not own:
                    yield f"{module.name}:{line}: imports {name[1:]}"


def forbidden_modules(modules: list[Module]) -> Iterator[str]:
    for title, rule in RULES["forbidden"].items():
        for module in modules:
            if re.fullmatch(rule.get("only", ".*"), module.name) and not re.fullmatch(
                rule.get("except", "-"), module.name
            ):
                uses = [each for each in module.imports if is_within(each[1], rule["imports"])]
                calls = [each for each in module.nodes if name_of(each) in rule.get("calls", [])]
                uses += [(getattr(each, "lineno", 0), name_of(each)) for each in calls]
                yield from (f"{title}: {module.name}:{line}: {name}" for line, name in uses)


def misplaced_words(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for pack, domain in RULES["words"].items():
            if not (is_within(module.name, [f"packs.{pack}"]) or re.fullmatch(RULES["uses_all_words"], module.name)):
                yield from (f"{module.name}: {word}" for word in module.words if any(each in word for each in domain))


def branches_on_a_pack(modules: list[Module]) -> Iterator[str]:
    """Yield where code outside the packs names a pack, or compares a pack's name with a literal; not argument defaults."""
    packs = packs_in(modules)
    for module in modules:
        if module.folder == "packs":
            continue
        defaults = {id(each.value) for each in module.nodes if isinstance(each, ast.keyword) and each.arg == "default"}
        for node in module.nodes:
            named = isinstance(node, ast.Constant) and node.value in packs and id(node) not in defaults
            literals = strings(list(ast.walk(node))) if isinstance(node, ast.Compare) else []
            compared = any(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", text) for text in literals) and has_pack(node)
            if named or compared or (isinstance(node, ast.Match) and has_pack(node.subject)):
                yield f"{module.name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node).splitlines()[0]}"


def has_pack(node: ast.AST) -> bool:
    return bool({name_of(each) for each in ast.walk(node)} & {"pack", "pack_id", "pack_name"})


def possessive_groups(modules: list[Module]) -> Iterator[str]:
    """Yield patterns with a possessive group that CPython up to 3.11.4 may match wrongly (its issue 106052)."""
    for module in modules:
        for node in module.nodes:
            value = node.value if isinstance(node, ast.Constant) else None
            text = value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""
            for safe in RULES["safe_groups"]:
                text = text.replace(safe, "")
            if re.search(r"(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>", text):
                yield f"{module.name}:{getattr(node, 'lineno', 0)}: {text}"


def cycles_at_run_time(modules: list[Module]) -> Iterator[str]:
    """Yield modules, and folders, that import each other at run time, as `benchmarks/architecture.py` counts them."""
    measures = runpy.run_path(str(ROOT / "benchmarks" / "architecture.py"))
    imports = measures["runtime_imports"](modules[0].package)
    for graph in (imports, measures["by_folder"](imports)):
        yield from (", ".join(group) for group in measures["cycles"](graph))


def copies_of_nouns(modules: list[Module]) -> Iterator[str]:
    """Yield classes that have three fields or more of a case, an attempt, a score or a run: they could hold the noun."""
    for module in modules:
        for node in module.nodes if module.folder != "packs" else ():
            if isinstance(node, ast.ClassDef) and node.name not in {*NOUNS, *RULES["own_fields"]}:
                own = {name_of(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
                for noun, names in NOUNS.items():
                    if len(own & names) > 2:
                        yield f"{module.name}: {node.name} has of {noun} {', '.join(sorted(own & names))}"


MODULES = modules_of(Path(pytest_packbench.__file__).parent)
CHECKS: list[Callable[[list[Module]], Iterator[str]]] = [
    forbidden_folders,
    forbidden_packs,
    forbidden_modules,
    misplaced_words,
    branches_on_a_pack,
    possessive_groups,
    cycles_at_run_time,
    copies_of_nouns,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_has_no(check: Callable[[list[Module]], Iterator[str]]) -> None:
    breaches = list(check(MODULES))
    assert not breaches, "\n".join(["", *breaches])


def test_the_rules_apply_to_packs_that_exist() -> None:
    packs = packs_in(MODULES)
    assert {*RULES["words"]} <= packs
    only = RULES["forbidden"]["clocks, randomness and files in scorers"]["only"]
    assert {module.name.split(".")[1] for module in MODULES if re.fullmatch(only, module.name)} == packs


def test_what_breaks_a_rule_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: ExpectedTexts) -> None:
    package = tmp_path / "broken"
    for name, code in RULES["broken"].items():
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    for folder in {path.parent for path in package.rglob("*.py")}:
        (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    modules = modules_of(package)
    expected.check(
        "".join(f"[{check.__name__}]\n" + "".join(f"{each}\n" for each in check(modules)) for check in CHECKS)
    )


def test_public_names_resolve() -> None:
    for name in pytest_packbench.__all__:
        assert getattr(pytest_packbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_packbench.nothing


def test_lists_of_words_are_the_same_everywhere() -> None:
    gate = Gate.__doc__ or ""
    assert [name for name in GENERAL_METRICS if f"`{name}`" not in gate] == []
    for noun in (CaseInfo, Attempt, Score):
        assert [name for name in noun.__annotations__ if f"\n        {name}: " not in (noun.__doc__ or "")] == []
    assert BY_NAME["mode"].option == {"choices": list(MODES)}
    assert set(extension_model().model_fields) == {*EXTENSION_KEYS, "judge"}
