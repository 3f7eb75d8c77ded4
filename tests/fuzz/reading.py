"""Read a file as users have it read, by a command or by pytest, and judge what came of it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings

from pytest_packbench.commands import main
from tests.fuzz.damage import MOST_BRACKETS, differences, parse
from tests.fuzz.project import REPORTS, SHARDS, runs_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.fuzz.kinds import Kind

_VOLATILE = re.compile(
    r"01[0-9A-HJKMNP-TV-Z]{24}|\d{4}-\d\d-\d\dT[\d:.]+Z|\d{8}T\d{6}Z|0x[0-9a-f]+|\b[0-9a-f]{12,64}\b|\d+(\.\d+)? (ms|s)\b"
)
_PLACE = re.compile(
    r":\d+|line \d|column \d|character \d|byte \d|position \d|\[\d+\]|: /|/\w+: |\bkey\b|no column|missing"
    r"|contains no|no mark|expected an? (object|list|array|mapping)|empty|larger|longer|nested|truncated|not JSON"
    r"|values|several kinds|named pipe|device|folder|directory|[Ll]oop|levels of symbolic|such file|[Pp]ermission"
    r"|other controls|a valid string|expected one of them|no cassette|call \d|made only \d|no records"
    r"|thousands of digits|no number of JSON|expected a run of|can't be compared|can't be the baseline|\w\.\w+ is "
    r"|suite_sha256 is |not found: the run stored|: the result of \S|follows .*; expected cases sorted"
    r"|case \S+ is not the one|can't be resumed: |the runs do not belong together|settings\.shard: "
    r"|run \w+: the suite has no case |unknown suite \"|run \w+ is shard |the suite of the runs had |the record of x"
    r"|no case to import|has no header|no shard|expected one column|\w:\w+ is there twice; restore"
)


def tries() -> settings:
    """Return how often a test tries: a tenth of the profile of the session, and the same each time without one."""
    most = settings.get_current_profile_name(), settings().max_examples
    return settings(
        max_examples=most[1] // 10,
        derandomize=most[0] != "fuzz",
        deadline=None,
        database=None,
        # the smallest example takes minutes to find
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )


class Reading(NamedTuple):
    """What a reader made of an input.

    Attributes:
        code: the exit code; None for an exception.
        meaning: what it read, to compare with that of the valid input.
        text: what its user sees.
        messages: the errors of the text, each in a line that names the file.
    """

    code: int | None
    meaning: str
    text: str
    messages: list[str]


class Project:
    """A project in the working directory, and how its files are read."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        old, run = (str(each) for each in runs_of(Path(REPORTS)))
        shard, shard2 = (str(runs_of(Path(each))[0]) for each in SHARDS)
        self._runs = {
            "old": old,
            "run": run,
            "shard": shard,
            "shard2": shard2,
            "killed": str(runs_of(Path("killed"))[0]),
        }
        self._pytester = pytester

    def fill(self, text: str) -> str:
        """Put the folders of runs into a text."""
        return text.format(**self._runs)

    def valid(self, kind: Kind) -> bytes:
        """Return the valid file of a kind, which is written where the project has none, with what is beside it."""
        for other, text in kind.beside.items():
            write(Path(other), text)
        path, content = Path(self.fill(kind.path)), kind.valid() if callable(kind.valid) else kind.valid
        return (path if content is None else write(path, content)).read_bytes()

    def read(self, command: str) -> Reading:
        """Run a command of packbench, or pytest, in this process."""
        name, *arguments = self.fill(command).split()
        try:
            return self.run(arguments) if name == "pytest" else call([name, *arguments])
        finally:
            shutil.rmtree("out", ignore_errors=True)
            for page in Path(REPORTS).glob("benchmark_diff_*"):
                page.unlink()

    def run(self, arguments: list[str]) -> Reading:
        """Run pytest; the meaning is how each case ended."""
        with kept("killed"):
            ran = self._pytester.runpytest_inprocess("-q", "-pno:cacheprovider", "-pno:unraisableexception", *arguments)
            found = [
                json.loads(line) for name in ("records", "errors", "controls") for line in _newest(f"{name}.jsonl")
            ]
        ends = sorted(str(end_of(each)) for each in found)
        text = f"{ran.stdout}\n{ran.stderr}"
        messages = [line for line in text.splitlines() if re.match(r"(E  |ERROR: |packbench: )", line)]
        return Reading(int(ran.ret), "\n".join(ends), text, messages)


def end_of(line: dict[str, Any]) -> list[Any]:
    """Return what a line of a run says of the end of a case or a control."""
    own = line.get("packbench", line)
    terms = [(term["name"], term["value"]) for term in own.get("terms", ())]
    words = ("control", "test_id", "trial", "passed", "kind", "expected", "outcome")
    return [*(line.get(word) for word in words), own.get("verdict"), own.get("score"), own.get("actual"), terms]


def _newest(name: str) -> Iterator[str]:
    for file in [*Path("out").glob(f"*/*/{name}"), *Path("killed").glob(f"*/*/{name}")]:
        # strings may have the other characters that end a line
        yield from filter(None, file.read_text("utf-8").split("\n"))


def call(arguments: list[str]) -> Reading:
    """Run a command of packbench, printing to what takes UTF-8 only."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: int | None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 2
    except BaseException:  # noqa: BLE001 - each escape is a finding
        code = None
        err.write(traceback.format_exc())
    printed, said = (each.buffer.getvalue().decode() for each in (out, err))
    messages = [
        line for line in (said + (printed if arguments[0] in {"import", "validate"} else "")).splitlines() if line
    ]
    return Reading(code, _VOLATILE.sub("-", printed), f"{printed}\n{said}", messages)


@contextmanager
def kept(path: str) -> Iterator[None]:
    """Give a folder or a file its content back at the end."""
    place, copy = Path(path), Path(f"kept_{os.path.basename(path)}")  # noqa: PTH119 - of a text
    if place.is_dir():
        shutil.copytree(place, copy, symlinks=True)
    elif place.exists():
        shutil.copy(place, copy)
    try:
        yield
    finally:
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        if copy.exists():
            copy.rename(place)


def group_of(kind: Kind, original: bytes, data: bytes, pattern: str) -> str:
    """Return whether an input is `broken`, `different` in what must be noticed, or `open`: neither, or not known."""
    if kind.form not in {"json", "jsonl", "yaml"} or data.count(b"[") + data.count(b"{") > MOST_BRACKETS:
        return "open"
    try:
        new = parse(data, kind.form)
    except (ValueError, RecursionError):
        return "broken"
    old = parse(original, kind.form)
    if kind.form == "jsonl" and sorted(map(str, old)) == sorted(map(str, new)):
        # another order of lines
        return "open"
    changed = differences(old, new)
    return "different" if pattern and any(re.match(pattern, each) for each in changed) else "open"


def judge(kind: Kind, command: str, group: str, reading: Reading, valid: Reading) -> None:
    """Check what must never happen."""
    text = reading.text[-1500:]
    assert reading.code in {0, 1, 2, 4, 5}, text
    assert "Traceback (most recent call last)" not in reading.text, text
    assert "INTERNALERROR" not in reading.text, text
    assert not re.search(r"pytest_packbench/\S+\.py:\d+: in", reading.text), text
    if group == "broken" and (kind.strict is None or command.partition(" ")[0] in kind.strict):
        assert reading.code, f"a broken input is accepted: {text}"
    if group == "different":
        assert reading.code or reading.meaning != valid.meaning, f"a different input has the same result: {text}"
    if reading.code == 2 or (reading.code and reading.code > 2):
        assert re.search(kind.pattern(), "\n".join(reading.messages)), f"a message without the file: {text}"
        assert _PLACE.search("\n".join(reading.messages)), f"a message without the place: {text}"
