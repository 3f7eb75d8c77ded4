"""Collection: a case file is a `pytest.File` with one item per case, `<path>::<case id>`; so is that of a control."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache, partial
from inspect import unwrap
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_packbench.cases.finder import (
    LINES_SUFFIX,
    SUFFIXES,
    CaseIndex,
    CaseLocation,
    case_counts,
    case_folders,
    file_stem,
    find_controls,
    find_recording,
    is_hidden,
    is_stray,
    is_unread,
    iter_cases,
    leaves_project,
    locations_in,
    stray_problem,
    unprintable_name,
)
from pytest_packbench.cases.load import load_case
from pytest_packbench.engine.time_limit import Watchdog
from pytest_packbench.files import escape_unprintable, has_control_characters
from pytest_packbench.model.errors import (
    CaseError,
    Problem,
    duplicate_id,
    pluralize,
)
from pytest_packbench.model.request import TargetError
from pytest_packbench.model.result import FIXTURE
from pytest_packbench.plugin import arguments_of, rootdir_of
from pytest_packbench.pytest_plugin.case_run import (
    CONTROL_KIND,
    CaseBroken,
    CaseFailure,
    CaseRun,
    ControlRun,
    ItemRun,
    file_run,
    file_runs,
    runs_of,
)
from pytest_packbench.pytest_plugin.integrations import opt_out_of_reruns
from pytest_packbench.pytest_plugin.settings import Selection, SessionSuites, refuse
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.suite import Suite


_Run = TypeVar("_Run", bound=ItemRun)
_MARKS = 10_000
_CASES = f"cases{os.sep}"
"""What the path of a case begins with, from the folder of its suite."""
# hook implementations that are covered by other checks (pytest's) or ignore only their own folder (Hypothesis')
_IGNORING_FOLDERS = {"main", "hypothesispytest"}
_IGNORING = ("collect_ignore", "collect_ignore_glob")


class CaseItem(pytest.Item):
    """One case, or one control, as a test.

    Attributes:
        packbench_run: the case or control, and what came of it.
    """

    parent: CaseFile
    packbench_run: ItemRun

    @property
    def fixturenames(self) -> list[str]:
        """The names of its fixtures: none, for plugins that expect the attributes of a test function at each item."""
        return []

    @property
    def funcargs(self) -> dict[str, Any]:
        """The values of its fixtures: none."""
        return {}

    @property
    def ihook(self) -> Any:
        """The hooks of the folder, with the same conftest.py files: pytest would look them up for each path again."""
        return self.parent.parent.ihook

    def setup(self) -> None:
        """Run and score the case; pytest reports a problem here as an error."""
        self.packbench_run.execute()

    def runtest(self) -> None:
        """Compare score and threshold; pytest reports a problem here as a failure."""
        self.packbench_run.decide()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the explanation of a case that does not pass; pytest shows any other exception."""
        # without a traceback, which would show only this package
        if isinstance(excinfo.value, CaseFailure | CaseBroken | pytest.xfail.Exception):
            return self.packbench_run.explanation or str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def _traceback_filter(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        """Return no traceback of a broken case: pytest would parse the files of this package for it, in each case.

        It is pytest's, which has no public way to leave out a traceback in the setup.
        """
        traceback = excinfo.traceback
        return type(traceback)([]) if isinstance(excinfo.value, CaseBroken) else traceback

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the line from 0, and the id, as editors need them."""
        return self.path, max(self.packbench_run.line - 1, 0), self.name


class _Cases(pytest.Collector):
    """Cases in a row: those of a file, or of a folder.

    Attributes:
        collector: knows the suites, and what is in the shard.
        suite: the suite of the cases.
    """

    parent: pytest.Collector

    def __init__(self, *, collector: Collector, suite: Suite, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.collector = collector
        self.suite = suite


class CaseFile(_Cases, pytest.File):
    """A file of cases or controls: one, or one per line.

    Attributes:
        pack: the pack of their suite.
        locations: returns them, without those of other shards; a file that can't be read is one as well.
    """

    def __init__(self, *, locations: Callable[[], Iterable[CaseLocation]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pack = self.collector.contexts.pack_of(self.suite)
        self.locations = locations

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; one that can't be read is an item whose setup reports why, so that it hides no other."""
        first: dict[str, CaseRun] = {}
        for location in self.locations():
            other, problem, loaded = first.get(location.written_id), "", None
            if other is not None:
                _set_duplicate(other, location.label(self.nodeid))
                location = location._replace(problem=duplicate_id(location.written_id, other.where))  # noqa: PLW2901 - the same case
            try:
                loaded = load_case(location, self.pack.case_model, file=self.nodeid, pack=self.pack.name)
            except CaseError as error:
                problem = str(error)
            # node ids must differ: the second case of an id is named after its line
            run = self.new_item(
                CaseRun,
                location.name,
                marks_of(self.suite, loaded),
                line=location.line,
                path=self.path,
                name=location.name,
                loaded=loaded,
                problem=problem,
            )
            first.setdefault(location.written_id, run)
            yield run.item

    def new_item(
        self, kind: Callable[..., _Run], name: str, marks: Iterable[pytest.MarkDecorator], /, **fields: Any
    ) -> _Run:
        """Return a case or a control in a new item."""
        item: CaseItem = CaseItem.from_parent(self, name=name)
        # the node id is the same object as in reports, to save memory
        item.packbench_run = run = kind(
            item=item,
            nodeid=item.nodeid,
            contexts=self.collector.contexts,
            suite=self.suite,
            pack=self.pack,
            file=self.nodeid,
            **fields,
        )
        text, relative = str(self.path), self.nodeid if os.sep == "/" else self.nodeid.replace("/", os.sep)
        # outside rootdir pytest finds the relative path
        if not text.isprintable() or text.endswith(os.sep + relative):
            # pytest's own computation takes longer than reading the case; the same object saves memory
            item.location = (relative, max(run.line - 1, 0), name)
        for mark in marks:
            item.add_marker(mark)
        return run


class NoCases(pytest.File):
    """What an argument names in a folder of suites although it has no case, as `storage/benchmarks/support/*` does."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield nothing."""
        yield from ()


class CaseFolder(_Cases, pytest.Directory):
    """A folder of cases: its case files are collected without calling every plugin for each."""

    @property
    def ihook(self) -> Any:
        """The hooks of the folder, cached once collection has finished: no conftest.py is added later."""
        return self._settled_ihook if self.collector.finished else super().ihook

    @cached_property
    def _settled_ihook(self) -> Any:
        return super().ihook

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the content of the folder sorted by name, as pytest does."""
        may_ignore = self._may_ignore_files()
        with os.scandir(self.path) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            is_folder, is_case = _is_folder(entry), _is_case(entry.name)
            if is_case and not is_folder and not self.collector.may_be_in_shard(entry.name):
                continue
            path = self.path / entry.name
            if is_folder and not self.collector.is_counted(path):
                if is_hidden(entry.name) or not leaves_project(str(path)):
                    continue
                # a link with an error of its own
                is_folder = False
            if (may_ignore or is_folder or not is_case) and self.is_ignored(path, with_parents=is_folder):
                continue
            if is_folder:
                folder = self.ihook.pytest_collect_directory(path=path, parent=self)
                yield from [folder] if folder is not None else []
            elif is_case:
                # a broken link as well: it counts as a case that can't be read
                yield from self.nodes_of(self.collector.pytest_collect_file(path, self))
            elif path.is_file() or is_unread(path.name):
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)

    def nodes_of(self, file: pytest.Collector | None) -> Iterable[pytest.Item | pytest.Collector]:
        """Return a file's item directly: pytest would report on each file, which takes longer than reading it."""
        if file is None:
            return ()
        # pytest looks for an argument that names a file among files
        return (file,) if file.name.endswith(LINES_SUFFIX) or self.collector.by_file else file.collect()

    def is_ignored(self, path: Path, *, with_parents: bool = False) -> bool:
        """Whether pytest, or a plugin, ignores a path in the folder."""
        if self.session.isinitpath(path, with_parents=with_parents):
            return False
        config = _AllFolders(self.config) if with_parents else self.config
        return bool(self.ihook.pytest_ignore_collect(collection_path=path, config=config))

    def _may_ignore_files(self) -> bool:
        """Whether any file may be ignored: by an option, by a conftest.py, or by a plugin beside pytest's own."""
        options = self.config.option
        plugins = self.config.pluginmanager.get_plugins()
        # up to pytest 9.0 the hook is wrapped, for plugins with the old `path` argument
        implementations = {
            implementation.plugin_name for implementation in unwrap(self.ihook.pytest_ignore_collect).get_hookimpls()
        }
        return bool(
            options.ignore
            or options.ignore_glob
            or any(hasattr(plugin, name) for plugin in plugins for name in _IGNORING)
            or implementations - _IGNORING_FOLDERS
        )


class ControlFile(CaseFile):
    """A file of one control, or of one per line."""

    parent: ControlFolder

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each control; one that can't be read is an error when it is set up."""
        for found in self.locations():
            name, marks = printable(found.name), marks_of(self.suite, None, kind=CONTROL_KIND)
            yield self.new_item(ControlRun, name, marks, line=found.line, folder=self.parent, found=found).item


class ControlFolder(CaseFolder):
    """The folder of a suite's controls."""

    @cached_property
    def cases(self) -> CaseIndex:
        """The cases of the suite."""
        return CaseIndex(iter_cases(self.suite.cases_path))

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the controls of the shard, in the order of their files."""
        for text, found in groupby(find_controls(self.path), attrgetter("path")):
            path, in_shard = Path(text), [each for each in found if self.collector.is_in_shard(each.name)]
            if in_shard and not self.is_ignored(path):
                name, nodeid = (
                    printable(escape_unprintable(each)) for each in (path.name, self.collector.nodeid_of(text))
                )
                file: ControlFile = ControlFile.from_parent(
                    self,
                    path=path,
                    name=name,
                    nodeid=nodeid,
                    collector=self.collector,
                    suite=self.suite,
                    locations=partial(iter, in_shard),
                )
                yield from self.nodes_of(file)


class _AllFolders:
    """pytest's configuration without `norecursedirs`: a case type may be called `build`, and its cases are counted."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)

    def getini(self, name: str) -> Any:
        return [] if name == "norecursedirs" else self._config.getini(name)


def _one_line(name: str) -> str:
    """Return the name of a file with escapes for what a terminal, a service of CI or a node id would interpret."""
    return escape_unprintable(name).replace("::", r"\x3a\x3a")


def _is_case(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # a link to itself counts as a case that can't be read, like a broken link
        return False


class Collector:
    """The hooks of collection, registered in a session with suites.

    Attributes:
        contexts: the session's suites.
        by_file: whether an argument names a file of cases.
        finished: whether collection has finished.
    """

    def __init__(self, contexts: SessionSuites, selection: Selection) -> None:
        self.contexts = contexts
        self.by_file = bool(selection.files)
        self._suites = [(f"{suite.path}{os.sep}", suite) for suite in contexts.suites.values()]
        self._without_cases: set[str] = set()
        roots = tuple(f"{suite.path.parent}{os.sep}" for _, suite in self._suites)
        self._named = [
            Path(path) for path, name in arguments_of(contexts.config) if path.startswith(roots) and not name
        ]
        self._root = str(rootdir_of(contexts.config)) + os.sep
        self._folders: set[str] = set()
        self.finished = False

    def may_be_in_shard(self, name: str) -> bool:
        """Whether a file of cases, by its name, may be in the shard: files of many always are."""
        return name.endswith(LINES_SUFFIX) or self.is_in_shard(file_stem(name))

    def is_in_shard(self, name: str) -> bool:
        """Whether a case or a control with this name is in the shard."""
        shard = self.contexts.settings.shard
        return shard is None or name in shard

    def is_counted(self, folder: Path) -> bool:
        """Whether the cases of a folder count there: not those of a hidden one, or of a link to what is counted."""
        if not self._folders:
            self._folders = {path for _, suite in self._suites for path, _ in case_folders(suite.cases_path)}
        return str(folder) in self._folders

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Directory | None:
        """Collect the folders of cases of the requested suites, and those of their controls."""
        suite, place = self._place_of(f"{path}{os.sep}")
        are_controls = suite is not None and self._is_of_controls(path, suite)
        if suite is None or not (are_controls or place.startswith(_CASES)):
            return None
        kind = ControlFolder if are_controls else CaseFolder
        nodeid = self.nodeid_of(str(path))
        # pytest prints both as they are
        names: dict[str, Any] = {}
        if has_control_characters(nodeid):
            names = {"name": _one_line(path.name), "nodeid": _one_line(nodeid)}
        folder: CaseFolder = kind.from_parent(parent, path=path, collector=self, suite=suite, **names)
        return folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the case files of the requested suites that are in the shard, and their stray files."""
        text, name = str(file_path), file_path.name
        suite, place = self._place_of(text)
        if suite is None:
            return None
        problem: Problem | None = None
        if not (_is_case(name) and place.startswith(_CASES)):
            if self._is_of_controls(file_path, suite):
                # a file instead of their folder
                return self.pytest_collect_directory(file_path, parent)
            if not is_stray(suite, text):
                return None
            problem = stray_problem(text)
        nodeid, shown = self.nodeid_of(text), _one_line(name)
        locations = partial(self._locations, text)
        if problem is None and has_control_characters(nodeid):
            problem = unprintable_name(nodeid)
            # in the shard that counts it
            name = name if name.endswith(LINES_SUFFIX) else file_stem(name)
        if problem is not None:
            if not self.is_in_shard(name):
                return None
            # pytest prints both as they are, and such a file may have any name
            nodeid = _one_line(nodeid)
            locations = partial(iter, [CaseLocation(text, shown, problem=problem)])
        # with its name, which pytest would compute more slowly
        file: CaseFile = CaseFile.from_parent(
            parent,
            path=file_path,
            name=shown,
            nodeid=nodeid,
            collector=self,
            suite=suite,
            locations=locations,
        )
        return file

    def _place_of(self, path: str) -> tuple[Suite | None, str]:
        """Return the suite with a file, or a folder that ends with a separator, and its path from there."""
        places = ((suite, path.removeprefix(folder)) for folder, suite in self._suites if path.startswith(folder))
        return next(places, (None, ""))

    def _is_of_controls(self, path: Path, suite: Suite) -> bool:
        """Whether a path is that of the controls of a suite, which are replayed in fixture mode only."""
        return self.contexts.settings.mode == FIXTURE and path == suite.controls_path

    def _locations(self, path: str) -> Iterator[CaseLocation]:
        """Yield the cases of a file that are in the shard."""
        return (each for each in locations_in(path, keeps_content=True) if self.is_in_shard(each.written_id))

    def nodeid_of(self, text: str) -> str:
        """Return the node id of a file, given as its absolute path."""
        # outside rootdir pytest would derive a node id that can't be passed as an argument
        return text.removeprefix(self._root).replace(os.sep, "/") if text.startswith(self._root) else text

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add a node for each argument in a folder that has no case: pytest would not find it, and run nothing."""
        report = yield
        if self._named and isinstance(collector, pytest.Directory):
            found = {node.path for node in report.result}
            for path in self._named:
                if path.parent == collector.path and path not in found:
                    self._without_cases.add(str(path))
                    report.result.append(NoCases.from_parent(collector, path=path))
        return report

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count the collected cases, before any is deselected."""
        if (run := file_run(item)) is not None:
            self.contexts.collected[run.suite.name] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn cases with the same id in a suite into errors that name each other: cassettes and records go by id.

        A case or a control that arguments select twice is kept once, also with `--keep-duplicates`: it is run once.
        """
        self._refuse_unused_rules(items)
        kept: dict[object, pytest.Item] = {}
        for number, item in enumerate(items):
            kept.setdefault((item.path, item.packbench_run.line) if isinstance(item, CaseItem) else number, item)
        items[:] = kept.values()
        first: dict[tuple[str, str], CaseRun] = {}
        for run in file_runs(items):
            other = first.setdefault((run.suite.name, run.name), run)
            if other is not run:
                _set_duplicate(run, other.where)
                _set_duplicate(other, run.where)

    def _refuse_unused_rules(self, items: list[pytest.Item]) -> None:
        """Refuse rules that no case uses, where all cases of a suite were collected, before any is deselected."""
        runs = file_runs(items)
        for suite in self.contexts.suites.values():
            cases = [run.loaded for run in runs if run.suite is suite]
            unused = self.contexts.unused_rules(suite, cases)
            if unused and case_counts(suite, None)[0] == len(cases):
                refuse(self.contexts.config, "; ".join(unused))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Let all but cases take as long as it likes: other tests, the end of fixtures, and other plugins."""
        if not isinstance(nextitem, CaseItem):
            Watchdog.cancel()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note that no conftest.py will be added; refuse a missing target, and recording again in CI."""
        self.finished = True
        self._refuse_without_cases(session.config)
        opt_out_of_reruns(session.config, session.items)
        if session.config.option.collectonly:
            return
        self._refuse_missing_targets(session)
        if self.contexts.settings.mode == "record" and os.environ.get("CI"):
            self._refuse_recorded(session)

    def _refuse_without_cases(self, config: pytest.Config) -> None:
        """Refuse arguments that select a suite and nothing that runs."""
        for folder, _ in self._suites:
            paths = [path for path, _ in arguments_of(config) if path.startswith(folder)]
            if paths and self._without_cases.issuperset(paths):
                expected = "expected the folder of the suite, or files or folders of its cases"
                refuse(config, f"{os.path.relpath(paths[0])}: contains no case; {expected}")

    def _refuse_missing_targets(self, session: pytest.Session) -> None:
        """Give each case what those of its suite share, with their target; refuse one that can't be found."""
        for run in file_runs(session.items):
            try:
                run.open_context()
            except TargetError as error:
                refuse(session.config, str(error))

    def _refuse_recorded(self, session: pytest.Session) -> None:
        runs = runs_of(session.items)
        # what the resumed run has recorded itself is not recorded again
        recorded = [run.name for run in runs if not run.earlier() and find_recording(run.suite, run.name).exists()]
        if recorded:
            counted = f"{pluralize(len(recorded), 'selected case')}, such as {recorded[0]}, would be recorded again"
            advice = "select cases without a recording, or record on your machine and approve it (packbench accept)"
            refuse(session.config, f"--packbench-mode=record: CI is set, and {counted}; {advice}")


def _set_duplicate(run: CaseRun, other: str) -> None:
    if not run.problem:
        run.problem = str(CaseError(run.where, [duplicate_id(run.name, other)]))


def marks_of(suite: Suite, loaded: LoadedCase | None, **kind: str) -> Iterator[pytest.MarkDecorator]:
    """Yield the marks of a case for `-m`; of what is no case, one that states its `kind`."""
    if loaded is None:
        yield _mark(suite.name, "", "", "", **kind)
        return
    case = loaded.case
    # one mark per tag, each with all fields: `-m` can't select by one member of a list
    for tag in case.notes.tags or ("",):
        yield _mark(suite.name, case.case_type, case.difficulty, tag)


# shared between cases: creating a mark takes as long as reading a case
@lru_cache(maxsize=_MARKS)
def _mark(suite: str, case_type: str, difficulty: str, tag: str, **kind: str) -> pytest.MarkDecorator:
    return pytest.mark.packbench(suite=suite, case_type=case_type, difficulty=difficulty, tag=tag, **kind)
