"""The tariff schedule: three forms of one file, codes, rates that apply to the rows below, and what is no schedule."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.tariff.schedule import DutyRate, Schedule, ScheduleError, parse_rate
from tests.unit.small_tariff_suite import SCHEDULE
from tests.unit.tariff_cases import table

if TYPE_CHECKING:
    from pathlib import Path

TSV = SCHEDULE.read_text("utf-8")
ROWS = list(csv.reader(io.StringIO(TSV), delimiter="\t"))
TABLE = table("tariff_schedule")
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


@pytest.mark.parametrize(("code", "depth", "row", "rate"), TABLE["codes"])
def test_a_code_has_a_depth_a_row_and_a_rate(
    schedule: Schedule, code: str, depth: int, row: str | None, rate: str | None
) -> None:
    line, duty = schedule.lookup(code), schedule.rate(code)
    assert schedule.depth(code) == depth
    assert schedule.exists(code) is (depth == sum(char.isdigit() for char in code))
    assert (line and line.code, duty and duty.text) == (row, rate)


@pytest.mark.parametrize("code", ["", "0712.90.4", "071"])
def test_a_code_with_an_odd_number_of_digits_does_not_exist(schedule: Schedule, code: str) -> None:
    assert not schedule.exists(code)


def test_preferential_rates_apply_to_the_rows_below(schedule: Schedule) -> None:
    assert schedule.preferences("0712.90.4020") == (DutyRate("Free", "free", 0.0), DutyRate("2.8%", "ad valorem", 2.8))
    assert schedule.preferences("4901.99.0070") == ()


@pytest.mark.parametrize(("text", "basis", "pct"), TABLE["rates"])
def test_a_rate_has_a_basis(text: str, basis: str | None, pct: float | None) -> None:
    rate = parse_rate(text)
    assert rate.basis == basis
    assert rate.pct == pytest.approx(pct)


def test_a_line_has_the_texts_of_the_rows_above_it(schedule: Schedule) -> None:
    lines = {line.code: line.texts for line in schedule.lines()}
    assert lines["4901990093"] == (
        "Printed books, brochures, leaflets and similar printed matter:",
        "Other printed books",
        "Other:",
        "Containing more than 48 pages each",
    )
    assert lines["2106909900"][-1] == "Other"
    codes = "0712904020 0712904040 0910996000 2106909900 4901990070 4901990093 4911914000 2208402000"
    assert list(lines) == codes.split()
    assert all(schedule.rate(code) is not None for code in lines)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"[1]",
        b"[",
        b'[{"htsno": "0101", "indent": "0"}]',
        "\t".join(ROWS[0]).encode(),
        b"one,two\n1,2\n",
        b"htsno\tindent\tdescription\tgeneral\n0101\tdeep\tHorses\tFree\n",
        b"\xff\xfe",
        gzip.compress(TSV.encode(), mtime=0)[:40],
        b"\x1f\x8bnothing",
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(ScheduleError, match="not a tariff schedule") as caught:
        Schedule.read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
