"""Finding the run to compare with: the last one, the last that passed, the committed baseline, or one by name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.result import models_of
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.runs.folder import COMMITTED, LATEST, NO_BASELINE, PASSED, StoredRunError, is_run_id, read_latest
from pytest_packbench.runs.reading import StoredRun, open_run, run_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLookup:
    """The result of looking for the run to compare with.

    Attributes:
        stored: the run; None if it was not found or not requested.
        reason: why it was not found, in one line; empty if it was found or not requested.
        requested: the baseline as the user named it.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        warning: what to know about the run, in one line; empty if there is nothing.
    """

    stored: StoredRun | None = None
    reason: str = ""
    requested: str = ""
    optional: bool = False
    fail_on: str = ""
    warning: str = ""


class BaselineRequest(NamedTuple):
    """A request to compare a run.

    Attributes:
        name: `none`, `latest` (the suite's last complete run), `passed` (the last one of the same mode and target whose
            gates passed), `committed` (the baseline in the suite's folder), the id of a run, or a path.
        folder: the folder of the run that is compared; the suite's other runs are beside it.
        run: the run that is compared.
        committed: the file of the committed baseline.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        models: which models answered in the run, as `models_of` returns them.
    """

    name: str
    folder: Path
    run: Run
    committed: Path
    optional: bool = False
    fail_on: str = ""
    models: Sequence[str] = ()


def find_baseline(request: BaselineRequest) -> BaselineLookup:
    """Find and read the run to compare with."""
    if request.name == NO_BASELINE:
        return BaselineLookup()
    found = _find(request)
    return replace(found, requested=request.name, optional=request.optional, fail_on=request.fail_on)


def _find(request: BaselineRequest) -> BaselineLookup:
    folder = request.folder
    try:
        path = _path_of(request)
        if isinstance(path, str):
            return BaselineLookup(reason=path)
        stored = open_run(path, checked=False).read()
    except (StoredRunError, OSError) as error:
        return BaselineLookup(reason=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a resumed run may itself be the last complete one
        return BaselineLookup(reason=f"run {folder.name} cannot be compared with itself; name another run")
    end = {"failed": "failed", "partial": "is partial"}.get(stored.header.status if stored.header else "", "")
    warnings = [f"the baseline {stored.run.run_id} is a run that {end}"] if end else []
    # another one that the user names is meant
    if request.name in {COMMITTED, PASSED}:
        warnings += _other_pipeline(stored, request)
    return BaselineLookup(stored=stored, warning="; ".join(warnings))


def _other_pipeline(stored: StoredRun, request: BaselineRequest) -> Iterator[str]:
    """Yield in what the pipeline of a baseline differs from that of the run, as far as both are known."""
    before, now = stored.run, request.run
    # a committed baseline has one result for each case, without its model
    models = before.model or "" if stored.committed else ", ".join(models_of(stored.results))
    guards = [", ".join(each.settings.get("guards", ())) or "none" for each in (before, now)]
    pairs = [
        ("target", before.target, now.target),
        ("model", models, ", ".join(request.models)),
        *([] if stored.committed else [("guards", *guards)]),
    ]
    for name, old, new in pairs:
        if old and new and old != new:
            yield f"the baseline {before.run_id} is of another {name}: {old} before, {new} now"


def _path_of(request: BaselineRequest) -> Path | str:
    """Return the path of the requested baseline, or in one line why there is none and what to do.

    Raises:
        StoredRunError: the file `latest` is damaged.
    """
    suite_folder = request.folder.parent
    if request.name == LATEST:
        try:
            return suite_folder / read_latest(suite_folder)
        except OSError:
            return "there is no earlier complete run to compare with"
    if request.name == PASSED:
        return _last_passed(request) or (
            "there is no earlier complete run of the same mode and target whose gates passed; "
            "for the first one, add --packbench-baseline-optional"
        )
    if request.name == COMMITTED:
        bundled = "copy the suite with packbench init --from"
        own = "run the suite, then packbench baseline set RUN --reason TEXT"
        path, missing = (
            request.committed,
            f"the suite has no {BASELINE_NAME}; {bundled if request.run.bundled else own}",
        )
    elif is_run_id(request.name):
        path = suite_folder / request.name
        missing = f"there is no run {request.name} of suite {request.run.suite} here"
    else:
        return Path(request.name)
    return path if path.exists() else missing


def _last_passed(request: BaselineRequest) -> Path | None:
    """Return the folder of the last complete run of the same mode and target whose gates passed; None without one."""
    for folder in run_folders(request.folder.parent):
        if folder == request.folder:
            continue
        # a run that did not end, or can't be read
        with suppress(StoredRunError, OSError):
            earlier = open_run(folder, checked=False)
            is_like = (earlier.run.mode, earlier.run.target) == (request.run.mode, request.run.target)
            if earlier.stated.held and not earlier.run.partial and is_like:
                return folder
    return None
