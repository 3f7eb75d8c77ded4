"""Fixture mode: no network, no child process, one recording a case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.model.case import canonical_sha256
from tests.cassettes import authored_cassette

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

CONNECT = "import socket\nwith socket.socket() as s: s.connect(('127.0.0.1', 9))"
ASK = """
from pytest_packbench.model.request import ModelRequest
for role in request.input["roles"]:
    print(context.llm.complete_sync(ModelRequest(role=role, system="s", messages=())).content)
"""


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (CONNECT, "connect to ('127.0.0.1', 9)"),
        (
            "import socket\nwith socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'x', ('127.0.0.1', 9))",
            "sendto",
        ),
        ("import socket\nwith socket.socket(socket.AF_INET6) as s: s.bind(('::1', 0))", "bind"),
        ("import socket; socket.getaddrinfo('localhost', 80)", "look-up of 'localhost'"),
        ("import socket; socket.gethostbyname('localhost')", "look-up of 'localhost'"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')", "look-up of '127.0.0.1'"),
        ("import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', 9))", "connect to"),
        (
            "import threading, socket\nt = threading.Thread(target=socket.gethostbyname, args=('localhost',)); t.start(); t.join()",
            "look-up",
        ),
        ("try:\n    " + CONNECT.replace("\n", "\n    ") + "\nexcept Exception:\n    pass", "connect to"),
        ("import subprocess; subprocess.run(['true'])", "child process (subprocess.Popen"),
        ("import os; os.system('true')", "child process (os.system"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_leaves_the_process_is_refused_and_named(project: Project, code: str, what: str) -> None:
    project.case("talker", python=code)
    project.case(
        "quiet",
        python="import asyncio, socket; asyncio.run(asyncio.sleep(0)); [s.close() for s in socket.socketpair()]",
    )
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["kind"] == "offline"
    assert line["message"].startswith("case talker: fixture mode is offline, but the target tried: ")
    assert what in line["message"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_of_a_targets_own_lets_no_case_pass_by_luck(plain: Project) -> None:
    started = "import threading, socket, time\ntime.sleep(0.2)\n"
    thread = "t = threading.Thread(target=socket.gethostbyname, args=('localhost',)); t.start(); t.join()"
    # whichever begins first, the guilty one must not pass
    plain.case("a_waits", python="import time; time.sleep(1)")
    plain.case("b_talks", python=started + thread)
    plain.run_toy("--packbench-concurrency=4")
    (guilty,) = [line for line in plain.lines("errors.jsonl") if "b_talks" in line["test_id"]]
    assert guilty["kind"] == "offline"
    assert "look-up of 'localhost'" in guilty["message"]


def test_child_processes_may_be_allowed(plain: Project) -> None:
    plain.case("parent", python="import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)")
    plain.pytester.makeini("[pytest]\npackbench_allow_processes = yes\n")
    plain.run_toy().assert_outcomes(passed=1)


def test_the_guard_sleeps_outside_cases(plain: Project) -> None:
    plain.case("talker", python=CONNECT)
    path = plain.pytester.makepyfile(
        test_own="import socket\ndef test_own():\n    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.close()"
    )
    plain.run_toy(str(path)).assert_outcomes(passed=1, errors=1)


def write_cassette(project: Project, case: Path, exchanges: list[dict[str, Any]], **more: Any) -> Path:
    path = case.parents[2] / "fixtures" / case.name
    path.parent.mkdir(exist_ok=True)
    data = json.loads(case.read_text("utf-8"))
    cassette = authored_cassette(data["id"], data["input"], exchanges, **more)
    path.write_text(json.dumps(cassette), encoding="utf-8")
    return path


def test_answers_come_from_the_cassette_in_order(project: Project) -> None:
    case = project.case("asker", python=ASK, roles=["one", "two"], points=0.1)
    write_cassette(project, case, [{"role": "one", "answer": "first answer"}, {"role": "two", "answer": {"second": 2}}])
    result = project.run_toy()
    result.stdout.fnmatch_lines(["*first answer*", "{'second': 2}"])
    (line,) = project.lines("records.jsonl")
    assert (line["llm_backend"], line["llm_model"]) == ("stub", "authored")
    assert len(line["packbench"]["cassette_sha256"]) == 64


@pytest.mark.parametrize(
    ("roles", "recorded", "said"),
    [
        (["one", "two"], ["one"], 'call 2 (role "two") exceeds the 1 recorded ones'),
        (["one"], ["one", "two"], "the target made only 1 of the 2 recorded calls"),
        (["two"], ["one"], '/exchanges/0/role: got "one"; the call of the target has the role "two"'),
    ],
)
def test_one_call_more_or_fewer_or_another_is_an_error(
    project: Project, roles: list[str], recorded: list[str], said: str
) -> None:
    case = project.case("asker", python=ASK, roles=roles)
    write_cassette(project, case, [{"role": role, "answer": role} for role in recorded])
    project.run_toy().assert_outcomes(errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["kind"] == "cassette_mismatch"
    assert said in line["message"]
    assert "fixtures/asker.json" in line["message"]


def test_a_swallowed_mismatch_is_an_error_all_the_same(plain: Project) -> None:
    code = "\n".join(["try:", *("    " + line for line in ASK.strip().splitlines()), "except Exception: pass"])
    case = plain.case("asker", python=code, roles=["two"])
    write_cassette(plain, case, [{"role": "one", "answer": 1}])
    plain.run_toy().assert_outcomes(errors=1)


def test_a_missing_cassette_says_so(project: Project) -> None:
    project.case("asker", python=ASK, roles=["one"])
    project.run_toy().assert_outcomes(errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["kind"] == "cassette_missing"
    assert line["message"].startswith("fixtures/asker.json: the target calls a model")


def test_a_target_that_asks_no_model_needs_no_cassette(project: Project) -> None:
    project.case("silent")
    project.run_toy().assert_outcomes(passed=1)
    (line,) = project.lines("records.jsonl")
    assert (line["llm_backend"], line["llm_model"]) == ("unknown", "unknown")


def test_a_changed_input_is_an_error_that_says_what_to_do(project: Project) -> None:
    case = project.case("asker", python=ASK, roles=["one"])
    write_cassette(project, case, [{"role": "one", "answer": 1}])
    changed = project.case("asker", python=ASK, roles=["one"], more=1)
    project.run_toy().assert_outcomes(errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["kind"] == "cassette_outdated"
    assert canonical_sha256(json.loads(changed.read_text("utf-8"))["input"]) in line["message"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"case_id": "other"}, '/case_id: got "other"; expected "asker": a cassette belongs to one case'),
        ({"cassette_version": 2}, "/cassette_version: got 2; expected 1"),
        ({"exchange": []}, '/exchange: unknown key "exchange"; did you mean "exchanges"?'),
    ],
)
def test_a_wrong_cassette_is_one_line(project: Project, change: dict[str, Any], said: str) -> None:
    case = project.case("asker", python=ASK, roles=["one"])
    write_cassette(project, case, [{"role": "one", "answer": 1}], **change)
    project.run_toy().assert_outcomes(errors=1)
    (line,) = project.lines("errors.jsonl")
    assert line["message"] == f"fixtures/asker.json: {said}"


def test_a_changed_prompt_is_stale_and_an_error_where_asked(plain: Project) -> None:
    case = plain.case("asker", python=ASK, roles=["one"])
    write_cassette(plain, case, [{"role": "one", "answer": 1, "request_sha256": "0" * 64}], origin="recorded")
    result = plain.run_toy()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*stale*"])
    assert plain.lines("records.jsonl")[0]["packbench"]["stale"] is True
    plain.pytester.makeini("[pytest]\npackbench_stale = error\n")
    plain.run_toy().assert_outcomes(errors=1)
