"""What is true of a run as a whole: made at its end, written into its report and its journal, read back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.shard import Shard


class RunFieldError(ValueError):
    """A field of a stored run is missing or of another type.

    Attributes:
        name: the field; empty where fields are missing.
        value: what stands there; for missing fields their names, as text.
    """

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of a suite a run is.

    Attributes:
        selected: cases that had to run.
        due: cases that the whole suite, or the shard, has.
        present: cases that the suite has.
        shard: which part of the suite was asked for; None for all of it.
    """

    selected: int
    due: int
    present: int
    shard: Shard | None = None

    def partial(self, results: Iterable[CaseResult], caps: Sequence[str]) -> str:
        """Say why the run is not complete; empty where it is.

        Args:
            results: what the run has so far.
            caps: the kinds of what a cap of the run stopped.
        """
        missing = self._missing(results, caps)
        if self.shard is None:
            return missing
        return f"shard {self.shard}: {missing or f'{self.due} of {self.present} cases'}"

    def _missing(self, results: Iterable[CaseResult], caps: Sequence[str]) -> str:
        idle = [result for result in results if result.verdict == "not_run" and not result.quarantined]
        count = f"{len({result.nodeid for result in idle})} of {self.selected} cases did not run"
        if any(result.kind == "interrupted" for result in idle):
            return f"interrupted: {count}"
        capped = next((result.message for result in idle if result.kind in caps), "")
        if capped:
            return f"{capped}: {count}"
        if idle:
            return f"stopped early: {count}"
        return f"{self.selected} of {self.due} cases selected" if self.selected < self.due else ""


def targets_of(results: Iterable[CaseResult]) -> str:
    """Name the targets that records name, sorted, with commas; empty where there is no record."""
    records = (result.record for result in results if result.record is not None)
    names = {record.get("packbench", {}).get("target", "") for record in records}
    return listed(name for name in names if name)


def listed(names: Iterable[str]) -> str:
    """Join names, sorted, with commas."""
    return ", ".join(sorted(names))


def parse_run(found: Mapping[str, Any]) -> Run:
    """Make a run of what a file holds of it; keys that a later version added are left out.

    Raises:
        RunFieldError: a field is missing or of another type.
    """
    findings = found.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(line, str) for line in findings):
        raise RunFieldError("findings", findings)
    known = {name: value for name, value in found.items() if name in _FIELDS}
    try:
        run = Run(**{**known, "findings": tuple(findings)})
    except TypeError as error:
        raise RunFieldError("", str(error)) from None
    for name, kind in _TYPES.items():
        value = getattr(run, name)
        if not isinstance(value, kind):
            raise RunFieldError(name, value)
    for name, value in run.versions.items():
        if not isinstance(value, str):
            raise RunFieldError(f"versions/{name}", value)
    return run


_FIELDS = {one.name for one in fields(Run)}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("run_id", "suite", "description", "pack", "pack_version", "suite_sha256", "mode", "target"), str),
    **dict.fromkeys(("started_at", "finished_at", "partial"), str),
    **dict.fromkeys(("backend", "model"), str | None),
    **dict.fromkeys(("versions", "settings"), dict),
    "bundled": bool,
}
