"""Every page: its commands can be called, its settings exist, its Python and JSON can be read, its links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING

import pytest
import yaml

import pytest_packbench
from pytest_packbench.cli import COMMANDS, UNUSABLE, main
from pytest_packbench.packs import TARGET_FILES
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.plugin import SETTINGS
from tests.doc_blocks import PAGES, ROOT, blocks
from tests.unit.test_architecture import MAY_IMPORT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

GenericRules = GenericPack.suite_model
NAMES = {setting.name for setting in SETTINGS} | set(TARGET_FILES)
CHOICES = {
    f"--packbench-{setting.name.replace('_', '-')}": setting.option.get("choices")
    for setting in SETTINGS
    if setting.option
}
OPTIONS = {*CHOICES, "--packbench-list"}
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(#[\w-]+)?\)")


def file_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=file_of)


@pytest.fixture(scope="module")
def pytest_options() -> set[str]:
    """The options that `pytest --help` lists, of pytest itself and of plugins."""
    command = [sys.executable, "-m", "pytest", "--help"]
    text = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?:^ +|, )(--?[a-zA-Z][\w-]*)", text, re.MULTILINE))


@each_page
def test_options_and_settings_exist_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    assert set(re.findall(r"--packbench-[a-z]+(?:-[a-z]+)*", text)) <= OPTIONS
    assert {name.lower() for name in re.findall(r"`PACKBENCH_([A-Z_]+)", text)} - NAMES <= {"parity", "http_headers"}
    assert set(re.findall(r"`packbench_([a-z_]+)", text)) - NAMES <= {"marked", "cases", "case", "check", "request"}
    for target, anchor in LINK.findall(text):
        linked = page.parent / target
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor[1:] in slugs, target + anchor


@each_page
def test_commands_can_be_called(page: Path, pytest_options: set[str]) -> None:
    shown = [
        block.text.replace("\\\n", " ").splitlines() for block in blocks(page) if block.kind in {"console", "bash"}
    ]
    for lines in shown:
        # without output, where there is a prompt
        for line in [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines:
            for part in re.split(r" && | \| ", line):
                program, *words = shlex.split(part, comments=True) or [""]
                if program == "pytest":
                    for option, _, value in (word.partition("=") for word in words if word.startswith("-")):
                        assert option in pytest_options or option[:2] in pytest_options, line
                        assert not value or value in (CHOICES.get(option) or [value]), line
                elif program == "packbench":
                    parse_command([word for word in words if word != ">" and not word.startswith(".vscode")])


def parse_command(words: list[str]) -> None:
    if words == ["--version"]:
        return
    assert words[0] in COMMANDS
    parser = argparse.ArgumentParser(exit_on_error=False)
    module: ModuleType = import_module(f"pytest_packbench.commands.{words[0]}{'_' * iskeyword(words[0])}")
    module.add_arguments(parser)
    parser.parse_args(words[1:])


READERS: dict[str, Callable[[str], object]] = {
    "python": ast.parse,
    "json": json.loads,
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
}


@each_page
def test_blocks_can_be_read(page: Path) -> None:
    for block in blocks(page):
        assert block.kind in {*READERS, "console", "text", "javascript", "sh", "markdown"}, block
        content = READERS.get(block.kind, str)(block.text)
        if block.kind == "yaml" and isinstance(content, dict) and set(content) <= set(GenericRules.model_fields):
            rules = GenericRules.model_validate({"pack": "generic", "description": "shown", **content})
            assert rules.model_fields_set >= set(content)


def generated() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return import_module("generated")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_the_generated_pages_are_complete() -> None:
    pages = generated()
    options = pages.options()
    assert set(re.findall(r"`packbench_(\w+)`", options)) == NAMES
    assert set(re.findall(r"`(--packbench-[a-z-]+)", options)) | {"--packbench-list"} == OPTIONS
    assert set(re.findall(r"^## `(\w+)`$", pages.hooks(), re.MULTILINE)) == {
        name for name in vars(sys.modules["pytest_packbench.hookspecs"]) if name.startswith("pytest_packbench_")
    }
    assert re.findall(r"^## packbench (\w+)$", pages.commands(), re.MULTILINE) == list(COMMANDS)
    formats = pages.formats()
    assert re.findall(r"^## (\w+)$", formats, re.MULTILINE) == ["case", "suite", "cassette", "record", "report"]
    for key in ("id", "expected", "gates", "exchanges", "wall_clock_ms", "totals"):
        assert f"| `{key}` |" in formats
    # every row has as many cells as its head
    for table in re.findall(r"(?:^\|.*\|$\n?)+", formats + "\n\n" + options, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_help_lists_commands_and_their_options_as_the_page_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == UNUSABLE
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {about}" in text for name, about in COMMANDS.items())
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        text = capsys.readouterr().out
        flags = set(re.findall(r"--[a-z-]+", generated().usage(name)))
        assert flags == set(re.findall(r"--[a-z-]+", text))


EXAMPLES = sorted((ROOT / "docs" / "examples").rglob("*.py"))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=file_of)
def test_pages_and_examples_import_only_public_names(page: Path) -> None:
    sources = [block.text for block in blocks(page) if block.kind == "python"] if page.suffix == ".md" else []
    imports = [
        (node.module, node.names)
        for source in sources or [page.read_text("utf-8") if page.suffix == ".py" else ""]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pytest_packbench"
    ]
    for module, names in imports:
        assert module in {"pytest_packbench", "pytest_packbench.testing"}
        assert {name.name for name in names} <= set(pytest_packbench.__all__) or module != "pytest_packbench"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_architecture_names_every_package_and_only_what_exists() -> None:
    roots = "pytest_packbench|tests|docs|storage|benchmarks"
    paths = set(re.findall(rf"`((?:{roots})/[^`\s]*|\w+\.(?:toml|md))`", ARCHITECTURE))
    # in the diagram, and for short, modules are named from the package's folder
    inner = set(re.findall(r"(?<![\w/>])\w+/\w+\.py", ARCHITECTURE.split("```")[1]))
    inner |= set(re.findall(rf"`((?!(?:{roots})/)\w+/\w+\.py)`", ARCHITECTURE))
    paths |= {f"pytest_packbench/{path}" for path in inner}
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    package = ROOT / "pytest_packbench"
    names = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    names |= {path.name for path in package.glob("*.py")} - {"__main__.py"}
    assert [name for name in sorted(names) if f"`pytest_packbench/{name}`" not in ARCHITECTURE] == []
    # the table of imports
    rows = dict(re.findall(r"^\| `pytest_packbench/(\w+)/` \| .* \| ([^|]+) \|$", ARCHITECTURE, re.MULTILINE))
    for folder in sorted({*MAY_IMPORT} - {"atomic"}):
        assert set(re.findall(r"`(\w+)`", rows[folder])) == MAY_IMPORT[folder] & MAY_IMPORT.keys(), folder
