"""The cases of a page as compressed data, and where the texts of cases and recordings come from."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import load_suite
from pytest_packbench.cases.finder import find_recording, iter_cases
from pytest_packbench.cases.load import case_file_sha256, load_recording, read_located
from pytest_packbench.cases.texts import SourceTexts, hide_prompts, source_texts
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.result import EFFECTS
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.suite import GenericCase
from pytest_packbench.reports.page import case_data
from pytest_packbench.reports.page.case_data import NO_SOURCES, SEPARATOR, CaseSources, case_blocks, root_link
from pytest_packbench.reports.story import Place
from pytest_packbench.testing import case as new_case
from tests.integration.test_bundled import SOURCES, pack
from tests.unit.run_builders import case_result, changed, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.reports.page.case_data import CaseBlocks

TRACE = [{"hook": f"check.{number}", "decision": "pass", "rule": number} for number in range(13)]


def blocks(results: Sequence[Result], sources: CaseSources = NO_SOURCES, **arguments: Any) -> CaseBlocks:
    compared = {name: arguments.pop(name) for name in ("baseline", "history") if name in arguments}
    return case_blocks(results, sources, run(**arguments), **{"history": {}, **compared})


def unpacked(found: CaseBlocks) -> dict[str, str]:
    return {block.name: gzip.decompress(b64decode(block.text)).decode() for block in found.blocks}


def rows(found: CaseBlocks) -> dict[str, dict[str, Any]]:
    table = json.loads(unpacked(found)["rows"])
    columns = table["columns"]
    made = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {row["case_id"]: row for row in made}


def details(found: CaseBlocks, case_id: str) -> tuple[dict[str, Any], list[str]]:
    """The details of a case and the texts of its chunk, as the script of the page reads them."""
    row = rows(found)[case_id]
    head, *texts = unpacked(found)[f"details-{row['details']}"].split(SEPARATOR)
    chunk = json.loads(head)
    case = dict(zip(chunk["details"], chunk["cases"][row["key"]], strict=True))
    case["trials"] = [dict(zip(chunk["attempts"], values, strict=True)) for values in case["trials"]]
    for trial in case["trials"]:
        if trial["payload"]:
            trial["payload"] = json.loads(texts[trial["payload"] - 1])
    return case, texts


def text_sources(text: str, exchanges: str | None = None) -> CaseSources:
    return CaseSources(lambda _: text, lambda _: exchanges)


def test_what_went_in_comes_out() -> None:
    text = '{\n  "id": "one",\n  "input": "two\\n  lines, \\u001e, \N{SNOWMAN}"\n}\n'
    payload = {"deep": {"trace": TRACE}, "words": ["a"] * 9, "prose": [{"text": "x" * 50}] * 5}
    terms = ({"name": "right", "effect": "add", "value": 1.0, "detail": "same"},)
    record = {"hook_decisions": TRACE, "tokens_input": 3, "tokens_output": None}
    now = case_result("one", payload=payload, terms=terms, record=record)
    found = blocks(
        [now],
        text_sources(text, '{"origin": "authored", "exchanges": []}'),
        history={now.case.test_id: ["failed", "passed"]},
    )
    case, texts = details(found, "one")
    assert json.loads(texts[case["case"] - 1]) == json.loads(text)
    assert texts[case["recording"] - 1] == '{"exchanges":[]}'
    (trial,) = case["trials"]
    assert (trial["payload"], trial["terms"], trial["hooks"]) == (payload, list(terms), TRACE)
    assert (case["history"], trial["tokens_input"], found.notices) == (["failed", "passed"], 3, ())
    odd = changed(now, answer="\udc80", terms=({**terms[0], "detail": "\udc80"},))
    assert details(blocks([odd]), "one")[0]["trials"][0]["terms"][0]["detail"] == "\udc80"
    # unreadable texts stay as they are
    case, texts = details(blocks([now], text_sources("not\n  JSON \udc80")), "one")
    assert texts[case["case"] - 1] == "not\n  JSON \\udc80"
    assert details(blocks([case_result("one", "error")]), "one")[0]["case"] is None


def test_rows_say_what_the_table_needs() -> None:
    before = {each.case.test_id: each for each in (case_result("a"), case_result("b", "failed"), case_result("c"))}
    lost = ({"name": "forbidden", "effect": "zero", "value": 0.0}, {"name": "clamp", "effect": "clamp", "value": -0.1})
    now = [case_result("a", "failed", terms=lost, answer="x"), case_result("b"), case_result("d", tags=("t",))]
    now += [case_result("c", case_sha256="ab" * 32), case_result("a b", "error", message="broken", file="f.jsonl:3")]
    before["toy:plain:c"] = changed(before["toy:plain:c"], case_sha256="cd" * 32)
    sources = NO_SOURCES._replace(place=Place("../..", "--packbench-mode=live"))
    found = rows(blocks(now, sources, baseline=before))
    changes = {"a": "new_failure", "b": "recovered", "c": "changed_and_excluded", "d": "added", "a b": "added"}
    assert {name: row["change"] for name, row in found.items()} == changes
    assert found["a"]["terms"] == [["forbidden", True], ["clamp", False]]
    # where nothing cost points, the terms that gave none are the cause
    parts = ({"name": "queue", "effect": "add", "value": 0.0}, {"name": "order", "effect": "add", "value": 0.3})
    (low,) = rows(blocks([case_result("low", "failed", terms=parts)])).values()
    assert low["terms"] == [["queue", True], ["order", False]]
    assert (found["a"]["before"], found["d"]["tags"]) == (["passed", 1.0, None], ["t"])
    assert found["a"]["test_id"] == now[0].case.test_id
    assert found["a b"]["command"] == "pytest 'cases/a b.json::a b' --packbench-mode=live"
    assert found["a"]["command"] == "pytest cases/a.json::a --packbench-mode=live"
    assert [row["change"] for row in rows(blocks(now)).values()] == [None] * 5


def test_the_script_gets_the_sign_of_each_verdict_and_the_kinds_of_changes() -> None:
    now = [case_result("a")]
    table = json.loads(unpacked(blocks(now, baseline={}))["rows"])
    assert {*table["signs"]} == {*EFFECTS, "quarantined"}
    # the worst first, and each of the two that are no change last
    assert (table["changes"][0], table["changes"][-2:]) == ("new_failure", ["added", "same"])
    assert {*table["columns"]["change"]} <= {*table["changes"]}
    assert json.loads(unpacked(blocks(now))["rows"])["changes"] == []
    # one that improved by less than what counts is the same
    before = {"toy:plain:a": changed(now[0], score=0.99)}
    assert rows(blocks(now, baseline=before))["a"]["change"] == "same"


def test_trials_are_one_row() -> None:
    trials = [case_result("a", verdict, trial=number) for number, verdict in enumerate(("passed", "failed", "passed"))]
    found = blocks([*trials, case_result("b")])
    row = rows(found)["a"]
    assert (row["passed"], row["trials"], row["score"]) == (2, 3, 0.75)
    assert [trial["verdict"] for trial in details(found, "a")[0]["trials"]] == ["passed", "failed", "passed"]


def test_secrets_of_files_do_not_reach_the_page() -> None:
    secret = "sk-" + "a1B2" * 8
    found = blocks(
        [case_result("a")],
        text_sources(f'{{"input": "{secret}"}}', f'{{"exchanges": [{{"answer": "{secret}"}}]}}')._replace(
            redact=lambda text: text.replace(secret, "[redacted]")
        ),
    )
    assert [secret in text for text in unpacked(found).values()] == [False, False]
    assert unpacked(found)["details-0"].count("[redacted]") == 2


def test_a_large_page_loses_the_exchanges_of_cases_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "MAX_EXCHANGES", 1 << 20)
    monkeypatch.setattr(case_data, "MAX_PAYLOADS", 3 << 19)
    noise = json.dumps([hash((number, "x")) for number in range(8000)])
    results = [*(case_result(f"p{number}") for number in range(30)), case_result("bad", "failed")]
    found = blocks(results, text_sources(noise, noise))
    size = sum(len(block.text) for block in found.blocks)
    assert 1 << 20 < size < 2 << 20
    first, second = found.notices
    assert first.startswith("The recorded exchanges of ")
    assert first.endswith(
        " are left out, because this page would be too large; the files of the run and of the suite contain them."
    )
    assert second.startswith("The texts and results of ")
    assert details(found, "bad")[0]["recording"]
    assert not details(found, "p29")[0]["recording"]


def test_failures_are_first_in_the_table() -> None:
    assert list(rows(blocks([case_result("p"), case_result("bad", "failed")]))) == ["bad", "p"]
    assert json.loads(unpacked(blocks([]))["rows"])["columns"] == {}


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_MAX_TEXT", 1 << 20)
    found = blocks([case_result("a")], text_sources("x" * (1 << 21)))
    (notice,) = found.notices
    assert notice.startswith(
        "The ends of long texts of 1 case (a) are left out, because this page would be too large; "
    )
    assert len(details(found, "a")[1][0]) == 1 << 20


def test_what_is_cut_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_MAX_TEXT", 1 << 10)
    recording = json.dumps({"exchanges": [{"role": "answer", "answer": "x" * (1 << 11)}]})
    results = [case_result(f"c{number}", payload={"text": "y" * (1 << 11)}) for number in range(4)]
    found = blocks([*results, case_result("whole", payload={})], text_sources("{}", recording))
    case, _ = details(found, "whole")
    assert (case["recording"], case["trials"][0]["cut"]) == (None, None)
    chunk = json.loads(unpacked(found)["details-0"].split(SEPARATOR)[0])
    assert [dict(zip(chunk["attempts"], each[4][0], strict=True))["cut"] for each in chunk["cases"]] == [True] * 4 + [
        None
    ]
    assert "The recorded exchanges of 5 cases (c0, c1, c2 and 2 more) are left out" in found.notices[0]
    assert "The ends of long texts of 4 cases (c0, c1, c2 and 1 more) are left out" in found.notices[1]


def test_digests_are_left_out_of_recordings_only() -> None:
    text = '{"exchanges":[{"input_sha256":"' + "ab" * 32 + '","x":1}]}'
    case, texts = details(blocks([case_result("a")], text_sources(text, text)), "a")
    assert (texts[case["case"] - 1], texts[case["recording"] - 1]) == (
        text,
        '{"exchanges":[{"x":1}]}',
    )


def test_runs_are_told_apart() -> None:
    live = {"mode": "live", "target": "toy:answer", "pack": "generic", "finished_at": "2026-01-02T03:04:05.678Z"}
    table = json.loads(unpacked(blocks([case_result("a")], NO_SOURCES, **live))["rows"])
    assert (table["pack"], table["label"]) == ("generic", "live toy:answer 2026-01-02 03:04:05")


def test_trials_of_a_quarantined_case_count_by_their_verdicts() -> None:
    trials = [case_result("a", kind="xfail", trial=number) for number in range(3)]
    row = rows(blocks(trials))["a"]
    assert (row["passed"], row["trials"]) == (3, 3)


def test_a_thousand_cases_of_the_tariff_suite_take_two_megabytes() -> None:
    suite = load_suite(SOURCES / "tariff")
    results = []
    for case in list(iter_cases(suite.cases_path))[:100]:
        recording = json.loads(read_located(find_recording(suite, case.name).location))
        # a result repeats what the model answered, and logs every check
        answers = [exchange["answer"] for exchange in recording["exchanges"]]
        file = Path(case.path).relative_to(suite.path).as_posix()
        results.append(
            case_result(
                case.name,
                file=file,
                payload={"answers": answers, "trace": TRACE},
                record={"hook_decisions": TRACE},
                cassette_sha256="ab" * 32,
                case_sha256=case_file_sha256(case),
            )
        )
    sources = CaseSources(*source_texts(suite, suite.path, is_checked=False))
    found = blocks(results, sources)
    assert all(details(found, case_id)[0]["recording"] for case_id in list(rows(found))[::25])
    assert sum(len(block.text) for block in found.blocks) * 10 < 2 << 20


@pytest.mark.parametrize("form", ["files", "lines"])
def test_the_texts_of_a_suite(tmp_path: Path, form: str) -> None:
    folder = pack(SOURCES / "tariff", tmp_path) if form == "lines" else SOURCES / "tariff"
    suite = load_suite(folder)
    case = next(iter(iter_cases(suite.cases_path)))
    _, cassette_sha256 = load_recording(find_recording(suite, case.name))
    file = case.label(Path(case.path).relative_to(folder).as_posix())
    hashes: dict[str, Any] = {"case_sha256": case_file_sha256(case), "cassette_sha256": cassette_sha256}
    result = case_result(case.name, file=file, **hashes)
    texts = source_texts(suite, folder)
    assert json.loads(texts.case_text(result) or "")["id"] == case.name
    assert json.loads(texts.exchanges_text(result) or "")["case_id"] == case.name
    bundled = changed(result, file=f"bundled:{suite.record_name}/{file}")
    assert texts.case_text(bundled) == texts.case_text(result)
    assert texts.remark(result) == ""
    assert texts.remark(changed(result, case_sha256="ab" * 32)) == "the case changed after this run"
    edited = changed(result, case_sha256="ab" * 32, cassette_sha256="ab" * 32)
    assert texts.remark(edited) == "the case and the recording changed after this run"
    assert source_texts(suite, folder, is_checked=False).remark(edited) == ""
    # a live answer was not made with the recording
    assert texts.exchanges_text(changed(result, cassette_sha256=None)) is None


def test_the_recording_that_waits_for_approval_is_that_of_the_run(tmp_path: Path) -> None:
    suite = load_suite(pack(SOURCES / "tariff", tmp_path))
    case = next(iter(iter_cases(suite.cases_path)))
    older = json.loads(read_located(find_recording(suite, case.name).location))
    newer = {**older, "exchanges": []}
    pending = suite.pending_path(case.name)
    pending.parent.mkdir()
    pending.write_text(json.dumps(newer, indent=2), "utf-8")
    texts = source_texts(suite, suite.path)
    for recording in (older, newer):
        result = case_result(case.name, cassette_sha256=canonical_sha256(recording))
        assert json.loads(texts.exchanges_text(result) or "") == recording
        assert texts.remark(result) == ""
    # where the answers were the same, the older recording was kept
    kept = case_result(case.name, cassette_sha256="ab" * 32)
    assert texts.remark(kept) == "the recording changed after this run"
    assert texts.remark(replace(kept, record={"packbench": {"mode": "record"}})) == ""


@pytest.mark.parametrize(
    ("verdict", "changes", "can_accept", "shown"),
    [
        ("failed", {}, True, True),
        ("failed", {}, False, False),
        ("passed", {}, True, False),
        ("error", {}, True, False),
        ("failed", {"refused": True}, True, False),
        ("failed", {"expects_refusal": True}, True, False),
    ],
)
def test_an_answer_that_was_compared_can_be_accepted(
    verdict: str, changes: dict[str, Any], can_accept: bool, shown: bool
) -> None:
    found = blocks([case_result("a", verdict, **changes)], NO_SOURCES._replace(can_accept=can_accept))
    assert rows(found)["a"]["can_accept"] is shown


class OpenCase(GenericCase):
    """A case whose texts stay in the user's folder, unless it says otherwise."""

    @property
    def keeps_prompts(self) -> bool:
        return bool(self.input["open"])


class KeepsOpenCases(GenericPack):
    case_model = OpenCase


@pytest.mark.parametrize(
    ("pack", "are_kept", "shown"),
    [
        (GenericPack(), True, {"open", "closed", "damaged"}),
        (GenericPack(), False, set()),
        (KeepsOpenCases(), True, {"open"}),
        (KeepsOpenCases(), False, set()),
    ],
)
def test_prompts_that_are_not_kept_are_not_in_texts(pack: GenericPack, are_kept: bool, shown: set[str]) -> None:
    def case_text(result: Result) -> str:
        asked = {"open": result.case.case_id == "open", "ask": "private"}
        whole = json.dumps(new_case(result.case.case_id, pack_id="generic", input=asked, expected={"said": "gold"}))
        return whole if result.case.case_id != "damaged" else whole.replace("}", "", 1)

    def exchanges_text(_: Result) -> str:
        exchange = {"role": "ask", "prompt": {"messages": [{"content": "private"}]}, "answer": "said"}
        return json.dumps({"exchanges": [exchange], "gateway": [{"request": "private", "body": "said too"}]})

    texts = hide_prompts(SourceTexts(case_text, exchanges_text, lambda _: ""), pack, are_kept=are_kept)
    for name in ("open", "closed", "damaged"):
        found, recording = texts.case_text(case_result(name)), texts.exchanges_text(case_result(name)) or ""
        assert ("private" in (found or "")) is ("private" in recording) is (name in shown)
        # one that can't be parsed is hidden whole
        assert "gold" in (found or "") or name == "damaged"
        assert json.loads(recording)["exchanges"][0]["answer"] == "said"
        assert json.loads(recording)["gateway"][0]["body"] == "said too"


def test_no_file_outside_of_the_suite_is_read(tmp_path: Path) -> None:
    suite = load_suite(SOURCES / "tariff")
    outside = tmp_path / "secret.json"
    outside.write_text("{}", "utf-8")
    texts = source_texts(suite, SOURCES / "tariff")
    for file in (
        str(outside),
        f"cases/../../../../{outside}",
        "cases",
        "",
        "cases/absent.json",
        "suite.yaml/x",
        "a\0b",
    ):
        result = case_result("secret", file=file, case_sha256="ab" * 32, cassette_sha256="ab" * 32)
        assert (texts.case_text(result), texts.exchanges_text(result), texts.remark(result)) == (None, None, "")
    for name in (f"../../../../../../../../{outside}".removesuffix(".json"), "../suite", "", "a\0b"):
        assert texts.exchanges_text(case_result(name, cassette_sha256="ab" * 32)) is None


def test_links_lead_up_to_the_project_only(tmp_path: Path) -> None:
    assert root_link(tmp_path, tmp_path / "reports" / "benchmarks" / "toy" / "R") == "../../../.."
    assert root_link(tmp_path / "project", tmp_path / "elsewhere") is None
