"""What is no file, too large or too deep, in the place of each kind of input: one message, no waiting, never exit 0."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import schedule
from pytest_packbench import policy
from pytest_packbench.commands import main
from pytest_packbench.engine.live_models import AnswerCache
from pytest_packbench.files import LIMITS
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.report import PolicyError
from pytest_packbench.testing import case, write_case
from tests.unit.run_builders import case_result
from tests.unit.stored_runs import run_of, suite, write

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = "01KZZZZZZZZZZZZZZZZZZZZZZZ"
FOLDER = f"reports/toy/{RUN}"
TOY = "storage/toy"
ROOT = ["--root", "storage"]
ALIASES = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(11)
)
# the file, the command that reads it, and the limit of its size where reading it up to there takes no time
COMMANDS: dict[str, tuple[str, list[str], str]] = {
    "case": (f"{TOY}/cases/plain/a.json", ["validate", "FILE"], "case"),
    "cases": (f"{TOY}/cases/plain/many.jsonl", ["validate", "FILE"], ""),
    "recording": (f"{TOY}/fixtures/a.json", ["validate", "FILE"], "recording"),
    "control": (f"{TOY}/fixtures/controls/c.json", ["validate", "FILE"], "recording"),
    "suite.yaml": (f"{TOY}/suite.yaml", ["validate", "FILE"], "suite.yaml"),
    "policy_changes.yaml": (f"{TOY}/policy_changes.yaml", ["validate", "FILE"], "policy_changes.yaml"),
    "baseline.json": (f"{TOY}/baseline.json", ["baseline", "show", "toy", *ROOT], "baseline.json"),
    "lint of a case": (f"{TOY}/cases/plain/a.json", ["lint", "toy", *ROOT], "case"),
    "lint of a recording": (f"{TOY}/fixtures/only.json", ["lint", "toy", *ROOT], "recording"),
    "gate": (f"{FOLDER}/records.jsonl", ["gate", FOLDER, *ROOT], "record"),
    "gate of a report": (f"{FOLDER}/report.json", ["gate", FOLDER, *ROOT], ""),
    "compare": (f"{FOLDER}/records.jsonl", ["compare", "--baseline", FOLDER, "--current", FOLDER, *ROOT], "record"),
    "rescore": (f"{FOLDER}/payloads.jsonl", ["rescore", FOLDER, *ROOT], ""),
    "merge": (f"{FOLDER}/records.jsonl", ["merge", FOLDER, *ROOT, "--output", "merged"], "record"),
    "merge of errors": (f"{FOLDER}/errors.jsonl", ["merge", FOLDER, *ROOT, "--output", "merged"], "record"),
    "records": ("records.jsonl", ["report", "FILE"], "record"),
    "journal": ("journal.jsonl", ["validate", "FILE"], ""),
    "history": (f"{FOLDER}/report.json", ["history", "toy", "--output", "reports"], ""),
    "latest": ("reports/toy/latest", ["gate", "reports/toy/latest", *ROOT], "latest"),
    "review": ("review.jsonl", ["review", "FILE", *ROOT], "review"),
    "import csv": ("in.csv", ["import", "csv", "FILE", "--suite", "toy", *ROOT], ""),
    "import jsonl": ("in.jsonl", ["import", "jsonl", "FILE", "--suite", "toy", *ROOT], "case"),
    "import harmbench": ("in.csv", ["import", "harmbench", "FILE", "--suite", "harm", *ROOT], "import"),
    "import injecagent": (
        "inject/test_cases_dh_base.json",
        ["import", "injecagent", "inject", "--suite", "inject", *ROOT],
        "import",
    ),
    "import white-box": (
        "box/cases/gri/a.json",
        ["import", "white-box", "box", "--suite", "box", *ROOT],
        "import",
    ),
}
HOSTILE: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "deep": lambda path: path.write_bytes(b"[" * 200 + b"]" * 200 + b"\n"),
    "aliases": lambda path: path.write_bytes(ALIASES),
    "not UTF-8": lambda path: path.write_bytes(b'{"id": "\xff\xfe"}\n'),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a suite and a stored run, whose files the tests replace one after another."""
    root = tmp_path_factory.mktemp("project")
    storage = suite(root)
    write_case(storage / "toy", case("a", pack_id="generic", case_type="plain", input={"q": 1}, expected={}))
    results = [case_result("a"), case_result("b", verdict="error")]
    write(root / "reports", run_of(storage, run_id=RUN), results, storage)
    return root


def with_hole(size: int, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@contextlib.contextmanager
def replaced(path: Path, make: Callable[[Path], Any]) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    path.unlink(missing_ok=True)
    make(path)
    yield
    path.rmdir() if path.is_dir() else path.unlink()
    if before is not None:
        path.write_bytes(before)


@pytest.mark.parametrize("kind", COMMANDS)
def test_no_hostile_file_holds_breaks_or_pleases_a_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, kind: str, yardstick: float
) -> None:
    name, arguments, limit = COMMANDS[kind]
    monkeypatch.chdir(project)
    hostile = dict(HOSTILE)
    if limit:
        # a file with a hole takes no space
        hostile["large"] = partial(with_hole, LIMITS[limit].size + 1)
    for what, make in hostile.items():
        output, before = io.StringIO(), time.process_time()
        with replaced(project / name, make), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main([name if word == "FILE" else word for word in arguments])
        text = output.getvalue()
        shown = f"{kind}, {what}: {code} {text[:500]}"
        assert time.process_time() - before < 150 * yardstick, shown
        assert code in {1, 2}, shown
        assert "Traceback" not in text, shown
        # a folder is taken for one of cases
        assert Path(name).name in text or Path(name).parent.name in text or what == "folder", shown
        assert all(len(line) < 2100 for line in text.splitlines()), shown


def test_a_report_may_be_a_link_to_anywhere_unlike_a_file_of_a_suite(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    for name, content, code, said in (
        (
            "report.json",
            (project / FOLDER / "report.json").read_text("utf-8"),
            0,
            "report of a run, version 1, 2 cases",
        ),
        ("other.json", '{"word": "unseen"}', 2, "is a link that leaves the project; replace it by a copy"),
        ("other.jsonl", '{"word": "unseen"}', 2, "is a link that leaves the project; replace it by a copy"),
    ):
        (tmp_path / name).write_text(content, "utf-8")
        link = f"{TOY}/linked{Path(name).suffix}"
        with replaced(project / link, partial(os.symlink, tmp_path / name)):
            assert main(["validate", link]) == code
        out, _ = capsys.readouterr()
        assert said in out
        assert "unseen" not in out


def test_output_that_nobody_reads_is_no_success(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["validate", TOY]) == 2
        # what follows goes nowhere
        output.write("more\n")


def test_a_schedule_that_stands_for_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hts.json.gz"
    path.write_bytes(gzip.compress(b"x" * 100_000))
    monkeypatch.setattr(schedule, "_LIMIT", LIMITS["schedule"]._replace(size=10_000))
    with pytest.raises(schedule.ScheduleError, match="it is larger than 10,000 bytes when it is decompressed"):
        schedule.Schedule.read(path)
    path.write_bytes(gzip.compress(os.urandom(5000))[:-3000] + bytes(3000))
    with pytest.raises(schedule.ScheduleError, match="not a tariff schedule: "):
        schedule.Schedule.read(path)
    for make in (os.mkfifo, lambda pipe: pipe.symlink_to("/dev/zero")):
        with replaced(path, make), pytest.raises(OSError, match=r"is a (named pipe|device), not a file"):
            schedule.Schedule.read(path)


def test_a_cached_answer_that_is_no_file_counts_as_missing(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, {}, Redactor({}))
    key = {"request": 1}
    path = cache._path(key)  # noqa: SLF001 - where the answer of a key is
    for make in (os.mkfifo, Path.mkdir, partial(with_hole, LIMITS["cached answer"].size + 1)):
        with replaced(path, make):
            assert cache.load(key) is None


def test_a_file_of_a_commit_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.json").write_text("x" * 100, "utf-8")
    (tmp_path / "small.json").write_text("x", "utf-8")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(policy, "_FILE_LIMIT", LIMITS["policy"]._replace(size=50))
    with policy.commit_folder(tmp_path, "HEAD") as commit:
        assert commit.unpack("small.json").read_bytes() == b"x"
        with pytest.raises(
            PolicyError, match=r"^large\.json: in HEAD it is larger than 50 bytes; split it into several"
        ):
            commit.unpack("large.json")
