"""A commit of a git repository as a folder, without a checkout.

Contents are those of the repository: attributes of the repository (filters, `export-ignore`) do not change them, which
is why neither `git archive` nor a checkout writes the folder.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
from bisect import bisect_left
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_packbench.files import LFS, LIMITS, format_size
from pytest_packbench.model.policy import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIT = ("git", "-C")
_LINK, _SUBMODULE = "120000", "160000"
_LIMIT = LIMITS["policy"]
# a link that leads into itself makes a path longer and longer
_LONGEST_PATH = 1_024
_FETCH = "fetch it, with actions/checkout by fetch-depth: 0, or with git fetch --unshallow"


class CommitFolder:
    """A folder of a commit, with those files that were asked for.

    Args:
        repository: the top folder of the repository, absolute.
        commit: the id of the commit.
        prefix: the path of the folder from there.
        top: an empty folder, in which each file has its path from the top of the repository.
        blobs: a process of `git cat-file --batch` in the repository.

    Raises:
        PolicyError: the commit can't be read.
    """

    def __init__(self, repository: Path, commit: str, prefix: str, top: Path, blobs: subprocess.Popen[bytes]) -> None:
        self.folder = top / prefix
        self._commit = commit[:12]
        self._prefix = prefix
        self._top = top
        self._blobs = blobs
        listed = _git(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
        lines = (line.partition(b"\t") for line in listed.split(b"\0") if line)
        self._entries = {os.fsdecode(name): head.decode("ascii").split(" ") for head, _, name in lines}
        self._paths = sorted(self._entries)
        self._seen: set[str] = set()
        # links may lead to where they may in the repository
        (top / ".git").mkdir()

    def unpack(self, path: str) -> Path:
        """Write a file, or all files of a folder, and where symbolic links there lead.

        Args:
            path: from `folder`; may contain links, and need not exist.

        Returns:
            Where it is now.

        Raises:
            PolicyError: a file can't be read, or the path or a link leads out of the repository.
        """
        pending = [posixpath.join(self._prefix, path)]
        while pending:
            wanted = posixpath.normpath(pending.pop())
            if wanted in self._seen:
                continue
            if wanted.split("/")[0] in {"..", ""}:
                raise PolicyError(f"{wanted} is outside of the repository; name a run")
            self._seen.add(wanted)
            for name in (*map(str, PurePosixPath(wanted).parents), *self._below(wanted)):
                target = self._write(name, wanted) if name in self._entries else None
                if target is not None:
                    pending.append(target + wanted[len(name) :])
        return self.folder / path

    def names(self, path: str) -> list[str]:
        """Return the names of the files and folders in a folder, sorted.

        Args:
            path: as for `unpack`.

        Raises:
            PolicyError: as for `unpack`.
        """
        # there is no such file, so that only the links on the way are written
        inside = self.unpack(posixpath.join(path, ".git")).parent
        real = os.path.relpath(os.path.realpath(inside), os.path.realpath(self._top)).replace(os.sep, "/")
        start = "" if real == "." else f"{real}/"
        return sorted({name.removeprefix(start).partition("/")[0] for name in self._below(real)})

    def _below(self, path: str) -> Iterator[str]:
        """Yield the path of a file, or the paths of all files in a folder."""
        start = "" if path == "." else f"{path}/"
        if path in self._entries:
            yield path
        for position in range(bisect_left(self._paths, start), len(self._paths)):
            if not self._paths[position].startswith(start):
                break
            yield self._paths[position]

    def _write(self, name: str, wanted: str) -> str | None:
        """Write a file on the way to a wanted path unless it is there; return where a link leads, None for no link."""
        mode, _, object_id = self._entries[name]
        short = self._commit
        parents = map(str, PurePosixPath(name).parents)
        if posixpath.isabs(name) or ".." in name.split("/") or not self._entries.keys().isdisjoint(parents):
            raise PolicyError(f"{name}: in {short} a path that no checkout has; name a run instead")
        if mode == _SUBMODULE:
            raise PolicyError(f"{name} is a submodule, which git can't read in {short}; name a run")
        path = self._top / name
        if mode != _LINK:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._content(name, object_id))
            return None
        text, folder = os.fsdecode(self._content(name, object_id)), posixpath.dirname(name)
        target = posixpath.normpath(posixpath.join(folder, text))
        if posixpath.isabs(target) or target.split("/")[0] == ".." or len(wanted) > _LONGEST_PATH:
            raise PolicyError(f"{name}: in {short} a link out of the repository; name a run instead")
        if not path.is_symlink():
            path.parent.mkdir(parents=True, exist_ok=True)
            # without steps back inside, which another link could turn into steps out of the folder
            path.symlink_to(posixpath.relpath(target, folder or "."))
        return target

    def _content(self, path: str, object_id: str) -> bytes:
        requests, answers = self._blobs.stdin, self._blobs.stdout
        assert requests is not None and answers is not None  # noqa: PT018, S101 - both are pipes
        requests.write(f"{object_id}\n".encode())
        requests.flush()
        head = answers.readline().split()
        if len(head) != 3:  # noqa: PLR2004 - id, kind, size
            raise PolicyError(f"{path}: the object {object_id[:12]} is missing in this clone; {_FETCH}")
        size = int(head[2])
        if size > _LIMIT.size:
            wrong = f"is larger than {format_size(_LIMIT.size)}"
            raise PolicyError(f"{path}: in {self._commit} it {wrong}; {_LIMIT.advice}, or name a run")
        raw = answers.read(size + 1)[:size]
        if raw.startswith(LFS):
            raise PolicyError(f"{path}: is stored in Git LFS, where git can't read it; name a run as the base")
        return raw


@contextmanager
def commit_folder(folder: Path, commit: str) -> Iterator[CommitFolder]:
    """Make a folder for what a commit has of a folder, which is removed at the end.

    Args:
        folder: the folder in the repository, absolute.
        commit: the id of the commit.

    Raises:
        PolicyError: the commit can't be read.
        OSError: the folder can't be written.
    """
    repository, prefix, *_ = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel", "--show-prefix")).split("\n")
    with (
        TemporaryDirectory(prefix="packbench-") as top,
        subprocess.Popen(  # noqa: S603 - without a shell, and its input is ids of objects
            [*_GIT, repository, "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        ) as blobs,
    ):
        yield CommitFolder(Path(repository), commit, prefix.rstrip("/"), Path(top), blobs)


def find_commit(folder: Path, ref: str) -> str:
    """Return the id of the commit that a name stands for.

    Raises:
        PolicyError: there is none here, or no repository, or no git.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    found = _git(folder, *words, missing=f"no commit {ref} here; {_FETCH}")
    return found.decode("ascii").strip().splitlines()[-1]


def left_at(folder: Path, commit: str, ref: str) -> tuple[str, bool]:
    """Return the commit that a suite is compared with, and whether it is the commit that is checked out.

    Of a branch that went on since, it is the commit at which the checked-out one left it.

    Args:
        folder: a folder in the repository.
        commit: the id of the commit that the user names.
        ref: its name.

    Raises:
        PolicyError: the history between them is missing.
    """
    missing = f"{ref} and HEAD have no common commit in this clone; {_FETCH}"
    base = _git(folder, "merge-base", commit, "HEAD", missing=missing).decode("ascii").strip()
    return base, base == find_commit(folder, "HEAD")


def _git(folder: Path, *arguments: str, missing: str = "") -> bytes:
    """Return what a git command prints.

    Args:
        folder: a folder in the repository.
        arguments: of the command.
        missing: what it says that prints no error when it finds nothing.

    Raises:
        PolicyError: it failed, or there is no git.
    """
    try:
        done = subprocess.run(  # noqa: S603 - without a shell, and no argument is taken for an option
            [*_GIT, str(folder), *arguments],
            capture_output=True,
            check=False,
            env=_environment(),
        )
    except OSError as error:
        raise PolicyError(f"git can't be started ({error.strerror}); install it, or name a run") from None
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        advice = f"git {arguments[0]}: {message}; run it in a git repository, or name a run"
        raise PolicyError(advice if message else missing)
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
