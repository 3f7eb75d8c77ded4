"""A user comes with suites of the original harness: they are imported, checked and run."""

from __future__ import annotations

import json
import os
import re
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.commands import main
from tests.conftest import forget_variables

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

DATA = Path(__file__).parents[1] / "packs" / "tariff" / "data"
BASE = yaml.safe_load((DATA / "white_box.yaml").read_text("utf-8"))["base"]
SUITES = Path("storage") / "benchmarks"


@pytest.fixture(autouse=True)
def _empty_folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_variables(monkeypatch)


def case_of(name: str, goods: object, **changes: Any) -> dict[str, Any]:
    case: dict[str, Any] = deepcopy(BASE)
    case |= {"id": f"tariff_{name}", **{key: changes[key] for key in changes.keys() & case.keys()}}
    case["input"] = {"input": goods, **changes.get("request", {})}
    case["expected"] |= changes.get("answer", {})
    return case


def result_of(code: str, *, accepted: bool = True, **more: Any) -> dict[str, Any]:
    """A whole result, as the original's pipeline returns it."""
    part = {"hts_code": code, "duty_rate_pct": 9.6, "rationale": "knitted from wool"}
    iteration = {"i": 1, "accepted": accepted, "rejected_because": [] if accepted else ["missing"]}
    dossier = {"product_summary": "a scarf", "baseline": part, "optimized": part, "gri_trace": {"sequence_ok": True}}
    status = "verified" if accepted else "failed"
    return {"status": status, "iterations": [iteration], "tariff_dossier": dossier, "lever_proof": None, **more}


TABLE = yaml.safe_load((Path(__file__).parent / "data" / "white_box.yaml").read_text("utf-8"))
REFUSED = TABLE["refused"]
REPOSITORY: dict[str, Any] = {
    **{path: case_of(name, goods, **changes) for path, (name, goods, changes) in TABLE["cases"].items()},
    **{path: {**more, "result": result_of(**result)} for path, (result, more) in TABLE["wrapped"].items()},
    **{path: result_of(**result) for path, result in TABLE["results"].items()},
    **TABLE["others"],
    "tariff_us/payloads/list.json": [result_of("6117.10.1000")],
}


def repository(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / "storage" / "benchmarks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_a_repository_is_imported_checked_and_run(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    repository(Path("white-box"), REPOSITORY)
    text = ""
    for words in (
        "import white-box white-box --write",
        "import white-box white-box --write --skip-bad",
        "import white-box white-box --write --skip-bad",
        "import white-box white-box/storage/benchmarks/tariff --write --skip-bad --suite copy",
        "lint tariff --profile imported",
        "lint tariff_us --profile imported",
        "validate storage",
    ):
        code = main(words.split())
        captured = capsys.readouterr()
        text += f"$ packbench {words}\n{captured.out}{captured.err}exit code {code}\n"
    text += "".join(
        f"==== {path.as_posix()}\n{path.read_text('utf-8')}"
        for path in sorted(SUITES.glob("tariff_us/**/*"))
        if path.name in {"suite.yaml", "tariff_pos_01.json", "tariff_neg_01.json"}
    )
    result = pytester.runpytest("--packbench-suite=tariff_us")
    result.assert_outcomes(passed=4, failed=1, errors=1)
    lines = [line for line in result.outlines if "scoring only" in line or re.search(r"PASSED|FAILED", line)]
    expected.check(text + "\n".join(lines) + "\n")
    records = [
        json.loads(line) for line in next(Path("reports").rglob("records.jsonl")).read_text("utf-8").splitlines()
    ]
    assert {record["test_id"].rpartition(":")[2]: record["llm_backend"] for record in records} == {
        "tariff_pos_01": "anthropic",
        **dict.fromkeys(("tariff_pos_02", "tariff_pos_03", "tariff_pos_05", "tariff_neg_01"), "unknown"),
    }


def test_nothing_runs_that_nobody_named(pytester: pytest.Pytester, expected: ExpectedTexts) -> None:
    repository(Path("wb"), REPOSITORY)
    assert main(["import", "white-box", "wb", "--write", "--skip-bad"]) == 0
    # without a result the case is an error, whatever else is there; a pipeline of the user's runs
    pytester.runpytest("--packbench-suite=tariff").assert_outcomes(errors=2)
    pytester.makepyfile(
        mine="def run(request):\n    return {'status': 'refused', 'refusal': {'category': 'insufficient_info'}}"
    )
    pytester.runpytest("--packbench-suite=tariff", "--packbench-target=mine:run").assert_outcomes(passed=1, failed=1)
    # results of an unknown pipeline are no answer of this one, and it can't be called
    other = pytester.runpytest("--packbench-suite=tariff_us", "--packbench-target=http://localhost/verify")
    other.assert_outcomes(errors=6)
    live = pytester.runpytest("--packbench-suite=tariff_us", "--packbench-mode=live")
    live.assert_outcomes(errors=6)
    pattern = re.compile(r"^E? *(?:packbench: )?.*(?:/conditions/target|can't be called).*$")
    expected.check(
        "".join(f"{line.strip()}\n" for run in (other, live) for line in run.outlines if pattern.match(line))
    )


def test_folders_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts, pytester: pytest.Pytester
) -> None:
    repository(
        Path("wb"),
        {
            name: REPOSITORY[name]
            for name in ("tariff/cases/positive/pos_01.json", "tariff_us/cases/positive/pos_02.json")
        },
    )
    (Path("wb") / "empty").mkdir()
    (Path("wb") / "file").touch()
    # a name that no suite can have, and a suite without a case
    repository(Path("named"), {f"{name}/cases/a.json": case_of("a", "A scarf.") for name in ("Tariff US", "tariff")})
    (Path("named") / SUITES / "none" / "cases").mkdir(parents=True)
    results = Path("results") / "tariff"
    results.mkdir(parents=True)
    (results / "tariff_pos_01.json").write_text(json.dumps(result_of("6117.10.2030")), "utf-8")
    # what is no case, what is kept as it is, and a result that is no file
    kept = {"notes": {"tags": [" "]}, "request": {"evidence": [{"source_id": "D1", "text": "of wool", "page": 3}]}}
    repository(
        Path("odd"),
        {
            "tariff/cases/category.json": case_of("a", "A scarf.", answer={**REFUSED, "expected_refusal_category": 5}),
            "tariff/cases/list.json": [case_of("c", "A hat.")],
            "tariff/cases/kept.json": case_of("b", "A shawl.", **kept),
        },
    )
    (Path("odd") / "results").mkdir()
    os.mkfifo("odd/results/pipe.json")
    text = ""
    for words in (
        "wb/absent",
        "wb/file",
        "wb/empty",
        "wb --suite one",
        "wb --root wb/storage/benchmarks",
        "wb --results absent",
        "wb --results results",
        "wb/storage/benchmarks/tariff --suite one --results results/tariff/tariff_pos_01.json --write",
        "wb/storage/benchmarks/tariff/cases/positive",
        "named --write",
    ):
        code = main(["import", "white-box", *words.split()])
        captured = capsys.readouterr()
        shown = re.sub(r"(?m)^[ {}].*\n", "", captured.out) + captured.err
        text += f"$ packbench import white-box {words}\n{shown}exit code {code}\n"
    main(["import", "white-box", "odd", "--results", "odd/results"])
    expected.check(f"{text}==== odd\n{capsys.readouterr().out}")
    assert (SUITES / "one" / "fixtures" / "tariff_pos_01.json").exists()
    # another result, and the first one again
    (results / "tariff_pos_01.json").write_text(json.dumps(result_of("6117.10.2010")), "utf-8")
    again = [
        "import",
        "white-box",
        "wb/storage/benchmarks/tariff",
        "--suite=one",
        "--results=results/tariff",
        "--write",
    ]
    assert main(again) == 2
    assert "fixtures/tariff_pos_01.json: already exists and differs; pass --force" in capsys.readouterr().out
    assert main([*again, "--force"]) == 0
    assert main(again) == 0
