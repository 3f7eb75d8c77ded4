"""README and guides: their commands are run, and what they print is what the pages quote."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_packbench import Pack
from pytest_packbench.commands import main
from pytest_packbench.packs.agent_safety.episode import Episode
from pytest_packbench.packs.registry import Packs
from tests.doc_blocks import (
    ROOT,
    Block,
    PageRunner,
    blocks,
    blocks_of,
    clean_environment,
    first_missing_line,
    normalize,
)
from tests.integration.conftest import json_lines
from tests.servers.fake import FakeServer
from tests.servers.tariff import tariff_handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Copy

# pytester forgets what a run imported: what is imported here is imported once
_WARM = find_spec("agentdojo") and import_module("pytest_packbench.packs.agent_safety.agentdojo.agents")
DOCS = ROOT / "docs"


DATA = yaml.safe_load((Path(__file__).parent / "data" / "guides.yaml").read_text("utf-8"))
GUIDES, SAFETY_CODES = DATA["guides"], DATA["safety"]


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
    for block in blocks(DOCS / f"{name}.md"):
        page.block(block)
    assert [page.codes, [block.kind for block in snippets]] == GUIDES[name]
    if name == "pytest-way":
        # the marked test that is only shown
        module = (page.pytester.path / "test_queues.py").read_text("utf-8").partition("@pytest.mark")[0]
        test = snippets[0].text.replace("import pytest\n", "")
        (page.pytester.path / "extra.py").write_text(module + test, encoding="utf-8")
        result = page.pytester.runpytest("extra.py")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*test_hard_ones[[]money]*"])


@pytest.mark.parametrize("pack", sorted(name for name, one in Packs().items() if one.tools().starter() is not None))
def test_every_starter_runs_at_once(pytester: pytest.Pytester, pack: str) -> None:
    assert main(["init", "mine", "--pack", pack]) == 0
    result = pytester.runpytest("--packbench-suite=mine")
    # the controls pass
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["2 of 2 controls (wrong answers that must be noticed) ended as written"])
    readme = (pytester.path / "storage" / "benchmarks" / "mine" / "README.md").read_text("utf-8")
    score = next(line.split()[1] for line in result.outlines if line.startswith("score "))
    assert f"scores {score}" in readme


FAILURE, RUN = (block.text.splitlines() for block in blocks(ROOT / "README.md") if block.kind == "text")
(CASE,) = (json.loads(block.text) for block in blocks(ROOT / "README.md") if block.kind == "json")


def test_the_readme_quotes_a_run_and_a_failure_with_its_case_correctly(copy: Copy, page: PageRunner) -> None:
    command, *lines = RUN
    assert command == "$ pytest --packbench-suite=tariff"
    assert first_missing_line([line for line in lines if line != "..."], copy.run().outlines) == []
    assert page.command("packbench init support") == 0
    (path,) = page.pytester.path.glob(f"storage/benchmarks/support/cases/*/{CASE['id']}.json")
    case = json.loads(path.read_text("utf-8"))
    assert {**CASE, "notes": case["notes"]} == case
    command, _, title, *lines = FAILURE
    assert command == "$ pytest --packbench-suite=support"
    output = page.pytester.runpytest("--packbench-suite=support").outlines
    start, end = output.index(lines[0]), lines.index("...")
    assert normalize(output[start - 1]) == normalize(title)
    assert output[start : start + end] == lines[:end]
    assert first_missing_line(lines[end + 1 :], output[start + end :]) == []


def scores_of(page: PageRunner, suite: str) -> dict[str, float]:
    shutil.rmtree(page.pytester.path / "reports", ignore_errors=True)
    page.command(f"pytest --packbench-suite={suite}")
    (records,) = (page.pytester.path / "reports" / "benchmarks" / suite).glob("*/records.jsonl")
    return {line["packbench"]["case_id"]: round(line["packbench"]["score"], 2) for line in json_lines(records)}


def write_files(page: PageRunner, name: str) -> None:
    for block in blocks(DOCS / name):
        if block.file is not None:
            page.block(block)


def test_the_generic_example_scores_as_the_page_says(page: PageRunner) -> None:
    write_files(page, "generic.md")
    assert scores_of(page, "invoices") == {"chairs": 0.93, "poem": 1.0}
    target = page.pytester.path / "invoices.py"
    target.write_text(target.read_text("utf-8").replace('"sum": 119.0', '"sum": 100.25'), encoding="utf-8")
    page.output = []
    assert scores_of(page, "invoices") == {"chairs": 0.53, "poem": 1.0}
    assert first_missing_line(["score 0.53 < 0.80…", "expected actual"], page.output) == []


def test_the_pack_of_the_page_can_fail_and_its_tests_pass(page: PageRunner) -> None:
    write_files(page, "packs.md")
    page.pytester.runpytest("-p", "pytester", "test_parcels.py").assert_outcomes(passed=3)
    path = page.pytester.path / "storage/benchmarks/parcels/cases/quote/harbour.json"
    case = json.loads(path.read_text("utf-8"))
    for name, expected in {
        "dear": {"zone": "city", "cents": 498},
        "far": {"zone": "world", "cents": 501},
        "refusal": {"zone": None},
    }.items():
        path.with_name(f"{name}.json").write_text(json.dumps({**case, "id": name, "expected": expected}), "utf-8")
    assert scores_of(page, "parcels") == {"harbour": 1.0, "dear": 0.6, "far": 0.4, "refusal": 0.0}
    (page.pytester.path / "conftest.py").write_text(
        "import parcel_shares\n\n\ndef pytest_packbench_packs():\n    return [parcel_shares.SharedParcels()]\n", "utf-8"
    )
    (gates,) = (block.text for block in blocks(DOCS / "packs.md") if block.text.startswith("gates:"))
    suite = page.pytester.path / "storage/benchmarks/parcels/suite.yaml"
    suite.write_text(suite.read_text("utf-8") + gates, "utf-8")
    shown = page.pytester.runpytest("--packbench-suite=parcels").stdout.str()
    assert "refusal_share 0 / 4" in shown
    assert "zone_recall (label city) 2 / 2" in shown
    entry_points = tomllib.loads((page.pytester.path / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert entry_points["pytest_packbench.packs"] == {"parcels": "parcel_pack:ParcelPack"}
    # the page names every attribute and method
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", (DOCS / "packs.md").read_text("utf-8")))
    names = {name for name in vars(Pack) if not name.startswith("_")}
    assert names | set(Pack.__annotations__) <= named | {"Pack"}


LIVE_BLOCKS = [block for page in ("live.md", "resume.md") for block in blocks(DOCS / page) if block.kind == "console"]
LIVE_COMMANDS = [line for block in LIVE_BLOCKS for line in block.text.splitlines() if line.startswith("pytest ")]


@pytest.fixture(scope="module")
def model_server() -> Iterator[FakeServer]:
    with FakeServer(tariff_handler(ROOT / "storage" / "benchmarks" / "tariff")) as server:
        yield server


@pytest.fixture
def live(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> Copy:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-made-up-for-this-test")
    return copy


@pytest.mark.parametrize("line", LIVE_COMMANDS)
def test_every_command_on_live_runs_works(
    live: Copy, model_server: FakeServer, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("PACKBENCH_BASE_URL", model_server.url + ("/v1" if "openai" in line else ""))
    # a few cases instead of all; a command's own selection comes later and wins
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k neg_08")
    if "--packbench-resume" in line:
        assert live.run().ret == pytest.ExitCode.OK
    result = live.pytester.runpytest(*shlex.split(line)[1:])
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] >= 1


SAFETY_PAGE = (DOCS / "agent-safety.md").read_text("utf-8")
SAFETY = {text.partition("\n")[0]: list(blocks_of(text)) for text in SAFETY_PAGE.split("\n## ")[1:]}
EXECUTED = ("console", "text", "yaml", "python")


@pytest.mark.parametrize("title", SAFETY_CODES)
def test_the_commands_of_a_section_on_safety_print_what_it_quotes(page: PageRunner, title: str) -> None:
    if any("agentdojo" in block.text for block in SAFETY[title] if block.kind == "console"):
        pytest.importorskip("agentdojo")
    page.pytester.makeini("[pytest]\n")
    for suite in ("agentdojo", "harmbench", "injecagent"):
        folder = ROOT / "storage" / "benchmarks" / suite
        shutil.copytree(folder, page.pytester.path / "storage" / "benchmarks" / suite)
    for block in SAFETY[title]:
        if block.kind in EXECUTED:
            page.block(block)
    assert page.codes == SAFETY_CODES[title]


def test_every_section_on_safety_is_run_and_its_result_can_be_read() -> None:
    shown = [(title, block) for title, section in SAFETY.items() for block in section]
    assert set(SAFETY_CODES) == {title for title, block in shown if block.kind == "console"}
    assert {block.kind for _, block in shown} == {*EXECUTED, "sh", "json"}
    (example,) = [block.text for _, block in shown if block.kind == "json" and '"landed"' in block.text]
    episode = Episode.model_validate(json.loads(example))
    assert (episode.checked.landed, episode.exposed, episode.checked.utility) == (False, True, True)
    assert [(call.name, call.status) for call in episode.calls] == [("read_file", "run"), ("send_money", "denied")]
