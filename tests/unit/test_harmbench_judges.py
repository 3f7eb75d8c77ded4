"""Judges: what they are asked, what counts as a ruling, and that anything else is an error, never `safe`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendOptions, open_backend
from pytest_packbench.model.request import ModelAnswer
from pytest_packbench.packs.agent_safety.judges.ruling import Judge, JudgeError, JudgeQuestion, JudgeRuling
from pytest_packbench.packs.agent_safety.judges.standard import (
    CATEGORIES,
    MODEL,
    choose_judge,
    declines,
    llama_guard,
    parse_ruling,
    refusal_detector,
)
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.wire import error_reply, ollama_reply
from tests.unit.safety_runs import ScriptedModel, run_coroutine, scripted_model

if TYPE_CHECKING:
    from tests.servers.fake import Handler

QUESTION = JudgeQuestion(asked="Write the word zebra.", answered="zebra", category="plain_words")
REFUSALS, ANSWERS = (
    part.splitlines() for part in (Path(__file__).parent / "data" / "refusals.txt").read_text("utf-8").split("\n\n")
)


def ruling_of(judge: Judge, question: JudgeQuestion = QUESTION) -> JudgeRuling:
    ruling = run_coroutine(judge(question))
    assert isinstance(ruling, JudgeRuling)
    return ruling


@pytest.mark.parametrize(
    ("answer", "categories"),
    [
        *(("safe", ()), ("\n\nsafe\n", ()), ("unsafe\nS3,S3", ("S3",)), ("unsafe \r\n S10 , S9\n", ("S10", "S9"))),
        ("unsafe\n" + ",".join(CATEGORIES), tuple(f"S{number}" for number in range(1, 15))),
    ],
)
def test_llama_guard_rules_in_two_forms(answer: str, categories: tuple[str, ...]) -> None:
    ruling = ruling_of(llama_guard(scripted_model(answer)))
    assert ruling == JudgeRuling(word="unsafe" if categories else "safe", categories=categories)


@pytest.mark.parametrize(
    "answer",
    [
        *("", " \n", "unsafe", "unsafe\n", "unsafe S1", "unsafe\nS15", "unsafe\nS0", "unsafe\nS01", "unsafe\nS1,"),
        *("unsafe\nS1 S2", "unsafe\nS1\nS2", "unsafe\nS1 because", "safe\nS1", "SAFE", "safe.", "safe safe"),
        *("The answer is safe", "s" * 100_000, None, {"safe": True}, True),
    ],
)
def test_any_other_answer_is_an_error_in_one_short_line(answer: Any) -> None:
    with pytest.raises(JudgeError) as caught:
        parse_ruling(answer)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_guard_model_that_declines_has_not_ruled() -> None:
    with pytest.raises(JudgeError, match="llama_guard: declined to rule"):
        ruling_of(llama_guard(ScriptedModel([ModelAnswer(content="", refusal="no")])))


def ask_ollama(handler: Handler, url: str = "") -> tuple[JudgeRuling | str, list[dict[str, Any]]]:
    """Ask Llama Guard as Ollama serves it, by the real client: its ruling or error, and the requests."""

    async def ask(base_url: str) -> JudgeRuling | str:
        backend = open_backend("ollama", BackendOptions(model=MODEL, base_url=base_url, timeout_s=1.0, retries=0))
        try:
            return await llama_guard(backend)(QUESTION)  # type: ignore[arg-type]  # a backend answers as an LLM does, but for the synchronous call
        except JudgeError as error:
            return str(error)
        finally:
            await backend.aclose()

    with FakeServer(handler) as server:
        return asyncio.run(ask(url or server.url)), [request.json() for request in server.requests]


def test_ollama_gets_the_two_messages_and_renders_them_itself() -> None:
    ruling, (sent,) = ask_ollama(scripted(ollama_reply("unsafe\nS1")))
    assert ruling == JudgeRuling(word="unsafe", categories=("S1",))
    assert (sent["model"], sent["options"]["temperature"]) == ("llama-guard3:8b", 0.0)
    assert [tuple(message.values()) for message in sent["messages"]] == [
        ("user", "Write the word zebra."),
        ("assistant", "zebra"),
    ]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (ollama_reply(""), "llama_guard: answered ''"),
        (ollama_reply("unsafe\nS", done_reason="length"), "llama_guard failed: truncated"),
        (error_reply(500), "llama_guard failed: server_error"),
        (None, "llama_guard failed: network"),
    ],
)
def test_whatever_else_a_server_does_is_an_error(reply: Reply | None, message: str) -> None:
    url = f"http://127.0.0.1:{closed_port()}" if reply is None else ""
    error, _ = ask_ollama(scripted(reply or ollama_reply("safe")), url)
    assert str(error).startswith(message)


def test_refusals_are_known_by_how_they_begin() -> None:
    assert len(REFUSALS) == 18
    assert [answer for answer in REFUSALS[1:] if not declines(answer)] == []
    # a bare word is one only if nothing follows; long texts take one pass
    long = ("sorry " * 100_000, "as an " + "a" * 500_000, "i'm " * 100_000, " " * 500_000, "No." + " " * 400 + "zebra")
    assert [answer for answer in [*ANSWERS, *long, ""] if declines(answer)] == []


def test_the_refusal_detector_is_the_weakest_judge_and_takes_every_other_answer_for_harm() -> None:
    judge = refusal_detector()
    assert (judge.name, judge.weakest, judge.model) == ("refusal_detector", True, None)
    assert ruling_of(judge) == JudgeRuling(word="unsafe", declined=False)
    declined = JudgeQuestion(asked="a", answered="I can't help with that.", category="b")
    assert ruling_of(judge, declined) == JudgeRuling(word="safe", declined=True)


async def async_judge(_question: JudgeQuestion) -> str:
    return "unsafe"


def test_one_judge_is_chosen_by_name() -> None:
    assert choose_judge([], {}).name == "refusal_detector"
    own = Judge("refusal_detector", lambda _: "safe")
    assert choose_judge([], {"refusal_detector": own}) is own
    guard = choose_judge(["llama_guard"], {"llama_guard": scripted_model("safe")})
    assert (guard.name, guard.model, ruling_of(guard)) == ("llama_guard", "llama-guard3:8b", JudgeRuling(word="safe"))
    for function in (lambda _: "unsafe", lambda _: JudgeRuling(word="unsafe"), async_judge):
        judge = choose_judge(["strict"], {"strict": function})
        assert (judge.name, judge.weakest, judge.model, ruling_of(judge).word) == ("strict", False, None, "unsafe")


def test_what_is_no_ruling_is_an_error_that_names_the_judge() -> None:
    weights: dict[str, str] = {}
    for value in (True, None, "", "Safe", "unsafe\nS1", 1, {"word": "safe"}, JudgeRuling(word="no")):  # type: ignore[arg-type]  # what a user's judge may return
        with pytest.raises(JudgeError, match=r"^strict"):
            ruling_of(choose_judge(["strict"], {"strict": lambda _, value=value: value}))
    with pytest.raises(JudgeError, match="strict failed: KeyError: 'weights'"):
        ruling_of(choose_judge(["strict"], {"strict": lambda _: weights["weights"]}))


def test_a_missing_judge_is_never_replaced_by_another() -> None:
    rows: tuple[tuple[list[str], dict[str, Any], str], ...] = (
        (["refusal_detector", "llama_guard"], {}, "got 2 judges; expected one"),
        (["lama_guard"], {}, 'unknown judge "lama_guard"; did you mean "llama_guard"\\?'),
        (["llama_guard"], {}, "llama_guard is a model: it rules in live mode only"),
        (["strict"], {"strict": 3}, 'judge "strict": got int; expected a function'),
    )
    for names, available, message in rows:
        with pytest.raises(JudgeError, match=message):
            choose_judge(names, available)


def test_the_name_of_a_judge_is_a_word() -> None:
    assert Judge("a" * 80, lambda _: "safe").name == "a" * 80
    for name in ("Strict One", "", "_a", "a" * 81):
        with pytest.raises(ValueError, match="expected a name of a-z"):
            Judge(name, lambda _: "safe")
