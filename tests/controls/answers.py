"""Wrong answers to the cases of a tariff suite, and right ones in another form, each made of the right answer by one change.

`answers.yaml` describes the changes. Nothing else in the right answer differs, so a control that is not caught shows a
hole in the scoring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pytest_packbench.engine.attempt import score_payload
from tests.controls.answer_values import VALUES, WHEN, only_allowed, saving_below_the_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_packbench.engine.attempt import AttemptState
    from tests.controls.right_answers import Json, RightAnswer

TABLE = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text("utf-8"))
# the terms of wrong answers to goods that must be refused
OF_REFUSALS = frozenset({"unexpected_acceptance", "refusal_category_mismatch"})
OF_ALL = frozenset({"contradictory_decision", "unreadable_answer"})
# the terms of wrong answers to cases of one article and of several
OF_ANY_NUMBER = OF_ALL | {"unexpected_refusal"}
BELOW = frozenset(
    [
        "allowed_match",
        "chapter_match",
        "no_match",
        "invalid_code",
        "refusal_category_mismatch",
        "article_match",
        "article_missing",
        "article_extra",
    ]
)
PENALTIES = frozenset({"gri_sequence", "duty_delta", "base_rate", "deciding_rule"})
NAME = re.compile(r"\$(\w+)(?:([*+])(-?[\d.]+))?")


def filled(template: Any, names: Mapping[str, Any]) -> Any:
    """Fill in the names of a template."""
    if isinstance(template, dict):
        return {key: filled(value, names) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, names) for value in template]
    if not isinstance(template, str) or (found := NAME.fullmatch(template)) is None:
        return template
    value = names[found[1]]
    return value if not found[2] else value * float(found[3]) if found[2] == "*" else value + float(found[3])


def changed(right: RightAnswer, change: Json) -> Json:
    """Return the right answer with values at paths."""
    result = right.copy()
    for path, value in change.items():
        first, *keys = path.split(".")
        place = result
        if keys:
            place = result["tariff_dossier"] = result["tariff_dossier"] or {}
            if first == "best":
                best = place["optimized"]["what_if_id"]
                place = next(item for item in place["what_if_candidates"] if item["id"] == best)
            elif first != "dossier":
                is_final = right.context.suite.config.scored_code == "final" and place["optimized"]
                keys.insert(0, ("optimized" if is_final else "baseline") if first == "scored" else first)
        *parents, last = keys or [first]
        for key in parents:
            place[key] = place = place.get(key) or {}
        if last == "whole":
            result = value
        elif last == "without":
            del result[value]
        elif last.endswith("+"):
            place[last[:-1]] = [*(place.get(last[:-1]) or []), value]
        else:
            place[last] = value
    return result


def put(right: RightAnswer, change: Json, place: str) -> Json:
    """Return the right answer with a change in one of the places of `in`."""
    if place == "proof":
        change = {"proof": change}
    elif place == "last":
        # as results of the earlier reference target had them
        change = {"iterations": [{"i": 1, "accepted": right.accepts, "rejected_because": [], **change}]}
    elif place == "dossier":
        change = {f"dossier.{key}": value for key, value in change.items()}
    result = changed(right, change)
    if place in {"moved", "copied"}:
        kept = None if place == "moved" else right.copy()["tariff_dossier"]
        result |= {"proof": {"tariff_dossier": result["tariff_dossier"]}, "tariff_dossier": kept}
    return result


def variants(right: RightAnswer, groups: Any) -> Iterator[Json]:
    """Yield the answers that groups of rows describe."""
    for group in groups if isinstance(groups, list) else [groups]:
        when = group.get("when", [])
        if not all(WHEN[name](right) for name in ([when] if isinstance(when, str) else when)):
            continue
        for change in group["changes"]:
            names = sorted(set(re.findall(r"\$(\w+)", str(change))))
            each = [group.get("each", {}).get(name, f"${name}") for name in names]
            values = [list(VALUES[one[1:]](right)) if isinstance(one, str) else one for one in each]
            for combination in product(*values):
                plain = filled(change, dict(zip(names, combination, strict=True)))
                yield from (put(right, plain, place) for place in group.get("in", ["top"]))


@dataclass(frozen=True)
class OddAnswer:
    """A kind of right answer in another form of the document, which must score in full."""

    name: str
    groups: Any
    requirement: str = "score 1"

    def misses(self, right: RightAnswer, _: RightAnswer) -> Iterator[str]:
        for result in variants(right, self.groups):
            outcome: Any = score_payload(right.context, right.loaded, result)
            terms = [(term.name, term.points, term.detail) for term in outcome.score.terms] if outcome.score else []
            yield "" if outcome.score and outcome.score.score == 1.0 else f"{outcome.failure}: {terms}"


@dataclass(frozen=True)
class WrongAnswer:
    """A kind of wrong answer."""

    # the term that must be the cause
    term: str
    name: str
    groups: Any
    # expectations of the case that are changed
    of_case: Callable[[RightAnswer], Json] | None = None
    # of cases with several articles
    of_articles: bool = False
    # a penalty, which is a hard fail in cases that ask for a saving; None for what is one in no case or in all
    asked: bool | None = None

    @property
    def requirement(self) -> str:
        """A hard fail, a score below the threshold without one, or a sum lower by exactly the term."""
        if self.term in BELOW:
            return "below the threshold"
        return "costs exactly its term" if self.term in PENALTIES and not self.asked else "score exactly 0"

    def results(self, right: RightAnswer) -> list[Json]:
        applies = self.term in OF_ALL or right.accepts != (self.term in OF_REFUSALS)
        applies &= self.term in OF_ANY_NUMBER or bool(right.expected.articles) == self.of_articles
        applies &= self.asked in {None, bool(right.expected.savings)}
        return list(variants(right, self.groups)) if applies else []

    def misses(self, right: RightAnswer, _: RightAnswer) -> Iterator[str]:
        """Run the controls; a claim under a key, or in a form, that the document does not have is unreadable."""
        loaded = right.loaded
        if self.of_case is not None:
            expected = right.expected.model_copy(update=self.of_case(right))
            loaded = loaded._replace(case=right.case.model_copy(update={"expected": expected}))
        return (self._miss(right, score_payload(right.context, loaded, wrong)) for wrong in self.results(right))

    def _miss(self, right: RightAnswer, outcome: AttemptState) -> str:
        """Describe why a control was missed; empty if it was caught for the required reason."""
        score: Any = outcome.score
        if outcome.failure is not None or score is None or score.score is None:
            return f"no score: {outcome.failure}"
        zeros = {term.name for term in score.terms if term.effect == "zero"}
        effective = {term.name for term in score.terms if term.effect != "note"}
        if self.requirement == "below the threshold":
            caught = not score.passed and not zeros and self.term in {term.name for term in score.terms}
        elif self.requirement == "costs exactly its term":
            costs = sum(getattr(right.context.suite.config.scoring, name) for name in PENALTIES & effective)
            points, right_points = (sum(t.value for t in s.terms if t.effect == "add") for s in (score, right.score))
            is_exact = abs(points - right_points - costs) < 1e-9
            is_clamped = abs(score.score - min(1.0, max(0.0, points))) < 1e-9
            caught = costs < 0 and not zeros and is_exact and is_clamped and self.term in effective
        else:
            caught = score.score == 0.0 and not zeros.isdisjoint({self.term, "unreadable_answer"}) and not score.passed
        if caught:
            return ""
        terms = ", ".join(f"{term.name} {term.points}" for term in score.terms)
        return f"{score.score} of {score.threshold}, not for {self.term}: {terms}"


def _kinds(table: str, **changes: Any) -> Iterator[WrongAnswer]:
    for term, kinds in TABLE[table].items():
        for name, groups in kinds.items():
            if term == "base_rate" and table == "wrong":
                yield WrongAnswer(term, name, groups, asked=False)
                yield WrongAnswer(term, f"{name}, where a saving is asked for", groups, asked=True)
            else:
                yield WrongAnswer(term, name, groups, **changes)


AS_IT_IS: dict[str, Any] = {"changes": [{}]}
WRONG_ANSWERS = (
    *_kinds("wrong"),
    *_kinds("wrong_articles", of_articles=True),
    WrongAnswer("allowed_match", "preferred code, if only allowed", AS_IT_IS, only_allowed),
    WrongAnswer("savings_size", "saving less than the least", {"when": "saving", **AS_IT_IS}, saving_below_the_least),
)
ODD_ANSWERS = tuple(OddAnswer(name, groups) for name, groups in TABLE["right"].items())
