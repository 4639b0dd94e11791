"""The options of functions: what may be written, as hashable data."""

from __future__ import annotations

from typing import Any

from edgewise.functions.definition import REQUIRED, Option


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def _probability(value: Any) -> float | None:
    return float(value) if isinstance(value, float | int) and 0 <= value < 1 else None


def _range(value: Any) -> tuple[int, int] | None:
    match value:
        case (int() as start, int() as stop) if 0 <= start < stop:
            return start, stop
    return None


def _sizes(value: Any) -> tuple[int, ...] | None:
    match value:
        case int() if value > 0:
            return (value,)
        case (int(),) | (int(), int()) if all(size > 0 for size in value):
            return tuple(value)
    return None


def _count(value: Any) -> int | None:
    integer = isinstance(value, int) and not isinstance(value, bool)
    return value if integer and value > 0 else None


def _axis(value: Any) -> int | None:
    return value if value in (0, -1) else None


def _names(value: Any) -> tuple[str, ...] | None:
    """Names of variables."""
    plain = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    return tuple(value) if plain else None


def _callable(value: Any) -> Any:
    return value if callable(value) else None


SLOPE = Option("slope", 0.01, _number, "write a number: `F.leaky_relu(0.2)`")
EPS = Option("eps", 1e-10, _number, "write a number: `F.norm(eps=1e-5)`")
LOW = Option("low", REQUIRED, _number, "write numbers: `F.clamp(low=0.0, high=1.0)`", -0.5)
HIGH = Option("high", REQUIRED, _number, "write numbers: `F.clamp(low=0.0, high=1.0)`", 1.0)
ROWS = Option("rows", None, _range, "write a half-open range: `F.slice(rows=(0, 2))`", (0, 2))
COLS = Option("cols", None, _range, "write a half-open range: `F.slice(cols=(0, 2))`")
SHAPE = Option("shape", REQUIRED, _sizes, "write positive sizes: `F.reshape((2, 3))`", (1, 3))
CHANCE = Option(
    "p", REQUIRED, _probability, "write a probability, 0 ≤ p < 1: `F.dropout(0.1)`", 0.5
)
MODULE = Option(
    "module",
    REQUIRED,
    _callable,
    "write `F.call(module)` with an nn.Module or a function of one value",
    abs,
)
AXIS = Option("axis", -1, _axis, "`axis=-1` flattens, `axis=0` stacks rows")
TOP = Option("k", REQUIRED, _count, "write a positive integer: `F.topk_agg(3)`", 2)
OVER = Option("agg_terms", None, _names, "write head variables: `F.softmax_agg(agg_terms=[V.J])`")
