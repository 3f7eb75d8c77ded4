"""Runs whose pages the browser opens, each made once by a pytest of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_packbench
from pytest_packbench.reports.page import page_source
from pytest_packbench.testing import case, write_suite
from tests.servers.fake import FakeServer
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from pytest_packbench.reports.page.case_data import CaseBlocks
    from tests.servers.fake import Received, Reply

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
MODEL = "fake-1"
ASKING = """
from pytest_packbench import ModelRequest

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


async def answer(request, context):
    message = {"role": "user", "content": request.input["text"]}
    asked = ModelRequest(role="answer", system="You know geography.", messages=(message,), output_schema=SCHEMA)
    return (await context.llm.complete(asked)).content
"""
CAPITALS = {
    "Austria": "Vienna",
    "Belgium": "Brussels",
    "Chile": "Santiago",
    "Denmark": "Copenhagen",
    "Estonia": "Tallinn",
    "France": "Paris",
    "Ghana": "Accra",
    "Hungary": "Budapest",
}
CONFUSED = "Chile"


def run_suite(project: Path, suite: str, *options: str) -> Path:
    """Run a suite in a project, and return the folder of the run."""
    _python(project, "pytest", "-q", "-p", "no:cacheprovider", f"--packbench-suite={suite}", *options)
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


def _python(project: Path, module: str, *arguments: str) -> None:
    home = str(Path(pytest_packbench.__file__).parents[1])
    ours = ("PACKBENCH_", "PYTEST_", "GITHUB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=project,
        env=kept | {"PYTHONPATH": home, "OPENAI_API_KEY": "none"},
        stdout=subprocess.DEVNULL,
        check=False,
    )


def tariff(project: Path) -> Path:
    """Run the bundled tariff suite, in which every case passes."""
    return run_suite(project, "tariff")


def releases(project: Path) -> Path:
    """Run the example with a regression: the last release, then the next one, which is compared with it."""
    shutil.copytree(EXAMPLE, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("reports", "__pycache__"))
    run_suite(project, "support")
    return run_suite(project, "support", *NEXT_RELEASE)


def compare(run: Path) -> Path:
    """Compare a run with the first one of its suite by the command, and return the page that it writes."""
    page = run.parent / "compared.html"
    project = run.parents[3]
    first = min(folder for folder in run.parent.iterdir() if folder.is_dir())
    _python(project, "pytest_packbench", "compare", f"--baseline={first}", f"--current={run}", f"--html={page}")
    return page


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


def live(project: Path) -> Path:
    """Run a live suite twice, and let the model confuse one capital in the second run."""
    cases = [_case(country.lower(), country, capital) for country, capital in CAPITALS.items()]
    rules = {
        "target": "asking:answer",
        "gates": [{"metric": "pass_rate", "min": 0.95}],
        "prices": {MODEL: {"input_per_million": 3.0, "output_per_million": 15.0, "currency": "USD"}},
    }
    write_suite(project / "storage/benchmarks/capitals", cases, pack="generic", rules=rules)
    project.joinpath("asking.py").write_text(ASKING, encoding="utf-8")
    confused: set[str] = set()

    def answered(received: Received) -> Reply:
        country = parse_request(received).text
        capital = "Valparaiso" if country in confused else CAPITALS[country]
        return openai_reply(json.dumps({"answer": capital}), usage=(900, 120), model=MODEL)

    with FakeServer(answered, latency_s=0.01) as server:
        options = ("--packbench-mode=live", "--packbench-backend=openai", f"--packbench-model={MODEL}")
        base = f"--packbench-base-url={server.url}/v1"
        run_suite(project, "capitals", *options, base)
        confused.add(CONFUSED)
        return run_suite(project, "capitals", *options, base, "--packbench-baseline=latest")


def _case(name: str, text: str, answer: str, **notes: Any) -> dict[str, Any]:
    about = {"source": "example", "date": "2026-07-01", **notes}
    return case(name, input={"text": text}, expected={"answer": answer}, notes=about)
