"""What a function of rules is: its name, options, shape rule, definitions and laws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

from edgewise.errors import EdgewiseError, counted
from edgewise.functions.dimensions import Shape, show

TRANSFORMATION, COMBINATION, AGGREGATION = "transformation", "combination", "aggregation"


class Law(Enum):
    """What holds for every value; `tests/functions/test_laws.py` tries each on random ones."""

    ELEMENTWISE = "f(x)ᵢ = f(xᵢ): shapes stay, scalars broadcast"
    MONOTONE = "x ≤ y implies f(x) ≤ f(y)"
    LINEAR = "f(a·x + b·y) = a·f(x) + b·f(y)"
    ORDER_FREE = "values in any order give the same"
    ASSOCIATIVE = "f(f(x, y), z) = f(x, y, z)"
    DISTRIBUTES = "f(x + y, z) = f(x, z) + f(y, z), and so from the right"
    IDEMPOTENT = "f(x, x) = x"
    KEEPS_ONE = "f(x) = x, of one value"
    NORMALISES = "with `agg_terms`, each rule head gets its share of a group"
    NEEDS_TABLE = "reads the values of a segment side by side"
    RANDOM = "draws numbers in training, and is the identity otherwise"
    BATCH = "in training, computes with the mean and variance of all rows"
    OPAQUE = "runs code of the user, which may do anything"
    CHECKED = "looks at its numbers before it computes"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True)
class Option:
    """An argument of a function. `read` gives what was written as hashable data, or None where it
    cannot be taken; `help` says what to write."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    help: str
    example: Any = None  # for documentation and tests, where there is no default


@dataclass(frozen=True, eq=False)
class Definition:
    """One function.

    `value` computes on single values, as the reference does: of one value for a transformation,
    of a list for the others. `columns` computes on columns (batch, rows, value...), as compiled
    programs do: of one column, of a list, or of a column and its segments. `shape` gives the shapes
    that a result may have: of one shape, of a list of sets, or of a set. `score` builds the tree of
    a score from scores; its first argument is the module `edgewise.scores`.
    """

    kind: str
    name: str
    summary: str
    value: Callable[..., Any]
    columns: Callable[..., Any]
    shape: Callable[..., Any]
    laws: Set[Law] = frozenset()
    options: tuple[Option, ...] = ()
    score: Callable[..., Any] | None = None
    gradient: str = ""  # where it is not that of the formula
    takes: tuple[str, str] | None = None  # its operands in words, and how to write them
    arity: int | None = None  # operands of a combination, where their number is fixed
    kernel: str | None = None  # reduces rows along an index without materialising them
    counterpart: str | None = None  # the same function as an aggregation of groundings
    shares: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # if it NORMALISES
    operator: tuple[str, int] | None = None  # its sign in Python, and how tightly it binds
    variadic: Callable[..., Any] | None = None  # shapes for an unknown number of operands
    aliases: tuple[str, ...] = ()  # its names elsewhere, for error messages
    in_training: Callable[..., Any] | None = None  # on columns, where it reads all rows of BATCH
    slope: Callable[..., float] | None = None  # of f(z) = max(z, 0) + slope · min(z, 0)

    def __contains__(self, law: Law) -> bool:
        return law in self.laws

    @property
    def word(self) -> str:
        """The name without what says its kind."""
        return self.name.removesuffix("_agg")

    @property
    def trains(self) -> bool:
        """Whether it computes something else in training."""
        return bool(self.laws & {Law.RANDOM, Law.BATCH})

    @property
    def is_extreme(self) -> bool:
        """Whether adding values that were there changes nothing: a maximum or a minimum."""
        return {Law.IDEMPOTENT, Law.ASSOCIATIVE} <= self.laws


class ShapeMismatch(EdgewiseError):
    """Values combine by the rules of linear algebra.

    `product` and weights multiply matrices: the columns of the left one are the rows of the right
    one. Everything elementwise takes equal shapes or a scalar.
    """

    code = "shape-mismatch"
    example = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[64, 32],
]).check()"""
    instead = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[32, 64],
]).check()"""


def cannot_multiply(left: Shape, right: Shape) -> ShapeMismatch:
    columns, rows = (*left, 1)[1], right[0]
    return ShapeMismatch(
        f"cannot multiply {show(left)} by {show(right)}: the left one has "
        f"{counted(columns, 'column')}, the right one {counted(rows, 'row')}",
        help=f"a weight is (out, in); transpose with `.T`, or give it {counted(rows, 'column')}",
    )


def not_elementwise(shapes: Iterable[Shape]) -> ShapeMismatch:
    return ShapeMismatch(
        f"{' and '.join(sorted(map(show, shapes)))} do not match elementwise",
        help="elementwise operations take equal shapes, or a scalar",
    )


class OneRow(EdgewiseError):
    """The variance of one row is 0, so `batch_norm` would make any row 0 in training."""

    code = "one-row"
    example = """\
norm = F.batch_norm(R.x(V.I), W.mean[2,].filled(0.0).fixed(), W.variance[2,].filled(1.0).fixed())
Program([R.y(V.I) <= norm]).compile(R.y)(x=torch.ones(1, 2))"""
    instead = """\
norm = F.batch_norm(R.x(V.I), W.mean[2,].filled(0.0).fixed(), W.variance[2,].filled(1.0).fixed())
Program([R.y(V.I) <= norm]).compile(R.y)(x=torch.ones(3, 2))"""


class CallFailed(EdgewiseError):
    """A module or function of yours, applied by `F.call` or `special.fn`, raised an exception."""

    code = "call-failed"
    example = "Program([(R.h <= R.a) | [F.call(lambda x: x + [])]]).solve([R.a[1.0]])"
    instead = "Program([(R.h <= R.a) | [F.call(lambda x: x + 1)]]).solve([R.a[1.0]])"


class NoSuchRow(EdgewiseError):
    """`lookup` takes a row of a table by its number: an integer from 0 to the last row."""

    code = "no-such-row"
    example = (
        "Program([R.h(V.I) <= F.lookup(W.table[3, 2], R.token(V.I))]).solve([R.token(0)[7.0]])"
    )
    instead = (
        "Program([R.h(V.I) <= F.lookup(W.table[8, 2], R.token(V.I))]).solve([R.token(0)[7.0]])"
    )


def no_such_row(number: float, rows: int) -> NoSuchRow:
    return NoSuchRow(
        f"`lookup` reads row {number:g} of a table of {rows:,} rows",
        help="give integers from 0, below the rows of the table",
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, float | int) and not _is_huge(value) else None


def _small(value: Any) -> float | None:
    """What is added to a variance: below 0 the root of a small one is NaN."""
    number = _number(value)
    return number if number is not None and number >= 0 else None


def _is_huge(value: float) -> bool:
    """Whether an integer is beyond floating point."""
    return isinstance(value, int) and abs(value) > sys.float_info.max


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
    return value if isinstance(value, int) and value in (0, -1) else None


def _names(value: Any) -> tuple[str, ...] | None:
    """Names of variables."""
    plain = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    return tuple(value) if plain else None


def _callable(value: Any) -> Any:
    return value if callable(value) else None


SLOPE = Option("slope", 0.01, _number, "write a number: `F.leaky_relu(0.2)`")
EPS = Option("eps", 1e-10, _small, "write a number from 0: `F.norm(eps=1e-5)`")
MOMENTUM = Option("momentum", 0.1, _probability, "write a share, 0 ≤ m < 1: `momentum=0.1`")
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
