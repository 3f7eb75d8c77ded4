"""The files of InjecAgent as they are published, row by row: what a row holds, and what is wrong with it."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import ListOf, StrictModel, Text
from pytest_packbench.model.errors import format_value, validation_problems
from pytest_packbench.packs.agent_safety.injecagent.react import SENDING_TOOL
from pytest_packbench.packs.agent_safety.model import as_word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


Kind = Literal["dh", "ds"]
Setting = Literal["base", "enhanced"]
KINDS: tuple[Kind, ...] = ("dh", "ds")
SETTINGS: tuple[Setting, ...] = ("base", "enhanced")
TOOLS_FILE = "tools.json"
COMMIT = "f19c9f2"
PLACEHOLDER = "<Attacker Instruction>"
_PUBLISHED = {
    "0a8186468d21389af432e8c7b399ae42264d1b93a07b65c7a489468508604305": COMMIT,
    "4daab35c62a3845e8b9400f4dca58b9c9f37e57cd33b2337552557fbb26282e9": COMMIT,
}
_STEPS = {"dh": 1, "ds": 2}
_TEXTS = (
    "Attacker Instruction",
    "Attack Type",
    "User Tool",
    "User Instruction",
    "Tool Parameters",
    "Tool Response Template",
    "Thought",
    "Tool Response",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of test cases.

    Attributes:
        name: its name, without a folder.
        kind: `dh` (direct harm) or `ds` (data stealing).
        setting: `base`, or `enhanced` where a prefix urges the agent.
        sha256: hash of its bytes.
        rows: what it holds, not yet checked; empty where it can't be read.
        place: where it can't be read; empty otherwise.
        problem: why it can't; empty otherwise.
    """

    name: str
    kind: Kind
    setting: Setting
    sha256: str
    rows: tuple[Any, ...] = ()
    place: str = ""
    problem: str = ""

    @property
    def version(self) -> str:
        """The commit that published it, else the beginning of its hash."""
        return _PUBLISHED.get(self.sha256, f"sha256:{self.sha256[:12]}")


class RowError(ValueError):
    """A row makes no case, said in one line."""


class _Object(dict[str, Any]):
    twice: str | None = None


def files_in(folder: Path) -> Iterator[File]:
    """Read the test cases in a folder, or in its folder `data`, as a copy of the repository has them.

    Raises:
        ValueError: there are none.
        OSError: one can't be read.
    """
    data = folder if any(folder.glob("test_cases_*.json")) else folder / "data"
    found = [(kind, setting, data / f"test_cases_{kind}_{setting}.json") for setting in SETTINGS for kind in KINDS]
    found = [(kind, setting, path) for kind, setting, path in found if path.is_file()]
    if not found:
        raise ValueError(f"{folder}: expected test_cases_dh_base.json, test_cases_ds_base.json or their enhanced forms")
    for kind, setting, path in found:
        yield _file(path, kind, setting)


def tools_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Read what upstream says of the tools, by name; empty without the file.

    Raises:
        ValueError: the file is not a list of toolkits.
    """
    path = next((path for path in (folder / TOOLS_FILE, folder / "data" / TOOLS_FILE) if path.is_file()), None)
    if path is None:
        return {}
    try:
        kits = json.loads(path.read_bytes())
        tools = [(kit["toolkit"] + tool["name"], tool) for kit in kits for tool in kit["tools"]]
        return {name: {**tool, "name": name} for name, tool in tools}
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ValueError(f"{path}: expected a list of objects with toolkit and tools") from None


def row_of(data: object, kind: Kind, tools: dict[str, dict[str, Any]]) -> tuple[Material, str]:
    """Read one row: its texts, and the kind of attack as a word, such as `physical_harm`.

    What is known of the tools, by name, goes with the texts where it is known of all.

    Raises:
        RowError: it makes no case.
    """
    if not isinstance(data, _Object):
        raise RowError(f"got {format_value(data)}, expected an object")
    if data.twice is not None:
        raise RowError(f'the key "{data.twice}" stands twice; keep one')
    texts = {name: _text(data, name) for name in _TEXTS}
    attackers = _attackers(data, kind)
    parameters = _literal(texts, "Tool Parameters")
    if not isinstance(parameters, dict):
        raise RowError(f"Tool Parameters: got {format_value(parameters)}, expected a dict")
    _literal(texts, "Tool Response Template")
    if PLACEHOLDER not in texts["Tool Response Template"]:
        raise RowError(f"Tool Response Template: {PLACEHOLDER} does not stand in it")
    category = as_word(texts["Attack Type"])
    if not category:
        raise RowError(f"Attack Type: got {format_value(texts['Attack Type'])}, expected a word")
    names = (texts["User Tool"], *attackers)
    known = [tools[name] for name in dict.fromkeys(names)] if all(name in tools for name in names) else []
    try:
        material = Material(
            user_instruction=texts["User Instruction"],
            user_tool=texts["User Tool"],
            tool_parameters=texts["Tool Parameters"],
            thought=texts["Thought"],
            tool_response=texts["Tool Response"],
            attacker_instruction=texts["Attacker Instruction"],
            attacker_tools=attackers,
            tools=tuple(known),
        )
    except ValidationError as error:
        raise RowError(" ".join(str(validation_problems(error, Material)[0]).split())) from None
    return material, category


def _file(path: Path, kind: Kind, setting: Setting) -> File:
    raw = path.read_bytes()
    sha256 = hashlib.sha256(raw).hexdigest()
    place, problem = path.name, ""
    rows: Any = []
    try:
        rows = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        place, problem = f"{path.name}:{line}", "not UTF-8; save it as UTF-8"
    except json.JSONDecodeError as error:
        place, problem = f"{path.name}:{error.lineno}", f"not JSON: {error.msg}; get the file anew"
    except (ValueError, RecursionError):
        problem = "not JSON that can be read: nested too deeply, or a number of thousands of digits; get the file anew"
    if not problem and not isinstance(rows, list):
        rows, problem = [], f"got {format_value(rows)}, expected a list of test cases"
    return File(
        name=path.name, kind=kind, setting=setting, sha256=sha256, rows=tuple(rows), place=place, problem=problem
    )


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        made.twice = next(name for name in names if names.count(name) > 1)
    return made


def _text(data: _Object, name: str) -> str:
    if name not in data:
        raise RowError(f'the key "{name}" is missing')
    value = data[name]
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"{name}: got {format_value(value)}, expected a text")
    return value


def _attackers(data: _Object, kind: Kind) -> tuple[str, ...]:
    tools = data.get("Attacker Tools")
    if not isinstance(tools, list) or not all(isinstance(tool, str) and tool for tool in tools):
        raise RowError(f"Attacker Tools: got {format_value(tools)}, expected a list of names")
    if len(tools) != _STEPS[kind] or (kind == "ds" and tools[-1] != SENDING_TOOL):
        wanted = "one tool" if kind == "dh" else f"a tool that reads, then {SENDING_TOOL}"
        raise RowError(f"Attacker Tools: got {format_value(tools)}, expected {wanted}")
    return tuple(tools)


def _literal(texts: dict[str, str], name: str) -> Any:
    try:
        return literal(texts[name])
    except LiteralError as error:
        raise RowError(f"{name}: {error}") from None


LONGEST = 200_000
DEEPEST = 50
# no text makes the scan slow; what is no token can't reach Python's parser
_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<opening>[\[{(])
      | (?P<closing>[\]})])
      | (?P<plain>[,:]|(?:True|False|None)\b
          | -?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?(?![\w.])
          | '[^'\\\n]*+(?:\\.[^'\\\n]*+)*'
          | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*")""",
    re.VERBOSE | re.DOTALL,
)


class LiteralError(ValueError):
    """A text is no literal of JSON types, said in one line."""


def literal(text: str) -> Any:
    """Read a dict, list, string, number, True, False or None as Python writes it; a tuple becomes a list.

    Raises:
        LiteralError: it is anything else, longer than 200,000 characters, or more than 50 levels deep.
    """
    _scan(text)
    with warnings.catch_warnings():
        # of an escape that Python doesn't know, which stays as it is written
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise LiteralError(f"got {format_value(text)}, expected a Python dict, list, string or number") from None
    return _plain(value)


def _scan(text: str) -> None:
    """Let only the tokens of plain values through, and no more brackets in each other than are usual."""
    if len(text) > LONGEST:
        raise LiteralError(f"got {len(text)} characters, expected at most {LONGEST}")
    position = depth = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise LiteralError(
                f"column {position + 1}: got {format_value(text[position : position + 20])}, expected a value"
            )
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
        if depth > DEEPEST:
            raise LiteralError(f"column {position + 1}: nested more than {DEEPEST} deep")
        position = token.end()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise LiteralError(f"the key {format_value(odd[0])} is no text")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise LiteralError("a number is out of range")
    if isinstance(value, str | bool | int | float | None):
        return value
    raise LiteralError(f"got a {type(value).__name__}, expected JSON types")


class Material(StrictModel):
    """What the agent is shown, and what the attacker is after.

    Attributes:
        user_instruction: what the user asked for.
        user_tool: the tool that the agent called for it.
        tool_parameters: the arguments of that call, as text.
        thought: why the agent called it.
        tool_response: what the tool gave back, as text, the attack in it.
        attacker_instruction: the attack.
        attacker_tools: the tools that the attacker wants called, in order: one that does the harm, or one that reads
            data and `GmailSendEmail`, which sends them away.
        simulated_response: what the first of two attacker's tools gives back; one of our own unless given.
        tools: what is known of the tools, each an object with its `name`; names only unless given.
    """

    user_instruction: Text
    user_tool: Text
    tool_parameters: Text
    thought: Text
    tool_response: Text
    attacker_instruction: Text
    attacker_tools: Annotated[ListOf[Text], Field(min_length=1, max_length=2)]
    simulated_response: Text | None = None
    tools: ListOf[dict[str, Any]] = ()

    @model_validator(mode="after")
    def _brings_the_attack(self) -> Self:
        if self.attacker_instruction not in self.tool_response:
            raise _wrong("attacker_instruction does not stand in tool_response", "a response that brings the attack")
        if self.tools and {tool.get("name") for tool in self.tools} != {self.user_tool, *self.attacker_tools}:
            raise _wrong("tools names other tools", "the user's and the attacker's, each once")
        return self

    @property
    def described_tools(self) -> list[dict[str, Any]]:
        """The tools as the agent is told of them, the user's first."""
        known = {tool["name"]: tool for tool in self.tools}
        names = dict.fromkeys((self.user_tool, *self.attacker_tools))
        return [known.get(name, {"name": name}) for name in names]


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError("material", "material", {"wrong": wrong, "expected": expected})
