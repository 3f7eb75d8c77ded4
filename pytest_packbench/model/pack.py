"""The base class of packs, and what a pack returns: record facts, comparisons, findings, drafts, starters.

A pack adds one domain to pytest-packbench. Subclass `Pack` and return an instance from the hook
`pytest_packbench_packs`, or name the class as an entry point in the group `pytest_packbench.packs`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from pydantic import ValidationError

from pytest_packbench.files import printable_repr, walk
from pytest_packbench.model.answer import Agreement, Answer, Unscored, pointers_of, total_of, without_unknown_keys
from pytest_packbench.model.case import Case
from pytest_packbench.model.errors import first_of, unknown_keys, validation_problems
from pytest_packbench.model.record import EvalDecision
from pytest_packbench.model.request import Target, VerifyRequest, Worlds
from pytest_packbench.model.result import (
    Labels,
    Outcome,
    Result,
    ResultError,
    Score,
    Term,
    adapter,
    judged,
    unknown_key_notes,
    unread_score,
)
from pytest_packbench.model.suite import IGNORED, Figure, Panel, SuiteConfig, Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.model.authoring import Tools


_SHOWN = 3
_Returned = TypeVar("_Returned")
Decision = EvalDecision
"""What a target did or should have done: `refuse`, `comply_safe` or `comply_unsafe`, the values of the wire record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """The values of a wire record that only the pack knows (`eval_record.rs` in the spec).

    All of them have defaults, so that a pack states only what its domain has. Return one from `Pack.facts`.

    Attributes:
        attack_category: the group of the case in reports on records; None for the case type.
        expected: the decision that the case expects; None for `refuse` if `Pack.expects_refusal` is true of the case,
            otherwise `comply_safe`.
        agent_decision: the decision of the target; None for `refuse` if the outcome is a refusal, otherwise
            `comply_safe`.
        utility: whether the user's own task was done as well; None if the question does not apply.
        valid: whether the answer had the format that the benchmark requires; None if the question does not apply.
        judge: the name of the judge, if a model or a word list decided; rates of different judges are never combined.
        test_suite: the record's `test_suite`, for a benchmark with a published name; None for the suite's name.
        extra: more keys for the record's `packbench` object, as plain JSON.
        labels: the expected label and that of the answer, for the confusion of labels; None for a case that expects
            none, and for an answer without one. Several, if an answer labels several things.
        compared: the rows of expected and actual values that a failing case shows; read only then. Without any, the
            decision and the answer are shown.
    """

    attack_category: str | None = None
    expected: Decision | None = None
    agent_decision: Decision | None = None
    utility: bool | None = None
    valid: bool | None = None
    judge: str | None = None
    test_suite: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None
    compared: Iterable[Comparison] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row of the table that explains a failing case.

    Attributes:
        what: what is compared, such as `unit`.
        expected: the expected value as text.
        actual: the target's value as text.
    """

    what: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOption:
    """An option of `packbench lint` that passes a file to a pack's rules.

    Attributes:
        name: the name of the option; `data` adds `--data FILE`.
        help: one sentence for `packbench lint --help`.
    """

    name: str
    help: str


class RoleModel(NamedTuple):
    """A model that a pack asks in addition to the model under test, such as a judge.

    Attributes:
        backend: the name of the backend.
        model: the name of the model.
        base_url: its address; empty for that of the model under test, where the backend is the same, else the
            backend's own.
    """

    backend: str
    model: str
    base_url: str = ""


class Judges(NamedTuple):
    """The models and rules that decide the cases of a suite in addition to its pack; see `Pack.judges`.

    Attributes:
        names: the judges that the suite names; a recording with other judges is refused.
        roles: what the pack asks in addition to the model under test, by the role of its requests, at temperature 0.
            Its tokens are not part of the record, and a recording is valid for these models only.
    """

    names: tuple[str, ...] = ()
    roles: Mapping[str, RoleModel | tuple[str, str]] = MappingProxyType({})


class Metrics:
    """What the reports of a run show of a pack's field beyond rates and means; see `Pack.metrics`.

    The shares that gates can bound are the table `suite_model.metrics`. A subclass adds numbers that are no share of
    the results.

    Attributes:
        label: what `RecordFacts.labels` are, in one word.
        depths: the depths of agreement that reports count, ascending; empty for those that occur (`Agreement.depth`).
        cluster: the facet whose values cases share by design, such as one task combined with many others. These cases
            are not independent, and statistics account for that. Empty if cases are independent.
        figures_of_unscored: whether `figures` also gets what is known of each case without a score, except for
            quarantined ones: its `test_id`, `llm_backend` and `llm_model`, and `packbench` with `verdict`, `kind`,
            `facets`, `trial` and `result`.
        headline_panels: whether the page of a run shows the headlines among its figures in addition, a panel a group.
    """

    label: str = "label"
    depths: tuple[int, ...] = ()
    cluster: str = ""
    figures_of_unscored: bool = False
    headline_panels: bool = False

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:  # noqa: ARG002 - for packs with figures of their own
        """Return the named figures of a run that only the pack can compute, in the order in which they are shown.

        A terminal shows the headlines among them, the reports all.

        Args:
            records: the wire records of the run as plain JSON; an iterator, which can be read once.
        """
        return ()

    def paired_figures(self, pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Sequence[Figure]:  # noqa: ARG002 - for packs that compare case by case
        """Return the named figures of what changed since the baseline, case by case.

        Called where a run is compared with another one.

        Args:
            pairs: what `figures` gets of the same unedited case, of the baseline and of this run; an iterator, which
                can be read once.
        """
        return ()

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:  # noqa: ARG002 - for packs with tables of their own
        """Return what the page of a run shows in addition, in this order: tables and matrices of the domain.

        The default has the headlines, if `headline_panels` asks for them.

        Args:
            records: what `figures` gets; an iterator, which can be read once.
            figures: the figures of the run.
        """
        groups: dict[str, list[Figure]] = {}
        for figure in figures:
            if self.headline_panels and figure.headline:
                groups.setdefault(figure.group, []).append(figure)
        return [Panel(title=group or "Headline numbers", figures=tuple(found)) for group, found in groups.items()]

    def remarks(self, rules: Any, test_ids: Iterable[str]) -> Sequence[str]:  # noqa: ARG002 - for packs whose suites can lack a gate
        """Return what a run can't show because of the rules of its suite, in sentences; the summary has them.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            test_ids: the ids of the cases of the run.
        """
        return ()


class Pack:
    """One domain: what its cases and its answers look like, and what an answer earns.

    A subclass sets `name`, `version`, `case_model` and `answer_model`, and defines `terms`. Everything else has a
    default: `suite_model`, `metrics`, and the methods from `expects_refusal` to `judges`; `tools` is for commands only.

    For each attempt, `request` builds the input of the target. The package validates the answer by `answer_model`, adds
    up its `terms`, applies hard fails, the range and the threshold, and asks `facts` what the record needs. An
    exception in any of them makes the case an error, never a score of 0. All methods are called on the pack of one
    suite, whose rules are in `rules`.

    Attributes:
        name: the value of `pack` in `suite.yaml` and of `pack_id` in cases.
        version: a string that changes whenever the same result could get another score.
        case_model: the model of the cases; a subclass of `Case` that narrows `input`, `expected` and `case_type`.
        answer_model: the model of the answers; a subclass of `Answer`. It is closed: an unknown key makes an answer
            unreadable, unless the suite has `unknown_keys: ignore`.
        suite_model: the model of `suite.yaml`; a subclass of `SuiteConfig` with the pack's own rules and metrics.
        metrics: what reports show beyond rates and means.
        rules: the content of `suite.yaml`, an instance of `suite_model`; None before the pack has a suite.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    case_model: type[Case] = Case
    answer_model: ClassVar[type[Answer]]
    suite_model: ClassVar[type[SuiteConfig]] = SuiteConfig
    metrics: ClassVar[Metrics] = Metrics()
    rules: Any = None

    def terms(self, case: Any, answer: Any, rules: Any) -> Iterable[Term | Agreement]:
        """Yield what an answer earns. The same arguments must always yield the same: no clock, random numbers or files.

        A `Term` adds its value, makes the score exactly 0 (`effect="zero"`) or is a remark (`effect="note"`). An
        `Agreement` states how, and how deeply, the answer agrees.

        Args:
            case: the case, an instance of `case_model`.
            answer: the answer, an instance of `answer_model`.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Raises:
            Unscored: the case shows nothing of the answer, which has no score.
        """
        raise NotImplementedError

    def expects_refusal(self, case: Any) -> bool:  # noqa: ARG002 - for packs with cases that have no answer
        """Return whether the right reaction to a case is a refusal; the default is False.

        Refusals of other cases are counted as over-refusals.

        Args:
            case: the case, an instance of `case_model`.
        """
        return False

    def request(self, case: Any) -> VerifyRequest:
        """Return the request that the target gets; the default contains the case's `input`.

        Args:
            case: the case, an instance of `case_model`.
        """
        return VerifyRequest(input=case.model_dump(mode="json", by_alias=True, include={"input"})["input"])

    def facets(self, case: Any) -> dict[str, str]:  # noqa: ARG002 - for packs with groups of cases
        """Return more groups of a case for reports and gates (`by:`), name to value, such as `{"unit": "metre"}`.

        Case type, difficulty and tags are always available.

        Args:
            case: the case, an instance of `case_model`.
        """
        return {}

    def facts(self, case: Any, answer: Any, terms: Any) -> RecordFacts:  # noqa: ARG002 - for packs whose records say more
        """Return what record and table contain in addition to the score; the defaults of `RecordFacts` fit most packs.

        Args:
            case: the case, an instance of `case_model`.
            answer: the answer, an instance of `answer_model`; None if it can't be read.
            terms: the terms of the score, in their order.
        """
        return RecordFacts()

    def target(self, rules: Any) -> Target | None:  # noqa: ARG002 - for packs with a reference target
        """Return the reference target, which runs if neither the suite nor an option names one; None without one.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return None

    def world(self, rules: Any, agent: str) -> Worlds | None:  # noqa: ARG002 - for packs that judge what a target does
        """Return what opens the world around each call of a target that isn't the reference target; None without one.

        With a world, the result that is scored is the world's. What the target returns is only its answer. It may have
        `guards`, the guards of the pack (the name for `--packbench-guard`, and a function that creates the guard), and
        `adapt`, which returns a target for an object of the domain that is no target by itself.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            agent: the name of the target in records.
        """
        return None

    def judges(self, rules: Any) -> Judges:  # noqa: ARG002 - for packs with judges
        """Return the judges of a suite, and the models that the pack asks; none by default.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return Judges()

    def tools(self) -> Tools:
        """Return what commands need of the pack, and no run: lint, importers, a starter; import it here."""
        from pytest_packbench.model.authoring import Tools

        return Tools()

    # What follows is the package's: it asks the members above, and no pack defines it (`MOVED`).

    def for_suite(self, rules: Any) -> Pack:
        """Return the pack of one suite; the same one each time."""
        if rules is self.rules:
            return self
        known: dict[int, Pack] = self.__dict__.setdefault("_of_suites", {})
        # each pack keeps its rules, so that their id stays unique
        if id(rules) not in known:
            bound = known[id(rules)] = copy(self)
            bound.rules, bound.case_model = rules, rules.narrowed(self.case_model)
        return known[id(rules)]

    def read(self, result: object) -> Outcome:
        """Validate the result of a target by `answer_model`; with `unknown_keys: ignore`, without its unknown keys.

        Raises:
            ResultError: it does not fit: an unreadable answer; states where, what was expected, and the nearest key.
        """
        model, rules = self.answer_model, self.rules
        try:
            if rules is not None and rules.unknown_keys == IGNORED:
                answer = without_unknown_keys(model, result, rules)
            else:
                answer = model.model_validate(result, context=rules)
        except ValidationError as error:
            problem = validation_problems(error, model, result)[0]
            found = pointers_of(unknown_keys(error, result))
            raise ResultError(problem.pointer, f"{problem.wrong}; {problem.expected}", found) from None
        return Outcome(
            document=answer,
            answer=answer.shown,
            refused=answer.refused,
            breakdown=answer.failure,
            firings=answer.firings,
        )

    def score(self, case: Any, outcome: Any, rules: Any) -> Score:
        """Return the score of an answer: the sum of its terms from 0 to 1, exactly 0 with a hard fail.

        Raises:
            TypeError: `terms` yields something else than terms.
        """
        terms: list[Term] = []
        agreement, threshold = Agreement(), self.threshold_of(case, rules)
        unread = unknown_key_notes(outcome.document.unread_keys)
        try:
            yielded: object = self.terms(case, outcome.document, rules)
            if not isinstance(yielded, Iterable):
                shown = printable_repr(yielded)
                raise TypeError(f"terms() returned {shown}, expected Terms; did you mean yield, in a plain def?")
            for each in yielded:
                if isinstance(each, Agreement):
                    agreement = each
                else:
                    terms.append(_checked_term(each))
        except Unscored as reason:
            found: dict[str, Any] = {"verdict": reason.verdict, "kind": reason.kind, "message": str(reason)}
            return Score(score=None, threshold=threshold, terms=(*terms, *unread), **found)
        points, clamp = total_of(terms)
        return Score(
            score=points,
            threshold=threshold,
            verdict=judged(points, threshold),
            terms=(*terms, *clamp, *unread),
            match_level=agreement.level,
            match_depth=agreement.depth,
        )

    def unread(self, case: Any, term: str, reason: str, rules: Any) -> Score:
        """Return the score of an unreadable answer: 0, with a term that fails the case; none where it shows nothing.

        Args:
            case: the case.
            term: `unreadable_answer`, or `truncated_answer` if the answer was cut off.
            reason: why it can't be read, in one line.
            rules: the content of `suite.yaml`.
        """
        threshold = self.threshold_of(case, rules)
        if case.vacuous_if_unread:
            message = f"{case.vacuous_if_unread}: {reason}"
            return Score(score=None, threshold=threshold, verdict="vacuous", message=message, kind=term)
        return unread_score(term, reason, threshold)

    def threshold_of(self, case: Any, rules: Any) -> float:
        """Return the lowest passing score of a case: its own, that of its type, or by what it expects."""
        thresholds: Thresholds = rules.thresholds
        return thresholds.of(case, refuses=_refuses(self, case))

    def explain(self, case: Any, outcome: Any, terms: Sequence[Term]) -> list[Comparison]:
        """Return the rows of a failing case: those of the pack, or decision and answer."""
        if rows := list(_facts(self, case, outcome.document, terms).compared):
            return rows
        words = {True: "refusal", False: "answer"}
        due = words[_refuses(self, case)]
        expected = "; ".join(_named_values(case.model_dump(mode="json", include={"expected"})["expected"]))
        return [
            Comparison(what="decision", expected=due, actual=words[outcome.refused]),
            Comparison(what="answer", expected=expected, actual=str(outcome.answer)),
        ]

    def decided_by(self, result: Any) -> str:
        """Return the name of the check of the pipeline that decided how a result ended; empty if none did."""
        try:
            return str(self.read(result).document.decided_by)
        except ResultError:
            return self.answer_model.decided_unread(result)

    def adapt_target(self, candidate: object) -> object:
        """Return a target for an object of the domain that is no target by itself; any other object as it is."""
        adapt = getattr(self.world(self.rules, ""), "adapt", None)
        return candidate if adapt is None else adapt(candidate)

    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """Return the guards of the pack: the name for `--packbench-guard`, and a function that creates the guard."""
        guards: Mapping[str, Callable[[], Any]] = getattr(self.world(self.rules, ""), "guards", {})
        return guards

    def input_text(self, case: Any) -> str:
        """Return the input of a case for people who read why it failed; only its beginning is shown."""
        return case.described or "; ".join(_named_values(self.request(case).input))


_INTO: Mapping[str, str] = {
    "answer_model": "read unread",
    "terms(case, answer, rules)": "score",
    "facts(case, answer, terms)": "unread_facts explain",
    "the models' own members (Case, Answer, SuiteConfig)": (
        "threshold_of decided_by keeps_prompts input_text test_id scripted unusable unused_rules can_accept"
    ),
    "the attribute rules": "for_suite",
    "world(rules, agent)": "worlds adapt_target guards",
    "judges(rules)": "roles",
    "metrics, an object of Metrics": ("figures paired_figures panels remarks depths cluster figures_of_unscored"),
    "tools(), an object of Tools": (
        "lint dated lint_options starter own_lint_rules importers criteria wrong_results also_acceptable"
    ),
}
MOVED: Mapping[str, str] = {name: place for place, names in _INTO.items() for name in names.split()}
"""The members that a pack had in earlier versions, and what is in their place."""

_EXAMPLES = {"name": "parcels", "version": "1"}
_MODELS: Mapping[str, type] = {"case_model": Case, "answer_model": Answer, "suite_model": SuiteConfig}


def problem_of(pack: Pack) -> str:
    """Return in one line what a pack has to change, or lacks; empty if nothing."""
    kind = type(pack)
    own = [name for each in kind.__mro__[: kind.__mro__.index(Pack)] for name in vars(each)]
    if moved := [name for name in MOVED if name in own]:
        changes = first_of([f"{name} is now {MOVED[name]}" for name in moved], _SHOWN)
        return f"{kind.__qualname__} is a pack of an earlier version: {'; '.join(changes)}; see docs/packs.md"
    missing = [name for name in ("name", "version", "answer_model") if not hasattr(kind, name)]
    missing += ["terms"] if kind.terms is Pack.terms else []
    if missing:
        return f"{kind.__qualname__} lacks {', '.join(missing)}; see docs/packs.md"
    for name in ("name", "version"):
        if not isinstance(text := getattr(pack, name), str) or not text:
            return f"{kind.__qualname__}.{name} is {text!r}, expected a text, such as {name} = {_EXAMPLES[name]!r}"
    for name, base in _MODELS.items():
        model = getattr(pack, name)
        if not isinstance(model, type) or not issubclass(model, base):
            return f"{kind.__qualname__}.{name} is {model!r}, expected a subclass of {base.__name__}"
    metrics: Any = pack.metrics
    if not isinstance(metrics, Metrics):
        is_class = isinstance(metrics, type) and issubclass(metrics, Metrics)
        expected = f"{metrics.__qualname__}()" if is_class else "an object of Metrics"
        return f"{kind.__qualname__}.metrics is {metrics!r}, expected {expected}"
    return ""


def has_paired_figures(pack: Pack) -> bool:
    """Return whether a pack has figures of what changed between two runs."""
    return type(pack.metrics).paired_figures is not Metrics.paired_figures


def _named_values(value: Any) -> Iterator[str]:
    """Yield the values in a JSON value that are not empty, each with its name."""
    for path, leaf in walk(value):
        if leaf not in (None, "") and not isinstance(leaf, dict | list | tuple):
            name = next((f"{key}: " for key in reversed(path) if isinstance(key, str)), "")
            yield name + (leaf if isinstance(leaf, str) else json.dumps(leaf))


def names_checks(pack: Pack) -> bool:
    """Return whether a pack names the check of its pipeline that decided a result."""
    return pack.answer_model.decided_by is not Answer.decided_by


def _checked_term(yielded: object) -> Term:
    """Return what `terms` yielded; raises TypeError unless it is a term whose value is a number."""
    if not isinstance(yielded, Term):
        raise TypeError(f"terms() yielded {printable_repr(yielded)}, expected a Term or an Agreement")
    value: object = yielded.value
    if not isinstance(value, int | float):
        shown = f"{yielded.name!r} with the value {printable_repr(value)}"
        raise TypeError(f"terms() yielded the Term {shown}, expected a number from -1 to 1")
    return yielded


def _refuses(pack: Pack, case: Any) -> bool:
    """Return what `expects_refusal` returns; raises TypeError if it is no bool, so that "no" would be true."""
    refuses: object = pack.expects_refusal(case)
    if not isinstance(refuses, bool):
        raise TypeError(f"expects_refusal() returned {printable_repr(refuses)}, expected True or False")
    return refuses


def _facts(pack: Pack, case: Any, document: Any, terms: Any) -> RecordFacts:
    """Return what `facts` returns; raises TypeError if it is no `RecordFacts`, or its labels are no pairs."""
    facts: object = pack.facts(case, document, terms)
    if not isinstance(facts, RecordFacts):
        raise TypeError(f"facts() returned {printable_repr(facts)}, expected RecordFacts")
    if facts.labels is None:
        return facts
    try:
        return replace(facts, labels=adapter(Labels | None).validate_python(facts.labels))
    except ValidationError:
        shown, such = printable_repr(facts.labels), 'such as (("city", "land"),); None for no label'
        raise TypeError(f"facts() returned labels {shown}, expected pairs of texts, {such}") from None


def record_facts(pack: Pack, case: Case, outcome: Outcome | None, score: Score) -> RecordFacts:
    """Return the facts of a pack with defaults for what it leaves out.

    Args:
        pack: the pack.
        case: the case.
        outcome: the outcome; None if the answer is unreadable.
        score: the score.

    Raises:
        Exception: whatever the pack raises.
    """
    facts = _facts(pack, case, None, ()) if outcome is None else _facts(pack, case, outcome.document, score.terms)
    expected: Decision = "refuse" if facts.expected is None and _refuses(pack, case) else "comply_safe"
    return replace(
        facts,
        attack_category=case.case_type if facts.attack_category is None else facts.attack_category,
        expected=facts.expected or expected,
        agent_decision=facts.agent_decision or ("refuse" if outcome is not None and outcome.refused else "comply_safe"),
    )


def figures_of(pack: Pack, results: Iterable[Result]) -> tuple[Figure, ...]:
    """Return the figures of a run, which a pack computes from its results.

    Args:
        pack: the pack.
        results: those of the run, with their records and payloads; iterated at most once.

    Raises:
        TypeError: the pack returns something else than figures.
        ValueError: two figures of a group have the same name.
        Exception: anything else that the pack raises.
    """
    return _checked(pack.metrics.figures(_summaries(pack, results)), "figures")


def panels_of(pack: Pack, results: Iterable[Result], figures: Sequence[Figure]) -> tuple[Panel, ...]:
    """Return what a pack adds to the page of a run.

    Args:
        pack: the pack.
        results: as in `figures_of`.
        figures: the figures of the run.

    Raises:
        TypeError: the pack returns something else than panels.
        Exception: anything else that the pack raises.
    """
    return instances(pack.metrics.panels(_summaries(pack, results), figures), Panel, "panels")


def paired_figures_of(pack: Pack, results: Iterable[tuple[Result, bool]]) -> tuple[Figure, ...]:
    """Return the figures of what changed between two runs, over the cases that are unchanged and of the same judge.

    Args:
        pack: the pack.
        results: those of both runs in turn, with their records and payloads, each with whether it is of the later run;
            iterated at most once.

    Raises:
        Exception: as in `figures_of`.
    """
    return _checked(pack.metrics.paired_figures(_pairs(pack, results)), "paired_figures")


def _pairs(pack: Pack, results: Iterable[tuple[Result, bool]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    # what the other run has not come to yet; little, since both are in the same order
    waiting: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
    for result, is_later in results:
        key = result.case.test_id, result.attempt.trial
        known = _summarized(pack, result), result.case.case_sha256, result.score.judge
        other = waiting[not is_later].pop(key, None)
        if other is None:
            waiting[is_later][key] = known
            continue
        (before, *was), (now, *is_now) = (other, known) if is_later else (known, other)
        same = (len({*each} - {None}) <= 1 for each in zip(was, is_now, strict=True))
        if before is not None and now is not None and all(same):
            yield before, now


def _checked(returned: Iterable[object], method: str) -> tuple[Figure, ...]:
    figures = instances(returned, Figure, method)
    for (group, name), number in Counter((figure.group, figure.name) for figure in figures).items():
        if number > 1:
            raise ValueError(f"got two figures with the name {name!r} in the group {group!r}; expected one")
    return figures


def instances(returned: object, kind: type[_Returned], method: str) -> tuple[_Returned, ...]:
    """Return what a pack's method returned.

    Raises:
        TypeError: it is no series, or one of something else than the class.
    """
    found = tuple(returned) if isinstance(returned, Iterable) else (returned,)
    checked = tuple(each for each in found if isinstance(each, kind))
    if len(checked) < len(found):
        raise TypeError(f"{method}() returned {found!r}, expected objects of the class {kind.__name__}")
    return checked


def _summaries(pack: Pack, results: Iterable[Result]) -> Iterator[Mapping[str, Any]]:
    return filter(None, (_summarized(pack, result) for result in results))


def _summarized(pack: Pack, result: Result) -> Mapping[str, Any] | None:
    """Return the record of a result, or what a pack wants to know of one without a record; None for nothing."""
    if result.record is not None:
        return result.record
    if not pack.metrics.figures_of_unscored or result.score.quarantined:
        return None
    return {
        "test_id": result.case.test_id,
        "llm_backend": result.attempt.llm_backend,
        "llm_model": result.attempt.llm_model,
        "packbench": {
            "verdict": result.score.verdict,
            "kind": result.score.kind,
            "facets": result.case.facets,
            "trial": result.attempt.trial,
            "result": result.attempt.payload,
        },
    }
