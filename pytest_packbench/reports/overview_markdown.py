"""The report on any number of records as Markdown: first the original's lines, then our figures.

The original's lines are not escaped, for they are its own, byte for byte. In ours text from records is never trusted:
it reaches the page through `cell` alone.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.reports.figures import DASH, average, interval, percent, score
from pytest_packbench.reports.judgement import count
from pytest_packbench.reports.markdown import MOST_ROWS, cell
from pytest_packbench.reports.original import CONDITIONS, original_markdown
from pytest_packbench.reports.overview import FIXTURE
from pytest_packbench.reports.statistics import AUTHORED, CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.records.evalrecord import EVAL_SUITES as _  # noqa: F401
    from pytest_packbench.reports.original import Original
    from pytest_packbench.reports.overview import Effort, Overview, Rate, Row, RunFigures, SuiteFigures
    from pytest_packbench.reports.tally import FailingCase

_WILSON = f"{100 * CONFIDENCE:g} % interval (Wilson, two-sided)"
_WIDE = 400
_ANSWERED_BY = ("mode", "backend", "model", "judge")
# Ends whatever an unescaped name with a line end in it may have opened: HTML, comments, fences of code. Where nothing
# is open it shows as a line of text and two empty blocks of code.
_SEAL = """
</details></pre></script></style></textarea> --> ?> ]]>

{ticks} end of the original's lines
{ticks}

{tildes} end of the original's lines
{tildes}

"""
