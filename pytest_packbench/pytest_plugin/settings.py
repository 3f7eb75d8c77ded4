"""What a session is asked for: its settings, read and checked once, and its suites, by name or by path.

An error names the option, variable or ini key. The gateway of a session starts here, before any conftest.py or target
is imported: clients read its address at import.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import pytest

from pytest_packbench import plugin
from pytest_packbench.cases import load
from pytest_packbench.cases.finder import (
    LINES_SUFFIX,
    SUFFIXES,
    FoundSuite,
    Project,
    describe_case_counts,
    file_stem,
    find_case,
    find_controls,
    named_suites,
    needs_gateway,
    suite_names,
    unknown_suite_message,
)
from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts, shown_path
from pytest_packbench.engine.targets import make_importable
from pytest_packbench.model.errors import SuiteError, describe_error, pluralize
from pytest_packbench.model.redaction import Redactor, redact_options
from pytest_packbench.model.request import TargetError
from pytest_packbench.model.result import FIXTURE
from pytest_packbench.model.run import CAPS, MODES, RECORDED, STUB, Caps, RunOptions, SetupError, Shard
from pytest_packbench.model.suite import CONFIG_NAME, CONTROLS, FIXTURES, Suite
from pytest_packbench.packs import TARGET_FILES
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.plugin import (
    BY_NAME,
    CONTEXTS,
    LEFT_OUT,
    REMOVED,
    SELECTION,
    SERVING,
    rootdir_of,
    setting_of,
    suites_root,
)
from pytest_packbench.policy import DEFAULT_SETTINGS, HOOKS, policy_settings
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.folder import BASELINE_WORDS, NO_BASELINE, is_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.gateway import Serving
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.runs.journal import Entry
    from pytest_packbench.runs.resuming import ResumedRun


_CONCURRENCY = 8
_CASE_TIMEOUT_S = {"fixture": 60.0, "live": 300.0, "record": 300.0}
_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_WORDS: dict[str, Mapping[str, Any]] = {
    **{
        name: {word: word for word in (BY_NAME[name].option or {})["choices"]}
        for name in ("mode", "gate", "gateway", "unseen")
    },
    **dict.fromkeys(("baseline_optional", "record_prompts", "allow_processes"), _YES_NO),
    "resume_changed": {"refuse": False, "run": True},
    "stale": {"warn": False, "error": True},
}
"""What the words of a setting mean."""
_NUMBERS: dict[str, tuple[type[int | float], float, float]] = {
    **dict.fromkeys(("concurrency", "trials", "max_tokens", "max_calls", "max_output_tokens"), (int, 1, math.inf)),
    # an alarm of the operating system has no shorter time, and none of many years
    **dict.fromkeys(("case_timeout", "call_timeout"), (float, 1e-3, 1e6)),
    **dict.fromkeys(("max_cost", "max_seconds"), (float, 1e-6, math.inf)),
    "temperature": (float, 0, 2),
    **dict.fromkeys(("retries", "max_unreadable"), (int, 0, math.inf)),
}
"""The type, the minimum and the maximum of numbers."""
_NEEDED = {
    "shard": "a part such as 2/5, or no such option",
    "policy_from": "a commit, a branch, a run id or a path of a run",
    "resume": "latest, a run id or the folder of a run, or no such option",
}
"""What an option has to have for a value that may not be empty."""


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
        resume_changed: whether changed cases are run again.
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
    resume_changed: bool
    home: Path

    @property
    def prefetches(self) -> bool:
        """Whether attempts start before pytest reaches their item: live, concurrent, or limited without an alarm."""
        from pytest_packbench.engine.time_limit import TimeLimit  # settings are read where nothing runs, too

        is_limited_by_thread = self.case_timeout_s is not None and not TimeLimit.is_available()
        return self.mode != "fixture" or self.concurrency > 1 or is_limited_by_thread


class Selection(NamedTuple):
    """What the command line requests, before any suite is read.

    Attributes:
        named: suites requested by name, with the name that they have in the run.
        required: those of them that an option or the environment names, not the ini file: some of their cases must run.
        suites: all suites requested, by name or by a path in them.
        files: the files of cases among the arguments, absolute, with the names of the cases behind `::`; with none
            if the whole file is requested as well.
        contained: the arguments that another one contains.
    """

    named: tuple[str, ...]
    suites: tuple[FoundSuite, ...]
    files: Mapping[str, frozenset[str]] = MappingProxyType({})
    required: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()


def find_named(config: pytest.Config) -> tuple[Path, dict[str, FoundSuite]]:
    """Return the folder of the project's suites, which may be missing, and the suites by the names that they have."""
    root = suites_root(config, home_of(config))
    return root, named_suites(root, plugin.SUITES)


def home_of(config: pytest.Config) -> Path:
    """Return the folder that relative paths start from: rootdir, unless an argument in the installed package moved it.

    Without a configuration file pytest derives rootdir from the arguments.
    """
    is_moved = (
        config.inipath is None
        and config.known_args_namespace.rootdir is None
        and _under(plugin.arguments_of(config), plugin.SUITES)
    )
    return config.invocation_params.dir if is_moved else rootdir_of(config)


def activate(config: pytest.Config, collected: list[str]) -> None:
    """Find the requested suites, and add their folders to what pytest collects.

    A suite of which an argument selects a part is not added. Without a requested suite nothing changes. Suites of the
    ini file are added to what pytest collects anyway; with paths on the command line, only those under a path.

    Args:
        config: the session's.
        collected: the arguments of pytest, or what it collects without any.

    Raises:
        pytest.UsageError: a suite does not exist.
    """
    value, source = setting_of("suite", config.known_args_namespace, config.getini)
    names, from_ini = suite_names(value), source.startswith("ini")
    root, known = find_named(config)
    arguments, texts = plugin.arguments_of(config), config.known_args_namespace.file_or_dir
    under = _under(arguments, root, plugin.SUITES)
    if not names and not under:
        return
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--packbench-suite: {unknown_suite_message(name, known, root)}")
    selected = {suite for suite in known.values() for path, _ in under if _selects(path, suite)}
    paths = plugin.command_line_paths(config)
    if from_ini and paths:
        outside = [name for name in names if known[name] not in selected and not _is_under(known[name], paths, config)]
        names = [name for name in names if name not in outside]
        if outside:
            config.stash[LEFT_OUT] = ", ".join(outside)
        if not names and not under:
            return
    named = {known[name] for name in names}
    suites = tuple(dict.fromkeys(suite for suite in known.values() if suite in selected or suite in named))
    config.stash[SELECTION] = Selection(
        named=tuple(suite.name for suite in named),
        suites=suites,
        files=_files(under),
        required=() if from_ini else tuple(suite.name for suite in named),
        contained=tuple(
            text for text, each in zip(texts, arguments, strict=True) if _is_contained(each, arguments, under)
        ),
    )
    if not texts:
        collected[:] = [_argument(path, config) for path in collected] if from_ini else []
    # as above, pytest before 9.0 drops an argument that contains another one
    whole = [suite for suite in dict.fromkeys(known[name] for name in names) if suite not in selected]
    added = [suite for suite in whole if not _is_under(suite, collected, config)]
    collected += [_argument(str(suite.path), config) for suite in added]


def _argument(path: str, config: pytest.Config) -> str:
    """Return a path as an argument of pytest, which would take what follows `[` or `::` for the name of a test."""
    if "[" not in path and "::" not in path:
        return path
    relative = os.path.relpath(path, config.invocation_params.dir)
    return path if "[" in relative or "::" in relative else relative


def wants_gateway(config: pytest.Config) -> bool:
    """Whether calls of targets' own model clients have to be recorded or replayed; looks at a few recordings."""
    namespace = config.known_args_namespace
    # an invalid value is an error when all settings are read
    wanted, mode = (setting_of(name, namespace, config.getini)[0] for name in ("gateway", "mode"))
    if wanted == "off" or mode not in MODES or SELECTION not in config.stash or namespace.collectonly:
        return False
    folders = (suite.path / FIXTURES for suite in config.stash[SELECTION].suites)
    return mode != "fixture" or wanted == "on" or needs_gateway(folders)


def _is_under(suite: FoundSuite, paths: Iterable[str], config: pytest.Config) -> bool:
    """Whether one of the paths is a folder that contains the suite."""
    folders = tuple(os.path.normpath(config.invocation_params.dir / path) + os.sep for path in paths)
    return str(suite.path).startswith(folders)


def _selects(path: str, suite: FoundSuite) -> bool:
    return suite.contains(path) or path == str(suite.path.parent)


def _under(arguments: list[tuple[str, str]], *roots: Path) -> list[tuple[str, str]]:
    """Return the arguments under one of the roots, as `arguments_of` returns them."""
    folders = tuple(f"{root}{os.sep}" for root in roots)
    return [(path, name) for path, name in dict.fromkeys(arguments) if (path + os.sep).startswith(folders)]


def _is_contained(argument: tuple[str, str], arguments: list[tuple[str, str]], under: list[tuple[str, str]]) -> bool:
    """Whether an argument under a root of suites is in another one, as pytest 9 leaves it out."""
    path, name = argument
    return argument in under and any(
        f"{path}{os.sep}".startswith(f"{other}{os.sep}") and (name or path != other)
        for other, other_name in arguments
        if not other_name
    )


def _files(under: list[tuple[str, str]]) -> dict[str, frozenset[str]]:
    cases: dict[str, set[str]] = {}
    for path, name in under:
        if path.endswith(SUFFIXES):
            cases.setdefault(path, set()).add(name)
    return {path: frozenset() if "" in names else frozenset(names) for path, names in cases.items()}


def show_suites(config: pytest.Config) -> int:
    """Print the suites and return the exit code: 0, or 4 if the rules of a suite can't be read."""
    root, known = find_named(config)

    packs = known_packs(config)
    status = pytest.ExitCode.OK
    lines: list[str] = []
    suites = list(dict.fromkeys(known.values()))
    for bundled in (False, True):
        listed = [suite for suite in suites if suite.bundled is bundled]
        if not listed and (bundled or not root.is_dir()):
            continue
        heading = "bundled suites" if bundled else f"suites under {os.path.relpath(root)}"
        lines.append(f"{heading}: {len(listed) or 'none'}")
        for found in listed:
            try:
                config_of = read_suite(config, found, packs).config
                description = f"pack {config_of.pack}: {config_of.description}"
            except pytest.UsageError as error:
                description, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
            controls = len(find_controls(found.path / FIXTURES / CONTROLS))
            counted = f"; {pluralize(controls, 'control')}" if controls else ""
            lines.append(f"  {found.name}: {describe_case_counts(found.path / 'cases')}{counted}; {description}")
    sys.stdout.write("\n".join(lines or [f"suites under {os.path.relpath(root)}: none"]) + "\n")
    return int(status)


def _given(config: pytest.Config, name: str) -> tuple[Any, str]:
    """Return a setting with its source."""
    value, source = setting_of(name, config.option, config.getini)
    if not value and source.startswith("--") and name in _NEEDED:
        # as of an unset variable
        raise pytest.UsageError(f"{source}: got no value; expected {_NEEDED[name]}")
    return value, source


def _plain(config: pytest.Config, name: str) -> Any:
    """Return a setting: a word, a number, None where that is not set, or else a text."""
    value, source = _given(config, name)
    words = _WORDS.get(name)
    if words is not None:
        _check_word(value, source, words)
        return words[value]
    if name not in _NUMBERS:
        return str(value)
    # an option without a value is not set
    return _number(value or BY_NAME[name].default, source, *_NUMBERS[name])


def _check_word(value: Any, source: str, words: Iterable[str]) -> None:
    if value not in words:
        raise pytest.UsageError(f"{source}: got {value!r}; expected one of {', '.join(words)}")


def _number(value: str, source: str, kind: type[int | float], minimum: float, maximum: float) -> int | float | None:
    """Return a number within its limits; None if it is not set."""
    if not value:
        return None
    # a number that is none is outside as well
    with suppress(ValueError, OverflowError):
        if math.isfinite(number := kind(value)) and minimum <= number <= maximum:
            return number
    most = "" if maximum == math.inf else f", at most {maximum:.0f}"
    noun = "a whole number" if kind is int else "a number"
    raise pytest.UsageError(f"{source}: got {value!r}; expected {noun}, {minimum:g} or more{most}")


def _check_backend(config: pytest.Config, name: str) -> None:
    if name in {"", STUB, RECORDED}:
        return
    from pytest_packbench.backends import backend_names, is_backend

    # those of installed distributions are looked for only where no other has the name
    if not is_backend(name):
        _check_word(*_given(config, "backend"), (*backend_names(), STUB, RECORDED))


def _guards(config: pytest.Config) -> tuple[str, ...] | None:
    """Return the names of guards; None where nothing is set."""
    names = tuple(suite_names(_given(config, "guard")[0])) or None
    if names is None or "none" not in names:
        return names
    if names != ("none",):
        raise pytest.UsageError("--packbench-guard: got none and other guards; expected none alone, or guards only")
    return ()


def _shard(config: pytest.Config) -> Shard | None:
    value, source = _given(config, "shard")
    if not value:
        return None
    if SELECTION in config.stash and config.stash[SELECTION].files:
        raise pytest.UsageError(f"{source}: got {value!r} and the path of a case; expected one of them")
    try:
        return Shard.parse(str(value))
    except ValueError as error:
        raise pytest.UsageError(f"{source}: {error}") from None


def _baseline(name: str, home: Path, *, optional: bool) -> str:
    """Return what to compare with: a word, the id of a run, or a path."""
    if name in BASELINE_WORDS or is_run_id(name):
        return name
    path = _path(name, home)
    if not path.exists() and not optional:
        expected = f"{', '.join(BASELINE_WORDS)}, the id of a run or a path"
        raise pytest.UsageError(f"--packbench-baseline: no run at {path}; expected {expected}")
    return str(path)


def _check_conditions(config: pytest.Config, baseline: str) -> None:
    """Check the conditions on the comparison with a baseline."""
    text, source = _given(config, "fail_on")
    if not text:
        return
    if baseline == NO_BASELINE:
        raise pytest.UsageError(f"{source}: got {text!r} without a baseline; expected --packbench-baseline as well")
    from pytest_packbench.analysis.changes import FIGURES, ConditionError, parse_conditions

    try:
        parse_conditions(text, FIGURES)
    except ConditionError as error:
        raise pytest.UsageError(f"{source}: {error}") from None


def _cache(name: str, home: Path, mode: str) -> Path | None:
    """Return the folder of the response cache; None where nothing is set, and in fixture mode."""
    if not name or mode == FIXTURE:
        return None
    path = _path(name, home)
    if path.exists() and not path.is_dir():
        raise pytest.UsageError(f"--packbench-cache: {path} is not a folder; expected a folder, or a new name")
    return path


def _path(name: str, home: Path) -> Path:
    """Return a path that may be relative to a folder as an absolute one."""
    return Path(os.path.normpath(home / name))


def being_debugged(config: pytest.Config) -> bool:
    """Whether a debugger is active: then one case runs at a time, without a time limit.

    A trace function alone is no sign of a debugger: coverage tools set one as well.
    """
    tracer_classes = type(getattr(sys.gettrace(), "__self__", None)).__mro__
    by_pdb = any(base.__module__ == "bdb" for base in tracer_classes)
    # without pytest's own debugging there are no options
    asked = any(getattr(config.option, name, False) for name in ("usepdb", "trace"))
    return asked or by_pdb or "pydevd" in sys.modules


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings.

    Raises:
        pytest.UsageError: a value is invalid; one line with its source and what is expected.
    """
    for name, instead in REMOVED.items():
        value, source = setting_of(name, config.option, config.getini)
        if value is not None:
            raise pytest.UsageError(f"{source}: there is no such setting any more; {instead}")
    # a field with the name of a setting has its value
    given = {each.name: _plain(config, each.name) for each in fields(Settings) if each.name in BY_NAME}
    home, mode, debugged = home_of(config), given["mode"], being_debugged(config)
    if mode == FIXTURE and given["trials"] > 1:
        raise pytest.UsageError(
            f"--packbench-trials: got {given['trials']} in fixture mode, in which all trials are equal; "
            "use --packbench-mode=live or record"
        )
    limit_s = _plain(config, "case_timeout") or _CASE_TIMEOUT_S[mode]
    baseline = _baseline(given["baseline"], home, optional=given["baseline_optional"])
    _check_backend(config, given["backend"])
    _check_conditions(config, baseline)
    return Settings(
        **given
        | {
            "guards": _guards(config),
            "debugged": debugged,
            "concurrency": 1 if debugged else given["concurrency"] or (_CONCURRENCY if mode == "live" else 1),
            "caps": Caps(*(_plain(config, name) for name in CAPS)),
            "case_timeout_s": None if debugged else limit_s,
            "call_timeout_s": _plain(config, "call_timeout"),
            "shard": _shard(config),
            "output": _path(given["output"], home),
            "baseline": baseline,
            "cache": _cache(given["cache"], home, mode),
            "stale_is_error": _plain(config, "stale"),
            "root": rootdir_of(config),
            "home": home,
            "files": {
                name: _path(path, home)
                for name in TARGET_FILES
                if (path := setting_of(name, config.option, config.getini)[0])
            },
            "workers": int(getattr(config, "workerinput", {}).get("workercount", 1)),
            "stops": (KeyboardInterrupt, pytest.exit.Exception),
        }
    )


def project_of(config: pytest.Config) -> Project:
    """Return the project, without packs: with the settings that decide what fails a run, as they are compared.

    They come from option, environment variable or ini key.
    """
    values = {name: setting_of(name, config.option, config.getini)[0] for name in DEFAULT_SETTINGS}
    suites, path = suite_names(config.getini("packbench_suite") or ()), config.inipath
    settings = policy_settings(values, suites, "" if path is None else os.path.relpath(path, rootdir_of(config)))
    callers = (getattr(config.hook, f"pytest_packbench_{name}") for name in HOOKS)
    functions = (implementation.function for caller in callers for implementation in caller.get_hookimpls())
    codes = (getattr(inspect.unwrap(function), "__code__", None) for function in functions)
    hooks = tuple(sorted({code.co_filename for code in codes if code is not None}))
    return Project(home_of(config), find_named(config)[0], settings=settings, hooks=hooks)


def check_cases_exist(selection: Selection) -> None:
    """Check that the cases and controls that the command line names exist.

    Raises:
        pytest.UsageError: one of them does not.
    """
    for path, names in selection.files.items():
        file = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - it is text already
            raise pytest.UsageError(f"file not found: {file}")
        # a stray file is named after itself
        of_file = {file_stem(path), os.path.basename(path)}  # noqa: PTH119 - likewise
        for name in sorted(names):
            if find_case(path, name) is None if path.endswith(LINES_SUFFIX) else name not in of_file:
                raise pytest.UsageError(f"not found: {file}::{name}: nothing in the file has this id")


REFUSED = "packbench_refused"
"""Where a worker of xdist leaves a usage error for the controller."""
_PACKS_HOOK = b"pytest_packbench_packs"


def refuse(config: pytest.Config, message: str) -> NoReturn:
    """End the session with a usage error after collection, also from a worker of xdist.

    Raises:
        pytest.UsageError: in the main process.
        pytest.exit.Exception: in a worker; only the controller can show an error.
    """
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is None:
        raise pytest.UsageError(message)
    output[REFUSED] = message
    pytest.exit(message, returncode=int(pytest.ExitCode.USAGE_ERROR))


@contextmanager
def usage_errors(redactor: Redactor | None = None) -> Iterator[None]:
    """Turn errors of the set-up into usage errors, which pytest shows in one line, without the secrets of the run."""
    try:
        yield
    except (SetupError, SuiteError, PackError) as error:
        text = str(error)
        raise pytest.UsageError(text if redactor is None else redactor.text(text)) from error.__cause__


def packs_of_hooks(config: pytest.Config) -> list[Pack]:
    """Return the packs of the hooks `pytest_packbench_packs`: of one name the last comes from the hook that wins.

    Raises:
        pytest.UsageError: a hook raised, or returned something that is no pack.
    """
    try:
        packs = [pack for packs in reversed(config.hook.pytest_packbench_packs()) for pack in packs]
        Packs(packs)
    except Exception as error:
        raise pytest.UsageError(f"a hook pytest_packbench_packs failed: {describe_error(error)}") from error
    return packs


def known_packs(config: pytest.Config) -> Packs:
    """Return all packs by name: those of `pytest_packbench_packs`, else the built-in ones, else the installed ones.

    Raises:
        pytest.UsageError: a hook raised, or returned something that is no pack.
    """
    return Packs(packs_of_hooks(config))


def read_suite(config: pytest.Config, found: FoundSuite, packs: Packs) -> Suite:
    """Read a suite's rules.

    Raises:
        pytest.UsageError: its `suite.yaml` can't be used, or a conftest.py with a pack was not loaded.
    """
    _check_conftests(config, found)
    make_importable(rootdir_of(config))
    source = shown_path(found.path / CONFIG_NAME, rootdir_of(config))
    with usage_errors():
        return load.read_suite(found.path, packs.suite_models, source=source, name=found.name, bundled=found.bundled)


def _check_conftests(config: pytest.Config, found: FoundSuite) -> None:
    """Refuse a suite with a hook for packs above it that pytest has not loaded: another pack of the name would run.

    pytest loads each conftest.py above the paths that it is given, or above the current folder without any, and others
    only while it collects, when the packs are known already.
    """
    root = rootdir_of(config)
    if found.bundled or config.getoption("noconftest", default=False) or not found.path.is_relative_to(root):
        return
    loaded = {getattr(plugin, "__file__", None) for plugin in config.pluginmanager.get_plugins()}
    for folder in (found.path, *found.path.parents):
        file = folder / "conftest.py"
        is_loaded = str(file) in loaded or not file.is_file() or str(file.resolve()) in loaded
        if not is_loaded and _PACKS_HOOK in file.read_bytes():
            name = printable(shown_path(file, root))
            raise pytest.UsageError(
                f"{name}: its hook {_PACKS_HOOK.decode()} was not called, because pytest had not loaded this file when "
                f"it read the suite {found.name}; move the hook to the conftest.py of {root}, and run pytest there"
            )
        if folder == root:
            return


class SessionSuites(SuiteContexts):
    """The suites of a session with the contexts that run their cases, and the hooks of its user.

    Attributes:
        config: the session's.
        settings: its settings.
        collected: the number of cases by suite, before any is deselected.
        spent: what earlier sessions of its run and its workers have spent.
        started_ns: when it was started, nanoseconds since 1970.
        run_id: the id of its run.
        resumed: the run that it resumes; None for a new one.
        prefetcher: starts attempts before pytest reaches their items; None where none does.
        journal: stores an ended attempt, on any thread, or a result at once, before pytest reports its item; returns
            whether it is on the disk.
    """

    packs: Packs
    run_id: str = ""
    resumed: ResumedRun | None = None
    prefetcher: Prefetcher | None = None
    journal: Callable[[Entry], bool]

    def __init__(self, config: pytest.Config, settings: Settings, packs: Packs) -> None:
        # other plugins may have options with keys
        secrets = redact_options([str(word) for word in config.invocation_params.args])[1]
        serving = config.stash.get(SERVING, None)
        late = None if settings.gateway == "off" or settings.mode != "fixture" else partial(serve, config)
        names = setting_of("secrets", config.option, config.getini)[0]
        super().__init__(settings, packs, secrets, secret_names=names, serving=serving, serve_late=late)
        self.config = config
        self.settings = settings
        self.collected = Counter[str]()
        self.spent: list[dict[str, Any]] = []
        self.started_ns = time.time_ns()

    def hooked_target(self, suite: Suite) -> object:
        """Return what `pytest_packbench_target` does."""
        try:
            return self.config.hook.pytest_packbench_target(config=self.config, suite=suite)
        except Exception as error:
            raise TargetError(f"the hook pytest_packbench_target raised {describe_error(error)}") from error

    def hooked_guards(self, suite: Suite) -> list[Any]:
        """Return what all hooks `pytest_packbench_guards` do."""
        results = self.config.hook.pytest_packbench_guards(config=self.config, suite=suite)
        return [guard for guards in results for guard in guards]

    def hooked_judges(self) -> dict[str, Any]:
        """Return what all hooks `pytest_packbench_judges` do; the first of a name wins."""
        results = reversed(self.config.hook.pytest_packbench_judges(config=self.config))
        return {name: judge for judges in results for name, judge in judges.items()}

    def open(self, suite: Suite) -> SuiteContext:
        """Return a suite's context; the errors of `SuiteContexts.open` become usage errors."""
        with usage_errors(self.redactor):
            return super().open(suite)

    def close(self) -> None:
        """End what is in flight, and the tasks that cases left on the event loop of a target."""
        if self.prefetcher is not None:
            self.prefetcher.close()
        super().close()

    @property
    def output(self) -> Path:
        """The folder of reports: that of the resumed run, or else as set."""
        return self.settings.output if self.resumed is None else self.resumed.base

    def join(self, found: FoundSuite) -> Suite:
        """Return a suite, and read it if it is new in the session.

        Raises:
            pytest.UsageError: the suite can't be used.
        """
        if found.name not in self.suites:
            suite = read_suite(self.config, found, self.packs)
            with usage_errors():
                self.add(suite)
        return self.suites[found.name]

    def stop_unstored(self, problem: str) -> None:
        """Let a run that asks models start no more attempts, because of a problem with storing their answers."""
        if self.settings.mode != "fixture":
            from pytest_packbench.engine.live_models import UNWRITABLE  # fixture mode does not count

            self.clients.ledger.stop(UNWRITABLE, f"{problem}; answers would be lost")

    def count_unreadable(self, attempt: AttemptState | None) -> None:
        """Count the result of an attempt in a run that asks models, once, if it is unreadable for its form."""
        unread = None if attempt is None or attempt.failure is not None or attempt.counted else attempt.unread
        if self.settings.mode != FIXTURE and attempt is not None and unread is not None and unread.by_form:
            attempt.counted = True
            # what the target has returned may contain secrets
            reason = self.redactor.text(unread.reason, attempt.secrets)
            self.clients.ledger.add_unreadable(reason, self.settings.max_unreadable)

    def unused_rules(self, suite: Suite, cases: Sequence[LoadedCase | None]) -> list[str]:
        """Return the rules of a suite that none of its cases uses, with its file; none if a case can't be read."""
        file = shown_path(suite.path / CONFIG_NAME, rootdir_of(self.config))
        expected = [loaded.case.expected for loaded in cases if loaded is not None]
        is_known = bool(cases) and len(expected) == len(cases)
        unused = suite.config.unused_rules(expected) if is_known else ()
        return [f"{file}: {rule}" for rule in unused]


def open_suites(config: pytest.Config, settings: Settings, found: Iterable[FoundSuite]) -> SessionSuites:
    """Read the requested suites, and open the backends that they need.

    Raises:
        pytest.UsageError: a suite, or an option of the command line, can't be used.
    """
    packs = known_packs(config)
    suites = [read_suite(config, each, packs) for each in found]
    contexts = SessionSuites(config, settings, packs)
    with usage_errors(contexts.redactor):
        for suite in suites:
            contexts.prepare(suite)
    return contexts


def serve(config: pytest.Config) -> Serving:
    """Start the gateway, once, and stop it at the end of the session.

    Raises:
        pytest.UsageError: variables of one provider lead to different addresses.
    """
    if SERVING not in config.stash:
        mode = setting_of("mode", config.known_args_namespace, config.getini)[0]
        # a controller imports targets too, which must find a key and no network
        from pytest_packbench.engine.gateway import Serving

        here, suites = mode == "fixture" or not _is_controller(config), config.stash[SELECTION].suites
        config.stash[SERVING] = serving = Serving(mode, here=here, folders=[suite.path for suite in suites])
        config.add_cleanup(serving.stop)
        try:
            serving.start()
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(OtherTests(serving), "packbench-other-tests")
    return config.stash[SERVING]


class OtherTests:
    """Runs tests that are no cases of files with the variables as the user has set them."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Restore the variables for another test, unless cases may run at the same time."""
        from pytest_packbench.pytest_plugin.case_run import file_run

        # a marked test calls its model itself, without the gateway
        contexts = item.config.stash.get(CONTEXTS, None)
        if (contexts is not None and contexts.prefetcher is not None) or file_run(item) is not None:
            return (yield)
        with self._serving.restored():
            return (yield)


def _is_controller(config: pytest.Config) -> bool:
    """Whether the session is that of the controller of xdist, which runs no case: each of its workers has a gateway."""
    # without xdist there are no such options
    options = vars(config.known_args_namespace)
    if options.get("numprocesses") == 0:
        return False
    distributes = options.get("numprocesses") or options.get("distload") or options.get("dist", "no") != "no"
    # xdist sets the variable in workers before it reads their options, which are those of the controller
    return bool(distributes) and not options.get("usepdb") and "PYTEST_XDIST_WORKER" not in os.environ
