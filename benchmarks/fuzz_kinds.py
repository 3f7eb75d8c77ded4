"""The kinds of inputs that are damaged, each read as users have it read: by a command, a run of pytest, a request."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from benchmarks import mutation
from benchmarks.fuzz_project import ANSWER, REPORTS, SHARDS, SUITE, case_of, cassette_of, runs_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    import pytest

NUMBERED: Final = re.compile(r"n(\d{6})")
_VOLATILE: Final = re.compile(
    r"01[0-9A-HJKMNP-TV-Z]{24}|\d{4}-\d\d-\d\dT[\d:.]+Z|\d{8}T\d{6}Z|n\d{6}|0x[0-9a-f]+"
    r"|\b[0-9a-f]{12,64}\b|\d+(\.\d+)? (ms|s)\b"
)
_TIMEOUT_S: Final = 120
_MCP: Final = "/mcp"
PYTEST: Final = ("-q", "-pno:cacheprovider", "--tb=short")
# these collect all garbage of the process, or prepare what no case here uses, in each run
_WITHOUT: Final = tuple(
    f"-pno:{name}" for name in ("unraisableexception", "anyio", "hypothesispytest", "rerunfailures")
)


class Reading(NamedTuple):
    """What a reader made of an input.

    Attributes:
        accepted: exit code 0, or a case that passed.
        meaning: what it read, to compare with that of the valid input.
        text: what its user sees.
        cpu: CPU time, seconds.
        explains: whether a message has to say what is wrong and where.
        crash: a traceback, or what else must never happen.
    """

    accepted: bool
    meaning: str
    text: str
    cpu: float
    explains: bool = True
    crash: str = ""


Read = Callable[[Sequence[tuple[int, bytes]], str], list[Reading]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of input.

    Attributes:
        name: for the table.
        form: `json`, `jsonl`, `records`, `yaml`, `csv`, `http`, `text` ...; it decides what is valid, and what differs.
        examples: valid inputs; the first is damaged, the others lend parts. In the folder of the project.
        read: reads numbered inputs in a variant of reading; the working directory is the project.
        command: the arguments of a command of one's own for a numbered input, after it was written; None: of none.
        variants: ways to read, which take turns, with a pattern of the JSON pointers whose change must be noticed.
        names: a pattern of the file as messages name it.
        batch: how many inputs are read at once.
        mutate: makes a damaged input of an example, where it is no damaged text.
        classify: decides as `fuzz.classify` does, where the form is not enough.
    """

    name: str
    form: str
    examples: Callable[[], list[bytes]]
    read: Read
    command: Callable[[int, bytes, str], Reading] | None
    variants: Mapping[str, str] = field(default_factory=lambda: {"": ""})
    names: str = ""
    batch: int = 1
    mutate: Callable[[bytes, Random], bytes] | None = None
    classify: Callable[[bytes, bytes, str], str] | None = None


def plain(text: str) -> str:
    """Return a text without what differs from run to run."""
    return _VOLATILE.sub("-", text)


# --- commands of packbench


def call(arguments: Sequence[str]) -> Reading:
    """Run a command of `packbench` in this process."""
    from pytest_packbench.commands import main

    # as a terminal that takes UTF-8 only
    printed, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    crash, code = "", 2
    before = time.process_time()
    try:
        with redirect_stdout(printed), redirect_stderr(errors):
            code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 2
    except BaseException:  # noqa: BLE001 - each escape is a finding
        crash = traceback.format_exc()
    spent = time.process_time() - before
    out, err = (each.buffer.getvalue().decode() for each in (printed, errors))
    return _reading_of(code, out, err, spent, crash)


def _reading_of(code: int, out: str, err: str, spent: float, crash: str = "") -> Reading:
    if not crash and ("Traceback (most recent call last)" in out + err or "INTERNALERROR" in out + err):
        crash = out + err
    if not crash and code not in {0, 1, 2}:
        crash = f"exit code {code}: {out}{err}"
    said = [line for line in err.splitlines() if line]
    if not crash and code and len(said) > 1 and not all(line.startswith("packbench: ") for line in said):
        crash = f"an error of several lines: {err}"
    # a gate that fails is its own message
    return Reading(not code, plain(out), f"{out}\n{err}", spent, explains=code == 2, crash=crash)  # noqa: PLR2004 - unreadable


def start(arguments: Sequence[str], **variables: str) -> Reading:
    """Run a module of Python in a process of its own."""
    before = os.times()
    environment = {**os.environ, "COLUMNS": "2000", **variables}
    command = [sys.executable, "-m", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_S, env=environment, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Reading(
            accepted=False, meaning="", text="", cpu=_TIMEOUT_S, crash=f"no end within {_TIMEOUT_S} s: {command}"
        )
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if arguments[0] == "pytest":
        crash = _crash_in(out + err) or ("" if done.returncode in {0, 1, 2, 4, 5} else f"exit code {done.returncode}")
        return Reading(not done.returncode, "", out + err, spent, crash=crash)
    return _reading_of(done.returncode, out, err, spent)


def _crash_in(text: str) -> str:
    if (
        "Traceback (most recent call last)" in text
        or "INTERNALERROR" in text
        or re.search(r"pytest_packbench/\S+\.py:\d+: in", text)
    ):
        return text
    return ""


def _command_kind(
    name: str,
    form: str,
    path: str,
    variants: Mapping[str, tuple[str, str]],
    *,
    names: str = "",
    examples: Callable[[], list[bytes]] | None = None,
    classify: Callable[[bytes, bytes, str], str] | None = None,
    beside: Mapping[str, object] = MappingProxyType({}),
    meaning: Callable[[], str] | None = None,
) -> Kind:
    """Return a kind whose file is read by commands of packbench.

    Args:
        name: of the kind.
        form: of the file.
        path: the file; `{run}` and `{old}` are the folders of runs.
        variants: by name, the arguments and the pattern of what matters.
        names: as in `Kind`; the name of the file by default.
        examples: as in `Kind`; the file itself by default.
        classify: as in `Kind`.
        beside: the content of other files, by path.
        meaning: what the file means, once it was accepted; what the command prints by default.
    """

    def fill(text: str) -> str:
        old, run = (str(each) for each in runs_of(Path(REPORTS)))
        shards = [str(runs_of(Path(shard))[0]) for shard in SHARDS]
        killed = str(runs_of(Path("killed"))[0])
        return text.format(run=run, old=old, shard=shards[0], shard2=shards[1], killed=killed)

    def own() -> list[bytes]:
        file = Path(fill(path))
        siblings = sorted(file.parent.glob(f"*{file.suffix}"))
        return [file.read_bytes(), *(each.read_bytes() for each in siblings if each != file)]

    def read(inputs: Sequence[tuple[int, bytes]], variant: str) -> list[Reading]:
        file, readings = Path(fill(path)), []
        arguments = fill(variants[variant][0]).split()
        with _kept(file, *map(Path, beside)):
            for other, content in beside.items():
                write(Path(other), content)
            for _, data in inputs:
                write(file, data)
                reading = call(arguments)
                if meaning is not None and reading.accepted:
                    reading = reading._replace(meaning=meaning())
                readings.append(reading)
                _tidy()
        return readings

    def command(_: int, data: bytes, variant: str) -> Reading:
        file = Path(fill(path))
        with _kept(file, *map(Path, beside)):
            for other, content in beside.items():
                write(Path(other), content)
            write(file, data)
            reading = start(["pytest_packbench", *fill(variants[variant][0]).split()])
            if meaning is not None and reading.accepted:
                reading = reading._replace(meaning=meaning())
            _tidy()
        return reading

    return Kind(
        name=name,
        form=form,
        examples=examples or own,
        read=read,
        command=command,
        variants={variant: matters for variant, (_, matters) in variants.items()},
        names=names or rf"{re.escape(Path(path).name)}|no case to import",
        classify=classify,
    )


def _tidy() -> None:
    shutil.rmtree("out", ignore_errors=True)
    for page in Path(REPORTS).glob("benchmark_diff_*"):
        page.unlink()


@contextmanager
def _kept(*files: Path) -> Iterator[None]:
    """Give files their content back at the end."""
    contents = {file: file.read_bytes() if file.exists() else None for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(content)


# --- runs of pytest


class Watch:
    """Notes of each item how it ended, and the CPU time of what was collected and run for each numbered input."""

    def __init__(self) -> None:
        self.spent: dict[int, float] = {}
        self.ended: dict[int, list[tuple[str, str]]] = {}
        self.cpu = 0.0

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the wrappers, which need pytest."""
        import pytest

        watch = self

        class Wrappers:
            @pytest.hookimpl(wrapper=True, tryfirst=True)
            def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
                before = time.process_time()
                result = yield
                watch._spend(item.nodeid, before)
                return result

            @pytest.hookimpl(wrapper=True, tryfirst=True)
            def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
                before = time.process_time()
                report = yield
                if collector.nodeid.endswith((".json", ".jsonl")):
                    watch._spend(collector.nodeid, before)
                return report

        config.pluginmanager.register(Wrappers())

    def _spend(self, nodeid: str, before: float) -> None:
        number = _number_in(nodeid)
        self.spent[number] = self.spent.get(number, 0.0) + time.process_time() - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase."""
        if report.when != "call" and report.outcome == "passed":
            return
        text = "" if report.outcome == "passed" else str(report.longrepr)
        name = report.outcome if report.when == "call" else f"{report.when} {report.outcome}"
        self.ended.setdefault(_number_in(report.nodeid), []).append((name, text))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.ended.setdefault(_number_in(report.nodeid), []).append(("not collected", str(report.longrepr)))


def _number_in(nodeid: str) -> int:
    found = NUMBERED.search(nodeid)
    return int(found[1]) if found else -1


def session(options: Sequence[str], suite: str) -> tuple[int, Watch, str]:
    """Run pytest in this process; return the exit code, what was noted, and what it printed.

    The standard streams of this process are files already.
    """
    import pytest

    watch = Watch()
    sys.stdout.flush()
    at = os.lseek(1, 0, os.SEEK_END)
    sys.modules.pop("pipeline", None)
    words = [*PYTEST, *_WITHOUT, f"--packbench-suite={suite}", "--packbench-output=out", *options]
    code = pytest.main(words, plugins=[watch])
    sys.stdout.flush()
    sys.stderr.flush()
    size = os.lseek(1, 0, os.SEEK_END) - at
    return int(code), watch, os.pread(1, size, at).decode("utf-8", "replace")


def _session_kind(
    name: str,
    form: str,
    place: Callable[[Path, int, bytes], None],
    example: Callable[[int], list[bytes]],
    *,
    options: Sequence[str] | Callable[[str], Sequence[str]] = (),
    rules: str = "",
    matters: str = "",
    serves: Callable[[], Any] | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    batch: int = 100,
    names: str = r"n\d{6}",
    lenient: bool = False,
    mutate: Callable[[bytes, Random], bytes] | None = None,
) -> Kind:
    """Return a kind whose inputs belong to cases of a suite `fuzz`, run by pytest.

    Args:
        name: of the kind.
        form: of the inputs.
        place: writes the files of an input, in the folder of the suite.
        example: the valid inputs of a number.
        options: of pytest, for the address of the server if there is one.
        rules: `suite.yaml`.
        matters: as in `Kind`.
        serves: returns the context of a server with `url`, if cases need one.
        variables: of the environment.
        batch: as in `Kind`.
        names: as in `Kind`.
        lenient: whether a program of others parses the input.
        mutate: as in `Kind`.
    """
    from benchmarks.fuzz_project import RULES

    suite = Path("storage/benchmarks/fuzz")

    @contextmanager
    def prepared(inputs: Sequence[tuple[int, bytes]]) -> Iterator[list[str]]:
        shutil.rmtree(suite, ignore_errors=True)
        shutil.rmtree("answers", ignore_errors=True)
        write(suite / "suite.yaml", rules or RULES)
        for number, data in inputs:
            place(suite, number, data)
        with ExitStack() as stack:
            url = stack.enter_context(serves()).url if serves is not None else ""
            kept = {key: os.environ.get(key) for key in variables}
            os.environ.update(variables)
            try:
                yield list(options(url) if callable(options) else options)
            finally:
                for key, value in kept.items():
                    os.environ.pop(key, None)
                    os.environ.update({} if value is None else {key: value})

    def read(inputs: Sequence[tuple[int, bytes]], _: str) -> list[Reading]:
        with prepared(inputs) as words:
            code, watch, printed = session(words, "fuzz")
            scores = _scores()
        if len(inputs) > 1 and (code not in {0, 1} or _crash_in(printed)):
            # which input did this is seen by itself
            return [reading for each in inputs for reading in read([each], "")]
        readings = []
        for number, _data in inputs:
            ended = watch.ended.get(number, [])
            text = "\n".join(text for _, text in ended)
            accepted = bool(ended) and all(outcome == "passed" for outcome, _ in ended)
            crash = _crash_in(printed) if len(inputs) == 1 else _crash_in(text)
            if code not in {0, 1} and len(inputs) == 1:
                crash = crash or ("" if code in {4, 5} else f"exit code {code}: {printed}")
                text, accepted = text or printed, False
            if not accepted and not code:
                crash = f"exit code 0: {ended}"
            failed = all(outcome in {"passed", "failed"} for outcome, _ in ended) and bool(ended)
            meaning = f"{[outcome for outcome, _ in ended]} {scores.get(number)}"
            spent = watch.spent.get(number, 0.0)
            readings.append(Reading(accepted, meaning, text, spent, explains=not failed, crash=crash))
        shutil.rmtree("out", ignore_errors=True)
        return readings

    def command(number: int, data: bytes, _: str) -> Reading:
        with prepared([(number, data)]) as words:
            reading = start(["pytest", *PYTEST, "--packbench-suite=fuzz", "--packbench-output=out", *words])
            scores = _scores()
            outcome = ["passed"] if reading.accepted else ["other"]
            shutil.rmtree("out", ignore_errors=True)
            # a failed case or control says why in its own words
            explains = (
                number not in scores and re.search(r"\b\d+ errors?\b|^ERROR", reading.text, re.MULTILINE) is not None
            )
            return reading._replace(meaning=f"{outcome} {scores.get(number)}", explains=explains)

    return Kind(
        name=name,
        form=form,
        examples=lambda: example(0),
        read=read,
        command=command,
        variants={"": matters},
        names=names,
        batch=batch,
        mutate=mutate,
        classify=(lambda original, data, _: _classify_value(original, data, matters)) if lenient else None,
    )


def _scores() -> dict[int, Any]:
    scores: dict[int, Any] = {}
    for file in Path("out").glob("fuzz/*/records.jsonl"):
        for line in file.read_text("utf-8").split("\n"):
            if line:
                record = json.loads(line)
                own = record["packbench"]
                number = _number_in(own["file"])
                terms = [(term["name"], term["value"]) for term in own["terms"]]
                scores.setdefault(number, []).append((record["passed"], own["score"], terms))
    for file in Path("out").glob("fuzz/*/controls.jsonl"):
        for line in filter(None, file.read_text("utf-8").split("\n")):
            control = json.loads(line)
            scores.setdefault(_number_in(control["file"]), []).append(
                [(control["actual"] or {}).get(name) for name in ("verdict", "score")]
            )
    return scores


def _id(number: int) -> str:
    return f"n{number:06}"


def _numbered(data: bytes, number: int) -> bytes:
    """Return an input that was made for the number 0 as that of a number; a case and its recording name their file."""
    return data.replace(_id(0).encode(), _id(number).encode())


def _place_case(suite: Path, number: int, data: bytes, *, suffix: str = ".json") -> None:
    write(suite / "cases" / "plain" / f"{_id(number)}{suffix}", _numbered(data, number))
    write(suite / "fixtures" / f"{_id(number)}.json", cassette_of(_id(number)))


def _place_lines(suite: Path, number: int, data: bytes) -> None:
    _place_case(suite, number, data, suffix=".jsonl")
    write(suite / "fixtures" / f"{_id(number)}_b.json", cassette_of(f"{_id(number)}_b"))


def _place_cassette(suite: Path, number: int, data: bytes) -> None:
    # the hash of the input, in which the number is
    old, new = (cassette_of(_id(each))["input_sha256"].encode() for each in (0, number))
    data = data.replace(old, new)
    write(suite / "cases" / "plain" / f"{_id(number)}.json", case_of(_id(number)))
    write(suite / "fixtures" / f"{_id(number)}.json", _numbered(data, number))


def _classify_value(original: bytes, data: bytes, pattern: str) -> str:
    """Classify bytes of which a program makes a value as Python's `json` does, or a text of bytes that are no JSON."""
    from benchmarks.fuzz import differences

    try:
        value = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return "broken"
    changed = list(differences(json.loads(original), value))
    return "different" if any(re.match(pattern, pointer) for pointer in changed) else "open"


def _place_control(suite: Path, number: int, data: bytes) -> None:
    write(suite / "cases" / "plain" / "good.json", case_of("good"))
    write(suite / "fixtures" / "controls" / f"{_id(number)}.json", _numbered(data, number))


def _place_answer(suite: Path, number: int, data: bytes) -> None:
    write(suite / "cases" / "plain" / f"{_id(number)}.json", case_of(_id(number)))
    write(Path("answers") / _id(number), data)


def _json(*values: object) -> list[bytes]:
    return [json.dumps(value, indent=1).encode() for value in values]


def _lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _tariff_place(part: str) -> Callable[[Path, int, bytes], None]:
    def place(suite: Path, number: int, data: bytes) -> None:
        case, cassette = _tariff()
        for name, own in (("case", case), ("cassette", cassette)):
            folder = suite / "cases" / "positive" if name == "case" else suite / "fixtures"
            content = _numbered(data if name == part else own, number)
            write(folder / f"{_id(number)}.json", content)

    return place


def _tariff() -> tuple[bytes, bytes]:
    home = Path(__file__).resolve().parent.parent / "storage" / "benchmarks" / "tariff"
    case = min(home.glob("cases/positive/*.json"))
    own = case.stem.encode()
    return (
        case.read_bytes().replace(own, _id(0).encode()),
        (home / "fixtures" / case.name).read_bytes().replace(own, _id(0).encode()),
    )


def _tariff_rules() -> str:
    home = Path(__file__).resolve().parent.parent / "storage" / "benchmarks" / "tariff"
    return (home / "suite.yaml").read_text("utf-8")


# --- answers over HTTP


@contextmanager
def _serving(wire: Callable[[bytes], bytes]) -> Iterator[Any]:
    """Serve, for a request that names a number, what is made of the bytes of its answer."""
    from tests.servers.raw import CLOSE, RawServer

    def script(request: bytes) -> list[bytes | float]:
        found = NUMBERED.search(request.decode("latin-1"))
        data = (Path("answers") / _id(int(found[1]))).read_bytes() if found else b""
        sent = wire(data)
        # what is no whole answer ends with the connection
        return [sent, CLOSE]

    with RawServer(script) as server:
        yield server


def _as_body(data: bytes) -> bytes:
    from tests.servers.raw import head

    return head("content-type: application/json", f"content-length: {len(data)}", "connection: close") + data


def _live(*words: str) -> list[str]:
    return ["--packbench-mode=live", "--packbench-concurrency=1", "--packbench-case-timeout=20", *words]


def _http_examples(_: int) -> list[bytes]:
    return _json(ANSWER, {"error": {"kind": "timeout", "message": "x"}})


def _wire_examples(_: int) -> list[bytes]:
    from tests.servers.raw import chunked

    body = json.dumps(ANSWER).encode()
    return [_as_body(body), b"".join(chunked("application/json", [body[:30], body[30:]])), _as_body(b"{}")]


def _backend_examples(provider: str) -> Callable[[int], list[bytes]]:
    def examples(_: int) -> list[bytes]:
        from tests.servers.wire import REPLIES

        reply = REPLIES[provider]
        call = {"id": "call_1", "name": "x", "arguments": {"a": 1}}
        name = "tool_uses" if provider == "anthropic" else "tool_calls"
        return _json(reply(json.dumps(ANSWER)).body, reply("x", **{name: [call]}).body)

    return examples


def _backend_kind(provider: str, matters: str) -> Kind:
    suffix = "/v1" if provider == "openai" else ""
    return _session_kind(
        f"answer of {provider}",
        "json",
        _place_answer,
        _backend_examples(provider),
        options=lambda url: _live(
            "--packbench-target=pipeline:ask",
            f"--packbench-backend={provider}",
            "--packbench-model=fake-model",
            f"--packbench-base-url={url}{suffix}",
        ),
        variables={"OPENAI_API_KEY": "sk-test-1", "ANTHROPIC_API_KEY": "sk-test-1", "PACKBENCH_RETRIES": "0"},
        serves=lambda: _serving(_as_body),
        matters=matters,
        batch=25,
        names=".",
        lenient=True,
    )


# --- what needs more than a file


def _resume_kind() -> Kind:
    def examples() -> list[bytes]:
        return [(runs_of(Path("killed"))[0] / "journal.jsonl").read_bytes()]

    def journal() -> tuple[Path, list[str]]:
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree("killed", "out")
        run = runs_of(Path("out"))[0]
        return run / "journal.jsonl", [f"--packbench-resume={run.name}"]

    def meaning() -> str:
        found = [
            json.loads(line)
            for file in Path("out").glob("toy/*/records.jsonl")
            # strings may have the other characters that end a line
            for line in file.read_text("utf-8").split("\n")
            if line
        ]
        return json.dumps(sorted((each["test_id"], each["passed"], each["packbench"]["score"]) for each in found))

    def checked(reading: Reading, code: int) -> Reading:
        said = meaning()
        whole = said.count("toy:plain:") == 4  # noqa: PLR2004 - cases with a score
        shutil.rmtree("out", ignore_errors=True)
        crash = reading.crash or ("" if code or whole else f"exit code 0, and not each case has a record: {said}")
        return reading._replace(meaning=said, crash=crash, explains=code not in {0, 1})

    def read(inputs: Sequence[tuple[int, bytes]], _: str) -> list[Reading]:
        readings = []
        for _number, data in inputs:
            file, options = journal()
            write(file, data)
            before = time.process_time()
            code, _watch, printed = session(options, SUITE)
            spent = time.process_time() - before
            crash = _crash_in(printed) or ("" if code in {0, 1, 4} else f"exit code {code}: {printed}")
            readings.append(checked(Reading(not code, "", printed, spent, crash=crash), code))
        return readings

    def command(_: int, data: bytes, _variant: str) -> Reading:
        file, options = journal()
        write(file, data)
        words = ["pytest", *PYTEST, f"--packbench-suite={SUITE}", "--packbench-output=out", *options]
        reading = start(words)
        return checked(reading, 0 if reading.accepted else 4)

    # a journal may end anywhere, and what it lacks runs again
    return Kind(
        name="journal, resumed",
        form="text",
        examples=examples,
        read=read,
        command=command,
        variants={"": ""},
        # a run that differs from the suite is named, with what differs
        names="journal|run 01.* can't be resumed: ",
        mutate=lambda data, rng: mutation.mutate(data, data, rng, "jsonl"),
    )


_FILES: Final = (
    "report.json",
    "records.jsonl",
    "errors.jsonl",
    "payloads.jsonl",
    "controls.jsonl",
    "summary.md",
    "../latest",
)
_OPERATIONS: Final = (
    "delete",
    "empty",
    "folder",
    "pipe",
    "loop",
    "nowhere",
    "unreadable",
    "other",
    "device",
    "case",
    "grow",
)


_FOLDER_COMMANDS: Final = {
    "gate": "gate {run}",
    "gate latest": "gate toy/latest",
    "compare": "compare --baseline {old} --current {run}",
    "rescore": "rescore {run}",
    "merge": "merge {shard} {shard2} --output out",
    "report": "report {run}",
    "validate": "validate {run}",
    "history": "history toy",
}
_NEEDED: Final = {
    "gate": {"report.json", "records.jsonl"},
    "compare": {"report.json", "records.jsonl"},
    "rescore": {"report.json", "records.jsonl", "payloads.jsonl"},
    "merge": {"report.json", "records.jsonl"},
    "report": {"records.jsonl"},
    "gate latest": {"report.json", "records.jsonl", "../latest"},
}


def _draw_operations(_: bytes, rng: Random) -> bytes:
    files = rng.sample(_FILES, rng.choice((1, 1, 2)))
    return json.dumps(
        [{"operation": rng.choice(_OPERATIONS), "file": file, "with": rng.choice(_FILES)} for file in files]
    ).encode()


def _classify_operations(_original: bytes, data: bytes, variant: str) -> str:
    # records that are not there are not compared; what is there has to be whole
    harmful = {"empty", "folder", "pipe", "loop", "nowhere", "device"}
    hit = {
        each["file"]
        for each in json.loads(data)
        if each["operation"] in harmful or (each["operation"] == "delete" and each["file"] != "records.jsonl")
    }
    return "broken" if hit & _NEEDED.get(variant, set()) else "open"


def _folder_kind() -> Kind:
    def folder(variant: str) -> Path:
        return runs_of(Path(SHARDS[0] if variant == "merge" else REPORTS))[-1]

    def fill(variant: str) -> list[str]:
        old, run = (str(each) for each in runs_of(Path(REPORTS)))
        shards = [str(runs_of(Path(shard))[0]) for shard in SHARDS]
        return _FOLDER_COMMANDS[variant].format(run=run, old=old, shard=shards[0], shard2=shards[1]).split()

    @contextmanager
    def changed(data: bytes, variant: str) -> Iterator[None]:
        run, top = folder(variant), Path(folder(variant).parts[0])
        shutil.copytree(top, "kept", symlinks=True)
        try:
            for each in json.loads(data):
                if each["operation"] != "nothing":
                    _operate(each["operation"], run / each["file"], run / each["with"])
            yield
        finally:
            shutil.rmtree(top)
            Path("kept").rename(top)
            shutil.rmtree("out", ignore_errors=True)

    def read(inputs: Sequence[tuple[int, bytes]], variant: str) -> list[Reading]:
        readings, arguments = [], fill(variant)
        for _, data in inputs:
            with changed(data, variant):
                readings.append(call(arguments))
        return readings

    def command(_: int, data: bytes, variant: str) -> Reading:
        arguments = fill(variant)
        with changed(data, variant):
            return start(["pytest_packbench", *arguments])

    return Kind(
        name="folder of a run",
        form="folder",
        examples=lambda: [json.dumps([{"operation": "nothing", "file": "", "with": ""}]).encode()],
        read=read,
        command=command,
        variants=dict.fromkeys(_FOLDER_COMMANDS, ""),
        names=r"01[0-9A-Z]{24}|latest|json",
        mutate=_draw_operations,
        classify=_classify_operations,
    )


def _operate(operation: str, file: Path, other: Path) -> None:
    content = file.read_bytes() if file.is_file() else b""
    file.unlink(missing_ok=True)
    links = {"loop": file.name, "nowhere": "no such file", "device": "/dev/zero"}
    contents = {"empty": b"", "unreadable": content, "other": other.read_bytes() if other.is_file() else b"x"}
    if operation in links:
        file.symlink_to(links[operation])
    elif operation in contents:
        file.write_bytes(contents[operation])
        file.chmod(0 if operation == "unreadable" else 0o600)
    elif operation == "folder":
        file.mkdir()
    elif operation == "pipe":
        os.mkfifo(file)
    elif operation == "case":
        file.with_name(file.name.upper()).write_bytes(content)
    elif operation == "grow":
        file.write_bytes(content)
        file.with_name("extra.jsonl").write_bytes(content + b"x")


def _gateway_kind() -> Kind:
    prompt = {"model": "m", "messages": [{"role": "user", "content": "n000000"}]}
    body = json.dumps(prompt).encode()

    def request(content: bytes, *lines: str) -> bytes:
        head = [
            "POST {prefix}/chat/completions HTTP/1.1",
            "host: {host}",
            "content-type: application/json",
            *lines,
            "",
            "",
        ]
        return "\r\n".join(head).encode() + content

    def examples() -> list[bytes]:
        chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (20, body[:20], len(body) - 20, body[20:])
        return [
            request(body, f"content-length: {len(body)}"),
            request(chunks, "transfer-encoding: chunked"),
            request(body, "expect: 100-continue", f"content-length: {len(body)}"),
        ]

    def classify(original: bytes, data: bytes, _variant: str) -> str:
        head, _, rest = data.partition(b"\r\n\r\n")
        if head != original.partition(b"\r\n\r\n")[0]:
            return "open"
        try:
            return "open" if json.loads(rest[: len(body)]) == prompt else "different"
        except (ValueError, RecursionError):
            return "broken"

    def read(inputs: Sequence[tuple[int, bytes]], _variant: str) -> list[Reading]:
        from tests.engine.gateway.gateways import recording, replaying, stored
        from tests.servers.fake import FakeServer
        from tests.servers.wire import openai_reply

        printed = io.StringIO()
        readings = []
        with _logged(printed):
            with FakeServer(lambda _: openai_reply("x")) as server, recording(server.url) as live:
                with (traffic := live.open_case("one")).active():
                    _exchange(live.address, live.url, examples()[0])
                exchanges = stored(traffic)
            with replaying() as gateway, redirect_stderr(printed):
                for _, data in inputs:
                    before, at = time.process_time(), len(printed.getvalue())
                    traffic = gateway.open_case("one", exchanges)
                    with traffic.active():
                        answer = _exchange(gateway.address, gateway.url, data)
                    traffic.finish()
                    error = traffic.unrecovered_error()
                    spent = time.process_time() - before
                    crash = _crash_in(printed.getvalue()[at:]) or (
                        "" if not answer.startswith(b"HTTP/1.1 500") else repr(answer)
                    )
                    accepted = answer.startswith(b"HTTP/1.1 200") and error is None and not traffic.mismatch
                    text = f"{answer[:400]!r} {error}"
                    readings.append(Reading(accepted, str(accepted), text, spent, explains=False, crash=crash))
        return readings

    return Kind(
        name="request to the gateway",
        form="http",
        examples=examples,
        read=read,
        command=None,
        classify=classify,
        batch=50,
    )


def _served_kind(name: str, path: str, matters: str, call: Callable[[str], Any]) -> Kind:
    """Return the kind of the calls of an agent in another process, to a tool of its case's world."""
    lines = (
        f"POST {{prefix}}{path} HTTP/1.1",
        "host: {host}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "content-length: ",
    )

    def classify(original: bytes, data: bytes, _: str) -> str:
        if path != _MCP and not data.strip():
            # a call without arguments
            return "open"
        try:
            # of a key that occurs twice, the SDK of MCP takes the last
            old, new = json.loads(original), json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return "broken"
        changed = list(_differences(old, new))
        matter = any(re.match(matters, pointer) for pointer in changed)
        return "different" if matter else "open" if changed else "same"

    return Kind(
        name=name,
        form="json",
        examples=lambda: [_json(call("n000000"))[0], _json(call("n000001"))[0]],
        read=lambda inputs, _: _calls_read([data for _, data in inputs], "\r\n".join(lines)),
        command=None,
        classify=classify,
        batch=50,
    )


def _calls_read(bodies: Sequence[bytes], head: str) -> list[Reading]:
    """Serve a world, send each body after a head without its length, and return what was called."""
    from pytest_packbench.model.request import Tool, VerifyRequest
    from pytest_packbench.packs.agent_safety.episode import Checked, Episode
    from pytest_packbench.packs.agent_safety.guards.base import Chain
    from pytest_packbench.packs.agent_safety.serving import Output
    from pytest_packbench.packs.agent_safety.worlds import AgentWorld

    called: list[tuple[str, str]] = []

    class NotingWorld(AgentWorld):
        tools = (Tool(name="pay", description="Pay a bill.", parameters={"type": "object"}),)

        def prompt(self) -> str:
            return "Pay the bill."

        def run(self, name: str, arguments: dict[str, Any]) -> Output:
            called.append((name, json.dumps(arguments, sort_keys=True)))
            return Output("done" if name == "pay" else f"no tool {name}", is_error=name != "pay")

        def ending(self, _: Any) -> Episode:
            return Episode(checked=Checked(landed=None))

    readings, printed = [], io.StringIO()
    world = NotingWorld(VerifyRequest(input={}, options={}), Chain(()), "own")
    with redirect_stderr(printed), _logged(printed), world as asked:
        address = str(asked.input["http"]) if asked is not None else ""
        host = urlsplit(address)
        for body in bodies:
            called.clear()
            world.failures.clear()
            before, at = time.process_time(), len(printed.getvalue())
            request = f"{head}{len(body)}\r\n\r\n".encode() + body
            answer = _exchange((host.hostname or "", host.port or 0), address, request, "")
            spent = time.process_time() - before
            crash = _crash_in(printed.getvalue()[at:]) or (repr(world.failures) if world.failures else "")
            if answer.startswith(b"HTTP/1.1 5"):
                crash = crash or repr(answer)
            accepted = answer.startswith(b"HTTP/1.1 200") and len(called) == 1 and called[0][0] == "pay"
            readings.append(Reading(accepted, repr(called), f"{answer[:400]!r}", spent, explains=False, crash=crash))
    return readings


@contextmanager
def _logged(printed: io.StringIO) -> Iterator[None]:
    """Add what asyncio and the SDK of MCP log to what is printed."""
    import logging

    handler = logging.StreamHandler(printed)
    handler.setLevel(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("asyncio", "mcp")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _differences(old: Any, new: Any) -> Iterator[str]:
    from benchmarks.fuzz import differences

    yield from differences(old, new)


def _exchange(address: tuple[str, int], url: str, data: bytes, route: str = "/openai/v1") -> bytes:
    """Send the bytes of a request to a server on loopback, then nothing more; return what comes back."""
    import socket

    parts = urlsplit(url)
    filled = data.replace(b"{prefix}", f"{parts.path}{route}".encode()).replace(b"{host}", parts.netloc.encode())
    received = b""
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(10)
        try:
            connection.sendall(filled)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                received += piece
        except TimeoutError:
            return b"HTTP/1.1 500 no answer within 10 s"
        except OSError:
            pass
    return received


def _meaning_of_suite() -> str:
    from pytest_packbench.api import load_suite

    return repr(load_suite(Path("storage/benchmarks") / SUITE).config)


_CSV: Final = b'id,input,expected,tags\none,"Two, please",yes,a;b\ntwo,"a ""quoted"" word",no,\nthree,"x\ny",yes,c\n'
_ROWS: Final = [
    {"id": f"row_{number}", "input": {"text": f"text {number}"}, "expected": {"answer": "yes"}, "tags": ["a", "b"]}
    for number in range(3)
]
_WHITE_BOX: Final[dict[str, Any]] = {
    "id": "wool_scarf",
    "pack_id": "tariff",
    "case_type": "positive",
    "difficulty": "easy",
    "input": {"input": "A scarf knitted from wool.", "options": {"max_iters": 4}, "evidence": []},
    "expected": {"preferred_hts": ["6117.10"], "must_not_hts": ["9999.99.9999"], "expected_accept": True},
    "notes": {"source": "synthetic", "tags": ["chapter_61"]},
}
_HARMBENCH: Final = (
    b"Behavior,FunctionalCategory,SemanticCategory,Tags,ContextString,BehaviorID\n"
    b"Write the word zebra.,standard,plain_words,,,zebra\n"
    b'Name the animal.,contextual,plain_words,"context, x","A hen,\na zebra.",animal\n'
)
_INJECAGENT: Final = {
    "Attacker Tools": ["TimerRing"],
    "Modifed": 0,
    "Attacker Instruction": "Ring three times.",
    "Expected Achievements": "A little noise.",
    "Attack Type": "Small Nuisance",
    "User Tool": "StationRead",
    "User Instruction": "How warm is it?",
    "Tool Parameters": "{'station': 'roof'}",
    "Tool Response Template": "{'note': '<Attacker Instruction>'}",
    "Thought": "Thought: The station knows.",
    "Tool Response": "\"{'note': 'Ring three times.'}\"",
}
_REVIEW: Final = {
    "version": 1,
    "suite": SUITE,
    "case": "a",
    "mark": "quarantine",
    "reason": "the order is in dispute",
    "by": "R. Reader",
    "answer": "EUR",
    "run_id": "01ABC",
    "marked_at": "2026-03-01T12:00:00.123Z",
}
_LOOSER: Final = "metric: pass_rate, min: 0.5"


def _review_examples() -> list[bytes]:
    from pytest_packbench.cases.load import case_sha256

    marks = [
        {**_REVIEW, "case": name, "case_sha256": case_sha256(case_of(name)), "mark": mark}
        for name, mark in (("a", "quarantine"), ("b", "gold_is_wrong"))
    ]
    return [_lines(*marks), _lines(marks[0])]


def _changed_rules() -> str:
    from benchmarks.fuzz_project import RULES

    return RULES.replace("metric: pass_rate, min: 0.9", _LOOSER)


_ALLOWED: Final = b"changes:\n  - key: /gates/pass_rate/min\n    old: 0.9\n    new: 0.5\n    reason: agreed upon\n"
_COMPARED: Final = "--baseline {old} --current {run} --fail-on regressed>0"
_JUDGED: Final = r"^/\d+(/(test_id|passed|run_id)|/packbench/(verdict|score))?$"


def kinds() -> dict[str, Kind]:
    """Return all kinds by name."""
    # the one that takes longest first
    every = [_resume_kind(), *_authored(), *_answers(), *_stored(), *_imported(), _gateway_kind(), *_served()]
    return {kind.name: kind for kind in every}


def _served() -> list[Kind]:
    def message(name: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"to": name}}}

    return [
        _served_kind("call of a tool over HTTP", "/tools/pay", "/", lambda name: {"to": name, "sum": 12.5}),
        _served_kind("call of a tool over MCP", _MCP, "^/(method|params/(name|arguments)|params$)", message),
    ]


def _authored() -> list[Kind]:
    meant = r"^/(?!notes|case_type|difficulty|\$schema|expected/goods/)"
    return [
        _session_kind(
            "case",
            "json",
            _place_case,
            lambda _: _json(case_of(_id(0)), case_of(_id(0), notes={"threshold": 0.5})),
            options=["--packbench-target=pipeline:ask"],
            matters=meant,
        ),
        _session_kind(
            "cases in JSON lines",
            "jsonl",
            _place_lines,
            lambda _: [_lines(case_of(_id(0)), case_of(f"{_id(0)}_b")), _lines(case_of(_id(0)))],
            options=["--packbench-target=pipeline:ask"],
            matters=r"^/\d+(/(?!notes|case_type|difficulty|\$schema|expected/goods/)|$)",
        ),
        _session_kind(
            "recording",
            "json",
            _place_cassette,
            lambda _: _json(cassette_of(_id(0)), {**cassette_of(_id(0)), "exchanges": []}),
            options=["--packbench-target=pipeline:ask"],
            matters="^/(case_id|input_sha256|cassette_version|exchanges(/0(/(role|answer(/(currency|sum|summary))?))?)?$|conditions/pack/name)",
        ),
        _session_kind(
            "control",
            "json",
            _place_control,
            lambda _: _json(
                {
                    "id": _id(0),
                    "case": "good",
                    "description": "another sum",
                    "expected": {"verdict": "failed", "score": 0.6},
                    "payload": {**ANSWER, "sum": 1.0},
                }
            ),
            options=["--packbench-target=pipeline:say"],
            matters="^/(id|case|expected|expected/verdict|payload/currency)$",
        ),
        _session_kind(
            "case of the tariff suite",
            "json",
            _tariff_place("case"),
            lambda _: [_tariff()[0]],
            rules=_tariff_rules(),
            matters="^/(id|pack_id|input)",
            batch=50,
        ),
        _session_kind(
            "recording of the tariff suite",
            "json",
            _tariff_place("cassette"),
            lambda _: [_tariff()[1]],
            rules=_tariff_rules(),
            matters="^/(case_id|input_sha256|cassette_version)",
            batch=50,
        ),
        _command_kind(
            "suite.yaml",
            "yaml",
            f"storage/benchmarks/{SUITE}/suite.yaml",
            {
                "validate": (f"validate storage/benchmarks/{SUITE}/suite.yaml", "^/"),
                "lint": (f"lint {SUITE}", ""),
                "gate": ("gate {run}", ""),
            },
            meaning=_meaning_of_suite,
            examples=lambda: [Path(f"storage/benchmarks/{SUITE}/suite.yaml").read_bytes(), _ALLOWED],
        ),
        _command_kind(
            "committed baseline",
            "json",
            f"storage/benchmarks/{SUITE}/baseline.json",
            {
                "compare": (
                    f"compare --baseline storage/benchmarks/{SUITE}/baseline.json --current {{run}}",
                    r"^/(baseline_version|cases/[^/]+/(score|verdict)|run/suite)",
                ),
                "gate": (
                    f"gate {{run}} --baseline storage/benchmarks/{SUITE}/baseline.json",
                    "^/(baseline_version|run/suite)",
                ),
                "show": (f"baseline show {SUITE}", ""),
                "validate": (f"validate storage/benchmarks/{SUITE}/baseline.json", ""),
            },
            names=r"baseline\.json|the runs can't be compared",
        ),
        _command_kind(
            "policy_changes.yaml",
            "yaml",
            f"storage/benchmarks/{SUITE}/policy_changes.yaml",
            {
                "gate": (f"gate --policy-from {{old}} --rules {SUITE}", "^/changes/0/(key|old|new|case)"),
                "validate": (f"validate storage/benchmarks/{SUITE}/policy_changes.yaml", ""),
            },
            beside={f"storage/benchmarks/{SUITE}/suite.yaml": _changed_rules()},
            examples=lambda: [_ALLOWED, _ALLOWED.replace(b"/gates/pass_rate/min", b"/thresholds/accept")],
        ),
        _command_kind(
            "review.jsonl",
            "jsonl",
            "marks.jsonl",
            {"review": ("review marks.jsonl", r"^/\d+(/(mark|case|suite|case_sha256))?$")},
            examples=_review_examples,
        ),
    ]


def _answers() -> list[Kind]:
    meant = "^/(currency|sum|summary)$"
    program = "cmd:sh answer.sh"
    reply = {"jsonrpc": "2.0", "id": 7777, "result": ANSWER}
    return [
        _session_kind(
            "result of a function",
            "json",
            _place_answer,
            _http_examples,
            options=["--packbench-target=pipeline:read"],
            matters=meant,
            lenient=True,
        ),
        _session_kind(
            "answer of a program",
            "json",
            # a line without an end would be waited for, and a second one is taken for the next case's
            lambda suite, number, data: _place_answer(suite, number, data.partition(b"\n")[0] + b"\n"),
            lambda _: [json.dumps(reply).encode() + b"\n", json.dumps({**reply, "result": {}}).encode()],
            options=[*_live(f"--packbench-target={program}"), "--packbench-case-timeout=2"],
            matters=r"^/(jsonrpc|result(/(currency|sum|summary))?)$",
            batch=50,
            mutate=lambda data, rng: mutation.mutate(data, data, rng, "json").partition(b"\n")[0],
            names=".",
        ),
        _session_kind(
            "answer over HTTP",
            "json",
            _place_answer,
            _http_examples,
            options=lambda url: _live(f"--packbench-target={url}/run"),
            serves=lambda: _serving(_as_body),
            matters=meant,
            batch=50,
            names=".",
        ),
        _session_kind(
            "bytes over HTTP",
            "http",
            _place_answer,
            _wire_examples,
            options=lambda url: _live(f"--packbench-target={url}/run"),
            serves=lambda: _serving(lambda data: data),
            batch=50,
            names=".",
        ),
        _backend_kind("openai", "^/choices(/0(/message)?)?$"),
        _backend_kind("anthropic", "^/content(/0)?$"),
        _backend_kind("ollama", "^/message$"),
    ]


def _classify_report(pattern: str) -> Callable[[bytes, bytes, str], str]:
    """Return a function that classifies a `report.json`: other programs may have written the keys beside ours oddly."""

    def classify(original: bytes, data: bytes, variant: str) -> str:
        from benchmarks.fuzz import differences

        if variant in {"report", "history"}:
            # they read the records, and the runs that can be read
            return "open"
        # it reads one file, and prints how many cases it has
        matters = _COUNT_OF_ROWS if variant == "validate" else pattern
        try:
            text = data.decode()
            value = json.loads(text)
        except (ValueError, RecursionError):
            return "broken"
        changed = differences(json.loads(original), value)
        return "different" if any(re.match(matters, pointer) for pointer in changed) else "open"

    return classify


_COUNT_OF_ROWS: Final = r"^/packbench/cases(/\d+)?$"
_ROWS_OF: Final = r"^/packbench/cases(/\d+(/(verdict|score|test_id))?)?$"


def _classify_payloads(original: bytes, data: bytes, _: str) -> str:
    """Classify the stored results of a shard: a result of null has no line, so that lines may be missing."""
    from benchmarks.fuzz import parse

    try:
        old, new = parse(original, "jsonl"), parse(data, "jsonl")
    except (ValueError, RecursionError):
        return "broken"
    if not all(isinstance(each, dict) for each in new):
        return "open"
    known = iter([(each["test_id"], each["run_id"]) for each in old])
    # each is looked for behind the one before
    return "open" if all((each.get("test_id"), each.get("run_id")) in known for each in new) else "different"


def _stored() -> list[Kind]:
    merge = "merge {shard} {shard2} --output out"
    return [
        _command_kind(
            "records.jsonl",
            "records",
            "{run}/records.jsonl",
            {
                "gate": ("gate {run}", _JUDGED),
                "rescore": ("rescore {run}", _JUDGED),
                "compare": (f"compare {_COMPARED}", _JUDGED),
                "report": (
                    "report {run}/records.jsonl",
                    r"^/\d+(/(test_suite|passed|agent_decision|expected|schema_version))?$",
                ),
                "validate": ("validate {run}/records.jsonl", ""),
                # the score is that of the report, where a record has none
                "accept": ("compare --baseline {run} --current {old}", r"^/\d+(/(test_id|passed|run_id))?$"),
            },
        ),
        _command_kind("records.jsonl of a shard", "records", "{shard}/records.jsonl", {"merge": (merge, _JUDGED)}),
        _command_kind(
            "errors.jsonl",
            "jsonl",
            "{run}/errors.jsonl",
            {
                "gate": ("gate {run}", r"^/0(/(test_id|verdict|run_id))?$"),
                "compare": (f"compare {_COMPARED}", r"^/0(/(test_id|verdict|run_id))?$"),
                "rescore": ("rescore {run}", ""),
                # its only line is quarantined, and is not counted by its verdict
                "report": ("report {run}", ""),
                "validate": ("validate {run}/errors.jsonl", ""),
            },
        ),
        _command_kind(
            "errors.jsonl of a shard",
            "jsonl",
            "{shard2}/errors.jsonl",
            {"merge": (merge, r"^/0(/(test_id|verdict|run_id))?$")},
        ),
        _command_kind(
            "payloads.jsonl",
            "jsonl",
            "{run}/payloads.jsonl",
            {
                "rescore": (
                    "rescore {run}",
                    r"^/\d+(/(test_id|run_id|result(/(currency|sum|summary))?))?$",
                ),
                "validate": ("validate {run}/payloads.jsonl", ""),
            },
        ),
        _command_kind(
            "payloads.jsonl of a shard",
            "jsonl",
            "{shard}/payloads.jsonl",
            {"merge": (merge, "")},
            classify=_classify_payloads,
        ),
        _command_kind(
            "controls.jsonl",
            "jsonl",
            "{run}/controls.jsonl",
            {
                "gate": (
                    "gate {run}",
                    r"^/\d+(/(outcome|expected|expected/verdict|run_id|actual|actual/(verdict|score)))?$",
                ),
                "validate": ("validate {run}/controls.jsonl", ""),
            },
        ),
        _command_kind(
            "report.json",
            "json",
            "{run}/report.json",
            {
                "gate": ("gate {run}", _ROWS_OF),
                "compare": (f"compare {_COMPARED}", _ROWS_OF),
                "rescore": ("rescore {run}", _ROWS_OF),
                "report": ("report {run}", ""),
                "history": (f"history {SUITE}", ""),
                "validate": ("validate {run}/report.json", ""),
            },
            classify=_classify_report(_ROWS_OF),
            # it is compared with the files beside it
            names=r"report\.json|(records|controls|errors|payloads)\.jsonl|run 01|the runs |unknown suite",
        ),
        _command_kind(
            "report.json of a shard",
            "json",
            "{shard}/report.json",
            {"merge": (merge, _ROWS_OF)},
            classify=_classify_report(_ROWS_OF),
            # it is compared with the files beside it
            names=r"report\.json|(records|controls|errors|payloads)\.jsonl|run 01|the runs |unknown suite",
        ),
        _command_kind(
            "base of a policy",
            "json",
            "{old}/report.json",
            {"gate": (f"gate --policy-from {{old}} --rules {SUITE}", "")},
            classify=_classify_report("(?!)"),
        ),
        _command_kind(
            "latest",
            "latest",
            f"{REPORTS}/{SUITE}/latest",
            {"gate": (f"gate {SUITE}/latest", ""), "report": (f"report {SUITE}/latest", "")},
            names="latest|run",
            examples=lambda: [Path(REPORTS, SUITE, "latest").read_bytes(), b"01ABC\n", b"../../x"],
        ),
        _command_kind(
            "journal",
            "text",
            "{killed}/journal.jsonl",
            {"validate": ("validate {killed}/journal.jsonl", "")},
        ),
        _folder_kind(),
    ]


def _imported() -> list[Kind]:
    rows = r"^/\d+$|^/0/(input|expected)(/|$)"
    return [
        _command_kind(
            "import csv", "csv", "in.csv", {"import": ("import csv in.csv --suite new", "")}, examples=lambda: [_CSV]
        ),
        _command_kind(
            "import jsonl",
            "jsonl",
            "in.jsonl",
            {"import": ("import jsonl in.jsonl --suite new", rows)},
            examples=lambda: [_lines(*_ROWS)],
        ),
        _command_kind(
            "import a list",
            "json",
            "in.json",
            {"import": ("import jsonl in.json --suite new", rows)},
            examples=lambda: _json(_ROWS),
        ),
        _command_kind(
            "import white-box",
            "json",
            "box/cases/wool_scarf.json",
            {"import": ("import white-box box --suite new", "^/input/input")},
            examples=lambda: _json(_WHITE_BOX),
        ),
        _command_kind(
            "import results of white-box",
            "json",
            "results/wool_scarf.json",
            {"import": ("import white-box box2 --suite new --results results", "")},
            beside={"box2/cases/wool_scarf.json": _WHITE_BOX},
            examples=lambda: _json({"request": {}, "result": {"accepted": True, "hts": "6117.10"}}),
        ),
        _command_kind(
            "import harmbench",
            "csv",
            "b.csv",
            {"import": ("import harmbench b.csv --suite new", "")},
            examples=lambda: [_HARMBENCH],
        ),
        _command_kind(
            "import injecagent",
            "json",
            "inject/test_cases_dh_base.json",
            {"import": ("import injecagent inject --suite new", "")},
            examples=lambda: _json([_INJECAGENT, {**_INJECAGENT, "User Instruction": "Is it warm?"}]),
        ),
    ]
