"""Earlier runs of a suite: what each came to, and the verdict of each case, read from their reports.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.limits import LIMITS, open_regular
from pytest_packbench.model.run import BUNDLED, RUN_DOCUMENT_VERSION, Run
from pytest_packbench.model.score import COUNTED, FIXTURE, QUARANTINE, TOLERANCE, VERDICTS
from pytest_packbench.model.strict_json import NUMBERS
from pytest_packbench.runs.folder import REPORT, StoredRunError, is_run_id
from pytest_packbench.runs.metadata import parse_run
from pytest_packbench.runs.report import open_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from mmap import mmap
    from pathlib import Path

QUARANTINED = "quarantined"
"""The word for a case that its notes exclude, in place of its verdict."""
_MAX_CASE_BYTES = 16 << 20
_MAX_OTHER_BYTES = 32 << 20
# a report as the writer leaves it; another program may have formatted it differently
_DOCUMENT = re.compile(rb'"packbench":(?=\{"version":\d+,"status":)')
_CASES = re.compile(rb',"cases":(?=\[)')
_END = b"}}\n"
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
_UNJUDGED = ("error", "vacuous", "not_run", "known_hole")


class EarlierCase(NamedTuple):
    """What a run came to in one case, over all its trials.

    Attributes:
        case_id: the id of the case.
        verdict: one of `VERDICTS`, or `quarantined`.
        kind: the name of the reason if the verdict is neither `passed` nor `failed`.
        score: the mean over its judged trials; None if the case was not judged, or one of them has none.
        answer: the answer in one short string, of the trial with the lowest score; None if it is not known.
        case_sha256: the hash of the case's content; None if it could not be read.
        cassette_sha256: the hash of its recording; None without one.
        judge: the name of the judge; None if the rules decided.
        passed: how many of its trials passed.
        trials: how many there were.
    """

    case_id: str
    verdict: str
    kind: str
    score: float | None
    answer: str | None
    case_sha256: str | None
    cassette_sha256: str | None
    judge: str | None
    passed: int
    trials: int


class EarlierRun(NamedTuple):
    """An earlier run as its report stored it; nothing is judged again.

    Attributes:
        run: its metadata.
        status: `passed`, `failed` or `partial`.
        models: which models answered, as `Statistics.models` names them.
        selected: how many cases should have run.
        broken: how many of them ended in error, could not have failed, or did not run.
        judged: how many were judged, which the rates are over.
        passed: how many of these passed.
        mean_score: 0 to 1; None without a judged case.
        interval: two-sided 95 % Wilson interval of the pass rate; None without a judged case, and if any answer was
            authored.
        cases: test id to case, in the order of the report; None if they were not read.
        folder: the folder of the run, which may have another name than its id; None if it was not read from one.
    """

    run: Run
    status: str
    models: tuple[str, ...]
    selected: int
    broken: int
    judged: int
    passed: int
    mean_score: float | None
    interval: tuple[float, float] | None
    cases: Mapping[str, EarlierCase] | None = None
    folder: Path | None = None

    @property
    def kind(self) -> Kind:
        """What it has in common with like runs."""
        return kind_of(self.run, self.models)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def finished_at(self) -> str:
        """When the run ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
        return self.run.finished_at

    @property
    def suite_sha256(self) -> str:
        """The hash of the suite's scoring rules in that run."""
        return self.run.suite_sha256

    @property
    def pass_rate(self) -> float | None:
        """The share of the judged cases that passed, 0 to 1; None without a judged case."""
        return self.passed / self.judged if self.judged else None

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each case by its test id; empty if the cases were not read."""
        return {test_id: case.verdict for test_id, case in (self.cases or {}).items()}

    @property
    def case_hashes(self) -> dict[str, str | None] | None:
        """The hash of each case's content by its test id; None if the cases were not read."""
        return None if self.cases is None else {test_id: case.case_sha256 for test_id, case in self.cases.items()}


def like_runs(
    folder: Path,
    run: Run,
    *,
    limit: int = 20,
    models: Iterable[str] | None = None,
    max_case_bytes: int = _MAX_CASE_BYTES,
) -> list[EarlierRun]:
    """Read the latest complete runs that a run can be compared with over time.

    Args:
        folder: the folder of the suite's runs, which contains a folder for each.
        run: the run; only older ones are returned.
        limit: the largest number of runs.
        models: which models answered in the run, as `Statistics.models` names them; they are compared where the run
            itself names no model, unless they are None.
        max_case_bytes: how much of the cases is read, the latest run first; `cases` of the others is None.

    Returns:
        The runs, the oldest first; runs that can't be read are left out.
    """
    found: list[EarlierRun] = []
    kind, left = kind_of(run, models), max_case_bytes

    def is_like(earlier: EarlierRun) -> bool:
        known = earlier.kind if kind.model is not None else earlier.kind._replace(model=None)
        return known == kind and not earlier.run.partial

    def readable(earlier: EarlierRun) -> int:
        return left if is_like(earlier) else 0

    # run ids sort by time
    for name in sorted((path.name for path in folder.glob("*/") if is_run_id(path.name)), reverse=True):
        if len(found) == limit:
            break
        if name >= run.run_id:
            continue
        try:
            earlier, size = _read(folder / name / REPORT, readable, _MAX_OTHER_BYTES)
        except (OSError, *_UNREADABLE):
            continue
        if earlier.run_id == name and is_like(earlier):
            left -= size
            found.append(earlier)
    return found[::-1]


def read_earlier(folder: Path, *, with_cases: bool = True) -> EarlierRun:
    """Read the report of a run.

    Args:
        folder: the folder of the run.
        with_cases: whether its cases are read.

    Raises:
        StoredRunError: the run did not end, or its report can't be read; one line with the place in it.
        OSError: the report can't be read.
    """
    path = folder / REPORT
    try:
        return _read(path, lambda _: math.inf if with_cases else 0, math.inf)[0]
    except (OSError, *_UNREADABLE):
        # this reads the whole report, and names the place
        for _ in open_report(folder).results:
            pass
    raise StoredRunError(f"{path}: /packbench: not a run document")


def verdict_rows(earlier: Iterable[EarlierRun]) -> dict[str, list[str]]:
    """Return the verdicts of each case by its test id, in the order of the runs."""
    rows: dict[str, list[str]] = {}
    for run in earlier:
        for test_id, verdict in run.verdicts.items():
            rows.setdefault(test_id, []).append(verdict)
    return rows


class Kind(NamedTuple):
    """What runs have in common if their figures belong to one trend: the same pipeline, in the same mode.

    Attributes:
        suite: the name of the suite, without `bundled/`.
        mode: `fixture`, `live` or `record`.
        target: the name of the target.
        backend: the backend in live mode; empty in fixture mode.
        model: the model in live mode, or those that answered; empty in fixture mode, None if it is not known.
        guards: the guards, joined with commas; empty for none.
    """

    suite: str
    mode: str
    target: str
    backend: str
    model: str | None
    guards: str


def kind_of(run: Run, models: Iterable[str] | None = None) -> Kind:
    """Return the kind of a run.

    Args:
        run: its metadata.
        models: which models answered, for a run whose target calls a model of its own; None if they are not known.
    """
    guards = run.settings.get("guards")
    answered = None if models is None else ", ".join(sorted(models))
    return Kind(
        suite=run.suite.removeprefix(BUNDLED),
        mode=run.mode,
        target=run.target,
        backend=run.backend or "",
        model="" if run.mode == FIXTURE else run.model or answered,
        guards=", ".join(map(str, guards)) if isinstance(guards, list | tuple) else "",
    )


def earlier_run(header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] | None = None) -> EarlierRun:
    """Return the run of a report.

    Args:
        header: the object `packbench` of the report, whose cases are not read.
        rows: its cases; None if they are not needed.

    Raises:
        ValueError: the report is of another version.
        KeyError: a key is missing, or, as `TypeError`, `IndexError` and `AttributeError`, of another type.
        RunFieldError: the metadata of the run is not valid.
    """
    if header["version"] != RUN_DOCUMENT_VERSION:
        raise ValueError(header["version"])
    run, overall, totals = parse_run(header["run"]), header["overall"], header["totals"]
    mean, interval, models = overall["mean_score"], overall["interval"], header["models"]
    if not all(isinstance(name, str) for name in models):
        raise TypeError(models)
    return EarlierRun(
        run=run,
        status=str(header["status"]),
        models=tuple(models),
        selected=int(totals["selected"]),
        broken=sum(int(totals["verdicts"][name]) for name in ("error", "vacuous", "not_run")),
        judged=int(overall["n"]),
        passed=int(overall["passed"]),
        mean_score=None if mean is None else float(mean),
        interval=None if interval is None else (float(interval[0]), float(interval[1])),
        cases=None if rows is None else _cases(rows, run.settings.get("trials_rule")),
    )


def _read(path: Path, max_case_bytes: Callable[[EarlierRun], float], max_other_bytes: float) -> tuple[EarlierRun, int]:
    """Read a report, and return how many bytes of cases were read.

    Args:
        path: the report.
        max_case_bytes: how many bytes of cases may be read of a run; 0 for none.
        max_other_bytes: how large a report may be that another program has formatted.
    """
    from mmap import ACCESS_READ, mmap

    with open_regular(path) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        header, end = _header(data)
        if header is None:
            if len(data) > max_other_bytes:
                raise ValueError(path)
            header = _json(data[:])["packbench"]
        earlier, size = earlier_run(header)._replace(folder=path.parent), len(data) - end
        if size > max_case_bytes(earlier):
            return earlier, 0
        with_cases = earlier_run(header, header["cases"] if end == 0 else _json(data[end : -len(_END)]))
        return with_cases._replace(folder=path.parent), size


def _header(data: mmap) -> tuple[dict[str, Any] | None, int]:
    """Return the object of a run without its cases, and where these begin; None if another program wrote the report."""
    start = _DOCUMENT.search(data)
    if start is not None and data[-len(_END) :] == _END:
        for split in _CASES.finditer(data, start.end()):
            # a text contains no such key, because its quotes are escaped; an object further inside may
            if split.start() - start.end() > LIMITS["report"].size:
                break
            with suppress(ValueError):
                return json.loads(data[start.end() : split.start()] + b"}"), split.end()
    return None, 0


def _json(data: bytes) -> Any:
    return json.loads(data, **NUMBERS)


def _cases(rows: Iterable[Mapping[str, Any]], rule: object) -> dict[str, EarlierCase]:
    trials: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        trials.setdefault(row["test_id"], []).append(row)
    return {test_id: _case(each, rule) for test_id, each in trials.items()}


_TEXTS = ("answer", "case_sha256", "cassette_sha256")


def _case(trials: Sequence[Mapping[str, Any]], rule: object) -> EarlierCase:
    verdict = _verdict(trials, rule)
    if verdict not in VERDICTS and verdict != QUARANTINED:
        raise ValueError(verdict)
    worst = min(trials, key=lambda row: -1.0 if row["score"] is None else row["score"])
    scores = [row["score"] for row in trials if row["verdict"] in COUNTED]
    is_scored = verdict in COUNTED and scores and None not in scores
    kind = next((row["kind"] for row in trials if row["kind"]), "")
    texts = [*(worst[name] for name in _TEXTS), worst.get("judge")]
    if not isinstance(kind, str) or not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError(texts)
    answer, case_sha256, cassette_sha256, judge = texts
    return EarlierCase(
        case_id=str(worst["case_id"]),
        verdict=verdict,
        kind=kind,
        score=math.fsum(scores) / len(scores) if is_scored else None,
        answer=answer,
        case_sha256=case_sha256,
        cassette_sha256=cassette_sha256,
        judge=judge,
        passed=sum(row["verdict"] == "passed" for row in trials),
        trials=len(trials),
    )


def _verdict(trials: Sequence[Mapping[str, Any]], rule: object) -> str:
    """Return the verdict of a case over its trials; as that of `analysis.counting.fold_case`."""
    if any(row["kind"] in QUARANTINE for row in trials):
        return QUARANTINED
    if len(trials) == 1:
        return str(trials[0]["verdict"])
    verdicts = [row["verdict"] for row in trials]
    # a vacuous trial hides no failure
    unjudged = [name for name in _UNJUDGED if name in verdicts and not (name == "vacuous" and "failed" in verdicts)]
    if unjudged:
        return unjudged[0]
    judged = [row for row in trials if row["verdict"] in COUNTED]
    scores, passed = [row["score"] for row in judged], verdicts.count("passed")
    threshold = next((row["threshold"] for row in trials if row["threshold"] is not None), None)
    if rule in ("mean", None) and None not in scores and threshold is not None:
        broken = any(term.get("effect") == "zero" for row in judged for term in row["terms"])
        return "passed" if math.fsum(scores) / len(scores) >= threshold - TOLERANCE and not broken else "failed"
    least = len(judged) if rule in ("mean", None) else len(trials) if rule == "all" else 1
    if isinstance(rule, dict):
        least = int(rule["at_least"])
    return "passed" if passed >= least else "failed"
