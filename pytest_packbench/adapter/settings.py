"""The settings of a session, read once, checked, with their source named where they are wrong."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_packbench.packs import FILES
from pytest_packbench.plugin import ASKED, BY_NAME, setting_of

_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user set, each by option, environment or ini.

    Attributes:
        mode: `fixture`.
        target: `package.module:attr`, empty where not set.
        gate: `case` or `suite`.
        output: the folder for reports, absolute.
        baseline: `none`, `latest`, or the absolute path of an earlier run.
        stale_is_error: whether a stale recording is an error.
        allow_processes: whether targets may start child processes in fixture mode.
        files: files of the packs' own that were given, by name, absolute.
    """

    mode: Literal["fixture"]
    target: str
    gate: Literal["case", "suite"]
    output: Path
    baseline: str
    stale_is_error: bool
    allow_processes: bool
    files: dict[str, Path]


def _home(config: pytest.Config) -> Path:
    # an argument in the wheel's suites draws rootdir towards them, away from where people look for their reports
    drawn = config.stash[ASKED].bundled and config.inipath is None and config.option.rootdir is None
    return config.invocation_params.dir if drawn else config.rootpath


def _baseline(given: str, home: Path) -> str:
    if given in {"none", "latest"}:
        return given
    path = Path(os.path.normpath(home / given))
    if not path.exists():
        raise pytest.UsageError(f"--packbench-baseline: no run at {path}; expected latest, none or a run's folder")
    return str(path)


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings.

    Raises:
        pytest.UsageError: a value is not allowed; says where it came from and what is.
    """

    def value(name: str, allowed: tuple[str, ...] | None = None) -> Any:
        found, source = setting_of(name, config.option, config.getini)
        if allowed is not None and found not in allowed:
            raise pytest.UsageError(f"{source}: got {found!r}; expected one of: {', '.join(allowed)}")
        return found

    def choice(name: str) -> Any:
        option = BY_NAME[name].option or {}
        return value(name, tuple(option["choices"]))

    return Settings(
        mode=choice("mode"),
        target=str(value("target")),
        gate=choice("gate"),
        output=Path(os.path.normpath(_home(config) / value("output"))),
        baseline=_baseline(str(value("baseline")), _home(config)),
        stale_is_error=value("stale", ("warn", "error")) == "error",
        allow_processes=_YES_NO[value("allow_processes", tuple(_YES_NO))],
        files={name: Path(os.path.normpath(_home(config) / path)) for name in FILES if (path := value(name))},
    )
