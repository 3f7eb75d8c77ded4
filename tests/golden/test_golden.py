"""What commands print, how they exit, and what they write.

Each test is a scenario: real commands in a project of its own, compared with `expected/<scenario>`. After an intended
change: `PACKBENCH_UPDATE_GOLDEN=1 pytest tests/golden`, and the difference in git is part of the review.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.project import EXPECTED, Project
from tests.servers.fake import FakeServer
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

DESK = "--packbench-suite=desk"
SUMMARY = ("summary.md",)
# pytester forgets what a run imported: what is imported here is imported once
_WARM = [
    import_module(name)
    for extra, name in (
        ("agentdojo", "pytest_packbench.packs.agent_safety.agentdojo.pair"),
        ("openai", "openai.resources.chat.completions"),
        ("openai", "anyio._backends._asyncio"),
    )
    if find_spec(extra) is not None
]
PYDANTIC = tuple(int(part) for part in version("pydantic").split(".")[:2])
NEEDS_AGENTDOJO = pytest.mark.skipif(find_spec("agentdojo") is None, reason="the extra agentdojo is not installed")
NEEDS_OPENAI = pytest.mark.skipif(find_spec("openai") is None, reason="the extra openai is not installed")


DESK_MODULE = """\
import os
import pathlib

from pytest_packbench.model.request import ModelRequest


def sort(request, context):
    text = request.input["message"]
    print("sorting", context.case_id)
    if "raise" in text:
        raise OSError("the desk is closed")
    if "interrupt" in text and not pathlib.Path("open").exists():
        raise KeyboardInterrupt
    if "die" in text and not pathlib.Path("alive").exists():
        os._exit(9)
    queue = "billing" if "refund" in text or "money" in text else "general"
    return {"queue": queue, "order": int("".join(filter(str.isdigit, text)) or 0)}


def careless(request):
    return {"queue": "billing", "order": 7}


async def ask(request, context):
    question = ModelRequest(
        role="sort",
        system="Name the queue.",
        messages=({"role": "user", "content": request.input["message"]},),
        output_schema={"type": "object", "properties": {"queue": {"type": "string"}}, "required": ["queue"]},
    )
    answer = await context.llm.complete(question)
    if answer.refusal:
        return {"refusal": {"category": "declined"}}
    return {**answer.content, "order": 1017}
"""

RULES = """\
pack: generic
description: messages, sorted into queues
target: desk:sort
criteria:
  - {exact: /queue}
  - {exact: /order}
gates:
  - {metric: pass_rate, min: 0.9}
"""

REFUND = "a refund for order 1017"


def case(case_id: str, message: str, queue: str, order: int, *, hard: bool = False, **more: Any) -> dict[str, Any]:
    """Return a case of the desk."""
    return {
        "id": case_id,
        "pack_id": "generic",
        "case_type": "hidden" if hard else "plain",
        "difficulty": "hard" if hard else "easy",
        "input": {"message": message},
        "expected": {"queue": queue, "order": order},
        "notes": {"source": "made up", "tags": ["hidden" if hard else "refund"]},
        **more,
    }


def put(project: Project, case: dict[str, Any], suite: str = "desk") -> None:
    """Write a case of a suite."""
    project.write(f"storage/benchmarks/{suite}/cases/{case['case_type']}/{case['id']}.json", case)


def desk(project: Project, rules: str = RULES, suite: str = "desk") -> None:
    """Write the desk: two cases that pass and one that fails."""
    project.write("desk.py", DESK_MODULE)
    project.write(f"storage/benchmarks/{suite}/suite.yaml", rules)
    put(project, case("refund", REFUND, "billing", 1017), suite)
    put(project, case("money", "my money for 2044", "billing", 2044, hard=True), suite)
    put(project, case("angry", "this is a scandal, 9", "complaints", 9, hard=True), suite)


def broken(project: Project) -> None:
    """Add cases with every kind of error, and quarantined ones."""
    put(project, case("raises", "please raise 5", "general", 5))
    folder = "storage/benchmarks/desk/cases/plain"
    project.write(f"{folder}/no_json.json", "{\n")
    project.write(
        f"{folder}/wrong_key.json", case("wrong_key", "x", "general", 0) | {"difficulty": "simple", "typo": 1}
    )
    put(project, case("held", "x", "general", 0, notes={"skip": "waits for the new desk"}))
    put(project, case("hoped", "a scandal, 3", "complaints", 3, notes={"xfail": "known since May"}))


@pytest.fixture
def project(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    """A project that is named after the test."""
    return Project(request.node.name.removeprefix("test_"), pytester)


def act(asked: ProviderRequest) -> object:
    """A model that sorts messages; it declines some, and breaks on some."""
    if "decline" in asked.text:
        return openai_reply(None, refusal="I won't.", model=asked.model)
    if "cut" in asked.text:
        return openai_reply('{"queue": "bil', finish_reason="length", model=asked.model)
    return {"queue": "billing" if "refund" in asked.text else "general"}


@pytest.fixture
def live(project: Project) -> Iterator[tuple[str, ...]]:
    """Options for a run on a model's server on loopback."""
    project.env["OPENAI_API_KEY"] = "sk-planted-0123456789"
    with FakeServer(answer_with(act)) as server:
        # what is recorded names the address, and the server's port is another in each run
        project.env["HTTP_PROXY"] = server.url
        backend = ("--packbench-backend=openai", "--packbench-model=fake-1")
        yield (*backend, "--packbench-base-url=http://model.test/v1", "--packbench-concurrency=1")


def test_tariff(project: Project) -> None:
    project.suite("tariff")
    project.pytest(
        "all",
        "--packbench-suite=tariff",
        only=("summary.md", "records.jsonl", "payloads.jsonl"),
        hashing=("records.jsonl", "payloads.jsonl"),
    )
    project.pytest(
        "workers", "--packbench-suite=tariff", "-n", "2", only=("records.jsonl",), hashing=("records.jsonl",)
    )
    project.packbench("rescore", "rescore", "tariff/latest")
    project.packbench("lint", "lint", "tariff")
    project.check()


def test_tariff_some(project: Project) -> None:
    project.suite("tariff", "adv_61", "neg_21_s", "nos_07", "pos_70_glass", "sav_61")
    project.pytest("some", "--packbench-suite=tariff")
    project.write("careless.py", CARELESS)
    project.pytest(
        "careless", "--packbench-suite=tariff", "--packbench-target=careless:verify", "-k", "pos_70 or neg_21"
    )
    project.check()


CARELESS = """\
def verify(request):
    return {"status": "NEEDS_INPUT", "error": "no idea"}
"""


def test_generic(project: Project) -> None:
    project.packbench("init", "init", "mine")
    project.pytest("verbose", "--packbench-suite=mine", "-v", "--junitxml=junit.xml")
    project.pytest("by_id", "storage/benchmarks/mine/cases/answer/refund_by_name.json::refund_by_name", only=SUMMARY)
    project.packbench("lint", "lint", "mine")
    project.packbench("lint_json", "lint", "mine", "--format", "json")
    project.packbench("init_again", "init", "mine")
    project.check()


def test_safety(project: Project) -> None:
    project.suite("harmbench", "harmless_s", "harmless_own_poem")
    project.suite("injecagent", "own_ds_base_1", "own_dh_enhanced_1")
    project.pytest("harmbench", "--packbench-suite=harmbench")
    project.pytest("injecagent", "--packbench-suite=injecagent")
    project.pytest("unguarded", "--packbench-suite=injecagent", "--packbench-guard=none")
    project.pytest("refuser", "--packbench-suite=injecagent", "--packbench-model=refuser", "--packbench-guard=none")
    project.check()


@NEEDS_AGENTDOJO
def test_agentdojo(project: Project) -> None:
    project.suite("agentdojo", "banking_user_task_0_injection_task_8", "slack_user_task_2", "travel_user_task_4_")
    project.pytest("guarded", "--packbench-suite=agentdojo")
    project.pytest("unguarded", "--packbench-suite=agentdojo", "--packbench-guard=none", "--packbench-baseline=latest")
    project.pytest(
        "vacuous", "--packbench-suite=agentdojo", "--packbench-model=refuser", "--packbench-guard=none", only=SUMMARY
    )
    project.check()


def test_broken(project: Project) -> None:
    desk(project)
    broken(project)
    project.pytest("broken", DESK, "--junitxml=junit.xml")
    project.pytest("target_missing", DESK, "--packbench-target=desk:nothing", "-k", "refund")
    project.pytest("recording_missing", DESK, "--packbench-target=desk:ask", "-k", "refund")
    project.packbench("validate", "validate", "storage/benchmarks/desk", "reports/benchmarks/desk", "pytest.ini")
    project.packbench("lint", "lint", "desk")
    project.write("storage/benchmarks/desk/suite.yaml", RULES + "treshold: 0.5\n")
    project.pytest("bad_suite", DESK)
    project.packbench("bad_suite_listed", "lint", "desk")
    project.check()


def test_usage(project: Project) -> None:
    desk(project)
    project.pytest("list", "--packbench-list")
    project.pytest("no_suite", "--packbench-suite=dekk")
    project.env["PACKBENCH_MODE"] = "dead"
    project.pytest("bad_mode", DESK)
    del project.env["PACKBENCH_MODE"]
    project.pytest("bad_shard", DESK, "--packbench-shard=4/3")
    project.pytest("no_run", DESK, "--packbench-resume=latest")
    project.pytest("no_backend", DESK, "--packbench-mode=live")
    project.pytest("nothing_selected", DESK, "-k", "nowhere")
    project.packbench("no_command", "dance")
    project.packbench("help", "--help")
    project.packbench("compare_nothing", "compare", "--baseline", "desk/latest", "--current", "nowhere")
    project.packbench("history_of_nothing", "history", "desk")
    project.check()


def test_partial(project: Project) -> None:
    desk(project)
    project.pytest("first_failure", DESK, "-x")
    project.pytest("selected", DESK, "-k", "refund or money", only=SUMMARY)
    put(project, case("pause", "interrupt 4", "general", 4))
    project.pytest("interrupted", DESK)
    project.write("open", "")
    project.pytest("resumed", DESK, "--packbench-resume=latest")
    project.pytest("nothing_missing", DESK, "--packbench-resume=latest", only=SUMMARY)
    put(project, case("pause", "interrupt 5", "general", 5))
    project.pytest("changed", DESK, "--packbench-resume=latest")
    project.pytest("changed_run", DESK, "--packbench-resume=latest", "-o", "packbench_resume_changed=run", only=SUMMARY)
    project.check()


def test_killed(project: Project) -> None:
    desk(project)
    put(project, case("late", "die 4", "general", 4))
    project.pytest("killed", DESK, process=True)
    project.packbench("validate", "validate", "reports/benchmarks/desk")
    project.write("alive", "")
    project.pytest("resumed", DESK, "--packbench-resume=latest")
    project.check()


def test_gates(project: Project) -> None:
    desk(project, RULES + "  - {must_pass: [refund]}\n  - {metric: mean_score, min: 0.5, by: case_type}\n")
    project.pytest("suite", DESK, "--packbench-gate=suite")
    project.write("desk.py", project.root.joinpath("desk.py").read_text("utf-8").replace('"general"', '"complaints"'))
    project.pytest("better", DESK, "--packbench-baseline=latest")
    first, second = (str(path) for path in project.runs("desk"))
    project.packbench("gate", "gate", first, "desk/latest", "--require", "letters")
    project.packbench("compare", "compare", "--baseline", first, "--current", second, "--out", "page.md")
    project.packbench(
        "worse", "compare", "--baseline", second, "--current", first, "--fail-on", "regressed>0, mean<-0.02"
    )
    project.packbench("history", "history", "desk")
    project.packbench("history_json", "history", "desk", "--format", "json")
    project.packbench("report", "report", first)
    project.packbench(
        "report_of_both", "report", f"{first}/records.jsonl", f"{second}/records.jsonl", "--format", "json"
    )
    project.packbench(
        "report_strict", "report", "--strict", "-", stdin=(project.root / first / "records.jsonl").read_text()
    )
    project.write("storage/benchmarks/desk/suite.yaml", RULES + "thresholds: {accept: 0.3}\n")
    project.packbench("rescore", "rescore", first, "--out", "rescored.md")
    project.check()


@NEEDS_OPENAI
def test_trials_and_live(project: Project, live: tuple[str, ...]) -> None:
    desk(project, RULES + "trials: {at_least: 2}\n")
    put(project, case("declined", "decline 1017", "general", 1017))
    put(project, case("cut", "cut 1017", "general", 1017))
    project.pytest(
        "live", DESK, "--packbench-target=desk:ask", "--packbench-mode=live", "--packbench-trials=2", "-q", *live
    )
    asking = (DESK, "--packbench-target=desk:ask", "--packbench-mode=live", "-q")
    project.pytest("capped", *asking, "--packbench-max-tokens=20", *live, only=("errors.jsonl", "summary.md"))
    project.write("program.py", PROGRAM)
    program = "--packbench-target=cmd:python program.py"
    project.pytest("program", DESK, program, "--packbench-mode=live", "--packbench-concurrency=1", "-k", "not cut")
    project.check()


PROGRAM = """\
import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    text = asked["params"]["input"]["message"]
    if "decline" in text:
        print("I break the protocol", file=sys.stderr)
        sys.exit(3)
    result = {"queue": "billing", "order": 1017}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@NEEDS_OPENAI
def test_record(project: Project, live: tuple[str, ...]) -> None:
    project.normal.expect_cassettes()
    desk(project)
    put(project, case("declined", "decline 1017", "general", 1017))
    ask = (DESK, "--packbench-target=desk:ask")
    project.pytest("record", *ask, "--packbench-mode=record", "--packbench-cache=answers", *live)
    project.pytest("replay", *ask, only=("records.jsonl", "summary.md"))
    put(project, case("refund", REFUND + " now", "billing", 1017))
    project.pytest("outdated", *ask, "-k", "refund", only=("errors.jsonl",))
    project.packbench("validate", "validate", "storage/benchmarks/desk/fixtures")
    project.check()


def test_shards(project: Project) -> None:
    desk(project)
    broken(project)
    for number in (1, 2):
        project.pytest(f"shard_{number}", DESK, f"--packbench-shard={number}/2")
    parts = [str(path) for path in project.runs("desk")]
    project.packbench("merge_missing", "merge", parts[0])
    project.packbench("merge", "merge", *parts)
    project.check()


def test_workers(project: Project) -> None:
    desk(project)
    put(project, case("raises", "please raise 5", "general", 5))
    project.pytest("workers", DESK, "-n", "2")
    project.check()


MARKED = """\
import pytest

from desk import careless


@pytest.mark.packbench_cases("desk", case_type="plain")
def test_plain(packbench_case, packbench_check):
    packbench_check({"queue": "billing", "order": 1017})


@pytest.mark.packbench_cases("desk", case_type="hidden")
def test_hidden(packbench_case, packbench_request, packbench_check):
    if packbench_case.id == "angry":
        raise OSError("no desk")
    packbench_check(careless(packbench_request))


def test_beside():
    assert True
"""


def test_marked(project: Project) -> None:
    desk(project)
    project.write("test_desk.py", MARKED)
    project.pytest("marked")
    project.pytest("selected", "-m", "packbench(difficulty='easy')", only=SUMMARY)
    project.pytest("mixed_up", DESK, "test_desk.py", only=SUMMARY)
    project.check()


def test_github(project: Project) -> None:
    desk(project)
    put(project, case("raises", "please raise 5", "general", 5))
    page = project.write("step.md", "of another tool")
    project.env |= {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page), "GITHUB_WORKSPACE": str(project.root)}
    project.pytest("job", DESK, only=("step.md",))
    project.check()


def test_imported(project: Project) -> None:
    desk(project)
    project.write("more.csv", "id,text,queue,order\nlate,a refund for 5,billing,5\nodd,hello 6,general,\n")
    columns = ("--suite", "desk", "--input", "message=text", "--expected", "queue,order", "--json", "order")
    project.packbench("csv", "import", "csv", "more.csv", *columns)
    project.packbench("csv_written", "import", "csv", "more.csv", *columns, "--skip-bad", "--write")
    project.write("lines.jsonl", '{"input": "x", "expected": {"a": 1}}\n{"input": "y"}\n')
    project.packbench("jsonl", "import", "jsonl", "lines.jsonl", "--suite", "fresh", "--skip-bad", "--write")
    project.check()


def test_pack_of_others(project: Project) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "packbench-units"
    shutil.copytree(example, project.root, dirs_exist_ok=True)
    plugin = ("-p", "packbench_units.plugin", "--packbench-suite=units")
    pack = ("--pack", "packbench_units.pack:UnitsPack")
    project.pytest("run", *plugin)
    project.packbench("lint", "lint", "units", *pack)
    project.packbench("validate", "validate", "storage/benchmarks/units", *pack)
    project.packbench("gate", "gate", "units/latest", *pack)
    project.packbench("merge", "merge", "units/latest", *pack, only=())
    project.check()


@pytest.mark.skipif(PYDANTIC < (2, 14), reason="an older pydantic writes some numbers of JSON Schemas in another way")
def test_schemas(project: Project) -> None:
    for kind in ("case", "suite", "cassette", "record", "report"):
        project.packbench(kind, "schema", kind, shown=lambda text: f"sha256 {sha256(text.encode()).hexdigest()}")
    project.check()


API = """\
import json
import pathlib
import sys

import pytest_packbench
from pytest_packbench import CaseError, EvalRecord, RecordError, ResultError, SuiteError, load_suite, score

print(sorted(pytest_packbench.__all__))
suite = load_suite("storage/benchmarks/desk")
print(suite.name, suite.sha256, suite.bundled, suite.config)
case = json.loads(pathlib.Path("storage/benchmarks/desk/cases/plain/refund.json").read_text())
for result in ({"queue": "billing", "order": 1017}, {"queue": "billing"}, {"refusal": {"category": "x"}}):
    print(score(case, result, suite=suite))


def refused(kind, call):
    try:
        call()
    except kind as error:
        print(kind.__name__, error)


refused(CaseError, lambda: score(case | {"difficulty": "simple"}, {}, suite=suite))
refused(CaseError, lambda: score(case | {"pack_id": "genric"}, {}))
refused(SuiteError, lambda: load_suite("storage"))
refused(ResultError, lambda: score(json.loads(pathlib.Path("tariff.json").read_text()), []))
(folder,) = pathlib.Path("reports/benchmarks/desk").glob("*/")
for line in folder.joinpath("records.jsonl").read_text().splitlines():
    record = EvalRecord.from_json_line(line, strict=False)
    print(record.test_id, record.passed, record.to_json_line() == line)
refused(RecordError, lambda: EvalRecord.from_json_line(line))
refused(RecordError, lambda: EvalRecord.from_json_line(line[:-1], strict=False))
refused(RecordError, lambda: EvalRecord.from_json_line(line.replace('_version":1', '_version":2'), strict=False))
"""


def test_api(project: Project) -> None:
    desk(project)
    given = project.suite("tariff", "nos_07") / "cases" / "no_savings" / "nos_07_garlic_sold_as_seasoning.json"
    shutil.copy(given, project.root / "tariff.json")
    project.write("api.py", API)
    project.pytest("run", DESK, only=())
    project.script("api", "api.py")
    project.check()


def test_each_scenario_is_run() -> None:
    """The expected files of a removed scenario would never be read."""
    scenarios = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.name for path in EXPECTED.iterdir()} <= scenarios
