"""Who writes a file holds it, so that a second process does not go on with a run that is still under way.

Where the system has no such locks (Windows, some network file systems) nothing is held.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path


def hold(file: FileIO) -> bool:
    """Hold an open file until it is closed or the process ends, however it ends.

    Returns:
        Whether it is ours; also where nothing can be held.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # a file system without locks
        return True
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds a file; False where there is none, or where it can't be told."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        return not hold(file)
    return False
