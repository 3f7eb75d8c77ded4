"""The run: what was asked for, the part of the cases that it takes, and what is true of all its entries."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_DOCUMENT_VERSION = 1
Mode = Literal["fixture", "live", "record"]
"""How model calls are answered: from recordings, by a model, or by a model whose answers are recorded."""
MODES: tuple[Mode, ...] = get_args(Mode)
Origin = Literal["authored", "recorded"]
"""Who wrote a recording: a person, or the program from a model's answers."""
TEST_TARGET_PREFIX = "test:"
"""How `target` begins for a test of the user's own; a run of several lists them, joined by commas."""
CLUSTER_SETTING = "cluster"
"""The setting that names the facet whose values cases share by design, so that they are not independent."""
WORKER_WINDOW = 2
"""Attempts under way at once in one of several processes: such a one knows its next case only."""
_WRITTEN = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


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
        tokens = None if self.tokens is None else self.tokens // parts
        return replace(self, tokens=tokens, cost=None if self.cost is None else self.cost / parts)


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
        external: attempts whose target does not call models through packbench.
    """

    cases: int
    trials: int
    recorded: int
    unrecorded: int
    external: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of the same size, about.

    Attributes:
        number: which one, from 1.
        count: how many there are.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `I/N`.

        Raises:
            ValueError: it is none with I from 1 to N.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"got {text!r}; expected I/N with I from 1 to N, such as 1/3")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """Write it as `I/N`."""
        return f"{self.number}/{self.count}"

    def __contains__(self, name: str) -> bool:
        """Whether the case of this name is in it."""
        return shard_of(name, self.count) == self.number


def shard_of(name: str, count: int) -> int:
    """Tell which of `count` parts a case is in, from 1; the name is its id, or what stands in for it."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One suite's share of a pytest session.

    Attributes:
        run_id: the session's ULID, the same for all its suites.
        suite: the suite's name.
        description: the suite's own line about itself.
        pack: the pack's name.
        pack_version: the version of its rules.
        suite_sha256: hash of the suite's rules.
        bundled: whether the suite comes with the installed package.
        mode: `fixture`, `live` or `record`.
        target: how the target is called; `reference` for the pack's own.
        backend: who was asked in live mode; None in fixture mode.
        model: which model was asked in live mode; None in fixture mode.
        started_at: `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        finished_at: the same form.
        partial: why the run is not complete (`interrupted`, `stopped early`, ...); empty when it is.
        versions: name to version of what could change a result.
        settings: options that could change a result, and what the run used (`spent`), plain JSON.
        findings: what only the pack can say of the run, a line each.
    """

    run_id: str
    suite: str
    description: str
    pack: str
    pack_version: str
    suite_sha256: str
    bundled: bool
    mode: str
    target: str
    started_at: str
    finished_at: str
    backend: str | None = None
    model: str | None = None
    partial: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
