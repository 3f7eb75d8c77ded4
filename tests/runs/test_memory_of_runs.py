"""A run is read one result at a time, and one that is damaged at its end is refused before anything is printed."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from pytest_packbench.runs.writing import RunWriter
from tests.unit.run_builders import case_result, document
from tests.unit.stored_runs import recorded_result, run_of, suite

if TYPE_CHECKING:
    from pathlib import Path

SIZES = 500, 3_000
COMMANDS = {
    "compare": ("compare", "--current", "RUN", "--baseline", "RUN", "--out", "-"),
    "gate": ("gate", "RUN"),
    "gate with a baseline": ("gate", "RUN", "--baseline", "RUN"),
}


def written(output: Path, root: Path, cases: int) -> Path:
    """Write a run as a session does, with what another plugin says of each test, and return its folder."""
    of = run_of(root)
    results = [recorded_result(case_result(f"c{number:05}"), of.run_id) for number in range(cases)]
    writer = RunWriter(output, "toy", of.run_id)
    writer.write_results(results)
    tests = [{"nodeid": result.case.nodeid, "longrepr": "x" * 400} for result in results]
    writer.complete({**document(of, results), "cases": []}, {"exitcode": 0, "tests": tests})
    return writer.folder


def ran(name: str, root: Path, folder: Path) -> int:
    words = [str(folder) if word == "RUN" else word for word in COMMANDS[name]]
    return main([*words, "--root", str(root)])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def runs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return {cases: written(tmp_path_factory.mktemp("runs"), root, cases) for cases in SIZES}


@pytest.mark.parametrize("name", COMMANDS)
def test_memory_hardly_grows_with_the_run(
    name: str, root: Path, runs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # less than either run has
    monkeypatch.setattr("pytest_packbench.runs.reading._CHUNK", 1 << 12)
    peaks = []
    # once before, for what is imported and cached
    for cases in (SIZES[-1], *SIZES):
        tracemalloc.start()
        try:
            ran(name, root, runs[cases])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    _, small, large = peaks
    assert large < 1.25 * small
