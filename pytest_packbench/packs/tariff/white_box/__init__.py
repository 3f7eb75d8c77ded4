"""The import of suites of the original harness, white-box (`packbench import white-box`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.tariff.white_box.original import document

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyRequest


__all__ = ["document", "results"]


class _ImportedResults:
    """Replaces a pipeline that nobody has named: its results are replayed, and it can't be called."""

    opaque = True

    def verify(self, _request: VerifyRequest) -> Any:
        raise RuntimeError(
            "the pipeline that gave the imported results is not known, so it can't be called; "
            "name yours with --packbench-target"
        )


results = _ImportedResults().verify
"""The target, for `target:` in `suite.yaml`."""
