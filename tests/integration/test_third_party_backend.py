"""Backends of installed distributions: found by their entry point, opened when they are selected."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_packbench import backends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project

ECHO = """
from pytest_packbench import BackendUnusable, ModelAnswer


class Echo:
    name = "echo"
    temperature = 0.0

    def __init__(self, options):
        if not options.model:
            raise BackendUnusable("set --packbench-model")
        self.model = options.model

    async def complete(self, request):
        return ModelAnswer(content=f"{self.model} answers {request.messages[0]['content']}")

    async def aclose(self):
        open("closed.txt", "w").close()


def echo(options):
    return Echo(options)


def nothing(options):
    return object()


def fall(options):
    return 1 / 0


number = 5
"""
PIPELINE = """
from pytest_packbench import ModelRequest

async def ask(request, context):
    asked = ModelRequest(role="ask", system="", messages=({"role": "user", "content": "hello"},))
    answer = await context.llm.complete(asked)
    return {"points": 1.0 if answer.content == "loud answers hello" else 0.0, "word": answer.content}
"""
LIVE = ("--packbench-mode=live", "--packbench-target=pipeline:ask")


@pytest.fixture(autouse=True)
def _installed(plain: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with several backends, as an installer leaves it."""
    site = plain.root / "site"
    info = site / "echo_backend-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "echo_backend.py").write_text(ECHO, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-backend\nVersion: 1.0\n", "utf-8")
    points = {
        "echo": "echo_backend:Echo",
        "factory": "echo_backend:echo",
        "lost": "no_such_module:Backend",
        "absent": "echo_backend:Absent",
        "nothing": "echo_backend:nothing",
        "number": "echo_backend:number",
        "fall": "echo_backend:fall",
        "openai": "no_such_module:OpenAI",
    }
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{backends.GROUP}]\n{lines}", "utf-8")
    (plain.root / "pipeline.py").write_text(PIPELINE, "utf-8")
    plain.suite()
    plain.case("one")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    backends._installed.cache_clear()
    yield
    backends._installed.cache_clear()
    for name in ("echo_backend", "pipeline"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["echo", "factory"])
def test_a_class_or_a_factory_answers_in_live_mode(plain: Project, name: str) -> None:
    plain.run_toy(*LIVE, f"--packbench-backend={name}", "--packbench-model=loud").assert_outcomes(passed=1)
    (record,) = plain.lines("records.jsonl")
    # a record knows a fixed set of backends
    assert (record["llm_backend"], record["llm_model"]) == ("unknown", "loud")
    assert (plain.root / "closed.txt").exists()


def test_a_recording_names_the_backend_and_replays(plain: Project) -> None:
    arguments = ("--packbench-mode=record", "--packbench-target=pipeline:ask")
    plain.run_toy(*arguments, "--packbench-backend=echo", "--packbench-model=loud").assert_outcomes(passed=1)
    cassette = plain.root / "storage" / "benchmarks" / "toy" / "fixtures" / "one.json"
    assert '"llm_backend": "echo"' in cassette.read_text("utf-8")
    plain.run_toy("--packbench-target=pipeline:ask").assert_outcomes(passed=1)


def test_a_suite_may_name_it(plain: Project) -> None:
    plain.suite(text="pack: toy\ndescription: a toy\nbackend: echo\nmodel: loud\n")
    plain.run_toy(*LIVE).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("echo", "--packbench-backend=echo: set --packbench-model"),
        ("lost", '*entry point lost = "no_such_module:Backend" of pytest_packbench.backends can\'t be imported: *'),
        ("absent", '*entry point absent = "echo_backend:Absent" of *: AttributeError: *'),
        ("nothing", '*entry point nothing = "echo_backend:nothing" of * returned no backend: object has no name, *'),
        ("number", '*entry point number = "echo_backend:number" of *: expected a class or a factory, got int'),
        ("fall", '*entry point fall = "echo_backend:fall" of * can\'t be opened: ZeroDivisionError: division by zero'),
        ("other", "*got 'other'; expected one of anthropic, openai, ollama, absent, echo, *, stub, recorded"),
    ],
)
def test_one_that_can_not_be_opened_is_one_usage_error(plain: Project, name: str, message: str) -> None:
    result = plain.run_toy(*LIVE, f"--packbench-backend={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert "Traceback" not in result.stderr.str()


def test_a_suite_with_an_unknown_backend_is_one_usage_error(plain: Project) -> None:
    plain.suite(text="pack: toy\ndescription: a toy\nbackend: other\n")
    result = plain.run_toy(*LIVE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: suite "toy": backend other: unknown backend "other"; expected one of *echo*'])


def test_names_are_listed_without_importing_and_built_in_ones_come_first() -> None:
    names = backends.backend_names()
    assert names[:3] == ("anthropic", "openai", "ollama")
    assert names.count("openai") == 1
    assert {"echo", "lost"} < set(names)
    assert backends.is_backend("lost")
    assert not backends.is_backend("other")
    assert "echo_backend" not in sys.modules
