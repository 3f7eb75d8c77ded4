"""The build of the wheel: packs bundled suites, starters of packs and the sources of pages, many files, into few."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("storage", "benchmarks")
INSTALLED = "pytest_packbench/_suites"
PACKING = Path("pytest_packbench", "files.py")
STARTERS = "pytest_packbench/packs/_starters.zip"
PAGE = Path("pytest_packbench", "reports", "page")
PAGE_SOURCES = "_sources.json"


class PackSuites(BuildHookInterface[Any]):
    """Adds the packed suites and starters to a wheel; an editable installation reads their sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the packed suites and starters into a temporary folder, and add its files to the wheel."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        root = Path(self.root)
        # the package itself can't be imported yet
        packed_files = runpy.run_path(str(root / PACKING))["packed_files"]
        for config in sorted((root / SOURCES).glob("*/suite.yaml")):
            suite = config.parent
            for file, content in packed_files(suite):
                path = Path(self._folder.name, suite.name, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                build_data["force_include"][str(path)] = f"{INSTALLED}/{suite.name}/{file}"
        starters = Path(self._folder.name, "starters.zip")
        packs = root / Path(STARTERS).parent
        with ZipFile(starters, "w", ZIP_DEFLATED) as archive:
            for path in sorted(packs.glob("*/starter/**/*")):
                if path.is_file():
                    # without the time of the file: the same sources are the same wheel
                    archive.writestr(ZipInfo(path.relative_to(packs).as_posix()), path.read_bytes())
        build_data["force_include"][str(starters)] = STARTERS
        sources = Path(self._folder.name, PAGE_SOURCES)
        texts = {
            path.name: _compact(path)
            for path in sorted((root / PAGE).iterdir())
            if path.suffix in {".css", ".html", ".js"}
        }
        sources.write_text(json.dumps(texts), "utf-8")
        build_data["force_include"][str(sources)] = (PAGE / PAGE_SOURCES).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the temporary folder."""
        if version != "editable":
            self._folder.cleanup()


def _compact(path: Path) -> str:
    """Return a style sheet or a script without indentation and comments of whole lines; other files as they are.

    Both are part of every page. A comment between `/*` and `*/` has to be on one line.
    """
    text = path.read_text("utf-8")
    if path.suffix not in {".css", ".js"}:
        return text
    lines = (line.strip() for line in text.splitlines())
    return "".join(
        f"{line}\n"
        for line in lines
        if line and not line.startswith("// ") and not (line.startswith("/*") and line.endswith("*/"))
    )
