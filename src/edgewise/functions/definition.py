"""What a function of rules is: its name, options, shape rule, definitions and laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

TRANSFORMATION, COMBINATION, AGGREGATION = "transformation", "combination", "aggregation"


class Law(Enum):
    """What holds for every value; `tests/functions/test_laws.py` tries each on random ones."""

    ELEMENTWISE = "f(x)ᵢ = f(xᵢ): shapes stay, scalars spread"
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
    a score from scores, given the module `edgewise.scores`.
    """

    name: str
    kind: str
    says: str
    value: Callable[..., Any]
    columns: Callable[..., Any]
    shape: Callable[..., Any]
    laws: frozenset[Law] = frozenset()
    options: tuple[Option, ...] = ()
    score: Callable[..., Any] | None = None
    gradient: str = ""  # where it is not that of the formula
    takes: tuple[str, str] | None = None  # what operands it needs, and what to write
    arity: int | None = None  # operands of a combination, where their number is fixed
    kernel: str | None = None  # what sums rows along an index without materialising them
    counterpart: str | None = None  # the aggregation that does the same to groundings
    shares: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # of those that normalise
    operator: tuple[str, int] | None = None  # how Python writes it, and how tight it binds
    many: Callable[..., Any] | None = None  # shapes where the number of operands is not known
    also: tuple[str, ...] = ()  # what others call it
    slope: Callable[..., float] | None = None  # of f(z) = max(z, 0) + slope · min(z, 0)

    def __contains__(self, law: Law) -> bool:
        return law in self.laws

    @property
    def word(self) -> str:
        """The name without what says its kind."""
        return self.name.removesuffix("_agg")

    @property
    def is_extreme(self) -> bool:
        """Whether adding values that were there changes nothing: a maximum or a minimum."""
        return {Law.IDEMPOTENT, Law.ASSOCIATIVE} <= self.laws
