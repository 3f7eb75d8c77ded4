"""`packbench report` from its arguments to its output and exit code."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.overview import overview
from pytest_packbench.cli import main
from pytest_packbench.reports.overview_markdown import overview_markdown
from tests.unit.record_lines import RUN, error, file_of, folder_of, line, lines, record, tally_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ExpectedTexts

TITLE = "# packbench report: "


class Report(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def original(self) -> str:
        """The lines of the Rust report, before those of packbench."""
        return self.out.partition(TITLE)[0]

    @property
    def page(self) -> str:
        return "".join(self.out.partition(TITLE)[1:])

    def remark(self, words: str) -> str:
        (remark,) = [line for line in self.page.split("\n") if line.startswith("- ") and words in line]
        return remark


@pytest.fixture
def report(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Report]:
    def call(*arguments: str) -> Report:
        code = main(["report", *arguments])
        out, err = capsysbinary.readouterr()
        return Report(code, out.decode(), err.decode())

    return call


HOOKS = (
    b'"hook_decisions":[{"hook":"h","decision":"Allow"},{"hook":"h","decision":"Deny","rule":10},'
    b'{"hook":"h","decision":"Ask","rule":9}]'
)
ATTACKS = [("comply_safe", True), ("comply_safe", True), ("comply_unsafe", False), ("refuse", True)]
MANY_RECORDS = b"".join(
    [
        lines(38, 4, llm_model="m-a", run_id="r2"),
        lines(12, run_id="r2"),
        lines(0, 3, run_id="r2", llm_model="m-b", test_suite="harmbench"),
        *(
            line(
                test_id=f"u{number}",
                run_id="r1",
                agent_decision=decision,
                passed=passed,
                tokens_input=5,
                tokens_output=number or None,
                wall_clock_ms=1500 + 1000 * number,
                packbench={
                    "utility": number < 2,
                    "score": number / 4,
                    "threshold": 0.8,
                    "cost_usd": 0.1,
                    "mode": "live",
                },
            ).replace(b'"hook_decisions":[]', HOOKS)
            for number, (decision, passed) in enumerate(ATTACKS)
        ),
        line(test_id="j", run_id="r1", packbench={"judge": "guard", "mode": "fixture", "score": 0.5, "utility": True}),
        line(test_id="silent", run_id="r1"),
        lines(1, 3, run_id="r1", test_suite="injecagent", llm_model="m|c"),
        lines(2, run_id="r1", test_suite="ark", llm_backend="stub"),
        *(line(test_id="t", run_id="r1", test_suite="zoo", packbench={"trial": trial}) for trial in (2, 0, 1)),
    ]
)
ERRORS = [
    error(run_id="r1"),
    error("vacuous", run_id="r1", test_id="agentdojo:e2"),
    error("error", run_id="r1", trial=1),
    *[error("not_run", run_id="r1", test_id="agentdojo:e3", kind="skip")] * 2,
    error("known_hole", run_id="r1", test_id="tariff:positive:e4"),
]


def test_the_report_of_many_records(report: Callable[..., Report], tmp_path: Path, expected: ExpectedTexts) -> None:
    folder = folder_of(tmp_path / "run", MANY_RECORDS, *ERRORS)
    page = report(folder)
    assert (page.code, page.err) == (1, "")
    expected.check(page.out, "md")
    document = json.loads(report(folder, "--format", "json").out, parse_float=lambda number: round(float(number), 9))
    document["runs"] = [{**document["runs"][0], "suites": document["runs"][0]["suites"][:2]}]
    expected.check(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "json")
    alone = report(f"{folder}/records.jsonl")
    assert alone.remark("errors.jsonl")
    assert " error," not in alone.page


def test_one_run_of_several(report: Callable[..., Report], tmp_path: Path) -> None:
    content = lines(2, run_id="r1") + lines(3, run_id="r2")
    page = report(folder_of(tmp_path / "run", content, error(run_id="r1"), error(run_id="r2")), "--run", "r2")
    assert page.original.startswith("# B0 eval — run r2\n")
    assert "3/3" in page.original
    assert ("## Run r1" in page.page, "3 passed, 0 failed, 1 error." in page.page) == (False, True)
    assert page.remark("2 records of other runs ignored.")


def test_several_inputs_are_their_concatenation(
    report: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lines(3, 1), lines(2, 2, run_id="r2") + lines(1, 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(second)))
    whole = report(file_of(tmp_path, first + second, "whole.jsonl"))
    assert report(file_of(tmp_path, first, "1.jsonl"), "-").out == whole.out


PASSES_ONCE = lines(38, run_id="r2") + lines(0, 1, run_id="r1") * 2
DECIDED: dict[str, tuple[bytes, int]] = {
    "95 % of agentdojo": (lines(19, 1), 0),
    "less": (lines(18, 1), 1),
    "half of harmbench": (lines(1, 1, test_suite="harmbench"), 0),
    "less than half": (lines(1, 2, test_suite="harmbench"), 1),
    "no gate on injecagent": (lines(0, 9, test_suite="injecagent"), 0),
    "no gate on other suites": (lines(0, 9, test_suite="tariff"), 0),
    "all gates": (lines(9) + lines(0, 1, test_suite="harmbench"), 1),
    "each run, without duplicates": (PASSES_ONCE, 1),
}


@pytest.mark.parametrize(("content", "code"), DECIDED.values(), ids=DECIDED)
def test_the_gates_on_the_page_decide(report: Callable[..., Report], tmp_path: Path, content: bytes, code: int) -> None:
    path = file_of(tmp_path, content)
    page = report(path)
    assert (page.code, "| FAIL" in page.page) == (code, code == 1)
    assert report(path, "--format", "json").code == report(path, "--out", str(tmp_path / "out")).code == code


def test_the_original_counts_duplicates_and_merges_runs(report: Callable[..., Report], tmp_path: Path) -> None:
    page = report(file_of(tmp_path, PASSES_ONCE))
    assert "**Aggregate: 38 / 40 = 95% — PASS" in page.original
    assert "it counts 1 duplicate; it merges 2 runs" in page.remark("The lines above")
    gates = re.findall(
        r"^\| (PASS|FAIL) .*(as in the Rust report|run r\d, without duplicates)", page.page, re.MULTILINE
    )
    assert gates == [
        ("PASS", "as in the Rust report"),
        ("FAIL", "run r1, without duplicates"),
        ("PASS", "run r2, without duplicates"),
    ]
    once = report(file_of(tmp_path, lines(1, run_id="r1") + lines(1, run_id="r2", test_suite="harmbench")))
    assert "each once" not in once.page


def test_the_original_and_the_page_agree_on_one_run(report: Callable[..., Report], tmp_path: Path) -> None:
    page = report(file_of(tmp_path, lines(19, 1) + lines(23, 17, test_suite="harmbench")))
    assert "**Aggregate: 19 / 20 = 95% — PASS (spec ≤ 5% injection success)**" in page.original
    assert "| x | 23/40 | 17 | 57% |" in page.original
    assert "agree" in page.remark("The lines above")


def test_the_original_covers_its_suites_only(report: Callable[..., Report], tmp_path: Path) -> None:
    others = report(file_of(tmp_path, lines(1, test_suite="injecagent") + lines(1, test_suite="tariff")))
    assert (others.original, "## Gates" in others.page) == ("", False)
    mixed = report(file_of(tmp_path, lines(1, test_suite="tariff", run_id="first") + lines(1)))
    assert mixed.original.startswith(f"# B0 eval — run {RUN}\n")
    assert "it does not cover tariff" in mixed.remark("The lines above")


def test_token_sums_wrap_in_the_original_only(report: Callable[..., Report], tmp_path: Path) -> None:
    content = line(tokens_input=2**64 - 1) + line(test_id="other", tokens_input=2, tokens_output=3)
    page = report(file_of(tmp_path, content))
    assert page.original.endswith("## Cost audit\n\nTotal tokens: 1 input + 3 output\n\n")
    assert f"Tokens: {2**64 + 1} input + 3 output." in page.page
    assert "overflowed 2^64" in page.remark("The lines above")
    assert "Cost audit" not in report(file_of(tmp_path, line(tokens_input=2**63, tokens_output=2**63))).original


@pytest.mark.parametrize("opening", ["a\n```", "a\r~~~~~", "a\n<!--", "a\n<details>", "a\n````` x"])
def test_what_an_unescaped_name_opens_is_closed_before_the_page(
    report: Callable[..., Report], tmp_path: Path, opening: str
) -> None:
    page = report(file_of(tmp_path, line(attack_category=opening)))
    assert f"| {opening} | 1/1 | 0 | 100% |\n" in page.original
    seal = page.original.partition("injection success)**\n\n")[2]
    ticks, tildes = (max(re.findall(f"{char}+", seal), key=len) for char in "`~")
    assert f"{ticks}\n\n" in seal
    assert f"{tildes}\n\n" in seal
    assert len(ticks) >= opening.count("`")
    assert len(tildes) >= opening.count("~")
    assert all(closer in seal for closer in ("-->", "</details>", "</pre>", "]]>"))


def test_nothing_is_closed_where_nothing_can_be_open(report: Callable[..., Report], tmp_path: Path) -> None:
    page = report(file_of(tmp_path, line(attack_category="<!-- ```")))
    assert page.original.endswith("injection success)**\n\n")


@pytest.mark.parametrize(
    ("suite", "pack", "measured"),
    [
        ("agentdojo", None, True),
        ("mine", "agent_safety/1", True),
        ("tariff", None, False),
        ("tariff", "tariff/1", False),
        ("agentdojo", "tariff/1", True),
        ("injecagent", "unknown/1", True),
        ("mine", "unknown/1", False),
    ],
)
def test_attacks_are_measured_where_the_pack_registers_their_metrics(
    report: Callable[..., Report], tmp_path: Path, suite: str, pack: str | None, measured: bool
) -> None:
    extension = {"utility": True, **({"pack": pack} if pack else {})}
    path = file_of(tmp_path, lines(2, 1, test_suite=suite, packbench=extension))
    page, document = report(path).page, json.loads(report(path, "--format", "json").out)
    assert [words in page for words in ("attack success", "| utility", "comply_unsafe")] == [measured] * 3
    (row,) = document["runs"][0]["suites"][0]["rows"]
    assert [row[key] is not None for key in ("unsafe", "utility")] == [measured] * 2


def test_trials_and_cases_are_both_counted(report: Callable[..., Report], tmp_path: Path) -> None:
    trials = {"agentdojo:a": (2, 0, 1), "agentdojo:b": (1, 2), "agentdojo:c": (0,)}
    content = b"".join(line(test_id=name, packbench={"trial": n}) for name, numbers in trials.items() for n in numbers)
    page = report(file_of(tmp_path, content * 2)).page
    assert page.startswith(f"{TITLE}1 run, 6 records (3 cases, 6 trials)")
    assert "3 cases, 6 trials. Verdicts of trials: 6 passed, 0 failed." in page
    single = report(file_of(tmp_path, line(packbench={"trial": 0, "mode": "live"}))).page
    assert single.startswith(f"{TITLE}1 run, 1 record\n")
    assert not re.search("trials|fixture", single)


def test_long_tables_name_the_first(report: Callable[..., Report], tmp_path: Path) -> None:
    failing = report(file_of(tmp_path, lines(5, 28))).page.partition("#### Failing cases")[2]
    assert failing.count("agentdojo:") == 20
    assert "20 of 28 shown." in failing
    page = report(file_of(tmp_path, lines(12) + lines(0, 12) + lines(12, run_id="r2")))
    remark = page.remark("12 duplicates (")
    assert remark.count("agentdojo:") == 10
    assert "and 2 more." in remark
    assert "12 of them passed although the counted record failed, or the reverse." in remark
    assert "12 / 12 = 100.0 %" in page.page


def test_unreadable_lines_are_skipped_and_counted_if_wanted(report: Callable[..., Report], tmp_path: Path) -> None:
    path = file_of(tmp_path, line() + b"{}\n" + line(test_id="2").replace(b":1,", b":9,", 1))
    page = report(path, "--skip-bad")
    assert (page.code, "1/1" in page.original) == (0, True)
    remark = page.remark("2 unreadable lines skipped").replace("\\", "")
    assert "in.jsonl:2 test_suite: missing" in remark
    assert "in.jsonl:3 schema_version: expected 1, got 9" in remark
    assert "would have stopped" in page.remark("The lines above")
    assert report(file_of(tmp_path, line()), "--skip-bad").remark("All lines were read.")


BAD_TRIALS: list[object] = ["x", True, -1, 1.0, None, 2**32]
UNUSABLE: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", []),
    "blank": (b" \n\n", []),
    "no record": (line() + b"{}", []),
    "another schema": (line().replace(b":1,", b":7,", 1), []),
    "another suite, strictly": (line(test_suite="tariff"), ["--strict"]),
    "another run": (line(), ["--run", "other"]),
    "nothing but bad lines": (b"{}\n{}", ["--skip-bad"]),
    **{f"trial {trial!r}": (line() + line(packbench={"trial": trial}), []) for trial in BAD_TRIALS},
}


def test_what_is_no_record_is_one_line(report: Callable[..., Report], tmp_path: Path, expected: ExpectedTexts) -> None:
    messages = []

    def refuse(name: str, *arguments: str) -> None:
        page = report(*arguments)
        assert (page.code, page.out, page.err.count("\n")) == (2, "", 1)
        messages.append(f"{name}: {page.err.replace(str(tmp_path), 'TMP')}")

    out = file_of(tmp_path, b"older", "out.md")
    for name, (content, options) in UNUSABLE.items():
        refuse(name, file_of(tmp_path, content), *options, "--out", out)
    assert Path(out).read_text() == "older"
    refuse("no file", str(tmp_path / "none"))
    refuse("no run", str(tmp_path))
    errors = error(), error("not_run", test_id="agentdojo:x")
    refuse("only errors", folder_of(tmp_path / "broken", b"", *errors))
    folder = folder_of(tmp_path / "run", lines(1))
    refuse("over its folder", folder, "--out", f"{folder}/../run/records.jsonl")
    refuse("over itself", f"{folder}/records.jsonl", "--out", f"{folder}/../run/records.jsonl")
    assert Path(folder, "records.jsonl").read_bytes() == lines(1)
    refuse("into no folder", folder, "--out", str(tmp_path / "none" / "out.md"))
    refuse("into a folder", folder, "--out", str(tmp_path))
    expected.check("".join(messages))


def test_a_report_is_written_whole(report: Callable[..., Report], tmp_path: Path) -> None:
    path, out = file_of(tmp_path, lines(1)), tmp_path / "out.md"
    out.write_text("older")
    assert report(path, "--out", str(out)) == (0, "", f"wrote report to {out}\n")
    assert out.read_bytes().decode() == report(path).out == report(path, "--out", "-").out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.jsonl", "out.md"]


def test_the_command_reads_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest_packbench", "report", "-"]
    done = subprocess.run(command, input=lines(1, 1), capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(f"# B0 eval — run {RUN}\n".encode())


CAPS = {
    ("--max-tokens", "49"): (1, "tokens 50 > cap 49"),
    ("--max-tokens", "50"): (0, "tokens 50 <= cap 50"),
    ("--max-seconds", "3"): (0, "seconds 3 <= cap 3"),
    ("--max-seconds", "2.5"): (1, "seconds 3 > cap 2.5"),
    ("--max-cost", "1"): (1, "cost_usd 0 <= cap 1, reported by 0 of 2 records"),
}


@pytest.mark.parametrize("cap", CAPS, ids=" ".join)
def test_a_cap_is_a_gate(report: Callable[..., Report], tmp_path: Path, cap: tuple[str, str]) -> None:
    content = lines(2, tokens_input=20, tokens_output=5, wall_clock_ms=1500)
    page = report(file_of(tmp_path, content), *cap)
    code, text = CAPS[cap]
    row = next(row for row in page.page.splitlines() if "cap " in row)
    assert page.code == code
    assert text in row.replace("&lt;", "<").replace("&gt;", ">").replace("\\", "")
    assert row.startswith("| FAIL" if code else "| PASS")


BAD_USAGE = [[], ["x", "--format", "xml"], ["x", "--nonsense"], ["x", "--max-seconds=-1"], ["x", "--max-cost=nan"]]
BAD_USAGE += [["x", f"--max-tokens={value}"] for value in ("-1", "nan", "inf", "many", "", "1.5")]


@pytest.mark.parametrize("arguments", BAD_USAGE, ids=" ".join)
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["report", *arguments])
    assert exit_.value.code == 2
    assert ("number of 0 or more" in capsys.readouterr().err) is any("--max" in word for word in arguments)


hostile = st.text(st.sampled_from("ab|\\`*_<>[]()!&#@$~-\n\r\t\x1b\x00\u2028\u202e"), max_size=12)


@settings(max_examples=50)
@given(hostile, hostile, hostile, hostile, hostile)
def test_cells_are_escaped(category: str, model: str, run_id: str, test_id: str, judge: str) -> None:
    names: dict[str, Any] = {"attack_category": category, "llm_model": model, "run_id": run_id, "test_id": test_id}
    failing = record(test_suite="tariff", passed=False, packbench={"judge": judge}, **names)
    page = overview_markdown(overview(tally_of([failing, failing])))
    assert page.startswith(TITLE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028\u202e]", page)
    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in table.rstrip("\n").split("\n")}) == 1
    assert not re.search(r"[<>`*\[\]]", re.sub(r"&(?:lt|gt|amp);|\\.", "", page))
