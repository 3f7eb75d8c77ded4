"""Our own object in a record, under the key `packbench`: the types and ranges of what stands in it.

A foreign writer may add keys; what is of ours has to be what a report can count and compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pytest_packbench.model.strict_json import U32_MAX, shown

if TYPE_CHECKING:
    from collections.abc import Mapping


OWN_VERSION = 1


def _version(found: int) -> int:
    if found != OWN_VERSION:
        raise ValueError(str(OWN_VERSION))
    return found


def _judge(found: Any) -> Any:
    # an object also says what the judge found
    name = found.get("name") if isinstance(found, dict) else found
    if found is not None and not isinstance(name, str):
        raise ValueError("a judge's name, or an object with its name")
    return found


_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class OwnTerm(BaseModel):
    """One term of a score, as it is written."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: str
    effect: Literal["add", "zero", "clamp", "note"]
    value: Annotated[float, Field(ge=-1, le=1)]
    detail: str


class Own(BaseModel):
    """The object; `packbench schema record` says what each key means."""

    model_config = ConfigDict(strict=True, frozen=True)

    version: Annotated[int, AfterValidator(_version)]
    score: _Share | None
    threshold: _Share | None
    verdict: Literal["passed", "failed", "error", "vacuous", "known_hole", "not_run"]
    terms: list[OwnTerm]
    match_level: str | None = None
    match_depth: _Count | None = None
    answer: str | None = None
    case_id: str = ""
    case_type: str = ""
    difficulty: str = ""
    tags: list[str] = []
    facets: dict[str, str] = {}
    file: str = ""
    mode: Literal["fixture", "live", "record"] = "fixture"
    origin: Literal["authored", "recorded"] | None = None
    stale: bool = False
    judge: Annotated[Any, AfterValidator(_judge)] = None
    trial: Annotated[int, Field(ge=0, le=U32_MAX)] = 0
    cached: _Count = 0
    calls: _Count = 0
    target: str = ""
    pack: str = ""
    bundled: bool = False
    utility: bool = False
    valid: bool = False
    case_sha256: _Digest | None = None
    cassette_sha256: _Digest | None = None
    suite_sha256: _Digest | None = None
    versions: dict[str, str] = {}


def own_problem(own: Mapping[str, Any]) -> str | None:
    """Tell what is wrong with a record's own object.

    Args:
        own: what stands under `packbench`.

    Returns:
        One line that begins with the key, such as `packbench.trial: expected a valid integer, got 'x'`; None where
        every key of ours is of its type and range.
    """
    try:
        Own.model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "packbench" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        if first["type"] == "missing":
            return f"{place}: is missing"
        expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        expected = expected.replace("String should match", "a string that matches")
        return f"{place}: expected {expected}, got {shown(repr(first['input']))}"
    return None
