"""Files: how large each kind may be, regular files only, strict JSON, replacing a file as a whole, packed suites.

Limits say how large, how deep and how many values each kind of input may be.

Files are opened without waiting, and only regular files are read: a pipe would block forever, and a device has no
end. A file of a suite may be a symbolic link within the project only: whoever may add a file could otherwise show any
other.

Python's `json` accepts more than other readers (repeated keys, `NaN`, unpaired surrogates) and less than serde_json
in two cases (depth, integers of many digits); JSON here means the same to every program.

The build of the wheel packs the bundled suites: the JSON files of a folder become lines of one file,
`cases/cases.jsonl`, `fixtures/recordings.jsonl`, `fixtures/controls/controls.jsonl`. It runs this module before the
package is installed: only the standard library is imported.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from functools import cache, lru_cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a UTF-16 pair: not valid in UTF-8, but possible in a Python string and as a JSON escape."""
_CONTROL = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_MAX_LENGTH = 60
_FINITE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SCALARS = frozenset({str, int, bool, type(None)})
# Well below the limits of json and pydantic_core, so that every valid record can be written and read.
MAX_DEPTH = 100
MAX_BITS = 14_000
# `json.dumps` would create an encoder on each call
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class NumberError(ValueError):
    """A text has a number that is too large for a double, or a word that is no number of JSON: its `token`."""

    def __init__(self, token: str) -> None:
        super().__init__(f"{token[:20]} is no finite number")
        self.token = token


def _finite(token: str) -> float:
    number = float(token)
    if not isfinite(number):
        raise NumberError(token)
    return number


def _integer(token: str) -> int:
    try:
        return int(token)
    except ValueError:
        # Python converts no integer of more than 4,300 digits
        raise NumberError(token) from None


NUMBERS: dict[str, Any] = {"parse_float": _finite, "parse_int": _integer, "parse_constant": _finite}
"""How `json` has to read the numbers of all that users and other programs write; others raise NumberError."""


class RepeatedKeyError(ValueError):
    """An object has a `key` twice: it would not be known which value counts."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {json.dumps(key)} occurs twice")
        self.key = key


def position_of(token: str, raw: bytes) -> tuple[int, int]:
    """Return line and column of the first number or word of a JSON text that begins with a token; else of its start."""
    # outside of strings, whose digits are no number
    tokens = re.finditer(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:\[\]{}"]++', raw, re.DOTALL)
    start = next((found.start() for found in tokens if found[0].startswith(token.encode())), 0)
    return raw.count(b"\n", 0, start) + 1, start - raw.rfind(b"\n", 0, start)


def parse_strict(text: str) -> Any:
    """Parse JSON as every reader of JSON does: without a key twice, and without numbers too large for a double.

    Raises:
        RepeatedKeyError: an object has a key twice.
        NumberError: a number is too large, or a word is none.
        ValueError: it is not JSON (`json.JSONDecodeError`).
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=without_duplicates, **NUMBERS)


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, for `json`.

    Raises:
        RepeatedKeyError: a key occurs twice.
    """
    data = dict(pairs)
    if len(data) < len(pairs):
        raise RepeatedKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return data


def canonical_sha256(value: object) -> str:
    """Return the SHA-256 of a JSON value in canonical form (sorted keys, no spaces, UTF-8), hexadecimal."""
    text = _CANONICAL.encode(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def finite_json(value: Any) -> Any:
    """Copy a value as plain JSON: keys become strings, numbers that are not finite null.

    Tuples become arrays, named tuples and dataclasses objects.
    """
    if isinstance(value, dict):
        # without a call for what is most frequent
        return {str(key): item if type(item) in _SCALARS else finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return finite_json(value._asdict()) if hasattr(value, "_asdict") else [finite_json(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return finite_json(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value


def compact_json(value: Any) -> bytes:
    r"""Return plain JSON as UTF-8 on one line without spaces; a surrogate, which UTF-8 lacks, becomes its escape.

    Args:
        value: plain JSON: objects with strings as keys, arrays, strings, numbers, true, false and null.

    Raises:
        TypeError: the value contains something that is not JSON; not every such object is detected.
        ValueError: a number is not finite, or the value contains itself.
        RecursionError: the value is nested too deeply.
    """
    try:
        # several times as fast as `json`, but it rejects surrogates and deep nesting
        text: bytes = _to_json()(value, inf_nan_mode="constants")
    except ValueError:
        return encode_utf8(_FINITE_ENCODER.encode(value))
    if b"NaN" in text or b"Infinity" in text:
        # the words may also be part of a string
        _FINITE_ENCODER.encode(value)
    return text


@cache
def _to_json() -> Any:
    # the build packs suites without this package
    from pydantic_core import to_json

    return to_json


def finite_line(value: Any) -> bytes:
    """Return plain JSON as `compact_json` does; a number that is not finite becomes null."""
    try:
        return compact_json(value)
    except ValueError:
        return compact_json(finite_json(value))


def has_surrogate(text: str) -> bool:
    """Return whether a text contains a surrogate, which UTF-8 cannot encode."""
    return not text.isascii() and SURROGATE.search(text) is not None


def printable(text: str) -> str:
    """Return a text, at most 60 characters and with unprintable ones escaped, so that a message stays one line."""
    head = escape_unprintable(text[:_MAX_LENGTH])
    return head + "..." if len(text) > _MAX_LENGTH else head


def escape_unprintable(text: str) -> str:
    """Return a text with escapes for control characters, line ends, surrogates and other unprintable characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def has_control_characters(name: str) -> bool:
    """Return whether a name has characters that terminals and services of CI interpret, or that UTF-8 can't encode.

    These are control characters, line ends, marks of the direction of text, and surrogates.
    """
    return not name.isprintable() and re.search(_CONTROL, name) is not None


def printable_repr(value: object) -> str:
    """Return the `printable` form of a value's repr; its type if it has no repr."""
    try:
        return printable(repr(value))
    except (ValueError, RecursionError):
        # Integers of more than 4,300 digits and deeply nested lists have no repr.
        return f"a huge {type(value).__name__}"


def walk(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield a JSON value and what it contains, in order, each with the keys and indexes that lead to it."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        yield path, item
        if isinstance(item, dict):
            pending += reversed([((*path, key), member) for key, member in item.items()])
        elif isinstance(item, list | tuple):
            pending += reversed([((*path, index), element) for index, element in enumerate(item)])


def is_plain(value: Any) -> bool:  # noqa: C901 - a function call per value takes twice as long
    """Return whether an array or object can be written as JSON that every program reads back unchanged."""
    pending = [(value, 1)]
    while pending:
        container, depth = pending.pop()
        if depth > MAX_DEPTH:
            return False
        if type(container) is dict:
            for name in container:
                if type(name) is not str or not (name.isascii() or SURROGATE.search(name) is None):
                    return False
            container = container.values()
        for item in container:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or SURROGATE.search(item) is None):
                    return False
            elif kind is dict or kind is list:
                pending.append((item, depth + 1))
            elif not (
                item is None
                or kind is bool
                or (kind is int and (-U64_MAX <= item <= U64_MAX or item.bit_length() <= MAX_BITS))
                or (kind is float and isfinite(item))
            ):
                return False
    return True


CASES = "cases.jsonl"
RECORDINGS = "recordings.jsonl"
CONTROLS = "controls.jsonl"
_PACKED = {
    "cases/": (CASES, "id"),
    "fixtures/controls/": (CONTROLS, "id"),
    "fixtures/": (RECORDINGS, "case_id"),
}
"""The folders whose JSON files are packed: the name of the packed file, and the key with the name of a single file."""


def packed_files(suite: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a suite in its packed form: path from its folder, content; the same suite, the same bytes.

    Args:
        suite: the folder of the suite, whose cases and recordings are single files.

    Raises:
        ValueError: a single file would not be found in the packed form; the message names it.
    """
    lines: dict[str, list[bytes]] = {}
    for file, path in _files(suite):
        packed = _packed_in(file)
        if packed is None or path.suffix != ".json":
            if packed is not None and path.name == packed[0]:
                raise ValueError(f"{path}: the name of a packed file; rename it")
            yield file, path.read_bytes()
            continue
        name, key = packed
        data = json.loads(path.read_bytes())
        if data.get(key) != path.stem:
            raise ValueError(f'{path}: /{key}: got {data.get(key)!r}; expected "{path.stem}", the name of the file')
        line = json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
        folder = file.rpartition("/")[0]
        if name == CASES:
            if folder != f"cases/{data.get('case_type')}":
                raise ValueError(f"{path}: /case_type: got {data.get('case_type')!r}; expected the name of the folder")
            folder = "cases"
        lines.setdefault(f"{folder}/{name}", []).append(line.encode())
    for file, of_file in lines.items():
        yield file, b"".join(of_file)


def single_files(suite: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a suite with each case and each recording in a file of its own.

    Args:
        suite: the folder of a suite that can be read, packed or not.
    """
    for file, path in _files(suite):
        packed = _packed_in(file)
        if packed is None or path.suffix != ".jsonl":
            yield file, path.read_bytes()
            continue
        for line in path.read_bytes().splitlines():
            data = json.loads(line)
            text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
            folder = file.rpartition("/")[0]
            folder = f"{folder}/{data['case_type']}" if folder == "cases" else folder
            yield f"{folder}/{data[packed[1]]}.json", text.encode()


def _packed_in(file: str) -> tuple[str, str] | None:
    return next((packed for folder, packed in _PACKED.items() if file.startswith(folder)), None)


def _files(suite: Path) -> list[tuple[str, Path]]:
    files = ((path.relative_to(suite), path) for path in suite.rglob("*") if path.is_file())
    # hidden: also recordings that wait for approval, in `fixtures/.pending`
    return sorted((file.as_posix(), path) for file, path in files if not any(part[0] == "." for part in file.parts))


StrPath: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
MIB: Final = 1024 * 1024
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# 0 on Windows, where links are followed
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_IS_LINK = (errno.ELOOP, errno.EMLINK)
_SUITE = "suite.yaml"
_REPOSITORIES = (".git", ".hg", ".jj", ".svn")
_PROJECTS = ("pyproject.toml", "pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg")
_LINE = 4096
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Limit(NamedTuple):
    """The limits of one kind of input.

    Attributes:
        size: the largest number of bytes, of a file or of a line.
        advice: what to do about an input that is too large.
        values: the largest number of values in it; of YAML with each alias written out.
        depth: the largest number of levels of objects and arrays.
        inside: whether a file that is a link has to be in the project.
        hashed: whether nothing of it is read, so that it may be a pointer of Git LFS.
    """

    size: int
    advice: str = "make it smaller"
    values: int = 1_000_000
    depth: int = 100
    inside: bool = False
    hashed: bool = False


LIMITS: Final[Mapping[str, Limit]] = {
    "case": Limit(16 * MIB, "keep large inputs in files that the target reads", 200_000, inside=True),
    "recording": Limit(96 * MIB, "record the case again with shorter answers", 2_000_000, inside=True),
    "control": Limit(32 * MIB, "keep what the check needs", inside=True),
    "suite.yaml": Limit(MIB, "remove what is not a rule of the suite", 50_000, inside=True),
    "policy_changes.yaml": Limit(MIB, "remove changes that the base already has", 50_000, inside=True),
    "baseline.json": Limit(96 * MIB, "set it again with packbench baseline set", 2_000_000, inside=True),
    "result": Limit(32 * MIB, "let the target return less"),
    "record": Limit(16 * MIB, "restore the file from the run"),
    "payload": Limit(64 * MIB, "restore the file from the run", 2_000_000),
    "journal": Limit(96 * MIB, "start the run again", 2_000_000),
    "report": Limit(96 * MIB, "restore the file from the run", 2_000_000),
    "import": Limit(96 * MIB, "split it into several files", 2_000_000),
    "schedule": Limit(96 * MIB, "expected one edition of the tariff schedule", 2_000_000),
    "review": Limit(32 * MIB, "expected the review.jsonl of a page"),
    "latest": Limit(4096, "expected the id of a run", 1, 1),
    "cached answer": Limit(64 * MIB, "remove it"),
    "policy": Limit(128 * MIB, "split it into several files", hashed=True),
    "configuration": Limit(16 * MIB, "remove what is no configuration"),
}
"""By kind; `record`, `payload` and `journal` are of a line, `case` of a file or a line, `report` of a value in it.

`schedule` is of the file and of what is compressed in it, `policy` of any file that an acceptance policy depends on.
"""

CASE: Final = LIMITS["case"]
RECORDING: Final = LIMITS["recording"]
CONTROL: Final = LIMITS["control"]
RECORD: Final = LIMITS["record"]
PAYLOAD: Final = LIMITS["payload"]


LFS: Final = b"version https://git-lfs.github.com/spec/"
"""How what git-lfs leaves in the place of a file begins."""


class OpenFile(NamedTuple):
    """A file that is open, for what reads the lines of a file: in place of its path, so that it is opened once.

    Attributes:
        path: its path.
        file: the file; each reader begins at its start.
    """

    path: Path
    file: BinaryIO

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)


class InputLimitError(OSError):
    """A file is no regular file, a pointer of Git LFS, or too large; `strerror` says so in one line with what to do.

    Attributes:
        wrong: what is wrong.
        expected: what to do.
    """

    def __init__(self, number: int, wrong: str, expected: str, path: StrPath) -> None:
        super().__init__(number, f"{wrong}; {expected}", os.fspath(path))
        self.wrong, self.expected = wrong, expected

    def __reduce__(self) -> Any:
        """Return what creates it again: workers of xdist send errors."""
        return InputLimitError, (self.errno, self.wrong, self.expected, self.filename)

    def __str__(self) -> str:
        """Return the file with the problem."""
        return f"{self.filename}: {self.strerror}" if self.filename else str(self.strerror)


def why_unreadable(error: OSError) -> str:
    """Return in one line why a file can't be read: for limits what to do, otherwise the system's reason."""
    return str(error.strerror) if isinstance(error, InputLimitError) else f"can't be read: {error.strerror or error}"


def read_regular(path: StrPath, limit: Limit) -> bytes:
    """Return the content of a file.

    Raises:
        InputLimitError: it is no regular file, too large, a pointer of Git LFS, or a link that may not be followed.
        OSError: it can't be read.
    """
    # without an object for the file: there may be a million
    descriptor, size = _open_regular(path, inside=limit.inside)
    try:
        if size > limit.size:
            raise _too_large(path, limit)
        raw = os.read(descriptor, size + 1)
        # a file that grows, or states no size
        while len(raw) != size and len(raw) <= limit.size and (part := os.read(descriptor, MIB)):
            raw += part
        if len(raw) > limit.size:
            raise _too_large(path, limit)
        if not limit.hashed:
            _check_fetched(path, raw)
        return raw
    finally:
        os.close(descriptor)


def read_line(path: StrPath, start: int, limit: Limit) -> bytes:
    """Return a line of a file; of a line that is too long the beginning, one byte longer than the limit.

    Args:
        path: the file.
        start: the offset of the line, in bytes.
        limit: how long it may be.

    Raises:
        InputLimitError: the file is a pipe, a device or a socket, or a link that may not be followed.
        OSError: it can't be read.
    """
    descriptor, _ = _open_regular(path, inside=limit.inside)
    try:
        os.lseek(descriptor, start, os.SEEK_SET)
        parts, length, size = [b""], 0, _LINE
        while not parts[-1].endswith(b"\n") and length <= limit.size and (raw := os.read(descriptor, size)):
            parts.append(raw[: raw.find(b"\n") + 1 or None])
            length, size = length + len(raw), MIB
        return b"".join(parts)[: limit.size + 1]
    finally:
        os.close(descriptor)


@contextmanager
def open_regular(path: StrPath | OpenFile, *, buffering: int = -1, inside: bool = False) -> Iterator[BinaryIO]:
    """Open a file for reading bytes.

    Args:
        path: the file; one that is open stays open.
        buffering: as in `open`.
        inside: whether a file that is a link has to be in the project.

    Raises:
        InputLimitError: it is no regular file, a pointer of Git LFS, or a link that may not be followed.
        OSError: it can't be opened.
    """
    if isinstance(path, OpenFile):
        path.file.seek(0)
        yield path.file
        return
    descriptor, _ = _open_regular(path, inside=inside)
    with os.fdopen(descriptor, "rb", buffering) as file:
        _check_fetched(path, file.read(len(LFS)))
        file.seek(0)
        yield file


def lines_of(file: BinaryIO, limit: Limit) -> Iterator[bytes]:
    """Yield the lines of an open file; of a line that is too long the beginning, one byte longer than the limit."""
    size = limit.size + 1
    while line := file.readline(size):
        yield line
        if len(line) == size and not line.endswith(b"\n"):
            while (rest := file.readline(MIB)) and not rest.endswith(b"\n"):
                pass


def check_link(path: StrPath) -> str:
    """Return the real path of a file or folder of a suite that is a link.

    It has to be in the project of the link: the repository, or else the folder with the configuration, and always the
    folder of the suites. The folder of a suite and its `suite.yaml` may be links themselves: then the folder where the
    `suite.yaml` really is belongs to the project. Outside of suites and projects, links may lead anywhere.

    Raises:
        InputLimitError: it is elsewhere, or in the folder in which git keeps its own files.
    """
    real = os.path.realpath(path)
    roots = _roots_of(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120 - without following links
    _, _, in_git = real.partition(f"{os.sep}.git{os.sep}")
    # git-annex keeps the contents of files there
    is_inside = not in_git or in_git.startswith(f"annex{os.sep}")
    if roots and not (is_inside and any(contains(root, real) for root in roots)):
        advice = "replace it by a copy, or let a link stand for the whole folder of the suite"
        raise InputLimitError(errno.EPERM, "is a link that leaves the project", advice, path)
    return real


def contains(outer: str, inner: str) -> bool:
    """Return whether a path is a folder, or in it."""
    return (inner + os.sep).startswith(outer.rstrip(os.sep) + os.sep)


def format_size(size: int) -> str:
    """Return a number of bytes as text: `16 MiB`."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size:,} bytes"


def _open_regular(path: StrPath, *, inside: bool) -> tuple[int, int]:
    """Open a file if it is a regular one, and return its descriptor and its size."""
    descriptor = _open(path, inside=inside)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "no regular file")
    raise InputLimitError(errno.EINVAL, f"is {kind}, not a file", "replace it by a file, or remove it", path)


def _open(path: StrPath, *, inside: bool) -> int:
    if not inside:
        return os.open(path, _FLAGS)
    try:
        return os.open(path, _FLAGS | _NOFOLLOW)
    except OSError as error:
        if error.errno not in _IS_LINK:
            raise
    try:
        return os.open(check_link(path), _FLAGS | _NOFOLLOW)
    except InputLimitError:
        raise
    except OSError as error:
        # a message names the file as the user does
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


@lru_cache(maxsize=256)
def _roots_of(folder: str) -> tuple[str, ...]:
    """Return the folders to which links in a folder may lead, without links."""
    found: list[Path] = []
    real_folder = os.path.realpath(folder)
    for start in dict.fromkeys((folder, real_folder)):
        parents = (Path(start), *Path(start).parents)
        # the outermost one: a file of that name in the folders of a suite is none
        for suite in _having((_SUITE,), parents)[-1:]:
            is_alone = start == real_folder != folder or suite.parent == suite.parent.parent
            found.append(suite if is_alone else suite.parent)
            config = Path(os.path.realpath(suite / _SUITE))
            found += [config.parent] if config.name == _SUITE and config.is_file() else []
        found += (_having(_REPOSITORIES, parents) or _having(_PROJECTS, parents))[:1]
    return tuple(dict.fromkeys(map(os.path.realpath, found)))


def _having(names: tuple[str, ...], folders: tuple[Path, ...]) -> list[Path]:
    """Return the folders that contain one of these names."""
    return [folder for folder in folders if any(os.path.lexists(folder / name) for name in names)]


def _check_fetched(path: StrPath, head: bytes) -> None:
    if head.startswith(LFS):
        raise InputLimitError(errno.EINVAL, "is a pointer of Git LFS, not the file itself", "run git lfs pull", path)


def _too_large(path: StrPath, limit: Limit) -> InputLimitError:
    return InputLimitError(errno.EFBIG, f"is larger than {format_size(limit.size)}", limit.advice, path)


def write_atomic(path: Path, content: str | bytes) -> None:
    r"""Write a file atomically, replacing an existing one.

    Args:
        path: the file; its folder must exist.
        content: bytes, or text that is encoded as UTF-8 with its line ends unchanged. A surrogate, which UTF-8 cannot
            encode, is written as `\udXXX`, its escape in JSON.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged, and no temporary file is left.
    """
    with replace_atomic(path) as file:
        file.write(content if isinstance(content, bytes) else encode_utf8(content))


@contextmanager
def replace_atomic(path: Path, *, buffer: int = -1) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces another, with its mode and group, when the block ends without an error.

    Args:
        path: the file to replace; its folder must exist.
        buffer: size of the write buffer, bytes; -1 for Python's default.

    Yields:
        The temporary file, open for writing bytes.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged, and no temporary file is left.
    """
    # a random name for each writer; files of `tempfile` are readable for their owner only
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    old = path.stat() if path.exists() else None
    opener = None if old is None else partial(os.open, mode=0o600)
    try:
        with open(temporary, "xb", buffering=buffer, opener=opener) as file:
            yield file
        if old is not None:
            mode = stat.S_IMODE(old.st_mode)
            if temporary.stat().st_gid != old.st_gid:
                try:
                    os.chown(temporary, -1, old.st_gid)
                except OSError:
                    # what its group may do is not for another one
                    mode &= ~0o070
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def encode_utf8(text: str) -> bytes:
    r"""Encode text as UTF-8; a surrogate becomes `\udXXX`."""
    return text.encode("utf-8", "backslashreplace")
