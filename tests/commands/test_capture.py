"""`packbench capture`: what a running app asked becomes cases that are red, or nothing; nothing leaks, nothing is written unseen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from pytest_packbench.api import score
from pytest_packbench.app import CAPTURE, capture
from pytest_packbench.commands import main
from pytest_packbench.engine.gateway import Gateway, conversations
from pytest_packbench.engine.gateway.conversations import Conversations
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.errors import CaseError
from pytest_packbench.testing import case, write_suite
from tests.engine.gateway.gateways import CHAT, KEY, openai_chunk, post, question, recorded, replayed, sse, stored
from tests.servers.fake import FakeServer, Reply, closed_port
from tests.servers.wire import answer_with, openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.fake import Received

    Capture = Callable[..., "Captured"]

# the pipeline, which the app and the suite share
DESK = """
import json, os
from urllib.error import HTTPError
from urllib.request import Request, urlopen

def user(text):
    return {"role": "user", "content": text}

def ask(*messages, **headers):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers |= {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    try:
        with urlopen(Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)) as reply:
            return json.load(reply)["choices"][0]["message"]["content"]
    except HTTPError as error:
        error.close()
        raise

def sort(text, **headers):
    first = ask(user(text), **headers)
    return {"queue": ask(user(text), {"role": "assistant", "content": first}, user("sure?"), **headers)}

def answer(request):
    return sort(request.input["text"])
"""
APP = """
import sys
from desk import *
from pytest_packbench import capture
{}
"""
STATED = "for text in sys.argv[1:]:\n    with capture({'text': text}):\n        sort(text)"
WARNING = "keys and tokens are redacted, personal data is not: look at these files before you share them"


class Captured:
    """What a call of the command came to.

    Attributes:
        code: its exit code.
        lines: what it printed about conversations.
        error: what it printed as an error.
        files: the files of the suite that it wrote, by path, as JSON.
    """

    def __init__(self, code: int, printed: str, error: str, folder: Path, before: set[Path]) -> None:
        self.code, self.error = code, error
        self.lines = [line for line in printed.splitlines() if not line.startswith("wrote ")]
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in before)
        self.files = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}

    def under(self, folder: str) -> list[Any]:
        return [
            json.loads(text)
            for path, text in self.files.items()
            if Path(path).parent.as_posix() == folder and path.endswith(".json")
        ]

    @property
    def cases(self) -> list[Any]:
        return self.under("cases/captured")

    @property
    def recordings(self) -> list[Any]:
        return self.under("fixtures")

    @property
    def leftovers(self) -> list[Any]:
        return self.under("fixtures/.captured")


def reply(received: Received) -> Reply:
    return answer_with(lambda asked: "letters" if asked.text.endswith("sure?") else f"about {asked.text}")(received)


@pytest.fixture
def provider() -> Iterator[FakeServer]:
    with FakeServer(reply) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: FakeServer) -> Path:
    """A project with the suite `mail`, in the environment of its user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    for name in ("CI", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    cases = [case("old", input={"text": "known"}, expected={"queue": "refunds"})]
    rules = {"target": "desk:answer", "criteria": [{"exact": "/queue"}]}
    return write_suite(tmp_path / "storage" / "benchmarks" / "mail", cases, pack="generic", rules=rules)


@pytest.fixture
def captured(folder: Path, capfd: pytest.CaptureFixture[str]) -> Capture:
    """Run the command with an app, and return what it came to."""

    def call(app: str = STATED, *words: str, options: tuple[str, ...] = ("--yes",), **rules: Any) -> Captured:
        Path("app.py").write_text(APP.format(app), "utf-8")
        if rules:
            config = folder / "suite.yaml"
            config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | rules), "utf-8")
        before = {*folder.rglob("*")}
        code = main(["capture", "--suite", "mail", *options, "--", sys.executable, "app.py", *words])
        printed = capfd.readouterr()
        return Captured(code, printed.out, printed.err, folder, before)

    return call


def run_suite() -> subprocess.CompletedProcess[str]:
    """Run the suite as its user does, without a key and without a model."""
    words = [sys.executable, "-m", "pytest", "-q", "--packbench-suite=mail", "-k", "captured", "-pno:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)


def state_expected(done: Captured, folder: Path, expected: Any) -> None:
    for path in done.files:
        if path.startswith("cases/"):
            plain = json.loads(done.files[path]) | {"expected": expected}
            del plain["open"]
            (folder / path).write_text(json.dumps(plain), "utf-8")


WEB_APP = """
from http.server import BaseHTTPRequestHandler, HTTPServer
from openai import OpenAI
from pytest_packbench import capture

def sort(text):
    question = [{"role": "user", "content": text}]
    return {"queue": OpenAI().chat.completions.create(model="m", messages=question).choices[0].message.content}

def answer(request):
    return sort(request.input["text"])

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        with capture({"text": text}):
            body = sort(text)["queue"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.left -= 1

if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    open("port.part", "w").write(str(server.server_port))
    __import__("os").rename("port.part", "port")
    server.left = 2
    while server.left:
        server.handle_request()
"""


def test_a_failure_in_a_web_app_is_a_red_test_after_one_command(captured: Capture, folder: Path) -> None:
    Path("web.py").write_text(WEB_APP, "utf-8")
    answers: list[str] = []

    def use() -> None:
        while not Path("port").exists():
            threading.Event().wait(0.02)
        url = f"http://127.0.0.1:{Path('port').read_text('utf-8')}"
        answers.extend(httpx.post(url, content=text, trust_env=False).text for text in ("parcel lost", "known"))

    person = threading.Thread(target=use)
    person.start()
    done = captured("import runpy; runpy.run_module('web', run_name='__main__')", target="web:answer")
    person.join()
    assert answers == ["about parcel lost", "about known"]
    assert done.code == 0
    (plain,) = done.cases
    name = plain["id"]
    assert done.lines == [
        "dropped, 1 call: the same input as case old",
        f'{name}, 1 call: input {{"text": "parcel lost"}}, the target returns {{"queue": "about parcel lost"}}',
        "calls beyond what is kept: 0",
        WARNING,
    ]
    assert (plain["pack_id"], plain["input"], "expected" in plain) == ("generic", {"text": "parcel lost"}, False)
    (recording,) = done.recordings
    assert (recording["llm_backend"], recording["llm_model"], recording["origin"]) == ("openai", "m", "recorded")
    assert KEY not in "".join(done.files.values())
    red = run_suite()
    assert (red.returncode, '/expected: the key "expected" is missing; add it' in red.stdout) == (1, True)
    state_expected(done, folder, {"queue": "about parcel lost"})
    green = run_suite()
    assert (green.returncode, green.stdout.count("1 passed")) == (0, 2), green.stdout


def test_what_is_open_is_red_where_the_rules_of_the_suite_need_no_expected_value(captured: Capture) -> None:
    rule = {"one_of": "/queue", "value": ["letters"]}
    done = captured(STATED, "a", "b", criteria=[rule])
    assert (done.code, len(done.cases)) == (0, 2)
    run = run_suite()
    assert (run.returncode, "2 errors" in run.stdout) == (1, True)
    # neither is enough by itself
    plain = done.cases[0]
    for changed in ({**plain, "expected": {"queue": "letters"}}, {key: plain[key] for key in plain if key != "open"}):
        with pytest.raises(CaseError, match="unknown key" if "open" in changed else '"expected" is missing'):
            score(changed, {"queue": "letters"}, pack="generic")


HEADER = "for text in sys.argv[1:]:\n    sort(text, **{'x-packbench-input': text})"
RAW = "for text in sys.argv[1:]:\n    sort(text)"
# as a pipeline asks whose messages are the only thing that says which calls belong together
TWO_AT_ONCE = """
one, two = [user("a")], [user("b")]
for _ in range(2):
    for messages in (one, two):
        messages += [{"role": "assistant", "content": ask(*messages)}, user("sure?")]
"""


VARIANTS = """
def bare(request):
    return sort(request.input)

def message(request):
    return sort(request.input["content"])

def quoted(request):
    from urllib.parse import quote
    text = json.dumps(request.input)
    return sort(quote('{"text": "50 % ü"}') if "%" in text else text)
"""


@pytest.mark.parametrize(
    ("app", "words", "rules", "inputs"),
    [
        (STATED, ("a", "b", "a"), {}, ({"text": "a"}, {"text": "b"})),
        (
            HEADER,
            ('{"text": "a?"}', quote('{"text": "50 % ü"}'), "../../x"),
            {"target": "desk:quoted"},
            ({"text": "a?"}, {"text": "50 % ü"}),
        ),
        (TWO_AT_ONCE, (), {"capture": {"input": "/messages/-1/content"}, "target": "desk:bare"}, ("a", "b")),
        (
            RAW,
            ("a", "b"),
            {"capture": {"input": "/messages/0"}, "target": "desk:message"},
            tuple(question(text)["messages"][0] for text in "ab"),
        ),
    ],
    ids=["capture", "header", "messages", "pointer"],
)
def test_conversations_are_told_apart(  # noqa: PLR0917 - an app and what it comes to
    captured: Capture, provider: FakeServer, app: str, words: tuple[str, ...], rules: Any, inputs: tuple[Any, ...]
) -> None:
    Path("desk.py").write_text(DESK + VARIANTS, "utf-8")
    done = captured(app, *words, **rules)
    assert sorted([plain["input"] for plain in done.cases], key=str) == sorted(inputs, key=str), done.lines
    assert [len(recording["gateway"]) for recording in done.recordings] == [2] * len(inputs)
    # neither the provider nor a recording gets to know of it, and no id is one of theirs
    assert not [name for request in provider.requests for name in request.headers if "packbench" in name]
    assert "packbench" not in json.dumps(done.recordings)
    names = {plain["id"] for plain in done.cases}
    assert all(name.removeprefix("captured_").isalnum() and len(name) == 21 for name in names)
    assert len(done.leftovers) == ("../../x" in words)


def test_the_latest_of_several_with_the_same_input_counts(captured: Capture, provider: FakeServer) -> None:
    answers = cycle("abcd")
    provider._handler = lambda _: openai_reply(next(answers))  # noqa: SLF001 - as a model that answers otherwise
    done = captured(STATED, "lost", "lost")
    ((_, last),) = [
        [call["body"]["choices"][0]["message"]["content"] for call in each["gateway"]] for each in done.recordings
    ]
    assert last == "d"
    assert sum("the same input as case captured_" in line for line in done.lines) == 1
    again = captured(STATED, "lost")
    assert (again.code, again.files) == (1, {})


LAZY = "\ndef lazy(request):\n    return {'queue': 'letters'}\n"
CURIOUS = (
    "\ndef curious(request):\n    sort(request.input['text'])\n    ask(user('more'))\n    return {'queue': 'letters'}\n"
)
SWALLOWS = """
def swallows(request):
    try:
        ask(user(request.input["text"]), user("another"))
    except OSError:
        pass
    return {"queue": "letters"}
"""


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (LAZY, "made only 0 of the 2 recorded calls"),
        (CURIOUS, "is none of the 2 recorded requests"),
        (SWALLOWS, "is none of the 2 recorded requests"),
        ("\ndef other(request):\n    raise KeyError('early')\n", "the target raised KeyError"),
    ],
    ids=["asks nothing", "asks more", "swallows the refusal", "raises at once"],
)
def test_what_the_target_does_not_replay_is_kept_as_calls_only(captured: Capture, target: str, reason: str) -> None:
    Path("desk.py").write_text(DESK + target, "utf-8")
    done = captured(STATED, "lost", target=f"desk:{target.partition('(')[0][len('.def ') :]}")
    assert (done.code, done.cases, done.recordings) == (1, [], [])
    (kept,) = done.leftovers
    assert reason in kept["reason"]
    assert done.lines[0] == f"calls without a case, 2 calls: {kept['reason']}"
    assert len(kept["gateway"]) == 2
    assert done.files["fixtures/.captured/.gitignore"] == "*\n"


def test_an_exception_of_the_pipeline_may_be_the_failure(captured: Capture) -> None:
    crash = "\ndef crash(request):\n    return {'queue': int(sort(request.input['text'])['queue'])}\n"
    Path("desk.py").write_text(DESK + crash, "utf-8")
    done = captured(STATED, "lost", target="desk:crash")
    assert (done.code, len(done.cases)) == (0, 1)
    assert "the target fails: the target raised ValueError" in done.lines[0]


def test_what_states_no_input_or_a_wrong_one_is_kept_as_calls_only(captured: Capture) -> None:
    done = captured("sort('lost')", capture={})
    assert (done.code, done.cases, len(done.leftovers)) == (1, [], 1)
    assert "captured_" not in run_suite().stdout
    assert "the app does not state its input: call pytest_packbench.capture(input) there" in done.lines[0]
    done = captured("sort('lost')", capture={"input": "/input/text"})
    assert "the first request has nothing at /input/text (suite.yaml, /capture/input)" in done.lines[0]


def test_a_call_that_failed_is_no_recording_and_one_that_was_repeated_is(
    captured: Capture, provider: FakeServer
) -> None:
    stumbles = """
def once(text):
    try:
        return ask(user(text))
    except OSError:
        return ask(user(text)) if text == "again" else "letters"

def stumbling(request):
    return {"queue": once(request.input)}
"""
    failed: set[str] = set()

    def handler(received: Received) -> Reply:
        text = parse_request(received).text
        if text == "again" and text in failed:
            return reply(received)
        failed.add(text)
        return Reply(status=500, body={"error": {"message": "down"}})

    provider._handler = handler  # noqa: SLF001 - as a provider with a bad minute
    Path("desk.py").write_text(DESK + stumbles, "utf-8")
    done = captured("once('again')\nonce('down')", capture={"input": "/messages/0/content"}, target="desk:stumbling")
    assert [plain["input"] for plain in done.cases] == ["again"], done.lines
    assert [call["status"] for call in done.recordings[0]["gateway"]] == [500, 200]
    assert "a call failed (server_error)" in done.lines[0]


SECRET = "sk-proj-" + "Ab1" * 14


def test_secrets_reach_no_file(captured: Capture, provider: FakeServer) -> None:
    in_answer = captured("with capture({'text': 'secret'}):\n    sort('secret')")
    assert len(in_answer.cases) == 1
    pieces = b"".join(sse(*(openai_chunk(SECRET[at : at + 9]) for at in range(0, len(SECRET), 9)), "[DONE]"))

    def leak(received: Received) -> Reply:
        text = parse_request(received).text
        if text == "stream":
            return Reply(body=pieces, headers={"content-type": "text/event-stream"})
        return openai_reply(SECRET if "leak" in text else "letters")

    provider._handler = leak  # noqa: SLF001 - a model that leaks
    app = f"""
with capture({{"text": "stream"}}):
    try:
        ask(user("stream"))
    except ValueError:
        pass
with capture({{"text": "leak"}}):
    sort("leak")
with capture({{"text": "{SECRET}"}}):
    sort("{SECRET}")
with capture({{"text": "fine"}}):
    sort("fine")
"""
    done = captured(app)
    assert (len(done.cases), len(done.leftovers)) == (1, 1)
    assert SECRET not in "".join(done.files.values())
    assert SECRET not in "".join(done.lines)
    dropped = [line for line in done.lines if line.startswith("dropped")]
    assert len(dropped) == 2
    assert "an answer contains an API key (sk-...) at /0/body/choices/0/message/content" in dropped[0]
    assert done.leftovers[0]["reason"] == "its input contains a secret"


def test_prompts_are_left_out_of_recordings_where_the_project_says_so(captured: Capture) -> None:
    Path("pytest.ini").write_text("[pytest]\npackbench_record_prompts = no\n", "utf-8")
    done = captured("with capture({'text': 'Ada lives here'}):\n    sort('Ada lives here')\nsort('Bob lives there')")
    assert (len(done.cases), len(done.leftovers)) == (1, 1)
    assert not [call for each in (*done.recordings, *done.leftovers) for call in each["gateway"] if "request" in call]
    assert "Ada" not in "".join(done.lines)
    assert "Bob" not in json.dumps(done.leftovers).replace("about Bob", "")


@pytest.mark.parametrize(("answer", "written"), [("y\n", 1), ("yes\n", 1), ("n\n", 0), ("\n", 0), ("", 0), ("y", 1)])
def test_nothing_is_written_before_a_yes(
    captured: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, written: int
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            assert not [*folder.glob("**/captured*")]
            return answer

    monkeypatch.setattr(sys, "stdin", Terminal())
    done = captured(STATED, "lost", options=())
    assert (len(done.cases), len(done.files), done.code) == (written, 2 * written, int(not written))
    assert done.lines[-2 - (not written) :] == [
        WARNING,
        "write 2 files? [y/N]",
        *["nothing was written"] * (not written),
    ]


EITHER = "capture: expected either the app (-- COMMAND), or --port with 1 to 65535"
AGREE = "capture: a person has to agree: expected a terminal, or --yes where CI is not set"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--yes"], EITHER),
        (["--yes", "--port", "70000"], EITHER),
        (["--yes", "--port", "8080", "--", "true"], EITHER),
        (["--", "true"], AGREE),
        (["--yes", "--", "true"], "no model call came: does the app read the address of its model from the variables?"),
        (["--yes", "--", "no-such-program"], "no-such-program: No such file or directory"),
        (["--yes", "--option=--packbench-target=http://127.0.0.1:9/", "--", "true"], "expected one of this project"),
        (["--yes", "--suite", "bundled/tariff", "--", "true"], "expected one of this project"),
        (["--yes", "--suite", "nothing", "--", "true"], 'unknown suite "nothing"'),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_can_t_be_captured_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--suite", "mail", *words]) == 2
    printed = capfd.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err


def test_ci_agrees_to_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "1")
    assert main(["capture", "--suite", folder.name, "--yes", "--", "true"]) == 2
    assert AGREE in capsys.readouterr().err


def test_an_app_that_dies_keeps_what_it_asked(captured: Capture) -> None:
    done = captured(f"{STATED}\nsys.exit(3)", "lost")
    assert (done.code, len(done.cases)) == (0, 1)


def interrupted(process: subprocess.Popen[str], *, group: bool) -> tuple[int, str]:
    os.killpg(process.pid, signal.SIGINT) if group else process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=30)
    return process.returncode, printed


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest_packbench", "capture", "--suite", "mail", "--yes", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_ctrl_c_ends_the_app_and_keeps_what_it_asked(folder: Path) -> None:
    app = f"""
{STATED}
import time
try:
    open('asked', 'w').close()
    time.sleep(60)
finally:
    time.sleep(1)
    open('ended', 'w').close()
"""
    Path("app.py").write_text(APP.format(app), "utf-8")
    with start("--", sys.executable, "app.py", "lost") as process:
        while not Path("asked").exists():
            threading.Event().wait(0.02)
        code, printed = interrupted(process, group=True)
    assert Path("ended").exists()
    assert (code, len([*folder.glob("cases/captured/*.json")])) == (0, 1), printed


def test_an_app_that_runs_elsewhere_needs_the_secret_and_is_no_page(folder: Path) -> None:
    port = closed_port()
    with start("--port", str(port)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "start the app with these variables, and end this by Ctrl-C:\n"
        lines: list[str] = []
        while not lines or CAPTURE not in lines[-1]:
            lines.append(process.stdout.readline())
        variables = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines)
        url = variables["OPENAI_BASE_URL"]
        assert url.startswith(f"http://127.0.0.1:{port}/")
        asked = partial(httpx.post, json=question("lost"), trust_env=False)
        assert asked(f"http://127.0.0.1:{port}/openai/v1/chat/completions").status_code == 404
        assert asked(f"{url}/chat/completions", headers={"origin": "http://evil.example"}).status_code == 403
        app = "import json, sys\nfrom desk import *\nfrom pytest_packbench import capture\n" + STATED
        subprocess.run([sys.executable, "-c", app, "lost"], env={**os.environ, **variables}, check=True, timeout=30)
        code, printed = interrupted(process, group=False)
    assert (code, len([*folder.glob("cases/captured/*.json")])) == (0, 1), printed


# -- what is kept in memory --


def serving(url: str) -> tuple[Gateway, Conversations]:
    gateway = Gateway(offline=False, upstreams={"openai": f"{url}/v1"})
    kept = Conversations()
    gateway.configure(conversation_of=kept.of)
    return gateway, kept


def test_more_conversations_than_are_kept_are_forwarded_only(
    provider: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, kept = serving(provider.url)
    gateway.start()
    try:
        with httpx.Client(trust_env=False) as client:
            for number in range(205):
                assert client.post(f"{gateway.url}{CHAT}", json=question(f"{number}")).status_code == 200
        assert (len(kept), kept.left_out, len(provider.requests)) == (200, 5, 205)
        monkeypatch.setattr(conversations, "MOST_BYTES", 0)
        assert post(gateway, "one more").status_code == 200
    finally:
        gateway.stop()
    assert (len(kept), kept.left_out) == (200, 6)


def come(
    gateway: Gateway, kept: Conversations, body: Any, stated: str = "", *, size: int = 1, answer: bytes = b""
) -> None:
    """Let a call come that is answered at once, as the gateway does."""
    call = RecordedCall.of("openai", "POST", CHAT, json.dumps(body).encode())
    if (traffic := kept.of(gateway, call, stated, size)) is not None:
        traffic.calls.append(call)
        call.pieces.append(answer)
        call.status, call.end = 200, "complete"


@pytest.mark.parametrize(
    ("size", "answer", "most"), [(30_000, b"x" * 30_000, 2), (30_000, b"", 3), (1, b"x" * 60_000, 2)]
)
def test_requests_and_answers_count_against_what_is_kept(
    provider: FakeServer, monkeypatch: pytest.MonkeyPatch, size: int, answer: bytes, most: int
) -> None:
    monkeypatch.setattr(conversations, "MOST_BYTES", 100_000)
    gateway, kept = serving(provider.url)
    gateway.stop()
    for number in range(5):
        come(gateway, kept, question(f"{number}"), size=size, answer=answer)
    assert (len(kept), kept.left_out) == (most, 5 - most)


def test_a_block_of_an_app_is_one_conversation_whatever_it_asks(provider: FakeServer) -> None:
    gateway, kept = serving(provider.url)
    gateway.stop()
    # three votes, and one more block with the same input
    for stated in ("a1?%22x%22", "a1?%22x%22", "a1?%22x%22", "b2?%22x%22"):
        come(gateway, kept, question("x"), stated)
    # with a header, the first call comes again for the next user
    for text in "xyxy":
        come(gateway, kept, question(text), "?%22x%22")
    # texts and no messages, as for embeddings, continue nothing
    for body in ({"input": "x"}, question("x"), {"input": "x"}, ["no", "object"], None):
        come(gateway, kept, body)
    assert [len(each.calls) for each in kept] == [3, 1, 2, 2, 1, 1, 1, 1, 1]


def test_a_target_may_state_its_input_in_each_mode(provider: FakeServer) -> None:
    traffic = recorded(provider.url, lambda gateway: post(gateway, headers={"x-packbench-input": "1"}))
    assert "x-packbench-input" not in provider.requests[0].headers
    assert replayed(stored(traffic), lambda gateway: post(gateway, headers={"x-packbench-input": "2"})).mismatch == ""


def test_without_the_command_the_mark_of_an_app_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAPTURE, raising=False)
    send = httpx.Client.send
    with capture(object()):
        assert httpx.Client.send is send


def test_ids_of_cases_are_no_hashes_of_their_input(captured: Capture) -> None:
    # a person may have changed the input of a captured case, whose id stays
    done = captured(STATED, "lost")
    assert canonical_sha256({"text": "lost"})[:12] not in done.cases[0]["id"]
