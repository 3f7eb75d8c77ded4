"""Redacts what pytest and other plugins show and store of cases: reports, logs, warnings, and collection errors."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.plugin import RESULTS_ATTRIBUTE
from pytest_packbench.pytest_plugin.case_run import item_run
from pytest_packbench.pytest_plugin.explain import Explanation

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Generator

    from pytest_packbench.model.redaction import Redactor


_JSON_REPORT = "_json_report_extra"
# attributes of every report that contain no text of a case, or are redacted by themselves
_KNOWN = frozenset(
    f"nodeid location keywords outcome longrepr when user_properties sections duration start stop wasxfail "
    f"item_index worker_id testrun_uid node _id {RESULTS_ATTRIBUTE} {_JSON_REPORT}".split()
)
_LOG_HANDLERS = ("log_cli_handler", "log_file_handler")


class Secrets:
    """Redacts the reports of cases, in the process that runs them, before any other plugin reads them.

    Args:
        redactor: the run's.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # what was captured in earlier phases of an item is in its later reports too
        self._section = lru_cache(redactor.text)

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Redact what is logged to the terminal or to a file at once."""
        # later than the constructor, when the plugin exists
        logs = session.config.pluginmanager.getplugin("logging-plugin")
        for handler in [getattr(logs, name) for name in _LOG_HANDLERS if hasattr(logs, name)]:
            handler.addFilter(partial(_redact_log_record, redactor=self._redactor))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Redact a report that all plugins have completed."""
        report = yield
        run = item_run(item)
        if run is None:
            return report
        if report.when == "setup":
            # a target may have loaded keys since
            self._section.cache_clear()
        report.sections = [(name, self._section(text)) for name, text in report.sections]
        if report.longrepr is not None:
            report.longrepr = self._redacted(report.longrepr)
        if len(report.user_properties) > run.own_properties:
            report.user_properties = self._redacted(report.user_properties)
        attributes = vars(report)
        if not attributes.keys() <= _KNOWN:
            for name in attributes.keys() - _KNOWN:
                setattr(report, name, self._redacted(attributes[name]))
        extra: dict[str | None, Any] | None = attributes.get(_JSON_REPORT)
        if extra:
            # one object for all phases
            for part in (report.when, "metadata"):
                if extra.get(part):
                    extra[part] = self._redacted(extra[part])
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Redact the report of a collector that failed."""
        report = yield
        if report.failed:
            report.longrepr = self._redacted(report.longrepr)
            report.sections = self._redacted(report.sections)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: Any) -> None:
        """Redact the text of a warning."""
        text = str(warning_message.message)
        redacted = self._redactor.text(text)
        if redacted != text:
            warning_message.message = UserWarning(redacted)

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        """Redact what pytest-json-report adds to the reports of cases, such as the environment."""
        for name, value in json_report.items():
            if name != "tests":
                json_report[name] = self._redacted(value)

    def _redacted(self, value: Any) -> Any:
        return _map_texts(value, self._redactor.text)


def _redact_log_record(record: logging.LogRecord, redactor: Redactor) -> bool:
    from pytest_packbench.engine.output import redact_log_record

    return redact_log_record(record, redactor)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with changed texts; pytest's own objects, such as tracebacks, are changed in place."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_map_texts(key, change): _map_texts(item, change) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_map_texts(item, change) for item in value)
    if isinstance(value, Explanation):
        return Explanation(change(value.text), replace(value.reprcrash, message=change(value.reprcrash.message)))
    if type(value).__module__.startswith("_pytest._code"):
        for name, item in vars(value).items():
            if name == "lines" and all(isinstance(line, str) for line in item):
                # together: a line break may cut a secret
                changed: Any = change("\n".join(item)).split("\n") if item else item
            else:
                changed = _map_texts(item, change)
            # some are frozen
            object.__setattr__(value, name, changed)
        return value
    if value is not None and not isinstance(value, int | float):
        # reports contain others as text; what their methods raise is no error of the report
        with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
            said = str(value)
            if (text := change(said)) != said:
                value = text
    return value
