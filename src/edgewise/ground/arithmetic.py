"""Index arithmetic on columns of keys: `R.special.*`, all rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from edgewise.checks.evaluation import call_raised, not_a_key
from edgewise.ground.constants import STRINGS, Constants
from edgewise.language import nodes

COMPARE = {"leq": torch.le, "lt": torch.lt, "geq": torch.ge, "gt": torch.gt}


def _integers(columns: Sequence[Tensor]) -> Tensor:
    return torch.stack([column < STRINGS for column in columns]).all(0)


def _naturals(columns: Sequence[Tensor]) -> Tensor:
    return torch.stack([(column < STRINGS) & (column >= 0) for column in columns]).all(0)


def holds(atom: nodes.SpecialAtom, columns: Sequence[Tensor], constants: Constants) -> Tensor:
    """Where the predicate holds, before negation."""
    match atom.name, columns:
        case "eq", (x, y):
            return x == y
        case "neq", (x, y):
            return x != y
        case "in", (x, *rest):
            return torch.stack([x == y for y in rest]).any(0)
        case "alldiff", _:
            return _different(columns) == len(columns)
        case "maxcard", (k, *rest):
            return (k < STRINGS) & (_different(rest) <= k)
        case (("leq" | "lt" | "geq" | "gt"), (x, y)):
            return _integers(columns) & COMPARE[atom.name](x, y)
    *known, last = columns
    values, fine = computed(atom, [*known, None], constants, len(last))
    return fine & (values == last)


def _different(columns: Sequence[Tensor]) -> Tensor:
    ordered = torch.stack(list(columns)).sort(0).values
    return 1 + (ordered[1:] != ordered[:-1]).sum(0)


def computed(
    atom: nodes.SpecialAtom, columns: Sequence[Tensor | None], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    """The one missing column of `count` rows from the others, and where there is a value for it."""
    known = [column for column in columns if column is not None]
    if atom.name == "eq":
        return known[0], torch.ones_like(known[0], dtype=torch.bool)
    if atom.function is not None:
        return _called(atom, known, constants, count)
    fine = _naturals(known)
    value, able = _solved(atom.name, columns)
    return value, fine & able & (value >= 0)


def _solved(name: str, columns: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    yes = torch.ones_like(next(c for c in columns if c is not None), dtype=torch.bool)
    match name, columns:
        case "next", (Tensor() as x, None):
            return x + 1, yes
        case "next", (None, Tensor() as y):
            return y - 1, yes
        case ("add", (Tensor() as x, Tensor() as y, None)) | (
            "sub",
            (None, Tensor() as y, Tensor() as x),
        ):
            return x + y, yes
        case ("add", (None, Tensor() as y, Tensor() as z)) | (
            "add",
            (Tensor() as y, None, Tensor() as z),
        ):
            return z - y, yes
        case ("sub", (Tensor() as x, Tensor() as y, None)) | (
            "sub",
            (Tensor() as x, None, Tensor() as y),
        ):
            return x - y, yes
        case "mul", (Tensor() as x, Tensor() as y, None):
            return x * y, yes
        case (("bucket" | "bucket_before"), (*known, None)):
            return _buckets(name, *(c for c in known if c is not None))
    x, y = (c for c in columns if c is not None)
    if name in ("div", "mod"):
        divisor = torch.where(y == 0, 1, y)
        return (x // divisor if name == "div" else x % divisor), y != 0
    factor = torch.where(x == 0, 1, x)  # mul with a factor missing: x known, y the product
    return y // factor, (x != 0) & (y % factor == 0)


def _buckets(name: str, i: Tensor, j: Tensor, counts: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
    """T5's buckets of j − i: of every distance once, not of every pair."""
    distance = j - i if name == "bucket" else (i - j).clamp(min=0)
    if name == "bucket":
        counts = counts // 2  # the upper half is for keys after the query
    cases = torch.stack([distance.abs(), counts, far], 1)
    distinct, which = torch.unique(cases, dim=0, return_inverse=True)
    found = torch.tensor([_one_sided_bucket(*case) for case in distinct.tolist()] or [0])[which]
    first = counts * (distance > 0) if name == "bucket" else 0
    return found + first, found >= 0


def _one_sided_bucket(distance: int, count: int, far: int) -> int:
    """Half of `count` buckets hold one distance each, the rest grow as logarithms up to `far`."""
    single = count // 2
    if not 0 < single < far:
        return -1
    if distance < single:
        return distance
    grown = math.log(distance / single) / math.log(far / single) * (count - single)
    return min(single + int(grown), count - 1)


def _called(
    atom: nodes.SpecialAtom, arguments: Sequence[Tensor], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    # a function of nothing has one value
    distinct, inverse = torch.zeros(1, 0), torch.zeros(count, dtype=torch.int64)
    if arguments:
        distinct, inverse = torch.unique(
            torch.stack(list(arguments), 1), dim=0, return_inverse=True
        )
    values, fine = [], []
    for row in distinct.tolist():
        result = _call(atom, [constants.constant(code) for code in row])
        known = result is not None and constants.knows(result)
        values.append(constants.code(result) if known else -1)  # type: ignore[arg-type]
        fine.append(known)
    codes = torch.tensor(values, dtype=torch.int64)
    return codes[inverse], torch.tensor(fine, dtype=torch.bool)[inverse]


def _call(atom: nodes.SpecialAtom, keys: Sequence[nodes.Constant]) -> nodes.Constant | None:
    """The key that the caller's function gives for these keys; None where it does not hold."""
    assert atom.function is not None
    try:
        result = atom.function.thing(*keys)
    except Exception as problem:
        raise call_raised(atom, keys, problem) from problem
    if hasattr(result, "item") and isinstance(result.item(), int):
        return int(result)
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, Integral):
        return int(result)
    raise not_a_key(atom, keys, result)


def evaluated(name: str, columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The numbers that `*_eval` contributes, and where it holds."""
    fine = _integers(columns)
    x, y = (column.double() for column in columns)
    kind = name.removesuffix("_eval")
    if kind in ("div", "mod"):
        fine = fine & (y != 0)
        y = torch.where(y == 0, 1.0, y)
    table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "mod": torch.remainder,
        "max": torch.maximum,
        "min": torch.minimum,
    }
    return table[kind](x, y), fine
