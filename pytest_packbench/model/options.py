"""What a run was asked to do, whoever asked: plain values that were checked where they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.run import Mode

WORKER_WINDOW = 2
"""Attempts under way at once in one of several processes: such a one knows its next case only."""


class SetupError(ValueError):
    """A run can't be made as it was asked for: one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a whole run may use; None: no cap.

    Attributes:
        tokens: read and written together.
        cost: in the currency of the prices.
        seconds: wall clock from the first attempt on.
    """

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def split(self, parts: int) -> Caps:
        """Give the share of one of several processes; the clock is the same for all."""
        return Caps(
            tokens=None if self.tokens is None else self.tokens // parts,
            cost=None if self.cost is None else self.cost / parts,
            seconds=self.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How attempts are to be made.

    Attributes:
        mode: `fixture`, `live` or `record`.
        target: `package.module:attr`, `http://...` or `cmd:...`; empty where not set.
        backend: who answers model calls; empty where not set, like the next two.
        model: which model.
        base_url: the address of its server.
        guards: guards by name or as `module:attr`; None where not set, empty for none at all.
        debugged: whether somebody steps through the code.
        concurrency: attempts under way at once, 1 or more.
        trials: attempts at each case, 1 or more.
        caps: what the whole run may use.
        case_timeout_s: time limit of one attempt, seconds; None for none.
        call_timeout_s: time limit of one model call, seconds.
        retries: how often a model call is tried again at most.
        temperature: 0 to 2.
        max_output_tokens: the longest answer of a model, tokens.
        cache: the folder of kept model answers, absolute; None for none.
        stale_is_error: whether a stale recording is an error.
        allow_processes: whether targets may start child processes in fixture mode.
        root: the project's folder, absolute: the user's modules are found there, and `cmd:` targets start there.
        files: files of the packs' own that were given, by name, absolute.
        workers: processes that share the cases and the caps, 1 or more.
        stops: what a target raises to end the whole run; anything else is its case's error.
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
    caps: Caps = Caps()
    case_timeout_s: float | None = None
    call_timeout_s: float = 120.0
    retries: int = 0
    temperature: float = 0.0
    max_output_tokens: int = 4096
    cache: Path | None = None
    stale_is_error: bool = False
    allow_processes: bool = False
    root: Path = Path()
    files: Mapping[str, Path] = field(default_factory=dict)
    workers: int = 1
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    @property
    def window(self) -> int:
        """Attempts that may be under way at once in this process."""
        return self.concurrency if self.workers == 1 else min(self.concurrency, WORKER_WINDOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCalls:
    """The model calls that a run is expected to make.

    Attributes:
        cases: cases with an attempt still to be made.
        trials: attempts at each case.
        recorded: calls of attempts at cases that have a recording, as many as it has.
        unrecorded: attempts at cases without one.
        own: attempts whose target asks no model of ours.
    """

    cases: int
    trials: int
    recorded: int
    unrecorded: int
    own: int
