"""Functions for scripts and notebooks: load a suite, score one result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pytest_packbench.cases.finder import FoundSuite, bundled_root, find_suites
from pytest_packbench.cases.load import check_case, read_suite
from pytest_packbench.model.errors import CaseError, Problem, SuiteError, single_spaced, suggestion
from pytest_packbench.model.result import UNREADABLE, ResultError, Score, with_unknown_keys
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import CONFIG_NAME, Suite
from pytest_packbench.packs.registry import Packs

if TYPE_CHECKING:
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Pack


def load_suite(path: str | Path, *, packs: Packs | None = None) -> Suite:
    """Load a suite.

    Args:
        path: the folder of the suite, which contains `suite.yaml`; or the text `bundled/NAME` for a bundled suite.
        packs: the available packs; the built-in and the installed packs by default.

    Returns:
        The suite, named after its folder; its cases are not read.

    Raises:
        SuiteError: `suite.yaml` is invalid, or there is no such suite; one line with file, JSON pointer, problem and
            what was expected.
        PackError: the pack of the suite is installed but cannot be imported.
    """
    if isinstance(path, str) and path.startswith(BUNDLED):
        folder = bundled_root()
        name = path.removeprefix(BUNDLED)
        suites = find_suites(folder)
        if name not in suites:
            listed = ", ".join(BUNDLED + suite for suite in suites) or "none"
            raise SuiteError(path, [Problem("", "unknown suite", f"expected one of {listed}")])
        return load_found(FoundSuite(path, suites[name], bundled=True), packs=packs)
    folder = Path(path).resolve()
    return load_found(FoundSuite(folder.name, folder, bundled=False), packs=packs)


def load_found(found: FoundSuite, *, packs: Packs | None = None) -> Suite:
    """Load a suite that was found by its name; otherwise as `load_suite`."""
    packs = Packs() if packs is None else packs
    source = str(found.path / CONFIG_NAME)
    with packs.rules_of(found.path):
        return read_suite(found.path, packs.suite_models, source=source, name=found.name, bundled=found.bundled)


def score(
    case: Case | dict[str, Any], result: object, *, pack: str | Pack | None = None, suite: Suite | None = None
) -> Score:
    """Score one result against one case.

    Args:
        case: a case model, or a case as plain JSON.
        result: the result of the target, as plain JSON or as a pydantic model.
        pack: a pack, or the name of a built-in or installed one; by default the pack of the suite, or without a suite
            the pack that the case names. With an explicit pack, the case's `pack_id` is ignored.
        suite: the suite whose rules apply; without one the defaults of the pack apply.

    Returns:
        The score. An unreadable result is an answer: score 0 with the term `unreadable_answer`, or what the
        pack makes of such an answer. If the target reports an infrastructure failure, the verdict is `error` and the
        score None.

    Raises:
        CaseError: the case is invalid, or its `pack_id` is unknown.
        ValueError: the pack is unknown, or the suite belongs to another pack.
    """
    selected, pack_id = _select_pack(case, pack, suite)
    rules = _rules(selected, suite)
    bound = selected.for_suite(rules)
    # the rules of a suite refuse cases that can't fail in it; without a suite, any case of the pack has a score
    model = _case_model(case, selected if suite is None else bound, pack_id)
    payload: object = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
    try:
        outcome = bound.read(payload)
    except ResultError as error:
        reason = single_spaced(f"the target's result can't be read: {error}")
        return with_unknown_keys(bound.unread(model, UNREADABLE, reason, rules), error.unknown_keys)
    if outcome.breakdown is not None:
        message = f"the target reports a failure: {outcome.breakdown.kind}: {outcome.breakdown.message}"
        return Score(score=None, threshold=bound.threshold_of(model, rules), verdict="error", message=message)
    return bound.score(model, outcome, rules)


def _select_pack(case: object, pack: str | Pack | None, suite: Suite | None) -> tuple[Pack, str | None]:
    """Return the pack, and the `pack_id` that the case must have; None to accept any."""
    if pack is not None:
        return (_pack_by_name(pack) if isinstance(pack, str) else pack), None
    if suite is not None:
        return _pack_by_name(suite.config.pack), suite.config.pack
    pack_id = _key(case, "pack_id")
    packs = Packs()
    if pack_id in packs:
        return packs[pack_id], pack_id
    wrong = f'unknown pack "{pack_id}"' if pack_id else 'the key "pack_id" is missing'
    raise CaseError(
        _case_source(case), [Problem("/pack_id", wrong, f"{suggestion(pack_id, sorted(packs))}, or pass pack=")]
    )


def _case_model(case: object, pack: Pack, pack_id: str | None) -> Case:
    if isinstance(case, pack.case_model) and pack_id in {None, case.pack_id}:
        return case
    plain = case.model_dump(mode="json", by_alias=True) if isinstance(case, BaseModel) else case
    return check_case(plain, pack.case_model, source=_case_source(case), stem=None, pack=pack_id).case


def _pack_by_name(name: str) -> Pack:
    packs = Packs()
    if name not in packs:
        raise ValueError(f'unknown pack "{name}"; {suggestion(name, sorted(packs))}, or pass a Pack')
    return packs[name]


def _rules(pack: Pack, suite: Suite | None) -> Any:
    if suite is None:
        return pack.suite_model(pack=pack.name)
    if suite.config.pack != pack.name:
        raise ValueError(f'the suite "{suite.name}" uses the pack "{suite.config.pack}", not "{pack.name}"')
    return suite.config


def _case_source(case: object) -> str:
    return f"case {_key(case, 'id')}".rstrip()


def _key(case: object, key: str) -> str:
    """Return the id or pack_id of a case; empty if it is not a string."""
    value = case.get(key) if isinstance(case, dict) else getattr(case, key, None)
    return value if isinstance(value, str) else ""
