"""`packbench import`: turns what people have into cases of a suite; shows them first."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UNUSABLE
from pytest_packbench.commands.paths import ROOT, add_root

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_packbench.commands.importing import Checked, Destination
    from pytest_packbench.model.pack import Flaw, Importer, Pack

MOST_FLAWS = 20
_MOST_TEXT = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds that the packs bring, each with its own arguments and with ours."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, pack, importer in _importers():
        kind = kinds.add_parser(name, help=importer.help, description=importer.help)
        importer.add_arguments(kind)
        default = f" (default {importer.suite})" if importer.suite else ""
        about = f"the suite that gets the cases; made where there is none{default}"
        kind.add_argument("--suite", required=importer.suite is None, default=importer.suite, help=about)
        add_root(kind)
        kind.add_argument("--write", action="store_true", help="write the cases; without it they are only shown")
        kind.add_argument("--force", action="store_true", help="with --write: in the place of cases that are there")
        kind.add_argument("--skip-bad", action="store_true", help="with --write: leave out what makes no case")
        kind.set_defaults(importer=(pack, importer))


def run(arguments: argparse.Namespace) -> int:
    """Show what would be written, or write it; 2 where something in the source makes no case."""
    from pytest_packbench.commands.importing import destination

    pack, importer = arguments.importer
    place = destination(arguments.suite, arguments.root, pack, importer.files(arguments), many=importer.many(arguments))
    found = _Found()
    for one in place.checked(importer.read(arguments), force=arguments.force):
        found.add(one)
    usable = found.cases > 0 and (arguments.skip_bad or not found.flaws)
    if usable and arguments.write:
        place.write(place.checked(importer.read(arguments), force=arguments.force), expected=found.cases)
    _print(_written(found, place) if usable and arguments.write else _shown(found, place, arguments))
    return FINE if usable else UNUSABLE


def _importers() -> Iterator[tuple[str, Pack, Importer]]:
    from pytest_packbench.packs.registry import PackError, Packs

    packs = Packs()
    taken: set[str] = set()
    for name in packs:
        # a pack that can't be loaded is said where a suite asks for it
        with suppress(PackError):
            for importer in packs[name].importers():
                # nobody's kind hides another's
                kind = f"{name}-{importer.name}" if importer.name in taken else importer.name
                taken.add(kind)
                yield kind, packs[name], importer


class _Found:
    """What a source holds: counted, with the first of each."""

    def __init__(self) -> None:
        self.cases = 0
        self.flaws = 0
        self.first: Checked | None = None
        self.shown: list[Flaw] = []
        self.states: Counter[str] = Counter()
        self.types: Counter[str] = Counter()

    def add(self, one: Checked | Flaw) -> None:
        from pytest_packbench.commands.importing import Checked

        if isinstance(one, Checked):
            self.cases += 1
            self.first = self.first or one
            self.states[one.state] += 1
            self.types[one.case_type] += 1
        else:
            self.flaws += 1
            if self.flaws <= MOST_FLAWS:
                self.shown.append(one)


def _shown(found: _Found, place: Destination, arguments: argparse.Namespace) -> Iterator[str]:
    yield f"{place.name}: {_cases(found)}"
    yield from _flaws(found)
    if found.first is not None:
        yield f"the first, of {found.first.place}, for {found.first.path.as_posix()}:"
        yield _cut(found.first.text.rstrip("\n"))
        yield from (f"with it: {(place.folder / name).as_posix()}" for name in place.files)
    if found.flaws and not arguments.skip_bad:
        yield "nothing was written; mend the source, or pass --skip-bad to leave out what makes no case"
    elif found.cases:
        yield "nothing was written; --write writes"
    else:
        yield "nothing to write"


def _written(found: _Found, place: Destination) -> Iterator[str]:
    yield f"{place.name}: wrote {_cases(found)}"
    yield from _flaws(found)
    yield from (f"wrote {(place.folder / name).as_posix()}" for name in place.files)
    root = place.folder.parent
    options = "" if root == ROOT else f"-o packbench_root={root.as_posix()} "
    target = "" if _has_target(place) else " --packbench-target=package.module:function"
    yield f"run it: pytest {options}--packbench-suite={place.name}{target}"


def _has_target(place: Destination) -> bool:
    return place.rules.target is not None or place.pack.target(place.rules) is not None


def _cases(found: _Found) -> str:
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    types = ", ".join(f"{name} {count}" for name, count in sorted(found.types.items()))
    return f"{_plural(found.cases, 'case')}{f' ({states}): {types}' if found.cases else ''}"


def _flaws(found: _Found) -> Iterator[str]:
    if found.flaws:
        yield f"{_plural(found.flaws, 'place')} in the source {'makes' if found.flaws == 1 else 'make'} no case:"
        yield from (f"  {flaw.place}: {' '.join(flaw.message.split())}" for flaw in found.shown)
    if found.flaws > len(found.shown):
        yield f"  and {found.flaws - len(found.shown)} more"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}… ({len(text) - _MOST_TEXT} characters more)"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _print(lines: Iterable[str]) -> None:
    from pytest_packbench.reports.terminal import printable

    sys.stdout.writelines(printable(line) + "\n" for line in lines)
