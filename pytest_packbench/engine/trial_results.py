"""Results of attempts: a `Result` for each, with its wire record, whatever failed on the way."""

from __future__ import annotations

import json
import platform
import sys
from contextlib import suppress
from dataclasses import astuple, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench import __version__
from pytest_packbench.cases.load import load_case
from pytest_packbench.engine.attempt import (
    UNKNOWN,
    AttemptState,
    Failure,
    redacted_failure,
    reject_answer,
    replay,
    score_payload,
)
from pytest_packbench.model.errors import CaseError, describe_error, single_spaced, surrogate_at, user_frames
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts, record_facts
from pytest_packbench.model.record import EVAL_BACKENDS, EvalRecord, RecordError
from pytest_packbench.model.result import (
    EXTENSION_KEYS,
    EXTENSION_VERSION,
    FURTHER_FIELDS,
    ROW_FIELDS,
    UNREAD,
    Attempt,
    CaseInfo,
    EndedAttempt,
    Result,
    Score,
    Verdict,
    describe_score,
    timestamp_now,
    with_score,
)
from pytest_packbench.model.run import CAPS, CONTROL_OWNER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.cases.finder import CaseLocation
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.recording import Control
    from pytest_packbench.model.redaction import Found, Redactor
    from pytest_packbench.model.suite import Suite


# what the engine knows of an attempt; other keys of a record are what a pack says
_OF_ENGINE = frozenset(EXTENSION_KEYS).difference(FURTHER_FIELDS)
# what a result keeps of an attempt; the rest is kept only until it is scored
_OF_RESULTS = [each.name for each in fields(Attempt) if each.name in {*ROW_FIELDS, "payload", "waited_ms"}]
# what targets, packs and models write into results and their records
_OF_OTHERS = frozenset(
    {"facets", "llm_model", "payload", "message", "match_level", "answer", "judge", "terms", "hook_decisions"}
).union(FURTHER_FIELDS)
# characters of a text that are read for a line about a failed case, and that are shown
_MAX_READ = 20_000
_MAX_SHOWN = 200
_NO_SCORE = Failure(kind="error", message="no score")


class CaseRef(NamedTuple):
    """A reference to a case, whether it can be read or not.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        case: what identifies it; what the pack knows of it is added to its results.
        loaded: the case; None where it can't be read.
    """

    suite: Suite
    pack: Pack
    case: CaseInfo
    loaded: LoadedCase | None

    @classmethod
    def at(
        cls, suite: Suite, pack: Pack, loaded: LoadedCase | None, *, case_id: str, nodeid: str, file: str
    ) -> CaseRef:
        """Return the reference to a case in a file.

        Args:
            suite: its suite.
            pack: the suite's pack.
            loaded: the case; None where it can't be read.
            case_id: its id; the file's stem where it can't be read.
            nodeid: its node id.
            file: its file as the node id names it.
        """
        folder = file.rpartition("/")[0].rpartition("/")[2]
        test_id = f"{suite.record_name}:{folder}:{case_id}"
        case = CaseInfo(
            suite=suite.name,
            test_id=test_id,
            case_id=case_id,
            nodeid=nodeid,
            file=file,
            case_sha256=None if loaded is None else loaded.sha256,
        )
        return cls(suite, pack, case, loaded)

    @property
    def readable(self) -> LoadedCase:
        """The case, which has been attempted."""
        if self.loaded is None:
            raise ValueError("a case that can't be read has no attempt")
        return self.loaded


def read_case_ref(suite: Suite, pack: Pack, location: CaseLocation, *, file: str, nodeid: str) -> CaseRef:
    """Return the reference to the case at a location; the case is read for it."""
    loaded = None
    with suppress(CaseError):
        loaded = load_case(location, pack.case_model, file=file, pack=pack.name)
    return CaseRef.at(suite, pack, loaded, case_id=location.name, nodeid=nodeid, file=location.label(file))


class Trial(NamedTuple):
    """One attempt at a case, with its result.

    Attributes:
        result: the result to be reported and stored.
        attempt: the attempt; None where it was not made, or made by an earlier session of the run.
        rows: expected against actual values, where the case failed.
    """

    result: Result
    attempt: AttemptState | None = None
    rows: Sequence[Comparison] = ()

    @property
    def failure(self) -> Failure | None:
        """Why the attempt has no result; None if it has one, and where `attempt` is None."""
        return None if self.attempt is None else self.attempt.failure


def ended_attempt(case_ref: CaseRef, state: AttemptState) -> EndedAttempt:
    """Return an attempt that has ended without a failure, as it is stored until it is scored."""
    # the pack is asked for more when it is scored
    return EndedAttempt(case=case_ref.case, attempt=state.stored())


def build_trial(case_ref: CaseRef, attempt: AttemptState, context: SuiteContext, run_id: str) -> Trial:
    """Build the trial of an attempt; an exception of the pack makes it an error."""
    redactor, secrets = context.redactor, attempt.secrets
    try:
        result = build_result(case_ref, attempt, context, run_id)
        if secrets or redactor.suspects(_own_text(result)):
            result = _redacted(result, redactor, secrets)
        if result.record is None:
            # creating a record checks it; what has none should fail here, not where it is written
            json.dumps(result.as_json())
        rows: Sequence[Comparison] = ()
        if result.score.verdict == "failed":
            # before they are shortened, or set in columns
            rows = [
                replace(row, expected=redactor.json(row.expected, secrets), actual=redactor.json(row.actual, secrets))
                for row in _rows(case_ref, attempt)
            ]
            expected, actual = _shown_rows(rows)
            shown = shown_input(case_ref, context)
            result = with_score(result, input_text=shown, expected_text=expected, actual_text=actual)
    except context.options.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be third-party code
        if attempt.unread is None and case_ref.loaded is not None and (reason := _unwritable(attempt, error)):
            reject_answer(context, case_ref.loaded, attempt, reason)
            return build_trial(case_ref, attempt, context, run_id)
        message = f"the pack {case_ref.pack.name} raised {describe_error(error)}"
        failure = Failure(kind="pack_error", message=message, details=user_frames(error))
        return error_trial(case_ref, redacted_failure(failure, redactor, secrets), trial=attempt.trial)
    return Trial(result=result, attempt=attempt, rows=rows)


def redacted_trial(trial: Trial, redactor: Redactor) -> Trial:
    """Return a trial that ended in an error outside the engine, without secrets in its message."""
    if trial.attempt is None or trial.attempt.failure is None or not redactor.suspects(trial.result.score.message):
        return trial
    trial.attempt.failure = redacted_failure(trial.attempt.failure, redactor)
    return trial._replace(result=with_score(trial.result, message=redactor.text(trial.result.score.message)))


def error_trial(case_ref: CaseRef, failure: Failure, *, trial: int = 0) -> Trial:
    """Build the trial of an attempt that failed outside the engine."""
    result = unscored_result(case_ref, "error", failure.kind, failure.message, trial=trial)
    return Trial(result=result, attempt=AttemptState(failure=failure, trial=trial))


def not_run_trial(case_ref: CaseRef, kind: str, message: str, *, trial: int = 0) -> Trial:
    """Build the trial of an attempt that was not made, with the reason's name and a line that explains it."""
    return Trial(result=unscored_result(case_ref, "not_run", kind, message, trial=trial))


def carried_over_trial(result: Result, case_ref: CaseRef) -> Trial:
    """Build the trial of a result that an earlier session of the run stored.

    Args:
        result: a result with a score.
        case_ref: the case today: its node id or line may have changed.
    """
    record = result.record
    if record is not None:
        record = {**record, "packbench": {**record.get("packbench", {}), "file": case_ref.case.file}}
    case = replace(result.case, nodeid=case_ref.case.nodeid, file=case_ref.case.file)
    return Trial(result=replace(result, case=case, record=record))


def build_result(case_ref: CaseRef, state: AttemptState, context: SuiteContext, run_id: str) -> Result:
    """Build the result of an attempt, with its wire record if it has a verdict that counts.

    A quarantined case (`xfail` in its notes) is run and scored, but has no record: it does not count in the rates.

    Raises:
        RecordError: what the pack returns is not valid in a record.
        Exception: anything else that the pack raises.
    """
    case, score, outcome = case_ref.readable.case, state.score, state.outcome
    if state.failure is not None or score is None or outcome is None:
        failure = state.failure or _NO_SCORE
        # a cap of the run refused a call
        verdict: Verdict = "not_run" if failure.kind in CAPS else "error"
        done = _attempt_of(state, ("trial", "timestamp", "duration_ms", "cost_usd", "payload"))
        return unscored_result(case_ref, verdict, failure.kind, failure.message, done)
    done = _attempt_of(state, _OF_RESULTS)
    answer: dict[str, Any] = {"answer": outcome.answer, "refused": outcome.refused}
    if case.notes.xfail is not None:
        message = f"quarantined (xfail): {case.notes.xfail}; {describe_score(score)}"
        score = replace(score, verdict="known_hole", kind="xfail", message=message, **answer)
        return Result(case=_case_of(case_ref), attempt=done, score=score)
    if score.verdict not in {"passed", "failed"} or score.score is None:
        kind, message = score.kind or score.verdict, score.message or score.verdict
        score = replace(score, kind=kind, message=message, valid=False if kind in UNREAD else None, **answer)
        return Result(case=_case_of(case_ref), attempt=done, score=score)
    facts = record_facts(case_ref.pack, case, None if state.unread is not None else outcome, score)
    score = replace(
        score,
        kind="",
        message="",
        decision=facts.agent_decision,
        judge=facts.judge,
        utility=facts.utility,
        valid=facts.valid,
        **answer,
        labels=facts.labels,
    )
    described = _case_of(case_ref, expects_refusal=facts.expected == "refuse")
    row = Result(case=described, attempt=done, score=score).row()
    record = _record_of(row, facts, state, context, run_id)
    return Result(case=described, attempt=done, score=score, record=record)


def unscored_result(
    case_ref: CaseRef, verdict: Verdict, kind: str, message: str, attempt: Attempt | None = None, *, trial: int = 0
) -> Result:
    """Build the result of a case without a score.

    Args:
        case_ref: the case.
        verdict: neither `passed` nor `failed`.
        kind: the reason's name.
        message: the reason in one line.
        attempt: what is known of the attempt; by default, that it ended now.
        trial: its number, where no more is known of it.
    """
    try:
        case = _case_of(case_ref)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a pack may be third-party code, and an error needs a result too
        case = case_ref.case
    attempt = attempt or Attempt(trial=trial, timestamp=timestamp_now())
    return Result(case=case, attempt=attempt, score=Score(verdict=verdict, kind=kind, message=message))


def end_of_control(case_ref: CaseRef, control: Control, context: SuiteContext, run_id: str) -> Result:
    """Return what the answer of a control came to, as for a case, with the check of the pipeline that decided.

    Never raises for what a pack or a target does.

    Args:
        case_ref: its case, with the file and the node id of the control.
        control: the control.
        context: of its suite; with the pack's own target for a control with a cassette.
        run_id: the run's id.
    """
    loaded = case_ref.readable
    # the quarantine of a case does not apply to its controls
    notes = loaded.case.notes.model_copy(update={"xfail": None})
    loaded = loaded._replace(case=loaded.case.model_copy(update={"notes": notes}))
    if control.cassette is None:
        state = score_payload(context, loaded, control.payload)
    else:
        cassette = control.cassette.recording(loaded.case.id, loaded.input_sha256, context.pack.name)
        owner = CONTROL_OWNER + control.id
        state = replay(context, loaded, cassette, source=case_ref.case.file, owner=owner)
    if state.score is not None:
        try:
            state.score = replace(state.score, decided_by=str(context.pack.decided_by(state.payload)))
        except context.options.stops:
            raise
        except BaseException as error:  # noqa: BLE001 - a pack may be third-party code
            failure = Failure(kind="pack_error", message=f"the pack raised in decided_by: {describe_error(error)}")
            state.failure = redacted_failure(failure, context.redactor, state.secrets)
    return build_trial(case_ref._replace(loaded=loaded), state, context, run_id).result


@cache
def versions() -> dict[str, str]:
    """Return the versions of packages that may affect results, by name."""
    # the metadata of a distribution take longer to read
    loaded = {name: getattr(sys.modules.get(name), "__version__", UNKNOWN) for name in ("pytest", "pydantic")}
    return {"pytest_packbench": __version__, "python": platform.python_version(), **loaded}


def _own_text(result: Result) -> str:
    """Return what a pack or a rule of the user may have written into a result; the rest is from case and payload."""
    score, extension = result.score, {} if result.record is None else result.record["packbench"]
    extra = [str(extension[key]) for key in extension.keys() - _OF_ENGINE]
    return "\0".join([score.message, score.answer or "", *(term.detail for term in score.terms), *extra])


def _redacted(result: Result, redactor: Redactor, secrets: tuple[Found, ...]) -> Result:
    """Return a result without secrets; what identifies the case stays as it is."""

    def without(part: Any, names: Iterable[str]) -> Any:
        return replace(part, **{name: redactor.json(getattr(part, name), secrets) for name in names})

    def own(part: Any) -> Any:
        return without(part, _OF_OTHERS.intersection(part.__slots__) - {"terms"})

    terms = tuple([without(term, ("name", "detail")) for term in result.score.terms])
    record = result.record
    if record is not None:
        extension = record["packbench"]
        shown = [name for name in extension if name in _OF_OTHERS or name not in _OF_ENGINE]
        hidden, texts = (
            {name: redactor.json(values[name], secrets) for name in names}
            for values, names in ((extension, shown), (record, _OF_OTHERS.intersection(record)))
        )
        record = {**record, **texts, "packbench": {**extension, **hidden}}
    score = replace(own(result.score), terms=terms)
    return Result(case=own(result.case), attempt=own(result.attempt), score=score, record=record)


def _rows(case_ref: CaseRef, attempt: AttemptState) -> list[Comparison]:
    if attempt.unread is not None:
        said = attempt.outcome.answer if attempt.outcome is not None else None
        return [Comparison(what="answer", expected="an answer that can be read", actual=said or "none")]
    rows: list[Any] = list(
        case_ref.pack.explain(case_ref.readable.case, attempt.outcome, attempt.score.terms if attempt.score else ())
    )
    if not all(isinstance(row, Comparison) and all(isinstance(text, str) for text in astuple(row)) for row in rows):
        raise TypeError(f"facts() returned the rows {rows!r}, expected Comparisons whose fields are str")
    return rows


def shown_input(case_ref: CaseRef, context: SuiteContext) -> str:
    """Return the beginning of a case's input in one line, without secrets; empty where its text must not be shown."""
    if case_ref.loaded is None or not context.options.record_prompts:
        return ""
    case = case_ref.loaded.case
    if not case.keeps_prompts:
        return ""
    text = case_ref.pack.input_text(case)
    return context.redactor.excerpt(text[:_MAX_READ], _MAX_SHOWN)


def _shown_rows(rows: Sequence[Comparison]) -> tuple[str, str]:
    """Return in two short lines what was expected of a failed case and what came, where they differ."""
    compared = [row for row in rows if row.expected]
    # "answer (0101.21)" is more than "answer", not another one
    differing = [row for row in compared if not f"{row.actual} (".startswith(f"{row.expected} (")]
    shown = differing or compared
    names = [f"{row.what}: " if len(shown) > 1 else "" for row in shown]
    texts = (
        "; ".join(f"{name}{text}" for name, text in zip(names, column, strict=True))
        for column in ([row.expected for row in shown], [row.actual for row in shown])
    )
    expected, actual = (single_spaced(text[:_MAX_READ]) for text in texts)
    return _shortened(expected), _shortened(actual)


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1].rstrip()}…"


def _unwritable(attempt: AttemptState, error: BaseException) -> str:
    """Return why a record can't contain the result; empty if something else is wrong with the record."""
    pointer = surrogate_at(attempt.payload) if isinstance(error, RecordError) else None
    if pointer is None:
        return ""
    location = f"at {pointer}" if pointer else "at its top level"
    return f"the target's result contains an unpaired surrogate {location}; expected text that UTF-8 can encode"


def _case_of(case_ref: CaseRef, *, expects_refusal: bool | None = None) -> CaseInfo:
    """Return what identifies and describes the case.

    Args:
        case_ref: the case.
        expects_refusal: whether the record of its score expects a refusal; None without one.

    Raises:
        TypeError: the pack returned something other than str.
        Exception: anything else that the pack raises.
    """
    if case_ref.loaded is None:
        return case_ref.case
    pack, case = case_ref.pack, case_ref.loaded.case
    facets: object = pack.facets(case)
    if not isinstance(facets, dict) or not all(isinstance(text, str) for pair in facets.items() for text in pair):
        raise TypeError(f"facets() returned {facets!r}, expected a dict of str to str")
    test_id: object = case.test_id(case_ref.suite.record_name)
    if not isinstance(test_id, str) or not test_id:
        raise TypeError(f"test_id() returned {test_id!r}, expected a str that is not empty")
    return replace(
        case_ref.case,
        test_id=test_id,
        case_type=case.case_type,
        difficulty=case.difficulty,
        tags=case.notes.tags,
        facets=facets,
        expects_refusal=expects_refusal,
    )


def _attempt_of(state: AttemptState, names: Iterable[str]) -> Attempt:
    values = {name: getattr(state, name) for name in names}
    if "llm_backend" in values and values["llm_backend"] not in EVAL_BACKENDS:
        values["llm_backend"] = UNKNOWN
    return Attempt(**values)


def _record_of(
    row: dict[str, Any], facts: RecordFacts, state: AttemptState, context: SuiteContext, run_id: str
) -> dict[str, Any]:
    """Return the wire record of a result, given its row, with what only the run and the pack know."""
    suite, pack = context.suite, context.pack
    stated = row | {
        "version": EXTENSION_VERSION,
        "mode": context.options.mode,
        "origin": state.cassette.origin if state.cassette is not None else None,
        "target": context.target_name,
        "pack": f"{pack.name}/{pack.version}",
        "bundled": suite.bundled,
        "suite_sha256": suite.sha256,
        "versions": versions(),
        "calls": state.calls,
    }
    # the decision may say already whether the target refused; what is not known, and a count of 0, are left out
    unsaid = {name for name in ("utility", "valid", *FURTHER_FIELDS) if row.get(name) is None}
    unsaid |= {"refused"} if row["refused"] is (row["decision"] == "refuse") else set()
    unsaid |= set() if state.cached else {"cached", "calls"}
    kept = [name for name in EXTENSION_KEYS if name in stated and name not in unsaid]
    firings = state.outcome.firings if state.outcome is not None else ()
    record = EvalRecord.from_json(
        {
            **{name: row[name] for name in ("test_id", "llm_backend", "llm_model", "timestamp")},
            "test_suite": facts.test_suite or suite.record_name,
            "attack_category": facts.attack_category,
            "agent_decision": facts.agent_decision,
            "expected": facts.expected,
            "passed": row["verdict"] == "passed",
            "tokens_input": state.tokens_input,
            "tokens_output": state.tokens_output,
            "wall_clock_ms": row["duration_ms"],
            "run_id": run_id,
            "hook_decisions": [{"hook": each.hook, "decision": each.decision, "rule": each.rule} for each in firings],
            "packbench": {**facts.extra, **{name: stated[name] for name in kept}},
        }
    )
    return record.as_json()
