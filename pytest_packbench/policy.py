"""The acceptance policy of a suite now, and what it is compared with: a commit of the git repository, or a run.

For the plugin and for `packbench gate`.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.policy_files import (
    control_recordings,
    function_modules,
    other_files,
    source_files,
    text_sha256,
)
from pytest_packbench.limits import LIMITS, read_regular
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.policy import CHANGES_NAME, Policy, PolicyError, PolicyOutcome, same
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs import functions_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.cases.git_tree import GitTree
    from pytest_packbench.cases.policy_files import SuiteFiles
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import PolicyChange
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite, SuiteConfig

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
    "guard": "",
    "trials": "1",
    "mode": "fixture",
}
"""The settings that decide what fails a run, and what it tests, with their defaults."""
HOOKS = ("target", "guards", "judges")
"""The hooks that decide what is tested, without their prefix."""
_CONFTEST = "conftest.py"
_YES = frozenset({"yes", "true", "1"})
# where pytest looks for its configuration, in this order, and the tables in which it is
_CONFIGURATIONS = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool.pytest", "tool.pytest.ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}
# pytest takes these even without a table
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")


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
        tree: the files of the commit; None for a run.
        prefix: the project's folder from the top folder of the repository.
        run: returns the folder of the run of a suite by its name; None for a commit.
        note: what to know about it, in one line; empty if there is nothing.
    """

    label: str
    tree: GitTree | None = None
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
        "gate": str(given["gate"]),
        "stale": str(given["stale"]),
        "baseline_optional": "yes" if str(given["baseline_optional"]).lower() in _YES else "no",
        "fail_on": sorted(filter(None, conditions)),
        "baseline": str(given["baseline"]),
        "root": posixpath.normpath(str(given["root"]).replace(os.sep, "/")),
        "target": _without_secrets(str(given["target"])),
        **{name: str(given[name]) for name in ("backend", "model", "trials", "mode")},
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


def policy_of(suite: Suite, pack: Pack, project: PolicyProject) -> Policy:
    """Return the acceptance policy of a suite without its cases and their recordings; reads few files."""
    config = _dumped(suite.config)
    path = suite.baseline_path
    return Policy(
        suite=suite.record_name,
        config=config,
        files={} if suite.bundled else other_files(suite.path),
        recordings={} if suite.bundled else control_recordings(suite.path),
        code=_code(pack, config, project.home),
        pack_version=pack.version,
        settings=project.settings,
        baseline=text_sha256(read_regular(path, LIMITS[path.name]._replace(hashed=True))) if path.is_file() else None,
        hooks=_hooks(project),
    )


def open_base(name: str, project: PolicyProject) -> PolicyBase:
    """Find what acceptance policies are compared with.

    Args:
        name: a commit, branch or tag of the git repository, the id of a run, or its path.
        project: the project.

    Raises:
        PolicyError: there is no such commit or run here; one line with what to do.
    """
    from pytest_packbench.cases.git_tree import GitTree, base_commit, find_commit, repository_of
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
    return PolicyBase(f"{name} ({commit[:12]})", tree=GitTree(top, commit), prefix=prefix, note=note)


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
        if run is not None:
            from pytest_packbench.runs.committed import pipeline_of

            new = new._replace(pipeline=pipeline_of(run))
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
        changes, problems = allow(changed, allowed, CHANGES_NAME)
    except (ValueError, OSError) as error:
        return PolicyOutcome(base.label, problems=(" ".join(str(error).split()),))
    return PolicyOutcome(base.label, changes, problems, tuple(filter(None, (base.note, *notes))))


def _both(base: PolicyBase, suite: Suite, pack: Pack, project: PolicyProject) -> tuple[Policy, Policy, tuple[str, ...]]:
    """Return the policy of the base, that of now, and what else to know."""
    from pytest_packbench.cases.policy_files import case_data, folder_files, read_files

    found = read_files(folder_files(suite.path))
    now = policy_of(suite, pack, project)._replace(recordings=found.recordings, cases=found.cases)
    if base.run is not None:
        return _with_run(base.run(suite.record_name), now)
    now = now._replace(files=found.files, baseline=found.baseline, suites=_suites_in(project.root))
    old, notes = _policy_in(base, suite, now, project)
    wanted = (case_id for case_id, facts in old.cases.items() if facts.data is not None)
    now = now._replace(cases={**now.cases, **case_data(folder_files(suite.path), wanted)})
    added = len(now.cases.keys() - old.cases.keys()) if old.cases else 0
    counted = f"{pluralize(added, 'case')} added, which may change a rate" if added else ""
    return old, now, (*notes, counted)


def _with_run(folder: Path, now: Policy) -> tuple[Policy, Policy, tuple[str, ...]]:
    from pytest_packbench.runs.committed import run_policy

    old, mode = run_policy(folder, now.suite)
    notes = () if mode == "fixture" else (f"recordings are not compared: the base is a run in {mode} mode",)
    recordings = {name: sha256 for name, sha256 in now.recordings.items() if name in old.recordings}
    # a packed or removed one
    files = {path: sha256 for path, sha256 in now.files.items() if not path.startswith(("cases/", "fixtures/"))}
    return old, now._replace(recordings=recordings, files=files), notes


def _policy_in(base: PolicyBase, suite: Suite, now: Policy, project: PolicyProject) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy in a commit, and what else to know."""
    from pytest_packbench.cases.policy_files import read_files

    tree = base.tree
    if tree is None:
        raise PolicyError(f"{base.label}: expected a commit")
    settings = _settings_in(lambda name: tree.read(posixpath.join(base.prefix, name)))
    root = posixpath.normpath(posixpath.join(base.prefix, settings["root"]))
    if root.startswith("..") or posixpath.isabs(settings["root"]):
        raise PolicyError(f"{settings['file']}: packbench_root is outside of the repository in {base.label}")
    folders = [name for name in tree.folders(root) if tree.read(f"{root}/{name}/{CONFIG_NAME}") is not None]
    name = os.path.relpath(suite.path, project.root).replace(os.sep, "/")
    folder = posixpath.normpath(f"{root}/{name}")
    if name.startswith(".."):
        folder = posixpath.join(base.prefix, os.path.relpath(suite.path, project.home).replace(os.sep, "/"))
    found = read_files(tree.files(folder), keep=now.cases)
    code = {path: _sha256_in(tree, posixpath.join(base.prefix, path)) for path in _paths_of_code(tree, base, now)}
    policy = now._replace(
        hooks=_hooks_in(tree, base, now, project),
        settings=settings,
        suites=tuple(folders),
        pack_version=None,
    )
    if found.config is None:
        return policy._replace(cases={}, recordings={}, baseline=None), (f"{base.label} has no suite {suite.name}",)
    policy = policy._replace(
        config=_config_in(found, now, suite, project, base),
        files=found.files,
        code={path: sha256 for path, sha256 in code.items() if sha256 is not None},
        baseline=found.baseline,
        recordings=found.recordings,
        cases=found.cases,
    )
    return policy, ()


def _paths_of_code(tree: GitTree, base: PolicyBase, now: Policy) -> set[str]:
    """Return the files with code of the pack, with those that its packages had in the base."""
    paths = set(now.code)
    for folder in {posixpath.dirname(path) for path in now.code if path.endswith("/__init__.py")}:
        for path, _ in tree.files(posixpath.join(base.prefix, folder)):
            if path.endswith(".py") and "/" not in path:
                paths.add(f"{folder}/{path}")
    return paths


def _sha256_in(tree: GitTree, path: str) -> str | None:
    raw = tree.read(path)
    return None if raw is None else text_sha256(raw)


def _config_in(
    found: SuiteFiles, now: Policy, suite: Suite, project: PolicyProject, base: PolicyBase
) -> dict[str, Any]:
    """Return the content of a `suite.yaml` with its defaults; of one that is not valid today, as far as it goes."""
    from pytest_packbench.cases.load import check_config, parse_yaml
    from pytest_packbench.model.errors import Problem, SuiteError, format_value

    source = f"{CONFIG_NAME} in {base.label}"
    data = parse_yaml(found.config or b"", source=source)
    if not isinstance(data, dict):
        raise SuiteError(source, [Problem("", f"got {format_value(data)}", "expected keys and values")])
    name = data.get("pack")
    models = {name: project.packs[name].suite_model} if isinstance(name, str) and name in project.packs else {}
    with suppress(SuiteError), functions_into([]):
        return _dumped(check_config(data, models, source=source))
    defaults = _dumped(type(suite.config).model_validate({"pack": now.config["pack"]}))
    # what is written as it was means what it means today
    written = parse_yaml(read_regular(suite.path / CONFIG_NAME, LIMITS[CONFIG_NAME]), source=CONFIG_NAME)
    unchanged = {
        key: now.config[key] for key, value in data.items() if key in now.config and same(value, written.get(key))
    }
    return {**_merged(defaults, data), **unchanged}


def _merged(defaults: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for key, value in data.items():
        default = defaults.get(key)
        merged[key] = _merged(default, value) if isinstance(default, dict) and isinstance(value, dict) else value
    return merged


def _dumped(config: SuiteConfig) -> dict[str, Any]:
    """Return the content of a `suite.yaml` as plain JSON, with all gates that count."""
    dumped = config.model_dump(mode="json")
    target = _without_secrets(config.target or "") or None
    return {**dumped, "target": target, "gates": [gate.model_dump(mode="json") for gate in config.all_gates()]}


def _code(pack: Pack, config: Mapping[str, Any], home: Path) -> dict[str, str]:
    """Return the hashes of the project's files that contain the pack, or functions that the suite's rules name."""
    modules = {kind.__module__ for kind in type(pack).__mro__} | function_modules(config)
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules))
    return {path: text_sha256((home / path).read_bytes()) for path in source_files(files, home)}


def _hooks(project: PolicyProject) -> dict[str, str]:
    """Return the hashes of the project's files that decide with hooks what is tested."""
    home = project.home
    found = {home / folder / _CONFTEST for folder in _hook_folders(project, (path.name for path in home.glob("test*")))}
    contents = {path: path.read_bytes() for path in found if path.is_file()}
    paths = {path for path, raw in contents.items() if _has_hook(raw)}
    for name in project.hooks:
        path = Path(os.path.abspath(name))  # noqa: PTH100 - without following links
        if home in path.parents and "site-packages" not in path.parts and path.is_file():
            paths.add(path)
    return {path.relative_to(home).as_posix(): text_sha256(path.read_bytes()) for path in paths}


def _hooks_in(tree: GitTree, base: PolicyBase, now: Policy, project: PolicyProject) -> dict[str, str]:
    """Return the same of a commit: files that have hooks there, or have them now."""
    tests = (name for name in tree.folders(base.prefix) if name.startswith("test"))
    paths = {posixpath.join(folder, _CONFTEST) for folder in _hook_folders(project, tests)} | {*(now.hooks or ())}
    found: dict[str, str] = {}
    for path in paths:
        raw = tree.read(posixpath.join(base.prefix, path))
        if raw is not None and (_has_hook(raw) or path in (now.hooks or ())):
            found[path] = text_sha256(raw)
    return found


def _hook_folders(project: PolicyProject, tests: Iterable[str]) -> set[str]:
    """Return the folders whose conftest.py pytest may read for each suite, from the project's folder."""
    root = os.path.relpath(project.root, project.home).replace(os.sep, "/")
    folders = {"", *tests}
    while root not in {"", "."} and not root.startswith(".."):
        folders.add(root)
        root = posixpath.dirname(root)
    return folders


def _has_hook(raw: bytes) -> bool:
    return any(f"pytest_packbench_{name}".encode() in raw for name in HOOKS)


def _allowed(suite: Suite) -> tuple[Any, ...]:
    path = suite.path / CHANGES_NAME
    if not path.is_file():
        return ()
    from pytest_packbench.cases.load import read_changes

    return read_changes(path, source=CHANGES_NAME).changes


def _suites_in(root: Path) -> tuple[str, ...]:
    from pytest_packbench.cases.suites import find_suites

    return tuple(find_suites(root))


def _run_folder(name: str, project: PolicyProject) -> Path | None:
    from pytest_packbench.runs.folder import StoredRunError, find_run_folder

    try:
        folder = find_run_folder(project.home / name, project.output)
    except (StoredRunError, OSError):
        try:
            folder = find_run_folder(Path(name), project.output)
        except (StoredRunError, OSError):
            return None
    return folder.resolve() if (folder / "report.json").is_file() else None


def _settings_in(read: Callable[[str], bytes | None]) -> dict[str, Any]:
    """Return the settings in the configuration file that pytest would choose.

    Args:
        read: returns the content of a file in the project's folder; None if there is none.

    Raises:
        PolicyError: the file can't be read.
    """
    for name, tables in _CONFIGURATIONS.items():
        raw = read(name)
        if raw is None:
            continue
        try:
            found = _tables(name, raw, tables)
        except ValueError as error:
            raise PolicyError(f"{name} in the base can't be read: {' '.join(str(error).split())}") from None
        if found is None and name not in _ALWAYS:
            continue
        values = found or {}
        own = {key.removeprefix("packbench_"): value for key, value in values.items() if key.startswith("packbench_")}
        own |= {"guard": _words(own["guard"])} if "guard" in own else {}
        own |= _options(values.get("addopts", ""))
        return policy_settings(own, _words(values.get("packbench_suite", ())), name)
    return policy_settings({}, (), "")


def _tables(name: str, raw: bytes, tables: tuple[str, ...]) -> dict[str, Any] | None:
    text = raw.decode("utf-8-sig")
    if name.endswith(".toml"):
        import tomllib

        found: dict[str, Any] | None = None
        for table in tables:
            inner: Any = tomllib.loads(text)
            for key in table.split("."):
                inner = inner.get(key) if isinstance(inner, dict) else None
            if isinstance(inner, dict):
                found = {**(found or {}), **inner}
        return found
    from iniconfig import IniConfig, ParseError

    try:
        sections = IniConfig(name, data=text).sections
    except ParseError as error:
        raise ValueError(str(error)) from None
    return dict(sections[tables[0]]) if tables[0] in sections else None


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
