"""Configuration of the documentation site: `sphinx-build -W -b html docs <folder>`."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generated

import pytest_packbench

project = "pytest-packbench"
version = release = pytest_packbench.__version__
extensions = ["myst_parser"]
exclude_patterns = ["examples", "schemas"]
html_theme = "furo"
html_title = f"pytest-packbench {version}"
myst_heading_anchors = 3
# placeholders in code blocks are unknown to the lexer
suppress_warnings = ["misc.highlighting_failure"]
GENERATED = {
    "reference-options": ("<!-- options -->", generated.options),
    "reference-hooks": ("<!-- hooks -->", generated.hooks),
    "formats": ("<!-- formats -->", generated.formats),
    "reference-commands": ("<!-- commands -->", generated.commands),
}


def fill(_: object, name: str, source: list[str]) -> None:
    """Insert the generated parts into their pages, and pages without a table of contents into the last one."""
    if name in GENERATED:
        marker, render = GENERATED[name]
        source[0] = source[0].replace(marker, render())
    # the examples are in the repository, not on the site
    source[0] = re.sub(r"\[([^\]]+)\]\(examples/[^)]+\)", r"`\1`", source[0])
    if name == "index":
        pages = sorted(path.stem for path in Path(__file__).parent.glob("*.md"))
        listed = set(source[0].split()) | {"index"}
        source[0] = source[0].replace("<!-- more -->", "\n".join(page for page in pages if page not in listed))


def setup(app: Any) -> None:
    """Connect `fill` to the reading of pages."""
    app.connect("source-read", fill)
