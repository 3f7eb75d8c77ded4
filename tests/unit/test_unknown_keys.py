"""Keys that an answer model does not have: they make an answer unreadable, or a suite leaves them unread and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import Answer, Case, Pack, ResultError, StrictModel, SuiteConfig, Term, Text, Unscored
from pytest_packbench.analysis.conclusion import caveats, conclude, run_document
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.engine.live_models import Ledger
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import ListOf  # noqa: TC001 - pydantic reads it at run time
from pytest_packbench.model.report import KeyCounts, UnknownKeys
from pytest_packbench.model.result import adapter
from pytest_packbench.model.run import Caps
from pytest_packbench.packs.registry import builtin
from pytest_packbench.policy import policy_changes
from pytest_packbench.testing import case, score
from tests.conftest import SUITE
from tests.unit.run_builders import case_result, run
from tests.unit.test_policy_changes import policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.result import Result


class Part(StrictModel):
    name: Text
    grams: int = 0


class Letter(StrictModel):
    pages: int = 0
    sealed: bool = False


class Card(StrictModel):
    pages: int = 0
    picture: Text = "none"


class Parcel(Answer):
    zone: Text | None = None
    parts: ListOf[Part] = ()
    goods: Letter | Card | None = None
    refusal: Text | None = None
    notes: dict[str, Any] | None = None


class ParcelPack(Pack):
    name = "parcels"
    version = "1"
    answer_model = Parcel

    def terms(self, case: Case, answer: Parcel, rules: SuiteConfig) -> Iterator[Term]:
        yield Term(name="zone", value=float(answer.zone == "x" or answer.refused))


OPEN = {"unknown_keys": "ignore"}
MANY = {f"k{number:02}": 1 for number in range(25)}
# an answer, the places of its unknown keys, and in an open suite the score, or why it can't be read all the same
ANSWERS: dict[str, tuple[Any, list[str], float | str]] = {
    "none": ({"zone": "x"}, [], 1.0),
    "one": ({"zone": "x", "trace": 1}, ["/trace"], 1.0),
    "in a key for whatever else": ({"zone": "x", "notes": {"trace": 1}}, [], 1.0),
    "one that holds the answer": ({"zone": "y", "zonee": "x"}, ["/zonee"], 0.0),
    "inside, and below a wrong one": (
        {"zone": "x", "more": {"zone": "y"}, "parts": [{"name": "a"}, {"name": "b", "gram": 1}]},
        ["/more", "/parts/1/gram"],
        1.0,
    ),
    "beside another fault": ({"zone": 5, "trace": 1}, ["/trace"], "result/zone: got 5; expected a string"),
    "nothing else": ({"zonee": "x"}, ["/zonee"], 'result/zonee: unknown key "zonee"; did you mean "zone"?'),
    "known to the other member of a union": (
        {"zone": "x", "goods": {"sealed": True, "picture": "a cat"}},
        [],
        'result/goods/Letter/picture: unknown key "picture"',
    ),
    "known to no member of a union": ({"zone": "x", "goods": {"pages": 2, "ink": 1}}, ["/goods/ink"], 1.0),
    "with a sign that moves the cursor": ({"zone": "x", "a\r\n\x1b[2Jb~/": 1}, [r"/a\r\n\x1b[2Jb~0~1"], 1.0),
    "many": ({"zone": "x", **MANY}, [*(f"/{key}" for key in [*MANY][:20]), "and 5 more"], 1.0),
    "half of a surrogate pair": ({"zone": "x", "\ud800": 1}, [], "result: got the key "),
}


def noted(found: Any) -> list[str]:
    return [term.detail for term in found.terms if (term.name, term.effect) == ("unknown_key", "note")]


@pytest.mark.parametrize(("answer", "places", "opened"), ANSWERS.values(), ids=ANSWERS)
def test_an_unknown_key_makes_an_answer_unreadable_or_is_listed_beside_the_score(
    answer: Any, places: list[str], opened: float | str
) -> None:
    closed = score(ParcelPack(), case("a"), answer)
    if answer.keys() <= Parcel.model_fields.keys() and not places and opened == 1.0:
        assert (closed.score, closed.terms[1:]) == (1.0, ())
    else:
        assert (closed.score, closed.verdict, closed.terms[0].name) == (0.0, "failed", "unreadable_answer")
        assert noted(closed) == places
    found = score(ParcelPack(), case("a"), answer, rules=OPEN)
    if isinstance(opened, float):
        assert (found.score, noted(found)) == (opened, places)
        return
    bound = ParcelPack().for_suite(SuiteConfig(pack="parcels", unknown_keys="ignore"))
    with pytest.raises(ResultError) as caught:
        bound.read(answer)
    assert str(caught.value).startswith(opened.removesuffix("*"))
    assert (found.score, found.verdict, found.terms[0].name) == (0.0, "failed", "unreadable_answer")


def test_a_pack_can_look_at_the_keys_that_are_left_unread() -> None:
    class Strict(ParcelPack):
        def terms(self, case: Case, answer: Parcel, rules: SuiteConfig) -> Iterator[Term]:
            yield from super().terms(case, answer, rules)
            if answer.refused and answer.unread_keys:
                yield Term(name="contradiction", effect="zero", detail=answer.unread_keys[0])

    refusal = {"refusal": "no", "price": 5}
    assert score(ParcelPack(), case("a"), refusal, rules=OPEN).score == 1.0
    assert score(Strict(), case("a"), refusal, rules=OPEN).score == 0.0
    assert score(Strict(), case("a"), {"refusal": "no"}, rules=OPEN).score == 1.0


def test_a_case_that_shows_nothing_lists_what_is_left_unread_as_well() -> None:
    class Unseen(ParcelPack):
        def terms(self, case: Case, answer: Parcel, rules: SuiteConfig) -> Iterator[Term]:
            yield Term(name="seen", effect="note")
            raise Unscored("vacuous", "nothing was seen")

    found = score(Unseen(), case("a"), {"zone": "x", "trace": 1}, rules=OPEN)
    assert (found.verdict, [term.name for term in found.terms]) == ("vacuous", ["seen", "unknown_key"])


def test_rules_that_open_a_suite_are_other_rules_and_all_others_keep_their_hash() -> None:
    closed, opened = (SuiteConfig(pack="parcels", unknown_keys=each) for each in ("refuse", "ignore"))
    before = closed.model_dump(mode="json", exclude={*closed.not_scoring, "unknown_keys"})
    assert scoring_sha256(closed) == scoring_sha256(SuiteConfig(pack="parcels")) == canonical_sha256(before)
    assert scoring_sha256(opened) != scoring_sha256(closed)


def test_no_bundled_suite_is_open() -> None:
    from pytest_packbench.cases.load import read_config

    models = {name: pack.suite_model for name, pack in builtin().items()}
    rules = {
        path.parent.name: read_config(path.parent, models, source="") for path in SUITE.parent.glob("*/suite.yaml")
    }
    assert {"tariff", "agentdojo"} <= rules.keys()
    assert {name for name, each in rules.items() if each.unknown_keys != "refuse"} == set()


# the rules of a base and of now, without the key where a run of an earlier version stored them
SOFTENED: list[tuple[dict[str, str], dict[str, str], list[str]]] = [
    ({}, {"unknown_keys": "refuse"}, []),
    ({"unknown_keys": "ignore"}, {"unknown_keys": "refuse"}, []),
    (
        {"unknown_keys": "refuse"},
        {"unknown_keys": "ignore"},
        ["unknown keys ignored: suite.yaml: /unknown_keys: refuse -> ignore"],
    ),
    ({}, {"unknown_keys": "ignore"}, ["unknown keys ignored: suite.yaml: /unknown_keys: absent -> ignore"]),
]


@pytest.mark.parametrize(("base", "now", "lines"), SOFTENED)
def test_the_acceptance_policy_knows_that_unknown_keys_are_ignored(
    base: dict[str, str], now: dict[str, str], lines: list[str]
) -> None:
    assert [each.line for each in policy_changes(policy(config=base), policy(config=now))] == lines


def keyed(case_id: str, *places: str, verdict: str = "failed", term: str = "") -> Result:
    first = [{"name": term, "effect": "zero", "detail": "why"}] if term else [{"name": "zone", "value": 1.0}]
    notes = [{"name": "unknown_key", "effect": "note", "detail": place} for place in places]
    return case_result(case_id, verdict, terms=[*first, *notes])


U = "unreadable_answer"
PUT = (
    "Put them into a key of the answer for whatever else a pipeline reports, such as notes, or set `unknown_keys: ignore` "
    "in the suite.yaml of a suite of your own; packbench schema result --pack toy shows the answer."
)
NONE = KeyCounts(0, 0, {})
LONG = f"/{'k' * 90}"
SIX = [f"/{key}" for key in [*MANY][:6]]
LACKS = "results can't be read and have keys that the answer does not have:"
UNREAD = (
    "The suite has `unknown_keys: ignore`: of 2 results, 1 passed, keys were left unread, in which a claim may hide:"
)
# results, what the report counts of them, and what a reader is told
RUNS: dict[str, tuple[list[Result], UnknownKeys | None, str]] = {
    "none": ([keyed("a"), keyed("b", term=U)], None, ""),
    "unreadable by the same keys": (
        [
            keyed("a", "/trace", "/parts/0/gram", "/parts/11/gram", term=U),
            keyed("b", "/trace", "/parts/3/gram", "/x/7", term=U),
            keyed("c", "/trace", "and 5 more", term="truncated_answer"),
            keyed("d", term=U),
        ],
        UnknownKeys(KeyCounts(3, 0, {"/trace": 3, "/parts/*/gram": 2, "/x/7": 1}), NONE),
        f"3 {LACKS} /trace (3), /parts/*/gram (2). {PUT}",
    ),
    "each by its own key": (
        [keyed("a", "/x", term=U), keyed("b", "/y", term=U)],
        UnknownKeys(KeyCounts(2, 0, {"/x": 1, "/y": 1}), NONE),
        "",
    ),
    "left unread": (
        [keyed("a", "/x", verdict="passed"), keyed("b", "/x"), keyed("c", verdict="passed")],
        UnknownKeys(NONE, KeyCounts(2, 1, {"/x": 2})),
        f"{UNREAD} /x (2).",
    ),
    "long and many": (
        [keyed("a", LONG, *SIX, term=U), keyed("b", LONG, *SIX, term=U), keyed("c", LONG, term=U)],
        UnknownKeys(KeyCounts(3, 0, {LONG: 3, **dict.fromkeys(SIX, 2)}), NONE),
        f"3 {LACKS} {LONG[:79]}… (3), {', '.join(f'{key} (2)' for key in SIX[:4])}, and 2 more. {PUT}",
    ),
}


@pytest.mark.parametrize(("results", "counts", "told"), RUNS.values(), ids=RUNS)
def test_unknown_keys_are_told_once_a_run_with_their_count_and_what_mends_it(
    results: list[Result], counts: UnknownKeys | None, told: str
) -> None:
    concluded = conclude(run(pack="toy"), results)
    assert concluded.unknown_keys == counts
    assert [each for each in caveats(concluded) if "keys" in each] == [told] * bool(told)
    document = run_document(concluded)
    assert ("unknown_keys" in document) == (counts is not None)
    if counts is not None:
        assert document["unknown_keys"] == {name: each._asdict() for name, each in counts._asdict().items()}
        assert adapter(UnknownKeys | None).validate_python(document["unknown_keys"]) == counts


STOP = "the answer has no zone"
LIMITS: list[tuple[int, int, int, str]] = [
    # allowed, counted, processes
    (3, 2, 1, ""),
    (0, 9, 1, ""),
    (1, 1, 1, "1 unreadable result, as many as a run may have"),
    (3, 3, 1, "3 unreadable results, as many as a run may have"),
    (3, 4, 2, "3 unreadable results of this worker, as many as a run may have"),
]


@pytest.mark.parametrize(("most", "number", "parts", "begin"), LIMITS)
def test_no_attempt_starts_after_as_many_unreadable_results_as_are_allowed(
    most: int, number: int, parts: int, begin: str
) -> None:
    ledger = Ledger(Caps(), parts=parts)
    for _ in range(number):
        ledger.add_unreadable(STOP, most)
    kind, message = ledger.reached_cap()
    assert kind == ("max_unreadable" if begin else "")
    assert message == (
        f"{begin} (the last one: {STOP}); correct the target and start a new run, or resume this one with "
        "--packbench-max-unreadable=0"
        if begin
        else ""
    )
