"""One attempt gives one result: targets of every form are called, and each mistake of a target or a pack is named."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import AttemptState, Failure, attempt
from pytest_packbench.engine.targets import as_target
from pytest_packbench.engine.trial_results import CaseRef, build_result, build_trial
from pytest_packbench.model.answer import Agreement
from pytest_packbench.model.case import Case
from pytest_packbench.model.pack import Comparison, RecordFacts
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.result import Firing, Term, format_timestamp, result_from, result_sent
from tests.engine.attempts import Echo, EchoPack, case, context, suite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import SuiteConfig


class Gated(Echo):
    @property
    def firings(self) -> tuple[Firing, ...]:
        return (Firing(hook="gate", decision="pass", rule=3),)


class GatedPack(EchoPack):
    answer_model = Gated

    def terms(self, case: Case, answer: Echo, rules: SuiteConfig) -> Iterator[Term | Agreement]:
        yield from super().terms(case, answer, rules)
        yield Agreement("full")


def attempt_with(folder: Path, target: Callable[..., Any], pack: EchoPack | None = None) -> AttemptState:
    return attempt(context(folder, target, mode="fixture", pack=pack or GatedPack()), case(q=1))


def failure_with(folder: Path, target: Callable[..., Any], pack: EchoPack | None = None) -> Failure:
    finished = attempt_with(folder, target, pack)
    assert finished.failure is not None
    assert finished.score is None
    return finished.failure


class Verifier:
    def verify(self, request: VerifyRequest) -> dict[str, Any]:
        return {"points": 0.5 if request.input == {"q": 1} else 0}


async def async_target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    return {"points": 0.5 if context.case_id == "a" else 0}


FORMS: dict[str, Callable[..., Any]] = {
    "keyword": lambda request, *, more=0: {"points": 0.5 + more},
    "request": lambda request: {"points": 0.5},
    "request and context": lambda request, context: {"points": 0.5 if context.mode == "fixture" else 0},
    "any number": lambda *both: {"points": 0.5 if len(both) == 2 else 0},
    "async": async_target,
    "verify": as_target(Verifier(), "v"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_target_may_have_any_of_these_forms(tmp_path: Path, form: str) -> None:
    finished = attempt_with(tmp_path, FORMS[form])
    assert finished.failure is None
    assert finished.score is not None
    assert (finished.score.score, finished.score.verdict) == (0.5, "passed")


def test_a_later_change_of_a_result_has_no_effect(tmp_path: Path) -> None:
    result: dict[str, Any] = {"points": 0.0, "seen": []}

    def target(_: object) -> dict[str, Any]:
        result["points"] += 0.25
        result["seen"].append(result["points"])
        return result

    payloads = [attempt_with(tmp_path, target).payload for _ in range(2)]
    assert payloads == [{"points": 0.25, "seen": [0.25]}, {"points": 0.5, "seen": [0.25, 0.5]}]


def test_an_error_shows_only_the_frames_of_the_user(tmp_path: Path) -> None:
    def target(request: object) -> None:
        raise KeyError("lost")

    failure = failure_with(tmp_path, target)
    assert failure.message == "the target raised KeyError: 'lost'"
    (frame,) = failure.details
    assert "test_attempt.py" in frame


def test_a_target_that_cannot_be_called_here_is_an_error_that_says_why(tmp_path: Path) -> None:
    shared = context(tmp_path, async_target, mode="fixture", pack=GatedPack())

    async def call() -> Failure | None:
        return attempt(shared, case(q=1)).failure

    inside = asyncio.run(call())
    shared.caller.close()
    assert inside is not None
    assert inside.message == "the target raised RuntimeError: an async target can't be called from a running event loop"
    # a function of C that tells nobody what it takes
    failure = failure_with(tmp_path, as_target(next, "n"))
    assert failure.message == "the target raised TypeError: 'VerifyRequest' object is not an iterator"


def test_a_result_contains_its_record_and_is_stored_as_json(tmp_path: Path) -> None:
    loaded = case(notes={"tags": ["x"]})
    suite_context = context(tmp_path, lambda request: {"points": 0.5}, mode="fixture", pack=GatedPack())
    finished = attempt(suite_context, loaded)
    names = {"case_id": "a", "nodeid": "x::a", "file": "x"}
    case_ref = CaseRef.at(suite(tmp_path), GatedPack(), loaded, **names)
    result = build_result(case_ref, finished, suite_context, "01RUN")
    assert result.record is not None
    record = EvalRecord.from_json(result.record)
    assert EvalRecord.from_json_line(record.to_json_line(), strict=False) == record
    assert result.record == json.loads(record.to_json_line())
    assert [hook.rule for hook in record.hook_decisions] == [3]
    assert (record.run_id, record.wall_clock_ms, record.timestamp) == (
        "01RUN",
        result.attempt.duration_ms,
        result.attempt.timestamp,
    )
    stored = json.loads(json.dumps(result.as_json()))
    assert result_from(stored, stored["record"]) == result
    assert result_sent(stored) == result
    # what a pack got wrong ends no session: other processes take it as it is
    wrong: dict[str, Any] = {"match_level": 3}
    odd = replace(result, score=replace(result.score, **wrong))
    assert result_sent(odd.as_json()) == odd
    timestamps = format_timestamp(999_999_999), format_timestamp(1_778_055_332_123_999_999)
    assert timestamps == ("1970-01-01T00:00:00.999Z", "2026-05-06T08:15:32.123Z")
    # a clock that is wrong
    assert (format_timestamp(-(10**21))[:19], format_timestamp(10**21)[:4]) == ("1970-01-01T00:00:00", "9999")
    with pytest.raises(ValueError, match="can't be read"):
        build_result(case_ref._replace(loaded=None), finished, suite_context, "01RUN")


def trial_of(folder: Path, pack: EchoPack, result: dict[str, Any], loaded: LoadedCase, **changes: Any) -> Result:
    """The result of a trial."""
    shared = context(folder, lambda _: result, mode="fixture", pack=pack, redactor=Redactor({"A_KEY": PRIVATE}))
    shared = replace(shared, options=replace(shared.options, **changes))
    ref = CaseRef.at(shared.suite, pack, loaded, case_id="a", nodeid="a.json::a", file="a.json")
    return build_trial(ref, attempt(shared, loaded), shared, "01RUN").result


class BreakingDict(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("gone")


@pytest.mark.parametrize("result", [{"points": float("nan")}, {"points": {1}}, [1], None, BreakingDict(points=1.0)])
def test_a_result_that_cannot_be_read_is_an_answer_with_the_score_0(tmp_path: Path, result: Any) -> None:
    score = trial_of(tmp_path, GatedPack(), result, case()).score
    assert (score.score, score.verdict, [term.name for term in score.terms]) == (0.0, "failed", ["unreadable_answer"])


@pytest.mark.parametrize(
    ("reported", "counted"),
    [(2**64 - 1, 2**64 - 1), (0, 0), (2**64, None), (10**4200, None), (-1, None), (True, None)],
    ids=lambda count: str(count)[:22] if abs(count or 0) < 10**30 else "huge",
)
def test_a_reported_token_count_counts_where_a_record_can_contain_it(
    tmp_path: Path, reported: int, counted: int | None
) -> None:
    usage = {"tokens_input": reported, "tokens_output": 1}
    finished = attempt_with(tmp_path, lambda request: {"points": 0.5, "usage": usage})
    assert (finished.failure, finished.tokens_input, finished.tokens_output) == (None, counted, 1)


class ExplainingPack(EchoPack):
    """A pack that compares in rows."""

    def facts(self, case: Case, answer: Echo | None, terms: Any) -> RecordFacts:
        rows = (
            *(("decision", "answer", "answer (yes)"), ("size", "2", "3"), ("guards", "", "none")),
            ("unit", "m", "\ncm"),
        )
        return RecordFacts(compared=[Comparison(what=what, expected=one, actual=other) for what, one, other in rows])


class Described(Case):
    """A case that describes itself, and may keep its prompts to itself."""

    @property
    def keeps_prompts(self) -> bool:
        return bool(self.input.get("keeps", True))

    @property
    def described(self) -> str:
        if self.input.get("stops"):
            raise KeyboardInterrupt
        text: str = self.input.get("text", "")
        return text


class DescribedPack(ExplainingPack):
    case_model = Described


PRIVATE = "s3cr3t-in-a-case"
INPUT: dict[str, Any] = {
    "q": f"how\n many {PRIVATE}?",
    "of": ["m", None, {"exact": True, "deep": ["", 1.5]}],
    "long": "x" * 500,
}


def shown_of(folder: Path, pack: EchoPack, points: float = 0.0, **more: Any) -> tuple[str, ...]:
    """The verdict or kind of a case, its input, expected and actual values."""
    changes = {name: more.pop(name) for name in list(more) if name == "record_prompts"}
    loaded = case(**INPUT, **more)
    loaded = loaded._replace(case=pack.case_model.model_validate(loaded.case.model_dump(by_alias=True)))
    score = trial_of(folder, pack, {"points": points}, loaded, **changes).score
    return score.kind or score.verdict, score.input_text, score.expected_text, score.actual_text


def test_a_failed_case_shows_what_was_asked_expected_and_answered(tmp_path: Path) -> None:
    verdict, asked, *values = shown_of(tmp_path, ExplainingPack())
    assert re.fullmatch(r"q: how many \S*\?; of: m; exact: true; deep: 1.5; long: x+…", asked)
    assert "s3cr3t" not in asked
    assert (verdict, len(asked), values) == ("failed", 200, ["size: 2; unit: m", "size: 3; unit: cm"])
    assert shown_of(tmp_path, EchoPack())[2:] == ("answer", "answer")
    assert shown_of(tmp_path, ExplainingPack(), points=1.0) == ("passed", "", "", "")
    assert shown_of(tmp_path, DescribedPack(), text="my own")[1] == "my own"
    assert shown_of(tmp_path, DescribedPack(), text=7)[0] == "pack_error"
    with pytest.raises(KeyboardInterrupt):
        shown_of(tmp_path, DescribedPack(), stops=True)
    # texts that stay with the user are in no report
    for hidden in ({"keeps": False}, {"record_prompts": False}):
        assert shown_of(tmp_path, DescribedPack(), **hidden) == ("failed", "", *values)


class QuotingPack(EchoPack):
    """A pack whose records quote the answer, and that may break on it."""

    def terms(self, case: Case, answer: Echo, rules: SuiteConfig) -> Iterator[Term | Agreement]:
        if answer.said == "break":
            raise RuntimeError("no score for this")
        yield from super().terms(case, answer, rules)

    def facts(self, case: Case, answer: Echo | None, terms: Any) -> RecordFacts:
        return RecordFacts(extra={} if answer is None else {"said": answer.said})


async def later(*_: object) -> AsyncIterator[Term]:
    yield Term(name="late")


def returning(method: str, value: Any) -> EchoPack:
    pack: EchoPack = type("Odd", (EchoPack,), {method: lambda *_: value})()
    return pack


def odd_answer(name: str, value: Any) -> EchoPack:
    pack: EchoPack = type(
        "Odd", (EchoPack,), {"answer_model": type("Odd", (Echo,), {name: property(lambda _: value)})}
    )()
    return pack


ODD: Any = {"value": "1"}
YIELD = "expected Terms; did you mean yield"
PAIRS = "expected pairs of texts"
PACKS: list[tuple[EchoPack, str, str]] = [
    (returning("expects_refusal", "no"), "pack_error", "expects_refusal() returned 'no', expected True or False"),
    (returning("terms", 1), "scorer_error", f"terms() returned 1, {YIELD}"),
    (returning("terms", None), "scorer_error", f"terms() returned None, {YIELD}"),
    (returning("terms", Term(name="a")), "scorer_error", YIELD),
    (returning("terms", later()), "scorer_error", YIELD),
    (returning("terms", [1]), "scorer_error", "terms() yielded 1, expected a Term or an Agreement"),
    (returning("terms", [Term(name="a", **ODD)]), "scorer_error", "the Term 'a' with the value '1', expected a number"),
    (returning("facts", {}), "pack_error", "facts() returned {}, expected RecordFacts"),
    *(
        (returning("facts", RecordFacts(labels=labels)), "pack_error", f"labels {labels!r}, {PAIRS}")  # type: ignore[arg-type]  # what a pack may do
        for labels in ("ab", ("a", "b"), (("a", 1),))
    ),
    (odd_answer("refused", None), "reader_error", "an Outcome whose refused is None, expected True or False"),
    (odd_answer("refused", ()), "reader_error", "an Outcome whose refused is a tuple, expected True or False"),
    (odd_answer("shown", 5), "reader_error", "an Outcome whose answer is a int, expected a str or None"),
]


@pytest.mark.parametrize(("pack", "kind", "message"), PACKS)
def test_what_a_pack_returns_by_mistake_is_named(pack: EchoPack, kind: str, message: str, tmp_path: Path) -> None:
    found = trial_of(tmp_path, pack, {"points": 1.0}, case()).score
    assert (found.verdict, found.kind) == ("error", kind)
    assert message in found.message


@pytest.mark.parametrize(
    ("said", "verdict", "message"),
    [
        ("yes", "passed", ""),
        ("\ud800", "failed", "unpaired surrogate at /said; expected text that UTF-8 can encode"),
        ("break", "scorer_error", "RuntimeError: no score for this"),
    ],
)
def test_an_answer_that_no_record_can_quote_is_unreadable_and_one_that_breaks_the_pack_an_error(
    said: str, verdict: str, message: str, tmp_path: Path
) -> None:
    score = trial_of(tmp_path, QuotingPack(), {"points": 1.0, "said": said}, case()).score
    assert (score.kind or score.verdict) == verdict
    assert message in f"{score.message} {score.terms}"
