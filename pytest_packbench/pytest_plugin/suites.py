"""The session's suites: passes settings and hooks to the engine, and turns its errors into usage errors."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench import __version__
from pytest_packbench.cases import load
from pytest_packbench.engine.contexts import SuiteContexts, UserHooks, shown_path
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.targets import make_importable
from pytest_packbench.model.errors import SuiteError, describe_error
from pytest_packbench.model.redaction import redact_options
from pytest_packbench.model.run import SetupError
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.plugin import RESUMED, SELECTION, SERVING, rootdir_of, setting_of
from pytest_packbench.reports.terminal import expected_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.cases.suites import FoundSuite
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.result_builder import CaseRef
    from pytest_packbench.engine.serving import Serving
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.settings import Settings


_PACKS_HOOK = b"pytest_packbench_packs"
REFUSED = "packbench_refused"
"""Where a worker of xdist leaves a usage error for the controller."""


_MAX_NAMED = 5
# of the process that reports, or of one machine
_OWN_SETTINGS = frozenset(
    {"baseline", "baseline_optional", "cache", "concurrency", "debugged", "fail_on", "files", "home", "output"}
    | {"policy_from", "resume", "resume_changed", "root", "stops", "workers"}
)
CONTROLLERS, WORKERS = "on this machine", "on the worker's"
"""Where a process is, in messages that the controller shows."""
NOT_SENT = "workers elsewhere do not get the environment of this machine"
# files of a suite that only the process that reports reads
_OWN_FILES = frozenset({"baseline.json", "policy_changes.yaml"})
# what xdist copies to other machines
_COPIED = frozenset({"pytest", "_pytest"})
# what an installed package lacks, and what it has instead of the suites
_NOT_INSTALLED = frozenset({"starter", "_suites"})


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
    """The suites of a session with the contexts that run their cases."""

    def __init__(self, config: pytest.Config, settings: Settings, packs: Packs) -> None:
        # other plugins may have options with keys
        secrets = redact_options([str(word) for word in config.invocation_params.args])[1]
        serving = config.stash.get(SERVING, None)
        late = None if settings.gateway == "off" or settings.mode != "fixture" else partial(_serve_late, config)
        names = setting_of("secrets", config.option, config.getini)[0]
        super().__init__(
            settings, packs, _hooks_of(config), secrets, secret_names=names, serving=serving, serve_late=late
        )
        self.config = config
        self.settings = settings
        self._packs_by_name = packs

    def open(self, suite: Suite) -> SuiteContext:
        """Return a suite's context; the errors of `SuiteContexts.open` become usage errors."""
        with usage_errors(self.redactor):
            return super().open(suite)

    def join(self, found: FoundSuite) -> Suite:
        """Return a suite, and read it if it is new in the session.

        Raises:
            pytest.UsageError: the suite can't be used.
        """
        if found.name not in self.suites:
            suite = read_suite(self.config, found, self._packs_by_name)
            with usage_errors():
                self.add(suite)
        return self.suites[found.name]

    def expected_text(self, case_refs: Iterable[CaseRef]) -> str:
        """Describe how many model calls these cases are expected to make, without those of a resumed run."""
        resumed = self.config.stash.get(RESUMED, None)
        expected = self.expected_calls(
            case_refs,
            lambda case_ref: len(resumed.kept(case_ref.suite, case_ref.case_id)) if resumed is not None else 0,
        )
        return expected_text(expected, self.settings.mode)


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


def _serve_late(config: pytest.Config) -> Serving:
    from pytest_packbench.pytest_plugin.gateway import serve

    return serve(config)


def _hooks_of(config: pytest.Config) -> UserHooks:
    def target(suite: Suite) -> object:
        try:
            return config.hook.pytest_packbench_target(config=config, suite=suite)
        except Exception as error:
            raise TargetError(f"the hook pytest_packbench_target raised {describe_error(error)}") from error

    def guards(suite: Suite) -> list[Any]:
        results = config.hook.pytest_packbench_guards(config=config, suite=suite)
        return [guard for guards in results for guard in guards]

    def judges() -> dict[str, Any]:
        # the first of a name wins
        results = reversed(config.hook.pytest_packbench_judges(config=config))
        return {name: judge for judges in results for name, judge in judges.items()}

    return UserHooks(target=target, guards=guards, judges=judges)


def common_ground(contexts: SessionSuites, *, known: Iterable[str] = ()) -> dict[str, Any]:
    """Return what all processes of a run must have in common, as plain JSON.

    Args:
        contexts: the suites of the session.
        known: the names of suites that were compared already.
    """
    names = contexts.suites.keys() - set(known)
    root = rootdir_of(contexts.config)
    return {
        "package": _package(),
        "settings": _settings(contexts.settings),
        "selected": sorted(suite.name for suite in _selected(contexts)),
        "suites": {name: _suite(contexts, contexts.suites[name]) for name in sorted(names)},
        "modules": {name: _digest(root / name) for name in _project_modules(contexts)},
    }


def differences(theirs: Mapping[str, Any], contexts: SessionSuites, *, there: str, here: str) -> list[str]:
    """Return what another process of the run does not have in common with this one, one phrase each.

    Args:
        theirs: what the other process returned from `common_ground`.
        contexts: the suites of this one.
        there: where the other process is, in the words of the message.
        here: where this one is.
    """
    if theirs["package"] != _package():
        version = theirs["package"][0]
        if version != __version__:
            return [f"pytest-packbench is {version} {there}, {__version__} {here}; install the same version"]
        return [f"the code of pytest-packbench {version} is not the same; install the same one"]
    found = []
    own = _settings(contexts.settings)
    for name in sorted(theirs["settings"].keys() | own.keys()):
        values = [settings.get(name, "not known") for settings in (theirs["settings"], own)]
        if values[0] != values[1]:
            found.append(f"{name} is {values[0] or 'not set'} {there}, {values[1] or 'not set'} {here}")
    if found:
        found[-1] += f"; use options or the ini file, because {NOT_SENT}"
    selected = sorted(suite.name for suite in _selected(contexts))
    if theirs["selected"] != selected:
        found.append(f"the suites are {', '.join(theirs['selected'])} {there}, {', '.join(selected)} {here}")
    for name, suite in theirs["suites"].items():
        if name in contexts.suites:
            found += _suite_differences(name, suite, _suite(contexts, contexts.suites[name]), (there, here))
    root = rootdir_of(contexts.config)
    files = [name for name, digest in theirs["modules"].items() if _digest(root / name) != digest]
    return [*found, *_listed(files, "")]


def _suite_differences(
    name: str, theirs: Mapping[str, Any], own: Mapping[str, Any], places: tuple[str, str]
) -> Iterator[str]:
    if theirs["path"] != own["path"]:
        hint = ""
        if own["bundled"]:
            hint = "; a bundled suite runs on other machines as a copy: packbench init --from NAME, and commit it"
        yield f"suite {name} is {theirs['path']} {places[0]}, {own['path']} {places[1]}{hint}"
        return
    if theirs["pack"] != own["pack"]:
        yield f"the pack of suite {name} is {theirs['pack']} {places[0]}, {own['pack']} {places[1]}"
    files = sorted(
        file
        for file in theirs["files"].keys() | own["files"].keys()
        if theirs["files"].get(file) != own["files"].get(file)
    )
    yield from _listed(files, f"suite {name}: ")


def _listed(files: list[str], start: str) -> Iterator[str]:
    if files:
        more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
        verb = "differs or is missing" if len(files) == 1 else "differ or are missing"
        yield f"{start}{', '.join(files[:_MAX_NAMED])}{more} {verb}; check out the same commit on both machines"


@cache
def _package() -> list[str]:
    """Return the version of this package, and a hash of its code."""
    folder = Path(__file__).parents[1]
    code = sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if _NOT_INSTALLED.isdisjoint(name.parts):
            code.update(f"{name.as_posix()} {_digest(path)}\n".encode())
    return [__version__, code.hexdigest()]


def _settings(settings: Settings) -> dict[str, str]:
    """Return the settings that decide what a case is asked and how it is judged, as text."""
    values = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in _OWN_SETTINGS}
    texts = {name: "" if value is None else str(value) for name, value in values.items()}
    files = {name: shown_path(path, settings.home) for name, path in settings.files.items()}
    return texts | {name: f"{path} {_digest(settings.home / path)}".strip() for name, path in files.items()}


def _selected(contexts: SessionSuites) -> Iterable[Any]:
    selection = contexts.config.stash.get(SELECTION, None)
    return () if selection is None else selection.suites


def _suite(contexts: SessionSuites, suite: Suite) -> dict[str, Any]:
    pack = contexts.pack_of(suite)
    files: dict[str, str] = {}
    for path in suite.path.rglob("*"):
        name = path.relative_to(suite.path)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if not hidden and path.suffix != ".md" and name.as_posix() not in _OWN_FILES:
            digest = _digest(path)
            files |= {name.as_posix(): digest} if digest else {}
    folder = shown_path(suite.path, rootdir_of(contexts.config))
    return {"path": folder, "bundled": suite.bundled, "pack": f"{pack.name} {pack.version}", "files": files}


def _project_modules(contexts: SessionSuites) -> list[str]:
    """Return the project's Python files that this process has imported, relative to rootdir."""
    root = rootdir_of(contexts.config)
    loaded = [*sys.modules.values(), *contexts.config.pluginmanager.get_plugins()]
    files = {str(file) for module in loaded if (file := getattr(module, "__file__", None))}
    names = set()
    for file in files:
        path = Path(file)
        if path.suffix == ".py" and path.is_relative_to(root) and not path.is_relative_to(sys.prefix):
            name = path.relative_to(root)
            if name.parts[0] not in _COPIED and "site-packages" not in name.parts:
                names.add(name.as_posix())
    return sorted(names)


def _digest(path: Path) -> str:
    """Return a hash of a file; empty where there is none, or it can't be read."""
    try:
        return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    except OSError:
        return ""
