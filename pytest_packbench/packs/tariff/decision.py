"""The decision in a result: an answer, a refusal or a failure, from all fields that state one.

The fields are `status`, `accepted`, the last of `iterations`, `refusal` and `error`, each at the top of the result and
under `proof`, and a code beside a refusal. Where they contradict each other, there is no decision.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.outcome import Breakdown, ResultError
from pytest_packbench.packs.tariff.model import RefusalCategory
from pytest_packbench.packs.tariff.notation import digits
from pytest_packbench.packs.tariff.reading import OBJECT, Node, both, find

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["answer", "refusal", "no answer", "failure", "code"]

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
_OTHER_STATUSES: dict[str, Kind] = {"accepted": "answer", "declined": "refusal", "refusal": "refusal"}
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
}
# which kinds of statement exclude each other
_OPPOSITES: tuple[tuple[Kind, Kind], ...] = (
    ("answer", "refusal"),
    ("answer", "no answer"),
    ("answer", "failure"),
    ("refusal", "code"),
)
# the fields of an iteration that say why it was not accepted
_REASONS = ("rejected_because", "conflicts", "missing", "unsupported", "sequence_violations", "feedback_text")
_GATES = ("citation_gate_result", "missing_evidence_gate_result")


class Statement(NamedTuple):
    """What one field of the result says about the decision.

    Attributes:
        kind: what it says.
        text: the field and its value.
    """

    kind: Kind
    text: str


class Decision(NamedTuple):
    """The decision of a result: a refusal, unless one of the first three fields is set.

    Attributes:
        accepted: whether the pipeline gave an answer.
        breakdown: the infrastructure failure that it reports.
        contradiction: which fields contradict each other, in one line; empty if none do.
        category: the category of a refusal: the explicit one, else that of its first known reason.
        unknown_category: the explicit category of a refusal that is none of `CATEGORIES`; empty otherwise.
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
    category, unknown = _category(refusal, reasons)
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
    error = next((node for node in both(top, "error") if not node.is_empty), None)
    if error is not None:
        message = " ".join(error.at("message").required_text().split())
        return Breakdown(kind=error.at("kind").required_text(), message=message)
    if UNREACHABLE in _reasons(top) and not _is_accepted(top):
        return Breakdown(kind=UNREACHABLE, message="the pipeline reports that it could not reach its model")
    return None


def _statements(top: Node, failure: Breakdown | None) -> list[Statement]:
    """Return what each field says; beside a failure, a field that can't be read says nothing."""
    found = [] if failure is None else [Statement("failure", format_value(failure.kind))]
    for read in (_status_statements, _flag_statements, _refusal_statements, _code_statements):
        try:
            found.extend(read(top))
        except ResultError:
            if failure is None:
                raise
    return found


def _status_statements(top: Node) -> Iterator[Statement]:
    for node in both(top, "status"):
        word = _word(node.value) if isinstance(node.value, str) else ""
        kind = STATUSES.get(word) or _OTHER_STATUSES.get(word)
        if kind is not None:
            yield Statement(kind, f"{node.pointer} {format_value(node.value)}")


def _flag_statements(top: Node) -> Iterator[Statement]:
    yield from map(_flag_statement, both(top, "accepted"))
    lasts = (_last(node) for node in both(top, "iterations"))
    yield from (_flag_statement(last.at("accepted")) for last in lasts if last.value is not None)


def _flag_statement(node: Node) -> Statement:
    return Statement("answer" if node.required_flag() else "no answer", f"{node.pointer} {format_value(node.value)}")


def _refusal_statements(top: Node) -> Iterator[Statement]:
    for node in _refusals(top):
        category = node.at("category")
        # without a category, it only explains why there is no answer
        if category.is_empty:
            yield Statement("no answer", node.pointer)
        else:
            yield Statement("refusal", f"{category.pointer} {format_value(category.value)}")


def _code_statements(top: Node) -> Iterator[Statement]:
    for dossier in both(top, "tariff_dossier"):
        articles = dossier.at("articles").items(OBJECT)
        parts = (
            dossier.at("baseline"),
            dossier.at("optimized"),
            *articles,
            *(item.at("baseline") for item in articles),
        )
        for part in parts:
            node = part.at("hts_code")
            if digits(node.text() or ""):
                yield Statement("code", f"{node.pointer} {format_value(node.value)}")


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
    if status.value is not None:
        name = status.text() or ""
        return STATUSES[name] == "answer" if name in STATUSES else status.fail(f"one of {', '.join(STATUSES)}")
    accepted = find(top, "accepted").flag()
    if accepted is not None:
        return accepted
    if next(_refusals(top), None) is not None:
        return False
    raise ResultError("", "got neither iterations nor a status; expected one that gives the decision")


def _refusals(top: Node) -> Iterator[Node]:
    for node in both(top, "refusal"):
        if not node.is_empty:
            node.require_object()
            yield node


def _explicit_refusal(top: Node) -> Node:
    return next(_refusals(top), Node(None, ("refusal",)))


def _is_bare(top: Node, last: Node, refusal: Node) -> bool:
    """Return whether the result only says that nothing was accepted, without a reason, a question or a refusal."""
    status = find(top, "status").value
    says_failed = isinstance(status, str) and _word(status) == "failed"
    if refusal.value is not None or not (says_failed or (status is None and last.value is None)):
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


def _category(refusal: Node, reasons: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the category of a refusal, and the word that is none of the categories."""
    if refusal.value is None:
        return next((known for reason in reasons if (known := _category_of(reason))), None), ""
    given, reason = refusal.at("category").text() or "", refusal.at("reason").value
    word = _word(given)
    if word in CATEGORIES:
        return word, ""
    if not word and isinstance(reason, str) and _word(reason) in CATEGORIES:
        return _word(reason), ""
    return None, " ".join(given.split())


def _category_of(reason: str) -> str | None:
    word = _word(reason)
    return word if word in CATEGORIES else _CATEGORY_OF_REASON.get(reason)


def _word(text: str) -> str:
    """Return a text as one of our words is written: `Missing evidence` as `missing_evidence`."""
    return re.sub(r"[\s_-]+", "_", text.strip()).casefold()
