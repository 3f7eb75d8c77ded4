"""The acceptance policy of a suite: all that decides whether it passes; and what of it became looser since a base.

A policy is a tree of values that is read from a folder. A commit of the git repository is unpacked into a folder, so
that both sides are read alike, and a run has stored its policy. One table says for each place in the tree what a change
is called, and when it makes the policy tighter.

For the plugin and for `packbench gate`.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shlex
import subprocess
import sys
from bisect import bisect_left
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_packbench.cases.finder import (
    SUFFIXES,
    CaseLocation,
    Project,
    file_paths,
    find_suites,
    is_hidden,
    iter_cases,
    recording_kind,
    recordings_in,
    suite_names,
)
from pytest_packbench.cases.load import JsonError, case_file_sha256, parse_json, read_located
from pytest_packbench.files import LFS, LIMITS, RECORDING, canonical_sha256, format_size, read_regular
from pytest_packbench.model.errors import json_pointer, pluralize, single_spaced
from pytest_packbench.model.report import (
    CHANGES_NAME,
    POLICY_VERSION,
    AllowedChange,
    PolicyChange,
    PolicyError,
    PolicyOutcome,
    same,
    value_text,
)
from pytest_packbench.model.run import BUNDLED, Run
from pytest_packbench.model.suite import BASELINE_NAME, CHANGES, CONFIG_NAME, CONTROLS, FIXTURES, Suite, SuiteConfig
from pytest_packbench.packs import functions_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.pack import Pack

    Place = tuple[str | int, ...]


_GIT = ("git", "-C")
_LINK, _SUBMODULE = "120000", "160000"
_FILE_LIMIT = LIMITS["policy"]
# a link that leads into itself makes a path longer and longer
_LONGEST_PATH = 1_024
_FETCH = "fetch it, with actions/checkout by fetch-depth: 0, or with git fetch --unshallow"


class _Entry(NamedTuple):
    """What a commit has at a path: its mode, its object, and a process of git that answers what the object contains."""

    mode: str
    object_id: str
    blobs: subprocess.Popen[bytes]


class CommitFolder:
    """A folder of a commit, with those files that were asked for.

    Files of a submodule are those of its commit, from its repository in the checkout.

    Args:
        repository: the top folder of the repository, absolute.
        commit: the id of the commit.
        prefix: the path of the folder from there.
        top: an empty folder, in which each file has its path from the top of the repository.
        processes: ends the processes of git that read objects.

    Raises:
        PolicyError: the commit can't be read.
    """

    def __init__(self, repository: Path, commit: str, prefix: str, top: Path, processes: ExitStack) -> None:
        self.folder = top / prefix
        self._repository = repository
        self._commit = commit[:12]
        self._prefix = prefix
        self._top = top
        self._processes = processes
        self._entries: dict[str, _Entry] = {}
        self._seen: set[str] = set()
        self._list(repository, commit, "")
        # links may lead to where they may in the repository
        (top / ".git").mkdir()

    def unpack(self, path: str) -> Path:
        """Write a file, or all files of a folder, and where symbolic links there lead.

        Args:
            path: from `folder`; may contain links, and need not exist.

        Returns:
            Where it is now.

        Raises:
            PolicyError: a file can't be read, or the path or a link leads out of the repository.
        """
        pending = [posixpath.join(self._prefix, path)]
        while pending:
            wanted = posixpath.normpath(pending.pop())
            if wanted in self._seen:
                continue
            if wanted.split("/")[0] in {"..", ""}:
                raise PolicyError(f"{wanted} is outside of the repository; name a run")
            self._seen.add(wanted)
            self._open_submodules(wanted)
            for name in (*map(str, PurePosixPath(wanted).parents), *self._below(wanted)):
                target = self._write(name, wanted) if name in self._entries else None
                if target is not None:
                    pending.append(target + wanted[len(name) :])
        return self.folder / path

    def _list(self, repository: Path, commit: str, start: str) -> None:
        """Add the entries of a commit, whose paths begin with `start`."""
        listed = _git(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
        blobs = self._processes.enter_context(
            subprocess.Popen(  # noqa: S603 - without a shell, and its input is ids of objects
                [*_GIT, str(repository), "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        )
        for line in filter(None, listed.split(b"\0")):
            head, _, name = line.partition(b"\t")
            mode, _, object_id = head.decode("ascii").split(" ")
            self._entries[start + os.fsdecode(name)] = _Entry(mode, object_id, blobs)
        self._paths = sorted(self._entries)

    def _open_submodules(self, wanted: str) -> None:
        """Add the entries of the submodules that contain a path, or that are in a folder."""
        while found := [
            name for name in (*map(str, PurePosixPath(wanted).parents), *self._below(wanted)) if self._is_module(name)
        ]:
            for name in found:
                folder, commit = self._repository / name, self._entries.pop(name).object_id
                if not (folder / ".git").exists():
                    raise PolicyError(f"{name}: the submodule is not checked out; run git submodule update --init")
                self._list(folder, find_commit(folder, commit), f"{name}/")

    def _is_module(self, name: str) -> bool:
        return name in self._entries and self._entries[name].mode == _SUBMODULE

    def names(self, path: str) -> list[str]:
        """Return the names of the files and folders in a folder, sorted.

        Args:
            path: as for `unpack`.

        Raises:
            PolicyError: as for `unpack`.
        """
        # there is no such file, so that only the links on the way are written
        inside = self.unpack(posixpath.join(path, ".git")).parent
        real = os.path.relpath(os.path.realpath(inside), os.path.realpath(self._top)).replace(os.sep, "/")
        start = "" if real == "." else f"{real}/"
        return sorted({name.removeprefix(start).partition("/")[0] for name in self._below(real)})

    def _below(self, path: str) -> Iterator[str]:
        """Yield the path of a file, or the paths of all files in a folder."""
        start = "" if path == "." else f"{path}/"
        if path in self._entries:
            yield path
        for position in range(bisect_left(self._paths, start), len(self._paths)):
            if not self._paths[position].startswith(start):
                break
            yield self._paths[position]

    def _write(self, name: str, wanted: str) -> str | None:
        """Write a file on the way to a wanted path unless it is there; return where a link leads, None for no link."""
        mode, short = self._entries[name].mode, self._commit
        parents = map(str, PurePosixPath(name).parents)
        if posixpath.isabs(name) or ".." in name.split("/") or not self._entries.keys().isdisjoint(parents):
            raise PolicyError(f"{name}: in {short} a path that no checkout has; name a run instead")
        path = self._top / name
        if mode != _LINK:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._content(name))
            return None
        text, folder = os.fsdecode(self._content(name)), posixpath.dirname(name)
        target = posixpath.normpath(posixpath.join(folder, text))
        if posixpath.isabs(target) or target.split("/")[0] == ".." or len(wanted) > _LONGEST_PATH:
            raise PolicyError(f"{name}: in {short} a link out of the repository; name a run instead")
        if not path.is_symlink():
            path.parent.mkdir(parents=True, exist_ok=True)
            # without steps back inside, which another link could turn into steps out of the folder
            path.symlink_to(posixpath.relpath(target, folder or "."))
        return target

    def _content(self, path: str) -> bytes:
        _, object_id, blobs = self._entries[path]
        requests, answers = blobs.stdin, blobs.stdout
        assert requests is not None and answers is not None  # noqa: PT018, S101 - both are pipes
        requests.write(f"{object_id}\n".encode())
        requests.flush()
        head = answers.readline().split()
        if len(head) != 3:  # noqa: PLR2004 - id, kind, size
            raise PolicyError(f"{path}: the object {object_id[:12]} is missing in this clone; {_FETCH}")
        size = int(head[2])
        if size > _FILE_LIMIT.size:
            wrong = f"is larger than {format_size(_FILE_LIMIT.size)}"
            raise PolicyError(f"{path}: in {self._commit} it {wrong}; {_FILE_LIMIT.advice}, or name a run")
        raw = answers.read(size + 1)[:size]
        if raw.startswith(LFS):
            raise PolicyError(f"{path}: is stored in Git LFS, where git can't read it; name a run as the base")
        return raw


@contextmanager
def commit_folder(folder: Path, commit: str) -> Iterator[CommitFolder]:
    """Make a folder for what a commit has of a folder, which is removed at the end.

    Args:
        folder: the folder in the repository, absolute.
        commit: the id of the commit.

    Raises:
        PolicyError: the commit can't be read.
        OSError: the folder can't be written.
    """
    repository, prefix, *_ = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel", "--show-prefix")).split("\n")
    with TemporaryDirectory(prefix="packbench-") as top, ExitStack() as processes:
        yield CommitFolder(Path(repository), commit, prefix.rstrip("/"), Path(top), processes)


def find_commit(folder: Path, ref: str) -> str:
    """Return the id of the commit that a name stands for.

    Raises:
        PolicyError: there is none here, or no repository, or no git.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    found = _git(folder, *words, missing=f"no commit {ref} here; {_FETCH}")
    return found.decode("ascii").strip().splitlines()[-1]


def left_at(folder: Path, commit: str, ref: str) -> tuple[str, bool]:
    """Return the commit that a suite is compared with, and whether it is the commit that is checked out.

    Of a branch that went on since, it is the commit at which the checked-out one left it.

    Args:
        folder: a folder in the repository.
        commit: the id of the commit that the user names.
        ref: its name.

    Raises:
        PolicyError: the history between them is missing.
    """
    missing = f"{ref} and HEAD have no common commit in this clone; {_FETCH}"
    base = _git(folder, "merge-base", commit, "HEAD", missing=missing).decode("ascii").strip()
    return base, base == find_commit(folder, "HEAD")


def _git(folder: Path, *arguments: str, missing: str = "") -> bytes:
    """Return what a git command prints.

    Args:
        folder: a folder in the repository.
        arguments: of the command.
        missing: what it says that prints no error when it finds nothing.

    Raises:
        PolicyError: it failed, or there is no git.
    """
    try:
        done = subprocess.run(  # noqa: S603 - without a shell, and no argument is taken for an option
            [*_GIT, str(folder), *arguments],
            capture_output=True,
            check=False,
            env=_environment(),
        )
    except OSError as error:
        raise PolicyError(f"git can't be started ({error.strerror}); install it, or name a run") from None
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        advice = f"git {arguments[0]}: {message}; run it in a git repository, or name a run"
        raise PolicyError(advice if message else missing)
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


_LIMIT = LIMITS["policy"]
_BASELINE_LIMIT = LIMITS[BASELINE_NAME]._replace(hashed=True)
_OWN_FILES = frozenset({CONFIG_NAME, BASELINE_NAME, CHANGES_NAME})
_FUNCTION = r'"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*"'
# they name the pipeline under test, which changes are tested for, not decided by
_NO_RULES = frozenset({"target", "guards", "backend", "model", "description"})
DEFAULT_SETTINGS = {
    "gate": "case",
    "stale": "error",
    "baseline_optional": "no",
    "fail_on": "",
    "baseline": "none",
    "root": "storage/benchmarks",
    "target": "",
    "backend": "",
    "model": "",
    "trials": "1",
    "mode": "fixture",
    "guard": "",
}
"""The settings that decide what fails a run, and what it tests, with their defaults."""
_CONFIGURED = ("file", "gate", "stale", "baseline_optional", "root", "suite")
"""Those that a configuration file decides."""
HOOKS = ("target", "guards", "judges")
"""The hooks that decide what is tested, without their prefix."""
_HOOK = f"pytest_packbench_({'|'.join(HOOKS)})".encode()
_CONTROL = f"{CONTROLS}/"
_YES = frozenset({"yes", "true", "1"})
# where pytest looks for its configuration, in this order, and the table in which it is
_CONFIGURATIONS = {
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "tool.pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
# an option of this plugin among words that are joined by null characters; an option behind it is not its value
_OPTIONAL = "baseline-optional"
_OPTION = r"(?:^|\0)--packbench-([a-z-]+)(?:(?:=|\0(?!-))([^\0]*))?"

Policy: TypeAlias = dict[str, Any]
"""The acceptance policy of a suite, plain JSON but for `cases`. A run stores the first eight of these parts:

- `version`: that of the format.
- `config`: the content of `suite.yaml` with its defaults.
- `files`: hashes of the other files in the suite's folder, by path from there.
- `code`: hashes of the project's files with code of the pack, by path from the project's folder.
- `hooks`: hashes of the project's files with hooks for target, guards or judges, likewise.
- `recordings`: hashes of the recordings by path under `fixtures` without suffix; for a run, those of its cases.
- `settings`: the settings that decide what fails a run, by name.
- `baseline`: the committed baseline: its hash, or its content; None without one.
- `cases`: the cases by id, as `PolicyCase`.
- `suites`: the suites in the folder of suites, each by its name; none where a run is compared.
- `pipeline`: what a run tested: `pack version`, and as far as they are known `target`, `model` and `guards`.
"""


class PolicyCase(NamedTuple):
    """A case, as acceptance policies are compared.

    Attributes:
        file: its file, from the folder of the suite.
        sha256: the hash of its content; None if it can't be read.
        location: where it can be read; None for that of a run, which stores no content.
    """

    file: str
    sha256: str | None
    location: CaseLocation | None = None


class PolicyBase(NamedTuple):
    """What acceptance policies are compared with: a commit or a run.

    Attributes:
        label: what it is, in a few words.
        name: the id of the commit, or of the run.
        reports: the folder of reports that has the run; None for a commit.
        note: what to know about it, in one line; empty if there is nothing.
    """

    label: str
    name: str
    reports: Path | None = None
    note: str = ""


def open_base(name: str, project: Project, output: Path) -> PolicyBase:
    """Find what acceptance policies are compared with.

    Args:
        name: a commit, branch or tag of the git repository, the id of a run, or its path.
        project: the project.
        output: the folder of reports, absolute.

    Raises:
        PolicyError: there is no such commit or run here; one line with what to do.
    """
    from pytest_packbench.model.errors import StoredRunError
    from pytest_packbench.runs.folder import find_run_folder, is_run_id

    if is_run_id(name):
        return PolicyBase(f"run {name}", name, output)
    try:
        commit = find_commit(project.rootdir, name)
    except PolicyError:
        # a commit first: a change could contain a folder with the name of a branch
        for path in (project.rootdir / name, Path(name)):
            with suppress(StoredRunError, OSError):
                folder = find_run_folder(path, output).resolve()
                return PolicyBase(f"run {folder.name}", folder.name, folder.parent.parent)
        raise
    commit, is_head = left_at(project.rootdir, commit, name)
    if is_head and os.environ.get("CI"):
        raise PolicyError(
            f"{name} is the commit that is checked out, so that nothing would be compared; name the branch that the "
            "change goes to, such as origin/main, or HEAD^1 where a merge commit is checked out"
        )
    note = f"{name} is the commit that is checked out: only changes that are not committed are seen" if is_head else ""
    return PolicyBase(f"{name} ({commit[:12]})", commit, note=note)


def compare_policy(  # noqa: PLR0917 - the last two are known to a run only
    base: PolicyBase,
    suite: Suite,
    pack: Pack,
    project: Project,
    more: Iterable[PolicyChange] = (),
    run: Run | None = None,
) -> PolicyOutcome:
    """Compare the acceptance policy of a suite with that of a base.

    Args:
        base: what `open_base` returned.
        suite: the suite.
        pack: its pack.
        project: the project.
        more: changes that are known from the run, not from files.
        run: the run that is judged; None without one.

    Returns:
        The outcome; what can't be read is one of its problems.
    """
    from pytest_packbench.cases.load import read_changes

    if suite.bundled:
        return PolicyOutcome(base.label, notes=("the suite comes from the installed package: nothing is compared",))
    path = suite.path / CHANGES_NAME
    try:
        allowed = read_changes(path, source=CHANGES_NAME).changes if path.is_file() else ()
        tested = {"pack version": pack.version} | ({} if run is None else pipeline_of(run))
        now = {**policy_of(suite, pack, project), "suites": {}, "pipeline": tested}
        with ExitStack() as folders:
            if base.reports is None:
                now |= {**suite_policy(suite.path), "suites": _suites(project.root)}
                commit = folders.enter_context(commit_folder(project.rootdir, base.name))
                old, note = _policy_in(commit, base, suite, now, project)
            else:
                old, note = run_policy(base.reports / suite.record_name / base.name, suite.record_name, now)
                here = suite_policy(suite.path)
                if run is None:
                    # the others are options of a run, which the command does not have
                    now["settings"] = {name: now["settings"][name] for name in _CONFIGURED}
                recordings = {
                    name: here["recordings"][name] for name in old["recordings"] if name in here["recordings"]
                }
                now |= {"cases": here["cases"], "recordings": recordings}
            changes, problems = allow([*policy_changes(old, now), *more], allowed)
    except (ValueError, OSError) as error:
        return PolicyOutcome(base.label, problems=(single_spaced(str(error)),))
    except (TypeError, AttributeError, KeyError) as error:
        # what a run stored is a file, which may have been changed
        problem = f"the acceptance policy of {base.label} can't be compared ({type(error).__name__})"
        return PolicyOutcome(base.label, problems=(f"{problem}; restore its report.json, or name a commit",))
    return PolicyOutcome(base.label, changes, problems, tuple(filter(None, (base.note, note))))


# -- the policy of a folder, here or of a commit -----------------------------------------------------------------------


def policy_of(suite: Suite, pack: Pack, project: Project) -> Policy:
    """Return what a run stores of the acceptance policy of its suite.

    Cases, with their recordings, are in the rows of its report: there may be a million, and few files are read.

    Raises:
        OSError: a file can't be read.
    """
    config = _dumped(suite.config)
    hashes = {"files": {}, "recordings": {}} if suite.bundled else _suite_hashes(suite.path, whole=False)
    path = suite.baseline_path
    modules = {kind.__module__ for kind in type(pack).__mro__} | function_modules(config)
    sources = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return {
        "version": POLICY_VERSION,
        "config": config,
        "files": hashes["files"],
        "code": code_hashes(project.rootdir, sources),
        "hooks": _hooks(project.rootdir, project.root, project.hooks),
        "recordings": hashes["recordings"],
        "settings": dict(project.settings),
        "baseline": text_sha256(read_regular(path, _BASELINE_LIMIT)) if path.is_file() else None,
    }


def suite_policy(folder: Path) -> Policy:
    """Return what the acceptance policy of a suite depends on in its folder, but for `suite.yaml`.

    Args:
        folder: the folder of the suite, which has to be there as long as cases are compared.

    Raises:
        OSError: a file that is neither a case nor a recording can't be read.
    """
    path = folder / BASELINE_NAME
    baseline: Any = None
    if path.is_file():
        raw = read_regular(path, _BASELINE_LIMIT)
        try:
            baseline = parse_json(raw, _BASELINE_LIMIT)
        except JsonError:
            baseline = text_sha256(raw)
    cases: dict[str, PolicyCase] = {}
    for location in iter_cases(folder / "cases"):
        # of two with one id the first one, since the run reports it
        if location.name not in cases:
            cases[location.name] = PolicyCase(location.within(folder), case_file_sha256(location), location)
    return {**_suite_hashes(folder, whole=True), "baseline": baseline, "cases": cases}


def _suite_hashes(suite: Path, *, whole: bool) -> dict[str, dict[str, str]]:
    """Return the hashes of the files of a suite that are no cases: `files` by path, `recordings` by key.

    Links are followed, and what is hidden is skipped, as cases are found.

    Args:
        suite: the folder of the suite.
        whole: whether all files are read; else those below `cases` and `fixtures` are not, because there may be a
            million, but those in folders under `fixtures`, such as controls, which are recordings of no case.
    """
    # these two may themselves be links
    apart = [suite / "cases", suite / FIXTURES]
    inner = sorted(path for path in (suite / FIXTURES).glob("*") if path.is_dir() and not is_hidden(path.name))
    found = (path for folder in (suite, *(apart if whole else inner)) for path in file_paths(folder, skip=apart))
    paths = [Path(path).relative_to(suite).as_posix() for path in found]
    others = [path for path in paths if not (_is_known(path) or recording_kind(path))]
    recordings = recordings_in(suite, paths)
    return {
        "files": _hashes({path: suite / path for path in others}),
        "recordings": {name: _hash_of_recording(name, location) for name, location in recordings.items()},
    }


def _is_known(path: str) -> bool:
    """Return whether a file of a suite is a case, compared by what is in it, or for people."""
    is_case = path.startswith("cases/") and path.endswith(SUFFIXES)
    return is_case or path in _OWN_FILES or posixpath.basename(path).startswith("README")


def _hash_of_recording(name: str, location: CaseLocation) -> str:
    """Return the hash of a recording, or of a control without its words for people.

    One that can't be read counts as empty: the run reports it as an error.
    """
    raw = b""
    with suppress(OSError):
        raw = read_located(location, _LIMIT._replace(inside=True))
    try:
        data = parse_json(raw, RECORDING)
    except JsonError:
        return text_sha256(raw)
    if name.startswith(_CONTROL) and isinstance(data, dict):
        data = {key: value for key, value in data.items() if key not in {"description", "$schema"}}
    return canonical_sha256(data)


def text_sha256(raw: bytes) -> str:
    """Return the hash of a file whose line ends may differ between systems."""
    return hashlib.sha256(raw.replace(b"\r\n", b"\n")).hexdigest()


def _hashes(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: text_sha256(read_regular(path, _LIMIT)) for name, path in files.items() if path.is_file()}


def own_files(home: Path, files: Iterable[str | Path | None]) -> dict[str, Path]:
    """Return those of some files that are Python files of the project, sorted: path from its folder to the file.

    Args:
        home: the project's folder, here or in a commit.
        files: the files, absolute or from there; None for a module without one.
    """
    # without following links
    paths = (Path(os.path.abspath(home / file)) for file in files if file is not None)  # noqa: PTH100
    own = sorted(path for path in paths if path.suffix == ".py" and home in path.parents)
    return {path.relative_to(home).as_posix(): path for path in own if "site-packages" not in path.parts}


def code_hashes(home: Path, modules: Iterable[str | Path | None]) -> dict[str, str]:
    """Return the hashes of the modules that are the project's; of one in a package all Python files in its folder.

    Args:
        home: the project's folder, here or in a commit.
        modules: as the files for `own_files`.
    """
    own = own_files(home, modules)
    packages = {path.parent for path in own.values()} - {home}
    beside = (path for folder in packages if (folder / "__init__.py").exists() for path in folder.glob("*.py"))
    return _hashes(own_files(home, (*own, *beside)))


def function_modules(config: Mapping[str, Any]) -> set[str]:
    """Return the modules of the functions that a suite's rules name as `module:function`."""
    rules = {key: value for key, value in config.items() if key not in _NO_RULES}
    return {*re.findall(_FUNCTION, json.dumps(rules, ensure_ascii=False))}


def _hooks(home: Path, root: Path, known: Iterable[str]) -> dict[str, str]:
    """Return the hashes of files that decide with hooks what is tested.

    Args:
        home: the project's folder, here or in a commit.
        root: the folder of suites there.
        known: files in which hooks were found, as for `own_files`; others are each conftest.py that pytest may read
            for a suite, if it has one.
    """
    folders = (home, *home.glob("test*"), root, *root.parents)
    read = own_files(home, (folder / "conftest.py" for folder in folders)).items()
    with_hook = (name for name, path in read if path.is_file() and re.search(_HOOK, path.read_bytes()))
    return _hashes(own_files(home, (*known, *with_hook)))


def _suites(root: Path) -> dict[str, str]:
    return dict.fromkeys(find_suites(root), PRESENT)


def _dumped(config: SuiteConfig) -> dict[str, Any]:
    """Return the content of a `suite.yaml` as plain JSON, with all gates that count."""
    dumped = config.model_dump(mode="json")
    target = _without_secrets(config.target or "") or None
    return {**dumped, "target": target, "gates": [gate.model_dump(mode="json") for gate in config.all_gates()]}


def _without_secrets(target: str) -> str:
    """Return a target's specification without the login of its URL and the secret options of its command."""
    from pytest_packbench.model.redaction import Redactor, secrets_of_target

    return Redactor(values=secrets_of_target(target)).text(target) if target else target


def policy_settings(values: Mapping[str, Any], suites: Iterable[str], file: str) -> dict[str, Any]:
    """Return the settings that decide what fails a run in the form in which they are compared.

    Args:
        values: the settings by name, as the user gave them; absent ones have their defaults.
        suites: the suites that the configuration file names.
        file: the configuration file, for users; empty without one.
    """
    given = {name: values.get(name) or default for name, default in DEFAULT_SETTINGS.items()}
    return {
        **{name: str(value) for name, value in given.items()},
        "baseline_optional": "yes" if str(given["baseline_optional"]).lower() in _YES else "no",
        "fail_on": sorted(suite_names("".join(str(given["fail_on"]).split()))),
        "root": posixpath.normpath(str(given["root"]).replace(os.sep, "/")),
        "target": _without_secrets(str(given["target"])),
        "guard": ",".join(suite_names(given["guard"])),
        "suite": sorted(suites),
        "file": file,
    }


# -- what only a base needs: a commit, a run ---------------------------------------------------------------------------


def _policy_in(
    commit: CommitFolder, base: PolicyBase, suite: Suite, now: Policy, project: Project
) -> tuple[Policy, str]:
    """Return the policy in a commit, and what else to know."""
    home = commit.folder
    for name in _CONFIGURATIONS:
        commit.unpack(name)
    settings = _settings_in(home)
    root = settings["root"]
    start, top = (project.root, root) if suite.path.is_relative_to(project.root) else (project.rootdir, "")
    folder = posixpath.join(top, os.path.relpath(suite.path, start).replace(os.sep, "/"))
    tests = (name for name in commit.names("") if name.startswith("test"))
    packages = (posixpath.dirname(path) for path in now["code"] if path.endswith("/__init__.py"))
    for path in (
        folder,
        *now["hooks"],
        *now["code"],
        *(f"{root}/{name}/{CONFIG_NAME}" for name in commit.names(root)),
        *(f"{name}/conftest.py" for name in (*tests, root, *map(str, PurePosixPath(root).parents))),
        *(f"{package}/{name}" for package in packages for name in commit.names(package) if name.endswith(".py")),
    ):
        commit.unpack(path)
    policy = {
        **now,
        "hooks": _hooks(home, home / root, now["hooks"]),
        "settings": settings,
        "suites": _suites(home / root),
    }
    if not (home / folder / CONFIG_NAME).is_file():
        return {**policy, "cases": {}, "recordings": {}, "baseline": None}, f"{base.label} has no suite {suite.name}"
    policy |= {
        "config": _config_in(home / folder, suite),
        "code": code_hashes(home, now["code"]),
        **suite_policy(home / folder),
    }
    added = len(now["cases"].keys() - policy["cases"].keys())
    return policy, f"{pluralize(added, 'case')} added, which may change a rate" if added else ""


def _config_in(folder: Path, suite: Suite) -> Any:
    """Return the content of a `suite.yaml` with its defaults; its hash where the rules of today's pack refuse it."""
    from pytest_packbench.cases.load import read_config
    from pytest_packbench.model.errors import SuiteError

    with functions_into([]), suppress(SuiteError):
        return _dumped(read_config(folder, {suite.config.pack: type(suite.config)}, source=CONFIG_NAME))
    return text_sha256(read_regular(folder / CONFIG_NAME, LIMITS[CONFIG_NAME]))


def _settings_in(home: Path) -> dict[str, Any]:
    """Return the settings in the configuration file that pytest would choose.

    Args:
        home: the project's folder.

    Raises:
        PolicyError: the file can't be read.
    """
    for name, table in _CONFIGURATIONS.items():
        try:
            values = _table(home / name, table)
        except ValueError as error:
            raise PolicyError(f"{name} in the base can't be read: {' '.join(str(error).split())}") from None
        if values is None:
            continue
        options = re.findall(_OPTION, "\0".join(_words(values.get("addopts", ()))))
        given = {key.removeprefix("packbench_"): value for key, value in values.items() if key.startswith("packbench_")}
        guards = [value for option, value in options if option == "guard"] or _words(given.get("guard", ()))
        suites = suite_names(_words(given.get("suite", ())))
        # the only one without a value
        given |= {option.replace("-", "_"): "yes" if option == _OPTIONAL else value for option, value in options}
        return policy_settings({**given, "guard": guards}, suites, name)
    return policy_settings({}, (), "")


def _table(path: Path, table: str) -> dict[str, Any] | None:
    """Return the values of pytest in a configuration file; None where pytest takes another one."""
    if not path.is_file():
        return None
    import tomllib

    from iniconfig import IniConfig, ParseError

    text = read_regular(path, LIMITS["configuration"]).decode("utf-8-sig")
    try:
        found: Any = tomllib.loads(text) if path.suffix == ".toml" else dict(IniConfig(path.name, data=text).sections)
    except ParseError as error:
        raise ValueError(str(error)) from None
    for key in table.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict):
        # pyproject.toml has a table in this one as well
        return {**found, **found.get("ini_options", {})}
    # pytest takes a file of its own even without a table
    return {} if path.name.startswith(("pytest.", ".pytest.")) else None


def _words(value: Any) -> list[str]:
    return shlex.split(value) if isinstance(value, str) else list(map(str, value))


def run_policy(folder: Path, suite: str, now: Policy) -> tuple[Policy, str]:
    """Read the acceptance policy of a run.

    Args:
        folder: its folder.
        suite: the name of the suite, without `bundled/`.
        now: the policy to compare with it, for what the run does not know.

    Returns:
        The policy, whose cases have hashes only, and what else to know.

    Raises:
        PolicyError: the run is not of the suite, is partial, or stores no policy.
        StoredRunError: its report can't be read.
        OSError: likewise.
    """
    from pytest_packbench.runs.reading import open_run

    if not folder.is_dir():
        raise PolicyError(f"there is no run {folder.name} of suite {suite} here; name another run, or a commit")
    report = open_run(folder, checked=False)
    run, header = report.run, report.stated
    if run.suite.removeprefix(BUNDLED) != suite:
        raise PolicyError(f"run {run.run_id} is of suite {run.suite}; expected a run of {suite}")
    if header.policy_failed:
        raise PolicyError(
            f"run {run.run_id} itself failed for its acceptance policy; name a run that passed, or a commit"
        )
    if run.partial:
        raise PolicyError(f"run {run.run_id} is partial ({run.partial}); expected a complete run")
    if header.policy is None or header.policy["version"] != POLICY_VERSION:
        raise PolicyError(f"run {run.run_id} stores no acceptance policy; run the suite again, or name a commit")
    cases: dict[str, PolicyCase] = {}
    recordings = dict(header.policy["recordings"])
    for result in report.results:
        case = result.case
        cases.setdefault(case.case_id, PolicyCase(case.file, case.case_sha256))
        if run.mode == "fixture" and result.attempt.cassette_sha256 is not None:
            recordings[case.case_id] = result.attempt.cassette_sha256
    note = "" if run.mode == "fixture" else f"recordings are not compared: the base is a run in {run.mode} mode"
    tested = {"pack version": run.pack_version, **pipeline_of(run)}
    unknown = {"hooks": now["hooks"], "suites": now["suites"]}
    found = {"recordings": recordings, "cases": cases, "pipeline": tested}
    return {**unknown, **header.policy, **found}, note


def pipeline_of(run: Run) -> dict[str, str]:
    """Return what a run tested, as it was found in the end."""
    return {
        "target": run.target,
        "model": " / ".join(filter(None, (run.backend, run.model))),
        "guards": ",".join(run.settings.get("guards", ())),
    }


# -- comparing ---------------------------------------------------------------------------------------------------------

MISSING: Any = object()
"""Stands for a value that is not there, while values are compared; no value of a file equals it."""
ABSENT, PRESENT, REMOVED = "absent", "present", "removed"
"""What a change states instead of a value: of what is not there, of a whole case, and of one that is gone."""
_OF_CASE = "that of the case"
_LONGEST_VALUE, _DIGEST_LENGTH = 60, 16


class _Part(NamedTuple):
    """A part of two policies that is compared.

    Attributes:
        kind: what it is; with the place in it, what `_RULES` are about.
        file: its file, for users.
        key: how a change in it is named, before the place in it.
        old: its value in the base, plain JSON; `MISSING` if there is none.
        new: its value now, likewise.
        case: the id of the case that it is about; empty if it is about none.
    """

    kind: str
    file: str
    key: str
    old: Any
    new: Any
    case: str = ""


def policy_changes(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    """Yield the changes of an acceptance policy that are not known to make it tighter.

    Args:
        base: the policy to compare with.
        now: the policy as it is now.
    """
    for part in (*_named_parts(base, now), *_suite_parts(base, now), *_case_parts(base, now)):
        for place, old, new in differences(part.old, part.new):
            pointer = json_pointer(place)
            place_in_rules = f"{part.kind}{pointer}"
            what, *tighter = next(rest for rule, *rest in _RULES if re.fullmatch(rule, place_in_rules, re.DOTALL))
            if what and not any(is_tighter(old, new) for is_tighter in tighter):
                verb = "added" if old is MISSING else "removed" if new is MISSING else "changed"
                key = " ".join(filter(None, (part.key, pointer)))
                is_entry = part.kind == "baseline" and "cases" in place[:1] and len(place) > 1
                case = _case_of(str(place[1])) if is_entry else part.case
                yield PolicyChange(what.format(verb), part.file, key, shown(old), shown(new), case)


def allow(
    changes: Sequence[PolicyChange], allowed: Sequence[AllowedChange]
) -> tuple[tuple[PolicyChange, ...], tuple[str, ...]]:
    """Give the changes that entries allow their reason.

    Returns:
        All changes, and a line for each entry that is about none of them.
    """
    reasons = (next((entry.reason for entry in allowed if entry.allows(change)), "") for change in changes)
    marked = (change._replace(reason=reason) for change, reason in zip(changes, reasons, strict=True))
    problems: list[str] = []
    for number, entry in enumerate(allowed):
        if not any(map(entry.allows, changes)):
            place = " ".join(filter(None, (entry.case and f"case {entry.case}", entry.key)))
            problems.append(
                f"{CHANGES_NAME}: /changes/{number} ({place}): matches no change since the base; expected exactly its "
                "case, key, old and new value; remove an entry whose change the base has already"
            )
    return tuple(marked), tuple(problems)


def differences(old: Any, new: Any, place: Place = ()) -> Iterator[tuple[Place, Any, Any]]:
    """Yield where two JSON values differ: place, old and new value; lists of as many objects object by object.

    Args:
        old: the value before.
        new: the value now.
        place: the keys and indexes that lead to them.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key, before, after in _pairs(old, new):
            yield from differences(before, after, (*place, key))
    elif _has_objects(old) and _has_objects(new) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*place, number))
    elif MISSING in (old, new) or not same(old, new):
        yield place, old, new


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the names in two objects, each with both values."""
    return ((name, old.get(name, MISSING), new.get(name, MISSING)) for name in {**old, **new})


def _has_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _named_parts(base: Policy, now: Policy) -> Iterator[_Part]:
    """Yield the parts that are values by name."""
    configuration = now["settings"].get("file") or base["settings"].get("file") or "settings"
    for kind, (file, key) in _NAMED.items():
        for name, old, new in _pairs(base[kind], now[kind]):
            if kind not in _KNOWN_TO_BOTH or MISSING not in (old, new):
                yield _Part(f"{kind} {name}", file.format(name) or configuration, key.format(name), old, new)


def _suite_parts(base: Policy, now: Policy) -> Iterator[_Part]:
    """Yield the rules of the suite, its gates, and its committed baseline."""
    old, new = base["config"], now["config"]
    if isinstance(old, str):
        yield _Part("config/", CONFIG_NAME, CONFIG_NAME, old, new)
    else:
        yield _Part("config", CONFIG_NAME, "", _with_named_gates(old), _with_named_gates(new))
    old, new = (MISSING if policy["baseline"] is None else policy["baseline"] for policy in (base, now))
    if isinstance(old, dict) and isinstance(old.get("cases"), dict) and isinstance(new, dict):
        old, new = (_of_cases(baseline, now["cases"]) for baseline in (old, new))
    yield _Part("baseline", BASELINE_NAME, BASELINE_NAME, old, new)


def _case_parts(base: Policy, now: Policy) -> Iterator[_Part]:
    """Yield the cases, and the recordings: one more is no part, and that of a removed case is none of its own."""
    for case_id, case in base["cases"].items():
        new = now["cases"].get(case_id)
        if new is None:
            yield _Part("case gone", case.file, "", PRESENT, REMOVED, case_id)
        elif case.sha256 not in (None, new.sha256):
            if case.location and new.sha256:
                yield _Part("case", new.file, "", _content(case.location), _content(new.location), case_id)
            else:
                yield _Part("case", new.file, "case", case.sha256, new.sha256 or ABSENT, case_id)
    for name, old, new in sorted(_pairs(base["recordings"], now["recordings"])):
        was, is_now = (name in policy["cases"] for policy in (base, now))
        if (was or old is not MISSING) and (is_now or not was):
            kind = "control" if name.startswith(_CONTROL) else "recording"
            key, case_id = ("recording", name) if was or is_now else (f"recording {name}", "")
            yield _Part(kind, f"{FIXTURES}/{name}.json", key, old, new, case_id)


def _with_named_gates(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules with gates by what they bound, numbered if several bound the same, without what they leave open."""
    found: dict[str, dict[str, Any]] = {}
    for gate in map(_stated, config.get("gates", ())):
        kind = next((name for name in ("must_pass", *CHANGES) if name in gate), gate.get("metric"))
        first = name = " ".join((str(kind), *(f"{key} {gate[key]}" for key in ("depth", "by") if key in gate)))
        number = 1
        while name in found:
            number += 1
            name = f"{first} ({number})"
        found[name] = gate
    return {**config, "gates": found}


def _stated(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without what it leaves open."""
    return {key: inner for key, inner in value.items() if inner not in (None, [])}


def _of_cases(baseline: Mapping[str, Any], cases: Mapping[str, PolicyCase]) -> dict[str, Any]:
    """Return what a baseline states of its run and of the cases that there are: the entry of no other decides."""
    stated = baseline.get("cases")
    entries = stated.items() if isinstance(stated, dict) else ()
    known = ((test_id, entry, cases.get(_case_of(test_id))) for test_id, entry in entries)
    return {
        "run": baseline.get("run"),
        "cases": {test_id: _entry(entry, case.sha256) for test_id, entry, case in known if case is not None},
    }


def _case_of(test_id: str) -> str:
    return test_id.rpartition(":")[2]


def _entry(entry: Any, sha256: str | None) -> Any:
    """Return an entry of the baseline; another hash than that of the case would leave it out of each comparison."""
    if not isinstance(entry, dict):
        return entry
    stated = _stated(entry)
    if "sha256" in stated and stated["sha256"] in (sha256, _OF_CASE):
        # a file may have the words themselves
        stated["sha256"] = _OF_CASE if stated["sha256"] == sha256 else f"{_OF_CASE}, as a text"
    return stated


def _content(location: CaseLocation) -> dict[str, Any]:
    """Return the keys of a case, of its input the hash."""
    content = {key: value for key, value in parse_json(read_located(location)).items() if key != "$schema"}
    if "input" in content:
        content["input"] = canonical_sha256(content["input"])
    # a case without notes may get some
    return {"notes": {}, **content}


def _is_new(old: Any, _new: Any) -> bool:
    return old is MISSING


def _is_gone(_old: Any, new: Any) -> bool:
    return new is MISSING or new is None


def _is_more(old: Any, new: Any) -> bool:
    return MISSING not in (old, new) and set(old) <= set(new)


def _is_less(old: Any, new: Any) -> bool:
    # an earlier version may not have known what is empty now
    return new == [] or _is_more(new, old)


def _is_higher(old: Any, new: Any) -> bool:
    return _is_number(old) and _is_number(new) and bool(new >= old)


def _is_lower(old: Any, new: Any) -> bool:
    return _is_higher(new, old)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _becomes(*values: str) -> Callable[[Any, Any], bool]:
    return lambda _old, new: new in values


_RULES: tuple[tuple[Any, ...], ...] = (
    ("settings file", ""),
    ("settings (gate|stale|baseline_optional)", "setting softened", _becomes("case", "error", "no")),
    ("settings (fail_on|suite)", "setting softened", _is_more),
    ("settings baseline", "setting softened", lambda old, _new: old == "none"),
    ("settings root", "setting softened"),
    ("suites .*", "suite removed", _is_new),
    ("hooks .*", "hook changed"),
    ("(pipeline pack version|code .*)", "pack changed"),
    ("(settings|pipeline) .*", "pipeline changed"),
    ("files .*[.]py", "file changed"),
    ("files .*", "file changed", _is_new),
    ("config/(capture|description|prices)(/.*)?", ""),
    ("config/(backend|guards|model|target)(/.*)?", "pipeline changed"),
    ("config/thresholds(/.*)?", "threshold {}", _is_higher),
    ("config/trials(/.*)?", "trials rule changed", _becomes("all")),
    ("config/unknown_keys", "unknown keys ignored", _becomes("refuse")),
    ("config/(ignore|recording/(ignore_headers|unseen))", "ignored", _is_less),
    ("config/recording/ignore(/.*)?", "ignored", lambda _old, new: new == []),
    ("config/recording/tests_fallback", "fallback without an answer", lambda _old, new: new is not True),
    ("config/gates/[^/]*", "gate removed", _is_new),
    ("config/gates/.*/must_pass", "gate loosened", _is_more),
    ("config/gates/.*/(min|min_mean_change|confidence)", "gate loosened", _is_new, _is_higher),
    ("config/gates/.*/max[^/]*", "gate loosened", _is_new, _is_lower),
    ("config/gates/.*", "gate loosened"),
    ("config/.*", "scoring changed"),
    ("case gone", "case removed"),
    ("case/notes/(source|date|reviews)(/.*)?", ""),
    ("case/notes/(skip|xfail)", "case quarantined", _is_gone),
    ("case/[^/]*/threshold", "threshold {}", _is_higher),
    ("case/expected(/.*)?", "expectation changed"),
    ("case(/.*)?", "case changed"),
    ("control", "control {}"),
    ("recording", "recording {}"),
    ("baseline", "baseline changed", _is_new),
    ("baseline/run/(mode|target|trials|trials_rule|authored)(/.*)?", "baseline changed"),
    ("baseline/run/.*", ""),
    ("baseline/cases/[^/]*", "baseline loosened", _is_new),
    ("baseline/cases/[^/]*/(score|passed)", "baseline loosened", _is_new, _is_higher),
    ("baseline/cases/[^/]*/verdict", "baseline loosened", _becomes("passed")),
    ("baseline/cases/[^/]*/kind", "baseline loosened", _is_gone),
    ("baseline/cases/[^/]*/sha256", "baseline loosened", _becomes(_OF_CASE)),
    ("baseline/.*", "baseline loosened"),
)
"""By part and place, the first that fits: what a change is called, empty for what does not count, and what is tighter.

The last ones are functions of the old and the new value, of which one has to hold.
"""
_NAMED = {
    "settings": ("", "setting {}"),
    "suites": (f"{{}}/{CONFIG_NAME}", "suite {}"),
    "hooks": ("{}", "hook {}"),
    "pipeline": ("this run", "{} of the run"),
    "code": ("{}", "pack code {}"),
    "files": ("{}", "file {}"),
}
"""By part of the policy whose values have names: the file of a change, empty for the configuration, and its key."""
_KNOWN_TO_BOTH = ("settings", "pipeline")
"""The parts of which a name is compared only where both sides know it."""


def shown(value: Any) -> Any:
    """Return a value of a change: itself, for a long one, such as a hash, `sha256:` with the beginning of its hash."""
    if value is MISSING:
        return ABSENT
    is_long = len(value_text(value)) > _LONGEST_VALUE
    return f"sha256:{canonical_sha256(value)[:_DIGEST_LENGTH]}" if is_long else value
