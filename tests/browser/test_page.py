"""The page of a run, `report.html`, as people use it in a browser."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.reports.page.case_data import NO_SOURCES
from tests.browser import projects
from tests.browser.browsing import AXE, WIDE, opened
from tests.unit.run_builders import case_result
from tests.unit.test_case_data import blocks, text_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.browsing import Watched

    Pages = Callable[[str], Path]

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm ci --prefix tests/browser)"),
]
CASE_HEADING = "#case-view h1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests: its start takes longer than most of them."""
    from playwright.sync_api import sync_playwright

    # playwright's event loop runs as long as this: no other module may have it
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The page of a run by its kind; each run is made once, when a test first asks for it."""

    @cache
    def page(kind: str) -> Path:
        folder: Path = getattr(projects, kind)(tmp_path_factory.mktemp(kind))
        return folder / "report.html"

    return page


@pytest.mark.parametrize("kind", ["tariff", "failing", "releases"])
def test_nobody_is_shut_out(kind: str, browser: Browser, pages: Pages) -> None:
    with opened(browser, pages(kind), axe=True) as shown:
        shown.check_every_look()
        if kind == "releases":
            shown.open_case(pages(kind), projects.LOST[0])
            shown.check_every_look()
            shown.page.keyboard.press("?")
            shown.page.locator("#case-keys").wait_for()
            assert shown.barriers() == []


def test_exactly_the_planted_flips_are_shown_and_lead_to_their_cases(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases")) as shown:
        named = shown.linked_cases("#changes")
        # what got worse comes first
        assert sorted(named[: len(projects.LOST)]) == sorted(projects.LOST)
        assert named[len(projects.LOST) :] == list(projects.WON)
        for words, flips in (("change:new_failure", projects.LOST), ("change:recovered", projects.WON)):
            shown.filter(words, f"{len(flips)} of 24")
            rows = shown.page.locator("#case-table tbody tr[data-case]").all()
            assert sorted(row.get_attribute("data-case") or "" for row in rows) == sorted(flips)
        shown.page.locator("#changes").get_by_role("link", name=projects.LOST[0]).first.click()
        shown.page.locator(CASE_HEADING).filter(has_text=projects.LOST[0]).wait_for()
        text = shown.page.locator("#case-view").inner_text()
        for part in ("2 lamps of order 3311 are broken", "3311", "exact /order", "messages.jsonl", "pytest storage/"):
            assert part in text
        shown.page.keyboard.press("Escape")
        shown.page.locator("#case-view").wait_for(state="hidden")


def test_words_narrow_the_table_and_the_address_keeps_them(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("tariff")) as shown:
        for words, found in (("", 169), ("type:negative passed", 28), ("failed", 0), ("type:positive", 90)):
            shown.filter(words, f"{found} of 169" if words else "169")
        shown.page.reload()
        shown.page.locator("#case-count").filter(has_text="90 of 169").wait_for()
        assert shown.page.locator("#case-filter").input_value() == "type:positive"


def test_the_table_is_sorted_and_grouped(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases"), address="#cases?sort=score&dir=asc") as shown:
        first = shown.page.locator("#case-table tbody tr[data-case]").first
        first.wait_for()
        assert first.get_attribute("data-case") == projects.NEVER_RIGHT
        column = shown.page.locator("#case-table th", has=shown.page.locator("button[data-sort=score]"))
        assert column.get_attribute("aria-sort") == "ascending"
        column.locator("button").click()
        assert column.get_attribute("aria-sort") == "descending"
        assert first.get_attribute("data-case") != projects.NEVER_RIGHT
        shown.page.locator("#case-group").select_option("terms")
        shown.page.locator("#packbench-cases").filter(has_text="2 cases, 2 failing").wait_for()
        assert "group=terms" in shown.page.url


def test_the_keyboard_suffices(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases")) as shown:
        press, view = shown.page.keyboard.press, shown.page.locator("#case-view")
        shown.page.locator("#case-table").wait_for()
        press("/")
        shown.page.keyboard.type("failed")
        shown.page.locator("#case-count").filter(has_text="3 of 24").wait_for()
        for key in ("Enter", "j", "Enter"):
            press(key)
        shown.page.locator(CASE_HEADING).wait_for()
        first = shown.page.locator(CASE_HEADING).inner_text()
        press("n")
        shown.page.locator(CASE_HEADING).filter(has_not_text=first).wait_for()
        press("Escape")
        view.wait_for(state="hidden")
        press("?")
        shown.page.locator("#case-keys").wait_for()
        press("Escape")
        shown.page.locator("#case-keys").wait_for(state="hidden")


def test_costs_and_the_conversation_of_a_case_are_shown(browser: Browser, tmp_path: Path) -> None:
    asked = {"system": "You know geography.", "messages": [{"role": "user", "content": "Chile"}]}
    exchanges = {"exchanges": [{"role": "answer", "prompt": asked, "answer": "Valparaiso"}]}
    costs = {"a": 0.25, "b": 0.5, "c": 0.125}
    results = [case_result(name, "failed", cost_usd=cost) for name, cost in costs.items()]
    path = projects.write_page(tmp_path / "page.html", blocks(results, text_sources("{}", json.dumps(exchanges))))
    with opened(browser, path) as shown:
        shown.page.locator("[data-sort=cost]").click()
        assert list(map(float, shown.texts("#case-table tbody tr td:last-child"))) == [0.5, 0.25, 0.125]
        shown.filter("cost>0.2", "2 of 3")
        shown.page.locator("#case-filter").fill("cost>5")
        shown.page.locator("#case-table td.none").wait_for()
        shown.open_case(path, "a")
        assert re.search(r"cost\s+0\.25\d* USD", shown.page.locator("#case-view").inner_text())
        text = shown.page.locator("#case-view").evaluate("node => node.textContent")
        for part in ("You know geography.", "Chile", "Valparaiso"):
            assert part in text


@pytest.mark.parametrize("script", [True, False])
def test_hostile_texts_stay_text(browser: Browser, pages: Pages, *, script: bool) -> None:
    dangerous = "[onclick], [onerror], [onmouseover], [style], a[href^=javascript], img, iframe, object"
    with opened(browser, pages("failing"), script=script) as shown:
        addresses = [f"#case=hostile_{number}" for number in (0, 1, 2, 4, 3)] if script else [""]
        for address in addresses:
            shown.page.goto(pages("failing").as_uri() + address)
            if address:
                shown.page.locator(CASE_HEADING).filter(has_text=address.partition("=")[2]).wait_for()
            assert shown.page.locator(dangerous).count() == 0
            if script:
                assert shown.page.evaluate("window.pwned") is None
        assert projects.HOSTILE[3] in shown.page.locator("body").inner_text()


def test_without_script_verdict_gates_and_flips_are_readable(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases"), script=False) as shown:
        assert "FAILED" in shown.page.locator("#verdict").inner_text().upper()
        assert "87.5" in shown.page.locator("#gates").inner_text()
        flips = shown.page.locator("#changes").inner_text()
        assert all(name in flips for name in (*projects.LOST, *projects.WON))
        assert projects.NEVER_RIGHT in shown.page.locator("#cases").inner_text()


def test_the_sign_off_is_one_printed_sheet(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases")) as shown:
        shown.page.emulate_media(media="print", color_scheme="dark")
        # A4 without its margins, in CSS pixels
        shown.page.set_viewport_size({"width": 700, "height": 1020})
        for section in ("verdict", "gates", "changes"):
            frame = shown.page.locator(f"#{section}").bounding_box()
            assert frame is not None
            assert frame["y"] + frame["height"] < 1020
        assert _background(shown) == "rgb(255, 255, 255)"
        assert not shown.page.locator("#theme-toggle").is_visible()


def test_light_and_dark(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("tariff")) as shown:
        light = _background(shown)
        shown.look(dark=True, width=WIDE)
        dark = _background(shown)
        assert light != dark
        shown.page.locator("#theme-toggle").click()
        assert _background(shown) == light
        shown.look(dark=False, width=WIDE)
        shown.page.locator("#theme-toggle").click()
        assert _background(shown) == dark


def test_a_mark_becomes_a_line_of_the_review(browser: Browser, pages: Pages) -> None:
    with opened(browser, pages("releases"), address=f"#case={projects.LOST[0]}") as shown:
        (line,) = shown.mark("quarantine", "waits for the new parser")
    mark = json.loads(line)
    names = ("version", "suite", "case", "mark", "reason", "by")
    known = (1, "support", projects.LOST[0], "quarantine", "waits for the new parser", "A. Reviewer")
    assert tuple(mark[name] for name in names) == known
    assert len(mark["case_sha256"]) == 64
    assert str(pages("releases").parents[3]) not in line


def test_numbers_keep_their_text(browser: Browser, tmp_path: Path) -> None:
    result = {"order": 12345678901234567890, "share": 1.0, "10": {"rows": [{"n": 1.0}] * 4}, "9": 'a {"$shared":0}'}
    text = '{"id": "one", "input": {"order": 98765432109876543210}, "expected": {"share": 1, "order": 2.5}}'
    failed = case_result("one", "failed", answer="x", payload=result, case_sha256="ab" * 32)
    path = projects.write_page(tmp_path / "page.html", blocks([failed], text_sources(text)))
    with opened(browser, path, address="#case=one") as shown:
        view = shown.page.locator("#case-view")
        shown.page.locator("#case-mark").wait_for()
        shown.page.locator("summary").filter(has_text="As the target returned it").click()
        shown_text = view.inner_text()
        assert shown.texts("#case-view .diff del, #case-view .diff ins") == [
            '-   "order": 2.5,',
            '+   "order": 12345678901234567890,',
        ]
        assert shown.texts("#case-view .columns > :nth-child(2) dd") == ["1.0", "12345678901234567890"]
        for part in ("2.5", "98765432109876543210", '"order": 12345678901234567890', '"share": 1.0'):
            assert part in shown_text
        (line,) = shown.mark("also_acceptable")
    assert line.endswith(f'"result":{json.dumps(result, separators=(",", ":"))}}}')
    assert json.loads(line)["result"] == result


def test_a_filter_finds_what_is_shown_and_says_what_it_does_not_know(browser: Browser, tmp_path: Path) -> None:
    lost = ({"name": "order", "effect": "zero", "value": 0.0}, {"name": "queue", "effect": "add", "value": 1.0})
    texts = {"input_text": "Where is order 3311", "expected_text": "3311", "actual_text": "4477"}
    results = [
        case_result("asked", "failed", case_type="personal_data", terms=lost, duration_ms=1500, **texts),
        case_result("other", terms=({"name": "order", "effect": "add", "value": 1.0},)),
    ]
    path = projects.write_page(tmp_path / "page.html", blocks(results))
    with opened(browser, path) as shown:
        remark = shown.page.locator("#case-filter-remark")
        for words, found, said in (
            ('"order 3311"', 1, ""),
            ("4477", 1, ""),
            ('type:"personal data"', 1, ""),
            ("type:personal_data", 1, ""),
            ("term:order", 1, ""),
            ("has:order", 2, ""),
            ("term:queue", 0, ""),
            ("has:queue", 1, ""),
            ("duration>1s", 1, ""),
            ("duration<=1500ms", 2, ""),
            ("toy:plain:asked", 1, ""),
            ("prize>0", 0, "No filter is called “prize”"),
            ("score>high", 0, "No filter is called “score”, or not with this value"),
            ("colour:red", 0, "No filter is called “colour”"),
            ("type:plain type:personal_data", 0, "Each word alone: type:plain 1, type:personal_data 1."),
        ):
            shown.filter(words, f"{found} of 2" if found < 2 else "2 cases")
            assert remark.inner_text().startswith(said), words
            assert remark.is_visible() == bool(said), words


def test_a_case_with_trials_says_which_is_shown(browser: Browser, tmp_path: Path) -> None:
    trials = [
        case_result("a", "passed" if number % 2 == 0 else "failed", trial=number, answer=f"answer {number}")
        for number in range(3)
    ]
    path = projects.write_page(tmp_path / "page.html", blocks(trials))
    with opened(browser, path, address="#case=a") as shown:
        which = shown.page.locator("#case-trial")
        which.wait_for()
        assert which.inner_text().startswith("Shown is trial 2 of 3, with score 0.25")
        assert "mean score 0.75" in shown.page.locator(".case-head").inner_text()
        shown.page.get_by_role("button", name="Show trial 3").click()
        which.filter(has_text="trial 3 of 3, with score 1.00").wait_for()
        assert "answer 2" in shown.page.locator("#case-view .answer").inner_text()


def test_only_what_is_wrong_differs(browser: Browser, tmp_path: Path) -> None:
    text = '{"id": "x", "input": "?", "expected": {"queue": ["2", "3"], "order": "7"}}'
    terms = (
        {"name": "one_of /queue", "effect": "add", "value": 0.5},
        {"name": "exact /order", "effect": "add", "value": 0.0},
    )
    payload = {"queue": "2", "order": "8"}
    unread = {"answer": None, "decision": "comply_safe"}
    results = [
        case_result("right", payload={"queue": "2", "order": "7"}, terms=terms),
        case_result("wrong", "failed", payload=payload, terms=terms),
        case_result("unread", "failed", **unread, actual_text="not JSON"),
        case_result("silent", "failed", **unread),
        case_result("new", "failed", answer="8"),
    ]
    before = {"toy:plain:new": case_result("new")}
    path = projects.write_page(tmp_path / "page.html", blocks(results, text_sources(text), baseline=before))
    with opened(browser, path) as shown:
        found = {}
        for result in results:
            shown.open_case(path, result.case.case_id)
            found[result.case.case_id] = shown.page.locator("#case-view .part").nth(1).inner_text()
            changed = [line for line in shown.texts("#case-view .diff .line") if line[0] != " "]
            assert changed == (['-   "order": "7"', '+   "order": "8"'] if result.case.case_id == "wrong" else [])
    assert "comply safe" not in "".join(found.values())
    assert "not JSON" in found["unread"]
    assert "no answer" in found["silent"]
    assert "its answer is not stored" in found["new"]


def test_a_broken_part_does_not_hide_the_others(browser: Browser, tmp_path: Path) -> None:
    recording = {
        "exchanges": [{"role": "a", "prompt": {"messages": "none"}, "answer": "x"}, 3, {"role": "b", "usage": 1}]
    }
    results = [case_result("one", record={"hook_decisions": [None]}, payload={"a": 1})]
    path = projects.write_page(tmp_path / "page.html", blocks(results, text_sources("{}", json.dumps(recording))))
    with opened(browser, path, address="#case=one") as shown:
        shown.page.locator("#case-mark").wait_for()
        headings = shown.texts("#case-view h2")
        assert headings[:2] == ["Input", "Expected and actual"]
        assert "Transcript" in headings
        assert "can't be shown" in shown.page.locator("#case-view").inner_text()
        shown.page.evaluate("location.hash = '#%'")
        shown.page.locator("#case-view").wait_for(state="hidden")


def test_a_case_of_several_runs_has_one_mark(browser: Browser, tmp_path: Path) -> None:
    live: dict[str, Any] = {"mode": "live", "target": "toy:answer", "finished_at": "2026-01-02T03:04:05.678Z"}
    result = case_result("a", "failed", case_sha256="ab" * 32)
    path = projects.write_page(
        tmp_path / "page.html", *(blocks([result], NO_SOURCES, **live, run_id=run) for run in ("R1", "R2"))
    )
    with opened(browser, path) as shown:
        shown.page.locator("#case-table td.col-run").first.wait_for()
        assert shown.texts("#case-table td.col-run") == ["live toy:answer 2026-01-02 03:04:05"] * 2
        for run, mark in enumerate(("gold_is_wrong", "quarantine")):
            shown.open_case(path, "a", str(run))
            shown.page.reload()
            shown.page.locator("#case-mark").wait_for()
            lines = shown.mark(mark, f"because {run}")
            assert [json.loads(line)["run_id"] for line in lines] == [f"R{run + 1}"]


def test_marks_belong_to_the_cases_of_a_page(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    first, changed = (case_result("a", "failed", case_sha256=digest * 32) for digest in ("ab", "cd"))
    projects.write_page(path, blocks([first], run_id="R"))
    with opened(browser, path, address="#case=a") as shown:
        assert len(shown.mark("quarantine")) == 1
        for result, run, left in ((first, "R", 1), (changed, "R", 0), (first, "S", 0)):
            projects.write_page(path, blocks([result], run_id=run))
            shown.page.goto(f"{path.as_uri()}#cases")
            shown.page.reload()
            shown.page.locator("#case-table").wait_for()
            review = shown.page.locator("#review").inner_text()
            assert f"Marked for review: {left} case" in review
            assert ("1 mark of an earlier version of this page dropped" in review) == (not left)


def test_a_begun_mark_is_kept(browser: Browser, tmp_path: Path) -> None:
    results = [case_result(name, "failed", case_sha256="ab" * 32) for name in ("a", "b")]
    path = projects.write_page(tmp_path / "page.html", blocks(results, run_id="R"))
    with opened(browser, path, address="#case=a") as shown:
        shown.page.locator("#mark-reason").fill("not yet")
        shown.page.keyboard.press("Escape")
        shown.page.keyboard.press("j")
        shown.page.locator(CASE_HEADING).filter(has_text="b").wait_for()
        assert len(shown.mark("quarantine")) == 1
        shown.page.keyboard.press("Escape")
        shown.page.keyboard.press("Escape")
        assert "a: begun, and not marked yet" in shown.page.locator("#review").inner_text()
        shown.page.reload()
        shown.open_case(path, "a")
        assert shown.page.locator("#mark-reason").input_value() == "not yet"


def test_also_acceptable_is_offered_where_it_can_be_applied(browser: Browser, tmp_path: Path) -> None:
    def lost(name: str) -> Any:
        return ({"name": name, "effect": "add", "value": 0.0},)

    generic, safety = "generic", "agent_safety"
    kinds = (
        (case_result("listed", "failed", terms=lost("one_of /queue")), generic, ""),
        (case_result("single", "failed", terms=lost("exact /order")), generic, "use the rule one_of"),
        (case_result("right"), generic, "passes already"),
        (case_result("broken", "error", message="no"), generic, "no answer that was scored"),
        (case_result("attack", "failed"), safety, "choose “Gold is wrong”"),
    )
    for number, (result, pack, why) in enumerate(kinds):
        path = projects.write_page(tmp_path / f"{number}.html", blocks([result], pack=pack))
        with opened(browser, path, address=f"#case={result.case.case_id}") as shown:
            choice = shown.page.locator("#case-mark label", has=shown.page.locator("[value=also_acceptable]"))
            choice.wait_for()
            assert choice.locator("input").is_disabled() == bool(why)
            assert why in choice.inner_text()


def test_nothing_in_a_text_is_unseen_or_turns_others_around(browser: Browser, tmp_path: Path) -> None:
    family, flag, hebrew = (
        "\U0001f469\u200d\U0001f467",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",
        "\u05e9\u05dc\u05d5\u05dd\u200f",
    )
    readable = f"{family} {flag} {hebrew} \u0645\u06cc\u200c\u062e tab\t\r\nend"
    hidden = "\u202egnp.exe a\u200bb c\u200dd \u2066x\u2069 \U000e0041 \x1b[31m \x9b \ufeff\r!"
    escaped = "\\u202egnp.exe a\\u200bb c\\u200dd \\u2066x\\u2069 \\U000e0041 \\x1b[31m \\x9b \\ufeff\\x0d!"
    text = json.dumps({"id": "a", "input": readable + hidden, "expected": {"text": hidden}}, ensure_ascii=False)
    terms = ({"name": "right", "effect": "note", "value": 0.0, "detail": hidden},)
    result = case_result(
        "a", "failed", answer=hidden, payload={"text": [hidden, readable]}, terms=terms, message=hidden
    )
    path = projects.write_page(tmp_path / "page.html", blocks([result], text_sources(text)))
    with opened(browser, path) as shown:
        assert shown.page.locator("#case-table td.col-answer .clip").get_attribute("title") == escaped
        shown.open_case(path, "a")
        shown_text: str = shown.page.locator("#case-view").evaluate("node => node.textContent")
        assert readable + escaped in shown_text
        assert shown_text.count(escaped) >= 5
        assert not set("\u202e\u200b\u2066\x1b\x9b\ufeff\U000e0041") & set(shown_text)


def _background(shown: Watched) -> str:
    colour: str = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour
