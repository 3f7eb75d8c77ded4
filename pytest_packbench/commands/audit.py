"""`packbench audit`: break right results and inputs, and see which rules of a suite notice it. No model is called."""

from __future__ import annotations

import json
import os
import random
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.audit import (
    INPUTS,
    OTHER_RESULT,
    Audit,
    AuditedCase,
    Change,
    InputCount,
    ResultBreaker,
    Tally,
    changed_input,
    conclude,
    is_empty,
    scored,
)
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import (
    add_packs,
    add_root,
    add_run_options,
    suite_and_pack,
    without_traces,
    write_file,
)
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import describe_score
from pytest_packbench.runs.folder import PAYLOADS, find_run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pytest_packbench.analysis.audit import Scored
    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.engine.targets import TargetCaller
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.model.suite import Suite

_COUNT = 50
_CASES = 500
_PROGRESS = 50
# what is tried before a case counts as one that can't fail
_THOROUGH = 1000
_REPLAY = ("--packbench-mode=fixture", "-pno:cacheprovider")


class _Subject(NamedTuple):
    """A case with a right result.

    Attributes:
        file: the file of the case, as it is shown.
        loaded: the case.
        plain: the case as plain JSON, without defaults.
        payload: the result.
        right: its score.
    """

    file: str
    loaded: LoadedCase
    plain: dict[str, Any]
    payload: Any
    right: Scored


class _Refused(Exception):  # noqa: N818 - not an error: the result is only not right
    """A case has no right result; the message says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the name of the suite")
    parser.add_argument(
        "--run",
        type=Path,
        metavar="RUN",
        help="break the stored results of this run instead: its folder, or SUITE/latest",
    )
    parser.add_argument(
        "--count",
        type=_positive,
        default=_COUNT,
        metavar="N",
        help=f"the largest number of changed parts, one at a time, of the result of a case (default: {_COUNT})",
    )
    parser.add_argument(
        "--cases",
        type=_positive,
        default=_CASES,
        metavar="N",
        help=f"the largest number of cases, chosen by the seed (default: {_CASES})",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses cases and changes (default: 0)")
    parser.add_argument(
        "--fail-under",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="fail if a rule notices a smaller share of the changes of what it reads, 0 to 1 (default: 0)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all counts and findings to this file as well")
    add_run_options(parser, "gives the results")
    add_root(parser)
    add_packs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Break the results of a suite, and write which rules noticed it."""
    from pytest_packbench.reports.audit_text import audit_lines

    audit = _of_run(arguments) if arguments.run is not None else _of_recordings(arguments)
    conclude(audit, fail_under=arguments.fail_under)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(audit.as_json(), indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write("\n".join(audit_lines(audit)) + "\n")
    if not audit.broken:
        raise UsageError(f"suite {audit.suite}: no case passes, so there is no right result to break; see above")
    return FAILED if audit.findings else FINE


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() and text.isascii() else 0
    if not number:
        raise ArgumentTypeError(f"got {text!r}, expected a whole number, 1 or more")
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"got {text!r}, expected a number from 0 to 1")
    return share


def _of_recordings(arguments: argparse.Namespace) -> Audit:
    """Audit with the results of a run in fixture mode."""
    from pytest_packbench.engine.attempt import attempt
    from pytest_packbench.pytest_plugin.project import ProjectError, with_suite

    if arguments.packs:
        raise UsageError("--pack: only with --run; without it, packs of conftest.py and installed packages are used")
    root = [] if arguments.root is None else [f"--override-ini=packbench_root={arguments.root.resolve()}"]

    def use(suites: SuiteContexts, suite: Suite) -> Audit:
        context = suites.context(suite)
        source = "recorded results" if context.caller.opaque else "results of the target"
        if context.asks_model:
            source += " on the recordings"
        auditor = _Auditor(arguments, context, source)
        subjects = auditor.subjects(lambda loaded: attempt(context, loaded))
        auditor.break_results(subjects)
        auditor.change_inputs(subjects)
        return auditor.audit

    try:
        with without_traces():
            return with_suite(arguments.suite, [*arguments.options, *root, *_REPLAY], use)
    except ProjectError as error:
        raise UsageError(str(error)) from None


def _of_run(arguments: argparse.Namespace) -> Audit:
    """Audit with the results that a run stored."""
    from pytest_packbench.engine.attempt import score_payload
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.runs.lines import read_payloads
    from pytest_packbench.runs.report import open_report

    if arguments.options:
        raise UsageError("--option: not with --run, whose results are stored")
    folder = find_run_folder(arguments.run)
    report = open_report(folder)
    suite, pack = suite_and_pack(arguments.suite, arguments, by_name=True)
    if report.run.suite.removeprefix(BUNDLED) != suite.record_name:
        raise UsageError(f'{folder}: a run of the suite "{report.run.suite}", expected one of "{suite.name}"')
    ids = {(result.test_id, result.trial): result.case_id for result in report.results}
    payloads: dict[str, Any] = {}
    for key, payload in read_payloads(folder / PAYLOADS):
        if key in ids:
            # the first of several trials
            payloads.setdefault(ids[key], payload)
    context = SuiteContext.of_results(suite, pack, report.run.target, redactor=Redactor(os.environ))

    def stored(loaded: LoadedCase) -> Attempt:
        if loaded.case.id not in payloads:
            raise _Refused("the run has no result of it")
        return score_payload(context, loaded, payloads[loaded.case.id])

    auditor = _Auditor(arguments, context, f"stored results of the run {folder}")
    auditor.break_results(auditor.subjects(stored))
    auditor.audit.inputs_note = "its results are stored; without --run, targets that need no model are run"
    return auditor.audit


class _Auditor:
    """Breaks the results of one suite.

    Args:
        arguments: of the command.
        context: scores results, and calls the target.
        source: where the right results come from.
    """

    def __init__(self, arguments: argparse.Namespace, context: SuiteContext, source: str) -> None:
        self._context = context
        self._limit, self._seed = arguments.cases, arguments.seed
        # by result, what the cases that have it expect
        self._expected_of: dict[str, list[Any]] = {}
        self.audit = Audit(
            suite=context.suite.name,
            pack=context.pack.name,
            source=source,
            seed=arguments.seed,
            count=arguments.count,
        )

    def subjects(self, run: Callable[[LoadedCase], Attempt]) -> list[_Subject]:
        """Return the cases with a right result, and note why the others have none.

        Args:
            run: returns the result of a case.
        """
        from pytest_packbench.cases.files import iter_cases

        locations = list(iter_cases(self._context.suite.cases_path))
        self.audit.total = len(locations)
        if len(locations) > self._limit:
            chosen = _chooser(self._seed).sample(range(len(locations)), self._limit)
            locations = [locations[index] for index in sorted(chosen)]
        subjects = []
        for number, location in enumerate(locations, start=1):
            _show_progress("results", number, len(locations))
            file = location.label(_shown(location.path))
            try:
                subjects.append(self._subject(location, file, run))
            except _Refused as reason:
                self.audit.cases.append(AuditedCase(location.name, file, problem=str(reason)))
        return subjects

    def _subject(self, location: CaseLocation, file: str, run: Callable[[LoadedCase], Attempt]) -> _Subject:
        from pytest_packbench.cases.files import load_case
        from pytest_packbench.model.errors import CaseError

        context = self._context
        try:
            loaded = load_case(location, context.pack.case_model, file=file, pack=context.pack.name)
        except CaseError as error:
            raise _Refused(str(error)) from None
        notes = loaded.case.notes
        if notes.skip is not None or notes.xfail is not None:
            raise _Refused(f"quarantined: {notes.skip or notes.xfail}")
        done = run(loaded)
        if done.failure is not None:
            raise _Refused(f"error: {done.failure.message}")
        if done.score is None or not done.score.passed:
            raise _Refused("no score" if done.score is None else done.score.message or describe_score(done.score))
        return _Subject(
            file=file,
            loaded=loaded,
            plain=loaded.case.model_dump(mode="json", by_alias=True, exclude_unset=True),
            payload=done.payload,
            right=scored(done.score),
        )

    def break_results(self, subjects: Sequence[_Subject]) -> None:
        """Break the result of each case, score what comes of it, and count what is noticed."""
        pack, rules = self._context.pack, self._context.suite.config
        breaker = ResultBreaker([subject.payload for subject in subjects], _chooser(self._seed))
        tally = Tally(pack.criteria(rules))
        for subject in subjects:
            self._expected_of.setdefault(json.dumps(subject.payload), []).append(subject.plain["expected"])
        for number, subject in enumerate(subjects, start=1):
            _show_progress("broken results", number, len(subjects))
            wrong = list(pack.wrong_results(subject.loaded.case, subject.payload, rules))
            for rule, _ in wrong:
                tally.add_rule(rule)
            known = [(rule, result) for rule, result in wrong if result is not None]
            chosen, others = breaker.changes(subject.payload, subject.plain["expected"], known, self.audit.count)
            tally.start_case(subject.right, subject.payload)
            self.audit.cases.append(self._break(subject, chosen, others, tally))
            tally.end_case()
        self.audit.cases.sort(key=lambda case: case.file)
        tally.fill(self.audit)

    def _break(
        self, subject: _Subject, changes: Sequence[Change], others: Sequence[Change], tally: Tally
    ) -> AuditedCase:
        """Count what is noticed of the changes; where the case passes with all of them, try the others."""
        from pytest_packbench.engine.attempt import score_payload

        text, variants = json.dumps(subject.payload), self._variants(subject)
        judged, passed, passes_empty = 0, 0, False
        for change in changes:
            result = change.apply(text)
            done = score_payload(self._context, subject.loaded, result)
            broken = scored(done.score)
            tally.add(subject.right, broken, change, result)
            if change.kind == OTHER_RESULT and subject.plain["expected"] not in self._expected_of[json.dumps(result)]:
                self.audit.other_results.tried += 1
                self.audit.other_results.failed += not broken.passed
            judged += broken.is_readable
            passed += broken.passed
            passes_empty = passes_empty or (broken.passed and is_empty(change))
            for key, variant in variants.items():
                # a result that can't be read is not compared with anything
                if broken.is_readable:
                    tally.add_expectation(key, broken, self._score(variant, done))
        tried = len(changes)
        for change in others[:_THOROUGH]:
            if passed < judged:
                break
            broken = scored(score_payload(self._context, subject.loaded, change.apply(text)).score)
            tried, judged, passed = tried + 1, judged + broken.is_readable, passed + broken.passed
        return AuditedCase(subject.loaded.case.id, subject.file, "", tried, judged, passed, passes_empty)

    def _variants(self, subject: _Subject) -> dict[str, LoadedCase]:
        """Return the case without each key of `expected` that it can do without, by key."""
        from pytest_packbench.cases.load import check_case
        from pytest_packbench.model.errors import CaseError

        case = subject.loaded.case
        expected = subject.plain["expected"] if isinstance(subject.plain["expected"], dict) else {}
        variants = {}
        for key in expected:
            without = {name: value for name, value in expected.items() if name != key}
            plain = {**subject.plain, "expected": without}
            with suppress(CaseError):
                variant = check_case(plain, self._context.pack.case_model, source=subject.file, stem=None, pack=None)
                # a key with its default value says nothing
                if variant.case.expected != case.expected:
                    variants[key] = variant
        return variants

    def _score(self, loaded: LoadedCase, done: Attempt) -> Scored:
        """Score the outcome of a broken result by another case."""
        context = self._context
        try:
            return scored(context.pack.score(loaded.case, done.outcome, context.suite.config))
        except Exception:  # noqa: BLE001 - a pack may need the key for some results only
            return scored(None)

    def change_inputs(self, subjects: Sequence[_Subject]) -> None:
        """Run the target with other inputs, if that needs no model and no recording."""
        caller = self._context.caller
        runnable = [subject for subject in subjects if self._runs_alone(subject.loaded)]
        if not runnable:
            reason = "it runs outside this process" if caller.opaque else "its model calls are recorded"
            self.audit.inputs_note = f"{reason}, and a recording is valid for its own input only"
            return
        for kind in INPUTS:
            chooser = _chooser(self._seed)
            passed: list[str] = []
            different: list[bool] = []
            tried, errors = 0, 0
            for position, subject in enumerate(runnable):
                _show_progress(f"{kind} input", position + 1, len(runnable))
                other = runnable[(position + 1) % len(runnable)]
                done = self._run_with(kind, subject, other, chooser)
                if done is not None:
                    tried += 1
                    passed += [subject.loaded.case.id] if done.passed else []
                    errors += not done.is_readable
                    if kind == INPUTS[-1] and subject.plain["expected"] != other.plain["expected"]:
                        different.append(done.passed)
            if tried:
                counts = {"different": len(different), "different_passed": sum(different)}
                self.audit.inputs.append(
                    InputCount(kind=kind, tried=tried, passed=tuple(passed), errors=errors, **counts)
                )

    def _runs_alone(self, loaded: LoadedCase) -> bool:
        context = self._context
        if context.caller.opaque:
            return False
        return not context.asks_model or not find_recording(context.suite, loaded.case.id).exists()

    def _run_with(self, kind: str, subject: _Subject, other: _Subject, chooser: random.Random) -> Scored | None:
        """Return the score of the target's result for another input; None where the input stays the same."""
        from pytest_packbench.engine.attempt import attempt

        pack = self._context.pack
        request = pack.request(subject.loaded.case)
        if kind == INPUTS[-1]:
            changed = pack.request(other.loaded.case)
        else:
            changed = request.model_copy(update={"input": changed_input(kind, request.input, chooser)})
        if changed == request:
            return None
        caller = _with_request(self._context.caller, changed)
        try:
            return scored(attempt(replace(self._context, caller=caller), subject.loaded).score)
        finally:
            caller.close()


def _with_request(caller: TargetCaller, request: VerifyRequest) -> TargetCaller:
    """Return a caller of the same target that passes another request to it, and no model."""
    from pytest_packbench.engine.targets import TargetCaller
    from pytest_packbench.model.request import without_model

    @without_model
    def target(_: VerifyRequest, context: VerifyContext) -> Any:
        return caller(request, context)

    return TargetCaller(target)


def _chooser(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - chooses what to try, and keeps no secret


def _shown(path: str) -> str:
    """Return a path relative to the current folder if it is inside, else as it is."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def _show_progress(what: str, number: int, total: int) -> None:
    if total > _PROGRESS and sys.__stderr__ is not None and sys.__stderr__.isatty():
        end = "\n" if number == total else ""
        sys.__stderr__.write(f"\r{what}: {number} of {total}{end}")
        sys.__stderr__.flush()
