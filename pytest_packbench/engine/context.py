"""What all cases of a suite share in a run, and what an attempt at one of them leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import STUB
from pytest_packbench.engine.targets import Caller
from pytest_packbench.model.request import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.engine.metering import Live
    from pytest_packbench.model.cassette import Cassette
    from pytest_packbench.model.outcome import Outcome
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Mode
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite

UNKNOWN = "unknown"
"""What a backend or model is called where nothing tells who answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """What all cases of a suite share in a run.

    Attributes:
        suite: the suite.
        pack: its pack.
        caller: calls the target.
        target_name: how the target is called in records.
        mode: how model calls are answered.
        live: what is asked instead of recordings; None in fixture mode.
        backend: who answers, as asked for: a backend's name, `stub` for a scripted model, empty where nobody is named.
        model: which model answers; empty where none is named.
        guards: what stands between an agent and untrusted text.
        judges: judges of the user's own, by name.
        roles: roles that the pack asks other models in, beside the one under test.
        allow_processes: whether a target may start child processes in fixture mode.
        stale_is_error: whether a stale cassette is an error instead of a remark.
        files: files of the packs' own that a target may need, by name.
        debugged: whether somebody steps through the code.
        stops: what a target raises to end the whole run; anything else is its case's error.
        asks_model: whether model calls are answered by somebody; see `__post_init__`.
    """

    suite: Suite
    pack: Pack
    caller: Caller
    target_name: str
    mode: Mode = "fixture"
    live: Live | None = None
    backend: str = ""
    model: str = ""
    guards: tuple[Any, ...] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    allow_processes: bool = False
    stale_is_error: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)
    debugged: bool = False
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    asks_model: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out whether model calls are answered by somebody: a scripted model plays inside the target."""
        asks = self.caller.asks_model and (self.backend != STUB or bool(self.roles))
        object.__setattr__(self, "asks_model", asks)

    @classmethod
    def of_results(
        cls,
        suite: Suite,
        pack: Pack,
        target_name: str,
        *,
        mode: Mode = "fixture",
        live: Live | None = None,
    ) -> SuiteContext:
        """Give the context of results that come from elsewhere: its target is never called."""
        return cls(suite=suite, pack=pack, caller=Caller(_uncalled), target_name=target_name, mode=mode, live=live)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no score: broken, which is another thing than bad.

    Attributes:
        kind: the reason's name, for `errors.jsonl`.
        message: one line for people.
        details: the user's own frames of a traceback, a line each.
        raised: what the target raised, where somebody steps through the code; it would keep its frames alive.
    """

    kind: str
    message: str
    details: tuple[str, ...] = ()
    raised: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What an attempt left.

    Attributes:
        failure: set when there is no outcome or no score.
        payload: the target's result as it came.
        outcome: what the pack read in it.
        score: what the pack made of the outcome.
        cassette: the recording that answered the model calls, or that was made.
        cassette_sha256: hash of its meaning.
        stale: whether the recording answered another prompt than today's.
        calls: model calls made.
        cached: those of them that a folder of kept answers answered.
        backend: who answered, `unknown` where nothing tells.
        model: which model answered, `unknown` where nothing tells.
        usage: tokens of all calls, as providers counted them.
        trial: which of several attempts at the case, from 0.
        finished_ns: UTC clock at the end of the attempt, nanoseconds since 1970.
        duration_ms: wall clock of the attempt.
    """

    failure: Failure | None = None
    payload: Any = None
    outcome: Outcome | None = None
    score: Score | None = None
    cassette: Cassette | None = None
    cassette_sha256: str | None = None
    stale: bool = False
    calls: int = 0
    cached: int = 0
    backend: str = UNKNOWN
    model: str = UNKNOWN
    usage: Usage = field(default_factory=Usage)
    trial: int = 0
    finished_ns: int = 0
    duration_ms: int = 0


def _uncalled(request: object) -> None:
    raise RuntimeError(f"the result comes from elsewhere, and no target is asked: {request!r}")
