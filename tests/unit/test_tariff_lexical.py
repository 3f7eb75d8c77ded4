"""The floor: the line with the most similar words, as an accepted result, without any model."""

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
from pytest_packbench.model.request import VerifyContext, VerifyRequest, without_model
from pytest_packbench.model.run import RunOptions
from pytest_packbench.packs.tariff import lexical
from pytest_packbench.packs.tariff.lexical import Index, target
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.schedule import Schedule, TariffLine
from tests.unit.small_tariff_suite import small_suite, write_schedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import Attempt

SPEC = "pytest_packbench.packs.tariff.lexical:target"


def context(**files: Path) -> VerifyContext:
    llm = Replay(None, source="fixtures/a.json")
    return VerifyContext(llm=llm, suite="tariff", case_id="a", mode="fixture", files=files)


@pytest.fixture
def run_target(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Ask the target about goods."""
    path = write_schedule(tmp_path / "schedule.tsv")
    return lambda text, *evidence: target(VerifyRequest(input=text, evidence=evidence), context(hts=path))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Garlic flour, ground from dried cloves", "0712.90.40.20"),
        ("a textbook of geometry", "4901.99.00.70"),
        ("Photographs of the old harbour", "4911.91.40.00"),
        ("RUM, in casks of two hundred liters", "2208.40.20.00"),
        ("Temporary garlic powder", "0712.90.40.20"),
    ],
)
def test_the_line_with_the_most_similar_words(run_target: Callable[..., dict[str, Any]], text: str, code: str) -> None:
    outcome = read(run_target(text))
    assert outcome.accepted
    assert outcome.baseline_code == code
    assert outcome.levers == outcome.what_ifs == 0


def test_evidence_counts_as_text(run_target: Callable[..., dict[str, Any]]) -> None:
    document = {"source_id": "a", "text": "pictures and designs"}
    assert read(run_target("goods of paper", document)).baseline_code == "4911.91.40.00"


@pytest.mark.parametrize(("text", "rate"), [("garlic flour", 29.8), ("textbook", 0.0), ("rum", None)])
def test_the_rate_is_the_schedules(run_target: Callable[..., dict[str, Any]], text: str, rate: float | None) -> None:
    assert read(run_target(text)).baseline_rate_pct == rate


def test_without_a_shared_word_it_refuses(run_target: Callable[..., dict[str, Any]]) -> None:
    outcome = read(run_target("zzz 42"))
    assert outcome.refused
    assert outcome.refusal_category == "insufficient_info"


def test_the_answer_is_scored_as_any_other(tmp_path: Path) -> None:
    small = small_suite(tmp_path)
    case = json.loads(small.path("powder").read_text("utf-8"))
    request = VerifyRequest(**case["input"])
    found = score(case, target(request, context(hts=small.schedule)), suite=load_suite(small.folder))
    assert found.score == 1.0
    assert found.match_depth == 10


def test_equals_are_taken_in_the_order_of_the_schedule() -> None:
    names = ("horse", "cow", "cow", "sheep")
    index = Index([TariffLine(f"010{number}000000", (name,)) for number, name in enumerate(names, start=1)])
    best = index.best("one cow, two cows")
    assert best is not None
    assert best[0].code == "0102000000"


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    lines = [TariffLine(f"{number:010}", ("cow hide",)) for number in range(1, 4)]
    lines += [TariffLine(f"{number:010}", ("sheep wool",)) for number in range(4, 20)]
    best = Index([*lines, TariffLine("0199000000", ("brass bell",))]).best("a cow with a bell")
    assert best is not None
    assert best[0].code == "0199000000"


def test_an_empty_schedule_has_no_best_line() -> None:
    assert Index([]).best("anything") is None


def test_the_index_is_built_once(
    tmp_path: Path, run_target: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_target("garlic flour")
    (tmp_path / "schedule.tsv").unlink()
    monkeypatch.setattr(lexical, "Index", None)
    assert run_target("garlic flour") == first


def test_without_a_schedule_it_says_how_to_give_one() -> None:
    with pytest.raises(ValueError, match="ini packbench_hts or environment PACKBENCH_HTS"):
        target(VerifyRequest(input="garlic"), context())


def attempt_of(tmp_path: Path, chosen: Any) -> Attempt:
    """Run a case that has a cassette against a target."""
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
    return attempt(context, loaded)


def test_a_target_without_a_model_needs_no_recording(tmp_path: Path) -> None:
    tried = attempt_of(tmp_path, import_target(SPEC))
    assert tried.failure is None
    assert tried.cassette is None
    assert tried.score is not None
    assert tried.score.passed


def test_a_target_that_says_it_asks_no_model_may_not_ask_one(tmp_path: Path) -> None:
    @without_model
    def liar(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        from pytest_packbench.model.request import ModelRequest

        context.llm.complete_sync(ModelRequest(role="propose", system="", messages=()))
        return {}

    tried = attempt_of(tmp_path, liar)
    assert tried.failure is not None
    assert tried.failure.kind == "cassette_missing"


def test_the_schedule_brings_a_rate_for_each_line(tmp_path: Path) -> None:
    schedule = Schedule.read(write_schedule(tmp_path / "schedule.tsv"))
    assert all(schedule.rate(line.code) is not None for line in schedule.lines())
