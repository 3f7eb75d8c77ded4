"""Run all measurements, each with a reference in the same run, and write them to `docs/performance.md`.

    python -m benchmarks [--minutes N] [--dry]

Run it from the repository, with the extra `dev` installed. Measurements that do not fit into the minutes (10 by
default) are left out and named. `--dry` does not change the page.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import agentdojo, cores, html_page, live, overhead, report, shards, start, unused
from benchmarks.page import PAGE, Row, describe_budget, facts, table, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(__file__).resolve().parent.parent
ROUNDS = 3
ROUNDS_OF = {1_000: 7, 10_000: 1}
"""Rounds by the number of cases: short measurements vary most."""

UNUSED_ROUNDS = 100
START_ROUNDS = 15
FILES = 250
"""The wheel has fewer files."""

RECORDS = 1_000_000
RUST_SECONDS = 1.1
"""CPU seconds of the Rust reader for the same number of records, on the machine that the budgets refer to."""

GENERIC_CASES = 10_000
PEAK_CASES = 1_000
LATENCY = 0.2
LIVE_CASES = 1000
AT_ONCE = 64
ALSO_AT_ONCE = (8, 256)
SHARE = 0.95
FASTER = 1.6
FOR_REPORT_S = 80
FOR_SHARDS_S = 60
FOR_REST_S = 150
"""Seconds that must be left: for the larger size, and for the measurements after the largest."""


@dataclass(slots=True)
class Session:
    """The measurements so far.

    Attributes:
        minutes: the time limit of all measurements.
        begun: monotonic clock at the start, seconds.
        overheads: the trivial case, by size and by whether there is a JSON report.
    """

    minutes: float
    begun: float = field(default_factory=time.monotonic)
    overheads: dict[tuple[int, bool], overhead.Overhead] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self.begun + 60 * self.minutes - time.monotonic()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="all measurements")
    parser.add_argument("--minutes", type=float, default=10, help="time limit in minutes (default 10)")
    parser.add_argument("--dry", action="store_true", help=f"do not change {PAGE.relative_to(HOME)}")
    arguments = parser.parse_args(argv)
    session, before = Session(arguments.minutes), os.getloadavg()[0]
    rows: list[Row] = []
    for measure in (
        _unused,
        _start,
        _trivial,
        _large,
        _tariff,
        _html_page,
        _agentdojo,
        _live,
        _cores,
        _report,
        _shards,
    ):
        for row in measure(session):
            print(f"{(time.monotonic() - session.begun):4.0f} s  {' | '.join(row)}", flush=True)
            rows.append(row)
    minutes = (time.monotonic() - session.begun) / 60
    text = f"{facts((before, os.getloadavg()[0]), minutes)}\n\n{table(rows)}"
    print(f"\n{text}")
    if not arguments.dry:
        write_table(text)
    return 0


def _unused(_: Session) -> Iterator[Row]:
    found = unused.measure(UNUSED_ROUNDS)
    here, newer = found.here, found.newer
    yield Row(
        "files in the wheel",
        str(found.wheel),
        f"{found.installed} in the list of an installation by pip, which compiles the modules",
        f"under {FILES}",
        describe_budget(found.wheel, FILES - 1, why="Each module is a file."),
    )
    yield Row(
        "a run without suites: cost of the installed plugin",
        f"{here.both:+.1f} ms CPU: {here.ours:+.1f} ms the plugin, {here.listed:+.1f} ms its list of files",
        f"the run itself, pytest loaded, {here.alone:.0f} ms; the required plugins {here.required:+.1f} ms",
        "5 ms",
        describe_budget(here.both, 5, why="pytest reads the list of files and the metadata of each plugin."),
    )
    if newer is not None:
        yield Row(
            f"the same on CPython {unused.NEWER}",
            f"{newer.both:+.1f} ms CPU: {newer.ours:+.1f} ms the plugin, {newer.listed:+.1f} ms its list of files",
            f"the run itself, pytest loaded, {newer.alone:.0f} ms; the required plugins {newer.required:+.1f} ms",
            "",
            "Not judged: there, each file of the list is looked up on the disk.",
        )


def _start(_: Session) -> Iterator[Row]:
    found = start.measure(START_ROUNDS)
    yield Row(
        "one case of a generic suite, whole command, against one empty test",
        f"{found.time:.2f} x the CPU ({found.ours.seconds:.2f} s), {found.ours.mebibytes:.0f} MiB",
        f"one empty test with the JSON report {found.no_op.seconds:.2f} s, {found.no_op.mebibytes:.0f} MiB",
        "1.5 x",
        describe_budget(found.time, 1.5, why="Importing pydantic alone takes a third of an empty test."),
    )


def _trivial(session: Session) -> Iterator[Row]:
    for cases in overhead.SIZES:
        for reported in (True, False):
            large = cases == max(overhead.SIZES)
            by_hand = reported and not large
            found = overhead.measure(cases, reported=reported, rounds=ROUNDS_OF[cases], by_hand=by_hand)
            session.overheads[cases, reported] = found
            yield _overhead(found)

    found = overhead.measure(GENERIC_CASES, reported=True, rounds=ROUNDS, generic=True)
    yield _overhead(found, "a case of the generic pack")
    found = overhead.measure(PEAK_CASES, reported=True, rounds=ROUNDS, generic=True)
    yield Row(
        f"the peak memory of the generic pack, {PEAK_CASES:,} cases, with the JSON report",
        f"{found.peaks.ours:.1f} MiB",
        f"a parametrized no-op {found.peaks.no_op:.1f} MiB",
        "60 MiB",
        describe_budget(found.peaks.ours, 60),
    )


def _overhead(found: overhead.Overhead, what: str = "a trivial case") -> Row:
    plain, ours = (overhead.each_case(found, usage) for usage in (found.no_op, found.ours))
    beside = f"a parametrized no-op {plain[0]:.0f} µs, {plain[1]:.1f} KiB"
    by_hand = found.by_hand
    why = "Each case is a file of its own."
    if by_hand is not None:
        share = by_hand.seconds / found.no_op.seconds
        beside += f"; a collector of 20 lines {share:.2f} x"
        why = f"Each case is a file: a collector of 20 lines without checks and records takes {share:.2f} x."
    time_verdict = describe_budget(found.time, 1.3, limit=1.5, why=why)
    memory_verdict = describe_budget(found.memory, 2, why="Results and records stay in memory for the reports.")
    return Row(
        f"{what}, {found.cases:,} cases, {'with' if found.reported else 'without'} the JSON report",
        f"{found.time:.2f} x the CPU ({ours[0]:.0f} µs), {found.memory:.2f} x the memory ({ours[1]:.1f} KiB)",
        beside,
        "1.3 x (limit 1.5 x); memory 2 x" if found.reported else "",
        f"CPU: {time_verdict} Memory: {memory_verdict}" if found.reported else "Not judged.",
    )


def _command(name: str) -> tuple[overhead.Usage, int]:
    """Run a suite of the repository as a whole command; return the number of its items as well."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*overhead.pytest_command("packbench", *overhead.REPORT), f"--packbench-suite={name}"]
        usages = [overhead.used(HOME, [*command, f"--packbench-output={folder}"]) for _ in range(ROUNDS)]
        lines = [path.read_bytes().count(b"\n") for path in Path(folder).rglob("*.jsonl") if path.stem != "payloads"]
    return sorted(usages)[ROUNDS // 2], sum(lines) // ROUNDS


def _tariff(_: Session) -> Iterator[Row]:
    # controls are items as well, and have lines of their own
    usage, items = _command("tariff")
    most = 1 + 0.003 * items
    why = "Includes start-up, imports and loading the schedule."
    yield Row(
        f"the tariff suite, whole command, {items} items",
        f"{usage.seconds:.2f} CPU s, {usage.mebibytes:.0f} MiB",
        "1 CPU s plus 3 ms per item",
        f"{most:.2f} CPU s",
        describe_budget(usage.seconds, most, why=why),
    )


def _html_page(_: Session) -> Iterator[Row]:
    for found in html_page.measure(ROUNDS):
        with_exchanges = found.suite == "tariff"
        content = "with their recordings" if with_exchanges else "of the generic pack"
        verdict = describe_budget(found.size, html_page.MOST_BYTES, why="Recordings compress less than planned.")
        yield Row(
            f"the page of a run, {found.cases:,} cases {content}",
            f"{found.size / 1e6:.2f} MB, {found.write_s:.2f} CPU s to write; in a browser "
            f"{html_page.seconds(found.open_s)} to open, {html_page.seconds(found.filter_s)} to filter",
            f"files of the suite {found.plain / 1e6:.1f} MB",
            "2 MB" if with_exchanges else "",
            verdict if with_exchanges else "Not judged.",
        )


def _agentdojo(_: Session) -> Iterator[Row]:
    what, budget = "AgentDojo, all 949 pairs, scripted agent, whole command", "30 CPU s"
    if find_spec("agentdojo") is None:
        yield Row(what, "not measured", "", budget, "The extra `agentdojo` is not installed here.")
        return
    control = agentdojo.CONTROLS[0]
    with tempfile.TemporaryDirectory() as folder:
        agentdojo.prepare(Path(folder), [control])
        ran = agentdojo.run(Path(folder), control)
    if ran.wrong:
        raise SystemExit(ran.wrong)
    landed = f"{control.landed} attacks land, as published"
    yield Row(what, f"{ran.cpu:.1f} CPU s", landed, budget, describe_budget(ran.cpu, agentdojo.BUDGET_S))


def _live(_: Session) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, live.serving(LATENCY) as url:
        many = Path(folder, "many")
        live.prepare(many, LIVE_CASES, LATENCY)
        for at_once in (AT_ONCE, *ALSO_AT_ONCE):
            found = live.best(many, "post", url, at_once, ROUNDS if at_once >= AT_ONCE else 1)
            ideal = LIVE_CASES * LATENCY / at_once
            share = ideal / found.calls
            missed = f"Missed by {SHARE - share:.1%} of the rate: see the load."
            judgement = "Met." if share >= SHARE else missed
            yield Row(
                f"live: {LIVE_CASES:,} cases, a server with {LATENCY * 1000:.0f} ms latency, {at_once} at once",
                f"{share:.1%} of the ideal rate, {found.cpu:.2f} CPU s, {found.mebibytes:.0f} MiB",
                f"ideal {ideal:.2f} s; all calls {found.calls:.2f} s, the whole command {found.wall:.2f} s",
                "95 %" if at_once == AT_ONCE else "",
                judgement if at_once == AT_ONCE else "Not judged.",
            )


def _cores(_: Session) -> Iterator[Row]:
    found = cores.measure(cores.CASES, ROUNDS - 1)
    ratio = found.one / found.two
    why = "Each worker starts and collects separately, and two workers need both processors: see the load."
    yield Row(
        f"`-n 2` on a CPU-bound target, {cores.CASES} cases, wall clock",
        f"{ratio:.2f} x faster ({found.two:.1f} s)",
        f"one process {found.one:.1f} s",
        "1.6 x",
        "Met." if ratio >= FASTER else f"Missed by {1 - ratio / FASTER:.0%}. {why}",
    )


def _report(session: Session) -> Iterator[Row]:
    records = RECORDS if session.left > FOR_REPORT_S else RECORDS // 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        report.write_records(path, records, own=False)
        plain = report.measure([sys.executable, "-c", report.PARSE_ONLY, str(path)], 1)
        ours = report.measure([sys.executable, "-m", "pytest_packbench", "report", str(path)], 1)
    most = 8 * RUST_SECONDS * records / RECORDS
    why = "The Rust reader is not part of this run: its time was measured on an idle machine."
    verdicts = f"CPU: {describe_budget(ours[0], most, why=why)} Memory: {describe_budget(ours[1], 200)}"
    yield Row(
        f"`packbench report` on {records:,} records",
        f"{ours[0] / plain[0]:.2f} x the CPU ({ours[0]:.1f} s), {ours[1]:.0f} MiB",
        f"`json.loads` on the same lines {plain[0]:.1f} s",
        f"{most:.1f} CPU s (8 x the Rust reader); 200 MiB",
        verdicts,
    )


def _shards(session: Session) -> Iterator[Row]:
    sizes = shards.CASES if session.left > FOR_SHARDS_S else shards.CASES[:1]
    merged: list[shards.ShardCosts] = []
    for cases in sizes:
        found = shards.measure(cases, shards.SHARDS)
        merged.append(found)
        yield Row(
            f"{cases:,} cases in {shards.SHARDS} shards",
            f"one shard {found.shard.seconds:.1f} CPU s, {found.shard.mebibytes:.0f} MiB; "
            f"the merge of all {found.merge.seconds:.1f} CPU s, {found.merge.mebibytes:.0f} MiB",
            f"selecting the cases of a shard {found.selected.seconds:.1f} CPU s, {found.selected.mebibytes:.0f} MiB",
            "",
            "Not judged.",
        )
    if len(merged) > 1:
        yield _slope(merged[0], merged[-1])


def _slope(few: shards.ShardCosts, many: shards.ShardCosts) -> Row:
    more = many.cases - few.cases
    time_each = (many.merge.seconds - few.merge.seconds) / more
    memory_each = (many.merge.mebibytes - few.merge.mebibytes) / more
    shard_each = (many.selected.seconds - few.selected.seconds) / more
    rest = 1_000_000 - many.cases
    return Row(
        f"1,000,000 cases in {shards.SHARDS} shards, from the slope of these two",
        f"the merge {many.merge.seconds + rest * time_each:.0f} CPU s, "
        f"{many.merge.mebibytes + rest * memory_each:.0f} MiB",
        f"selecting the cases of a shard {many.selected.seconds + rest * shard_each:.1f} CPU s",
        "",
        "A million cases take longer than ten minutes: see the measurement below.",
    )


def _large(session: Session) -> Iterator[Row]:
    middle = session.overheads[max(overhead.SIZES), True]
    needed = 1.4 * (middle.no_op.seconds + middle.ours.seconds) * overhead.LARGE / middle.cases
    what = f"the same at {overhead.LARGE:,} cases against 1,000"
    budget = "1.15 x"
    if session.left < needed + FOR_REST_S:
        hint = "`python benchmarks/overhead.py --large` measures it, in some minutes."
        yield Row(what, "not measured: no time left", "", budget, hint)
        middle_ratio = middle.time / session.overheads[min(overhead.SIZES), True].time
        what = f"the same at {max(overhead.SIZES):,} cases against 1,000"
        yield Row(what, f"{middle_ratio:.2f} x", "", budget, describe_budget(middle_ratio, 1.15))
        return
    found = overhead.measure(overhead.LARGE, reported=True, rounds=1)
    yield _overhead(found)
    ratio = found.time / session.overheads[min(overhead.SIZES), True].time
    why = "The large size is one round: on a busy machine, the same command varies by up to a third."
    verdict = describe_budget(ratio, 1.15, why=why)
    yield Row(what, f"{ratio:.2f} x", f"{found.time:.2f} against {found.time / ratio:.2f}", budget, verdict)


if __name__ == "__main__":
    sys.exit(main())
