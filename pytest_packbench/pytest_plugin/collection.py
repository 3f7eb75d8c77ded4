"""Collection: a case file is a `pytest.File` with one item per case, `<path>::<case id>`."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache, partial
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest

from pytest_packbench.cases.files import (
    LINES_SUFFIX,
    SUFFIXES,
    CaseLine,
    case_folders,
    case_lines,
    file_stem,
    find_case,
    format_location,
    is_hidden,
    is_line_name,
    is_stray,
    is_unread,
    leaves_project,
    line_name,
    no_lines,
    read_case_bytes,
    read_id,
    stray_problem,
    unprintable_name,
    unreadable_file,
)
from pytest_packbench.cases.load import parse_case, parse_json
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.cases.suites import case_counts
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.limits import CASE, read_regular
from pytest_packbench.model.errors import CaseError, duplicate_id
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.model.strict_json import escape_unprintable, has_control_characters
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.plugin import CONTROL, arguments_of, rootdir_of
from pytest_packbench.pytest_plugin.case_run import CaseFailure, CaseRun, FixturelessItem, run_of, without_own_traceback
from pytest_packbench.pytest_plugin.integrations import opt_out_of_reruns
from pytest_packbench.pytest_plugin.suites import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.errors import Problem
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Shard
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.selection import Selection
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_MARKS = 10_000
# hook implementations that are covered by other checks (pytest's) or ignore only their own folder (Hypothesis')
_IGNORING_FOLDERS = {"main", "hypothesispytest"}
_IGNORING = ("collect_ignore", "collect_ignore_glob")


class CaseItem(FixturelessItem):
    """One case as a test.

    Attributes:
        packbench_run: the case, and the results of its attempts.
    """

    def __init__(
        self, *, suite: Suite, pack: Pack, loaded: LoadedCase | None, problem: str, line: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.packbench_run = CaseRun(
            item=self,
            # the same object as in reports, to save memory
            nodeid=self.nodeid,
            suite=suite,
            pack=pack,
            path=self.path,
            file=self.parent.nodeid if self.parent is not None else str(self.path),
            line=line,
            name=self.name,
            loaded=loaded,
            problem=problem,
        )
        for mark in marks_of(suite, loaded):
            self.add_marker(mark)

    @property
    def ihook(self) -> Any:
        """The hooks of the file: pytest would look them up for each path again."""
        return self.parent.ihook if self.parent is not None else super().ihook

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """File, line and id for reports; pytest's own computation takes longer than reading the case."""
        path, line, name = self.reportinfo()
        root = str(rootdir_of(self.config)) + os.sep
        text = str(path)
        if not text.isprintable():
            return (self.packbench_run.file, line, name)
        if not text.startswith(root):
            # outside rootdir pytest finds the relative path
            return super().location
        relative, file = text.removeprefix(root), self.packbench_run.file
        # equal but for the separators of Windows: the same object saves memory
        return (file if relative == file else relative, line, name)

    def setup(self) -> None:
        """Run and score the case; pytest reports a problem here as an error."""
        self.packbench_run.execute()

    def runtest(self) -> None:
        """Compare score and threshold; pytest reports a problem here as a failure."""
        self.packbench_run.decide()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the explanation of a failed case; pytest shows any other exception."""
        if isinstance(excinfo.value, CaseFailure):
            return self.packbench_run.explanation
        if isinstance(excinfo.value, pytest.xfail.Exception):
            # without a traceback, which would show only this package
            return self.packbench_run.explanation or str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def _traceback_filter(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        # of pytest, which has no public way to leave out a traceback in the setup
        return without_own_traceback(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the case's line from 0, and its id, as editors need them."""
        return self.path, max(self.packbench_run.line - 1, 0), self.name


class CaseFile(pytest.File):
    """A file of one case.

    Attributes:
        suite: the suite of the case.
        pack: the suite's pack.
    """

    def __init__(self, *, suite: Suite, pack: Pack, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.pack = pack

    @property
    def ihook(self) -> Any:
        """The hooks of the folder: the same conftest.py files apply to both."""
        return self.parent.ihook if self.parent is not None else super().ihook

    def collect(self) -> Iterator[CaseItem]:
        """Return the case, or an item whose setup reports why it can't be read, so that a bad file hides no other."""
        loaded, problem = None, ""
        name = self.path.stem
        try:
            raw = read_regular(self.path, CASE)
            loaded = parse_case(raw, self.pack.case_model, source=self.nodeid, stem=name, pack=self.pack.name)
        except CaseError as error:
            problem = str(error)
        except OSError as error:
            problem = str(CaseError(self.nodeid, [unreadable_file(error)]))
        yield CaseItem.from_parent(self, name=name, suite=self.suite, pack=self.pack, loaded=loaded, problem=problem)


class StrayFile(CaseFile):
    """A file that looks like a case but is not read as one: an item that is an error.

    Attributes:
        problem: why it is not read.
    """

    def __init__(self, *, problem: Problem, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem

    def collect(self) -> Iterator[CaseItem]:
        """Return an item named after the file, whose setup reports what to do."""
        problem = str(CaseError(self.nodeid, [self.problem]))
        yield CaseItem.from_parent(self, name=self.name, suite=self.suite, pack=self.pack, loaded=None, problem=problem)


class CaseLines(CaseFile):
    """A file of many cases, one per line.

    Attributes:
        shard: the part of the cases to collect; None for all.
        only: the names of the requested cases; empty for all.
    """

    def __init__(self, *, shard: Shard | None, only: frozenset[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shard = shard
        # the substitutes for missing ids are known only after all lines are read
        self.only = frozenset() if any(map(is_line_name, only)) else only

    def collect(self) -> Iterator[CaseItem]:
        """Yield the cases line by line; a bad line becomes an item whose setup reports what is wrong."""
        first: dict[str, CaseItem] = {}
        problem, has_lines = no_lines(), False
        try:
            for line in case_lines(self.path):
                has_lines = True
                item = self._item(line)
                if item is None:
                    continue
                other = first.setdefault(item.name, item)
                yield item if other is item else self._duplicate(item, other)
        except OSError as error:
            problem, has_lines = unreadable_file(error), False
        # such a file counts as one case, in one shard
        if not has_lines and (self.shard is None or self.path.stem in self.shard):
            yield self._new_item(0, self.path.stem, None, str(CaseError(self.nodeid, [problem])))

    def _item(self, line: CaseLine) -> CaseItem | None:
        name = None
        if self.only or self.shard is not None:
            name = read_id(line.raw) or line_name(self.path.name, line.number)
            if (self.only and name not in self.only) or (self.shard is not None and name not in self.shard):
                return None
        loaded, problem = None, ""
        try:
            source = format_location(self.nodeid, line.number)
            loaded = parse_case(line.raw, self.pack.case_model, source=source, stem=None, pack=self.pack.name)
            name = loaded.case.id
        except CaseError as error:
            problem = str(error)
            name = name or read_id(line.raw) or line_name(self.path.name, line.number)
        return self._new_item(line.number, name, loaded, problem)

    def _duplicate(self, item: CaseItem, other: CaseItem) -> CaseItem:
        """Return an item named after its line for the second case of an id: node ids must differ."""
        line = item.packbench_run.line
        named = self._new_item(line, line_name(self.path.name, line), None, item.packbench_run.problem)
        _set_duplicate(other.packbench_run, item.packbench_run.where)
        _set_duplicate(named.packbench_run, other.packbench_run.where, item.name)
        return named

    def _new_item(self, line: int, name: str, loaded: LoadedCase | None, problem: str) -> CaseItem:
        item: CaseItem = CaseItem.from_parent(
            self, name=name, suite=self.suite, pack=self.pack, loaded=loaded, problem=problem, line=line
        )
        return item


class NoCases(pytest.File):
    """What an argument names in a folder of suites although it has no case, as `storage/benchmarks/support/*` does."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield nothing."""
        yield from ()


class CaseFolder(pytest.Directory):
    """A folder of cases: its case files are collected without calling every plugin for each.

    Attributes:
        collector: has the suites.
        linked: whether it, or a parent folder, is a symbolic link.
    """

    def __init__(self, *, collector: Collector, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.collector = collector
        self.linked: bool = self.path.is_symlink() or (isinstance(self.parent, CaseFolder) and self.parent.linked)

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
            if is_folder and not is_hidden(entry.name) and entry.is_symlink() and leaves_project(str(path)):
                # an error of its own
                is_folder = False
            if is_folder and (is_hidden(entry.name) or self._is_uncounted_link(entry, path)):
                continue
            if (may_ignore or is_folder or not is_case) and self._is_ignored(path, with_parents=is_folder):
                continue
            if is_folder:
                folder = self.ihook.pytest_collect_directory(path=path, parent=self)
                yield from [folder] if folder is not None else []
            elif is_case:
                # a broken link as well: it counts as a case that can't be read
                file = self.collector.pytest_collect_file(path, self)
                yield from self._nodes(file)
            elif entry.is_file() or is_unread(entry.name):
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)

    def _is_uncounted_link(self, entry: os.DirEntry[str], path: Path) -> bool:
        return (self.linked or entry.is_symlink()) and not self.collector.is_counted(path)

    def _nodes(self, file: CaseFile | None) -> Iterable[pytest.Item | pytest.Collector]:
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
        collected: the number of cases by suite.
        has_controls: whether a suite of the session has controls, which are run.
        finished: whether collection has finished.
    """

    def __init__(self, contexts: SessionSuites, selection: Selection) -> None:
        self._contexts = contexts
        self._single = selection.single
        self.by_file = bool(selection.files)
        self._suites = [(str(suite.cases_path) + os.sep, suite) for suite in contexts.suites.values()]
        self._folders_of_suites = [(str(suite.path) + os.sep, suite) for suite in contexts.suites.values()]
        self._without_cases: set[str] = set()
        roots = tuple(f"{suite.path.parent}{os.sep}" for suite in contexts.suites.values())
        self._named = [
            Path(path) for path, name in arguments_of(contexts.config) if path.startswith(roots) and not name
        ]
        self._root = str(rootdir_of(contexts.config)) + os.sep
        self._fixtures = {} if contexts.settings.mode != FIXTURE else _fixtures_of(contexts.suites.values())
        self._folders: dict[str, frozenset[str]] = {}
        self.collected: dict[str, int] = dict.fromkeys(contexts.suites, 0)
        self.has_controls = bool(self._fixtures)
        self.finished = False
        self._unused_rules: list[str] = []

    def may_be_in_shard(self, name: str) -> bool:
        """Whether a file of cases, by its name, may be in the shard: files of many always are."""
        shard = self._contexts.settings.shard
        return shard is None or name.endswith(LINES_SUFFIX) or file_stem(name) in shard

    def is_counted(self, folder: Path) -> bool:
        """Whether the cases of a linked folder count there; looked up only for links."""
        text = str(folder)
        return any(text in self._counted(suite) for under, suite in self._suites if text.startswith(under))

    def _counted(self, suite: Suite) -> frozenset[str]:
        if suite.name not in self._folders:
            self._folders[suite.name] = frozenset(folder for folder, _ in case_folders(suite.cases_path))
        return self._folders[suite.name]

    def in_shard(self, name: str) -> bool:
        """Whether a control with this name is in the shard."""
        shard = self._contexts.settings.shard
        return shard is None or name in shard

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Directory | None:
        """Collect the folders of cases of the requested suites, and those of their controls."""
        if (folder_of := self._fixtures.get(str(path))) is not None:
            return folder_of(parent, self)
        text = str(path) + os.sep
        if not any(text.startswith(folder) for folder, _ in self._suites):
            return None
        nodeid = self.nodeid_of(str(path))
        if has_control_characters(nodeid):
            # pytest prints both as they are
            return CaseFolder.from_parent(
                parent, path=path, name=_one_line(path.name), nodeid=_one_line(nodeid), collector=self
            )
        folder: CaseFolder = CaseFolder.from_parent(parent, path=path, collector=self)
        return folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> CaseFile | None:
        """Collect the case files of the requested suites that are in the shard, and their stray files."""
        text = str(file_path)
        if _is_case(file_path.name):
            for folder, suite in self._suites:
                if text.startswith(folder):
                    return self._file(file_path, text, parent, suite)
        for folder, suite in self._folders_of_suites:
            if text.startswith(folder):
                return self._stray(file_path, text, parent, suite)
        return None

    def _stray(self, path: Path, text: str, parent: pytest.Collector, suite: Suite) -> CaseFile | None:
        return self._unread(path, text, parent, suite, stray_problem(text)) if is_stray(suite, text) else None

    def _unread(
        self, path: Path, text: str, parent: pytest.Collector, suite: Suite, problem: Problem, *, name: str = ""
    ) -> CaseFile | None:
        shard, pack = self._contexts.settings.shard, self._contexts.pack_of(suite)
        if shard is not None and (name or path.name) not in shard:
            return None
        file: StrayFile = StrayFile.from_parent(
            parent,
            path=path,
            # pytest prints both as they are, and such a file may have any name
            name=_one_line(path.name),
            nodeid=_one_line(self.nodeid_of(text)),
            suite=suite,
            pack=pack,
            problem=problem,
        )
        return file

    def nodeid_of(self, text: str) -> str:
        """Return the node id of a file, given as its absolute path."""
        # outside rootdir pytest would derive a node id that can't be passed as an argument
        return text.removeprefix(self._root).replace(os.sep, "/") if text.startswith(self._root) else text

    def _file(self, path: Path, text: str, parent: pytest.Collector, suite: Suite) -> CaseFile | None:
        nodeid = self.nodeid_of(text)
        if has_control_characters(nodeid):
            # in the shard that counts it
            name = "" if text.endswith(LINES_SUFFIX) else file_stem(path.name)
            return self._unread(path, text, parent, suite, unprintable_name(nodeid), name=name)
        pack, shard = self._contexts.pack_of(suite), self._contexts.settings.shard
        if text.endswith(LINES_SUFFIX):
            only = self._single.get(text, frozenset())
            lines: CaseLines = CaseLines.from_parent(
                parent, path=path, nodeid=nodeid, suite=suite, pack=pack, shard=shard, only=only
            )
            return lines
        if not self.may_be_in_shard(path.name):
            return None
        # with its name, which pytest would compute more slowly
        file: CaseFile = CaseFile.from_parent(parent, path=path, name=path.name, nodeid=nodeid, suite=suite, pack=pack)
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
        if isinstance(item, CaseItem):
            self.collected[item.packbench_run.suite.name] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn cases with the same id in a suite into errors that name each other: cassettes and records go by id.

        A case or a control that arguments select twice is kept once, also with `--keep-duplicates`: it is run once.
        """
        self._find_unused_rules(items)
        first: dict[tuple[str, str], CaseRun] = {}
        controls: set[str] = set()
        repeated: set[pytest.Item] = set()
        for item in items:
            if self._fixtures and hasattr(item, CONTROL):
                repeated.update([item] if item.nodeid in controls else [])
                controls.add(item.nodeid)
            if isinstance(item, CaseItem):
                run = item.packbench_run
                other = first.setdefault((run.suite.name, run.name), run)
                if other is run:
                    continue
                if (other.path, other.line) == (run.path, run.line):
                    repeated.add(item)
                else:
                    _set_duplicate(run, other.where)
                    _set_duplicate(other, run.where)
        if repeated:
            items[:] = [item for item in items if item not in repeated]

    def _find_unused_rules(self, items: list[pytest.Item]) -> None:
        """Look for rules that no case uses, where all cases of a suite were collected, before any is deselected."""
        for suite in self._contexts.suites.values():
            runs = [item.packbench_run for item in items if isinstance(item, CaseItem)]
            expected = [_expected_of(run) for run in runs if run.suite is suite]
            values = [value for one in expected if one is not None for value in one]
            if not values or len(values) < len(expected):
                continue
            unused = list(self._contexts.pack_of(suite).unused_rules(values, suite.config))
            if unused and case_counts(suite, None)[0] == len(expected):
                file = os.path.relpath(suite.path / CONFIG_NAME, rootdir_of(self._contexts.config))
                self._unused_rules += [f"{file}: {rule}" for rule in unused]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note that no conftest.py will be added; refuse unused rules, a missing target, and recording again in CI."""
        self.finished = True
        self._refuse_without_cases(session.config)
        if self._unused_rules:
            refuse(session.config, "; ".join(self._unused_rules))
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
        suites = {item.packbench_run.suite.name: item.packbench_run.suite for item in session.items if _is_run(item)}
        for suite in suites.values():
            try:
                self._contexts.context(suite)
            except TargetError as error:
                refuse(session.config, str(error))

    def _refuse_recorded(self, session: pytest.Session) -> None:
        runs = [run for item in session.items if (run := run_of(item)) is not None]
        # what the resumed run has recorded itself is not recorded again
        due = [run for run in runs if not run.kept_attempts()]
        recorded = [run.name for run in due if find_recording(run.suite, run.name).exists()]
        if recorded:
            cases = f"{recorded[0]} has" if len(recorded) == 1 else f"{recorded[0]} and {len(recorded) - 1} more have"
            advice = "select cases without one, or record on your machine and approve the change (packbench accept)"
            refuse(session.config, f"--packbench-mode=record: CI is set, and {cases} a recording; {advice}")


def _fixtures_of(suites: Iterable[Suite]) -> dict[str, Callable[[pytest.Collector, Collector], pytest.Directory]]:
    """Return what collects the folders of recordings and of controls, by path, of suites with controls."""
    found: dict[str, Callable[[pytest.Collector, Collector], pytest.Directory]] = {}
    for suite in suites:
        if os.path.lexists(suite.controls_path) and suite.controls_path.parent.is_dir():
            # most suites have none
            from pytest_packbench.pytest_plugin.controls import ControlFolder, FixturesFolder

            for kind, path in ((FixturesFolder, suite.controls_path.parent), (ControlFolder, suite.controls_path)):
                found[str(path)] = partial(_folder_at, kind, suite, path)
    return found


def _folder_at(kind: Any, suite: Suite, path: Path, parent: pytest.Collector, collector: Collector) -> pytest.Directory:
    folder: pytest.Directory = kind.from_parent(parent, path=path, suite=suite, collector=collector)
    return folder


def _is_run(item: pytest.Item) -> TypeGuard[CaseItem]:
    """Whether the target is called for an item."""
    if not isinstance(item, CaseItem):
        return False
    run = item.packbench_run
    return not run.problem and run.loaded is not None and run.loaded.case.notes.skip is None


def _expected_of(run: CaseRun) -> tuple[Any] | None:
    """Return the `expected` of a case, also of one that is not valid; None if it isn't known."""
    if run.loaded is not None:
        return (run.loaded.case.expected,)
    location = find_case(str(run.path), run.name)
    try:
        data = parse_json(read_case_bytes(location)) if location is not None else None
    except (OSError, ValueError):
        return None
    return (data["expected"],) if isinstance(data, dict) and "expected" in data else None


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
