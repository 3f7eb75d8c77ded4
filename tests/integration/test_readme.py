"""What the README shows of a run is what a run shows today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.doc_blocks import ROOT, blocks, plain, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import Copy

RUN, FAILURE = (block.text.splitlines() for block in blocks(ROOT / "README.md") if block.kind == "text")
CASE = "pos_70_glass_drinks_dispenser"
# the pipeline whose failure is shown: right but for the code
CARELESS = """
from pytest_packbench.packs.tariff.target import verify as reference


async def verify(request, context):
    result = await reference(request, context)
    result["tariff_dossier"]["baseline"]["hts_code"] = "7013.99.9000"
    return result
"""


def missing(wanted: Iterable[str], said: Iterable[str]) -> list[str]:
    """The first line that wasn't said, or not in this order."""
    rest = iter(map(plain, said))
    return [line for line in wanted if not any(map(shown(line), rest))][:1]


def test_the_run_shown_is_todays(copy: Copy) -> None:
    head, *lines = RUN
    assert head == "$ pytest --packbench-suite=tariff"
    assert missing([line for line in lines if line != "..."], copy.run().outlines) == []


def test_the_failure_shown_is_todays(copy: Copy) -> None:
    copy.pytester.makepyfile(careless=CARELESS)
    copy.pytester.syspathinsert()
    (path,) = copy.folder.glob(f"cases/*/{CASE}.json")
    given = path.relative_to(copy.pytester.path).as_posix()
    result = copy.pytester.runpytest(f"{given}::{CASE}", "--packbench-target=careless:verify")
    start = result.outlines.index(FAILURE[0])
    assert result.outlines[start : start + len(FAILURE)] == FAILURE
