"""A score as a value: written with operators, printed as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language import nodes as rules
from edgewise.language.term_expressions import Comparable
from edgewise.scores import nodes
from edgewise.scores.nodes import Entry, Node, Number, show
from edgewise.scores.primitives import call

DEEPEST, MOST_PARTS = 100, 10_000
# Functions of torch and NumPy, and methods of tensors: how a score says the same.
ELSEWHERE = {
    **{f: f"scores.{f}(x)" for f in ("tanh", "exp", "log", "sqrt", "sigmoid", "floor")},
    **{f: f"scores.{f}(a, b)" for f in ("maximum", "minimum")},
    **{f: "abs(x)" for f in ("abs", "absolute")},
    "where": "scores.where(condition, a, b)",
    "relu": "scores.maximum(x, 0)",
    "max": "scores.maximum(a, b)",
    "min": "scores.minimum(a, b)",
    "clamp": "scores.maximum(low, scores.minimum(x, high))",
    "clip": "scores.maximum(low, scores.minimum(x, high))",
    "log1p": "scores.log(1 + x)",
    "square": "x * x",
    "pow": "x * x",
    "eq": "a.equals(b)",
}
OPERATORS = {"add", "sub", "subtract", "mul", "multiply", "div", "truediv", "divide", "mod"}
OPERATORS |= {"remainder", "and", "bitwise_and", "or", "bitwise_or"}
OPERATORS |= {"lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal"}


class BadScore(EdgewiseError):
    """A score is one number for each pair, made of S, I, J, H, numbers, tables and functions."""

    code = "bad-score"
    example = "from edgewise.scores import S\n\nS if S > 0 else 0.1 * S"
    instead = "from edgewise.scores import S, where\n\nwhere(S > 0, S, 0.1 * S)"


class MissingScoreMethod(BadScore, AttributeError):
    """A method of tensors, which a score does not have."""


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
            "write `where(condition, a, b)`, and `&`, `|`, `~` for and, or, not; `maximum(a, b)` "
            "for the larger one",
        )

    def __index__(self) -> int:
        raise _of_tensors("getitem")

    def __getitem__(self, index: Any) -> Any:
        raise BadScore(
            "a score is one number for each pair, and has no entries",
            caller(),
            "the entry of a tensor at an index is `scores.table(tensor, index)`",
        )

    __iter__ = None  # else Python would ask for entries

    if not TYPE_CHECKING:  # what is no field is a mistake of ours there

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python, notebooks and copies look for
                raise AttributeError(name)
            raise MissingScoreMethod(f"a score has no method `{name}`", caller(), _same(name))

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        raise _of_tensors(getattr(function, "__name__", ""))

    def __array_ufunc__(self, function: Any, *_: Any, **__: Any) -> Any:
        raise _of_tensors(function.__name__)

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
        raise _of_others(type(item).__name__, item)
    return Score(Number(item))


def _of_others(kind: str, item: object = None) -> BadScore:
    if isinstance(item, bool):
        help = "Python computes `==` of two scores itself: write `I.equals(J)`"
    elif isinstance(item, Comparable | rules.Expression):
        help = "the positions of query, key and head are `I`, `J` and `H` of `edgewise.scores`"
    else:
        help = (
            "write `scores.scalar(tensor)` for one learned number, or one of each head; "
            "`scores.table(tensor, index)` for others"
        )
    return BadScore(f"a score is made of scores and numbers, not of {kind}", caller(), help)


def _of_tensors(name: str) -> BadScore:
    """`torch.log(S)`, `np.log(S)`, and what operators of tensors and arrays call."""
    name = name.strip("_")
    if name.removeprefix("r") in OPERATORS:
        return _of_others("tensors")
    if name == "getitem":
        return BadScore(
            "a score is no index of a tensor: it is computed for every pair",
            caller(),
            "write `scores.table(tensor, J)` for `tensor[J]`; one number for each head is "
            "`scores.scalar(tensor)`",
        )
    return BadScore(
        f"`{name}` takes tensors, and a score is computed for every pair", caller(), _same(name)
    )


def _same(name: str) -> str:
    if name in ELSEWHERE:
        return f"write `{ELSEWHERE[name]}`"
    return (
        "`edgewise.scores` has tanh, exp, log, sqrt, sigmoid, floor, maximum, minimum and where; "
        "numbers of your own are a `table`"
    )


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
