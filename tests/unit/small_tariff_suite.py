"""A tariff suite of six cases that lint finds nothing in, and the small schedule that it is looked up in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.cassettes import authored_cassette
from tests.unit.tariff_answers import (
    answer,
    citation,
    classification,
    critique_answer,
    evidence,
    optimized,
    refusal_answer,
    what_if,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.finding import Finding

Json = dict[str, Any]
EDITION = "2026 revision 10"
COLUMNS = ("htsno", "indent", "description", "units", "general", "special", "other")
ROWS = (
    ("0712", "0", "Dried vegetables, whole, cut, sliced, broken or in powder, but not further prepared:", "", ""),
    ("0712.90", "1", "Other vegetables; mixtures of vegetables:", "", ""),
    ("0712.90.40", "2", "Garlic", "29.8%", "Free (A,AU,BH) 2.8% (JP)"),
    ("0712.90.40.20", "3", "Powder or flour", "", ""),
    ("0712.90.40.40", "3", "Other", "", ""),
    ("0910", "0", "Ginger, saffron, turmeric, thyme, bay leaves, curry and other spices:", "", ""),
    ("0910.99", "1", "Other", "", ""),
    ("0910.99.60.00", "2", "Other", "1.9%", "Free (A,AU)"),
    ("2106", "0", "Food preparations not elsewhere specified or included:", "", ""),
    ("2106.90.99", "1", "Other", "6.4%", ""),
    ("4901", "0", "Printed books, brochures, leaflets and similar printed matter:", "", ""),
    ("4901.99.00", "1", "Other printed books", "Free", ""),
    ("4901.99.00.70", "2", "Textbooks", "", ""),
    ("", "2", "Other:", "", ""),
    ("4901.99.00.93", "3", "Containing more than 48 pages each", "", ""),
    ("4911.91.40", "0", "Pictures, designs and photographs", "Free", ""),
    ("2208", "0", "Spirits, liqueurs and other spirituous beverages:", "", ""),
    ("2208.40.20.00", "1", "Rum and tafia, each holding over four liters", "23.7¢/pf.liter", ""),
    ("9903", "0", "Temporary provisions:", "", ""),
    ("9903.88.15", "1", "Temporary duty on garlic powder or flour", "25%", ""),
)
TSV = "\n".join("\t".join(row) for row in (COLUMNS, *((*row[:3], "kg", *row[3:], "") for row in ROWS))).replace(
    "\tkg\tgeneral", "\tunits\tgeneral"
)
GARLIC = (
    "We buy garlic cloves that are peeled, dried in warm air and then ground to a fine powder in the same plant. Nothing "
    "is added, neither salt nor an anticaking agent, and no oil is taken out. The powder goes into lined cartons of "
    "twenty kilos for a sausage maker in Ohio, who doses it by weight into his brine."
)
BARE = (
    "A carton came from the seasoning plant with a beige powder that smells strongly and is meant for a sausage maker. "
    "The paper with it is lost. Somebody remembers dried plants, another one a mixture with salt and starch. How it was "
    "made and what share each part has nobody here can tell, and the seller does not answer his telephone."
)
TRAP = (
    "Our spice house ships a jar whose front praises a heritage spice blend of the old trading routes, with a picture of "
    "peppers and bark. Inside there is only dried garlic in coarse flakes, cut and sieved, nothing else; the back of the "
    "jar says so too. A trade portal listed it as 0910.99.60.00 and our clerk would like to copy that."
)
BOOKS = (
    "These are bound works on arithmetic for the seventh year at school, each of three hundred and ten pages, printed in "
    "Korea on offset paper with a sewn spine and hard covers. Pupils work through them with a teacher for a whole year. "
    "The finance team asks whether any lawful change in the printing would make the entry cheaper than it is today."
)
FLAKES = (
    "For our bakery mixes the supplier grinds dried garlic to flour and fills it into sacks. We pay the ordinary rate and "
    "wonder what honest change to the goods would lower it; the mill can leave machines out or add others, and our dough "
    "line could cope with other shapes as well, as long as nothing else gets into the sack and taste stays the same."
)
REPORT = "Sample 12: ground cloves of Allium sativum, moisture 5.1 percent, no starch found under the microscope."
ORDERED = (
    "Please look at the attached laboratory report first, because the buyer in Denver will do so as well. What leaves our "
    "mill is a cream coloured flour obtained from one vegetable only, dried before milling, sieved twice and packed in "
    "foil bags of five kilos. It is used as it is in soups and rubs, and no further work is done on it here."
)


@dataclass
class SmallSuite:
    """The suite in a folder, with what a test changes in it."""

    folder: Path
    schedule: Path

    def findings(self, *, with_schedule: bool = True) -> list[Finding]:
        suite = load_suite(self.folder)
        return lint(suite, TariffPack(), {"hts": self.schedule} if with_schedule else {})

    def path(self, case_id: str) -> Path:
        (found,) = self.folder.glob(f"cases/*/{case_id}.json")
        return found

    def cassette(self, case_id: str) -> Path:
        return self.folder / "fixtures" / f"{case_id}.json"

    def case(self, case_id: str, change: Callable[[Json], object]) -> None:
        """Change a case; its cassette follows a changed input."""
        data = _changed(self.path(case_id), change)
        sha256 = canonical_sha256(data["input"])
        _changed(self.cassette(case_id), lambda cassette: cassette.update(input_sha256=sha256))

    def recording(self, case_id: str, change: Callable[[Json], object]) -> None:
        _changed(self.cassette(case_id), change)

    def answer(self, case_id: str, change: Callable[[Json], object]) -> None:
        """Change the proposal in a cassette."""
        self.recording(case_id, lambda cassette: change(cassette["exchanges"][0]["answer"]))

    def rules(self, text: str) -> None:
        with (self.folder / "suite.yaml").open("a", encoding="utf-8") as file:
            file.write(text)


def _changed(path: Path, change: Callable[[Json], object]) -> Json:
    data: Json = json.loads(path.read_text("utf-8"))
    change(data)
    _write(path, data)
    return data


def _write(path: Path, data: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def write_schedule(path: Path) -> Path:
    path.write_text(TSV + "\n", encoding="utf-8")
    return path


def small_suite(folder: Path) -> SmallSuite:
    """Write the suite and its schedule into an empty folder."""
    suite = folder / "suite"
    for data, proposal in _cases():
        _write(suite / "cases" / data["case_type"] / f"{data['id']}.json", data)
        exchanges = [{"role": "propose", "answer": proposal}, {"role": "critique", "answer": critique_answer()}]
        cassette = authored_cassette(data["id"], data["input"], exchanges)
        _write(suite / "fixtures" / f"{data['id']}.json", cassette)
    rules = f"pack: tariff\nhts_edition: {EDITION}\nscored_code: baseline\n"
    (suite / "suite.yaml").write_text(rules, encoding="utf-8")
    return SmallSuite(suite, write_schedule(folder / "schedule.tsv"))


def _case(case_id: str, case_type: str, text: str, *tags: str, **expected: Any) -> Json:
    accepts = expected.get("expected_accept", True)
    forbidden = expected.pop("must_not_hts", ["0910.99.6000"])
    return {
        "id": case_id,
        "pack_id": "tariff",
        "case_type": case_type,
        "difficulty": "easy",
        "input": {"input": text, "options": {"max_iters": 4}, "evidence": []},
        "expected": {
            "preferred_hts": ["0712.90.4020"] if accepts else [],
            "must_not_hts": forbidden,
            "expected_accept": True,
            **expected,
        },
        "notes": {
            "source": "ruling:N270709",
            "date": "2015-11-30",
            "hts_edition": EDITION,
            "tags": ["chapter_07", "gri_1", "ruling_year_2015", *tags],
            "reasons": dict.fromkeys(forbidden, "a near code that careless reading would give"),
        },
    }


def _cases() -> list[tuple[Json, Json]]:
    plain = _case("powder", "positive", GARLIC, "pair_powder")
    bare = _case(
        "bare", "negative", BARE, "pair_powder", expected_accept=False, expected_refusal_category="insufficient_info"
    )
    trap = _case("trap", "adversarial", TRAP, "planted_code", preferred_hts=["0712.90.4040"])
    books = _case(
        "books", "no_savings", BOOKS, preferred_hts=["4901.99.0070"], no_savings_expected=True, must_not_hts=["4911"]
    )
    books["notes"] |= {"source": "synthetic", "tags": ["chapter_49", "gri_1"]}
    wanted: Json = {"lever_found_expected": True, "lever_count_min": 1, "duty_delta_range": [-30.0, -1.0]}
    wanted |= {"expected_duty_delta_direction": "decrease", "expected_duty_total_rate_pct": 29.8}
    flakes = _case("flakes", "savings_possible", FLAKES, "engineering", **wanted)
    quoted = _case("quoted", "positive", ORDERED, "evidence", "citation_trap")
    quoted["input"]["evidence"] = [evidence(REPORT)]
    saving = what_if(expected_hts="2106.90.9900", estimated_duty_delta=-23.4)
    better = optimized(hts_code="2106.90.9900", duty_rate_pct=6.4)
    free = classification("4901.99.0070", 0.0, duty_basis="free")
    return [
        (plain, answer()),
        (bare, refusal_answer()),
        (trap, answer(baseline=classification("0712.90.4040"))),
        (books, answer(baseline=free)),
        (flakes, answer(what_if_candidates=[saving], optimized=better)),
        (quoted, answer(citations=[citation("moisture 5.1 percent")])),
    ]
