"""Runs whose pages the browser opens, each made once by a pytest of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_packbench
from pytest_packbench.reports.page import page_source
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from pytest_packbench.reports.page.case_data import CaseBlocks

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "support"
NEXT_RELEASE = ("--packbench-target=support:answer_next", "--packbench-baseline=latest")
LOST = ("refund_of_two_lamps", "refund_after_30_days")
WON = ("refund_in_other_words",)
NEVER_RIGHT = "delivery_to_neighbour"
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<a href='javascript:window.pwned=3' onmouseover='window.pwned = 3'>link</a>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} <!-- --> ]]> &lt;b&gt;",
    "\u202egnp.exe\u2028\u2029\x1b[31m",
)
ECHO = f"""
def answer(request):
    if request.input["text"] == "raise":
        raise ValueError({HOSTILE[1]!r})
    return {{"answer": request.input["text"]}}
"""


def run_suite(project: Path, suite: str, *options: str) -> Path:
    """Run a suite in a project, and return the folder of the run."""
    home = str(Path(pytest_packbench.__file__).parents[1])
    ours = ("PACKBENCH_", "PYTEST_", "GITHUB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--packbench-suite={suite}", *options],
        cwd=project,
        env=kept | {"PYTHONPATH": home},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    runs = project / "reports" / "benchmarks" / suite
    return runs / (runs / "latest").read_text("utf-8").strip()


def write_page(path: Path, *runs: CaseBlocks) -> Path:
    """Write a page that has nothing but the cases of runs, and return its path."""
    data = "".join(
        f'<script type="text/plain" class="packbench-data" data-run="{run}" data-name="{block.name}">{block.text}</script>'
        for run, cases in enumerate(runs)
        for block in cases.blocks
    )
    style = page_source("page.css") + page_source("cases.css")
    head = f'<meta charset="utf-8"><title>made</title><link rel="icon" href="data:,"><style>{style}</style>'
    script = f"<script>{page_source('page.js')}</script>"
    main = f'<main><div id="packbench-cases"></div></main>{data}{script}'
    path.write_text(f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{main}</body></html>', "utf-8")
    return path


def tariff(project: Path) -> Path:
    """Run the bundled tariff suite, in which every case passes."""
    return run_suite(project, "tariff")


def releases(project: Path) -> Path:
    """Run the example with a regression: the last release, then the next one, which is compared with it."""
    shutil.copytree(EXAMPLE, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("reports", "__pycache__"))
    run_suite(project, "support")
    return run_suite(project, "support", *NEXT_RELEASE)


def failing(project: Path) -> Path:
    """Run a suite with failures, an error and a quarantined case, and with hostile texts wherever a user can write one."""
    cases = [
        *(_case(f"hostile_{number}", text, f"not {text}", tags=[text]) for number, text in enumerate(HOSTILE)),
        _case("right", "right", "right"),
        _case("broken", "raise", "never"),
        _case("quarantined", "late", "late", skip=HOSTILE[1]),
    ]
    rules = {
        "description": HOSTILE[0],
        "target": "hostile:answer",
        "criteria": [{"exact": "/answer", "name": "<b onclick=alert(1)>answer</b>"}],
    }
    write_suite(project / "storage/benchmarks/hostile", cases, pack="generic", rules=rules)
    project.joinpath("hostile.py").write_text(ECHO, encoding="utf-8")
    return run_suite(project, "hostile")


def _case(name: str, text: str, answer: str, **notes: Any) -> dict[str, Any]:
    about = {"source": "example", "date": "2026-07-01", **notes}
    return case(name, input={"text": text}, expected={"answer": answer}, notes=about)
