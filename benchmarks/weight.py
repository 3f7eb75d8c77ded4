"""Count the code of the package: how much there is to read, by folder, and the difference between two commits.

    python -m benchmarks.architecture --tokens [COMMIT [COMMIT]]

**Tokens** are names, operators and literals, as `tokenize` reads them. A statement that is a single string, such as a
docstring, counts under `docs` instead, and comments do not count. An f-string is one literal in each version of Python.

Beside the tokens stand the characters of what could hide code: strings of 100 characters or more that are not
docstrings (text that is divided into lines by implicit concatenation is one string), templates, JavaScript, and data.

Without a commit, the working tree is counted; with one, what has changed in the working tree since; with two, what has
changed between them.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
import tokenize
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

COUNTED = frozenset({tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING})
F_STRING = {getattr(tokenize, name, None): change for name, change in (("FSTRING_START", 1), ("FSTRING_END", -1))}
"""How deep a token leads into an f-string, from Python 3.12 on."""

LONG = 100
"""Characters from which a string is long."""

TEMPLATES = frozenset({".html", ".css", ".md", ".txt", ".j2"})
SCRIPTS = frozenset({".js", ".mjs"})


class Weight(NamedTuple):
    """What is counted of a file or a folder; all but the first four are characters, or bytes of packed data."""

    tokens: int = 0
    docs: int = 0
    classes: int = 0
    functions: int = 0
    strings: int = 0
    templates: int = 0
    scripts: int = 0
    data: int = 0

    def plus(self, other: Weight, sign: int = 1) -> Weight:
        """Add another weight, or take it off."""
        return Weight(*(one + sign * two for one, two in zip(self, other, strict=True)))


def weigh_source(source: str) -> Weight:
    """Count the text of one Python file."""
    tree = list(ast.walk(ast.parse(source)))
    statements = [node.value for node in tree if isinstance(node, ast.Expr)]
    docs = [node.value for node in statements if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    apart = {id(node) for one in tree if isinstance(one, ast.JoinedStr) for node in one.values}
    texts = [
        "".join(part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str))
        if isinstance(node, ast.JoinedStr)
        else node.value
        for node in tree
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in apart)
    ]
    lengths = [len(text) for text in texts if isinstance(text, str | bytes) and len(text) >= LONG]
    return Weight(
        tokens=sum(counted_statements(source)),
        docs=len(docs),
        classes=sum(isinstance(node, ast.ClassDef) for node in tree),
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in tree),
        strings=sum(lengths) - sum(len(doc) for doc in docs if len(doc) >= LONG),
    )


def counted_statements(source: str) -> Iterator[int]:
    """Yield the number of tokens of each logical line that is not a single string."""
    tokens, strings, depth = 0, 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        change = F_STRING.get(token.type, 0)
        if not depth and (token.type in COUNTED or change > 0):
            tokens += 1
            strings += token.type == tokenize.STRING
        depth += change
        if token.type in {tokenize.NEWLINE, tokenize.ENDMARKER}:
            if tokens > strings:
                yield tokens
            tokens = strings = 0


def weigh_file(name: str, content: bytes) -> Weight:
    """Count one file by the end of its name."""
    ending = PurePosixPath(name).suffix
    if ending == ".py":
        return weigh_source(content.decode("utf-8"))
    if ending in TEMPLATES:
        return Weight(templates=len(content.decode("utf-8")))
    return Weight(scripts=len(content)) if ending in SCRIPTS else Weight(data=len(content))


def files_of_commit(repository: Path, commit: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder as they are in a commit, with their path relative to the folder.

    Raises:
        subprocess.CalledProcessError: git does not know the commit, or the commit has no such folder.
    """
    command = ["git", "-C", str(repository), "archive", commit, folder]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                yield str(PurePosixPath(member.name).relative_to(folder)), file.read()


def files_of_tree(repository: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder that git tracks or would track, as they are in the working tree."""
    command = ["git", "-C", str(repository), "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    for name in sorted(set(listed.split("\0"))):
        path = repository / name
        if name and path.is_file():
            yield str(PurePosixPath(name).relative_to(folder)), path.read_bytes()


def by_folder(files: Iterable[tuple[str, bytes]]) -> dict[str, Weight]:
    """Add up the files of each folder of the package: those of `packs/` by pack, `.` for files outside of folders."""
    found: dict[str, Weight] = {}
    for name, content in files:
        parents = PurePosixPath(name).parts[:-1]
        folder = "/".join(parents[: 2 if parents[:1] == ("packs",) else 1]) or "."
        found[folder] = found.get(folder, Weight()).plus(weigh_file(name, content))
    return dict(sorted(found.items()))


def difference(before: Mapping[str, Weight], after: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return what has changed in each folder that has changed."""
    return {
        folder: change
        for folder in sorted({*before, *after})
        for change in [after.get(folder, Weight()).plus(before.get(folder, Weight()), -1)]
        if any(change)
    }


def lines(measured: Mapping[str, Weight], *, changes: bool = False) -> list[str]:
    """Write the table: a row for each folder, the total without packs, and the total."""
    core = [one for folder, one in measured.items() if folder.split("/")[0] != "packs"]
    totals = {"total without packs": _sum(core), "total": _sum(measured.values())}
    rows = [f"{'folder':24}" + "".join(f"{head:>11}" for head in Weight._fields)]
    for folder, one in {**measured, **totals}.items():
        rows.append(f"{folder:24}" + "".join(f"{figure:{'+' if changes else ''}11,}" for figure in one))
    return rows


def _sum(weights: Iterable[Weight]) -> Weight:
    found = Weight()
    for weight in weights:
        found = found.plus(weight)
    return found


def weight_lines(repository: Path, folder: str, commits: list[str]) -> list[str]:
    """Count the working tree, or what has changed since a commit, or between two."""
    if not commits:
        return lines(by_folder(files_of_tree(repository, folder)))
    before, *later = (by_folder(files_of_commit(repository, commit, folder)) for commit in commits)
    after = later[-1] if later else by_folder(files_of_tree(repository, folder))
    return lines(difference(before, after), changes=True)
