"""Finding the run to compare with: the last one, the last that passed, the committed baseline, or one by name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.model.result import models_of
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.runs.folder import COMMITTED, LATEST, PASSED, StoredRunError, is_run_id, read_latest
from pytest_packbench.runs.reading import StoredRun, open_run, run_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLookup:
    """A request to compare a run, and what was found.

    Attributes:
        requested: `none`, `latest` (the suite's last complete run), `passed` (the last one of the same mode and target
            whose gates passed), `committed` (the baseline in the suite's folder), the id of a run, or a path.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        stored: the run to compare with; None if it was not found or not requested.
        reason: why it was not found, in one line; empty if it was found or not requested.
        warning: what to know about the run, in one line; empty if there is nothing.
    """

    requested: str = ""
    optional: bool = False
    fail_on: str = ""
    stored: StoredRun | None = None
    reason: str = ""
    warning: str = ""


def find_baseline(
    lookup: BaselineLookup, run: Run, *, folder: Path, committed: Path, models: Sequence[str] = ()
) -> BaselineLookup:
    """Find and read the run to compare with.

    Args:
        lookup: the request.
        run: the run that is compared.
        folder: its folder; the suite's other runs are beside it.
        committed: the file of the committed baseline.
        models: which models answered in the run, as `models_of` returns them.
    """
    name = lookup.requested
    try:
        path = _path_of(name, run, folder, committed)
        if isinstance(path, str):
            return replace(lookup, reason=path)
        stored = open_run(path, checked=False).read()
    except (StoredRunError, OSError) as error:
        return replace(lookup, reason=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a resumed run may itself be the last complete one
        return replace(lookup, reason=f"run {folder.name} cannot be compared with itself; name another run")
    end = {"failed": "failed", "partial": "is partial"}.get(stored.header.status if stored.header else "", "")
    warnings = [f"the baseline {stored.run.run_id} is a run that {end}"] if end else []
    # another one that the user names is meant
    if name in {COMMITTED, PASSED}:
        warnings += _other_pipeline(stored, run, models)
    return replace(lookup, stored=stored, warning="; ".join(warnings))


def _other_pipeline(stored: StoredRun, now: Run, models_now: Sequence[str]) -> Iterator[str]:
    """Yield in what the pipeline of a baseline differs from that of the run, as far as both are known."""
    before = stored.run
    # a committed baseline has one result for each case, without its model
    models = before.model or "" if stored.committed else ", ".join(models_of(stored.results))
    guards = [", ".join(each.settings.get("guards", ())) or "none" for each in (before, now)]
    pairs = [
        ("target", before.target, now.target),
        ("model", models, ", ".join(models_now)),
        *([] if stored.committed else [("guards", *guards)]),
    ]
    for name, old, new in pairs:
        if old and new and old != new:
            yield f"the baseline {before.run_id} is of another {name}: {old} before, {new} now"


def _path_of(name: str, run: Run, folder: Path, committed: Path) -> Path | str:
    """Return the path of the requested baseline, or in one line why there is none and what to do.

    Raises:
        StoredRunError: the file `latest` is damaged.
    """
    if name == LATEST:
        try:
            return folder.parent / read_latest(folder.parent)
        except OSError:
            return "there is no earlier complete run to compare with"
    if name == PASSED:
        return _last_passed(run, folder) or (
            "there is no earlier complete run of the same mode and target whose gates passed; "
            "for the first one, add --packbench-baseline-optional"
        )
    if name == COMMITTED:
        bundled = "copy the suite with packbench init --from"
        own = "run the suite, then packbench baseline set RUN --reason TEXT"
        path, missing = committed, f"the suite has no {BASELINE_NAME}; {bundled if run.bundled else own}"
    elif is_run_id(name):
        path, missing = folder.with_name(name), f"there is no run {name} of suite {run.suite} here"
    else:
        return Path(name)
    return path if path.exists() else missing


def _last_passed(run: Run, folder: Path) -> Path | None:
    """Return the folder of the last complete run of the same mode and target whose gates passed; None without one."""
    folders = (path for path in run_folders(folder.parent) if path != folder)
    for path in folders:
        # a run that did not end, or can't be read
        with suppress(StoredRunError, OSError):
            earlier = open_run(path, checked=False)
            is_like = (earlier.run.mode, earlier.run.target) == (run.mode, run.target)
            if earlier.stated.held and not earlier.run.partial and is_like:
                return path
    return None
