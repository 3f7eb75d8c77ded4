"""The decision in a result: an answer, a refusal or a failure, from all fields that state one.

The fields are `status`, `accepted`, the last of `iterations`, `rejected_because`, `refusal` and `error`, each at the
top of the result and under `proof`, and a code or a rate beside a refusal. Where they contradict each other, there is
no decision.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.result import Breakdown, ResultError
from pytest_packbench.packs.tariff.model import RefusalCategory
from pytest_packbench.packs.tariff.reading import OBJECT, Node, both, find

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["answer", "refusal", "no answer", "failure", "code", "rate", "neutral"]

CATEGORIES: tuple[str, ...] = get_args(RefusalCategory)
STATUSES: dict[str, Kind] = {
    "verified": "answer",
    "refused": "refusal",
    "failed": "no answer",
    "rejected": "no answer",
}
"""What each status says; `failed` and `rejected` say only that no answer was accepted."""
BARE_FAILURE = "failed_without_reason"
"""The kind of the breakdown of a result that only says that nothing was accepted."""
UNREACHABLE = "llm_unavailable"
"""The reason by which the original harness says that it could not reach its model."""

# other programs' words: no decision alone, and a contradiction where another field says the opposite
_OTHER_STATUSES: dict[str, Kind] = {
    **dict.fromkeys(("accepted", "answered", "approved", "classified", "ok", "passed", "success", "valid"), "answer"),
    **dict.fromkeys(("declined", "refusal", "refuse", "abstained"), "refusal"),
    **dict.fromkeys(("complete", "completed", "done", "final", "finished"), "neutral"),
}
# the original harness also lists `llm_unavailable`, which is a breakdown here
_CATEGORY_OF_REASON = {
    "missing_evidence_gate_failed": "missing_evidence",
    "hts_or_questions_missing": "insufficient_info",
    "baseline_duty_missing": "insufficient_info",
    "insufficient_mutations": "insufficient_info",
    "missing_best_option": "insufficient_info",
    "mutation_missing_evidence": "insufficient_info",
    "missing": "insufficient_info",
    "gri_sequence_violation": "ambiguous",
    "conflicts": "ambiguous",
    "unsupported": "ambiguous",
    "illegal_evasion_suggestion": "out_of_scope",
}
_VERBS: dict[Kind, str] = {
    "answer": "answers",
    "refusal": "refuses",
    "no answer": "rejects its answer",
    "failure": "reports a failure",
    "code": "gives a code",
    "rate": "gives a rate",
    "neutral": "ends",
}
# which kinds of statement exclude each other
_OPPOSITES: tuple[tuple[Kind, Kind], ...] = (
    ("answer", "refusal"),
    ("answer", "no answer"),
    ("answer", "failure"),
    ("refusal", "code"),
    ("refusal", "rate"),
)
# the fields of an iteration that say why it was not accepted
_REASONS = ("rejected_because", "conflicts", "missing", "unsupported", "sequence_violations", "feedback_text")
_NOTHING = frozenset({"none", "null", "nil", "na", "n/a", "false", "0"})
# marks around a word, and what may stand before a category
_MARKS = " \"'`.,!()[]*"
_LABEL = re.compile(r"(?:refusal_)?category_?[:=]_?")
# fewer digits than these are a count, not a code
_LEAST_DIGITS = 4
_CODES = ("hts_code", "expected_hts", "final_code")
_GATES = ("citation_gate_result", "missing_evidence_gate_result")


class Statement(NamedTuple):
    """What one field of the result says about the decision.

    Attributes:
        kind: what it says.
        field: the field.
        shows_value: whether its value tells more than its place.
    """

    kind: Kind
    field: Node
    shows_value: bool = True

    @property
    def text(self) -> str:
        """The place of the field and its value."""
        value = f"{self.field.number():g}" if self.kind == "rate" else format_value(self.field.value)
        return f"{self.field.pointer} {value}".lstrip() if self.shows_value else self.field.pointer


class Decision(NamedTuple):
    """The decision of a result: a refusal, unless one of the first three fields is set.

    Attributes:
        accepted: whether the pipeline gave an answer.
        breakdown: the infrastructure failure that it reports.
        contradiction: which fields contradict each other, in one line; empty if none do.
        category: the category of a refusal: the explicit one, else that of its first known reason.
        unknown_category: the explicit category of a refusal that is none of `CATEGORIES`, or all categories where it
            names several; empty otherwise.
        reasons: `rejected_because` of the last iteration, else of the whole result.
        questions: the questions of a refusal to the importer.
    """

    accepted: bool = False
    breakdown: Breakdown | None = None
    contradiction: str = ""
    category: str | None = None
    unknown_category: str = ""
    reasons: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()


def read_decision(top: Node) -> Decision:
    """Read the decision of a result.

    An `error`, a model that could not be reached, or the bare statement that nothing was accepted, without a reason or
    a refusal, is a breakdown: an infrastructure failure is never a refusal, even if the result also refuses. An empty
    `error` or `refusal` is none.

    Raises:
        ResultError: a field has another type, or none states a decision.
    """
    failure = _reported_failure(top)
    statements = _statements(top, failure)
    contradiction = _contradiction(statements)
    if contradiction:
        return Decision(contradiction=contradiction)
    if failure is not None:
        return Decision(breakdown=failure)
    accepted = _is_accepted(top)
    last = last_iteration(top)
    reasons = _reasons(top)
    refusal = _explicit_refusal(top)
    questions = refusal.at("questions").texts()
    if accepted:
        return Decision(accepted=True, reasons=reasons, questions=questions)
    if _is_bare(top, last, refusal):
        return Decision(breakdown=Breakdown(kind=BARE_FAILURE, message=_describe_bare(top)))
    category, unknown = _category(top, refusal, reasons)
    return Decision(category=category, unknown_category=unknown, reasons=reasons, questions=questions)


def last_iteration(top: Node) -> Node:
    """Return the last iteration; its value is None if there are none."""
    return _last(find(top, "iterations"))


def _reasons(top: Node) -> tuple[str, ...]:
    """Return why nothing was accepted: the reasons of the last iteration, else those of the whole result."""
    return last_iteration(top).at("rejected_because").texts() or find(top, "rejected_because").texts()


def _last(iterations: Node) -> Node:
    items = iterations.items()
    if not items:
        return Node(None, iterations.path)
    if items[-1].value is None:
        items[-1].fail(OBJECT)
    return items[-1]


def _reported_failure(top: Node) -> Breakdown | None:
    error = next((node for node in both(top, "error") if not _is_nothing(node.value)), None)
    if error is not None:
        message = " ".join(error.at("message").required_text().split())
        return Breakdown(kind=error.at("kind").required_text(), message=message)
    if UNREACHABLE in _reasons(top) and not _is_accepted(top):
        return Breakdown(kind=UNREACHABLE, message="the pipeline reports that it could not reach its model")
    return None


def _statements(top: Node, failure: Breakdown | None) -> list[Statement]:
    """Return what each field says; beside a failure, a field that can't be read says nothing."""
    found = [] if failure is None else [Statement("failure", Node(failure.kind))]
    for read in (_status_statements, _flag_statements, _refusal_statements, _objections, _recommendations):
        try:
            found.extend(read(top))
        except ResultError:
            if failure is None:
                raise
    return found


def _status_statements(top: Node) -> Iterator[Statement]:
    for node in both(top, "status"):
        word = word_of(node.text() or "")
        if word:
            # a word that nobody knows may say anything, so it confirms no answer
            yield Statement(_kind_of(word) or "no answer", node)


def _kind_of(status: str) -> Kind | None:
    return STATUSES.get(status) or _OTHER_STATUSES.get(status)


def _flag_statements(top: Node) -> Iterator[Statement]:
    yield from map(_flag_statement, both(top, "accepted"))
    yield from (_flag_statement(last.at("accepted")) for last in _last_iterations(top))
    for node in both(top, "refused"):
        if node.value is True:
            yield Statement("refusal", node)


def _last_iterations(top: Node) -> Iterator[Node]:
    lasts = (_last(node) for node in both(top, "iterations"))
    yield from (last for last in lasts if last.value is not None)


def _flag_statement(node: Node) -> Statement:
    return Statement("answer" if node.required_flag() else "no answer", node)


def _refusal_statements(top: Node) -> Iterator[Statement]:
    for node in _refusals(top):
        category = node.at("category")
        # without a category, it only explains why there is no answer
        if _is_nothing(category.value):
            yield Statement("no answer", node, shows_value=False)
        else:
            yield Statement("refusal", category)


def _objections(top: Node) -> Iterator[Statement]:
    """Yield what speaks against an answer: reasons, and the decision of its last iteration or of an article."""
    lasts = list(_last_iterations(top))
    articles = [item for dossier in both(top, "tariff_dossier") for item in _objects(dossier, "articles")]
    for part in (*lasts, *articles):
        yield from _own_decision(part)
    reasons = (*both(top, "rejected_because"), *(part.at("rejected_because") for part in (*lasts, *articles)))
    rest = (*both(top, "errors"), *(last.at("conflicts") for last in lasts))
    for node in (*(node for node in reasons if any(map(str.strip, node.texts()))), *rest):
        if not _is_nothing(node.value):
            yield Statement("no answer", node, shows_value=False)


def _own_decision(part: Node) -> Iterator[Statement]:
    """Yield the decision of a part of the result, which may have words of its own for where it stands."""
    status = part.at("status")
    kind = _kind_of(word_of(status.value)) if isinstance(status.value, str) else None
    if kind in {"refusal", "no answer"}:
        yield Statement("no answer", status)
    for node in (part.at("refusal"), part.at("error")):
        if not _is_nothing(node.value):
            yield Statement("no answer", node, shows_value=False)


def _recommendations(top: Node) -> Iterator[Statement]:
    """Yield the codes and rates that a result recommends anywhere."""
    for place in (top, top.at("proof")):
        yield from _codes(place)
        for article in _objects(place, "articles"):
            yield from _recommended_in(article)
    for last in _last_iterations(top):
        yield from _codes(last)
    for levers in both(top, "lever_proof"):
        for lever in _objects(levers, "selected_levers"):
            yield from _codes(lever)
    for dossier in both(top, "tariff_dossier"):
        articles = dossier.at("articles").items(OBJECT)
        yield from _recommended_in(dossier)
        for article in articles:
            yield from _recommended_in(article)


def _recommended_in(part: Node) -> Iterator[Statement]:
    """Yield the codes and rates of a dossier, or of an article."""
    yield from _codes(part)
    yield from _codes(part.at("final")) if isinstance(part.at("final").value, dict) else ()
    for goods in (part.at("baseline"), part.at("optimized")):
        yield from _codes(goods)
        rates = (goods.at("duty_rate_pct"), goods.at("duty_breakdown").at("total_rate_pct"))
        yield from (Statement("rate", rate) for rate in rates if rate.number() is not None)
    for key in ("what_if_candidates", "mutations"):
        for offer in _objects(part, key):
            yield from _codes(offer)


def _codes(part: Node) -> Iterator[Statement]:
    for node in (part.at(name) for name in _CODES):
        if isinstance(node.value, str) and _count_digits(node.value) >= _LEAST_DIGITS:
            yield Statement("code", node)


def _objects(part: Node, key: str) -> list[Node]:
    """Return the objects of a list; other values are judged where they are read."""
    node = part.at(key)
    return [item for item in node.items() if isinstance(item.value, dict)] if isinstance(node.value, list) else []


def _count_digits(text: str) -> int:
    """Return how many digits of any script a text has."""
    return sum(unicodedata.decimal(char, None) is not None for char in unicodedata.normalize("NFKC", text))


def _contradiction(statements: list[Statement]) -> str:
    first = {statement.kind: statement for statement in reversed(statements)}
    for left, right in _OPPOSITES:
        if left in first and right in first:
            sides = (f"{_VERBS[kind]} ({first[kind].text})" for kind in (left, right))
            return f"the result {' and '.join(sides)}"
    return ""


def _is_accepted(top: Node) -> bool:
    """Return whether there is an answer: as the last iteration says, else the status, else `accepted`."""
    last, status = last_iteration(top), find(top, "status")
    if last.value is not None:
        return last.at("accepted").required_flag()
    word = word_of(status.text() or "")
    if word in STATUSES:
        return STATUSES[word] == "answer"
    accepted = find(top, "accepted").flag()
    if accepted is not None:
        return accepted
    if next(_refusals(top), None) is not None:
        return False
    if word:
        status.fail(f"one of {', '.join(STATUSES)}")
    raise ResultError("", "got neither iterations nor a status; expected one that gives the decision")


def _refusals(top: Node) -> Iterator[Node]:
    for node in both(top, "refusal"):
        if not _is_nothing(node.value):
            node.require_object()
            yield node


def _explicit_refusal(top: Node) -> Node:
    return next(_refusals(top), Node(None, ("refusal",)))


def _is_bare(top: Node, last: Node, refusal: Node) -> bool:
    """Return whether the result only says that nothing was accepted, without a reason, a question or a refusal."""
    status = find(top, "status").value
    word = word_of(status) if isinstance(status, str) else ""
    # `rejected` is said of a proposal, every other word of a run
    says_failed = bool(word) and word != "rejected" and _kind_of(word) != "refusal"
    if refusal.value is not None or not (says_failed or (not word and last.value is None)):
        return False
    questions = find(top, "tariff_dossier").at("questions_for_user")
    gates = [parent.at(gate).at("ok").value is False for parent in (top, top.at("proof"), last) for gate in _GATES]
    return (
        questions.is_empty and not _reasons(top) and not any(gates) and all(last.at(name).is_empty for name in _REASONS)
    )


def _describe_bare(top: Node) -> str:
    status = find(top, "status")
    said = f'status "{status.value}"' if status.value is not None else "accepted false"
    return (
        f"{said} without reasons or a refusal: a caught failure, no decision; expected `refusal` or "
        "`rejected_because` for a refusal, or `error` for a failure"
    )


def _category(top: Node, refusal: Node, reasons: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the category of a refusal, and the word that is none of the categories.

    A refusal that names several categories, in its fields or among its reasons, has none of them.
    """
    given = refusal.at("category").text() or ""
    named = dict.fromkeys(word for text in _category_texts(top) if (word := _category_word(text)))
    if len(named) > 1:
        return None, " and ".join(named)
    if not _is_nothing(given):
        word = _category_word(given)
        return (word, "") if word else (None, " ".join(given.split()))
    if refusal.value is not None:
        return next(iter(named), None), ""
    words = (_category_word(reason) or _CATEGORY_OF_REASON.get(reason) for reason in reasons)
    return next(filter(None, words), None), ""


def _category_texts(top: Node) -> Iterator[str]:
    """Yield every text that may name the category of a refusal.

    Beside a refusal, the reasons of a rejected proposal are names of gates, of which one is called like a category.
    """
    for refusal in _refusals(top):
        reason = refusal.at("reason").value
        yield refusal.at("category").text() or ""
        yield reason if isinstance(reason, str) else ""
    is_rejected = word_of(find(top, "status").text() or "") == "rejected" and next(_refusals(top), None) is not None
    for place in () if is_rejected else (*_last_iterations(top), top, top.at("proof")):
        yield from place.at("rejected_because").texts()


def _category_word(text: str) -> str:
    """Return the category that a text is; empty if it is none or says more than that."""
    word = _LABEL.sub("", word_of(text)).strip(_MARKS)
    return word if word in CATEGORIES else ""


def word_of(text: str) -> str:
    """Return a text as one of our words is written: `Missing evidence` and `MissingEvidence` as `missing_evidence`."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unicodedata.normalize("NFKC", text).strip().strip(_MARKS))
    return re.sub(r"[\s_\u2010-\u2015-]+", "_", plain).casefold()


def _is_nothing(value: object) -> bool:
    """Return whether there is nothing in a value, or only a word for that."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
        elif isinstance(item, str):
            if item.strip() and word_of(item) not in _NOTHING:
                return False
        elif item:
            return False
    return True
