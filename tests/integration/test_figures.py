"""Named figures that a pack gives: in terminal, summary, report and the report command, also of a merged run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import Figure, Interval, rate_interval
from pytest_packbench.analysis.statistics import wilson_interval
from pytest_packbench.commands import main
from pytest_packbench.testing import SuiteResults

if TYPE_CHECKING:
    from tests.integration.conftest import Project

PACK = """

from pytest_packbench import Figure, Interval, Metrics


class Points(Metrics):
    figures_of_unscored = True

    def figures(self, records):
        seen = {"full": 0, "with": 0, "without": 0}
        for record in records:
            extra = record["packbench"]
            seen["with" if "run_id" in record else "without"] += 1
            seen["full"] += (extra.get("score") or 0) == 1 or (extra.get("result") or {}).get("points") == 1
        total = seen["with"] + seen["without"]
        interval = Interval(0.1, 0.9, "a | method") if total else None
        defined = {"definition": "Cases with all points, <b>whatever</b> their verdict."}
        yield Figure(name="full points", count=seen["full"], total=total, interval=interval, headline=True, **defined)
        yield Figure(name="\\x1bcost", number=1.25, unit="USD", definition="What it cost.", group="money")
        yield Figure(name="speed", number=3.0, unit="m/s", definition="How fast.", group="money", headline=True)
        yield Figure(name="nothing", count=0, total=0, definition="Nobody looked.", headline=True, note="no case")

    def paired_figures(self, pairs):
        lost = total = 0
        for before, now in pairs:
            total += 1
            lost += before["packbench"].get("score", 0) > now["packbench"].get("score", 0)
        yield Figure(name="lost", count=lost, total=total, definition="Cases with fewer points.", headline=True)


class Measured(Toy):
    metrics = Points()


def pytest_packbench_packs():
    return [Measured()]
"""
WORSE = """
old_act = act


def act(request, context):
    return {**old_act(request, context), "points": 0.0}


def pytest_packbench_target(config, suite):
    return act


"""
LINES = [
    "Figures:",
    "figure value interval",
    "full points 2 of 3 = 66.7 % 10.0 % to 90.0 % (a | method)",
    "nothing not measured; no case -",
]


@pytest.fixture
def measured(project: Project) -> Project:
    project.extend_conftest(PACK)
    project.case("good")
    project.case("bad", points=0.0)
    project.case("untested", word="vacuous")
    project.case("set_aside", notes={"xfail": "a reason"})
    return project


def words(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def test_figures_are_in_terminal_summary_report_and_report_command(
    measured: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = words(measured.run_toy().outlines)
    start = printed.index("Figures:")
    assert printed[start : start + 4] == LINES
    assert printed[start + 5 : start + 8] == ["Figures: money:", "figure value", "speed 3 m/s"]
    assert "cost" not in "".join(printed)
    summary = words([measured.text().replace("\n", " ")])[0]
    for row in (
        "| full points | 2 of 3 = 66.7 % | 10.0 % to 90.0 % (a \\| method) | Cases with all points, &lt;b&gt;whatever",
        "| nothing | not measured; no case | -",
        "## Figures: money",
        "\\\\x1bcost | 1.25 USD",
    ):
        assert row in summary
    figures = {figure["name"]: figure for figure in measured.document()["figures"]}
    assert figures["full points"]["share"] == pytest.approx(2 / 3)
    assert figures["full points"]["interval"] == {"low": 0.1, "high": 0.9, "method": "a | method"}
    assert (figures["nothing"]["share"], figures["nothing"]["count"], figures["speed"]["number"]) == (None, 0, 3.0)
    assert [Figure.from_json(each).as_json() for each in figures.values()] == [*figures.values()]
    capsys.readouterr()
    folder = measured.left()
    assert main(["report", str(folder)]) == 0
    assert "### Figures of toy: money" in capsys.readouterr().out
    # records alone have no report, and a report that can't be read hides no record
    assert main(["report", str(folder / "records.jsonl")]) == 0
    (folder / "report.json").write_text('{"packbench": {"version": 1}}', "utf-8")
    assert main(["report", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert ("Figures of toy" in out, err.startswith("packbench: no figures of packs: ")) == (False, True)


def test_a_merged_run_has_the_figures_of_all_its_shards(
    measured: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        measured.run_toy(f"--packbench-shard={number}/2", f"--packbench-output=part{number}")
    monkeypatch.chdir(measured.root)
    monkeypatch.syspath_prepend(measured.root)
    folders = [str(path.parent) for number in (1, 2) for path in Path(f"part{number}/toy").glob("*/report.json")]
    capsys.readouterr()
    assert main(["merge", "--pack", "conftest:Measured", "--output", "merged", *folders]) == 1
    assert set(LINES) <= set(words(capsys.readouterr().out.splitlines()))
    (merged,) = Path("merged/toy").glob("*/report.json")
    assert SuiteResults(folder=merged.parent).report["packbench"]["figures"][0]["total"] == 3


def test_figures_of_two_runs_are_computed_from_pairs_of_unchanged_cases(
    measured: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.case("edited")
    measured.run_toy()
    first = measured.left()
    # another result of the same case: the file that the target reads is no part of it
    measured.case("edited", points=0.5)
    measured.case("added", points=0.0)
    measured.extend_conftest(PACK.replace("def pytest_packbench_packs", WORSE + "def pytest_packbench_packs"))
    result = measured.run_toy("--packbench-baseline=latest")
    # good, bad and untested
    assert "lost 1 of 3 -" in words(result.outlines)
    (second,) = set(measured.folders()) - {first}
    results = SuiteResults(folder=second)
    assert "| lost | 1 of 3 | - | Cases with fewer points. |" in words([results.summary.replace("\n", " ")])[0]
    assert results.report["packbench"]["figures"][-1]["name"] == "lost"
    assert "| lost" in results.read("diff.md")
    # a baseline whose records can't be read is still compared
    (first / "records.jsonl").write_text("{}\n", "utf-8")
    result = measured.run_toy(f"--packbench-baseline={first}")
    result.stdout.fnmatch_lines(["*figures not compared: *records.jsonl*"])
    assert not [line for line in words(result.outlines) if line.startswith("lost ")]


HOOKS = ("figures", "panels", "remarks")


@pytest.mark.parametrize(
    ("statement", "messages"),
    [
        (
            "raise RuntimeError('fell over')",
            [f"the pack toy raised in {name}: RuntimeError: fell over (*conftest.py:[0-9]*)" for name in HOOKS],
        ),
        ("return ['a']", ["the pack toy raised in figures: TypeError: figures() returned ('a',), expected objects"]),
        ("return 2 * [Figure(name='a', definition='b')]", ["got two figures with the name 'a' in the group ''"]),
        ("return [Figure(name='a', definition='b', count=3, total=2)]", ["figure 'a': got a count of 3 among 2"]),
    ],
)
def test_a_pack_whose_figures_fail_fails_the_run(measured: Project, statement: str, messages: list[str]) -> None:
    broken = "".join(f"Points.{name} = broken\n" for name in HOOKS[: len(messages)])
    measured.extend_conftest(f"{PACK}\n\ndef broken(self, *arguments):\n    {statement}\n\n\n{broken}")
    result = measured.run_toy()
    assert result.ret == 1
    escaped = [message.replace("['", "[[]'") for message in messages]
    result.stdout.fnmatch_lines_random([f"*{message}*" for message in escaped])


@pytest.mark.parametrize(
    ("suite", "definition"),
    [("pack: toy\ngates:\n  - {metric: zone_share, min: 0.5}\n", ""), ("pack: toy\n", "The share of zones.")],
)
def test_a_metric_that_raises_fails_the_run_and_keeps_its_results(
    measured: Project, suite: str, definition: str
) -> None:
    measured.suite(text=suite)
    measured.extend_conftest(f"""{PACK}

from pytest_packbench import Metric


class Rules(Toy.suite_model):
    metrics = {{
        "zone_share": Metric(
            among=lambda result: result.counted,
            counts=lambda result, _: result.zone,
            definition={definition!r},
        )
    }}


Measured.suite_model = Rules
""")
    result = measured.run_toy()
    where = "AttributeError: 'Profile' object has no attribute 'zone' (*conftest.py:[0-9]*)"
    result.stdout.fnmatch_lines([f"*the pack toy raised in metric zone_share: {where}"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert (result.ret, len(measured.lines("records.jsonl"))) == (1, 2)
    assert not (measured.left() / "report.json").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"definition": "two\nlines"},
        {"count": 1},
        {"count": -1, "total": 2},
        {"number": 1.0, "total": 2},
        {"number": float("nan")},
        {"interval": Interval(0, 1, "x")},
    ],
)
def test_a_figure_that_contradicts_itself_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="figure"):
        Figure(**{"name": "a", "definition": "b", **changed})


# hits, cases and their clusters, and the interval
INTERVALS: list[tuple[tuple[Any, ...], tuple[float, float] | None]] = [
    ((0, 0), None),
    ((0, 0, []), None),
    ((3, 20), wilson_interval(3, 20)),
    # each case a cluster: independent
    ((3, 20, [(1, 1)] * 3 + [(0, 1)] * 17), wilson_interval(3, 20)),
    # all cases are one cluster: nothing is known of others
    ((3, 20, [(3, 20)]), None),
    # without a hit, each cluster counts as one case
    ((0, 50, [(0, 10)] * 5), wilson_interval(0, 5)),
    # computed by hand: the design effect is 12.5, so 4 cases; Student's t with 4 degrees of freedom leaves 1.993
    ((10, 50, [(10, 10)] + [(0, 10)] * 4), (0.0176, 0.7774)),
]


def test_an_interval_of_clusters_is_at_least_as_wide_as_that_of_independent_cases() -> None:
    for arguments, bounds in INTERVALS:
        interval = rate_interval(*arguments)
        assert (interval and interval[:2]) == (bounds and pytest.approx(bounds, abs=1e-4)), arguments
    spread, plain = rate_interval(10, 50, [(2, 10)] * 5, clustered_by="task"), wilson_interval(10, 50)
    assert spread is not None
    assert plain is not None
    assert (spread.low <= plain[0], spread.high >= plain[1]) == (True, True)
    assert spread.method == "95 % Wilson, clustered by task"
    for clusters in ([(3, 10)], [(11, 10), (-8, 10)]):
        with pytest.raises(ValueError, match="clusters"):
            rate_interval(3, 20, clusters)
