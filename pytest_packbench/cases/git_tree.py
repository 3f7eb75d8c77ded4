"""A commit of a git repository as folders of files, read without a checkout.

Contents are those of the repository: attributes of the repository (filters, `export-ignore`) do not change them.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.limits import LFS, LIMITS, format_size
from pytest_packbench.model.policy import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LINK, _SUBMODULE = "120000", "160000"
_LIMIT = LIMITS["policy"]
_MAX_LINKS = 40
# files of one process, so that not all of a large suite are in memory
_BATCH = 2_000
_FETCH = "fetch it, with actions/checkout by fetch-depth: 0, or with git fetch --unshallow"


class _Entry(NamedTuple):
    mode: str
    object_id: str


class GitTree:
    """The files of one commit.

    Args:
        repository: the top folder of the repository, absolute.
        commit: the id of the commit.

    Raises:
        PolicyError: the commit can't be read.
    """

    def __init__(self, repository: Path, commit: str) -> None:
        self.repository = repository
        self.commit = commit
        listed = _git(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
        self._entries: dict[str, _Entry] = {}
        self._folders: set[str] = {""}
        for line in filter(None, listed.split(b"\0")):
            head, _, name = line.partition(b"\t")
            mode, _, object_id = head.decode("ascii").split(" ")
            path = os.fsdecode(name)
            self._entries[path] = _Entry(mode, object_id)
            while path := posixpath.dirname(path):
                self._folders.add(path)

    def files(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files of a folder and of its subfolders, sorted: path from the folder, content.

        Symbolic links are followed within the repository.

        Args:
            folder: from the top folder of the repository.

        Raises:
            PolicyError: a file can't be read.
        """
        yield from self._contents(sorted(self._under(folder, "", frozenset())))

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none.

        Raises:
            PolicyError: it can't be read.
        """
        real = self._resolved(path)
        entry = self._entries.get(real)
        if entry is None:
            return None
        return next(iter(self._contents([(path, entry)])))[1]

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; those of links to folders as well."""
        real = self._resolved(folder)
        prefix = f"{real}/" if real else ""
        names = {path.removeprefix(prefix).partition("/")[0] for path in self._folders if path.startswith(prefix)}
        links = {path.removeprefix(prefix) for path, entry in self._entries.items() if entry.mode == _LINK}
        found = names | {name for name in links if "/" not in name and self._resolved(prefix + name) in self._folders}
        return sorted(name for name in found if name)

    def _under(self, folder: str, shown: str, seen: frozenset[str]) -> Iterator[tuple[str, _Entry]]:
        real = self._resolved(folder)
        if real in seen:
            return
        seen |= {real}
        prefix = f"{real}/" if real else ""
        for path, entry in self._entries.items():
            if not path.startswith(prefix):
                continue
            name = path[len(prefix) :]
            if entry.mode == _SUBMODULE:
                raise PolicyError(f"{path} is a submodule, which git can't read in {self.commit[:12]}; name a run")
            if entry.mode != _LINK:
                yield shown + name, entry
                continue
            target = self._resolved(path)
            if target in self._folders:
                yield from self._under(target, f"{shown}{name}/", seen)
            elif target in self._entries:
                yield shown + name, self._entries[target]

    def _resolved(self, path: str, links: int = 0) -> str:
        """Return a path without links.

        Raises:
            PolicyError: a link leaves the repository, or leads to itself.
        """
        parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", "."}]
        real = ""
        for number, part in enumerate(parts):
            real = posixpath.join(real, part)
            entry = self._entries.get(real)
            if entry is not None and entry.mode == _LINK:
                target = os.fsdecode(next(iter(self._contents([(real, entry)])))[1])
                joined = posixpath.normpath(posixpath.join(posixpath.dirname(real), target, *parts[number + 1 :]))
                if posixpath.isabs(target) or joined.startswith("..") or links > _MAX_LINKS:
                    raise PolicyError(f"{real}: in {self.commit[:12]} a link out of the repository; name a run instead")
                return self._resolved(joined, links + 1)
        return real

    def _contents(self, entries: Iterable[tuple[str, _Entry]]) -> Iterator[tuple[str, bytes]]:
        wanted = list(entries)
        for first in range(0, len(wanted), _BATCH):
            yield from self._batch(wanted[first : first + _BATCH])

    def _batch(self, wanted: list[tuple[str, _Entry]]) -> Iterator[tuple[str, bytes]]:
        requests = b"".join(f"{entry.object_id}\n".encode() for _, entry in wanted)
        heads = _git(self.repository, "cat-file", "--batch-check=%(objectsize)", requests=requests).splitlines()
        for (path, _), stated in zip(wanted, heads, strict=True):
            if stated.isdigit() and int(stated) > _LIMIT.size:
                wrong = f"is larger than {format_size(_LIMIT.size)}"
                raise PolicyError(f"{path}: in {self.commit[:12]} it {wrong}; {_LIMIT.advice}, or name a run")
        output = _git(self.repository, "cat-file", "--batch", requests=requests)
        start = 0
        for path, entry in wanted:
            end = output.find(b"\n", start)
            head = output[start:end].split(b" ")
            if len(head) != 3:  # noqa: PLR2004 - id, kind, size
                raise PolicyError(f"{path}: the object {entry.object_id[:12]} is missing in this clone; {_FETCH}")
            size = int(head[2])
            raw = output[end + 1 : end + 1 + size]
            if raw.startswith(LFS):
                raise PolicyError(f"{path}: is stored in Git LFS, where git can't read it; name a run as the base")
            start = end + size + 2
            yield path, raw


def repository_of(folder: Path) -> tuple[Path, str]:
    """Return the top folder of the repository that contains a folder, and the folder's path from there.

    Raises:
        PolicyError: there is no repository, or no git.
    """
    text = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel", "--show-prefix"))
    top, prefix, *_ = [*text.split("\n"), "", ""]
    return Path(top), prefix.rstrip("/")


def find_commit(folder: Path, ref: str) -> str | None:
    """Return the id of the commit that a name stands for; None if there is none."""
    name = f"{ref}^{{commit}}"
    try:
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    except _NotFoundError:
        return None
    return found.decode("ascii").strip().splitlines()[-1]


def base_commit(folder: Path, ref: str) -> tuple[str, bool]:
    """Return the commit that a suite is compared with, and whether it is the commit that is checked out.

    Of a branch that went on since, it is the commit at which the checked-out one left it.

    Raises:
        PolicyError: the name is not known here, or the history between them is missing.
    """
    commit, head = find_commit(folder, ref), find_commit(folder, "HEAD")
    if commit is None:
        raise PolicyError(f"no commit {ref} here; {_FETCH}")
    if head is None:
        raise PolicyError("the repository has no commit yet; commit first")
    try:
        merge_base = _git(folder, "merge-base", commit, head).decode("ascii").strip()
    except _NotFoundError:
        raise PolicyError(f"{ref} and HEAD have no common commit in this clone; {_FETCH}") from None
    return merge_base, merge_base == head


class _NotFoundError(PolicyError):
    """git found nothing, and gave no message."""


def _git(folder: Path, *arguments: str, requests: bytes = b"") -> bytes:
    """Return what a git command prints.

    Raises:
        PolicyError: it failed, or there is no git.
    """
    environment = {**os.environ, "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - without a shell, and no argument is taken for an option
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
            input=requests,
            capture_output=True,
            check=False,
            env=environment,
        )
    except OSError as error:
        raise PolicyError(f"git can't be started ({error.strerror}); install it, or name a run") from None
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        if not message:
            raise _NotFoundError(f"git {arguments[0]} found nothing")
        raise PolicyError(f"git {arguments[0]}: {message[:300]}; run it in a git repository, or name a run")
    return done.stdout
