"""One attempt at one case without pytest: targets of every form, recordings, results."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.engine.attempt import AttemptState, Failure, attempt
from pytest_packbench.engine.recordings import Replay, ReplayError
from pytest_packbench.engine.targets import as_target, import_target
from pytest_packbench.engine.trial_results import CaseRef, build_result, build_trial
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.answer import Agreement
from pytest_packbench.model.case import Case
from pytest_packbench.model.pack import Comparison, RecordFacts
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.recording import Cassette
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import TargetError
from pytest_packbench.model.result import Firing, Term, format_timestamp, result_from, result_sent
from tests.cassettes import authored_cassette
from tests.unit.attempts import Echo, EchoPack, case, context, model_request, suite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.model.suite import SuiteConfig

ROLES = st.lists(st.sampled_from(["propose", "critique", "revise"]), max_size=6)


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


class BreakingDict(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("gone")


def test_a_result_that_nobody_can_read_is_an_answer_with_the_score_0(tmp_path: Path) -> None:
    results: list[Any] = [
        {"points": float("nan")},
        {"points": {1}},
        [1],
        None,
        BreakingDict(points=1.0),
    ]
    for result in results:
        finished = attempt_with(tmp_path, lambda request, *, result=result: result)
        assert finished.failure is None
        assert finished.score is not None
        assert (finished.score.score, finished.score.verdict) == (0.0, "failed")
        assert [term.name for term in finished.score.terms] == ["unreadable_answer"]


def test_a_later_change_of_a_result_has_no_effect(tmp_path: Path) -> None:
    result: dict[str, Any] = {"points": 0.0, "seen": []}

    def target(_: object) -> dict[str, Any]:
        result["points"] += 0.25
        result["seen"].append(result["points"])
        return result

    payloads = [attempt_with(tmp_path, target).payload for _ in range(2)]
    assert payloads == [{"points": 0.25, "seen": [0.25]}, {"points": 0.5, "seen": [0.25, 0.5]}]


def test_a_reported_token_count_counts_where_a_record_can_contain_it(tmp_path: Path) -> None:
    counts: dict[Any, int | None] = {2**64 - 1: 2**64 - 1, 0: 0, 2**64: None, 10**4200: None, -1: None, True: None}
    for reported, counted in counts.items():
        usage = {"tokens_input": reported, "tokens_output": 1}
        finished = attempt_with(tmp_path, lambda request, *, usage=usage: {"points": 0.5, "usage": usage})
        assert (finished.failure, finished.tokens_input, finished.tokens_output) == (None, counted, 1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"refused": None}, "refused is None, expected True or False"),
        ({"refused": object()}, "refused is a object, expected True or False"),
        ({"shown": 5}, "answer is a int, expected a str or None"),
    ],
)
def test_an_outcome_that_no_record_can_contain_is_an_error_of_the_reader(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    ((name, value),) = fields.items()
    answers: Any = type("Odd", (Echo,), {name: property(lambda _: value)})

    class OddPack(EchoPack):
        answer_model = answers

    failure = failure_with(tmp_path, lambda request: {"points": 1.0}, OddPack())
    message = f"the reader returned an Outcome whose {problem}"
    assert (failure.kind, failure.message) == ("reader_error", message)


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


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("json", "expected package.module:attr"),
        ("json:", "expected package.module:attr"),
        ("json:no.such", 'json has no "no.such"'),
        ("json:__doc__", "expected a function, or an object with verify(), invoke() or ainvoke(), got str"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error(spec: str, problem: str) -> None:
    with pytest.raises(TargetError, match=re.escape(problem)):
        import_target(spec)


def cassette(roles: list[str], request_sha256: str | None = None) -> Cassette:
    exchanges = [
        {"role": role, "answer": position, "request_sha256": request_sha256} for position, role in enumerate(roles)
    ]
    return Cassette.model_validate(authored_cassette("a", 1, exchanges))


@given(ROLES, ROLES)
def test_a_replay_matches_exactly_when_the_roles_do(recorded: list[str], called: list[str]) -> None:
    replay = Replay(cassette(recorded), source="f")
    answers = []
    for role in called:
        try:
            answers.append(replay.complete_sync(model_request(role)).content)
        except ReplayError:
            break
    replay.finish()
    assert (replay.mismatch == "") is (recorded == called)
    assert answers == list(range(len(answers)))


def test_a_recording_of_another_prompt_is_stale() -> None:
    for recorded in (canonical_sha256(model_request().as_json()), "1" * 64, None):
        replay = Replay(cassette(["ask"], recorded), source="f")
        replay.complete_sync(model_request())
        assert replay.stale is (recorded == "1" * 64)


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


class ExplainingPack(EchoPack):
    """A pack that compares in three rows."""

    def facts(self, case: Case, answer: Echo | None, terms: Any) -> RecordFacts:
        rows = (
            ("decision", "answer", "answer (yes)"),
            ("size", "2", "3"),
            ("guards", "", "none"),
            ("unit", "m", "\ncm"),
        )
        compared = [Comparison(what=what, expected=expected, actual=actual) for what, expected, actual in rows]
        return RecordFacts(compared=compared)


class Described(Case):
    """A case that says what it is about, and may keep its prompts to itself."""

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


def shown_of(
    folder: Path, pack: EchoPack, points: float = 0.0, more: dict[str, Any] | None = None, **changes: Any
) -> tuple[str, ...]:
    """Return what the result of a case says in words: its verdict or kind, its input, expected and actual values."""
    private = "s3cr3t-in-a-case"
    shared = context(
        folder, lambda _: {"points": points}, mode="fixture", pack=pack, redactor=Redactor({"A_KEY": private})
    )
    shared = replace(shared, options=replace(shared.options, **changes))
    inputs: dict[str, Any] = {
        "q": f"how\n many {private}?",
        "of": ["m", None, {"exact": True, "deep": ["", 1.5]}],
        "long": "x" * 500,
        **(more or {}),
    }
    loaded = case(**inputs)
    loaded = loaded._replace(case=pack.case_model.model_validate(loaded.case.model_dump(by_alias=True)))
    ref = CaseRef.at(shared.suite, pack, loaded, case_id="a", nodeid="a.json::a", file="a.json")
    result = build_trial(ref, attempt(shared, loaded), shared, "01RUN").result
    return (
        result.score.kind or result.score.verdict,
        result.score.input_text,
        result.score.expected_text,
        result.score.actual_text,
    )


def test_a_failed_case_says_what_was_asked_expected_and_answered(tmp_path: Path) -> None:
    verdict, asked, expected, actual = shown_of(tmp_path, ExplainingPack())
    assert re.fullmatch(r"q: how many \S*\?; of: m; exact: true; deep: 1.5; long: x+…", asked)
    assert "s3cr3t" not in asked
    assert (verdict, len(asked)) == ("failed", 200)
    assert (expected, actual) == ("size: 2; unit: m", "size: 3; unit: cm")
    assert shown_of(tmp_path, EchoPack())[2:] == ("answer", "answer")
    assert shown_of(tmp_path, ExplainingPack(), points=1.0) == ("passed", "", "", "")
    assert shown_of(tmp_path, DescribedPack(), more={"text": "my own"})[1] == "my own"
    assert shown_of(tmp_path, DescribedPack(), more={"text": 7})[0] == "pack_error"
    with pytest.raises(KeyboardInterrupt):
        shown_of(tmp_path, DescribedPack(), more={"stops": True})
    # texts that stay with the user are in no report
    kept_back: list[dict[str, Any]] = [{"more": {"keeps": False}}, {"record_prompts": False}]
    for hidden in (shown_of(tmp_path, DescribedPack(), **changes) for changes in kept_back):
        assert hidden == ("failed", "", expected, actual)


class Quoting(EchoPack):
    """A pack whose records quote the answer, and that may break on it."""

    def terms(self, case: Case, answer: Echo, rules: SuiteConfig) -> Iterator[Term | Agreement]:
        if answer.said == "break":
            raise RuntimeError("no score for this")
        yield from super().terms(case, answer, rules)

    def facts(self, case: Case, answer: Echo | None, terms: Any) -> RecordFacts:
        return RecordFacts(extra={} if answer is None else {"said": answer.said})


async def later(*_: object) -> AsyncIterator[Term]:
    yield Term(name="late")


@pytest.mark.parametrize(
    ("method", "returned", "kind", "message"),
    [
        ("expects_refusal", "no", "pack_error", "expects_refusal() returned 'no', expected True or False"),
        ("terms", 1, "scorer_error", "terms() returned 1, expected Terms; did you mean yield"),
        ("terms", None, "scorer_error", "terms() returned None, expected Terms; did you mean yield"),
        ("terms", Term(name="a"), "scorer_error", "expected Terms; did you mean yield"),
        ("terms", later(), "scorer_error", "expected Terms; did you mean yield"),
        ("terms", [1], "scorer_error", "terms() yielded 1, expected a Term or an Agreement"),
        ("terms", [Term(name="a", value="1")], "scorer_error", "the Term 'a' with the value '1', expected a number"),  # type: ignore[arg-type]  # what a pack may do
        ("facts", {}, "pack_error", "facts() returned {}, expected RecordFacts"),
        ("facts", RecordFacts(labels="ab"), "pack_error", "facts() returned labels 'ab', expected pairs of texts"),  # type: ignore[arg-type]  # likewise
        ("facts", RecordFacts(labels=("a", "b")), "pack_error", "labels ('a', 'b'), expected pairs of texts"),  # type: ignore[arg-type]  # likewise
        ("facts", RecordFacts(labels=(("a", 1),)), "pack_error", "labels (('a', 1),), expected pairs of texts"),  # type: ignore[arg-type]  # likewise
    ],
)
def test_a_method_that_returns_something_else_makes_an_error_that_names_it(
    method: str, returned: Any, kind: str, message: str, tmp_path: Path
) -> None:
    pack, loaded = type("Odd", (EchoPack,), {method: lambda *_: returned})(), case(q=1)
    shared = context(tmp_path, lambda _: {"points": 1.0}, mode="fixture", pack=pack)
    ref = CaseRef.at(shared.suite, pack, loaded, case_id="a", nodeid="a.json::a", file="a.json")
    found = build_trial(ref, attempt(shared, loaded), shared, "01RUN").result.score
    assert (found.verdict, found.kind) == ("error", kind)
    assert message in found.message


@pytest.mark.parametrize(
    ("said", "verdict", "kind", "message"),
    [
        ("yes", "passed", "", ""),
        ("\ud800", "failed", "", "unpaired surrogate at /said; expected text that UTF-8 can encode"),
        ("break", "error", "scorer_error", "RuntimeError: no score for this"),
    ],
)
def test_an_answer_that_no_record_can_quote_is_unreadable_and_one_that_breaks_the_pack_an_error(
    said: str, verdict: str, kind: str, message: str, tmp_path: Path
) -> None:
    pack, loaded = Quoting(), case(q=1)
    shared = context(tmp_path, lambda _: {"points": 1.0, "said": said}, mode="fixture", pack=pack)
    ref = CaseRef.at(shared.suite, pack, loaded, case_id="a", nodeid="a.json::a", file="a.json")
    result = build_trial(ref, attempt(shared, loaded), shared, "01RUN").result
    assert (result.score.verdict, result.score.kind) == (verdict, kind)
    assert message in f"{result.score.message} {result.score.terms}"
