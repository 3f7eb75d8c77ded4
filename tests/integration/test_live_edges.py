"""Live mode at its edges: items that others skip, debuggers, tools that trace, caps on targets outside this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

PIPELINE = """
import pathlib


async def note(request):
    with open("made.txt", "a") as file:
        print(request.input["text"], file=file)
    return {"points": 1.0}


def stop(request):
    value = request.input["text"] * 2
    breakpoint()
    return {"points": 1.0}


def stop_and_say(request):
    breakpoint()
    print("said in the debugger")
    return {"points": 1.0}


async def stop_later(request):
    value = request.input["text"] * 2
    breakpoint()
    return {"points": 1.0}


def fall(request):
    value = request.input["text"] * 2
    raise ValueError("fell")
"""


def prepare(project: Project, *texts: str) -> None:
    project.pytester.makepyfile(pipeline=PIPELINE)
    for text in texts:
        project.case(text, text=text)


def test_what_another_plugin_skips_is_not_asked_and_holds_up_nobody(project: Project) -> None:
    names = [f"case_{number:02}" for number in range(12)]
    prepare(project, *names)
    conftest = project.root / "conftest.py"
    conftest.write_text(
        conftest.read_text("utf-8")
        + "\n\ndef pytest_collection_modifyitems(items):\n"
        + "    for item in items[:-2]:\n"
        + "        item.add_marker(pytest.mark.skip(reason='not today'))\n",
        encoding="utf-8",
    )
    result = project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:note", "--packbench-concurrency=2")
    result.assert_outcomes(passed=2, skipped=10)
    assert sorted((project.root / "made.txt").read_text("utf-8").split()) == names[-2:]


def debug_log(project: Project, typed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--packbench-suite=toy", *arguments]
    return subprocess.run(
        command, cwd=project.root, input=typed, capture_output=True, text=True, timeout=120, env=os.environ, check=False
    )


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("stop", ("--packbench-mode=live", "--pdb")),
        ("stop_later", ("--packbench-mode=live", "--pdb")),
        ("stop", ()),
    ],
    ids=["live pdb", "live pdb async", "fixture"],
)
def test_a_breakpoint_stops_one_case_at_a_time(plain: Project, target: str, arguments: tuple[str, ...]) -> None:
    prepare(plain, "ab", "cd")
    typed = "p value\nc\n" * 2
    result = debug_log(plain, typed, f"--packbench-target=pipeline:{target}", "--packbench-concurrency=1", *arguments)
    assert result.returncode == 0, result.stdout
    assert result.stdout.index("'abab'") < result.stdout.index("'cdcd'")


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_a_debugger_goes_to_where_the_target_raised(plain: Project, mode: str) -> None:
    prepare(plain, "ab")
    typed = "p value\nq\n"
    result = debug_log(plain, typed, "--packbench-target=pipeline:fall", f"--packbench-mode={mode}", "--pdb")
    assert "'abab'" in result.stdout


def test_what_a_case_prints_in_a_debugger_is_shown(plain: Project) -> None:
    prepare(plain, "ab")
    result = debug_log(plain, "n\nn\nc\n", "--packbench-target=pipeline:stop_and_say", "--packbench-mode=live")
    assert result.returncode == pytest.ExitCode.OK, result.stdout
    assert result.stdout.splitlines().count("(Pdb) said in the debugger") == 1


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_quitting_a_debugger_ends_the_run(plain: Project, mode: str) -> None:
    prepare(plain, "ab", "cd")
    # one at a time: of two that stop at once either may read what was typed
    options = ("--packbench-target=pipeline:stop", f"--packbench-mode={mode}", "--packbench-concurrency=1")
    result = debug_log(plain, "q\n", *options)
    assert result.returncode == pytest.ExitCode.INTERRUPTED, result.stdout
    assert "Quitting debugger" in result.stdout


def test_a_tool_that_traces_is_no_debugger(plain: Project) -> None:
    prepare(plain, "ab")
    (plain.root / "traced.py").write_text(
        "import sys\n\n\nclass Tracer:\n    def trace(self, frame, event, arg):\n        return None\n\n\n"
        "sys.settrace(Tracer().trace)\n",
        encoding="utf-8",
    )
    result = debug_log(plain, "", "-p", "traced", "--packbench-mode=live", "--packbench-target=pipeline:note")
    assert "concurrent attempts: 8, timeout 300 s per attempt" in result.stdout


def test_a_cap_on_money_wants_the_price_of_a_target_outside_this_process(plain: Project) -> None:
    prepare(plain, "ab")
    result = plain.run_toy(
        "--packbench-mode=live", f"--packbench-target=cmd:{sys.executable} agent.py", "--packbench-max-cost=1"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "runs outside this process and the price of its model is unknown" in result.stderr.str()


def test_a_cap_on_tokens_holds_for_what_a_target_tells(plain: Project) -> None:
    names = [f"case_{number:02}" for number in range(8)]
    prepare(plain, *names)
    (plain.root / "agent.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    usage = {'tokens_input': 6, 'tokens_output': 4}\n"
        "    result = {'points': 1.0, 'llm_backend': 'ollama', 'llm_model': 'small', 'usage': usage}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': json.loads(line)['id'], 'result': result}), flush=True)\n",
        encoding="utf-8",
    )
    result = plain.run_toy(
        "--packbench-mode=live",
        f"--packbench-target=cmd:{sys.executable} agent.py",
        "--packbench-concurrency=1",
        "--packbench-max-tokens=30",
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, skipped=5)
    assert {line["kind"] for line in plain.lines("errors.jsonl")} == {"max_tokens"}


def test_fixture_mode_imports_no_client(plain: Project) -> None:
    plain.case("ab", points=1.0)
    plain.pytester.makepyfile(test_nothing="def test_one(): pass")
    code = (
        "import json, sys, pytest\n"
        "assert pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]) == 0\n"
        "names = ('openai', 'anthropic', 'ollama', 'httpx', 'httpx2', 'httpcore', 'genai_prices')\n"
        "print(json.dumps([name for name in names if name in sys.modules]))\n"
    )
    imported = []
    for arguments in (("--packbench-suite=toy",), ("test_nothing.py",)):
        command = [sys.executable, "-c", code, *arguments]
        ended = subprocess.run(command, cwd=plain.root, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        imported.append(set(json.loads(ended.stdout.splitlines()[-1])))
    # other plugins of the environment may bring theirs
    ours, others = imported
    assert ours <= others


CAPTURING = """
import contextlib, io, time
kept = io.StringIO()
with contextlib.redirect_stdout(kept):
    for _ in range(4):
        print(context.case_id)
        time.sleep(0.02)
assert kept.getvalue() == 4 * (context.case_id + chr(10))
print('half of a pair:', chr(0xd83d))
"""


def test_what_one_case_redirects_is_its_own_and_a_test_beside_sees_its_own_streams(project: Project) -> None:
    for number in range(6):
        project.case(f"case_{number}", points=1.0, python=CAPTURING)
    project.case("fails", points=0.0, python=CAPTURING)
    project.pytester.makepyfile(
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
    result = project.run_toy("--packbench-concurrency=4", "test_own.py", "storage")
    result.assert_outcomes(passed=8, failed=1)
    assert project.lines("errors.jsonl") == []
    result.stdout.fnmatch_lines(["half of a pair: [?]"])
    result.stdout.no_fnmatch_line("*DumpError*")


@pytest.mark.parametrize("tokens", ["2 ** 70", "9 * 10 ** 4299"])
def test_tokens_that_nobody_can_have_counted_end_no_run(plain: Project, tokens: str) -> None:
    plain.pytester.makepyfile(
        telling=f"""
        def tell(request):
            usage = {{"tokens_input": {tokens}, "tokens_output": {tokens}}}
            return {{"points": 1.0, "llm_backend": "openai", "llm_model": "x", "usage": usage}}
        """
    )
    plain.case("one")
    result = plain.run_toy("--packbench-mode=live", "--packbench-target=telling:tell")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "Traceback" not in result.stderr.str()
