"""The build of the wheel: packs the bundled suites and the starters of the packs, which are many files, into few."""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("storage", "benchmarks")
INSTALLED = "pytest_packbench/_suites"
PACKING = Path("pytest_packbench", "cases", "packed.py")
STARTERS = "pytest_packbench/packs/_starters.zip"


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

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the temporary folder."""
        if version != "editable":
            self._folder.cleanup()
