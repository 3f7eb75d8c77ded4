"""The fuzzer notices what must never happen: a reader that swallows errors, one that raises, one that is slow."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.fuzz import classify, inputs_of, tally_of, try_kind
from benchmarks.fuzz_kinds import Kind, Reading, kinds
from benchmarks.mutation import attacks, mutate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

VALID = json.dumps({"id": "a", "expected": {"sum": 1, "word": "x"}, "notes": "free"}).encode()


def strict(data: bytes) -> Reading:
    """A good reader: it reads what is JSON without a key twice, and says where it is not."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=once, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        return Reading(accepted=False, meaning="", text=f"in.json:1: {error}", cpu=0.0)
    expected = value.get("expected") if isinstance(value, dict) else None
    name = value.get("id") if isinstance(value, dict) else None
    return Reading(accepted=True, meaning=json.dumps([name, expected], sort_keys=True), text="", cpu=0.0)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def refused(word: str) -> None:
    raise ValueError(word)


def swallowing(data: bytes) -> Reading:
    reading = strict(data)
    return reading if reading.accepted else reading._replace(accepted=True, meaning="nothing")


def blind(data: bytes) -> Reading:
    reading = strict(data)
    return reading._replace(meaning="always the same")


def raising(data: bytes) -> Reading:
    reading = strict(data)
    return reading if reading.accepted else reading._replace(crash="Traceback (most recent call last): ...")


def mute(data: bytes) -> Reading:
    return strict(data)._replace(text="packbench: bad input")


def slow(data: bytes) -> Reading:
    return strict(data)._replace(cpu=0.5 if b"\xff" in data else 0.001)


def fussy(data: bytes) -> Reading:
    return strict(data)._replace(accepted=False, text="in.json:1: no")


def ending(_: bytes) -> Reading:
    raise SystemExit


def kind_of(read: Callable[[bytes], Reading]) -> Kind:
    def every(inputs: Sequence[tuple[int, bytes]], _: str) -> list[Reading]:
        return [read(data) for _, data in inputs]

    return Kind(
        name="planted",
        form="json",
        examples=lambda: [VALID],
        read=every,
        command=lambda _number, data, _variant: read(data),
        variants={"": "^/(id|expected)"},
        names=r"in\.json",
        batch=10,
    )


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (strict, ""),
        (swallowing, "a broken input is accepted"),
        (blind, "a different input has the same result"),
        (raising, "crash: Traceback"),
        (mute, "a message without the file"),
        (slow, "slow: 0.500 s"),
        (fussy, "the valid input is not accepted"),
    ],
)
def test_a_bad_reader_is_noticed(read: Callable[[bytes], Reading], problem: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    try_kind(kind_of(read), "1", 60, 3, log)
    tally = tally_of(log, "planted")
    found = [finding["problem"] for finding in tally.findings]
    assert any(each.startswith(problem) for each in found) if problem else not found
    assert bool(found) is bool(problem)
    assert sum(tally.counts[group] for group in ("valid", "same", "open", "different", "broken")) == 64
    assert tally.by_command == 3


def test_a_reader_that_ends_the_process_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit):
        try_kind(kind_of(ending), "1", 10, 0, log)
    assert "did not end" in tally_of(log, "planted").findings[0]["problem"]


def test_damage_is_repeatable_and_of_each_group(yardstick: float) -> None:
    kind, before = kind_of(strict), time.process_time()
    drawn = [inputs_of(kind, [VALID], "1", number) for number in range(200)]
    assert drawn == [inputs_of(kind, [VALID], "1", number) for number in range(200)]
    groups = [classify(kind, VALID, data, "") for data in drawn]
    assert all(groups.count(group) > least for group, least in {"broken": 60, "different": 30, "open": 5}.items())
    assert groups.count("valid") < 20
    assert attacks(VALID)[0] == drawn[1]
    assert time.process_time() - before < 150 * yardstick


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml", "csv", "http"])
def test_each_form_can_be_damaged(form: str) -> None:
    rng = random.Random(3)  # noqa: S311 - repeatable
    damaged = {mutate(VALID, VALID, rng, form) for _ in range(50)}
    assert len(damaged) > 30


def test_what_is_given_as_text_a_number_or_an_order_of_keys_may_be_the_same() -> None:
    kind = kind_of(strict)
    same = json.dumps(dict(reversed(json.loads(VALID).items()))).encode()
    assert classify(kind, VALID, same, "") == "same"
    assert classify(kind, VALID, VALID.replace(b"1", b"1.0"), "") == "same"
    assert classify(kind, VALID, VALID.replace(b"1", b"true"), "") == "different"
    assert classify(kind, VALID, VALID.replace(b"free", b"other"), "") == "open"
    assert classify(kind, VALID, VALID.replace(b'"id"', b'"id": "b", "id"'), "") == "broken"
    assert classify(kind, VALID, VALID.replace(b"1", b"NaN"), "") == "broken"


def test_each_kind_names_readers_that_exist() -> None:
    assert len(kinds()) > 35
    assert all(kind.variants for kind in kinds().values())
