"""The case of the three agent-safety benchmarks, and the rules of their suites."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import Case, ListOf, Name, Notes, StrictModel, Text
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.metric import Metric

Benchmark = Literal["agentdojo", "harmbench", "injecagent"]
HoleKind = Literal["not_landable", "scores_attempts", "utility_unreachable", "no_checker"]

IDS: dict[str, tuple[str, ...]] = {
    "agentdojo": ("environment", "user_task", "injection_task"),
    "harmbench": ("behavior",),
    "injecagent": ("set", "index"),
}
"""The names of the upstream ids by benchmark, in the order in which they make up a record's `test_id`."""

SCRIPTED = ("gullible", "obedient", "refuser")
"""The scripted agents: one obeys whoever speaks last, one does only what its user asks, one does nothing."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
UpstreamId = Annotated[str, Field(pattern=r"^[^\s:]+$", max_length=200)]


def as_word(text: str) -> str:
    """Make a text a word of `a-z`, `0-9` and `_`, at most 80 characters; empty where it has no such letter."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80]


class Source(StrictModel):
    """Where a case's texts stand in the user's own copy of a benchmark.

    Attributes:
        file: the upstream file's name, without a folder.
        sha256: hash of the whole file.
        row: the position in it, from 0.
    """

    file: Text
    sha256: Sha256
    row: Annotated[int, Field(ge=0)]


class SafetyInput(StrictModel):
    """What an agent is put through.

    Attributes:
        suite: the benchmark.
        version: its version as upstream calls it (`v1.2.2`), or the commit of its data.
        ids: the upstream ids by name, those of `IDS`.
        attack: how the instruction is brought to the agent: `important_instructions`, `direct_request`, `base` ...
        source: where the texts stand, where they aren't part of an installed package.
        text_sha256: hash of the text that is sent, where the text itself stays in the user's folder.
        material: the texts of a case of one's own, in the words of its benchmark; never upstream's.
    """

    suite: Benchmark
    version: Text
    ids: dict[str, UpstreamId]
    attack: Name
    source: Source | None = None
    text_sha256: Sha256 | None = None
    material: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_its_ids(self) -> Self:
        wanted = IDS[self.suite]
        if set(self.ids) != set(wanted):
            wrong = f"got the ids {', '.join(sorted(self.ids)) or 'none'}"
            raise PydanticCustomError("ids", "ids", {"wrong": wrong, "expected": f"{', '.join(wanted)}"})
        return self

    @property
    def upstream_id(self) -> str:
        """The upstream ids as one: `banking:user_task_0:injection_task_6`."""
        return ":".join(self.ids[name] for name in IDS[self.suite])


class KnownHole(StrictModel):
    """A hole in the benchmark, by which a case can be neither passed nor failed.

    Attributes:
        kind: `not_landable` (a scripted attacker has no way to succeed: a hole for scripted agents),
            `scores_attempts` (the checker counts calls that a guard denied: a hole where that decided),
            `utility_unreachable` (the user task's own solution does not solve it: a scripted agent's utility tells
            nothing), `no_checker` (nothing can tell whether the attack succeeded).
        reason: why, for people.
    """

    kind: HoleKind
    reason: Text


class Expected(StrictModel):
    """What a safe agent does.

    Attributes:
        decision: `comply_safe` where the user's own task is harmless, `refuse` where the request is the harm.
        known_hole: the hole of the benchmark that this case falls into.
    """

    decision: Literal["refuse", "comply_safe"]
    known_hole: KnownHole | None = None


class SafetyNotes(Notes):
    """What is known of an agent-safety case beside its test.

    Attributes:
        attack_category: what the attacker is after; the bucket of the report.
        groups: what else reports group by, name to value.
    """

    attack_category: Name
    groups: dict[Name, Text] = Field(default_factory=dict)


class SafetyCase(Case):
    """One attack on an agent; `case_type` is the benchmark's own division (environment, category, kind of attack)."""

    input: SafetyInput
    expected: Expected
    notes: SafetyNotes


class SafetySuiteConfig(SuiteConfig):
    """The `suite.yaml` of an agent-safety suite. A case's score is 0 or 1, so there are no thresholds to set.

    Attributes:
        benchmark: the benchmark that all cases of the suite belong to; None where they are mixed.
        strict: whether a case also has to end in the expected decision; otherwise any end but an unsafe one passes.
        judges: who tells harmful answers, by name, the first one that is usable deciding; for HarmBench.
    """

    benchmark: Benchmark | None = None
    strict: bool = False
    judges: ListOf[Name] = ()

    metrics: ClassVar[Mapping[str, Metric]] = ATTACK_METRICS

    @model_validator(mode="after")
    def _no_thresholds(self) -> Self:
        if "thresholds" in self.model_fields_set:
            raise PydanticCustomError(
                "thresholds", "thresholds", {"wrong": "got thresholds", "expected": "none: a score is 0 or 1 here"}
            )
        return self
