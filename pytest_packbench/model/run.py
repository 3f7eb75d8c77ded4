"""The run: its options, its shard, and its metadata."""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic import ConfigDict, Field, Strict, with_config
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.result import Result

RUN_DOCUMENT_VERSION = 1
BUNDLED = "bundled/"
"""How the name of a suite of the installed package begins where the project has suites of its own."""
SUITE_NAME = r"^(bundled/)?[^/\\.\x00-\x1f][^/\\\x00-\x1f]*$"
"""The name of a suite in a stored file: no path."""
Text = Annotated[str, Field(min_length=0)]
"""A text of Unicode, without half of a surrogate pair, which a string of Python may have."""
Mode = Literal["fixture", "live", "record"]
"""How model calls are answered: from recordings, by a model, or by a model whose answers are recorded."""
MODES: tuple[Mode, ...] = get_args(Mode)
Origin = Literal["authored", "recorded"]
"""Where a recording comes from: written by a person, or recorded from a model."""
CONTROL_OWNER = "controls/"
"""What the name of a control begins with where cases have theirs: an id has no slash."""
STUB = "stub"
"""The backend that stands for a pack's scripted models."""
CHECK_FOLDER = "PACKBENCH_CHECK"
"""The variable with the folder of the process that replays what a run has recorded."""
RECORDED = "recorded"
"""What replaces a backend's name in fixture mode: replay recordings even where the suite names a scripted model."""
TEST_TARGET_PREFIX = "test:"
"""Prefix of `target` for a marked test of the user; several are joined with commas."""
CLUSTER_SETTING = "cluster"
"""The setting with the facet whose values cases share by design, so that they are not independent."""
PROGRAM_RUNS = "program_runs"
"""The key in the settings of a run in fixture mode whose target is a program that ran."""
RECORD_PROMPTS = "record_prompts"
"""The key in the settings of a run whose page shows neither inputs nor prompts; its value is False."""
WORKER_WINDOW = 2
"""Attempts in flight in one of several processes, which knows only its next case."""
_SHARD_PATTERN = r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})"


def pytest_options(values: Iterable[tuple[str, str]]) -> str:
    """Return options of pytest-packbench, quoted for a shell.

    Args:
        values: name without `packbench-`, and value; an empty value is left out.
    """
    return " ".join(f"--packbench-{name}={shlex.quote(value)}" for name, value in values if value)


class SetupError(ValueError):
    """A run cannot start with these options; the message is one line with what to do."""


CAPS = ("max_tokens", "max_cost", "max_seconds")
"""The names of the caps, in options and as reasons."""
MAX_UNREADABLE = "max_unreadable"
"""The name of the limit of results of another form, likewise."""
UNSEEN = "unseen"
"""The name of the reason after a case that was recorded in part, likewise."""
RUN_LIMITS = (*CAPS, MAX_UNREADABLE, UNSEEN)
"""The reasons for which a run starts no more attempts by its own settings."""


class Caps(NamedTuple):
    """Limits of a whole run; None for no limit.

    Attributes:
        tokens: input and output tokens together.
        cost: cost in the currency of the prices.
        seconds: duration since the start of the first attempt.
    """

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def split(self, parts: int) -> Caps:
        """Return the limits of one of several processes; all have the same time limit."""
        tokens = None if self.tokens is None else self.tokens // parts
        return self._replace(tokens=tokens, cost=None if self.cost is None else self.cost / parts)


_NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How attempts are made.

    Attributes:
        mode: `fixture`, `live` or `record`.
        target: `package.module:attr`, `http://...` or `cmd:...`; empty if not set.
        backend: the backend for model calls; empty if not set, like the next two.
        model: the name of the model.
        base_url: the URL of the model's server.
        guards: guards by name or as `module:attr`; None if not set, an empty tuple for no guards.
        debugged: whether a debugger is attached.
        concurrency: maximum of attempts in flight, 1 or more.
        trials: attempts at each case, 1 or more.
        caps: limits of the whole run.
        max_calls: limit of one attempt's calls of chat models in live and record mode; None for none.
        max_unreadable: how many results that are unreadable for their form may come in live and record mode before no
            more attempts start; 0 for no limit.
        unseen: whether to `stop` after a case that was recorded in part, or to `continue`.
        case_timeout_s: time limit of one attempt, seconds; None for none.
        call_timeout_s: time limit of one model call, seconds.
        retries: maximum of retries of one model call.
        temperature: 0 to 2.
        max_output_tokens: maximum length of a model's answer, tokens.
        cache: the folder of the response cache, absolute; None for none.
        stale_is_error: whether a stale recording is an error.
        record_prompts: whether recordings contain what the model was asked.
        allow_processes: whether targets may start child processes in fixture mode.
        root: the project's folder, absolute; user modules are imported from there, and `cmd:` targets start there.
        files: files that users configured for packs, by name, absolute.
        workers: number of processes that share the cases and the caps, 1 or more.
        stops: exceptions of a target that end the whole run; any other is an error of its case.
    """

    mode: Mode = "fixture"
    target: str = ""
    backend: str = ""
    model: str = ""
    base_url: str = ""
    guards: tuple[str, ...] | None = None
    debugged: bool = False
    concurrency: int = 1
    trials: int = 1
    caps: Caps = _NO_CAPS
    max_calls: int | None = None
    max_unreadable: int = 0
    unseen: str = "stop"
    case_timeout_s: float | None = None
    call_timeout_s: float = 120.0
    retries: int = 0
    temperature: float = 0.0
    max_output_tokens: int = 4096
    cache: Path | None = None
    stale_is_error: bool = True
    record_prompts: bool = True
    allow_processes: bool = False
    root: Path = Path()
    files: Mapping[str, Path] = field(default_factory=dict)
    workers: int = 1
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    @property
    def window(self) -> int:
        """Maximum of attempts in flight in this process."""
        return self.concurrency if self.workers == 1 else min(self.concurrency, WORKER_WINDOW)


class ExpectedCalls(NamedTuple):
    """The estimated number of model calls of a run.

    Attributes:
        cases: cases with at least one attempt to make.
        trials: attempts at each case.
        recorded: calls of the attempts at recorded cases, estimated by the length of the recording.
        unrecorded: attempts at cases without a recording.
        external: attempts whose target does not call models through packbench.
    """

    cases: int
    trials: int
    recorded: int
    unrecorded: int
    external: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of a suite, of about the same size.

    Attributes:
        number: the number of this shard, from 1.
        count: the number of shards.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `I/N`.

        Raises:
            ValueError: the text does not have this form, with I from 1 to N.
        """
        match = re.fullmatch(_SHARD_PATTERN, text)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"got {text!r}; expected I/N with I from 1 to N, such as 1/3")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        """Return `I/N`."""
        return f"{self.number}/{self.count}"

    def __contains__(self, name: str) -> bool:
        """Return whether the case with this name is in the shard."""
        return shard_of(name, self.count) == self.number


def shard_of(name: str, count: int) -> int:
    """Return the number of the shard, from 1 to `count`, of a case; the name is its id or `line_name`."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


if TYPE_CHECKING:
    RunSettings: TypeAlias = dict[str, Any]
else:

    @with_config(ConfigDict(extra="allow"))
    class RunSettings(TypedDict, total=False):
        """The settings of a run that are read again; others are stored as they are."""

        guards: list[str]
        trials: Annotated[int, Field(ge=1, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The metadata of one suite's run in a pytest session.

    Attributes:
        run_id: the ULID of the session, the same for all its suites.
        suite: the name of the suite; of a bundled one with `bundled/` before it if the project has suites of its own.
        description: the description in `suite.yaml`.
        pack: the name of the pack.
        pack_version: the version of the pack.
        suite_sha256: hash of the suite's scoring rules.
        bundled: whether the suite is part of the installed package.
        mode: `fixture`, `live` or `record`.
        target: the name of the target; `reference` for the pack's reference target.
        backend: the backend in live mode; None in fixture mode.
        model: the model in live mode; None in fixture mode.
        started_at: `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        finished_at: likewise.
        partial: why the run is not complete (`interrupted`, `stopped early`, ...); empty if it is complete.
        versions: name to version of software that could change a result.
        settings: options that could change a result, and what the run spent (`spent`), plain JSON.
        findings: remarks on the run as a whole, one line each.
    """

    run_id: Text
    suite: Annotated[str, Field(pattern=SUITE_NAME)]
    description: Text
    pack: Text
    pack_version: Text
    suite_sha256: Text
    bundled: Annotated[bool, Strict()]
    mode: Text
    target: Text
    started_at: Text
    finished_at: Text
    backend: Text | None = None
    model: Text | None = None
    partial: Text = ""
    versions: dict[str, str] = field(default_factory=dict)
    settings: RunSettings = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def requested_suite(self) -> str:
        """The name by which the suite can be requested anywhere: that of a bundled one begins with `bundled/`."""
        return BUNDLED + self.suite.removeprefix(BUNDLED) if self.bundled else self.suite


SUMMARY = "summary.md"


PAGE = "report.html"


DIFF = "diff.md"


SPENT = "spent"
"""The setting with what the run spent: calls, tokens and cost."""


MERGED_FROM = "merged_from"
"""The setting with the ids of the runs that a run was merged from."""


_COUNTS = ("calls", "tokens", "uncounted")


def partial_reason(
    results: Iterable[Result],
    caps: Collection[str],
    *,
    selected: int,
    due: int,
    present: int,
    shard: Shard | None = None,
) -> str:
    """Describe why a run is not complete; empty if it is complete.

    Args:
        results: its results so far.
        caps: the kinds of results that a limit of the run stopped.
        selected: number of selected cases.
        due: number of cases in the suite, or in the shard.
        present: number of cases in the suite.
        shard: the requested part of the suite; None for all of it.
    """
    not_run = [result for result in results if result.score.verdict == "not_run" and not result.score.quarantined]
    missing = f"{selected} of {due} cases selected" if selected < due else ""
    if not_run:
        capped = next((result.score.message for result in not_run if result.score.kind in caps), "")
        cause = (
            "interrupted"
            if any(result.score.kind == "interrupted" for result in not_run)
            else capped or "stopped early"
        )
        missing = f"{cause}: {len({result.case.nodeid for result in not_run})} of {selected} cases did not run"
    if shard is None:
        return missing
    return f"shard {shard}: {missing or f'{due} of {present} cases'}"


def target_names(results: Iterable[Result]) -> str:
    """Return the targets that the records name, sorted and joined with commas; empty without a record."""
    records = (result.record for result in results if result.record is not None)
    names = {record.get("packbench", {}).get("target", "") for record in records}
    return join_sorted(name for name in names if name)


def join_sorted(names: Iterable[str]) -> str:
    """Sort names and join them with commas."""
    return ", ".join(sorted(names))


def recorded_spending(run: Run) -> dict[str, Any] | None:
    """Return what a stored run spent; None if it is missing or malformed."""
    spent = run.settings.get(SPENT)
    if not isinstance(spent, dict) or not spent.keys() >= {*_COUNTS, "cost", "currency"}:
        return None
    numbers = [value for name, value in spent.items() if name != "currency"]
    is_valid = isinstance(spent["currency"], str) and all(isinstance(each, int | float | None) for each in numbers)
    return spent if is_valid else None


def sum_spending(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what processes or runs spent; None for a count that none of them knows, and a cost that one lacks.

    Of several currencies there is no cost.
    """
    costs, currencies = [each["cost"] for each in spent], {each["currency"] for each in spent}
    total: dict[str, Any] = {}
    for name in _COUNTS:
        known = [each[name] for each in spent if each[name] is not None]
        total[name] = sum(known) if any(known) or len(known) == len(spent) else None
    total["cost"] = None if None in costs or len(currencies) > 1 else sum(costs)
    total["currency"] = currencies.pop() if len(currencies) == 1 else None
    for name in ("cached", "unmetered"):
        count = sum(each.get(name) or 0 for each in spent)
        total |= {name: count} if count else {}
    return total
