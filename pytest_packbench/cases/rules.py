"""What makes scores comparable: the rules by which a suite scores, in one hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.cases.load import canonical_sha256

if TYPE_CHECKING:
    from pytest_packbench.cases.suite import SuiteConfig


def scoring_sha256(config: SuiteConfig) -> str:
    """Hash the rules that turn an answer into a score and a score into passed or failed.

    All that `suite.yaml` says counts, a pack's own rules too, but for the keys in `config.not_scoring`: what the run
    demands of all cases together, what is run and by whom, what it costs, and words for people change no score.

    Args:
        config: what `suite.yaml` says, in the pack's own model; keys that it leaves out count with their defaults.

    Returns:
        Hexadecimal SHA-256 of canonical JSON.
    """
    return canonical_sha256(config.model_dump(mode="json", exclude=set(config.not_scoring)))
