"""All that knows pytest-json-report, which makes the document of a run; one that a user requested is left alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.plugin import ungrouped

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Mapping

_PLUGIN = "pytest_jsonreport"
EXTRA = "_json_report_extra"
"""The attribute of reports and items with what the plugin and tests add."""
# collectors and keywords repeat every node id, and logs are in pytest's own sections
_OMITTED = ("collectors", "keywords", "log")


class Substitute:
    """Takes the place of the plugin where pytest-html-plus has its option `--json-report`.

    Our reports use the class of the plugin all the same.
    """

    @pytest.fixture
    def json_metadata(self, request: pytest.FixtureRequest) -> Any:
        """The fixture of the plugin, with what a test adds to its report."""
        return getattr(request.node, EXTRA, {}).setdefault("metadata", {})


def leave_option(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
    """Leave the option `--json-report` to pytest-html-plus: pytest ends if this plugin adds it, too."""
    if manager.is_blocked(_PLUGIN):
        return
    registered = manager.getplugin(_PLUGIN)
    if registered is not None:
        manager.unregister(registered)
        _remove_options(parser.getgroup("jsonreport"))
    manager.register(Substitute(), _PLUGIN)


def _remove_options(group: Any) -> None:
    """Remove the options of a group; pytest has no function for it."""
    # from pytest 9 on, argparse has them already
    actions = getattr(group, "_arggroup", None)
    if actions is not None:
        for name in [name for option in group.options for name in option.names()]:
            action = actions._option_string_actions[name]  # noqa: SLF001 - as above
            actions._handle_conflict_resolve(None, [(name, action)])  # noqa: SLF001 - as above
    group.options.clear()


class _Short:
    """Comes before the plugin's class: the hooks of a test in the document of a run, which has no logs."""

    # they only capture the log
    pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let each phase have its own part, which those hooks would add."""
        setattr(item, EXTRA, {"setup": {}, "call": {}, "teardown": {}})
        try:
            return (yield)
        finally:
            delattr(item, EXTRA)

    @pytest.hookimpl(trylast=True)
    def pytest_json_runtest_stage(self, report: pytest.TestReport) -> Any:
        """Return the part of a phase; of one without any text, the plugin would have pytest format none."""
        # that of a worker of xdist names the worker
        has_text = report.longrepr is not None or hasattr(report, "node")
        if not has_text and not getattr(report, EXTRA).get(report.when):
            stage = {"duration": report.duration, "outcome": report.outcome}
        else:
            stage = super().pytest_json_runtest_stage(report)  # type: ignore[misc]  # the plugin's class comes next
        # pytest keeps all reports
        delattr(report, EXTRA)
        return stage


def enable(config: pytest.Config, *, late: bool) -> None:
    """Let the plugin build its document without writing it, unless the user requested one.

    Args:
        config: the session's.
        late: whether the session has started: then the hook is called that the plugin has missed.
    """
    registered = config.pluginmanager.getplugin(_PLUGIN)
    # another plugin may have its option
    has_option = registered is not None and not isinstance(registered, Substitute)
    is_requested = hasattr(config, "_json_report") or (has_option and config.option.json_report)
    # it reads pytest's traceback style, which needs the terminal
    if is_requested or config.pluginmanager.is_blocked(_PLUGIN) or not hasattr(config.option, "tbstyle"):
        return
    try:
        from pytest_jsonreport.plugin import (  # type: ignore[import-untyped]  # it has no types
            JSONReport,
            JSONReportWorker,
        )
    except ImportError:
        return
    # with -v it would report at the end that it wrote no file
    config.option.json_report_verbosity = 0
    config.option.json_report_omit = list(_OMITTED)
    config.option.json_report_file = config.option.json_report_indent = None
    config.option.json_report_summary = False
    kind = JSONReportWorker if hasattr(config, "workerinput") else JSONReport
    plugin = type(kind.__name__, (_Short, kind), {})(config)
    # as it does itself
    config._json_report = plugin  # type: ignore[attr-defined]  # noqa: SLF001 - other plugins look for it there
    config.pluginmanager.register(plugin, "packbench-json-report")
    if late and hasattr(plugin, "pytest_sessionstart"):
        plugin.pytest_sessionstart(session=None)


def plugin_of(config: pytest.Config) -> Any:
    """Return what makes the document of a session; None with `-p no:pytest_jsonreport`, or without the terminal."""
    return getattr(config, "_json_report", None)


def redact_extra(extra: dict[str | None, Any], when: str | None, redacted: Callable[[Any], Any]) -> None:
    """Redact what was added to the report of a phase; it is one object for all phases."""
    for part in (when, "metadata"):
        if extra.get(part):
            extra[part] = redacted(extra[part])


def document_of(config: pytest.Config, session: pytest.Session, nodeids: Container[str]) -> dict[str, Any]:
    """Return the document for the items of one suite; only the exit code if there is no `plugin_of`.

    Args:
        config: has the document after the session.
        session: has the exit code.
        nodeids: the node ids of the suite's items.
    """
    report: dict[str, Any] = dict(getattr(plugin_of(config), "report", None) or {})
    report["exitcode"] = int(session.exitstatus)
    tests = [test for test in report.get("tests", []) if ungrouped(test["nodeid"], nodeids) in nodeids]
    # some plugins, such as pytest-sugar, call errors failures
    called_failed = [test for test in tests if test.get("outcome") == "failed" and _is_error(test)]
    for test in called_failed:
        test["outcome"] = "error"
    if called_failed or ("tests" in report and len(tests) < len(report["tests"])):
        report["tests"] = tests
        outcomes = Counter(test.get("outcome", "passed") for test in tests)
        report["summary"] = {**outcomes, "total": len(tests), "collected": len(tests)}
    return report


def _is_error(test: Mapping[str, Any]) -> bool:
    """Whether a test of that document failed before or after its call."""
    return any(test.get(phase, {}).get("outcome") == "failed" for phase in ("setup", "teardown"))
