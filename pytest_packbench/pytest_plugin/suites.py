"""The session's suites: passes settings and hooks to the engine, and turns its errors into usage errors.

It also starts the gateway of a session, before any conftest.py or target is imported: clients read its address at
import.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench.cases import load
from pytest_packbench.engine.contexts import SuiteContexts, shown_path
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.targets import make_importable
from pytest_packbench.model.errors import SuiteError, describe_error
from pytest_packbench.model.redaction import redact_options
from pytest_packbench.model.run import SetupError
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.plugin import CONTEXTS, SERVING, rootdir_of, setting_of
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.cases.suites import FoundSuite
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.serving import Serving
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.settings import Settings
    from pytest_packbench.runs.journal import Entry
    from pytest_packbench.runs.resume import ResumedRun


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
        keep: stores an ended attempt, on any thread, or a result at once, before pytest reports its item; returns
            whether it is on the disk.
    """

    packs: Packs
    run_id: str = ""
    resumed: ResumedRun | None = None
    prefetcher: Prefetcher | None = None
    keep: Callable[[Entry], bool]

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

    def kept(self, suite: Suite, case_id: str, sha256: str | None) -> Mapping[int, Entry]:
        """Return what the resumed run has of a case with this hash by trial: results, and attempts not scored yet."""
        return {} if self.resumed is None else self.resumed.kept(suite, case_id, sha256)

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
            from pytest_packbench.engine.metering import UNWRITABLE  # fixture mode does not count

            self.clients.ledger.stop(UNWRITABLE, f"{problem}; answers would be lost")

    def unused_rules(self, suite: Suite, cases: Sequence[LoadedCase | None]) -> list[str]:
        """Return the rules of a suite that none of its cases uses, with its file; none if a case can't be read."""
        file = shown_path(suite.path / CONFIG_NAME, rootdir_of(self.config))
        expected = [loaded.case.expected for loaded in cases if loaded is not None]
        is_known = bool(cases) and len(expected) == len(cases)
        unused = self.pack_of(suite).unused_rules(expected, suite.config) if is_known else ()
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
        from pytest_packbench.engine.serving import Serving

        config.stash[SERVING] = serving = Serving(mode, here=mode == "fixture" or not _is_controller(config))
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
