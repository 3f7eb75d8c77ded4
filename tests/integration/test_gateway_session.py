"""What the gateway does to the rest of a session: the controller of xdist, other tests, and what messages advise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.options.conftest import recordings

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

OWN = """
import json

import openai

CLIENT = openai.OpenAI(max_retries=0)


def ask(request):
    messages = [{"role": "user", "content": request.input["text"]}]
    answer = CLIENT.chat.completions.create(model="fake-1", messages=messages)
    return json.loads(answer.choices[0].message.content)
"""
CALL_AT_IMPORT = """
try:
    CLIENT.models.list()
except openai.OpenAIError as error:
    with open("refused.txt", "a") as file:
        print(error, file=file)
"""
RECORD, TARGET = "--packbench-mode=record", "--packbench-target=own:ask"


@pytest.fixture
def served(model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The model where the client's own variable points to."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    return model


def prepare(project: Project, code: str = OWN) -> None:
    project.prepare("points 0.9", "points 0.8")
    project.write("own.py", code)


def text_of(result: pytest.RunResult) -> str:
    """The output, wherever its lines are broken."""
    return " ".join((result.stdout.str() + result.stderr.str()).split())


def test_a_controller_needs_no_key_and_reaches_no_network(
    project: Project, served: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(project)
    project.run_toy(TARGET, RECORD, "-n", "2").assert_outcomes(passed=2)
    monkeypatch.delenv("OPENAI_API_KEY")
    prepare(project, OWN + CALL_AT_IMPORT)
    made = len(served.requests)
    project.run_toy(TARGET, "-n", "2").assert_outcomes(passed=2)
    assert len(served.requests) == made
    # of the controller and both workers
    refused = (project.root / "refused.txt").read_text("utf-8").splitlines()
    assert len([line for line in refused if "fixture mode is offline" in line]) == len(refused) == 3
    assert [len(json.loads(data)["gateway"]) for data in recordings(project).values()] == [1, 1]


OTHERS = """
import os

import pytest

NAMES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "PACKBENCH_GATEWAY_ORIGINALS")


@pytest.fixture(scope="module")
def key():
    os.environ["OPENAI_API_KEY"] = "mine"
    yield
    del os.environ["OPENAI_API_KEY"]


@pytest.fixture(autouse=True)
def none_set():
    assert [name for name in NAMES[:1] + NAMES[2:] if name in os.environ] == []
    yield
    assert "OPENAI_BASE_URL" not in os.environ


@pytest.mark.skipif("'OPENAI_API_KEY' not in os.environ", reason="no key")
def test_paid():
    raise AssertionError("a key was found")


def test_with_key(key):
    assert os.environ["OPENAI_API_KEY"] == "mine"


def test_later(key):
    assert os.environ["OPENAI_API_KEY"] == "mine"


def test_a_call_of_a_client_from_an_import_is_refused():
    import openai
    import own

    with pytest.raises(openai.BadRequestError, match="fixture mode is offline"):
        own.CLIENT.models.list()
"""


def test_other_tests_find_the_variables_as_the_user_has_set_them(
    both: Project, served: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(both)
    both.run_toy(TARGET, RECORD).assert_outcomes(passed=2)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name)
    made = len(served.requests)
    both.write("test_other.py", OTHERS)
    both.write("test_second.py", OTHERS)
    files = ("test_other.py", "storage/benchmarks/toy", "test_second.py")
    both.run_toy(*files, TARGET).assert_outcomes(passed=8, skipped=2)
    assert len(served.requests) == made


def test_the_header_of_a_target_with_its_own_client_states_no_temperature(project: Project, served: Model) -> None:
    prepare(project)
    text = text_of(project.run_toy(TARGET, RECORD))
    assert "timeout 300 s per attempt" in text
    assert "; temperature" not in text
    assert "per attempt; temperature 0" in text_of(project.run_toy(*served.options()))


FIXED_TOO = """
FIXED = openai.OpenAI(base_url="URL/v1", max_retries=0)


def both(request):
    answer = ask(request)
    FIXED.chat.completions.create(model="fake-1", messages=[{"role": "user", "content": "points 1"}])
    return answer
"""


# a refused client leaves its socket open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_with_a_fixed_address_beside_recorded_calls_is_named(project: Project, served: Model) -> None:
    prepare(project, OWN + FIXED_TOO.replace("URL", served.url))
    both = "--packbench-target=own:both"
    project.run_toy(both, RECORD).assert_outcomes(passed=2)
    result = project.run_toy(both, "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    result.assert_outcomes(errors=2)
    text = text_of(result)
    assert "its client has a fixed address; leave that out of the code, so that the client reads its variable" in text
    assert "record its model calls" not in text


def test_a_call_while_the_target_is_imported_is_refused(project: Project, served: Model) -> None:
    prepare(project, OWN + "\nwith CLIENT:\n    CLIENT.models.list()\n")
    # a recording would not help
    text = text_of(project.run_toy(TARGET, "--packbench-gateway=on"))
    assert "is refused; make it inside a case, whose calls can be recorded (--packbench-mode=record)" in text
    assert served.requests == []


LATE_ADDRESS = "import os\n\nos.environ.setdefault('ANTHROPIC_BASE_URL', 'http://127.0.0.1:9')\n"


def test_the_header_names_where_calls_go(both: Project, served: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(both, LATE_ADDRESS + OWN)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-0123456789abcdef")
    address = served.url.replace("//", "//someone:secretpassword@")
    monkeypatch.setenv("OLLAMA_HOST", address)
    line = "not seen): openai -> {}/v1, anthropic -> https://api.anthropic.com, ollama -> http://"
    recorded = text_of(both.run_toy(TARGET, RECORD))
    assert line.format(served.url) in recorded
    assert "secretpassword" not in recorded
    assert "gemini" not in recorded
    assert "->" not in text_of(both.run_toy(TARGET))
