"""Strategies of damage to a valid file: to its bytes, or to a node of its JSON or YAML, which gets an odd value."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

import yaml
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable

    Draw = Any

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1.5, -0.0, 2**31, 2**53 + 1, 2**64, -(2**63) - 1, 10**30, 10**400),
    *(1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "true", "null", "x", "passed", "failed", "error", "2026-02-30", "../../x", "/", "::error::x"),
    *("\ud800", "a\udfffb", "\x00", "a\nb", "\x1b[31m", "\u202egnp", "\u2028", "\ufeff", "e\u0301", "x" * 5_000),
    *([], {}, [None], [[]], [1, "1"], {"": {}}, {"$ref": "#"}, {"\ud800": 1}, {"a\nb": 1}, {"k" * 3_000: 0}),
)
KEYS = ("extra", "", "\ud800", "Id", "k" * 2_000, "__class__", "a\nb", "\x1b[2J")
BYTES = (
    *(b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\n", b"\x1b[31m", b"\xe2\x80\xa8"),
    *(b"\\ud800", b"\\u0000", b"\\", b'"', b"'", b",", b":", b"{", b"}", b"[", b"]", b"NaN", b"Infinity", b"-"),
    *(b"1e999", b"-0", b"00", b"0x1", b"1_0", b"null", b"true", b"//", b"#", b"&a ", b"*a", b"<<", b"---\n", b"\t"),
    *(b"9" * 5_000, b"[" * 20_000, b'{"a":' * 10_000, b"!!python/object:x"),
)
ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp037")
WHOLE = (b"", b" ", b"\n", b"\x00" * 40, b"null", b"[]", b"{}", b'""', b"[" * 20_000, b'{"a":' * 10_000)
TWICE = "\ue000twice\ue000"
"""Before a key that is written a second time."""
MOST_BRACKETS = 500
JSON_FORMS = frozenset({"json", "jsonl"})


def paths(value: Any, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the place of each node of a JSON value, the whole first."""
    children: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    return [prefix, *(path for key, inner in children for path in paths(inner, (*prefix, key)))]


@st.composite
def other_values(draw: Draw, value: Any) -> Any:
    """Draw a JSON value that differs in one node."""
    value = copy.deepcopy(value)
    *parents, last = draw(st.sampled_from(paths(value)[1:] or [()])) or [None]
    parent = value
    for step in parents:
        parent = parent[step]
    if last is None:
        return draw(st.sampled_from(ODD))
    node, kind = parent[last], draw(st.sampled_from("ooooodnktl" if isinstance(parent, dict) else "ooodl"))
    if kind == "o":
        parent[last] = draw(st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=8))
    elif kind == "d":
        del parent[last]
    elif kind == "n":
        parent[draw(st.sampled_from(KEYS))] = node
    elif kind == "k":
        parent[draw(st.sampled_from((*KEYS, str(last).upper(), f"{last}s")))] = parent.pop(last)
    elif kind == "t":
        parent[f"{TWICE}{last}"] = draw(st.sampled_from((node, *ODD)))
    else:
        for _ in range(draw(st.sampled_from((1, 1, 50, 99, 101, 400)))):
            parent[last] = [parent[last]]
    return value


def written(value: Any) -> bytes:
    """Write JSON, with `NaN`, lone surrogates and keys that occur twice."""
    return json.dumps(value).replace(json.dumps(TWICE)[1:-1], "").encode()


@st.composite
def other_bytes(draw: Draw, data: bytes) -> bytes:
    """Draw a text that is damaged at one place."""
    start = draw(st.integers(0, len(data)))
    end = min(len(data), start + draw(st.sampled_from((1, 2, 8, 40))))
    part = data[start:end]
    kind = draw(
        st.sampled_from(
            ("insert", "insert", "cut", "remove", "repeat", "number", "recode", "lines", "order", "again", "whole")
        )
    )
    if kind == "insert":
        more: bytes = draw(st.sampled_from(BYTES) | st.binary(max_size=3))
        return data[:start] + more + data[start:]
    if kind == "number":
        found = re.search(rb"\d+", data[start:])
        odd = draw(st.sampled_from((b"9" * 5_000, b"1e999", b"NaN", b"-Infinity", b"1" + b"0" * 30)))
        return data if found is None else data[: start + found.start()] + odd + data[start + found.end() :]
    if kind == "recode":
        return data.decode("utf-8", "replace").encode(draw(st.sampled_from(ENCODINGS)), "replace")
    if kind in {"lines", "order", "again"}:
        lines = data.split(b"\n")
        return {"lines": b"\r\n".join(lines), "order": b"\n".join(lines[::-1]), "again": data + b"\n" + data}[kind]
    changed = {"cut": data[:start], "remove": data[:start] + data[end:], "repeat": data[:end] + part + data[end:]}
    whole: bytes = draw(st.sampled_from(WHOLE))
    return changed.get(kind, whole)


def _with_line(lines: list[bytes], number: int) -> st.SearchStrategy[bytes]:
    """Draw lines of which one differs in a node."""

    def put(value: Any) -> bytes:
        return b"\n".join([*lines[:number], written(value), *lines[number + 1 :]])

    return other_values(json.loads(lines[number])).map(put)


def damaged(data: bytes, form: str) -> st.SearchStrategy[bytes]:
    """Draw what becomes of a valid file.

    Args:
        data: its bytes.
        form: `json`, `jsonl` or `yaml`, whose nodes are changed too; any other form is text.
    """
    if form in JSON_FORMS:
        lines = data.splitlines() if form == "jsonl" else [data]
        nodes = st.one_of([_with_line(lines, number) for number in range(len(lines))])
        return nodes | other_bytes(data)
    if form == "yaml":
        # JSON is YAML
        return other_values(yaml.safe_load(data)).map(written) | other_bytes(data)
    return other_bytes(data)


def parse(data: bytes, form: str) -> Any:
    """Parse a file by the standard library and PyYAML, strictly.

    Raises:
        ValueError: it is broken; what is too deep for Python is not known to be.
    """
    if form == "yaml":
        try:
            return yaml.safe_load(data.decode("utf-8-sig"))
        except (yaml.YAMLError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
    lines = [line.removeprefix(b"\xef\xbb\xbf") for line in data.split(b"\n")] if form == "jsonl" else [data]
    texts = [text for line in lines if (text := line.decode("utf-8-sig").strip())]
    values = [json.loads(text, object_pairs_hook=_once, parse_constant=_refuse) for text in texts]
    if form == "json" and not values:
        raise ValueError("empty")
    return values if form == "jsonl" else values[0]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def differences(old: Any, new: Any, pointer: str = "") -> Iterable[str]:
    """Yield the JSON pointers of the nodes that differ; `1` and `1.0` are the same number."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = {key: (old.get(key, _MISSING), new.get(key, _MISSING)) for key in old.keys() | new.keys()}
    elif isinstance(old, list) and isinstance(new, list):
        pad = [_MISSING] * abs(len(old) - len(new))
        both = dict(enumerate(zip(old + pad * (len(old) < len(new)), new + pad * (len(new) < len(old)), strict=True)))
    else:
        if isinstance(old, bool) is not isinstance(new, bool) or old != new:
            yield pointer or "/"
        return
    for key, (one, two) in both.items():
        yield from differences(one, two, f"{pointer}/{key}")


_MISSING = object()
