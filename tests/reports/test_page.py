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
from tests.unit.run_builders import COMPLETE, ONE_OF_EACH, case_result, case_results, changed, conclusion_of, gate, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result
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
        point(f"run{number}", f"2026-01-01T0{number}:00:00.000Z", rules_hash) for number, rules_hash in enumerate("aab")
    ]
    live = {
        "mode": "live",
        "backend": "openai",
        "model": "m-1",
        "settings": {"spent": {"cost": 1.25, "currency": "USD", "calls": 7, "tokens": 90, "uncounted": 0}},
    }
    records = {"tokens_input": 10, "tokens_output": 5}
    results = [replace(each, record=records) if each.score.counted else each for each in ONE_OF_EACH]
    conclusion = {
        "policy": policy,
        "controls": tally_of([wrong], 2),
        "figures": figures,
        "times": Times(7, 20, 400),
    }
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
    def hostile(result: Result) -> Result:
        texts: dict[str, Any] = dict.fromkeys(
            ("test_id", "file", "message", "kind", "answer", "case_type", "difficulty"), HOSTILE
        )
        terms = ({"name": HOSTILE, "effect": "add", "value": 0.5, "detail": HOSTILE},)
        return changed(result, **texts, terms=terms, facets={HOSTILE: HOSTILE})

    figure = Figure(name="f", definition="d", count=1, total=2).with_texts(lambda _: HOSTILE)
    panel = Panel(title=HOSTILE, intro=HOSTILE, head=(HOSTILE,), rows=((HOSTILE,),), figures=(figure,))
    policy = PolicyOutcome(HOSTILE, (PolicyChange(*[HOSTILE] * 6),), (HOSTILE,), (HOSTILE,))
    control = ControlResult(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "deviates", HOSTILE, HOSTILE, message=HOSTILE)
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
        conclusion={"policy": policy, "controls": tally_of([control], 1), "figures": (figure,)},
        panels=[panel],
        trend=[point(HOSTILE, HOSTILE, HOSTILE, interval=None)],
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
    now[0] = changed(now[0], case_sha256="ff")
    before[0] = changed(before[0], case_sha256="ee")
    earlier = BaselineLookup(
        stored=StoredRun(source="r", run=run(run_id="BEFORE"), results=tuple(before)), requested="r"
    )
    rules = SuiteConfig.model_validate({"pack": "generic"})
    conclusion = conclude(run(), now, rules, (), earlier)
    text = Page(html_of(RunPage(conclusion, scores_of(now)))).shown
    flips = text[text.index("New failures: 2") : text.index("Cases that are not compared")]
    assert re.findall(r"plain:(c\d+)", flips) == ["c3", "c7", "c9"]
    assert "Recovered: 1" in flips
    assert re.findall(r"(?m)^(red|blue|green)$", flips) == ["red", "blue", "red", "blue", "green", "red"]
    rest = text[text.index("Cases that are not compared: 3") :]
    assert re.findall(r"plain:(\S+)\n(.+)\n", rest)[:3] == [
        ("c28", "removed"),
        ("c0", "changed and excluded"),
        ("c29", "added"),
    ]


def compared(before: Sequence[Result], now: Sequence[Result], *, committed: bool = False, **of: Any) -> str:
    """Return the text of the page of a run that is compared with another."""
    stored = StoredRun(source="r", run=run(run_id="BEFORE"), results=tuple(before), committed=committed)
    rules = SuiteConfig.model_validate({"pack": "generic"})
    conclusion = conclude(run(**of), now, rules, (), BaselineLookup(stored=stored, requested="r"))
    return Page(html_of(RunPage(conclusion, scores_of(now)))).shown


GOT = {"name": "exact /order", "effect": "add", "value": 0.0, "detail": "got 30, expected 5120"}


def test_a_new_failure_shows_what_came_instead_of_what_was_expected() -> None:
    before = [case_result("a", answer="refunds", terms=({**GOT, "value": 0.33, "detail": ""},))]
    now = [
        case_result("a", "failed", answer="refunds", terms=(GOT,), expected_text="order 5120", actual_text="order 30")
    ]
    for after, pair in ((now[0], " (got order 30, expected order 5120)"), (changed(now[0], expected_text=""), "")):
        text = compared(before, [after])
        row = f"refunds\n✗ failed\nrefunds{pair}\n1.00 to 0.25 (-0.75)\nexact /order +0.33 to +0.00"
        assert row in text
    # with other answers, these show it
    assert "got order 30" not in compared(before, [changed(now[0], answer="a")]).split("Mean change")[0]


def test_a_case_that_failed_and_is_not_compared_is_shown_with_what_it_came_to() -> None:
    before = [
        case_result("gone", "failed", answer="red"),
        case_result("edited", "failed", case_sha256="aa"),
        case_result("excluded", "failed"),
        case_result("same"),
    ]
    now = [case_result("edited", case_sha256="bb"), case_result("excluded", "failed", kind="xfail"), before[3]]
    text = compared(before, now)
    assert "New failures\n0\n0 recovered since the baseline; 3 that failed there not compared" in text
    assert "Cases that are not compared: 3" in text
    for row in (
        "gone\nremoved\n✗ failed\nred\n-",
        "edited\nchanged and excluded\n✗ failed\n✓ passed",
        "excluded\nquarantined now\n✗ failed\n✗ failed",
    ):
        assert row in text


def test_why_a_change_has_no_interval_and_what_limits_the_comparison_is_said() -> None:
    model = case_results(2, llm_backend="openai")
    assert "Only one case has a score in both runs" in compared(model[:1], model[:1])
    authored = case_results(2, llm_backend="stub")
    assert "The answers were authored, so only counts are shown, no statistics." in compared(authored, authored)
    clustered = [changed(each, facets={"f": "x"}) for each in model]
    assert "all pairs share one f, so no interval is shown" in compared(clustered, clustered, settings={"cluster": "f"})
    trials = [changed(model[0], trial=number) for number in range(3)]
    text = compared(model[:1], trials)
    assert text.count("3 now: each case") == 1
    some = page([*model, case_result("x", llm_backend="stub")])
    assert "2 of 3\n" not in Page(html_of(some)).shown
    assert "3 of 3\n1 of 3 answers authored: counts only" in Page(html_of(some)).shown


def test_a_committed_baseline_has_no_answers_and_no_column_for_them() -> None:
    text = compared([case_result("a", answer=None)], [case_result("a", "failed", terms=())], committed=True)
    assert "The baseline is the committed one; answers and terms are not stored in it." in text
    assert "score\nwhy" not in text.split("Mean change")[0]


def test_failing_cases_are_printed() -> None:
    failed = case_results(0, 12, terms=(GOT,))
    read = Page(html_of(page(failed)))
    assert "Failing cases: 12" in read.shown
    assert "10 of 12 shown" in read.shown
    assert {"id": "failing", "aria-labelledby": "failing-title", "class": "printed"} in read.all("section")
    assert "0.25 < 0.80" in read.shown
    assert "ailing cases" not in Page(html_of(page(case_results(2)))).shown


def test_without_its_script_a_link_to_a_failing_case_leads_to_its_row() -> None:
    read = Page(html_of(page(case_results(1, 1), with_cases=True)))
    ids = {each["id"] for each in read.all("th") if "id" in each}
    assert ids == {each["href"][1:] for each in read.all("a") if each["href"].startswith("#case=")} != set()


def test_terms_of_a_case_with_trials_are_those_of_the_worst() -> None:
    trials = [case_result("a", "passed"), case_result("a", "failed", trial=1, terms=(GOT,))]
    shown = Page(html_of(page(trials))).shown
    assert "0.62 < 0.80\n1 / 2" in shown
    assert "terms in detail (worst trial)" in shown
    assert "exact /order +0.00 (got 30, expected 5120)" in shown


def test_what_is_not_known_is_not_zero() -> None:
    results = [replace(result, record={}) for result in case_results(2)]
    live = page(results, run={"mode": "live", "backend": "openai", "model": "m"})
    facts = Page(html_of(live)).shown
    assert "Cost\nnot known\n" in facts
    assert "0.00" not in facts
    # a replay took its own time, and spent nothing
    assert "Cost" not in Page(html_of(page(results))).shown


@pytest.mark.parametrize(
    ("spent", "tiles"),
    [
        # an attempt that ended in an error has no record, and spent tokens as well
        ({}, "Tokens\n1,000\nCost\n0.5000 EUR\n3 model calls, 1,000 tokens, 0.5000 EUR\n"),
        (
            {"calls": 0, "tokens": 0, "cost": 0.0, "cached": 14},
            "Tokens\n0\nCost\n0.00 EUR\n0 model calls, 0 tokens, 0.0000 EUR, 14 more answered from the cache\n",
        ),
        ({"calls": 0, "tokens": 0, "cost": 0.0}, "Tokens\n0\nCost\n0.00 EUR\n0 model calls, "),
        (
            {"calls": 0, "tokens": 0, "cost": 0.0, "unmetered": 2},
            "Tokens\nnot known\nCost\nnot known\n0 model calls, 0 tokens, 0.0000 EUR; not known for 2 attempts without ",
        ),
        (
            {"calls": None, "tokens": 30, "cost": None},
            "Tokens\n30\nCost\nnot known\nmodel calls not known, 30 tokens reported by results\n",
        ),
        (
            {"cost": None},
            "Cost\nnot known\n3 model calls, 1,000 tokens, cost not known\n",
        ),
        (
            {"cost": None, "uncounted": 1},
            "Cost\nnot known\n3 model calls, 1,000 tokens (1 call without a token count), ",
        ),
        (None, "Cost\nnot known\n"),
    ],
)
def test_tokens_and_cost_are_those_of_all_calls(spent: dict[str, Any] | None, tiles: str) -> None:
    usual = {"calls": 3, "tokens": 1000, "uncounted": 0, "cost": 0.5, "currency": "EUR"}
    settings = {} if spent is None else {"spent": usual | spent}
    results = [replace(result, record={"tokens_input": 10, "tokens_output": 5}) for result in case_results(2)]
    live = {"mode": "live", "backend": "openai", "model": "m", "settings": settings}
    shown = Page(html_of(page(results, run=live))).shown
    assert tiles in shown


def test_authored_answers_get_no_interval() -> None:
    results = case_results(3, 1, llm_backend="stub")
    text = Page(html_of(page(results, gate("pass_rate", min=0.9)))).shown
    rates = text[text.index("Rates by group") :]
    assert ("3 / 4\n75.0 %" in rates, "interval" in rates) == (True, False)
    assert "3 of 4\nanswers authored: counts only" in text


def test_secrets_are_replaced() -> None:
    html = html_of(full(), redact=lambda view: _without(view, "says yes"))
    assert ("says yes" in html, "***" in html) == (False, True)


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


def test_a_trend_has_no_point_of_a_part() -> None:
    results = case_results(2)
    trend = [point(f"r{number}", "2026-01-01T00:00:00.000Z", run().suite_sha256) for number in range(3)]
    shown = Page(html_of(page(results, trend=trend))).shown
    assert "3 earlier complete runs of this suite with the same mode, target and model and this one." in shown
    part = Page(html_of(page(results, trend=trend, run={"partial": "2 of 9 cases selected"}))).shown
    assert "3 earlier complete runs of this suite with the same mode, target and model; this one has only" in part
    assert part.split("Runs, oldest first")[1].count("✓ passed") == 3


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
    (invalid,) = TariffMetrics().panels(records, ())
    assert invalid.rows == (("b", "8528520000"),)
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
    class Wrong(Metrics):
        def panels(self, records: Any, figures: Any) -> Any:
            return [1]

    pack = copy(builtin()["generic"])
    pack.metrics = Wrong()  # type: ignore[misc]  # an attribute of its class
    with pytest.raises(TypeError, match="expected objects of the class Panel"):
        panels_of(pack, (), ())
