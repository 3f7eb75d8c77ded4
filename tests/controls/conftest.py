"""The right answers of the tariff suite, made once for all controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import SUITE
from tests.controls.right_answers import right_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controls.right_answers import RightAnswer


@pytest.fixture(scope="session")
def answers() -> Iterator[list[RightAnswer]]:
    with right_answers(SUITE) as suite_answers:
        yield suite_answers
