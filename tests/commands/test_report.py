"""Reports of records: what is counted, and `packbench report` from its arguments to its output and exit code."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.records import DIMENSIONS, MAX_DUPLICATES, MAX_FAILING, overview
from pytest_packbench.commands import main
from pytest_packbench.commands.report import overview_markdown
from pytest_packbench.model.record import EVAL_DECISIONS, EVAL_SUITES
from tests.unit.run_builders import data
from tests.unit.stored_runs import RUN, error, file_of, folder_of, line, lines_of, record, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.model.record import EvalRecord
    from tests.conftest import ExpectedTexts

    Command = Callable[..., tuple[int, str, str]]

DATA: dict[str, Any] = data("report.yaml")

TITLE = "# packbench report: "


@pytest.fixture
def report(capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Call the command; returns its exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["report", *arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def test_the_report_of_many_records(report: Command, tmp_path: Path, expected: ExpectedTexts) -> None:
    folder = str(Path(__file__).with_name("data") / "run")
    code, page, error = report(folder)
    assert (code, error) == (1, "")
    expected.check(page, "md")
    document = json.loads(report(folder, "--format", "json")[1], parse_float=lambda number: round(float(number), 9))
    document["runs"] = [{**document["runs"][0], "suites": document["runs"][0]["suites"][:2]}]
    expected.check(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "json")
    alone = report(f"{folder}/records.jsonl")[1].partition(TITLE)[2]
    assert "errors.jsonl" in alone.partition("## Gates")[0]
    assert " error," not in alone
    assert "5 passed, 1 failed, 2 error" in report(folder, "--run", "r1")[1]
    assert "Verdicts: 38 passed, 4 failed." in report(folder, "--run", "r2")[1]


def test_several_inputs_are_their_concatenation_and_a_report_is_written_whole(
    report: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lines_of([{"n": 3}, {"passed": False}]), lines_of([{"n": 2, "run_id": "r2"}, {"from": 3}])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(second)))
    whole = report(file_of(tmp_path, first + second, "whole.jsonl"))
    assert report(file_of(tmp_path, first, "1.jsonl"), "-") == whole
    path, out = file_of(tmp_path, line()), tmp_path / "out.md"
    out.write_text("older")
    assert report(path, "--out", str(out)) == (0, "", f"wrote report to {out}\n")
    assert out.read_bytes().decode() == report(path)[1] == report(path, "--out", "-")[1]
    assert {file.suffix for file in tmp_path.iterdir()} == {".jsonl", ".md"}


def test_the_original_the_gates_and_the_remarks_of_a_report(
    report: Command, tmp_path: Path, expected: ExpectedTexts
) -> None:
    texts = []
    for name, vector in data("reports.yaml").items():
        path = file_of(tmp_path, lines_of(vector["records"]) + vector.get("more", "").encode())
        options = vector.get("options", [])
        code, out, err = report(path, *options)
        assert (out == "", err.count("\n")) == (code == 2, code == 2)
        others = (["--format", "json"], ["--out", f"{path}.md"])
        assert [report(path, *options, *other)[0] for other in others] == [code] * 2
        # of the tables below, only the verdicts, and the lines about their length
        page, *tables = f"{out}{err}".replace(str(tmp_path), "TMP").split("\n### ")
        rows = [row for table in tables for row in table.splitlines()]
        kept = [row for row in rows if re.search(r"Verdicts|shown|^Tokens", row)]
        texts.append("\n".join([f"==== {name}: {code}", page.rstrip(), *kept, ""]))
    expected.check("\n".join(texts), "md")


@pytest.mark.parametrize("opening", ["a\n```", "a\r~~~~~", "a\n<!--", "a\n<details>", "a\n````` x"])
def test_what_an_unescaped_name_opens_is_closed_before_the_page(report: Command, tmp_path: Path, opening: str) -> None:
    original = report(file_of(tmp_path, line(attack_category=opening)))[1].partition(TITLE)[0]
    assert f"| {opening} | 1/1 | 0 | 100% |\n" in original
    seal = original.partition("injection success)**\n\n")[2]
    ticks, tildes = (max(re.findall(f"{char}+", seal), key=len) for char in "`~")
    assert f"{ticks}\n\n" in seal
    assert f"{tildes}\n\n" in seal
    assert (len(ticks) >= opening.count("`"), len(tildes) >= opening.count("~")) == (True, True)
    assert all(closer in seal for closer in ("-->", "</details>", "</pre>", "]]>"))


def test_what_is_no_record_is_one_line(report: Command, tmp_path: Path, expected: ExpectedTexts) -> None:
    messages = []

    def refuse(name: str, *arguments: str) -> None:
        code, out, err = report(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        messages.append(f"{name}: {err.replace(str(tmp_path), 'TMP')}")

    refuse("empty", file_of(tmp_path, b""), "--out", file_of(tmp_path, b"older", "out.md"))
    assert Path(tmp_path, "out.md").read_text() == "older"
    refuse("no file", str(tmp_path / "none"))
    refuse("no run", str(tmp_path))
    refuse("only errors", folder_of(tmp_path / "broken", b"", error(), error("not_run", test_id="agentdojo:x")))
    folder = folder_of(tmp_path / "run", line())
    refuse("over its folder", folder, "--out", f"{folder}/../run/records.jsonl")
    refuse("over itself", f"{folder}/records.jsonl", "--out", f"{folder}/../run/records.jsonl")
    assert Path(folder, "records.jsonl").read_bytes() == line()
    refuse("into no folder", folder, "--out", str(tmp_path / "none" / "out.md"))
    refuse("into a folder", folder, "--out", str(tmp_path))
    expected.check("".join(messages))


def test_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    caps = ["--max-seconds=-1", "--max-cost=nan"]
    caps += [f"--max-tokens={value}" for value in ("-1", "nan", "inf", "many", "", "1.5")]
    for arguments in ([], ["x", "--format", "xml"], ["x", "--nonsense"], *(["x", cap] for cap in caps)):
        with pytest.raises(SystemExit) as exit_:
            main(["report", *arguments])
        assert exit_.value.code == 2
        assert ("number of 0 or more" in capsys.readouterr().err) is (arguments[-1:] in [[cap] for cap in caps])


hostile = st.text(st.sampled_from("ab|\\`*_<>[]()!&#@$~-\n\r\t\x1b\x00\u2028\u202e"), max_size=12)


@settings(max_examples=50)
@given(hostile, hostile, hostile, hostile, hostile)
def test_cells_are_escaped(category: str, model: str, run_id: str, test_id: str, judge: str) -> None:
    names: dict[str, Any] = {"attack_category": category, "llm_model": model, "run_id": run_id, "test_id": test_id}
    failing = record(test_suite="tariff", passed=False, packbench={"judge": judge}, **names)
    page = overview_markdown(overview(records_of([failing, failing])))
    assert page.startswith(TITLE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028\u202e]", page)
    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in table.rstrip("\n").split("\n")}) == 1
    assert not re.search(r"[<>`*\[\]]", re.sub(r"&(?:lt|gt|amp);|\\.", "", page))


DUPLICATES: Any = DATA["duplicates"]


def test_a_duplicate_has_the_same_run_test_and_trial_and_the_first_counts() -> None:
    for changes, count in DUPLICATES:
        duplicates = overview(records_of([record(), record(**changes)]))["duplicates"]
        named = [{"run_id": RUN, "test_id": "agentdojo:1", "trial": 0}] * count
        assert (duplicates["count"], duplicates["first"]) == (count, named)
    counted = records_of([record(test_id=f"t{number:02}", passed=number % 2 == 0) for number in range(99, -1, -1)] * 3)
    duplicates = overview(counted)["duplicates"]
    assert [name["test_id"] for name in duplicates.pop("first")] == [
        f"t{number:02}" for number in range(MAX_DUPLICATES)
    ]
    assert duplicates == {"count": 200, "names": 100, "conflicting": 0}
    ((_, failing),) = counted.failing.items()
    assert [case["test_id"] for case in failing.first] == [f"t{number:02}" for number in range(1, 2 * MAX_FAILING, 2)]
    passed, failed = record(), record(passed=False)
    for records, failures in (([passed, failed, passed], 0), ([failed, failed, passed], 1)):
        counted = records_of(records)
        duplicates = overview(counted)["duplicates"]
        del duplicates["first"]
        assert duplicates == {"count": 2, "names": 1, "conflicting": 1}
        assert len(counted.failing) == failures


def test_values_that_packbench_never_writes_are_not_counted() -> None:
    wrong_types = {"score": "1", "utility": 1, "cost_usd": True, "trial": "2", "judge": 3, "mode": None}
    too_much = {"score": 1e308, "cost_usd": 1e308, "trial": 2**40}, {"score": 10**19, "cost_usd": 10**19}
    for extension in (wrong_types, *too_much, {"score": -0.1, "cost_usd": -1, "trial": -1}):
        ((key, sums),) = records_of([record(packbench=extension)]).sums.items()
        assert (sums["score_known"], sums["cost_known"], sums["later"]) == (0, 0, 0)
        assert [key[DIMENSIONS.index(name)] for name in ("mode", "judge")] == ["", ""]
    # a judge is known by its name and model, not by its verdict
    judges = ({"name": "j", "model": "m", "verdict": verdict} for verdict in ("safe", "unsafe"))
    counted = records_of(record(test_id=judge["verdict"], packbench={"judge": judge}) for judge in judges)
    assert [key[-1] for key in counted.sums] == ["j / m"]


def figures(records: list[EvalRecord]) -> dict[str, Any]:
    """Return what a report shows of records, except for the run that the original names."""
    document = overview(records_of(records))
    if document["original"]:
        del document["original"]["run_id"]
    return document


EXTENSIONS = st.fixed_dictionaries(
    {},
    optional={
        "trial": st.integers(0, 2),
        "score": st.floats(0, 1),
        "cost_usd": st.floats(0, 10),
        "utility": st.booleans(),
        "judge": st.sampled_from(["j1", "j2"]),
        "mode": st.sampled_from(["fixture", "live"]),
    },
)
NAMES = st.text(max_size=4) | st.sampled_from(["a", "b", "|", "a\nb"])
RECORDS = st.builds(
    record,
    test_suite=st.sampled_from((*EVAL_SUITES, "tariff")),
    test_id=st.sampled_from("abcde"),
    attack_category=NAMES,
    agent_decision=st.sampled_from(EVAL_DECISIONS),
    passed=st.booleans(),
    wall_clock_ms=st.integers(0, 2**64 - 1),
    tokens_input=st.none() | st.integers(0, 2**64 - 1),
    llm_backend=st.sampled_from(["stub", "anthropic"]),
    run_id=st.sampled_from(["r1", "r2"]),
    packbench=st.none() | EXTENSIONS,
)


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=8, unique_by=lambda each: (each.run_id, each.test_id)), st.data())
def test_a_record_counts_once_whatever_the_order(once: list[EvalRecord], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(once), max_size=6)) if once else []
    mixed = data.draw(st.permutations([*once, *again]))
    document = figures(mixed)
    assert document["duplicates"]["count"] == len(again)
    assert document["duplicates"]["names"] == len({id(each) for each in again})
    assert document["runs"] == figures(once)["runs"]
    assert figures([*once, *again]) == document
    counted = records_of(mixed)
    assert sum(sums["records"] for sums in counted.sums.values()) == len(once)
    assert sum(sums["records"] for sums in counted.duplicate_sums.values()) == len(again)
