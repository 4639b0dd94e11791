"""Comparisons of terms as conditions: `V.J <= V.I`, `V.I - V.J <= 5`, `V.I % 3 == 0`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from opcode import opname
from typing import TYPE_CHECKING, Any

from edgewise.errors import caller, safe_repr
from edgewise.language import nodes, operators, terms

COMPARED = {"<=": "leq", "<": "lt", ">=": "geq", ">": "gt", "==": "eq", "!=": "neq"}
MIRRORED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "==", "!=": "!="}
OPPOSITE = {"==": "!=", "!=": "=="}
STRENGTH = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
MOST_OPERATORS = 50
# an integer, the place of a term in its atom, or an operator with its operands
Tree = int | tuple[str, "Tree"] | tuple[str, "Tree", "Tree"]


@dataclass(frozen=True)
class Formula:
    """What a special atom compares: two integer expressions in which `("term", p)` is its term p.

    The arithmetic is that of the integers, with `//` and `%` as in Python; on strings and where it
    divides by 0, a formula does not hold.
    """

    sign: str
    left: Tree
    right: Tree

    @property
    def computes(self) -> tuple[int, ...]:
        """The terms that an equation gives a value: those that stand once, below `+` and `-`."""
        if self.sign != "==":
            return ()
        places = [*_places(self.left), *_places(self.right)]
        once = {place for place, _ in places if sum(place == p for p, _ in places) == 1}
        return tuple(sorted(place for place, linear in places if linear and place in once))

    def shown(self, items: Sequence[str], mod: str = "%") -> str:
        """The formula with its terms as `items`.

        >>> from edgewise.language import V
        >>> (V.I - (V.J + 1) <= 2 * V.K).formula.shown(["I", "J", "K"])
        'I - (J + 1) <= 2 * K'
        """
        sides = (_shown(side, items, mod, 0) for side in (self.left, self.right))
        return f" {self.sign} ".join(sides)


def _places(tree: Tree, linear: bool = True) -> list[tuple[int, bool]]:
    """Every term of a tree, and whether only `+` and `-` stand above it."""
    if isinstance(tree, int):
        return []
    name, *operands = tree
    if name == "term":
        return [(operands[0], linear)]  # type: ignore[list-item]
    below = linear and name in ("+", "-")
    return [found for operand in operands for found in _places(operand, below)]


def _shown(tree: Tree, items: Sequence[str], mod: str, level: int) -> str:
    if isinstance(tree, int):
        return str(tree) if tree >= 0 or not level else f"({tree})"
    name, *operands = tree
    if name == "term":
        return items[operands[0]]  # type: ignore[index]
    if name == "abs":
        return f"abs({_shown(operands[0], items, mod, 0)})"
    strength = STRENGTH[name]
    left = _shown(operands[0], items, mod, strength)
    right = _shown(operands[1], items, mod, strength + 1)
    text = f"{left} {mod if name == '%' else name} {right}"
    return f"({text})" if level > strength else text


class Comparable:
    """A term that can be computed with and compared: a variable, or an expression over some."""

    __array_ufunc__ = None  # an array leaves its operators to the term, which refuses it

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise operators.unknown_method(self, name)

    def __add__(self, other: Any) -> TermExpression:
        return _applied("+", self, other)

    def __radd__(self, other: Any) -> TermExpression:
        return _applied("+", other, self)

    def __sub__(self, other: Any) -> TermExpression:
        return _applied("-", self, other)

    def __rsub__(self, other: Any) -> TermExpression:
        return _applied("-", other, self)

    def __mul__(self, other: Any) -> TermExpression:
        return _applied("*", self, other)

    def __rmul__(self, other: Any) -> TermExpression:
        return _applied("*", other, self)

    def __floordiv__(self, other: Any) -> TermExpression:
        return _applied("//", self, other)

    def __rfloordiv__(self, other: Any) -> TermExpression:
        return _applied("//", other, self)

    def __mod__(self, other: Any) -> TermExpression:
        return _applied("%", self, other)

    def __rmod__(self, other: Any) -> TermExpression:
        return _applied("%", other, self)

    def __neg__(self) -> TermExpression:
        return _applied("-", 0, self)

    def __abs__(self) -> TermExpression:
        return _applied("abs", self)

    def __truediv__(self, other: Any) -> Any:
        raise operators.BadOperator(
            "keys are integers and have no `/`",
            caller(),
            "write `//`, which rounds down",
        )

    def __pow__(self, other: Any) -> Any:
        raise operators.BadOperator(
            "keys have no power operator", caller(), "write a product: `V.I * V.I`"
        )

    def __xor__(self, other: Any) -> Any:
        raise operators.BadOperator(
            "keys have no bitwise operators",
            caller(),
            "write arithmetic: `V.I // 2`, `V.I % 2 == 0`, `2 * V.I`; or a pattern, "
            "`graphs.where(lambda i, j: (i ^ j) == 1)(V.I, V.J)`",
        )

    __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__

    def __le__(self, other: Any) -> nodes.SpecialAtom:
        return compared(self, "<=", other)

    def __lt__(self, other: Any) -> nodes.SpecialAtom:
        return compared(self, "<", other)

    def __ge__(self, other: Any) -> nodes.SpecialAtom:
        return compared(self, ">=", other)

    def __gt__(self, other: Any) -> nodes.SpecialAtom:
        return compared(self, ">", other)

    def __and__(self, other: Any) -> Any:
        raise operators.conditions_joined(caller())

    __rand__ = __or__ = __ror__ = __and__

    def __bool__(self) -> bool:
        raise operators.NoTruthValue(
            f"`{self!r}` has no truth value",
            caller(),
            "compare it, `V.I - V.J <= 5`, and write conditions side by side: `V.I < 5, V.J < 5`",
        )


class TermExpression(Comparable):
    """`V.I - V.J`: an integer computed from terms, to be compared."""

    def __init__(self, name: str, *operands: Any) -> None:
        self.name = name
        self.operands = operands
        sizes = (operand.size for operand in operands if isinstance(operand, TermExpression))
        self.size: int = 1 + sum(sizes)

    def __eq__(self, other: object) -> Any:
        return compared(self, "==", other)

    def __ne__(self, other: object) -> Any:
        return compared(self, "!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        items: list[nodes.Variable] = []
        tree = _tree(self, items)
        return _shown(tree, [repr(item) for item in items], "%", 0)


class Equality:
    """`V.I == V.J`: in a body a condition; in a set, a dict or `in`, whether both are one term.

    Written with `and`, `or`, `not` or in a chain it is refused: Python would drop a condition.
    """

    __slots__ = ("is_equal", "left", "right", "sign")

    def __init__(self, left: nodes.Variable, sign: str, right: Any) -> None:
        self.left = left
        self.sign = sign
        self.right = right
        self.is_equal = isinstance(right, nodes.Variable) and right.name == left.name

    def __bool__(self) -> bool:
        if _is_branch():
            raise operators.NoTruthValue(
                f"`{self!r}` has no truth value in a chain or with `and`, `or`, `not`, `if`",
                caller(),
                "write conditions side by side in the body, `V.I == V.J, V.J != V.K`; for either "
                "of two, two rules; `not V.I == V.J` is `V.I != V.J`; names are `V.I.name`",
            )
        return self.is_equal == (self.sign == "==")

    def __invert__(self) -> nodes.SpecialAtom:
        return compared(self.left, OPPOSITE[self.sign], self.right)

    def __neg__(self) -> nodes.Apply:
        return -self.condition

    def __and__(self, other: Any) -> Any:
        raise operators.conditions_joined(caller())

    __rand__ = __or__ = __ror__ = __and__

    @property
    def condition(self) -> nodes.SpecialAtom:
        return compared(self.left, self.sign, self.right)

    def __repr__(self) -> str:
        return f"{self.left!r} {self.sign} {self.right!r}"


def _is_branch() -> bool:
    """Whether code of the user branches on a comparison, which a lookup in a dict does not."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__", "").partition(".")[0] == "edgewise":
        return False
    name = opname[frame.f_code.co_code[frame.f_lasti]]
    return "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT")


def _applied(name: str, *operands: Any) -> TermExpression:
    found = tuple(_operand(operand) for operand in operands)
    if name in ("//", "%") and isinstance(found[1], int) and found[1] == 0:
        raise terms.BadTerm(f"`{name} 0` divides by 0", caller(), "divide by another number")
    made = TermExpression(name, *found)
    if made.size > MOST_OPERATORS:
        raise terms.BadTerm(
            f"the expression has more than {MOST_OPERATORS} operators",
            caller(),
            "compute a part of it in a condition of its own: `V.D == V.I - V.J`",
        )
    return made


def _operand(item: Any) -> Any:
    if isinstance(item, Comparable):
        return item
    if isinstance(item, Integral) and not isinstance(item, bool):
        return int(item)
    value = isinstance(item, nodes.Expression)
    raise terms.BadTerm(
        f"`{safe_repr(item)}` is {'a value' if value else 'not an integer'}, and keys are integers",
        caller(),
        "a value of a key is `R.special.add_eval(V.I, 0)`"
        if value
        else "compute with variables and integers: `V.I - V.J <= 5`",
    )


def compared(left: Any, sign: str, right: Any) -> nodes.SpecialAtom:
    """The condition `left sign right`: a predicate of two terms, or a formula.

    >>> from edgewise.language import V
    >>> V.J <= V.I, V.I - V.J <= 5, abs(V.I - V.J) % 3 != 0, 4 > V.I
    (R.special.leq(V.J, V.I), V.I - V.J <= 5, abs(V.I - V.J) % 3 != 0, R.special.lt(V.I, 4))
    """
    place = caller()
    if not any(isinstance(side, TermExpression) for side in (left, right)):
        pair = terms.checked((left, right), place)
        return nodes.SpecialAtom(COMPARED[sign], pair, place=place)
    if not isinstance(left, Comparable):
        left, sign, right = right, MIRRORED[sign], left
    items: list[nodes.Variable] = []
    formula = Formula(sign, _tree(left, items), _tree(_operand(right), items))
    return nodes.SpecialAtom("formula", tuple(items), formula=formula, place=place)


def _tree(item: Any, items: list[nodes.Variable]) -> Tree:
    """An expression as a tree, with every variable in `items` once."""
    if isinstance(item, int):
        return item
    if isinstance(item, nodes.Variable):
        names = [variable.name for variable in items]
        if item.name not in names:
            items.append(item)
            return ("term", len(names))
        return ("term", names.index(item.name))
    name, operands = item.name, [_tree(operand, items) for operand in item.operands]
    return (name, *operands)


def solved(formula: Formula, at: int, value: Callable[[Tree], Any]) -> Any:
    """Term `at` of an equation, where `value` gives the sides that do not hold it."""
    left, right = formula.left, formula.right
    if at in {place for place, _ in _places(right)}:
        left, right = right, left
    return _isolated(left, at, value(right), value)


def _isolated(tree: Tree, at: int, target: Any, value: Callable[[Tree], Any]) -> Any:
    assert not isinstance(tree, int)
    name, *operands = tree
    if name == "term":
        return target
    first, second = operands
    if at in {place for place, _ in _places(first)}:
        other = value(second)
        return _isolated(first, at, target - other if name == "+" else target + other, value)
    other = value(first)
    return _isolated(second, at, target - other if name == "+" else other - target, value)
