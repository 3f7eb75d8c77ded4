"""`packbench audit` on recorded results, on those of a run, and on the bundled suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.testing import case, run_suite, write_suite

if TYPE_CHECKING:
    from tests.conftest import Copy

CONFTEST = """
from pytest_packbench import without_model


def pytest_packbench_target(config, suite):
    return without_model(lambda request: {"queue": request.input, "sure": True})
"""


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["audit", *arguments])
    return status, capsys.readouterr().out


def test_a_run_and_its_suite_give_the_same(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(pytester.path)
    pytester.makeconftest(CONFTEST)
    cases = [case(name, input=name, expected={"queue": name}) for name in "abc"]
    rules = {"criteria": [{"exact": "/queue"}]}
    write_suite(pytester.path / "storage/benchmarks/mine", cases, pack="generic", rules=rules)
    assert run_suite(pytester, "mine").exit_code == 0
    (status, of_suite), (other, of_run) = audited(capsys, "mine"), audited(capsys, "mine", "--run=mine/latest")
    assert (status, other) == (0, 0)
    tables = [text[text.index("What the rules") :] for text in (of_suite, of_run)]
    assert tables[0] == tables[1]
    # what passes is not noticed, whatever else the pack makes of it
    monkeypatch.setattr(GenericPack.answer_model, "decided_by", property(lambda _answer: 1 / 0))
    assert audited(capsys, "mine") == (0, of_suite)
    assert main(["audit", "bundled/injecagent", "--run=mine/latest"]) == 2


@pytest.mark.parametrize("suite", ["bundled/tariff", "bundled/injecagent"])
def test_bundled_suites_notice(capsys: pytest.CaptureFixture[str], copy: Copy, suite: str) -> None:
    status, text = audited(capsys, suite, "--cases=10", "--count=20")
    assert (status, "No finding" in text) == (0, True)
