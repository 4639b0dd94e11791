"""The pairs that a comparison of two terms allows, as a pattern: `I - J <= 5`."""

from __future__ import annotations

from edgewise.graphs import Pattern, blocks, causal, strided, window
from edgewise.language.term_expressions import MIRRORED, Formula, Tree

Linear = tuple[int, int, int]  # a·I + b·J + c


def formula_pattern(formula: Formula) -> Pattern | None:
    """The pairs (term 0, term 1) of natural numbers for which a formula holds; None if not known.

    >>> from edgewise.language import V
    >>> formula_pattern((V.I - V.J < 3).formula), formula_pattern((abs(V.I - V.J) <= 2).formula)
    (causal().T | window(2), window(2))
    """
    match formula.left, formula.sign, formula.right:
        case ("abs", inner), sign, int(k) if _is_distance(inner):
            return _apart(sign, k)
        case ("%", ("abs", inner) | inner, int(step)), ("==" | "!=") as sign, 0 if step > 0:
            if _is_distance(inner):
                return _unless(sign, strided(step))
        case ("//", x, int(a)), ("==" | "!=") as sign, ("//", y, int(b)) if a == b > 0:
            if sorted((x, y)) == [("term", 0), ("term", 1)]:
                return _unless(sign, blocks(a))
    left, right = _linear(formula.left), _linear(formula.right)
    if left is None or right is None:
        return None
    match [x - y for x, y in zip(left, right, strict=True)]:
        case [1, -1, c]:
            return _further(formula.sign, -c)
        case [-1, 1, c]:
            return _further(MIRRORED[formula.sign], c)
    return None


def _linear(tree: Tree) -> Linear | None:
    if isinstance(tree, int):
        return (0, 0, tree)
    name, *operands = tree
    if name == "term":
        return {0: (1, 0, 0), 1: (0, 1, 0)}.get(operands[0])  # type: ignore[arg-type]
    if name not in ("+", "-"):
        return None
    first, second = map(_linear, operands)
    if first is None or second is None:
        return None
    sign = 1 if name == "+" else -1
    a, b, c = (x + sign * y for x, y in zip(first, second, strict=True))
    return a, b, c


def _is_distance(tree: Tree) -> bool:
    return _linear(tree) in ((1, -1, 0), (-1, 1, 0))


def _unless(sign: str, pattern: Pattern) -> Pattern:
    return ~pattern if sign == "!=" else pattern


def _apart(sign: str, k: int) -> Pattern | None:
    """|i − j| compared with k."""
    if sign in ("<", ">="):
        sign, k = ("<=" if sign == "<" else ">"), k - 1
    if k < 0:
        return None
    if sign in ("<=", ">"):
        return window(k) if sign == "<=" else ~window(k)
    return _unless(sign, window(k) - window(k - 1) if k else window(0))


def _further(sign: str, k: int) -> Pattern:
    """i − j compared with k."""
    if sign in ("<", ">="):
        sign, k = ("<=" if sign == "<" else ">"), k - 1
    if sign in ("==", "!="):
        side = causal() if k >= 0 else causal().T
        band = side & window(abs(k))
        return _unless(sign, band - window(abs(k) - 1) if k else band)
    most = causal().T | window(k) if k >= 0 else causal().T - window(-k - 1)
    return most if sign == "<=" else ~most
