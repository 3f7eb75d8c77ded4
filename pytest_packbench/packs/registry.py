"""The packs that there are: given ones, built-in ones, those of installed distributions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.pack import LintOption, Pack
    from pytest_packbench.model.suite import SuiteConfig


DEFAULT_PACK = "generic"
GROUP = "pytest_packbench.packs"
"""The entry-point group in which a distribution names its packs, each `name = "package.module:attr"`."""


class PackError(ValueError):
    """A pack can't be loaded: one line that says which, and why."""


def builtin() -> dict[str, Pack]:
    """Give the packs that come with the package, by name; imported only when asked for."""
    from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack
    from pytest_packbench.packs.generic.pack import GenericPack
    from pytest_packbench.packs.tariff.pack import TariffPack

    packs: tuple[Pack, ...] = (TariffPack(), GenericPack(), AgentSafetyPack())
    return {pack.name: pack for pack in packs}


class Packs(Mapping[str, "Pack"]):
    """All packs by name: given ones, then built-in ones, then those of installed distributions (`GROUP`).

    A distribution's pack is imported when it is first asked for, so that a broken one harms its own suites only.
    Looking one up raises `PackError` where it can't be loaded.
    """

    def __init__(self, given: Iterable[object] = ()) -> None:
        self._ready = builtin() | {pack.name: pack for pack in map(_checked, given)}

    def __getitem__(self, name: str) -> Pack:
        """Give a pack.

        Raises:
            KeyError: none has this name.
            PackError: it can't be loaded.
        """
        if name not in self._ready:
            self._ready[name] = _loaded(self._installed[name], name)
        return self._ready[name]

    def __contains__(self, name: object) -> bool:
        """Whether a pack has this name; imports nothing."""
        return name in self._ready or name in self._installed

    def __iter__(self) -> Iterator[str]:
        """Give the names; imports nothing."""
        return iter({**self._ready, **self._installed})

    def __len__(self) -> int:
        """Count the names."""
        return len({**self._ready, **self._installed})

    @property
    def suite_models(self) -> Mapping[str, type[SuiteConfig]]:
        """The suite models by the pack's name, each pack imported when its model is asked for."""
        return _SuiteModels(self)

    @property
    def lint_options(self) -> dict[str, LintOption]:
        """What the lint of any pack can make use of, by name; a pack that can't be loaded adds nothing."""
        found: dict[str, LintOption] = {}
        for name in self:
            # said when a suite asks for it
            with suppress(PackError):
                found |= {option.name: option for option in self[name].lint_options}
        return found

    def metrics_of(self, pack: str, test_suite: str) -> Mapping[str, Metric]:
        """Return the metrics of the pack of a record, by name.

        Args:
            pack: `packbench.pack` of the record, `name/version`; empty in a foreign record, which belongs to the
                pack that names its suite in `test_suites`.
            test_suite: `test_suite` of the record.

        Returns:
            Its metrics; empty for an unknown pack, and for one that can't be loaded.
        """
        name = pack.partition("/")[0]
        for known in (name,) if name else self._ready:
            # a report on records needs no pack
            with suppress(KeyError, PackError):
                if name or test_suite in self[known].test_suites:
                    return self[known].suite_model.metrics
        return {}

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=GROUP)}


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
    """Import a pack that no distribution names: `package.module:attr`, a pack or a class of packs.

    Raises:
        PackError: it can't be imported, or is no pack.
    """
    return _loaded(EntryPoint(name="", value=spec, group=GROUP), None)


def _loaded(entry: EntryPoint, name: str | None) -> Pack:
    where = entry.value if name is None else f'{entry.value} (entry point "{name}")'
    try:
        found = entry.load()
        made = found() if isinstance(found, type) else found
    except Exception as error:
        raise PackError(f"the pack {where} can't be loaded: {type(error).__name__}: {error}") from error
    try:
        pack = _checked(made)
    except PackError as error:
        raise PackError(f"{where}: {error}") from None
    if name is not None and pack.name != name:
        raise PackError(f'the pack {where} is called "{pack.name}"; the entry point has to have that name')
    return pack


def _checked(found: object) -> Pack:
    from pytest_packbench.model.pack import Pack

    if not isinstance(found, Pack):
        raise PackError(f"expected an instance of {Pack.__module__}.Pack, got {found!r}")
    return found
