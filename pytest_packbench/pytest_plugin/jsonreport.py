"""pytest-json-report: enable its document for runs of suites; a report that the user requested is left alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_packbench.plugin import ungrouped

if TYPE_CHECKING:
    from collections.abc import Container

    import pytest


PLUGIN = "pytest_jsonreport"
# collectors and keywords repeat every node id, and logs are in pytest's own sections
_OMITTED = ("collectors", "keywords", "log")


def enable(config: pytest.Config) -> None:
    """Let the plugin build its document without writing it, unless the user requested one."""
    # the plugin reads pytest's traceback style, an option of the terminal reporter
    usable = config.pluginmanager.hasplugin(PLUGIN) and config.pluginmanager.hasplugin("terminal")
    if usable and not config.option.json_report:
        _set_options(config)


def enable_late(config: pytest.Config) -> None:
    """Enable the plugin after the session has started, by calling the hooks that it missed."""
    plugin: Any = config.pluginmanager.getplugin(PLUGIN)
    usable = config.pluginmanager.hasplugin("terminal") or hasattr(config, "workerinput")
    if plugin is None or not usable or hasattr(config, "_json_report"):
        return
    _set_options(config)
    plugin.pytest_configure(config)
    start = getattr(getattr(config, "_json_report", None), "pytest_sessionstart", None)
    if start is not None:
        start(session=None)


def _set_options(config: pytest.Config) -> None:
    config.option.json_report = True
    config.option.json_report_file = None
    config.option.json_report_omit = list(_OMITTED)
    # with -v it would report at the end that it wrote no file
    config.option.json_report_verbosity = 0


def plugin_report(config: pytest.Config, session: pytest.Session, nodeids: Container[str]) -> dict[str, Any]:
    """Return the plugin's document for the items of one suite.

    Args:
        config: has the document after the session; with `-p no:pytest_jsonreport` there is none.
        session: has the exit code.
        nodeids: the node ids of the suite's items.
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
