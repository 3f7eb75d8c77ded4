"""Fixture mode: no network, no child process, and one recording per case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cassettes import authored_cassette

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

CONNECT = "with socket.socket() as s: s.connect(('127.0.0.1', 9))"
THREAD = "t = threading.Thread(target=socket.gethostbyname, args=('localhost',)); t.start(); t.join()"
DATAGRAM = "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'x', ('127.0.0.1', 9))"
REFUSED = {
    "connect": (f"import socket\n{CONNECT}", "connect to ('127.0.0.1', 9)"),
    "sendto": (f"import socket\n{DATAGRAM}", "sendto"),
    "bind": ("import socket\nwith socket.socket(socket.AF_INET6) as s: s.bind(('::1', 0))", "bind"),
    "getaddrinfo": ("import socket; socket.getaddrinfo('localhost', 80)", "look-up of 'localhost'"),
    "gethostbyname": ("import socket; socket.gethostbyname('localhost')", "look-up of 'localhost'"),
    "urlopen": ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')", "look-up of '127.0.0.1'"),
    "asyncio": ("import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', 9))", "connect to"),
    "thread": (f"import threading, socket\n{THREAD}", "look-up"),
    "caught": (f"import socket\ntry:\n    {CONNECT}\nexcept Exception: pass", "connect to"),
    "subprocess": ("import subprocess; subprocess.run(['true'])", "child process (subprocess.Popen"),
    "system": ("import os; os.system('true')", "child process (os.system"),
}
ASK = """
from pytest_packbench.model.request import ModelRequest
for role in request.input["roles"]:
    print(context.llm.complete_sync(ModelRequest(role=role, system="s", messages=())).content)
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_leaves_the_process_is_an_error_of_its_case(project: Project) -> None:
    for name, (python, _) in REFUSED.items():
        project.case(name, python=python)
    local = "import asyncio, socket; asyncio.run(asyncio.sleep(0)); [s.close() for s in socket.socketpair()]"
    project.case("local", python=local)
    # the guard works inside of cases only
    own = project.pytester.makepyfile(
        test_own="import socket\ndef test_own():\n    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.close()"
    )
    project.run_toy(str(own)).assert_outcomes(passed=2, errors=len(REFUSED))
    errors = project.errors()
    for name, (_, action) in REFUSED.items():
        assert errors[name]["kind"] == "offline"
        assert f"case {name}: fixture mode is offline, but the target tried: {action}" in errors[name]["message"]
    allowed = project.run_toy("-o", "packbench_allow_processes=yes", "-k", "subprocess or system")
    allowed.assert_outcomes(passed=2, deselected=len(REFUSED) - 1)


def write_case_with_cassette(
    project: Project, name: str, roles: list[str], exchanges: list[dict[str, Any]], **changes: Any
) -> None:
    case = json.loads(project.case(name, python=changes.pop("python", ASK), roles=roles).read_text("utf-8"))
    cassette = json.dumps(authored_cassette(name, case["input"], exchanges, pack="toy", **changes))
    project.write(f"storage/benchmarks/toy/fixtures/{name}.json", cassette)


def test_a_cassette_that_does_not_fit_is_an_error_in_one_line(project: Project, expected: ExpectedTexts) -> None:
    one, two = {"role": "one", "answer": "1"}, {"role": "two", "answer": "2"}
    ignoring = "\n".join(["try:", *(f"    {line}" for line in ASK.strip().splitlines()), "except Exception: pass"])
    project.case("missing", python=ASK, roles=["one"])
    write_case_with_cassette(project, "one_call_more", ["one", "two"], [one])
    write_case_with_cassette(project, "one_call_fewer", ["one"], [one, two])
    write_case_with_cassette(project, "another_role", ["two"], [one])
    write_case_with_cassette(project, "ignored", ["two"], [one], python=ignoring)
    write_case_with_cassette(project, "changed_input", ["one"], [one], input_sha256="0" * 64)
    write_case_with_cassette(project, "another_case", ["one"], [one], case_id="other")
    write_case_with_cassette(project, "another_version", ["one"], [one], cassette_version=3)
    write_case_with_cassette(project, "unknown_key", ["one"], [one], exchange=[])
    project.run_toy().assert_outcomes(errors=9)
    expected.check("".join(f"{name}: {one['kind']}: {one['message']}\n" for name, one in project.errors().items()))


def test_a_changed_prompt_is_an_error_or_on_request_a_remark(project: Project) -> None:
    exchanges = [{"role": "one", "answer": 1, "request_sha256": "0" * 64}]
    write_case_with_cassette(project, "asks", ["one"], exchanges, origin="recorded")
    result = project.run_toy("-o", "packbench_stale=warn")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*stale*"])
    assert project.lines("records.jsonl")[0]["packbench"]["stale"] is True
    project.run_toy().assert_outcomes(errors=1)
