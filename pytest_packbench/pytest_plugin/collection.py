"""Collection: a case file is a `pytest.File` with one item per case, `<path>::<case id>`."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import (
    LINES_SUFFIX,
    SUFFIXES,
    CaseLine,
    case_folders,
    case_lines,
    file_stem,
    format_location,
    is_hidden,
    is_stray,
    leaves_project,
    line_name,
    no_lines,
    read_id,
    stray_problem,
    unprintable_name,
    unreadable_file,
)
from pytest_packbench.cases.load import parse_case
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.cases.suites import case_counts
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.files import CASE, read_regular
from pytest_packbench.model.errors import CaseError, duplicate_id, pluralize
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.model.strict_json import escape_unprintable, has_control_characters
from pytest_packbench.plugin import arguments_of, rootdir_of
from pytest_packbench.pytest_plugin.case_run import CaseItem, CaseRun, Folder, file_run, file_runs, runs_of
from pytest_packbench.pytest_plugin.integrations import opt_out_of_reruns
from pytest_packbench.pytest_plugin.suites import refuse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.errors import Problem
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Shard
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.settings import Selection
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_MARKS = 10_000
# hook implementations that are covered by other checks (pytest's) or ignore only their own folder (Hypothesis')
_IGNORING_FOLDERS = {"main", "hypothesispytest"}
_IGNORING = ("collect_ignore", "collect_ignore_glob")


class CaseFile(pytest.File):
    """A file of one case.

    Attributes:
        suite: the suite of the case.
        pack: the suite's pack.
        problem: why the file is not read, although it looks like a case; None for a case.
    """

    def __init__(self, *, suite: Suite, pack: Pack, problem: Problem | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.pack = pack
        self.problem = problem

    @property
    def ihook(self) -> Any:
        """The hooks of the folder: the same conftest.py files apply to both."""
        return self.parent.ihook if self.parent is not None else super().ihook

    def collect(self) -> Iterator[pytest.Item]:
        """Return the case, or an item whose setup reports why it can't be read, so that a bad file hides no other."""
        if self.problem is not None:
            yield self._unread(self.name, self.problem).item
            return
        name = self.path.stem
        try:
            raw = read_regular(self.path, CASE)
            loaded = parse_case(raw, self.pack.case_model, source=self.nodeid, stem=name, pack=self.pack.name)
        except CaseError as error:
            yield self._new(name, None, str(error)).item
        except OSError as error:
            yield self._unread(name, unreadable_file(error)).item
        else:
            yield self._new(name, loaded).item

    def _unread(self, name: str, problem: Problem) -> CaseRun:
        return self._new(name, None, str(CaseError(self.nodeid, [problem])))

    def _new(self, name: str, loaded: LoadedCase | None, problem: str = "", line: int = 0) -> CaseRun:
        """Return a case in a new item."""
        item: CaseItem = CaseItem.from_parent(self, name=name)
        item.packbench_run = run = CaseRun(
            item=item,
            # the same object as in reports, to save memory
            nodeid=item.nodeid,
            suite=self.suite,
            pack=self.pack,
            path=self.path,
            file=self.nodeid,
            line=line,
            name=name,
            loaded=loaded,
            problem=problem,
        )
        for mark in marks_of(self.suite, loaded):
            item.add_marker(mark)
        return run


class CaseLines(CaseFile):
    """A file of many cases, one per line.

    Attributes:
        shard: the part of the cases to collect; None for all.
    """

    def __init__(self, *, shard: Shard | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shard = shard

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases line by line; a bad line becomes an item whose setup reports what is wrong."""
        first: dict[str, CaseRun] = {}
        problem, has_lines = no_lines(), False
        try:
            for line in case_lines(self.path):
                has_lines = True
                run = self._read(line)
                if run is not None:
                    other = first.setdefault(run.name, run)
                    yield run.item if other is run else self._duplicate(run, other).item
        except OSError as error:
            problem, has_lines = unreadable_file(error), False
        # such a file counts as one case, in one shard
        if not has_lines and (self.shard is None or self.path.stem in self.shard):
            yield self._unread(self.path.stem, problem).item

    def _read(self, line: CaseLine) -> CaseRun | None:
        """Return the case of a line; None if it is in another shard."""
        if self.shard is not None and _name_of(self.path, line) not in self.shard:
            return None
        try:
            source = format_location(self.nodeid, line.number)
            loaded = parse_case(line.raw, self.pack.case_model, source=source, stem=None, pack=self.pack.name)
        except CaseError as error:
            return self._new(_name_of(self.path, line), None, str(error), line.number)
        return self._new(loaded.case.id, loaded, line=line.number)

    def _duplicate(self, run: CaseRun, other: CaseRun) -> CaseRun:
        """Return the second case of an id in an item named after its line: node ids must differ."""
        named = self._new(line_name(self.path.name, run.line), None, run.problem, run.line)
        _set_duplicate(other, run.where)
        _set_duplicate(named, other.where, run.name)
        return named


def _name_of(path: Path, line: CaseLine) -> str:
    return read_id(line.raw) or line_name(path.name, line.number)


class NoCases(pytest.File):
    """What an argument names in a folder of suites although it has no case, as `storage/benchmarks/support/*` does."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield nothing."""
        yield from ()


class CaseFolder(Folder):
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
        for entry in self.entries():
            is_folder, is_case = _is_folder(entry), _is_case(entry.name)
            if is_case and not is_folder and not self.collector.may_be_in_shard(entry.name):
                continue
            path = self.path / entry.name
            if is_folder and not self.collector.is_counted(path):
                if is_hidden(entry.name) or not leaves_project(str(path)):
                    continue
                # a link with an error of its own
                is_folder = False
            if (may_ignore or is_folder or not is_case) and self._is_ignored(path, with_parents=is_folder):
                continue
            if is_case and not is_folder:
                # a broken link as well: it counts as a case that can't be read
                yield from self._nodes(self.collector.pytest_collect_file(path, self))
            else:
                yield from self.found_at(path, is_folder=is_folder)

    def _nodes(self, file: pytest.Collector | None) -> Iterable[pytest.Item | pytest.Collector]:
        """Return a file's item directly: pytest would report on each file, which takes longer than reading it."""
        if file is None:
            return ()
        # pytest looks for an argument that names a file among files
        return (file,) if isinstance(file, CaseLines) or self.collector.by_file else file.collect()

    def _is_ignored(self, path: Path, *, with_parents: bool) -> bool:
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
        by_file: whether an argument names a file of cases.
        finished: whether collection has finished.
    """

    def __init__(self, contexts: SessionSuites, selection: Selection) -> None:
        self._contexts = contexts
        self.by_file = bool(selection.files)
        suites = contexts.suites.values()
        self._suites = [(str(suite.cases_path) + os.sep, suite) for suite in suites]
        self._folders_of_suites = [(str(suite.path) + os.sep, suite) for suite in suites]
        self._without_cases: set[str] = set()
        roots = tuple(f"{suite.path.parent}{os.sep}" for suite in suites)
        self._named = [
            Path(path) for path, name in arguments_of(contexts.config) if path.startswith(roots) and not name
        ]
        self._root = str(rootdir_of(contexts.config)) + os.sep
        # their folders, one of which may be a file by mistake
        self._controls = {
            suite.controls_path: suite
            for suite in suites
            if contexts.settings.mode == FIXTURE and os.path.lexists(suite.controls_path)
        }
        self._folders: set[str] = set()
        self.finished = False

    def may_be_in_shard(self, name: str) -> bool:
        """Whether a file of cases, by its name, may be in the shard: files of many always are."""
        shard = self._contexts.settings.shard
        return shard is None or name.endswith(LINES_SUFFIX) or file_stem(name) in shard

    def is_in_shard(self, name: str) -> bool:
        """Whether a case or a control with this name is in the shard."""
        shard = self._contexts.settings.shard
        return shard is None or name in shard

    def is_counted(self, folder: Path) -> bool:
        """Whether the cases of a folder count there: not those of a hidden one, or of a link to what is counted."""
        if not self._folders:
            self._folders = {path for _, suite in self._suites for path, _ in case_folders(suite.cases_path)}
        return str(folder) in self._folders

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Directory | None:
        """Collect the folders of cases of the requested suites, and those of their controls."""
        if (suite := self._controls.get(path)) is not None:
            # most suites have none
            from pytest_packbench.pytest_plugin.controls import ControlFolder

            controls: pytest.Directory = ControlFolder.from_parent(
                parent, path=path, collector=self, suite=suite, contexts=self._contexts
            )
            return controls
        if _suite_at(str(path) + os.sep, self._suites) is None:
            return None
        nodeid = self.nodeid_of(str(path))
        # pytest prints both as they are
        names: dict[str, Any] = {}
        if has_control_characters(nodeid):
            names = {"name": _one_line(path.name), "nodeid": _one_line(nodeid)}
        folder: CaseFolder = CaseFolder.from_parent(parent, path=path, collector=self, **names)
        return folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the case files of the requested suites that are in the shard, and their stray files."""
        text = str(file_path)
        suite = _suite_at(text, self._suites) if _is_case(file_path.name) else None
        if suite is not None:
            return self._file(file_path, text, parent, suite)
        if file_path in self._controls:
            return self.pytest_collect_directory(file_path, parent)
        suite = _suite_at(text, self._folders_of_suites)
        if suite is None or not is_stray(suite, text):
            return None
        return self._unread(file_path, file_path.name, parent, suite, stray_problem(text))

    def _unread(
        self, path: Path, name: str, parent: pytest.Collector, suite: Suite, problem: Problem
    ) -> CaseFile | None:
        """Return a file that is not read as a case; None where another shard has the `name` by which it counts."""
        if not self.is_in_shard(name):
            return None
        # pytest prints both as they are, and such a file may have any name
        name, nodeid = _one_line(path.name), _one_line(self.nodeid_of(str(path)))
        pack = self._contexts.pack_of(suite)
        file: CaseFile = CaseFile.from_parent(
            parent, path=path, name=name, nodeid=nodeid, suite=suite, pack=pack, problem=problem
        )
        return file

    def nodeid_of(self, text: str) -> str:
        """Return the node id of a file, given as its absolute path."""
        # outside rootdir pytest would derive a node id that can't be passed as an argument
        return text.removeprefix(self._root).replace(os.sep, "/") if text.startswith(self._root) else text

    def _file(self, path: Path, text: str, parent: pytest.Collector, suite: Suite) -> CaseFile | None:
        nodeid = self.nodeid_of(text)
        has_lines = text.endswith(LINES_SUFFIX)
        if has_control_characters(nodeid):
            # in the shard that counts it
            name = path.name if has_lines else file_stem(path.name)
            return self._unread(path, name, parent, suite, unprintable_name(nodeid))
        if not self.may_be_in_shard(path.name):
            return None
        fields: dict[str, Any] = {"path": path, "nodeid": nodeid, "suite": suite, "pack": self._contexts.pack_of(suite)}
        if has_lines:
            lines: CaseLines = CaseLines.from_parent(parent, shard=self._contexts.settings.shard, **fields)
            return lines
        # with its name, which pytest would compute more slowly
        file: CaseFile = CaseFile.from_parent(parent, name=path.name, **fields)
        return file

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
            self._contexts.collected[run.suite.name] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn cases with the same id in a suite into errors that name each other: cassettes and records go by id.

        A case or a control that arguments select twice is kept once, also with `--keep-duplicates`: it is run once.
        """
        self._refuse_unused_rules(items)
        first: dict[tuple[str, str], CaseRun] = {}
        seen: set[tuple[Path, int]] = set()
        repeated: set[pytest.Item] = set()
        for item in items:
            if not isinstance(item, CaseItem):
                continue
            run = item.packbench_run
            if (item.path, run.line) in seen:
                repeated.add(item)
                continue
            seen.add((item.path, run.line))
            if isinstance(run, CaseRun):
                other = first.setdefault((run.suite.name, run.name), run)
                if other is not run:
                    _set_duplicate(run, other.where)
                    _set_duplicate(other, run.where)
        if repeated:
            items[:] = [item for item in items if item not in repeated]

    def _refuse_unused_rules(self, items: list[pytest.Item]) -> None:
        """Refuse rules that no case uses, where all cases of a suite were collected, before any is deselected."""
        runs = file_runs(items)
        for suite in self._contexts.suites.values():
            cases = [run.loaded for run in runs if run.suite is suite]
            unused = self._contexts.unused_rules(suite, cases)
            if unused and case_counts(suite, None)[0] == len(cases):
                refuse(self._contexts.config, "; ".join(unused))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note that no conftest.py will be added; refuse a missing target, and recording again in CI."""
        self.finished = True
        self._refuse_without_cases(session.config)
        opt_out_of_reruns(session.config, session.items)
        if not session.config.option.collectonly:
            self._refuse_missing_targets(session)
        if self._contexts.settings.mode == "record" and os.environ.get("CI") and not session.config.option.collectonly:
            self._refuse_recorded(session)

    def _refuse_without_cases(self, config: pytest.Config) -> None:
        """Refuse arguments that select a suite and nothing that runs."""
        for folder, _ in self._folders_of_suites:
            paths = [path for path, _ in arguments_of(config) if path.startswith(folder)]
            if paths and self._without_cases.issuperset(paths):
                expected = "expected the folder of the suite, or files or folders of its cases"
                refuse(config, f"{os.path.relpath(paths[0])}: contains no case; {expected}")

    def _refuse_missing_targets(self, session: pytest.Session) -> None:
        suites = {run.suite.name: run.suite for run in file_runs(session.items)}
        for suite in suites.values():
            try:
                self._contexts.context(suite)
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


def _suite_at(text: str, suites: Iterable[tuple[str, Suite]]) -> Suite | None:
    """Return the suite with the folder that a path begins with; None if there is none."""
    return next((suite for folder, suite in suites if text.startswith(folder)), None)


def _set_duplicate(run: CaseRun, other: str, name: str = "") -> None:
    if not run.problem:
        run.problem = str(CaseError(run.where, [duplicate_id(name or run.name, other)]))


def marks_of(suite: Suite, loaded: LoadedCase | None) -> Iterator[pytest.MarkDecorator]:
    """Yield the marks of a case for `-m`."""
    if loaded is None:
        yield _mark(suite.name, "", "", "")
        return
    case = loaded.case
    # one mark per tag, each with all fields: `-m` can't select by one member of a list
    for tag in case.notes.tags or ("",):
        yield _mark(suite.name, case.case_type, case.difficulty, tag)


# shared between cases: creating a mark takes as long as reading a case
@lru_cache(maxsize=_MARKS)
def _mark(suite: str, case_type: str, difficulty: str, tag: str) -> pytest.MarkDecorator:
    return pytest.mark.packbench(suite=suite, case_type=case_type, difficulty=difficulty, tag=tag)
