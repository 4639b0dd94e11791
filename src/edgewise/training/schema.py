"""Fields of the sections of a recipe, with what their values may be."""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, field
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.graphs import Pattern, parse

Mistakes = Iterator[tuple[str, str, str]]  # key, message, help


def number(
    default: Any = MISSING, *, least: float | None = None, below: float | None = None
) -> Any:
    """A number that is at least `least` and below `below`."""
    limits = {"least": least, "below": below}
    return _field(default, {k: v for k, v in limits.items() if v is not None})


def one_of(default: str | None, *choices: str) -> Any:
    """One of several strings."""
    return _field(default, {"choices": choices})


def _field(default: Any, limits: dict[str, Any]) -> Any:
    return field(metadata=limits) if default is MISSING else field(default=default, metadata=limits)


def check_heads(size: int, heads: int) -> Mistakes:
    """Heads have size / heads features each."""
    if size % heads:
        what = f"size {size} is not divisible by {heads} heads"
        yield "heads", what, f"choose a divisor of {size}"


def check_patterns(key: str, texts: Iterable[Any]) -> Mistakes:
    """Each text is one pattern."""
    for text in texts:
        try:
            found = parse(text) if isinstance(text, str) else None
        except EdgewiseError as error:
            yield key, error.message, error.help
        else:
            if not isinstance(found, Pattern):
                yield key, f"`{text}` is not one pattern", "give a pattern, such as `window(3)`"
