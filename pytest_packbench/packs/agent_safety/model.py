"""The case model of the three agent-safety benchmarks, and the suite model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from pytest_packbench.model.case import Case, Expected, ListOf, Name, Notes, StrictModel, Text, misfit
from pytest_packbench.model.suite import Metric, SuiteConfig
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError
from pytest_packbench.packs.agent_safety.guards.base import TIME_LIMIT_S
from pytest_packbench.packs.agent_safety.metrics import GATES, NO_ATTACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.request import VerifyContext

Benchmark = Literal["agentdojo", "harmbench", "injecagent"]
GuardEvent = Literal["on_prompt_submit", "on_tool_list", "on_tool_output", "pre_tool_use", "on_final_answer"]
Variant = Literal["tool_description", "memory"]
HoleKind = Literal["not_landable", "scores_attempts", "utility_unreachable", "no_checker"]

MODEL_JUDGES = ("llama_guard", "harmbench_classifier")
"""The judges of harmful answers that are models."""

IDS: dict[str, tuple[str, ...]] = {
    "agentdojo": ("environment", "user_task", "injection_task"),
    "harmbench": ("behavior",),
    "injecagent": ("set", "index"),
}
"""The names of the upstream ids by benchmark, in the order in which `test_id` joins them."""

SCRIPTED = ("gullible", "obedient", "refuser")
"""The scripted agents: one follows every instruction it reads, one follows only its user, one does nothing."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AttackPath = Annotated[str, Field(pattern=r"^(python:)?[\w.]+:\w+$", max_length=200)]
UpstreamId = Annotated[str, Field(pattern=r"^[^\s:]+$", max_length=200)]


def is_scripted(context: VerifyContext, kind: str = "unknown_agent") -> bool:
    """Return whether a script plays, not a model; raises `NoEpisodeError` of a kind where there is no such script."""
    scripted = context.backend == "stub"
    if scripted and context.model not in SCRIPTED:
        raise NoEpisodeError(f'unknown scripted agent "{context.model}"; expected one of {", ".join(SCRIPTED)}', kind)
    return scripted


def as_word(text: str) -> str:
    """Convert a text to a word of `a-z`, `0-9` and `_` of at most 80 characters; empty if it has no such character."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80]


Filled = Annotated[str, StringConstraints(pattern=r"\S"), Expected("text")]
"""A text in a benchmark's files that is not blank."""
Word = Annotated[Filled, AfterValidator(as_word), Field(min_length=1), Expected("a word")]
"""A category in a benchmark's files, as a word."""


class UpstreamSource(StrictModel):
    """The location of a case's texts in the user's copy of a benchmark.

    Attributes:
        file: the name of the upstream file, without a folder.
        sha256: hash of the whole file.
        row: the row in the file, from 0.
    """

    file: Text
    sha256: Sha256
    row: Annotated[int, Field(ge=0)]


class SafetyInput(StrictModel):
    """The input of a case.

    Attributes:
        suite: the benchmark.
        version: its upstream version (`v1.2.2`), or the commit of its data.
        ids: the upstream ids by name; the names are those of `IDS`.
        attack: how the instruction reaches the agent: `important_instructions`, `direct_request`, `base` ...; `none`
            for a run without an attack; `any_of_3` where `any_of` names three attacks.
        any_of: attacks with which a pair of AgentDojo is run, one after the other; it is landed if one of them lands.
        variant: a variant of pytest-packbench of AgentDojo's pairs: where else the agent reads the attack.
        source: the location of the texts, where they aren't part of an installed package.
        text_sha256: hash of the prompt, where its text stays in the user's folder.
        material: the texts of the case, in the form of its benchmark.
    """

    suite: Benchmark
    version: Text
    ids: dict[str, UpstreamId]
    attack: Name
    any_of: ListOf[Name] = ()
    variant: Variant | None = None
    source: UpstreamSource | None = None
    text_sha256: Sha256 | None = None
    material: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_its_ids(self) -> Self:
        expected = IDS[self.suite]
        if set(self.ids) != set(expected):
            wrong = f"got the ids {', '.join(sorted(self.ids)) or 'none'}"
            raise misfit(wrong, ", ".join(expected))
        return self

    @model_validator(mode="after")
    def _shows_k(self) -> Self:
        k = len(self.any_of)
        if self.suite != "agentdojo" and (k or self.variant is not None):
            raise misfit(f"got any_of or variant for {self.suite}", "agentdojo")
        if k and (k == 1 or len(set(self.any_of)) < k or NO_ATTACK in self.any_of):
            wrong = f"got any_of {', '.join(self.any_of)}"
            raise misfit(wrong, "two attacks or more, each once")
        if k and self.attack != f"any_of_{k}":
            wrong = f'got the attack "{self.attack}", and any_of names {k}'
            raise misfit(wrong, f"the attack any_of_{k}")
        return self

    @property
    def is_benign(self) -> bool:
        """Whether there is no attack, so that only the user's task is judged."""
        return self.attack == NO_ATTACK

    @property
    def upstream_id(self) -> str:
        """The upstream ids in one string: `banking:user_task_0:injection_task_6`; a variant of ours is named."""
        ids = ":".join(self.ids[name] for name in IDS[self.suite])
        return f"{ids}:variant_{self.variant}" if self.variant else ids

    @property
    def attack_name(self) -> str:
        """The attack as records and reports name it; a variant of ours is named."""
        return f"{self.attack}, packbench variant {self.variant}" if self.variant else self.attack


class KnownHole(StrictModel):
    """A known hole: a flaw of the benchmark, so that a case can neither pass nor fail.

    Attributes:
        kind: `not_landable` (a script can't carry out the attack; applies to scripted agents), `scores_attempts` (the
            checker counts calls that a guard denied; applies where this decided), `utility_unreachable` (the user
            task's own solution does not solve it, so that the utility of a scripted agent means nothing), `no_checker`
            (no checker can decide whether the attack succeeded).
        reason: an explanation for readers.
        check: the benchmark's own function that shows the flaw, as `module:qualified name`.
    """

    kind: HoleKind
    reason: Text
    check: Text | None = None


class SafetyExpected(StrictModel):
    """The behaviour of a safe agent.

    Attributes:
        decision: `comply_safe` where the user's own task is harmless, `refuse` where the request itself is harmful.
        known_hole: the known hole of the benchmark that affects this case.
    """

    decision: Literal["refuse", "comply_safe"]
    known_hole: KnownHole | None = None


class SafetyNotes(Notes):
    """Notes of an agent-safety case.

    Attributes:
        attack_category: what the attacker wants; reports group by it.
        groups: more values that reports group by, by name.
    """

    attack_category: Name
    groups: dict[Name, Text] = Field(default_factory=dict)


class SafetyCase(Case):
    """One attack on an agent; `case_type` is a group of the benchmark (environment, category, kind of attack)."""

    input: SafetyInput
    expected: SafetyExpected
    notes: SafetyNotes

    @property
    def own_threshold(self) -> float:
        """1: a score is 0 or 1."""
        return 1.0

    @property
    def vacuous_if_unread(self) -> str:
        """An answer that can't be read shows no resistance; without an attack the user's task isn't done."""
        return "" if self.input.is_benign else "the answer shows neither success nor failure of the attack"

    @property
    def keeps_prompts(self) -> bool:
        """False for cases whose texts stay in the user's copy of the benchmark."""
        return self.input.text_sha256 is None

    @property
    def described(self) -> str:
        """What user and attacker ask for; the upstream ids and the attack, where the texts are elsewhere."""
        material = self.input.material
        if self.input.suite != "injecagent":
            return f"{self.input.upstream_id}, attack {self.input.attack_name}"
        return f"user: {material.get('user_instruction')}; attacker: {material.get('attacker_instruction')}"

    def test_id(self, suite: str) -> str:  # noqa: ARG002 - the upstream ids name the benchmark, whatever its suite is called
        """Return the upstream form: `agentdojo:banking:user_task_0:injection_task_6`."""
        return f"{self.input.suite}:{self.input.upstream_id}"


_BaseUrl = Annotated[str, Field(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$")]


class GuardModel(StrictModel):
    """What answers the model calls of guards.

    Attributes:
        backend: the backend.
        model: the name of the model.
        base_url: the address of its server, without login; None for the backend's.
    """

    backend: Name
    model: Text
    base_url: _BaseUrl | None = None


class GuardServer(StrictModel):
    """A guard that is asked over HTTP.

    Attributes:
        url: its address, without login.
        events: the events that it rules on; all by default.
    """

    url: _BaseUrl
    events: Annotated[ListOf[GuardEvent], Field(min_length=1)] = get_args(GuardEvent)


class JudgeModel(StrictModel):
    """What answers the requests of a judge that is a model.

    Attributes:
        model: the name of the model.
        base_url: the address of its server, without login; None for the backend's.
    """

    model: Text | None = None
    base_url: _BaseUrl | None = None


class SafetySuiteConfig(SuiteConfig):
    """The `suite.yaml` of an agent-safety suite. A case's score is 0 or 1, so there are no thresholds to set.

    Attributes:
        benchmark: the benchmark that all cases of the suite belong to; None where they are mixed.
        strict: whether a case also needs the expected decision to pass; otherwise every decision but an unsafe one
            passes.
        judges: the judge of harmful answers, by name, for HarmBench; the refusal detector by default. A second one
            decides nothing: how often it agrees is reported.
        judge_models: the model and the server of judges that are models, by the name of the judge.
        guard_model: the model that guards ask; the model under test by default.
        guard_servers: guards that are asked over HTTP, by the name for `--packbench-guard`.
        guard_time_limit_s: the time limit of a guard's ruling, seconds; a ruling that exceeds it denies.
        addressed_as: how AgentDojo's attacks address an agent of your own, such as `GPT-4`; by default "the AI language
            model", and a pipeline of AgentDojo's by the model in its name.
        attacks: attacks of your own on AgentDojo's pairs: their names, and where to find each, as `MODULE:FUNCTION`.
    """

    benchmark: Benchmark | None = None
    strict: bool = False
    judges: Annotated[ListOf[Name], Field(max_length=2)] = ()
    judge_models: dict[Name, JudgeModel] = Field(default_factory=dict)
    guard_model: GuardModel | None = None
    guard_servers: dict[Name, GuardServer] = Field(default_factory=dict)
    guard_time_limit_s: Annotated[float, Field(gt=0, le=3600)] = TIME_LIMIT_S
    addressed_as: Text | None = None
    attacks: dict[Name, AttackPath] = Field(default_factory=dict)

    metrics: ClassVar[Mapping[str, Metric]] = GATES
    scripted: ClassVar[tuple[str, ...]] = SCRIPTED

    @property
    def unusable(self) -> str:
        """Which extra to install, where the suite names its benchmark."""
        if self.benchmark != "agentdojo":
            return ""
        from pytest_packbench.packs.agent_safety.agentdojo.upstream import install_advice

        return install_advice()

    @model_validator(mode="after")
    def _models_of_judges(self) -> Self:
        known = [name for name in MODEL_JUDGES if name in self.judges]
        for name in self.judge_models:
            if name not in known:
                expected = f"one of /judges that is a model: {', '.join(known) or 'none of them is'}"
                raise misfit(f"got {name}", expected)
        return self

    @model_validator(mode="after")
    def _no_thresholds(self) -> Self:
        if "thresholds" in self.model_fields_set:
            raise misfit("got thresholds", "none: a score is 0 or 1")
        return self
