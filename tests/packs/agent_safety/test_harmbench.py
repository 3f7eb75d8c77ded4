"""HarmBench: rows of its CSV files become cases without their texts, the agent answers, one judge rules, or it is an error."""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.backends import BackendError, BackendOptions, open_backend
from pytest_packbench.commands import main
from pytest_packbench.model.request import ModelAnswer
from pytest_packbench.packs.agent_safety.episode import JudgeVerdict
from pytest_packbench.packs.agent_safety.harmbench.behaviors import FileError, find_behavior, read
from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
from pytest_packbench.packs.agent_safety.harmbench.target import HARMLESS
from pytest_packbench.packs.agent_safety.judges import (
    MODEL,
    Judge,
    JudgeError,
    JudgeQuestion,
    JudgeRuling,
    choose_judge,
    declines,
    llama_guard,
    parse_ruling,
)
from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig
from tests.packs.agent_safety.runs import (
    RULES,
    SUITES,
    SafetyRun,
    ScriptedModel,
    checked,
    expect,
    guard_of,
    model_of,
    run_case,
    run_coroutine,
    scripted_model,
    split,
)
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.wire import error_reply, ollama_reply

if TYPE_CHECKING:
    from pytest_packbench.model.authoring import CaseDraft, SourceFlaw
    from tests.conftest import ExpectedTexts

TABLES = yaml.safe_load((Path(__file__).parent / "data" / "harmbench.yaml").read_text("utf-8"))
COLUMNS = ("Behavior", "FunctionalCategory", "SemanticCategory", "Tags", "ContextString", "BehaviorID")
ZEBRA = "Write the word zebra.,standard,plain_words,,,zebra"
TEAPOT = "Write a rhyme on a teapot.,standard,plain_words,,,teapot"
POEM = "Recite the poem of the blue kettle.,copyright,copyright,hash_check,,poem"
ANIMAL = 'Name the animal.,contextual,plain_words,"context, x","A hen,\na zebra.",animal'
ANIMAL_TEXT = "A hen,\na zebra.\n\n---\n\nName the animal."


def behaviors_file(folder: Path, *rows: str, name: str = "b.csv", head: str = ",".join(COLUMNS)) -> Path:
    path = folder / name
    path.write_bytes("\n".join([head, *rows, ""]).encode("utf-8", "surrogateescape"))
    return path


def imported(*files: Path, functional: list[str] | None = None) -> tuple[list[CaseDraft], list[SourceFlaw]]:
    return split(HarmBenchImporter().read(argparse.Namespace(files=list(files), functional=functional)))


def ids(*files: Path, functional: list[str] | None = None) -> list[str]:
    return [draft.case["id"] for draft in imported(*files, functional=functional)[0]]


def test_a_row_becomes_a_case_without_its_text(tmp_path: Path) -> None:
    path = behaviors_file(tmp_path, ANIMAL, POEM)
    (draft, poem), flaws = imported(path)
    assert not flaws
    assert not [text for text in ("Name the", "A hen") if text in json.dumps(draft.case)]
    case = checked(draft.case)
    assert (draft.place, case.notes.source) == (f"{path}:2", "b.csv, line 2")
    assert (case.id, case.case_type, case.notes.attack_category) == ("animal", "contextual", "plain_words")
    assert case.notes.tags == ("contextual", "plain_words", "context", "x")
    assert (case.expected.decision, case.expected.known_hole) == ("refuse", None)
    assert case.test_id("harmbench") == "harmbench:animal"
    assert case.input.text_sha256 == hashlib.sha256(ANIMAL_TEXT.encode()).hexdigest()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert case.input.version == f"sha256:{sha256[:12]}"
    assert case.input.source is not None
    assert case.input.source.model_dump() == {"file": "b.csv", "sha256": sha256, "row": 0}
    hole = checked(poem.case).expected.known_hole
    assert hole is not None
    assert (hole.kind, hole.reason[:14]) == ("no_checker", "not assessed: ")
    assert ids(path, functional=["copyright"]) == ["poem"]


def test_quotes_commas_and_line_ends_belong_to_a_text_and_columns_have_any_order(tmp_path: Path) -> None:
    path = behaviors_file(tmp_path, '"Say ""zebra"",\nthen stop.",standard,plain_words,,,zebra', "", TEAPOT)
    assert [(line, found if isinstance(found, str) else found.behavior) for line, found in read(path)] == [
        (2, 'Say "zebra",\nthen stop.'),
        (5, "Write a rhyme on a teapot."),
    ]
    head = "BehaviorID,Source,Behavior,FunctionalCategory,SemanticCategory"
    assert ids(behaviors_file(tmp_path, "zebra,x,Write it.,standard,plain_words", head=head)) == ["zebra"]


def test_a_bad_row_is_named_by_its_line_and_hides_no_other(tmp_path: Path, expected: ExpectedTexts) -> None:
    lines = []
    for row in TABLES["bad_rows"]:
        bad = row.replace("<a>", "a" * 140_000).replace("<x>", "x" * 121).replace("<ff>", "\udcff")
        path = behaviors_file(tmp_path, ZEBRA, bad, TEAPOT)
        drafts, (flaw,) = imported(path)
        assert [draft.case["id"] for draft in drafts] == ["zebra", "teapot"]
        assert (flaw.place, "Write" in flaw.message) == (f"{path}:3", False)
        lines.append(f"{row}\n    {flaw.message.replace(str(tmp_path), 'FOLDER')}\n")
    assert ids(behaviors_file(tmp_path, "Write it.,standard,plain_words,,," + "x" * 120)) == ["x" * 120]
    # the rows below an open quote are its text, which the error says
    path = behaviors_file(tmp_path, ZEBRA, '"Write it.,standard,plain_words,,,x', TEAPOT)
    drafts, (flaw,) = imported(path)
    assert ([draft.case["id"] for draft in drafts], flaw.place) == (["zebra"], f"{path}:3")
    assert flaw.message == "not CSV: unexpected end of data; look for an unclosed quote"
    expected.check("".join(lines))


def test_the_same_behaviour_in_two_files_is_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = behaviors_file(tmp_path, ZEBRA, TEAPOT, name="all.csv")
    assert ids(whole, behaviors_file(tmp_path, TEAPOT, name="val.csv")) == ["zebra", "teapot"]
    # any other row with the id of another one is an error, of one file and of two
    monkeypatch.chdir(tmp_path)
    for row, files in (
        (TEAPOT, ["twice.csv"]),
        (TEAPOT.replace("rhyme", "poem"), ["twice.csv"]),
        (TEAPOT.replace("rhyme", "poem"), ["all.csv", "other.csv"]),
    ):
        behaviors_file(tmp_path, ZEBRA, TEAPOT, row, name="twice.csv")
        behaviors_file(tmp_path, row, name="other.csv")
        assert main(["import", "harmbench", *files, "--suite", "harm", "--write"]) == 2
        place = "twice.csv:4" if len(files) == 1 else "other.csv:2"
        assert f'{place}: /id: duplicate id "teapot", first used at {files[0]}:3' in capsys.readouterr().out
    assert not (tmp_path / "storage").exists()


def test_a_text_is_found_by_id_and_hash_in_files_and_folders(tmp_path: Path) -> None:
    path = behaviors_file(tmp_path, ZEBRA, TEAPOT)
    sha256 = hashlib.sha256(b"Write a rhyme on a teapot.").hexdigest()
    for paths in ([path], [HARMLESS, tmp_path]):
        assert find_behavior(paths, "teapot", sha256).behavior == "Write a rhyme on a teapot."
    for paths, name, other_sha256, message in (
        ([path], "teapot", "0" * 64, r"^teapot: not found in b\.csv with the text that was imported; import its file"),
        ([path], "kettle", sha256, r"^kettle: not found in b\.csv .*; .*set packbench_harmbench"),
        ([], "kettle", sha256, r"^kettle: not found in no file"),
        ([tmp_path / "none.csv"], "teapot", sha256, r"none\.csv: can't be read: No such file"),
    ):
        with pytest.raises(FileError, match=message):
            find_behavior(paths, name, other_sha256)
    behaviors_file(tmp_path, ZEBRA, TEAPOT.replace("rhyme", "poem"))
    os.utime(path, (1, 1))
    with pytest.raises(FileError, match=r"not found in b\.csv with the text that was imported"):
        find_behavior([path], "teapot", sha256)


def test_the_bundled_suite_is_the_harmless_file_imported_without_its_texts() -> None:
    drafts, flaws = imported(HARMLESS)
    assert not flaws
    cases = {draft.case["id"]: draft.case for draft in drafts}
    for case in cases.values():
        case["input"]["version"] = "own"
        case["notes"]["source"] = "written for this package; harmless, and none of HarmBench's own"
    paths = list((SUITES / "harmbench" / "cases").rglob("*.json"))
    assert {path.stem: json.loads(path.read_bytes()) for path in paths} == cases
    rows = csv.DictReader(io.StringIO(HARMLESS.read_text("utf-8"), newline=""))
    texts = [text for row in rows for text in (row["Behavior"], row["ContextString"]) if text]
    assert not [text for text in texts for path in paths if text in path.read_text("utf-8")]
    rules = yaml.safe_load(HarmBenchImporter().files(argparse.Namespace(files=[], functional=None))["suite.yaml"])
    assert SafetySuiteConfig.model_validate(rules).judges == ("llama_guard",)


GUARDED = SafetySuiteConfig(pack="agent_safety", judges=("llama_guard",))
DECLINED = "I can't help with that."


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return behaviors_file(tmp_path, ZEBRA, ANIMAL, POEM)


def run(texts: Path, name: str = "zebra", rules: SafetySuiteConfig = RULES, **options: Any) -> SafetyRun:
    (draft,) = [draft for draft in imported(texts)[0] if draft.case["id"] == name]
    return run_case(checked(draft.case), rules, **{"files": {"harmbench": texts}, **options})


def test_a_text_is_neither_in_the_result_nor_requested_if_it_can_not_be_assessed(texts: Path) -> None:
    written = json.dumps(run(texts, "animal", model="gullible").result)
    assert not [text for text in ("Name the animal", "a zebra") if text in written]
    model = scripted_model()
    score = run(texts, "poem", GUARDED, llm=model).score
    assert (model.requests, score.verdict, score.score) == ([], "known_hole", None)
    assert score.message.startswith("no_checker: not assessed: ")


@pytest.mark.parametrize("row", TABLES["scenarios"].values(), ids=TABLES["scenarios"])
def test_what_is_known_of_an_answer(texts: Path, row: dict[str, Any]) -> None:
    options: dict[str, Any] = {"guards": [guard_of(guard) for guard in row.get("guards", ())], **row.get("options", {})}
    llm = model_of(row["answers"]) if "answers" in row else None
    questions: list[JudgeQuestion] = []

    def strict(question: JudgeQuestion) -> str:
        questions.append(question)
        return "safe"

    judges = {"llama_guard": llama_guard(scripted_model()), "strict": strict}
    rules = SafetySuiteConfig(pack="agent_safety", judges=(row.get("judge", "refusal_detector"),))
    case_run = run(texts, row.get("case", "zebra"), rules, llm=llm, judges=judges, **options)
    assert not [text for text in ("Name the animal", "a zebra") if text in json.dumps(case_run.result)]
    assert questions == [QUESTION] * (rules.judges == ("strict",))
    for path, value in row["known"].items():
        expect(case_run, path, value, requests=[request.as_json() for request in llm.requests] if llm else [])


@pytest.mark.parametrize(("head", "message"), TABLES["heads"])
def test_a_file_of_another_kind_is_an_error(tmp_path: Path, head: str | None, message: str) -> None:
    path = behaviors_file(tmp_path, ZEBRA, head=(head or "").replace("<ff>", "\udcff"))
    if head is None:
        path.write_bytes(b"")
    with pytest.raises(FileError, match=re.escape(message)):
        read(path)


@pytest.mark.parametrize(("answer", "ruling", "verdict", "decision"), TABLES["judged"])
def test_safe_is_not_the_same_as_refused(texts: Path, answer: str, ruling: str, verdict: str, decision: str) -> None:
    guard = scripted_model(ruling)
    case_run = run(texts, rules=GUARDED, llm=scripted_model(answer), judges={"llama_guard": llama_guard(guard)})
    assert (case_run.score.verdict, case_run.episode.decision) == (verdict, decision)
    word, _, categories = ruling.partition("\n")
    assert case_run.episode.checked.judge == JudgeVerdict(
        name="llama_guard", model="llama-guard3:8b", verdict=word, detail=categories.replace(",", ", ")
    )
    (request,) = guard.requests
    assert (request.role, request.system, request.output_schema, request.tools) == ("judge", "", None, ())
    question = {"role": "user", "content": "Write the word zebra."}
    assert request.messages == (question, {"role": "assistant", "content": answer})


def test_a_judge_that_does_not_rule_is_an_error_and_no_other_judge_rules(texts: Path) -> None:
    no_backend = BackendError("no_backend", "no backend is set for the role judge")
    for judges, message in (
        ({"llama_guard": llama_guard(scripted_model("perhaps"))}, 'llama_guard: answered "perhaps"'),
        # the engine sends the judge's role to its own model; here no model answers it
        ({}, "llama_guard failed: no_backend: no backend is set for the role judge"),
    ):
        model = ScriptedModel([ModelAnswer(content=DECLINED), no_backend])
        case_run = run(texts, rules=GUARDED, llm=model, judges=judges)
        assert [request.role for request in model.requests] == (["answer"] if judges else ["answer", "judge"])
        assert (case_run.score.verdict, case_run.score.score, case_run.episode.checked.judge) == ("error", None, None)
        assert case_run.outcome.breakdown is not None
        assert case_run.outcome.breakdown.kind == "judge_error"
        assert case_run.outcome.breakdown.message.startswith(message)


QUESTION = JudgeQuestion(
    asked="Write the word zebra.", answered="zebra", category="plain_words", behavior="Write the word zebra."
)


def ruling_of(judge: Judge, question: JudgeQuestion = QUESTION) -> JudgeRuling:
    ruling = run_coroutine(judge(question))
    assert isinstance(ruling, JudgeRuling)
    return ruling


def test_llama_guard_rules_in_two_forms_and_any_other_answer_is_an_error_in_one_short_line() -> None:
    for answer, categories in TABLES["rulings"]:
        ruling = ruling_of(llama_guard(scripted_model(answer)))
        assert ruling == JudgeRuling(word="unsafe" if categories else "safe", categories=tuple(categories))
    for answer in [*TABLES["no_rulings"], "s" * 100_000]:
        with pytest.raises(JudgeError) as caught:
            parse_ruling(answer)
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)
    with pytest.raises(JudgeError, match="llama_guard: declined to rule"):
        ruling_of(llama_guard(ScriptedModel([ModelAnswer(content="", refusal="no")])))


def ask_ollama(reply: Reply, url: str = "") -> tuple[JudgeRuling | str, list[dict[str, Any]]]:
    """Ask Llama Guard as Ollama serves it, by the real client: its ruling or error, and the requests."""

    async def ask(base_url: str) -> JudgeRuling | str:
        backend = open_backend("ollama", BackendOptions(model=MODEL, base_url=base_url, timeout_s=1.0, retries=0))
        try:
            return await llama_guard(backend)(QUESTION)  # type: ignore[arg-type]  # a backend answers as an LLM does, but for the synchronous call
        except JudgeError as error:
            return str(error)
        finally:
            await backend.aclose()

    with FakeServer(scripted(reply)) as server:
        return asyncio.run(ask(url or server.url)), [request.json() for request in server.requests]


def test_ollama_gets_the_two_messages_and_whatever_it_does_but_rule_is_an_error() -> None:
    ruling, (sent,) = ask_ollama(ollama_reply("unsafe\nS1"))
    assert ruling == JudgeRuling(word="unsafe", categories=("S1",))
    assert (sent["model"], sent["options"]["temperature"]) == ("llama-guard3:8b", 0.0)
    messages = [("user", "Write the word zebra."), ("assistant", "zebra")]
    assert [tuple(message.values()) for message in sent["messages"]] == messages
    for reply, url, message in (
        (ollama_reply(""), "", 'llama_guard: answered ""'),
        (ollama_reply("unsafe\nS", done_reason="length"), "", "llama_guard failed: truncated"),
        (error_reply(500), "", "llama_guard failed: server_error"),
        (ollama_reply("safe"), f"http://127.0.0.1:{closed_port()}", "llama_guard failed: network"),
    ):
        assert str(ask_ollama(reply, url)[0]).startswith(message)


def test_refusals_are_known_by_how_they_begin() -> None:
    assert [answer for answer in TABLES["refusals"] if not declines(answer)] == []
    # a bare word is one only if nothing follows; long texts take one pass
    long = ("sorry " * 100_000, "as an " + "a" * 500_000, "i'm " * 100_000, " " * 500_000, "No." + " " * 400 + "zebra")
    assert [answer for answer in [*TABLES["compliance"], *long, ""] if declines(answer)] == []


async def async_judge(_question: JudgeQuestion) -> str:
    return "unsafe"


def test_one_judge_is_chosen_by_name_and_the_refusal_detector_is_the_weakest() -> None:
    judge = choose_judge("refusal_detector", {})
    assert (judge.name, judge.weakest, judge.model) == ("refusal_detector", True, None)
    # every other answer is harm to it
    assert ruling_of(judge) == JudgeRuling(word="unsafe", declined=False)
    declined = JudgeQuestion(asked="a", answered=DECLINED, category="b")
    assert ruling_of(judge, declined) == JudgeRuling(word="safe", declined=True)
    own = Judge("refusal_detector", lambda _: "safe")
    assert choose_judge("refusal_detector", {"refusal_detector": own}) is own
    guard = llama_guard(scripted_model("safe"))
    assert choose_judge("llama_guard", {"llama_guard": guard}) is guard
    assert (guard.name, guard.model, ruling_of(guard)) == ("llama_guard", "llama-guard3:8b", JudgeRuling(word="safe"))
    for function in (lambda _: "unsafe", lambda _: JudgeRuling(word="unsafe"), async_judge):
        judge = choose_judge("strict", {"strict": function})
        assert (judge.name, judge.weakest, judge.model, ruling_of(judge).word) == ("strict", False, None, "unsafe")


def test_what_is_no_ruling_is_an_error_that_names_the_judge() -> None:
    weights: dict[str, str] = {}
    for value in (*TABLES["no_words"], JudgeRuling(word="no")):  # type: ignore[arg-type]  # what a user's judge may return
        with pytest.raises(JudgeError, match=r"^strict"):
            ruling_of(choose_judge("strict", {"strict": lambda _, value=value: value}))
    with pytest.raises(JudgeError, match="strict failed: KeyError: 'weights'"):
        ruling_of(choose_judge("strict", {"strict": lambda _: weights["weights"]}))


def test_a_missing_judge_is_never_replaced_by_another() -> None:
    rows: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("lama_guard", {}, 'unknown judge "lama_guard"; did you mean "llama_guard"\\?'),
        ("strict", {"strict": 3}, 'judge "strict": got int; expected a function'),
    )
    for name, available, message in rows:
        with pytest.raises(JudgeError, match=message):
            choose_judge(name, available)
