"""The entry point: options, ini keys, marks and fixtures. The rest is imported only where a suite is requested.

Every pytest run in an environment with this package imports this module. So it imports only the standard library and
pytest.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from pytest_packbench.engine.gateway import Serving
    from pytest_packbench.pytest_plugin.settings import Selection, SessionSuites

DEFAULT_ROOT = "storage/benchmarks"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - a Path takes 0.1 ms, in every run
# an editable installation uses the suites of the repository
_FOLDERS = (f"{_PACKAGE}/_suites", f"{os.path.dirname(_PACKAGE)}/storage/benchmarks")  # noqa: PTH120 - as above
SUITES = Path(_FOLDERS[not os.path.isdir(_FOLDERS[0])])  # noqa: PTH112 - as above
CONTEXTS: pytest.StashKey[SessionSuites] = pytest.StashKey()
SERVING: pytest.StashKey[Serving] = pytest.StashKey()
"""The gateway of this process; without it, it must not serve."""
RESULTS_ATTRIBUTE = "packbench_entries"
JOURNALED_ATTRIBUTE = "packbench_journaled"
"""The attribute of a worker's report whose results are in the worker's journal."""
SELECTION: pytest.StashKey[Selection] = pytest.StashKey()
THRESHOLDS = pytest.StashKey[tuple[int, int, int]]()
"""The thresholds of garbage collection before the plugin changed them."""
ROOT = pytest.StashKey[Path]()
LEFT_OUT = pytest.StashKey[str]()
"""The suites of the ini file that the arguments leave out, by name."""
MARK = "packbench_cases"
_CHECKS = ("policy_from", "fail_on", "baseline")
"""Options that are given to check a suite."""
SAME = "packbench_same"
"""The input of a worker of xdist with what it must have in common with the controller, as JSON."""
CONTROLLER = "packbench-controller"
"""The name of the plugin that is registered in the controller of xdist."""


class Setting:
    """A setting: an option, an environment variable and an ini key with the same name.

    A plain class, because creating a named tuple or a dataclass takes longer, in every run.

    Attributes:
        name: such as `suite`, for `--packbench-suite`, `PACKBENCH_SUITE` and `packbench_suite`.
        help: one sentence for `pytest --help`.
        default: the value if none is set.
        ini: the type of the ini key; None for what whoever starts the session selects.
        option: the arguments of argparse, given as such or as the name of the value; None if there is no option.
    """

    def __init__(
        self,
        name: str,
        text: str,
        option: dict[str, Any] | str | None = None,
        *,
        default: Any = "",
        ini: Any = "string",
    ) -> None:
        self.name = name
        self.help = text
        self.default = default
        self.ini = ini
        self.option = {"metavar": option} if isinstance(option, str) else option


def flag_of(name: str) -> str:
    """Return the option of a setting: `--packbench-fail-on` for `fail_on`."""
    return f"--packbench-{name.replace('_', '-')}"


SETTINGS = (
    Setting(
        "suite",
        "Run the suite with this name (repeat, or separate names by commas); bundled/NAME is one of this package.",
        {"action": "append", "metavar": "NAME"},
        default=(),
        ini="args",
    ),
    Setting(
        "mode",
        "How model calls are answered: fixture (default) replays recordings, offline; live calls a model; "
        "record calls a model and stores the answers as recordings.",
        {"choices": ["fixture", "live", "record"]},
        default="fixture",
    ),
    Setting(
        "target",
        "The pipeline under test: package.module:attr, http://... or cmd:...; the default is the target of the suite, "
        "or else of its pack.",
        "TARGET",
    ),
    Setting(
        "backend",
        "The provider of model calls in live and record mode: anthropic, openai, ollama, or a backend of an installed "
        "package. In any mode, stub is a scripted model of the pack. In fixture mode, recorded replays recordings even "
        "if the suite sets another.",
        "NAME",
    ),
    Setting(
        "model",
        "The name of the model; anthropic has a default, stub takes the name of a scripted model.",
        "NAME",
    ),
    Setting(
        "base_url",
        "The URL of the model's server, for servers with the protocol of a provider.",
        "URL",
    ),
    Setting(
        "guard",
        "A guard between an agent and untrusted text: a guard of the pack by name, module:attr, or none "
        "(repeat for several, in order).",
        {"action": "append", "metavar": "GUARD"},
        default=(),
        ini="args",
    ),
    Setting(
        "concurrency",
        "The number of cases that run at once; the default is 8 in live mode, 1 in record and fixture mode.",
        "N",
    ),
    Setting(
        "gateway",
        "Whether calls of a pipeline's own model client go through a server of the run on this machine, which records "
        "and replays them: auto (default: in live and record mode, and where recordings have such calls), on or off.",
        {"choices": ["auto", "on", "off"]},
        default="auto",
    ),
    Setting(
        "trials",
        "The number of trials of each case in live and record mode; the default is 1.",
        "N",
        default="1",
    ),
    Setting("max_tokens", "Start no more cases once the run has used this many tokens.", "N"),
    Setting(
        "max_cost",
        "Start no more cases once the run has cost this much, in the currency of the prices.",
        "AMOUNT",
    ),
    Setting("max_seconds", "Start no more cases once the run has taken this many seconds.", "S"),
    Setting(
        "max_calls",
        "Refuse an attempt more model calls than this; the default is 100 in live and record mode. Embeddings are not "
        "counted.",
        "N",
        default="100",
    ),
    Setting(
        "max_unreadable",
        "Start no more cases in live and record mode after this many results that are unreadable for their form, such "
        "as for a key that the pack does not know; the default is 3, and 0 never stops.",
        "N",
        default="3",
    ),
    Setting(
        "unseen",
        "What record mode does after a case that was recorded in part, because it went past the gateway: stop "
        "(default), or continue with the others.",
        {"choices": ["stop", "continue"]},
        default="stop",
    ),
    Setting(
        "case_timeout",
        "End an attempt after this many seconds; the default is 300 in live and record mode, 60 in fixture mode.",
        "S",
    ),
    Setting(
        "gate",
        "What fails the run: case (default: a case below its threshold, or a gate) or suite (only a gate).",
        {"choices": ["case", "suite"]},
        default="case",
    ),
    Setting(
        "output",
        "The folder for reports, relative to rootdir; the default is reports/benchmarks. Write --packbench-output=DIR, "
        "with =, without a space.",
        "DIR",
        default="reports/benchmarks",
    ),
    Setting(
        "baseline",
        "Compare with an earlier run: committed (baseline.json in the folder of the suite), passed (the last complete "
        "run of the same mode and target whose gates passed), latest (the last complete run), a run id, or a path "
        "(with =, without a space); the default is none.",
        "RUN",
        default="none",
    ),
    Setting(
        "baseline_optional",
        "Pass a run even if its baseline can't be found or compared; without it, such a run fails.",
        {"action": "store_const", "const": "yes"},
        default="no",
    ),
    Setting(
        "fail_on",
        "Fail if one of these conditions on the comparison with the baseline is met, such as "
        '"regressed>0, mean<-0.02" (scores go from 0 to 1).',
        "CONDITIONS",
    ),
    Setting(
        "policy_from",
        "Fail if the acceptance policy is not as strict as that of a base: a commit or branch of the git repository, a "
        "run id, or the path of a run (with =, without a space). policy_changes.yaml allows single changes.",
        "BASE",
    ),
    Setting(
        "shard",
        "Run part I of N of each suite, such as 1/3; packbench merge joins the parts and applies the gates.",
        "I/N",
        ini=None,
    ),
    Setting(
        "resume",
        "Resume a run: repeat only attempts that ended in an error or did not run. RUN is the id of a run, its folder "
        "(with =, without a space), or latest (the newest run with such attempts).",
        "RUN",
        ini=None,
    ),
    Setting(
        "cache",
        "The folder of the response cache, relative to rootdir: repeated model calls are answered from it. Off by "
        "default. Write --packbench-cache=DIR, with =, without a space.",
        "DIR",
    ),
    Setting("root", "The folder of suites, relative to rootdir.", default=DEFAULT_ROOT),
    Setting(
        "resume_changed",
        "What a resumed run does if cases, rules, target or model have changed: refuse, or run (repeat what changed).",
        default="refuse",
    ),
    Setting("secrets", "Names of further environment variables with secrets, separated by commas."),
    Setting("stale", "How a stale recording is reported: error (default) or warn (a remark).", default="error"),
    Setting(
        "record_prompts",
        "Whether recordings contain what the model was asked, in addition to its answers: yes (default) or no. Prompts "
        "may contain personal data.",
        default="yes",
    ),
    Setting("allow_processes", "Whether targets may start child processes in fixture mode: yes or no.", default="no"),
    Setting("temperature", "The sampling temperature of models, 0 to 2.", default="0"),
    Setting("max_output_tokens", "The maximum length of a model's answer in tokens.", default="4096"),
    Setting("call_timeout", "Cancel a model call after this many seconds.", default="120"),
    Setting("retries", "How often a model call is retried after a temporary failure.", default="4"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
REMOVED = {"live_page": "a live run shows its progress in the terminal, and report.html is written at its end"}
"""Settings that there are no more, each with what there is instead; who sets one gets this as a usage error."""


def __dir__() -> list[str]:
    """List only hooks and fixtures: pytest inspects each name, in every run."""
    return [name for name in globals() if name.startswith(("pytest_", "packbench_"))]


_HTML_PLUS = "pytest_html_plus"


def _has_html_plus(manager: pytest.PytestPluginManager) -> bool:
    """Return whether pytest-html-plus is in use or will be."""
    if manager.hasplugin(_HTML_PLUS):
        return True
    site = os.path.dirname(os.path.dirname(pytest.__file__))  # noqa: PTH120 - as above
    # a look at the metadata of all packages takes 1 ms
    if not os.path.isdir(f"{site}/{_HTML_PLUS}"):  # noqa: PTH112 - as above
        return False
    off = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") or "--disable-plugin-autoload" in sys.argv
    return not (off or manager.is_blocked(_HTML_PLUS))


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the options and their ini keys."""
    if _has_html_plus(pluginmanager):
        from pytest_packbench.pytest_plugin.json_report import leave_option

        leave_option(parser, pluginmanager)
    group = parser.getgroup("packbench", "benchmark cases as tests (packbench)")
    # imports no pack
    from pytest_packbench.packs import TARGET_FILES

    hidden = {"nargs": "?", "const": "", "help": argparse.SUPPRESS}
    removed = (Setting(name, f"Removed: {instead}.", hidden) for name, instead in REMOVED.items())
    for setting in (*SETTINGS, *removed, *(Setting(name, about) for name, about in TARGET_FILES.items())):
        name = f"packbench_{setting.name}"
        if setting.option is not None:
            group.addoption(flag_of(setting.name), dest=name, default=None, **{"help": setting.help, **setting.option})
        if setting.ini is not None:
            parser.addini(name, help=setting.help, type=setting.ini, default=None)
    group.addoption(
        "--packbench-list",
        dest="packbench_list",
        action="store_true",
        default=False,
        help="List the suites with their numbers of cases, and exit.",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks for users."""
    from pytest_packbench import hookspecs, import_compiled

    # for a further session of the process, whose pytest has marked the package again
    import_compiled()
    pluginmanager.add_hookspecs(hookspecs)


def setting_of(name: str, namespace: object, getini: Callable[[str], Any]) -> tuple[Any, str]:
    """Look up a setting, or a file of a pack: option, environment variable, ini, default, in this order.

    Returns:
        The value, None for a pack's file that is not set, and its source as text for an error.
    """
    option = getattr(namespace, f"packbench_{name}", None)
    if option is not None:
        return option, flag_of(name)
    variable = f"PACKBENCH_{name.upper()}"
    setting = BY_NAME.get(name)
    # engines of CI number their jobs by variables
    if os.environ.get(variable) and name != "resume":
        return os.environ[variable], f"environment variable {variable}"
    if (setting is None or setting.ini is not None) and (ini := getini(f"packbench_{name}")):
        return ini, f"ini packbench_{name}"
    return (None if setting is None else setting.default), "default"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Find the requested suites: clients that a conftest.py or a target creates at import have to find the gateway."""
    _request_suites(early_config, [])
    if SELECTION in early_config.stash:
        # of suites alone it would be wrong, and pytest can't be told otherwise before it has parsed the arguments
        namespace = early_config.known_args_namespace
        namespace.pythonwarnings = [*(namespace.pythonwarnings or ()), "ignore:No files were found in testpaths"]


def _request_suites(config: pytest.Config, collected: list[str]) -> None:
    """Find the requested suites, add their folders to what pytest collects, and start their gateway.

    A suite is requested by its name, or by an argument under the root. Arguments limit the suites of the ini file to
    what is under them, so that an editor runs only the test that was selected in it.
    """
    namespace = config.known_args_namespace
    names, source = setting_of("suite", namespace, config.getini)
    if source.startswith("--") and names and not any(name.strip(" ,") for name in names):
        raise pytest.UsageError(f"{source}: got no name; expected the name of a suite, or no such option")
    above, under = _related_to_suites(config)
    if names and source.startswith("ini") and not above and not under and command_line_paths(config):
        config.stash[LEFT_OUT] = ", ".join(names)
        return
    if names or under:
        collect_less_garbage(config)
        from pytest_packbench.pytest_plugin.settings import activate, wants_gateway

        activate(config, collected)
        if wants_gateway(config):
            from pytest_packbench.pytest_plugin.settings import serve

            serve(config)


def collect_less_garbage(config: pytest.Config) -> None:
    """Make few garbage collections, of young objects only, until cases run: modules and items live to the end."""
    thresholds = gc.get_threshold()
    if THRESHOLDS not in config.stash and thresholds[0]:
        config.stash[THRESHOLDS] = thresholds
        config.add_cleanup(partial(gc.set_threshold, *thresholds))
        gc.set_threshold(max(thresholds[0], 50_000), 1_000_000_000, 1_000_000_000)


def _related_to_suites(config: pytest.Config) -> tuple[bool, bool]:
    """Whether an argument may be above, or in, a folder of suites: the project's or the bundled one."""
    paths = [path + os.sep for path, _ in arguments_of(config)]
    if not paths:
        return False, False
    parents = tuple(f"{folder}{os.sep}" for folder in (suites_root(config, rootdir_of(config)), SUITES))
    return any(parent.startswith(tuple(paths)) for parent in parents), any(path.startswith(parents) for path in paths)


def arguments_of(config: pytest.Config) -> list[tuple[str, str]]:
    """Return the absolute path of each argument, and the name behind `::`."""
    folder = config.invocation_params.dir
    parts = [argument.partition("::") for argument in config.known_args_namespace.file_or_dir]
    return [(os.path.normpath(folder / path), name) for path, _, name in parts]


def rootdir_of(config: pytest.Config) -> Path:
    """Return rootdir as the first argument names it, or else the current folder: there pytest loads conftest.py."""
    if ROOT not in config.stash:
        paths = [*(path for path, _ in arguments_of(config)), str(config.invocation_params.dir)]
        config.stash[ROOT] = _named(config.rootpath, paths[0])
    return config.stash[ROOT]


def suites_root(config: pytest.Config, home: Path) -> Path:
    """Return the folder of the project's suites as an argument in it names it.

    Args:
        config: the session's.
        home: the folder that relative paths start from.
    """
    root = Path(os.path.normpath(home / setting_of("root", config.known_args_namespace, config.getini)[0]))
    # a session may have thousands of Python tests
    paths = (path for path, _ in arguments_of(config) if not path.endswith(".py"))
    return next((named for path in paths if (named := _named(root, path)) != root), root)


def _named(folder: Path, path: str) -> Path:
    """Return a folder as a path in it names it, where links lead to it by several names: pytest compares text."""
    path += os.sep
    if path.startswith(f"{folder}{os.sep}"):
        return folder
    real = os.path.realpath(folder)
    rest = (os.path.realpath(path) + os.sep).removeprefix(real + os.sep)
    named = path.removesuffix(rest)
    return Path(named) if named and os.path.realpath(named) == real else folder


def command_line_paths(config: pytest.Config) -> list[str]:
    """Return the paths and node ids of the command line, without those of the ini key `addopts`."""
    paths: list[str] = config.known_args_namespace.file_or_dir
    always = config.getini("addopts") if paths else []
    return [path for path in paths if path not in always or path in config.invocation_params.args]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Tell which suites of the ini file do not run."""
    if LEFT_OUT not in config.stash:
        return []
    names = config.stash[LEFT_OUT]
    return [f"packbench: not run: {names} (ini packbench_suite), because arguments name other tests"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and the session's plugins if a suite is requested."""
    config.addinivalue_line(
        "markers",
        "packbench(suite, case_type, difficulty, tag): a benchmark case, with one mark for each of its tags; "
        "select with -m \"packbench(difficulty='hard')\".",
    )
    config.addinivalue_line(
        "markers",
        f"{MARK}(suite, ..., case_type=, difficulty=, tag=): run the test on each case of the suites; it uses "
        "the fixtures packbench_case and packbench_check.",
    )
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist import Controller

        config.pluginmanager.register(Controller(config, partial(_add_marked_tests, config)), CONTROLLER)
    if SELECTION in config.stash:
        from pytest_packbench.pytest_plugin.session import register

        register(config)
    elif getattr(config, "workerinput", {}).get(SAME):
        raise pytest.UsageError("no suite is selected there; name it by --packbench-suite: variables are not sent")


def _add_marked_tests(config: pytest.Config, tests: str, reports: list[pytest.TestReport]) -> None:
    from pytest_packbench.pytest_plugin.marked import add_marked_tests

    add_marked_tests(config, tests, reports)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize marked functions with their cases."""
    if metafunc.definition.get_closest_marker(MARK) is not None:
        from pytest_packbench.pytest_plugin.marked import parametrize

        parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Refuse options that check nothing: with workers, tests with the mark packbench_cases are known only now."""
    unused = "" if hasattr(session.config, "workerinput") else _unused_option(session.config)
    if unused:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\nERROR: {unused}", red=True)


def _unused_option(config: pytest.Config) -> str:
    """Return why an option of the command line would check nothing, in one line; empty if there is none."""
    if SELECTION in config.stash:
        return ""
    words = [str(word).partition("=")[0] for word in config.invocation_params.args]
    for name in _CHECKS:
        value = getattr(config.option, f"packbench_{name}")
        flag = flag_of(name)
        if flag in words and value != "none":
            left_out = config.stash.get(LEFT_OUT, "")
            reason = f"{left_out} does not run, because arguments name other tests" if left_out else "no suite runs"
            return f"{flag}: got {value!r}, but {reason}, so that nothing would be checked; add --packbench-suite"
    return ""


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Let a marked unittest.TestCase fail in its setup: pytest does not parametrize it, so it would measure nothing."""
    for item in items:
        # the class has no public name
        if type(item).__name__ == "TestCaseFunction" and item.get_closest_marker(MARK) is not None:
            item.fixturenames.append("packbench_case")


@pytest.fixture
def packbench_case(request: pytest.FixtureRequest) -> Any:
    """The case of a test marked with packbench_cases, with its id, input, expected and notes."""
    if not hasattr(request, "param"):
        expected = f'expected a test function with the mark @pytest.mark.{MARK}("suite")'
        pytest.fail(f"packbench_case: {expected}; a unittest.TestCase can't use fixtures", pytrace=False)
    return request.param.loaded.case


@pytest.fixture
def packbench_request(packbench_case: Any, request: pytest.FixtureRequest) -> Any:
    """The verify request that a target gets for the case, with input, options and evidence."""
    return request.node.packbench_run.pack.request(packbench_case)


@pytest.fixture
def packbench_check(packbench_case: Any, request: pytest.FixtureRequest) -> Any:  # noqa: ARG001 - the case comes first
    """A function to call with the result: it scores, records, and fails the test below the threshold."""

    def check(result: object) -> Any:
        __tracebackhide__ = True
        return request.node.packbench_run.check(result)

    return check


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Add the requested suites to what pytest collects, and list the suites if requested.

    All arguments are parsed here, so that no option takes a suite's folder for its value, and the values of options of
    a conftest.py are no longer taken for paths.
    """
    requested: tuple[pytest.StashKey[Any], ...] = (SELECTION, LEFT_OUT)
    for key in requested:
        if key in config.stash:
            del config.stash[key]
    # missing with --help
    config.known_args_namespace.file_or_dir = getattr(config.option, "file_or_dir", [])
    collected = [*config.args]
    _request_suites(config, collected)
    if collected != config.args:
        config.args, config.args_source = collected, pytest.Config.ArgsSource.ARGS
    if not config.option.packbench_list:
        return None
    from pytest_packbench.pytest_plugin.settings import show_suites

    return show_suites(config)


def ungrouped(nodeid: str, known: Container[str]) -> str:
    """Return a node id without the group that xdist appends, unless it is known with it."""
    return nodeid if nodeid in known else nodeid.rpartition("@")[0] or nodeid
