"""Workers of xdist: which may run something else, what they have in common with the controller, and how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import execnet
import pytest

from pytest_packbench import __version__
from pytest_packbench.plugin import ROOT, SELECTION
from pytest_packbench.pytest_plugin.settings import Settings
from pytest_packbench.pytest_plugin.xdist import (
    TOLD,
    Worker,
    common_ground,
    difference,
    is_elsewhere,
    name_of_worker,
)
from pytest_packbench.runs.journal import is_locked, read_worker_journals
from tests.unit.run_builders import case_result

SPECS = {
    # is it elsewhere, how is it shown
    "popen": (False, "gw0 (elsewhere)"),
    "execmodel=main_thread_only//popen": (False, "gw0 (elsewhere)"),
    "popen//python=python3.12": (True, "gw0 (python3.12)"),
    "popen//env:PACKBENCH_MODE=live": (True, "gw0 (elsewhere)"),
    "popen//chdir=/srv/copy": (True, "gw0 (/srv/copy)"),
    "popen//via=proxy": (True, "gw0 (elsewhere)"),
    "ssh=bench1//chdir=/srv/popen//python=python3": (True, "gw0 (bench1)"),
    "socket=192.0.2.1:8888": (True, "gw0 (192.0.2.1:8888)"),
}


@pytest.mark.parametrize("text", SPECS)
def test_a_worker_is_elsewhere_by_its_specification(text: str) -> None:
    spec = execnet.XSpec(text)
    node = SimpleNamespace(gateway=SimpleNamespace(spec=spec, id="gw0"))
    assert (is_elsewhere(spec), name_of_worker(node)) == SPECS[text]


class Machine:
    """A machine with a copy of the project: what `common_ground` reads of a session."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = settings_with()
        self.selected = ["mine"]
        self.pack = "generic 1"
        self.bundled = False
        for name in ("suite.yaml", "cases/a.json", "cases/b.json", "fixtures/a.json", "README.md", "baseline.json"):
            self.write(f"suites/mine/{name}", name)
        self.modules = ["target.py"]
        self.write("target.py", "answer = 1")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def contexts(self) -> Any:
        plugins = [SimpleNamespace(__file__=str(self.root / name)) for name in self.modules]
        manager = SimpleNamespace(get_plugins=lambda: plugins)
        selection = SimpleNamespace(suites=[SimpleNamespace(name=name) for name in self.selected])
        config = SimpleNamespace(
            rootpath=self.root, pluginmanager=manager, stash={SELECTION: selection, ROOT: self.root}
        )
        folder = self.root / "suites" / "mine"
        suite = SimpleNamespace(name="mine", path=folder, bundled=self.bundled)
        name, version = self.pack.split()
        pack = SimpleNamespace(name=name, version=version)
        return SimpleNamespace(config=config, settings=self.settings, suites={"mine": suite}, pack_of=lambda _: pack)


def settings_with(**changes: Any) -> Settings:
    plain: dict[str, Any] = {
        "gate": "case",
        "gateway": "auto",
        "shard": None,
        "output": Path("reports"),
        "baseline": "none",
    }
    said = {"baseline_optional": False, "fail_on": "", "policy_from": "", "resume": "", "resume_changed": False}
    return Settings(**{**plain, **said, "home": Path("/"), **changes})


def _compare(one: Machine, other: Machine) -> str:
    """What the worker `other` says to what the controller `one` has, without hashes and advice."""
    controllers = common_ground(one.contexts())
    problem = difference(controllers, common_ground(other.contexts(), named=controllers), controllers)
    return re.sub(r"\b[0-9a-f]{64}\b", "HASH", problem).partition("; use ")[0]


FILES = "suites/mine, pack generic 1, HASH"
OTHER_FILES = f"suite mine differs: on this machine {FILES}, on the worker's {FILES}"
# an attribute of the worker's machine or one of its files, its value or text, and what is said of it
CHANGES: dict[str, tuple[str, Any, str]] = {
    "rules": ("suites/mine/suite.yaml", "other", OTHER_FILES),
    "a case": ("suites/mine/cases/b.json", "other", OTHER_FILES),
    "a missing case": ("suites/mine/cases/a.json", None, OTHER_FILES),
    "a case more": ("suites/mine/cases/c.json", "{}", OTHER_FILES),
    "a case with the name of a baseline": ("suites/mine/cases/baseline.json", "{}", OTHER_FILES),
    "another recording": ("suites/mine/fixtures/a.json", "{}", OTHER_FILES),
    "a target": ("target.py", "answer = 2", "target.py differs: on this machine HASH, on the worker's HASH"),
    "a missing target": ("target.py", None, "target.py differs: on this machine HASH, on the worker's missing"),
    "a setting": (
        "settings",
        settings_with(mode="live"),
        "the setting mode differs: on this machine fixture, on the worker's live",
    ),
    "a pack": ("pack", "generic 2", OTHER_FILES[: -len(FILES)] + FILES.replace("generic 1", "generic 2")),
    "the selection": (
        "selected",
        ["mine", "yours"],
        "the selection differs: on this machine mine, on the worker's mine, yours",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_named(tmp_path: Path, name: str) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    # each has its own reports, baseline, notes and speed
    for file in ("README.md", "baseline.json", ".hidden"):
        there.write(f"suites/mine/{file}", "other")
    there.settings = settings_with(output=Path("elsewhere"), concurrency=9, home=Path("/srv"))
    assert _compare(here, there) == ""
    what, value, message = CHANGES[name]
    if hasattr(there, what):
        setattr(there, what, value)
    elif value is None:
        (there.root / what).unlink()
    else:
        there.write(what, value)
    assert _compare(here, there) == message


def test_another_version_is_all_that_is_said(tmp_path: Path) -> None:
    there = Machine(tmp_path / "there")
    there.write("target.py", "answer = 2")
    own = common_ground(there.contexts())
    said = difference({**own, "pytest-packbench": "9.9.9"}, own, own)
    assert said.startswith(f"pytest-packbench differs: on this machine 9.9.9, on the worker's {__version__}, ")
    # one that tells nothing, or what another version tells
    for told in ({}, {"package": ["9.9.9", "0" * 64]}):
        assert difference(own, told, told or own)  # type: ignore[arg-type]  # as JSON has it


def test_modules_of_other_packages_are_not_compared(tmp_path: Path) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    here.modules += ["_pytest/main.py", "pytest/__init__.py", ".venv/lib/python3.11/site-packages/a.py", "lib.so"]
    for name in here.modules[1:]:
        here.write(name, "here only")
    assert _compare(here, there) == ""


def test_the_journals_of_a_worker_that_ends_are_closed_before_it_tells_the_controller(tmp_path: Path) -> None:
    folder = tmp_path / "toy" / "01RUN"
    folder.mkdir(parents=True)
    config: Any = SimpleNamespace(workerinput={"workerid": "gw0"}, workeroutput={})
    ledger = SimpleNamespace(ledger=SimpleNamespace(as_json=lambda: {"calls": 1}))
    ended: list[bool] = []
    run = {"config": config, "output": tmp_path, "run_id": "01RUN", "clients": ledger, "suites": {}, "prefetcher": None}
    contexts: Any = SimpleNamespace(**run, collected={"toy": 1}, close=lambda: ended.append(True))
    worker = Worker(contexts)
    assert worker.journal(case_result("a"))
    (path,) = folder.iterdir()
    assert is_locked(path)
    session: Any = SimpleNamespace(config=config)
    worker.pytest_sessionfinish(session)
    assert not is_locked(path)
    told = json.loads(config.workeroutput[TOLD])
    assert (ended, told["collected"], told["spent"]) == ([True], {"toy": 1}, {"calls": 1})
    assert list(read_worker_journals(folder)) == [case_result("a").case.nodeid]
