"""`python -m pytest_packbench` is the command `packbench`."""

from __future__ import annotations

import sys

from pytest_packbench.commands import main

if __name__ == "__main__":
    sys.exit(main())
