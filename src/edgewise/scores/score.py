"""A score as a value: written with operators, printed as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.scores import nodes
from edgewise.scores.nodes import Entry, Node, Number, show
from edgewise.scores.primitives import call

DEEPEST, MOST_PARTS = 100, 10_000


class BadScore(EdgewiseError):
    """A score is one number for each pair, made of S, I, J, H, numbers, tables and functions."""

    code = "bad-score"
    example = "from edgewise.scores import S\n\nS if S > 0 else 0.1 * S"
    instead = "from edgewise.scores import S, where\n\nwhere(S > 0, S, 0.1 * S)"


class ScoreTooDeep(EdgewiseError):
    """A score is evaluated for every pair, so its depth and its size are limited.

    Numbers that differ from position to position are a table, which is one level.
    """

    code = "score-too-deep"
    example = """\
from edgewise.scores import I, J, S, where

score = S
for distance in range(1000):
    score = where((I - J).equals(distance), S - distance / 10, score)"""
    instead = """\
from edgewise.scores import I, J, S, table

score = S - table(torch.arange(1000) / 10, I - J)"""


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """A scalar for each head h and pair (i, j); `tables` are the tensors that it reads.

    >>> S / 2 + abs(I - J)
    S / 2 + abs(I - J)
    """

    node: Node
    tables: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        deep, large = self.node.depth > DEEPEST, self.node.size > MOST_PARTS
        if deep or large:
            most = f"{DEEPEST} functions deep" if deep else f"{MOST_PARTS:,} parts large"
            raise ScoreTooDeep(
                f"the score is more than {most}",
                caller(),
                "write numbers that depend on positions as `table(numbers, index)`",
            )

    def __add__(self, other: Score | float) -> Score:
        return apply("add", self, other)

    def __radd__(self, other: Score | float) -> Score:
        return apply("add", other, self)

    def __sub__(self, other: Score | float) -> Score:
        return apply("sub", self, other)

    def __rsub__(self, other: Score | float) -> Score:
        return apply("sub", other, self)

    def __mul__(self, other: Score | float) -> Score:
        return apply("mul", self, other)

    def __rmul__(self, other: Score | float) -> Score:
        return apply("mul", other, self)

    def __truediv__(self, other: Score | float) -> Score:
        return apply("div", self, other)

    def __rtruediv__(self, other: Score | float) -> Score:
        return apply("div", other, self)

    def __mod__(self, other: Score | float) -> Score:
        return apply("mod", self, other)

    def __neg__(self) -> Score:
        return apply("neg", self)

    def __abs__(self) -> Score:
        return apply("abs", self)

    def __lt__(self, other: Score | float) -> Score:
        return apply("lt", self, other)

    def __le__(self, other: Score | float) -> Score:
        return apply("le", self, other)

    def __gt__(self, other: Score | float) -> Score:
        return apply("gt", self, other)

    def __ge__(self, other: Score | float) -> Score:
        return apply("ge", self, other)

    def __and__(self, other: Score | float) -> Score:
        return apply("and", self, other)

    def __or__(self, other: Score | float) -> Score:
        return apply("or", self, other)

    def __invert__(self) -> Score:
        return apply("not", self)

    def equals(self, other: Score | float) -> Score:
        """Where both are the same number (`==` compares two scores by identity).

        >>> from edgewise.scores import I, J, S, where
        >>> where(I.equals(J), S + 1.0, S)
        where(I == J, S + 1.0, S)
        """
        return apply("eq", self, other)

    def __bool__(self) -> bool:
        raise BadScore(
            "a score is not true or false: it is computed for every pair",
            caller(),
            "write `where(condition, a, b)`, and `&`, `|`, `~` for and, or, not",
        )

    def __pow__(self, other: Any) -> Any:
        raise BadScore(
            "scores have the operators `+ - * / %`, comparisons, `&`, `|` and `~`",
            caller(),
            "write `S * S` for a square, `floor(I / 2)` for `I // 2`",
        )

    __rpow__ = __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = __pow__

    def at(self, dot: Score) -> Score:
        """The score of another score instead of the dot product.

        >>> from edgewise.scores import S, tanh
        >>> (S + 1.0).at(tanh(S))
        tanh(S) + 1.0
        """
        mine, tables = joined([self, as_score(dot)])
        return Score(nodes.replaced(mine[0], {nodes.S: mine[1]}), tables)

    def __repr__(self) -> str:
        return show(self.node)


S, I, J, H = (Score(leaf) for leaf in (nodes.S, nodes.I, nodes.J, nodes.H))  # noqa: E741


def as_score(item: Any) -> Score:
    if isinstance(item, Score):
        return item
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise BadScore(
            f"a score is made of scores and numbers, not of {type(item).__name__}",
            caller(),
            "Python computes `==` of two scores itself: write `I.equals(J)`"
            if isinstance(item, bool)
            else "write `table(tensor, index)` for numbers in a tensor",
        )
    return Score(Number(item))


def apply(function: str, *operands: Score | float) -> Score:
    parts, tables = joined([as_score(x) for x in operands])
    return Score(call(function, *parts), tables)


def joined(scores: list[Score]) -> tuple[list[Node], tuple[Tensor, ...]]:
    """The nodes of several scores over one list of tables, a tensor that several read once."""
    tables: list[Tensor] = []
    parts = []
    for score in scores:
        numbers = {}
        for old, tensor in enumerate(score.tables):
            new = next((n for n, t in enumerate(tables) if t is tensor), None)
            if new is None:
                new = len(tables)
                tables.append(tensor)
            numbers[old] = new
        parts.append(nodes.replaced(score.node, {}, numbers))
    return parts, tuple(tables)


def entry(tensor: Tensor, index: Score | float) -> Score:
    """An entry of a table of shape (length,), (heads, length) or (batch..., heads, length)."""
    (at,), tables = joined([as_score(index)])
    return Score(Entry(len(tables), at), (*tables, tensor))
