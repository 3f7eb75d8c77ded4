"""The baseline target without a model: it answers with the line of the schedule that has the most similar words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.api import load_suite, score
from pytest_packbench.cases.load import parse_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.engine.targets import TargetCaller, import_target
from pytest_packbench.model.request import ModelRequest, VerifyContext, VerifyRequest, without_model
from pytest_packbench.model.run import RunOptions
from pytest_packbench.packs.tariff.lexical import Index, target
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.schedule import TariffLine
from tests.unit.small_tariff_suite import SCHEDULE, small_suite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts


SPEC = "pytest_packbench.packs.tariff.lexical:target"


def run_target(text: str, *evidence: dict[str, str], schedule: Path | None = SCHEDULE) -> dict[str, Any]:
    llm = Replay(None, source="fixtures/a.json")
    files = {} if schedule is None else {"hts": schedule}
    context = VerifyContext(llm=llm, suite="tariff", case_id="a", mode="fixture", files=files)
    return target(VerifyRequest(input=text, evidence=evidence), context)


@pytest.mark.parametrize(
    ("text", "evidence", "code", "rate"),
    [
        ("Garlic flour, ground from dried cloves", "", "0712.90.40.20", 29.8),
        ("a textbook of geometry", "", "4901.99.00.70", 0.0),
        ("Photographs of the old harbour", "", "4911.91.40.00", 0.0),
        ("RUM, in casks of two hundred liters", "", "2208.40.20.00", None),
        ("Temporary garlic powder", "", "0712.90.40.20", 29.8),
        ("goods of paper", "pictures and designs", "4911.91.40.00", 0.0),
    ],
)
def test_the_answer_is_the_line_with_the_most_similar_words_and_its_rate(
    text: str, evidence: str, code: str, rate: float | None
) -> None:
    outcome = read(run_target(text, *([{"source_id": "a", "text": evidence}] if evidence else [])))
    assert (outcome.accepted, outcome.baseline_code, outcome.baseline_rate_pct) == (True, code, rate)
    assert outcome.levers == outcome.what_ifs == 0


def test_the_whole_answer_and_the_whole_refusal(expected: ExpectedTexts) -> None:
    answers = [run_target("garlic powder, and powder of garlics"), run_target("zzz 42")]
    expected.check(f"{json.dumps(answers, indent=1)}\n", "json")


def test_the_answer_is_scored_as_any_other(tmp_path: Path) -> None:
    small = small_suite(tmp_path)
    case = json.loads(small.path("powder").read_text("utf-8"))
    result = score(case, run_target(case["input"]["input"]), suite=load_suite(small.folder))
    assert (result.score, result.match_depth) == (1.0, 10)


def line(number: int, text: str) -> TariffLine:
    return TariffLine(f"01{number:02}000000", (text,))


@pytest.mark.parametrize(
    ("lines", "text", "code"),
    [
        ([line(1, "horse"), line(2, "cow"), line(3, "cow"), line(4, "sheep")], "one cow, two cows", "0102000000"),
        (
            [
                *(line(n, "cow hide") for n in (1, 2, 3)),
                *(line(n, "sheep wool") for n in range(4, 20)),
                line(99, "bell"),
            ],
            "a cow with a bell",
            "0199000000",
        ),
        ([line(1, "cow"), line(2, "cow"), line(3, "sheep"), line(4, "goat")], "a cow", "0101000000"),
        ([line(1, "cow"), line(2, "cow"), line(3, "cow"), line(4, "sheep")], "a cow", None),
        ([], "anything", None),
    ],
    ids=["of equals the first", "a rare word", "a word of half the lines", "no common word", "an empty schedule"],
)
def test_the_best_line(lines: list[TariffLine], text: str, code: str | None) -> None:
    best = Index(lines).best(text)
    assert (best and best[0].code) == code


def test_a_schedule_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "schedule.tsv"
    path.write_bytes(SCHEDULE.read_bytes())
    first = run_target("garlic flour", schedule=path)
    path.unlink()
    assert run_target("garlic flour", schedule=path) == first


def test_without_a_schedule_the_error_names_the_settings() -> None:
    with pytest.raises(ValueError, match="ini packbench_hts or environment PACKBENCH_HTS"):
        run_target("garlic", schedule=None)


@without_model
def calling(_: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    context.llm.complete_sync(ModelRequest(role="propose", system="", messages=()))
    return {}


@pytest.mark.parametrize(("chosen", "kind"), [(import_target(SPEC), None), (calling, "cassette_missing")])
def test_a_target_without_a_model_needs_no_recording_and_may_not_call_one(
    tmp_path: Path, chosen: Any, kind: str | None
) -> None:
    small = small_suite(tmp_path)
    path = small.path("powder")
    loaded = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff")
    context = SuiteContext(
        suite=load_suite(small.folder),
        pack=TariffPack(),
        caller=TargetCaller(chosen),
        target_name="floor",
        options=RunOptions(files={"hts": small.schedule}),
    )
    result = attempt(context, loaded)
    assert (result.failure and result.failure.kind, result.cassette) == (kind, None)
    assert (result.score is not None and result.score.passed) == (kind is None)
