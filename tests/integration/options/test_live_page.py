"""`--packbench-live-page`: a live run rewrites its page while it is in progress."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.pytest_plugin.progress import PAGE_INTERVAL_S, LivePage

if TYPE_CHECKING:
    from tests.integration.conftest import Project

OPTION = "--packbench-live-page"
LIVE = ("--packbench-mode=live", "--packbench-target=pipeline:note")
REFRESH = '<meta http-equiv="refresh"'
# the pages as a browser would load them, after the cases of which the file's name tells
WATCH = """
    import pathlib
    NUMBER = 0
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(nodeid):
        global NUMBER
        NUMBER += 1
        for path in pathlib.Path("reports").glob("benchmarks/toy/*/report.html"):
            if 'http-equiv="refresh"' in (text := path.read_text("utf-8")):
                pathlib.Path(f"seen_{NUMBER}.html").write_text(text, "utf-8")
    """


def watch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_packbench.pytest_plugin.progress.PAGE_INTERVAL_S", 0)
    monkeypatch.setattr("pytest_packbench.pytest_plugin.progress.PAGE_SHARE", 0)
    project.prepare("one", "two", "three")
    project.extend_conftest(WATCH)


def seen(project: Project) -> list[str]:
    """Return the pages that a browser would have loaded, and remove them."""
    paths = sorted(project.root.glob("seen_*.html"))
    pages = [path.read_text("utf-8") for path in paths]
    for path in paths:
        path.unlink()
    return pages


def test_a_browser_sees_the_run_until_its_end(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(both, monkeypatch)
    result = both.run_toy(OPTION, *LIVE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["packbench: live page: reports/benchmarks/toy/*/report.html"])
    pages = seen(both)
    assert pages
    for page in pages:
        assert page.count(REFRESH) == 1
        assert "In progress" in page
        assert re.search(r"It was last written at 20[-0-9]+T[:0-9.]+Z: if that is long ago, the run was killed\.", page)
        assert re.search(r"[0-3] of 3 attempts done", page)
        # what only the end of a run can tell
        assert "Passed</span>" not in page
        assert 'id="gates"' not in page
    assert "3 of 3 judged cases passed so far" in pages[-1] or both.workers
    last = (both.left() / "report.html").read_text("utf-8")
    assert REFRESH not in last
    assert "In progress" not in last
    assert both.report()["summary"]["total"] == 3


def test_ini_and_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(project, monkeypatch)
    project.run_toy(*LIVE)
    assert not seen(project)
    monkeypatch.setenv("PACKBENCH_LIVE_PAGE", "yes")
    project.run_toy(*LIVE)
    assert seen(project)
    # the cases of a replay take no time that anybody watches
    project.run_toy("--packbench-target=pipeline:note")
    assert not seen(project)
    monkeypatch.setenv("PACKBENCH_LIVE_PAGE", "often")
    result = project.run_toy(*LIVE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "environment variable PACKBENCH_LIVE_PAGE: got 'often'; expected one of "
    assert message in result.stderr.str()
    monkeypatch.delenv("PACKBENCH_LIVE_PAGE")
    project.pytester.makeini("[pytest]\npackbench_live_page = yes\n")
    project.run_toy("-p", "no:terminal", *LIVE)
    assert seen(project)


def test_a_page_that_can_t_be_written_ends_no_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(project, monkeypatch)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_packbench.pytest_plugin.recorder.Recorder.write_live_page", fail)
    result = project.run_toy(OPTION, *LIVE)
    result.assert_outcomes(passed=3)
    line = "packbench: --packbench-live-page: the page can't be written before the end of the run: *No space left*"
    result.stdout.fnmatch_lines([line])
    assert result.stdout.str().count("the page can't be written") == 1


class Clock:
    """A recorder whose pages take as long to write as `takes_s` says."""

    def __init__(self) -> None:
        self.now, self.takes_s, self.written = 0.0, 0.0, 0

    def write_live_page(self, _: int) -> None:
        self.now += self.takes_s
        self.written += 1


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.01, PAGE_INTERVAL_S), (1.0, 50)])
def test_pages_are_written_seldom(takes_s: float, pause_s: float) -> None:
    clock = Clock()
    clock.takes_s = takes_s
    page = LivePage(clock, lambda: clock.now)  # type: ignore[arg-type]  # it only needs to write pages
    page.update()
    written_s = clock.now
    for now in (written_s, written_s + pause_s - 0.1):
        clock.now = now
        page.update()
    assert clock.written == 1
    clock.now = written_s + pause_s
    page.update()
    assert clock.written == 2
