"""Damage every kind of input in seeded ways, let its readers read it, and count what must never happen.

    python -m benchmarks.fuzz [--inputs N] [--by-command N] [--seed S] [--kind K] [--jobs N] [--json FILE] [--show N]

Each kind has a valid input, which must be accepted. It is damaged in N ways (20,000 by default), and read in this
process as its users have it read: by the function of a command of `packbench`, by a run of pytest, or by a request. N
more (20) are read by a process of their own. A damaged input is

- broken: it is not JSON, YAML or UTF-8, has a key twice, or lacks a file that is needed. It may not be accepted.
- different: it differs in a part whose change has to be noticed. It may not be accepted with the same meaning.
- the same, or open: it differs only in bytes, or in parts whose change may go unnoticed.

For each input: no traceback and no end other than that of the command; a message in one line, which names the file and
the place; CPU time of at most ten times the median of its kind and reader. Medians under 5 ms count as 5 ms, and an
input that takes longer is read twice more: the fastest counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from benchmarks.fuzz_kinds import kinds
from benchmarks.fuzz_project import make_project
from benchmarks.mutation import attacks, mutate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.fuzz_kinds import Kind, Reading

INPUTS, BY_COMMAND, SEED = 20_000, 20, "1"
RATIO, FLOOR_S = 10.0, 0.005
"""The largest CPU time as a multiple of the median, and the smallest median, seconds."""
_MOST_BRACKETS = 500
HANGS_S = 180.0
"""A process that writes nothing for so long hangs, seconds."""
_PLACE: Final = re.compile(
    r":\d+|line \d|column \d|character \d|byte \d|position \d|\[\d+\]|: /|/\w+: |\bkey\b|no column|missing"
    r"|contains no|no mark|expected an? (object|list|array|mapping)|empty|larger|longer|nested|truncated|not JSON"
    r"|values|several kinds|named pipe|device|folder|directory|[Ll]oop|levels of symbolic|such file|[Pp]ermission"
    r"|other controls|a valid string|expected one of them|no cassette|call \d|made only \d|no records"
    r"|thousands of digits|no number of JSON|expected a run of|can't be compared|can't be the baseline|\w\.\w+ is "
    r"|suite_sha256 is |not found: the run stored|: the result of \S|follows .*; expected cases sorted"
    r"|case \S+ is not the one|can't be resumed: |the runs do not belong together|settings\.shard: "
    # the place is a run, and its case or suite
    r"|run \w+: the suite has no case |unknown suite \"|run \w+ is shard |the suite of the runs had |the record of x"
    r"|no case to import|\w:\w+ is there twice; restore"
)


@dataclass
class Tally:
    """The counts of one kind.

    Attributes:
        counts: inputs by class, and how many of them were accepted.
        spent: CPU times by reader, seconds.
        findings: what must never happen, with the number of the input.
        ratio: the largest CPU time as a multiple of the median.
        by_command: how many were read by processes of their own.
    """

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    ratio: float = 0.0
    by_command: int = 0


def classify(kind: Kind, original: bytes, data: bytes, variant: str) -> str:
    """Return `valid`, `same`, `open`, `different` or `broken`."""
    if data == original:
        return "valid"
    if kind.classify is not None:
        return kind.classify(original, data, variant)
    # too deep for PyYAML, unless it is the text of a scalar
    is_deep = kind.form == "yaml" and data.count(b"[") + data.count(b"{") > _MOST_BRACKETS
    if is_deep or kind.form not in {"json", "jsonl", "records", "yaml"}:
        return "open"
    try:
        new = parse(data, kind.form)
    except (ValueError, RecursionError):
        return "broken"
    old, pattern = parse(original, kind.form), kind.variants[variant]
    if kind.form in {"jsonl", "records"} and set(map(_canonical, old)) == set(map(_canonical, new)):
        return "open"
    changed = list(differences(old, new))
    matters = pattern and any(re.match(pattern, pointer) for pointer in changed)
    # an import tells 4.0 from 4
    is_same = not changed and (not kind.name.startswith("import ") or _canonical(old) == _canonical(new))
    return "different" if matters else "same" if is_same else "open"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def parse(data: bytes, form: str) -> Any:
    """Parse an input by the standard library and PyYAML, strictly.

    Raises:
        ValueError: it is broken.
    """
    if form == "yaml":
        import yaml

        try:
            text = data.decode("utf-8-sig")
            return yaml.safe_load(text)
        except (yaml.YAMLError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
    if form == "json":
        return _parse_json(data.decode("utf-8-sig"))
    if form in {"jsonl", "records"}:
        # files with a byte order mark may have been joined
        lines = [line.removeprefix(b"\xef\xbb\xbf") for line in data.split(b"\n")]
        # as the Rust reader does: any white space around a line
        texts = [text for line in lines if (text := line.decode().strip())]
        return [_parse_record(text) if form == "records" else _parse_json(text) for text in texts]
    data.decode()
    return None


def _parse_record(text: str) -> Any:
    record = _parse_json(text, lenient=True)
    # what the Rust reader takes where none is given
    return {"schema_version": 1, **record} if isinstance(record, dict) else record


def _parse_json(text: str, *, lenient: bool = False) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # of the object `packbench` in a record, the last value counts; the Rust reader reads nothing of it
        if len(dict(pairs)) != len(pairs) and (not lenient or "schema_version" in dict(pairs)):
            raise ValueError("a key twice")
        return dict(pairs)

    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def differences(old: Any, new: Any, pointer: str = "") -> Iterable[str]:
    """Yield the JSON pointers of the nodes that differ; `1` and `1.0` are the same number."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if key in old and key in new:
                yield from differences(old[key], new[key], f"{pointer}/{key}")
            else:
                yield f"{pointer}/{key}"
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index < min(len(old), len(new)):
                yield from differences(old[index], new[index], f"{pointer}/{index}")
            else:
                yield f"{pointer}/{index}"
    elif isinstance(old, bool) is not isinstance(new, bool) or old != new:
        yield pointer or "/"


def problems(kind: Kind, group: str, reading: Reading, valid: str) -> list[str]:
    """Return what must never happen, of one input.

    Args:
        kind: the kind.
        group: what `classify` says of the input.
        reading: what its reader made of it.
        valid: the meaning of the valid input.
    """
    found = []
    if reading.crash:
        found.append(f"crash: {reading.crash[-1500:]}")
    if group == "valid" and not reading.accepted:
        found.append(f"the valid input is not accepted: {reading.text[-600:]}")
    if group == "broken" and reading.accepted:
        found.append("a broken input is accepted")
    if group == "different" and reading.accepted and reading.meaning == valid:
        found.append("a different input has the same result")
    if group == "same" and reading.accepted and reading.meaning != valid:
        lines = set(reading.meaning.splitlines()) ^ set(valid.splitlines())
        found.append(f"the same input has another result: {' | '.join(sorted(lines))[:600]}")
    if not reading.crash and not reading.accepted and reading.explains:
        if kind.names and not re.search(kind.names, reading.text):
            found.append(f"a message without the file: {reading.text.strip()[:400]}")
        elif not _PLACE.search(reading.text):
            found.append(f"a message without the place: {reading.text.strip()[:400]}")
    return found


def inputs_of(kind: Kind, examples: Sequence[bytes], seed: str, number: int) -> bytes:
    """Return an input by its number; 0 is the valid one."""
    first = examples[0]
    if not number:
        return first
    rng = Random(f"{seed}:{kind.name}:{number}")  # noqa: S311 - repeatable
    if kind.mutate is not None:
        return kind.mutate(first, rng)
    tried = attacks(first)
    if number <= len(tried):
        return tried[number - 1]
    return mutate(first, rng.choice(examples), rng, "jsonl" if kind.form == "records" else kind.form)


@dataclass
class Trial:
    """A kind that is tried.

    Attributes:
        kind: the kind.
        seed: of the damage.
        file: where findings and counts are written.
        examples: valid inputs.
        valid: the meaning of the valid input, by variant.
        spent: CPU time and number of each input, by variant.
    """

    kind: Kind
    seed: str
    file: TextIO
    examples: list[bytes]
    valid: dict[str, str] = field(default_factory=dict)
    spent: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def data(self, number: int) -> bytes:
        """Return an input."""
        return inputs_of(self.kind, self.examples, self.seed, number)

    def note(self, number: int, variant: str, how: str, problem: str) -> None:
        """Write a finding."""
        about = {"kind": self.kind.name, "variant": variant, "number": number, "how": how, "problem": problem}
        self.file.write(json.dumps({**about, "input": self.data(number)[:2000].decode("latin-1")}) + "\n")

    def judge(self, numbers: Sequence[int], readings: Sequence[Reading], variant: str, how: str) -> None:
        """Write the counts of some inputs, and what must never happen."""
        counts: Counter[str] = Counter()
        for number, reading in zip(numbers, readings, strict=True):
            group = classify(self.kind, self.examples[0], self.data(number), variant)
            counts[group] += 1
            counts[f"{group}, accepted"] += reading.accepted
            for problem in problems(self.kind, group, reading, self.valid[variant]):
                self.note(number, variant, how, problem)
        self.file.write(json.dumps({"counts": counts, "how": how}) + "\n")

    def read(self, variant: str, numbers: Sequence[int]) -> None:
        """Read inputs in this process."""
        for start in range(0, len(numbers), self.kind.batch):
            batch = numbers[start : start + self.kind.batch]
            # the garbage of earlier inputs is not this one's time
            if not start % 200:
                gc.collect()
            readings = self.kind.read([(number, self.data(number)) for number in batch], variant)
            self.judge(batch, readings, variant, "in process")
            spent = [(reading.cpu, number) for reading, number in zip(readings, batch, strict=True)]
            self.spent.setdefault(variant, []).extend(spent)

    def worst_ratio(self) -> float:
        """Return the largest CPU time as a multiple of its median; inputs that seem slow are read again."""
        worst = 0.0
        for variant, times in self.spent.items():
            median = max(FLOOR_S, statistics.median(each for each, _ in times))
            for cpu, number in sorted(times, reverse=True)[:200]:
                fastest = cpu
                if cpu > RATIO * median:
                    again = [self.kind.read([(number, self.data(number))], variant)[0].cpu for _ in range(2)]
                    fastest = min(cpu, *again)
                worst = max(worst, fastest / median)
                if fastest > RATIO * median:
                    self.note(number, variant, "in process", f"slow: {fastest:.3f} s, the median is {median:.4f} s")
        return worst


def try_kind(kind: Kind, seed: str, count: int, by_command: int, log: Path) -> None:
    """Read the inputs of a kind, and write a line for each finding and each batch."""
    variants = list(kind.variants)
    with log.open("a", encoding="utf-8", buffering=1) as file:
        trial = Trial(kind=kind, seed=seed, file=file, examples=kind.examples())
        for variant in variants:
            (first,) = kind.read([(0, trial.examples[0])], variant)
            trial.valid[variant] = first.meaning
            trial.judge([0], [first], variant, "in process")
        for index, variant in enumerate(variants):
            trial.read(variant, [number for number in range(1, count + 1) if number % len(variants) == index])
        file.write(json.dumps({"ratio": trial.worst_ratio()}) + "\n")
        for position in range(by_command):
            if kind.command is None:
                break
            variant = variants[position % len(variants)]
            # the valid one, then half are attacks, half are drawn
            number = position if position % 2 or not position else 10_000 + position
            trial.judge([number], [kind.command(number, trial.data(number), variant)], variant, "by command")
        file.write(json.dumps({"end": True}) + "\n")


def _child(kind: Kind, arguments: argparse.Namespace, project: Path, work: Path, log: Path) -> NoReturn:
    """Try a kind in a process and a copy of the project of its own."""
    code = 1
    try:
        printed = os.open(work.with_suffix(".out"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise
        shutil.copytree(project, work)
        os.chdir(work)
        sys.path.append(str(work))
        try_kind(kind, arguments.seed, arguments.inputs, arguments.by_command, log)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent prints it
        with log.open("a", encoding="utf-8") as file:
            line = {
                "kind": kind.name,
                "variant": "",
                "number": -1,
                "how": "",
                "problem": traceback.format_exc(),
                "input": "",
            }
            file.write(json.dumps(line) + "\n")
    finally:
        # this process is a copy and must not end anything that belongs to the original
        os._exit(code)


def run_kinds(chosen: Sequence[Kind], arguments: argparse.Namespace, folder: Path) -> dict[str, Tally]:
    """Try kinds, some at once, each in a process of its own; one that hangs is ended and reported."""
    project = make_project(folder / "project")
    waiting = list(chosen)
    running: dict[int, tuple[Kind, Path]] = {}
    tallies: dict[str, Tally] = {}
    try:
        _run_kinds(waiting, running, tallies, arguments, project)
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
    return tallies


def _run_kinds(
    waiting: list[Kind],
    running: dict[int, tuple[Kind, Path]],
    tallies: dict[str, Tally],
    arguments: argparse.Namespace,
    project: Path,
) -> None:
    folder = project.parent
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            kind = waiting.pop(0)
            name = re.sub(r"\W+", "_", kind.name)
            log = folder / f"{name}.jsonl"
            log.touch()
            child = os.fork()
            if not child:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                _child(kind, arguments, project, folder / name, log)
            running[child] = kind, log
        time.sleep(0.05)
        for child, (kind, log) in list(running.items()):
            ended, _, usage = os.wait4(child, os.WNOHANG)
            silent = time.time() - log.stat().st_mtime
            if not ended and silent > HANGS_S:
                os.kill(child, signal.SIGKILL)
                _, _, usage = os.wait4(child, 0)
            if ended or silent > HANGS_S:
                del running[child]
                tallies[kind.name] = tally_of(log, kind.name)
                print(row_of(kind.name, tallies[kind.name], usage.ru_utime + usage.ru_stime), flush=True)
                _store(tallies, arguments)
                shutil.rmtree(log.with_suffix(""), ignore_errors=True)


def _store(tallies: dict[str, Tally], arguments: argparse.Namespace) -> None:
    if arguments.json:
        made = {name: {**vars(tally), "counts": dict(tally.counts)} for name, tally in tallies.items()}
        found = {"seed": arguments.seed, "inputs": arguments.inputs, "kinds": made}
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def tally_of(log: Path, name: str) -> Tally:
    """Return the counts of a kind from what its process wrote."""
    tally, ended = Tally(), False
    for line in log.read_text("utf-8").splitlines():
        said = json.loads(line)
        if "counts" in said:
            tally.counts.update(said["counts"])
            if said["how"] == "by command":
                tally.by_command += sum(said["counts"].get(group, 0) for group in _GROUPS)
        elif "ratio" in said:
            tally.ratio = said["ratio"]
        elif "end" in said:
            ended = True
        else:
            tally.findings.append(said)
    if not ended:
        problem = f"the process did not end, or wrote nothing for {HANGS_S:.0f} s"
        tally.findings.append({"kind": name, "variant": "", "number": -1, "how": "", "problem": problem, "input": ""})
    return tally


_GROUPS: Final = ("valid", "same", "open", "different", "broken")
_HEAD: Final = ("kind", "inputs", "broken", "different", "open", "accepted", "CPU, x median", "findings", "CPU s")


def row_of(name: str, tally: Tally, seconds: float) -> str:
    """Return the row of a kind."""
    counts = tally.counts
    accepted = sum(counts[f"{group}, accepted"] for group in _GROUPS)
    total = sum(counts[group] for group in _GROUPS)
    free = counts["open"] + counts["same"] + counts["valid"]
    cells = (total, counts["broken"], counts["different"], free, accepted, f"{tally.ratio:.1f}", len(tally.findings))
    return f"| {name} | {' | '.join(map(str, cells))} | {seconds:.0f} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=INPUTS, help="damaged inputs of each kind (default: 20,000)")
    parser.add_argument("--by-command", type=int, default=BY_COMMAND, help="of each kind by a process of its own (20)")
    parser.add_argument("--seed", default=SEED, help="of the damage (default: 1)")
    parser.add_argument("--kind", action="append", help="only this kind (repeat)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (default: the cores)")
    parser.add_argument("--json", type=Path, help="write the counts and all findings to this file")
    parser.add_argument("--show", type=int, default=5, help="how many findings of a kind are printed (default: 5)")
    arguments = parser.parse_args(argv)
    every = kinds()
    unknown = set(arguments.kind or ()) - every.keys()
    if unknown:
        parser.error(f"--kind: got {', '.join(sorted(unknown))}; expected some of: {', '.join(every)}")
    chosen = [kind for name, kind in every.items() if not arguments.kind or name in arguments.kind]
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    # as Ctrl-C does: the processes of the kinds end as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        _warm()
        tallies = run_kinds(chosen, arguments, Path(folder))
    for name, tally in tallies.items():
        for finding in tally.findings[: arguments.show]:
            where = f"{name} {finding['variant']} {finding['number']} {finding['how']}"
            print(f"\n{where}: {finding['problem']}\n    {finding['input'][:300]!r}")
    number = sum(len(tally.findings) for tally in tallies.values())
    total = sum(tally.counts[group] for tally in tallies.values() for group in _GROUPS)
    print(f"\n{total} inputs, {number} findings")
    return 1 if number else 0


def _warm() -> None:
    """Import what the readers import, once for all processes."""
    from importlib import import_module

    names = ("pytest", "openai", "anthropic", "ollama", "httpx2", "regex", "jsonpath", "pytest_jsonreport.plugin")
    for name in (
        *names,
        "pytest_packbench.commands.judging",
        "pytest_packbench.packs.generic.pack",
        "pytest_packbench.packs.tariff.pack",
    ):
        try:
            import_module(name)
        except ImportError:
            continue
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
