"""Pages in headless Chromium: each is watched for errors and requests, and axe-core looks for barriers."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

AXE = Path(__file__).with_name("node_modules") / "axe-core" / "axe.min.js"
WIDE, NARROW = 1280, 400
_HEIGHT = 900
_WAIT_MS = 5000


class Watched(NamedTuple):
    """An open page, and what no page of ours may do: errors, warnings, and requests besides its own file."""

    page: Page
    troubles: list[str]

    def linked_cases(self, selector: str) -> list[str]:
        """Return the ids of the cases that a section links to, in its order."""
        links = self.page.locator(f"{selector} a[href*='case=']").all()
        return [unquote(link.get_attribute("href") or "").rpartition("=")[2].rpartition(":")[2] for link in links]

    def barriers(self) -> list[str]:
        """Return what axe-core finds in the page as it is shown now."""
        found: list[dict[str, Any]] = self.page.evaluate("async () => (await axe.run()).violations")
        return [
            f"{rule['id']}: {node['html'][:160]} ({node['failureSummary']})" for rule in found for node in rule["nodes"]
        ]

    def look(self, *, dark: bool, width: int) -> None:
        """Change the width and the colours that the reader prefers."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_viewport_size({"width": width, "height": _HEIGHT})

    def check_every_look(self) -> None:
        """Check that nothing of the page is out of reach, in light and dark and in two widths."""
        for dark, width in ((False, WIDE), (True, WIDE), (True, NARROW), (False, NARROW)):
            self.look(dark=dark, width=width)
            assert self.barriers() == []
            assert not self.page.evaluate("document.documentElement.scrollWidth > innerWidth")

    def filter(self, words: str, count: str) -> None:
        """Filter the table of cases, and wait for the count of those that are left."""
        self.page.locator("#case-filter").fill(words)
        self.page.locator("#case-count").filter(has_text=count).wait_for()

    def open_case(self, path: Path, case_id: str, run: str = "") -> None:
        """Open a case by its address."""
        self.page.goto(f"{path.as_uri()}#{f'run={run}&' if run else ''}case={case_id}")
        self.page.locator("#case-view h1").filter(has_text=case_id).wait_for()
        self.page.locator("#case-mark").wait_for()

    def mark(self, mark: str, reason: str = "seen") -> list[str]:
        """Mark the open case, and return the lines of the review that the page offers."""
        self.page.locator(f"#case-view input[name=mark][value={mark}]").check()
        self.page.locator("#mark-reason").fill(reason)
        self.page.locator("#mark-by").fill("A. Reviewer")
        self.page.locator("#mark-save").click()
        with self.page.expect_download() as download:
            self.page.locator("#mark-download").click()
        assert download.value.suggested_filename == "review.jsonl"
        return download.value.path().read_text("utf-8").splitlines()

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements."""
        return self.page.locator(selector).all_inner_texts()


@contextmanager
def opened(
    browser: Browser, path: Path, *, address: str = "", script: bool = True, axe: bool = False
) -> Iterator[Watched]:
    """Open a page from disk, and check at the end that there was no trouble."""
    context = browser.new_context(
        viewport={"width": WIDE, "height": _HEIGHT}, java_script_enabled=script, accept_downloads=True
    )
    try:
        context.set_default_timeout(_WAIT_MS)
        page = context.new_page()
        url = path.as_uri()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: _note_request(request.url, url, troubles))
        page.goto(url + address)
        if script and page.locator(".packbench-data").count():
            # the data of the cases is unpacked after the page has loaded
            page.locator("#case-table, #case-view h1").first.wait_for(state="attached")
        if axe:
            page.evaluate(AXE.read_text("utf-8"))
        yield Watched(page, troubles)
        assert troubles == []
    finally:
        context.close()


def _note_request(url: str, own: str, troubles: list[str]) -> None:
    if url.partition("#")[0] != own and not url.startswith(("data:", "blob:")):
        troubles.append(f"request: {url}")
