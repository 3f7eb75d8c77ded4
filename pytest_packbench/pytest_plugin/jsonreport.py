"""pytest-json-report's document: switched on for our runs, written by us, the user's own report left alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_packbench.pytest_plugin.stash import ungrouped

if TYPE_CHECKING:
    from collections.abc import Container

    import pytest


PLUGIN = "pytest_jsonreport"
# collectors and keywords repeat every node id, and the logs stand in pytest's own sections
_LEFT_OUT = ("collectors", "keywords", "log")


def switch_on(config: pytest.Config) -> None:
    """Let the plugin build its document without writing it, unless the user asked for it: then it is theirs."""
    # without a terminal reporter pytest has no traceback style, which that plugin asks for
    able = config.pluginmanager.hasplugin(PLUGIN) and config.pluginmanager.hasplugin("terminal")
    if able and not config.option.json_report:
        _ask_for(config)


def switch_on_late(config: pytest.Config) -> None:
    """Do the same in a session that has begun: the plugin is started by hand, as if the session began now."""
    plugin: Any = config.pluginmanager.getplugin(PLUGIN)
    able = config.pluginmanager.hasplugin("terminal") or hasattr(config, "workerinput")
    if plugin is None or not able or hasattr(config, "_json_report"):
        return
    _ask_for(config)
    plugin.pytest_configure(config)
    begin = getattr(getattr(config, "_json_report", None), "pytest_sessionstart", None)
    if begin is not None:
        begin(session=None)


def _ask_for(config: pytest.Config) -> None:
    config.option.json_report = True
    config.option.json_report_file = None
    config.option.json_report_omit = list(_LEFT_OUT)
    # or it says at the end, with -v, that it did not write what we write
    config.option.json_report_verbosity = 0


def plugin_report(config: pytest.Config, session: pytest.Session, nodeids: Container[str]) -> dict[str, Any]:
    """Give the plugin's document for one suite's items.

    Args:
        config: holds the document after the session; there is none with `-p no:pytest_jsonreport`.
        session: tells the exit code.
        nodeids: the suite's items.
    """
    plugin = getattr(config, "_json_report", None)
    report: dict[str, Any] = dict(getattr(plugin, "report", None) or {})
    report["exitcode"] = int(session.exitstatus)
    tests = [test for test in report.get("tests", []) if ungrouped(test["nodeid"], nodeids) in nodeids]
    if "tests" in report and len(tests) < len(report["tests"]):
        report["tests"] = tests
        outcomes = Counter(test.get("outcome", "passed") for test in tests)
        report["summary"] = {**outcomes, "total": len(tests), "collected": len(tests)}
    return report
