"""The page of a run: what it says without its script, that no text of a case bends it, and that everyone can use it."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.model.control import ControlResult, ControlTally
from pytest_packbench.model.metric import Figure, Interval, Panel
from pytest_packbench.model.pack import panels_of
from pytest_packbench.model.policy import PolicyChange, PolicyOutcome
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.registry import builtin
from pytest_packbench.packs.tariff import metrics
from pytest_packbench.reports.page import RunPage, TrendPoint, page_html, run_page
from pytest_packbench.reports.page.case_data import NO_SOURCES, case_blocks
from pytest_packbench.reports.page.plots import Range, TrendMark, change_range, interval_svg, share_range, trend_svg
from pytest_packbench.runs.stored import BaselineLookup, StoredRun
from tests.unit.run_builders import COMPLETE, ONE_OF_EACH, case_result, case_results, conclusion_of, gate, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onclick='a' javascript:alert(3) {{ x }}\ud800\x1b"
)
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


def page(results: Sequence[CaseResult], *rules: Any, with_cases: bool = False, **changes: Any) -> RunPage:
    of = run(**changes.pop("run", {}))
    conclusion = replace(conclusion_of(of, results, *rules), **changes.pop("conclusion", {}))
    cases = None
    if with_cases:
        cases = case_blocks(results, NO_SOURCES, baseline=None, history={}, redact=str, run=of.run_id)
    return run_page(conclusion, results, cases=cases, **changes)


def html_of(*pages: RunPage, **options: Any) -> str:
    return page_html(pages, title="toy", **options)


def full(**changes: Any) -> RunPage:
    """Return a run with everything that a page can show."""
    rules = (
        COMPLETE,
        gate("pass_rate", min=0.5, by="case_type"),
        gate("mean_score", max=0.5),
        gate("pass_rate", min=0.2),
    )
    policy = PolicyOutcome(
        base="v1",
        changes=(
            PolicyChange("threshold lowered", "suite.yaml", "thresholds.accept", 0.8, 0.7),
            PolicyChange("case removed", "cases/x.json", "", "present", "absent", case="x", reason="withdrawn"),
        ),
        notes=("hooks are not compared",),
    )
    wrong = ControlResult(
        "toy", "gullible", "n", "f", "deviates", "a", "says yes", message="verdict passed instead of failed"
    )
    figures = (
        Figure(
            name="share",
            definition="A share.",
            count=3,
            total=4,
            interval=Interval(0.3, 0.95, "95 % Wilson"),
            headline=True,
        ),
        Figure(name="amount", definition="An amount.", number=1.5, unit="USD", group="money"),
    )
    panels = (
        Panel(title="Confusion", head=("expected", "red", "blue"), rows=(("red", 3, 1), ("blue", 0, 2)), matrix=True),
        Panel(title="Table", intro="An intro.", head=("what", "count"), rows=(("a", 1), ("b", None))),
        Panel(title="Numbers", figures=figures[:1]),
    )
    trend = [
        TrendPoint(f"run{number}", f"2026-01-01T0{number}:00:00.000Z", "passed", 9, 10, 0.9, (0.6, 0.98), rules_hash)
        for number, rules_hash in enumerate("aab")
    ]
    live = {
        "mode": "live",
        "backend": "openai",
        "model": "m-1",
        "settings": {"spent": {"cost": 1.25, "currency": "USD", "calls": 7}},
    }
    records = {"tokens_input": 10, "tokens_output": 5}
    results = [replace(each, record=records) if each.counted else each for each in ONE_OF_EACH]
    conclusion = {"policy": policy, "controls": ControlTally((wrong,), 2), "figures": figures}
    return page(
        results, *rules, run=live, conclusion=conclusion, panels=panels, trend=trend, notes=("A note.",), **changes
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


def test_hostile_text_stays_text() -> None:
    def hostile(result: CaseResult) -> CaseResult:
        texts: dict[str, Any] = dict.fromkeys(
            ("test_id", "file", "message", "kind", "answer", "case_type", "difficulty"), HOSTILE
        )
        terms = ({"name": HOSTILE, "effect": "add", "value": 0.5, "detail": HOSTILE},)
        return replace(result, **texts, terms=terms, facets={HOSTILE: HOSTILE})

    figure = Figure(name="f", definition="d", count=1, total=2).with_texts(lambda _: HOSTILE)
    panel = Panel(title=HOSTILE, intro=HOSTILE, head=(HOSTILE,), rows=((HOSTILE,),), figures=(figure,))
    policy = PolicyOutcome(HOSTILE, (PolicyChange(*[HOSTILE] * 6),), (HOSTILE,), (HOSTILE,))
    control = ControlResult(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "deviates", HOSTILE, HOSTILE, message=HOSTILE)
    point = TrendPoint(HOSTILE, HOSTILE, "passed", 1, 2, 0.5, None, HOSTILE)
    results = [hostile(case_result("a", "failed")), hostile(case_result("b", "error")), case_result("c")]
    texts = {
        "suite": HOSTILE,
        "target": HOSTILE,
        "description": HOSTILE,
        "findings": (HOSTILE,),
        "versions": {HOSTILE: HOSTILE},
    }
    shown = page(
        results,
        gate("pass_rate", min=0.5, by="case_type"),
        run=texts,
        conclusion={"policy": policy, "controls": ControlTally((control,), 1), "figures": (figure,)},
        panels=[panel],
        trend=[point],
        notes=[HOSTILE],
    )
    html = page_html([shown], title=HOSTILE)
    read, harmless = Page(html), Page(html_of(full()))
    html.encode()
    assert html.count("<script") == html.count("<img") == 0
    assert {name for _, each in read.elements for name in each} <= {
        name for _, each in harmless.elements for name in each
    }
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in harmless.elements}
    assert all(each["href"].startswith("#") for each in read.all("a"))
    assert read.shown.count("onerror=alert(2)") > 30


def test_exactly_the_planted_flips_are_shown_with_both_answers() -> None:
    before = [case_result(f"c{number}", answer="red") for number in range(30)]
    now = list(before)
    for number in (3, 7):
        now[number] = case_result(f"c{number}", "failed", answer="blue")
    before[9] = case_result("c9", "failed", answer="green")
    before, now = before[:-1], [*now[:-2], now[-1]]
    now[0] = replace(now[0], case_sha256="ff")
    before[0] = replace(before[0], case_sha256="ee")
    earlier = BaselineLookup(
        stored=StoredRun(source="r", run=run(run_id="BEFORE"), results=tuple(before)), requested="r"
    )
    rules, pack = SuiteConfig.model_validate({"pack": "generic"}), builtin()["generic"]
    conclusion = conclude(run(), now, rules, pack, earlier)
    text = Page(html_of(run_page(conclusion, now))).shown
    flips = text[text.index("New failures: 2") : text.index("Mean change")]
    assert re.findall(r"plain:(c\d+)", flips) == ["c3", "c7", "c9"]
    assert "Recovered: 1" in flips
    assert re.findall(r"(?m)^(red|blue|green)$", flips) == ["red", "blue", "red", "blue", "green", "red"]
    rest = text[text.index("Cases that are not compared") :]
    assert re.findall(r"(added|removed|case or judge changed)\n1\n(\S+)", rest) == [
        ("added", "toy:plain:c29"),
        ("removed", "toy:plain:c28"),
        ("case or judge changed", "toy:plain:c0"),
    ]


def test_what_is_not_known_is_not_zero() -> None:
    results = [replace(result, record={}) for result in case_results(2)]
    live = page(results, run={"mode": "live", "backend": "openai", "model": "m"})
    facts = Page(html_of(live)).shown
    assert re.search(r"Tokens\nnot known\nCost\nnot known\n", facts)
    assert "0.00" not in facts
    # a replay took its own time, and spent nothing
    assert "Cost" not in Page(html_of(page(results))).shown


def test_the_effort_shows_the_slowest_and_the_dearest_attempts() -> None:
    costs = (0.00002, 1.5, None, 0.0)
    results = [
        replace(result, record={}, duration_ms=10 - number, cost_usd=cost)
        for number, (result, cost) in enumerate(zip(case_results(4), costs, strict=True))
    ]
    live = page(results, run={"mode": "live", "backend": "openai", "model": "m"})
    shown = Page(html_of(live)).shown
    slowest, dearest = shown[shown.index("took longest") :].split("The attempts that cost most")
    number = r"\n(\d+) ms\nnot known\n([\d.]+|not known)\n"
    in_order = [("10", "0.000020"), ("9", "1.50"), ("8", "not known"), ("7", "0.00")]
    assert re.findall(number, slowest) == in_order
    # what cost nothing is not dear
    assert re.findall(number, dearest.split("Cases\n")[0]) == [in_order[1], in_order[0]]
    assert "1.50 USD (of 3 of 4 attempts)" in shown
    without = page([replace(each, cost_usd=None) for each in results], run={"mode": "live", "backend": "openai"})
    assert "cost, USD" not in Page(html_of(without)).shown


def test_authored_answers_get_counts_only() -> None:
    results = case_results(3, 1, llm_backend="stub")
    text = Page(html_of(page(results, gate("pass_rate", min=0.9)))).shown
    rates = text[text.index("Rates by group") :]
    assert ("3 of 4" in rates, "%" in rates) == (True, False)
    sampled = Page(html_of(page(case_results(3, 1), gate("pass_rate", min=0.9)))).shown
    assert "3 of 4 = 75.0 %" in sampled[sampled.index("Rates by group") :]


def test_a_live_page_is_loaded_again_and_secrets_are_replaced() -> None:
    html = html_of(full(), refresh=10, redact=lambda view: _without(view, "says yes"))
    assert '<meta http-equiv="refresh" content="10">' in html
    assert ("says yes" in html, "***" in html) == (False, True)
    assert "refresh" not in html_of(full()).split("<style>")[0]


def _without(value: Any, secret: str) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, secret) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without(each, secret) for each in value]
    return value.replace(secret, "***") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("values", "axis"),
    [
        ([0.97, 0.9, 1.0], Range(0.8, 1.0)),
        ([0.0, 0.03], Range(0.0, 0.05)),
        ([0.1, 0.9], Range(0.0, 1.0)),
        ([1.0], Range(0.95, 1.0)),
        ([], Range(0.0, 1.0)),
    ],
)
def test_an_axis_has_room_for_all_values(values: list[float], axis: Range) -> None:
    assert share_range(values) == pytest.approx(axis)
    assert change_range([-0.03, 0.01]) == Range(-0.05, 0.05)


def test_a_value_is_drawn_where_it_is() -> None:
    svg = interval_svg(0.5, Range(0, 1), interval=(0.25, 0.75), low=0.5, status="fail", width=212)
    assert re.findall(r'<polygon class="mark-fail" points="(\d+),', svg) == ["106"]
    assert re.findall(r'class="interval" x1="(\d+)" y1="11" x2="(\d+)"', svg) == [("56", "156")]
    assert re.findall(r'class="allowed" x="(\d+)" y="4" width="(\d+)"', svg) == [("106", "100")]


def test_a_trend_ends_where_the_rules_changed() -> None:
    marks = [TrendMark(str(number), 0.9, 0.8, None, "pass", rules) for number, rules in enumerate("aaabb")]
    marks[1] = marks[1]._replace(value=None, mean=None)
    svg = trend_svg(marks, Range(0, 1))
    assert [len(points.split()) for points in re.findall(r'"line-value" points="([^"]+)"', svg)] == [1, 1, 2]
    assert svg.count("rules changed") == 1
    assert svg.count("<circle") == 4


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"title": ""}, "no title"),
        ({"title": "t"}, "nothing to show"),
        ({"title": "t", "head": ("a", "b"), "rows": (("x",),)}, "a row of 1 cells; expected 2"),
        ({"title": "t", "head": ("a", "b"), "rows": (("x", 0.5),), "matrix": True}, "another cell than a count"),
    ],
)
def test_a_panel_without_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Panel(**fields)


def test_panels_of_the_tariff_pack() -> None:
    def record(test_id: str, due: str, given: str | None, *, valid: bool = True, **changes: Any) -> dict[str, Any]:
        extra = {"valid": valid, "tariff": {"code": given, "expected_code": due}}
        return {
            "test_id": test_id,
            "llm_backend": "openai",
            "llm_model": "m",
            "expected": "comply_safe",
            "packbench": extra,
            **changes,
        }

    records = [
        record("a", "8471300100", "8471300100"),
        record("b", "8471300100", "8528520000", valid=False),
        record("c", "6204639011", None, agent_decision="refuse"),
        record("d", "6204639011", "6204639011", expected="refuse"),
    ]
    confusion, invalid = metrics.panels(records)
    assert confusion.head == ("expected", "62", "84", "85", "a refusal")
    assert [*confusion.rows, *invalid.rows] == [("62", 0, 0, 0, 1), ("84", 0, 1, 1, 0), ("b", "8528520000")]
    assert invalid.intro.startswith("1 of 4 answers")


def test_panels_of_the_safety_pack_are_its_headlines() -> None:
    figures = [
        Figure(name=name, definition="d", count=1, total=2, group=group, headline=headline)
        for name, group, headline in (("a", "x", True), ("b", "x", False), ("c", "y", True))
    ]
    panels = panels_of(builtin()["agent_safety"], (), figures)
    assert [(panel.title, [figure.name for figure in panel.figures]) for panel in panels] == [
        ("x", ["a"]),
        ("y", ["c"]),
    ]


def test_only_panels_are_panels() -> None:
    class Wrong(type(builtin()["generic"])):  # type: ignore[misc] # a class that is known at run time only
        def panels(self, records: Any, figures: Any) -> Any:
            return [1]

    with pytest.raises(TypeError, match="expected objects of the class Panel"):
        panels_of(Wrong(), (), ())
