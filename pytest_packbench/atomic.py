"""Replacing a file so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    r"""Write a file whole, in the place of an older one.

    Args:
        path: the file; its folder exists.
        content: bytes as they are; text as UTF-8 with the line ends that it has. A surrogate, which UTF-8 can't
            hold, is written as `\udXXX`: in JSON that is its escape.

    Raises:
        OSError: it can't be written; an older file is untouched and nothing is left beside it.
    """
    with replace_atomic(path) as file:
        file.write(content if isinstance(content, bytes) else encode_utf8(content))


@contextmanager
def replace_atomic(path: Path, *, buffer: int = -1) -> Iterator[BinaryIO]:
    """Give a file that takes the place of another when the block ends well.

    Args:
        path: the file; its folder exists.
        buffer: bytes that are written at once; -1 for Python's own choice.

    Raises:
        OSError: it can't be written; an older file is untouched and nothing is left beside it.
    """
    # a name of its own for each writer; tempfile would make it readable for its owner only
    draft = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb", buffering=buffer) as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def encode_utf8(text: str) -> bytes:
    r"""Give text as UTF-8; a surrogate becomes `\udXXX`."""
    return text.encode("utf-8", "backslashreplace")
