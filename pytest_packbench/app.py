"""What an app imports of this package: the mark of what it does for one input. It costs a look at a variable."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


CAPTURE = "PACKBENCH_CAPTURE"
"""The variable with the address of the gateway of `packbench capture`."""
_MAX_HEADER = 32 * 1024


@contextmanager
def capture(case_input: Any) -> Iterator[None]:
    """Return the block whose model calls `packbench capture` takes for one conversation; without it, this does nothing.

    Args:
        case_input: the input of the case that they become, plain JSON; one that is too long for a header, above 32 KiB
            in percent-encoding, is not stated.
    """
    url = os.environ.get(CAPTURE)
    if not url:
        yield
        return
    import json
    from secrets import token_hex
    from urllib.parse import quote

    from pytest_packbench.engine.gateway.stamps import install, stamped

    install(url)
    text = quote(json.dumps(case_input))
    with stamped(f"{token_hex(8)}?{text if len(text) <= _MAX_HEADER else ''}"):
        yield
