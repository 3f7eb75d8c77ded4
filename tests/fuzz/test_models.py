"""What fits a model is read, written and read again without a change; damaged, it is read or refused in a line."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.recording import Cassette, Control
from pytest_packbench.model.report import AllowedChanges, ReviewMark
from pytest_packbench.model.stored import CommittedBaseline
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.fuzz.damage import damaged
from tests.fuzz.models import values_of
from tests.fuzz.reading import call, tries

MODELS: dict[str, tuple[Any, str]] = {
    "case of generic": (GenericPack.case_model, "a.json"),
    "case of tariff": (TariffPack.case_model, "a.json"),
    "suite of generic": (GenericPack.suite_model, "suite.yaml"),
    "suite of tariff": (TariffPack.suite_model, "suite.yaml"),
    "recording": (Cassette, "fixtures/a.json"),
    "control": (Control, "fixtures/controls/a.json"),
    "record": (EvalRecord, "records.jsonl"),
    "baseline": (CommittedBaseline, "baseline.json"),
    "policy_changes.yaml": (AllowedChanges, "policy_changes.yaml"),
    "mark of a reviewer": (ReviewMark, ""),
}
"""Each model with the file that `packbench validate` knows by its name; empty where it reads no such file alone."""
FIXED = {"case of generic": {"id": "a", "pack_id": "generic"}, "case of tariff": {"id": "a", "pack_id": "tariff"}}
FIXED |= {"control": {"id": "a"}, "suite of generic": {"pack": "generic"}, "suite of tariff": {"pack": "tariff"}}


@pytest.mark.parametrize("name", MODELS)
def test_what_fits_a_model_stays_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (model, file), ends = MODELS[name], Counter[str]()
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)

    @tries()
    @given(values_of(model), st.data())
    def tried(value: Any, data: Any) -> None:
        value |= FIXED.get(name, {})
        try:
            read = adapter.validate_json(json.dumps(value))
        except ValidationError:
            ends["refused"] += 1
        else:
            ends["read"] += 1
            again = adapter.dump_json(read, by_alias=True, exclude_unset=not isinstance(read, EvalRecord))
            assert adapter.validate_json(again) == read
        if file:
            content = json.dumps(value).encode()
            form = "jsonl" if file.endswith("l") and not file.endswith("yaml") else "json"
            for written in (content, data.draw(damaged(content, form))):
                check_file(file, written)

    tried()
    assert ends["read"], ends


def check_file(file: str, content: bytes) -> None:
    """A file is valid, or a line says that it isn't and why."""
    Path(file).write_bytes(content)
    checked = call(["validate", file])
    assert checked.code in {0, 2}, checked.text
    lines = checked.text.split(os.linesep)
    assert [line for line in lines if line] == checked.messages
    assert len(checked.messages) == 1, checked.text
    assert checked.messages[0].startswith(file), checked.text
    assert checked.messages[0].endswith("NOT VALID") == bool(checked.code), checked.text
