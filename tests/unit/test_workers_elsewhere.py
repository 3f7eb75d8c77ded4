"""Workers of xdist that may run something else: which they are, and what they must have in common with the controller."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import execnet
import pytest

from pytest_packbench.plugin import ROOT, SELECTION
from pytest_packbench.pytest_plugin import xdist
from pytest_packbench.pytest_plugin.xdist import (
    CONTROLLERS,
    WORKERS,
    common_ground,
    differences,
    is_elsewhere,
    is_in_other_folder,
    name_of_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SPECS = {
    # is it elsewhere, has it another folder, how is it shown
    "popen": (False, False, "gw0"),
    "execmodel=main_thread_only//popen": (False, False, "gw0"),
    "popen//python=python3.12": (True, False, "gw0 (python=python3.12)"),
    "popen//env:PACKBENCH_MODE=live": (True, False, "gw0"),
    "popen//chdir=/srv/copy": (True, True, "gw0 (chdir=/srv/copy)"),
    "popen//via=proxy": (True, True, "gw0 (via=proxy)"),
    "ssh=bench1//chdir=/srv/popen//python=python3": (True, True, "gw0 (ssh=bench1)"),
    "socket=192.0.2.1:8888": (True, True, "gw0 (socket=192.0.2.1:8888)"),
}


@pytest.mark.parametrize("text", SPECS)
def test_a_worker_is_elsewhere_by_its_specification(text: str) -> None:
    spec = execnet.XSpec(text)
    node = SimpleNamespace(gateway=SimpleNamespace(spec=spec, id="gw0"))
    assert (is_elsewhere(spec), is_in_other_folder(spec), name_of_worker(node)) == SPECS[text]


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

    def write_all(self, *names: str) -> None:
        for name in names:
            self.write(name, "{}")

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


def settings_with(**changes: Any) -> Any:
    from pytest_packbench.pytest_plugin.settings import Settings

    values: dict[str, Any] = {
        "gate": "case",
        "gateway": "auto",
        "shard": None,
        "output": Path("reports"),
        "baseline": "none",
    }
    values |= {"baseline_optional": False, "fail_on": "", "policy_from": "", "resume": ""}
    return Settings(**{**values, "resume_changed": "refuse", "home": Path("/"), **changes})


def _compare(one: Machine, other: Machine) -> list[str]:
    """What the worker `other` says to what the controller `one` has."""
    return differences(common_ground(one.contexts()), other.contexts(), there=CONTROLLERS, here=WORKERS)


COMMIT = "check out the same commit on both machines"
CHANGES: dict[str, tuple[Callable[[Machine], object], str]] = {
    "rules": (
        lambda machine: machine.write("suites/mine/suite.yaml", "other"),
        f"suite mine: suite.yaml differs or is missing; {COMMIT}",
    ),
    "a case": (
        lambda machine: machine.write("suites/mine/cases/b.json", "other"),
        f"suite mine: cases/b.json differs or is missing; {COMMIT}",
    ),
    "a missing case": (
        lambda machine: (machine.root / "suites/mine/cases/a.json").unlink(),
        f"suite mine: cases/a.json differs or is missing; {COMMIT}",
    ),
    "a recording and a case more": (
        lambda machine: machine.write_all("suites/mine/cases/c.json", "suites/mine/fixtures/c.json"),
        f"suite mine: cases/c.json, fixtures/c.json differ or are missing; {COMMIT}",
    ),
    "a target": (
        lambda machine: machine.write("target.py", "answer = 2"),
        f"target.py differs or is missing; {COMMIT}",
    ),
    "a setting": (
        lambda machine: setattr(machine, "settings", settings_with(mode="live")),
        (
            "mode is fixture on this machine, live on the worker's; use options or the ini file, because workers elsewhere "
            "do not get the environment of this machine"
        ),
    ),
    "a pack": (
        lambda machine: setattr(machine, "pack", "generic 2"),
        "the pack of suite mine is generic 1 on this machine, generic 2 on the worker's",
    ),
    "the selection": (
        lambda machine: setattr(machine, "selected", ["mine", "yours"]),
        "the suites are mine on this machine, mine, yours on the worker's",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_named(tmp_path: Path, name: str) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    # each has its own reports, baseline, notes and speed
    there.write("suites/mine/README.md", "other")
    there.write("suites/mine/baseline.json", "other")
    there.write("suites/mine/.hidden", "other")
    there.settings = settings_with(output=Path("elsewhere"), concurrency=9, home=Path("/srv"))
    assert _compare(here, there) == []
    change, message = CHANGES[name]
    change(there)
    assert _compare(here, there) == [message]


def test_many_files_are_counted(tmp_path: Path) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    for number in range(9):
        there.write(f"suites/mine/cases/c{number}.json", "{}")
    (problem,) = _compare(here, there)
    assert problem.count(".json") == 5
    assert "cases/c4.json and 4 more differ or are missing" in problem


def test_another_version_is_all_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    there.write("target.py", "answer = 2")
    theirs = common_ground(here.contexts())
    version = theirs["package"][0]
    other = {**theirs, "package": [version, "0" * 64]}
    said = differences(other, there.contexts(), there=CONTROLLERS, here=WORKERS)
    assert said == [f"the code of pytest-packbench {version} is not the same; install the same one"]
    monkeypatch.setattr(xdist, "__version__", "9.9.9")
    monkeypatch.setattr(xdist, "_package", lambda: ["9.9.9", "0" * 64])
    said = differences(theirs, there.contexts(), there=CONTROLLERS, here=WORKERS)
    assert said == [f"pytest-packbench is {version} on this machine, 9.9.9 on the worker's; install the same version"]


def test_modules_of_other_packages_are_not_compared(tmp_path: Path) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    here.modules += ["_pytest/main.py", "pytest/__init__.py", ".venv/lib/python3.11/site-packages/a.py", "lib.so"]
    for name in here.modules[1:]:
        here.write(name, "here only")
    assert _compare(here, there) == []
