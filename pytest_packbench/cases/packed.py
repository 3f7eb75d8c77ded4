"""The packed form of a suite: the JSON files of a folder as lines of one file.

`cases/<case type>/<id>.json` become the lines of `cases/cases.jsonl`, `fixtures/<id>.json` those of
`fixtures/recordings.jsonl`, and `fixtures/controls/<id>.json` those of `fixtures/controls/controls.jsonl`; other files
stay as they are. The build of the wheel packs the bundled suites, so that an installation has few files. It runs this
module before the package is installed: only the standard library is imported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
