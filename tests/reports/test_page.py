"""The page of a run: what it says without its script, that no text of a case bends it, and that everyone can use it."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.analysis.conclusion import Times, conclude
from pytest_packbench.model.pack import Metrics, panels_of
from pytest_packbench.model.recording import ControlResult, tally_of
from pytest_packbench.model.report import BaselineLookup, Group, Outline, PolicyChange, PolicyOutcome, StoredRun, Totals
from pytest_packbench.model.suite import Figure, Interval, Panel, SuiteConfig
from pytest_packbench.packs.registry import builtin
from pytest_packbench.packs.tariff.metrics import TariffMetrics
from pytest_packbench.reports.blocks import Range, bars_svg, interval_svg, share_range, trend_svg
from pytest_packbench.reports.page import RunPage, page_html, scores_of
from pytest_packbench.reports.page.case_data import NO_SOURCES, case_blocks
from tests.unit.run_builders import (
    COMPLETE,
    ONE_OF_EACH,
    case_result,
    case_results,
    conclusion_of,
    data,
    gate,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts

DATA: dict[str, Any] = data("page.yaml")

VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """A page, read as a browser reads it: its elements with their attributes, and the text of each."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    def text(self, *tags: str) -> list[str]:
        return [text.strip() for tag, text in self.texts if tag in tags and text.strip()]

    @property
    def shown(self) -> str:
        """What a reader sees: a line for each piece of text."""
        return "".join(
            f"{text.strip()}\n" for tag, text in self.texts if tag not in {"style", "script"} and text.strip()
        )


def page(results: Sequence[Result], *rules: Any, with_cases: bool = False, **changes: Any) -> RunPage:
    of = run(**changes.pop("run", {}))
    conclusion = replace(conclusion_of(of, results, *rules), **changes.pop("conclusion", {}))
    cases = None
    if with_cases:
        cases = case_blocks(results, NO_SOURCES, of, history={})
    return RunPage(conclusion, scores_of(results), cases, **changes)


def html_of(*pages: RunPage, **options: Any) -> str:
    return page_html(pages, title="toy", **options)


def point(run_id: str, finished_at: str, suite_sha256: str, **changes: Any) -> Outline:
    """Return the outline of an earlier run in which 9 of 10 cases passed."""
    of = run(run_id=run_id, finished_at=finished_at, suite_sha256=suite_sha256)
    overall = Group("", "", 10, 10, 9, 0.9, 0.9, (0.6, 0.98))._replace(**changes)
    totals = Totals(10, {}, {}, 0)
    return Outline(version=1, status="passed", complete=True, run=of, totals=totals, overall=overall, models={})


def full(**changes: Any) -> RunPage:
    """Return a run with everything that a page can show."""
    rules = (
        COMPLETE,
        gate("pass_rate", min=0.5, by="case_type"),
        gate("mean_score", max=0.5),
        gate("pass_rate", min=0.2),
    )
    given = DATA["full"]
    changes_ = [PolicyChange(**row) for row in given["changes"]]
    of_rates = [{**row, "interval": row.get("interval") and Interval(*row["interval"])} for row in given["figures"]]
    figures = [Figure(**row) for row in of_rates]
    panels = [Panel(**row) for row in given["panels"]]
    panels.append(Panel(title="Numbers", figures=tuple(figures[:1])))
    policy = PolicyOutcome(base="v1", changes=tuple(changes_), notes=("hooks are not compared",))
    wrong = ControlResult(**given["control"])
    trend = [
        point(f"run{number}", f"2026-01-01T0{number}:00:00.000Z", rules_hash) for number, rules_hash in enumerate("aab")
    ]
    records = {"tokens_input": 10, "tokens_output": 5}
    results = [replace(each, record=records) if each.score.counted else each for each in ONE_OF_EACH]
    times = Times(7, 20, 400)
    conclusion = {"policy": policy, "controls": tally_of([wrong], 2), "figures": tuple(figures), "times": times}
    return page(
        results,
        *rules,
        run=given["run"],
        conclusion=conclusion,
        panels=panels,
        trend=trend,
        notes=("A note.",),
        **changes,
    )


def test_the_text_of_a_page_with_everything(expected: ExpectedTexts) -> None:
    expected.check(Page(html_of(full())).shown)


@pytest.mark.parametrize("several", [False, True])
def test_a_page_is_for_everyone(several: bool) -> None:
    html = html_of(*[full(with_cases=True)] * (1 + several))
    read = Page(html)
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {each["aria-labelledby"] for _, each in read.elements if "aria-labelledby" in each} <= set(ids)
    links = {each["href"][1:] for each in read.all("a") if not each["href"].startswith("#case=")}
    assert links <= set(ids)
    # headings do not skip a level, and there is one of the first
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1 == levels[0]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(read.all("table")) == len(read.all("caption"))
    assert {each.get("scope") for each in read.all("th")} == {"col", "row"}
    # a table scrolls in a region that the keyboard reaches
    regions = [each for each in read.all("div") if each.get("role") == "region"]
    assert len(regions) == len(read.all("table"))
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in regions)
    # a drawing has a name, or numbers beside it
    assert all(each.get("aria-label") or each["aria-hidden"] == "true" for each in read.all("svg"))
    assert {tag for tag, _ in read.elements} >= {"header", "nav", "main", "article"}
    assert read.all("html") == [{"lang": "en"}]


def test_the_policy_allows_only_what_the_page_contains() -> None:
    read = Page(html_of(full(with_cases=True)))
    policy = next(each["content"] for each in read.all("meta") if each.get("http-equiv") == "Content-Security-Policy")

    def digest(tag: str) -> str:
        text = next(text for name, text in read.texts if name == tag and "{" in text)
        return b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest('script')}'; style-src 'sha256-{digest('style')}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    names = {name for _, attributes in read.elements for name in attributes}
    assert not [name for name in names if name == "style" or name.startswith("on")]
    assert "script-src" not in html_of(full())


def test_a_committed_baseline_has_no_answers_and_no_column_for_them() -> None:
    stored = StoredRun(source="r", run=run(run_id="BEFORE"), results=(case_result("a", answer=None),), committed=True)
    now = [case_result("a", "failed", terms=())]
    rules = SuiteConfig.model_validate({"pack": "generic"})
    conclusion = conclude(run(), now, rules, (), BaselineLookup(stored=stored, requested="r"))
    text = Page(html_of(RunPage(conclusion, scores_of(now)))).shown
    assert "The baseline is the committed one; answers and terms are not stored in it." in text
    assert "score\nwhy" not in text.split("Mean change")[0]


def test_without_its_script_a_link_to_a_failing_case_leads_to_its_row() -> None:
    read = Page(html_of(page(case_results(1, 1), with_cases=True)))
    ids = {each["id"] for each in read.all("th") if "id" in each}
    assert ids == {each["href"][1:] for each in read.all("a") if each["href"].startswith("#case=")} != set()


@pytest.mark.parametrize(
    ("spent", "tiles"),
    DATA["spent"],
)
def test_tokens_and_cost_are_those_of_all_calls(spent: dict[str, Any] | None, tiles: str) -> None:
    usual = {"calls": 3, "tokens": 1000, "uncounted": 0, "cost": 0.5, "currency": "EUR"}
    settings = {} if spent is None else {"spent": usual | spent}
    results = [replace(result, record={"tokens_input": 10, "tokens_output": 5}) for result in case_results(2)]
    live = {"mode": "live", "backend": "openai", "model": "m", "settings": settings}
    shown = Page(html_of(page(results, run=live))).shown
    assert tiles in shown


def test_secrets_are_replaced() -> None:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return list(map(without, value))
        return value.replace("says yes", "***") if isinstance(value, str) else value

    html = html_of(full(), redact=without)
    assert ("says yes" in html, "***" in html) == (False, True)


def test_an_axis_has_room_for_all_values() -> None:
    axes: list[tuple[list[float], Range]] = [([0.97, 0.9, 1.0], Range(0.8, 1.0)), ([0.0, 0.03], Range(0.0, 0.05))]
    axes += [([0.1, 0.9], Range(0.0, 1.0)), ([1.0], Range(0.95, 1.0)), ([], Range(0.0, 1.0))]
    for values, axis in axes:
        assert share_range(values) == pytest.approx(axis)


def test_a_value_is_drawn_where_it_is() -> None:
    svg = interval_svg(0.5, Range(0, 1), interval=(0.25, 0.75), low=0.5, status="fail")
    assert re.findall(r'<polygon class="mark-fail" points="(\d+),', svg) == ["110"]
    assert re.findall(r'class="interval" x1="(\d+)" y1="11" x2="(\d+)"', svg) == [("58", "162")]
    assert re.findall(r'class="allowed" x="(\d+)" y="4" width="(\d+)"', svg) == [("110", "104")]


def test_drawings_of_a_trend_that_ends_where_the_rules_changed_and_of_scores(expected: ExpectedTexts) -> None:
    points = [point(f"<{n}>", "", rules, interval=(0.5, 1.0), mean_score=0.8) for n, rules in enumerate("aaabb")]
    nothing = points[1].overall._replace(n=0, passed=0, pass_rate=None, mean_score=None, interval=None)
    points[1] = replace(points[1], overall=nothing)
    points[4] = replace(points[4], status="failed", overall=points[4].overall._replace(interval=None))
    drawings = (trend_svg(points), trend_svg(points[:1]), bars_svg(1, 3, 200), bars_svg(200, 0, 200))
    expected.check("\n".join(drawings).replace("><", ">\n<"), "svg")


@pytest.mark.parametrize(
    ("fields", "problem"),
    DATA["panels"],
)
def test_a_panel_without_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Panel(**fields)


def test_the_panels_of_a_pack() -> None:
    def record(test_id: str, due: str, given: str | None, **changes: Any) -> dict[str, Any]:
        extra = {"valid": test_id != "b", "tariff": {"code": given, "expected_code": due}}
        known = {"test_id": test_id, "llm_backend": "openai", "llm_model": "m", "expected": "comply_safe"}
        return {**known, "packbench": extra, **changes}

    first, second = "8471300100", "6204639011"
    records = [record("a", first, first), record("b", first, "8528520000")]
    records += [record("c", second, None, agent_decision="refuse"), record("d", second, second, expected="refuse")]
    (invalid,) = TariffMetrics().panels(records, ())
    assert (invalid.rows, invalid.intro[:14]) == ((("b", "8528520000"),), "1 of 4 answers")
    figures = [
        Figure(name=name, definition="d", count=1, total=2, group=group, headline=headline)
        for name, group, headline in (("a", "x", True), ("b", "x", False), ("c", "y", True))
    ]
    panels = panels_of(builtin()["agent_safety"], (), figures)
    assert [(panel.title, [each.name for each in panel.figures]) for panel in panels] == [("x", ["a"]), ("y", ["c"])]
    pack = copy(builtin()["generic"])
    pack.metrics = type("Wrong", (Metrics,), {"panels": lambda *_: [1]})()  # type: ignore[misc]  # of its class
    with pytest.raises(TypeError, match="expected objects of the class Panel"):
        panels_of(pack, (), ())
