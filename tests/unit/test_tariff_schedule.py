"""Reading the tariff schedule: three forms of one file, its traps, and rates that hold for the rows below."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.tariff.schedule import DutyRate, Schedule, ScheduleError, parse_rate
from tests.unit.small_tariff_suite import COLUMNS, TSV, write_schedule

if TYPE_CHECKING:
    from pathlib import Path

TITLES = (
    "HTS Number",
    "Indent",
    "Description",
    "Unit of Quantity",
    "General Rate of Duty",
    "Special Rate of Duty",
    "Column 2 Rate of Duty",
)


@pytest.fixture
def schedule(tmp_path: Path) -> Schedule:
    return Schedule.read(write_schedule(tmp_path / "schedule.tsv"))


def as_json() -> str:
    """The publisher's JSON, in which what is empty is null and a field may hold a list."""
    rows = csv.DictReader(io.StringIO(TSV), delimiter="\t")
    return json.dumps(
        [{key: value or None for key, value in row.items()} | {"footnotes": [{"value": "1/"}]} for row in rows]
    )


def as_csv() -> str:
    """The publisher's CSV, with its own titles and a byte order mark."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(TITLES)
    writer.writerows(line.split("\t") for line in TSV.splitlines()[1:])
    return "\ufeff" + file.getvalue()


@pytest.mark.parametrize("text", [as_json(), as_csv(), TSV], ids=["json", "csv", "tsv"])
@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_every_form_gives_the_same_rows(tmp_path: Path, schedule: Schedule, text: str, *, packed: bool) -> None:
    raw = text.encode()
    path = tmp_path / "given"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert Schedule.read(path).rows == schedule.rows


@pytest.mark.parametrize(
    ("code", "depth"),
    [
        ("0712.90.4020", 10),
        ("0712.90.40.20", 10),
        ("0712.90.4099", 8),
        ("0712.90.5020", 6),
        ("0712.91", 4),
        ("0799", 2),
        ("5501.10.0000", 0),
        ("0910.99.6000", 10),
        ("0910.99.60", 8),
        ("0910.99.6010", 8),
        ("2106.90.99", 8),
        ("2106.90.9900", 10),
        ("2106.90.9910", 8),
        ("4901.99.0000", 8),
        ("9903", 4),
    ],
)
def test_a_code_exists_to_a_depth(schedule: Schedule, code: str, depth: int) -> None:
    assert schedule.depth(code) == depth
    assert schedule.exists(code) is (depth == sum(char.isdigit() for char in code))


@pytest.mark.parametrize("code", ["", "0712.90.4", "071"])
def test_what_is_no_code_does_not_exist(schedule: Schedule, code: str) -> None:
    assert not schedule.exists(code)


@pytest.mark.parametrize(
    ("code", "row"),
    [
        ("0712.90.4020", "0712904020"),
        ("0910.99.60", "0910996000"),
        ("2106.90.9900", "21069099"),
        ("4901.99.00", "49019900"),
        ("4901.99.0000", None),
        ("0712.90.4099", None),
    ],
)
def test_a_line_without_suffixes_is_found_by_either_code(schedule: Schedule, code: str, row: str | None) -> None:
    found = schedule.lookup(code)
    assert (found.code if found else None) == row


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("0712.90.4020", "29.8%"),
        ("0712.90.40", "29.8%"),
        ("0712.90", None),
        ("0910.99.60", "1.9%"),
        ("2106.90.9900", "6.4%"),
        ("4901.99.0093", "Free"),
    ],
)
def test_a_rate_holds_for_the_rows_below(schedule: Schedule, code: str, text: str | None) -> None:
    found = schedule.rate(code)
    assert (found.text if found else None) == text


def test_preferences_hold_for_the_rows_below(schedule: Schedule) -> None:
    assert schedule.preferences("0712.90.4020") == (DutyRate("Free", "free", 0.0), DutyRate("2.8%", "ad valorem", 2.8))
    assert schedule.preferences("4901.99.0070") == ()


@pytest.mark.parametrize(
    ("text", "basis", "pct"),
    [
        ("Free", "free", 0.0),
        ("6.8%", "ad valorem", 6.8),
        ("33 1/3%", "ad valorem", 100 / 3),
        ("6.5% on the entire set", "ad valorem", 6.5),
        ("1¢/kg", "specific", None),
        ("$1.24/m3", "specific", None),
        ("0.9 cents each", "specific", None),
        ("15.4¢/kg + 52%", "compound", None),
        ("5.3% on the battery", "compound", None),
        ("See additional U.S. note 3", None, None),
    ],
)
def test_rates_are_read_by_their_kind(text: str, basis: str | None, pct: float | None) -> None:
    found = parse_rate(text)
    assert found.basis == basis
    assert found.pct == pytest.approx(pct)


def test_lines_carry_the_texts_above_them(schedule: Schedule) -> None:
    lines = {line.code: line.texts for line in schedule.lines()}
    assert lines["4901990093"] == (
        "Printed books, brochures, leaflets and similar printed matter:",
        "Other printed books",
        "Other:",
        "Containing more than 48 pages each",
    )
    assert lines["2106909900"][-1] == "Other"
    assert sorted(lines) == [
        "0712904020",
        "0712904040",
        "0910996000",
        "2106909900",
        "2208402000",
        "4901990070",
        "4901990093",
        "4911914000",
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"[1]",
        b"[",
        b'[{"htsno": "0101", "indent": "0"}]',
        "\t".join(COLUMNS).encode(),
        b"one,two\n1,2\n",
        b"htsno\tindent\tdescription\tgeneral\n0101\tdeep\tHorses\tFree\n",
        b"\xff\xfe",
        gzip.compress(TSV.encode(), mtime=0)[:40],
        b"\x1f\x8bnothing",
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "given"
    path.write_bytes(raw)
    with pytest.raises(ScheduleError, match="not a tariff schedule") as caught:
        Schedule.read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
