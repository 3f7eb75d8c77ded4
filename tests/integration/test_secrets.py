"""No key in any file or output: printed, logged, raised, returned or echoed, in any form, in fixture and live mode."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.integration.options.conftest import Model, recordings
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project

KEY = "sk-test/Planted+0123=456789/AbCdEf"
WORD = 'pl"anted\\pass wörd-77'
# of the form of a key, and in no variable
FORMED = "AKIA" + "Q7" * 8
TARGETS = """
import base64
import json
import logging
import os
import re
import sys
import warnings
from urllib.parse import quote

FORMED = "AKIA" + "Q7" * 8


def forms(key):
    data = key.encode()
    coded = [base64.b64encode(b"x" * shift + data + b"y").decode() for shift in range(3)]
    coded += [base64.b64encode(b"user:" + data).decode(), base64.urlsafe_b64encode(data).decode()]
    urls = [quote(key, safe=""), quote(key), re.sub("%..", lambda code: code[0].lower(), quote(key, safe=""))]
    return [key, json.dumps(key), repr(key), *urls, *coded, data.hex(), data.hex().upper()]


def every():
    # a target may load a file with keys
    os.environ.setdefault("LOADED_SERVICE_TOKEN", "".join(["loaded-", "5566778", "899-token"]))
    keys = [os.environ[name] for name in ("PLANTED_API_KEY", "PLANTED_PASSWORD", "LOADED_SERVICE_TOKEN")]
    return [form for key in [*keys, FORMED] for form in forms(key)] + [key[:9] + "\\n    " + key[9:] for key in keys]


def act(request):
    return ACTIONS[request.input["text"]]()


def printed():
    for form in every():
        print(form)
        print(form, file=sys.stderr)
        warnings.warn("careful: " + form)
    return {"points": 0.1}


def logged():
    log = logging.getLogger("pipeline")
    for form in every():
        log.warning("using %s", form)
    try:
        raise ValueError(every()[0])
    except ValueError:
        log.exception("trouble")
    return {"points": 1.0}


def raised():
    raise ValueError("failed with " + " ".join(every()))


def raised_in_turn():
    try:
        raise KeyError(every()[0])
    except KeyError as error:
        raise RuntimeError(every()[1]) from error


def returned():
    return {"points": 1.0, "echo": every(), every()[0]: "a key of an object"}


def failed():
    return {"points": 0.2, "word": every()[0], "echo": every()}


def unreadable():
    return {"echo": every()}


ACTIONS = {name: function for name, function in globals().items() if callable(function)}
"""
PIPELINE = """
import logging

from pytest_packbench.model.request import ModelRequest


async def ask(request, context):
    message = {"role": "user", "content": request.input["text"]}
    answer = await context.llm.complete(ModelRequest(role="judge", system="give points", messages=(message,)))
    print("the model said", answer.content)
    logging.getLogger("pipeline").warning("the model said %s", answer.content)
    import json

    return json.loads(answer.content)
"""
PROGRAM = """
import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    print("called with", sys.argv, file=sys.stderr)
    reply = {"result": {"points": 1.0, "echo": sys.argv[1:]}}
    if "refuse" in line:
        reply = {"error": {"code": 1, "message": " ".join(sys.argv), "data": sys.argv}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
"""
ACTIONS = ("printed", "logged", "raised", "raised_in_turn", "returned", "failed", "unreadable")
REPORTS = ("--json-report", "--json-report-file=mine.json", "--junit-xml=junit.xml", "--log-file=log.txt")
SHOWN = (
    "-rA",
    "-W",
    "default",
    "-vv",
    "--log-level=DEBUG",
    "--log-cli-level=DEBUG",
    "-o",
    "junit_logging=all",
    *REPORTS,
)


def planted(key: str) -> set[str]:
    """Return the forms of a key, and its parts on both sides of a line break."""
    data = key.encode()
    coded = [b64encode(b"x" * shift + data)[4 * (shift > 0) : -4].decode() for shift in range(3)]
    coded += [b64encode(data).decode(), urlsafe_b64encode(data).decode(), b64encode(b"user:" + data).decode()]
    urls = [quote(key, safe=""), quote(key)]
    forms = [key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1], repr(key)[1:-1]]
    return {*forms, *urls, *coded, data.hex(), data.hex().upper(), key[:9], key[9:]}


def leaks(
    project: Project, *outputs: pytest.RunResult, keys: tuple[str, ...] = (KEY, WORD, "loaded-5566778899-token")
) -> list[str]:
    """Return the forms of keys that files of the project or an output contain, each with its place."""
    # compiled sources contain what the test planted in them
    files = [path for path in project.root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    texts = {path.name: path.read_text("utf-8", "replace") for path in files}
    texts |= {f"output {number}": output.stdout.str() + output.stderr.str() for number, output in enumerate(outputs)}
    forms = {form for key in keys for form in planted(key)} | {FORMED}
    return [f"{name}: {form}" for name, text in texts.items() for form in forms if form in text]


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    monkeypatch.setenv("PLANTED_PASSWORD", WORD)
    # of the target, which loads it
    monkeypatch.setenv("LOADED_SERVICE_TOKEN", "")
    monkeypatch.delenv("LOADED_SERVICE_TOKEN")


def prepare(project: Project) -> None:
    project.pytester.makepyfile(leaky=TARGETS)
    for action in ACTIONS:
        project.case(action, text=action)


def test_no_key_of_a_fixture_run_is_in_any_file_or_output(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(both)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(both.root / "job.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = both.run_toy("--packbench-target=leaky:act", *SHOWN)
    assert leaks(both, result) == []
    result.assert_outcomes(passed=2, failed=3, errors=2)
    assert leaks(both, result) == []
    text = both.all_text()
    assert "using [redacted]" in (both.root / "log.txt").read_text("utf-8") or both.workers
    for name in ("mine.json", "junit.xml", "job.md"):
        # Markdown escapes the brackets
        assert "redacted" in (both.root / name).read_text("utf-8"), name
    assert "[redacted]" in result.stdout.str()
    assert text.count("[redacted]") > 100


def echo(received: Received) -> Reply:
    """Answer with the header of the key, in other forms too; with an error where the text asks for one."""
    key = received.headers["authorization"].removeprefix("Bearer ")
    assert key.startswith("sk-test/")
    forms = [key, b64encode(f"user:{key}".encode()).decode(), quote(key, safe=""), key.encode().hex(), FORMED]
    text = parse_request(received).text
    if "refuse" in text:
        return Reply(status=401, body={"error": {"message": f"wrong key {' '.join(forms)} {key[:20]}\n{key[20:]}"}})
    return openai_reply(json.dumps({"points": 1.0, "echo": forms} if "echo" in text else {"points": 1.0}))


def run_model(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch, mode: str) -> pytest.RunResult:
    """Run three cases on a model that echoes its key; the folder of the project gets a copy of the journals."""
    project.pytester.makepyfile(pipeline=PIPELINE)
    project.extend_conftest("""
        import shutil
        from pathlib import Path

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(session):
            for path in Path(session.config.rootpath, "reports").rglob("journal*"):
                shutil.copy(path, session.config.rootpath / f"copy-{path.name}")
        """)
    for text in ("echo", "refuse", "plain"):
        project.case(text, text=text)
    model.handler = echo
    monkeypatch.delenv("PLANTED_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.root / "job.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    # some gateways have the key in their path
    url = f"--packbench-base-url={model.url}/{KEY}/v1"
    return model.run(project, url, "--packbench-cache=answers", *SHOWN, mode=mode)


def test_no_key_that_a_model_echoes_is_in_any_file_or_output(
    both: Project, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_model(both, model, monkeypatch, "live")
    result.assert_outcomes(passed=2, errors=1)
    assert leaks(both, result) == []
    assert "[redacted]" in "".join(path.read_text("utf-8") for path in both.root.glob("copy-journal*"))
    # an answer with a key is asked for again
    assert len(list((both.root / "answers").rglob("*.json"))) == 1


def test_an_answer_with_a_key_is_not_recorded(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_model(project, model, monkeypatch, "record")
    result.assert_outcomes(passed=1, errors=2)
    assert leaks(project, result) == []
    assert sorted(recordings(project)) == ["plain.json"]
    error = project.errors()["echo"]
    assert error["kind"] == "secret_in_answer"
    assert error["message"] == (
        'the answer to call 1 (role "judge") contains the value of OPENAI_API_KEY at /answer, so that nothing was '
        "recorded; keep it away from the target and the model, and record again; revoke it if it is yours"
    )


def test_no_key_that_a_server_or_a_program_returns_is_in_any_file_or_output(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKBENCH_HTTP_HEADERS", "Accept: application/json\nX-Pipeline: hdr-planted-998877-value")
    header, option = "hdr-planted-998877-value", "opt-planted-554433"
    login = "login-planted-221100"

    def answer(received: Received) -> Reply:
        value, basic = received.headers["x-pipeline"], received.headers["authorization"]
        if "refuse" in received.body.decode():
            return Reply(status=500, body={"error": f"{value} {quote(basic)} {basic.encode().hex()}"})
        return Reply(body={"points": 1.0, "echo": [value, b64encode(value.encode()).decode(), basic, login]})

    for text in ("echo", "refuse"):
        project.case(text, text=text)
    with FakeServer(answer) as server:
        url = server.url.replace("http://", f"http://me:{login}@")
        served = [
            project.run_toy(f"--packbench-mode={mode}", f"--packbench-target={url}/verify?x=1", *SHOWN)
            for mode in ("live", "record")
        ]
    project.write("agent.py", PROGRAM)
    command = f"--packbench-target=cmd:python agent.py --token {option} -H 'X-Api-Key: {header}'"
    ran = [project.run_toy(f"--packbench-mode={mode}", command, *SHOWN) for mode in ("live", "record")]
    assert leaks(project, *served, *ran, keys=(header, option, login)) == []
    for result, outcomes in zip((*served, *ran), ((1, 1), (0, 2)) * 2, strict=True):
        result.assert_outcomes(passed=outcomes[0], errors=outcomes[1])
    assert recordings(project) == {}
    assert "contains a value of an option or a header at /answer/" in ran[1].stdout.str()


def test_what_a_case_itself_contains_is_scored_as_it_is_and_redacted_in_reports(project: Project) -> None:
    canary = "ghp_" + "c4N4rY" * 6
    project.pytester.makepyfile(leaky=f"def act(request):\n    return {{'points': 1.0, 'said': '{canary}'}}\n")
    project.extend_conftest(f"""
        class Said(ToyAnswer):
            said: str

        class Strict(Toy):
            answer_model = Said

            def terms(self, case, answer, rules):
                yield Term(name="points", value=0.0 if {canary!r} in answer.said else 1.0)

            def facts(self, case, answer, terms):
                said = answer.said[:25].lower() + "..."
                return RecordFacts(compared=[Comparison(what="said", expected="nothing", actual=said)])

        @pytest.hookimpl
        def pytest_packbench_packs():
            return [Strict()]
        """)
    project.case("canary", text="do not say it")
    result = project.run_toy("--packbench-target=leaky:act")
    result.assert_outcomes(failed=1)
    assert canary[:8].lower() not in result.stdout.str().lower()
    assert [line["result"] for line in project.lines("payloads.jsonl")] == [{"points": 1.0, "said": "[redacted]"}]


def test_short_values_and_words_of_the_environment_destroy_no_text(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "API_KEY": "red",
        "SECRET": "toy",
        "AUTH_MODE": "judged-by-points",
        "A_TOKEN": "customer",
    }.items():
        monkeypatch.setenv(name, value)
    project.case(
        "words", more="['customer', 'a red toy', 'judged-by-points', '" + "9f86d081884c7d659a2feaa0c55ad015" * 2 + "']"
    )
    result = project.run_toy("-rA")
    result.assert_outcomes(passed=1)
    assert "[redacted]" not in project.all_text() + result.stdout.str()


PLUGIN = """
import os

from pytest_packbench.pytest_plugin.explain import explanation_at

KEY = os.environ["PLANTED_API_KEY"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.own = {KEY: [("in a tuple", KEY)]}
    if report.when == "teardown":
        report.longrepr = explanation_at(item.location, f"first {KEY}\\nsecond {KEY}")
    return report


def pytest_runtest_logreport(report):
    with open("seen.txt", "a") as file:
        print(vars(report), file=file)


def pytest_json_runtest_metadata(item, call):
    return {"used": KEY}


def pytest_json_modifyreport(json_report):
    json_report["note"] = {KEY: [KEY]}
    json_report["shape"] = {1: "first", "1": "again"}
    json_report["pin"] = [int(os.environ["PLANTED_PIN"])]
"""


def test_no_key_that_another_plugin_adds_is_in_any_file_or_output(
    both: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_PIN", "2468")
    both.case("one")
    both.extend_conftest(PLUGIN)
    result = both.run_toy(*REPORTS)
    result.assert_outcomes(passed=1)
    assert leaks(both, result) == []
    assert "[redacted]" in (both.root / "seen.txt").read_text("utf-8")
    mine = (both.root / "mine.json").read_text("utf-8")
    assert '"metadata": {"used": "[redacted]"}' in mine
    assert '"note": {"[redacted]": ["[redacted]"]}' in mine
    # a number stays one, and of keys that are the same in JSON the last one counts
    (stored,) = both.root.glob("reports/benchmarks/toy/*/report.json")
    report = stored.read_text("utf-8")
    assert ('"pin":[2468]' in report, '"shape":{"1":"again"}' in report) == (True, True)


def test_no_key_of_a_module_that_cannot_be_collected_is_in_any_file_or_output(both: Project) -> None:
    both.case("one")
    both.write("test_broken.py", "import os\nkey = os.environ['PLANTED_API_KEY']\nprint(key)\nraise ValueError(key)\n")
    result = both.run_toy("storage", "test_broken.py", "--showlocals", *REPORTS)
    # a worker runs what it has collected
    result.assert_outcomes(errors=1, passed=both.workers)
    assert leaks(both, result) == []
    result.stdout.fnmatch_lines(["E *ValueError: [[]redacted]", "*Captured stdout*", "[[]redacted]"])


LOADING = """
import os

KEY = "".join(["loaded-", "5566778", "899-token"])


def act(request):
    if request.input["text"] == "loads":
        os.environ["LOADED_SERVICE_TOKEN"] = KEY
    print("using", KEY)
    return {"points": 1.0}
"""


def test_what_was_printed_before_its_key_was_loaded_is_redacted_afterwards(project: Project) -> None:
    project.pytester.makepyfile(own=LOADING)
    for text in ("before", "loads"):
        project.case(text, text=text)
    result = project.run_toy("--packbench-target=own:act", "--junit-xml=junit.xml", "-o", "junit_logging=all")
    result.assert_outcomes(passed=2)
    before, loads = (project.root / "junit.xml").read_text("utf-8").split("</testcase>")[:2]
    assert ("using loaded-" in before, "using loaded-" in loads, "using [redacted]" in loads) == (True, False, True)


def test_no_key_is_in_a_log_of_more_than_the_terminal_shows(project: Project) -> None:
    project.pytester.makepyfile(leaky=TARGETS)
    project.case("logged", text="logged")
    result = project.run_toy("--packbench-target=leaky:act", "--log-cli-level=CRITICAL", "--log-file=log.txt")
    result.assert_outcomes(passed=1)
    assert leaks(project, result) == []
    assert "using [redacted]" in (project.root / "log.txt").read_text("utf-8")


MARKED = """
import os

import pytest


@pytest.fixture
def pipeline(packbench_request):
    if packbench_request.input["text"] == "fixture":
        raise ValueError("no " + os.environ["PLANTED_API_KEY"])
    return packbench_request.input["text"]


@pytest.mark.packbench_cases("toy")
def test_case(packbench_check, pipeline, record_property):
    key = os.environ["PLANTED_API_KEY"]
    record_property("used", key)
    record_property("error", ValueError(key))
    record_property("several", {key})
    print("using", key)
    if pipeline == "raised":
        raise ValueError("failed\\n" + key[:20] + "\\n" + key[20:])
    assert pipeline != "compared" or key == "another"
    packbench_check({"points": 0.1 if pipeline == "failed" else 1.0, "key": key})
"""


def test_no_key_of_a_marked_test_is_in_any_file_or_output(project: Project) -> None:
    project.pytester.makepyfile(test_marked=MARKED)
    for text in ("fixture", "raised", "compared", "failed", "returned"):
        project.case(text, text=text)
    result = project.run("--showlocals", *SHOWN)
    result.assert_outcomes(passed=1, failed=1, errors=3)
    assert leaks(project, result) == []
    assert "[redacted]" in (project.root / "junit.xml").read_text("utf-8")


def test_no_key_is_in_a_usage_error(project: Project) -> None:
    project.case("one", text="one")
    project.pytester.makepyfile(broken="import os\nraise ValueError('no ' + os.environ['PLANTED_API_KEY'])\n")
    runs = [
        project.run_toy("--packbench-target=broken:act"),
        project.run_toy("--packbench-mode=live", f"--packbench-target=cmd:no-such-program --api-key '{KEY}' 'x"),
        project.run_toy(f"--packbench-target=cmd:program {FORMED} --header 'X-Token: {KEY}'", "--token", KEY),
    ]
    assert [run.ret for run in runs] == [4, 4, 4]
    assert leaks(project, *runs) == []


@pytest.mark.parametrize("setting", ["environment", "ini"])
def test_a_number_that_is_a_secret_stands_in_no_file(
    project: Project, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "48291537")
    monkeypatch.setenv("DOOR", "7351962804")
    options = []
    if setting == "environment":
        monkeypatch.setenv("PACKBENCH_SECRETS", "DOOR")
    else:
        options = ["-o", "packbench_secrets=DOOR"]
    project.write(
        "digits_target.py",
        "def act(request):\n    return {'points': 1.0, 'echo': [48291537, {'7351962804': 7351962804}]}\n",
    )
    project.case("numbers")
    project.run_toy("--packbench-target=digits_target:act", *options)
    written = [path for path in (project.root / "reports").rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if b"48291537" in (raw := path.read_bytes()) or b"7351962804" in raw] == []
    assert any(b"[redacted]" in path.read_bytes() for path in written)


def test_reports_follow_no_link_out_of_the_project(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    project.case("numbers")
    (project.root / "pytest.ini").touch()
    (project.root / "reports").symlink_to(elsewhere)
    result = project.run_toy()
    assert list(elsewhere.iterdir()) == []
    assert "is a link that leaves the project" in "\n".join([*result.outlines, *result.errlines])
