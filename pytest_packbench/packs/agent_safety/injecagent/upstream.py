"""Reading InjecAgent's published JSON files, row by row, with the problem of each bad row."""

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

from pytest_packbench.cases.load import JsonError, check_size, parse_json
from pytest_packbench.files import LIMITS, NUMBERS, NumberError, position_of, read_regular
from pytest_packbench.model.case import ListOf, StrictModel, Text
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
class InjecAgentFile:
    """One file of test cases.

    Attributes:
        name: the name of the file, without a folder.
        kind: `dh` (direct harm) or `ds` (data stealing).
        setting: `base`, or `enhanced` where a prefix urges the agent.
        sha256: hash of its bytes.
        rows: its rows, not yet validated; empty where it can't be read.
        location: where the problem is: `FILE` or `FILE:LINE`; empty otherwise.
        problem: why it can't be read; empty otherwise.
    """

    name: str
    kind: Kind
    setting: Setting
    sha256: str
    rows: tuple[Any, ...] = ()
    location: str = ""
    problem: str = ""

    @property
    def version(self) -> str:
        """The commit that published the file, else the beginning of its hash."""
        return _PUBLISHED.get(self.sha256, f"sha256:{self.sha256[:12]}")


class RowError(ValueError):
    """A row can't be used: the reason in one line."""


class _Object(dict[str, Any]):
    duplicate_key: str | None = None


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
    if not isinstance(data, _Object):
        raise RowError(f"got {format_value(data)}, expected an object")
    if data.duplicate_key is not None:
        raise RowError(f'duplicate key "{data.duplicate_key}"; remove one')
    texts = {name: _text(data, name) for name in _TEXTS}
    attackers = _attackers(data, kind)
    parameters = _literal(texts, "Tool Parameters")
    if not isinstance(parameters, dict):
        raise RowError(f"Tool Parameters: got {format_value(parameters)}, expected a dict")
    _literal(texts, "Tool Response Template")
    if PLACEHOLDER not in texts["Tool Response Template"]:
        raise RowError(f"Tool Response Template: does not contain {PLACEHOLDER}")
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


def _file(path: Path, kind: Kind, setting: Setting) -> InjecAgentFile:
    raw = read_regular(path, _LIMIT)
    sha256 = hashlib.sha256(raw).hexdigest()
    location, problem = path.name, ""
    rows: Any = []
    try:
        check_size(raw, _LIMIT)
        rows = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object, **NUMBERS)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        location, problem = f"{path.name}:{line}", "not UTF-8; save it as UTF-8"
    except json.JSONDecodeError as error:
        location, problem = f"{path.name}:{error.lineno}", f"not JSON: {error.msg}; download the file again"
    except JsonError as error:
        problem = str(error)
    except NumberError as error:
        location, problem = f"{path.name}:{position_of(error.token, raw)[0]}", f"{error}; download the file again"
    except RecursionError:
        problem = "not JSON that can be read: nested too deeply; download the file again"
    if not problem and (not isinstance(rows, list) or not rows):
        rows, problem = [], f"got {format_value(rows)}, expected a list of test cases"
    return InjecAgentFile(
        name=path.name, kind=kind, setting=setting, sha256=sha256, rows=tuple(rows), location=location, problem=problem
    )


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    parsed = _Object(pairs)
    if len(parsed) != len(pairs):
        names = [name for name, _ in pairs]
        parsed.duplicate_key = next(name for name in names if names.count(name) > 1)
    # also that of an object further inside
    inside = [value for _, value in pairs]
    while inside and parsed.duplicate_key is None:
        value = inside.pop()
        if isinstance(value, list):
            inside += value
        parsed.duplicate_key = getattr(value, "duplicate_key", None)
    return parsed


def _text(data: _Object, name: str) -> str:
    if name not in data:
        raise RowError(f'the key "{name}" is missing')
    value = data[name]
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"{name}: got {format_value(value)}, expected text")
    return value


def _attackers(data: _Object, kind: Kind) -> tuple[str, ...]:
    tools = data.get("Attacker Tools")
    if not isinstance(tools, list) or not all(isinstance(tool, str) and tool for tool in tools):
        raise RowError(f"Attacker Tools: got {format_value(tools)}, expected a list of names")
    if len(tools) != _STEPS[kind] or (kind == "ds" and tools[-1] != SENDING_TOOL):
        expected = "one tool" if kind == "dh" else f"a tool that reads data, then {SENDING_TOOL}"
        raise RowError(f"Attacker Tools: got {format_value(tools)}, expected {expected}")
    return tuple(tools)


def _literal(texts: dict[str, str], name: str) -> Any:
    try:
        return parse_literal(texts[name])
    except LiteralError as error:
        raise RowError(f"{name}: {error}") from None


MAX_LENGTH = 200_000
MAX_DEPTH = 50
# possessive repetitions keep the scan linear; only these tokens reach Python's parser
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
    """A text is not a literal of JSON types: the reason in one line."""


def parse_literal(text: str) -> Any:
    """Parse a Python literal: a dict, list, string, number, True, False or None; a tuple becomes a list.

    Raises:
        LiteralError: it is anything else, longer than 200,000 characters, or nested more than 50 levels deep.
    """
    _check_tokens(text)
    with warnings.catch_warnings():
        # Python warns about unknown escapes and leaves them as written
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise LiteralError(f"got {format_value(text)}, expected a Python dict, list, string or number") from None
    return _plain(value)


def _check_tokens(text: str) -> None:
    """Raise `LiteralError` unless a text has only tokens of plain values, and a usual depth and length."""
    if len(text) > MAX_LENGTH:
        raise LiteralError(f"got {len(text)} characters, expected at most {MAX_LENGTH}")
    position = depth = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise LiteralError(
                f"column {position + 1}: got {format_value(text[position : position + 20])}, expected a value"
            )
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
        if depth > MAX_DEPTH:
            raise LiteralError(f"column {position + 1}: nested more than {MAX_DEPTH} levels deep")
        position = token.end()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise LiteralError(f"got the key {format_value(odd[0])}, expected a string")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise LiteralError("a number is out of range")
    if isinstance(value, str | bool | int | float | None):
        return value
    raise LiteralError(f"got a {type(value).__name__}, expected JSON types")


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
            raise _wrong("tool_response does not contain attacker_instruction", "a response with the attack in it")
        if self.tools and {tool.get("name") for tool in self.tools} != {self.user_tool, *self.attacker_tools}:
            raise _wrong("tools has other names", "the user's and the attacker's tools, each once")
        return self

    @property
    def described_tools(self) -> list[dict[str, Any]]:
        """The descriptions of the tools for the agent, the user's tool first."""
        known = {tool["name"]: tool for tool in self.tools}
        names = dict.fromkeys((self.user_tool, *self.attacker_tools))
        return [known.get(name, {"name": name}) for name in names]


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError("material", "material", {"wrong": wrong, "expected": expected})
