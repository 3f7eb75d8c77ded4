"""The two functions for scripts and notebooks: read a suite, score one result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pytest_packbench.cases.load import check_case, read_suite
from pytest_packbench.model.errors import CaseError, Problem, suggestion
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.registry import Packs

if TYPE_CHECKING:
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite


def load_suite(path: str | Path, *, packs: Packs | None = None) -> Suite:
    """Read a suite.

    Args:
        path: its folder, which holds `suite.yaml`.
        packs: the packs to choose from; the built-in and the installed ones by default.

    Returns:
        The suite, named after its folder; no case is read.

    Raises:
        SuiteError: one line with file, pointer, what is wrong, what was expected.
        PackError: its pack is installed and can't be loaded.
    """
    folder = Path(path).resolve()
    models = (Packs() if packs is None else packs).suite_models
    return read_suite(folder, models, source=str(folder / CONFIG_NAME))


def score(
    case: Case | dict[str, Any], result: object, *, pack: str | Pack | None = None, suite: Suite | None = None
) -> Score:
    """Score one result against one case (design 5, "Public API").

    Args:
        case: a case model, or a case as plain JSON.
        result: what the target gave, as plain JSON or as a pydantic model.
        pack: a pack, or the name of a built-in or installed one; else the suite's, else the one that the case's
            `pack_id` names. Where it is given, the case's `pack_id` may be another.
        suite: the suite whose rules apply; without one the pack's defaults.

    Returns:
        The score; with verdict `error` and `score` None where the target reports an infrastructure failure.

    Raises:
        CaseError: the case is not of the pack's schema, or its `pack_id` names no pack.
        ResultError: the pack can't read the result.
        ValueError: `pack` or the suite names a pack that isn't there, or the suite is of another pack.
    """
    chosen, pack_id = _chosen(case, pack, suite)
    rules = _rules(chosen, suite)
    chosen = chosen.for_suite(rules)
    checked = _checked(case, chosen, pack_id)
    payload: object = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
    return chosen.score(checked, chosen.read(payload), rules)


def _chosen(case: object, pack: str | Pack | None, suite: Suite | None) -> tuple[Pack, str | None]:
    """Choose the pack; with it the `pack_id` that the case has to have, None where any will do."""
    if pack is not None:
        return (_named(pack) if isinstance(pack, str) else pack), None
    if suite is not None:
        return _named(suite.config.pack), suite.config.pack
    pack_id = _key(case, "pack_id")
    packs = Packs()
    if pack_id in packs:
        return packs[pack_id], pack_id
    wrong = f'no pack is called "{pack_id}"' if pack_id else "names no pack"
    raise CaseError(_called(case), [Problem("/pack_id", wrong, f"{suggestion(pack_id, sorted(packs))}, or pass pack=")])


def _checked(case: object, pack: Pack, pack_id: str | None) -> Case:
    if isinstance(case, pack.case_model) and pack_id in {None, case.pack_id}:
        return case
    plain = case.model_dump(mode="json", by_alias=True) if isinstance(case, BaseModel) else case
    return check_case(plain, pack.case_model, source=_called(case), stem=None, pack=pack_id).case


def _named(name: str) -> Pack:
    packs = Packs()
    if name not in packs:
        raise ValueError(f'no pack is called "{name}"; {suggestion(name, sorted(packs))}, or pass a Pack')
    return packs[name]


def _rules(pack: Pack, suite: Suite | None) -> Any:
    if suite is None:
        return pack.suite_model(pack=pack.name)
    if suite.config.pack != pack.name:
        raise ValueError(f'the suite "{suite.name}" has the rules of pack "{suite.config.pack}", not of "{pack.name}"')
    return suite.config


def _called(case: object) -> str:
    return f"case {_key(case, 'id')}".rstrip()


def _key(case: object, key: str) -> str:
    """Give a case's id or pack_id; empty where it isn't a string."""
    value = case.get(key) if isinstance(case, dict) else getattr(case, key, None)
    return value if isinstance(value, str) else ""
