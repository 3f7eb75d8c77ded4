"""Seeded damage to valid inputs: to bytes and lines, or to a node of their JSON or YAML, which gets an odd value."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Json = Any
Random = random.Random

ODD_VALUES: Final[tuple[Json, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1.5, -0.0, 1.0, 2**31, 2**53 + 1, 2**64, -(2**63) - 1, 10**30, 10**400),
    *(1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "1", "true", "null", "nan", "yes", "x", "passed", "failed", "error", "2026-02-30", "../../x", "/"),
    *("\ud800", "a\udfffb", "\x00", "a\nb", "a\r\nb", "\x1b[31m", "\u202egnp", "\u2028", "\ufeff", "e\u0301"),
    *("::error::x", "%0A", "<script>", "=1+1", "{0}", "%s", "[bold]", "${HOME}", "C:\\x", "x" * 5_000, "😀" * 300),
    *([], {}, [None], [[]], [1, "1"], {"": {}}, {"$ref": "#"}, {"\ud800": 1}, {"a\nb": 1}, {"k" * 3_000: 0}),
)
ODD_BYTES: Final = (
    *(
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\x00",
        b"\r\n",
        b"\n",
        b"\x1b[31m",
    ),
    *(
        b"\xe2\x80\xa8",
        b"\xe2\x80\xae",
        b"\x85",
        b"\\ud800",
        b"\\u0000",
        b"\\",
        b'"',
        b"'",
        b",",
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
    ),
    *(
        b"NaN",
        b"Infinity",
        b"-",
        b"1e999",
        b"-0",
        b"00",
        b"0x1",
        b"1_0",
        b"null",
        b"true",
        b"//",
        b"#",
        b"&a ",
        b"*a",
        b"<<",
    ),
    *(b"!!python/object:x", b"---\n", b"\t", b"%", b"::error::"),
)
ENCODINGS: Final = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7", "cp037")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
_MARK = "\ue000same\ue000"
"""Stands for a key that is written a second time."""


def attacks(data: bytes) -> list[bytes]:
    """Return what is tried of each kind before anything is drawn: wrong encodings, odd ids, nothing at all."""
    text = data.decode("utf-8", "replace")
    middle = max(data.find(b'": "'), data.find(b'":"')) + 5 if b'"' in data else len(data) // 2
    odd_id = re.sub(rb'("(?:run_id|test_id|case_id|id)":\s*")', rb"\1\\ud800", data, count=1)
    return [
        data[:middle] + b"\xff" + data[middle:],
        data[:middle] + b"\xed\xa0\x80" + data[middle:],
        text.encode("utf-16"),
        text.encode("utf-16-le"),
        odd_id,
        data + b"\xff\n",
        b"\xef\xbb\xbf" + data,
        data.replace(b"\n", b"\r\n"),
        data[: len(data) // 2],
        b"",
        b"\x00" * 4096,
        b"[" * 20_000,
        b'{"a":' * 10_000,
        b"[" + b"9" * 20_000 + b"]",
        b'{"' + b"k" * 50_000 + b'": NaN}',
        data + b"\n" + data,
    ]


def mutate(data: bytes, other: bytes, rng: Random, form: str) -> bytes:
    """Return a damaged input.

    Args:
        data: a valid input.
        other: another valid input, of which parts may be taken.
        rng: the source of randomness.
        form: `json`, `jsonl` or `yaml`, whose nodes are replaced too; any other form is text.
    """
    structured = form in {"json", "jsonl", "yaml"} and rng.random() < 0.6  # noqa: PLR2004 - a little more than half
    if structured:
        try:
            return _restructured(data, rng, form)
        except (ValueError, RecursionError):
            # an example that is not JSON by itself
            pass
    damaged = data
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        damaged = rng.choice(_BYTES)(damaged, other, rng)
    return damaged


def paths(value: Json, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the place of each node of a JSON value, the whole first."""
    found = [prefix]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*prefix, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, (*prefix, index))
    return found


def _restructured(data: bytes, rng: Random, form: str) -> bytes:
    if form == "jsonl":
        lines = data.split(b"\n")
        usable = [number for number, line in enumerate(lines) if line.strip()]
        if not usable:
            return data
        number = rng.choice(usable)
        lines[number] = _dump(_odd_node(json.loads(lines[number]), rng), rng)
        return b"\n".join(lines)
    if form == "yaml":
        import yaml

        changed = _odd_node(yaml.safe_load(data), rng)
        if rng.random() < 0.5:  # noqa: PLR2004 - one half
            return _dump(changed, rng)
        try:
            return str(yaml.safe_dump(changed, allow_unicode=True, sort_keys=False)).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError):
            return _dump(changed, rng)
    return _dump(_odd_node(json.loads(data), rng), rng)


def _dump(value: Json, rng: Random) -> bytes:
    ascii_only = rng.random() < 0.7  # noqa: PLR2004 - most
    text = json.dumps(value, ensure_ascii=ascii_only)
    if _MARK in text or json.dumps(_MARK)[1:-1] in text:
        text = re.sub(rf'"({_MARK}|{re.escape(json.dumps(_MARK)[1:-1])})', '"', text)
    return text.encode("utf-8", "surrogatepass")


def _odd_node(value: Json, rng: Random) -> Json:
    """Change one node; a second one now and then."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 1, 2))):
        *parents, last = rng.choice(paths(value)[1:] or [("",)])
        try:
            parent = value
            for step in parents:
                parent = parent[step]
            value = _changed(value, parent, last, rng)
        except (KeyError, IndexError, TypeError):
            value = rng.choice(ODD_VALUES)
    return value


def _changed(whole: Json, parent: Json, last: str | int, rng: Random) -> Json:
    how = rng.randrange(12)
    node = parent[last]
    if how <= 4:  # noqa: PLR2004 - most often
        parent[last] = copy.deepcopy(rng.choice(ODD_VALUES))
    elif how == 5:  # noqa: PLR2004
        del parent[last]
    elif how == 6 and isinstance(parent, dict):  # noqa: PLR2004
        parent[rng.choice(("extra", "", "\ud800", "Id", "k" * 2_000, "__class__", "a\nb", "\x1b[2J"))] = node
    elif how == 7 and isinstance(parent, dict):  # noqa: PLR2004
        parent[_renamed(str(last), rng)] = parent.pop(last)
    elif how == 8 and isinstance(parent, dict):  # noqa: PLR2004
        parent[f"{_MARK}{last}"] = copy.deepcopy(rng.choice((node, *ODD_VALUES)))
    elif how == 9:  # noqa: PLR2004
        parent[last] = rng.choice(([node], {str(last): node}, _nested(rng.choice((50, 99, 101, 400)), node)))
    elif how == 10:  # noqa: PLR2004
        # another node of the same document
        steps = rng.choice(paths(whole))
        other = whole
        for step in steps:
            other = other[step]
        parent[last] = copy.deepcopy(other)
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(node))
    else:
        parent[last] = _near(node, rng)
    return whole


def _renamed(key: str, rng: Random) -> str:
    return rng.choice((key.upper(), key[:-1], f"{key} ", f"{key}s", key.replace("_", "-"), f"{key}\u200b"))


def _near(node: Json, rng: Random) -> Json:
    """Return a value that is a little different."""
    if isinstance(node, bool):
        return rng.choice((not node, int(node), str(node).lower()))
    if isinstance(node, int | float) and abs(node) < 1e300:  # noqa: PLR2004 - what has neighbours as float
        return rng.choice((node + 1, -node, node * 1.01, float(node), str(node), node * 10))
    if isinstance(node, str):
        return rng.choice((node.upper(), f"{node} ", f"{node}x", node[:-1], f"{node}\n", f"{node}\u0000", [node]))
    if isinstance(node, list):
        return rng.choice((node[::-1], node * 2, node[1:], dict(enumerate(node))))
    return rng.choice((list(node or ()), str(node), None))


def _nested(depth: int, value: Json) -> Json:
    for _ in range(depth):
        value = [value]
    return value


def _flip(data: bytes, _other: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, _other: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return rng.choice((data[:at], data[at:]))


def _remove(data: bytes, _other: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, _other: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 1, 3)) + data[end:]


def _splice(data: bytes, other: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng)
    first, last = _span(other, rng)
    return data[:start] + other[first:last] + data[end:]


def _insert(data: bytes, _other: bytes, rng: Random) -> bytes:
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[:at] + rng.choice(ODD_BYTES) + data[at:]


def _recode(data: bytes, _other: bytes, rng: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(rng.choice(ENCODINGS), "replace")


def _line_ends(data: bytes, _other: bytes, rng: Random) -> bytes:
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"\xe2\x80\xa8", b"")))


def _lines(data: bytes, other: bytes, rng: Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, lines[at])
    elif how == 2:  # noqa: PLR2004
        rng.shuffle(lines)
    elif how == 3:  # noqa: PLR2004
        lines.insert(at, rng.choice(other.splitlines(keepends=True) or [b""]))
    else:
        lines[at] = b""
        lines.append(rng.choice((b"\n", b"\n\n", b" \n", b"x\n")))
    return b"".join(lines)


def _deep(data: bytes, _other: bytes, rng: Random) -> bytes:
    depth = rng.choice((101, 1_000, 5_000))
    left, right = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b""), (b'{"a":', b"")))
    inner = left * depth + (b"1" if right else b"") + right * depth
    start, end = _span(data, rng)
    return rng.choice((inner, data[:start] + inner + data[end:]))


def _digits(data: bytes, _other: bytes, rng: Random) -> bytes:
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return data + b"9" * 5_000
    at = rng.choice(numbers)
    odd = rng.choice((b"9" * 5_000, b"9" * 400, b"1e999", b"-1e999", b"NaN", b"-Infinity", b"1" + b"0" * 30, b"0" * 40))
    return data[: at.start()] + odd + data[at.end() :]


def _nothing(data: bytes, other: bytes, rng: Random) -> bytes:
    return rng.choice(
        (b"", b" ", b"\n", b"\x00" * 40, b"null", b"[]", b"{}", b'""', other, data + data, data + b"\n" + data)
    )


def _span(data: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 8, 40)))


_BYTES: Final[Sequence[Callable[[bytes, bytes, Random], bytes]]] = (
    *(
        _flip,
        _flip,
        _cut,
        _remove,
        _repeat,
        _splice,
        _insert,
        _insert,
        _recode,
        _line_ends,
        _lines,
        _deep,
        _digits,
        _nothing,
    ),
)
