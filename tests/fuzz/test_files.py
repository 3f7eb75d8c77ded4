"""A damaged file of any kind ends in one line that names it, and never in a traceback or in the result of the valid one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import damaged
from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.reading import group_of, judge, kept, tries

if TYPE_CHECKING:
    from tests.fuzz.reading import Project


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_is_refused_in_a_line(kind: Kind, project: Project) -> None:
    valid, path = project.valid(kind), Path(project.fill(kind.path))
    readings = {command: project.read(command) for command in kind.commands}
    assert {reading.code for reading in readings.values()} == {0}, readings

    @tries()
    @given(st.sampled_from([*kind.commands]), st.data())
    def tried(command: str, data: Any) -> None:
        content = data.draw(damaged(valid, kind.form))
        with kept(str(path)):
            path.write_bytes(content)
            reading = project.read(command)
        judge(kind, command, group_of(kind, valid, content, kind.commands[command]), reading, readings[command])

    tried()
