"""Measure what the plugin costs, each scenario against a yardstick in the same run.

    python -m benchmarks NAME ... [--rounds N] [--cases N] [--commit COMMIT]

The commands of a scenario run in turn (A, B, A, B), and the fastest of each is shown: CPU time of the child (user and
system), the ratio to the yardstick, which is the row before it with the ratio 1.00, peak memory and wall clock. Run it
from the repository, with the extra `dev` installed. `start`, `unused` and `others` build the wheel and make fresh
environments. Without a name, the scenarios are listed.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import agentdojo, projects
from benchmarks.measure import HOME, REPORT, Command, new_environment, pytest_words, rounds, used, wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = sys.executable
JSON_REPORT = ("--json-report", "--json-report-file=report.json")
SUITE = "--packbench-suite=toy"
COMMAND = ("-m", "pytest_packbench")
COMPILED = {"compiled": None, "PYTHONDONTWRITEBYTECODE=1": "1"}
OTHERS = {
    "pytest-evals": (
        "test_labels.py",
        projects.PYTEST_EVALS,
        ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--run-eval"),
    ),
    "deepeval": ("test_labels.py", projects.DEEPEVAL, ("-m", "pytest", "-q", "-p", "no:cacheprovider")),
    "inspect-ai": (
        "labels.py",
        projects.INSPECT,
        ("-m", "inspect_ai", "eval", "labels.py", "--model", "mockllm/model", "--display", "none"),
    ),
}
"""Each tool with its file and its command; all read `cases.jsonl`, and write what they write without an option."""
QUIET = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": None}


class Scenario(NamedTuple):
    """What can be measured.

    Attributes:
        about: what it is, in a line.
        prepare: writes what it needs in an empty folder, and returns its commands.
        rounds: how often they run.
    """

    about: str
    prepare: Callable[[Path, argparse.Namespace], list[Command]]
    rounds: int = 5


def start(folder: Path, _: argparse.Namespace) -> list[Command]:
    """One case of a generic suite, and a test that does nothing, in a fresh environment with the wheel."""
    python, commands = new_environment(folder / "env", f"{wheel(folder)}[generic]"), []
    empty, one = projects.no_op(folder / "empty", 1), projects.generic(folder / "one", 1)
    for name, value in COMPILED.items():
        yardstick, variables = f"an empty test, {name}", {"PYTHONDONTWRITEBYTECODE": value}
        words = [*pytest_words(python, *REPORT), *JSON_REPORT]
        commands.append(Command(yardstick, words, empty, variables))
        words = [*pytest_words(python, "packbench", *REPORT), SUITE]
        commands.append(Command(f"one case, {name}", words, one, variables, yardstick, limit=1.5))
    return commands


def unused(folder: Path, _: argparse.Namespace) -> list[Command]:
    """An empty test in an environment with what the plugin requires, and in one with the plugin too."""
    built = wheel(folder)
    required = [text for text in _requirements() if ";" not in text]
    empty, words, auto = (
        projects.no_op(folder / "empty", 1),
        ("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": None},
    )
    without = Command("without the plugin", [new_environment(folder / "without", *required), *words], empty, auto)
    ours = [new_environment(folder / "with", built), *words]
    return [without, Command("with it, unused", ours, empty, auto, without.name, most_ms=5)]


def cases(folder: Path, options: argparse.Namespace) -> list[Command]:
    """So many generic cases, and as many tests that do nothing, with a JSON report."""
    words = [*pytest_words(HERE, *REPORT), *JSON_REPORT]
    plain = Command("tests that do nothing", words, projects.no_op(folder / "plain", options.cases))
    suite = projects.generic(folder / "suite", options.cases)
    own = [*pytest_words(HERE, "packbench", *REPORT), SUITE]
    return [plain, Command("generic cases", own, suite, against=plain.name, limit=1.44, most=55)]


def others(folder: Path, options: argparse.Namespace) -> list[Command]:
    """The same cases with an exact label in other tools, each in an environment of its own."""
    python = new_environment(folder / "own", f"{wheel(folder)}[generic]")
    words = [*pytest_words(python, *REPORT), *JSON_REPORT]
    plain = Command("tests that do nothing", words, projects.no_op(folder / "plain", options.cases))
    suite = projects.labels(folder / "packbench", options.cases, "conftest.py", projects.LABELS)
    own = [*pytest_words(python, "packbench", *REPORT), SUITE]
    commands = [plain, Command("packbench", own, suite, against=plain.name)]
    for name, (file, test, arguments) in OTHERS.items():
        if options.only and name not in options.only:
            continue
        place = projects.labels(folder / name, options.cases, file, test)
        try:
            python = new_environment(folder / f"{name}-env", name)
        except subprocess.CalledProcessError:
            print(f"{name} can't be installed here")
            continue
        commands.append(Command(name, [python, *arguments], place, QUIET, plain.name))
    return commands


def commit(folder: Path, options: argparse.Namespace) -> list[Command]:
    """The same commands by the package of a commit, and by that of this checkout."""
    git = ["git", "archive", options.commit, "pytest_packbench"]
    packed = subprocess.run(git, cwd=HOME, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder / "old", filter="data")
    commands = []
    for name, number in (("one case", 1), (f"{options.cases:,} cases", options.cases)):
        for which, path in ((options.commit, folder / "old"), ("this checkout", HOME)):
            place = projects.generic(folder / which.replace("/", "_") / str(number), number)
            words = [*pytest_words(HERE, "pytest_packbench.plugin", *REPORT), SUITE]
            against = "" if path != HOME else f"{name}, {options.commit}"
            commands.append(Command(f"{name}, {which}", words, place, {"PYTHONPATH": str(path)}, against))
    return commands


def replay(_: Path, __: argparse.Namespace) -> list[Command]:
    """Calls that the gateway replays, with the work of their client, and the same command without them."""
    calls, words = 1000, [HERE, "-m", "benchmarks.calls"]
    none = Command("no call", [*words, "0"], HOME)
    many = Command("1,000 replayed calls", [*words, str(calls)], HOME, against=none.name, per=calls, most_ms=1.5)
    return [none, many]


def page(folder: Path, options: argparse.Namespace) -> list[Command]:
    """The page of a run, which a second report writes, and a report without it."""
    run = _ran(folder, options.cases)
    words = [HERE, *COMMAND, "report", str(run)]
    print(f"the page of {options.cases:,} cases: {(run / 'report.html').stat().st_size / 1e6:.2f} MB")
    plain = Command("packbench report", words, folder)
    return [plain, Command("with its page", [*words, "--html=page.html"], folder, against=plain.name)]


def report(folder: Path, options: argparse.Namespace) -> list[Command]:
    """Reading many records, and parsing the same lines."""
    lines = (_ran(folder, 1000) / "records.jsonl").read_text("utf-8").splitlines(keepends=True)
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for number in range(options.cases // 10):
            file.writelines(line.replace("case_000", f"case_{number:03}") for line in lines[:1000])
    parse = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)"
    plain = Command(f"json.loads of {100 * options.cases:,} records", [HERE, "-c", parse, "records.jsonl"], folder)
    words = [HERE, *COMMAND, "report", "records.jsonl"]
    return [plain, Command("packbench report", words, folder, against=plain.name, most=200, codes=(0, 1))]


def merge(folder: Path, options: argparse.Namespace) -> list[Command]:
    """Merging two shards, and running all of their cases in one process."""
    project = projects.generic(folder / "suite", options.cases)
    words, runs = [*pytest_words(HERE, "packbench", *REPORT), SUITE], []
    for number in (1, 2):
        used(Command("", [*words, f"--packbench-shard={number}/2", f"--packbench-output={number}"], project))
        runs += [str(path.parent) for path in project.glob(f"{number}/toy/*/report.json")]
    whole = Command("all cases", words, project)
    merged = [HERE, *COMMAND, "merge", *runs, "--output", "merged"]
    return [whole, Command("merge of two shards", merged, project, against=whole.name)]


def workers(folder: Path, options: argparse.Namespace) -> list[Command]:
    """A target that computes for some 20 ms, in one process and in two: see the wall clock."""
    project = projects.generic(folder / "suite", options.cases, projects.WORKING)
    words = [*pytest_words(HERE, "packbench", *REPORT), SUITE]
    one = Command("one process", words, project)
    return [one, Command("-n 2", [*words, "-p", "xdist", "-n", "2"], project, against=one.name)]


def live(folder: Path, options: argparse.Namespace) -> list[Command]:
    """A target that waits for 0.2 s, 64 at once; its wall clock is at least 3.2 s for 1,000 cases."""
    words = [*pytest_words(HERE, "packbench", *REPORT), SUITE]
    recorded = Command("fixture mode", words, projects.generic(folder / "recorded", options.cases))
    place = projects.generic(folder / "live", options.cases, "\n")
    more = ("--packbench-mode=live", "--packbench-concurrency=64", "--packbench-target=pipeline:wait")
    return [recorded, Command("live, 64 at once", [*words, *more], place, against=recorded.name)]


def tariff(folder: Path, _: argparse.Namespace) -> list[Command]:
    """The tariff suite that comes with the package, with its controls, and a test that does nothing."""
    plain = Command("an empty test", [*pytest_words(HERE, *REPORT), *JSON_REPORT], projects.no_op(folder / "plain", 1))
    words = [
        *pytest_words(HERE, "packbench", *REPORT),
        "--packbench-suite=tariff",
        f"--packbench-output={folder / 'out'}",
    ]
    return [plain, Command("the tariff suite", words, HOME, against=plain.name, per=318, most_ms=3)]


SCENARIOS = {
    "start": Scenario("one case against an empty test, compiled and without bytecode", start, 10),
    "unused": Scenario("a run that does not use the plugin", unused, 40),
    "cases": Scenario("generic cases against tests that do nothing", cases),
    "others": Scenario("the same cases in pytest-evals, deepeval and inspect-ai", others, 2),
    "commit": Scenario("the package of a commit against this checkout", commit),
    "replay": Scenario("a call that the gateway replays", replay),
    "page": Scenario("writing the page of a run", page),
    "report": Scenario("packbench report on many records", report, 2),
    "merge": Scenario("merging two shards", merge),
    "workers": Scenario("two workers of pytest-xdist", workers, 2),
    "live": Scenario("a live run, 64 at once", live, 2),
    "tariff": Scenario("the tariff suite", tariff),
}


def _ran(folder: Path, number: int) -> Path:
    """Run a generic suite of so many cases once; return the folder of the run."""
    project = projects.generic(folder / "suite", number)
    used(Command("", [*pytest_words(HERE, "packbench", *REPORT), SUITE], project))
    (run,) = (path.parent for path in project.glob("reports/benchmarks/toy/*/report.json"))
    return run


def _requirements() -> list[str]:
    import tomllib

    return list(tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is named, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="what the plugin costs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--rounds", type=int, help="how often each command runs, after a first time that does not count"
    )
    parser.add_argument("--cases", type=int, default=1000, help="how many cases (default 1000)")
    parser.add_argument(
        "--commit", default="HEAD", help="for commit: what this checkout is compared with (default HEAD)"
    )
    parser.add_argument("--only", action="append", help="for others: only this tool (repeat)")
    options = parser.parse_args(argv)
    unknown = {*options.names} - {*SCENARIOS, "agentdojo"}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(SCENARIOS)}, agentdojo")
    if not options.names:
        print("\n".join(f"{name:10} {scenario.about}" for name, scenario in SCENARIOS.items()))
        print("agentdojo  all pairs of AgentDojo with scripted agents: the published counts")
        return 0
    versions = ", ".join(f"{name} {version(name)}" for name in ("pytest", "pytest-json-report", "pydantic"))
    load = os.getloadavg()[0]
    machine = f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}"
    print(f"{machine}, {versions}, load {load:.1f}")
    wrong = 0
    for name in options.names:
        print(f"\n**{name}**\n")
        if name == "agentdojo":
            wrong += agentdojo.main()
            continue
        with tempfile.TemporaryDirectory() as folder:
            commands = SCENARIOS[name].prepare(Path(folder), options)
            print(
                "| command | CPU ms | ratio | beyond it | MiB | wall s | limits |\n|---|---:|---:|---:|---:|---:|---|"
            )
            for row in rounds(commands, options.rounds or SCENARIOS[name].rounds):
                print(row, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
