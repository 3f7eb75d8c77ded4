"""What commands share: where they find suites, packs and runs, as pytest does, and the files that they write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import UsageError
from pytest_packbench.runs.folder import OUTPUT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.packs.registry import Packs


ROOT = Path("storage") / "benchmarks"


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare `--output`, the folder of reports."""
    about = "the folder of reports (default reports/benchmarks)"
    parser.add_argument("--output", type=Path, default=OUTPUT, help=about)


def add_root(parser: argparse.ArgumentParser) -> None:
    """Declare `--root`, the folder of suites."""
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of suites (default storage/benchmarks)")


def add_packs(parser: argparse.ArgumentParser) -> None:
    """Declare `--pack`, for packs that are not installed."""
    about = "a pack that is not installed, from the current folder (repeat); installed ones are found by themselves"
    parser.add_argument("--pack", dest="packs", action="append", default=[], metavar="MODULE:ATTR", help=about)


def packs_of(specs: Iterable[str]) -> Packs:
    """Give all packs by name, those of `--pack` first.

    Raises:
        PackError: one of these can't be loaded.
    """
    from pytest_packbench.packs.registry import Packs, import_pack

    return Packs(import_pack(spec) for spec in specs)


def suite_and_pack(name: str, arguments: argparse.Namespace) -> tuple[Suite, Pack]:
    """Read a suite by `--root` and `--pack`, and give with it its pack as the suite uses it.

    Raises:
        UsageError: there is none.
        SuiteError: its rules can't be read.
        PackError: its pack, or one of `--pack`, can't be loaded.
    """
    packs = packs_of(arguments.packs)
    suite = find_suite(name, arguments.root, packs)
    return suite, packs[suite.config.pack].for_suite(suite.config)


def find_suite(name: str, root: Path, packs: Packs | None = None) -> Suite:
    """Read a suite by its name under the root, or by its folder; the wheel's where the root does not exist.

    Args:
        name: its name, or its folder.
        root: the folder of suites.
        packs: the packs to choose from; the built-in and the installed ones by default.

    Raises:
        UsageError: there is none.
        SuiteError: its rules can't be read.
        PackError: its pack can't be loaded.
    """
    from pytest_packbench.api import load_suite
    from pytest_packbench.model.suite import CONFIG_NAME

    bundled = Path(__file__).resolve().parent.parent / "_suites"
    places = [Path(name), root / name, *([] if root.is_dir() else [bundled / name])]
    for place in places:
        if (place / CONFIG_NAME).is_file():
            return load_suite(place, packs=packs)
    raise UsageError(_absent(name, root, bundled))


def _absent(name: str, root: Path, bundled: Path) -> str:
    from pytest_packbench.cases.suites import missing_config_message
    from pytest_packbench.model.suite import CONFIG_NAME

    there = root.is_dir()
    listed = ", ".join(sorted(path.parent.name for path in (root if there else bundled).glob(f"*/{CONFIG_NAME}")))
    bare = missing_config_message(root / name) or missing_config_message(Path(name))
    if bare:
        return f"{bare}; known under {root}: {listed or 'none'}" if there else bare
    if not there:
        where = f"the folder {root} does not exist; give --root, or start packbench where it lies"
        return f'no suite is called "{name}": {where}{f"; with the package: {listed}" if listed else ""}'
    return f'no suite is called "{name}" under {root}; known: {listed or "none"}'


def write_asked(path: Path, text: str) -> None:
    """Write a file that was asked for by name, whole.

    Raises:
        UsageError: it can't be written; the system's own error names a draft, which nobody asked for.
    """
    from pytest_packbench.atomic import write_atomic

    try:
        write_atomic(path, text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
