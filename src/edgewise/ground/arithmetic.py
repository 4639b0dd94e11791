"""Index arithmetic on columns of keys: `R.special.*`, all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgewise.ground.constants import STRINGS, Constants
from edgewise.language import nodes
from edgewise.reference import arithmetic
from edgewise.reference.buckets import bucket

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
    *given, last = columns
    values, fine = computed(atom, [*given, None], constants, len(last))
    return fine & (values == last)


def _different(columns: Sequence[Tensor]) -> Tensor:
    ordered = torch.stack(list(columns)).sort(0).values
    return 1 + (ordered[1:] != ordered[:-1]).sum(0)


def computed(
    atom: nodes.SpecialAtom, columns: Sequence[Tensor | None], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    """The one missing column of `count` rows from the others, and where there is a value for it."""
    given = [column for column in columns if column is not None]
    if atom.name == "eq":
        return given[0], torch.ones_like(given[0], dtype=torch.bool)
    if atom.function is not None:
        return _called(atom, given, constants, count)
    fine = _naturals(given)
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
        case (("bucket" | "bucket_before"), (*given, None)):
            return _buckets(name, *(c for c in given if c is not None))
    x, y = (c for c in columns if c is not None)
    if name in ("div", "mod"):
        divisor = torch.where(y == 0, 1, y)
        return (x // divisor if name == "div" else x % divisor), y != 0
    factor = torch.where(x == 0, 1, x)  # mul with a factor missing: x known, y the product
    return y // factor, (x != 0) & (y % factor == 0)


def _buckets(name: str, i: Tensor, j: Tensor, *sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Of every distance once, not of every pair."""
    distinct, which = torch.unique(torch.stack([j - i, *sizes], 1), dim=0, return_inverse=True)
    both = name == "bucket"
    found = [bucket(d, count, far, both=both) for d, count, far in distinct.tolist()]
    codes = torch.tensor([-1 if b is None else b for b in found], dtype=torch.int64)[which]
    return codes, codes >= 0


def _called(
    atom: nodes.SpecialAtom, given: Sequence[Tensor], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    # a function of nothing has one value
    distinct, inverse = torch.zeros(1, 0), torch.zeros(count, dtype=torch.int64)
    if given:
        distinct, inverse = torch.unique(torch.stack(list(given), 1), dim=0, return_inverse=True)
    values, fine = [], []
    for row in distinct.tolist():
        result = arithmetic.computed(atom, [*(constants.constant(c) for c in row), None])
        known = result is not None and constants.knows(result)
        values.append(constants.code(result) if known else -1)  # type: ignore[arg-type]
        fine.append(known)
    codes = torch.tensor(values, dtype=torch.int64)
    return codes[inverse], torch.tensor(fine, dtype=torch.bool)[inverse]


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
