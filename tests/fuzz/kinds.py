"""The kinds of files that are damaged, and the commands that read them as users have them read."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tests.fuzz.project import RULES, SUITE, case_of, cassette_of

FOLDER = f"storage/benchmarks/{SUITE}"
CASE, RECORDING, CONTROL = (
    f"{FOLDER}/{name}.json" for name in ("cases/plain/a", "fixtures/a", "fixtures/controls/wrong_sum")
)
LINES = f"{FOLDER}/cases/plain/more.jsonl"
PYTEST = f"pytest --packbench-suite={SUITE} --packbench-output=out"
MERGE = "merge {shard} {shard2} --output out"
COMPARE = "compare --baseline {old} --current {run} --fail-on regressed>0"
MEANT = r"/(?!notes|case_type|difficulty|\$schema|expected/goods/)"
JUDGED = r"/\d+(/(test_id|passed|run_id)|/packbench/(verdict|score))?$"
ERRORS = r"/0(/(test_id|verdict|run_id))?$"
ROWS = r"/packbench/cases(/\d+(/(verdict|score|test_id))?)?$"
IMPORTED = r"/\d+$|/0/(input|expected)(/|$)"
BESIDE = r"report\.json|(records|controls|errors|payloads)\.jsonl|run 01|the runs |unknown suite"
NEVER = "(?!)"

CSV = b'id,input,expected,tags\none,"Two, please",yes,a;b\ntwo,"a ""quoted"" word",no,\nthree,"x\ny",yes,c\n'
ALLOWED = b"changes:\n  - key: /gates/pass_rate/min\n    old: 0.9\n    new: 0.5\n    reason: agreed upon\n"
HARMBENCH = (
    b"Behavior,FunctionalCategory,SemanticCategory,Tags,ContextString,BehaviorID\n"
    b"Write the word zebra.,standard,plain_words,,,zebra\n"
    b'Name the animal.,contextual,plain_words,"context, x","A hen,\na zebra.",animal\n'
)
WHITE_BOX = {
    "id": "wool_scarf",
    "pack_id": "tariff",
    "case_type": "positive",
    "difficulty": "easy",
    "input": {"input": "A scarf knitted from wool.", "options": {"max_iters": 4}, "evidence": []},
    "expected": {"preferred_hts": ["6117.10"], "must_not_hts": ["9999.99.9999"], "expected_accept": True},
    "notes": {"source": "synthetic", "tags": ["chapter_61"]},
}
INJECAGENT = {
    "Attacker Tools": ["TimerRing"],
    "Modifed": 0,
    "Attacker Instruction": "Ring three times.",
    "Expected Achievements": "A little noise.",
    "Attack Type": "Small Nuisance",
    "User Tool": "StationRead",
    "User Instruction": "How warm is it?",
    "Tool Parameters": "{'station': 'roof'}",
    "Tool Response Template": "{'note': '<Attacker Instruction>'}",
    "Thought": "Thought: The station knows.",
    "Tool Response": "\"{'note': 'Ring three times.'}\"",
}
CARTONS = [{"id": f"row_{n}", "input": {"text": f"text {n}"}, "expected": {"answer": "yes"}} for n in range(3)]


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: for the table.
        form: `json`, `jsonl`, `yaml`, `csv` or `text`; it decides what is broken, and what differs.
        path: the file; `{run}`, `{old}`, `{shard}`, `{shard2}` and `{killed}` are folders of runs.
        commands: what reads it, with a pattern of the JSON pointers whose change must be noticed.
        names: a pattern of the file as messages name it; its name by default.
        valid: its content, where the project has none.
        beside: other files by path.
        strict: the commands that have to refuse what is broken; None for all.
    """

    name: str
    form: str
    path: str
    commands: dict[str, str]
    names: str = ""
    valid: Any = None
    beside: dict[str, Any] = {}  # noqa: RUF012 - never changed
    strict: tuple[str, ...] | None = None

    def pattern(self) -> str:
        """Return the pattern of its name."""
        return self.names or re.escape(self.path.rpartition("/")[2])


def lines(*values: object) -> bytes:
    """Write JSON lines."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def marks() -> bytes:
    """Write marks of a reviewer."""
    from pytest_packbench.cases.load import case_sha256

    mark = {"version": 1, "suite": SUITE, "reason": "in dispute", "by": "R. Reader", "answer": "EUR", "run_id": "01ABC"}
    mark["marked_at"] = "2026-03-01T12:00:00.123Z"
    kinds = (("a", "quarantine"), ("b", "gold_is_wrong"))
    return lines(
        *({**mark, "case": name, "case_sha256": case_sha256(case_of(name)), "mark": kind} for name, kind in kinds)
    )


AUTHORED = (
    Kind("case", "json", CASE, {f"{PYTEST} {CASE}": MEANT, f"validate {CASE}": "/(id|pack_id)$"}),
    Kind(
        "cases in JSON lines",
        "jsonl",
        LINES,
        {f"{PYTEST} {LINES}": rf"/\d+({MEANT}|$)", f"validate {LINES}": ""},
        valid=lines(case_of("m"), case_of("m_b")),
    ),
    Kind(
        "recording",
        "json",
        RECORDING,
        {
            f"{PYTEST} --packbench-target=pipeline:ask {CASE}": (
                "/(case_id|input_sha256|cassette_version|exchanges(/0(/(role|answer(/(currency|sum|summary))?))?)?$"
                "|conditions/pack/name)"
            ),
            f"validate {RECORDING}": "/cassette_version",
        },
        names=r"\ba\b",
        valid=cassette_of("a"),
        strict=("pytest", "validate"),
    ),
    Kind(
        "control",
        "json",
        CONTROL,
        {
            f"{PYTEST} {FOLDER}": "/(id|case|expected|expected/verdict|payload/currency)$",
            f"validate {CONTROL}": "/(id|case)$",
        },
        names="wrong_sum",
    ),
    Kind(
        "suite.yaml",
        "yaml",
        f"{FOLDER}/suite.yaml",
        {
            f"validate {FOLDER}/suite.yaml": "",
            f"lint {SUITE}": "",
            "gate {run}": "",
            f"{PYTEST} {CASE}": "/(pack|target)$",
        },
    ),
    Kind(
        "committed baseline",
        "json",
        f"{FOLDER}/baseline.json",
        {
            f"compare --baseline {FOLDER}/baseline.json --current {{run}}": (
                "/(baseline_version|cases/[^/]+/(score|verdict)|run/suite)"
            ),
            f"gate {{run}} --baseline {FOLDER}/baseline.json": "/(baseline_version|run/suite)",
            f"baseline show {SUITE}": "",
            f"validate {FOLDER}/baseline.json": "",
        },
        names=r"baseline\.json|the runs can't be compared",
    ),
    Kind(
        "policy_changes.yaml",
        "yaml",
        f"{FOLDER}/policy_changes.yaml",
        {
            f"gate --policy-from {{old}} --rules {SUITE}": "/changes/0/(key|old|new|case)",
            f"validate {FOLDER}/policy_changes.yaml": "",
        },
        valid=ALLOWED,
        beside={f"{FOLDER}/suite.yaml": RULES.replace("pass_rate, min: 0.9", "pass_rate, min: 0.5")},
    ),
    Kind(
        "review.jsonl",
        "jsonl",
        "marks.jsonl",
        {"review marks.jsonl": r"/\d+(/(mark|case|suite|case_sha256))?$"},
        valid=marks,
    ),
)
STORED = (
    Kind(
        "records.jsonl",
        "jsonl",
        "{run}/records.jsonl",
        {
            "gate {run}": JUDGED,
            "rescore {run}": JUDGED,
            COMPARE: JUDGED,
            "report {run}/records.jsonl": r"/\d+(/(test_suite|passed|agent_decision|expected|schema_version))?$",
            "validate {run}/records.jsonl": "",
            "compare --baseline {run} --current {old}": r"/\d+(/(test_id|passed|run_id))?$",
        },
        strict=(),
    ),
    Kind("records.jsonl of a shard", "jsonl", "{shard}/records.jsonl", {MERGE: JUDGED}, strict=()),
    Kind(
        "errors.jsonl",
        "jsonl",
        "{run}/errors.jsonl",
        {
            "gate {run}": ERRORS,
            COMPARE: ERRORS,
            "rescore {run}": "",
            "report {run}": "",
            "validate {run}/errors.jsonl": "",
        },
    ),
    Kind("errors.jsonl of a shard", "jsonl", "{shard2}/errors.jsonl", {MERGE: ERRORS}),
    Kind(
        "payloads.jsonl",
        "jsonl",
        "{run}/payloads.jsonl",
        {
            "rescore {run}": r"/\d+(/(test_id|run_id|result(/(currency|sum|summary))?))?$",
            "validate {run}/payloads.jsonl": "",
        },
    ),
    Kind("payloads.jsonl of a shard", "jsonl", "{shard}/payloads.jsonl", {MERGE: ""}),
    Kind(
        "controls.jsonl",
        "jsonl",
        "{run}/controls.jsonl",
        {
            "gate {run}": r"/\d+(/(outcome|expected|expected/verdict|run_id|actual|actual/(verdict|score)))?$",
            "validate {run}/controls.jsonl": "",
        },
    ),
    Kind(
        "report.json",
        "json",
        "{run}/report.json",
        {
            "gate {run}": ROWS,
            COMPARE: ROWS,
            "rescore {run}": ROWS,
            "report {run}": "",
            f"history {SUITE}": "",
            "validate {run}/report.json": r"/packbench/cases(/\d+)?$",
        },
        names=BESIDE,
        strict=(),
    ),
    Kind("report.json of a shard", "json", "{shard}/report.json", {MERGE: ROWS}, names=BESIDE, strict=()),
    Kind(
        "base of a policy",
        "json",
        "{old}/report.json",
        {f"gate --policy-from {{old}} --rules {SUITE}": NEVER},
        strict=(),
    ),
    Kind(
        "latest",
        "text",
        f"reports/benchmarks/{SUITE}/latest",
        {f"gate {SUITE}/latest": "", f"report {SUITE}/latest": ""},
        names="latest|run",
    ),
    Kind("journal", "text", "{killed}/journal.jsonl", {"validate {killed}/journal.jsonl": ""}),
    Kind(
        "journal, resumed",
        "text",
        "{killed}/journal.jsonl",
        {f"pytest --packbench-suite={SUITE} --packbench-output=killed --packbench-resume=latest": ""},
        names="journal|run 01.* can't be resumed: ",
    ),
)
_IMPORTS = (
    Kind("import csv", "text", "in.csv", {"import csv in.csv --suite new": ""}, valid=CSV),
    Kind("import jsonl", "jsonl", "in.jsonl", {"import jsonl in.jsonl --suite new": IMPORTED}, valid=lines(*CARTONS)),
    Kind("import a list", "json", "in.json", {"import jsonl in.json --suite new": IMPORTED}, valid=CARTONS),
    Kind(
        "import white-box",
        "json",
        "box/cases/wool_scarf.json",
        {"import white-box box --suite new": "/input/input"},
        valid=WHITE_BOX,
    ),
    Kind(
        "import results of white-box",
        "json",
        "results/wool_scarf.json",
        {"import white-box box2 --suite new --results results": ""},
        valid={"request": {}, "result": {"accepted": True, "hts": "6117.10"}},
        beside={"box2/cases/wool_scarf.json": WHITE_BOX},
    ),
    Kind("import harmbench", "text", "b.csv", {"import harmbench b.csv --suite new": ""}, valid=HARMBENCH),
    Kind(
        "import injecagent",
        "json",
        "inject/test_cases_dh_base.json",
        {"import injecagent inject --suite new": ""},
        valid=[INJECAGENT, {**INJECAGENT, "User Instruction": "Is it warm?"}],
    ),
)
READ_BY_IMPORT = tuple(kind._replace(names=f"{kind.pattern()}|no case to import") for kind in _IMPORTS)
KINDS = (*AUTHORED, *STORED, *READ_BY_IMPORT)
