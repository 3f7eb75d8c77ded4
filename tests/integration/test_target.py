"""`--packbench-target`: module:attr, cmd: and http: targets, and odd results of any of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.integration.model_server import all_text, prepare, replayable
from tests.servers.fake import FakeServer, Received, Reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project

PROGRAM = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["params"]["input"]["text"] == "exit":
        print("last words", file=sys.stderr)
        os._exit(3)
    usage = {"tokens_input": 6, "tokens_output": 4}
    result = {"points": 0.9, "llm_backend": "ollama", "llm_model": "small", "usage": usage}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def write_program(project: Project) -> str:
    """Write a program that answers any text, and ends at the text `exit`; return its target."""
    (project.root / "program.py").write_text(PROGRAM, encoding="utf-8")
    return f"--packbench-target=cmd:{sys.executable} program.py"


def test_a_command_is_recorded_and_replayed_without_running(both: Project) -> None:
    prepare(both, "x", "exit", "y")
    target = write_program(both)
    recorded = both.run_toy("--packbench-mode=record", target)
    recorded.assert_outcomes(passed=2, errors=1)
    recorded.stdout.fnmatch_lines(["*last words*"])
    (error,) = both.lines("errors.jsonl")
    assert (error["kind"], error["test_id"]) == ("target_died", "toy:plain:case_01")
    (both.root / "program.py").unlink()
    replayed = both.run_toy(target, "-k", "not case_01")
    replayed.assert_outcomes(passed=2)
    replayed.stdout.fnmatch_lines(["*pipeline not run: scoring only*"])
    first, second = map(replayable, both.folders())
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("ollama", "small")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (6, 4)


def test_an_address_is_recorded_and_replayed_without_its_server(project: Project) -> None:
    def verify(received: Received) -> Reply:
        assert set(received.json()) == {"input", "options", "evidence"}
        cut = received.json()["input"]["text"] == "cut"
        return Reply(cut=cut, body=b"{}" * 50 if cut else {"points": 1.0})

    prepare(project, "x", "cut", "y")
    with FakeServer(verify) as server:
        target = f"--packbench-target={server.url.replace('//', '//user:planted-password@')}/verify"
        recorded = project.run_toy("--packbench-mode=record", target)
    recorded.assert_outcomes(passed=2, errors=1)
    assert [error["kind"] for error in project.lines("errors.jsonl")] == ["target_died"]
    replayed = project.run_toy(target, "-k", "not case_01")
    replayed.assert_outcomes(passed=2)
    assert "planted-password" not in all_text(project) + recorded.stdout.str() + replayed.stdout.str()


def test_a_function_without_a_model_needs_no_backend(project: Project) -> None:
    prepare(project, "x", "y")
    project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:hang").assert_outcomes(passed=2)
    record = project.lines("records.jsonl")[0]
    assert (record["llm_backend"], record["llm_model"]) == ("unknown", "unknown")


SURROGATES = {"in_a_list": "{'a/b': ['x', 'bad \\udc00']}", "in_a_key": "{'k': {'\\udfff': 1}}"}
ODD = {
    **SURROGATES,
    "alone": "'\\ud800 alone'",
    "a_long_integer": "10 ** 400",
    "a_long_text": "'x' * 1_000_000",
    "deep_lists": "__import__('functools').reduce(lambda inner, _: [inner], range(300), 1)",
    "numbers": "{'a': [None, 1e308, -0.0]}",
}


def test_an_odd_result_is_stored_like_any_other(both: Project) -> None:
    for name, more in ODD.items():
        both.case(name, more=more)
    result = both.run_toy()
    result.assert_outcomes(passed=len(ODD))
    assert {line["packbench"]["case_id"] for line in both.lines("records.jsonl")} == set(ODD)
    assert len(both.lines("payloads.jsonl")) == len(ODD)


def test_an_invalid_record_is_an_error_of_the_result_or_of_the_pack(project: Project) -> None:
    conftest = project.root / "conftest.py"
    text = conftest.read_text("utf-8")
    conftest.write_text(text.replace("attack_category=case.case_type", "attack_category='\\ud800'"), encoding="utf-8")
    for name, more in {**SURROGATES, "plain": "'plain'"}.items():
        project.case(name, more=more)
    project.run_toy().assert_outcomes(errors=3)
    errors = {
        line["test_id"].rpartition(":")[2]: (line["kind"], line["message"]) for line in project.lines("errors.jsonl")
    }
    for name, (kind, part) in {
        "in_a_list": ("result_unreadable", "an unpaired surrogate at /more/a~1b/1"),
        "in_a_key": ("result_unreadable", "an unpaired surrogate at /more/k"),
        "plain": ("pack_error", "the pack toy raised RecordError: attack_category"),
    }.items():
        assert errors[name][0] == kind
        assert part in errors[name][1]


def test_control_characters_reach_no_terminal_and_no_page(project: Project) -> None:
    evil = "\x1b[31mred\x07\u202eesrever"
    project.case("fails", points=0.1, python=f"raise ValueError({evil!a})")
    project.case("skips", notes={"skip": evil})
    project.case("hides", points=0.1, notes={"xfail": evil})
    result = project.run_toy("-rsxfE", "-v")
    assert result.parseoutcomes() == {"errors": 1, "skipped": 1, "xfailed": 1}
    assert "\x1b[31mred" not in result.stdout.str()
    assert "\u202e" not in result.stdout.str()
    assert "\x1b" not in (project.left() / "summary.md").read_text("utf-8")


REDIRECTING = """
import contextlib, io, time
buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    for _ in range(4):
        print(context.case_id)
        time.sleep(0.01)
assert buffer.getvalue() == 4 * (context.case_id + chr(10))
print('half of a pair:', chr(0xd83d))
"""


def test_cases_and_tests_see_their_own_streams_only(both: Project) -> None:
    for number in range(4):
        both.case(f"case_{number}", points=1.0, python=REDIRECTING)
    both.case("fails", points=0.0, python=REDIRECTING)
    both.pytester.makepyfile(
        test_own="""
        import io, sys
        def test_own(monkeypatch):
            mine = io.StringIO()
            monkeypatch.setattr(sys, "stdout", mine)
            print("mine")
            assert sys.stdout is mine and mine.getvalue() == "mine\\n"
        def test_kind():
            assert isinstance(sys.stdout, io.TextIOBase)
        """
    )
    result = both.run_toy("--packbench-concurrency=4", "test_own.py", "storage")
    result.assert_outcomes(passed=6, failed=1)
    assert both.lines("errors.jsonl") == []
    result.stdout.fnmatch_lines(["half of a pair: [?]"])
    result.stdout.no_fnmatch_line("*DumpError*")
