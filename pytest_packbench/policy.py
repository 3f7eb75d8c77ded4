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
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_packbench.cases.files import (
    SUFFIXES,
    case_file_sha256,
    file_paths,
    find_case,
    is_hidden,
    iter_cases,
    read_case_bytes,
    split_location,
)
from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.cases.recordings import recording_key, recordings_in
from pytest_packbench.cases.suites import find_suites, suite_names
from pytest_packbench.files import LIMITS, RECORDING, read_regular
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import json_pointer, pluralize
from pytest_packbench.model.gate import CHANGES
from pytest_packbench.model.policy import (
    CHANGES_NAME,
    POLICY_VERSION,
    PolicyChange,
    PolicyError,
    PolicyOutcome,
    same,
    value_text,
)
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, CONTROLS, FIXTURES
from pytest_packbench.packs import functions_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.cases.git_tree import CommitFolder
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import AllowedChange
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite, SuiteConfig

    Place = tuple[str | int, ...]

_LIMIT = LIMITS["policy"]
_BASELINE_LIMIT = LIMITS[BASELINE_NAME]._replace(hashed=True)
_OWN_FILES = frozenset({CONFIG_NAME, BASELINE_NAME, CHANGES_NAME})
_FUNCTION = re.compile(r'"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*"')
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
_HOOK = re.compile(f"pytest_packbench_({'|'.join(HOOKS)})".encode())
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
# an option of this plugin among words that are joined by null characters; an option behind it is not its value
_OPTION = re.compile(r"(?:^|\0)--packbench-([a-z-]+)(?:(?:=|\0(?!-))([^\0]*))?")

Policy: TypeAlias = dict[str, Any]
"""The acceptance policy of a suite, plain JSON but for `cases` and `read`. A run stores the first eight of these parts:

- `version`: that of the format.
- `config`: the content of `suite.yaml` with its defaults.
- `files`: hashes of the other files in the suite's folder, by path from there.
- `code`: hashes of the project's files with code of the pack, by path from the project's folder.
- `hooks`: hashes of the project's files with hooks for target, guards or judges, likewise.
- `recordings`: hashes of the recordings by path under `fixtures` without suffix; for a run, those of its cases.
- `settings`: the settings that decide what fails a run, by name.
- `baseline`: the committed baseline: its hash, or its content; None without one.
- `cases`: the cases by id, as `CaseFacts`.
- `read`: returns the content of a case by its id; absent for a run, which has only hashes.
- `suites`: the suites in the folder of suites, each by its name; absent where a run is compared.
- `pack_version`: the version of the pack, of a run.
- `pipeline`: what a run tested: `target`, `model` and `guards`.

`hooks`, `suites` and `pack_version` are None or absent where they are not known.
"""


class CaseFacts(NamedTuple):
    """A case as far as the acceptance policy depends on it.

    Attributes:
        file: its file from the suite's folder, with the line if it is one.
        sha256: hash of the case; None where it could not be read.
    """

    file: str
    sha256: str | None


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


def _run_folder(name: str, project: PolicyProject) -> Path | None:
    from pytest_packbench.runs.folder import StoredRunError, find_run_folder

    for path in (project.home / name, Path(name)):
        with suppress(StoredRunError, OSError):
            folder = find_run_folder(path, project.output)
            return folder.resolve() if (folder / "report.json").is_file() else None
    return None


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
    from pytest_packbench.cases.load import read_changes

    if suite.bundled:
        return PolicyOutcome(base.label, notes=("the suite comes from the installed package: nothing is compared",))
    path = suite.path / CHANGES_NAME
    try:
        allowed = read_changes(path, source=CHANGES_NAME).changes if path.is_file() else ()
        tested = {"pipeline": {} if run is None else pipeline_of(run), "pack_version": pack.version}
        now = policy_of(suite, pack, project) | tested
        if base.run is None:
            changed, note = _since_commit(base, suite, project, now)
        else:
            changed, note = _since_run(base.run(suite.record_name), suite, now)
        changes, problems = allow([*changed, *more], allowed)
    except (ValueError, OSError) as error:
        return PolicyOutcome(base.label, problems=(" ".join(str(error).split()),))
    return PolicyOutcome(base.label, changes, problems, tuple(filter(None, (base.note, note))))


def _since_run(run: Path, suite: Suite, now: Policy) -> tuple[list[PolicyChange], str]:
    """Return what became looser since a run, and what else to know."""
    old, mode = run_policy(run, suite.record_name)
    recordings = _suite_hashes(suite.path, whole=True)["recordings"]
    now |= {
        "cases": _cases_in(suite.path),
        "recordings": {name: sha256 for name, sha256 in recordings.items() if name in old["recordings"]},
    }
    try:
        changes = list(policy_changes(old, now))
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        # what a run stored is a file, which may have been changed
        raise PolicyError(
            f"the acceptance policy that run {run.name} stored can't be compared ({type(error).__name__}); restore "
            "its report.json, or name a commit"
        ) from None
    return changes, "" if mode == "fixture" else f"recordings are not compared: the base is a run in {mode} mode"


def _since_commit(
    base: PolicyBase, suite: Suite, project: PolicyProject, now: Policy
) -> tuple[list[PolicyChange], str]:
    """Return what became looser since a commit, and what else to know."""
    from pytest_packbench.cases.git_tree import commit_folder

    now |= {**suite_policy(suite.path), "suites": _suites(project.root), "pack_version": None}
    with commit_folder(base.repository, base.commit, base.prefix) as commit:
        old, is_there = _policy_in(commit, base, suite, now, project)
        changes = list(policy_changes(old, now))
    if not is_there:
        return changes, f"{base.label} has no suite {suite.name}"
    added = len(now["cases"].keys() - old["cases"].keys()) if old["cases"] else 0
    return changes, f"{pluralize(added, 'case')} added, which may change a rate" if added else ""


# -- the policy of a folder, here or of a commit -----------------------------------------------------------------------


def policy_of(suite: Suite, pack: Pack, project: PolicyProject) -> Policy:
    """Return what a run stores of the acceptance policy of its suite.

    Cases, with their recordings, are in the rows of its report: there may be a million, and few files are read.

    Raises:
        OSError: a file can't be read.
    """
    config = _dumped(suite.config)
    hashes = {"files": {}, "recordings": {}} if suite.bundled else _suite_hashes(suite.path, whole=False)
    path = suite.baseline_path
    modules = {kind.__module__ for kind in type(pack).__mro__} | function_modules(config)
    sources = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules))
    return {
        "version": POLICY_VERSION,
        "config": config,
        "files": hashes["files"],
        "code": _digests(project.home, source_files(sources, project.home)),
        "hooks": _hooks(project.home, project, own_files(project.hooks, project.home)),
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
    cases = _cases_in(folder)

    def read(case_id: str) -> Any:
        file, _ = split_location(cases[case_id].file)
        location = find_case(str(folder / file), case_id)
        # a case that was removed since is none of its keys
        return {} if location is None else parse_json(read_case_bytes(location))

    return {**_suite_hashes(folder, whole=True), "baseline": _baseline_in(folder), "cases": cases, "read": read}


def _cases_in(folder: Path) -> dict[str, CaseFacts]:
    """Return the cases of a suite by id; of two with one id the first one, since the run reports them."""
    found: dict[str, CaseFacts] = {}
    for location in iter_cases(folder / "cases"):
        file = location.label(Path(location.path).relative_to(folder).as_posix())
        found.setdefault(location.name, CaseFacts(file, case_file_sha256(location)))
    return found


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
    recordings = recordings_in(suite, paths)
    return {
        "files": _digests(suite, filter(_is_other, paths)),
        "recordings": {name: _hash_of_recording(name, location) for name, location in recordings.items()},
    }


def _is_other(path: str) -> bool:
    """Return whether a file of a suite counts, and is neither a case nor has recordings."""
    name = posixpath.basename(path)
    is_case = path.startswith("cases/") and path.endswith(SUFFIXES)
    is_own = path in _OWN_FILES or name.startswith("README") or name.endswith(("~", ".pyc"))
    return not (is_case or is_own or recording_key(path))


def _hash_of_recording(name: str, location: CaseLocation) -> str:
    """Return the hash of a recording, or of a control without its words for people.

    One that can't be read counts as empty: the run reports it as an error.
    """
    raw = b""
    with suppress(OSError):
        raw = read_case_bytes(location, _LIMIT._replace(inside=True))
    try:
        data = parse_json(raw, RECORDING)
    except JsonError:
        return text_sha256(raw)
    if name.startswith(f"{CONTROLS}/") and isinstance(data, dict):
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


def text_sha256(raw: bytes) -> str:
    """Return the hash of a file whose line ends may differ between systems."""
    return hashlib.sha256(raw.replace(b"\r\n", b"\n")).hexdigest()


def _digests(home: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the hashes of those of the paths from a folder that are files."""
    return {path: text_sha256(read_regular(home / path, _LIMIT)) for path in paths if (home / path).is_file()}


def own_files(names: Iterable[str | Path | None], root: Path) -> list[str]:
    """Return those of some Python files that are the project's: path from its folder.

    Args:
        names: the files; None for a module without one.
        root: the project's folder, absolute.
    """
    # without following links
    paths = (Path(os.path.abspath(name)) for name in names if name is not None)  # noqa: PTH100
    own = (path for path in paths if path.suffix == ".py" and root in path.parents)
    return [path.relative_to(root).as_posix() for path in own if "site-packages" not in path.parts]


def source_files(modules: Iterable[str | Path | None], root: Path) -> list[str]:
    """Return the files of modules that are the project's: path from its folder, sorted.

    Of a module in a package all Python files in its folder count.

    Args:
        modules: the files of the modules; None for one without a file.
        root: the project's folder, absolute.
    """
    found = {*own_files(modules, root)}
    for folder in {posixpath.dirname(path) for path in found} - {""}:
        if (root / folder / "__init__.py").exists():
            found.update(own_files((root / folder).glob("*.py"), root))
    return sorted(found)


def function_modules(config: Mapping[str, Any]) -> set[str]:
    """Return the modules of the functions that a suite's rules name as `module:function`."""
    rules = {key: value for key, value in config.items() if key not in _NO_RULES}
    return {*_FUNCTION.findall(json.dumps(rules, ensure_ascii=False))}


def _hooks(home: Path, project: PolicyProject, known: Iterable[str]) -> dict[str, str]:
    """Return the hashes of files that decide with hooks what is tested.

    Args:
        home: the project's folder, here or in a commit.
        project: the project.
        known: files in which hooks were found, from the project's folder; others are each conftest.py that pytest may
            read for a suite, if it has one.
    """
    paths = {home / folder / "conftest.py" for folder in (*home.glob("test*"), *_folders_to(project))}
    with_hook = {path for path in paths if path.is_file() and _HOOK.search(path.read_bytes())}
    return _digests(home, sorted({*known, *(path.relative_to(home).as_posix() for path in with_hook)}))


def _folders_to(project: PolicyProject) -> list[PurePath]:
    """Return the folders from the project's folder to that of its suites, relative to the former."""
    root = PurePath(os.path.relpath(project.root, project.home))
    return [PurePath(), *(() if ".." in root.parts else (root, *root.parents))]


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
    commit: CommitFolder, base: PolicyBase, suite: Suite, now: Policy, project: PolicyProject
) -> tuple[Policy, bool]:
    """Return the policy in a commit, and whether it has the suite."""
    home = commit.folder
    for name in _CONFIGURATIONS:
        commit.unpack(name)
    settings = _settings_in(home)
    root = settings["root"]
    if posixpath.isabs(root) or posixpath.normpath(posixpath.join(base.prefix, root)).startswith(".."):
        raise PolicyError(f"{settings['file']}: packbench_root is outside of the repository in {base.label}")
    start, top = (project.root, root) if suite.path.is_relative_to(project.root) else (project.home, "")
    folder = posixpath.join(top, os.path.relpath(suite.path, start).replace(os.sep, "/"))
    tests = (name for name in commit.names("") if name.startswith("test"))
    packages = (posixpath.dirname(path) for path in now["code"] if path.endswith("/__init__.py"))
    for path in (
        folder,
        *now["hooks"],
        *now["code"],
        *(f"{root}/{name}/{CONFIG_NAME}" for name in commit.names(root)),
        *(f"{name}/conftest.py" for name in (*tests, *_folders_to(project))),
        *(f"{package}/{name}" for package in packages for name in commit.names(package) if name.endswith(".py")),
    ):
        commit.unpack(path)
    code = source_files((home / path for path in now["code"]), home)
    policy = {
        **now,
        "code": _digests(home, code),
        "hooks": _hooks(home, project, now["hooks"]),
        "settings": settings,
        "suites": _suites(home / root),
    }
    if not (home / folder / CONFIG_NAME).is_file():
        return {**policy, "code": now["code"], "cases": {}, "recordings": {}, "baseline": None}, False
    config = _config_in(home / folder / CONFIG_NAME, now, suite, project, base)
    return {**policy, "config": config, **suite_policy(home / folder)}, True


def _config_in(path: Path, now: Policy, suite: Suite, project: PolicyProject, base: PolicyBase) -> dict[str, Any]:
    """Return the content of a `suite.yaml` with its defaults; of one that is not valid today, as far as it goes."""
    from pytest_packbench.cases.load import check_config, parse_yaml
    from pytest_packbench.model.errors import Problem, SuiteError, format_value

    source, today = f"{CONFIG_NAME} in {base.label}", now["config"]["pack"]
    files = (path, suite.path / CONFIG_NAME)
    data, written = (parse_yaml(read_regular(file, LIMITS[CONFIG_NAME]), source=source) for file in files)
    if not isinstance(data, dict):
        raise SuiteError(source, [Problem("", f"got {format_value(data)}", "expected keys and values")])
    packs = [str(data.get("pack")), today]
    models = {name: project.packs[name].suite_model for name in packs if name in project.packs}
    with functions_into([]):
        with suppress(SuiteError):
            return _dumped(check_config(data, models, source=source))
        config = _dumped(type(suite.config).model_validate({"pack": today}))
        for key, value in data.items():
            config[key] = value
            # among the rules of today
            with suppress(SuiteError):
                config[key] = _dumped(check_config({**written, key: value}, models, source=source)).get(key, value)
    return config


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
        options = _OPTION.findall("\0".join(_words(values.get("addopts", ()))))
        given = {key.removeprefix("packbench_"): value for key, value in values.items() if key.startswith("packbench_")}
        guards = [value for option, value in options if option == "guard"] or _words(given.get("guard", ()))
        suites = _words(given.get("suite", ()))
        given |= {option.replace("-", "_"): value for option, value in options} | {"guard": guards}
        if any(option == "baseline-optional" for option, _ in options):
            given["baseline_optional"] = "yes"
        return policy_settings(given, suite_names(suites), name)
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
    return shlex.split(value) if isinstance(value, str) else list(map(str, value))


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
    from pytest_packbench.runs.reading import open_run

    if not folder.is_dir():
        raise PolicyError(f"there is no run {folder.name} of suite {suite} here; name another run, or a commit")
    report = open_run(folder, checked=False)
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


# -- comparing ---------------------------------------------------------------------------------------------------------

MISSING: Any = object()
"""Stands for a value that is not there, while values are compared; no value of a file equals it."""
ABSENT, PRESENT, REMOVED = "absent", "present", "removed"
"""What a change states instead of a value: of what is not there, of a whole case or file, and of what is gone."""
_LONGEST_VALUE, _DIGEST_LENGTH = 60, 16
_LOWER, _HIGHER = -1, 1
_BOUNDS = {
    **dict.fromkeys(("min", "confidence", "min_mean_change", "score", "passed"), _HIGHER),
    **dict.fromkeys(("max", "max_ratio_to_baseline", "max_regressions", "max_new_failures"), _LOWER),
}
"""In which direction the bounds of a gate, and the numbers of a case in the baseline, get tighter."""
# compared as they are, not key by key
_WHOLE = frozenset({("config", "trials")})
_STRICTER = ("case", "error", "no")
"""The stricter values of `gate`, `stale` and `baseline_optional`."""


class Difference(NamedTuple):
    """A place where two policies differ.

    Attributes:
        place: the keys and indexes that lead there in the tree of a policy.
        old: the value in the base; `MISSING` if there is none.
        new: the value now, likewise.
        base: the policy of the base.
        now: the policy now.
    """

    place: Place
    old: Any
    new: Any
    base: Policy
    now: Policy

    @property
    def name(self) -> str:
        """What is compared, in its part of the policy: a path, a setting, the id of a case; empty for a whole part."""
        return str(self.place[1]) if len(self.place) > 1 else ""

    @property
    def case_id(self) -> str:
        """The id of the case that it is about; empty if it is about none."""
        part, *keys = self.place
        if part == "baseline" and keys[:1] == ["cases"]:
            return str(keys[1]).rpartition(":")[2] if keys[1:] else ""
        is_known = self.name in self.base["cases"] or self.name in self.now["cases"]
        return self.name if part == "cases" or (part == "recordings" and is_known) else ""


def policy_changes(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    """Yield the changes of an acceptance policy that are not known to make it tighter.

    Args:
        base: the policy to compare with.
        now: the policy as it is now.
    """
    for place, old, new in differences(_tree(base, now), _tree(now, base)):
        difference = Difference(place, old, new, base, now)
        pointer = json_pointer(place)
        what, is_tighter = next(rule[1:] for rule in _RULES if re.fullmatch(rule[0], pointer))
        if what and not is_tighter(difference):
            yield _change(what, difference)


def allow(
    changes: Sequence[PolicyChange], allowed: Sequence[AllowedChange]
) -> tuple[tuple[PolicyChange, ...], tuple[str, ...]]:
    """Give the changes that entries allow their reason.

    Returns:
        All changes, and a line for each entry that is about none of them.
    """
    reasons = [[entry.reason for entry in allowed if entry.allows(change)] for change in changes]
    marked = (change._replace(reason="".join(given[-1:])) for change, given in zip(changes, reasons, strict=True))
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
    if same(old, new):
        return
    if _is_object(old) and _is_object(new) and place not in _WHOLE:
        for key in dict.fromkeys((*old, *new)):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), (*place, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and all(map(_is_object, old + new)):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*place, number))
    else:
        yield place, old, new


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _tree(policy: Policy, other: Policy) -> dict[str, Any]:
    """Return what is compared of a policy, without what is not known of the other one."""
    config = {key: value for key, value in policy["config"].items() if (key, value) != ("allow_pass", None)}
    recording = config.pop("recording", None)
    ignored = {
        "/ignore": config.pop("ignore", None),
        "/recording/ignore_headers": recording.get("ignore_headers") if _is_object(recording) else None,
    }
    both = ("hooks", "suites", "pack_version")
    return {
        **{part: policy[part] for part in both if None not in (policy.get(part), other.get(part))},
        **{
            part: {name: value for name, value in policy[part].items() if name in other[part]}
            for part in ("settings", "pipeline")
        },
        "config": {**config, "gates": _gates_by_name(config.get("gates"))},
        "ignored": {key: {str(name): name for name in names or ()} for key, names in ignored.items()},
        "code": policy["code"],
        "files": policy["files"],
        "cases": {case_id: _case(case_id, policy, other) for case_id in policy["cases"]},
        "recordings": dict(sorted(policy["recordings"].items())),
        **_baseline(policy.get("baseline"), other.get("baseline")),
    }


def _stated(value: Any) -> Any:
    """Return an object without what it leaves open; any other value as it is."""
    is_object = _is_object(value)
    return {key: inner for key, inner in value.items() if inner not in (None, [])} if is_object else value


def _gates_by_name(gates: Any) -> dict[str, dict[str, Any]]:
    """Return the gates by what they bound, the strictest of several first, without what they leave open."""
    given = map(_stated, filter(_is_object, gates if isinstance(gates, list) else ()))
    found: dict[str, dict[str, Any]] = {}
    count: Counter[str] = Counter()
    for gate in sorted(given, key=_strictness, reverse=True):
        name = " ".join((_kind(gate), *(f"{key} {gate[key]}" for key in ("depth", "by") if key in gate)))
        count[name] += 1
        found[name if count[name] == 1 else f"{name} ({count[name]})"] = gate
    return found


def _strictness(gate: Mapping[str, Any]) -> tuple[list[float], str]:
    bounds = [sign * _number(gate.get(name), -sign * float("inf")) for name, sign in _BOUNDS.items()]
    # of several gates without bounds, the place in the list says nothing
    return bounds, str(gate.get("must_pass"))


def _kind(gate: Mapping[str, Any]) -> str:
    return next((name for name in ("must_pass", *CHANGES) if name in gate), str(gate.get("metric")))


def _case(case_id: str, policy: Policy, other: Policy) -> Any:
    """Return the keys of a case, or its hash where those of one side are not known, or are the same."""
    hashes = {each["cases"][case_id].sha256 for each in (policy, other) if case_id in each["cases"]}
    if len(hashes) == 1 or None in hashes or not ("read" in policy and "read" in other):
        return policy["cases"][case_id].sha256 or ABSENT
    content = {key: value for key, value in policy["read"](case_id).items() if key != "$schema"}
    if "input" in content:
        content["input"] = f"sha256:{canonical_sha256(content['input'])[:_DIGEST_LENGTH]}"
    # a case without notes may get some
    return {"notes": {}, **content}


def _baseline(content: Any, other: Any) -> dict[str, Any]:
    """Return a baseline with its cases, or its hash where one side is no JSON; nothing where there is none."""
    if content is None:
        return {}
    if not (_is_object(content) and _is_object(other)):
        return {"baseline": content if isinstance(content, str) else canonical_sha256(content)}
    run, cases = (content[name] if _is_object(content.get(name)) else {} for name in ("run", "cases"))
    return {"baseline": {"run": run, "cases": {test_id: _stated(entry) for test_id, entry in sorted(cases.items())}}}


def _never(_difference: Difference) -> bool:
    return False


def _is_new(difference: Difference) -> bool:
    return difference.old is MISSING


def _is_gone(difference: Difference) -> bool:
    return difference.new is MISSING


def _is_more(difference: Difference) -> bool:
    old, new = (() if value is MISSING else value for value in (difference.old, difference.new))
    return set(old) <= set(new)


def _is_tighter_number(difference: Difference) -> bool:
    sign, old, new = _BOUNDS.get(str(difference.place[-1]), 0), difference.old, difference.new
    if not (sign and _is_number(new) and (old is MISSING or _is_number(old))):
        return False
    # compared, not subtracted: the bound of a stored run may be too large for a float
    return old is MISSING or (new > old) - (new < old) == sign


def _is_no_lower_threshold(difference: Difference) -> bool:
    # where there is none of its own, any other one may count
    least = _number(difference.new, min(_thresholds(difference.now)))
    return least >= _number(difference.old, max(_thresholds(difference.base)))


def _thresholds(policy: Policy) -> list[float]:
    thresholds = policy["config"].get("thresholds")
    if not _is_object(thresholds):
        return [0, 1]
    by_type = thresholds.get("by_type")
    # a type of cases may have the name of a threshold
    values = [*thresholds.values(), *(by_type.values() if _is_object(by_type) else ())]
    return [*filter(_is_number, values)] or [0]


def _is_stricter_rule(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    if new == "all" or old == "any":
        return bool(new != "mean")
    return _is_object(old) and _is_object(new) and bool(new["at_least"] >= old["at_least"])


def _is_no_quarantine(difference: Difference) -> bool:
    none = (MISSING, None)
    return difference.new in none or difference.old not in none


def _is_said_already(difference: Difference) -> bool:
    """Whether a change of what was tested is that of a setting or of `suite.yaml`."""
    name, base, now = difference.name, difference.base, difference.now
    parts = (("settings", name), ("settings", name.removesuffix("s")), ("config", name))
    return any(now[part].get(key) == difference.new != base[part].get(key) for part, key in parts)


def _is_another_recording(difference: Difference) -> bool:
    """Whether a recording is one more, or that of a case which is removed, which is said of the case."""
    was, becomes = (difference.name in policy["cases"] for policy in (difference.base, difference.now))
    return not was if difference.old is MISSING else difference.new is MISSING and was and not becomes


def _is_better_verdict(difference: Difference) -> bool:
    return difference.new == "passed" or (difference.new == "failed" and difference.old not in {"passed", "failed"})


def _is_hash_of_case(difference: Difference) -> bool:
    # the case itself is compared; any other hash would leave it out of each comparison
    facts = difference.now["cases"].get(difference.case_id)
    return facts is not None and difference.new == facts.sha256


def _is_entry_of_no_case(difference: Difference) -> bool:
    return _is_new(difference) or (_is_gone(difference) and difference.case_id not in difference.now["cases"])


def _number(value: Any, default: float) -> float:
    return value if _is_number(value) else default


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_RULES: tuple[tuple[str, str, Callable[[Difference], bool]], ...] = (
    ("/settings/file", "", _never),
    ("/settings/(gate|stale|baseline_optional)", "setting softened", lambda change: change.new in _STRICTER),
    ("/settings/(fail_on|suite)", "setting softened", _is_more),
    ("/settings/baseline", "setting softened", lambda change: bool(change.old == "none")),
    ("/settings/root", "setting softened", _never),
    ("/settings/.*", "pipeline changed", _never),
    ("/suites/.*", "suite removed", _is_new),
    ("/hooks/.*", "hook changed", _never),
    ("/pipeline/.*", "pipeline changed", _is_said_already),
    ("/config/(description|prices)(/.*)?", "", _never),
    ("/config/(backend|guards|model|target)(/.*)?", "pipeline changed", _never),
    ("/config/thresholds", "threshold changed", _never),
    ("/config/thresholds/.*", "threshold lowered", _is_no_lower_threshold),
    ("/config/trials", "trials rule changed", _is_stricter_rule),
    ("/config/gates/[^/]*", "gate removed", _is_new),
    ("/config/gates/[^/]*/must_pass", "gate loosened", _is_more),
    ("/config/gates/.*", "gate loosened", _is_tighter_number),
    ("/config/allow_pass", "allow_pass changed", _is_gone),
    ("/config/.*", "scoring changed", _never),
    ("/ignored/.*", "ignored", _is_gone),
    ("/(code/.*|pack_version)", "pack changed", _never),
    ("/files/.*[.]py", "file changed", _never),
    ("/files/.*", "file changed", _is_new),
    ("/cases/[^/]*", "case changed", lambda change: change.old in (MISSING, ABSENT)),
    ("/cases/[^/]*/notes/(source|date|reviews|reviews/.*)", "", _never),
    ("/cases/[^/]*/notes/(skip|xfail)", "case quarantined", _is_no_quarantine),
    ("/cases/[^/]*/[^/]*/threshold", "threshold lowered", _is_no_lower_threshold),
    ("/cases/[^/]*/case_type(/.*)?", "case type changed", _never),
    ("/cases/[^/]*/difficulty(/.*)?", "difficulty changed", _never),
    ("/cases/[^/]*/expected(/.*)?", "expectation changed", _never),
    ("/cases/[^/]*/input", "input changed", _never),
    ("/cases/[^/]*/notes(/.*)?", "notes changed", _never),
    ("/cases/.*", "case changed", _never),
    ("/recordings/controls~1.*", "control replaced", _is_another_recording),
    ("/recordings/.*", "recording replaced", _is_another_recording),
    ("/baseline", "baseline changed", _is_new),
    ("/baseline/run/(mode|target|trials|trials_rule|authored)(/.*)?", "baseline changed", _never),
    ("/baseline/run/.*", "", _never),
    ("/baseline/cases/[^/]*", "baseline loosened", _is_entry_of_no_case),
    ("/baseline/cases/[^/]*/(score|passed)", "baseline loosened", _is_tighter_number),
    ("/baseline/cases/[^/]*/verdict", "baseline loosened", _is_better_verdict),
    ("/baseline/cases/[^/]*/kind", "baseline loosened", _is_gone),
    ("/baseline/cases/[^/]*/sha256", "baseline loosened", _is_hash_of_case),
    ("/baseline/.*", "baseline loosened", _never),
)
"""By place, the first that fits: what a change is called, empty for no part of the policy; and when it is tighter."""

_PARTS = {
    "settings": ("{file}", "setting {name}", 0),
    "suites": (f"{{name}}/{CONFIG_NAME}", "suite {name}", 0),
    "hooks": ("{name}", "hook {name}", 2),
    "pipeline": ("this run", "{name} of the run", 0),
    "config": (CONFIG_NAME, "{pointer}", 0),
    "ignored": (CONFIG_NAME, "{name}", 0),
    "code": ("{name}", "pack code {name}", 2),
    "pack_version": (CONFIG_NAME, "pack version", 0),
    "files": ("{name}", "file {name}", 2),
    "cases": ("{file}", "{inner}", 2),
    "recordings": (f"{FIXTURES}/{{name}}.json", "recording {other}", 2),
    "baseline": (BASELINE_NAME, f"{BASELINE_NAME} {{pointer}}", 1),
}
"""By part of the policy: how the file and the key of a change are named, and how long the place of a hash is."""
_OF_WHOLES = {("suites", 2), ("cases", 2), ("baseline", 1), ("baseline", 3)}
"""The parts, and lengths of places, of what is there or not: its value is not shown when it is removed."""


def _change(what: str, difference: Difference) -> PolicyChange:
    """Return a difference in the words that an entry of `policy_changes.yaml` repeats."""
    part, *keys = difference.place
    name, case_id, length = difference.name, difference.case_id, len(difference.place)
    is_gone = difference.new is MISSING
    file, key, length_of_hash = _PARTS[str(part)]
    old, new = (shown(value, is_hash=length == length_of_hash) for value in (difference.old, difference.new))
    if what == "gate removed":
        old, new = _described(difference.old), REMOVED
    elif is_gone and (part, length) in _OF_WHOLES:
        old, new = PRESENT, REMOVED
    if part in {"cases", "recordings"} and len(keys) == 1 and MISSING in (difference.old, difference.new):
        what = f"{what.partition(' ')[0]} {'removed' if is_gone else 'added'}"
    facts = difference.now["cases"].get(case_id) or difference.base["cases"].get(case_id)
    files = [policy["settings"].get("file") for policy in (difference.now, difference.base)]
    words = {
        "file": facts.file if facts and part == "cases" else next(filter(None, files), "settings"),
        "name": name,
        "pointer": json_pointer(keys),
        "inner": json_pointer(keys[1:]) or ("" if is_gone else "case"),
        "other": "" if case_id else name,
    }
    return PolicyChange(what, file.format(**words), key.format(**words).rstrip(), old, new, case_id)


def shown(value: Any, *, is_hash: bool = False) -> Any:
    """Return a value of a change: itself, of a hash its beginning, for a long one `sha256:` with that of its hash."""
    if value is MISSING:
        return ABSENT
    if is_hash and isinstance(value, str):
        return value[:_DIGEST_LENGTH]
    is_long = len(value_text(value)) > _LONGEST_VALUE
    return f"sha256:{canonical_sha256(value)[:_DIGEST_LENGTH]}" if is_long else value


def _described(gate: Mapping[str, Any]) -> str:
    """Return a gate in a few words, for the change that it is removed."""
    values = (f"{name} {shown(gate[name])}" for name in ("depth", *_BOUNDS, "must_pass", "by") if name in gate)
    return " ".join([_kind(gate), *values])
