"""What a model's tokens cost: as `suite.yaml` says, else as the price library knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.engine.ledger import Price

if TYPE_CHECKING:
    from pytest_packbench.cases.suite import SuiteConfig

_MILLION = 1_000_000


def price_of(config: SuiteConfig, backend: str, model: str) -> Price | None:
    """Find what a model's tokens cost.

    Args:
        config: what `suite.yaml` says; its `prices` come first.
        backend: who answers.
        model: which model.

    Returns:
        The price; None where nobody knows it. The library's list prices know no discounts and no caching.
    """
    own = config.prices.get(model)
    if own is not None:
        return Price(
            input_per_million=own.input_per_million,
            output_per_million=own.output_per_million,
            currency=own.currency,
        )
    return _listed(backend, model)


def _listed(backend: str, model: str) -> Price | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        # a token each: tiers that begin at many tokens are not looked at
        read = calc_price(Usage(input_tokens=1, output_tokens=0), model, provider_id=backend)
        written = calc_price(Usage(input_tokens=0, output_tokens=1), model, provider_id=backend)
    except LookupError:
        return None
    return Price(
        input_per_million=float(read.total_price) * _MILLION,
        output_per_million=float(written.total_price) * _MILLION,
        source="genai-prices",
    )
