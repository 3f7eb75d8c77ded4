"""Write the packaged table of an edition of the tariff schedule from a table of its codes.

    python -m benchmarks.schedule_table hts_codes.tsv.gz pytest_packbench/packs/tariff/editions/us_2026_revision_10.gz

The source has a line for each code of 8 and 10 digits with the columns code, digits, general, rate_kind and units. The
table has codes, general rates and units only; a rate that the schedule words as a text becomes `text`.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from pathlib import Path

from pytest_packbench.packs.tariff.edition import parse_percentage

_FIGURES = {"free", "ad_valorem", "specific", "compound"}
_LINE = 8


def table(source: Path) -> bytes:
    """Return the lines of the table, sorted."""
    with gzip.open(source) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"), delimiter="\t"))
    rates: dict[str, str] = {}
    suffixes: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        code = row["code"].replace(".", "")
        if len(code) == _LINE:
            text = {"none": ""}.get(row["rate_kind"], "text")
            is_figure = row["rate_kind"] in _FIGURES or parse_percentage(row["general"]) is not None
            rates[code] = row["general"] if is_figure else text
        else:
            unit = "" if row["units"] == "," else row["units"]
            suffixes.setdefault(code[:_LINE], {}).setdefault(unit, []).append(code[_LINE:])
    units = {
        code: ";".join(f"{unit}:{' '.join(codes)}" for unit, codes in suffixes.get(code, {}).items()) for code in rates
    }
    return "\n".join(f"{code}\t{rates[code]}\t{units[code]}" for code in sorted(rates)).encode()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    # without a time, the same source gives the same file
    target.write_bytes(gzip.compress(table(source), mtime=0))
    print(f"{target}: {target.stat().st_size} bytes")
