"""The metrics of the field: what a record keeps for them, and the figures of a run, from its records in one pass.

They are accuracy by digits, invalid and forbidden codes, refusals by category, pairs, duty at stake, the target's own
gates against the scorer, and confusion of chapters. Answers of different models, and authored ones, are never added up.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.pack import Metrics
from pytest_packbench.model.suite import AUTHORED, Figure, Panel
from pytest_packbench.packs.tariff.citations import quotes_hold
from pytest_packbench.packs.tariff.judged import DEPTHS, EXTRA
from pytest_packbench.packs.tariff.model import FORBIDDEN_LEVEL, RefusalCategory
from pytest_packbench.packs.tariff.notation import LEVELS, depth, digits, is_under
from pytest_packbench.packs.tariff.scoring import order_of, stated_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.judged import Judged
    from pytest_packbench.packs.tariff.model import ExpectedArticle, TariffCase, TariffExpected

KEY = "tariff"
"""The key of a record's `packbench` object for what the metrics need."""
GOODS_VALUE = 10_000
"""The value of the goods for which duty at stake is stated, US dollars."""
CATEGORIES: tuple[str, ...] = get_args(RefusalCategory)
_RULING = "ruling:"
_PAIR = "pair_"
OWN_GATES = ("citations", "order")
"""The gates of a target that the scorer checks."""
_CHAPTER = re.compile(r"[0-9]{2}", re.ASCII)
_CENTS = 100
_DEPTH = "how deep the codes of answers agree"
_ACCURACY, _REFUSALS, _DUTY = "codes", "refusals and pairs", f"duty at stake on goods worth {GOODS_VALUE:,} USD"
_GATES, _CONFUSION = "the target's own gates", "confusion of chapters"


class _Kind(NamedTuple):
    """A kind of figure: its name, its definition, what it is about, and whether a terminal shows it."""

    name: str
    definition: str
    group: str
    headline: bool = False


_SHARES: Mapping[str, _Kind] = {
    **{
        f"accuracy_{level}": _Kind(
            f"right to {level} digits",
            f"Answers whose first {level} digits are those of an expected code, and in the schedule, among the cases "
            "that expect an answer. An answer that is right to all digits that its case expects is right to more. A "
            "refusal or an answer that can't be read counts as wrong.",
            _ACCURACY,
            headline=level in {6, 10},
        )
        for level in LEVELS
    },
    "wrong_codes": _Kind(
        "wrong code",
        "Answers that are not right to all digits that their case expects, among the cases that expect an answer. A "
        "refusal is none; an answer that can't be read is one.",
        _ACCURACY,
        headline=True,
    ),
    "refused_unduly": _Kind(
        "refused, undue",
        "Refusals, among the cases that expect an answer: no code is given, and none is wrong.",
        _ACCURACY,
        headline=True,
    ),
    **{
        f"agreement_{level}": _Kind(
            f"agrees to {name}" if level else "agrees not even to the chapter",
            f"Answers whose code is right to {f'{level} digits and no further' if level else 'no digit'}, among the "
            "answers to cases that expect one; the least of several articles counts.",
            _DEPTH,
        )
        for level, name in DEPTHS.items()
    },
    "invalid_codes": _Kind(
        "invalid codes",
        "Answers with a code that is not in the schedule, among all answers with a code: also those about several "
        "articles, and those that contradict themselves. A text that is no code is an answer that can't be read.",
        _ACCURACY,
        headline=True,
    ),
    "forbidden_codes": _Kind(
        "forbidden codes",
        "Answers with a code that the case forbids, among the answers with a code to cases that expect one: also those "
        "about several articles, and those that contradict themselves.",
        _ACCURACY,
        headline=True,
    ),
    "refusal_precision": _Kind(
        "precision of refusals", "Refusals that the case expects, among all refusals; in any category.", _REFUSALS
    ),
    "refusal_recall": _Kind(
        "recall of refusals",
        "Refusals, among the cases that expect one; in any category.",
        _REFUSALS,
        headline=True,
    ),
    **{
        f"refusal_{kind}_{category}": _Kind(f"{kind}: {category}", definition, _REFUSALS)
        for category in CATEGORIES
        for kind, definition in (
            ("precision", "Refusals in a category that the case expects, among the refusals in this category."),
            ("recall", "Refusals in this category, among the cases that expect it."),
        )
    },
    "pairs": _Kind(
        "pairs",
        "Pairs of which both halves pass: the same goods without the fact that decides, which are refused, and with "
        "it, which are classified. Pairs with a half that was not judged are left out.",
        _REFUSALS,
        headline=True,
    ),
    "duty_overpaid": _Kind(
        "overpaid", "Answers whose code has a higher duty than the expected one, among those of known duty.", _DUTY
    ),
    "duty_underpaid": _Kind(
        "underpaid", "Answers whose code has a lower duty than the expected one, among those of known duty.", _DUTY
    ),
    "duty_not_known": _Kind(
        "duty not known",
        "Answers whose duty can't be compared with that of the expected code, among the answers that can be read, to "
        "cases that expect one: the code is not a line of the schedule, one of two different rates is no percentage of "
        "the value, or one of several articles, which share the value equally, has no code that matches it.",
        _DUTY,
    ),
    **{
        f"{gate}_{verdict}_wrongly": _Kind(
            f"{gate}: the gate {verdict}, the scorer {other}",
            f"Answers whose {gate} the target's own gate {verdict} and the scorer {other}, among those judged by both.",
            _GATES,
        )
        for gate in OWN_GATES
        for verdict, other in (("passed", "failed"), ("failed", "passed"))
    },
}
_AMOUNTS = {
    True: ("overpaid per case", "duty_overpaid", "The duty of wrong codes above that of the expected ones"),
    False: ("underpaid per case", "duty_underpaid", "The duty of wrong codes below that of the expected ones"),
}


def case_facts(case: TariffCase) -> dict[str, Any]:
    """Return what a record keeps of a case under `packbench.tariff`, plain JSON, even if the answer can't be read."""
    source, expected = case.notes.source, case.expected
    pair = next((tag for tag in case.notes.tags if tag.startswith(_PAIR)), None)
    return {
        "ruling": source.removeprefix(_RULING) if source.startswith(_RULING) else None,
        "pair": pair,
        "expected_category": expected.expected_refusal_category,
        **({"articles": [_article(article, None) for article in expected.articles]} if expected.articles else {}),
    }


def _article(expected: ExpectedArticle, given: str | None) -> dict[str, str | None]:
    """Return what a record keeps of one of several articles: the digits of its code and of the expected one."""
    return {"code": given, "expected_code": _nearest(expected, given)}


def answer_facts(judged: Judged) -> dict[str, Any]:
    """Return what a record keeps of an answer under `packbench.tariff`, beside the facts of its case, plain JSON."""
    expected, answer, edition = judged.expected, judged.answer, judged.edition
    accepted = answer.status == "verified"
    given = judged.scored.hts_code if accepted and judged.scored else None
    right = _nearest(expected, given) if expected.expected_accept else None
    known = None if given is None or right is None else duty_gap(given, right, edition)
    articles: list[dict[str, str | None]] = []
    if expected.articles and accepted:
        articles = _articles(judged)
        # an article too many has no expected code to be compared with
        is_extra = any(match.level == EXTRA for match in judged.matches)
        known = None if is_extra else _mean_gap(articles, edition)
    gates = own_gates(judged)
    return {
        "category": answer.refusal.category if answer.status == "refused" and answer.refusal else None,
        "code": given,
        "expected_code": right,
        # in the place of those of the case
        **({"articles": articles} if articles else {}),
        **({} if edition is None else {"duty_gap_usd": known}),
        "own_gates": gates,
        "disagreements": [name for name, said in gates.items() if said["target"] != said["scorer"]],
    }


def _articles(judged: Judged) -> list[dict[str, str | None]]:
    """Return the code for each article; where one is missing and one matches none, that one is taken for it."""
    used = {pair.number for pair in judged.pairs if pair.match.points}
    listed = [item.baseline.hts_code for item in judged.answer.dossier.articles]
    others = [code for number, code in enumerate(listed) if number not in used]
    missing = [pair for pair in judged.pairs if not pair.match.points]
    taken = others[0] if len(others) == len(missing) == 1 else None
    return [_article(pair.expected, pair.match.code if pair.match.points else taken) for pair in judged.pairs]


def _mean_gap(articles: Sequence[Mapping[str, str | None]], edition: Edition | None) -> float | None:
    """Return the difference in duty of several articles, which share the value of the goods equally."""
    codes = [(article["code"], article["expected_code"]) for article in articles]
    gaps = [duty_gap(given, right, edition) if given and right else None for given, right in codes]
    known = [gap for gap in gaps if gap is not None]
    return round(sum(known) / len(gaps), 2) + 0.0 if gaps and len(known) == len(gaps) else None


def is_valid(judged: Judged) -> bool | None:
    """Return whether each code that an answer gives is in the schedule, if there is any; None without a code.

    The codes of an answer that contradicts itself count as well: else a contradiction would hide them.
    """
    codes = [part.hts_code for part in judged.answer.dossier.baselines]
    codes += [best.hts_code] if (best := judged.answer.dossier.optimized) else []
    if not codes:
        return None
    return all(judged.edition is None or judged.edition.existing(code) == code for code in codes)


def _nearest(expected: TariffExpected | ExpectedArticle, given: str | None) -> str | None:
    """Return the preferred code, as digits, that shares the most leading digits with the given one; else the first."""
    codes = map(digits, expected.preferred_hts)
    return max(codes, key=lambda code: depth(code, given or ""), default=None)


def duty_gap(given: str, right: str, edition: Edition | None) -> float | None:
    """Return the duty of a wrong code less that of the right one, on goods worth 10,000 US dollars.

    The rates are the general rates of the schedule.

    Args:
        given: the digits of the answer's code.
        right: the digits of the expected code; one of 6 or 8 digits stands for every line below it.
        edition: the schedule.

    Returns:
        US dollars, rounded to cents: above 0 is overpaid, below 0 underpaid, 0 where the code is right or both rates
        are the same. None where it can't be computed: without a schedule, for a code that is not in it or has no rate,
        and where two different rates are not both percentages of the value.
    """
    if edition is None or edition.existing(given) != given:
        return None
    if is_under(given, right):
        return 0.0
    rate, expected = edition.rate(given), edition.rate(right)
    if rate is None or expected is None:
        return None
    if rate.pct is not None and expected.pct is not None:
        return round((rate.pct - expected.pct) / 100 * GOODS_VALUE, 2) + 0.0
    # the same amount per kilogram or pair is the same duty; a rate in words may mean anything
    return 0.0 if rate.text == expected.text and any(char.isdigit() for char in rate.text) else None


def own_gates(judged: Judged) -> dict[str, dict[str, bool]]:
    """Return what the target's own gates say of an answer, beside what the scorer computes.

    Returns:
        For `citations` and `order`, whether they are right by the `target` and by the `scorer`; a gate is missing where
        one of them does not say.
    """
    stated, faults = judged.answer.citation_gate_result, order_of(judged.answer)
    said = {
        "citations": (stated.ok if stated else None, quotes_hold(judged)),
        "order": (stated_order(judged.answer), None if faults is None else not faults),
    }
    return {
        name: {"target": target, "scorer": scorer}
        for name, (target, scorer) in said.items()
        if target is not None and scorer is not None
    }


def figures(records: Iterable[Mapping[str, Any]]) -> list[Figure]:
    """Return the figures of a run.

    Args:
        records: its wire records as plain JSON; iterated once.

    Returns:
        The figures of each model, and those of the authored answers, which have no interval. What no record knows of
        is left out, so that a figure of 0 was measured.
    """
    return [
        figure
        for who, of, sums in _answerers(records)
        for figure in _figures_of(sums, of=of, is_sample=who.backend != AUTHORED)
    ]


def panels(records: Iterable[Mapping[str, Any]]) -> list[Panel]:
    """Return the confusion of chapters and the invalid codes of a run, for each model and for the authored answers.

    Args:
        records: its wire records as plain JSON; iterated once.
    """
    return [panel for _, of, sums in _answerers(records) for panel in _panels_of(sums, of)]


class TariffMetrics(Metrics):
    """What the reports of a run show of tariff answers."""

    depths = LEVELS

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:
        """Return the metrics of the field; see `figures`."""
        return figures(records)

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:
        """Return the confusion of chapters and the invalid codes; see `panels`."""
        del figures
        return panels(records)


class _Answerer(NamedTuple):
    """Whose answers are counted together."""

    backend: str
    model: str


def _answerers(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[_Answerer, str, _Sums]]:
    """Yield the sums of each answerer, with what the titles of its figures end with beside those of others."""
    answers: dict[_Answerer, _Sums] = {}
    for record in records:
        backend = _text(record.get("llm_backend"))
        # whoever wrote them, authored answers are counted together
        who = _Answerer(backend, "" if backend == AUTHORED else _text(record.get("llm_model")))
        answers.setdefault(who, _Sums()).add(record)
    for who, sums in sorted(answers.items(), key=lambda item: item[0]):
        yield who, f": {' / '.join(filter(None, who)) or 'not known'}" if len(answers) > 1 else "", sums


def _panels_of(sums: _Sums, of: str) -> Iterator[Panel]:
    confusion = sums.confusion
    total = confusion.total()
    wrong = {pair for pair in confusion if pair[0] != pair[1]}
    if total:
        shown = sorted({expected for expected, _ in wrong})
        # a column that is 0 in each row says nothing
        given = {given for expected, given in confusion if expected in shown}
        named = sorted(given, key=lambda name: (not name.isdigit(), name))
        # an answer may be due several articles
        due = pluralize(sums.due, "answer")
        counted = f"{total} articles due in {due}" if total != sums.due else f"{due} due in a chapter"
        right = sum(count for (expected, given), count in confusion.items() if expected == given)
        yield Panel(
            title=f"Confusion by chapter{of}",
            intro=f"{right} of {counted} are in the expected {'chapter' if total != sums.due else 'one'}"
            + ("; only chapters with another answer are shown." if wrong else "."),
            head=("expected", *named) if wrong else (),
            rows=tuple((expected, *(confusion[expected, given] for given in named)) for expected in shown),
            matrix=True,
        )
    if with_code := sum(size for _, size in sums.shares("invalid_codes")):
        yield Panel(
            title=f"Invalid codes{of}",
            intro=f"{len(sums.invalid)} of {pluralize(with_code, 'answer')} with a code have one that is not in the "
            "schedule.",
            head=("case", "code"),
            rows=tuple(sorted(sums.invalid)),
        )


def _figures_of(sums: _Sums, *, of: str, is_sample: bool) -> Iterator[Figure]:
    from pytest_packbench import rate_interval

    for name, kind in _SHARES.items():
        clusters = list(sums.shares(name))
        count, total = sum(part for part, _ in clusters), sum(size for _, size in clusters)
        if not total:
            continue
        # that a target judges itself wrongly is news, that it does not is none
        headline = kind.headline or (kind.group == _GATES and count > 0)
        interval = rate_interval(count, total, clusters, clustered_by="ruling") if is_sample else None
        yield Figure(
            name=kind.name,
            definition=kind.definition,
            count=count,
            total=total,
            interval=interval,
            group=f"{kind.group}{of}",
            headline=headline,
            note=sums.note(name, total),
        )
    if sums.scores:
        yield Figure(
            name="mean score of answers",
            definition="The mean score of the answers to cases that expect one, refusals left out.",
            number=round(math.fsum(sums.scores) / len(sums.scores), 3),
            note=f"over {pluralize(len(sums.scores), 'answer')}",
            group=f"{_ACCURACY}{of}",
            headline=True,
        )
    yield from _amounts(sums, of)
    yield from _confusions(sums.confusion, of)


def _amounts(sums: _Sums, of: str) -> Iterator[Figure]:
    for is_over, (name, share, definition) in _AMOUNTS.items():
        known = sum(size for _, size in sums.shares(share))
        if known:
            yield Figure(
                name=name,
                definition=f"{definition}, on goods worth {GOODS_VALUE:,} USD in each case, by the general rates of "
                "the schedule: the sum over all answers of known duty, divided by their number.",
                number=round(sums.cents[is_over] / known / _CENTS, 2),
                unit="USD",
                note=f"over {pluralize(known, 'answer')}",
                group=f"{_DUTY}{of}",
                headline=sums.cents[is_over] > 0,
            )


def _confusions(confusion: Counter[tuple[str, str]], of: str) -> Iterator[Figure]:
    totals: Counter[str] = Counter()
    for (expected, _), count in confusion.items():
        totals[expected] += count
    wrong = [(pair, count) for pair, count in confusion.items() if pair[0] != pair[1]]
    for (expected, given), count in sorted(wrong, key=lambda each: (-each[1], each[0])):
        yield Figure(
            name=f"{expected} taken for {given}" if given.isdigit() else f"{expected}: {given}",
            definition=f"Among the answers due in chapter {expected}; each of several articles counts for itself.",
            count=count,
            total=totals[expected],
            group=f"{_CONFUSION}{of}",
        )


class _Sums:
    """The sums over the answers of one model, or over the authored ones, added one by one.

    Answers to the cases of one ruling form a cluster: they are about the same goods.
    """

    def __init__(self) -> None:
        self.clusters: dict[str, Counter[tuple[str, bool]]] = {}
        self.cents: Counter[bool] = Counter()
        self.scores: list[float] = []
        self.confusion: Counter[tuple[str, str]] = Counter()
        self.due = 0
        self.invalid: list[tuple[str, str]] = []
        self.halves: dict[tuple[str, int], dict[bool, bool]] = {}
        self._cluster_of_pair: dict[str, str] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record; what it does not have, or has in another type, is not known and counts nowhere."""
        extra = _object(record.get("packbench"))
        facts = _object(extra.get(KEY))
        cluster = _text(facts.get("ruling")) or f"\n{record.get('test_id')}"
        due, refused = record.get("expected") == "refuse", record.get("agent_decision") == "refuse"
        hits = [*_refusals(facts, due=due, refused=refused), *_own_gates(facts)]
        if isinstance(extra.get("valid"), bool):
            hits.append(("invalid_codes", not extra["valid"]))
            if not extra["valid"]:
                answer = _text(facts.get("code")) or _text(extra.get("answer")) or "no code"
                self.invalid.append((_text(record.get("test_id")), answer))
        if not due:
            hits += _codes(extra, refused=refused)
            chapters = list(_chapters(extra, facts, refused=refused))
            self.confusion.update(chapters)
            self.due += bool(chapters)
        if not due and not refused:
            hits += self._duty(facts)
            self.scores += [extra["score"]] if isinstance(extra.get("score"), float) else []
        sums = self.clusters.setdefault(cluster, Counter())
        sums.update((name, bool(hit)) for name, hit in hits)
        if pair := _text(facts.get("pair")):
            self._cluster_of_pair[pair] = cluster
            halves = self.halves.setdefault((pair, _count(extra.get("trial"))), {})
            halves[due] = halves.get(due, True) and record.get("passed") is True

    def _duty(self, facts: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        if "duty_gap_usd" not in facts:
            return
        gap = facts["duty_gap_usd"]
        is_known = isinstance(gap, int | float) and not isinstance(gap, bool) and math.isfinite(gap)
        yield "duty_not_known", not is_known
        if is_known:
            cents = round(float(gap) * _CENTS)
            self.cents[cents > 0] += abs(cents)
            yield "duty_overpaid", cents > 0
            yield "duty_underpaid", cents < 0

    def pairs(self) -> Iterator[tuple[str, bool]]:
        """Yield the cluster of each complete pair, and whether both of its halves are right."""
        for (pair, _), halves in self.halves.items():
            if len(halves) == len((True, False)):
                yield self._cluster_of_pair[pair], all(halves.values())

    def note(self, name: str, total: int) -> str:
        """Return how many pairs a share lacks; empty for one that lacks none, and for other shares."""
        halves = len(self.halves) - total if name == "pairs" else 0
        return f"{total} judged, {halves} not judged" if halves else ""

    def shares(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield count and total of each cluster."""
        if name == "pairs":
            by_cluster: dict[str, list[bool]] = {}
            for cluster, right in self.pairs():
                by_cluster.setdefault(cluster, []).append(right)
            yield from ((sum(rights), len(rights)) for rights in by_cluster.values())
            return
        for sums in self.clusters.values():
            count, others = sums[name, True], sums[name, False]
            if count + others:
                yield count, count + others


def _chapters(extra: Mapping[str, Any], facts: Mapping[str, Any], *, refused: bool) -> Iterator[tuple[str, str]]:
    """Yield the expected chapter and that of the answer; each of several articles counts for itself."""
    listed = facts.get("articles")
    for part in map(_object, listed if isinstance(listed, list) and listed else [facts]):
        expected = _chapter(part.get("expected_code"))
        expected = expected or _chapter(_object(extra.get("facets")).get("chapter"))
        if expected:
            yield expected, "a refusal" if refused else _chapter(part.get("code")) or "no code"


def _codes(extra: Mapping[str, Any], *, refused: bool) -> Iterator[tuple[str, bool]]:
    agreed = _count(extra.get("match_depth"))
    yield from ((f"accuracy_{level}", not refused and agreed >= level) for level in LEVELS)
    yield "refused_unduly", refused
    yield "wrong_codes", not refused and agreed < LEVELS[-1]
    if not refused and type(extra.get("match_depth")) is int:
        yield from ((f"agreement_{level}", agreed == level) for level in DEPTHS)
    if not refused and isinstance(extra.get("valid"), bool):
        terms = extra.get("terms")
        names = [_object(term).get("name") for term in terms] if isinstance(terms, list) else []
        yield "forbidden_codes", FORBIDDEN_LEVEL in names


def _refusals(facts: Mapping[str, Any], *, due: bool, refused: bool) -> Iterator[tuple[str, bool]]:
    expected, given = facts.get("expected_category"), facts.get("category")
    if due:
        yield "refusal_recall", refused
        if expected in CATEGORIES:
            yield f"refusal_recall_{expected}", refused and given == expected
    if refused:
        yield "refusal_precision", due
        if given in CATEGORIES:
            yield f"refusal_precision_{given}", due and expected in {None, given}


def _own_gates(facts: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for name in OWN_GATES:
        said = _object(_object(facts.get("own_gates")).get(name))
        if isinstance(said.get("target"), bool) and isinstance(said.get("scorer"), bool):
            yield f"{name}_passed_wrongly", said["target"] and not said["scorer"]
            yield f"{name}_failed_wrongly", said["scorer"] and not said["target"]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _chapter(value: object) -> str:
    match = _CHAPTER.match(_text(value))
    return match[0] if match else ""
