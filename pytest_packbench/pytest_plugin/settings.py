"""The settings of a session, read and checked once; an error names the option, variable or ini key."""

from __future__ import annotations

import inspect
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from pytest_packbench.cases.suites import suite_names
from pytest_packbench.model.run import RECORDED, STUB, Caps, RunOptions, Shard
from pytest_packbench.packs import TARGET_FILES
from pytest_packbench.plugin import BY_NAME, REMOVED, rootdir_of, setting_of
from pytest_packbench.policy import DEFAULT_SETTINGS, HOOKS, policy_settings
from pytest_packbench.pytest_plugin.selection import home_of
from pytest_packbench.runs.folder import BASELINE_WORDS, is_run_id

if TYPE_CHECKING:
    from collections.abc import Callable


NumberT = TypeVar("NumberT", int, float)
_CONCURRENCY = 8
_CASE_TIMEOUT_S = {"fixture": 60.0, "live": 300.0, "record": 300.0}
_CALL_TIMEOUT_S = 120.0
_MAX_CALLS = 100
_MAX_OUTPUT_TOKENS = 4096
_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RunOptions):
    """The settings by option, environment variable or ini key: how attempts are made and reported.

    Attributes:
        gate: `case` or `suite`.
        gateway: `auto`, `on` or `off`.
        shard: the part of each suite to run; None for all of it.
        output: the folder for reports, absolute.
        baseline: `none`, `latest`, `passed`, `committed`, the id of a run, or its absolute path.
        baseline_optional: whether a run whose baseline can't be found or compared may pass.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        policy_from: the base whose acceptance policy the suites are compared with; empty for none.
        resume: the run to resume: `latest`, an id or a path; empty for a new run.
        resume_changed: `refuse`, or `run` to run changed cases again.
        home: the folder that relative paths start from, absolute.
    """

    gate: Literal["case", "suite"]
    gateway: Literal["auto", "on", "off"]
    shard: Shard | None
    output: Path
    baseline: str
    baseline_optional: bool
    fail_on: str
    policy_from: str
    resume: str
    resume_changed: Literal["refuse", "run"]
    home: Path

    @property
    def prefetches(self) -> bool:
        """Whether attempts start before pytest reaches their item: live, concurrent, or limited without an alarm."""
        from pytest_packbench.engine.targets import TimeLimit  # settings are read where nothing runs, too

        is_limited_by_thread = self.case_timeout_s is not None and not TimeLimit.is_available()
        return self.mode != "fixture" or self.concurrency > 1 or is_limited_by_thread


def _baseline(value: str, home: Path, *, optional: bool) -> str:
    if value in BASELINE_WORDS or is_run_id(value):
        return value
    path = Path(os.path.normpath(home / value))
    if not path.exists() and not optional:
        expected = f"{', '.join(BASELINE_WORDS)}, the id of a run or a path"
        raise pytest.UsageError(f"--packbench-baseline: no run at {path}; expected {expected}")
    return str(path)


def _cache(value: str, home: Path, mode: str) -> Path | None:
    if not value or mode == "fixture":
        return None
    path = Path(os.path.normpath(home / value))
    if path.exists() and not path.is_dir():
        raise pytest.UsageError(f"--packbench-cache: {path} is not a folder; expected a folder, or a new name")
    return path


# an alarm of the operating system has no shorter time, and none of many years
_SHORTEST_S = 1e-3
_LONGEST_S = 1e6


class _Reader:
    """Reads values; an invalid one is a usage error that names its source."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def value(self, name: str, allowed: tuple[str, ...] | None = None) -> Any:
        """Return a value, one of `allowed` if that is set."""
        value, source = setting_of(name, self._config.option, self._config.getini)
        if allowed is not None and value not in allowed:
            # an empty value means not set
            listed = ", ".join(filter(None, allowed))
            raise pytest.UsageError(f"{source}: got {value!r}; expected one of {listed}")
        return value

    def choice(self, name: str) -> Any:
        """Return a value, one of the choices of its option."""
        option = BY_NAME[name].option or {}
        return self.value(name, tuple(option["choices"]))

    def integer(self, name: str, *, minimum: int = 1) -> int | None:
        """Return a whole number, at least `minimum`; None if it is not set."""
        number: int | None = self._number(
            name, int, f"a whole number, {minimum} or more", lambda number: number >= minimum
        )
        return number

    def real(self, name: str, *, minimum: float | None = None, maximum: float = math.inf) -> float | None:
        """Return a number from `minimum`, or above 0 without one, to `maximum`; None if it is not set."""
        upper = "" if maximum == math.inf else f", at most {maximum:.0f}"
        expected = f"a number{' above 0' if minimum is None else f', {minimum:g} or more'}{upper}"
        number: float | None = self._number(
            name,
            float,
            expected,
            lambda number: (number > 0 if minimum is None else number >= minimum) and number <= maximum,
        )
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return names, repeated or separated by commas; None if there are none."""
        return tuple(suite_names(self.value(name))) or None

    def backend(self) -> str:
        """Return the name of a backend, `stub` or `recorded`; empty where nothing is set."""
        name = str(self.value("backend"))
        if name in {"", STUB, RECORDED}:
            return name
        from pytest_packbench.backends import backend_names, is_backend

        # those of installed distributions are looked for only where no other has the name
        if is_backend(name):
            return name
        return str(self.value("backend", (*backend_names(), STUB, RECORDED)))

    def policy_from(self) -> str:
        """Return the base of acceptance policies; empty where none is set."""
        value, source = setting_of("policy_from", self._config.option, self._config.getini)
        if not value and source.startswith("--"):
            raise pytest.UsageError(f"{source}: got no value; expected a commit, a branch, a run id or a path of a run")
        return str(value)

    def given(self, name: str, expected: str) -> tuple[Any, str]:
        """Return a setting with its source; with an option that has no value, as of an unset variable, all would run.

        Raises:
            pytest.UsageError: the option has no value.
        """
        value, source = setting_of(name, self._config.option, self._config.getini)
        if source.startswith("--") and not value:
            raise pytest.UsageError(f"{source}: got no value; expected {expected}, or no such option")
        return value, source

    def shard(self) -> Shard | None:
        """Return the shard; None if it is not set."""
        value, source = self.given("shard", "a part such as 2/5")
        try:
            return Shard.parse(str(value)) if value else None
        except ValueError as error:
            raise pytest.UsageError(f"{source}: {error}") from None

    def conditions(self, baseline: str) -> str:
        """Return the conditions on the comparison with a baseline; empty where none are set."""
        value, source = setting_of("fail_on", self._config.option, self._config.getini)
        text = str(value)
        if not text:
            return ""
        if baseline == "none":
            raise pytest.UsageError(f"{source}: got {text!r} without a baseline; expected --packbench-baseline as well")
        from pytest_packbench.analysis.changes import FIGURES, ConditionError, parse_conditions

        try:
            parse_conditions(text, FIGURES)
        except ConditionError as error:
            raise pytest.UsageError(f"{source}: {error}") from None
        return text

    def _number(self, name: str, kind: Callable[[Any], NumberT], expected: str, fits: Callable[[NumberT], bool]) -> Any:
        value, source = setting_of(name, self._config.option, self._config.getini)
        if value in {"", None}:
            return None
        try:
            number = kind(value)
        except (ValueError, OverflowError):
            raise pytest.UsageError(f"{source}: got {value!r}; expected {expected}") from None
        if not math.isfinite(number) or not fits(number):
            raise pytest.UsageError(f"{source}: got {value!r}; expected {expected}")
        return number


def _guards(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if names is None or "none" not in names:
        return names
    if names != ("none",):
        raise pytest.UsageError("--packbench-guard: got none and other guards; expected none alone, or guards only")
    return ()


def being_debugged(config: pytest.Config) -> bool:
    """Whether a debugger is active: then one case runs at a time, without a time limit.

    A trace function alone is no sign of a debugger: coverage tools set one as well.
    """
    tracer_classes = type(getattr(sys.gettrace(), "__self__", None)).__mro__
    by_pdb = any(base.__module__ == "bdb" for base in tracer_classes)
    # without pytest's own debugging there are no options
    asked = any(getattr(config.option, name, False) for name in ("usepdb", "trace"))
    return asked or by_pdb or "pydevd" in sys.modules


def _refuse_removed(config: pytest.Config) -> None:
    for name, instead in REMOVED.items():
        value, source = setting_of(name, config.option, config.getini)
        if value is not None:
            raise pytest.UsageError(f"{source}: there is no such setting any more; {instead}")


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings.

    Raises:
        pytest.UsageError: a value is invalid; one line with its source and what is expected.
    """
    _refuse_removed(config)
    read = _Reader(config)
    mode = read.choice("mode")
    fixture = mode == "fixture"
    debugged = being_debugged(config)
    trials = read.integer("trials") or 1
    if fixture and trials > 1:
        raise pytest.UsageError(
            f"--packbench-trials: got {trials} in fixture mode, in which all trials are equal; "
            "use --packbench-mode=live or record"
        )
    limit = read.real("case_timeout", minimum=_SHORTEST_S, maximum=_LONGEST_S) or _CASE_TIMEOUT_S[mode]
    home = home_of(config)
    optional = _YES_NO[read.value("baseline_optional", tuple(_YES_NO))]
    baseline = _baseline(str(read.value("baseline")), home, optional=optional)
    return Settings(
        mode=mode,
        target=str(read.value("target")),
        backend=read.backend(),
        model=str(read.value("model")),
        base_url=str(read.value("base_url")),
        guards=_guards(read.names("guard")),
        debugged=debugged,
        concurrency=1 if debugged else read.integer("concurrency") or (_CONCURRENCY if mode == "live" else 1),
        trials=trials,
        caps=Caps(tokens=read.integer("max_tokens"), cost=read.real("max_cost"), seconds=read.real("max_seconds")),
        max_calls=read.integer("max_calls") or _MAX_CALLS,
        case_timeout_s=None if debugged else limit,
        call_timeout_s=read.real("call_timeout", maximum=_LONGEST_S) or _CALL_TIMEOUT_S,
        retries=read.integer("retries", minimum=0) or 0,
        temperature=read.real("temperature", minimum=0, maximum=2) or 0.0,
        max_output_tokens=read.integer("max_output_tokens") or _MAX_OUTPUT_TOKENS,
        gate=read.choice("gate"),
        gateway=read.choice("gateway"),
        shard=read.shard(),
        output=Path(os.path.normpath(home / read.value("output"))),
        baseline=baseline,
        baseline_optional=optional,
        fail_on=read.conditions(baseline),
        policy_from=read.policy_from(),
        resume=str(read.given("resume", "latest, a run id or the folder of a run")[0]),
        resume_changed=read.value("resume_changed", ("refuse", "run")),
        cache=_cache(str(read.value("cache")), home, mode),
        stale_is_error=read.value("stale", ("warn", "error")) == "error",
        record_prompts=_YES_NO[read.value("record_prompts", tuple(_YES_NO))],
        allow_processes=_YES_NO[read.value("allow_processes", tuple(_YES_NO))],
        root=rootdir_of(config),
        home=home,
        files={name: Path(os.path.normpath(home / path)) for name in TARGET_FILES if (path := read.value(name))},
        workers=int(getattr(config, "workerinput", {}).get("workercount", 1)),
        stops=(KeyboardInterrupt, pytest.exit.Exception),
    )


def settings_of_policy(config: pytest.Config) -> dict[str, Any]:
    """Return the settings that decide what fails a run, from option, environment variable or ini key, as compared."""
    values = {name: setting_of(name, config.option, config.getini)[0] for name in DEFAULT_SETTINGS}
    suites = suite_names(config.getini("packbench_suite") or ())
    path = config.inipath
    return policy_settings(values, suites, "" if path is None else os.path.relpath(path, rootdir_of(config)))


def hook_files(config: pytest.Config) -> tuple[str, ...]:
    """Return the files with the hooks that decide what is tested, for `PolicyProject`."""
    callers = (getattr(config.hook, f"pytest_packbench_{name}") for name in HOOKS)
    functions = (implementation.function for caller in callers for implementation in caller.get_hookimpls())
    codes = (getattr(inspect.unwrap(function), "__code__", None) for function in functions)
    return tuple(sorted({code.co_filename for code in codes if code is not None}))
