"""The entry point: options, activation, registration. Everything else waits until a suite is asked for.

This module is imported by every pytest run in an environment where the package is installed: it
imports the standard library and pytest only.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.pytest_plugin.selection import Asked

DEFAULT_ROOT = "storage/benchmarks"
SUITES = Path(__file__).resolve().with_name("_suites")
ASKED: pytest.StashKey[Asked] = pytest.StashKey()
MARK = "packbench_cases"


class Setting:
    """One setting: an option, an environment variable and an ini key of one name.

    Written by hand, because a named tuple or a dataclass is made anew in every run, which takes longer.

    Attributes:
        name: `suite` stands for `--packbench-suite`, `PACKBENCH_SUITE` and `packbench_suite`.
        help: one sentence for `pytest --help`.
        default: the value where nobody says anything.
        ini: the ini key's type.
        option: what argparse is told; None where there is no option.
    """

    def __init__(
        self, name: str, text: str, option: dict[str, Any] | None = None, *, default: Any = "", ini: Any = "string"
    ) -> None:
        self.name = name
        self.help = text
        self.default = default
        self.ini = ini
        self.option = option


SETTINGS = (
    Setting(
        "suite",
        "Run the suite of this name (repeat it, or separate names by commas).",
        {"action": "append", "metavar": "NAME"},
        default=(),
        ini="args",
    ),
    Setting(
        "mode",
        "How model calls are answered: fixture (the default) replays recordings, offline; live asks a model; "
        "record asks a model and keeps the answers.",
        {"choices": ["fixture", "live", "record"]},
        default="fixture",
    ),
    Setting(
        "target",
        "The pipeline under test: package.module:attr, http://... or cmd:...; the default is the suite's own, "
        "else its pack's.",
        {"metavar": "TARGET"},
    ),
    Setting(
        "backend",
        "Who answers model calls in live and record mode: anthropic, openai or ollama; in any mode stub, a scripted "
        "model of the pack's; in fixture mode recorded, where the suite names another.",
        {"metavar": "NAME"},
    ),
    Setting(
        "model",
        "The model's name; anthropic has a default, stub takes a scripted model of the pack's.",
        {"metavar": "NAME"},
    ),
    Setting(
        "base_url",
        "The address of the model's server, for servers that speak a provider's protocol.",
        {"metavar": "URL"},
    ),
    Setting(
        "guard",
        "What stands between an agent and untrusted text: a guard of the pack's by name, module:attr, or none "
        "(repeat it for several, in order).",
        {"action": "append", "metavar": "GUARD"},
        default=(),
        ini="args",
    ),
    Setting(
        "concurrency",
        "How many cases run at once; the default is 8 in live and record mode, 1 in fixture mode.",
        {"metavar": "N"},
    ),
    Setting(
        "trials",
        "How often each case is tried, in live and record mode; the default is 1.",
        {"metavar": "N"},
        default="1",
    ),
    Setting("max_tokens", "Begin no case once the run has used so many tokens.", {"metavar": "N"}),
    Setting(
        "max_cost", "Begin no case once the run has cost so much, in the currency of the prices.", {"metavar": "AMOUNT"}
    ),
    Setting("max_seconds", "Begin no case once the run has taken so many seconds.", {"metavar": "S"}),
    Setting(
        "case_timeout",
        "Give up on an attempt after so many seconds; the default is 300 in live and record mode, none in fixture "
        "mode.",
        {"metavar": "S"},
    ),
    Setting(
        "gate",
        "What fails the run: case (the default: any case under its threshold, and the gates) or suite (gates alone).",
        {"choices": ["case", "suite"]},
        default="case",
    ),
    Setting(
        "output",
        "The folder for reports, from rootdir; the default is reports/benchmarks. Write it with =.",
        {"metavar": "DIR"},
        default="reports/benchmarks",
    ),
    Setting(
        "baseline",
        "Compare with an earlier run: latest, or the path of a run's folder (write it with =); the default is none.",
        {"metavar": "RUN"},
        default="none",
    ),
    Setting(
        "shard",
        "Run one of N parts of each suite: I/N, such as 1/3; packbench merge joins and judges them.",
        {"metavar": "I/N"},
    ),
    Setting(
        "resume",
        "Go on with a run: make only the attempts that are missing, broke or were not begun. RUN is a run's id, "
        "latest (the newest run that has some), or its folder (write a path with =).",
        {"metavar": "RUN"},
    ),
    Setting(
        "cache",
        "Answer a model call that was made before from this folder, from rootdir; off by default. Write it with =.",
        {"metavar": "DIR"},
    ),
    Setting("root", "The folder of suites, from rootdir.", default=DEFAULT_ROOT),
    Setting(
        "resume_changed",
        "What a resumed run does where cases, rules, target or model have changed: refuse, or run (what changed is "
        "run anew).",
        default="refuse",
    ),
    Setting("stale", "What a stale recording is: warn (a remark) or error.", default="warn"),
    Setting("allow_processes", "Whether targets may start child processes in fixture mode: yes or no.", default="no"),
    Setting("temperature", "The temperature that models are asked with, 0 to 2.", default="0"),
    Setting("max_output_tokens", "The longest answer that a model may give, tokens.", default="4096"),
    Setting("call_timeout", "Give up on one model call after so many seconds.", default="120"),
    Setting("retries", "How often a model call is tried again after a failure that may pass.", default="4"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def __dir__() -> list[str]:
    """Give the hooks and fixtures: pytest looks at each name here, in every run, once for either."""
    return [name for name in globals() if name.startswith(("pytest_", "packbench_"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options and their ini keys."""
    group = parser.getgroup("packbench", "benchmark cases as tests (packbench)")
    for setting in SETTINGS:
        if setting.option is not None:
            dest = f"packbench_{setting.name}"
            flag = f"--packbench-{setting.name.replace('_', '-')}"
            group.addoption(flag, dest=dest, default=None, help=setting.help, **setting.option)
        parser.addini(f"packbench_{setting.name}", help=setting.help, type=setting.ini, default=None)
    # imports no pack
    from pytest_packbench.packs import target_files

    for name, about in target_files().items():
        parser.addini(f"packbench_{name}", help=about, type="string", default=None)
    group.addoption(
        "--packbench-list",
        dest="packbench_list",
        action="store_true",
        default=False,
        help="List the suites with their numbers of cases, and exit.",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks for users."""
    from pytest_packbench import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def setting_of(name: str, namespace: object, getini: Callable[[str], Any]) -> tuple[Any, str]:
    """Find a setting, or a file of a pack's own: option, environment, ini, default, in this order.

    Returns:
        The value, None where a pack's file isn't given, and where it comes from in words for an error.
    """
    given = getattr(namespace, f"packbench_{name}", None)
    if given is not None:
        return given, f"--packbench-{name.replace('_', '-')}"
    variable = f"PACKBENCH_{name.upper()}"
    if os.environ.get(variable):
        return os.environ[variable], f"environment variable {variable}"
    ini = getini(f"packbench_{name}")
    if ini:
        return ini, f"ini packbench_{name}"
    return (BY_NAME[name].default if name in BY_NAME else None), "default"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Add the folders of the suites that are asked for to the arguments.

    A suite is asked for by name, or by an argument that lies under the root; a plain `pytest` asks for none.
    """
    namespace = early_config.known_args_namespace
    if setting_of("suite", namespace, early_config.getini)[0] or _any_under(early_config, namespace.file_or_dir):
        from pytest_packbench.pytest_plugin.selection import activate

        activate(early_config, args)


def _any_under(config: pytest.Config, arguments: list[str]) -> bool:
    """Whether an argument may lie in a folder of suites, the project's or the bundled one."""
    root = setting_of("root", config.known_args_namespace, config.getini)[0]
    places = (os.path.normpath(config.rootpath / root) + os.sep, str(SUITES) + os.sep)
    for argument in arguments:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if (os.path.normpath(path) + os.sep).startswith(places):
            return True
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and the session's plugins where a suite was asked for."""
    config.addinivalue_line(
        "markers",
        "packbench(suite, case_type, difficulty, tag): a benchmark case, one mark for each of its tags; "
        "select with -m \"packbench(difficulty='hard')\".",
    )
    config.addinivalue_line(
        "markers",
        f"{MARK}(suite, ..., case_type=, difficulty=, tag=): run the test on each case of the suites; it takes "
        "packbench_case and packbench_check.",
    )
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.workers import Workers

        config.pluginmanager.register(Workers(config, partial(_learn, config)), "packbench-workers")
    if ASKED in config.stash:
        from pytest_packbench.pytest_plugin.session import register

        register(config)


def _learn(config: pytest.Config, told: str, reports: list[pytest.TestReport]) -> None:
    from pytest_packbench.pytest_plugin.marked import learn

    learn(config, told, reports)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give marked functions their cases."""
    if metafunc.definition.get_closest_marker(MARK) is not None:
        from pytest_packbench.pytest_plugin.marked import parametrize

        parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stop marked tests that pytest gives no parameters."""
    # pytest has no public name for the class
    methods = [item for item in items if type(item).__name__ == "TestCaseFunction"]
    marked = [item for item in methods if item.get_closest_marker(MARK) is not None]
    if marked:
        from pytest_packbench.pytest_plugin.marked import Unsupported

        config.pluginmanager.register(Unsupported(marked), "packbench-unsupported")


@pytest.fixture
def packbench_case(request: pytest.FixtureRequest) -> Any:
    """The case of a test that is marked with packbench_cases: its id, input, expected and notes."""
    if not hasattr(request, "param"):
        pytest.fail(f'packbench_case: expected the mark @pytest.mark.{MARK}("suite") on the test', pytrace=False)
    return request.param.loaded.case


@pytest.fixture
def packbench_request(packbench_case: Any, request: pytest.FixtureRequest) -> Any:  # noqa: ARG001 - the case comes first
    """What a target is asked for the case: the verify request, with input, options and evidence."""
    from pytest_packbench.pytest_plugin.marked import request_of

    return request_of(request.node)


@pytest.fixture
def packbench_check(packbench_case: Any, request: pytest.FixtureRequest) -> Callable[[object], Any]:  # noqa: ARG001 - see above
    """Call it with the result: it scores, records, and fails the test where the score is under the threshold."""
    from pytest_packbench.pytest_plugin.marked import check_of

    return check_of(request.node)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """List the suites, where that was asked for."""
    if not config.option.packbench_list:
        return None
    from pytest_packbench.pytest_plugin.selection import show_suites

    return show_suites(config)
