"""The settings of a session, read once, checked, with their source named where they are wrong."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from pytest_packbench.backends import MODULES, RECORDED, STUB
from pytest_packbench.cases.suites import suite_names
from pytest_packbench.model.run import Caps, RunOptions, Shard
from pytest_packbench.packs import FILES
from pytest_packbench.plugin import ASKED, BY_NAME, setting_of

if TYPE_CHECKING:
    from collections.abc import Callable


NumberT = TypeVar("NumberT", int, float)
BACKENDS = (*MODULES, STUB, RECORDED)
_CONCURRENCY = 8
_CASE_TIMEOUT_S = 300.0
_CALL_TIMEOUT_S = 120.0
_MAX_OUTPUT_TOKENS = 4096
_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RunOptions):
    """What the user set, each by option, environment or ini: how attempts are made, and what becomes of them.

    Attributes:
        gate: `case` or `suite`.
        shard: the part of each suite to run; None for all of it.
        output: the folder for reports, absolute.
        baseline: `none`, `latest`, or the absolute path of an earlier run.
        resume: the run to go on with: `latest`, an id or a path; empty for a new one.
        resume_changed: `refuse`, or `run` to run anew what changed since.
        home: the folder that relative paths start from, absolute.
    """

    gate: Literal["case", "suite"]
    shard: Shard | None
    output: Path
    baseline: str
    resume: str
    resume_changed: Literal["refuse", "run"]
    home: Path

    @property
    def ahead(self) -> bool:
        """Whether cases run ahead of pytest's item loop: they wait for somebody, or run at once, or have a limit."""
        return self.mode != "fixture" or self.concurrency > 1 or self.case_timeout_s is not None


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


def _cache(given: str, home: Path, mode: str) -> Path | None:
    if not given or mode == "fixture":
        return None
    path = Path(os.path.normpath(home / given))
    if path.exists() and not path.is_dir():
        raise pytest.UsageError(f"--packbench-cache: {path} is not a folder; expected a folder, or a new name")
    return path


class _Reader:
    """Reads values, each mistake a usage error that names where it came from."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def value(self, name: str, allowed: tuple[str, ...] | None = None) -> Any:
        """Give a value, one of `allowed` where those are named."""
        found, source = setting_of(name, self._config.option, self._config.getini)
        if allowed is not None and found not in allowed:
            # empty stands for what is not set, which nobody writes
            listed = ", ".join(filter(None, allowed))
            raise pytest.UsageError(f"{source}: got {found!r}; expected one of: {listed}")
        return found

    def choice(self, name: str) -> Any:
        """Give a value among the choices of its option."""
        option = BY_NAME[name].option or {}
        return self.value(name, tuple(option["choices"]))

    def whole(self, name: str, *, least: int = 1) -> int | None:
        """Give a whole number from `least` up; None where nothing is set."""
        number: int | None = self._number(name, int, f"a whole number, {least} or more", lambda number: number >= least)
        return number

    def real(self, name: str, *, most: float = math.inf, positive: bool = True) -> float | None:
        """Give a number above 0, or from 0 where 0 may be, up to `most`; None where nothing is set."""
        upper = "" if most == math.inf else f", {most:g} at most"
        expected = f"a number{' above 0' if positive else ', 0 or more'}{upper}"
        number: float | None = self._number(
            name, float, expected, lambda number: (number > 0 or (number == 0 and not positive)) and number <= most
        )
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        """Give names that came repeated or with commas; None where nothing is set."""
        return tuple(suite_names(self.value(name))) or None

    def shard(self) -> Shard | None:
        """Give the shard; None where nothing is set."""
        found, source = setting_of("shard", self._config.option, self._config.getini)
        try:
            return Shard.parse(str(found)) if found else None
        except ValueError as error:
            raise pytest.UsageError(f"{source}: {error}") from None

    def _number(self, name: str, kind: Callable[[Any], NumberT], expected: str, fits: Callable[[NumberT], bool]) -> Any:
        found, source = setting_of(name, self._config.option, self._config.getini)
        if found in {"", None}:
            return None
        try:
            number = kind(found)
        except (ValueError, OverflowError):
            raise pytest.UsageError(f"{source}: got {found!r}; expected {expected}") from None
        if not math.isfinite(number) or not fits(number):
            raise pytest.UsageError(f"{source}: got {found!r}; expected {expected}")
        return number


def _guards(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if names is None or "none" not in names:
        return names
    if names != ("none",):
        raise pytest.UsageError("--packbench-guard: got none beside other guards; expected none alone, or guards")
    return ()


def being_debugged(config: pytest.Config) -> bool:
    """Whether somebody steps through the code: then one case runs at a time, without a time limit.

    A trace function alone says nothing: tools that measure coverage have one as well.
    """
    stepping = type(getattr(sys.gettrace(), "__self__", None)).__mro__
    by_pdb = any(one.__module__ == "bdb" for one in stepping)
    return bool(config.option.usepdb or config.option.trace or by_pdb or "pydevd" in sys.modules)


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings.

    Raises:
        pytest.UsageError: a value is not allowed; says where it came from and what is.
    """
    read = _Reader(config)
    mode = read.choice("mode")
    fixture = mode == "fixture"
    debugged = being_debugged(config)
    trials = read.whole("trials") or 1
    if fixture and trials > 1:
        raise pytest.UsageError(
            f"--packbench-trials: got {trials} in fixture mode, where each trial would be the same; "
            "use --packbench-mode=live or record"
        )
    limit = read.real("case_timeout") or (None if fixture else _CASE_TIMEOUT_S)
    home = _home(config)
    return Settings(
        mode=mode,
        target=str(read.value("target")),
        backend=read.value("backend", ("", *BACKENDS)),
        model=str(read.value("model")),
        base_url=str(read.value("base_url")),
        guards=_guards(read.names("guard")),
        debugged=debugged,
        concurrency=1 if debugged else read.whole("concurrency") or (1 if fixture else _CONCURRENCY),
        trials=trials,
        caps=Caps(tokens=read.whole("max_tokens"), cost=read.real("max_cost"), seconds=read.real("max_seconds")),
        case_timeout_s=None if debugged else limit,
        call_timeout_s=read.real("call_timeout") or _CALL_TIMEOUT_S,
        retries=read.whole("retries", least=0) or 0,
        temperature=read.real("temperature", most=2, positive=False) or 0.0,
        max_output_tokens=read.whole("max_output_tokens") or _MAX_OUTPUT_TOKENS,
        gate=read.choice("gate"),
        shard=read.shard(),
        output=Path(os.path.normpath(home / read.value("output"))),
        baseline=_baseline(str(read.value("baseline")), home),
        resume=str(read.value("resume")),
        resume_changed=read.value("resume_changed", ("refuse", "run")),
        cache=_cache(str(read.value("cache")), home, mode),
        stale_is_error=read.value("stale", ("warn", "error")) == "error",
        allow_processes=_YES_NO[read.value("allow_processes", tuple(_YES_NO))],
        root=config.rootpath,
        home=home,
        files={name: Path(os.path.normpath(home / path)) for name in FILES if (path := read.value(name))},
        workers=int(getattr(config, "workerinput", {}).get("workercount", 1)),
        stops=(KeyboardInterrupt, pytest.exit.Exception),
    )
