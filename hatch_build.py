"""The build of the wheel: packs the bundled suites, whose sources have one file per case, into few files."""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("storage", "benchmarks")
INSTALLED = "pytest_packbench/_suites"
PACKING = Path("pytest_packbench", "cases", "packed.py")


class PackSuites(BuildHookInterface[Any]):
    """Adds the packed suites to a wheel; an editable installation reads their sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the packed suites into a temporary folder, and add its files to the wheel."""
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

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the temporary folder."""
        if version != "editable":
            self._folder.cleanup()
