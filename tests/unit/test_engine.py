"""One attempt at one case without pytest: targets of every shape, recordings, clocks, entries."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.cases.load import check_case, load_cassette
from pytest_packbench.engine.attempt import Attempt, attempt
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.recordings import Replay, ReplayError
from pytest_packbench.engine.result_builder import CaseRef, build_result
from pytest_packbench.engine.targets import TargetCaller, as_target, import_target, takes_context
from pytest_packbench.model.case import Case, LoadedCase, canonical_sha256
from pytest_packbench.model.cassette import Cassette, Exchange
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.model.outcome import Firing
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.request import ModelRequest
from pytest_packbench.model.result import CaseResult, format_timestamp
from pytest_packbench.model.score import Score, Term
from pytest_packbench.model.suite import Suite, SuiteConfig
from tests.unit import attempts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from tests.unit.attempts import EchoOutcome


class Echo(attempts.EchoPack):
    """The echoing pack with a firing, a term and a match level."""

    version = "7"

    def read(self, result: object) -> EchoOutcome:
        return replace(super().read(result), firings=(Firing(hook="gate", decision="pass", rule=3),))

    def score(self, case: Case, outcome: EchoOutcome, rules: SuiteConfig) -> Score:
        terms = (Term(name="points", value=outcome.points),)
        return replace(super().score(case, outcome, rules), terms=terms, match_level="full")


def loaded_case(**notes: Any) -> LoadedCase:
    data = {"id": "a", "pack_id": "echo", "case_type": "plain", "difficulty": "easy", "input": {"q": 1}}
    return check_case({**data, "expected": None, "notes": notes}, Case, source="a", stem="a", pack="echo")


def context(tmp_path: Path, target: Callable[..., Any]) -> SuiteContext:
    suite = Suite(name="s", path=tmp_path, config=SuiteConfig(pack="echo"), sha256="0" * 64)
    return SuiteContext(suite=suite, pack=Echo(), caller=TargetCaller(target), target_name="t")


def attempt_of(tmp_path: Path, target: Callable[..., Any], **notes: Any) -> Attempt:
    return attempt(context(tmp_path, target), loaded_case(**notes))


class Verifier:
    def verify(self, request: VerifyRequest) -> dict[str, Any]:
        return {"points": 0.5 if request.input == {"q": 1} else 0}


async def async_target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    return {"points": 0.5 if context.case_id == "a" else 0}


@pytest.mark.parametrize(
    "target",
    [
        lambda request: {"points": 0.5},
        lambda request, context: {"points": 0.5 if context.mode == "fixture" else 0},
        lambda *both: {"points": 0.5 if len(both) == 2 else 0},
        async_target,
        as_target(Verifier(), "v"),
    ],
    ids=["request", "request and context", "any number", "async", "verify"],
)
def test_targets_of_every_shape(tmp_path: Path, target: Callable[..., Any]) -> None:
    found = attempt_of(tmp_path, target)
    assert found.failure is None
    assert found.score is not None
    assert (found.score.score, found.score.verdict) == (0.5, "passed")


def test_a_keyword_only_context_is_not_given() -> None:
    def target(request: object, *, more: int = 0) -> None:
        """Take the request alone."""

    assert not takes_context(target)


@pytest.mark.parametrize("result", [{"points": float("nan")}, {"points": {1}}, [1], None])
def test_a_result_that_is_no_json_object_is_that_cases_error(tmp_path: Path, result: Any) -> None:
    found = attempt_of(tmp_path, lambda request: result)
    assert found.failure is not None
    assert found.failure.kind == "result_unreadable"
    assert found.score is None


def test_what_a_target_does_to_its_result_later_changes_nothing(tmp_path: Path) -> None:
    result: dict[str, Any] = {"points": 0.0, "seen": []}

    def target(_: object) -> dict[str, Any]:
        result["points"] += 0.25
        result["seen"].append(result["points"])
        return result

    found = [attempt_of(tmp_path, target).payload for _ in range(2)]
    assert found == [{"points": 0.25, "seen": [0.25]}, {"points": 0.5, "seen": [0.25, 0.5]}]


def test_a_result_that_breaks_while_it_is_read_is_that_cases_error(tmp_path: Path) -> None:
    class Breaking(dict[str, Any]):
        def items(self) -> Any:
            raise KeyError("gone")

    found = attempt_of(tmp_path, lambda request: Breaking(points=1.0))
    assert found.failure is not None
    assert (found.failure.kind, found.payload) == ("result_unreadable", None)


@pytest.mark.parametrize(
    ("told", "counted"),
    [(2**64 - 1, 2**64 - 1), (0, 0), (2**64, None), pytest.param(10**4200, None, id="huge"), (-1, None), (True, None)],
)
def test_a_result_tells_of_tokens_that_somebody_can_have_counted(
    tmp_path: Path, told: Any, counted: int | None
) -> None:
    found = attempt_of(tmp_path, lambda request: {"points": 0.5, "usage": {"tokens_input": told, "tokens_output": 1}})
    assert found.failure is None
    assert (found.usage.tokens_input, found.usage.tokens_output) == (counted, 1)


class Flag:
    """What numpy gives for a boolean: like one, and no value of JSON."""


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("refused", Flag(), f"refused is a {__name__}.Flag, expected True or False"),
        ("refused", None, "refused is None, expected True or False"),
        ("answer", 5, "answer is a int, expected a str or None"),
    ],
)
def test_an_outcome_that_no_record_can_hold_is_the_readers_error(
    tmp_path: Path, field: str, value: Any, said: str
) -> None:
    class Odd(Echo):
        def read(self, result: object) -> EchoOutcome:
            return replace(super().read(result), **{field: value})

    made = replace(context(tmp_path, lambda request: {"points": 1.0}), pack=Odd())
    found = attempt(made, loaded_case())
    assert found.failure is not None
    assert (found.failure.kind, found.failure.message) == (
        "reader_error",
        f"the reader returned an Outcome whose {said}",
    )


def test_an_error_shows_the_users_frames_only(tmp_path: Path) -> None:
    def target(request: object) -> None:
        raise KeyError("lost")

    found = attempt_of(tmp_path, target)
    assert found.failure is not None
    assert found.failure.message == "the target raised KeyError: 'lost'"
    assert len(found.failure.details) == 1
    assert "test_engine.py" in found.failure.details[0]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("json", "expected package.module:attr"),
        ("no.such:x", "No module named 'no'"),
        ("json:no.such", 'json has no "no.such"'),
        ("json:__doc__", "expected a function or an object with verify(), got str"),
    ],
)
def test_a_target_that_is_not_there_says_so(spec: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        as_target(import_target(spec), spec)
    assert said in str(caught.value)


def cassette(*roles: str, hashes: tuple[str | None, ...] = ()) -> Cassette:
    exchanges = tuple(
        Exchange(role=role, answer=position, request_sha256=hashes[position] if hashes else None)
        for position, role in enumerate(roles)
    )
    return Cassette(
        cassette_version=1,
        case_id="a",
        input_sha256="0" * 64,
        origin="authored",
        llm_backend="stub",
        llm_model="authored",
        exchanges=exchanges,
    )


@pytest.mark.parametrize("number", [True, False, 1.0, "1", 2, None])
def test_a_cassette_of_another_version_is_refused(tmp_path: Path, number: object) -> None:
    path = tmp_path / "a.json"
    written = {**cassette("propose").model_dump(mode="json"), "cassette_version": number}
    path.write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(
        CassetteError, match=rf"^f: /cassette_version: got {re.escape(json.dumps(number))}; expected 1$"
    ):
        load_cassette(path, source="f")
    path.write_text(json.dumps({**written, "cassette_version": 1}), encoding="utf-8")
    assert load_cassette(path, source="f")[0] == cassette("propose")


@given(
    st.lists(st.sampled_from(["propose", "critique", "revise"]), max_size=6),
    st.lists(st.sampled_from(["propose", "critique", "revise"]), max_size=6),
)
def test_a_replay_agrees_exactly_when_the_roles_do(recorded: list[str], asked: list[str]) -> None:
    replay = Replay(cassette(*recorded), source="f")
    answers = []
    for role in asked:
        try:
            answers.append(replay.complete_sync(ModelRequest(role=role, system="", messages=())).content)
        except ReplayError:
            break
    replay.finish()
    assert (replay.mismatch == "") is (recorded == asked)
    assert answers == list(range(len(answers)))


def test_a_recorded_prompt_that_changed_is_stale() -> None:
    request = ModelRequest(role="ask", system="s", messages=({"role": "user", "content": "c"},))
    same = Replay(cassette("ask", hashes=(canonical_sha256(request.as_json()),)), source="f")
    same.complete_sync(request)
    other = Replay(cassette("ask", hashes=("1" * 64,)), source="f")
    other.complete_sync(request)
    assert (same.stale, other.stale) == (False, True)


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_778_055_332_123_999_999, "2026-05-06T08:15:32.123Z"),
        (999_999_999, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_the_clock_is_read_once_and_cut_to_milliseconds(ns: int, said: str) -> None:
    assert format_timestamp(ns) == said


def case_place(tmp_path: Path, loaded: LoadedCase) -> CaseRef:
    suite = Suite(name="s", path=tmp_path, config=SuiteConfig(pack="echo"), sha256="0" * 64)
    return CaseRef(suite=suite, pack=Echo(), case_id="a", nodeid="x::a", file="x", folder="f", loaded=loaded)


def test_an_entry_carries_the_wire_record_and_travels_as_json(tmp_path: Path) -> None:
    one = context(tmp_path, lambda request: {"points": 0.5})
    entry = build_result(
        case_place(tmp_path, loaded_case(tags=["x"])), attempt(one, loaded_case(tags=["x"])), one, "01RUN"
    )
    assert entry.record is not None
    record = EvalRecord.from_json(entry.record)
    assert EvalRecord.from_json_line(record.to_json_line(), strict=False) == record
    assert entry.record == json.loads(record.to_json_line())
    assert [hook.rule for hook in record.hook_decisions] == [3]
    assert (record.run_id, record.wall_clock_ms, record.timestamp) == ("01RUN", entry.duration_ms, entry.timestamp)
    assert CaseResult.from_json(json.loads(json.dumps(entry.as_json()))) == entry


def test_a_quarantined_case_leaves_no_record(tmp_path: Path) -> None:
    one = context(tmp_path, lambda request: {"points": 0.1})
    loaded = loaded_case(xfail="schedule changed")
    entry = build_result(case_place(tmp_path, loaded), attempt(one, loaded), one, "01RUN")
    assert entry.record is None
    assert (entry.verdict, entry.kind, entry.score, entry.counted) == ("known_hole", "xfail", 0.1, False)
    assert entry.message == "quarantined (xfail): schedule changed; score 0.10 < 0.50"
