"""One property through all writers: no text of a case, a target or a stored run is anything but text in an output."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.changes import BaselineOutcome
from pytest_packbench.commands import main
from pytest_packbench.model.recording import ControlResult, tally_of
from pytest_packbench.model.report import PolicyChange, PolicyOutcome
from pytest_packbench.model.suite import Figure, Panel
from pytest_packbench.reports.github import FinishedRun, annotation_commands, step_summary
from pytest_packbench.reports.page import RunPage, page_html, scores_of
from pytest_packbench.reports.story import summary_lines, summary_markdown
from pytest_packbench.reports.terminal import printable_json
from pytest_packbench.testing import case, write_case
from tests.reports.test_page import point
from tests.unit.run_builders import COMPLETE, case_result, changed, conclusion_of, data, gate, run
from tests.unit.stored_runs import run_of, suite, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result

DATA: dict[str, Any] = data("escapes.yaml")

PIECES: Any = DATA["pieces"]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
MARKED_UP = re.compile(r"<(?!/?(details|summary|br)\b)\w|<!--|(?<!\\)!?\[[^\]]*\]\((?!#)[^)]*\)|@\w|#\d|\bGH-\d")
TAGS: Any = DATA["tags"]
RUN_ID = "01KZZZZZZZZZZZZZZZZZZZZZZZ"


class Tags(HTMLParser):
    """The tags of a page, and the names and addresses of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {str(value) for name, value in attrs if name in {"href", "src"}}


def results_with(text: str) -> list[Result]:
    """Results in which each text that comes from elsewhere is this one."""
    texts: dict[str, Any] = dict.fromkeys(
        ("test_id", "file", "message", "kind", "answer", "case_type", "difficulty"), text
    )
    terms = ({"name": text, "effect": "add", "value": 0.5, "detail": text},)
    verdicts = ("failed", "error", "vacuous", "passed", "known_hole")
    return [
        changed(case_result(verdict, verdict), **texts, case_id=text, terms=terms, facets={text: text})
        for verdict in verdicts
    ]


def finished(text: str) -> FinishedRun:
    """A run in which each text that comes from elsewhere is this one."""
    results = results_with(text)
    control = ControlResult(text, text, text, text, "deviates", text, text, message=text)
    figure = Figure(name="f", definition="d", count=1, total=2).with_texts(lambda _: " ".join(text.split()) or "x")
    names: dict[str, Any] = dict.fromkeys(("suite", "target", "description"), text)
    of = run(**names, findings=(text,), versions={text: text})
    conclusion = replace(
        conclusion_of(of, results, COMPLETE, gate("pass_rate", min=0.5, by="case_type")),
        policy=PolicyOutcome(text, (PolicyChange(*[text] * 6),), (text,), (text,)),
        controls=tally_of([control], 1),
        figures=(figure,),
        baseline=BaselineOutcome(text, problem=text),
    )
    return FinishedRun(conclusion=conclusion, rules="storage/toy/suite.yaml")


def check_terminal(name: str, lines: Sequence[str]) -> None:
    for line in lines:
        assert RAW.search(line) is None, (name, line)
        assert "\n" not in line, (name, line)
        assert COMMAND.search(line) is None, (name, line)


def check_markdown(name: str, text: str) -> None:
    assert RAW.search(text) is None, name
    assert COMMAND.search(text) is None, (name, COMMAND.search(text))
    assert MARKED_UP.search(text) is None, (name, MARKED_UP.search(text))


@settings(max_examples=25, deadline=None)
@given(TEXTS)
def test_every_writer_of_a_run_writes_text_as_text(text: str) -> None:
    of = finished(text)
    check_terminal("terminal", summary_lines(of.conclusion))
    check_markdown("summary.md", summary_markdown(of.conclusion))
    check_markdown("step summary", step_summary(of))
    for command in annotation_commands((), [of], Path("/p"), "/p"):
        assert command.isprintable(), command
        assert re.match(r"::(error|warning) ", command), command
        assert command.count("::error ") + command.count("::warning ") == 1, command
    shown = RunPage(
        of.conclusion,
        scores_of(results_with(text)),
        panels=[
            Panel(
                title=" ".join(text.split()) or "x",
                intro=text,
                head=(text,),
                rows=((text,),),
                figures=tuple(of.conclusion.figures),
            )
        ],
        trend=[point(text, text, text, interval=None)],
        notes=[text],
    )
    html = page_html([shown], title=text)
    html.encode()
    assert RAW.search(html) is None
    read = Tags(html)
    assert read.tags <= set(TAGS), read.tags - set(TAGS)
    assert not {name for name in read.attributes if name.startswith("on")}
    # the page has an empty icon
    assert all(address.startswith("#") for address in read.addresses - {"data:,"}), read.addresses


@settings(max_examples=40, deadline=None)
@given(st.recursive(TEXTS, lambda values: st.lists(values) | st.dictionaries(TEXTS, values), max_leaves=5))
def test_a_document_on_the_terminal_keeps_its_value(value: Any) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    # escaped halves of a surrogate pair that are neighbours are one character for each reader of JSON
    assert json.loads(text) == json.loads(json.dumps(value))
    assert RAW.search(text) is None
    assert COMMAND.search(text) is None


HOSTILE = "".join(PIECES)
ENCODABLE = HOSTILE.encode("utf-8", "ignore").decode().replace("\x00", "")
FOLDER = f"reports/toy/{RUN_ID}"
ROOT = ["--root", "storage"]
COMMANDS: Any = DATA["commands"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which each text of a case, a run and a table is hostile."""
    root = tmp_path_factory.mktemp("project")
    storage = suite(root, description=ENCODABLE)
    notes = {"source": ENCODABLE, "tags": ["t"]}
    fields: dict[str, Any] = {"pack_id": "generic", "case_type": "plain", "notes": notes}
    write_case(storage / "toy", case("a", **fields, input={ENCODABLE: ENCODABLE}, expected={"x": ENCODABLE}))
    (storage / "toy" / "cases" / "plain" / "bad.json").write_text(json.dumps({"id": HOSTILE, HOSTILE: 1}), "utf-8")
    results = [
        changed(case_result("a"), message=HOSTILE, answer=HOSTILE),
        changed(case_result("b", verdict="error"), message=HOSTILE, kind="target_error"),
        changed(case_result("c", verdict="failed", score=0.1), answer=HOSTILE),
    ]
    write(root / "reports", run_of(storage, run_id=RUN_ID), results, storage)
    quoted = ENCODABLE.replace('"', '""')
    (root / "rows.csv").write_text(f'id,input,expected\nx,"{quoted}",y\n{ENCODABLE},b\n', "utf-8")
    (root / "rows.jsonl").write_text(
        f"{json.dumps({'id': HOSTILE, 'input': 1})}\n{json.dumps({HOSTILE: 1})}\n", "utf-8"
    )
    (root / "review.jsonl").write_text(json.dumps({"suite": HOSTILE, HOSTILE: 2}) + "\n", "utf-8")
    return root


@pytest.mark.parametrize(
    "arguments", COMMANDS, ids=lambda words: " ".join(words[:2]).encode("ascii", "ignore").hex()[:12]
)
def test_commands_show_hostile_texts_as_text(
    project: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(project)
    output = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        main(arguments)
    output.flush()
    text = output.buffer.getvalue().decode("utf-8")
    assert text
    check_terminal(" ".join(arguments[:2]), text.splitlines() if "\r" not in text else [text])
