"""Recordings: the cassette of a case, and the control, a recording with an expected end.

A cassette has the recorded exchanges of one case, in order. Controls are in `fixtures/controls/` of a suite, and show
that the measure notices a wrong answer. They count in no rate and in no gate.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, ValidationError, model_validator

from pytest_packbench.files import U64_MAX
from pytest_packbench.model.case import CaseId, CurrentVersion, Fraction, ListOf, StrictModel, Text
from pytest_packbench.model.errors import Problem, first_problem, format_value, json_pointer, pluralize
from pytest_packbench.model.report import ControlCounts
from pytest_packbench.model.result import UNREAD, Count, Score, adapter
from pytest_packbench.model.run import (
    STUB,
    Origin,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


CASSETTE_VERSION = 2
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Tokens = Annotated[int, Field(ge=0, le=U64_MAX)]
VERIFY_ROLE = "verify"
"""The role of the only exchange of a target that runs outside this process: its whole result."""


class ExchangeUsage(StrictModel):
    """Tokens of one exchange, as counted by the provider."""

    tokens_input: Tokens | None = None
    tokens_output: Tokens | None = None


class ExchangeToolCall(StrictModel):
    """One tool call that the model requested; see `ToolCall`."""

    id: Text
    name: Text
    arguments: dict[str, Any]


class Prompt(StrictModel):
    """What the model was asked, as far as it may be stored: secrets are replaced.

    Attributes:
        continues: the position of an earlier exchange, whose system prompt and messages come first; None for none.
        system: the system prompt; None where it is that of the earlier exchange.
        messages: the messages that follow; see `ModelRequest`.
    """

    continues: Annotated[int, Field(ge=0)] | None = None
    system: str | None = None
    messages: ListOf[dict[str, Any]] = ()


class ExchangeProblem(StrictModel):
    """Why an answer can't be read; see `AnswerProblem`."""

    kind: Literal["truncated", "answer_unreadable"]
    message: Text


class Exchange(StrictModel):
    """One model call and its answer.

    Attributes:
        role: the step of the pipeline that called the model.
        prompt: what the model was asked; None where a person wrote the answer, or prompts are not recorded.
        answer: the answer, a JSON value or text.
        refusal: the model's words if it declined to answer.
        request_sha256: hash of the request; None if a person wrote the answer.
        usage: tokens, if the provider counted them.
        tool_calls: the tool calls that the model requested.
        problem: why the answer can't be read; then `answer` is its text.
    """

    role: Text
    prompt: Prompt | None = None
    answer: Any = None
    refusal: Text | None = None
    request_sha256: Digest | None = None
    usage: ExchangeUsage = ExchangeUsage()
    tool_calls: ListOf[ExchangeToolCall] = ()
    problem: ExchangeProblem | None = None


class GatewayExchange(StrictModel):
    """One call of a client of the target's own, through the gateway, and its answer.

    An answer has one of the keys `body`, `text`, `body_base64`, `stream` and `stream_base64`; none if it is empty.

    Attributes:
        provider: whose protocol it is.
        method: the HTTP method.
        path: the path, and the query without keys.
        version: 3; 2 in older recordings, which do not know all headers of answers; None in still older ones, which do
            not know those of requests.
        request_headers: the headers of the request that decide on its answer, names in lower case: values in words, as
            `[redacted]`, or as `sha256:` and a hash.
        request: the JSON body of the request; None where it has none, or prompts are not recorded.
        request_sha256: hash of method, path, headers and body without credentials; in older recordings of method, path
            and body.
        alike_sha256: hash of method, path and body without what differs in each run; None where there is no such thing.
        status: the HTTP status of the answer; None where it never began.
        headers: those of the answer, names in lower case; without secrets, dates, and names of hosts and accounts.
        body: the answer, where it is JSON.
        text: the answer, where it is other text.
        body_base64: the answer, where it is no text.
        stream: the answer, where it was streamed: events or lines, byte for byte.
        stream_base64: the same, where it is no text.
        end: `complete`; `cut` if the provider broke off, `aborted` if the client went away, `refused` if the provider
            was not there.
        usage: tokens, if the provider counted them.
        began_ms: when it began, milliseconds from the start of the attempt; known where a client of the case went away.
        ended_ms: when it was over; likewise.
    """

    provider: Literal["openai", "anthropic", "ollama", "gemini"]
    method: Text
    path: Text
    version: Literal[2, 3] | None = None
    request_headers: dict[str, str] | None = None
    request: Any = None
    request_sha256: Digest
    alike_sha256: Digest | None = None
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    text: str | None = None
    body_base64: str | None = None
    stream: str | None = None
    stream_base64: str | None = None
    end: Literal["complete", "cut", "aborted", "refused"] = "complete"
    usage: ExchangeUsage = ExchangeUsage()
    began_ms: Count | None = None
    ended_ms: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = {"body", "text", "body_base64", "stream", "stream_base64"} & self.model_fields_set
        if len(stated) > 1:
            raise ValueError(f"an answer has one of the keys {', '.join(sorted(stated))}")
        if (self.version is None) != (self.request_headers is None):
            raise ValueError("a version states request_headers, and only a version does")
        if self.status is None and self.end == "complete":
            raise ValueError("an answer without a status is not complete")
        if any("\r" in text or "\n" in text for pair in self.headers.items() for text in pair):
            raise ValueError("a header has several lines")
        try:
            self.content()
        except Base64Error:
            raise ValueError("an answer is no base64") from None
        return self

    @property
    def is_stream(self) -> bool:
        """Whether the answer was streamed."""
        return self.stream is not None or self.stream_base64 is not None

    def content(self) -> bytes:
        """Return the bytes of the answer; of JSON, those of an equal value."""
        if "body" in self.model_fields_set:
            return json.dumps(self.body, separators=(",", ":")).encode()
        encoded = self.stream_base64 if self.stream_base64 is not None else self.body_base64
        if encoded is not None:
            return a2b_base64(encoded, strict_mode=True)
        return (self.stream if self.stream is not None else self.text or "").encode()


class RecordedTarget(StrictModel):
    """The target of a recording.

    Attributes:
        kind: how it is called; `reference` is the pack's own target, `hook` that of a hook.
        address: `module:attr`, the URL or the command, without secrets; for `reference`, the name of the pack.
    """

    kind: Literal["python", "hook", "reference", "http", "cmd"]
    address: Text


class RecordedPack(StrictModel):
    """The pack of a recording; without a version where that is not known."""

    name: Text
    version: Text | None = None


class RecordedPart(StrictModel):
    """A guard or a judge of a recording.

    Attributes:
        name: its name.
        settings: its settings, plain JSON.
        code_sha256: hash of its source file; None where it has none.
    """

    name: Text
    settings: dict[str, Any] = Field(default_factory=dict)
    code_sha256: Digest | None = None


class RecordedTool(StrictModel):
    """A tool that the model was offered.

    Attributes:
        name: its name.
        sha256: hash of its name, description and parameters.
    """

    name: Text
    sha256: Digest


class Conditions(StrictModel):
    """Under which conditions a recording was made, in addition to model and input.

    Attributes:
        target: the target that was called.
        pack: the pack of the suite.
        guards: the guards between agent and untrusted text, in order.
        judges: the judges that the suite names.
        tools: the tools that the model was offered, sorted by name; None where that is not known, because the target
            ran outside this process.
        recording: the rules of the suite for recordings; None where it has none; without `check`, it was not replayed.
    """

    target: RecordedTarget
    pack: RecordedPack
    guards: ListOf[RecordedPart] = ()
    judges: ListOf[RecordedPart] = ()
    tools: ListOf[RecordedTool] | None = None
    recording: dict[str, Any] | None = None


Version = Annotated[Literal[2], CurrentVersion(CASSETTE_VERSION)]


class Cassette(StrictModel):
    """The recording of one case.

    Attributes:
        cassette_version: 2.
        case_id: the case that it belongs to; cases do not share cassettes.
        input_sha256: hash of the case's `input` when it was recorded.
        origin: `authored` by a person, or `recorded` from a model.
        llm_backend: the backend that answered; `stub` for authored answers.
        llm_model: the model that answered; `authored` for authored answers.
        recorded_at: the time of the recording; None for authored answers.
        conditions: under which conditions it was made.
        exchanges: the model calls in order.
        gateway: the calls of the target's own clients, in the order in which they began.
    """

    cassette_version: Version
    case_id: CaseId
    input_sha256: Digest
    origin: Origin
    llm_backend: Text
    llm_model: Text
    recorded_at: Text | None = None
    conditions: Conditions
    exchanges: ListOf[Exchange]
    gateway: ListOf[GatewayExchange] = ()


SCORE_TOLERANCE = 0.0005
"""How far a score may be from the expected one, except 0 and 1: people write three decimals."""
_NOISE = 1e-9
Outcome = Literal["not_run", "as_written", "deviates", "broken"]
"""How a control ended, the worst last: not reached by the session; as written; otherwise; it could not be replayed."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_OWN_FAULTS = frozenset(
    {"case_unreadable", "gateway_off", "hook_error", "no_backend", "offline", "pack_error", "reader_error"}
    | {"scorer_error", "target_missing", "unattributed"}
)
_FAULT_OF_RECORDING = "cassette_"
_NOTHING = "none"
_STATED = ("verdict", "score", "terms", "kind", "decided_by", "message")
"""The keys of `actual` in a line."""


class ControlCassette(StrictModel):
    """The answers that a control replays.

    Attributes:
        cassette_version: 2.
        exchanges: the model calls in order, as in a recording; whatever is asked in a role, the answer is the same.
    """

    cassette_version: Version
    exchanges: ListOf[Exchange]

    def recording(self, case_id: str, input_sha256: str, pack: str) -> Cassette:
        """Return the recording to replay: a person wrote it, for the case as it is and the pack's own target."""
        exchanges = tuple(
            exchange.model_copy(update={"request_sha256": None, "prompt": None}) for exchange in self.exchanges
        )
        target = RecordedTarget(kind="reference", address=pack)
        return Cassette.model_construct(
            cassette_version=self.cassette_version,
            case_id=case_id,
            input_sha256=input_sha256,
            origin="authored",
            llm_backend=STUB,
            llm_model="authored",
            conditions=Conditions.model_construct(target=target, pack=RecordedPack(name=pack)),
            exchanges=exchanges,
        )


class ControlExpected(StrictModel):
    """How a control has to end; what is left out is not compared.

    Attributes:
        verdict: the verdict.
        score: the score, within 0.0005; 0 and 1 exactly.
        terms: names of terms that have to occur and change the score; a note does not count.
        kind: the reason's name, for the verdicts `error` and `vacuous`, as `errors.jsonl` has it.
        decided_by: what `Pack.decided_by` has to return; null if no check of the pipeline may have objected.
    """

    verdict: Literal["passed", "failed", "error", "vacuous"]
    score: Fraction | None = None
    terms: ListOf[Text] | None = None
    kind: Text | None = None
    decided_by: Text | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, as it is written."""
        return self.model_dump(mode="json", exclude_unset=True)


class Control(StrictModel):
    """A wrong answer to a case, with the end that it has to have.

    It has one of the keys `payload` and `cassette`.

    Attributes:
        id: the name of the file without its suffix.
        case: the id of a case of the suite.
        description: what is wrong with the answer, in one line.
        expected: how it has to end.
        payload: the result of a target, which is read and scored.
        cassette: answers of a model, which are replayed through the pack's own target.
        schema_uri: the optional `$schema` key, for editors.
    """

    id: CaseId
    case: CaseId
    description: Text
    expected: ControlExpected
    payload: Any = None
    cassette: ControlCassette | None = None
    schema_uri: Text | None = Field(default=None, alias="$schema")

    @property
    def has_payload(self) -> bool:
        """Whether it has a result of a target, which may be null."""
        return "payload" in self.model_fields_set


class Row(NamedTuple):
    """One row of the table of a control.

    Attributes:
        what: what is compared.
        expected: what the control expects.
        actual: how it ended.
        deviation: what deviates, in a few words; empty if they agree.
    """

    what: str
    expected: str
    actual: str
    deviation: str


class ControlResult(NamedTuple):
    """What came of one control: a line of `controls.jsonl`.

    Attributes:
        suite: the name of the suite.
        control: the id of the control; the name of its file where it can't be read.
        nodeid: pytest's node id, which replays it again.
        file: its file.
        outcome: whether it ended as written.
        case: the id of its case; empty where the control can't be read.
        description: what is wrong with the answer; likewise.
        expected: `expected` of its file; None where it can't be read.
        actual: what its answer came to; None where it was not replayed.
        message: in one line, what deviates or why it could not be replayed; empty if it ended as written.
        timestamp: when it ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
    """

    suite: str
    control: str
    nodeid: str
    file: str
    outcome: Outcome
    case: str = ""
    description: str = ""
    expected: ControlExpected | None = None
    actual: Score | None = None
    message: str = ""
    timestamp: str = ""

    @property
    def rows(self) -> list[Row]:
        """What was compared; nothing where it was not replayed."""
        return [] if self.expected is None or self.actual is None else compare(self.expected, self.actual)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON: its line, without the id of the run."""
        line = self._asdict()
        if self.expected is not None:
            line["expected"] = self.expected.as_json()
        if self.actual is not None:
            score = asdict(self.actual)
            line["actual"] = {name: score[name] for name in _STATED}
        return line

    @classmethod
    def from_line(cls, data: Mapping[str, Any]) -> ControlResult:
        """Create it from a line; its outcome is computed again from how it ended: a stored one may have been changed.

        Raises:
            ValueError: a key is missing or of a wrong type, or a control that was replayed lacks its end.
        """
        known = {name: data[name] for name in cls._fields if name in data}
        if isinstance(actual := data.get("actual"), dict) and (unknown := actual.keys() - {*_STATED}):
            raise ValueError(f"{json_pointer(('actual', min(unknown)))}: unknown; expected {', '.join(_STATED)}")
        try:
            result: ControlResult = adapter(ControlResult).validate_python(known)
        except ValidationError as error:
            raise ValueError(str(first_problem(error, known))) from None
        if result.outcome == "broken" or (result.outcome == "not_run" and result.actual is None):
            return result
        if result.expected is None or result.actual is None:
            raise ValueError(f"outcome: got {format_value(result.outcome)} without both expected and actual")
        return result.ended(result.expected, result.actual)

    def ended(self, expected: ControlExpected, actual: Score) -> ControlResult:
        """Return it with how it ended, and in one line what deviates, with the reason where there was no score."""
        deviation = "; ".join(row.deviation for row in compare(expected, actual) if row.deviation)
        reason = ": ".join(filter(None, (actual.kind, actual.message)))
        message = f"{deviation} ({reason})" if deviation and reason else deviation
        outcome: Outcome = "deviates" if deviation else "as_written"
        return self._replace(outcome=outcome, expected=expected, actual=actual, message=message)


class ControlTally(NamedTuple):
    """The controls of a run.

    Attributes:
        results: one for each selected control, by its id.
        wrong: those that ended otherwise, or could not be replayed.
        counts: how many ended in which way, for `report.json`.
    """

    results: tuple[ControlResult, ...]
    wrong: tuple[ControlResult, ...]
    counts: ControlCounts

    def line(self, about: str = "") -> str:
        """Return how many ended as written, and how many were not replayed, with words about what controls are."""
        counts = self.counts
        if not counts.selected:
            return f"{pluralize(counts.present, 'control')} not selected"
        line = f"{counts.as_written} of {pluralize(counts.selected, 'control')} {about}ended as written"
        idle = {"not run": counts.not_run, "not selected": counts.present - counts.selected}
        return ", ".join([line, *(f"{count} {why}" for why, count in idle.items() if count)])


def tally_of(results: Iterable[ControlResult], present: int) -> ControlTally | None:
    """Return the controls of a run, sorted; None if there are none. Of one control the worst outcome counts.

    Args:
        results: what they came to, some perhaps twice.
        present: how many the suite has, or the shard.
    """
    worst_last = sorted(results, key=lambda result: OUTCOMES.index(result.outcome))
    worst = {result.control: result for result in worst_last}
    controls = tuple(worst[name] for name in sorted(worst))
    if not controls and not present:
        return None
    wrong = tuple(result for result in controls if result.outcome in {"deviates", "broken"})
    outcomes = Counter(result.outcome for result in controls)
    selected = outcomes.total()
    counts = ControlCounts(
        present=max(present, selected),
        selected=selected,
        **{outcome: outcomes[outcome] for outcome in OUTCOMES},
        wrong=tuple(result.control for result in wrong),
    )
    return ControlTally(controls, wrong, counts)


def control_problems(control: Control, name: str, *, names_checks: bool | None = None) -> list[Problem]:
    """Return what is wrong with a control that has the right form; above all, why it could not fail.

    Args:
        control: the control.
        name: the name of its file without its suffix; the id of a line.
        names_checks: whether the suite's pack names the check that decides; None if that is not known.
    """
    problems = []
    if control.id != name:
        problems.append(Problem("/id", f"got {format_value(control.id)}", f'expected "{name}", the name of the file'))
    if control.has_payload is (control.cassette is not None):
        got = "both payload and cassette" if control.has_payload else "neither payload nor cassette"
        advice = "expected one of them: payload (a result of a target), or cassette (answers of a model)"
        problems.append(Problem("", f"got {got}", advice))
    if control.cassette is not None and not control.cassette.exchanges:
        problems.append(Problem("/cassette/exchanges", "got []", "expected at least one model call with its answer"))
    return [*problems, *_unfit_expectations(control, names_checks=names_checks)]


def _unfit_expectations(control: Control, *, names_checks: bool | None) -> Iterator[Problem]:
    expected = control.expected
    right = expected.score is None or _is_score(1.0, expected.score)
    # a result itself states what decided it
    checked = bool(expected.decided_by) and not control.has_payload
    if expected.verdict == "passed" and right and not checked:
        check = "" if control.has_payload else " or the check that decides (decided_by)"
        yield Problem(
            "/expected/verdict",
            'got "passed" without a deviation, which is the end of a right answer',
            f"expected another verdict, or in addition a score below 1{check}",
        )
    if expected.terms is not None and not expected.terms:
        yield Problem("/expected/terms", "got []", "expected at least one name, or leave the key out")
    if expected.decided_by and names_checks is False and expected.verdict != "error":
        advice = "remove it (see Pack.decided_by)"
        yield Problem("/expected/decided_by", "the pack of the suite does not name the check that decides", advice)
    yield from _unscored_expectations(expected)


def _unscored_expectations(expected: ControlExpected) -> Iterator[Problem]:
    """Yield what an expectation of a verdict without a score lacks or has too much."""
    verdict, kind = expected.verdict, expected.kind
    without = {"error": ("score", "terms", "decided_by"), "vacuous": ("score",)}.get(verdict, ("kind",))
    for key in without:
        if key in expected.model_fields_set:
            yield Problem(f"/expected/{key}", f'the verdict "{verdict}" has none', "remove it")
    if verdict == "error" and kind is None:
        advice = "add it, such as timeout: without it any error would do"
        yield Problem("/expected/kind", 'the key "kind" is missing', advice)
    if kind is not None and (kind in _OWN_FAULTS or kind.startswith(_FAULT_OF_RECORDING)):
        wrong = f'got "{kind}", which means that the control itself is broken'
        yield Problem("/expected/kind", wrong, "expected a kind of a failing target, such as timeout")


def compare(expected: ControlExpected, end: Score) -> list[Row]:
    """Compare how a control ended with how it has to end; one row for each expectation, in the order of the keys."""
    # a note changes nothing, and a hard fail has no points
    occurring = {term.name for term in end.terms if term.effect == "zero" or (term.value and term.effect != "note")}
    rows = [_row("verdict", expected.verdict, end.verdict)]
    if expected.kind is not None:
        rows.append(_row("kind", expected.kind, end.kind or _NOTHING))
    if expected.score is not None:
        agrees = end.score is not None and _is_score(end.score, expected.score)
        wanted, actual = f"{expected.score:.3f}", _NOTHING if end.score is None else f"{end.score:.3f}"
        if not agrees and actual == wanted:
            wanted, actual = str(expected.score), str(end.score)
        rows.append(Row("score", wanted, actual, "" if agrees else f"score {actual} instead of {wanted}"))
    for name in expected.terms or ():
        deviation = "" if name in occurring else f"no term {name} that changes the score"
        rows.append(Row(f"term {name}", "changes the score", "does" if name in occurring else "does not", deviation))
    # such an answer meets no rule, so that it shows nothing about any
    for term in end.terms:
        if term.name in UNREAD.intersection(occurring).difference(expected.terms or ()):
            deviation = f"the answer can't be read, and terms does not name {term.name}: {term.detail}"
            rows.append(Row("answer", "can be read", term.name, deviation))
    if "decided_by" in expected.model_fields_set:
        rows.append(_row("decided by", expected.decided_by or _NOTHING, end.decided_by or _NOTHING))
    return rows


def _is_score(score: float, expected: float) -> bool:
    """Whether a score is the expected one: a rule that takes off little must not look like none."""
    exact = expected in {0, 1}
    return abs(score - expected) <= (_NOISE if exact else SCORE_TOLERANCE + _NOISE)


def _row(what: str, expected: str, actual: str) -> Row:
    return Row(what, expected, actual, "" if actual == expected else f"{what} {actual} instead of {expected}")
