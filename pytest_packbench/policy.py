"""The acceptance policy of a suite now, and what it is compared with: a commit of the git repository, or a run.

A policy is a tree of what decides whether the suite passes, and is read from a folder. A commit is a folder as well, so
that both are read alike, and a run has stored its policy. `analysis.policy` compares two of them.

For the plugin and for `packbench gate`.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import (
    LINES_SUFFIX,
    SUFFIXES,
    case_folders,
    case_lines,
    is_hidden,
    iter_cases,
    read_case_bytes,
    read_id,
)
from pytest_packbench.cases.load import JsonError, case_sha256, parse_json
from pytest_packbench.cases.packed import RECORDINGS
from pytest_packbench.limits import LIMITS, RECORDING, read_regular
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.policy import (
    CHANGES_NAME,
    POLICY_VERSION,
    CaseFacts,
    Policy,
    PolicyError,
    PolicyOutcome,
    same,
)
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, FIXTURES
from pytest_packbench.packs import functions_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_packbench.cases.git_tree import CommitFolder
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import AllowedChange, PolicyChange
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite, SuiteConfig

_LIMIT = LIMITS["policy"]
_BASELINE_LIMIT = LIMITS[BASELINE_NAME]._replace(hashed=True)
_CONTROLS = f"{FIXTURES}/controls/"
_OWN_FILES = frozenset({CONFIG_NAME, BASELINE_NAME, CHANGES_NAME})
_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
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
TESTED = ("target", "backend", "model", "guard", "trials", "mode")
"""The settings that decide what a run tests: none is stricter than another."""
HOOKS = ("target", "guards", "judges")
"""The hooks that decide what is tested, without their prefix."""
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
# pytest takes these even without a table
_ALWAYS = ("pytest.", ".pytest.")


class PolicyProject(NamedTuple):
    """A project as far as acceptance policies depend on it.

    Attributes:
        home: the folder that relative paths start from, pytest's rootdir, absolute.
        root: the folder of suites, absolute.
        settings: the settings as they count now, by `policy_settings`.
        packs: the packs to choose from, by name.
        output: the folder of reports, absolute.
        hooks: the files in which hooks for target, guards or judges were found.
    """

    home: Path
    root: Path
    settings: Mapping[str, Any]
    packs: Mapping[str, Pack]
    output: Path
    hooks: tuple[str, ...] = ()


class PolicyBase(NamedTuple):
    """What acceptance policies are compared with: a commit or a run.

    Attributes:
        label: what it is, in a few words.
        commit: the id of the commit; empty for a run.
        repository: the top folder of its repository, absolute.
        prefix: the project's folder from there.
        run: returns the folder of the run of a suite by its name; None for a commit.
        note: what to know about it, in one line; empty if there is nothing.
    """

    label: str
    commit: str = ""
    repository: Path = Path()
    prefix: str = ""
    run: Callable[[str], Path] | None = None
    note: str = ""


def policy_settings(values: Mapping[str, Any], suites: Iterable[str], file: str) -> dict[str, Any]:
    """Return the settings that decide what fails a run in the form in which they are compared.

    Args:
        values: the settings by name, as the user gave them; absent ones have their defaults.
        suites: the suites that the configuration file names.
        file: the configuration file, for users; empty without one.
    """
    given = {name: values.get(name) or default for name, default in DEFAULT_SETTINGS.items()}
    conditions = ("".join(part.split()) for part in str(given["fail_on"]).split(","))
    return {
        **{name: str(value) for name, value in given.items()},
        "baseline_optional": "yes" if str(given["baseline_optional"]).lower() in _YES else "no",
        "fail_on": sorted(filter(None, conditions)),
        "root": posixpath.normpath(str(given["root"]).replace(os.sep, "/")),
        "target": _without_secrets(str(given["target"])),
        "guard": _joined(given["guard"]),
        "suite": sorted(suites),
        "file": file,
    }


def _without_secrets(target: str) -> str:
    """Return a target's specification without the login of its URL and the secret options of its command."""
    from pytest_packbench.model.redaction import Redactor, secrets_of_target

    return Redactor(values=secrets_of_target(target)).text(target) if target else target


def _joined(names: str | Iterable[str]) -> str:
    """Return names, in one or several lists with commas, as one list in their order."""
    from pytest_packbench.cases.suites import suite_names

    return ",".join(suite_names(names))


def open_base(name: str, project: PolicyProject) -> PolicyBase:
    """Find what acceptance policies are compared with.

    Args:
        name: a commit, branch or tag of the git repository, the id of a run, or its path.
        project: the project.

    Raises:
        PolicyError: there is no such commit or run here; one line with what to do.
    """
    from pytest_packbench.cases.git_tree import base_commit, find_commit, repository_of
    from pytest_packbench.runs.folder import is_run_id

    if is_run_id(name):
        return PolicyBase(f"run {name}", run=lambda suite: project.output / suite / name)
    problem = ""
    try:
        top, prefix = repository_of(project.home)
        is_commit = find_commit(project.home, name) is not None
    except PolicyError as error:
        is_commit, problem = False, str(error)
    # a commit first: a change could contain a folder with the name of a branch
    if not is_commit:
        folder = _run_folder(name, project)
        if folder is not None:
            return PolicyBase(f"run {folder.name}", run=lambda suite: folder.parent.with_name(suite) / folder.name)
        if problem:
            raise PolicyError(f"{name}: {problem}")
    commit, is_head = base_commit(project.home, name)
    if is_head and os.environ.get("CI"):
        raise PolicyError(
            f"{name} is the commit that is checked out, so that nothing would be compared; name the branch that the "
            "change goes to, such as origin/main, or HEAD^1 where a merge commit is checked out"
        )
    note = f"{name} is the commit that is checked out: only changes that are not committed are seen" if is_head else ""
    return PolicyBase(f"{name} ({commit[:12]})", commit=commit, repository=top, prefix=prefix, note=note)


def compare_policy(  # noqa: PLR0917 - the last two are known to a run only
    base: PolicyBase,
    suite: Suite,
    pack: Pack,
    project: PolicyProject,
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
    from pytest_packbench.analysis.policy import allow, policy_changes

    if suite.bundled:
        return PolicyOutcome(base.label, notes=("the suite comes from the installed package: nothing is compared",))
    try:
        allowed = _allowed(suite)
        old, new, notes = _both(base, suite, pack, project)
        new["pipeline"] = {} if run is None else pipeline_of(run)
        try:
            changed = [*policy_changes(old, new), *more]
        except (TypeError, AttributeError, KeyError, IndexError) as error:
            if base.run is None:
                raise
            # the policy that a run stored is a file, which may have been changed
            raise PolicyError(
                f"the acceptance policy that {base.label} stored can't be compared ({type(error).__name__}); restore "
                "its report.json, or name a commit"
            ) from None
        changes, problems = allow(changed, allowed)
    except (ValueError, OSError) as error:
        return PolicyOutcome(base.label, problems=(" ".join(str(error).split()),))
    return PolicyOutcome(base.label, changes, problems, tuple(filter(None, (base.note, *notes))))


def _both(base: PolicyBase, suite: Suite, pack: Pack, project: PolicyProject) -> tuple[Policy, Policy, tuple[str, ...]]:
    """Return the policy of the base, that of now, and what else to know."""
    from pytest_packbench.cases.git_tree import commit_folder
    from pytest_packbench.cases.suites import find_suites

    short = policy_of(suite, pack, project)
    now = {**short, **suite_policy(suite.path), "pack_version": pack.version}
    if base.run is not None:
        old, mode = run_policy(base.run(suite.record_name), suite.record_name)
        notes = () if mode == "fixture" else (f"recordings are not compared: the base is a run in {mode} mode",)
        recordings = {name: sha256 for name, sha256 in now["recordings"].items() if name in old["recordings"]}
        # what a run stores of files, and of the baseline
        return old, {**now, "files": short["files"], "baseline": short["baseline"], "recordings": recordings}, notes
    now["suites"] = tuple(find_suites(project.root))
    with commit_folder(base.repository, base.commit) as commit:
        old, is_there = _policy_in(commit, base, suite, now, project)
    if not is_there:
        return old, now, (f"{base.label} has no suite {suite.name}",)
    if any(facts.data for facts in old["cases"].values()):
        now["cases"] = _cases_in(suite.path, old["cases"])
    added = len(now["cases"].keys() - old["cases"].keys()) if old["cases"] else 0
    return old, now, (f"{pluralize(added, 'case')} added, which may change a rate",) if added else ()


def _allowed(suite: Suite) -> tuple[AllowedChange, ...]:
    path = suite.path / CHANGES_NAME
    if not path.is_file():
        return ()
    from pytest_packbench.cases.load import read_changes

    return read_changes(path, source=CHANGES_NAME).changes


def _run_folder(name: str, project: PolicyProject) -> Path | None:
    from pytest_packbench.runs.folder import StoredRunError, find_run_folder

    for path in (project.home / name, Path(name)):
        with suppress(StoredRunError, OSError):
            folder = find_run_folder(path, project.output)
            return folder.resolve() if (folder / "report.json").is_file() else None
    return None


# -- the policy of a folder, here or of a commit -----------------------------------------------------------------------


def policy_of(suite: Suite, pack: Pack, project: PolicyProject) -> Policy:
    """Return what a run stores of the acceptance policy of its suite.

    Cases, with their recordings, are in the rows of its report: there may be a million, and few files are read.

    Raises:
        OSError: a file can't be read.
    """
    config = _dumped(suite.config)
    files, recordings = ({}, {}) if suite.bundled else _hashes_of(suite.path, whole=False)
    path = suite.baseline_path
    modules = {kind.__module__ for kind in type(pack).__mro__} | function_modules(config)
    sources = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules))
    return {
        "version": POLICY_VERSION,
        "config": config,
        "files": files,
        "code": _digests(project.home, source_files(sources, project.home)),
        "hooks": _hooks(project.home, project, own_files(project.hooks, project.home)),
        "recordings": recordings,
        "settings": dict(project.settings),
        "baseline": text_sha256(read_regular(path, _BASELINE_LIMIT)) if path.is_file() else None,
    }


def suite_policy(folder: Path, others: Mapping[str, CaseFacts] = MappingProxyType({})) -> Policy:
    """Return what the acceptance policy of a suite depends on in its folder, but for `suite.yaml`.

    Args:
        folder: the folder of the suite.
        others: the cases of the other side: only cases that differ from these are kept as data.

    Raises:
        OSError: a file that is neither a case nor a recording can't be read.
    """
    files, recordings = _hashes_of(folder, whole=True)
    baseline = _baseline_in(folder)
    return {"files": files, "recordings": recordings, "baseline": baseline, "cases": _cases_in(folder, others)}


def _cases_in(folder: Path, others: Mapping[str, CaseFacts]) -> dict[str, CaseFacts]:
    """Return the cases of a suite by id; of two with one id the first one, since the run reports them."""
    found: dict[str, CaseFacts] = {}
    for location in iter_cases(folder / "cases"):
        data = None
        # one that can't be read is an error of the run
        with suppress(OSError, ValueError):
            data = parse_json(read_case_bytes(location))
        sha256 = case_sha256(data) if isinstance(data, dict) else None
        other = others.get(location.name)
        is_kept = sha256 is not None and other is not None and sha256 != other.sha256
        file = location.label(Path(location.path).relative_to(folder).as_posix())
        found.setdefault(location.name, CaseFacts(file, sha256, data if is_kept else None))
    return found


def _hashes_of(suite: Path, *, whole: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hashes of the files of a suite that are no cases: those of files by path, those of recordings by key.

    A recording that can't be read counts as empty: the run reports it as an error.

    Args:
        suite: the folder of the suite.
        whole: as for `_files_of`.
    """
    files: dict[str, str] = {}
    packed: dict[str, str] = {}
    single: dict[str, str] = {}
    for path, file in _files_of(suite, whole=whole):
        is_control, is_lines = path.startswith(_CONTROLS), path.endswith(LINES_SUFFIX)
        key = path.removeprefix(f"{FIXTURES}/").removesuffix(".json")
        if path.startswith("cases/") and path.endswith(SUFFIXES):
            continue
        if path.startswith(f"{FIXTURES}/") and (file.name == RECORDINGS or (is_control and is_lines)):
            with suppress(OSError):
                for line in case_lines(file):
                    name = read_id(line.raw, "id" if is_control else "case_id") or f"line {line.number}"
                    packed[posixpath.join(posixpath.dirname(key), name)] = _hash_of_recording(line.raw, is_control)
        elif path.startswith(f"{FIXTURES}/") and path.endswith(".json"):
            raw = b""
            with suppress(OSError):
                raw = read_regular(file, _LIMIT._replace(inside=True))
            single[key] = _hash_of_recording(raw, is_control)
        elif _is_other(path) and file.is_file():
            files[path] = text_sha256(read_regular(file, _LIMIT))
    # a file of its own takes precedence over a line
    return files, {**packed, **single}


def _files_of(suite: Path, *, whole: bool) -> Iterator[tuple[str, Path]]:
    """Yield the files of a suite, sorted as they are found: path from its folder, and where they are.

    Links are followed, and what is hidden is skipped, as cases are found.

    Args:
        suite: its folder.
        whole: whether all files are found; else those below `cases` and `fixtures` are not, because there may be a
            million, but those in folders under `fixtures`, such as controls, which are recordings of no case.
    """
    inner = sorted(path for path in (suite / FIXTURES).glob("*") if path.is_dir() and not is_hidden(path.name))
    # these two may themselves be links
    apart = [suite / "cases", suite / FIXTURES]
    for root in (suite, *(apart if whole else inner)):
        for parent, names in case_folders(root, skip=apart):
            for name in sorted(name for name in names if not is_hidden(name)):
                path = Path(parent, name)
                yield path.relative_to(suite).as_posix(), path


def text_sha256(raw: bytes) -> str:
    """Return the hash of a file whose line ends may differ between systems."""
    return hashlib.sha256(raw.replace(b"\r\n", b"\n")).hexdigest()


def _hash_of_recording(raw: bytes, is_control: bool) -> str:  # noqa: FBT001 - said by both callers
    """Return the hash of a recording, or of a control without its words for people."""
    try:
        data = parse_json(raw, RECORDING)
    except JsonError:
        return hashlib.sha256(raw).hexdigest()
    if is_control and isinstance(data, dict):
        data = {key: value for key, value in data.items() if key not in {"description", "$schema"}}
    return canonical_sha256(data)


def _baseline_in(folder: Path) -> Any:
    """Return the content of the committed baseline, its hash if it is no JSON, None without one."""
    path = folder / BASELINE_NAME
    if not path.is_file():
        return None
    raw = read_regular(path, _BASELINE_LIMIT)
    try:
        return parse_json(raw, _BASELINE_LIMIT)
    except JsonError:
        return text_sha256(raw)


def _is_other(path: str) -> bool:
    name = posixpath.basename(path)
    return not (path in _OWN_FILES or name.startswith("README") or name.endswith(("~", ".pyc")))


def own_files(names: Iterable[str | None], root: Path) -> list[str]:
    """Return those of some Python files that are the project's: path from its folder.

    Args:
        names: the files; None for a module without one.
        root: the project's folder, absolute.
    """
    # without following links
    paths = (Path(os.path.abspath(name)) for name in names if name is not None)  # noqa: PTH100
    own = (path for path in paths if path.suffix == ".py" and root in path.parents)
    return [path.relative_to(root).as_posix() for path in own if "site-packages" not in path.parts]


def source_files(modules: Iterable[str | None], root: Path) -> list[str]:
    """Return the files of modules that are the project's: path from its folder, sorted.

    Of a module in a package all Python files in its folder count.

    Args:
        modules: the files of the modules; None for one without a file.
        root: the project's folder, absolute.
    """
    found = {*own_files(modules, root)}
    for folder in {posixpath.dirname(path) for path in found} - {""}:
        if (root / folder / "__init__.py").exists():
            found |= {path.relative_to(root).as_posix() for path in (root / folder).glob("*.py")}
    return sorted(found)


def function_modules(config: Mapping[str, Any]) -> set[str]:
    """Return the modules of the functions that a suite's rules name as `module:function`."""

    def inside(value: Any) -> Iterator[str]:
        if isinstance(value, str) and (match := _FUNCTION.fullmatch(value)):
            yield match[1]
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for member in members:
            yield from inside(member)

    return set(inside({key: value for key, value in config.items() if key not in _NO_RULES}))


def _digests(home: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the hashes of those of the paths from a folder that are files."""
    return {path: text_sha256((home / path).read_bytes()) for path in sorted(paths) if (home / path).is_file()}


def _hooks(home: Path, project: PolicyProject, known: Iterable[str]) -> dict[str, str]:
    """Return the hashes of files that decide with hooks what is tested.

    Args:
        home: the project's folder, here or in a commit.
        project: the project.
        known: files in which hooks were found, from the project's folder; others are each conftest.py that pytest may
            read for a suite, if it has one.
    """
    names = [f"pytest_packbench_{name}".encode() for name in HOOKS]
    paths = {home / folder / "conftest.py" for folder in (*home.glob("test*"), *_folders_to(project))}
    with_hook = {path for path in paths if path.is_file() and any(name in path.read_bytes() for name in names)}
    return _digests(home, {*known, *(path.relative_to(home).as_posix() for path in with_hook)})


def _folders_to(project: PolicyProject) -> list[PurePath]:
    """Return the folders from the project's folder to that of its suites, relative to the former."""
    root = PurePath(os.path.relpath(project.root, project.home))
    return [PurePath(), *(() if ".." in root.parts else (root, *root.parents))]


def _dumped(config: SuiteConfig) -> dict[str, Any]:
    """Return the content of a `suite.yaml` as plain JSON, with all gates that count."""
    dumped = config.model_dump(mode="json")
    target = _without_secrets(config.target or "") or None
    return {**dumped, "target": target, "gates": [gate.model_dump(mode="json") for gate in config.all_gates()]}


def _policy_in(
    commit: CommitFolder, base: PolicyBase, suite: Suite, now: Policy, project: PolicyProject
) -> tuple[Policy, bool]:
    """Return the policy in a commit, and whether it has the suite."""
    from pytest_packbench.cases.suites import find_suites

    def unpack(*paths: str) -> None:
        for path in paths:
            commit.unpack(posixpath.join(base.prefix, path))

    home = commit.folder / base.prefix
    unpack(*_CONFIGURATIONS)
    settings = _settings_in(home)
    root = posixpath.normpath(posixpath.join(base.prefix, settings["root"]))
    if root.startswith("..") or posixpath.isabs(settings["root"]):
        raise PolicyError(f"{settings['file']}: packbench_root is outside of the repository in {base.label}")
    for name in commit.names(root):
        commit.unpack(f"{root}/{name}/{CONFIG_NAME}")
    tests = [name for name in commit.names(base.prefix) if name.startswith("test")]
    unpack(*now["hooks"], *(f"{folder}/conftest.py" for folder in (*tests, *_folders_to(project))))
    code = {*now["code"]}
    for folder in {posixpath.dirname(path) for path in now["code"] if path.endswith("/__init__.py")}:
        names = commit.names(posixpath.join(base.prefix, folder))
        code |= {f"{folder}/{name}" for name in names if name.endswith(".py")}
    unpack(*code)
    outside = not suite.path.is_relative_to(project.root)
    top, start = (base.prefix, project.home) if outside else (root, project.root)
    path = commit.unpack(posixpath.join(top, os.path.relpath(suite.path, start).replace(os.sep, "/")))
    suites = tuple(find_suites(commit.folder / root))
    hooks = _hooks(home, project, now["hooks"])
    shared = {**now, "hooks": hooks, "settings": settings, "suites": suites, "pack_version": None}
    if not (path / CONFIG_NAME).is_file():
        return {**shared, "cases": {}, "recordings": {}, "baseline": None}, False
    config = _config_in(path / CONFIG_NAME, now, suite, project, base)
    return {**shared, "config": config, "code": _digests(home, code), **suite_policy(path, now["cases"])}, True


def _config_in(path: Path, now: Policy, suite: Suite, project: PolicyProject, base: PolicyBase) -> dict[str, Any]:
    """Return the content of a `suite.yaml` with its defaults; of one that is not valid today, as far as it goes."""
    from pytest_packbench.cases.load import check_config, parse_yaml
    from pytest_packbench.model.errors import Problem, SuiteError, format_value

    source = f"{CONFIG_NAME} in {base.label}"
    data = parse_yaml(read_regular(path, LIMITS[CONFIG_NAME]), source=source)
    if not isinstance(data, dict):
        raise SuiteError(source, [Problem("", f"got {format_value(data)}", "expected keys and values")])
    name = data.get("pack")
    models = {name: project.packs[name].suite_model} if isinstance(name, str) and name in project.packs else {}
    with suppress(SuiteError), functions_into([]):
        return _dumped(check_config(data, models, source=source))
    defaults = _dumped(type(suite.config).model_validate({"pack": now["config"]["pack"]}))
    # what is written as it was means what it means today
    written = parse_yaml(read_regular(suite.path / CONFIG_NAME, LIMITS[CONFIG_NAME]), source=CONFIG_NAME)
    unchanged = {
        key: now["config"][key] for key, value in data.items() if key in now["config"] and same(value, written.get(key))
    }
    return {**_merged(defaults, data), **unchanged}


def _merged(defaults: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for key, value in data.items():
        default = defaults.get(key)
        merged[key] = _merged(default, value) if isinstance(default, dict) and isinstance(value, dict) else value
    return merged


def _settings_in(home: Path) -> dict[str, Any]:
    """Return the settings in the configuration file that pytest would choose.

    Args:
        home: the project's folder.

    Raises:
        PolicyError: the file can't be read.
    """
    for name, table in _CONFIGURATIONS.items():
        if not (home / name).is_file():
            continue
        try:
            values = _table(name, read_regular(home / name, LIMITS["configuration"]).decode("utf-8-sig"), table)
        except ValueError as error:
            raise PolicyError(f"{name} in the base can't be read: {' '.join(str(error).split())}") from None
        if values is None and not name.startswith(_ALWAYS):
            continue
        values = values or {}
        own = {key.removeprefix("packbench_"): value for key, value in values.items() if key.startswith("packbench_")}
        own |= {"guard": _words(own["guard"])} if "guard" in own else {}
        own |= _options(values.get("addopts", ""))
        return policy_settings(own, _words(values.get("packbench_suite", ())), name)
    return policy_settings({}, (), "")


def _table(name: str, text: str, table: str) -> dict[str, Any] | None:
    """Return the values of pytest in a configuration file; None without any."""
    if not name.endswith(".toml"):
        from iniconfig import IniConfig, ParseError

        try:
            sections = IniConfig(name, data=text).sections
        except ParseError as error:
            raise ValueError(str(error)) from None
        return dict(sections[table]) if table in sections else None
    import tomllib

    found: Any = tomllib.loads(text)
    for key in table.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    # pyproject.toml has a table in this one as well
    return {**found, **found.get("ini_options", {})} if isinstance(found, dict) else None


def _words(value: Any) -> list[str]:
    from pytest_packbench.cases.suites import suite_names

    return suite_names(shlex.split(value) if isinstance(value, str) else list(map(str, value)))


def _options(addopts: Any) -> dict[str, Any]:
    """Return the options of this plugin in `addopts`, by name."""
    words = shlex.split(addopts) if isinstance(addopts, str) else list(map(str, addopts))
    found: dict[str, Any] = {}
    for position, word in enumerate(words):
        option, sign, value = word.partition("=")
        name = option.removeprefix("--packbench-").replace("-", "_")
        if not option.startswith("--packbench-") or name not in DEFAULT_SETTINGS:
            continue
        if name == "baseline_optional":
            found[name] = "yes"
        elif sign or position + 1 < len(words):
            given = value if sign else words[position + 1]
            found[name] = [*found.get(name, ()), given] if name == "guard" else given
    return found


def run_policy(folder: Path, suite: str) -> tuple[Policy, str]:
    """Read the acceptance policy of a run.

    Args:
        folder: its folder.
        suite: the name of the suite, without `bundled/`.

    Returns:
        The policy, whose cases have hashes only, and the mode of the run.

    Raises:
        PolicyError: the run is not of the suite, is partial, or stores no policy.
        StoredRunError: its report can't be read.
        OSError: likewise.
    """
    from pytest_packbench.runs.report import open_report

    if not folder.is_dir():
        raise PolicyError(f"there is no run {folder.name} of suite {suite} here; name another run, or a commit")
    report = open_report(folder)
    run, stored = report.run, report.policy
    if run.suite.removeprefix(BUNDLED) != suite:
        raise PolicyError(f"run {run.run_id} is of suite {run.suite}; expected a run of {suite}")
    if report.policy_failed:
        raise PolicyError(
            f"run {run.run_id} itself failed for its acceptance policy; name a run that passed, or a commit"
        )
    if run.partial:
        raise PolicyError(f"run {run.run_id} is partial ({run.partial}); expected a complete run")
    parts = ("config", "files", "code", "recordings", "settings")
    is_known = isinstance(stored, dict) and stored.get("version") == POLICY_VERSION
    if not is_known or stored is None or not all(isinstance(stored.get(part), dict) for part in parts):
        raise PolicyError(f"run {run.run_id} stores no acceptance policy; run the suite again, or name a commit")
    cases: dict[str, CaseFacts] = {}
    recordings: dict[str, str] = dict(stored["recordings"])
    for result in report.results:
        cases.setdefault(result.case.case_id, CaseFacts(result.case.file, result.case.case_sha256))
        if run.mode == "fixture" and result.attempt.cassette_sha256 is not None:
            recordings[result.case.case_id] = result.attempt.cassette_sha256
    known = {"recordings": recordings, "cases": cases, "pack_version": run.pack_version, "pipeline": pipeline_of(run)}
    return {**stored, **known}, run.mode


def pipeline_of(run: Run) -> dict[str, str]:
    """Return what a run tested, as it was found in the end."""
    return {
        "target": run.target,
        "model": " / ".join(filter(None, (run.backend, run.model))),
        "guards": ",".join(run.settings.get("guards", ())),
    }
