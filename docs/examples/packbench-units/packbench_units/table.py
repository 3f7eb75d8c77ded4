"""The known units: the quantity that each measures, and its size in SI units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit.

    Attributes:
        quantity: `length`, `mass` or `volume`.
        size: in metres, kilograms or litres.
    """

    quantity: str
    size: float


UNITS = {
    "mm": Unit("length", 0.001),
    "cm": Unit("length", 0.01),
    "m": Unit("length", 1.0),
    "km": Unit("length", 1000.0),
    "in": Unit("length", 0.0254),
    "ft": Unit("length", 0.3048),
    "mi": Unit("length", 1609.344),
    "g": Unit("mass", 0.001),
    "kg": Unit("mass", 1.0),
    "oz": Unit("mass", 0.028349523125),
    "lb": Unit("mass", 0.45359237),
    "ml": Unit("volume", 0.001),
    "l": Unit("volume", 1.0),
    "us_cup": Unit("volume", 0.2365882365),
    "us_gal": Unit("volume", 3.785411784),
}


def converted(value: float, unit: str, to: str) -> float | None:
    """Convert a value; None if a unit is unknown or the units measure different quantities."""
    source, goal = UNITS.get(unit), UNITS.get(to)
    if source is None or goal is None or source.quantity != goal.quantity:
        return None
    return value * source.size / goal.size
