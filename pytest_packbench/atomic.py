"""Atomic replacement of files: a reader sees either the old content or the new content."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from functools import partial
from stat import S_IMODE
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    old = path.stat() if path.exists() else None
    opener = None if old is None else partial(os.open, mode=0o600)
    try:
        with open(temporary, "xb", buffering=buffer, opener=opener) as file:
            yield file
        if old is not None:
            mode = S_IMODE(old.st_mode)
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
