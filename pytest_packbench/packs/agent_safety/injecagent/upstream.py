"""Reading InjecAgent's published JSON files, row by row, with the problem of each bad row."""

from __future__ import annotations

import ast
import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.files import LIMITS, read_regular
from pytest_packbench.model.case import Expected, ListOf, StrictModel, misfit
from pytest_packbench.model.errors import format_value, validation_problems
from pytest_packbench.packs.agent_safety.injecagent.react import SENDING_TOOL
from pytest_packbench.packs.agent_safety.model import as_word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_LIMIT = LIMITS["import"]
Kind = Literal["dh", "ds"]
Setting = Literal["base", "enhanced"]
KINDS: tuple[Kind, ...] = ("dh", "ds")
SETTINGS: tuple[Setting, ...] = ("base", "enhanced")
TOOLS_FILE = "tools.json"
COMMIT = "f19c9f2"
PLACEHOLDER = "<Attacker Instruction>"
MAX_LENGTH = 200_000
MAX_DEPTH = 50
_PUBLISHED = {
    "0a8186468d21389af432e8c7b399ae42264d1b93a07b65c7a489468508604305": COMMIT,
    "4daab35c62a3845e8b9400f4dca58b9c9f37e57cd33b2337552557fbb26282e9": COMMIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InjecAgentFile:
    """One file of test cases.

    Attributes:
        name: the name of the file, without a folder.
        kind: `dh` (direct harm) or `ds` (data stealing).
        setting: `base`, or `enhanced` where a prefix urges the agent.
        sha256: hash of its bytes.
        rows: its rows, not yet validated; empty where it can't be read.
        problem: why it can't be read; empty otherwise.
    """

    name: str
    kind: Kind
    setting: Setting
    sha256: str
    rows: tuple[Any, ...] = ()
    problem: str = ""

    @property
    def version(self) -> str:
        """The commit that published the file, else the beginning of its hash."""
        return _PUBLISHED.get(self.sha256, f"sha256:{self.sha256[:12]}")


_Filled = Annotated[str, StringConstraints(pattern=r"\S"), Expected("text")]


class LiteralError(ValueError):
    """A text is not a literal of JSON types: the reason in one line."""


def parse_literal(text: str) -> Any:
    """Parse a Python literal: a dict, list, string, number, True, False or None; a tuple becomes a list.

    Raises:
        LiteralError: it is anything else, longer than 200,000 characters, or nested more than 50 levels deep.
    """
    if len(text) > MAX_LENGTH:
        raise LiteralError(f"got {len(text)} characters; expected at most {MAX_LENGTH}")
    with warnings.catch_warnings():
        # Python warns about unknown escapes and leaves them as written
        warnings.simplefilter("ignore")
        try:
            # a parser of literals, which runs nothing
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise LiteralError(f"got {format_value(text)}; expected a Python dict, list, string or number") from None
    return _plain(value, MAX_DEPTH)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, dict | list | tuple) and not depth:
        raise LiteralError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value]
    if not isinstance(value, str | bool | int | float | None) or value in {float("inf"), float("-inf")}:
        raise LiteralError(
            f"got a {type(value).__name__}; expected JSON types, numbers that are finite, and keys of text"
        )
    return value


class Material(StrictModel):
    """The texts of a case: what the agent reads, and what the attacker wants.

    Attributes:
        user_instruction: the user's request.
        user_tool: the tool that the agent called for it.
        tool_parameters: the arguments of that call, as text.
        thought: why the agent called it.
        tool_response: the output of the tool, as text, with the attack in it.
        attacker_instruction: the attack.
        attacker_tools: the tools that the attacker wants called, in order: one that does the harm, or one that reads
            data and `GmailSendEmail`, which sends them away.
        simulated_response: the output of the first of two attacker's tools; a built-in one by default.
        tools: descriptions of the tools, each an object with its `name`; names only by default.
    """

    user_instruction: _Filled
    user_tool: _Filled
    tool_parameters: _Filled
    thought: _Filled
    tool_response: _Filled
    attacker_instruction: _Filled
    attacker_tools: Annotated[ListOf[_Filled], Field(min_length=1, max_length=2), Expected("one or two names")]
    simulated_response: _Filled | None = None
    tools: ListOf[dict[str, Any]] = ()

    @model_validator(mode="after")
    def _brings_the_attack(self) -> Self:
        if self.attacker_instruction not in self.tool_response:
            raise misfit("tool_response does not contain attacker_instruction", "a response with the attack in it")
        if self.tools and {tool.get("name") for tool in self.tools} != {self.user_tool, *self.attacker_tools}:
            raise misfit("tools has other names", "the user's and the attacker's tools, each once")
        return self

    @property
    def described_tools(self) -> list[dict[str, Any]]:
        """The descriptions of the tools for the agent, the user's tool first."""
        known = {tool["name"]: tool for tool in self.tools}
        names = dict.fromkeys((self.user_tool, *self.attacker_tools))
        return [known.get(name, {"name": name}) for name in names]


class RowError(ValueError):
    """A row can't be used: the reason in one line."""


def _literal(text: str) -> str:
    try:
        parse_literal(text)
    except LiteralError as error:
        wrong, _, expected = str(error).partition("; expected ")
        raise misfit(wrong, expected or f"at most {MAX_DEPTH} levels") from None
    return text


class _Row(Material):
    """A row as published, under the names of its columns; others are ignored."""

    model_config = ConfigDict(extra="ignore", alias_generator=lambda name: name.replace("_", " ").title())

    tool_parameters: Annotated[_Filled, AfterValidator(_literal)]
    tool_response_template: Annotated[_Filled, AfterValidator(_literal)]
    attack_type: Annotated[_Filled, AfterValidator(as_word), Field(min_length=1), Expected("a word")]

    @model_validator(mode="after")
    def _is_as_published(self) -> Self:
        if PLACEHOLDER not in self.tool_response_template:
            raise misfit(f"the template of the response has no {PLACEHOLDER}", "one")
        if not isinstance(parse_literal(self.tool_parameters), dict):
            raise misfit(f"got the parameters {format_value(self.tool_parameters)}", "a dict")
        return self


def files_in(folder: Path) -> Iterator[InjecAgentFile]:
    """Read the files of test cases in a folder, or in its folder `data`, as in a copy of the repository.

    Raises:
        ValueError: there are no such files.
        OSError: one can't be read.
    """
    data = folder if any(folder.glob("test_cases_*.json")) else folder / "data"
    named = [(kind, setting, data / f"test_cases_{kind}_{setting}.json") for setting in SETTINGS for kind in KINDS]
    files = [(kind, setting, path) for kind, setting, path in named if path.is_file()]
    if not files:
        raise ValueError(f"{folder}: expected test_cases_dh_base.json, test_cases_ds_base.json or their enhanced forms")
    for kind, setting, path in files:
        yield _file(path, kind, setting)


def tools_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Read InjecAgent's descriptions of tools, by name; empty without the file.

    Raises:
        ValueError: the file is not a list of toolkits.
    """
    path = next((path for path in (folder / TOOLS_FILE, folder / "data" / TOOLS_FILE) if path.is_file()), None)
    if path is None:
        return {}
    try:
        kits = parse_json(read_regular(path, _LIMIT), _LIMIT)
        tools = [(kit["toolkit"] + tool["name"], tool) for kit in kits for tool in kit["tools"]]
        return {name: {**tool, "name": name} for name, tool in tools}
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ValueError(f"{path}: expected a list of objects with toolkit and tools") from None


def row_of(data: object, kind: Kind, tools: dict[str, dict[str, Any]]) -> tuple[Material, str]:
    """Parse one row: its texts, and the kind of attack as a word, such as `physical_harm`.

    The descriptions of its tools are added where `tools` has all of them.

    Raises:
        RowError: the row can't be used.
    """
    try:
        row = _Row.model_validate(data)
        names = dict.fromkeys((row.user_tool, *row.attacker_tools))
        known = [tools[name] for name in names] if all(name in tools for name in names) else []
        texts = row.model_dump(include=set(Material.model_fields) - {"tools"})
        material = Material.model_validate({**texts, "tools": known})
    except ValidationError as error:
        raise RowError(str(validation_problems(error)[0])) from None
    steps = len(material.attacker_tools)
    if steps != KINDS.index(kind) + 1 or (kind == "ds" and material.attacker_tools[-1] != SENDING_TOOL):
        expected = "one tool" if kind == "dh" else f"a tool that reads data, then {SENDING_TOOL}"
        raise RowError(f"/Attacker Tools: got {format_value(list(material.attacker_tools))}; expected {expected}")
    return material, row.attack_type


def _file(path: Path, kind: Kind, setting: Setting) -> InjecAgentFile:
    raw = read_regular(path, _LIMIT)
    rows: Any = []
    try:
        rows = parse_json(raw, _LIMIT)
        problem = "" if isinstance(rows, list) and rows else f"got {format_value(rows)}, expected a list of test cases"
    except JsonError as error:
        problem = str(error)
    return InjecAgentFile(
        name=path.name,
        kind=kind,
        setting=setting,
        sha256=hashlib.sha256(raw).hexdigest(),
        rows=() if problem else tuple(rows),
        problem=problem,
    )
