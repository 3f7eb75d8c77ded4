"""Tariff codes, the schedule in its three forms, and the baseline target without a model that looks words up in it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lexical import target
from benchmarks.schedule import Schedule, ScheduleError
from pytest_packbench.commands import main
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.model.request import VerifyContext, VerifyRequest
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, depth, digits, dotted, is_under
from tests.packs.tariff.cases import case, table
from tests.packs.tariff.small_suite import SCHEDULE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts


TABLES = table("schedule")
DIGITS = st.text("0123456789", min_size=2, max_size=10)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A code as digits, and as a person writes it: dots, spaces, dashes."""
    plain = draw(DIGITS)
    marks = draw(st.lists(st.sampled_from(["", ".", " ", "-", "\u00a0"]), min_size=len(plain), max_size=len(plain)))
    return plain, "".join(char + mark for char, mark in zip(plain, marks, strict=True))


def written(folder: Path, expected: dict[str, Any], schedule: str) -> Path:
    """Write a suite of one case."""
    (folder / "cases" / "positive").mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(f"pack: tariff\ntarget: x:y\nallow_pass: a test\n{schedule}", "utf-8")
    path = folder / "cases" / "positive" / "c.json"
    path.write_text(json.dumps({**case(**expected), "id": "c", "case_type": "positive"}), "utf-8")
    return path


@pytest.mark.parametrize("row", TABLES["unlisted"])
def test_a_code_that_the_schedule_of_the_suite_lacks_is_an_error_of_its_case(
    row: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, index, code, why = row
    codes = [*["8544.42.9090", "6404.11.9020"][:index], code]
    articles = [{"name": "shoe", "preferred_hts": ["6404.11.9020"], key: codes}]
    articles += [{"name": "cable", "preferred_hts": ["8544.42.9090"]}]
    listed = {"preferred_hts": [], "articles": articles}
    for expected, pointer in (({key: codes}, f"/expected/{key}"), (listed, f"/expected/articles/0/{key}")):
        path = written(tmp_path, expected, "schedule: us_2026_revision_10\n")
        assert main(["validate", str(path)]) == (2 if why else 0)
        problem = f"{pointer}/{index}: {code} is not in the schedule; {why}; expected a code of us_2026_revision_10"
        assert (problem in capsys.readouterr().out) is bool(why)
        assert main(["lint", str(tmp_path)]) == 1
        assert (problem.replace(": ", ": case_unreadable: ", 1) in capsys.readouterr().out) is bool(why)
        # without a schedule, nothing is known
        assert main(["validate", str(written(tmp_path, expected, ""))]) == 0


def test_a_code_of_a_saving_that_the_schedule_lacks_is_an_error_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    savings = {"targets": [{"code": code, "change": "x"} for code in ("8503.00.20", "6404.19.3799")], "least": 1}
    path = written(tmp_path, {"savings": savings}, "schedule: us_2026_revision_10\n")
    assert main(["validate", str(path)]) == 2
    assert "/expected/savings/targets/1/code: 6404.19.3799 is not in the sch" in capsys.readouterr().out
    # rules that can't be read are an error of their own
    (tmp_path / "suite.yaml").write_text("pack: tariff\nschedule: 1\n", "utf-8")
    assert main(["validate", str(path)]) == 0


@given(spellings())
def test_a_code_is_the_same_in_any_spelling(pair: tuple[str, str]) -> None:
    plain, written = pair
    assert (digits(written), chapter(written)) == (plain, plain[:2])
    assert is_under(written, plain)
    assert is_under(plain, written)
    assert depth(written, plain) == depth(plain, plain)


@given(DIGITS, DIGITS)
def test_codes_agree_to_a_level_and_are_under_their_own_prefixes(left: str, right: str) -> None:
    agreed = depth(left, right)
    assert agreed == depth(right, left) <= depth(left, left)
    assert agreed in {0, *LEVELS}
    assert left[:agreed] == right[:agreed]
    assert is_under(left, right) == left.startswith(right)
    assert all(is_under(left, left[:length]) for length in range(1, len(left) + 1))


def test_codes_have_whole_levels_in_common_and_are_written_as_in_the_schedule() -> None:
    for left, right in (("6404.11.9020", ""), ("", "6404.11.9020")):
        assert {other: depth(left or other, right or other) for other in TABLES["depths"]} == TABLES["depths"]
    for code in ("6404.11.9020", "6404.11.90", "6404", "64", ""):
        assert dotted(code.replace(".", "")) == code
    # no code is under an empty prefix
    assert is_under("6404.11.9020", "6404.11")
    assert not is_under("6404.11.9020", "")
    assert not is_under("6404.11.9020", "none")


TSV = SCHEDULE.read_text("utf-8")
ROWS = list(csv.reader(io.StringIO(TSV), delimiter="\t"))
TITLES = (
    "HTS Number,Indent,Description,Unit of Quantity,General Rate of Duty,Special Rate of Duty,Column 2 Rate of Duty"
)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return Schedule.read(SCHEDULE)


def as_json() -> str:
    """The publisher's JSON: an empty field is null, and a field may contain a list."""
    rows = [dict(zip(ROWS[0], (value or None for value in row), strict=True)) for row in ROWS[1:]]
    return json.dumps([{**row, "footnotes": [{"value": "1/"}]} for row in rows])


def as_csv() -> str:
    """The publisher's CSV, with its own titles and a byte order mark."""
    file = io.StringIO()
    csv.writer(file).writerows([TITLES.split(","), *ROWS[1:]])
    return f"\ufeff{file.getvalue()}"


@pytest.mark.parametrize("text", [as_json(), as_csv(), TSV], ids=["json", "csv", "tsv"])
def test_every_form_has_the_same_rows_compressed_or_not(tmp_path: Path, schedule: Schedule, text: str) -> None:
    for raw in (text.encode(), gzip.compress(text.encode())):
        (tmp_path / "file").write_bytes(raw)
        assert Schedule.read(tmp_path / "file").rows == schedule.rows


@pytest.mark.parametrize(("code", "depth", "row", "rate"), TABLES["codes"])
def test_a_code_has_a_depth_a_row_and_a_rate(
    schedule: Schedule, code: str, depth: int, row: str | None, rate: str | None
) -> None:
    line, duty = schedule.lookup(code), schedule.rate(code)
    assert schedule.depth(code) == depth
    assert schedule.exists(code) is (depth == sum(char.isdigit() for char in code))
    assert (line and line.code, duty and duty.text) == (row, rate)


NO_SCHEDULES = [b"", b"[]", b"[1]", b"[", b'[{"htsno": "0101", "indent": "0"}]', "\t".join(ROWS[0]).encode()]
NO_SCHEDULES += [b"one,two\n1,2\n", b"htsno\tindent\tdescription\tspecial\n0101\t0\tHorses\tFree\n", b"\xff\xfe"]
NO_SCHEDULES += [gzip.compress(TSV.encode(), mtime=0)[:40], b"\x1f\x8bnothing"]


@pytest.mark.parametrize("raw", NO_SCHEDULES)
def test_another_file_is_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(ScheduleError, match=rf"^{path}.*not a tariff schedule") as caught:
        Schedule.read(path)
    assert "\n" not in str(caught.value)


def run_target(text: str, *evidence: dict[str, str], schedule: Path | None = SCHEDULE) -> dict[str, Any]:
    llm = Replay(None, source="fixtures/a.json")
    files = {} if schedule is None else {"hts": schedule}
    context = VerifyContext(llm=llm, suite="tariff", case_id="a", mode="fixture", files=files)
    return target(VerifyRequest(input=text, evidence=evidence), context)


def test_the_whole_answer_and_the_whole_refusal(expected: ExpectedTexts) -> None:
    answers = [run_target("garlic powder, and powder of garlics"), run_target("zzz 42")]
    expected.check(f"{json.dumps(answers, indent=1)}\n", "json")


def test_a_schedule_is_read_once_and_without_one_the_error_names_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "schedule.tsv"
    path.write_bytes(SCHEDULE.read_bytes())
    first = run_target("garlic flour", schedule=path)
    path.unlink()
    assert run_target("garlic flour", schedule=path) == first
    with pytest.raises(ValueError, match="ini packbench_hts or environment PACKBENCH_HTS"):
        run_target("garlic", schedule=None)
