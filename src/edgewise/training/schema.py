"""Fields of the sections of a recipe, with what their values may be."""

from dataclasses import MISSING, field
from typing import Any


def number(
    default: Any = MISSING, *, least: float | None = None, below: float | None = None
) -> Any:
    """A number that is at least `least` and below `below`."""
    limits = {"least": least, "below": below}
    return _field(default, {k: v for k, v in limits.items() if v is not None})


def one_of(default: str, *choices: str) -> Any:
    """One of several strings."""
    return _field(default, {"choices": choices})


def _field(default: Any, limits: dict[str, Any]) -> Any:
    return field(metadata=limits) if default is MISSING else field(default=default, metadata=limits)
