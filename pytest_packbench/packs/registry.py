"""All packs by name: those of the project, those that come with the package, and those of installed distributions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import describe_raised
from pytest_packbench.packs import functions_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.pack import LintOption, Pack
    from pytest_packbench.model.suite import SuiteConfig


DEFAULT_PACK = "generic"
GROUP = "pytest_packbench.packs"
"""The entry-point group of packs in distributions: `name = "package.module:attr"`."""


class PackError(ValueError):
    """A pack can't be loaded: which one and why, in one line."""


_BUILTIN: Mapping[str, EntryPoint] = {
    name: EntryPoint(name, f"pytest_packbench.packs.{name}.pack:{pack}", GROUP)
    for name, pack in {"tariff": "TariffPack", "generic": "GenericPack", "agent_safety": "AgentSafetyPack"}.items()
}
"""The packs that come with the package; each is imported when it is first looked up."""


def builtin() -> dict[str, Pack]:
    """Return the packs that come with the package, by name; they are imported by this call."""
    return {name: _load(entry_point, name) for name, entry_point in _BUILTIN.items()}


def tools_of(pack: Pack) -> Tools:
    """Return the tools of a pack.

    Raises:
        PackError: `tools` raises an exception, or returns something else.
    """
    from pytest_packbench.model.authoring import Tools

    try:
        tools: object = pack.tools()
    except Exception as error:
        raise PackError(f"the pack {pack.name} raised in tools: {describe_raised(error)}") from error
    if not isinstance(tools, Tools):
        raise PackError(f"the pack {pack.name}: tools() returned {tools!r}, expected an object of Tools")
    return tools


class Packs(Mapping[str, "Pack"]):
    """All packs by name: those of the project take precedence over built-in ones, and these over distributions.

    A built-in pack, or that of a distribution, is imported on its first use, so that a run imports only the packs of
    its suites, and a broken one affects its own suites only. A lookup raises `PackError` if the pack can't be loaded.

    Args:
        packs: the packs of the project.
        trusted: the folders of suites whose rules may name functions, resolved; None for all.
    """

    def __init__(self, packs: Iterable[object] = (), *, trusted: Collection[Path] | None = None) -> None:
        self._loaded = {pack.name: pack for pack in map(_validate, packs)}
        self._trusted = trusted
        self._not_imported: dict[Path, list[str]] = {}

    def __getitem__(self, name: str) -> Pack:
        """Return a pack.

        Raises:
            KeyError: no pack has this name.
            PackError: it can't be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = _load(_BUILTIN.get(name) or self._entry_points[name], name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        """Whether a pack has this name; imports nothing."""
        return name in self._loaded or name in _BUILTIN or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names; imports nothing."""
        return iter({**_BUILTIN, **self._loaded, **self._entry_points})

    # as a key of a cache; comparing two would import every pack
    __hash__ = object.__hash__

    def __len__(self) -> int:
        """Return the number of packs."""
        return len(list(iter(self)))

    @property
    def suite_models(self) -> Mapping[str, type[SuiteConfig]]:
        """The suite models by the name of the pack; a pack is imported when its model is looked up."""
        return _SuiteModels(self)

    @property
    def lint_options(self) -> dict[str, LintOption]:
        """The lint options of all packs, by name; without those of packs that can't be loaded."""
        options: dict[str, LintOption] = {}
        for name in self:
            # reported when a suite uses the pack
            with suppress(PackError):
                options |= {option.name: option for option in tools_of(self[name]).lint_options}
        return options

    def rules_of(self, folder: Path) -> AbstractContextManager[None]:
        """Import the functions that the rules of a suite name while they are read, if its folder is trusted."""
        is_trusted = self._trusted is None or folder.resolve() in self._trusted
        return functions_into(None if is_trusted else self._not_imported.setdefault(folder, []))

    def not_imported(self, folder: Path) -> str:
        """Describe which functions of a suite were not imported; empty if there are none."""
        names = ", ".join(dict.fromkeys(self._not_imported.get(folder, ())))
        return names and f"not imported, because this is no suite of the project: {names}; --trust imports them"

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}


class _SuiteModels(Mapping[str, "type[SuiteConfig]"]):
    def __init__(self, packs: Packs) -> None:
        self._packs = packs

    def __getitem__(self, name: str) -> type[SuiteConfig]:
        return self._packs[name].suite_model

    def __contains__(self, name: object) -> bool:
        return name in self._packs

    def __iter__(self) -> Iterator[str]:
        return iter(self._packs)

    def __len__(self) -> int:
        return len(self._packs)


def import_pack(spec: str) -> Pack:
    """Import a pack that is not in the registry.

    Args:
        spec: `package.module:attr`, an instance or a subclass of `Pack`.

    Raises:
        PackError: it can't be imported, or is not a pack.
    """
    return _load(EntryPoint(name="", value=spec, group=GROUP), None)


def _load(entry_point: EntryPoint, name: str | None) -> Pack:
    source = entry_point.value if name is None else f'{entry_point.value} (entry point "{name}")'
    try:
        loaded = entry_point.load()
        candidate = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise PackError(f"can't load the pack {source}: {type(error).__name__}: {error}") from error
    try:
        pack = _validate(candidate)
    except PackError as error:
        raise PackError(f"{source}: {error}") from None
    if name is not None and pack.name != name:
        raise PackError(f'the pack {source} has the name "{pack.name}"; give the entry point the same name')
    return pack


def _validate(candidate: object) -> Pack:
    from pytest_packbench.model.pack import Pack, problem_of

    if not isinstance(candidate, Pack):
        raise PackError(f"expected an instance of pytest_packbench.Pack, got {candidate!r}")
    if problem := problem_of(candidate):
        raise PackError(problem)
    return candidate
