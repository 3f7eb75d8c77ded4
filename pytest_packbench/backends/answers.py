"""Structured answers: prepare a JSON Schema for a provider, and read what the provider sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_packbench.model.strict_json import NUMBERS, U64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.model.request import ModelRequest, ToolCall

T = TypeVar("T")
WRAPPED = "value"
"""The property that contains the answer where the schema does not describe an object."""
_EXCERPT = 80
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"
_STRICT_KEYWORDS = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"),
        *("required", "title", "type", "format", "pattern", "multipleOf", "maximum", "minimum", "maxItems", "minItems"),
        *("exclusiveMaximum", "exclusiveMinimum"),
    }
)


class UnreadableResponse(ValueError):  # noqa: N818 - becomes a BackendError
    """A response that is none of the provider's API, so that it contains no answer; the message says why."""


class UnreadableAnswer(UnreadableResponse):
    """An answer of the model that does not have the requested form; the message says why.

    Attributes:
        text: what the model said.
        calls: the tool calls in it that can be read.
    """

    def __init__(self, message: str, text: str = "", calls: tuple[ToolCall, ...] = ()) -> None:
        self.text = text
        self.calls = calls
        super().__init__(message)


def parse_json_text(text: str) -> Any:
    """Parse what a model wrote as JSON, or the response that contains it.

    Raises:
        UnreadableAnswer: it is no JSON, or JSON that can't be written again (1e400, NaN, nested too deeply).
    """
    try:
        return json.loads(text, **NUMBERS)
    except (ValueError, RecursionError) as error:
        line = " ".join(text.split())
        excerpt = f"{line[:_EXCERPT]}..." if len(line) > _EXCERPT else line
        raise UnreadableAnswer(f"expected JSON ({error}); got {excerpt!r}", text) from None


def is_whole_answer(text: str, request: ModelRequest) -> bool:
    """Whether an answer that was cut off is complete: the JSON object or array that was requested.

    A number or a word may continue, and so may the arguments of tools and any other text.
    """
    if request.output_schema is None or request.tools:
        return False
    try:
        return isinstance(parse_json_text(text), dict | list)
    except UnreadableAnswer:
        return False


def member(value: Any, name: str, kind: type[T]) -> T:
    """Return the member of an object in a response; an empty value of its type where it is null or absent.

    Raises:
        UnreadableResponse: the value is no object, or the member has another type.
    """
    if not isinstance(value, dict):
        raise UnreadableResponse(f"expected an object with {name!r}, got {type(value).__name__}")
    item = value.get(name)
    if item is None:
        return kind()
    if not isinstance(item, kind):
        raise UnreadableResponse(f"expected {name!r} to be {kind.__name__}, got {type(item).__name__}")
    return item


def arguments(value: Any, tool: str) -> dict[str, Any]:
    """Parse the arguments of a tool call: an object, or its JSON text; an empty text or null is no arguments.

    Raises:
        UnreadableAnswer: they are neither, or the tool has no name.
    """
    if not tool:
        raise UnreadableAnswer("expected the name of a tool")
    parsed = parse_json_text(value or "null") if isinstance(value, str) else value
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        wrong = f"expected an object as the arguments of the tool {tool!r}, got {type(parsed).__name__}"
        raise UnreadableAnswer(wrong, value if isinstance(value, str) else json.dumps(value))
    return parsed


def tool_calls(calls: Iterable[Any], read: Callable[[Any], ToolCall]) -> tuple[ToolCall, ...]:
    """Return the tool calls of an answer, each as `read` returns it.

    Raises:
        UnreadableAnswer: one of them can't be read; it has the others.
        UnreadableResponse: none of them is one of the provider's API.
    """
    found: list[ToolCall] = []
    problem: ValueError | None = None
    for call in calls:
        try:
            found.append(read(call))
        except UnreadableResponse as error:
            problem = problem or error
    if problem is None:
        return tuple(found)
    raise UnreadableAnswer(str(problem), getattr(problem, "text", ""), tuple(found)) if found else problem


def count(value: object) -> int | None:
    """Return a token count; None where the value is none, or too large for a record."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX else None


def counts_in(value: Any) -> dict[str, int | None]:
    """Return the tokens that a provider counted in a response or an event of one, as keywords of `Usage`.

    OpenAI's input tokens include cached ones, and its output tokens include reasoning.
    """
    if not isinstance(value, dict):
        return {}
    inner = value.get("response") or value.get("message")
    if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
        counts = _counts_of_usage(inner["usage"])
        # a provisional count
        return {**counts, "tokens_output": None} if value.get("type") == "message_start" else counts
    if isinstance(usage := value.get("usage"), dict):
        return _counts_of_usage(usage)
    if isinstance(usage := value.get("usageMetadata"), dict):
        return _counts_of_metadata(usage)
    if "prompt_eval_count" in value or "eval_count" in value:
        given, written = count(value.get("prompt_eval_count")), count(value.get("eval_count"))
        return {"tokens_input": given, "tokens_output": written}
    return {}


def _counts_of_usage(usage: dict[str, Any]) -> dict[str, int | None]:
    """Return the counts of OpenAI, or of Anthropic, whose input count leaves out tokens of its cache."""
    if not usage.keys() & {"prompt_tokens", "completion_tokens"}:
        inputs = [number for name in _INPUTS if (number := count(usage.get(name))) is not None]
        return {
            "tokens_input": count(sum(inputs)) if inputs else None,
            "tokens_output": count(usage.get("output_tokens")),
        }
    given, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    total = count(usage.get("total_tokens"))
    if written is None and given is not None and total is not None:
        written = count(total - given)
    return {"tokens_input": given, "tokens_output": written}


def _counts_of_metadata(usage: dict[str, Any]) -> dict[str, int | None]:
    """Return the counts of Gemini, whose total contains reasoning, which its count of the answer leaves out."""
    given, written = count(usage.get("promptTokenCount")), count(usage.get("candidatesTokenCount"))
    if given is not None:
        given += count(usage.get("toolUsePromptTokenCount")) or 0
        if (total := count(usage.get("totalTokenCount"))) is not None:
            written = count(total - given)
    return {"tokens_input": given, "tokens_output": written}


def as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that describes an object, as tool arguments and strict answers require.

    The schema of anything else becomes that of the property `WRAPPED`.
    """
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return outer | {"$defs": schema["$defs"]} if "$defs" in schema else outer


def unwrap(answer: Any, schema: dict[str, Any]) -> Any:
    """Return the answer to `schema` from an answer to `as_object(schema)`."""
    if schema.get("type") == "object" or not isinstance(answer, dict) or answer.keys() != {WRAPPED}:
        return answer
    return answer[WRAPPED]


def fits_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts a schema: every object closed, all its properties required."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT_KEYWORDS:
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != properties.keys():
            return False
    children = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    if "items" in schema:
        children.append(schema["items"])
    return all(fits_strict(child) for child in children)
