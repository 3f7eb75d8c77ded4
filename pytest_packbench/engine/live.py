"""What all cases of a suite share when a model is asked: who answers, what it costs, what is hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_packbench.engine.meter import Asked, Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.engine.cache import AnswerCache
    from pytest_packbench.engine.ledger import Ledger
    from pytest_packbench.engine.secrets import Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is asked instead of recordings.

    Attributes:
        asked: the model under test; None where nobody was named.
        aside: the models that the pack itself asks, by role.
        ledger: books what the run uses.
        cache: keeps answers for later runs; None for none.
        secrets: what is hidden wherever text is kept.
    """

    asked: Asked | None
    ledger: Ledger
    secrets: Secrets
    aside: Mapping[str, Asked] = field(default_factory=dict)
    cache: AnswerCache | None = None

    def meter(self, trial: int = 0) -> Meter | None:
        """Give what answers one attempt's model calls, None where nobody was named. Called on the event loop.

        Args:
            trial: which of several attempts at the case it is, from 0.
        """
        if self.asked is None and not self.aside:
            return None
        return Meter(self.asked, self.aside, ledger=self.ledger, secrets=self.secrets, cache=self.cache, trial=trial)
