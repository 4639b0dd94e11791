"""Index arithmetic over the natural numbers: `R.special.*`."""

import math
import operator
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from edgewise.checks.evaluation import call_raised, not_a_key
from edgewise.language import nodes
from edgewise.language.term_expressions import Formula, Tree, solved

Key = nodes.Constant | None


def holds(atom: nodes.SpecialAtom, keys: Sequence[nodes.Constant]) -> bool:
    """Whether a special predicate holds of constants; on strings only the ones that compare."""
    if atom.formula is not None:
        return _formula_holds(atom.formula, keys)
    match atom.name, keys:
        case "eq", (x, y):
            return x == y
        case "neq", (x, y):
            return x != y
        case "in", (x, *rest):
            return x in rest
        case "alldiff", _:
            return len(set(keys)) == len(keys)
        case "maxcard", (k, *rest):
            return isinstance(k, int) and len(set(rest)) <= k
        case _, _ if any(isinstance(key, str) for key in keys) and atom.name != "fn":
            return False
        case "leq", (x, y):
            return x <= y  # type: ignore[operator]
        case "lt", (x, y):
            return x < y  # type: ignore[operator]
        case "geq", (x, y):
            return x >= y  # type: ignore[operator]
        case "gt", (x, y):
            return x > y  # type: ignore[operator]
    return computed(atom, [*keys[:-1], None]) == keys[-1]


def computed(atom: nodes.SpecialAtom, keys: Sequence[Key]) -> Key:
    """The one argument that is missing, from the others; None if there is none."""
    if atom.formula is not None:
        return _formula_solved(atom.formula, keys)
    if atom.name == "eq":
        return keys[0] if keys[1] is None else keys[1]
    if atom.function is not None:
        return _called(atom, keys[:-1])
    if any(isinstance(key, str) or (key is not None and key < 0) for key in keys):
        return None
    result = _solved(atom.name, keys)
    return result if result is not None and result >= 0 else None


OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "abs": operator.abs, "<=": operator.le, "<": operator.lt,
    ">=": operator.ge, ">": operator.gt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def _value(tree: Tree, keys: Sequence[Any]) -> int:
    if isinstance(tree, int):
        return tree
    name, *operands = tree
    if name == "term":
        return keys[operands[0]]  # type: ignore[index]
    return OPERATORS[name](*(_value(operand, keys) for operand in operands))


def _formula_holds(formula: Formula, keys: Sequence[nodes.Constant]) -> bool:
    if any(isinstance(key, str) for key in keys):
        return False
    try:
        sides = _value(formula.left, keys), _value(formula.right, keys)
    except ZeroDivisionError:
        return False
    return bool(OPERATORS[formula.sign](*sides))


def _formula_solved(formula: Formula, keys: Sequence[Key]) -> Key:
    if any(isinstance(key, str) for key in keys):
        return None
    try:
        return int(solved(formula, keys.index(None), lambda side: _value(side, keys)))
    except ZeroDivisionError:
        return None


def _solved(name: str, keys: Sequence[Any]) -> int | None:
    match name, keys:
        case "next", (x, None):
            return x + 1
        case "next", (None, y):
            return y - 1
        case ("add", (x, y, None)) | ("sub", (None, y, x)):
            return x + y
        case ("add", (None, y, z)) | ("add", (y, None, z)):
            return z - y
        case ("sub", (x, y, None)) | ("sub", (x, None, y)):
            return x - y
        case "mul", (x, y, None):
            return x * y
        case ("mul", (None, y, z)) | ("mul", (y, None, z)):
            return z // y if y and z % y == 0 else None
        case "div", (x, y, None):
            return x // y if y else None
        case "mod", (x, y, None):
            return x % y if y else None
        case (("bucket" | "bucket_before"), (i, j, buckets, far, None)):
            return bucket(j - i, buckets, far, both=name == "bucket")
    return None


def bucket(distance: int, buckets: int, far: int, *, both: bool = True) -> int | None:
    """The bucket of a key that stands `distance` after the query; `both`: keys after it have half
    of the buckets to themselves, else they share the query's (T5, https://arxiv.org/abs/1910.10683).

    Half of the buckets of a side hold one distance each, the others grow as logarithms up to `far`.
    None where there are not enough buckets, or `far` is among the distances that stand alone.

    >>> [bucket(d, 8, 16) for d in (-20, -2, -1, 0, 1, 2, 20)]
    [3, 2, 1, 0, 5, 6, 7]
    """
    first = 0
    if both:  # the upper half of the buckets is for keys ahead
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if not 0 < exact < far:
        return None
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(far / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


def _called(atom: nodes.SpecialAtom, keys: Sequence[Key]) -> Key:
    assert atom.function is not None
    try:
        result = atom.function.thing(*keys)
    except Exception as problem:
        raise call_raised(atom, keys, problem) from problem
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, Integral) or (hasattr(result, "item") and isinstance(result.item(), int)):
        return int(result)
    raise not_a_key(atom, keys, result)


def evaluated(name: str, keys: Sequence[nodes.Constant]) -> float | None:
    """The number that `*_eval` contributes; None where it does not hold."""
    if any(isinstance(key, str) for key in keys):
        return None
    x, y = (float(key) for key in keys)
    match name.removesuffix("_eval"):
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "div":
            return x / y if y else None
        case "mod":
            return x % y if y else None
        case "max":
            return max(x, y)
        case "min":
            return min(x, y)
    raise ValueError(name)
