"""Measure the page of a run: its size, the time to write it, and the time to open and filter it in a browser.

    python -m benchmarks.html_page [--rounds N]

The cases of the tariff suite with their recordings, copied to 1,000 under new ids, make a page with exchanges; 10,000
trivial cases of the generic pack make one with many rows. The time to write is the CPU time that
`packbench report --html` takes more than `packbench report`. Opening is the time from the start of loading until the
table has its rows, and filtering that from the last key until its count has changed, in headless Chromium; without
Chromium both are not measured. Each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import REPORT, pytest_command, suite_command, used, write_generic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(__file__).resolve().parent.parent
TARIFF = HOME / "storage" / "benchmarks" / "tariff"
SIZES = {"tariff": 1_000, "toy": 10_000}
LAST = {"tariff": "c00999", "toy": "case_009999"}
"""What the id of each suite's last case begins with."""

MOST_BYTES = 2_000_000
"""The planned size of the page with exchanges."""

WAIT_MS = 60_000


class PageCost(NamedTuple):
    """What the page of one run costs.

    Attributes:
        suite: the name of the suite.
        cases: how many cases it has.
        size: its bytes.
        plain: the bytes of cases and recordings that are in it.
        write_s: CPU seconds to write it.
        open_s: seconds until the table is shown; None if there is no browser.
        filter_s: seconds until a filter is applied; None if there is no browser.
    """

    suite: str
    cases: int
    size: int
    plain: int
    write_s: float
    open_s: float | None
    filter_s: float | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print both pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.html_page", description="the page of a run")
    parser.add_argument("--rounds", type=int, default=3)
    for found in measure(parser.parse_args(argv).rounds):
        print(
            f"{found.cases:6} cases of {found.suite}: {found.size / 1e6:.2f} MB ({found.plain / 1e6:.1f} MB of files "
            f"of the suite), written in {found.write_s:.2f} CPU s, opened in {seconds(found.open_s)}, "
            f"filtered in {seconds(found.filter_s)}",
            flush=True,
        )
    return 0


def measure(rounds: int) -> Iterator[PageCost]:
    """Measure the pages of both suites."""
    with tempfile.TemporaryDirectory() as folder:
        for suite, cases in SIZES.items():
            project = Path(folder, suite)
            if suite == "tariff":
                write_tariff(project, cases)
                command = [*pytest_command("packbench", *REPORT), f"--packbench-suite={suite}"]
            else:
                write_generic(project, cases)
                command = suite_command(reported=True)
            used(project, command)
            yield _cost(project, suite, cases, rounds)


def write_tariff(project: Path, cases: int) -> None:
    """Write a suite with copies of the tariff suite's cases and recordings, each under an id of its own."""
    suite = project / "storage" / "benchmarks" / "tariff"
    shutil.copytree(TARIFF, suite, ignore=shutil.ignore_patterns("cases", "fixtures", "baseline.json"))
    (project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    contents = [json.loads(path.read_text("utf-8")) for path in sorted(TARIFF.glob("cases/*/*.json"))]
    (suite / "cases").mkdir()
    (suite / "fixtures").mkdir()
    numbers = count()
    with (
        (suite / "cases" / "many.jsonl").open("w") as lines,
        (suite / "fixtures" / "recordings.jsonl").open("w") as calls,
    ):
        while True:
            for content in contents:
                number = next(numbers)
                if number == cases:
                    return
                recording = TARIFF / "fixtures" / f"{content['id']}.json"
                name = f"c{number:05}_{content['id']}"[:120]
                lines.write(json.dumps({**content, "id": name}) + "\n")
                if recording.exists():
                    calls.write(json.dumps({**json.loads(recording.read_text("utf-8")), "case_id": name}) + "\n")


def seconds(value: float | None) -> str:
    """Format seconds, or that they were not measured."""
    return "not measured" if value is None else f"{value:.2f} s"


def _cost(project: Path, suite: str, cases: int, rounds: int) -> PageCost:
    runs = project / "reports" / "benchmarks" / suite
    folder = runs / (runs / "latest").read_text("utf-8").strip()
    page = folder / "report.html"
    command = [sys.executable, "-m", "pytest_packbench", "report", str(folder)]
    html = [*command, f"--html={project / 'page.html'}"]
    taken = [used(project, html).seconds - used(project, command).seconds for _ in range(rounds)]
    stored = (project / "storage" / "benchmarks" / suite).rglob("*.json*")
    shown = (
        [_browse(page, cases, LAST[suite]) for _ in range(rounds)]
        if shutil.which("chromium") and find_spec("playwright")
        else []
    )
    opened, filtered = (statistics.median(each[part] for each in shown) if shown else None for part in (0, 1))
    plain = sum(path.stat().st_size for path in stored)
    return PageCost(suite, cases, page.stat().st_size, plain, statistics.median(taken), opened, filtered)


def _browse(path: Path, cases: int, last: str) -> tuple[float, float]:
    """Open a page and filter its cases; return the seconds of both."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        found = page.locator("#case-count")
        begun = time.perf_counter()
        page.goto(path.as_uri())
        found.filter(has_text=f"{cases}").or_(found.filter(has_text=f"{cases:,}")).wait_for()
        opened = time.perf_counter()
        page.locator("#case-filter").fill(last)
        found.filter(has_text="1 of").wait_for()
        ended = time.perf_counter()
        browser.close()
    return opened - begun, ended - opened


if __name__ == "__main__":
    sys.exit(main())
