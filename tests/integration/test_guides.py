"""README and guides: their commands are run, and what they print is what the pages quote."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pytest_packbench.packs.generic.pack
import pytest_packbench.packs.tariff.pack
import pytest_packbench.pytest_plugin.marked
from pytest_packbench import Pack
from pytest_packbench.cli import main
from pytest_packbench.packs.registry import Packs
from tests.doc_blocks import ROOT, Block, PageRunner, blocks, clean_environment, line_matcher, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.conftest import Copy

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs)
DOCS = ROOT / "docs"


class Guide(NamedTuple):
    """What running a page's blocks in their order does: exit codes of commands, blocks that are only shown."""

    codes: list[int]
    snippets: list[str]


GUIDES = {
    "tutorial": Guide([0, 0, 1, 0, 1, 0, 0, 1, 0, 1], []),
    "tutorial-own-suite": Guide([0, 1, 0, 2, 0, 0, 1, 0, 1, 0], []),
    "pytest-way": Guide([1, 1, 1, 1, 1], ["python"]),
    # the questions to import have no summary and no goods, which the suite of the page expects
    "generic": Guide([0, 2], ["yaml", "yaml"]),
    "packs": Guide([0, 0, 0, 0, 0], []),
}


@pytest.fixture
def page(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundled: Path
) -> PageRunner:
    clean_environment(monkeypatch)
    return PageRunner(pytester, capsys)


@pytest.mark.parametrize("name", GUIDES)
def test_every_block_of_a_guide_works(page: PageRunner, name: str) -> None:
    (page.pytester.path / "questions.csv").write_text("id,text,currency,total\na,How much?,EUR,5\n", encoding="utf-8")
    snippets: list[Block] = []
    page.snippets = snippets
    page.page(DOCS / f"{name}.md")
    assert page.codes == GUIDES[name].codes
    assert [block.kind for block in snippets] == GUIDES[name].snippets


def test_the_marked_test_that_the_guide_shows_runs(page: PageRunner) -> None:
    snippets: list[Block] = []
    page.snippets = snippets
    page.page(DOCS / "pytest-way.md")
    module = (page.pytester.path / "test_queues.py").read_text("utf-8").partition("@pytest.mark")[0]
    test = snippets[0].text.replace("import pytest\n", "")
    (page.pytester.path / "extra.py").write_text(module + test, encoding="utf-8")
    result = page.pytester.runpytest("extra.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_hard_ones[[]money]*"])


def test_a_bundled_suite_is_hidden_by_a_folder_of_suites(page: PageRunner) -> None:
    page.command("packbench init support")
    page.output = []
    assert page.command("pytest --packbench-suite=tariff") == pytest.ExitCode.USAGE_ERROR
    assert 'unknown suite "tariff" (did you mean "bundled/tariff", ' in "\n".join(page.output)


@pytest.mark.parametrize("pack", sorted(name for name, one in Packs().items() if one.starter() is not None))
def test_every_starter_runs_at_once(pytester: pytest.Pytester, pack: str) -> None:
    assert main(["init", "mine", "--pack", pack]) == 0
    result = pytester.runpytest("--packbench-suite=mine")
    result.assert_outcomes(passed=1, failed=1)
    readme = (pytester.path / "storage" / "benchmarks" / "mine" / "README.md").read_text("utf-8")
    score = next(line.split()[1] for line in result.outlines if line.startswith("score "))
    assert f"scores {score}" in readme


# README.md

FAILURE, RUN = (block.text.splitlines() for block in blocks(ROOT / "README.md") if block.kind == "text")
(CASE,) = (json.loads(block.text) for block in blocks(ROOT / "README.md") if block.kind == "json")


def first_missing_line(quoted: Iterable[str], output: Iterable[str]) -> list[str]:
    """Return the first quoted line that the output does not contain, in this order."""
    rest = iter(map(normalize, output))
    return [line for line in quoted if not any(map(line_matcher(line), rest))][:1]


def test_the_readme_quotes_a_run_correctly(copy: Copy) -> None:
    command, *lines = RUN
    assert command == "$ pytest --packbench-suite=tariff"
    assert first_missing_line([line for line in lines if line != "..."], copy.run().outlines) == []


def test_the_readme_quotes_a_failure_and_its_case_correctly(page: PageRunner) -> None:
    assert page.command("packbench init support") == 0
    (path,) = page.pytester.path.glob(f"storage/benchmarks/support/cases/*/{CASE['id']}.json")
    case = json.loads(path.read_text("utf-8"))
    assert {**CASE, "notes": case["notes"]} == case
    command, _, title, *lines = FAILURE
    assert command == "$ pytest --packbench-suite=support"
    output = page.pytester.runpytest("--packbench-suite=support").outlines
    start = output.index(lines[0])
    end = lines.index("...")
    assert normalize(output[start - 1]) == normalize(title)
    assert output[start : start + end] == lines[:end]
    assert first_missing_line(lines[end + 1 :], output[start + end :]) == []


# docs/generic.md and docs/packs.md


def scores_of(page: PageRunner, suite: str) -> dict[str, float]:
    shutil.rmtree(page.pytester.path / "reports", ignore_errors=True)
    page.command(f"pytest --packbench-suite={suite}")
    (records,) = (page.pytester.path / "reports" / "benchmarks" / suite).glob("*/records.jsonl")
    lines = map(json.loads, records.read_text("utf-8").splitlines())
    return {line["packbench"]["case_id"]: round(line["packbench"]["score"], 2) for line in lines}


def test_the_generic_example_scores_as_the_page_says(page: PageRunner) -> None:
    for block in blocks(DOCS / "generic.md"):
        if block.file is not None:
            page.block(block)
    assert scores_of(page, "invoices") == {"chairs": 0.93, "poem": 1.0}
    target = page.pytester.path / "invoices.py"
    target.write_text(target.read_text("utf-8").replace('"sum": 119.0', '"sum": 100.0'), encoding="utf-8")
    page.output = []
    assert scores_of(page, "invoices") == {"chairs": 0.53, "poem": 1.0}
    assert first_missing_line(["score 0.53 < 0.80…", "expected actual"], page.output) == []
    assert any(line.startswith("+0.00") and "got 100.0, expected 119.0" in line for line in page.output)


def test_the_pack_of_the_page_can_fail_and_its_tests_pass(page: PageRunner) -> None:
    for block in blocks(DOCS / "packs.md"):
        if block.file is not None:
            page.block(block)
    page.pytester.runpytest("-p", "pytester", "test_headlines.py").assert_outcomes(passed=3)
    path = page.pytester.path / "storage/benchmarks/headlines/cases/news/bridge.json"
    case = json.loads(path.read_text("utf-8"))
    for name, expected in {
        "missing": {"words": ["bridge", "closes"]},
        "forbidden": {"words": ["bridge"], "never": ["again"]},
        "refusal": {"refuse": True},
    }.items():
        path.with_name(f"{name}.json").write_text(json.dumps({**case, "id": name, "expected": expected}), "utf-8")
    assert scores_of(page, "headlines") == {"bridge": 1.0, "missing": 0.62, "forbidden": 0.0, "refusal": 0.0}
    entry_points = tomllib.loads((page.pytester.path / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert entry_points["pytest_packbench.packs"] == {"headlines": "headline_pack:HeadlinePack"}


def test_the_page_on_packs_names_every_attribute_and_method() -> None:
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", (DOCS / "packs.md").read_text("utf-8")))
    names = {name for name in vars(Pack) if not name.startswith("_")}
    assert names | set(Pack.__annotations__) <= named | {"Pack"}
