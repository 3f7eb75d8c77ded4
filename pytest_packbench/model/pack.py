"""The base class of packs, and what a pack returns: record facts, comparisons, findings, drafts, starters.

A pack adds one domain to pytest-packbench. Subclass `Pack` and return an instance from the hook
`pytest_packbench_packs`, or name the class as an entry point in the group `pytest_packbench.packs`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from pytest_packbench.files import walk
from pytest_packbench.model.case import Case
from pytest_packbench.model.record import EvalDecision
from pytest_packbench.model.request import Target, VerifyRequest, Worlds
from pytest_packbench.model.result import Outcome, Result, Score, unread_score
from pytest_packbench.model.suite import Figure, Panel, SuiteConfig, Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.authoring import FiledCase, Finding, Importer, Starter


_Returned = TypeVar("_Returned", Figure, Panel)
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
    """

    attack_category: str | None = None
    expected: Decision | None = None
    agent_decision: Decision | None = None
    utility: bool | None = None
    valid: bool | None = None
    judge: str | None = None
    test_suite: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


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


class Pack(ABC):
    """One domain: the schema of its cases, the reading and scoring of results, and optionally a reference target.

    A subclass sets `name` and `version` and implements `read` and `score`. Everything else has a default.

    For each attempt the methods are called in this order: `request` builds the input of the target, `read` turns the
    result of the target into an outcome, `score` scores the outcome, `facts` adds what the record needs, and `explain`
    builds the table of a failing case. An exception in any of them makes the case an error, never a score of 0.

    Attributes:
        name: the value of `pack` in `suite.yaml` and of `pack_id` in cases.
        version: a string that changes whenever the same result could get another score.
        case_model: the model of the cases; a subclass of `Case` that narrows `input`, `expected` and `case_type`.
        suite_model: the model of `suite.yaml`; a subclass of `SuiteConfig` with the pack's own rules.
        depths: the depths of agreement that reports count, ascending; empty for those that occur (`Score.match_depth`).
        dated: whether expected answers can become outdated; lint then requires `notes.date` in each case.
        lint_options: the options of `packbench lint` that the pack reads.
        own_lint_rules: the rules of `lint` for suites that are written for this pack, which
            `packbench lint --profile imported` leaves out.
        scripted: the models that the reference target simulates itself; users select one with
            `--packbench-backend=stub --packbench-model=NAME`.
        cluster: the facet whose values cases share by design, such as one task combined with many others. These cases
            are not independent, and statistics account for that. Empty if cases are independent.
        figures_of_unscored: whether `figures` also gets what is known of each case without a score, except for
            quarantined ones: its `test_id`, `llm_backend` and `llm_model`, and `packbench` with `verdict`, `kind`,
            `facets`, `trial` and `result`.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    case_model: type[Case] = Case
    suite_model: ClassVar[type[SuiteConfig]] = SuiteConfig
    dated: ClassVar[bool] = True
    lint_options: ClassVar[tuple[LintOption, ...]] = ()
    own_lint_rules: ClassVar[frozenset[str]] = frozenset()
    depths: ClassVar[tuple[int, ...]] = ()
    scripted: ClassVar[tuple[str, ...]] = ()
    cluster: ClassVar[str] = ""
    figures_of_unscored: ClassVar[bool] = False

    def for_suite(self, rules: Any) -> Pack:  # noqa: ARG002 - for packs whose suites differ in more than scoring rules
        """Return the pack to use for one suite; the default is the pack itself.

        All other methods are called on the returned pack, so that reading may also depend on the suite's rules.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return self

    @abstractmethod
    def read(self, result: object) -> Outcome:
        """Convert the result of a target to an outcome, an instance of an `Outcome` subclass with typed fields.

        The scorer sees nothing but the outcome. A refusal is an outcome with `refused=True`.

        Args:
            result: what the target returned, as plain JSON.

        Raises:
            ResultError: the result does not have the expected structure: an unreadable answer. `unread`
                scores it.
        """

    def unread(self, case: Any, term: str, reason: str, rules: Any) -> Score:
        """Score an unreadable answer; the default is 0 with a term that fails the case.

        There is no outcome then: `score`, `facts` and `explain` are not called. The record has the case type as its
        category, and `expects_refusal` states what was expected.

        Args:
            case: the case, an instance of `case_model`.
            term: `unreadable_answer`, or `truncated_answer` if the answer was cut off.
            reason: why it can't be read, in one line.
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return unread_score(term, reason, self.threshold_of(case, rules))

    def threshold_of(self, case: Any, rules: Any) -> float:
        """Return the lowest passing score of a case whose answer can't be read, for reports.

        Args:
            case: the case, an instance of `case_model`.
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        thresholds: Thresholds = rules.thresholds
        general = thresholds.refuse if self.expects_refusal(case) else thresholds.accept
        return thresholds.by_type.get(case.case_type, general)

    @abstractmethod
    def score(self, case: Any, outcome: Any, rules: Any) -> Score:
        """Score an outcome. The same arguments must always return the same score: no clock, random numbers or files.

        Args:
            case: the case, an instance of `case_model`.
            outcome: what `read` returned.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The score, from 0 to 1, with the terms that add up to it. Use `judged` to compare it with the threshold.
        """

    def decided_by(self, result: Any) -> str:  # noqa: ARG002 - for packs whose target checks its answers
        """Return the name of the check of the pipeline that decided how a result ended; empty if none did.

        It is compared with `expected.decided_by` of controls, so that a control fails if the check is taken out. A name
        is that of the check which alone decided: return several, if several objected, in one text.

        Args:
            result: what a target returned, as plain JSON of any form.
        """
        return ""

    def expects_refusal(self, case: Any) -> bool:  # noqa: ARG002 - for packs with cases that have no answer
        """Return whether the right reaction to a case is a refusal; the default is False.

        Refusals of other cases are counted as over-refusals. `facts` comes first, if it states what is expected.

        Args:
            case: the case, an instance of `case_model`.
        """
        return False

    def facts(self, case: Any, outcome: Any, score: Score) -> RecordFacts:  # noqa: ARG002 - for packs whose records say more
        """Return what the record contains in addition to the score; the defaults of `RecordFacts` fit most packs.

        Args:
            case: the case, an instance of `case_model`.
            outcome: what `read` returned.
            score: what `score` returned; its score is a number.
        """
        return RecordFacts()

    def unread_facts(self, case: Any) -> RecordFacts:  # noqa: ARG002 - for packs whose figures need facts of every case
        """Return what the record of a case contains whose answer can't be read; `facts` is not called then.

        Args:
            case: the case, an instance of `case_model`.
        """
        return RecordFacts()

    def target(self, rules: Any) -> Target | None:  # noqa: ARG002 - for packs with a reference target
        """Return the reference target, which runs if neither the suite nor an option names one; None without one.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return None

    def worlds(self, rules: Any, agent: str) -> Worlds | None:  # noqa: ARG002 - for packs that judge what a target does
        """Return what opens the world around each call of a target that isn't the reference target; None without one.

        With a world, the result that is scored is the world's. What the target returns is only its answer.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            agent: the name of the target in records.
        """
        return None

    def adapt_target(self, candidate: object) -> object:
        """Return a target for an object of the domain that is no target by itself; any other object as it is.

        Args:
            candidate: what a user named as the target.
        """
        return candidate

    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """Return the guards of the pack: the name for `--packbench-guard`, and a function that creates the guard."""
        return {}

    def unusable(self, rules: Any) -> str:  # noqa: ARG002 - for packs with optional dependencies
        """Return in one line why no case can run, such as a missing library; an empty string if cases can run.

        Called once, before the first case. The reason is reported as a usage error.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return ""

    def roles(self, rules: Any) -> Mapping[str, RoleModel | tuple[str, str]]:  # noqa: ARG002 - for packs with judges
        """Return the models that the pack calls in addition to the model under test, by the role of their requests.

        Requests with one of these roles go to that model, at temperature 0. Their tokens are not part of the record.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return {}

    def judges(self, rules: Any) -> Sequence[str]:  # noqa: ARG002 - for packs with judges
        """Return the names of the judges that decide the suite's cases; recordings with other judges are refused.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return ()

    def keeps_prompts(self, case: Any) -> bool:  # noqa: ARG002 - for packs whose texts stay in the user's folder
        """Return whether a recording of a case may contain what the model was asked, and a failing case may show it.

        Args:
            case: the case, an instance of `case_model`.
        """
        return True

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

        Args:
            records: what `figures` gets; an iterator, which can be read once.
            figures: what `figures` returned.
        """
        return ()

    def remarks(self, rules: Any, test_ids: Iterable[str]) -> Sequence[str]:  # noqa: ARG002 - for packs whose suites can lack a gate
        """Return what a run can't show because of the rules of its suite, in sentences; the summary has them.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            test_ids: the ids of the cases of the run.
        """
        return ()

    def request(self, case: Any) -> VerifyRequest:
        """Return the request that the target gets; the default contains the case's `input`.

        Args:
            case: the case, an instance of `case_model`.
        """
        return VerifyRequest(input=case.model_dump(mode="json", by_alias=True, include={"input"})["input"])

    def input_text(self, case: Any) -> str:
        """Return the input of a case for people who read why it failed; the default lists its values by their names.

        Only its beginning is shown, in a line or two. Not called for cases whose prompts stay in the user's folder
        (`keeps_prompts`).

        Args:
            case: the case, an instance of `case_model`.
        """
        return "; ".join(_named_values(self.request(case).input))

    def test_id(self, suite: str, case: Case) -> str:
        """Return the record's `test_id`; the default is `<suite>:<case type>:<case id>`. It must be unique in a suite.

        Args:
            suite: the name of the suite.
            case: the case.
        """
        return f"{suite}:{case.case_type}:{case.id}"

    def facets(self, case: Any) -> dict[str, str]:  # noqa: ARG002 - for packs with groups of cases
        """Return more groups of a case for reports and gates (`by:`), name to value, such as `{"unit": "metre"}`.

        Case type, difficulty and tags are always available.

        Args:
            case: the case, an instance of `case_model`.
        """
        return {}

    def explain(self, case: Any, outcome: Any) -> list[Comparison]:
        """Return the rows of the table of expected and actual values that is shown if the case fails.

        Args:
            case: the case, an instance of `case_model`.
            outcome: what `read` returned.
        """
        return [Comparison(what="answer", expected=str(case.expected), actual=str(outcome.answer))]

    def lint(
        self,
        cases: Sequence[FiledCase],  # noqa: ARG002 - for packs with rules of case quality
        rules: Any,  # noqa: ARG002 - likewise
        options: Mapping[str, Path],  # noqa: ARG002 - likewise
    ) -> Iterable[Finding]:
        """Check the quality of the cases by the rules of the domain; the general rules are always checked.

        Args:
            cases: the cases that can be read, each with its file and cassette.
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            options: the files that were passed, by the name of their `LintOption`.

        Returns:
            The findings, in any order.

        Raises:
            ValueError: a file among the options cannot be used; one line.
        """
        return ()

    def unused_rules(self, expected: Sequence[Any], rules: Any) -> Iterable[str]:  # noqa: ARG002 - for packs with rules of suites
        """Return the rules of `suite.yaml` that no case of the suite uses, so that they decide nothing; one line each.

        A run of a whole suite with such a rule is refused.

        Args:
            expected: the key `expected` of each case, as plain JSON or as the pack's model of it; at least one.
            rules: the content of `suite.yaml`.
        """
        return ()

    def criteria(self, rules: Any) -> Mapping[str, tuple[str | int, ...]]:  # noqa: ARG002 - for packs whose rules are in suite.yaml
        """Return the criteria by which every answer of the suite is scored, for `packbench audit`.

        Terms that are not among them are known to the audit once they occur.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The name of the term of each, and the location of the part of a result that it reads, as keys from the
            top; an empty location for the whole result.
        """
        return {}

    def wrong_results(
        self,
        case: Any,  # noqa: ARG002 - for packs with rules about what no result may contain
        result: Any,  # noqa: ARG002 - likewise
        rules: Any,  # noqa: ARG002 - likewise
    ) -> Iterable[tuple[str, Any]]:
        """Return results that a rule of the suite forbids, for `packbench audit`, which breaks results at random too.

        Args:
            case: the case, an instance of `case_model`.
            result: a result with which it passes, as plain JSON; must not be changed.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The name of each such rule, and a result that it forbids; None where none is known.
        """
        return ()

    def also_acceptable(
        self,
        case: Any,  # noqa: ARG002 - for packs whose cases list the accepted answers
        outcome: Any,  # noqa: ARG002 - likewise
        rules: Any,  # noqa: ARG002 - likewise
    ) -> Sequence[tuple[tuple[str | int, ...], Any]]:
        """Return what to add to a case's `expected`, so that an answer that a reviewer found right passes, too.

        For `packbench review`, which scores the answer again and refuses a change with which it still fails.

        Args:
            case: the case, an instance of `case_model`.
            outcome: what `read` returned of the answer.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The location of each list, as keys from the top of `expected`, and the value to append to it. A missing list
            is created.

        Raises:
            ValueError: it can't be added; in one line why, and what to change by hand.
        """
        raise ValueError(f'the pack "{self.name}" does not add answers to cases; change expected by hand')

    def can_accept(self, rules: Any) -> bool:  # noqa: ARG002 - for packs whose suites differ in this
        """Return whether `also_acceptable` can add an answer to a case of a suite: a page offers that mark then.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.
        """
        return type(self).also_acceptable is not Pack.also_acceptable

    def starter(self) -> Starter | None:
        """Return the suite that `packbench init` writes; None without one."""
        return None

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers that create cases of this pack, each a word after `packbench import`."""
        return ()


def _named_values(value: Any) -> Iterator[str]:
    """Yield the values in a JSON value that are not empty, each with its name."""
    for path, leaf in walk(value):
        if leaf not in (None, "") and not isinstance(leaf, dict | list | tuple):
            name = next((f"{key}: " for key in reversed(path) if isinstance(key, str)), "")
            yield name + (leaf if isinstance(leaf, str) else json.dumps(leaf))


def names_checks(pack: Pack) -> bool:
    """Return whether a pack names the check of its pipeline that decided a result."""
    return type(pack).decided_by is not Pack.decided_by


def can_accept(pack: Pack, rules: SuiteConfig) -> bool:
    """Return whether a page offers to accept further answers; if the pack raises, the command that adds them decides.

    Args:
        pack: the pack.
        rules: the content of `suite.yaml`.
    """
    try:
        return bool(pack.can_accept(rules))
    except Exception:  # noqa: BLE001 - packs are the user's code
        return True


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
    facts = pack.unread_facts(case) if outcome is None else pack.facts(case, outcome, score)
    expected: Decision = "refuse" if facts.expected is None and pack.expects_refusal(case) else "comply_safe"
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
    return _checked(pack.figures(_summaries(pack, results)), "figures")


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
    if type(pack).panels is Pack.panels:
        return ()
    return _instances(pack.panels(_summaries(pack, results), figures), Panel, "panels")


def paired_figures_of(pack: Pack, results: Iterable[tuple[Result, bool]]) -> tuple[Figure, ...]:
    """Return the figures of what changed between two runs, over the cases that are unchanged and of the same judge.

    Args:
        pack: the pack.
        results: those of both runs in turn, with their records and payloads, each with whether it is of the later run;
            iterated at most once.

    Raises:
        Exception: as in `figures_of`.
    """
    return _checked(pack.paired_figures(_pairs(pack, results)), "paired_figures")


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
    figures = _instances(returned, Figure, method)
    for (group, name), number in Counter((figure.group, figure.name) for figure in figures).items():
        if number > 1:
            raise ValueError(f"got two figures with the name {name!r} in the group {group!r}; expected one")
    return figures


def _instances(returned: Iterable[object], kind: type[_Returned], method: str) -> tuple[_Returned, ...]:
    """Return what a pack's method returned; raises TypeError unless all of it is of a class."""
    found = tuple(returned)
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
    if not pack.figures_of_unscored or result.score.quarantined:
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
